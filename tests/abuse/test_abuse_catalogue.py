# SPDX-License-Identifier: Apache-2.0
"""Every id of the catalogue is tested or listed with the reason why not. catalogue.txt is the list of ids, LEFT_OUT.md the
reasons."""
import re
from pathlib import Path

HERE = Path(__file__).resolve().parent
ID = re.compile(r"\b([A-Z]{2})[-_](\d{2})")


def catalogue():
    return set((HERE / "catalogue.txt").read_text().split())


def left_out():
    found = {}
    for line in (HERE / "LEFT_OUT.md").read_text().splitlines():
        hit = re.match(r"- ([A-Z]{2}-\d{2}) (.+)", line)
        if hit:
            assert hit[1] not in found, f"{hit[1]} is listed twice"
            found[hit[1]] = hit[2]
    return found


def ids_tested():
    """Ids in the names of test functions, in rows of Attack and in the rows of test_abuse_peer.DOS."""
    ids = set()
    for f in HERE.glob("test_*.py"):
        if f.name == Path(__file__).name:
            continue
        text = f.read_text()
        for found in re.findall(r"^def test_(\w+)", text, re.M):
            if not found.endswith("_control"):
                ids |= {f"{a}-{b}" for a, b in ID.findall(found)}
        ids |= set(re.findall(r'^    (?:Attack)?\("([A-Z]{2}-\d{2})", "', text, re.M))
    return ids


def test_every_attack_is_tested_or_left_out_with_a_reason():
    assert len(catalogue()) == 181
    missing = catalogue() - ids_tested() - set(left_out())
    assert not missing, f"neither tested nor in LEFT_OUT.md: {sorted(missing)}"


def test_nothing_is_both():
    assert not ids_tested() & set(left_out())


def test_no_id_is_made_up():
    assert ids_tested() <= catalogue() and set(left_out()) <= catalogue(), (ids_tested() | set(left_out())) - catalogue()


def test_reasons_are_reasons():
    assert all(len(reason) > 20 for reason in left_out().values())


def test_every_attack_has_a_control():
    """A test that fails everywhere proves nothing: each id with a test function of its own has one named ..._control, a
    row of Attack (which brings its own), or is in WITHOUT with the reason."""
    without = {
        "CP-05": "the clocks are compared with each other", "OU-04": "exact counts", "OU-05": "exact bytes", "OU-07": "exact lines",
        "OU-09": "exact counts", "OU-12": "exact form", "ME-08": "the refusal is the test", "ME-10": "both halves are asserted",
        "DK-08": "sizes before and after", "KS-22": "it must work", "IN-08": "no denial", "IN-12": "no denial",
        "RE-06": "tests/integration kills 200 and counts; here the canaries stand by", "RE-08": "statistics",
        "FS-26": "the naive reader of the same test", "ME-07": "the peer is the test", "CP-09": "the peer is the test",
    }
    controlled = set()
    for f in HERE.glob("test_*.py"):
        text = f.read_text()
        controlled |= {f"{a}-{b}" for name in re.findall(r"^def test_(\w+_control)", text, re.M) for a, b in ID.findall(name)}
        controlled |= set(re.findall(r'^    Attack\("([A-Z]{2}-\d{2})"', text, re.M))
    missing = ids_tested() - controlled - set(without)
    assert not missing, f"no positive control: {sorted(missing)}"
