# SPDX-License-Identifier: Apache-2.0
"""`cloche run|python|bash|node` by a service: the tests of the direct way once more, with the same outcome required; then both
ways side by side, and what only a service has.

The functions of tests/integration are taken as they are: their helpers get the service by cloche.service_socket. What
is left out of them is in LEFT_OUT, each with its reason.
"""
import hashlib
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cloche
import contract
import pytest
import service as services

sys.path.insert(0, str(cloche.TOP / "tests" / "integration"))
import shape  # noqa: E402


def direct(name):
    """A module of tests/integration; the contract tests have modules of the same names, so it is in no list."""
    where = importlib.util.spec_from_file_location(name, cloche.TOP / "tests" / "integration" / f"{name}.py")
    module = importlib.util.module_from_spec(where)
    where.loader.exec_module(module)
    return module


MODULES = {name: direct(name) for name in ("test_documents", "test_ends", "test_running")}

pytestmark = pytest.mark.needs("native", "python", "service")

ROOTS = "root's files are given to no sandbox by descriptor, nor another user's: test_volumes_of_ones_own has the caller's"
NO_HOME = {"HOME": "/var/empty-cloche", "XDG_CONFIG_HOME": "/var/empty-cloche"}
LEFT_OUT = {
    "test_ends.test_init_killed_from_outside": "init is no child of this command: tests/service/test_faults.py kills it",
    "test_ends.test_init_stopped_from_outside_does_not_stop_the_clock": "the same",
    "test_ends.test_one_byte_over_the_limit_and_gone": "it stops the supervisor, which is the service then",
    "test_running.test_in_large_file": "more than a request may carry: test_too_much_for_a_request",
    "test_running.test_hostile_artifacts": "the reading of a terabyte of holes ends the service's export; what its user may not read "
                                           "stays, FIFOs and sockets are not told: test_hostile_artifacts_by_the_service has the rest",
    "test_running.test_sparse_file_counts_by_its_apparent_size": "a service keeps artifact_limit of one run",
    "test_running.test_every_resource_limit": "RLIMIT_CPU belongs to one command: a service measures the time itself",
    "test_running.test_writable_volume": ROOTS, "test_running.test_read_only_volume": ROOTS,
    "test_running.test_volume_with_the_users_ids": ROOTS, "test_running.test_set_user_id_bits_mean_nothing": ROOTS,
    "test_running.test_volume_of_one_file": ROOTS, "test_running.test_volume_in_place_of_the_workspace": ROOTS,
    "test_running.test_two_volumes_one_below_the_other": ROOTS, "test_running.test_socket_below_a_volume": ROOTS,
    "test_running.test_venv": ROOTS,
}
for reference in LEFT_OUT:  # a name that is gone would leave out nothing
    assert callable(getattr(MODULES[reference.split(".")[0]], reference.split(".")[1]))
for module in MODULES.values():
    for name, value in list(vars(module).items()):
        if name.startswith("test_") and callable(value) and f"{module.__name__}.{name}" not in LEFT_OUT:
            globals()[f"test_{module.__name__[5:]}_{name[5:]}"] = value
del module, name, value


@pytest.fixture(autouse=True)
def by_the_service(service, monkeypatch):
    """The command's processes are the service's descendants, not the command line's."""
    find = shape.wait_for_process
    monkeypatch.setattr(cloche, "service_socket", service.sock)
    monkeypatch.setattr(shape, "wait_for_process", lambda parent, name: find(service.process.pid, name))


@pytest.fixture
def no_leftovers(service):
    """Of the service's sandboxes; what the machine has besides is others' business while it runs."""
    yield
    left = service.folder / "run" / "sandboxes"
    contract.until(lambda: len(os.listdir(left)) == service.root.get("/v1/pool")["ready"], 20, "the end of every sandbox")


# ------------------------------------------------------------------------------------------------------ side by side

