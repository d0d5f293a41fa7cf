/* SPDX-License-Identifier: Apache-2.0 */
/*
 * request.c - transfers with patience.
 *
 * A failed try is followed by another if its cause may pass (causes.def), at most `attempts` times without
 * progress (a MiB more than at the last failure earns new ones) and TRIES_MAX times in all, after a wait that
 * doubles, or that the server names if we have the patience. 401 leads to a login and is no failure, twice.
 */
#include "registry/inside.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "base/fd.h"
#include "base/json.h"

enum {
	LOGINS_MAX = 2, /* without a login, with an old token */
	TRIES_MAX = 100,
	PROGRESS_BYTES = 1 << 20,
	FIRST_WAIT_US = 250000,
};

static const struct {
	bool again, elsewhere;
	const char *name, *text;
} causes[] = {
#define CAUSE(name, again, elsewhere, text) {again, elsewhere, #name, text},
#include "registry/causes.def"
#undef CAUSE
};

bool cause_again(enum registry_cause cause)
{
	return causes[cause].again;
}

bool cause_elsewhere(enum registry_cause cause)
{
	return causes[cause].elsewhere;
}

const char *registry_cause_name(enum registry_cause cause)
{
	return causes[cause].name;
}

const char *registry_cause_text(enum registry_cause cause)
{
	return causes[cause].text;
}

int memory_take(void *context, const void *data, size_t size, struct err *e)
{
	struct memory *m = context;

	if (m->size + size + 1 > m->room) { /* bounded by the transfer's max */
		size_t room = (m->size + size + 1) * 2;
		char *more = realloc(m->data, room);

		if (!more)
			return err_set(e, ENOMEM, "keep an answer");
		m->data = more;
		m->room = room;
	}
	memcpy(m->data + m->size, data, size);
	m->size += size;
	m->data[m->size] = '\0';
	return 0;
}

int memory_restart(void *context, struct err *e)
{
	struct memory *m = context;

	(void)e;
	m->size = 0;
	return 0;
}

/* ---- one try */

static void fail(struct request *q, enum registry_cause cause)
{
	q->cause = cause;
	q->done = true;
}

static int find_url(struct request *q, struct url *ret)
{
	_cleanup_free_ char *text = NULL;
	struct source *s = q->source;

	if (!s)
		return url_copy(&q->url, ret) == 0 ? 0 : err_set(&q->err, ENOMEM, "send a request");
	if (asprintf(&text, "%sv2/%s/%s", s->base.text, s->repository, q->path) < 0) {
		text = NULL;
		return err_set(&q->err, ENOMEM, "send a request");
	}
	return url_read(text, NULL, ret, &q->err);
}

/* Send it, with what is known by now. */
static void send_try(struct request *q)
{
	_cleanup_url_ struct url u = {0};
	struct source *s = q->source;

	transfer_done(&q->t);
	q->tries++;
	q->again_at = 0;
	q->t = q->spec;
	if (s) {
		q->t.authorization = s->authorization;
		q->t.trusted_origin = &s->base;
		q->t.insecure = s->insecure;
		q->t.ca_file = s->ca_file;
		q->t.first_reach = s->first_reach;
		q->t.redirects = TRANSFER_REDIRECTS;
		q->generation = s->generation;
	}
	if (find_url(q, &u) < 0) {
		fail(q, REGISTRY_INTERNAL);
		return;
	}
	q->running = true;
	if (transfer_start(&q->r->engine, &q->t, &u, &q->err) < 0)
		q->running = true; /* finished, with its cause: judged as any other */
}

void request_start(struct request *q)
{
	q->mark = q->spec.offset;
	send_try(q);
}

/* ---- what a status means */

/* "CODE: message" of a registry's JSON, for people. */
static bool read_errors(const struct answer *a, char *ret, size_t size)
{
	_cleanup_json_ json_t *root = NULL;
	const char *code, *message;
	const json_t *first;
	char text[256];
	struct err e;

	*ret = '\0';
	if (a->message_size == 0)
		return false;
	root = json_read(a->message, a->message_size, &e);
	first = json_array_get(json_object_get(root, "errors"), 0);
	code = json_string_value(json_object_get(first, "code"));
	message = json_string_value(json_object_get(first, "message"));
	if (!code && !message)
		return false;
	snprintf(text, sizeof text, " (%s%s%s)", code ? code : "", code && message ? ": " : "",
		 message ? message : "");
	text_show(text, ret, size);
	return true;
}

