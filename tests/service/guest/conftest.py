# SPDX-License-Identifier: Apache-2.0
"""One kept sandbox for a module's tests, and one of its own for those that need it."""
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "lib"))
import cloche  # noqa: E402
import conversation  # noqa: E402

ROOMY = ("--timeout", "1h", "--pids-limit", "600", "--memory", "1g", "--cpus", "2", "--tmpfs", "/big:size=400m,inodes=20000",
         "--tmpfs", "/big/sub:size=1m,inodes=100")


@pytest.fixture(scope="module")
def box():
    cloche.need("root")
    with conversation.Sandbox(*ROOMY) as b:
        yield b


@pytest.fixture(scope="module")
def dev_box():
    cloche.need("root")
    with conversation.Sandbox(*ROOMY, "--profile", "dev") as b:
        yield b


@pytest.fixture
def own_box():
    cloche.need("root")
    with conversation.Sandbox(*ROOMY) as b:
        yield b
