# SPDX-License-Identifier: Apache-2.0
"""Tests of other folders, run in a VM: one boot per machine, and each test in there is one out here, by its own name.

    MACHINES = {"v2-user": Machine(["--user"], ["tests/integration/test_ends.py"], "not java")}
    def pytest_generate_tests(metafunc): machines.parametrize(metafunc, MACHINES)
    @pytest.fixture(scope="module")
    def reports(vm, request): yield from machines.reports(request, MACHINES)
    def test_inside(reports, machine, inner): machines.judge(reports, machine, inner)
"""
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections import namedtuple
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cloche
import pytest

RUN = Path(__file__).parent / "run.py"
AT_A_TIME = 2  # the tests sleep a lot
DEADLINE_S = 900

# options of run.py, files or tests for pytest, expression of its -k ("": all)
Machine = namedtuple("Machine", "options tests expression", defaults=("",))


def need_vm():
    check = subprocess.run([sys.executable, RUN, "--check"], stdout=subprocess.PIPE, text=True, timeout=60)
    cloche.need("vm", check.returncode == 0, check.stdout.strip())


def boot(options, command, timeout):
    return subprocess.run([sys.executable, RUN, "--timeout", str(timeout), *options, "--", *command], cwd=cloche.TOP,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=timeout + 400)


def chosen(machine):
    return [*(["-k", machine.expression] if machine.expression else []), *machine.tests]


def collected(machine):
    """The names of the tests that will run on this machine, as pytest numbers them."""
    got = subprocess.run([sys.executable, "-B", "-m", "pytest", "-q", "--collect-only", *chosen(machine)], cwd=cloche.TOP,
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    names = [line.partition("::") for line in got.stdout.splitlines() if "::" in line]
    assert got.returncode == 0 and names, got.stdout
    return [file.rpartition("/")[2] + colons + name for file, colons, name in names]


def parametrize(metafunc, machines):
    if "inner" in metafunc.fixturenames:
        pairs = [(m, n) for m in machines for n in collected(machines[m])]
        metafunc.parametrize("machine, inner", pairs, ids=[f"{m} {n}" for m, n in pairs])


def outcome(case):
    for kind in ("failure", "error", "skipped"):
        found = case.find(kind)
        if found is not None:
            return kind, f"{found.get('message')}\n{found.text or ''}"
    return "passed", ""


def report(machine):
    """({name: (outcome, text)}, what was printed) of one machine's tests."""
    inner = ["python3", "-B", "-m", "pytest", "-q", "--tb=short", "--basetemp=/var/tmp/t", "--junitxml=/tmp/report",
             "--durations=15", *chosen(machine)]
    # /var/tmp is the guest's ext4: volumes need a file system that maps ids, and tmpfs of 6.1 does not
    script = 'umask 022; mkdir -p /var/tmp/x; export TMPDIR=/var/tmp/x; "$@" >&2; status=$?; cat /tmp/report; exit $status'
    got = boot(machine.options, ["sh", "-c", script, "sh", *inner], DEADLINE_S)
    log = got.stderr.decode(errors="replace")
    try:
        cases = list(ET.fromstring(got.stdout).iter("testcase"))
    except ET.ParseError as e:
        return {}, f"no report: {e}; exit {got.returncode}\n{log}"
    return {f"{c.get('classname').rpartition('.')[2]}.py::{c.get('name')}": outcome(c) for c in cases}, log


def reports(request, machines):
    """Yields machine -> its report. Only machines that a test was asked for boot."""
    wanted = {i.callspec.params["machine"] for i in request.session.items
              if i.fspath == request.fspath and "inner" in getattr(i, "fixturenames", ())}
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        futures = {m: pool.submit(report, machines[m]) for m in machines if m in wanted}
        yield lambda machine: futures[machine].result()


def judge(reports, machine, inner):
    """A test that is skipped inside is skipped here."""
    results, log = reports(machine)
    assert inner in results, f"{inner} did not run on {machine}:\n{log[-3000:]}"
    kind, text = results[inner]
    if kind == "skipped":
        pytest.skip(text.splitlines()[0])
    assert kind == "passed", text
