# SPDX-License-Identifier: Apache-2.0
"""What of a sandbox with a network policy ends up at which listener of its cloche-egress, and what a run makes of an egress
process that dies, lies or is not there. The egress process is a stand-in (tests/lib/egress_standin.py)."""
import ast
import hashlib
import os
import signal
import subprocess
import time
from pathlib import Path

import cloche
import egress_standin
import pytest
import shape

pytestmark = [pytest.mark.needs("native"), pytest.mark.needs("root"), pytest.mark.needs("python")]

ASK = """
import os, socket, sys
def ask(address, port, kind=socket.SOCK_STREAM, local=None):
    s = socket.socket(socket.AF_INET6 if ':' in address else socket.AF_INET, kind)
    s.settimeout(5)
    try:
        s.connect((address, port))
        if kind == socket.SOCK_DGRAM:
            s.send(b'?')
        return s.recv(300).decode()
    except OSError as e:
        return os.strerror(e.errno) if e.errno else 'timed out'
    finally:
        s.close()
DATAGRAM = socket.SOCK_DGRAM
"""


@pytest.fixture(autouse=True)
def standin(tmp_path, monkeypatch):
    """cloche with the stand-in beside it."""
    cloche.open_the_way(tmp_path)
    monkeypatch.setenv("CLOCHE", egress_standin.install(tmp_path))
    yield
    assert egress_processes() == []


def egress_processes():
    """Those of this test's copies."""
    found = []
    for d in Path("/proc").glob("[0-9]*"):
        try:
            words = (d / "cmdline").read_bytes()
        except OSError:
            continue
        if os.path.dirname(cloche.binary()).encode() + b"/cloche-egress" in words:
            found.append(int(d.name))
    return found


def values(code, *options, behaviour=None, **kw):
    """What Python code in a sandbox puts into `out`, and the result."""
    rules = ["--allow", "GET https://authority.standin/*" if behaviour == "authority" else f"{behaviour}.standin"] if behaviour else []
    r = cloche.python(ASK + "out = {}\n" + code + "\nprint(out)\n", "--network", "allow", *rules, "--timeout", "30s", *options, **kw)
    shape.check_shape(r)
    assert r.reason == "exited", r
    return ast.literal_eval(r.out.decode() or "{}"), r


ADDRESSES = ["192.0.2.7", "8.8.8.8", "10.1.2.3", "169.254.169.254", "100.64.0.1", "198.18.0.1", "2001:db8::7", "fd00:ec2::254",
             "64:ff9b::1.2.3.4"]
PORTS = {80: "http", 443: "tls", 53: "dns-tcp", 22: "any", 3128: "any", 3129: "any", 5432: "any", 65535: "any"}
EVERYWHERE = f"""
for a in {ADDRESSES}:
    for p in {list(PORTS)}:
        out[a, p] = ask(a, p)
    out[a, 'dns'] = ask(a, 53, DATAGRAM)
    out[a, 'udp'] = ask(a, 443, DATAGRAM)
"""


def check_everywhere(out, r):
    for a in ADDRESSES:
        address = {"64:ff9b::1.2.3.4": "64:ff9b::102:304"}.get(a, a)
        for p, kind in PORTS.items():
            assert out[a, p] == f"{kind} {address} {p}"
        assert out[a, "dns"] == f"dns {address} 53"
        assert out[a, "udp"] == "Connection refused"
    assert r.network["capture"] == "redirect"


def test_every_address_and_port_is_caught():
    check_everywhere(*values(EVERYWHERE))


def test_every_address_and_port_is_caught_rootless(user):
    uid, env = user
    check_everywhere(*values(EVERYWHERE, "--best-effort", uid=uid, env=env))


NEVER = """
for a in ('255.255.255.255', 'fe80::1', 'ff02::1'):
    out[a] = ask(a, 443)
s = socket.socket(socket.AF_INET, DATAGRAM)
s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
try:
    out['broadcast'] = s.sendto(b'x', ('255.255.255.255', 9))
except OSError as e:
    out['broadcast'] = os.strerror(e.errno)
"""


def test_what_no_address_is():
    out, r = values(NEVER)
    assert out == {"255.255.255.255": "Invalid argument", "fe80::1": "Invalid argument", "ff02::1": "Network is unreachable",
                   "broadcast": "Invalid argument"} or out["broadcast"] != "Invalid argument", out
    assert r.network["denied"] == []


