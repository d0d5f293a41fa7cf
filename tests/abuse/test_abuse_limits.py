# SPDX-License-Identifier: Apache-2.0
"""ME, CP, DK: memory, CPU and time, disk. Catalogue 2.3 to 2.5. What a neighbour feels is in test_abuse_peer.py."""
import os
import subprocess
import time
from pathlib import Path

import pytest

import arena
import cloche
from arena import OTHER, SAME, Attack, define

pytestmark = [pytest.mark.needs("native"), pytest.mark.needs("root"), pytest.mark.needs("python")]

ATTACKS = [
    Attack("ME-04", "memory_by_other_doors", """
fact('memfd_secret', lambda: sc(447, 0))
fact('shmget', lambda: sc(29, 0, 4096, 0o1600))
fact('msgget', lambda: sc(68, 0, 0o1600))
fact('semget', lambda: sc(64, 0, 1, 0o1600))
fact('mq_open', lambda: sc(240, b'abuse', 0o102, 0o600, 0))
p = os.pipe()
iov = ctypes.create_string_buffer(struct.pack('QQ', ctypes.addressof(ctypes.create_string_buffer(16)), 8))
fact('vmsplice', lambda: sc(278, p[1], iov, 1, 0))
fact('remap_file_pages', lambda: sc(216, 0, 0, 0, 0, 0))
""", {"memfd_secret": ("ENOSYS", OTHER), "shmget": ("ENOSYS", "ok"), "msgget": ("ENOSYS", "ok"), "semget": ("ENOSYS", "ok"),
      "mq_open": ("ENOSYS", OTHER), "vmsplice": ("ENOSYS", "ok"), "remap_file_pages": ("ENOSYS", OTHER)}, "off:seccomp"),
    Attack("ME-05", "locked_memory", """
import mmap, resource
m = mmap.mmap(-1, 1 << 20)
a = ctypes.addressof(ctypes.c_char.from_buffer(m))
fact('mlock', lambda: sc(149, a, 1 << 20))
fact('mlockall', lambda: sc(151, 3))
fact('MAP_LOCKED', lambda: mmap.mmap(-1, 1 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x2000).close())
value('limit', lambda: resource.getrlimit(resource.RLIMIT_MEMLOCK))
""", {"mlock": ("EPERM", OTHER), "mlockall": ("EPERM", OTHER), "MAP_LOCKED": ("EPERM", "ok"), "limit": ("(0, 0)", OTHER)},
           "off:seccomp,rlimits"),
    Attack("ME-06", "kernel_objects", """
def until_refused(make, most):
    kept = []
    try:
        for n in range(most):
            kept.append(make())
    except OSError as e:
        return NAME[e.errno]
    finally:
        for f in kept:
            try:
                os.close(f)
            except (OSError, TypeError):
                pass
    return 'no limit'
import fcntl, resource
value('files', lambda: until_refused(lambda: os.open('/dev/null', 0), 5000))
value('epolls', lambda: until_refused(lambda: sc(291, 0), 5000))
value('inotify', lambda: until_refused(lambda: sc(294, 0), 5000))
value('timers', lambda: until_refused(lambda: sc(222, 1, None, ctypes.create_string_buffer(4)), 5000))
value('open files', lambda: resource.getrlimit(resource.RLIMIT_NOFILE)[1])
value('raise', lambda: 'raised' if not resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096)) else '')
""", {"files": ("EMFILE", "no limit"), "epolls": ("EMFILE", "no limit"), "inotify": ("EMFILE", SAME), "timers": ("EAGAIN", OTHER),
      "open files": ("1024", OTHER), "raise": (None, "raised")}, "off:rlimits,caps,userns", end=("exited", 1)),
    Attack("ME-09", "oom_score", """
fact('lower', lambda: write('/proc/self/oom_score_adj', b'-1000'))
fact('raise', lambda: write('/proc/self/oom_score_adj', b'500'))
value('a better victim than a service', lambda: int(read('/proc/self/oom_score_adj')) >= 300)
""", {"lower": ("EROFS", OTHER), "raise": ("EROFS", "ok"), "a better victim than a service": ("True", SAME)}, "host"),
    Attack("ME-12", "page_fault_stalls", """
fact('userfaultfd', lambda: sc(323, 0))
fact('userfaultfd user mode', lambda: sc(323, 1))
fact('fuse', lambda: os.close(os.open('/dev/fuse', os.O_RDWR)))
fact('uffd device', lambda: os.close(os.open('/dev/userfaultfd', os.O_RDWR)))
""", {"userfaultfd": ("ENOSYS", "ok"), "userfaultfd user mode": ("ENOSYS", "ok"), "fuse": ("ENOENT", OTHER),
      "uffd device": ("ENOENT", OTHER)}, "host-root"),
    Attack("CP-02", "priority", """
fact('nice', lambda: os.setpriority(os.PRIO_PROCESS, 0, -20))
fact('fifo', lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)))
fact('rr', lambda: os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(99)))
fact('deadline', lambda: sc(314, 0, ctypes.create_string_buffer(struct.pack('IIQiIQQQ', 48, 6, 0, 0, 0, 10**7, 3 * 10**7, 3 * 10**7)), 0))
fact('ioprio', lambda: sc(251, 1, 0, (1 << 13)))
""", {"nice": ("EACCES", "ok"), "fifo": ("EPERM", "ok"), "rr": ("EPERM", "ok"), "deadline": ("ENOSYS", OTHER),
      "ioprio": ("EPERM", "ok")}, "host-root"),
    Attack("CP-06", "clocks", """
now = struct.pack('qq', int(time.time()), 0)
fact('clock_settime', lambda: sc(227, 0, ctypes.create_string_buffer(now)))
fact('settimeofday', lambda: sc(164, ctypes.create_string_buffer(now), None))
fact('adjtimex read', lambda: sc(159, ctypes.create_string_buffer(256)))
fact('clock_adjtime read', lambda: sc(305, 0, ctypes.create_string_buffer(256)))
fact('time namespace', lambda: sc(272, 0x80))
fact('offsets', lambda: write('/proc/self/timens_offsets', b'monotonic 1 0'))
""", {"clock_settime": ("ENOSYS", OTHER), "settimeofday": ("ENOSYS", OTHER), "adjtimex read": ("ENOSYS", "ok"),
      "clock_adjtime read": ("ENOSYS", "ok"), "time namespace": ("ENOSYS", "ok"), "offsets": ("EROFS", "EROFS")}, "off:seccomp,caps,userns"),
    Attack("CP-07", "counters", """
attr = ctypes.create_string_buffer(struct.pack('II', 1, 128) + bytes(32) + struct.pack('Q', 1 | 1 << 5 | 1 << 6) + bytes(80))
fact('perf', lambda: sc(298, attr, 0, -1, -1, 0))
""", {"perf": ("ENOSYS", OTHER)}, "host-root"),
    Attack("CP-08", "pressure_triggers", """
for n in ('cpu', 'memory', 'io'):
    fact(n, lambda: os.close(os.open('/proc/pressure/' + n, os.O_RDONLY)))
""", {n: ("ENOENT", OTHER) for n in ("cpu", "memory", "io")}, "off:masks"),
    Attack("DK-02", "inodes", """
n = 0
try:
    for n in range(20000):
        os.mknod(f'/tmp/{n}')
except OSError as e:
    say('inodes', NAME[e.errno])
else:
    say('inodes', 'no limit')
value('made', lambda: n > 16000)
""", {"inodes": ("ENOSPC", "no limit"), "made": ("True", SAME)}, "off:nr_inodes"),
    Attack("DK-06", "flush_the_host", """
fact('sync', lambda: sc(162) and None)
fact('syncfs', lambda: sc(306, os.open('/', os.O_RDONLY)))
fact('readahead', lambda: sc(187, os.open('/usr/bin/env', os.O_RDONLY), 0, 4096))
fact('fsync of the image', lambda: os.fsync(os.open('/usr/bin/env', os.O_RDONLY)))
""", {"sync": ("EPERM", "ok"), "syncfs": ("EPERM", "ok"), "readahead": ("EPERM", "ok"), "fsync of the image": ("ok", SAME)},
           "off:seccomp"),
]
# "raise" prints nothing inside: the ValueError of Python's wrapper ends the program, which is the refusal.
define(ATTACKS, globals())


