/* SPDX-License-Identifier: Apache-2.0 */
/*
 * processes.c - commands in the background: started, listed, read from any offset, fed, signalled, forgotten.
 *
 * Init keeps them; their tag there is the id here ("prc_…"), so nothing of them is kept in the service,
 * and after a restart of it they are all still known.
 */
#include <arpa/inet.h>
#include <ctype.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/fd.h"
#include "service/ask.h"
#include "service/handlers.h"
#include "service/input.h"
#include "service/port_gate.h"

/* What is kept of each stream of a background process: the last bytes. */
#define KEEP_BYTES (256u << 10)
/* More rows than that come only from an init that is not ours any more. */
#define MOST_TOLD 65536u

/* ---- finding one ---- */

/* Every route with {sub} asks for the list first: the number behind the id is init's. */
struct lookup {
	struct command_record found;
	bool is_found;
	void (*then)(struct call *c);
	uint64_t from[2];
	uint32_t signal;
	struct resize_record resize;
	json_t *rows;
	json_t *ids; /* of commands by init's number, as text */
	char *text;  /* to be fed at the start */
	size_t text_size;
	bool text_ends;
	const struct asking *second; /* what is asked for once the ids are known */
	enum frame_type second_type;
	unsigned told; /* rows */
	bool noted;    /* its command is remembered, and it has not begun */
};

static bool is_process(const struct command_record *r)
{
	return strncmp(r->tag, "prc_", 4) == 0;
}

static struct lookup *lookup_of(struct call *c)
{
	return c->data;
}

static json_t *stream_json(const struct command_record *r, int i)
{
	return json_pack("{sI so}", "bytes", (json_int_t)r->bytes[i], "kept",
			 r->running && r->bytes[i] ? json_null()
						   : json_integer((json_int_t)r->ended.kept[i]));
}

static json_t *process_json(const struct call *c, const struct command_record *r)
{
	bool over = !r->running;

	return json_pack("{ss sI so sb so so so so s{so so}}", "id", r->tag, "pid",
			 (json_int_t)r->pid, "command", box_command(c->box, r->tag), "running",
			 (int)r->running, "started_at",
			 time_json(c->box->stored.created_ms + (int64_t)r->started_ms), "tty",
			 json_boolean(r->flags & START_PTY), "exit_code",
			 over && !r->ended.signaled ? json_integer(r->ended.status) : json_null(),
			 "signal",
			 over && r->ended.signaled ? json_integer(r->ended.status) : json_null(),
			 "output", "stdout", stream_json(r, 0), "stderr", stream_json(r, 1));
}

static const char *number_text(uint32_t number, char text[16])
{
	snprintf(text, 16, "%u", (unsigned)number);
	return text;
}

static bool on_listed(struct call *c, const struct frame *f, const unsigned char *payload)
{
	struct lookup *l = lookup_of(c);
	struct command_record r;

	if (f->type != FRAME_COMMAND || command_record_decode(payload, f->size, &r) < 0 ||
	    l->told++ == MOST_TOLD)
		return false;
	if (l->ids && is_process(&r))
		json_object_set_new(l->ids, number_text(r.number, (char[16]){0}),
				    json_string(r.tag));
	else if (l->rows && is_process(&r))
		json_array_append_new(l->rows, process_json(c, &r));
	if (strcmp(r.tag, c->sub) == 0) {
		l->found = r;
		l->is_found = true;
	}
	return true;
}

static void on_list_done(struct call *c)
{
	struct lookup *l = lookup_of(c);
	struct err e = {0};

	box_hang_up(c->box, TAKE_PTR(c->talk));
	if (l->then && !l->is_found) {
		problem_set(&e, PROBLEM_NOT_FOUND, "no such process: %s", c->sub);
		call_problem(c, &e);
	} else if (l->then) {
		l->then(c);
	} else {
		call_reply(c, 200, json_pack("{so}", "processes", TAKE_PTR(l->rows)));
	}
}

static const struct asking listing = {on_listed, on_list_done, NULL};

static void drop(struct call *c)
{
	/* What init has not begun it does not count either: a client could have as many noted as it likes. */
	if (lookup_of(c)->noted && c->box->stored.state != STATE_ENDED)
		box_forget_command(c->box, lookup_of(c)->found.tag);
	json_decref(lookup_of(c)->rows);
	json_decref(lookup_of(c)->ids);
	free(lookup_of(c)->text);
}

