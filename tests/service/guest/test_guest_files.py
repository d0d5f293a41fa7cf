# SPDX-License-Identifier: Apache-2.0
"""The init of a kept sandbox: files, as a client reads and writes them while hostile code works against it."""
import errno
import hashlib
import os
import stat
import struct
import threading
import time

import pytest

import conversation
from conversation import APPEND, ATTACH, EXCLUSIVE, PARENTS, TAIL, Failed, HungUp, Run, event
from test_guest import fails, wait_for

REG, DIR, LNK = stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK
W = "/workspace"


@pytest.fixture(autouse=True)
def clean(box):
    yield
    for e in box.readdir(W):
        box.remove(f"{W}/".encode() + e.name, recursive=1)


def inside(box, code, *args):
    """Hostile code, which must have worked."""
    r = box.python("import os, sys, socket\n" + code, *args)
    assert r.ended.status == 0, r.err.decode()
    return r.out.decode()


# ----------------------------------------------------------------------------------------------- round trips


@pytest.mark.parametrize("size", [0, 1, 65535, 65536, 65537, 1_000_000])
def test_round_trip(box, size):
    data = os.urandom(size)
    box.write(f"{W}/f", data)
    assert box.read(f"{W}/f") == data
    e = box.stat(f"{W}/f")
    assert (e.mode, e.size, e.uid, e.gid, e.name, e.target) == (REG | 0o644, size, 65534, 65534, b"f", b"")
    assert abs(e.mtime - time.time()) < 60
    assert [x.name for x in box.readdir(W)] == [b"f"], "no temporary file stays"


def test_100_mb(box):
    data = os.urandom(1 << 20) * 100
    began = time.monotonic()
    box.write("/big/large", data)
    wrote = time.monotonic()
    back = box.read("/big/large")
    took = time.monotonic() - wrote
    assert hashlib.sha256(back).digest() == hashlib.sha256(data).digest()
    print(f"write {100 / (wrote - began):.0f} MB/s, read {100 / took:.0f} MB/s")
    box.remove("/big/large")


def test_ranges(box):
    box.write(f"{W}/f", b"0123456789")
    for offset, length, wanted in ((0, 3, b"012"), (8, 5, b"89"), (10, 1, b""), (100, 1, b""), (3, 0, b"")):
        assert box.read(f"{W}/f", offset, length) == wanted
    with fails(errno.EINVAL):
        box.read(f"{W}/f", 2**63)


def test_replaced_at_once(box):
    box.write(f"{W}/f", b"old", mode=0o600)
    c = box.talk("WRITE", struct.pack("<II", 0, 0) + f"{W}/f".encode() + b"\0")
    c.say("DATA", b"new")
    wait_for(lambda: len(box.readdir(W)) == 2)
    assert box.read(f"{W}/f") == b"old"
    c.close()  # cut: nothing happens to the file, and nothing stays
    wait_for(lambda: len(box.readdir(W)) == 1)
    assert box.read(f"{W}/f") == b"old"
    box.write(f"{W}/f", b"new")
    assert box.read(f"{W}/f") == b"new" and box.stat(f"{W}/f").mode == REG | 0o644


def test_modes(box):
    box.write(f"{W}/f", b"#!/bin/sh\necho ran\n", mode=0o755)
    assert box.run([f"{W}/f"]).out == b"ran\n"
    box.write(f"{W}/f", b"", mode=0o6755 | 0o1000)
    assert box.stat(f"{W}/f").mode == REG | 0o755, "never setuid"
    box.mkdir(f"{W}/d", mode=0o7711)
    assert box.stat(f"{W}/d").mode == DIR | 0o711


