/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attach.c - one poll loop: the output stream, one request with input at a time, and signals.
 *
 * Input goes in requests of its own, one after the other, because a request that stays open without a
 * byte is hung up on; while one is under way, stdin is not read, so a sandbox that does not read slows
 * its writer. An output stream that is cut (a reader that slept too long, a service that was restarted) is
 * taken up again where it was: init keeps what was not read, as far as its ring goes.
 */
#include "cli/attach.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <unistd.h>

#include "base/end_signals.h"
#include "base/json.h"

enum { INPUT_PIECE = 64 << 10, MAX_RETRIES = 3 };

struct attached {
	struct remote *r;
	struct attach_options how;
	char base[TARGET_SIZE]; /* .../processes/ID */
	struct output output;
	struct lines lines;
	struct call *output_call, *input_call;
	char output_target[TARGET_SIZE + 80], input_target[TARGET_SIZE + 80];
	int signals;
	bool input_open;
	unsigned retries;
	uint64_t bytes_before; /* shown when the stream was last taken up */
};

static struct termios terminal_before;
static bool terminal_is_raw;

static void restore_terminal(void)
{
	if (terminal_is_raw)
		tcsetattr(0, TCSADRAIN, &terminal_before);
	terminal_is_raw = false;
}

static void make_terminal_raw(void)
{
	struct termios raw;

	if (!isatty(0) || tcgetattr(0, &terminal_before) < 0)
		return;
	raw = terminal_before;
	cfmakeraw(&raw);
	atexit(restore_terminal);
	terminal_is_raw = tcsetattr(0, TCSADRAIN, &raw) == 0;
}

static void window_size(json_t *body)
{
	struct winsize w;

	if (ioctl(0, TIOCGWINSZ, &w) < 0 && ioctl(1, TIOCGWINSZ, &w) < 0)
		return;
	if (w.ws_row > 0 && w.ws_col > 0) {
		json_object_set_new(body, "rows", json_integer(w.ws_row));
		json_object_set_new(body, "columns", json_integer(w.ws_col));
	}
}

int process_status(json_t *process)
{
	json_t *code = json_object_get(process, "exit_code");
	json_t *sig = json_object_get(process, "signal");

	if (json_is_integer(sig) && json_integer_value(sig) > 0)
		return 128 + ((int)json_integer_value(sig) & 127);
	return json_is_integer(code) ? (int)json_integer_value(code) & 255 : -1;
}

void output_init(struct output *o, bool raw, bool offsets)
{
	*o = (struct output){.exit_status = -1, .offsets = offsets};
	printer_init(&o->out, 1, raw);
	printer_init(&o->err, 2, raw);
}

/* Where this piece lies in its stream. */
static int check_offset(struct output *o, int stream, json_t *event, size_t size, struct err *e)
{
	json_t *offset = json_object_get(event, "offset");
	uint64_t at = (uint64_t)json_integer_value(offset);

	if (!o->offsets)
		return 0;
	if (!json_is_integer(offset) || json_integer_value(offset) < 0 || at < o->next[stream])
		return err_set(e, 0, "an event of the service is out of order");
	o->lost[stream] += at - o->next[stream];
	o->next[stream] = at + size;
	return 0;
}

int output_event(void *context, json_t *event, struct err *e)
{
	const char *type = text_of(event, "type");
	struct output *o = context;
	_cleanup_free_ char *data = NULL;
	bool is_out = strcmp(type, "stdout") == 0;
	size_t size;

	if (o->exited)
		return err_set(e, 0, "the service tells more after the end");
	if (strcmp(type, "exited") == 0) {
		json_t *result = json_object_get(event, "result");

		o->exited = true;
		o->result = json_is_object(result) ? json_incref(result) : NULL;
		o->exit_status = process_status(event);
		return 0;
	}
	if (!is_out && strcmp(type, "stderr") != 0)
		return 0;
	if (event_data(event, &data, &size, e) < 0 || check_offset(o, !is_out, event, size, e) < 0)
		return -1;
	printer_put(is_out ? &o->out : &o->err, data, size);
	o->bytes[!is_out] += size;
	return 0;
}

