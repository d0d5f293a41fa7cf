# SPDX-License-Identifier: Apache-2.0
"""TLS through the proxy: relayed unseen, or opened where a rule or a credential needs it (PX-08 to PX-10, PX-13, PX-14, PX-16, PX-25)."""
import base64
import contextlib
import os
import ssl
import socket
import subprocess
import time
import urllib.parse
from pathlib import Path

import certs
import egress
import pytest

SECRET = "s3cr3t/with+odd=bytes & more"
KEY = {"name": "key", "host": "api.test", "header": "Authorization", "value": "Bearer " + SECRET}


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return certs.Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="module")
def tls(authority):
    return authority.server("api", "DNS:api.test")


@pytest.fixture
def opened(proxied, authority, tls):
    """A proxy whose rule looks into https://api.test, and its server: opened(handle, path="/*", …)."""
    def start(handle=egress.http_echo, rules="allow GET,POST https://api.test:{port}/* within=127.0.0.0/8", server=tls, credential=None, **options):
        if credential:
            options["credentials"] = [{**credential, "port": 1}]  # the port comes with the server
        return proxied(handle, rules, tls=server, upstream_ca=authority.text, **options)
    return start


def secure(e, s, name="api.test", at="api.test", context=None, alpn=None):
    """TLS inside of a tunnel, with the sandbox's own authority trusted."""
    c, head = e.connect(at, s.port)
    assert head.startswith("HTTP/1.1 200"), head
    context = context or certs.client(e.ca)
    if alpn:
        context.set_alpn_protocols(alpn)
    if name is None:
        context.check_hostname = False
    try:
        return context.wrap_socket(c, server_hostname=name)
    except BaseException:
        c.close()
        raise


def ask(c, host, fields="", method="GET", path="/", body=""):
    return egress.Egress.exchange(c, f"{method} {path} HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n{body}")


# ------------------------------------------------------------------------------------------------------------------ opened


def test_a_request_in_opened_tls(opened):
    e, s = opened()
    at = f"api.test:{s.port}"
    with secure(e, s) as c:
        assert c.getpeercert()["subjectAltName"] == (("DNS", "api.test"), )
        for path in ("/a", "/b?c"):
            head, body = ask(c, at, path=path)
            assert head.startswith("HTTP/1.1 200 OK") and body.decode().startswith(f"GET {path} HTTP/1.1\r\nHost: {at}\r\n")
    e.wait_for(lambda t: t.open == 0)
    record, = e.records
    assert (record.verdict, record.host, record.port) == ("allowed", "api.test", s.port) and len(s.received) == 1
    assert record.rule.startswith("allow GET,POST https://api.test")


def test_the_authority_is_there_only_where_it_is_needed(proxied, opened):
    assert not proxied()[0].ca
    assert opened()[0].ca.startswith("-----BEGIN CERTIFICATE-----")


def test_PX_01_methods_and_paths_are_judged_inside(opened):
    e, s = opened(rules="allow GET https://api.test:{port}/open/* within=127.0.0.0/8")
    at = f"api.test:{s.port}"
    for method, path in (("POST", "/open/x"), ("GET", "/shut"), ("GET", "/open/../shut"), ("GET", "/open/%2e%2e/shut")):
        with secure(e, s) as c:
            head, body = ask(c, at, "Content-Length: 0\r\n", method, path)
            assert head.startswith("HTTP/1.1 403") and b"network_denied" in body
    with secure(e, s) as c:
        assert ask(c, at, path="/open/x")[0].startswith("HTTP/1.1 200")
    assert len(getattr(s, "requests", [])) == 1
    assert len(e.denials()) == 4


@pytest.mark.parametrize("name", ["evil.test", "x.api.test", "api.test.evil.test"])
def test_PX_08_another_name_in_the_handshake_is_cut(opened, name):
    e, s = opened()
    with pytest.raises((ssl.SSLError, ConnectionResetError)):
        secure(e, s, name).close()
    assert e.denials() == [("api.test", s.port)] and name in e.records[0].why and not any(s.received)


