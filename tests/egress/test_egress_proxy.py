# SPDX-License-Identifier: Apache-2.0
"""The proxy a program inside knows: plain HTTP, CONNECT, SOCKS5; what is decided, and what is recorded of it."""
import json
import socket
import struct
import subprocess
import threading
import time

import egress
import pytest

SECRETS = ("metadata.google.internal", "169.254.169.254", "100.100.100.200", "[fd00:ec2::254]", "168.63.129.16")


def get(host, path="/", more="", method="GET", version="1.1"):
    return f"{method} http://{host}{path} HTTP/{version}\r\nHost: {host}\r\n{more}\r\n"


def problem(answer):
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"Content-Type: application/problem+json" in head, answer
    return head.split(b"\r\n")[0].split(b" ", 1)[1].decode(), json.loads(body)


def refused(answer, host, port):
    """A typed refusal that names what would allow it."""
    status, p = problem(answer)
    assert status == "403 Forbidden" and (p["status"], p["code"], p["host"], p["port"]) == (403, "network_denied", host, port)
    place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    assert f"\r\nCloche-Denied: {place}\r\n".encode() in answer
    return p


# ---------------------------------------------------------------------------------------------------------- plain HTTP


def test_a_request_is_passed_on_and_recorded(proxied):
    e, s = proxied()
    at = f"api.test:{s.port}"
    answer = e.send(get(at, "/a/b?c=d", "X-Of-Mine: 1\r\nConnection: close\r\n"))
    head, body = answer.split(b"\r\n\r\n", 1)
    assert head.startswith(b"HTTP/1.1 200 OK\r\n") and b"Connection: close" in head
    assert body == f"GET /a/b?c=d HTTP/1.1\r\nHost: {at}\r\nx-of-mine: 1\r\n\r\n".encode()
    totals = e.wait_for(lambda t: t.open == 0)
    assert (totals.allowed, totals.denied, totals.failed) == (1, 0, 0)
    record, = e.records
    assert (record.verdict, record.host, record.port, record.address) == ("allowed", "api.test", s.port, "127.0.0.1")
    assert record.rule == f"allow api.test:{s.port} within=127.0.0.0/8"
    assert record.sent == len(s.received[0]) and record.received > len(body) and totals.bytes == record.sent + record.received
    assert abs(record.started_ms / 1000 - time.time()) < 60 and 0 < record.duration_us < 20e6


def test_requests_of_one_connection_use_one_upstream(proxied):
    e, s = proxied()
    with e.dial() as c:
        for i in range(5):
            assert f"GET /{i} ".encode() in e.exchange(c, get(f"api.test:{s.port}", f"/{i}"))[1]
    assert len(s.received) == 1 and len(s.requests) == 5


def test_pipelined_requests_are_answered_in_order(proxied):
    e, s = proxied()
    at = f"api.test:{s.port}"
    answer = e.send(get(at, "/1") + get(at, "/2") + get(at, "/3", "Connection: close\r\n"))
    assert [answer.index(f"GET /{i} ".encode()) for i in (1, 2, 3)] == sorted(answer.index(f"GET /{i} ".encode()) for i in (1, 2, 3))
    assert len(s.requests) == 3 and answer.count(b"HTTP/1.1 200 OK") == 3


@pytest.mark.parametrize("size", [0, 1, 70_000, 5_000_000])
@pytest.mark.parametrize("chunked", [False, True])
def test_bodies_of_any_size_arrive_whole(proxied, size, chunked):
    e, s = proxied()
    body = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    if chunked:
        framing = "Transfer-Encoding: chunked\r\n"
        pieces = [body[i:i + 100_000] for i in range(0, size, 100_000)]
        wire = b"".join(b"%x;ext=1\r\n%s\r\n" % (len(p), p) for p in pieces) + b"0\r\n\r\n"
    else:
        framing, wire = f"Content-Length: {size}\r\n", body
    at = f"api.test:{s.port}"
    with e.dial() as c:
        threading.Thread(target=c.sendall, args=(get(at, "/", framing + "Connection: close\r\n", "POST").encode() + wire, ),
                         daemon=True).start()
        answer = egress.drain(c)
    assert answer.endswith(b"\r\n\r\n" + body) if size else answer.startswith(b"HTTP/1.1 200")
    (head, received), = s.requests
    assert received == body and ("transfer-encoding: chunked" in head.lower()) == chunked


