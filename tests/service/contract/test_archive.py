# SPDX-License-Identifier: Apache-2.0
"""tar in and tar out, with Python's tarfile on the other side; archives made to escape (FS-31 to FS-34)."""
import io
import os
import tarfile
import time

import pytest
from contract import exited

BLOCK = 512


def tar(*members, format=tarfile.PAX_FORMAT):
    """A tar of (name, data) files and of TarInfo objects."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=format) as t:
        for m in members:
            if isinstance(m, tarfile.TarInfo):
                t.addfile(m)
                continue
            info = tarfile.TarInfo(m[0])
            info.size = len(m[1])
            t.addfile(info, io.BytesIO(m[1]))
    return out.getvalue()


def member(name, kind, target="", **more):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    for key, value in more.items():
        setattr(info, key, value)
    return info


def read_raw(box, query, fields=()):
    """An archive with the fields behind it, which http.client throws away: (header, body of chunks, trailer)."""
    with box.client.socket() as s:
        s.sendall("".join([f"GET {box.path}/archive?{query} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n", *fields,
                           "\r\n"]).encode())
        raw = b"".join(iter(lambda: s.recv(1 << 16), b""))
    head, _, rest = raw.partition(b"\r\n\r\n")
    body = b""
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        if int(size, 16) == 0:
            return head.decode(), body, rest.decode()
        body, rest = body + rest[:int(size, 16)], rest[int(size, 16) + 2:]
    raise AssertionError("the archive was cut")


def test_what_cannot_be_read_is_left_out_and_named(box):
    """One entry of mode 0 does not end the archive; a client that takes trailers is told what is missing."""
    exited(box.exec("mkdir -p t/locked t/open; echo x >t/locked/f; echo 1 >t/open/a; echo 2 >'t/open/no, no'; echo 3 >t/z; "
                    "chmod 0 t/locked 't/open/no, no'"))
    with tarfile.open(fileobj=io.BytesIO(box.pack("/workspace/t"))) as t:
        assert sorted(t.getnames()) == ["locked", "open", "open/a", "z"] and t.getmember("locked").mode == 0
        assert t.extractfile("z").read() == b"3\n"
    head, body, trailer = read_raw(box, "path=/workspace/t", ["TE: gzip, trailers\r\n"])
    assert "Trailer: Cloche-Skipped\r\n" in head + "\r\n"
    name, _, value = trailer.strip().partition(": ")
    assert name == "Cloche-Skipped" and sorted(value.split(", ")) == sorted(["2", "locked", "open/no%2C%20no"])
    assert tarfile.open(fileobj=io.BytesIO(body)).getnames()
    for fields in ((), ["TE: trailersx\r\n"], ["TE: deflate\r\n"]):
        head, body, trailer = read_raw(box, "path=/workspace/t", fields)
        assert "Cloche-Skipped" not in head and trailer == "\r\n" and body
    head, body, trailer = read_raw(box, "path=/workspace/t/open", ["TE: trailers\r\n"])
    exited(box.exec("chmod 700 t/locked 't/open/no, no'"))
    assert read_raw(box, "path=/workspace/t", ["TE: trailers\r\n"])[2] == "\r\n"


def test_names_of_what_cannot_be_read_are_bounded(box):
    exited(box.exec(["sh", "-c", "mkdir m; cd m; for i in $(seq 300); do : >$i-$(printf %0100d 0); done; chmod 0 *"], timeout="30s"))
    _, body, trailer = read_raw(box, "path=/workspace/m", ["TE: trailers\r\n"])
    count, *names = trailer.strip().partition(": ")[2].split(", ")
    assert count == "300" and 20 < len(names) < 300 and len(trailer) < 8300 and body == bytes(2 * BLOCK)


def test_the_whole_root(box):
    """/ has what the sandbox's user may not read; it comes all the same, but for other file systems."""
    names = tarfile.open(fileobj=io.BytesIO(box.pack("/etc"))).getnames()
    assert "passwd" in names and "hostname" in names


def unpacked(box, data, path="/workspace"):
    r = box.unpack(path, data, timeout=60)
    assert r.status == 204, r