def available_mib():
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable"):
            return int(line.split()[1]) // 1024
    return 0


# ---------------------------------------------------------------------------------------------------------- memory

HEAP = "b = []\nfor _ in range(60): b.append(bytearray(b'x') * (10 << 20))\nprint('all')"


def test_ME_01_out_of_memory():
    before = available_mib()
    r = cloche.python(HEAP, "--timeout", "20s")
    assert r.reason == "oom" and r.error_code == "SANDBOX_OOM" and r.oom_kills > 0 and r.returncode == 137, r
    assert r.usage["memory_peak_bytes"] <= 256 << 20
    assert available_mib() > before - 1000  # the machine has other users


def test_ME_01_out_of_memory_control():
    r = arena.inside(HEAP, layers_off="memory")
    assert r.out == b"all\n", r


@pytest.mark.parametrize("door, code", [
    ("memfd", "import os\nf = os.memfd_create('x')\nfor _ in range(600): os.write(f, b'x' * (1 << 20))\nprint('all')"),
    ("shm", "f = open('/workspace/f', 'wb')\nh = bytearray(b'x') * (140 << 20)\nfor _ in range(200): f.write(b'x' * (1 << 20))\nprint('all')"),
    ("mmap", "import mmap\nm = mmap.mmap(-1, 600 << 20)\nfor n in range(0, 600 << 20, 4096): m[n] = 1\nprint('all')"),
])
def test_ME_04_charged(door, code):
    r = cloche.python(code, "--timeout", "20s")
    assert r.reason == "oom" and b"all" not in r.out, r


