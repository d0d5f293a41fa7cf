# SPDX-License-Identifier: Apache-2.0
"""kill -9 of each process of the service at random moments under load: nothing is lost that was there, nothing is told that
was not so, nobody waits for ever, and nothing stays behind.

What really happened is written outside the service: every command appends to files of its own in a volume, one when it
begins and one as the last thing before it exits. So the truth does not depend on whom we kill. CLOCHE_FAULTS=N does N kills
instead of as many as fit in a minute, CLOCHE_FAULTS_SEED repeats the choices of an earlier run (the timing is the machine's).
"""
import collections
import contextlib
import hashlib
import http.client
import json
import os
import random
import signal
import struct
import threading
import time
import uuid

import cloche
import proc
import pytest
import service as services
from spawner import layout

pytestmark = pytest.mark.needs("native", "service")

SECONDS = 60
CALL_LIMIT_S = 25  # no call may take longer, whatever dies meanwhile
READY_LIMIT_S = 15  # until the service answers again
KEPT = 4
TRUE_LIMIT_S = "20s"
REFUSED = {404, 409, 410, 429, 500, 502, 503}


class Truth:
    """What the commands themselves say: TOKEN.b is one byte per beginning, TOKEN.d one per finished command."""
    def __init__(self, folder):
        self.folder = folder
        folder.mkdir()
        os.chmod(folder, 0o777)

    def script(self, token, middle, code):
        return f"printf x >> /truth/{token}.b; {middle}; printf x >> /truth/{token}.d; exit {code}"

    def count(self, token, which):
        try:
            return os.stat(self.folder / f"{token}.{which}").st_size
        except FileNotFoundError:
            return 0


class Expect:
    """One command that was asked for, and what became of the call."""
    def __init__(self, token, box, reason, code):
        self.token, self.box, self.reason, self.code = token, box, reason, code
        self.answer = None


def init_of(service, box_id):
    """The host's number of a sandbox's init, out of what the spawner keeps about it."""
    data = (service.folder / "run" / "sandboxes" / box_id / "meta").read_bytes()
    created = layout()["structs"]["spawner_created"]
    at = data.index(box_id.encode()) + created["pid"][0] - created["id"][0]
    return struct.unpack_from("<I", data, at)[0]


