/* SPDX-License-Identifier: Apache-2.0 */
/*
 * start.c - from init to the command: the last steps, in the child.
 *
 * The child shares init's memory until it executes (CLONE_VM | CLONE_VFORK), so nothing is copied and
 * it must not return. It reports a failure through memory: init sleeps until the child has executed
 * or ended.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "init/guest.h"
#include "native/isolate/mounts.h"
#include "native/seccomp.h"

enum { CHILD_STACK = 32768, PATH_ROOM = 4352 };

struct start {
	struct guest *g;
	const struct exec_record *exec;
	const struct seccomp_profile *filter;
	char *workdir;
	char **argv, **envp;
	const int *stdio; /* what becomes 0, 1, 2 */
	bool terminal;    /* they are one */
	int errnum;
	const char *stage, *what;
};

static int child_failed(struct start *s, const char *stage, const char *what)
{
	s->errnum = errno ? errno : EIO;
	s->stage = stage;
	s->what = what;
	return 1;
}

/* execvp's rules: a name with a slash is a path; else PATH of the new environment is searched, and
 * "found but not executable" beats "not found". */
static void search_and_execute(struct start *s)
{
	static char path[PATH_ROOM];
	const char *name = s->argv[0], *dirs = "/usr/local/bin:/usr/bin:/bin";
	int seen = ENOENT;

	if (strchr(name, '/')) {
		execve(name, s->argv, s->envp);
		return;
	}
	for (char **e = s->envp; *e; e++)
		if (strncmp(*e, "PATH=", 5) == 0)
			dirs = *e + 5;
	for (;;) {
		size_t n = strcspn(dirs, ":"), m = strlen(name);

		if (n + m + 2 <= sizeof path) {
			memcpy(path, dirs, n);
			path[n] = '/';
			memcpy(path + n + (n ? 1 : 0), name, m + 1);
			execve(path, s->argv, s->envp);
			if (errno != ENOENT && errno != ENOTDIR && errno != EACCES)
				return;
			if (errno == EACCES)
				seen = EACCES;
		}
		if (!dirs[n])
			break;
		dirs += n + 1;
	}
	errno = seen;
}

static int become_user(const struct start *s)
{
	if (s->g->keep_capabilities)
		prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0);
	return syscall(SYS_setgroups, 0, NULL) < 0 ||
	       syscall(SYS_setresgid, s->exec->gid, s->exec->gid, s->exec->gid) < 0 ||
	       syscall(SYS_setresuid, s->exec->uid, s->exec->uid, s->exec->uid) < 0;
}

static int child(void *argument)
{
	struct start *s = argument;
	sigset_t none;

	errno = 0;
	signal(SIGPIPE, SIG_DFL); /* the one that init ignores */
	for (int i = 0; i < 3; i++)
		if (dup2(s->stdio[i], i) < 0)
			return child_failed(s, "stdio", "standard stream");
	if (setsid() < 0)
		return child_failed(s, "session", "new session");
	if (s->terminal && ioctl(0, TIOCSCTTY, 0) < 0)
		return child_failed(s, "session", "controlling terminal");
	if (become_user(s))
		return child_failed(s, "user", "become the sandbox user");
	prctl(PR_SET_DUMPABLE, 0, 0, 0, 0); /* this is still init's memory */
	if (chdir(s->workdir) < 0)
		return child_failed(s, "cwd", s->workdir);
	if (!s->g->keep_descriptors && syscall(SYS_close_range, 3, ~0u, 0) < 0)
		return child_failed(s, "descriptors", "close everything else");
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	if (s->filter) {
		int r = seccomp_profile_load(s->filter);

		if (r < 0) {
			errno = -r;
			return child_failed(s, "seccomp", s->filter->name);
		}
	}
	search_and_execute(s);
	/* "exec" says that the command is not there, or no program; anything else may pass. */
	return child_failed(s,
			    errno == ENOMEM || errno == EAGAIN || errno == E2BIG ||
					    errno == EMFILE || errno == ENFILE || errno == EIO
				    ? "start"
				    : "exec",
			    s->argv[0]);
}

/* Where programs find what to trust, each by the name that it reads (native/isolate/trust.c). */
static const char *const trust_env[] = {
	"SSL_CERT_FILE=" TRUST_FOLDER "/ca-bundle.pem",
	"REQUESTS_CA_BUNDLE=" TRUST_FOLDER "/ca-bundle.pem",
	"CURL_CA_BUNDLE=" TRUST_FOLDER "/ca-bundle.pem",
	"PIP_CERT=" TRUST_FOLDER "/ca-bundle.pem",
	"GIT_SSL_CAINFO=" TRUST_FOLDER "/ca-bundle.pem",
	"NODE_EXTRA_CA_CERTS=" TRUST_FOLDER "/authority.pem",
};
enum { TRUST_ENV = sizeof trust_env / sizeof *trust_env };

