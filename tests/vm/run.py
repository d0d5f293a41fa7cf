#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Run a command in a virtual machine with Debian's 6.1 kernel and the cgroup layout asked for.

The guest sees this host's /usr and the source tree as read-only disk images; nothing it does reaches the host.
It needs no root, no KVM and no network. stdout and stderr come back byte exact and apart; the exit status
is the command's own. 124: the deadline passed; 125: the VM did not get as far as the command; 2: usage.
"""
import argparse
import ctypes
import fcntl
import hashlib
import os
import re
import selectors
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPO = HERE.parent.parent
IMAGE_TIMEOUT_S = 300
SCRATCH_BYTES = 2 << 30
CONSOLE_KEPT_BYTES = 64 << 10
# In this order; dependencies are read from modules.dep.
MODULES = ["virtio_pci", "virtio_blk", "virtio_console", "erofs", "overlay", "loop"]
CGROUP_BOOT = {"v2": "cgroup_no_v1=all", "none": "cgroup_no_v1=all", "hybrid": "",
               "systemd": "cgroup_no_v1=all systemd.unified_cgroup_hierarchy=1 systemd.unit=vm.service"}
CONTROLLERS = "cpu io memory pids cpuset"
# Left out of the image of /usr: large, and no test needs them.
USR_EXCLUDE = [
    r"(lib/(google-cloud-sdk|jvm|llvm-[0-9]+|debug|firmware|postgresql|udev|qemu|dbus-1.0)|share/(doc|man|locale|icons"
    r"|package-lists|pocketsphinx|vim|i18n|help|info|gtk-doc|fonts|OVMF|qemu|polkit-1|cmake-[0-9.]+)"
    r"|libexec/(valgrind|qemu-[^/]*)|local/(go|share/fonts|bin/(docker|terraform))|games|src)(/|$)",
    r"(bin|sbin)/(qemu-[^/]*|docker|dockerd|containerd|ctr|dnet|ovrouter|node_exporter|[^/]*lto-dump[^/]*)$",
    r"lib/x86_64-linux-gnu/(dri|vdpau|mfx|valgrind|ceph)(/|$)",
    r"lib/x86_64-linux-gnu/lib(LLVM|clang|vulkan|mfxhw|avcodec|avfilter|codec2|rsvg|x265|gtk|rbd)[^/]*$",
    r".*\.a$",
]
TREE_EXCLUDE = [r"\.git(/|$)", r".*\.[oa]$", r"(.*/)?__pycache__(/|$)"]
ETC_FROM_HOST = [
    "alternatives", "bash.bashrc", "debian_version", "host.conf", "java*", "ld.so.cache", "ld.so.conf", "ld.so.conf.d",
    "localtime", "login.defs", "mime.types", "nsswitch.conf", "os-release", "perl", "profile", "protocols", "python3*",
    "services", "shells", "ssl/certs", "ssl/openssl.cnf", "timezone",
]
ETC = {
    "passwd": "root:x:0:0:root:/root:/bin/bash\ndaemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin\n"
              "tester:x:1000:1000:tester:/home/tester:/bin/bash\n"
              "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
    "group": "root:x:0:\ndaemon:x:1:\ntty:x:5:\ndisk:x:6:\nshadow:x:42:\ntester:x:1000:\nnogroup:x:65534:\n",
    "shadow": "root:*:19000:0:99999:7:::\ntester:*:19000:0:99999:7:::\n",
    "subuid": "tester:100000:65536\n",
    "subgid": "tester:100000:65536\n",
    "hostname": "cloche-vm\n",
    "hosts": "127.0.0.1 localhost cloche-vm\n::1 localhost\n",
    "resolv.conf": "",
    "fstab": "",
    "machine-id": "c10c4ec10c4ec10c4ec10c4ec10c4e00\n",
}

# With --systemd: PID 1 is the host's systemd and starts one unit, whose process logs the user in by PAM.
SYSTEMD = "/usr/lib/systemd/systemd"
SYSTEMD_FILES = {  # what the session needs: the Debian package it is in
    SYSTEMD: "systemd", "/usr/lib/systemd/systemd-logind": "systemd", "/usr/bin/dbus-daemon": "dbus-daemon",
    "/usr/bin/systemd-run": "systemd", "/usr/lib/systemd/user/dbus.socket": "dbus-user-session",
    "/usr/lib/*/security/pam_systemd.so": "libpam-systemd",
}
SYSTEMD_ETC_FROM_HOST = ["pam.d/systemd-user", "security"]
SYSTEMD_ETC = {
    "passwd": ETC["passwd"] + "messagebus:x:100:102::/nonexistent:/usr/sbin/nologin\n",
    "group": ETC["group"] + "messagebus:x:102:\n",
    "systemd/system/vm.service":
        "[Unit]\nDescription=the test's command\n"
        "Wants=dbus.socket systemd-logind.service systemd-user-sessions.service\n"
        "After=dbus.socket systemd-logind.service systemd-user-sessions.service\nSuccessAction=poweroff-immediate\n"
        "FailureAction=poweroff-immediate\n"
        "[Service]\nType=oneshot\nExecStart=/vm/init login\n"
        "StandardOutput=tty\nStandardError=tty\nTTYPath=/dev/console\n",
    "systemd/system/modprobe@.service": "[Service]\nType=oneshot\nExecStart=/bin/true\n",
    "systemd/system.conf": "[Manager]\nLogTarget=console\nLogLevel=warning\n",
    "pam.d/runuser-l": "auth sufficient pam_rootok.so\naccount required pam_permit.so\n"
                       "session optional pam_loginuid.so\nsession required pam_systemd.so class=user type=tty\n",
    "pam.d/common-account": "account required pam_permit.so\n",
    "pam.d/common-session-noninteractive": "session required pam_permit.so\n",
    "pam.d/other": "auth required pam_deny.so\naccount required pam_deny.so\nsession required pam_deny.so\n",
}


class Unavailable(Exception):
    """This host lacks something the VM cannot do without."""


class BootFailed(Exception):
    """The VM did not get as far as the command."""


def find_kernel():
    """Path and release of the kernel to boot: $CLOCHE_VM_KERNEL or the newest 6.1 cloud kernel in /boot."""
    given = os.environ.get("CLOCHE_VM_KERNEL")
    found = [Path(given)] if given else sorted(
        Path("/boot").glob("vmlinuz-6.1.*-cloud-amd64"), key=lambda p: [int(n) for n in re.findall(r"\d+", p.name)])
    if not found or not os.access(found[-1], os.R_OK):
        raise Unavailable("no readable kernel image /boot/vmlinuz-6.1.*-cloud-amd64 (package linux-image-cloud-amd64)")
    return found[-1], found[-1].name.removeprefix("vmlinuz-")


def find_tool(name, package):
    path = shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    if not path:
        raise Unavailable(f"no {name} (package {package})")
    return path


def missing(systemd=False):
    """What keeps the VM from working on this host, or None."""
    try:
        _, release = find_kernel()
        modules_for(release)
        for name, package in (("qemu-system-x86_64", "qemu-system-x86"), ("mkfs.erofs", "erofs-utils"),
                              ("mke2fs", "e2fsprogs")):
            find_tool(name, package)
        find_busybox()
        for pattern, package in SYSTEMD_FILES.items() if systemd else ():
            if not any(Path("/").glob(pattern.removeprefix("/"))):
                raise Unavailable(f"no {pattern} (package {package})")
    except Unavailable as e:
        return str(e)
    return None


def find_busybox():
    """A statically linked busybox; the initramfs has no libraries."""
    path = Path(find_tool("busybox", "busybox-static"))
    if b"/lib64/ld-linux" in path.read_bytes():
        raise Unavailable(f"{path} is not static (package busybox-static)")
    return path


def modules_for(release):
    """The files of MODULES and what they need, each after its dependencies."""
    root = Path("/lib/modules") / release
    try:
        lines = (root / "modules.dep").read_text().splitlines()
        builtin = {Path(b).name.removesuffix(".ko").replace("-", "_")
                   for b in (root / "modules.builtin").read_text().split()}
    except OSError as e:
        raise Unavailable(f"no modules for kernel {release}: {e}") from e
    needs = {file: deps.split() for file, deps in (line.split(":", 1) for line in lines)}
    by_name = {Path(file).name.split(".ko")[0].replace("-", "_"): file for file in needs}
    order = []
    for name in MODULES:
        if name in builtin:
            continue
        if name not in by_name:
            raise Unavailable(f"kernel {release} has no module {name}")
        for file in [*reversed(needs[by_name[name]]), by_name[name]]:
            if file not in order:
                order.append(file)
    return [root / file for file in order]


class Cpio:
    """An initramfs in the newc format; everything belongs to root."""

    def __init__(self):
        self.parts = []
        self.seen = {""}

    def _entry(self, name, mode, data=b""):
        raw = name.encode() + b"\0"
        head = f"070701{len(self.parts) + 1:08x}{mode:08x}{0:08x}{0:08x}{1:08x}{0:08x}{len(data):08x}" \
               f"{0:08x}{0:08x}{0:08x}{0:08x}{len(raw):08x}{0:08x}".encode() + raw
        self.parts.append(head + b"\0" * (-len(head) % 4) + data + b"\0" * (-len(data) % 4))

    def dir(self, name, mode=0o755):
        if name in self.seen:
            return
        self.dir(name.rpartition("/")[0])
        self.seen.add(name)
        self._entry(name, 0o040000 | mode)

    def file(self, name, data, mode=0o644):
        self.dir(name.rpartition("/")[0])
        self._entry(name, 0o100000 | mode, data.encode() if isinstance(data, str) else data)

    def link(self, name, target):
        self.dir(name.rpartition("/")[0])
        self._entry(name, 0o120000 | 0o777, target.encode())

    def tree(self, name, source):
        """What is readable below source; special files and unreadable ones (keys) are left out."""
        if source.is_symlink():
            self.link(name, os.readlink(source))
        elif source.is_dir():
            self.dir(name)
            for child in sorted(source.iterdir()):
                self.tree(f"{name}/{child.name}", child)
        elif source.is_file() and source.stat().st_mode & 0o004:
            self.file(name, source.read_bytes(), source.stat().st_mode & 0o777)

    def bytes(self):
        self._entry("TRAILER!!!", 0)
        return b"".join(self.parts)


def initramfs(release, conf, command, stdin, systemd):
    """Everything that differs from run to run travels in here."""
    busybox = find_busybox()
    cpio = Cpio()
    for name in ("dev", "bin", "root", "proc"):
        cpio.dir(name)
    cpio.file("bin/busybox", busybox.read_bytes(), 0o755)
    init = (HERE / "init").read_bytes()
    cpio.file("init", init, 0o755)
    cpio.file("vm/init", init, 0o755)
    cpio.file("vm/conf", conf)
    cpio.file("vm/command", command, 0o755)
    cpio.file("vm/stdin", stdin)
    modules = modules_for(release)
    for module in modules:
        cpio.file(f"vm/modules/{module.name}", module.read_bytes())
    cpio.file("vm/modules.list", "".join(f"{m.name}\n" for m in modules))
    cpio.dir("vm/etc")
    for pattern in ETC_FROM_HOST + (SYSTEMD_ETC_FROM_HOST if systemd else []):
        for path in sorted(Path("/etc").glob(pattern)):
            cpio.tree(f"vm/etc/{path.relative_to('/etc')}", path)
    for name, text in (ETC | (SYSTEMD_ETC if systemd else {})).items():
        cpio.file(f"vm/etc/{name}", text, 0o640 if name == "shadow" else 0o644)
    cpio.link("vm/etc/mtab", "/proc/self/mounts")
    return cpio.bytes()


def survey(root, exclude):
    """(fingerprint, unreadable). The fingerprint changes when any file that goes into the image changes: names, sizes,
    times, modes, owners. What this user may not read cannot go in."""
    match = re.compile("|".join(f"(?:^{e})" for e in exclude)).search
    digest = hashlib.blake2b("\n".join(exclude).encode(), digest_size=12)
    unreadable = []
    root_user = os.geteuid() == 0

    def walk(path, relative):
        with os.scandir(path) as it:
            entries = sorted(it, key=lambda e: e.name)
        for entry in entries:
            name = relative + entry.name
            if match(name):
                continue
            if not root_user and not entry.is_symlink() and not os.access(entry.path, os.R_OK):
                unreadable.append(name)
                continue
            s = entry.stat(follow_symlinks=False)
            directory = entry.is_dir(follow_symlinks=False)
            digest.update(f"{name}\0{0 if directory else s.st_size} {s.st_mtime_ns} {s.st_mode} {s.st_uid} {s.st_gid}\n"
                          .encode(errors="surrogateescape"))
            if directory:
                walk(entry.path, name + "/")

    walk(root, "")
    return digest.hexdigest(), unreadable


def make_erofs(image, source, exclude, *options):
    # -x-1: no extended attributes; mkfs would look for them in what is excluded, too
    command = [find_tool("mkfs.erofs", "erofs-utils"), "--quiet", "-x-1", *options,
               *(f"--exclude-regex=^{e}" for e in exclude), str(image), str(source)]
    made = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=IMAGE_TIMEOUT_S)
    if made.returncode:
        raise Unavailable(f"{command[0]} {source}: {made.stderr.decode(errors='replace').strip()}")


def usr_image(release):
    """An open descriptor of the image of /usr, made anew when /usr changed; one image is kept per cache folder."""
    cache = Path(os.environ.get("CLOCHE_VM_CACHE") or
                 Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cloche-vm")
    cache.mkdir(parents=True, exist_ok=True)
    others = [re.escape(d.name) for d in sorted(Path("/usr/lib/modules").glob("*")) if d.name != release]
    exclude = USR_EXCLUDE + ([f"lib/modules/({'|'.join(others)})(/|$)"] if others else [])
    with open(cache / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        fingerprint, unreadable = survey("/usr", exclude)
        image = cache / f"usr-{fingerprint}.erofs"
        if not image.exists():
            for old in [*cache.glob("usr-*.erofs"), *cache.glob("usr-*.part")]:
                old.unlink()  # a VM that runs from it holds it open
            part = image.with_suffix(".part")
            try:
                make_erofs(part, "/usr", exclude, *(f"--exclude-path={name}" for name in unreadable))
                part.rename(image)
            finally:
                part.unlink(missing_ok=True)
        return os.open(image, os.O_RDONLY | os.O_CLOEXEC)


def tree_image(tree, work):
    image = Path(work) / "tree"
    make_erofs(image, tree, TREE_EXCLUDE, "--all-root")
    fd = os.open(image, os.O_RDONLY | os.O_CLOEXEC)
    image.unlink()
    return fd


def scratch_disk(work):
    """An empty ext4: the only file system in the guest that can do idmapped mounts and loop images on 6.1."""
    image = Path(work) / "scratch"
    with open(image, "wb") as f:
        f.truncate(SCRATCH_BYTES)
    subprocess.run([find_tool("mke2fs", "e2fsprogs"), "-q", "-F", "-t", "ext4", "-m", "0",
                    "-E", "lazy_itable_init=1,nodiscard", "-O", "^has_journal", str(image)],
                   check=True, timeout=IMAGE_TIMEOUT_S, stdout=subprocess.DEVNULL)
    fd = os.open(image, os.O_RDWR | os.O_CLOEXEC)
    image.unlink()
    return fd


def guest_command(args, trees):
    """The script the guest starts as the command: environment, folder, user."""
    home, name = ("/home/tester", "tester") if args.user else ("/root", "root")
    env = {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": home, "USER": name,
        "LOGNAME": name, "SHELL": "/bin/bash", "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1",
        "CLOCHE_VM": args.cgroup,
    }
    if args.user and not args.systemd:
        env["XDG_RUNTIME_DIR"] = "/run/user/1000"
    if "CLOCHE_MUST_WORK" in os.environ:
        env["CLOCHE_MUST_WORK"] = os.environ["CLOCHE_MUST_WORK"]
    env.update(args.env)
    cwd = args.cwd or next((os.getcwd() for t in trees if Path(os.getcwd()).is_relative_to(t)), "/")
    words = ["/usr/bin/setsid", "/usr/bin/env", "-i", *(f"{k}={v}" for k, v in env.items())]
    if args.systemd:
        words = ["/usr/bin/env", *(f"{k}={v}" for k, v in env.items())]  # the login made a session and an environment
    elif args.user:
        words += ["/usr/bin/setpriv", "--reuid=1000", "--regid=1000", "--init-groups"]
    first = ["#!/vm/busybox sh", "umask 022", f"cd {shlex.quote(cwd)} || exit 125"]
    if args.systemd:  # without logind, PAM's login succeeds all the same
        first += ["read -r own </proc/self/cgroup",
                  'case $own in */session-*) ;; *) echo "run.py: not in a login session: $own" >&2; exit 125 ;; esac']
    return "\n".join([*first, f"exec {shlex.join(words + args.command)}", ""])


def octal(path):
    return "".join(c if re.match(r"[\w./+-]", c, re.ASCII) else "".join(f"\\0{b:03o}" for b in os.fsencode(c))
                   for c in path)


def guest_conf(args, trees):
    sysctls = args.sysctl + (["user.max_user_namespaces=0"] if args.no_userns else [])
    return "".join(f"{k}={shlex.quote(v)}\n" for k, v in {
        "CGROUP": args.cgroup, "CONTROLLERS": args.controllers, "CGROUP_RO": str(int(args.cgroup_ro)),
        "SYSTEMD": str(int(args.systemd)), "USER_RUN": str(int(args.user)), "SYSCTLS": " ".join(sysctls),
        "TREES": " ".join(octal(str(t)) for t in trees)}.items())


def memfd(name, data):
    fd = os.memfd_create(name, os.MFD_CLOEXEC)
    with open(fd, "wb", closefd=False) as f:
        f.write(data)
    return fd


def die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


class Machine:
    """One qemu; use as a context manager, which kills it. Ports are socket pairs, so no names are left anywhere."""

    PORTS = ("console", "control", "stdout", "stderr")

    def __init__(self, args, kernel, initrd_fd, disk_fds):
        ours, theirs = zip(*(socket.socketpair() for _ in self.PORTS))
        self.ports = dict(zip(self.PORTS, ours))
        fds = {name: s.fileno() for name, s in zip(self.PORTS, theirs)}
        command = [
            find_tool("qemu-system-x86_64", "qemu-system-x86"), "-nodefaults", "-no-user-config", "-display", "none",
            "-no-reboot", "-machine", "pc,usb=off,vmport=off,hpet=off", "-accel", args.accel,
            "-cpu", "max", "-smp", str(args.cpus), "-m", str(args.memory), "-kernel", str(kernel),
            "-initrd", f"/proc/self/fd/{initrd_fd}",
            "-append", f"console=ttyS0 quiet panic=-1 oops=panic mitigations=off rdinit=/init tsc=reliable no_timer_check "
                       f"random.trust_cpu=on {CGROUP_BOOT[args.cgroup]} {args.append}",
            "-chardev", f"socket,id=console,fd={fds['console']}", "-serial", "chardev:console",
            "-device", "virtio-serial-pci",
        ]
        for number, name in enumerate(self.PORTS[1:], 1):
            command += ["-chardev", f"socket,id={name},fd={fds[name]}",
                        "-device", f"virtserialport,chardev={name},nr={number}"]
        for number, fd in enumerate(disk_fds):
            writable = fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY
            command += ["-drive", f"if=none,id=disk{number},format=raw,file.locking=off,file=/proc/self/fd/{fd},"
                                  f"cache=unsafe,readonly={'off' if writable else 'on'}",
                        "-device", f"virtio-blk-pci,drive=disk{number}"]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.PIPE, preexec_fn=die_with_parent,
                                        pass_fds=[*fds.values(), initrd_fd, *disk_fds])
        for s in theirs:
            s.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stderr.close()
        for s in self.ports.values():
            s.close()

    def run(self, deadline, sinks, note):
        """Pass the command's output on until it has ended. Returns its status, None at the deadline."""
        console, control, status = bytearray(), bytearray(), None
        with selectors.DefaultSelector() as selector:
            for name, s in self.ports.items():
                s.setblocking(False)
                selector.register(s, selectors.EVENT_READ, name)
            ended = False
            while selector.get_map():
                left = 0 if ended else deadline - time.monotonic()
                events = selector.select(max(left, 0))
                if not events and ended:
                    return status
                if not events and left <= 0:
                    return None
                for key, _ in events:
                    try:
                        data = key.fileobj.recv(1 << 16)
                    except ConnectionResetError:
                        data = b""
                    if not data:
                        selector.unregister(key.fileobj)
                    elif key.data in sinks:
                        sinks[key.data].write(data)
                        sinks[key.data].flush()
                    elif key.data == "console":
                        console += data
                        del console[:-CONSOLE_KEPT_BYTES]
                    else:
                        control += data
                        *lines, rest = control.split(b"\n")
                        control = rest
                        for line in (bytes(raw).decode() for raw in lines):
                            note(line)
                            if line.startswith("exit "):
                                status = int(line.split()[1])
                            ended = ended or line == "end"
        if status is not None:
            return status
        qemu = self.process.communicate(timeout=10)[1]
        raise BootFailed("the VM ended without the command's status\n" + (qemu + console).decode(errors="replace"))


