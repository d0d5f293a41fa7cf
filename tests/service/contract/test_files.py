# SPDX-License-Identifier: Apache-2.0
"""The file API: what goes in comes out, and nothing that a sandbox or a caller can think of leaves the sandbox.

The attacks are FS-24 to FS-35 of the security basis. A canary lies on the host where only root reads it; its token may
appear in no answer.
"""
import hashlib
import os
import secrets
import stat
import time

import pytest
from contract import at_once, exited, stamp, until

# ----------------------------------------------------------------------------------------------------- round trip


@pytest.mark.parametrize("data", [b"", b"text\n", bytes(range(256)) * 100, b"\xff\xfe\0"],
                         ids=["empty", "text", "binary", "invalid"])
def test_round_trip(box, data):
    box.put("/workspace/f", data)
    assert box.read("/workspace/f") == data
    assert exited(box.sh("sha256sum < /workspace/f")).out.split()[0].decode() == hashlib.sha256(data).hexdigest()
    box.put("/workspace/f", b"new")
    assert box.read("/workspace/f") == b"new"


def test_a_hundred_megabytes(boxes):
    box = boxes(memory="512m", tmpfs=["/big:size=200m"])
    data = os.urandom(1 << 20) * 100
    began = time.monotonic()
    box.put("/big/f", data)
    back = box.read("/big/f")
    assert time.monotonic() - began < 20
    assert hashlib.sha256(back).digest() == hashlib.sha256(data).digest()


def test_names_of_all_kinds(box):
    for name in ("a b", "ü", "%41", "a+b", "a&b=c", "?", "#", "-rf", "a\nb", "\U0001f514", "x" * 255, "..."):
        box.put(f"/workspace/{name}", name.encode())
        assert box.read(f"/workspace/{name}") == name.encode()


def test_a_name_that_is_no_text(box):
    exited(box.python("import os; os.mkdir(b'/workspace/d'); open(b'/workspace/d/a\\xff', 'w').close()"))
    entries = box.list("/workspace/d")
    assert len(entries) == 1 and entries[0]["name_base64"] == "Yf8=" and entries[0]["name"] is None


@pytest.mark.parametrize("header, first, last", [("bytes=0-0", 0, 0), ("bytes=10-19", 10, 19), ("bytes=90-", 90, 99),
                                                 ("bytes=90-200", 90, 99), ("bytes=-7", 93, 99), ("bytes=-200", 0, 99)])
def test_range(box, header, first, last):
    data = bytes(range(100))
    box.put("/workspace/f", data)
    r = box.expect(206, "GET", "/files", query={"path": "/workspace/f"}, headers={"Range": header})
    assert r.body == data[first:last + 1] and r.headers["Content-Range"] == f"bytes {first}-{last}/100"


@pytest.mark.parametrize("header", ["bytes=100-", "bytes=100-200", "bytes=-0"])
def test_range_beyond_the_end(box, header):
    box.put("/workspace/f", bytes(100))
    box.problem(416, "RANGE_NOT_SATISFIABLE", "GET", "/files", query={"path": "/workspace/f"}, headers={"Range": header})


@pytest.mark.parametrize("header",
                         ["bytes=5-1", "bytes=a-b", "bytes=", "lines=1-2", "bytes=0-1,5-6", "bytes=99999999999999999999-"])
def test_a_range_that_is_none(box, header):
    """RFC 9110: ignored or refused, never a part that was not asked for."""
    box.put("/workspace/f", bytes(range(100)))
    r = box.request("GET", "/files", query={"path": "/workspace/f"}, headers={"Range": header})
    assert (r.status == 200 and r.body == bytes(range(100))) or (r.status, r.json["code"]) in ((400, "INVALID_REQUEST"),
                                                                                               (416, "RANGE_NOT_SATISFIABLE")), r


def test_append(box):
    box.put("/workspace/log", b"one\n", append=True)
    box.put("/workspace/log", b"two\n", append=True)
    assert box.read("/workspace/log") == b"one\ntwo\n"


