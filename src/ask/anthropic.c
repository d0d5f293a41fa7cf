/* SPDX-License-Identifier: Apache-2.0 */
/*
 * anthropic.c - the Messages API (POST /v1/messages, anthropic-version 2023-06-01).
 *
 * Content is a list of blocks, streamed as start, deltas and stop by index. A block goes back as it came, thinking and
 * its signature too; kinds that are not known here likewise, and deltas that are not known are left out.
 */
#include <string.h>

#include "ask/provider.h"
#include "base/json.h"

static const char *const temporary[] = {"overloaded_error", "rate_limit_error", "api_error",
					"timeout_error", NULL};

static const struct stop_word stops[] = {
	{"end_turn", STOP_END},
	{"stop_sequence", STOP_END},
	{"tool_use", STOP_TOOLS},
	{"max_tokens", STOP_LENGTH},
	{"refusal", STOP_REFUSED},
	{"pause_turn", STOP_PAUSE},
	{"model_context_window_exceeded", STOP_LENGTH},
	{NULL},
};

static char *target(const struct question *q)
{
	(void)q;
	return strdup("/v1/messages");
}

static json_t *asked(const char *prompt)
{
	return json_pack("{ss ss}", "role", "user", "content", prompt);
}

static json_t *body(const struct question *q)
{
	json_t *b = json_pack("{ss sI sO sb}", "model", q->model, "max_tokens",
			      (json_int_t)q->max_tokens, "messages", q->messages, "stream", 1);

	if (b && *q->instructions)
		json_object_set_new(b, "system", json_string(q->instructions));
	if (b && q->has_temperature)
		json_object_set_new(b, "temperature", json_real(q->temperature));
	if (b && q->tools)
		json_object_set(b, "tools", q->tools);
	return b;
}

static const char *kind_of(const json_t *block)
{
	const char *kind = json_string_value(json_object_get(block, "type"));

	return kind ? kind : "";
}

/* What a kind of block grows by. */
static const struct growing {
	const char *kind, *key, *delta, *delta_key;
} growing[] = {
	{"text", "text", "text_delta", "text"},
	{"thinking", "thinking", "thinking_delta", "thinking"},
	{"tool_use", NULL, "input_json_delta", "partial_json"},
};

static int take_text(struct answer *a, const struct part *p, const json_t *text, struct err *e)
{
	if (strcmp(kind_of(p->raw), "text") != 0)
		return 0;
	return answer_say(a, json_string_value(text), json_string_length(text), e);
}

static int begin_call(struct answer *a, struct part *p, struct err *e)
{
	const json_t *input = json_object_get(p->raw, "input");

	p->call = answer_call(a, json_object_get(p->raw, "id"), json_object_get(p->raw, "name"), e);
	if (p->call >= 0 && json_object_size(input) > 0) {
		_cleanup_free_ char *text = json_dumps(input, JSON_COMPACT);
		struct call *c = &a->calls[p->call];

		if (!text || text_add(&c->arguments, text, strlen(text)) < 0)
			return err_set(e, ENOMEM, "keep an answer");
	}
	return p->call < 0 ? -1 : 0;
}

static int take_block(struct answer *a, json_t *block, size_t bytes, struct err *e)
{
	const char *kind = kind_of(block);
	struct part *p;

	if (!json_is_object(block))
		return err_set(e, 0, "a block of the answer is no object");
	p = answer_part(a, block, bytes, e);
	if (!p)
		return -1;
	if (strcmp(kind, "tool_use") == 0)
		return begin_call(a, p, e);
	for (size_t i = 0; i < ARRAY_SIZE(growing); i++) {
		const json_t *text = growing[i].key ? json_object_get(block, growing[i].key) : NULL;

		if (strcmp(kind, growing[i].kind) == 0 && json_is_string(text))
			return answer_grow(a, &p->text, text, e) < 0 ? -1
								     : take_text(a, p, text, e);
	}
	return 0;
}

static int take_delta(struct answer *a, const json_t *event, struct err *e)
{
	json_int_t index = json_integer_value(json_object_get(event, "index"));
	const json_t *delta = json_object_get(event, "delta");
	const char *kind = kind_of(delta);
	struct part *p;

	if (index < 0 || (size_t)index >= a->part_count)
		return err_set(e, 0, "the answer goes on with a block that did not begin");
	p = &a->parts[index];
	if (strcmp(kind, "signature_delta") == 0)
		return answer_grow(a, &p->more, json_object_get(delta, "signature"), e);
	for (size_t i = 0; i < ARRAY_SIZE(growing); i++) {
		const json_t *text = json_object_get(delta, growing[i].delta_key);

		if (strcmp(kind, growing[i].delta) != 0 ||
		    strcmp(kind_of(p->raw), growing[i].kind) != 0 || !json_is_string(text))
			continue;
		if (p->call >= 0)
			return answer_grow(a, &a->calls[p->call].arguments, text, e);
		return answer_grow(a, &p->text, text, e) < 0 ? -1 : take_text(a, p, text, e);
	}
	return 0;
}

