# SPDX-License-Identifier: Apache-2.0
"""KS: the kernel's surface. Catalogue 2.9. The whole filter is compared in test_abuse_golden.py, counted in
test_abuse_surface.py; here is what each refused call answers, and that it is the filter that refuses it."""
import re
import subprocess

import pytest

import arena
import cloche
from arena import ANY, OTHER, SAME, Attack, define

pytestmark = [pytest.mark.needs("native"), pytest.mark.needs("root"), pytest.mark.needs("python"), pytest.mark.needs("gcc")]

NAMESPACES = {"user": 0x10000000, "mnt": 0x20000, "net": 0x40000000, "pid": 0x20000000, "cgroup": 0x2000000, "time": 0x80, "ipc": 0x8000000,
              "uts": 0x4000000}
MANY = {"bpf map": (321, 0, 0, 0), "perf_event_open": (298, 0, 0, -1, -1, 0), "userfaultfd": (323, 0), "userfaultfd user mode": (323, 1),
        "fanotify_init": (300, 0x200, 0), "kcmp": (312, 1, 1, 0, 0, 0), "pidfd_getfd": (438, -1, 0, 0), "process_vm_readv": (310, 2, 0, 0, 0, 0, 0),
        "process_vm_writev": (311, 2, 0, 0, 0, 0, 0), "process_madvise": (440, -1, 0, 0, 0, 0), "move_pages": (279, 0, 0, 0, 0, 0, 0),
        "mbind": (237, 0, 0, 0, 0, 0, 0), "migrate_pages": (256, 0, 0, 0, 0), "set_mempolicy": (238, 0, 0, 0), "vmsplice": (278, -1, 0, 0, 0),
        "remap_file_pages": (216, 0, 0, 0, 0, 0), "memfd_secret": (447, 0), "modify_ldt": (154, 0, 0, 0), "iopl": (172, 3),
        "ioperm": (173, 0x80, 1, 1), "personality no randomize": (135, 0x40000), "personality exec": (135, 0x400000),
        "get_robust_list": (274, 1, 0, 0), "rt_tgsigqueueinfo": (297, 1, 1, 0, 0), "io_setup": (206, 0, 0)}
MACHINE = {"acct": (163, -1), "swapon": (167, -1, 0), "swapoff": (168, -1), "reboot": (169, 0, 0, 0, 0), "kexec_load": (246, 0, 0, 0, -1),
           "kexec_file_load": (320, -1, -1, 0, 0, 0), "init_module": (175, 0, 0, -1), "finit_module": (313, -1, -1, 0),
           "delete_module": (176, -1, 0), "quotactl": (179, 0x80000700, -1, 0, 0), "quotactl_fd": (443, -1, 0, 0, 0),
           "syslog": (103, 10, 0, 0), "sethostname": (170, -1, 1), "setdomainname": (171, -1, 1), "settimeofday": (164, -1, 0),
           "clock_settime": (227, 0, -1), "adjtimex": (159, -1), "clock_adjtime": (305, 0, -1), "vhangup": (153,)}


def calls(table):
    return f"for n, a in {table!r}.items():\n    child(n, lambda: sc(*a))\n"


