# SPDX-License-Identifier: Apache-2.0
"""The suite can see every layer: with one layer left out (the mutation build, CLOCHE_OFF), named checks turn red.

LAYERS says which. A layer that another one covers is taken out together with it: then the single removal must change
nothing of what is named, and the pair must. Pid namespace, pivot_root and the private mount namespace cannot be switched
off: what stands behind them is in the host's namespaces or nowhere.
"""
import os
from pathlib import Path

import pytest

import arena
import cloche
import test_abuse_files  # noqa: F401  (their attacks are in the registry)
import test_abuse_golden as golden
import test_abuse_kernel  # noqa: F401
import test_abuse_leaks  # noqa: F401
import test_abuse_limits as limits
import test_abuse_network  # noqa: F401
import test_abuse_output  # noqa: F401
import test_abuse_processes  # noqa: F401

pytestmark = [pytest.mark.needs("native"), pytest.mark.needs("root"), pytest.mark.needs("python"), pytest.mark.needs("gcc")]


def attack(key, *names):
    """The facts of an attack that are not as cloche must answer, of those named."""
    def check(layers):
        wrong = arena.REGISTRY[key].refused(layers)
        return [w for w in wrong if not names or w.split(":")[0] in names]
    check.label = f"{key} {', '.join(names)}"
    return check


def host_view(layers):
    """What the host sees of a live command: namespaces it shares, descriptors it has too many, an init that can be traced."""
    found = []
    with arena.weakened(layers or "none") as env:
        p = cloche.start(["run", "--timeout", "30s", "--", "sleep", "25"], env=env, prefix=("unshare", "-u"))
    try:
        pid = golden.command_of(p)
        supervisor = p.pid
        for n in ("user", "pid", "mnt", "net", "ipc", "uts", "cgroup", "time"):
            if os.readlink(f"/proc/{pid}/ns/{n}") == os.readlink(f"/proc/{supervisor}/ns/{n}"):
                found.append(f"namespace {n}")
        init = int(golden.status(pid, "PPid"))
        if os.stat(f"/proc/{init}/environ").st_uid != 0:  # of an undumpable process, the machine's root owns it
            found.append("init is dumpable")
        if golden.status(pid, "NoNewPrivs") != "1":
            found.append("no_new_privs")
        if int(golden.status(pid, "CapBnd"), 16):
            found.append("bounding set")
        if golden.status(pid, "Seccomp") != "2":
            found.append("seccomp")
        if set(golden.status(pid, "Uid").split()) & {"0", "65534"}:
            found.append("uid of the host")
        if set(cloche.fds(pid)) != {0, 1, 2}:
            found.append("descriptors")
        if [l for l in Path(f"/proc/{pid}/limits").read_text().splitlines() if l.startswith("Max locked memory") and l.split()[3] != "0"]:
            found.append("rlimits")
        if limits.cpu_quota(pid) is None:
            found.append("no CPU quota")
    finally:
        p.terminate()
        p.communicate(timeout=20)
    return found


def seen(*what):
    def check(layers):
        return [w for w in host_view(layers) if w in what]
    check.label = f"the host's view: {', '.join(what)}"
    return check


def forks(layers):
    r = arena.inside("import os, time\nn = 0\ntry:\n    for _ in range(100):\n        if os.fork() == 0: time.sleep(3); os._exit(0)\n        n += 1\n"
                     "except OSError: pass\nprint(n)", layers_off=layers or "none")
    return ["100 forks"] if r.out == b"100\n" else []


def heap(layers):
    r = arena.inside(limits.HEAP, layers_off=layers or "none")
    return ["600 MB"] if r.out == b"all\n" else []


forks.label, heap.label = "PR-05 100 forks", "ME-01 600 MB"

