# SPDX-License-Identifier: Apache-2.0
"""Servers inside, reached from outside by path: HTTP and WebSocket, large bodies, and nothing of the caller's that is not theirs."""
import hashlib
import json
import os

import pytest
from contract import at_once, until
from service import joined
from websocket import BINARY, CLOSE, ECHO_SERVER, PING, PONG, TEXT, WebSocket

SERVER = r'''
import http.server, json, os, sys, hashlib
class H(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *a): pass
    def do(self):
        if self.headers.get("Transfer-Encoding") == "chunked":
            body = b""
            while n := int(self.rfile.readline(), 16): body += self.rfile.read(n); self.rfile.readline()
            self.rfile.readline()
        else: body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.path.startswith("/big"):
            self.send_response(200); self.send_header("Content-Length", str(20 << 20)); self.end_headers()
            for i in range(20): self.wfile.write(bytes([i]) * (1 << 20))
            return
        if self.path.startswith("/chunks"):
            self.send_response(200); self.send_header("Transfer-Encoding", "chunked"); self.end_headers()
            for i in range(5): self.wfile.write(b"3\r\nabc\r\n")
            self.wfile.write(b"0\r\n\r\n"); return
        if self.path.startswith("/die"): os._exit(1)
        if self.path.startswith("/half"):
            self.send_response(200); self.send_header("Content-Length", "1000"); self.end_headers(); self.wfile.write(b"half"); self.wfile.flush(); os._exit(1)
        text = json.dumps({"method": self.command, "path": self.path, "fields": {k.lower(): v for k, v in self.headers.items()}, "size": len(body), "sha256": hashlib.sha256(body).hexdigest()}).encode()
        status = int(self.path[8:]) if self.path.startswith("/status/") else 200
        self.send_response(status); self.send_header("Content-Length", "0" if status in (204, 304) else str(len(text))); self.send_header("X-Own", "yes"); self.send_header("Set-Cookie", "a=b"); self.end_headers()
        if self.command != "HEAD" and status not in (204, 304): self.wfile.write(text)
    do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = do_HEAD = do_OPTIONS = do
s = http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), H)
print("listening", flush=True)
s.serve_forever()
'''


@pytest.fixture
def web(boxes):
    """A sandbox with an HTTP server on 8000 and a WebSocket server on 8001."""
    box = boxes(memory="256m", cpus=1)
    for code, port, word in ((SERVER, 8000, b"listening"), (ECHO_SERVER, 8001, b"up")):
        p = box.start(language="python", code=code, args=[str(port)])
        until(lambda p=p, word=word: word in joined(p.output(), "stdout"), what="the server")
    return box


def ask(box, method="GET", path="/ports/8000/", **kw):
    return box.request(method, path, check=False, **kw)


def test_request_and_answer_pass_as_they_are(web):
    r = ask(web, "POST", "/ports/8000/a/b%20c?x=1&y=%2F", body=b"body", headers={"X-Mine": "1", "Content-Type": "text/plain"})
    seen = r.json
    assert r.status == 200 and r.headers["X-Own"] == "yes"
    assert (seen["method"], seen["path"], seen["size"]) == ("POST", "/a/b%20c?x=1&y=%2F", 4)
    assert (seen["fields"]["x-mine"], seen["fields"]["content-type"]) == ("1", "text/plain")


@pytest.mark.parametrize("method", ["GET", "PUT", "POST", "DELETE", "PATCH", "OPTIONS"])
def test_methods(web, method):
    assert ask(web, method).json["method"] == method


def test_head(web):
    r = ask(web, "HEAD")
    assert r.status == 200 and r.body == b"" and r.headers["X-Own"] == "yes"


@pytest.mark.parametrize("status", [201, 204, 301, 304, 404, 418, 500, 503])
def test_status_is_the_servers_own(web, status):
    r = ask(web, path=f"/ports/8000/status/{status}")
    assert r.status == status and r.headers["X-Own"] == "yes"


def test_what_is_for_this_service_is_not_passed_on(web):
    seen = ask(
        web, headers={
            "Authorization": "Bearer clk_secret", "Cookie": "a=b", "X-Cloche-Session": "s", "Connection": "keep-alive, x-hop",
            "X-Hop": "1", "Proxy-Authorization": "x", "TE": "trailers"
        }).json["fields"]
    assert not {"authorization", "cookie", "proxy-authorization", "x-hop", "te"} & set(seen), seen
    assert "clk_" not in json.dumps(seen)


