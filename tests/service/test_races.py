# SPDX-License-Identifier: Apache-2.0
"""What a client or the code inside does between two steps of the service: the sandbox ends meanwhile, somebody else asks
meanwhile, the worker that packs the artifacts is stopped or never gets to an end."""
import json
import os
import resource
import signal
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import contract
import pytest
import service as services
from test_faults import init_of


def late_body(client, path, body, meanwhile):
    """A POST whose body comes only after MEANWHILE has returned: status and body of the answer."""
    text = json.dumps(body).encode()
    with client.socket() as s:
        s.sendall(f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                  f"Content-Length: {len(text)}\r\nConnection: close\r\n\r\n".encode())
        s.sendall(text[:1])
        client.get("/v1/quota")  # an answer later than the header: the service has that now
        meanwhile()
        s.sendall(text[1:])
        answer = b""
        while piece := s.recv(65536):
            answer += piece
    head, _, rest = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(rest)


def test_a_command_for_a_sandbox_that_ends_before_the_body(service, box):
    """It is refused as for any ended sandbox, nothing of the call is used after its answer, and no run is left behind."""
    status, problem = late_body(service.root, box.path + "/exec", {"command": ["true"]}, box.kill)
    assert (status, problem.get("code")) == (410, "SANDBOX_ENDED"), problem
    assert service.root.get("/v1/runs", sandbox=box.id)["runs"] == []
    status, problem = late_body(service.root, box.path + "/processes", {"command": ["true"]}, lambda: None)
    assert (status, problem.get("code")) == (410, "SANDBOX_ENDED"), problem


def test_a_process_that_did_not_start_is_not_remembered(service, box):
    for _ in range(8):
        refused = box.request("POST", "/processes", json={"command": ["true", "x" * 3000], "workdir": "/nowhere"})
        assert refused.status >= 400, refused
    box.start(["sleep", "1000"])
    with sqlite3.connect(f"file:{next((service.folder / 'state').glob('*.db'))}?mode=ro", uri=True) as db:
        spec, = db.execute("SELECT spec FROM sandboxes WHERE id = ?", (box.id,)).fetchone()
    assert len(spec) < 4096, f"{len(spec)} bytes are kept of one process with a short command"


def test_who_lists_runs_gets_as_many_of_its_own(tenants):
    one, other = tenants
    mine = other.run(["true"]).id
    for _ in range(3):
        one.run(["true"])
    assert [r["id"] for r in other.get("/v1/runs", limit=1)["runs"]] == [mine]


def test_the_sandbox_of_a_run_cannot_be_paused_or_renewed(tenants):
    with tenants[0].stream("POST", "/v1/runs", query={"stream": True}, json={"command": ["sleep", "60"]}) as s:
        box = s.until(lambda e: e["type"] == "started")["sandbox"]
        for what, body in (("pause", None), ("resume", None), ("renew", {"timeout": "1h"})):
            tenants[0].problem(404, "NOT_FOUND", "POST", f"/v1/sandboxes/{box}/{what}", json=body)


def test_events_since_a_number_of_an_earlier_service(service):
    """The numbers begin anew with each service: one that is not reached yet is none of this one's."""
    with service.root.stream("GET", "/v1/events", query={"since": 10**12}, timeout=20) as s:
        run = service.root.run(["true"])
        s.until(lambda e: e.get("type") == "run.ended" and e["run"] == run.id)


def test_a_pause_is_answered_when_it_is_done(service, box):
    """Whoever looks at the sandbox meanwhile does not bring the answer about."""
    over = threading.Event()

    def look():
        while not over.is_set():
            service.root.request("GET", box.path, check=False)

    lookers = [threading.Thread(target=look) for _ in range(4)]
    for t in lookers:
        t.start()
    try:
        for _ in range(30):
            assert box.pause()["state"] == "paused"
            assert box.resume()["state"] == "running"
    finally:
        over.set()
        for t in lookers:
            t.join()


STOPPER = """
import os, signal
for i in range(2000):
    open(f"/output/{i}", "w").write("a" * 1000)
read, write = os.pipe()
parent = os.getpid()
if os.fork() == 0:
    os.setsid()
    os.write(write, b"x")
    while True:
        for pid in range(2, 100):
            if pid not in (os.getpid(), parent):
                try: os.kill(pid, signal.SIGSTOP)
                except OSError: pass
os.read(read, 1)
os._exit(0)
"""


def test_who_stops_the_packing_of_artifacts_does_not_outlive_its_run(service):
    """The worker has the sandbox's user, so what the command left behind may stop it: then there are no artifacts, and the
    sandbox ends all the same."""
    began = time.monotonic()
    # A child of a zygote is in a Landlock domain of its own and may signal nothing outside of it.
    run = service.root.run(language="python", code=STOPPER, output=True, timeout="5s", fresh_interpreter=True)
    assert run.exit_code == 0 and time.monotonic() - began < 45
    assert len(run.artifacts) < 2000, "nothing was stopped"
    contract.until(lambda: service.root.get(f"/v1/sandboxes/{run.sandbox}")["state"] == "ended", 5)