ATTACKS = [
    Attack("KS-01", "namespaces", f"T = {NAMESPACES!r}\n" + """
SIGCHLD = 17
def clone(flags):
    pid = sc(56, flags | SIGCHLD, 0, 0, 0, 0)
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
for n, f in T.items():
    child('unshare ' + n, lambda: sc(272, f))
    if n != 'time':
        child('clone ' + n, lambda: clone(f))
child('user and net', lambda: sc(272, 0x50000000))
child('high bits', lambda: clone((1 << 32) | 0x10000000))
child('plain clone', lambda: clone(0))
value('allowed user namespaces', lambda: answer(lambda: read('/proc/sys/user/max_user_namespaces') and None))
""", {**{f"unshare {n}": ("ENOSYS", OTHER) for n in NAMESPACES}, **{f"clone {n}": ("EPERM", ANY) for n in NAMESPACES if n != "time"},
      "user and net": ("ENOSYS", "ok"), "high bits": ("EPERM", "ok"), "clone user": ("EPERM", "ok"), "plain clone": ("ok", SAME),
      "allowed user namespaces": ("ENOENT", SAME)}, "off:seccomp,forbid_userns"),
    Attack("KS-02", "clone3", f"T = {NAMESPACES!r}\n" + """
def clone3(flags, size=64):
    pid = sc(435, ctypes.create_string_buffer(struct.pack('8Q', flags, 0, 0, 0, 17 if flags != 0x80 else 0, 0, 0, 0) + bytes(24)), size)
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
for n, f in T.items():
    child('clone3 ' + n, lambda: clone3(f))
child('plain', lambda: clone3(0))
child('88 bytes', lambda: clone3(0, 88))
import threading
t = threading.Thread(target=lambda: say('thread', 'ok')); t.start(); t.join()
""", {**{f"clone3 {n}": ("ENOSYS", OTHER) for n in NAMESPACES}, "plain": ("ENOSYS", "ok"), "88 bytes": ("ENOSYS", "ok"), "thread": ("ok", SAME)},
           "off:seccomp"),
    Attack("KS-05", "numbers_off_the_table", """
for n in (470, 471, 500, 511, 512, 547, 548, 600, 1023, 1024, 0x3fffffff, -1, -2, -4096, -(1 << 31), 0xffffffff, (1 << 32) | 10**6):
    child(str(n), lambda: sc(n))
def high():
    if sc((1 << 32) | 39) <= 0: raise OSError(5, '')
child('getpid with high bits', high)
child('unshare with high bits', lambda: sc((1 << 32) | 272, 0x10000000))
""", {**{str(n): ("ENOSYS", ANY) for n in (470, 471, 500, 511, 512, 547, 548, 600, 1023, 1024, 0x3fffffff, -1, -2, -4096, -(1 << 31),
                                            0xffffffff, (1 << 32) | 10**6)},
      "getpid with high bits": ("ok", ANY), "unshare with high bits": ("ENOSYS", OTHER)}, "off:seccomp"),
    Attack("KS-07", "round_the_filter_by_ptrace", """
pid = os.fork()
if pid == 0:
    time.sleep(9); os._exit(0)
fact('seize', lambda: sc(101, 0x4206, pid, 0, 1))
fact('syscall info', lambda: sc(101, 0x420e, pid, 88, ctypes.create_string_buffer(88)))
fact('filter', lambda: sc(101, 0x420c, pid, 0, 0))
os.kill(pid, 9)
""", {"seize": ("EPERM", "ok"), "syscall info": ("EPERM", OTHER), "filter": ("EPERM", OTHER)}, "off:seccomp"),
    Attack("KS-08", "seccomp_itself", """
insn = ctypes.create_string_buffer(struct.pack('HBBI', 6, 0, 0, 0x7fff0000))
prog = ctypes.create_string_buffer(struct.pack('HxxxxxxQ', 1, ctypes.addressof(insn)))
child('listener', lambda: sc(317, 1, 8, prog))
child('permissive filter', lambda: sc(317, 1, 0, prog))
child('tsync', lambda: sc(317, 1, 1, prog))
child('strict', lambda: sc(317, 0, 0, 0))
def prctl(*a):
    if libc.prctl(*a) < 0: raise OSError(ctypes.get_errno(), '')
child('by prctl', lambda: prctl(22, 2, prog, 0, 0))
child('no_new_privs off', lambda: prctl(38, 0, 0, 0, 0))
value('mode', lambda: [l.split()[1] for l in open('/proc/self/status') if l.startswith('Seccomp')])
""", {"listener": ("ENOSYS", "ok"), "permissive filter": ("ENOSYS", "ok"), "tsync": ("ENOSYS", "ok"), "strict": ("ENOSYS", OTHER),
      "by prctl": ("EINVAL", "ok"), "no_new_privs off": ("EINVAL", SAME), "mode": ("['2', '1']", OTHER)}, "off:seccomp"),
    Attack("KS-09", "io_uring", """
fact('setup', lambda: sc(425, 4, ctypes.create_string_buffer(256)))
fact('enter', lambda: sc(426, -1, 0, 0, 0, 0, 0))
fact('register', lambda: sc(427, -1, 0, 0, 0))
""", {"setup": ("ENOSYS", OTHER), "enter": ("ENOSYS", OTHER), "register": ("ENOSYS", OTHER)}, "off:seccomp"),
    Attack("KS-10", "keyrings", """
fact('session', lambda: sc(250, 0, -3, 0, 0, 0))
fact('join', lambda: sc(250, 1, 0, 0, 0, 0))
fact('user', lambda: sc(250, 0, -4, 1, 0, 0))
fact('add_key', lambda: sc(248, b'user', b'abuse', b'x', 1, -2))
fact('request_key', lambda: sc(249, b'user', b'abuse-none', 0, 0))
for n in ('keys', 'key-users'):
    fact('/proc/' + n, lambda: read('/proc/' + n) and None)
""", {"session": ("ENOSYS", "ok"), "join": ("ENOSYS", "ok"), "user": ("ENOSYS", "ok"), "add_key": ("ENOSYS", "ok"),
      "request_key": ("ENOSYS", OTHER), "/proc/keys": ("ENOENT", "ok"), "/proc/key-users": ("ENOENT", "ok")}, "off:seccomp,masks"),
    Attack("KS-11", "calls_with_a_history", calls(MANY),
           {n: ("ENOSYS", ANY if n in ("memfd_secret", "modify_ldt", "iopl", "ioperm") else OTHER) for n in MANY}, "off:seccomp"),
    Attack("KS-12", "calls_for_the_machine", calls(MACHINE), {n: ("ENOSYS", ANY if n in ("kexec_load", "kexec_file_load", "init_module", "finit_module",
                                                                                     "delete_module", "acct", "swapon", "swapoff", "quotactl",
                                                                                     "quotactl_fd") else OTHER) for n in MACHINE}, "off:seccomp"),
    Attack("KS-14", "places_to_execute_from", """
import shutil, stat
def run(path):
    pid = os.fork()
    if pid == 0:
        try:
            os.execv(path, ['true'])
        except OSError as e:
            os._exit(e.errno)
    s = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if s: raise OSError(s, '')
for d in ('/tmp', '/dev/shm', '/workspace', '/var/tmp'):
    def go():
        shutil.copy('/bin/true', d + '/t'); os.chmod(d + '/t', 0o755); run(d + '/t')
    fact(d, go)
f = os.memfd_create('x', 0)
os.write(f, read('/bin/true', 1 << 20))
child('execveat', lambda: sc(322, f, b'', 0, 0, 0x1000))
fact('by proc', lambda: run(f'/proc/self/fd/{f}'))
import mmap
fact('map from /tmp', lambda: mmap.mmap(os.open('/tmp/t', os.O_RDONLY), 4096, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC).close())
fact('write and execute', lambda: mmap.mmap(-1, 4096, prot=7).close())
""", {"/tmp": ("EACCES", "ok"), "/dev/shm": ("EACCES", "ok"), "/var/tmp": ("EACCES", "ok"), "/workspace": ("ok", SAME), "execveat": ("ENOSYS", OTHER),
      "by proc": ("ok", SAME), "map from /tmp": ("EPERM", "ok"), "write and execute": ("ok", SAME)}, "off:noexec,landlock,seccomp"),
    Attack("KS-16", "page_cache", """
f = os.open('/usr/bin/python3', os.O_RDONLY)
fact('cachestat', lambda: sc(451, f, ctypes.create_string_buffer(16), ctypes.create_string_buffer(40), 0))
fact('readahead', lambda: sc(187, f, 0, 4096))
""", {"cachestat": ("ENOSYS", ANY), "readahead": ("EPERM", "ok")}, "off:seccomp"),
    Attack("KS-17", "control_groups", """
fact('mount v1', lambda: sc(165, b'none', b'/tmp', b'cgroup', 0, b'memory'))
fact('mount v2', lambda: sc(165, b'none', b'/tmp', b'cgroup2', 0, 0))
fact('/sys', lambda: os.listdir('/sys'))
fact('release_agent', lambda: write('/sys/fs/cgroup/memory/release_agent', b'/x'))
value('mounted', lambda: sum('cgroup' in l for l in open('/proc/self/mountinfo')))
""", {"mount v1": ("EPERM", ANY), "mount v2": ("EPERM", "ok"), "/sys": ("ENOENT", ANY), "release_agent": ("ENOENT", ANY),
      "mounted": ("0", OTHER)}, "host-root"),
    Attack("KS-19", "knobs_of_the_kernel", """
for n in ('sys/fs/binfmt_misc/register', 'sysrq-trigger', 'sys/kernel/modprobe', 'sys/kernel/core_pattern', 'sys/kernel/hotplug',
          'sys/vm/drop_caches', 'sys/kernel/ns_last_pid', 'sys', 'irq', 'bus', 'fs'):
    fact(n, lambda: os.stat('/proc/' + n))
fact('uevent_helper', lambda: os.stat('/sys/kernel/uevent_helper'))
""", {**{n: ("ENOENT", ANY) for n in ("sys/fs/binfmt_misc/register", "sys/kernel/modprobe", "sys/kernel/hotplug", "sys/kernel/ns_last_pid", "uevent_helper", "sysrq-trigger")},
      **{n: ("ENOENT", "ok") for n in ("sys/kernel/core_pattern", "sys/vm/drop_caches", "sys", "irq", "bus", "fs")}}, "off:masks"),
    Attack("KS-20", "capabilities", """
for l in open('/proc/self/status'):
    if l.startswith(('Cap', 'NoNewPrivs')):
        say(l.split()[0][:-1], l.split()[1])
def prctl(*a):
    r = libc.prctl(*a)
    if r < 0: raise OSError(ctypes.get_errno(), '')
    return str(r)
h = ctypes.create_string_buffer(struct.pack('Ii', 0x20080522, 0))
fact('capset', lambda: sc(126, h, ctypes.create_string_buffer(struct.pack('6I', *[0xffffffff] * 6))))
fact('ambient', lambda: prctl(47, 2, 21, 0, 0))
fact('securebits', lambda: prctl(28, 0, 0, 0, 0))
fact('setuid 0', lambda: os.setuid(0))
fact('setgroups', lambda: os.setgroups([0]))
sub = __import__('subprocess').run(['grep', 'CapEff', '/proc/self/status'], capture_output=True).stdout.split()[1].decode()
say('executed', sub)
""", {**{c: ("0000000000000000", OTHER) for c in ("CapPrm", "CapEff", "CapBnd", "executed")}, "CapInh": ("0000000000000000", SAME),
      "CapAmb": ("0000000000000000", SAME), "NoNewPrivs": ("1", ANY), "capset": ("EPERM", ANY), "ambient": ("EPERM", ANY),
      "securebits": ("EPERM", OTHER), "setuid 0": ("EPERM", "ok"), "setgroups": ("EPERM", "ok")}, "host-root"),
]
define(ATTACKS, globals())

