# SPDX-License-Identifier: Apache-2.0
"""PR: processes. Catalogue 2.2."""
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

import arena
import cloche
from arena import OTHER, SAME, Attack, define

pytestmark = [pytest.mark.needs("native"), pytest.mark.needs("root"), pytest.mark.needs("python")]

ATTACKS = [
    Attack("PR-01", "ptrace", """
pid = os.fork()
if pid == 0:
    time.sleep(9)
    os._exit(0)
fact('seize child', lambda: sc(101, 0x4206, pid, 0, 0))
fact('attach init', lambda: sc(101, 16, 1, 0, 0))
child('traceme', lambda: sc(101, 0, 0, 0, 0))
buf = ctypes.create_string_buffer(16)
iov = ctypes.create_string_buffer(struct.pack('QQ', ctypes.addressof(buf), 8))
fact('process_vm_readv', lambda: sc(310, pid, iov, 1, iov, 1, 0))
fact('process_vm_writev', lambda: sc(311, pid, iov, 1, iov, 1, 0))
fact('child memory by /proc', lambda: os.close(os.open(f'/proc/{pid}/mem', os.O_RDWR)))
os.kill(pid, 9)
""", {"seize child": ("EPERM", "ok"), "attach init": ("EPERM", "EPERM"), "traceme": ("EPERM", "ok"),
      "process_vm_readv": ("ENOSYS", "ok"), "process_vm_writev": ("ENOSYS", OTHER), "child memory by /proc": ("EROFS", SAME)},
           "off:seccomp,landlock"),
    Attack("PR-02", "kill_init", """
fact('probe init', lambda: os.kill(1, 0))
fact('kill init', lambda: os.kill(1, 9))
fact('queue to init', lambda: sc(129, 1, 9, bytes(128)))
def pidfd():
    fd = os.pidfd_open(1)
    signal.pidfd_send_signal(fd, 9)
fact('pidfd to init', pidfd)
fact('limits of init', lambda: sc(302, 1, 7, 0, ctypes.create_string_buffer(16)))
""", {"probe init": ("EPERM", "ok"), "kill init": ("EPERM", "ok"), "queue to init": ("EPERM", OTHER), "pidfd to init": ("EPERM", "ok"),
      "limits of init": ("EPERM", "ok")}, "host-root"),
    Attack("PR-03", "pid_space", """
value('processes in /proc', lambda: sum(n.isdigit() for n in os.listdir('/proc')))
def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
value('reached by number', lambda: [p for p in range(1, 32769) if alive(p) and p != os.getpid()])
""", {"processes in /proc": ("1", OTHER), "reached by number": ("[1]", OTHER)}, "host"),
    Attack("PR-04", "init_memory", """
for n in ('environ', 'maps', 'cmdline', 'mem', 'root', 'cwd', 'exe', 'fd', 'status', 'ns/mnt', 'stack', 'auxv'):
    fact(n, lambda: os.stat('/proc/1/' + n))
fact('any', lambda: os.listdir('/proc/1'))
""", {**{n: ("ENOENT", "ok") for n in ("environ", "maps", "cmdline", "mem", "root", "cwd", "exe", "fd", "status", "ns/mnt", "stack",
                                       "auxv")}, "any": ("ENOENT", "ok")}, "host-root"),
    Attack("PR-06", "thread_bomb", """
import threading
started = 0
stop = threading.Event()
try:
    for _ in range(500):
        threading.Thread(target=stop.wait, daemon=True).start()
        started += 1
except RuntimeError:
    pass
stop.set()
value('threads', lambda: 'stopped at the limit' if started <= 64 else started)
""", {"threads": ("stopped at the limit", "500")}, "host", end=("exited", 0)),
    Attack("PR-14", "signals_out", """
fact('parent', lambda: os.kill(os.getppid(), 15) if os.getppid() not in (0, 1) else (_ for _ in ()).throw(ProcessLookupError(3, '')))
fact('group of nobody', lambda: os.killpg(1, 0))
fact('session leader above', lambda: os.getsid(0) == os.getpid())
""", {"parent": ("ESRCH", OTHER), "group of nobody": ("ESRCH", OTHER), "session leader above": ("True", OTHER)}, "host"),
    Attack("PR-16", "detach", """
def prctl(*a):
    if libc.prctl(*a) < 0:
        raise OSError(ctypes.get_errno(), '')
fact('subreaper', lambda: prctl(36, 1, 0, 0, 0))
fact('pdeathsig', lambda: prctl(1, 0, 0, 0, 0))
fact('dumpable', lambda: prctl(4, 0, 0, 0, 0))
fact('new session', lambda: os.fork() or (os.setsid(), os._exit(0)))
fact('timer slack, mce kill, mm', lambda: prctl(35, 8, 4096, 0, 0))
""", {"subreaper": ("EINVAL", "ok"), "pdeathsig": ("ok", SAME), "dumpable": ("ok", SAME), "new session": ("ok", SAME),
      "timer slack, mce kill, mm": ("EINVAL", OTHER)}, "host"),
    Attack("PR-17", "join_namespaces", """
for n in ('mnt', 'net', 'pid', 'user', 'uts', 'ipc', 'cgroup', 'time'):
    child('own ' + n, lambda: sc(308, os.open('/proc/self/ns/' + n, os.O_RDONLY), 0))
    fact('init ' + n, lambda: os.close(os.open('/proc/1/ns/' + n, os.O_RDONLY)))
fact('pidfd of init', lambda: sc(308, os.pidfd_open(1), 0x20000))
fact('unshare', lambda: sc(272, 0x20000))
""", {**{f"own {n}": ("ENOSYS", OTHER) for n in ("mnt", "net", "pid", "user", "uts", "ipc", "cgroup", "time")},
      **{f"init {n}": ("ENOENT", "ok") for n in ("mnt", "net", "pid", "user", "uts", "ipc", "cgroup", "time")},
      "pidfd of init": ("ENOSYS", "ok"), "unshare": ("ENOSYS", "ok")}, "host-root"),
]
define(ATTACKS, globals())


