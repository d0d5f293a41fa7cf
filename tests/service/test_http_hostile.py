# SPDX-License-Identifier: Apache-2.0
"""The HTTP server against clients that mean no good: smuggling (AP-12, PX-11), sizes (AP-03), slowness (AP-04), numbers.

Every refused request has a second one behind it, which must never be served: `requests` counts what reached the handler.
"""
import json
import os
import resource
import socket
import threading
import time

import pytest
from http_echo import END, Echo, Reader, problem, read_all, request

BEHIND = b"GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"


def post(fields, body=b"", line=b"POST /collect HTTP/1.1"):
    return line + b"\r\nHost: x\r\n" + fields + b"\r\n" + body + BEHIND


CHUNKED = b"Transfer-Encoding: chunked\r\n"
# name: bytes that have to be answered with 400 and a hang-up before anything reaches the handler
REFUSED = {
    "CL and TE": post(b"Content-Length: 5\r\n" + CHUNKED, b"0\r\n\r\n"),
    "TE and CL": post(CHUNKED + b"Content-Length: 5\r\n", b"0\r\n\r\n"),
    "TE twice": post(CHUNKED * 2, b"0\r\n\r\n"),
    "TE twice in one": post(b"Transfer-Encoding: chunked, chunked\r\n", b"0\r\n\r\n"),
    "TE gzip, chunked": post(b"Transfer-Encoding: gzip, chunked\r\n", b"0\r\n\r\n"),
    "TE chunked, identity": post(b"Transfer-Encoding: chunked, identity\r\n", b"0\r\n\r\n"),
    "TE identity": post(b"Transfer-Encoding: identity\r\n"),
    "TE xchunked": post(b"Transfer-Encoding: xchunked\r\n", b"0\r\n\r\n"),
    "TE chunkedx": post(b"Transfer-Encoding: chunkedx\r\n", b"0\r\n\r\n"),
    "TE chunked VT": post(b"Transfer-Encoding: chunked\x0b\r\n", b"0\r\n\r\n"),
    "TE VT chunked": post(b"Transfer-Encoding: \x0bchunked\r\n", b"0\r\n\r\n"),
    "TE quoted": post(b'Transfer-Encoding: "chunked"\r\n', b"0\r\n\r\n"),
    "TE empty": post(b"Transfer-Encoding:\r\n"),
    "TE blank before colon": post(b"Transfer-Encoding : chunked\r\n", b"0\r\n\r\n"),
    "TE tab before colon": post(b"Transfer-Encoding\t: chunked\r\n", b"0\r\n\r\n"),
    "TE in HTTP/1.0": post(CHUNKED, b"0\r\n\r\n", b"POST /collect HTTP/1.0"),
    "CL +5": post(b"Content-Length: +5\r\n", b"hello"),
    "CL -5": post(b"Content-Length: -5\r\n", b"hello"),
    "CL 0x5": post(b"Content-Length: 0x5\r\n", b"hello"),
    "CL 5 5": post(b"Content-Length: 5 5\r\n", b"hello"),
    "CL 5,5": post(b"Content-Length: 5, 5\r\n", b"hello"),
    "CL 5;": post(b"Content-Length: 5;\r\n", b"hello"),
    "CL 1_0": post(b"Content-Length: 1_0\r\n", b"hello"),
    "CL empty": post(b"Content-Length:\r\n"),
    "CL 5.0": post(b"Content-Length: 5.0\r\n", b"hello"),
    "CL VT": post(b"Content-Length: \x0b5\r\n", b"hello"),
    "CL arabic": post("Content-Length: \u0665\r\n".encode(), b"hello"),
    "CL overflow": post(b"Content-Length: " + b"9" * 100 + b"\r\n"),
    "CL overflow to 5": post(b"Content-Length: 18446744073709551621\r\n", b"hello"),
    "two CL, equal": post(b"Content-Length: 5\r\nContent-Length: 5\r\n", b"hello"),
    "two CL": post(b"Content-Length: 0\r\nContent-Length: 5\r\n", b"hello"),
    "CL blank before colon": post(b"Content-Length : 5\r\n", b"hello"),
    "obs-fold": post(b"X: a\r\n b\r\n"),
    "obs-fold of TE": post(b"Transfer-Encoding:\r\n chunked\r\n", b"0\r\n\r\n"),
    "obs-fold with tab": post(b"X: a\r\n\tContent-Length: 5\r\n"),
    "folded first field": b"GET / HTTP/1.1\r\n Host: x\r\n\r\n" + BEHIND,
    "bare LF in fields": post(b"X: a\nContent-Length: 5\r\n", b"hello"),
    "bare LF ends header": b"GET / HTTP/1.1\nHost: x\n\n" + BEHIND,
    "LF behind CRLF": b"GET / HTTP/1.1\r\nHost: x\r\n\n" + BEHIND,
    "bare CR in value": post(b"X: a\rContent-Length: 5\r\n", b"hello"),
    "CR CR LF": post(b"X: a\r\r\n"),
    "CR before colon": post(b"X\r: a\r\n"),
    "CR in request line": b"GET /\rx HTTP/1.1\r\nHost: x\r\n\r\n" + BEHIND,
    "NUL in value": post(b"X: a\0b\r\n"),
    "NUL in name": post(b"X\0: a\r\n"),
    "NUL in target": b"GET /\0 HTTP/1.1\r\nHost: x\r\n\r\n" + BEHIND,
    "DEL in value": post(b"X: a\x7f\r\n"),
    "escape in value": post(b"X: \x1b[2J\r\n"),
    "empty name": post(b": a\r\n"),
    "name with blank": post(b"X Y: a\r\n"),
    "name with parenthesis": post(b"X(Y): a\r\n"),
    "name not ASCII": post(b"X\xe4: a\r\n"),
    "no colon": post(b"Content-Length\r\n"),
    "no Host": b"GET / HTTP/1.1\r\n\r\n" + BEHIND,
    "no Host in 1.0": b"GET / HTTP/1.0\r\n\r\n" + BEHIND,
    "empty Host": b"GET / HTTP/1.1\r\nHost:\r\n\r\n" + BEHIND,
    "two Hosts": b"GET / HTTP/1.1\r\nHost: x\r\nHost: x\r\n\r\n" + BEHIND,
    "Host list": b"GET / HTTP/1.1\r\nHost: x y\r\n\r\n" + BEHIND,
    "Host with user": b"GET / HTTP/1.1\r\nHost: a@x\r\n\r\n" + BEHIND,
    "Host with path": b"GET / HTTP/1.1\r\nHost: x/y\r\n\r\n" + BEHIND,
    "HTTP/0.9": b"GET /\r\n\r\n" + BEHIND,
    "HTTP/0.9 by number": b"GET / HTTP/0.9\r\nHost: x\r\n\r\n" + BEHIND,
    "HTTP/1.2": b"GET / HTTP/1.2\r\nHost: x\r\n\r\n" + BEHIND,
    "HTTP/2.0": b"GET / HTTP/2.0\r\nHost: x\r\n\r\n" + BEHIND,
    "HTTP/1.10": b"GET / HTTP/1.10\r\nHost: x\r\n\r\n" + BEHIND,
    "HTTP/11": b"GET / HTTP/11\r\nHost: x\r\n\r\n" + BEHIND,
    "http/1.1": b"GET / http/1.1\r\nHost: x\r\n\r\n" + BEHIND,
    "HTTP/2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + BEHIND,
    "two spaces": b"GET  / HTTP/1.1\r\nHost: x\r\n\r\n" + BEHIND,
    "two spaces before version": b"GET /  HTTP/1.1\r\nHost: x\r\n\r\n" + BEHIND,
    "blank behind version": b"GET / HTTP/1.1 \r\nHost: x\r\n\r\n" + BEHIND,
    "tab in request line": b"GET\t/ HTTP/1.1\r\nHost: x\r\n\r\n" + BEHIND,
    "blank in target": b"GET /a b HTTP/1.1\r\nHost: x\r\n\r\n" + BEHIND,
    "blank before method": b" GET / HTTP/1.1\r\nHost: x\r\n\r\n" + BEHIND,
    "unknown method": b"FETCH / HTTP/1.1\r\nHost: x\r\n\r\n" + BEHIND,
    "small letters": b"get / HTTP/1.1\r\nHost: x\r\n\r\n" + BEHIND,
    "RTSP": b"GET / RTSP/1.0\r\nHost: x\r\n\r\n" + BEHIND,
    "absolute-form": b"GET http://x/ HTTP/1.1\r\nHost: x\r\n\r\n" + BEHIND,
    "authority-form": b"GET x:80 HTTP/1.1\r\nHost: x\r\n\r\n" + BEHIND,
    "asterisk": b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n" + BEHIND,
    "fragment": b"GET /a#b HTTP/1.1\r\nHost: x\r\n\r\n" + BEHIND,
    "target not ASCII": b"GET /\xc3\xa4 HTTP/1.1\r\nHost: x\r\n\r\n" + BEHIND,
    "%00": b"GET /a%00b HTTP/1.1\r\nHost: x\r\n\r\n" + BEHIND,
    "%00 in query": b"GET /a?b=%00 HTTP/1.1\r\nHost: x\r\n\r\n" + BEHIND,
    "encoded slash": b"GET /a%2Fb HTTP/1.1\r\nHost: x\r\n\r\n" + BEHIND,
    "dot dot": b"GET /a/../b HTTP/1.1\r\nHost: x\r\n\r\n" + BEHIND,
    "encoded dot dot": b"GET /a/%2e%2E HTTP/1.1\r\nHost: x\r\n\r\n" + BEHIND,
    "dot": b"GET /./b HTTP/1.1\r\nHost: x\r\n\r\n" + BEHIND,
    "empty component": b"GET //b HTTP/1.1\r\nHost: x\r\n\r\n" + BEHIND,
    "encoded line end": b"GET /a%0d%0aX:1 HTTP/1.1\r\nHost: x\r\n\r\n" + BEHIND,
    "not UTF-8": b"GET /%ff HTTP/1.1\r\nHost: x\r\n\r\n" + BEHIND,
    "overlong UTF-8": b"GET /%c0%af HTTP/1.1\r\nHost: x\r\n\r\n" + BEHIND,
    "half an escape": b"GET /a%4 HTTP/1.1\r\nHost: x\r\n\r\n" + BEHIND,
    "no escape": b"GET /a%zz HTTP/1.1\r\nHost: x\r\n\r\n" + BEHIND,
    "Expect": post(b"Expect: something\r\n"),
    "two empty lines before": b"\r\n\r\n" + BEHIND,
    "TLS": bytes.fromhex("1603010200010001fc0303") + bytes(100),
    "zeros": bytes(1000),
    "binary": bytes(range(256)),
    "SSH": b"SSH-2.0-OpenSSH_9.2\r\n" + b"\r\n",
}
# Here the header is fine: the handler is called and told that the client has gone.
BAD_CHUNKS = {
    "bare LF": b"5\nhello\r\n0\r\n\r\n",
    "LF behind data": b"5\r\nhello\n0\r\n\r\n",
    "extension with LF": b"5;a\nb\r\nhello\r\n0\r\n\r\n",
    "extension with CR": b"5;a\rb\r\nhello\r\n0\r\n\r\n",
    "long extension": b"5;" + b"a" * 300 + b"\r\nhello\r\n0\r\n\r\n",
    "many extensions": b"".join(b"1;" + b"a" * 200 + b"\r\nx\r\n" for _ in range(100)) + b"0\r\n\r\n",
    "endless extension": b"5;" + b"a" * 100000,
    "0x5": b"0x5\r\nhello\r\n0\r\n\r\n",
    "+5": b"+5\r\nhello\r\n0\r\n\r\n",
    "blank": b"5 \r\nhello\r\n0\r\n\r\n",
    "blank before": b" 5\r\nhello\r\n0\r\n\r\n",
    "no size": b"\r\nhello\r\n0\r\n\r\n",
    "huge": b"10000000000000005\r\nhello\r\n0\r\n\r\n",
    "many zeros": b"0" * 100 + b"5\r\nhello\r\n0\r\n\r\n",
    "too long data": b"5\r\nhello!\r\n0\r\n\r\n",
    "too short data": b"6\r\nhello\r\n0\r\n\r\n",
    "trailer": b"5\r\nhello\r\n0\r\nX: y\r\n\r\n",
    "trailer with CL": b"5\r\nhello\r\n0\r\nContent-Length: 5\r\n\r\n",
    "end by LF": b"5\r\nhello\r\n0\r\n\n",
    "not hexadecimal": b"g\r\nhello\r\n0\r\n\r\n",
}


