# SPDX-License-Identifier: Apache-2.0
"""OU: output, terminal, stdin. Catalogue 2.6."""
import json
import os
import pty
import resource
import subprocess
import time

import pytest

import arena
import cloche
from arena import OTHER, SAME, Attack, define

pytestmark = [pytest.mark.needs("native"), pytest.mark.needs("root"), pytest.mark.needs("python")]

TIOC = """
import fcntl
def io(fd, request, arg=0):
    sc(16, fd, request, ctypes.create_string_buffer(b'x' * 8) if arg == 0 else arg)
"""

ATTACKS = [
    Attack("OU-10", "terminal_ioctls", TIOC + """
for n, r in (('TIOCSTI', 0x5412), ('TIOCSTI with high bits', (1 << 32) | 0x5412), ('TIOCLINUX', 0x541c), ('TIOCCONS', 0x541d),
             ('TIOCSCTTY', 0x540e), ('TIOCSETD', 0x5423), ('TCSETS', 0x5402), ('TIOCSWINSZ', 0x5414), ('TIOCNOTTY', 0x5422)):
    fact(n, lambda: io(0, r))
fact('controlling terminal', lambda: os.close(os.open('/dev/tty', os.O_RDWR)))
fact('ptmx', lambda: os.close(os.open('/dev/ptmx', os.O_RDWR)))
fact('console', lambda: os.close(os.open('/dev/console', os.O_RDWR)))
value('is a terminal', lambda: [os.isatty(n) for n in (0, 1, 2)])
fact('reached', lambda: sc(16, os.open('/dev/zero', os.O_RDONLY), 0x5452, ctypes.create_string_buffer(4)))
""", {**dict.fromkeys(("TIOCSTI", "TIOCSTI with high bits", "TIOCLINUX", "TIOCCONS", "TIOCSCTTY", "TIOCSETD", "TCSETS", "TIOCSWINSZ",
                       "TIOCNOTTY"), ("ENOTTY", SAME)), "controlling terminal": ("ENOENT", SAME), "ptmx": ("ENOENT", SAME),
      "console": ("ENOENT", SAME), "is a terminal": ("[False, False, False]", SAME), "reached": ("ENOTTY", "ok")},
           "off:seccomp,landlock"),
    Attack("OU-11", "hang_up", TIOC + """
fact('vhangup', lambda: sc(153))
fact('tcsetpgrp', lambda: os.tcsetpgrp(0, os.getpgrp()))
fact('TIOCVHANGUP', lambda: io(0, 0x5437))
""", {"vhangup": ("ENOSYS", OTHER), "tcsetpgrp": ("ENOTTY", SAME), "TIOCVHANGUP": ("ENOTTY", SAME)}, "off:seccomp"),
]
define(ATTACKS, globals())

# In profile dev there is a terminal: the four requests are still refused on it.
OWN_TERMINAL = TIOC + """
m = os.open('/dev/ptmx', os.O_RDWR | os.O_NOCTTY)
n = struct.unpack('i', fcntl.ioctl(m, 0x80045430, bytes(4)))[0]
fcntl.ioctl(m, 0x40045431, bytes(4))
s = os.open(f'/dev/pts/{n}', os.O_RDWR | os.O_NOCTTY)
for name, r in (('TIOCSTI', 0x5412), ('TIOCSTI with high bits', (1 << 32) | 0x5412), ('TIOCLINUX', 0x541c), ('TIOCCONS', 0x541d),
                ('TIOCSETD', 0x5423), ('TIOCVHANGUP', 0x5437)):
    fact(name, lambda: io(s, r))
fact('TIOCSWINSZ', lambda: io(s, 0x5414))
value('terminals', lambda: sorted(os.listdir('/dev/pts')))
"""


def test_OU_10_own_terminal():
    r = arena.inside(arena.PRELUDE + OWN_TERMINAL, "--profile", "dev")
    refused = dict.fromkeys(("TIOCSTI", "TIOCSTI with high bits", "TIOCLINUX", "TIOCCONS", "TIOCSETD", "TIOCVHANGUP"), "ENOTTY")
    assert arena.facts(r.out.decode()) == {**refused, "TIOCSWINSZ": "ok", "terminals": "['0', 'ptmx']"}, r


def test_OU_10_own_terminal_control():
    r = arena.inside(arena.PRELUDE + OWN_TERMINAL, "--profile", "dev", layers_off="seccomp")
    got = arena.facts(r.out.decode())
    assert got["TIOCSTI"] != "ENOTTY" and got["TIOCSETD"] != "ENOTTY", r


