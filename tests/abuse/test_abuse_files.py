# SPDX-License-Identifier: Apache-2.0
"""FS: the file system. Catalogue 2.1."""
import hashlib
import os
import stat
import subprocess
import threading
import time
from pathlib import Path

import pytest

import arena
import cloche
from arena import ANY, OTHER, SAME, Attack, define

pytestmark = [pytest.mark.needs("native"), pytest.mark.needs("root"), pytest.mark.needs("python")]

ATTACKS = [
    Attack("FS-01", "host_file", "fact('read', lambda: read('/root/CANARY') and None)",
           {"read": ("EACCES", "ok")}, "host-root"),
    Attack("FS-02", "host_file_by_proc", """
fact('self', lambda: read('/proc/self/root/root/CANARY') and None)
fact('init', lambda: read('/proc/1/root/root/CANARY') and None)
fact('init cwd', lambda: os.listdir('/proc/1/cwd') and None)
""", {"self": ("EACCES", "ok"), "init": ("ENOENT", "ok"), "init cwd": ("ENOENT", "ok")}, "host-root"),
    Attack("FS-03", "above_the_root", """
value('same root', lambda: os.stat('/proc/self/root/..').st_ino == os.stat('/').st_ino)
os.chdir('/'); os.chdir('../../../..')
value('still the root', os.getcwd)
fact('canary', lambda: read('root/CANARY') and None)
fact('old root', lambda: read('/proc/self/cwd/../root/CANARY') and None)
""", {"same root": ("True", SAME), "still the root": ("/", SAME), "canary": ("EACCES", "ok"), "old root": ("EACCES", "ok")},
           "host-root"),
    Attack("FS-04", "chroot_break", """
os.chdir('/')
d = os.open('/', os.O_RDONLY)
box = os.environ['HOME'] + '/box'
os.mkdir(box)
fact('chroot', lambda: os.chroot(box))
os.fchdir(d)
for _ in range(50):
    os.chdir('..')
value('outside of /', lambda: os.stat('.').st_ino != os.stat('/').st_ino)
""", {"chroot": ("EPERM", "ok"), "outside of /": ("False", "True")}, "host-root"),
    Attack("FS-07", "runtime_binary", """
fact('own', lambda: os.close(os.open('/proc/self/exe', os.O_WRONLY)))
fact('init', lambda: os.close(os.open('/proc/1/exe', os.O_RDONLY)))
fact('init write', lambda: os.close(os.open('/proc/1/exe', os.O_WRONLY)))
""", {"own": ("EROFS", OTHER), "init": ("ENOENT", "ok"), "init write": ("ENOENT", OTHER)}, "host-root"),
    Attack("FS-13", "root_file_system_write", """
def make(p):
    os.close(os.open(p, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    os.unlink(p)
for p in ('/.abuse', '/etc/.abuse', '/usr/bin/.abuse', '/root/.abuse', '/var/lib/.abuse', '/run/.abuse'):
    fact(p, lambda: make(p))
fact('passwd', lambda: os.close(os.open('/etc/passwd', os.O_WRONLY)))
fact('chmod', lambda: os.chmod('/etc/passwd', 0o644))
fact('mkdir', lambda: (os.mkdir('/usr/.abuse'), os.rmdir('/usr/.abuse')) and None)
""", {"/.abuse": ("EROFS", "ok"), "/etc/.abuse": ("EROFS", "ok"), "/usr/bin/.abuse": ("EROFS", "ok"),
      "/root/.abuse": ("EACCES", "ok"), "/var/lib/.abuse": ("EROFS", "ok"), "/run/.abuse": ("EROFS", "ok"),
      "passwd": ("EROFS", "ok"), "chmod": ("EROFS", "ok"), "mkdir": ("EROFS", "ok")}, "host-root"),
    Attack("FS-14", "remount", """
def remount():
    if libc.mount(None, b'/', None, 32 | 4096, None) < 0:
        raise OSError(ctypes.get_errno(), '')
attr = ctypes.create_string_buffer(32)
fact('mount', remount)
fact('mount_setattr', lambda: sc(442, -100, b'/', 0, attr, 32))
fact('fsopen', lambda: sc(430, b'tmpfs', 0))
fact('open_tree', lambda: sc(428, -100, b'/', 1))
fact('move_mount', lambda: sc(429, -1, b'', -1, b'', 0))
fact('open_tree_attr', lambda: sc(467, -1, b'', 0x1000, attr, 32))
fact('fsmount', lambda: sc(432, -1, 0, 0))
fact('fspick', lambda: sc(433, -100, b'/', 0))
""", {"mount": ("EPERM", "ok"), "mount_setattr": ("ENOSYS", "ok"), "fsopen": ("ENOSYS", "ok"), "open_tree": ("ENOSYS", "ok"),
      "move_mount": ("ENOSYS", OTHER), "open_tree_attr": ("ENOSYS", OTHER), "fsmount": ("ENOSYS", OTHER),
      "fspick": ("ENOSYS", "ok")}, "host-root"),
    Attack("FS-15", "pivot_and_umount", """
def umount(path, flags):
    if libc.umount2(path, flags) < 0:
        raise OSError(ctypes.get_errno(), '')
fact('pivot_root', lambda: sc(155, b'/', b'/'))
fact('umount /proc', lambda: umount(b'/proc', 2))
fact('umount /tmp', lambda: umount(b'/tmp', 0))
fact('umount /dev', lambda: umount(b'/dev', 2))
fact('no machine-wide /proc', lambda: read('/proc/meminfo') and None)
""", {"pivot_root": ("EPERM", OTHER), "umount /proc": ("EPERM", "ok"), "umount /tmp": ("EPERM", OTHER),
      "umount /dev": ("EPERM", "ok"), "no machine-wide /proc": ("ENOENT", "ok")}, "host-root"),
    Attack("FS-16", "device_nodes", """
home = os.environ['HOME']
fact('memory', lambda: os.mknod(home + '/k', 0o600 | stat.S_IFCHR, os.makedev(1, 1)))
fact('disk', lambda: os.mknod(home + '/v', 0o600 | stat.S_IFBLK, os.makedev(254, 0)))
fact('whiteout', lambda: os.mknod(home + '/w', 0o600 | stat.S_IFCHR, 0))
fact('mknodat', lambda: sc(259, -100, (home + '/m').encode(), 0o600 | stat.S_IFCHR, 0x101))
fact('high bits', lambda: sc(133, (home + '/h').encode(), (1 << 32) | 0o600 | stat.S_IFCHR, 0x101))
fact('fifo', lambda: os.mkfifo(home + '/f'))
""", {"memory": ("EPERM", "ok"), "disk": ("EPERM", "ok"), "whiteout": ("EPERM", "ok"), "mknodat": ("EPERM", "ok"),
      "high bits": ("EPERM", "ok"), "fifo": ("ok", SAME)}, "host-root"),
    Attack("FS-17", "file_handles", """
handle = ctypes.create_string_buffer(struct.pack('Ii', 128, 0) + bytes(128))
mount = ctypes.create_string_buffer(8)
fact('name_to_handle_at', lambda: sc(303, -100, b'/etc', handle, mount, 0))
d = os.open('/', os.O_RDONLY)
fact('open_by_handle_at', lambda: sc(304, d, handle, 0))
""", {"name_to_handle_at": ("ENOSYS", "ok"), "open_by_handle_at": ("ENOSYS", OTHER)}, "host-root"),
    Attack("FS-20", "overlay_attributes", """
f = os.environ['HOME'] + '/f'
write(f, b'', os.O_WRONLY | os.O_CREAT)
for name in ('trusted.overlay.redirect', 'trusted.overlay.opaque', 'security.capability'):
    data = bytes.fromhex('0000000200200000000000000000000000000000') if name[0] == 's' else b'/etc'
    fact(name, lambda: os.setxattr(f, name, data))
fact('user.overlay', lambda: sc(188, f.encode(), b'user.overlay.redirect', b'/etc', 4, 0))
fact('setxattrat', lambda: sc(463, -100, f.encode(), 0, b'user.x', 0, 0))
""", {"trusted.overlay.redirect": ("EOPNOTSUPP", "ok"), "trusted.overlay.opaque": ("EOPNOTSUPP", "ok"),
      "security.capability": ("EOPNOTSUPP", "ok"), "user.overlay": ("EOPNOTSUPP", OTHER), "setxattrat": ("ENOSYS", OTHER)},
           "host-root"),
    Attack("FS-38", "mount_table", """
text = read('/proc/self/mountinfo', 1 << 20).decode()
value('var lib', lambda: '/var/lib' in text)
value('run', lambda: ' /run' in text)
value('count', lambda: len(text.splitlines()))
value('roots', lambda: sorted({l.split()[3] for l in text.splitlines()}))
value('lower', lambda: sorted({o for l in text.splitlines() for o in l.split()[-1].split(',') if 'lowerdir' in o}))
value('writable', lambda: sorted(l.split()[4] for l in text.splitlines() if not l.split()[5].startswith('ro')))
value('without nosuid', lambda: [l.split()[4] for l in text.splitlines() if 'nosuid' not in l.split()[5]])
value('without nodev', lambda: [l.split()[4] for l in text.splitlines() if 'nodev' not in l.split()[5]])
""", {"var lib": ("False", SAME), "run": ("False", SAME), "count": ("7", OTHER), "roots": ("['/']", ANY),
      "lower": ("['lowerdir=mnt/none:mnt/usr', 'lowerdir=mnt/own:mnt/base']", OTHER),
      "writable": ("['/dev/shm', '/tmp', '/workspace']", OTHER), "without nosuid": ("[]", OTHER),
      "without nodev": ("['/dev']", OTHER)}, "host"),
    Attack("FS-39", "device_folder", """
value('entries', lambda: ' '.join(sorted(os.listdir('/dev'))))
value('nodes', lambda: ' '.join(f"{n}={os.major(s.st_rdev)}:{os.minor(s.st_rdev)}" for n in sorted(os.listdir('/dev'))
                                for s in [os.lstat('/dev/' + n)] if stat.S_ISCHR(s.st_mode) or stat.S_ISBLK(s.st_mode)))
fact('create', lambda: os.mknod('/dev/abuse'))
fact('remove', lambda: os.unlink('/dev/abuse-none'))
fact('shm list', lambda: os.listdir('/dev/shm') and None)
fact('shm use', lambda: (write('/dev/shm/abuse', b'x', os.O_CREAT | os.O_RDWR), os.unlink('/dev/shm/abuse')) and None)
""", {"entries": ("fd full null random shm stderr stdin stdout urandom zero", OTHER),
      "nodes": ("full=1:7 null=1:3 random=1:8 urandom=1:9 zero=1:5", OTHER),
      "create": ("EROFS", OTHER), "remove": ("EROFS", OTHER), "shm list": ("EACCES", "ok"), "shm use": ("ok", SAME)}, "host"),
    Attack("FS-40", "landlock_on_the_merged_tree", """
fact('usr', lambda: read('/usr/bin/env', 16) and None)
fact('usr by /bin', lambda: read('/bin/env', 16) and None)
fact('usr by /proc', lambda: read('/proc/self/root/usr/bin/env', 16) and None)
fact('etc', lambda: read('/etc/passwd') and None)
import fcntl
fact('ioctl on a device', lambda: fcntl.ioctl(os.open('/dev/zero', os.O_RDONLY), 0x5413, bytes(8)) and None)
""", {"usr": ("ok", SAME), "usr by /bin": ("ok", SAME), "usr by /proc": ("ok", SAME), "etc": ("ok", SAME),
      "ioctl on a device": ("EACCES", "ENOTTY")}, "off:landlock"),
]
define(ATTACKS, globals())