@pytest.fixture(scope="module")
def echo(tmp_path_factory):
    e = Echo(tmp_path_factory.mktemp("echo"))
    yield e
    e.stop()


@pytest.fixture
def short(tmp_path):
    """With deadlines of a second."""
    e = Echo(tmp_path, *(word for name in ("header", "idle", "body", "write") for word in (f"--{name}-seconds", "1")))
    yield e
    e.stop()


@pytest.mark.parametrize("kind", ["unix", "tcp"])
@pytest.mark.parametrize("name", REFUSED)
def test_AP_12_refused(echo, name, kind):
    before = echo.facts()["requests"]
    problem(echo.talk(REFUSED[name], kind), 400, "INVALID_REQUEST")
    assert echo.facts()["requests"] == before + 1  # this question itself


def test_AP_12_refused_the_same_in_pieces(echo):
    """A byte at a time: no rule may depend on where a read ends."""
    for name, data in REFUSED.items():
        before = echo.facts()["requests"]
        with echo.connect("tcp") as s:
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                for i in range(len(data)):
                    s.sendall(data[i:i + 1])
            except (BrokenPipeError, ConnectionResetError):
                pass
            assert read_all(s).startswith(b"HTTP/1.1 400 "), name
        assert echo.facts()["requests"] == before + 1, name