static struct lookup *look_up(struct call *c, void (*then)(struct call *c))
{
	struct lookup *l = calloc(1, sizeof *l);
	struct err e = {0};

	if (!l) {
		e.code = PROBLEM_UNAVAILABLE;
		call_problem(c, &e);
		return NULL;
	}
	l->then = then;
	c->data = l;
	c->release = drop;
	return l;
}

static void reply_found(struct call *c)
{
	call_reply(c, 200, process_json(c, &lookup_of(c)->found));
}

void processes_get(struct call *c)
{
	if (look_up(c, reply_found))
		ask(c, &listing, FRAME_LIST, NULL, 0, NULL, 0);
}

/* ---- listing ---- */

static json_t *any_bytes(const char *text)
{
	json_t *j = json_string(text);

	return j ? j : json_string_nocheck("?");
}

static bool on_ps(struct call *c, const struct frame *f, const unsigned char *payload)
{
	struct process_record r;
	const char *line;
	char state[2] = "";
	json_t *id;

	if (f->type != FRAME_PROCESS || process_record_decode(payload, f->size, &r, &line) < 0 ||
	    lookup_of(c)->told++ == MOST_TOLD)
		return false;
	state[0] = (char)r.state;
	id = json_object_get(lookup_of(c)->ids, number_text(r.number, (char[16]){0}));
	return json_array_append_new(
		       lookup_of(c)->rows,
		       json_pack("{sI sI sI ss sI sI sI so so}", "pid", (json_int_t)r.pid, "ppid",
				 (json_int_t)r.parent, "uid", (json_int_t)r.uid, "state", state,
				 "threads", (json_int_t)r.threads, "cpu_ms", (json_int_t)r.cpu_ms,
				 "rss_bytes", (json_int_t)r.rss_bytes, "command", any_bytes(line),
				 "process", id ? json_incref(id) : json_null())) == 0;
}

static const struct asking ps = {on_ps, on_list_done, NULL};

/* First which number is whose, then the processes. */
static void ids_are_known(struct call *c)
{
	box_hang_up(c->box, TAKE_PTR(c->talk));
	ask(c, lookup_of(c)->second, lookup_of(c)->second_type, NULL, 0, NULL, 0);
}

static const struct asking numbering = {on_listed, ids_are_known, NULL};

void processes_list(struct call *c)
{
	struct lookup *l = look_up(c, NULL);
	bool all = call_flag(c, "all");

	if (!l)
		return;
	l->rows = json_array();
	l->ids = all ? json_object() : NULL;
	l->second = &ps;
	l->second_type = FRAME_PS;
	ask(c, all ? &numbering : &listing, FRAME_LIST, NULL, 0, NULL, 0);
}

/* ---- ports ---- */

/* DIAL goes to the loopback addresses, which a server on all addresses answers too. */
static bool is_reachable(const struct listening_record *r)
{
	static const uint8_t four[16] = {127, 0, 0, 1}, six[16] = {[15] = 1}, any[16];

	return memcmp(r->address, any, sizeof any) == 0 ||
	       memcmp(r->address, r->family == 4 ? four : six, sizeof any) == 0;
}

static bool on_listening(struct call *c, const struct frame *f, const unsigned char *payload)
{
	struct lookup *l = lookup_of(c);
	struct listening_record r;
	char address[INET6_ADDRSTRLEN];
	const char *line;
	json_t *id;

	if (f->type != FRAME_LISTENING ||
	    listening_record_decode(payload, f->size, &r, &line) < 0 || l->told++ == MOST_TOLD)
		return false;
	inet_ntop(r.family == 4 ? AF_INET : AF_INET6, r.address, address, sizeof address);
	id = json_object_get(l->ids, number_text(r.number, (char[16]){0}));
	return json_array_append_new(
		       l->rows, json_pack("{sI ss sb so so so}", "port", (json_int_t)r.port,
					  "address", address, "reachable", (int)is_reachable(&r),
					  "pid", r.pid ? json_integer(r.pid) : json_null(),
					  "command", r.pid ? any_bytes(line) : json_null(),
					  "process", id ? json_incref(id) : json_null())) == 0;
}

static void on_ports_done(struct call *c)
{
	struct err e = {0};
	json_t *shares = port_shares_json(c, &e);

	if (!shares) {
		e.code = PROBLEM_UNAVAILABLE;
		call_problem(c, &e);
		return;
	}
	call_reply(c, 200,
		   json_pack("{so so}", "ports", TAKE_PTR(lookup_of(c)->rows), "shares", shares));
}

