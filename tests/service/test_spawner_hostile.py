# SPDX-License-Identifier: Apache-2.0
"""A cloched that somebody has taken over: a client with the service's uid that says to the spawner whatever it likes.

It gets no root, no path of the host, no limit above the policy, nothing of another user, it kills nothing but sandboxes, and
it makes the spawner neither hang nor grow. What each single wrong field gets is in test_spawner.py; what cloched itself could
still do to the kernel, in test_self.py.
"""
import contextlib
import errno
import os
import random
import re
import signal
import socket
import struct
import subprocess
import time
from pathlib import Path

import cloche
import pytest
import spawner
from test_spawner import MB, POLICY, SERVICE, cgroup_dirs, nothing_left, owned, until

pytestmark = [pytest.mark.skipif(os.geteuid() != 0, reason="needs root")]
GROWTH_KB = 8 << 10


@pytest.fixture
def server():
    with spawner.Spawner(uid=SERVICE, gid=SERVICE, config=POLICY) as s:
        s.client().close()
        yield s


class Impostor(spawner.Client):
    """A connection of the service's own user."""

    def __init__(self, path, hello=True):
        self.sequence, self.waiting = 0, []
        os.setegid(SERVICE)
        os.seteuid(SERVICE)  # the kernel notes who connects at connect()
        try:
            self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self.socket.connect(path)
        finally:
            os.seteuid(0)
            os.setegid(0)
        if hello:
            self.ask("HELLO", version=spawner.layout()["version"])


WITHIN = dict(memory_bytes=64 * MB, pids_limit=16, cpus_millis=1000)


def rss_kb(pid):
    return int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[1])


def descriptors(s):
    return len(os.listdir(f"/proc/{s.process.pid}/fd"))


# ------------------------------------------------------------------------------------------------- no root, no path


def test_a_folder_of_another_user_by_its_mere_path(server, tmp_path):
    """Anybody who can walk there can open O_PATH; so that is worth nothing, whoever it is said to belong to."""
    cloche.open_the_way(tmp_path)
    alice = owned(tmp_path, "alice", 61999)
    alice.chmod(0o700)
    (alice / "secret").write_text("hers")
    c = Impostor(server.path)
    fd = os.open(alice, os.O_PATH)
    for owner in (61999, SERVICE, 0, 0xffffffff):
        for writable in (0, 1):
            a = c.try_create(**WITHIN, volumes=[{"box": "/data", "owner": owner, "writable": writable}], fds=[fd])
            assert (a.type, a.errnum) == ("REFUSED", errno.EPERM), a
    # the control: who may read it has it, and it goes in
    a = c.try_create(**WITHIN, volumes=[{"box": "/data", "owner": 61999}], fds=[os.open(alice, os.O_RDONLY)])
    assert a.type == "CREATED" or "cannot map ids" in a.text, a
    os.close(fd)


def test_nothing_of_roots_however_it_is_opened(server):
    c = Impostor(server.path)
    for path in ("/", "/etc", "/root", "/proc/self", "/sys", "/var/run", "/dev", "/etc/shadow"):
        for flags in (os.O_PATH, os.O_RDONLY):
            fd = os.open(path, flags)
            for owner in (0, SERVICE):
                a = c.try_create(**WITHIN, volumes=[{"box": "/data", "owner": owner}], fds=[fd])
                assert (a.type, a.errnum) == ("REFUSED", errno.EPERM), (path, a)
            os.close(fd)
    for host in ("/", "/etc", "/root", "/proc/self/root", f"/proc/{os.getpid()}/cwd", "/dev/mem", str(server.folder)):
        a = c.try_create(**WITHIN, volumes=[{"box": "/data", "host": host}])
        assert (a.type, a.errnum) == ("REFUSED", errno.EPERM), (host, a)
    nothing_left(server)


def test_no_id_of_the_hosts_inside(server):
    """What it makes runs as nobody of this machine, whatever uid it asks for inside."""
    c = Impostor(server.path)
    for uid in (1, 1000, SERVICE, 65534, 0x7fffffff):
        a = c.try_create(**WITHIN, uid=uid, gid=uid)
        if a.type == "REFUSED":
            continue
        ids = set(re.search(r"Uid:\t(.*)", Path(f"/proc/{a.pid}/status").read_text())[1].split())
        assert all(int(i) >= 0x70000000 for i in ids), ids
        maps = [line.split() for line in Path(f"/proc/{a.pid}/uid_map").read_text().splitlines()]
        assert maps and all(int(outside) >= 0x70000000 and int(count) == 1 for _, outside, count in maps), maps


