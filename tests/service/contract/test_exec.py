# SPDX-License-Identifier: Apache-2.0
"""One command in a kept sandbox: what it got, what it wrote, how it ended; and that the sandbox is still there."""
import base64
import os
import time

import pytest
from contract import at_once, exited, until

EATER = "b = bytearray()\nwhile True: b += b'x' * 1000000"


@pytest.mark.parametrize("status", [0, 1, 7, 42, 124, 125, 126, 127, 137, 255])
def test_exit_codes_are_the_commands_own(box, status):
    r = exited(box.exec(["sh", "-c", f"exit {status}"]), status)
    assert r.sandbox == box.id and r.signal is None and r.limits_hit == [] and r.oom_kills == 0


@pytest.mark.parametrize("name, number", [("TERM", 15), ("KILL", 9), ("SEGV", 11), ("ABRT", 6), ("USR1", 10)])
def test_signals_of_its_own(box, name, number):
    r = box.sh(f"kill -{name} $$")
    assert (r.reason, r.signal, r.error_code) == ("signaled", number, "COMMAND_FAILED")


def test_a_string_is_for_the_shell(box):
    assert exited(box.exec("echo $((6 * 7)) | tr 4 5")).out == b"52\n"


def test_arguments_are_not(box):
    words = ["$HOME", "a b", "", "*", "\n", "'\"", "ü", "\U0001f514"]
    r = exited(box.exec(["python3", "-c", "import sys; print(ascii(sys.argv[1:]))", *words]))
    assert r.out.decode() == ascii(words) + "\n"


@pytest.mark.parametrize("language, code, out", [("python", "import sys; print(sys.argv[1:], 6 * 7)", b"['a', 'b'] 42\n"),
                                                 ("bash", "echo \"$@\" $((6 * 7))", b"a b 42\n")])
def test_code(box, language, code, out):
    assert exited(box.exec(language=language, code=code, args=["a", "b"])).out == out


def test_out_of_memory_of_the_command(boxes):
    box = boxes(memory="64m")
    r = box.python(EATER)
    assert (r.reason, r.error_code, r.exit_code) == ("oom", "SANDBOX_OOM", None) and r.oom_kills >= 1
    assert exited(box.exec(["echo", "alive"])).out == b"alive\n"
    assert box.object()["state"] == "running"


def test_out_of_memory_of_a_child_only(boxes):
    box = boxes(memory="64m")
    r = box.exec(["sh", "-c", "python3 -c \"$0\"; echo $?; exit 3", EATER])
    exited(r, 3)
    assert r.out == b"137\n" and r.oom_kills >= 1 and "memory" in r.limits_hit


def test_an_earlier_oom_is_not_blamed_on_a_later_command(boxes):
    box = boxes(memory="64m")
    assert box.python(EATER).reason == "oom"
    r = box.sh("kill -9 $$")
    assert (r.reason, r.signal, r.oom_kills) == ("signaled", 9, 0)


def test_timeout_kills_the_command_and_its_session(box):
    r = box.sh("trap '' TERM; sleep 98 & sleep 99", timeout=0.5)
    assert (r.reason, r.error_code, r.timed_out) == ("timeout", "SANDBOX_COMMAND_TIMEOUT", True)
    assert 400 < r.usage["wall_ms"] < 5000
    until(lambda: box.everything() == [], what="the end of the session")
    assert exited(box.exec(["echo", "alive"])).out == b"alive\n"


def test_output_before_a_timeout_is_kept(box):
    r = box.sh("echo first; echo second >&2; sleep 100", timeout=0.5)
    assert (r.reason, r.out, r.err) == ("timeout", b"first\n", b"second\n")


@pytest.mark.parametrize("command, word", [(["nosuch-command"], "o such file"), (["/workspace/nosuch"], "o such file"),
                                           (["/usr/nosuch/x"], "o such file"), (["/etc/passwd"], "ermission"),
                                           (["/usr"], "ermission")])
def test_what_cannot_be_executed(box, command, word):
    r = box.exec(command)
    assert (r.reason, r.stage, r.error_code, r.retryable) == ("create_failed", "exec", "SANDBOX_CREATE_FAILED", False)
    assert word in r.message and (r.exit_code, r.signal) == (None, None)
    exited(box.exec(["true"]))


def test_a_shell_that_finds_nothing_says_so_itself(box):
    r = exited(box.exec("nosuch-command"), 127)
    assert b"not found" in r.err