def survivors(marker):
    """Processes on the host whose command line has this in it."""
    found = []
    for d in Path("/proc").glob("[0-9]*"):
        try:
            if marker in (d / "cmdline").read_bytes() and int(d.name) != os.getpid():
                found.append(d.name)
        except OSError:
            continue
    return found


def test_PR_02_kill_everything():
    """kill(-1): the sandbox's own processes at most; another sandbox and we are alive, and the end is the true one."""
    peer = cloche.start(["bash", "--timeout", "20s", "-c", "echo ready; read x; echo alive"])
    try:
        assert peer.stdout.readline() == b"ready\n"
        r = arena.inside(arena.PRELUDE + """
pid = os.fork()
if pid == 0:
    time.sleep(9)
    os._exit(0)
os.kill(-1, 9)
say('child', os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
""")
    finally:
        out, _ = peer.communicate(b"x\n", timeout=20)
    assert arena.facts(r.out.decode()) == {"child": "-9"} and r.reason == "exited", r
    assert out == b"alive\n" and peer.returncode == 0


def test_PR_02_kill_everything_control():
    """In a pid namespace without users of its own, kill(-1) ends what it reaches."""
    p = subprocess.run(["unshare", "-pf", "bash", "-c", "sleep 9 & kill -9 -1; wait $!; echo $?"], capture_output=True, timeout=20)
    assert p.stdout == b"137\n"


def test_PR_05_fork_bomb():
    """The limit holds, another sandbox answers within a second, and all is gone within a second of the kill."""
    marker = b"PR05-" + os.urandom(8).hex().encode()
    bomb = cloche.start(["python", "--json", "--timeout", "2s", "-c",
                         f"import os\nwhile True:\n    try: os.fork()\n    except OSError: pass\n# {marker.decode()}"])
    time.sleep(1)
    began = time.monotonic()
    peer = cloche.run(["run", "--", "echo", "here"])
    took = time.monotonic() - began
    out, err = bomb.communicate(timeout=20)
    r = cloche.Result(bomb.args, bomb.returncode, out, err, 0, True)
    assert peer.out == b"here\n" and took < 1, f"the peer took {took:.2f} s"
    assert r.reason == "timeout" and "pids" in r.limits_hit and r.usage["pids_peak"] <= 64, r
    assert r.usage["wall_ms"] < 3000
    assert survivors(marker) == []


