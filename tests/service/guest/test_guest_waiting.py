# SPDX-License-Identifier: Apache-2.0
"""Commands that are started before they are used: TAKE, and what `alone` says of an end."""
import errno
import signal
import struct
import time

import pytest

from conversation import ATTACH, HEAD, LOSSLESS, STDIN, TAIL, WAITS, Failed, Run, take_payload


def refused(call, number):
    with pytest.raises(Failed) as e:
        call()
    assert e.value.errno == number, e.value


def used(box, number, data, **more):
    with box.take(number, data, **more) as c:
        return Run().until_end(c)


def test_it_runs_what_it_is_given(box):
    waiting = box.prepare(["bash", "-s"], tag="run_1")
    r = used(box, waiting.number, b"echo $$ $0; cat; exit 3\n")
    assert r.out == f"{waiting.pid} bash\n".encode() and r.ended.status == 3 and r.number == waiting.number
    assert [c.tag for c in box.list() if c.number == waiting.number] == ["run_1"]


def test_it_is_taken_where_it_was_started(box):
    """Who has prepared it need not connect for that; what does not wait is hung up on."""
    with box.start(["bash", "-s"], WAITS | STDIN | HEAD, keep=1) as c:
        waiting = Run().take(c.hear("BEGUN"))
        assert c.hear("DONE")
        time.sleep(0.3)
        c.say("TAKE", take_payload(waiting.number)).say("DATA", b"echo here; exit 3\n").say("EOF")
        r = Run().until_end(c)
        assert (r.out, r.ended.status, r.number) == (b"here\n", 3, waiting.number) and c.hung_up()
    with box.start(["bash", "-s"], WAITS | STDIN | HEAD, keep=1) as c:
        waiting = Run().take(c.hear("BEGUN"))
        assert c.hear("DONE")
    assert used(box, waiting.number, b"echo by another\n").out == b"by another\n"
    with box.start(["sleep", "1000"], TAIL) as c:
        background = Run().take(c.hear("BEGUN"))
        assert c.hung_up()
    box.kill(background.number, signal.SIGKILL)


def test_only_once(box):
    waiting = box.prepare(["bash", "-s"])
    with box.take(waiting.number, b"sleep 1; echo first\n") as c:
        first = Run().take(c.hear("BEGUN"))
        refused(lambda: used(box, waiting.number, b"echo second\n"), errno.ESRCH)
        assert first.until_end(c).out == b"first\n"
    refused(lambda: used(box, waiting.number, b"echo third\n"), errno.ESRCH)


def test_only_one_that_waits(box):
    ordinary = box.begin(["cat"], STDIN | TAIL)
    refused(lambda: used(box, ordinary.number, b"x"), errno.ESRCH)
    refused(lambda: used(box, 10**6, b"x"), errno.ESRCH)
    box.kill(ordinary.number, signal.SIGKILL)


def test_not_one_that_is_no_longer_what_it_was(box):
    """It has ended, has said something, or has closed a stream."""
    dead = box.prepare(["sleep", "1000"])
    box.kill(dead.number, signal.SIGKILL)
    box.output(dead.number)  # until its end
    refused(lambda: used(box, dead.number, b""), errno.ESRCH)
    for script in ("echo early", "echo early >&2", "exec >&-", "exec 2>&-"):
        one = box.prepare(["bash", "-c", f"{script}; cat >/dev/null"])
        until = time.monotonic() + 10
        while not any(p.line.startswith(b"cat") and one.pid in (p.pid, p.parent) for p in box.ps()):
            assert time.monotonic() < until, "it did not get that far"
            time.sleep(0.01)
        refused(lambda: used(box, one.number, b""), errno.ESRCH)
        box.kill(one.number, signal.SIGKILL)


def test_its_clocks_begin_when_it_is_taken(box):
    waiting = box.prepare(["bash", "-s"])
    time.sleep(0.6)
    r = used(box, waiting.number, b"sleep 0.1; echo done\n", limit_ms=500)
    assert r.out == b"done\n" and not r.ended.timed_out and 100000 <= r.ended.wall_us < 500000
    waiting = box.prepare(["bash", "-s"])
    r = used(box, waiting.number, b"sleep 30\n", limit_ms=200)
    assert r.ended.timed_out and r.ended.signaled and 200000 <= r.ended.wall_us < 5000000


def test_no_time_limit_is_short(box):
    """By a part of a millisecond it would be, were init's clock rounded down."""
    for _ in range(30):
        r = used(box, box.prepare(["bash", "-s"]).number, b"sleep 30\n", limit_ms=20)
        assert r.ended.timed_out and r.ended.wall_us >= 20000, r.ended.wall_us


def test_it_keeps_what_its_user_wants_kept(box):
    script = b"printf %5000s x; echo\n"
    r = used(box, box.prepare(["bash", "-s"]).number, script, keep=10)
    assert r.ended.bytes[0] == 5001 and r.ended.first[0] == 0 and r.ended.kept[0] == 10 and r.out == b" " * 10
    r = used(box, box.prepare(["bash", "-s"]).number, script, flags=TAIL, keep=2)
    assert (r.ended.first[0], r.ended.kept[0]) == (4999, 2) and r.out.endswith(b"x\n")
    r = used(box, box.prepare(["bash", "-s"]).number, b"head -c 3000000 /dev/zero\n", flags=LOSSLESS)
    assert len(r.out) == r.ended.bytes[0] == 3000000


@pytest.mark.parametrize("flags", [0, HEAD | TAIL, HEAD | WAITS, HEAD | ATTACH, 1 << 7, 0xffffffff])
def test_malformed_takes(box, flags):
    waiting = box.prepare(["cat"])
    refused(lambda: used(box, waiting.number, b"", flags=flags), errno.EINVAL)
    with pytest.raises(Failed):
        box.ask("TAKE", struct.pack("<4IQ", waiting.number, HEAD, 0, 1, 0))
    assert used(box, waiting.number, b"still there").out == b"still there"


@pytest.mark.parametrize("flags", [WAITS | HEAD, WAITS | STDIN | TAIL, WAITS | STDIN | HEAD | ATTACH])
def test_malformed_starts(box, flags):
    refused(lambda: box.run(["cat"], flags), errno.EINVAL)


def test_alone(own_box):
    """Nothing but init: not a command's child in a session of its own, not a command beside it, not a worker's file."""
    assert own_box.run(["true"]).ended.alone == 1
    left = own_box.run(["bash", "-c", "setsid sleep 1000 >/dev/null 2>&1 & exit 0"])
    assert left.ended.alone == 0
    own_box.run(["bash", "-c", "kill -9 -1"])
    until = time.monotonic() + 10
    while own_box.ps() and time.monotonic() < until:
        time.sleep(0.01)
    assert own_box.run(["true"]).ended.alone == 1
    beside = own_box.begin(["sleep", "1000"])
    assert own_box.run(["true"]).ended.alone == 0
    own_box.kill(beside.number, signal.SIGKILL)
    waiting = own_box.prepare(["bash", "-s"])
    assert own_box.run(["true"]).ended.alone == 0
    assert used(own_box, waiting.number, b"true\n").ended.alone == 1