void output_done(struct output *o)
{
	printer_end(&o->out);
	printer_end(&o->err);
	json_decref(o->result);
	o->result = NULL;
}

static int take_lines(void *context, const char *data, size_t size, struct err *e)
{
	struct attached *a = context;

	return lines_feed(&a->lines, data, size, output_event, &a->output, e);
}

static int begin_output(struct attached *a, struct err *e)
{
	const struct request q = {
		.method = "GET", .target = a->output_target, .sink = take_lines, .sink_context = a};

	lines_done(&a->lines);
	snprintf(a->output_target, sizeof a->output_target,
		 "%s/output?stdout=%llu&stderr=%llu&follow", a->base,
		 (unsigned long long)a->output.next[0], (unsigned long long)a->output.next[1]);
	a->bytes_before = a->output.bytes[0] + a->output.bytes[1];
	a->output_call = call_new(&a->r->service, &q, e);
	return a->output_call ? 0 : -1;
}

/* Cut: take it up again, unless that has not brought one byte for some times. */
static int resume_output(struct attached *a, struct err *e)
{
	int status = call_status(a->output_call);

	call_drop(TAKE_PTR(a->output_call));
	a->retries = a->output.bytes[0] + a->output.bytes[1] > a->bytes_before ? 0 : a->retries + 1;
	if ((status && status / 100 != 2) || a->retries > MAX_RETRIES)
		return -1;
	return begin_output(a, e);
}

static int begin_input(struct attached *a, const char *data, size_t size, struct err *e)
{
	const struct request q = {.method = "POST",
				  .target = a->input_target,
				  .type = "application/octet-stream",
				  .body = data,
				  .body_size = size};

	snprintf(a->input_target, sizeof a->input_target, "%s/stdin%s", a->base,
		 size ? "" : "?eof");
	a->input_open = size > 0;
	a->input_call = call_new(&a->r->service, &q, e);
	return a->input_call ? 0 : -1;
}

/* stdin is readable. An error (a terminal of a job in the background) is its end. */
static int read_input(struct attached *a, struct err *e)
{
	char data[INPUT_PIECE];
	ssize_t n = read(0, data, sizeof data);

	if (n < 0 && (errno == EINTR || errno == EAGAIN))
		return 0;
	return begin_input(a, data, n > 0 ? (size_t)n : 0, e);
}

static bool has_ended(struct attached *a)
{
	_cleanup_answer_ struct answer answer = {0};
	struct err ignored;

	return remote_ask(a->r, "GET", a->base, NULL, &answer, &ignored) == 0 &&
	       json_is_false(json_object_get(answer.json, "running"));
}

static int pump_input(struct attached *a, struct err *e)
{
	int r = call_pump(a->input_call, e), status = call_status(a->input_call);

	if (r == 0)
		return 0;
	call_drop(TAKE_PTR(a->input_call));
	/* It does not read any more, or has ended, perhaps just now: its output will say so. */
	if (r < 0 && status && (status == 404 || status == 409 || status == 410 || has_ended(a))) {
		a->input_open = false;
		return 0;
	}
	return r < 0 ? -1 : 0;
}

static void forget(struct attached *a)
{
	_cleanup_answer_ struct answer answer = {0};
	struct err ignored;

	if (remote_ask(a->r, "DELETE", a->base, NULL, &answer, &ignored) < 0)
		return;
}

/* A new window size is passed on; other signals end it: ECANCELED. */
static int take_signal(struct attached *a, struct err *e)
{
	_cleanup_answer_ struct answer answer = {0};
	_cleanup_json_ json_t *size = NULL;
	struct signalfd_siginfo info;
	char target[TARGET_SIZE + 80];
	struct err ignored;

	if (read(a->signals, &info, sizeof info) != sizeof info)
		return 0;
	if (info.ssi_signo != SIGWINCH)
		return err_set(e, ECANCELED, "interrupted");
	size = json_object();
	window_size(size);
	snprintf(target, sizeof target, "%s/resize", a->base);
	if (json_object_size(size) && remote_ask(a->r, "POST", target, size, &answer, &ignored) < 0)
		return 0; /* it may have ended by now */
	return 0;
}

