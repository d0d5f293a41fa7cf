# SPDX-License-Identifier: Apache-2.0
"""Images of real systems (roots.py), unpacked by cloche and by others: the same tree, but for the rules of docs/images.md;
and they run."""
import json

import pytest
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
