# SPDX-License-Identifier: Apache-2.0
"""The command line against the real service. What only a lying service would say is in test_cli_hostile.py."""
import contextlib
import json
import os
import pty
import select
import signal
import tempfile
import time

import cloche
import pytest
import service as services


@pytest.fixture(scope="module")
def cli(service):
    """cli("ls", "--all") runs cloche with this service; a Result."""
    def call(*args, stdin=b"", **env):
        return cloche.run(list(args), stdin=stdin, json=False, env={"CLOCHE_SOCKET": service.sock, **env})
    return call


@pytest.fixture
def made(cli):
    """made("--memory", "64m") makes a sandbox by the command line and ends it after the test; its id."""
    ids = []

    def make(*options):
        r = cli("create", *options)
        assert r.returncode == 0 and r.stdout.startswith(b"sbx_") and r.stderr == b"", r
        ids.append(r.stdout.decode().strip())
        return ids[-1]
    yield make
    if ids:
        cli("kill", *ids)


def ok(r, out=None, err=b""):
    assert r.returncode == 0 and r.stderr == err and (out is None or r.stdout == out), r
    return r


def rows(r):
    return [line.split() for line in ok(r).stdout.decode().splitlines()[1:]]


# -------------------------------------------------------------------------------------------------- sandboxes


def test_life_of_a_sandbox(cli, made):
    one = made("-l", "kind=test", "-l", "n=1", "--memory", "64m")
    assert [r[:2] for r in rows(cli("ls", "--label", "n=1"))] == [[one, "running"]]
    assert rows(cli("ls", "--label", "n=2")) == []
    ok(cli("pause", one), one.encode() + b"\n")
    assert [r[:2] for r in rows(cli("ls", "--state", "paused"))] == [[one, "paused"]]
    ok(cli("resume", one))
    before = json.loads(cli("ls", "--json", "--label", "n=1").stdout)["sandboxes"][0]
    assert before["limits"]["memory"] == 64 << 20 and before["labels"] == {"kind": "test", "n": "1"}
    after = json.loads(ok(cli("renew", one, "--timeout", "5h", "--json")).stdout)
    assert after["id"] == one and after["expires_at"] > before["expires_at"]
    ok(cli("kill", one), one.encode() + b"\n")
    ok(cli("kill", one))  # again: the same
    assert rows(cli("ls", "--label", "n=1")) == []
    assert [r[:3] for r in rows(cli("ls", "--all", "--label", "n=1"))] == [[one, "ended:", "killed"]]


def test_no_such_sandbox(cli):
    for args in (["exec", "ID", "true"], ["ps", "ID"], ["logs", "ID"], ["pause", "ID"], ["kill", "ID"], ["cp", "ID:/tmp/x", "/tmp/x"],
                 ["cp", "/etc/hostname", "ID:x"], ["renew", "ID", "--timeout", "1h"], ["exec", "-i", "ID", "true"]):
        r = cli(*[a.replace("ID", "sbx_" + 32 * "0") for a in args])
        assert r.returncode == 125 and r.stderr.startswith(b"cloche: ") and b"no such sandbox" in r.stderr, r


def test_options_of_create_reach_it(cli, made):
    one = made("--tmpfs", "/data:size=1m", "-e", "COLOUR=blue", "-w", "/data", "--hostname", "bell", "--profile", "dev")
    r = ok(cli("exec", one, "sh", "-c", "pwd; hostname; echo $COLOUR; df -k /data | tail -1"))
    assert r.stdout.split()[:3] == [b"/data", b"bell", b"blue"] and r.stdout.split()[4] == b"1024"


def test_a_refused_option_says_why(cli):
    r = cli("create", "--memory", "1k")
    assert r.returncode == 2 and b"--memory" in r.stderr
    r = cli("create", "--timeout", "soon")
    assert r.returncode == 125 and b"timeout" in r.stderr, r


