/* SPDX-License-Identifier: Apache-2.0 */
#include "service/network.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/fd.h"
#include "service/box.h"
#include "service/link.h"

enum {
	RECORDS_A_TURN = 64, /* the loop is others' too */
	NAMED_MAX = 64,      /* different connections in one audit row */
	REFUSED_MAX = 32,    /* that are shown */
	PACE_MS = 1000,
	LAST_WORDS_MS = 2000,
	/* Its end may come before the sandbox's own: only when that goes on is it told. */
	GONE_MS = 1000,
	CUT_AGAIN_MS = 1000,
	/* What a sandbox can make us write has to be little: while rows go on they come ever more rarely, up to one in PACE_MAX_MS,
	 * and beyond NAMED_BURST connections NAMED_A_MINUTE are named, the others are counted by their rule. */
	PACE_MAX_MS = 60000,
	NAMED_BURST = 256,
	NAMED_A_MINUTE = 64,
	NAMED_US = 60000000 / NAMED_A_MINUTE,
	MERGED_MAX = 32, /* of different rules, in one audit row */
};

/* Connections that are alike, in a row of the audit that is not written yet. */
struct row {
	struct egress_record record; /* of the first */
	uint64_t count, sent, received, duration_us;
};

struct network {
	struct box *box; /* NULL: closed, and freed by the loop */
	int fd;
	uv_poll_t poll;
	uv_timer_t clock;
	unsigned handles;
	bool waits; /* is connected to when the loop goes on: its sandbox's maker has no need of it */
	bool ended;                 /* hung up, or has talked nonsense */
	uint64_t write_us, gone_us; /* 0: not due */
	uint32_t sequence, last, acknowledged;
	struct network_flush *flushes;
	struct network_listener *listeners;
	struct network_usage usage; /* of this connection */
	uint64_t failed;
	struct egress_totals totals; /* its own count, since its beginning */
	bool cut;                    /* the spawner has killed it */
	uint64_t cut_us;             /* to be asked for, 0: not due */
	uint64_t pace_ms;            /* from a connection to the row with it */
	uint64_t written_us;         /* the last row that was due */
	uint64_t named_us;           /* when all that were named are made up for */
	struct row *rows; /* NAMED_MAX and MERGED_MAX at most; freed when they are written */
	size_t row_count, row_room, named;
	uint64_t unlisted; /* alike no row, and there was no room */
	json_t *refused;
};

static void arm(struct network *n);
static void on_clock(uv_timer_t *t);
static void connect_now(struct network *n);

/* ---- the audit ---- */

static const char *verdict_name(uint32_t verdict)
{
	static const char *const names[] = {[EGRESS_DENIED] = "denied",
					    [EGRESS_ALLOWED] = "allowed",
					    [EGRESS_FAILED] = "failed"};

	return names[verdict];
}

static json_t *text_or_null(const char *text)
{
	json_t *j = *text ? json_string(text) : NULL;

	return j ? j : json_null();
}

static json_t *row_json(const struct row *r)
{
	const struct egress_record *c = &r->record;

	return json_pack("{so si so ss so so so so sI sI sI sI so}", "host", text_or_null(c->host),
			 "port", (int)c->port, "address", text_or_null(c->address), "verdict",
			 verdict_name(c->verdict), "rule", text_or_null(c->rule), "credential",
			 text_or_null(c->credential), "method", text_or_null(c->method), "path",
			 text_or_null(c->path), "count", (json_int_t)r->count, "bytes_sent",
			 (json_int_t)r->sent, "bytes_received", (json_int_t)r->received,
			 "duration_ms", (json_int_t)(r->duration_us / 1000), "at",
			 time_json((int64_t)c->started_ms));
}

static void free_rows(struct network *n)
{
	free(n->rows);
	n->rows = NULL;
	n->row_count = n->row_room = n->named = 0;
}

