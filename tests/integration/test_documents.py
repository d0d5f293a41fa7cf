# SPDX-License-Identifier: Apache-2.0
"""What the five documents test, word by word, each at its own limits (MISSION "What the documents test")."""
import os
import subprocess
import time

import cloche
import pytest
import shape

pytestmark = pytest.mark.needs("native", "python")

D3 = ["--timeout", "3s", "--memory", "128m", "--cpus", "0.5", "--pids-limit", "32", "--max-output", "1024"]
D2 = ["--timeout", "30s", "--memory", "256m", "--cpus", "0.5"]
D4 = ["--memory", "128m", "--cpus", "0.5"]
URLOPEN = "import urllib.request; urllib.request.urlopen('http://example.com', timeout=2)"
NO_NAME = b"URLError: <urlopen error [Errno -3] Temporary failure in name resolution>"


def test_d3_sum():
    r = cloche.python("print(sum(range(10)))", *D3)
    shape.exited(r, 0)
    assert (r.out, r.err, r.ok) == (b"45\n", b"", True)


def test_d3_no_network():
    """At 1,024 bytes the head of the traceback is what is kept; its last line is seen with room for all of it."""
    r = cloche.python(URLOPEN, *D3)
    shape.exited(r, 1)
    assert r.out == b"" and r.err.startswith(b"Traceback (most recent call last):\n") and len(r.err) == 1024
    r = cloche.python(URLOPEN, *D3, "--max-output", "4096")
    shape.exited(r, 1)
    assert r.err.endswith(NO_NAME + b"\n")
    r = cloche.python(f"import sys\ntry:\n {URLOPEN}\nexcept OSError as e:\n sys.exit(f'{{type(e).__name__}}: {{e}}')", *D3)
    shape.exited(r, 1)
    assert r.err == NO_NAME + b"\n"


def test_d3_root_is_read_only():
    r = cloche.python("open('/hacked.txt', 'w')", *D3)
    shape.exited(r, 1)
    assert b"OSError: [Errno 30] Read-only file system: '/hacked.txt'" in r.err
    assert not os.path.exists("/hacked.txt")


def test_d3_loop_times_out_and_is_cleaned_up(no_leftovers):
    r = cloche.python("while True: pass", *D3)
    shape.check_reason(r, "timeout")
    assert r.timed_out and not r.ok
    assert 3000 <= r.usage["wall_ms"] < 3000 + 2000 * shape.SLOW
    assert r.message == "stopped after 3 s of wall time"
    assert r.model_message == "The code did not finish within 3 seconds."


def test_d3_flood_is_cut():
    r = cloche.python("print('a' * 100_000)", *D3)
    shape.exited(r, 0)
    assert r.out == b"a" * 1024
    assert r.output["stdout"] == {"bytes": 100_001, "kept": 1024, "dropped": 98_977}
    assert r.limits_hit == ["output"]


def test_the_default_cap_is_64_kib():
    r = cloche.python("print('a' * 100_000)")
    assert r.output["stdout"] == {"bytes": 100_001, "kept": 65_536, "dropped": 34_465}


def test_d2_sum():
    r = cloche.python("print(2 + 2)", *D2)
    shape.exited(r, 0)
    assert r.out == b"4\n"


def test_d2_out_of_memory_is_told_as_such():
    r = cloche.python("[0] * 10**8", *D2)
    shape.check_reason(r, "oom")
    assert r.oom_kills >= 1 and r.limits_hit == ["memory"]
    assert r.message == "out of memory: the limit is 268435456 bytes"
    assert r.model_message == "The code used more memory than it may."


def test_d2_unreachable():
    r = cloche.python(URLOPEN, *D2)
    shape.exited(r, 1)
    assert NO_NAME in r.err


@pytest.mark.parametrize("address, cause", [("1.1.1.1", "[Errno 101] Network is unreachable"),
                                            ("127.0.0.1", "[Errno 111] Connection refused")])
def test_no_way_out_by_number(address, cause):
    r = cloche.python(f"import socket; socket.create_connection(('{address}', 80), 2)", *D2)
    shape.exited(r, 1)
    assert cause.encode() in r.err


