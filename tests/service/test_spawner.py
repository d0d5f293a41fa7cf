# SPDX-License-Identifier: Apache-2.0
"""The privileged spawner against a client in Python: the real program, in temporary folders.

Work inside a sandbox is done by a process that the test sends into its cgroup and namespaces (nsenter), so that
nothing here depends on the guest protocol; what is looked at are the kernel's own numbers.
"""
import contextlib
import errno
import os
import random
import re
import shutil
import socket
import subprocess
import time
from pathlib import Path

import pytest

import cloche
import conversation
import proc
import spawner

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
SERVICE = 61234
MB = 1 << 20


@pytest.fixture
def server():
    with spawner.Spawner() as s:
        yield s


def cgroup_name(box):
    return Path(box.memory_events).parent.name


def cgroup_dirs(box):
    return [p for pattern in ("*/cloche/", "cloche/") for p in Path("/sys/fs/cgroup").glob(pattern + cgroup_name(box))]


def inside(box, *argv, **more):
    """Popen of a program in the cgroup and namespaces of a sandbox, as its user."""
    def join():
        for d in cgroup_dirs(box):
            (d / "cgroup.procs").write_text(str(os.getpid()))
    return subprocess.Popen(["nsenter", f"--target={box.pid}", "--all", "--setuid=65534", "--setgid=65534", *argv],
                            preexec_fn=join, stdin=subprocess.DEVNULL, **{"stderr": subprocess.DEVNULL, **more})


def until(condition, timeout=15):
    """Ask again until it is so. The kernel's numbers come without a descriptor to wait for."""
    end = time.monotonic() + timeout
    while not (value := condition()):
        assert time.monotonic() < end, "it does not come to be"
        time.sleep(0.01)
    return value


def loops(s):
    """Loop devices with a file of this spawner's."""
    rows = []
    for f in Path("/sys/block").glob("loop*/loop/backing_file"):
        try:
            rows += [f] if str(s.folder) in f.read_text() else []
        except OSError:
            pass
    return rows


def processes(s):
    """Processes in cgroups of this spawner's realm, or with its folder in their command line."""
    rows = []
    for p in Path("/proc").glob("[0-9]*"):
        try:
            if f"-{s.realm()}\n" in (p / "cgroup").read_text() or str(s.folder) in (p / "cmdline").read_text():
                rows.append(int(p.name))
        except OSError:
            pass
    return [pid for pid in rows if pid != s.process.pid]


def left(s):
    found = {"processes": processes(s), "cgroups": s.cgroups(), "folders": s.folders(), "slots": s.slots_held(),
             "loops": loops(s), "disks": list(s.state.glob("disks/*")),
             "mounts": [line for line in open("/proc/self/mountinfo") if str(s.folder) in line]}
    return {k: v for k, v in found.items() if v}


def nothing_left(s):
    until(lambda: not left(s)) if left(s) else None
    assert not left(s)


# ------------------------------------------------------------------------------------------ one life


def test_a_life(server):
    c = server.client()
    box = c.create(memory_bytes=64 * MB, pids_limit=20)
    assert server.folders() == [box.id] and len(server.slots_held()) == 1
    assert box.enforced_memory != "none" and box.enforced_pids != "none" and box.enforced_cpu != "none"
    assert box.enforced_uid == 65534 and box.enforced_user_namespace == 1 and box.enforced_rootless == 0
    assert Path(box.cpu_usage).exists() and Path(box.memory_events).exists() and Path(box.pids_events).exists()
    status = Path(f"/proc/{box.pid}/status").read_text()
    assert int(re.search(r"Uid:\t(\d+)", status)[1]) >= 0x70000000
    assert int(re.search(r"PPid:\t(\d+)", status)[1]) == server.process.pid
    rows = c.list()
    assert [r.created.id for r in rows] == [box.id] and rows[0].paused == 0 and rows[0].created.pid == box.pid
    assert abs(rows[0].started_ms - time.clock_gettime(time.CLOCK_BOOTTIME) * 1000) < 10000
    end = c.end(box.id)
    assert (end.known, end.signaled, end.status, end.killed) == (1, 1, 9, 1)
    nothing_left(server)
    assert c.list() == []


