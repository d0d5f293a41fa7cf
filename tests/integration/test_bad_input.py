# SPDX-License-Identifier: Apache-2.0
"""Bad input gets one line that names the object and the cause, the right exit status, and leaves nothing behind."""
import os
import socket
import subprocess
import textwrap

import cloche
import pytest
import shape

pytestmark = pytest.mark.needs("native")


def plain(*args, **kw):
    return cloche.run(args, json=False, **kw)


@pytest.fixture(autouse=True)
def nothing_left(no_leftovers):
    pass


# Usage errors: (arguments, words of the line). All exit 2.
USAGE = [
    (["run"], ["no command"]),
    (["run", "--"], ["no command"]),
    (["run", ""], ["no command"]),
    (["bogus"], ["no such verb: bogus"]),
    (["run", "--bogus", "true"], ["--bogus", "unknown option"]),
    (["run", "--bogus=1", "true"], ["--bogus", "unknown option"]),
    (["run", "-Z", "true"], ["-Z", "unknown option"]),
    (["run", "--memory_swap", "1g", "true"], ["--memory_swap", "unknown option"]),
    (["run", "-c", "x", "true"], ["-c", "unknown option"]),
    (["run", "--memory"], ["--memory", "needs a value"]),
    (["run", "-m"], ["-m", "needs a value"]),
    (["run", "--json=yes", "true"], ["--json", "takes no value"]),
    (["python", "-c"], ["-c", "needs a value"]),
    (["run", "--memory", "", "true"], ["--memory", '""']),
    (["run", "--memory-swap", "128m", "true"], ["--memory-swap", "cannot be less than --memory"]),
    (["run", "--memory", "1m", "true"], ["--memory", "1m", "out of range"]),
    (["run", "--cpus", "5000", "true"], ["--cpus", "5000", "out of range"]),
    (["run", "--cpus", "0.001", "true"], ["--cpus", "0.001", "out of range"]),
    (["run", "--cpus", "nan", "true"], ["--cpus", "nan"]),
    (["run", "--cpus", "0x10", "true"], ["--cpus", "0x10"]),
    (["run", "--timeout", "5 s", "true"], ["--timeout", "5 s"]),
    (["run", "--timeout", "5d", "true"], ["--timeout", "5d"]),
    (["run", "--memory", "256q", "true"], ["--memory", "256q"]),
    (["run", "--on-output-limit", "ignore", "true"], ["--on-output-limit", "ignore", "drop or kill"]),
    (["run", "--profile", "none", "true"], ["--profile", "none"]),
    (["run", "--workdir", "/proc/self/fd/7", "true"], ["--workdir", "/proc/self/fd/7", "/proc"]),
    (["run", "--workdir", "/dev", "true"], ["--workdir", "/dev"]),
    (["run", "--workdir", "/sys/kernel", "true"], ["--workdir", "/sys"]),
    (["run", "--workdir", "/workspace/../proc/self/fd/7", "true"], ["--workdir", '".."']),
    (["run", "--workdir", "here", "true"], ["--workdir", "here", "absolute"]),
    (["run", "--workdir", "/" + "x" * 300, "true"], ["--workdir", "longer than"]),
    (["run", "--user", "bob", "true"], ["--user", "bob", "numbers only"]),
    (["run", "--user", "0", "true"], ["--user", "0", "root"]),
    (["run", "--user", "1000:0", "true"], ["--user", "1000:0", "root"]),
    (["run", "--user", "-1", "true"], ["--user", "-1", "numbers only"]),
    (["run", "--user", "4294967295", "true"], ["--user", "4294967295", "out of range"]),
    (["run", "--user", "1:2:3", "true"], ["--user", "1:2:3"]),
    (["run", "--env", "=x", "true"], ["--env", "=x"]),
    (["run", "--env", "CLO_NOT_SET", "true"], ["--env", "CLO_NOT_SET", "not set"]),
    (["run", "--env", "", "true"], ["--env"]),
    (["run", "--hostname", "a b", "true"], ["--hostname", "a b"]),
    (["run", "--hostname", "h" * 65, "true"], ["--hostname"]),
    (["run", "--network", "bridge", "true"], ["--network", "bridge"]),
    (["run", "--artifact", "../x", "true"], ["--artifact", "../x"]),
    (["run", "--artifact", "/etc/*", "true"], ["--artifact", "/etc/*"]),
    (["run", "--volume", "/tmp", "true"], ["--volume", "/tmp", "HOST:BOX"]),
    (["run", "--volume", ":/data", "true"], ["--volume", ":/data"]),
    (["run", "--volume", "/tmp:", "true"], ["--volume"]),
    (["run", "--volume", "/tmp:data", "true"], ["--volume", "data", "absolute"]),
    (["run", "--volume", "/tmp:/", "true"], ["--volume", "/"]),
    (["run", "--volume", "/tmp:/usr/bin", "true"], ["--volume", "/usr/bin"]),
    (["run", "--volume", "/tmp:/etc", "true"], ["--volume", "/etc"]),
    (["run", "--volume", "/tmp:/proc/x", "true"], ["--volume", "/proc"]),
    (["run", "--volume", "/tmp:/data/../usr", "true"], ["--volume", '".."']),
    (["run", "--volume", "/tmp:/data:rx", "true"], ["--volume", "ro or rw"]),
    (["run", "--volume", "/a:b:/data", "true"], ["--volume", "/a:b:/data"]),
    (["run", "--volume", "/tmp:/d", "--volume", "/var:/d", "true"], ["/d", "mounted twice"]),
    (["run", "--tmpfs", "/usr", "true"], ["--tmpfs", "/usr"]),
    (["run", "--tmpfs", "data", "true"], ["--tmpfs", "data", "absolute"]),
    (["run", "--tmpfs", "/data:size=0", "true"], ["--tmpfs", "size=0"]),
    (["run", "--tmpfs", "/data:inodes=0", "true"], ["--tmpfs", "inodes=0"]),
    (["run", "--tmpfs", "/data:mode=777", "true"], ["--tmpfs", "mode=777"]),
    (["run", "--tmpfs", "/dev/shm:exec", "true"], ["/dev/shm", "noexec"]),
    (["run", "--in", "", "true"], ["--in"]),
    (["run", "--in", "/etc/hostname:/workspace/../x", "true"], ["--in", '".."']),
    (["run", "--out", "", "true"], ["--out"]),
    (["config"], ["usage", "config show"]),
    (["config", "show", "--bad"], ["usage", "config show"]),
]
for option in ("memory", "memory-swap", "cpus", "pids-limit", "timeout", "cpu-time", "idle-timeout", "max-output"):
    for value in ("-1", "1e30", "0", "1" + "0" * 30, "x", "1,5", " 1"):
        USAGE.append((["run", f"--{option}", value, "true"], [f"--{option}", value]))
        USAGE.append((["run", f"--{option}={value}", "true"], [f"--{option}", value]))


