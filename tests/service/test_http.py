# SPDX-License-Identifier: Apache-2.0
"""The HTTP server against ordinary clients: what is answered, in which order, and what is kept open."""
import array
import http.client
import json
import os
import select
import shutil
import socket
import ssl
import subprocess
import threading
import time

import pytest
from http_echo import END, Echo, Reader, problem, quiet, read_all, request

MB = 1 << 20


@pytest.fixture(scope="module")
def echo(tmp_path_factory):
    e = Echo(tmp_path_factory.mktemp("echo"))
    yield e
    e.stop()


def test_a_request_is_taken_apart(echo):
    status, body = echo.get("/a%20b/c?q=x+y%3D%41&z")
    seen = json.loads(body)
    assert status == 200
    assert (seen["method"], seen["path"], seen["query"], seen["q"]) == ("GET", "/a b/c", "q=x+y%3D%41&z", "x y=A")
    assert seen["fields"]["host"] == "x"


def test_the_peer_is_known(echo):
    seen = json.loads(echo.get("/")[1])
    assert (seen["uid"], seen["pid"]) == (os.geteuid(), os.getpid())
    assert json.loads(echo.get("/", "tcp")[1])["address"] == "127.0.0.1"


def test_fields_of_one_name_are_joined(echo):
    answer = echo.talk(request("/", fields="X-A: 1\r\nConnection: close\r\nx-a:  2 \r\n"))
    assert json.loads(answer.split(END, 1)[1])["fields"]["x-a"] == "1, 2"


@pytest.mark.parametrize("kind", ["unix", "tcp"])
def test_keep_alive_for_5000_requests(echo, kind):
    before = echo.facts()["requests"]
    with echo.connect(kind) as s:
        r = Reader(s)
        for i in range(5000):
            s.sendall(request("/collect", "POST", body=b"%d" % i))
            assert r.answer()[::2] == (200, b"%d" % i)
    assert echo.facts()["requests"] == before + 5001


def test_pipelined_requests_are_answered_in_order(echo):
    with echo.connect() as s:
        s.sendall(b"".join([request("/slow?ms=50"), request("/collect", "POST", body=b"one"), request("/twice?ms=20"),
                            request("/collect", "POST", body=b"two"), request("/big?size=300000"), request("/empty"),
                            request("/collect", "POST", body=b"three")]))
        r = Reader(s)
        assert [r.answer()[::2] for _ in range(7)] == [
            (200, b"slow\n"), (200, b"one"), (200, b"first\nsecond\n"), (200, b"two"), (200, bytes(300000)), (204, b""),
            (200, b"three")]


def test_many_pipelined_requests_do_not_pile_up(echo):
    """Nobody reads the answers at first: then the requests are not read either."""
    n = 20000
    with echo.connect() as s:
        s.settimeout(20)
        sender = threading.Thread(target=s.sendall, args=(request("/big?size=5000") * n,))
        sender.start()
        r = Reader(s)
        for _ in range(n):
            status, fields, body = r.answer()
            assert status == 200 and len(body) == 5000
        sender.join()
    assert echo.memory_kb() < 32 * 1024 * (8 if "asan" in str(echo.process.args[0]) else 1)


@pytest.mark.parametrize("data", [
    request("/collect", "POST", body=b"hello"),
    b"POST /collect HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2;a=b\r\nlo\r\n0\r\n\r\n",
])
def test_a_byte_at_a_time(echo, data):
    with echo.connect("tcp") as s:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        r = Reader(s)
        for _ in range(2):
            for i in range(len(data)):
                s.sendall(data[i:i + 1])
            assert r.answer()[::2] == (200, b"hello")


def test_head_has_the_header_alone(echo):
    with echo.connect() as s:
        s.sendall(request("/big?size=1000", "HEAD") + request("/big?size=1000&chunked", "HEAD") + request("/collect", "GET"))
        r = Reader(s)
        status, fields, _ = r.answer(head=True)
        assert (status, fields["content-length"]) == (200, "1000")
        status, fields, _ = r.answer(head=True)
        assert (status, fields["transfer-encoding"]) == (200, "chunked")
        assert r.answer()[::2] == (200, b"")