/* One audit row for all that came since the last, then the acknowledgement. */
static void write_rows(struct network *n)
{
	struct box *b = n->box;
	json_t *list = json_array();

	n->write_us = 0;
	if (n->row_count == 0 && n->unlisted == 0) {
		json_decref(list);
		return;
	}
	for (size_t i = 0; i < n->row_count; i++)
		json_array_append_new(list, row_json(&n->rows[i]));
	audit(b->service, b->stored.owner, b->stored.session, "network.connections", b->stored.id,
	      json_pack("{so sI}", "connections", list, "more", (json_int_t)n->unlisted));
	free_rows(n);
	n->unlisted = 0;
	if (service_commit(b->service) < 0 || n->ended || n->acknowledged == n->last)
		return;
	if (egress_ask(n->fd, EGRESS_ACK, n->last) == 0)
		n->acknowledged = n->last;
}

static bool is_alike(const struct egress_record *a, const struct egress_record *b)
{
	return a->verdict == b->verdict && a->port == b->port && strcmp(a->host, b->host) == 0 &&
	       strcmp(a->address, b->address) == 0 && strcmp(a->rule, b->rule) == 0 &&
	       strcmp(a->credential, b->credential) == 0 && strcmp(a->method, b->method) == 0 &&
	       strcmp(a->path, b->path) == 0;
}

static uint64_t plus(uint64_t a, uint64_t b)
{
	return a > INT64_MAX - b || b > INT64_MAX ? INT64_MAX : a + b;
}

static struct row *find_row(struct network *n, const struct egress_record *r)
{
	for (size_t i = 0; i < n->row_count; i++)
		if (is_alike(&n->rows[i].record, r))
			return &n->rows[i];
	return NULL;
}

/* NULL: there is no memory. */
static struct row *new_row(struct network *n, const struct egress_record *r)
{
	size_t room = n->row_room ? n->row_room * 2 : 1;
	struct row *more;

	if (n->row_count == n->row_room) {
		more = reallocarray(n->rows, room, sizeof *more);
		if (!more)
			return NULL;
		n->rows = more;
		n->row_room = room;
	}
	n->rows[n->row_count] = (struct row){.record = *r};
	return &n->rows[n->row_count++];
}

/* One of its own, while it may have one. */
static struct row *name_row(struct network *n, const struct egress_record *r)
{
	uint64_t now = now_us();
	struct row *row;

	if (n->named_us < now)
		n->named_us = now;
	if (n->named == NAMED_MAX || n->named_us - now >= (uint64_t)NAMED_BURST * NAMED_US)
		return NULL;
	row = new_row(n, r);
	n->named_us += NAMED_US;
	n->named += row != NULL;
	return row;
}

/* With all that the same rule let through, or refused. */
static struct row *merge_row(struct network *n, const struct egress_record *r)
{
	struct egress_record merged = {.verdict = r->verdict, .started_ms = r->started_ms};
	struct row *row;

	memcpy(merged.rule, r->rule, sizeof merged.rule);
	memcpy(merged.credential, r->credential, sizeof merged.credential);
	row = find_row(n, &merged);
	if (!row && n->row_count - n->named < MERGED_MAX)
		row = new_row(n, &merged);
	return row;
}

static void add_row(struct network *n, const struct egress_record *r)
{
	struct row *row = find_row(n, r);
	uint64_t now = now_us();

	if (!n->write_us) {
		if (now - n->written_us > 2 * n->pace_ms * 1000)
			n->pace_ms = PACE_MS;
		n->write_us = now + n->pace_ms * 1000;
	}
	if (!row)
		row = name_row(n, r);
	if (!row)
		row = merge_row(n, r);
	if (!row) {
		n->unlisted++;
		return;
	}
	row->count++;
	row->sent = plus(row->sent, r->sent);
	row->received = plus(row->received, r->received);
	row->duration_us = plus(row->duration_us, r->duration_us);
}

/* The next one comes later. */
static void write_due_rows(struct network *n)
{
	write_rows(n);
	n->written_us = now_us();
	n->pace_ms += n->pace_ms / 4;
	if (n->pace_ms > PACE_MAX_MS)
		n->pace_ms = PACE_MAX_MS;
}

/* ---- counting ---- */

