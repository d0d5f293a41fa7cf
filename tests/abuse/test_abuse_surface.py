# SPDX-License-Identifier: Apache-2.0
"""The reachable surface, counted from inside and compared with tests/golden/surface.txt: nothing may be added to it.

The golden text is what a root sandbox with the defaults gives. A thing that is missing on this machine (an older kernel)
is printed; a thing that is new, or a number above CEILING, fails. To renew the text after a decision:

    CLOCHE_WRITE_GOLDEN=1 /usr/bin/python3 -m pytest tests/abuse/test_abuse_surface.py
"""
import os
import subprocess
import warnings

import pytest

import arena
import cloche

pytestmark = [pytest.mark.needs("native"), pytest.mark.needs("root"), pytest.mark.needs("gcc")]
GOLDEN = cloche.TOP / "tests" / "golden" / "surface.txt"

# SECURITY-BASIS 3's last column, FEASIBILITY 10 and 11. Calls: 212 in the filter less exit, exit_group and rt_sigreturn,
# which no sweep can try.
CEILING = {"calls reached": 209, "facts yes": 13, "paths with content": 13, "proc readable": 0, "proc writable": 0,
           "proc machine-wide below net": 3, "sys readable": 0, "sys writable": 0, "sockets families": 3, "sockets netlink protocols": 0,
           "sockets ping": 0, "mounts all": 11, "mounts writable": 3, "mounts writable and executable": 1, "mounts without nodev": 6,
           "mounts without nosuid": 0}
FLOOR = {"facts tried": 107, "paths tried": 117}


def survey(layers_off=None, *sections):
    """The lines of `surface` inside: ({count: number}, {other lines})."""
    argv = ["run", "--timeout", "60s", "--max-output", "4m", "--in", f"{arena.compiled('surface')}:/workspace/surface", "--",
            "/workspace/surface", *sections]
    if layers_off is None:
        r = cloche.run(argv, timeout=90)
    else:
        with arena.weakened(layers_off) as env:
            r = cloche.run(argv, timeout=90, env=env)
    assert r.reason == "exited" and r.exit_code == 0, r
    return split(r.out.decode())


def split(text):
    counts, lines = {}, set()
    for line in text.splitlines():
        section, name, detail = line.split("\t", 2)
        if section == "count":
            counts[name] = int(detail)
        else:
            lines.add(line)
    return counts, lines


@pytest.fixture(scope="module")
def surveyed():
    return survey()


def test_KS_21_surface_is_not_above_the_ceiling(surveyed):
    counts, _ = surveyed
    assert {k: counts[k] for k in FLOOR} == FLOOR, "the survey has lost questions"
    above = {k: counts[k] for k, limit in CEILING.items() if counts[k] > limit}
    assert not above, f"above the ceiling: {above}"


def test_KS_21_surface_is_the_golden_one(surveyed):
    counts, lines = surveyed
    if os.environ.get("CLOCHE_WRITE_GOLDEN"):
        GOLDEN.write_text("".join(f"{l}\n" for l in sorted(lines) + [f"count\t{k}\t{v}" for k, v in sorted(counts.items())]))
    golden_counts, golden_lines = split(GOLDEN.read_text())
    assert not lines - golden_lines, f"new in the surface: {sorted(lines - golden_lines)}"
    higher = {k: (v, golden_counts.get(k)) for k, v in counts.items() if v > golden_counts.get(k, -1)}
    assert not higher, f"numbers that rose: {higher}"
    if golden_lines - lines:
        warnings.warn(f"in the golden surface and not here: {sorted(golden_lines - lines)}")


def test_KS_21_surface_control():
    """Without layers, the same program reaches more in every section that those layers guard."""
    counts, _ = survey("seccomp,masks,forbid_userns,landlock", "facts", "sockets", "proc", "paths", "calls")
    assert counts["calls reached"] > 300 and counts["facts yes"] > 40 and counts["sockets netlink protocols"] > 5, counts
    assert counts["proc readable"] > 100 and counts["paths with content"] > 30, counts


def test_IN_02_localhost_resolves_all_the_same():
    r = cloche.run(["run", "--", "getent", "hosts", "localhost"])
    assert b"localhost" in r.out, r


# The project's own probe, kept outside this repository: an independent count of the same.
@pytest.mark.skipif(not os.environ.get("CLOCHE_SHARED_PROBE"), reason="CLOCHE_SHARED_PROBE does not name a probe.c")
def test_KS_21_shared_probe(tmp_path):
    binary = tmp_path / "probe"
    subprocess.run(["gcc", "-O1", "-static", "-o", binary, os.environ["CLOCHE_SHARED_PROBE"], "-pthread"], check=True, capture_output=True)
    r = cloche.run(["run", "--timeout", "60s", "--max-output", "4m", "--in", f"{binary}:/workspace/probe", "--", "/workspace/probe"], timeout=90)
    rows = [l.split("\t") for l in r.out.decode().splitlines()]
    allowed = {s: [n for sec, n, v, _ in rows if sec == s and v == "ALLOW"] for s in ("feat", "path", "sys")}
    info = {(sec, n): d for sec, n, v, d in rows if v == "INFO"}
    assert len(allowed["feat"]) <= 13 and len(allowed["path"]) <= 13, allowed
    assert info["sock", "families that open"] == "3" and info["sock", "AF_NETLINK protocols that open"].startswith("0 "), info
    assert info["fs", "/proc machine-wide files"] == "seen=0 readable=0 writable=0" and info["fs", "/sys files"] == "seen=0 readable=0 writable=0"