def test_exclusive(box):
    box.put("/workspace/f", b"first", exclusive=True)
    box.problem(409, "CONFLICT", "PUT", "/files", query={"path": "/workspace/f", "exclusive": True}, body=b"second")
    assert box.read("/workspace/f") == b"first"


def test_exclusive_at_the_same_time_has_one_winner(box):
    answers = at_once(
        lambda i: box.request("PUT", "/files", query={"path": "/workspace/f", "exclusive": True}, body=str(i).encode()), range(8))
    winners = [i for i, a in enumerate(answers) if a.status in (201, 204)]
    assert len(winners) == 1 and box.read("/workspace/f") == str(winners[0]).encode()
    assert sorted(a.status for a in answers)[1:] == [409] * 7


def test_parents(box):
    box.problem(404, "NOT_FOUND", "PUT", "/files", query={"path": "/workspace/a/b/c"}, body=b"x")
    box.put("/workspace/a/b/c", b"x", parents=True)
    assert box.read("/workspace/a/b/c") == b"x"
    assert exited(box.sh("stat -c '%a %u' /workspace/a/b")).out == b"755 65534\n"


@pytest.mark.parametrize("given, mode", [(None, "644"), ("0600", "600"), ("755", "755"), ("0777", "777")])
def test_mode(box, given, mode):
    box.put("/workspace/f", b"x", mode=given)
    assert exited(box.sh("stat -c '%a %u:%g' /workspace/f")).out == f"{mode} 65534:65534\n".encode()


@pytest.mark.parametrize("mode", ["4755", "1777", "07777", "0o644", "rw", "-1", "", "99"])
def test_no_such_mode(box, mode):
    box.problem(400, "INVALID_REQUEST", "PUT", f"/files?path=/workspace/f&mode={mode}", body=b"x")
    box.problem(404, "NOT_FOUND", "GET", "/files/stat", query={"path": "/workspace/f"})


def test_a_replaced_file_is_never_half_of_it(box):
    """Readers see the old or the new content, whole."""
    old, new = b"o" * 300000, b"n" * 300000
    box.put("/workspace/f", old)
    p = box.start(
        language="python",
        code="import time\nend = time.time() + 1.5\nwhile time.time() < end:\n d = open('/workspace/f','rb').read()\n"
        " assert len(d) == 300000 and len(set(d)) == 1, len(d)")
    while p.object()["running"]:
        box.put("/workspace/f", new)
        box.put("/workspace/f", old)
    assert p.object()["exit_code"] == 0


def test_an_upload_that_is_cut_changes_nothing(box):
    box.put("/workspace/f", b"old")
    with box.client.socket() as s:
        s.sendall(
            f"PUT {box.path}/files?path=/workspace/f HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/octet-stream\r\n"
            "Content-Length: 1000\r\n\r\nhalf".encode())
        time.sleep(0.1)
    assert box.read("/workspace/f") == b"old"
    until(lambda: box.names("/workspace") == ["f"], what="the removal of what had come")


def test_chunked_upload(box):
    with box.client.socket() as s:
        s.sendall(
            f"PUT {box.path}/files?path=/workspace/f HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/octet-stream\r\n"
            "Transfer-Encoding: chunked\r\n\r\n".encode())
        for piece in (b"one ", b"two"):
            s.sendall(b"%x\r\n%s\r\n" % (len(piece), piece))
        s.sendall(b"0\r\n\r\n")
        assert s.recv(4096).startswith((b"HTTP/1.1 201 ", b"HTTP/1.1 204 "))
    assert box.read("/workspace/f") == b"one two"


# ------------------------------------------------------------------------------------------- stat, list, change


