# SPDX-License-Identifier: Apache-2.0
"""IN and RE: what a sandbox learns, and what one run leaves for the next. Catalogue 2.10 and 2.11."""
import os
import re
import subprocess
import time
from pathlib import Path

import pytest

import arena
import cloche
from arena import ANY, OTHER, SAME, Attack, define

pytestmark = [pytest.mark.needs("native"), pytest.mark.needs("root"), pytest.mark.needs("python")]

PROC = ("cmdline", "version", "kallsyms", "iomem", "config.gz", "modules", "interrupts", "diskstats", "partitions", "uptime", "loadavg", "meminfo",
        "stat", "zoneinfo", "key-users", "locks", "sys/kernel/random/boot_id", "cpuinfo", "softirqs", "timer_list", "slabinfo", "vmallocinfo",
        "sysvipc/shm", "swaps", "vmstat", "buddyinfo", "keys", "kmsg", "kcore", "cgroups", "mtrr", "crypto", "filesystems", "devices")
RARE = ("kallsyms", "config.gz", "modules", "sysvipc/shm", "keys", "kmsg", "kcore", "slabinfo", "vmallocinfo", "timer_list", "iomem", "mtrr", "crypto",
        "interrupts", "key-users", "zoneinfo", "sys/kernel/random/boot_id", "locks")

