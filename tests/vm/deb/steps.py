# SPDX-License-Identifier: Apache-2.0
"""Runs as root in the VM of test_deb_systemd.py, started by its systemd: does everything once, reports what it saw as JSON.
The first boot ends by a power cut with a sandbox alive, the second sees what became of it, and removes the package."""
import glob
import json
import os
import re
import subprocess
import time

BOOT = re.search(r"vm\.boot=(\d)", open("/proc/cmdline").read())[1]
ID = re.compile(r"sbx_[0-9a-f]{32}")
facts = {}


def call(name, *argv, user=None, env=None):
    if user:
        argv = ["runuser", "-u", user, "--", *argv]
    began = time.monotonic()
    p = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=180,
                       cwd="/", env={**os.environ, "DEBIAN_FRONTEND": "noninteractive", **(env or {})})
    facts[name] = {"status": p.returncode, "out": p.stdout, "err": p.stderr, "seconds": round(time.monotonic() - began, 1)}
    return p.stdout


def create(name, *options, user=None):
    return (ID.findall(call(name, "cloche", "create", *options, user=user)) or ["sbx_none"])[0]


def execute(name, box, script, user=None):
    return call(name, "cloche", "exec", box, "--", "sh", "-c", script, user=user)


def boxes(name):
    facts[name] = json.loads(call(name, "cloche", "ls", "--all", "--json") or "null")


def pids(program):
    found = []
    for exe in glob.glob("/proc/[0-9]*/exe"):
        try:
            if os.path.basename(os.readlink(exe).removesuffix(" (deleted)")) == program:
                found.append(int(exe.split("/")[2]))
        except OSError:
            pass  # it has ended, or is a kernel thread
    return found


def sandboxes_alive():
    """Inits of sandboxes: the processes whose cgroup is below ours."""
    return sorted(sum(([int(p) for p in open(f).read().split()] for f in glob.glob("/sys/fs/cgroup/cloche/*/cgroup.procs")), []))


def unit():
    text = subprocess.check_output(["systemctl", "show", "cloche.service", "-p",
                                    "ActiveState,SubState,MainPID,UnitFileState,NRestarts,Result"], text=True)
    return dict(line.split("=", 1) for line in text.splitlines())


def status(pid):
    with open(f"/proc/{pid}/status") as f:
        lines = dict(line.rstrip("\n").split(":\t", 1) for line in f if ":\t" in line)
    return {k: lines[k].strip() for k in ("Uid", "Gid", "Groups", "CapEff", "CapBnd", "NoNewPrivs")}


RUN = """
import http.client, json, socket
c = http.client.HTTPConnection("localhost")
c.sock = socket.socket(socket.AF_UNIX)
c.sock.connect("/run/cloche/cloche.sock")
c.request("POST", "/v1/runs", json.dumps({"language": "python", "code": "print(6 * 7)"}), {"Content-Type": "application/json"})
print(c.getresponse().read().decode())
"""


def leftovers():
    return {
        "sandboxes": os.listdir("/run/cloche/sandboxes") if os.path.isdir("/run/cloche/sandboxes") else [],
        "disks": os.listdir("/var/lib/cloche/disks") if os.path.isdir("/var/lib/cloche/disks") else [],
        "loops": [open(f).read() for f in glob.glob("/sys/block/loop*/loop/backing_file")],
        "cgroups": [d for d in glob.glob("/sys/fs/cgroup/cloche/*") if os.path.isdir(d)],
        "processes": sandboxes_alive(),
    }


