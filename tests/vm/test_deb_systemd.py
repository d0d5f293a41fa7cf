# SPDX-License-Identifier: Apache-2.0
"""The Debian package under a real systemd on cgroup v2, in a fresh Debian on a disk that stays: install, use, upgrade with
live sandboxes, a power cut, removal, purge. Two boots; steps.py does it all in there, and here it is judged."""
import importlib.util
import io
import json
import os
import re
import shutil
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace

import cloche
import debian
import pytest

HERE = Path(__file__).parent
DISK_BYTES = 3 << 30
DEADLINE_S = 400  # of each boot, for a machine with much else to do; beside two busy ones 75 and 90 s, dpkg's perl most of it
INIT = """#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin
mount -t devtmpfs dev /dev
while read -r m; do insmod "/vm/modules/$m" || poweroff -f; done </vm/modules.list
mount -t ext4 /dev/vda /root || poweroff -f
mount --move /dev /root/dev
exec switch_root /root /sbin/init
"""
UNIT = """[Unit]
After=cloche.service systemd-logind.service systemd-user-sessions.service
[Service]
Type=exec
Environment=HOME=/root LANG=C.UTF-8 PYTHONDONTWRITEBYTECODE=1
ExecStart=/usr/bin/python3 /deb/steps.py
"""
# Of no use here, and each waits for a device manager or a terminal that is not there.
MASKED = ["getty.target", "systemd-firstboot.service", "apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer",
          "systemd-repart.service", "systemd-update-utmp.service", "systemd-update-utmp-runlevel.service",
          "systemd-pcrphase.service", "systemd-pcrphase-sysinit.service", "systemd-random-seed.service",
          "systemd-journal-flush.service", "systemd-sysusers.service", "systemd-binfmt.service",
          *(f"modprobe@{name}.service" for name in ("configfs", "dm_mod", "drm", "efi_pstore", "fuse")),
          "e2scrub_all.timer", "fstrim.timer", "e2scrub_reap.service", "systemd-networkd.service", "man-db.timer"]


