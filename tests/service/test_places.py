# SPDX-License-Identifier: Apache-2.0
"""Where `cloche serve` puts what it has: only where nobody else could put something in its place."""
import os
import subprocess

import cloche
import pytest
import service as services

pytestmark = pytest.mark.needs("native", "service", "root")
NOBODY = 65534


def refused(folder, **keys):
    """What serve says; it must not start."""
    config = folder / "cloche.yaml"
    config.write_text(services.configuration(folder, services.free_port(), keys))
    done = subprocess.run([cloche.binary(), "serve", "--config", config], capture_output=True, text=True, timeout=20,
                          env=cloche.environment(), cwd="/")
    assert done.returncode == 1, done
    return done.stderr


@pytest.fixture
def folder(tmp_path):
    """theirs/mine: mine is root's, theirs is not."""
    cloche.open_the_way(tmp_path)
    (tmp_path / "theirs" / "mine").mkdir(parents=True)
    os.chown(tmp_path / "theirs", NOBODY, NOBODY)
    return tmp_path


@pytest.mark.parametrize("key, name", [("state_dir", "state"), ("runtime_dir", "run"), ("socket", "s.sock")])
def test_every_component_counts(folder, key, name):
    said = refused(folder, **{key: f"{folder}/theirs/mine/{name}"})
    assert f"{folder}/theirs belongs to uid {NOBODY}" in said
    assert os.listdir(folder / "theirs" / "mine") == []


def test_a_folder_that_others_may_write_in(folder):
    os.chown(folder / "theirs", 0, 0)
    os.chmod(folder / "theirs", 0o777)
    assert f"others may write in {folder}/theirs (mode 0777)" in refused(folder, state_dir=f"{folder}/theirs/mine/state")


def test_disks_follow_the_state():
    with services.Service() as one:
        box = one.root.box(memory="64m", disk="16m")
        files = services.loop_devices()
        assert [p for p in files if p.startswith(f"{one.folder}/state-disks/")], files
        assert (one.folder / "state-disks").stat().st_mode & 0o7777 == 0o700 and (one.folder / "state-disks").stat().st_uid == 0
        box.kill()
