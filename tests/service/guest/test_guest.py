# SPDX-License-Identifier: Apache-2.0
"""The init of a kept sandbox: commands, as they are started, watched, limited and remembered."""
import errno
import hashlib
import json
import os
import signal
import struct
import threading
import time
from pathlib import Path

import pytest

import cloche
import conversation
from conversation import ATTACH, CUT, HEAD, LOSSLESS, PTY, STDIN, TAIL, Conversation, Failed, HungUp, Run, start_payload


def wait_for(condition, seconds=10):
    """For what no descriptor tells: the state of another process."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it did not happen"
        time.sleep(0.005)


class fails:
    """The block has to be refused with this errno (and stage)."""

    def __init__(self, number, stage=None):
        self.number, self.stage = number, stage

    def __enter__(self):
        return self

    def __exit__(self, kind, value, _):
        assert kind is Failed, f"not refused: {kind} {value}"
        assert value.errno == self.number, value
        assert self.stage in (None, value.stage), value
        self.value = value
        return True


# ------------------------------------------------------------------------------------------------- starting


def test_true(box):
    r = box.run(["true"])
    assert (r.out, r.err) == (b"", b"") and r.ended[:5] == (0, 0, 0, 0, 0)
    assert r.ended.wall_us > 0 and r.ended.cpu_us > 0


def test_the_conversation_lasts_for_another(box):
    with box.start(["echo", "one"]) as c:
        assert Run().until_end(c).out == b"one\n" and c.hear("DONE")
        for word in ("two", "three"):
            c.say("START", start_payload(["echo", word]))
            r = Run().until_end(c)
            assert r.out == word.encode() + b"\n" and r.ended.status == 0 and c.hear("DONE")
        c.say("LIST")
        while c.hear()[0] != "DONE":
            pass
        assert c.hung_up()  # only a command's lasts
    with box.start(["true"]) as c:
        assert Run().until_end(c).ended and c.hear("DONE")
        c.say("DATA", b"too late", 0)
        assert c.hung_up()
    with box.start(["cat"], ATTACH | TAIL | STDIN) as c:  # what is still said to it could be taken for an opening
        c.say("DATA", b"in").say("EOF")
        assert Run().until_end(c).out == b"in" and c.hung_up()
    with box.start(["sleep", "0.3"]) as c:  # half of a frame is no beginning of the next
        c.socket.sendall(b"\0\0\0")
        assert Run().until_end(c).ended and c.hung_up()


def test_what_was_said_in_time_is_heard_late(own_box):
    """A sandbox that is frozen reads nothing meanwhile, for longer than an opening may take."""
    with own_box.start(["true"]) as c, own_box.talk("LIST") as other:
        assert Run().until_end(c).ended and c.hear("DONE")
        while other.hear()[0] != "DONE":
            pass
        os.kill(own_box.init, signal.SIGSTOP)
        c.say("START", start_payload(["echo", "late"]))
        with own_box.start(["echo", "new"]) as fresh:
            time.sleep(11)
            os.kill(own_box.init, signal.SIGCONT)
            assert Run().until_end(c).out == b"late\n" and Run().until_end(fresh).out == b"new\n"
        assert c.hear("DONE")
        time.sleep(11)  # and nobody has to say anything
        c.say("START", start_payload(["echo", "later"]))
        assert Run().until_end(c).out == b"later\n"


def test_what_goes_on_is_told_of_before_its_end(own_box):
    with own_box.start(["sh", "-c", "echo now; sleep 30"]) as c:
        began = time.monotonic()
        c.hear("BEGUN")
        assert c.hear("DATA")[2] == b"now\n" and time.monotonic() - began < 10


def test_status_signal_and_streams(box):
    r = box.run(["sh", "-c", "echo out; echo err >&2; exit 7"])
    assert (r.out, r.err, r.ended.status, r.ended.signaled) == (b"out\n", b"err\n", 7, 0)
    r = box.run(["sh", "-c", "kill -TERM $$"])
    assert (r.ended.signaled, r.ended.status) == (1, signal.SIGTERM)


def test_the_command_is_confined_like_any_other(box):
    r = box.python("import os\n"
                   "s = dict(l.split(':\t', 1) for l in open('/proc/self/status').read().splitlines() if ':\t' in l)\n"
                   "print(s['Seccomp'], s['NoNewPrivs'], s['CapEff'], s['CapPrm'], s['CapBnd'], s['Groups'].strip(), s['SigBlk'],"
                   " s['SigIgn'], os.getuid(), os.getgid(), sorted(os.listdir('/proc/self/fd')), os.getsid(0) == os.getpid())")
    zero = "0" * 16
    fields = r.out.decode()
    assert fields.startswith(f"2 1 {zero} {zero} {zero} "), fields
    assert fields.rstrip().endswith("65534 65534 ['0', '1', '2', '3'] True"), fields  # 3: listdir's own


def test_not_there(box):
    with fails(errno.ENOENT, "exec"):
        box.run(["no-such-program"])
    with fails(errno.ENOENT, "cwd"):
        box.run(["true"], workdir="/nowhere")
    with fails(errno.EACCES, "exec"):
        box.run(["/etc/passwd"])


@pytest.mark.parametrize("uid, gid", [(0, 0), (0, 65534), (65534, 0), (1000, 1000)])
def test_nobody_else(box, uid, gid):
    with fails(errno.EPERM, "start"):
        box.run(["true"], uid=uid, gid=gid)


@pytest.mark.parametrize("flags", [ATTACH, ATTACH | HEAD | TAIL, LOSSLESS, ATTACH | TAIL | 64])
def test_wrong_flags(box, flags):
    with fails(errno.EINVAL, "start"):
        box.run(["true"], flags=flags)


def test_malformed_start(box):
    head = struct.pack("<40s6I2HIQQ", b"", 65534, 65534, 1, 0, ATTACH | TAIL, 0, 0, 0, 0, 1, 0)
    for strings in (b"/\0true", b"/\0", b"/\0a\0b\0", b"\0\0\0\0"):
        with box.talk("START", head + strings) as c, fails(errno.EINVAL if strings[-1:] != b"\0" else errno.EPROTO):
            c.hear()


# --------------------------------------------------------------------------------------------------- output


def test_lossless_10_mb_slow_reader(box):
    code = ("import sys, hashlib, random\nr = random.Random(7); h = hashlib.sha256()\n"
            "for i in range(160):\n d = r.randbytes(65536); h.update(d); sys.stdout.buffer.write(d)\n"
            "sys.stderr.write(h.hexdigest())")
    r, slow = Run(), 0
    with box.start(["python3", "-c", code], flags=ATTACH | LOSSLESS, keep=100000) as c:
        c.socket.setsockopt(1, 8, 4096)
        while not r.ended:
            r.take(c.hear())
            slow += 1
            if slow % 40 == 0:
                time.sleep(0.02)
    assert len(r.out) == 160 * 65536 and not r.offsets
    assert hashlib.sha256(r.out).hexdigest() == r.err.decode()
    assert r.ended.bytes == (160 * 65536, 64) and r.ended.kept == (100000, 64)
    assert r.ended.first == (160 * 65536 - 100000, 0)


def test_lossless_holds_the_command_back(box):
    """Nobody reads: the command stops after the buffers, and goes on when somebody does."""
    with box.start(["sh", "-c", "head -c 4000000 /dev/zero; echo done >&2"], flags=ATTACH | LOSSLESS, keep=65536) as c:
        number = Run().take(c.hear("BEGUN")).number

        def state():
            return next(m for m in box.list() if m.number == number)
        seen = []

        def settled():
            seen.append(state().bytes[0])
            time.sleep(0.03)
            return len(seen) > 5 and seen[-1] == seen[-5]
        wait_for(settled)
        assert state().running and 65536 <= seen[-1] < 2000000
        r = Run().until_end(c)
    assert len(r.out) == 4000000 and r.err == b"done\n" and not r.offsets


def test_lossless_is_tail_when_its_conversation_has_gone(box):
    with box.start(["sh", "-c", "head -c 4000000 /dev/zero; printf end"], flags=ATTACH | LOSSLESS, keep=65536) as c:
        number = Run().take(c.hear("BEGUN")).number
    r = box.output(number)
    assert r.ended.bytes[0] == 4000003 and r.out.endswith(b"end")


def test_head_and_tail(box):
    count = "".join(f"{i:07d}\n" for i in range(100000)).encode()
    for flags, keep in ((HEAD, 1000), (TAIL, 1000), (HEAD, 0), (TAIL, 0), (TAIL, 10**6), (HEAD, 10**9), (TAIL, 2**63)):
        number = box.begin(["seq", "-f", "%07.0f", "0", "99999"], flags=flags, keep=keep).number
        r = box.output(number)
        wanted = min(keep, len(count))
        assert r.ended.bytes == (800000, 0) and r.ended.kept == (wanted, 0)
        assert r.ended.first[0] == (0 if flags == HEAD else len(count) - wanted)
        again = box.output(number)
        assert again.out == (count[:wanted] if flags == HEAD else count[len(count) - wanted:])
        box.forget(number)


def test_hard_cap(box):
    r = box.output(box.begin(["head", "-c", "20000000", "/dev/zero"], flags=TAIL, keep=2**40).number)
    assert r.ended.bytes[0] == 20000000 and r.ended.kept[0] == 8 << 20


def test_survivors_neither_delay_nor_add(box):
    code = "(sleep 0.4; echo late; echo later >&2; sleep 100) & echo now"
    r = box.run(["sh", "-c", code], flags=ATTACH | TAIL)
    assert r.out == b"now\n" and r.ended.survivors == 1 and r.ended.wall_us < 300000
    number = box.list()[-1].number
    time.sleep(0.5)
    assert box.output(number).out == b"now\n"
    assert any(p.number == number and b"sleep 100" in p.line for p in box.ps()), "writing on did not kill it"
    box.kill(number, signal.SIGKILL, session=1)
    wait_for(lambda: not any(p.number == number for p in box.ps()))
    with fails(errno.ESRCH, "kill"):
        box.kill(number, signal.SIGKILL, session=1)


def test_all_that_was_in_the_pipe_counts(box):
    """Written just before the end, by a command that leaves the pipe full."""
    for flags, keep in ((TAIL, 1 << 20), (LOSSLESS, 1000)):
        r = box.python("import os, sys\nos.write(1, b'x' * 65536)\nos.write(2, b'y' * 65536)\nos._exit(0)",
                       flags=ATTACH | flags, keep=keep)
        assert (len(r.out), len(r.err)) == (65536, 65536), flags
        assert r.ended.bytes == (65536, 65536)


def test_early_end_of_a_stream(box):
    with box.start(["sh", "-c", "exec >&-; sleep 100"], flags=ATTACH | TAIL) as c:
        r = Run().take(c.hear("BEGUN"))
        assert c.hear("EOF")[1] == 1
        box.kill(r.number, 9, session=1)


# ---------------------------------------------------------------------------------------------------- input


def test_stdin_flow(box):
    data = os.urandom(3_000_000)
    r, sent, ended = Run(), 0, False
    with box.start(["cat"], flags=ATTACH | LOSSLESS | STDIN, keep=65536) as c:
        while not r.ended:
            while sent < len(data) and sent - r.credit < conversation.WINDOW:
                piece = data[sent:sent + min(8192, conversation.WINDOW - sent + r.credit)]
                c.say("DATA", piece)
                sent += len(piece)
            if sent == len(data) and not ended:
                ended = True
                c.say("EOF")
            r.take(c.hear())
    assert r.out == data and r.credit == len(data)


def test_stdin_nobody_reads(box):
    r = Run()
    with box.start(["sh", "-c", "exec <&-; sleep 0.2"], flags=ATTACH | TAIL | STDIN) as c:
        for _ in range(10):
            c.say("DATA", b"x" * 65536)
        r.until_end(c)
    assert r.ended.status == 0 and r.credit == 655360


def test_without_stdin_it_is_at_its_end(box):
    assert box.run(["cat"]).ended.status == 0
    with box.start(["sleep", "5"]) as c:
        number = Run().take(c.hear("BEGUN")).number
        with fails(errno.EPIPE, "input"):
            box.input(number, b"x")
        c.say("DATA", b"x")
        with pytest.raises(HungUp):
            Run().until_end(c)
    box.kill(number, 9)


def test_input_from_elsewhere(box):
    number = box.begin(["cat"], flags=TAIL | STDIN).number
    box.input(number, b"one ", b"two ")
    box.input(number, b"three", eof=True)
    assert box.output(number).out == b"one two three"
    with fails(errno.EPIPE, "input"):
        box.input(number, b"four")
    with fails(errno.ESRCH, "input"):
        box.input(10**6, b"x")


def test_two_writers_do_not_mix_their_frames(box):
    number = box.begin(["sh", "-c", "sleep 0.2; cat"], flags=TAIL | STDIN, keep=8 << 20).number
    frames = [(str(i) * 50000).encode() for i in range(8)]
    threads = [threading.Thread(target=box.input, args=(number, *[f] * 10)) for f in frames]
    for t in threads:
        t.start()
    for t in threads:
        t.join(30)
    box.input(number, eof=True)
    out = box.output(number).out
    assert len(out) == 8 * 10 * 50000
    for i in range(0, len(out), 50000):
        assert out[i:i + 50000] in frames


# ------------------------------------------------------------------------------------------------- terminal


def test_terminal(dev_box):
    r = dev_box.run(["sh", "-c", "tty; stty size; echo err >&2; ps -o tty= -p $$ 2>/dev/null; test -t 0 && test -t 2 && echo yes"],
                    flags=ATTACH | TAIL | PTY, rows=33, columns=101)
    assert r.err == b"" and r.ended.status == 0
    lines = r.out.replace(b"\r\n", b"\n").split(b"\n")
    assert lines[0].startswith(b"/dev/pts/") and b"33 101" in lines and b"err" in lines and b"yes" in lines


def until(c, r, text):
    while text not in r.out:
        r.take(c.hear("DATA", "CREDIT", "EOF"))


def test_terminal_resize_and_interrupt(dev_box):
    code = "trap 'stty size' WINCH; trap 'echo got INT; exit 9' INT; echo ready; while :; do sleep 0.05; done"
    r = Run()
    with dev_box.start(["sh", "-c", code], flags=ATTACH | TAIL | PTY | STDIN, rows=10, columns=20) as c:
        r.take(c.hear("BEGUN"))
        until(c, r, b"ready")
        dev_box.resize(r.number, 44, 55)
        until(c, r, b"44 55")
        c.say("DATA", b"\x03")
        r.until_end(c)
    assert b"got INT" in r.out and r.ended.status == 9


def test_terminal_end_of_input(dev_box):
    r = Run()
    with dev_box.start(["cat"], flags=ATTACH | TAIL | PTY | STDIN) as c:
        c.say("DATA", b"line\n").say("EOF")
        r.until_end(c)
    assert r.out == b"line\r\nline\r\n" and r.ended.status == 0
    assert dev_box.run(["cat"], flags=ATTACH | TAIL | PTY).ended.status == 0


def test_terminal_all_of_the_output(dev_box):
    r = dev_box.run(["sh", "-c", "stty -opost; seq 1 200000"], flags=ATTACH | LOSSLESS | PTY, keep=65536)
    assert r.out == "".join(f"{i}\n" for i in range(1, 200001)).encode()


def test_no_terminal_without_the_profile(box):
    with fails(errno.ENOENT, "start"):
        box.run(["true"], flags=ATTACH | TAIL | PTY)
    number = box.begin(["sleep", "5"]).number
    with fails(errno.ENOTTY, "resize"):
        box.resize(number, 1, 1)
    box.kill(number, 9)


# --------------------------------------------------------------------------------------------------- ending


def test_time_limit_kills_the_session(box):
    code = "sleep 98 & (trap '' TERM; sh -c 'sleep 99; true') & setsid sleep 97 & sleep 96"
    with box.start(["sh", "-c", code], limit_ms=300) as c:
        r = Run().until_end(c)
    assert r.ended[:5] == (1, 9, 0, 0, 1) and 290000 < r.ended.wall_us < 2000000
    wait_for(lambda: not any(p.number == r.number for p in box.ps()))
    outside = [p for p in box.ps() if b"sleep 97" in p.line]
    assert len(outside) == 1, "what left the session is not the command's any more"
    box.run(["kill", "-9", str(outside[0].pid)])


def test_in_time(box):
    assert box.run(["true"], limit_ms=5000).ended.timed_out == 0


def test_kill(box):
    number = box.begin(["sh", "-c", "trap 'exit 5' TERM; echo; while :; do sleep 0.02; done"]).number
    wait_for(lambda: box.list()[-1].bytes[0])
    box.kill(number, signal.SIGTERM)
    assert box.output(number).ended.status == 5
    with fails(errno.ESRCH, "kill"):
        box.kill(number, 9)
    with fails(errno.EINVAL, "kill"):
        box.kill(number, 65)
    number = box.begin(["sh", "-c", "sleep 95 & sleep 94"]).number
    box.kill(number, signal.SIGKILL, session=1)
    assert box.output(number).ended.status == 9
    wait_for(lambda: not any(p.number == number for p in box.ps()))


def test_cpu_time(box):
    r = box.python("import time\nwhile time.process_time() < 0.3: pass")
    assert 300000 <= r.ended.cpu_us < 900000 and r.ended.wall_us >= 290000


# ----------------------------------------------------------------------------------------------- afterwards


def test_attach_after_the_starter_has_gone(box):
    number = box.begin(["sh", "-c", "printf 0123456789; read x; printf abc; printf err >&2"], flags=TAIL | STDIN).number
    wait_for(lambda: box.list()[-1].bytes[0] == 10)
    r = box.output(number, follow=0)
    assert r.done and r.out == b"0123456789" and r.offsets == [(1, 0), (2, 0)] and not r.ended
    assert box.output(number, out=4, follow=0).out == b"456789"
    with box.attach(number, out=7) as c:
        box.input(number, b"\n")
        r = Run().until_end(c)
    assert r.out == b"789abc" and r.err == b"err" and r.offsets[0] == (1, 7)
    r = box.output(number, out=12, err=10**9)
    assert r.out == b"c" and r.err == b"" and r.offsets == [(1, 12), (2, 3)]
    box.forget(number)
    for ask in (box.forget, box.output):
        with fails(errno.ESRCH):
            ask(number)


def test_what_is_no_longer_kept_is_skipped(box):
    number = box.begin(["seq", "1", "10000"], flags=TAIL, keep=100).number
    r = box.output(number, out=5)
    assert len(r.out) <= r.ended.bytes[0]
    total = r.ended.bytes[0]
    r = box.output(number, out=5)
    assert r.offsets[0] == (1, total - 100) and r.out == "".join(f"{i}\n" for i in range(1, 10001)).encode()[-100:]


def test_slow_reader_of_a_tail_misses_some_and_is_told(box):
    with box.start(["head", "-c", "6000000", "/dev/zero"], flags=ATTACH | TAIL, keep=10000) as c:
        number = Run().take(c.hear("BEGUN")).number
        wait_for(lambda: not next(m for m in box.list() if m.number == number).running)
        r = Run().until_end(c)
    assert r.ended.bytes[0] == 6000000 and len(r.out) < 6000000
    assert r.offsets and r.offsets[-1][1] == 6000000 - 10000


def test_forget_only_what_has_ended(box):
    number = box.begin(["sleep", "93"]).number
    with fails(errno.EBUSY, "forget"):
        box.forget(number)
    box.kill(number, 9)
    box.output(number)
    with box.attach(number, follow=1) as c:
        Run().until_end(c)
    box.forget(number)


def test_list_knows_by_tag(own_box):
    first = own_box.begin(["sh", "-c", "exit 3"], tag="run_1").number
    second = own_box.begin(["sleep", "92"], flags=HEAD | STDIN, tag="run_2").number
    own_box.output(first)
    a, b = own_box.list()
    assert (a.tag, a.number, a.running, a.ended.status, a.flags) == ("run_1", first, 0, 3, TAIL)
    assert (b.tag, b.number, b.running, b.ended, b.flags) == ("run_2", second, 1, None, HEAD | STDIN | CUT)
    assert b.started_ms >= a.started_ms


def test_1024_commands_and_no_more(own_box):
    for _ in range(1024):
        own_box.begin(["true"], keep=0)
    with fails(errno.EMFILE, "start"):
        own_box.begin(["true"])
    assert len(own_box.list()) == 1024
    own_box.forget(1)
    own_box.begin(["true"])
    assert [m.number for m in own_box.list()][-1] == 1025


def test_fork_fails(own_box):
    """A sandbox full of processes refuses, and recovers."""
    bomb = ("import os, time\n"
            "n = 0\n"
            "try:\n"
            "  while True:\n"
            "    if os.fork() == 0: time.sleep(60); os._exit(0)\n"
            "except OSError: print('full', flush=True); time.sleep(60)")
    with own_box.start(["python3", "-c", bomb], keep=100) as c:
        r = Run().take(c.hear("BEGUN"))
        while b"full" not in r.out:
            r.take(c.hear())
        with fails(errno.EAGAIN, "fork"):
            own_box.run(["true"])
        with fails(errno.EAGAIN) as refused:
            own_box.stat("/workspace")
        assert refused.value.what == "fork"
        assert own_box.list()[-1].running
        own_box.kill(r.number, 9, session=1)
        r.until_end(c)
    wait_for(lambda: not any(p.number == r.number for p in own_box.ps()))
    assert own_box.run(["true"]).ended.status == 0


# ------------------------------------------------------------------------------------------- conversations


def test_200_at_the_same_time(box):
    with_ends = [box.start(["sh", "-c", f"sleep 0.5; echo {i}"]) for i in range(200)]
    for i, c in enumerate(with_ends):
        with c:
            assert Run().until_end(c).out == f"{i}\n".encode()


def test_more_than_there_are_slots(own_box):
    idle = [Conversation(own_box.path) for _ in range(256)]
    with own_box.talk("LIST") as c:
        c.socket.settimeout(0.3)
        with pytest.raises(TimeoutError):
            c.hear()
        idle[100].close()
        c.socket.settimeout(10)
        assert c.hear()[0] == "DONE"
    for c in idle:
        c.close()


def test_stuck_peers_block_nobody(own_box):
    own_box.write("/big/f", bytes(3_000_000))
    stuck = [Conversation(own_box.path) for _ in range(3)]
    stuck[0].socket.sendall(b"\x10\0")  # half a header
    stuck[1].socket.sendall(struct.pack("<IBBH", 4 << 20, 64, 0, 0) + b"x" * 1000)  # a part of a START
    stuck[2].say("READ", struct.pack("<QQ", 0, 2**64 - 1) + b"/big/f\0")  # takes nothing
    stuck.append(own_box.start(["cat", "/dev/zero"], flags=ATTACH | TAIL, keep=100000))
    for _ in range(20):
        assert own_box.run(["echo", "x"]).out == b"x\n"
        assert own_box.read("/big/f", 0, 10) == bytes(10)
    for c in stuck[:2]:
        c.socket.settimeout(15)
        assert c.hung_up()  # after the ten seconds that an opening may take
    for c in stuck:
        c.close()
    own_box.kill(1, 9)
    assert own_box.run(["true"]).ended.status == 0


@pytest.mark.parametrize("garbage", [
    b"\xff" * 8, b"\0" * 8, struct.pack("<IBBH", 0, 70, 1, 0), struct.pack("<IBBH", 0, 70, 0, 1), struct.pack("<IBBH", 1, 70, 0, 0),
    struct.pack("<IBBH", 5 << 20, 64, 0, 0), struct.pack("<IBBH", 100, 16, 0, 0) + b"x" * 100, struct.pack("<IBBH", 0, 36, 0, 0),
    struct.pack("<IBBH", 1, 4, 0, 0) + b"x", struct.pack("<IBBH", 0, 104, 0, 0), struct.pack("<IBBH", 0, 73, 0, 0)],
    ids=lambda g: g[:9].hex())
def test_garbage(box, garbage):
    with Conversation(box.path) as c:
        c.socket.sendall(garbage)
        assert c.hung_up()
    assert box.run(["true"]).ended.status == 0


def status_of(box, field):
    text = Path(f"/proc/{box.init}/status").read_text()
    return int(next(line for line in text.splitlines() if line.startswith(field)).split()[1])


def descriptors_of(box):
    return len(os.listdir(f"/proc/{box.init}/fd"))


def test_10000_conversations_leave_nothing(own_box):
    def round_of(n):
        for i in range(n):
            if i % 10 == 0:
                r = own_box.run(["true"])
                own_box.forget(own_box.list()[-1].number)
                assert r.ended.status == 0
            elif i % 10 == 1:
                assert own_box.stat("/workspace").uid == 65534
            elif i % 10 == 2:
                with Conversation(own_box.path) as c:
                    c.socket.sendall(b"\xff" * 8)
            else:
                assert own_box.list() == []
    fds = descriptors_of(own_box)
    round_of(500)
    memory = status_of(own_box, "VmRSS")
    round_of(10000)
    wait_for(lambda: descriptors_of(own_box) == fds)
    assert status_of(own_box, "VmRSS") <= memory + 64, "kB"


def test_init_outlives_who_made_it(tmp_path):
    box = conversation.Sandbox("--timeout", "1h")
    try:
        number = box.begin(["sleep", "91"], tag="kept").number
        os.kill(box.keep.pid, signal.SIGKILL)
        box.keep.wait()
        assert [m.tag for m in box.list()] == ["kept"]
        assert box.run(["true"]).ended.status == 0
        box.kill(number, 9)
    finally:
        os.kill(box.init, signal.SIGKILL)
        wait_for(lambda: not os.path.exists(f"/proc/{box.init}") or
                 open(f"/proc/{box.init}/stat").read().rsplit(")", 1)[1].split()[0] == "Z")
        box.close()
        cloche.run(["run", "--", "true"])  # the next run sweeps what a killed one has left


def test_init_cannot_be_touched_from_inside(own_box):
    box = own_box
    r = box.python("import os\n"
                   "for f in (lambda: os.kill(1, 9), lambda: open('/proc/1/mem', 'rb'), lambda: os.listdir('/proc/1/fd')):\n"
                   " try: f(); print('yes')\n"
                   " except OSError as e: print(e.errno)")
    assert r.out.split() == [b"1", b"2", b"2"]
    with box.talk("WATCH", b"/workspace\0") as c:  # a worker lives as long as this
        c.hear("DONE")
        r = box.python("import os; print([p for p in os.listdir('/proc') if p.isdigit() and int(p) != os.getpid()])")
        assert r.out == b"[]\n", "workers are not to be seen"


def test_a_worker_is_the_sandbox_user_and_holds_nothing_else(own_box):
    """Seen from outside, with the eyes of root."""
    def status(pid):
        text = Path(f"/proc/{pid}/status").read_text()
        return dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)
    with own_box.watch("/workspace"):
        worker, = Path(f"/proc/{own_box.init}/task/{own_box.init}/children").read_text().split()
        s, init = status(worker), status(own_box.init)
        held = [os.readlink(f"/proc/{worker}/fd/{fd}") for fd in os.listdir(f"/proc/{worker}/fd")]
        assert sorted(h.split(":")[0] for h in held) == ["anon_inode", "socket"], held
        for caps in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
            assert int(s[caps], 16) == 0, caps
        assert s["NoNewPrivs"] == "1" and s["Groups"].strip() == "" and s["NSpid"].split()[-1] != "1"
        ids = s["Uid"].split()
        assert len(set(ids)) == 1 and ids[0] not in init["Uid"].split()
        assert len(set(s["Gid"].split())) == 1 and s["Gid"].split()[0] not in init["Gid"].split()
        assert os.stat(f"/proc/{worker}/mem").st_uid != int(ids[0]), "undumpable: its /proc files are not its own"
    wait_for(lambda: not os.path.exists(f"/proc/{worker}"))


# Opens of every process that is there or will be next what it can, until a file is there. (ptrace is refused by the filter: PR-01.)
RACER = r"""
import json, os
seen, last = {"exe": set(), "root": set(), "fd": set(), "maps": set()}, 2
def look(p):
    for what in ("exe", "root"):
        try: seen[what].add(os.readlink(f"/proc/{p}/{what}"))
        except OSError: pass
    try: seen["maps"] |= {w for line in open(f"/proc/{p}/maps") for w in line.split()[5:6]}
    except OSError: pass
    try:
        for fd in os.listdir(f"/proc/{p}/fd"): seen["fd"].add(os.readlink(f"/proc/{p}/fd/{fd}").split(":")[0])
    except OSError: pass