def load_vm():
    spec = importlib.util.spec_from_file_location("vm_run", HERE / "run.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


vm = load_vm()


def make_disk(deb, folder):
    """An ext4 image of a fresh Debian with two versions of the package in /deb, and nothing installed."""
    image = Path(folder) / "disk"
    with debian.fresh(deb) as root:
        (root / "deb").mkdir()
        shutil.copy(deb, root / "deb/one.deb")
        shutil.copy(debian.repack(deb, folder, "99.1"), root / "deb/two.deb")
        shutil.copy(HERE / "deb" / "steps.py", root / "deb/steps.py")
        system = root / "etc/systemd/system"
        (system / "vm.service").write_text(UNIT)
        wants = system / "multi-user.target.wants"
        wants.mkdir(exist_ok=True)
        (wants / "vm.service").symlink_to("../vm.service")
        for unit in MASKED:
            (system / unit).unlink(missing_ok=True)
            (system / unit).symlink_to("/dev/null")
        generators = root / "etc/systemd/system-generators"  # run at every reload, for nothing here
        generators.mkdir()
        for generator in (root / "usr/lib/systemd/system-generators").iterdir():
            (generators / generator.name).symlink_to("/dev/null")
        (root / "etc/dpkg/dpkg.cfg.d/quick").write_text("force-unsafe-io\n")
        # loop is in the initramfs; modules of the kernel are not in the system
        (system / "modprobe@.service").write_text("[Service]\nType=oneshot\nExecStart=/bin/true\n")
        (root / "etc/machine-id").write_text("c10c4ec10c4ec10c4ec10c4ec10c4e00\n")
        (root / "etc/hostname").write_text("cloche-vm\n")
        with open(image, "wb") as f:
            f.truncate(DISK_BYTES)
        subprocess.run([vm.find_tool("mke2fs", "e2fsprogs"), "-q", "-F", "-t", "ext4", "-m", "0", "-E",
                        "lazy_itable_init=1,lazy_journal_init=1,nodiscard", "-d", root, image], check=True, timeout=120)
    return image


def initramfs(release):
    cpio = vm.Cpio()
    for name in ("dev", "bin", "root", "proc"):
        cpio.dir(name)
    cpio.file("bin/busybox", vm.find_busybox().read_bytes(), 0o755)
    cpio.file("init", INIT, 0o755)
    modules = vm.modules_for(release)
    for module in modules:
        cpio.file(f"vm/modules/{module.name}", module.read_bytes())
    cpio.file("vm/modules.list", "".join(f"{m.name}\n" for m in modules))
    return cpio.bytes()


def boot(image, number):
    """Facts of one boot, which ends as a power cut: qemu is killed."""
    kernel, release = vm.find_kernel()
    args = SimpleNamespace(accel="tcg,thread=multi", cpus=2, memory=1280, cgroup="systemd",
                           append=f"systemd.unit=multi-user.target vm.boot={number}")
    out, began = io.BytesIO(), time.monotonic()
    initrd, disk = vm.memfd("initramfs", initramfs(release)), os.open(image, os.O_RDWR | os.O_CLOEXEC)
    try:
        with vm.Machine(args, kernel, initrd, [disk]) as machine:
            status = machine.run(began + DEADLINE_S, {"stdout": out, "stderr": io.BytesIO()}, lambda line: None)
    finally:
        os.close(initrd)
        os.close(disk)
    assert status is not None, f"boot {number} had not ended after {DEADLINE_S} s"
    facts = json.loads(out.getvalue())
    image.with_name(f"boot{number}.json").write_text(json.dumps(facts, indent=1))  # for who wants to know why
    assert status == 0, json.dumps(facts, indent=1)
    facts["seconds"] = time.monotonic() - began
    return facts


@pytest.fixture(scope="module")
def boots(tmp_path_factory):
    cloche.need("debootstrap", debian.missing() is None, debian.missing())
    cloche.need("vm", vm.missing() is None, vm.missing())
    image = make_disk(debian.package(), tmp_path_factory.mktemp("deb"))
    facts = [boot(image, 1), boot(image, 2)]
    image.unlink()
    return facts


@pytest.fixture
def first(boots):
    return boots[0]


@pytest.fixture
def second(boots):
    return boots[1]


def said(facts, name, out=None):
    got = facts[name]
    assert got["status"] == 0 and (out is None or got["out"] == out), (name, got, facts["log"]["out"][-3000:])
    return got["out"]


def assert_running(unit, **more):
    wanted = {"ActiveState": "active", "SubState": "running", "UnitFileState": "enabled", **more}
    assert {k: unit[k] for k in wanted} == wanted


def test_the_service_runs_when_the_package_is_installed(first):
    said(first, "install")
    assert_running(first["unit"], NRestarts="0")


def test_places_and_accounts(first):
    group = int(first["ids"]["group"].split(":")[2])
    user, own = map(int, re.match(r"uid=(\d+)\(cloche\) gid=(\d+)\(cloched\)", first["ids"]["user"]).groups())
    assert first["socket"] == {"/run/cloche": "711 0 0", "/run/cloche/cloche.sock": f"660 0 {group}",
                               "/var/lib/cloche/service": f"700 {user} {own}"}
    cloched, = first["cloched"]
    assert cloched["Uid"].split() == [str(user)] * 4 and cloched["Gid"].split() == [str(own)] * 4
    assert cloched["Groups"] == "" and int(cloched["CapEff"], 16) == 0 and cloched["NoNewPrivs"] == "1"
    spawner, = first["spawner"]
    assert spawner["NoNewPrivs"] == "1" and 0 < int(spawner["CapBnd"], 16).bit_count() == 11


@pytest.mark.parametrize("name", ["root python", "root run", "member run", "member python"])
def test_a_run(first, name):
    """By the command, and by POST /v1/runs."""
    result = json.loads(said(first, name))
    assert (result["reason"], result["stdout"]) == ("exited", "42\n")
    limits = {k: result["enforced"][k] for k in ("memory", "pids", "cpu")}
    assert limits == dict.fromkeys(limits, "cgroup-v2") and result["enforced"]["rootless"] is False


def test_a_member_of_the_group_keeps_sandboxes(first):
    said(first, "member create")
    said(first, "member exec", "65534\n")
    assert first["theirs"] in said(first, "member ls") and first["live"] not in first["member ls"]["out"]


def test_a_member_of_the_group_gets_no_more_than_that(first):
    assert first["member walks"]["status"] != 0 and "Permission denied" in first["member walks"]["err"]
    assert first["member opens"]["status"] == 1
    assert first["stranger's sandbox"]["status"] != 0


def test_nobody_else_gets_in(first):
    assert first["stranger"]["status"] != 0 and "ermission denied" in first["stranger"]["err"], first["stranger"]


def test_a_volume_of_the_callers(first):
    """A descriptor of the caller's mount namespace: it works only as long as the unit has none of its own."""
    said(first, "volume create")
    said(first, "volume exec", "of the host\n")


def test_a_disk(first):
    """Loop devices pass the unit's device policy."""
    said(first, "create")
    line = said(first, "exec").split()
    assert line[0].startswith("/dev/loop") and 8000 < int(line[1]) <= 16384, line


def test_upgrade_with_live_sandboxes(first):
    said(first, "upgrade")
    before, after = first["before upgrade"], first["after upgrade"]
    assert before["serve"] != after["serve"] and len(before["alive"]) >= 2
    # The same processes; what was prepared for nobody goes with the service.
    assert len(after["alive"]) >= 2 and set(after["alive"]) <= set(before["alive"])
    assert_running(first["upgraded unit"])
    said(first, "exec after upgrade", "kept\n")
    said(first, "member exec after upgrade", "there\n")
    said(first, "hostname after upgrade", "edited\n")  # and an edited configuration


def test_restart_stop_and_kill_leave_sandboxes_alive(first):
    for how in ("restart", "stop", "start"):
        said(first, how)
    assert first["stopped"]["alive"] == first["after upgrade"]["alive"]
    assert first["stopped"]["unit"]["ActiveState"] == "inactive" and first["stopped"]["programs"] == []
    for name in ("exec after restart", "exec after stop and start", "exec after kill -9"):
        said(first, name, "kept\n")
    assert_running(first["end of first"])


def rows(listing):
    return {row["id"]: row for row in listing["sandboxes"]}


def test_power_cut(boots):
    """What lived is `lost`, and nothing of it is left."""
    first, second = boots
    assert_running(second["unit"], NRestarts="0")
    found = rows(second["boxes"])
    for box in (first["live"], first["theirs"]):
        assert (found[box]["state"], found[box]["reason"]) == ("ended", "lost"), found[box]
    assert second["leftovers"] == dict.fromkeys(second["leftovers"], [])
    said(second, "python", "42\n")


def test_the_user_unit(second):
    for name in ("user start", "user create", "user restart", "user stop"):
        said(second, name)
    assert second["user socket"]
    said(second, "user exec", "65534\n")
    said(second, "user python", "42\n")
    found = rows(json.loads(said(second, "user ls")))
    assert found and all(row["state"] == "ended" for row in found.values()), found


def test_removal_ends_sandboxes_and_leaves_data(second):
    said(second, "exec", "there\n")
    said(second, "remove")
    removed = second["removed"]
    assert (removed["alive"], removed["programs"], removed["state"]) == ([], [], True)
    assert removed["unit"]["ActiveState"] == "inactive"
    said(second, "install again")
    row = rows(second["boxes again"])[second["live"]]
    assert (row["state"], row["reason"]) == ("ended", "killed"), row


def test_purge_leaves_nothing(second):
    assert len(second["orphan"]) >= 1
    said(second, "purge")
    assert (second["purged"]["alive"], second["purged"]["cgroup"]) == ([], False)
    said(second, "search", "")
    assert second["accounts"]["out"] == ""


def test_time(boots, record_property):
    """Reported, not judged: this processor is emulated."""
    for number, facts in enumerate(boots, 1):
        record_property(f"boot{number}_s", round(facts["seconds"]))
        print(f"boot {number}: {facts['seconds']:.0f} s")