ATTACKS = [
    Attack("IN-01", "environment", """
value('names', lambda: sorted(os.environ))
value('canary', lambda: 'canary-' in str(os.environ) or b'canary-' in read('/proc/self/environ', 1 << 20))
fact('init', lambda: read('/proc/1/environ') and None)
""", {"names": ("['HOME', 'JAVA_TOOL_OPTIONS', 'LANG', 'NODE_OPTIONS', 'PATH']", OTHER), "canary": ("False", SAME), "init": ("ENOENT", "ok")},
           "host-root"),
    Attack("IN-02", "machine_wide_proc", f"""
for n in {PROC!r}:
    fact(n, lambda: read('/proc/' + n) and None)
value('others', lambda: sorted(n for n in os.listdir('/proc') if not n.isdigit()))
""", {**{n: ("ENOENT", ANY if n in RARE else "ok") for n in PROC}, "others": ("['self', 'thread-self']", OTHER)}, "off:masks"),
    Attack("IN-03", "names_and_sysinfo", """
value('node', lambda: os.uname().nodename)
value('host name', socket.gethostname)
value('domain', lambda: answer(lambda: sc(63, ctypes.create_string_buffer(400)) and None))
fact('sysinfo', lambda: sc(99, ctypes.create_string_buffer(128)))
value('machine id is not the host', lambda: len(read('/etc/machine-id').strip()) == 32)
""", {"node": ("sandbox", ANY), "host name": ("sandbox", ANY), "domain": ("ok", SAME), "sysinfo": ("ENOSYS", "ok"),
      "machine id is not the host": ("True", ANY)}, "host"),
    Attack("IN-04", "sysfs", """
for n in ('', '/class/dmi/id/product_name', '/class/net', '/block', '/devices/system/cpu/vulnerabilities', '/kernel/notes', '/firmware', '/fs/cgroup'):
    fact('sys' + n, lambda: os.stat('/sys' + n))
""", {"sys": ("ENOENT", "ok"), **{f"sys{n}": ("ENOENT", ANY) for n in ("/class/dmi/id/product_name", "/class/net", "/block",
                                                                       "/devices/system/cpu/vulnerabilities", "/kernel/notes", "/firmware", "/fs/cgroup")}},
           "host"),
    Attack("IN-05", "control_group_names", """
value('paths', lambda: sorted({l.rstrip().split(':', 2)[2] for l in open('/proc/self/cgroup')}))
""", {"paths": ("['/']", OTHER)}, "off:cgroupns"),
    Attack("IN-06", "ids", """
value('maps', lambda: [l.split()[0] + ':' + l.split()[2] for l in open('/proc/self/uid_map')])
value('identity map', lambda: any(l.split()[0] == l.split()[1] for l in open('/proc/self/uid_map')))
value('owners', lambda: sorted({os.lstat(p).st_uid for p in ('/', '/usr', '/etc', '/tmp', '/workspace', '/usr/bin/env', '/etc/passwd')}))
value('groups', os.getgroups)
value('foreign owners', lambda: sorted({os.lstat('/usr/bin/' + n).st_gid for n in os.listdir('/usr/bin')} - {0, 65534}))
""", {"maps": ("['0:1', '65534:1']", OTHER), "identity map": ("False", "True"), "owners": ("[0, 65534]", ANY), "groups": ("[]", SAME),
      "foreign owners": ("[]", OTHER)}, "off:userns"),
    Attack("IN-07", "other_sandboxes", """
text = read('/proc/self/mountinfo', 1 << 20).decode()
value('names', lambda: 'cloche' in text or 'sbx_' in text or 'run_' in text)
value('propagation', lambda: any(w in text for w in ('shared:', 'master:', 'propagate_from:')))
for n in ('locks', 'sysvipc/shm', 'key-users', 'net/unix'):
    fact(n, lambda: read('/proc/' + n) and None)
value('sockets', lambda: sum(1 for _ in open('/proc/self/net/unix')) - 1)
value('tcp', lambda: sum(1 for _ in open('/proc/self/net/tcp')) - 1)
value('processes', lambda: sum(n.isdigit() for n in os.listdir('/proc')))
fact('message queues', lambda: os.listdir('/dev/mqueue') and None)
""", {"names": ("False", SAME), "propagation": ("False", ANY), "locks": ("ENOENT", "ok"), "sysvipc/shm": ("ENOENT", ANY), "key-users": ("ENOENT", ANY),
      "net/unix": ("ENOENT", "ok"), "sockets": ("0", ANY), "tcp": ("0", ANY), "processes": ("1", OTHER), "message queues": ("ENOENT", ANY)}, "host"),
    Attack("IN-10", "kernel_addresses", """
import re
fact('stack', lambda: read('/proc/self/stack') and None)
value('wchan', lambda: read('/proc/self/wchan') in (b'', b'0'))
def frames():
    with open('/proc/self/pagemap', 'rb') as f:
        f.seek(ctypes.addressof(libc_buffer) // 4096 * 8)
        return struct.unpack('Q', f.read(8))[0] & ((1 << 55) - 1)
libc_buffer = ctypes.create_string_buffer(8192)
value('physical address', lambda: answer(lambda: str(frames() != 0)))
value('kernel pointer', lambda: bool(re.search(rb'ffff[89a-f][0-9a-f]{11}', b''.join(read('/proc/self/' + n, 1 << 16) for n in ('syscall', 'stat', 'wchan')))))
fact('dmesg', lambda: sc(103, 3, ctypes.create_string_buffer(64), 64))
fact('kmsg', lambda: os.close(os.open('/dev/kmsg', os.O_RDONLY)))
fact('personality', lambda: sc(135, 0x40000))
""", {"stack": ("EACCES", ANY), "wchan": ("True", SAME), "physical address": ("False", "True"), "kernel pointer": ("False", SAME), "dmesg": ("ENOSYS", "ok"),
      "kmsg": ("ENOENT", ANY), "personality": ("ENOSYS", "ok")}, "host-root"),
]
define(ATTACKS, globals())


def test_IN_01_environment_of_the_caller():
    """Nothing of the caller's, even the names cloche itself reads, unless it is asked for by name."""
    r = cloche.run(["run", "--", "env"], env={"SECRET_OF_MINE": "x", "CLOCHE_NETWORK": "none", "LD_LIBRARY_PATH": "/x"})
    assert os.environ["CANARY"].encode() not in r.out
    assert {l.split(b"=")[0] for l in r.out.splitlines()} == {b"HOME", b"PATH", b"LANG", b"NODE_OPTIONS", b"JAVA_TOOL_OPTIONS"}, r.out


