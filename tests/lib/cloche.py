# SPDX-License-Identifier: Apache-2.0
"""What every Python test of cloche needs: run the binary, ask what this machine can do, count what is left behind.

    import cloche
    r = cloche.run(["python", "--timeout", "2s", "-"], stdin="print(6 * 7)")
    assert r.reason == "exited" and r.out == b"42\n"

Only the standard library and pytest. CLOCHE names the binary (default: build/cloche). CLOCHE_MUST_WORK is a
comma-separated list of names from CAPABILITIES: a test that needs one of them and cannot have it fails instead of
being skipped. Nothing here knows how cloche works inside.
"""
import atexit
import base64
import json as jsonlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
NOBODY = 65534

# ------------------------------------------------------------------------------------------------ the binary


def binary():
    """The cloche under test, as an absolute path."""
    return os.path.abspath(os.environ.get("CLOCHE") or TOP / "build" / "cloche")


def binary_for(uid):
    """The same, somewhere that UID can reach: a copy below the temporary directory if the tree is private to us."""
    path = binary()
    probe = subprocess.run(["test", "-x", path], user=uid, group=uid, extra_groups=[]) if os.geteuid() == 0 else None
    if probe is None or probe.returncode == 0:
        return path
    if uid not in binary_for.copies:
        copy = tempfile.mkdtemp(prefix="clo-bin.")
        os.chmod(copy, 0o755)
        atexit.register(shutil.rmtree, copy, True)
        for f in Path(path).parent.glob("cloche*"):
            if f.is_file() and os.access(f, os.X_OK):
                shutil.copy(f, copy)
        binary_for.copies[uid] = os.path.join(copy, os.path.basename(path))
    return binary_for.copies[uid]


binary_for.copies = {}


class Result:
    """One call of the command line.

    returncode   exit status of cloche itself (-N: killed by signal N)
    stdout, stderr   raw bytes of cloche itself
    json         the parsed result object, None without json=True or when stdout is not one
    out, err     the sandbox's own output as exact bytes (from the result object, else the raw streams)
    seconds      wall time of the call
    Any key of the result object is an attribute too: r.reason, r.limits_hit, r.enforced.
    """

    def __init__(self, argv, returncode, stdout, stderr, seconds, want_json):
        self.argv, self.returncode, self.stdout, self.stderr, self.seconds = argv, returncode, stdout, stderr, seconds
        self.json = None
        if want_json:
            try:
                self.json = jsonlib.loads(stdout)
            except ValueError:
                pass
        self.out = self._stream("stdout", stdout)
        self.err = self._stream("stderr", stderr)

    def _stream(self, name, raw):
        if not isinstance(self.json, dict) or name not in self.json:
            return raw
        text = self.json[name]
        return base64.b64decode(text) if self.json.get("encoding") == "base64" else text.encode()

    def __getattr__(self, name):
        data = self.__dict__.get("json")
        if isinstance(data, dict) and name in data:
            return data[name]
        raise AttributeError(f"{name}: not in the result of {self!r}")

    def __repr__(self):
        return (f"<cloche {' '.join(self.argv[1:])!r}: exit {self.returncode}, "
                f"stdout {self.stdout[-2000:]!r}, stderr {self.stderr[-2000:]!r}>")


