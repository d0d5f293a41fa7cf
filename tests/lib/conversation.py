# SPDX-License-Identifier: Apache-2.0
"""A client of src/protocol/conversation.h: talks to the init of a kept sandbox.

    with Sandbox() as box:                      # made by build/tests/service/keep
        r = box.run(["echo", "hi"])
        assert r.out == b"hi\\n" and r.ended.status == 0

A refused request raises Failed, with errno, stage and what; a connection that is hung up on raises HungUp.
"""
import collections
import contextlib
import os
import socket
import struct
import subprocess
import tempfile
from pathlib import Path

import cloche

TYPES = dict(FAILED=2, DATA=4, CREDIT=6, EOF=7, SERVE=36, START=64, ATTACH=65, INPUT=66, KILL=67, RESIZE=68, FORGET=69, TAKE=74,
             LIST=70, PS=71, SPACE=72, FINISH=73, READ=80, WRITE=81, STAT=82, READDIR=83, MKDIR=84, REMOVE=85, MOVE=86,
             WALK=87, UNPACK=88, MEMBER=89, WATCH=90, DIAL=91, BEGUN=96, OFFSET=97, ENDED=98, COMMAND=99, PROCESS=100,
             ROOM=101, ENTRY=102, EVENT=103, DONE=104, SKIPPED=105)
NAMES = {v: k for k, v in TYPES.items()}
PTY, STDIN, ATTACH, HEAD, TAIL, LOSSLESS, WAITS, CUT = 1, 2, 4, 8, 16, 32, 64, 256
PARENTS, APPEND, EXCLUSIVE = 1, 2, 4
TO_END = 2**64 - 1
USER = 65534
WINDOW = 65536
PATIENCE = 30
EVENTS = [None, "create", "modify", "remove", "rename", "attributes", "overflow"]

Ended = collections.namedtuple("Ended", "signaled status core survivors timed_out wall_us cpu_us bytes first kept full alone")
Command = collections.namedtuple("Command", "tag number pid flags running started_ms bytes ended")
Entry = collections.namedtuple("Entry", "mode uid gid size mtime name target")
Process = collections.namedtuple("Process", "pid parent uid state number threads cpu_ms rss line")
Room = collections.namedtuple("Room", "size used inodes used_inodes path")


class Failed(Exception):
    def __init__(self, payload):
        self.errno, stage, what = struct.unpack("<I16s200s", payload)
        self.stage, self.what = stage.rstrip(b"\0").decode(), what.rstrip(b"\0").decode()
        super().__init__(f"{self.stage}: {self.what}: {os.strerror(self.errno)}")


class HungUp(Exception):
    pass


def ended(payload):
    n = struct.unpack("<5I2H8Q", payload)
    assert n[5] in (0, 1)
    return Ended(*n[:5], n[7], n[8], n[9:11], n[11:13], n[13:15], n[6], n[5])


def entry(payload):
    mode, uid, gid, zero, size, mtime = struct.unpack("<4IQq", payload[:32])
    name, target, rest = payload[32:].split(b"\0")
    assert zero == 0 and rest == b""
    return Entry(mode, uid, gid, size, mtime, name, target)


def encoded(path):
    return (path if isinstance(path, bytes) else os.fsencode(path)) + b"\0"


def start_payload(argv, flags=ATTACH | TAIL, keep=65536, tag="", workdir="/workspace", env=("PATH=/usr/bin:/bin",), limit_ms=0,
                  rows=0, columns=0, uid=USER, gid=USER):
    head = struct.pack("<40s6I2HIQQ", tag.encode(), uid, gid, len(argv), len(env), flags, limit_ms, rows, columns, 0, keep, 0)
    return head + b"".join(encoded(s) for s in (workdir, *argv, *env))


class Conversation:
    """One connection. say() sends a frame, hear() returns (name, stream, payload)."""

    def __init__(self, path, timeout=PATIENCE):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(timeout)
        self.socket.connect(str(path))
        self.buffer = bytearray()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.socket.close()

    def say(self, name, payload=b"", stream=0):
        self.socket.sendall(struct.pack("<IBBH", len(payload), TYPES[name], stream, 0) + payload)
        return self

    def raw(self, size):
        while len(self.buffer) < size:
            try:
                data = self.socket.recv(1 << 20)
            except ConnectionResetError:
                data = b""
            if not data:
                raise HungUp(bytes(self.buffer))
            self.buffer += data
        out = bytes(self.buffer[:size])
        del self.buffer[:size]
        return out

    def hear(self, *wanted):
        size, number, stream, zero = struct.unpack("<IBBH", self.raw(8))
        payload = self.raw(size)
        assert zero == 0
        name = NAMES[number]
        if name == "FAILED":
            raise Failed(payload)
        assert not wanted or name in wanted, f"{name} instead of {wanted}"
        return name, stream, payload

    def hung_up(self):
        """The other side has nothing more to say and closes."""
        try:
            self.raw(1)
        except HungUp:
            return not self.buffer
        return False


