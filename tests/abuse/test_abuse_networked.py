# SPDX-License-Identifier: Apache-2.0
"""NE again, in sandboxes that have a network policy: what a way out must not become a way to. Catalogue 2.7. The canaries
listen on 127.0.0.1:7777, on @canary and on /run/canary.sock of this machine; canary_unreached() sees that nobody came."""
import dataclasses
import re
import time

import pytest

import arena
import cloche
import test_abuse_network
from arena import SAME, Attack, define
from test_abuse_network import TRY

pytestmark = [pytest.mark.needs("native"), pytest.mark.needs("root"), pytest.mark.needs("python")]

ALLOW = ("--network", "allow", "--timeout", "60s")
OPEN = ("--network", "open", "--timeout", "60s")

# By the proxy, every way it speaks, to every way to say "this machine".
PROXY = """
def talk(data, more=b''):
    s = socket.create_connection(('127.0.0.1', 3128), 5)
    s.settimeout(5)
    got = b''
    try:
        s.sendall(data)
        if more:
            got = s.recv(2)
            s.sendall(more)
        while True:
            d = s.recv(4096)
            if not d:
                break
            got += d
    except OSError:
        pass
    s.close()
    return got
def verdicts(answers):
    return str(sorted({'token' if b'canary-' in a else 'refused' if a[:12] in (b'HTTP/1.1 403', b'HTTP/1.1 400', b'HTTP/1.1 502') or a == b''
                       else repr(a[:40]) for a in answers}))
HOSTS = ['127.0.0.1', 'localhost', '127.1', '2130706433', '0x7f000001', '0177.0.0.1', '[::1]', '[::ffff:127.0.0.1]', '[::ffff:7f00:1]',
         '0.0.0.0', '[::]', '127.0.0.1.', 'LOCALHOST', 'localhost.', '[64:ff9b::7f00:1]', '[2002:7f00:1::]', '[fe80::1%25lo]',
         'user@127.0.0.1', '127.0.0.1%00.test', 'ip6-localhost']
"""

CANARY = """
value('proxy', lambda: verdicts([talk(b'CONNECT 127.0.0.1:7777 HTTP/1.1\\r\\nHost: 127.0.0.1:7777\\r\\n\\r\\n')]))
"""


@dataclasses.dataclass
class Policy(Attack):
    """Its control is a sandbox whose policy allows just that."""
    weaker: tuple = ()

    def control_facts(self):
        got, r = dataclasses.replace(self, options=(*self.options, *self.weaker)).run()
        return got, f"{r.reason} {r.message} {r.err[-500:]!r}"


