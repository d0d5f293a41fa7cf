# SPDX-License-Identifier: Apache-2.0
"""Drives a real cloche-egress without any sandbox: its starter's side of src/egress/wire.h, listeners, and servers to reach.

    with egress.Egress(rules="allow api.test:8080 within=127.0.0.0/8", resolve={"api.test": ["127.0.0.1"]}) as e:
        answer = e.http("GET http://api.test:8080/ HTTP/1.1\\r\\nHost: api.test:8080\\r\\n\\r\\n")
        e.flush()
        assert [r.verdict for r in e.records] == ["allowed"]

Listeners are on the loopback of this network namespace (e.proxy is where the proxy listens), or, with netns=Netns(), in one
of its own with a default route to lo, as a sandbox has it: then captured connections can be tried as well.
"""
import array
import collections
import contextlib
import ctypes
import ipaddress
import json
import os
import queue
import re
import signal
import socket
import struct
import subprocess
import threading
import time
from pathlib import Path

import cloche

CONFIG, SERVE, POLICY, FLUSH, ACK, WATCH = range(1, 7)
READY, DONE, REFUSED, RECORD, TOTALS = range(32, 37)
KINDS = ("proxy", "http", "tls", "any", "dns", "dns_tcp")
VERDICTS = ("denied", "allowed", "failed")
STAY = 0xFFFFFFFF
MESSAGE_MAX = 64 << 10
PATIENCE_S = 60  # of a client: longer than anything that src/egress/limits.def lets take its time
CLONE_NEWNET = 0x40000000
RECORD_FORMAT = "<IIIIQQQQ256s48s512s200s64s16s128s"
Record = collections.namedtuple("Record", "number verdict port started_ms duration_us sent received host address rule why "
                                          "credential method path")
Totals = collections.namedtuple("Totals", "allowed denied failed bytes open lost")


class Refused(Exception):
    """What cloche-egress said why it does not do what it was asked for."""


def binary():
    return str(Path(cloche.binary()).parent / "cloche-egress")


