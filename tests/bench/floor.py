# SPDX-License-Identifier: Apache-2.0
"""The in-process floor (floor.c): /usr/bin/python3 floor.py MODULE WORKERS SECONDS prints JSON. Root only."""
import ctypes
import json
import os
import sys
import tempfile
import time
from pathlib import Path

GROUPS, NAME = 32, f"cloche-floor-{os.getpid()}"
TOP = Path("/sys/fs/cgroup")
LIMITS = {"memory": {"memory.limit_in_bytes": "268435456"}, "cpu": {"cpu.cfs_quota_us": "50000"}, "pids": {"pids.max": "65"}}


def make_groups(module):
    made = []
    unified = TOP / "unified" if (TOP / "unified/cgroup.procs").exists() else TOP if (TOP / "cgroup.controllers").exists() else None
    trees = [t for t in LIMITS if (TOP / t / "tasks").exists()]
    for i in range(GROUPS):
        fds = []
        for tree in trees:
            folder = TOP / tree / f"{NAME}-{i}"
            folder.mkdir()
            made.append(folder)
            for file, value in LIMITS[tree].items():
                (folder / file).write_text(value)
            fds.append(os.open(folder, os.O_RDONLY))
        v2 = -1
        if unified:
            (unified / f"{NAME}-{i}").mkdir()
            made.append(unified / f"{NAME}-{i}")
            v2 = os.open(made[-1], os.O_RDONLY)
        module.floor_group(v2, (ctypes.c_int * len(fds))(*fds), len(fds))
    return made


def main():
    module = ctypes.PyDLL(os.path.abspath(sys.argv[1]))
    module.floor_serve.restype = ctypes.c_long
    module.floor_serve.argtypes = [ctypes.c_int, ctypes.c_double, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_long]
    workers, seconds = int(sys.argv[2]), float(sys.argv[3])
    folder, made = tempfile.mkdtemp(prefix="clo-floor."), make_groups(module)
    pid = os.fork()
    if pid:  # the one that still sees /sys
        _, status = os.waitpid(pid, 0)
        for group in made:
            group.rmdir()
        os.rmdir(folder)
        sys.exit(os.waitstatus_to_exitcode(status))
    took = (ctypes.c_uint64 * 1000000)()
    module.floor_begin(folder.encode(), workers)
    began = time.perf_counter()
    done = module.floor_serve(workers, seconds, b"print(1)\nimport sys\nsys.stdout.flush()", b"1\n", took, len(took))
    seconds = time.perf_counter() - began
    times = sorted(took[:max(done, 0)])
    used = os.times()
    print(json.dumps({"runs": done, "per_second": done / seconds, "p50_ms": times[len(times) // 2] / 1e6 if times else None,
                      "p99_ms": times[len(times) * 99 // 100] / 1e6 if times else None,
                      "cpu_ms_each": sum(used[:4]) / max(done, 1) * 1e3}), flush=True)
    os._exit(0 if done > 0 else 1)


if __name__ == "__main__":
    main()
