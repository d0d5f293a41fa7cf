/* SPDX-License-Identifier: Apache-2.0 */
/*
 * job_run.c - run_*: what goes to the service, its stream of events, and what is shown of the result.
 *
 * It is asked for a stream, although nobody is told a piece: a run whose stream loses its reader is ended.
 * Output is kept up to OUTPUT_MAX, which the server's own --max-output is below; images are fetched one
 * after the other, within their bounds.
 */
#include "agent/worker.h"

#include <stdint.h>
#include <string.h>

#include "base/base64.h"
#include "base/fd.h"
#include "base/json.h"

/* ---- a run's stream ---- */

void run_done(struct job *j)
{
	lines_done(&j->lines);
	free(j->out.data);
	free(j->err.data);
}

static int keep_output(struct captured *c, json_t *event, struct err *e)
{
	_cleanup_free_ char *data = NULL;
	size_t size;
	char *more;

	if (event_data(event, &data, &size, e) < 0)
		return -1;
	if (size > OUTPUT_MAX - c->size)
		return err_set(e, 0, "the service tells more output than was asked for");
	more = realloc(c->data, c->size + size + 1);
	if (!more)
		return err_set(e, ENOMEM, "keep the output");
	memcpy(more + c->size, data, size);
	c->data = more;
	c->size += size;
	c->kept = c->size;
	return 0;
}

static uint64_t bytes_of(const json_t *result, const char *name)
{
	const json_t *counts = json_object_get(json_object_get(result, "output"), name);

	return (uint64_t)json_integer_value(json_object_get(counts, "bytes"));
}

/* What came as events, put where the result has it. */
static int put_output(struct job *j, struct err *e)
{
	static const char *const keys[] = {"stdout", "stderr", "encoding", "output"};
	struct result r = {.out = j->out, .err = j->err};
	_cleanup_json_ json_t *made = NULL;
	int failed = 0;

	r.out.bytes = bytes_of(j->result, "stdout");
	r.err.bytes = bytes_of(j->result, "stderr");
	r.enforced = (struct enforced){.runtime = "",
				       .memory = "",
				       .swap = "",
				       .cpu = "",
				       .pids = "",
				       .network = "",
				       .network_denials = "",
				       .rootfs = "",
				       .disk = "",
				       .capabilities = ""};
	made = result_to_json(&r);
	for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
		failed |= json_object_set(j->result, keys[i], json_object_get(made, keys[i]));
	return failed < 0 ? err_set(e, ENOMEM, "keep the output") : 0;
}

static int take_event(void *context, json_t *event, struct err *e)
{
	const char *type = job_word(event, "type");
	struct job *j = context;

	if (j->result)
		return err_set(e, 0, "the service tells more after the end");
	if (strcmp(type, "stdout") == 0)
		return keep_output(&j->out, event, e);
	if (strcmp(type, "stderr") == 0)
		return keep_output(&j->err, event, e);
	if (strcmp(type, "exited") != 0)
		return 0;
	if (!json_is_object(json_object_get(event, "result")))
		return err_set(e, 0, "the service tells no result");
	j->result = json_incref(json_object_get(event, "result"));
	return put_output(j, e);
}

int run_take(void *job, const char *data, size_t size, struct err *e)
{
	struct job *j = job;

	return lines_feed(&j->lines, data, size, take_event, j, e);
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
	struct worker *w = j->w;
	_cleanup_free_ char *text = j->c->tool.id == TOOL_INSTALL_PACKAGES
					    ? install_text(j)
					    : text_of_result(j->result, w->form, w->max_chars);
	json_t *all = json_pack("[{ss ss}]", "type", "text", "text", text ? text : "");
	bool failed = !json_is_true(json_object_get(j->result, "ok"));

	json_array_extend(all, j->content);
	if (w->wants_result) {
		json_decref(w->result);
		w->result = json_incref(j->result);
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
	const struct shelved *r = uri ? shelf_find(&j->w->shelf, uri) : NULL;
	size_t size = 0;
	const char *data = e ? NULL : call_text(j->http, &size);

	(void)status;
	if (e)
		j->w->ops->log(e);
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
	r = shelf_put(&j->w->shelf, run, path, size, data);
	if (r)
		add_file(j, row, r, data, size);
}

/* Look at the files of the result one after the other; those that may be images are fetched. */
static void next_file(struct job *j)
{
	json_t *rows = json_object_get(j->result, "artifacts"), *row;
	const char *run = job_word(j->result, "id");

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
		r = shelf_put(&j->w->shelf, run, path, (size_t)bytes, NULL);
		if (r && may_be_image(r) && j->images < IMAGES_MAX) {
			json_object_set_new(row, "uri", json_string(r->uri));
			job_ask(j, "GET", strdup(r->target), NULL, NULL, 0, false, fetched);
			return;
		}
		if (r)
			add_file(j, row, r, NULL, r->size);
	}
	if (json_array_size(rows) > 0 && j->w->mcp)
		mcp_resources_changed(j->w->mcp);
	show(j);
}

bool job_is_unstarted(const struct job *j)
{
	return strcmp(job_word(j->result, "stage"), "exec") == 0;
}

/* Why there was no sandbox is for who runs this machine. */
static void log_failure(const struct job *j)
{
	const char *reason = job_word(j->result, "reason");
	bool ours = false;
	struct err e = {0};

	for (int i = 0; i < REASON_COUNT; i++)
		ours |= reasons[i].exit_status == 125 && strcmp(reasons[i].name, reason) == 0;
	if (!ours || job_is_unstarted(j))
		return;
	err_set(&e, 0, "%s: %s", reason, job_word(j->result, "message"));
	j->w->ops->log(&e);
}

void job_ran(struct job *j, int status, struct err *e)
{
	if (e && *j->sandbox && (status == 404 || status == 410)) {
		job_text(j, "The kept sandbox has ended; its files are gone.", true);
		return;
	}
	if (e || !j->result) {
		struct err none = {0};

		err_set(&none, 0, "the service's answer ends without a result");
		job_failed(j, e ? status : 500, e ? e : &none);
		return;
	}
	log_failure(j);
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
	json_t *body = json_copy(j->w->run_body);
	_cleanup_free_ char *text = NULL;
	struct err e = {0};

	if (j->c->tool.timeout_s > 0)
		json_object_set_new(body, "timeout", json_real(j->c->tool.timeout_s));
	if (body && job_command(j, body, &e) == 0)
		text = json_dumps(body, JSON_COMPACT);
	json_decref(body);
	if (text) {
		size_t size = strlen(text);

		job_ask(j, "POST", strdup("/v1/runs?stream"), "application/json", TAKE_PTR(text),
			size, true, job_ran);
	} else {
		job_failed(j, 0, &e);
	}
}

void run_begin(struct job *j)
{
	struct err e = {0};
	double limit = mcp_view(j->c).timeout_s;

	j->limit_s = j->c->tool.timeout_s > 0 ? j->c->tool.timeout_s : limit;
	if (j->w->has_service)
		run_there(j);
	else if (j->w->ops->start_here(j, &e) < 0) {
		e.code = CODE_SANDBOX_CREATE_FAILED;
		job_failed(j, 0, &e);
	}
}
