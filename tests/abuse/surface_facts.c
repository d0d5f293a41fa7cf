/* SPDX-License-Identifier: Apache-2.0 */
/*
 * surface_facts - 107 questions about what works here: namespaces, tracing, locks, other architectures...
 *
 * Each is asked in a child of its own, which may die of it. "Yes" means the kernel did it, or answered
 * with an errno that only comes from behind the door.
 */
#include "surface.h"

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

#define FACT(name, nr, harmless, ...) \
	facts[n++] = (struct direct){name, nr, {__VA_ARGS__}, harmless}
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
	FACT("make a handle", SYS_name_to_handle_at, EOVERFLOW, AT_FDCWD, P("/tmp"), P(zeros),
	     P(zeros + 256), 0);
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
	uint64_t attr[16] = {1 | 2ULL << 32, (uint64_t)(uintptr_t)code,
			     (uint64_t)(uintptr_t) "GPL"};

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
	return mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		    0) == MAP_FAILED
		       ? errno
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
	return (long)mmap((void *)0x20000000, 4096, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
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

void section_facts(void)
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
