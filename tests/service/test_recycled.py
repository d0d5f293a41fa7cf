# SPDX-License-Identifier: Apache-2.0
"""What a dead prepared sandbox leaves to the next one of its nest (network namespace, v1 cgroups): nothing that can be seen.

And siblings: a thousand runs of one caller, each a child of the same zygote, share no number and no name.
"""
import contextlib
import fcntl
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import contract
import pytest
import service as services
from test_pool import PYTHON, metric, run, settled, zygotes

# Everything of a network namespace that can be read inside, but for what is the machine's and not the namespace's.
LOOK = """
import hashlib, json, os, re, socket
def look():
    files = {}
    for name in sorted(os.listdir("/proc/self/net")):
        try:
            text = open("/proc/self/net/" + name).read()
        except OSError as e:
            text = str(e.errno)
        if name in ("softnet_stat", "protocols", "netlink", "ptype"):
            continue
        if name.startswith("sockstat"):
            text = re.sub(r" (alloc|mem|orphan) \\d+", "", text)
        files[name] = text
    return files
seen = look()
print(json.dumps([socket.socket().getsockopt(socket.SOL_SOCKET, 71, 8).hex(), seen]))  # SO_NETNS_COOKIE: unlike the inode never used again
"""

DIRT = {
    "udp": "import socket\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.sendto(b'x', ('127.0.0.1', 9))\n",
    "udp6": "import socket\ns = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)\ns.sendto(b'x', ('::1', 9))\n",
    "no route": "import socket\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
                "try: s.connect(('192.0.2.1', 9))\nexcept OSError: pass\n",
    "tcp, TIME_WAIT": "import socket\nl = socket.create_server(('127.0.0.1', 0))\nc = socket.create_connection(l.getsockname())\n"
                      "s, _ = l.accept()\nc.close(); s.close()\n",
    "tcp, refused": "import socket\ns = socket.socket()\ntry: s.connect(('127.0.0.1', 1))\nexcept OSError: pass\n",
    "tcp, data that nobody has read": "import socket\nl = socket.create_server(('127.0.0.1', 0))\n"
                                      "c = socket.create_connection(l.getsockname())\nc.sendall(b'x' * 100000)\n",
    # Who ends in a group leaves it, and the kernel says so afterwards.
    "multicast": "import socket\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
                 "s.setsockopt(socket.IPPROTO_IP, 35, socket.inet_aton('224.1.2.3') + bytes(4) + b'\\1\\0\\0\\0')\n",
    "multicast6": "import socket\ns = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)\n"
                  "s.setsockopt(socket.IPPROTO_IPV6, 20, socket.inet_pton(socket.AF_INET6, 'ff05::1234') + b'\\1\\0\\0\\0')\n",
    "flow label": "import socket, struct\ns = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)\n"
                  "s.setsockopt(socket.IPPROTO_IPV6, 32, struct.pack('=16sIBBHHH4x', b'\\0' * 15 + b'\\1', socket.htonl(0x12345), 0, 1, 1, 60, 60))\n",
}


@pytest.fixture(scope="module")
def pool():
    with services.Service({"pool": 2, "pool_floor": 2}) as one:
        yield one


@pytest.fixture(scope="module")
def fresh():
    with services.Service({"pool": 0}) as one:
        yield one


def look(client, before=""):
    result = run(client, language="python", code=before + LOOK)
    assert result["ok"], result
    return json.loads(result["stdout"])


def prepared_run(service, **body):
    """By one that was prepared."""
    settled(service)
    before = metric(service.root, "cloche_pool_zygote_hits_total")
    result = run(service.root, **body)
    assert metric(service.root, "cloche_pool_zygote_hits_total") == before + 1
    return result


def until_used_again(service, seconds=60):
    """Cookie and look of one namespace after the other until one comes back: the oldest is lent first, so all had their turn that
    are kept and were used before."""
    seen, until = {}, time.monotonic() + seconds
    while time.monotonic() < until:
        cookie, files = json.loads(prepared_run(service, language="python", code=LOOK)["stdout"])
        if cookie in seen:
            return seen
        seen[cookie] = files
    raise AssertionError(f"none of {len(seen)} network namespaces is used again")


def test_a_network_namespace_is_used_again(pool, fresh):
    """Else there is nothing to be tested here; and it is like one that was just made for a sandbox without a pool."""
    new = look(fresh.root)[1]
    run(pool.root, **PYTHON)
    for files in until_used_again(pool).values():
        assert files == new


