# SPDX-License-Identifier: Apache-2.0
"""Prepared sandboxes: who gets one and who does not, that each is used once, and that nobody can tell the difference."""
import contextlib
import os
import re
import signal
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cloche
import contract
import proc
import pytest
import service as services
from test_faults import init_of

PYTHON = {"language": "python", "code": "print(1)"}


def metric(client, name):
    found = re.search(rf"^{re.escape(name)} (\S+)$", client.expect(200, "GET", "/metrics").body.decode(), re.M)
    assert found, name
    return float(found[1])


def hits(client):
    return metric(client, "cloche_pool_hits_total"), metric(client, "cloche_pool_interpreter_hits_total")


def run(client, **body):
    return client.expect(200, "POST", "/v1/runs", json=body, timeout=60).json


def prepared(client, count=1):
    contract.until(lambda: metric(client, "cloche_pool_ready") >= count, 20)


def settled(service, some=True, used=0):
    """What was asked for is prepared, what was used is gone: for three looks, as one leads to the other. some: the pool has not
    given up for a while. used: so many sandboxes are somebody's."""
    quiet = 0
    until = time.monotonic() + 30
    while quiet < 3:
        assert time.monotonic() < until, "the pool does not come to rest"
        ready, making, dying = (metric(service.root, f"cloche_{m}") for m in ("pool_ready", "pool_making", "sandboxes_dying"))
        folders = len(os.listdir(service.folder / "run" / "sandboxes"))
        quiet = quiet + 1 if (ready or not some) and not making and not dying and folders == ready + used else 0
        time.sleep(0.05)


@pytest.fixture(scope="module")
def pool():
    with services.Service({"pool": 4, "pool_floor": 2}) as one:
        yield one


@pytest.fixture
def fresh():
    """A service without a pool: what is compared with."""
    with services.Service({"pool": 0}) as one:
        yield one


def test_the_second_of_a_kind_finds_one_prepared(pool):
    before = hits(pool.root)
    run(pool.root, **PYTHON)
    prepared(pool.root, 2)
    result = run(pool.root, language="python", code="import sys; print(sys.argv, __name__)")
    assert result["stdout"] == "['-'] __main__\n"
    after = hits(pool.root)
    assert (after[0] - before[0], after[1] - before[1]) == (1, 1)


def sockets(pid):
    found = set()
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            found.add(os.readlink(fd))
    return {name for name in found if name.startswith("socket:")}


def test_what_waits_is_taken_by_the_conversation_that_prepared_it():
    """No connection has to be made for a run: the one that is there before it lasts through it, and no longer."""
    with services.Service({"pool": 1, "pool_floor": 1}) as one:
        pid = one.running("cloched")[0]
        before = sockets(pid)
        run(one.root, **PYTHON)
        settled(one)
        kept = sockets(pid) - before
        assert len(kept) == 1
        slow = threading.Thread(target=run, args=(services.Client(one.sock), ), kwargs={"language": "python", "code": "import time; time.sleep(2)"})
        slow.start()
        contract.until(lambda: metric(one.root, "cloche_pool_interpreter_hits_total") == 1, 20)
        time.sleep(0.5)
        assert kept <= sockets(pid)
        slow.join()
        settled(one)
        assert not kept & sockets(pid)


def test_RE_02_each_is_used_once(pool):
    """Ids, machine ids, boot of the interpreter: none is seen twice, and nothing that one leaves is found by another."""
    code = """
import os, pathlib, random, uuid
marks = [p for p in ("/tmp/mark", "/workspace/mark", "/dev/shm/mark", "/output/mark") if os.path.exists(p)]
for p in ("/tmp/mark", "/workspace/mark", "/dev/shm/mark"):
    pathlib.Path(p).write_text("here")
print(pathlib.Path("/etc/machine-id").read_text().strip(), random.random(), uuid.uuid4(), hash("a"), marks, os.getpid())
"""
    seen = [run(pool.root, language="python", code=code) for _ in range(12)]
    for result in seen:
        assert result["ok"] and result["stdout"].split()[4] == "[]", result
    for column in range(3):
        assert len({r["stdout"].split()[column] for r in seen}) == 12, f"column {column}"
    # Children of one zygote, this caller's, hash alike; where none was ready it was a new interpreter.
    assert len({r["stdout"].split()[3] for r in seen}) < 12
    new = [run(pool.root, language="python", code=code, fresh_interpreter=True) for _ in range(6)]
    assert len({r["stdout"].split()[3] for r in [seen[0], *new]}) == 7
    assert len({r["sandbox"] for r in seen}) == len({r["id"] for r in seen}) == 12