@pytest.mark.parametrize("name", BAD_CHUNKS)
def test_AP_12_bad_chunks(echo, name):
    before = echo.facts()
    problem(echo.talk(post(CHUNKED, BAD_CHUNKS[name])), 400, "INVALID_REQUEST")
    assert echo.facts()["requests"] == before["requests"] + 2  # and this question, but not what was behind
    before = echo.facts()
    problem(echo.talk(post(CHUNKED, BAD_CHUNKS[name], b"POST /sink HTTP/1.1")), 400, "INVALID_REQUEST")
    assert echo.facts()["gone"] == before["gone"] + 1


def test_AP_12_a_get_with_a_body_is_one_request(echo):
    with echo.connect() as s:
        s.sendall(b"GET /collect HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(BEHIND) + BEHIND + request("/sink"))
        r = Reader(s)
        assert r.answer()[2] == BEHIND
        assert json.loads(r.answer()[2]) == {"size": 0}


@pytest.mark.parametrize("method", ["CONNECT", "TRACE"])
def test_methods_that_are_never_served(echo, method):
    target = "x:80" if method == "CONNECT" else "/"
    problem(echo.talk(f"{method} {target} HTTP/1.1\r\nHost: x\r\n\r\n".encode()), 405, "METHOD_NOT_ALLOWED")


# ---------------------------------------------------------------------------------------------------- AP-03 size


@pytest.mark.parametrize("data, status", [
    (b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 414),
    (b"GET /" + b"a" * 9000, 414),
    (b"GET /?" + b"a" * 9000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 414),
    (b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 40000, 431),
    (b"GET / HTTP/1.1\r\nHost: x\r\n" + b"X: a\r\n" * 64 + b"\r\n", 431),
    (b"GET / HTTP/1.1\r\nHost: x\r\n" + b"X: a\r\n" * 100000, 431),
    (b"POST /collect?limit=10 HTTP/1.1\r\nHost: x\r\nContent-Length: 11\r\n\r\n", 413),
    (b"POST /collect HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000000000000\r\n\r\n", 413),
    (b"POST /collect HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999\r\n\r\n", 413),
    (b"POST /collect?limit=10 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nb\r\nhello world\r\n0\r\n\r\n", 413),
])
def test_AP_03_too_large(echo, data, status):
    problem(echo.talk(data, "tcp"), status, "TOO_LARGE")


def test_up_to_the_limits(echo):
    with echo.connect() as s:
        r = Reader(s)
        s.sendall(b"GET /" + b"a" * 8190 + b" HTTP/1.1\r\nHost: x\r\n\r\n")
        assert r.answer()[0] == 200
        s.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n" + b"X: a\r\n" * 63 + b"\r\n")
        assert r.answer()[0] == 200
        s.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 32000 + b"\r\n\r\n")
        assert r.answer()[0] == 200
        s.sendall(request("/collect?limit=10", "POST", body=b"0123456789"))
        assert r.answer()[2] == b"0123456789"