def test_a_forbidden_system_call_is_a_reason(box):
    r = box.python("import ctypes; ctypes.CDLL(None).syscall(0x40000000 + 39)")  # an x32 number: killed
    assert (r.reason, r.error_code) == ("seccomp_violation", "COMMAND_FAILED")
    exited(box.exec(["true"]))


def test_environment_has_the_defaults_the_sandboxes_and_the_commands(boxes):
    box = boxes(env={"A": "sandbox", "B": "sandbox"})
    r = exited(box.exec(["env", "-0"], env={"B": "command", "C": "x=y\nz ü"}))
    env = dict(entry.split("=", 1) for entry in r.out.decode().strip("\0").split("\0"))
    assert env["HOME"] == "/tmp" and env["PATH"] == "/usr/local/bin:/usr/bin:/bin" and env["LANG"] == "C.UTF-8"
    assert (env["A"], env["B"], env["C"]) == ("sandbox", "command", "x=y\nz ü")
    assert set(env) <= {"HOME", "PATH", "LANG", "A", "B", "C", "PWD", "SHLVL", "_", "NODE_OPTIONS", "JAVA_TOOL_OPTIONS"}


def test_workdir(box):
    assert exited(box.exec(["pwd"])).out == b"/workspace\n"
    assert exited(box.exec(["pwd"], workdir="/usr/bin")).out == b"/usr/bin\n"
    r = box.exec(["pwd"], workdir="/workspace/nosuch")
    assert r.reason == "create_failed" and "/workspace/nosuch" in r.message
    for bad in ("tmp", "/proc/self/fd/3", "/dev", "/a/../b", ""):
        box.problem(400, "INVALID_REQUEST", "POST", "/exec", json={"command": ["pwd"], "workdir": bad})


def test_stdin(box):
    assert exited(box.exec(["cat"], stdin="zwölf\n")).out == "zwölf\n".encode()
    every = bytes(range(256)) * 3
    r = exited(box.exec(["cat"], stdin_base64=base64.b64encode(every).decode()))
    assert (r.out, r.encoding) == (every, "base64")
    assert exited(box.exec(["cat"])).out == b""
    box.problem(400, "INVALID_REQUEST", "POST", "/exec", json={"language": "python", "code": "1",
                                                               "stdin": "x"})  # the code is the input
    for bad in ({"stdin": "x",
                 "stdin_base64": "eA=="}, {"stdin_base64": "***"}, {"stdin_base64": "eA"}, {"stdin": 1}, {"stdin": True}):
        box.problem(400, "INVALID_REQUEST", "POST", "/exec", json={"command": ["cat"], **bad})


def test_a_megabyte_of_stdin(box):
    data = os.urandom(1 << 20)
    r = exited(box.exec(["sha256sum"], stdin_base64=base64.b64encode(data).decode()))
    import hashlib
    assert r.out.split()[0].decode() == hashlib.sha256(data).hexdigest()


def test_stdin_that_nobody_reads(box):
    exited(box.exec(["true"], stdin="x" * 300000))


def test_output_is_capped_exactly(box):
    r = exited(box.python("import sys; sys.stdout.write('x' * 5000); sys.stderr.write('e' * 999)", max_output=1000))
    assert r.out == b"x" * 1000 and r.err == b"e" * 999
    assert r.output == {
        "stdout": {"bytes": 5000, "kept": 1000, "dropped": 4000}, "stderr": {"bytes": 999, "kept": 999, "dropped": 0}
    }
    assert r.limits_hit == ["output"]


def test_output_default_cap_and_unlimited(box):
    code = "print('y' * 199999)"
    r = exited(box.python(code))
    assert len(r.out) == 65536 and r.output["stdout"] == {"bytes": 200000, "kept": 65536, "dropped": 134464}
    r = exited(box.python(code, max_output="unlimited"))
    assert r.out == b"y" * 199999 + b"\n" and r.limits_hit == []


def test_a_cap_inside_a_character_cuts_at_its_boundary(box):
    r = exited(box.python("print('é' * 1000, end='')", max_output=999))
    assert r.encoding == "utf-8" and r.out == "é".encode() * 499
    assert r.output["stdout"] == {"bytes": 2000, "kept": 998, "dropped": 1002}


def test_bytes_that_are_no_text(box):
    r = exited(box.python("import sys; sys.stdout.buffer.write(bytes(range(256))); sys.stderr.write('text')"))
    assert (r.encoding, r.out, r.err) == ("base64", bytes(range(256)), b"text")


