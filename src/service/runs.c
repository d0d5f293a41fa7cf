/* SPDX-License-Identifier: Apache-2.0 */
/* runs.c - POST /v1/runs, …/exec, what became of them, and their artifacts. */
#include "service/runs.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/fd.h"
#include "image/image.h"
#include "service/artifacts.h"
#include "service/handlers.h"
#include "service/input.h"
#include "service/pool.h"

/* ---- streams of lines ---- */

/* A character that is cut between two pieces waits for its rest. */
struct lines {
	char held[2][4];
	size_t held_size[2];
	bool begun;
};

static void begin_lines(struct call *c)
{
	struct lines *l = c->data;

	if (!l->begun)
		reply_lines_begin(c->x);
	l->begun = true;
}

static double since(const struct run *r)
{
	return (double)(now_us() - r->asked_us) / 1e6;
}

static void line_of(struct call *c, struct run *r, unsigned stream, const char *data, size_t size)
{
	json_t *j = json_pack("{ss sf}", "type", stream == 1 ? "stdout" : "stderr", "t", since(r));

	if (!j || json_set_bytes(j, data, size) < 0) {
		json_decref(j);
		return;
	}
	if (!reply_line(c->x, j))
		run_pause_output(r);
}

static void on_output(struct run *r, unsigned stream, const void *data, size_t size)
{
	struct call *c = r->data;
	struct lines *l = c->data;
	char *held = l->held[stream - 1];
	size_t *held_size = &l->held_size[stream - 1], n;
	_cleanup_free_ char *whole = malloc(*held_size + size);
	ssize_t prefix;

	if (!whole)
		return;
	memcpy(whole, held, *held_size);
	memcpy(whole + *held_size, data, size);
	n = *held_size + size;
	prefix = utf8_prefix(whole, n, true);
	*held_size = 0;
	if (prefix >= 0 && n - (size_t)prefix < 4) {
		*held_size = n - (size_t)prefix;
		memcpy(held, whole + prefix, *held_size);
		n = (size_t)prefix;
	}
	if (n)
		line_of(c, r, stream, whole, n);
}

static void on_started(struct run *r)
{
	struct call *c = r->data;

	begin_lines(c);
	reply_line(c->x, json_pack("{ss sf ss ss}", "type", "started", "t", since(r), "id",
				   r->result.id, "sandbox", r->result.sandbox));
}

bool runs_was_refused(const struct run *r, struct err *e)
{
	if (r->busy && !r->started)
		problem_set(e, PROBLEM_UNAVAILABLE, "%s", r->result.message);
	else if (sandbox_was_refused(r->box) ||
		 (r->box->refused && r->box->failed_code == CODE_SANDBOX_IMAGE_MISSING))
		sandbox_problem(r->box, e); /* no such image: the request's fault, too */
	else
		return false;
	return true;
}

static bool answer_refusal(struct call *c, const struct run *r)
{
	struct err e = {0};

	if (!runs_was_refused(r, &e))
		return false;
	c->gone = NULL;
	call_problem(c, &e);
	return true;
}

static void on_stream_end(struct run *r)
{
	struct call *c = r->data;
	struct lines *l = c->data;
	struct exchange *x = c->x;

	if (answer_refusal(c, r))
		return;
	begin_lines(c);
	for (unsigned s = 1; s <= 2; s++)
		if (l->held_size[s - 1])
			line_of(c, r, s, l->held[s - 1], l->held_size[s - 1]);
	reply_line(x, json_pack("{ss sf so}", "type", "exited", "t", since(r), "result",
				run_result_json(r)));
	c->service->metrics.requests[2]++;
	call_free(c);
	exchange_end(x, true);
}

static void on_collected(struct run *r)
{
	struct call *c = r->data;

	if (!answer_refusal(c, r))
		call_reply_text(c, 200, r->text);
}

static const struct run_ops stream_ops = {on_started, on_output, on_stream_end};
static const struct run_ops collect_ops = {.on_end = on_collected};