def test_100_continue_when_the_body_is_wanted(echo):
    with echo.connect() as s:
        head = b"POST /collect HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n"
        s.sendall(head)
        r = Reader(s)
        assert r.answer()[0] == 100
        s.sendall(b"abc")
        assert r.answer()[::2] == (200, b"abc")
        s.sendall(head + b"def")  # a client that does not wait gets no wrong answer
        status = r.answer()
        assert (r.answer() if status[0] == 100 else status)[::2] == (200, b"def")


def test_100_continue_not_before_the_handler_asks(echo):
    with echo.connect() as s:
        s.sendall(b"POST /ask-later?ms=300 HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n")
        assert quiet(s, 0.15)
        r = Reader(s)
        assert r.answer()[0] == 100
        s.sendall(b"abc")
        assert json.loads(r.answer()[2]) == {"size": 3}


def test_no_100_continue_for_what_is_refused(echo):
    answer = echo.talk(b"POST /collect?limit=2 HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n")
    problem(answer, 413, "TOO_LARGE")
    answer = echo.talk(b"POST /nobody HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 ") and b"Connection: close" in answer


def test_chunked_both_ways(echo):
    chunks = b"".join(b"%x\r\n%s\r\n" % (n, b"z" * n) for n in (1, 2, 15, 16, 255, 70000)) + b"0\r\n\r\n"
    with echo.connect() as s:
        s.sendall(b"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks)
        assert Reader(s).answer()[::2] == (200, b"z" * 70289)
    with echo.connect() as s:
        s.sendall((b"POST /collect HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: ChUnKeD\r\n\r\n" + chunks) * 2)
        r = Reader(s)
        assert [r.answer()[::2] for _ in range(2)] == [(200, b"z" * 70289)] * 2


def test_http_10_is_closed(echo):
    answer = echo.talk(request("/", version="1.0", fields="Connection: keep-alive\r\n"))
    assert answer.startswith(b"HTTP/1.1 200 ") and b"\r\nConnection: close" in answer
    answer = echo.talk(request("/big?size=10&chunked", version="1.0"))
    assert answer.endswith(END + bytes(10)) and b"chunked" not in answer


@pytest.mark.parametrize("field", ["Connection: close", "connection: Close", "Connection: x, close", "Connection: x\r\nConnection: close"])
def test_connection_close(echo, field):
    answer = echo.talk(request("/", fields=field + "\r\n") + request("/again"))
    assert answer.count(b"HTTP/1.1 ") == 1 and b"\r\nConnection: close" in answer


def test_empty_line_before_a_request(echo):
    with echo.connect() as s:
        s.sendall(b"\r\n" + request("/collect") + b"\r\n" + request("/collect"))
        r = Reader(s)
        assert [r.answer()[0] for _ in range(2)] == [200, 200]


def test_a_small_body_that_nobody_wants_is_skipped(echo):
    with echo.connect() as s:
        s.sendall(request("/", "POST", body=b"GET /x HTTP/1.1\r\nHost: x\r\n\r\n") + request("/collect", "POST", body=b"next"))
        r = Reader(s)
        assert json.loads(r.answer()[2])["path"] == "/"
        assert r.answer()[2] == b"next"


def test_an_unwanted_large_body_is_hung_up_on_behind_the_answer(echo):
    with echo.connect("tcp") as s:
        s.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4000000\r\n\r\n")
        s.sendall(bytes(4000000))
        status, fields, _ = Reader(s).answer()
        assert (status, fields["connection"]) == (200, "close")


@pytest.mark.parametrize("path", ["/short", "/short?false"])
def test_an_incomplete_answer_is_cut(echo, path):
    with echo.connect() as s:
        s.sendall(request(path))
        with pytest.raises(EOFError):
            Reader(s).answer()


def test_a_handler_cannot_split_the_answer(echo):
    status, body = echo.get("/inject")
    assert (status, body) == (500, b"")


def test_a_client_that_leaves_is_noticed(echo):
    for kind in ("unix", "tcp"):
        before = echo.facts()
        with echo.connect(kind) as s:
            s.sendall(request("/never"))
            echo.until(lambda f: f["alive"] == before["alive"] + 1)
        echo.until(lambda f: f["gone"] == before["gone"] + 1 and f["alive"] == before["alive"])


def test_half_closed_on_a_unix_socket_still_answered(echo):
    with echo.connect() as s:
        s.sendall(request("/slow?ms=100") + request("/slow?ms=20"))
        s.shutdown(socket.SHUT_WR)
        assert read_all(s).count(b"slow\n") == 2


def test_half_closed_on_tcp_answered_at_once_or_gone(echo):
    with echo.connect("tcp") as s:
        s.sendall(request("/collect"))
        s.shutdown(socket.SHUT_WR)
        assert read_all(s).startswith(b"HTTP/1.1 200 ")
    gone = echo.facts()["gone"]
    with echo.connect("tcp") as s:
        s.sendall(request("/never"))
        s.shutdown(socket.SHUT_WR)
        assert read_all(s) == b""
    assert echo.facts()["gone"] == gone + 1


@pytest.mark.parametrize("path, sent", [("/collect", b"abc"), ("/echo", b"abc"), ("/sink", b"")])
def test_half_closed_or_reset_in_a_body(echo, path, sent):
    for reset in (False, True):
        before = echo.facts()
        s = echo.connect("tcp")
        s.sendall(f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n".encode() + sent)
        if reset:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        else:
            s.shutdown(socket.SHUT_WR)
            read_all(s)
        s.close()
        echo.until(lambda f: f["connections"] == 1 and f["alive"] == before["alive"])


def test_reset_while_an_answer_is_sent(echo):
    s = echo.connect("tcp")
    s.sendall(request("/big?size=50000000"))
    s.recv(1000)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    s.close()
    echo.until(lambda f: f["connections"] == 1 and f["alive"] == 0)


# ---------------------------------------------------------------------------------------------------- much data


@pytest.mark.parametrize("kind", ["unix", "tcp"])
@pytest.mark.parametrize("chunked", ["", "&chunked"])
def test_100_mb_down(echo, kind, chunked):
    with echo.connect(kind) as s:
        s.sendall(request(f"/big?size={100 * MB}{chunked}"))
        assert len(Reader(s).answer()[2]) == 100 * MB


@pytest.mark.parametrize("kind", ["unix", "tcp"])
def test_100_mb_up(echo, kind):
    with echo.connect(kind) as s:
        s.settimeout(20)
        s.sendall(request("/sink", "POST", fields=f"Content-Length: {100 * MB}\r\n"))
        block = bytes(MB)
        for _ in range(100):
            s.sendall(block)
        assert json.loads(Reader(s).answer()[2]) == {"size": 100 * MB}


def test_echo_pushes_back(tmp_path):
    """A client that sends without reading is stopped, and nothing piles up."""
    e = Echo(tmp_path)
    with e.connect() as s:
        s.sendall(request("/echo", "POST", fields=f"Content-Length: {100 * MB}\r\n"))
        s.setblocking(False)
        sent, block = 0, bytes(MB)
        while not quiet_to_write(s):
            sent += s.send(block)
        assert sent < 4 * MB
        s.setblocking(True)
        s.settimeout(20)
        sender = threading.Thread(target=lambda: s.sendall(bytes(100 * MB - sent)))
        sender.start()
        assert len(Reader(s).answer()[2]) == 100 * MB
        sender.join()
    if "asan" not in str(e.process.args[0]):
        assert e.memory_kb() < 16 * 1024
    e.stop()


def quiet_to_write(s):
    return not select.select([], [s], [], 0.3)[1]


def test_memory_stays_flat(tmp_path):
    e = Echo(tmp_path)
    for path in (f"/big?size={100 * MB}", f"/big?size={100 * MB}&chunked"):
        with e.connect() as s:
            s.sendall(request(path))
            Reader(s).answer()
    with e.connect() as s:
        s.sendall(b"POST /sink HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(100):
            s.sendall(b"100000\r\n" + bytes(MB) + b"\r\n")
        s.sendall(b"0\r\n\r\n")
        assert json.loads(Reader(s).answer()[2]) == {"size": 100 * MB}
    if "asan" not in str(e.process.args[0]):
        assert e.memory_kb() < 16 * 1024
    e.stop()


# -------------------------------------------------------------------------------------------------- descriptors


def send_fds(s, data, count):
    fds = [os.memfd_create("t") for _ in range(count)]
    for i, fd in enumerate(fds):
        os.ftruncate(fd, i)
    s.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))])
    for fd in fds:
        os.close(fd)


