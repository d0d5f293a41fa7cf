# SPDX-License-Identifier: Apache-2.0
"""Commands in the background: their output from an offset, their input, signals, terminals, and their end."""
import pytest
from contract import at_once, stamp, until
from service import event_bytes, joined

UNKNOWN = "prc_" + "0" * 32


def test_object_and_list(box):
    a, b = box.start(["sleep", "91"]), box.start(["sh", "-c", "exit 4"])
    o = a.object()
    assert (o["command"], o["running"], o["tty"], o["exit_code"], o["signal"]) == (["sleep", "91"], True, False, None, None)
    assert o["pid"] > 1 and stamp(o["started_at"]) > 0
    assert o["output"] == {"stdout": {"bytes": 0, "kept": 0}, "stderr": {"bytes": 0, "kept": 0}}
    o = b.wait()
    assert (o["running"], o["exit_code"], o["signal"]) == (False, 4, None)
    assert {p["id"] for p in box.processes()} == {a.id, b.id}


def test_every_process_inside(box):
    p = box.start(["sh", "-c", "sleep 92 & sleep 93; :"])
    until(lambda: {"sleep 92", "sleep 93"} < {r["command"].strip() for r in box.everything()}, what="three processes")
    rows = box.everything()
    assert len(rows) == 3
    for r in rows:
        assert r["process"] == p.id and r["uid"] == 65534 and r["threads"] == 1 and r["state"] in "SRDI"


def test_output_from_offsets(box):
    p = box.start("printf 0123456789; printf abcdef >&2; exit 0")
    p.wait()
    events = p.output()
    assert joined(events, "stdout") == b"0123456789" and joined(events, "stderr") == b"abcdef"
    events = p.output(stdout=4, stderr=6)
    assert joined(events, "stdout") == b"456789" and joined(events, "stderr") == b""
    assert [e["offset"] for e in events if e["type"] == "stdout"][0] == 4
    assert joined(p.output(stdout=10), "stdout") == b""


def test_output_of_a_running_one_ends_without_follow(box):
    p = box.start("echo now; sleep 94")
    until(lambda: joined(p.output(), "stdout") == b"now\n", what="the output")
    assert all(e["type"] != "exited" for e in p.output())


def test_follow_has_all_of_it_and_the_end(box):
    p = box.start("for i in $(seq 50); do echo $i; done; exit 9")
    with p.follow() as s:
        events = list(s.events())
    assert joined(events, "stdout") == b"".join(b"%d\n" % i for i in range(1, 51))
    assert events[-1]["type"] == "exited"
    offset = 0
    for e in events:
        if e["type"] == "stdout":
            assert e["offset"] == offset
            offset += len(event_bytes(e))


def test_only_the_last_bytes_are_kept_and_the_offset_says_so(box):
    p = box.start(["sh", "-c", "head -c 100000 /dev/zero; echo end"], max_output=1000)
    o = p.wait()
    counts = o["output"]["stdout"]
    assert counts["bytes"] == 100004 and counts["kept"] <= 1000
    events = [e for e in p.output() if e["type"] == "stdout"]
    assert events[0]["offset"] == counts["bytes"] - counts["kept"]
    assert joined(events, "stdout").endswith(b"\0end\n")


def test_two_readers_see_the_same(box):
    p = box.start("for i in $(seq 200); do echo $i; done")

    def read(_):
        with p.follow() as s:
            return joined(s.events(), "stdout")

    assert set(at_once(read, range(3))) == {b"".join(b"%d\n" % i for i in range(1, 201))}


def test_stdin_and_its_end(box):
    p = box.start(["cat"], stdin=True)
    p.stdin(b"one ")
    p.stdin(bytes(range(256)))
    until(lambda: len(joined(p.output(), "stdout")) == 260, what="the echo")
    assert p.object()["running"]
    p.stdin(b" two", eof=True)
    assert p.wait()["exit_code"] == 0
    assert joined(p.output(), "stdout") == b"one " + bytes(range(256)) + b" two"


def test_stdin_that_was_not_kept_open(box):
    p = box.start(["sh", "-c", "cat; echo over; sleep 89"])
    until(lambda: joined(p.output(), "stdout") == b"over\n", what="the end of stdin")
    box.problem(409, "CONFLICT", "POST", p.path + "/stdin", body=b"x")


def test_stdin_as_text(box):
    p = box.start(["cat"], stdin="all of it")
    assert p.wait()["exit_code"] == 0 and joined(p.output(), "stdout") == b"all of it"


def test_five_megabytes_of_stdin(box):
    p = box.start(["wc", "-c"], stdin=True)
    p.stdin(b"x" * 5_000_000, eof=True)
    p.wait()
    assert joined(p.output(), "stdout").strip() == b"5000000"


