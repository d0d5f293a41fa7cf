#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The one test runner behind `make test`: cmocka and other meson tests, replayed fuzz corpora, the pytest suites,
then a look at what was left behind. Prints every skip with its reason; the last line is the sum.

    tests/run.py [--build DIR] [SUITE …] [-- ARGUMENTS FOR PYTEST]

Suites: unit, fuzz (meson tests of the suite `fuzz`), python (tests/unit/*.py), integration, service, registry, egress, images, clients,
abuse, vm; all without any.
A meson test counts as its cmocka results; one that writes none counts as one test by its exit status (77: skipped).
cmocka has no place for the reason of a skip: a test prints the line `skip: TEST: reason` before it calls skip().
"""
import argparse
import json
import os
import re
import secrets
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from pathlib import Path

TOP = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TOP / "tests" / "lib"))
sys.dont_write_bytecode = True
sys.stdout.reconfigure(line_buffering=True)  # a log of CI is read while it is written
import cloche  # noqa: E402

MESON = ("unit", "fuzz")
PYTEST = {"python": "tests/unit", "integration": "tests/integration", "service": "tests/service",
          "registry": "tests/registry", "egress": "tests/egress", "images": "tests/images", "clients": "tests/clients", "abuse": "tests/abuse",
          "vm": "tests/vm"}
SUITES = (*MESON, *PYTEST)
COLOUR = sys.stdout.isatty() and "NO_COLOR" not in os.environ


class Tally:
    """Counts of one suite."""

    def __init__(self, name):
        self.name, self.passed, self.failures, self.skips, self.seconds = name, 0, [], [], 0.0

    def fail(self, test, why=""):
        self.failures.append((test, why))

    def skip(self, test, why=""):
        self.skips.append((test, why))


def say(text="", colour=None):
    print(f"\033[{colour}m{text}\033[0m" if colour and COLOUR else text, flush=True)


def read_xml(path, tally, prefix="", reasons=None):
    """Add the results of one JUnit file (pytest's or cmocka's) to TALLY; returns how many there were.
    reasons: {test: why it was skipped}, for those that do not say it in the file."""
    count = 0
    for case in ET.parse(path).getroot().iter("testcase"):
        group = case.get("classname", "").replace("tests.", "", 1)
        name = prefix + (f"{group}." if group else "") + case.get("name", "?")
        bad = [e for e in case if e.tag in ("failure", "error")]
        skipped = case.find("skipped")
        count += 1
        if bad:
            tally.fail(name, (bad[0].get("message") or bad[0].text or "").strip())
        elif skipped is not None:
            why = skipped.get("message") or skipped.text or (reasons or {}).get(case.get("name"), "no reason given")
            tally.skip(name, why.strip())
        else:
            tally.passed += 1
    return count


# ---------------------------------------------------------------------------------------------------- meson tests


def meson_tests(build):
    """[(suites, test)] as the build directory has them."""
    out = subprocess.run(["meson", "introspect", "--tests", build], stdout=subprocess.PIPE, check=True).stdout
    return [({s.rpartition(":")[2] for s in t["suite"]}, t) for t in json.loads(out)]


def run_meson_test(test, tally, scratch):
    """One executable: its cmocka XML if it writes one, else its exit status."""
    name = test["name"]
    where = scratch / f"cmocka-{name.replace('/', '_')}"
    where.mkdir()
    env = {**os.environ, **test.get("env", {}), "CMOCKA_MESSAGE_OUTPUT": "xml",
           "CMOCKA_XML_FILE": str(where / "%g.xml"), "ASAN_OPTIONS": "abort_on_error=1:detect_stack_use_after_return=1",
           "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1"}
    limit = test.get("timeout") or 30
    limit = None if limit <= 0 else limit * (3 if sanitized(test) else 1)
    try:
        done = subprocess.run(test["cmd"], env=env, cwd=test.get("workdir") or TOP, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=limit)
    except subprocess.TimeoutExpired as e:
        tally.fail(name, f"not finished after {limit} s\n" + (e.stdout or b"").decode("utf-8", "replace")[-4000:])
        return
    except OSError as e:
        tally.fail(name, str(e))
        return
    output = done.stdout.decode("utf-8", "replace").strip()
    reasons = dict(re.findall(r"^skip: (\w+): (.+)$", output, re.M))
    output = output[-6000:]
    failed, count = len(tally.failures), 0
    for report in sorted(where.glob("*.xml")):
        try:
            count += read_xml(report, tally, f"{name}/", reasons)
        except ET.ParseError as e:
            tally.fail(f"{name}/{report.stem}", f"report cannot be read: {e}")
    if done.returncode == 77 and not count:
        tally.skip(name, output.splitlines()[-1] if output else "no reason given")
    elif done.returncode == 0 and not count:
        tally.passed += 1
    elif done.returncode and len(tally.failures) == failed:
        tally.fail(name, f"exit {done.returncode} without a failed test in its report\n{output}")


def sanitized(test):
    return "asan" in str(test["cmd"][0])


def meson_suite(suite, build, tally, scratch):
    for suites, test in meson_tests(build):
        if suite != ("fuzz" if "fuzz" in suites else "unit"):
            continue
        failed, passed, skipped = len(tally.failures), tally.passed, len(tally.skips)
        began = time.monotonic()
        run_meson_test(test, tally, scratch)
        counts = f"{tally.passed - passed:4} passed"
        for word, n in (("FAILED", len(tally.failures) - failed), ("skipped", len(tally.skips) - skipped)):
            counts += f", {n} {word}" if n else ""
        say(f"  {test['name']:<44} {counts}  {time.monotonic() - began:.2f} s")


# --------------------------------------------------------------------------------------------------------- pytest


def pytest_suite(suite, build, tally, scratch, extra):
    folder = TOP / PYTEST[suite]
    if not list(folder.rglob("test_*.py")):
        say("  no tests here")
        return
    report, base = scratch / f"pytest-{suite}.xml", scratch / f"base-{suite}"
    cmd = ["/usr/bin/python3", "-B", "-m", "pytest", "-q", "--tb=short", "--no-header", f"--junitxml={report}",
           f"--basetemp={base}", "-o", "junit_logging=no", "-o", "junit_family=xunit1", PYTEST[suite], *extra]
    binary = os.environ.get("CLOCHE") or os.path.join(os.path.abspath(build), "cloche")
    done = subprocess.run(cmd, cwd=TOP, env={**os.environ, "CLOCHE": binary}, stdin=subprocess.DEVNULL)
    failed, count = len(tally.failures), 0
    if report.exists():
        count = read_xml(report, tally)
    if done.returncode not in (0, 1) and len(tally.failures) == failed and not (extra and done.returncode == 5):
        tally.fail(f"pytest {PYTEST[suite]}", f"pytest ended with {done.returncode}")
    elif not count and done.returncode == 1:
        tally.fail(f"pytest {PYTEST[suite]}", "failed without a report")


# --------------------------------------------------------------------------------------------------- left behind


def remove_tree(path):
    """Delete even what tests made unreadable. The folder is ours alone and its tests are over."""
    def again(function, name, _):
        for p in (os.path.dirname(name), name):
            if not os.path.islink(p):
                os.chmod(p, stat.S_IRWXU)
        function(name)
    shutil.rmtree(path, onerror=again)


def leftover_suite(before, scratch, tally):
    """Each kind of thing a sandbox could leave is one test."""
    kinds = cloche.leftovers_by_kind(before)
    kinds["temporary files"] = [f"file {f}" for f in sorted(Path(tempfile.gettempdir()).iterdir()) if f != scratch]
    for kind, found in kinds.items():
        if found:
            tally.fail(f"left behind: {kind}", "\n".join(found[:20]))
        else:
            tally.passed += 1


def remove_empty_parents(before):
    """cloche keeps one empty cgroup per tree for the next run; a machine that had none gets none from its tests."""
    for parent in cloche.parent_cgroups() - before:
        try:
            os.rmdir(parent)
        except OSError as e:
            say(f"  {parent}: {e.strerror}: it stays")


def end_services(tmp):
    """Services of tests that were killed, and the sandboxes that outlive them."""
    import service  # needs what bootstrap installs
    for cmdline in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = cmdline.read_bytes().split(b"\0")
            if not words[0].endswith(b"/cloche-serve") or not words[2].startswith(os.fsencode(tmp)):
                continue
            pid = int(cmdline.parts[2])
            os.kill(pid, signal.SIGTERM)
            deadline = time.monotonic() + 15
            while cmdline.exists() and time.monotonic() < deadline:
                time.sleep(0.05)
            service.end_sandboxes(os.fsdecode(words[2]))
        except (OSError, IndexError):
            continue


# ------------------------------------------------------------------------------------------------------------ main


def report(tallies):
    skips = [(t, s) for t in tallies for s in t.skips]
    if skips:
        say(f"\nSkipped ({len(skips)}):", 33)
        for t, (name, why) in skips:
            say(f"  {t.name}: {name}: {why.splitlines()[0] if why else ''}")
    failures = [(t, f) for t in tallies for f in t.failures]
    if failures:
        say(f"\nFailed ({len(failures)}):", 31)
        for t, (name, why) in failures:
            say(f"  {t.name}: {name}" + "".join(f"\n      {line}" for line in why.splitlines()[:40]))
    say(f"\n{'suite':<14}{'passed':>8}{'failed':>8}{'skipped':>9}{'seconds':>10}", 1)
    for t in tallies:
        say(f"{t.name:<14}{t.passed:>8}{len(t.failures):>8}{len(t.skips):>9}{t.seconds:>10.1f}",
            31 if t.failures else None)
    passed, failed, skipped = sum(t.passed for t in tallies), len(failures), len(skips)
    if not passed and not failed:
        failed = 1
        say("\nno test ran: that is a failure")
    say(f"\n{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


def folder(prefix, mode):
    """A new temporary folder, whose name may stand in an image's reference (mkdtemp's can end in "_", which may not)."""
    made = Path(tempfile.gettempdir()) / (prefix + secrets.token_hex(4))
    made.mkdir(0o700)
    os.chmod(made, mode)  # not the umask's
    return made


def main():
    argv, extra = sys.argv[1:], []
    if "--" in argv:
        argv, extra = argv[:argv.index("--")], argv[argv.index("--") + 1:]
    parser = argparse.ArgumentParser(description="cloche's test runner", epilog="what follows -- goes to pytest")
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=f"of {', '.join(SUITES)}; default: all")
    parser.add_argument("--build", default=str(TOP / "build"), metavar="DIR", help="build directory (default: build)")
    args = parser.parse_args(argv)
    unknown = [s for s in args.suites if s not in SUITES]
    if unknown:
        parser.error(f"unknown suite: {', '.join(unknown)}; there are {', '.join(SUITES)}")
    os.chdir(TOP)
    cloche.must_work()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what was begun is ended all the same
    before, parents = cloche.snapshot(), cloche.parent_cgroups()
    tmp = folder("clo-tests.", 0o1777)  # tests also run as other users
    os.environ["TMPDIR"] = tempfile.tempdir = str(tmp)
    scratch = folder("runner.", 0o755)
    tallies = []
    try:
        for suite in [s for s in SUITES if not args.suites or s in args.suites]:
            tally = Tally(suite)
            say(f"\n== {suite}", 1)
            began = time.monotonic()
            if suite in MESON:
                meson_suite(suite, args.build, tally, scratch)
            else:
                pytest_suite(suite, args.build, tally, scratch, extra)
            tally.seconds = time.monotonic() - began
            tallies.append(tally)
        tally, began = Tally("left behind"), time.monotonic()
        leftover_suite(before, scratch, tally)
        tally.seconds = time.monotonic() - began
        tallies.append(tally)
    finally:
        end_services(tmp)
        remove_empty_parents(parents)
        remove_tree(tmp)
    return report(tallies)


if __name__ == "__main__":
    sys.exit(main())
