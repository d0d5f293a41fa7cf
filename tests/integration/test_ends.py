# SPDX-License-Identifier: Apache-2.0
"""Every reason a native run can end for, and that none is taken for another (CONTRACT "Ends", SECURITY-BASIS 4).

Runs as root on cgroup v1 here, and in a VM on v2 and hybrid hosts as root and as an ordinary user (tests/vm/test_v2.py).
Rows that need images, a service or other runtimes (image_missing as a result, killed, disk_quota, lost) are unit tests of
the judge: tests/unit.
"""
import os
import signal
import time

import cloche
import pytest
import shape
from shape import SLOW

pytestmark = pytest.mark.needs("native", "python")

LONG = ["--timeout", f"{20 * SLOW}s"]
FAST = ["--cpus", "2", *LONG]
HOG = "x = [0] * 10**8"  # 800 MB, each page written
HOG_CHILD = f"/usr/bin/python3 -c '{HOG}'"


def sh(script, *options, **kw):
    return cloche.run(["run", *options, "--", "bash", "-c", script], timeout=60 * SLOW, **kw)


def py(code, *options, **kw):
    return cloche.run(["python", *options, "-c", code], timeout=60 * SLOW, **kw)


# ------------------------------------------------------------------------------------------- the command's own answer


@pytest.mark.parametrize("status", [0, 1, 2, 7, 124, 125, 126, 127, 128, 130, 137, 139, 143, 159, 255])
def test_exit_status_is_the_commands(status):
    """The statuses that others use for ends of their own, too."""
    r = sh(f"exit {status}")
    shape.exited(r, status)
    assert not r.timed_out and r.oom_kills == 0 and r.limits_hit == []
    assert r.message == ("the command succeeded" if status == 0 else f"the command ended with exit code {status}")
    if status:
        assert r.model_message == f"The command ended with exit code {status}."


@pytest.mark.parametrize("script, number", [
    ("kill -9 $$", 9), ("kill -15 $$", 15), ("kill -INT $$", 2), ("kill -HUP $$", 1), ("kill -USR1 $$", 10),
    ("exec /usr/bin/python3 -c 'import ctypes; ctypes.string_at(0)'", 11),
    ("exec /usr/bin/python3 -c 'import os; os.abort()'", 6),
    ("ulimit -f 1; exec head -c 100000 /dev/zero >/workspace/file", 25),
    ("kill -34 $$", 34),
])
def test_signals_are_the_commands(script, number):
    """It is not PID 1: default actions hold, abort is SIGABRT."""
    r = sh(script, *FAST)
    shape.check_reason(r, "signaled")
    assert r.signal == number and r.returncode == 128 + number
    assert r.oom_kills == 0 and not r.timed_out and r.limits_hit == []
    assert r.model_message == f"The command was ended by signal {number}."


@pytest.mark.parametrize("options, reason", [([], "signaled"), (["--cpu-time", "60s"], "cpu_time")])
def test_sigxcpu(options, reason):
    """From the program's own soft limit; a CPU limit of ours makes it ours."""
    r = sh("ulimit -S -t 1; while :; do :; done", *FAST, *options)
    shape.check_reason(r, reason)
    assert r.signal == signal.SIGXCPU


def test_sigterm_trapped():
    r = sh("trap 'exit 3' TERM; kill $$; while :; do :; done", *LONG)
    shape.exited(r, 3)


def test_sigterm_ignored():
    r = sh("trap '' TERM; kill $$; echo alive", *LONG)
    shape.exited(r, 0)
    assert r.out == b"alive\n"


def test_signals_start_at_their_defaults():
    """A program sees neither our mask nor what we ignore."""
    r = sh("grep -E '^Sig(Blk|Ign)' /proc/self/status; yes | head -n 1; echo ${PIPESTATUS[0]}")
    assert r.out.split() == [b"SigBlk:", b"0" * 16, b"SigIgn:", b"0" * 16, b"y", b"141"]


def test_killed_from_outside_is_a_signal(must_work):
    """SIGKILL of the command by the host's root, with no verdict of ours and no OOM: told as what it was."""
    must_work("root")
    p = cloche.start(["run", "--json", *LONG, "sleep", "300"])
    os.kill(shape.wait_for_process(p.pid, "sleep"), signal.SIGKILL)
    r = shape.finish(p)
    shape.check_reason(r, "signaled")
    assert r.signal == 9 and r.oom_kills == 0


