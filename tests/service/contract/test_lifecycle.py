# SPDX-License-Identifier: Apache-2.0
"""A kept sandbox from creation to the day after its end."""
import os
import threading
import time

import pytest
from contract import SANDBOX_KEYS, at_once, ended, exited, stamp, until

UNKNOWN = "sbx_" + "0" * 32


# -------------------------------------------------------------------------------------------------------- creation


def test_defaults(client, runtime, boxes):
    box = boxes()
    o = box.object()
    assert set(o) == SANDBOX_KEYS
    assert (o["state"], o["reason"], o["message"], o["ended_at"]) == ("running", None, None, None)
    assert (o["image"], o["runtime"], o["owner"], o["session"]) == ("host", runtime, f"uid:{os.geteuid()}", None)
    assert 3598 < stamp(o["expires_at"]) - stamp(o["created_at"]) < 3602
    assert (o["idle_timeout"], o["on_timeout"], o["resume_on_touch"]) == (None, "kill", True)
    assert o["limits"] == {"memory": 256 << 20, "cpus": 0.5, "pids": 64, "disk": None}
    assert (o["labels"], o["metadata"]) == ({}, {})
    assert abs(stamp(o["created_at"]) - time.time()) < 30
    assert o["enforced"]["runtime"] == runtime and o["enforced"]["no_new_privs"] is True
    assert {"id", "limits", "enforced"} <= set(box.made) and box.made["state"] == "running"


def test_every_option_is_what_the_sandbox_then_is(boxes):
    box = boxes(memory="100m", memory_swap="100m", cpus=0.25, pids_limit=32, tmpfs=["/data:size=1m,inodes=64"], hostname="bell",
                profile="dev", user="1234:1235", image="host", network="none", env={"NAME": "value", "HOME": "/data"}, workdir="/tmp",
                timeout="10m", idle_timeout=300, on_timeout="pause", resume_on_touch=False,
                labels={"team": "blue", "ü": "ß"}, metadata={"note": "a\nb"})
    o = box.object()
    assert o["limits"] == {"memory": 100 << 20, "cpus": 0.25, "pids": 32, "disk": None}
    assert 598 < stamp(o["expires_at"]) - stamp(o["created_at"]) < 602
    assert (o["idle_timeout"], o["on_timeout"], o["resume_on_touch"]) == (300, "pause", False)
    assert (o["labels"], o["metadata"]) == ({"team": "blue", "ü": "ß"}, {"note": "a\nb"})
    r = exited(box.sh("id -u; id -g; hostname; echo $NAME $HOME; pwd; stat -f -c '%s %b' /data"))
    uid, gid, name, env, pwd, size = r.out.decode().splitlines()
    block, blocks = map(int, size.split())
    assert (uid, gid, name, env, pwd, block * blocks) == ("1234", "1235", "bell", "value /data", "/tmp", 1 << 20)


def test_no_life_longer_than_the_service_allows(client, box):
    """max_timeout is seven days unless the operator says otherwise."""
    for life in ("never", "169h", 700000):
        client.problem(403, "FORBIDDEN", "POST", "/v1/sandboxes", json={"timeout": life})
        box.problem(403, "FORBIDDEN", "POST", "/renew", json={"timeout": life})
    assert stamp(box.renew(timeout="168h")["expires_at"]) > time.time() + 600000


def test_numbers_and_the_words_of_the_command_line_are_one(boxes):
    a, b = boxes(memory=67108864, timeout=90, cpus="0.5").object(), boxes(memory="64m", timeout="1.5m", cpus=0.5).object()
    assert a["limits"] == b["limits"]
    assert round(stamp(a["expires_at"]) - stamp(a["created_at"])) == round(stamp(b["expires_at"]) - stamp(b["created_at"])) == 90


