# SPDX-License-Identifier: Apache-2.0
"""Images from a real registry (Debian's docker-registry on loopback, as a mirror of Docker Hub) into the store."""
import os
import random
import signal
import subprocess
import time

import imagelib
import pytest
import registry as registries
from test_store import busybox, consistent, some, start

NAME = "python:3.12-slim"


@pytest.fixture(scope="session")
def hub(tmp_path_factory):
    registries.need("docker-registry", "skopeo")
    where = tmp_path_factory.mktemp("hub")
    layout = imagelib.Layout(where / "layout")
    layout.image("t", [busybox(), some(1, 3000000), some(2, 3000000), some(3)], config={"Env": ["FROM=hub"], "Cmd": ["cat", "/f1-0"]})
    with registries.Registry(where / "registry") as one:
        subprocess.run(["skopeo", "copy", "--insecure-policy", "--dest-tls-verify=false", f"oci:{layout.path}:t",
                        f"docker://{one.host}/library/{NAME}"], check=True, stdout=subprocess.DEVNULL)
        one.layout = layout
        yield one


@pytest.fixture
def near(store, hub):
    """A store whose Docker Hub is the registry here."""
    store.configure(f'registries:\n  docker.io:\n    mirrors: ["{hub.url}"]\n    only_mirrors: "true"\n')
    return store


def requests(hub, what):
    return [line for line in (hub.folder / "log").read_text(errors="replace").splitlines() if what in line and "GET" in line]


def test_pull_and_run(near, hub):
    assert near.image("pull", NAME).out == NAME + "\n"
    near.image("import", hub.layout.path, "local:1")
    assert near.record(NAME)["id"] == near.record("local:1")["id"] and near.record(NAME)["layers"] == near.record("local:1")["layers"]
    r = near.call("run", "--image", NAME, "--", "env")
    assert "FROM=hub" in r.out
    record = near.record(NAME)
    assert near.call("run", "--pull", "never", "--image", f"python@{record['manifest']}", "--", "cat", "/f3-1").returncode == 0
    consistent(near)


def test_missing_image_is_pulled(near):
    r = near.call("run", "--timeout", "300ms", "--image", NAME)
    assert r.returncode == 0 and len(r.stdout) == 60000
    near.image("rm", NAME)
    r = near.call("run", "--pull", "never", "--image", NAME, check=False)
    assert r.returncode == 125 and "no such image" in r.err
    assert near.call("run", "--pull", "always", "--quiet", "--image", NAME, "--", "true").err == ""
    assert near.call("run", "--pull", "sometimes", "--image", NAME, check=False).returncode == 2


def test_second_pull_takes_nothing(near):
    near.image("pull", NAME)
    before = near.files()
    assert near.image("pull", NAME).out == NAME + "\n"
    assert near.files() == before


@pytest.mark.parametrize("name, word", [("python:nosuch", "nosuch"), ("nosuch/x", "nosuch/x")])
def test_no_such_tag(near, name, word):
    r = near.image("pull", name, check=False)
    assert r.returncode == 1 and r.err.startswith(f"cloche: pull {name}: ") and word in r.err
    r = near.call("run", "--image", name, "--", "true", check=False)
    assert r.returncode == 125 and "could not be pulled" in r.err and word in r.err
    assert near.files() == []


def test_twenty_pull_at_once(near, hub):
    """One download, one unpack, all run."""
    near.image("ls")
    digest = hub.layout.image("again", [some(9, 3000000), busybox()])["layers"][0]["digest"]
    subprocess.run(["skopeo", "copy", "--insecure-policy", "--dest-tls-verify=false", f"oci:{hub.layout.path}:again",
                    f"docker://{hub.host}/library/twenty:1"], check=True, stdout=subprocess.DEVNULL)
    jobs = [start(near, "run", "--image", "twenty:1", "--", "cat", f"/f9-{i}") for i in range(20)]
    for j in jobs:
        out, err = j.communicate(timeout=120)
        assert j.returncode == 0 and len(out) == 60000, err
    # before anything is swept up: each layer was unpacked once
    assert len(list((near.images / "layers").iterdir())) == len(list((near.images / "l").iterdir())) == len(near.record("twenty:1")["layers"]) == 2
    consistent(near)
    gets = [x for x in requests(hub, digest) if '"GET /v2/' in x and '" 200 ' in x]
    assert len(gets) == 1, gets


def test_killed_while_pulling(near):
    """kill -9 in fifty pulls, at any moment of them: the store is consistent, and a later pull succeeds."""
    begin = time.monotonic()
    near.image("pull", NAME)
    whole = time.monotonic() - begin
    near.image("rm", NAME)
    killed, tries = 0, 0
    while killed < 50:
        tries += 1
        assert tries < 300, f"only {killed} were killed before they were done"
        job = start(near, "image", "pull", NAME, start_new_session=True)
        time.sleep(random.Random(tries).uniform(0, whole))
        os.killpg(job.pid, signal.SIGKILL)
        if job.wait() == -signal.SIGKILL:
            killed += 1
        else:
            near.image("rm", NAME)
        job.stdout.close(), job.stderr.close()
        if tries % 10 == 0:
            consistent(near)
    consistent(near)
    near.image("pull", NAME)
    consistent(near)
    assert near.call("run", "--image", NAME).returncode == 0
