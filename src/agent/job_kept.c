/* SPDX-License-Identifier: Apache-2.0 */
/*
 * job_kept.c - the calls that work in kept sandboxes: files, runs with "sandbox", list_sandboxes, reset.
 *
 * A model reaches only sandboxes that were made here. In the handshake revisions one of them is the session's
 * and made at its first use; from 2026-07-28 on each is named by its id. Their names under the service are
 * one session, by which they are found when it is over.
 */
#include <stdint.h>
#include <string.h>

#include "base/base64.h"
#include "base/json.h"
#include "agent/worker.h"

#define KEPT_IDLE_S 1800
#define KEPT_LIFE_S 86400

/* ---- which sandbox ---- */

static bool is_ours(const struct worker *w, const char *id)
{
	for (size_t i = 0; i < w->kept_count; i++)
		if (strcmp(w->kept[i], id) == 0)
			return true;
	return false;
}

static void forget(struct worker *w, const char *id)
{
	if (strcmp(w->session_sandbox, id) == 0)
		*w->session_sandbox = '\0';
	for (size_t i = 0; i < w->kept_count; i++)
		if (strcmp(w->kept[i], id) == 0) {
			memmove(w->kept[i], w->kept[i + 1],
				(--w->kept_count - i) * sizeof *w->kept);
			return;
		}
}

/* "" when this call means the session's and there is none yet; NULL: it was answered. */
static const char *meant(struct job *j)
{
	const char *id = j->c->tool.sandbox;
	bool by_id = mcp_view(j->c).by_id;

	if (!id || (!by_id && strcmp(id, "session") == 0))
		return by_id ? "" : j->w->session_sandbox;
	if (is_ours(j->w, id))
		return id;
	job_text(j, "There is no such sandbox; list_sandboxes shows those that are there.", true);
	return NULL;
}

/* A failed request: in general words, or in the service's when they are about a path inside. */
static void refused(struct job *j, int status, struct err *e)
{
	if (status == 410) {
		forget(j->w, j->sandbox);
		job_text(j, "The kept sandbox has ended; its files are gone.", true);
	} else if (status >= 400 && status < 500 && status != 429) {
		job_text(j, e->text, true);
	} else {
		job_failed(j, status, e);
	}
}

/* The answer of a request that succeeded; NULL: the call was answered. */
static json_t *answer_of(struct job *j, int status, struct err *e)
{
	json_t *answer = e ? NULL : job_json(j);
	struct err none = {0};

	if (e) {
		refused(j, status, e);
	} else if (!answer) {
		err_set(&none, 0, "the service's answer is no JSON object");
		job_failed(j, 500, &none);
	}
	return answer;
}

/* Everything of a run's body that describes the sandbox. */
static json_t *kept_body(const struct worker *w)
{
	static const char *const of_runs[] = {"timeout",    "cpu_time",        "idle_timeout",
					      "max_output", "on_output_limit", "output",
					      "best_effort"};
	json_t *body = json_copy(w->run_body);

	for (size_t i = 0; i < ARRAY_SIZE(of_runs); i++)
		json_object_del(body, of_runs[i]);
	json_object_set_new(body, "timeout", json_integer(KEPT_LIFE_S));
	json_object_set_new(body, "idle_timeout", json_integer(KEPT_IDLE_S));
	json_object_set_new(body, "labels", json_pack("{ss}", "made-by", "mcp"));
	install_prepare(w, body);
	return body;
}

void kept_leave(struct job *j)
{
	j->makes_kept = false;
	for (bool found = !j->w->ending; found;) {
		found = false;
		for (struct job *w = j->w->jobs; w && !found; w = w->next)
			if (w->waits_for_kept) {
				found = true;
				w->waits_for_kept = false;
				kept_enter(w, w->in_kept);
			}
	}
}