def test_stat(box):
    exited(
        box.
        sh("cd /workspace; printf 12345 > f; chmod 640 f; touch -d @1000000000 f; mkdir d; ln -s f l; ln -s nowhere dangling; mkfifo p"
           ))
    o = box.stat("/workspace/f")
    assert (o["path"], o["type"], o["size"], int(o["mode"], 8) & 0o7777, o["uid"], o["gid"]) == ("/workspace/f", "file", 5, 0o640,
                                                                                                 65534, 65534)
    assert stamp(o["modified_at"]) == 1000000000 and not o["target"]
    assert box.stat("/workspace/d")["type"] == "directory" and box.stat("/workspace/p")["type"] == "other"
    for name, target in (("l", "f"), ("dangling", "nowhere")):
        o = box.stat(f"/workspace/{name}")
        assert (o["type"], o["target"]) == ("symlink", target)
    box.problem(404, "NOT_FOUND", "GET", "/files/stat", query={"path": "/workspace/nosuch"})
    box.problem(409, "CONFLICT", "GET", "/files/stat", query={"path": "/workspace/f/below"})


def test_list(box):
    exited(box.sh("cd /workspace; touch b a .c; mkdir d; ln -s a l"))
    entries = {e["name"]: e["type"] for e in box.list("/workspace")}
    assert entries == {"a": "file", "b": "file", ".c": "file", "d": "directory", "l": "symlink"}
    box.problem(409, "CONFLICT", "GET", "/files/list", query={"path": "/workspace/a"})
    box.problem(404, "NOT_FOUND", "GET", "/files/list", query={"path": "/workspace/nosuch"})


def test_a_folder_with_many_names_says_when_it_is_cut(box):
    exited(box.python("import os\nos.mkdir('/workspace/d')\nfor i in range(12000): os.mknod(f'/workspace/d/{i:05}')"))
    r = box.expect(200, "GET", "/files/list", query={"path": "/workspace/d"}).json
    assert r["truncated"] == (len(r["entries"]) < 12000) and len(r["entries"]) >= 1000
    assert len({e["name"] for e in r["entries"]}) == len(r["entries"])


def test_mkdir_move_remove(box):
    box.mkdir("/workspace/d")
    box.problem(409, "CONFLICT", "POST", "/files/mkdir", json={"path": "/workspace/d"})
    box.problem(404, "NOT_FOUND", "POST", "/files/mkdir", json={"path": "/workspace/x/y"})
    box.mkdir("/workspace/x/y", parents=True, mode="0700")
    assert int(box.stat("/workspace/x/y")["mode"], 8) & 0o777 == 0o700
    box.put("/workspace/d/f", b"moved")
    box.move("/workspace/d/f", "/workspace/x/g")
    assert box.read("/workspace/x/g") == b"moved" and box.names("/workspace/d") == []
    box.put("/workspace/h", b"other")
    box.problem(409, "CONFLICT", "POST", "/files/move", json={"from": "/workspace/h", "to": "/workspace/x/g"})
    assert box.read("/workspace/x/g") == b"moved"
    box.move("/workspace/h", "/workspace/x/g", replace=True)
    assert box.read("/workspace/x/g") == b"other"
    box.problem(404, "NOT_FOUND", "POST", "/files/move", json={"from": "/workspace/h", "to": "/workspace/i"})
    box.problem(409, "CONFLICT", "DELETE", "/files", query={"path": "/workspace/x"})
    box.remove("/workspace/x", recursive=True)
    box.remove("/workspace/d")
    assert box.names("/workspace") == []
    box.problem(404, "NOT_FOUND", "DELETE", "/files", query={"path": "/workspace/x"})


def test_remove_takes_the_link_and_not_what_it_names(box):
    exited(
        box.sh(
            "mkdir /tmp/kept; touch /tmp/kept/f; ln -s /tmp/kept /workspace/l; mkdir /workspace/d; ln -s /tmp/kept /workspace/d/l"
        ))
    box.remove("/workspace/l")
    box.remove("/workspace/d", recursive=True)
    assert box.names("/tmp/kept") == ["f"]


def test_links_are_followed_inside(box):
    exited(box.sh("echo inner > /tmp/real; ln -s /tmp/real /workspace/l; mkdir /tmp/d; ln -s ../tmp/d /workspace/dl"))
    assert box.read("/workspace/l") == b"inner\n"
    box.put("/workspace/dl/f", b"through")
    assert box.read("/tmp/d/f") == b"through"


