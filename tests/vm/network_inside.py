# SPDX-License-Identifier: Apache-2.0
"""A sandbox with a network on cgroup v2 and Debian's 6.1: it runs in the VM (test_v2.py), as root and as an ordinary user.
The server is a real one on the guest's loopback, reached by a name of the operator's. test_root__… need root."""
import os
import subprocess
from pathlib import Path

import cloche
import egress
import pytest

# The first sandbox of all makes what stays; "native" is one.
pytestmark = [pytest.mark.needs("native"), pytest.mark.usefixtures("no_leftovers")]
ROOT = os.geteuid() == 0
SLOW_S = 120  # an emulated processor on a busy machine


@pytest.fixture(scope="module")
def server():
    with egress.Server(egress.http_echo) as s:
        yield s


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """The configuration that root's, or the user's, cloche finds with this environment."""
    assert os.environ.get("CLOCHE_VM"), "these tests write in /etc and take modules away: in the VM only"
    own = tmp_path_factory.mktemp("config")
    config = (Path("/etc/cloche") if ROOT else own / "cloche") / "cloche.yaml"
    config.parent.mkdir(exist_ok=True)
    config.write_text("resolve:\n  allowed.test: [127.0.0.1]\n  other.test: [127.0.0.1]\n")
    yield {"XDG_CONFIG_HOME": str(own)}
    config.unlink()


@pytest.fixture
def ask(server, places):
    """Run a shell script that may connect to allowed.test, the server; P in it is the server's port."""
    def run(script, *options, allow="allowed.test:{port} within=127.0.0.0/8"):
        rules = ["--allow", allow.format(port=server.port)]
        r = cloche.run(["bash", "--network", "allow", *rules, "--timeout", f"{SLOW_S}s", *options, "-c",
                        f"P={server.port}; {script}"], timeout=2 * SLOW_S, env=places)
        assert r.reason == "exited", r
        assert r.enforced["rootless"] == (not ROOT) and r.enforced["memory"] == "cgroup-v2"
        assert r.enforced["network"] == "egress proxy + netns" and r.enforced["network_denials"] == "observed"
        return r
    return run


def heads(r):
    return [line for line in r.out.decode().splitlines() if line.startswith(("GET", "Host:"))]


def test_by_proxy_and_caught(ask, server):
    """A program that knows the proxy and one that knows none get to the same server, the latter by a port that only tproxy catches."""
    before = len(server.received)
    r = ask("curl -sSf http://allowed.test:$P/proxy && curl -sSf --noproxy '*' http://allowed.test:$P/caught")
    host = f"Host: allowed.test:{server.port}"
    assert (r.exit_code, r.error_code) == (0, None) and heads(r) == ["GET /proxy HTTP/1.1", host, "GET /caught HTTP/1.1", host], r
    assert (r.network["allowed"], r.network["denied"], r.network["capture"]) == (2, [], "redirect")
    assert len(server.received) == before + 2


@pytest.mark.parametrize("how", ["", "--noproxy '*'"], ids=["proxy", "caught"])
def test_refused_by_name(ask, server, how):
    before = len(server.received)
    r = ask(f"curl -sSf -m 60 {how} http://other.test:$P/")
    assert r.exit_code != 0 and r.error_code == "SANDBOX_NETWORK_DENIED" and r.limits_hit == ["network_denied"], r
    assert {d["host"] for d in r.network["denied"]} == {"other.test"} and "other.test" in r.model_message
    assert r.network["allowed"] == 0 and len(server.received) == before


NAMES_AND_UDP = """
import os, socket, struct, sys
def asked(name):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.settimeout(60)
    s.sendto(struct.pack('>6H', 7, 0x100, 1, 0, 0, 0) + b''.join(bytes([len(l)]) + l for l in name.split(b'.')) + b'\\0\\0\\1\\0\\1',
             ('127.0.0.1', 53))
    return s.recv(512)
def udp(address):
    s = socket.socket(socket.AF_INET6 if ':' in address else socket.AF_INET, socket.SOCK_DGRAM)
    s.settimeout(5)
    s.connect((address, 443))
    try:
        s.send(b'x')
        return s.recv(9)
    except OSError as e:
        return os.strerror(e.errno or 110)
def tcp(address):
    s = socket.socket(socket.AF_INET6 if ':' in address else socket.AF_INET)
    s.settimeout(60)
    try:
        s.connect((address, 2222))
        return s.recv(9)
    except OSError as e:
        return os.strerror(e.errno or 110)
good, bad = asked(b'allowed.test'), asked(b'secret.tunnel.test')
print(good[3] & 15, good[7], bad[3] & 15, bad[7])
print(*(udp(a) for a in ('192.0.2.1', '2001:db8::1')), sep='; ')
print(*(tcp(a) for a in ('192.0.2.1', '2001:db8::1')), sep='; ')
"""