def test_PX_08_no_name_in_the_handshake_is_cut(opened):
    e, s = opened()
    with pytest.raises((ssl.SSLError, ConnectionResetError)):
        secure(e, s, None).close()
    assert "names no host" in (e.flush(), e.records[0].why)[1] and not any(s.received)


def test_PX_08_a_handshake_in_many_pieces(opened):
    """SNI in a second fragment changes nothing: the whole ClientHello is waited for."""
    for name, good in (("api.test", True), ("evil.test", False)):
        e, s = opened()
        c, _ = e.connect("api.test", s.port)
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        o = certs.client(e.ca).wrap_bio(incoming, outgoing, server_hostname=name)
        with c, contextlib.suppress(ssl.SSLWantReadError):
            o.do_handshake()
        hello = outgoing.read()
        with e.dial() as c:
            c.sendall(f"CONNECT api.test:{s.port} HTTP/1.1\r\nHost: api.test:{s.port}\r\n\r\n".encode())
            egress.read_head(c)
            c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for byte in hello:
                c.sendall(bytes([byte]))
            if good:
                assert c.recv(1) == b"\x16"
            else:
                assert egress.is_reset(c)


def test_PX_09_the_Host_inside_is_the_tunnels(opened):
    e, s = opened()
    for host in ("evil.test", f"evil.test:{s.port}", "api.test", f"api.test:{s.port}\r\nHost: api.test:{s.port}", f"x@api.test:{s.port}"):
        with secure(e, s) as c:
            head, _ = ask(c, host)
            assert head.startswith("HTTP/1.1 400"), head
    with secure(e, s) as c:
        head, _ = ask(c, f"api.test:{s.port}", path=f"https://evil.test:{s.port}/")
        assert head.startswith("HTTP/1.1 400"), head
    assert not any(s.received)


def test_PX_10_only_http_1_1_is_offered(opened):
    e, s = opened()
    with secure(e, s, alpn=["h2", "http/1.1"]) as c:
        assert c.selected_alpn_protocol() == "http/1.1"
        assert ask(c, f"api.test:{s.port}")[0].startswith("HTTP/1.1 200")
    with pytest.raises((ssl.SSLError, ConnectionResetError)):
        secure(e, s, alpn=["h2"]).close()


@pytest.mark.parametrize("until", ["hello", "handshake"])
def test_a_client_that_stalls_costs_nothing(opened, until):
    """The upstream's handshake has begun by then, and its server has answered."""
    e, s = opened()
    c, _ = e.connect("api.test", s.port)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = certs.client(e.ca).wrap_bio(incoming, outgoing, server_hostname="api.test")
    with c:
        done = False
        while not done:
            with contextlib.suppress(ssl.SSLWantReadError):
                client.do_handshake()
                done = True
            c.sendall(outgoing.read())
            if until == "hello":
                break
            if not done:
                incoming.write(c.recv(65536))
        time.sleep(0.3)
        before = cpu_seconds(e)
        time.sleep(1)
        assert cpu_seconds(e) - before < 0.3
        while not done:  # and it may go on
            incoming.write(c.recv(65536))
            with contextlib.suppress(ssl.SSLWantReadError):
                client.do_handshake()
                done = True
            c.sendall(outgoing.read())
        client.write(f"GET / HTTP/1.1\r\nHost: api.test:{s.port}\r\nConnection: close\r\n\r\n".encode())
        c.sendall(outgoing.read())
        incoming.write(egress.drain(c))
        assert client.read(65536).startswith(b"HTTP/1.1 200")
    e.wait_for(lambda t: t.open == 0)
    assert len(e.records) == len(s.received) == 1  # by that one connection


def test_a_client_that_stalls_before_an_upstream_that_is_none_costs_nothing(opened, authority):
    e, s = opened(server=authority.server("wrong", "DNS:evil.test"))
    with secure(e, s) as c:
        time.sleep(0.3)
        before = cpu_seconds(e)
        time.sleep(1)
        assert cpu_seconds(e) - before < 0.3
        head, body = ask(c, f"api.test:{s.port}")
        assert head.startswith("HTTP/1.1 502") and b"is for another name" in body


