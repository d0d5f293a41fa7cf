# SPDX-License-Identifier: Apache-2.0
"""What images cost: a start from one beside the host image's, and a layer of 200 MB unpacked beside umoci. The store is a
folder of the bench's own, over /var/lib/cloche in a mount namespace."""
import io
import os
import shutil
import statistics
import subprocess
import tarfile
import time
from pathlib import Path

LAYERS, LARGE, REPEATS = 46, 200 << 20, 3
IN_STORE = ["unshare", "--mount", "sh", "-c", 'mount --bind "$0" /var/lib/cloche && exec "$@"']
BUSYBOX = "/bin/busybox"


def layer(path, files):
    """An archive of {name: bytes or a file's path}."""
    with tarfile.open(path, "w") as t:
        for name, data in files.items():
            if isinstance(data, Path):
                t.add(data, name, recursive=False)
                continue
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(data), 0o755
            t.addfile(info, io.BytesIO(data))
    return path


def large_files(size):
    """Real files of this machine, so many bytes."""
    found = {}
    for p in sorted(Path("/usr/lib").rglob("*")):
        if p.is_file() and not p.is_symlink() and p.stat().st_size < 50 << 20:
            found[str(p)[1:]] = p
            size -= p.stat().st_size
            if size <= 0:
                break
    return found


def layout(folder, archives):
    def umoci(*args):
        subprocess.run(["umoci", *args], check=True, capture_output=True)

    umoci("init", "--layout", folder)
    umoci("new", "--image", f"{folder}:t")
    for one in archives:
        umoci("raw", "add-layer", "--image", f"{folder}:t", one)
    return folder


def descendants(pid):
    children = Path(f"/proc/{pid}/task/{pid}/children")
    try:
        below = [int(x) for x in children.read_text().split()]
    except OSError:
        return []
    return below + [y for x in below for y in descendants(x)]


def peak_of(pid):
    try:
        words = Path(f"/proc/{pid}/status").read_text().split()
        return int(words[words.index("VmHWM:") + 1]) / 1024
    except (OSError, ValueError):
        return 0


def measure(argv, environment):
    """Seconds, and MB: the sum of each process's largest resident set."""
    began, peaks = time.monotonic(), {}
    with subprocess.Popen([str(a) for a in argv], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                          stderr=subprocess.PIPE) as p:
        while p.poll() is None:
            for pid in [p.pid, *descendants(p.pid)]:
                peaks[pid] = max(peaks.get(pid, 0), peak_of(pid))
            time.sleep(0.005)
        said = p.stderr.read()
    assert p.returncode == 0, said.decode(errors="replace")[-300:]
    return time.monotonic() - began, sum(peaks.values())


class Images:
    def __init__(self, bench):
        self.bench, self.folder, self.state = bench, bench.folder / "images", bench.folder / "images" / "state"
        self.state.mkdir(parents=True)
        for name in ("cloche-image", "cloche-decode"):
            bench.copy(name)

    def cloche(self, *args):
        return [*IN_STORE, self.state, self.bench.cloche, *args]

    def run(self, *args):
        subprocess.run([str(a) for a in self.cloche(*args)], env=self.bench.environment, check=True, capture_output=True)

    def starts(self):
        busybox = Path(BUSYBOX).read_bytes()
        base = layer(self.folder / "base.tar", {"bin/busybox": busybox})
        more = [layer(self.folder / f"{i}.tar", {f"usr/lib/file{i}": b"x" * 1000, f"etc/file{i}": b"y"}) for i in range(LAYERS - 1)]
        for name, archives in (("one", [base]), ("many", [base, *more])):
            self.run("image", "import", layout(self.folder / name, archives), f"bench-{name}:1")
        argv = ["--", BUSYBOX, "true"]
        titles = {"host image": [], "image of 1 layer": ["--image", "bench-one:1"], f"image of {LAYERS} layers": ["--image", "bench-many:1"]}
        programs = {name: (1, "/dev/null", [self.bench.cloche, "run", *options, *argv]) for name, options in titles.items()}
        # through a shell in the namespace, once: the runner then starts all of them there
        lines = self.bench.runner(self.bench.args.rounds + 1, self.bench.write_list(programs), within=[*IN_STORE, str(self.state)])
        return self.bench.table("run --image", self.bench.take(lines), "host image")

    def unpacking(self):
        archive = layer(self.folder / "large.tar", large_files(LARGE))
        source = layout(self.folder / "large", [archive])
        rows = {"cloche image import": ([], []), "umoci unpack": ([], [])}
        for i in range(REPEATS):
            out = self.folder / f"unpacked{i}"
            for name, argv in (("cloche image import", self.cloche("image", "import", source, f"bench-large:{i}")),
                               ("umoci unpack", ["umoci", "unpack", "--image", f"{source}:t", out])):
                os.sync()
                for values, value in zip(rows[name], measure(argv, self.bench.environment)):
                    values.append(value)
            self.run("image", "rm", f"bench-large:{i}")
            shutil.rmtree(out)
        title = f"a layer of {archive.stat().st_size / 1e6:.0f} MB"
        print(f"\n{title:<34}{'n':>5}{'p50 s':>9}{'MB':>9}")
        result = {}
        for name, (seconds, peak) in rows.items():
            result[name] = {"n": len(seconds), "p50_s": round(statistics.median(seconds), 3), "peak_mb": round(max(peak), 1)}
            print(f"{name:<34}{len(seconds):>5}{result[name]['p50_s']:>9.2f}{result[name]['peak_mb']:>9.1f}", flush=True)
        self.bench.result["tables"][title] = result
        return result


def images(bench):
    """[(words, value, unit, goal, met)], or nothing where it cannot be measured."""
    if os.geteuid() != 0:
        bench.without("images", "its mounts need root")
        return []
    if not bench.wanted("images", "umoci") or not bench.wanted("images", BUSYBOX):
        return []
    one = Images(bench)
    starts, unpacked = one.starts(), one.unpacking()
    many = starts[f"image of {LAYERS} layers"]["over_floor_ms"]
    ours, theirs = unpacked["cloche image import"], unpacked["umoci unpack"]
    ratio = theirs["p50_s"] / ours["p50_s"]
    return [(f"image of {LAYERS} layers: over the host image", many, "ms", "<= 0.5", many <= 0.5),
            ("200 MB unpacked: umoci / cloche", ratio, "x", ">= 1", ratio >= 1),
            ("memory while unpacking", ours["peak_mb"], "MB", "<= 64", ours["peak_mb"] <= 64)]