# --------------------------------------------------------------------------------------------------- no more limits


def kernel_limits(box):
    """(memory, pids) as the kernel has them."""
    found = {}
    for d in cgroup_dirs(box):
        for name, key in (("memory.limit_in_bytes", "memory"), ("memory.max", "memory"), ("pids.max", "pids")):
            if (d / name).exists():
                found[key] = int((d / name).read_text())
    return found["memory"], found["pids"]


def test_random_requests_stay_within_the_policy(server):
    """Valid messages with a few bytes changed: refused, or made within the maxima that the kernel then shows."""
    seed = random.randrange(1 << 30)
    rng = random.Random(seed)
    print("seed", seed)
    c, before = Impostor(server.path), descriptors(server)
    numbers = [v for k, v in spawner.layout()["structs"]["spawner_create"].items()
               if k and v[1] in (4, 8) and v[2] == 1 and "zero" not in k]
    made = refused = 0
    for _ in range(150):
        m = spawner.create_message(**WITHIN)
        for _ in range(rng.choice((0, 1, 1, 2))):
            if rng.random() < 0.7:
                offset, size, _ = rng.choice(numbers)
                struct.pack_into("<" + spawner.SIZES[size], m, offset, rng.choice((0, 1, rng.getrandbits(size * 8), 1 << rng.randrange(size * 8))))
            else:
                m[rng.randrange(8, len(m))] = rng.randrange(256)
        a = c.answer(c.send("CREATE", m))
        if a.type == "REFUSED":
            refused += 1
            continue
        made += 1
        memory, pids = kernel_limits(a)
        assert memory <= 64 * MB and pids <= 16 + 2, (memory, pids)  # init and its worker are not counted to the command
        c.end(a.id)
    print(made, "made", refused, "refused")
    assert made and refused
    until(lambda: descriptors(server) == before)
    nothing_left(server)


# ------------------------------------------------------------------------------------------- nothing but sandboxes


def test_no_request_names_a_process_a_signal_or_a_path_to_remove():
    """The table itself: a process is never named by the client; it can only say the id of a sandbox."""
    structs = spawner.layout()["structs"]
    for name in ("spawner_hello", "spawner_create", "spawner_by_id"):
        assert not {f for f in structs[name] if re.search(r"pid\b|signal|fd\b", f)} - {"pids_limit"}, structs[name]


def test_only_ids_of_its_own_sandboxes_are_killed(server):
    victim = subprocess.Popen(["sleep", "60"], user=SERVICE, group=SERVICE, extra_groups=[])
    try:
        with spawner.Spawner() as other:
            theirs = other.client().create()
            c = Impostor(server.path)
            for kind in ("KILL", "PAUSE", "RESUME", "STATS"):
                for box in (theirs.id, str(victim.pid), f"sbx_{victim.pid}", "../../x", "sbx_" + "0" * 32, "sbx_" + "g" * 32, "*", "/",
                            f"{theirs.id[:-1]}/", theirs.id.upper()):
                    a = c.ask(kind, box)
                    assert a.type == "REFUSED" and a.errnum in (errno.ESRCH, errno.EBADMSG), (kind, box, a)
            assert victim.poll() is None and spawner.host_start(theirs.pid)
            assert other.client().ask("STATS", theirs.id).paused == 0
    finally:
        victim.kill()
        victim.wait()


# ----------------------------------------------------------------------------------------------- no hang, no growth


def served(s):
    """How long a whole life takes for the next client."""
    began = time.monotonic()
    c = Impostor(s.path)
    c.end(c.create(**WITHIN).id)
    return time.monotonic() - began


def test_a_client_that_never_reads(server):
    c = Impostor(server.path)
    boxes = [c.create(**WITHIN) for _ in range(4)]
    before = rss_kb(server.process.pid)
    c.socket.setblocking(False)
    sent = 0
    message = bytearray(spawner.size_of("spawner_done"))
    struct.pack_into("<II", message, 0, spawner.layout()["types"]["LIST"], 7)
    end = time.monotonic() + 3
    while time.monotonic() < end:
        try:
            c.socket.send(message)
            sent += 1
        except BlockingIOError:
            if sent and time.monotonic() > end - 2:
                break
            time.sleep(0.01)
    assert sent > 20
    assert rss_kb(server.process.pid) - before < GROWTH_KB
    assert Path(f"/proc/{server.process.pid}/status").read_text().split("State:\t")[1][0] == "S", "it is busy with nothing"
    assert served(server) < 5
    last = Impostor(server.path)
    assert {r.created.id for r in last.list()} == {b.id for b in boxes}


