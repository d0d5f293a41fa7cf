/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mcp_job.c - one call under way: requests to the service one after the other, or a child, until it is
 * answered or cancelled. Freeing a job ends its run: the stream's reader is gone, or the child's socket.
 *
 * What a model is told of failures is general (codes.def); paths of this machine and what the service said
 * go to stderr.
 */
#include "cli/mcp.h"

#include <stdint.h>
#include <string.h>

#include "base/fd.h"
#include "base/json.h"

void job_free(struct job *j)
{
	for (struct job **p = &j->s->jobs; *p; p = &(*p)->next)
		if (*p == j) {
			*p = j->next;
			break;
		}
	call_free(j->http);
	direct_end(&j->direct);
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
	if (status == 429)
		return codes[CODE_SANDBOX_QUOTA_EXCEEDED].model;
	if (status == 0 &&
	    e->code == 0) /* what was asked may have been done: it is not done again */
		return j->http ? codes[CODE_SANDBOX_LOST].model
			       : "The sandbox service could not be reached.";
	if (status == 503 || status == 0)
		return codes[CODE_SANDBOX_CREATE_FAILED].model;
	if (status >= 500)
		return codes[CODE_SANDBOX_CRASHED].model;
	return "The sandbox was refused by the settings of its operator.";
}

void job_failed(struct job *j, int status, const struct err *e)
{
	server_log(e);
	if (status == 0) /* look for one again */
		j->s->has_service = false;
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
	struct server *s = j->s;
	const char *query = target ? strrchr(target, '?') : NULL;
	bool streams = query && strcmp(query, "?stream") == 0;
	struct request q = {.method = method,
			    .target = target,
			    .type = type,
			    .fields = *j->fields ? j->fields : s->session_field,
			    .body = body,
			    .body_size = size,
			    .fds = s->fds,
			    .fd_count = volumes && s->service.local ? s->fd_count : 0,
			    .sink = streams ? run_take : NULL,
			    .sink_context = j};
	struct err e = {0};

	call_free(TAKE_PTR(j->http));
	free(j->target);
	free(j->body);
	j->target = target;
	j->body = NULL;
	j->then = then;
	if (!target)
		err_set(&e, ENOMEM, "make a request");
	else
		j->http = call_new(&s->service, &q, &e);
	/* It may have been started anew meanwhile. Nothing was sent, so nothing is done twice. */
	if (target && !j->http) {
		s->has_service = false;
		if (server_choose(s, &e) == 0 && s->has_service)
			j->http = call_new(&s->service, &q, &e);
	}
	free(body); /* it was copied */
	*j->fields = '\0';
	if (!j->http)
		then(j, 0, &e);
}

static void direct_over(struct job *j)
{
	struct err e = {0};
	json_t *outcome = direct_outcome(&j->direct, &e);

	direct_end(&j->direct);
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

	if (j->direct.pid > 0) {
		if (direct_pump(&j->direct))
			direct_over(j);
		return;
	}
	r = call_pump(j->http, &e);
	if (r > 0)
		j->then(j, call_status(j->http), NULL);
	else if (r < 0)
		j->then(j, call_status(j->http), &e);
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
	const struct shelved *r = shelf_find(&j->s->shelf, j->c->uri);
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
	const struct shelved *r = shelf_find(&j->s->shelf, j->c->uri);

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

static void begin(void *context, struct mcp_call *c)
{
	struct server *s = context;
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
	*j = (struct job){.s = s, .c = c, .direct.fd = -1, .began_us = now_us(), .next = s->jobs};
	s->jobs = j;
	c->job = j;
	if (server_choose(s, &e) < 0)
		job_failed(j, 0, &e);
	else if (c->uri)
		resource_begin(j);
	else if (tool_runs(c->tool.id) && !c->tool.sandbox && !view.session)
		run_begin(j);
	else
		files_begin(j);
}

static void cancel(void *context, struct mcp_call *c)
{
	(void)context;
	if (c->job)
		job_free(c->job);
}

static void send_message(void *context, json_t *message)
{
	server_send(context, message);
}

static json_t *resources(void *context)
{
	struct server *s = context;

	return shelf_list(&s->shelf);
}

const struct mcp_host mcp_job_host = {send_message, begin, cancel, resources};