def open_fds(echo):
    return len(os.listdir(f"/proc/{echo.process.pid}/fd"))


def test_descriptors_come_with_a_request(echo):
    before = open_fds(echo)
    with echo.connect() as s:
        r = Reader(s)
        for count in (1, 33, 0, 40):
            send_fds(s, request("/fds"), count) if count else s.sendall(request("/fds"))
            assert json.loads(r.answer()[2]) == {"sizes": list(range(min(count, 33)))}
        send_fds(s, request("/collect"), 5)  # not taken: closed
        assert r.answer()[0] == 200
        send_fds(s, request("/fds")[:10], 2)
        send_fds(s, request("/fds")[10:], 33)  # 35 in two pieces: two too many
        assert json.loads(r.answer()[2])["sizes"] == [0, 1] + list(range(31))
        send_fds(s, b"GET /incomplete", 7)
    echo.until(lambda f: open_fds(echo) <= before + 1)  # the asking connection is one


def test_descriptors_of_many_are_bounded(tmp_path):
    e = Echo(tmp_path)
    before = open_fds(e)
    sockets = [e.connect() for _ in range(60)]
    for s in sockets:
        send_fds(s, b"GET /incomplete", 33)
    e.until(lambda f: f["connections"] == 61)
    assert open_fds(e) <= before + 61 + 1024
    for s in sockets:
        s.close()
    e.until(lambda f: open_fds(e) <= before + 1)
    e.stop()


