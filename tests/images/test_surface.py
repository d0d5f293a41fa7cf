# SPDX-License-Identifier: Apache-2.0
"""What code can reach in an image is what it can reach in the host image: the surveys of tests/abuse, in one."""
import os
import subprocess
import sys

import cloche
import pytest
from imagelib import CHAR, DIR, LINK, entry
from test_store import busybox

sys.path.insert(0, str(cloche.TOP / "tests" / "abuse"))
import arena  # noqa: E402
import test_abuse_surface as abuse  # noqa: E402

pytestmark = [pytest.mark.needs("native"), pytest.mark.needs("root"), pytest.mark.needs("gcc")]


@pytest.fixture
def image(store, layout):
    """One that tries to bring what a sandbox must not have."""
    layout.image("t", [busybox(entry("bin/su", b"#!/bin/sh\n", mode=0o6755), entry("dev", kind=DIR, mode=0o777),
                               entry("dev/mem", kind=CHAR, mode=0o666, dev=(1, 1)), entry("dev/kmsg", kind=CHAR, mode=0o666, dev=(1, 11)),
                               entry("sys", kind=DIR), entry("sys/kernel", kind=DIR), entry("sys/kernel/vmcoreinfo", b"x"),
                               entry("proc", kind=DIR), entry("proc/kcore", b"x"), entry("tmp", kind=DIR, mode=0o1777),
                               entry("mem", kind=CHAR, mode=0o666, dev=(1, 1)), entry("etc", kind=DIR), entry("etc/mtab", kind=LINK, link="/proc/mounts"),
                               # what the surveys open that the host image has, too
                               entry("etc/passwd", b"root:x:0:0::/:/bin/sh\n"), entry("usr", kind=DIR), entry("usr/bin", kind=DIR),
                               entry("usr/bin/env", kind=LINK, link="/bin/busybox"))])
    store.image("import", layout.path, "t:1")
    return store


def probed(store, binary, *options):
    name = os.path.basename(binary)
    return store.call("run", *options, "--timeout", "60s", "--max-output", "4m", "--in", f"{binary}:/workspace/{name}", "--",
                      f"/workspace/{name}").out


def test_survey_is_the_golden_one(image):
    golden, lines = abuse.split(abuse.GOLDEN.read_text())
    counts, ours = abuse.split(probed(image, arena.compiled("surface"), "--image", "t:1"))
    assert {k: counts[k] for k in abuse.FLOOR} == abuse.FLOOR, "the survey has lost questions"
    assert not {k: counts[k] for k, limit in abuse.CEILING.items() if counts[k] > limit}
    assert not ours - lines, f"new in the surface: {sorted(ours - lines)}"
    assert not {k: (v, golden.get(k)) for k, v in counts.items() if v > golden.get(k, -1)}


def test_survey_sees_the_same_numbers_as_on_the_host(image):
    host, _ = abuse.split(probed(image, arena.compiled("surface")))
    ours, _ = abuse.split(probed(image, arena.compiled("surface"), "--image", "t:1"))
    assert ours.pop("mounts all") == host.pop("mounts all") - 1, "/usr is a mount of its own in the host image only"
    assert ours == host


@pytest.mark.skipif(not os.environ.get("CLOCHE_SHARED_PROBE"), reason="CLOCHE_SHARED_PROBE does not name a probe.c")
def test_shared_probe(image, tmp_path):
    binary = tmp_path / "probe"
    subprocess.run(["gcc", "-O1", "-static", "-o", binary, os.environ["CLOCHE_SHARED_PROBE"], "-pthread"], check=True, capture_output=True)

    def verdicts(*options):
        """{(section, name): verdict}, and the counts that it sums up."""
        rows = [line.split("\t") for line in probed(image, binary, *options).splitlines()]
        return ({(s, n): v for s, n, v, _ in rows if v != "INFO"},
                {(s, n): d for s, n, v, d in rows if v == "INFO" and s in ("sock", "fs", "sys", "lim")})

    host, ours = verdicts(), verdicts("--image", "t:1")
    assert len(host[0]) > 400
    different = {k: (host[0].get(k), ours[0].get(k)) for k in {*host[0], *ours[0]} if host[0].get(k) != ours[0].get(k)}
    assert not different
    assert {k: v for k, v in ours[1].items() if v != host[1].get(k)} == {}
