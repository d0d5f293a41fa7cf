/* SPDX-License-Identifier: Apache-2.0 */
/*
 * oneshot.c - one run by the service: one poll loop over its stream of events, our stdin, stdout, stderr
 * and signals.
 *
 * What of stdin is there at the beginning goes along when it is all of it; else the rest follows in requests
 * of their own, each as long as there is something to read, because one that stays open without a byte is
 * hung up on. While the command does not read, neither do we. Output is passed on as native/stream.c does it:
 * kept here up to its limit, and without a limit the service is not read while a reader is behind.
 *
 * Ctrl-C, or a reader who went away, cancels the run by its id and waits for the result; a second Ctrl-C
 * hangs up, which cancels it as well.
 */
#include "cli/oneshot.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/base64.h"
#include "base/fd.h"
#include "base/json.h"
#include "native/stream.h"

enum {
	FIRST_BYTES = 64 << 10, /* of stdin in the request itself */
	HELD_MS = 10000,        /* the service hangs up on whoever takes nothing for 30 s */
};

struct shot {
	const struct oneshot *o;
	struct call *stream, *input, *cancel;
	struct lines lines;
	struct stream out, err;
	struct captured out_kept, err_kept;
	char id[65]; /* "" until it has started */
	char input_target[128], cancel_target[128];
	json_t *result;
	bool input_open, input_ended; /* more may come; we have seen its end */
	bool wants_cancel, abandoned; /* by a signal or a reader who went; for good */
	struct err input_error;
	char *first; /* of stdin, read before the request */
	size_t first_size, first_sent;
};

json_t *oneshot_plain(struct result *r)
{
	r->enforced = (struct enforced){.runtime = "",
					.memory = "",
					.swap = "",
					.cpu = "",
					.pids = "",
					.network = "",
					.network_denials = "",
					.rootfs = "",
					.disk = "",
					.capabilities = ""};
	return result_to_json(r);
}

/* ---- stdin ---- */

static bool is_readable(int fd)
{
	struct pollfd p = {fd, POLLIN, 0};

	return poll(&p, 1, 0) > 0;
}

/* What is there now, without waiting. An error (a terminal, for a job in the background) is its end. */
static int read_first(struct shot *s, struct err *e)
{
	s->input_open = true;
	if (isatty(0))
		return 0;
	s->first = malloc(FIRST_BYTES);
	if (!s->first)
		return err_set(e, ENOMEM, "read stdin");
	while (s->first_size < FIRST_BYTES && is_readable(0)) {
		ssize_t n = read(0, s->first + s->first_size, FIRST_BYTES - s->first_size);

		if (n < 0 && (errno == EINTR || errno == EAGAIN))
			break;
		if (n <= 0) {
			s->input_open = false;
			break;
		}
		s->first_size += (size_t)n;
	}
	return 0;
}

static int set_input(struct shot *s, json_t *body, struct err *e)
{
	_cleanup_free_ char *coded = NULL;
	size_t size;
	int r = 0;

	if (read_first(s, e) < 0)
		return -1;
	if (s->input_open) {
		r = json_object_set_new(body, "stdin", json_true());
	} else if (s->first_size) {
		coded = base64_encode(s->first, s->first_size, &size);
		r = coded ? json_object_set_new(body, "stdin_base64", json_stringn(coded, size))
			  : -1;
	}
	return r < 0 ? err_set(e, ENOMEM, "make a request") : 0;
}

/* A call_source: the request ends when there is nothing to read for now. */
static ssize_t give_input(void *context, char *data, size_t room)
{
	struct shot *s = context;
	size_t left = s->first_size - s->first_sent;
	ssize_t n;

	if (left > 0) {
		n = (ssize_t)(left < room ? left : room);
		memcpy(data, s->first + s->first_sent, (size_t)n);
		s->first_sent += (size_t)n;
		return n;
	}
	if (!is_readable(0))
		return 0;
	n = read(0, data, room);
	if (n < 0 && (errno == EINTR || errno == EAGAIN))
		return 0;
	s->input_ended = n <= 0;
	return n > 0 ? n : 0;
}

