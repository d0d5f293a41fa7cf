# SPDX-License-Identifier: Apache-2.0
"""Prepared sandboxes and who joins them (docs/fastpath.md), by tests/service/nest_driver.c and a stand-in for the interpreter.

Nothing may be weaker than in a sandbox that `cloche run` makes: the same survey of the surface, the same facts. The few
things that do differ are named in DIFFERENT.
"""
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import cloche

sys.path.insert(0, str(cloche.TOP / "tests" / "abuse"))
import arena  # noqa: E402

pytestmark = [pytest.mark.needs("native"), pytest.mark.needs("root")]
BUILD = Path(cloche.binary()).parent / "tests"
NAMESPACES = "pid mnt ipc uts net user cgroup time".split()
GOLDEN = cloche.TOP / "tests" / "golden" / "surface.txt"

# Who joins has two filters on it (the zygote's and the sandbox's), and its parent is outside.
DIFFERENT = {"Seccomp_filters", "PPid"}


class Nest:
    """A driver with a nest and one zygote."""

    def __init__(self, *options):
        self.p = subprocess.Popen([BUILD / "nest-driver", BUILD / "nest-standin", *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                  start_new_session=True)
        assert self.answer() == ["ready"]

    def answer(self):
        line = self.p.stdout.readline()
        assert line, f"the driver has ended: {self.p.wait(10)}"
        return line.decode().rstrip("\n").split("\t")

    def ask(self, *words):
        self.p.stdin.write(("\t".join(map(str, words)) + "\n").encode())
        self.p.stdin.flush()
        return self.answer()

    def cell(self):
        """Number and the init's pid."""
        said, number, pid = self.ask("cell")
        assert said == "cell"
        return int(number), int(pid)

    def join(self, cell, *argv):
        said, _, what = self.ask("join", cell, *argv)
        assert said == "joined", what
        return int(what)

    def line(self, cell):
        return self.ask("line", cell)[2]

    def wait(self, cell):
        """Status of waitpid and the output."""
        said, _, status, _, size = self.ask("wait", cell)
        assert said == "ended"
        return int(status), self.p.stdout.read(int(size)).decode()

    def execute(self, cell, *argv):
        """By the init, as in any sandbox, to the end: (signaled, status) and output."""
        assert self.ask("exec", cell, *argv)[0] == "executed"
        said, _, signaled, status, size = self.ask("result", cell)
        assert said == "result"
        return (int(signaled), int(status)), self.p.stdout.read(int(size)).decode()

    def end(self, cell):
        assert self.ask("end", cell)[0] == "gone"

    def run(self, *argv):
        """In a sandbox of its own, to the end: status and output."""
        n, _ = self.cell()
        self.join(n, *argv)
        result = self.wait(n)
        self.end(n)
        return result

    def close(self):
        self.p.stdin.close()
        assert self.p.wait(30) == 0


@pytest.fixture(scope="module")
def nest(clean):  # which looks at what is left after it
    n = Nest()
    yield n
    n.close()


def namespaces(pid):
    return {k: os.readlink(f"/proc/{pid}/ns/{k}") for k in NAMESPACES}


def process_of(ppid_or_pidns):
    """Host pids of all processes in this pid namespace."""
    found = []
    for d in Path("/proc").glob("[0-9]*"):
        try:
            if os.readlink(d / "ns/pid") == ppid_or_pidns:
                found.append(int(d.name))
        except OSError:
            continue
    return found


def status_of(pid):
    return dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line)


# ---------------------------------------------------------------------------------------------- nothing is weaker


@pytest.mark.needs("gcc")
def test_the_surface_is_the_golden_one():
    n = Nest("in", f"{arena.compiled('surface')}:/workspace/surface")
    status, text = n.run("/workspace/surface")
    n.close()
    assert status == 0
    assert set(text.splitlines()) == set(GOLDEN.read_text().splitlines())