def test_fifty_at_the_same_time(boxes):
    box = boxes(pids_limit=400, cpus=2, memory="512m")
    results = at_once(lambda i: box.sh(f"echo out {i}; echo err {i} >&2; exit {i}"), range(50))
    for i, r in enumerate(results):
        exited(r, i)
        assert (r.out, r.err) == (f"out {i}\n".encode(), f"err {i}\n".encode())
    assert len({r.id for r in results}) == 50


def test_files_stay_and_shells_do_not(box):
    exited(box.sh("cd /tmp; export X=1; echo kept > /workspace/f; echo kept > /tmp/f"))
    assert exited(box.sh("pwd; echo \"$X\"; cat /workspace/f /tmp/f")).out == b"/workspace\n\nkept\nkept\n"


def test_what_a_command_leaves_running_goes_on_and_nobody_waits_for_it(box):
    began = time.monotonic()
    r = exited(box.sh("sleep 97 & echo done"))
    assert r.out == b"done\n" and time.monotonic() - began < 10
    until(lambda: any(p["command"].strip() == "sleep 97" for p in box.everything()), what="what was left running")


def test_two_sandboxes_know_nothing_of_each_other(boxes):
    a, b = boxes(), boxes()
    places = "/workspace /tmp /dev/shm"
    exited(a.sh(f"for d in {places}; do echo secret > $d/mark; done"))
    a.start(["python3", "-m", "http.server", "--bind", "127.0.0.1", "8123"])
    until(lambda: exited(a.sh("exec 3<>/dev/tcp/127.0.0.1/8123 && echo up; true")).out == b"up\n", what="the server")
    assert exited(b.sh(f"for d in {places}; do [ ! -e $d/mark ] || echo $d; done")).out == b""
    assert box_sees(b) == []
    assert b"efused" in b.sh("exec 3<>/dev/tcp/127.0.0.1/8123").err
    assert exited(a.exec(["hostname"])).out == exited(b.exec(["hostname"])).out == b"sandbox\n"


def box_sees(box):
    r = exited(box.sh("for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline; echo; done"))
    return [line for line in r.out.decode().splitlines() if "http.server" in line]


def test_the_run_can_be_read_again(box):
    r = box.sh("echo hello; exit 5")
    run = box.client.get(f"/v1/runs/{r.id}")
    assert (run["id"], run["sandbox"], run["kind"], run["state"]) == (r.id, box.id, "exec", "ended")
    assert run["result"] == r.json
    assert r.id in [x["id"] for x in box.client.get("/v1/runs", sandbox=box.id)["runs"]]


def test_usage_is_the_commands(box):
    box.python("sum(range(3000000))")
    r = exited(box.exec(["true"]))
    assert r.usage["cpu_ms"] is None or r.usage["cpu_ms"] < 60
    assert 0 < r.usage["wall_ms"] < 5000


@pytest.mark.parametrize(
    "body",
    [{}, {"command": []}, {"command": [""]}, {"command": ["a\0b"]}, {"command": 5}, {"command": [1]}, {"command": None},
     {"command": {}}, {"command": ["true"], "language": "python", "code": "1"}, {"language": "python"}, {"code": "1"}, {
         "language": "cobol", "code": "1"
     }, {"language": "python", "code": 1}, {"command": ["true"], "args": []}, {"command": ["true"], "timeout": 0},
     {"command": ["true"], "timeout": "soon"}, {"command": ["true"], "max_output": 0}, {"command": ["true"], "user": "1:1"},
     {"command": ["true"], "memory": "1g"}, {"command": ["true"], "env": ["A=1"]}, {"command": ["true"], "env": {"A=B": "1"}},
     {"command": ["true"], "env": {"": "1"}}, {"command": ["true"], "env": {"A": "a\0b"}}, {"command": ["true"], "nosuch": 1}, ],
    ids=str)
def test_refused(box, body):
    box.problem(400, "INVALID_REQUEST", "POST", "/exec", json=body)


@pytest.mark.parametrize("command, hit", [("head -c 99m /dev/zero >/tmp/f", ["disk"]), ("true", [])])
def test_a_full_place_is_told(boxes, command, hit):
    r = boxes(memory="256m").exec(["sh", "-c", command])
    assert r.limits_hit == hit and (r.exit_code == 0) == (not hit)