def test_OU_10_the_callers_terminal():
    """cloche on a terminal: the code gets pipes, not the terminal, and a session of its own."""
    out = on_terminal([cloche.binary(), "python", "-c", "import os\nprint([os.isatty(n) for n in (0, 1, 2)], os.getsid(0) == os.getpid())"])
    assert b"[False, False, False] True" in out


def test_OU_10_the_callers_terminal_control():
    assert b"[True, True, True]" in on_terminal([arena.PYTHON, "-c", "import os; print([os.isatty(n) for n in (0, 1, 2)])"])


def on_terminal(argv):
    """Everything a program shows on a terminal of its own."""
    shown = b""
    pid, fd = pty.fork()
    if pid == 0:
        try:
            os.execvpe(argv[0], argv, cloche.environment({"TERM": "xterm"}))
        finally:
            os._exit(127)
    try:
        while data := os.read(fd, 65536):
            shown += data
    except OSError:
        pass
    os.close(fd)
    os.waitpid(pid, 0)
    return shown


ESCAPES = r"printf '\e]0;pwn\a\e[2J\e]52;c;cHdu\a\e[6n\x9b31m\r\b'; printf '\e[31m' >&2"


def test_OU_06_escapes_on_a_terminal():
    shown = on_terminal([cloche.binary(), "bash", "-c", ESCAPES])
    assert b"pwn" in shown and b"\x1b" not in shown and b"\x07" not in shown and b"\x9b" not in shown and b"\b" not in shown, shown


def test_OU_06_escapes_control():
    """With --raw they come through: the escaping is what keeps them out."""
    assert b"\x1b]0;pwn\x07" in on_terminal([cloche.binary(), "bash", "--raw", "-c", ESCAPES])


def test_OU_06_escapes_in_a_pipe_are_bytes():
    assert cloche.bash(ESCAPES, json=False).stdout.startswith(b"\x1b]0;pwn\x07")


def peak_rss_mib(argv, **kw):
    """Run and return (its stdout, peak memory of the process in MiB)."""
    code = "import resource, subprocess, sys; p = subprocess.run(sys.argv[1:], stdout=subprocess.PIPE); " \
        "sys.stdout.buffer.write(p.stdout); sys.stderr.write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024))"
    p = subprocess.run([arena.PYTHON, "-c", code, *argv], capture_output=True, env=cloche.environment(), timeout=60, **kw)
    return p.stdout, int(p.stderr.split()[-1])


def test_OU_01_flood():
    """yes for two seconds: counted, cut, our memory flat, and with kill it ends at the limit."""
    out, rss = peak_rss_mib([cloche.binary(), "run", "--json", "--timeout", "2s", "--cpus", "2", "--", "yes"])
    r = json.loads(out)
    assert r["reason"] == "timeout" and r["output"]["stdout"]["kept"] == 65536 and r["limits_hit"] == ["output"], r
    assert r["output"]["stdout"]["bytes"] > 10 << 20 and rss < 32, (r["output"], rss)
    killed = cloche.run(["run", "--on-output-limit", "kill", "--", "yes"])
    assert killed.reason == "output_limit" and killed.error_code == "SANDBOX_OUTPUT_LIMIT" and killed.seconds < 5, killed


def test_OU_01_flood_control():
    r = cloche.run(["run", "--max-output", "unlimited", "--", "head", "-c", "3000000", "/dev/zero"])
    assert r.output["stdout"]["kept"] == 3000000, r.output


def test_OU_02_reader_that_never_reads():
    """Nobody takes the output: back-pressure, bounded memory, and the sandbox is dead at its time limit all the same.
    cloche itself may wait for its reader, as a program behind a pipe does; when the reader goes, it ends with 124."""
    r, w = os.pipe()
    p = subprocess.Popen([cloche.binary(), "run", "--timeout", "1s", "--max-output", "unlimited", "--", "yes"], stdin=subprocess.DEVNULL,
                         stdout=w, stderr=subprocess.DEVNULL, env=cloche.environment(), start_new_session=True)
    os.close(w)
    try:
        time.sleep(0.7)
        assert arena.descend(p.pid), "the sandbox has not started"
        rss = int([l for l in open(f"/proc/{p.pid}/status") if l.startswith("VmRSS")][0].split()[1]) // 1024
        assert rss < 32, f"{rss} MiB"
        deadline = time.monotonic() + 3
        while arena.descend(p.pid) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not arena.descend(p.pid), "the sandbox outlives its time limit"
        os.close(r)
        r = -1
        assert p.wait(5) == 124
    finally:
        p.kill()
        p.wait()
        if r >= 0:
            os.close(r)