def test_one_that_waits_for_a_zygote_is_taken_back(server):
    """It is behind another one's: it is not begun, and those behind it are."""
    c = server.client()
    boxes = [spawner.new_id() for _ in range(3)]
    asked = [c.start(box, zygote="python", tenant="one", prepared=1) for box in boxes]
    assert c.ask("KILL", boxes[1]).type == "DONE"
    refused = c.answer(asked[1], 40)
    assert refused.type == "REFUSED" and refused.code_name == "SANDBOX_KILLED" and boxes[1] in refused.text, refused
    assert [c.answer(asked[i], 40).type for i in (0, 2)] == ["CREATED", "CREATED"]
    assert {r.created.id for r in c.list()} == {boxes[0], boxes[2]}
    for box in (boxes[0], boxes[2]):
        c.end(box)


def test_counters(server):
    c = server.client()
    box = c.create(memory_bytes=64 * MB, pids_limit=20, cpus_millis=2000)
    p = inside(box, "python3", "-c", "x = bytearray(20 << 20); print(flush=True); input() or 1", stdout=subprocess.PIPE)
    p.stdout.readline()
    stats = c.ask("STATS", box.id)
    assert stats.type == "STATS_ARE" and stats.id == box.id and stats.paused == 0
    assert 20 * MB < stats.counters.memory_peak_bytes < 64 * MB and stats.counters.pids_peak >= 1
    assert stats.counters.cpu_us > 5000 and stats.counters.oom_kills == 0
    assert c.end(box.id).counters.cpu_us >= stats.counters.cpu_us
    p.wait(10)


def test_out_of_memory_is_counted(server):
    c = server.client()
    box = c.create(memory_bytes=32 * MB)
    p = inside(box, "python3", "-c", "x = bytearray(200 << 20)")
    assert p.wait(20) != 0
    stats = c.ask("STATS", box.id)
    assert stats.counters.oom_kills >= 1 and stats.counters.memory_hit == 1
    if spawner.host_start(box.pid):  # the kernel may have chosen init
        c.ask("KILL", box.id)
    assert c.ended(box.id).counters.oom_kills >= 1


def test_pause_stands_still(server):
    c = server.client()
    box = c.create()
    p = inside(box, "sh", "-c", "while :; do :; done")
    until(lambda: c.ask("STATS", box.id).counters.cpu_us > 20000)
    assert c.ask("PAUSE", box.id).type == "DONE"
    first = c.ask("STATS", box.id)
    time.sleep(0.3)
    second = c.ask("STATS", box.id)
    assert first.paused == second.paused == 1 and c.list()[0].paused == 1
    # A task counts as frozen a moment before it leaves its CPU; a loop would have used up to 300,000 us.
    assert second.counters.cpu_us - first.counters.cpu_us < 5000
    assert c.ask("PAUSE", box.id).type == "DONE"  # again
    assert c.ask("RESUME", box.id).type == "DONE"
    until(lambda: c.ask("STATS", box.id).counters.cpu_us > second.counters.cpu_us + 20000)
    assert c.ask("STATS", box.id).paused == 0
    # Killing what is frozen works at once.
    assert c.ask("PAUSE", box.id).type == "DONE"
    began = time.monotonic()
    assert c.end(box.id).killed == 1
    assert time.monotonic() - began < 5
    p.wait(10)
    nothing_left(server)


def test_paused_is_known_after_a_restart(server):
    c = server.client()
    box = c.create()
    assert c.ask("PAUSE", box.id).type == "DONE"
    server.restart()
    c = server.client()
    assert c.list()[0].paused == 1
    assert c.ask("RESUME", box.id).type == "DONE" and c.list()[0].paused == 0


def test_a_fork_bomb_dies(server):
    c = server.client()
    box = c.create(pids_limit=64)
    p = inside(box, "sh", "-c", "f() { f | f & f; }; f")
    until(lambda: c.ask("STATS", box.id).counters.pids_hit)
    began = time.monotonic()
    end = c.end(box.id)
    assert time.monotonic() - began < 10 and end.counters.pids_hit == 1
    p.wait(10)
    nothing_left(server)