# ------------------------------------------------------------------------------------------------------------- memory


def test_oom_of_the_command():
    r = py(HOG, *FAST)
    shape.check_reason(r, "oom")
    assert r.oom_kills >= 1 and r.limits_hit == ["memory"] and r.signal == 9
    assert 250 << 20 <= r.usage["memory_peak_bytes"] <= 256 << 20
    assert r.model_message == "The code used more memory than it may."


@pytest.mark.parametrize("status", [0, 1])
def test_oom_of_a_child_only(status):
    """The command lived and had its own answer."""
    r = sh(f"{HOG_CHILD}; echo child $?; exit {status}", *FAST)
    shape.exited(r, status)
    assert r.out == b"child 137\n"
    assert r.oom_kills >= 1 and r.limits_hit == ["memory"]


def test_oom_by_files():
    """Files in memory count."""
    r = sh("exec dd if=/dev/zero of=/workspace/file bs=1M count=200", "--memory", "64m", *FAST)
    shape.check_reason(r, "oom")
    assert r.oom_kills >= 1 and r.limits_hit == ["memory"]


def test_no_swap():
    """Memory limit = memory plus swap: what is over it does not go elsewhere."""
    r = py("x = bytearray(b'x' * (100 << 20))", "--memory", "64m", *FAST)
    shape.check_reason(r, "oom")
    assert r.usage["memory_peak_bytes"] <= 64 << 20
    assert r.enforced["swap"] != "none"


def test_much_memory_below_the_limit():
    r = py("x = bytearray(b'x') * (100 << 20); print(len(x))", *FAST)
    shape.exited(r, 0)
    assert r.oom_kills == 0 and r.limits_hit == []
    assert 100 << 20 <= r.usage["memory_peak_bytes"] < 160 << 20


# -------------------------------------------------------------------------------------------------------------- clocks


@pytest.mark.parametrize("script", [
    "sleep 300",
    "trap '' TERM INT HUP QUIT; while :; do sleep 1; done",
    "exec /usr/bin/python3 -c 'while True: pass'",
    "setsid sh -c 'trap \"\" TERM HUP; exec sleep 1000' & sleep 1000",
    "kill -STOP $$",
])
def test_timeout(script, no_leftovers):
    """Whatever the code thinks of signals; what it put into sessions of its own dies, too."""
    r = sh(script, "--timeout", "500ms")
    shape.check_reason(r, "timeout")
    assert r.timed_out and r.exit_code is None and r.signal is None
    assert 500 <= r.usage["wall_ms"] < 500 + 1500 * SLOW
    assert r.message == "stopped after 0.5 s of wall time"


def test_timeout_keeps_what_came_before():
    r = sh("echo partial; echo wrong >&2; sleep 99", "--timeout", f"{SLOW * 500}ms")
    shape.check_reason(r, "timeout")
    assert (r.out, r.err) == (b"partial\n", b"wrong\n")


def test_an_exit_at_the_limit_wins():
    """A command that ends just before its time is judged by its exit."""
    r = sh("exit 5", "--timeout", f"{SLOW}s")
    shape.exited(r, 5)


def test_cpu_time():
    r = py("while True: pass", "--cpu-time", "300ms", *FAST)
    shape.check_reason(r, "cpu_time")
    assert not r.timed_out
    assert 300 <= r.usage["cpu_ms"] < 300 + 100 * SLOW
    assert r.message == "stopped after 0.3 s of CPU time"


def test_cpu_time_of_all_processes_together():
    r = sh("for i in 1 2 3; do while :; do :; done & done; wait", "--cpu-time", "500ms", *FAST)
    shape.check_reason(r, "cpu_time")
    assert 500 <= r.usage["cpu_ms"] < 500 + 150 * SLOW


def test_sleep_is_no_cpu_time():
    r = sh("sleep 0.5", "--cpu-time", f"{400 * SLOW}ms", *LONG)
    shape.exited(r, 0)


def test_idle_timeout():
    r = sh("echo hi; sleep 300", "--idle-timeout", f"{400 * SLOW}ms", *LONG)
    shape.check_reason(r, "idle_timeout")
    assert r.out == b"hi\n" and not r.timed_out
    assert 400 * SLOW <= r.usage["wall_ms"] < 400 * SLOW + 2000 * SLOW