/* One turn. 1: the stream has ended, 0: go on, -1: e. */
static int turn(struct attached *a, struct err *e)
{
	bool read_stdin = a->input_open && !a->input_call;
	struct pollfd p[3] = {{call_fd(a->output_call), call_events(a->output_call), 0},
			      {a->signals, POLLIN, 0},
			      {read_stdin ? 0 : -1, POLLIN, 0}};
	int r;

	if (a->input_call) {
		p[2].fd = call_fd(a->input_call);
		p[2].events = call_events(a->input_call);
	}
	if (poll(p, 3, -1) < 0)
		return errno == EINTR ? 0 : err_set(e, errno, "wait");
	if (p[1].revents && take_signal(a, e) < 0)
		return -1;
	if (p[2].revents && (a->input_call ? pump_input(a, e) : read_input(a, e)) < 0)
		return -1;
	if (!p[0].revents)
		return 0;
	r = call_pump(a->output_call, e);
	if (a->output.exited)
		return 1;
	return r < 0 ? resume_output(a, e) : r;
}

/* How it ended, from the last event or from the process itself. */
static int ended_status(struct attached *a, struct err *e)
{
	_cleanup_answer_ struct answer answer = {0};

	if (a->output.result)
		return result_status(a->output.result);
	if (a->output.exit_status >= 0)
		return a->output.exit_status;
	if (remote_ask(a->r, "GET", a->base, NULL, &answer, e) < 0)
		return -1;
	return process_status(answer.json) >= 0
		       ? process_status(answer.json)
		       : err_set(e, 0, "the service does not say how it ended");
}

static int start(struct attached *a, const char *sandbox, json_t *body, struct err *e)
{
	_cleanup_answer_ struct answer answer = {0};
	const char *id;

	if (a->how.input)
		json_object_set_new(body, "stdin", json_true());
	if (a->how.terminal) {
		json_object_set_new(body, "tty", json_true());
		window_size(body);
	}
	if (sandbox_target(a->base, sandbox, e, "/processes") < 0 ||
	    remote_ask(a->r, "POST", a->base, body, &answer, e) < 0)
		return -1;
	id = text_of(answer.json, "id");
	if (strcmp(id, "-") == 0 || !is_id(id))
		return err_set(e, 0, "the service's answer has no id of a process");
	return sandbox_target(a->base, sandbox, e, "/processes/%s", id);
}

static void remark_lost(const struct attached *a)
{
	for (int i = 0; i < 2; i++)
		if (a->output.lost[i] && !a->how.quiet)
			fprintf(stderr,
				"cloche: %llu bytes of %s were written faster than read: lost\n",
				(unsigned long long)a->output.lost[i], i ? "stderr" : "stdout");
}

static int run(struct attached *a, struct err *e)
{
	int r;

	a->signals = end_signals_watch(a->how.terminal ? SIGWINCH : 0, NULL, e);
	if (a->signals < 0)
		return -1;
	signal(SIGTTIN, SIG_IGN);
	if (a->how.terminal && a->how.input)
		make_terminal_raw();
	r = begin_output(a, e);
	while (r == 0)
		r = turn(a, e);
	restore_terminal();
	return r < 0 ? -1 : 0;
}

int attach(struct remote *r, const char *sandbox, json_t *body, const struct attach_options *how)
{
	struct attached *a = calloc(1, sizeof *a);
	struct err e = {0};
	int status;

	if (!a || (a->r = r, a->how = *how, a->signals = -1, start(a, sandbox, body, &e)) < 0) {
		if (!a)
			err_set(&e, ENOMEM, "attach");
		free(a);
		return fail(EXIT_CLOCHE, &e);
	}
	a->input_open = how->input;
	output_init(&a->output, how->raw || how->terminal, true);
	status = run(a, &e);
	if (status == 0)
		status = ended_status(a, &e);
	call_drop(a->input_call);
	call_drop(a->output_call);
	lines_done(&a->lines);
	forget(a);
	output_done(&a->output);
	remark_lost(a);
	if (status < 0)
		status = e.errnum == ECANCELED ? 130 : fail(EXIT_CLOCHE, &e);
	fd_close(&a->signals);
	free(a);
	return status;
}