CODE = "import sys; print(sys.argv, repr(sys.stdin.read())); print('e', file=sys.stderr); sys.exit(3)"
BOTH = {
    "command": (["run", "--", "sh", "-c", "cat; echo err >&2; exit 5"], b"input\xff\0"),
    "code": (["python", "-c", CODE, "a", "--b"], b"in"),
    "code on stdin": (["python", "-", "x", "y"], b"import sys; print(sys.argv, __file__ if '__file__' in dir() else None)"),
    "traceback": (["python", "-c", "1/0"], b""),
    "bash": (["bash", "-c", 'echo "$0" "$@"', "zero", "one"], b""),
    "bash crlf": (["bash", "-c", "if true; then\r\necho hi\r\nfi\r\n"], b""),
    "timeout": (["run", "--timeout", "300ms", "sh", "-c", "echo partial; exec sleep 9"], b""),
    "output": (["run", "sh", "-c", "head -c 70000 /dev/zero; head -c 66000 /dev/zero >&2"], b""),
    "output kills": (["run", "--on-output-limit", "kill", "--max-output", "10", "sh", "-c", "printf 12345678901; sleep 5"], b""),
    "character cut": (["python", "--max-output", "7", "-c", "print('€' * 9)"], b""),
    "signal": (["run", "sh", "-c", "kill -USR1 $$"], b""),
    "not there": (["run", "nosuchcommand"], b""),
    "not executable": (["run", "/etc/passwd"], b""),
    "no folder": (["run", "--workdir", "/nowhere", "true"], b""),
    "oom": (["python", "--memory", "32m", "-c", "b = bytearray(b'x') * (64 << 20)"], b""),
    "options": (["run", "--memory", "40m", "--memory-swap", "40m", "--cpus", "0.75", "--pids-limit", "9", "--cpu-time", "3s", "--idle-timeout",
                 "4s", "--user", "1000:1001", "--hostname", "h-1", "--workdir", "/tmp", "--tmpfs", "/data:size=1m,inodes=64,exec",
                 "--profile", "no-locks", "--env", "A=b c", "sh", "-c",
                 "id -u; id -g; hostname; pwd; stat -f -c '%S %b %c' /data /tmp; env | sort; ulimit -u"], b""),
    "environment": (["run", "-e", "NODE_OPTIONS=x", "-e", "PATH=/usr/bin", "-e", "EMPTY=", "env"], b""),
}


def told(r):
    """A result without what differs between any two runs."""
    j = dict(r.json)
    for key in ("id", "sandbox", "usage"):
        j.pop(key)
    if j["reason"] == "oom":  # how many died is the kernel's choice
        j.pop("oom_kills")
    if j["reason"] == "create_failed":  # a service knows of its sandbox what the other way has not been told by then
        j.pop("enforced")
    return j


@pytest.mark.parametrize("name", BOTH)
def test_both_ways(name):
    args, stdin = BOTH[name]
    direct = {"CLOCHE_DIRECT": "1"}
    here, there = cloche.run(args, stdin=stdin, env=direct), cloche.run(args, stdin=stdin)
    assert there.returncode == here.returncode and there.stderr == here.stderr == b""
    assert told(there) == told(here) and set(there.usage) == set(here.usage)
    here, there = cloche.run(args, stdin=stdin, env=direct, json=False), cloche.run(args, stdin=stdin, json=False)
    assert (there.returncode, there.stdout, there.stderr) == (here.returncode, here.stdout, here.stderr)


