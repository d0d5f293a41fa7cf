# SPDX-License-Identifier: Apache-2.0
"""cloched is killed while runs are under way: the next one has an eye on their limits, too."""
import os
import signal
from concurrent.futures import ThreadPoolExecutor

import contract
import pytest
import service as services


@pytest.fixture(scope="module")
def mine():
    with services.Service() as one:
        yield one


BUSY = "while :; do :; done"
CASES = {
    "cpu_time": ({"command": BUSY, "cpu_time": "1s", "cpus": 1}, "cpu_time", []),
    "idle_timeout": ({"command": "echo once; sleep 100", "idle_timeout": "1s"}, "idle_timeout", []),
    "output_limit": ({"command": "sleep 1; head -c 5000 /dev/zero; sleep 100", "max_output": 1000, "on_output_limit": "kill"},
                     "output_limit", None),
    "max_output": ({"command": "sleep 1; head -c 5000 /dev/zero", "max_output": 1000}, "exited", ["output"]),
    "timeout": ({"command": BUSY, "timeout": "3s"}, "timeout", []),
}


@pytest.mark.parametrize("name", CASES)
def test_limits_hold_for_who_takes_it_up(mine, name):
    body, reason, hit = CASES[name]
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(lambda: mine.root.request("POST", "/v1/runs", json={"timeout": "60s", "memory": "64m", **body}, check=False))
        running = contract.until(lambda: [r for r in mine.root.get("/v1/runs", limit=1)["runs"] if r["state"] == "running"], 10)
        contract.until(lambda: any(b["state"] == "running" for b in [mine.root.get(f"/v1/sandboxes/{running[0]['sandbox']}")]), 10)
        before = mine.child("cloched")
        os.kill(before, signal.SIGKILL)
        assert asked.exception(20), "its connection was cut"
    contract.until(lambda: mine.child("cloched") not in (None, before), 10)
    mine.wait_ready()
    run = contract.until(lambda: (lambda r: r["state"] == "ended" and r)(mine.root.get(f"/v1/runs/{running[0]['id']}")), 20)
    result = run["result"]
    assert result["reason"] == reason, result
    assert hit is None or result["limits_hit"] == hit
    if name in ("max_output", "output_limit"):
        assert result["output"]["stdout"]["kept"] <= 1001 and result["output"]["stdout"]["bytes"] > 1000


@pytest.mark.parametrize("kind", ["run", "exec"])
def test_input_that_nobody_can_send_any_more(mine, kind):
    """More than init and the pipe had taken was still in the request when cloched died: the command would wait for it until its
    time is up, and be told to have been too slow."""
    body = {"command": "echo up; sleep 3; cat >/dev/null; echo never", "stdin": "x" * (1 << 20), "timeout": "60s"}
    box = mine.root.box(memory="64m") if kind == "exec" else None
    path = f"{box.path}/exec" if box else "/v1/runs"
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(lambda: mine.root.request("POST", path, json=body, check=False))
        row = contract.until(lambda: next((r for r in mine.root.get("/v1/runs", limit=5)["runs"] if r["state"] == "running"), None), 10)
        contract.until(lambda: mine.root.get(f"/v1/sandboxes/{row['sandbox']}")["state"] == "running", 10)
        before = mine.child("cloched")
        os.kill(before, signal.SIGKILL)
        assert asked.exception(20), "its connection was cut"
    contract.until(lambda: mine.child("cloched") not in (None, before), 10)
    mine.wait_ready()
    ended = contract.until(lambda: (lambda r: r["state"] == "ended" and r)(mine.root.get(f"/v1/runs/{row['id']}")), 10)
    assert ended["result"]["reason"] == "lost" and not ended["result"]["ok"] and ended["result"]["retryable"], ended
    if box:  # which lives on, without the command
        contract.until(lambda: not any("never" in p["command"] for p in box.everything()), 10)
        assert box.exec(["true"]).ok
        box.kill()
