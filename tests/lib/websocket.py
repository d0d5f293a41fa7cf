# SPDX-License-Identifier: Apache-2.0
"""WebSocket (RFC 6455) by hand: a client that can also say what no proper client says, and an echo server as code for inside."""
import base64
import hashlib
import os
import struct

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10

# Reads frames of any length, echoes data and pings, answers CLOSE. Standard library only; argument: the port.
ECHO_SERVER = r'''
import base64, hashlib, socket, struct, sys, threading
def take(s, n):
    data = b""
    while len(data) < n:
        piece = s.recv(n - len(data))
        if not piece: raise EOFError
        data += piece
    return data
def serve(s):
    head = b""
    while b"\r\n\r\n" not in head: head += s.recv(4096)
    fields = {l.split(b":", 1)[0].lower(): l.split(b":", 1)[1].strip() for l in head.split(b"\r\n")[1:] if b":" in l}
    if b"sec-websocket-key" not in fields:
        body = head
        s.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s" % (len(body), body)); s.close(); return
    accept = base64.b64encode(hashlib.sha1(fields[b"sec-websocket-key"] + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
    s.sendall(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: " + accept + b"\r\n\r\n")
    try:
        while True:
            first, second = take(s, 2)
            n = second & 127
            n = struct.unpack(">H", take(s, 2))[0] if n == 126 else struct.unpack(">Q", take(s, 8))[0] if n == 127 else n
            mask = take(s, 4) if second & 128 else bytes(4)
            data = take(s, n)
            data = bytes(a ^ b for a, b in zip(data, mask * (n // 4 + 1)))
            kind = {9: 10}.get(first & 15, first & 15)
            size = bytes([n]) if n < 126 else b"\x7e" + struct.pack(">H", n) if n < 65536 else b"\x7f" + struct.pack(">Q", n)
            s.sendall(bytes([first & 0xf0 | kind]) + size + data)
            if kind == 8: break
    except (EOFError, OSError): pass
    s.close()
l = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("up", flush=True)
while True: threading.Thread(target=serve, args=(l.accept()[0],), daemon=True).start()
'''


def take(sock, size):
    data = b""
    while len(data) < size:
        piece = sock.recv(size - len(data))
        if not piece:
            raise EOFError(f"closed after {len(data)} of {size} bytes")
        data += piece
    return data


def read_head(sock):
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        piece = sock.recv(1)
        if not piece:
            raise EOFError(f"closed in the header: {head!r}")
        head += piece
    return head


class WebSocket:
    """The client's side on a connected socket."""
    def __init__(self, sock, path, fields=()):
        self.sock, key = sock, base64.b64encode(os.urandom(16))
        lines = [f"GET {path} HTTP/1.1", "Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13", *fields]
        if not any(f.lower().startswith("host:") for f in fields):
            lines.insert(1, "Host: localhost")
        sock.sendall("\r\n".join(lines).encode() + b"\r\nSec-WebSocket-Key: " + key + b"\r\n\r\n")
        self.head = read_head(sock)
        self.status = int(self.head.split()[1])
        if self.status == 101:
            accept = base64.b64encode(hashlib.sha1(key + GUID).digest())
            assert b"sec-websocket-accept: " + accept.lower() in self.head.lower(), self.head

    def send(self, data, kind=BINARY, final=True, masked=True, length=None):
        n = len(data) if length is None else length
        size = bytes([n]) if n < 126 else b"\x7e" + struct.pack(">H", n) if n < 65536 else b"\x7f" + struct.pack(">Q", n)
        size = bytes([size[0] | (128 if masked else 0)]) + size[1:]
        mask = os.urandom(4) if masked else b""
        if masked:
            data = (int.from_bytes(data, "big") ^ int.from_bytes(
                (mask * (len(data) // 4 + 1))[:len(data)], "big")).to_bytes(len(data), "big")
        self.sock.sendall(bytes([(128 if final else 0) | kind]) + size + mask + data)

    def receive(self):
        """(kind, final, data) of the next frame."""
        first, second = take(self.sock, 2)
        n = second & 127
        n = struct.unpack(">H", take(self.sock,
                                     2))[0] if n == 126 else struct.unpack(">Q", take(self.sock, 8))[0] if n == 127 else n
        return first & 15, bool(first & 128), take(self.sock, n)