def test_ME_04_charged_control():
    r = cloche.python("import os\nf = os.memfd_create('x')\nfor _ in range(600): os.write(f, b'x' * (1 << 20))\nprint('all')", "--timeout",
                      "20s", "-m", "1g")
    assert r.out == b"all\n", r


def test_ME_04_pipes_and_sockets():
    """Pipe buffers and queued messages are the sandbox's memory, or end at a limit of their own."""
    r = arena.inside(arena.PRELUDE + """
import fcntl
kept, total = [], 0
try:
    while total < 1 << 30:
        a, b = os.pipe2(os.O_NONBLOCK)
        kept += [a, b]
        total += fcntl.fcntl(b, 1031, 1 << 20)
        os.write(b, bytes(1 << 20))
except OSError as e:
    say('pipes', NAME[e.errno])
value('total', lambda: total < 512 << 20)
""")
    got = arena.facts(r.out.decode())
    assert r.reason == "oom" or (got.get("pipes") in ("EPERM", "EMFILE", "EAGAIN") and got["total"] == "True"), r


def test_ME_06_page_tables_and_dentries():
    """Sparse touches and look-ups of names that do not exist are charged: killed or within the limit, and the host has
    its memory back."""
    before = available_mib()
    r = arena.inside("""
import mmap, os
for n in range(100000):
    try: os.stat('/usr/' + 'n' * 200 + str(n))
    except OSError: pass
m = mmap.mmap(-1, 1 << 40, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000)
for n in range(0, 1 << 40, 1 << 21): m[n] = 1
print('all')
""", "--timeout", "10s")
    assert r.reason in ("oom", "timeout") and b"all" not in r.out, r
    assert r.usage["memory_peak_bytes"] <= 256 << 20
    assert available_mib() > before - 1000


def test_ME_06_page_tables_control():
    r = arena.inside("import mmap\nm = mmap.mmap(-1, 1 << 40, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000)\n"
                     "for n in range(0, 1 << 37, 1 << 21): m[n] = 1\nprint('all')", layers_off="memory")
    assert r.out == b"all\n", r


def test_ME_08_no_swap():
    """Memory and swap together have the limit of memory alone."""
    r = cloche.run(["run", "--", "true"])
    assert r.enforced["swap"] != "none", r
    with_swap = cloche.run(["run", "--memory", "64m", "--memory-swap", "32m", "--", "true"], json=False)
    assert with_swap.returncode == 2, with_swap


def test_ME_10_address_space():
    """Reserving is free, touching is not."""
    r = cloche.python("import mmap\nm = mmap.mmap(-1, 8 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000)\nprint('reserved', flush=True)\n"
                      "for n in range(0, 8 << 30, 4096): m[n] = 1", "--timeout", "20s")
    assert r.out == b"reserved\n" and r.reason == "oom", r


# -------------------------------------------------------------------------------------------------------- CPU, time

SPIN = "import threading, time\nend = time.monotonic() + 2\ndef f():\n    while time.monotonic() < end: pass\n" \
    "t = [threading.Thread(target=f) for _ in range(8)]\n[x.start() for x in t]\n"
FORK_SPIN = "import os, time\nend = time.monotonic() + 2\nfor _ in range(4):\n    if os.fork() == 0: break\nwhile time.monotonic() < end: pass\n"


@pytest.mark.parametrize("code", [SPIN, FORK_SPIN], ids=["threads", "processes"])
def test_CP_01_share(code):
    r = cloche.python(code, "--timeout", "10s")
    share = r.usage["cpu_ms"] / r.usage["wall_ms"]
    assert share <= 0.5 * 1.1, f"used {share:.2f} CPUs of 0.5: {r}"


