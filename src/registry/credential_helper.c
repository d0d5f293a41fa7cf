/* SPDX-License-Identifier: Apache-2.0 */
/*
 * credential_helper.c - docker-credential-NAME get: the server's name on its stdin, JSON on its stdout.
 *
 * The program is the user's own choice (config.json names it, PATH has it), so it is trusted with what it is
 * asked; not trusted are its wits: it may hang, flood, or die. It runs in a process group of its own, so that
 * what it started ends with it when its time is up.
 */
#include "registry/credentials.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <string.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/fd.h"
#include "base/json.h"
#include "base/write_signals.h"
#include "registry/url.h"

extern char **environ;

/* What a helper says, and exits 1, when it knows no login (docker-credential-helpers' own words). */
#define NOT_FOUND "credentials not found"

struct helper {
	char program[96];
	pid_t pid;
	int in, out;
	char answer[CREDENTIALS_ANSWER_MAX + 1];
	size_t size;
};

static bool name_is_valid(const char *name)
{
	size_t n = strlen(name);

	return n > 0 && n <= 64 && name[0] != '-' && name[0] != '.' &&
	       strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") ==
		       n;
}

static int start(struct helper *h, struct err *e)
{
	char get[] = "get", *argv[] = {h->program, get, NULL};
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attributes;
	sigset_t none, usual;
	int in[2], out[2], r;

	if (pipe2(in, O_CLOEXEC) < 0)
		return err_set(e, errno, "make a pipe");
	if (pipe2(out, O_CLOEXEC) < 0) {
		close(in[0]);
		close(in[1]);
		return err_set(e, errno, "make a pipe");
	}
	sigemptyset(&none);
	sigemptyset(&usual);
	sigaddset(&usual, SIGPIPE); /* which this program may ignore */
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, in[0], 0);
	posix_spawn_file_actions_adddup2(&actions, out[1], 1);
	posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
	posix_spawnattr_init(&attributes);
	posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK |
						      POSIX_SPAWN_SETSIGDEF);
	posix_spawnattr_setsigmask(&attributes, &none);
	posix_spawnattr_setsigdefault(&attributes, &usual);
	r = posix_spawnp(&h->pid, h->program, &actions, &attributes, argv, environ);
	posix_spawnattr_destroy(&attributes);
	posix_spawn_file_actions_destroy(&actions);
	close(in[0]);
	close(out[1]);
	h->in = in[1];
	h->out = out[0];
	return r == 0 ? 0
		      : err_set(e, r,
				"run %s, which keeps the logins (install it, or remove it from the file)",
				h->program);
}

/* One piece of its answer. 1: its end. */
static int take(struct helper *h, struct err *e)
{
	ssize_t n = read(h->out, h->answer + h->size, sizeof h->answer - h->size);

	if (n < 0)
		return errno == EINTR ? 0 : err_set(e, errno, "read from %s", h->program);
	h->size += (size_t)n;
	if (h->size == sizeof h->answer)
		return err_set(e, 0, "%s says more than %d bytes", h->program,
			       CREDENTIALS_ANSWER_MAX);
	return n == 0;
}

static int listen_to(struct helper *h, int cancel_fd, uint64_t deadline, struct err *e)
{
	for (;;) {
		struct pollfd p[] = {{h->out, POLLIN, 0}, {cancel_fd, POLLIN, 0}};
		uint64_t now = now_us();
		int r;

		if (now >= deadline)
			return err_set(e, ETIMEDOUT, "%s gives no answer", h->program);
		r = poll(p, ARRAY_SIZE(p), (int)((deadline - now) / 1000 + 1));
		if (r < 0 && errno != EINTR)
			return err_set(e, errno, "wait for %s", h->program);
		if (r <= 0)
			continue;
		if (p[1].revents)
			return err_set(e, ECANCELED, "wait for %s", h->program);
		r = take(h, e);
		if (r != 0)
			return r < 0 ? -1 : 0;
	}
}