@pytest.mark.needs("root")
def test_a_volume_is_passed_as_a_descriptor(cli, made):
    """Not below any root that the operator allowed by path, by descriptor; root's own are refused, and that is said."""
    with tempfile.TemporaryDirectory(prefix="clo-volume.") as folder:
        with open(os.path.join(folder, "mark"), "w") as f:
            f.write("here")
        r = cli("create", "-v", f"{folder}:/data:ro")
        assert r.returncode == 125 and b"/data" in r.stderr, r
        r = cli("create", "-v", f"{folder}/none:/data:ro")
        assert r.returncode == 125 and b"No such file" in r.stderr, r
        os.chown(folder, cloche.NOBODY, cloche.NOBODY)
        os.chmod(folder, 0o700)
        with services.Service(service={"socket_group": "nogroup"}) as s:
            who = {"env": {"CLOCHE_SOCKET": s.sock}, "uid": cloche.NOBODY, "json": False}
            one = cloche.run(["create", "-v", f"{folder}:/data:ro", "-v", f"{folder}:/more"], **who).stdout.decode().strip()
            ok(cloche.run(["exec", one, "cat", "/data/mark"], **who), b"here")
            assert cloche.run(["exec", one, "touch", "/data/new"], **who).returncode == 1
            ok(cloche.run(["exec", one, "touch", "/more/new"], **who))
            assert sorted(os.listdir(folder)) == ["mark", "new"]
            assert os.stat(os.path.join(folder, "new")).st_uid == cloche.NOBODY
            ok(cloche.run(["kill", one], **who))


# ------------------------------------------------------------------------------------------------------- exec


@pytest.fixture(scope="module")
def box(cli):
    r = cli("create", "--memory", "256m", "--profile", "dev", "--cpus", "1")
    assert r.returncode == 0, r
    one = r.stdout.decode().strip()
    yield one
    cli("kill", one)


def test_exec_passes_bytes_and_status(cli, box):
    ok(cli("exec", box, "echo", "hi"), b"hi\n")
    r = cli("exec", box, "--", "sh", "-c", "printf 'a\\000\\377b'; printf e >&2; exit 7")
    assert (r.returncode, r.stdout, r.stderr) == (7, b"a\0\xffb", b"e")
    r = cli("exec", box, "sh", "-c", "kill -SEGV $$")
    assert r.returncode == 139 and r.stderr.startswith(b"cloche: "), r


@pytest.mark.parametrize("args, status, word", [
    (["nosuchcommand"], 127, b"nosuchcommand"), (["/etc/passwd"], 126, b"/etc/passwd"), (["--timeout", "1s", "sleep", "9"], 124, b"1 s"),
])
def test_exec_ends(cli, box, args, status, word):
    r = cli("exec", box, *args)
    assert r.returncode == status and r.stderr.startswith(b"cloche: ") and word in r.stderr, r
    assert cli("exec", "--json", box, *args).returncode == status
    ok(cli("exec", box, "echo", "alive"), b"alive\n")


def test_exec_json_is_the_result(cli, box):
    r = cli("exec", "--json", box, "sh", "-c", "echo x; exit 3")
    j = json.loads(r.stdout)
    assert r.returncode == 3 and (j["reason"], j["exit_code"], j["stdout"], j["sandbox"]) == ("exited", 3, "x\n", box)


def test_exec_of_code(cli, box, tmp_path):
    (tmp_path / "f.py").write_text("import sys; print(sys.argv[1:], sys.stdin.read())")
    ok(cli("exec", box, "--language", "python", "-c", "import sys; print(6 * 7, sys.argv[1:])", "-v"), b"42 ['-v']\n")
    ok(cli("exec", box, "--language", "bash", "-", stdin="echo from stdin"), b"from stdin\n")


def test_exec_environment_and_folder(cli, box):
    ok(cli("exec", box, "-e", "A=b", "-w", "/tmp", "sh", "-c", "echo $A; pwd"), b"b\n/tmp\n")