def test_an_init_that_dies_is_an_end(server):
    c = server.client()
    box = c.create()
    os.kill(box.pid, 9)
    end = c.ended(box.id)
    assert (end.known, end.signaled, end.status, end.killed) == (1, 1, 9, 0)
    # once, and again at every HELLO until it is released, also by a spawner that comes later
    assert c.ask("STATS", box.id).type == "REFUSED"
    for restart in (False, False, True):
        if restart:
            server.restart()
        c = server.client()
        again = c.ended(box.id)
        assert (again.known, again.signaled, again.status, again.killed) == (1, 1, 9, 0)
        assert again.counters.cpu_us == end.counters.cpu_us
    assert c.ask("RELEASE", box.id).type == "DONE"
    c = server.client()
    assert c.list() == [] and not [m for m in c.waiting if m.type == "ENDED"]
    nothing_left(server)


def test_a_hundred_at_once(server):
    c = server.client()
    sent = {c.start(): None for _ in range(100)}
    boxes = [c.answer(n) for n in sent]
    assert all(b.type == "CREATED" for b in boxes) and len({b.pid for b in boxes}) == 100
    assert len(server.slots_held()) == 100 and len(c.list()) == 100
    fds = len(list(Path(f"/proc/{server.process.pid}/fd").iterdir()))
    for b in boxes:
        c.ask("KILL", b.id)
    for b in boxes:
        c.ended(b.id)
        c.ask("RELEASE", b.id)
    assert fds - len(list(Path(f"/proc/{server.process.pid}/fd").iterdir())) == 200  # two each
    nothing_left(server)


def test_the_queue_is_bounded(server):
    c = server.client()
    sent = [c.start() for _ in range(330)]
    answers = [c.answer(n, 60) for n in sent]
    refused = [a for a in answers if a.type == "REFUSED"]
    assert refused and all(a.errnum == errno.EAGAIN and a.code_name == "SANDBOX_QUOTA_EXCEEDED" for a in refused)
    assert len(refused) <= 330 - 256


def test_killed_while_it_is_made(server):
    c = server.client()
    ids = [spawner.new_id() for _ in range(30)]
    sent = {i: c.start(i) for i in ids}
    for i in ids:
        assert c.ask("KILL", i).type == "DONE"
    for i, n in sent.items():
        a = c.answer(n)
        if a.type == "CREATED":
            assert c.ended(i).killed == 1
            c.ask("RELEASE", i)
        else:
            assert a.code_name == "SANDBOX_KILLED"
    assert c.list() == []
    nothing_left(server)


def test_a_worker_that_is_killed(server):
    c = server.client()
    sent = [c.start(disk_bytes=16 * MB) for _ in range(40)]
    hit = 0
    for _ in range(60):  # its own children that are no inits are workers
        pid = proc.child(server.process.pid, "cloche-spawner")
        if pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, 9)
                hit += 1
        time.sleep(0.002)
    answers = [c.answer(n) for n in sent]
    assert hit and any(a.type == "REFUSED" and a.errnum == errno.ETIMEDOUT for a in answers)
    assert {r.created.id for r in c.list()} == {a.id for a in answers if a.type == "CREATED"}
    for a in answers:
        if a.type == "CREATED":
            c.end(a.id)
    nothing_left(server)


def test_its_init_serves(server):
    c = server.client()
    box = c.create(pids_limit=20)
    with conversation.Conversation(server.ctl(box.id)) as talk:
        talk.say("PS")
        assert talk.hear("DONE")
    server.restart()  # its maker is gone for good
    with conversation.Conversation(server.ctl(box.id)) as talk:
        talk.say("SPACE")
        assert talk.hear("ROOM", "DONE")


def test_an_id_is_new_once(server):
    c = server.client()
    box = c.create()
    assert c.try_create(box.id).errnum == errno.EEXIST
    c.ask("KILL", box.id)
    c.ended(box.id)
    assert c.try_create(box.id).errnum == errno.EEXIST  # until it is released
    c.ask("RELEASE", box.id)
    assert c.create(box.id).id == box.id


# ------------------------------------------------------------------------------------------ after kill -9