def test_twenty_megabytes_out(web):
    r = ask(web, path="/ports/8000/big")
    assert hashlib.sha256(r.body).digest() == hashlib.sha256(b"".join(bytes([i]) * (1 << 20) for i in range(20))).digest()


def test_twenty_megabytes_in(web):
    data = os.urandom(20 << 20)
    r = ask(web, "POST", body=data)
    assert (r.json["size"], r.json["sha256"]) == (len(data), hashlib.sha256(data).hexdigest())


def test_chunks_both_ways(web):
    assert ask(web, path="/ports/8000/chunks").body == b"abc" * 5
    r = ask(web, "POST", body=iter([b"one ", b"two"]))
    assert r.json["size"] == 7


def test_many_at_the_same_time(web):
    answers = at_once(lambda i: ask(web, path=f"/ports/8000/n{i}").json["path"], range(20))
    assert answers == [f"/n{i}" for i in range(20)]


def test_nothing_listens(box):
    box.problem(502, "BAD_GATEWAY", "GET", "/ports/8000/")


def test_a_server_that_dies(web):
    web.problem(502, "BAD_GATEWAY", "GET", "/ports/8000/die")
    web.problem(502, "BAD_GATEWAY", "GET", "/ports/8000/")


def test_a_server_that_dies_in_its_answer_is_seen_by_the_client(web):
    with pytest.raises(Exception, match="IncompleteRead|reset"):
        ask(web, path="/ports/8000/half")


@pytest.mark.parametrize("port", ["0", "65536", "-1", "x", "80x", "99999999999", "+80", "0x50"])
def test_no_such_port(box, port):
    r = box.request("GET", f"/ports/{port}/", check=False)
    assert (r.status, r.json["code"]) in ((400, "INVALID_REQUEST"), (404, "NOT_FOUND")), r


def test_a_server_on_another_address_is_not_reached(box):
    """Only 127.0.0.1 inside: the port is no way to the host's own servers."""
    import socket
    with socket.create_server(("127.0.0.1", 0)) as host:
        box.problem(502, "BAD_GATEWAY", "GET", f"/ports/{host.getsockname()[1]}/")


def test_garbage_from_inside_is_a_bad_gateway(box):
    code = (
        "import socket\nl = socket.create_server(('127.0.0.1', 8002))\nprint('up', flush=True)\n"
        "for b in (b'garbage\\r\\n\\r\\n', b'HTTP/1.1 200 OK\\r\\nContent-Length: 5\\r\\nContent-Length: 6\\r\\n\\r\\nhello', b'HTTP/1.1 200 OK\\r\\nA: ' + b'x' * 200000 + b'\\r\\n\\r\\n', b''):\n"
        " s = l.accept()[0]; s.recv(9999)\n try: s.sendall(b)\n except OSError: pass\n s.close()")
    p = box.start(language="python", code=code)
    until(lambda: joined(p.output(), "stdout"), what="the server")
    for _ in range(4):
        box.problem(502, "BAD_GATEWAY", "GET", "/ports/8002/")


def test_a_paused_sandbox_is_resumed(web):
    web.pause()
    assert ask(web).status == 200 and web.object()["state"] == "running"


# ------------------------------------------------------------------------------------------------------ WebSocket


@pytest.fixture
def ws(web):
    with web.client.socket() as sock:
        yield WebSocket(sock, f"{web.path}/ports/8001/chat")


def test_websocket_echo(ws):
    assert ws.status == 101
    for data, kind in ((b"hello", TEXT), (bytes(range(256)), BINARY), (b"", BINARY), (os.urandom(70000), BINARY),
                       (os.urandom(1 << 20), BINARY)):
        ws.send(data, kind)
        assert ws.receive() == (kind, True, data)
    ws.send(b"p", PING)
    assert ws.receive() == (PONG, True, b"p")
    ws.send(b"\x03\xe8", CLOSE)
    assert ws.receive()[0] == CLOSE
    assert ws.sock.recv(1) == b""


def test_websocket_cut_by_the_client_ends_inside(web):
    with web.client.socket() as sock:
        WebSocket(sock, f"{web.path}/ports/8001/").send(b"x")
    until(lambda: ask(web, path="/ports/8001/").status == 200, what="the server")


def test_websocket_without_a_server(box):
    with box.client.socket() as sock:
        assert WebSocket(sock, f"{box.path}/ports/8001/").status == 502


def test_fifty_websockets(web):
    def talk(i):
        with web.client.socket() as sock:
            w = WebSocket(sock, f"{web.path}/ports/8001/")
            w.send(b"%d" % i, TEXT)
            return w.receive()[2]

    assert at_once(talk, range(30)) == [b"%d" % i for i in range(30)]