@pytest.mark.parametrize("args, words", USAGE, ids=lambda v: " ".join(v)[:60] if v and isinstance(v, list) else None)
def test_usage(args, words):
    shape.plain_error(plain(*args), 2, *words)


@pytest.mark.parametrize("args, words", [
    (["--image", "no/such:image", "--pull", "never"], ["no such image: no/such:image"]),
    (["--runtime", "runsc"], ["no such runtime: runsc"]),
])
def test_no_such_image_or_runtime(args, words):
    shape.plain_error(plain("run", *args, "true"), 125, *words)


def test_terminal_escapes_of_a_name_are_not_passed_on():
    r = plain("run", "--\x1b]0;title\x07", "true")
    shape.plain_error(r, 2, "\\x1b")
    assert b"\x1b" not in r.stderr


# --------------------------------------------------------------------------------------------------------- volumes


def test_volume_that_is_not_there():
    shape.plain_error(plain("run", "-v", "/nonexistent/x:/data", "true"), 125, "--volume /nonexistent/x", "No such file")


def test_volume_that_is_a_socket(tmp_path):
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(str(tmp_path / "s"))
        shape.plain_error(plain("run", "-v", f"{tmp_path}/s:/data", "true"), 125, f"{tmp_path}/s", "socket")


@pytest.mark.parametrize("name", ["docker.sock", "containerd.sock", "podman.sock", "cloche.sock"])
def test_volume_that_holds_an_engines_socket(tmp_path, name):
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(str(tmp_path / name))
        shape.plain_error(plain("run", "-v", f"{tmp_path}:/data:ro", "true"), 125, str(tmp_path), name)


