# SPDX-License-Identifier: Apache-2.0
"""The seccomp filters: the compiled programs mean what the policy says, and the policy stays below
its ceiling.

No root and no kernel: programs are taken from the generated C header and run by the interpreter
here, which shares no code with the generator. The same golden files are compared with live
sandboxes by tests/abuse.
"""
import hashlib
import importlib.util
import itertools
import random
import re
import struct
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GENERATOR = ROOT / "tools/seccomp-gen.py"
POLICY = ROOT / "src/native/seccomp.policy"
GOLDEN = ROOT / "tests/golden"
PROFILES = ("default", "no-locks", "dev")

_spec = importlib.util.spec_from_file_location("seccomp_gen", GENERATOR)
gen = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(gen)

ALLOW, KILL, ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
X86_64, I386 = 0xC000003E, 0x40000003
EPERM, EINVAL, ENOTTY, ENOSYS = ERRNO | 1, ERRNO | 22, ERRNO | 25, ERRNO | 38
EPROTONOSUPPORT, ESOCKTNOSUPPORT, EAFNOSUPPORT = ERRNO | 93, ERRNO | 94, ERRNO | 97

# The measured prototype (shared/probe/target.c): 192 calls, and four by argument.
PROTOTYPE = set("""
accept accept4 access alarm arch_prctl bind brk capget chdir chmod clock_getres clock_gettime
clock_nanosleep close close_range connect copy_file_range creat dup dup2 dup3 epoll_create
epoll_create1 epoll_ctl epoll_pwait epoll_pwait2 epoll_wait eventfd eventfd2 execve exit exit_group
faccessat faccessat2 fadvise64 fallocate fchdir fchmod fchmodat fchmodat2 fchown fcntl fdatasync
flock fork fstat fstatfs fsync ftruncate futex futex_waitv getcpu getcwd getdents64 getegid geteuid
getgid getgroups getitimer getpeername getpgid getpgrp getpid getppid getpriority getrandom
getresgid getresuid getrlimit getrusage getsid getsockname getsockopt gettid gettimeofday getuid
getxattr inotify_add_watch inotify_init1 inotify_rm_watch kill lgetxattr link linkat listen
listxattr lseek lstat madvise membarrier memfd_create mincore mkdir mkdirat mmap mprotect mremap
msync munmap nanosleep newfstatat open openat pause pidfd_open pidfd_send_signal pipe pipe2 poll
ppoll pread64 preadv preadv2 prlimit64 pselect6 pwrite64 pwritev pwritev2 read readlink readlinkat
readv recvfrom recvmmsg recvmsg rename renameat renameat2 restart_syscall rmdir rseq rt_sigaction
rt_sigpending rt_sigprocmask rt_sigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait
sched_get_priority_max sched_get_priority_min sched_getaffinity sched_getparam sched_getscheduler
sched_yield select sendfile sendmmsg sendmsg sendto set_robust_list set_tid_address setitimer
setpgid setpriority setrlimit setsid setsockopt shutdown sigaltstack socketpair splice stat statfs
statx symlink symlinkat sync_file_range tgkill time timer_create timer_delete timer_getoverrun
timer_gettime timer_settime timerfd_create timerfd_gettime timerfd_settime times tkill truncate
umask uname unlink unlinkat utime utimensat utimes vfork wait4 waitid write writev
""".split())
PROTOTYPE_BY_ARGUMENT = {"socket", "clone", "ioctl", "prctl"}
# FEASIBILITY, paragraph 11: what make, cp -a, mv, mkfifo and taskset cannot do without.
ADDITIONS = set("""
setuid setgid setreuid setregid setresuid setresgid chown lchown fchownat mknod mknodat
sched_setaffinity inotify_init removexattr lremovexattr fremovexattr
""".split())
DEV_ADDITIONS = set("""
signalfd signalfd4 setxattr lsetxattr fsetxattr fgetxattr llistxattr flistxattr
""".split())

PROTOTYPE_IOCTLS = {0x5401, 0x5413, 0x541B, 0x5421, 0x5451, 0x5450, 0x540F}
PROTOTYPE_PRCTLS = {15, 16, 1, 2, 3, 4, 23, 21, 0x53564D41, 39, 38}
TIOCSTI, TIOCLINUX, TIOCCONS, TIOCSETD = 0x5412, 0x541C, 0x541D, 0x5423
LOCK_COMMANDS = {5, 6, 7, 36, 37, 38}


