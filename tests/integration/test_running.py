# SPDX-License-Identifier: Apache-2.0
"""Running code: streams, languages, files in and out, volumes, options."""
import base64
import hashlib
import json
import os
import select
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import cloche
import pytest
import shape
from shape import py, sh

pytestmark = pytest.mark.needs("native", "python")

LONG = ["--timeout", "30s", "--cpus", "2"]


# ---------------------------------------------------------------------------------------------------------------- stdin


@pytest.mark.parametrize("size", [0, 1, 65536, 131072, 8 << 20])
def test_stdin_passes_through(size):
    data = os.urandom(size)
    r = cloche.run(["run", *LONG, "--", "sh", "-c", "sha256sum; cat | wc -c"], stdin=data)
    shape.exited(r, 0)
    assert r.out == f"{hashlib.sha256(data).hexdigest()}  -\n0\n".encode()


def test_stdin_comes_back_byte_exact():
    data = os.urandom(8 << 20)
    r = cloche.run(["run", *LONG, "--max-output", "unlimited", "cat"], stdin=data, json=False)
    assert (r.returncode, r.stderr) == (0, b"") and r.stdout == data


def test_stdin_nobody_reads():
    """The caller's writer is not killed, and we neither (RIVALS 10)."""
    r = cloche.run(["run", "true"], stdin=bytes(1 << 20))
    shape.exited(r, 0)


def test_stdin_of_a_child_that_talks_first():
    r = sh("head -c 131072 /dev/zero; cat >/dev/null", "--max-output", "1m", stdin=bytes(131072))
    shape.exited(r, 0)
    assert r.output["stdout"]["bytes"] == 131072


def test_stdin_that_never_ends():
    """Answered at once, though the caller keeps it open."""
    p = cloche.start(["run", "--json", "echo", "hi"])
    try:
        assert select.select([p.stdout], [], [], 10)[0]
        r = json.loads(p.stdout.readline())
        assert (p.wait(10), r["stdout"]) == (0, "hi\n")
    finally:
        p.communicate()


def test_stdin_line_by_line():
    p = cloche.start(["run", *LONG, "cat"])
    for line in (b"one\n", b"two\n"):
        p.stdin.write(line)
        p.stdin.flush()
        assert p.stdout.readline() == line
    p.communicate(timeout=20)
    assert p.returncode == 0


def test_no_stdin():
    r = cloche.run(["run", "cat"], stdin=None)
    shape.exited(r, 0)
    assert r.out == b""


# --------------------------------------------------------------------------------------------------------------- output


BYTES = "import sys; sys.stdout.buffer.write(bytes(range(256))); sys.stderr.buffer.write(bytes(range(255, -1, -1)))"


@pytest.mark.parametrize("as_json", [True, False])
def test_both_streams_are_byte_exact(as_json):
    r = py(BYTES, json=as_json)
    assert r.returncode == 0
    assert (r.out, r.err) == (bytes(range(256)), bytes(range(255, -1, -1)))
    if as_json:
        assert r.encoding == "base64" and r.output["stdout"] == {"bytes": 256, "kept": 256, "dropped": 0}


def test_base64_for_both_if_either_is_not_utf8():
    r = sh(r"echo ok; printf 'a\xff\xfeb\0' >&2")
    shape.exited(r, 0)
    assert r.encoding == "base64"
    assert base64.b64decode(r.json["stdout"]) == b"ok\n" and base64.b64decode(r.json["stderr"]) == b"a\xff\xfeb\0"


@pytest.mark.parametrize("data", [b"a\0b", "é€𝄞".encode(), b"\x1b[31m\r\n", b"\xef\xbb\xbf", b"\x7f"])
def test_utf8_stays_text(data):
    r = py(f"import sys; sys.stdout.buffer.write({data!r})")
    assert r.encoding == "utf-8" and r.out == data


@pytest.mark.parametrize("data", [b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"a\xe2\x82", b"\xfe", b"\x80"])
def test_what_only_looks_like_utf8_is_base64(data):
    r = py(f"import sys; sys.stdout.buffer.write({data!r})")
    assert r.encoding == "base64" and r.out == data


def test_character_in_two_writes():
    r = py(r"import os, time; os.write(1, b'\xe2'); time.sleep(.1); os.write(1, b'\x82\xac')")
    assert r.encoding == "utf-8" and r.out == "€".encode()


