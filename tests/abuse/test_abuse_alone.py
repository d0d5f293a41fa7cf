# SPDX-License-Identifier: Apache-2.0
"""KS-23: each layer alone. All others are off (mutation build), the code raises what capabilities it can get, and what the
layer claims is still refused. What it does not claim is asserted too: it works, which is the control.

Not switchable, so present everywhere: the pid and mount namespaces. So no host process has a number inside, and signals
out cannot be tried against Landlock's scope alone; init is inside the same Landlock domain and is its own user's affair.
"""
import pytest

import arena

pytestmark = [pytest.mark.needs("native"), pytest.mark.needs("root"), pytest.mark.needs("python")]

CODE = arena.PRELUDE + """
h = ctypes.create_string_buffer(struct.pack('Ii', 0x20080522, 0))
d = ctypes.create_string_buffer(24)
try:
    sc(125, h, d)
    e = list(struct.unpack('6I', d.raw))
    e[0], e[3] = e[1], e[4]
    sc(126, h, ctypes.create_string_buffer(struct.pack('6I', *e)))
    say('raised', 'yes')
except OSError as x:
    say('raised', NAME[x.errno])
def connect(address):
    s = socket.socket(socket.AF_UNIX if isinstance(address, str) else socket.AF_INET)
    s.settimeout(2)
    s.connect(address)
    return 'token' if b'canary' in s.recv(100) else 'connected'
import shutil
def execute():
    shutil.copy('/bin/true', '/tmp/t'); os.chmod('/tmp/t', 0o755)
    pid = os.fork()
    if pid == 0:
        try: os.execv('/tmp/t', ['t'])
        except OSError as e: os._exit(e.errno)
    s = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if s: raise OSError(s, '')
fact('FS-01 canary', lambda: read('/root/CANARY') and None)
fact('FS-01 canary by init', lambda: read('/proc/1/root/root/CANARY') and None)
fact('mount', lambda: sc(165, b'none', b'/mnt', b'tmpfs', 0, 0))
fact('disk node', lambda: os.mknod('/tmp/disk', 0o600 | stat.S_IFBLK, os.makedev(254, 0)))
fact('whiteout', lambda: os.mknod('/tmp/w', 0o600 | stat.S_IFCHR, 0))
fact('create in /dev', lambda: os.mknod('/dev/abuse'))
fact('execute from /tmp', execute)
fact('NE-04 abstract', lambda: connect('\\0canary'))
fact('NE-03 loopback', lambda: connect(('127.0.0.1', 7777)))
fact('PR-14 signal out', lambda: os.kill(32000, 0))
value('PR-14 reached', lambda: sum(1 for p in range(3, 32769) if p != os.getpid() and answer(lambda: os.kill(p, 0)) != 'ESRCH'))
child('namespace', lambda: sc(272, 0x10000000))
fact('keyring', lambda: sc(250, 0, -3, 0, 0, 0))
fact('netlink', lambda: sc(41, 16, 3, 0))
fact('handle', lambda: sc(304, os.open('/', os.O_RDONLY), ctypes.create_string_buffer(struct.pack('Ii', 8, 1) + bytes(16)), 0))
"""

LANDLOCK = "seccomp,userns,caps,ro,masks,noexec,net,rlimits,dumpable"
SECCOMP = "landlock,userns,caps,ro,masks,noexec,net,rlimits,dumpable"
NAMESPACES = "seccomp,landlock,caps,ro,masks,noexec,rlimits,dumpable,nr_inodes"
NOTHING = "seccomp,landlock,userns,caps,ro,masks,noexec,net,rlimits,dumpable"


def answers(layers):
    assert len(layers) < 96
    r = arena.inside(CODE, layers_off=layers)
    got = arena.facts(r.out.decode())
    assert len(got) == 16, r
    return got


def test_KS_23_landlock_alone():
    got = answers(LANDLOCK)
    refused = {k: got[k] for k in ("mount", "disk node", "whiteout", "create in /dev", "execute from /tmp", "NE-04 abstract", "FS-01 canary")}
    assert got["raised"] == "yes"
    assert refused == {"mount": "EPERM", "disk node": "EACCES", "whiteout": "EACCES", "create in /dev": "EACCES", "execute from /tmp": "EACCES",
                       "NE-04 abstract": "EPERM", "FS-01 canary": refused["FS-01 canary"]}, got
    assert refused["FS-01 canary"] in ("EACCES", "ENOENT")
    assert got["NE-03 loopback"] == "token", "TCP is not Landlock's: the namespace carries it"


def test_KS_23_seccomp_alone():
    got = answers(SECCOMP)
    assert {k: got[k] for k in ("raised", "mount", "disk node", "whiteout", "namespace", "keyring", "netlink", "handle")} == {
        "raised": "EPERM", "mount": "EPERM", "disk node": "EPERM", "whiteout": "EPERM", "namespace": "ENOSYS", "keyring": "ENOSYS",
        "netlink": "EAFNOSUPPORT", "handle": "ENOSYS"}, got
    assert got["NE-04 abstract"] == "token" and got["execute from /tmp"] == "ok", "not seccomp's"


def test_KS_23_namespaces_alone():
    """No filter, no rules: files, sockets and processes of the host are not there; capabilities hold for nothing of it."""
    got = answers(NAMESPACES)
    assert {k: got[k] for k in ("mount", "disk node", "NE-04 abstract", "NE-03 loopback", "PR-14 signal out", "PR-14 reached")} == {
        "mount": "EPERM", "disk node": "EPERM", "NE-04 abstract": "ECONNREFUSED", "NE-03 loopback": "ECONNREFUSED", "PR-14 signal out": "ESRCH",
        "PR-14 reached": "0"}, got
    assert got["FS-01 canary"] in ("EACCES", "ENOENT") and got["FS-01 canary by init"] in ("EACCES", "ENOENT"), got
    assert got["namespace"] in ("ENOSPC", "EPERM"), got
    assert got["keyring"] == "ok", "keyrings are seccomp's"


def test_KS_23_nothing_control():
    """With all of them off the attacks work, but for what pivot_root and the pid namespace hide."""
    got = answers(NOTHING)
    assert {k: got[k] for k in ("raised", "whiteout", "execute from /tmp", "NE-04 abstract", "NE-03 loopback", "keyring", "netlink", "namespace")} == {
        "raised": "yes", "whiteout": "ok", "execute from /tmp": "ok", "NE-04 abstract": "token", "NE-03 loopback": "token", "keyring": "ok",
        "netlink": "ok", "namespace": "ok"}, got
    assert got["FS-01 canary"] in ("EACCES", "ENOENT") and got["PR-14 reached"] == "0", got
    assert got["disk node"] != "EACCES", "EACCES is Landlock's word"