def run(program, nr, arch=X86_64, args=()):
    """Classic BPF as the kernel's seccomp runs it, over struct seccomp_data."""
    data = struct.pack("<IIQ6Q", nr, arch, 0, *(tuple(args) + (0,) * 6)[:6])
    pc, a = 0, 0
    while True:
        code, jt, jf, k = program[pc]
        pc += 1
        if code == 0x20:  # ld [k]
            assert k % 4 == 0 and k + 4 <= len(data)
            (a,) = struct.unpack_from("<I", data, k)
        elif code == 0x54:  # and #k
            a &= k
        elif code == 0x05:  # ja
            pc += k
        elif code == 0x15:  # jeq #k
            pc += jt if a == k else jf
        elif code == 0x35:  # jge #k
            pc += jt if a >= k else jf
        elif code == 0x06:  # ret #k
            return k
        else:
            raise AssertionError(f"instruction {code:#x}")


def programs_of(header):
    text = header.read_text()
    result = {}
    for name, body in re.findall(r"seccomp_filter_(\w+)\[\] = \{(.*?)\n\};", text, re.S):
        instructions = re.findall(r"\{ (\w+), (\d+), (\d+), (\w+) \}", body)
        program = [(int(c, 0), int(t), int(f), int(k, 0)) for c, t, f, k in instructions]
        result[name.replace("_", "-")] = program
    return result


@pytest.fixture(scope="module")
def policy():
    return gen.Policy(POLICY)


@pytest.fixture(scope="module")
def header(tmp_path_factory):
    path = tmp_path_factory.mktemp("seccomp") / "seccomp-filters.h"
    subprocess.run([sys.executable, GENERATOR, "-o", path], check=True)
    return path


@pytest.fixture(scope="module")
def programs(header):
    return programs_of(header)


def argument_samples(rules, rng):
    """Vectors that reach every rule from inside and outside, and try to hide in the high bits."""
    interesting = {n: {0, 1, 0xFFFFFFFF} for n in range(6)}
    for c in (c for r in rules for c in r.conditions):
        for v in c.values:
            other = rng.getrandbits(32) & ~c.mask
            interesting[c.arg] |= {v, v | other, (v + 1) % 2**32, (v - 1) % 2**32, v ^ 0x80000000}
        interesting[c.arg] |= {c.mask, 0xFFFFFFFF ^ c.mask}
        interesting[c.arg] |= {1 << bit for bit in range(32)}
    used = sorted({c.arg for r in rules for c in r.conditions})
    for values in itertools.product(*(sorted(interesting[n]) for n in used)):
        args = [rng.getrandbits(64) for _ in range(6)]
        for n, v in zip(used, values):
            args[n] = v | rng.choice([0, 1 << 32, 1 << 63, rng.getrandbits(32) << 32])
        yield args


def check_meaning(profile, program, rng):
    for nr in range(601):
        target = profile.calls.get(nr, profile.default)
        samples = [[0] * 6, [2**64 - 1] * 6, [rng.getrandbits(64) for _ in range(6)]]
        if not isinstance(target, int):
            every = list(argument_samples(target, rng))
            samples += every if len(every) < 4000 else rng.sample(every, 4000)
        for args in samples:
            assert run(program, nr, X86_64, args) == profile.verdict(nr, X86_64, args), (nr, args)
        assert run(program, nr, I386, samples[2]) == KILL
        assert run(program, nr | 0x40000000, X86_64, samples[2]) == KILL


@pytest.mark.parametrize("name", PROFILES)
def test_program_means_the_policy(policy, programs, name):
    check_meaning(policy.profiles[name], programs[name], random.Random(11))


def test_far_jumps(tmp_path):
    """A policy with no two neighbours alike: the tree outgrows the 255 of a conditional jump."""
    numbers = gen.header_numbers("unistd_64.h")
    names = ("EPERM", "EIO", "EBADF", "EINVAL", "ENOTTY", "EFBIG", "EROFS")
    lines = ["default errno ENOSYS", "foreign kill"]
    for n, call in enumerate(sorted(numbers, key=numbers.get)):
        if n % 9 == 5:
            lines += [f"args {call}", f"\tallow when arg{n % 6} = {n} {n + 7}, arg1 & 0xff = 3",
                      f"\terrno {names[n % 7]}"]
        else:
            lines += [f"errno {names[n % 7]}", f"\t{call}"]
    text = "\n".join(lines) + "\n"
    (tmp_path / "p").write_text(text)
    profile = gen.Policy(tmp_path / "p").profiles["default"]
    program, _ = gen.compile_profile(profile)
    assert len(program) > 600
    assert any(code == 0x05 for code, *_ in program), "no unconditional jump was needed"
    check_encoding(program)
    check_meaning(profile, program, random.Random(12))


