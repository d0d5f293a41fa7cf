# SPDX-License-Identifier: Apache-2.0
"""cloche on hosts that this one is not: cgroup v2 as root and as an ordinary user, hybrid, and hosts that lack something.

One VM each; every test that runs in there counts as one here, by its own name. A test that is skipped inside is skipped here.
"""
import json
import subprocess
import sys

import cloche
import machines
import pytest
from machines import RUN, Machine, boot

INTEGRATION = "tests/integration"
ENDS = [f"{INTEGRATION}/test_ends.py", f"{INTEGRATION}/test_lifecycle.py"]
FILES = [f"{INTEGRATION}/test_{n}.py" for n in ("documents", "running", "configuration", "terminal", "ordinary_code", "bad_input")]
NETWORK = "tests/vm/network_inside.py"  # for in there only
# What of the other files depends on the kernel or on who runs it. The rest is the same everywhere.
MORE = ("test_ends or d3_sum or d2_unreachable or d3_root or d2_data or d4_environment or each_call or stdin_passes_through or "
        "both_streams or grandchild or in_file or in_folder or test_out or test_hostile or test_deep or test_venv or test_tmpfs or "
        "exec_from or test_user or nothing_of_the_machines or what_runs_dies or a_killed_run or slots_are or a_cancelled or "
        "standard_streams or multiprocessing or cp_a or bash_pipelines or fork_bomb or writable_volume or read_only_volume or "
        "users_ids or killed_at_random or network_inside")
# Too slow on an emulated processor, or in need of what the guest's /usr has not.
NOT_IN_A_VM = "unlimited or slow_reader or java or many_artifacts or rm_rf or sparse"


# Tests of what root can do, or of the refusal to be rootless on v1: see test_rootless_volumes for the rest.
NOT_ON = {
    "v2-root": "rootless_writable or subordinate",
    "v2-user": "rootless_writable or subordinate or killed_from_outside or init_killed or init_stopped or writable_volume or "
               "read_only_volume or users_ids or test_root__",
    "hybrid-root": "rootless_writable",
}


def machine(name, options, files, expression):
    return Machine(options, files, f"({expression}) and not ({NOT_IN_A_VM}) and not ({NOT_ON[name]})")


MACHINES = {
    "v2-root": machine("v2-root", [], ENDS + FILES + [NETWORK], MORE),
    "v2-user": machine("v2-user", ["--user"], ENDS + FILES + [NETWORK], MORE),
    "hybrid-root": machine("hybrid-root", ["--cgroup", "hybrid"], ENDS, "oom or test_timeout or pids or enforced or init_killed or "
                           "seccomp or fork_bomb or what_runs_dies or cpu_time or exit_status_is"),
    # Prepared sandboxes: another kernel, and a helper that is born in the memory cgroup.
    "v2-nest": Machine([], [f"{INTEGRATION}/test_nest.py"], "not golden and not 100 and not hundred and not fork_bomb"),
}


def pytest_generate_tests(metafunc):
    machines.parametrize(metafunc, MACHINES)


@pytest.fixture(scope="module")
def vm():
    machines.need_vm()


@pytest.fixture(scope="module")
def reports(vm, request):
    yield from machines.reports(request, MACHINES)


def test_inside(reports, machine, inner):
    machines.judge(reports, machine, inner)


# ------------------------------------------------------------------------------------- hosts on which nothing can be promised

PROBE = """
import json, os, subprocess, sys
sys.path.insert(0, "tests/lib")
import cloche
USER = 1000
env = {"HOME": "/home/tester", "XDG_RUNTIME_DIR": "/run/user/1000"}
for d in (env["HOME"], env["XDG_RUNTIME_DIR"]):
    os.makedirs(d, exist_ok=True); os.chown(d, USER, USER)
found = {}
def ask(name, *args, **kw):
    r = cloche.run(["run", *args, "true"], json="--json" in args, **kw)
    found[name] = [r.returncode, r.stdout.decode(), r.stderr.decode()]
def sh(line):
    subprocess.run(line, shell=True, check=True)
ask("works")
ask("user, not delegated", uid=USER, env=env)
ask("user, not delegated, best effort", "--best-effort", "--json", uid=USER, env=env)
sh("sysctl -q user.max_user_namespaces=0")
ask("no userns, root")
ask("no userns, user", "--best-effort", uid=USER, env=env)
sh("sysctl -q user.max_user_namespaces=10000; echo -memory >/sys/fs/cgroup/cloche/cgroup.subtree_control;"
   "echo -memory >/sys/fs/cgroup/cgroup.subtree_control; mount -o remount,ro /sys/fs/cgroup")
ask("read-only")
sh("mount -o remount,rw /sys/fs/cgroup; umount /sys/fs/cgroup")
ask("no cgroups")
ask("no cgroups, best effort", "--best-effort", "--json")
ask("no cgroups, user", uid=USER, env=env)
json.dump(found, sys.stdout)
"""


@pytest.fixture(scope="module")
def refusals(vm):
    got = boot([], ["python3", "-B", "-c", PROBE], 300)
    assert got.returncode == 0, got
    return json.loads(got.stdout)


def test_it_works_there_otherwise(refusals):
    assert refusals["works"] == [0, "", ""]


@pytest.mark.parametrize("name, words", [
    ("user, not delegated", ["cgroup", "this login's cgroup is not delegated to you", "loginctl enable-linger 1000"]),
    ("no userns, root", ["userns", "user namespace", "/proc/sys/user/max_user_namespaces"]),
    ("no userns, user", ["user namespace", "/proc/sys/user/max_user_namespaces"]),
    ("read-only", ["cgroup", "read-only", "/sys/fs/cgroup"]),
    ("no cgroups", ["limits cannot be enforced", "/sys/fs/cgroup", "mount"]),
    ("no cgroups, user", ["limits cannot be enforced", "cgroup"]),
])
def test_refused(refusals, name, words):
    """One line with cause and remedy, status 125, nothing run."""
    status, out, err = refusals[name]
    assert (status, out) == (125, ""), err
    assert err.startswith("cloche: ") and err.count("\n") == 1 and err.endswith("\n"), err
    assert [w for w in words if w.lower() not in err.lower()] == [], err


@pytest.mark.parametrize("name", ["user, not delegated, best effort", "no cgroups, best effort"])
def test_best_effort_says_what_is_missing(refusals, name):
    status, out, err = refusals[name]
    assert (status, err) == (0, "")
    e = json.loads(out)["enforced"]
    assert [e[k] for k in ("memory", "swap", "cpu", "pids")] == ["none"] * 4
    assert e["rootless"] == name.startswith("user") and e["no_new_privs"] and e["network"] == "netns" and e["landlock"] >= 1


def test_rootless_volumes(vm):
    """An ordinary user's volume: read-only it is there, writable it is refused with a way out."""
    script = """
        mkdir -p ~/v && chmod 755 ~ ~/v && echo data >~/v/file && chmod 644 ~/v/file
        build/cloche run -v ~/v:/data:ro -- cat /data/file; echo "read $?"
        build/cloche run -v ~/v:/data:ro -- touch /data/new; echo "write $?"
        build/cloche run -v ~/v:/data -- true; echo "writable $?"
    """
    done = subprocess.run([sys.executable, RUN, "--user", "--", "sh", "-c", script], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, cwd=cloche.TOP, timeout=300)
    assert "data\nread 0\n" in done.stdout, done.stdout
    assert "Read-only file system\nwrite 1\n" in done.stdout, done.stdout
    assert "--in and --out" in done.stdout and done.stdout.rstrip().endswith("writable 125"), done.stdout