static void take_usage(struct answer *a, const json_t *usage)
{
	long long created = 0, read = 0;

	provider_count(&created, json_object_get(usage, "cache_creation_input_tokens"));
	provider_count(&read, json_object_get(usage, "cache_read_input_tokens"));
	provider_count(&a->input_tokens, json_object_get(usage, "input_tokens"));
	if (json_object_get(usage, "input_tokens"))
		a->input_tokens += created + read;
	provider_count(&a->output_tokens, json_object_get(usage, "output_tokens"));
}

static int take(struct answer *a, const json_t *event, size_t bytes, struct err *e)
{
	const char *kind = kind_of(event);
	json_t *block = json_object_get(event, "content_block");

	if (provider_check(a, event, temporary, e) < 0)
		return -1;
	if (strcmp(kind, "message_start") == 0) {
		take_usage(a, json_object_get(json_object_get(event, "message"), "usage"));
	} else if (strcmp(kind, "content_block_start") == 0) {
		if (json_integer_value(json_object_get(event, "index")) !=
		    (json_int_t)a->part_count)
			return err_set(e, 0, "the blocks of the answer are not in order");
		return take_block(a, block, bytes, e);
	} else if (strcmp(kind, "content_block_delta") == 0) {
		return take_delta(a, event, e);
	} else if (strcmp(kind, "message_delta") == 0) {
		answer_stop(a, json_object_get(json_object_get(event, "delta"), "stop_reason"),
			    stops);
		take_usage(a, json_object_get(event, "usage"));
	} else if (strcmp(kind, "message_stop") == 0) {
		a->finished = true;
	}
	return 0;
}

static int take_whole(struct answer *a, const json_t *message, size_t bytes, struct err *e)
{
	const json_t *content = json_object_get(message, "content");

	if (provider_check(a, message, temporary, e) < 0 || answer_charge(a, bytes, e) < 0)
		return -1;
	if (json_is_string(content) && answer_say_content(a, content, e) < 0)
		return -1;
	for (size_t i = 0; i < json_array_size(content); i++)
		if (take_block(a, json_array_get(content, i), 0, e) < 0)
			return -1;
	take_usage(a, json_object_get(message, "usage"));
	answer_stop(a, json_object_get(message, "stop_reason"), stops);
	a->finished = content != NULL;
	return 0;
}

static json_t *block_back(const struct answer *a, const struct part *p)
{
	json_t *block = json_copy(p->raw);
	const char *kind = kind_of(block);

	if (p->call >= 0)
		json_object_set_new(block, "input", call_echo(&a->calls[p->call]));
	for (size_t i = 0; i < ARRAY_SIZE(growing); i++)
		if (growing[i].key && strcmp(kind, growing[i].kind) == 0)
			json_object_set_new(block, growing[i].key,
					    json_stringn(p->text.data ? p->text.data : "",
							 p->text.size));
	if (p->more.size > 0)
		json_object_set_new(block, "signature", json_stringn(p->more.data, p->more.size));
	return block;
}

static json_t *said(const struct answer *a)
{
	json_t *content = json_array();

	for (size_t i = 0; i < a->part_count; i++) {
		const struct part *p = &a->parts[i];

		/* A text that is empty is not taken back. */
		if (strcmp(kind_of(p->raw), "text") != 0 || p->text.size > 0)
			json_array_append_new(content, block_back(a, p));
	}
	return json_pack("{ss so}", "role", "assistant", "content", content);
}

static int told(json_t *messages, const struct outcome *outcomes, size_t count)
{
	json_t *content = json_array();

	for (size_t i = 0; i < count; i++)
		json_array_append_new(content, json_pack("{ss ss ss sb}", "type", "tool_result",
							 "tool_use_id", outcomes[i].call->id,
							 "content", outcomes[i].text, "is_error",
							 outcomes[i].is_error));
	return json_array_append_new(messages,
				     json_pack("{ss so}", "role", "user", "content", content));
}

static const char *const keys[] = {"ANTHROPIC_API_KEY", NULL};
static const char *const bare[] = {"claude-*", NULL};

const struct provider provider_anthropic = {
	.name = "anthropic",
	.url = "https://api.anthropic.com",
	.keys = keys,
	.key_field = "x-api-key: ",
	.field = "anthropic-version: 2023-06-01",
	.format = "anthropic",
	.bare_names = bare,
	.target = target,
	.body = body,
	.asked = asked,
	.take = take,
	.take_whole = take_whole,
	.said = said,
	.told = told,
};