OWN = """
import threading
def serve(family, address, port):
    s = socket.socket(family)
    if family == socket.AF_INET6:
        s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    s.bind((address, port))
    s.listen(8)
    def loop():
        while True:
            s.accept()[0].sendall(b'own')
    threading.Thread(target=loop, daemon=True).start()
    return s.getsockname()[1]
loop4 = serve(socket.AF_INET, '127.0.0.1', 0)
loop6 = serve(socket.AF_INET6, '::1', 0)
every4 = serve(socket.AF_INET, '0.0.0.0', 8000)
every6 = serve(socket.AF_INET6, '::', 8000)
out['127.0.0.1'] = ask('127.0.0.1', loop4)
out['::1'] = ask('::1', loop6)
out['any 127.0.0.1'] = ask('127.0.0.1', 8000)
out['any 127.9.9.9'] = ask('127.9.9.9', 8000)
out['any ::1'] = ask('::1', 8000)
out['nobody'] = ask('127.0.0.1', 9), ask('::1', 9)
out['foreign'] = ask('192.0.2.1', 8000)
u = socket.socket(socket.AF_INET, DATAGRAM); u.bind(('127.0.0.1', 0))
c = socket.socket(socket.AF_INET, DATAGRAM); c.sendto(b'udp', u.getsockname())
out['udp'] = u.recv(10).decode()
"""


def test_own_servers_are_reached_and_not_ours():
    out, r = values(OWN)
    assert out.pop("foreign") == "any 192.0.2.1 8000"
    assert out == {"127.0.0.1": "own", "::1": "own", "any 127.0.0.1": "own", "any 127.9.9.9": "own", "any ::1": "own",
                   "nobody": ("Connection refused", "Connection refused"), "udp": "udp"}
    assert [d["host"] for d in r.network["denied"]] == ["192.0.2.1"]


LOW_PORTS = """
for p in (53, 80, 443, 1023):
    for kind in (socket.SOCK_STREAM, DATAGRAM):
        try:
            socket.socket(socket.AF_INET, kind).bind(('127.0.0.1', p))
            out[p, int(kind)] = 'bound'
        except OSError as e:
            out[p, int(kind)] = os.strerror(e.errno)
try:
    s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1); s.bind(('127.0.0.1', 3128)); s.listen(1)
    out['proxy'] = 'bound'
except OSError as e:
    out['proxy'] = os.strerror(e.errno)
"""


def test_nobody_inside_takes_the_place_of_a_listener():
    """Nor splits what comes to it: SO_REUSEPORT needs it on both, and the same user."""
    out, _ = values(LOW_PORTS)
    assert out.pop("proxy") == "Address already in use"
    assert set(out.values()) <= {"Permission denied", "Address already in use"}, out


def test_nothing_is_tracked_by_the_kernel():
    """Tracked connections would be in memory that the sandbox is not charged for."""
    slab = Path("/proc/slabinfo")
    if not slab.exists() or "nf_conntrack " not in slab.read_text():
        pytest.skip("conntrack: this kernel has none")

    def tracked():
        return sum(int(line.split()[1]) for line in slab.read_text().splitlines() if line.startswith("nf_conntrack "))
    before = tracked()
    out, _ = values("for p in range(2000, 4000): ask('192.0.2.1', p)\nout['n'] = 1", "--timeout", "60s")
    assert tracked() - before < 1000


# ------------------------------------------------------------------------------------------- what programs see


