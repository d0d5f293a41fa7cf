/* SPDX-License-Identifier: Apache-2.0 */
/*
 * surface - what code can reach from where it runs, counted.
 *
 *	surface [SECTION...]	calls facts paths proc sys sockets mounts
 *
 * One line per thing that is within reach, "SECTION <tab> NAME <tab> DETAIL", and one "count" line per
 * section. Run it in a sandbox; tests/golden/surface.txt is what cloche's gives. Nothing is attacked:
 * every operation is on objects made here, in a child that may die of it. No packet is sent.
 *
 * A call counts as reached unless it answers like the filter: ENOSYS, EPERM, or for extended attributes
 * EOPNOTSUPP. The arguments are chosen so that the kernel itself gives none of these.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/time.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#define ARRAY_SIZE(a) (sizeof(a) / sizeof *(a))
#define LAST_CALL     480 /* 6.18 ends at 469 */
#define NOT_AN_ERRNO  (-1)

static void line(const char *section, const char *name, const char *detail)
{
	printf("%s\t%s\t%s\n", section, name, detail);
	fflush(stdout);
}

static void count(const char *section, const char *what, long n)
{
	char text[32];

	snprintf(text, sizeof text, "%ld", n);
	printf("count\t%s %s\t%s\n", section, what, text);
	fflush(stdout);
}

/* The errno of f() in a child, 0 for success, NOT_AN_ERRNO if the child died. */
static int in_child(int (*f)(const void *), const void *argument)
{
	int p[2], answer = NOT_AN_ERRNO;
	pid_t pid;

	if (pipe(p) < 0)
		return errno;
	pid = fork();
	if (pid == 0) {
		int r;

		alarm(3);
		r = f(argument);
		(void)!write(p[1], &r, sizeof r);
		_exit(0);
	}
	close(p[1]);
	if (pid < 0 || read(p[0], &answer, sizeof answer) != sizeof answer)
		answer = NOT_AN_ERRNO;
	close(p[0]);
	if (pid > 0)
		waitpid(pid, NULL, 0);
	return answer;
}

/* --- system calls ------------------------------------------------------------------------ */

static void nothing(int sig)
{
	(void)sig;
}

/* Wakes up a call that would wait for a signal. */
static void signal_soon(void)
{
	const struct itimerval soon = {{0, 0}, {0, 50000}};
	struct sigaction sa = {.sa_handler = nothing};

	sigaction(SIGALRM, &sa, NULL);
	setitimer(ITIMER_REAL, &soon, NULL);
}

static long vfork_and_exit(void)
{
	long r;

	__asm__ volatile("mov $58, %%eax\n\tsyscall\n\ttest %%rax, %%rax\n\tjnz 1f\n\t"
			 "mov $60, %%eax\n\txor %%edi, %%edi\n\tsyscall\n1:\tmov %%rax, %0"
			 : "=r"(r)
			 :
			 : "rax", "rdi", "rcx", "r11", "memory");
	if (r < 0 && r > -4096) {
		errno = (int)-r;
		return -1;
	}
	return r;
}

/* Calls that need arguments of their own; all others get -1 six times, which is a bad descriptor, a bad
 * pointer and an unknown flag. */
static long call(long nr)
{
	static char room[512];
	sigset_t none;
	long r;

	switch (nr) {
	case SYS_clone:
		r = syscall(nr, SIGCHLD, 0, 0, 0, 0);
		if (r == 0)
			_exit(0);
		return r;
	case SYS_fork:
		r = syscall(nr);
		if (r == 0)
			_exit(0);
		return r;
	case SYS_vfork:
		return vfork_and_exit();
	case SYS_pause:
		signal_soon();
		return syscall(nr);
	case SYS_rt_sigsuspend:
		signal_soon();
		sigemptyset(&none);
		return syscall(nr, &none, 8);
	case SYS_kill:
	case SYS_tkill:
		return syscall(nr, getpid(), 0);
	case SYS_tgkill:
		return syscall(nr, getpid(), getpid(), 0);
	case SYS_futex:
		return syscall(nr, room, 1, 1, 0, 0, 0);
	case SYS_prctl:
		return syscall(nr, PR_GET_DUMPABLE, 0, 0, 0, 0);
	case SYS_ioctl:
		return syscall(nr, -1L, 0x5401, room);
	case SYS_fcntl:
		return syscall(nr, -1L, F_GETFD, 0);
	case SYS_socket:
		return syscall(nr, AF_UNIX, SOCK_STREAM, 0);
	case SYS_socketpair:
		return syscall(nr, AF_UNIX, SOCK_STREAM, 0, -1L);
	case SYS_mknod:
		return syscall(nr, "/nowhere/fifo", S_IFIFO | 0600, 0);
	case SYS_mknodat:
		return syscall(nr, AT_FDCWD, "/nowhere/fifo", S_IFIFO | 0600, 0);
	case SYS_membarrier:
		return syscall(nr, 0, 0, 0);
	case SYS_arch_prctl:
		return syscall(nr, 0x1003, room);
	case SYS_setuid:
	case SYS_setgid:
		return syscall(nr, getuid());
	case SYS_setreuid:
	case SYS_setregid:
	case SYS_setresuid:
	case SYS_setresgid:
		return syscall(nr, -1L, -1L, -1L);
	case SYS_setpriority:
	case SYS_getpriority:
		return syscall(nr, 9L, 0, 0);
	case SYS_rt_sigqueueinfo:
		return syscall(nr, getpid(), 0, -1L);
	case SYS_umask:
		return syscall(nr, 022);
	case SYS_clock_settime:
		return syscall(nr, -1L, room);
	case SYS_personality:
		return syscall(nr, 0xffffffffL);
	default:
		return syscall(nr, -1L, -1L, -1L, -1L, -1L, -1L);
	}
}