def test_OU_02_reader_control():
    """A program that buffers without a bound would be seen: this one does."""
    code = "import subprocess; subprocess.run(['head', '-c', '200000000', '/dev/zero'], stdout=subprocess.PIPE)"
    _, rss = peak_rss_mib([arena.PYTHON, "-c", code])
    assert rss > 100


def test_OU_04_tiny_writes_and_long_lines():
    tiny = cloche.run(["bash", "--timeout", "20s", "--cpus", "2", "-c", "dd if=/dev/zero bs=1 count=1000000 2>/dev/null"], timeout=40)
    assert tiny.output["stdout"]["bytes"] == 1000000, tiny
    line = cloche.run(["bash", "--timeout", "20s", "--cpus", "2", "-c", "head -c 100000000 /dev/zero | tr '\\0' x"], timeout=40)
    assert line.output["stdout"]["bytes"] == 100000000 and line.out == b"x" * 65536, line.output


BYTES = b"\xff\xfe\x00\xed\xa0\x80\xe2\x80\xa8\xef\xbb\xbf\xf0\x9f\x98\x80\xc3\x28\xf5\x80\x80\x80\r\n\x1b"


def test_OU_05_any_bytes():
    r = cloche.python(f"import sys; sys.stdout.buffer.write({BYTES!r})")
    assert r.out == BYTES and r.encoding == "base64", r
    assert cloche.python(f"import sys; sys.stdout.buffer.write({BYTES!r})", json=False).stdout == BYTES
    text = cloche.python("print('\\u2028\\ufeff\\U0001f600', end='')")
    assert text.encoding == "utf-8" and text.out.decode() == "\u2028\ufeff\U0001f600"
    cut = cloche.python("print('\\U0001f600' * 20000, end='')")
    assert cut.encoding == "utf-8" and cut.out == "\U0001f600".encode() * 16384, cut.output
    odd = cloche.python("print('x' + '\\U0001f600' * 20000, end='')")
    assert odd.encoding == "utf-8" and len(odd.out) == 65533 == odd.output["stdout"]["kept"], odd.output


def test_OU_07_records_in_our_messages():
    """Names with line breaks and escapes: one line of ours stays one line."""
    for hostile in ("x\n2026-01-01 level=info msg=\"ok\"", "\x1b[2Jx", "x\rcloche: fine"):
        r = cloche.run(["run", "--", hostile], json=False)
        assert r.returncode == 127 and r.stderr.count(b"\n") == 1 and b"\x1b" not in r.stderr and b"\r" not in r.stderr, r
        v = cloche.run(["run", "-v", f"/nonexistent/{hostile}:/vol", "--", "true"], json=False)
        assert v.returncode in (2, 125) and v.stderr.count(b"\n") == 1 and b"\x1b" not in v.stderr and b"\r" not in v.stderr, v


def test_OU_09_stdin():
    """Closed early, never closed, large, written after the end."""
    assert cloche.run(["run", "--", "true"], stdin=b"x" * (8 << 20)).returncode == 0
    counted = cloche.run(["run", "--timeout", "20s", "--", "wc", "-c"], stdin=b"x" * (64 << 20), timeout=60)
    assert counted.out.strip() == str(64 << 20).encode(), counted
    never = cloche.start(["run", "--timeout", "1s", "--", "cat"])
    assert never.wait(10) == 124
    never.communicate()
    early = cloche.start(["run", "--", "sh", "-c", "exec <&-; sleep 0.3; echo done"])
    try:
        early.stdin.write(b"x" * (1 << 20))
        early.stdin.flush()
    except BrokenPipeError:
        pass
    out, _ = early.communicate(timeout=20)
    assert out == b"done\n" and early.returncode == 0


def test_OU_12_result_is_bounded_and_escaped(tmp_path):
    """Hostile names in the result: valid JSON of bounded size, whatever the sandbox names its files."""
    r = cloche.run(["python", "--out", tmp_path / "o", "-c",
                    "import os\nfor n in range(5000):\n    open(b'/output/\\x1b\"\\\\\\n\\xff' + str(n).encode() + b'n' * 200, 'w').close()"],
                   timeout=60)
    assert r.json is not None and r.reason == "exited", r.stderr[-300:]
    assert len(r.stdout) < 8 << 20 and b"\x1b" not in r.stdout
    control = resource.getpagesize()
    assert control > 0