LEAVES = """
import os, pathlib, socket, subprocess
places = ["/tmp/mark", "/workspace/mark", "/dev/shm/mark"]
found = [p for p in places if os.path.exists(p)]
listener = socket.socket(socket.AF_UNIX)
try: listener.bind("\\0mark"); listener.listen()
except OSError: found.append("listener")
found += [c for p in os.listdir("/proc") if p.isdigit() for c in [open(f"/proc/{p}/cmdline").read()] if "sleep" in c]
print(found, flush=True)
for p in places: pathlib.Path(p).write_text("here")
subprocess.Popen(["sleep", "600"], start_new_session=True)
"""


@pytest.mark.parametrize("end, reason, more", [
    ("raise SystemExit(3)", "exited", {}), ("os.kill(os.getpid(), 9)", "signaled", {}), ("while True: pass", "timeout", {"timeout": 1}),
    ("b = [bytearray(b'x' * (1 << 20)) for _ in range(1000)]", "oom", {}),
    ("print('x' * 100000)", "output_limit", {"max_output": 1000, "on_output_limit": "kill"}),
], ids=["status", "signal", "timeout", "oom", "output"])
def test_RE_02_where_one_failed_nobody_runs(pool, end, reason, more):
    """Whatever ends it: a prepared sandbox that has seen code is never handed to another tenant, nor to the same one again."""
    a, b = pool.key("fails"), pool.key("comes next")
    for tenant in (a, b):
        run(tenant, **PYTHON)
    prepared(pool.root, 2)
    failed = run(a, language="python", code=LEAVES + end, **more)
    assert (failed["reason"], failed["ok"], failed["stdout"][:3]) == (reason, False, "[]\n"), failed
    before = hits(pool.root)[0]
    others = [run(t, language="python", code=LEAVES) for t in (b, a, b)]
    assert hits(pool.root)[0] > before, "none was a prepared one"
    assert [r["stdout"] for r in others] == ["[]\n"] * 3
    assert len({r["sandbox"] for r in [failed, *others]}) == 4


def test_RE_02_control(pool):
    """In one kept sandbox the second finds all that the first has left."""
    box = pool.root.box()
    assert box.python(LEAVES + "raise SystemExit(3)").out == b"[]\n"
    left = box.python(LEAVES).out.decode()
    box.kill()
    assert "/tmp/mark" in left and "/workspace/mark" in left and "/dev/shm/mark" in left and "sleep" in left


@pytest.mark.parametrize("different", [
    {"memory": "300m"}, {"cpus": "1.5"}, {"pids_limit": 33}, {"profile": "dev"}, {"hostname": "other"},
    {"tmpfs": ["/scratch:size=3m"]}, {"workdir": "/tmp"}, {"user": "1234:1234"},
], ids=lambda d: next(iter(d)))
def test_what_differs_is_another_kind(pool, different):
    """It is never given one of other limits: it gets what it asked for, made for it."""
    run(pool.root, **PYTHON)
    prepared(pool.root)
    before = hits(pool.root)
    result = run(pool.root, language="python", code="import os; print(os.getcwd(), os.getuid())", **different)
    assert result["ok"], result
    assert hits(pool.root) == before
    if "workdir" in different:
        assert result["stdout"].startswith("/tmp ")


def test_limits_of_the_command_are_its_own(pool):
    """What is no part of the kind is given to the one that waits: its clock begins when it is used."""
    run(pool.root, **PYTHON)
    prepared(pool.root)
    time.sleep(1.2)  # it has waited for longer than this one may run
    before = hits(pool.root)
    result = run(pool.root, language="python", code="import time; time.sleep(0.2); print('done')", timeout="1s")
    assert result["stdout"] == "done\n" and 190 < result["usage"]["wall_ms"] < 3000, result
    prepared(pool.root)
    result = run(pool.root, language="python", code="import time; time.sleep(60)", timeout="300ms")
    assert result["reason"] == "timeout" and result["timed_out"], result
    prepared(pool.root)
    result = run(pool.root, language="python", code="print('x' * 5000)", max_output="1000")
    assert result["output"]["stdout"] == {"bytes": 5001, "kept": 1000, "dropped": 4001} and result["limits_hit"] == ["output"]
    assert hits(pool.root)[1] - before[1] == 3


