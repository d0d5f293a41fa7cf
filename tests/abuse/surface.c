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

#define LAST_CALL    480 /* 6.18 ends at 469 */
#define NOT_AN_ERRNO (-1)

void line(const char *section, const char *name, const char *detail)
{
	printf("%s\t%s\t%s\n", section, name, detail);
	fflush(stdout);
}

void count(const char *section, const char *what, long n)
{
	char text[32];

	snprintf(text, sizeof text, "%ld", n);
	printf("count\t%s %s\t%s\n", section, what, text);
	fflush(stdout);
}

/* The errno of f() in a child, 0 for success, NOT_AN_ERRNO if the child died. */
int in_child(int (*f)(const void *), const void *argument)
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

/* --- files ------------------------------------------------------------------------------- */

static const char *const paths[] = {
	"/proc/kallsyms",
	"/proc/kcore",
	"/proc/kmsg",
	"/proc/keys",
	"/proc/key-users",
	"/proc/timer_list",
	"/proc/sched_debug",
	"/proc/config.gz",
	"/proc/cmdline",
	"/proc/version",
	"/proc/meminfo",
	"/proc/cpuinfo",
	"/proc/stat",
	"/proc/loadavg",
	"/proc/uptime",
	"/proc/interrupts",
	"/proc/softirqs",
	"/proc/diskstats",
	"/proc/partitions",
	"/proc/modules",
	"/proc/slabinfo",
	"/proc/vmallocinfo",
	"/proc/iomem",
	"/proc/ioports",
	"/proc/kpagecount",
	"/proc/pagetypeinfo",
	"/proc/zoneinfo",
	"/proc/buddyinfo",
	"/proc/vmstat",
	"/proc/swaps",
	"/proc/filesystems",
	"/proc/devices",
	"/proc/misc",
	"/proc/mounts",
	"/proc/self/mountinfo",
	"/proc/self/cgroup",
	"/proc/cgroups",
	"/proc/sysvipc/shm",
	"/proc/locks",
	"/proc/crypto",
	"/proc/consoles",
	"/proc/execdomains",
	"/proc/fb",
	"/proc/mtrr",
	"/proc/sysrq-trigger",
	"/proc/acpi",
	"/proc/scsi/scsi",
	"/proc/pressure/cpu",
	"/proc/1/environ",
	"/proc/1/cmdline",
	"/proc/1/maps",
	"/proc/1/root/etc/passwd",
	"/proc/1/cwd",
	"/proc/self/environ",
	"/proc/self/mem",
	"/proc/self/pagemap",
	"/proc/self/syscall",
	"/proc/self/stack",
	"/proc/self/wchan",
	"/proc/self/auxv",
	"/proc/self/oom_score_adj",
	"/proc/self/uid_map",
	"/proc/sys/kernel/core_pattern",
	"/proc/sys/kernel/hostname",
	"/proc/sys/kernel/random/boot_id",
	"/proc/sys/kernel/randomize_va_space",
	"/proc/sys/kernel/modprobe",
	"/proc/sys/kernel/unprivileged_bpf_disabled",
	"/proc/sys/kernel/ns_last_pid",
	"/proc/sys/fs/binfmt_misc/status",
	"/proc/sys/vm/drop_caches",
	"/proc/sys/net/ipv4/ip_forward",
	"/sys/kernel/notes",
	"/sys/kernel/vmcoreinfo",
	"/sys/kernel/btf/vmlinux",
	"/sys/kernel/uevent_helper",
	"/sys/kernel/security/lsm",
	"/sys/kernel/debug",
	"/sys/kernel/tracing/trace",
	"/sys/kernel/mm/transparent_hugepage/enabled",
	"/sys/firmware/acpi/tables/DSDT",
	"/sys/firmware/memmap/0/start",
	"/sys/class/dmi/id/product_name",
	"/sys/class/net/lo/address",
	"/sys/class/net/eth0/address",
	"/sys/block/vda/size",
	"/sys/devices/virtual/powercap",
	"/sys/devices/system/cpu/vulnerabilities/spectre_v2",
	"/sys/fs/cgroup/memory/memory.limit_in_bytes",
	"/sys/fs/cgroup/memory.max",
	"/sys/fs/cgroup/cgroup.procs",
	"/sys/fs/cgroup/memory/release_agent",
	"/sys/fs/cgroup/memory/cgroup.procs",
	"/sys/hypervisor/type",
	"/dev/kmsg",
	"/dev/mem",
	"/dev/kvm",
	"/dev/fuse",
	"/dev/net/tun",
	"/dev/vsock",
	"/dev/tty",
	"/dev/console",
	"/dev/ptmx",
	"/dev/random",
	"/dev/full",
	"/dev/null",
	"/dev/shm",
	"/dev/mqueue",
	"/etc/shadow",
	"/etc/passwd",
	"/etc/hostname",
	"/etc/hosts",
	"/etc/resolv.conf",
	"/.dockerenv",
	"/run/.containerenv",
	"/var/run/docker.sock",
	"/run/secrets",
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
		if ((size_t)snprintf(path, sizeof path, "%s/%s", folder, e->d_name) >=
			    sizeof path ||
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
		if (strncmp(options, "rw", 2) != 0 || access(path, W_OK) < 0 ||
		    statfs(path, &s) < 0)
			continue;
		snprintf(text, sizeof text, "%lu KiB, %lu inodes%s",
			 (unsigned long)s.f_blocks * (unsigned long)s.f_bsize / 1024,
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
		{"facts", section_facts}, {"sockets", section_sockets}, {"proc", section_proc},
		{"sys", section_sys},     {"paths", section_paths},     {"mounts", section_mounts},
		{"calls", section_calls},
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
