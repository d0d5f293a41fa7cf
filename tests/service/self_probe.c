/* SPDX-License-Identifier: Apache-2.0 */
/*
 * self_probe - what a cloched that somebody has taken over could still do.
 *
 *	self_probe [--free|--hold|--x32|--i386] STATE_DIR FOREIGN_FILE
 *
 * Gives up what cloched gives up, by the same code (src/service/sandbox_self.c), and then tries. One line per
 * attempt, "NAME <tab> ok" or an errno's name. --free tries without giving up anything: the control. --hold
 * gives up and waits on standard input, to be looked at. --x32 and --i386 make one call of another architecture.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "service/sandbox_self.h"

#ifdef __SANITIZE_ADDRESS__
/* At the exit it looks for leaks, by calls that the filter refuses. */
__attribute__((visibility("default"))) const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
	return "detect_leaks=0";
}
#endif

enum { EARLY = 32 }; /* bytes of a name of an abstract socket */

static char own[4096], link_out[4096];
static const char *foreign;
static int tcp = -1, other_port = -1, page_size = 4096;
static void *page;
static struct sockaddr_un abstract_name = {.sun_family = AF_UNIX,
					   .sun_path = "\0cloche-self-probe"};

static int open_close(const char *path, int flags)
{
	int fd = open(path, flags | O_CLOEXEC, 0600);

	return fd < 0 ? fd : close(fd);
}

static int any_socket(int family, int type)
{
	int fd = socket(family, type, 0);

	return fd < 0 ? fd : close(fd);
}

static long executable_memory(void)
{
	void *p = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return p == MAP_FAILED ? -1 : 0;
}

static long new_process(void)
{
	long pid = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);

	if (pid == 0)
		_exit(0);
	return pid < 0 ? -1 : waitpid((pid_t)pid, NULL, 0);
}

static long abstract_socket(void)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	return fd < 0 ? -1
		      : connect(fd, (void *)&abstract_name,
				offsetof(struct sockaddr_un, sun_path) + EARLY);
}

