# SPDX-License-Identifier: Apache-2.0
"""Output as it comes: exact bytes, order per stream, back-pressure, and what happens when the client goes away."""
import hashlib
import json
import random
import time

import pytest
from contract import until
from service import joined, outcome

RANDOM = "import random, sys; sys.stdout.buffer.write(random.Random(5).randbytes({size})); sys.stdout.flush()"


def check_order(events, sandbox):
    assert [e["type"] for e in events[:1]] == ["started"] and events[-1]["type"] == "exited"
    assert {e["type"] for e in events[1:-1]} <= {"stdout", "stderr"}
    assert events[0]["id"].startswith("run_") and events[0]["sandbox"] == sandbox
    times = [e["t"] for e in events]
    assert times == sorted(times) and times[0] >= 0
    result = outcome(events[-1]["result"], streamed=True)
    for name in ("stdout", "stderr"):
        assert len(joined(events, name)) == result.output[name]["kept"]
    assert (result.id, result.sandbox) == (events[0]["id"], sandbox)
    return result


def test_events_in_their_order(box):
    with box.exec_stream("echo out; echo err >&2; exit 3") as s:
        assert s.headers["Content-Type"].startswith("application/x-ndjson")
        events = list(s.events())
    r = check_order(events, box.id)
    assert (r.reason, r.exit_code) == ("exited", 3)
    assert joined(events, "stdout") == b"out\n" and joined(events, "stderr") == b"err\n"


def test_every_byte_of_both_streams(box):
    code = "import sys\nfor i in range(200):\n sys.stdout.buffer.write(bytes(range(256))); sys.stderr.buffer.write(bytes(range(255, -1, -1)))"
    with box.exec_stream(language="python", code=code, max_output="unlimited") as s:
        events = list(s.events())
    check_order(events, box.id)
    assert joined(events, "stdout") == bytes(range(256)) * 200
    assert joined(events, "stderr") == bytes(range(255, -1, -1)) * 200


def test_text_that_is_cut_between_two_reads_stays_exact(box):
    code = "import os, time\nfor b in 'é€\\U0001f514'.encode():\n os.write(1, bytes([b])); time.sleep(0.01)"
    with box.exec_stream(language="python", code=code) as s:
        assert joined(s.events(), "stdout") == "é€\U0001f514".encode()


def test_twenty_megabytes(boxes):
    box = boxes(memory="128m", cpus=1)
    size, digest, length = 20_000_000, hashlib.sha256(), 0
    with box.exec_stream(language="python", code=RANDOM.format(size=size), max_output="unlimited") as s:
        for e in s.events():
            data = joined([e], "stdout")
            digest.update(data)
            length += len(data)
    assert length == size and digest.digest() == hashlib.sha256(random.Random(5).randbytes(size)).digest()
    r = e["result"]
    assert r["reason"] == "exited" and r["output"]["stdout"]["bytes"] == size


def test_what_is_streamed_is_what_the_result_counts(box):
    with box.exec_stream(["sh", "-c", "head -c 3000 /dev/zero"], max_output=1000) as s:
        events = list(s.events())
    r = check_order(events, box.id)
    assert r.output["stdout"] == {"bytes": 3000, "kept": 1000, "dropped": 2000} and r.limits_hit == ["output"]


def test_it_comes_while_it_happens(box):
    with box.exec_stream("echo one; until [ -e /workspace/go ]; do sleep 0.02; done; echo two") as s:
        events = s.events()
        assert next(events)["type"] == "started"
        assert next(events)["data"] == "one\n"
        box.put("/workspace/go")
        rest = list(events)
    assert joined(rest, "stdout") == b"two\n"


WRITER = """
import os
block, n = b"x" * 65536, 0
while n < 60000000:
    n += os.write(1, block)
    f = os.open("/workspace/n", os.O_WRONLY | os.O_CREAT)
    os.pwrite(f, b"%012d" % n, 0)
    os.close(f)
"""


def test_a_slow_client_slows_the_command_and_nobody_else(boxes):
    box = boxes(cpus=1)

    def written():
        return int(box.read("/workspace/n") or 0)

    with box.exec_stream(language="python", code=WRITER, max_output="unlimited") as s:
        assert next(s.events())["type"] == "started"
        until(lambda: box.names("/workspace"), what="the writer")
        last = written()
        for _ in range(100):  # until it stands still
            time.sleep(0.1)
            now = written()
            if now == last:
                break
            last = now
        assert last < 20_000_000, "it wrote on while its reader stood still"
        began = time.monotonic()
        box.client.get("/healthz")
        assert box.exec(["echo", "hi"]).out == b"hi\n" and time.monotonic() - began < 10
        total = sum(len(joined([e], "stdout")) for e in s.events())
    assert total >= 60_000_000


def test_a_client_that_goes_away_cancels_its_command(box):
    with box.exec_stream("echo here; sleep 96") as s:
        events = s.events()
        run = next(events)["id"]
        next(events)
    state = until(lambda: (lambda r: r["state"] == "ended" and r)(box.client.get(f"/v1/runs/{run}")), what="the end of the run")
    r = outcome(state["result"], streamed=True)
    assert (r.reason, r.error_code, r.exit_code) == ("cancelled", "SANDBOX_KILLED", None)
    until(lambda: box.everything() == [], what="the end of its processes")
    assert box.object()["state"] == "running"


def test_a_client_that_stops_waiting_for_a_collected_command(box):
    """It goes on, and its true end can be read: nobody was promised that it would stop."""
    body = json.dumps({"command": "until [ -e /workspace/go ]; do sleep 0.02; done; echo done; exit 6"}).encode()
    with box.client.socket() as s:
        s.sendall(b"POST %s/exec HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" %
                  (box.path.encode(), len(body), body))
        run = until(lambda: box.client.get("/v1/runs", sandbox=box.id)["runs"], what="the run")[0]
    assert (run["state"], run["result"]) == ("running", None)
    box.put("/workspace/go")
    run = until(lambda: (lambda r: r["state"] == "ended" and r)(box.client.get(f"/v1/runs/{run['id']}")), what="its end")
    r = outcome(run["result"])
    assert (r.reason, r.exit_code, r.out) == ("exited", 6, b"done\n")


def test_a_process_goes_on_without_its_reader(box):
    p = box.start("for i in 1 2 3; do echo $i; until [ -e /workspace/$i ]; do sleep 0.02; done; done")
    with p.follow() as s:
        assert s.until(lambda e: e["type"] == "stdout")["data"] == "1\n"
    for i in (1, 2, 3):
        box.put(f"/workspace/{i}")
    assert p.wait()["exit_code"] == 0
    assert joined(p.output(), "stdout") == b"1\n2\n3\n"


@pytest.mark.parametrize("body, reason", [({"command": ["nosuch-command"]}, "create_failed"),
                                          ({"command": ["sleep", "100"], "timeout": 0.4}, "timeout"),
                                          ({"command": "kill -9 $$"}, "signaled")])
def test_bad_ends_come_as_the_last_event(box, body, reason):
    with box.exec_stream(**body) as s:
        events = list(s.events())
    assert events[-1]["type"] == "exited" and events[-1]["result"]["reason"] == reason
