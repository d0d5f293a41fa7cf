# SPDX-License-Identifier: Apache-2.0
"""Attacks as rows: what is tried, what cloche answers, and where the same attack works.

    ATTACKS = [
        Attack("FS-04", "chroot", "fact('chroot', lambda: os.chroot('/tmp'))",
               {"chroot": ("EPERM", "ok")}, control="host-root"),
    ]
    define(ATTACKS, globals())

An attack is Python that runs inside with PRELUDE in front and prints one line per fact, "NAME<TAB>ANSWER"; the answer
is "ok", an errno name, "signal N" or a value. Each fact has two answers: the one a cloche sandbox must give, exactly,
and the one the positive control must give. OTHER in the second place means "anything else", SAME means "the same, and
that is right" (a fact that shows the attack ran at all), ANY "depends on the machine". An attack without a fact that differs is refused: it could
not fail. define() makes two tests of each row, test_FS_04_chroot and test_FS_04_chroot_control.

Controls
    host        this machine, as an ordinary user (nobody), no sandbox
    host-root   this machine, as root, in a mount and pid namespace of its own where that keeps it harmless
    off:A,B     a cloche of the mutation build with layers A and B left out (CLOCHE_OFF)
"""
import functools
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import cloche

HERE = Path(__file__).resolve().parent
PYTHON = "/usr/bin/python3"
OTHER = object()
SAME = object()
ANY = object()

PRELUDE = r'''
import ctypes, errno, os, signal, socket, stat, struct, sys, time
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
NAME = {**errno.errorcode, errno.EOPNOTSUPP: "EOPNOTSUPP", errno.EAGAIN: "EAGAIN"}
def sc(nr, *args):
    """A raw system call; integers are passed as 64 bits, bytes as pointers. Raises OSError."""
    ctypes.set_errno(0)
    r = libc.syscall(ctypes.c_long(nr), *[a if isinstance(a, (bytes, ctypes.Array)) or a is None else ctypes.c_long(a)
                                          for a in args])
    if r == -1 and ctypes.get_errno():
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return r
def say(name, answer):
    sys.stdout.write(f"{name}\t{answer}\n")
    sys.stdout.flush()
def answer(f):
    try:
        v = f()
        return str(v) if isinstance(v, (str, bool)) else "ok"
    except OSError as e:
        return NAME.get(e.errno, str(e.errno)) if e.errno else type(e).__name__
    except Exception as e:
        return type(e).__name__
def fact(name, f):
    say(name, answer(f))
def value(name, f):
    """Like fact, but the value itself is the answer."""
    try:
        say(name, f())
    except OSError as e:
        say(name, NAME.get(e.errno, str(e.errno)))
def child(name, f):
    """The same in a child, whose death by a signal is an answer too."""
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            signal.alarm(5)
            os.write(w, answer(f).encode())
        finally:
            os._exit(0)
    os.close(w)
    text = os.read(r, 4096).decode()
    os.close(r)
    _, status = os.waitpid(pid, 0)
    say(name, f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else text)
def read(path, n=4096):
    with open(path, "rb") as f:
        return f.read(n)
def write(path, data, flags=os.O_WRONLY):
    fd = os.open(path, flags, 0o600)
    try:
        os.write(fd, data)
    finally:
        os.close(fd)
'''


# ---------------------------------------------------------------------------------------------------- environments


def mutation_binary():
    """The build whose layers can be left out; see test_mutation.py."""
    return os.environ.get("CLOCHE_MUTATION_BINARY") or str(cloche.TOP / "build-mutation" / "cloche")


def build_mutation():
    """Make the mutation build, up to date; once per process, also when it fails."""
    failure = _build_mutation()
    if failure:
        raise RuntimeError(f"build-mutation: {failure}")


@functools.lru_cache(None)
def _build_mutation():
    if os.environ.get("CLOCHE_MUTATION_BINARY"):
        return ""
    where = cloche.TOP / "build-mutation"
    if not (where / "build.ninja").exists():
        made = subprocess.run(["meson", "setup", "-Dmutation=true", str(where)], cwd=cloche.TOP, capture_output=True, text=True)
        if made.returncode:
            return made.stdout[-2000:] + made.stderr[-1000:]
    made = subprocess.run(["ninja", "-C", str(where)], capture_output=True, text=True)
    return made.stdout[-2000:] + made.stderr[-1000:] if made.returncode else ""


class weakened:
    """with weakened("seccomp,caps"): cloche.run() there uses the mutation build without these layers."""

    def __init__(self, layers):
        build_mutation()
        self.set = {"CLOCHE": mutation_binary(), "CLOCHE_OFF": layers}

    def __enter__(self):
        self.was = {k: os.environ.get(k) for k in self.set}
        os.environ["CLOCHE"] = self.set["CLOCHE"]
        return {"CLOCHE_OFF": self.set["CLOCHE_OFF"]}

    def __exit__(self, *_):
        for k, v in self.was.items():
            os.environ.pop(k, None)
            if v is not None:
                os.environ[k] = v


def inside(code, *options, layers_off=None, **kw):
    """Run Python inside a sandbox (of the mutation build if layers_off is given); a cloche.Result."""
    options = ("--timeout", "20s", *options)
    if layers_off is None:
        return cloche.python(code, *options, **kw)
    with weakened(layers_off) as env:
        return cloche.python(code, *options, env=env, **kw)


