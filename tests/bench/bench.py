#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""How long a new sandbox takes, beside what this machine needs without one and beside other programs that are here.

Prints a table and writes the same numbers as JSON. All candidates of one table take turns within one run, so that a slow
moment of the machine hits all of them: compare within one run only, never times of two. bench-runner (C) measures, from
before the spawn until the process is reaped; a time is the median unless it says otherwise. Nothing here passes or fails.

    tests/bench/bench.py [--build DIR] [--json FILE] [--rounds N] [--slow-rounds N] [--without NAME[,NAME]]
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
from pathlib import Path

from images import images
from peers import Docker, bundle, bwrap, cgroup_folders, forget_folders

PYTHON = "/usr/bin/python3"
CODE = "print(1)\n"
# What every program gets, so that a shell's own settings (a pyenv, an LD_PRELOAD) are in nobody's time.
ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/tmp", "LANG": "C.UTF-8"}
JOBS = (1, 2, 8, 32)
BOMBS = {"1 process": ["sleep", "30"], "fork bomb (perl)": ["perl", "-e", "fork while 1"],
         "fork bomb (bash)": ["bash", "-c", "b() { b | b & }; b; exec sleep 30"]}


class Bench:
    def __init__(self, args, folder):
        self.args, self.folder = args, Path(folder)
        self.left_out, self.failures = {}, {}
        self.result = {"kernel": platform.release(), "cpus": os.cpu_count(), "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                       "load_before": os.getloadavg(), "rounds": args.rounds, "slow_rounds": args.slow_rounds, "tables": {}}
        for name in ("cloche", "cloche-yaml", "bench-runner", "bench-library", "libcloche.so.0"):
            self.copy(name)
        self.environment = {**ENVIRONMENT, "LD_LIBRARY_PATH": str(folder)}
        self.cloche = str(self.folder / "cloche")

    def copy(self, name):
        """The build may be made anew meanwhile: what is measured is a copy."""
        places = [Path(self.args.build, name), Path(self.args.build, "tests/bench", name)]
        for _ in range(300):
            for place in places:
                try:
                    shutil.copy(place, self.folder / name)
                    return
                except OSError:
                    pass
            time.sleep(0.2)
        sys.exit(f"bench: no {name} in {self.args.build}")

    def without(self, name, why):
        self.left_out[name] = why
        print(f"  left out: {name}: {why}", flush=True)

    def wanted(self, name, program):
        if name in self.args.without:
            self.without(name, "as asked for")
        elif not shutil.which(program):
            self.without(name, f"{program} is not installed")
        else:
            return True
        return False

    def write_list(self, programs):
        """programs: {name: (every, stdin, argv)}"""
        path = self.folder / "list"
        path.write_text("".join("\t".join([name, str(every), stdin, *argv]) + "\n"
                                for name, (every, stdin, argv) in programs.items()))
        return path

    def runner(self, *argv, within=()):
        done = subprocess.run([*within, self.folder / "bench-runner", *map(str, argv)], env=ENVIRONMENT, stdout=subprocess.PIPE, text=True,
                              errors="replace", check=False, cwd="/")
        return [line.split("\t") for line in done.stdout.splitlines()]

    def take(self, lines, warm=1):
        """{name: milliseconds of the runs that succeeded}; the first WARM runs of each warm the caches."""
        times, seen, failed = {}, {}, {}
        for name, ns, status, *said in lines:
            seen[name] = seen.get(name, 0) + 1
            if status != "0":
                failed.setdefault(name, []).append(f"wait status {status}: {' '.join(said).strip()[:160]}")
            elif seen[name] > warm:
                times.setdefault(name, []).append(int(ns) / 1e6)
        for name, why in failed.items():
            if name in times:
                self.failures[name] = {"failed": len(why), "of": seen[name], "first": why[0]}
            else:
                self.without(name, why[0])
        return times

    def turns(self, programs):
        return self.take(self.runner(self.args.rounds + 1, self.write_list(programs)))

    def table(self, title, times, floor, against=None):
        """Print one table; rows are {name: {...}} in the result."""
        rows, base = {}, statistics.median(times[floor])
        ours = statistics.median(times[against]) if against in times else None
        print(f"\n{title:<34}{'n':>5}{'p10 ms':>9}{'p50 ms':>9}{'p90 ms':>9}{'over floor':>12}{'x ours' if ours else '':>9}")
        for name, values in times.items():
            values = sorted(values)
            mid = statistics.median(values)
            rows[name] = {"n": len(values), "p10_ms": round(values[len(values) // 10], 3), "p50_ms": round(mid, 3),
                          "p90_ms": round(values[len(values) * 9 // 10], 3), "over_floor_ms": round(mid - base, 3),
                          "times_ours": round(mid / ours, 2) if ours else None}
            r = rows[name]
            print(f"{name:<34}{r['n']:>5}{r['p10_ms']:>9.2f}{mid:>9.2f}{r['p90_ms']:>9.2f}{r['over_floor_ms']:>12.2f}"
                  + (f"{r['times_ours']:>9.2f}" if ours else ""), flush=True)
        self.result["tables"][title] = rows
        return rows


def candidates(bench, docker, what, argv, stdin):
    """{name: (every, stdin, argv)} of one job: argv in each of the sandboxes."""
    slow = max(1, bench.args.rounds // bench.args.slow_rounds)
    root = os.geteuid() == 0
    programs = {"no sandbox": (1, stdin, argv)}
    ours = [bench.cloche, "run", "--", *argv] if what == "true" else [bench.cloche, "python"]
    programs["cloche, all limits"] = (1, stdin, ours)
    if bench.wanted("bwrap", "bwrap"):
        programs["bwrap, no limits"] = (1, stdin, [*bwrap(), *argv])
    for engine, options, every in (("crun", [], 1), ("runc", [], 1), ("runsc", ["--platform=ptrace", "--network=none"], slow),
                                   ("runsc", ["--platform=systrap", "--network=none"], slow)):
        name = " ".join([engine, *options[:1]]).replace("--platform=", "")
        if not bench.wanted(engine, engine):
            continue
        if not root:
            bench.without(name, "needs root")
            continue
        state = bench.folder / "state" / name.replace(" ", "-")
        programs[name] = (every, stdin, [engine, *options, "--root", str(state), "run", "--bundle",
                                         str(bundle(bench.folder / f"bundle-{what}", argv)), "bench-@N@"])
    if docker.image:
        programs["docker run"] = (slow, stdin, [*docker.run, docker.image, *argv])
    return programs


def whole_process(bench, docker):
    script = bench.folder / "code.py"
    script.write_text(CODE)
    tables = {}
    for what, argv, stdin in (("true", ["/bin/true"], "/dev/null"), ("python", [PYTHON, "-"], str(script))):
        print(f"\nmeasuring: {what}, {bench.args.rounds} rounds", flush=True)
        times = bench.turns(candidates(bench, docker, what, argv, stdin))
        title = {"true": "run -- /bin/true", "python": "python3 - <<< 'print(1)'"}[what]
        tables[what] = bench.table(title, times, "no sandbox", "cloche, all limits")
    return tables


def library(bench):
    done = subprocess.run([bench.folder / "bench-library", str(bench.args.rounds + 1)], env=bench.environment, text=True,
                          capture_output=True, check=False)
    times = bench.take([line.split("\t") for line in done.stdout.splitlines()])
    if "libcloche" not in times:
        bench.without("libcloche", done.stderr.strip()[:200])
        return {}
    return bench.table("in one process: /bin/true", times, "posix_spawn", "libcloche")


def concurrency(bench, repeats=3):
    """{name: {jobs: runs a second}}; the levels take turns, so that each sees the same machine."""
    argv = {"cloche": [bench.cloche, "run", "--", "/bin/true"]}
    if shutil.which("bwrap"):
        argv["bwrap"] = [*bwrap(), "/bin/true"]
    rates, failed = {name: {j: [] for j in JOBS} for name in argv}, dict.fromkeys(argv, 0)
    for _ in range(repeats):
        for jobs in JOBS:
            for name in argv:
                count = max(64, bench.args.rounds // 2)
                lines = bench.runner("-j", jobs, count, bench.write_list({name: (1, "/dev/null", argv[name])}))
                bad = [line for line in lines if line[0] != "all" and line[2] != "0"]
                failed[name] += len(bad)
                if bad:
                    bench.failures[f"{name}, {jobs} at a time"] = {"failed": len(bad), "of": count, "first": bad[0][3][:160]}
                if lines and lines[-1][0] == "all":
                    rates[name][jobs].append(count / (int(lines[-1][1]) / 1e9))
    title = "runs a second, so many at a time"
    print(f"\n{title:<34}" + "".join(f"{j:>9}" for j in JOBS) + f"{'failures':>12}")
    rows = {}
    for name in argv:
        rows[name] = {"failures": failed[name], **{str(j): round(statistics.median(v), 1) if v else None for j, v in rates[name].items()}}
        print(f"{name:<34}" + "".join(f"{rows[name][str(j)] or float('nan'):>9.0f}" for j in JOBS) + f"{failed[name]:>12}", flush=True)
    bench.result["tables"][title] = rows
    return rows


def kill_time(bench, repeats=7):
    """From the verdict (1 s of wall time is over) until the command line is back, everything dead and removed."""
    times, peaks = {}, {}
    for _ in range(repeats):
        for name, argv in BOMBS.items():
            if not shutil.which(argv[0]):
                continue
            began = time.monotonic()
            done = subprocess.run([bench.cloche, "run", "--json", "--pids-limit", "512", "--timeout", "1s", "--", *argv],
                                  env=ENVIRONMENT, stdin=subprocess.DEVNULL, capture_output=True, check=False)
            took = time.monotonic() - began
            r = json.loads(done.stdout or b"{}")
            if r.get("reason") != "timeout":
                bench.failures[f"kill: {name}"] = {"failed": 1, "of": 1, "first": f"{r.get('reason')}: {r.get('message')}"}
                continue
            times.setdefault(name, []).append((took - 1) * 1e3)
            peaks[name] = max(peaks.get(name, 0), r["usage"]["pids_peak"] or 0)
    if "1 process" not in times:
        return {}
    rows = bench.table("1 s of wall time, less 1 s", times, "1 process")
    for name, row in rows.items():
        row["pids_peak"] = peaks[name]
    print("  processes at the peak: " + ", ".join(f"{n}: {p}" for n, p in peaks.items()))
    return rows


def ratios(tables, lib, jobs, more):
    """The promises: [(words, value, goal, met)]; a promise about what was left out is not there."""
    def p50(rows, name):
        return rows[name]["p50_ms"] if name in rows else None

    said = []

    def add(words, value, unit, goal, met):
        said.append({"what": words, "value": round(value, 2), "unit": unit, "goal": goal, "met": bool(met)})

    true, python = tables["true"], tables["python"]
    ours, ours_python = p50(true, "cloche, all limits"), p50(python, "cloche, all limits")
    bw, docker, docker_python = p50(true, "bwrap, no limits"), p50(true, "docker run"), p50(python, "docker run")
    if ours and bw:
        add("run -- /bin/true: cloche / bwrap", ours / bw, "x", "<= 1", ours <= bw)
    if "libcloche" in lib:
        over = lib["libcloche"]["over_floor_ms"]
        add("library: over the floor", over, "ms", "<= 2", over <= 2)
    if ours_python:
        over = python["cloche, all limits"]["over_floor_ms"]
        add("python: over a bare python3 -", over, "ms", "<= 3", over <= 3)
    if ours and docker:
        add("run -- /bin/true: docker / cloche", docker / ours, "x", ">= 50", docker / ours >= 50)
    if ours_python and docker_python:
        add("python: docker / cloche", docker_python / ours_python, "x", ">= 15", docker_python / ours_python >= 15)
    row = jobs.get("cloche", {})
    if row.get("2") and row.get("32"):
        add("concurrency: throughput with 32 / with 2", row["32"] / row["2"], "x", ">= 1", row["32"] >= row["2"])
        add("concurrency: failures", row["failures"], "", "0", row["failures"] == 0)
    for row in more:
        add(*row)
    return said


def report(bench, said):
    print(f"\n{'what was promised':<46}{'here':>10}  {'goal':<8}")
    for r in said:
        print(f"{r['what']:<46}{r['value']:>10.2f} {r['unit']:<3}{r['goal']:<8}{'yes' if r['met'] else 'NO'}")
    for name, f in bench.failures.items():
        print(f"failed: {name}: {f['failed']} of {f['of']}: {f['first']}")
    for name, why in bench.left_out.items():
        print(f"left out: {name}: {why}")
    load = os.getloadavg()[0]
    if load > 2 * os.cpu_count():
        print(f"this machine was busy with other work (load {load:.1f} on {os.cpu_count()} processors): the times are too high, and a "
              "program that starts more processes suffers more")
    bench.result.update(promises=said, failures=bench.failures, left_out=bench.left_out, load_after=os.getloadavg())
    bench.args.json.write_text(json.dumps(bench.result, indent=1) + "\n")
    print(f"the same in {bench.args.json}")


def main():
    parser = argparse.ArgumentParser(description="start-up times of single-use sandboxes")
    parser.add_argument("--build", default="build")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--slow-rounds", type=int, default=33, help="for programs that take a quarter of a second")
    parser.add_argument("--without", type=lambda text: text.split(","), default=[], help="bwrap, crun, runc, runsc, docker, images")
    args = parser.parse_args()
    args.json = args.json or Path(args.build, "bench.json")
    before = cgroup_folders()
    with tempfile.TemporaryDirectory(prefix="clo-bench.") as folder:
        bench = Bench(args, folder)
        docker = Docker(bench.folder / "docker", [PYTHON, "/bin/true"])
        try:
            if bench.wanted("docker", "dockerd") and bench.wanted("docker", "docker"):
                why = docker.start()
                if why:
                    bench.without("docker", why)
            tables = whole_process(bench, docker)
        finally:
            docker.stop()
            forget_folders(before)
        lib = library(bench)
        jobs = concurrency(bench)
        bench.result["kill"] = kill_time(bench)
        report(bench, ratios(tables, lib, jobs, images(bench)))


if __name__ == "__main__":
    main()
