# SPDX-License-Identifier: Apache-2.0
"""A real python3 as the zygote of a nest (docs/fastpath.md): the module of src/zygote, joined to prepared sandboxes. What the
interpreter's side promises by itself is tested without isolation elsewhere (tests/unit/test_zygote*.py)."""
import os
import socket
import struct
import subprocess
import time
from pathlib import Path

import pytest

import cloche

BUILD = Path(cloche.binary()).parent
MODULE = BUILD / "cloche-zygote.so"
zygote = pytest.importorskip("zygote", reason="tests/lib/zygote.py comes with src/zygote's module")
pytestmark = [pytest.mark.needs("native"), pytest.mark.needs("root"),
              pytest.mark.skipif(not MODULE.exists(), reason="cloche-zygote.so is not built")]


class Python(zygote.Zygote):
    """A driver with a nest whose zygote is python3."""

    def __init__(self, modules=(), options=()):
        self.env, self.sequence, self.ended, self.cpu = dict(zygote.ENV), 1, {}, {}
        self.sock, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.given, given = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        module = os.open(MODULE, os.O_RDONLY)
        code, write = os.pipe()
        os.write(write, zygote.BOOTSTRAP.encode())
        os.close(write)
        self.out, out = os.pipe()
        self.err, err = os.pipe()

        def place():
            high = [os.dup2(fd, 100 + i, inheritable=False) for i, fd in enumerate((code, out, err, theirs.fileno(), module, given.fileno()))]
            for i, fd in enumerate(high):
                os.dup2(fd, 10 + i)
            os.closerange(16, 100)

        self.process = subprocess.Popen([BUILD / "tests" / "nest-driver", "@python", *options], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, preexec_fn=place, close_fds=False)
        for fd in (code, out, err, module):
            os.close(fd)
        theirs.close()
        given.close()
        assert self.process.stdout.readline() == b"ready\n"
        self.sock.send(struct.pack("=IIII", zygote.START, 1, zygote.VERSION, len(modules)) + zygote.strings(modules))
        message = zygote.receive(self.sock)
        assert message, os.read(self.err, 4096)
        assert zygote.HEADER.unpack_from(message)[0] == zygote.READY, message
        self.pid = zygote.PID.unpack(message)[2]

    def ask(self, *words):
        self.process.stdin.write(("\t".join(map(str, words)) + "\n").encode())
        self.process.stdin.flush()
        return self.process.stdout.readline().decode().split()

    def fork_in(self, cell):
        """A child that has joined and waits for its code."""
        assert self.ask("give", cell) == ["given", cell]
        data, fds, _, _ = socket.recv_fds(self.given, 64, 16)
        control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        pipes = [os.pipe() for _ in range(3)]
        sequence = self.send_fork([theirs.fileno(), pipes[0][0], pipes[1][1], pipes[2][1]], 0, data, fds)
        theirs.close()
        for fd in (pipes[0][0], pipes[1][1], pipes[2][1], *fds):
            os.close(fd)
        child = zygote.Child(self, sequence, 0, control, pipes[0][1], pipes[1][0], pipes[2][0])
        message = self.message()
        if zygote.HEADER.unpack_from(message)[0] != zygote.FORKED:
            child.close()
            raise zygote.refusal(message)
        child.pid = zygote.PID.unpack(message)[2]
        child.wait_ready()
        return child

    def once(self, code):
        """In a sandbox of its own, to the end: (stdout, stderr, status)."""
        cell = self.ask("cell")[1]
        result = self.fork_in(cell).run(code, cwd="/workspace")
        assert self.ask("end", cell) == ["gone", cell]
        return result

    def close(self):
        self.process.stdin.close()
        assert self.process.wait(30) == 0
        for fd in (self.out, self.err):
            os.close(fd)


@pytest.fixture(scope="module")
def python():
    p = Python(["random", "ssl", "uuid", "tempfile", "secrets"])
    yield p
    p.close()


