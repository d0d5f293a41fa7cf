# SPDX-License-Identifier: Apache-2.0
"""The store under many hands: twenty at once, killed at any moment, removed while in use."""
import json
import os
import random
import signal
import subprocess
import time

import pytest
from imagelib import DIR, LINK, Layout, entry, tar


def busybox(*more):
    return tar(entry("bin", kind=DIR), entry("bin/busybox", open("/bin/busybox", "rb").read(), mode=0o755),
               *[entry(f"bin/{n}", kind=LINK, link="busybox") for n in ("sh", "cat", "sleep", "ls", "id", "env", "pwd", "true")], *more)


def some(n, size=200000):
    return tar(*[entry(f"f{n}-{i}", os.urandom(size // 50)) for i in range(50)])


def start(store, *args, **more):
    return subprocess.Popen(store.argv([str(a) for a in args]), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            env={**os.environ, "CLOCHE_DIRECT": "1"}, **more)


def consistent(store):
    """Everything that can be found is whole, and nothing else is there once somebody has swept."""
    store.image("prune")
    layers = {p.name: p.read_text().split() for p in (store.images / "layers").iterdir()}
    assert sorted(p.name for p in (store.images / "l").iterdir()) == sorted(x[0] for x in layers.values())
    for folder in ("tmp", "locks", "partial"):
        assert list((store.images / folder).iterdir()) == [], folder
    for p in (store.images / "images").iterdir():
        record = json.loads(p.read_text())
        assert not record["merged"] or record["merged"] in {x[0] for x in layers.values()}
        for x in record["layers"]:
            assert sum(q.stat().st_size for q in (store.images / "l" / x["name"]).rglob("*") if q.is_file() and not q.is_symlink()) == x["bytes"]


def test_RE_07_twenty_at_once(store, layout):
    layout.image("t", [busybox(), some(1), some(2)])
    jobs = [start(store, "image", "import", layout.path, f"t:{i}") for i in range(20)]
    for j in jobs:
        out, err = j.communicate(timeout=120)
        assert j.returncode == 0, err
    assert len(list((store.images / "layers").iterdir())) == len(list((store.images / "l").iterdir())) == 3
    assert len(list((store.images / "refs").iterdir())) == 20 and len(list((store.images / "images").iterdir())) == 1
    jobs = [start(store, "run", "--image", f"t:{i}", "--", "cat", f"/f1-{i}") for i in range(20)]
    for i, j in enumerate(jobs):
        out, err = j.communicate(timeout=120)
        assert j.returncode == 0 and len(out) == 4000, err
    consistent(store)


def test_killed_fifty_times(store, layout):
    """kill -9 anywhere in an import: what can be found is whole, what cannot is swept up, and the next import works."""
    layout.image("t", [some(i, 900000) for i in range(9)])  # enough that they become one folder, too
    whole = 100
    for _ in range(3):
        begin = time.monotonic()
        store.image("import", layout.path, "warm:1")
        whole = min(whole, time.monotonic() - begin)
        store.image("rm", "warm:1")
    killed, tries = 0, 0
    while killed < 50:
        tries += 1
        assert tries < 300, f"only {killed} were killed before they were done"
        job = start(store, "image", "import", layout.path, "t:1", start_new_session=True)
        time.sleep(random.Random(tries).uniform(0, whole))
        os.killpg(job.pid, signal.SIGKILL)
        if job.wait() == -signal.SIGKILL:
            killed += 1
        else:
            store.image("rm", "t:1")
        job.stdout.close(), job.stderr.close()
        if tries % 10 == 0:
            consistent(store)
    consistent(store)
    store.image("import", layout.path, "t:1")
    consistent(store)
    assert len(store.record("t:1")["layers"]) == 9 and len(list(store.one_folder("t:1").iterdir())) == 450
    store.image("rm", "t:1")
    assert store.files() == []


def test_interrupted(store, layout):
    """Ctrl-C leaves nothing behind."""
    layout.image("t", [some(i, 4000000) for i in range(3)])
    job = start(store, "image", "import", layout.path, "t:1", start_new_session=True)
    tmp = store.images / "tmp"
    while job.poll() is None and not (tmp.exists() and any(tmp.iterdir())):
        pass
    os.killpg(job.pid, signal.SIGINT)
    _, err = job.communicate(timeout=60)
    assert job.returncode == 130 and b"interrupted" in err, (job.returncode, err)
    assert store.files() == []


def test_removal(store, layout):
    layout.image("t", [busybox(), some(1)])
    store.image("import", layout.path, "a:1")
    store.image("import", layout.path, "b:1")
    r = store.image("rm", store.record("a:1")["id"][7:19], check=False)
    assert r.returncode == 1 and "2 names" in r.err
    store.image("rm", "a:1")
    assert "no such image: a:1 (docker.io/library/a:1)" in store.image("rm", "a:1", check=False).err
    assert "b:1" in store.image("ls").out and "a:1" not in store.image("ls").out
    store.image("rm", "--force", store.record("b:1")["id"])
    assert store.files() == []
    assert json.loads(store.image("ls", "--json").out) == []


def test_RE_07_name_that_moves(store, layout):
    """A name given to another image: the old one has none, and prune removes it; layers they share stay."""
    shared = busybox()
    layout.image("t", [shared, some(1)])
    store.image("import", layout.path, "t:1")
    old = store.record("t:1")
    layout.entries.clear()
    layout.image("t", [shared, some(2)])
    store.image("import", layout.path, "t:1")
    new = store.record("t:1")
    assert new["layers"][0] == old["layers"][0] and new["id"] != old["id"]
    assert "-" in [line.split()[0] for line in store.image("ls").out.splitlines()]
    assert "1 images removed" in store.image("prune").out
    assert sorted(p.name for p in (store.images / "l").iterdir()) == sorted(x["name"] for x in new["layers"])
    assert "1 images removed" in store.image("prune", "--all").out
    assert store.files() == []


def test_in_use(store, layout):
    layout.image("t", [busybox()])
    store.image("import", layout.path, "t:1")
    job = start(store, "run", "--timeout", "60s", "--image", "t:1", "--", "sh", "-c", "echo up; cat; ls /bin", stdin=subprocess.PIPE)
    assert job.stdout.readline() == b"up\n"
    assert "a sandbox runs it" in store.image("rm", "t:1", check=False).err
    assert "0 images removed" in store.image("prune", "--all").out
    job.stdin.close()
    assert b"busybox" in job.stdout.read()
    assert job.wait() == 0
    store.image("rm", "t:1")
    assert store.files() == []


def test_layer_is_unpacked_once(store, tmp_path):
    """Two images with one layer have it once."""
    layer, layouts = busybox(), []
    for n in "ab":
        layouts.append(Layout(tmp_path / n))
        layouts[-1].image("t", [layer], config={"Env": [f"N={n}"]})
        store.image("import", layouts[-1].path, f"{n}:1")
    assert store.record("a:1")["layers"] == store.record("b:1")["layers"] and store.record("a:1")["id"] != store.record("b:1")["id"]
    assert store.call("run", "--image", "a:1", "--", "env").out != store.call("run", "--image", "b:1", "--", "env").out


def test_full_disk(store, layout, tmp_path):
    """Disk full: said so, and the disk is as before."""
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", small], check=True)
    try:
        store.state, store.images = small, small / "images"
        layout.image("t", [some(1, 8000000)])
        store.image("ls")
        r = store.image("import", layout.path, "t:1", check=False)
        assert r.returncode == 1 and "No space left on device" in r.err
        assert store.files() == []
        assert os.statvfs(small).f_bavail * os.statvfs(small).f_frsize > 2900000
    finally:
        subprocess.run(["umount", small], check=True)


@pytest.mark.parametrize("args, word", [(["import"], "usage"), (["frob"], "usage"), (["ls", "x"], "usage"), (["rm", "--nope", "x"], "no such option"),
                                        ([], "usage")])
def test_usage(store, args, word):
    r = store.image(*args, check=False)
    assert r.returncode == 2 and word in r.err


@pytest.mark.parametrize("name, word", [("Upper", ""), ("a:b:c", ""), ("a@sha256:" + "0" * 64, "digest"), ("../x", ""), ("x" * 300, "")])
def test_bad_names(store, layout, name, word):
    layout.image("t", [busybox()])
    r = store.image("import", layout.path, name, check=False)
    assert r.returncode == 1 and word in r.err
    assert store.files() == []