def test_flags(box):
    box.write(f"{W}/f", b"one", flags=EXCLUSIVE)
    with fails(errno.EEXIST):
        box.write(f"{W}/f", b"two", flags=EXCLUSIVE)
    box.write(f"{W}/f", b"+two", flags=APPEND)
    assert box.read(f"{W}/f") == b"one+two"
    with fails(errno.ENOENT):
        box.write(f"{W}/a/b/f", b"x")
    box.write(f"{W}/a/b/f", b"x", flags=PARENTS)
    box.write(f"{W}/a/c/f", b"x", flags=PARENTS | APPEND)
    assert box.read(f"{W}/a/c/f") == b"x"
    with fails(errno.EISDIR):
        box.write(f"{W}/a", b"x")
    with fails(errno.EISDIR):
        box.write(f"{W}/new/", b"x")
    with fails(errno.EINVAL):
        box.write(f"{W}/f", b"x", flags=8)


def test_exclusive_once(box):
    """Eight at the same time: one wins."""
    won = []

    def one(i):
        try:
            box.write(f"{W}/f", bytes([i]) * 1000, flags=EXCLUSIVE)
            won.append(i)
        except Failed as e:
            assert e.errno == errno.EEXIST
    threads = [threading.Thread(target=one, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(won) == 1 and box.read(f"{W}/f") == bytes(won) * 1000
    assert len(box.readdir(W)) == 1


def test_folders(box):
    box.mkdir(f"{W}/a")
    with fails(errno.EEXIST):
        box.mkdir(f"{W}/a")
    box.mkdir(f"{W}/a", flags=PARENTS)
    box.mkdir(f"{W}/a/b/c/", flags=PARENTS)
    box.write(f"{W}/a/f", b"x")
    with fails(errno.EEXIST):
        box.mkdir(f"{W}/a/f", flags=PARENTS)
    with fails(errno.ENOTEMPTY):
        box.remove(f"{W}/a")
    assert {e.name: stat.S_IFMT(e.mode) for e in box.readdir(f"{W}/a")} == {b"b": DIR, b"f": REG}
    assert len(box.readdir(f"{W}/a", most=1)) == 1
    box.remove(f"{W}/a", recursive=1)
    with fails(errno.ENOENT):
        box.stat(f"{W}/a")
    with fails(errno.ENOTDIR):
        box.write(f"{W}/f", b"")
        box.readdir(f"{W}/f")


def test_move(box):
    box.write(f"{W}/a", b"a")
    box.write(f"{W}/b", b"b")
    with fails(errno.EEXIST):
        box.move(f"{W}/a", f"{W}/b")
    box.move(f"{W}/a", f"{W}/b", replace=1)
    assert box.read(f"{W}/b") == b"a"
    with fails(errno.ENOENT):
        box.move(f"{W}/a", f"{W}/c")
    with fails(errno.EXDEV):
        box.move(f"{W}/b", "/big/b")


def test_any_name(box):
    for name in (b"\xff\xfe", b"a b", b"\n", b"-rf", b"\\", b"C:\\x", b"x" * 255, "ä".encode(), b"..."):
        box.write(b"/workspace/" + name, name)
        assert box.read(b"/workspace/" + name) == name
        assert name in [e.name for e in box.readdir(W)]
    with fails(errno.ENAMETOOLONG):
        box.write(b"/workspace/" + b"x" * 256, b"")


def test_full(box):
    with fails(errno.ENOSPC):
        box.write(f"{W}/f", bytes(300 << 20))
    assert box.readdir(W) == []


def test_read_only_places(box):
    for path in ("/etc/x", "/usr/x", "/x"):
        with fails(errno.EROFS) as f:
            box.write(path, b"x")
        assert f.value.stage == "write"
    with pytest.raises(Failed):
        box.remove("/etc/passwd")


# ------------------------------------------------------------------------------------------ hostile: single files


@pytest.mark.parametrize("path", [
    "/proc/self/environ", "/proc/1/root/etc/passwd", "/proc/self/exe", "/dev/null", "/dev/zero", "/dev/fd/0", "/dev/stdin",
    "/proc/self/fd/0", "//proc//self/status", "/workspace/../proc/self/status", "/proc/self/root/etc/passwd",
    "/proc/self/cwd/x", "/proc/version", "/proc", "/dev"])
def test_kernel_places_are_refused(box, path):  # FS-29
    for request in (box.read, lambda p: box.write(p, b"x", flags=APPEND), box.stat, box.readdir, box.walk):
        with pytest.raises(Failed) as f:
            request(path)
        assert f.value.errno in (errno.EACCES, errno.ELOOP, errno.ENOENT, errno.ENOTDIR), (path, f.value)
    assert f.value.errno != errno.ENOTDIR or path not in ("/proc", "/dev")


def test_links_into_kernel_places(box):
    inside(box, "os.symlink('/proc/self/environ', 'environ'); os.symlink('/proc', 'p'); os.symlink('/dev', 'd');"
                "os.symlink('/dev/zero', 'zero'); os.symlink('/proc/self', 'magic'); os.symlink('/proc/self/root', 'root')")
    for path in ("environ", "p/self/status", "d/zero", "zero", "magic/root/etc/passwd", "root/etc/passwd"):
        with pytest.raises(Failed) as f:
            box.read(f"{W}/{path}")
        assert f.value.errno in (errno.EACCES, errno.ELOOP)
    for path in ("p/x", "d/x", "d/shm/../x"):
        with pytest.raises(Failed) as f:
            box.write(f"{W}/{path}", b"x", flags=PARENTS)
        assert f.value.errno in (errno.EACCES, errno.EROFS)
    with pytest.raises(Failed):
        box.watch(f"{W}/p")
    assert box.stat(f"{W}/environ").target == b"/proc/self/environ", "the link itself may be looked at"


def test_links_are_followed_inside(box):  # FS-24: where they lead for the code
    box.write(f"{W}/real", b"content")
    inside(box, "os.symlink('real', 'link'); os.symlink('/etc/passwd', 'passwd'); os.symlink('/root/CANARY', 'canary');"
                "os.symlink('loop', 'loop')")
    assert box.read(f"{W}/link") == b"content"
    assert box.read(f"{W}/passwd") == inside(box, "sys.stdout.write(open('/etc/passwd').read())").encode()
    for name in ("canary", "loop"):
        with fails({"canary": errno.EACCES, "loop": errno.ELOOP}[name]):  # the sandbox's own /root is closed
            box.read(f"{W}/{name}")
    e = box.stat(f"{W}/link")
    assert stat.S_ISLNK(e.mode) and e.target == b"real"


def test_write_replaces_a_link(box):  # FS-25
    box.write(f"{W}/target", b"safe")
    inside(box, "os.symlink('target', 'in.txt'); os.mkdir('real'); os.symlink('real', 'd'); os.symlink('/etc', 'etc')")
    box.write(f"{W}/in.txt", b"new")
    assert box.read(f"{W}/target") == b"safe" and stat.S_ISREG(box.stat(f"{W}/in.txt").mode)
    box.write(f"{W}/d/f", b"x")
    assert box.read(f"{W}/real/f") == b"x"
    with fails(errno.EROFS):
        box.write(f"{W}/etc/cron", b"x")


def test_special_files(box):
    inside(box, "os.mkfifo('fifo'); s = socket.socket(socket.AF_UNIX); s.bind('socket'); os.mkdir('dir')")
    for name in ("fifo", "socket", "dir"):
        number = {"dir": errno.EISDIR}.get(name, errno.EINVAL)
        with fails(number) as f:
            box.read(f"{W}/{name}")
        assert f.value.what == "not a regular file"
    with fails(errno.EINVAL):
        box.write(f"{W}/fifo", b"x", flags=APPEND)
    assert stat.S_ISFIFO(box.stat(f"{W}/fifo").mode)
    assert box.walk(W).keys() == {b"dir"}


def test_unreadable(box):
    inside(box, "open('f', 'w').close(); os.chmod('f', 0)")
    with fails(errno.EACCES):
        box.read(f"{W}/f")
    with pytest.raises(Failed):
        box.read("/etc/shadow")


def test_walk_skips_what_cannot_be_read(box):
    inside(box, "os.makedirs('d/in'); os.chmod('d/in', 0); os.mkdir('e'); open('e/f', 'w').close(); os.chmod('e/f', 0); "
           "open('e/g', 'w').write('g'); open('z', 'w').write('z')")
    skipped = []
    got = box.walk(W, skipped)
    assert got.keys() == {b"d", b"d/in", b"e", b"e/g", b"z"} and bytes(got[b"z"][1]) == b"z" and bytes(got[b"e/g"][1]) == b"g"
    assert sorted(skipped) == [(b"d/in", errno.EACCES), (b"e/f", errno.EACCES)]
    with fails(errno.EACCES):  # what was asked for is the answer
        box.walk(f"{W}/d/in")
    inside(box, "os.chmod('d/in', 0o700); os.chmod('e/f', 0o600)")


@pytest.mark.parametrize("path", [b"", b"workspace/f", b"../etc/passwd", b"\0", b"/a\0b", b"f"])
def test_paths_that_are_none(box, path):  # FS-30
    for name, head in (("READ", struct.pack("<QQ", 0, 1)), ("STAT", b""), ("WRITE", struct.pack("<II", 0, 0)),
                       ("READDIR", struct.pack("<I", 9)), ("WALK", b""), ("REMOVE", struct.pack("<I", 0))):
        with box.talk(name, head + path + b"\0") as c:
            with pytest.raises((Failed, HungUp)) as f:
                c.hear()
            assert not isinstance(f.value, Failed) or f.value.errno == errno.EINVAL


def test_no_end_of_the_path(box):
    with box.talk("STAT", b"/etc") as c, fails(errno.EINVAL):
        c.hear()


@pytest.mark.parametrize("path", ["/workspace/..", "/", "/workspace/.", "//", "/workspace/d/.."])
def test_names_that_cannot_be_changed(box, path):
    for request in (lambda: box.remove(path, 1), lambda: box.mkdir(path), lambda: box.move(path, f"{W}/x"),
                    lambda: box.write(path + "" if path[-1] != "/" else path + ".", b"")):
        with pytest.raises(Failed) as f:
            request()
        assert f.value.errno in (errno.EINVAL, errno.EISDIR, errno.ENOENT)


def test_path_too_long(box):
    with pytest.raises((Failed, HungUp)):
        box.stat("/workspace" + "/x" * 2100)


def test_exchange_race(box):  # FS-26, FS-35
    """A file and a link to /proc, and a folder and a link to /dev, are exchanged all the time."""
    code = ("import ctypes\n"
            "libc = ctypes.CDLL(None)\n"
            "os.mkdir('d'); open('d/f', 'w').write('mine'); os.symlink('/proc/self', 'l'); open('g', 'w').write('mine')\n"
            "os.symlink('/proc/self/status', 'm')\n"
            "print('ready', flush=True)\n"
            "while True:\n"
            " libc.syscall(316, -100, b'd', -100, b'l', 2)\n"
            " libc.syscall(316, -100, b'g', -100, b'm', 2)\n")
    with box.start(["python3", "-c", "import os\n" + code], keep=100) as c:
        r = Run().take(c.hear("BEGUN"))
        while b"ready" not in r.out:
            r.take(c.hear())
        seen = {"ok": 0, "refused": 0}
        until = time.monotonic() + 4
        while time.monotonic() < until:
            for request in (lambda: box.read(f"{W}/g"), lambda: box.read(f"{W}/d/status"), lambda: box.read(f"{W}/d/f")):
                try:
                    data = request()
                    assert data == b"mine", data
                    seen["ok"] += 1
                except Failed as e:
                    assert e.errno in (errno.EACCES, errno.ELOOP, errno.ENOENT), e
                    seen["refused"] += 1
            for data in box.walk(W).values():
                assert bytes(data[1]) in (b"", b"mine")
        box.kill(r.number, 9)
    print(seen)
    assert seen["ok"] > 50 and seen["refused"] > 50, "the race was run"


# --------------------------------------------------------------------------------------------- whole trees


def test_walk(box):
    box.unpack(W, [("a", DIR | 0o755, b""), ("a/f", REG | 0o640, b"file"), ("a/l", LNK | 0o777, b"/etc/passwd"),
                   ("a/b/c/deep", REG | 0o600, b"x" * 200000), ("empty", REG | 0o644, b"")])
    got = box.walk(W)
    assert set(got) == {b"a", b"a/f", b"a/l", b"a/b", b"a/b/c", b"a/b/c/deep", b"empty"}
    assert got[b"a/f"][0].mode == REG | 0o640 and bytes(got[b"a/f"][1]) == b"file"
    assert got[b"a/l"][0].target == b"/etc/passwd" and bytes(got[b"a/l"][1]) == b""
    assert len(got[b"a/b/c/deep"][1]) == 200000
    assert list(got).index(b"a") < list(got).index(b"a/f")
    assert box.walk(f"{W}/a/b").keys() == {b"c", b"c/deep"}


def test_walk_stays_on_its_file_system(box):
    box.write("/big/sub/f", b"x")
    box.write("/big/f", b"x")
    assert box.walk("/big").keys() == {b"f"}
    with pytest.raises(Failed):
        box.remove("/big/sub", 1)
    assert box.read("/big/sub/f") == b"x", "nor is another one emptied"
    box.remove("/big/f")


def test_file_that_changes_while_it_is_sent(box):
    """Exactly what was announced comes, whatever the code does."""
    code = ("f = open('f', 'wb', 0); f.write(b'x' * 3000000); print('ready', flush=True)\n"
            "while True: f.truncate(10); f.truncate(5000000); f.truncate(3000000)")
    with box.start(["python3", "-c", code], keep=100) as c:
        r = Run().take(c.hear("BEGUN"))
        while b"ready" not in r.out:
            r.take(c.hear())
        for _ in range(100):
            e, data = box.walk(W)[b"f"]
            assert len(data) == e.size
        box.kill(r.number, 9)


def test_deep_trees_end(box):
    inside(box, "for i in range(900): os.mkdir('d'); os.chdir('d')")
    skipped = []
    got = box.walk(W, skipped)
    assert len(got) == 513 and skipped == [(b"/".join([b"d"] * 513), errno.ENAMETOOLONG)]
    with fails(errno.ENAMETOOLONG):
        box.remove(f"{W}/d", 1)
    inside(box, "os.spawnlp(os.P_WAIT, 'rm', 'rm', '-rf', 'd')")


@pytest.mark.parametrize("name", ["../x", "/abs", "a/../x", "./x", "a//b", "a/", "", ".", "..", "a/./b", "/workspace/x"])
def test_unpack_names(box, name):  # FS-31
    with pytest.raises(Failed) as f:
        box.unpack(W, [(name, REG | 0o644, b"x")])
    assert f.value.errno == errno.EINVAL
    assert box.readdir(W) == []


def test_unpack_through_a_link(box):  # FS-31
    box.mkdir("/tmp/out", flags=PARENTS)
    for link in ("/tmp/out", "../tmp/out", ".", "/proc/self/root/tmp/out"):
        with fails(errno.ELOOP):
            box.unpack(W, [("a", LNK | 0o777, link.encode()), ("a/x", REG | 0o644, b"x")])
        with fails(errno.ELOOP):
            box.unpack(W, [("b/c", LNK | 0o777, link.encode()), ("b/c/d/x", REG | 0o644, b"x")])
        with fails(errno.EEXIST):
            box.unpack(W, [("a", LNK | 0o777, link.encode()), ("a", DIR | 0o755, b"")])
        box.unpack(W, [("a", LNK | 0o777, link.encode()), ("a", REG | 0o644, b"x")])
        assert stat.S_ISREG(box.stat(f"{W}/a").mode), "a file in the place of the link"
    assert box.readdir("/tmp/out") == []


@pytest.mark.parametrize("mode", [stat.S_IFIFO, stat.S_IFCHR, stat.S_IFBLK, stat.S_IFSOCK, 0, REG | 0o10000000, 0o170000])
def test_unpack_kinds(box, mode):  # FS-34
    with fails(errno.EINVAL):
        box.unpack(W, [("x", mode | 0o644, b"")])
    assert box.readdir(W) == []


def test_unpack_bits_and_times(box):  # FS-34
    box.unpack(W, [("s", REG | 0o6755, b"", 1234567890), ("t", REG | 0o644, b"", 2**62), ("u", REG | 0o644, b"", -5),
                   ("d", DIR | 0o7500, b"")])
    assert box.stat(f"{W}/s").mode == REG | 0o755 and box.stat(f"{W}/s").mtime == 1234567890
    for name in "tu":
        assert abs(box.stat(f"{W}/{name}").mtime - time.time()) < 60
    assert box.stat(f"{W}/d").mode == DIR | 0o700
    assert box.stat(f"{W}/s").uid == 65534


def test_unpack_over_what_is_there(box):
    box.write(f"{W}/f", b"old")
    box.mkdir(f"{W}/d")
    box.unpack(W, [("f", REG | 0o600, b"new"), ("d", DIR | 0o755, b""), ("d/x", REG | 0o644, b"1"), ("d/x", REG | 0o644, b"2")])
    assert box.read(f"{W}/f") == b"new" and box.read(f"{W}/d/x") == b"2"
    with pytest.raises(Failed):
        box.unpack(W, [("d", REG | 0o644, b"")])
    with fails(errno.ENOTDIR):
        box.unpack(W, [("f/x", REG | 0o644, b"")])
    with fails(errno.ENOENT):
        box.unpack(f"{W}/nowhere", [])


def test_unpack_too_deep_or_cut(box):
    with fails(errno.ENAMETOOLONG):
        box.unpack(W, [("/".join(["d"] * 300), REG | 0o644, b"")])
    with box.talk("UNPACK", f"{W}\0".encode()) as c:
        c.say("MEMBER", struct.pack("<4IQq", REG | 0o644, 0, 0, 0, 1000, 0) + b"cut\0\0").say("DATA", b"x")
        wait_for(lambda: any(e.name == b"cut" for e in box.readdir(W)))
    wait_for(lambda: not any(e.name == b"cut" for e in box.readdir(W)))
    for size, data in ((3, b"four"), (2**63, b"")):
        with box.talk("UNPACK", f"{W}\0".encode()) as c, pytest.raises(Failed):
            c.say("MEMBER", struct.pack("<4IQq", REG | 0o644, 0, 0, 0, size, 0) + b"m\0\0")
            c.say("DATA", data) if data else None
            c.hear()


def test_unpack_race(box):
    """The folder that is unpacked into is exchanged with a link all the time: nothing lands behind the link."""
    box.remove("/tmp/out", 1) if any(e.name == b"out" for e in box.readdir("/tmp")) else None
    box.mkdir("/tmp/out")
    code = ("import ctypes, os\nlibc = ctypes.CDLL(None)\nos.mkdir('base'); os.mkdir('base/d'); os.symlink('/tmp/out', 'base/l')\n"
            "print('ready', flush=True)\nwhile True: libc.syscall(316, -100, b'base/d', -100, b'base/l', 2)\n")
    with box.start(["python3", "-c", code], keep=100) as c:
        r = Run().take(c.hear("BEGUN"))
        while b"ready" not in r.out:
            r.take(c.hear())
        done = refused = 0
        for i in range(1000):
            try:
                box.unpack(f"{W}/base", [(f"d/f{i}", REG | 0o644, b"x")])
                done += 1
            except Failed as e:
                assert e.errno in (errno.ELOOP, errno.ENOENT, errno.ENOTDIR), e
                refused += 1
        box.kill(r.number, 9)
    assert done > 20 and refused > 20
    assert box.readdir("/tmp/out") == []


def test_remove_does_not_follow(box):  # FS-35
    box.mkdir("/tmp/keep", flags=PARENTS)
    box.write("/tmp/keep/f", b"x")
    inside(box, "os.mkdir('d'); os.symlink('/tmp/keep', 'd/l'); os.symlink('/tmp/keep', 'l')")
    box.remove(f"{W}/d", 1)
    box.remove(f"{W}/l", 1)
    assert box.read("/tmp/keep/f") == b"x"
    with pytest.raises(Failed):
        box.remove("/workspace", 1)


# --------------------------------------------------------------------------------------------- watch and dial


def test_watch(box):
    box.mkdir(f"{W}/d")
    with box.watch(f"{W}/d") as c:
        inside(box, "os.chdir('d'); open('a', 'w').write('x'); os.rename('a', 'b'); os.chmod('b', 0o600); os.remove('b'); os.mkdir('s')")
        seen = [event(c) for _ in range(7)]
        assert seen == [("create", "a"), ("modify", "a"), ("rename", "a"), ("create", "b"), ("attributes", "b"), ("remove", "b"),
                        ("create", "s")]
        box.write(f"{W}/d/put", b"x")
        assert event(c) == ("create", "put"), "nothing of the temporary file"
        box.remove(f"{W}/d/put")
        assert event(c) == ("remove", "put")
        box.remove(f"{W}/d", 1)
        seen = []
        with pytest.raises(HungUp):
            while True:
                seen.append(event(c))
        assert seen[0] == ("remove", "s") and seen[-1][0] == "remove" and seen[-1][1] == "."
    with fails(errno.ENOTDIR):
        box.write(f"{W}/f", b"")
        box.watch(f"{W}/f")


ECHO = """
import socket, sys
s = socket.socket(socket.AF_INET6 if sys.argv[1] == '6' else socket.AF_INET)
s.bind(('::1' if sys.argv[1] == '6' else '127.0.0.1', 0)); s.listen(); print(s.getsockname()[1], flush=True)
while True:
    c, _ = s.accept()
    total = 0
    while data := c.recv(65536):
        total += len(data); c.sendall(data)
    c.sendall(b'total %d' % total); c.close()
"""


@pytest.mark.parametrize("family", ["4", "6"])
def test_dial(box, family):
    with box.start(["python3", "-c", ECHO, family], keep=100) as server:
        r = Run().take(server.hear("BEGUN"))
        while b"\n" not in r.out:
            r.take(server.hear())
        port = int(r.out)
        data = os.urandom(2_000_000)
        for _ in range(2):
            with box.dial(port) as c:
                sender = threading.Thread(target=lambda: (c.socket.sendall(data), c.socket.shutdown(1)))
                sender.start()
                back = c.raw(len(data))
                sender.join()
                assert back == data
                assert c.raw(13) == b"total 2000000"
                assert c.hung_up()
        box.kill(r.number, 9)


def test_dial_nobody(box):
    with fails(errno.ECONNREFUSED, "dial"):
        box.dial(1)
    for port in (0, 65536):
        with fails(errno.EINVAL, "dial"):
            box.dial(port)


def test_dial_is_let_go_of(box):
    with box.start(["python3", "-c", ECHO, "4"], keep=100) as server:
        r = Run().take(server.hear("BEGUN"))
        while b"\n" not in r.out:
            r.take(server.hear())
        before = len(children(box))
        c = box.dial(int(r.out))
        assert len(children(box)) == before + 1
        c.close()
        wait_for(lambda: len(children(box)) == before)
        box.kill(r.number, 9)


def test_dial_where_nobody_takes_anything(box):
    """The client goes away with bytes still unsent: the worker neither spins nor stays."""
    code = ("import socket, time\ns = socket.socket(); s.setsockopt(1, 8, 4096); s.bind(('127.0.0.1', 0)); s.listen()\n"
            "print(s.getsockname()[1], flush=True); c, _ = s.accept(); time.sleep(60)")
    with box.start(["python3", "-c", code], keep=100) as server:
        r = Run().take(server.hear("BEGUN"))
        while b"\n" not in r.out:
            r.take(server.hear())
        before = children(box)
        c = box.dial(int(r.out))
        worker, = set(children(box)) - set(before)
        c.socket.settimeout(0.5)
        with pytest.raises(TimeoutError):
            while True:
                c.socket.send(bytes(65536))
        c.close()

        def ticks():
            with open(f"/proc/{worker}/stat") as f:
                return sum(int(n) for n in f.read().rsplit(")", 1)[1].split()[11:13])
        began = ticks()
        time.sleep(1)
        assert ticks() - began < 20, "it spins"
        wait_for(lambda: worker not in children(box), 15)
        box.kill(r.number, 9)


def children(box):
    with open(f"/proc/{box.init}/task/{box.init}/children") as f:
        return f.read().split()