FILES = """
out['resolv'] = open('/etc/resolv.conf').read()
out['env'] = {k: v for k, v in os.environ.items() if 'proxy' in k.lower() or 'CA' in k or 'CERT' in k}
out['cloche'] = os.path.exists('/etc/cloche')
"""
PROXY = "http://127.0.0.1:3128"
PROXIES = {k: PROXY for k in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy")}
DIRECT = {"NO_PROXY": "localhost,127.0.0.1,::1", "no_proxy": "localhost,127.0.0.1,::1"}


def test_names_and_proxies():
    out, r = values(FILES)
    assert out["resolv"].startswith("nameserver 127.0.0.1\n") and out["env"] == {**PROXIES, **DIRECT} and not out["cloche"]
    assert r.enforced["network"] == "egress proxy + netns" and r.enforced["network_denials"] == "observed"


def test_who_chose_a_proxy_keeps_it():
    out, _ = values(FILES, "--env", "https_proxy=http://mine:1", "--env", "NO_PROXY=*")
    assert out["env"] == {**PROXIES, **DIRECT, "https_proxy": "http://mine:1", "NO_PROXY": "*"}


def test_without_a_network_nothing_changes():
    r = cloche.python(ASK + "out = {}\n" + FILES + "\nout['dns'] = ask('127.0.0.1', 53, DATAGRAM)\n"
                      "out['route'] = ask('192.0.2.1', 80)\nprint(out)")
    out = ast.literal_eval(r.out.decode())
    assert out == {"resolv": "", "env": {}, "cloche": False, "dns": "Connection refused", "route": "Network is unreachable"}
    assert r.network["capture"] is None and r.enforced["network"] == "netns" and r.enforced["network_denials"] == "not observed"


BUNDLE = "/etc/cloche/ca-bundle.pem"
TRUST = """
out['env'] = {k: v for k, v in os.environ.items() if v.startswith('/etc/cloche/')}
out['authority'] = open('/etc/cloche/authority.pem').read()
import hashlib
bundle = open('/etc/cloche/ca-bundle.pem').read()
out['same'] = bundle == open('/etc/ssl/certs/ca-certificates.crt').read()
out['last'] = bundle.endswith(chr(10) + out['authority'])
out['before'] = hashlib.sha256(bundle.removesuffix(chr(10) + out['authority']).encode()).hexdigest()
for path in ('/etc/cloche/authority.pem', '/etc/cloche/ca-bundle.pem', '/etc/ssl/certs/ca-certificates.crt', '/etc/cloche/new'):
    try:
        open(path, 'a').write('x')
        out[path] = 'written'
    except OSError as e:
        out[path] = os.strerror(e.errno)
"""


def check_trust(out):
    authority = egress_standin.AUTHORITY.decode()
    assert out["authority"] == authority
    assert out["same"] and out["last"]
    assert out["before"] == hashlib.sha256(Path("/etc/ssl/certs/ca-certificates.crt").read_bytes()).hexdigest()
    assert out["env"] == {"NODE_EXTRA_CA_CERTS": "/etc/cloche/authority.pem",
                          **{k: BUNDLE for k in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT", "GIT_SSL_CAINFO")}}
    assert all(v in ("Permission denied", "Read-only file system") for k, v in out.items() if k.startswith("/")), out


def test_an_authority_is_trusted_beside_the_image():
    check_trust(values(TRUST, behaviour="authority")[0])


def test_an_authority_is_trusted_rootless(user):
    uid, env = user
    check_trust(values(TRUST, "--best-effort", behaviour="authority", uid=uid, env=env)[0])


def test_who_chose_what_to_trust_keeps_it():
    out, _ = values(TRUST, "--env", "SSL_CERT_FILE=/tmp/mine.pem", behaviour="authority")
    assert "SSL_CERT_FILE" not in out["env"] and out["env"]["PIP_CERT"] == BUNDLE


def test_an_authority_needs_room_in_the_memory_limit_only():
    """It is memory of the sandbox's, like all it writes."""
    _, with_it = values("", "--memory", "64m", behaviour="authority")
    _, without = values("", "--memory", "64m")
    assert with_it.usage["memory_peak_bytes"] < without.usage["memory_peak_bytes"] + (2 << 20)


# -------------------------------------------------------------------------------------------------------- results


REFUSED = "ask('192.0.2.1', 443); ask('192.0.2.1', 443); ask('192.0.2.2', 22)\n"


def test_a_refused_connection_of_a_command_that_failed():
    r = cloche.python(ASK + REFUSED + "sys.exit(7)", "--network", "allow")
    shape.check_shape(r)
    assert (r.reason, r.exit_code, r.error_code, r.retryable, r.returncode) == ("exited", 7, "SANDBOX_NETWORK_DENIED", False, 7)
    assert r.limits_hit == ["network_denied"]
    assert r.network == {"allowed": 0, "denied": [{"host": "192.0.2.1", "port": 443, "count": 2},
                                                  {"host": "192.0.2.2", "port": 22, "count": 1}],
                         "bytes_sent": 9, "bytes_received": 15, "capture": "redirect"}
    assert r.message == "the command ended with exit code 7; connections were refused: 192.0.2.1:443 (2 times), 192.0.2.2:22"
    assert r.model_message == ("The code failed, and its connections to 192.0.2.1:443 (2 times), 192.0.2.2:22 were refused: "
                               "these hosts are not allowed here. Trying again will not help.")


def test_a_refused_connection_of_a_command_that_succeeded():
    r = cloche.python(ASK + REFUSED, "--network", "allow")
    assert (r.ok, r.error_code, r.limits_hit, r.returncode) == (True, None, ["network_denied"], 0)


def test_a_refused_connection_of_a_command_that_was_killed():
    r = cloche.python(ASK + REFUSED + "os.kill(os.getpid(), 11)", "--network", "allow")
    assert (r.reason, r.error_code, r.returncode) == ("signaled", "SANDBOX_NETWORK_DENIED", 139)
    r = cloche.python(ASK + REFUSED + "import time; time.sleep(30)", "--network", "allow", "--timeout", "2s")
    assert (r.reason, r.error_code, r.limits_hit) == ("timeout", "SANDBOX_COMMAND_TIMEOUT", ["network_denied"])


def test_the_last_connection_counts():
    """One that is refused when the command is already ending."""
    for _ in range(10):
        r = cloche.python("import socket, os\ns = socket.create_connection(('192.0.2.1', 443)); s.recv(1)\nos._exit(1)", "--network", "allow")
        assert r.error_code == "SANDBOX_NETWORK_DENIED", r


def test_a_flood_of_refusals_is_bounded():
    _, r = values("ask('192.0.2.1', 443)", behaviour="flood")
    assert [d["host"] for d in r.network["denied"]] == [f"h{i}.test" for i in range(437, 500)] + ["192.0.2.1"]
    assert r.network["bytes_sent"] == 501 * 3


# ---------------------------------------------------------------------- an egress process that is not as it should be


def made(behaviour, code="print('ran')", *options):
    r = cloche.python(ASK + code, "--network", "allow", "--allow", f"{behaviour}.standin", *options)
    shape.check_shape(r)
    return r


def test_one_that_refuses():
    r = made("refuse")
    assert (r.reason, r.stage, r.message, r.out) == ("create_failed", "network", "line 1: this stand-in refuses", b"")


def test_one_that_vanishes():
    r = made("vanish")
    assert (r.reason, r.stage, r.out) == ("create_failed", "network", b"")
    assert r.message == "prepare the network: cloche-egress has ended"


def test_one_that_is_not_there():
    os.unlink(os.path.dirname(cloche.binary()) + "/cloche-egress")
    if os.path.exists("/usr/libexec/cloche/cloche-egress") or os.path.exists("/usr/local/libexec/cloche/cloche-egress"):
        pytest.skip("installed: another one is found")
    r = made("none")
    assert (r.reason, r.stage) == ("create_failed", "network") and r.message.endswith("(reinstall cloche): No such file or directory")


@pytest.mark.parametrize("behaviour", ["die", "lie", "inject"])
def test_one_that_dies_or_lies(behaviour):
    """What it said before holds; nothing of what it says afterwards is believed; the command goes its way."""
    r = made(behaviour, "ask('192.0.2.1', 443); print('first')\nimport time; time.sleep(0.3)\n"
             "print(ask('192.0.2.1', 443) if sys.argv else 0); sys.exit(1)")
    assert (r.reason, r.exit_code, r.error_code) == ("exited", 1, "COMMAND_FAILED")
    assert r.network["denied"] == [] and r.enforced["network_denials"] == "observed until cloche-egress ended"
    assert b"Ignore" not in r.stdout
    assert r.out.endswith(b"Connection refused\n")  # one that lies is ended: it could let anything out


def test_one_that_does_not_answer():
    began = time.monotonic()
    r = made("silent")
    assert r.out == b"ran\n" and time.monotonic() - began < 15
    assert r.enforced["network_denials"] == "observed until cloche-egress ended"


# ------------------------------------------------------------------------------------------------- nothing is left


def wait_until(condition, seconds=10):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_is_left_of_a_killed_run(number):
    p = cloche.start(["run", "--network", "allow", "--timeout", "60s", "--", "sleep", "50"])
    wait_until(lambda: len(egress_processes()) == 1)
    time.sleep(0.2)
    p.send_signal(number)
    p.communicate(timeout=10)
    wait_until(lambda: egress_processes() == [])


def ids(pid):
    return {w for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith(("Uid:", "Gid:")) for w in line.split()[1:]}


def test_each_has_ids_that_no_sandbox_has():
    runs = [cloche.start(["run", "--network", "allow", "--timeout", "60s", "--", "sleep", "50"]) for _ in range(4)]
    try:
        wait_until(lambda: len(egress_processes()) == 4 and all("0" not in ids(p) for p in egress_processes()))
        all_ids = [ids(p) for p in egress_processes()]
        assert all(len(i) == 1 for i in all_ids) and len(set.union(*all_ids)) == 4
        inside = subprocess.run(["ps", "-eo", "uid,comm"], capture_output=True, text=True, check=True).stdout.split("\n")
        sandboxed = {line.split()[0] for line in inside if line.endswith(" sleep")}
        assert not set.union(*all_ids) & sandboxed
    finally:
        for p in runs:
            p.send_signal(signal.SIGINT)
            p.communicate(timeout=10)


def test_many_at_once():
    runs = [cloche.start(["python", "--json", "--network", "allow", "--timeout", "60s", "-c", ASK +
                          f"print(ask('192.0.2.{i}', 443)); sys.exit(1)"]) for i in range(1, 17)]
    for i, p in enumerate(runs, 1):
        out, err = p.communicate(timeout=60)
        r = cloche.Result(p.args, p.returncode, out, err, 0, True)
        assert r.out == f"tls 192.0.2.{i} 443\n".encode()
        assert r.network["denied"] == [{"host": f"192.0.2.{i}", "port": 443, "count": 1}]
