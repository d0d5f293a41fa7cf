# SPDX-License-Identifier: Apache-2.0
"""Fixtures for all Python suites; the functions behind them are in tests/lib/cloche.py (`import cloche`)."""
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "lib"))
import cloche  # noqa: E402

CONFIG = "/etc/cloche/cloche.yaml"


def pytest_configure(config):
    config.addinivalue_line("markers", "needs(*names): capabilities of cloche.CAPABILITIES this test cannot do without")
    cloche.must_work()


def pytest_runtest_setup(item):
    for mark in item.iter_markers("needs"):
        for name in mark.args:
            cloche.need(name)


@pytest.fixture(autouse=True)
def everybodys_folder():
    """The temporary folder stays as it is: a test that takes it from other users fails here, not the test of theirs."""
    folder = tempfile.gettempdir()
    mode = os.stat(folder).st_mode
    yield
    assert os.stat(folder).st_mode == mode, f"{folder} had the mode {mode:o} before this test"


@pytest.fixture
def root_only():
    """This test needs root."""
    cloche.need("root")


@pytest.fixture
def must_work():
    """must_work(name, here=None, reason=None): go on, skip, or fail if CLOCHE_MUST_WORK says it has to work here."""
    return cloche.need


@pytest.fixture
def no_leftovers():
    """This test must leave no process, cgroup, mount, namespace or file behind."""
    before = cloche.snapshot()
    yield
    left = cloche.leftovers(before)
    assert not left, "left behind:\n" + "\n".join(left)


@pytest.fixture
def config(must_work, monkeypatch):
    """Write the system's configuration, in a mount namespace of its own: nobody else's cloche sees it."""
    must_work("root")
    script = ("mount -t tmpfs none /mnt && mkdir /mnt/up /mnt/work && "
              "mount -t overlay -o lowerdir=/etc,upperdir=/mnt/up,workdir=/mnt/work none /etc && mkdir -p /etc/cloche && "
              "echo ready && exec cat")
    holder = subprocess.Popen(["unshare", "-m", "sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    enter, start = ["nsenter", "-t", str(holder.pid), "-m"], cloche.start

    def inside(args, stdin=subprocess.PIPE, env=None, uid=None, cwd=None, prefix=()):
        return start(args, stdin, env, uid, cwd, (*enter, *prefix))

    def write(text):
        subprocess.run([*enter, "tee", CONFIG], input=text.encode(), stdout=subprocess.DEVNULL, check=True)
    try:
        assert holder.stdout.readline() == b"ready\n"
        monkeypatch.setattr(cloche, "start", inside)
        yield write
    finally:
        holder.stdin.close()
        holder.wait()
        holder.stdout.close()