static int call_in_child(const void *argument)
{
	errno = 0;
	return call(*(const long *)argument) < 0 ? errno : 0;
}

static bool is_attribute_call(long nr)
{
	return nr >= SYS_setxattr && nr <= SYS_fremovexattr;
}

static bool has_sys_admin(void)
{
	uint32_t header[2] = {0x20080522, 0}, data[6] = {0};

	return syscall(SYS_capget, header, data) == 0 && data[0] & 1u << 21;
}

static void section_calls(void)
{
	long reached = 0;

	if (has_sys_admin()) {
		line("calls", "refused", "not as CAP_SYS_ADMIN");
		return;
	}
	for (long nr = 0; nr < LAST_CALL; nr++) {
		char name[16];
		int e;

		/* these do not come back; every child here ends by exit_group */
		if (nr == SYS_exit || nr == SYS_exit_group || nr == SYS_rt_sigreturn)
			continue;
		/* uretprobe, uprobe: from 6.14 on the kernel asks no filter, and answers SIGILL by itself */
		if (nr == 335 || nr == 336)
			continue;
		e = in_child(call_in_child, &nr);
		if (e == ENOSYS || e == EPERM || (e == EOPNOTSUPP && is_attribute_call(nr)))
			continue;
		snprintf(name, sizeof name, "%ld", nr);
		line("calls", name, e == NOT_AN_ERRNO ? "died" : "reached");
		reached++;
	}
	count("calls", "reached", reached);
}

/* --- facts ------------------------------------------------------------------------------- */

#define TRY(...) (syscall(__VA_ARGS__) < 0 ? errno : 0)

/* Facts that are one call. `harmless`: an errno that only comes from behind the door. */
struct direct {
	const char *name;
	long nr, a[6];
	int harmless;
};