def test_disk_workspace_has_its_size_and_is_not_memory(boxes):
    box = boxes(disk="64m", memory="48m")
    assert box.object()["limits"]["disk"] == 64 << 20
    exited(box.sh("head -c 40000000 /dev/zero > /workspace/a && stat -c %s /workspace/a && rm /workspace/a"))
    r = box.sh("head -c 80000000 /dev/zero > /workspace/b; echo $?; rm -f /workspace/b", timeout=60)
    assert b"No space left" in r.err and r.out == b"1\n"
    assert box.object()["state"] == "running"


@pytest.mark.parametrize("body, status, code", [
    ({"image": "nosuch:1"}, 404, "SANDBOX_IMAGE_MISSING"),
    ({"runtime": "nosuch"}, 501, "SANDBOX_RUNTIME_UNAVAILABLE"),
    ({"memory": "1"}, 400, "INVALID_REQUEST"),
    ({"memory": "-1"}, 400, "INVALID_REQUEST"),
    ({"memory": 0}, 400, "INVALID_REQUEST"),
    ({"cpus": 0}, 400, "INVALID_REQUEST"),
    ({"pids_limit": 0}, 400, "INVALID_REQUEST"),
    ({"timeout": 0}, 400, "INVALID_REQUEST"),
    ({"timeout": "forever"}, 400, "INVALID_REQUEST"),
    ({"timeout": "300d"}, 400, "INVALID_REQUEST"),
    ({"idle_timeout": -1}, 400, "INVALID_REQUEST"),
    ({"on_timeout": "explode"}, 400, "INVALID_REQUEST"),
    ({"labels": {f"l{i}": "" for i in range(33)}}, 400, "INVALID_REQUEST"),
    ({"labels": {"a": 1}}, 400, "INVALID_REQUEST"),
    ({"disk": "1"}, 400, "INVALID_REQUEST"),
    ({"command": ["true"]}, 400, "INVALID_REQUEST"),
])
def test_refused(client, body, status, code):
    client.problem(status, code, "POST", "/v1/sandboxes", json=body)


# ---------------------------------------------------------------------------------------------- pause and resume


COUNTER = """
import time
kept = ["in memory"]
n = 0
while True:
    n += 1
    with open("/workspace/n", "w") as f: f.write(f"{n} {kept[0]}")
    sum(range(20000))
"""


def test_pause_keeps_memory_and_stops_the_processor(boxes):
    box = boxes(resume_on_touch=False)
    box.start(language="python", code=COUNTER)
    until(lambda: b"memory" in box.sh("cat /workspace/n").out, what="the counter")
    o = box.pause()
    assert (o["state"], o["reason"]) == ("paused", None)
    used = box.object()["usage"]["cpu_ms"]
    time.sleep(0.4)  # nothing tells of what does not happen
    o = box.object()
    assert o["state"] == "paused"
    assert used is not None and o["usage"]["cpu_ms"] - used < 20
    assert box.resume()["state"] == "running"

    def count():  # 0 in the moment between the file's opening and its writing
        return int((box.read("/workspace/n").split() or [b"0"])[0])
    first = count()
    until(lambda: count() > first, what="the counter going on")
    assert len(box.processes()) == 1 and box.processes()[0]["running"]


def test_pause_and_resume_twice_is_the_same_as_once(box):
    assert [box.pause()["state"], box.pause()["state"]] == ["paused", "paused"]
    assert [box.resume()["state"], box.resume()["state"]] == ["running", "running"]


@pytest.mark.parametrize("method, path, more", [
    ("POST", "/exec", {"json": {"command": ["true"]}}),
    ("POST", "/processes", {"json": {"command": ["true"]}}),
    ("GET", "/processes", {"query": {"all": True}}),
    ("GET", "/files", {"query": {"path": "/workspace/x"}}),
    ("PUT", "/files", {"query": {"path": "/workspace/x"}, "body": b"x"}),
    ("GET", "/files/list", {"query": {"path": "/workspace"}}),
    ("GET", "/archive", {"query": {"path": "/workspace"}}),
    ("GET", "/ports/80/", {}),
])
def test_paused_without_resume_on_touch_is_a_conflict(boxes, method, path, more):
    box = boxes(resume_on_touch=False)
    box.pause()
    box.problem(409, "CONFLICT", method, path, **more)
    assert box.object()["state"] == "paused"


