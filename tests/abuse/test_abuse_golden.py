# SPDX-License-Identifier: Apache-2.0
"""KS-21: the seccomp filter of a live sandbox, read out of the kernel, is the golden one: every call of x86-64, i386 and
x32, each profile. The same files are compared with the compiled program by tests/unit/test_seccomp.py."""
import os
import subprocess
import time
from pathlib import Path

import pytest

import arena
import cloche

pytestmark = [pytest.mark.needs("native"), pytest.mark.needs("root"), pytest.mark.needs("gcc")]
GOLDEN = cloche.TOP / "tests" / "golden"


def status(pid, key):
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(key + ":"):
            return line.partition(":")[2].strip()
    return ""


def command_of(p):
    """The host's pid of the sandboxed command: the descendant that has executed it, and sleeps: before that its loader
    has libraries open."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        for pid in arena.descend(p.pid):
            try:
                if Path(f"/proc/{pid}/comm").read_text() == "sleep\n" and status(pid, "State").startswith("S"):
                    return pid
            except OSError:
                continue
        time.sleep(0.01)
    raise AssertionError("the command did not start")


@pytest.fixture(scope="module", params=["default", "dev", "no-locks"])
def live(request):
    p = cloche.start(["run", "--profile", request.param, "--timeout", "60s", "--", "sleep", "50"])
    try:
        yield request.param, command_of(p)
    finally:
        p.terminate()
        p.communicate(timeout=20)


@pytest.mark.parametrize("arch", ["x86_64", "i386", "x32"])
def test_KS_21_filter_of_a_live_sandbox(live, arch):
    profile, pid = live
    scdump = arena.compiled("scdump", "-lseccomp")
    done = subprocess.run([scdump, "-v", "-a", arch, str(pid)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == (GOLDEN / f"seccomp-{profile}.{arch}.txt").read_text()
    assert status(pid, "Seccomp") == "2" and status(pid, "Seccomp_filters") == "1"


def test_KS_21_totals():
    """The ceiling: 204 + 8 on x86-64, nothing but death on the others."""
    total = {a: (GOLDEN / f"seccomp-default.{a}.txt").read_text().splitlines()[-1] for a in ("x86_64", "i386", "x32")}
    words = dict(w.split("=") for w in total["x86_64"].split("\t")[-1].split())
    assert int(words["allow"]) + int(words["args"]) <= 212
    for a in ("i386", "x32"):
        assert "allow=0 args=0 errno=0" in total[a], total[a]


def test_KS_21_filter_control():
    """Without the layer, the reader says so: it would not take nothing for the golden filter."""
    with arena.weakened("seccomp") as env:
        p = cloche.start(["run", "--timeout", "60s", "--", "sleep", "50"], env=env)
    try:
        pid = command_of(p)
        done = subprocess.run([arena.compiled("scdump", "-lseccomp"), "-v", "-a", "x86_64", str(pid)], capture_output=True, text=True)
        assert done.stdout != (GOLDEN / "seccomp-default.x86_64.txt").read_text() and status(pid, "Seccomp") == "0"
    finally:
        p.terminate()
        p.communicate(timeout=20)


def test_KS_20_seen_from_the_host():
    """Ids, capabilities and flags of the live command as the kernel reports them outside: not what the code says of itself."""
    p = cloche.start(["run", "--timeout", "60s", "--", "sleep", "50"])
    try:
        pid = command_of(p)
        init = int(status(pid, "PPid"))
        for cap in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
            assert int(status(pid, cap), 16) == 0, cap
        assert status(pid, "NoNewPrivs") == "1" and status(init, "NoNewPrivs") == "1"
        uids, init_uids = set(status(pid, "Uid").split()), set(status(init, "Uid").split())
        assert len(uids) == 1 and uids != init_uids and not uids & {"0", "65534"} and not init_uids & {"0", "65534"}
        assert status(pid, "Groups") == ""
        own = {n: os.readlink(f"/proc/self/ns/{n}") for n in os.listdir("/proc/self/ns")}
        shared = [n for n in ("user", "pid", "mnt", "net", "ipc", "uts", "cgroup", "time") if os.readlink(f"/proc/{pid}/ns/{n}") == own[n]]
        assert not shared, f"namespaces shared with the host: {shared}"
        assert set(cloche.fds(pid)) == {0, 1, 2}
        # init holds its stream, a signalfd, and the lock that keeps its ids from the next sandbox; nothing else of the host's
        held = sorted(v.split(":")[0].rstrip("0123456789") for v in cloche.fds(init).values())
        assert held == ["/dev/null"] * 3 + ["/run/cloche/slots/", "anon_inode", "socket"], cloche.fds(init)
        assert int(status(init, "CapEff"), 16) & ~0xe0 == 0, status(init, "CapEff")
        assert int(status(init, "CapBnd"), 16) == 0
    finally:
        p.terminate()
        p.communicate(timeout=20)


def test_KS_20_seen_from_the_host_control():
    """An ordinary child of ours shares every namespace: the comparison sees it."""
    p = subprocess.Popen(["sleep", "50"])
    try:
        assert all(os.readlink(f"/proc/{p.pid}/ns/{n}") == os.readlink(f"/proc/self/ns/{n}") for n in ("user", "pid", "mnt", "net"))
    finally:
        p.kill()
        p.wait()
