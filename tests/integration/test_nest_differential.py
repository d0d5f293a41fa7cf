# SPDX-License-Identifier: Apache-2.0
"""The programs of tests/unit/test_zygote_differential.py once more, with everything in force: `cloche run -- python3 -` against a
prepared interpreter's child that has joined a prepared sandbox. Output, error output and status must be the same."""
import re
import subprocess
import sys

import pytest

import cloche

sys.path[:0] = [str(cloche.TOP / "tests" / "unit"), str(cloche.TOP / "tests" / "integration")]
import test_nest_python as nests  # noqa: E402
import test_zygote_differential as differential  # noqa: E402
import zygote  # noqa: E402

pytestmark = nests.pytestmark
# What the sandbox adds to the environment (docs/differences.md), with the default memory.
ENV = {**zygote.ENV, "NODE_OPTIONS": "--max-old-space-size=192",
       "JAVA_TOOL_OPTIONS": "-XX:MaxRAM=268435456 -XX:MaxRAMPercentage=75"}
OURS = re.compile(rb"^cloche: the command was ended by signal .*\n", re.M)


class Place:
    path = "/workspace"


def cold(code):
    done = subprocess.run([cloche.binary(), "run", "--direct", "--max-output", "unlimited", "--timeout", "60s", "--", "python3", "-"],
                          input=code, capture_output=True, timeout=90)
    out, err = differential.without_addresses(done.stdout, OURS.sub(b"", done.stderr))
    return out, err, done.returncode


@pytest.fixture(scope="module")
def python():
    p = nests.Python()
    yield p
    p.close()


@pytest.fixture(scope="module")
def loaded():
    return cold(b"import sys; print(*sys.modules)")[0].decode().split()


@pytest.mark.parametrize("name", differential.PROGRAMS)
def test_as_the_cold_path_does(name, python, loaded):
    code = differential.filled(differential.PROGRAMS[name], Place, loaded)
    expected = cold(code)
    cell = python.ask("cell")[1]
    child = python.fork_in(cell)
    out, err, status = child.run(code, cwd="/workspace", env=ENV)
    assert python.ask("end", cell) == ["gone", cell]
    assert (*differential.without_addresses(out, err), status if status >= 0 else 128 - status) == tuple(expected)
