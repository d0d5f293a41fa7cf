#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The service's prepared sandboxes: one run at a time, many at a time, many prepared, and what they are measured against.

Prints a table and JSON: medians, 99th percentiles, ratios, and for each goal whether it holds here and now. One machine, one
run: nothing is compared across two. Nothing here passes or fails. As root; what needs what is not installed is left out, and said.

    tests/bench/bench_fast.py [--build DIR] [--json FILE] [--seconds N] [--count N] [--idle N] [--only PART[,PART]] [--policy JSON]

Parts: one, tcp, cli, exec, peers, sustained, burst, thousand, idle, pandas.
"""
import argparse
import contextlib
import json
import os
import platform
import re
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench_service import TOP, Raw, pss, spread

import cloche
import proc
import service as services
from peers import Docker, cgroup_folders, forget_folders

PYTHON = "/usr/bin/python3"
PRINT = {"language": "python", "code": "print(1)"}
TRUE = {"command": ["true"]}
ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/tmp", "LANG": "C.UTF-8"}
PANDAS = "import numpy, pandas\nprint(pandas.DataFrame({'a': numpy.arange(3)}).a.sum())"
QUOTA = {"sandboxes": 100000, "runs_per_minute": 100000000, "memory": "100000g", "cpus": 1000000, "disk": "1000g"}
PARTS = ("one", "tcp", "cli", "exec", "peers", "sustained", "burst", "thousand", "idle", "pandas")


def meminfo(*names):
    rows = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    return [int(rows[n].split()[0]) * 1024 for n in names]


def busy_seconds():
    """Of all processors together, by everything on this machine, the kernel's own workers too."""
    numbers = [int(n) for n in Path("/proc/stat").read_text().split("\n")[0].split()[1:9]]
    return (sum(numbers) - numbers[3] - numbers[4] - numbers[7]) / os.sysconf("SC_CLK_TCK")


def objects():
    """Kernel objects that a leak would leave."""
    groups = {line.split()[0]: int(line.split()[2]) for line in Path("/proc/cgroups").read_text().splitlines()[1:]}
    nets = 0
    with contextlib.suppress(OSError):
        nets = int(re.search(r"^net_namespace +(\d+)", Path("/proc/slabinfo").read_text(), re.M)[1])
    processes = sum(p.isdigit() for p in os.listdir("/proc"))
    return {"slab": meminfo("Slab")[0], "netns": nets, "cgroups": sum(groups.values()),
            "mounts": len(Path("/proc/self/mountinfo").read_text().splitlines()), "processes": processes}


