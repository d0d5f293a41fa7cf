# SPDX-License-Identifier: Apache-2.0
"""On a terminal: escapes are shown, Ctrl-C ends the sandbox, and the sandbox never has the terminal."""
import json
import os
import pty
import select
import signal
import time

import cloche
import pytest
from shape import sh

pytestmark = pytest.mark.needs("native", "python")


def on_a_terminal(args, keys=b"", until=None):
    """(status, what the terminal got) of cloche with all three streams on a new terminal."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.clear()
        os.environ.update(cloche.environment({"TERM": "xterm"}))
        os.execv(cloche.binary(), [cloche.binary(), *args])
    got, sent = b"", False
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if select.select([terminal], [], [], 0.1)[0]:
            try:
                data = os.read(terminal, 65536)
            except OSError:
                data = b""
            if not data:
                break
            got += data
        if keys and not sent and (until is None or until in got):
            os.write(terminal, keys)
            sent = True
    else:
        os.kill(pid, signal.SIGKILL)
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), got


EVIL = r"printf 'a\033]0;title\007\033[31mred\b\r\177\302\233x\t\303\251\n'"


def test_escapes_are_shown_on_a_terminal():
    status, got = on_a_terminal(["run", "bash", "-c", EVIL])
    assert status == 0
    assert got == b"a\\x1b]0;title\\x07\\x1b[31mred\\x08\\x0d\\x7f\\xc2\\x9bx\t\xc3\xa9\r\n"


def test_escapes_of_stderr_are_shown_on_a_terminal():
    status, got = on_a_terminal(["run", "bash", "-c", EVIL + " >&2"])
    assert status == 0 and b"\x1b" not in got and b"\\x1b]0;title" in got


def test_raw_passes_escapes():
    status, got = on_a_terminal(["run", "--raw", "bash", "-c", EVIL])
    assert status == 0
    assert got == b"a\x1b]0;title\x07\x1b[31mred\b\r\x7f\xc2\x9bx\t\xc3\xa9\r\n"


def test_no_escapes_without_a_terminal():
    assert sh(EVIL, json=False).stdout == b"a\x1b]0;title\x07\x1b[31mred\b\r\x7f\xc2\x9bx\t\xc3\xa9\n"


def test_the_sandbox_does_not_get_the_terminal():
    status, got = on_a_terminal(["run", "bash", "-c", "tty; test -t 1 || echo no; echo x >/dev/tty"])
    assert status == 1 and b"not a tty\r\nno\r\n" in got


def test_control_c():
    began = time.monotonic()
    status, got = on_a_terminal(["run", "--timeout", "20s", "bash", "-c", "echo ready; sleep 300"], b"\x03", b"ready")
    assert status == 130 and time.monotonic() - began < 5
    assert got.replace(b"^C", b"") == b"ready\r\ncloche: the run was ended by its caller\r\n"