# ------------------------------------------------------------------------------------------- descriptors, directories


def with_leaks(argv, folder, stdin=b""):
    """Run argv with descriptors 3 to 20, 63, 64 and 200 open on a host folder, as a careless parent would."""
    (folder / "secret").write_text(os.environ["CANARY"])
    opened = " ".join(f"{n}< {folder}" for n in (*range(3, 21), 63, 64, 200))
    return subprocess.run(["bash", "-c", f'exec {opened}; exec "$@"', "bash", *argv], input=stdin, capture_output=True,
                          env=cloche.environment(), timeout=60)


FDS = """
d = os.open('/proc/self/fd', os.O_RDONLY)
for f in sorted(os.listdir(d), key=int):
    try:
        if int(f) != d:
            say(f, os.readlink('/proc/self/fd/' + f).split(':')[0])
            os.fchdir(int(f))
            say(f, 'a directory ' + str(os.listdir('.')))
    except OSError:
        pass
"""


def test_FS_05_leaked_descriptor(tmp_path):
    code = (arena.PRELUDE + FDS).encode()
    done = with_leaks([cloche.binary(), "python", "-"], tmp_path, code)
    assert arena.facts(done.stdout.decode()) == {"0": "pipe", "1": "pipe", "2": "pipe"}, done


def test_FS_05_leaked_descriptor_control(tmp_path):
    done = with_leaks([arena.PYTHON, "-"], tmp_path, (arena.PRELUDE + FDS).encode())
    assert arena.facts(done.stdout.decode())["200"] == "a directory ['secret']"


