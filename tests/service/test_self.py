# SPDX-License-Identifier: Apache-2.0
"""The service's own attack surface: what cloched holds, what a cloched that somebody has taken over could still do, and that
nothing of the service can be reached from inside a sandbox (AP-08).

self_probe.c gives up what cloched gives up, by the same code, and then tries. The filter of the live cloched is compared with
tests/golden/seccomp-cloched.x86_64.txt; to renew it after a decision:

    CLOCHE_WRITE_GOLDEN=1 /usr/bin/python3 -m pytest tests/service/test_self.py -k filter
"""
import ctypes
import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import cloche
import proc
import pytest
import service as services

sys.path.insert(0, str(cloche.TOP / "tests" / "abuse"))
import arena  # noqa: E402

pytestmark = [pytest.mark.needs("native", "root", "service")]
GOLDEN = cloche.TOP / "tests" / "golden" / "seccomp-cloched.x86_64.txt"
LIST = cloche.TOP / "src" / "service" / "self_calls.def"
COUNTERS = {"cpuacct.usage", "cpu.stat", "pids.events", "pids.peak", "memory.oom_control", "memory.events", "memory.max_usage_in_bytes", "memory.peak"}
NOBODY = 61777  # an ordinary user without files or processes


def status(pid):
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


def program(s, name):
    """The pid of cloched or cloche-spawner of a service."""
    return s.running(name)[0]


@pytest.fixture
def cloched(service):
    return program(service, "cloched")


# ------------------------------------------------------------------------------------------------------ what it holds


def test_cloched_has_no_privilege(service, cloched, box):
    s = status(cloched)
    assert {s[f"Cap{c}"] for c in ("Inh", "Prm", "Eff", "Bnd", "Amb")} == {"0" * 16}, s
    assert (s["NoNewPrivs"], s["Seccomp"], s["Seccomp_filters"], s["Threads"], s["Groups"]) == ("1", "2", "1", "1", ""), s
    ids = {"Uid": set(s["Uid"].split()), "Gid": set(s["Gid"].split())}
    assert all(len(i) == 1 and i != {"0"} for i in ids.values()), ids
    box.start(["sleep", "60"])
    inside = [p for p in service.processes() if os.readlink(f"/proc/{p}/ns/pid") != os.readlink("/proc/self/ns/pid")]
    assert inside
    for pid in inside:
        other = status(pid)
        assert not ids["Uid"] & set(other["Uid"].split()) and not ids["Gid"] & set(other["Gid"].split()), other


def test_cloched_has_nothing_open_but_its_own(service, cloched):
    kinds = {"socket", "anon_inode", "pipe"}
    # counters of sandboxes that live, which everybody may read
    all_held = cloche.fds(cloched)
    counters = {n: path for n, path in all_held.items() if path.startswith("/sys/fs/cgroup/")}
    assert {path.rsplit("/", 1)[1] for path in counters.values()} <= COUNTERS
    assert all(re.search(r"^flags:\s+\d*0$", proc.of(cloched, f"fdinfo/{n}") or "flags: 0", re.M) for n in counters), "to read only"
    held = {path for n, path in all_held.items() if n not in counters}
    # of the images' store three folders, to look at when they changed: tests/images/test_service_pool.py has what it cannot do with them
    store = {f"/var/lib/cloche/images{name}" for name in ("", "/refs", "/images")}
    assert store <= held
    files = {f for f in held if f.split(":")[0] not in kinds} - {"/dev/null", str(service.log)} - store
    assert files and all(f.startswith(f"{service.folder}/state/") for f in files), held


def attach(pid):
    """The errno of an attempt to trace a process, and of one to read its memory map."""
    libc = ctypes.CDLL(None, use_errno=True)
    attached = libc.ptrace(0x4206, pid, 0, 0)  # SEIZE: it is not stopped by that
    error = ctypes.get_errno() if attached < 0 else 0
    if not error:
        libc.ptrace(17, pid, 0, 0)
    try:
        Path(f"/proc/{pid}/environ").read_bytes()
        return [error, 0]
    except OSError as e:
        return [error, e.errno]


def test_cloched_cannot_be_traced_by_its_own_user(cloched):
    uid = int(status(cloched)["Uid"].split()[0])
    assert services.as_user(uid, uid, lambda: attach(cloched)) == [1, 13]
    with subprocess.Popen(["sleep", "60"], user=uid, group=uid, extra_groups=[]) as p:  # an ordinary process of that user
        try:
            assert services.as_user(uid, uid, lambda: attach(p.pid))[1] == 0
        finally:
            p.kill()