@pytest.mark.parametrize("place", ["/", "/proc", "/proc/self", "/sys", "/sys/fs/cgroup", "/dev", "/dev/null", "/run",
                                   "/var/run", "/etc", "/boot"])
def test_volume_of_the_machine(place):
    if not os.path.exists(place):
        pytest.skip(f"no {place} here")
    shape.plain_error(plain("run", "-v", f"{place}:/data:ro", "true"), 125, "--volume")


def test_volume_reached_by_a_link_is_judged_by_its_target(tmp_path):
    (tmp_path / "link").symlink_to("/proc")
    shape.plain_error(plain("run", "-v", f"{tmp_path}/link:/data:ro", "true"), 125, "--volume /proc")


def test_volume_that_is_a_fifo(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    shape.plain_error(plain("run", "-v", f"{tmp_path}/fifo:/data", "true"), 125, "neither a folder nor a regular file")


def test_comma_in_a_volumes_path(tmp_path):
    (tmp_path / "a,b=c").mkdir()
    (tmp_path / "a,b=c" / "file").write_text("here")
    r = plain("run", "-v", f"{tmp_path}/a,b=c:/da,ta:ro", "cat", "/da,ta/file")
    assert (r.returncode, r.stdout, r.stderr) == (0, b"here", b"")


def test_backslash_quote_and_blank_in_a_volumes_path(tmp_path):
    name = "a\\b \"c' d"
    (tmp_path / name).mkdir()
    (tmp_path / name / "file").write_text("here")
    r = plain("run", "-v", f"{tmp_path}/{name}:/data:ro", "cat", "/data/file")
    assert (r.returncode, r.stdout, r.stderr) == (0, b"here", b"")


def test_colon_in_a_volumes_path(tmp_path):
    (tmp_path / "a:b").mkdir()
    shape.plain_error(plain("run", "-v", f"{tmp_path}/a:b:/data", "true"), 2, "--volume", "a:b")


def test_too_many_volumes(tmp_path):
    args = [a for i in range(33) for a in ("-v", f"{tmp_path}:/data{i}:ro")]
    shape.plain_error(plain("run", *args, "true"), 2, "--volume", "at most 32")


# ------------------------------------------------------------------------------------------------------- large arguments


def test_argument_just_below_the_kernels_limit():
    """131,071 bytes and the NUL are what execve takes of one argument (MAX_ARG_STRLEN)."""
    r = plain("run", "sh", "-c", 'printf %s "$1" | wc -c', "sh", "x" * 131071)
    assert (r.returncode, r.stdout) == (0, b"131071\n"), r


def test_too_many_arguments_for_the_stack(tmp_path):
    """Just below our own sum of 2 MiB the kernel may still refuse (a quarter of the stack's limit): told, not hung."""
    r = plain("run", "true", *["x" * 1000] * 2070)
    if r.returncode == 0:
        assert r.stderr == b""
    else:
        shape.plain_error(r, 126, "true: Argument list too long")


def test_arguments_over_the_sum():
    """The caller's own execve takes 2 MiB (a quarter of an 8 MiB stack) with it; more of a stack shows our limit."""
    code = textwrap.dedent("""
        import os, resource, sys
        resource.setrlimit(resource.RLIMIT_STACK, (64 << 20, resource.getrlimit(resource.RLIMIT_STACK)[1]))
        os.execv(sys.argv[1], [sys.argv[1], "run", "true"] + ["x" * 1000] * 2200)
    """)
    p = subprocess.run(["/usr/bin/python3", "-c", code, cloche.binary()], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                       env=cloche.environment())
    r = cloche.Result(["cloche"], p.returncode, p.stdout, p.stderr, 0, False)
    shape.plain_error(r, 2, "arguments and environment", "at most 2097152")


def test_a_million_bytes_by_stdin_instead():
    r = plain("run", "wc", "-c", stdin=b"x" * 1_000_000)
    assert (r.returncode, r.stdout) == (0, b"1000000\n")


def test_one_entry_of_an_env_file_over_the_limit(tmp_path):
    (tmp_path / "env").write_text("A=" + "x" * 131072 + "\n")
    shape.plain_error(plain("run", "--env-file", tmp_path / "env", "true"), 2, f"{tmp_path}/env line 1", "A", "longer than 131071")


def test_code_by_stdin_has_no_such_limit():
    r = cloche.python("x = '" + "y" * 1_000_000 + "'\nprint(len(x))", "--timeout", f"{20 * shape.SLOW}s")
    shape.exited(r, 0)
    assert r.out == b"1000000\n"


def test_too_many_env_entries(tmp_path):
    (tmp_path / "env").write_text("".join(f"A{i}=\n" for i in range(1100)))
    shape.plain_error(plain("run", "--env-file", tmp_path / "env", "true"), 2, "too many entries")


# ------------------------------------------------------------------------------------------------------- files and names


@pytest.mark.parametrize("args, words", [
    (["run", "--in", "/nonexistent/x", "true"], ["--in", "/nonexistent/x", "No such file"]),
    (["python", "/nonexistent/x.py"], ["/nonexistent/x.py", "No such file"]),
    (["run", "--env-file", "/nonexistent/env", "true"], ["--env-file", "/nonexistent/env", "No such file"]),
    (["run", "--venv", "/nonexistent/venv", "true"], ["--venv /nonexistent/venv", "No such file"]),
    (["run", "--venv", "/usr/share", "true"], ["--venv /usr/share", "bin/python3"]),
    (["run", "--in", "/dev/null", "true"], ["--in", "/dev/null"]),
])
def test_missing_files(args, words):
    shape.plain_error(plain(*args), 125, *words)


def test_out_folder_that_cannot_be(tmp_path):
    (tmp_path / "file").touch()
    r = plain("run", "--out", tmp_path / "file", "true")
    shape.plain_error(r, 125, f"{tmp_path}/file", "Not a directory")
    r = cloche.run(["run", "--out", tmp_path / "no" / "such", "true"])
    assert (r.returncode, r.error_code, r.reason, r.ok) == (125, "SANDBOX_ARTIFACT_EXPORT_FAILED", "exited", False)


def test_a_failed_command_stays_failed_when_artifacts_fail(tmp_path):
    (tmp_path / "file").touch()
    r = cloche.run(["run", "--out", tmp_path / "file", "false"])
    assert (r.returncode, r.error_code, r.exit_code) == (1, "COMMAND_FAILED", 1)


def test_name_that_is_not_utf8(tmp_path):
    name = os.fsencode(tmp_path) + b"/caf\xe9"
    with open(name, "w") as f:
        f.write("print('hi')")
    p = subprocess.run([cloche.binary(), "python", name], stdin=subprocess.DEVNULL, capture_output=True,
                       env=cloche.environment())
    assert (p.returncode, p.stdout) == (0, b"hi\n"), p
    p = subprocess.run([cloche.binary(), "run", b"caf\xe9"], stdin=subprocess.DEVNULL, capture_output=True,
                       env=cloche.environment())
    assert (p.returncode, p.stdout) == (127, b"") and p.stderr.startswith(b"cloche: exec: caf"), p
    p.stderr.decode()


def test_name_that_is_not_utf8_in_json():
    p = subprocess.run([cloche.binary(), "run", "--json", b"caf\xe9"], stdin=subprocess.DEVNULL, capture_output=True,
                       env=cloche.environment())
    r = cloche.Result(["cloche"], p.returncode, p.stdout, p.stderr, 0, True)
    shape.check_shape(r)
    assert (r.reason, r.stage, p.returncode) == ("create_failed", "exec", 127)


def test_nul_in_an_env_file(tmp_path):
    (tmp_path / "env").write_bytes(b"A=1\nB=x\0y\n")
    shape.plain_error(plain("run", "--env-file", tmp_path / "env", "true"), 2, f"{tmp_path}/env line 2", "NUL")


def test_env_file_line_without_value(tmp_path):
    (tmp_path / "env").write_text("# fine\nA=1\n\nNONSENSE\n")
    shape.plain_error(plain("run", "--env-file", tmp_path / "env", "true"), 2, f"{tmp_path}/env line 4", "NONSENSE")


def test_env_file_that_is_a_folder(tmp_path):
    shape.plain_error(plain("run", "--env-file", tmp_path, "true"), 125, str(tmp_path), "Is a directory")


def test_code_from_nowhere():
    """No code and a terminal: said, not waited for."""
    ours, theirs = os.openpty()
    try:
        p = subprocess.run([cloche.binary(), "python"], stdin=theirs, capture_output=True, env=cloche.environment(), timeout=20)
    finally:
        os.close(ours)
        os.close(theirs)
    assert (p.returncode, p.stdout, p.stderr) == (2, b"", b"cloche: no code: give -c CODE, a FILE, or pipe it in\n")


# --------------------------------------------------------------------------------------------------- the machine's fault


def in_own_mounts(setup, *args):
    """cloche with ARGS after the shell lines SETUP in a mount namespace of its own."""
    return cloche.run(args, json=False, prefix=["unshare", "-m", "sh", "-c", f'{setup}\nexec "$@"', "sh"])


@pytest.mark.needs("root")
def test_full_disk_for_the_host_image():
    r = in_own_mounts("mount -t tmpfs -o size=16k,nr_inodes=4 none /var/lib/cloche", "run", "true")
    shape.plain_error(r, 125, "/var/lib/cloche", "No space left on device")


@pytest.mark.needs("root")
def test_full_disk_in_the_middle_of_the_host_image():
    """Half an image is never taken for one."""
    r = in_own_mounts('mount -t tmpfs -o size=64k none /var/lib/cloche; "$@"; mount -o remount,size=64m /var/lib/cloche',
                      "run", "sh", "-c", "cat /etc/ssl/certs/ca-certificates.crt /etc/services | wc -c")
    lines = r.stderr.splitlines()
    assert len(lines) == 1 and lines[0].startswith(b"cloche: image: /var/lib/cloche/host: ") and b"No space left" in lines[0]
    assert r.returncode == 0 and int(r.stdout) > 1000


@pytest.mark.needs("root")
def test_read_only_state():
    r = in_own_mounts("mount -t tmpfs -o ro none /var/lib/cloche", "run", "true")
    shape.plain_error(r, 125, "/var/lib/cloche", "Read-only file system")


@pytest.mark.needs("root")
def test_read_only_runtime_folder():
    r = in_own_mounts("mount -t tmpfs -o ro none /run/cloche", "run", "true")
    shape.plain_error(r, 125, "/run/cloche", "Read-only file system")


@pytest.mark.needs("root", "cgroup-v1")
def test_read_only_cgroups():
    remount = "\n".join(f"mount -o bind,remount,ro {d}" for d in sorted({
        line.split()[4] for line in open("/proc/self/mountinfo") if line.split()[4].startswith("/sys/fs/cgroup")}))
    r = in_own_mounts(remount, "run", "true")
    shape.plain_error(r, 125, "cgroup", "read-only")


@pytest.mark.needs("root", "cgroup-v1")
@pytest.mark.parametrize("name", ["memory", "pids", "cpu"])
def test_a_missing_controller_is_refused(name):
    """Fail closed: a limit that cannot be enforced is an error; --best-effort runs and says none."""
    hide = f"mount -t tmpfs -o ro none /sys/fs/cgroup/{name}"
    r = in_own_mounts(hide, "run", "true")
    shape.plain_error(r, 125, "limits cannot be enforced", f"/sys/fs/cgroup/{name}")
    r = cloche.run(["run", "--json", "--best-effort", "true"],
                   prefix=["unshare", "-m", "sh", "-c", f'{hide}\nexec "$@"', "sh"])
    shape.exited(r, 0)
    assert r.enforced[name] == "none"
    assert all(r.enforced[other] == "cgroup-v1" for other in ("memory", "pids", "cpu") if other != name)


def test_no_descriptors_left():
    """Wherever it runs out of them, one line says so and nothing stays."""
    refused = 0
    for n in range(4, 64):
        r = cloche.run(["run", "true"], json=False, prefix=["prlimit", f"--nofile={n}:{n}"])
        if r.returncode == 0 and r.stderr == b"":
            break
        shape.plain_error(r, 125, "Too many open files")
        refused += 1
    assert r.returncode == 0 and refused >= 8


def test_standard_streams_closed():
    """A caller without stdin, stdout and stderr gets the status."""
    for code, status in (("exit 3", 3), ("echo hi; exit 4", 4)):
        p = subprocess.run(["sh", "-c", f'exec "$0" run --quiet sh -c "{code}" <&- >&- 2>&-', cloche.binary()],
                           env=cloche.environment(), timeout=30)
        assert p.returncode == status


# ------------------------------------------------------------------------------------------------- rootless on cgroup v1

REFUSAL = ("cloche: cgroup: limits cannot be enforced: an ordinary user cannot make cgroups on a cgroup v1 host: "
           "run as root, or boot with systemd.unified_cgroup_hierarchy=1\n")


def test_rootless_on_v1_is_refused(user):
    uid, env = user
    r = cloche.run(["run", "true"], json=False, uid=uid, env=env)
    assert (r.returncode, r.stdout, r.stderr.decode()) == (125, b"", REFUSAL)
    r = cloche.run(["run", "true"], uid=uid, env=env)
    shape.check_reason(r, "create_failed")
    assert r.stage == "cgroup" and r.enforced["memory"] == "none"


def test_rootless_on_v1_by_best_effort(user):
    uid, env = user
    r = cloche.run(["python", "--best-effort", "--timeout", "20s", "-c",
                    "import os; print(os.getuid(), open('/proc/self/uid_map').read().split())"], uid=uid, env=env)
    shape.exited(r, 0)
    assert [r.enforced[k] for k in ("memory", "swap", "cpu", "pids")] == ["none"] * 4
    assert r.enforced["rootless"] is True and r.enforced["network"] == "netns" and r.enforced["landlock"] >= 1
    assert r.out.split()[0] == b"65534"
    assert [r.usage[k] for k in ("cpu_ms", "memory_peak_bytes", "pids_peak")] == [None, None, None]


def test_rootless_ends_are_told(user):
    uid, env = user
    r = cloche.run(["bash", "--best-effort", "--timeout", "500ms", "-c", "echo hi; sleep 30 & sleep 30"], uid=uid, env=env)
    shape.check_reason(r, "timeout")
    assert r.out == b"hi\n"
    r = cloche.run(["bash", "--best-effort", "-c", "kill -9 $$"], uid=uid, env=env)
    shape.check_reason(r, "signaled")


@pytest.fixture
def busy_network():
    """Others make network namespaces all the time, so that each takes long."""
    others = [subprocess.Popen(["sh", "-c", "while :; do unshare --net true; done"]) for _ in range(16)]
    yield
    for p in others:
        p.kill()
        p.wait()


def test_rootless_network_that_takes_long(user, busy_network):
    """Its maker shares init's memory, and only who shares its memory with nobody may enter a time namespace."""
    uid, env = user
    for _ in range(30):
        shape.exited(cloche.run(["run", "--best-effort", "true"], uid=uid, env=env), 0)


def test_rootless_artifacts(user):
    uid, env = user
    out = env["HOME"] + "/out"
    r = cloche.run(["bash", "--best-effort", "--out", out, "-c", "echo data >/output/file; ln -s /etc/passwd /output/link"],
                   uid=uid, env=env)
    shape.exited(r, 0)
    assert {a["path"]: a["skipped"] for a in r.artifacts} == {"file": None, "link": "symbolic link"}
    assert open(out + "/file").read() == "data\n" and os.stat(out + "/file").st_uid == uid
    assert os.listdir(out) == ["file"]


def test_rootless_writable_volume_is_refused(user):
    uid, env = user
    r = cloche.run(["run", "--best-effort", "-v", f"{env['HOME']}:/data", "true"], json=False, uid=uid, env=env)
    shape.plain_error(r, 125, "--volume", env["HOME"], "--in and --out")


def test_user_without_subordinate_ids():
    cloche.need("rootless-refusal")
    r = cloche.run(["run", "--best-effort", "true"], json=False, uid=54321,
                   env={"HOME": "/nonexistent", "XDG_RUNTIME_DIR": "/nonexistent"})
    shape.plain_error(r, 125, "no ids for sandboxes: /etc/subuid has no range for 54321", "usermod --add-subuids")