class Load:
    """Threads that use the service until told to stop; what is wrong is said in `wrong`."""
    def __init__(self, service, truth, seed):
        self.service, self.truth, self.seed = service, truth, seed
        self.client = service.root
        self.over = threading.Event()
        self.wrong, self.expected, self.lock = [], [], threading.Lock()
        self.boxes = {}  # id -> (Box, content of /workspace/keep)
        self.gone = set()  # ids of those whose init we killed, or that we deleted
        self.counts = collections.Counter()
        self.threads = []

    def say(self, text):
        with self.lock:
            self.wrong.append(text)

    def volume(self):
        return [f"{self.truth.folder}:/truth:rw"]

    def call(self, what, function):
        """A call that may fail for what we do, and may not hang."""
        began = time.monotonic()
        try:
            return function()
        except TimeoutError:
            self.say(f"{what}: no answer in {CALL_LIMIT_S} s")
        except (OSError, http.client.HTTPException, json.JSONDecodeError):
            self.counts["cut"] += 1
        except AssertionError as e:
            if "the stream ends inside" not in str(e) and "not in the stream" not in str(e):
                self.say(f"{what}: {e}")
            self.counts["cut"] += 1
        finally:
            if time.monotonic() - began > CALL_LIMIT_S + 5:
                self.say(f"{what}: took {time.monotonic() - began:.1f} s")
        return None

    def request(self, method, path, good, **kw):
        answer = self.call(f"{method} {path}", lambda: self.client.request(method, path, timeout=CALL_LIMIT_S, **kw))
        if answer is None:
            return None
        if answer.status not in good and answer.status not in REFUSED:
            self.say(f"{answer}")
        if answer.status not in good:
            self.counts[answer.status] += 1
            return None
        self.counts["good"] += 1
        return answer

    # ---- sandboxes

    def new_box(self):
        """A kept one with a file in it that has to stay as it is."""
        key = uuid.uuid4().hex
        while not self.over.is_set():
            made = self.request("POST", "/v1/sandboxes", {201}, headers={"Idempotency-Key": key},
                                json={"memory": "64m", "volume": self.volume(), "timeout": "1h", "labels": {"kept": key}})
            if made is None:
                time.sleep(0.05)  # what happens to be down is started again
                continue
            if made.json["state"] == "ended":  # it was still being made when cloched died
                key = uuid.uuid4().hex
                continue
            box = services.Box(self.client, made.json)
            content = os.urandom(3000)
            while not self.over.is_set():
                put = self.request("PUT", box.path + "/files", {201, 204}, body=content, query={"path": "/workspace/keep"})
                if put:
                    with self.lock:
                        self.boxes[box.id] = (box, content)
                    return box
                time.sleep(0.05)
        return None

    def some_box(self, rng):
        with self.lock:
            alive = [b for b, _ in self.boxes.values()]
        return rng.choice(alive) if alive else None

    # ---- what it does

    def expect(self, box_id, reason, code):
        e = Expect(uuid.uuid4().hex, box_id, reason, code)
        with self.lock:
            self.expected.append(e)
        return e

    def body(self, rng, box_id):
        """(Expect, body) of a command: most are over at once, some take a while, some are ended by their time-out."""
        kind, code = rng.random(), rng.choice([0, 0, 3, 42])
        if kind < 0.15:
            e = self.expect(box_id, "timeout", None)
            return e, {"command": ["sh", "-c", self.truth.script(e.token, "sleep 60", 0)], "timeout": rng.choice([0.2, 0.7])}
        e = self.expect(box_id, "exited", code)
        nap = rng.choice(["true", "true", "sleep 0.1", "echo some words", "sleep 0.4", "head -c 100000 /dev/zero"])
        return e, {"command": ["sh", "-c", self.truth.script(e.token, nap, code)], "timeout": TRUE_LIMIT_S}

    def exec(self, rng):
        box = self.some_box(rng)
        if box:
            e, body = self.body(rng, box.id)
            answer = self.request("POST", box.path + "/exec", {200}, json=body, headers={"X-Cloche-Session": e.token})
            e.answer = answer and answer.json

    def exec_stream(self, rng):
        box = self.some_box(rng)
        if not box:
            return
        e, body = self.body(rng, box.id)

        def read():
            with self.client.stream("POST", box.path + "/exec", json=body, query={"stream": True},
                                    headers={"X-Cloche-Session": e.token}, timeout=CALL_LIMIT_S) as s:
                return s.until(lambda event: event.get("type") == "exited")["result"]
        e.answer = self.call("exec?stream", lambda: self.tolerate(read))

    @staticmethod
    def tolerate(function):
        """A refusal in a helper that asserts success is no fault of its own."""
        try:
            return function()
        except AssertionError as e:
            answer = e.args[0] if e.args else None
            if isinstance(answer, services.Answer) and answer.status in REFUSED:
                raise ConnectionError(str(answer)) from None
            raise

    def one_shot(self, rng):
        e, body = self.body(rng, None)
        body |= {"memory": "64m", "volume": self.volume()}
        answer = self.request("POST", "/v1/runs", {200}, json=body, headers={"X-Cloche-Session": e.token})
        e.answer = answer and answer.json

    def files(self, rng):
        box = self.some_box(rng)
        if not box:
            return
        name, content = f"/workspace/up-{rng.randrange(4)}-{threading.get_ident()}", os.urandom(rng.choice([10, 5000, 700000]))
        put = self.request("PUT", box.path + "/files", {201, 204}, body=content, query={"path": name})
        got = self.request("GET", box.path + "/files", {200}, query={"path": name})
        if put and got and got.body != content:
            self.say(f"{box} {name}: {len(content)} bytes went up, {len(got.body)} others came down")

    def background(self, rng):
        """A process that counts: what its output says is in order and without holes."""
        box = self.some_box(rng)
        if not box:
            return
        started = self.request("POST", box.path + "/processes", {201},
                               json={"command": ["sh", "-c", "i=0; while [ $i -lt 40 ]; do echo $i; i=$((i+1)); sleep 0.02; done"]})
        if not started:
            return
        process = services.Process(box, started.json)

        def follow():
            with self.client.stream("GET", box.path + process.path + "/output", query={"follow": True},
                                    timeout=CALL_LIMIT_S) as s:
                events = list(s.events())
                return events if events and events[-1].get("type") == "exited" else None
        events = self.call("follow", lambda: self.tolerate(follow))
        if events and services.joined(events, "stdout") != b"".join(b"%d\n" % i for i in range(40)):
            self.say(f"{box} {process.id}: counted {services.joined(events, 'stdout')!r}")
        self.request("DELETE", box.path + process.path, {204})

    def churn(self, rng):
        key = uuid.uuid4().hex
        made = None
        for _ in range(20):
            made = self.request("POST", "/v1/sandboxes", {201}, headers={"Idempotency-Key": key},
                                json={"memory": "64m", "labels": {"churn": key}, "timeout": "1h"})
            if made or self.over.is_set():
                break
            time.sleep(0.1)
        if not made:
            return
        with self.lock:
            self.gone.add(made.json["id"])
        for _ in range(50):
            if self.request("DELETE", f"/v1/sandboxes/{made.json['id']}", {200}) or self.over.is_set():
                return
            time.sleep(0.1)

    def worker(self, number, work):
        rng = random.Random(f"{self.seed}/{number}")
        try:
            while not self.over.is_set():
                work(rng)
                time.sleep(0.01)  # the killer and the service share two processors with us
        except BaseException as e:
            self.say(f"{work.__name__}: {type(e).__name__}: {e}")
            raise

    def begin(self):
        for _ in range(KEPT):
            self.new_box()
        works = [self.exec, self.exec, self.exec_stream, self.one_shot, self.files, self.background, self.churn]
        self.threads = [threading.Thread(target=self.worker, args=(i, w), daemon=True) for i, w in enumerate(works)]
        for t in self.threads:
            t.start()

    def end(self):
        self.over.set()
        for t in self.threads:
            t.join(2 * CALL_LIMIT_S)
            if t.is_alive():
                self.say(f"a client hangs: {t.name}")