def test_a_flood_of_requests_and_of_descriptors(server):
    c = Impostor(server.path)
    before, fds = rss_kb(server.process.pid), descriptors(server)
    null = os.open("/dev/null", os.O_RDONLY)
    for i in range(3000):
        m = bytearray(random.randbytes(random.choice((0, 1, 8, 48, 64, spawner.size_of("spawner_create")))) or b"\0")
        try:
            if i % 10 == 0:
                socket.send_fds(c.socket, [m], [null] * random.choice((1, 33, 250)))
            else:
                c.socket.send(m)
        except (BrokenPipeError, ConnectionResetError):
            c = Impostor(server.path)
        while spawner.select.select([c.socket], [], [], 0)[0] and c.socket.recv(1 << 16):
            pass
    os.close(null)
    assert rss_kb(server.process.pid) - before < GROWTH_KB
    assert served(server) < 5
    until(lambda: descriptors(server) <= fds + 1)


@pytest.mark.parametrize("reads", [False, True], ids=["never reads", "reads"])
def test_one_that_goes_on_asking_while_the_spawner_stops(server, reads):
    """What it has still to say is heard; it is not waited for until it has nothing more to say."""
    c = Impostor(server.path)
    box = c.create(**WITHIN).id
    assert c.ask("KILL", box).type == "DONE" and c.ended(box)
    folder = server.runtime / "sandboxes"
    one = (folder / box / "ended").read_bytes()
    others = [spawner.new_id() for _ in range(200)]  # so that it takes longer to answer than to ask
    for other in others:
        (folder / other).mkdir()
        (folder / other / "ended").write_bytes(one.replace(box.encode(), other.encode()))
    server.restart()
    server.client().close()
    c = Impostor(server.path)
    message = bytearray(spawner.size_of("spawner_hello"))
    struct.pack_into("<II", message, 0, spawner.layout()["types"]["HELLO"], 7)
    spawner.put(message, "spawner_hello", version=spawner.layout()["version"])

    def flood():
        while True:  # whatever room there is is taken at once
            with contextlib.suppress(BlockingIOError):
                c.socket.send(message, socket.MSG_DONTWAIT)

    def take():
        while c.socket.recv(1 << 16):
            pass

    children = []
    for what in [flood] * 3 + [take] * reads:
        pid = os.fork()
        if not pid:
            try:
                what()
            finally:
                os._exit(0)
        children.append(pid)
    c.close()
    try:
        time.sleep(0.3)
        before = most = rss_kb(server.process.pid)
        end = time.monotonic() + 6
        server.process.send_signal(signal.SIGTERM)
        while server.process.poll() is None and time.monotonic() < end:
            with contextlib.suppress(TypeError):  # its memory is gone just before it is
                most = max(most, rss_kb(server.process.pid))
        assert server.process.poll() == 0 and most - before < GROWTH_KB
    finally:
        for pid in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        server.restart()
        c = server.client()
        for other in [box, *others]:
            c.ask("RELEASE", other)
        c.close()


def test_connections_that_say_nothing(server):
    fds, before = descriptors(server), rss_kb(server.process.pid)
    silent = [Impostor(server.path, hello=False) for _ in range(300)]
    for c in silent[::3]:
        try:
            c.socket.send(b"\1")
        except OSError:
            pass
    assert served(server) < 5
    assert descriptors(server) <= fds + 2 and rss_kb(server.process.pid) - before < GROWTH_KB
    for c in silent:
        c.close()


def test_one_that_hangs_up_in_the_middle_of_everything(server):
    """Two hundred sandboxes asked for, and gone: the next one finds those that were made, can end them, and nothing is left."""
    for _ in range(5):
        c = Impostor(server.path)
        for _ in range(40):
            c.start(**WITHIN)
        c.close()
    c = Impostor(server.path)
    until(lambda: not Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children").read_text() or
          len(c.list()) == len(server.folders()), 40)
    for row in c.list():
        c.end(row.created.id)
    nothing_left(server)


# ------------------------------------------------------------------------------------------------------- the network

