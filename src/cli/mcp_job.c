/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mcp_job.c - one call under way: requests to the service one after the other, or a child, until it is
 * answered or cancelled. Freeing a job ends its run: the connection is gone, or the child's socket.
 *
 * What a model is told of failures is general (codes.def); paths of this machine and what the service said
 * go to stderr.
 */
#include "cli/mcp.h"

#include <stdint.h>
#include <string.h>

#include "base/base64.h"
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
	struct request q = {.method = method,
			    .target = target,
			    .type = type,
			    .fields = *j->fields ? j->fields : s->session_field,
			    .body = body,
			    .body_size = size,
			    .fds = s->fds,
			    .fd_count = volumes && s->service.local ? s->fd_count : 0};
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

/* ---- what a run shows ---- */

/* The contract's object without what is of no use to a model, or names this machine. */
static json_t *structured_result(const struct job *j)
{
	static const char *const keys[] = {"id",         "ok",        "reason",   "error_code",
					   "retryable",  "exit_code", "signal",   "timed_out",
					   "stdout",     "stderr",    "encoding", "output",
					   "limits_hit", "usage"};
	json_t *made = json_object(), *rows = json_array(), *row;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(keys); i++) {
		json_t *value = json_object_get(j->result, keys[i]);

		json_object_set(made, keys[i], value ? value : json_null());
	}
	json_object_set(made, "message", json_object_get(j->result, "model_message"));
	json_object_set_new(made, "sandbox", *j->sandbox ? json_string(j->sandbox) : json_null());
	json_array_foreach(json_object_get(j->result, "artifacts"), i, row) {
		json_t *uri = json_object_get(row, "uri");

		json_array_append_new(rows, json_pack("{sO? sO? sO? sO?}", "path",
						      json_object_get(row, "path"), "bytes",
						      json_object_get(row, "bytes"), "skipped",
						      json_object_get(row, "skipped"), "uri", uri));
	}
	json_object_set_new(made, "artifacts", rows);
	return made;
}

static void show(struct job *j)
{
	struct server *s = j->s;
	_cleanup_free_ char *text = text_of_result(j->result, s->form, s->max_chars);
	json_t *all = json_pack("[{ss ss}]", "type", "text", "text", text ? text : "");
	bool failed = !json_is_true(json_object_get(j->result, "ok"));

	json_array_extend(all, j->content);
	if (s->wants_result) {
		json_decref(s->result);
		s->result = json_incref(j->result);
	}
	job_answer(j, all, structured_result(j), failed);
}

/* An image is shown, an SVG is a text; the rest can be read by whoever asks for it. */
static void add_file(struct job *j, json_t *row, const struct shelved *r, const char *data,
		     size_t size)
{
	const char *mime = data ? mime_of(r->name, data, size) : r->mime;
	bool fits = data && size <= IMAGE_BYTES && j->images < IMAGES_MAX &&
		    j->image_bytes + size <= IMAGES_BYTES;
	json_t *item = NULL;

	json_object_set_new(row, "uri", json_string(r->uri));
	if (fits && mime_is_image(mime))
		item = image_content(mime, data, size);
	else if (fits && strcmp(mime, "image/svg+xml") == 0)
		item = json_pack("{ss so}", "type", "resource", "resource",
				 resource_contents(r->uri, mime, data, size));
	if (item) {
		j->images++;
		j->image_bytes += size;
	} else {
		item = json_pack("{ss ss ss ss sI}", "type", "resource_link", "uri", r->uri, "name",
				 r->name, "mimeType", mime, "size", (json_int_t)r->size);
	}
	json_array_append_new(j->content, item);
}

static bool may_be_image(const struct shelved *r)
{
	return strncmp(r->mime, "image/", 6) == 0 && r->size <= IMAGE_BYTES;
}

static void next_file(struct job *j);

static void fetched(struct job *j, int status, struct err *e)
{
	json_t *rows = json_object_get(j->result, "artifacts");
	json_t *row = json_array_get(rows, j->next_artifact - 1);
	const char *path = json_string_value(json_object_get(row, "path"));
	const char *uri = json_string_value(json_object_get(row, "uri"));
	const struct shelved *r = uri ? shelf_find(&j->s->shelf, uri) : NULL;
	size_t size = 0;
	const char *data = e ? NULL : call_text(j->http, &size);

	(void)status;
	if (e)
		server_log(e);
	if (r && path)
		add_file(j, row, r, data, size);
	next_file(j);
}