/* A connection that came from outside, taken apart and made to lead elsewhere. */
static long tcp_elsewhere(void)
{
	struct sockaddr none = {.sa_family = AF_UNSPEC};
	struct sockaddr_in to = {.sin_family = AF_INET,
				 .sin_port = htons((uint16_t)other_port),
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

	return connect(tcp, &none, sizeof none) < 0 ? -1 : connect(tcp, (void *)&to, sizeof to);
}

static long tcp_fast(int flags, bool address)
{
	struct sockaddr_in to = {.sin_family = AF_INET,
				 .sin_port = htons((uint16_t)other_port),
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

	return sendto(tcp, "x", 1, flags | MSG_NOSIGNAL, address ? (void *)&to : NULL,
		      address ? sizeof to : 0);
}

static long fast_message(void)
{
	struct iovec v = {(void *)(uintptr_t) "x", 1};
	struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};

	return sendmsg(tcp, &m, MSG_FASTOPEN | MSG_NOSIGNAL);
}

static void try(const char *name, long answer)
{
	printf("%s\t%s\n", name, answer >= 0 ? "ok" : strerrorname_np(errno));
	fflush(stdout);
}

/* High bits, which the kernel drops, must not hide a command. */
#define HIGH (1L << 32)

static void try_files(void)
{
	char path[4200];

	snprintf(path, sizeof path, "%s/new", own);
	try("make a file in the state", open_close(path, O_WRONLY | O_CREAT));
	try("remove it", unlink(path));
	try("read /etc/shadow", open_close("/etc/shadow", O_RDONLY));
	try("read /etc/passwd", open_close("/etc/passwd", O_RDONLY));
	try("list /", open_close("/", O_RDONLY | O_DIRECTORY));
	try("write /tmp", open_close("/tmp", O_RDWR | O_TMPFILE));
	try("read /proc/self/maps", open_close("/proc/self/maps", O_RDONLY));
	try("write /proc/self/mem", open_close("/proc/self/mem", O_RDWR));
	try("read /proc/1/status", open_close("/proc/1/status", O_RDONLY));
	try("read a foreign file", open_close(foreign, O_RDONLY));
	try("write a foreign file", open_close(foreign, O_WRONLY));
	try("read it by a link of the state", open_close(link_out, O_RDONLY));
	try("read /dev/null", open_close("/dev/null", O_RDONLY));
	try("write /dev/null", open_close("/dev/null", O_WRONLY));
	try("read /sys/kernel/notes", open_close("/sys/kernel/notes", O_RDONLY));
	try("symlink", symlink("/etc", path));
	try("link", link(link_out, path));
	try("rename", rename(link_out, path));
	try("mknod", mknod(path, S_IFIFO | 0600, 0));
	try("chmod", chmod(own, 0777));
	try("chown", chown(own, getuid(), getgid()));
	try("truncate", truncate(foreign, 0));
	try("chdir", chdir("/"));
}

static void try_processes(void)
{
	char *const none[] = {NULL};

	try("execve", execve("/nonexistent", none, none));
	try("execveat", syscall(SYS_execveat, -1, "/nonexistent", none, none, 0));
	try("clone", new_process());
	try("clone3", syscall(SYS_clone3, NULL, 0));
	try("unshare", unshare(CLONE_NEWUSER));
	try("setns", setns(0, 0));
	try("ptrace", ptrace(PTRACE_ATTACH, 0x7fffffff, NULL, NULL));
	try("process_vm_readv", syscall(SYS_process_vm_readv, getpid(), NULL, 0, NULL, 0, 0));
	try("pidfd_open", syscall(SYS_pidfd_open, getpid(), 0));
	try("kill itself", kill(getpid(), 0));
	try("kill its parent", kill(getppid(), 0));
	try("tgkill itself", syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), 0));
	try("tgkill its parent", syscall(SYS_tgkill, getppid(), getppid(), 0));
	try("fcntl F_GETFD", fcntl(0, F_GETFD));
	try("fcntl F_SETOWN", fcntl(0, F_SETOWN, getpid()));
	try("fcntl F_SETOWN, hidden", syscall(SYS_fcntl, 0, HIGH | F_SETOWN, getpid()));
	try("fcntl F_SETSIG", fcntl(0, F_SETSIG, SIGIO));
	try("ioctl FIONBIO", ioctl(tcp, FIONBIO, &(int){0}));
	try("ioctl FIOASYNC", ioctl(tcp, FIOASYNC, &(int){0}));
	try("ioctl TIOCSTI, hidden", syscall(SYS_ioctl, 0, HIGH | 0x5412, "x"));
	try("mmap exec", executable_memory());
	try("mprotect exec", mprotect(page, (size_t)page_size, PROT_READ | PROT_EXEC));
	try("memfd_create", memfd_create("x", 0));
	try("shmget", syscall(SYS_shmget, 0, 4096, 0600));
	try("setuid", setuid(getuid()));
	try("setresuid", setresuid((uid_t)-1, (uid_t)-1, (uid_t)-1));
	try("prctl", prctl(PR_SET_DUMPABLE, 1, 0, 0, 0));
	try("setrlimit", syscall(SYS_prlimit64, 0, 7, NULL, NULL));
}

static void try_kernel(void)
{
	char ruleset[4] = {0};

	try("bpf", syscall(SYS_bpf, BPF_PROG_LOAD, NULL, 0));
	try("io_uring_setup", syscall(SYS_io_uring_setup, 1, NULL));
	try("perf_event_open", syscall(SYS_perf_event_open, NULL, 0, -1, -1, 0));
	try("userfaultfd", syscall(SYS_userfaultfd, 1));
	try("add_key", syscall(SYS_add_key, "user", "x", "x", 1, -3));
	try("mount", mount("none", "/nonexistent", "tmpfs", 0, NULL));
	try("umount2", umount2("/nonexistent", 0));
	try("fsopen", syscall(SYS_fsopen, "tmpfs", 0));
	try("chroot", chroot("/nonexistent"));
	try("pivot_root", syscall(SYS_pivot_root, "/nonexistent", "/nonexistent"));
	try("init_module", syscall(SYS_init_module, ruleset, 4, ""));
	try("seccomp", syscall(SYS_seccomp, 2, 0, ruleset));
	try("inotify_init1", syscall(SYS_inotify_init1, 0));
	try("landlock_create_ruleset", syscall(SYS_landlock_create_ruleset, NULL, 0, 1));
	try("name_to_handle_at", syscall(SYS_name_to_handle_at, -1, NULL, NULL, NULL, 0));
}