def cpu_quota(pid):
    """The CPU quota of a process on the host in microseconds a period, None without one."""
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        if "cpu" in names.split(","):
            value = int(Path(f"/sys/fs/cgroup/cpu{path}/cpu.cfs_quota_us").read_text())
            return None if value < 0 else value
        if not names and Path(f"/sys/fs/cgroup{path}/cpu.max").exists():
            value = Path(f"/sys/fs/cgroup{path}/cpu.max").read_text().split()[0]
            return None if value == "max" else int(value)
    return None


def test_CP_01_share_control():
    """Without the layer the load is limited by the machine alone: on one with nothing else to do it takes more."""
    with arena.weakened("cpu") as env:
        p = cloche.start(["python", "--json", "--timeout", "10s", "-c", "print(1, flush=True)\n" + FORK_SPIN], env=env)
    time.sleep(1)
    quotas = [cpu_quota(pid) for pid in arena.descend(p.pid)]
    out, err = p.communicate(timeout=30)
    r = cloche.Result(p.args, p.returncode, out, err, 0, True)
    assert quotas and set(quotas) == {None}, quotas
    others = os.getloadavg()[0]
    assert r.usage["cpu_ms"] / r.usage["wall_ms"] > 0.6 or others > 2, (r.usage, others)


def test_CP_03_cpu_time():
    r = cloche.python("while True: pass", "--cpu-time", "300ms", "--timeout", "20s")
    assert r.reason == "cpu_time" and r.returncode == 124 and not r.timed_out, r
    assert 290 <= r.usage["cpu_ms"] < 800, r


def test_CP_03_cpu_time_control():
    r = cloche.python("while True: pass", "--timeout", "2s")
    assert r.reason == "timeout", r


def test_CP_05_sleep_and_idle():
    r = cloche.python("import time; time.sleep(99)", "--timeout", "1s")
    assert r.reason == "timeout" and r.timed_out and 1.0 <= r.seconds < 5, r
    idle = cloche.python("import time; time.sleep(99)", "--idle-timeout", "500ms", "--timeout", "10s")
    assert idle.reason == "idle_timeout" and not idle.timed_out and idle.seconds < 5, idle
    busy = cloche.python("import time\nwhile True: print('.', flush=True); time.sleep(0.2)", "--idle-timeout", "600ms", "--timeout", "2s")
    assert busy.reason == "timeout", busy


def test_CP_06_clock_step_changes_nothing():
    """The engine's clock is monotonic: a run is timed the same in a time namespace far from the host's."""
    r = cloche.python("import time; print(time.monotonic() < 60, time.clock_gettime(time.CLOCK_BOOTTIME) < 60); time.sleep(99)",
                      "--timeout", "1s")
    assert r.out == b"" or r.out == b"True True\n", r
    assert r.reason == "timeout" and r.seconds < 5, r


def test_CP_06_clocks_start_at_zero():
    r = cloche.python("import time; print(time.monotonic() < 60, time.clock_gettime(time.CLOCK_BOOTTIME) < 60)")
    assert r.out == b"True True\n", r


def test_CP_06_clocks_control():
    r = arena.inside("import time; print(time.monotonic() < 60, time.clock_gettime(time.CLOCK_BOOTTIME) < 60)", layers_off="time")
    assert r.out == b"False False\n", r


# ------------------------------------------------------------------------------------------------------------ disk


def test_DK_01_fill(tmp_path):
    """ENOSPC at the size, the program goes on, and the host's disk is as it was (others write to it too: three tries)."""
    changed = []
    for _ in range(3):
        before = os.statvfs("/").f_bavail
        r = arena.inside(arena.PRELUDE + """
def fill(path):
    n, f = 0, os.open(path, os.O_CREAT | os.O_WRONLY)
    try:
        while n < 1 << 10:
            os.write(f, bytes(1 << 20))
            n += 1
    finally:
        os.close(f)
        os.unlink(path)
fact('tmp', lambda: fill('/tmp/f'))
fact('shm', lambda: fill('/dev/shm/f'))
fact('out', lambda: fill('/output/f'))
say('went on', 'yes')
""", "--out", tmp_path / "out", "-m", "512m")
        assert arena.facts(r.out.decode()) == {"tmp": "ENOSPC", "shm": "ENOSPC", "out": "ENOSPC", "went on": "yes"}, r
        changed.append((before - os.statvfs("/").f_bavail) * os.statvfs("/").f_frsize >> 20)
        if abs(changed[-1]) < 50:
            return
    raise AssertionError(f"MiB of the host's disk: {changed}")


def test_DK_01_fill_control():
    r = cloche.python("open('/tmp/f', 'wb').write(bytes(100 << 20)); print('all')", "--tmpfs", "/tmp:size=128m", "--timeout", "20s")
    assert r.out == b"all\n", r