static void count(struct network_usage *u, const struct egress_record *r)
{
	u->bytes_sent = plus(u->bytes_sent, r->sent);
	u->bytes_received = plus(u->bytes_received, r->received);
	if (r->verdict != EGRESS_DENIED) {
		u->allowed++;
		return;
	}
	u->denied++;
	network_usage_refused(u, *r->host ? r->host : r->address, (uint16_t)r->port);
}

static void show_refused(struct network *n, const struct egress_record *r)
{
	if (!n->refused)
		n->refused = json_array();
	json_array_append_new(
		n->refused,
		json_pack("{so si so so so}", "host", text_or_null(*r->host ? r->host : r->address),
			  "port", (int)r->port, "rule", text_or_null(r->rule), "why",
			  text_or_null(r->why), "at", time_json((int64_t)r->started_ms)));
	if (json_array_size(n->refused) > REFUSED_MAX)
		json_array_remove(n->refused, 0);
}

static void take_record(struct network *n, const struct egress_record *r)
{
	struct metrics *m = &n->box->service->metrics;

	n->last = r->header.sequence;
	count(&n->usage, r);
	for (struct network_listener *l = n->listeners; l; l = l->next)
		if ((int64_t)r->started_ms >= l->since_ms)
			count(l->usage, r);
	m->connections[r->verdict]++;
	m->connection_bytes = plus(m->connection_bytes, plus(r->sent, r->received));
	if (r->verdict == EGRESS_DENIED)
		show_refused(n, r);
	if (r->verdict == EGRESS_FAILED)
		n->failed++;
	add_row(n, r);
}

/* ---- waiting ---- */

/* Told one after the other; each may add or remove others. sequence 0: all; else those up to it. */
static void tell(struct network *n, uint32_t sequence, uint64_t now)
{
	for (struct network_flush **at = &n->flushes; *at;) {
		struct network_flush *f = *at;

		if (sequence ? f->sequence > sequence : now < f->until_us) {
			at = &f->next;
			continue;
		}
		*at = f->next;
		f->box = NULL;
		f->done(f);
		if (!n->box) /* closed meanwhile */
			return;
		at = &n->flushes;
	}
}

/* Each that was asked for is answered once; what nobody asked for is nothing. */
static void take_totals(struct network *n, const struct egress_totals *t)
{
	if (t->header.sequence <= n->totals.header.sequence || t->header.sequence > n->sequence)
		return;
	n->totals = *t;
	write_rows(n);
	tell(n, t->header.sequence, 0);
}

static void let_go(struct network *n)
{
	if (--n->handles)
		return;
	fd_close(&n->fd);
	network_usage_done(&n->usage);
	json_decref(n->refused);
	free(n->rows);
	free(n);
}

/* message NULL: the spawner is gone, and may not have heard of it. Refused: the sandbox has ended. */
static void on_cut(void *data, const struct spawner_header *message)
{
	struct network *n = data;

	n->cut = message != NULL;
	if (!n->cut)
		n->cut_us = now_us() + CUT_AGAIN_MS * 1000ull;
	if (n->box)
		arm(n);
	let_go(n);
}

static void cut(struct network *n)
{
	n->cut_us = 0;
	n->handles++;
	if (link_ask(n->box->service->link, SPAWNER_CUT, n->box->stored.id, on_cut, n) < 0)
		on_cut(n, NULL);
}

/* It is gone, or not to be believed: then it lives on, perhaps, and connects, and nobody would hear of that. Who started it
 * kills it, and only then is it told that nothing is let out of the sandbox any more, for nobody else holds the listeners. */
static void end(struct network *n)
{
	n->ended = true;
	uv_poll_stop(&n->poll);
	cut(n);
	write_rows(n);
	n->gone_us = now_us() + GONE_MS * 1000ull;
	tell(n, 0, UINT64_MAX);
	if (n->box)
		arm(n);
}

static void read_some(struct network *n)
{
	union egress_answer a;

	for (int i = 0; i < RECORDS_A_TURN && n->box && !n->ended; i++) {
		int r = egress_receive(n->fd, &a);

		if (r == -EAGAIN)
			break;
		if (r == 0 && a.header.type == EGRESS_RECORD)
			take_record(n, &a.record);
		else if (r == 0 && a.header.type == EGRESS_TOTALS)
			take_totals(n, &a.totals);
		else
			end(n);
	}
	if (n->box)
		arm(n);
}