@pytest.mark.parametrize("number", range(3, 21))
def test_FS_06_working_directory_in_a_leaked_descriptor(tmp_path, number):
    done = with_leaks([cloche.binary(), "run", "--json", "--workdir", f"/proc/self/fd/{number}", "--", "cat", "secret"], tmp_path)
    assert done.returncode in (2, 125), done
    assert os.environ["CANARY"].encode() not in done.stdout + done.stderr


def test_FS_06_working_directory_control(tmp_path):
    done = with_leaks(["sh", "-c", "cd /proc/self/fd/20 && cat secret"], tmp_path)
    assert os.environ["CANARY"].encode() in done.stdout


def test_FS_07_binary_unchanged(tmp_path):
    """#!/proc/self/exe as the command, and a stub that opens it for writing at once: our files stay what they are."""
    before = hashlib.sha256(Path(cloche.binary()).read_bytes()).hexdigest()
    script = tmp_path / "stub"
    script.write_text("#!/proc/self/exe\n")
    script.chmod(0o755)
    r = cloche.run(["run", "--in", f"{script}:/workspace/stub", "--", "/workspace/stub"])
    assert r.reason in ("create_failed", "exited") and r.exit_code != 0, r
    writer = arena.inside(arena.PRELUDE + """
for p in ('/proc/self/exe', '/proc/1/exe', '/proc/self/root/proc/1/exe'):
    fact(p, lambda: os.close(os.open(p, os.O_RDWR)))
""")
    assert set(arena.facts(writer.out.decode()).values()) <= {"EROFS", "ENOENT", "EACCES", "ETXTBSY"}, writer
    assert hashlib.sha256(Path(cloche.binary()).read_bytes()).hexdigest() == before