def test_PR_05_fork_bomb_control():
    """Without the pids limit (and the rlimit behind it) the same program passes 64."""
    r = arena.inside("""
import os, time
n = 0
for _ in range(120):
    try:
        if os.fork() == 0:
            time.sleep(3)
            os._exit(0)
        n += 1
    except OSError:
        break
print(n)
""", layers_off="pids,rlimits")
    assert r.out == b"120\n", r


def test_PR_06_fork_limit():
    r = arena.inside("""
import os, time
n = 0
for _ in range(120):
    try:
        if os.fork() == 0:
            time.sleep(3)
            os._exit(0)
        n += 1
    except BlockingIOError:
        break
print(n)
""")
    assert int(r.out) == 63 and "pids" in r.limits_hit, r  # 64 with the program itself; init is not counted


DAEMON = "import os, sys, time\nif os.fork(): sys.exit(0)\nos.setsid()\nif os.fork(): os._exit(0)\n" \
    "for f in (0, 1, 2): os.close(f)\ntime.sleep(9999)  # %s"


def test_PR_07_daemon():
    """The run ends when the main process does, and the survivor is dead before the answer."""
    marker = "PR07-" + os.urandom(8).hex()
    r = cloche.run(["python", "-c", DAEMON % marker])
    assert r.reason == "exited" and r.exit_code == 0 and r.seconds < 5, r
    assert survivors(marker.encode()) == []


def test_PR_07_daemon_holds_the_pipe():
    marker = "PR07-" + os.urandom(8).hex()
    r = cloche.run(["python", "-c", (DAEMON % marker).replace("for f in (0, 1, 2): os.close(f)\n", "print('x' * 100)\n")])
    assert r.reason == "exited" and r.seconds < 5, r
    assert survivors(marker.encode()) == []


def test_PR_07_daemon_control():
    marker = "PR07-" + os.urandom(8).hex()
    subprocess.run([arena.PYTHON, "-c", DAEMON % marker], stdin=subprocess.DEVNULL, check=True)
    limit = time.monotonic() + 5
    left = []
    while not left and time.monotonic() < limit:  # between the daemon's two forks a look at /proc may miss both
        left = survivors(marker.encode())
    for p in left:
        os.kill(int(p), signal.SIGKILL)
    assert left, "a daemon survives on a host"


DEAF = """import signal, time
for s in range(1, 65):
    try: signal.signal(s, signal.SIG_IGN)
    except (OSError, ValueError): pass
signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
print('deaf', flush=True)
time.sleep(9999)
"""


def test_PR_09_deaf_to_signals():
    r = cloche.python(DEAF, "--timeout", "1s")
    assert r.reason == "timeout" and r.out == b"deaf\n" and r.seconds < 5, r


def test_PR_09_deaf_control():
    p = subprocess.Popen([arena.PYTHON, "-c", DEAF], stdout=subprocess.PIPE)
    assert p.stdout.readline() == b"deaf\n"
    p.terminate()
    try:
        with pytest.raises(subprocess.TimeoutExpired):
            p.wait(0.3)
    finally:
        p.kill()
        p.communicate()


def test_PR_10_uninterruptible():
    """A vfork child that sleeps holds its parent in an unkillable-looking wait; the kill works all the same."""
    r = cloche.run(["run", "--timeout", "1s", "--in", f"{arena.compiled('hold')}:/workspace/hold", "--", "/workspace/hold"])
    assert r.reason == "timeout" and r.out == b"held\n" and r.seconds < 5, r