/* A file of a run here: its bytes came along. */
static void add_own(struct job *j, json_t *row, const char *path, const char *run)
{
	const json_t *coded = json_object_get(j->files, path);
	_cleanup_free_ char *data = NULL;
	const struct shelved *r;
	size_t size;

	if (!json_is_string(coded) ||
	    base64_decode(json_string_value(coded), json_string_length(coded), &data, &size) < 0)
		return;
	r = shelf_put(&j->s->shelf, run, path, size, data);
	if (r)
		add_file(j, row, r, data, size);
}

/* Look at the files of the result one after the other; those that may be images are fetched. */
static void next_file(struct job *j)
{
	json_t *rows = json_object_get(j->result, "artifacts"), *row;
	const char *run = text_of(j->result, "id");

	while ((row = json_array_get(rows, j->next_artifact++)) && j->next_artifact <= SHELF_ROWS) {
		const char *path = json_string_value(json_object_get(row, "path"));
		json_int_t bytes = json_integer_value(json_object_get(row, "bytes"));
		const struct shelved *r;

		if (!path || json_is_string(json_object_get(row, "skipped")) || bytes < 0)
			continue;
		if (j->files) {
			add_own(j, row, path, run);
			continue;
		}
		r = shelf_put(&j->s->shelf, run, path, (size_t)bytes, NULL);
		if (r && may_be_image(r) && j->images < IMAGES_MAX) {
			json_object_set_new(row, "uri", json_string(r->uri));
			job_ask(j, "GET", strdup(r->target), NULL, NULL, 0, false, fetched);
			return;
		}
		if (r)
			add_file(j, row, r, NULL, r->size);
	}
	if (json_array_size(rows) > 0)
		mcp_resources_changed(j->s->mcp);
	show(j);
}

void job_ran(struct job *j, int status, struct err *e)
{
	if (!e && !j->result)
		j->result = job_json(j);
	if (e && *j->sandbox && (status == 404 || status == 410)) {
		job_text(j, "The kept sandbox has ended; its files are gone.", true);
		return;
	}
	if (e || !j->result) {
		struct err none = {0};

		err_set(&none, 0, "the service's answer is no result");
		job_failed(j, e ? status : 500, e ? e : &none);
		return;
	}
	j->content = json_array();
	next_file(j);
}

/* ---- beginning ---- */

int job_command(const struct job *j, json_t *body, struct err *e)
{
	const struct tool_call *t = &j->c->tool;
	json_t *text = json_stringn(t->code, t->code_size);

	if (t->id == TOOL_RUN_SHELL && t->code_size < SPEC_ARG_BYTES)
		return json_object_set_new(body, "command",
					   json_pack("[sso]", "bash", "-c", text)) < 0
			       ? err_set(e, ENOMEM, "make a request")
			       : 0;
	if (json_object_set_new(body, "language",
				json_string(language_name(tools[t->id].language))) < 0 ||
	    json_object_set_new(body, "code", text) < 0)
		return err_set(e, ENOMEM, "make a request");
	return 0;
}

static void run_there(struct job *j)
{
	json_t *body = json_copy(j->s->run_body);
	_cleanup_free_ char *text = NULL;
	struct err e = {0};

	if (j->c->tool.timeout_s > 0)
		json_object_set_new(body, "timeout", json_real(j->c->tool.timeout_s));
	if (body && job_command(j, body, &e) == 0)
		text = json_dumps(body, JSON_COMPACT);
	json_decref(body);
	if (text) {
		size_t size = strlen(text);

		job_ask(j, "POST", strdup("/v1/runs"), "application/json", TAKE_PTR(text), size,
			true, job_ran);
	} else {
		job_failed(j, 0, &e);
	}
}

static void run_begin(struct job *j)
{
	struct err e = {0};
	double limit = mcp_view(j->c).timeout_s;

	j->limit_s = j->c->tool.timeout_s > 0 ? j->c->tool.timeout_s : limit;
	if (j->s->has_service)
		run_there(j);
	else if (direct_start(j, &e) < 0) {
		e.code = CODE_SANDBOX_CREATE_FAILED;
		job_failed(j, 0, &e);
	}
}

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