def test_AP_03_endless_chunks_are_cut_at_the_limit(tmp_path):
    e = Echo(tmp_path)
    with e.connect("tcp") as s:
        s.sendall(b"POST /collect HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            for _ in range(2000):
                s.sendall(b"10000\r\n" + bytes(65536) + b"\r\n")
    if "asan" not in str(e.process.args[0]):
        assert e.memory_kb() < 16 * 1024
    e.stop()


def test_the_client_reads_413_behind_its_upload(echo):
    with echo.connect("tcp") as s:
        s.sendall(b"POST /collect HTTP/1.1\r\nHost: x\r\nContent-Length: 20000000\r\n\r\n")
        s.sendall(bytes(20000000))
        assert Reader(s).answer()[0] == 413


# ------------------------------------------------------------------------------------------------ AP-04 slowness


def lasted(s):
    """What came until the hang-up, and after how long."""
    begin = time.monotonic()
    return read_all(s), time.monotonic() - begin


def drip(s, seconds):
    """A byte every 100 ms in the background, until it cannot."""
    def run():
        try:
            for _ in range(int(seconds * 10)):
                s.sendall(b"a")
                time.sleep(0.1)  # this is the attack
        except OSError:
            pass
    thread = threading.Thread(target=run)
    thread.start()
    return thread


@pytest.mark.parametrize("kind", ["unix", "tcp"])
def test_AP_04_a_dripping_header(short, kind):
    with short.connect(kind) as s:
        s.sendall(b"GET / HTTP/1.1\r\nX: ")
        thread = drip(s, 4)
        answer, seconds = lasted(s)
        problem(answer, 408, "TIMED_OUT")
        assert 0.7 < seconds < 3.6  # the lingering is bounded too
        thread.join()


def test_AP_04_a_body_that_stops(short):
    with short.connect() as s:
        s.sendall(b"POST /sink HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc")
        start = time.monotonic()
        assert Reader(s).answer()[0] == 408
        assert 0.7 < time.monotonic() - start < 6


def test_AP_04_a_dripping_body_that_is_collected(short):
    with short.connect() as s:
        s.sendall(b"POST /collect HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n")
        thread = drip(s, 4)
        start = time.monotonic()
        assert Reader(s).answer()[0] == 408
        assert 0.7 < time.monotonic() - start < 6
        thread.join()


def test_AP_04_an_idle_connection(short):
    with short.connect() as fresh, short.connect() as used:
        used.sendall(request("/collect"))
        assert Reader(used).answer()[0] == 200
        for s in (used, fresh):
            answer, seconds = lasted(s)
            assert answer == b"" and seconds < 6


@pytest.mark.parametrize("path", ["/big?size=50000000", "/big?size=50000000&chunked"])
def test_AP_04_a_client_that_never_reads(short, path):
    with short.connect("tcp") as s:
        s.sendall(request(path))
        short.until(lambda f: f["alive"] == 1)
        short.until(lambda f: f["gone"] == 1 and f["alive"] == 0 and f["connections"] == 1)
    if "asan" not in str(short.process.args[0]):
        assert short.memory_kb() < 16 * 1024


def test_no_deadline_while_the_handler_takes_its_time(short):
    with short.connect() as s:
        s.sendall(request("/slow?ms=2500"))
        assert Reader(s).answer()[2] == b"slow\n"
    with short.connect() as s:
        s.sendall(b"POST /ask-later?ms=2500 HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc")
        assert json.loads(Reader(s).answer()[2]) == {"size": 3}
    with short.connect() as s:
        s.sendall(request("/takeover"))
        assert Reader(s).answer()[0] == 101
        time.sleep(2)  # longer than every deadline
        s.sendall(b"still here")
        assert Reader(s).exactly(10) == b"still here"


# ---------------------------------------------------------------------------------------------------- numbers


def test_1000_idle_connections_do_not_slow_others(tmp_path):
    e = Echo(tmp_path)
    before = e.memory_kb("VmRSS")
    sockets = [e.connect() for _ in range(1000)]
    for s in sockets[::2]:
        s.sendall(b"GET /slow HTTP/1.1\r\n")  # half of them in a header
    e.until(lambda f: f["connections"] == 1001)
    each = (e.memory_kb("VmRSS") - before) * 1024 // 1000
    slowest = 0
    for _ in range(200):
        start = time.monotonic()
        assert e.get("/")[0] == 200
        slowest = max(slowest, time.monotonic() - start)
    print(f"slowest of 200 beside 1000 idle: {slowest * 1000:.2f} ms; {each} bytes each")
    assert slowest < 0.1
    if "asan" not in str(e.process.args[0]):
        assert each < 4096
    for s in sockets:
        s.close()
    e.until(lambda f: f["connections"] == 1)
    e.stop()


def test_more_connections_than_there_may_be(tmp_path):
    e = Echo(tmp_path, "--connections", "10")
    sockets = [e.connect() for _ in range(10)]
    for s in sockets:
        s.sendall(request("/collect"))
        assert Reader(s).answer()[0] == 200
    for kind in ("unix", "tcp"):
        document = problem(e.talk(b"", kind), 503, "UNAVAILABLE")
        assert document["retryable"]
    sockets.pop().close()
    deadline = time.monotonic() + 5
    while True:  # the place is free when the server has seen the end
        s = e.connect()
        s.sendall(request("/collect"))
        if Reader(s).answer()[0] == 200:
            sockets.append(s)
            break
        s.close()
        assert time.monotonic() < deadline
    flood = [e.connect() for _ in range(300)]  # beyond those that are told so they are just closed
    answers = [read_all(s) for s in flood]
    assert all(not a or a.startswith(b"HTTP/1.1 503 ") for a in answers) and sum(map(bool, answers)) >= 60
    sockets[0].sendall(request("/collect"))
    assert Reader(sockets[0]).answer()[0] == 200
    for s in sockets + flood:
        s.close()
    e.until(lambda f: f["connections"] == 1)
    e.stop()


def test_AP_04_more_connections_than_one_may_have(tmp_path):
    e = Echo(tmp_path, "--per-peer", "5")
    sockets = [e.connect("tcp") for _ in range(5)]
    for s in sockets:
        s.sendall(request("/collect"))
        assert Reader(s).answer()[0] == 200
    problem(e.talk(b"", "tcp"), 429, "TOO_MANY_REQUESTS")
    assert e.get("/")[0] == 200  # by the unix socket: another peer
    for s in sockets:
        s.close()
    e.stop()


def test_no_descriptors_left(tmp_path):
    e = Echo(tmp_path, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40)))
    kept = e.connect()
    kept.sendall(request("/collect"))
    assert Reader(kept).answer()[0] == 200
    sockets = [e.connect() for _ in range(60)]
    answers = [read_all(s) for s in sockets[45:]]
    assert all(a.startswith(b"HTTP/1.1 503 ") for a in answers)
    kept.sendall(request("/facts"))
    assert Reader(kept).answer()[0] == 200
    with open(f"/proc/{e.process.pid}/stat") as f:
        ticks = sum(map(int, f.read().rsplit(") ", 1)[1].split()[11:13]))
    assert ticks < os.sysconf("SC_CLK_TCK")  # accept does not spin
    for s in sockets:
        s.close()
    e.until(lambda f: f["connections"] == 2)
    kept.close()
    e.stop()


def test_garbage(echo):
    """Whatever comes: an answer or none, and the server goes on."""
    for seed in range(200):
        data = bytearray(request("/collect", "POST", body=b"x" * 20, fields="A: b\r\n") * 2)
        step = 7 + seed
        for i in range(seed % 11, len(data), step):
            data[i] = (data[i] * 31 + seed * 17 + i) & 255
        with echo.connect() as s:
            s.sendall(data)
            s.shutdown(socket.SHUT_WR)
            answer = read_all(s)
        assert not answer or answer.startswith(b"HTTP/1.1 "), (data, answer)
        assert b"Content-Length" in answer.split(END)[0] or not answer
    assert echo.facts()["alive"] == 0