#define P(x) (long)(uintptr_t)(x)
static char zeros[512];
static const struct direct *direct_facts(size_t *ret_count)
{
	static struct direct facts[80];
	size_t n = 0;

#define FACT(name, nr, harmless, ...) facts[n++] = (struct direct){name, nr, {__VA_ARGS__}, harmless}
	FACT("unshare user", SYS_unshare, 0, 0x10000000);
	FACT("unshare user and net", SYS_unshare, 0, 0x50000000);
	FACT("unshare mount", SYS_unshare, 0, 0x20000);
	FACT("unshare net", SYS_unshare, 0, 0x40000000);
	FACT("unshare pid", SYS_unshare, 0, 0x20000000);
	FACT("unshare cgroup", SYS_unshare, 0, 0x2000000);
	FACT("unshare time", SYS_unshare, 0, 0x80);
	FACT("io_uring", SYS_io_uring_setup, 0, 4, P(zeros));
	FACT("session keyring", SYS_keyctl, 0, 0, -3);
	FACT("join a session keyring", SYS_keyctl, 0, 1, 0);
	FACT("user keyring", SYS_keyctl, 0, 0, -4, 1);
	FACT("add a key", SYS_add_key, 0, P("user"), P("surface"), P("x"), 1, -2);
	FACT("request a key", SYS_request_key, ENOKEY, P("user"), P("surface-none"), 0, 0);
	FACT("userfaultfd", SYS_userfaultfd, 0, 0);
	FACT("userfaultfd in user mode", SYS_userfaultfd, 0, 1);
	FACT("memfd", SYS_memfd_create, 0, P("s"), 0);
	FACT("secret memfd", 447, 0, 0);
	FACT("pidfd of itself", SYS_pidfd_open, 0, getpid(), 0);
	FACT("process_madvise", SYS_process_madvise, EBADF, -1, 0, 0, 0, 0);
	FACT("kcmp", SYS_kcmp, 0, getpid(), getpid(), 0, 1, 1);
	FACT("signal init", SYS_kill, 0, 1, 0);
	FACT("limits of init", SYS_prlimit64, 0, 1, RLIMIT_NOFILE, 0, P(zeros));
	FACT("mount a tmpfs", SYS_mount, 0, P("none"), P("/tmp"), P("tmpfs"), 0, 0);
	FACT("unmount /tmp", SYS_umount2, 0, P("/tmp"), 2);
	FACT("pivot_root", SYS_pivot_root, 0, P("/"), P("/"));
	FACT("chroot", SYS_chroot, 0, P("/tmp"));
	FACT("fsopen", SYS_fsopen, 0, P("tmpfs"), 0);
	FACT("clone a tree", SYS_open_tree, 0, AT_FDCWD, P("/"), 1);
	FACT("statmount", 457, EFAULT, -1, -1, 0, 0);
	FACT("make a handle", SYS_name_to_handle_at, EOVERFLOW, AT_FDCWD, P("/tmp"), P(zeros), P(zeros + 256), 0);
	FACT("personality without randomization", SYS_personality, 0, 0x40000);
	FACT("personality read implies execute", SYS_personality, 0, 0x400000);
	FACT("iopl", SYS_iopl, 0, 3);
	FACT("ioperm", SYS_ioperm, 0, 0x80, 1, 1);
	FACT("nice -20", SYS_setpriority, 0, 0, 0, -20);
	FACT("acct", SYS_acct, ENOENT, P("/nowhere"));
	FACT("swapon", SYS_swapon, ENOENT, P("/nowhere"), 0);
	FACT("kexec_load", SYS_kexec_load, 0, 0, 0, 0, -1);
	FACT("init_module", SYS_init_module, 0, P(""), 0, P(""));
	FACT("finit_module", SYS_finit_module, EBADF, -1, P(""), 0);
	FACT("kernel log", SYS_syslog, 0, 3, P(zeros), 64);
	FACT("quotactl", SYS_quotactl, ENOENT, 0x80000700, P("/dev/nowhere"), 0, P(zeros));
	FACT("set the clock", SYS_clock_settime, EFAULT, 0, 0);
	FACT("System V shared memory", SYS_shmget, 0, 0, 4096, 01600);
	FACT("System V messages", SYS_msgget, 0, 0, 01600);
	FACT("System V semaphores", SYS_semget, 0, 0, 1, 01600);
	FACT("POSIX message queue", SYS_mq_open, 0, P("surface"), O_CREAT | O_RDWR, 0600, 0);
	FACT("Landlock", SYS_landlock_create_ruleset, 0, 0, 0, 1);
	FACT("fanotify", SYS_fanotify_init, 0, 0x200, 0);
	FACT("inotify", SYS_inotify_init1, 0, 0);
	FACT("set_mempolicy", SYS_set_mempolicy, 0, 0, 0, 0);
	FACT("move_pages", SYS_move_pages, 0, 0, 0, 0, 0, 0, 0);
	FACT("read the clock's adjustment", SYS_adjtimex, 0, P(zeros));
	FACT("x32 getpid", 0x40000000L + 39, 0, 0);
#undef FACT
	*ret_count = n;
	return facts;
}

static int try_direct(const void *argument)
{
	const struct direct *d = argument;
	int e;

	errno = 0;
	e = TRY(d->nr, d->a[0], d->a[1], d->a[2], d->a[3], d->a[4], d->a[5]);
	return e == d->harmless ? 0 : e;
}

static int child_of(long nr, const void *first, long second)
{
	long r = syscall(nr, first, second, 0, 0, 0);

	if (r == 0)
		_exit(0);
	return r < 0 ? errno : 0;
}

static int clone_user(void)
{
	return child_of(SYS_clone, (void *)(0x10000000L | SIGCHLD), 0);
}

static int clone3_with(uint64_t flags)
{
	uint64_t arguments[8] = {flags, 0, 0, 0, SIGCHLD};

	return child_of(SYS_clone3, arguments, sizeof arguments);
}

static int clone3_user(void)
{
	return clone3_with(0x10000000);
}

static int clone3_plain(void)
{
	return clone3_with(0);
}

static int own_mount_in_user_namespace(void)
{
	int e = TRY(SYS_unshare, 0x10020000);

	return e ? e : TRY(SYS_mount, "none", "/tmp", "tmpfs", 0, 0);
}

static int nftables_in_user_namespace(void)
{
	int e = TRY(SYS_unshare, 0x50000000);

	return e ? e : TRY(SYS_socket, AF_NETLINK, SOCK_RAW, 12);
}

static int join_own_net(void)
{
	int fd = open("/proc/self/ns/net", O_RDONLY);

	return fd < 0 ? errno : TRY(SYS_setns, fd, 0);
}

static void *thread(void *argument)
{
	return argument;
}