/* Who reads a stream and goes away has ended it; a collected run goes on, and can be read later. */
static void client_gone(struct call *c)
{
	run_forget(c->run, call_flag(c, "stream"));
}

static void on_room(struct exchange *x)
{
	struct call *c = exchange_data(x);

	run_resume_output(c->run);
}

/* ---- starting ---- */

static struct run_request request_of(const struct call *c, const struct box *b, struct body *body,
				     const char *kind)
{
	return (struct run_request){
		.spec = &body->spec,
		.input = TAKE_PTR(body->input),
		.input_size = body->input_size,
		.stdin_open = body->stdin_open,
		.owns_box = b->stored.one_shot,
		.artifacts = body->output_folder || body->spec.artifacts.count,
		.output_folder = body->output_folder,
		.files = body->files,
		.owner = c->owner,
		.session = c->session[0] ? c->session : NULL,
		.kind = kind,
		.input_sha256 = body->input_sha256,
		.input_bytes = body->input_bytes,
	};
}

static void start(struct call *c, struct box *b, struct body *body, const char *kind)
{
	bool stream = call_flag(c, "stream");
	struct run_request q = request_of(c, b, body, kind);
	struct err e = {0};

	q.streamed = stream;
	if (stream)
		c->data = calloc(1, sizeof(struct lines));
	if (stream && !c->data) {
		e.code = PROBLEM_UNAVAILABLE;
		free(q.input);
		call_problem(c, &e);
		return;
	}
	c->ops.on_room = on_room;
	c->gone = client_gone;
	c->run = run_new(b, &q, stream ? &stream_ops : &collect_ops, c, &e);
	if (!c->run) {
		c->gone = NULL;
		if (b->stored.one_shot)
			box_end(b, REASON_CREATE_FAILED);
		call_problem(c, &e);
		return;
	}
	call_drop_body(c); /* the run has what it needs, and may last */
}

/* Room under the quotas for one more run; -1 and a 429 otherwise. */
static int take_rate(struct call *c, struct err *e)
{
	struct quota_denial denial = {.retry_after_s = 1};

	if (quota_take_run(c->service->quotas, c->owner, c->session[0] ? c->session : NULL,
			   now_us(), &denial, e) == 0)
		return 0;
	return call_over_quota(c, &denial, e);
}

void exec_create(struct call *c)
{
	struct body body;
	struct err e = {0};

	if (body_read(&body, BODY_EXEC, c->service, &c->box->spec, c->body, &e) < 0 ||
	    take_rate(c, &e) < 0) {
		body_done(&body);
		call_problem(c, &e);
		return;
	}
	start(c, c->box, &body, "exec");
	body_done(&body);
}

static int read_run(struct call *c, struct body *body, struct err *e)
{
	if (body_read(body, BODY_RUN, c->service, NULL, c->body, e) < 0)
		return -1;
	if (body->stdin_open && !call_flag(c, "stream"))
		return err_set(e, 0, "stdin: true needs ?stream, which tells the id to send it to");
	return 0;
}

/* What could wait in a prepared sandbox for this code: its interpreter. */
static int make_want(const struct call *c, const struct body *body, struct pool_want *ret,
		     struct err *e)
{
	*ret = (struct pool_want){.start = {.uid = body->spec.uid,
					    .gid = body->spec.gid,
					    .flags = START_WAITS | START_STDIN | KEEP_HEAD,
					    .keep_bytes = 1},
				  .spec = &body->spec};
	if ((body->may_join || body->may_become) && strlen(c->owner) < sizeof ret->tenant &&
	    image_is_host(body->spec.image) && /* whose Python it is */
	    !c->service->operator_uid && !c->service->policy.no_prepared_python)
		memcpy(ret->tenant, c->owner, strlen(c->owner));
	return body->may_wait && !body->stdin_open && !body->may_become
		       ? run_start_strings(&body->spec, &ret->start, &ret->strings, &ret->size, e)
		       : 0;
}

