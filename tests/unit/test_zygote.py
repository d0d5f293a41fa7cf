# SPDX-License-Identifier: Apache-2.0
"""A prepared Python besides what its programs print: what siblings share, what a child leaves or can harm, what is refused."""
import ctypes
import os
import re
import signal
import struct
from pathlib import Path

import cloche
import proc
import pytest
import zygote

DRAWS = """
import random, ssl, sqlite3, tempfile, uuid, secrets, hashlib, os, multiprocessing, multiprocessing.synchronize, sys
print(os.getpid())
print(random.random())
print(ssl.RAND_bytes(8).hex())
print(uuid.uuid4())
print(uuid.uuid1())
print(next(tempfile._get_candidate_names()))
print(secrets.token_hex(8))
print(multiprocessing.current_process().authkey.hex())
print(multiprocessing.synchronize.SemLock._make_name())
print(sqlite3.connect(":memory:").execute("select hex(randomblob(8))").fetchone()[0])
print(os.urandom(8).hex())
"""
WHAT = ("pid", "random", "OpenSSL", "uuid4", "uuid1", "tempfile", "secrets", "authkey", "semaphore", "sqlite", "urandom")
DRAWN = ("random", "ssl", "sqlite3", "tempfile", "uuid", "secrets", "hashlib", "multiprocessing.synchronize")
NOBODY = struct.pack("=I", 65534)


@pytest.fixture(scope="module")
def plain():
    with zygote.Zygote() as one:
        yield one


@pytest.fixture(scope="module")
def apart():
    """Each child is PID 1 of a new pid namespace, and another user if asked."""
    cloche.need("root")
    with zygote.Zygote(joiner="pidns") as one:
        yield one


def fds(pid):
    return sorted(os.listdir(f"/proc/{pid}/fd"), key=int)


def memory_kb(pid):
    return next(int(line.split()[1]) for line in open(f"/proc/{pid}/status") if line.startswith("VmRSS"))


# ------------------------------------------------------------------------------------------------- siblings


def test_siblings_of_one_pid_draw_different_numbers():
    cloche.need("root")
    seen = {what: set() for what in WHAT}
    with zygote.Zygote(DRAWN, joiner="pidns") as one:
        # what a library would draw at its first use, drawn before the fork: the worst case
        for _ in range(1000):
            out, err, status = one.run(DRAWS)
            assert (err, status) == (b"", 0)
            for what, line in zip(WHAT, out.decode().split(), strict=True):
                seen[what].add(line)
    assert seen.pop("pid") == {"1"}, "the test is worth something only if all have one pid"
    assert {what: len(values) for what, values in seen.items()} == {what: 1000 for what in seen}


def test_siblings_draw_different_numbers_from_state_that_was_used(tmp_path):
    """The same with generators that the operator's module has used while it was imported."""
    cloche.need("root")
    (tmp_path / "used.py").write_text(
        "import random, ssl, tempfile, uuid, sqlite3, multiprocessing.synchronize as s\n"
        "random.random(); ssl.RAND_bytes(8); next(tempfile._get_candidate_names()); uuid.uuid1(); uuid.uuid4()\n"
        "s.SemLock._make_name(); sqlite3.connect(':memory:').execute('select randomblob(8)').fetchone()\n")
    seen = {what: set() for what in WHAT}
    with zygote.Zygote(("used", "multiprocessing"), joiner="pidns", env={**zygote.ENV, "PYTHONPATH": str(tmp_path)}) as one:
        for _ in range(50):
            for what, line in zip(WHAT, one.run(DRAWS)[0].decode().split(), strict=True):
                seen[what].add(line)
    assert seen.pop("pid") == {"1"}
    assert {what: len(values) for what, values in seen.items()} == {what: 50 for what in seen}


