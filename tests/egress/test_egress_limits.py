# SPDX-License-Identifier: Apache-2.0
"""What a hostile sandbox or upstream can take: bounded, and others unaffected (PX-21, PX-24); the limits of docs/network.md."""
import concurrent.futures
import contextlib
import os
import random
import re
import resource
import socket
import struct
import threading
import time

import cloche
import egress
import pytest

LOOPBACK = "within=127.0.0.0/8"
LIMITS = cloche.TOP / "src" / "egress" / "limits.def"
MANY = f"max-open 2048\nallow api.test:{{port}} {LOOPBACK}"


def limits():
    return {name: (int(value), unit, what, why) for name, value, unit, what, why in
            re.findall(r'^LIMIT\((\w+), (\d+), "(.*?)", "(.*?)", "(.*?)"\)$', LIMITS.read_text(), re.M)}


def get(host, more="Connection: close\r\n"):
    return f"GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\n{more}\r\n"


def connect_request(port):
    return f"CONNECT api.test:{port} HTTP/1.1\r\nHost: api.test:{port}\r\n\r\n".encode()


@pytest.fixture(autouse=True)
def descriptors():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 8192:
        pytest.skip(f"{hard} descriptors at most: 8192 are wanted")
    resource.setrlimit(resource.RLIMIT_NOFILE, (8192, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def answers_within(e, s, seconds):
    began = time.monotonic()
    answer = e.send(get(f"api.test:{s.port}"))
    took = time.monotonic() - began
    return answer.startswith(b"HTTP/1.1 200") and took < seconds


def test_the_table_in_the_documents_is_the_programs():
    rows = re.findall(r"^\| ([\d,]+) (\w+) \| (.*?) \| (.*?) \|$", (cloche.TOP / "docs" / "network.md").read_text(), re.M)
    table = {(int(value.replace(",", "")), unit, what, why) for value, unit, what, why in rows}
    missing = set(limits().values()) - table
    assert len(limits()) == len(re.findall("^LIMIT", LIMITS.read_text(), re.M)) > 15
    assert not missing, missing


def test_a_thousand_tunnels_at_once(proxied):
    e, s = proxied(egress.echo, rules=MANY)
    before = e.memory()
    with contextlib.ExitStack() as stack:
        tunnels = []
        for _ in range(1000):
            c = stack.enter_context(e.dial())
            c.sendall(connect_request(s.port))
            tunnels.append(c)
        for c in tunnels:
            assert egress.read_head(c).startswith("HTTP/1.1 200")
        totals = e.flush()
        assert totals.open == totals.allowed == 1000
        for i, c in enumerate(tunnels):
            c.sendall(b"%05d" % i)
        for i, c in enumerate(tunnels):
            assert egress.read_exactly(c, 5) == b"%05d" % i
        grown = (e.memory() - before) / 1000
        assert grown < 6000, f"{grown} bytes a tunnel"
    assert e.wait_for(lambda t: t.open == 0).allowed == 1000


def test_PX_21_ten_thousand_connections(proxied):
    """More than may be open, which say nothing: they wait or are refused, memory stays, and then everything goes on."""
    e, s = proxied(rules=f"max-open 64\nallow api.test:{{port}} {LOOPBACK}")
    assert answers_within(e, s, 5)
    before, sockets = e.memory(), []
    for i in range(10_000):
        c = socket.socket()
        c.setblocking(False)
        with contextlib.suppress(OSError):
            c.connect_ex(e.proxy)
        sockets.append(c)
        if len(sockets) > 2000:
            sockets.pop(0).close()
    totals = e.flush()
    assert totals.open <= 64
    for c in sockets:
        c.close()
    e.wait_for(lambda t: t.open == 0)
    assert answers_within(e, s, 5) and e.memory() - before < 4 << 20


def test_PX_21_who_waits_too_long_for_room_is_refused_and_told_of(proxied):
    e, s = proxied(egress.echo, rules=f"max-open 4\nallow api.test:{{port}} {LOOPBACK}")
    tunnels = [e.connect("api.test", s.port)[0] for _ in range(4)]
    began = time.monotonic()
    with e.dial() as c:
        c.sendall(connect_request(s.port))
        assert egress.drain(c).endswith(b"RESET") and 3 < time.monotonic() - began < 12
    e.flush()
    assert [r.verdict for r in e.records] == ["denied"] and "max-open" in e.records[0].why
    with e.dial() as c:  # a burst: it waits, and is served when there is room
        c.sendall(connect_request(s.port))
        time.sleep(0.3)
        tunnels.pop().close()
        assert egress.read_head(c).startswith("HTTP/1.1 200")
    for t in tunnels:
        t.close()


def test_PX_21_slow_headers_end_and_hold_up_nobody(proxied):
    e, s = proxied()
    slow = [e.dial() for _ in range(60)]
    began = time.monotonic()
    for c in slow:
        c.sendall(random.choice([b"GET http://api.test/ HTTP/1.1\r\nX", b"CONNECT api", b"\5", b"\5\1\0\5\1\0\3", b"G"]))
    assert answers_within(e, s, 1)
    for c in slow:
        with c, contextlib.suppress(ConnectionResetError):
            c.settimeout(30)
            while c.recv(4096):
                pass
    assert 8 < time.monotonic() - began < 16


@pytest.mark.parametrize("name", ["header", "fields", "target", "chunk extension", "chunk extensions", "CONNECT target"])
def test_PX_21_what_never_ends_is_cut(proxied, name):
    e, s = proxied()
    at = f"api.test:{s.port}"
    begin, repeated = {
        "header": (f"GET http://{at}/ HTTP/1.1\r\nHost: {at}\r\nX: ", "a" * 1000),
        "fields": (f"GET http://{at}/ HTTP/1.1\r\nHost: {at}\r\n", "X: a\r\n" * 100),
        "target": (f"GET http://{at}/", "a" * 1000),
        "CONNECT target": ("CONNECT ", "a" * 1000),
        "chunk extension": (f"POST http://{at}/ HTTP/1.1\r\nHost: {at}\r\nTransfer-Encoding: chunked\r\n\r\n1;", "a" * 1000),
        "chunk extensions": (f"POST http://{at}/ HTTP/1.1\r\nHost: {at}\r\nTransfer-Encoding: chunked\r\n\r\n", "1;aaaaaaaaaaaaaaaa\r\nx\r\n" * 50),
    }[name]
    before = e.memory()
    with e.dial() as c:
        sent = c.send(begin.encode())
        with contextlib.suppress(OSError):
            while sent < 1 << 30:  # 1 GB
                sent += c.send(repeated.encode())
                if sent > 4 << 20:
                    break
        assert sent < 4 << 20 or name.startswith("chunk"), "it took all of it"
        with contextlib.suppress(OSError):
            c.shutdown(socket.SHUT_WR)
        assert egress.drain(c)[:12] in (b"HTTP/1.1 431", b"HTTP/1.1 414", b"HTTP/1.1 400", b"RESET")
    assert e.memory() - before < 1 << 20
    assert answers_within(e, s, 2)


def test_PX_21_an_upstream_whose_header_never_ends(proxied):
    def endless(peer, server):
        if b"evil" not in peer.head().encode():
            return peer.reply(b"fine")
        peer.send(b"HTTP/1.1 200 OK\r\nX: " + b"a" * 1000)
        time.sleep(0.2)  # so that it comes in pieces, which fill exactly what is kept
        with contextlib.suppress(OSError):
            while True:
                peer.send(b"a" * 10_000)
        return None
    e, s = proxied(endless)
    before = e.memory()
    answer = e.send(get(f"api.test:{s.port}", "X: evil\r\n"))
    assert answer.startswith(b"HTTP/1.1 502") and e.memory() - before < 1 << 20


def test_PX_21_an_upstream_that_takes_nothing_and_one_that_says_nothing(proxied):
    """Neither holds up others; what waits for them is bounded."""
    def deaf(peer, _):
        peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        time.sleep(8)
    e, s = proxied(deaf, rules=f"max-open 300\nallow **.test {LOOPBACK}\nallow api.test:{{port}} {LOOPBACK}")
    before = e.memory()
    tunnels = [e.connect("api.test", s.port)[0] for _ in range(200)]
    block = b"x" * 65536
    for c in tunnels:
        c.setblocking(False)
        for _ in range(200):
            try:
                c.send(block)
            except BlockingIOError:
                break
    time.sleep(0.5)
    grown = e.memory() - before
    assert grown < 40 << 20, f"{grown >> 20} MiB for 200 tunnels that stand still"
    began = time.monotonic()
    assert e.send(get("no.example")).startswith(b"HTTP/1.1 403") and time.monotonic() - began < 3
    for c in tunnels:
        c.close()


def test_a_slow_reader_slows_its_server(proxied):
    """Back-pressure: the server cannot send more than the buffers on the way hold."""
    sent = []

    def pours(peer, _):
        with contextlib.suppress(OSError):
            while True:
                peer.send(b"x" * 65536)
                sent.append(65536)
    e, s = proxied(pours)
    c, _ = e.connect("api.test", s.port)
    with c:
        time.sleep(0.5)
        first = sum(sent)
        time.sleep(0.5)
        assert sum(sent) == first < 32 << 20
        for _ in range(300):
            assert c.recv(65536)
        assert sum(sent) > first


def test_PX_24_max_bytes_ends_what_goes_on_and_refuses_what_comes(proxied):
    e, s = proxied(egress.echo, rules=f"max-bytes 1m\nallow api.test:{{port}} {LOOPBACK}")
    c, _ = e.connect("api.test", s.port)
    with c:
        got = 0
        with contextlib.suppress(OSError):
            for _ in range(100):
                c.sendall(b"x" * 65536)
                got += len(c.recv(65536))
        assert got < 2 << 20
    totals = e.wait_for(lambda t: t.open == 0)
    assert 1 << 20 <= totals.bytes < (1 << 20) + 2 * limits()["RELAY_BYTES"][0]
    assert e.records[0].verdict == "denied" and "max-bytes" in e.records[0].why
    answer = e.send(get(f"api.test:{s.port}"))
    assert answer.startswith(b"HTTP/1.1 403") and b"max-bytes" in answer


def test_max_bytes_counts_what_comes_behind_an_upgrade(proxied):
    """Bytes that the client sends in one piece with its request are handed on by the tunnel that the connection becomes."""
    def switch(peer, server):
        peer.head()
        peer.send("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\nhello")
        while peer.more():
            pass
    e, s = proxied(switch, rules=f"max-bytes 20k\nallow api.test:{{port}} {LOOPBACK}")
    request = get(f"api.test:{s.port}", "Connection: Upgrade\r\nUpgrade: websocket\r\n").encode()
    with e.dial() as c:
        c.sendall(request + b"x" * 1000)
        assert egress.read_head(c).startswith("HTTP/1.1 101") and egress.read_exactly(c, 5) == b"hello"
        while len(s.received[0]) < 1000 or not s.received[0].endswith(b"x" * 1000):
            time.sleep(0.01)
        c.shutdown(socket.SHUT_WR)
        egress.drain(c)
    totals = e.wait_for(lambda t: t.open == 0)
    record, = e.records
    assert record.sent == len(s.received[0])
    assert record.received == len("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\nhello")
    assert totals.bytes == record.sent + record.received
    with e.dial() as c:  # more than is left: it is cut as it would be in the tunnel
        c.sendall(request + b"x" * 30_000)
        egress.drain(c)
    assert e.wait_for(lambda t: t.open == 0).bytes > 20 << 10
    assert (e.records[1].verdict, "max-bytes" in e.records[1].why) == ("denied", True)
    assert e.send(request).startswith(b"HTTP/1.1 403")


def test_a_tunnel_whose_upstream_was_reset_is_over(proxied):
    """Half-closed, full, then reset: nothing is read from there any more and nothing can be written; nobody waits for it."""
    reset = threading.Event()

    def half(peer, _):
        peer.sock.shutdown(socket.SHUT_WR)
        reset.wait(20)
        peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.sock.close()
    e, s = proxied(half)
    c, _ = e.connect("api.test", s.port)
    with c:
        c.settimeout(0.5)
        with contextlib.suppress(OSError):
            while True:
                c.send(b"x" * 65536)
        reset.set()
        e.wait_for(lambda t: t.open == 0, 10)


def test_max_connections(proxied):
    e, s = proxied(rules=f"max-connections 3\nallow api.test:{{port}} {LOOPBACK}")
    for _ in range(3):
        assert e.send(get(f"api.test:{s.port}")).startswith(b"HTTP/1.1 200")
    answer = e.send(get(f"api.test:{s.port}"))
    assert answer.startswith(b"HTTP/1.1 403") and b"max-connections" in answer
    assert (e.flush().allowed, e.flush().denied) == (3, 1)


def test_an_address_where_nobody_answers(proxied):
    """The kernel of that host drops what comes: the other address is tried, and with none the client is told in time."""
    full = socket.socket()
    full.bind(("127.0.0.66", 0))
    full.listen(0)
    port, waiting = full.getsockname()[1], []
    for _ in range(4):
        w = socket.socket()
        w.setblocking(False)
        w.connect_ex(("127.0.0.66", port))
        waiting.append(w)
    with egress.Server(egress.http_echo, host="127.0.0.67", port=port):
        e, _ = proxied(rules=f"allow **.test:{port} {LOOPBACK}", resolve={"two.test": ["127.0.0.66", "127.0.0.67"], "one.test": ["127.0.0.66"]})
        began = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor() as pool:
            one = pool.submit(lambda: (e.connect("one.test", port)[1], time.monotonic() - began))
            assert e.send(get(f"two.test:{port}")).startswith(b"HTTP/1.1 200")
            assert 4 < time.monotonic() - began < 12
            head, took = one.result()
        assert head.startswith("HTTP/1.1 504") and 18 < took < 40
    for w in (*waiting, full):
        w.close()


def test_churn_leaves_nothing_behind(proxied):
    """Connections of every kind and every end, for a while: no memory, no descriptor stays."""
    def any_end(peer, _):
        peer.head()
        kind = random.randrange(4)
        if kind == 0:
            peer.reply(b"x" * random.randrange(100_000))
        elif kind == 1:
            peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab")
        elif kind == 2:
            peer.send(b"nonsense")
    e, s = proxied(any_end, rules=f"max-open 256\nallow api.test:{{port}} {LOOPBACK}")
    requests = [get(f"api.test:{s.port}").encode(), connect_request(s.port), get("no.test").encode(), b"\5\1\0", b"\5\1\0\5\1\0\3\x08api.test\0\1",
                b"garbage\r\n\r\n", b"POST http://api.test:%d/ HTTP/1.1\r\nHost: api.test:%d\r\nContent-Length: 9\r\n\r\nabc" % (s.port, s.port)]

    def once(i):
        with contextlib.suppress(OSError), e.dial(timeout=2) as c:
            c.sendall(requests[i % len(requests)])
            if i % 3:
                c.recv(1000)

    def round_of(n):
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            list(pool.map(once, range(n)))
        e.wait_for(lambda t: t.open == 0, 30)
        held = len(os.listdir(f"/proc/{e.process.pid}/fd"))
        if e.records:
            e.control.ack(e.records[-1].number)
        e.flush()
        return e.memory(), held
    round_of(600)
    memory, held = round_of(600)
    for _ in range(3):
        more, still = round_of(600)
    assert still == held and more - memory < 1 << 20, (memory, more, held, still)
