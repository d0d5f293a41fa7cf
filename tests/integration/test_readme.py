# SPDX-License-Identifier: Apache-2.0
"""README's examples, run as they stand: what follows a `$ ` line is its output, byte for byte."""
import re
import subprocess
from pathlib import Path

import cloche
import pytest

pytestmark = pytest.mark.needs("native", "root")

TOP = Path(__file__).resolve().parents[2]


def examples():
    """[(command, expected output)] of every console block, in order."""
    found = []
    for block in re.findall(r"^```console\n(.*?)^```$", (TOP / "README.md").read_text(), re.S | re.M):
        for line in block.splitlines(keepends=True):
            if line.startswith("$ "):
                found.append([line[2:], ""])
            elif line.startswith("> "):
                found[-1][0] += line[2:]
            else:
                found[-1][1] += line
    return found


@pytest.fixture
def shell(tmp_path):
    """Runs a command of the README with `cloche` in PATH, in one folder for all."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "cloche").symlink_to(cloche.binary())
    env = {"PATH": f"{tmp_path}/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(tmp_path), "LANG": "C.UTF-8",
           "SECRET": "of the caller"}

    def run(command):
        done = subprocess.run(["bash", "-c", command], cwd=tmp_path, env=env, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60)
        return done.stdout.decode()
    return run


def test_there_are_ten_examples():
    assert len([c for c, _ in examples() if "cloche " in c]) >= 10


def test_examples_print_what_the_readme_says(shell):
    for command, expected in examples():
        assert shell(command) == expected, command