/* The sandbox of a run: its limits, without commands' defaults; a prepared one will do. */
static struct box *make_box(struct call *c, struct body *body, const int *fds, size_t fd_count,
			    struct err *e)
{
	struct stored_sandbox stored = {.one_shot = true, .created_ms = wall_ms()};
	struct spec limits = {0};
	struct pool_want want;
	struct box *b = NULL;

	if (make_want(c, body, &want, e) == 0 && spec_copy_limits(&limits, &body->spec, e) == 0)
		b = sandbox_begin_with(c, &stored, &limits, 0, 0, NULL, &want, body->volume_fds,
				       fds, fd_count, e);
	free(want.strings);
	return b;
}

void runs_create(struct call *c)
{
	int fds[SPEC_MAX_VOLUMES];
	size_t fd_count = exchange_take_fds(c->x, fds, ARRAY_SIZE(fds));
	struct box *b = NULL;
	struct body body;
	struct err e = {0};

	if (read_run(c, &body, &e) == 0 && take_rate(c, &e) == 0)
		b = make_box(c, &body, fds, fd_count, &e);
	for (size_t i = 0; i < fd_count; i++)
		close(fds[i]);
	if (b) {
		start(c, b, &body, "run");
		box_release(b);
	} else {
		call_problem(c, &e);
	}
	body_done(&body);
}

struct run *runs_begin(struct call *c, struct body *body, bool *counted, const int *fds,
		       size_t fd_count, const struct run_ops *ops, void *data, struct err *e)
{
	struct run_request q;
	struct run *r;
	struct box *b;

	if (!*counted && take_rate(c, e) < 0)
		return NULL;
	*counted = true;
	b = make_box(c, body, fds, fd_count, e);
	if (!b)
		return NULL;
	q = request_of(c, b, body, "run");
	r = run_new(b, &q, ops, data, e);
	if (!r)
		box_end(b, REASON_CREATE_FAILED);
	box_release(b);
	return r;
}

/* ---- reading ---- */

static json_t *run_json(const struct stored_run *s)
{
	/* Before the end it is only what will be said if we should die now. */
	json_t *result = s->ended && s->result ? json_loads(s->result, JSON_ALLOW_NUL, NULL) : NULL;
	json_t *row;
	size_t i;

	if (!s->artifact_path)
		json_array_foreach(json_object_get(result, "artifacts"), i, row)
			if (json_object_get(row, "href")) /* it was kept, once */
				json_object_set_new(row, "href", json_null());
	return json_pack("{ss ss ss ss so so so}", "id", s->id, "sandbox", s->sandbox, "kind",
			 s->kind ? s->kind : "run", "state", s->ended ? "ended" : "running",
			 "created_at", time_json(s->created_ms), "ended_at", time_json(s->ended_ms),
			 "result", result ? result : json_null());
}

static int get_run(struct call *c, struct stored_run *ret, struct err *e)
{
	int r = store_run_get(c->service->store, c->id, ret, e);

	if (r == 0 && call_may_see(c, ret->owner))
		return 0;
	if (r == 0)
		stored_run_done(ret);
	return r < 0 ? -1 : problem_set(e, PROBLEM_NOT_FOUND, "no such run: %s", c->id);
}

void runs_get(struct call *c)
{
	struct stored_run s = {0};
	struct err e = {0};
	json_t *j;

	if (get_run(c, &s, &e) < 0) {
		call_problem(c, &e);
		return;
	}
	j = run_json(&s);
	stored_run_done(&s);
	call_reply(c, 200, j);
}

/* Results are as large as their output: a list of them ends where the client could not be sent it. */
#define LIST_BYTES (32u << 20)

struct listing {
	const struct call *call;
	json_t *rows;
	size_t bytes;
};

static int add_run(const struct stored_run *s, void *data)
{
	struct listing *l = data;

	if (!call_may_see(l->call, s->owner))
		return 0;
	l->bytes += s->result ? strlen(s->result) : 0;
	if (l->bytes > LIST_BYTES && json_array_size(l->rows) > 0)
		return 1;
	return json_array_append_new(l->rows, run_json(s));
}