# ------------------------------------------------------------------------------------------------- between sandboxes

HOLDER = arena.PRELUDE + """
import fcntl
held = []
for p in ('/usr/bin/env', '/etc/passwd', '/dev/null', '/proc/self/ns/uts', '/proc/self/ns/time', '/proc/self/ns/user',
          '/proc/self/ns/net', '/proc/self/ns/mnt', '/proc/self/ns/pid', '/proc/self/ns/ipc', '/proc/self/ns/cgroup', 'eventfd'):
    try:
        f = os.eventfd(0) if p == 'eventfd' else os.open(p, os.O_RDONLY)
        held.append(f)
        fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
        say(p, 'held')
    except OSError as e:
        say(p, errno.errorcode[e.errno])
say('ready', 'yes')
sys.stdin.read() if HOLD else None
time.sleep(20 if HOLD else 0)
"""


class held:
    """A process that holds the locks, in cloche or on the host, while the block runs."""

    def __init__(self, sandbox, *options):
        if sandbox:
            self.p = cloche.start(["python", "--timeout", "30s", *options, "-c", "HOLD = 1" + HOLDER])
        else:
            self.p = subprocess.Popen([arena.PYTHON, "-c", "HOLD = 1" + HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                      stderr=subprocess.PIPE)

    def __enter__(self):
        self.facts = {}
        for line in self.p.stdout:
            k, v = line.decode().rstrip("\n").split("\t")
            self.facts[k] = v
            if k == "ready":
                break
        return self.facts

    def __exit__(self, *_):
        self.p.terminate()
        self.p.communicate(timeout=20)


def test_FS_21_locks_between_sandboxes():
    with held(True) as first:
        second = arena.facts(arena.inside("HOLD = 0" + HOLDER).out.decode())
    assert first["ready"] == second["ready"] == "yes"
    assert {k: v for k, v in second.items() if v not in ("held", "yes")} == {"eventfd": "EAGAIN"}, \
        "only the kernel's one anonymous inode may be shared (FEASIBILITY 7, said in SECURITY.md)"


def test_FS_21_locks_between_sandboxes_without_locks():
    """Profile no-locks: nothing at all can be locked."""
    with held(True, "--profile", "no-locks") as first:
        assert set(first.values()) == {"ENOSYS", "yes"}
        second = arena.facts(arena.inside("HOLD = 0" + HOLDER).out.decode())
    assert {v for v in second.values()} == {"held", "yes"}


def test_FS_21_locks_control():
    with held(False) as first:
        out = subprocess.run([arena.PYTHON, "-"], input=("HOLD = 0" + HOLDER).encode(), capture_output=True).stdout.decode()
    assert first["ready"] == "yes"
    second = arena.facts(out)
    assert second["/usr/bin/env"] == second["/dev/null"] == second["/proc/self/ns/uts"] == second["/proc/self/ns/time"] == "EAGAIN"


WATCHER = arena.PRELUDE + """
fd = libc.inotify_init1(os.O_NONBLOCK)
for p in (b'/usr/bin/dash', b'/usr/bin', b'/etc', b'/dev/null', b'/etc/passwd'):
    libc.inotify_add_watch(fd, p, 0xfff)
say('ready', 'yes')
sys.stdin.readline()
n = 0
try:
    n = len(os.read(fd, 65536))
except BlockingIOError:
    pass
say('events', 'some' if n else 'none')
"""
ACTOR = "exec 3</etc/passwd; read x <&3; echo > /dev/null; dash -c :; ls /usr/bin > /dev/null"


def watch(argv, act):
    p = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=cloche.environment())
    try:
        assert p.stdout.readline() == b"ready\tyes\n", p.stderr.read()
        act()
        out, _ = p.communicate(b"\n", timeout=20)
    finally:
        p.kill()
    return arena.facts(out.decode())["events"]