@pytest.mark.parametrize("options", [[], ["--artifact", "*.txt", "--artifact", "sub"]])
def test_artifacts_both_ways(options, tmp_path):
    script = ("mkdir -p /output/a/b sub; echo 1 >/output/a/b/one; cp /bin/true /output/prog; ln -s /etc/passwd /output/link; "
              "echo w >w.txt; echo s >sub/s; exit 3")
    seen = []
    for way in ({"CLOCHE_DIRECT": "1"}, {}):
        out = tmp_path / str(len(seen))
        r = cloche.run(["run", "--out", out, *options, "bash", "-c", script], env=way)
        seen.append((r.returncode, sorted(map(str, r.artifacts)), told(r).pop("artifacts") and None, sorted(
            (str(p.relative_to(out)), p.stat().st_mode, p.read_bytes()) for p in out.rglob("*") if p.is_file())))
    assert seen[0] == seen[1] and len(seen[0][3]) == (4 if options else 2)


def test_hostile_artifacts_by_the_service(tmp_path, no_leftovers):
    out = tmp_path / "out"
    out.mkdir()
    (tmp_path / "victim").write_text("safe")
    (out / "one").symlink_to(tmp_path / "victim")
    code = "\n".join(line for line in MODULES["test_running"].HOSTILE.splitlines() if "sparse" not in line)
    r = cloche.run(["python", "--out", out, "-c", code.replace(' + b"caf\\xe9"', ' + b"plain"')])
    shape.exited(r, 0)
    assert {a["path"]: a["skipped"] for a in r.artifacts} == {
        "link": "symbolic link", "hop": "symbolic link", "dirlink": "symbolic link", "dir/inside": None, "one": None, "two": None,
        "new\nline": "control character in its name", "esc\x1b]0;x\x07": "control character in its name", "plain": None,
        "bad\nfolder/f": "control character in its name", "..hidden": None, "-rf": None, "secret": "cannot be read",
        "locked": "cannot be read",
    }
    assert (tmp_path / "victim").read_text() == "safe" and not (out / "one").is_symlink()
    assert sorted(str(p.relative_to(out)) for p in out.rglob("*") if p.is_file()) == \
        ["-rf", "..hidden", "dir/inside", "one", "plain", "two"]


# -------------------------------------------------------------------------------------------------------------- stdin


@pytest.mark.parametrize("kind", ["pipe", "file"])
def test_much_stdin(kind, tmp_path):
    """50 MB, byte-exact there and back, and never in memory at once."""
    data = os.urandom(1 << 20) * 50
    args = [cloche.binary(), "run", "--timeout", "60s", "--cpus", "2", "--max-output", "unlimited", "cat"]
    (tmp_path / "in").write_bytes(data)
    with open(tmp_path / "in", "rb") as f:
        p = subprocess.Popen(args, stdin=f if kind == "file" else subprocess.PIPE, stdout=subprocess.PIPE, env=cloche.environment())
        with ThreadPoolExecutor(1) as pool:
            writer = pool.submit(lambda: p.stdin and (p.stdin.write(data), p.stdin.close()))
            digest, size = hashlib.sha256(), 0
            while piece := p.stdout.read1(1 << 20):
                digest.update(piece)
                if size < 40 << 20 <= size + len(piece):
                    peak = int(re.search(r"VmHWM:\s+(\d+)", open(f"/proc/{p.pid}/status").read())[1])
                size += len(piece)
            p.wait(20)
            writer.result()
        p.stdout.close()
    assert (p.returncode, size) == (0, len(data)) and digest.digest() == hashlib.sha256(data).digest()
    assert peak < 30_000, f"{peak} kB"


def test_stdin_slows_its_writer():
    """A command that does not read stops the writer long before 50 MB."""
    p = cloche.start(["run", "--timeout", "20s", "sleep", "15"])
    os.set_blocking(p.stdin.fileno(), False)
    written, still = 0, 0
    while still < 10:
        n = p.stdin.raw.write(bytes(65536)) if hasattr(p.stdin, "raw") else os.write(p.stdin.fileno(), bytes(65536))
        written, still = written + (n or 0), 0 if n else still + 1
        if not n:
            time.sleep(0.05)  # what does not happen tells nothing
    p.send_signal(signal.SIGINT)
    assert p.wait(10) == 130 and written < 8 << 20
    p.stdin = None
    p.communicate()