@pytest.mark.parametrize("more", [{"env": {"PYTHONUTF8": "0"}}, {"files": [{"path": "/tmp/.local/a.pth", "content": ""}]}],
                         ids=["env", "files"])
def test_what_an_interpreter_could_see_before_its_code(pool, more):
    """Then none that has started already will do, though its sandbox does."""
    run(pool.root, **PYTHON)
    prepared(pool.root)
    before = hits(pool.root)
    assert run(pool.root, **PYTHON, **more)["ok"]
    assert hits(pool.root)[1] == before[1]


def test_files_are_there_before_the_code(pool):
    run(pool.root, **PYTHON)
    prepared(pool.root)
    before = hits(pool.root)
    result = run(pool.root, language="python", code="import helper; print(helper.x)",
                 files=[{"path": "helper.py", "content": "x = 41 + 1"}])
    assert result["stdout"] == "42\n", result
    assert hits(pool.root)[1] - before[1] == 1


LANGUAGES = {
    "python": ["print(1)", "import sys; sys.exit(3)", "1/0", "import os; os.kill(os.getpid(), 15)", "syntax error(",
               "import sys; print(sys.stdin.read() == '')", "import atexit; atexit.register(print, 'bye')",
               "import threading, time\nthreading.Thread(target=lambda: (time.sleep(0.1), print('late'))).start()",
               "import subprocess; print(subprocess.run(['echo', 'x'], capture_output=True).stdout)",
               "print(bytearray(300 << 20)[:1])", "import os, sys; os.write(2, b'\\xff\\xfe'); os._exit(9)",
               "import os\nif os.fork() == 0:\n    import time; time.sleep(30)\nprint('left')",
               "import os; print(os.nice(0), os.getppid(), os.getsid(0) == os.getpid(), os.sched_getscheduler(0))",
               "import sys; print(sys.flags, sys.argv, sys.path, __name__, sys.executable)"],
    "bash": ["echo $0 $- $# $PWD; exit 4", "kill -9 $$", "cat; echo end", "nosuchcommand", "if", "trap 'echo t' EXIT",
             "sleep 30 & echo $((1 + 1))", "ulimit -a", "env | sort"],
    "node": ["console.log(1, process.argv, process.execArgv)", "process.exit(5)", "throw new Error('x')", "await 1", "(",
             "setTimeout(() => console.log('late'), 50)", "console.log(require('fs').readFileSync(0).length)",
             "import('os').then(o => console.log(o.EOL.length))", "console.log(module.paths, __filename)"],
}


@pytest.mark.parametrize("language", LANGUAGES)
def test_code_ends_as_it_would_in_a_new_interpreter(pool, fresh, language):
    """stdout, stderr and the end, of each script on a prepared interpreter and on one made for it."""
    def ends(client, code):
        r = run(client, language=language, code=code, memory="200m")
        return {k: r[k] for k in ("reason", "exit_code", "signal", "stdout", "stderr", "limits_hit", "oom_kills")}

    run(pool.root, language=language, code="", memory="200m")
    for code in LANGUAGES[language]:
        settled(pool)
        before = hits(pool.root)[1]
        mine = ends(pool.root, code)
        assert hits(pool.root)[1] - before == 1, code
        assert mine == ends(fresh.root, code), code


def test_one_that_has_died_while_it_waited(pool):
    """The code runs once, in a new interpreter in the same sandbox."""
    run(pool.root, language="bash", code="true", pids_limit=77)
    settled(pool)
    killed = [p for p in pool.processes() if proc.of(p, "cmdline").startswith("bash\0")]
    assert killed
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    contract.until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in killed), 5)
    result = run(pool.root, language="bash", code="echo once | tee -a /workspace/log; cat /workspace/log", pids_limit=77)
    assert result["stdout"] == "once\nonce\n" and result["ok"], result