static const struct asking listeners = {on_listening, on_ports_done, NULL};

void ports_list(struct call *c)
{
	struct lookup *l = look_up(c, NULL);

	if (!l)
		return;
	l->rows = json_array();
	l->ids = json_object();
	l->second = &listeners;
	l->second_type = FRAME_PORTS;
	ask(c, &numbering, FRAME_LIST, NULL, 0, NULL, 0);
}

/* ---- starting ---- */

static void reply_started(struct call *c)
{
	call_reply(c, 201, process_json(c, &lookup_of(c)->found));
}

/* One that does not read its input is started all the same. */
static bool on_fed(struct call *c, const struct frame *f, const unsigned char *payload)
{
	(void)c;
	(void)payload;
	return f->type == FRAME_CREDIT;
}

static const struct asking starting_input = {on_fed, reply_started, NULL};

static void feed_text(struct call *c)
{
	struct lookup *l = lookup_of(c);

	box_hang_up(c->box, TAKE_PTR(c->talk));
	if (!ask(c, &starting_input, FRAME_INPUT, &l->found.number, sizeof l->found.number, NULL,
		 0))
		return;
	if (l->text_size)
		talk_send(c->talk, FRAME_DATA, l->text, l->text_size, NULL, 0);
	if (l->text_ends)
		talk_send(c->talk, FRAME_EOF, NULL, 0, NULL, 0);
	talk_send(c->talk, FRAME_FINISH, NULL, 0, NULL, 0);
}

static bool on_begun(struct call *c, const struct frame *f, const unsigned char *payload)
{
	struct lookup *l = lookup_of(c);
	struct begun_record begun;

	if (f->type != FRAME_BEGUN || begun_record_decode(payload, f->size, &begun) < 0)
		return false;
	l->found.number = begun.number;
	l->found.pid = begun.pid;
	l->found.running = 1;
	l->noted = false;
	audit(c->service, c->owner, c->session[0] ? c->session : NULL, "process.start",
	      l->found.tag, json_pack("{ss}", "sandbox", c->box->stored.id));
	if (l->text)
		feed_text(c);
	else
		reply_started(c);
	return true;
}

static void on_no_begin(struct call *c)
{
	struct err e = {0};

	problem_set(&e, PROBLEM_INTERNAL, "the process did not begin");
	call_problem(c, &e);
}

static const struct asking starting = {on_begun, on_no_begin, NULL};

void processes_create(struct call *c)
{
	struct lookup *l = look_up(c, NULL);
	_cleanup_free_ char *strings = NULL;
	struct start_record s;
	struct run as_run = {0};
	struct body body;
	struct err e = {0};
	size_t size = 0;
	int r;

	if (!l)
		return;
	r = body_read(&body, BODY_PROCESS, c->service, &c->box->spec, c->body, &e);
	if (r == 0 && body.input_size > STDIN_WINDOW)
		r = err_set(&e, 0,
			    "code and stdin: at most 65536 bytes; write the rest with …/stdin");
	if (r == 0 && body.tty && strcmp(c->box->spec.profile, "dev") != 0)
		r = err_set(&e, 0, "tty: needs a sandbox with \"profile\": \"dev\"");
	as_run.spec = body.spec;
	if (r == 0)
		r = run_start_record(&as_run, &s, &strings, &size, &e);
	if (r < 0) {
		body_done(&body);
		call_problem(c, &e);
		return;
	}
	make_object_id(l->found.tag, "prc_");
	memcpy(s.tag, l->found.tag, sizeof s.tag);
	s.flags = KEEP_TAIL | (body.tty ? START_PTY | START_STDIN : 0) |
		  (body.stdin_open || body.input ? START_STDIN : 0);
	s.limit_ms = body.spec.timeout_us >= SPEC_UNLIMITED - 1
			     ? 0
			     : (uint32_t)(body.spec.timeout_us / 1000);
	s.keep_bytes = body.has_max_output ? body.spec.max_output_bytes : KEEP_BYTES;
	s.rows = (uint16_t)body.rows;
	s.columns = (uint16_t)body.columns;
	l->found.flags = s.flags;
	l->found.started_ms = (uint64_t)(wall_ms() - c->box->stored.created_ms);
	l->text = TAKE_PTR(body.input);
	l->text_size = body.input_size;
	l->text_ends = !body.stdin_open && !body.tty;
	box_remember_command(c->box, l->found.tag, &body.spec.command);
	l->noted = true;
	if (service_record(c->service, &e) < 0) {
		body_done(&body);
		call_problem(c, &e);
		return;
	}
	ask(c, &starting, FRAME_START, &s, sizeof s, strings, size);
	body_done(&body);
}