def test_numpy_siblings_differ():
    cloche.need("root")
    seen = set()
    with zygote.Zygote(("numpy",), joiner="pidns") as one:
        for _ in range(1000):
            out, err, status = one.run("import numpy as np; print(np.random.rand(), np.random.default_rng().random(), np.random.get_state()[2])")
            assert (err, status) == (b"", 0)
            legacy, new, position = out.split()
            assert position == b"1"
            seen |= {legacy, new}
    assert len(seen) == 2000


def test_numpy_works_after_the_fork():
    code = "import numpy as np\na = np.ones((400, 400))\nprint((a @ a).sum(), np.linalg.det(np.eye(3)))\n"
    with zygote.Zygote(("numpy",)) as one:
        for _ in range(3):
            assert one.run(code) == (b"64000000.0 1.0\n", b"", 0)
            assert one.run(code, warm=True) == (b"64000000.0 1.0\n", b"", 0)


def test_one_hash_seed_per_zygote(plain):
    code = "print(hash('a string'))"
    first = {plain.run(code)[0] for _ in range(5)}
    with zygote.Zygote() as other:
        second = {other.run(code)[0] for _ in range(5)}
    assert len(first) == len(second) == 1 and first != second


def test_string_hashes_differ_across_200_zygotes():
    seen = set()
    for _ in range(200):
        with zygote.Zygote() as one:
            out, err, status = one.run("print(hash('a string'), list({'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'}))")
        assert (err, status) == (b"", 0)
        seen.add(out)
    assert len(seen) == 200


def test_nothing_passes_from_one_to_the_next(plain):
    mark = ("import os, sys, builtins, string, signal, gc, locale, warnings\nos.kept = builtins.kept = sys.kept = 1\n"
            "os.environ['KEPT'] = '1'; os.putenv('KEPT2', '1'); string.digits = 'kept'; sys.path.append('/kept'); os.umask(0)\n"
            "os.chdir('/tmp'); signal.signal(signal.SIGUSR1, signal.SIG_IGN); sys.setrecursionlimit(99); print('set')")
    look = ("import os, sys, builtins, string, signal\nprint([hasattr(x, 'kept') for x in (os, sys, builtins)], 'KEPT' in os.environ,\n"
            "os.popen('echo $KEPT2').read(), string.digits, '/kept' in sys.path, os.getcwd(), signal.getsignal(10), sys.getrecursionlimit(), oct(os.umask(0)))")
    before = plain.run(look)
    assert plain.run(mark) == (b"set\n", b"", 0)
    assert plain.run(look) == before and before[2] == 0


# ---------------------------------------------------------------------------------------------- left behind


def test_a_hundred_children_leave_nothing(plain, tmp_path):
    env = {**plain.env, "TMPDIR": str(tmp_path)}
    for warm in (True, False):
        plain.run("print(1)", warm=warm)
    before, rss = fds(plain.pid), memory_kb(plain.pid)
    for i in range(100):
        assert plain.run("import os; print(os.getpid() > 0)", warm=i % 2 == 0, env=env, cwd=str(tmp_path)) == (b"True\n", b"", 0)
    assert fds(plain.pid) == before and proc.children(plain.pid) == []
    assert memory_kb(plain.pid) - rss < 512
    assert os.listdir(tmp_path) == []


def test_a_warmed_child_copies_little(plain):
    """Not the holes between all that was there (704 KiB with Debian's 3.11), but pools of its own and small pieces of code (500)."""
    child = plain.fork(warm=True)
    copied = re.search(r"^Private_Dirty: +(\d+) kB$", proc.of(child.pid, "smaps_rollup"), re.M)
    child.close()
    assert 100 < int(copied[1]) < 600


def test_a_child_that_is_not_needed_leaves_and_has_run_nothing(plain):
    child = plain.fork(warm=True)
    os.write(child.stdin, b"open('/dev/stderr', 'w').write('ran')")
    child.close_stdin()
    child.control.close()
    assert child.wait() == 0
    assert os.read(child.stdout, 10) == os.read(child.stderr, 10) == b""
    child.close()