def on_host(code, root=False, timeout=20):
    """The same on this machine, without a sandbox: as nobody, or as root in namespaces of its own, so that a mount or
    a host name that succeeds is nobody's loss."""
    where = tempfile.mkdtemp(prefix="clo-host.")
    os.chmod(where, 0o777)
    env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": where, "LANG": "C.UTF-8", "TMPDIR": where}
    try:
        if root:
            argv, who = ["unshare", "-muipn", "--fork", "--mount-proc", PYTHON, "-"], {}
        else:
            argv, who = [PYTHON, "-"], {"user": cloche.NOBODY, "group": cloche.NOBODY, "extra_groups": []}
        done = subprocess.run(argv, input=code.encode(), capture_output=True, timeout=timeout, env=env, cwd=where, **who)
        return done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")
    finally:
        shutil.rmtree(where, True)


def facts(text):
    """{name: answer} of the lines an attack printed."""
    return dict(line.split("\t", 1) for line in text.splitlines() if "\t" in line)


# --------------------------------------------------------------------------------------------------------- attacks


@dataclass
class Attack:
    id: str
    name: str
    code: str
    facts: dict
    control: str
    options: tuple = ()
    end: tuple = ("exited", 0)  # reason, exit code of the run inside
    files: dict = field(default_factory=dict)  # {name below /workspace: path on the host}: put in
    needs: tuple = ()

    def __post_init__(self):
        if all(there in (SAME, ANY) for _, there in self.facts.values()):
            raise ValueError(f"{self.id} {self.name}: no fact differs in the control: the attack could not be seen to fail")

    @property
    def key(self):
        return f"{self.id.replace('-', '_')}_{self.name}"

    def run(self, layers_off=None):
        """Inside cloche; ({name: answer}, Result)."""
        ins = [w for name, path in self.files.items() for w in ("--in", f"{path}:/workspace/{name}")]
        r = inside(PRELUDE + self.code, *self.options, *ins, layers_off=layers_off)
        return facts(r.out.decode("utf-8", "replace")), r

    def refused(self, layers_off=None):
        """What differs from what must be: an empty list when cloche answers as it should."""
        got, r = self.run(layers_off)
        wrong = [f"{k}: {got.get(k)!r}, must be {want!r}" for k, (want, _) in self.facts.items() if got.get(k) != want]
        if (r.reason, r.exit_code) != self.end:
            wrong.append(f"the run ended {r.reason} {r.exit_code}, must be {self.end}: {r.message} {r.err[-500:]!r}")
        token = os.environ.get("CANARY")
        if token and token.encode() in r.stdout + r.stderr:
            wrong.append("the canary's token is in the output")
        return wrong

    def control_facts(self):
        if self.control.startswith("off:"):
            got, r = self.run(self.control[4:])
            return got, f"{r.reason} {r.message} {r.err[-500:]!r}"
        out, err = on_host(PRELUDE + self.code, self.control == "host-root")
        return facts(out), err[-500:]

    def works(self):
        """What keeps the control from being one: an empty list when the attack works there."""
        got, note = self.control_facts()
        wrong = []
        for k, (inside_, there) in self.facts.items():
            if there is ANY:
                continue
            want = inside_ if there is SAME else there
            if got.get(k) is None or (got[k] == inside_ if there is OTHER else got[k] != want):
                wrong.append(f"{k}: {got.get(k)!r}, must be {'anything but ' + repr(inside_) if there is OTHER else repr(want)}")
        return wrong + [note] if wrong else []


REGISTRY = {}


def define(attacks, module):
    """Two tests per row, into the calling module."""
    import pytest
    for a in attacks:
        if a.key in REGISTRY:
            raise ValueError(f"two attacks are called {a.key}")
        REGISTRY[a.key] = a

        def refused(a=a):
            wrong = a.refused()
            assert not wrong, "\n".join(wrong)

        def works(a=a):
            wrong = a.works()
            assert not wrong, f"the positive control ({a.control}) does not work:\n" + "\n".join(wrong)

        for suffix, f in (("", refused), ("_control", works)):
            f.__name__ = f.__qualname__ = f"test_{a.key}{suffix}"
            f.__doc__ = f"{a.id} {a.name}"
            f.__module__ = module["__name__"]
            f.__defaults__ = None
            wrapped = _without_arguments(f, a)
            for n in ("native", "root", "python", *a.needs):
                wrapped = pytest.mark.needs(n)(wrapped)
            module[f.__name__] = wrapped


def _without_arguments(f, a):
    def test():
        f(a)
    test.__name__ = test.__qualname__ = f.__name__
    test.__doc__, test.__module__ = f.__doc__, f.__module__
    return test


# ------------------------------------------------------------------------------------------------------ C programs


@functools.lru_cache(None)
def compiled(name, *flags):
    """A program of this folder, compiled; the path. Static unless it links a library."""
    out = compiled_dir() / name
    link = [] if any(f.startswith("-l") for f in flags) else ["-static"]
    command = ["gcc", "-O1", "-Wall", "-Wextra", "-D_GNU_SOURCE", f"-I{cloche.TOP / 'src'}", *link, "-o", str(out),
               *map(str, sorted([HERE / f"{name}.c", *HERE.glob(f"{name}_*.c")])), *flags]
    made = subprocess.run(command, capture_output=True, text=True)
    if made.returncode:
        raise RuntimeError(f"{name}.c: {made.stderr[:3000]}")
    out.chmod(0o755)
    return str(out)


@functools.lru_cache(None)
def compiled_dir():
    import atexit
    where = Path(tempfile.mkdtemp(prefix="clo-abuse."))
    where.chmod(0o755)
    atexit.register(shutil.rmtree, where, True)
    return where


def parents():
    """{pid: parent's pid} of this machine."""
    found = {}
    for d in Path("/proc").glob("[0-9]*"):
        try:
            found[int(d.name)] = int((d / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    return found


def descend(pid):
    """All descendants of a process on the host, nearest first."""
    table, found = parents(), [pid]
    for p in found:
        found += sorted(k for k, v in table.items() if v == p)
    return found[1:]


if __name__ == "__main__":
    sys.exit("a module, not a test")