def check_encoding(program):
    assert 0 < len(program) <= 4096
    assert program[-1][0] == 0x06
    for at, (code, jt, jf, k) in enumerate(program):
        assert 0 <= jt <= 255 and 0 <= jf <= 255 and 0 <= k < 2**32
        if code in (0x15, 0x35):
            assert at + 1 + max(jt, jf) < len(program)
        elif code == 0x05:
            assert at + 1 + k < len(program)
        else:
            assert jt == jf == 0


@pytest.mark.parametrize("name", PROFILES)
def test_encoding_and_size(programs, header, name):
    check_encoding(programs[name])
    sock_filters = b"".join(struct.pack("<HBBI", *i) for i in programs[name])
    row = rf'\.name = "{name}",\s*\.len = (\d+),\s*\.filter = \w+,\s*\.sha256 = "(\w+)"'
    length, digest = re.search(row, header.read_text()).groups()
    assert int(length) == len(programs[name])
    assert digest == hashlib.sha256(sock_filters).hexdigest()
    # Load time grows with length: FEASIBILITY measured 305 instructions for 192 calls.
    assert len(programs[name]) <= 305


@pytest.mark.parametrize("name", PROFILES)
def test_numbers_beyond_the_table(programs, name):
    rng = random.Random(13)
    program = programs[name]
    for nr in [470, 511, 1023, 1024, 0x3FFFFFFF] + [rng.randrange(601, 2**30) for _ in range(500)]:
        assert run(program, nr) == ENOSYS, hex(nr)
    for nr in [2**30, 2**31 - 1] + [rng.randrange(2**30, 2**31) for _ in range(500)]:
        assert run(program, nr) == KILL, hex(nr)
    # Negative: no architecture has them, and -1 is how a tracer skips a call.
    for nr in [2**31, 2**32 - 1] + [rng.randrange(2**31, 2**32) for _ in range(500)]:
        assert run(program, nr) == ENOSYS, hex(nr)
    for arch in [0, I386, 0xC00000B7, 0x8000003E, 0x4000003E] + [rng.getrandbits(32)]:
        assert run(program, 0, arch) == KILL, hex(arch)


def test_every_call_is_named(policy):
    """Debian 12's header, and the later calls the policy gives numbers to."""
    unnamed = {n for n, nr in policy.numbers.items() if nr <= gen.LAST_KNOWN} - policy.named
    assert not unnamed


def reached(program, policy):
    """The names of the calls that some argument lets through."""
    return {n for n, nr in policy.numbers.items() if ALLOW in gen.reachable(program, nr, X86_64)}


def test_ceiling(policy, programs):
    prototype = PROTOTYPE | PROTOTYPE_BY_ARGUMENT
    assert len(PROTOTYPE) == 192 and len(prototype) == 196
    default = reached(programs["default"], policy)
    assert default - prototype == ADDITIONS
    assert prototype - default == set()
    assert default - reached(programs["no-locks"], policy) == {"flock"}
    assert reached(programs["no-locks"], policy) - default == set()
    assert reached(programs["dev"], policy) - default == DEV_ADDITIONS
    assert default - reached(programs["dev"], policy) == set()


def test_the_tests_reachable_agrees(policy, programs):
    """reached() leans on the generator's interpreter: where no argument counts, ours must agree."""
    for name in PROFILES:
        for nr in range(601):
            outcome = gen.reachable(programs[name], nr, X86_64)
            if len(outcome) == 1:
                assert run(programs[name], nr, X86_64, [7] * 6) == outcome.pop()


def asked(programs, policy, profile, call, *args):
    return run(programs[profile], policy.numbers[call], X86_64, args)


HIGH = (0, 1 << 32, 1 << 63, 0xFFFFFFFF << 32)


@pytest.mark.parametrize("profile", PROFILES)
def test_ioctl(policy, programs, profile):
    """Also: high bits, which the kernel drops, make no other call of a refused one."""
    rng = random.Random(14)
    commands = set(range(0x5000, 0x6000)) | {rng.getrandbits(32) for _ in range(3000)}
    commands |= {(d << 30) | (s << 16) | 0x5400 | n
                 for d in range(4) for s in (4, 8, 44) for n in range(256)}
    for high in HIGH:
        answers = {c: asked(programs, policy, profile, "ioctl", 3, c | high) for c in commands}
        assert set(answers.values()) == {ALLOW, ENOTTY}
        allowed = {c for c, a in answers.items() if a == ALLOW}
        if profile == "dev":
            assert allowed > PROTOTYPE_IOCTLS
            assert all((c & 0xFF00) == 0x5400 for c in allowed)
        else:
            assert allowed == PROTOTYPE_IOCTLS
        assert not allowed & {TIOCSTI, TIOCLINUX, TIOCCONS, TIOCSETD}


