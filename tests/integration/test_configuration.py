# SPDX-License-Identifier: Apache-2.0
"""The configuration file, CLOCHE_* variables and the operator's policy, by what a run and `config show` make of them."""
import json
import os
import subprocess
import time

import cloche
import pytest
import shape
from shape import py, sh

pytestmark = pytest.mark.needs("native", "python")


def shown(**env):
    r = cloche.run(["config", "show", "--json"], json=False, env=env)
    assert r.returncode == 0, r
    return {k: (v["value"], v["origin"]) for k, v in json.loads(r.stdout).items()}


def test_config_defaults():
    s = shown()
    want = {"image": "host", "runtime": "native", "memory": str(256 << 20), "cpus": "0.5", "pids-limit": "64",
            "timeout": "5s", "cpu-time": "off", "idle-timeout": "off", "max-output": "65536", "on-output-limit": "drop",
            "network": "none", "user": "65534:65534", "workdir": "/workspace", "hostname": "sandbox", "profile": "default"}
    assert {k: s[k] for k in want} == {k: (v, "default") for k, v in want.items()}
    assert s["tmpfs"][0] == ("/tmp:size=67108864,inodes=16384 /dev/shm:size=16777216,inodes=1024 "
                             "/workspace:size=268435456,inodes=65536")
    r = cloche.run(["config", "show"], json=False)
    assert r.stdout.startswith(b"# files: /etc/cloche/cloche.yaml") and r.stderr == b""


def test_config_precedence(config):
    config("defaults:\n  memory: 64m\n  timeout: 7s\n  cpus: 1\n")
    s = shown(CLOCHE_TIMEOUT="9s", CLOCHE_PIDS_LIMIT="20", CLOCHE_NONSENSE="1")
    assert s["memory"] == (str(64 << 20), "file") and s["cpus"] == ("1", "file")
    assert s["timeout"] == ("9s", "environment") and s["pids-limit"] == ("20", "environment")
    assert s["max-output"] == ("65536", "default")
    r = py("x = bytearray(b'x') * (100 << 20)", "--timeout", "20s")  # the file's 64m
    shape.check_reason(r, "oom")
    r = py("x = bytearray(b'x') * (100 << 20)", "--timeout", "20s", "--memory", "200m")  # the flag's
    shape.exited(r, 0)
    r = sh("sleep 30", env={"CLOCHE_TIMEOUT": "300ms"})
    shape.check_reason(r, "timeout")
    r = sh("sleep .6", "--timeout", "10s", env={"CLOCHE_TIMEOUT": "300ms"})
    shape.exited(r, 0)


def test_policy_cannot_be_widened(config):
    config("policy:\n  memory: 128m\n  timeout: 10s\n  max-output: 1000\n")
    s = shown()
    assert s["memory"] == (str(128 << 20), "policy") and s["timeout"] == ("5s", "default")
    assert s["max-output"] == ("1000", "policy")
    for args in (["--memory", "129m"], ["--timeout", "11s"], ["--max-output", "unlimited"]):
        r = cloche.run(["run", *args, "true"], json=False)
        shape.plain_error(r, 125, args[0], "operator's policy", "at most")
    r = cloche.run(["run", "true"], json=False, env={"CLOCHE_MEMORY": "1g"})
    shape.plain_error(r, 125, "--memory", "operator's policy", "128m")
    shape.exited(cloche.run(["run", "--memory", "64m", "--timeout", "10s", "true"]), 0)
    r = py("x = bytearray(b'x') * (150 << 20)", "--timeout", "10s")
    shape.check_reason(r, "oom")


def test_policy_of_a_limit_that_is_off(config):
    """off is more than any number."""
    config("policy:\n  cpu-time: 300ms\n")
    r = py("while True: pass", "--timeout", "10s", "--cpus", "1")
    shape.check_reason(r, "cpu_time")