def test_adopted_alive(server):
    c = server.client()
    boxes = [c.create() for _ in range(3)]
    started = {b.id: spawner.host_start(b.pid) for b in boxes}
    server.restart()
    c = server.client()
    assert {r.created.id: r.created.pid for r in c.list()} == {b.id: b.pid for b in boxes}
    assert {b.id: spawner.host_start(b.pid) for b in boxes} == started
    assert c.list()[0].created.enforced_seccomp == boxes[0].enforced_seccomp
    assert c.ask("STATS", boxes[0].id).type == "STATS_ARE"
    # its slot stays ours after its death, too
    assert len(server.slots_held()) == 3
    end = c.end(boxes[0].id)
    assert (end.known, end.killed) == (0, 1)
    os.kill(boxes[1].pid, 9)
    end = c.ended(boxes[1].id)
    assert (end.known, end.killed) == (0, 0)
    c.ask("RELEASE", boxes[1].id)
    server.kill()
    os.kill(boxes[2].pid, 9)
    until(lambda: not spawner.host_start(boxes[2].pid))
    server.start()
    c = server.client()
    end = c.ended(boxes[2].id)
    assert end.known == 0 and end.counters.cpu_us < 1 << 40
    c.ask("RELEASE", boxes[2].id)
    nothing_left(server)


def test_nothing_leaks_when_it_is_killed_at_any_moment(server):
    seed = random.randrange(1 << 30)
    rng = random.Random(seed)
    print("seed", seed)
    for i in range(12):
        c = server.client()
        for n in range(12):
            c.start(disk_bytes=16 * MB if n % 4 == 0 else 0)
        time.sleep(rng.random() * 0.12)
        server.restart()
    c = server.client()
    alive = c.list()
    assert {r.created.id for r in alive} == set(server.folders())
    assert all(spawner.host_start(r.created.pid) for r in alive)
    print(len(alive), "adopted")
    for r in alive:
        assert c.end(r.created.id).killed == 1
    nothing_left(server)


def test_a_stop_in_the_middle_of_a_sweep(server):
    """Whoever looks for what the last one left holds the slot it looks at: the stop waits for it, and leaves nothing."""
    c = server.client()
    box = c.create()
    name = f"77-{server.realm()}"
    trees = {d.parent for d in cgroup_dirs(box)}
    c.end(box.id)
    server.kill()
    busy = [d / name / "busy" for d in trees]
    try:
        for d in busy:
            d.mkdir(parents=True)
        server.start()
        until(lambda: (server.runtime / "slots" / "77").exists() and "77" in server.slots_held())
        server.process.terminate()
        time.sleep(0.2)
    finally:
        for d in busy:
            d.rmdir()
    assert server.process.wait(10) == 0
    assert server.cgroups() == []


@pytest.mark.parametrize("change", ["truncate", "flip", "pid", "empty", "remove"])
def test_a_meta_file_is_only_a_claim(server, change):
    c = server.client()
    victim = subprocess.Popen(["sleep", "60"])
    box = c.create()
    meta = server.runtime / "sandboxes" / box.id / "meta"
    server.kill()
    data = bytearray(meta.read_bytes())
    if change == "truncate":
        meta.write_bytes(data[:-1])
    elif change == "empty":
        meta.write_bytes(b"")
    elif change == "remove":
        meta.unlink()
    elif change == "flip":
        data[40] ^= 1
        meta.write_bytes(data)
    else:  # a whole and well-formed one that is about somebody else
        fields = spawner.layout()["structs"]["meta"]
        at = bytes(data).index(b"sbx_") + 40
        data[at:at + 4] = victim.pid.to_bytes(4, "little")
        ticks = int(spawner.host_start(victim.pid))
        data[fields["start_ticks"][0]:][:8] = b""
        spawner.put(data, "meta", start_ticks=ticks)
        h = 0xcbf29ce484222325
        for b in data[:fields["sum"][0]]:
            h = (h ^ b) * 0x100000001b3 & (1 << 64) - 1
        spawner.put(data, "meta", sum=h)
        meta.write_bytes(data)
    server.start()
    c = server.client()
    assert c.list() == [] and server.folders() == []
    assert victim.poll() is None
    victim.kill()
    victim.wait()
    os.kill(box.pid, 9)
    until(lambda: not spawner.host_start(box.pid))
    server.restart()
    server.client()
    nothing_left(server)


