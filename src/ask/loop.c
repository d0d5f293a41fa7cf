/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loop.c - the loop and its record.
 *
 * What a call came to goes back whatever it was: a traceback is evidence, and what a model got wrong (a tool that does
 * not exist, arguments that are none) is told to it as the call's result. Nothing is run twice. What ends the loop is
 * one row of `ends`.
 */
#include "ask/loop.h"

#include <stdio.h>
#include <string.h>

#include "agent/text.h"
#include "agent/tool.h"
#include "ask/approve.h"
#include "ask/complete.h"
#include "ask/show.h"
#include "ask/tools.h"
#include "base/fd.h"
#include "base/json.h"
#include "sandbox/model.h"

/* The provider gets all of it with every step. */
enum { CONVERSATION_BYTES = 12 << 20 };

enum end {
	END_ANSWERED,
	END_MAX_STEPS,
	END_MAX_TOKENS,
	END_TIMEOUT,
	END_REFUSED,
	END_FAILED,
	END_TOOLS_LOST,
	END_CANCELLED,
};

static const struct {
	const char *name;
	enum code code;
	int status;
} ends[] = {
	[END_ANSWERED] = {"answered", CODE_NONE, 0},
	[END_MAX_STEPS] = {"max_steps", CODE_MODEL_COMPLETION_FAILED, 125},
	[END_MAX_TOKENS] = {"max_tokens", CODE_MODEL_COMPLETION_FAILED, 125},
	[END_TIMEOUT] = {"timeout", CODE_MODEL_COMPLETION_FAILED, 125},
	[END_REFUSED] = {"refused", CODE_MODEL_COMPLETION_FAILED, 125},
	[END_FAILED] = {"failed", CODE_MODEL_COMPLETION_FAILED, 125},
	[END_TOOLS_LOST] = {"tools_lost", CODE_SANDBOX_LOST, 125},
	[END_CANCELLED] = {"cancelled", CODE_SANDBOX_KILLED, 130},
};

struct loop {
	struct ask_settings *s;
	struct show show;
	struct tools tools;
	struct asking asking;
	int signals;
	uint64_t began_us;
	json_t *steps;
	char *answer;             /* or NULL */
	size_t answer_size, uses; /* calls in all */
	long long input_tokens, output_tokens;
	enum end end;
	bool retryable;
	struct err e;
};

static bool end_with(struct loop *l, enum end end)
{
	l->end = end;
	return false;
}

/* ---- one step's calls ---- */

static bool is_offered(const struct loop *l, const char *name)
{
	for (size_t i = 0; i < json_array_size(l->s->tools); i++)
		if (strcmp(json_string_value(json_array_get(l->s->tools, i)), name) == 0)
			return true;
	return false;
}

/* What the model got wrong is told to it. */
static void check_use(const struct loop *l, struct use *u, size_t number)
{
	struct err e;

	if (number >= CALLS_AT_ONCE)
		err_set(&e, 0, "At most %d calls at the same time; make it again.", CALLS_AT_ONCE);
	else if (!is_offered(l, u->call->name))
		err_set(&e, 0, "no such tool: %.60s", u->call->name);
	else
		u->arguments = call_arguments(u->call, &e);
	u->approval = "not needed";
	if (!u->arguments)
		use_end(u, e.text, true);
}

static json_t *use_record(const struct use *u)
{
	const char *raw = u->call->arguments.data ? u->call->arguments.data : "";

	return json_pack("{ss so ss sb ss* sO? sf}", "tool", u->call->name, "arguments",
			 u->arguments ? json_incref(u->arguments)
				      : json_stringn(raw, u->call->arguments.size),
			 "approval", u->approval, "is_error", u->is_error, "text", u->text,
			 "result", u->structured, "wall_ms", (double)u->took_us / 1000);
}

static void on_end(void *context, const struct use *u)
{
	struct loop *l = context;

	show_outcome(&l->show, u, l->uses + (size_t)(u - l->tools.uses) + 1);
}

static bool approve_all(struct loop *l, struct use *uses, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		show_call(&l->show, &uses[i], l->uses + i + 1);
		if (!uses[i].text &&
		    approve(l->s, &l->show, &uses[i], l->signals, l->asking.deadline_us) < 0) {
			err_set(&l->e, 0, "interrupted");
			return end_with(l, now_us() >= l->asking.deadline_us ? END_TIMEOUT
									     : END_CANCELLED);
		}
		if (uses[i].text)
			show_outcome(&l->show, &uses[i], l->uses + i + 1);
	}
	return true;
}