def test_names_udp_and_addresses(ask):
    """An allowed name has an address, another is REFUSED (5); UDP is answered by nobody; an address nobody allowed is reset."""
    r = ask("python3 -c \"$CODE\"", "--env", f"CODE={NAMES_AND_UDP}")
    assert r.out.decode().splitlines() == ["0 1 5 0", "Connection refused; Connection refused",
                                           "Connection reset by peer; Connection reset by peer"], r
    assert {(d["host"], d["port"]) for d in r.network["denied"]} == {("secret.tunnel.test", 0), ("192.0.2.1", 2222), ("2001:db8::1", 2222)}
    assert r.limits_hit == ["network_denied"]


def test_an_authority_is_trusted(ask):
    """Where TLS has to be opened: its certificate is there, and in the bundle over the image's own, before any code runs."""
    r = ask("head -1 /etc/cloche/authority.pem; cmp $SSL_CERT_FILE /etc/ssl/certs/ca-certificates.crt && "
            "openssl verify -CAfile $SSL_CERT_FILE /etc/cloche/authority.pem", allow="GET https://allowed.test:{port}/* within=127.0.0.0/8")
    assert (r.exit_code, r.out) == (0, b"-----BEGIN CERTIFICATE-----\n/etc/cloche/authority.pem: OK\n"), r


@pytest.fixture
def public():
    """A server at a public address, which is this machine's for a while."""
    subprocess.run(["ip", "address", "add", "9.9.9.9/32", "dev", "lo"], check=True)
    try:
        with egress.Server(egress.http_echo, host="9.9.9.9") as s:
            yield s
    finally:
        subprocess.run(["ip", "address", "del", "9.9.9.9/32", "dev", "lo"], check=True)


def test_root__open_is_every_public_address_and_no_other(server, places, public):
    script = (f"curl -sSf http://9.9.9.9:{public.port}/proxy; curl -sSf --noproxy '*' http://9.9.9.9:{public.port}/caught; "
              f"curl -sS -o /dev/null -w '%{{http_code}}\\n' --noproxy '' http://127.0.0.1:{server.port}/; curl -sSf http://allowed.test:{server.port}/")
    before = len(server.received)
    r = cloche.run(["bash", "--network", "open", "--timeout", f"{SLOW_S}s", "-c", script], timeout=2 * SLOW_S, env=places)
    assert [line.split()[1] for line in heads(r) if line.startswith("GET")] == ["/proxy", "/caught"] and b"403" in r.out, r
    assert len(public.received) == 2 and len(server.received) == before
    assert {d["host"] for d in r.network["denied"]} == {"127.0.0.1", "allowed.test"} and r.error_code == "SANDBOX_NETWORK_DENIED"


@pytest.fixture
def without_tproxy():
    """A kernel that has no nft_tproxy, as far as anybody can tell: the module is away, and nothing loads it."""
    helper = Path("/proc/sys/kernel/modprobe")
    before = helper.read_text()
    subprocess.run(["rmmod", "nft_tproxy"], check=False, capture_output=True)  # nobody may have needed it yet
    helper.write_text("/bin/false\n")
    yield
    helper.write_text(before)


def test_root__without_tproxy_it_is_said_and_the_known_ports_are_caught(ask, places, without_tproxy):
    r = ask("curl -sS -m 60 --noproxy '*' http://192.0.2.1/; curl -sS -m 60 --noproxy '*' http://192.0.2.1:2222/; "
            "curl -sSf http://allowed.test:$P/proxy")
    assert r.network["capture"] == "ports" and r.exit_code == 0 and heads(r)[0] == "GET /proxy HTTP/1.1", r
    assert [(d["host"], d["port"]) for d in r.network["denied"]] == [("192.0.2.1", 80)]
    assert b"Failed to connect to 192.0.2.1 port 2222" in r.err, r
    d = cloche.run(["doctor"], json=False, timeout=SLOW_S, env=places)
    row = next(line for line in d.out.decode().splitlines() if line.startswith("network"))
    assert "80" in row and "443" in row, row