def test_output_is_capped_with_a_remark(cli, box):
    r = cli("exec", box, "--max-output", "1000", "sh", "-c", "head -c 5000 /dev/zero")
    assert r.returncode == 0 and r.stdout == bytes(1000) and r.stderr == b"cloche: stdout truncated: kept 1000 of 5000 bytes\n", r


def test_stdin_goes_through(cli, box):
    data = os.urandom(300_000)
    ok(cli("exec", "-i", box, "sh", "-c", "cat > /tmp/in; wc -c < /tmp/in", stdin=data), b"300000\n")
    ok(cli("exec", "-i", box, "cat", stdin=b"\0\xff" * 10000), b"\0\xff" * 10000)
    r = cli("exec", "-i", box, "sh", "-c", "exit 5", stdin=data)  # never reads
    assert (r.returncode, r.stderr) == (5, b"")
    ok(cli("ps", "--started", box))
    assert rows(cli("ps", "--started", box)) == []  # forgotten afterwards


def test_interrupted_commands_are_gone(cli, service, box):
    for options in ([], ["-i"]):
        p = cloche.start(["exec", *options, box, "sh", "-c", "echo ready; exec sleep 4321"], env={"CLOCHE_SOCKET": service.sock})
        assert p.stdout.readline() == b"ready\n"
        p.send_signal(signal.SIGINT)
        assert p.wait(10) == 130, options
        p.communicate()
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline and b"4321" in cli("ps", box).stdout:
            time.sleep(0.02)
        assert b"4321" not in cli("ps", box).stdout, options


class Terminal:
    """cloche on a terminal of its own; read(word) until it is there."""

    def __init__(self, service, *args):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            env = cloche.environment({"CLOCHE_SOCKET": service.sock, "TERM": "xterm"})
            os.execve(cloche.binary(), [cloche.binary(), *args], env)
        self.got = b""

    def read(self, word, seconds=15):
        until = time.monotonic() + seconds
        while word not in self.got and time.monotonic() < until:
            if select.select([self.fd], [], [], 0.1)[0]:
                try:
                    self.got += os.read(self.fd, 65536)
                except OSError:
                    break
        assert word in self.got, self.got
        self.got = self.got.partition(word)[2]

    def write(self, keys):
        os.write(self.fd, keys)

    def end(self):
        with contextlib.suppress(OSError):
            while os.read(self.fd, 65536):
                pass
        os.close(self.fd)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def test_a_shell_on_a_terminal(service, box):
    import fcntl
    import struct
    import termios
    t = Terminal(service, "exec", "-it", box, "bash", "--norc")
    fcntl.ioctl(t.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 31, 91, 0, 0))
    os.kill(t.pid, signal.SIGWINCH)
    t.write(b"tty; echo $TERM=$((40+2))\n")
    t.read(b"/dev/pts/")
    t.read(b"xterm=42")
    t.write(b"stty size; echo size$((1+1))\n")
    t.read(b"31 91")
    t.read(b"size2")
    t.write(b"sleep 1000\n")
    t.read(b"sleep 1000")
    time.sleep(0.2)  # bash has to have started it; there is nothing here that would say so
    t.write(b"\x03")
    t.write(b"echo still$((1+1))\n")
    t.read(b"still2")
    t.write(b"exit 6\n")
    assert t.end() == 6


# ------------------------------------------------------------------------------------------------- ps and logs