static bool run_uses(struct loop *l, struct use *uses, size_t count)
{
	static const enum end of[] = {[TOOLS_LOST] = END_TOOLS_LOST,
				      [TOOLS_CANCELLED] = END_CANCELLED,
				      [TOOLS_DEADLINE] = END_TIMEOUT};
	enum tools_end end =
		tools_run(&l->tools, uses, count, l->signals, l->asking.deadline_us, &l->e);

	return end == TOOLS_DONE || end_with(l, of[end]);
}

static bool tell(struct loop *l, const struct use *uses, size_t count)
{
	struct outcome outcomes[ANSWER_CALLS];

	for (size_t i = 0; i < count; i++)
		outcomes[i] = (struct outcome){uses[i].call, uses[i].text ? uses[i].text : "",
					       uses[i].is_error};
	if (l->s->provider->told(l->asking.messages, outcomes, count) == 0)
		return true;
	err_set(&l->e, ENOMEM, "keep what a call came to");
	return end_with(l, END_FAILED);
}

/* Make the calls; false: that was the end. */
static bool make_calls(struct loop *l, const struct answer *a, json_t *record)
{
	struct use uses[ANSWER_CALLS] = {{0}};
	bool go_on;

	for (size_t i = 0; i < a->call_count; i++) {
		uses[i].call = &a->calls[i];
		check_use(l, &uses[i], i);
	}
	go_on = approve_all(l, uses, a->call_count) && run_uses(l, uses, a->call_count) &&
		tell(l, uses, a->call_count);
	for (size_t i = 0; i < a->call_count; i++) {
		json_array_append_new(record, use_record(&uses[i]));
		use_done(&uses[i]);
	}
	l->uses += a->call_count;
	return go_on;
}

/* ---- steps ---- */

/* An answer that is none: what came instead. */
static bool take_silence(struct loop *l, const struct answer *a)
{
	json_t *said = l->s->provider->said(a);
	_cleanup_free_ char *text = said ? json_dumps(said, JSON_COMPACT) : NULL;
	int n = asprintf(&l->answer, "[no text in the final message] %s, %s", a->stop_word,
			 text ? text : "");

	json_decref(said);
	l->answer_size = n < 0 ? 0 : (size_t)n;
	if (n < 0)
		l->answer = NULL;
	else
		show_text(&l->show, l->answer, l->answer_size);
	return end_with(l, END_ANSWERED);
}

static bool take_answer(struct loop *l, const struct answer *a)
{
	if (a->text.size > 0) {
		l->answer = strndup(a->text.data, a->text.size);
		l->answer_size = l->answer ? strlen(l->answer) : 0;
	}
	if (a->stop == STOP_LENGTH) {
		err_set(&l->e, 0, "the answer is cut at %lld tokens (--max-tokens)",
			l->s->max_tokens);
		return end_with(l, END_MAX_TOKENS);
	}
	if (a->stop == STOP_REFUSED || (a->stop == STOP_OTHER && a->text.size == 0)) {
		err_set(&l->e, 0, "model %.80s gives no answer: %.47s", l->s->model, a->stop_word);
		return end_with(l, END_REFUSED);
	}
	return a->text.size > 0 ? end_with(l, END_ANSWERED) : take_silence(l, a);
}

static json_t *begin_record(struct loop *l, const struct answer *a)
{
	json_t *record = json_array();

	l->input_tokens += a->input_tokens;
	l->output_tokens += a->output_tokens;
	json_array_append_new(
		l->steps,
		json_pack("{so ss* ss s{sI sI} sO}", "text",
			  json_stringn(a->text.data ? a->text.data : "", a->text.size), "stop",
			  stop_names[a->stop], "stop_reason", a->stop_word, "usage", "input_tokens",
			  (json_int_t)a->input_tokens, "output_tokens",
			  (json_int_t)a->output_tokens, "calls", record));
	return record;
}

static bool is_too_long(struct loop *l)
{
	size_t size = json_dumpb(l->asking.messages, NULL, 0, JSON_COMPACT);

	if (size <= CONVERSATION_BYTES)
		return false;
	err_set(&l->e, 0, "the conversation is longer than %d bytes", CONVERSATION_BYTES);
	return true;
}

static bool take_step(struct loop *l, const struct answer *a)
{
	json_t *said = l->s->provider->said(a), *record = begin_record(l, a);
	bool go_on = json_array_append_new(l->asking.messages, said) == 0;

	show_said(&l->show, a);
	if (!go_on) {
		err_set(&l->e, ENOMEM, "keep an answer");
		end_with(l, END_FAILED);
	} else if (a->call_count > 0) {
		go_on = make_calls(l, a, record);
	} else if (a->stop != STOP_PAUSE) {
		go_on = take_answer(l, a);
	}
	json_decref(record);
	if (go_on && is_too_long(l))
		go_on = end_with(l, END_FAILED);
	return go_on;
}

