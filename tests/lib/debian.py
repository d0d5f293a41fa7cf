# SPDX-License-Identifier: Apache-2.0
"""The Debian package and fresh Debian systems to install it in, for test_deb.py and test_deb_systemd.py.

A system is a debootstrap tree with what the package says it needs and nothing else of cloche's; it is made once (two
minutes, network) and kept in $CLOCHE_VM_CACHE or ~/.cache/cloche-vm. Tests see it through an overlay and never write to it.
"""
import contextlib
import fcntl
import functools
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import cloche

# Beside what the package needs: an init system with logins, and the tools tests look around with.
MORE = ["systemd-sysv", "dbus", "libpam-systemd", "procps"]


def missing():
    """What keeps these tests from working here, or None."""
    if os.geteuid() != 0:
        return "needs root: debootstrap, mounts"
    for tool in ("debootstrap", "dpkg-deb", "dpkg-shlibdeps"):
        if not shutil.which(tool):
            return f"no {tool}"
    if os_release().get("ID") != "debian":
        return "the package is built for the system it is built on, and that is not Debian"
    return None


def os_release():
    return dict(line.rstrip().replace('"', "").split("=", 1) for line in open("/etc/os-release") if "=" in line)


@functools.cache
def package():
    """Path of the .deb of this tree, as `make deb` builds it."""
    built = subprocess.run(["nice", "-n", "5", cloche.TOP / "packaging" / "deb.sh"], stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, text=True, timeout=900)
    assert built.returncode == 0, built.stdout
    return cloche.TOP / built.stdout.splitlines()[-1]


def field(deb, name):
    return subprocess.run(["dpkg-deb", "-f", deb, name], stdout=subprocess.PIPE, check=True, text=True).stdout.strip()


def repack(deb, folder, version, change=lambda root: None):
    """The same package as another version. change: of the unpacked files."""
    root = Path(folder) / f"root-{version}"
    subprocess.run(["dpkg-deb", "-R", deb, root], check=True)
    control = root / "DEBIAN" / "control"
    control.write_text(re.sub(r"(?m)^Version: .*$", f"Version: {version}", control.read_text()))
    change(root)
    path = Path(folder) / f"cloche_{version}.deb"
    subprocess.run(["dpkg-deb", "-b", root, path], check=True, stdout=subprocess.DEVNULL)
    return path


def system(deb):
    """Path of the kept tree for this package."""
    words = ", ".join(field(deb, name) for name in ("Depends", "Recommends")).split(",")
    packages = sorted({re.sub(r"[ (|].*", "", word.strip()) for word in words} | set(MORE))
    release = os_release()["VERSION_CODENAME"]
    name = hashlib.blake2b(" ".join([release, *packages]).encode(), digest_size=6).hexdigest()
    cache = Path(os.environ.get("CLOCHE_VM_CACHE") or Path.home() / ".cache" / "cloche-vm")
    cache.mkdir(parents=True, exist_ok=True)
    tree = cache / f"debian-{name}"
    with open(cache / "lock-debian", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not tree.exists():
            for old in cache.glob("debian-*"):
                shutil.rmtree(old)
            part = cache / "debian-part"
            made = subprocess.run(["debootstrap", "--variant=minbase", f"--include={','.join(packages)}", release, part],
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=900)
            cloche.need("debootstrap", made.returncode == 0, made.stdout[-500:])
            for waste in ("var/cache/apt/archives", "var/lib/apt/lists"):
                shutil.rmtree(part / waste)
            part.rename(tree)
    return tree


@contextlib.contextmanager
def fresh(deb):
    """A new system as a folder that may be written to."""
    base = Path(tempfile.mkdtemp(prefix="clo-deb.", dir="/var/tmp"))  # of a disk: an overlay's upper keeps owners there
    os.chmod(base, 0o755)
    for name in ("upper", "work", "root"):
        (base / name).mkdir()
    layers = f"lowerdir={system(deb)},upperdir={base}/upper,workdir={base}/work"
    subprocess.run(["mount", "-t", "overlay", "-o", layers, "fresh", base / "root"], check=True)
    try:
        yield base / "root"
    finally:
        subprocess.run(["umount", base / "root"], check=True)
        shutil.rmtree(base)


def inside(root, *argv, check=True, **kw):
    """Run a command in the system: its own mounts, processes and network; what it leaves running dies with it."""
    enter = 'mount -t proc proc "$0/proc" && exec chroot "$0" "$@"'
    env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(["unshare", "-mpfn", "--kill-child", "sh", "-c", enter, root, *argv], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True, env=env, timeout=120, **kw)
    assert not check or done.returncode == 0, done.stdout
    return done
