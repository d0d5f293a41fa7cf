# SPDX-License-Identifier: Apache-2.0
"""Every file of these tests leaves the machine as it found it."""
import grp
import os
import pwd
import subprocess

import cloche
import pytest

USER = "clochetest"
CONFIG = "/etc/cloche/cloche.yaml"


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
    for folder in (home, *home.parents):
        if str(folder) not in ("/", "/tmp"):
            os.chmod(folder, os.stat(folder).st_mode | 0o111)
    runtime = home / "runtime"
    runtime.mkdir(mode=0o700)
    os.chown(runtime, uid, uid)
    yield uid, {"HOME": str(home), "XDG_RUNTIME_DIR": str(runtime), "XDG_DATA_HOME": str(home / "data"),
                "XDG_CONFIG_HOME": str(home / "config"), "USER": USER}
    if made:
        subprocess.run(["/usr/sbin/userdel", USER], check=True, stderr=subprocess.DEVNULL)


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
