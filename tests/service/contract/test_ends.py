# SPDX-License-Identifier: Apache-2.0
"""Every reason of the contract, through POST /v1/runs: one honest reason, its code, and whether to try again."""
import os
import re
import signal
import threading

import cloche
import proc
import pytest
from contract import REASONS, exited, until
from service import outcome

EATER = "b = bytearray()\nwhile True: b += b'x' * 1000000"


def ended(r, reason):
    assert r.reason == reason and (r.error_code, r.retryable) == REASONS[reason], r.json
    return r


def test_every_reason_is_looked_at_here():
    names = set(re.findall(r'^REASON\(\w+,\s*"(\w+)"', (cloche.TOP / "src/sandbox/reasons.def").read_text(), re.M))
    elsewhere = {"lost", "disk_quota"}  # after a restart: the fault tests; no policy of this version kills for a full disk
    here = {re.match(r"test_(\w+?)(__\w+)?$", n)[1] for n in globals() if n.startswith("test_")}
    assert names - elsewhere <= here, names - elsewhere - here


def test_exited(client):
    assert exited(client.run("exit 0")).ok
    assert exited(client.run("exit 7"), 7).error_code == "COMMAND_FAILED"
    assert not exited(client.run("exit 137"), 137).retryable


def test_signaled(client):
    assert ended(client.run("kill -9 $$"), "signaled").signal == 9
    assert ended(client.run("kill -TERM $$"), "signaled").signal == 15


def test_seccomp_violation(client):
    ended(client.run(language="python", code="import ctypes; ctypes.CDLL(None).syscall(0x40000000 + 39)"), "seccomp_violation")


def test_timeout(client):
    r = ended(client.run("echo before; sleep 100", timeout=0.5), "timeout")
    assert r.timed_out and r.out == b"before\n" and 400 < r.usage["wall_ms"] < 5000


def test_cpu_time(client):
    r = ended(client.run("while :; do :; done", cpu_time=0.3, cpus=1, timeout=20), "cpu_time")
    assert not r.timed_out


def test_idle_timeout(client):
    ended(client.run("echo x; sleep 100", idle_timeout=0.5, timeout=20), "idle_timeout")


def test_oom(client):
    r = ended(client.run(language="python", code=EATER, memory="64m", timeout=20), "oom")
    assert r.oom_kills >= 1


def test_oom__of_a_child_is_a_limit_that_was_hit(client):
    r = exited(client.run(["sh", "-c", "python3 -c \"$0\"; exit 4", EATER], memory="64m", timeout=20), 4)
    assert "memory" in r.limits_hit and r.oom_kills >= 1


def test_output_limit(client):
    r = ended(client.run("while :; do echo xxxxxxxxxxxxxxxx; done", max_output=1000, on_output_limit="kill", timeout=20),
              "output_limit")
    assert len(r.out) == 1000


def test_output_limit__dropped(client):
    r = exited(client.run("head -c 5000 /dev/zero", max_output=1000))
    assert r.limits_hit == ["output"] and r.output["stdout"]["dropped"] == 4000


def test_pids_limit_is_hit(client):
    r = client.run(
        language="python",
        code="import os, sys, time\ntry:\n while True:\n  if os.fork() == 0: time.sleep(100)\nexcept OSError: sys.exit(5)",
        pids_limit=10)
    exited(r, 5)
    assert "pids" in r.limits_hit


def test_killed(client):
    results = []
    with client.stream("POST", "/v1/runs", query={"stream": True}, json=client.body("echo here; sleep 100",
                                                                                    {"timeout": 60})) as s:
        events = s.events()
        sandbox = next(events)["sandbox"]
        next(events)
        killer = threading.Thread(target=lambda: client.expect(200, "DELETE", f"/v1/sandboxes/{sandbox}"))
        killer.start()
        results = list(events)
        killer.join()
    ended(outcome(results[-1]["result"], streamed=True), "killed")


def test_cancelled(client):
    with client.stream("POST", "/v1/runs", query={"stream": True}, json=client.body("sleep 100", {"timeout": 60})) as s:
        run = next(s.events())["id"]
    row = until(lambda: (lambda r: r["state"] == "ended" and r)(client.get(f"/v1/runs/{run}")), what="its end")
    ended(outcome(row["result"], streamed=True), "cancelled")


def test_create_failed(client):
    r = client.run(["nosuch-command"])
    assert (r.reason, r.stage, r.error_code, r.retryable) == ("create_failed", "exec", "SANDBOX_CREATE_FAILED", False)
    r = client.run(["/etc/passwd"])
    assert (r.reason, r.stage) == ("create_failed", "exec") and "ermission" in r.message
    r = client.run(["true"], workdir="/nosuch")
    assert r.reason == "create_failed" and "/nosuch" in r.message


def test_image_missing(client):
    client.problem(404, "SANDBOX_IMAGE_MISSING", "POST", "/v1/runs", json={"command": ["true"], "image": "nosuch:latest"})


def test_runtime_unavailable(client):
    client.problem(501, "SANDBOX_RUNTIME_UNAVAILABLE", "POST", "/v1/runs", json={"command": ["true"], "runtime": "nosuch"})


def test_runtime_crash(client, service):
    """The sandbox's own init is killed from outside, as if it had failed."""
    with client.stream("POST", "/v1/runs", query={"stream": True}, json=client.body("echo here; sleep 77.25",
                                                                                    {"timeout": 60})) as s:
        events = s.events()
        next(events)
        next(events)
        inner = until(lambda: [p for p in service.processes() if proc.command(p) == ["sleep", "77.25"]], what="the command")
        os.kill(namespace_init(inner[0]), signal.SIGKILL)
        last = list(events)[-1]
    ended(outcome(last["result"], streamed=True), "runtime_crash")


def namespace_init(pid):
    """The ancestor of PID that is 1 in its own pid namespace."""
    while True:
        with open(f"/proc/{pid}/status") as f:
            fields = {name: value.split() for name, _, value in (line.partition(":") for line in f)}
        if fields["NSpid"][-1] == "1":
            return int(fields["NSpid"][0])
        pid = int(fields["PPid"][0])
        assert pid > 1, "no init above it"


@pytest.mark.parametrize("command, reason", [("exit 3", "exited"), ("kill -9 $$", "signaled"), ("sleep 100", "timeout")])
def test_the_same_end_in_a_kept_sandbox(box, command, reason):
    assert box.exec(command, timeout=0.5 if reason == "timeout" else 10).reason == reason
