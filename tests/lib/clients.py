# SPDX-License-Identifier: Apache-2.0
"""Published clients from PyPI and npm, for tests/clients: unmodified, in the build folder, made at first use.

Where a registry cannot be reached, the tests that want it are skipped (capabilities `pypi-clients`, `npm-clients`).
"""
import functools
import hashlib
import os
import shutil
import subprocess

import cloche

HERE = cloche.TOP / "tests" / "clients"


def folder():
    return os.path.join(os.path.dirname(cloche.binary()), "clients")


def _made(where, lists, commands):
    """WHERE, or None and why: made by the commands if it was not made from just these lists."""
    wanted = hashlib.sha256(b"".join(f.read_bytes() for f in lists)).hexdigest()
    stamp = os.path.join(where, "made-from")
    try:
        with open(stamp) as f:
            if f.read() == wanted:
                return where, None
    except OSError:
        pass
    shutil.rmtree(where, ignore_errors=True)
    os.makedirs(where)
    for f in lists:
        shutil.copy(f, where)
    for command in commands:
        try:
            done = subprocess.run(command, cwd=where, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=600)
        except (OSError, subprocess.SubprocessError) as e:
            return None, str(e)
        if done.returncode:
            return None, (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[0 if command[0] == "npm" else -1]
    with open(stamp, "w") as f:
        f.write(wanted)
    return where, None


@functools.cache
def make_python(requirements="requirements.txt"):
    where = os.path.join(folder(), requirements.replace(".txt", "").replace("requirements", "python"))
    return _made(where, [HERE / requirements], [
        ["/usr/bin/python3", "-m", "venv", "env"],
        ["env/bin/pip", "install", "--quiet", "--disable-pip-version-check", "--requirement", requirements]])


@functools.cache
def make_node(name="."):
    """The packages of tests/clients/NAME/package.json."""
    where = os.path.join(folder(), "node" if name == "." else name)
    return _made(where, [HERE / name / "package.json", HERE / name / "package-lock.json"], [["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts"]])


def python(requirements="requirements.txt"):
    """The interpreter with these; skips the calling test without it."""
    where, why = make_python(requirements)
    cloche.need("pypi-clients", where is not None, why and f"packages from PyPI: {why}")
    return os.path.join(where, "env", "bin", "python")


def node():
    """A folder with node_modules; skips the calling test without it."""
    where, why = make_node()
    cloche.need("npm-clients", where is not None, why and f"packages from npm: {why}")
    return where