def environment(extra=None):
    """The caller's environment without any setting of cloche, and without the user's configuration. A service of this machine
    is not used: only the one in EXTRA's CLOCHE_SOCKET, else in service_socket, else none."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("CLOCHE")}
    env["XDG_CONFIG_HOME"] = "/nonexistent"
    if service_socket:
        env["CLOCHE_SOCKET"] = service_socket
    env.update(extra or {})
    if "CLOCHE_SOCKET" not in env:
        env.setdefault("CLOCHE_DIRECT", "1")
    return env


service_socket = None  # tests/service/test_oneshot.py: the same helpers, by a service


def start(args, stdin=subprocess.PIPE, env=None, uid=None, cwd=None, prefix=()):
    """Popen of cloche in a session of its own, for tests that talk to it, signal it or kill it. See run()."""
    who = {} if uid is None else {"user": uid, "group": uid, "extra_groups": []}
    path = binary() if uid is None else binary_for(uid)
    return subprocess.Popen([*prefix, path, *args], stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            env=environment(env), cwd=cwd, start_new_session=True, **who)


def run(args, stdin=b"", timeout=60, json=True, env=None, uid=None, cwd=None, prefix=()):
    """Run `cloche ARGS` to its end and return a Result.

    stdin    str or bytes for its standard input, None for /dev/null
    timeout  seconds for the call itself; when met, the call is killed and the test fails (subprocess.TimeoutExpired)
    json     put --json behind the verb and parse what comes (as a Result's attributes); False for the plain form
    env      added to environment(); uid: run as this user (needs root); prefix: words before the binary (strace …)
    """
    args = [str(a) for a in args]
    if json and args and "--json" not in args:
        args.insert(1, "--json")
    if isinstance(stdin, str):
        stdin = stdin.encode()
    began = time.monotonic()
    p = start(args, subprocess.DEVNULL if stdin is None else subprocess.PIPE, env, uid, cwd, prefix)
    try:
        out, err = p.communicate(stdin, timeout)
    except BaseException:
        os.killpg(p.pid, signal.SIGKILL)
        p.communicate()
        raise
    return Result(p.args, p.returncode, out, err, time.monotonic() - began, json)


def python(code, *options, **kw):
    """Run Python code (as stdin) in a sandbox: cloche.python("print(1)", "--timeout", "2s")."""
    return run(["python", *options, "-"], stdin=code, **kw)


def bash(code, *options, **kw):
    """The same for bash."""
    return run(["bash", *options, "-"], stdin=code, **kw)


# ------------------------------------------------------------------------------------ what this machine can do


def cgroup_version():
    """1 (v1 or hybrid: the limits are v1's), 2 or 0 (none mounted)."""
    if os.path.exists("/sys/fs/cgroup/cgroup.controllers"):
        return 2
    return 1 if os.path.isdir("/sys/fs/cgroup/memory") else 0


def _have(*programs):
    path = os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"  # an ordinary user's PATH has no sbin
    return all(shutil.which(p, path=path) for p in programs)


def _delegated():
    """True if this user has a v2 cgroup with memory and pids below its own."""
    if os.geteuid() == 0 or cgroup_version() != 2:
        return False
    own = "/sys/fs/cgroup" + Path("/proc/self/cgroup").read_text().strip().rpartition(":")[2]
    try:
        return os.access(own, os.W_OK) and {"memory", "pids"} <= set(Path(own, "cgroup.controllers").read_text().split())
    except OSError:
        return False


# name: (what a test that needs it does, is it here?). The names of CLOCHE_MUST_WORK.
CAPABILITIES = {
    "native": ("a sandbox of the native runtime starts", lambda: run(["run", "true"], timeout=20).returncode == 0),
    "root": ("runs as root", lambda: os.geteuid() == 0),
    "rootless": ("runs as an ordinary user with a delegated cgroup", _delegated),
    "rootless-refusal": ("sees the refusal to run rootless on cgroup v1",
                         lambda: cgroup_version() == 1 and os.geteuid() == 0),
    "cgroup-v1": ("needs v1 counters", lambda: cgroup_version() == 1),
    "cgroup-v2": ("needs v2 counters", lambda: cgroup_version() == 2),
    "vm": ("boots a kernel in an emulator", lambda: _have("qemu-system-x86_64", "busybox", "mkfs.erofs") and
           any(Path("/boot").glob("vmlinuz-*cloud-amd64"))),
    "python": ("runs Python inside", lambda: os.path.exists("/usr/bin/python3")),
    "node": ("runs node inside", lambda: os.path.exists("/usr/bin/node")),
    "chromium": ("opens pages in a browser", lambda: _have("chromium")),
    "npm": ("runs npm inside", lambda: os.path.exists("/usr/bin/npm")),
    "java": ("runs Java inside", lambda: os.path.exists("/usr/bin/java")),
    "gcc": ("compiles inside", lambda: _have("gcc")),
    "g++": ("compiles C++ inside", lambda: _have("g++")),
    "git": ("runs git inside", lambda: _have("git")),
    "perl": ("runs perl inside", lambda: _have("perl")),
    "sqlite3": ("runs sqlite3 inside", lambda: _have("sqlite3")),
    "numpy": ("uses the distribution's numpy", lambda: os.path.isdir("/usr/lib/python3/dist-packages/numpy")),
    "venv": ("makes a virtual environment", lambda: bool(list(Path("/usr/lib").glob("python3*/ensurepip")))),
    "bwrap": ("compares with bubblewrap", lambda: _have("bwrap")),
    "strace": ("traces system calls", lambda: _have("strace")),
    "idmap": ("needs newuidmap", lambda: _have("newuidmap")),
    "musl": ("builds small static programs", lambda: _have("musl-gcc")),
    "pypi": ("uses packages from PyPI", lambda: __import__("pydeps").make()[0] is not None),
    "pypi-clients": ("drives cloche with clients from PyPI", lambda: __import__("clients").make_python()[0] is not None),
    "npm-clients": ("drives cloche with clients from npm", lambda: __import__("clients").make_node()[0] is not None),
    "service": ("starts a service", lambda: (os.geteuid() == 0 or can("rootless")) and run(["serve", "--help"], json=False).returncode == 0),
    "debootstrap": ("installs the package in a fresh Debian", lambda: os.geteuid() == 0 and _have("debootstrap", "dpkg-deb")),
    "lintian": ("asks lintian", lambda: _have("lintian")),
    "dig": ("asks with dig", lambda: _have("dig")),
    "web": ("reaches a web server on loopback", lambda: _have("nginx", "openssl")),
    "docker": ("starts a Docker Engine of its own", lambda: os.geteuid() == 0 and _have("docker", "dockerd")),
}
_known = {}


def can(name):
    """Is this capability here? Asked once per process."""
    if name not in _known:
        try:
            _known[name] = bool(CAPABILITIES[name][1]())
        except (OSError, subprocess.SubprocessError):
            _known[name] = False
    return _known[name]


def must_work():
    """The names in CLOCHE_MUST_WORK; a name that does not exist is an error, not a wish."""
    names = {n.strip() for n in os.environ.get("CLOCHE_MUST_WORK", "").split(",") if n.strip()}
    if names - set(CAPABILITIES):
        raise SystemExit(f"CLOCHE_MUST_WORK: unknown: {', '.join(sorted(names - set(CAPABILITIES)))}; "
                         f"known: {', '.join(CAPABILITIES)}")
    return names


def need(name, here=None, reason=None):
    """Skip the calling test when capability NAME is missing; fail it when CLOCHE_MUST_WORK names it.

    here, if given, is the caller's own finding instead of the table's probe; reason says what is missing.
    """
    import pytest
    if can(name) if here is None else here:
        return
    text = f"{name}: {reason or 'this test ' + CAPABILITIES[name][0] + ', which this machine cannot do'}"
    if name in must_work():
        pytest.fail(f"CLOCHE_MUST_WORK: {text}", pytrace=False)
    pytest.skip(text)


# ------------------------------------------------------------------------------------------- what is left behind


def processes():
    """{"pid start-time": command line} of every process that is cloche by name or by executable."""
    found = {}
    for d in Path("/proc").glob("[0-9]*"):
        try:
            comm = (d / "comm").read_text().strip()
            stat = (d / "stat").read_text().rpartition(")")[2].split()
            try:
                exe = os.path.basename(os.readlink(d / "exe"))
            except OSError:
                exe = ""
            if comm.startswith("cloche") or exe.startswith("cloche"):
                words = (d / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").strip()
                found[f"{d.name} {stat[19]}"] = f"process {d.name} ({comm}, {stat[0]}): {words[:200]}"
        except OSError:
            continue
    return found


def cgroups():
    """Every cgroup below one called cloche, in all trees."""
    found = {}
    for root, dirs, _ in os.walk("/sys/fs/cgroup"):
        below = root[len("/sys/fs/cgroup"):].split("/")
        for d in dirs:
            if any(part.startswith("cloche") for part in below):
                found[os.path.join(root, d)] = f"cgroup {os.path.join(root, d)}"
    return found


def parent_cgroups():
    """The cgroups that sandboxes are made in, one per tree: they stay for the next run (docs/design.md)."""
    top = Path("/sys/fs/cgroup")
    return {str(p) for p in (top / "cloche", *top.glob("*/cloche")) if p.is_dir()}


def mounts():
    """Mounts of this mount namespace that have cloche in them."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return {line: f"mount {line}" for line in lines if "cloche" in line}


def namespaces(kind="net"):
    """Namespaces of KIND held by a process, by a descriptor or by a mount, other than our own."""
    own, found = os.readlink(f"/proc/self/ns/{kind}"), {}
    pattern = re.compile(rf"{kind}:\[\d+\]")
    for d in Path("/proc").glob("[0-9]*"):
        try:
            found.setdefault(os.readlink(d / "ns" / kind), f"{kind} namespace of process {d.name}")
            for fd in (d / "fd").iterdir():
                link = os.readlink(fd)
                if pattern.fullmatch(link):
                    found.setdefault(link, f"{kind} namespace held by descriptor {fd}")
        except OSError:
            continue
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        hit = pattern.search(line)
        if hit:
            found.setdefault(hit[0], f"{kind} namespace mounted: {line}")
    found.pop(own, None)
    return found


def files():
    """Entries named cloche* of the temporary directories, and what is in cloche's own state directories."""
    found = {}
    for d in {tempfile.gettempdir(), "/tmp", "/dev/shm", "/var/tmp"}:
        for f in Path(d).glob("*cloche*"):
            found[str(f)] = f"file {f}"
    for d in ("/run/cloche", "/var/lib/cloche"):
        for f in Path(d).glob("*"):
            found[str(f)] = f"file {f}"
    return found


def fds(pid="self"):
    """{number: target} of a process's descriptors."""
    found = {}
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            found[int(fd)] = os.readlink(f"/proc/{pid}/fd/{fd}")
        except OSError:
            continue
    return found


def open_the_way(path):
    """Every user can walk to PATH, which pytest keeps to itself. The temporary folder above stays everybody's."""
    top = Path(tempfile.gettempdir())
    for p in (path, *path.parents):
        if top in p.parents:
            os.chmod(p, 0o755)


def snapshot():
    """Everything a sandbox could leave on this machine; hand it to leftovers() later."""
    return {"processes": processes(), "cgroups": cgroups(), "mounts": mounts(), "files": files(),
            "net namespaces": namespaces("net"), "pid namespaces": namespaces("pid")}


def leftovers_by_kind(before, patience=3.0):
    """{kind: sentences} of what is there now and was not in BEFORE. Waits up to PATIENCE seconds for it to go away:
    the kernel takes down namespaces behind our back, and other programs on the machine come and go."""
    deadline = time.monotonic() + patience
    while True:
        now = snapshot()
        left = {kind: sorted(text for key, text in now[kind].items() if key not in before[kind]) for kind in before}
        if not any(left.values()) or time.monotonic() > deadline:
            return left
        time.sleep(0.1)


def leftovers(before, patience=3.0):
    """The same as one list."""
    return sum(leftovers_by_kind(before, patience).values(), [])