def test_a_prepared_sandbox_that_has_died(pool):
    """What the spawner tells of it is no run's business."""
    run(pool.root, **PYTHON)
    prepared(pool.root, 2)
    settled(pool)
    old = set(os.listdir(pool.folder / "run" / "sandboxes"))
    inits = [p for p in pool.processes() if "memfd:cloche-in" in proc.name(p)]
    assert len(inits) >= 2
    for pid in inits:
        with contextlib.suppress(OSError):  # those of a nest die with it
            os.kill(pid, signal.SIGKILL)
    contract.until(lambda: not old & set(os.listdir(pool.folder / "run" / "sandboxes")), 20)
    assert run(pool.root, **PYTHON)["stdout"] == "1\n"
    # The zygote has died with its nest: there is another one, soon.
    contract.until(lambda: zygotes(pool) and metric(pool.root, "cloche_pool_ready") >= 2, 30)


def test_nobody_sees_them(pool):
    run(pool.root, **PYTHON)
    prepared(pool.root)
    settled(pool)
    folders = os.listdir(pool.folder / "run" / "sandboxes")
    assert folders
    for one in folders:
        assert pool.root.request("GET", f"/v1/sandboxes/{one}", check=False).status == 404
        assert pool.root.request("POST", f"/v1/sandboxes/{one}/exec", json={"command": ["true"]}, check=False).status == 404


def test_a_changed_configuration_and_age_and_memory(pool):
    run(pool.root, **PYTHON)
    prepared(pool.root)
    before = set(os.listdir(pool.folder / "run" / "sandboxes"))
    os.utime(pool.config)
    contract.until(lambda: not before & set(os.listdir(pool.folder / "run" / "sandboxes")), 20)
    prepared(pool.root)
    with services.Service({"pool": 8, "pool_floor": 8, "pool_memory": "12m"}) as small:
        run(small.root, **PYTHON, fresh_interpreter=True)
        contract.until(lambda: metric(small.root, "cloche_pool_dropped_total") > 0, 30)
        contract.until(lambda: metric(small.root, "cloche_pool_memory_bytes") <= 12 << 20, 30)
        assert run(small.root, **PYTHON)["ok"]


DEBIANS = "/usr/lib/python3/dist-packages"
PIPS = subprocess.run(["/usr/bin/python3", "-c", "import sys; print(f'/usr/local/lib/python3.{sys.version_info.minor}/dist-packages')"],
                      capture_output=True, text=True).stdout.strip()


class WithPackages(services.Service):
    """In a mount namespace with a folder of its own where Python's modules are: `packages`, which may change. No sandbox sees it."""
    def __init__(self, place, *args):
        self.place = place
        super().__init__(*args)

    def start(self, seconds=20):
        self.packages = self.folder / "packages"
        self.packages.mkdir(exist_ok=True)
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                ["unshare", "--mount", "--propagation", "private", "sh", "-ec", 'mount --bind "$1" "$2"\nshift 2\nexec "$@"',
                 "sh", self.packages, self.place, cloche.binary(), "serve", "--config", self.config],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=cloche.environment(), start_new_session=True, cwd="/")
        self.wait_ready(seconds)


def of_a_zygote(service, code):
    """What it prints, by a child of the zygote's that was prepared."""
    settled(service)
    before = metric(service.root, "cloche_pool_zygote_hits_total")
    result = run(service.root, language="python", code=code)
    assert metric(service.root, "cloche_pool_zygote_hits_total") == before + 1, result
    return result["stdout"].split()


def zygotes(service):
    return [p for p in service.processes() if is_python(p) and is_python(proc.parent(p))]


def change_policy(service):
    service.config.write_text(service.config.read_text().replace("policy:\n", "policy:\n  python_modules: [decimal]\n"))


ZYGOTE_IS = "import sys\nprint(hash('x'), 'decimal' in sys.modules)"


@pytest.mark.parametrize("change, place", [("policy", DEBIANS), ("packages", DEBIANS), ("packages", PIPS)])
def test_a_zygote_of_before_a_change_makes_no_more(change, place):
    """Another interpreter, with the modules of now; the old one ends."""
    with WithPackages(place, {"pool": 2, "pool_floor": 2}) as one:
        run(one.root, **PYTHON)
        old = {tuple(of_a_zygote(one, ZYGOTE_IS)) for _ in range(3)}
        assert len(old) == 1 and {o[1] for o in old} == {"False"}
        interpreters, kept = zygotes(one), set(os.listdir(one.folder / "run" / "sandboxes"))
        assert interpreters
        if change == "policy":
            change_policy(one)
        else:
            (one.packages / "new.py").write_text("")
        contract.until(lambda: not kept & set(os.listdir(one.folder / "run" / "sandboxes")), 20)
        prepared(one.root)
        new = {tuple(of_a_zygote(one, ZYGOTE_IS)) for _ in range(3)}
        assert len(new) == 1 and {n[1] for n in new} == {str(change == "policy")}
        assert {n[0] for n in new}.isdisjoint(o[0] for o in old)
        contract.until(lambda: not set(interpreters) & one.processes(), 10)