@pytest.mark.parametrize("profile", PROFILES)
def test_prctl(policy, programs, profile):
    options = set(range(256)) | {0x53564D41, 0x41555856, 0xFFFFFFFF}
    for high in HIGH:
        answers = {o: asked(programs, policy, profile, "prctl", o | high) for o in options}
        assert {o for o, a in answers.items() if a == ALLOW} == PROTOTYPE_PRCTLS
        assert {o for o, a in answers.items() if a == EPERM} == {24, 28, 47}
        assert set(answers.values()) == {ALLOW, EPERM, EINVAL}


@pytest.mark.parametrize("profile", PROFILES)
def test_clone(policy, programs, profile):
    namespaces = (0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000,
                  0x40000000, 0x00000080)
    thread, fork, vfork = 0x3D0F00, 0x1200011, 0x4111
    for base, high in itertools.product((thread, fork, vfork, 0), HIGH):
        assert asked(programs, policy, profile, "clone", base | high) == ALLOW
        for flag in namespaces:
            assert asked(programs, policy, profile, "clone", base | flag | high) == EPERM
    for call in ("clone3", "unshare", "setns"):
        assert asked(programs, policy, profile, call) == ENOSYS


@pytest.mark.parametrize("profile", PROFILES)
def test_socket(policy, programs, profile):
    protocols = {1: (0, 6), 2: (0, 17)}
    for family, kind, protocol in itertools.product(range(50), range(16), (0, 1, 6, 17, 132, 262)):
        for flags in (0, 0o2000000, 0o4000, 1 << 40):
            got = asked(programs, policy, profile, "socket", family, kind | flags, protocol)
            if family not in (1, 2, 10):
                assert got == EAFNOSUPPORT
            elif kind not in (1, 2):
                assert got == ESOCKTNOSUPPORT
            elif family != 1 and protocol not in protocols[kind]:
                assert got == EPROTONOSUPPORT
            else:
                assert got == ALLOW
    for family in range(50):
        got = asked(programs, policy, profile, "socketpair", family, 1, 0)
        assert got == {1: ALLOW, 2: ERRNO | 95, 10: ERRNO | 95}.get(family, EAFNOSUPPORT)


@pytest.mark.parametrize("profile", ["default", "no-locks", "dev"])
def test_no_file_becomes_setuid(programs, policy, profile):
    """On a writable volume a set-user-id file would run as the caller, outside."""
    O_CREAT, O_TMPFILE = 0o100, 0o20200000
    for bits in (0o4000, 0o2000, 0o6000):
        for mode in (bits, bits | 0o755, bits | 0o1777, bits | 0o755 | 1 << 32, bits | 1 << 20):
            makers = [("chmod", 0, mode), ("fchmod", 0, mode), ("fchmodat", 0, 0, mode), ("fchmodat2", 0, 0, mode),
                      ("mkdir", 0, mode), ("mkdirat", 0, 0, mode), ("creat", 0, mode),
                      ("mknod", 0, 0o100000 | mode), ("mknodat", 0, 0, 0o10000 | mode)]
            for flags in (O_CREAT, O_CREAT | 1, O_TMPFILE | 2, O_CREAT | O_TMPFILE):
                makers += [("open", 0, flags, mode), ("openat", 0, 0, flags, mode)]
            for call in makers:
                assert asked(programs, policy, profile, *call) == EPERM, call
            assert asked(programs, policy, profile, "open", 0, 0o2, mode) == ALLOW  # no file made: not a mode
            assert asked(programs, policy, profile, "openat", 0, 0, 0o200000, mode) == ALLOW  # O_DIRECTORY
    for call in (("chmod", 0, 0o1777), ("open", 0, O_CREAT, 0o666), ("openat", 0, 0, O_TMPFILE | 2, 0o600),
                 ("mkdirat", 0, 0, 0o1777)):
        assert asked(programs, policy, profile, *call) == ALLOW, call


@pytest.mark.parametrize("profile", PROFILES)
def test_mknod(policy, programs, profile):
    """The kernel's umode_t has 16 bits: what lies above must not hide a device."""
    modes = itertools.product(range(16), (0, 0o644, 0o1777), (0, 1 << 16, 1 << 40))
    for kind, mode, above in modes:
        expected = ALLOW if kind in (0, 1, 8, 12) else EPERM
        bits = kind << 12 | mode | above
        assert asked(programs, policy, profile, "mknod", 0, bits) == expected
        assert asked(programs, policy, profile, "mknodat", 0, 0, bits) == expected