print("ready", flush=True)
while not os.path.exists("/workspace/stop"):
    there = [int(p) for p in os.listdir("/proc") if p.isdigit()]
    last = max([last, *there])
    for p in {*there, *range(last + 1, last + 5)} - {os.getpid(), 1}: look(p)
print(json.dumps({k: sorted(v) for k, v in seen.items()}))
"""


def raced(box, attack):
    """What the racer saw while attack() ran."""
    with box.start(["python3", "-c", RACER], ATTACH | TAIL) as c:
        racer = Run()
        while b"ready" not in racer.out:
            racer.take(c.hear())
        attack()
        box.run(["touch", "/workspace/stop"])
        racer.until_end(c)
    box.run(["rm", "/workspace/stop"])
    assert racer.ended.status == 0, racer.err
    return json.loads(racer.out.split(b"\n")[1])


def test_PR_18_who_joins_is_seen_only_as_the_command(box):
    """Commands that start while code inside lies in wait: until the program is executed there is nothing to open, and its user is
    the one that was asked for."""
    def attack():
        for _ in range(500):
            assert box.run(["id", "-u"]).out == b"65534\n"
        for _ in range(20):
            box.run(["sleep", "0.02"])
    seen = raced(box, attack)
    assert {"/usr/bin/id", "/usr/bin/sleep"} <= set(seen["exe"]), seen  # it did look at those that had been executed
    assert {os.path.basename(e) for e in seen["exe"]} <= {"id", "sleep", "touch"} and seen["root"] == ["/"], seen
    own = ("/usr/lib/", "/usr/share/", "/etc/ld.so.cache")  # what the programs open themselves
    assert not [f for f in seen["fd"] if f not in ("pipe", "/dev/null") and not f.startswith(own)], seen
    assert not [m for m in seen["maps"] if "memfd" in m or "cloche" in m], seen


def test_PR_18_control(box):
    """The same racer and one that joins as nobody should: its program and what it holds are seen before the command's are."""
    naive = ("import os\nheld = open('/etc/hostname')\nfor _ in range(300):\n    pid = os.fork()\n"
             "    if pid == 0: os.execv('/usr/bin/true', ['true'])\n    os.waitpid(pid, 0)")
    seen = raced(box, lambda: box.python(naive))
    assert "/etc/hostname" in seen["fd"] and any("python" in e for e in seen["exe"]), seen


# ---------------------------------------------------------------------------------------------- ps and space


def test_ps(box):
    number = box.begin(["sh", "-c", "exec sleep 90"]).number
    wait_for(lambda: any(b"sleep" in p.line and p.number == number for p in box.ps()))
    found = [p for p in box.ps() if p.number == number]
    assert len(found) == 1
    p = found[0]
    assert p.uid == 65534 and p.parent == 1 and p.threads == 1 and p.state in "SDR" and p.rss > 0
    box.kill(number, 9)
    number = box.begin(["python3", "-c", "import time; time.sleep(89)", "\n\x7f" + "x" * 600]).number
    wait_for(lambda: any(p.line.startswith(b"python3") for p in box.ps()))
    p = next(p for p in box.ps() if p.number == number)
    assert len(p.line) == 510 and b" ??xxx" in p.line
    box.kill(number, 9)


def test_space(box):
    def used():
        return next(r for r in box.space() if r.path == "/big").used
    assert {"/tmp", "/dev/shm", "/workspace", "/big"} <= {r.path for r in box.space()}
    before = used()
    box.write("/big/room", bytes(5_000_000))
    assert 5_000_000 <= used() - before < 5_010_000
    box.remove("/big/room")
    assert used() == before
