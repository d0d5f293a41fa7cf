# SPDX-License-Identifier: Apache-2.0
"""What only a machine of our own can be asked: it runs in the VM (test_service.py), beside chosen contract tests.
test_root__… and test_clock__… need root, test_user__… an ordinary user."""
import contextlib
import errno
import os
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import cloche
import contract
import egress
import proc
import pytest
import service as services

DAY_S = 86400
SLOW_S = 60  # an emulated processor on a busy machine
LIFE_S = 6


@pytest.fixture(scope="module")
def service():
    assert os.environ.get("CLOCHE_VM"), "these tests set clocks and kill services: in the VM only"
    with services.Service(seconds=SLOW_S) as one:
        yield one


@pytest.fixture
def boxes(service):
    made = []

    def make(**body):
        made.append(service.root.box(**body))
        return made[-1]
    yield make
    for box in made:
        service.root.request("DELETE", box.path)


def status_of(pid):
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.split() for name, _, value in (line.partition(":") for line in lines)}


def init_of(service, seconds):
    """The init of the sandbox in which `sleep SECONDS` runs."""
    for pid in service.processes():
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/cmdline").read_bytes() == b"sleep\0%s\0" % seconds.encode():
                while status_of(pid)["NSpid"][-1] != "1":
                    pid = int(status_of(pid)["PPid"][0])
                return pid
    return None


# ---------------------------------------------------------------------------------------------------------- everywhere


def test_the_limits_are_in_force_and_counted(boxes):
    box = boxes(memory="64m", pids_limit=20)
    assert contract.exited(box.sh("head -c 20000000 /dev/zero >/workspace/a; sleep 0 & wait")).ok
    o = box.object()
    enforced = {k: o["enforced"][k] for k in ("memory", "pids", "cpu")}
    assert enforced == dict.fromkeys(enforced, "cgroup-v1" if os.environ["CLOCHE_VM"] == "hybrid" else "cgroup-v2")
    assert o["enforced"]["rootless"] == (os.geteuid() != 0) and o["enforced"]["landlock"] == 2
    assert o["usage"].pop("network") is None and all(v is not None for v in o["usage"].values()), o["usage"]
    assert o["usage"]["memory_peak_bytes"] > 20000000 and o["usage"]["cpu_ms"] > 0


def test_cloched_has_no_privilege(service):
    """And as root not root's user either."""
    status = status_of(service.child("cloched"))
    assert status["NoNewPrivs"] == ["1"] and status["Seccomp"] == ["2"] and int(status["CapEff"][0], 16) == 0
    assert (os.geteuid() == 0) == (str(os.geteuid()) not in status["Uid"])


def test_many_at_once_on_a_service_that_has_just_begun():
    """The first creation makes the cgroup they all lie in."""
    with services.Service(seconds=SLOW_S) as s:
        made = contract.at_once(lambda i: s.root.box(memory="48m"), range(6))
        assert [b.object()["state"] for b in made] == ["running"] * 6


def test_network_by_name_changed_and_gone():
    """What is allowed passes, by the proxy and caught; what is not is told; other rules hold at once; nothing stays."""
    names = {"resolve": {"allowed.test": ["127.0.0.1"], "other.test": ["127.0.0.1"]}}
    with egress.Server(egress.http_echo) as web, services.Service(policy={"network_private": ["127.0.0.0/8"]}, more=names,
                                                                  seconds=SLOW_S) as s:
        def rule(name):
            return f"{name}.test:{web.port} within=127.0.0.0/8"

        def fetch(name, *how):
            return ["curl", "-sSf", "-m", str(SLOW_S), *how, f"http://{name}.test:{web.port}/"]
        box = s.root.box(network="allow", allow=[rule("allowed")])
        assert box.expect(200, "GET", "/network").json["capture"] == "redirect"
        for how in [], ["--noproxy", "*"]:
            assert contract.exited(box.exec(fetch("allowed", *how))).ok
            r = box.exec(fetch("other", *how))
            assert (r.error_code, [d["host"] for d in r.network["denied"]]) == ("SANDBOX_NETWORK_DENIED", ["other.test"]), r
        box.expect(200, "PUT", "/network", json={"mode": "allow", "allow": [rule("other")]})
        assert contract.exited(box.exec(fetch("other"))).ok
        assert box.exec(fetch("allowed")).error_code == "SANDBOX_NETWORK_DENIED"
        assert len(web.received) == 3
        assert box.kill()["reason"] == "killed"