def test_only_one_serves_a_folder(server):
    server.client()
    p = subprocess.run([Path(cloche.binary()).parent / "cloche-spawner", "--runtime-dir", server.runtime, "--state-dir",
                        server.state], capture_output=True, text=True, timeout=30)
    assert p.returncode == 1 and "another spawner" in p.stderr


# ------------------------------------------------------------------------------------------ who may


def connect_as(path, uid, gid, kind):
    code = (f"import socket, sys; s = socket.socket(socket.AF_UNIX, socket.{kind}); s.connect({str(path)!r}); "
            "s.settimeout(3); s.send(b'x' * 16) if sys.argv[1:] else 0; sys.exit(not s.recv(9) if sys.argv[1:] else 0)")
    return subprocess.run(["/usr/bin/python3", "-c", code, *(["say"] if kind == "SOCK_SEQPACKET" else [])], user=uid, group=gid,
                          extra_groups=[], capture_output=True).returncode == 0


def test_sockets_are_the_services():
    with spawner.Spawner(uid=SERVICE, gid=SERVICE) as s:
        c = s.client()
        box = c.create()
        ctl = s.runtime / "sandboxes" / box.id / "ctl"
        assert connect_as(ctl, SERVICE, SERVICE, "SOCK_STREAM")
        assert connect_as(ctl, 61999, SERVICE, "SOCK_STREAM")
        assert not connect_as(ctl, 61999, 61999, "SOCK_STREAM")
        assert connect_as(s.path, SERVICE, SERVICE, "SOCK_SEQPACKET")
        assert not connect_as(s.path, 61999, SERVICE, "SOCK_SEQPACKET")
        os.chmod(s.path, 0o666)  # whoever may reach it is still not the service
        assert not connect_as(s.path, 61999, SERVICE, "SOCK_SEQPACKET")
        meta = ctl.with_name("meta")
        assert meta.stat().st_mode & 0o777 == 0o600 and meta.stat().st_uid == 0


def test_the_last_client_wins(server):
    first = server.client()
    box = spawner.new_id()
    first.start(box)
    second = server.client()
    with pytest.raises(ConnectionResetError):
        while True:
            first.receive()
    second.end(second.create().id)
    nothing_left(server)  # what the first had asked for was nobody's


def test_an_ordinary_user_is_told_why():
    if Path("/sys/fs/cgroup/cgroup.controllers").exists():
        pytest.skip("a cgroup v2 host")
    folder = cloche.tempfile.mkdtemp(prefix="clo-rootless.")
    os.chown(folder, 65534, 65534)
    program = Path(cloche.binary_for(65534)).parent / "cloche-spawner"
    try:
        p = subprocess.run([program, "--runtime-dir", folder + "/run", "--state-dir", folder + "/state"], user=65534, group=65534,
                           extra_groups=[], capture_output=True, text=True, timeout=20,
                           env={**cloche.environment(), "HOME": folder})
    finally:
        shutil.rmtree(folder)
    assert p.returncode == 1 and "limits cannot be enforced" in p.stderr and "cgroup v1" in p.stderr


# ------------------------------------------------------------------------------------------ disks


def test_a_disk_has_its_size(server):
    c = server.client()
    box = c.create(disk_bytes=32 * MB, memory_bytes=24 * MB)
    assert box.enforced_disk == "ext4 loop" and len(loops(server)) == 1
    workspace = f"/proc/{box.pid}/root/workspace"
    assert os.listdir(workspace) == [] and list(server.state.glob("disks/*")) == []
    v = os.statvfs(workspace)
    assert 24 * MB < v.f_blocks * v.f_frsize <= 32 * MB
    # more than the memory limit, less than the disk; executable; owned by the sandbox's user
    script = ("cd /workspace && dd if=/dev/zero of=big bs=1M count=28 && printf '#!/bin/sh\nexit 7' >x && chmod +x x && ./x; "
              "[ $? = 7 ] && ! dd if=/dev/zero of=more bs=1M count=8")
    assert inside(box, "sh", "-c", script).wait(30) == 0
    assert c.ask("STATS", box.id).counters.oom_kills == 0
    c.end(box.id)
    nothing_left(server)


