/* SPDX-License-Identifier: Apache-2.0 */
/*
 * main.c - cloche-egress FD: one process for one sandbox, told what to do as wire.h says.
 *
 * It gives up what it can before it says READY, when it has read nothing yet but its configuration. A configuration
 * that is no good is answered by REFUSED, and it ends; what else goes wrong ends it, which denies everything.
 */
#include <errno.h>
#include <grp.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "base/fd.h"
#include "base/units.h"
#include "egress/credential.h"
#include "egress/egress.h"
#include "egress/wipe.h"

enum { EXIT_USAGE = 2, END_MS = 10000, FDS = EGRESS_LISTENERS_MAX + 1 };

static struct egress egress;

/* ---- messages of the starter ---- */

union control {
	char bytes[CMSG_SPACE(FDS * sizeof(int))];
	struct cmsghdr align;
};

static size_t take_fds(struct msghdr *m, int *fds)
{
	struct cmsghdr *c = CMSG_FIRSTHDR(m);
	size_t count = 0;

	if (!c || c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
		return 0;
	count = (c->cmsg_len - CMSG_LEN(0)) / sizeof *fds;
	memcpy(fds, CMSG_DATA(c), count * sizeof *fds);
	return count;
}

/* A message of exactly this size and type, with *ret_count descriptors. */
static int receive(int fd, void *message, size_t size, uint32_t type, int fds[static FDS],
		   size_t *ret_count, struct err *e)
{
	const struct egress_header *h = message;
	union control control;
	struct iovec iov = {message, size};
	struct msghdr m = {.msg_iov = &iov,
			   .msg_iovlen = 1,
			   .msg_control = &control,
			   .msg_controllen = sizeof control};
	ssize_t n;

	do {
		n = recvmsg(fd, &m, MSG_CMSG_CLOEXEC);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return err_set(e, errno, "wait for the starter");
	if (n == 0)
		return err_set(e, 0, "the starter has gone");
	*ret_count = take_fds(&m, fds);
	if ((size_t)n != size || h->type != type || (m.msg_flags & (MSG_TRUNC | MSG_CTRUNC)))
		return err_set(e, 0, "a message of the starter's that is not understood");
	return 0;
}

/* ---- CONFIG ---- */

static int become(const struct egress_config *config, struct err *e)
{
	if (config->uid == UINT32_MAX)
		return 0;
	if (setgroups(0, NULL) < 0 || setresgid(config->gid, config->gid, config->gid) < 0 ||
	    setresuid(config->uid, config->uid, config->uid) < 0)
		return err_set(e, errno, "become %u:%u", config->uid, config->gid);
	return 0;
}

/* Two for each connection, and what else there is. */
static void raise_limit(void)
{
	struct rlimit r;

	if (getrlimit(RLIMIT_NOFILE, &r) < 0)
		return;
	r.rlim_cur = r.rlim_max < 2 * LIMIT_OPEN_MAX + 256 ? r.rlim_max : 2 * LIMIT_OPEN_MAX + 256;
	(void)setrlimit(RLIMIT_NOFILE, &r);
}

/* All that needs no configuration: its sandbox waits for us from then on. */
static int prepare(struct egress *g, struct err *e)
{
	int r;

	raise_limit();
	r = uv_loop_init(&g->loop);
	if (r < 0)
		return err_set(e, -r, "make a loop");
	g->names = names_new();
	if (!g->names)
		return err_set(e, ENOMEM, "make the table of names");
	return self_prepare(e);
}

static int configure(struct egress *g, const struct egress_config *config, int memfd, struct err *e)
{
	if (config->version != EGRESS_VERSION)
		return err_set(e, 0, "version %u of the protocol; this program speaks %d",
			       config->version, EGRESS_VERSION);
	if (egress_settings_read(memfd, &g->settings, e) < 0)
		return -1;
	g->quota = network_quota(g->settings.request, g->settings.ceiling);
	if (g->settings.opens_tls && (authority_new(&g->authority, e) < 0 ||
				      trust_new(g->settings.upstream_ca, &g->trust, e) < 0))
		return -1;
	if (g->settings.credential_count)
		g->redactor = redactor_new(&g->settings);
	if (g->settings.credential_count && !g->redactor)
		return err_set(e, ENOMEM, "memory that can be locked, to look for secrets");
	if (become(config, e) < 0)
		return -1;
	return self_restrict(e);
}

static int send_ready(const struct egress *g, int fd, uint32_t sequence, struct err *e)
{
	struct egress_ready ready = {.header = {EGRESS_READY, sequence}};
	const char *pem;
	size_t size = 0;

	if (g->authority) {
		pem = authority_pem(g->authority, &size);
		if (size > sizeof ready.ca)
			return err_set(e, 0, "the authority's certificate is too large");
		memcpy(ready.ca, pem, size);
		ready.ca_size = (uint32_t)size;
	}
	if (send(fd, &ready, sizeof ready, MSG_NOSIGNAL) != sizeof ready)
		return err_set(e, errno, "answer the starter");
	return 0;
}

static int refuse(int fd, uint32_t sequence, const struct err *e)
{
	struct egress_refused refused = {.header = {EGRESS_REFUSED, sequence}};

	snprintf(refused.message, sizeof refused.message, "%.500s", e->text);
	return send(fd, &refused, sizeof refused, MSG_NOSIGNAL) < 0 ? -1 : 0;
}

/* ---- SERVE ---- */

static void on_end_timer(uv_timer_t *timer)
{
	uv_stop(timer->loop);
}

/* The sandbox is over: what was open ends, and its records are waited for. */
static void on_init_gone(uv_poll_t *poll, int status, int events)
{
	struct egress *g = poll->data;

	(void)status;
	(void)events;
	uv_poll_stop(poll);
	g->ending = true;
	listen_stop(g);
	resolver_stop(g);
	while (g->connections)
		(void)connection_close(g->connections, true);
	if (control_is_done(g))
		uv_stop(&g->loop);
	else
		uv_timer_start(&g->end_timer, on_end_timer, END_MS, 0);
}

static int check_serve(const struct egress_serve *serve, size_t count, struct err *e)
{
	if (serve->count > EGRESS_LISTENERS_MAX || count != serve->count + 1)
		return err_set(e, 0, "SERVE with another number of listeners than it says");
	for (size_t i = 0; i < serve->count; i++)
		if (serve->kinds[i] >= LISTEN_KINDS)
			return err_set(e, 0, "SERVE with a kind of listener that is not known");
	return 0;
}

static int serve(struct egress *g, int fd, int control, struct err *e)
{
	struct egress_serve message = {0};
	int fds[FDS];
	size_t count;

	if (receive(fd, &message, sizeof message, EGRESS_SERVE, fds, &count, e) < 0 ||
	    check_serve(&message, count, e) < 0)
		return -1;
	close(fd);
	g->first = g->next = 1;
	g->init_fd = fds[message.count];
	uv_timer_init(&g->loop, &g->end_timer);
	uv_idle_init(&g->loop, &g->soon_idle);
	if (uv_poll_init(&g->loop, &g->init, g->init_fd) < 0)
		return err_set(e, 0, "SERVE without a pidfd");
	g->init.data = g;
	uv_poll_start(&g->init, UV_READABLE, on_init_gone);
	if (control_begin(g, control, e) < 0 ||
	    listen_begin(g, message.kinds, fds, message.count, e) < 0)
		return -1;
	uv_run(&g->loop, UV_RUN_DEFAULT);
	return 0;
}

static int run(struct egress *g, int fd, struct err *e)
{
	struct egress_config config = {0};
	int fds[FDS];
	size_t count;

	if (prepare(g, e) < 0 ||
	    receive(fd, &config, sizeof config, EGRESS_CONFIG, fds, &count, e) < 0)
		return -1;
	if (count != 2)
		return err_set(e, 0, "CONFIG without its two descriptors");
	if (configure(g, &config, fds[0], e) < 0) {
		(void)refuse(fd, config.header.sequence, e);
		return -1;
	}
	close(fds[0]);
	if (send_ready(g, fd, config.header.sequence, e) < 0)
		return -1;
	return serve(g, fd, fds[1], e);
}

int main(int argc, char **argv)
{
	struct err e = {0};
	uint64_t fd;

	if (argc != 2 || parse_count(argv[1], 0, INT32_MAX, &fd) < 0) {
		fprintf(stderr, "cloche-egress: is started by cloche and cloche-spawner\n");
		return EXIT_USAGE;
	}
	signal(SIGPIPE, SIG_IGN);
	/* Glibc takes this for resolv.conf's search list: the name that was judged is asked for, and no other. And it has to
	 * come by that list, else one that does not exist is asked for twice. */
	if (setenv("LOCALDOMAIN", "", 1) < 0 || setenv("RES_OPTIONS", "ndots:15", 1) < 0) {
		fprintf(stderr, "cloche-egress: out of memory\n");
		return EXIT_FAILURE;
	}
	if (wipe_openssl() < 0) {
		fprintf(stderr, "cloche-egress: OpenSSL's memory cannot be wiped\n");
		return EXIT_FAILURE;
	}
	egress.starter = getuid();
	egress.control_fd = egress.init_fd = -1;
	if (self_hide(&e) == 0 && run(&egress, (int)fd, &e) == 0)
		e.text[0] = '\0';
	egress_settings_done(&egress.settings);
	if (!e.text[0])
		return EXIT_SUCCESS;
	fprintf(stderr, "cloche-egress: %s\n", e.text);
	return EXIT_FAILURE;
}