def test_root__disk(boxes):
    """mkfs and loop devices; what does not fit is the command's error and nobody's memory."""
    box = boxes(disk="16m", memory="32m")
    r = contract.exited(box.sh("cd /workspace; head -c 10000000 /dev/zero >a && rm a; head -c 20000000 /dev/zero >b; echo $?"))
    assert r.out == b"1\n" and b"No space left" in r.err
    assert box.object()["limits"]["disk"] == 16 << 20


@pytest.mark.parametrize("name", ["cloched", "cloche-spawner", "cloche-serve"])
def test_killed_and_adopted(service, boxes, name):
    box = boxes()
    box.put("/workspace/kept", b"kept")
    process = box.start(["sleep", "1000"])
    if name == "cloche-serve":
        service.process.kill()
        service.process.wait()
        service.start(SLOW_S)
    else:
        old = service.child(name)
        os.kill(old, signal.SIGKILL)
        contract.until(lambda: service.child(name) not in (None, old), SLOW_S, "the next one")
    service.wait_ready(SLOW_S)
    contract.until(lambda: service.root.request("GET", box.path).status == 200, SLOW_S)
    contract.until(lambda: box.request("GET", "/processes").status == 200, SLOW_S)
    assert process.object()["running"] is True
    assert contract.exited(box.exec(["cat", "/workspace/kept"])).out == b"kept"
    assert box.pause()["state"] == "paused" and box.resume()["state"] == "running"
    assert box.object()["usage"]["cpu_ms"] > 0
    assert box.kill()["reason"] == "killed"


def test_init_killed(service, boxes):
    box = boxes()
    box.start(["sleep", "777.25"])
    os.kill(contract.until(lambda: init_of(service, "777.25"), SLOW_S, "the command"), signal.SIGKILL)
    assert contract.ended(box, SLOW_S)["reason"] == "runtime_crash"


@pytest.mark.parametrize("uid, delegated, words", [(1000, False, "not delegated"), (2000, True, "/etc/subuid")])
def test_root__who_lacks_something_is_told_at_once(uid, delegated, words):
    """`cloche serve` of a user who can have no sandboxes ends with cause and remedy."""
    home, place, enter = tempfile.mkdtemp(dir="/tmp"), Path("/sys/fs/cgroup", f"of{uid}"), ""
    os.chown(home, uid, uid)
    if os.environ["CLOCHE_VM"] == "hybrid":
        words = "cgroup v1 host"
    elif delegated:
        place.mkdir()
        for f in "", "cgroup.procs", "cgroup.subtree_control":
            os.chown(place / f, uid, uid)
        enter = f"echo 0 >{place}/cgroup.procs; "
    r = subprocess.run(["sh", "-c", f'{enter}exec setpriv --reuid={uid} --regid={uid} --clear-groups "$0" serve', cloche.binary()],
                       env={"PATH": os.environ["PATH"], "HOME": home, "XDG_RUNTIME_DIR": home}, timeout=SLOW_S,
                       capture_output=True, text=True)
    assert r.returncode == 1 and r.stderr.startswith("cloche serve: ") and r.stderr.count("\n") == 1, r
    assert words in r.stderr, r.stderr


# --------------------------------------------------------------------------------------------------- the machine's clock


