# SPDX-License-Identifier: Apache-2.0
"""The other programs, started the way their users do, and removed without a trace."""
import json
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

# What these programs make outside the folders they are given; removed afterwards where it was not there before.
STRAY = ("/etc/docker", "/opt/containerd", "/run/containerd", "/run/docker", "/run/crun", "/run/runc")
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
        for path in STRAY:
            if path not in before and os.path.isdir(path):
                shutil.rmtree(path, ignore_errors=True)


def is_alive(pid):
    try:
        return b") Z " not in Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False


class Docker:
    """A daemon of our own - private data, socket and cgroup parent - and an image made from the host's files."""

    def __init__(self, folder, files):
        self.folder, self.files = folder, files
        self.daemon, self.image, self.containerd = None, None, None
        client = ["docker", "-H", f"unix://{folder}/sock"]
        self.client = client
        # the documents' flags
        self.run = [*client, "run", "--rm", "-i", "--network", "none", "--read-only", "--memory", "256m", "--memory-swap", "256m",
                    "--cpus", "0.5", "--pids-limit", "64", "--tmpfs", "/tmp:rw,size=64m", "--user", "65534:65534",
                    "--cap-drop", "ALL", "--security-opt", "no-new-privileges"]

    def start(self):
        """None, or why it cannot be measured."""
        if os.geteuid() != 0:
            return "its daemon needs root"
        self.folder.mkdir()
        with open(self.folder / "log", "wb") as log:
            self.daemon = subprocess.Popen(
                ["dockerd", "--data-root", self.folder / "data", "--exec-root", self.folder / "exec", "-H", f"unix://{self.folder}/sock",
                 "-p", self.folder / "pid", "--cgroup-parent", f"/{PARENT}", "--bridge=none", "--iptables=false", "--ip-forward=false",
                 "--ip-masq=false"], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        for _ in range(300):
            if self.daemon.poll() is not None:
                break
            if subprocess.run([*self.client, "version"], capture_output=True, check=False).returncode == 0:
                return self.import_image()
            time.sleep(0.1)
        lines = (self.folder / "log").read_text(errors="replace").strip().splitlines()
        return f"dockerd did not start: {lines[-1][:200] if lines else 'it says nothing'}"

    def import_image(self):
        pid = self.folder / "exec/containerd/containerd.pid"
        self.containerd = int(pid.read_text()) if pid.exists() else None
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

    def stop(self):
        if self.daemon is None:
            return
        self.daemon.terminate()
        try:
            self.daemon.wait(30)
        except subprocess.TimeoutExpired:
            self.daemon.kill()
            self.daemon.wait()
        for _ in range(50):
            if not self.containerd or not is_alive(self.containerd):
                break
            os.kill(self.containerd, signal.SIGTERM)
            time.sleep(0.1)
        # what a daemon that had to be killed left mounted
        mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
        for mount in reversed([m for m in mounts if m.startswith(f"{self.folder}/")]):
            subprocess.run(["umount", "-l", mount], capture_output=True, check=False)
        self.daemon = None