class Killer:
    """Ends one process with SIGKILL, and looks what became of the rest."""
    def __init__(self, service, load, seed):
        self.service, self.load, self.rng = service, load, random.Random(seed)
        self.kills = collections.Counter()
        self.slowest = 0.0

    def pids(self, name):
        with contextlib.suppress(OSError):
            return [p for p in proc.children(self.service.process.pid) if proc.name(p) == name[:15]]
        return []

    def kill_children(self, *names):
        for name in names:
            for pid in self.pids(name):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def kill_serve(self):
        self.service.process.kill()
        self.service.process.wait()
        self.service.start(READY_LIMIT_S)

    def kill_init(self):
        load = self.load
        box = load.some_box(self.rng)
        if not box:
            return
        with load.lock:
            load.gone.add(box.id)
            del load.boxes[box.id]
        os.kill(init_of(self.service, box.id), signal.SIGKILL)
        until = time.monotonic() + READY_LIMIT_S
        while (row := self.load.request("GET", box.path, {200})) is None or row.json["state"] != "ended":
            if time.monotonic() > until:
                load.say(f"{box}: its init is dead, and it is {row and row.json['state']}")
                return
            time.sleep(0.02)
        if row.json["reason"] not in ("runtime_crash", "lost"):
            load.say(f"{box}: its init was killed, and its reason is {row.json['reason']}")
        load.new_box()

    def kill(self):
        what = self.rng.choices(["cloched", "cloche-spawner", "both", "init", "serve"], [6, 5, 2, 4, 2])[0]
        self.kills[what] += 1
        if what == "serve":
            self.kill_serve()
        elif what == "init":
            self.kill_init()
        else:
            self.kill_children(*(["cloched", "cloche-spawner"] if what == "both" else [what]))
        self.look(what)

    def look(self, what):
        """It answers again, and everything that should be alive is, with its files."""
        began = time.monotonic()
        self.service.wait_ready(READY_LIMIT_S)
        with self.load.lock:
            alive = list(self.load.boxes.values())
        for box, content in alive:
            while True:
                got = self.load.request("POST", box.path + "/exec", {200}, json={"command": ["sha256sum", "/workspace/keep"]})
                if got:
                    if got.json["stdout"].split()[:1] != [hashlib.sha256(content).hexdigest()]:
                        self.load.say(f"after {what}: {box}: {got.json['reason']} {got.json['stdout']!r} {got.json['stderr']!r}")
                    break
                if time.monotonic() > began + READY_LIMIT_S:
                    self.load.say(f"after {what}: {box} does not answer: {box.client.request('GET', box.path)}")
                    break
                time.sleep(0.02)
        self.slowest = max(self.slowest, time.monotonic() - began)