static void kept_made(struct job *j, int status, struct err *e)
{
	_cleanup_json_ json_t *box = e ? NULL : job_json(j);
	const char *id = json_string_value(json_object_get(box, "id"));
	struct worker *w = j->w;
	struct err none = {0};

	if (e || !id || !job_is_id(id) || w->kept_count == KEPT_MAX) {
		err_set(&none, 0, "the service's answer has no id");
		job_failed(j, e ? status : 500, e ? e : &none);
		return;
	}
	snprintf(w->kept[w->kept_count++], sizeof *w->kept, "%s", id);
	snprintf(j->sandbox, sizeof j->sandbox, "%s", id);
	if (j->makes_kept) {
		snprintf(w->session_sandbox, sizeof w->session_sandbox, "%s", id);
		kept_leave(j);
	}
	j->in_kept(j);
}

static void kept_make(struct job *j)
{
	_cleanup_json_ json_t *body = kept_body(j->w);
	char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
	struct err e = {0};

	if (!text || (j->w->ops->keep && j->w->ops->keep(j->w, &e) < 0)) {
		free(text);
		job_failed(j, 503, &e);
		return;
	}
	job_ask(j, "POST", strdup("/v1/sandboxes"), "application/json", text, strlen(text), true,
		kept_made);
}

static bool is_being_made(const struct worker *w)
{
	for (const struct job *j = w->jobs; j; j = j->next)
		if (j->makes_kept)
			return true;
	return false;
}

void kept_enter(struct job *j, void (*in_kept)(struct job *j))
{
	const char *id = meant(j);

	if (!id)
		return;
	j->in_kept = in_kept;
	if (*id) {
		snprintf(j->sandbox, sizeof j->sandbox, "%s", id);
		in_kept(j);
		return;
	}
	if (j->w->kept_count >= KEPT_MAX) {
		job_text(j, "There are too many kept sandboxes; end one with reset.", true);
		return;
	}
	if (!mcp_view(j->c).by_id) {
		j->waits_for_kept = is_being_made(j->w);
		j->makes_kept = !j->waits_for_kept;
	}
	if (!j->waits_for_kept)
		kept_make(j);
}

/* The same for what only looks: without a sandbox there is nothing to see. */
static void kept_look(struct job *j, void (*in_kept)(struct job *j))
{
	const char *id = meant(j);

	if (!id)
		return;
	if (!*id) {
		job_text(j, "There is no kept sandbox yet; write_file makes one.", true);
		return;
	}
	kept_enter(j, in_kept);
}

/* ---- paths and targets ---- */

/* The path as the service wants it, in a target; NULL: it is too long. */
static char *file_target(const struct job *j, const char *what, const char *more)
{
	const char *path = j->c->tool.path ? j->c->tool.path : "/workspace";
	char full[TOOL_PATH_BYTES + 16], coded[3 * sizeof full];
	char *target = NULL;

	snprintf(full, sizeof full, "%s%s", *path == '/' ? "" : "/workspace/", path);
	if (url_encode(full, coded, sizeof coded) < 0 ||
	    asprintf(&target, "/v1/sandboxes/%s/files%s?path=%s%s", j->sandbox, what, coded, more) <
		    0)
		return NULL;
	return target;
}

static json_t *own_path(const struct job *j)
{
	return json_string(j->c->tool.path ? j->c->tool.path : "/workspace");
}

static json_t *text_item(const char *text)
{
	return json_pack("[{ss ss}]", "type", "text", "text", text);
}

/* ---- runs ---- */

static void exec_ran(struct job *j, int status, struct err *e)
{
	if (e && status == 410)
		refused(j, status, e);
	else
		job_ran(j, status, e);
}