def test_IN_01_environment_control():
    r = cloche.run(["run", "--env", "CANARY", "--", "printenv", "CANARY"])
    assert r.out.decode().strip() == os.environ["CANARY"]


def test_IN_03_machine_id():
    """Made up per sandbox, and not the host's."""
    ids = {cloche.run(["run", "--", "cat", "/etc/machine-id"]).out.strip() for _ in range(3)}
    assert len(ids) == 3
    for f in ("/etc/machine-id", "/var/lib/dbus/machine-id"):
        if os.path.exists(f):
            assert Path(f).read_bytes().strip() not in ids


def test_IN_03_host_name_control():
    """The name that is hidden is another one."""
    assert cloche.run(["run", "--hostname", "other", "--", "uname", "-n"]).out == b"other\n"
    assert os.uname().nodename != "sandbox"


def test_IN_07_two_sandboxes_see_nothing_of_each_other():
    p = cloche.start(["bash", "--timeout", "20s", "-c", "echo ready; exec 3<>/dev/tcp/127.0.0.1/1; read x"])
    try:
        p.stdout.readline()
        r = cloche.run(["bash", "-c", "ls /proc | grep -c '^[0-9]'; cat /proc/net/unix 2>/dev/null; cat /proc/self/mountinfo; ls -di /tmp /workspace"])
    finally:
        p.communicate(b"\n", timeout=20)
    assert b"cloche" not in r.out and b"sbx" not in r.out, r.out


@pytest.mark.parametrize("argv", [["run", "--workdir", "/nonexistent", "--", "true"], ["run", "--", "/nonexistent"], ["run", "--", "/etc/passwd"],
                                  ["run", "--tmpfs", "/x:size=999e", "--", "true"], ["run", "--user", "0:0", "--", "true"]])
def test_IN_08_errors_name_no_path_of_ours(argv):
    r = cloche.run(argv)
    text = r.stdout + r.stderr
    for word in (b"/var/lib/cloche", b"/run/cloche", b"/sys/fs/cgroup", b"mnt/new", b"0x", b".c:"):
        assert word not in text, r


def test_IN_12_inode_numbers_are_said():
    """Device numbers are private (an overlay of our own); that mtimes of /usr are the host's is accepted, and documented."""
    r = cloche.run(["run", "--", "stat", "-c", "%d", "/usr/bin/env"])
    assert int(r.out) != os.stat("/usr/bin/env").st_dev
    text = (cloche.TOP / "SECURITY.md").read_text()
    assert re.search(r"mtime|modification time|inode|install", text), "SECURITY.md does not say it"


def test_IN_13_secrets_at_rest():
    """The environment of a run is in no argument list but the caller's own, in no file of ours."""
    token = "rest-" + os.urandom(8).hex()
    p = cloche.start(["run", "--env", "TOKEN", "--timeout", "20s", "--", "sh", "-c", "echo ready; sleep 5"], env={"TOKEN": token})
    try:
        assert p.stdout.readline() == b"ready\n"
        lines = [(d / "cmdline").read_bytes() for d in Path("/proc").glob("[0-9]*") if (d / "cmdline").exists()]
        found = [f for d in ("/var/lib/cloche", "/run/cloche") for f in Path(d).rglob("*")
                 if f.is_file() and not f.is_symlink() and token.encode() in f.read_bytes()]
    finally:
        p.kill()
        p.communicate()
    assert not any(token.encode() in l for l in lines) and not found
    for d in ("/var/lib/cloche", "/run/cloche"):
        if os.path.isdir(d):
            assert not os.stat(d).st_mode & 0o022


def test_IN_13_secrets_control():
    token = "rest-" + os.urandom(8).hex()
    p = subprocess.Popen(["sh", "-c", f": {token}; sleep 5"])
    try:
        time.sleep(0.1)
        assert token.encode() in Path(f"/proc/{p.pid}/cmdline").read_bytes()
    finally:
        p.kill()
        p.wait()


# ------------------------------------------------------------------------------------------------------------- reuse

