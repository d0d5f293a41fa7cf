# SPDX-License-Identifier: Apache-2.0
"""Programs that know no proxy, in a network namespace as a sandbox has it: its resolver, and what the default route catches."""
import ipaddress
import random
import socket
import ssl
import struct
import subprocess
import threading

import certs
import egress
import pytest

ALL = ("proxy", "http", "tls", "dns", "dns_tcp")
A, AAAA, MX, TXT, HTTPS, ANY = 1, 28, 15, 16, 65, 255
OK, FORMERR, SERVFAIL, NXDOMAIN, REFUSED = 0, 1, 2, 3, 5
MADE_UP = ipaddress.ip_network("198.18.0.0/15")


@pytest.fixture
def caught(netns, proxied):
    """caught(handle, rules="…{port}…"): a proxy whose listeners are in a namespace of their own."""
    def start(handle=egress.http_echo, kinds=ALL, **options):
        return proxied(handle, netns=netns, kinds=kinds, **options)
    return start


def question(name, kind=A, ident=None, more=b""):
    labels = b"".join(bytes([len(p)]) + p for p in (name if isinstance(name, bytes) else name.encode()).split(b".") if p)
    ident = random.randrange(65536) if ident is None else ident
    return struct.pack(">HHHHHH", ident, 0x0100, 1, 0, 0, 1 if more else 0) + labels + b"\0" + struct.pack(">HH", kind, 1) + more


def answer(data):
    """(code, [address])."""
    _, flags, questions, answers, *_ = struct.unpack_from(">HHHHHH", data)
    assert flags & 0x8000 and questions == 1
    return flags & 15, [ipaddress.ip_address(data[-4:])] if answers else []


