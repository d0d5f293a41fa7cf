# SPDX-License-Identifier: Apache-2.0
"""Layers that attack whoever unpacks them or runs in them (ids of the security basis in the names). Each has its positive
control: plain tar, a naive reader, or the sandbox's own view shows that the archive does what it says."""
import gzip
import json
import os
import re
import shutil
import stat
import subprocess
import tempfile
import threading
import time

import pytest
from imagelib import CHAR, DIR, FIFO, HARD, LINK, entry, sha, tar
from test_trees import peak_of


def control(tmp_path, data, *flags):
    """Unpack with GNU tar, trusting the archive; returns the folder."""
    where = tmp_path / "control"
    where.mkdir(exist_ok=True)
    subprocess.run(["tar", "-xP", *flags], input=data, cwd=where, stderr=subprocess.DEVNULL)
    return where


def file(tmp_path, data):
    path = tmp_path / "layer.tar"
    path.write_bytes(data)
    return path


def test_FS_31_dot_dot(store, layout, tmp_path):
    data = tar(entry("a/../../evil", b"x"))
    control(tmp_path, data)
    assert (tmp_path / "evil").exists()
    layout.image("x", [data])
    store.refuses(layout.path, '".."')
    store.refuses(file(tmp_path, data), '".."')


def test_FS_31_absolute_name(store, layout, tmp_path):
    victim = tmp_path / "victim"
    data = tar(entry(str(victim), b"x"))
    control(tmp_path, data)
    assert victim.exists()
    victim.unlink()
    layout.image("x", [data])
    store.refuses(layout.path, "an absolute name")
    assert not victim.exists()


def test_FS_31_through_a_link_out(store, layout, tmp_path):
    """a -> outside, then a/x: lands inside the layer or nowhere."""
    outside = tmp_path / "outside"
    outside.mkdir()
    data = tar(entry("a", kind=LINK, link=str(outside)), entry("a/x", b"x"))
    control(tmp_path, data)
    assert (outside / "x").exists()
    (outside / "x").unlink()
    layout.image("x", [data])
    store.refuses(layout.path, "a")
    assert list(outside.iterdir()) == []


def test_FS_31_through_a_link_up(store, layout, tmp_path):
    data = tar(entry("d", kind=DIR), entry("d/up", kind=LINK, link="../../../../../../../tmp"), entry("tmp", kind=DIR),
               entry("d/up/inside", b"x"))
    layout.image("x", [data])
    store.image("import", layout.path, "t:1")
    assert (store.layer("t:1") / "tmp/inside").read_bytes() == b"x"
    assert not os.path.exists("/tmp/inside")
    control(tmp_path, data)
    assert os.path.exists("/tmp/inside")
    os.unlink("/tmp/inside")


def test_FS_31_link_exchanged_for_its_target(store, layout, tmp_path):
    """A file written through a link of the same name would follow it; and a folder replaced by a link on the way."""
    secret = tmp_path / "secret"
    secret.write_text("mine")
    data = tar(entry("f", kind=LINK, link=str(secret)), entry("f", b"theirs"), entry("g", kind=DIR), entry("g/a", b"1"),
               entry("g", kind=LINK, link=str(tmp_path)), entry("h", kind=DIR))
    layout.image("x", [data])
    store.image("import", layout.path, "t:1")
    assert secret.read_text() == "mine"
    assert (store.layer("t:1") / "f").read_bytes() == b"theirs" and (store.layer("t:1") / "g").is_symlink()


