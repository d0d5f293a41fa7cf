# SPDX-License-Identifier: Apache-2.0
"""The other programs, started the way their users do, and removed without a trace."""
import json
import os
import re
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lib"))
import engine  # noqa: E402

# What these programs make outside the folders they are given; removed afterwards where it was not there before.
STRAY = (*engine.STRAY, "/run/crun", "/run/runc")
PARENT = "cloche-bench"


def bwrap():
    """The usual flags: every namespace, the machine's /usr, nothing else; no cgroup, no seccomp filter."""
    return ["bwrap", "--unshare-all", "--die-with-parent", "--cap-drop", "ALL", "--clearenv", "--setenv", "PATH", "/usr/bin:/bin",
            "--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib",
            "--symlink", "usr/lib64", "/lib64", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]


def bundle(folder, argv):
    """An OCI bundle that runs ARGV on the host's /usr under the documents' limits."""
    root = Path(folder, "rootfs")
    if root.exists():
        return folder
    for d in ("usr", "proc", "dev", "tmp"):
        (root / d).mkdir(parents=True)
    for d in ("bin", "lib", "lib64", "sbin"):
        (root / d).symlink_to(f"usr/{d}")
    limits = {"memory": {"limit": 256 << 20, "swap": 256 << 20}, "cpu": {"quota": 50000, "period": 100000}, "pids": {"limit": 64}}
    config = {"ociVersion": "1.0.2", "root": {"path": "rootfs", "readonly": True}, "hostname": "sandbox",
              "process": {"user": {"uid": 65534, "gid": 65534}, "args": argv, "cwd": "/", "env": ["PATH=/usr/bin", "LANG=C.UTF-8"],
                          "noNewPrivileges": True, "capabilities": {}},
              "mounts": [{"destination": "/usr", "type": "bind", "source": "/usr", "options": ["rbind", "ro"]},
                         {"destination": "/proc", "type": "proc", "source": "proc"},
                         {"destination": "/dev", "type": "tmpfs", "source": "tmpfs"},
                         {"destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": ["size=64m"]}],
              "linux": {"namespaces": [{"type": t} for t in ("pid", "mount", "ipc", "uts", "network")],
                        "cgroupsPath": f"/{PARENT}/oci", "resources": limits}}
    Path(folder, "config.json").write_text(json.dumps(config))
    return folder


def cgroup_folders():
    """What is there before: first-level cgroups and the stray folders."""
    return {str(p) for p in Path("/sys/fs/cgroup").glob("*/*") if p.is_dir()} | {p for p in STRAY if os.path.exists(p)}


def forget_folders(before):
    """Remove the cgroups (empty by now) and stray folders that were not there BEFORE."""
    for pattern in (f"*/{PARENT}", PARENT):
        for top in Path("/sys/fs/cgroup").glob(pattern):
            for folder, _, _ in os.walk(top, topdown=False):
                try:
                    os.rmdir(folder)
                except OSError:
                    pass
    if os.geteuid() == 0:
        engine.forget(p for p in STRAY if p not in before)


class Docker(engine.Engine):
    """An engine, and an image made from the host's files."""

    def __init__(self, folder, files):
        super().__init__(folder, PARENT)
        self.files, self.image = files, None
        # the documents' flags
        self.run = [*self.client, "run", "--rm", "-i", "--network", "none", "--read-only", "--memory", "256m", "--memory-swap", "256m",
                    "--cpus", "0.5", "--pids-limit", "64", "--tmpfs", "/tmp:rw,size=64m", "--user", "65534:65534",
                    "--cap-drop", "ALL", "--security-opt", "no-new-privileges"]

    def start(self):
        """None, or why it cannot be measured."""
        return super().start() or self.import_image()

    def import_image(self):
        files = {*self.files, *(os.path.realpath(f) for f in self.files)}
        for f in self.files:
            files |= set(re.findall(r"(/\S+) \(0x", subprocess.run(["ldd", f], capture_output=True, text=True, check=False).stdout))
        files |= {str(p) for p in Path("/usr/lib").glob("python3.*") if p.is_dir()}
        tar = self.folder / "root.tar"
        done = subprocess.run(["tar", "-chf", tar, "--exclude=__pycache__/*.opt-*", "-C", "/", *sorted(f.lstrip("/") for f in files)],
                              capture_output=True, text=True, check=False)
        if not tar.exists():
            return f"tar: {done.stderr.strip()[:200]}"
        done = subprocess.run([*self.client, "import", tar, "bench:1"], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            return f"docker import: {done.stderr.strip()[:200]}"
        self.image = "bench:1"
        return None