def test_orphans_of_the_machine_are_nobodys():
    """How many there are when a nest's first namespace is looked at is of no consequence."""
    def orphans():
        return int(re.search(r" orphan (\d+)", Path("/proc/net/sockstat").read_text())[1])
    before = orphans()
    with socket.create_server(("127.0.0.1", 0)) as server:
        held = []
        for _ in range(3):
            s = socket.create_connection(server.getsockname())
            held.append(server.accept()[0])
            s.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                while True:
                    s.send(b"x" * 65536)
            s.close()  # what it has sent is not taken
        assert orphans() > before
        with services.Service({"pool": 2, "pool_floor": 2}) as one:
            run(one.root, **PYTHON)
            prepared_run(one, **PYTHON)
            for s in held:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, bytes([1, 0, 0, 0, 0, 0, 0, 0]))
                s.close()
            contract.until(lambda: orphans() <= before, 10)
            until_used_again(one, 15)


@pytest.mark.parametrize("kind", DIRT)
def test_a_network_namespace_that_was_used_is_not(pool, fresh, kind):
    new = look(fresh.root)[1]
    name, files = look(fresh.root, DIRT[kind])
    assert files != new, "the control: inside it can be seen"
    run(pool.root, **PYTHON)
    result = prepared_run(pool, language="python", code=DIRT[kind] + LOOK)
    assert result["ok"] and json.loads(result["stdout"])[1] != new, result
    dirty = {json.loads(result["stdout"])[0]}
    between = []
    for _ in range(16 if kind.startswith("multicast") else 1):  # and gone before anything of it can be seen
        result = prepared_run(pool, language="python",
                              code=DIRT[kind] + "import os\nprint(socket.socket().getsockopt(socket.SOL_SOCKET, 71, 8).hex(), flush=True)\nos._exit(0)")
        dirty.add(result["stdout"].strip())
        between.append(json.loads(prepared_run(pool, language="python", code=LOOK)["stdout"])[1])
    seen = until_used_again(pool)
    assert all(files == new for files in [*between, *seen.values()])
    assert not dirty & set(seen)


# ---- cgroups

TREE = Path("/sys/fs/cgroup/memory/cloche")
HEAVY = {
    "memory": ("x = bytearray(150 << 20)", {}),
    "out of memory": ("x = bytearray(600 << 20)", {"reason": "oom"}),
    "processes": ("import os, time\nfor i in range(12):\n    if os.fork() == 0:\n        time.sleep(20)\ntime.sleep(0.1)", {}),
    "process limit": ("import os, time\ntry:\n    while True:\n        if os.fork() == 0:\n            time.sleep(20)\n"
                      "except OSError:\n    pass", {"limits_hit": ["pids"]}),
    "cpu": ("import time\nt = time.process_time()\nwhile time.process_time() - t < 0.25: pass", {}),
    "files": ("for i in range(2000):\n    open(f'/workspace/{i}', 'w').write('x' * 30000)", {}),
}


def folders(service):
    """Inodes of the memory cgroups in which this service has a process."""
    mine, found = {str(p) for p in service.processes()}, {}
    for folder in TREE.iterdir():
        try:
            if folder.is_dir() and mine & set((folder / "cgroup.procs").read_text().split()):
                found[folder.name] = folder.stat().st_ino
        except OSError:
            pass
    return set(found.items())


def abandoned(service, realm):
    """Directories of its dead sandboxes that it does not keep for the next ones: nobody is in them, nobody holds their slot."""
    found = []
    for folder in TREE.iterdir():
        number, _, of = folder.name.partition("-")
        with contextlib.suppress(OSError):
            if of != realm or (folder / "cgroup.procs").read_text():
                continue
            with open(service.folder / "run" / "slots" / number) as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                found.append(folder.name)
    return found


@pytest.mark.skipif(not TREE.is_dir() and not Path("/sys/fs/cgroup/memory").is_dir(), reason="on v2 no cgroup is used again")
def test_a_cgroup_that_was_given_to_a_job_that_failed_is_removed():
    with services.Service({"pool": 2, "pool_floor": 2}) as one:
        run(one.root, **PYTHON)
        for _ in range(4):
            prepared_run(one, **PYTHON)
        settled(one)
        realm, = {name.partition("-")[2] for name, _ in folders(one)}
        assert not abandoned(one, realm)
        # Of the same nest, which so lives on when its zygote does not.
        with one.root.stream("POST", "/v1/runs", query={"stream": True},
                             json={"language": "python", "code": "import time; print('up', flush=True); time.sleep(6)"}) as s:
            s.until(lambda e: e.get("data") == "up\n")
            at_a_time = [threading.Thread(target=run, args=(one.root, ), kwargs=PYTHON) for _ in range(4)]
            for t in at_a_time:
                t.start()
            for t in at_a_time:
                t.join()
            settled(one, used=1)  # more places than are taken by what is prepared then
            for pid in zygotes(one):
                os.kill(pid, signal.SIGKILL)
            before = metric(one.root, "cloche_pool_failed_total")
            run(one.root, **PYTHON)
            contract.until(lambda: metric(one.root, "cloche_pool_failed_total") > before, 5)
            time.sleep(0.1)
            contract.until(lambda: not abandoned(one, realm), 1.2)  # it is looked for after half a second
            s.until(lambda e: e["type"] == "exited")