def test_full_disk_is_an_error_and_keeps_the_old(boxes):
    box = boxes(tmpfs=["/small:size=1m"])
    box.put("/small/f", b"old")
    problem = box.problem(409, "CONFLICT", "PUT", "/files", query={"path": "/small/f"}, body=b"x" * 3_000_000)
    assert "full" in problem["detail"]
    assert box.read("/small/f") == b"old" and box.names("/small") == ["f"]


def test_watch(box):
    box.mkdir("/workspace/d")
    with box.watch("/workspace/d") as s:
        events = s.events()
        exited(box.sh("cd /workspace/d; echo x > f; chmod 600 f; mv f g; rm g"))
        seen = []
        for e in events:
            if e:
                seen.append((e["type"], e.get("name")))
            if ("remove", "g") in seen:
                break
    assert seen[0] == ("create", "f") and ("modify", "f") in seen and ("attributes", "f") in seen
    assert any(kind == "rename" for kind, _ in seen)
    box.problem(404, "NOT_FOUND", "GET", "/files/watch", query={"path": "/workspace/nosuch"})


def test_what_may_not_be_read_by_the_sandbox_is_forbidden(box):
    exited(box.sh("touch /workspace/f; chmod 000 /workspace/f; mkdir /workspace/d; chmod 000 /workspace/d"))
    box.problem(403, "FORBIDDEN", "GET", "/files", query={"path": "/workspace/f"})
    box.problem(403, "FORBIDDEN", "GET", "/files/list", query={"path": "/workspace/d"})
    for path in ("/usr/bin/env", "/etc/passwd", "/new"):
        box.problem(403, "FORBIDDEN", "PUT", "/files", query={"path": path}, body=b"x")


@pytest.mark.parametrize("path, status, code", [("/workspace", 409, "CONFLICT"), ("/", 409, "CONFLICT"),
                                                ("/workspace/p", 400, "INVALID_REQUEST"),
                                                ("/workspace/s", 400, "INVALID_REQUEST")])
def test_only_regular_files_are_read(box, path, status, code):
    exited(box.sh("cd /workspace; mkfifo p; python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"s\")'"))
    began = time.monotonic()
    box.problem(status, code, "GET", "/files", query={"path": path})
    assert time.monotonic() - began < 10


# --------------------------------------------------------------------------------------------------- the attacks


@pytest.fixture(scope="module")
def canary(tmp_path_factory):
    """(path on the host, token): root alone may read it."""
    folder = tmp_path_factory.mktemp("canary")
    token = secrets.token_hex(16).encode()
    path = folder / "CANARY"
    path.write_bytes(token)
    path.chmod(0o600)
    before = path.stat()
    yield str(path), token
    after = path.stat()
    assert path.read_bytes() == token and (after.st_uid, after.st_mode) == (before.st_uid, before.st_mode)


def never(answer, token):
    assert token not in answer.body, answer
    return answer


def test_fs24_a_link_to_the_host_names_nothing(box, canary):
    path, token = canary
    exited(box.sh(f"ln -s {path} /workspace/out; ln -s ../../../../../../..{path} /workspace/up; ln -s / /workspace/root"))
    for p in ("/workspace/out", "/workspace/up", f"/workspace/root{path}"):
        never(box.request("GET", "/files", query={"path": p}), token)
        box.problem(404, "NOT_FOUND", "GET", "/files", query={"path": p})


def test_fs25_writing_through_a_link(box, canary):
    path, token = canary
    exited(box.sh(f"ln -s {path} /workspace/in; ln -s {os.path.dirname(path)} /workspace/d; ln -s /etc/cron.d /workspace/cron"))
    for p in ("/workspace/d/new", "/workspace/cron/new"):
        r = box.request("PUT", "/files", query={"path": p}, body=b"x")
        assert r.status in (403, 404), r
    box.request("PUT", "/files", query={"path": "/workspace/in"}, body=b"x")
    assert open(path, "rb").read() == token and os.listdir(os.path.dirname(path)) == ["CANARY"]
    assert not os.path.exists("/etc/cron.d/new")