@pytest.mark.parametrize("stream", [1, 2])
def test_output_is_no_idleness(stream):
    r = sh(f"for i in 1 2 3 4 5 6; do echo . >&{stream}; sleep 0.2; done", "--idle-timeout", f"{700 * SLOW}ms", *LONG)
    shape.exited(r, 0)


# -------------------------------------------------------------------------------------------------------------- output


def test_flood_is_dropped_and_counted():
    r = sh("exec head -c 20000000 /dev/zero", *FAST)
    shape.exited(r, 0)
    assert r.output["stdout"] == {"bytes": 20_000_000, "kept": 65_536, "dropped": 20_000_000 - 65_536}
    assert r.out == bytes(65_536) and r.encoding == "utf-8" and r.limits_hit == ["output"]


def test_endless_flood_of_lines_ends_by_the_clock():
    r = sh("exec yes 1234567890", "--timeout", "1s")
    shape.check_reason(r, "timeout")
    assert r.limits_hit == ["output"]
    assert r.out == (b"1234567890\n" * 6000)[:65536]
    assert r.output["stdout"]["bytes"] > 100_000


@pytest.mark.parametrize("script", ["exec yes 1234567890", "exec head -c 1T /dev/zero", "exec yes >&2"])
def test_flood_can_kill(script):
    r = sh(script, "--on-output-limit", "kill", *LONG)
    shape.check_reason(r, "output_limit")
    assert r.limits_hit == ["output"]
    assert r.message == "stopped for printing more than 65536 bytes"
    assert max(len(r.out), len(r.err)) == 65536


@pytest.mark.parametrize("to", ["", ">&2"], ids=["stdout", "stderr"])
def test_one_byte_over_the_limit_and_gone(to, no_leftovers):
    """Written before the end counts before the end: both are there when a supervisor that was stopped looks again."""
    p = cloche.start(["run", "--json", "--max-output", "10", "--on-output-limit", "kill", *LONG,
                      "bash", "-c", f"sleep {SLOW / 2}; printf 12345678901 {to}"])
    shape.wait_for_process(p.pid, "sleep")
    os.kill(p.pid, signal.SIGSTOP)
    time.sleep(1.5 * SLOW)
    os.kill(p.pid, signal.SIGCONT)
    shape.check_reason(shape.finish(p), "output_limit")


def test_output_at_the_limit_is_not_over_it():
    r = sh("head -c 65536 /dev/zero", "--on-output-limit", "kill", *LONG)
    shape.exited(r, 0)
    assert r.limits_hit == [] and r.output["stdout"] == {"bytes": 65536, "kept": 65536, "dropped": 0}


# -------------------------------------------------------------------------------------------------- processes and disk

FORKS = """
import os, time
n = 0
for _ in range(100):
    try:
        pid = os.fork()
    except BlockingIOError:
        break
    if pid == 0:
        time.sleep(300)
    n += 1
print(n)
"""


def test_pids():
    r = py(FORKS, "--pids-limit", "16", *LONG)
    shape.exited(r, 0)
    assert r.out == b"15\n", r
    assert r.limits_hit == ["pids"]
    assert r.usage["pids_peak"] in (None, 16)


def test_pids_not_met():
    r = py(FORKS.replace("range(100)", "range(10)"), "--pids-limit", "16", *LONG)
    shape.exited(r, 0)
    assert r.out == b"10\n" and r.limits_hit == []


def test_zombies_are_reaped():
    """Orphans do not fill the limit (RIVALS 5)."""
    r = sh("for i in $(seq 300); do (true &) ; done; sleep 0.5; echo ok", "--pids-limit", "32", *FAST)
    shape.exited(r, 0)
    assert r.out == b"ok\n" and r.err == b""


@pytest.mark.parametrize("place, size", [("/tmp", 64), ("/workspace", 256), ("/dev/shm", 16)])
def test_full_disk(place, size):
    code = f"""
import errno, os, time
f, n = os.open("{place}/file", os.O_CREAT | os.O_WRONLY), 0
try:
    while True:
        n += os.write(f, bytes(1 << 20))
except OSError as e:
    print(errno.errorcode[e.errno], n >> 20)
time.sleep({0.6 if SLOW == 1 else 1.5})
os.unlink("{place}/file")
"""
    r = py(code, "--memory", "512m", *FAST)
    shape.exited(r, 0)
    assert r.out == f"ENOSPC {size}\n".encode()
    assert r.limits_hit == ["disk"]