# ---------------------------------------------------------------------------------------------------- take-over


@pytest.mark.parametrize("kind", ["unix", "tcp"])
def test_take_over(echo, kind):
    ends = echo.facts()["ends"]
    with echo.connect(kind) as s:
        s.sendall(request("/takeover", fields="Connection: Upgrade\r\nUpgrade: echo\r\n") + b"early")
        r = Reader(s)
        assert r.answer()[0] == 101
        assert r.exactly(5) == b"early"
        data = os.urandom(5 * MB)
        sender = threading.Thread(target=lambda: (s.sendall(data), s.shutdown(socket.SHUT_WR)))
        sender.start()
        assert r.exactly(len(data)) == data
        sender.join()
        assert s.recv(1) == b""
    assert echo.facts()["ends"] == ends + 1


def test_take_over_pushes_back_and_notices_a_hang_up(echo):
    before = echo.facts()
    s = echo.connect()
    s.sendall(request("/takeover"))
    assert Reader(s).answer()[0] == 101
    s.setblocking(False)
    sent = 0
    while not quiet_to_write(s):
        sent += s.send(bytes(MB))
    assert sent < 4 * MB
    s.close()
    echo.until(lambda f: f["gone"] == before["gone"] + 1 and f["alive"] == before["alive"])


@pytest.mark.parametrize("kind", ["unix", "tcp"])
def test_half_closed_by_the_server(echo, kind):
    before = echo.facts()
    with echo.connect(kind) as s:
        s.sendall(request("/goodbye"))
        r = Reader(s)
        assert r.answer()[0] == 101
        assert r.exactly(3) == b"bye" and s.recv(1) == b""
        s.sendall(b"12345")
        s.shutdown(socket.SHUT_WR)
        echo.until(lambda f: f["ends"] == before["ends"] + 5 and f["alive"] == before["alive"])


def test_take_over_with_a_body_is_refused(echo):
    answer = echo.talk(b"POST /takeover HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nGET /")
    assert b"GET /" not in answer


# ------------------------------------------------------------------------------------------- clients of others


def test_http_client(echo):
    c = http.client.HTTPConnection("127.0.0.1", echo.port, timeout=10)
    for body in (b"x", b"y" * MB):
        c.request("PUT", "/collect?limit=2000000", body)
        assert c.getresponse().read() == body
    c.request("POST", "/echo", iter([b"a", b"b" * 100000]), encode_chunked=True, headers={"Transfer-Encoding": "chunked"})
    assert c.getresponse().read() == b"a" + b"b" * 100000
    c.close()