@pytest.mark.needs("gcc")
def test_a_command_of_a_prepared_sandboxs_init_has_the_golden_surface_too():
    n = Nest("in", f"{arena.compiled('surface')}:/workspace/surface")
    cell, _ = n.cell()
    status, text = n.execute(cell, "/workspace/surface")
    n.end(cell)
    n.close()
    assert status == (0, 0)
    assert set(text.splitlines()) == set(GOLDEN.read_text().splitlines())


def test_a_sandbox_whose_init_runs_a_command_cannot_be_joined(nest):
    n, _ = nest.cell()
    assert nest.ask("exec", n, "/bin/sh", "-c", "read x < /dev/zero; sleep 100")[0] == "executed"
    said, _, why = nest.ask("join", n, "/usr/bin/id")
    assert said == "refused" and "Operation not permitted" in why
    nest.end(n)


FACTS = r"""exec 2>&1
grep -vE '^(Vm|Rss|Hugetlb|voluntary|nonvol|Pid|Tgid|NSpid|NStgid|Mems|Cpus|Name|State)' /proc/self/status
cat /proc/self/limits /proc/self/oom_score_adj /proc/self/coredump_filter
sed -E 's/^[0-9]+ [0-9]+ [0-9:]+//; s/uid=[0-9]+,gid=[0-9]+/ids/' /proc/self/mountinfo | sort
sed -E 's/[0-9]{6,}/N/' /proc/self/uid_map /proc/self/gid_map; cut -d: -f2,3 /proc/self/cgroup | sort
umask; nice; hostname; cat /etc/hosts; id; ulimit -a
ls -l /proc/self/ns | sed -E 's/.* ([a-z_]+) -> ([a-z]+):.*/\1 \2/'
ls -lan /dev /tmp /workspace / | awk '{print $1, $3, $4, $NF}' | grep -v ' proc$'
ls /proc | tr -d '0-9\n'; echo; cat /proc/net/dev | wc -l; cat /proc/sys/user/max_user_namespaces 2>&1
python3 -c 'import time, os; print(time.clock_gettime(time.CLOCK_BOOTTIME) < 60, os.getpriority(0, 0), os.getsid(0) == os.getpgid(0), os.getgroups())'
"""


def test_the_facts_are_those_of_a_cold_sandbox(nest):
    status, joined = nest.run("/bin/sh", "-c", FACTS.strip().replace("\n", "; "))
    assert status == 0, joined
    r = cloche.run(["run", "--timeout", "60s", "--", "/bin/sh", "-c", FACTS.strip().replace("\n", "; ")])
    assert r.reason == "exited" and r.exit_code == 0, r
    ours = lambda text: [line for line in text.splitlines() if line.split(":")[0] not in DIFFERENT]  # noqa: E731
    assert ours(joined) == ours(r.out.decode())
    assert "Seccomp_filters:\t2" in joined and len(joined.splitlines()) > 80


def test_who_joins_is_the_sandbox_user_of_a_new_session_and_not_pid_1(nest):
    status, text = nest.run("/bin/sh", "-c", "grep -E '^(Uid|Gid|Groups|NSpid|NSsid|Cap|NoNewPrivs|Seccomp)' /proc/$$/status; ls /proc/$$/fd")
    found = dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)
    assert status == 0
    assert set(found["Uid"].split()) == set(found["Gid"].split()) == {"65534"} and not found["Groups"].strip()
    assert found["NSpid"] == found["NSsid"] == "2"
    assert {v for k, v in found.items() if k.startswith("Cap")} == {"0" * 16}
    assert found["NoNewPrivs"] == "1" and found["Seccomp"] == "2"
    assert [line for line in text.splitlines() if line.isdigit()] == ["0", "1", "2"]


