# SPDX-License-Identifier: Apache-2.0
"""What a network adds to a sandbox's surface, compared with tests/golden/surface-network.txt: nothing may be added to that.

Asked are the survey of test_abuse_surface.py (system calls, facts, paths, /proc, /sys, address families, mounts) and
surface_network.py (files of /proc/net, interfaces, routes, sockets, environment, /etc). The golden text has a line per thing that
is there (+) or no longer there (-): `allow` beside no network, `opened` (a rule for which TLS is opened) beside `allow`. `open` has
to be as `allow`. To renew it after a decision:

    CLOCHE_WRITE_GOLDEN=1 /usr/bin/python3 -m pytest tests/abuse/test_abuse_surface_network.py
"""
import os
import warnings

import pytest

import arena
import cloche

pytestmark = [pytest.mark.needs("native"), pytest.mark.needs("root"), pytest.mark.needs("gcc"), pytest.mark.needs("python")]
GOLDEN = cloche.TOP / "tests" / "golden" / "surface-network.txt"
KINDS = {
    "none": (),
    "allow": ("--network", "allow", "--allow", "a.test"),
    "open": ("--network", "open"),
    "opened": ("--network", "allow", "--allow", "GET https://a.test/*"),
}
BESIDE = {"allow": "none", "open": "allow", "opened": "allow"}


def survey(*options):
    """The lines of both programs inside; the capture that the result names."""
    files = [w for path, name in ((arena.compiled("surface"), "surface"), (arena.HERE / "surface_network.py", "look.py"))
             for w in ("--in", f"{path}:/workspace/{name}")]
    r = cloche.run(["run", "--timeout", "120s", "--max-output", "4m", *files, *options, "--", "/bin/sh", "-c",
                    f"/workspace/surface && exec {arena.PYTHON} /workspace/look.py"], timeout=150)
    assert r.reason == "exited" and r.exit_code == 0, r
    return set(r.out.decode().splitlines())


@pytest.fixture(scope="module")
def surveyed():
    return {kind: survey(*options) for kind, options in KINDS.items()}


def differences(surveyed):
    return {f"{kind}\t{sign}\t{line}" for kind, other in BESIDE.items()
            for sign, a, b in (("+", kind, other), ("-", other, kind)) for line in surveyed[a] - surveyed[b]}


def test_KS_21_what_a_network_adds_is_the_golden_one(surveyed):
    found = differences(surveyed)
    if os.environ.get("CLOCHE_WRITE_GOLDEN"):
        GOLDEN.write_text("".join(f"{line}\n" for line in sorted(found)))
    golden = set(GOLDEN.read_text().splitlines())
    assert not found - golden, "new with a network:\n" + "\n".join(sorted(found - golden))
    if golden - found:
        warnings.warn(f"in the golden text and not here: {sorted(golden - found)}")


def test_KS_21_calls_facts_and_families_are_the_same(surveyed):
    """Whatever the golden text says: a network adds no system call, no address family, no file of /sys, no interface."""
    def of(kind):
        return {line for line in surveyed[kind] if line.split("\t")[0] in ("calls", "facts", "sockets", "sys", "proc", "interface") or
                line.startswith(("count\tcalls", "count\tsockets", "count\tfacts"))}
    assert len(of("none")) > 210 and all(of(kind) == of("none") for kind in KINDS)


def test_KS_21_what_a_network_adds_control(surveyed):
    """The survey sees a variable, a mount and a listener that were not there."""
    more = survey("--network", "allow", "--allow", "a.test", "--env", "ADDED=1", "--tmpfs", "/added:size=1m")
    new = more - surveyed["allow"]
    assert "env\tADDED\t1" in new and any(line.startswith("mount\t/added\t") for line in new), new
    assert any(line.startswith("net\ttcp\t127.0.0.1 3128 ") for line in surveyed["allow"] - surveyed["none"])