def first():
    call("install", "dpkg", "-i", "/deb/one.deb")
    facts["unit"] = unit()
    facts["socket"] = {p: f"{os.stat(p).st_mode & 0o7777:o} {os.stat(p).st_uid} {os.stat(p).st_gid}"
                       for p in ("/run/cloche", "/run/cloche/cloche.sock", "/var/lib/cloche/service")}
    facts["ids"] = {"user": subprocess.check_output(["id", "cloche"], text=True),
                    "group": subprocess.check_output(["getent", "group", "cloche"], text=True)}
    facts["cloched"] = [status(p) for p in pids("cloched")]
    facts["spawner"] = [status(p) for p in pids("cloche-spawner")]
    call("root python", "cloche", "python", "--json", "-c", "print(6 * 7)")
    subprocess.check_call(["useradd", "-m", "-G", "cloche", "member"])
    subprocess.check_call(["useradd", "-m", "stranger"])
    call("member python", "cloche", "python", "--json", "-c", "print(6 * 7)", user="member")
    call("root run", "python3", "-c", RUN)
    call("member run", "python3", "-c", RUN, user="member")
    theirs = create("member create", user="member")
    execute("member exec", theirs, "id -u", user="member")
    call("member ls", "cloche", "ls", user="member")
    call("member walks", "ls", "/run/cloche/sandboxes", user="member")
    call("member opens", "test", "-r", f"/run/cloche/sandboxes/{theirs}/ctl", user="member")
    call("stranger", "cloche", "ls", user="stranger", env={"CLOCHE_SOCKET": "/run/cloche/cloche.sock"})
    call("folder", "sh", "-c", "mkdir ~/data && echo of the host > ~/data/file", user="member", env={"HOME": "/home/member"})
    volume = create("volume create", "--volume", "/home/member/data:/data", user="member")
    execute("volume exec", volume, "cat /data/file", user="member")
    call("volume kill", "cloche", "kill", volume, user="member")
    live = create("create", "--disk", "16m", "--timeout", "1h")
    facts["live"], facts["theirs"] = live, theirs
    execute("exec", live, "df -k /workspace | tail -1; echo kept > /workspace/mark")
    call("stranger's sandbox", "cloche", "exec", live, "--", "true", user="member")
    facts["before upgrade"] = {"alive": sandboxes_alive(), "serve": unit()["MainPID"]}
    call("edit", "sed", "-i", "s/^# defaults:/defaults:/; s/^  # hostname: sandbox/  hostname: edited/", "/etc/cloche/cloche.yaml")
    call("upgrade", "dpkg", "-i", "/deb/two.deb")
    facts["after upgrade"] = {"alive": sandboxes_alive(), "serve": unit()["MainPID"]}
    facts["upgraded unit"] = unit()
    execute("exec after upgrade", live, "cat /workspace/mark")
    execute("member exec after upgrade", theirs, "echo there", user="member")
    call("hostname after upgrade", "cloche", "run", "hostname")
    call("restart", "systemctl", "restart", "cloche")
    execute("exec after restart", live, "cat /workspace/mark")
    # stopped, and started as if by the administrator: /run/cloche stays
    call("stop", "systemctl", "stop", "cloche")
    facts["stopped"] = {"alive": sandboxes_alive(), "unit": unit(), "programs": pids("cloched") + pids("cloche-spawner")}
    call("start", "systemctl", "start", "cloche")
    execute("exec after stop and start", live, "cat /workspace/mark")
    os.kill(int(unit()["MainPID"]), 9)
    until = time.monotonic() + 60
    while unit()["NRestarts"] == "0" or unit()["SubState"] != "running":
        assert time.monotonic() < until, unit()
        time.sleep(0.1)  # systemd tells only its own clients
    execute("exec after kill -9", live, "cat /workspace/mark")
    facts["end of first"] = unit()
    os.sync()


def user_service():
    """member's own, by the user unit."""
    uid = int(subprocess.check_output(["id", "-u", "member"]))
    env = {"XDG_RUNTIME_DIR": f"/run/user/{uid}", "HOME": "/home/member"}
    call("linger", "loginctl", "enable-linger", "member")
    call("user manager", "systemctl", "start", f"user@{uid}.service")
    call("user start", "systemctl", "--user", "start", "cloche", user="member", env=env)
    box = (ID.findall(call("user create", "cloche", "create", user="member", env=env)) or ["sbx_none"])[0]
    call("user exec", "cloche", "exec", box, "--", "id", "-u", user="member", env=env)
    facts["user socket"] = os.path.exists(f"/run/user/{uid}/cloche/cloche.sock")
    call("user restart", "systemctl", "--user", "restart", "cloche", user="member", env=env)
    call("user python", "cloche", "python", "-c", "print(6 * 7)", user="member", env=env)
    call("user ls", "cloche", "ls", "--all", "--json", user="member", env=env)
    call("user stop", "systemctl", "--user", "stop", "cloche", user="member", env=env)
    call("user manager stop", "systemctl", "stop", f"user@{uid}.service")


def second():
    facts["unit"] = unit()
    boxes("boxes")
    facts["leftovers"] = leftovers()
    call("python", "cloche", "python", "-c", "print(6 * 7)")
    user_service()
    live = create("create", "--disk", "16m")
    facts["live"] = live
    execute("exec", live, "echo there")
    call("remove", "dpkg", "-r", "cloche")
    facts["removed"] = {"alive": sandboxes_alive(), "programs": sum(map(pids, ("cloched", "cloche-spawner", "cloche-serve")), []),
                        "unit": unit(), "state": os.path.exists("/var/lib/cloche/service/state.db")}
    call("install again", "dpkg", "-i", "/deb/two.deb")
    boxes("boxes again")
    # One that nobody serves any more: the service is not there to be asked.
    create("create again")
    call("stop", "systemctl", "stop", "cloche")
    facts["orphan"] = sandboxes_alive()
    call("purge", "dpkg", "-P", "cloche")
    facts["purged"] = {"alive": sandboxes_alive(), "unit": unit(), "cgroup": os.path.exists("/sys/fs/cgroup/cloche")}
    call("search", "find", "/etc", "/usr", "/var", "/run", "/srv", "-xdev", "-name", "*cloche*", "-not", "-path",
         "/var/lib/dpkg/*", "-not", "-path", "/var/log/*")
    call("accounts", "sh", "-c", "getent passwd cloche; getent group cloche cloched")


def main():
    with open("/dev/vport0p1", "w", buffering=1) as control, open("/dev/vport0p2", "w") as out:
        control.write(f"ready {open('/proc/uptime').read().split()[0]}\n")
        code = 0
        try:
            first() if BOOT == "1" else second()
        except BaseException as e:
            facts["error"] = repr(e)
            code = 1
        if code:
            call("journal", "journalctl", "--no-pager", "-n", "100")
        call("log", "journalctl", "--no-pager", "-u", "cloche", "-n", "60")
        json.dump(facts, out)
        out.flush()
        control.write(f"exit {code}\nend\n")
        while True:
            time.sleep(60)  # the host cuts the power


main()