OPERATOR = """policy:
  network: allow
  network_deny: ["denied.test"]
  network_private: ["127.0.0.0/8"]
credentials:
  mine:
    host: api.test
    header: Authorization
    value: "Bearer {}"
    command: ["/bin/echo", "of-the-operator-only"]
    owners: ["uid:1000"]
"""


@pytest.fixture(scope="module")
def networked():
    with spawner.Spawner(uid=SERVICE, gid=SERVICE, config=OPERATOR) as s:
        s.client().close()
        yield s


@pytest.mark.parametrize("network,errnums", [
    (dict(mode="open"), [errno.EPERM, 0]),
    (dict(mode=3), [errno.EBADMSG]), (dict(mode=0xffffffff), [errno.EBADMSG]),
    (dict(mode="none", rules="allow a.test\n"), [errno.EBADMSG]), (dict(mode="none"), [errno.EBADMSG]),
    (dict(mode="allow", size=0xffffffff), [errno.EBADMSG]), (dict(mode="allow", rules="allow a.test\n", size=5), [errno.EBADMSG]),
    (dict(mode="allow", rules="allow a.test"), [errno.EBADMSG]), (dict(mode="allow", rules="allow a\0b\n"), [errno.EBADMSG]),
    (dict(mode="allow", rules="include /etc/shadow\n"), [errno.EBADMSG]), (dict(mode="allow", rules="allow\n"), [errno.EBADMSG]),
    (dict(mode="allow", rules="\n\n"), [errno.EBADMSG]), (dict(mode="allow", rules="allow *\n"), [0, errno.EINVAL]),
    (dict(mode="allow", rules="allow 10.0.0.1:80\n"), [errno.EPERM, 0]),
    (dict(mode="allow", rules="allow a.test within=10.0.0.0/8\n"), [errno.EPERM, 0]),
    (dict(mode="allow", rules="allow 169.254.169.254:80\n"), [errno.EPERM, 0]),
    (dict(mode="allow", rules="preset ../../etc/passwd\n"), [0, errno.EINVAL]),
    (dict(mode="allow", rules="preset no-such\n"), [errno.ENOENT]),
    (dict(mode="allow", rules="allow api.test\ncredential no-such\n"), [errno.ENOENT]),
    (dict(mode="allow", rules="allow api.test\ncredential mine\n"), [errno.EPERM]),
    (dict(mode="allow", rules="allow api.test\ncredential mine\n", owner="uid:1001"), [errno.EPERM]),
    (dict(mode="allow", owner=b"x" * 72), [errno.EBADMSG]), (dict(mode="allow", owner="a\nb"), [errno.EBADMSG])])
def test_no_mode_rule_or_credential_beyond_the_policy(networked, network, errnums):
    """Neither when it is made nor afterwards; and what is refused leaves nothing."""
    c = Impostor(networked.path)
    a = c.try_create(**WITHIN, network=network)
    assert a.type == "REFUSED" and a.errnum in errnums, a
    assert "of-the-operator-only" not in a.text
    box = c.create(**WITHIN, network=dict(mode="allow", rules="allow a.test\n")).id
    a = c.change(box, **network)
    if network != dict(mode="none"):
        assert a.type == "REFUSED" and a.errnum in (*errnums, errno.EINVAL), a
        assert "of-the-operator-only" not in a.text
    c.end(box)
    c.close()


def test_changes_of_what_is_not_there(networked):
    c = Impostor(networked.path)
    assert c.change("sbx_" + 32 * "0", mode="allow").errnum == errno.ESRCH
    assert c.change("../../etc", mode="allow").errnum == errno.EBADMSG
    plain = c.create(**WITHIN).id
    assert c.change(plain, mode="allow").errnum == errno.EINVAL
    c.end(plain)
    c.close()


def test_a_hundred_changes_make_nobody_wait(networked):
    """More at a time than are carried out: refused, and the rest goes on."""
    c = Impostor(networked.path)
    box = c.create(**WITHIN, network=dict(mode="allow")).id
    m = bytearray(spawner.size_of("spawner_change"))
    spawner.put(m, "spawner_change", id=box)
    spawner.put_network(m, "spawner_change", mode="allow", rules="allow a.test\n")
    sequences = [c.send("NETWORK", m) for _ in range(100)]
    answers = [c.answer(s, 60) for s in sequences]
    assert {a.type for a in answers} <= {"DONE", "REFUSED"} and "DONE" in {a.type for a in answers}
    assert all(a.errnum == errno.EAGAIN for a in answers if a.type == "REFUSED")
    c.end(box)
    c.close()