TO_THE_CANARY = ("--allow", "127.0.0.1:7777")
ATTACKS = [
    Policy("NE-01", "networked_ways_out", TRY + PROXY + CANARY + """
fact('host loopback', lambda: go(socket.AF_INET, ('127.0.0.1', 7777)))
fact('by any', lambda: go(socket.AF_INET, ('0.0.0.0', 7777)))
fact('by mapped', lambda: go(socket.AF_INET6, ('::ffff:127.0.0.1', 7777)))
got = {}
for a in ('192.0.2.1', '10.0.0.1', '169.254.169.254', '100.100.100.200', '168.63.129.16', '2001:db8::1', 'fd00:ec2::254', '64:ff9b::7f00:1'):
    for p in (22, 80, 443, 2375, 7777):  # at 53 a resolver waits for a question
        got[a, p] = answer(lambda: go(socket.AF_INET6 if ':' in a else socket.AF_INET, (a, p)))
value('elsewhere', lambda: sorted(set(got.values())))
value('interfaces', lambda: sorted(l.split(':')[0].strip() for l in open('/proc/self/net/dev') if ':' in l))
""", {"proxy": ("['refused']", "['token']"), "host loopback": ("ECONNREFUSED", SAME), "by any": ("ECONNREFUSED", SAME),
      "by mapped": ("ECONNREFUSED", SAME), "elsewhere": ("['ECONNRESET']", SAME), "interfaces": ("['lo']", SAME)}, "weaker", options=ALLOW,
           weaker=TO_THE_CANARY),
    Policy("NE-03", "networked_proxy_to_the_host", TRY + PROXY + """
value('absolute', lambda: verdicts([talk(f'GET http://{h}:7777/ HTTP/1.1\\r\\nHost: {h}:7777\\r\\n\\r\\n'.encode()) for h in HOSTS]))
value('connect', lambda: verdicts([talk(f'CONNECT {h}:7777 HTTP/1.1\\r\\nHost: {h}:7777\\r\\n\\r\\n'.encode()) for h in HOSTS]))
socks = []
for h in HOSTS:
    n = h.strip('[]').encode()
    socks.append(talk(b'\\5\\1\\0', b'\\5\\1\\0\\3' + bytes([len(n)]) + n + struct.pack('!H', 7777)))
socks.append(talk(b'\\5\\1\\0', b'\\5\\1\\0\\1' + bytes([127, 0, 0, 1]) + struct.pack('!H', 7777)))
socks.append(talk(b'\\5\\1\\0', b'\\5\\1\\0\\4' + bytes(15) + b'\\1' + struct.pack('!H', 7777)))
value('socks', lambda: str(sorted({'token' if b'canary-' in a else 'opened' if a[2:4] == b'\\5\\0' else 'refused' for a in socks})))
fact('direct', lambda: go(socket.AF_INET, ('127.0.0.1', 7777)))
""", {"absolute": ("['refused']", SAME), "connect": ("['refused']", "['refused', 'token']"), "socks": ("['refused']", "['refused', 'token']"),
      "direct": ("ECONNREFUSED", SAME)}, "weaker", options=OPEN, weaker=TO_THE_CANARY),
    Policy("NE-02", "networked_names", TRY + """
def lookup(name):
    return socket.getaddrinfo(name, 80)[0][4][0]
names = ['token.evil.test', 'x' * 60 + '.evil.test', 'metadata.google.internal', 'localhost.evil.test', '%s.%s.test' % ('a' * 50, 'b' * 50)]
value('resolved', lambda: [n for n in names if answer(lambda: lookup(n)) not in ('gaierror', 'EAGAIN', '-3', '-2', '-5') and
                           not answer(lambda: lookup(n)).startswith('-')])
def raw(server, kind, name=b'\\5token\\4evil\\4test\\0'):
    q = struct.pack('!6H', 7, 256, 1, 0, 0, 0) + name + struct.pack('!2H', kind, 1)
    s = socket.socket(socket.AF_INET6 if ':' in server else socket.AF_INET, socket.SOCK_DGRAM)
    s.settimeout(5)
    s.connect((server, 53))
    s.send(q)
    a = s.recv(600)
    return str((a[3] & 15, struct.unpack('!H', a[6:8])[0]))
value('asked anybody', lambda: sorted({answer(lambda: raw(a, k)) for a in ('127.0.0.1', '8.8.8.8', '192.0.2.53', '2001:db8::53')
                                       for k in (1, 28, 16, 15, 65, 255, 252)}))
value('localhost', lambda: raw('127.0.0.1', 1, b'\\x09localhost\\0'))
""", {"resolved": ("[]", SAME), "asked anybody": ("['(5, 0)']", SAME), "localhost": ("(5, 0)", "(0, 1)")}, "weaker", options=ALLOW,
           weaker=("--allow", "localhost within=127.0.0.0/8")),
]
# What is the same with and without: other kinds of sockets, and the sandbox's own rights.
for attack in test_abuse_network.ATTACKS:
    if attack.name in ("abstract_socket", "path_sockets", "odd_families", "new_interfaces"):
        ATTACKS.append(dataclasses.replace(attack, name="networked_" + attack.name, options=ALLOW))
define(ATTACKS, globals())