def test_100_siblings_share_no_namespace_with_each_other_the_nest_or_the_host(nest):
    keeper, zygote = map(int, nest.ask("pids")[1:])
    others = [namespaces(p) for p in (os.getpid(), keeper, zygote)]
    others += [namespaces(p) for p in process_of(others[2]["pid"]) if status_of(p)["PPid"] == str(keeper)]
    assert len(others) == 5  # the zygote is one of the last two, too
    seen, cells = {}, []
    for _ in range(100):
        n, init = nest.cell()
        nest.join(n, "/bin/sh", "-c", "echo up; exec sleep 100")
        assert nest.line(n) == "up"
        cells.append(n)
        joined = [p for p in process_of(namespaces(init)["pid"]) if p != init]
        assert len(joined) == 1 and namespaces(joined[0]) == namespaces(init)
        for kind, name in namespaces(init).items():
            assert name not in seen, f"{kind} of {n} is {seen[name]}'s"
            assert all(name != o[kind] for o in others), f"{kind} of {n} is the nest's or the host's"
            seen[name] = n
        uid = status_of(joined[0])["Uid"].split()
        assert uid[0] not in seen and len(set(uid)) == 1
        seen[uid[0]] = n
    for n in cells:
        nest.end(n)


def test_a_joined_sandbox_cannot_be_joined_again(nest):
    n, _ = nest.cell()
    nest.join(n, "/bin/sh", "-c", "echo up; exec sleep 100")
    assert nest.line(n) == "up"
    said, _, why = nest.ask("join", n, "/usr/bin/id")
    assert said == "refused" and "Operation not permitted" in why
    nest.end(n)
    assert nest.run("/bin/echo", "still") == (0, "still\n")


def test_the_zygote_has_no_rights_and_its_sandboxes_inits_three(nest):
    _, zygote = map(int, nest.ask("pids")[1:])
    n, init = nest.cell()
    z, i = status_of(zygote), status_of(init)
    assert {z[k] for k in z if k.startswith("Cap")} == {"0" * 16}
    assert z["NoNewPrivs"] == "1" and z["Seccomp"] == "2" and "0" not in z["Uid"].split()
    assert int(z["NSpid"].split()[-1]) >= 30000
    assert i["CapEff"] == "00000000000000e0" and i["CapBnd"] == "0" * 16 and "0" not in i["Uid"].split()
    assert namespaces(zygote)["user"] not in (namespaces(os.getpid())["user"], namespaces(init)["user"])
    # Nothing writable is shared by all that it forks.
    shared = [m for m in Path(f"/proc/{zygote}/maps").read_text().splitlines() if m.split()[1][3] == "s"]
    assert not shared
    nest.end(n)


# ---------------------------------------------------------------------------------------------- neighbours


def locks(text):
    """{path: (how, inode)}"""
    return {f[0]: (f[1], f[2]) for f in (word.split(":") for word in text.split())}


def test_FS_21_no_lock_of_one_is_seen_by_another(nest):
    """The zygote's program is one inode for all that it forks, and /proc/self/exe leads to it: Landlock alone is in the way."""
    paths = ["/usr/bin/env", "/usr/lib/x86_64-linux-gnu/libc.so.6", "/etc/hosts", "/etc/passwd", "/dev/null", "/dev/zero", "/",
             "/proc", "/workspace", *(f"/proc/self/ns/{k}" for k in NAMESPACES), "/proc/self/exe"]
    cells = [nest.cell()[0] for _ in range(2)]
    found = []
    for n in cells:
        nest.join(n, "@locks", *paths)
        found.append(locks(nest.line(n)))
    for f in found:
        assert {how for path, (how, _) in f.items() if path != "/proc/self/exe"} == {"locked"}, f
        assert f["/proc/self/exe"][0] == "closed"
    same = [p for p in paths if found[0][p][1] == found[1][p][1]]
    assert same == ["/proc/self/exe"], same
    for n in cells:
        nest.end(n)


def test_FS_21_control(nest):
    n, _ = nest.cell()
    nest.join(n, "@locks", "/usr/bin/env", "/usr/bin/env")
    assert "BUSY" in nest.line(n)
    nest.end(n)


