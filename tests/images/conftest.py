# SPDX-License-Identifier: Apache-2.0
"""Each test has a store of its own and leaves the machine as it found it."""
import cloche
import imagelib
import pytest


@pytest.fixture
def store(tmp_path):
    cloche.need("root")
    state = tmp_path / "state"
    state.mkdir()
    return imagelib.Store(state)


@pytest.fixture
def layout(tmp_path):
    return imagelib.Layout(tmp_path / "layout")