def test_ps_and_logs(cli, service, box):
    one = service.root.expect(201, "POST", f"/v1/sandboxes/{box}/processes",
                              json={"command": ["sh", "-c", "echo out; echo err >&2; exec sleep 1234"]}, check=False).json["id"]
    p = cloche.start(["logs", "-f", box, one], env={"CLOCHE_SOCKET": service.sock})
    assert p.stdout.readline() == b"out\n" and p.stderr.readline() == b"err\n"
    inside = [r for r in rows(cli("ps", box)) if "1234" in r]
    assert len(inside) == 1 and inside[0][6] == one, inside
    assert [(r[0], r[2]) for r in rows(cli("ps", "--started", box))] == [(one, "running")]
    ok(cli("logs", box), b"out\n", b"err\n")
    ok(cli("logs", one), b"out\n", b"err\n")
    service.root.expect(204, "POST", f"/v1/sandboxes/{box}/processes/{one}/signal", json={"signal": "TERM"})
    assert p.wait(10) == 0
    p.communicate()
    assert [r[2:4] for r in rows(cli("ps", "--started", box))] == [["exit", "143"]]
    service.root.expect(204, "DELETE", f"/v1/sandboxes/{box}/processes/{one}")


# ---------------------------------------------------------------------------------------------------------- cp


def test_files_both_ways(cli, box, tmp_path):
    data = os.urandom(3_000_000)
    (tmp_path / "f").write_bytes(data)
    (tmp_path / "run.sh").write_text("#!/bin/sh\necho ran\n")
    (tmp_path / "run.sh").chmod(0o755)
    ok(cli("cp", tmp_path / "f", f"{box}:f"))
    ok(cli("cp", tmp_path / "run.sh", f"{box}:/workspace"))
    ok(cli("exec", box, "./run.sh"), b"ran\n")
    ok(cli("cp", f"{box}:f", tmp_path / "g"))
    assert (tmp_path / "g").read_bytes() == data
    ok(cli("cp", f"{box}:f", "-"), data)
    ok(cli("cp", "-", f"{box}:/tmp/piped", stdin=data))
    ok(cli("exec", box, "cmp", "f", "/tmp/piped"))
    r = cli("cp", f"{box}:/no/such/file", tmp_path)
    assert r.returncode == 125 and b"/no/such/file" in r.stderr
    r = cli("cp", f"{box}:/proc/self/environ", tmp_path)
    assert r.returncode == 125 and sorted(os.listdir(tmp_path)) == ["f", "g", "run.sh"], r


def test_a_folder_that_is_not_all_readable(cli, box, tmp_path):
    ok(cli("exec", box, "sh", "-c", "mkdir half; echo 1 >half/a; echo 2 >'half/b c'; chmod 0 'half/b c'"))
    r = cli("cp", f"{box}:half", tmp_path / "half")
    assert (r.returncode, r.stderr) == (1, b"cloche: left out: b c: it cannot be read\n")
    assert [(p.name, p.read_bytes()) for p in (tmp_path / "half").iterdir()] == [("a", b"1\n")]
    r = cli("cp", f"{box}:half", "-")
    assert r.returncode == 1 and b"b c" in r.stderr and b"1\n" in r.stdout


def test_folders_both_ways(cli, box, tmp_path):
    src = tmp_path / "src"
    (src / "a" / ("deep" * 50)).mkdir(parents=True)
    (src / "a" / ("deep" * 50) / "é x").write_bytes(b"1" * 5000)
    (src / "empty").mkdir()
    (src / "zero").touch()
    ok(cli("cp", src, f"{box}:/workspace/tree"))
    ok(cli("cp", f"{box}:tree", tmp_path / "back"))
    found = {str(p.relative_to(tmp_path / "back")) for p in (tmp_path / "back").rglob("*")}
    assert found == {str(p.relative_to(src)) for p in src.rglob("*")}
    assert (tmp_path / "back" / "a" / ("deep" * 50) / "é x").read_bytes() == b"1" * 5000
    ok(cli("cp", src, f"{box}:/workspace/tree"))  # is there now: below it
    ok(cli("exec", box, "test", "-f", "tree/src/zero"))
    ok(cli("cp", f"{src}/.", f"{box}:/workspace/tree"))
    ok(cli("exec", box, "test", "-f", "tree/zero"))
    tar = ok(cli("cp", f"{box}:tree", "-")).stdout
    ok(cli("exec", box, "mkdir", "other"))
    ok(cli("cp", "-", f"{box}:other", stdin=tar))
    ok(cli("exec", box, "test", "-f", "other/src/zero"))