static const char *name_of(const struct request *q, char room[static URL_SHOWN])
{
	return q->source ? q->source->name : url_show(&q->url, room);
}

static enum registry_cause explain_refusal(struct request *q, const char *who, const char *said)
{
	bool login = q->source && (q->source->login.user || q->source->login.identity_token ||
				   q->source->login.registry_token);

	if (login)
		err_set(&q->err, 0,
			"%s: the stored login has no right to it, or it does not exist%s; "
			"check the name, or docker login %s",
			who, said, who);
	else
		err_set(&q->err, 0,
			"%s: it does not exist, or a login is needed%s; check the name, or "
			"docker login %s",
			who, said, who);
	return REGISTRY_UNAUTHORISED;
}

static enum registry_cause explain_status(struct request *q)
{
	const struct answer *a = &q->t.answer;
	char room[URL_SHOWN], said[160];
	const char *who = name_of(q, room);
	bool known = read_errors(a, said, sizeof said) || a->is_registry;

	if (a->status == 401 || a->status == 403)
		return explain_refusal(q, who, said);
	if (a->status == 429) {
		if (a->retry_after_s)
			err_set(&q->err, 0,
				"%s: too many requests%s; again in %llu s, or with a login "
				"(docker login)",
				who, said, (unsigned long long)a->retry_after_s);
		else
			err_set(&q->err, 0,
				"%s: too many requests%s; try again later, or with a login "
				"(docker login)",
				who, said);
		return REGISTRY_RATE_LIMITED;
	}
	if (a->status == 404 && (known || !q->source)) {
		err_set(&q->err, 0, "%s has no such %s%s; check the name", who,
			q->source && strncmp(q->path, "blobs/", 6) == 0 ? "blob"
									: "repository or tag",
			said);
		return REGISTRY_NOT_FOUND;
	}
	if (a->status >= 500 || a->status == 408) {
		err_set(&q->err, 0, "%s has an error of its own: status %ld%s; try again later",
			who, a->status, said);
		return REGISTRY_SERVER;
	}
	err_set(&q->err, 0,
		"%s answers, but not as a registry: status %ld, %s%s; check its name and port", who,
		a->status, *a->content_type ? a->content_type : "no content type", said);
	return known ? REGISTRY_BAD_ANSWER : REGISTRY_NOT_A_REGISTRY;
}

/* ---- what comes next */

/* https first, http where that will do and https is not spoken. A bad certificate is no reason. */
static bool go_plain(struct request *q)
{
	struct source *s = q->source;
	_cleanup_url_ struct url plain = {0};
	_cleanup_free_ char *text = NULL;
	bool other_port = q->cause == REGISTRY_UNREACHABLE && !s->port_given;
	struct err e;

	if (!s->may_be_plain || !s->base.tls || s->answered ||
	    (!(q->cause == REGISTRY_TLS && q->t.no_tls) && !other_port))
		return false;
	if (asprintf(&text, "http://%s/", s->name) < 0) {
		text = NULL;
		return false;
	}
	if (url_read(text, NULL, &plain, &e) < 0)
		return false;
	url_done(&s->base);
	s->base = plain;
	plain = (struct url){0};
	return true;
}

/* So that many who wait for one server do not come back together. */
static uint64_t shaken(uint64_t us)
{
	uint32_t random = 0;

	if (getrandom(&random, sizeof random, GRND_NONBLOCK) != sizeof random)
		random = 0;
	return us - us / 4 + us / 2 * (random % 1024) / 1024;
}

