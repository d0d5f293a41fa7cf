#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What cloched asks of the kernel, seen with strace: how src/service/self_calls.def was derived, and how to look again.

    tests/service/derive_calls.py [--build DIR] [--keep FOLDER] [PYTEST ARGUMENTS …]

It copies the programs of the build into a folder where cloched is a script that starts the real one under strace, runs the
tests of the service with it (contract, bad input, examples, command line; other arguments instead), and a load that they do not make: TLS,
a full disk, retention, many connections, a spawner that dies, verification of the audit. Only what comes behind the load of
the filter counts. It prints

    never     calls of the list that were not made: argue for each in self_calls.def, or remove it
    refused   calls that the filter refused: add them, or say why the refusal is right
    used      calls with how often, and the arguments of those that the filter narrows

It is no test: it takes minutes, and a call that is rare (glibc giving back memory) is missing in one run of several. The
suite checks that the list is sorted and has nothing twice (test_self.py). As root; needs strace.
"""
import argparse
import collections
import contextlib
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "tests" / "lib"))
sys.dont_write_bytecode = True

SUITE = ["tests/service/contract", "tests/service/test_api_bad_input.py", "tests/service/test_examples.py",
         "tests/service/test_cli_service.py"]
# Which argument of a call is looked at: the ones that the filter narrows, or could.
LOOKED_AT = {"fcntl": 1, "ioctl": 1, "mmap": 2, "mprotect": 2, "madvise": 2, "socket": (0, 1), "setsockopt": (1, 2),
             "getsockopt": (1, 2), "shutdown": 1, "futex": 1, "rt_sigprocmask": 0, "rt_sigaction": 0, "epoll_ctl": 1,
             "lseek": 2, "openat": 2, "newfstatat": 3, "unlinkat": 2, "prctl": 0, "fallocate": 1, "clone": 1, "mremap": 3,
             "mkdirat": 0, "unlink": 0, "getrandom": 2, "pipe2": 1, "eventfd2": 1, "sendmsg": 2, "recvmsg": 2}
WRAPPER = """#!/bin/sh
exec strace -D -f -q -s 24 -o {logs}/$$ {real} "$@"
"""


def folder_of_programs(build, where):
    """A copy of the build whose cloched is traced."""
    programs, logs = where / "bin", where / "logs"
    programs.mkdir()
    logs.mkdir()
    logs.chmod(0o777)
    for f in build.iterdir():
        if f.is_file() and os.access(f, os.X_OK) or f.suffix == ".json":
            shutil.copy(f, programs)
    (programs / "tests").symlink_to(build / "tests")
    real = where / "cloched"
    shutil.move(programs / "cloched", real)
    (programs / "cloched").write_text(WRAPPER.format(logs=logs, real=real))
    (programs / "cloched").chmod(0o755)
    return programs, logs


# ------------------------------------------------------------------------------------------------- a load of its own


def certificate(where):
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost", "-keyout",
                    where / "key.pem", "-out", where / "cert.pem"], check=True, capture_output=True)
    return {"tls_certificate": str(where / "cert.pem"), "tls_key": str(where / "key.pem")}


def tls_load(where):
    import service
    with service.Service(service=certificate(where)) as s:
        secret = s.root.expect(201, "POST", "/v1/keys", json={"name": "t"}).json["secret"]
        context = ssl.create_default_context(cafile=where / "cert.pem")
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            context.minimum_version = context.maximum_version = version
            for _ in range(3):
                with context.wrap_socket(socket.create_connection(("127.0.0.1", s.port)), server_hostname="localhost") as c:
                    c.sendall(b"GET /v1/quota HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + secret.encode() +
                              b"\r\nConnection: close\r\n\r\n")
                    while c.recv(65536):
                        pass
        for junk in (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x00\x05hello", os.urandom(300)):
            with socket.create_connection(("127.0.0.1", s.port)) as c:
                c.sendall(junk)
                c.settimeout(2)
                with contextlib.suppress(OSError):
                    c.recv(100)


def full_disk_load(where):
    """The state on 12 MB: runs with artifacts until nothing more fits, then reading, then room again."""
    import service
    state = where / "small"
    state.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=12m,mode=755", "tmpfs", state], check=True)
    try:
        with contextlib.ExitStack() as stack:
            s = service.Service(service={"state_dir": str(state / "state")})
            stack.callback(s.stop, check=False)  # what a full disk leaves behind is not this script's question
            for i in range(8):
                s.root.request("POST", "/v1/runs", json={"command": "head -c 3000000 /dev/urandom >/output/x", "output": True},
                               check=False)
            (state / "ballast").write_bytes(b"")
            with contextlib.suppress(OSError), open(state / "ballast", "wb") as f:
                while f.write(bytes(65536)):
                    f.flush()
            for i in range(30):
                s.root.request("POST", "/v1/runs", json={"command": "true"}, check=False)
                s.root.request("GET", "/v1/runs", check=False)
            (state / "ballast").unlink()
            for i in range(5):
                s.root.request("POST", "/v1/runs", json={"command": "true"}, check=False)
            s.root.request("GET", "/v1/audit/verify", check=False)
    finally:
        subprocess.run(["umount", "-l", state])


def mixed_load(where):
    """Retention at work, connections by the hundred, a spawner that dies, a cloched that dies, big files."""
    import service
    short = {k: "1s" for k in ("run_retention", "ended_retention", "audit_retention", "artifact_retention")}
    with service.Service(service=short) as s:
        for i in range(30):
            s.root.run("echo x >/output/x; echo y", output=True)
        box = s.root.box(memory="1g", idle_timeout="1h", disk="256m")
        box.put("/workspace/big", os.urandom(50 << 20))
        box.read("/workspace/big")
        many = [s.root.socket() for _ in range(600)]
        for c in many:
            c.sendall(b"GET /healthz HTTP/1.1\r\nHost: l\r\n\r\n")
        for c in many:
            c.recv(4096)
            c.close()
        for name in ("cloche-spawner", "cloched"):
            os.kill(s.running(name)[0], 9)
            s.wait_ready()
            for _ in range(100):
                if box.request("GET", "", check=False).status == 200 and \
                   box.request("POST", "/exec", json={"command": "true"}, check=False).status == 200:
                    break
                time.sleep(0.05)
        s.root.get("/v1/audit/verify")
        time.sleep(66)  # housekeeping comes once a minute, by the clock of the cloched that came last
        s.root.request("GET", "/metrics", check=False)


# ----------------------------------------------------------------------------------------------------- what was seen


def arguments(text):
    """The arguments of one line of strace, cut at commas outside brackets and quotes."""
    words, depth, quoted, word = [], 0, False, ""
    for c in text:
        quoted ^= c == '"'
        depth += 0 if quoted else (c in "([{") - (c in ")]}")
        if depth < 0:
            break
        if c == "," and depth == 0 and not quoted:
            words.append(word.strip())
            word = ""
        else:
            word += c
    return words + [word.strip()]


def read_logs(logs):
    used, refused, details = collections.Counter(), collections.Counter(), collections.defaultdict(collections.Counter)
    for log in logs.iterdir():
        held = False
        for line in log.open(errors="replace"):
            m = re.match(r"\d+\s+(?:<\.\.\. (\w+) resumed>|(\w+)\()(.*)", line)
            if not m:
                continue
            if not held:
                held = "SECCOMP_SET_MODE_FILTER" in line and "= 0" in line
                continue
            if m[1]:
                continue
            name, rest = m[2], m[3]
            used[name] += 1
            if re.search(r"= -1 (EPERM|ENOSYS)", rest):
                refused[name, re.search(r"= -1 (\w+)", rest)[1], rest[:100]] += 1
            if name in LOOKED_AT:
                at = LOOKED_AT[name]
                words = arguments(rest)
                details[name][" ".join(words[i] for i in (at if isinstance(at, tuple) else (at, )) if i < len(words))] += 1
    return used, refused, details


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default=TOP / "build", type=Path)
    parser.add_argument("--keep", type=Path, help="keep the logs of strace here")
    options, extra = parser.parse_known_args()
    where = Path(tempfile.mkdtemp(prefix="clo-derive."))
    where.chmod(0o755)
    programs, logs = folder_of_programs(options.build.resolve(), where)
    os.environ["CLOCHE"] = str(programs / "cloche")
    threads = [threading.Thread(target=load, args=(where, )) for load in (tls_load, full_disk_load, mixed_load)]
    for t in threads:
        t.start()
    subprocess.run([sys.executable, "-B", "-m", "pytest", "-q", "--tb=line", "-p", "no:cacheprovider", *(extra or SUITE)], cwd=TOP,
                   stdin=subprocess.DEVNULL)
    for t in threads:
        t.join()
    used, refused, details = read_logs(logs)
    listed = re.findall(r"^(?:CALL|WHEN)\((\w+)", (TOP / "src/service/self_calls.def").read_text(), re.M)
    print("never  ", *sorted(set(listed) - set(used)))
    print("refused")
    for (name, error, text), n in sorted(refused.items()):
        if name not in listed or error == "ENOSYS":
            print(f"  {n:8} {name} {error}: {text}")
    print("used")
    for name, n in sorted(used.items()):
        print(f"  {n:8} {name}{'' if name in listed else '   (not in the list)'}")
        for detail, k in details[name].most_common(20):
            print(f"            {k:8} {detail}")
    if options.keep:
        shutil.copytree(logs, options.keep, dirs_exist_ok=True)
    shutil.rmtree(where)


if __name__ == "__main__":
    main()
