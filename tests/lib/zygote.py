# SPDX-License-Identifier: Apache-2.0
"""A prepared Python without a service: starts the interpreter with the module, speaks src/zygote/request.h."""
import array
import os
import select
import signal
import socket
import struct
import subprocess
import time
from pathlib import Path

VERSION, MESSAGE_MAX = 1, 128 << 10
START, FORK, RUN, READY, FORKED, ENDED, WAITING, RUNNING, FAILED, REFUSED = range(1, 11)
WARM = 1
HEADER, PID, END, REFUSAL = struct.Struct("=II"), struct.Struct("=IIiI"), struct.Struct("=IIiIQ"), struct.Struct("=IIII768s")
LIMITS = 16
BOOTSTRAP = ("__file__ = __import__('_imp').create_dynamic(__import__('_frozen_importlib').ModuleSpec("
             "'cloche_zygote', None, origin='/proc/self/fd/4'))\n")
ENV = {"HOME": "/tmp", "PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}
DEADLINE = 60
build = Path(os.environ.get("CLOCHE", Path(__file__).resolve().parents[2] / "build" / "cloche")).resolve().parent


class Refused(Exception):
    """What the zygote or a child said no to; FAILED is final."""


def strings(items):
    return b"".join(os.fsencode(i) + b"\0" for i in items)


def receive(sock):
    readable, _, _ = select.select([sock], [], [], DEADLINE)
    if not readable:
        raise TimeoutError("no message")
    return sock.recv(MESSAGE_MAX)


def refusal(message):
    kind, sequence, errnum, _, text = REFUSAL.unpack(message)
    return Refused(text.split(b"\0")[0].decode())


class Child:
    """One forked child: waits for its code until run()."""

    def __init__(self, zygote, sequence, pid, control, stdin, stdout, stderr):
        self.zygote, self.sequence, self.pid, self.control = zygote, sequence, pid, control
        self.stdin, self.stdout, self.stderr = stdin, stdout, stderr

    def wait_ready(self):
        message = receive(self.control)
        if not message:
            raise Refused("the child is gone")
        kind, sequence = HEADER.unpack_from(message)
        if kind != WAITING:
            raise refusal(message)

    def start(self, code=b"", *, argv=("-",), env=None, cwd="/", umask=0o022, limits=(), message=None):
        """Hand over. The code goes through the pipe of standard input, from another thread of nobody's: at most 64 KiB
        here; talk() writes longer ones."""
        env = self.zygote.env if env is None else env
        if message is None:
            packed = b"".join(struct.pack("=IIQQ", r, 0, s, h) for r, s, h in limits).ljust(24 * LIMITS, b"\0")
            message = struct.pack("=IIIIII", RUN, 1, len(argv), len(env), umask, len(limits)) + packed + strings(
                [cwd, *argv, *(f"{k}={v}" if isinstance(k, str) else k + b"=" + v for k, v in env.items())])
        self.control.send(message)
        answer = receive(self.control)
        if not answer:
            raise Refused("the child is gone")
        if HEADER.unpack_from(answer)[0] != RUNNING:
            raise refusal(answer)

    def talk(self, code):
        """Write the code, read both streams to their end, and learn how it ended: (stdout, stderr, returncode)."""
        parts, pending = {self.stdout: [], self.stderr: []}, memoryview(code)
        os.set_blocking(self.stdin, False)
        until, poll = time.monotonic() + DEADLINE, select.poll()
        for fd in (self.stdout, self.stderr):
            poll.register(fd, select.POLLIN)
        poll.register(self.stdin, select.POLLOUT)
        if not code:
            poll.unregister(self.stdin)
            self.close_stdin()
        left = 2
        while left:
            ready = poll.poll(max(0, until - time.monotonic()) * 1000)
            if not ready:
                raise TimeoutError(f"still running: {code!r}")
            for fd, _ in ready:
                if fd == self.stdin:
                    try:
                        pending = pending[os.write(fd, pending):]
                    except BrokenPipeError:
                        pending = pending[:0]
                    if not pending:
                        poll.unregister(fd)
                        self.close_stdin()
                    continue
                data = os.read(fd, 1 << 16)
                parts[fd].append(data)
                if not data:
                    poll.unregister(fd)
                    left -= 1
        out, err = b"".join(parts[self.stdout]), b"".join(parts[self.stderr])
        return out, err, self.wait()

    def run(self, code=b"", *, stdin=None, **more):
        code = code.encode() if isinstance(code, str) else code
        self.start(**more)
        try:
            return self.talk(code if stdin is None else stdin)
        finally:
            self.close()

    def wait(self):
        return self.zygote.wait(self)

    def close_stdin(self):
        if self.stdin >= 0:
            os.close(self.stdin)
            self.stdin = -1

    def close(self):
        self.close_stdin()
        for fd in (self.stdout, self.stderr):
            if fd >= 0:
                os.close(fd)
        self.stdout = self.stderr = -1
        self.control.close()


class Zygote:
    """python3 with the module. joiner: nowhere or pidns."""

    def __init__(self, modules=(), *, warm_up="", joiner="nowhere", python="/usr/bin/python3", env=None, cwd="/", start=None):
        self.env = dict(ENV if env is None else env)
        self.sequence, self.ended, self.cpu = 1, {}, {}
        self.sock, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        module = os.open(build / "tests" / "zygote" / f"zygote-{joiner}.so", os.O_RDONLY)
        code_r, code_w = os.pipe()
        os.write(code_w, BOOTSTRAP.encode())
        os.close(code_w)
        self.out, out_w = os.pipe()
        self.err, err_w = os.pipe()

        def place():
            for fd in os.listdir("/proc/self/fd"):
                if int(fd) > 2 and os.path.exists(f"/proc/self/fd/{fd}"):
                    os.set_inheritable(int(fd), False)
            high = [os.dup2(fd, 100 + i, inheritable=False) for i, fd in enumerate((theirs.fileno(), module))]
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        self.process = subprocess.Popen([python, "-"], stdin=code_r, stdout=out_w, stderr=err_w, env=self.env, cwd=cwd,
                                        preexec_fn=place, close_fds=False, start_new_session=True)
        for fd in (module, code_r, out_w, err_w):
            os.close(fd)
        theirs.close()
        self.pid = None
        try:
            self.sock.send(start or struct.pack("=IIII", START, 1, VERSION, len(modules)) + strings((*modules, warm_up)))
            message = receive(self.sock)
            if not message:
                raise Refused("the interpreter is gone: " + os.read(self.err, 4096).decode())
            if HEADER.unpack_from(message)[0] != READY:
                raise refusal(message)
        except BaseException:
            self.close()
            raise
        self.pid = PID.unpack(message)[2]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Ends the zygote; its waiting children leave when their control sockets are closed."""
        self.sock.close()
        try:
            self.status = self.process.wait(DEADLINE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
        finally:
            os.close(self.out)
            os.close(self.err)

    def message(self):
        """The next message; those that say how a child ended are kept."""
        while True:
            message = receive(self.sock)
            if not message:
                raise Refused("the zygote is gone")
            if HEADER.unpack_from(message)[0] != ENDED:
                return message
            self.take_end(message)

    def take_end(self, message):
        _, sequence, pid, status, cpu = END.unpack(message)
        self.ended[sequence] = status
        self.cpu[sequence] = cpu

    def send_fork(self, fds, flags=0, join=b"", join_fds=()):
        self.sequence += 1
        self.sock.sendmsg([struct.pack("=IIIIII", FORK, self.sequence, flags, len(join_fds), len(join), 0) + join],
                          [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [*fds, *join_fds]))])
        return self.sequence

    def fork(self, *, warm=False, join=b"", wait=True):
        control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        in_r, in_w = os.pipe()
        out_r, out_w = os.pipe()
        err_r, err_w = os.pipe()
        try:
            sequence = self.send_fork([theirs.fileno(), in_r, out_w, err_w], WARM if warm else 0, join)
        finally:
            theirs.close()
            for fd in (in_r, out_w, err_w):
                os.close(fd)
        child = Child(self, sequence, 0, control, in_w, out_r, err_r)
        try:
            message = self.message()
            if HEADER.unpack_from(message)[0] != FORKED:
                raise refusal(message)
            child.pid = PID.unpack(message)[2]
            if wait:
                child.wait_ready()
        except BaseException:
            child.close()
            raise
        return child

    def wait(self, child):
        """The child's return code, as subprocess counts."""
        while child.sequence not in self.ended:
            message = receive(self.sock)
            if not message:
                raise Refused("the zygote is gone")
            if HEADER.unpack_from(message)[0] != ENDED:
                raise AssertionError(f"unexpected message {HEADER.unpack_from(message)}")
            self.take_end(message)
        return os.waitstatus_to_exitcode(self.ended.pop(child.sequence))

    def run(self, code, *, warm=False, join=b"", **more):
        return self.fork(warm=warm, join=join).run(code, **more)


def kill(pid, number=signal.SIGKILL):
    os.kill(pid, number)