def begin(client, **body):
    stream = client.stream("POST", "/v1/runs", query={"stream": True}, json={"timeout": 20, **body}, timeout=20)
    return stream, stream.until(lambda e: e["type"] == "started")["id"]


def test_stdin_by_the_api(client, tenants):
    stream, run = begin(client, command=["cat"], stdin=True)
    with stream:
        for piece in (b"one\n", b"", b"\xfftwo\n"):
            client.expect(204, "POST", f"/v1/runs/{run}/stdin", body=piece)
        tenants[0].problem(404, "NOT_FOUND", "POST", f"/v1/runs/{run}/stdin", body=b"x")
        client.expect(204, "POST", f"/v1/runs/{run}/stdin", body=b"end", query={"eof": True})
        events = list(stream.events())
    assert services.joined(events, "stdout") == b"one\n\xfftwo\nend" and events[-1]["result"]["exit_code"] == 0
    client.problem(409, "CONFLICT", "POST", f"/v1/runs/{run}/stdin", body=b"x")
    client.problem(404, "NOT_FOUND", "POST", "/v1/runs/run_" + 32 * "0" + "/stdin", body=b"x")


def test_no_open_stdin_by_the_api(client):
    stream, run = begin(client, command=["sleep", "10"], stdin="text")
    with stream:
        client.problem(409, "CONFLICT", "POST", f"/v1/runs/{run}/stdin", body=b"x")
    client.problem(400, "INVALID_REQUEST", "POST", "/v1/runs", json={"command": ["cat"], "stdin": True})
    client.problem(400, "INVALID_REQUEST", "POST", "/v1/runs", query={"stream": True},
                   json={"language": "python", "code": "1", "stdin": True})


def test_cancel_by_the_api(client, tenants):
    stream, run = begin(client, command=["sleep", "10"])
    with stream:
        tenants[0].problem(404, "NOT_FOUND", "POST", f"/v1/runs/{run}/cancel")
        client.expect(204, "POST", f"/v1/runs/{run}/cancel")
        assert stream.until(lambda e: e["type"] == "exited")["result"]["reason"] == "cancelled"
    client.problem(409, "CONFLICT", "POST", f"/v1/runs/{run}/cancel")


@pytest.mark.parametrize("row", [
    {"path": "l", "link": ""}, {"path": "l", "link": "x\0y"}, {"path": "l", "link": "x", "mode": "0644"}, {"path": "d", "folder": False},
    {"path": "d", "folder": True, "content": ""}, {"path": "l", "link": "x", "folder": True}, {"path": "l", "link": 4096 * "x"},
])
def test_wrong_links_and_folders(client, row):
    client.problem(400, "INVALID_REQUEST", "POST", "/v1/runs", json={"command": ["true"], "files": [row]})


# ----------------------------------------------------------------------------------------------- which one, and policy


def run_count(service):
    """Of all that have ended, however many there are."""
    text = service.root.expect(200, "GET", "/metrics").body.decode()
    return sum(int(n) for n in re.findall(r"^cloche_runs_total\{.*\} (\d+)$", text, re.M))


def test_direct_with_a_service(service):
    before = run_count(service)
    for r in (cloche.run(["run", "--direct", "echo", "hi"]), cloche.run(["run", "echo", "hi"], env={"CLOCHE_DIRECT": "1"})):
        shape.exited(r, 0)
        assert run_count(service) == before
    shape.exited(cloche.run(["run", "echo", "--direct"]), 0)  # the command's own word
    assert run_count(service) == before + 1


@pytest.mark.parametrize("where", ["/nonexistent/cloche.sock", "127.0.0.1:1"])
def test_unreachable_service_is_an_error(where, tmp_path):
    """Never the direct way in silence."""
    r = cloche.run(["run", "--out", tmp_path / "out", "true"], env={"CLOCHE_SOCKET": where}, json=False)
    shape.plain_error(r, 125, "CLOCHE_SOCKET", where)
    assert not (tmp_path / "out").exists()


