#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The service with many sandboxes, streams and creations at a time, and what one of its callers notices of that.

Prints a table and JSON. One service, one run, one machine: each number beside what this machine does without the service
(a socket pair for the round trip, `cat` over a pipe for bytes). Nothing here passes or fails; goals are shown beside.

    tests/bench/bench_service.py [--build DIR] [--json FILE] [--sandboxes N] [--streams N] [--only PART[,PART]]

Parts: exec, runs, network, mcp, files, many. The last makes --sandboxes idle ones and measures everything else of it meanwhile.
"""
import argparse
import contextlib
import json
import os
import platform
import random
import re
import selectors
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "tests" / "lib"))
sys.dont_write_bytecode = True
import cloche  # noqa: E402
import proc  # noqa: E402
import service as services  # noqa: E402

GIGA = 1 << 30
PARTS = ("exec", "runs", "network", "mcp", "files", "many")


class Raw:
    """One connection that is kept, and no more work per request than has to be."""
    def __init__(self, path, timeout=120):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(timeout)
        self.sock.connect(path)

    def close(self):
        self.sock.close()

    @staticmethod
    def text(method, path, body=None, fields=""):
        data = b"" if body is None else json.dumps(body).encode()
        kind = fields.encode() + (b"" if body is None else b"Content-Type: application/json\r\n")
        return (f"{method} {path} HTTP/1.1\r\nHost: l\r\n".encode() + kind + b"Content-Length: %d\r\n\r\n" % len(data) + data)

    def ask(self, request):
        """(status, body) of an answer with a Content-Length."""
        self.sock.sendall(request)
        data = self.sock.recv(65536)
        while b"\r\n\r\n" not in data:
            more = self.sock.recv(65536)
            if not more:
                raise ConnectionError("hung up")
            data += more
        head, _, body = data.partition(b"\r\n\r\n")
        size = re.search(rb"(?i)content-length: (\d+)", head)
        size = int(size[1]) if size else 0
        while len(body) < size:
            body += self.sock.recv(1 << 20)
        return int(head[9:12]), body

    def measured(self, request):
        began = time.perf_counter()
        status, body = self.ask(request)
        took = time.perf_counter() - began
        if status >= 300:
            raise RuntimeError(f"{status} {body[:300]!r}")
        return took


def percentile(values, p):
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * p / 100))]


def spread(values, unit=1e3):
    return {"n": len(values), "p50": round(statistics.median(values) * unit, 3), "p90": round(percentile(values, 90) * unit, 3),
            "p99": round(percentile(values, 99) * unit, 3), "max": round(max(values) * unit, 3)}


def pss(pid):
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(re.search(r"Pss:\s+(\d+) kB", text)[1]) * 1024


class Bench:
    def __init__(self, args):
        self.args = args
        self.result = {"kernel": platform.release(), "cpus": os.cpu_count(), "load_before": os.getloadavg(),
                       "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
        self.rows = []
        self.folder = tempfile.TemporaryDirectory(prefix="clo-bench.", dir="/dev/shm")  # in memory, as /run is where there is an init
        os.chmod(self.folder.name, 0o755)
        run = f"{self.folder.name}/run"
        self.service = services.Service({"runtime_dir": run, "socket": f"{run}/cloche.sock", "quota": {"sandboxes": 100000, "runs_per_minute": 100000000, "memory": "100000g",
                                                   "cpus": 1000000, "disk": "1000g"}})
        self.path = self.service.sock

    def note(self, name, value, goal="", **more):
        self.result[name] = more or value
        self.rows.append((name, str(value), goal))
        print(f"  {name:<46} {value:<44} {goal}", flush=True)

    def times(self, name, values, goal=""):
        s = spread(values)
        self.note(name, f"p50 {s['p50']:.3f}  p99 {s['p99']:.3f}  max {s['max']:.2f} ms  (n={s['n']})", goal, **s)
        return s

    def make(self, **body):
        raw = Raw(self.path)
        status, data = raw.ask(Raw.text("POST", "/v1/sandboxes", {"timeout": "100h", **body}))
        raw.close()
        if status != 201:
            raise RuntimeError(f"{status} {data[:300]!r}")
        return json.loads(data)["id"]

    def delete(self, ids):
        """Four at a time."""
        left, lock = list(ids), threading.Lock()

        def work():
            raw = Raw(self.path)
            while True:
                with lock:
                    if not left:
                        break
                    one = left.pop()
                raw.ask(Raw.text("DELETE", f"/v1/sandboxes/{one}"))
            raw.close()
        threads = [threading.Thread(target=work) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()

    # ---- parts

    def floor(self):
        """A round trip to a process that only sends back: what no service can be faster than here."""
        ours, theirs = socket.socketpair()
        pid = os.fork()
        if pid == 0:
            ours.close()
            while data := theirs.recv(4096):
                theirs.sendall(data)
            os._exit(0)
        theirs.close()
        times = []
        for _ in range(3000):
            began = time.perf_counter()
            ours.sendall(b"x" * 200)
            ours.recv(4096)
            times.append(time.perf_counter() - began)
        ours.close()
        os.waitpid(pid, 0)
        self.times("socket pair round trip", times)
        times = []
        for _ in range(300):
            began = time.perf_counter()
            os.posix_spawn("/bin/true", ["true"], {})
            os.wait()
            times.append(time.perf_counter() - began)
        self.times("posix_spawn and wait of true", times)

    def exec(self, rounds=3000):
        box = self.make(memory="64m")
        raw = Raw(self.path)
        health = Raw.text("GET", "/healthz")
        true = Raw.text("POST", f"/v1/sandboxes/{box}/exec", {"command": ["true"]})
        python = Raw.text("POST", f"/v1/sandboxes/{box}/exec", {"language": "python", "code": "print(1)"})
        for _ in range(50):
            raw.measured(true)
        self.times("GET /healthz", [raw.measured(health) for _ in range(1000)])
        self.times("exec true, keep-alive, quiet", [raw.measured(true) for _ in range(rounds)], "p50 <= 1 ms")
        self.times("exec python print(1)", [raw.measured(python) for _ in range(60)])
        raw.close()
        self.delete([box])

    def runs(self):
        raw = Raw(self.path)
        true = Raw.text("POST", "/v1/runs", {"command": ["true"]})
        python = Raw.text("POST", "/v1/runs", {"language": "python", "code": "print(1)"})
        raw.measured(true)
        self.times("POST /v1/runs true", [raw.measured(true) for _ in range(150)])
        self.times("POST /v1/runs python print(1)", [raw.measured(python) for _ in range(60)])
        raw.close()

    def network(self, rounds=200):
        """A sandbox with a network policy beside one without, in turns; a pause behind each, in which what it left is put away."""
        raw, times = Raw(self.path), {(): [], ("allow",): []}
        for i in range(2 * rounds + 20):
            names = ("allow", )[:i // 2 % 2 ^ i % 2]
            body = {"timeout": "1h", **({"network": "allow", "allow": ["pypi.org"]} if names else {})}
            began = time.perf_counter()
            status, data = raw.ask(Raw.text("POST", "/v1/sandboxes", body))
            took = time.perf_counter() - began
            if status != 201:
                raise RuntimeError(f"{status} {data[:300]!r}")
            if i >= 20:
                times[names].append(took)
            raw.ask(Raw.text("DELETE", f"/v1/sandboxes/{json.loads(data)['id']}"))
            time.sleep(0.02)
        raw.close()
        without = self.times("POST /v1/sandboxes", times[()])
        having = self.times("POST /v1/sandboxes with a network policy", times["allow",])
        self.note("  more at the median", f"{having['p50'] - without['p50']:.2f} ms", "<= 0.7 ms")

    def cat(self):
        """Bytes of `cat` from a pipe to a pipe, written and read like a client does."""
        block, total = memoryview(bytes(1 << 20)), GIGA
        p = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)

        def write():
            for _ in range(total // len(block)):
                sent = 0
                while sent < len(block):
                    sent += os.write(p.stdin.fileno(), block[sent:])
            p.stdin.close()
        began = time.perf_counter()
        t = threading.Thread(target=write)
        t.start()
        buffer, got = bytearray(1 << 20), 0
        while n := os.readv(p.stdout.fileno(), [buffer]):
            got += n
        took = time.perf_counter() - began
        t.join()
        p.wait()
        assert got == total
        return took

    def put(self, box, size):
        block = memoryview(bytes(1 << 20))
        raw = Raw(self.path)
        head = f"PUT /v1/sandboxes/{box}/files?path=/workspace/big HTTP/1.1\r\nHost: l\r\nContent-Length: {size}\r\n\r\n"
        began = time.perf_counter()
        raw.sock.sendall(head.encode())
        for _ in range(size // len(block)):
            raw.sock.sendall(block)
        status = raw.sock.recv(65536)
        took = time.perf_counter() - began
        raw.close()
        if status[9:12] not in (b"201", b"204"):
            raise RuntimeError(status[:300])
        return took

    def get(self, box, size):
        raw = Raw(self.path)
        buffer, got = bytearray(1 << 20), 0
        began = time.perf_counter()
        raw.sock.sendall(Raw.text("GET", f"/v1/sandboxes/{box}/files?path=/workspace/big"))
        while got < size:
            n = raw.sock.recv_into(buffer)
            if not n:
                raise RuntimeError(f"cut after {got} bytes")
            got += n
        took = time.perf_counter() - began
        raw.close()
        return took

    def mcp(self, rounds=300):
        """A model's run by the two transports of MCP, and the same run asked for directly, in turns."""
        code, run = "print(1)", {"language": "python", "code": "print(1)", "output": True, "timeout": 30}
        hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "b", "version": "1"}}}
        call = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "run_python", "arguments": {"code": code}}}
        api, mcp = Raw(self.path), Raw(self.path)
        mcp.sock.sendall(Raw.text("POST", "/mcp", hello))
        session = re.search(rb"(?i)mcp-session-id: (\S+)", mcp.sock.recv(65536))[1].decode()
        direct, by_http = Raw.text("POST", "/v1/runs", run), Raw.text("POST", "/mcp", call, f"Mcp-Session-Id: {session}\r\n")
        p = subprocess.Popen([cloche.binary(), "mcp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=cloche.environment({"CLOCHE_SOCKET": self.path}))

        def by_stdio(message=call):
            began = time.perf_counter()
            p.stdin.write(json.dumps(message).encode() + b"\n")
            p.stdin.flush()
            answer = p.stdout.readline()
            took = time.perf_counter() - began
            if b'"error"' in answer:
                raise RuntimeError(answer)
            return took
        by_stdio(hello)
        asks = {"POST /v1/runs": lambda: api.measured(direct), "/mcp": lambda: mcp.measured(by_http), "cloche mcp": by_stdio}
        times = {name: [] for name in asks}
        for i in range(rounds + 20):
            for name in random.sample(sorted(asks), len(asks)):  # what one leaves to be done is not always the same one's to bear
                took = asks[name]()
                if i >= 20:
                    times[name].append(took)
        for name, values in times.items():
            self.times(f"python print(1) by {name}", values)
        base = times["POST /v1/runs"]
        for name in ("/mcp", "cloche mcp"):
            more = {f"p{p}": round(1e3 * (percentile(times[name], p) - percentile(base, p)), 3) for p in (10, 50)}
            self.note(f"{name} over POST /v1/runs", f"p50 {more['p50']:+.3f}  p10 {more['p10']:+.3f} ms", "p50 <= 1 ms", **more)
        p.stdin.close()
        p.wait()
        p.stdout.close()
        mcp.ask(Raw.text("DELETE", "/mcp", None, f"Mcp-Session-Id: {session}\r\n"))
        api.close()
        mcp.close()

    def files(self):
        box = self.make(memory="2g", cpus=2, tmpfs=["/workspace:size=1500m"])
        cats, ups, downs = [], [], []
        for _ in range(3):
            cats.append(self.cat())
            ups.append(self.put(box, GIGA))
            downs.append(self.get(box, GIGA))
            raw = Raw(self.path)  # a file is replaced at once: the old and the new one would have to fit
            raw.measured(Raw.text("DELETE", f"/v1/sandboxes/{box}/files?path=/workspace/big"))
            raw.close()
        cat = statistics.median(cats)
        for name, took in (("1 GiB through cat and two pipes", cat), ("1 GiB up", statistics.median(ups)),
                           ("1 GiB down", statistics.median(downs))):
            rate = GIGA / took / 1e6
            self.note(name, f"{rate:.0f} MB/s, {took / cat:.2f} x cat", "" if took == cat else ">= 500 MB/s or <= 2 x cat",
                      mb_per_s=round(rate), of_cat=round(took / cat, 2))
        self.delete([box])

    # ---- many

    def most(self):
        """How many sandboxes can be here, and what says so."""
        spawner = self.service.child("cloche-spawner")
        open_files = int(re.search(r"Max open files\s+(\d+)", Path(f"/proc/{spawner}/limits").read_text())[1])
        pids = int(Path("/proc/sys/kernel/pid_max").read_text()) - 2000
        threads = int(Path("/proc/sys/kernel/threads-max").read_text()) - 2000
        users = int(Path("/proc/sys/user/max_user_namespaces").read_text())
        nets = int(Path("/proc/sys/user/max_net_namespaces").read_text())
        return {"asked for": self.args.sandboxes, "descriptors of the spawner": open_files // 2 - 100, "pid_max": pids,
                "threads-max": threads, "max_user_namespaces": users, "max_net_namespaces": nets}

    def fill(self, wanted):
        ids, lock, why = [], threading.Lock(), []

        def work():
            raw = Raw(self.path)
            request = Raw.text("POST", "/v1/sandboxes", {"timeout": "100h", "memory": "16m"})
            while not why:
                with lock:
                    if len(ids) >= wanted:
                        break
                    ids.append(None)
                status, data = raw.ask(request)
                with lock:
                    ids.remove(None)
                    if status == 201:
                        ids.append(json.loads(data)["id"])
                    else:
                        why.append(data.decode(errors="replace")[:200])
            raw.close()
        threads = [threading.Thread(target=work) for _ in range(4)]
        began = time.perf_counter()
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        return [i for i in ids if i], time.perf_counter() - began, why

    def memory(self):
        parts = {"serve": pss(self.service.process.pid)}
        for p in proc.children(self.service.process.pid):
            name = proc.name(p)
            if name.startswith("cloche"):
                parts[name] = parts.get(name, 0) + pss(p)
        return parts

    def peer(self, box, over):
        """`exec true` again and again, for as long as something else goes on."""
        raw, times = Raw(self.path), []
        request = Raw.text("POST", f"/v1/sandboxes/{box}/exec", {"command": ["true"]})
        while not over.is_set():
            times.append(raw.measured(request))
            time.sleep(0.005)
        raw.close()
        return times

    @contextlib.contextmanager
    def peering(self, name, box, goal="p99 < 50 ms"):
        over, got = threading.Event(), []
        t = threading.Thread(target=lambda: got.extend(self.peer(box, over)))
        t.start()
        try:
            yield
        finally:
            over.set()
            t.join()
            if got:
                self.times(name, got, goal)

    def streams(self, ids, seconds=15):
        """Commands that print 1 KB a second each, all read by one thread."""
        code = '$| = 1; while (1) { print "x" x 1023, "\\n"; select(undef, undef, undef, 1) }'  # one process, no fork a second
        body = {"command": ["perl", "-e", code], "timeout": "10m", "max_output": "64m"}
        chooser, late = selectors.DefaultSelector(), 0
        got = {}
        for one in ids:
            raw = Raw(self.path)
            raw.sock.sendall(Raw.text("POST", f"/v1/sandboxes/{one}/exec?stream", body))
            raw.sock.setblocking(False)
            chooser.register(raw.sock, selectors.EVENT_READ)
            got[raw.sock] = 0
        until = time.monotonic() + seconds
        began_all = None
        while time.monotonic() < until:
            for key, _ in chooser.select(0.2):
                with contextlib.suppress(BlockingIOError):
                    data = key.fileobj.recv(65536)
                    if not data:
                        late += 1
                        chooser.unregister(key.fileobj)
                    got[key.fileobj] += len(data)
            if began_all is None and all(v > 1024 for v in got.values()):
                began_all = time.monotonic()
                until = began_all + seconds
                start = dict(got)
        for s in got:
            s.close()
        if began_all is None:
            raise RuntimeError(f"only {sum(v > 1024 for v in got.values())} of {len(got)} streams began")
        rates = [(got[s] - start[s]) / seconds for s in got]
        return rates, late

    def creations(self, count):
        request = Raw.text("POST", "/v1/sandboxes", {"timeout": "100h", "memory": "16m"})
        socks, times, ids = {}, [], []
        chooser = selectors.DefaultSelector()
        began = time.perf_counter()
        for _ in range(count):
            raw = Raw(self.path)
            raw.sock.sendall(request)
            chooser.register(raw.sock, selectors.EVENT_READ)
            socks[raw.sock] = b""
        refused = []
        while len(times) + len(refused) < count:
            for key, _ in chooser.select(60):
                data = key.fileobj.recv(65536)
                socks[key.fileobj] += data
                head, gap, rest = socks[key.fileobj].partition(b"\r\n\r\n")
                size = re.search(rb"(?i)content-length: (\d+)", head)
                if gap and len(rest) >= int(size[1]):
                    if head[9:12] == b"201":
                        times.append(time.perf_counter() - began)
                        ids.append(json.loads(rest)["id"])
                    else:
                        refused.append(rest[:200])
                    chooser.unregister(key.fileobj)
                    key.fileobj.close()
        if refused:
            self.note(f"{count} creates at once: refused", f"{len(refused)}: {refused[0]!r}")
        return times, ids

    def many(self):
        limits = self.most()
        name, wanted = min(limits.items(), key=lambda kv: kv[1])
        before, peer = self.memory(), self.make(memory="64m")
        free = int(re.search(r"MemAvailable:\s+(\d+)", Path("/proc/meminfo").read_text())[1]) * 1024
        ids, took, why = self.fill(wanted - 200 if name != "asked for" else wanted)
        used = free - int(re.search(r"MemAvailable:\s+(\d+)", Path("/proc/meminfo").read_text())[1]) * 1024
        self.note("idle kept sandboxes", f"{len(ids)} in {took:.1f} s ({took / max(1, len(ids)) * 1e3:.2f} ms each)", "5000",
                  count=len(ids), seconds=round(took, 1), limit=name, limits=limits, refused=why)
        self.note("what bounds their number", f"{name} = {limits[name]}" + (f"; {why[0]}" if why else ""))
        after = self.memory()
        total = sum(after.values())
        each = (total - sum(before.values())) / max(1, len(ids))
        self.note("memory of the service (PSS)", f"{total / 1e6:.1f} MB: " + ", ".join(f"{k} {v / 1e6:.1f}" for k, v in after.items()),
                  "< 100 MB", total=total, parts=after, empty=before)
        self.note("  of which per sandbox", f"{each / 1024:.2f} KiB", "", bytes=round(each))
        self.note("memory of the machine per sandbox", f"{used / max(1, len(ids)) / 1024:.0f} KiB", "", bytes=used // max(1, len(ids)))
        with self.peering("exec true of a peer: only idle ones", peer):
            time.sleep(5)
        with self.peering(f"exec true of a peer: {self.args.streams} streams", peer):
            rates, lost = self.streams(ids[:self.args.streams])
        self.note(f"{self.args.streams} streams, bytes/s each", f"min {min(rates):.0f}  p50 {statistics.median(rates):.0f}, {lost} lost",
                  ">= 1024", minimum=round(min(rates)), lost=lost)
        time.sleep(1)
        with self.peering("exec true of a peer: 100 creates", peer):
            times, more = self.creations(100)
        if times:
            self.times("100 creates at once: each", times)
        began = time.perf_counter()
        self.delete(ids + more + [peer])
        gone = len(ids) + len(more) + 1
        self.note("DELETE, four at a time", f"{(time.perf_counter() - began) / gone * 1e3:.2f} ms each")

    def run(self):
        parts = self.args.only.split(",") if self.args.only else PARTS
        try:
            self.floor()
            for part in parts:
                getattr(self, part)()
        finally:
            self.result["load_after"] = os.getloadavg()
            self.service.stop()
            self.folder.cleanup()
        if self.args.json:
            Path(self.args.json).write_text(json.dumps(self.result, indent=1) + "\n")
        else:
            print(json.dumps(self.result))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default=str(TOP / "build"), metavar="DIR")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--sandboxes", type=int, default=5000, metavar="N")
    parser.add_argument("--streams", type=int, default=500, metavar="N")
    parser.add_argument("--only", metavar="PART[,PART]", help=f"of {', '.join(PARTS)}")
    args = parser.parse_args()
    os.environ.setdefault("CLOCHE", os.path.join(os.path.abspath(args.build), "cloche"))
    cloche.must_work()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what was made is taken away all the same
    Bench(args).run()


if __name__ == "__main__":
    main()