LEAVE = arena.PRELUDE + """
for d in ('/tmp', '/workspace', '/dev/shm', '/var/tmp'):
    write(d + '/left', b'secret of the first', os.O_CREAT | os.O_WRONLY)
os.umask(0)
os.chdir('/tmp')
if os.fork() == 0:
    os.setsid()
    time.sleep(999)
os.environ['LEFT'] = 'secret'
say('left', 'yes')
"""
FIND = arena.PRELUDE + """
value('files', lambda: [d for d in ('/tmp', '/workspace', '/dev/shm', '/var/tmp') if os.path.exists(d + '/left')])
value('listed', lambda: sorted(os.listdir('/tmp') + os.listdir('/workspace')))
value('processes', lambda: sum(n.isdigit() for n in os.listdir('/proc')))
value('umask', lambda: oct(os.umask(0)))
value('cwd', os.getcwd)
value('environment', lambda: 'LEFT' in os.environ)
value('uninitialised memory', lambda: b'secret of the first' in read('/proc/self/maps', 1 << 20))
"""
EMPTY = {"files": "[]", "listed": "[]", "processes": "1", "umask": "0o22", "cwd": "/workspace", "environment": "False", "uninitialised memory": "False"}


def test_RE_01_nothing_is_left_for_the_next_run():
    for _ in range(3):
        assert arena.facts(arena.inside(LEAVE).out.decode()) == {"left": "yes"}
        r = arena.inside(FIND)
        assert arena.facts(r.out.decode()) == EMPTY, r


def test_RE_01_control():
    """Inside one run the same is found."""
    r = arena.inside(LEAVE + FIND[len(arena.PRELUDE):])
    got = arena.facts(r.out.decode())
    assert got["files"] != "[]" and got["processes"] == "2" and got["umask"] == "0o0", r


def test_RE_05_files_of_an_old_id_range(tmp_path):
    """Two sandboxes at a time have different host ids, and what a run leaves in a volume belongs to the caller: no
    later holder of the ids owns it."""
    volume = tmp_path / "v"
    volume.mkdir()
    volume.chmod(0o700)
    r = cloche.run(["bash", "-v", f"{volume}:/vol:rw", "-c", "umask 077; echo secret > /vol/f; cat /proc/self/uid_map"])
    assert r.exit_code == 0, r
    assert (volume / "f").stat().st_uid == os.getuid()
    procs = [cloche.start(["bash", "--timeout", "20s", "-c", "cat /proc/self/uid_map; read x"]) for _ in range(3)]
    try:
        owners = {p.stdout.readline().split()[1] for p in procs}
    finally:
        for p in procs:
            p.communicate(b"\n", timeout=20)
    assert len(owners) == 3 and b"0" not in owners, owners


def test_RE_05_control():
    """Without the user namespace all would be the same host user."""
    with arena.weakened("userns") as env:
        r = cloche.run(["run", "--", "cat", "/proc/self/uid_map"], env=env)
    assert r.out.split()[:2] == [b"0", b"0"], r


def test_RE_06_a_killed_cloche_leaves_nothing():
    """SIGKILL to cloche at ten moments of a run: everything is gone when the next run is over."""
    before = cloche.snapshot()
    for n in range(10):
        p = cloche.start(["bash", "--timeout", "20s", "-c", "sleep 99 & sleep 99"])
        time.sleep(0.002 * n)
        p.kill()
        p.communicate()
    assert cloche.run(["run", "--", "true"]).returncode == 0
    left = cloche.leftovers(before, 2)
    mine = [text for text in left if "sleep 99" in text or text.startswith("mount")]
    assert not mine, mine


def test_RE_08_ids_are_random():
    """128 random bits, never the same, the same length."""
    ids = [r.json[k] for r in (cloche.run(["run", "--", "true"]) for _ in range(5)) for k in ("id", "sandbox")]
    assert len(set(ids)) == 10 and all(re.fullmatch(r"(run|sbx)_[0-9a-f]{32}", i) for i in ids), ids