def test_FS_22_inotify_between_sandboxes():
    def act():
        assert cloche.bash(ACTOR).exit_code == 0
        subprocess.run(["dash", "-c", ACTOR], check=True)  # nor what the host itself does
    assert watch([cloche.binary(), "python", "--timeout", "20s", "-c", WATCHER], act) == "none"


def test_FS_22_inotify_control():
    assert watch([arena.PYTHON, "-c", WATCHER], lambda: subprocess.run(["dash", "-c", ACTOR], check=True)) == "some"


PLACES = ("/dev/shm", "/tmp", "/var/tmp", "/run", "/dev/mqueue", "/workspace", "/var/lock", "/home", "/mnt", "/opt", "/srv")
MARK = """
for d in %r:
    fact(d, lambda: write(d + '/.abuse-mark', b'x', os.O_WRONLY | os.O_CREAT))
say('ready', 'yes')
sys.stdin.readline()
""" % (PLACES,)
SEEK = """
for d in %r:
    value(d, lambda: os.path.exists(d + '/.abuse-mark'))
""" % (PLACES,)


def test_FS_23_shared_places():
    p = cloche.start(["python", "--timeout", "20s", "-c", arena.PRELUDE + MARK])
    try:
        wrote = {}
        for line in p.stdout:
            k, v = line.decode().rstrip("\n").split("\t")
            wrote[k] = v
            if k == "ready":
                break
        seen = arena.facts(arena.inside(arena.PRELUDE + SEEK).out.decode())
        on_host = [d for d in PLACES if os.path.exists(d + "/.abuse-mark")]
    finally:
        p.communicate(b"\n", timeout=20)
    assert {d for d in PLACES if wrote.get(d) == "ok"} == {"/dev/shm", "/tmp", "/var/tmp", "/workspace"}, wrote
    assert set(seen.values()) == {"False"}, seen
    assert not on_host


def test_FS_23_shared_places_control(tmp_path):
    """On the host the second process does see it."""
    mark = Path("/dev/shm/.abuse-mark")
    mark.write_text("x")
    try:
        out, _ = arena.on_host(arena.PRELUDE + SEEK)
    finally:
        mark.unlink()
    assert arena.facts(out)["/dev/shm"] == "True"


# -------------------------------------------------------------------------------------------------- what comes out


def collect(tmp_path, code, *options):
    """Run code with --out; (Result, the folder on the host)."""
    out = tmp_path / "out"
    r = arena.inside(arena.PRELUDE + code, "--out", str(out), *options)
    return r, out


def tree(folder):
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*")) if folder.exists() else []


def contents(folder):
    return b"".join(p.read_bytes() for p in folder.rglob("*") if p.is_file() and not p.is_symlink()) if folder.exists() else b""


LINKS = """
os.symlink('/root/CANARY', '/output/file')
os.symlink('/root', '/output/folder')
os.symlink('../../../../../../root/CANARY', '/output/up')
os.makedirs('/output/d')
os.symlink('/root/CANARY', '/output/d/inner')
write('/output/good', b'good', os.O_CREAT | os.O_WRONLY)
"""


def test_FS_24_links_are_not_followed_out(tmp_path):
    r, out = collect(tmp_path, LINKS)
    assert r.reason == "exited" and r.exit_code == 0, r
    assert not any(p.is_symlink() for p in out.rglob("*"))
    assert os.environ["CANARY"].encode() not in contents(out)
    assert (out / "good").read_bytes() == b"good"
    assert not (out / "file").exists() and not (out / "up").exists()


