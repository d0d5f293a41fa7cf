#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What the proxy of a sandbox's network costs: bytes through a tunnel, time per request, TLS that is opened, many tunnels, its start.

Prints a table and JSON. Everything is on loopback and takes turns within one run: the ends are egress-peer (C), and what stands between
them is nothing, the least relay there could be (two sockets and one buffer), or cloche-egress. Compare within one run only.
Nothing here passes or fails; goals are shown beside.

    tests/bench/bench_egress.py [--build DIR] [--json FILE] [--rounds N] [--megabytes N]
"""
import argparse
import contextlib
import json
import os
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "tests" / "lib"))
sys.dont_write_bytecode = True
REQUESTS, TUNNELS, STARTS = 2000, 1000, 30


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as s:
        return s.getsockname()[1]


class Bench:
    def __init__(self, args, stack, folder):
        self.args, self.stack, self.result = args, stack, {}
        self.peer = Path(args.build, "tests", "bench", "egress-peer")
        self.authority = certs.Authority(folder)
        certificate, key = self.authority.leaf("bench", "DNS:bench.test")
        self.plain, self.secure, self.relay = free_port(), free_port(), free_port()
        self.start("serve", self.plain)
        self.start("serve", self.secure, certificate, key)
        self.start("relay", self.relay, self.plain)
        rules = f"max-open 2048\nallow bench.test:{self.plain} within=127.0.0.0/8\nallow GET https://bench.test:{self.secure}/* within=127.0.0.0/8"
        self.egress = stack.enter_context(egress.Egress(rules=rules, resolve={"bench.test": ["127.0.0.1"]}, watch=False,
                                                        upstream_ca=self.authority.text))
        self.opened_ca = Path(folder) / "opened.pem"
        self.opened_ca.write_text(self.egress.ca)
        self.proxy = self.egress.proxy[1]

    def start(self, *arguments):
        p = self.stack.enter_context(subprocess.Popen([self.peer, *map(str, arguments)], stdout=subprocess.PIPE))
        self.stack.callback(p.kill)
        assert p.stdout.readline() == b"ready\n"

    def get(self, way, port, size, count, ca=None):
        done = subprocess.run([self.peer, "get", way, *map(str, (port, size, count)), *([ca] if ca else [])], capture_output=True, text=True,
                              check=True)
        return [float(line) for line in done.stdout.split()]

    def turns(self, ways, size, count, skip=0):
        """{name: seconds of each request, all rounds} for {name: arguments of get()}; they take turns."""
        times = {name: [] for name in ways}
        for _ in range(self.args.rounds):
            for name, (way, port, *ca) in ways.items():
                times[name] += self.get(way, port, size, count, *ca)[skip:]
        return times

    def show(self, table, rows):
        self.result[table] = {name: values for name, *values in rows}
        print(f"\n{table}")
        for name, value, more in rows:
            print(f"  {name:<34}{value:>16}  {more}")

    # ---- the tables

    def throughput(self):
        size = self.args.megabytes << 20
        ways = {"direct": ("direct", self.plain), "minimal relay": ("direct", self.relay), "tunnel": (f"tunnel:{self.proxy}", self.plain),
                "plain HTTP": (f"forward:{self.proxy}", self.plain)}
        rate = {name: size / statistics.median(t) / 1e6 for name, t in self.turns(ways, size, 1).items()}
        self.show("bytes of one connection (MB/s, median)", [
            (name, f"{value:,.0f}", f"{value / rate['minimal relay']:.0%} of the relay" + (" (goal: 85 %)" if name == "tunnel" else ""))
            for name, value in rate.items()])
        ways = {"direct": ("direct", self.secure, self.authority.pem), "opened": (f"tunnel:{self.proxy}", self.secure, self.opened_ca)}
        rate = {name: size / statistics.median(t) / 1e6 for name, t in self.turns(ways, size, 1).items()}
        self.show("bytes in TLS (MB/s, median)", [
            (name, f"{value:,.0f}", f"{value / rate['direct']:.0%} of direct" + (" (goal: 30 %)" if name == "opened" else ""))
            for name, value in rate.items()])

    def latency(self):
        for table, ways in (("time of a small request (µs, median)", {
                "direct": ("direct", self.plain), "minimal relay": ("direct", self.relay), "tunnel": (f"tunnel:{self.proxy}", self.plain),
                "plain HTTP": (f"forward:{self.proxy}", self.plain)}), ("time of a small request in TLS (µs, median)", {
                    "direct": ("direct", self.secure, self.authority.pem), "opened": (f"tunnel:{self.proxy}", self.secure, self.opened_ca)})):
            times = {name: statistics.median(t) * 1e6 for name, t in self.turns(ways, 100, REQUESTS // self.args.rounds, 20).items()}
            goal = {"tunnel": " (goal: 300)", "plain HTTP": " (goal: 300)", "opened": " (goal: 1,000)"}
            self.show(table, [(name, f"{t:,.1f}", f"added {t - times['direct']:,.1f}" + goal.get(name, "")) for name, t in times.items()])

    def many(self):
        def memory():
            return self.egress.memory()
        before, began = memory(), time.monotonic()
        with contextlib.ExitStack() as open_ones:
            tunnels = []
            for _ in range(TUNNELS):
                c = open_ones.enter_context(self.egress.dial())
                c.sendall(f"CONNECT bench.test:{self.plain} HTTP/1.1\r\nHost: bench.test:{self.plain}\r\n\r\n".encode())
                tunnels.append(c)
            for c in tunnels:
                assert egress.read_head(c).startswith("HTTP/1.1 200")
            opened = time.monotonic() - began
            began = time.monotonic()
            for c in tunnels:
                c.sendall(f"GET /100 HTTP/1.1\r\nHost: bench.test:{self.plain}\r\n\r\n".encode())
            for c in tunnels:
                egress.read_head(c)
                assert len(egress.read_exactly(c, 100)) == 100
            used = time.monotonic() - began
            grown = memory() - before
        self.show(f"{TUNNELS} tunnels at once", [("to open one (µs)", f"{opened / TUNNELS * 1e6:,.0f}", "the client is Python"),
                                               ("a request by each (µs)", f"{used / TUNNELS * 1e6:,.0f}", "the client is Python"),
                                               ("memory of one (bytes)", f"{grown / TUNNELS:,.0f}", "")])

    def starts(self):
        rows = []
        for name, rules in (("no TLS opened", "allow bench.test"), ("with an authority", "allow GET https://bench.test/*")):
            times = []
            for _ in range(STARTS):
                e = egress.Egress(rules=rules)
                began = time.monotonic()
                e.start()
                times.append(time.monotonic() - began)
                e.close()
            rows.append((name, f"{statistics.median(times) * 1e3:.2f}", "with Python's spawn of it"))
        self.show("from its spawn to READY (ms, median)", rows)


def main():
    parser = argparse.ArgumentParser(description="What the proxy costs.")
    parser.add_argument("--build", default=str(TOP / "build"))
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--megabytes", type=int, default=256)
    args = parser.parse_args()
    os.environ["CLOCHE"] = str(Path(args.build, "cloche").resolve())
    global certs, egress
    import certs
    import egress
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    with contextlib.ExitStack() as stack:
        bench = Bench(args, stack, stack.enter_context(tempfile.TemporaryDirectory(prefix="clo-bench.")))
        for part in (bench.throughput, bench.latency, bench.many, bench.starts):
            part()
    if args.json:
        Path(args.json).write_text(json.dumps(bench.result, indent=1) + "\n")


if __name__ == "__main__":
    main()