def test_config_show_says_which(service):
    def shown(**env):
        return json.loads(cloche.run(["config", "show", "--json"], json=False, env=env).stdout)["service"]
    assert shown() == {"value": service.sock, "origin": "environment"}
    assert shown(CLOCHE_DIRECT="1") == {"value": "none", "origin": "environment"}
    assert "no service answers" in shown(CLOCHE_SOCKET="/nonexistent/s")["value"]


SYSTEM = """
mount -t tmpfs none /run && mkdir /run/cloche && chmod 755 /run /run/cloche && exec python3 -c '
import os, socket, subprocess, sys
s = socket.socket(socket.AF_UNIX); s.bind("/run/cloche/cloche.sock"); s.listen()
for mode in (0o600, 0o666):
    os.chmod("/run/cloche/cloche.sock", mode)
    subprocess.run([sys.argv[1], "config", "show"], user=1234, group=1234, extra_groups=[])
' "$0"
"""


def test_system_service_that_is_not_permitted():
    """EACCES: the next one, which is this process. Permitted: that one."""
    env = {**cloche.environment({**NO_HOME, "XDG_RUNTIME_DIR": "/var/empty-cloche", "CLOCHE_SOCKET": ""})}
    done = subprocess.run(["unshare", "-m", "sh", "-c", SYSTEM, cloche.binary_for(1234)], env=env, capture_output=True, text=True)
    assert re.findall(r"^service +(\w+) +(.*)$", done.stdout, re.M) == [("default", "none"), ("default", "/run/cloche/cloche.sock")], done


def test_policy_is_the_services():
    with services.Service(policy={"memory": "64m", "timeout": "2s"}) as one:
        env = {"CLOCHE_SOCKET": one.sock}
        r = cloche.run(["run", "--memory", "128m", "true"], env=env, json=False)
        shape.plain_error(r, 125, "refused by the service at " + one.sock, "memory", "policy", "64m")
        r = cloche.run(["run", "sh", "-c", "echo $NODE_OPTIONS; exec sleep 9"], env=env)  # what nobody chose is lowered
        shape.check_reason(r, "timeout")
        assert r.out == b"--max-old-space-size=48\n" and r.message == "stopped after 2 s of wall time"


def test_best_effort_is_refused():
    r = cloche.run(["run", "--best-effort", "true"], json=False)
    shape.plain_error(r, 125, "refused by the service", "best_effort: a service gives up no limit", "--direct")


def test_too_much_for_a_request(tmp_path):
    (tmp_path / "big").write_bytes(bytes(20 << 20))
    r = cloche.run(["run", "--in", tmp_path / "big", "true"], json=False)
    shape.plain_error(r, 125, "--in", "--direct")


def test_what_json_cannot_say():
    r = cloche.run(["run", "echo", os.fsdecode(b"caf\xe9")], json=False)
    shape.plain_error(r, 125, "UTF-8", "--direct")


# ------------------------------------------------------------------------------------------------------------- volumes


@pytest.fixture
def permitted(service):
    """A user who may open the socket."""
    before = os.stat(service.sock).st_mode
    os.chmod(service.sock, 0o666)
    os.chmod(service.folder / "run", 0o755)
    yield 1234
    os.chmod(service.sock, before & 0o777)


@pytest.fixture
def reachable():
    """A folder that every user can reach, as pytest's are not."""
    with tempfile.TemporaryDirectory(prefix="clo-one.") as d:
        os.chmod(d, 0o755)
        yield Path(d)