def test_what_was_being_prepared_when_the_policy_changed_is_not_handed_over():
    """The zygote was on its way, with the modules of before: its children are nobody's."""
    slow = ["asyncio", "email.mime.text", "http.server", "lib2to3.refactor", "multiprocessing.pool", "sqlite3", "unittest.mock", "xml.dom.minidom"]
    with services.Service({"pool": 2, "pool_floor": 2}, {"python_modules": slow}) as one:
        run(one.root, **PYTHON)
        contract.until(lambda: any(is_python(p) for p in one.processes()), 10)
        assert metric(one.root, "cloche_pool_ready") == 0
        one.config.write_text(one.config.read_text().replace('["asyncio", ', '["decimal", '))
        contract.until(lambda: metric(one.root, "cloche_pool_failed_total") > 0, 10)
        prepared(one.root, 2)
        before = metric(one.root, "cloche_pool_zygote_hits_total")
        said = run(one.root, language="python", code=ZYGOTE_IS)["stdout"]
        assert "True" in said or metric(one.root, "cloche_pool_zygote_hits_total") == before, said


def test_death_of_the_service_at_any_moment(no_leftovers):
    """Each accepted run gets its true result, or `lost`; nothing runs twice; what was prepared for nobody goes."""
    with services.Service({"pool": 6, "pool_floor": 6}) as one:
        answers, stop = [], threading.Event()

        def work():
            while not stop.is_set():
                try:
                    answers.append(one.root.request("POST", "/v1/runs", json=PYTHON, timeout=30, check=False))
                except OSError:
                    pass
        threads = [threading.Thread(target=work) for _ in range(3)]
        for t in threads:
            t.start()
        for _ in range(8):
            time.sleep(0.4)
            for pid in one.processes():
                if proc.name(pid) in ("cloched", "cloche-spawner"):
                    with contextlib.suppress(OSError):
                        os.kill(pid, signal.SIGKILL)
                    break
            one.wait_ready()
        stop.set()
        for t in threads:
            t.join()
        good = [a for a in answers if a.status == 200]
        assert len(good) > 20
        for a in good:
            # One that was lost may have written before: that is told, too.
            assert a.json["stdout"] == "1\n" if a.json["ok"] else a.json["reason"] in ("lost", "create_failed", "runtime_crash"), a.json
        ids = [a.json["id"] for a in good]
        assert len(set(ids)) == len(ids)
        # One whose client has gone with the service is adopted, and may end a moment later.
        contract.until(lambda: all(r["state"] == "ended" for r in one.root.get("/v1/runs", limit=1000)["runs"]), 30)
        for r in one.root.get("/v1/runs", limit=1000)["runs"]:
            assert r["state"] == "ended" and r["result"]["reason"] in ("exited", "lost", "create_failed", "runtime_crash"), r
            if r["result"]["reason"] == "exited":
                assert r["result"]["stdout"] == "1\n", r
        contract.until(lambda: metric(one.root, "cloche_sandboxes_dying") == 0, 20)


def test_death_of_who_makes_them(no_leftovers):
    """Killed while it makes a prepared sandbox, or any: nothing of that one stays, and the next is made by another."""
    with services.Service({"pool": 6, "pool_floor": 6}) as one:
        stop = threading.Event()

        def work(body):
            while not stop.is_set():
                one.root.request("POST", "/v1/runs", json=body, timeout=30, check=False)
        threads = [threading.Thread(target=work, args=(body, )) for body in (PYTHON, PYTHON, {"command": ["true"], "memory": "61m"})]
        for t in threads:
            t.start()
        spawner, killed = one.child("cloche-spawner"), 0
        for i in range(200):
            time.sleep(0.003 + i % 7 * 0.005)
            for pid in one.processes():
                if killed < 40 and pid != spawner and proc.name(pid) == "cloche-spawner":
                    with contextlib.suppress(OSError):
                        os.kill(pid, signal.SIGKILL)
                        killed += 1
        stop.set()
        for t in threads:
            t.join()
        assert killed >= 10
        contract.until(lambda: one.root.request("POST", "/v1/runs", json=PYTHON, check=False).json.get("stdout") == "1\n", 20)
        settled(one, some=False)
        assert spawner in one.processes()


