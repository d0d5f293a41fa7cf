/* SPDX-License-Identifier: Apache-2.0 */
/*
 * port_forward.c - `cloche port-forward`: ports of a sandbox as ports of 127.0.0.1, as long as it runs.
 *
 * Each connection that comes is one request `Upgrade: tcp` to the service, over its socket or by TCP with the key; behind the
 * 101 both ways are bytes (protocol/relay.h). One loop: a connection that waits for its answer, or for a slow peer, holds up
 * no other. What ends in between ends there too: a side that is gone, both ways.
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/end_signals.h"
#include "base/fd.h"
#include "base/units.h"
#include "cli/remote.h"
#include "protocol/relay.h"

enum {
	PORTS_MAX = 64,
	BACKLOG = 128,
	PIECE = 32 << 10,
	HEAD_MAX = 8 << 10,
	DESCRIPTORS_OWN = 32,
	LINKS_MAX = 4096
};

const struct cli_option port_forward_options[] = {{NULL}};

struct forwarded {
	int listener;
	unsigned local, inside;
};

/* One connection: local is the caller's, far the service's. */
struct link {
	struct link *next;
	const struct forwarded *of;
	int local, far;
	bool connected; /* 101 was read */
	char head[HEAD_MAX];
	size_t head_size;
	struct direction there, back;
	unsigned char data[2][PIECE];
};

struct forward {
	struct remote remote;
	const char *sandbox;
	struct forwarded ports[PORTS_MAX];
	size_t count;
	struct link *links;
	size_t link_count, link_max;
	bool quiet;
};

/* ---- what is to be forwarded ---- */

static int add_port(struct forward *f, const char *text, struct err *e)
{
	const char *colon = strchr(text, ':');
	uint64_t local = 0, inside = 0;
	char first[8] = "";

	if (colon && (size_t)(colon - text) < sizeof first)
		memcpy(first, text, (size_t)(colon - text));
	if (parse_count(colon ? colon + 1 : text, 1, 65535, &inside) < 0 ||
	    (colon && parse_count(first, 0, 65535, &local) < 0))
		return err_set(e, 0, "%.40s: give PORT or LOCAL:PORT (LOCAL 0: any that is free)",
			       text);
	if (f->count == PORTS_MAX)
		return err_set(e, 0, "at most %d ports at a time", PORTS_MAX);
	f->ports[f->count++] = (struct forwarded){.listener = -1,
						  .local = (unsigned)(colon ? local : inside),
						  .inside = (unsigned)inside};
	return 0;
}

static int listen_on(struct forwarded *p, struct err *e)
{
	struct sockaddr_in a = {.sin_family = AF_INET,
				.sin_port = htons((uint16_t)p->local),
				.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	_cleanup_close_ int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	socklen_t size = sizeof a;
	const int on = 1;

	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) < 0 ||
	    bind(fd, (struct sockaddr *)&a, sizeof a) < 0 || listen(fd, BACKLOG) < 0 ||
	    getsockname(fd, (struct sockaddr *)&a, &size) < 0)
		return err_set(e, errno, "listen on 127.0.0.1:%u (give LOCAL:%u for another)",
			       p->local, p->inside);
	p->local = ntohs(a.sin_port);
	p->listener = TAKE_FD(fd);
	return 0;
}

/* ---- one connection ---- */

static void link_free(struct link *l)
{
	fd_close(&l->local);
	fd_close(&l->far);
	free(l);
}

static int request(struct forward *f, struct link *l, struct err *e)
{
	const struct service *s = &f->remote.service;
	char text[HEAD_MAX], target[TARGET_SIZE];
	int n;

	if (sandbox_target(target, f->sandbox, e, "/ports/%u/", l->of->inside) < 0)
		return -1;
	l->far = service_connect(&f->remote.service, e);
	if (l->far < 0)
		return -1;
	n = snprintf(text, sizeof text,
		     "GET %s HTTP/1.1\r\nHost: %s\r\n%s%s%sConnection: Upgrade\r\n"
		     "Upgrade: tcp\r\n\r\n",
		     target, s->host, s->key ? "Authorization: Bearer " : "", s->key ? s->key : "",
		     s->key ? "\r\n" : "");
	if (n < 0 || n >= (int)sizeof text)
		return err_set(e, 0, "the request is too long");
	/* A fresh connection takes so little at once. */
	return send(l->far, text, (size_t)n, MSG_NOSIGNAL) == n
		       ? 0
		       : err_set(e, errno, "ask the service for port %u", l->of->inside);
}

