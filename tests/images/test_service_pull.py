# SPDX-License-Identifier: Apache-2.0
"""A service gets an image that is not there, when its operator's policy names it: while the request waits, once, and
nobody else is held up. The registry is a script on loopback that keeps blobs back until it is told to go on."""
import json
import os
import signal
import socket
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import cloche
import imagelib
import proc
import pytest
import registry as registries
import service as services
from imagelib import entry
from test_service import HostStore
from test_store import busybox

BASE = f"cloche-test/pulled-{os.getpid()}"
NAME = f"{BASE}:1"
pytestmark = pytest.mark.needs("root", "native", "service")
CAPABILITIES = sum(1 << n for n in (0, 1, 3, 5, 6, 7, 21))  # chown, dac_override, fowner, kill, setgid, setuid, sys_admin
POLICY = {"images": ["host", "docker.io/cloche-test/*"]}


class Hub:
    """One image under any name but those with "nosuch"; go: blobs may pass."""

    def __init__(self, folder):
        layout = imagelib.Layout(folder)
        # its first layer is like no other's, so that each test has to get it
        self.manifest = json.dumps(layout.image("t", [busybox(entry("data", os.urandom(100000).hex().encode()))],
                                                config={"Env": ["FROM=pull"]})).encode()
        self.blobs = {f"sha256:{p.name}": p.read_bytes() for p in (layout.path / "blobs/sha256").iterdir()}
        self.go = threading.Event()
        self.script = registries.Script([("nosuch", registries.missing), ("/manifests/", self.send_manifest), ("/blobs/", self.send_blob)])

    def send_manifest(self, c, _request):
        registries.write(c, body=self.manifest, Content_Type=registries.OCI)

    def send_blob(self, c, request):
        self.go.wait(60)
        registries.write(c, body=self.blobs[request.path.rsplit("/", 1)[1]], Content_Type="application/octet-stream")

    def asked(self, what="/blobs/"):
        return [r.path for r in self.script.requests if what in r.path and r.method == "GET"]

    def wait_asked(self):
        wait(self.asked, "nobody asks the registry")


def wait(condition, words, seconds=20):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, words
        time.sleep(0.01)


@pytest.fixture
def hub(tmp_path):
    one = Hub(tmp_path / "hub")
    yield one
    one.go.set()
    one.script.close()


def serving(hub, policy=None, **more):
    return services.Service(policy=POLICY if policy is None else policy, **more,
                            more={"registries": {"docker.io": {"mirrors": [hub.script.url], "only_mirrors": True}}})


@pytest.fixture
def service(hub):
    host = HostStore()
    with serving(hub) as one:
        yield one
        hub.go.set()
    host.image("rm", NAME, check=False)
    host.image("prune", check=False)


def pullers(service):
    """cloche-image processes below this service."""
    return [p for p in service.processes() if "cloche-image" in proc.of(p, "cmdline")]


def test_run_waits_for_its_image(hub, service):
    """The wait is not the run's: its timeout is shorter."""
    with ThreadPoolExecutor() as pool:
        job = pool.submit(service.root.run, ["sh", "-c", "echo $FROM"], image=NAME, timeout="1s")
        hub.wait_asked()
        time.sleep(1.5)
        [puller] = pullers(service)
        status = dict(line.split(":\t", 1) for line in open(f"/proc/{puller}/status").read().splitlines())
        assert status["NoNewPrivs"] == "1" and int(status["CapPrm"], 16) == CAPABILITIES == int(status["CapEff"], 16), status
        hub.go.set()
        r = job.result(60)
    assert r.ok and r.stdout == "pull\n" and r.usage["wall_ms"] < 1000, r
    before = len(hub.script.requests)
    assert service.root.run(["cat", "/data"], image=f"docker.io/{NAME}").ok
    assert len(hub.script.requests) == before and not pullers(service)