def test_RE_01_nothing_of_one_is_found_by_the_next(nest):
    leave = "echo secret > /tmp/x; echo secret > /dev/shm/x; echo secret > /workspace/x; umask 0; ulimit -n 64; sleep 100 >/dev/null 2>&1 & echo left"
    assert nest.run("/bin/sh", "-c", leave) == (0, "left\n")
    status, text = nest.run("/bin/sh", "-c", "ls -A /tmp /workspace; cat /dev/shm/x 2>&1; umask; ulimit -n; env; pgrep sleep")
    assert status == 1 << 8 and "secret" not in text and "0022" in text and "1024" in text.split(), text


def test_neighbours_cannot_reach_each_other(nest):
    """Abstract sockets, loopback, pids."""
    a, _ = nest.cell()
    b, _ = nest.cell()
    listen = ("import socket,time; u=socket.socket(socket.AF_UNIX); u.bind('\\0meet'); u.listen(); t=socket.socket(); "
              "t.bind(('127.0.0.1',4000)); t.listen(); print('up',flush=True); time.sleep(100)")
    nest.join(a, "/usr/bin/python3", "-c", listen)
    assert nest.line(a) == "up"
    reach = ("import socket,os\nfor s,to in ((socket.socket(socket.AF_UNIX),'\\0meet'),(socket.socket(),('127.0.0.1',4000))):\n"
             "  try: s.connect(to); print('REACHED')\n  except OSError as e: print(e.errno)\nprint(sorted(p for p in os.listdir('/proc') if p.isdigit()))")
    nest.join(b, "/usr/bin/python3", "-c", "exec(%r)" % reach)
    status, text = nest.wait(b)
    assert status == 0 and text == "111\n111\n['2']\n"
    nest.end(a)
    nest.end(b)


def test_orphans_are_the_sandboxes_own(nest):
    code = "import os,time\nr,w=os.pipe()\nif os.fork()==0:\n  me=os.getpid()\n  if os.fork()==0:\n    while os.getppid()==me: time.sleep(.001)\n    os.write(w,b'%d'%os.getppid()); os._exit(0)\n  os._exit(0)\nos.wait(); print(os.getpid(), os.read(r,9))"
    assert nest.run("/usr/bin/python3", "-c", "exec(%r)" % code) == (0, "2 b'1'\n")


def test_the_cgroup_folders_let_nobody_in(nest):
    """The parent's cgroup.procs is open to all; to get in takes more."""
    n, init = nest.cell()
    own = re.search(r"^0::(.*)$", Path(f"/proc/{init}/cgroup").read_text(), re.M)[1]
    mount = next(m for m in ("/sys/fs/cgroup/unified", "/sys/fs/cgroup") if Path(m + own).is_dir())
    said = []
    for folder in (Path(mount + own), Path(mount + own).parent):
        code = f"import os; f = os.open('{folder}/cgroup.procs', os.O_WRONLY); os.write(f, b'0')"
        r = subprocess.run([sys.executable, "-c", code], user=65534, group=65534, extra_groups=[], capture_output=True, text=True)
        said.append(r.stderr.splitlines()[-1])
    assert all("Permission denied" in s for s in said), said
    nest.end(n)


# ---------------------------------------------------------------------------------------------- limits and ends


def test_the_memory_limit_ends_who_joined_and_nobody_else():
    n = Nest("memory", "64m")
    status, _ = n.run("/usr/bin/python3", "-c", "bytearray(200 << 20)")
    assert status == 9
    assert n.run("/bin/echo", "on") == (0, "on\n")
    n.close()


def test_the_process_limit_holds():
    n = Nest("pids-limit", "20")
    code = "import os,time\nn=0\ntry:\n  while True:\n    if os.fork()==0: os.close(1); os.close(2); time.sleep(60); os._exit(0)\n    n+=1\nexcept OSError as e: print(n,e.errno)"
    assert n.run("/usr/bin/python3", "-c", "exec(%r)" % code) == (0, "19 11\n")
    n.close()