/* The name is short: a pipe takes it at once, whether somebody reads it or not. */
static int tell(struct helper *h, const char *server, struct err *e)
{
	struct write_signals signals;
	int r;

	write_signals_block(&signals);
	r = fd_write_all(h->in, server, strlen(server));
	write_signals_restore(&signals);
	fd_close(&h->in);
	return r < 0 && r != -EPIPE ? err_set(e, -r, "write to %s", h->program) : 0;
}

/* Its whole group: it may have started others that hold its output. Then the status is there. */
static int end(struct helper *h)
{
	int status = -1;

	fd_close(&h->in);
	fd_close(&h->out);
	kill(-h->pid, SIGKILL);
	while (waitpid(h->pid, &status, 0) < 0 && errno == EINTR)
		;
	return status;
}

/* Its output ends when it does, or a little before: it may finish by itself, within its time. */
static int wait_for(struct helper *h, uint64_t deadline)
{
	_cleanup_close_ int pidfd = (int)syscall(SYS_pidfd_open, h->pid, 0);
	struct pollfd p = {pidfd, POLLIN, 0};
	uint64_t now;

	while (pidfd >= 0 && (now = now_us()) < deadline &&
	       poll(&p, 1, (int)((deadline - now) / 1000 + 1)) < 0 && errno == EINTR)
		;
	return end(h);
}

static int understand(struct helper *h, int status, struct credentials *ret, struct err *e)
{
	_cleanup_json_ json_t *root = NULL;
	const char *user, *secret;
	char room[80];

	h->answer[h->size] = '\0';
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
		if (strstr(h->answer, NOT_FOUND))
			return 0;
		h->answer[strcspn(h->answer, "\r\n")] = '\0';
		return err_set(e, 0, "%s failed: %s", h->program,
			       text_show(*h->answer ? h->answer : "without a word", room,
					 sizeof room));
	}
	root = json_read(h->answer, h->size, e);
	user = json_string_value(json_object_get(root, "Username"));
	secret = json_string_value(json_object_get(root, "Secret"));
	if (!user || !secret || !*secret)
		return err_set(e, 0, "%s: its answer is no login", h->program);
	if (strcmp(user, "<token>") == 0) {
		ret->identity_token = strdup(secret);
		return ret->identity_token ? 0 : err_set(e, ENOMEM, "keep a login");
	}
	ret->user = strdup(user);
	ret->password = strdup(secret);
	if (ret->user && ret->password)
		return 0;
	credentials_done(ret);
	return err_set(e, ENOMEM, "keep a login");
}

static int ask(struct helper *h, const char *server, int cancel_fd, uint64_t timeout_us,
	       struct credentials *ret, struct err *e)
{
	uint64_t deadline = now_us() + timeout_us;

	if (start(h, e) < 0) {
		fd_close(&h->in);
		fd_close(&h->out);
		return -1;
	}
	if (tell(h, server, e) < 0 || listen_to(h, cancel_fd, deadline, e) < 0) {
		end(h);
		return -1;
	}
	return understand(h, wait_for(h, deadline), ret, e);
}

int credential_helper_ask(const char *name, const char *server, int cancel_fd, uint64_t timeout_us,
			  struct credentials *ret, struct err *e)
{
	struct helper *h;
	char room[80];
	int r;

	*ret = (struct credentials){0};
	if (!name_is_valid(name))
		return err_set(e, 0, "%s is no name of a credential helper",
			       text_show(name, room, sizeof room));
	h = calloc(1, sizeof *h);
	if (!h)
		return err_set(e, ENOMEM, "ask a credential helper");
	h->in = h->out = -1;
	snprintf(h->program, sizeof h->program, "docker-credential-%s", name);
	r = ask(h, server, cancel_fd, timeout_us, ret, e);
	explicit_bzero(h, sizeof *h);
	free(h);
	return r;
}