def run(args, sinks, note):
    """Boot, run args.command, return its status or None at the deadline. Raises Unavailable and BootFailed."""
    kernel, release = find_kernel()
    trees = [Path(t).resolve() for t in args.tree or [REPO]]
    fds = []
    try:
        with tempfile.TemporaryDirectory(prefix="vm-run-") as work:
            fds.append(usr_image(release))
            note("usr image")
            fds.append(scratch_disk(work))
            for tree in trees:
                fds.append(tree_image(tree, work))
        stdin = sys.stdin.buffer.read() if args.stdin else b""
        fds.append(memfd("initramfs", initramfs(release, guest_conf(args, trees), guest_command(args, trees),
                                                stdin, args.systemd)))
        note("images")
        deadline = time.monotonic() + args.timeout
        signal.setitimer(signal.ITIMER_REAL, args.timeout + 5)  # for the case that nobody reads our output
        with Machine(args, kernel, fds[-1], fds[:-1]) as machine:
            return machine.run(deadline, sinks, note)
    finally:
        for fd in fds:
            os.close(fd)


def parse(argv):
    def pair(text):
        key, equals, value = text.partition("=")
        if not equals:
            raise argparse.ArgumentTypeError("wants NAME=VALUE")
        return key, value

    p = argparse.ArgumentParser(prog="run.py", description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--timeout", type=float, default=300, metavar="S", help="of boot and command together (default 300)")
    p.add_argument("--cgroup", choices=[c for c in CGROUP_BOOT if c != "systemd"], default="v2",
                   help="what is at /sys/fs/cgroup; none: nothing is mounted there (default v2)")
    p.add_argument("--controllers", default=CONTROLLERS, metavar="NAMES",
                   help=f"v2: delegated to the command's cgroup (default '{CONTROLLERS}')")
    p.add_argument("--cgroup-ro", action="store_true", help="/sys/fs/cgroup is mounted read-only, as in a container")
    p.add_argument("--user", action="store_true",
                   help="run as uid 1000 with subordinate ids and, on v2, a delegated cgroup")
    p.add_argument("--systemd", action="store_true",
                   help="systemd is PID 1; run as uid 1000 in a login session, whose cgroup is not delegated")
    p.add_argument("--no-userns", action="store_true", help="user.max_user_namespaces=0")
    p.add_argument("--sysctl", action="append", default=[], metavar="K=V", help="set before the command starts")
    p.add_argument("--append", default="", metavar="TEXT", help="more words for the kernel's command line")
    p.add_argument("--tree", action="append", metavar="DIR",
                   help="appears at the same path in the guest, writable there only (default: this repository)")
    p.add_argument("--env", action="append", type=pair, default=[], metavar="K=V")
    p.add_argument("--cwd", metavar="DIR", help="default: the current one if it is in a tree, else /")
    p.add_argument("--stdin", action="store_true", help="pass all of stdin on; without it stdin is empty")
    p.add_argument("--memory", type=int, default=1280, metavar="MIB")
    p.add_argument("--cpus", type=int, default=2)
    p.add_argument("--accel", default="tcg,thread=multi",
                   help="qemu's -accel; kvm where it works (default tcg,thread=multi)")
    p.add_argument("--check", action="store_true", help="only say what this host lacks; exit 0: nothing, 77: something")
    p.add_argument("-v", "--verbose", action="store_true", help="say on stderr what happened when")
    p.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND …")
    args = p.parse_args(argv)
    if args.command[:1] == ["--"]:
        del args.command[0]
    if not args.command and not args.check:
        p.error("no command")
    if args.systemd:
        if args.cgroup != "v2" or args.cgroup_ro or args.controllers != CONTROLLERS:
            p.error("--systemd makes the cgroups itself")
        args.user, args.cgroup = True, "systemd"
    if args.cgroup == "none" and args.cgroup_ro:
        p.error("--cgroup none has nothing to mount read-only")
    return args


def main(argv):
    args = parse(argv)
    start = time.monotonic()
    if args.check:
        reason = missing(args.systemd)
        print(reason or "ready")
        return 77 if reason else 0

    def note(line):
        if args.verbose:
            print(f"[vm {time.monotonic() - start:6.2f} s] {line}", file=sys.stderr, flush=True)

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    signal.signal(signal.SIGHUP, lambda *_: sys.exit(129))
    signal.signal(signal.SIGALRM, lambda *_: sys.exit(124))
    try:
        status = run(args, {"stdout": sys.stdout.buffer, "stderr": sys.stderr.buffer}, note)
    except (Unavailable, BootFailed, subprocess.SubprocessError) as e:
        print(f"run.py: {e}", file=sys.stderr)
        return 125
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is buffered has nowhere to go
        return 141
    if status is None:
        print(f"run.py: stopped at the deadline of {args.timeout:g} s", file=sys.stderr)
        return 124
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