@pytest.fixture
def clock():
    """clock(seconds) sets the machine's clock so much on. Afterwards it is right again."""
    right = time.clock_gettime(time.CLOCK_REALTIME) - time.clock_gettime(time.CLOCK_MONOTONIC)

    def by(seconds):
        time.clock_settime(time.CLOCK_REALTIME, time.time() + seconds)
    yield by
    time.clock_settime(time.CLOCK_REALTIME, right + time.clock_gettime(time.CLOCK_MONOTONIC))


@pytest.mark.parametrize("step, restart", [(DAY_S, False), (DAY_S, True), (-DAY_S, True)],
                         ids=["on", "on, cloched killed", "back, cloched killed"])
def test_clock__lives_of_sandboxes(service, boxes, clock, step, restart):
    """Lives are as long as they were given, and what is told of them is true on the new clock."""
    lasting, began = boxes(timeout=3600), time.monotonic()
    created = lasting.object()["created_at"]
    short, idle = boxes(timeout=LIFE_S), boxes(idle_timeout=LIFE_S)
    clock(step)
    if restart:
        os.kill(service.child("cloched"), signal.SIGKILL)
        contract.until(lambda: service.child("cloched"), SLOW_S)
        service.wait_ready(SLOW_S)
    states = [b.object()["state"] for b in (lasting, short, idle)]
    if time.monotonic() - began < LIFE_S:
        assert states == ["running"] * 3
    for box, reason in (short, "timeout"), (idle, "idle_timeout"):
        assert contract.ended(box, SLOW_S)["reason"] == reason
        assert LIFE_S <= time.monotonic() - began < LIFE_S + SLOW_S
    o = lasting.object()
    assert o["state"] == "running" and o["created_at"] == created
    left = contract.stamp(o["expires_at"]) - time.time()
    assert abs(left - (3600 - (time.monotonic() - began))) < 5, (left, o)
    assert abs(contract.stamp(lasting.renew(timeout=60)["expires_at"]) - time.time() - 60) < 5


@pytest.mark.parametrize("step", [DAY_S, -DAY_S], ids=["on", "back"])
def test_clock__a_command_at_work(service, boxes, clock, step):
    box = boxes()
    process = box.start(["sleep", "1000"], timeout=4)
    began = time.monotonic()
    clock(step)
    assert process.object()["running"] or time.monotonic() - began > 4
    assert process.wait()["signal"] == signal.SIGKILL and 3.9 < time.monotonic() - began < SLOW_S
    r = box.exec(["sleep", "0.2"])
    assert r.reason == "exited" and 0 < r.usage["wall_ms"] < SLOW_S * 1000


# ---------------------------------------------------------------------------------------------- an ordinary user's service


@pytest.fixture(scope="module")
def own():
    """`cloche serve` without a configuration: everything where a user's programs have it."""
    with open("/tmp/serve.log", "wb") as log:
        p = subprocess.Popen([cloche.binary(), "serve"], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                             env=cloche.environment(), start_new_session=True)
    sock = Path(os.environ["XDG_RUNTIME_DIR"], "cloche", "cloche.sock")
    client = services.Client(str(sock))

    def answers():
        with contextlib.suppress(OSError):
            return client.request("GET", "/healthz").status == 200
    try:
        contract.until(answers, SLOW_S, "the service")
        yield sock
    finally:
        p.terminate()
        p.wait(SLOW_S)


def cli(*args, **kw):
    return cloche.run(list(args), json=False, timeout=2 * SLOW_S, **kw)


def test_user__the_command_line_finds_it(own):
    made = cli("create", "--memory", "64m")
    assert made.returncode == 0, made
    box = made.out.decode().strip()
    r = cli("exec", box, "--", "id", "-u")
    assert (r.returncode, r.out) == (0, b"65534\n"), r
    assert box in cli("ls").out.decode()
    assert cli("kill", box).returncode == 0
    assert cli("exec", box, "--", "true").returncode == 125