/* Only what nobody has chosen. count entries are there; there is room for TRUST_ENV more. */
static void add_trust_env(char **envp, size_t count)
{
	size_t end = count;

	for (size_t i = 0; i < TRUST_ENV; i++) {
		size_t name = strcspn(trust_env[i], "=") + 1, k = 0;

		while (k < count && strncmp(envp[k], trust_env[i], name) != 0)
			k++;
		if (k == count)
			envp[end++] = (char *)(uintptr_t)trust_env[i];
	}
}

/* Split the frame's strings in place. Every one is terminated inside the payload. */
static int split(struct start *s, char *strings, size_t size)
{
	char *p = strings, *end = strings + size;
	size_t n = 0, total = (size_t)s->exec->argc + s->exec->envc + 3;
	char **list;

	if (size == 0 || end[-1] != '\0' || s->exec->argc == 0 || total > size + 3)
		return -EPROTO;
	list = calloc(total + TRUST_ENV, sizeof *list);
	if (!list)
		return -ENOMEM;
	s->workdir = p;
	p += strlen(p) + 1;
	s->argv = list;
	s->envp = list + s->exec->argc + 1;
	for (; p < end && n < (size_t)s->exec->argc + s->exec->envc; n++, p += strlen(p) + 1)
		(n < s->exec->argc ? s->argv + n : s->envp + n - s->exec->argc)[0] = p;
	if (p != end || n != (size_t)s->exec->argc + s->exec->envc) {
		free(list);
		return -EPROTO;
	}
	if (s->g->plan && s->g->plan->trust)
		add_trust_env(s->envp, s->exec->envc);
	return 0;
}

int guest_pipes(uint32_t uid, uint32_t gid, int ret_theirs[3], int ret_ours[3])
{
	int r = guest_as_user(uid, gid);

	for (int i = 0; r == 0 && i < 3; i++) {
		int p[2], ours = i == 0 ? 1 : 0;

		r = pipe2(p, O_CLOEXEC) < 0 ? -errno : 0;
		if (r < 0)
			break;
		ret_ours[i] = p[ours];
		ret_theirs[i] = p[!ours];
		if (fcntl(p[ours], F_SETFL, O_NONBLOCK) < 0)
			r = -errno;
	}
	return guest_as_root() < 0 && r == 0 ? -EPERM : r;
}

void guest_close(int fds[3])
{
	for (int i = 0; i < 3; i++) {
		if (fds[i] >= 0)
			close(fds[i]);
		fds[i] = -1;
	}
}

int guest_launch(struct guest *g, const struct exec_record *exec, char *strings, size_t size,
		 const int stdio[3], bool terminal, const char **ret_stage, const char **ret_what)
{
	static char stack[CHILD_STACK] __attribute__((aligned(16)));
	struct start s = {.g = g,
			  .exec = exec,
			  .stdio = stdio,
			  .terminal = terminal,
			  .stage = "exec",
			  .what = ""};
	pid_t pid;
	int r = split(&s, strings, size);

	*ret_stage = "exec";
	*ret_what = "malformed command";
	if (r < 0)
		return r;
	if (!g->without_seccomp && !(s.filter = seccomp_profile_find(g->profile))) {
		*ret_what = "seccomp profile";
		free(s.argv);
		return -ENOENT;
	}
	pid = clone(child, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, &s);
	r = pid < 0 ? -errno : -s.errnum;
	*ret_what = pid < 0 ? "fork" : s.what;
	*ret_stage = pid < 0 ? "fork" : s.stage;
	guest_protect();
	free(s.argv);
	return r < 0 ? r : pid;
}

int guest_start(struct guest *g, const struct exec_record *exec, char *strings, size_t size,
		int ret_ours[3], const char **ret_stage, const char **ret_what)
{
	int theirs[3] = {-1, -1, -1};
	int r = guest_pipes(exec->uid, exec->gid, theirs, ret_ours);

	*ret_stage = "exec";
	*ret_what = "pipes";
	if (r == 0)
		r = guest_launch(g, exec, strings, size, theirs, false, ret_stage, ret_what);
	guest_close(theirs); /* or the pipes would never end */
	if (r < 0) {
		guest_close(ret_ours);
		return r;
	}
	g->command = r;
	return 0;
}