def test_expect_is_answered_when_the_request_is_allowed(proxied):
    e, s = proxied()
    with e.dial() as c:
        c.sendall(get(f"api.test:{s.port}", "/", "Content-Length: 3\r\nExpect: 100-continue\r\nConnection: close\r\n", "PUT").encode())
        assert egress.read_head(c) == "HTTP/1.1 100 Continue\r\n\r\n"
        c.sendall(b"abc")
        assert egress.drain(c).endswith(b"abc")
    assert "expect" not in s.requests[0][0].lower()
    answer = e.send(get("no.test", "/", "Content-Length: 3\r\nExpect: 100-continue\r\n", "PUT"))
    assert b"100 Continue" not in answer and problem(answer)[0] == "403 Forbidden"


ANSWERS = {
    "length": (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", b"abc", b"Content-Length: 3"),
    "chunked": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n2;x=y\r\nbc\r\n0\r\n\r\n", b"1\r\na\r\n2\r\nbc\r\n0\r\n\r\n",
                b"Transfer-Encoding: chunked"),
    "to its end": (b"HTTP/1.1 200 OK\r\n\r\nabc", b"3\r\nabc\r\n0\r\n\r\n", b"Transfer-Encoding: chunked"),
    "to its end, 1.0": (b"HTTP/1.0 200 OK\r\n\r\nabc", b"3\r\nabc\r\n0\r\n\r\n", b"Transfer-Encoding: chunked"),
    "none": (b"HTTP/1.1 204 No Content\r\n\r\n", b"", b"HTTP/1.1 204 No Content"),
    "not modified": (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 77\r\n\r\n", b"", b"Content-Length: 77"),
    "interim": (b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200\r\nContent-Length: 2\r\n\r\nok", b"ok", b"HTTP/1.1 200 \r\n"),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_answers_of_every_framing(proxied, name):
    raw, body, field = ANSWERS[name]

    def handle(peer, _):
        peer.head()
        peer.send(raw)
        peer.sock.shutdown(socket.SHUT_WR)
        peer.more()
    e, s = proxied(handle)
    head, rest = e.send(get(f"api.test:{s.port}", "/", "Connection: close\r\n")).split(b"\r\n\r\n", 1)
    assert rest == body and field in head + b"\r\n"


def test_answers_to_head_and_to_http_1_0(proxied):
    e, s = proxied(lambda p, _: [p.head(), p.send(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n")] and p.more())
    answer = e.send(get(f"api.test:{s.port}", "/", "Connection: close\r\n", "HEAD"))
    assert answer.endswith(b"Content-Length: 3\r\nConnection: close\r\n\r\n")

    def chunked(peer, _):
        peer.head()
        peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n")
        peer.more()
    e, s = proxied(chunked)
    answer = e.send(get(f"api.test:{s.port}", version="1.0"))
    assert answer.endswith(b"\r\n\r\nabc") and b"chunked" not in answer.lower()


BROKEN = {
    "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabc",
    "length and chunked": b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    "gzip, chunked": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    "chunked in 1.0": b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    "bare LF": b"HTTP/1.1 200 OK\nContent-Length: 3\n\nabc",
    "folded": b"HTTP/1.1 200 OK\r\nX: a\r\n b\r\nContent-Length: 3\r\n\r\nabc",
    "NUL": b"HTTP/1.1 200 OK\r\nX: a\0b\r\nContent-Length: 3\r\n\r\nabc",
    "no number": b"HTTP/1.1 200 OK\r\nContent-Length: +3\r\n\r\nabc",
    "status": b"HTTP/1.1 20 OK\r\nContent-Length: 3\r\n\r\nabc",
    "version": b"HTTP/2.0 200 OK\r\nContent-Length: 3\r\n\r\nabc",
    "no HTTP": b"SSH-2.0-OpenSSH_9.2\r\n",
    "nothing": b"",
    "half a header": b"HTTP/1.1 200 OK\r\nContent-Le",
    "a protocol nobody asked for": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n",
    "1xx without end": b"HTTP/1.1 100 Continue\r\n\r\n" * 100,
    "endless header": b"HTTP/1.1 200 OK\r\n" + b"X: " + b"a" * 100_000,
    "too many fields": b"HTTP/1.1 200 OK\r\n" + b"X: a\r\n" * 1000 + b"\r\n",
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_answer_is_a_502(proxied, name):
    def handle(peer, _):
        peer.head()
        peer.send(BROKEN[name])
    e, s = proxied(handle)
    status, p = problem(e.send(get(f"api.test:{s.port}")))
    assert status == "502 Bad Gateway" and p["code"] == "upstream_failed" and "api.test" in p["detail"] + p["host"]
    e.flush()
    assert [r.verdict for r in e.records] == ["failed"]


CUT = {
    "short of its length": b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc",
    "without its last chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
    "with a broken chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcXX\r\n0\r\n\r\n",
    "with trailers": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX: y\r\n\r\n",
    "with endless extensions": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1;" + b"e" * 200 + b"\r\na\r\n" * 1,
}


@pytest.mark.parametrize("name", CUT)
def test_an_answer_cut_off_never_looks_whole(proxied, name):
    def handle(peer, _):
        peer.head()
        peer.send(CUT[name])
        peer.sock.shutdown(socket.SHUT_WR)
        peer.more()
    e, s = proxied(handle)
    answer = e.send(get(f"api.test:{s.port}"))
    assert answer.endswith(b"RESET") and b"\r\n0\r\n\r\n" not in answer, answer


def test_a_kept_alive_upstream_that_ends_is_replaced(proxied):
    def once(peer, server):
        peer.head()
        server.__dict__.setdefault("count", []).append(1)
        peer.reply(b"one")
    e, s = proxied(once)
    with e.dial() as c:
        for _ in range(3):
            c.sendall(get(f"api.test:{s.port}").encode())
            assert egress.read_head(c).startswith("HTTP/1.1 200") and egress.read_exactly(c, 3) == b"one"
            time.sleep(0.1)  # the end of it arrives
    assert len(s.count) == 3


def test_what_an_upstream_says_unasked_answers_nobody(proxied):
    """A second answer waits in the upstream's connection: it must not be the next request's."""
    def twice(peer, server):
        while peer.head():
            peer.reply(b"mine")
            peer.reply(b"evil")
    e, s = proxied(twice)
    with e.dial() as c:
        for _ in range(4):
            c.sendall(get(f"api.test:{s.port}").encode())
            assert egress.read_head(c).startswith("HTTP/1.1 200") and egress.read_exactly(c, 4) == b"mine"
            time.sleep(0.05)  # the other one arrives


def test_two_hosts_by_one_connection(proxied, server):
    t = server()
    e, s = proxied(rules=f"allow api.test:{{port}} within=127.0.0.0/8\nallow other.test:{t.port} within=127.0.0.0/8")
    answer = e.send(get(f"api.test:{s.port}", "/1") + get(f"other.test:{t.port}", "/2") +
                    get(f"api.test:{s.port}", "/3", "Connection: close\r\n"))
    assert answer.count(b"200 OK") == 3
    assert [h.split()[1] for h, _ in s.requests] == ["/1", "/3"] and [h.split()[1] for h, _ in t.requests] == ["/2"]


def test_CONNECT_behind_a_request_goes_where_it_says(proxied, server):
    """Not where the request before it went, whose connection is still there."""
    t = server(egress.echo)
    e, s = proxied(rules=f"allow api.test:{{port}} within=127.0.0.0/8\nallow other.test:{t.port} within=127.0.0.0/8")
    with e.dial() as c:
        assert e.exchange(c, get(f"api.test:{s.port}"))[0].startswith("HTTP/1.1 200")
        c.sendall(f"CONNECT other.test:{t.port} HTTP/1.1\r\nHost: other.test:{t.port}\r\n\r\n".encode())
        assert egress.read_head(c).startswith("HTTP/1.1 200 Connection")
        c.sendall(b"for the other")
        assert egress.read_exactly(c, 13) == b"for the other"
    assert t.received == [b"for the other"] and len(s.requests) == 1
    e.wait_for(lambda totals: totals.open == 0)
    assert [(r.host, r.port) for r in e.records] == [("api.test", s.port), ("other.test", t.port)]


# ------------------------------------------------------------------------------------------------------------- refusals


def test_PX_01_what_no_rule_names_is_refused_and_counted(proxied):
    e, s = proxied(rules="allow GET,HEAD http://api.test:{port}/open/* within=127.0.0.0/8\nallow api.test:9 within=127.0.0.0/8")
    cases = [(get("no.test"), "no.test", 80), (get("api.test"), "api.test", 80),
             (get(f"api.test:{s.port}", "/shut"), "api.test", s.port),
             (get(f"api.test:{s.port}", "/open/x", method="DELETE"), "api.test", s.port)]
    for request, host, port in cases:
        p = refused(e.send(request), host, port)
        assert p["rule"] == "no rule" and p["remedy"] == f"--allow {host}:{port}" and host in p["detail"]
    totals = e.flush()
    assert (totals.denied, totals.allowed) == (4, 0) and not s.received
    assert [(r.verdict, r.host, r.port) for r in e.records] == [("denied", h, p) for _, h, p in cases]
    assert e.records[3].method == "DELETE" and e.records[3].path == "/open/x"
    assert e.send(get(f"api.test:{s.port}", "/open/x", "Connection: close\r\n")).startswith(b"HTTP/1.1 200")  # control


def test_PX_01_no_name_is_looked_up_for_what_is_refused(proxied):
    """Under strace: no socket is made, nothing is sent but the refusals."""
    e, s = proxied(wrap=("strace", "-f", "-qq", "-e", "trace=socket,connect,sendto,sendmsg,sendmmsg", "-o", "/dev/stderr"))
    refused(e.send(get("token.evil.test")), "token.evil.test", 80)
    refused(e.send("CONNECT x.evil.test:443 HTTP/1.1\r\nHost: x.evil.test:443\r\n\r\n"), "x.evil.test", 443)
    e.socks("y.evil.test", 443)[0].close()
    e.close()
    calls = [line.split(None, 1)[1] for line in e.errors.splitlines() if "(" in line]
    assert not [c for c in calls if c.startswith(("socket", "connect", "sendmmsg"))], calls


@pytest.mark.parametrize("rules, mode", [("", "allow"), ("deny other.test", "allow"), ("", "none"), ("# nothing", "allow")])
def test_PX_02_an_empty_list_denies_all(proxied, rules, mode):
    e, s = proxied(rules=rules, mode=mode)
    refused(e.send(get(f"api.test:{s.port}")), "api.test", s.port)
    assert not s.received


@pytest.mark.parametrize("rule", ["*", "allow *", "allow", "allow a.*.test", "allow \"\""])
def test_PX_02_what_is_no_rule_starts_nothing(rule):
    with pytest.raises(egress.Refused, match="line 1|rules"):
        with egress.Egress(rules=rule if rule.startswith("allow") else f"allow {rule}"):
            pass


def test_PX_04_wildcards_fit_one_label(proxied):
    names = {n: ["127.0.0.1"] for n in ("api.test", "a.api.test", "b.a.api.test", "xapi.test")}
    e, s = proxied(rules="allow *.api.test:{port} within=127.0.0.0/8", resolve=names)
    for name in ("api.test", "b.a.api.test", "xapi.test"):
        refused(e.send(get(f"{name}:{s.port}")), name, s.port)
    assert e.send(get(f"a.api.test:{s.port}", "/", "Connection: close\r\n")).startswith(b"HTTP/1.1 200")


FORMS = ["127.1", "0x7f000001", "2130706433", "0177.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "[::127.0.0.1]", "[64:ff9b::7f00:1]",
         "[2002:7f00:1::]", "[2001:0:7f00:1::1]", "[fe80::1%25lo]", "0.0.0.0", "[::]", "127.0.0.1", "10.0.0.1", "192.168.1.1", "172.16.0.1",
         "100.64.0.1", "224.0.0.1", "255.255.255.255", *SECRETS]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("way", ["http", "connect", "socks"])
def test_PX_05_forms_of_addresses(proxied, form, way):
    """NE-03, too: everything is open but what is not public, in any spelling."""
    e, s = proxied(rules="", mode="open", resolve={"metadata.google.internal": ["169.254.169.254"]})
    if way == "http":
        answer = e.send(get(f"{form}:{s.port}"))
        assert answer.startswith((b"HTTP/1.1 403", b"HTTP/1.1 400")), answer
    elif way == "connect":
        answer = e.connect(form, s.port)[1]
        assert answer.startswith(("HTTP/1.1 403", "HTTP/1.1 400")), answer
    else:
        c, code = e.socks(form.strip("[]").replace("%25", "%"), s.port)
        c.close()
        assert code == 2
    e.flush()
    assert not s.received and not [r for r in e.records if r.verdict != "denied"]
    assert len(e.records) == 1 or answer.startswith(("HTTP/1.1 400", b"HTTP/1.1 400")[isinstance(answer, bytes)])


@pytest.mark.parametrize("form", ["127.1", "my..host", "[::ffff:192.0.2.1]", "a_-.test", "\x7f\xff.test", "x" * 254])
def test_PX_05_what_is_no_host_is_told_of_as_a_reason(proxied, form):
    """A record's host is one, or none: its clients end a process that says other records (egress_record_is_valid)."""
    e, s = proxied(rules="", mode="open")
    answer = e.send(f"CONNECT {form}:443 HTTP/1.1\r\nHost: a\r\n\r\n".encode("latin-1"))
    e.flush()
    if not answer.startswith(b"HTTP/1.1 400"):
        assert answer.startswith(b"HTTP/1.1 403")
        record, = e.records
        shown = "".join(c if " " < c < "\x7f" else "?" for c in form)
        assert (record.host, record.port, record.verdict) == ("", 443, "denied")
        assert record.why == f"neither a host name nor an address in its usual form: {shown[:100]}"


@pytest.mark.parametrize("address", ["64:ff9b::808:808", "::ffff:8.8.8.8", "2002:808:808::1"])
def test_PX_05_an_address_that_carries_another_is_no_host(proxied, address):
    e, s = proxied(rules="")
    c, code = e.socks(address, 443, 4)
    c.close()
    e.flush()
    assert code == 2 and [(r.verdict, r.host, r.address, r.port) for r in e.records] == [("denied", "", address, 443)]


@pytest.mark.parametrize("rules, host, rule, detail", [
    ("max-connections 1\nallow api.test:{port} within=127.0.0.0/8", "api.test", None, "max-connections"),
    ("", "api.test", None, "this machine itself, which no rule names (within=)"),  # mode open, no within=
    ("allow api.test:{port}", "127.1", None, "neither a host name"),
    ("allow api.test:{port}\ndeny no.test", "no.test", "deny no.test", "a rule denies it"),
    ("allow api.test:{port}", "no.test", "no rule", "no rule allows"),
])
def test_what_would_help_is_said_only_where_it_would(proxied, rules, host, rule, detail):
    e, s = proxied(rules=rules, mode="allow" if rules else "open")
    if "max" in rules:
        assert e.send(get(f"{host}:{s.port}", "/", "Connection: close\r\n")).startswith(b"HTTP/1.1 200")
    p = refused(e.send(get(f"{host}:{s.port}")), host, s.port)
    assert p["rule"] == rule and detail in p["detail"]
    assert p.get("remedy") == (f"--allow {host}:{s.port}" if rule == "no rule" else None)


def test_a_rule_with_tabs_in_it(proxied):
    e, s = proxied(rules="allow GET\thttp://api.test:{port}/a\twithin=127.0.0.0/8\ndeny\tno.test")
    assert e.send(get(f"api.test:{s.port}", "/a", "Connection: close\r\n")).startswith(b"HTTP/1.1 200")
    refused(e.send(get("no.test")), "no.test", 80)
    e.wait_for(lambda t: t.open == 0)
    assert sorted(r.rule for r in e.records) == [f"allow GET http://api.test:{s.port}/a within=127.0.0.0/8", "deny no.test"]


@pytest.mark.parametrize("kind, address", [(1, "127.0.0.1"), (1, "169.254.169.254"), (4, "::1"), (4, "::ffff:127.0.0.1"), (4, "fe80::1")])
def test_PX_05_addresses_by_socks(proxied, kind, address):
    e, s = proxied(rules="", mode="open")
    c, code = e.socks(address, s.port, kind)
    c.close()
    assert code == 2 and not s.received


@pytest.mark.parametrize("address", ["127.0.0.1", "10.1.2.3", "169.254.169.254", "100.64.0.1", "224.0.0.1", "0.0.0.0", "::1", "fe80::1",
                                     "fd00::1", "::ffff:10.0.0.1", "64:ff9b::a00:1"])
def test_PX_06_an_allowed_name_with_an_address_of_ours(proxied, address):
    e, s = proxied(rules="allow api.test:{port}", resolve={"api.test": [address]})
    refused(e.send(get(f"api.test:{s.port}")), "api.test", s.port)
    e.flush()
    assert [(r.verdict, r.address) for r in e.records] == [("denied", address)] and not s.received


def test_PX_07_one_bad_address_in_an_answer_refuses_all(proxied):
    e, s = proxied(rules="allow api.test:{port}", resolve={"api.test": ["192.0.2.1", "8.8.8.8", "127.0.0.1"]})
    refused(e.send(get(f"api.test:{s.port}")), "api.test", s.port)
    e, s = proxied(rules="allow api.test:{port} within=127.0.0.0/8", resolve={"api.test": ["127.0.0.1", "10.0.0.1"]})
    refused(e.send(get(f"api.test:{s.port}")), "api.test", s.port)
    assert not s.received


def test_PX_07_the_checked_address_is_connected_to(proxied):
    """Two addresses, of which the first has nobody: the second is tried, the name is not asked for again."""
    e, s = proxied(resolve={"api.test": ["127.0.0.2", "127.0.0.1"]})
    assert e.send(get(f"api.test:{s.port}", "/", "Connection: close\r\n")).startswith(b"HTTP/1.1 200")
    e.flush()
    assert e.records[0].address == "127.0.0.1"


def test_PX_06_no_connection_to_the_proxy_itself(proxied):
    e, s = proxied(resolve={"self.test": ["127.0.0.1"]})
    own = e.proxy[1]
    e.policy(f"allow self.test:{own} within=127.0.0.0/8")
    p = refused(e.send(get(f"self.test:{own}")), "self.test", own)
    assert "this proxy itself" in p["detail"]


@pytest.mark.parametrize("port", [22, 25, 2375, 6379, 3128])
def test_PX_22_other_ports_are_refused(proxied, port):
    e, _ = proxied(rules="allow api.test within=127.0.0.0/8")
    refused(e.send(f"CONNECT api.test:{port} HTTP/1.1\r\nHost: api.test:{port}\r\n\r\n"), "api.test", port)


def test_PX_22_orders_to_another_proxy_go_nowhere(proxied):
    e, s = proxied()
    fields = "X-Upstream-Https-Proxy: http://evil.test:1\r\nProxy-Chain: evil.test\r\nProxy-Authorization: Basic eDp5\r\nProxy-Connection: keep-alive\r\n"
    assert e.send(get(f"api.test:{s.port}", "/", fields + "Connection: close\r\n")).startswith(b"HTTP/1.1 200")
    assert s.requests[0][0].lower().count("\r\n") == 1 and "evil" not in s.requests[0][0]


def test_PX_15_redirects_are_not_followed(proxied):
    def moved(peer, _):
        while peer.head():
            peer.reply(b"", "302 Found", "Location: http://evil.test/\r\n")
    e, s = proxied(moved)
    answer = e.send(get(f"api.test:{s.port}", "/", "Connection: close\r\n"))
    assert answer.startswith(b"HTTP/1.1 302") and b"location: http://evil.test/" in answer
    refused(e.send(get("evil.test")), "evil.test", 80)
    assert len(s.received) == 1


def test_PX_19_who_asks_is_which_listener(proxied):
    """Two proxies: what is said in a request changes nothing about whose policy holds."""
    a, s = proxied()
    b, _ = proxied(rules="")
    for more in ("", f"X-Sandbox: {a.process.pid}\r\n", "Proxy-Authorization: Basic YTpi\r\n", "Forwarded: for=a\r\n"):
        refused(b.send(get(f"api.test:{s.port}", "/", more)), "api.test", s.port)
    assert not s.received
    assert a.send(get(f"api.test:{s.port}", "/", "Connection: close\r\n")).startswith(b"HTTP/1.1 200")


def test_a_denial_is_recorded_before_it_is_seen(proxied):
    e, _ = proxied()
    for i in range(50):
        refused(e.send(get(f"no{i}.test")), f"no{i}.test", 80)
        assert e.flush().denied == i + 1 and e.records[-1].host == f"no{i}.test"


def test_an_upstream_that_is_not_there(proxied):
    e, s = proxied(rules="allow api.test:1 within=127.0.0.0/8\nallow gone.test:1 within=127.0.0.0/8", resolve={"gone.test": []})
    status, p = problem(e.send(get("api.test:1")))
    assert status == "502 Bad Gateway" and "Connection refused" in p["detail"]
    status, p = problem(e.send(get("gone.test:1")))
    assert status == "502 Bad Gateway" and "does not exist" in p["detail"]
    assert e.flush().failed == 2


# --------------------------------------------------------------------------------------------------------- CONNECT, SOCKS


@pytest.fixture(params=["connect", "socks"])
def tunnel(request):
    def dial(e, host, port):
        if request.param == "connect":
            s, head = e.connect(host, port)
            assert head == "HTTP/1.1 200 Connection established\r\n\r\n", head
        else:
            s, code = e.socks(host, port)
            assert code == 0
        return s
    return dial


def test_a_tunnel_relays_both_ways(proxied, tunnel):
    e, s = proxied(egress.echo)
    data = bytes(range(256)) * 40_000  # 10 MB
    with tunnel(e, "api.test", s.port) as c:
        def send():
            c.sendall(data)
            c.shutdown(socket.SHUT_WR)
        threading.Thread(target=send, daemon=True).start()
        assert egress.drain(c) == data
    e.wait_for(lambda t: t.open == 0)
    assert (e.records[0].verdict, e.records[0].sent, e.records[0].received) == ("allowed", len(data), len(data))


def test_half_closes_are_passed_on(proxied, tunnel):
    def after_the_end(peer, server):
        while peer.more():
            pass
        peer.send(b"all of it: %d" % len(peer.rest))
    e, s = proxied(after_the_end)
    with tunnel(e, "api.test", s.port) as c:
        c.sendall(b"abc")
        c.shutdown(socket.SHUT_WR)
        assert egress.drain(c) == b"all of it: 3"
    got = []

    def speaks_and_ends(peer, server):
        peer.send(b"hello")
        peer.sock.shutdown(socket.SHUT_WR)
        while peer.more():
            pass
        got.append(peer.rest)
    e, s = proxied(speaks_and_ends)
    with tunnel(e, "api.test", s.port) as c:
        assert egress.drain(c) == b"hello"
        c.sendall(b"still here")
        c.shutdown(socket.SHUT_WR)
        e.wait_for(lambda t: t.open == 0)
    assert got == [b"still here"]


def test_a_reset_is_passed_on(proxied, tunnel):
    def reset(peer, _):
        peer.more()
        peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    e, s = proxied(reset)
    with tunnel(e, "api.test", s.port) as c:
        c.sendall(b"x")
        assert egress.is_reset(c)


def test_socks_by_address_and_its_refusals(proxied):
    e, s = proxied(egress.echo, rules="allow 127.0.0.1:{port}")
    c, code = e.socks("127.0.0.1", s.port, kind=1)
    with c:
        c.sendall(b"abc")
        assert code == 0 and egress.read_exactly(c, 3) == b"abc"
    for command in (2, 3):
        c, code = e.socks("127.0.0.1", s.port, kind=1, command=command)
        c.close()
        assert code == 7
    assert e.send(b"\5\1\2") == b"\5\xff"  # a password only
    assert e.send(b"\4\1\0\x50\x7f\0\0\1x\0").endswith((b"RESET", b"")) and len(s.received) == 1  # SOCKS4
    with e.dial() as c:
        c.sendall(b"\5\1\0")
        egress.read_exactly(c, 2)
        c.sendall(b"\5\1\0\7\0")
        assert c.recv(10)[:2] == b"\5\x08"


@pytest.mark.parametrize("name", [b"api.test\r\nX: y", b"api.test\0.evil.test", b"api.test/", b"api test", b"", b"-", b"a..b", b"api.test:80", b"\xff\xfe",
                                  b"xn--", b"a" * 255])
def test_PX_12_names_by_socks(proxied, name):
    e, s = proxied()
    c, code = e.socks(name, s.port)
    c.close()
    assert code == 2 and not s.received
    assert all(32 < ord(ch) < 127 for ch in e.denials()[0][0])


def test_bytes_before_the_answer_are_refused(proxied):
    e, s = proxied(egress.echo)
    answer = e.send(f"CONNECT api.test:{s.port} HTTP/1.1\r\nHost: api.test:{s.port}\r\n\r\nGET / HTTP/1.1\r\n\r\n")
    assert problem(answer)[0] == "400 Bad Request"
    assert e.send(b"\5\1\0\5\1\0\3\x08api.test" + struct.pack(">H", s.port)).endswith(b"RESET")
    assert not s.received


def test_CONNECT_of_other_shapes(proxied):
    e, s = proxied(egress.echo)
    port = s.port
    with e.dial() as c:  # Python's http.client before 3.12 sends no Host
        c.sendall(f"CONNECT API.Test.:{port} HTTP/1.0\r\n\r\n".encode())
        assert egress.read_head(c).startswith("HTTP/1.1 200")
        c.sendall(b"abc")
        assert egress.read_exactly(c, 3) == b"abc"
    for target in ("api.test", "api.test:", f"api.test:0{port}", "api.test:0", "api.test:65536", f"x@api.test:{port}", f"http://api.test:{port}/",
                   f"[api.test:{port}", f"api.test]:{port}", "/"):
        assert e.send(f"CONNECT {target} HTTP/1.1\r\nHost: api.test:{port}\r\n\r\n").startswith((b"HTTP/1.1 400", b"HTTP/1.1 403")), target
    for fields in ("Content-Length: 3\r\n\r\nabc", "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"):
        assert e.send(f"CONNECT api.test:{port} HTTP/1.1\r\nHost: api.test:{port}\r\n{fields}").startswith(b"HTTP/1.1 400")
    assert len(s.received) == 1


def test_a_real_client_by_each_way(proxied):
    e, s = proxied()
    url, env = f"http://api.test:{s.port}/", {"PATH": "/usr/bin:/bin"}
    for option in (["-x", e.url], ["-x", e.url, "-p"], ["--socks5-hostname", "%s:%d" % e.proxy]):
        done = subprocess.run(["curl", "-sS", "-d", "x=1", *option, url], env=env, capture_output=True, text=True, timeout=30)
        assert done.returncode == 0 and "POST / HTTP/1.1" in done.stdout and done.stdout.endswith("x=1"), done
        refusal = subprocess.run(["curl", "-sS", *option, "http://no.test/"], env=env, capture_output=True, text=True, timeout=30)
        assert "network_denied" in refusal.stdout or refusal.returncode in (56, 97), refusal
    assert e.flush().denied == 3