def test_FS_24_links_control(tmp_path):
    """A tool that follows links does hand out the canary: the link is right."""
    os.symlink("/root/CANARY", tmp_path / "file")
    assert subprocess.run(["cp", "-rL", str(tmp_path / "file"), str(tmp_path / "copy")]).returncode == 0
    assert (tmp_path / "copy").read_text() == os.environ["CANARY"]


def test_FS_25_links_where_artifacts_are_written(tmp_path):
    """The folder on the host holds links left by an earlier, hostile run: nothing is written through them."""
    victim = tmp_path / "victim"
    victim.write_text("untouched")
    victims = tmp_path / "victims"
    victims.mkdir()
    out = tmp_path / "out"
    out.mkdir()
    (out / "x").symlink_to(victim)
    (out / "d").symlink_to(victims)
    r = arena.inside(arena.PRELUDE + """
write('/output/x', b'overwritten', os.O_CREAT | os.O_WRONLY)
os.mkdir('/output/d')
write('/output/d/planted', b'planted', os.O_CREAT | os.O_WRONLY)
""", "--out", str(out))
    assert victim.read_text() == "untouched", r
    assert list(victims.iterdir()) == [], r


def test_FS_25_links_control(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("untouched")
    (tmp_path / "x").symlink_to(victim)
    (tmp_path / "x").write_text("overwritten")
    assert victim.read_text() == "overwritten"


FLIP = """
import threading
write('/output/a', b'plain', os.O_CREAT | os.O_WRONLY)
os.symlink('/root/CANARY', '/output/b')
def flip():
    while True:
        sc(316, -100, b'/output/a', -100, b'/output/b', 2)
if os.fork() == 0:
    os.setsid()
    flip()
n = time.monotonic() + 0.15
while time.monotonic() < n:
    sc(316, -100, b'/output/a', -100, b'/output/b', 2)
say('flipped', 'yes')
"""


def test_FS_26_exchange_race(tmp_path):
    """A daemon exchanges a file and a link while the run ends and is collected: it is dead before we look."""
    for n in range(10):
        r, out = collect(tmp_path / str(n), FLIP) if not (tmp_path / str(n)).mkdir() else None
        assert arena.facts(r.out.decode()) == {"flipped": "yes"}
        assert os.environ["CANARY"].encode() not in contents(out) + r.stdout
        assert not any(p.is_symlink() for p in out.rglob("*"))
        assert contents(out) in (b"plain", b"")


def test_FS_26_exchange_race_on_a_volume(tmp_path):
    """A writable volume is the host's own folder: while the flipper runs, the host's reader that resolves like
    cloche's collector never sees the token; a naive reader does (the control)."""
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    p = cloche.start(["python", "--timeout", "20s", "-v", f"{shared}:/work:rw", "-c",
                      arena.PRELUDE + FLIP.replace("/output", "/work").replace("0.15", "1.5")])
    naive = False
    reads = 0
    try:
        deadline = time.monotonic() + 3
        while time.monotonic() < deadline and p.poll() is None:
            try:
                reads += 1
                naive |= (shared / "a").read_text() == os.environ["CANARY"]
                fd = os.open(shared / "a", os.O_RDONLY | os.O_NOFOLLOW)
                assert os.read(fd, 100) == b"plain"
                os.close(fd)
            except OSError:
                continue
    finally:
        p.communicate(b"", timeout=30)
    assert naive and reads > 1000, f"{reads} reads: the race was never run"


def test_FS_27_hard_links(tmp_path):
    """No link to a file of the image or of the host can be made, and one made inside is exported as a copy."""
    volume = tmp_path / "v"
    volume.mkdir()
    (volume / "file").write_text("host")
    r, out = collect(tmp_path, """
for source in ('/etc/passwd', '/usr/bin/env', '/vol/file', '/proc/self/environ'):
    fact(source, lambda: os.link(source, '/output/s'))
write('/output/one', b'1', os.O_CREAT | os.O_WRONLY)
fact('own', lambda: os.link('/output/one', '/output/two'))
""", "-v", f"{volume}:/vol:ro")
    assert arena.facts(r.out.decode()) == {"/etc/passwd": "EXDEV", "/usr/bin/env": "EXDEV", "/vol/file": "EXDEV",
                                           "/proc/self/environ": "EXDEV", "own": "ok"}, r
    for p in out.iterdir():
        assert p.stat().st_nlink == 1
    assert not (out / "s").exists()


def test_FS_27_hard_links_control(tmp_path):
    (tmp_path / "a").write_text("x")
    os.link(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "a").stat().st_nlink == 2


def test_FS_29_magic_links(tmp_path):
    targets = ["/proc/self/environ", "/proc/1/root/root/CANARY", "/dev/fd/3", "/proc/self/fd/0", "/proc/self/exe", "/proc/self/cwd",
               "/dev/stdin", "/proc/self/mem"]
    r, out = collect(tmp_path, f"for i, t in enumerate({targets!r}): os.symlink(t, f'/output/{{i}}')\n"
                               "os.mkdir('/output/real')\n")
    assert r.exit_code == 0, r
    assert [p for p in tree(out) if p != "real"] == []


def test_FS_29_magic_links_control(tmp_path):
    """cloche's own environment would have been in reach: it holds the canary."""
    assert os.environ["CANARY"] in subprocess.run(["sh", "-c", "cat /proc/self/environ"], capture_output=True, text=True).stdout


NAMES = [b"-rf", b"a b", b"a\nb", b"\x1b]0;x\x07", b"\xff\xfe", b"$(id)", b"`id`", b"..x", b"...", b"x" * 255, b"a\\b", b"%2e%2e", b"C:\\x",
         b"con", b" ", b"*", b"~", b"a:b", b"a,b", "\u202e".encode(), b"'", b'"']


def test_FS_30_hostile_names(tmp_path):
    """Every name a file can have comes out as it is, inside the folder, and the result is valid JSON."""
    r, out = collect(tmp_path, f"for n in {NAMES!r}: write(b'/output/' + n, b'1', os.O_CREAT | os.O_WRONLY)\n")
    assert r.json is not None and r.exit_code == 0, r
    assert {p.name for p in tmp_path.iterdir()} == {"out"}
    came = {os.fsencode(n) for n in os.listdir(out)}
    assert came <= set(NAMES)
    assert {b"-rf", b"a b", b"...", b"..x", b"x" * 255} <= came, f"left behind: {set(NAMES) - came}"
    shown = cloche.run(["run", "--out", str(tmp_path / "again"), "--", "touch", "/output/\x1b]0;pwn\x07"], json=False)
    assert b"\x1b" not in shown.stderr


@pytest.mark.parametrize("destination", ["/../etc/x", "../../etc/x", "/workspace/../../etc/x", "/etc/x", "/usr/x", "/proc/self/x",
                                         "/dev/x", "/", pytest.param("/workspace/" + "a" * 5000, id="5000"), "/root/x", "//etc/x"])
def test_FS_30_path_syntax_of_inputs(tmp_path, destination):
    (tmp_path / "f").write_text("planted")
    r = cloche.run(["run", "--in", f"{tmp_path}/f:{destination}", "--", "true"], json=False)
    assert r.returncode in (2, 125) and r.stderr.startswith(b"cloche: ") and r.stderr.count(b"\n") == 1, r


def test_FS_30_path_syntax_control(tmp_path):
    (tmp_path / "f").write_text("planted")
    r = cloche.run(["run", "--in", f"{tmp_path}/f:/workspace/f", "--", "cat", "f"])
    assert r.out == b"planted", r


def test_FS_34_special_files(tmp_path):
    r, out = collect(tmp_path, """
os.mkfifo('/output/fifo')
s = socket.socket(socket.AF_UNIX); s.bind('/output/socket')
write('/output/setuid', b'1', os.O_CREAT | os.O_WRONLY)
fact('setuid', lambda: os.chmod('/output/setuid', 0o6777))
os.mkdir('/output/dir'); write('/output/dir/f', b'1', os.O_CREAT | os.O_WRONLY); os.chmod('/output/dir', 0o1777)
write('/output/old', b'1', os.O_CREAT | os.O_WRONLY)
fact('mtime', lambda: os.utime('/output/old', (2**33, 2**33)))
write('/output/none', b'1', os.O_CREAT | os.O_WRONLY); os.chmod('/output/none', 0)
""")
    assert r.exit_code == 0 and arena.facts(r.out.decode())["setuid"] == "EPERM", r
    for p in out.rglob("*"):
        st = p.lstat()
        assert stat.S_ISREG(st.st_mode) or stat.S_ISDIR(st.st_mode), p
        assert not st.st_mode & 0o7000, f"{p}: mode {st.st_mode:o}"
        assert (st.st_uid, st.st_gid) == (os.getuid(), os.getgid()), p
    assert {"setuid", "dir", "old"} <= set(tree(out))


def test_FS_34_special_files_control(tmp_path):
    """cp -a keeps all of it."""
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "setuid").write_text("1")
    (tmp_path / "setuid").chmod(0o6777)
    subprocess.run(["cp", "-a", str(tmp_path), str(tmp_path) + ".copy"], check=True)
    copy = Path(str(tmp_path) + ".copy")
    assert stat.S_ISFIFO((copy / "fifo").lstat().st_mode) and (copy / "setuid").stat().st_mode & 0o6000


