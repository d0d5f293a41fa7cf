#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""How long a new sandbox takes, beside what this machine needs without one and beside other programs that are here.

Prints a table to stderr and one JSON object to stdout. The candidates take turns within each round, so that a slow moment
of the machine hits all of them; compare ratios of one run only, never times of two. Nothing here passes or fails.

    tests/bench/start.py [--cloche FILE] [--rounds N] [--jobs N]
"""
import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

PYTHON = "/usr/bin/python3"


def candidates(cloche):
    """{job: {name: argv}}; the first of each job is what the others are compared with."""
    bwrap = ["bwrap", "--unshare-all", "--die-with-parent", "--cap-drop", "ALL", "--clearenv", "--ro-bind", "/usr", "/usr",
             "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64",
             "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]
    true = {"no sandbox": ["/bin/true"], "cloche": [cloche, "run", "true"]}
    python = {"no sandbox": [PYTHON, "-c", "print(1)"], "cloche": [cloche, "python", "-c", "print(1)"]}
    if shutil.which("bwrap"):
        true["bwrap (no limits, no seccomp)"] = [*bwrap, "/bin/true"]
        python["bwrap (no limits, no seccomp)"] = [*bwrap, PYTHON, "-c", "print(1)"]
    return {"true": true, "python": python}


def bundle(folder):
    """An OCI bundle that runs true on the host's /usr, for the engines that take one."""
    root = Path(folder, "rootfs")
    for d in ("usr", "proc", "dev", "tmp"):
        (root / d).mkdir(parents=True)
    for d in ("bin", "lib", "lib64", "sbin"):
        (root / d).symlink_to(f"usr/{d}")
    spaces = [{"type": t} for t in ("pid", "mount", "ipc", "uts", "network")]
    config = {"ociVersion": "1.0.2", "root": {"path": "rootfs", "readonly": True}, "hostname": "sandbox",
              "process": {"user": {"uid": 65534, "gid": 65534}, "args": ["/bin/true"], "cwd": "/", "env": ["PATH=/usr/bin"],
                          "noNewPrivileges": True, "capabilities": {}},
              "mounts": [{"destination": "/usr", "type": "bind", "source": "/usr", "options": ["rbind", "ro"]},
                         {"destination": "/proc", "type": "proc", "source": "proc"},
                         {"destination": "/dev", "type": "tmpfs", "source": "tmpfs"}],
              "linux": {"namespaces": spaces}}
    Path(folder, "config.json").write_text(json.dumps(config))


def timed(argv):
    began = time.perf_counter()
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    took = (time.perf_counter() - began) * 1e3
    if done.returncode:
        raise RuntimeError(f"{argv[0]}: exit {done.returncode}: {done.stderr.decode('utf-8', 'replace').strip()[:200]}")
    return took


def percentile(values, q):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, round(q * (len(ordered) - 1)))]


def measure(programs, rounds):
    """{name: sorted milliseconds}; a program that fails once is left out, with its reason on stderr."""
    times = {name: [] for name in programs}
    for n in range(rounds + 2):  # two rounds warm the caches
        for name in list(times):
            try:
                took = timed(programs[name]() if callable(programs[name]) else programs[name])
            except (RuntimeError, OSError) as e:
                print(f"left out: {name}: {e}", file=sys.stderr)
                del times[name]
                continue
            if n >= 2:
                times[name].append(took)
    return times


def throughput(argv, rounds, jobs):
    with ThreadPoolExecutor(jobs) as pool:
        began = time.perf_counter()
        list(pool.map(lambda _: timed(argv), range(rounds * jobs)))
        return rounds * jobs / (time.perf_counter() - began)


def main():
    parser = argparse.ArgumentParser(description="start-up times of single-use sandboxes")
    parser.add_argument("--cloche", default="build/cloche")
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    args = parser.parse_args()
    cloche = os.path.abspath(args.cloche)
    result = {"kernel": platform.release(), "cpus": os.cpu_count(), "rounds": args.rounds, "jobs": {}}
    with tempfile.TemporaryDirectory(prefix="clo-bench.") as folder:
        bundle(folder)
        work = candidates(cloche)
        for engine in ("crun", "runc"):
            if os.geteuid() == 0 and shutil.which(engine):
                work["true"][engine] = lambda e=engine: [e, "run", "--bundle", folder, f"bench-{os.getpid()}-{time.time_ns()}"]
        for job, programs in work.items():
            print(f"\n{job:<34}{'p50 ms':>9}{'p95 ms':>9}{'over bare':>11}{'x cloche':>10}", file=sys.stderr)
            times = measure(programs, args.rounds)
            bare = statistics.median(times["no sandbox"])
            ours = statistics.median(times["cloche"]) if times.get("cloche") else None
            rows = {}
            for name, values in times.items():
                mid = statistics.median(values)
                rows[name] = {"p50_ms": round(mid, 3), "p95_ms": round(percentile(values, 0.95), 3),
                              "over_bare_ms": round(mid - bare, 3), "times_cloche": round(mid / ours, 2) if ours else None}
                print(f"{name:<34}{mid:>9.2f}{rows[name]['p95_ms']:>9.2f}{mid - bare:>11.2f}"
                      f"{mid / ours if ours else float('nan'):>10.2f}", file=sys.stderr)
            if ours:
                rows["cloche"]["per_second"] = round(throughput(programs["cloche"], args.rounds, args.jobs), 1)
                print(f"cloche, {args.jobs} at a time: {rows['cloche']['per_second']} a second", file=sys.stderr)
            result["jobs"][job] = rows
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