def test_code_runs_as_the_sandbox_user_and_its_end_is_told(python):
    out, err, status = python.once("import os, sys\nprint(os.getpid(), os.getresuid(), os.getcwd(), sys.argv, sorted(os.listdir('/proc/self/fd')))\nsys.exit(3)")
    assert (out, err, status) == (b"2 (65534, 65534, 65534) /workspace ['-'] ['0', '1', '2', '3']\n", b"", 3)
    assert python.pid > 30000


def test_what_only_the_zygote_may_do_is_refused_to_its_children(python):
    """setns, unshare, clone3, seccomp, landlock_restrict_self, capset, setgroups; dropping from the bounding set, subreaper."""
    code = ("import ctypes, os\nl = ctypes.CDLL(None, use_errno=True)\n"
            "for n, a in ((308, (-1, 0)), (272, (0x10000000,)), (435, (0, 0)), (317, (0, 0, 0)), (446, (-1, 0)), (126, (0, 0)), (116, (0, 0)),\n"
            "             (157, (24, 0, 0, 0, 0)), (157, (36, 1, 0, 0, 0))):\n"
            "    print(n, l.syscall(n, *a), ctypes.get_errno())\n")
    joined = python.once(code)[0]
    cold = cloche.run(["python", "-c", code])
    assert joined == cold.out and b" 0 0" not in joined and joined.count(b"-1 38") == 5, joined


def test_FS_21_the_zygotes_file_cannot_be_locked(python):
    code = "import fcntl, os\nprint(os.readlink('/proc/self/exe'))\ntry: fcntl.flock(os.open('/proc/self/exe', os.O_RDONLY), fcntl.LOCK_EX)\nexcept OSError as e: print(e.errno)"
    assert python.once(code)[0].split()[1:] == [b"13"]


def test_RE_01_nothing_of_one_is_seen_by_the_next(python):
    leave = ("import builtins, sys, os, random\nbuiltins.secret = 1; sys.modules['secret'] = 1; os.environ['SECRET'] = '1'; open('/tmp/secret', 'w')\n"
             "open('/dev/shm/secret', 'w'); random.seed(1); os.umask(0); os.chdir('/tmp'); sys.path.append('/secret')")
    look = ("import builtins, sys, os, random\nprint(hasattr(builtins, 'secret'), 'secret' in sys.modules, 'SECRET' in os.environ, os.listdir('/tmp'), "
            "os.path.exists('/dev/shm/secret'), os.umask(0), os.getcwd(), '/secret' in sys.path)")
    assert python.once(leave) == (b"", b"", 0)
    assert python.once(look)[0] == b"False False False [] False 18 /workspace False\n"


def test_siblings_draw_different_numbers(python):
    code = ("import random, ssl, uuid, tempfile, secrets\n"
            "print(random.random(), ssl.RAND_bytes(8).hex(), uuid.uuid4(), next(tempfile._get_candidate_names()), secrets.token_hex(8), open('/etc/machine-id').read())")
    drawn = [word for _ in range(60) for word in python.once(code)[0].split()]
    assert len(drawn) == len(set(drawn)) == 360


def test_the_death_of_the_zygote_leaves_who_has_joined():
    p = Python()
    cell = p.ask("cell")[1]
    child = p.fork_in(cell)
    child.start()
    os.write(child.stdin, b"print('up', flush=True)\nimport time\ntime.sleep(0.5)\nprint('still')\n")
    child.close_stdin()
    assert os.read(child.stdout, 9) == b"up\n"
    os.kill(int(p.ask("pids")[2]), 9)
    assert os.read(child.stdout, 9) == b"still\n"
    child.close()
    assert p.ask("end", cell) == ["gone", cell]
    p.close()


def test_a_killed_sandbox_is_gone_at_once(python):
    cell = python.ask("cell")[1]
    child = python.fork_in(cell)
    child.start()
    os.write(child.stdin, b"import os, time\nfor _ in range(20): os.fork()or time.sleep(100)\n")
    child.close_stdin()
    begun = time.monotonic()
    assert python.ask("end", cell) == ["gone", cell]
    assert python.wait(child) == -9 and time.monotonic() - begun < 5
    child.close()