@pytest.mark.parametrize("profile", PROFILES)
def test_fcntl(policy, programs, profile):
    known = {*range(12), 15, 16, 17, 36, 37, 38, 1025, 1027, 1028, *range(1030, 1039)}
    for command, high in itertools.product([*range(2000), 0xFFFFFFFF], HIGH):
        got = asked(programs, policy, profile, "fcntl", 3, command | high)
        if profile == "no-locks" and command in LOCK_COMMANDS:
            assert got == ENOSYS
        else:
            assert got == (ALLOW if command in known else EINVAL), command


def test_locks_are_off_in_no_locks_only(policy, programs):
    assert [asked(programs, policy, p, "flock") for p in PROFILES] == [ALLOW, ENOSYS, ALLOW]


@pytest.mark.parametrize("profile", PROFILES)
def test_promised_refusals(policy, programs, profile):
    """SECURITY-BASIS KS-07 to KS-12: the exact errno."""
    for call in """
            io_uring_setup io_uring_enter io_uring_register seccomp keyctl add_key request_key bpf
            perf_event_open userfaultfd fanotify_init kcmp pidfd_getfd process_vm_readv
            process_vm_writev process_madvise move_pages mbind migrate_pages lookup_dcookie vmsplice
            remap_file_pages memfd_secret map_shadow_stack modify_ldt iopl ioperm personality uselib
            set_thread_area acct swapon swapoff reboot kexec_load kexec_file_load init_module
            finit_module delete_module quotactl quotactl_fd syslog sethostname settimeofday
            clock_settime adjtimex vhangup nfsservctl sysinfo cachestat
            """.split():
        assert asked(programs, policy, profile, call) == ENOSYS, call
    for call in "ptrace capset mount umount2 pivot_root chroot setgroups".split():
        assert asked(programs, policy, profile, call) == EPERM, call


def test_constants_are_the_headers(policy, tmp_path):
    includes = ("netinet/in.h", "sys/socket.h", "sys/stat.h", "linux/prctl.h", "fcntl.h",
                "asm/termbits.h", "asm/ioctls.h")
    lines = ["#define _GNU_SOURCE"] + [f"#include <{i}>" for i in includes]
    for name, value in policy.consts.items():
        claim = f'_Static_assert((unsigned int)({name}) == {value}U, "{name}");'
        lines += [f"#ifdef {name}", claim, "#endif"]
    source = tmp_path / "constants.c"
    source.write_text("\n".join(lines) + "\n")
    subprocess.run(["cc", "-fsyntax-only", source], check=True)


@pytest.mark.parametrize("name,arch", itertools.product(PROFILES, ("x86_64", "x32", "i386")))
def test_golden(name, arch):
    made = subprocess.run([sys.executable, GENERATOR, "--golden", name, arch], check=True,
                          capture_output=True, text=True).stdout
    assert made == (GOLDEN / f"seccomp-{name}.{arch}.txt").read_text()


@pytest.mark.parametrize("text,message", [
    ("allow\n\tread read\n", "two verdicts"),
    ("allow\n\tread\nerrno EPERM\n\tread\n", "two verdicts"),
    ("allow\n\tno_such_call\n", "no such call"),
    ("errno ENOPE\n\tread\n", "not a verdict"),
    ("allows\n\tread\n", "not a verdict"),
    ("\tread\n", "outside a section"),
    ("args ioctl\n\tallow when arg1 = 1\n", "the last rule has a condition"),
    ("args ioctl\n\tallow\n\terrno EPERM\n", "behind one without condition"),
    ("args ioctl\n\tallow when arg1 = NOPE\n\terrno EPERM\n", "no such constant"),
    ("args ioctl\n\tallow when arg6 = 1\n\terrno EPERM\n", "not a condition"),
    ("args ioctl\n\tallow when arg1 & 0xf = 0x10\n\terrno EPERM\n", "outside the mask"),
    ("args ioctl\n\tallow when arg1 = 0x100000000\n\terrno EPERM\n", "32 bits"),
    ("number read 7\n", "in the header"),
    ("const A 1\nconst A 2\n", "defined twice"),
    ("foreign errno EPERM\n", "foreign architectures are killed"),
])
def test_bad_policy_is_refused(tmp_path, text, message):
    (tmp_path / "bad").write_text("default errno ENOSYS\nforeign kill\n" * ("foreign" not in text)
                                  + text)
    result = subprocess.run([sys.executable, GENERATOR, tmp_path / "bad", "-o", tmp_path / "out"],
                            capture_output=True, text=True)
    assert result.returncode == 1 and message in result.stderr
    assert not (tmp_path / "out").exists()
