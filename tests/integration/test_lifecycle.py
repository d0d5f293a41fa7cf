# SPDX-License-Identifier: Apache-2.0
"""Made and gone, many times, at once, and when cloche itself is killed. Nothing may stay."""
import os
import random
import signal
import statistics
import subprocess
import threading
import time

import cloche
import pytest
import shape

pytestmark = pytest.mark.needs("native")
SEED = 2
CYCLES, KILLS = 1000, 200


def quick(*args):
    """Exit status and output of one run, with nothing else around it."""
    return subprocess.run([cloche.binary(), *args], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, env=cloche.environment(), timeout=60)


def memory_cgroups():
    """How many memory cgroups the kernel still has, those that nobody sees any more too (v1 only)."""
    for line in open("/proc/cgroups"):
        if line.startswith("memory\t"):
            return int(line.split()[2])
    return 0


def test_a_thousand_cycles(no_leftovers, record_property):
    began = time.monotonic()
    for i in range(CYCLES):
        p = quick("run", "/bin/true")
        assert (p.returncode, p.stdout) == (0, b""), f"run {i}: {p}"
    seconds = time.monotonic() - began
    record_property("ms_per_run", round(seconds / CYCLES * 1000, 2))
    print(f"{CYCLES} runs in {seconds:.1f} s, {seconds / CYCLES * 1000:.2f} ms each")


def test_killed_at_random_moments(no_leftovers, record_property):
    """SIGKILL 0-30 ms after the start; then one ordinary run finds and removes all that was left."""
    rng = random.Random(SEED)
    out = subprocess.DEVNULL
    finished = 0
    for i in range(KILLS):
        p = subprocess.Popen([cloche.binary(), "run", "--timeout", "60s", "sleep", "0.02"], stdin=out, stdout=out, stderr=out,
                             env=cloche.environment())
        time.sleep(rng.uniform(0, 0.03))
        p.kill()
        finished += p.wait() == 0
    record_property("finished_before_the_kill", finished)
    assert finished < KILLS / 2, "the kills come too late to mean something"
    p = quick("run", "echo", "swept")
    assert (p.returncode, p.stdout) == (0, b"swept\n")


@pytest.mark.parametrize("script", ["sleep 300", "trap '' TERM HUP INT; while :; do :; done",
                                    "setsid sleep 300 & sleep 300", "for i in $(seq 20); do sleep 300 & done; wait"])
def test_what_runs_dies_with_its_cloche(script, no_leftovers):
    """Not at the next run: at once."""
    p = cloche.start(["run", "--timeout", "60s", "bash", "-c", script])
    shape.wait_for_process(p.pid, "bash" if "sleep" not in script else "sleep")
    alive = [pid for pid, _ in shape.descendants(p.pid)]
    assert len(alive) >= 2
    fds = [os.pidfd_open(pid) for pid in alive]
    p.kill()
    p.communicate()
    try:
        shape.wait_for(lambda: not [pid for pid in alive if os.path.exists(f"/proc/{pid}")], 2, "the death of the orphans")
    finally:
        for fd in fds:
            os.close(fd)
    assert quick("run", "true").returncode == 0


def test_a_killed_run_blocks_no_slot(no_leftovers):
    """Its number is free again at once: the next run takes the same ids."""
    def uid_of(p):
        return os.stat(f"/proc/{shape.wait_for_process(p.pid, 'sleep')}").st_uid
    uids = set()
    for _ in range(10):
        p = cloche.start(["run", "--timeout", "60s", "sleep", "300"])
        uids.add(uid_of(p))
        p.kill()
        p.communicate()
    assert len(uids) <= 2, f"ten killed runs took {len(uids)} ids"
    assert quick("run", "true").returncode == 0


def test_slots_are_not_shared():
    """No two at a time have the same ids: none can signal or read another."""
    p = [cloche.start(["run", "--timeout", "60s", "sleep", "300"]) for _ in range(8)]
    try:
        uids = [os.stat(f"/proc/{shape.wait_for_process(q.pid, 'sleep')}").st_uid for q in p]
    finally:
        for q in p:
            q.terminate()
        for q in p:
            q.communicate()
    assert len(set(uids)) == 8