def settled_runs(client, audit, patience=30):
    """{id: run} of all runs that the audit names, and those that are still running after PATIENCE seconds."""
    until = time.monotonic() + patience
    runs, waited = {}, {row["object"] for row in audit if row["action"] == "run.start"}
    while waited:
        for one in list(waited):
            answer = client.request("GET", f"/v1/runs/{one}", check=False)
            if answer.status == 200:
                runs[one] = answer.json
            if answer.status != 200 or answer.json["state"] == "ended":
                waited.discard(one)
        if time.monotonic() > until:
            break
        time.sleep(0.2 if waited else 0)
    return runs, [runs[one] for one in waited]


def audit_rows(client):
    rows, after = [], 0
    while True:
        page = client.get("/v1/audit", after=after, limit=1000)["rows"]
        if not page:
            return rows
        rows += page
        after = page[-1]["seq"]


def judge(load, e, run):
    """What is wrong with what the service says of one command."""
    began, done = load.truth.count(e.token, "b"), load.truth.count(e.token, "d")
    if began > 1 or done > 1:
        return f"executed {began} times"
    if run is None:
        return "ran, and there is no record of it" if began else None
    if run["state"] != "ended" or not run["result"]:
        return f"is {run['state']} for ever"
    reason, code = run["result"]["reason"], run["result"]["exit_code"]
    if e.answer and (e.answer["reason"], e.answer["exit_code"]) != (reason, code):
        return f"was answered with {e.answer['reason']} {e.answer['exit_code']}, stored as {reason} {code}"
    died = e.box in load.gone
    if done and not died and (reason, code) != ("exited", e.code):
        return f"exited with {e.code}, and is called {reason} {code}: {run['result']['message']}"
    if done and died and (reason, code) != ("exited", e.code) and reason not in ("lost", "runtime_crash", "killed"):
        return f"exited with {e.code} in a sandbox that died, and is called {reason} {code}"
    if not done and reason == "exited":
        return f"never came to its end, and is called exited {code}"
    if not done and began and not died and reason not in ({"timeout"} if e.reason == "timeout" else {"timeout", "cancelled"}):
        return f"was to end by {e.reason}, and is called {reason}: {run['result']['message']}"
    return None


def wrong_results(load, runs, audit):
    of_token = collections.defaultdict(list)
    for row in audit:
        if row["action"] == "run.start" and row["session"]:
            of_token[row["session"]].append(row["object"])
    wrong, reasons = [], collections.Counter()
    for e in load.expected:
        ids = of_token[e.token]
        if len(ids) > 1:
            wrong.append(f"{e.token}: {len(ids)} runs")
        run = runs.get(ids[0]) if ids else None
        if ids and run is None:
            wrong.append(f"{e.token}: {ids[0]} is in the audit and not in the state")
        if run and run["result"]:
            reasons[run["result"]["reason"]] += 1
        bad = judge(load, e, run)
        if bad:
            wrong.append(f"{run['kind'] if run else '-'} {run['id'] if run else e.token} in {e.box or (run or {}).get('sandbox')}: {bad}")
    return wrong, reasons