static void accept_one(struct forward *f, const struct forwarded *p)
{
	_cleanup_close_ int fd = accept4(p->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	struct err e = {0};
	const int on = 1;
	struct link *l;

	if (fd < 0)
		return;
	l = calloc(1, sizeof *l);
	if (!l)
		return;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	l->of = p;
	l->local = TAKE_FD(fd);
	l->far = -1;
	if (request(f, l, &e) < 0) {
		fail(0, &e);
		link_free(l);
		return;
	}
	l->there = (struct direction){l->local, l->far, l->data[0], PIECE, 0, 0, false};
	l->back = (struct direction){l->far, l->local, l->data[1], PIECE, 0, 0, false};
	l->next = f->links;
	f->links = l;
	f->link_count++;
}

/* What the service says instead of 101, in one line: its document's detail. */
static void refused(const struct link *l)
{
	const char *body = strstr(l->head, "\r\n\r\n"), *detail;
	json_t *problem = body ? json_loads(body + 4, 0, NULL) : NULL;
	struct err e = {0};

	detail = json_string_value(json_object_get(problem, "detail"));
	err_set(&e, 0, "port %u: %.300s", l->of->inside,
		detail ? detail : "the service hung up before it had answered");
	fail(0, &e);
	json_decref(problem);
}

/* The service's answer: 1 when it is 101 and what follows are bytes from inside, 0: not yet, -1: it is over. */
static int read_head(struct link *l)
{
	ssize_t n = recv(l->far, l->head + l->head_size, sizeof l->head - 1 - l->head_size, 0);
	char *end;
	size_t rest;

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (n > 0)
		l->head_size += (size_t)n;
	l->head[l->head_size] = '\0';
	end = strstr(l->head, "\r\n\r\n");
	if (end && strncmp(l->head, "HTTP/1.1 101 ", 13) == 0) {
		rest = l->head_size - (size_t)(end + 4 - l->head);
		memcpy(l->data[1], end + 4, rest);
		l->back.filled = rest;
		l->connected = true;
		return 1;
	}
	if (n > 0 && l->head_size + 1 < sizeof l->head)
		return 0; /* of a refusal: all that comes until it hangs up */
	refused(l);
	return -1;
}

/* A refusal need not hang up: its length says where it ends. */
static bool is_whole_refusal(const struct link *l)
{
	const char *end = strstr(l->head, "\r\n\r\n");
	const char *field = end ? strcasestr(l->head, "\r\ncontent-length:") : NULL;

	return field && field < end && strncmp(l->head, "HTTP/1.1 101 ", 13) != 0 &&
	       l->head_size - (size_t)(end + 4 - l->head) >=
		       strtoul(field + sizeof "\r\ncontent-length:" - 1, NULL, 10);
}

enum { WAITS_OF_LINK = 3 };

/* False: it is over. */
static bool link_attend(struct link *l, const struct pollfd *p)
{
	if (!l->connected) {
		if (p[1].revents && read_head(l) < 0)
			return false;
		if (!l->connected && is_whole_refusal(l)) {
			refused(l);
			return false;
		}
		return true;
	}
	if (p[0].revents)
		direction_move(&l->there);
	if (p[1].revents)
		direction_move(&l->back);
	if (p[2].revents) /* all it had to say was read, and it is gone */
		return false;
	return !(l->there.over && l->back.over);
}

static void link_wait(const struct link *l, struct pollfd p[static WAITS_OF_LINK])
{
	p[2] = (struct pollfd){.fd = l->there.over ? l->local : -1};
	if (l->connected) {
		p[0] = direction_wait(&l->there);
		p[1] = direction_wait(&l->back);
	} else {
		p[0] = (struct pollfd){.fd = -1};
		p[1] = (struct pollfd){.fd = l->far, .events = POLLIN};
	}
}

/* ---- the loop ---- */

static void attend_links(struct forward *f, const struct pollfd *p)
{
	struct link **at = &f->links;

	while (*at) {
		struct link *l = *at;

		if (link_attend(l, p)) {
			at = &l->next;
		} else {
			*at = l->next;
			f->link_count--;
			link_free(l);
		}
		p += WAITS_OF_LINK;
	}
}

static int run(struct forward *f, int signals, struct err *e)
{
	_cleanup_free_ struct pollfd *p =
		calloc(1 + PORTS_MAX + WAITS_OF_LINK * (f->link_max + PORTS_MAX), sizeof *p);

	if (!p)
		return err_set(e, ENOMEM, "forward ports");
	for (;;) {
		size_t n = 0;
		struct pollfd *links;

		p[n++] = (struct pollfd){.fd = signals, .events = POLLIN};
		for (size_t i = 0; i < f->count; i++)
			p[n++] = (struct pollfd){
				.fd = f->link_count < f->link_max ? f->ports[i].listener : -1,
				.events = POLLIN};
		links = p + n;
		for (struct link *l = f->links; l; l = l->next, n += WAITS_OF_LINK)
			link_wait(l, p + n);
		if (poll(p, n, -1) < 0 && errno != EINTR)
			return err_set(e, errno, "wait for connections");
		if (p[0].revents)
			return 0;
		attend_links(f, links);
		for (size_t i = 0; i < f->count; i++)
			if (p[1 + i].revents && f->link_count < f->link_max)
				accept_one(f, &f->ports[i]);
	}
}

/* The sandbox is there, and ours: said now, not at the first connection. */
static int check_sandbox(struct forward *f, struct err *e)
{
	_cleanup_answer_ struct answer answer = {0};
	char target[TARGET_SIZE];
	struct rlimit files;

	if (getrlimit(RLIMIT_NOFILE, &files) < 0)
		return err_set(e, errno, "the limit of open files");
	f->link_max = files.rlim_cur > DESCRIPTORS_OWN + 2
			      ? (size_t)(files.rlim_cur - DESCRIPTORS_OWN) / 2
			      : 1;
	if (f->link_max > LINKS_MAX)
		f->link_max = LINKS_MAX;
	return sandbox_target(target, f->sandbox, e, "/ports") < 0
		       ? -1
		       : remote_ask(&f->remote, "GET", target, NULL, &answer, e);
}

static int forward(struct forward *f, struct err *e)
{
	_cleanup_close_ int signals = end_signals_watch(0, NULL, e);

	if (signals < 0 || remote_open(&f->remote, e) < 0 || check_sandbox(f, e) < 0)
		return -1;
	for (size_t i = 0; i < f->count; i++)
		if (listen_on(&f->ports[i], e) < 0)
			return -1;
	for (size_t i = 0; i < f->count; i++)
		printf("127.0.0.1:%u -> %s:%u\n", f->ports[i].local, f->sandbox,
		       f->ports[i].inside);
	fflush(stdout);
	return run(f, signals, e);
}

int verb_port_forward(const struct verb *verb, int argc, char **argv)
{
	struct forward f = {.remote.service.idle_fd = -1};
	struct args a = {.verb = verb};
	struct err e = {0};
	int status = args_ready(&a, argc, argv, 2, 1 + PORTS_MAX);

	if (status >= 0)
		return status;
	f.sandbox = a.operands[0];
	for (size_t i = 1; i < a.count; i++)
		if (add_port(&f, a.operands[i], &e) < 0)
			return fail(EXIT_USAGE, &e);
	status = forward(&f, &e) < 0 ? fail(EXIT_CLOCHE, &e) : 0;
	while (f.links) {
		struct link *next = f.links->next;

		link_free(f.links);
		f.links = next;
	}
	for (size_t i = 0; i < f.count; i++)
		fd_close(&f.ports[i].listener);
	remote_close(&f.remote);
	return status;
}