def is_python(pid):
    return proc.of(pid, "cmdline").startswith("python3\0")


def test_death_of_a_zygote(pool):
    """What runs is no business of the interpreter it was forked from; the next ones get another."""
    run(pool.root, **PYTHON)
    settled(pool)
    before = metric(pool.root, "cloche_pool_zygote_hits_total")
    with pool.root.stream("POST", "/v1/runs", query={"stream": True},
                          json={"language": "python", "code": "import time; print('up', flush=True); time.sleep(2); print('end')"}) as s:
        s.until(lambda e: e.get("data") == "up\n")
        assert metric(pool.root, "cloche_pool_zygote_hits_total") == before + 1
        killed = zygotes(pool)
        assert killed
        for pid in killed:
            os.kill(pid, signal.SIGKILL)
        end = s.until(lambda e: e["type"] == "exited")["result"]
    assert end["ok"] and end["reason"] == "exited", end
    assert run(pool.root, **PYTHON)["stdout"] == "1\n"


def hosts(spawner):
    """Who makes prepared Pythons, and has a zygote: a nest's keeper starts it."""
    return {p for p in proc.children(spawner) for keeper in proc.children(p) if proc.child(keeper, "python3")}


def test_hosts_follow_each_other_and_nobody_gets_a_new_interpreter():
    """A host ends after 1,000 children (one that came to help: 500), while eight ask all the time. What begins when it ends is younger
    than a tenth of a second then; what was begun in time is older, as a hundred children were made since. And what waits at a host
    that ends is done: who is refused has a new interpreter, the child of an init that is the spawner's."""
    with services.Service({"pool": 16}) as one:
        spawner, enough, born, left, new = one.child("cloche-spawner"), threading.Event(), {}, [], set()

        def ask():
            client = one.root
            while not enough.is_set():
                run(client, **PYTHON)

        run(one.root, **PYTHON)
        prepared(one.root)
        settled(one)
        with ThreadPoolExecutor(8) as clients:
            asked = [clients.submit(ask) for _ in range(8)]
            until = time.monotonic() + 240
            try:
                while len(left) < 2 and time.monotonic() < until:
                    now = time.monotonic()
                    for p in [p for p in born if proc.parent(p) != spawner]:  # a list of children may miss some while others come and go
                        del born[p]
                        left.append(sum(now - b > 0.1 for b in born.values()))
                    for p in hosts(spawner):
                        born.setdefault(p, now)
                    new |= {p for p in proc.children(spawner) if proc.child(p, "python3")}
                    time.sleep(0.005)
            finally:
                enough.set()
        for one_asked in asked:
            one_asked.result()
    assert len(left) >= 2 and min(left) >= 2 and not new, (left, new)


def test_who_asks_for_a_new_kind_each_time_takes_no_place_of_others(pool):
    run(pool.root, **PYTHON)
    settled(pool)
    for i in range(40):
        run(pool.root, command=["true"], hostname=f"h{i}")
        if i % 10 == 0:
            run(pool.root, **PYTHON)
    assert metric(pool.root, "cloche_pool_kinds") <= 32
    assert metric(pool.root, 'cloche_pool_misses_total{cause="too_many_kinds"}') == 0
    settled(pool)
    before = hits(pool.root)
    run(pool.root, **PYTHON)
    assert hits(pool.root)[0] == before[0] + 1


def cgroups():
    trees = [Path("/sys/fs/cgroup/cloche"), *Path("/sys/fs/cgroup").glob("*/cloche")]
    return {f"{t}/{d}" for t in trees if t.is_dir() for d in os.listdir(t) if re.fullmatch(r"[0-9]+-[0-9a-f]+", d)}


def test_a_stop_leaves_no_cgroup():
    """Not of the nest, not of what was prepared or being prepared, and not of a run that is lost by it."""
    before = cgroups()
    for _ in range(3):
        with services.Service({"pool": 6, "pool_floor": 6}) as one:
            run(one.root, **PYTHON)
            prepared(one.root)
            with one.root.stream("POST", "/v1/runs", query={"stream": True},
                                 json={"language": "python", "code": "import time; print('up', flush=True); time.sleep(60)"}) as s:
                s.until(lambda e: e.get("data") == "up\n")
                one.stop(check=False)
    contract.until(lambda: not cgroups() - before, 10)