static bool step(struct loop *l)
{
	static const enum end of[] = {[ASKED_FAILED] = END_FAILED,
				      [ASKED_DEADLINE] = END_TIMEOUT,
				      [ASKED_CANCELLED] = END_CANCELLED};
	struct answer a = {0};
	enum asked asked = complete(&l->asking, &a, &l->retryable, &l->e);
	bool go_on = asked == ASKED_DONE ? take_step(l, &a) : end_with(l, of[asked]);

	answer_done(&a);
	return go_on;
}

/* ---- beginning and end ---- */

static json_t *make_tools(const struct ask_settings *s)
{
	struct tool_view view = {.session = s->session,
				 .open_world = s->has_network,
				 .text_only = true,
				 .timeout_s = s->run_timeout_s,
				 .memory_mib = s->memory_mib};
	enum tool_id ids[TOOL_COUNT];
	size_t count = json_array_size(s->tools);

	for (size_t i = 0; i < count && i < TOOL_COUNT; i++) {
		ids[i] = tool_find(json_string_value(json_array_get(s->tools, i)));
		view.kept |= !tool_runs(ids[i]);
	}
	for (size_t i = 0; i < tool_format_count; i++)
		if (strcmp(tool_formats[i].name, s->provider->format) == 0)
			return tool_formats[i].list(ids, count, &view);
	return NULL;
}

static void print_transcript(const struct loop *l)
{
	bool ok = l->end == END_ANSWERED;
	size_t size;
	_cleanup_free_ char *message = text_repair(l->e.text, strlen(l->e.text), &size);
	json_t *all =
		json_pack("{ss ss ss sb ss ss? sb ss? sO? sO s{sI sI} sI sf}", "session",
			  l->tools.session, "provider", l->s->provider->name, "model", l->s->model,
			  "ok", ok, "reason", ends[l->end].name, "error_code",
			  ok ? NULL : codes[ends[l->end].code].name, "retryable",
			  !ok && l->retryable, "message", ok ? NULL : message, "answer",
			  (json_t *)NULL, "steps", l->steps, "usage", "input_tokens",
			  (json_int_t)l->input_tokens, "output_tokens",
			  (json_int_t)l->output_tokens, "requests", (json_int_t)l->asking.attempts,
			  "wall_ms", (double)(now_us() - l->began_us) / 1000);
	_cleanup_free_ char *text = NULL;

	if (all && l->answer)
		json_object_set_new(all, "answer", json_stringn(l->answer, l->answer_size));
	text = all ? json_dumps(all, JSON_OUT) : NULL;
	json_decref(all);
	if (!text || puts(text) == EOF || fflush(stdout) == EOF)
		fputs("cloche: the transcript could not be printed\n", stderr);
}

static int finish(struct loop *l)
{
	int status = ends[l->end].status;

	if (l->s->json)
		print_transcript(l);
	else if (l->answer && show_answer(&l->show, l->answer, l->answer_size) < 0)
		status = status ? status : 125;
	if (l->end == END_CANCELLED || l->end == END_ANSWERED)
		return status;
	show_error(&l->show, &l->e);
	return status;
}

int loop_run(struct ask_settings *s, int signals)
{
	struct loop l = {.s = s,
			 .signals = signals,
			 .began_us = now_us(),
			 .steps = json_array(),
			 .end = END_MAX_STEPS,
			 .tools = {.in = -1, .out = -1}};
	int status;

	show_init(&l.show, s);
	l.asking = (struct asking){.s = s,
				   .show = &l.show,
				   .messages = json_pack("[o]", s->provider->asked(s->prompt)),
				   .tools = json_array_size(s->tools) ? make_tools(s) : NULL,
				   .signals = signals,
				   .deadline_us = l.began_us + (uint64_t)(s->timeout_s * 1e6)};
	err_set(&l.e, 0, "no answer within %lld steps (--max-steps)", s->max_steps);
	if (!l.asking.messages || !l.steps || tools_start(&l.tools, s, &l.e) < 0)
		l.end = END_TOOLS_LOST;
	l.tools.on_end = on_end;
	l.tools.context = &l;
	for (long long i = 0; l.end == END_MAX_STEPS && i < s->max_steps && step(&l); i++)
		continue;
	tools_stop(&l.tools);
	status = finish(&l);
	json_decref(l.asking.messages);
	json_decref(l.asking.tools);
	json_decref(l.steps);
	free(l.answer);
	return status;
}