def usage(result):
    return {k: result[k] for k in ("reason", "limits_hit", "oom_kills")}, result["usage"]


@pytest.mark.skipif(not TREE.is_dir() and not Path("/sys/fs/cgroup/memory").is_dir(), reason="on v2 no cgroup is used again")
def test_a_cgroup_is_used_again(pool):
    run(pool.root, **PYTHON)
    settled(pool)
    before, sandboxes = folders(pool), set(os.listdir(pool.folder / "run" / "sandboxes"))
    for _ in range(6):
        prepared_run(pool, **PYTHON)
    settled(pool)
    assert not sandboxes & set(os.listdir(pool.folder / "run" / "sandboxes"))
    nests = 1  # its own stays anyway
    assert len(before & folders(pool)) > nests


@pytest.mark.parametrize("kind", HEAVY)
def test_a_cgroup_shows_nothing_of_who_was_in_it(pool, fresh, kind):
    code, expected = HEAVY[kind]
    normal, base = usage(run(fresh.root, **PYTHON))
    run(pool.root, **PYTHON)
    result = prepared_run(pool, language="python", code=code)
    assert {k: result[k] for k in expected} == expected, result
    if kind == "memory":
        assert result["usage"]["memory_peak_bytes"] > 150 << 20
    if kind == "cpu":
        assert result["usage"]["cpu_ms"] > 250
    for _ in range(6):
        said, used = usage(prepared_run(pool, **PYTHON))
        assert said == normal
        assert used["memory_peak_bytes"] < base["memory_peak_bytes"] + (4 << 20), (used, base)
        assert used["pids_peak"] <= base["pids_peak"] and used["cpu_ms"] < base["cpu_ms"] + 30, (used, base)


def test_limits_hold_in_a_cgroup_that_is_used_again(pool):
    """The CPU limit is lifted for a kill, and a quota that was used up would stop the next one."""
    run(pool.root, **PYTHON)
    for _ in range(3):
        prepared_run(pool, language="python", code="while True: pass", timeout="400ms")
        result = prepared_run(pool, language="python", code="import time\nt = time.monotonic()\nwhile time.monotonic() - t < 0.8: pass")
        assert result["usage"]["cpu_ms"] < 0.8 * result["usage"]["wall_ms"], result  # of half a processor
        assert prepared_run(pool, language="python", code="x = bytearray(300 << 20)")["reason"] == "oom"
        assert prepared_run(pool, **PYTHON)["usage"]["wall_ms"] < 1000


# ---- siblings

DRAWS = """
import builtins, os, random, secrets, socket, ssl, sys, tempfile, uuid
found = [hasattr(builtins, "mark"), "MARK" in os.environ, *map(os.path.exists, ("/tmp/mark", "/dev/shm/mark", "/workspace/mark"))]
s = socket.socket(socket.AF_UNIX)
try:
    s.connect("\\0mark")
    found.append(True)
except OSError:
    found.append(False)
builtins.mark = os.environ["MARK"] = "1"
for p in ("/tmp/mark", "/dev/shm/mark", "/workspace/mark"):
    open(p, "w").close()
l = socket.socket(socket.AF_UNIX)
l.bind("\\0mark")
l.listen()
print(any(found), random.random(), secrets.token_hex(8), uuid.uuid1(), uuid.uuid4(), ssl.RAND_bytes(8).hex(), os.urandom(8).hex(),
      os.path.basename(tempfile.mktemp()), open("/etc/machine-id").read().strip())
"""


def test_RE_04_a_thousand_siblings_share_nothing(pool):
    """Children of one zygote, one after the other and at a time: the nearest that is here to restores of one snapshot."""
    run(pool.root, **PYTHON)
    settled(pool)
    rows, failed, lock = [], [], threading.Lock()

    def work():
        while True:
            with lock:
                if len(rows) + len(failed) >= 1000:
                    return
            result = run(pool.root, language="python", code=DRAWS)
            with lock:
                (rows if result["ok"] else failed).append(result["stdout"].split() or result)
    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failed, failed[:2]
    columns = list(zip(*rows[:1000]))
    assert set(columns[0]) == {"False"}
    assert [len(set(c)) for c in columns[1:]] == [1000] * 8


def test_RE_04_control():
    """What a fork that nobody prepares for gives: two siblings with the same numbers."""
    code = ("import ctypes, os, random\nlibc = ctypes.CDLL(None)\nrandom.random()\n"
            "for _ in range(2):\n    if libc.fork() == 0:\n        print(random.random(), flush=True)\n        os._exit(0)\n    os.wait()")
    first, second = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert first == second