static void on_ready(uv_poll_t *p, int status, int events)
{
	struct network *n = p->data;

	(void)events;
	if (status < 0)
		end(n);
	else
		read_some(n);
}

/* ---- clocks ---- */

static void tell_gone(struct network *n)
{
	struct box *b = n->box;

	n->gone_us = 0;
	if (b->killing || b->stored.state == STATE_ENDED)
		return;
	log_event("network.gone", json_pack("{ss}", "sandbox", b->stored.id));
	audit(b->service, "system", NULL, "network.gone", b->stored.id, NULL);
	event_emit(b->service, "sandbox.network_gone", b, NULL, NULL);
	snprintf(b->created.enforced.network, sizeof b->created.enforced.network, "netns");
	box_keep_enforced(b);
	box_keep_enforced_text(b);
	box_write_again(b);
}

static void on_clock(uv_timer_t *t)
{
	struct network *n = t->data;
	uint64_t now = now_us();

	if (n->waits)
		connect_now(n);
	if (n->write_us && now >= n->write_us)
		write_due_rows(n);
	if (n->cut_us && now >= n->cut_us)
		cut(n);
	if (n->cut && n->gone_us && now >= n->gone_us)
		tell_gone(n);
	tell(n, 0, now);
	if (n->box)
		arm(n);
}

static void arm(struct network *n)
{
	uint64_t at = UINT64_MAX, now = now_us();

	if (n->write_us)
		at = n->write_us;
	if (n->waits)
		at = now;
	if (n->cut && n->gone_us && n->gone_us < at)
		at = n->gone_us;
	if (n->cut_us && n->cut_us < at)
		at = n->cut_us;
	for (const struct network_flush *f = n->flushes; f; f = f->next)
		if (f->until_us < at)
			at = f->until_us;
	if (at == UINT64_MAX)
		uv_timer_stop(&n->clock);
	else
		uv_timer_start(&n->clock, on_clock, at > now ? (at - now + 999) / 1000 : 0, 0);
}

/* ---- opening and closing ---- */

static void on_closed(uv_handle_t *h)
{
	let_go(h->data);
}

void network_close(struct box *b)
{
	struct network *n = TAKE_PTR(b->network);

	if (!n)
		return;
	write_rows(n);
	for (struct network_listener *l = n->listeners; l; l = l->next)
		l->box = NULL;
	for (struct network_flush *f = n->flushes; f; f = f->next)
		f->box = NULL;
	n->box = NULL;
	uv_poll_stop(&n->poll);
	uv_timer_stop(&n->clock);
	uv_close((uv_handle_t *)&n->poll, on_closed);
	uv_close((uv_handle_t *)&n->clock, on_closed);
}

static bool has_network(const struct box *b)
{
	return strncmp(b->created.enforced.network, "egress", 6) == 0;
}

/* One that cannot be reached has ended: that is told as any other's end. */
static void connect_now(struct network *n)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int size = snprintf(a.sun_path, sizeof a.sun_path, "%s/sandboxes/%s/egress",
			    n->box->service->config.runtime_dir, n->box->stored.id);

	n->waits = false;
	if (size >= (int)sizeof a.sun_path || connect(n->fd, (struct sockaddr *)&a, sizeof a) < 0 ||
	    egress_ask(n->fd, EGRESS_WATCH, 1) < 0 ||
	    egress_ask(n->fd, EGRESS_FLUSH, ++n->sequence) < 0 ||
	    uv_poll_start(&n->poll, UV_READABLE, on_ready) < 0)
		end(n);
}

void network_open(struct box *b)
{
	struct network *n;
	int fd;

	if (b->network || !has_network(b))
		return;
	n = calloc(1, sizeof *n);
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (!n || fd < 0 || uv_poll_init(&b->service->loop, &n->poll, fd) < 0 ||
	    uv_timer_init(&b->service->loop, &n->clock) < 0) {
		fd_close(&fd);
		free(n);
		return;
	}
	n->box = b;
	n->fd = fd;
	n->pace_ms = PACE_MS;
	n->poll.data = n->clock.data = n;
	n->handles = 2;
	b->network = n;
	n->waits = true;
	arm(n);
}

