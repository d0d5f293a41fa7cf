# SPDX-License-Identifier: Apache-2.0
"""Images of real systems (roots.py), unpacked by cloche and by others: the same tree, but for the rules of docs/images.md;
and they run."""
import json
import os
import re
import shutil
import subprocess

import cloche
import pytest
import registry as registries
import roots as real
from imagelib import tree
from test_trees import by_rule, same

# what is run in it, and what it has to print
RUNS = {
    "minbase": (["python3", "-c", "print(6 * 7)"], "42\n"),
    "tools": (["perl", "-e", "print 6 * 7"], "42"),
    "bullseye": (["bash", "-c", "cat /usr/share/doc/bash/copyright | wc -l >/dev/null; echo $((6 * 7))"], "42\n"),
    "trixie": (["bash", "-c", "ls /usr/lib/systemd/systemd"], "/usr/lib/systemd/systemd\n"),
    "busybox": (["/bin/busybox", "sh", "-c", "echo $((6 * 7))"], "42\n"),
    "packages": (["/usr/bin/perl", "-e", "print 6 * 7"], "42"),
    "repacked": (["bash", "-c", "cat /usr/share/doc/new /usr/share/zoneinfo/Asia"], "new\na file\n"),
    "built": ([], "new\n"),
}


@pytest.fixture(scope="session")
def roots(tmp_path_factory):
    return real.Roots(tmp_path_factory.mktemp("roots"))


def runs(store, name, words):
    argv, out = words
    r = store.call("run", "--image", name, "--timeout", "20s", *(["--", *argv] if argv else []))
    assert r.out == out, r.err


@pytest.mark.parametrize("name", RUNS)
def test_like_umoci(store, roots, tmp_path, name):
    layout = roots.layout(name)
    same(store, layout, "t", tmp_path)
    layers = store.record("t:1")["layers"]
    assert len(layers) == {"packages": 46, "repacked": 3, "built": 4}.get(name, 1)
    runs(store, "t:1", RUNS[name])


def test_zstd_like_buildah(store, roots):
    """Debian's umoci knows no zstd: the peer is buildah's storage."""
    layout = roots.layout("zstd")
    index = json.loads((layout / "index.json").read_text())
    manifest = json.loads((layout / "blobs/sha256" / index["manifests"][0]["digest"][7:]).read_text())
    assert {x["mediaType"].rpartition("+")[2] for x in manifest["layers"]} == {"zstd"}
    box = roots.buildah("from", "--quiet", f"oci:{layout}:t").splitlines()[-1]
    try:
        theirs = by_rule(tree(roots.buildah("mount", box)))
    finally:
        roots.buildah("rm", box)
    store.image("import", layout, "z:1")
    with store.merged("z:1") as at:
        ours = tree(at)
    assert set(ours) == set(theirs), sorted(set(ours) ^ set(theirs))[:20]
    different = [(p, ours[p], theirs[p]) for p in ours if ours[p] != theirs[p]]
    assert not different, different[:10]
    assert len(ours) > 300
    runs(store, "z:1", RUNS["built"])


@pytest.fixture(scope="session")
def hub(roots, tmp_path_factory):
    """A real registry with two of them, under the names that users write."""
    registries.need("docker-registry")
    with registries.Registry(tmp_path_factory.mktemp("hub")) as one:
        for name, layout in (("library/python:3.12-slim", "minbase"), ("team/tools:7", "packages")):
            registries.push(f"oci:{roots.layout(layout)}:t", one, name)
        yield one


@pytest.mark.parametrize("name, layout", [("python:3.12-slim", "minbase"), ("team/tools:7", "packages")])
def test_pulled_is_imported(store, roots, hub, name, layout):
    """From a registry comes what comes from a file."""
    store.configure(f'registries:\n  docker.io:\n    mirrors: ["{hub.url}"]\n    only_mirrors: "true"\n')
    store.image("pull", name)
    pulled = store.record(name)
    store.image("import", roots.layout(layout), "t:1")
    assert store.record("t:1")["layers"] == pulled["layers"] and store.record("t:1")["id"] == pulled["id"]
    runs(store, name, RUNS[layout])


def recipes():
    """What stands in docs/images.md to be copied: lines that import something."""
    text = (cloche.TOP / "docs/images.md").read_text().replace("\n", " ")
    found = re.findall(r"`([^`]+)`", re.sub(r"```.*?```", "", text))
    return [line for line in found if line.startswith(("skopeo copy ", "buildah bud ", "cloche image import "))]


def test_recipes(store, hub, tmp_path):
    """As they stand there; skopeo and buildah are told by their own configuration where Docker Hub is and where to keep theirs."""
    where = tmp_path / "here"
    (where / "root/bin").mkdir(parents=True)
    shutil.copy("/bin/busybox", where / "root/bin")
    (where / "Dockerfile").write_text("FROM scratch\nCOPY root /\n")
    files = {".config/containers/registries.conf": f'unqualified-search-registries = ["docker.io"]\n[[registry]]\nlocation = "docker.io"\n[[registry.mirror]]\n'
                                f'location = "{hub.host}"\ninsecure = true\n',
             "storage.conf": f'[storage]\ndriver = "vfs"\ngraphroot = "{tmp_path}/graph"\nrunroot = "{tmp_path}/run"\n',
             ".config/containers/policy.json": '{"default": [{"type": "insecureAcceptAnything"}]}'}
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/cloche").symlink_to(store.binary)
    env = {**os.environ, "HOME": str(tmp_path), "BUILDAH_ISOLATION": "chroot",
           "CONTAINERS_STORAGE_CONF": f"{tmp_path}/storage.conf", "CLOCHE_DIRECT": "1", "PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}
    lines = [line for line in recipes() if "FILE" not in line and "…" not in line]
    assert [line.split()[0] for line in lines] == ["skopeo", "cloche", "buildah"], lines
    for line in lines:
        done = subprocess.run([*store.argv([])[:-1], "sh", "-ec", line], cwd=where, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        assert done.returncode == 0, (line, done.stdout.decode())
    assert store.call("python", "--image", "python:3.12-slim", "--timeout", "20s", "-c", "print(6 * 7)").out == "42\n"
    assert store.call("run", "--image", "tools:1", "--", "/bin/busybox", "echo", "built").out == "built\n"