/* ---- output ---- */

static bool on_output(struct call *c, const struct frame *f, const unsigned char *payload)
{
	struct lookup *l = lookup_of(c);
	struct offset_record offset;
	struct ended_record ended;
	json_t *j;

	switch (f->type) {
	case FRAME_OFFSET:
		if (offset_record_decode(payload, f->size, &offset) < 0)
			return false;
		l->from[offset.stream - 1] = offset.offset;
		return true;
	case FRAME_DATA:
		j = json_pack("{ss sI}", "type", f->stream == 1 ? "stdout" : "stderr", "offset",
			      (json_int_t)l->from[f->stream - 1]);
		l->from[f->stream - 1] += f->size;
		if (!j || json_set_bytes(j, payload, f->size) < 0)
			return false;
		if (!reply_line(c->x, j))
			talk_pause(c->talk);
		return true;
	case FRAME_EOF:
		return true;
	case FRAME_ENDED:
		if (ended_record_decode(payload, f->size, &ended) < 0)
			return false;
		reply_line(c->x,
			   json_pack("{ss so so sb}", "type", "exited", "exit_code",
				     ended.signaled ? json_null() : json_integer(ended.status),
				     "signal",
				     ended.signaled ? json_integer(ended.status) : json_null(),
				     "timed_out", (int)ended.timed_out));
		break;
	default:
		return false;
	}
	{
		struct exchange *x = c->x;

		c->service->metrics.requests[2]++;
		call_free(c);
		exchange_end(x, true);
	}
	return true;
}

static void on_output_done(struct call *c)
{
	struct exchange *x = c->x;

	c->service->metrics.requests[2]++;
	call_free(c);
	exchange_end(x, true);
}

static const struct asking reading = {on_output, on_output_done, NULL};

static void on_reader_room(struct exchange *x)
{
	struct call *c = exchange_data(x);

	if (c->talk)
		talk_resume(c->talk);
}

static void attach(struct call *c)
{
	struct lookup *l = lookup_of(c);
	struct attach_record a = {.number = l->found.number,
				  .follow = call_flag(c, "follow"),
				  .from = {l->from[0], l->from[1]}};

	c->ops.on_room = on_reader_room;
	if (!ask(c, &reading, FRAME_ATTACH, &a, sizeof a, NULL, 0))
		return;
	talk_limit(c->talk, 0); /* a process may be silent for as long as it lives */
	reply_lines_begin(c->x);
}

void processes_output(struct call *c)
{
	struct lookup *l = look_up(c, attach);
	struct err e = {0};

	if (!l)
		return;
	if (call_number(c, "stdout", 0, INT64_MAX, &l->from[0], &e) < 0 ||
	    call_number(c, "stderr", 0, INT64_MAX, &l->from[1], &e) < 0) {
		call_problem(c, &e);
		return;
	}
	ask(c, &listing, FRAME_LIST, NULL, 0, NULL, 0);
}

/* ---- stdin ---- */

static void feed_process(struct call *c)
{
	input_feed(c, lookup_of(c)->found.number);
}

void processes_stdin(struct call *c)
{
	if (!look_up(c, feed_process))
		return;
	exchange_pause(c->x);
	ask(c, &listing, FRAME_LIST, NULL, 0, NULL, 0);
}

/* ---- small requests ---- */

static void on_done(struct call *c)
{
	call_reply(c, 204, NULL);
}

static void on_forgotten(struct call *c)
{
	box_forget_command(c->box, c->sub);
	call_reply(c, 204, NULL);
}

static const struct asking forgetting = {NULL, on_forgotten, NULL};
static const struct asking plain = {NULL, on_done, NULL};

static const struct {
	const char *name;
	uint32_t number;
} signals[] = {
	{"HUP", SIGHUP},     {"INT", SIGINT},   {"QUIT", SIGQUIT}, {"KILL", SIGKILL},
	{"USR1", SIGUSR1},   {"USR2", SIGUSR2}, {"PIPE", SIGPIPE}, {"ALRM", SIGALRM},
	{"TERM", SIGTERM},   {"CONT", SIGCONT}, {"STOP", SIGSTOP}, {"TSTP", SIGTSTP},
	{"WINCH", SIGWINCH},
};