def test_d2_loop_times_out_at_30_s():
    """The limit is the document's; the wait is not: the same loop, seen to be stopped at the limit given."""
    r = cloche.run(["config", "show"], env={"CLOCHE_TIMEOUT": "30s"}, json=False)
    assert any(line.split() == [b"timeout", b"environment", b"30s"] for line in r.stdout.splitlines()), r
    r = cloche.python("while True: pass", *D2, "--timeout", "1s")
    shape.check_reason(r, "timeout")
    assert 1000 <= r.usage["wall_ms"] < 1000 + 2000 * shape.SLOW


def test_d2_data_in_result_out(tmp_path):
    (tmp_path / "data.txt").write_text("hello sandbox")
    out = tmp_path / "out"
    code = "print(open('/workspace/data.txt').read()); open('/output/result.txt', 'w').write(str(1 + 1))"
    r = cloche.python(code, *D2, "--in", tmp_path / "data.txt", "--out", out)
    shape.exited(r, 0)
    assert r.out == b"hello sandbox\n"
    assert r.artifacts == [{"path": "result.txt", "bytes": 1, "skipped": None}]
    assert (out / "result.txt").read_text() == "2"
    assert os.listdir(out) == ["result.txt"]


def test_d4_rm_rf_harms_nothing_outside(tmp_path, no_leftovers):
    """The positive control: inside, what may be deleted is."""
    canary = tmp_path / "canary"
    canary.write_text("sings")
    given = tmp_path / "given"
    given.mkdir()
    (given / "file").write_text("given")
    before = {name: os.stat(name).st_mtime_ns for name in ("/", "/usr", "/etc", "/etc/passwd", "/usr/bin")}
    count = len(os.listdir("/usr/bin"))
    r = cloche.bash("rm -rf --no-preserve-root / 2>/dev/null; echo $?; ls /workspace; exec /usr/bin/python3 -c 'print(42)'",
                    *D4, "--timeout", f"{20 * shape.SLOW}s", "--in", given)
    assert r.reason == "exited" and r.out == b"1\n42\n", r  # /workspace is empty, /usr is whole
    assert canary.read_text() == "sings" and (given / "file").read_text() == "given"
    assert {name: os.stat(name).st_mtime_ns for name in before} == before
    assert len(os.listdir("/usr/bin")) == count
    assert subprocess.run(["/bin/true"]).returncode == 0


def test_d4_environment_shows_nothing_of_the_callers():
    r = cloche.python("import os; print(sorted(os.environ.items()))", *D4,
                      env={"SECRET_KEY": "sesame", "PYTHONSTARTUP": "/x", "LD_PRELOAD": ""})
    shape.exited(r, 0)
    assert b"sesame" not in r.out and b"SECRET" not in r.out
    env = dict(eval(r.out))
    assert env.pop("HOME") == "/tmp"
    assert env.pop("PATH") == "/usr/local/bin:/usr/bin:/bin"
    assert env.pop("LANG") == "C.UTF-8"
    assert env.pop("NODE_OPTIONS") == "--max-old-space-size=96"
    assert "-XX:MaxRAM=134217728" in env.pop("JAVA_TOOL_OPTIONS")
    env.pop("LC_CTYPE", None)  # Python's own coercion
    assert env == {}


def test_d4_request_fails():
    r = cloche.python(URLOPEN, *D4)
    shape.exited(r, 1)
    assert NO_NAME in r.err


def test_d1_fibonacci():
    r = cloche.python("a, b = 0, 1\nfor _ in range(30): a, b = b, a + b\nprint(a)\n")
    assert r.out == b"832040\n"


def test_each_call_is_new():
    first = cloche.python("open('/tmp/mark', 'w'); open('/workspace/mark', 'w'); import os; print(os.listdir('/tmp'))")
    second = cloche.python("import os; print(os.listdir('/tmp'), os.listdir('/workspace'))")
    assert first.out == b"['mark']\n" and second.out == b"[] []\n"
    assert first.sandbox != second.sandbox


def test_timeout_counts_the_command_only():
    began = time.monotonic()
    r = cloche.run(["run", "--timeout", f"{shape.SLOW}s", "sleep", "0.2"])
    shape.exited(r, 0)
    assert 200 <= r.usage["wall_ms"] <= (time.monotonic() - began) * 1000