# ------------------------------------------------------------------------------------------------- what it could do


def rows(text):
    return dict(line.split("\t") for line in text.splitlines())


@pytest.fixture
def probe(tmp_path_factory):
    """probe(*options): the answers of self_probe as an ordinary user, and its exit status."""
    folder = Path(cloche.tempfile.mkdtemp(prefix="clo-self."))
    folder.chmod(0o755)
    state, foreign = folder / "state", folder / "foreign"
    state.mkdir()
    (state / "link").symlink_to(foreign)
    os.chown(state, NOBODY, NOBODY)
    foreign.write_text("not its own")
    foreign.chmod(0o666)
    binary = Path(cloche.binary()).parent / "tests" / "service" / "self-probe"
    copy = cloche.shutil.copy(binary, folder / "probe")

    def run(*options):
        return subprocess.run([copy, *options, state, foreign], user=NOBODY, group=NOBODY, extra_groups=[], cwd="/", text=True,
                              stdin=subprocess.DEVNULL, capture_output=True, timeout=30)
    run.command = lambda *options: [copy, *options, state, foreign]
    yield run
    assert foreign.exists() and foreign.stat().st_mode & 0o777 == 0o666
    cloche.shutil.rmtree(folder)


ALLOWED = {"make a file in the state", "remove it", "read /dev/null", "tgkill itself", "fcntl F_GETFD", "ioctl FIONBIO", "socket unix", "socketpair",
           "send by TCP", "setsockopt SO_KEEPALIVE"}
BY_LANDLOCK = {"read /etc/shadow", "read /etc/passwd", "list /", "write /tmp", "read /proc/self/maps", "write /proc/self/mem",
               "read /proc/1/status", "read a foreign file", "write a foreign file", "read it by a link of the state",
               "write /dev/null", "read /sys/kernel/notes", "TCP to elsewhere"}
NOT_THERE = {"clone3", "io_uring_setup"}
# What an ordinary user without the restrictions can do, so that each group of answers above can come out differently.
FREE = {"read /etc/passwd", "list /", "write /tmp", "read /proc/self/maps", "write /proc/self/mem", "write a foreign file",
        "read it by a link of the state", "symlink", "rename", "chmod", "clone", "process_vm_readv", "pidfd_open", "kill itself",
        "fcntl F_SETOWN", "fcntl F_SETOWN, hidden", "fcntl F_SETSIG", "ioctl FIOASYNC", "mmap exec", "mprotect exec", "memfd_create",
        "prctl", "socket inet", "socket inet, hidden", "socket inet6", "socket netlink", "inotify_init1",
        "an abstract socket of others", "TCP to elsewhere"}


def landlock_abi():
    return ctypes.CDLL(None).syscall(444, None, 0, 1)


def test_a_cloched_taken_over_can_do_next_to_nothing(probe):
    done = probe()
    assert done.returncode == 0, done.stderr
    if landlock_abi() < 6:
        pytest.skip("Landlock of this kernel knows no TCP or no scopes: its answers differ")
    expected = {name: "ok" if name in ALLOWED else "EACCES" if name in BY_LANDLOCK else "ENOSYS" if name in NOT_THERE else "EPERM"
                for name in rows(done.stdout)}
    assert rows(done.stdout) == expected
    assert ALLOWED | BY_LANDLOCK | NOT_THERE <= set(expected) and len(expected) > 80


def test_a_cloched_taken_over__control(probe):
    free = rows(probe("--free").stdout)
    assert FREE <= set(free)
    assert {name for name in FREE if free[name] != "ok"} == set()
    assert not {name for name, answer in free.items() if answer == "EPERM"} & NOT_THERE


@pytest.mark.parametrize("how", ["--x32", "--i386"])
def test_other_architectures_are_killed(probe, how):
    assert probe(how).returncode == -31  # SIGSYS