def test_a_hundred_wait_and_each_runs_its_own(plain):
    waiting = [plain.fork(warm=i % 3 == 0) for i in range(100)]
    for i, child in reversed(list(enumerate(waiting))):
        assert child.run(f"print({i})") == (b"%d\n" % i, b"", 0)
    assert proc.children(plain.pid) == []


def test_the_zygote_dies_and_its_children_do_not():
    one = zygote.Zygote()
    running, waiting = one.fork(), one.fork()
    running.start()
    os.kill(one.pid, signal.SIGKILL)
    assert one.process.wait(zygote.DEADLINE) == 128 + signal.SIGKILL
    os.write(running.stdin, b"print('still here')")
    running.close_stdin()
    assert os.read(running.stdout, 100) == b"still here\n"
    assert os.read(running.stdout, 100) == b""
    waiting.control.close()
    assert os.read(waiting.stderr, 100) == b""  # and it is gone
    for child in (running, waiting):
        child.close()
    one.close()


def test_the_first_process_takes_the_zygote_along():
    one = zygote.Zygote()
    pidfd = os.pidfd_open(one.pid)
    one.process.kill()
    zygote.select.select([pidfd], [], [], zygote.DEADLINE)
    assert one.sock.recv(10) == b""
    os.close(pidfd)
    one.close()


def test_an_end_is_told_once_with_its_status_and_time(plain):
    child = plain.fork()
    out, err, status = child.run("import time\nwhile time.process_time() < 0.1: pass\nimport os; os.kill(os.getpid(), 15)")
    assert (out, err, status) == (b"", b"", -15)
    assert 90_000 < plain.cpu[child.sequence] < 5_000_000


# -------------------------------------------------------------------------------------------------- hostile

