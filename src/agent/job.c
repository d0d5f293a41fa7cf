/* SPDX-License-Identifier: Apache-2.0 */
/*
 * job.c - one call under way: requests to the service one after the other, or a run here, until it is
 * answered or cancelled.
 *
 * What a model is told of failures is general (codes.def); paths of this machine and what the service said
 * go to ops->log.
 */
#include "agent/worker.h"

#include <stdint.h>
#include <string.h>
#include <sys/random.h>

#include "base/fd.h"
#include "base/hex.h"
#include "base/json.h"

const char *job_word(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text && *text ? text : "-";
}

bool job_is_id(const char *text)
{
	size_t n = strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-");

	return n > 0 && n <= 64 && text[n] == '\0';
}

static void end_request(struct job *j)
{
	if (j->http && j->w->ops->unwatch)
		j->w->ops->unwatch(j);
	call_drop(TAKE_PTR(j->http));
}

void job_free(struct job *j)
{
	for (struct job **p = &j->w->jobs; *p; p = &(*p)->next)
		if (*p == j) {
			*p = j->next;
			break;
		}
	end_request(j);
	if (j->here)
		j->w->ops->end_here(j);
	free(j->target);
	free(j->body);
	json_decref(j->result);
	json_decref(j->content);
	json_decref(j->files);
	run_done(j);
	if (j->makes_kept)
		kept_leave(j);
	free(j);
}

void job_answer(struct job *j, json_t *content, json_t *structured, bool is_error)
{
	mcp_answer(j->c, content, structured, is_error);
	job_free(j);
}

void job_text(struct job *j, const char *text, bool is_error)
{
	mcp_answer_text(j->c, text, is_error);
	job_free(j);
}

static const char *general_words(const struct job *j, int status, const struct err *e)
{
	/* An answer that breaks off: what was asked may have been done, and is not done again. */
	if (j->http && (status == 0 || status / 100 == 2) && e->code == 0)
		return codes[CODE_SANDBOX_LOST].model;
	if (status == 429)
		return codes[CODE_SANDBOX_QUOTA_EXCEEDED].model;
	if (status == 0 && e->code == 0)
		return "The sandbox service could not be reached.";
	if (status == 503 || status == 0)
		return codes[CODE_SANDBOX_CREATE_FAILED].model;
	if (status >= 500)
		return codes[CODE_SANDBOX_CRASHED].model;
	return "The sandbox was refused by the settings of its operator.";
}

void job_failed(struct job *j, int status, const struct err *e)
{
	j->w->ops->log(e);
	if (status == 0 || status / 100 == 2) /* look for one again */
		j->w->has_service = false;
	if (j->c->uri)
		mcp_refuse_resource(j->c);
	else
		mcp_answer_text(j->c, general_words(j, status, e), true);
	job_free(j);
}

/* ---- requests ---- */

void job_ask(struct job *j, const char *method, char *target, const char *type, char *body,
	     size_t size, bool volumes, void (*then)(struct job *j, int status, struct err *e))
{
	struct worker *w = j->w;
	const char *query = target ? strrchr(target, '?') : NULL;
	bool streams = query && strcmp(query, "?stream") == 0;
	struct request q = {.method = method,
			    .target = target,
			    .type = type,
			    .fields = *j->fields ? j->fields : w->session_field,
			    .body = body,
			    .body_size = size,
			    .fds = w->fds,
			    .fd_count = volumes && w->service->local ? w->fd_count : 0,
			    .sink = streams ? run_take : NULL,
			    .sink_context = j};
	struct err e = {0};

	end_request(j);
	free(j->target);
	free(j->body);
	j->target = target;
	j->body = NULL;
	j->then = then;
	if (!target)
		err_set(&e, ENOMEM, "make a request");
	else
		j->http = call_new(w->service, &q, &e);
	/* It may have been started anew meanwhile. Nothing was sent, so nothing is done twice. */
	if (target && !j->http) {
		w->has_service = false;
		if (w->ops->choose(w, &e) == 0 && w->has_service)
			j->http = call_new(w->service, &q, &e);
	}
	free(body); /* it was copied */
	*j->fields = '\0';
	if (!j->http)
		then(j, 0, &e);
	else if (w->ops->watch)
		w->ops->watch(j);
}

static void here_over(struct job *j)
{
	struct err e = {0};
	json_t *outcome = j->w->ops->outcome_here(j, &e);

	j->w->ops->end_here(j);
	if (!outcome) {
		e.code = e.code ? e.code : CODE_SANDBOX_CREATE_FAILED;
		job_failed(j, 0, &e);
		return;
	}
	j->result = json_incref(json_object_get(outcome, "result"));
	j->files = json_incref(json_object_get(outcome, "files"));
	json_decref(outcome);
	job_ran(j, 200, NULL);
}