def test_full_inodes():
    code = f"""
import errno, time
try:
    for i in range(1000):
        open(f"/data/{{i}}", "w").close()
except OSError as e:
    print(errno.errorcode[e.errno], i)
time.sleep({0.6 if SLOW == 1 else 1.5})
"""
    r = py(code, "--tmpfs", "/data:size=1m,inodes=50", *FAST)
    shape.exited(r, 0)
    assert r.out == b"ENOSPC 49\n"  # the folder itself is one
    assert r.limits_hit == ["inodes"]


# ------------------------------------------------------------------------------------------------- what does not start

SCRIPTS = {  # name: (text, mode, status, words)
    "no-interpreter": (b"#!/nonexistent/interpreter\necho hi\n", 0o755, 127, "No such file or directory"),
    "not-executable": (b"#!/bin/sh\necho hi\n", 0o644, 126, "Permission denied"),
    "no-format": (b"neither a script nor a program\n", 0o755, 126, "Exec format error"),
}


def not_started(r, status, message, model="The command could not be found or is not executable."):
    shape.check_shape(r)
    assert (r.reason, r.error_code, r.stage) == ("create_failed", "SANDBOX_CREATE_FAILED", "exec"), r
    assert r.returncode == status and r.retryable is False
    assert r.message == message and r.model_message == model
    assert r.exit_code is None and r.signal is None and (r.out, r.err) == (b"", b"")


@pytest.mark.parametrize("command, status, message", [
    ("nosuchcommand", 127, "nosuchcommand: No such file or directory"),
    ("/usr/bin/nosuchcommand", 127, "/usr/bin/nosuchcommand: No such file or directory"),
    ("/usr/bin/env/below", 127, "/usr/bin/env/below: Not a directory"),
    ("/etc/passwd", 126, "/etc/passwd: Permission denied"),
    ("/usr", 126, "/usr: Permission denied"),
    ("./nosuch", 127, "./nosuch: No such file or directory"),
])
def test_missing_command(command, status, message):
    not_started(cloche.run(["run", command]), status, message)


@pytest.mark.parametrize("name", SCRIPTS)
def test_script_that_cannot_start(name, tmp_path):
    text, mode, status, words = SCRIPTS[name]
    (tmp_path / name).write_bytes(text)
    (tmp_path / name).chmod(mode)
    r = cloche.run(["run", "--in", tmp_path / name, f"./{name}"])
    not_started(r, status, f"./{name}: {words}")


def test_missing_command_without_json():
    r = cloche.run(["run", "nosuchcommand"], json=False)
    shape.plain_error(r, 127, "nosuchcommand: No such file or directory")


def test_missing_folder():
    r = cloche.run(["run", "--workdir", "/nowhere", "true"])
    shape.check_reason(r, "create_failed")
    assert r.stage == "cwd" and r.message == "/nowhere: No such file or directory"
    shape.plain_error(cloche.run(["run", "--workdir", "/nowhere", "true"], json=False), 125, "cwd: /nowhere: No such file")


def test_input_that_does_not_fit(tmp_path):
    (tmp_path / "big").write_bytes(bytes(2 << 20))
    r = cloche.run(["run", "--tmpfs", "/workspace:size=1m", "--in", tmp_path / "big", "true"])
    shape.check_reason(r, "create_failed")
    assert r.stage == "files" and r.message == "/workspace/big: No space left on device"


# ------------------------------------------------------------------------------------------------------------- seccomp


@pytest.mark.parametrize("code", ["b8140000 00cd80c3", "b8140000 400f05c3"], ids=["int 0x80", "x32"])
def test_seccomp_death(code):
    """getpid by the entrances of other architectures."""
    r = py(f"""
import ctypes, mmap
m = mmap.mmap(-1, 4096, prot=7)
m.write(bytes.fromhex("{code.replace(' ', '')}"))
print("before", flush=True)
ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(m)))()
print("after", flush=True)
""", *LONG)
    shape.check_reason(r, "seccomp_violation")
    assert r.signal == signal.SIGSYS and r.out == b"before\n"
    assert r.model_message == "The command made a system call that is not allowed."


