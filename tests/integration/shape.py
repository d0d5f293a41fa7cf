# SPDX-License-Identifier: Apache-2.0
"""What the integration tests share: the result's exact shape (CONTRACT "Result"), and looking at processes from outside."""
import os
import re
import time
from pathlib import Path

import cloche

SLOW = 6 if os.environ.get("CLOCHE_VM") else 1  # an emulated processor

NUMBER = (int, float)
MAYBE_INT, MAYBE_NUMBER, MAYBE_TEXT = (int, type(None)), (int, float, type(None)), (str, type(None))
COUNTS = {"bytes": int, "kept": int, "dropped": int}
SHAPE = {
    "id": str, "sandbox": str, "ok": bool, "reason": str, "error_code": MAYBE_TEXT, "retryable": bool,
    "stage": MAYBE_TEXT, "message": str, "model_message": str, "exit_code": MAYBE_INT, "signal": MAYBE_INT,
    "timed_out": bool, "stdout": str, "stderr": str, "encoding": str, "output": {"stdout": COUNTS, "stderr": COUNTS},
    "limits_hit": list, "oom_kills": int, "artifacts": list,
    "network": {"allowed": int, "denied": list, "bytes_sent": int, "bytes_received": int, "capture": MAYBE_TEXT},
    "usage": {"wall_ms": NUMBER, "cpu_ms": MAYBE_NUMBER, "memory_peak_bytes": MAYBE_INT, "pids_peak": MAYBE_INT},
    "enforced": {"runtime": str, "rootless": bool, "user_namespace": bool, "uid": int, "memory": str, "swap": str,
                 "cpu": str, "pids": str, "network": str, "network_denials": str, "rootfs": str, "disk": str,
                 "capabilities": str, "no_new_privs": bool, "seccomp": str, "landlock": int},
}
NO_NETWORK = {"allowed": 0, "denied": [], "bytes_sent": 0, "bytes_received": 0, "capture": None}
LIMITS = {"memory", "pids", "disk", "inodes", "output", "network_denied"}
# reason: (error code, exit status of the command line, retryable), as far as these do not depend on the command.
REASONS = {
    "signaled": ("COMMAND_FAILED", None, False), "seccomp_violation": ("COMMAND_FAILED", 159, False),
    "timeout": ("SANDBOX_COMMAND_TIMEOUT", 124, False), "cpu_time": ("SANDBOX_COMMAND_TIMEOUT", 124, False),
    "idle_timeout": ("SANDBOX_IDLE_TIMEOUT", 124, False), "oom": ("SANDBOX_OOM", 137, False),
    "output_limit": ("SANDBOX_OUTPUT_LIMIT", 137, False), "cancelled": ("SANDBOX_KILLED", 130, False),
    "create_failed": ("SANDBOX_CREATE_FAILED", 125, True), "runtime_crash": ("SANDBOX_CRASHED", 125, True),
}


def check_keys(data, shape, where="result"):
    assert set(data) == set(shape), f"{where}: {set(data) ^ set(shape)}"
    for key, kind in shape.items():
        value = data[key]
        if isinstance(kind, dict):
            check_keys(value, kind, f"{where}.{key}")
            continue
        kinds = kind if isinstance(kind, tuple) else (kind,)
        assert type(value) in kinds, f"{where}.{key} is {value!r}"  # not isinstance: True is no int here


def check_shape(r):
    """Every key is there, of its type, and what follows from others does so."""
    j = r.json
    assert isinstance(j, dict), r
    check_keys(j, SHAPE)
    assert re.fullmatch(r"run_[0-9a-f]{32}", j["id"]) and re.fullmatch(r"sbx_[0-9a-f]{32}", j["sandbox"])
    assert r.stdout.endswith(b"}\n") and r.stdout.count(b"\n") == 1 and r.stderr == b""
    assert j["message"] and j["model_message"] and "/" not in j["model_message"]
    assert j["encoding"] in ("utf-8", "base64")
    assert set(j["limits_hit"]) <= LIMITS and len(set(j["limits_hit"])) == len(j["limits_hit"])
    for name, data in (("stdout", r.out), ("stderr", r.err)):
        counts = j["output"][name]
        assert counts["bytes"] == counts["kept"] + counts["dropped"]
        assert counts["kept"] == len(data)
        assert (counts["dropped"] > 0) <= ("output" in j["limits_hit"])
    if j["network"]["capture"] is None:
        assert j["network"] == NO_NETWORK
    assert (j["network"]["denied"] != []) == ("network_denied" in j["limits_hit"])
    assert j["ok"] == (j["reason"] == "exited" and j["exit_code"] == 0 and j["error_code"] is None)
    assert j["timed_out"] == (j["reason"] == "timeout")
    assert (j["stage"] is not None) == (j["reason"] == "create_failed")
    assert (j["exit_code"] is not None) == (j["reason"] == "exited")
    assert j["retryable"] <= (j["reason"] in ("create_failed", "runtime_crash"))


def check_reason(r, reason):
    """REASON with its code, exit status and retryability; exited, and a create_failed of stage exec, by the caller."""
    check_shape(r)
    assert r.reason == reason, r
    code, status, retryable = REASONS[reason]
    assert (r.error_code, r.retryable) == (code, retryable)
    assert r.returncode == (128 + r.signal if status is None else status)


def exited(r, status):
    check_shape(r)
    assert (r.reason, r.exit_code, r.returncode) == ("exited", status, status), r
    assert r.error_code == (None if status == 0 else "COMMAND_FAILED")
    assert r.ok == (status == 0) and r.signal is None


def plain_error(r, status, *words):
    """One line on stderr that starts with `cloche: ` and has WORDS; nothing on stdout."""
    assert r.returncode == status, r
    assert r.stdout == b"", r
    assert re.fullmatch(rb"cloche: [^\n]+\n", r.stderr), r
    for word in words:
        assert (word if isinstance(word, bytes) else word.encode()) in r.stderr, r


def children(pid):
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            head, _, tail = stat.read_text().rpartition(")")
        except OSError:
            continue
        if int(tail.split()[1]) == pid:
            found.append((int(head.partition(" ")[0]), head.partition("(")[2]))
    return found


def descendants(pid):
    """[(pid, name)] of everything below PID, seen from the host."""
    found = []
    for child in children(pid):
        found += [child, *descendants(child[0])]
    return found


def wait_for(condition, seconds=10, what="the condition"):
    """Wait for what no descriptor tells us: the state of foreign processes."""
    until = time.monotonic() + seconds * SLOW
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < until, f"{what} has not come within {seconds * SLOW} s"
        time.sleep(0.01)


def wait_for_process(parent, name):
    """The pid of the descendant called NAME (as /proc says), once it runs."""
    def find():
        return next((pid for pid, comm in descendants(parent) if comm == name), None)
    return wait_for(find, what=f"a process {name}")


def finish(process, argv=(), json=True, stdin=None):
    """The Result of a process from cloche.start()."""
    began = time.monotonic()
    out, err = process.communicate(stdin, timeout=60 * SLOW)
    return cloche.Result(["cloche", *argv], process.returncode, out, err, time.monotonic() - began, json)


def sh(script, *options, **kw):
    """Run a bash script given as the command's argument."""
    return cloche.run(["run", *options, "--", "bash", "-c", script], **kw)


def py(code, *options, **kw):
    """Run Python code by -c."""
    return cloche.run(["python", *options, "-c", code], **kw)
