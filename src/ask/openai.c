/* SPDX-License-Identifier: Apache-2.0 */
/*
 * openai.c - Chat Completions (POST /chat/completions), OpenAI's and that of whoever speaks the same: Ollama,
 * llama.cpp, vLLM, LiteLLM.
 *
 * They differ in small things, and these are taken as they come: content as a string, null or blocks; a call's pieces
 * by index, or whole calls that all say index 0; a stream that ends with [DONE] or without.
 */
#include <string.h>

#include "ask/provider.h"
#include "base/json.h"

static const char *const temporary[] = {"server_error", "rate_limit_exceeded", "overloaded_error",
					NULL};

static const struct stop_word stops[] = {
	{"stop", STOP_END},      {"tool_calls", STOP_TOOLS},       {"function_call", STOP_TOOLS},
	{"length", STOP_LENGTH}, {"content_filter", STOP_REFUSED}, {NULL},
};

static char *target(const struct question *q)
{
	(void)q;
	return strdup("/chat/completions");
}

static json_t *asked(const char *prompt)
{
	return json_pack("{ss ss}", "role", "user", "content", prompt);
}

static json_t *body(const struct question *q)
{
	json_t *messages = json_array(), *b;

	if (*q->instructions)
		json_array_append_new(messages, json_pack("{ss ss}", "role", "system", "content",
							  q->instructions));
	json_array_extend(messages, q->messages);
	/* OpenAI's newer models know the new name only, other servers the old one. */
	b = json_pack("{ss so sb s{sb} sI}", "model", q->model, "messages", messages, "stream", 1,
		      "stream_options", "include_usage", 1,
		      q->elsewhere ? "max_tokens" : "max_completion_tokens",
		      (json_int_t)q->max_tokens);
	if (b && q->has_temperature)
		json_object_set_new(b, "temperature", json_real(q->temperature));
	if (b && q->tools)
		json_object_set(b, "tools", q->tools);
	return b;
}

/* The call that a piece belongs to: a new id is a new call, whatever its index says. */
static int find_call(struct answer *a, const json_t *piece, struct err *e)
{
	const json_t *index = json_object_get(piece, "index"), *id = json_object_get(piece, "id");
	const json_t *name = json_object_get(json_object_get(piece, "function"), "name");
	size_t i = json_is_integer(index) && json_integer_value(index) >= 0
			   ? (size_t)json_integer_value(index)
			   : a->call_count;
	bool has_id = json_string_length(id) > 0;

	if (has_id && i < a->call_count && strcmp(a->calls[i].id, json_string_value(id)) != 0)
		i = a->call_count;
	for (size_t k = 0; has_id && k < a->call_count; k++)
		if (strcmp(a->calls[k].id, json_string_value(id)) == 0)
			i = k;
	if (i < a->call_count)
		return (int)i;
	if (!has_id && json_string_length(name) == 0) /* its index may be that of another */
		return a->call_count > 0
			       ? (int)a->call_count - 1
			       : err_set(e, 0, "the answer goes on with a call that did not begin");
	return answer_call(a, id, name, e);
}

static int take_calls(struct answer *a, const json_t *calls, struct err *e)
{
	for (size_t i = 0; i < json_array_size(calls); i++) {
		const json_t *piece = json_array_get(calls, i);
		const json_t *arguments =
			json_object_get(json_object_get(piece, "function"), "arguments");
		int n = find_call(a, piece, e);

		if (n < 0)
			return -1;
		if (json_is_object(
			    arguments)) { /* an object is not what is documented, but meant */
			_cleanup_free_ char *text = json_dumps(arguments, JSON_COMPACT);

			if (!text || answer_charge(a, strlen(text), e) < 0 ||
			    text_add(&a->calls[n].arguments, text, strlen(text)) < 0)
				return err_set(e, text ? 0 : ENOMEM, "keep an answer");
		} else if (answer_grow(a, &a->calls[n].arguments, arguments, e) < 0) {
			return -1;
		}
	}
	return 0;
}

static int take_message(struct answer *a, const json_t *choice, const char *key, struct err *e)
{
	const json_t *message = json_object_get(choice, key);

	if (answer_say_content(a, json_object_get(message, "content"), e) < 0 ||
	    answer_say_content(a, json_object_get(message, "refusal"), e) < 0 ||
	    take_calls(a, json_object_get(message, "tool_calls"), e) < 0)
		return -1;
	answer_stop(a, json_object_get(choice, "finish_reason"), stops);
	if (json_string_length(json_object_get(message, "refusal")) > 0)
		a->stop = STOP_REFUSED;
	a->finished |= a->stop != STOP_NONE;
	return 0;
}

static int take_any(struct answer *a, const json_t *event, const char *key, struct err *e)
{
	const json_t *choice = json_array_get(json_object_get(event, "choices"), 0);
	const json_t *usage = json_object_get(event, "usage");

	if (provider_check(a, event, temporary, e) < 0)
		return -1;
	provider_count(&a->input_tokens, json_object_get(usage, "prompt_tokens"));
	provider_count(&a->output_tokens, json_object_get(usage, "completion_tokens"));
	return take_message(a, choice, key, e);
}

static int take(struct answer *a, const json_t *event, size_t bytes, struct err *e)
{
	(void)bytes; /* texts and arguments are charged, nothing else is kept */
	return take_any(a, event, "delta", e);
}

static int take_whole(struct answer *a, const json_t *whole, size_t bytes, struct err *e)
{
	(void)bytes;
	return take_any(a, whole, "message", e);
}

static json_t *call_back(const struct call *c)
{
	json_t *echo = call_echo(c);
	_cleanup_free_ char *arguments = echo ? json_dumps(echo, JSON_COMPACT) : NULL;

	json_decref(echo);
	return json_pack("{ss ss s{ss ss}}", "id", c->id, "type", "function", "function", "name",
			 c->name, "arguments", arguments ? arguments : "{}");
}

static json_t *said(const struct answer *a)
{
	bool calls = a->call_count > 0, silent = calls && a->text.size == 0;
	json_t *m =
		json_pack("{ss so}", "role", "assistant", "content",
			  silent ? json_null()
				 : json_stringn(a->text.data ? a->text.data : "", a->text.size));
	json_t *list = json_array();

	for (size_t i = 0; i < a->call_count; i++)
		json_array_append_new(list, call_back(&a->calls[i]));
	if (calls)
		json_object_set(m, "tool_calls", list);
	json_decref(list);
	return m;
}

static int told(json_t *messages, const struct outcome *outcomes, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (json_array_append_new(messages, json_pack("{ss ss ss}", "role", "tool",
							      "tool_call_id", outcomes[i].call->id,
							      "content", outcomes[i].text)) < 0)
			return -1;
	return 0;
}

static const char *const keys[] = {"OPENAI_API_KEY", NULL};
static const char *const bare[] = {"gpt-*", "chatgpt-*", "o[0-9]*", NULL};

const struct provider provider_openai = {
	.name = "openai",
	.url = "https://api.openai.com/v1",
	.keys = keys,
	.key_field = "Authorization: Bearer ",
	.format = "openai",
	.bare_names = bare,
	.target = target,
	.body = body,
	.asked = asked,
	.take = take,
	.take_whole = take_whole,
	.said = said,
	.told = told,
};