@pytest.mark.parametrize("place", ["own", "service"])
def test_user__another_user_is_refused_at_the_socket(request, place):
    """One of the user's own subordinate ids is another user to the kernel."""
    found = request.getfixturevalue(place)
    sock = str(found) if place == "own" else found.sock
    code = ("import os, socket, sys; s = socket.socket(socket.AF_UNIX); "
            "print(os.getuid(), s.connect_ex(sys.argv[1]))")
    ask = ["python3", "-c", code, sock]
    other = ["unshare", "-U", "--map-auto", "--map-root-user", "setpriv", "--reuid=5", "--regid=5", "--clear-groups"]
    assert subprocess.run(ask, capture_output=True, text=True).stdout.split() == ["1000", "0"]
    r = subprocess.run([*other, *ask], capture_output=True, text=True)
    assert r.stdout.split() == ["5", str(errno.EACCES)], r


def test_user__ids_inside_are_the_users_subordinate_ones(service, boxes):
    box = boxes()
    box.start(["sleep", "888.5"])
    init = contract.until(lambda: init_of(service, "888.5"), SLOW_S, "the command")
    sleeper = [p for p in service.processes() if proc.command(p) == ["sleep", "888.5"]]
    assert 100000 <= int(status_of(sleeper[0])["Uid"][0]) < 165536
    assert status_of(init)["NoNewPrivs"] == ["1"]


@pytest.mark.parametrize("body, words", [({"disk": "64m"}, "ordinary user"), ({"volume": ["/srv/w:/v:rw"]}, "ordinary user"),
                                         ({"volume": ["/etc:/v:ro"]}, "volume_roots")], ids=["disk", "writable", "etc"])
def test_user__what_an_ordinary_user_cannot_give_is_refused(service, body, words):
    folder = service.folder / "volumes/w"
    folder.mkdir(exist_ok=True)
    body = {k: [s.replace("/srv/w", str(folder)) for s in v] if k == "volume" else v for k, v in body.items()}
    r = service.root.request("POST", "/v1/sandboxes", json=body)
    assert 400 <= r.status < 500 and words in r.json["detail"], r


def test_user__a_volume_to_read(service, boxes):
    folder = service.folder / "volumes" / "read"
    folder.mkdir()
    (folder / "file").write_text("data")
    box = boxes(volume=[f"{folder}:/v:ro"])
    assert contract.exited(box.exec(["cat", "/v/file"])).out == b"data"
    assert b"Read-only" in box.exec(["touch", "/v/new"]).err


def test_user__adopted_by_a_service_in_another_scope():
    """A terminal was closed, and the service is started from the next one."""
    with services.Service(seconds=SLOW_S) as s:
        box = s.root.box()
        box.put("/workspace/kept", b"kept")
        own = Path("/sys/fs/cgroup" + Path(f"/proc/{s.process.pid}/cgroup").read_text().strip().partition("::")[2]).parent
        s.process.kill()
        s.process.wait()
        place = own.parent / "another.scope"
        place.mkdir()
        (place / "cgroup.procs").write_text("0")
        try:
            s.start(SLOW_S)
        finally:
            (own / "supervisor" / "cgroup.procs").write_text("0")
        assert str(place)[len("/sys/fs/cgroup"):] in Path(f"/proc/{s.process.pid}/cgroup").read_text()
        assert contract.exited(box.exec(["cat", "/workspace/kept"])).out == b"kept"
        assert box.pause()["state"] == "paused"
        assert [(d / "cgroup.events").read_text().splitlines()[1] for d in own.glob("[0-9]*-*")].count("frozen 1") == 1
        assert box.resume()["state"] == "running" and box.object()["usage"]["pids"] is not None
        new = s.root.box()
        assert list(place.glob("[0-9]*-*")) and new.object()["state"] == "running"
        assert [box.kill()["reason"], new.kill()["reason"]] == ["killed"] * 2
        contract.until(lambda: not [*own.glob("[0-9]*-*"), *place.glob("[0-9]*-*")], what="the end of the cgroups")