def test_touch_resumes(box):
    box.put("/workspace/kept", b"kept")
    box.pause()
    assert box.object()["state"] == "paused"  # looking at it is not touching it
    assert exited(box.exec(["cat", "/workspace/kept"])).out == b"kept"
    assert box.object()["state"] == "running"
    box.pause()
    assert box.read("/workspace/kept") == b"kept"
    assert box.object()["state"] == "running"


def test_a_paused_sandbox_can_be_killed(box):
    box.start(["sleep", "100"])
    box.pause()
    o = box.kill()
    assert (o["state"], o["reason"]) == ("ended", "killed")


# --------------------------------------------------------------------------------------------------------- clocks


def test_renew_counts_from_now(boxes):
    box = boxes(timeout=60)
    o = box.renew(timeout=600)
    assert 598 < stamp(o["expires_at"]) - time.time() < 602
    o = box.renew(idle_timeout=120)
    assert o["idle_timeout"] == 120 and 598 < stamp(o["expires_at"]) - time.time() < 602
    assert box.renew(idle_timeout="never")["idle_timeout"] is None
    box.problem(400, "INVALID_REQUEST", "POST", "/renew", json={"timeout": 0})
    box.problem(400, "INVALID_REQUEST", "POST", "/renew", json={"memory": "1g"})


def test_renewed_sandbox_outlives_its_first_end(boxes):
    box = boxes(timeout=0.6)
    box.renew(timeout=60)
    time.sleep(0.9)
    assert box.object()["state"] == "running"


def test_timeout_kills_with_its_reason(boxes):
    box = boxes(timeout=0.5)
    began = stamp(box.object()["created_at"])
    box.start(["sleep", "100"])
    o = ended(box)
    assert (o["reason"], o["state"]) == ("timeout", "ended") and o["message"]
    assert 0.4 < stamp(o["ended_at"]) - began < 3


def test_timeout_with_a_command_at_work(boxes):
    """The command did not end by itself; its result says what happened to the sandbox."""
    box = boxes(timeout=0.7)
    r = box.exec(["sleep", "100"])
    assert r.reason in ("timeout", "killed") and not r.ok
    assert ended(box)["reason"] == "timeout"


def test_on_timeout_pause(boxes):
    box = boxes(timeout=0.5, on_timeout="pause", resume_on_touch=False)
    box.start(["sleep", "100"])
    o = until(lambda: (lambda o: o["state"] == "paused" and o)(box.object()), what="the pause")
    assert o["reason"] is None and o["ended_at"] is None
    box.renew(timeout=60)
    assert box.resume()["state"] == "running"
    assert [p["running"] for p in box.processes()] == [True]


def test_idle_timeout_ends_what_does_nothing(boxes):
    box = boxes(idle_timeout=0.5)
    box.start(["sleep", "100"])
    o = ended(box)
    assert o["reason"] == "idle_timeout" and 0.3 < stamp(o["ended_at"]) - stamp(o["created_at"]) < 4


def test_idle_timeout_pauses(boxes):
    box = boxes(idle_timeout=0.5, on_timeout="pause")
    until(lambda: box.object()["state"] == "paused", what="the pause")


def work_api(box):
    until_time = time.monotonic() + 2
    while time.monotonic() < until_time:
        exited(box.exec(["true"]))
        time.sleep(0.2)


def work_processor(box):
    box.start(["bash", "-c", "while :; do :; done"])
    time.sleep(2)


def work_output(box):
    """A line now and then is hardly any processor time, but it is output."""
    box.start(["bash", "-c", "while :; do echo; read -t 0.2 < <(sleep 1); done"])
    time.sleep(2)