def test_policy_of_swap(config):
    """memory-swap follows memory; it is no way around a maximum."""
    config("policy:\n  memory: 128m\n  memory-swap: 128m\n")
    shape.exited(cloche.run(["run", "true"]), 0)
    r = cloche.run(["run", "--memory-swap", "1g", "true"], json=False)
    shape.plain_error(r, 125, "--memory-swap", "operator's policy")


def test_volume_roots(config, tmp_path):
    (tmp_path / "allowed" / "below").mkdir(parents=True)
    (tmp_path / "allowed-not").mkdir()
    (tmp_path / "allowed" / "link").symlink_to(tmp_path / "allowed-not")
    config(f"policy:\n  volume_roots:\n  - {tmp_path}/allowed/\n")
    for good in ("allowed", "allowed/below", "allowed-not/../allowed"):
        shape.exited(cloche.run(["run", "-v", f"{tmp_path}/{good}:/data:ro", "true"]), 0)
    for bad in ("allowed-not", "allowed/link", "allowed/..", "allowed/../allowed-not", ""):
        r = cloche.run(["run", "-v", f"{tmp_path}/{bad}:/data:ro", "true"], json=False)
        shape.plain_error(r, 125, "--volume", "volume_roots")


@pytest.mark.parametrize("text, words", [
    ("defaults:\n  memori: 1g\n", "unknown setting memori"),
    ("defaults:\n  memory: -1\n", "--memory"),
    ("defaults:\n  volume: /:/x\n", "unknown setting volume"),
    ("default:\n  memory: 1g\n", "key default"),
    ("defaults: 5\n", "must be a mapping"),
    ("- a\n", "must be a mapping"),
    ("policy:\n  network: some\n", "network is none, allow or open"),
    ("policy:\n  memory: lots\n", "lots"),
    ("policy:\n  volume_roots: /srv\n", "volume_roots must be a list"),
    ("uid_range: 0:65536\n", "uid_range 0:65536"),
    ("uid_range: all\n", "uid_range all"),
])
def test_wrong_configuration(config, text, words):
    """Stops everything: nothing runs under a policy that cannot be read."""
    config(text)
    r = cloche.run(["run", "true"], json=False)
    shape.plain_error(r, 125, words)
    assert b"/etc/cloche/cloche.yaml" in r.stderr or b"uid_range" in r.stderr


@pytest.mark.parametrize("text", ["a: [1\n", "defaults:\n  memory: 1g\n  memory: 2g\n", "a: &x 1\nb: *x\n", "\t- x\n", "a: b: c\n",
                                  "defaults: !!python/object:os.system x\n"])
def test_broken_yaml(config, text):
    config(text)
    r = cloche.run(["run", "true"], json=False)
    assert r.returncode == 125 and r.stdout == b""
    assert b"/etc/cloche/cloche.yaml" in r.stderr and r.stderr.startswith(b"cloche: ")
    assert r.stderr.count(b"\n") == 1, r


def test_empty_configuration(config):
    config("")
    shape.exited(cloche.run(["run", "true"]), 0)
    config("# nothing\n")
    shape.exited(cloche.run(["run", "true"]), 0)


def test_unreadable_environment_setting():
    r = cloche.run(["run", "true"], json=False, env={"CLOCHE_MEMORY": "lots"})
    assert r.returncode in (2, 125)
    shape.plain_error(r, r.returncode, "CLOCHE_MEMORY", "lots")


def test_uid_range(config):
    """Ids come from the operator's block, and no two sandboxes at a time have the same."""
    config("uid_range: 1900000000:65536\n")
    p = [cloche.start(["run", "--timeout", "20s", "sleep", "300"]) for _ in range(2)]
    try:
        uids = [os.stat(f"/proc/{shape.wait_for_process(q.pid, 'sleep')}").st_uid for q in p]
    finally:
        for q in p:
            q.terminate()
            q.communicate()
    assert all(1900000000 <= uid < 1900065536 for uid in uids) and uids[0] != uids[1]
