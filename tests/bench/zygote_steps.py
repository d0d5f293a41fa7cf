# SPDX-License-Identifier: Apache-2.0
"""What the steps of a prepared Python cost, without isolation: fork, first byte, end. Microseconds, the driver's own
(Python, some 40 of them per step) included. On a quiet machine:

    tests/bench/zygote_steps.py [COUNT]       default 500
"""
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lib"))
import zygote  # noqa: E402

COUNT = int(sys.argv[1]) if len(sys.argv) > 1 else 500
now = time.perf_counter_ns
PANDAS = b"import numpy as np, pandas as pd\nprint(pd.DataFrame({'a': np.arange(3)}).a.sum(), flush=True)\n"
WARM_UP = "import pandas, numpy\nstr(pandas.DataFrame({'x': numpy.arange(2)}).x.sum())"


def show(name, values):
    values = sorted(v / 1000 for v in values)
    print(f"{name:<80}{statistics.median(values):9.0f}{values[int(len(values) * .95)]:9.0f}{values[int(len(values) * .99)]:9.0f}")


def one(z, code, warm):
    """fork answered, waiting, first byte, ended, all from the start of the step before."""
    t = [now()]
    child = z.fork(warm=warm, wait=False)
    t.append(now())
    child.wait_ready()
    t.append(now())
    time.sleep(0.002)  # a child of the pool has waited
    t.append(now())
    os.write(child.stdin, code)
    child.close_stdin()
    child.start()
    os.read(child.stdout, 100)
    t.append(now())
    child.wait()
    t.append(now())
    child.close()
    return t[1] - t[0], t[2] - t[0], t[4] - t[3], t[5] - t[4], z.cpu[child.sequence] * 1000


def steps(z, name, code, count=COUNT):
    for warm in (False, True):
        rows = list(zip(*(one(z, code, warm) for _ in range(count))))
        what = f"{name}, {'warmed' if warm else 'not warmed'}"
        for step, values in zip(("fork answered", "waiting", "first byte after the hand-over", "ended after the first byte", "its CPU"), rows):
            show(f"{what}: {step}", values)


def plain(code, count):
    first, ended = [], []
    for _ in range(count):
        t = now()
        p = subprocess.Popen(["/usr/bin/python3", "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=zygote.ENV)
        p.stdin.write(code)
        p.stdin.close()
        p.stdout.read(1)
        first.append(now() - t)
        p.stdout.read()
        p.wait()
        ended.append(now() - t)
    return first, ended


def memory(z, name, count=50):
    for warm in (False, True):
        held = [z.fork(warm=warm) for _ in range(count)]
        total = 0
        for child in held:
            total += next(int(l.split()[1]) for l in open(f"/proc/{child.pid}/smaps_rollup") if l.startswith("Pss:"))
        print(f"{name}, {'warmed' if warm else 'not warmed'}: PSS of each of {count} that wait {total / count:27.0f} KiB")
        for child in held:
            child.close()
            child.wait()


def main():
    print(f"{'us':<80}{'p50':>9}{'p95':>9}{'p99':>9}")
    with zygote.Zygote() as z:
        steps(z, "print(1)", b"print(1, flush=True)\n")
        steps(z, "print(1), taken down", b"def g(): yield\nx = g(); next(x)\nprint(1, flush=True)\n")
        memory(z, "no modules")
    first, ended = plain(b"print(1, flush=True)\n", min(COUNT, 200))
    show("python3 - from its start: first byte", first)
    show("python3 - from its start: ended", ended)
    began = now()
    with zygote.Zygote(("numpy", "pandas"), warm_up=WARM_UP) as z:
        print(f"numpy and pandas: ready after {(now() - began) / 1e6:.0f} ms")
        steps(z, "numpy and pandas, print(1)", b"import numpy, pandas\nprint(1, flush=True)\n", min(COUNT, 200))
        steps(z, "numpy and pandas, a frame's sum", PANDAS, min(COUNT, 200))
        memory(z, "numpy and pandas")
    first, ended = plain(PANDAS, 5)
    show("python3 -, numpy and pandas: first byte", first)
    show("python3 -, numpy and pandas: ended", ended)


main()