static int start_thread(void)
{
	pthread_t t;
	int e = pthread_create(&t, NULL, thread, NULL);

	return e ? e : pthread_join(t, NULL);
}

static int bpf_map(void)
{
	uint32_t attr[18] = {2, 4, 4, 1};

	return TRY(SYS_bpf, 0, attr, sizeof attr);
}

static int bpf_program(void)
{
	const uint64_t code[] = {0xb7, 0x95};
	uint64_t attr[16] = {1 | 2ULL << 32, (uint64_t)(uintptr_t)code, (uint64_t)(uintptr_t) "GPL"};

	return TRY(SYS_bpf, 5, attr, sizeof attr);
}

static int perf(void)
{
	uint32_t attr[32] = {1, 128};

	attr[10] = 1 | 1 << 5 | 1 << 6; /* disabled, no kernel, no hypervisor */
	return TRY(SYS_perf_event_open, attr, 0, -1, -1, 0);
}

static int copy_self(int to)
{
	static char data[65536];
	int from = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (from < 0 || to < 0)
		return errno;
	while ((n = read(from, data, sizeof data)) > 0)
		if (write(to, data, (size_t)n) != n)
			return errno;
	close(from);
	return 0;
}

/* 0 when `surface --executed` ran from there */
static int execute(int fd, const char *path)
{
	char *argv[] = {"surface", "--executed", NULL}, *envp[] = {NULL};
	int status = 0;
	pid_t pid = fork();

	if (pid < 0)
		return errno;
	if (pid == 0) {
		if (path)
			execve(path, argv, envp);
		else
			syscall(SYS_execveat, fd, "", argv, envp, AT_EMPTY_PATH);
		_exit(errno & 127);
	}
	waitpid(pid, &status, 0);
	if (WIFSIGNALED(status))
		return EINTR;
	return WEXITSTATUS(status) == 42 ? 0 : WEXITSTATUS(status);
}

static int execute_memfd(void)
{
	int fd = memfd_create("surface", MFD_CLOEXEC), e = copy_self(fd);

	return e ? e : execute(fd, NULL);
}

static int execute_from_tmp(void)
{
	const char *path = "/tmp/.surface";
	int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0700), e = copy_self(fd);

	close(fd);
	e = e ? e : execute(-1, path);
	unlink(path);
	return e;
}

static int write_and_execute(void)
{
	return mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED ? errno
														       : 0;
}

static int trace_me(void)
{
	return ptrace(PTRACE_TRACEME, 0, 0, 0) < 0 ? errno : 0;
}

static pid_t sleeper(void)
{
	pid_t pid = fork();

	if (pid == 0) {
		pause();
		_exit(0);
	}
	return pid;
}

static int trace_child(void)
{
	pid_t pid = sleeper();
	int e = ptrace(PTRACE_SEIZE, pid, 0, 0) < 0 ? errno : 0;

	kill(pid, SIGKILL);
	return e;
}

static int read_child(void)
{
	static char data[16];
	struct {
		void *base;
		size_t size;
	} here = {data, 8}, there = {data, 8};
	pid_t pid = sleeper();
	int e = TRY(SYS_process_vm_readv, pid, &here, 1, &there, 1, 0);

	kill(pid, SIGKILL);
	return e;
}

static int trace_init(void)
{
	return getppid() == 1 ? ECHILD : ptrace(PTRACE_SEIZE, 1, 0, 0) < 0 ? errno : 0;
}

static int steal_descriptor(void)
{
	int fd = (int)syscall(SYS_pidfd_open, getpid(), 0);

	return fd < 0 ? errno : TRY(SYS_pidfd_getfd, fd, 1, 0);
}

static int make_node(mode_t mode, dev_t device)
{
	int e = mknod("/tmp/.surface-node", mode | 0600, device) < 0 ? errno : 0;

	unlink("/tmp/.surface-node");
	return e;
}

static int make_device(void)
{
	return make_node(S_IFCHR, makedev(1, 3));
}

static int make_fifo(void)
{
	return make_node(S_IFIFO, 0);
}

static int open_handle(void)
{
	struct {
		unsigned size;
		int type;
		unsigned char data[128];
	} handle = {8, 1, {2}};

	return TRY(SYS_open_by_handle_at, open("/", O_RDONLY), &handle, O_RDONLY);
}

static int write_ldt(void)
{
	uint32_t entry[4] = {0, 0, 0, 0x28};

	return TRY(SYS_modify_ldt, 1, entry, sizeof entry);
}

static int own_terminal(unsigned long request, int harmless)
{
	char name[64], byte = 6;
	int master = open("/dev/ptmx", O_RDWR | O_NOCTTY), slave, e;

	if (master < 0 || unlockpt(master) < 0 || ptsname_r(master, name, sizeof name))
		return errno;
	slave = open(name, O_RDWR | O_NOCTTY);
	if (slave < 0)
		return errno;
	setsid();
	ioctl(slave, TIOCSCTTY, 0);
	e = TRY(SYS_ioctl, slave, request, &byte);
	return e == harmless ? 0 : e;
}