static int read_signal(const json_t *body, uint32_t *ret, struct err *e)
{
	json_t *v = json_object_get(body, "signal");
	const char *name = json_is_string(v) ? json_string_value(v) : NULL;

	if (json_object_size(body) == 1 && json_is_integer(v) && json_integer_value(v) >= 1 &&
	    json_integer_value(v) <= 64) {
		*ret = (uint32_t)json_integer_value(v);
		return 0;
	}
	if (name && strncmp(name, "SIG", 3) == 0)
		name += 3;
	for (size_t i = 0; json_object_size(body) == 1 && name && i < ARRAY_SIZE(signals); i++)
		if (strcmp(signals[i].name, name) == 0) {
			*ret = signals[i].number;
			return 0;
		}
	return err_set(e, 0, "give {\"signal\": \"TERM\"}, or a number from 1 to 64");
}

static void send_signal(struct call *c)
{
	struct lookup *l = lookup_of(c);
	struct kill_record k = {l->found.number, l->signal, 1};

	ask(c, &plain, FRAME_KILL, &k, sizeof k, NULL, 0);
}

void processes_signal(struct call *c)
{
	struct lookup *l = look_up(c, send_signal);
	struct err e = {0};

	if (!l)
		return;
	if (read_signal(c->body, &l->signal, &e) < 0)
		call_problem(c, &e);
	else
		ask(c, &listing, FRAME_LIST, NULL, 0, NULL, 0);
}

static void send_resize(struct call *c)
{
	struct lookup *l = lookup_of(c);

	l->resize.number = l->found.number;
	ask(c, &plain, FRAME_RESIZE, &l->resize, sizeof l->resize, NULL, 0);
}

void processes_resize(struct call *c)
{
	struct lookup *l = look_up(c, send_resize);
	json_t *rows = json_object_get(c->body, "rows"),
	       *columns = json_object_get(c->body, "columns");
	struct err e = {0};

	if (!l)
		return;
	if (json_object_size(c->body) != 2 || !json_is_integer(rows) || !json_is_integer(columns) ||
	    json_integer_value(rows) < 1 || json_integer_value(rows) > 4096 ||
	    json_integer_value(columns) < 1 || json_integer_value(columns) > 4096) {
		err_set(&e, 0, "give rows and columns, numbers from 1 to 4096");
		call_problem(c, &e);
		return;
	}
	l->resize.rows = (uint16_t)json_integer_value(rows);
	l->resize.columns = (uint16_t)json_integer_value(columns);
	ask(c, &listing, FRAME_LIST, NULL, 0, NULL, 0);
}

/* ---- forgetting: a running one is killed first, and its end waited for ---- */

static void forget(struct call *c)
{
	struct lookup *l = lookup_of(c);

	if (c->talk)
		box_hang_up(c->box, TAKE_PTR(c->talk));
	ask(c, &forgetting, FRAME_FORGET, &l->found.number, sizeof l->found.number, NULL, 0);
}

static bool on_last(struct call *c, const struct frame *f, const unsigned char *payload)
{
	(void)payload;
	if (f->type == FRAME_ENDED)
		forget(c);
	return f->type == FRAME_ENDED || f->type == FRAME_OFFSET || f->type == FRAME_DATA ||
	       f->type == FRAME_EOF;
}

static const struct asking dying = {on_last, forget, NULL};

static void wait_for_end(struct call *c)
{
	struct lookup *l = lookup_of(c);
	struct attach_record a = {
		.number = l->found.number, .follow = 1, .from = {INT64_MAX, INT64_MAX}};

	box_hang_up(c->box, TAKE_PTR(c->talk));
	ask(c, &dying, FRAME_ATTACH, &a, sizeof a, NULL, 0);
}

static const struct asking killing = {NULL, wait_for_end, NULL};

static void end_process(struct call *c)
{
	struct lookup *l = lookup_of(c);
	struct kill_record k = {l->found.number, SIGKILL, 1};

	if (l->found.running)
		ask(c, &killing, FRAME_KILL, &k, sizeof k, NULL, 0);
	else
		forget(c);
}

void processes_delete(struct call *c)
{
	if (look_up(c, end_process))
		ask(c, &listing, FRAME_LIST, NULL, 0, NULL, 0);
}