# ---------------------------------------------------------------------------------------------- other architectures

I386 = {"getpid": ["20"], "keyctl": ["288", "0", "-3"], "io_uring_setup": ["425", "4", "buf"], "unshare": ["310", "0x10000000"],
        "socketcall vsock": ["102", "1", "vsock"], "socketcall alg": ["102", "1", "alg"], "exit": ["1", "0"], "nonsense": ["999"]}
X32 = {"getpid": ["39"], "ptrace": ["521", "0"], "rt_sigaction": ["512"], "execve": ["520"], "read": ["0", "-1"], "nonsense": ["999"]}


def raw(words, layers_off=None):
    options = ["run", "--in", f"{arena.compiled('raw')}:/workspace/raw", "--", "/workspace/raw", *words]
    if layers_off is None:
        return cloche.run(options)
    with arena.weakened(layers_off) as env:
        return cloche.run(options, env=env)


@pytest.mark.parametrize("name", I386)
def test_KS_03_i386(name):
    r = raw(["i386", *I386[name]])
    assert r.reason == "seccomp_violation" and r.signal == 31 and r.returncode == 159 and r.out == b"", r


def test_KS_03_i386_control():
    got = raw(["i386", "20"], "seccomp")
    if got.reason == "signaled":
        pytest.skip("this kernel has no int 0x80")
    assert got.out == b"ok\n", got


