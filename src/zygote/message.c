/* SPDX-License-Identifier: Apache-2.0 */
/*
 * message.c - messages of request.h.
 *
 * A RUN carries what a client of the service wrote (arguments, environment), put together by the pool:
 * its reader trusts neither. Every count is checked against the bytes that are there before anything is
 * allocated; all strings end inside the message and use it up.
 */
#include "zygote/message.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>

enum { ALL_FDS = ZYGOTE_FDS + ZYGOTE_JOIN_FDS_MAX };

int message_start_split(const void *message, size_t size, const char **list, const char **ret_warm,
			struct err *e)
{
	const struct zygote_start *m = message;
	const char *p = (const char *)(m + 1), *end = (const char *)message + size;

	if (size < sizeof *m || m->header.type != ZYGOTE_START)
		return err_set(e, EBADMSG, "the first message is no START");
	if (m->version != ZYGOTE_VERSION)
		return err_set(e, EPROTO, "version %u of the protocol; this is %d", m->version,
			       ZYGOTE_VERSION);
	if (m->module_count > ZYGOTE_MODULES_MAX)
		return err_set(e, E2BIG, "%u modules to import, at most %d", m->module_count,
			       ZYGOTE_MODULES_MAX);
	for (uint32_t i = 0; i < m->module_count; i++) {
		size_t n = strnlen(p, (size_t)(end - p));

		if (n == 0 || p + n == end)
			return err_set(e, EBADMSG, "START: module %u has no name", i + 1);
		list[i] = p;
		p += n + 1;
	}
	*ret_warm = "";
	if (p == end)
		return (int)m->module_count;
	if (memchr(p, '\0', (size_t)(end - p)) != end - 1)
		return err_set(e, EBADMSG, "START: the warm-up is not its last string");
	*ret_warm = p;
	return (int)m->module_count;
}

int message_fork_check(const void *message, size_t size, size_t fd_count, struct err *e)
{
	const struct zygote_fork *m = message;

	if (size < sizeof *m || m->header.type != ZYGOTE_FORK || m->header.sequence == 0)
		return err_set(e, EBADMSG, "a message of %zu bytes that is no FORK", size);
	if ((m->flags & ~(uint32_t)ZYGOTE_WARM) || m->zero)
		return err_set(e, EBADMSG, "FORK: unknown flags");
	if (m->join_size > ZYGOTE_JOIN_DATA_MAX || size != sizeof *m + m->join_size)
		return err_set(e, EBADMSG, "FORK: %zu bytes do not fit the joiner's %u", size,
			       m->join_size);
	if (m->join_fds > ZYGOTE_JOIN_FDS_MAX || fd_count != ZYGOTE_FDS + (size_t)m->join_fds)
		return err_set(e, EBADMSG, "FORK: came with %zu descriptors", fd_count);
	return 0;
}

static int check_numbers(const struct zygote_run *m, size_t strings, struct err *e)
{
	if (m->limit_count > ZYGOTE_LIMITS_MAX)
		return err_set(e, EBADMSG, "RUN: %u limits", m->limit_count);
	for (uint32_t i = 0; i < m->limit_count; i++)
		if (m->limits[i].resource >= RLIM_NLIMITS || m->limits[i].zero ||
		    m->limits[i].soft > m->limits[i].hard)
			return err_set(e, EBADMSG, "RUN: limit %u is none", i + 1);
	if (m->umask > 0777)
		return err_set(e, EBADMSG, "RUN: umask %o", m->umask);
	/* each string takes a byte at least; the first is the working directory */
	if (m->argc == 0 || m->argc > strings || m->envc > strings || m->argc + m->envc >= strings)
		return err_set(e, EBADMSG, "RUN: %u arguments and %u entries in %zu bytes", m->argc,
			       m->envc, strings);
	return 0;
}

