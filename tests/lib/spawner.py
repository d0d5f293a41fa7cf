# SPDX-License-Identifier: Apache-2.0
"""Talk to cloche-spawner as cloched does.

    with spawner.Spawner() as s:          # the real program, in temporary folders
        c = s.client()                    # connected, HELLO said
        box = c.create()                  # a Message: box.id, box.pid, ...
        c.end(box.id)                     # killed, its end, released

Struct layouts come from the program spawner-layout, which is built with the spawner, so they cannot drift.
"""
import errno
import functools
import json
import os
import secrets
import select
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time
from pathlib import Path

import cloche

SIZES = {1: "B", 2: "H", 4: "I", 8: "Q"}


@functools.lru_cache(None)
def layout():
    return json.loads(subprocess.check_output([Path(cloche.binary()).parent / "tests" / "spawner-layout"]))


def size_of(name):
    return layout()["structs"][name][""]


def put(buffer, name, base=0, **values):
    """Write fields of struct NAME at offset BASE of a bytearray. Text may be str or bytes, cut at the field's size."""
    fields = layout()["structs"][name]
    for key, value in values.items():
        offset, size, count = fields[key]
        if size in SIZES and count == 1:
            struct.pack_into("<" + SIZES[size], buffer, base + offset, value)
        else:
            data = (value.encode() if isinstance(value, str) else value)[:size * count]
            buffer[base + offset:base + offset + len(data)] = data


class Message:
    """One decoded answer: type, sequence, and the fields of its struct."""

    STRUCTS = {"CREATED": "spawner_created", "REFUSED": "spawner_refused", "STATS_ARE": "spawner_stats",
               "ENDED": "spawner_ended", "LIVE": "spawner_live", "DONE": "spawner_done"}
    NESTED = {"counters": "spawner_counters", "created": "spawner_created"}

    def __init__(self, data, name=None):
        if name is None:
            number, self.sequence = struct.unpack_from("<II", data)
            self.type = next(k for k, v in layout()["types"].items() if v == number)
            name = self.STRUCTS[self.type]
        assert len(data) == size_of(name), (name, len(data))
        for key, where in layout()["structs"][name].items():
            if not key:
                continue
            offset, size, count = where
            raw = data[offset:offset + size * count]
            if key in self.NESTED:
                value = Message(raw, self.NESTED[key])
            elif size == 1:
                value = raw.split(b"\0")[0].decode()
            else:
                value = struct.unpack("<" + SIZES[size], raw)[0]
            setattr(self, key.replace(".", "_"), value)

    @property
    def code_name(self):
        return layout()["codes"][self.code]

    def __repr__(self):
        return f"<{self.__dict__}>"


def new_id():
    return "sbx_" + secrets.token_hex(16)


MODES = {"none": 0, "allow": 1, "open": 2}


def put_network(m, name, mode=None, rules="", **values):
    """rules: as spec_network_rules() writes them."""
    if mode is not None:
        put(m, "spawner_network", layout()["structs"][name]["network"][0],
            **{"mode": MODES.get(mode, mode), "size": len(rules), "rules": rules, "owner": "uid:0", **values})


def create_message(box=None, tmpfs=(), volumes=(), network=None, **values):
    """The bytes of a CREATE. tmpfs: dicts of spawner_tmpfs; volumes: dicts of spawner_volume; network: put_network()'s."""
    m = bytearray(size_of("spawner_create"))
    put(m, "spawner_create", **{**dict(
        id=box or new_id(), image="host", runtime="native", profile="default", hostname="sandbox", memory_bytes=128 << 20,
        memory_swap_bytes=0, cpus_millis=1000, pids_limit=32, uid=65534, gid=65534,
        tmpfs_count=len(tmpfs), volume_count=len(volumes)), **values})
    put_network(m, "spawner_create", **(network or {}))
    for field, name, rows in (("tmpfs", "spawner_tmpfs", tmpfs), ("volumes", "spawner_volume", volumes)):
        for i, row in enumerate(rows):
            put(m, name, layout()["structs"]["spawner_create"][field][0] + i * size_of(name), **row)
    return m