HOSTILE = {
    "kills all": "import os, signal\ntry: os.kill(-1, signal.SIGKILL)\nexcept OSError as e: print(e)",
    "kills its group": "import os, signal\nsignal.signal(15, signal.SIG_IGN)\nos.kill(0, signal.SIGTERM)",
    "kills its parent": "import os, signal\nprint(os.getppid())\ntry: os.kill(os.getppid(), signal.SIGTERM)\nexcept OSError as e: print(e)",
    "kills numbers": "import os, signal\nfor p in [*range(2, 70000), ZYGOTE, FIRST]:\n  try: os.kill(p, signal.SIGKILL)\n  except OSError: pass",
    "writes everywhere": "import os\nfor fd in range(3, 4096):\n  try: os.write(fd, b'x' * 64); print('wrote to', fd)\n  except OSError: pass",
    "reads everywhere": "import os\nfor fd in range(0, 4096):\n  try: os.set_blocking(fd, False); print(fd, os.read(fd, 64))\n  except OSError: pass",
    "forks fifty": "import os, time\nfor i in range(50):\n  if os.fork() == 0: time.sleep(1000)\nprint('forked')",
    "forks a tree": "import os\nfor i in range(6): os.fork()\n",
    "closes all": "import os\nos.closerange(0, 4096)",
    "exits in atexit": "import atexit, os\natexit.register(os._exit, 77)",
    "exec": "import os\nos.execv('/bin/true', ['true'])",
    "crashes": "import ctypes\nctypes.memset(0, 1, 1 << 20)",
    "stops itself": "import os, signal, threading\nthreading.Timer(0.1, lambda: None)\nif os.fork() == 0: os.kill(os.getppid(), signal.SIGCONT); os._exit(0)\nos.wait()",
    "eats memory": "import resource\nresource.setrlimit(resource.RLIMIT_AS, (1 << 28, 1 << 28))\nx = bytearray(1 << 30)",
    "another session": "import os\nif os.fork() == 0:\n  os.setsid()\n  import time; time.sleep(1000)\n",
    "finalizer of a frozen object": "import gc, os\ngc.unfreeze(); gc.collect(); gc.disable()\nos.__dict__.clear()",
    "breaks the interpreter": "import sys, builtins\nfor m in list(sys.modules): sys.modules[m] = None\nbuiltins.__dict__.clear()",
    "gc of everything": "import gc\ngc.set_threshold(1)\nx = [[] for _ in range(1000)]",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_child_does_not_hurt(name, apart):
    before = fds(apart.pid)
    code = HOSTILE[name].replace("ZYGOTE", str(apart.pid)).replace("FIRST", str(apart.process.pid))
    child = apart.fork(join=NOBODY)
    child.start()
    os.write(child.stdin, code.encode())
    child.close_stdin()
    status = child.wait()
    out, err = os.read(child.stdout, 1 << 16), os.read(child.stderr, 1 << 16)
    child.close()
    assert b"wrote to" not in out, out
    assert status == {"exits in atexit": 77, "crashes": -11, "eats memory": 1, "closes all": status}.get(name, status), err
    assert apart.run("print('fine')", join=NOBODY) == (b"fine\n", b"", 0)
    assert fds(apart.pid) == before and proc.children(apart.pid) == []


def test_a_hostile_child_without_isolation_sees_no_descriptor_of_the_zygote(plain):
    code = "import os\nprint({fd: os.readlink(f'/proc/self/fd/{fd}').split(':')[0] for fd in os.listdir('/proc/self/fd') if int(fd) < 3}, len(os.listdir('/proc/self/fd')))"
    assert plain.run(code) == (b"{'0': 'pipe', '1': 'pipe', '2': 'pipe'} 4\n", b"", 0)


def test_no_trace_of_us_in_the_interpreter(plain):
    code = ("import sys, os, gc\nprint([m for m in sys.modules if 'cloche' in m or 'zygote' in m], [k for k in os.environ if 'CLOCHE' in k.upper()])\n"
            "print(open('/proc/self/cmdline').read().split('\\0'), open('/proc/self/comm').read().strip())\n"
            "print(sorted(e.split('=')[0] for e in open('/proc/self/environ').read().split('\\0')))\n"
            "print([o for o in gc.get_objects() if 'zygote' in str(getattr(o, '__name__', ''))])")
    out, err, status = plain.run(code)
    assert out.decode().splitlines() == ["[] []", "['/usr/bin/python3', '-', ''] python3", str(sorted(["", *zygote.ENV])), "[]"], err


# ------------------------------------------------------------------------------------------------ hand-over


CODE_MAPPED = """
import ctypes, os, struct
code = ctypes.cast(ctypes.pythonapi.PyImport_ImportModule, ctypes.c_void_p).value
found, kind, huge = "", "", 0
for line in open("/proc/self/smaps"):
    first = line.split()[0]
    if not first.endswith(":"):
        low, high = (int(x, 16) for x in first.split("-"))
        kind = line.split()[1] if low <= code < high else ""
    elif kind and first == "AnonHugePages:":
        huge = int(line.split()[1])
        found = kind
print(found, huge)
with open("/proc/self/exe", "rb") as f:
    data = f.read()
path, base = os.readlink("/proc/self/exe"), 0
if data[16] == 3:  # it lies anywhere
    base = min(int(line.split("-")[0], 16) for line in open("/proc/self/maps") if line.endswith(path + "\\n"))
count, = struct.unpack_from("<H", data, 56)
size, differ = 0, []
for i in range(count):
    type, flags, offset, address, _, length, _, _ = struct.unpack_from("<IIQQQQQQ", data, 64 + 56 * i)
    if type == 1 and not flags & 2:
        size += length
        if ctypes.string_at(base + address, length) != data[offset:offset + length]:
            differ.append(i)
print(size > 4 << 20, differ)
"""


def has_huge_pages():
    """Whether this kernel gives one when asked."""
    libc = ctypes.CDLL(None)
    libc.mmap.restype, libc.mmap.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
    libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    at = (libc.mmap(None, 4 << 20, 3, 0x22, -1, 0) + (2 << 20) - 1) & -(2 << 20)
    ctypes.memset(at, 1, 2 << 20)
    return libc.madvise(at, 2 << 20, 25) == 0  # MADV_COLLAPSE


def test_the_interpreters_code_lies_in_huge_pages_and_is_what_its_file_says():
    """Whether there is a huge page may change between two looks."""
    for _ in range(5):
        with zygote.Zygote() as one:
            out, err, status = one.run(CODE_MAPPED)
        assert (err, status) == (b"", 0)
        huge, same = out.decode().splitlines()
        assert same == "True []"
        if huge == ("r-xp 2048" if has_huge_pages() else "r-xp 0"):
            return
    raise AssertionError(huge)


def test_limits_umask_and_directory(plain, tmp_path):
    code = "import os, resource as r\nprint(os.getcwd(), oct(os.umask(0)), r.getrlimit(r.RLIMIT_NOFILE), r.getrlimit(r.RLIMIT_CPU))"
    got = plain.run(code, cwd=str(tmp_path), umask=0o077, limits=((7, 32, 64), (0, 3, 5)))
    assert got == (f"{tmp_path} 0o77 (32, 64) (3, 5)\n".encode(), b"", 0)


def test_cpu_limit_ends_it(plain):
    assert plain.run("while True: pass", limits=((0, 1, 2),)) == (b"", b"", -signal.SIGXCPU)


def test_a_signal_before_the_code_is_the_codes(plain):
    child = plain.fork()
    os.kill(child.pid, signal.SIGTERM)
    assert child.run("print(1)") == (b"", b"", -signal.SIGTERM)
    child = plain.fork()
    os.kill(child.pid, signal.SIGINT)
    out, err, status = child.run("print(1)")
    assert status == -signal.SIGINT and b"KeyboardInterrupt" in err


@pytest.mark.parametrize("more, text", [
    ({"argv": ("-m", "this")}, "- or -c CODE, not -m"),
    ({"argv": ("-c",)}, "- or -c CODE"),
    ({"argv": ("/tmp/x.py",)}, "- or -c CODE"),
    ({"argv": ("-c", "'\udcff'")}, "not UTF-8"),
    ({"env": {**zygote.ENV, "PYTHONHASHSEED": "1"}}, "PYTHONHASHSEED has been read by the interpreter"),
    ({"env": {**zygote.ENV, "PATH": "/bin"}}, "PATH has been read"),
    ({"env": {**zygote.ENV, "LC_ALL": "C"}}, "LC_ALL has been read"),
    ({"env": {**zygote.ENV, "OMP_NUM_THREADS": "1"}}, "OMP_NUM_THREADS has been read by OpenMP"),
    ({"env": {"HOME": "/tmp", "LANG": "C.UTF-8"}}, "PATH has been read"),
    ({"cwd": "/there/is/none"}, "/there/is/none: No such file or directory"),
    ({"limits": ((7, 1, 1 << 40),)}, "limit 7 to"),
    ({"limits": ((99, 1, 1),)}, "limit 1 is none"),
    ({"limits": ((0, 2, 1),)}, "limit 1 is none"),
    ({"umask": 0o1000}, "umask 1000"),
    ({"env": {**zygote.ENV, "": "x"}}, "entry without a name"),
    ({"message": b""}, "gone"),
    ({"message": b"x" * 8}, "no RUN"),
    ({"message": b"x" * 4096}, "no RUN"),
    ({"message": struct.pack("=IIIIII", zygote.RUN, 1, 1, 0, 0o22, 0) + bytes(384) + b"/\0-"}, "no end"),
    ({"message": struct.pack("=IIIIII", zygote.RUN, 1, 2, 0, 0o22, 0) + bytes(384) + b"/\0-\0"}, "not as many"),
    ({"message": struct.pack("=IIIIII", zygote.RUN, 1, 1, 0, 0o22, 0) + bytes(384) + b"/\0-\0-\0"}, "not as many"),
    ({"message": struct.pack("=IIIIII", zygote.RUN, 1, 0xffffffff, 0xffffffff, 0o22, 0) + bytes(384) + b"/\0-\0"}, "arguments and"),
    ({"message": struct.pack("=IIIIII", zygote.RUN, 0, 1, 0, 0o22, 0) + bytes(384) + b"/\0-\0"}, "no RUN"),
    ({"message": struct.pack("=IIIIII", zygote.RUN, 1, 1, 0, 0o22, 17) + bytes(384) + b"/\0-\0"}, "17 limits"),
])
def test_a_hand_over_that_is_refused_runs_nothing(more, text, plain):
    child = plain.fork()
    os.write(child.stdin, b"print('ran')")
    with pytest.raises(zygote.Refused, match=text):
        child.start(**more)
    assert os.read(child.stdout, 10) == b""
    child.wait()
    child.close()


def test_the_longest_hand_over(plain):
    room = 100_000
    assert plain.run(b"", argv=("-c", f"print(len('{'x' * room}'))")) == (b"%d\n" % room, b"", 0)


# --------------------------------------------------------------------------------------------------- requests


def refused(one, text):
    message = one.message()
    assert zygote.HEADER.unpack_from(message)[0] == zygote.REFUSED
    assert text in str(zygote.refusal(message))


def test_wrong_requests_are_refused_and_keep_no_descriptor(plain):
    before = fds(plain.pid)
    null = os.open("/dev/null", os.O_RDWR)
    r, w = os.pipe()
    for count in (0, 1, 3, 5, 16):
        plain.send_fork([r] * count)
        refused(plain, "descriptors")
    for data in (b"", b"x", b"y" * 100, struct.pack("=II", zygote.RUN, 1), struct.pack("=IIIIII", zygote.FORK, 0, 0, 0, 0, 0),
                 struct.pack("=IIIIII", zygote.FORK, 5, 8, 0, 0, 0), struct.pack("=IIIIII", zygote.FORK, 5, 0, 0, 99, 0)):
        if data:
            plain.sock.send(data)
            refused(plain, "")
    plain.send_fork([r] * 4, join=b"x" * 1025)
    refused(plain, "joiner")
    for streams in ([null, w, w], [r, null, w], [r, w, null]):
        plain.send_fork([r, *streams])
        refused(plain, "of another kind")
    for fd in (null, r, w):
        os.close(fd)
    assert plain.run("print(1)") == (b"1\n", b"", 0)
    assert fds(plain.pid) == before


def module(folder, name, text):
    (folder / f"{name}.py").write_text(text)
    return {**zygote.ENV, "PYTHONPATH": str(folder)}


@pytest.mark.parametrize("text, said", [
    ("import there_is_none", "import mine: ModuleNotFoundError: No module named 'there_is_none'"),
    ("1 / 0", "import mine: ZeroDivisionError: division by zero"),
    ("raise SystemExit(3)", "import mine: SystemExit: 3"),
    ("x = (", "import mine: SyntaxError"),
    ("raise Exception('\\udc80')", "import mine: Exception: "),
    ("f = open('/dev/null')", r"keeps descriptor \d+ open \(/dev/null\)"),
    ("import sys; sys.stdout = None", "sys.stdout is not there"),
    ("import mmap; m = mmap.mmap(-1, 4096)", "shares memory that all children could write: .*rw-s"),
    ("import mmap; f = open('/etc/passwd', 'rb'); m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ); f.close()", r"keeps descriptor \d+ open \(/etc/passwd\)"),
    ("import sys; del sys.path[:]; sys.path = None", "sys.path"),
])
def test_a_module_that_cannot_be_prepared_is_named(text, said, tmp_path):
    with pytest.raises(zygote.Refused, match=said):
        zygote.Zygote(("json", "mine"), env=module(tmp_path, "mine", text))


def test_a_missing_module_is_named():
    with pytest.raises(zygote.Refused, match="import there_is_none: ModuleNotFoundError"):
        zygote.Zygote(("there_is_none",))


def test_what_a_module_prints_is_not_the_childrens(tmp_path):
    env = module(tmp_path, "mine", "import sys, ctypes\nprint('loud'); sys.stderr.write('louder')\nctypes.CDLL(None).printf(b'libc')\n")
    with zygote.Zygote(("mine",), env=env) as one:
        assert one.run("print(1)", env=env) == (b"1\n", b"", 0)
        assert sorted(os.read(one.out, 100).split()) == [b"libc", b"loud"]
        assert os.read(one.err, 100) == b"louder"


def test_modules_do_not_come_from_the_working_directory(tmp_path):
    (tmp_path / "colorsys.py").write_text("raise Exception('from the working directory')")
    with zygote.Zygote(("colorsys",), cwd=str(tmp_path)) as one:
        assert one.run("import colorsys, sys; print(colorsys.__file__, sys.path[0] == '')", cwd="/") == (
            b"/usr/lib/python3.11/colorsys.py True\n", b"", 0)


def test_a_thread_of_a_module_is_not_in_the_zygote(tmp_path):
    env = module(tmp_path, "mine", "import threading, time\nthreading.Thread(target=time.sleep, args=(1000,), daemon=True).start()\n")
    with zygote.Zygote(("mine",), env=env) as one:
        assert one.run("import threading; print(threading.active_count())", env=env) == (b"1\n", b"", 0)


def test_a_second_thread_stops_the_forks(tmp_path):
    env = module(tmp_path, "mine", "import os, threading, time\n"
                 "def start(): threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()\n"
                 "os.register_at_fork(after_in_child=start)\n")
    with zygote.Zygote(("mine",), env=env) as one:
        with pytest.raises(zygote.Refused, match="has 2 threads"):
            one.fork()


def test_the_operators_warm_up():
    code = "import sys\nprint(sys.modules.get('colorsys') is not None, 'x' in globals())\n"
    with zygote.Zygote(warm_up="import colorsys\nx = 1\nprint('dropped')\nimport sys\nprint('dropped', file=sys.stderr)") as one:
        assert one.run(code) == one.run(code, warm=True) == (b"True False\n", b"", 0)
    with zygote.Zygote(warm_up="import os\nif os.getppid() != 0 and 'N' in os.environ: 1 / 0\nos.environ['N'] = ''") as one:
        assert one.run(code, warm=True)[0] == b"False False\n"  # a failure in a child does not count
    for wrong, said in (("1 / 0", "warm-up: ZeroDivisionError"), ("x = (", "warm-up: SyntaxError"), ("exit(1)", "warm-up: SystemExit")):
        with pytest.raises(zygote.Refused, match=said):
            zygote.Zygote(warm_up=wrong)


@pytest.mark.parametrize("start, said", [
    (struct.pack("=IIII", zygote.START, 1, 99, 0), "version 99"),
    (struct.pack("=IIII", zygote.FORK, 1, 1, 0), "no START"),
    (b"x", "no START"),
    (struct.pack("=IIII", zygote.START, 1, 1, 1), "has no name"),
    (struct.pack("=IIII", zygote.START, 1, 1, 1) + b"json", "has no name"),
    (struct.pack("=IIII", zygote.START, 1, 1, 0) + b"x", "warm-up is not"),
    (struct.pack("=IIII", zygote.START, 1, 1, 0) + b"json\0\0", "warm-up is not"),
    (struct.pack("=IIII", zygote.START, 1, 1, 257) + b"a\0" * 257, "257 modules"),
])
def test_a_wrong_start_is_refused(start, said):
    with pytest.raises(zygote.Refused, match=said):
        zygote.Zygote(start=start)