static int begin_input(struct shot *s, struct err *e)
{
	struct request q = {.method = "POST", .target = s->input_target};

	snprintf(s->input_target, sizeof s->input_target, "/v1/runs/%s/stdin%s", s->id,
		 s->input_ended ? "?eof" : "");
	if (s->input_ended) {
		s->input_open = false;
	} else {
		q.type = "application/octet-stream";
		q.source = give_input;
		q.source_context = s;
		q.source_size = UINT64_MAX;
	}
	s->input = call_new(s->o->service, &q, e);
	return s->input ? 0 : -1;
}

/* A command that has ended or does not read any more is no error: its result will say so. */
static void pump_input(struct shot *s)
{
	struct err e = {0};
	int r = call_pump(s->input, &e), status = call_status(s->input);

	if (r == 0)
		return;
	call_drop(TAKE_PTR(s->input));
	if (r > 0)
		return;
	s->input_open = s->input_ended = false;
	if (status != 404 && status != 409 && status != 410)
		s->input_error = e;
}

static bool wants_input(const struct shot *s)
{
	return s->id[0] && !s->result && !s->input && !s->wants_cancel &&
	       (s->input_open || s->input_ended);
}

/* ---- what the service tells ---- */

static int take_output(struct stream *stream, json_t *event, struct err *e)
{
	_cleanup_free_ char *data = NULL;
	size_t size;

	if (event_data(event, &data, &size, e) < 0)
		return -1;
	stream_put(stream, data, size);
	return 0;
}

static int take_event(void *context, json_t *event, struct err *e)
{
	const char *type = text_of(event, "type");
	struct shot *s = context;

	if (s->result)
		return err_set(e, 0, "the service tells more after the end");
	if (strcmp(type, "stdout") == 0)
		return take_output(&s->out, event, e);
	if (strcmp(type, "stderr") == 0)
		return take_output(&s->err, event, e);
	if (strcmp(type, "started") == 0) {
		const char *id = text_of(event, "id");

		if (!is_id(id) || s->id[0])
			return err_set(e, 0, "the service tells no id of the run");
		snprintf(s->id, sizeof s->id, "%s", id);
	} else if (strcmp(type, "exited") == 0) {
		struct result end;

		s->result = json_incref(json_object_get(event, "result"));
		if (!result_end(s->result, &end))
			return err_set(e, 0, "the service tells no result");
	}
	return 0;
}

static int take_lines(void *context, const char *data, size_t size, struct err *e)
{
	struct shot *s = context;

	return lines_feed(&s->lines, data, size, take_event, s, e);
}

/* ---- the end before the end ---- */

static void begin_cancel(struct shot *s)
{
	struct request q = {.method = "POST", .target = s->cancel_target};
	struct err e = {0};

	snprintf(s->cancel_target, sizeof s->cancel_target, "/v1/runs/%s/cancel", s->id);
	s->cancel = call_new(s->o->service, &q, &e);
	s->abandoned = !s->cancel;
}

/* When it has ended by itself just now (409), the result is on its way. */
static void pump_cancel(struct shot *s)
{
	struct err e = {0};
	int r = call_pump(s->cancel, &e);

	if (r < 0 && call_status(s->cancel) != 409)
		s->abandoned = true;
}

static void take_signal(struct shot *s)
{
	struct signalfd_siginfo info;

	if (read(s->o->cancel_fd, &info, sizeof info) != sizeof info)
		return;
	s->abandoned = s->wants_cancel;
	s->wants_cancel = true;
}

static void serve_sink(struct shot *s, struct stream *stream, int revents)
{
	if (revents & (POLLERR | POLLHUP | POLLNVAL)) {
		stream->sink_gone = true;
		s->wants_cancel = true;
	} else if (revents & POLLOUT) {
		stream_flush_some(stream);
		s->wants_cancel |= stream->sink_gone;
	}
}

/* ---- the loop ---- */

enum { POLL_STREAM, POLL_OUT, POLL_ERR, POLL_SIGNAL, POLL_INPUT, POLL_CANCEL, POLL_COUNT };

static struct pollfd poll_sink(const struct stream *s)
{
	/* without events, poll still tells when the reader goes away */
	return (struct pollfd){s->sink_gone ? -1 : s->sink, stream_wants_room(s) ? POLLOUT : 0, 0};
}

static struct pollfd poll_call(const struct call *c)
{
	return c ? (struct pollfd){call_fd(c), call_events(c), 0} : (struct pollfd){-1, 0, 0};
}

