# SPDX-License-Identifier: Apache-2.0
"""Images by the service: its spawner opens them from root's own store, so that is where these tests put one."""
import os
import subprocess

import cloche
import imagelib
import pytest
import service as services
from imagelib import DIR, entry
from test_store import busybox

NAME = f"cloche-test/service:{os.getpid()}"
pytestmark = pytest.mark.needs("root", "native", "service")


class HostStore(imagelib.Store):
    def __init__(self):
        super().__init__("/var/lib/cloche")

    def argv(self, args):
        return [self.binary, *args]


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    layout = imagelib.Layout(tmp_path_factory.mktemp("layout") / "l")
    layout.image("t", [busybox(entry("srv", kind=DIR), entry("srv/data", b"data"))],
                 config={"Env": ["FOO=image", "PATH=/bin"], "WorkingDir": "/srv", "Cmd": ["cat", "data"]})
    store = HostStore()
    store.image("import", layout.path, NAME)
    yield store
    store.image("rm", NAME)


@pytest.fixture(scope="module")
def service(host):
    with services.Service() as one:
        yield one


def test_run(host, service):
    r = service.root.run(["cat", "/srv/data"], image=NAME)
    assert r.ok and r.stdout == "data"
    r = service.root.run(["ls", "/usr"], image=NAME)
    assert not r.ok and r.exit_code == 1


def test_environment(host, service):
    """The image's Env reaches commands of runs and of kept sandboxes, under what the caller says."""
    out = service.root.run(["env"], image=NAME).stdout.splitlines()
    assert "FOO=image" in out and "PATH=/bin" in out and "HOME=/tmp" in out
    assert "FOO=mine" in service.root.run(["env"], image=NAME, env={"FOO": "mine"}).stdout.splitlines()
    box = service.root.box(image=NAME, env={"BAR": "box"})
    out = box.exec(["env"]).stdout.splitlines()
    assert "FOO=image" in out and "BAR=box" in out
    assert "FOO=exec" in box.exec(["env"], env={"FOO": "exec"}).stdout.splitlines()
    box.kill()


def test_no_such_image(service):
    for name in ("cloche-test/nosuch:1", "nosuch"):
        service.root.problem(404, "SANDBOX_IMAGE_MISSING", "POST", "/v1/runs", json={"command": ["true"], "image": name})
        service.root.problem(404, "SANDBOX_IMAGE_MISSING", "POST", "/v1/sandboxes", json={"image": name})
    assert service.root.request("POST", "/v1/runs", json={"command": ["true"], "image": "../x"}, check=False).status == 400


def test_kept_sandbox_keeps_its_image(host, service):
    """As long as it lives, even with a service that was restarted."""
    box = service.root.box(image=NAME)
    assert box.exec(["cat", "/srv/data"]).stdout == "data"
    assert "a sandbox runs it" in host.image("rm", NAME, check=False).err
    service.process.terminate()
    service.process.wait()
    service.start()
    assert "a sandbox runs it" in host.image("rm", NAME, check=False).err
    assert box.exec(["cat", "/srv/data"]).stdout == "data"
    box.kill()


def test_command_line_by_the_service(host, service):
    env = {**os.environ, "CLOCHE_SOCKET": service.sock}
    env.pop("CLOCHE_DIRECT", None)
    r = subprocess.run([cloche.binary(), "run", "--image", NAME, "--", "cat", "/srv/data"], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert r.stdout == b"data", r.stderr
    r = subprocess.run([cloche.binary(), "run", "--pull", "always", "--image", NAME, "--", "true"], env=env, stderr=subprocess.PIPE)
    assert r.returncode and b"operator's to pull" in r.stderr


def test_policy(host):
    """What the operator does not allow is forbidden by the service, whoever asks; the spawner checks the same."""
    with services.Service(policy={"images": ["host", "cloche-test/other:*"]}) as one:
        assert one.root.run(["true"]).ok
        for name in (NAME, host.record(NAME)["id"], host.record(NAME)["id"][7:19]):
            one.root.problem(403, "FORBIDDEN", "POST", "/v1/runs", json={"command": ["true"], "image": name})