/* When to try again: a time, or 0: not at all. */
static uint64_t plan_retry(struct request *q)
{
	const struct registry_options *o = &q->r->options;
	uint64_t patience = o->patience_us ? o->patience_us : 60000000, wait;
	unsigned most = o->attempts ? o->attempts : 5, doublings;

	if (!cause_again(q->cause) || q->tries >= TRIES_MAX)
		return 0;
	/* Who never answered is not waited for long: the name may be wrong. */
	if (q->cause == REGISTRY_UNREACHABLE && (!q->source || !q->source->answered) && most > 2)
		most = 2;
	if (++q->attempts >= most)
		return 0;
	doublings = q->attempts < 8 ? q->attempts - 1 : 7;
	wait = shaken((uint64_t)FIRST_WAIT_US << doublings);
	if (q->t.answer.retry_after_s && q->cause != REGISTRY_CUT) {
		if (q->t.answer.retry_after_s > patience / 1000000)
			return 0;
		wait = q->t.answer.retry_after_s * 1000000;
	}
	return now_us() + (wait < patience ? wait : patience);
}

/* What has come so far is either kept, and the rest asked for, or thrown away. */
static bool keep_or_drop(struct request *q)
{
	uint64_t have = q->t.offset + q->t.received;

	if (q->resumable) {
		if (have >= q->mark + PROGRESS_BYTES) {
			q->attempts = 0;
			q->mark = have;
		}
		q->spec.offset = have;
		return true;
	}
	if (q->t.received == 0 || q->spec.restart(q->spec.context, &q->err) == 0)
		return true;
	fail(q, REGISTRY_SINK);
	return false;
}

static void log_in(struct request *q)
{
	enum registry_cause cause;
	struct source *s = q->source;

	/* Another request's login may have come in the meantime. */
	if (q->generation == s->generation || !s->authorization) {
		if (source_log_in(q->r, s, &q->t.answer, &cause, &q->err) < 0) {
			fail(q, cause);
			return;
		}
	}
	q->logins++;
	send_try(q);
}

/* The server knows of nothing behind the offset: begin again, once. */
static bool begin_again(struct request *q)
{
	if (q->spec.offset == 0 || !q->spec.restart)
		return false;
	q->spec.offset = q->mark = 0;
	if (q->spec.restart(q->spec.context, &q->err) < 0) {
		fail(q, REGISTRY_SINK);
		return true;
	}
	send_try(q);
	return true;
}

/* What an answer says about who gave it. */
static void learn(struct source *s, const struct transfer *t)
{
	s->answered = true;
	s->reach = t->answer.reach;
	/* A name that has another address the next time leads us no further inside. */
	if (!s->configured && !t->proxied && s->reach < s->first_reach)
		s->first_reach = s->reach;
}

/* true: this answer ends the request, or another try is on its way. */
static bool judge_answer(struct request *q)
{
	struct source *s = q->source;
	long status = q->t.answer.status;

	if (s && status)
		learn(s, &q->t);
	if (status == 200 || status == 206) {
		q->done = true;
		return true;
	}
	/* What a redirect leads to has no say in where our login goes. */
	if (status == 401 && s && q->t.hops == 0 && q->logins < LOGINS_MAX) {
		log_in(q);
		return true;
	}
	if (status == 416 && begin_again(q))
		return true;
	q->cause = explain_status(q);
	return false;
}

static void judge(struct request *q)
{
	q->running = false;
	q->cause = q->t.cause;
	q->err = q->t.err;
	if (q->cause == REGISTRY_NONE && judge_answer(q))
		return;
	if (q->source && go_plain(q)) {
		send_try(q);
		return;
	}
	q->again_at = plan_retry(q);
	if (keep_or_drop(q) && !q->again_at)
		q->done = true;
}

bool request_poll(struct request *q)
{
	if (!q->done && q->running && q->t.finished)
		judge(q);
	if (!q->done && !q->running && q->again_at && now_us() >= q->again_at)
		send_try(q);
	return q->done;
}

uint64_t request_wakes_at(const struct request *q)
{
	/* A try can fail before it is sent. */
	if (q->done || (q->running && q->t.finished))
		return 1;
	return !q->running && q->again_at ? q->again_at : UINT64_MAX;
}

int request_run(struct request *q, struct err *e)
{
	request_start(q);
	while (!request_poll(q)) {
		uint64_t wake = request_wakes_at(q);

		if (engine_step(&q->r->engine, wake == UINT64_MAX ? 0 : wake, e) < 0) {
			q->cause = q->r->engine.cause;
			return -1;
		}
	}
	if (q->cause == REGISTRY_NONE)
		return 0;
	*e = q->err;
	return -1;
}

void request_done(struct request *q)
{
	transfer_done(&q->t);
	url_done(&q->url);
}