def test_the_same_call_by_the_front_door():
    """Positive control of the test above: machine code of this kind runs."""
    r = py("""
import ctypes, mmap, os
m = mmap.mmap(-1, 4096, prot=7)
m.write(bytes.fromhex("b8270000000f05c3"))
print(ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(m)))() == os.getpid())
""", *LONG)
    shape.exited(r, 0)
    assert r.out == b"True\n"


# --------------------------------------------------------------------------------------------- ended by others than it


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_cancelled(number, no_leftovers):
    p = cloche.start(["run", "--json", *LONG, "--", "bash", "-c", "echo hi; trap '' INT TERM HUP; sleep 300 & wait"])
    shape.wait_for_process(p.pid, "sleep")
    began = time.monotonic()
    p.send_signal(number)
    r = shape.finish(p)
    shape.check_reason(r, "cancelled")
    assert r.out == b"hi\n" and not r.timed_out
    assert time.monotonic() - began < 5 * SLOW


def test_cancelled_without_json():
    p = cloche.start(["run", *LONG, "--", "sh", "-c", "echo hi; sleep 300"])
    assert p.stdout.readline() == b"hi\n"
    p.send_signal(signal.SIGINT)
    r = shape.finish(p, json=False)
    shape.plain_error(r, 130, "the run was ended by its caller")


def test_init_killed_from_outside(must_work, no_leftovers):
    must_work("root")
    p = cloche.start(["run", "--json", *LONG, "sleep", "300"])
    shape.wait_for_process(p.pid, "sleep")
    (init, name), = shape.children(p.pid)
    os.kill(init, signal.SIGKILL)
    r = shape.finish(p)
    shape.check_reason(r, "runtime_crash")
    assert r.message == "the sandbox's init ended without a report" and r.exit_code is None
    assert r.model_message == "The sandbox failed."


def test_init_stopped_from_outside_does_not_stop_the_clock(must_work, no_leftovers):
    must_work("root")
    p = cloche.start(["run", "--json", "--timeout", f"{1 if SLOW == 1 else 3}s", "sleep", "300"])
    shape.wait_for_process(p.pid, "sleep")
    os.kill(shape.children(p.pid)[0][0], signal.SIGSTOP)
    shape.check_reason(shape.finish(p), "timeout")


# ----------------------------------------------------------------------------------------------------------- who says so


def test_what_is_enforced():
    r = cloche.run(["run", "true"])
    shape.exited(r, 0)
    e = r.enforced
    mechanism = f"cgroup-v{cloche.cgroup_version()}"
    assert [e[k] for k in ("memory", "cpu", "pids")] == [mechanism] * 3
    assert e["swap"] in (mechanism, "host has no swap")
    assert e["rootless"] == (os.geteuid() != 0)
    assert (e["runtime"], e["uid"], e["user_namespace"], e["no_new_privs"]) == ("native", 65534, True, True)
    assert (e["network"], e["network_denials"], e["rootfs"]) == ("netns", "not observed", "read-only overlay")
    assert (e["disk"], e["capabilities"]) == ("tmpfs size+inodes", "none")
    assert len(e["seccomp"]) == len("sha256:") + 64 and e["seccomp"].startswith("sha256:")
    assert e["landlock"] >= 1


def test_nothing_is_invented():
    """What is measured has the size of what was done."""
    r = py("x = bytearray(b'x') * (50 << 20)\nimport time\nb = time.process_time()\nwhile time.process_time() - b < .3: pass", *FAST)
    shape.exited(r, 0)
    u = r.usage
    assert 50 << 20 <= u["memory_peak_bytes"] <= 120 << 20
    assert 300 <= u["cpu_ms"] < 300 + 500 * SLOW
    assert 300 <= u["wall_ms"] <= r.seconds * 1000
    assert u["pids_peak"] is None or 1 <= u["pids_peak"] <= 3


def test_cpu_limit_holds():
    """Half a processor for two seconds is one; an emulator's clock is coarse, but a whole one would be two."""
    r = py("while True: pass", "--cpus", "0.5", "--timeout", "2s")
    shape.check_reason(r, "timeout")
    assert r.usage["cpu_ms"] < (1250 if SLOW == 1 else 1900)