def test_exit_statuses_are_told(nest):
    for code, status in (("exit 7", 7 << 8), ("kill -TERM $$", 15), ("exit 0", 0)):
        assert nest.run("/bin/sh", "-c", code)[0] == status


def test_a_fork_bomb_is_gone_when_the_sandbox_is(nest):
    n, init = nest.cell()
    pidns = namespaces(init)["pid"]
    nest.join(n, "/bin/sh", "-c", "f() { setsid sh -c : & f & f; }; (f) 2>/dev/null & echo up; sleep 100")
    assert nest.line(n) == "up"
    nest.end(n)
    assert not process_of(pidns)


def test_the_death_of_its_init_ends_who_joined(nest):
    n, init = nest.cell()
    nest.join(n, "/bin/sh", "-c", "echo up; exec sleep 100")
    assert nest.line(n) == "up"
    os.kill(init, signal.SIGKILL)
    assert nest.wait(n)[0] == 9
    nest.end(n)


def test_a_sandbox_that_is_never_joined_is_removed_too(nest):
    n, init = nest.cell()
    pidns = namespaces(init)["pid"]
    nest.end(n)
    assert not process_of(pidns)


def gone(pids, seconds=10):
    """Wait for their ends by pidfd; what is left."""
    left = []
    for fd in pids:
        import select
        if not select.select([fd], [], [], seconds)[0]:
            left.append(fd)
        os.close(fd)
    return left


@pytest.mark.parametrize("who", ["zygote", "keeper", "driver"])
def test_kill_9_of_a_part_leaves_nothing(who, no_leftovers):
    n = Nest()
    keeper, zygote = map(int, n.ask("pids")[1:])
    cell, init = n.cell()
    n.join(cell, "/bin/sh", "-c", "echo up; sleep 100 & exec sleep 100")
    assert n.line(cell) == "up"
    pidns = namespaces(init)["pid"], namespaces(zygote)["pid"], namespaces(keeper)["pid"]
    if who == "zygote":
        os.kill(zygote, signal.SIGKILL)
        time.sleep(0.1)
        assert len(process_of(pidns[0])) == 3, "who has joined lives on"
        n.end(cell)
        assert not process_of(pidns[0])
        n.close()
        return
    fds = [os.pidfd_open(p) for ns in pidns for p in process_of(ns)]
    os.kill(keeper if who == "keeper" else n.p.pid, signal.SIGKILL)
    assert not gone(fds)
    if who == "keeper":
        n.p.stdin.close()
    n.p.wait(30)
    cloche.run(["run", "true"])  # a later run removes the cgroups of the killed


def held(pid):
    """Its descriptors of network namespaces, and of all else."""
    links = []
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            links.append(os.readlink(f"/proc/{pid}/fd/{fd}"))
        except FileNotFoundError:
            pass  # closed meanwhile
    return sum(x.startswith("net:[") for x in links), sum(not x.startswith("net:[") for x in links)


def test_RE_06_a_hundred_leave_nothing(no_leftovers):
    n = Nest()
    keeper = int(n.ask("pids")[1])
    watched = [n.p.pid, keeper, *(p for p in process_of(namespaces(int(n.ask("pids")[2]))["pid"]))]
    n.run()
    time.sleep(0.5)  # a dead sandbox is put away behind its answer
    before = [held(p) for p in watched]
    for _ in range(100):
        assert n.run() == (0, "here\n")

    def as_before(after):
        """But for network namespaces: the keeper's own, and 64 that wait to be used again."""
        return [others for _, others in after] == [others for _, others in before] and all(networks <= 65 for networks, _ in after)
    by = time.monotonic() + 10
    while not as_before(after := [held(p) for p in watched]) and time.monotonic() < by:  # a dead one's is lent until it is put away
        time.sleep(0.1)
    n.close()
    assert as_before(after), (before, after)
