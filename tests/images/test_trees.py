# SPDX-License-Identifier: Apache-2.0
"""What cloche unpacks is what other tools unpack: `umoci unpack` of the same layout, but for the rules of docs/images.md
(set-id bits and devices are left out, the root itself is 0755)."""
import gzip
import json
import os
import resource
import stat
import statistics
import subprocess
import tarfile
import time
from pathlib import Path

import pytest
from imagelib import DIR, FIFO, HARD, LINK, entry, sha, tar, tree


def umoci(layout, tag, where):
    subprocess.run(["umoci", "unpack", "--image", f"{layout}:{tag}", where], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return Path(where) / "rootfs"


def by_rule(theirs):
    """Their tree as our rules want it."""
    out = {}
    for path, what in theirs.items():
        kind = int(what[0], 8)
        if kind in (stat.S_IFCHR, stat.S_IFBLK, stat.S_IFSOCK):
            continue
        if kind != stat.S_IFLNK:
            what = [what[0], oct(int(what[1], 8) & 0o1777), *what[2:]]
        out[path] = what
    return out


def same(store, layout, tag, tmp_path, name="t:1"):
    theirs = by_rule(tree(umoci(layout, tag, tmp_path / "umoci")))
    store.image("import", layout, name)
    with store.merged(name) as at:
        ours = tree(at)
    assert set(ours) == set(theirs), sorted(set(ours) ^ set(theirs))[:20]
    different = [(p, ours[p], theirs[p]) for p in ours if ours[p] != theirs[p]]
    if len(store.record(name)["layers"]) >= 8:
        assert tree(store.one_folder(name)) == ours, "what a run sees of many layers is what overlayfs shows of them"
    else:
        assert store.one_folder(name) is None
    # overlayfs gives each name of a hard link in two layers its own inode; within one layer it stays one
    assert not different, different[:10]


def rich(n=0):
    """All that a layer can have."""
    return tar(entry("./", kind=DIR), entry("./etc", kind=DIR), entry("./etc/conf", b"a" * 5000, mode=0o640, gid=42),
               entry("home", kind=DIR), entry("home/u", kind=DIR, mode=0o700, uid=1000, gid=1000), entry("home/u/f", b"x", uid=1000),
               entry("bin", kind=LINK, link="usr/bin"), entry("usr", kind=DIR), entry("usr/bin", kind=DIR),
               entry("usr/bin/a", b"#!/bin/sh\n", mode=0o755), entry("usr/bin/b", kind=HARD, link="usr/bin/a"),
               entry("usr/bin/c", kind=LINK, link="/usr/bin/a"), entry("usr/bin/suid", b"s", mode=0o4755),
               entry("tmp", kind=DIR, mode=0o1777), entry("run", kind=DIR), entry("run/p", kind=FIFO, mode=0o600),
               entry("ünï-中", b"name"), entry("long" * 60, b"long"), *(entry("/".join(["deep"] * n), kind=DIR) for n in range(1, 31)),
               entry("x", b"x", pax={"SCHILY.xattr.user.test": "value %d" % n}), entry("empty", b""),
               entry("times", b"t", mtime=1234567890.5), entry("dup", b"first"), entry("dup", b"second"),
               entry("file-then-dir", b"f"), entry("file-then-dir", kind=DIR))


def test_all_kinds(store, layout, tmp_path):
    layout.image("t", [rich(), tar(entry("e", b"x"), entry("e", kind=DIR), entry("g", kind=DIR), entry("g/x", b"x"), entry("g", b"a file now"))])
    same(store, layout.path, "t", tmp_path)


@pytest.mark.parametrize("more", [0, 6])
def test_whiteouts(store, layout, tmp_path, more):
    """Removed files and folders, folders that hide what was in them, files that become folders and back; as they are
    mounted, and with so many layers that they become one folder."""
    one = tar(entry("a", kind=DIR), entry("a/1", b"1"), entry("a/2", b"2"), entry("b", kind=DIR, mode=0o750), entry("b/old", b"old"),
              entry("c", kind=DIR), entry("c/deep", kind=DIR), entry("c/deep/f", b"f"), entry("f2d", b"f"), entry("d2f", kind=DIR),
              entry("d2f/x", b"x"), entry("l", kind=LINK, link="a"), entry("again", kind=DIR), entry("again/1", b"1"))
    two = tar(entry("a", kind=DIR), entry("a/.wh.1", b""), entry("b", kind=DIR), entry("b/new", b"new"), entry("b/.wh..wh..opq", b""),
              entry(".wh.c", b""), entry("f2d", kind=DIR), entry("f2d/y", b"y"), entry("d2f", b"file now"), entry(".wh.l", b""),
              entry(".wh.again", b""))
    three = tar(entry("c", kind=DIR), entry("c/3", b"3"), entry("l", b"a file"), entry("again", kind=DIR, mode=0o711), entry("again/2", b"2"),
                entry("a", kind=DIR), entry("a/3", b"3"))
    layout.image("t", [one, two, three, *(tar(entry(f"more{i}", b"")) for i in range(more))])
    same(store, layout.path, "t", tmp_path)


def test_whiteout_and_new_folder_in_one_layer(store, layout):
    """The same name hidden and made anew in one layer, in both orders: only the new one is seen."""
    one = tar(entry("d", kind=DIR), entry("d/old", b"x"), entry("e", kind=DIR), entry("e/old", b"x"))
    two = tar(entry(".wh.d", b""), entry("d", kind=DIR), entry("d/new", b"y"), entry("e", kind=DIR), entry("e/new", b"y"), entry(".wh.e", b""))
    layout.image("t", [one, two])
    store.image("import", layout.path, "t:1")
    with store.merged("t:1") as at:
        assert os.listdir(at / "d") == ["new"] and os.listdir(at / "e") == ["new"]


@pytest.mark.parametrize("more", [0, 6])
def test_a_layer_that_hides_all_below_it(store, layout, tmp_path, more):
    """The marker in the root, which overlayfs does not look at: few layers are made one folder, too."""
    one = tar(entry("old", b"x"), entry("d", kind=DIR, mode=0o700, uid=5), entry("d/old", b"x"))
    two = tar(entry(".wh..wh..opq", b""), entry("new", b"y"), entry("d", kind=DIR), entry("d/new", b"z"))
    layout.image("t", [one, two, *(tar(entry(f"more{i}", b"")) for i in range(more))])
    store.image("import", layout.path, "t:1")
    ours = tree(store.one_folder("t:1"))
    assert ours == by_rule(tree(umoci(layout.path, "t", tmp_path / "umoci"))) and {"new", "d/new"} <= set(ours) and not {"old", "d/old"} & set(ours)


def test_whiteouts_below_what_is_no_folder_any_more(store, layout, tmp_path):
    """As umoci writes them: a folder becomes a link or a file, and each name that was in it is hidden, too. Whatever the
    link leads to is not touched; and a file that becomes a folder again shows nothing of the old one."""
    one = tar(entry("a", kind=DIR), entry("a/1", b"1"), entry("a/s", kind=DIR), entry("a/s/2", b"2"), entry("b", kind=DIR), entry("b/1", b"1"),
              entry("to", kind=DIR), entry("to/1", b"kept"), entry("c", kind=DIR), entry("c/old", b"x"))
    two = tar(entry("a", kind=LINK, link="nowhere"), entry("a/.wh.1", b""), entry("a/.wh.s", b""), entry("a/s/.wh.2", b""),
              entry("a/s/.wh..wh..opq", b""), entry("b", b"a file"), entry("b/.wh.1", b""), entry("c", b"file"), entry("c", kind=DIR),
              entry("c/new", b"y"))
    layout.image("t", [one, two])
    same(store, layout.path, "t", tmp_path)
    layout.entries.clear()
    layout.image("t", [one, tar(entry("a", kind=LINK, link="to"), entry("to", kind=DIR), entry("a/.wh.1", b""))])
    store.image("import", layout.path, "u:1")
    with store.merged("u:1") as at:
        assert (at / "to/1").read_bytes() == b"kept" and os.readlink(at / "a") == "to"
    for bad in (entry("a/x", b"x"), entry("b/x", b"x")):
        layout.entries.clear()
        layout.image("t", [one, tar(entry("a", kind=LINK, link="b"), entry("b", b"a file"), bad)])
        store.refuses(layout.path, "folder")


def test_implied_parents(store, layout, tmp_path):
    """A layer that leaves out the folders its files are in: they are as the layers below have them, not 0755 root; and
    the same layer over others is another."""
    base = tar(entry("p", kind=DIR, mode=0o1777, uid=7, mtime=77), entry("p/q", kind=DIR, mode=0o700, gid=9))
    top = tar(entry("p/q/f", b"x"), entry("p/new/g", b"y"))
    layout.image("t", [base, top])
    store.image("import", layout.path, "t:t")
    with store.merged("t:t") as at:
        ours = tree(at)
    assert ours["p"][1] == "0o1777" and ours["p"][3] == 7 and ours["p/q"][1] == "0o700" and ours["p/q"][4] == 9 and ours["p"][2] == 77
    assert ours["p/new"][1] == "0o755"
    layout.entries.clear()
    layout.image("u", [tar(entry("p", kind=DIR, mode=0o711)), top])
    store.image("import", layout.path, "u:1")
    with store.merged("u:1") as at:
        assert tree(at)["p"][1] == "0o711"
    with store.merged("t:t") as at:
        assert tree(at)["p"][1] == "0o1777"


def test_many_layers(store, layout, tmp_path):
    """499, the most that one overlay takes with the sandbox's own; cloche runs it, as one folder and as it would where that
    cannot be made. 500 are refused."""
    busybox = [entry("bin", kind=DIR), entry("bin/busybox", open("/bin/busybox", "rb").read(), mode=0o755)]
    layers = [tar(*busybox)] + [tar(entry("n", b"%d" % i), entry("d", kind=DIR), entry("d/%d" % i, b"")) for i in range(498)]
    layout.image("t", layers)
    store.image("import", layout.path, "t:1")
    record = json.loads(store.kept("t:1").read_text())
    assert record["merged"]
    for merged in ("", None, record["merged"]):
        record["merged"] = merged
        store.kept("t:1").write_text(json.dumps({k: v for k, v in record.items() if v is not None}))
        r = store.call("run", "--image", "t:1", "--", "/bin/busybox", "sh", "-c", "cat /n; ls /d | wc -l")
        assert r.out.startswith("497") and int(r.out[3:]) == 498
        options = store.call("run", "--image", "t:1", "--", "/bin/busybox", "grep", " / / ", "/proc/self/mountinfo").out
        assert options.split("lowerdir=")[1].split(",")[0].count(":") == (1 if merged else 499), "a start pays for each layer"
    layout.entries.clear()
    layout.image("t", layers + [tar(entry("more", b"x"))])
    store.refuses(layout.path, "at most 499")


@pytest.mark.parametrize("layers", [6, 45])
def test_layers_like_umoci(store, layout, tmp_path, layers):
    base = [rich(0)]
    for i in range(1, layers):
        base.append(tar(entry("etc", kind=DIR), entry(f"etc/f{i}", b"%d" % i), *([entry(f"etc/.wh.f{i - 3}", b"")] if i > 3 else []),
                        entry("home", kind=DIR), entry("home/u", kind=DIR, mode=0o700, uid=1000 + i), entry("same", b"%d" % i, uid=i)))
    layout.image("t", base)
    same(store, layout.path, "t", tmp_path)


def test_layers_that_cannot_be_linked(store, layout):
    """A file with as many names as the file system gives it: no more links, so the layers stay apart; and it runs."""
    busybox = open("/bin/busybox", "rb").read()
    most = os.pathconf(store.state, "PC_LINK_MAX")
    limited = most <= 65000
    names = [entry("d", kind=DIR), entry("d/f", b"x"), *(entry(f"d/f{i}", kind=HARD, link="d/f") for i in range(most - 1 if limited else 1000))]
    layout.image("t", [tar(entry("bin", kind=DIR), entry("bin/busybox", busybox, mode=0o755)), tar(*names),
                       *(tar(entry("n", b"%d" % i)) for i in range(6))])
    store.image("import", layout.path, "t:1")
    assert (store.one_folder("t:1") is None) == limited
    assert list((store.images / "tmp").iterdir()) == []
    assert store.call("run", "--image", "t:1", "--", "/bin/busybox", "cat", "/n", "/d/f7").out == "5x"
    store.image("rm", "t:1")
    assert store.files() == []


def test_zstd_like_tar(store, layout, tmp_path):
    """Debian's umoci knows no zstd: the peer is GNU tar."""
    data = rich()
    squeeze = lambda x: subprocess.run(["zstd", "-19", "-c"], input=x, stdout=subprocess.PIPE, check=True).stdout  # noqa: E731
    layout.image("t", [data], compress=squeeze, media="tar+zstd")
    store.image("import", layout.path, "t:1")
    where = tmp_path / "tar"
    where.mkdir()
    subprocess.run(["tar", "-xp", "--xattrs"], input=data, cwd=where, check=True)
    assert tree(store.layer("t:1")) == by_rule(tree(where))


@pytest.mark.parametrize("name", ["gz", "zst", "xz", "bz2", "plain"])
def test_rootfs_archives(store, tmp_path, name):
    data = rich()
    tool = {"gz": ["gzip"], "zst": ["zstd", "-c"], "xz": ["xz"], "bz2": ["bzip2"], "plain": ["cat"]}[name]
    path = tmp_path / "a.tar"
    path.write_bytes(subprocess.run(tool, input=data, stdout=subprocess.PIPE, check=True).stdout)
    assert store.image("import", path, "a").out == "a:latest\n"
    assert store.image("import", "-", "b", stdin=path.read_bytes()).out == "b:latest\n"
    assert store.record("a")["id"] == store.record("b")["id"], "the same bytes are the same image, from a pipe too"
    where = tmp_path / "tar"
    where.mkdir()
    subprocess.run(["tar", "-xp", "--xattrs"], input=data, cwd=where, check=True)
    assert tree(store.layer("a")) == by_rule(tree(where))


def test_rootfs_folder(store, tmp_path):
    where = tmp_path / "root"
    where.mkdir()
    subprocess.run(["tar", "-xp", "--xattrs"], input=rich(), cwd=where, check=True)
    with open(where / "sparse", "wb") as f:
        f.truncate(300 << 20)
        f.seek(100 << 20)
        f.write(b"here")
    store.image("import", where, "a:1")
    store.image("import", where, "b:1")
    assert tree(store.layer("a:1")) == by_rule(tree(where))
    assert (store.layer("a:1") / "sparse").stat().st_blocks < 2000
    assert store.record("a:1")["layers"] == store.record("b:1")["layers"]


def docker_save(layers, tags, gz=False, links=False):
    """An archive as `docker save` of Docker up to 24 writes it."""
    files, names = [], []
    for i, layer in enumerate(layers):
        d = sha(b"%d" % i + layer)[7:]
        files += [entry(d, kind=DIR), entry(f"{d}/VERSION", b"1.0"), entry(f"{d}/json", b"{}"),
                  entry(f"{d}/layer.tar", kind=LINK, link=f"../{names[-1]}") if links and i and layer == layers[i - 1]
                  else entry(f"{d}/layer.tar", layer)]
        names.append(f"{d}/layer.tar")
    config = json.dumps({"architecture": "amd64", "os": "linux", "config": {"Cmd": ["x"]},
                         "rootfs": {"type": "layers", "diff_ids": [sha(x) for x in layers]}}).encode()
    name = sha(config)[7:] + ".json"
    manifest = json.dumps([{"Config": name, "RepoTags": tags, "Layers": names}]).encode()
    data = tar(*files, entry(name, config), entry("manifest.json", manifest), entry("repositories", b"{}"))
    return (gzip.compress(data) if gz else data), sha(config)


@pytest.mark.parametrize("gz", [False, True])
def test_docker_save(store, tmp_path, gz):
    layers = [rich(), tar(entry("two", b"2")), tar(entry("two", b"2"))]
    data, image_id = docker_save(layers, ["me/tool:1.0", "registry.lan:5000/x:y"], gz, links=True)
    path = tmp_path / "save.tar"
    path.write_bytes(data)
    r = store.image("import", path)
    assert r.out == "me/tool:1.0\nregistry.lan:5000/x:y\n"
    assert store.record("me/tool:1.0")["id"] == image_id, "Docker's image id"
    assert store.image("import", "-", stdin=data).out == r.out
    assert store.image("import", path, "other").out == "other:latest\n"
    lied, _ = docker_save([tar(entry("lie", b"good"))], ["x"])
    assert lied.count(b"good") == 1
    lied = lied.replace(b"good", b"evil")
    store.refuses("-", stdin=lied)


def test_tools_archives(store, layout, tmp_path):
    """Archives that skopeo makes of the same image, and umoci's layout as a tar: the same image each time."""
    layout.image("t", [rich(), tar(entry("two", b"2"))], config={"Env": ["A=b"], "Cmd": ["/x"]})
    store.image("import", layout.path, "one:1")
    for kind in ("docker-archive", "oci-archive", "oci", "dir"):
        out = tmp_path / kind
        subprocess.run(["skopeo", "copy", "--insecure-policy", f"oci:{layout.path}:t", f"{kind}:{out}" + (":x/y:z" if kind != "dir" else "")],
                       check=True, stdout=subprocess.DEVNULL)
        if kind == "dir":
            continue  # skopeo's own format; not one of ours
        store.image("import", out, "again:1")
        assert store.record("again:1")["config"] == store.record("one:1")["config"]
        assert [x["bytes"] for x in store.record("again:1")["layers"]] == [x["bytes"] for x in store.record("one:1")["layers"]]
        with store.merged("one:1") as at:
            one = tree(at)
        with store.merged("again:1") as at:
            assert tree(at) == one, kind


def test_layout_with_several_images(store, layout):
    layout.image("a", [tar(entry("a", b"a"))])
    layout.image("b", [tar(entry("b", b"b"))])
    store.refuses(layout.path, "say which", "a, b", name="x:c")
    store.image("import", layout.path, "x:b")
    assert (store.layer("x:b") / "b").exists()


def test_other_platform(store, layout, tmp_path):
    text = json.dumps({"architecture": "arm64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": []}}).encode()
    m = layout.image("t", [tar(entry("a", b"a"))])
    m["config"].update(layout.blob(text))
    layout.entries[:] = [{"mediaType": m["mediaType"], **layout.blob(json.dumps(m).encode())}]
    (layout.path / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": layout.entries}))
    store.refuses(layout.path, "linux/arm64", "linux/amd64")


@pytest.fixture(scope="session")
def large(tmp_path_factory):
    """Files of a real system, 60 MB."""
    path = tmp_path_factory.mktemp("large") / "root.tar"
    with tarfile.open(path, "w") as t:
        size = 0
        for p in sorted(Path("/usr/lib").rglob("*")):
            if p.is_file() and not p.is_symlink() and p.stat().st_size < 20 << 20:
                t.add(p, arcname=str(p)[1:], recursive=False)
                size += p.stat().st_size
            if size > 60 << 20:
                break
    return path


def peak_of(argv, env, status=0):
    """Largest resident set of any process that argv starts, in KiB."""
    program = ("import os,resource,subprocess,sys; r = subprocess.run(sys.argv[1:]).returncode; "
               "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss); sys.exit(r)")
    r = subprocess.run(["python3", "-c", program, *argv], env=env, stdout=subprocess.PIPE, check=False)
    assert r.returncode == status
    return int(r.stdout.split()[-1])


@pytest.mark.parametrize("tool", [["gzip", "-1"], ["zstd", "-3"]])
def test_memory_of_each_compression(store, large, tmp_path, tool):
    path = tmp_path / "a"
    with open(path, "wb") as f:
        subprocess.run([*tool, "-c", str(large)], stdout=f, check=True)
    assert peak_of(store.argv(["image", "import", str(path), "t:2"]), dict(os.environ)) < 64 << 10


def test_unpacking_is_no_slower_than_umoci(store, layout, large, tmp_path):
    """The medians of three, in turn; `make bench` has a layer of 200 MB."""
    layout.image("t", [large.read_bytes()], compress=None)
    ours, theirs = [], []
    for i in range(3):
        os.sync()
        begin = time.monotonic()
        store.image("import", layout.path, "t:1")
        ours.append(time.monotonic() - begin)
        os.sync()
        begin = time.monotonic()
        umoci(layout.path, "t", tmp_path / f"umoci-{i}")
        theirs.append(time.monotonic() - begin)
        store.image("rm", "t:1")
    print(f"\n60 MB: cloche {statistics.median(ours):.2f} s, umoci {statistics.median(theirs):.2f} s")
    assert statistics.median(ours) <= statistics.median(theirs)