/* What our side says: readers and signals, and what follows from them. */
static void serve_ours(struct shot *s, const struct pollfd p[POLL_COUNT])
{
	serve_sink(s, &s->out, p[POLL_OUT].revents);
	serve_sink(s, &s->err, p[POLL_ERR].revents);
	if (p[POLL_SIGNAL].revents)
		take_signal(s);
	if (p[POLL_CANCEL].revents)
		pump_cancel(s);
	if (s->wants_cancel && s->id[0] && !s->cancel)
		begin_cancel(s);
}

/* One turn. 1: the stream has ended, 0: go on, -1: e. */
static int turn(struct shot *s, struct err *e)
{
	bool held = s->o->spec->max_output_bytes == SPEC_UNLIMITED &&
		    (stream_is_behind(&s->out) || stream_is_behind(&s->err));
	struct pollfd p[POLL_COUNT] = {
		[POLL_STREAM] = poll_call(held ? NULL : s->stream),
		[POLL_OUT] = poll_sink(&s->out),
		[POLL_ERR] = poll_sink(&s->err),
		[POLL_SIGNAL] = {s->o->cancel_fd, POLLIN, 0},
		[POLL_INPUT] = poll_call(s->input),
		[POLL_CANCEL] = poll_call(s->cancel),
	};
	int n;

	if (wants_input(s) && (s->input_ended || s->first_sent < s->first_size)) {
		if (begin_input(s, e) < 0)
			return -1;
		p[POLL_INPUT] = poll_call(s->input);
	} else if (wants_input(s)) {
		p[POLL_INPUT] = (struct pollfd){0, POLLIN, 0};
	}
	n = poll(p, POLL_COUNT, held ? HELD_MS : -1);
	if (n < 0)
		return errno == EINTR ? 0 : err_set(e, errno, "wait for the service");
	serve_ours(s, p);
	if (s->abandoned)
		return 1;
	if (p[POLL_INPUT].revents && s->input)
		pump_input(s);
	else if (p[POLL_INPUT].revents && wants_input(s) && begin_input(s, e) < 0)
		return -1;
	return p[POLL_STREAM].revents || n == 0 ? call_pump(s->stream, e) : 0;
}

/* The connection is gone, or tells nonsense: whatever became of the run, it is not told here. */
static int lost(const struct shot *s, struct err *e)
{
	const struct service *v = s->o->service;
	struct err why = *e;

	if (!s->id[0])
		return err_set(
			e, 0,
			"the service at %.200s was lost before it had told that the run began "
			"(%.200s); it may have run: GET /v1/runs lists it; it is not run again",
			v->name, why.text);
	return err_set(
		e, 0,
		"the service at %.200s was lost during %s (%.150s); it is not run again; its "
		"result: curl %s%.200s%s/v1/runs/%s",
		v->name, s->id, why.text,
		v->local ? "--unix-socket "
			 : "-H "
			   "\"Authorization: Bearer $CLOCHE_API_KEY\" http://",
		v->local ? v->name : v->host, v->local ? " http://localhost" : "", s->id);
}

static int refused(const struct shot *s, struct err *e)
{
	const struct spec *spec = s->o->spec;
	int status = call_status(s->stream);

	err_prefix(e, status < 500 ? "refused by the service at %.200s" : "the service at %.200s",
		   s->o->service->name);
	return status == 413 || (status < 429 &&
				 (spec->volume_count || spec->venv || spec->best_effort))
		       ? oneshot_hint(e)
		       : -1;
}

/* Until there is a result, or none will come. */
static int follow(struct shot *s, struct err *e)
{
	int r = 0;

	while (r == 0)
		r = turn(s, e);
	if (s->result && !(r < 0 && !json_is_object(s->result)))
		return 0; /* what came behind it changes nothing */
	if (s->abandoned)
		return ONESHOT_CANCELLED;
	if (r > 0)
		err_set(e, 0, "its answer ends without a result");
	if (s->stream && call_status(s->stream) && call_status(s->stream) / 100 != 2)
		return refused(s, e);
	return lost(s, e);
}