@pytest.mark.skipif(not shutil.which("curl"), reason="no curl")
def test_curl(echo, tmp_path):
    data = os.urandom(3 * MB)
    (tmp_path / "data").write_bytes(data)
    curl = ["curl", "-sS", "-m", "20", "--unix-socket", echo.path]
    assert subprocess.check_output([*curl, "-T", tmp_path / "data", "http://x/echo"]) == data
    assert subprocess.check_output([*curl, "-T", "-", "http://x/echo"], input=data) == data
    out = subprocess.check_output([*curl, "-d", "abc", "-w", "%{num_connects}", "http://x/collect", "http://x/collect", "http://x/slow"])
    assert out == b"abc1abc0slow\n0"  # all on the first connection


# ----------------------------------------------------------------------------------------------------------- TLS


@pytest.fixture(scope="module")
def tls(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    cert, key = str(folder / "cert.pem"), str(folder / "key.pem")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days",
                    "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", cert],
                   check=True, capture_output=True)
    e = Echo(folder, "--tls", cert, key, "--header-seconds", "1", "--idle-seconds", "2")
    e.cert = cert
    yield e
    e.stop()


def secured(tls, version=None):
    context = ssl.create_default_context(cafile=tls.cert)
    if version:
        context.minimum_version = context.maximum_version = version
        context.set_ciphers("ALL:@SECLEVEL=0")
    return context.wrap_socket(tls.connect("tcp", 20), server_hostname="127.0.0.1")


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_tls(tls, version):
    with secured(tls, version) as s:
        r = Reader(s)
        for i in range(50):
            s.sendall(request("/collect", "POST", body=b"%d" % i) * 2)
            assert [r.answer()[2] for _ in range(2)] == [b"%d" % i] * 2
        s.sendall(request(f"/big?size={20 * MB}"))
        assert len(r.answer()[2]) == 20 * MB
        s.sendall(request("/sink", "POST", body=bytes(20 * MB)))
        assert json.loads(r.answer()[2]) == {"size": 20 * MB}
        s.sendall(request("/never", fields="Connection: close\r\n"))
    tls.until(lambda f: f["connections"] == 1 and f["alive"] == 0)


def test_tls_echo_pushes_back_and_resumes(tls):
    """Paused with decrypted bytes in OpenSSL's hands: they must not be forgotten."""
    with secured(tls) as s:
        s.sendall(request("/ask-later?ms=200", "POST", body=bytes(MB)))
        assert json.loads(Reader(s).answer()[2]) == {"size": MB}
        s.sendall(request("/collect", fields="Connection: close\r\n"))
        assert read_all(s).startswith(b"HTTP/1.1 200")  # and a proper end: no SSLEOFError


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_old_tls_is_refused(tls, version):
    with pytest.raises((ssl.SSLError, ConnectionResetError)):
        secured(tls, version)


def test_tls_takes_no_plain_http_and_no_silence(tls):
    assert b"HTTP/1.1" not in tls.talk(request("/"), "tcp")
    start = time.monotonic()
    with tls.connect("tcp") as s:
        assert read_all(s) == b""
    assert 0.8 < time.monotonic() - start < 8


# ----------------------------------------------------------------------------------------------------------- end


def test_stop_lets_answers_go_out(tmp_path):
    e = Echo(tmp_path)
    with e.connect() as idle, e.connect() as busy, e.connect() as last:
        busy.sendall(request("/slow?ms=200"))
        e.until(lambda f: f["alive"] == 1)
        last.sendall(request("/stop"))
        status, fields, _ = Reader(last).answer()
        assert (status, fields["connection"]) == (200, "close")
        assert read_all(idle) == b""
        with pytest.raises(ConnectionRefusedError):
            e.connect()
        status, fields, body = Reader(busy).answer()
        assert (status, fields["connection"], body) == (200, "close", b"slow\n")
    e.stop()


def test_close_ends_everything(tmp_path):
    e = Echo(tmp_path)
    sockets = [e.connect() for _ in range(6)]
    for s, data in zip(sockets, (request("/never"), request("/takeover"), b"GET /", request("/big?size=9999999"),
                                 b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nabc", b"")):
        s.sendall(data)
    e.until(lambda f: f["requests"] >= 4 and f["connections"] == 7)
    e.stop()
    for s in sockets:
        read_all(s)
        s.close()