@pytest.mark.parametrize("name", X32)
def test_KS_04_x32(name):
    r = raw(["x32", *X32[name]])
    assert r.reason == "seccomp_violation" and r.signal == 31 and r.out == b"", r


def test_KS_04_x32_control():
    """Without the filter the number is an ordinary one to the kernel: it answers (with ENOSYS where x32 is not built in)."""
    assert raw(["x32", "39"], "seccomp").out in (b"ok\n", b"ENOSYS\n")


def test_KS_03_and_04_the_program_works():
    assert raw(["x86", "39"]).out == b"ok\n"
    assert raw(["x86", "272", "0x10000000"]).out == b"ENOSYS\n"


# ------------------------------------------------------------------------------------------------------- the rest


def test_KS_13_no_module_is_loaded():
    """Families, file systems, line disciplines, interfaces of odd names: /proc/modules of the host is as before."""
    def modules():
        try:
            return open("/proc/modules").read()
        except OSError:
            return ""
    before = modules()
    r = arena.inside(arena.PRELUDE + """
import fcntl
for t in (b'ext2', b'vfat', b'fuse', b'nfs', b'9p', b'ntfs3', b'overlay'):
    fact('mount', lambda: sc(165, b'none', b'/tmp', t, 0, 0))
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for n in (b'dummy0', b'x25asy', b'ppp0', b'tun0'):
    fact('ioctl', lambda: fcntl.ioctl(s, 0x8933, n + bytes(40 - len(n))))
for d in range(30):
    fact('discipline', lambda: sc(16, 0, 0x5423, ctypes.create_string_buffer(struct.pack('i', d))))
fact('algorithm', lambda: sc(41, 38, 5, 0))
fact('congestion', lambda: socket.socket().setsockopt(6, 13, b'vegas'))
""")
    got = arena.facts(r.out.decode())
    assert got["mount"] == "EPERM" and got["ioctl"] == "ENOTTY" and got["discipline"] == "ENOTTY" and got["algorithm"] == "EAFNOSUPPORT", r
    assert modules() == before