@pytest.mark.parametrize("name, number", [("TERM", 15), (15, 15), ("KILL", 9), ("SIGUSR1", 10), (2, 2)])
def test_signals(box, name, number):
    p = box.start(["sleep", "88"])
    p.signal(name)
    o = p.wait()
    assert (o["running"], o["exit_code"], o["signal"]) == (False, None, number)


def test_a_signal_reaches_the_session(box):
    p = box.start("sleep 87 & sleep 86; :")
    until(lambda: len(box.everything()) == 3, what="its children")
    p.signal("KILL")
    until(lambda: box.everything() == [], what="the end of all")


@pytest.mark.parametrize("signal", ["NOSUCH", 0, 65, -1, "", None, 1.5, "9", []], ids=repr)
def test_no_such_signal(box, signal):
    p = box.start(["sleep", "85"])
    box.problem(400, "INVALID_REQUEST", "POST", p.path + "/signal", json={"signal": signal})
    assert p.object()["running"]


def test_a_terminal(boxes):
    box = boxes(profile="dev")
    p = box.start(["sh", "-c", "stty size; [ -t 0 ] && [ -t 1 ] && [ -t 2 ] && echo tty; read x; stty size; echo \"$x\""],
                  tty=True, rows=33, columns=77, stdin=True)
    assert p.object()["tty"] is True
    until(lambda: b"tty" in joined(p.output(), "stdout"), what="the terminal")
    assert joined(p.output(), "stdout").startswith(b"33 77\r\n")
    box.expect(204, "POST", p.path + "/resize", json={"rows": 44, "columns": 99})
    p.stdin(b"typed\n")
    p.wait()
    out = joined(p.output(), "stdout")
    assert b"44 99\r\n" in out and out.endswith(b"typed\r\n")


def test_control_c_at_a_terminal(boxes):
    box = boxes(profile="dev")
    p = box.start(["sh", "-c", "echo up; sleep 84"], tty=True, stdin=True)
    until(lambda: b"up" in joined(p.output(), "stdout"), what="the shell")
    p.stdin(b"\x03")
    assert p.wait()["signal"] == 2


def test_no_terminal_without_its_profile(box):
    box.problem(400, "INVALID_REQUEST", "POST", "/processes", json={"command": ["sh"], "tty": True})


def test_resize_without_a_terminal(box):
    p = box.start(["sleep", "83"])
    box.problem(400, "INVALID_REQUEST", "POST", p.path + "/resize", json={"rows": 24, "columns": 80})
    for bad in ({"rows": 0, "columns": 80}, {"rows": 24}, {"rows": 70000, "columns": 80}, {"rows": "24", "columns": 80}):
        box.problem(400, "INVALID_REQUEST", "POST", p.path + "/resize", json=bad)


def test_timeout_of_a_process(box):
    p = box.start(["sleep", "82"], timeout=0.4)
    o = p.wait()
    assert (o["running"], o["exit_code"], o["signal"]) == (False, None, 9)


def test_delete_forgets_an_ended_one_and_kills_a_running_one(box):
    a, b = box.start(["true"]), box.start(["sleep", "81"])
    a.wait()
    a.delete()
    b.delete()
    assert box.processes() == []
    until(lambda: box.everything() == [], what="the end of the running one")
    box.problem(404, "NOT_FOUND", "GET", a.path)
    box.problem(404, "NOT_FOUND", "DELETE", a.path)


def test_a_process_of_another_sandbox_is_not_found(boxes):
    a, b = boxes(), boxes()
    p = a.start(["sleep", "80"])
    for method, path, more in (("GET", "", {}), ("DELETE", "", {}), ("GET", "/output", {}), ("POST", "/stdin", {"body": b"x"}),
                               ("POST", "/signal", {"json": {"signal": "KILL"}})):
        b.problem(404, "NOT_FOUND", method, p.path + path, **more)
    assert p.object()["running"]


@pytest.mark.parametrize("method, path, more", [("GET", "", {}), ("DELETE", "", {}), ("GET", "/output", {}),
                                                ("POST", "/stdin", {"body": b"x"}), ("POST", "/signal", {"json": {"signal": 15}}),
                                                ("POST", "/resize", {"json": {"rows": 1, "columns": 1}})])
def test_no_such_process(box, method, path, more):
    box.problem(404, "NOT_FOUND", method, f"/processes/{UNKNOWN}{path}", **more)


def test_signal_after_the_end(box):
    p = box.start(["true"])
    p.wait()
    box.problem(409, "CONFLICT", "POST", p.path + "/signal", json={"signal": "TERM"})


def test_what_cannot_be_executed(box):
    """There is no process; the problem says why."""
    problem = box.problem(404, "NOT_FOUND", "POST", "/processes", json={"command": ["nosuch-command"]})
    assert "nosuch-command" in problem["detail"] or "o such file" in problem["detail"]