def test_FS_35_owner_of_what_links_lead_to(tmp_path):
    """Collecting and clearing away chown nothing through a link: folders swapped for links to a host folder."""
    target = tmp_path / "target"
    target.mkdir()
    (target / "f").write_text("x")
    os.chown(target / "f", 1, 1)
    os.chown(target, 1, 1)
    r, out = collect(tmp_path, f"os.symlink({str(target)!r}, '/output/d')\nos.symlink({str(target / 'f')!r}, '/output/f')\n")
    assert r.exit_code == 0, r
    assert ((target / "f").stat().st_uid, target.stat().st_uid, (target / "f").read_text()) == (1, 1, "x")


def test_FS_35_owner_control(tmp_path):
    (tmp_path / "f").write_text("x")
    (tmp_path / "l").symlink_to(tmp_path / "f")
    subprocess.run(["chown", "1:1", str(tmp_path / "l")], check=True)
    assert (tmp_path / "f").stat().st_uid == 1


# --------------------------------------------------------------------------------------------------------- volumes

VOLUME = """
import fcntl
f = '/vol/f'
fact('read', lambda: read(f) and None)
fact('write', lambda: os.close(os.open(f, os.O_WRONLY)))
fact('truncate', lambda: os.truncate(f, 0))
fact('open truncated', lambda: os.close(os.open(f, os.O_RDONLY | os.O_TRUNC)))
fact('chmod', lambda: os.chmod(f, 0o777))
fact('utime', lambda: os.utime(f))
fact('create', lambda: os.mknod('/vol/new'))
fact('remove', lambda: os.unlink(f))
fact('rename', lambda: os.rename(f, '/vol/g'))
fact('flags', lambda: fcntl.ioctl(os.open(f, os.O_RDONLY), 0x40086602, bytes(8)) and None)
fact('link to the host', lambda: read('/vol/link') and None)
fact('folder link to the host', lambda: read('/vol/root/CANARY') and None)
fact('above', lambda: read('/vol/../root/CANARY') and None)
"""