def test_volumes_of_ones_own(permitted, reachable):
    d = reachable / "volume"
    d.mkdir()
    (d / "theirs").write_text("t")
    for p in (d, d / "theirs"):
        os.chown(p, permitted, permitted)
    with_it = {"uid": permitted, "env": NO_HOME, "cwd": "/"}
    r = cloche.run(["run", "-v", f"{d}:/data", "sh", "-c", "id -u; stat -c %u /data/theirs; echo new >/data/new"], **with_it)
    shape.exited(r, 0)
    assert r.out == b"65534\n65534\n" and (d / "new").stat().st_uid == permitted
    r = cloche.run(["run", "-v", f"{d}:/data:ro", "sh", "-c", "cat /data/theirs; echo x >/data/x"], **with_it)
    assert r.out == b"t" and b"Read-only file system" in r.err
    r = cloche.run(["run", "-v", "/etc:/data:ro", "true"], json=False, **with_it)
    shape.plain_error(r, 125, "refused by the service", "never root's", "--direct")


@pytest.mark.needs("venv")
def test_venv_of_ones_own(permitted, reachable):
    venv = reachable / "venv"
    subprocess.run(["/usr/bin/python3", "-m", "venv", "--without-pip", venv], check=True)
    (next(venv.glob("lib/python3*/site-packages")) / "ours.py").write_text("answer = 42\n")
    subprocess.run(["chown", "-R", f"{permitted}:{permitted}", venv], check=True)
    r = cloche.run(["python", "--venv", venv, "-c", "import ours, sys; print(ours.answer, sys.prefix); open(ours.__file__, 'a')"],
                   uid=permitted, env=NO_HOME, cwd="/")
    shape.exited(r, 1)
    assert r.out == f"42 {venv}\n".encode() and b"Read-only file system" in r.err


# ------------------------------------------------------------------------------------------------- many, and the worst


def test_two_at_once():
    def one(i):
        return cloche.run(["run", "--timeout", "20s", "sh", "-c", f"echo {i}; cat; exit {i}"], stdin=bytes([i]) * 300_000)
    for i, r in enumerate(contract.at_once(one, range(4))):
        shape.exited(r, i) if i else shape.exited(r, 0)
        assert r.output["stdout"]["bytes"] == 300_002 and r.out.startswith(b"%d\n" % i)


def test_service_that_goes_away():
    """125, the run's id, how to read its result, and it is there; nothing is run twice."""
    with services.Service() as one:
        p = cloche.start(["run", "--timeout", "30s", "sh", "-c", "echo begun; exec sleep 1"], env={"CLOCHE_SOCKET": one.sock})
        assert p.stdout.readline() == b"begun\n"
        cloched = one.running("cloched")
        os.kill(cloched[0], signal.SIGKILL)
        out, err = p.communicate(timeout=20)
        assert p.returncode == 125 and out == b""
        found = re.fullmatch(rb"cloche: the service at (\S+) was lost during (run_[0-9a-f]{32}) .*it is not run again; its result: "
                             rb"curl --unix-socket \1 http://localhost/v1/runs/\2\n", err)
        assert found, err
        one.wait_ready()
        run = found[2].decode()
        row = contract.until(lambda: (r := one.root.get(f"/v1/runs/{run}"))["state"] == "ended" and r, 15, "its end")
        assert row["result"]["reason"] in ("exited", "lost", "cancelled") and len(one.root.get("/v1/runs")["runs"]) == 1


def test_answers_that_make_no_sense(tmp_path):
    """Never a made-up result."""
    import socket
    import threading
    answers = [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n{}\n",
               b'HTTP/1.1 200 OK\r\nContent-Length: 40\r\n\r\n{"type":"exited","result":{"reason":"x"}}\n'[:-1]]
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(str(tmp_path / "s"))
        s.listen()

        def serve():
            for answer in answers:
                c, _ = s.accept()
                with c:
                    c.recv(65536)
                    c.sendall(answer)
        thread = threading.Thread(target=serve)
        thread.start()
        for _ in answers:
            r = cloche.run(["run", "true"], env={"CLOCHE_SOCKET": str(tmp_path / "s")}, json=False)
            shape.plain_error(r, 125, "not run again")
        thread.join()