def many(workers, runs):
    """RUNS runs by WORKERS at a time: (runs per second, what went wrong)."""
    wrong, left = [], iter(range(runs))
    lock = threading.Lock()

    def work():
        while True:
            with lock:
                i = next(left, None)
            if i is None:
                return
            p = quick("run", "--timeout", "60s", "sh", "-c", f"echo {i}; exit {i % 7}")
            if (p.returncode, p.stdout) != (i % 7, f"{i}\n".encode()):
                wrong.append(p)
    threads = [threading.Thread(target=work) for _ in range(workers)]
    began = time.monotonic()
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return runs / (time.monotonic() - began), wrong


def test_32_at_a_time(no_leftovers, record_property):
    rates = {}
    for workers in (2, 32):
        rates[workers], wrong = many(workers, 320)
        assert not wrong, wrong[0]
    record_property("runs_per_second", {k: round(v, 1) for k, v in rates.items()})
    print(f"runs per second: {rates[2]:.0f} by 2, {rates[32]:.0f} by 32")


def test_first_run_of_many_at_once(tmp_path, must_work):
    """Nothing of cloche's is there yet: 16 that all make the host image and the folders."""
    must_work("root")
    script = """
        mount -t tmpfs -o mode=755 none /var/lib/cloche && mount -t tmpfs -o mode=755 none /run/cloche || exit 9
        for i in $(seq 16); do "$0" run --timeout 60s sh -c "test -r /etc/ssl/certs && echo $i" & done
        wait
    """
    p = subprocess.run(["unshare", "-m", "sh", "-c", script, cloche.binary()], stdin=subprocess.DEVNULL,
                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=cloche.environment(), timeout=120)
    assert sorted(map(int, p.stdout.split())) == list(range(1, 17)), p
    assert p.stderr == b""


BOMB = """
import os, time
while True:
    try:
        os.fork()
    except OSError:
        pass
"""


def test_fork_bomb_is_gone_at_once(no_leftovers, record_property):
    """512 processes under half a processor: from the kill to nobody there."""
    took = []
    times, size, timeout = (3, 512, "3s") if shape.SLOW == 1 else (1, 100, "30s")  # until it is full, and longer
    for _ in range(times):
        r = cloche.run(["python", "--pids-limit", size, "--cpus", "0.5", "--memory", "1g", "--timeout", timeout, "-c", BOMB],
                       timeout=120)
        shape.check_reason(r, "timeout")
        assert "pids" in r.limits_hit and (r.usage["pids_peak"] is None or r.usage["pids_peak"] >= size - 2)
        took.append(r.seconds - r.usage["wall_ms"] / 1000)  # with making the sandbox: about 10 ms
    record_property("ms_after_the_kill", [round(t * 1000) for t in took])
    print(f"gone {', '.join(f'{t * 1000:.0f}' for t in took)} ms after the kill")
    assert statistics.median(took) < shape.SLOW


def test_descriptors_are_not_leaked_into_the_sandbox(tmp_path):
    """Whatever the caller has open."""
    (tmp_path / "secret").write_text("s")
    with open(tmp_path / "secret") as f:
        p = subprocess.run([cloche.binary(), "run", "ls", "-l", "/proc/self/fd"], stdin=subprocess.DEVNULL,
                           stdout=subprocess.PIPE, env=cloche.environment(), pass_fds=[f.fileno()])
    numbers = [line.split()[-3] for line in p.stdout.splitlines()[1:]]
    assert numbers == [b"0", b"1", b"2", b"3"] and b"secret" not in p.stdout  # 3 is ls's own


def test_a_cancelled_cloche_takes_all_with_it(no_leftovers):
    p = [cloche.start(["run", "--timeout", "60s", "sleep", "300"]) for _ in range(8)]
    for q in p:
        shape.wait_for_process(q.pid, "sleep")
    for q in p:
        q.send_signal(signal.SIGTERM)
    for q in p:
        q.communicate(timeout=10)
        assert q.returncode == 130


@pytest.mark.skipif(cloche.cgroup_version() != 1, reason="/proc/cgroups counts them on v1 only")
def test_memory_cgroups_do_not_pile_up():
    """A dead tenant's page cache keeps its cgroup alive unseen; that must not grow without end."""
    before = memory_cgroups()
    for _ in range(50):
        assert quick("run", "sh", "-c", "head -c 1000000 /dev/zero >/workspace/x").returncode == 0
    after = memory_cgroups()
    assert after - before <= 10, f"{before} -> {after}"