void kept_exec(struct job *j, json_t *body)
{
	double limit = mcp_view(j->c).timeout_s;
	json_t *output = json_object_get(j->w->run_body, "max_output");
	char *target = NULL, *text = NULL;
	struct err e = {0};

	j->limit_s = j->c->tool.timeout_s > 0 ? j->c->tool.timeout_s : limit;
	json_object_set_new(body, "timeout", json_real(j->limit_s));
	if (output)
		json_object_set(body, "max_output", output);
	text = body ? json_dumps(body, JSON_COMPACT) : NULL;
	json_decref(body);
	if (!text || asprintf(&target, "/v1/sandboxes/%s/exec?stream", j->sandbox) < 0) {
		free(text);
		err_set(&e, ENOMEM, "make a request");
		job_failed(j, 503, &e);
		return;
	}
	job_ask(j, "POST", target, "application/json", text, strlen(text), false, exec_ran);
}

static void exec_begin(struct job *j)
{
	json_t *body = json_object();
	struct err e = {0};

	if (job_command(j, body, &e) < 0) {
		json_decref(body);
		job_failed(j, 503, &e);
		return;
	}
	kept_exec(j, body);
}

/* ---- write_file ---- */

static void written(struct job *j, int status, struct err *e)
{
	const struct tool_call *t = &j->c->tool;
	char text[TOOL_PATH_BYTES + 200];

	if (e) {
		refused(j, status, e);
		return;
	}
	snprintf(text, sizeof text, "Wrote %lld bytes to %s (sandbox %s).", j->file_size, t->path,
		 j->sandbox);
	job_answer(j, text_item(text),
		   json_pack("{ss ss sI}", "sandbox", j->sandbox, "path", t->path, "bytes",
			     (json_int_t)j->file_size),
		   false);
}

static void write_begin(struct job *j)
{
	const struct tool_call *t = &j->c->tool;
	char *data = NULL;
	size_t size = t->content_size;

	if (t->is_base64) {
		if (base64_decode(t->content, t->content_size, &data, &size) < 0) {
			job_text(j, "The argument \"content\" is not base64.", true);
			return;
		}
	} else {
		data = malloc(size + 1);
		if (data)
			memcpy(data, t->content, size);
	}
	if (!data) {
		job_text(j, "Out of memory.", true);
		return;
	}
	j->file_size = (long long)size;
	job_ask(j, "PUT", file_target(j, "", "&parents"), "application/octet-stream", data, size,
		false, written);
}

/* ---- read_file ---- */

static void show_file(struct job *j, const char *data, size_t size)
{
	const struct tool_call *t = &j->c->tool;
	const char *mime = mime_of(t->path, data, size);
	bool whole = (long long)size == j->file_size;
	bool image = whole && mime_is_image(mime), is_text = text_is_text(data, size);
	json_t *about = json_pack("{ss ss sI sI sI sb}", "sandbox", j->sandbox, "path", t->path,
				  "size", (json_int_t)j->file_size, "bytes", (json_int_t)size,
				  "offset", (json_int_t)t->offset, "truncated",
				  t->offset + (long long)size < j->file_size);
	json_t *content = json_array();
	size_t n = 0;

	if (image) {
		json_array_append_new(content, image_content(mime, data, size));
	} else if (is_text) {
		json_array_append_new(content, json_pack("{ss so}", "type", "text", "text",
							 json_stringn(data, size)));
	} else {
		_cleanup_free_ char *coded = base64_encode(data, size, &n);

		json_object_set_new(about, "encoding", json_string("base64"));
		json_array_append_new(content,
				      json_pack("{ss so}", "type", "text", "text",
						coded ? json_stringn(coded, n) : json_string("")));
	}
	if (!whole) {
		char note[160];

		snprintf(note, sizeof note, "[bytes %lld to %lld of %lld%s]", t->offset,
			 t->offset + (long long)size, j->file_size,
			 is_text || image ? "" : ", as base64");
		json_array_append_new(content, json_pack("{ss ss}", "type", "text", "text", note));
	}
	job_answer(j, content, about, false);
}

