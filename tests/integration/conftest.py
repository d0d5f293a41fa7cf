# SPDX-License-Identifier: Apache-2.0
"""Every file of these tests leaves the machine as it found it."""
import grp
import os
import pwd
import subprocess

import cloche
import pytest

USER = "clochetest"


@pytest.fixture(scope="module", autouse=True)
def clean():
    if cloche.can("native"):  # the first run makes /run/cloche and the host image; they stay
        cloche.run(["run", "true"])
    before = cloche.snapshot()
    yield
    left = cloche.leftovers(before, 10)
    assert not left, "left behind:\n" + "\n".join(left)


@pytest.fixture(scope="module")
def user(tmp_path_factory):
    """(uid, environment) of an ordinary user with subordinate ids; removed afterwards if it is ours."""
    cloche.need("rootless-refusal")
    cloche.need("idmap")
    made = False
    try:
        uid = pwd.getpwnam(USER).pw_uid
    except KeyError:
        number = next(n for n in range(20000, 30000) if n not in {p.pw_uid for p in pwd.getpwall()} |
                      {g.gr_gid for g in grp.getgrall()})
        subprocess.run(["/usr/sbin/groupadd", "--gid", str(number), USER], check=True)
        subprocess.run(["/usr/sbin/useradd", "--no-create-home", "--uid", str(number), "--gid", str(number), "--key",
                        "SUB_UID_COUNT=0", "--key", "SUB_GID_COUNT=0", USER], check=True)
        made, uid = True, number
        subprocess.run(["/usr/sbin/usermod", "--add-subuids", "1879179264-1879244799", "--add-subgids",
                        "1879179264-1879244799", USER], check=True)
    home = tmp_path_factory.mktemp("home")
    os.chown(home, uid, uid)
    cloche.open_the_way(home)
    runtime = home / "runtime"
    runtime.mkdir(mode=0o700)
    os.chown(runtime, uid, uid)
    yield uid, {"HOME": str(home), "XDG_RUNTIME_DIR": str(runtime), "XDG_DATA_HOME": str(home / "data"),
                "XDG_CONFIG_HOME": str(home / "config"), "USER": USER}
    if made:
        subprocess.run(["/usr/sbin/userdel", USER], check=True, stderr=subprocess.DEVNULL)
