# SPDX-License-Identifier: Apache-2.0
"""`cloche python|bash|node|run --map FILE`: every line in a sandbox of its own, by a service and without one, with the same outcome."""
import contextlib
import importlib.util
import itertools
import json
import os
import pty
import re
import select
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import cloche
import contract
import pytest
import service as services
from service import outcome

pytestmark = pytest.mark.needs("native", "python", "service")

WAYS = ("here", "there")


@pytest.fixture(params=WAYS)
def way(request, service):
    """The environment of each way in turn."""
    return environment(request.param, service)


def environment(way, service):
    return {"CLOCHE_DIRECT": "1"} if way == "here" else {"CLOCHE_SOCKET": service.sock}


def write(path, lines):
    path.write_bytes(b"".join(line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n" for line in lines))
    return path


def start(verb, file, *options, env=None, **kw):
    return cloche.start([verb, "--map", str(file), *map(str, options)], env=env, **kw)


def run(verb, file, *options, env=None, stdin=b"", timeout=60):
    p = start(verb, file, *options, env=env)
    try:
        out, err = p.communicate(stdin, timeout)
    except BaseException:
        os.killpg(p.pid, signal.SIGKILL)
        p.communicate()
        raise
    return p.returncode, read(out), err.decode()


def read(data):
    """Every line as an object; results that contradict themselves fail the test."""
    rows = [json.loads(line) for line in data.splitlines()]
    for row in rows:
        assert set(row) in ({"index", "tag", "result"}, {"index", "tag", "error"}), row
        if "result" in row:
            outcome(row["result"])
    return rows


def told(row):
    """Without what differs between any two runs."""
    result = {k: v for k, v in row.get("result", {}).items() if k not in ("id", "sandbox", "usage")}
    if result.get("reason") == "create_failed":  # a service knows of its sandbox what the other way has not been told by then
        result.pop("enforced")
    return {**row, "result": result}


def in_order(rows, count):
    assert [r["index"] for r in rows] == list(range(count))


LINES = {
    "python": [{"code": "print(1)", "tag": "ü"}, "print('bare')", b'  "import sys; print(sys.argv, __name__)"\r\n', b"\n", b"  \t\n",
               {"code": "import sys; print(sys.argv, sys.stdin.read()); sys.exit(3)", "stdin": "input", "args": ["a", "--b"]},
               {"code": "import sys; print(sys.argv, sys.stdin.read())", "args": ["x"]}, {"code": "1/0"}, {"code": "é" * 3, "stdin": ""},
               {"code": "while True: pass"}, {"code": "b'\\xff'; import os; os.write(1, b'\\xff\\0')"}, {"code": "print('x' * 300)"},
               {"code": "import os; os.kill(os.getpid(), 10)"}, {"code": "print(open('data').read(), __import__('os').environ['A'])"},
               b"nonsense\n", b"[]\n", b"3\n", b"\"\\u0000\"\n", b"\"a\" \"b\"\n", b"\xff\n", {"code": 1}, {}, {"code": "", "command": ["x"]},
               {"code": "", "tag": 1}, {"code": "", "args": "a"}, {"code": "", "args": ["a\0"]}, {"code": "", "stdin": True},
               {"code": "", "memory": "1g"}, {"code": "#" * 140000}, {"code": "#" * 140000, "stdin": "x"}, {"code": "a\0b", "stdin": "x"}, {"code": "", "stdin": "\0"}],
    "bash": [{"code": "echo $0 $1; cat", "args": ["one"], "stdin": "in"}, "echo plain; exit 4", "sleep 9"],
    "run": [{"command": ["sh", "-c", "cat; exit 2"], "stdin": "in"}, "echo shell | cat", {"command": ["nosuch"]}, {"command": "", "args": []},
            {"command": []}, {"command": [""]}, {"code": "x"}],
}


@pytest.mark.parametrize("verb", LINES)
def test_the_same_both_ways(verb, service, tmp_path):
    file = write(tmp_path / "in.jsonl", LINES[verb])
    (tmp_path / "data").write_text("data of all")
    options = ["--timeout", "700ms", "--max-output", "200", "-e", "A=b c", "--in", tmp_path / "data", "--jobs", "4", "--cpus", "1"]
    here, there = (run(verb, file, *options, env=environment(way, service)) for way in WAYS)
    assert list(map(told, here[1])) == list(map(told, there[1])) and (here[0], here[2]) == (there[0], there[2])
    in_order(here[1], len([line for line in LINES[verb] if line not in (b"\n", b"  \t\n")]))
    assert here[0] == (125 if any("error" in r for r in here[1]) else 1)
    if verb == "python":
        results = [r["result"] for r in here[1] if "result" in r]
        assert [r["stdout"] for r in results[:5]] == ["1\n", "bare\n", "['-'] __main__\n", "['-c', 'a', '--b'] input\n", "['-', 'x'] \n"]
        assert [r["reason"] for r in results].count("timeout") == 1 and results[-2]["stdout"] == "data of all b c\n"
        assert len(results) == 13 and here[1][0]["tag"] == "ü"


@pytest.mark.needs("node")
def test_node(service, tmp_path):
    file = write(tmp_path / "in", ["console.log(6 * 7)", {"code": "console.log(process.argv.slice(1))", "stdin": "", "args": ["--a"]}])
    for way in WAYS:
        status, rows, err = run("node", file, "--memory", "512m", "--cpus", 1, "--timeout", "20s", env=environment(way, service))
        assert (status, err, [r["result"]["stdout"] for r in rows]) == (0, "", ["42\n", "[ '--a' ]\n"])


def test_exit_status(way, tmp_path):
    ok, bad, none = "print(1)", "exit(1)", b"{}\n"
    for lines, status in (([], 0), ([ok, ok], 0), ([ok, bad], 1), ([ok, none, bad], 125)):
        got, rows, err = run("python", write(tmp_path / "in", lines), env=way)
        assert got == status and len(rows) == len(lines)
        assert err == ('cloche: 1 of 3 lines have no result: their "error" says why\n' if status == 125 else "")
    assert run("python", tmp_path / "in", "--quiet", env=way)[2] == ""


@pytest.mark.parametrize("options, words", [
    (["-c", "1"], "in the lines"), (["--out", "d"], "--out and --artifact are for one run"), (["--jobs", "0"], "--jobs 0"), (["--jobs", "x"], "--jobs x"),
    (["--resume"], "--results"), (["operand"], "in the lines"), (["--memory", "x"], "memory")], ids=str)
def test_wrong_usage(options, words, way, tmp_path):
    status, rows, err = run("python", write(tmp_path / "in", ["1"]), *options, env=way)
    assert (status, rows) == (2, []) and words in err and err.startswith("cloche: ")
    for name in ("nosuch", "."):
        status, rows, err = run("python", tmp_path / name, env=way)
        assert (status, rows) == (125, []) and str(tmp_path) in err


def test_only_with_map(way):
    for option in (["--jobs", "2"], ["--results", "x"], ["--resume"]):
        r = cloche.run(["python", *option, "-c", "1"], env=way, json=False)
        assert r.returncode == 2 and b"belong to --map" in r.stderr


# ---------------------------------------------------------------------------------------------------------- order, jobs


def test_order_and_jobs(way, tmp_path):
    times = [1, 0.01, 0.5, 0.01, 0.8, 0.01] * 4
    file = write(tmp_path / "in", [f"sleep {t}; echo {i}" for i, t in enumerate(times)])
    began = time.monotonic()
    status, rows, _ = run("run", file, "--jobs", 8, env=way)
    assert status == 0 and [int(r["result"]["stdout"]) for r in rows] == list(range(24)) and time.monotonic() - began < sum(times)


def test_results_come_while_lines_come(way):
    """From a pipe: each result is there before the next line is."""
    p = start("bash", "-", env=way)
    for n in range(3):
        p.stdin.write(b'"echo $((%d + 1))"\n' % n)
        p.stdin.flush()
        assert select.select([p.stdout], [], [], 20)[0]
        assert json.loads(p.stdout.readline())["result"]["stdout"] == f"{n + 1}\n"
    out, err = p.communicate(b'"echo last"', 20)  # without its end
    assert json.loads(out)["result"]["stdout"] == "last\n" and p.returncode == 0 and err == b""


def test_a_source_that_is_silent_for_long(service):
    """The service hangs up on a body that is silent for 20 s; ours says that it lives."""
    p = start("bash", "-", env=environment("there", service))
    p.stdin.write(b'"echo 1"\n')
    p.stdin.flush()
    assert b'"1\\n"' in p.stdout.readline()
    time.sleep(23)
    out, err = p.communicate(b'"echo 2"\n', 20)
    assert (b'"2\\n"' in out, p.returncode, err) == (True, 0, b"")


def peak(pid):
    return int(re.search(r"VmHWM:\s+(\d+)", open(f"/proc/{pid}/status").read())[1])


def test_many_lines_in_little_memory(way, tmp_path):
    """200,000 lines, 28 MB, of which each 2,000th runs."""
    lines = [b'{"x":"%0*d"}\n' % (128, i) if i % 2000 else b'"echo %d"\n' % i for i in range(200000)]
    file = write(tmp_path / "in", lines)
    p = start("bash", file, env=way)
    count, ran = 0, 0
    for line in p.stdout:
        assert line.startswith(b'{"index":%d,' % count)
        count, ran = count + 1, ran + (b'"result"' in line)
        if count == 199000:
            assert peak(p.pid) < 40_000, peak(p.pid)
    p.communicate(timeout=20)
    assert (count, ran, p.returncode) == (200000, 100, 125)


def test_a_reader_that_does_not_read(way, tmp_path):
    """Stops the reading of the input, and so the runs; nothing is lost when it goes on."""
    p = start("bash", "-", "--jobs", 4, env=way)
    fd, line, sent, still = p.stdin.fileno(), b'"head -c 50000 /dev/zero | tr \\\\\\\\0 x"\n', 0, 0
    os.set_blocking(fd, False)
    while still < 15 and sent < 2 << 20:
        try:
            sent, still = sent + os.write(fd, line[sent % len(line):]), 0
        except BlockingIOError:
            still += 1
            time.sleep(0.1)
    assert sent < 2 << 20 and peak(p.pid) < 120_000
    p.send_signal(signal.SIGINT)  # what was not begun by now is not
    out, _ = p.communicate(timeout=60)
    rows = read(out)
    in_order(rows, len(rows))
    assert len(rows) >= 4 and all(r["result"]["output"]["stdout"]["bytes"] == 50000 for r in rows) and p.returncode == 130


def test_a_reader_that_goes_away(way, tmp_path):
    p = start("bash", write(tmp_path / "in", ["echo 1"] * 50 + ["sleep 30"] * 50), "--timeout", "60s", "--jobs", 2, env=way)
    p.stdout.readline()
    p.stdout.close()
    assert p.wait(20) == 125 and b"write the results" in p.stderr.read()


# ------------------------------------------------------------------------------------------- results and going on with them


def test_results_and_resume(way, tmp_path):
    file, results = write(tmp_path / "in", [f"echo {i}" for i in range(10)]), tmp_path / "out"
    assert run("bash", file, "--results", results, env=way) == (0, [], "")
    whole = results.read_bytes()
    in_order(read(whole), 10)
    status, rows, err = run("bash", file, "--results", results, env=way)
    assert status == 125 and "--resume" in err and results.read_bytes() == whole
    lines = whole.splitlines(keepends=True)
    torn = lines[0] + lines[1] + lines[4] + lines[5][:40]
    results.write_bytes(torn)
    assert run("bash", file, "--results", results, "--resume", env=way) == (0, [], "")
    after = results.read_bytes()
    assert after.startswith(b"".join(lines[i] for i in (0, 1, 4)))
    assert [r["index"] for r in read(after)] == [0, 1, 4, 2, 3, 5, 6, 7, 8, 9]
    assert {r["index"]: r["result"]["stdout"] for r in read(after)} == {i: f"{i}\n" for i in range(10)}
    assert run("bash", file, "--results", results, "--resume", env=way) == (0, [], "") and results.read_bytes() == after
    assert run("bash", file, "--results", tmp_path / "new", "--resume", env=way)[0] == 0 and len(read((tmp_path / "new").read_bytes())) == 10


@pytest.mark.parametrize("content", [b"hello\n", b'{"index":-1,"tag":null}\n', b'{"index":99999999999,"x":1}\n', b'{"index": 1,"x":1}\n', b"\n",
                                     b'{"index":1}\n', b'{"index":,\n'], ids=str)
def test_files_of_others_are_not_touched(content, service, tmp_path):
    file, results = write(tmp_path / "in", ["echo"]), tmp_path / "out"
    results.write_bytes(b'{"index":0,"tag":null,"result":{}}\n' + content + b"torn")
    status, rows, err = run("bash", file, "--results", results, "--resume", env=environment("here", service))
    assert status == 2 and "line 2 is no result" in err and results.read_bytes().endswith(content + b"torn")


def test_two_do_not_write_one_file(way, tmp_path):
    first = start("bash", write(tmp_path / "in", ["sleep 20"]), "--results", tmp_path / "out", env=way)
    contract.until((tmp_path / "out").exists)
    contract.until(lambda: re.search(rf"FLOCK.*{os.stat(tmp_path / 'out').st_ino} ", open("/proc/locks").read()))
    status, _, err = run("bash", tmp_path / "in", "--results", tmp_path / "out", "--resume", env=way)
    assert status == 125 and "another one writes it" in err
    first.send_signal(signal.SIGTERM)
    first.send_signal(signal.SIGINT)
    first.communicate(timeout=20)


def test_killed_and_gone_on_with(way, tmp_path):
    """kill -9 loses no result that was written, and none comes twice."""
    file, results = write(tmp_path / "in", [f"echo {i}; sleep 0.0{i % 7}" for i in range(60)]), tmp_path / "out"
    for _ in range(3):
        p = start("bash", file, "--results", results, "--resume", "--jobs", 6, env=way)
        before = results.stat().st_size if results.exists() else 0
        contract.until(lambda: results.exists() and results.stat().st_size > before + 5000)
        os.killpg(p.pid, signal.SIGKILL)
        p.communicate()
    assert run("bash", file, "--results", results, "--resume", "--jobs", 6, env=way)[0] == 0
    rows = read(results.read_bytes())
    assert sorted(r["index"] for r in rows) == list(range(60))
    assert all(r["result"]["stdout"] == f"{r['index']}\n" for r in rows)


# ------------------------------------------------------------------------------------------------------------ interrupted


def begun(service, way, count):
    """Wait until so many sandboxes live."""
    if "CLOCHE_SOCKET" in way:
        contract.until(lambda: service.root.get("/v1/quota")["used"]["sandboxes"] >= count, what="sandboxes")
    else:
        time.sleep(1)  # nothing tells


def test_interrupted_once(way, service, tmp_path):
    """What runs comes to its end, nothing more is begun."""
    file = write(tmp_path / "in", ["echo quick"] * 3 + [f"sleep 2; echo {i}" for i in range(3, 5000)])
    p = start("bash", file, "--jobs", 2, env=way)
    for _ in range(3):
        p.stdout.readline()
    begun(service, way, 2)
    p.send_signal(signal.SIGINT)
    out, err = p.communicate(timeout=30)
    rows = read(out)
    assert p.returncode == 130 and b"stopping" in err and b"interrupted after" in err
    assert [r["index"] for r in rows] == list(range(3, 3 + len(rows))) and all(r["result"]["ok"] for r in rows)
    assert len(rows) >= 2 and ("CLOCHE_SOCKET" in way or len(rows) <= 4)


def test_interrupted_twice(way, service, tmp_path):
    """What runs is ended and has no result; what had ended behind it is written."""
    file, results = write(tmp_path / "in", ["echo 0", "sleep 50", "echo 2"] + ["sleep 50"] * 100), tmp_path / "out"
    p = start("bash", file, "--jobs", 3, "--timeout", "60s", "--results", results, env=way)
    contract.until(lambda: results.exists() and results.stat().st_size > 0)
    begun(service, way, 3)
    began = time.monotonic()
    p.send_signal(signal.SIGINT)
    contract.until(lambda: select.select([p.stderr], [], [], 1)[0])
    p.send_signal(signal.SIGINT)
    _, err = p.communicate(timeout=20)
    assert p.returncode == 130 and time.monotonic() - began < 10 and b"--resume goes on" in err
    rows = read(results.read_bytes())
    assert [r["index"] for r in rows] == ([0, 2] if "CLOCHE_DIRECT" in way else [0])
    if "CLOCHE_SOCKET" in way:
        contract.until(lambda: service.root.get("/v1/quota")["used"]["sandboxes"] == 0)


def test_a_service_that_is_lost(tmp_path):
    with services.Service() as s:
        p = start("bash", write(tmp_path / "in", ["echo 1"] * 5 + ["sleep 20"] * 20), "--jobs", 5, "--results", tmp_path / "out",
                  "--timeout", "3s", env={"CLOCHE_SOCKET": s.sock})
        contract.until(lambda: (tmp_path / "out").exists() and (tmp_path / "out").read_bytes().count(b"\n") == 5)
        for pid in s.running("cloched"):
            os.kill(pid, signal.SIGKILL)
        _, err = p.communicate(timeout=20)
        assert p.returncode == 125 and b"was lost" in err and b"some may have run" in err and b"--resume" in err
        in_order(read((tmp_path / "out").read_bytes()), 5)
        s.wait_ready()
        contract.until(lambda: s.root.get("/v1/quota")["used"]["sandboxes"] == 0, what="the end of what ran")


def test_refused_as_a_whole(service, tmp_path):
    """A quota refuses each line; a key that is none refuses all."""
    file = write(tmp_path / "in", ["echo"] * 2)
    status, rows, err = run("bash", file, "--memory", "2000g", env=environment("there", service))
    assert status == 125 and [r["error"]["code"] for r in rows] == ["SANDBOX_QUOTA_EXCEEDED"] * 2
    status, rows, err = run("bash", file, env={"CLOCHE_SOCKET": f"127.0.0.1:{service.port}", "CLOCHE_API_KEY": "clk_wrong"})
    assert (status, rows) == (125, []) and "refused by the service" in err


def test_by_tcp(tenants, service, tmp_path):
    file = write(tmp_path / "in", ["echo 1", "echo 2"])
    status, rows, err = run("bash", file, env={"CLOCHE_SOCKET": f"127.0.0.1:{service.port}", "CLOCHE_API_KEY": tenants[0].secret})
    assert (status, err, [r["result"]["stdout"] for r in rows]) == (0, "", ["1\n", "2\n"])


def test_volumes_and_venv_of_ones_own(service, request):
    """Descriptors go along once, and every run has them."""
    before, uid = os.stat(service.sock).st_mode, 1234
    request.addfinalizer(lambda: os.chmod(service.sock, before & 0o777))
    os.chmod(service.sock, 0o666)
    os.chmod(service.folder / "run", 0o755)
    with tempfile.TemporaryDirectory(prefix="clo-map.") as folder:
        data = Path(folder) / "data"
        data.mkdir()
        for name in ("a", "b"):
            (data / name).write_text(name)
        subprocess.run(["chown", "-R", f"{uid}:{uid}", folder], check=True)
        write(Path(folder) / "in", ["cat /data/a", "cat /data/b; echo x >/data/c", "ls /data"])
        p = start("bash", Path(folder) / "in", "-v", f"{data}:/data:ro", env={"CLOCHE_SOCKET": service.sock, "HOME": "/var/empty"}, uid=uid, cwd="/")
        out, err = p.communicate(timeout=30)
    rows = read(out)
    assert (p.returncode, err) == (1, b"") and [r["result"]["stdout"] for r in rows] == ["a", "b", "a\nb\n"]
    assert "Read-only" in rows[1]["result"]["stderr"]


def test_two_at_once_in_one_service(service, tmp_path):
    """Lines of two batches of one caller do not mix."""
    write(tmp_path / "a", [f"echo a{i}" for i in range(40)])
    write(tmp_path / "b", [f"echo b{i}" for i in range(40)])
    two = [start("bash", tmp_path / name, "--jobs", 4, env=environment("there", service)) for name in "ab"]
    for name, p in zip("ab", two):
        rows = read(p.communicate(timeout=60)[0])
        assert p.returncode == 0 and [r["result"]["stdout"] for r in rows] == [f"{name}{i}\n" for i in range(40)]


# --------------------------------------------------------------------------------------------------------------- progress


def test_progress_on_a_terminal_only(way, tmp_path):
    file = write(tmp_path / "in", ["echo 1", "exit 1", b"{}\n"] * 20)
    master, slave = pty.openpty()
    p = subprocess.Popen([cloche.binary(), "bash", "--map", file, "--results", tmp_path / "out"], stdin=subprocess.DEVNULL, stderr=slave,
                         stdout=subprocess.PIPE, env=cloche.environment(way), start_new_session=True)
    os.close(slave)
    seen = b""
    with contextlib.suppress(OSError):  # EIO at the end
        while piece := os.read(master, 65536):
            seen += piece
    os.close(master)
    assert p.wait(20) == 125 and p.stdout.read() == b""
    assert b"60 done, 20 failed, 20 errors" in seen and re.search(rb"\r\x1b\[K\d+ done", seen) and b"/s" in seen
    p.stdout.close()


# ------------------------------------------------------------------------------------------------------------- from Python


@pytest.fixture
def module(monkeypatch, way):
    """python/cloche.py, with this way."""
    where = importlib.util.spec_from_file_location("cloche_module", cloche.TOP / "python" / "cloche.py")
    one = importlib.util.module_from_spec(where)
    where.loader.exec_module(one)
    for name, value in {**cloche.environment(way), "CLOCHE": cloche.binary()}.items():
        monkeypatch.setenv(name, value)
    return one


def test_python_map(module):
    items = ["print(1)", {"code": "import sys; print(sys.argv[1], input()); exit(4)", "args": ["a"], "stdin": "in", "tag": "t"}, {"x": 1}, "1/0"]
    got = list(module.map(items, jobs=2, timeout="9s", env={"A": "b"}))
    assert [r.stdout for r in (got[0], got[1], got[3])] == ["1\n", "a in\n", ""] and [got[1].exit_code, got[1].tag] == [4, "t"]
    assert isinstance(got[2], module.ClocheError) and "unknown field" in str(got[2]) and got[2].tag is None
    assert list(module.map([])) == [] and [r.stdout for r in module.map(["echo x"], language="bash")] == ["x\n"]


def test_python_map_is_lazy(module):
    """An endless source is fine; who stops ends what runs."""
    seen = []
    for r in module.map((seen.append(i) or f"echo {i}" for i in itertools.count()), language="bash", jobs=2):
        if r.stdout == "9\n":
            break
    assert len(seen) < 20000


def test_python_map_that_goes_wrong(module):
    with pytest.raises(module.ClocheError, match="memory"):
        list(module.map(["1"], memory="x"))
    with pytest.raises(ZeroDivisionError):
        list(module.map(1 // n for n in (1, 0)))