void network_listen(struct box *b, struct network_listener *l, struct network_usage *usage,
		    int64_t since_ms)
{
	if (!b->network)
		return;
	*l = (struct network_listener){
		.next = b->network->listeners, .usage = usage, .since_ms = since_ms, .box = b};
	b->network->listeners = l;
}

void network_unlisten(struct network_listener *l)
{
	struct network_listener **at;

	if (!l->box)
		return;
	for (at = &l->box->network->listeners; *at != l;)
		at = &(*at)->next;
	*at = l->next;
	l->box = NULL;
}

bool network_flush(struct box *b, struct network_flush *f, unsigned limit_ms)
{
	struct network *n = b->network;
	struct network_flush **at;

	if (n && n->waits)
		connect_now(n);
	if (!n || n->ended || egress_ask(n->fd, EGRESS_FLUSH, n->sequence + 1) < 0)
		return false;
	f->sequence = ++n->sequence;
	f->until_us = now_us() + limit_ms * 1000ull;
	f->box = b;
	f->next = NULL;
	for (at = &n->flushes; *at;)
		at = &(*at)->next;
	*at = f;
	arm(n);
	return true;
}

void network_unflush(struct network_flush *f)
{
	struct network_flush **at;

	if (!f->box)
		return;
	for (at = &f->box->network->flushes; *at != f;)
		at = &(*at)->next;
	*at = f->next;
	f->box = NULL;
}

bool network_is_still(const struct box *b)
{
	const struct network *n = b->network;

	return !n || (!n->ended && n->sequence && n->totals.header.sequence == n->sequence &&
		      n->totals.open == 0);
}

void network_drain(struct box *b)
{
	if (b->network && !b->network->ended && !b->network->waits)
		read_some(b->network);
}

static void on_last_words(struct network_flush *f)
{
	struct box *b = (struct box *)((char *)f - offsetof(struct box, last_flush));

	if (b->network) {
		b->texts_are_old = true;
		box_write_again(b);
		service_commit(b->service);
		network_close(b);
	}
	box_release_end(b->service, b->stored.id);
	box_release(b);
}

void network_hear_out(struct box *b)
{
	b->last_flush.done = on_last_words;
	if (!network_flush(b, &b->last_flush, LAST_WORDS_MS))
		on_last_words(&b->last_flush);
}

/* ---- for readers ---- */

const char *network_capture(const struct box *b)
{
	static const char *const names[] = {NULL, "ports", "redirect"};

	return b->created.capture < ARRAY_SIZE(names) ? names[b->created.capture] : NULL;
}

const char *network_state(const struct box *b)
{
	return !b->network ? "none" : b->network->ended ? "ended" : "serving";
}

json_t *network_refused_json(const struct box *b)
{
	json_t *j = b->network ? b->network->refused : NULL;

	return j ? json_deep_copy(j) : json_array();
}

static json_int_t most(uint64_t a, uint64_t b)
{
	uint64_t n = a > b ? a : b;

	return n > INT64_MAX ? INT64_MAX : (json_int_t)n;
}

/* Its own totals are of its whole life, what we have counted is newer. */
json_t *network_usage_json(const struct box *b)
{
	const struct network *n = b->network;

	if (!n)
		return json_pack("{si si si si si}", "allowed", 0, "denied", 0, "failed", 0,
				 "bytes", 0, "open", 0);
	return json_pack("{sI sI sI sI sI}", "allowed",
			 most(n->totals.allowed, n->usage.allowed - n->failed), "denied",
			 most(n->totals.denied, n->usage.denied), "failed",
			 most(n->totals.failed, n->failed), "bytes",
			 most(n->totals.bytes, plus(n->usage.bytes_sent, n->usage.bytes_received)),
			 "open", most(n->totals.open, 0));
}