def test_kept_sandbox(hub, service):
    with ThreadPoolExecutor() as pool:
        job = pool.submit(service.root.box, image=NAME)
        hub.wait_asked()
        [box] = service.root.get("/v1/sandboxes")["sandboxes"]
        assert box["state"] == "creating" and box["message"] == "its image is being pulled"
        hub.go.set()
        box = job.result(60)
    seen = box.object()
    assert seen["state"] == "running" and seen["message"] is None
    assert box.exec(["sh", "-c", "echo $FROM"]).stdout == "pull\n"
    box.kill()


def test_many_at_once_are_one_download_and_in_nobodys_way(hub, service):
    with ThreadPoolExecutor(40) as pool:
        jobs = [pool.submit(service.root.box, image=NAME, memory="32m") for _ in range(40)]
        hub.wait_asked()
        wait(lambda: sum(b["message"] is not None for b in service.root.get("/v1/sandboxes")["sandboxes"]) == 40, "not all wait for the image")
        begin = time.monotonic()
        assert service.root.run(["true"]).ok
        assert time.monotonic() - begin < 5
        hub.go.set()
        boxes = [j.result(60) for j in jobs]
    assert all(b.exec(["sh", "-c", "echo $FROM"]).stdout == "pull\n" for b in boxes)
    for b in boxes:
        b.kill()
    assert len(hub.asked()) == len(set(hub.asked())) == 2, "each blob once"


def test_never(hub, service):
    for path, body in (("/v1/runs", {"command": ["true"]}), ("/v1/sandboxes", {})):
        service.root.problem(404, "SANDBOX_IMAGE_MISSING", "POST", path, json={**body, "image": NAME, "pull": "never"})
        for bad in ("always", "", 1, None):
            service.root.problem(400, "INVALID_REQUEST", "POST", path, json={**body, "image": NAME, "pull": bad})
    env = {**os.environ, "CLOCHE_SOCKET": service.sock}
    env.pop("CLOCHE_DIRECT", None)
    r = subprocess.run([cloche.binary(), "run", "--pull", "never", "--image", NAME, "--", "true"], env=env, stderr=subprocess.PIPE)
    assert r.returncode == 125 and b"no such image" in r.stderr
    assert hub.script.requests == []


def test_nothing_is_pulled_for_nobody(hub):
    """An image that is removed while sandboxes of it are prepared is not got anew before somebody asks for it."""
    host = HostStore()
    hub.go.set()
    with serving(hub, service={"pool": 4, "pool_floor": 2}) as one:
        for _ in range(3):
            assert one.root.run(["true"], image=NAME).ok
        wait(lambda: one.root.get("/v1/pool")["ready"] > 0, "nothing is prepared")
        host.image("rm", NAME)
        before = len(hub.script.requests)
        time.sleep(8)  # the pool has looked, waited, and tried again
        pool = one.root.get("/v1/pool")
        assert len(hub.script.requests) == before and not pullers(one) and pool["ready"] == 0 and pool["failed"] > 0, pool
        assert one.root.run(["true"], image=NAME).ok
        assert len(hub.script.requests) > before
    host.image("rm", NAME, check=False)
    host.image("prune", check=False)