def test_kills_under_load(capsys):
    kills = int(os.environ.get("CLOCHE_FAULTS", "0"))
    seed = os.environ.get("CLOCHE_FAULTS_SEED") or uuid.uuid4().hex[:8]
    with services.Service() as service:
        realm = realm_of(service)
        truth = Truth(service.folder / "volumes" / "truth")
        load = Load(service, truth, seed)
        killer = Killer(service, load, seed)
        load.begin()
        until = time.monotonic() + SECONDS
        try:
            while sum(killer.kills.values()) < kills if kills else time.monotonic() < until:
                time.sleep(killer.rng.uniform(0.0, 0.6))
                killer.kill()
        finally:
            load.end()
        with capsys.disabled():
            print(f"\n  seed {seed}: {sum(killer.kills.values())} kills {dict(killer.kills)}, slowest return "
                  f"{killer.slowest:.2f} s, calls {dict(load.counts)}")
        audit = audit_rows(service.root)
        runs, running = settled_runs(service.root, audit)
        wrong = load.wrong + [f"{r['id']} in {r['sandbox']} is still running" for r in running]
        bad, reasons = wrong_results(load, runs, audit)
        with capsys.disabled():
            print(f"  {len(load.expected)} commands, stored as {dict(reasons)}; {len(audit)} audit rows")
        wrong += bad
        chain = service.root.get("/v1/audit/verify")
        if not chain["ok"]:
            wrong.append(f"the audit chain: {chain}")
        wrong += one_per_key(service)
        wrong += descriptors(service, killer)
        if wrong:
            with capsys.disabled():
                print("  " + service.said().replace("\n", "\n  "))
        assert not wrong, f"seed {seed}: {len(wrong)} wrong:\n" + "\n".join(wrong[:40])
    left = leftovers(service, realm)
    assert not left, f"seed {seed}: left behind:\n" + "\n".join(left)


def realm_of(service):
    """Behind the dash in the names of its cgroups: sandboxes of other services may come and go meanwhile."""
    box = service.root.box(memory="64m")
    with open(f"/proc/{init_of(service, box.id)}/cgroup") as f:
        name = next(line.strip().rpartition("/")[2] for line in f if "/cloche/" in line)
    box.kill()
    assert "-" in name, name
    return "-" + name.rpartition("-")[2]


def leftovers(service, realm, patience=10):
    """What is still there of one service and its sandboxes; run.py looks at the whole machine after all tests."""
    here, until = str(service.folder), time.monotonic() + patience
    while True:
        left = [text for text in cloche.cgroups().values() if text.endswith(realm)]
        for d in [d for d in os.listdir("/proc") if d.isdigit()]:
            with contextlib.suppress(OSError):
                with open(f"/proc/{d}/cmdline") as line, open(f"/proc/{d}/cgroup") as group:
                    if here in line.read() or realm + "\n" in group.read():
                        left.append(f"process {d} ({proc.name(d)})")
        left += [text for text in cloche.mounts().values() if here in text]
        left += [f"{device}: {path}" for path, device in services.loop_devices().items() if here in path]
        if os.path.exists(here):
            left.append(here)
        if not left or time.monotonic() > until:
            return left
        time.sleep(0.1)


def one_per_key(service):
    """An idempotency key never made two; what was asked to go is gone."""
    alive = service.sandboxes("creating", "running", "paused")
    keys = collections.Counter(v for b in alive for v in b["labels"].values())
    return [f"{n} sandboxes for one idempotency key" for n in keys.values() if n > 1]


def descriptors(service, killer):
    """When nothing happens, cloched has none for its sandboxes, the spawner two each."""
    wrong = []
    boxes = len(service.sandboxes("running"))
    until = time.monotonic() + 10
    for name, most in (("cloched", 40), ("cloche-spawner", 30 + 2 * boxes)):
        while True:
            found = [fd for pid in killer.pids(name) for fd in cloche.fds(pid).values()]
            if len(found) <= most or time.monotonic() > until:
                break
            time.sleep(0.1)
        if not 0 < len(found) <= most:
            wrong.append(f"{name} holds {len(found)} descriptors: {found}")
    return wrong