def test_KS_13_control():
    """Without the filter the same ioctl reaches the network stack: it is the filter that stops it."""
    r = arena.inside(arena.PRELUDE + "import fcntl\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
                     "fact('ioctl', lambda: fcntl.ioctl(s, 0x8933, b'lo' + bytes(38)))", layers_off="seccomp")
    assert arena.facts(r.out.decode()) == {"ioctl": "ok"}, r


def test_KS_14_dynamic_loader():
    """ld.so runs what execve refuses only where the mount lets pages be executable."""
    r = cloche.bash("cp /bin/true /tmp/t; /lib64/ld-linux-x86-64.so.2 /tmp/t; echo $?; cp /bin/true /workspace/t; /lib64/ld-linux-x86-64.so.2 ./t; echo $?")
    assert r.out.split() == [b"126", b"0"] or r.out.split() == [b"127", b"0"], r


def test_KS_14_dynamic_loader_control():
    with arena.weakened("noexec") as env:
        r = cloche.bash("cp /bin/true /tmp/t; /lib64/ld-linux-x86-64.so.2 /tmp/t; echo $?", env=env)
    assert r.out == b"0\n", r


def test_KS_18_core_dump():
    """A crash leaves no core and starts no helper: the limit is the value that never pipes (the pipe itself: tests/vm)."""
    r = arena.inside(arena.PRELUDE + """
import resource
value('limit', lambda: resource.getrlimit(resource.RLIMIT_CORE))
pid = os.fork()
if pid == 0:
    os.abort()
status = os.waitpid(pid, 0)[1]
value('signal', lambda: os.WTERMSIG(status))
value('dumped', lambda: os.WCOREDUMP(status))
value('files', lambda: os.listdir('/workspace'))
""")
    assert arena.facts(r.out.decode()) == {"limit": "(1, 1)", "signal": "6", "dumped": "False", "files": "[]"}, r


def test_KS_18_core_dump_control():
    code = "import os, resource, signal\nresource.setrlimit(resource.RLIMIT_CORE, (1 << 24, 1 << 24))\npid = os.fork()\nif pid == 0: os.abort()\n" \
        "print(os.WCOREDUMP(os.waitpid(pid, 0)[1]))"
    out, err = arena.on_host(code)
    if open("/proc/sys/kernel/core_pattern").read().startswith("|"):
        pytest.skip("this machine pipes its cores")
    assert out == "True\n", err


@pytest.mark.parametrize("code", ["import hashlib, json, re, ssl, sqlite3, subprocess, threading, multiprocessing, tempfile\n"
                                  "print(subprocess.run(['id', '-u'], capture_output=True).stdout.decode().strip())",
                                  "import multiprocessing.pool\nwith multiprocessing.Pool(4) as p: print(sum(p.map(abs, range(-10, 0))))"],
                         ids=["standard library", "pool"])
def test_KS_22_ordinary_code_is_not_killed(code):
    r = cloche.python(code, "--timeout", "20s")
    assert r.reason == "exited" and r.exit_code == 0 and r.out in (b"65534\n", b"55\n"), r


def test_KS_24_stacking():
    """Landlock layers and filters cannot be added from inside, so neither can be exhausted."""
    r = arena.inside(arena.PRELUDE + "fact('landlock', lambda: sc(444, 0, 0, 1))\nfact('filter', lambda: sc(317, 1, 0, 0))\n")
    assert arena.facts(r.out.decode()) == {"landlock": "ENOSYS", "filter": "ENOSYS"}, r


def test_KS_24_stacking_control():
    """Without the filter, layers are stacked until E2BIG."""
    r = arena.inside(arena.PRELUDE + """
attr = ctypes.create_string_buffer(struct.pack('QQQ', 1 << 3, 0, 0))
n = 0
try:
    for n in range(40):
        sc(446, sc(444, attr, 8, 0), 0)
except OSError as e:
    say('end', NAME[e.errno])
value('layers', lambda: n)
""", layers_off="seccomp")
    assert arena.facts(r.out.decode()) == {"end": "E2BIG", "layers": "15"}, r