def test_fs26_a_path_that_changes_while_it_is_read(box, canary):
    path, token = canary
    box.put("/workspace/innocent", b"innocent")
    exited(box.sh(f"ln -s {path} /workspace/evil; cp innocent f"))
    p = box.start(
        language="python",
        code="import os\nwhile True:\n os.symlink('/workspace/evil', '/workspace/t'); os.rename('/workspace/t', '/workspace/f')\n"
        " open('/workspace/t', 'w').write('innocent'); os.rename('/workspace/t', '/workspace/f')")
    seen = set()
    connection = box.client.connection()
    for _ in range(1500):
        connection.request("GET", f"{box.path}/files?path=/workspace/f")
        r = connection.getresponse()
        body = r.read()
        assert token not in body
        assert r.status in (200, 400, 403, 404), body
        seen.add(r.status)
    connection.close()
    assert p.object()["running"] and len(seen) > 1, seen  # both kinds were met


def test_fs27_hard_links(box):
    r = exited(box.sh("ln /etc/passwd /workspace/p 2>&1; ln /usr/bin/env /workspace/e 2>&1; ls /workspace"))
    assert r.out.count(b"failed") == 2 and r.out.count(b"\n") == 2
    exited(box.sh("echo own > /workspace/a; ln /workspace/a /workspace/b"))
    assert box.read("/workspace/b") == b"own\n"  # of its own files there is nothing to steal


@pytest.mark.parametrize("path", ["/proc", "/proc/self/environ", "/proc/self/status", "/proc/meminfo", "/dev", "/dev/zero", "/dev/null"])
def test_fs29_kernel_folders_are_refused(box, path):
    box.problem(403, "FORBIDDEN", "GET", "/files/stat", query={"path": path})
    for method, end, more in (("GET", "/files", {}), ("PUT", "/files", {"body": b"x"}), ("DELETE", "/files", {}), ("GET", "/files/list", {}),
                              ("GET", "/archive", {}), ("GET", "/files/watch", {"timeout": 5})):
        r = box.request(method, end, query={"path": path}, **more)
        assert (r.status, r.json["code"]) in ((403, "FORBIDDEN"), (409, "CONFLICT"), (404, "NOT_FOUND")), r


@pytest.mark.parametrize("path", ["/proc/1/root/etc/passwd", "/proc/1/environ", "/proc/self/exe", "/proc/self/cwd/f", "/proc/self/fd/0", "/dev/fd/3",
                                  "/dev/stdin", "/sys", "/sys/kernel"])
def test_fs29_magic_links_and_what_is_not_there(box, path):
    """Refused or not there; never a byte, and nothing is waited for."""
    for method, end, more in (("GET", "/files", {}), ("PUT", "/files", {"body": b"x"}), ("GET", "/files/list", {}), ("GET", "/archive", {})):
        r = box.request(method, end, query={"path": path}, timeout=5, **more)
        assert (r.status, r.json["code"]) in ((400, "INVALID_REQUEST"), (403, "FORBIDDEN"), (404, "NOT_FOUND"), (409, "CONFLICT")), r


@pytest.mark.parametrize("target", ["/proc/1/environ", "/proc/self/root", "/proc/self/fd/0", "/dev/zero", "../proc/self/maps"])
def test_fs29_through_a_link_too(box, target):
    exited(box.exec(["ln", "-s", target, "/workspace/l"]))
    for p in ("/workspace/l", "/workspace/l/x"):
        r = box.request("GET", "/files", query={"path": p}, timeout=5)
        assert (r.status, r.json["code"]) in ((403, "FORBIDDEN"), (404, "NOT_FOUND"), (400, "INVALID_REQUEST")), r


@pytest.mark.parametrize("path",
                         ["", "workspace/f", "../x", "\\workspace\\f", "C:\\x", "/" + "x" * 5000, "/" + "a/" * 2500 + "f"],
                         ids=lambda p: p[:30] or "empty")