class Run:
    """What an attached conversation heard."""

    def __init__(self):
        self.data, self.eof, self.credit, self.offsets = {1: bytearray(), 2: bytearray()}, set(), 0, []
        self.ended, self.number, self.pid, self.done = None, None, None, False

    out = property(lambda self: bytes(self.data[1]))
    err = property(lambda self: bytes(self.data[2]))

    def take(self, frame):
        name, stream, payload = frame
        if name == "BEGUN":
            self.number, self.pid = struct.unpack("<II", payload)
        elif name == "DATA":
            assert stream not in self.eof
            self.data[stream] += payload
        elif name == "EOF":
            self.eof.add(stream)
        elif name == "CREDIT":
            self.credit += struct.unpack("<I", payload)[0]
        elif name == "OFFSET":
            self.offsets.append((struct.unpack("<QII", payload)[1], struct.unpack("<QII", payload)[0]))
        elif name == "ENDED":
            assert self.eof == {1, 2}
            self.ended = ended(payload)
        elif name == "DONE":
            self.done = True
        else:
            raise AssertionError(name)
        return self

    def until_end(self, c):
        while not (self.ended or self.done):
            self.take(c.hear())
        return self


def take_payload(number, flags=None, limit_ms=0, keep=65536):
    return struct.pack("<4IQ", number, HEAD if flags is None else flags, limit_ms, 0, keep)


