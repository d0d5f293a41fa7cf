# SPDX-License-Identifier: Apache-2.0
"""A Docker Engine of one's own: private data, socket and cgroup parent, no network; started and ended by its pid."""
import contextlib
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

# What it and containerd make outside the folders they are given.
STRAY = ("/etc/docker/key.json", "/etc/docker", "/opt/containerd", "/run/containerd", "/run/docker")


def forget(folders):
    for path in map(Path, folders):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def traces(folder, parent):
    """What an engine with this folder and cgroup parent has, or has made, on this machine."""
    found = [f"process {p.parent.name}: {p.read_bytes()[:100]!r}" for p in Path("/proc").glob("[0-9]*/cmdline") if _has(p, f"{folder}/".encode())]
    found += [f"mount {m}" for m in Path("/proc/self/mountinfo").read_text().splitlines() if f"{folder}/" in m]
    found += [f"cgroup {p}" for p in (*Path("/sys/fs/cgroup").glob(f"*/{parent}"), *Path("/sys/fs/cgroup").glob(parent))]
    found += [p for p in ("/sys/class/net/docker0", "/var/lib/docker", "/var/lib/containerd/io.containerd.metadata.v1.bolt", *STRAY) if os.path.exists(p)]
    for program in ("iptables-save", "ip6tables-save"):
        if shutil.which(program):
            rules = subprocess.run([program], capture_output=True, text=True, check=False).stdout
            found += [f"{program}: {line}" for line in rules.splitlines() if "DOCKER" in line or "docker" in line]
    return found


def _has(path, text):
    try:
        return text in path.read_bytes()
    except OSError:
        return False


def is_alive(pid):
    try:
        return b") Z " not in Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False


class Engine:
    def __init__(self, folder, parent, *options):
        self.folder, self.parent, self.options = Path(folder), parent, options
        self.daemon, self.containerd = None, None
        self.client = ["docker", "-H", f"unix://{folder}/sock"]

    def start(self):
        """None, or why there is none."""
        if os.geteuid() != 0:
            return "its daemon needs root"
        if not shutil.which("dockerd"):
            return "dockerd is not installed"
        self.folder.mkdir()
        with open(self.folder / "log", "wb") as log:
            self.daemon = subprocess.Popen(
                ["dockerd", "--data-root", self.folder / "data", "--exec-root", self.folder / "exec", "-H", f"unix://{self.folder}/sock",
                 "-p", self.folder / "pid", "--cgroup-parent", f"/{self.parent}", "--bridge=none", "--iptables=false", "--ip-forward=false",
                 "--ip-masq=false", *self.options], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        for _ in range(300):
            if self.daemon.poll() is not None:
                break
            if subprocess.run([*self.client, "version"], capture_output=True, check=False).returncode == 0:
                pid = self.folder / "exec/containerd/containerd.pid"
                self.containerd = int(pid.read_text()) if pid.exists() else None
                return None
            time.sleep(0.1)
        lines = (self.folder / "log").read_text(errors="replace").strip().splitlines()
        return f"dockerd did not start: {lines[-1][:200] if lines else 'it says nothing'}"

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
        for top in (*Path("/sys/fs/cgroup").glob(f"*/{self.parent}"), *Path("/sys/fs/cgroup").glob(self.parent)):
            for folder, _, _ in os.walk(top, topdown=False):
                with contextlib.suppress(OSError):
                    os.rmdir(folder)
        self.daemon = None