void job_pump(struct job *j)
{
	struct err e = {0};
	int r;

	if (j->here) {
		if (j->w->ops->pump_here(j))
			here_over(j);
		return;
	}
	r = call_pump(j->http, &e);
	if (r > 0)
		j->then(j, call_status(j->http), NULL);
	else if (r < 0)
		j->then(j, call_status(j->http), &e);
	else if (j->w->ops->watch)
		j->w->ops->watch(j);
}

json_t *job_json(struct job *j)
{
	struct err ignored;
	size_t size;
	const char *text = call_text(j->http, &size);
	json_t *json = json_read_output(text, size, &ignored);

	if (json_is_object(json))
		return json;
	json_decref(json);
	return NULL;
}

/* ---- beginning ---- */

static void resource_read(struct job *j, int status, struct err *e)
{
	const struct shelved *r = shelf_find(&j->w->shelf, j->c->uri);
	size_t size;
	const char *data = e ? NULL : call_text(j->http, &size);

	if (e || !r) {
		struct err gone = {0};

		err_set(&gone, 0, "the resource is gone");
		job_failed(j, status, e ? e : &gone);
		return;
	}
	mcp_answer_resource(j->c,
			    json_pack("[o]", resource_contents(r->uri, mime_of(r->name, data, size),
							       data, size)));
	job_free(j);
}

static void resource_begin(struct job *j)
{
	const struct shelved *r = shelf_find(&j->w->shelf, j->c->uri);

	if (!r) {
		mcp_refuse_resource(j->c);
		job_free(j);
	} else if (r->data) {
		mcp_answer_resource(j->c, json_pack("[o]", resource_contents(r->uri, r->mime,
									     r->data, r->size)));
		job_free(j);
	} else {
		job_ask(j, "GET", strdup(r->target), NULL, NULL, 0, false, resource_read);
	}
}

void worker_begin(struct worker *w, struct mcp_call *c)
{
	struct job *j = calloc(1, sizeof *j);
	struct tool_view view = mcp_view(c);
	struct err e = {0};

	if (!j) {
		if (c->uri)
			mcp_refuse_resource(c);
		else
			mcp_answer_text(c, "Out of memory.", true);
		return;
	}
	*j = (struct job){.w = w, .c = c, .began_us = now_us(), .next = w->jobs};
	w->jobs = j;
	c->job = j;
	if (w->ops->choose(w, &e) < 0)
		job_failed(j, 0, &e);
	else if (c->uri)
		resource_begin(j);
	else if (tool_runs(c->tool.id) && !c->tool.sandbox && !view.session)
		run_begin(j);
	else
		files_begin(j);
}

void worker_cancel(struct mcp_call *c)
{
	if (c->job)
		job_free(c->job);
}

json_t *worker_resources(const struct worker *w)
{
	return shelf_list(&w->shelf);
}

static bool is_awaited(const struct job *j)
{
	return j->limit_s > 0 && j->c->wants_progress;
}

void worker_beat(struct worker *w)
{
	for (struct job *j = w->jobs; j; j = j->next) {
		double elapsed = (double)(now_us() - j->began_us) / 1e6;
		char text[64];

		if (!is_awaited(j) || elapsed < j->told_s + 0.9)
			continue;
		j->told_s = elapsed;
		elapsed = elapsed < j->limit_s ? elapsed : j->limit_s;
		snprintf(text, sizeof text, "running for %.0f s of at most %.6g s", elapsed,
			 j->limit_s);
		mcp_progress(j->c, elapsed, j->limit_s, text);
	}
}

bool worker_beats(const struct worker *w)
{
	for (const struct job *j = w->jobs; j; j = j->next)
		if (is_awaited(j))
			return true;
	return false;
}

int worker_name(struct worker *w, struct err *e)
{
	unsigned char random[12];

	if (getrandom(random, sizeof random, 0) != sizeof random)
		return err_set(e, errno, "make a name for the session");
	memcpy(w->session, "mcp-", 4);
	hex_encode(random, sizeof random, w->session + 4);
	snprintf(w->session_field, sizeof w->session_field, "X-Cloche-Session: %s\r\n", w->session);
	return 0;
}

void worker_done(struct worker *w)
{
	shelf_done(&w->shelf);
	json_decref(w->run_body);
	json_decref(w->result);
}