static void bytes_read(struct job *j, int status, struct err *e)
{
	size_t size;
	const char *data;
	struct tool_call *t = &j->c->tool;

	if (e) {
		refused(j, status, e);
		return;
	}
	data = call_text(j->http, &size);
	/* A cut in the middle of a character is the cut's doing, so it is made before it. */
	if (t->offset + (long long)size < j->file_size) {
		ssize_t n = utf8_prefix(data, size, true);

		size = n > 0 ? (size_t)n : size;
	}
	show_file(j, data, size);
}

/* Images are looked at as a whole, if they are small enough. */
static void file_known(struct job *j, int status, struct err *e)
{
	struct tool_call *t = &j->c->tool;
	_cleanup_json_ json_t *stat = answer_of(j, status, e);
	const char *type = job_word(stat, "type");
	long long most;

	if (!stat)
		return;
	most = t->limit;
	j->file_size = json_integer_value(json_object_get(stat, "size"));
	if (strcmp(type, "file") != 0) {
		job_text(j,
			 strcmp(type, "directory") == 0 ? "This is a folder; list_files lists it."
							: "This is no regular file.",
			 true);
		return;
	}
	if (t->offset >= j->file_size) {
		show_file(j, "", 0);
		return;
	}
	if (t->offset == 0 && j->file_size <= IMAGE_BYTES &&
	    mime_is_image(mime_of(t->path, NULL, 0)))
		most = IMAGE_BYTES;
	snprintf(j->fields, sizeof j->fields, "Range: bytes=%lld-%lld\r\n", t->offset,
		 t->offset + most - 1);
	job_ask(j, "GET", file_target(j, "", ""), NULL, NULL, 0, false, bytes_read);
}

static void read_begin(struct job *j)
{
	job_ask(j, "GET", file_target(j, "/stat", ""), NULL, NULL, 0, false, file_known);
}

/* ---- list_files ---- */

static void list_row(FILE *f, json_t *rows, json_t *entry)
{
	json_t *name = json_object_get(entry, "name"), *size = json_object_get(entry, "size");
	const char *type = job_word(entry, "type");
	bool folder = strcmp(type, "directory") == 0;

	if (!json_is_string(name))
		name = json_object_get(entry, "name_base64");
	if (!json_is_string(name))
		return;
	json_array_append_new(rows,
			      json_pack("{sO ss sO?}", "name", name, "type", type, "size", size));
	fprintf(f, "%s%s", json_string_value(name), folder ? "/" : "");
	if (strcmp(type, "file") == 0)
		fprintf(f, "  %lld", (long long)json_integer_value(size));
	else if (!folder)
		fprintf(f, "  (%s)", type);
	fputc('\n', f);
}

static void listed(struct job *j, int status, struct err *e)
{
	_cleanup_json_ json_t *answer = answer_of(j, status, e);
	bool cut = json_is_true(json_object_get(answer, "truncated"));
	_cleanup_free_ char *text = NULL;
	json_t *rows, *entry;
	size_t size, i;
	FILE *f;

	if (!answer)
		return;
	f = open_memstream(&text, &size);
	if (!f) {
		job_text(j, "Out of memory.", true);
		return;
	}
	rows = json_array();
	json_array_foreach(json_object_get(answer, "entries"), i, entry)
		list_row(f, rows, entry);
	if (json_array_size(rows) == 0)
		fputs("(empty)\n", f);
	if (cut)
		fputs("[and more]\n", f);
	fclose(f);
	job_answer(j, text_item(text ? text : ""),
		   json_pack("{ss so so sb}", "sandbox", j->sandbox, "path", own_path(j), "entries",
			     rows, "truncated", cut),
		   false);
}

static void list_begin(struct job *j)
{
	job_ask(j, "GET", file_target(j, "/list", ""), NULL, NULL, 0, false, listed);
}

/* ---- list_sandboxes, reset ---- */