def cpu_seconds(e):
    fields = Path(f"/proc/{e.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_plain_http_in_a_tunnel_is_looked_at_too(opened, server):
    e, s = opened(rules="allow GET http://api.test:{port}/open/* within=127.0.0.0/8", server=None)
    at = f"api.test:{s.port}"
    c, head = e.connect("api.test", s.port)
    with c:
        assert ask(c, at, path="/open/x")[0].startswith("HTTP/1.1 200")
        assert ask(c, at, path="/shut")[0].startswith("HTTP/1.1 403")
    c, head = e.connect("api.test", s.port)
    with c:
        c.sendall(b"SSH-2.0-x\r\n\r\n")
        assert egress.drain(c).startswith(b"HTTP/1.1 400")


@pytest.mark.parametrize("how, names", [("expired", "DNS:api.test"), ("other", "DNS:evil.test"), ("self_signed", "DNS:api.test"),
                                        ("stranger", "DNS:api.test")])
def test_PX_16_an_upstream_that_is_not_who_it_says(opened, authority, tmp_path, how, names):
    who = certs.Authority(tmp_path) if how == "stranger" else authority
    context = who.server(how, names, **({how: True} if how in ("expired", "self_signed") else {}))
    e, s = opened(server=context)
    with secure(e, s) as c:
        head, body = ask(c, f"api.test:{s.port}", "Authorization: mine\r\n")
        assert head.startswith("HTTP/1.1 502") and b"upstream_failed" in body and b"api.test" in body, body
    assert not any(s.received)
    e.flush()
    assert [r.verdict for r in e.records] == ["failed"] and e.records[0].why


def test_PX_16_plain_http_for_an_https_rule_is_refused(opened):
    e, s = opened()
    answer = e.send(f"GET http://api.test:{s.port}/ HTTP/1.1\r\nHost: api.test:{s.port}\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 403") and not any(s.received)
    c, _ = e.connect("api.test", s.port)
    with c:
        head, _ = ask(c, f"api.test:{s.port}")
        assert head.startswith("HTTP/1.1 403")
    assert not any(s.received)


def test_PX_25_websocket_is_refused_unless_a_rule_says_so(opened):
    def switch(peer, _):
        head = peer.head()
        if head is None or "upgrade: websocket" not in head.lower() or "connection: upgrade" not in head.lower():
            return
        peer.send("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: x\r\n\r\nhello")
        egress.echo(peer, None)
    fields = "Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\nSec-WebSocket-Version: 13\r\n"
    e, s = opened(switch)
    with secure(e, s) as c:
        head, body = ask(c, f"api.test:{s.port}", fields)
        assert head.startswith("HTTP/1.1 403") and b"no rule allows" in body
    assert not any(s.received)
    e, s = opened(switch, rules="allow GET,WEBSOCKET https://api.test:{port}/* within=127.0.0.0/8")
    with secure(e, s) as c:
        head, _ = ask(c, f"api.test:{s.port}", fields)
        assert head.startswith("HTTP/1.1 101") and egress.read_exactly(c, 5) == b"hello"
        c.sendall(b"GET /x HTTP/1.1\r\nAuthorization: mine\r\n\r\n")
        assert egress.read_exactly(c, 40) == b"GET /x HTTP/1.1\r\nAuthorization: mine\r\n\r\n"  # nothing is added any more


def test_PX_20_the_same_policy_again_cuts_nothing(proxied, authority, tls):
    """Neither a tunnel whose TLS is still to be opened, nor a WebSocket; one without WEBSOCKET cuts that."""
    def switch(peer, _):
        if peer.head() is not None:
            peer.send("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
            egress.echo(peer, None)
    both = "allow GET,WEBSOCKET https://api.test:{port}/* within=127.0.0.0/8"
    e, s = proxied(switch, rules=both, tls=tls, upstream_ca=authority.text)
    c, head = e.connect("api.test", s.port)
    assert head.startswith("HTTP/1.1 200")
    e.policy(both.format(port=s.port))
    with certs.client(e.ca).wrap_socket(c, server_hostname="api.test") as t:
        t.sendall(f"GET / HTTP/1.1\r\nHost: api.test:{s.port}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n".encode())
        assert egress.read_head(t).startswith("HTTP/1.1 101")
        e.policy(both.format(port=s.port))
        t.sendall(b"still")
        assert egress.read_exactly(t, 5) == b"still"
        e.policy(both.format(port=s.port).replace("GET,WEBSOCKET ", ""))  # any method, but not that
        with contextlib.suppress(OSError):
            assert t.recv(1) == b""
    e.flush()
    assert [r.verdict for r in e.records] == ["denied"] and "WebSocket" in e.records[0].why


# --------------------------------------------------------------------------------------------------------- relayed unseen


def test_tls_that_no_rule_looks_into_is_the_servers_own(proxied, authority, tls):
    e, s = proxied(tls=tls)
    with secure(e, s, context=certs.client(authority.text)) as c:
        assert ask(c, "whatever.test")[0].startswith("HTTP/1.1 200")


@pytest.fixture
def https_443(netns, authority, tls):
    """A proxy in a namespace, and a server at port 443 of it, outside of what the proxy's listeners are in."""
    with egress.Server(egress.http_echo, host="127.0.0.77", port=443, tls=tls) as s:
        yield s


@pytest.mark.parametrize("rule, name, passes", [("allow api.test", "api.test", True), ("allow api.test", "evil.test", False),
                                                ("allow api.test", None, True), ("allow passthrough api.test", "evil.test", True)])
def test_PX_08_the_name_in_relayed_tls(https_443, proxied, rule, name, passes):
    """At port 443 it has to be the host's; passthrough says that nobody looks (domain fronting: the documented blind spot)."""
    e, _ = proxied(rules=rule + " within=127.0.0.0/8", resolve={"api.test": ["127.0.0.77"]})
    context = ssl._create_unverified_context()
    c, _ = e.connect("api.test", 443)
    with c:
        if passes:
            with context.wrap_socket(c, server_hostname=name) as t:
                assert ask(t, "api.test")[0].startswith("HTTP/1.1 200")
        else:
            with pytest.raises((ssl.SSLError, ConnectionResetError)):
                context.wrap_socket(c, server_hostname=name)
            assert "evil.test" in (e.flush(), e.records[0].why)[1] and not any(https_443.received)


def test_what_is_no_tls_at_port_443_passes(server, proxied, netns):
    with egress.Server(egress.echo, host="127.0.0.77", port=443):
        e, _ = proxied(rules="allow api.test within=127.0.0.0/8", resolve={"api.test": ["127.0.0.77"]})
        c, _ = e.connect("api.test", 443)
        with c:
            c.sendall(b"SSH-2.0-x\r\n")
            assert egress.read_exactly(c, 11) == b"SSH-2.0-x\r\n"


# ------------------------------------------------------------------------------------------------------------- credentials


@pytest.fixture
def injected(proxied, authority, tls):
    """A proxy that adds a credential for api.test: injected(handle, credential, more rules)."""
    def start(handle=egress.http_echo, credential=None, rules="", context=tls):
        e = s = None
        with contextlib.ExitStack() as stack:
            s = stack.enter_context(egress.Server(handle, tls=context))
            stack.pop_all()
        key = {**KEY, **(credential or {}), "port": s.port}
        key = {k: v for k, v in key.items() if v is not None}
        running.append(s)
        e, _ = proxied(rules=f"allow api.test:{s.port} within=127.0.0.0/8\ncredential {key['name']}\n" + rules.format(port=s.port),
                       upstream_ca=authority.text, credentials=[key])
        return e, s
    running = []
    yield start
    for s in running:
        s.__exit__()


def spoken(s):
    return b"".join(s.received)


def test_a_credential_is_added_to_its_host(injected):
    e, s = injected(lambda p, _: [p.head(), p.reply(b"ok")] and p.more())
    with secure(e, s) as c:
        head, body = ask(c, f"api.test:{s.port}")
        assert head.startswith("HTTP/1.1 200") and body == b"ok"
    assert spoken(s).count(f"Authorization: Bearer {SECRET}\r\n".encode()) == 1
    e.wait_for(lambda t: t.open == 0)
    assert e.records[0].credential == "key" and SECRET not in str(e.records)


def test_PX_13_what_the_client_says_in_its_place_is_replaced(injected):
    e, s = injected(lambda p, _: [p.head(), p.reply(b"ok")] and p.more())
    with secure(e, s) as c:
        ask(c, f"api.test:{s.port}", "Authorization: mine\r\nauthorization: also mine\r\nCookie: mine\r\nX-Api-Key: mine\r\nProxy-Authorization: mine\r\n"
            "Connection: authorization\r\nX-Fine: stays\r\n")
    sent = spoken(s).decode()
    assert "mine" not in sent and sent.lower().count("authorization:") == 1 and f"Bearer {SECRET}" in sent and "stays" in sent


def test_a_credential_in_the_query(injected):
    e, s = injected(lambda p, _: [p.head(), p.reply(b"ok")] and p.more(), {"header": None, "query": "key"})
    with secure(e, s) as c:
        ask(c, f"api.test:{s.port}", path="/a?key=mine&b=c&%6bey=mine")
    line = spoken(s).decode().split("\r\n")[0]
    target = line.split()[1]
    query = urllib.parse.parse_qs(target.partition("?")[2])
    assert query["key"] == ["Bearer " + SECRET] and query["b"] == ["c"] and "mine" not in line


def test_PX_14_a_secret_that_is_echoed_is_redacted(injected):
    e, s = injected()
    with secure(e, s) as c:
        head, body = ask(c, f"api.test:{s.port}", "Accept-Encoding: gzip\r\nRange: bytes=0-3\r\n")
        assert SECRET not in head + body.decode() and "*" * len(SECRET) in body.decode()
        assert "gzip" not in body.decode() and "range" not in body.decode().lower()

    value = "Bearer " + SECRET
    forms = [SECRET.encode(), base64.b64encode(value.encode()), base64.b64encode(b"x" + value.encode()), base64.b64encode(b"xy" + value.encode()),
             urllib.parse.quote(value, safe="").encode(), urllib.parse.quote_plus(value).encode()]

    def in_many_forms(peer, _):
        while peer.head():
            body = b" | ".join(forms)
            peer.send(b"HTTP/1.1 200 OK\r\nX-Echo: " + value.encode() + b"\r\nTransfer-Encoding: chunked\r\n\r\n")
            for byte in body:  # in the smallest pieces that there are
                peer.send(b"1\r\n%c\r\n" % byte)
            peer.send(b"0\r\n\r\n")
    e, s = injected(in_many_forms)
    with secure(e, s) as c:
        c.sendall(f"GET / HTTP/1.1\r\nHost: api.test:{s.port}\r\nConnection: close\r\n\r\n".encode())
        answer = egress.drain(c)
    body = b"".join(line for line in answer.split(b"\r\n\r\n", 1)[1].split(b"\r\n")[1::2])
    assert SECRET.encode() not in answer and SECRET.encode() not in body
    for form in forms:
        assert form[4:-6] not in body, form
    assert body.count(b" | ") == len(forms) - 1


def test_PX_14_TRACE_and_compressed_answers_are_refused(injected):
    e, s = injected()
    with secure(e, s) as c:
        assert ask(c, f"api.test:{s.port}", method="TRACE")[0].startswith("HTTP/1.1 405")
    assert not spoken(s)
    e, s = injected(lambda p, _: [p.head(), p.reply(b"\x1f\x8b", fields="Content-Encoding: gzip\r\n")])
    with secure(e, s) as c:
        assert ask(c, f"api.test:{s.port}")[0].startswith("HTTP/1.1 502")
    e, s = injected(lambda p, _: [p.head(), p.reply(b"\x1f\x8b", fields="Content-Encoding: identity\r\nContent-Encoding: gzip\r\n")])
    with secure(e, s) as c:
        assert ask(c, f"api.test:{s.port}")[0].startswith("HTTP/1.1 502")


def test_PX_14_a_secret_in_the_name_of_a_field_is_redacted(injected):
    value = "T0ken-of-Mine"
    e, s = injected(lambda p, _: [p.head(), p.reply(b"ok", fields=f"X-{value}-Y: 1\r\n")] and p.more(), {"header": "X-Key", "value": value})
    with secure(e, s) as c:
        head, _ = ask(c, f"api.test:{s.port}")
    assert value.lower() not in head.lower() and f"x-{'*' * len(value)}-y: 1" in head.lower()


def test_PX_15_PX_17_no_other_host_gets_it(injected, server, tls):
    """After a redirect the client asks another host: without the credential, also where the client writes its name."""
    other = server(tls=None)
    e, s = injected(rules=f"allow other.test:{other.port} within=127.0.0.0/8")
    at = f"other.test:{other.port}"
    answer = e.send(f"GET http://{at}/?key=key HTTP/1.1\r\nHost: {at}\r\nX: {{{{key}}}} $key\r\nAuthorization: mine\r\nConnection: close\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200") and SECRET.encode() not in spoken(other) and b"authorization: mine" in spoken(other)


def test_PX_16_a_credential_is_never_sent_in_the_clear(injected):
    e, s = injected(context=None)
    answer = e.send(f"GET http://api.test:{s.port}/ HTTP/1.1\r\nHost: api.test:{s.port}\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 403") and b"in the clear" in answer and not spoken(s)
    c, _ = e.connect("api.test", s.port)
    with c:
        assert ask(c, f"api.test:{s.port}")[0].startswith("HTTP/1.1 403")
    assert not spoken(s)


def test_PX_16_not_to_an_upstream_that_is_another(injected, authority):
    e, s = injected(context=authority.server("wrong", "DNS:evil.test"))
    with secure(e, s) as c:
        assert ask(c, f"api.test:{s.port}")[0].startswith("HTTP/1.1 502")
    assert not spoken(s)


def test_PX_25_no_websocket_on_a_route_with_a_credential(injected):
    e, s = injected()
    more = "allow GET,WEBSOCKET https://api.test:{port}/* within=127.0.0.0/8"  # nor where a rule says WEBSOCKET
    for e, s in ((e, s), injected(rules=more)):
        with secure(e, s) as c:
            head, body = ask(c, f"api.test:{s.port}", "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\n")
            assert head.startswith("HTTP/1.1 403") and b"WebSocket on a route with a credential" in body
        assert not spoken(s)
        assert e.denials() == [("api.test", s.port)] and "credential" in e.records[0].why


FIELDS = ("X-HTTP-Method-Override", "x_http_method_override", "X-HTTP-Method", "X-Method-Override", "X-Original-URL", "X-Rewrite-URL")


def test_PX_13_fields_that_override_what_was_judged_are_dropped(opened, injected, proxied):
    fields = "".join(f"{f}: DELETE-/other\r\n" for f in FIELDS) + "X-Fine: stays\r\n"
    for e, s in (opened(), injected()):
        with secure(e, s) as c:
            assert ask(c, f"api.test:{s.port}", fields)[0].startswith("HTTP/1.1 200")
        assert b"DELETE" not in spoken(s) and b"stays" in spoken(s)
    e, s = proxied()  # nobody looks at method or path: all of it is the client's
    assert e.send(f"GET http://api.test:{s.port}/ HTTP/1.1\r\nHost: api.test:{s.port}\r\nConnection: close\r\n{fields}\r\n").startswith(b"HTTP/1.1 200")
    assert spoken(s).count(b"DELETE") == len(FIELDS)


def test_PX_14_no_piece_of_an_answer_is_asked_for(injected):
    e, s = injected()
    with secure(e, s) as c:
        ask(c, f"api.test:{s.port}", "".join(f"{f}: bytes=0-3\r\n" for f in ("Range", "If-Range", "Request-Range", "x-ms-range", "x_ms_range")))
    assert b"bytes=0-3" not in spoken(s)


def test_a_real_client_in_opened_tls(opened, tmp_path):
    e, s = opened()
    ca = tmp_path / "ca.pem"
    ca.write_text(e.ca)
    done = subprocess.run(["curl", "-sS", "--http1.1", "--cacert", ca, "-x", e.url, "-d", "x=1", f"https://api.test:{s.port}/"],
                          env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0 and done.stdout.startswith("POST / HTTP/1.1") and done.stdout.endswith("x=1"), done