def test_command_line(hub, service):
    env = {**os.environ, "CLOCHE_SOCKET": service.sock}
    env.pop("CLOCHE_DIRECT", None)
    hub.go.set()
    r = subprocess.run([cloche.binary(), "run", "--image", NAME, "--", "sh", "-c", "echo $FROM"], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert (r.returncode, r.stdout, r.stderr) == (0, b"pull\n", b"")


@pytest.mark.parametrize("policy, status, code, words", [({}, 404, "SANDBOX_IMAGE_MISSING", "policy: images"),
                                                        ({"images": ["host", "docker.io/other/*"]}, 403, "FORBIDDEN", "policy")])
def test_only_what_the_operator_names(hub, policy, status, code, words):
    with serving(hub, policy) as one:
        answer = one.root.problem(status, code, "POST", "/v1/runs", json={"command": ["true"], "image": NAME})
        assert words in json.dumps(answer)
    assert hub.script.requests == []


def test_no_such_tag(hub, service):
    name = f"{BASE}-nosuch:1"
    answer = service.root.problem(404, "SANDBOX_IMAGE_MISSING", "POST", "/v1/runs", json={"command": ["true"], "image": name})
    assert "no such repository or tag" in answer["detail"] and name in answer["detail"], answer
    assert not pullers(service)
    hub.script.close()
    answer = service.root.problem(404, "SANDBOX_IMAGE_MISSING", "POST", "/v1/runs", json={"command": ["true"], "image": NAME})
    assert "pull" in answer["detail"], answer


def test_killed_while_it_waits(hub, service):
    """Nobody waits any more: the pull is given up, and the next one is a new one."""
    with ThreadPoolExecutor() as pool:
        job = pool.submit(service.root.request, "POST", "/v1/sandboxes", json={"image": NAME}, check=False)
        hub.wait_asked()
        [box] = service.root.get("/v1/sandboxes")["sandboxes"]
        service.root.request("DELETE", f"/v1/sandboxes/{box['id']}", check=False)
        assert job.result(20).status >= 400
        seen = service.root.get(f"/v1/sandboxes/{box['id']}")
        assert seen["state"] == "ended" and seen["reason"] == "killed", seen
    wait(lambda: not pullers(service), "cloche-image goes on")
    hub.go.set()
    assert service.root.run(["true"], image=NAME).ok


def test_service_dies_meanwhile(hub, service):
    """What waited is lost, the pull ends with the spawner, and what had come of the image is whole or gone."""
    with ThreadPoolExecutor() as pool:
        job = pool.submit(service.root.request, "POST", "/v1/sandboxes", json={"image": NAME}, check=False)
        hub.wait_asked()
        service.process.kill()
        service.process.wait()
        assert job.exception(20) or job.result().status >= 400
    service.start()
    wait(lambda: not pullers(service), "cloche-image goes on")
    hub.go.set()
    assert service.root.run(["sh", "-c", "echo $FROM"], image=NAME).stdout == "pull\n"


def test_cloched_dies_meanwhile(hub, service):
    """Nobody waits any more: the spawner gives the pull up, what waited is lost, and the next one works."""
    with ThreadPoolExecutor() as pool:
        job = pool.submit(service.root.request, "POST", "/v1/sandboxes", json={"image": NAME}, check=False)
        hub.wait_asked()
        [box] = service.root.get("/v1/sandboxes")["sandboxes"]
        os.kill(service.child("cloched"), signal.SIGKILL)
        assert job.exception(20) or job.result().status >= 400
    wait(lambda: not pullers(service), "cloche-image goes on")
    service.wait_ready()
    wait(lambda: service.root.get(f"/v1/sandboxes/{box['id']}")["state"] == "ended", "what waited is still there")
    assert service.root.get(f"/v1/sandboxes/{box['id']}")["reason"] == "lost"
    hub.go.set()
    assert service.root.run(["true"], image=NAME).ok


def test_client_who_goes_away(hub, service):
    """A run whose client has hung up waits for no image."""
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(service.sock)
        body = json.dumps({"command": ["true"], "image": NAME}).encode()
        s.sendall(b"POST /v1/runs?stream HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        hub.wait_asked()
    wait(lambda: not pullers(service), "cloche-image goes on")
    [run] = service.root.get("/v1/runs")["runs"]
    wait(lambda: service.root.get(f"/v1/runs/{run['id']}")["state"] == "ended", "the run goes on")
    assert service.root.get(f"/v1/runs/{run['id']}")["result"]["reason"] == "cancelled"


def test_AP_11_what_a_client_may_not_lead_to(hub):
    """Names are a client's: a registry on this machine or in a private network only if the configuration names it."""
    with serving(hub, {"images": ["*"]}) as one:
        for name in (f"{hub.script.host}/x:1", f"localhost:{hub.script.port}/x:1", "10.255.255.1:5000/x:1"):
            answer = one.root.problem(404, "SANDBOX_IMAGE_MISSING", "POST", "/v1/runs", json={"command": ["true"], "image": name})
            assert "configuration" in answer["detail"], answer
        name = "sha256:" + "0" * 64  # an id is of what is here
        one.root.problem(404, "SANDBOX_IMAGE_MISSING", "POST", "/v1/runs", json={"command": ["true"], "image": name})
    assert hub.script.requests == []