def test_artifacts_without_end(service):
    """A thousand sparse files, more than a terabyte of zeros: nobody waits for them, and the sandbox does not live meanwhile."""
    began = time.monotonic()
    code = "for i in range(1000): open(f'/output/{i}', 'w').truncate(1 << 30)"
    run = service.root.run(language="python", code=code, output=True, timeout="10s")
    assert run.exit_code == 0, run.json
    assert time.monotonic() - began < 60


def test_descriptors_of_a_service_that_a_shell_has_started():
    """One client may have 1,024 connections: a soft limit of as many would leave nothing to the others."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, before[1]))
    try:
        with services.Service() as s:
            cloched, = s.running("cloched")
            line, = (x for x in Path(f"/proc/{cloched}/limits").read_text().splitlines() if x.startswith("Max open files"))
            assert int(line.split()[3]) == before[1], line
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


MUTE = "import socket; s = socket.create_server(('127.0.0.1', 8000)); print('up', flush=True); kept = []\nwhile 1: kept.append(s.accept())"


def test_a_command_that_cannot_begin_ends_in_time_and_never_begins(boxes):
    """When all of init's conversations are held, as code inside can bring about, who asks for a command gets an answer."""
    box = boxes(pids_limit=400)
    mute = box.start(["python3", "-c", MUTE])
    contract.until(lambda: b"up" in services.joined(mute.output(), "stdout"), what="the server that does not answer")
    held = [box.client.connection(20) for _ in range(256)]
    try:
        for i, c in enumerate(held, 1):
            c.request("GET", f"{box.path}/ports/8000/")
            if i % 64 == 0:  # half of how many may wait for init: who comes then is told to try again
                contract.until(lambda: box.object()["usage"]["pids"] >= i + 1, 30, f"the server and a worker in each of {i} conversations")
        start = time.monotonic()
        r = box.exec("echo ran > /workspace/ran", timeout=1)
        assert r.reason == "timeout" and time.monotonic() - start < 15, r.json
    finally:
        for c in held:
            c.close()
    contract.until(lambda: box.exec("true", timeout=1).reason == "exited", 30, "a free conversation")
    assert box.request("GET", "/files/stat", query={"path": "/workspace/ran"}).status == 404


@pytest.mark.parametrize("what, before, after", [("pause", "running", "running"), ("resume", "paused", "paused")])
def test_a_pause_that_did_not_come_about_is_an_error(what, before, after):
    """The spawner dies with the request in its hands: 503 with the cause, not 200 and "running"."""
    with services.Service() as one:
        box = one.root.box(memory="64m", resume_on_touch=False)
        if before == "paused":
            box.pause()
        pid = one.child("cloche-spawner")
        os.kill(pid, signal.SIGSTOP)
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(box.problem, 503, "UNAVAILABLE", "POST", f"/{what}")
            contract.until(lambda: any(r["action"] == f"sandbox.{what}" for r in one.root.get("/v1/audit", limit=1000)["rows"][-1:]), 10)
            assert not asked.done()
            os.kill(pid, signal.SIGKILL)
            problem = asked.result(20)
        assert f"was not {what}d: the spawner went away" in problem["detail"] and problem["retryable"]
        assert box.object()["state"] == after
        contract.until(lambda: one.child("cloche-spawner") not in (None, pid), 10)
        done = contract.until(lambda: (lambda a: a.status == 200 and a.json)(box.request("POST", f"/{what}")), 10)
        assert done["state"] == {"pause": "paused", "resume": "running"}[what]


def test_the_other_way_round_meanwhile(service, box):
    """Pause and resume at once: each is answered with what it has asked for."""
    for _ in range(10):
        with ThreadPoolExecutor(4) as pool:
            asked = [pool.submit(box.pause if i % 2 else box.resume) for i in range(4)]
            assert [a.result(20)["state"] for a in asked] == ["running", "paused"] * 2
    assert box.resume()["state"] == "running"


def test_a_count_that_has_gone_back(service):
    """Between a sandbox's death and the word of it, its cgroup may be the next one's already, whose count begins at 0."""
    with service.root.stream("POST", "/v1/runs", query={"stream": True},
                             json={"command": ["sh", "-c", "echo up; exec sleep 0.5"], "cpu_time": "5s"}) as s:
        run = s.until(lambda e: e["type"] == "started")
        s.until(lambda e: e.get("data") == "up\n")
        lines = Path(f"/proc/{init_of(service, run['sandbox'])}/cgroup").read_text().splitlines()
        group = next((line.split(":")[2] for line in lines if "cpuacct" in line), None)
        if not group:
            pytest.skip("a count of cgroup v2 cannot be set back")
        next(Path("/sys/fs/cgroup").glob(f"*cpuacct*{group}/cpuacct.usage")).write_text("0")
        assert s.until(lambda e: e["type"] == "exited")["result"]["reason"] == "exited"