static int type_into_terminal(void)
{
	return own_terminal(TIOCSTI, 0);
}

static int type_into_terminal_high_bits(void)
{
	return own_terminal(1UL << 32 | TIOCSTI, 0);
}

static int console_ioctl(void)
{
	return own_terminal(TIOCLINUX, ENOTTY);
}

static int realtime(void)
{
	struct sched_param p = {1};

	return sched_setscheduler(0, SCHED_FIFO, &p) < 0 ? errno : 0;
}

static int affinity(void)
{
	cpu_set_t set;

	if (sched_getaffinity(0, sizeof set, &set) < 0)
		return errno;
	return sched_setaffinity(0, sizeof set, &set) < 0 ? errno : 0;
}

static int lock_memory(void)
{
	void *m = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return mlock(m, 1 << 20) < 0 ? errno : 0;
}

static int lockable_memory(void)
{
	struct rlimit r = {0, 0};

	getrlimit(RLIMIT_MEMLOCK, &r);
	return r.rlim_cur >= 128u << 20 ? 0 : EPERM;
}

static int adjust_clock(void)
{
	uint32_t timex[64] = {0x40};

	return TRY(SYS_adjtimex, timex);
}

static int set_host_name(void)
{
	struct utsname u;

	uname(&u);
	return TRY(SYS_sethostname, u.nodename, strlen(u.nodename));
}

static int create(const char *path)
{
	int fd = open(path, O_CREAT | O_RDWR, 0600);

	if (fd < 0)
		return errno;
	close(fd);
	unlink(path);
	return 0;
}

static int use_shm(void)
{
	return create("/dev/shm/.surface");
}

static int create_in_root(void)
{
	return create("/.surface");
}

static int create_in_etc(void)
{
	return create("/etc/.surface");
}

static int add_filter(unsigned flags)
{
	struct sock_filter allow = {BPF_RET | BPF_K, 0, 0, 0x7fff0000};
	struct sock_fprog program = {1, &allow};

	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	return TRY(SYS_seccomp, 1, flags, &program);
}

static int filter(void)
{
	return add_filter(0);
}

static int filter_listener(void)
{
	return add_filter(8);
}

static int shared_file(void)
{
	int fd = open("/usr/bin/env", O_RDONLY);

	return fd < 0 ? open("/bin/sh", O_RDONLY) : fd;
}

static int lock_shared(void)
{
	return flock(shared_file(), LOCK_EX | LOCK_NB) < 0 ? errno : 0;
}

static int lock_shared_range(void)
{
	struct flock l = {.l_type = F_RDLCK};

	return fcntl(shared_file(), F_OFD_SETLK, &l) < 0 ? errno : 0;
}

static int lease(void)
{
	return fcntl(open("/proc/self/exe", O_RDONLY), F_SETLEASE, F_RDLCK) < 0 ? errno : 0;
}

static int lock_namespace_file(void)
{
	return flock(open("/proc/self/ns/uts", O_RDONLY), LOCK_EX | LOCK_NB) < 0 ? errno : 0;
}

static int splice_pipes(void)
{
	int p[2], q[2];

	if (pipe(p) < 0 || pipe(q) < 0 || write(p[1], "x", 1) != 1)
		return errno;
	return TRY(SYS_splice, p[0], 0, q[1], 0, 1, 0);
}

static int vmsplice_pipe(void)
{
	struct {
		void *base;
		size_t size;
	} v = {zeros, 1};
	int p[2];

	return pipe(p) < 0 ? errno : TRY(SYS_vmsplice, p[1], &v, 1, 0);
}

static int call32(long nr, long a, long b, long c)
{
	long r;

	__asm__ volatile("push %%rbx\n\tmov %2, %%rbx\n\tint $0x80\n\tpop %%rbx"
			 : "=a"(r)
			 : "a"(nr), "r"(a), "c"(b), "d"(c)
			 : "memory", "r8", "r9", "r10", "r11");
	return (int)r < 0 ? -(int)r : 0;
}