SERVER = """
import socket, sys, threading, time
def serve(s, word):
    s.listen(8)
    def loop():
        while True:
            c, _ = s.accept()
            print('reached by', word, flush=True)
            c.close()
    threading.Thread(target=loop, daemon=True).start()
for family, address in ((socket.AF_INET, ('127.0.0.1', 9001)), (socket.AF_INET, ('0.0.0.0', 9002)), (socket.AF_INET6, ('::', 9003)),
                        (socket.AF_UNIX, '\\0neighbour')):
    s = socket.socket(family); s.bind(address); serve(s, str(address))
socket.create_connection(('127.0.0.1', 9001)).close()
time.sleep(0.2)
print('ready', flush=True)
time.sleep(40)
"""
NEIGHBOUR = arena.PRELUDE + TRY + PROXY + """
for p in (9001, 9002, 9003):
    fact(f'direct {p}', lambda: go(socket.AF_INET, ('127.0.0.1', p)))
    value(f'proxy {p}', lambda: verdicts([talk(f'CONNECT {h}:{p} HTTP/1.1\\r\\nHost: {h}:{p}\\r\\n\\r\\n'.encode()) for h in HOSTS]))
    fact(f'elsewhere {p}', lambda: go(socket.AF_INET, ('192.0.2.1', p)))
fact('abstract', lambda: go(socket.AF_UNIX, '\\0neighbour'))
"""


def test_NE_06_two_networked_sandboxes():
    """Nothing of one is there for the other. The control is the first one's own connection."""
    first = cloche.start(["python", "--network", "open", "--timeout", "50s", "-c", SERVER])
    try:
        seen = first.stdout.readline() + first.stdout.readline()
        assert seen == b"reached by ('127.0.0.1', 9001)\nready\n"
        r = arena.inside(NEIGHBOUR, *OPEN)
        got = arena.facts(r.out.decode())
        for p in (9001, 9002, 9003):
            assert (got[f"direct {p}"], got[f"proxy {p}"], got[f"elsewhere {p}"]) == ("ECONNREFUSED", "['refused']", "ECONNRESET"), got
        assert got["abstract"] == "ECONNREFUSED"
    finally:
        first.terminate()
        rest, _ = first.communicate(timeout=20)
    assert rest == b""


FLOOD = """
import socket, time
held = []
for i in range(3000):
    s = socket.socket(); s.setblocking(False)
    try:
        s.connect_ex(('192.0.2.1', 80 + i % 2 * 363))
        held.append(s)
    except OSError:
        break
    if len(held) > 900:
        for s in held[:450]: s.close()
        del held[:450]
print('flooded', flush=True)
time.sleep(20)
"""


def test_NE_12_a_flood_of_connections_is_the_sandboxs_own():
    flood = cloche.start(["python", "--network", "allow", "--timeout", "40s", "-c", FLOOD])
    try:
        assert flood.stdout.readline() == b"flooded\n"
        began = time.monotonic()
        r = arena.inside("import socket\ntry: print(socket.create_connection(('192.0.2.1', 443), 10).recv(1))\n"
                         "except OSError as e: print(e.errno)", *ALLOW)
        assert r.out == b"104\n" and time.monotonic() - began < 15
    finally:
        flood.terminate()
        flood.communicate(timeout=20)


def test_NE_14_listeners_are_out_of_reach():
    """The sockets that catch connections belong to no process inside, and none of it holds a descriptor of theirs."""
    r = arena.inside("""
import os, re
listening = [l.split() for l in open('/proc/self/net/tcp')][1:]
ports = sorted(int(l[1].split(':')[1], 16) for l in listening if l[3] == '0A')
inodes = {l[9] for l in listening}
held = [os.readlink(f'/proc/{p}/fd/{f}') for p in os.listdir('/proc') if p.isdigit() and os.access(f'/proc/{p}/fd', os.R_OK)
        for f in os.listdir(f'/proc/{p}/fd') if os.path.lexists(f'/proc/{p}/fd/{f}')]
print(ports, [h for h in held if re.sub(r'\\D', '', h) in inodes])
""", *ALLOW)
    assert re.fullmatch(rb"\[53, 80, 443, 3128, 3129\] \[\]\n", r.out), r


def test_a_policy_changes_no_filter():
    """The list of system calls is the same, with a network and without."""
    with_it, without = arena.inside("print(1)", *ALLOW), arena.inside("print(1)")
    assert with_it.enforced["seccomp"] == without.enforced["seccomp"] and with_it.enforced["landlock"] == without.enforced["landlock"]
    assert with_it.enforced["capabilities"] == "none" and with_it.enforced["no_new_privs"]