@pytest.mark.parametrize("cap, kept", [(6, 6), (7, 6), (8, 6), (9, 9)])
def test_cap_inside_a_character(cap, kept):
    """Cuts at the character's boundary and changes nothing else."""
    r = py("print('€' * 1000, end='')", "--max-output", cap)
    shape.exited(r, 0)
    assert r.encoding == "utf-8" and r.out == "€".encode() * (kept // 3)
    assert r.output["stdout"] == {"bytes": 3000, "kept": kept, "dropped": 3000 - kept}


def test_cap_inside_a_character_of_binary_output():
    r = py("import sys; sys.stdout.buffer.write(b'\\xff' + '€'.encode() * 10)", "--max-output", "6")
    assert r.encoding == "base64" and r.out == b"\xff\xe2\x82\xac\xe2\x82"


@pytest.mark.parametrize("n", [65535, 65536, 65537])
def test_cap_is_exact(n):
    r = sh(f"head -c {n} /dev/zero; head -c {n} /dev/zero >&2")
    shape.exited(r, 0)
    kept = min(n, 65536)
    assert r.output == {name: {"bytes": n, "kept": kept, "dropped": n - kept} for name in ("stdout", "stderr")}
    assert r.limits_hit == (["output"] if n > 65536 else [])


def test_pass_through_is_capped_too():
    r = sh("head -c 100000 /dev/zero; head -c 70000 /dev/zero >&2; exit 4", json=False)
    assert r.returncode == 4
    assert r.stdout == bytes(65536)
    assert r.stderr == bytes(65536) + b"cloche: stdout truncated: kept 65536 of 100000 bytes\n" \
                                      b"cloche: stderr truncated: kept 65536 of 70000 bytes\n"
    r = sh("head -c 100000 /dev/zero; exit 4", "--quiet", json=False)
    assert (r.returncode, len(r.stdout), r.stderr) == (4, 65536, b"")


def test_unlimited_output():
    r = sh("head -c 5000000 /dev/zero", *LONG, "--max-output", "unlimited", json=False)
    assert (r.returncode, r.stdout, r.stderr) == (0, bytes(5_000_000), b"")


def test_streams_are_drained_together():
    """Neither fills while the other is read."""
    code = "import os\nfor _ in range(200): os.write(2, b'e' * 5000); os.write(1, b'o' * 5000)"
    r = py(code, *LONG, "--max-output", "2m")
    shape.exited(r, 0)
    assert (r.out, r.err) == (b"o" * 1_000_000, b"e" * 1_000_000)


def test_no_output_is_no_output():
    r = cloche.run(["run", "true"])
    assert (r.out, r.err, r.encoding) == (b"", b"", "utf-8")


def test_grandchild_that_holds_the_pipe(no_leftovers):
    r = cloche.run(["run", *LONG, "sh", "-c", "sleep 300 & echo hi"])
    shape.exited(r, 0)
    assert r.out == b"hi\n" and r.seconds < 5


def test_grandchild_that_writes_on(no_leftovers):
    r = sh("(while :; do echo x; sleep .1; done) & exit 0", *LONG)
    shape.exited(r, 0)
    assert r.out in (b"", b"x\n") and r.seconds < 5


@pytest.mark.parametrize("holder", ["sleep 300 &", "yes >&2 &", ""])
def test_the_tail_is_not_lost(holder):
    """What was written before the end is there, whoever holds the pipe."""
    for n in (1, 60000):
        r = sh(f"{holder} head -c {n} /dev/zero; echo end", "--max-output", "1m")
        shape.exited(r, 0)
        assert len(r.out) == n + 4 and r.out.endswith(b"end\n")


def test_slow_reader_slows(must_work):
    """Back-pressure, not memory: the flood stops while nobody reads, and all of it arrives."""
    p = cloche.start(["run", *LONG, "--max-output", "unlimited", "head", "-c", "50000000", "/dev/zero"])
    shape.wait_for_process(p.pid, "head")
    time.sleep(0.5)
    rss = int(next(line for line in open(f"/proc/{p.pid}/status") if line.startswith("VmRSS")).split()[1])
    assert rss < 20_000, f"{rss} kB held for a reader that does not read"
    out, err = p.communicate(timeout=30)
    assert (p.returncode, len(out), err) == (0, 50_000_000, b"")


@pytest.mark.parametrize("script", ["exec yes", "echo ten bytes and more; exec sleep 300"], ids=["flood", "silent"])
def test_reader_that_goes_away(script, no_leftovers):
    """A closed pipe is a caller who went: cancelled, not a hang and not a success."""
    p = cloche.start(["run", *LONG, "bash", "-c", script])
    try:
        p.stdout.read(10)
        p.stdout.close()
        assert p.wait(5) == 130
    finally:
        p.terminate()
        p.wait()
        p.stdin.close()
        p.stderr.close()


def test_full_device_as_stdout():
    with open("/dev/full", "wb") as full:
        p = subprocess.run([cloche.binary(), "run", "--json", "echo", "hi"], stdin=subprocess.DEVNULL, stdout=full,
                           stderr=subprocess.PIPE, env=cloche.environment(), timeout=20)
    assert p.returncode == 125
    assert p.stderr == b"cloche: write the result to stdout: No space left on device\n"


# ------------------------------------------------------------------------------------------------------------ languages

SHOW = "import sys; print(sys.argv, len(sys.stdin.read()))"


def test_python_stdin():
    r = cloche.run(["python", "-", "a", "-b", "--", "c"], stdin=SHOW.replace("len(sys.stdin.read())", "0"))
    assert r.out == b"['-', 'a', '-b', '--', 'c'] 0\n", r


def test_python_stdin_is_the_default():
    assert cloche.run(["python"], stdin="print(6 * 7)").out == b"42\n"


def test_python_code():
    r = cloche.run(["python", "-c", SHOW, "a", "--json", "-c"], stdin="four")
    assert r.out == b"['-c', 'a', '--json', '-c'] 4\n", r


def test_python_file(tmp_path):
    (tmp_path / "my script.py").write_text(SHOW)
    r = cloche.run(["python", "my script.py", "a", "-"], stdin="four", cwd=tmp_path)
    assert r.out == b"['my script.py', 'a', '-'] 4\n", r
    r = cloche.run(["python", tmp_path / "my script.py"], stdin="")
    assert r.out == b"['my script.py'] 0\n", r  # of a path outside only the name goes in
    r = cloche.run(["python", "./my script.py"], stdin="", cwd=tmp_path)
    assert r.out in (b"['./my script.py'] 0\n", b"['my script.py'] 0\n"), r


@pytest.mark.parametrize("how, name", [("stdin", "<stdin>"), ("code", "<string>"), ("file", "fail.py")])
def test_python_tracebacks(how, name, tmp_path):
    code = "\n1 / 0\n"
    (tmp_path / "fail.py").write_text(code)
    r = {"stdin": lambda: cloche.run(["python", "-"], stdin=code), "code": lambda: cloche.run(["python", "-c", code]),
         "file": lambda: cloche.run(["python", "fail.py"], cwd=tmp_path)}[how]()
    shape.exited(r, 1)
    assert f'File "{name}", line 2, in <module>'.encode() in r.err or \
           f'File "/workspace/{name}", line 2, in <module>'.encode() in r.err
    assert str(tmp_path).encode() not in r.err and r.err.endswith(b"ZeroDivisionError: division by zero\n")


@pytest.mark.parametrize("code", ["print('$HOME `id` \"\\'')", "print(1);", "print('; rm -rf /')", "print('\\\\n%s%n')"])
def test_code_is_data(code):
    """No shell sees it."""
    bare = subprocess.run(["/usr/bin/python3", "-c", code], stdout=subprocess.PIPE).stdout
    assert py(code).out == bare
    assert cloche.python(code).out == bare


def test_bash():
    assert cloche.run(["bash", "-", "a", "b c"], stdin='echo "$0" $# "$2"').out == b"bash 2 b c\n"
    assert cloche.run(["bash", "-c", 'echo "$0" $# "$1"; cat', "zero", "one"], stdin="in").out == b"zero 1 one\nin"
    assert cloche.run(["bash", "-c", 'echo "$0" $#']).out == b"bash 0\n"


def test_bash_file(tmp_path):
    (tmp_path / "s.sh").write_text('echo "$0" "$1"; cat; exit 3')
    r = cloche.run(["bash", "s.sh", "x"], stdin="in", cwd=tmp_path)
    shape.exited(r, 3)
    assert r.out == b"s.sh x\nin"


@pytest.mark.needs("node")
def test_node(tmp_path):
    code = "console.log(process.argv.slice(2), require('fs').readFileSync(0).length)"
    options = ["--timeout", "20s", "--cpus", "2"]
    r = cloche.run(["node", *options, "-c", code, "a", "--b"], stdin="four")
    # node has no argv[1] for -e: the code's own arguments begin one earlier than for a file
    assert r.out == b"[ '--b' ] 4\n", r
    (tmp_path / "f.js").write_text(code)
    r = cloche.run(["node", *options, "f.js", "a", "--b"], stdin="four", cwd=tmp_path)
    assert r.out == b"[ 'a', '--b' ] 4\n", r
    r = cloche.run(["node", *options, "-"], stdin="console.log(6 * 7)")
    assert r.out == b"42\n", r


HINT = b"cloche: the script has Windows line ends (\\r\\n), which bash does not understand: convert it with dos2unix\n"


def test_crlf_hint(tmp_path):
    script = b"if true; then\r\n  echo hi\r\nfi\r\n"
    (tmp_path / "s.sh").write_bytes(script)
    for args in (["bash", "-c", script.decode()], ["bash", tmp_path / "s.sh"]):
        r = cloche.run(args, json=False)
        assert r.returncode == 2 and r.stderr.endswith(HINT), r
    r = cloche.run(["bash", "-c", "false"], json=False)
    assert (r.returncode, r.stderr) == (1, b"")
    r = cloche.run(["bash", "-c", "echo hi\r\ntrue\n"], json=False)
    assert (r.returncode, r.stdout, r.stderr) == (0, b"hi\r\n", b"")  # it worked: nothing to say


def test_crlf_goes_in_byte_exact(tmp_path):
    (tmp_path / "s.sh").write_bytes(b"wc -c <s.sh # \r\nexit 1\r\n")
    r = cloche.run(["bash", tmp_path / "s.sh"], json=False)
    assert r.stdout == b"24\n"


# ---------------------------------------------------------------------------------------------------------------- files


def test_in_file_and_destination(tmp_path):
    (tmp_path / "a.txt").write_text("A")
    (tmp_path / "x").write_text("#!/bin/sh\necho run\n")
    (tmp_path / "x").chmod(0o750)
    r = sh("cat a.txt sub/b.txt /tmp/c.txt; ./x; stat -c '%a %u %g' a.txt x; echo more >>a.txt && echo writable",
           "--in", tmp_path / "a.txt", "--in", f"{tmp_path}/a.txt:sub/b.txt",
           "--in", f"{tmp_path}/a.txt:/tmp/c.txt", "--in", tmp_path / "x")
    shape.exited(r, 0)
    mode = oct((tmp_path / "a.txt").stat().st_mode & 0o777)[2:]
    assert r.out == f"AAArun\n{mode} 65534 65534\n750 65534 65534\nwritable\n".encode()
    assert (tmp_path / "a.txt").read_text() == "A"


def test_in_folder_with_links(tmp_path):
    d = tmp_path / "d"
    (d / "e").mkdir(parents=True)
    (d / "e" / "f").write_text("F")
    (d / "abs").symlink_to("/etc/shadow")
    (d / "rel").symlink_to("e/f")
    (d / "loop").symlink_to(".")
    os.mkfifo(d / "fifo")
    (d / "empty").mkdir(mode=0o500)
    r = sh("cd d; ls -A; readlink abs rel loop; cat rel; cat abs 2>&1; test -e fifo || echo no fifo", "--in", d)
    shape.exited(r, 0)
    assert r.out.decode().splitlines() == ["abs", "e", "empty", "loop", "rel", "/etc/shadow", "e/f", ".",
                                           "Fcat: abs: No such file or directory", "no fifo"], r


def test_in_by_a_link(tmp_path):
    """What the caller names may be a link: its target goes in, under the name given."""
    (tmp_path / "real").write_text("R")
    (tmp_path / "link").symlink_to("real")
    r = sh("cat link; test -L link || echo file", "--in", tmp_path / "link")
    assert r.out == b"Rfile\n", r


def test_in_large_file(tmp_path):
    data = os.urandom(20 << 20)
    (tmp_path / "big").write_bytes(data)
    r = cloche.run(["run", *LONG, "--in", tmp_path / "big", "sha256sum", "big"])
    assert r.out.split()[0] == hashlib.sha256(data).hexdigest().encode(), r


def test_in_cannot_write_outside_its_places(tmp_path):
    """A link that came in earlier does not lead a later input out of the way."""
    (tmp_path / "l").symlink_to("/tmp")
    d = tmp_path / "d"
    d.mkdir()
    (d / "l").symlink_to("/usr/bin")
    (tmp_path / "f").write_text("x")
    r = cloche.run(["run", "--in", d, "--in", f"{tmp_path}/f:/workspace/d/l/evil", "true"])
    shape.check_reason(r, "create_failed")
    assert r.stage == "files"


def test_out(tmp_path):
    out = tmp_path / "out"
    r = sh("mkdir -p /output/a/b; echo 1 >/output/a/b/one; echo 22 >/output/two; cp /bin/true /output/prog; "
           "mkdir /output/empty; chmod 4755 /output/prog; echo 3 >/workspace/three", "--out", out)
    shape.exited(r, 0)
    assert sorted((a["path"], a["skipped"]) for a in r.artifacts) == [("a/b/one", None), ("prog", None), ("two", None)]
    assert (out / "a/b/one").read_text() == "1\n" and (out / "two").read_text() == "22\n"
    st = (out / "prog").stat()
    assert st.st_mode & 0o7000 == 0 and st.st_mode & 0o100 and st.st_uid == os.geteuid()
    assert {a["path"]: a["bytes"] for a in r.artifacts}["two"] == 3
    assert not (out / "three").exists()


def test_out_is_collected_whatever_the_end(tmp_path):
    for script, reason in (("exit 3", "exited"), ("kill -9 $$", "signaled"), ("sleep 99", "timeout")):
        r = sh(f"echo x >/output/{reason}; {script}", "--out", tmp_path / "out", "--timeout", "1s")
        assert r.reason == reason and (tmp_path / "out" / reason).read_text() == "x\n"


def test_out_replaces_a_link_and_does_not_follow_it(tmp_path):
    """What lies in the caller's folder does not lead the collector elsewhere."""
    out = tmp_path / "out"
    out.mkdir()
    (tmp_path / "victim").write_text("safe")
    (out / "file").symlink_to(tmp_path / "victim")
    (tmp_path / "elsewhere").mkdir()
    (out / "dir").symlink_to(tmp_path / "elsewhere")
    r = sh("echo evil >/output/file; mkdir /output/dir; echo evil >/output/dir/file", "--out", out)
    assert (tmp_path / "victim").read_text() == "safe"
    assert not (out / "file").is_symlink() and (out / "file").read_text() == "evil\n"
    assert list((tmp_path / "elsewhere").iterdir()) == []
    assert {a["path"]: a["skipped"] for a in r.artifacts}["dir/file"] is not None


def test_without_out_there_is_no_output_folder():
    r = sh("ls -d /output")
    assert r.exit_code == 2 and b"No such file" in r.err


def test_artifact_globs(tmp_path):
    script = "mkdir -p sub/deep; for f in a.png b.txt sub/c.png sub/deep/d.png; do echo $f >$f; done; echo r >/output/r"
    r = sh(script, "--out", tmp_path / "out", "--artifact", "*.png", "--artifact", "sub/deep")
    shape.exited(r, 0)
    found = sorted(str(p.relative_to(tmp_path / "out")) for p in (tmp_path / "out").rglob("*") if p.is_file())
    assert found == ["a.png", "r", "sub/deep/d.png"]
    assert sorted(a["path"] for a in r.artifacts) == found


def test_artifact_without_out():
    """Collected where to? Said, not dropped in silence."""
    r = cloche.run(["run", "--artifact", "*.png", "true"], json=False)
    shape.plain_error(r, 2, "--artifact", "--out")


HOSTILE = r"""
import os
o = "/output/"
os.symlink("/etc/passwd", o + "link")
os.symlink("/proc/self", o + "hop")
os.mkdir(o + "dir"); open(o + "dir/inside", "w").write("i")
os.symlink("dir", o + "dirlink")
open(o + "one", "w").write("same"); os.link(o + "one", o + "two")
os.mkfifo(o + "fifo")
import socket; s = socket.socket(socket.AF_UNIX); s.bind(o + "sock")
with open(o + "sparse", "wb") as f: f.truncate(1 << 40)
open(o + "new\nline", "w").write("n")
open(o + "esc\x1b]0;x\x07", "w").write("n")
open(o.encode() + b"caf\xe9", "w").write("n")
open(o + "secret", "w").write("s"); os.chmod(o + "secret", 0)
os.mkdir(o + "locked"); open(o + "locked/f", "w").write("l"); os.chmod(o + "locked", 0)
os.mkdir(o + "bad\nfolder"); open(o + "bad\nfolder/f", "w").write("x")
open(o + "..hidden", "w").write("h")
open(o + "-rf", "w").write("d")
"""


def test_hostile_artifacts(tmp_path, no_leftovers):
    """Only regular files and folders leave; nothing blocks, nothing is followed, what stays is named with its cause."""
    out = tmp_path / "out"
    # So large that RLIMIT_FSIZE inside lets the sparse file be; outside, the limit keeps a cloche that would copy it from
    # filling this machine's disk.
    r = py(HOSTILE, "--out", out, "--tmpfs", "/output:size=2t", prefix=["prlimit", "--fsize=536870912:"])
    shape.exited(r, 0)
    skipped = {a["path"]: a["skipped"] for a in r.artifacts}
    assert skipped == {
        "link": "symbolic link", "hop": "symbolic link", "dirlink": "symbolic link", "dir/inside": None,
        "one": None, "two": None, "fifo": "not a regular file", "sock": "not a regular file", "sparse": "too large",
        "new\nline": "control character in its name", "esc\x1b]0;x\x07": "control character in its name",
        "caf\\xe9": None, "secret": None, "locked/f": None, "bad\nfolder": "control character in its name",
        "..hidden": None, "-rf": None,
    }
    there = sorted(os.fsencode(p.relative_to(out)) for p in out.rglob("*") if not p.is_dir())
    assert there == sorted([b"dir/inside", b"one", b"two", b"caf\xe9", b"secret", b"locked/f", b"..hidden", b"-rf"])
    for p in out.rglob("*"):
        assert not p.is_symlink() and (p.is_dir() or p.stat().st_nlink == 1)
    assert all(a["bytes"] is None for a in r.artifacts if a["skipped"])


def test_hostile_artifact_names_are_escaped_for_people(tmp_path):
    r = py("open('/output/a\\x1b]0;title\\x07', 'w')", "--out", tmp_path / "out", json=False)
    assert (r.returncode, r.stdout) == (0, b"")
    assert r.stderr == b"cloche: artifact a\\x1b]0;title\\x07 was left behind: control character in its name\n"


def test_sparse_file_counts_by_its_apparent_size(tmp_path):
    """What the places could hold is the most that leaves: 64 + 256 MiB by default; one comes, two of them do not."""
    r = py("""
for name in "ab":
    with open("/output/" + name, "wb") as f: f.truncate(200 << 20)
""", "--out", tmp_path / "out", *LONG)
    shape.exited(r, 0)
    assert sorted(str(a["skipped"]) for a in r.artifacts) == ["None", "too large"]
    assert sum(p.stat().st_size for p in (tmp_path / "out").iterdir()) == 200 << 20


def test_deep_artifacts(tmp_path):
    r = py("""
import os
os.chdir("/output")
for i in range(300):
    os.mkdir("d"); os.chdir("d")
open("f", "w").write("deep")
""", "--out", tmp_path / "out", *LONG)
    shape.exited(r, 0)
    assert len(r.artifacts) == 1 and r.artifacts[0]["skipped"] == "nested too deep"
    assert [p for p in (tmp_path / "out").rglob("*") if p.is_file()] == []


def test_many_artifacts(tmp_path):
    r = py("for i in range(10000): open(f'/output/{i}', 'w').close()", "--out", tmp_path / "out", *LONG)
    shape.exited(r, 0)
    assert len(r.artifacts) == 10000 and all(a["skipped"] is None for a in r.artifacts)
    assert len(os.listdir(tmp_path / "out")) == 10000


# ---------------------------------------------------------------------------------------------------------- environment


def test_env_options(tmp_path):
    (tmp_path / "env").write_text("# comment\n\nA=file\nB=with = and # inside\r\nQ=\"quoted\"\n")
    r = sh('printf "%s|" "$A" "$B" "$Q" "$C" "$D" "$E"', "--env-file", tmp_path / "env", "--env", "A=flag", "-e", "C=",
           "-e", "D", "--env=E=x y", env={"D": "callers", "Z": "not"})
    shape.exited(r, 0)
    assert r.out == b'flag|with = and # inside|"quoted"||callers|x y|', r


def test_env_can_replace_the_defaults():
    r = sh('echo "$HOME" "$LANG" "${TZ-unset}" "$NODE_OPTIONS"; date +%Z', "-e", "HOME=/workspace", "-e", "NODE_OPTIONS=x")
    assert r.out == b"/workspace C.UTF-8 unset x\nUTC\n"


@pytest.mark.needs("venv")
def test_venv(tmp_path):
    venv = tmp_path / "venv"
    subprocess.run(["/usr/bin/python3", "-m", "venv", "--without-pip", venv], check=True)
    site = next(venv.glob("lib/python3*/site-packages"))
    (site / "ours.py").write_text("answer = 42\n")
    r = cloche.run(["python", "--venv", venv, "-c", "import ours, sys, shutil; print(ours.answer, sys.prefix)\n"
                    "print(shutil.which('python3'))\nopen(ours.__file__, 'a')"])
    shape.exited(r, 1)
    assert r.out == f"42 {venv}\n{venv}/bin/python3\n".encode()
    assert b"Read-only file system" in r.err or (os.geteuid() and b"Permission denied" in r.err)  # rootless: not its own


def test_venv_of_an_interpreter_elsewhere_is_refused(tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python3").symlink_to("/bin/sh" if not os.path.islink("/bin") else "/etc/passwd")
    shape.plain_error(cloche.run(["run", "--venv", tmp_path, "true"], json=False), 125, "--venv", "/usr/bin/python3 -m venv")


# -------------------------------------------------------------------------------------------------------------- volumes


def give(path, uid=1234, gid=2345):
    os.chown(path, uid, gid)
    return path


@pytest.fixture
def owned(tmp_path, must_work):
    """A folder and a file of an ordinary user, and a file of root's."""
    must_work("root")
    d = tmp_path / "volume"
    d.mkdir()
    (d / "theirs").write_text("t")
    (d / "roots").write_text("r")
    (d / "other").write_text("o")
    (d / "private").write_text("p")
    (d / "private").chmod(0o600)
    give(d), give(d / "theirs"), give(d / "other", 777, 777)
    return d


def test_writable_volume(owned):
    """Inside it belongs to the sandbox user, outside to who owned it; what is root's stays so."""
    r = sh("cd /data; id -u; stat -c '%u:%g %n' . theirs roots other; echo new >new; mkdir d; echo more >>theirs; "
           "echo x >>roots; cat private", "-v", f"{owned}:/data")
    assert r.out.decode().splitlines() == ["65534", "65534:65534 .", "65534:65534 theirs", "0:0 roots", "65534:65534 other"] \
        or r.out.decode().splitlines()[:4] == ["65534", "65534:65534 .", "65534:65534 theirs", "0:0 roots"], r
    assert b"roots: Permission denied" in r.err and b"private: Permission denied" in r.err
    for name in ("new", "d", "theirs"):
        st = (owned / name).stat()
        assert (st.st_uid, st.st_gid) == (1234, 2345), name
    assert (owned / "theirs").read_text() == "tmore\n" and (owned / "roots").read_text() == "r"


@pytest.mark.parametrize("mode, box", [("ro", "/data"), ("ro", "/workspace"), ("ro", "/mnt/a/b")])
def test_read_only_volume(owned, mode, box):
    r = sh(f"cat {box}/theirs; echo x >>{box}/theirs; echo x >{box}/new; rm {box}/theirs; touch {box}/theirs",
           "-v", f"{owned}:{box}:{mode}")
    assert r.out == b"t" and r.err.count(b"Read-only file system") == 4, r
    assert (owned / "theirs").read_text() == "t" and not (owned / "new").exists()


def test_volume_with_the_users_ids(owned):
    r = sh("stat -c %u:%g /data/theirs; echo x >/data/new", "-v", f"{owned}:/data:rw", "--user", "1000:1001")
    shape.exited(r, 0)
    assert r.out == b"1000:1001\n"
    assert (owned / "new").stat().st_uid == 1234 and (owned / "new").stat().st_gid == 2345


def test_set_user_id_bits_mean_nothing(owned):
    """Neither of files made inside, for those outside; nor of files outside, for those inside."""
    program = owned / "program"
    program.write_bytes(Path("/usr/bin/id").read_bytes())
    program.chmod(0o4755)
    r = sh("/data/program -u; cp /usr/bin/id /data/copy; chmod 4755 /data/copy; /data/copy -u", "-v", f"{owned}:/data")
    assert r.out == b"65534\n65534\n", r
    assert (owned / "copy").stat().st_uid == 1234


def test_volume_of_one_file(tmp_path):
    (tmp_path / "f").write_text("one")
    r = sh("cat /data/file; echo x >/data/file", "-v", f"{tmp_path}/f:/data/file:ro")
    assert r.out == b"one" and b"Read-only file system" in r.err
    assert (tmp_path / "f").read_text() == "one"


def test_volume_in_place_of_the_workspace(owned):
    r = sh("pwd; ls; echo made >made", "-v", f"{owned}:/workspace")
    shape.exited(r, 0)
    assert (owned / "made").read_text() == "made\n"


def test_two_volumes_one_below_the_other(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "a" / "in").mkdir()
    (tmp_path / "b" / "f").write_text("B")
    r = sh("cat /data/in/f", "-v", f"{tmp_path}/a:/data:ro", "-v", f"{tmp_path}/b:/data/in:ro")
    assert r.out == b"B", r


def test_socket_below_a_volume(must_work):
    """One that is not an engine's may lie in a folder that is given; who listens there is reached as the socket's
    mode says: by others only when it says so."""
    must_work("root")
    with tempfile.TemporaryDirectory() as d, socket.socket(socket.AF_UNIX) as s:
        s.bind(d + "/s")
        os.chmod(d, 0o755)
        os.chown(d, 1234, 1234)  # whose files are the sandbox user's inside; root's are not
        os.chmod(d + "/s", 0o600)
        s.listen()
        s.setblocking(False)
        r = py("import socket; socket.socket(socket.AF_UNIX).connect('/data/s')", "-v", f"{d}:/data:ro")
        assert r.exit_code == 1 and b"PermissionError" in r.err, r
        with pytest.raises(BlockingIOError):
            s.accept()


# -------------------------------------------------------------------------------------------------------------- options


def test_tmpfs():
    r = sh("stat -f -c '%S %b %c' /data; stat -f -c '%b' /tmp; echo '#!/bin/sh' >/data/x; chmod +x /data/x; /data/x",
           "--tmpfs", "/data:size=1m,inodes=99", "--tmpfs", "/tmp:size=2m")
    size, blocks, inodes, tmp = r.out.split()
    assert (int(size) * int(blocks), int(inodes), int(size) * int(tmp)) == (1 << 20, 99, 2 << 20)
    assert r.exit_code == 126 and b"/data/x: Permission denied" in r.err  # noexec
    r = sh("echo '#!/bin/sh' >/data/x; chmod +x /data/x; /data/x", "--tmpfs", "/data:exec")
    shape.exited(r, 0)


@pytest.mark.parametrize("place, allowed", [("/tmp", False), ("/dev/shm", False), ("/workspace", True), ("/output", False)])
def test_exec_from(place, allowed, tmp_path):
    """By its name, by the interpreter's back door (mapping it executable), and from memory it came from."""
    r = sh(f"cp /bin/true {place}/prog; {place}/prog", "--out", tmp_path / "out")
    assert r.exit_code == (0 if allowed else 126), r
    r = py(f"import shutil, mmap; shutil.copy('/bin/true', '{place}/p'); f = open('{place}/p')\n"
           "mmap.mmap(f.fileno(), 4096, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC)", "--out", tmp_path / "out")
    assert r.exit_code == (0 if allowed else 1), r
    assert allowed or b"Operation not permitted" in r.err


def test_tmpfs_below_another():
    r = sh("stat -f -c %c sub; touch sub/x && echo ok", "--tmpfs", "/workspace/sub:size=1m,inodes=77")
    shape.exited(r, 0)
    assert r.out == b"77\nok\n"


@pytest.mark.needs("root")
def test_a_callers_scheduling_class_stays_outside():
    r = cloche.run(["run", "sh", "-c", "chrt -p $$; nice"], prefix=("chrt", "-f", "1"))
    assert r.returncode == 0 and b"policy: SCHED_OTHER\n" in r.out and r.out.endswith(b"\n0\n"), r


def test_user():
    r = sh("id -u; id -g; id -G; touch /workspace/x /tmp/x && echo ok", "--user", "1000:1001")
    assert r.out == b"1000\n1001\n1001\nok\n" and r.enforced["uid"] == 1000, r
    assert sh("id -u; id -g", "-u", "5").out == b"5\n5\n"


def test_hostname_and_workdir():
    r = sh("hostname; uname -n; pwd", "--hostname", "box-1.test", "--workdir", "/usr/share")
    assert r.out == b"box-1.test\nbox-1.test\n/usr/share\n"
    r = sh("hostname; cat /etc/hostname; getent hosts localhost | head -1")
    assert r.out.startswith(b"sandbox\n") and os.uname().nodename.encode() not in r.out


def test_nothing_of_the_machines_names():
    r = sh("cat /etc/machine-id /etc/hosts /etc/passwd /etc/group /etc/resolv.conf /proc/sys/kernel/hostname; env; ls /home /root")
    mine = Path("/etc/machine-id").read_text().strip() if os.path.exists("/etc/machine-id") else None
    assert os.uname().nodename.encode() not in r.out
    assert not mine or mine.encode() not in r.out
    first, second = (sh("cat /etc/machine-id").out for _ in range(2))
    assert len(first) == 33 and first != second


def test_dockers_strict_flags_are_what_is_already_so():
    r = cloche.run(["run", "--rm", "-i", "--network", "none", "--read-only", "--cap-drop", "ALL", "--cap-drop=all",
                    "--security-opt", "no-new-privileges", "--security-opt=no-new-privileges:true", "--name", "x",
                    "--memory=128m", "--memory-swap=128m", "--cpus=0.5", "--pids-limit=32", "--user=65534:65534",
                    "--tmpfs", "/tmp:rw,noexec,nosuid,nodev,size=64m", "-w", "/workspace", "-e", "A=b", "cat"], stdin="ok")
    shape.exited(r, 0)
    assert r.out == b"ok"


@pytest.mark.parametrize("args", [
    ["--network", "host"], ["--network", "bridge"], ["--network", "container:x"], ["--read-only=false"], ["--rm=false"], ["--cap-drop", "NET_RAW"],
    ["--cap-add", "SYS_ADMIN"], ["--security-opt", "seccomp=unconfined"], ["--security-opt", "apparmor=unconfined"],
    ["--security-opt", "no-new-privileges=false"], ["--privileged"], ["--user", "0"], ["--user", "root"],
])
def test_dockers_weaker_flags_are_refused(args):
    """By an error that says who may weaken what."""
    r = cloche.run(["run", *args, "true"], json=False)
    shape.plain_error(r, 2, args[0].partition("=")[0])
    assert any(word in r.stderr for word in (b"nobody", b"no one", b"operator", b"every sandbox", b"always", b"numbers only",
                                             b"by a request")), r


@pytest.mark.parametrize("args", [["--read-only=true"], ["--rm=true"], ["--interactive=true"]])
def test_dockers_flags_with_true(args):
    r = cloche.run(["run", *args, "true"], json=False)
    assert (r.returncode, r.stderr) == (0, b""), r


def test_options_end_where_the_command_begins():
    assert cloche.run(["run", "echo", "--timeout", "1s", "--", "-x"]).out == b"--timeout 1s -- -x\n"
    assert cloche.run(["run", "--", "echo", "--json"]).out == b"--json\n"


def test_the_last_one_wins():
    r = cloche.run(["run", "--timeout", "1s", "--timeout", "10s", "sleep", "1.2"])
    shape.exited(r, 0)


def test_help_and_version():
    r = cloche.run(["--version"], json=False)
    assert r.returncode == 0 and r.stdout.startswith(b"cloche ") and r.stdout.count(b"\n") == 1
    for args in (["--help"], ["help"], ["run", "--help"], ["help", "python"]):
        r = cloche.run(args, json=False)
        assert r.returncode == 0 and b"usage: cloche" in r.stdout and r.stderr == b""


LIMITS = {  # the table of docs/limits.md: soft and hard are one, but for CPU time (SIGXCPU first, SIGKILL a second later)
    "Max core file size": (1, 1), "Max locked memory": (0, 0), "Max msgqueue size": (0, 0), "Max open files": (1024, 1024),
    "Max pending signals": (256, 256), "Max nice priority": (0, 0), "Max realtime priority": (0, 0),
    "Max processes": (64 + 8, 64 + 8), "Max file size": (1 << 30, 1 << 30), "Max cpu time": ("unlimited", "unlimited"),
    "Max address space": ("unlimited", "unlimited"),
}


@pytest.mark.parametrize("options, other", [
    ([], {}),
    (["--pids-limit", "20", "--cpu-time", "5s"], {"Max processes": (28, 28), "Max cpu time": (7, 8)}),
    (["--tmpfs", "/workspace:size=3g"], {"Max file size": (3 << 30, 3 << 30)}),
])
def test_every_resource_limit(options, other):
    r = cloche.run(["run", *options, "cat", "/proc/self/limits"])
    shape.exited(r, 0)
    seen = {line[:26].strip(): tuple(line[26:].split()[:2]) for line in r.out.decode().splitlines()}
    wanted = {**LIMITS, **other}
    assert {name: seen[name] for name in wanted} == {name: (str(a), str(b)) for name, (a, b) in wanted.items()}