def test_what_a_sandbox_left_to_harm_the_host(cli, box, tmp_path):
    """Links out of the folder, a terminal's escapes in a name, a fifo: nothing outside is touched, and it is said."""
    code = ("import os; os.makedirs('evil'); os.chdir('evil'); os.symlink('/etc', 'etc'); os.symlink('..', 'up'); os.mkfifo('fifo')\n"
            "open('\\x1b[2J', 'w'); open('new\\nline', 'w'); open('fine', 'w').write('x')")
    ok(cli("exec", box, "--language", "python", "-c", code))
    r = cli("cp", f"{box}:evil", tmp_path / "out")
    assert r.returncode == 1 and b"\x1b" not in r.stderr and r.stderr.count(b"left out: ") >= 4, r
    assert os.listdir(tmp_path / "out") == ["fine"]


# -------------------------------------------------------------------------------------------- watching and keys


def test_events(cli, made, service):
    p = cloche.start(["events", "-f", "--json"], env={"CLOCHE_SOCKET": service.sock})
    time.sleep(0.3)  # it has to be listening; its first line is not shown
    one = made()
    while True:
        event = json.loads(p.stdout.readline())
        if event["type"] == "sandbox.created" and event["sandbox"] == one:
            break
    p.send_signal(signal.SIGTERM)
    p.communicate(timeout=10)
    r = ok(cli("events", "--sandbox", one))
    assert b"sandbox.created" in r.stdout and r.seconds < 5, r
    assert ok(cli("events", "--sandbox", one, "--since", str(event["seq"]))).stdout == b""


def test_audit(cli, made):
    one = made()
    after = json.loads(cli("audit", "--json", "--limit", "1").stdout)["rows"][0]["seq"]
    assert one.encode() in b"".join(cli("audit", "--after", str(n), "--limit", "1000").stdout for n in range(after, after + 10000, 1000))
    r = cli("audit", "verify")
    if os.geteuid() == 0:
        assert r.returncode == 0 and b"unbroken" in r.stdout, r


def test_top(cli, box):
    assert any(r[0] == box for r in rows(cli("top", "--once")))


@pytest.mark.needs("root")
def test_keys_work_until_revoked(cli, service):
    r = cli("key", "create", "mine", "--quota", "sandboxes=1")
    secret = r.stdout.decode().strip()
    key = r.stderr.decode().split()[2].strip(";")
    assert r.returncode == 0 and secret.startswith("clk_")
    here = {"CLOCHE_SOCKET": f"http://127.0.0.1:{service.port}", "CLOCHE_API_KEY": secret}
    one = ok(cli("create", **here)).stdout.decode().strip()
    assert [r[0] for r in rows(cli("ls", **here))] == [one]
    r = cli("create", **here)
    assert r.returncode == 125, r
    ok(cli("exec", one, "echo", "hi", **here), b"hi\n")
    ok(cli("kill", one, **here))
    assert any(key in r[0] for r in rows(cli("key", "ls")))
    ok(cli("key", "revoke", key))
    r = cli("ls", **here)
    assert r.returncode == 125 and secret.encode() not in r.stderr, r


def test_check_of_the_configuration(service, tmp_path):
    r = cloche.run(["serve", "--check", "--config", service.config], json=False)
    assert r.returncode == 0, r
    (tmp_path / "bad.yaml").write_text("service:\n  bogus: 1\n")
    r = cloche.run(["serve", "--check", "--config", tmp_path / "bad.yaml"], json=False)
    assert r.returncode != 0 and b"bogus" in r.stdout + r.stderr, r
