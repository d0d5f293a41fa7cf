# SPDX-License-Identifier: Apache-2.0
"""What the service does when it runs out of something: disk for its state, descriptors, clients that read."""
import contextlib
import json
import os
import resource
import socket
import subprocess
import tempfile
import threading
import time

import cloche
import pytest
import service as services

pytestmark = pytest.mark.needs("native", "service")

READY_S = 10


def eventually(what, function, seconds=READY_S):
    """FUNCTION's first true value; nothing tells when the service has noticed that there is room again."""
    until = time.monotonic() + seconds
    while True:
        value = function()
        if value:
            return value
        assert time.monotonic() < until, f"not within {seconds} s: {what}"
        time.sleep(0.05)


# ------------------------------------------------------------------------------------------------- disk


@pytest.fixture
def small_disk():
    """(service, fill, free): its state is on a file system of 6 MB."""
    folder = tempfile.mkdtemp(prefix="clo-disk.")
    os.chmod(folder, 0o755)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m,mode=755", "state", folder], check=True)
    filler = os.path.join(folder, "filler")

    def fill():
        fd = os.open(filler, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        size = 1 << 16
        while size:
            try:
                os.write(fd, bytes(size))
            except OSError:
                size //= 2
        os.close(fd)
    try:
        with services.Service({"state_dir": f"{folder}/state"}) as service:
            yield service, fill, lambda: os.unlink(filler)
    finally:
        subprocess.run(["umount", folder], check=True)
        os.rmdir(folder)


def marked(box, number):
    return box.request("POST", "/exec", json={"command": ["sh", "-c", f"echo {number} >> /workspace/log; echo {number}"]})


def test_state_disk_full(small_disk):
    service, fill, free = small_disk
    box, doomed = service.root.box(memory="64m"), service.root.box(memory="64m")
    assert box.sh("echo begin > /workspace/log").out == b""
    fill()
    ran, refused = {}, 0
    for number in range(400):  # what the log of the database has room for still goes
        answer = marked(box, number)
        if answer.status == 200:
            ran[number] = answer.json
        else:
            assert answer.status == 503 and answer.json["code"] == "UNAVAILABLE" and answer.json["retryable"], answer
            refused += 1
            if refused == 5:
                break
    assert refused == 5, f"all of {len(ran)} ran on a full disk"

    health = service.root.request("GET", "/healthz")
    assert health.status == 503 and "state" in health.json["why"], health
    service.root.problem(503, "UNAVAILABLE", "POST", "/v1/sandboxes", json={"memory": "64m"})
    service.root.problem(503, "UNAVAILABLE", "POST", "/v1/runs", json={"command": ["true"]})
    box.problem(503, "UNAVAILABLE", "POST", "/processes", json={"command": ["sh", "-c", "echo process >> /workspace/log"]})
    # what needs no record is served, and an end can always be had
    assert box.read("/workspace/log") == b"begin\n" + b"".join(b"%d\n" % n for n in ran), "ran without a record"
    assert box.object()["state"] == "running"
    assert doomed.kill()["state"] == "ended"

    free()
    eventually("healthz", lambda: service.root.request("GET", "/healthz").status == 200)
    assert box.sh("echo end").out == b"end\n"
    for killed in (False, True):
        if killed:
            os.kill(service.child("cloched"), 9)
            service.wait_ready()
        for number, result in ran.items():
            stored = service.root.get(f"/v1/runs/{result['id']}")
            assert stored["state"] == "ended" and stored["result"]["stdout"] == f"{number}\n", stored
        gone = service.root.get(doomed.path)
        assert gone["state"] == "ended" and gone["reason"] == "killed", gone
        assert box.object()["state"] == "running"
        assert service.root.get("/v1/audit/verify")["ok"]
    assert box.read("/workspace/log").splitlines()[0] == b"begin"


def test_state_disk_full_while_a_command_runs(small_disk):
    """It was recorded when it began; its end is told, and written down when there is room."""
    service, fill, free = small_disk
    box = service.root.box(memory="64m")
    answer = []
    t = threading.Thread(target=lambda: answer.append(
        box.request("POST", "/exec", json={"command": ["sh", "-c", "read x < /workspace/go; exit 7"]})))
    box.sh("mkfifo /workspace/go")
    t.start()
    run = eventually("the run", lambda: [r for r in service.root.get("/v1/runs", sandbox=box.id)["runs"] if r["state"] == "running"])[0]
    fill()
    refused = 0
    for number in range(400):
        refused += marked(box, number).status == 503
        if refused == 3:
            break
    assert refused == 3
    with open(f"/proc/{inside(service, 'go')}/root/workspace/go", "w") as fifo:  # nothing may begin that could wake it
        fifo.write("x\n")
    t.join(20)
    free()
    eventually("healthz", lambda: service.root.request("GET", "/healthz").status == 200)
    assert answer and answer[0].status == 200 and answer[0].json["exit_code"] == 7, answer
    stored = eventually("the stored end", lambda: (r := service.root.get(f"/v1/runs/{run['id']}"))["state"] == "ended" and r)
    assert stored["result"]["exit_code"] == 7


def inside(service, word):
    """The host's number of the sandboxed process with WORD in its command line."""
    for pid in service.processes():
        with contextlib.suppress(OSError):
            with open(f"/proc/{pid}/cmdline") as f:
                line = f.read()
            if word in line and "read x" in line:
                return pid
    raise AssertionError(f"no process with {word}")


# ------------------------------------------------------------------------------------------ descriptors


@contextlib.contextmanager
def few_descriptors(pid, spare):
    """PID may open SPARE more than it has."""
    owner = os.stat(f"/proc/{pid}")
    most = max(cloche.fds(pid)) + 1 + spare

    def limit(*new):  # one's own processes may be limited without CAP_SYS_RESOURCE
        return services.as_user(owner.st_uid, owner.st_gid, lambda: resource.prlimit(pid, resource.RLIMIT_NOFILE, *new))
    before = limit()
    limit((most, before[1]))
    try:
        yield
    finally:
        limit(before)


def test_descriptors_of_cloched():
    with services.Service() as service:
        box = service.root.box(memory="64m")
        box.put("/workspace/f", b"content")
        pid = service.child("cloched")
        held = service.root.connection(timeout=10)  # has its descriptor already

        def ask(method, path, body=None):
            held.request(method, path, body=json.dumps(body) if body else None, headers={"Content-Type": "application/json"})
            answer = held.getresponse()
            return answer.status, json.loads(answer.read() or b"null") if "json" in answer.headers.get("Content-Type", "") else None
        assert ask("GET", "/healthz")[0] == 200
        before = len(cloche.fds(pid))
        with few_descriptors(pid, 0):
            status, problem = ask("POST", box.path + "/exec", {"command": ["sh", "-c", "echo x >> /workspace/ran"]})
            assert status == 503 and problem["code"] == "UNAVAILABLE" and problem["retryable"], (status, problem)
            status, problem = ask("GET", box.path + "/files?path=/workspace/f")
            assert status == 503 and problem["code"] == "UNAVAILABLE", (status, problem)
            assert ask("GET", "/healthz")[0] == 200
            status, one = ask("GET", box.path)
            assert status == 200 and one["state"] == "running"
            waiting = socket.socket(socket.AF_UNIX)  # told to come again, perhaps before it asks, or left in the queue of the socket
            waiting.settimeout(20)
            waiting.connect(service.sock)
            with contextlib.suppress(BrokenPipeError):
                waiting.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert waiting.recv(4096).split(b" ")[1] in (b"200", b"503")
        waiting.close()
        assert service.root.get("/healthz")["ok"]
        held.close()
        assert box.sh("cat /workspace/f; ls /workspace").out == b"contentf\n"
        for run in service.root.get("/v1/runs", sandbox=box.id)["runs"]:
            assert run["state"] == "ended"
        eventually("descriptors closed", lambda: len(cloche.fds(pid)) <= before)


def test_descriptors_of_the_spawner():
    with services.Service({"pool": 0}) as service:
        box = service.root.box(memory="64m")
        pid = service.child("cloche-spawner")
        before = len(cloche.fds(pid))
        with few_descriptors(pid, 0):
            for _ in range(3):
                service.root.problem(503, "SANDBOX_CREATE_FAILED", "POST", "/v1/sandboxes", json={"memory": "64m"})
            assert service.root.request("POST", "/v1/runs", json={"command": ["true"]}).json.get("code", "SANDBOX_CREATE_FAILED") \
                == "SANDBOX_CREATE_FAILED"
            assert box.sh("echo here").out == b"here\n"
            assert box.request("POST", "/pause").status in (200, 503)  # and what it says is so
        assert box.resume()["state"] == "running"
        other = service.root.box(memory="64m")
        assert other.sh("echo there").out == b"there\n" and service.root.run(["true"]).ok
        other.kill()
        eventually("descriptors closed", lambda: len(cloche.fds(pid)) <= before)


# ------------------------------------------------------------------------------- clients that do not read


def resident(pid):
    with open(f"/proc/{pid}/statm") as f:
        return int(f.read().split()[1]) * resource.getpagesize()


def calm(box, count=60):
    """Times of a peer's commands meanwhile."""
    times = []
    for _ in range(count):
        began = time.monotonic()
        assert box.sh("echo hi").out == b"hi\n"
        times.append(time.monotonic() - began)
    return sorted(times)


STREAMS = 20


def test_streams_that_nobody_reads():
    with services.Service() as service:
        peer = service.root.box(memory="64m")
        flooded = [service.root.box(memory="64m") for _ in range(4)]
        pid = service.child("cloched")
        calm(peer, 20)
        before = resident(pid)
        with contextlib.ExitStack() as stack:
            streams = [stack.enter_context(flooded[i % 4].exec_stream(["sh", "-c", "exec yes"], max_output="1g")) for i in range(STREAMS)]
            eventually("a full stream", lambda: all(len(s.response.peek(1)) for s in streams))
            times = calm(peer)
            grown = resident(pid) - before
            assert grown < STREAMS * (1 << 20), f"{grown >> 20} MB for {STREAMS} streams"
            for box in flooded:
                # init keeps what it may for each of its five, and no more: the rest waits in the pipes
                assert box.object()["usage"]["memory_bytes"] < 48 << 20, box.object()["usage"]
            assert times[len(times) // 2] < 1, times
        assert calm(peer, 20)
        # who has gone has ended its command
        eventually("the floods are over", lambda: not any(r["state"] == "running" for b in flooded
                                                          for r in service.root.get("/v1/runs", sandbox=b.id)["runs"]))


def test_downloads_that_nobody_reads():
    with services.Service() as service:
        peer = service.root.box(memory="64m")
        box = service.root.box(memory="256m")
        box.sh("head -c 100000000 /dev/zero > /workspace/big")
        pid = service.child("cloched")
        calm(peer, 20)
        before = resident(pid)
        with contextlib.ExitStack() as stack:
            for _ in range(STREAMS):
                s = stack.enter_context(service.root.stream("GET", box.path + "/files", query={"path": "/workspace/big"}))
                assert s.response.peek(1)
            times = calm(peer)
            grown = resident(pid) - before
            assert grown < STREAMS * (1 << 20), f"{grown >> 20} MB for {STREAMS} downloads"
            assert times[len(times) // 2] < 1, times
            # the one that reads after all gets everything
            assert sum(len(piece) for piece in iter(lambda: s.read(1 << 20), b"")) == 100000000


def test_events_that_nobody_reads():
    with services.Service() as service:
        box = service.root.box(memory="64m")
        pid = service.child("cloched")
        calm(box, 20)
        with contextlib.ExitStack() as stack:
            for _ in range(STREAMS):
                stack.enter_context(service.root.stream("GET", "/v1/events"))
            before = resident(pid)
            connection = service.root.connection()
            for _ in range(1500):  # two events each
                connection.request("POST", box.path + "/exec", body=b'{"command":["true"]}',
                                   headers={"Content-Type": "application/json"})
                assert connection.getresponse().read()
            connection.close()
            grown = resident(pid) - before
            # 3,000 events are kept once for all; each connection has what it may hold
            assert grown < (8 << 20) + STREAMS * (400 << 10), f"{grown >> 10} KB"
        assert calm(box, 10)


def test_a_made_sandbox_has_its_priority():
    """Creations step back for those who run commands (nice), what was made does not."""
    with services.Service() as service:
        box = service.root.box(memory="64m")
        assert box.sh("nice").out == b"%d\n" % os.nice(0)
        assert service.root.run(["nice"]).out == b"%d\n" % os.nice(0)