void runs_list(struct call *c)
{
	const char *sandbox = exchange_query(c->x, "sandbox");
	struct listing l = {c, json_array(), 0};
	struct store *s = c->service->store;
	struct err e = {0};
	uint64_t limit;
	int r = call_number(c, "limit", 100, 1000, &limit, &e);

	if (r == 0 && c->admin)
		r = store_run_list(s, sandbox, false, (unsigned)limit, add_run, &l, &e);
	else if (r == 0)
		r = store_run_list_of(s, c->owner, sandbox, (unsigned)limit, add_run, &l, &e);
	if (r < 0) {
		json_decref(l.rows);
		call_problem(c, &e);
		return;
	}
	call_reply(c, 200, json_pack("{so}", "runs", l.rows));
}

/* ---- one that is under way ---- */

/* The caller's, alive; else a problem: it has ended, or is not known. */
static struct run *find_live(struct call *c, struct err *e)
{
	struct stored_run stored = {0};

	for (struct run *r = c->service->runs; r; r = r->next)
		if (strcmp(r->result.id, c->id) == 0 && call_may_see(c, r->owner) && !r->ending)
			return r;
	if (get_run(c, &stored, e) < 0)
		return NULL;
	stored_run_done(&stored);
	problem_set(e, PROBLEM_CONFLICT, "run %s has ended", c->id);
	return NULL;
}

void runs_stdin(struct call *c)
{
	struct err e = {0};
	struct run *r = find_live(c, &e);

	if (r && (!r->stdin_open || !r->started || r->command_over)) {
		problem_set(&e, PROBLEM_CONFLICT, "run %s has no open stdin%s", c->id,
			    r->stdin_open && !r->started ? " yet" : "");
		r = NULL;
	}
	if (!r) {
		call_problem(c, &e);
		return;
	}
	c->box = r->box;
	box_hold(c->box);
	exchange_pause(c->x);
	input_feed(c, r->number);
}

void runs_cancel(struct call *c)
{
	struct err e = {0};
	struct run *r = find_live(c, &e);

	if (!r) {
		call_problem(c, &e);
		return;
	}
	run_cancel(r);
	call_reply(c, 204, NULL);
}

/* ---- artifacts ---- */

struct sending {
	int fd;
	uint64_t left;
};

static void send_some(struct exchange *x)
{
	struct call *c = exchange_data(x);
	struct sending *s = c->data;
	char data[65536];
	bool complete;

	while (s->left > 0) {
		ssize_t n =
			read(s->fd, data, s->left < sizeof data ? (size_t)s->left : sizeof data);

		if (n <= 0)
			break;
		s->left -= (uint64_t)n;
		if (!exchange_write(x, data, (size_t)n))
			return;
	}
	complete = s->left == 0;
	c->service->metrics.requests[2]++;
	call_free(c);
	exchange_end(x, complete);
}

static void close_file(struct call *c)
{
	struct sending *s = c->data;

	fd_close(&s->fd);
}

void runs_artifact(struct call *c)
{
	struct stored_run stored = {0};
	struct sending *s = calloc(1, sizeof *s);
	struct err e = {0};

	c->data = s;
	if (!s) {
		e.code = PROBLEM_UNAVAILABLE;
		call_problem(c, &e);
		return;
	}
	if (get_run(c, &stored, &e) < 0) {
		call_problem(c, &e);
		return;
	}
	if (!stored.artifact_path)
		problem_set(&e, PROBLEM_NOT_FOUND,
			    "run %s has no artifacts, or they are not kept any more", c->id);
	stored_run_done(&stored);
	if (e.text[0]) {
		call_problem(c, &e);
		return;
	}
	s->fd = artifact_open(c->service, c->id, c->rest, &s->left, &e);
	if (s->fd < 0) {
		call_problem(c, &e);
		return;
	}
	c->release = close_file;
	c->ops.on_room = send_some;
	exchange_begin(c->x, 200, "application/octet-stream", NULL, s->left);
	send_some(c->x);
}