# layers left out: checks that must turn red
LAYERS = {
    "seccomp": [attack("KS_02_clone3", "plain"), attack("KS_09_io_uring", "setup"), attack("KS_10_keyrings", "session", "add_key"),
                attack("NE_07_odd_families", "netlink", "families"), attack("IN_03_names_and_sysinfo", "sysinfo"), attack("PR_01_ptrace", "seize child"),
                attack("KS_08_seccomp_itself", "mode"), seen("seccomp")],
    "landlock": [attack("FS_40_landlock_on_the_merged_tree", "ioctl on a device")],
    "userns": [attack("IN_06_ids", "maps", "identity map"), seen("namespace user"), seen("uid of the host")],
    "caps": [attack("KS_20_capabilities", "CapBnd"), seen("bounding set")],
    "ro": [attack("FS_38_mount_table", "writable"), attack("FS_39_device_folder", "create")],
    "masks": [attack("IN_02_machine_wide_proc", "meminfo", "cpuinfo", "others"), attack("KS_19_knobs_of_the_kernel", "sys"),
              attack("CP_08_pressure_triggers")],
    "hidepid": [attack("PR_04_init_memory", "any", "status")],
    "nr_inodes": [attack("DK_02_inodes", "inodes")],
    "net": [attack("NE_01_no_route", "interfaces", "host loopback"), attack("NE_03_metadata_and_the_host", "canary"), seen("namespace net")],
    "ipc": [seen("namespace ipc")],
    "uts": [seen("namespace uts")],
    "time": [seen("namespace time")],
    "cgroupns": [attack("IN_05_control_group_names"), seen("namespace cgroup")],
    "rlimits": [attack("ME_05_locked_memory", "limit"), attack("ME_06_kernel_objects", "open files"), seen("rlimits")],
    "descriptors": [seen("descriptors")],
    "pids,rlimits": [forks],
    "memory": [heap],
    "cpu": [seen("no CPU quota")],
    # Covered by another layer: both go.
    "noexec,landlock": [attack("KS_14_places_to_execute_from", "/tmp", "/dev/shm")],
    "net,landlock": [attack("NE_04_abstract_socket", "canary")],
    "seccomp,forbid_userns": [attack("KS_01_namespaces", "unshare user", "user and net")],
    "seccomp,masks": [attack("KS_10_keyrings", "/proc/keys")],
}
# The single layers whose work another one does as well: alone, these checks stay green (that is the second lock).
COVERED = {
    "noexec": (attack("KS_14_places_to_execute_from", "/tmp", "/dev/shm"), "Landlock gives no right to execute there"),
    "net": (attack("NE_04_abstract_socket", "canary"), "Landlock's scope answers EPERM instead of the namespace"),
    "forbid_userns": (attack("KS_01_namespaces"), "seccomp answers first"),
    "pids": (forks, "RLIMIT_NPROC is eight above the limit"),
    # Not switchable together: the change of ids is what makes init another user at all.
    "dumpable": (seen("init is dumpable"), "the kernel takes the flag away itself when init changes its ids"),
}


@pytest.mark.parametrize("layers", LAYERS)
def test_mutation_turns_red(layers):
    for check in LAYERS[layers]:
        assert check(layers), f"without {layers} nothing is red: {check.label}"


@pytest.mark.parametrize("layer", COVERED)
def test_mutation_is_covered(layer):
    check, why = COVERED[layer]
    red = check(layer)
    if layer == "net":
        assert red == ["canary: 'EPERM', must be 'ECONNREFUSED'"], why
    else:
        assert not red, f"{why}: {red}"


def test_mutation_nothing_off_is_green():
    """The mutation build with nothing left out answers like the real one: what turns red does so for the layer."""
    assert host_view(None) == []
    for key in ("KS_09_io_uring", "IN_06_ids", "KS_20_capabilities", "FS_39_device_folder", "IN_02_machine_wide_proc", "NE_04_abstract_socket",
                "KS_14_places_to_execute_from", "DK_02_inodes"):
        assert arena.REGISTRY[key].refused("none") == []
    for check in (forks, heap):
        assert check(None) == []


def test_mutation_without_no_new_privs_fails_closed():
    """no_new_privs has a lock of its own: without it the kernel takes neither Landlock's rules nor the filter from a
    process without privilege, and the run is refused rather than started with less."""
    with arena.weakened("nnp") as env:
        r = cloche.run(["run", "--", "true"], env=env)
    assert r.reason == "create_failed" and r.stage in ("seccomp", "landlock"), r
    assert "no_new_privs" in host_view("nnp,seccomp")


def test_mutation_every_switch_is_in_the_table():
    """Each layer_is_off("...") of the source is in LAYERS, alone or with the one that covers it, or has its own test."""
    import re
    text = "".join(f.read_text() for f in (cloche.TOP / "src").rglob("*.c"))
    switches = set(re.findall(r'layer_is_off\(\w+, "(\w+)"\)', text)) | set(re.findall(r'\{CLONE_\w+, "(\w+)"', text)) | {"pids", "memory", "cpu"}
    named = {l for layers in LAYERS for l in layers.split(",")} | set(COVERED) | {"nnp"}
    assert switches <= named, switches - named
