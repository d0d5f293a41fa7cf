# SPDX-License-Identifier: Apache-2.0
"""Fixtures for all Python suites; the functions behind them are in tests/lib/cloche.py (`import cloche`)."""
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "lib"))
import cloche  # noqa: E402


def pytest_configure(config):
    config.addinivalue_line("markers", "needs(*names): capabilities of cloche.CAPABILITIES this test cannot do without")
    cloche.must_work()


def pytest_runtest_setup(item):
    for mark in item.iter_markers("needs"):
        for name in mark.args:
            cloche.need(name)


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