def work_connection(box):
    p = box.start(["sleep", "100"])
    with p.follow():
        time.sleep(2)


@pytest.mark.parametrize("work", [work_api, work_processor, work_output, work_connection])
def test_work_counts_against_the_idle_timeout(boxes, work):
    box = boxes(idle_timeout=1)
    work(box)
    assert box.object()["state"] == "running"


# ------------------------------------------------------------------------------------------------------------ end


def test_delete_is_final_and_idempotent(box):
    box.start(["sleep", "100"])
    o = box.kill()
    assert (o["state"], o["reason"]) == ("ended", "killed") and stamp(o["ended_at"]) >= stamp(o["created_at"])
    assert box.kill() == o and box.object() == o
    assert o["id"] in [s["id"] for s in box.client.get("/v1/sandboxes", state="ended")["sandboxes"]]


@pytest.mark.parametrize("method, path, more", [
    ("POST", "/exec", {"json": {"command": ["true"]}}), ("POST", "/pause", {}), ("POST", "/resume", {}),
    ("POST", "/renew", {"json": {"timeout": 5}}), ("POST", "/processes", {"json": {"command": ["true"]}}),
    ("GET", "/files", {"query": {"path": "/workspace/x"}}), ("PUT", "/files", {"query": {"path": "/workspace/x"}, "body": b""}),
    ("GET", "/files/stat", {"query": {"path": "/workspace"}}), ("GET", "/files/list", {"query": {"path": "/workspace"}}),
    ("GET", "/archive", {"query": {"path": "/workspace"}}), ("GET", "/ports/80/", {}),
])
def test_ended_is_gone(client, method, path, more):
    box = client.box()
    box.kill()
    box.problem(410, "SANDBOX_ENDED", method, path, **more)


@pytest.mark.parametrize("method, path, more", [
    ("GET", "", {}), ("DELETE", "", {}), ("POST", "/exec", {"json": {"command": ["true"]}}), ("POST", "/pause", {}), ("POST", "/resume", {}),
    ("POST", "/renew", {"json": {"timeout": 5}}), ("POST", "/processes", {"json": {"command": ["true"]}}), ("GET", "/processes", {}),
    ("GET", "/files", {"query": {"path": "/workspace/x"}}), ("PUT", "/files", {"query": {"path": "/workspace/x"}, "body": b""}),
    ("DELETE", "/files", {"query": {"path": "/workspace/x"}}), ("POST", "/files/mkdir", {"json": {"path": "/workspace/x"}}),
    ("POST", "/files/move", {"json": {"from": "/tmp/a", "to": "/tmp/b"}}), ("GET", "/files/stat", {"query": {"path": "/workspace"}}),
    ("GET", "/files/list", {"query": {"path": "/workspace"}}), ("GET", "/files/watch", {"query": {"path": "/workspace"}}),
    ("GET", "/archive", {"query": {"path": "/workspace"}}), ("GET", "/ports/80/", {}),
])
def test_unknown_is_not_found(client, method, path, more):
    client.problem(404, "NOT_FOUND", method, f"/v1/sandboxes/{UNKNOWN}{path}", **more)


def test_an_end_during_a_command(box):
    """Who waits for a command of a sandbox that is killed gets a true result, not a cut connection."""
    results = []
    waiter = threading.Thread(target=lambda: results.append(box.exec(["sleep", "100"])))
    waiter.start()
    until(lambda: any("sleep" in p["command"] for p in box.everything()), what="the command")
    box.kill()
    waiter.join(20)
    assert [r.reason for r in results] == ["killed"] and results[0].error_code == "SANDBOX_KILLED"