class Sandbox:
    """A kept sandbox: keep(1) with OPTIONS of `cloche run`."""

    def __init__(self, *options):
        self.folder = tempfile.TemporaryDirectory(prefix="clo-kept.")
        self.path = os.path.join(self.folder.name, "ctl")
        keep = Path(cloche.binary()).parent / "tests" / "service" / "keep"
        self.keep = subprocess.Popen([keep, "run", *options, "--", "true"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                     stderr=subprocess.PIPE, env={**os.environ, "KEEP_SOCKET": self.path})
        if self.keep.stdout.readline() != b"ready\n":
            raise RuntimeError(self.keep.communicate()[1].decode())
        self.init = int(Path(f"/proc/{self.keep.pid}/task/{self.keep.pid}/children").read_text().split()[0])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.keep.stdin.close()
        self.keep.stdout.close()
        self.keep.stderr.close()
        self.keep.wait(PATIENCE)
        self.folder.cleanup()

    def talk(self, name, payload=b""):
        return Conversation(self.path).say(name, payload)

    def ask(self, name, payload=b""):
        """The frames up to DONE."""
        frames = []
        with self.talk(name, payload) as c:
            while True:
                frames.append(c.hear())
                if frames[-1][0] == "DONE":
                    return frames[:-1]

    # --- commands
    def start(self, argv, flags=ATTACH | TAIL, **more):
        return self.talk("START", start_payload(argv, flags, **more))

    def run(self, argv, flags=ATTACH | TAIL, **more):
        with self.start(argv, flags, **more) as c:
            return Run().until_end(c)

    def python(self, code, *args, **more):
        return self.run(["python3", "-c", code, *args], **more)

    def begin(self, argv, flags=TAIL, **more):
        """In the background; its Run with number and pid."""
        with self.start(argv, flags, **more) as c:
            return Run().take(c.hear("BEGUN"))

    def prepare(self, argv, **more):
        """A command that waits on its stdin; its Run with number and pid."""
        return self.begin(argv, WAITS | STDIN | HEAD, keep=1, **more)

    def take(self, number, data=b"", flags=None, limit_ms=0, keep=65536):
        """The conversation that uses it, its stdin at its end after DATA."""
        c = self.talk("TAKE", take_payload(number, flags, limit_ms, keep))
        with contextlib.suppress(BrokenPipeError):  # refused already: that is still to be heard
            if data:
                c.say("DATA", data)
            c.say("EOF")
        return c

    def attach(self, number, out=0, err=0, follow=1):
        return self.talk("ATTACH", struct.pack("<IIQQ", number, follow, out, err))

    def output(self, number, out=0, err=0, follow=1):
        with self.attach(number, out, err, follow) as c:
            return Run().until_end(c)

    def kill(self, number, signal, session=0):
        self.ask("KILL", struct.pack("<III", number, signal, session))

    def forget(self, number):
        self.ask("FORGET", struct.pack("<I", number))

    def resize(self, number, rows, columns):
        self.ask("RESIZE", struct.pack("<IHH", number, rows, columns))

    def input(self, number, *pieces, eof=False):
        with self.talk("INPUT", struct.pack("<I", number)) as c:
            try:
                for p in pieces:
                    c.say("DATA", p)
                if eof:
                    c.say("EOF")
                c.say("FINISH")
            except (BrokenPipeError, ConnectionResetError):
                pass  # why stands in the answer
            while c.hear("CREDIT", "DONE")[0] != "DONE":
                pass

    def list(self):
        out = []
        for _, _, p in self.ask("LIST"):
            n = struct.unpack("<40s4I3Q", p[:80])
            end = ended(p[80:]) if not n[4] else None
            out.append(Command(n[0].rstrip(b"\0").decode(), n[1], n[2], n[3], n[4], n[5], n[6:8], end))
        return out

    def ps(self):
        return [Process(p[0], p[1], p[2], chr(p[3]), *p[4:8], raw[40:-1]) for raw, p in
                ((f[2], struct.unpack("<6IQQ", f[2][:40])) for f in self.ask("PS"))]

    def space(self):
        return [Room(*struct.unpack("<4Q", f[2][:32]), f[2][32:-1].decode()) for f in self.ask("SPACE")]

    # --- files
    def read(self, path, offset=0, length=TO_END):
        frames = self.ask("READ", struct.pack("<QQ", offset, length) + encoded(path))
        assert frames[0][0] == "ENTRY" and all(f[0] == "DATA" and f[1] == 1 for f in frames[1:])
        return b"".join(f[2] for f in frames[1:])

    def write(self, path, data, mode=0, flags=0):
        with self.talk("WRITE", struct.pack("<II", mode, flags) + encoded(path)) as c:
            try:
                for i in range(0, len(data), 65536):
                    c.say("DATA", data[i:i + 65536])
                c.say("EOF")
            except (BrokenPipeError, ConnectionResetError):
                pass
            c.hear("DONE")

    def stat(self, path):
        (_, _, payload), = self.ask("STAT", encoded(path))
        return entry(payload)

    def readdir(self, path, most=100000):
        return [entry(f[2]) for f in self.ask("READDIR", struct.pack("<I", most) + encoded(path))]

    def mkdir(self, path, mode=0, flags=0):
        self.ask("MKDIR", struct.pack("<II", mode, flags) + encoded(path))

    def remove(self, path, recursive=0):
        self.ask("REMOVE", struct.pack("<I", recursive) + encoded(path))

    def move(self, a, b, replace=0):
        self.ask("MOVE", struct.pack("<I", replace) + encoded(a) + encoded(b))

    def walk(self, path, skipped=None):
        """{name: (entry, content)}; skipped: a list that gets (name, errno) of what cannot be read, else there is none."""
        out, last = {}, None
        for name, _, payload in self.ask("WALK", encoded(path)):
            if name == "ENTRY":
                last = entry(payload)
                assert last.name not in out
                out[last.name] = (last, bytearray())
            elif name == "SKIPPED":
                assert skipped is not None and payload[-1] == 0, payload
                skipped.append((payload[4:-1], struct.unpack("<I", payload[:4])[0]))
            else:
                out[last.name][1].extend(payload)
        return out

    def unpack(self, base, members):
        """members: (name, mode, content or target)"""
        with self.talk("UNPACK", encoded(base)) as c:
            try:
                for name, mode, content, *mtime in members:
                    link = mode & 0o170000 == 0o120000
                    regular = mode & 0o170000 == 0o100000
                    c.say("MEMBER", struct.pack("<4IQq", mode, 0, 0, 0, len(content) if regular else 0, *mtime or [0]) +
                          encoded(name) + encoded(content if link else b""))
                    for i in range(0, len(content) if regular else 0, 65536):
                        c.say("DATA", content[i:i + 65536])
                c.say("FINISH")
            except (BrokenPipeError, ConnectionResetError):
                pass
            c.hear("DONE")

    def watch(self, path):
        c = self.talk("WATCH", encoded(path))
        c.hear("DONE")
        return c

    def dial(self, port):
        c = self.talk("DIAL", struct.pack("<I", port))
        c.hear("DONE")
        return c


def event(c):
    payload = c.hear("EVENT")[2]
    return EVENTS[struct.unpack("<I", payload[:4])[0]], payload[4:-1].decode()