def memfd(text, seal=True):
    fd = os.memfd_create("egress", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.write(fd, text if isinstance(text, bytes) else text.encode())
    if seal:
        fcntl_add_seals = 1033
        import fcntl
        fcntl.fcntl(fd, fcntl_add_seals, 0x1 | 0x2 | 0x4 | 0x8)
    return fd


def send(sock, data, fds=()):
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
    sock.sendmsg([data], rights)


def text(raw):
    return raw.split(b"\0", 1)[0].decode("utf-8", "backslashreplace")


def is_host(name):
    """Of one form: what src/network/host.c makes of a name or an address."""
    try:
        a = ipaddress.ip_address(name)
    except ValueError:
        labels = name.split(".")
        return len(name) < 254 and all(re.fullmatch("(?!-)[a-z0-9_-]{1,63}(?<!-)", x) for x in labels) and not re.fullmatch(
            "[0-9]+|0x[0-9a-f]*", labels[-1])
    if a.version == 6:
        prefixes = ("::ffff:0:0/96", "64:ff9b::/96", "2002::/16", "2001::/32")
        return not any(a in ipaddress.ip_network(p) for p in prefixes) and socket.inet_ntop(socket.AF_INET6, a.packed) == name
    return str(a) == name


def believable(r):
    """As egress_record_is_valid() has it: what its clients end it for otherwise."""
    texts = (r.host, r.address, r.rule, r.why, r.credential, r.method, r.path)
    return (not r.host or is_host(r.host)) and not any(ord(c) < 0x20 or ord(c) == 0x7f for t in texts for c in t)


def unpack_record(data):
    assert len(data) == struct.calcsize(RECORD_FORMAT), len(data)
    _, number, verdict, port, started, duration, sent, received, *texts = struct.unpack(RECORD_FORMAT, data)
    r = Record(number, VERDICTS[verdict], port, started, duration, sent, received, *map(text, texts))
    assert believable(r), r
    return r


class Control:
    """A client of the control socket."""

    def __init__(self, sock):
        self.sock, self.sequence, self.records = sock, 0, []
        self.lock = threading.Lock()
        sock.settimeout(PATIENCE_S)

    def ask(self, kind, fds=(), sequence=None):
        """Send a request; records that come before its answer are kept. Returns the answer's type and bytes."""
        with self.lock:
            self.sequence += 1
            send(self.sock, struct.pack("<II", kind, self.sequence if sequence is None else sequence), fds)
            while kind not in (ACK, WATCH):
                data = self.receive()
                if data is not None:
                    return data
            return None

    def receive(self):
        data = self.sock.recv(MESSAGE_MAX)
        if not data:
            raise EOFError("cloche-egress hung up")
        kind, sequence = struct.unpack_from("<II", data)
        if kind == RECORD:
            self.records.append(unpack_record(data))
            return None
        assert sequence == self.sequence, (kind, sequence)
        return kind, data

    def watch(self):
        self.ask(WATCH)

    def ack(self, number):
        self.ask(ACK, sequence=number)

    def flush(self):
        kind, data = self.ask(FLUSH)
        assert kind == TOTALS
        return Totals(*struct.unpack_from("<QQQQQQ", data, 8))

    def policy(self, rules, mode="allow"):
        fd = memfd(json.dumps({"mode": mode, "rules": rules}))
        try:
            kind, data = self.ask(POLICY, [fd])
        finally:
            os.close(fd)
        if kind == REFUSED:
            raise Refused(text(data[8:]))
        assert kind == DONE


class Netns:
    """A network namespace as a sandbox has it: only lo, and every address local by a default route. Needs root."""

    def __init__(self):
        self.fd = self.inside(self._make, fresh=True)

    @staticmethod
    def _make():
        for command in ("ip link set lo up", "ip route add local default dev lo", "ip -6 route add local default dev lo"):
            subprocess.run(command.split(), check=True)
        return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)

    def inside(self, function, fresh=False):
        """What FUNCTION returns in there; sockets that it makes belong there for ever."""
        result = queue.Queue()
        libc = ctypes.CDLL(None, use_errno=True)

        def run():
            try:
                if libc.unshare(CLONE_NEWNET) if fresh else libc.setns(self.fd, CLONE_NEWNET):
                    raise OSError(ctypes.get_errno(), "network namespace")
                result.put((function(), None))
            except BaseException as e:  # noqa: B036  handed to the caller
                result.put((None, e))
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        value, error = result.get()
        if error:
            raise error
        return value

    def enter(self):
        """For preexec_fn."""
        if ctypes.CDLL(None, use_errno=True).setns(self.fd, CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")

    def connect(self, host, port, timeout=PATIENCE_S):
        family = socket.AF_INET6 if ":" in host else socket.AF_INET

        def connect():
            s = socket.socket(family)
            s.settimeout(timeout)
            s.connect((host, port))
            return s
        return self.inside(connect)

    def cuts(self, host, port):
        """Is a connection to there reset, before or after it came about?"""
        try:
            with self.connect(host, port) as s:
                return is_reset(s)
        except ConnectionResetError:
            return True

    def close(self):
        os.close(self.fd)


def listener(kind, host, port, backlog=1024):
    udp = kind == "dns"
    s = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM if udp else socket.SOCK_STREAM)
    if not udp:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if ":" in host:
        s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    if udp and ":" in host:
        s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO, 1)
        s.setsockopt(socket.IPPROTO_IPV6, 78, 1)  # IPV6_FREEBIND
    elif udp:
        s.setsockopt(socket.IPPROTO_IP, 8, 1)  # IP_PKTINFO
    s.bind((host, port))
    if not udp:
        s.listen(backlog)
    s.setblocking(False)
    return s