def test_DK_07_two_disks_do_not_borrow(server):
    """Each is full at its own size, whatever room the other one has (control: that much goes into each)."""
    c = server.client()
    boxes = [c.create(disk_bytes=24 * MB) for _ in range(2)]
    fill = "dd if=/dev/zero of=/workspace/big bs=1M count={} 2>/dev/null"
    assert inside(boxes[0], "sh", "-c", fill.format(64)).wait(30) == 1
    full, free = (os.statvfs(f"/proc/{b.pid}/root/workspace") for b in boxes)
    assert full.f_bavail * full.f_frsize < MB and free.f_bavail * free.f_frsize > 16 * MB
    assert inside(boxes[1], "sh", "-c", fill.format(16)).wait(30) == 0
    inodes = "i=0; while [ $i -lt 100000 ]; do : >/workspace/f$i || exit 3; i=$((i + 1)); done"
    assert inside(boxes[0], "sh", "-c", "rm /workspace/big; " + inodes).wait(60) == 2  # sh's own status when it cannot open
    assert inside(boxes[1], "sh", "-c", ": >/workspace/one").wait(30) == 0
    for b in boxes:
        c.end(b.id)
    nothing_left(server)


@pytest.mark.parametrize("size", [1, 4096, 16 * MB - 4096, 16 * MB + 1, 1 << 47, (1 << 64) - 1])
def test_impossible_disks(server, size):
    assert server.client().try_create(disk_bytes=size).type == "REFUSED"