def udp(netns, data, server="10.9.8.7", timeout=5):
    def ask():
        with socket.socket(socket.AF_INET6 if ":" in server else socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.settimeout(timeout)
            s.connect((server, 53))  # an answer from another address would not arrive
            s.send(data)
            return s.recv(4096)
    return netns.inside(ask)


def resolve(netns, name, kind=A):
    return answer(udp(netns, question(name, kind)))


# ----------------------------------------------------------------------------------------------------------------- names


def test_an_allowed_name_gets_an_address_that_stands_for_it(caught, netns):
    e, _ = caught()
    code, (address, ) = resolve(netns, "api.test")
    assert code == OK and address in MADE_UP
    assert resolve(netns, "API.test.") == (OK, [address])
    for kind in (AAAA, MX, TXT, HTTPS, ANY):
        assert resolve(netns, "api.test", kind) == (OK, [])
    assert e.flush().denied == 0


def test_NE_02_a_refused_name_is_refused_and_recorded(caught, netns):
    e, _ = caught(resolve={"gone.test": []}, rules="allow api.test:{port} within=127.0.0.0/8\nallow gone.test")
    for name in ("token.evil.test", "x.api.test", "test", "localhost"):
        assert resolve(netns, name) == (REFUSED, [])
    assert resolve(netns, "c2VjcmV0.api.test", TXT) == (REFUSED, [])
    assert resolve(netns, "gone.test") == (NXDOMAIN, [])
    assert [h for h, _ in e.denials()] == ["token.evil.test", "x.api.test", "test", "localhost", "c2vjcmv0.api.test"]


def test_the_resolver_answers_from_where_it_was_asked(caught, netns):
    caught(kinds=(*ALL, "dns6"))
    for server in ("8.8.8.8", "127.0.0.1", "192.168.7.7", "2001:db8::53", "::1"):
        assert answer(udp(netns, question("api.test"), server))[0] == OK


def test_questions_that_are_none(caught, netns):
    caught()
    good = question("api.test")
    for data in (good[:2] + b"\x01\0\0\2" + good[6:], good[:-1], good[:-4] + b"\0\1\0\3", good + b"x"):
        code = struct.unpack_from(">H", udp(netns, data), 2)[0] & 15
        assert code in (FORMERR, REFUSED), data
    for data in (b"", b"x", good[:11], struct.pack(">HH", 1, 0x8180) + good[4:]):
        with pytest.raises(TimeoutError):
            udp(netns, data, timeout=0.3)
    assert resolve(netns, "api.test")[0] == OK


def test_names_by_tcp(caught, netns):
    e, _ = caught()
    with netns.connect("9.9.9.9", 53) as s:
        for _ in range(3):
            for name, code in (("api.test", OK), ("evil.test", REFUSED)):
                q = question(name)
                for byte in struct.pack(">H", len(q)) + q:
                    s.sendall(bytes([byte]))
                size, = struct.unpack(">H", egress.read_exactly(s, 2))
                assert answer(egress.read_exactly(s, size))[0] == code
    with netns.connect("9.9.9.9", 53) as s:
        s.sendall(b"\xff\xff" + b"x" * 2000)
        assert egress.drain(s) in (b"RESET", b"")
    assert e.wait_for(lambda t: t.open == 0).denied == 3


def test_thousands_of_names_and_a_flood(caught, netns):
    """Bounded tables: it goes on answering, and does not grow."""
    e, _ = caught(rules="allow **.api.test\nallow api.test:{port} within=127.0.0.0/8", resolve={f"n{i}.api.test": ["127.0.0.1"] for i in range(3000)})
    resolve(netns, "api.test")
    before = e.memory()

    def ask():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.settimeout(5)
            s.connect(("10.0.0.1", 53))
            found = set()
            for i in range(3000):
                s.send(question(f"n{i}.api.test", ident=i))
                data = s.recv(4096)
                assert struct.unpack_from(">H", data)[0] == i
                found.add(answer(data)[1][0])
            for i in range(20_000):
                s.send(question(f"{i}.evil.test"))
            return found
    assert len(netns.inside(ask)) == 3000
    assert resolve(netns, "api.test")[0] == OK
    assert e.memory() - before < 8 << 20


# -------------------------------------------------------------------------------------------------------------- captured


def test_a_program_that_knows_no_proxy(caught, netns):
    """Real ones: curl by name, over the namespace's resolver and default route."""
    with egress.Server(egress.http_echo, host="127.0.0.78", port=80) as s:
        e, _ = caught(rules="allow api.test within=127.0.0.0/8", resolve={"api.test": ["127.0.0.78"]})
        address = resolve(netns, "api.test")[1][0]
        done = subprocess.run(["curl", "-sS", "--resolve", f"api.test:80:{address}", "http://api.test/x", "http://api.test/y"], preexec_fn=netns.enter,
                              env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True, timeout=30)
        assert "GET /x HTTP/1.1" in done.stdout and "GET /y HTTP/1.1" in done.stdout, done
        assert len(s.received) == 1
        e.wait_for(lambda t: t.open == 0)
        assert (e.records[0].host, e.records[0].port, e.records[0].address) == ("api.test", 80, "127.0.0.78")


def test_captured_http_decides_by_where_it_was_going(caught, netns):
    with egress.Server(egress.http_echo, host="127.0.0.78", port=80) as s:
        e, _ = caught(rules="allow api.test within=127.0.0.0/8\nallow other.test within=127.0.0.0/8",
                      resolve={"api.test": ["127.0.0.78"], "other.test": ["127.0.0.78"]})
        address = str(resolve(netns, "api.test")[1][0])
        for host, status in (("api.test", "200"), ("other.test", "400"), ("evil.test", "400"), ("api.test:80", "200"), ("api.test:8080", "400")):
            with netns.connect(address, 80) as c:
                assert e.exchange(c, f"GET / HTTP/1.1\r\nHost: {host}\r\n\r\n")[0][9:12] == status, host
        assert len(s.requests) == 2


@pytest.mark.parametrize("where", ["192.0.2.1", "198.18.77.77", "10.1.2.3", "169.254.169.254", "2001:db8::1"])
@pytest.mark.parametrize("port", [80, 443])
def test_captured_connections_that_are_refused_are_reset(caught, netns, where, port):
    e, _ = caught(kinds=(*ALL, "http6", "tls6"))
    assert netns.cuts(where, port)
    assert e.denials() == [(where, port)]


def test_a_server_of_its_own_that_is_not_there_is_no_denial(caught, netns):
    e, _ = caught(kinds=(*ALL, "http6", "tls6"))
    for port in (80, 443):
        assert netns.cuts("127.0.0.1", port) and netns.cuts("127.7.7.7", port) and netns.cuts("::1", port)
    assert e.flush().denied == 0 and not e.records


def test_captured_tls_relayed_and_opened(caught, netns, tmp_path):
    authority = certs.Authority(tmp_path)
    with egress.Server(egress.http_echo, host="127.0.0.78", port=443, tls=authority.server("api", "DNS:api.test,DNS:open.test")):
        e, _ = caught(rules="allow api.test within=127.0.0.0/8\nallow GET https://open.test/* within=127.0.0.0/8", upstream_ca=authority.text,
                      resolve={"api.test": ["127.0.0.78"], "open.test": ["127.0.0.78"]})

        def ask(name, trust, sni=None, method="GET"):
            with netns.connect(str(resolve(netns, name)[1][0]), 443) as c, certs.client(trust).wrap_socket(c, server_hostname=sni or name) as t:
                return e.exchange(t, f"{method} / HTTP/1.1\r\nHost: {name}\r\nContent-Length: 0\r\n\r\n")[0][9:12]
        assert ask("api.test", authority.text) == "200"
        assert ask("open.test", e.ca) == "200"
        assert ask("open.test", e.ca, method="POST") == "403"
        for name in ("api.test", "open.test"):
            with pytest.raises((ssl.SSLError, ConnectionResetError)):
                ask(name, authority.text, sni="evil.test")
        assert e.flush().denied == 3


def test_captured_tls_before_SERVE_waits(netns, server):
    """What connects before the listeners are handed over waits in their queue."""
    s = server(egress.echo)
    e = egress.Egress(rules=f"allow api.test:{s.port} within=127.0.0.0/8", resolve={"api.test": ["127.0.0.1"]})
    try:
        e.start()
        listener = egress.listener("proxy", "127.0.0.1", 0)
        with socket.create_connection(listener.getsockname()) as c:
            c.sendall(f"CONNECT api.test:{s.port} HTTP/1.1\r\nHost: api.test:{s.port}\r\n\r\n".encode())
            e._listen = lambda: e.listeners.update(proxy=listener)
            e.serve()
            assert egress.read_head(c).startswith("HTTP/1.1 200")
    finally:
        e.close()


def test_the_address_that_stands_for_a_name_works_by_every_way(caught, netns):
    e, s = caught(egress.echo)
    address = str(resolve(netns, "api.test")[1][0])
    for how in ("connect", "socks"):
        if how == "connect":
            c, head = e.connect(address, s.port)
            assert head.startswith("HTTP/1.1 200"), head
        else:
            c, code = e.socks(address, s.port, kind=1)
            assert code == 0
        with c:
            c.sendall(b"abc")
            assert egress.read_exactly(c, 3) == b"abc"
    e.wait_for(lambda t: t.open == 0)
    assert {(r.host, r.address) for r in e.records} == {("api.test", "127.0.0.1")}


@pytest.fixture
def redirect(netns):
    """All other ports to 3129, as a sandbox's nft rule does."""
    rules = "table ip t { chain out { type nat hook output priority -100; meta l4proto tcp ip daddr != 127.0.0.0/8 tcp dport != { 53, 80, 443 } " \
            "redirect to :3129; }; }"
    if subprocess.run(["sh", "-c", "command -v nft"], capture_output=True).returncode:
        pytest.skip("nft is not installed")
    done = netns.inside(lambda: subprocess.run(["nft", rules], capture_output=True, text=True))
    if done.returncode:
        pytest.skip(f"this kernel cannot redirect: {done.stderr}")


def test_any_port_by_redirect(caught, netns, redirect):
    def speaks_first(peer, _):
        peer.send(b"220 hello\r\n")
        egress.echo(peer, None)
    e, s = caught(speaks_first, kinds=(*ALL, "any"))
    address = str(resolve(netns, "api.test")[1][0])
    with netns.connect(address, s.port) as c:
        assert egress.read_exactly(c, 11) == b"220 hello\r\n"
        c.sendall(b"abc")
        assert egress.read_exactly(c, 3) == b"abc"
    assert netns.cuts(address, 1) and netns.cuts("127.0.0.1", 3129)
    assert e.denials() == [("api.test", 1)]


def test_PX_06_a_port_of_the_host_that_is_also_a_listeners(caught, netns):
    """The listeners are in another namespace: the host's own 127.0.0.1:80 may be named by a rule."""
    with egress.Server(egress.http_echo, host="127.0.0.79", port=3128):
        e, _ = caught(rules="allow 127.0.0.79:3128")
        with e.dial() as c:
            assert e.exchange(c, "GET http://127.0.0.79:3128/ HTTP/1.1\r\nHost: 127.0.0.79:3128\r\n\r\n")[0].startswith("HTTP/1.1 200")


def test_many_at_once_through_the_namespace(caught, netns):
    e, s = caught(egress.echo)
    address = str(resolve(netns, "api.test")[1][0])
    assert address
    failures = []

    def work(i):
        try:
            c, head = e.connect("api.test", s.port)
            with c:
                data = bytes([i % 256]) * 10_000
                c.sendall(data)
                assert egress.read_exactly(c, len(data)) == data
        except Exception as x:  # noqa: B902  told below
            failures.append(x)
    threads = [threading.Thread(target=work, args=(i, )) for i in range(60)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures and e.wait_for(lambda t: t.open == 0).allowed == 60