def test_fs30_paths_that_are_none(box, path):
    for method, end, more in (("GET", "/files", {}), ("PUT", "/files", {"body": b"x"}), ("GET", "/files/stat", {}),
                              ("GET", "/files/list", {}), ("DELETE", "/files", {}), ("GET", "/archive",
                                                                                     {}), ("GET", "/files/watch", {})):
        box.problem(400, "INVALID_REQUEST", method, end, query={"path": path}, **more)
    box.problem(400, "INVALID_REQUEST", "POST", "/files/mkdir", json={"path": path})
    box.problem(400, "INVALID_REQUEST", "POST", "/files/move", json={"from": path, "to": "/workspace/x"})


@pytest.mark.parametrize("path", [
    "/workspace/../..{canary}", "/..{canary}", "/workspace/../../../../../..{canary}", "/./..{canary}",
    "/workspace/./../tmp/../..{canary}"
])
def test_fs30_dots_stay_inside(box, canary, path):
    """Refused, or looked up inside, where there is no such file."""
    where, token = canary
    path = path.format(canary=where)
    for method, end in (("GET", "/files"), ("GET", "/files/stat"), ("GET", "/files/list"), ("GET", "/archive"), ("DELETE",
                                                                                                                 "/files")):
        r = never(box.request(method, end, query={"path": path}), token)
        assert (r.status, r.json["code"]) in ((400, "INVALID_REQUEST"), (404, "NOT_FOUND")), r
    assert box.request("PUT", "/files", query={"path": path, "parents": True}, body=b"x").status in (204, 400, 403, 404)
    assert open(where, "rb").read() == token  # a file of that name may be inside now


@pytest.mark.parametrize("raw", [
    "/workspace/%00", "/workspace/f%00.txt", "/workspace/%", "/workspace/%zz",
    "/workspace/f%0"
])
def test_fs30_as_it_comes_over_the_wire(box, raw):
    box.problem(400, "INVALID_REQUEST", "GET", f"/files?path={raw}")


def test_fs30_slashes_and_ends(box):
    box.put("/workspace/f", b"x")
    for path in ("//workspace//f", "/workspace/f/"):
        r = box.request("GET", "/files", query={"path": path})
        assert r.status in (200, 400, 404, 409), r
    box.problem(400, "INVALID_REQUEST", "GET", "/files")
    box.problem(400, "INVALID_REQUEST", "GET", "/files?path=/workspace/f&path=/etc/passwd")
    box.problem(400, "INVALID_REQUEST", "GET", "/files?path=/workspace/f&nosuch")


def test_fs35_a_folder_swapped_for_a_link_while_it_is_removed(box, canary):
    path, token = canary
    exited(box.sh(f"ln -s {os.path.dirname(path)} /workspace/evil; mkdir -p /tmp/keep; touch /tmp/keep/f"))
    p = box.start(
        language="python", code=
        "import os\nwhile True:\n for t in ('/tmp/keep', '/workspace/evil'):\n  try:\n   os.makedirs('/workspace/d/sub', exist_ok=True)\n"
        "   os.symlink(t, '/workspace/t'); os.rename('/workspace/d', '/workspace/o%d' % os.getpid()); os.rename('/workspace/t', '/workspace/d')\n"
        "   os.unlink('/workspace/d')\n   os.system('rm -rf /workspace/o*')\n  except OSError: pass")
    for _ in range(100):
        r = box.request("DELETE", "/files", query={"path": "/workspace/d", "recursive": True})
        assert r.status in (204, 404, 409, 400, 403), r
    p.delete()
    assert box.names("/tmp/keep") == ["f"] and stat.S_IMODE(os.stat(path).st_mode) == 0o600


def test_a_link_loop_and_a_deep_tree_end(box):
    exited(
        box.python(
            "import os\nos.symlink('b', '/workspace/a'); os.symlink('a', '/workspace/b')\nos.chdir('/workspace')\n"
            "for i in range(600): os.mkdir('d'); os.chdir('d')", timeout=20))
    r = box.request("GET", "/files", query={"path": "/workspace/a"})
    assert (r.status, r.json["code"]) in ((400, "INVALID_REQUEST"), (403, "FORBIDDEN"), (404, "NOT_FOUND")), r
    box.remove("/workspace/d", recursive=True)
