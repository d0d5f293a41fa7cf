# SPDX-License-Identifier: Apache-2.0
"""Python packages that Debian does not have: a virtual environment in the build folder, from tests/requirements.txt.

Nothing of it is imported into the tests themselves; they run its programs. Made at first use, again when the list of
packages changes. Where PyPI cannot be reached, the tests that want it are skipped (capability `pypi`).
"""
import hashlib
import os
import subprocess

import cloche

LIST = cloche.TOP / "tests" / "requirements.txt"


def folder():
    return os.path.join(os.path.dirname(cloche.binary()), "pydeps")


def make():
    """The folder of its programs, or None and why."""
    where, wanted = folder(), hashlib.sha256(LIST.read_bytes()).hexdigest()
    stamp = os.path.join(where, "made-from")
    try:
        with open(stamp) as f:
            if f.read() == wanted:
                return os.path.join(where, "bin"), None
    except OSError:
        pass
    for command in (["/usr/bin/python3", "-m", "venv", "--clear", where],
                    [os.path.join(where, "bin", "pip"), "install", "--quiet", "--disable-pip-version-check",
                     "--requirement", str(LIST)]):
        try:
            done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=300)
        except (OSError, subprocess.SubprocessError) as e:
            return None, str(e)
        if done.returncode:
            return None, (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1]
    with open(stamp, "w") as f:
        f.write(wanted)
    return os.path.join(where, "bin"), None


def need(program):
    """The path of one of its programs; skips the calling test without it."""
    programs, why = make()
    cloche.need("pypi", programs is not None, why and f"packages from PyPI: {why}")
    return os.path.join(programs, program)