static long low_memory(void)
{
	return (long)mmap((void *)0x20000000, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}

static int socket32(uint32_t family, uint32_t type)
{
	uint32_t *a = (uint32_t *)low_memory();

	a[0] = family;
	a[1] = type;
	return call32(102, 1, (long)a, 0);
}

static int i386_getpid(void)
{
	return call32(20, 0, 0, 0);
}

static int i386_keyctl(void)
{
	return call32(288, 0, -3, 0);
}

static int i386_io_uring(void)
{
	return call32(425, 4, low_memory(), 0);
}

static int i386_vsock(void)
{
	return socket32(40, SOCK_STREAM);
}

static int i386_alg(void)
{
	int e = socket32(38, SOCK_SEQPACKET);

	return e == EAFNOSUPPORT ? 0 : e;
}

static int i386_unshare(void)
{
	return call32(310, 0x10000000, 0, 0);
}

static int cycle_counter(void)
{
	unsigned low, high;

	__asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
	return 0;
}

static int more_files(void)
{
	struct rlimit r = {1048577, 1048577};

	return setrlimit(RLIMIT_NOFILE, &r) < 0 ? errno : 0;
}

static int write_own_program(void)
{
	return open("/proc/self/exe", O_WRONLY) < 0 ? errno : 0;
}

static int read_init_program(void)
{
	return open("/proc/1/exe", O_RDONLY) < 0 ? errno : 0;
}

static int above_the_root(void)
{
	struct stat above, root;

	if (stat("/proc/self/root/..", &above) < 0 || stat("/", &root) < 0)
		return errno;
	return above.st_ino == root.st_ino && above.st_dev == root.st_dev ? EXDEV : 0;
}

static const struct {
	const char *name;
	int (*f)(void);
} facts[] = {
	{"clone user", clone_user},
	{"clone3 user", clone3_user},
	{"clone3", clone3_plain},
	{"mount in a user namespace", own_mount_in_user_namespace},
	{"nftables in a user namespace", nftables_in_user_namespace},
	{"join its own network namespace", join_own_net},
	{"thread", start_thread},
	{"bpf map", bpf_map},
	{"bpf program", bpf_program},
	{"perf", perf},
	{"execute a memfd", execute_memfd},
	{"execute from /tmp", execute_from_tmp},
	{"write and execute memory", write_and_execute},
	{"trace me", trace_me},
	{"trace a child", trace_child},
	{"read a child's memory", read_child},
	{"trace init", trace_init},
	{"pidfd_getfd", steal_descriptor},
	{"make a device", make_device},
	{"make a FIFO", make_fifo},
	{"open a handle", open_handle},
	{"write the LDT", write_ldt},
	{"type into a terminal", type_into_terminal},
	{"type into a terminal, high bits", type_into_terminal_high_bits},
	{"console ioctl", console_ioctl},
	{"real-time scheduling", realtime},
	{"set affinity", affinity},
	{"lock memory", lock_memory},
	{"128 MiB lockable", lockable_memory},
	{"adjust the clock", adjust_clock},
	{"set the host name", set_host_name},
	{"use /dev/shm", use_shm},
	{"create in /", create_in_root},
	{"create in /etc", create_in_etc},
	{"add a filter", filter},
	{"filter with a listener", filter_listener},
	{"lock a shared file", lock_shared},
	{"lock a range of a shared file", lock_shared_range},
	{"lease on a shared file", lease},
	{"lock a namespace file", lock_namespace_file},
	{"splice", splice_pipes},
	{"vmsplice", vmsplice_pipe},
	{"i386 getpid", i386_getpid},
	{"i386 keyctl", i386_keyctl},
	{"i386 io_uring", i386_io_uring},
	{"i386 vsock", i386_vsock},
	{"i386 alg", i386_alg},
	{"i386 unshare", i386_unshare},
	{"cycle counter", cycle_counter},
	{"more open files", more_files},
	{"write its own program", write_own_program},
	{"read init's program", read_init_program},
	{"above the root", above_the_root},
};

static int try_fact(const void *argument)
{
	return (*(int (*const *)(void))argument)();
}

static long one_fact(const char *name, int e)
{
	if (e != 0)
		return 0;
	line("facts", name, "yes");
	return 1;
}

static void section_facts(void)
{
	size_t n;
	const struct direct *direct = direct_facts(&n);
	long yes = 0;

	for (size_t i = 0; i < n; i++)
		yes += one_fact(direct[i].name, in_child(try_direct, &direct[i]));
	for (size_t i = 0; i < ARRAY_SIZE(facts); i++)
		yes += one_fact(facts[i].name, in_child(try_fact, &facts[i].f));
	count("facts", "tried", (long)(n + ARRAY_SIZE(facts)));
	count("facts", "yes", yes);
}

/* --- files ------------------------------------------------------------------------------- */

static const char *const paths[] = {
	"/proc/kallsyms", "/proc/kcore", "/proc/kmsg", "/proc/keys", "/proc/key-users",
	"/proc/timer_list", "/proc/sched_debug", "/proc/config.gz", "/proc/cmdline", "/proc/version",
	"/proc/meminfo", "/proc/cpuinfo", "/proc/stat", "/proc/loadavg", "/proc/uptime",
	"/proc/interrupts", "/proc/softirqs", "/proc/diskstats", "/proc/partitions", "/proc/modules",
	"/proc/slabinfo", "/proc/vmallocinfo", "/proc/iomem", "/proc/ioports", "/proc/kpagecount",
	"/proc/pagetypeinfo", "/proc/zoneinfo", "/proc/buddyinfo", "/proc/vmstat", "/proc/swaps",
	"/proc/filesystems", "/proc/devices", "/proc/misc", "/proc/mounts", "/proc/self/mountinfo",
	"/proc/self/cgroup", "/proc/cgroups", "/proc/sysvipc/shm", "/proc/locks", "/proc/crypto",
	"/proc/consoles", "/proc/execdomains", "/proc/fb", "/proc/mtrr", "/proc/sysrq-trigger",
	"/proc/acpi", "/proc/scsi/scsi", "/proc/pressure/cpu", "/proc/1/environ", "/proc/1/cmdline",
	"/proc/1/maps", "/proc/1/root/etc/passwd", "/proc/1/cwd", "/proc/self/environ",
	"/proc/self/mem", "/proc/self/pagemap", "/proc/self/syscall", "/proc/self/stack",
	"/proc/self/wchan", "/proc/self/auxv", "/proc/self/oom_score_adj", "/proc/self/uid_map",
	"/proc/sys/kernel/core_pattern", "/proc/sys/kernel/hostname",
	"/proc/sys/kernel/random/boot_id", "/proc/sys/kernel/randomize_va_space",
	"/proc/sys/kernel/modprobe", "/proc/sys/kernel/unprivileged_bpf_disabled",
	"/proc/sys/kernel/ns_last_pid", "/proc/sys/fs/binfmt_misc/status", "/proc/sys/vm/drop_caches",
	"/proc/sys/net/ipv4/ip_forward", "/sys/kernel/notes", "/sys/kernel/vmcoreinfo",
	"/sys/kernel/btf/vmlinux", "/sys/kernel/uevent_helper", "/sys/kernel/security/lsm",
	"/sys/kernel/debug", "/sys/kernel/tracing/trace",
	"/sys/kernel/mm/transparent_hugepage/enabled", "/sys/firmware/acpi/tables/DSDT",
	"/sys/firmware/memmap/0/start", "/sys/class/dmi/id/product_name", "/sys/class/net/lo/address",
	"/sys/class/net/eth0/address", "/sys/block/vda/size", "/sys/devices/virtual/powercap",
	"/sys/devices/system/cpu/vulnerabilities/spectre_v2",
	"/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory.max",
	"/sys/fs/cgroup/cgroup.procs", "/sys/fs/cgroup/memory/release_agent",
	"/sys/fs/cgroup/memory/cgroup.procs", "/sys/hypervisor/type", "/dev/kmsg", "/dev/mem",
	"/dev/kvm", "/dev/fuse", "/dev/net/tun", "/dev/vsock", "/dev/tty", "/dev/console",
	"/dev/ptmx", "/dev/random", "/dev/full", "/dev/null", "/dev/shm", "/dev/mqueue",
	"/etc/shadow", "/etc/passwd", "/etc/hostname", "/etc/hosts", "/etc/resolv.conf",
	"/.dockerenv", "/run/.containerenv", "/var/run/docker.sock", "/run/secrets",
};

/* Bytes that can be read from a path, -1 if it cannot be opened, 0 if it is empty. Folders count as 1. */
static long readable(const char *path)
{
	char data[256];
	struct stat st;
	ssize_t n;
	int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);

	if (fd < 0)
		return -1;
	if (fstat(fd, &st) == 0 && S_ISDIR(st.st_mode)) {
		close(fd);
		return 1;
	}
	alarm(2);
	n = read(fd, data, sizeof data);
	alarm(0);
	close(fd);
	if (n < 0 && S_ISCHR(st.st_mode))
		return 1;
	return n;
}

