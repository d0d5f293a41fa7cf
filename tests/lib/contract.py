# SPDX-License-Identifier: Apache-2.0
"""What the contract tests share: the invariants of a result, and waiting for what an event tells."""
import datetime
import os
import re
import time
from concurrent.futures import ThreadPoolExecutor

RUNTIMES = ("native",)  # every runtime there is; the tests run with those that the service calls available

# reason: (error code, retryable), as far as these do not depend on the command.
REASONS = {
    "signaled": ("COMMAND_FAILED", False), "seccomp_violation": ("COMMAND_FAILED", False),
    "timeout": ("SANDBOX_COMMAND_TIMEOUT", False), "cpu_time": ("SANDBOX_COMMAND_TIMEOUT", False),
    "idle_timeout": ("SANDBOX_IDLE_TIMEOUT", False), "oom": ("SANDBOX_OOM", False),
    "output_limit": ("SANDBOX_OUTPUT_LIMIT", False), "killed": ("SANDBOX_KILLED", False),
    "cancelled": ("SANDBOX_KILLED", False), "runtime_crash": ("SANDBOX_CRASHED", True), "lost": ("SANDBOX_LOST", True),
}
RESULT_KEYS = {"id", "sandbox", "ok", "reason", "error_code", "retryable", "stage", "message", "model_message", "exit_code", "signal",
               "timed_out", "stdout", "stderr", "encoding", "output", "limits_hit", "oom_kills", "artifacts", "network", "usage",
               "enforced"}
SANDBOX_KEYS = {"id", "state", "reason", "message", "image", "runtime", "owner", "session", "created_at", "expires_at", "idle_timeout",
                "on_timeout", "resume_on_touch", "ended_at", "limits", "labels", "metadata", "usage", "enforced"}


def check_result(o, streamed=False):
    """What follows from other fields does so; the types are the document's business. streamed: the output went out as events,
    the result only counts it."""
    assert set(o.json) == RESULT_KEYS, set(o.json) ^ RESULT_KEYS
    assert o.message and o.model_message and "/" not in o.model_message
    for name, data in (("stdout", o.out), ("stderr", o.err)):
        counts = o.output[name]
        assert counts["bytes"] == counts["kept"] + counts["dropped"]
        assert data == b"" if streamed else counts["kept"] == len(data)
        assert (counts["dropped"] > 0) <= ("output" in o.limits_hit)
    assert o.ok == (o.reason == "exited" and o.exit_code == 0 and o.error_code is None)
    assert o.timed_out == (o.reason == "timeout")
    assert (o.stage is not None) == (o.reason == "create_failed")
    assert (o.exit_code is not None) == (o.reason == "exited")
    assert (o.signal is not None) <= (o.reason in ("signaled", "seccomp_violation", "oom", "cpu_time"))
    if o.reason in REASONS:
        assert (o.error_code, o.retryable) == REASONS[o.reason]
    if o.reason == "exited" and o.error_code != "SANDBOX_ARTIFACT_EXPORT_FAILED":
        denied = "network_denied" in o.limits_hit
        assert denied == bool(o.network["denied"]) or o.enforced["network_denials"] == "not observed"
        assert o.error_code == (None if o.exit_code == 0 else "SANDBOX_NETWORK_DENIED" if denied else "COMMAND_FAILED")
    return o


def exited(o, status=0):
    assert (o.reason, o.exit_code) == ("exited", status), o.json
    return o


def stamp(text):
    """Seconds of the epoch; the API's times are RFC 3339 in UTC."""
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", text), text
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def ended(box, seconds=20):
    """The sandbox object after its end; waits on the service's events."""
    with box.client.stream("GET", "/v1/events", query={"sandbox": box.id, "since": 0}, timeout=seconds * SLOWER) as events:
        row = box.object()
        if row["state"] != "ended":
            events.until(lambda e: e.get("type") == "sandbox.ended")
            row = box.object()
    assert row["state"] == "ended"
    return row


SLOWER = 5 if "CLOCHE_VM" in os.environ else 1  # an emulated processor


def until(condition, seconds=10, what="the condition"):
    """Wait for what no stream tells."""
    limit = time.monotonic() + seconds * SLOWER
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < limit, f"{what} has not come within {seconds} s"
        time.sleep(0.02)


def at_once(function, arguments, workers=None):
    """FUNCTION for every argument, at the same time; the results in order."""
    with ThreadPoolExecutor(workers or len(arguments)) as pool:
        return list(pool.map(function, arguments))
