# SPDX-License-Identifier: Apache-2.0
"""What a real Docker Engine saves and exports: the same ids, names and trees as the engine has itself, and it runs."""
import json
import os
import subprocess
import tarfile
from pathlib import Path

import cloche
import engine as engines
import pytest
import roots as real
from imagelib import tree
from test_trees import by_rule

DOCKERFILE = """FROM base:1
RUN ["/bin/busybox", "sh", "-c", "/bin/busybox --install -s /bin; mkdir -p /app/a/b; echo one >/app/a/b/1; echo 2 >/app/2; chown -R 7:8 /app/a"]
RUN ["sh", "-c", "rm -r /app/a; mkdir /app/a; echo new >/app/a/new; ln /app/2 /app/also-2; chmod 4711 /app/2; rm -r /usr/share/doc; echo file >/usr/share/doc"]
RUN ["sh", "-c", "rm /app/also-2; chmod 1775 /app; chown 12:34 /app; ln -s /etc/passwd /app/passwd; mkfifo /app/pipe"]
COPY data /data/
ENV WHO=docker PATH=/bin
WORKDIR /app
CMD ["sh", "-c", "cat /data/f /app/a/new; echo $WHO"]
"""
# What the engine itself puts into a container's root.
OF_CONTAINERS = {".dockerenv", "dev", "proc", "sys", "etc/hosts", "etc/hostname", "etc/resolv.conf", "etc/mtab"}


class Docker(engines.Engine):
    """vfs: each layer's whole tree lies in a folder, as the engine unpacked it, on any file system."""

    def __init__(self, folder):
        super().__init__(folder, f"cloche-test-docker-{os.getpid()}", "--storage-driver=vfs")

    def __call__(self, *args):
        return real.run(*self.client, *args, env={**os.environ, "DOCKER_BUILDKIT": "0", "HOME": str(self.folder)})

    def tree(self, name):
        """Where the engine has unpacked this image."""
        wanted = json.loads(self("inspect", name))[0]["RootFS"]["Layers"]
        layers = [(p / "diff").read_text() for p in (self.folder / "data/image/vfs/layerdb/sha256").iterdir()]
        assert set(wanted) <= set(layers)
        chain = wanted[0]
        for one in wanted[1:]:
            chain = real.sha256_text(f"{chain} {one}")
        cache = (self.folder / "data/image/vfs/layerdb/sha256" / chain[7:] / "cache-id").read_text()
        return self.folder / "data/vfs/dir" / cache


@pytest.fixture(scope="module")
def docker(tmp_path_factory):
    cloche.need("root")
    where = tmp_path_factory.mktemp("docker")
    strays = [p for p in map(Path, engines.STRAY) if not p.exists()]
    one = Docker(where / "engine")
    before = engines.traces(one.folder, one.parent)
    why = one.start()
    try:
        cloche.need("docker", why is None, why)
        roots = real.Roots(where)
        one("import", "-c", "CMD [\"/bin/busybox\"]", roots.system("busybox"), "base:1")
        build = where / "build"
        (build / "data").mkdir(parents=True)
        (build / "data/f").write_text("data\n")
        (build / "data/private").write_text("x")
        (build / "data/private").chmod(0o640)
        (build / "Dockerfile").write_text(DOCKERFILE)
        one("build", "--network", "none", "--tag", "built:1", "--tag", "registry.lan:5000/team/built:2", build)
        yield one
    finally:
        meanwhile = engines.traces(one.folder, one.parent)
        one.stop()
        engines.forget(strays)
    assert engines.traces(one.folder, one.parent) == before and (why or meanwhile != before)


def test_saved(docker, store, tmp_path):
    path = tmp_path / "save.tar"
    docker("save", "-o", path, "built:1", "registry.lan:5000/team/built:2", "base:1")
    with tarfile.open(path) as t:
        names = t.getnames()
    assert "manifest.json" in names
    out = store.image("import", path).out.split()
    assert sorted(out) == ["base:1", "built:1", "registry.lan:5000/team/built:2"]
    for name in ("built:1", "base:1"):
        info = json.loads(docker("inspect", name))[0]
        assert store.record(name)["id"] == info["Id"]
        assert [x["digest"] for x in store.record(name)["layers"]] == info["RootFS"]["Layers"]
        theirs = by_rule(tree(docker.tree(name)))
        with store.merged(name) as at:
            ours = tree(at)
        assert set(ours) == set(theirs), sorted(set(ours) ^ set(theirs))[:20]
        different = [(p, ours[p], theirs[p]) for p in ours if ours[p] != theirs[p]]
        assert not different, different[:10]
    assert store.call("run", "--image", "built:1").out == "data\nnew\ndocker\n"
    again = store.image("import", "-", "piped:1", stdin=subprocess.run([*docker.client, "save", "built:1"], stdout=subprocess.PIPE, check=True).stdout)
    assert again.out == "piped:1\n" and store.record("piped:1")["id"] == store.record("built:1")["id"]


def test_exported(docker, store, tmp_path):
    """A container's root as one archive: what the engine puts there for its own is not ours."""
    box = docker("create", "built:1").splitlines()[-1]
    path = tmp_path / "export.tar"
    try:
        docker("export", "-o", path, box)
    finally:
        docker("rm", box)
    store.image("import", path, "exported:1")
    theirs = by_rule(tree(docker.tree("built:1")))
    ours = tree(store.layer("exported:1"))

    def is_theirs(p):
        return p in OF_CONTAINERS or p.split("/")[0] in OF_CONTAINERS

    assert {p for p in ours if not is_theirs(p)} == {p for p in theirs if not is_theirs(p)}
    different = [(p, ours[p], theirs[p]) for p in ours if not is_theirs(p) and p != "etc" and ours[p] != theirs[p]]
    assert not different, different[:10]
    assert store.call("run", "--image", "exported:1", "--", "/bin/cat", "/app/a/new").out == "new\n"
