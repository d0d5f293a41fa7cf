# SPDX-License-Identifier: Apache-2.0
"""The VM itself: what tests in it rely on. What cloche does in it is tested elsewhere."""
import json
import os
import select
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import cloche
import pytest

RUN = Path(__file__).parent / "run.py"
OUT = bytes(range(256)) * 3 + b"\r\n\n\0no newline at the end"
ERR = b"\xff\xfe" + bytes(reversed(range(256)))

INSIDE = f"""
    import json, os, subprocess, sys
    def read(path):
        with open(path) as f:
            return f.read().strip()
    os.mkdir("/sys/fs/cgroup/tight")
    for name, value in (("memory.max", "33554432"), ("memory.swap.max", "0")):
        with open("/sys/fs/cgroup/tight/" + name, "w") as f:
            f.write(value)
    def enter():
        with open("/sys/fs/cgroup/tight/cgroup.procs", "w") as f:
            f.write("0")
    hog = subprocess.run([sys.executable, "-c", "bytearray(200 << 20)"], preexec_fn=enter)
    import pytest
    json.dump(dict(
        release=os.uname().release, uid=os.getuid(), controllers=read("/sys/fs/cgroup/cgroup.subtree_control").split(),
        fstype=subprocess.check_output(["stat", "-fc", "%T", "/sys/fs/cgroup"], text=True).strip(),
        cgroup=read("/proc/self/cgroup"), hog=hog.returncode, events=read("/sys/fs/cgroup/tight/memory.events"),
        null=[os.stat("/dev/null").st_rdev, os.stat("/dev/null").st_mode & 0o777], shm=os.path.ismount("/dev/shm"),
        pts=os.path.exists("/dev/pts/ptmx"), lo=read("/sys/class/net/lo/flags"), pytest=pytest.__version__,
        interfaces=os.listdir("/sys/class/net"), tree=os.path.exists({str(RUN)!r}), stdin=sys.stdin.read(),
        root=subprocess.check_output(["stat", "-fc", "%T", "/"], text=True).strip()), sys.stderr)
    sys.stderr.flush()
    os.write(2, b"\\n\\n" + {ERR!r})
    os.write(1, {OUT!r})
    os._exit(77)
"""


@pytest.fixture(scope="module", autouse=True)
def vm():
    check = subprocess.run([sys.executable, RUN, "--check"], stdout=subprocess.PIPE, text=True, timeout=60)
    cloche.need("vm", check.returncode == 0, check.stdout.strip())


def run(*args, **kw):
    return subprocess.run([sys.executable, RUN, "--timeout", "120", *args], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=900, **kw)


@pytest.fixture(scope="module")
def booted(vm):
    return run("--", "python3", "-c", textwrap.dedent(INSIDE))


@pytest.fixture(scope="module")
def guest(booted):
    text, _, rest = booted.stderr.partition(b"\n\n")
    assert rest, booted.stderr
    return json.loads(text)


def test_output_is_byte_exact(booted):
    assert booted.stdout == OUT
    assert booted.stderr.partition(b"\n\n")[2] == ERR


def test_status_passes_through(booted):
    assert booted.returncode == 77


def test_kernel_and_python(guest):
    assert guest["release"].startswith("6.1.")
    assert guest["uid"] == 0 and guest["pytest"]


def test_cgroup_v2_enforces(guest):
    assert guest["fstype"] == "cgroup2fs"
    assert {"memory", "pids", "cpu", "io"} <= set(guest["controllers"])
    assert guest["cgroup"] == "0::/test.scope"
    assert guest["hog"] == -signal.SIGKILL
    assert "oom_kill 1" in guest["events"].splitlines()


def test_surroundings(guest):
    assert guest["null"] == [os.makedev(1, 3), 0o666]
    assert guest["shm"] and guest["pts"] and guest["tree"]
    assert guest["interfaces"] == ["lo"] and int(guest["lo"], 16) & 1
    assert guest["root"] == "tmpfs"  # not rootfs: pivot_root has to work
    assert guest["stdin"] == ""


def test_ordinary_user():
    script = """
        set -e
        id -u
        unshare -U --map-auto --map-root-user cat /proc/self/uid_map
        own=/sys/fs/cgroup$(cut -d: -f3 /proc/self/cgroup)
        mkdir "$own"/../beside
        cat "$own"/../beside/cgroup.controllers
        echo 0 >"$own"/../beside/cgroup.procs
        mkdir /sys/fs/cgroup/foreign 2>/dev/null || echo refused
    """
    got = run("--user", "--", "bash", "-c", script)
    assert got.returncode == 0, got.stderr
    uid, first, second, controllers, refused = got.stdout.decode().splitlines()
    assert uid == "1000" and refused == "refused"
    assert first.split() == ["0", "1000", "1"] and second.split()[:2] == ["1", "100000"]
    assert {"memory", "pids", "cpu"} <= set(controllers.split())


def test_refusals_can_be_had():
    """No user namespaces, and a cgroup file system nobody can write."""
    got = run("--no-userns", "--cgroup-ro", "--", "bash", "-c", "unshare -U true || mkdir /sys/fs/cgroup/x || exit 9")
    assert got.returncode == 9
    assert b"No space left on device" in got.stderr and b"Read-only file system" in got.stderr


def test_a_vm_that_dies_is_not_a_result():
    got = run("--", "bash", "-c", "echo c >/proc/sysrq-trigger; sleep 60")
    assert got.returncode == 125
    assert b"sysrq triggered crash" in got.stderr


def session(sid):
    """Processes of a session, without its leader: {pid: name}."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            head, _, tail = stat.read_text().rpartition(")")
        except OSError:
            continue
        pid, _, comm = head.partition(" (")
        if int(tail.split()[3]) == sid and int(pid) != sid:
            found[int(pid)] = comm
    return found


def start(*args):
    return subprocess.Popen([sys.executable, RUN, *args], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                            stderr=subprocess.PIPE, start_new_session=True)


def test_deadline():
    with start("--timeout", "1", "--", "sleep", "60") as process:
        assert b"deadline" in process.communicate(timeout=400)[1]
    assert process.returncode == 124
    assert session(process.pid) == {}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_no_machine_outlives_its_caller(number):
    with start("--timeout", "60", "-v", "--", "sleep", "60") as process:
        while not process.stderr.readline().endswith(b"] images\n"):
            assert process.poll() is None
        until = time.monotonic() + 10  # qemu follows at once; nothing tells us when
        while not (qemu := [p for p, name in session(process.pid).items() if name.startswith("qemu")]):
            assert time.monotonic() < until
        fd = os.pidfd_open(qemu[0])
        try:
            process.send_signal(number)
            assert select.select([fd], [], [], 10)[0], "qemu is still there"
        finally:
            os.close(fd)
        process.communicate(timeout=10)