class Fast:
    def __init__(self, args, folder):
        self.args, self.folder = args, Path(folder)
        self.result = {"kernel": platform.release(), "cpus": os.cpu_count(), "load_before": os.getloadavg(),
                       "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
        self.goals, self.left_out = [], {}
        self.load = Path(args.build, "tests/bench/bench-load")

    # ---- telling

    def note(self, name, text, **values):
        self.result[name] = values
        print(f"  {name:<52} {text}", flush=True)

    def goal(self, what, value, unit, limit, met):
        self.goals.append({"what": what, "value": round(value, 3), "unit": unit, "goal": limit, "met": bool(met)})

    def times(self, name, values):
        s = spread(values)
        self.note(name, f"p50 {s['p50']:8.3f}  p99 {s['p99']:8.3f}  max {s['max']:8.2f} ms  (n={s['n']})", **s)
        return s

    def without(self, name, why):
        self.left_out[name] = why
        print(f"  left out: {name}: {why}", flush=True)

    # ---- means

    @contextlib.contextmanager
    def service(self, config=None, policy=None):
        """Its runtime folder in memory, as /run is where there is an init."""
        with tempfile.TemporaryDirectory(prefix="clo-bench.", dir="/dev/shm") as folder:
            os.chmod(folder, 0o755)
            with services.Service({"quota": QUOTA, "runtime_dir": f"{folder}/run", "socket": f"{folder}/run/cloche.sock", **(config or {})},
                                  {**self.args.policy, **(policy or {})}) as one:
                yield one

    def metric(self, service, name):
        return float(re.search(rf"^cloche_{name} (\S+)$", service.root.request("GET", "/metrics").body.decode(), re.M)[1])

    def settle(self, service, ready, seconds=120):
        until = time.monotonic() + seconds
        while self.metric(service, "pool_ready") < ready:
            if time.monotonic() > until:
                raise TimeoutError(f"{self.metric(service, 'pool_ready'):.0f} of {ready} prepared after {seconds} s")
            time.sleep(0.05)

    def ask(self, address, body, clients=1, seconds=600.0, count=0, gap_us=0, wanted='"stdout":"1\\n"', token=None, path="/v1/runs"):
        """Seconds of each answer, and how many were not what they should be."""
        data = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n"
        if token:
            head += f"Authorization: Bearer {token}\r\n"
        done = subprocess.run([self.load, str(address), str(clients), str(seconds), str(count), str(gap_us), wanted],
                              input=f"{head}\r\n".encode() + data, stdout=subprocess.PIPE, check=True)
        rows = [line.split("\t") for line in done.stdout.decode().splitlines()]
        good = [int(ns) / 1e9 for ns, status, right in rows if status in ("200", "201") and right == "1"]
        return good, len(rows) - len(good)

    def first_lines(self, address, body, count, gap=0.06):
        """Seconds from the request until the first line that the code has written is here, of streamed runs."""
        request, values = Raw.text("POST", "/v1/runs?stream", body), []
        for _ in range(count):
            raw, data = Raw(str(address)), b""
            began = time.perf_counter()
            raw.sock.sendall(request)
            while b'"stdout"' not in data:
                more = raw.sock.recv(65536)
                if not more:
                    raise ConnectionError(f"no line came: {data[-300:]!r}")
                data += more
            values.append(time.perf_counter() - began)
            while b'"exited"' not in data:
                data += raw.sock.recv(65536)
            raw.close()
            time.sleep(gap)
        return values

    def runner(self, programs, rounds):
        """{name: (stdin, argv)}: milliseconds of each, taking turns."""
        path = self.folder / "list"
        path.write_text("".join("\t".join([name, "1", stdin, *argv]) + "\n" for name, (stdin, argv) in programs.items()))
        done = subprocess.run([Path(self.args.build, "tests/bench/bench-runner"), str(rounds), path], env=ENVIRONMENT,
                              stdout=subprocess.PIPE, text=True, check=False, cwd="/")
        times = {}
        for line in done.stdout.splitlines():
            name, ns, status, *said = line.split("\t")
            if status != "0":
                self.without(name, f"wait status {status}: {' '.join(said)[:200]}")
            else:
                times.setdefault(name, []).append(int(ns) / 1e9)
        return {name: values[1:] for name, values in times.items()}

    # ---- one at a time

    def one_at_a_time(self, what, address, service, token=None):
        self.ask(address, PRINT, count=40, token=token)
        self.settle(service, 1)
        goals = {"print(1)": (0.5, 3)}
        for name, body, wanted in (("print(1)", PRINT, '"stdout":"1\\n"'), ("true", TRUE, '"reason":"exited"')):
            self.ask(address, body, count=30, gap_us=20000, wanted=wanted, token=token)
            for pace, gap in (("every 20 ms", 20000), ("one after the other", 0)):
                hits = self.metric(service, "pool_interpreter_hits_total")
                busy = busy_seconds()
                values, bad = self.ask(address, body, count=self.args.count, gap_us=gap, wanted=wanted, token=token)
                busy = (busy_seconds() - busy) / len(values) * 1e3
                s = self.times(f"{what}: {name}, {pace}", values)
                hits = self.metric(service, "pool_interpreter_hits_total") - hits
                self.note("  of them found an interpreter; CPU of the machine each", f"{hits:.0f}; {busy:.2f} ms; failed {bad}", hits=hits,
                          cpu_ms=busy, failed=bad)
                if name in goals and gap:
                    for p, limit in zip(("p50", "p99"), goals[name]):
                        self.goal(f"{what}: {name} {pace}, {p}", s[p], "ms", f"<= {limit}", s[p] <= limit)

    def one(self):
        with self.service() as s:
            self.one_at_a_time("unix", s.sock, s)

    def tcp(self):
        with self.service() as s:
            self.one_at_a_time("tcp", s.port, s, s.key("bench").secret)

    def cli(self):
        with self.service() as s:
            ENVIRONMENT["CLOCHE_SOCKET"] = s.sock
            script = self.folder / "code.py"
            script.write_text("print(1)")
            ours = [cloche.binary(), "python", "-c", "print(1)"]
            times = self.runner({"warm": ("/dev/null", ours)}, 20)
            times = self.runner({"cloche python -c, by the service": ("/dev/null", ours), "python3 -": (str(script), [PYTHON, "-"]),
                                 "cloche --version": ("/dev/null", [cloche.binary(), "--version"])}, min(self.args.count, 300))
            del ENVIRONMENT["CLOCHE_SOCKET"]
            for name, values in times.items():
                self.times(f"whole process: {name}", values)
            p50 = spread(times["cloche python -c, by the service"])["p50"]
            self.goal("whole process: cloche python -c, p50", p50, "ms", "<= 3", p50 <= 3)

    def exec(self):
        with self.service() as s:
            box = s.root.box(memory="64m", timeout="1h")
            path = f"/v1/sandboxes/{box.id}/exec"
            self.ask(s.sock, TRUE, count=100, wanted='"reason":"exited"', path=path)
            values, _ = self.ask(s.sock, TRUE, count=self.args.count, wanted='"reason":"exited"', path=path)
            p50 = self.times("exec true in a kept sandbox", values)["p50"]
            self.goal("exec true in a kept sandbox, p50", p50, "ms", "<= 1", p50 <= 1)
            box.kill()

    def peers(self):
        """Against a plain interpreter and docker, in turns."""
        script = self.folder / "code.py"
        script.write_text("print(1)")
        docker, before = Docker(self.folder / "docker", [PYTHON]), cgroup_folders()
        programs = {"python3 -": (str(script), [PYTHON, "-"])}
        try:
            if not shutil.which("dockerd"):
                self.without("docker", "dockerd is not installed")
            elif (why := docker.start()):
                self.without("docker", why)
            else:
                programs["docker run"] = (str(script), [*docker.run, docker.image, PYTHON, "-"])
            with self.service() as s:
                self.ask(s.sock, PRINT, count=30, gap_us=20000)
                ours, plain, dockers = [], [], []
                for _ in range(8):
                    ours += self.ask(s.sock, PRINT, count=max(20, self.args.count // 8), gap_us=20000)[0]
                    plain += self.runner({"python3 -": programs["python3 -"]}, 20)["python3 -"]
                    if "docker run" in programs:
                        dockers += self.runner({"docker run": programs["docker run"]}, 4).get("docker run", [])
        finally:
            docker.stop()
            forget_folders(before)
        mine = self.times("peers: POST /v1/runs print(1)", ours)["p50"]
        base = self.times("peers: python3 - on the host", plain)["p50"]
        self.goal("python3 - / POST /v1/runs", base / mine, "x", ">= 5", base / mine >= 5)
        if dockers:
            base = self.times("peers: docker run", dockers)["p50"]
            self.goal("docker run / POST /v1/runs", base / mine, "x", ">= 300", base / mine >= 300)

    # ---- many at a time

    def floor(self, seconds):
        done = subprocess.run([PYTHON, TOP / "tests/bench/floor.py", Path(self.args.build, "tests/bench/bench-floor.so"), "8", str(seconds)],
                              stdout=subprocess.PIPE, text=True, check=False, env=ENVIRONMENT)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def sustained(self):
        """In turns with the floor, so that a slow minute hits both."""
        turns, rates, floors, took, failed, cpu = 3, [], [], [], 0, []
        with self.service() as s:
            self.ask(s.sock, PRINT, clients=8, seconds=2)
            before = objects()
            for _ in range(turns):
                floor = self.floor(self.args.seconds / turns)
                if floor:
                    floors.append(floor["per_second"])
                busy, began = busy_seconds(), time.perf_counter()
                values, bad = self.ask(s.sock, PRINT, clients=8, seconds=self.args.seconds / turns)
                rates.append(len(values) / (time.perf_counter() - began))
                cpu.append((busy_seconds() - busy) / max(1, len(values)) * 1e3)
                took += values
                failed += bad
            time.sleep(3)
            until = time.monotonic() + 30
            while self.metric(s, "sandboxes_dying") and time.monotonic() < until:
                time.sleep(0.2)
            after = objects()
            hits = self.metric(s, "pool_interpreter_hits_total")
        rate, p99 = sorted(rates)[turns // 2], self.times("8 clients: each run", took)["p99"]
        floor = sorted(floors)[len(floors) // 2] if floors else 0
        self.note("8 clients: runs a second, here and in one process", f"{rate:.0f}, floor {floor:.0f}; {sorted(cpu)[turns // 2]:.2f} ms CPU each; "
                  f"{hits:.0f} found an interpreter; failed {failed}", rates=rates, floors=floors, cpu_ms=cpu, failed=failed)
        self.note("8 clients: before and after", ", ".join(f"{k} {before[k]} {after[k]}" for k in before), before=before, after=after)
        if floor:
            self.goal("8 clients: of the in-process floor", rate / floor * 100, "%", ">= 60", rate / floor >= 0.6)
        self.goal("8 clients: failed", failed, "", "0", failed == 0)
        self.goal("8 clients: p99", p99, "ms", "<= 40", p99 <= 40)
        flat = after["slab"] - before["slab"] < 64 << 20 and all(after[k] - before[k] <= 64 for k in before if k != "slab")
        self.goal("8 clients: slab more after than before", (after["slab"] - before["slab"]) / 2**20, "MiB", "flat", flat)

    def at_once(self, service, count, retry=False):
        """Everything sent before anything is read. Seconds of each 200, and the 429's [Retry-After]."""
        data = json.dumps(PRINT).encode()
        text = b"POST /v1/runs HTTP/1.1\r\nHost: l\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(data) + data
        chooser, left, took, refused, other = selectors.DefaultSelector(), {}, [], [], []
        raws = [Raw(service.sock) for _ in range(count)]
        began = time.perf_counter()
        for raw in raws:
            raw.sock.sendall(text)
            chooser.register(raw.sock, selectors.EVENT_READ)
            left[raw.sock] = b""
        while left:
            for key, _ in chooser.select(60) or sys.exit("bench: no answer"):
                more = key.fileobj.recv(65536)
                left[key.fileobj] += more
                head, gap, rest = left[key.fileobj].partition(b"\r\n\r\n")
                size = re.search(rb"(?i)content-length: (\d+)", head)
                if more and not (gap and len(rest) >= int(size[1])):
                    continue
                chooser.unregister(key.fileobj)
                del left[key.fileobj]
                if head[9:12] == b"200" and json.loads(rest)["stdout"] == "1\n":
                    took.append(time.perf_counter() - began)
                elif head[9:12] == b"429":
                    refused.append(int(re.search(rb"(?i)retry-after: (\d+)", head)[1]))
                else:
                    other.append(rest[:300])
        for raw in raws:
            raw.close()
        return took, refused, other

    def burst(self):
        alls = []
        for _ in range(5):
            with self.service() as s:
                took, refused, other = self.at_once(s, 100)
                if refused or other:
                    self.without("100 at once", f"{len(refused)} refused, {other[:1]}")
                alls.append(max(took))
        last = self.times("100 at once, nothing prepared: the last one", alls)["p50"] if alls else 0
        self.goal("100 at once from a cold pool: all done, median", last, "ms", "<= 250", 0 < last <= 250)

    def thousand(self):
        with self.service() as s:
            self.at_once(s, 10)
            took, refused, other = self.at_once(s, 1000)
            self.times("1,000 at once: those that were taken", took)
            first, later, tries = len(took), 0, 0
            while refused and tries < 20:
                tries += 1
                time.sleep(max(refused))
                took, refused, more = self.at_once(s, len(refused))
                later += len(took)
                other += more
            self.note("1,000 at once", f"{first} at once, {later} after {tries} times Retry-After, {len(refused)} never, other answers {len(other)}",
                      first=first, later=later, tries=tries, never=len(refused), other=[str(o) for o in other[:3]])
            self.goal("1,000 at once: succeed at once", first, "", ">= 500", first >= 500 and not other)
            self.goal("1,000 at once: never succeed", 1000 - first - later, "", "0", first + later == 1000)

    # ---- prepared and idle

    def idle(self):
        """All in: what the machine has less of; and PSS of what was made."""
        for name, body, limit in (("warmed Python", PRINT, 1.3), ("unwarmed", TRUE, 0.7)):
            count = self.args.idle
            config = {"pool": count, "pool_floor": count, "pool_memory": "16g"}
            with self.service(config) as s:
                before, = meminfo("MemAvailable")
                slab, = meminfo("Slab")
                status = s.root.request("POST", "/v1/runs", json=body, timeout=60).status
                began = time.monotonic()
                try:
                    self.settle(s, count, 300)
                except TimeoutError as e:
                    self.without(f"{count} idle, {name}", str(e))
                    continue
                took = time.monotonic() - began
                time.sleep(2)
                each = (before - meminfo("MemAvailable")[0]) / count
                slab = (meminfo("Slab")[0] - slab) / count
                mine = s.processes() - {s.process.pid, *proc.children(s.process.pid)}
                shares = 0
                for p in mine:
                    with contextlib.suppress(OSError, TypeError):
                        shares += pss(p)
                self.note(f"{count} idle, {name}", f"{each / 2**20:.2f} MiB each, all in (PSS {shares / count / 2**20:.2f}, slab {slab / 2**20:.2f}); "
                          f"{took / count * 1e3:.1f} ms each to make; first answer {status}", bytes=round(each), pss=shares // count, slab=round(slab),
                          seconds=took)
                self.goal(f"{count} idle prepared sandboxes, {name}: each", each / 2**20, "MiB", f"<= {limit}", each <= limit * 2**20)
                values, bad = self.ask(s.sock, body, count=50, gap_us=20000, wanted='"reason":"exited"')
                self.times(f"a run beside {count} idle, {name}", values)

    def pandas(self):
        if subprocess.run([PYTHON, "-c", "import numpy, pandas"], check=False, capture_output=True).returncode:
            self.without("pandas", "python3-pandas is not installed")
            return
        body = {"language": "python", "code": "print(1)"}
        script = self.folder / "pandas.py"
        script.write_text(PANDAS)
        with self.service(policy={"python_modules": ["numpy", "pandas"]}) as s:
            self.ask(s.sock, body, count=5, gap_us=500000)
            self.settle(s, 1)
            values, _ = self.ask(s.sock, body, count=min(self.args.count, 200), gap_us=60000)
            self.times("zygote with numpy and pandas: print(1)", values)
            self.settle(s, 1)
            first = self.times("zygote with numpy and pandas: its first line", self.first_lines(s.sock, body, min(self.args.count, 200)))["p50"]
            heavy = {"language": "python", "code": PANDAS}
            values, _ = self.ask(s.sock, heavy, count=min(self.args.count, 100), gap_us=60000, wanted='"stdout":"3\\n"')
            self.times("zygote with numpy and pandas: a sum of a DataFrame", values)
        cold = self.runner({"python3 -, importing numpy and pandas": (str(script), [PYTHON, "-"])}, 8)
        for name, values in cold.items():
            self.times(name, values)
        self.goal("zygote with numpy and pandas: the child's first line", first, "ms", "<= 1.5", first <= 1.5)

    # ---- all

    def run(self):
        for part in self.args.only:
            print(f"{part}:", flush=True)
            getattr(self, part)()
        print(f"\n{'what was promised':<60}{'here':>10}      {'goal':<9}")
        for g in self.goals:
            print(f"{g['what']:<60}{g['value']:>10.2f} {g['unit']:<4} {g['goal']:<9}{'yes' if g['met'] else 'NO'}")
        for name, why in self.left_out.items():
            print(f"left out: {name}: {why}")
        load = os.getloadavg()[0]
        if load > 2 * os.cpu_count():
            print(f"load {load:.1f} on {os.cpu_count()} processors: this machine had other work")
        self.result.update(goals=self.goals, left_out=self.left_out, load_after=os.getloadavg())
        self.args.json.write_text(json.dumps(self.result, indent=1) + "\n")
        print(f"the same in {self.args.json}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default=str(TOP / "build"), type=os.path.abspath, metavar="DIR")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--seconds", type=float, default=60, metavar="N", help="of sustained load")
    parser.add_argument("--count", type=int, default=1000, metavar="N", help="runs of each kind, one at a time")
    parser.add_argument("--idle", type=int, default=1000, metavar="N", help="prepared sandboxes that are held")
    parser.add_argument("--only", type=lambda text: text.split(","), default=PARTS, metavar="PART[,PART]", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--policy", type=json.loads, default={}, metavar="JSON", help="of the service's configuration, in addition")
    args = parser.parse_args()
    args.json = args.json or Path(args.build, "bench-fast.json")
    os.environ.setdefault("CLOCHE", os.path.join(args.build, "cloche"))
    cloche.must_work()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what was made is taken away all the same
    with tempfile.TemporaryDirectory(prefix="clo-bench.") as folder:
        Fast(args, folder).run()


if __name__ == "__main__":
    main()
