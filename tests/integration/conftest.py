# SPDX-License-Identifier: Apache-2.0
"""Every file of these tests leaves the machine as it found it."""
import cloche
import pytest


@pytest.fixture(scope="module", autouse=True)
def clean():
    if cloche.can("native"):  # the first run makes /run/cloche and the host image; they stay
        cloche.run(["run", "true"])
    before = cloche.snapshot()
    yield
    left = cloche.leftovers(before, 10)
    assert not left, "left behind:\n" + "\n".join(left)