def test_life_is_told_as_events(client, boxes):
    box = boxes()
    box.pause()
    box.resume()
    box.renew(timeout=100)
    box.kill()
    with client.stream("GET", "/v1/events", query={"sandbox": box.id, "since": 0}, timeout=10) as stream:
        seen = []
        for e in stream.events():
            if e:
                seen.append(e)
            if e.get("type") == "sandbox.ended":
                break
    assert [e["type"] for e in seen] == ["sandbox.created", "sandbox.paused", "sandbox.resumed", "sandbox.renewed", "sandbox.ended"]
    assert {e["sandbox"] for e in seen} == {box.id} and seen[-1]["reason"] == "killed"
    assert [e["seq"] for e in seen] == sorted(e["seq"] for e in seen)


# ----------------------------------------------------------------------------------------- lists, idempotency


def test_list_by_label_session_and_state(client, boxes):
    mark = str(time.monotonic_ns())
    blue, red = boxes(labels={"mark": mark, mark: "blue"}), boxes(labels={"mark": mark, mark: "red"})
    session = client.box(headers={"X-Cloche-Session": f"s{mark}"}, labels={"mark": mark})
    red.pause()

    def ids(**query):
        return [s["id"] for s in client.get("/v1/sandboxes", **query)["sandboxes"]]
    try:
        assert ids(label=f"mark={mark}") == [session.id, red.id, blue.id]
        assert ids(label=f"{mark}=blue") == [blue.id]
        assert ids(label=mark) == [red.id, blue.id]
        assert ids(label=f"mark={mark}", state="paused") == [red.id]
        assert ids(session=f"s{mark}") == [session.id]
        assert session.object()["session"] == f"s{mark}"
    finally:
        session.kill()
    assert ids(label=f"mark={mark}", state="ended") == [session.id]


def test_pages_have_everything_once(client, boxes):
    mark = str(time.monotonic_ns())
    made = [boxes(labels={"page": mark}, memory="32m").id for _ in range(5)]
    seen, after, pages = [], None, 0
    while True:
        page = client.get("/v1/sandboxes", label=f"page={mark}", limit=2, after=after)
        seen += [s["id"] for s in page["sandboxes"]]
        after, pages = page["next"], pages + 1
        if after is None:
            break
    assert seen == made[::-1] and pages in (3, 4)


@pytest.mark.parametrize("query", ["state=bogus", "limit=0", "limit=1001", "limit=x", "limit=1&limit=2", "nosuch=1", "after=x", "state="])
def test_list_refuses(client, query):
    client.problem(400, "INVALID_REQUEST", "GET", f"/v1/sandboxes?{query}")


def test_one_idempotency_key_is_one_sandbox(client, boxes):
    key = {"Idempotency-Key": f"k{time.monotonic_ns()}"}
    body = client.body(None, {"memory": "32m"})
    first = client.expect(201, "POST", "/v1/sandboxes", json=body, headers=key).json
    try:
        again = client.expect(201, "POST", "/v1/sandboxes", json=body, headers=key).json
        assert again["id"] == first["id"]
        client.problem(409, "CONFLICT", "POST", "/v1/sandboxes", json={**body, "memory": "33m"}, headers=key)
        other = boxes(memory="32m")
        assert other.id != first["id"]
    finally:
        client.expect(200, "DELETE", f"/v1/sandboxes/{first['id']}")
    again = client.expect(201, "POST", "/v1/sandboxes", json=body, headers=key).json
    assert (again["id"], again["state"]) == (first["id"], "ended")


def test_one_idempotency_key_used_at_the_same_time(client):
    key = {"Idempotency-Key": f"k{time.monotonic_ns()}"}
    body = client.body(None, {"memory": "32m"})
    made = at_once(lambda _: client.expect(201, "POST", "/v1/sandboxes", json=body, headers=key).json["id"], range(4))
    client.expect(200, "DELETE", f"/v1/sandboxes/{made[0]}")
    assert len(set(made)) == 1


def test_bad_idempotency_key(client):
    for key in ("", "x" * 300):
        client.problem(400, "INVALID_REQUEST", "POST", "/v1/sandboxes", json={}, headers={"Idempotency-Key": key})
