/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mcp_loop.c - the one poll loop: the client's lines, what jobs wait for, and answers to a client that may be
 * slow. While more than QUEUE_BYTES of them are not taken, nothing more is read: what a client can make
 * us keep has an end. When it goes away (the end of stdin, a closed stdout) everything ends.
 */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/json.h"
#include "cli/mcp.h"

enum { BEAT_MS = 1000, FIXED = 3 };

void server_log(const struct err *e)
{
	fail(0, e);
}

int server_choose(struct worker *w, struct err *e)
{
	struct server *s = (struct server *)w; /* its first member */
	const char *named = getenv("CLOCHE_SOCKET");
	struct err none = {0};

	if (w->has_service || w->unwanted)
		return 0;
	service_done(&s->service);
	w->has_service = service_find(&s->service, &s->places, &none) == 0;
	if (w->has_service || !named || !*named)
		return 0;
	*e = none;
	return -1;
}

/* ---- answers ---- */

static void flush(struct server *s)
{
	size_t sent = 0;

	while (sent < s->queued && !s->client_gone) {
		struct pollfd p = {s->out, POLLOUT, 0};
		/* A pipe takes this much whenever it says that it takes something: stdout may be one that
		 * others have too, and must not become nonblocking for them. */
		size_t left = s->queued - sent, n = left < 4096 ? left : 4096;
		ssize_t r;

		if (poll(&p, 1, 0) <= 0 || !(p.revents & (POLLOUT | POLLERR | POLLHUP)))
			break;
		r = write(s->out, s->queue + sent, n);
		if (r < 0 && errno != EINTR && errno != EAGAIN)
			s->client_gone = true;
		if (r > 0)
			sent += (size_t)r;
	}
	s->queued -= sent;
	memmove(s->queue, s->queue + sent, s->queued);
	if (s->queued == 0 && s->queue_room > 1 << 20) {
		free(TAKE_PTR(s->queue));
		s->queue_room = 0;
	}
}

static bool enqueue(struct server *s, const char *text, size_t size)
{
	if (s->queued + size + 1 > s->queue_room) {
		size_t room = s->queue_room ? s->queue_room : 16384;
		char *more;

		while (room < s->queued + size + 1)
			room *= 2;
		more = realloc(s->queue, room);
		if (!more)
			return false;
		s->queue = more;
		s->queue_room = room;
	}
	memcpy(s->queue + s->queued, text, size);
	s->queued += size;
	s->queue[s->queued++] = '\n';
	return true;
}

/* Takes the message over. One that cannot be sent would leave its asker waiting: that is the end. */
void server_send(struct server *s, json_t *message)
{
	_cleanup_free_ char *text = NULL;

	if (s->w.wants_result) {
		if (json_object_get(message, "id"))
			json_decref(TAKE_PTR(s->answer));
		if (json_object_get(message, "id"))
			s->answer = json_incref(message);
		json_decref(message);
		return;
	}
	text = message ? json_dumps(message, JSON_OUT) : NULL;
	json_decref(message);
	if (!text || !enqueue(s, text, strlen(text))) {
		struct err e = {0};

		err_set(&e, ENOMEM, "make an answer");
		server_log(&e);
		s->client_gone = true;
		return;
	}
	flush(s);
}

/* ---- waiting ---- */

static int job_fd(const struct job *j)
{
	return j->here ? direct_fd(j) : j->http ? call_fd(j->http) : -1;
}

static bool is_job(const struct server *s, const struct job *job)
{
	for (const struct job *j = s->w.jobs; j; j = j->next)
		if (j == job)
			return true;
	return false;
}

static void read_client(struct server *s, int input, struct rpc_lines *lines)
{
	char data[64 << 10];
	ssize_t n = read(input, data, sizeof data);

	if (n > 0)
		rpc_feed(lines, data, (size_t)n, mcp_line, s->w.mcp);
	else if (n == 0 || (errno != EINTR && errno != EAGAIN))
		s->client_gone = true;
}

struct waiting {
	struct pollfd p[FIXED + MCP_MAX_CALLS];
	struct job *of[MCP_MAX_CALLS];
	size_t count;
};

static void gather(const struct server *s, int input, int signals, struct waiting *w)
{
	/* Who has hung up is noticed even while nothing is read. */
	w->p[0] = (struct pollfd){input, s->queued < QUEUE_BYTES ? POLLIN : POLLRDHUP, 0};
	w->p[1] = (struct pollfd){signals, POLLIN, 0};
	/* without events, poll still tells when the reader goes away */
	w->p[2] = (struct pollfd){s->w.wants_result ? -1 : s->out, s->queued ? POLLOUT : 0, 0};
	w->count = 0;
	for (struct job *j = s->w.jobs; j && w->count < MCP_MAX_CALLS; j = j->next) {
		short events = j->here ? POLLIN : j->http ? call_events(j->http) : 0;

		w->of[w->count] = j;
		w->p[FIXED + w->count++] = (struct pollfd){job_fd(j), events, 0};
	}
}

static void serve_client(struct server *s, const struct waiting *w, struct rpc_lines *lines)
{
	if (w->p[2].revents & (POLLERR | POLLHUP | POLLNVAL))
		s->client_gone = true;
	else if (w->p[2].revents & POLLOUT)
		flush(s);
	if (w->p[0].revents && w->p[0].events == POLLRDHUP)
		s->client_gone = true;
	else if (w->p[0].revents && !s->client_gone)
		read_client(s, w->p[0].fd, lines);
}

int server_turn(struct server *s, int input, int signals, struct rpc_lines *lines, struct err *e)
{
	struct waiting w;

	gather(s, input, signals, &w);
	if (poll(w.p, FIXED + w.count, worker_beats(&s->w) ? BEAT_MS : -1) < 0)
		return errno == EINTR ? 0 : err_set(e, errno, "wait for the client");
	if (w.p[1].revents)
		return 1;
	/* What one job does may end another, or begin its next request. */
	for (size_t i = 0; i < w.count; i++)
		if (w.p[FIXED + i].revents && is_job(s, w.of[i]) &&
		    job_fd(w.of[i]) == w.p[FIXED + i].fd)
			job_pump(w.of[i]);
	worker_beat(&s->w);
	serve_client(s, &w, lines);
	return s->client_gone ? 1 : 0;
}
