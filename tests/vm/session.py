# SPDX-License-Identifier: Apache-2.0
"""Runs in the login session of the VM, for test_systemd.py: does everything once, prints {name: what was seen} as JSON.

    session.py CLOCHE
"""
import base64
import json
import os
import pty
import signal
import subprocess
import sys
import time

CLOCHE = sys.argv[1]
SCOPE = ["systemd-run", "--user", "--scope", "--quiet", "--collect"]
SERVICE = ["systemd-run", "--user", "--quiet", "--collect", "--pipe", "--wait"]
DELEGATED = ["-p", "Delegate=yes"]
RUN = [CLOCHE, "run", "--timeout", "60s"]  # the processor is emulated
TRUE = [*RUN, "--json", "--", "true"]
SLEEP = [*RUN, "--", "sh", "-c", "echo up; exec sleep 50"]
# What a terminal of the desktop is: a scope (or service) of the user manager that is not delegated.
IN_TERMINAL = ["sh", "-c", f"{' '.join(TRUE)}; s=$?; cat /proc/self/cgroup >&2; exit $s"]
facts = {}


def cgroup(pid="self"):
    with open(f"/proc/{pid}/cgroup") as f:
        return f.read().strip().removeprefix("0::")


def units():
    text = subprocess.check_output(["systemctl", "--user", "list-units", "--all", "--plain", "--no-legend",
                                    "*.scope", "run-*.service"], text=True)
    return sorted({line.split()[0] for line in text.splitlines()} - {"init.scope"})


def cgroups():
    # session.slice holds the user's bus, which starts when somebody talks to it
    return sorted(d for d, _, _ in os.walk("/sys/fs/cgroup/user.slice") if "/session.slice" not in d)


def settled(look, wanted):
    """What look() says, once it says WANTED or does not within 10 s."""
    until = time.monotonic() + 10
    while (seen := look()) != wanted and time.monotonic() < until:
        time.sleep(0.1)
    return seen


def call(name, *argv, stdin=b"", env=None, without=()):
    env = {k: v for k, v in {**os.environ, **(env or {})}.items() if k not in without}
    p = subprocess.run(argv, input=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env, timeout=90)
    facts[name] = {"status": p.returncode, "out": base64.b64encode(p.stdout).decode(),
                   "err": p.stderr.decode(errors="replace")}


def start_sleeping():
    p = subprocess.Popen(SLEEP, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if p.stdout.readline() != b"up\n":
        sys.exit(p.stderr.read())
    return p


def interrupt():
    with start_sleeping() as p:
        facts["place"] = {"cgroup": cgroup(p.pid), "units": units()}
        # While a delegated scope is there, those beside it get the cpu controller without being delegated.
        call("terminal beside", *SCOPE, *IN_TERMINAL)
        began = time.monotonic()
        p.send_signal(signal.SIGINT)
        out, err = p.communicate(timeout=60)
        facts["interrupted"] = {"status": p.returncode, "out": out.decode(), "err": err.decode(),
                                "seconds": time.monotonic() - began}


def interrupt_by_key():
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(CLOCHE, SLEEP)
    text, typed = b"", False
    while True:
        try:
            text += os.read(terminal, 4096)
        except OSError:  # EIO: the last one has closed it
            break
        if b"up" in text and not typed:
            typed = os.write(terminal, b"\x03")
    facts["key"] = {"text": text.decode(), "status": os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}


def kill():
    with start_sleeping() as p:
        p.kill()


def median_ms(*argv):
    seen = []
    for _ in range(7):
        began = time.monotonic()
        subprocess.run(argv, stdin=subprocess.DEVNULL, check=True)
        seen.append((time.monotonic() - began) * 1000)
    return round(sorted(seen)[len(seen) // 2])


def main():
    with open("/proc/1/comm") as f:
        pid1 = f.read().strip()
    facts["login"] = {"pid1": pid1, "uid": os.getuid(), "cgroup": cgroup(),
                      "runtime": os.environ.get("XDG_RUNTIME_DIR"),
                      "writable": os.access("/sys/fs/cgroup" + cgroup(), os.W_OK)}
    before = {"units": units(), "cgroups": cgroups()}
    call("run", *TRUE)
    call("streams", *RUN, "--", "sh", "-c", "cat; echo problem >&2; exit 7", stdin=sys.stdin.buffer.read())
    call("oom", *RUN, "--json", "-m", "32m", "--", "python3", "-c", "bytearray(200 << 20)")
    call("doctor", CLOCHE, "doctor")
    interrupt()
    settled(units, before["units"])
    call("terminal", *SCOPE, *IN_TERMINAL)
    call("service", *SERVICE, *TRUE)
    interrupt_by_key()
    kill()
    many = [subprocess.Popen([*RUN, "--", "sh", "-c", f"exit {n}"]) for n in range(8)]
    facts["many"] = [p.wait(90) for p in many]
    call("by hand", *SCOPE, *DELEGATED, *TRUE)
    call("delegated service", *SERVICE, *DELEGATED, *TRUE)
    call("no cpu", *SCOPE, "-p", "Delegate=pids memory", "env", "CLOCHE_IN_SCOPE=1", *TRUE)
    call("no manager", *RUN, "--", "true", env={"XDG_RUNTIME_DIR": "/tmp"})
    call("no systemd-run", *RUN, "--", "true", env={"PATH": "/nonexistent"})
    call("no manager: doctor", CLOCHE, "doctor", env={"XDG_RUNTIME_DIR": "/tmp"})
    call("unset", *TRUE, without=["XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS"])
    facts["ms"] = {"login": median_ms(*RUN, "true"), "delegated": int(subprocess.check_output(
        [*SCOPE, *DELEGATED, "env", "CLOCHE_IN_SCOPE=1", sys.executable, __file__, CLOCHE, "time"]))}
    facts["before"] = before
    facts["after"] = {"units": settled(units, before["units"]), "cgroups": settled(cgroups, before["cgroups"]),
                      "processes": subprocess.run(["pgrep", "-lx", "sleep|cloche.*"], stdout=subprocess.PIPE,
                                                  text=True).stdout}
    json.dump(facts, sys.stdout)


if sys.argv[2:] == ["time"]:
    print(median_ms(*RUN, "true"))
else:
    main()