def test_a_stop_leaves_nothing_that_was_being_prepared():
    """One that is whole after the stop has begun goes as well: Service.stop() looks for what is left."""
    for n in range(30):
        with services.Service({"pool": 6, "pool_floor": 6}) as one:
            for _ in range(8):
                run(one.root, **PYTHON)
            time.sleep(n % 10 * 0.001)


def counters_open(service):
    """How many counters of sandboxes cloched has open, by sandbox."""
    groups = [path.rsplit("/", 2)[1] for path in cloche.fds(service.child("cloched")).values() if path.startswith("/sys/fs/cgroup/")]
    return {g: groups.count(g) for g in groups}


def test_counters_of_what_waits_are_open_and_are_closed_with_it():
    """By whoever it was handed to, and when nobody came. Each of two has its own, and nobody else any."""
    with services.Service({"pool": 2, "pool_floor": 2}) as one:
        def has_two():
            found = counters_open(one)
            return len(found) == 2 and set(found.values()) == {5}, found

        def settles():
            prepared(one.root, 2)
            settled(one)
            try:
                contract.until(lambda: has_two()[0], 10)
            except AssertionError:
                raise AssertionError(has_two()[1]) from None
        assert run(one.root, **PYTHON)["stdout"] == "1\n"
        settles()
        found = run(one.root, **PYTHON)
        assert found["stdout"] == "1\n" and found["usage"]["memory_peak_bytes"] > 0, found
        settles()
        dropped = metric(one.root, "cloche_pool_dropped_total")
        os.utime(one.config)  # what was prepared goes
        contract.until(lambda: metric(one.root, "cloche_pool_dropped_total") >= dropped + 2, 10)
        settles()


def test_off(fresh):
    for _ in range(3):
        assert run(fresh.root, **PYTHON)["stdout"] == "1\n"
    assert hits(fresh.root) == (0, 0)
    assert metric(fresh.root, "cloche_pool_ready") == 0
    contract.until(lambda: not os.listdir(fresh.folder / "run" / "sandboxes"), 20)


# As the command line asks for it: a command and an environment, not a language and its code.
BECOMES = {
    "code": (["python3", "-c", "import sys; print(sys.argv, sys.orig_argv, __name__)"], {}),
    "arguments": (["python3", "-c", "import sys; print(sys.argv)", "a b", "-x", ""], {}),
    "environment": (["python3", "-c", "import os; print(sorted(os.environ.items()))"], {"A": "b", "TZ": "Asia/Tokyo"}),
    "traceback": (["python3", "-c", "def f():\n  1/0\nf()"], {}),
    "status": (["python3", "-c", "raise SystemExit(7)"], {}),
    "syntax": (["python3", "-c", "print("], {}),
    "nothing on stdin": (["python3", "-c", "import sys; print(repr(sys.stdin.read()))"], {}),
    "folder": (["python3", "-c", "import os; print(os.getcwd(), os.listdir())"], {}),
}