def test_FS_31_hard_link_out(store, layout, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("mine")
    data = tar(entry("x", kind=HARD, link=str(secret)))
    control(tmp_path, data)
    assert secret.stat().st_nlink == 2
    (tmp_path / "control/x").unlink()
    layout.image("x", [data])
    store.refuses(layout.path, "hard link")
    data = tar(entry("s", kind=LINK, link=str(tmp_path)), entry("x", kind=HARD, link="s/secret"))
    control(tmp_path, data)
    assert secret.stat().st_nlink == 2
    (tmp_path / "control/x").unlink()
    store.refuses(file(tmp_path, data), "hard link")
    assert secret.stat().st_nlink == 1


def test_FS_31_hard_link_to_a_link_writes_nothing_out(store, layout, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("mine")
    layout.image("x", [tar(entry("l", kind=LINK, link=str(secret)), entry("h", kind=HARD, link="l"), entry("h", b"theirs"))])
    store.image("import", layout.path, "t:1")
    assert secret.read_text() == "mine"


def test_special_files(store, layout, tmp_path):
    data = tar(entry("null", kind=CHAR, dev=(1, 3)), entry("zero", kind=CHAR, dev=(0, 0)), entry("fifo", kind=FIFO, mode=0o600),
               entry("suid", b"x", mode=0o6755), entry("sticky", kind=DIR, mode=0o1777))
    c = control(tmp_path, data, "-p")
    assert stat.S_ISCHR((c / "null").stat().st_mode) and (c / "suid").stat().st_mode & stat.S_ISUID
    layout.image("x", [data])
    r = store.image("import", layout.path, "t:1")
    top = store.layer("t:1")
    assert sorted(os.listdir(top)) == ["fifo", "sticky", "suid"], "a forged whiteout (0:0) is no entry either"
    assert stat.S_IMODE((top / "suid").stat().st_mode) == 0o755
    assert stat.S_IMODE((top / "sticky").stat().st_mode) == 0o1777
    assert "2 device nodes" in r.err and "bits of 1 files" in r.err


def test_FS_19_attributes(store, layout, tmp_path):
    data = tar(entry("d", kind=DIR, pax={"SCHILY.xattr.trusted.overlay.opaque": "y", "SCHILY.xattr.user.overlay.opaque": "y",
                                         "SCHILY.xattr.user.kept": "v"}),
               entry("f", b"x", pax={"SCHILY.xattr.trusted.overlay.redirect": "/etc",
                                     "SCHILY.xattr.security.capability": "\x01\x00\x00\x02\x00\x20\x00\x00" + "\x00" * 12}))
    c = control(tmp_path, data, "--xattrs", "--xattrs-include=*")
    assert "trusted.overlay.opaque" in os.listxattr(c / "d") and "security.capability" in os.listxattr(c / "f")
    layout.image("x", [data])
    store.image("import", layout.path, "t:1")
    assert os.listxattr(store.layer("t:1") / "d") == ["user.kept"] and os.listxattr(store.layer("t:1") / "f") == []


@pytest.mark.parametrize("way", ["{}", "../../../../../../../../../..{}"], ids=["absolute", "up"])
@pytest.mark.parametrize("path", ["proc", "dev", "sys", "tmp", "etc", "workspace"])
def test_FS_08_root_with_links_for_our_places(store, layout, tmp_path, path, way):
    """What is mounted or made there later would follow a link of the image."""
    victim = tmp_path / "victim"
    victim.mkdir()
    layout.image("x", [tar(*busybox(), entry(path, kind=LINK, link=way.format(victim)))])
    store.image("import", layout.path, "t:1")
    naive = store.layer("t:1") / path / "made"  # control: who makes a place by its path makes it on the host
    naive.mkdir()
    assert (victim / "made").is_dir()
    naive.rmdir()
    r = store.call("run", "--image", "t:1", "--", "/bin/busybox", "ls", "-la", "/", check=False)
    assert r.returncode == 0, r.err
    assert f" {path} -> " not in r.out
    assert list(victim.iterdir()) == []


def busybox():
    return [entry("bin", kind=DIR), entry("bin/busybox", open("/bin/busybox", "rb").read(), mode=0o755)]


def test_FS_09_links_for_device_nodes(store, layout, tmp_path):
    """No node of the image's is used, and none of its names is followed when ours are made."""
    victim, pattern = tmp_path / "victim", "/proc/sys/kernel/core_pattern"
    victim.write_text("mine")
    before = open(pattern).read()
    names = ("null", "zero", "console", "ptmx", "pts/0")
    links = [entry(f"dev/{n}", kind=LINK, link=pattern if n == "null" else str(victim)) for n in names]
    layout.image("x", [tar(*busybox(), entry("dev", kind=DIR), entry("dev/pts", kind=DIR), *links)])
    store.image("import", layout.path, "t:1")
    dev = store.layer("t:1") / "dev"
    assert os.readlink(dev / "null") == pattern
    (dev / "console").write_text("control: who opens it by its path has the host's file")
    assert victim.read_text().startswith("control")
    victim.write_text("mine")
    script = "; ".join([f"echo evil >/dev/{n}" for n in names] + ["ls -la /dev/null /dev/zero /dev/console /dev/ptmx"])
    r = store.call("run", "--image", "t:1", "--", "/bin/busybox", "sh", "-c", script, check=False)
    nodes = [line for line in r.out.splitlines() if line.startswith("crw-rw-rw-")]
    assert len(nodes) == 2 and " -> " not in r.out, (r.out, r.err)
    assert victim.read_text() == "mine" and open(pattern).read() == before


def test_FS_11_fake_proc(store, layout):
    """Files of the image where a runtime writes maps and labels: they are never written to, and never read inside."""
    fakes = {f"proc/{who}/{name}": b"fake\n" for who in ("self", "thread-self", "1")
             for name in ("uid_map", "gid_map", "setgroups", "oom_score_adj", "attr/exec", "attr/current", "status")}
    folders = ["proc", "sys"] + [f"proc/{who}{more}" for who in ("self", "thread-self", "1") for more in ("", "/attr")]
    layout.image("x", [tar(*busybox(), *(entry(f, kind=DIR) for f in folders), *(entry(n, d, mode=0o666) for n, d in fakes.items()),
                           entry("sys/fake", b"x"))])
    store.image("import", layout.path, "t:1")
    r = store.call("run", "--image", "t:1", "--", "/bin/busybox", "sh", "-c",
                   "cat /proc/self/uid_map /proc/self/status /proc/self/attr/current; ls /sys", check=False)
    assert re.match(r" +0 \d+ +1\n +65534 \d+ +1\n", r.out) and "NoNewPrivs:\t1" in r.out and "fake" not in r.out, (r.out, r.err)
    assert "/sys" in r.err
    for name, data in fakes.items():  # control: they were there, where a chroot would have found them
        assert (store.layer("t:1") / name).read_bytes() == data


def test_image_cannot_bring_files_of_ours(store, layout):
    layout.image("x", [tar(*busybox(), entry("etc", kind=DIR), entry("etc/hosts", b"6.6.6.6 localhost\n"),
                           entry("etc/machine-id", b"fake\n"))])
    store.image("import", layout.path, "t:1")
    r = store.call("run", "--image", "t:1", "--", "/bin/busybox", "cat", "/etc/hosts", "/etc/machine-id")
    assert "localhost" in r.out and "fake" not in r.out and "6.6.6.6" not in r.out


def test_FS_19_file_capabilities(store, layout, tmp_path):
    """A program that would have a capability: not in the layer, and not inside even when it is put into the layer afterwards."""
    value = b"\x01\x00\x00\x02\x00\x00\x20\x00" + bytes(12)  # effective, CAP_SYS_ADMIN, version 2
    program = open("/bin/busybox", "rb").read()
    data = tar(entry("bin", kind=DIR), entry("bin/busybox", program, mode=0o755, pax={"SCHILY.xattr.security.capability": value.decode()}))
    show = ("sed", "-n", "/^CapEff/s/.*\t//p", "/proc/self/status")
    c = control(tmp_path, data, "-p", "--xattrs", "--xattrs-include=*") / "bin/busybox"
    with tempfile.TemporaryDirectory(prefix="cloche-", dir="/var/tmp") as folder:  # where another user may look
        os.chmod(folder, 0o755)
        there = shutil.copy(c, folder)
        os.setxattr(there, "security.capability", os.getxattr(c, "security.capability"))
        done = subprocess.run([there, *show], user=65534, group=65534, extra_groups=[], capture_output=True, text=True)
    assert done.stdout.strip() == "0000000000200000", done
    layout.image("x", [data])
    store.image("import", layout.path, "t:1")
    inside = store.layer("t:1") / "bin/busybox"
    assert os.listxattr(inside) == []
    for _ in range(2):
        assert store.call("run", "--image", "t:1", "--", "/bin/busybox", *show).out.strip() == "0" * 16
        os.setxattr(inside, "security.capability", value)


@pytest.mark.parametrize("compress", [gzip.compress, None])
def test_FS_33_bomb(store, layout, tmp_path, compress):
    """2 GB of zeros in 2 MB; and 10 GB that are only a hole."""
    if compress:
        path = tmp_path / "bomb.tar.gz"
        head = tar(entry("z", b""))[:512]
        info, _ = entry("z")
        info.size = 2 << 30
        with gzip.open(path, "wb", 1) as f:
            f.write(info.tobuf())
            for _ in range(2 << 10):
                f.write(bytes(1 << 20))
            f.write(bytes(1024))
        assert path.stat().st_size < 20 << 20 and head
    else:
        path = tmp_path / "hole.tar"
        hole = tmp_path / "hole"
        with open(hole, "wb") as f:
            f.truncate(10 << 30)
        subprocess.run(["tar", "-cSf", path, "-C", tmp_path, "hole"], check=True)
        hole.unlink()
        assert path.stat().st_size < 1 << 20
        c = control(tmp_path, path.read_bytes())
        assert (c / "hole").stat().st_size == 10 << 30
    store.refuses(path, "bomb")


def test_FS_31_names_and_depth(store, layout, tmp_path):
    for data, word in ((tar(entry("/".join(["d"] * 300) + "/f", b"x")), "levels deep"),
                       (tar(entry("a" * 256, b"x")), "a part of 256 bytes"),
                       (tar(entry("f", b"x", uid=1 << 40)), "an owner that no system has"),
                       (tar(entry("f", b"x", pax={"SCHILY.xattr.user.a": "x" * 70000})), "extended attributes")):
        store.refuses(file(tmp_path, data), word)


def test_FS_33_absurd_sizes_and_times(store, layout, tmp_path):
    data = bytearray(tar(entry("f", b"x")))
    data[124:136] = b"\x80" + b"\xff" * 11  # a size of 2^88
    data[148:156] = b"        "
    data[148:156] = b"%06o\0 " % sum(data[:512])
    store.refuses(file(tmp_path, bytes(data)))
    data = tar(entry("f", b"x", mtime=0, pax={"mtime": str(2 ** 62)}), entry("g", b"x", pax={"mtime": "-5"}))
    layout.image("x", [data])
    store.image("import", layout.path, "t:1")
    assert (store.layer("t:1") / "f").exists()


def test_FS_33_pax_header_of_many_bytes(store, tmp_path):
    """A gigabyte that claims to be a header must not become a gigabyte of memory."""
    path = tmp_path / "pax.tar"
    head = entry("x")[0]
    head.type, head.size = b"x", 1 << 30
    with open(path, "wb") as f:
        f.write(head.tobuf())
        f.truncate(512 + (1 << 30) + 1024)
    store.refuses(path)
    assert peak_of(store.argv(["image", "import", str(path), "bad:1"]), dict(os.environ), 1) < 64 << 10


def test_cut_and_damaged(store, layout, tmp_path):
    data = gzip.compress(tar(entry("f", os.urandom(100000))))
    store.refuses(file(tmp_path, data[:50000]))
    broken = bytearray(data)
    broken[40000] ^= 1
    store.refuses(file(tmp_path, bytes(broken)))
    store.refuses(file(tmp_path, b"\x1f\x8b" + os.urandom(1000)))
    store.refuses(file(tmp_path, os.urandom(1000)))
    store.refuses(file(tmp_path, b""), "empty")
    store.refuses(file(tmp_path, gzip.compress(gzip.compress(tar(entry("f", b"x"))))), "more than once")


def test_RE_07_lying_digest(store, layout):
    """Bytes under another digest poison nothing."""
    good, evil = tar(entry("f", b"good")), tar(entry("f", b"evil"))
    layout.image("x", [good], compress=None)
    path = layout.path / "blobs/sha256" / sha(good)[7:]
    kept, other = good, evil
    assert len(other) == len(kept)
    path.write_bytes(other)
    store.refuses(layout.path, "the digest is wrong")
    path.write_bytes(kept)
    store.image("import", layout.path, "t:1")
    assert (store.layer("t:1") / "f").read_bytes() == b"good"


def test_RE_07_lying_diff_id_and_size(store, layout, tmp_path):
    layout.image("x", [tar(entry("f", b"good"))], diff_ids=["sha256:" + "0" * 64])
    store.refuses(layout.path, "but it is sha256:")
    m = layout.image("y", [tar(entry("f", b"2"))])
    layout.entries.clear()
    m["layers"][0]["size"] += 1
    layout.entries.append({"mediaType": m["mediaType"], **layout.blob(__import__("json").dumps(m).encode())})
    (layout.path / "index.json").write_text(__import__("json").dumps({"schemaVersion": 2, "manifests": layout.entries}))
    store.refuses(layout.path, "were announced")


@pytest.mark.parametrize("text, word", [
    ('{"schemaVersion":2,"manifests":[]}', "lists no image"), ("[", "index.json"), ("{}", "lists no image"),
    ('{"manifests":[{"digest":"sha256:../../../etc/passwd","size":1}]}', "no sha256 digest"),
    ('{"manifests":[{"digest":"sha256:%s","size":1}]}' % ("0" * 64), "blobs/sha256/000"),
    ('{"manifests":[],"manifests":[]}', "duplicate"), ("[" * 100, "nested")])
def test_bad_index(store, layout, text, word):
    (layout.path / "index.json").write_text(text)
    store.refuses(layout.path, word)


@pytest.mark.parametrize("what", ["index.json", "manifest", "config", "docker-save"])
def test_huge_manifest(store, layout, tmp_path, what):
    """A gigabyte, wherever JSON is read: refused, and never in memory."""
    m = layout.image("x", [tar(entry("f", b"x"))])
    path, source, head = layout.path / "index.json", layout.path, b""
    if what == "docker-save":
        path = source = tmp_path / "save.tar"
        info = entry("manifest.json")[0]
        info.size = 1 << 30
        head = info.tobuf()
    elif what != "index.json":
        blob = layout.entries[0] if what == "manifest" else m["config"]
        blob["size"] = 1 << 30
        if what == "config":
            layout.entries[0].update(layout.blob(json.dumps(m).encode()))
        (layout.path / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": layout.entries}))
        path = layout.path / "blobs/sha256" / blob["digest"][7:]
    with open(path, "wb") as f:
        f.write(head)
        f.truncate((1 << 30) + len(head))
    store.refuses(source, {"docker-save": "manifest.json"}.get(what, what))
    assert peak_of(store.argv(["image", "import", str(source), "bad:1"]), dict(os.environ), 1) < 64 << 10


@pytest.mark.parametrize("config, word", [
    ({"Env": ["NOEQUALS"]}, "Env[0]"), ({"Env": "x"}, "Env is no list"), ({"WorkingDir": "/a/../b"}, '".."'),
    ({"Entrypoint": [1]}, "Entrypoint[0]"), ({"User": "x" * 200}, "User"), ({"Env": ["A=\0"]}, "configuration")])
def test_bad_config(store, layout, config, word):
    layout.image("x", [tar(entry("f", b"x"))], config=config)
    store.refuses(layout.path, word)


def test_links_in_a_layout(store, layout, tmp_path):
    """A layout's blobs and index are read inside it only."""
    layout.image("x", [tar(entry("f", b"x"))])
    (layout.path / "index.json").rename(tmp_path / "index.json")
    (layout.path / "index.json").symlink_to(tmp_path / "index.json")
    store.refuses(layout.path)


def test_FS_33_many_entries(store, tmp_path):
    """A million names in an archive of 20 MB: stopped at the limit."""
    path = tmp_path / "many.tar.gz"
    with gzip.open(path, "wb", 1) as f:
        f.write(entry("f", b"")[0].tobuf())
        block = entry("h", kind=HARD, link="f")[0].tobuf() * 1000
        for _ in range(1000):
            f.write(block)
        f.write(bytes(1024))
    store.refuses(path, "more than 800000 files")


def test_folder_that_is_watched_while_it_changes(store, tmp_path):
    """A root file system in a folder whose owner exchanges a folder for a link all the time: nothing outside is read."""
    top, secret = tmp_path / "root", tmp_path / "secret"
    secret.mkdir()
    (secret / "s").write_text("secret")
    (top / "a").mkdir(parents=True)
    stop = threading.Event()

    def swap():
        while not stop.is_set():
            os.rename(top / "a", tmp_path / "b")
            os.symlink(secret, top / "a")
            os.unlink(top / "a")
            os.rename(tmp_path / "b", top / "a")

    thread = threading.Thread(target=swap)
    thread.start()
    end = time.monotonic() + 3
    while time.monotonic() < end:
        store.image("import", top, "t:1", check=False)
    stop.set()
    thread.join()
    assert not any(p.name == "s" for p in (store.images / "l").rglob("*"))
