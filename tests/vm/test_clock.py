# SPDX-License-Identifier: Apache-2.0
"""A service on a machine whose clock is set: what lasts is measured by a clock that nobody can set. In the VM, because this
machine's clock is everybody's."""
import json
import subprocess
import sys
from pathlib import Path

import cloche
import pytest

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def facts():
    check = subprocess.run([sys.executable, HERE / "run.py", "--check"], stdout=subprocess.PIPE, text=True, timeout=60)
    cloche.need("vm", check.returncode == 0, check.stdout.strip())
    done = subprocess.run([sys.executable, HERE / "run.py", "--timeout", "400", "--", "python3", "-B", HERE / "clock.py"], cwd=cloche.TOP,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=800)
    assert done.returncode == 0, done.stderr.decode(errors="replace")[-4000:]
    return json.loads(done.stdout)


@pytest.mark.parametrize("moment", ["before", "forward", "forward, restarted", "back", "back, restarted"])
def test_sandboxes_live_on(facts, moment):
    """Neither a day forward nor two back ends or pauses one; nor does a cloched that starts after it."""
    assert facts[moment] == {name: ["running", "hi\n"] for name in ("hour", "idle", "pausing")}


@pytest.mark.parametrize("moment", ["forward command", "back command"])
def test_a_commands_time_out(facts, moment):
    reason, seconds = facts[moment]
    assert reason == "timeout" and 3 <= seconds < 15, facts[moment]


def test_a_life_is_as_long_as_asked(facts):
    """90 s, through two steps and two restarts."""
    reason, seconds = facts["short"]
    assert reason == "timeout" and 90 <= seconds < 110, facts["short"]


def test_times_that_are_told(facts):
    """created_at is the clock's own time, expires_at that far behind it."""
    created, life = facts["created"]
    assert -30 < created <= 1 and 3595 < life < 3630, facts["created"]
    assert 570 < facts["renewed"] < 601, facts["renewed"]


def test_records(facts):
    assert facts["audit"] is True and facts["runs"] == ["ended"]