int message_run_split(void *message, size_t size, struct run_view *ret, struct err *e)
{
	const struct zygote_run *m = message;
	char *p = (char *)message + sizeof *m, *end = (char *)message + size;
	_cleanup_free_ char **list = NULL;
	size_t n = 0, total;

	if (size <= sizeof *m || m->header.type != ZYGOTE_RUN || m->header.sequence == 0)
		return err_set(e, EBADMSG, "a message of %zu bytes that is no RUN", size);
	if (end[-1] != '\0')
		return err_set(e, EBADMSG, "RUN: the last string has no end");
	if (check_numbers(m, size - sizeof *m, e) < 0)
		return -1;
	total = (size_t)m->argc + m->envc;
	list = calloc(total + 2, sizeof *list);
	if (!list)
		return err_set(e, ENOMEM, "RUN: keep %zu strings", total);
	ret->cwd = p;
	for (p += strlen(p) + 1; p < end && n < total; p += strlen(p) + 1, n++)
		list[n < m->argc ? n : n + 1] = p;
	if (p != end || n != total)
		return err_set(e, EBADMSG, "RUN: its strings are not as many as it says");
	for (char **entry = list + m->argc + 1; *entry; entry++)
		if ((*entry)[0] == '=' || !strchr(*entry, '='))
			return err_set(e, EINVAL, "RUN: an environment entry without a name");
	ret->run = m;
	ret->envp = list + m->argc + 1;
	ret->argv = TAKE_PTR(list);
	return 0;
}

void run_done(struct run_view *v)
{
	free(v->argv);
	*v = (struct run_view){0};
}

static int put(char *buffer, size_t *at, const char *text)
{
	size_t n = strlen(text) + 1;

	if (n > ZYGOTE_MESSAGE_MAX - *at)
		return -1;
	memcpy(buffer + *at, text, n);
	*at += n;
	return 0;
}

ssize_t message_run_build(char *buffer, const struct zygote_run *run, const char *cwd,
			  char *const *argv, char *const *envp, struct err *e)
{
	struct zygote_run m = *run;
	size_t at = sizeof m;
	int r = put(buffer, &at, cwd);

	m.header.type = ZYGOTE_RUN;
	for (m.argc = 0; r == 0 && argv[m.argc]; m.argc++)
		r = put(buffer, &at, argv[m.argc]);
	for (m.envc = 0; r == 0 && envp[m.envc]; m.envc++)
		r = put(buffer, &at, envp[m.envc]);
	if (r < 0)
		return err_set(e, E2BIG,
			       "arguments and environment: a prepared interpreter takes %d bytes",
			       ZYGOTE_MESSAGE_MAX);
	memcpy(buffer, &m, sizeof m);
	return (ssize_t)at;
}

int message_send(int socket, const void *message, size_t size, const int *fds, size_t fd_count)
{
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(sizeof(int) * ALL_FDS)];
	} control = {0};
	struct iovec io = {.iov_base = (void *)(uintptr_t)message, .iov_len = size};
	struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1};
	ssize_t n;

	if (fd_count > ALL_FDS)
		return -E2BIG;
	if (fd_count) {
		m.msg_control = &control;
		m.msg_controllen = CMSG_SPACE(sizeof(int) * fd_count);
		control.header.cmsg_level = SOL_SOCKET;
		control.header.cmsg_type = SCM_RIGHTS;
		control.header.cmsg_len = CMSG_LEN(sizeof(int) * fd_count);
		memcpy(CMSG_DATA(&control.header), fds, sizeof(int) * fd_count);
	}
	do
		n = sendmsg(socket, &m, MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : 0;
}

ssize_t message_receive(int socket, void *buffer, size_t size, int *ret_fds, size_t *ret_fd_count)
{
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(sizeof(int) * ALL_FDS)];
	} control;
	struct iovec io = {.iov_base = buffer, .iov_len = size};
	struct msghdr m = {.msg_iov = &io,
			   .msg_iovlen = 1,
			   .msg_control = &control,
			   .msg_controllen = sizeof control};
	ssize_t n = recvmsg(socket, &m, MSG_CMSG_CLOEXEC);
	size_t count = 0;

	*ret_fd_count = 0;
	if (n < 0)
		return -errno;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		memcpy(ret_fds, CMSG_DATA(c), count * sizeof(int));
	}
	if (m.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) {
		for (size_t i = 0; i < count; i++)
			close(ret_fds[i]);
		return -EBADMSG;
	}
	*ret_fd_count = count;
	return n;
}

int message_refuse(int socket, enum zygote_type type, uint32_t sequence, const struct err *e)
{
	struct zygote_refused m = {.header = {type, sequence}, .errnum = (uint32_t)e->errnum};

	snprintf(m.text, sizeof m.text, "%s", e->text);
	return message_send(socket, &m, sizeof m, NULL, 0);
}
