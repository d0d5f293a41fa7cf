/* SPDX-License-Identifier: Apache-2.0 */
#include "service/mcp_worker.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "agent/worker.h"

struct mcp_worker {
	struct worker w; /* first */
	const struct mcp_place *place;
	struct service client; /* the API, as a client sees it */
	char owner[64];
	bool admin;
};

static struct mcp_worker *worker_of(const struct job *j)
{
	return (struct mcp_worker *)j->w;
}

/* ---- descriptors on the loop ---- */

/* A descriptor of its own of the job's connection, which the job may close whenever it wants. */
struct watch {
	uv_poll_t poll;
	struct job *job; /* NULL: closing */
	int fd;
	short events; /* that are looked for: to ask for the same again would cost two system calls */
};

static void on_closed(uv_handle_t *handle)
{
	struct watch *t = handle->data;

	close(t->fd);
	free(t);
}

static void unwatch(struct job *j)
{
	struct watch *t = TAKE_PTR(j->watch);

	if (!t)
		return;
	t->job = NULL;
	uv_close((uv_handle_t *)&t->poll, on_closed);
}

static void on_ready(uv_poll_t *poll, int status, int events)
{
	struct watch *t = poll->data;
	const struct mcp_place *place;

	(void)status;
	(void)events;
	if (!t->job)
		return;
	place = worker_of(t->job)->place;
	job_pump(t->job);
	place->after(place->context);
}

static struct watch *watch_new(struct job *j)
{
	struct watch *t = calloc(1, sizeof *t);

	if (!t)
		return NULL;
	t->fd = fcntl(call_fd(j->http), F_DUPFD_CLOEXEC, 0);
	if (t->fd < 0 || uv_poll_init(worker_of(j)->place->loop, &t->poll, t->fd) < 0) {
		fd_close(&t->fd);
		free(t);
		return NULL;
	}
	t->poll.data = t;
	t->job = j;
	return t;
}

/* Without memory nobody looks after it: the run ends by its own limits, its asker when it has waited enough. */
static void watch(struct job *j)
{
	short events = call_events(j->http);
	struct watch *t = j->watch;

	if (!t)
		t = j->watch = watch_new(j);
	if (!t || t->events == events)
		return;
	t->events = events;
	uv_poll_start(&t->poll,
		      (events & POLLIN ? UV_READABLE : 0) | (events & POLLOUT ? UV_WRITABLE : 0),
		      on_ready);
}

/* ---- the worker ---- */

static int dial(void *context)
{
	const struct mcp_worker *w = context;
	struct peer peer = {.kind = PEER_INSIDE, .uid = w->admin ? 0 : 65534};
	int ends[2], r;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) < 0)
		return -errno;
	snprintf(peer.address, sizeof peer.address, "%s", w->owner);
	r = http_server_adopt(w->place->http, ends[1], &peer);
	if (r == 0)
		return ends[0];
	close(ends[0]);
	return r;
}

static int choose(struct worker *w, struct err *e)
{
	(void)e;
	w->has_service = true;
	return 0;
}

/* Nobody's in particular: agent/worker.h gives no more than the error. */
static void (*log_text)(const char *text);

static void say(const struct err *e)
{
	log_text(e->text);
}

static const struct worker_ops ops = {.choose = choose,
				      .log = say,
				      .watch = watch,
				      .unwatch = unwatch};

struct mcp_worker *mcp_worker_new(const struct mcp_place *place, const char *owner, bool admin)
{
	struct mcp_worker *w = calloc(1, sizeof *w);
	struct err ignored;

	if (!w)
		return NULL;
	log_text = place->log;
	w->place = place;
	w->admin = admin;
	snprintf(w->owner, sizeof w->owner, "%s", owner);
	w->client = (struct service){.name = "itself",
				     .host = "localhost",
				     .idle_fd = -1,
				     .dial = dial,
				     .dial_context = w};
	w->w.ops = &ops;
	w->w.service = &w->client;
	w->w.form = TEXT_EXIT;
	w->w.max_chars = text_default_chars[TEXT_EXIT];
	w->w.run_body = json_incref(place->asks->body);
	if (worker_name(&w->w, &ignored) == 0)
		return w;
	mcp_worker_free(w);
	return NULL;
}

void mcp_worker_free(struct mcp_worker *w)
{
	if (!w)
		return;
	worker_done(&w->w);
	free(w);
}

void mcp_worker_begin(struct mcp_worker *w, struct mcp_call *c)
{
	worker_begin(&w->w, c);
}

void mcp_worker_cancel(struct mcp_call *c)
{
	worker_cancel(c);
}

json_t *mcp_worker_resources(const struct mcp_worker *w)
{
	return worker_resources(&w->w);
}

struct tool_view mcp_worker_view(const struct mcp_worker *w)
{
	return (struct tool_view){.kept = true,
				  .open_world = w->place->asks->has_network,
				  .timeout_s = w->place->asks->timeout_s};
}

bool mcp_worker_is_busy(const struct mcp_worker *w)
{
	return w->w.jobs;
}

void mcp_worker_beat(struct mcp_worker *w)
{
	worker_beat(&w->w);
}

const char *mcp_worker_kept(const struct mcp_worker *w, size_t i)
{
	return i < w->w.kept_count ? w->w.kept[i] : NULL;
}