class Egress:
    """One cloche-egress. kinds: which listeners it gets; with a 6 behind it one of IPv6. config: more keys of src/egress/config.h, or others in place of them."""

    PORTS = {"proxy": 3128, "http": 80, "tls": 443, "any": 3129, "dns": 53, "dns_tcp": 53}

    def __init__(self, rules="", mode="allow", resolve=None, kinds=("proxy",), netns=None, control="connected", uid=STAY,
                 watch=True, raw=None, wrap=(), **config):
        self.config = {"mode": mode, "rules": rules, "ceiling": "", "ceiling_mode": "open", "resolve": resolve or {},
                       "upstream_ca": None, "credentials": [], "capture": "redirect", **config}
        self.kinds, self.netns, self.how, self.uid, self.wrap = kinds, netns, control, uid, wrap
        self.watch, self.raw = watch, raw
        self.listeners, self.ca, self.control, self.folder = {}, "", None, None
        self.process = self.init = None

    # ---- start and end

    def __enter__(self):
        try:
            self.start()
            self.serve()
        except BaseException:
            self.close()
            raise
        return self

    def start(self):
        """Up to READY."""
        self.starter, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.starter.settimeout(PATIENCE_S)
        with theirs:
            self.process = subprocess.Popen([*self.wrap, binary(), str(theirs.fileno())], pass_fds=[theirs.fileno()], cwd="/",
                                            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        fd = memfd(json.dumps(self.config) if self.raw is None else self.raw)
        control = self._control()
        try:
            send(self.starter, struct.pack("<IIIIII", CONFIG, 7, 1, self.uid, self.uid, 0), [fd, control.fileno()])
        finally:
            os.close(fd)
            control.close()
        answer = self.starter.recv(MESSAGE_MAX)
        if not answer:
            raise EOFError(self.process.stderr.read().decode())
        kind, sequence = struct.unpack_from("<II", answer)
        assert sequence == 7
        if kind == REFUSED:
            raise Refused(text(answer[8:]))
        assert kind == READY and len(answer) == 16 + 8192
        size, = struct.unpack_from("<I", answer, 8)
        self.ca = answer[16:16 + size].decode()
        return self

    def _control(self):
        if self.how == "connected":
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self.control = Control(ours)
            return theirs
        self.folder = cloche.tempfile.mkdtemp(prefix="clo-egress.")
        s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        s.bind(f"{self.folder}/egress")
        s.listen()
        return s

    def client(self):
        """Another client of a listening control socket."""
        s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        s.connect(f"{self.folder}/egress")
        return Control(s)

    def _listen(self):
        for kind in self.kinds:
            name, six = kind.rstrip("6"), kind.endswith("6")
            local = ("::1" if six else "127.0.0.1") if name in ("proxy", "any") or not self.netns else ("::" if six else "0.0.0.0")
            self.listeners[kind] = listener(name, local, self.PORTS[name] if self.netns else 0)

    def serve(self):
        if self.netns:
            self.netns.inside(self._listen)
        else:
            self._listen()
        self.init = subprocess.Popen(["sleep", "1000"])
        pidfd = os.pidfd_open(self.init.pid)
        kinds = [KINDS.index(k.rstrip("6")) for k in self.kinds]
        message = struct.pack("<III16II", SERVE, 8, len(kinds), *(kinds + [0] * (16 - len(kinds))), 0)
        send(self.starter, message, [self.listeners[k].fileno() for k in self.kinds] + [pidfd])
        os.close(pidfd)
        self.addresses = {k: s.getsockname()[:2] for k, s in self.listeners.items()}
        for s in self.listeners.values():
            s.close()
        if self.how != "connected":
            self.control = self.client()
        if self.watch:
            self.control.watch()

    def __exit__(self, *_):
        self.close()

    def close(self):
        """It has to end by itself, without an error, when its control socket is hung up on or init has died."""
        if self.control and self.how == "connected":
            self.control.sock.close()
        if self.init:
            self.init.kill()
            self.init.wait()
        if self.control and self.how != "connected":
            with contextlib.suppress(OSError, EOFError):
                self.flush()
                self.control.ack(self.records[-1].number if self.records else 0)
            self.control.sock.close()
        if getattr(self, "starter", None):
            self.starter.close()
        if self.process and not self.process.stderr.closed:
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                raise
            finally:
                self.errors = self.process.stderr.read().decode()
                self.process.stderr.close()
                if self.folder:
                    cloche.shutil.rmtree(self.folder, ignore_errors=True)
            assert "Sanitizer" not in self.errors, self.errors

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    # ---- what it does

    @property
    def proxy(self):
        return self.addresses["proxy"]

    @property
    def url(self):
        return f"http://{self.proxy[0]}:{self.proxy[1]}"

    @property
    def records(self):
        return self.control.records

    def flush(self):
        return self.control.flush()

    def policy(self, rules, mode="allow"):
        self.control.policy(rules, mode)

    def denials(self):
        """[(host, port)] of all records that are denials, after a flush."""
        self.flush()
        return [(r.host, r.port) for r in self.records if r.verdict == "denied"]

    def dial(self, kind="proxy", host=None, port=None, timeout=PATIENCE_S):
        host, port = host or self.addresses[kind][0], port or self.addresses[kind][1]
        return self.netns.connect(host, port, timeout) if self.netns else socket.create_connection((host, port), timeout)

    def send(self, data, kind="proxy"):
        """All that comes back for these bytes until the end; a reset is b"RESET"."""
        with self.dial(kind) as s:
            s.sendall(data if isinstance(data, bytes) else data.encode("latin-1"))
            return drain(s)

    @staticmethod
    def exchange(s, request):
        """One request and its answer of a given length: its header, its body."""
        s.sendall(request if isinstance(request, bytes) else request.encode("latin-1"))
        head = read_head(s)
        size = [int(line.split(":")[1]) for line in head.split("\r\n") if line.lower().startswith("content-length:")]
        return head, read_exactly(s, size[0] if size else 0)

    def connect(self, host, port, more=""):
        """A tunnel by CONNECT: the socket, and the answer's header."""
        s = self.dial()
        s.sendall(f"CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n{more}\r\n".encode())
        return s, read_head(s)

    def socks(self, host, port, kind=3, command=1):
        """A tunnel by SOCKS5: the socket, and the reply's code."""
        s = self.dial()
        s.sendall(b"\5\1\0")
        assert read_exactly(s, 2) == b"\5\0"
        if kind == 3:
            raw = host if isinstance(host, bytes) else host.encode()
            address = bytes([len(raw)]) + raw
        else:
            address = socket.inet_pton(socket.AF_INET6 if kind == 4 else socket.AF_INET, host)
        s.sendall(bytes([5, command, 0, kind]) + address + struct.pack(">H", port))
        reply = read_exactly(s, 10)
        return s, reply[1]

    def memory(self):
        """Resident bytes."""
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * 4096

    def wait_for(self, condition, timeout=20):
        """Flush until CONDITION(totals) holds."""
        end = time.monotonic() + timeout
        while not condition(totals := self.flush()):
            assert time.monotonic() < end, totals
            time.sleep(0.02)
        return totals


def read_exactly(s, size):
    data = b""
    while len(data) < size and (more := s.recv(size - len(data))):
        data += more
    return data


def read_head(s):
    data = b""
    while not data.endswith(b"\r\n\r\n") and (more := s.recv(1)):
        data += more
    return data.decode("latin-1")


def drain(s):
    data = b""
    try:
        while more := s.recv(65536):
            data += more
    except ConnectionResetError:
        data += b"RESET"
    return data


def is_reset(s):
    """Is this connection cut, with nothing coming?"""
    try:
        return s.recv(1) == b"" and False
    except ConnectionResetError:
        return True


class Server:
    """A TCP server on loopback, a thread per connection that runs HANDLE(socket, self). received: the bytes of each."""

    def __init__(self, handle, host="127.0.0.1", port=0, tls=None):
        self.handle, self.tls, self.received, self.errors, self.open = handle, tls, [], [], []
        self.listener = socket.create_server((host, port), backlog=1024,
                                             family=socket.AF_INET6 if ":" in host else socket.AF_INET)
        self.host, self.port = self.listener.getsockname()[:2]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                s, _ = self.listener.accept()
                self.open.append(s)
                self.received.append(b"")
                threading.Thread(target=self._serve, args=(s, len(self.received) - 1), daemon=True).start()

    def _serve(self, s, index):
        try:
            with (self.tls.wrap_socket(s, server_side=True) if self.tls else s) as connection:
                self.handle(Peer(connection, self, index), self)
        except OSError as e:
            self.errors.append(e)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for s in self.open:
            with contextlib.suppress(OSError):
                s.close()


class Peer:
    """The server's end of one connection; keeps every byte that came."""

    def __init__(self, sock, server, index):
        self.sock, self.server, self.index, self.rest = sock, server, index, b""

    def more(self):
        data = self.sock.recv(65536)
        self.server.received[self.index] += data
        self.rest += data
        return data

    def head(self):
        """The next request's header, or None at the end."""
        while b"\r\n\r\n" not in self.rest:
            if not self.more():
                return None
        head, self.rest = self.rest.split(b"\r\n\r\n", 1)
        return head.decode("latin-1")

    def body(self, head):
        fields = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in head.split("\r\n")[1:])}
        if fields.get("transfer-encoding", "").lower() == "chunked":
            body = b""
            while True:
                size = int(self.line(), 16)
                piece = self.exactly(size + 2)[:-2]
                if size == 0:
                    return body
                body += piece
        return self.exactly(int(fields.get("content-length", 0)))

    def line(self):
        while b"\r\n" not in self.rest:
            if not self.more():
                raise OSError("ended in a line")
        line, self.rest = self.rest.split(b"\r\n", 1)
        return line

    def exactly(self, size):
        while len(self.rest) < size:
            if not self.more():
                raise OSError("ended in a body")
        data, self.rest = self.rest[:size], self.rest[size:]
        return data

    def send(self, data):
        self.sock.sendall(data if isinstance(data, bytes) else data.encode("latin-1"))

    def reply(self, body=b"", status="200 OK", fields=""):
        body = body if isinstance(body, bytes) else body.encode()
        self.send(f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{fields}\r\n".encode() + body)


def http_echo(peer, server):
    """Answers each request with its own header and body, kept alive. server.requests: [(header, body)]."""
    requests = server.__dict__.setdefault("requests", [])
    while (head := peer.head()) is not None:
        body = peer.body(head)
        requests.append((head, body))
        peer.reply(head.encode("latin-1") + b"\r\n\r\n" + body, fields="Content-Type: text/plain\r\n")


def echo(peer, server):
    """What comes goes back, until the other's end."""
    while data := peer.more():
        peer.rest = b""
        peer.send(data)