static void try_sockets(void)
{
	struct sockaddr_in any = {.sin_family = AF_INET};

	try("socket unix", any_socket(AF_UNIX, SOCK_STREAM));
	try("socket inet", any_socket(AF_INET, SOCK_STREAM));
	try("socket inet, hidden", syscall(SYS_socket, HIGH | AF_INET, SOCK_STREAM, 0));
	try("socket inet6", any_socket(AF_INET6, SOCK_DGRAM));
	try("socket netlink", any_socket(AF_NETLINK, SOCK_RAW));
	try("socketpair", socketpair(AF_UNIX, SOCK_STREAM, 0, (int[2]){0}));
	try("bind", bind(tcp, (void *)&any, sizeof any));
	try("listen", listen(tcp, 1));
	try("an abstract socket of others", abstract_socket());
	try("send by TCP", tcp_fast(0, false));
	try("send to an address", tcp_fast(0, true));
	try("send and connect", tcp_fast(MSG_FASTOPEN, false));
	try("sendmsg and connect", fast_message());
	try("setsockopt SO_MARK", setsockopt(tcp, SOL_SOCKET, SO_MARK, &(int){0}, sizeof(int)));
	try("setsockopt SO_KEEPALIVE",
	    setsockopt(tcp, SOL_SOCKET, SO_KEEPALIVE, &(int){1}, sizeof(int)));
	try("TCP to elsewhere", tcp_elsewhere());
}

static int listener(int *port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t size = sizeof a;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || bind(fd, (void *)&a, sizeof a) < 0 || listen(fd, 8) < 0 ||
	    getsockname(fd, (void *)&a, &size) < 0)
		exit(1);
	*port = ntohs(a.sin_port);
	return fd;
}

/* What cloched has open, too: a connection that came by TCP; and what is there outside: an abstract socket. */
static void prepare(void)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int port, l = listener(&port), client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	listener(&other_port);
	a.sin_port = htons((uint16_t)port);
	if (connect(client, (void *)&a, sizeof a) < 0)
		exit(1);
	tcp = accept4(l, NULL, NULL, SOCK_CLOEXEC);
	page = mmap(NULL, (size_t)page_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		    -1, 0);
	if (tcp < 0 || page == MAP_FAILED ||
	    bind(s, (void *)&abstract_name, offsetof(struct sockaddr_un, sun_path) + EARLY) < 0 ||
	    listen(s, 8) < 0)
		exit(1);
}

static void other_architecture(bool x32)
{
	long r = 20; /* getpid */

	if (x32)
		syscall(0x40000000 | SYS_getpid);
	else
		__asm__ volatile("int $0x80" : "+a"(r) : : "memory");
}

int main(int argc, char **argv)
{
	const char *how = argc == 4 ? argv[1] : "";
	struct err e = {0};
	char byte;

	if (argc < 3)
		return 2;
	snprintf(own, sizeof own, "%s", argv[argc - 2]);
	snprintf(link_out, sizeof link_out, "%.4080s/link", own);
	foreign = argv[argc - 1];
	signal(SIGPIPE, SIG_IGN);
	prepare();
	if (strcmp(how, "--free") != 0 && sandbox_self(own, own, &e) < 0) {
		fprintf(stderr, "self_probe: %s\n", e.text);
		return 1;
	}
	if (strcmp(how, "--hold") == 0) {
		try("holds", 0);
		return read(0, &byte, 1) < 0;
	}
	if (strcmp(how, "--x32") == 0 || strcmp(how, "--i386") == 0) {
		other_architecture(how[2] == 'x');
		return 0;
	}
	try_files();
	try_processes();
	try_kernel();
	try_sockets();
	return 0;
}