def test_DK_02_inodes_everywhere(tmp_path):
    """Every writable place ends with ENOSPC, not with the OOM killer."""
    r = arena.inside(arena.PRELUDE + """
def fill(d):
    os.mkdir(d)
    for n in range(200000):
        os.mknod(f'{d}/{n}')
for d in ('/dev/shm/d', '/output/d', '/tmp/d'):
    fact(d, lambda: fill(d))
""", "--out", tmp_path / "out", "--timeout", "60s", timeout=90)
    assert arena.facts(r.out.decode()) == {"/dev/shm/d": "ENOSPC", "/output/d": "ENOSPC", "/tmp/d": "ENOSPC"}, r


def test_DK_03_sparse(tmp_path):
    """A file of 8 EiB is refused; one of apparent 10 GiB does not come out, whatever little it holds."""
    out = tmp_path / "out"
    r = arena.inside(arena.PRELUDE + """
fact('8E', lambda: os.truncate('/output/f', (1 << 63) - 1) if not write('/output/f', b'', os.O_CREAT | os.O_WRONLY) else None)
fact('1G', lambda: os.truncate('/output/f', (1 << 30) - 1))
fact('fallocate', lambda: os.posix_fallocate(os.open('/output/g', os.O_CREAT | os.O_RDWR), 0, 1 << 29))
""", "--out", out)
    got = arena.facts(r.out.decode())
    assert got["8E"] in ("EFBIG", "EINVAL") and got["fallocate"] in ("ENOSPC", "EFBIG"), r
    size = sum(p.stat().st_blocks * 512 for p in out.rglob("*")) if out.exists() else 0
    assert size < 65 << 20, f"{size >> 20} MiB of the host's disk for a folder of 64 MiB"


def test_DK_03_sparse_control(tmp_path):
    f = tmp_path / "f"
    f.touch()
    os.truncate(f, 10 << 30)
    assert f.stat().st_blocks == 0


def test_DK_04_file_size():
    r = arena.inside(arena.PRELUDE + """
import resource
value('limit', lambda: resource.getrlimit(resource.RLIMIT_FSIZE)[1] <= 1 << 30)
def grow():
    f = os.open('/workspace/f', os.O_CREAT | os.O_WRONLY)
    os.lseek(f, 1 << 34, 0)
    os.write(f, b'x')
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
fact('16G', grow)
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
child('death', grow)
""")
    assert arena.facts(r.out.decode()) == {"limit": "True", "16G": "EFBIG", "death": "signal 25"}, r


def test_DK_04_file_size_control():
    r = arena.inside(arena.PRELUDE + """
def grow():
    f = os.open('/workspace/f', os.O_CREAT | os.O_WRONLY)
    os.lseek(f, 1 << 34, 0)
    os.write(f, b'x')
fact('16G', grow)
""", layers_off="rlimits")
    assert arena.facts(r.out.decode()) == {"16G": "ok"}, r


def test_DK_08_output_is_not_kept_anywhere():
    """A gigabyte of output leaves no file behind: not in our state, not in a log."""
    def size():
        return sum(p.stat().st_size for d in ("/var/lib/cloche", "/run/cloche", "/var/log") for p in Path(d).rglob("*") if p.is_file())
    before = size()
    r = cloche.run(["bash", "--timeout", "20s", "--cpus", "2", "-c", "head -c 1G /dev/zero"], timeout=40)
    assert r.output["stdout"]["bytes"] == 1 << 30 and r.output["stdout"]["kept"] == 65536, r.output
    assert size() - before < 1 << 20


def test_DK_09_state_on_a_full_disk():
    """No room for our state: one line, exit 125, nothing run."""
    done = subprocess.run(["unshare", "-m", "sh", "-c",
                           "mount -t tmpfs -o size=4k,nr_inodes=2 none /var/lib/cloche && exec \"$0\" run -- echo ran", cloche.binary()],
                          capture_output=True, env=cloche.environment(), stdin=subprocess.DEVNULL, timeout=30)
    assert done.returncode == 125 and done.stdout == b"" and done.stderr.startswith(b"cloche: "), done
    assert done.stderr.count(b"\n") == 1
    assert cloche.run(["run", "--", "true"]).returncode == 0


def test_DK_09_state_control():
    done = subprocess.run(["unshare", "-m", "sh", "-c",
                           "mount -t tmpfs -o size=64m none /var/lib/cloche && exec \"$0\" run -- echo ran", cloche.binary()],
                          capture_output=True, env=cloche.environment(), stdin=subprocess.DEVNULL, timeout=30)
    assert done.stdout == b"ran\n", done