def dump(pid, arch="x86_64"):
    done = subprocess.run([arena.compiled("scdump", "-lseccomp"), "-v", "-a", arch, str(pid)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.needs("gcc")
def test_the_filter_of_the_live_cloched_is_the_golden_one(cloched):
    text = dump(cloched)
    if os.environ.get("CLOCHE_WRITE_GOLDEN"):
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text()
    for arch in ("i386", "x32"):
        assert "allow=0 args=0 errno=0" in dump(cloched, arch).splitlines()[-1]
    listed = {name for name, *_ in calls()}
    reached = {line.split("\t")[2] for line in text.splitlines() if re.search(r"\t(allow|args\(allow.*)$", line)}
    assert reached == listed


@pytest.mark.needs("gcc")
def test_the_probe_has_the_same_filter(probe):
    with subprocess.Popen(probe.command("--hold"), user=NOBODY, group=NOBODY, extra_groups=[], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE) as p:
        assert p.stdout.readline() == b"holds\tok\n"
        text = dump(p.pid)
        p.stdin.close()
        assert p.wait(10) == 0
    assert text == GOLDEN.read_text()


def calls():
    return re.findall(r"^(?:CALL|WHEN)\((\w+)(.*?)\)(?:\s*/\*.*)?$", LIST.read_text(), re.M)


def test_the_list_is_sorted_and_has_nothing_twice():
    lines = calls()
    assert len(lines) == len(re.findall(r"^(?:CALL|WHEN)", LIST.read_text(), re.M)) > 50
    assert lines == sorted(set(lines))
    assert not {name for name, more in lines if not more} & {name for name, more in lines if more}, "with and without conditions"


# --------------------------------------------------------------------------------------- AP-08: from inside a sandbox


REACH = r"""
import json, os, socket, sys
port, paths, names = json.loads(sys.argv[1])
found = {}
def attempt(name, family, address):
    for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET, socket.SOCK_DGRAM) if family == socket.AF_UNIX else (socket.SOCK_STREAM, ):
        try:
            with socket.socket(family, kind) as s:
                s.settimeout(2)
                s.connect(address)
            found[name] = "REACHED"
            return
        except OSError as e:
            found[name] = os.strerror(e.errno) if e.errno else str(e)
for host in ("127.0.0.1", "127.0.0.2", "localhost", "10.0.2.2", "172.17.0.1", "192.168.0.1", "169.254.169.254"):
    attempt(host, socket.AF_INET, (host, port))
attempt("::1", socket.AF_INET6, ("::1", port))
for path in paths:
    attempt(path, socket.AF_UNIX, path)
for name in names:
    attempt("@" + name, socket.AF_UNIX, "\0" + name)
found["fds"] = {f: os.readlink("/proc/self/fd/" + f) for f in os.listdir("/proc/self/fd") if os.path.islink("/proc/self/fd/" + f)}
found["abstract"] = [l.split()[-1] for l in open("/proc/net/unix") if "@" in l] if os.path.exists("/proc/net/unix") else []
print(json.dumps(found))
"""


@pytest.fixture
def abstract():
    """A listener of the host on an abstract name."""
    name = f"cloche-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as s:
        s.bind("\0" + name)
        s.listen()
        yield name


def sockets_of(service):
    run = service.folder / "run"
    return [service.sock, str(run / "spawner.sock"), *map(str, run.glob("sandboxes/*/ctl"))]


def reached(found):
    return {k for k, v in found.items() if v == "REACHED"}


@pytest.mark.parametrize("profile", ["default", "dev"])
def test_AP_08_nothing_of_the_service_from_inside(service, boxes, abstract, profile):
    boxes()
    box = boxes(profile=profile)
    argument = json.dumps([service.port, sockets_of(service), [abstract]])
    assert argument.count("/ctl") >= 2
    r = box.python(REACH, args=[argument], timeout=60)
    assert r.exit_code == 0, r.err
    found = json.loads(r.out)
    assert not reached(found) and len(found) > 10, found
    fds = found.pop("fds")
    # its three streams, and what lists them and holds the code; no socket, nothing by a path of the host
    assert {"0", "1", "2"} <= set(fds), fds
    others = {f: to for f, to in fds.items() if f not in "012" and to != f"/proc/self/fd" and not to.startswith("/proc/")}
    assert not others, fds
    assert all(to == "/dev/null" or to.startswith("pipe:") for f, to in fds.items() if f in "012"), fds
    assert found.pop("abstract") == []


def test_AP_08_control(service, abstract):
    """The same program on the host reaches all of it."""
    argument = json.dumps([service.port, [service.sock], [abstract]])
    done = subprocess.run([sys.executable, "-c", REACH, argument], capture_output=True, text=True, check=True)
    assert {"127.0.0.1", service.sock, "@" + abstract} <= reached(json.loads(done.stdout))


def test_AP_08_a_process_a_terminal_and_a_run_hold_no_descriptor_of_the_service(service, boxes):
    box = boxes(profile="dev")
    command = ["sh", "-c", "for f in /proc/self/fd/*; do echo $f $(readlink $f); done; ls -l /dev/fd/ >/dev/null"]
    for more in ({}, {"tty": True}, {"stdin": True}):
        # It looks when its input has ended: who is asked for input is still there.
        process = box.start([*command[:2], "cat; " + command[2]] if "stdin" in more else command, **more)
        if "stdin" in more:
            process.stdin(b"", eof=True)
        process.wait()
        text = services.joined(process.output(), "stdout").decode()
        assert "socket:" not in text and "anon_inode" not in text and str(service.folder) not in text, text
    text = service.root.run(command).out.decode()
    assert "pipe:" in text and "socket:" not in text and "anon_inode" not in text and "/sandboxes/" not in text, text


def test_AP_08_a_file_worker_sees_no_descriptor_of_its_init(box, service):
    """/proc is refused to the file API, and a link to it made inside is no way around."""
    for path in ("/proc/self/fd", "/proc/1/fd", "/proc/self/fd/3", "/proc/thread-self/fd/3"):
        answer = box.request("GET", "/files/list", query={"path": path})
        assert answer.status == 403, answer
    box.sh("ln -s /proc/self/fd /workspace/way; ln -s /proc/1/root /workspace/root")
    for path in ("/workspace/way", "/workspace/way/3", "/workspace/root/etc"):
        for route in ("/files", "/files/list"):
            answer = box.request("GET", route, query={"path": path})
            assert answer.status in (400, 403, 404), answer


def test_AP_08_a_stolen_way_to_tcp_still_needs_the_key(service):
    anonymous = services.Client(("127.0.0.1", service.port))
    for method, path in (("GET", "/v1/sandboxes"), ("POST", "/v1/runs"), ("GET", "/metrics")):
        anonymous.problem(401, "UNAUTHENTICATED", method, path, json={"command": "true"} if method == "POST" else None)


# ------------------------------------------------------------------------------- the same surface as a single run's


def survey(box, terminal=False):
    """What tests/abuse/surface.c prints in a kept sandbox."""
    box.put("/workspace/surface", Path(arena.compiled("surface")).read_bytes(), mode="0755")
    if terminal:
        process = box.start(["sh", "-c", "exec /workspace/surface >/workspace/out 2>&1"], tty=True)
        process.wait()
        assert process.object()["exit_code"] == 0, process.object()
        return box.read("/workspace/out").decode()
    r = box.exec(["/workspace/surface"], timeout=60, max_output="4m")
    assert r.reason == "exited" and r.exit_code == 0, r
    return r.out.decode()


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("name, profile, terminal", [("surface.txt", "default", False), ("surface-dev.txt", "dev", True)])
def test_a_kept_sandbox_has_the_surface_of_a_single_run(boxes, name, profile, terminal):
    import test_abuse_surface as surface
    counts, lines = surface.split(survey(boxes(profile=profile), terminal))
    golden = cloche.TOP / "tests" / "golden" / name
    if os.environ.get("CLOCHE_WRITE_GOLDEN") and profile == "dev":  # the default's is the single run's
        golden.write_text("".join(f"{line}\n" for line in sorted(lines) + [f"count\t{k}\t{v}" for k, v in sorted(counts.items())]))
    golden_counts, golden_lines = surface.split(golden.read_text())
    assert {k: counts[k] for k in surface.FLOOR} == surface.FLOOR
    assert not lines - golden_lines, f"new in the surface: {sorted(lines - golden_lines)}"
    higher = {k: (v, golden_counts.get(k)) for k, v in counts.items() if v > golden_counts.get(k, -1)}
    assert not higher, f"numbers that rose: {higher}"


@pytest.mark.needs("gcc")
def test_the_filter_inside_a_kept_sandbox_is_the_golden_one(service, boxes):
    for profile in ("default", "dev"):
        box = boxes(profile=profile)
        mark = f"61{os.getpid()}"
        box.start(["sleep", mark])
        pid = next(p for p in service.processes() if proc.command(p) == ["sleep", mark])
        assert dump(pid) == (cloche.TOP / "tests" / "golden" / f"seccomp-{profile}.x86_64.txt").read_text()
        box.kill()