def test_PR_10_uninterruptible_control():
    p = subprocess.Popen([arena.compiled("hold")], stdout=subprocess.PIPE)
    assert p.stdout.readline() == b"held\n"
    deadline = time.monotonic() + 5
    state = ""
    while state != "D" and time.monotonic() < deadline:
        state = Path(f"/proc/{p.pid}/stat").read_text().rpartition(")")[2].split()[0]
        time.sleep(0.01)
    for child in arena.descend(p.pid):
        os.kill(child, signal.SIGKILL)
    p.kill()
    p.wait(5)
    p.stdout.close()
    assert state == "D"


def test_PR_11_zombies():
    """10,000 orphans are reaped by init; children nobody waits for count against the limit; the kill is clean."""
    r = arena.inside(arena.PRELUDE + """
for _ in range(2000):
    pid = os.fork()
    if pid == 0:
        for _ in range(4):
            if os.fork() == 0:
                os._exit(0)
        os._exit(0)
    os.waitpid(pid, 0)
n = 0
try:
    for _ in range(500):
        if os.fork() == 0:
            os._exit(0)
        n += 1
except BlockingIOError:
    pass
value('zombies', lambda: 40 < n <= 63)
""", "--timeout", "40s", timeout=60)
    assert arena.facts(r.out.decode()) == {"zombies": "True"}, r
    assert r.reason == "exited" and r.exit_code == 0, r


def test_PR_11_zombies_control():
    out, _ = arena.on_host(arena.PRELUDE + """
n = 0
for _ in range(200):
    if os.fork() == 0:
        os._exit(0)
    n += 1
value('zombies', lambda: n)
""")
    assert arena.facts(out) == {"zombies": "200"}


def test_PR_13_signal_flood_to_the_supervisor():
    """1,000 children a second in one sandbox; another one's round trip stays as quick."""
    flood = cloche.start(["python", "--timeout", "4s", "-c", "import os\nwhile True:\n    if os.fork() == 0: os._exit(0)\n    os.wait()"])
    try:
        time.sleep(0.3)
        took = []
        for _ in range(5):
            began = time.monotonic()
            assert cloche.run(["run", "--", "true"]).returncode == 0
            took.append(time.monotonic() - began)
    finally:
        flood.terminate()
        flood.communicate(timeout=20)
    assert min(took) < 0.5, took


def test_PR_13_flood_control():
    """The flood is one: it starts hundreds of processes a second even at half a CPU."""
    r = arena.inside("import os, time\nn, end = 0, time.monotonic() + 1\nwhile time.monotonic() < end:\n    if os.fork() == 0: os._exit(0)\n"
                     "    os.wait(); n += 1\nprint(n)")
    assert int(r.out) > 200, r


def test_PR_20_arguments_and_environment(tmp_path):
    """Sizes and forms of argv and the environment: run as they are, or one line of refusal."""
    big = cloche.run(["run", "--", "printf", "%s", "x" * 100000], timeout=30)
    assert big.reason == "exited" and big.output["stdout"]["bytes"] == 100000, big
    over = cloche.run(["run", *[w for n in range(2000) for w in ("--env", f"V{n}={'y' * 100}")], "--", "true"], timeout=30)
    assert over.returncode in (0, 2, 125), over
    listed = tmp_path / "env"
    listed.write_text("".join(f"V{n}=x\n" for n in range(100000)))
    many = cloche.run(["run", "--env-file", listed, "--", "true"], timeout=30)
    assert many.returncode in (0, 2, 125) and (many.json is None or many.reason in ("exited", "create_failed")), many
    for bad in ("=x", ""):
        r = cloche.run(["run", "--env", bad, "--", "true"], json=False)
        assert r.returncode in (2, 125), (bad, r)
    preload = cloche.run(["run", "--env", "LD_PRELOAD=/nonexistent.so", "--", "printenv", "LD_PRELOAD"])
    assert preload.out == b"/nonexistent.so\n", preload  # the code's own affair: it has no privilege to lose


def test_PR_20_too_long_control():
    with pytest.raises(OSError):
        subprocess.run(["true", "x" * 200000])
