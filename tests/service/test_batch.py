# SPDX-License-Identifier: Apache-2.0
"""POST /v1/runs:batch: many runs in one request, each in a sandbox of its own, answered in their order."""
import json
import os
import random
import re
import socket
import threading
import time

import contract
import pytest
import service as services
from service import outcome

pytestmark = pytest.mark.needs("native", "python", "service")

PATH = "/v1/runs:batch"
NDJSON = {"Content-Type": "application/x-ndjson"}
TRUE = {"command": ["true"]}


def text(lines):
    return b"".join(line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n" for line in lines)


def split(answer):
    """([line…], summary) of a complete answer; its counts are right."""
    *rows, end = [json.loads(line) for line in answer.splitlines()]
    assert end["done"] is True and [r["index"] for r in rows] == list(range(len(rows)))
    results = [r["result"] for r in rows if "result" in r]
    for result in results:
        outcome(result)
    ok = sum(r["ok"] for r in results)
    assert (end["lines"], end["runs"], end["ok"], end["failed"], end["errors"]) == \
        (len(rows), len(results), ok, len(results) - ok, len(rows) - len(results))
    return rows, end


def batch(client, lines, timeout=60, **query):
    """Small ones: all is sent before the answer is read."""
    return split(client.expect(200, "POST", PATH, body=text(lines), headers=NDJSON, query=query, timeout=timeout).body)


class Duplex:
    """A batch that is written and read at the same time, as a client has to."""
    def __init__(self, client, query="", timeout=30):
        self.sock, self.answer = client.socket(timeout), bytearray()
        fields = "".join(f"{k}: {v}\r\n" for k, v in client.headers.items())
        self.sock.sendall(f"POST {PATH}{query} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-ndjson\r\n{fields}"
                          "Transfer-Encoding: chunked\r\n\r\n".encode())
        self.head = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sock.close()

    def send(self, data):
        self.sock.sendall(b"%x\r\n%s\r\n" % (len(data), data) if data else b"0\r\n\r\n")

    def fill(self, data):
        """Send until it does not go on any more; how much went."""
        self.sock.setblocking(False)
        piece, sent, still = b"%x\r\n%s\r\n" % (len(data), data), 0, 0
        while still < 15:
            try:
                sent, still = sent + self.sock.send(piece[sent % len(piece):]), 0
            except BlockingIOError:
                still += 1
                time.sleep(0.05)
            if sent > 200 << 20:
                break
        self.sock.settimeout(30)
        return sent

    def receive(self):
        piece = self.sock.recv(1 << 16)
        self.answer += piece
        if self.head is None and b"\r\n\r\n" in self.answer:
            self.head, _, self.answer = self.answer.partition(b"\r\n\r\n")
            assert self.head.startswith(b"HTTP/1.1 200 "), self.head
            self.parsed, self.out, self.complete = 0, bytearray(), False
        return piece

    def body(self):
        """(the body so far without its chunks, is it all)."""
        if self.head is None:
            return b"", False
        while not self.complete and (at := self.answer.find(b"\r\n", self.parsed)) >= 0:
            n = int(self.answer[self.parsed:at], 16)
            if len(self.answer) < at + n + 4:
                break
            self.out += self.answer[at + 2:at + 2 + n]
            self.parsed, self.complete = at + n + 4, n == 0
        return self.out, self.complete

    def read_lines(self, count):
        while self.body()[0].count(b"\n") < count:
            assert self.receive(), "cut off"
        return [json.loads(line) for line in self.body()[0].splitlines()]

    def read_all(self):
        while self.receive():
            pass
        data, complete = self.body()
        assert complete
        return split(data)


def cloched(service):
    return service.running("cloched")[0]


def rss(pid):
    """Resident KiB."""
    return int(re.search(r"VmRSS:\s+(\d+)", open(f"/proc/{pid}/status").read())[1])


def alive(service):
    """Sandboxes of root's; what the pool has is nobody's."""
    return service.root.get("/v1/quota")["used"]["sandboxes"]


# ---------------------------------------------------------------------------------------------------------- one batch


def test_results_in_order(service):
    rows, end = batch(service.root, [{"language": "python", "code": f"print({i})", "tag": f"ü{i}"} for i in range(12)])
    assert [(r["tag"], r["result"]["stdout"]) for r in rows] == [(f"ü{i}", f"{i}\n") for i in range(12)]
    assert end["ok"] == 12 and end["wall_ms"] > 0
    sandboxes = {r["result"]["sandbox"] for r in rows}
    assert len(sandboxes) == 12 and all(service.root.get(f"/v1/sandboxes/{s}")["state"] == "ended" for s in sandboxes)
    stored = service.root.get(f"/v1/runs/{rows[3]['result']['id']}")
    assert stored["state"] == "ended" and stored["kind"] == "run" and stored["result"] == rows[3]["result"]


def test_audited_as_single_runs(service):
    rows, _ = batch(service.root, [TRUE, {"language": "bash", "code": "exit 3"}])
    last = service.root.get("/v1/audit/verify")
    seen = service.root.get("/v1/audit", after=max(0, last["rows"] - 60), limit=1000)["rows"]
    assert last["ok"]
    for row in rows:
        assert [a["action"] for a in seen if a["object"] == row["result"]["id"]] == ["run.start", "run.end"]


def test_line_ends(service):
    line = json.dumps(TRUE).encode()
    rows, _ = batch(service.root, [b"\n", line, b"\r\n", b"  \t\r\n\n", line, b"\n", line])
    assert [r["result"]["ok"] for r in rows] == [True] * 3


def test_nothing(service):
    assert batch(service.root, [])[0] == batch(service.root, [b"\n\n  \n"])[0] == []
    assert split(service.root.expect(200, "POST", PATH, json={"runs": []}).body)[0] == []


BAD = {
    "no JSON": (b"nonsense\n", "INVALID_REQUEST", "JSON line 1"),
    "half": (b'{"command":["true"]\n', "INVALID_REQUEST", "JSON line 1"),
    "two on a line": (b'{"command":["true"]}{"command":["true"]}\n', "INVALID_REQUEST", "end of file expected"),
    "not UTF-8": (b'{"command":["\xff"]}\n', "INVALID_REQUEST", "decode byte 0xff"),
    "NUL": (b'{"command":["\\u0000"]}\n', "INVALID_REQUEST", "u0000"),
    "no object": (b"[1]\n", "INVALID_REQUEST", "must be a JSON object"),
    "twice": (b'{"command":["true"],"command":["true"]}\n', "INVALID_REQUEST", "duplicate"),
    "deep": (b'{"env":' + b"[" * 40 + b"]" * 40 + b"}\n", "INVALID_REQUEST", "nested deeper"),
    "unknown": ({**TRUE, "privileged": True}, "INVALID_REQUEST", "privileged: unknown field"),
    "no command": ({"tag": "t"}, "INVALID_REQUEST", "give either command"),
    "tag": ({**TRUE, "tag": 7}, "INVALID_REQUEST", "tag: must be a string"),
    "long tag": ({**TRUE, "tag": "x" * 257}, "INVALID_REQUEST", "tag: must be a string"),
    "stdin open": ({**TRUE, "stdin": True}, "INVALID_REQUEST", "not in a batch"),
    "descriptors": ({**TRUE, "volume_fds": []}, "INVALID_REQUEST", "volume_fds"),
    "defaults later": ({"defaults": {}}, "INVALID_REQUEST", "defaults: unknown field"),
    "runtime": ({**TRUE, "runtime": "nosuch"}, None, ""),
    "weaker": ({**TRUE, "user": "0:0"}, "INVALID_REQUEST", "root"),
}


def test_bad_lines_end_nothing(service):
    lines = [TRUE]
    for line, _, _ in BAD.values():
        lines += [line, TRUE]
    rows, end = batch(service.root, lines)
    assert all(r["result"]["ok"] for r in rows[::2]) and end["errors"] >= len(BAD) - 1
    for (_, code, words), row in zip(BAD.values(), rows[1::2]):
        if code:
            assert row["error"]["code"] == code and words in row["error"]["detail"], row
        else:  # single runs say the same in their way
            assert row.get("error") or not row["result"]["ok"]
    assert rows[1 + 2 * list(BAD).index("no command")]["tag"] == "t"


def test_the_same_words_as_a_single_run(service):
    for body in ({**TRUE, "memory": "1"}, {**TRUE, "timeout": -1}, {"language": "perl", "code": ""}, {**TRUE, "env": []}):
        single = service.root.request("POST", "/v1/runs", json=body).json
        assert batch(service.root, [body])[0][0]["error"] == single


def test_as_one_object(service):
    r = service.root.expect(200, "POST", PATH, json={"defaults": {"language": "python", "timeout": 2, "env": {"A": "b"}}, "runs": [
        {"code": "import os; print(os.environ['A'])", "tag": "x"}, {"code": "while True: pass", "timeout": 0.3}, 5]})
    rows, end = split(r.body)
    assert rows[0]["result"]["stdout"] == "b\n" and rows[1]["result"]["reason"] == "timeout" and rows[2]["error"] and end["failed"] == 1


def test_defaults_on_the_first_line(service):
    files = [{"path": "data", "content": "common\n", "mode": "0640"}, {"path": "d", "folder": True}]
    rows, _ = batch(service.root, [b"\n", {"defaults": {"files": files, "max_output": 7, "command": "stat -c %a data; cat data"}},
                                   {}, {"max_output": 100}, {"files": [], "command": "ls | wc -l", "tag": "own"}])
    assert [r["result"]["stdout"] for r in rows] == ["640\ncom", "640\ncommon\n", "0\n"]


@pytest.mark.parametrize("body", [{}, {"runs": {}}, {"runs": [], "x": 1}, {"runs": [], "defaults": []}, []])
def test_objects_that_are_none(service, body):
    service.root.problem(400, "INVALID_REQUEST", "POST", PATH, json=body)


def test_refused_as_a_whole(service):
    root = service.root
    for kind in ("text/plain", "application/x-ndjsonx", None):
        root.problem(415, "UNSUPPORTED_MEDIA_TYPE", "POST", PATH, body=text([TRUE]), headers={"Content-Type": kind})
    for n in ("0", "1025", "x", "-1", ""):
        root.problem(400, "INVALID_REQUEST", "POST", PATH, body=text([TRUE]), headers=NDJSON, query={"concurrency": n})
    root.problem(400, "INVALID_REQUEST", "POST", PATH, body=b"", headers=NDJSON, query={"stream": True})
    root.problem(405, "METHOD_NOT_ALLOWED", "GET", PATH)
    services.Client(("127.0.0.1", service.port)).problem(401, "UNAUTHENTICATED", "POST", PATH, body=text([TRUE]), headers=NDJSON)


# ------------------------------------------------------------------------------------------------ pieces and order


def test_answers_come_while_lines_are_sent(service):
    """Nothing waits for the end of the body; a line may come in pieces of any size."""
    line = text([{"language": "bash", "code": "echo $((1 + 1))"}])
    with Duplex(service.root) as d:
        for n in range(1, 4):
            for byte in line:
                d.send(bytes([byte]))
            assert d.read_lines(n)[n - 1]["result"]["stdout"] == "2\n"
        d.send(b"")
        assert d.read_all()[1]["ok"] == 3


def test_progress(service):
    """begun is never less than what is answered, and at the end as much."""
    with Duplex(service.root, "?progress&concurrency=2") as d:
        d.send(text([{"command": "sleep 0.1"}] * 6 + [b"x\n"]))
        d.send(b"")
        while d.receive():
            pass
    rows = [json.loads(line) for line in d.body()[0].splitlines()]
    begun, answered = 0, 0
    for row in rows[:-1]:
        if "begun" in row:
            assert set(row) == {"begun", "concurrency"} and row["concurrency"] == 2 and begun < row["begun"] <= answered + 3
            begun = row["begun"]
        else:
            answered += 1
            assert row["index"] < begun or "error" in row
    assert answered == 7 and rows[-1]["done"]
    service.root.problem(400, "INVALID_REQUEST", "POST", PATH, body=b"", headers=NDJSON, query={"progress": "no"})


def test_order_under_random_durations(service):
    times = [random.Random(7).uniform(0, 0.4) for _ in range(60)]
    began = time.monotonic()
    rows, _ = batch(service.root, [{"command": f"sleep {t:.3f}; echo {i}", "cpus": 2} for i, t in enumerate(times)], concurrency=12)
    assert [int(r["result"]["stdout"]) for r in rows] == list(range(60))
    assert time.monotonic() - began < sum(times)


@pytest.mark.parametrize("most", [1, 3])
def test_concurrency_holds(service, most):
    since = service.root.get("/v1/audit/verify")["rows"]
    batch(service.root, [{"command": "sleep 0.05"}] * 12, concurrency=most)
    rows = service.root.get("/v1/audit", after=since, limit=1000)["rows"]
    now = peak = 0
    for row in rows:
        now += {"run.start": 1, "run.end": -1}.get(row["action"], 0)
        peak = max(peak, now)
    assert now == 0 and peak == most


def test_a_slow_first_one_holds_no_more_than_the_window(service):
    """What is behind it ends meanwhile and waits; its order is kept."""
    with Duplex(service.root, "?concurrency=2") as d:
        d.send(text([{"command": "sleep 1.5; echo first"}] + [b"{}\n"] * 5000))
        d.send(b"")
        rows, end = d.read_all()
    assert rows[0]["result"]["stdout"] == "first\n" and end["errors"] == 5000


def test_a_line_that_is_too_long():
    with services.Service(service={"body_limit": "64k"}) as s:
        long = json.dumps({"command": ["true"], "env": {"A": "x" * 70000}}).encode() + b"\n"
        rows, _ = batch(s.root, [TRUE, long, TRUE, long[:-1]])
        assert [r["error"]["code"] if "error" in r else None for r in rows] == [None, "TOO_LARGE", None, "TOO_LARGE"]
        s.root.problem(413, "TOO_LARGE", "POST", PATH, json={"runs": [{"command": ["true"], "env": {"A": "x" * 70000}}]}, check=False)
        pid = cloched(s)
        before = rss(pid)
        with Duplex(s.root) as d:  # one that never ends is thrown away as it comes
            for _ in range(512):
                d.send(b"x" * 65536)
            assert rss(pid) - before < 4096
            d.send(b"\n" + text([TRUE]))
            d.send(b"")
            rows, _ = d.read_all()
        assert rows[0]["error"]["status"] == 413 and rows[1]["result"]["ok"]


# ----------------------------------------------------------------------------------------------------- back-pressure


def test_many_lines_in_flat_memory(service):
    """10,000 lines, of which each 25th runs; cloched does not grow by what passes through it."""
    batch(service.root, [TRUE] * 40)
    pid, seen, stop = cloched(service), [], threading.Event()
    before = rss(pid)
    watcher = threading.Thread(target=lambda: seen.extend(rss(pid) for _ in iter(lambda: stop.wait(0.1), True)))
    watcher.start()
    with Duplex(service.root, "?concurrency=4", timeout=60) as d:
        sender = threading.Thread(target=lambda: ([d.send(text([TRUE] + [b'{"x":%d}\n' % i] * 24)) for i in range(400)], d.send(b"")))
        sender.start()
        rows, end = d.read_all()
        sender.join()
    stop.set()
    watcher.join()
    assert (end["lines"], end["ok"], end["errors"]) == (10000, 400, 9600)
    assert len(seen) > 5 and max(seen) - before < 12 << 10, (before, seen)


def test_a_reader_that_does_not_read_stops_the_writer(service):
    """Neither memory nor the number of runs grows then; and when it reads again, all of it comes."""
    line = text([{"command": "head -c 60000 /dev/zero | tr '\\0' x"}] + [b"{}\n"] * 400)
    pid, runs = cloched(service), service.root.get("/v1/audit/verify")["rows"]
    before = rss(pid)
    with Duplex(service.root, "?concurrency=4", timeout=60) as d:
        d.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sent = d.fill(line)
        started = [r for r in service.root.get("/v1/audit", after=runs, limit=1000)["rows"] if r["action"] == "run.start"]
        assert sent < 4 << 20 and 1 <= len(started) < 200
        assert rss(pid) - before < 40 << 10
        sender = threading.Thread(target=d.send, args=(b"",)) if sent % (len(line) + len(b"%x\r\n\r\n" % len(line))) == 0 else None
        if sender is None:  # finish the piece that was cut
            piece = b"%x\r\n%s\r\n" % (len(line), line)
            sender = threading.Thread(target=lambda: (d.sock.sendall(piece[sent % len(piece):]), d.send(b"")))
        sender.start()
        rows, end = d.read_all()
        sender.join()
    assert end["errors"] == 400 * end["ok"] and end["failed"] == 0


# -------------------------------------------------------------------------------------------------- a client that goes


def test_a_cut_connection_leaves_nothing(service):
    root = service.root
    since = root.get("/v1/audit/verify")["rows"]
    with Duplex(root, "?concurrency=3") as d:
        d.send(text([{"command": ["sleep", "60"], "timeout": 90}] * 20))
        contract.until(lambda: alive(service) == 3, what="three sandboxes")
    contract.until(lambda: alive(service) == 0, what="their end")
    rows = root.get("/v1/audit", after=since, limit=1000)["rows"]
    assert sum(r["action"] == "run.start" for r in rows) == 3
    assert [r["details"]["reason"] for r in rows if r["action"] == "run.end"] == ["cancelled"] * 3
    assert root.get("/v1/quota")["used"]["sandboxes"] == 0


def test_a_body_that_is_cut_off_begins_no_half_line(service):
    """The last line without its end would be a run; it is not, when the body itself is not complete."""
    root = service.root
    since = root.get("/v1/audit/verify")["rows"]
    with Duplex(root, "?concurrency=3") as d:
        d.send(text([TRUE]) + json.dumps(TRUE).encode())
        d.read_lines(1)
    batch(root, [TRUE])
    rows = root.get("/v1/audit", after=since, limit=1000)["rows"]
    assert sum(r["action"] == "run.start" for r in rows) == 2


# ------------------------------------------------------------------------------------------------------------- quotas


@pytest.fixture
def limited(service):
    """limited(sandboxes=2): a caller with this quota."""
    made = []

    def make(**quota):
        made.append(service.key("limited", quota=quota))
        return made[-1]
    yield make
    for client in made:
        service.root.request("DELETE", f"/v1/keys/{client.key_id}")


@pytest.mark.parametrize("quota", [{"sandboxes": 2}, {"memory": "512m"}, {"cpus": 1}], ids=str)
def test_a_sum_is_waited_for(limited, quota):
    """Single runs beyond it get 429; those of a batch their turn."""
    rows, end = batch(limited(**quota), [{"command": f"sleep 0.05; echo {i}"} for i in range(10)], concurrency=8)
    assert (end["ok"], end["errors"]) == (10, 0) and end["wall_ms"] < 15000  # each by the quota's guess of 5 s: 20 s


def test_a_rate_is_waited_for(limited):
    """240 a minute are 4 a second when the minute's worth is used up."""
    client = limited(runs_per_minute=240)
    rows, end = batch(client, [TRUE] * 248, concurrency=8)
    assert (end["ok"], end["errors"]) == (248, 0) and client.get("/v1/quota")["used"]["runs_per_minute"] > 200


def test_what_can_never_be_had_is_refused_at_once(limited):
    rows, end = batch(limited(memory="128m"), [{**TRUE, "memory": "256m"}, {**TRUE, "memory": "64m"}])
    assert rows[0]["error"]["code"] == "SANDBOX_QUOTA_EXCEEDED" and rows[1]["result"]["ok"] and end["wall_ms"] < 30000


def test_waiting_has_an_end():
    with services.Service(service={"batch_wait": "1500ms"}) as s:
        client = s.key("one", quota={"sandboxes": 1})
        client.box()
        rows, end = batch(client, [TRUE])
        assert rows[0]["error"]["code"] == "SANDBOX_QUOTA_EXCEEDED" and rows[0]["error"]["retryable"] and 1400 < end["wall_ms"] < 9000
        assert s.root.get("/v1/audit/verify")["ok"]


def test_what_another_gives_back_is_taken_at_once(limited):
    """And not when the quota guesses that it may be there, which is after 5 s."""
    client = limited(sandboxes=1)
    box = client.box()
    with Duplex(client) as d:
        began = time.monotonic()
        d.send(text([TRUE]))
        d.sock.settimeout(0.5)
        with pytest.raises(TimeoutError):
            d.receive()
        d.sock.settimeout(30)
        box.kill()
        assert d.read_lines(1)[0]["result"]["ok"] and time.monotonic() - began < 4.5


def test_two_tenants_take_turns(tenants):
    """A batch of many does not keep one of few waiting until it is over."""
    a, b = tenants
    with Duplex(a, "?concurrency=64", timeout=60) as many:
        many.send(text([TRUE] * 400))
        many.send(b"")
        many.read_lines(20)
        rows, end = batch(b, [TRUE] * 10, concurrency=2)
        so_far = many.body()[0].count(b"\n")
        many.sock.setblocking(False)
        try:
            while many.receive():
                pass
        except BlockingIOError:
            pass
        so_far = many.body()[0].count(b"\n")
        many.sock.settimeout(60)
        assert end["ok"] == 10 and so_far < 400
        assert many.read_all()[1]["ok"] == 400


def test_session_is_the_batchs(service):
    rows, _ = batch(services.Client(service.sock, headers={"X-Cloche-Session": "s1"}), [TRUE])
    audit = service.root.get("/v1/audit", limit=1000, after=service.root.get("/v1/audit/verify")["rows"] - 10)["rows"]
    assert {r["session"] for r in audit if r["object"] == rows[0]["result"]["id"]} == {"s1"}