static int post(struct shot *s, const char *text, const int *fds, size_t fd_count, struct err *e)
{
	const struct request q = {.method = "POST",
				  .target = "/v1/runs?stream",
				  .type = "application/json",
				  .body = text,
				  .body_size = strlen(text),
				  .fds = fds,
				  .fd_count = fd_count,
				  .sink = take_lines,
				  .sink_context = s};

	s->stream = call_new(s->o->service, &q, e);
	return s->stream ? follow(s, e) : -1;
}

/* What came as events, put where the result has it. */
static int put_output(struct shot *s, struct result *r, struct err *e)
{
	static const char *const keys[] = {"stdout", "stderr", "encoding", "output"};
	json_t *counts = json_object_get(s->result, "output");
	_cleanup_json_ json_t *made = NULL;
	int failed = 0;

	r->out = s->out_kept;
	r->err = s->err_kept;
	r->out.bytes = (uint64_t)json_integer_value(
		json_object_get(json_object_get(counts, "stdout"), "bytes"));
	r->err.bytes = (uint64_t)json_integer_value(
		json_object_get(json_object_get(counts, "stderr"), "bytes"));
	if (!s->o->keep)
		return 0;
	made = oneshot_plain(r);
	for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
		failed |= json_object_set(s->result, keys[i], json_object_get(made, keys[i]));
	return failed < 0 ? err_set(e, ENOMEM, "keep the output") : 0;
}

static int put_artifacts(json_t *list, struct result *r, struct err *e)
{
	json_t *row;
	size_t i;

	if (json_array_size(list) == 0)
		return 0;
	r->artifacts = calloc(json_array_size(list), sizeof *r->artifacts);
	if (!r->artifacts)
		return err_set(e, ENOMEM, "keep the result");
	json_array_foreach(list, i, row) {
		r->artifacts[r->artifact_count++] = (struct artifact){
			.path = (char *)(uintptr_t)text_of(row, "path"),
			.skipped = json_string_value(json_object_get(row, "skipped"))};
	}
	return 0;
}

static int conclude(struct shot *s, struct result *r, struct err *e)
{
	bool whole = true;

	if (!s->wants_cancel) {
		stream_flush(&s->out, s->o->cancel_fd);
		stream_flush(&s->err, s->o->cancel_fd);
	}
	if (s->o->spec->out_dir && s->id[0])
		whole = oneshot_artifacts(s->o, s->id, s->result);
	if (!result_end(s->result, r))
		return err_set(e, 0, "the service tells no result");
	r->artifacts_failed |= !whole;
	return put_output(s, r, e) < 0
		       ? -1
		       : put_artifacts(json_object_get(s->result, "artifacts"), r, e);
}

static int run(struct shot *s, struct err *e)
{
	int fds[CALL_FDS], r = -1;
	size_t fd_count = 0;
	_cleanup_json_ json_t *body = oneshot_body(s->o, fds, &fd_count, e);
	_cleanup_free_ char *text = NULL;

	if (body && set_input(s, body, e) == 0) {
		text = json_dumps(body, JSON_COMPACT);
		json_decref(TAKE_PTR(body)); /* it may be large */
		r = text ? post(s, text, fds, fd_count, e) : err_set(e, ENOMEM, "make a request");
	}
	while (fd_count > 0)
		fd_close(&fds[--fd_count]);
	return r;
}

int oneshot_run(const struct oneshot *o, struct result *ret, json_t **ret_json, struct err *e)
{
	struct shot s = {.o = o};
	int r;

	*ret = (struct result){0};
	stream_init(&s.out, -1, o->keep ? -1 : 1, !o->raw && isatty(1), UINT64_MAX, &s.out_kept);
	stream_init(&s.err, -1, o->keep ? -1 : 2, !o->raw && isatty(2), UINT64_MAX, &s.err_kept);
	r = run(&s, e);
	if (r == 0)
		r = conclude(&s, ret, e);
	if (r == 0 && s.input_error.text[0]) {
		err_prefix(&s.input_error, "stdin did not reach the command");
		fail(0, &s.input_error);
	}
	if (r == 0)
		*ret_json = json_incref(s.result);
	ret->out.data = ret->err.data = NULL;
	call_drop(s.stream);
	call_drop(s.input);
	call_drop(s.cancel);
	lines_done(&s.lines);
	free(s.out_kept.data);
	free(s.err_kept.data);
	free(s.first);
	json_decref(s.result);
	return r;
}