static void section_paths(void)
{
	long with_content = 0, empty = 0;

	for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
		long n = readable(paths[i]);

		if (n > 0)
			line("paths", paths[i], "content");
		with_content += n > 0;
		empty += n == 0;
	}
	count("paths", "tried", ARRAY_SIZE(paths));
	count("paths", "with content", with_content);
	count("paths", "empty", empty);
}

struct tally {
	long readable, writable;
};

static void walk(const char *section, const char *folder, int depth, struct tally *t)
{
	DIR *d = depth < 15 ? opendir(folder) : NULL;
	struct dirent *e;

	while (d && (e = readdir(d))) {
		bool top = strcmp(folder, "/proc") == 0;
		char path[4096];
		struct stat st;
		int fd;

		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 ||
		    (top && e->d_name[0] >= '0' && e->d_name[0] <= '9'))
			continue;
		if ((size_t)snprintf(path, sizeof path, "%s/%s", folder, e->d_name) >= sizeof path ||
		    lstat(path, &st) < 0)
			continue;
		if (S_ISDIR(st.st_mode)) {
			walk(section, path, depth + 1, t);
			continue;
		}
		if (!S_ISREG(st.st_mode) && !S_ISCHR(st.st_mode))
			continue;
		if (top && (strcmp(e->d_name, "kmsg") == 0 || strcmp(e->d_name, "kcore") == 0)) {
			fd = open(path, O_RDONLY | O_NONBLOCK);
			t->readable += fd >= 0;
			close(fd);
			continue;
		}
		t->readable += readable(path) >= 0;
		fd = S_ISREG(st.st_mode) ? open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC) : -1;
		if (fd >= 0) {
			line(section, path, "writable");
			t->writable++;
			close(fd);
		}
	}
	if (d)
		closedir(d);
}