def refused(box, data, path="/workspace"):
    r = box.unpack(path, data, timeout=60)
    assert (r.status, r.json["code"]) == (400, "INVALID_REQUEST"), r
    return r.json


def members(data):
    with tarfile.open(fileobj=io.BytesIO(data)) as t:
        return {m.name.rstrip("/").removeprefix("./"): m for m in t.getmembers() if m.name not in (".", "./")}


@pytest.mark.parametrize("format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_in(box, format):
    long = "/".join(["d" * 60] * 3) + "/f"
    program = member("bin/x", tarfile.REGTYPE, mode=0o755)
    unpacked(
        box,
        tar(member("d", tarfile.DIRTYPE, mode=0o750), ("d/f", b"inner\n"), ("top", bytes(range(256))), (long, b"deep"), program,
            member("l", tarfile.SYMTYPE, "d/f"), format=format))
    r = exited(box.sh(f"cd /workspace; cat d/f l; stat -c '%a %u' d bin/x; cat {long}; sha256sum < top"))
    assert r.out.startswith(b"inner\ninner\n750 65534\n755 65534\ndeep")
    assert box.read("/workspace/top") == bytes(range(256))


def test_out(box):
    exited(
        box.
        sh("mkdir -p d/e; printf one > d/one; printf two > d/e/two; chmod 700 d/e/two; ln -s ../one d/e/l; mkfifo d/p; head -c 3000000 /dev/urandom > d/big"
           ))
    data = box.pack("/workspace/d")
    found = members(data)
    assert set(found) == {"one", "e", "e/two", "e/l", "big"}  # a FIFO is no content
    assert found["e"].isdir() and found["e/l"].issym(
    ) and found["e/l"].linkname == "../one" and found["e/two"].mode & 0o777 == 0o700
    with tarfile.open(fileobj=io.BytesIO(data)) as t:
        assert t.extractfile(next(m for m in t if m.name.endswith("big"))).read() == box.read("/workspace/d/big")
    assert len(data) % BLOCK == 0


def test_out_and_in_again(boxes):
    a, b = boxes(), boxes()
    exited(
        a.
        sh("mkdir -p 'ü/b c'; echo x > 'ü/b c/f'; ln -s f 'ü/b c/l'; touch -d @1000000000 'ü/b c/f'; python3 -c \"open('ü/' + 'n' * 200, 'w').write('long')\""
           ))
    unpacked(b, a.pack("/workspace"))
    script = "cd /workspace; find . | LC_ALL=C sort; stat -c '%a %Y' 'ü/b c/f'; cat 'ü/b c/l'"
    assert exited(a.sh(script)).out == exited(b.sh(script)).out


def test_empty_and_missing(box):
    assert members(box.pack("/tmp")) == {}
    unpacked(box, tar())
    box.problem(404, "NOT_FOUND", "GET", "/archive", query={"path": "/workspace/nosuch"})
    r = box.unpack("/workspace/nosuch", tar(("f", b"x")))
    assert r.status in (204, 404), r
    box.put("/workspace/f", b"x")
    box.problem(409, "CONFLICT", "PUT", "/archive", query={"path": "/workspace/f"}, body=tar(("g", b"x")),
                headers={"Content-Type": "application/x-tar"})


@pytest.mark.parametrize(
    "data", [
        tar(("../../etc/x", b"evil")),
        tar(("a/../../x", b"evil")),
        tar(("/abs", b"evil")),
        tar(("/workspace/abs", b"evil")),
        tar(("..", b"evil")),
        tar(("a/..", b"evil")),
        tar(member("dev", tarfile.CHRTYPE, devmajor=1, devminor=3)),
        tar(member("blk", tarfile.BLKTYPE, devmajor=8)),
        tar(member("p", tarfile.FIFOTYPE)),
        tar(("f", b"x"), member("h", tarfile.LNKTYPE, "f")),
        tar(member("h", tarfile.LNKTYPE, "/etc/shadow")),
        tar(member("h", tarfile.LNKTYPE, "../../etc/shadow")),
        tar(("x" * 5000, b"")),
        tar(("a/" * 300 + "f", b"")),
        tar(("", b"x")),
    ], ids=[
        "up", "inner-up", "absolute", "absolute-own", "dotdot", "ends-up", "char", "block", "fifo", "hardlink", "hardlink-abs",
        "hardlink-up", "long", "deep", "nameless"
    ])
def test_FS_31_hostile_members(box, data):
    r = box.unpack("/workspace", data)
    if r.status == 204:  # harmless names may be made; then all of it is below the folder
        assert box.request("GET", "/files/stat", query={"path": "/x"}).status == 404
        pytest.fail(f"accepted: {box.names('/workspace')}")
    assert (r.status, r.json["code"]) == (400, "INVALID_REQUEST"), r
    assert exited(box.sh("ls -A /tmp")).out == b"" and not os.path.exists("/etc/x")
    exited(box.exec(["true"]))


@pytest.mark.parametrize("target", ["/tmp", "../tmp", "/etc", "/", "/proc/self/root", "."])
def test_FS_31_a_link_is_never_walked_through(box, target):
    """a -> somewhere, then a/x: refused, or written into a real folder; never behind the link."""
    r = box.unpack("/workspace", tar(member("a", tarfile.SYMTYPE, target), ("a/x", b"evil")))
    assert r.status == 204 or (r.status, r.json["code"]) == (400, "INVALID_REQUEST"), r
    assert exited(box.sh("ls -A /tmp; ls /etc/x /x /workspace/x 2>/dev/null; true")).out == b""


def test_FS_31_a_link_that_is_there_already(box):
    exited(box.sh("ln -s /tmp /workspace/a"))
    r = box.unpack("/workspace", tar(("a/x", b"evil")))
    assert r.status == 204 or (r.status, r.json["code"]) == (400, "INVALID_REQUEST"), r
    assert exited(box.sh("ls -A /tmp")).out == b""


def test_FS_31_a_file_replaces_a_link_and_not_its_target(box):
    exited(box.sh("echo kept > /tmp/kept; ln -s /tmp/kept /workspace/f"))
    unpacked(box, tar(("f", b"new")))
    assert exited(box.sh("cat /tmp/kept; cat /workspace/f")).out == b"kept\nnew"


def test_FS_31_the_same_name_twice_is_the_last_one(box):
    unpacked(box, tar(("f", b"one"), ("f", b"two")))
    assert box.read("/workspace/f") == b"two"


def test_owners_and_special_bits_do_not_come_in(box):
    unpacked(
        box, tar(member("s", tarfile.REGTYPE, mode=0o6755, uid=0, gid=0, uname="root"), member("d", tarfile.DIRTYPE,
                                                                                               mode=0o3777)))
    assert exited(box.sh("stat -c '%a %u:%g' /workspace/s")).out == b"755 65534:65534\n"
    assert box.stat("/workspace/d")["uid"] == 65534


def header(name=b"f", size=b"00000000010\0", kind=b"0", **more):
    """A raw ustar header; checksum filled in."""
    h = bytearray(512)
    h[0:len(name)] = name
    h[100:108], h[108:116], h[116:124] = b"0000644\0", b"0000000\0", b"0000000\0"
    h[124:136], h[136:148] = size, b"00000000000\0"
    h[156:157], h[257:265] = kind, b"ustar\x0000"
    h[148:156] = b" " * 8
    h[148:156] = b"%06o\0 " % sum(h)
    return bytes(h)


def test_the_hand_made_header_is_good(box):
    unpacked(box, header() + b"12345678".ljust(BLOCK, b"\0") + bytes(2 * BLOCK))
    assert box.read("/workspace/f") == b"12345678"


@pytest.mark.parametrize(
    "data", [
        header()[:300],
        header(),
        header() + b"1234", b"\0" * 100,
        os.urandom(4096), b"PK\x03\x04" + bytes(508), b"\x1f\x8b" + bytes(510),
        header(size=b"\xff" * 12),
        header(size=b"\x80" + b"\x7f" + b"\xff" * 10),
        header(size=b"-0000000010\0"),
        header(size=b"zzzzzzzzzzz\0"),
        header(kind=b"L", size=b"77777777777\0"),
        header(kind=b"x", size=b"77777777777\0"),
        header(kind=b"S") + bytes(BLOCK),
        header(kind=b"V") + bytes(BLOCK),
        header().replace(b"ustar", b"ustaR") + bytes(BLOCK * 3),
        tar(("f", b"x"))[:2 * BLOCK],
        tar(("f", b"x")) + b"x",
        header(b"f/", size=b"00000000000\0") + bytes(2 * BLOCK),
    ], ids=[
        "half-header", "no-data", "half-data", "short", "random", "zip", "gzip", "negative", "exabytes", "minus", "letters",
        "long-name", "pax-8g", "sparse", "volume", "checksum",
        "no-end", "more-behind", "file-as-folder"
    ])
def test_FS_33_broken_archives(box, data):
    refused(box, data)
    assert box.stat("/workspace")["type"] == "directory"
    exited(box.exec(["true"]))


def test_FS_33_pax_header_that_lies(box):
    def pax(**fields):
        body = b"".join(b"%d %s\n" % (len(k) + len(v) + 3 +
                                      (2 if len(k) + len(v) + 5 < 100 else 3) - 0, k.encode() + b"=" + v.encode())
                        for k, v in fields.items())
        return header(b"pax", b"%011o\0" % len(body), b"x") + body.ljust(-(-len(body) // BLOCK) * BLOCK, b"\0")

    for fields in ({"path": "../evil"}, {"path": "/abs"}, {"size": "-1"}, {"size": "99999999999999999999"}, {"linkpath": "x"}):
        r = box.unpack("/workspace", pax(**fields) + header(size=b"00000000000\0") + bytes(2 * BLOCK))
        assert r.status in (204, 400), r
    assert exited(box.sh("ls -A /tmp; ls /abs /evil 2>/dev/null; true")).out == b""


def test_FS_33_bombs_end_at_a_limit(boxes):
    """A sparse-looking 2 GB member and very many entries: a typed error or all of it in bounds, soon, and others are served."""
    box = boxes(tmpfs=["/small:size=4m,inodes=1000"])
    began = time.monotonic()
    r = box.unpack("/small", tar(("big", bytes(16 << 20))), timeout=60)
    assert r.status in (400, 409, 413) and r.json["code"] in ("SANDBOX_DISK_FULL", "TOO_LARGE", "CONFLICT", "INVALID_REQUEST"), r
    r = box.unpack("/small", tar(*[(f"f{i}", b"") for i in range(3000)]), timeout=60)
    assert r.status in (400, 409, 413), r
    assert time.monotonic() - began < 30
    exited(box.exec(["true"]))


def test_FS_32_a_hostile_tree_comes_out_as_data(box):
    """What is packed outside has only plain members whatever the sandbox built (FS-32, FS-34)."""
    exited(
        box.sh("mkdir d; cd d; ln -s /etc/shadow s; ln -s ../../../.. up; mkfifo p; touch a; ln a b; chmod 4755 a; "
               "python3 -c 'import os; open(b\"x\\xff\", \"w\"); open(\"n\\nl\", \"w\")'"))
    with tarfile.open(fileobj=io.BytesIO(box.pack("/workspace/d"))) as t:
        for m in t.getmembers():
            assert m.isreg() or m.isdir() or m.issym(), (m.name, m.type)
            assert not m.name.startswith("/") and ".." not in m.name.split("/")
            assert not m.islnk() and m.mode & 0o6000 == 0 or m.isdir()


@pytest.mark.parametrize("path", ["/proc", "/dev"])
def test_kernel_folders_are_refused(box, path):
    box.problem(403, "FORBIDDEN", "GET", "/archive", query={"path": path})
    box.problem(403, "FORBIDDEN", "PUT", "/archive", query={"path": path}, body=tar(("f", b"")),
                headers={"Content-Type": "application/x-tar"})


def test_an_archive_larger_than_memory_limits_of_the_service(boxes):
    box = boxes(memory="512m", tmpfs=["/big:size=150m"])
    piece = os.urandom(1 << 20)
    data = tar(("big", piece * 100))
    unpacked(box, data, "/big")
    assert exited(box.exec(["stat", "-c", "%s", "/big/big"])).out == b"%d\n" % (100 << 20)
    assert len(box.pack("/big")) >= 100 << 20