def becomes(client, command, env, **more):
    plain = {"HOME": "/tmp", "PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}
    result = run(client, command=command, env={**plain, **env}, **more)
    return {k: result[k] for k in ("reason", "exit_code", "signal", "stdout", "stderr")}


@pytest.mark.parametrize("what", BECOMES)
def test_a_command_line_of_python_is_a_zygotes_child(pool, fresh, what):
    becomes(pool.root, *BECOMES[what])
    settled(pool)
    before = metric(pool.root, "cloche_pool_zygote_hits_total")
    mine = becomes(pool.root, *BECOMES[what])
    assert metric(pool.root, "cloche_pool_zygote_hits_total") == before + 1
    assert mine == becomes(fresh.root, *BECOMES[what])


def test_its_stdin_is_the_callers(pool):
    body = {"command": ["python3", "-c", "import sys; print(sys.stdin.read()[::-1])"], "stdin": True}
    run(pool.root, command=body["command"])
    settled(pool)
    before = metric(pool.root, "cloche_pool_zygote_hits_total")
    with pool.root.stream("POST", "/v1/runs", query={"stream": True}, json=body) as s:
        started = s.until(lambda e: e["type"] == "started")
        pool.root.expect(204, "POST", f"/v1/runs/{started['id']}/stdin", body=b"abc", query={"eof": True})
        events = list(s.events())
    assert services.joined(events, "stdout") == b"cba\n" and events[-1]["result"]["ok"], events
    assert metric(pool.root, "cloche_pool_zygote_hits_total") == before + 1


@pytest.mark.parametrize("env", [{"PYTHONDONTWRITEBYTECODE": "1"}, {"LC_ALL": "C"}, {"HOME": "/workspace"}, {"PATH": "/usr/bin:/bin"}],
                         ids=lambda e: next(iter(e)))
def test_an_environment_that_was_read_already_gets_a_new_interpreter(pool, fresh, env):
    what = ["python3", "-c", "import os, sys; print(sorted(os.environ.items()), sys.flags, sys.stdout.encoding, sys.path)"]
    becomes(pool.root, what, {})
    settled(pool)
    before = metric(pool.root, "cloche_pool_zygote_hits_total")
    assert becomes(pool.root, what, env) == becomes(fresh.root, what, env)
    assert metric(pool.root, "cloche_pool_zygote_hits_total") == before


def test_many_at_once_get_what_waits_and_what_is_made_for_them(pool):
    """With nothing prepared a run waits for a zygote's child, not for an interpreter: all hash alike."""
    run(pool.root, **PYTHON)
    settled(pool)
    seen, threads = [], []
    for _ in range(24):
        threads.append(threading.Thread(target=lambda: seen.append(run(pool.root, language="python", code="print(hash('x'))"))))
        threads[-1].start()
    for t in threads:
        t.join()
    assert len(seen) == 24 and all(r["ok"] for r in seen)
    assert len({r["stdout"] for r in seen}) <= 2  # of two zygotes at most


@pytest.mark.parametrize("limit, reason", [({"timeout": 0.5}, "timeout"), ({"max_output": 10, "on_output_limit": "kill"}, "output_limit")],
                         ids=lambda v: v if isinstance(v, str) else "")
def test_a_limit_ends_a_zygotes_child_and_its_artifacts_come(pool, limit, reason):
    """Init has to kill it, since the sandbox stays for the artifacts (Landlock's scopes of signals were in the way)."""
    code = "open('/output/made', 'w').write('before')\nprint('x' * 20, flush=True)\nimport time\ntime.sleep(60)"
    first = metric(pool.root, "cloche_pool_zygote_hits_total")
    contract.until(lambda: run(pool.root, **PYTHON, output=True)["ok"] and metric(pool.root, "cloche_pool_zygote_hits_total") > first, 20)
    settled(pool)
    before, began = metric(pool.root, "cloche_pool_zygote_hits_total"), time.monotonic()
    r = run(pool.root, language="python", code=code, output=True, **{"timeout": 30, **limit})
    assert (r["reason"], [a["path"] for a in r["artifacts"]]) == (reason, ["made"]) and time.monotonic() - began < 10, r
    assert metric(pool.root, "cloche_pool_zygote_hits_total") == before + 1


@pytest.mark.parametrize("reason", ["oom", "lost"])
def test_the_init_of_a_zygotes_child_dies(pool, reason):
    """Nobody is its parent who could tell how: the OOM killer's count does."""
    first = metric(pool.root, "cloche_pool_zygote_hits_total")
    contract.until(lambda: run(pool.root, **PYTHON)["ok"] and metric(pool.root, "cloche_pool_zygote_hits_total") > first, 20)
    settled(pool)
    before = metric(pool.root, "cloche_pool_zygote_hits_total")
    eat = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'x = bytearray(2 << 30)'], stderr=-3)" if reason == "oom" else ""
    with pool.root.stream("POST", "/v1/runs", query={"stream": True}, json={
            "language": "python", "code": f"{eat}\nprint('up', flush=True)\nimport time\ntime.sleep(60)"}) as s:
        box = s.until(lambda e: e["type"] == "started")["sandbox"]
        s.until(lambda e: e.get("data") == "up\n")
        assert metric(pool.root, "cloche_pool_zygote_hits_total") == before + 1
        os.kill(init_of(pool, box), signal.SIGKILL)
        end = s.until(lambda e: e["type"] == "exited")["result"]
    assert end["reason"] == reason and bool(end["oom_kills"]) == (reason == "oom"), end