static void tree(const char *section, const char *folder)
{
	struct tally t = {0, 0};

	walk(section, folder, 0, &t);
	count(section, "readable", t.readable);
	count(section, "writable", t.writable);
}

/* Below a process's net folder, files that hold more than what its own namespace counts (FEASIBILITY 10
 * names them). The test knows the three that may be here. */
static void machine_wide_net(void)
{
	static const char *const names[] = {"softnet_stat", "protocols", "sockstat"};
	long n = 0;

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		char path[64];

		snprintf(path, sizeof path, "/proc/self/net/%s", names[i]);
		if (readable(path) > 0) {
			line("proc", path, "machine-wide");
			n++;
		}
	}
	count("proc", "machine-wide below net", n);
}

static void section_proc(void)
{
	tree("proc", "/proc");
	machine_wide_net();
}

static void section_sys(void)
{
	tree("sys", "/sys");
}

/* --- sockets, mounts --------------------------------------------------------------------- */

static void section_sockets(void)
{
	static const int types[] = {SOCK_STREAM, SOCK_DGRAM, SOCK_RAW, SOCK_SEQPACKET};
	long families = 0, protocols = 0;
	int ping;

	for (int family = 1; family < 46; family++) {
		bool opens = false;
		char name[16];

		for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
			int fd = socket(family, types[i], 0);

			opens |= fd >= 0;
			if (fd >= 0)
				close(fd);
		}
		snprintf(name, sizeof name, "family %d", family);
		if (opens)
			line("sockets", name, "opens");
		families += opens;
	}
	for (int protocol = 0; protocol < 23; protocol++) {
		int fd = socket(AF_NETLINK, SOCK_RAW, protocol);

		protocols += fd >= 0;
		if (fd >= 0)
			close(fd);
	}
	ping = socket(AF_INET, SOCK_DGRAM, 1);
	count("sockets", "families", families);
	count("sockets", "netlink protocols", protocols);
	count("sockets", "ping", ping >= 0);
}

static void section_mounts(void)
{
	long all = 0, writable = 0, executable = 0, with_devices = 0, with_setuid = 0;
	FILE *f = fopen("/proc/self/mountinfo", "re");
	char text[4096], path[1024], options[1024];

	while (f && fgets(text, sizeof text, f)) {
		struct statfs s;

		if (sscanf(text, "%*d %*d %*s %*s %1023s %1023s", path, options) != 2)
			continue;
		all++;
		with_devices += !strstr(options, "nodev");
		with_setuid += !strstr(options, "nosuid");
		if (strncmp(options, "rw", 2) != 0 || access(path, W_OK) < 0 || statfs(path, &s) < 0)
			continue;
		snprintf(text, sizeof text, "%lu KiB, %lu inodes%s", (unsigned long)s.f_blocks * (unsigned long)s.f_bsize / 1024,
			 (unsigned long)s.f_files, strstr(options, "noexec") ? "" : ", executable");
		line("mounts", path, text);
		writable++;
		executable += !strstr(options, "noexec");
	}
	if (f)
		fclose(f);
	count("mounts", "all", all);
	count("mounts", "writable", writable);
	count("mounts", "writable and executable", executable);
	count("mounts", "without nodev", with_devices);
	count("mounts", "without nosuid", with_setuid);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} sections[] = {
		{"facts", section_facts}, {"sockets", section_sockets}, {"proc", section_proc}, {"sys", section_sys},
		{"paths", section_paths}, {"mounts", section_mounts},	{"calls", section_calls},
	};
	struct sigaction sa = {.sa_handler = nothing};

	if (argc > 1 && strcmp(argv[1], "--executed") == 0)
		return 42;
	sigaction(SIGALRM, &sa, NULL);
	for (size_t i = 0; i < ARRAY_SIZE(sections); i++) {
		bool wanted = argc < 2;

		for (int k = 1; k < argc; k++)
			wanted |= strcmp(argv[k], sections[i].name) == 0;
		if (wanted)
			sections[i].run();
	}
	return 0;
}