class Client:
    def __init__(self, path, hello=True):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.connect(path)
        self.sequence = 0
        self.waiting = []  # what came while something else was waited for
        if hello:
            self.ask("HELLO", version=layout()["version"])

    def close(self):
        self.socket.close()

    def send(self, kind, body, fds=()):
        self.sequence += 1
        struct.pack_into("<II", body, 0, layout()["types"][kind], self.sequence)
        socket.send_fds(self.socket, [body], list(fds)) if fds else self.socket.send(body)
        return self.sequence

    def receive(self, timeout=20):
        if not select.select([self.socket], [], [], timeout)[0]:
            raise TimeoutError("the spawner says nothing")
        data = self.socket.recv(1 << 20)
        if not data:
            raise ConnectionResetError
        return Message(data)

    def wait(self, match, timeout=20):
        """The first message, come already or to come, that match() likes."""
        end = time.monotonic() + timeout
        for i, m in enumerate(self.waiting):
            if match(m):
                return self.waiting.pop(i)
        while True:
            m = self.receive(max(0, end - time.monotonic()))
            if match(m):
                return m
            self.waiting.append(m)

    def answer(self, sequence, timeout=20):
        return self.wait(lambda m: m.sequence == sequence, timeout)

    def ask(self, kind, box=None, timeout=20, **fields):
        name = {"HELLO": "spawner_hello", "LIST": "spawner_done"}.get(kind, "spawner_by_id")
        m = bytearray(size_of(name))
        if box:
            fields["id"] = box
        put(m, name, **fields)
        return self.answer(self.send(kind, m), timeout)

    def change(self, box, timeout=30, **network):
        """NETWORK: other rules."""
        m = bytearray(size_of("spawner_change"))
        put(m, "spawner_change", id=box)
        put_network(m, "spawner_change", **network)
        return self.answer(self.send("NETWORK", m), timeout)

    def list(self):
        sequence = self.send("LIST", bytearray(size_of("spawner_done")))
        rows = []
        while (m := self.answer(sequence)).type == "LIVE":
            rows.append(m)
        return rows

    def start(self, box=None, fds=(), **values):
        return self.send("CREATE", create_message(box, **values), fds)

    def try_create(self, box=None, fds=(), timeout=40, **values):
        return self.answer(self.start(box, fds, **values), timeout)

    def create(self, box=None, **values):
        m = self.try_create(box, **values)
        assert m.type == "CREATED", m
        return m

    def ended(self, box, timeout=20):
        return self.wait(lambda m: m.type == "ENDED" and m.id == box, timeout)

    def end(self, box):
        """Kill, wait for the end, release; the end."""
        assert self.ask("KILL", box).type == "DONE"
        m = self.ended(box)
        assert self.ask("RELEASE", box).type == "DONE"
        return m


class Spawner:
    """The program with folders of its own. uid, gid: the service's. config: text of the operator's file."""

    def __init__(self, uid=None, gid=None, config=None, folder=None):
        self.folder = Path(folder or tempfile.mkdtemp(prefix="clo-spawner."))
        os.chmod(self.folder, 0o755)
        self.runtime, self.state = self.folder / "run", self.folder / "state"
        self.config = self.folder / "cloche.yaml"
        self.uid, self.gid = os.geteuid() if uid is None else uid, os.getegid() if gid is None else gid
        if config:
            self.config.write_text(config)
        self.process = None
        self.start()

    def start(self):
        self.process = subprocess.Popen(
            [Path(cloche.binary()).parent / "cloche-spawner", "--runtime-dir", self.runtime, "--state-dir", self.state,
             "--service-uid", str(self.uid), "--service-gid", str(self.gid), "--config", self.config],
            stderr=open(self.folder / "stderr", "ab"), env=cloche.environment(), start_new_session=True)

    @property
    def path(self):
        return str(self.runtime / "spawner.sock")

    def client(self, hello=True, timeout=20):
        end = time.monotonic() + timeout
        while True:
            try:
                return Client(self.path, hello)
            except (FileNotFoundError, ConnectionError):
                if self.process.poll() is not None or time.monotonic() > end:
                    raise RuntimeError((self.folder / "stderr").read_text()) from None
                time.sleep(0.005)

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def restart(self):
        self.kill()
        self.start()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        """End every sandbox, then the spawner."""
        try:
            if self.process.poll() is not None:
                self.start()
            c = self.client()
            for row in c.list():
                c.ask("KILL", row.created.id)
            for row in c.list():
                c.ended(row.created.id)
        finally:
            self.process.terminate()
            status = self.process.wait(10)
        if not any(exc):
            assert status == 0, (self.folder / "stderr").read_text()
            shutil.rmtree(self.folder)

    def slots_held(self):
        """Numbers of slots whose lock is held, as /proc/locks has them."""
        held = {line.split()[5].split(":")[2] for line in open("/proc/locks") if "FLOCK" in line and "->" not in line}
        return {p.name for p in (self.runtime / "slots").iterdir() if str(p.stat().st_ino) in held}

    def realm(self):
        """How the names of our cgroups end."""
        st = os.stat(self.runtime / "slots")
        return "%08x" % ((st.st_ino * 0x9e3779b1 ^ (st.st_ino >> 32) ^ st.st_dev * 0x85ebca6b) & 0xffffffff)

    def cgroups(self):
        return [p for tree in ("/sys/fs/cgroup", "/sys/fs/cgroup/*") for p in Path("/").glob(f"{tree[1:]}/cloche/*-{self.realm()}")]

    def folders(self):
        return [p.name for p in (self.runtime / "sandboxes").iterdir()]

    def ctl(self, box):
        """Where the init of a sandbox listens (conversation.Conversation)."""
        return self.runtime / "sandboxes" / box / "ctl"


def host_start(pid):
    """Start time of a process of the host, None when there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19]
    except OSError as e:
        assert e.errno in (errno.ENOENT, errno.ESRCH)
        return None