def test_a_disk_larger_than_the_room(server):
    v = os.statvfs(server.folder)
    a = server.client().try_create(disk_bytes=(v.f_bavail * v.f_frsize * 2) // 4096 * 4096)
    assert (a.type, a.errnum, a.stage) == ("REFUSED", errno.ENOSPC, "disk")
    nothing_left(server)


def test_a_volume_on_a_disk(server, tmp_path):
    folder = owned(tmp_path, "data")
    (folder / "file").write_text("here")
    fd = os.open(folder, os.O_RDONLY)
    c = server.client()
    box = c.create(disk_bytes=16 * MB, volumes=[{"box": "/workspace/in/data", "owner": SERVICE}], fds=[fd])
    assert Path(f"/proc/{box.pid}/root/workspace/in/data/file").read_text() == "here"


# ------------------------------------------------------------------------------------------ volumes


def owned(tmp_path, name, uid=SERVICE):
    folder = tmp_path / name
    folder.mkdir()
    os.chown(folder, uid, uid)
    return folder


def test_a_volume_by_descriptor(server, tmp_path):
    folder = owned(tmp_path, "data")
    c = server.client()
    a = c.try_create(volumes=[{"box": "/data", "owner": SERVICE, "writable": 1}], fds=[os.open(folder, os.O_RDONLY)])
    if a.type == "REFUSED" and "cannot map ids" in a.text:
        pytest.skip(a.text)
    assert a.type == "CREATED", a
    assert inside(a, "sh", "-c", "echo hi >/data/new").wait(10) == 0
    assert (folder / "new").read_text() == "hi\n" and (folder / "new").stat().st_uid == SERVICE


def refused_volume(c, fd, **row):
    a = c.try_create(volumes=[{"box": "/data", "owner": SERVICE, **row}], fds=[fd] if fd is not None else [])
    assert a.type == "REFUSED", a
    return a


def test_descriptors_that_are_refused(server, tmp_path):
    c = server.client()
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(str(tmp_path / "sock"))
        os.chown(tmp_path / "sock", SERVICE, SERVICE)
        assert "open for reading" in refused_volume(c, os.open(tmp_path / "sock", os.O_PATH)).text
    for path in ("/", "/etc", "/root", "/run", "/proc", "/dev/null"):
        for owner in (SERVICE, 0):
            assert refused_volume(c, os.open(path, os.O_RDONLY), owner=owner).errnum == errno.EPERM
    assert refused_volume(c, os.open(owned(tmp_path, "b", 61999), os.O_RDONLY)).errnum == errno.EPERM
    below_run = Path("/run") / f"clo-{os.getpid()}"
    below_run.mkdir()
    os.chown(below_run, SERVICE, SERVICE)
    try:
        assert "/run" in refused_volume(c, os.open(below_run, os.O_RDONLY)).text
    finally:
        below_run.rmdir()
    engine = owned(tmp_path, "engine")
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(str(engine / "docker.sock"))
        assert "engine" in refused_volume(c, os.open(engine, os.O_RDONLY)).text
    gone = owned(tmp_path, "gone")
    fd = os.open(gone, os.O_RDONLY)
    gone.rmdir()
    assert refused_volume(c, fd)
    r, w = os.pipe()
    os.fchown(r, SERVICE, SERVICE)
    assert refused_volume(c, r)
    assert "descriptors" in refused_volume(c, None).text
    assert c.list() == []
    nothing_left(server)


def test_paths_only_below_the_operators_roots(tmp_path):
    root = owned(tmp_path, "root")
    inner = root / "inner"
    inner.mkdir()
    os.chown(inner, SERVICE, SERVICE)
    (root / "out").symlink_to("/etc")
    (root / "loop").symlink_to(inner)
    outside = owned(tmp_path, "rootless")  # its name begins with the root's
    cloche.open_the_way(tmp_path)
    with spawner.Spawner(config=f"policy:\n  volume_roots: [{root}]\n") as s:
        c = s.client()
        row = {"box": "/data"}
        assert c.create(volumes=[{**row, "host": str(inner)}]).id
        for host in ("/etc", str(outside), f"{root}/../rootless", f"{root}/out", f"{root}/loop", f"{root}/inner/../../rootless",
                     "relative", f"{root}/nothing", "/proc/self/root/etc", f"/{root}"):
            a = c.try_create(volumes=[{**row, "host": host}])
            assert a.type == "REFUSED", host
        a = c.try_create(venv="/usr")
        assert a.type == "REFUSED"
    with spawner.Spawner() as s:
        assert s.client().try_create(volumes=[{**row, "host": str(inner)}]).errnum == errno.EPERM


# ------------------------------------------------------------------------------------------ policy


POLICY = "policy:\n  memory: 64m\n  pids_limit: 16\n  cpus: 1\n  memory_swap: 64m\n"


def test_above_policy_is_refused_never_clamped():
    with spawner.Spawner(config=POLICY) as s:
        c = s.client()
        within = dict(memory_bytes=64 * MB, pids_limit=16, cpus_millis=1000)
        assert c.create(**within)
        for more in ({"memory_bytes": 64 * MB + 1}, {"pids_limit": 17}, {"cpus_millis": 1001}, {"memory_swap_bytes": 65 * MB}):
            a = c.try_create(**{**within, **more})
            assert (a.type, a.code_name, a.errnum) == ("REFUSED", "NONE", errno.EPERM), (more, a)
        # the file is read again when it has changed; a broken one refuses everything
        s.config.write_text(POLICY.replace("16", "8"))
        assert c.try_create(**within).errnum == errno.EPERM
        s.config.write_text("policy: [nonsense\n")
        a = c.try_create(**{**within, "pids_limit": 8})
        assert a.type == "REFUSED" and a.code_name == "SANDBOX_CREATE_FAILED"
        s.config.unlink()
        assert c.create()


BAD = {
    "image": (["", "debian", "host\n", "h" * 256], None), "runtime": (["", "docker", "x" * 32], None),
    "profile": (["", "none", "../x"], None), "hostname": (["", "-x", "a b", "a\x01"], None),
    "uid": ([0, 0xffffffff], None), "gid": ([0, 0xffffffff], None),
    "memory_bytes": ([0, 1, 1 << 47, (1 << 64) - 1], None), "memory_swap_bytes": ([1, 127 * MB, 1 << 60], None),
    "cpus_millis": ([0, 9, 1 << 40, (1 << 64) - 1], None), "pids_limit": ([0, 1 << 23, (1 << 64) - 1], None),
    "tmpfs_count": ([1, 17, 0xffffffff], None), "volume_count": ([1, 33, 0xffffffff], None),
    "zero": ([b"\1", b"\0\0\0\0\1"], None), "prepared": ([1, 2, 255], None), "pull": ([2, 255], None), "venv": (["/usr", "x", "/etc/passwd"], None),
    "id": (["", "sbx_", "sbx_" + "g" * 32, "sbx_" + "A" * 32, "../../etc/passwd", "sbx_" + "a" * 33, b"sbx_" + b"a" * 32 + b"\0x",
            "x" * 40], None),
}


def test_every_wrong_field_is_refused(server):
    """What a compromised service could send: nothing of it makes anything."""
    c = server.client()
    for field, (values, _) in BAD.items():
        for value in values:
            m = spawner.create_message(**({field: value} if field != "id" else {}))
            if field == "id":
                m[8:48] = bytes(40)
                spawner.put(m, "spawner_create", id=value)
            a = c.answer(c.send("CREATE", m))
            assert a.type == "REFUSED" and a.text, (field, value, a)
    for row in ({"path": "/etc/x"}, {"path": "/proc"}, {"path": "tmp"}, {"path": "/a/../b"}, {"path": "/a:size=1"}, {"path": ""},
                {"size_bytes": 0}, {"size_bytes": 1 << 63}, {"inodes": 0}, {"inodes": 1 << 40}, {"exec": 2}, {"zero": 1},
                {"path": "/dev/shm", "exec": 1}):
        a = c.try_create(tmpfs=[{"path": "/scratch", "size_bytes": MB, "inodes": 100, **row}])
        assert a.type == "REFUSED", row
    for row in ({"box": "/etc"}, {"box": "/"}, {"box": "x"}, {"box": "/a:b"}, {"writable": 2}, {"host": "/tmp", "owner": 1},
                {"host": "/tmp"}, {"box": ""}):
        a = c.try_create(volumes=[{"box": "/data", **row}], fds=[] if "host" in row else [os.open("/tmp", os.O_RDONLY)])
        assert a.type == "REFUSED", row
    assert c.list() == []
    nothing_left(server)
    assert c.create()  # and it still works


def test_discarded_is_gone_and_told_once(server):
    """A sandbox whose end is written down already: one ENDED, nothing kept for the next client, nothing to RELEASE."""
    c = server.client()
    box = c.create()
    assert c.ask("DISCARD", box.id).type == "DONE"
    assert c.ended(box.id).killed == 1
    assert server.folders() == [] and c.list() == []
    c = server.client()
    assert c.list() == [] and not [m for m in c.waiting if m.type == "ENDED"]
    # one that has ended by itself meanwhile is forgotten as well
    other = c.create()
    os.kill(other.pid, 9)
    c.ended(other.id)
    assert c.ask("DISCARD", other.id).type == "DONE"
    assert server.folders() == []
    assert c.ask("DISCARD", spawner.new_id()).errnum == errno.ESRCH
    nothing_left(server)


def test_wrong_messages(server):
    layout = spawner.layout()
    c = server.client(hello=False)
    assert "HELLO" in c.ask("LIST").text
    assert c.ask("HELLO", version=layout["version"] + 1).type == "REFUSED"
    assert c.ask("HELLO", version=layout["version"], zero=1).type == "REFUSED"
    assert c.ask("HELLO", version=layout["version"]).type == "DONE"
    for data in (b"x", b"\0" * 8, b"\xff" * 8, b"\2\0\0\0\5\0\0\0", b"\x21\0\0\0\5\0\0\0", b"\3\0\0\0\5\0\0\0" + b"a" * 40, b"A" * 200000):
        c.socket.send(data[:131072])
        assert c.receive().type == "REFUSED", data[:16]
    c.socket.send(b"\7\0\0\0\0\0\0\0")  # sequence 0
    assert c.receive().type == "REFUSED"
    fd = os.open("/", os.O_PATH)
    before = len(os.listdir(f"/proc/{server.process.pid}/fd"))
    for count in (1, 200):
        socket.send_fds(c.socket, [b"\7\0\0\0\5\0\0\0"], [fd] * count)
        assert c.receive().type == "REFUSED"
    until(lambda: len(os.listdir(f"/proc/{server.process.pid}/fd")) == before)  # closed behind the answer
    for kind in ("KILL", "DISCARD", "PAUSE", "RESUME", "STATS"):
        assert c.ask(kind, spawner.new_id()).errnum == errno.ESRCH
    assert c.ask("RELEASE", spawner.new_id()).type == "DONE"