def volume(tmp_path, how):
    v = tmp_path / "v"
    v.mkdir()
    v.chmod(0o777)
    (v / "f").write_text("data")
    (v / "f").chmod(0o666)
    (v / "link").symlink_to("/root/CANARY")
    (v / "root").symlink_to("/root")
    r = arena.inside(arena.PRELUDE + VOLUME, "-v", f"{v}:/vol:{how}")
    return arena.facts(r.out.decode()), v, r


def test_FS_37_read_only_volume(tmp_path):
    got, v, r = volume(tmp_path, "ro")
    want = dict.fromkeys(("write", "truncate", "open truncated", "chmod", "utime", "create", "remove", "rename"), "EROFS")
    assert got == {**want, "read": "ok", "flags": "ENOTTY", "link to the host": "EACCES", "folder link to the host": "EACCES",
                   "above": "EACCES"}, r
    assert (v / "f").read_text() == "data" and sorted(os.listdir(v)) == ["f", "link", "root"]


def test_FS_37_volume_control(tmp_path):
    """Writable, the same acts succeed; links still lead nowhere."""
    got, v, r = volume(tmp_path, "rw")
    assert got["write"] == got["truncate"] == got["create"] == got["rename"] == "ok" or got["remove"] == "ok", r
    assert got["link to the host"] == got["folder link to the host"] == "EACCES", r
    assert os.environ["CANARY"].encode() not in r.stdout


def test_FS_37_volume_of_a_socket_folder(canary):
    """A folder that holds an engine's socket, and a socket itself, are no volumes."""
    for source in ("/run/canary.sock", "/"):
        r = cloche.run(["run", "-v", f"{source}:/vol", "--", "true"], json=False)
        assert r.returncode in (2, 125), r