static void sandboxes_known(struct job *j, int status, struct err *e)
{
	static const char *const keys[] = {"id", "state", "created_at", "expires_at", "reason"};
	_cleanup_json_ json_t *answer = answer_of(j, status, e);
	_cleanup_free_ char *text = NULL;
	json_t *rows, *box;
	size_t i, size;
	FILE *f;

	if (!answer)
		return;
	f = open_memstream(&text, &size);
	if (!f) {
		job_text(j, "Out of memory.", true);
		return;
	}
	rows = json_array();
	json_array_foreach(json_object_get(answer, "sandboxes"), i, box) {
		const char *id = job_word(box, "id");
		json_t *row = is_ours(j->w, id) ? json_object() : NULL;

		for (size_t k = 0; row && k < ARRAY_SIZE(keys); k++)
			json_object_set(row, keys[k], json_object_get(box, keys[k]));
		if (!row)
			continue;
		json_array_append_new(rows, row);
		fprintf(f, "%s  %s%s\n", id, job_word(box, "state"),
			strcmp(id, j->w->session_sandbox) == 0 ? "  (this session's)" : "");
	}
	if (json_array_size(rows) == 0)
		fputs("No kept sandboxes.\n", f);
	fclose(f);
	job_answer(j, text_item(text ? text : ""), json_pack("{so}", "sandboxes", rows), false);
}

static void sandboxes_begin(struct job *j)
{
	char *target = NULL;

	if (j->w->kept_count == 0) {
		job_answer(j, text_item("No kept sandboxes."), json_pack("{s[]}", "sandboxes"),
			   false);
		return;
	}
	if (asprintf(&target, "/v1/sandboxes?session=%s&limit=1000", j->w->session) < 0)
		target = NULL;
	job_ask(j, "GET", target, NULL, NULL, 0, false, sandboxes_known);
}

static void reset_done(struct job *j, int status, struct err *e)
{
	char text[160];

	if (e && status != 404 && status != 410) {
		refused(j, status, e);
		return;
	}
	forget(j->w, j->sandbox);
	snprintf(text, sizeof text, "The sandbox %s was thrown away.", j->sandbox);
	job_answer(j, text_item(text), json_pack("{s[s]}", "ended", j->sandbox), false);
}

static void reset_begin(struct job *j)
{
	const char *id = meant(j);
	char *target = NULL;

	if (!id)
		return;
	if (!*id) {
		job_answer(j, text_item("There was no kept sandbox."), json_pack("{s[]}", "ended"),
			   false);
		return;
	}
	snprintf(j->sandbox, sizeof j->sandbox, "%s", id);
	if (asprintf(&target, "/v1/sandboxes/%s", id) < 0)
		target = NULL;
	job_ask(j, "DELETE", target, NULL, NULL, 0, false, reset_done);
}

static const char *without_service(const struct job *j)
{
	if (j->w->unwanted)
		return "Kept sandboxes need the cloche service, which this server was told not to "
		       "use (--direct).";
	if (mcp_view(j->c).session && tool_runs(j->c->tool.id))
		return "This server was started to keep a sandbox for the session (--session), which "
		       "needs the cloche service, and that does not run on this machine (`cloche "
		       "serve` starts it).";
	return "Kept sandboxes need the cloche service, which does not run on this machine (`cloche "
	       "serve` starts it). run_python, run_node and run_shell work without it, each in a "
	       "new sandbox.";
}

void files_begin(struct job *j)
{
	if (!j->w->has_service) {
		job_text(j, without_service(j), true);
		return;
	}
	switch (j->c->tool.id) {
	case TOOL_WRITE_FILE:
		kept_enter(j, write_begin);
		break;
	case TOOL_READ_FILE:
		kept_look(j, read_begin);
		break;
	case TOOL_LIST_FILES:
		kept_look(j, list_begin);
		break;
	case TOOL_INSTALL_PACKAGES:
		install_begin(j);
		break;
	case TOOL_LIST_SANDBOXES:
		sandboxes_begin(j);
		break;
	case TOOL_RESET:
		reset_begin(j);
		break;
	default:
		kept_enter(j, exec_begin);
	}
}
