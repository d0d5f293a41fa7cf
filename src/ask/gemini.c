/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemini.c - the Gemini API (POST /v1beta/models/MODEL:streamGenerateContent).
 *
 * A stream is a row of whole answers whose parts follow each other. Parts go back as they came, for their signatures;
 * plain texts in a row are joined.
 */
#include <stdio.h>
#include <string.h>

#include "ask/provider.h"
#include "base/json.h"

static const char *const temporary[] = {"UNAVAILABLE", "RESOURCE_EXHAUSTED", "INTERNAL", NULL};

static const struct stop_word stops[] = {
	{"STOP", STOP_END},
	{"MAX_TOKENS", STOP_LENGTH},
	{"SAFETY", STOP_REFUSED},
	{"RECITATION", STOP_REFUSED},
	{"LANGUAGE", STOP_REFUSED},
	{"BLOCKLIST", STOP_REFUSED},
	{"PROHIBITED_CONTENT", STOP_REFUSED},
	{"SPII", STOP_REFUSED},
	{NULL},
};

#define NAME_CHARS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"

/* The name is part of the path. */
static char *target(const struct question *q)
{
	static const char behind[] = ":streamGenerateContent?alt=sse";
	static const char before[] = "/v1beta/models/";
	size_t room = sizeof before + 3 * strlen(q->model) + sizeof behind, n = sizeof before - 1;
	char *text = malloc(room);

	if (!text)
		return NULL;
	memcpy(text, before, n);
	for (const unsigned char *p = (const unsigned char *)q->model; *p; p++)
		n += (size_t)snprintf(text + n, room - n, strchr(NAME_CHARS, *p) ? "%c" : "%%%02X",
				      *p);
	memcpy(text + n, behind, sizeof behind);
	return text;
}

static json_t *asked(const char *prompt)
{
	return json_pack("{ss s[{ss}]}", "role", "user", "parts", "text", prompt);
}

static json_t *body(const struct question *q)
{
	json_t *b = json_pack("{sO s{sI}}", "contents", q->messages, "generationConfig",
			      "maxOutputTokens", (json_int_t)q->max_tokens);

	if (b && q->has_temperature)
		json_object_set_new(json_object_get(b, "generationConfig"), "temperature",
				    json_real(q->temperature));
	if (b && *q->instructions)
		json_object_set_new(b, "systemInstruction",
				    json_pack("{s[{ss}]}", "parts", "text", q->instructions));
	if (b && q->tools)
		json_object_set(b, "tools", q->tools);
	return b;
}

static bool is_plain(const json_t *part)
{
	return json_object_size(part) == 1 && json_is_string(json_object_get(part, "text"));
}

static int take_call(struct answer *a, struct part *p, const json_t *call, struct err *e)
{
	const json_t *args = json_object_get(call, "args");
	_cleanup_free_ char *text = args ? json_dumps(args, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;

	p->call = answer_call(a, json_object_get(call, "id"), json_object_get(call, "name"), e);
	if (p->call < 0)
		return -1;
	if (args && (!text || text_add(&a->calls[p->call].arguments, text, strlen(text)) < 0))
		return err_set(e, ENOMEM, "keep an answer");
	return 0;
}

static int take_part(struct answer *a, json_t *part, size_t bytes, struct err *e)
{
	const json_t *text = json_object_get(part, "text");
	struct part *last = a->part_count > 0 ? &a->parts[a->part_count - 1] : NULL;

	if (!json_is_object(part))
		return err_set(e, 0, "a part of the answer is no object");
	if (json_is_string(text) && !json_is_true(json_object_get(part, "thought")) &&
	    answer_say(a, json_string_value(text), json_string_length(text), e) < 0)
		return -1;
	if (is_plain(part) && last && is_plain(last->raw))
		return answer_grow(a, &last->text, text, e);
	last = answer_part(a, part, bytes, e);
	if (!last)
		return -1;
	if (is_plain(part))
		return answer_grow(a, &last->text, text, e);
	if (json_is_object(json_object_get(part, "functionCall")))
		return take_call(a, last, json_object_get(part, "functionCall"), e);
	return 0;
}

static void take_usage(struct answer *a, const json_t *usage)
{
	long long thoughts = 0;

	provider_count(&thoughts, json_object_get(usage, "thoughtsTokenCount"));
	provider_count(&a->input_tokens, json_object_get(usage, "promptTokenCount"));
	if (json_is_integer(json_object_get(usage, "candidatesTokenCount"))) {
		provider_count(&a->output_tokens, json_object_get(usage, "candidatesTokenCount"));
		a->output_tokens += thoughts;
	}
}

static int take(struct answer *a, const json_t *event, size_t bytes, struct err *e)
{
	const json_t *candidate = json_array_get(json_object_get(event, "candidates"), 0);
	const json_t *parts = json_object_get(json_object_get(candidate, "content"), "parts");
	const json_t *blocked =
		json_object_get(json_object_get(event, "promptFeedback"), "blockReason");

	if (provider_check(a, event, temporary, e) < 0)
		return -1;
	for (size_t i = 0; i < json_array_size(parts); i++)
		if (take_part(a, json_array_get(parts, i), i == 0 ? bytes : 0, e) < 0)
			return -1;
	take_usage(a, json_object_get(event, "usageMetadata"));
	answer_stop(a, json_object_get(candidate, "finishReason"), stops);
	if (json_is_string(blocked)) {
		answer_stop(a, blocked, stops);
		a->stop = STOP_REFUSED;
	}
	a->finished |= a->stop != STOP_NONE;
	return 0;
}

/* Without alt=sse a stream is a list. */
static int take_whole(struct answer *a, const json_t *whole, size_t bytes, struct err *e)
{
	if (!json_is_array(whole))
		return take(a, whole, bytes, e);
	for (size_t i = 0; i < json_array_size(whole); i++)
		if (take(a, json_array_get(whole, i), i == 0 ? bytes : 0, e) < 0)
			return -1;
	return 0;
}

static json_t *said(const struct answer *a)
{
	json_t *parts = json_array();

	for (size_t i = 0; i < a->part_count; i++) {
		const struct part *p = &a->parts[i];

		if (!is_plain(p->raw))
			json_array_append(parts, p->raw);
		else if (p->text.size > 0)
			json_array_append_new(parts, json_pack("{ss#}", "text", p->text.data,
							       (int)p->text.size));
	}
	return json_pack("{ss so}", "role", "model", "parts", parts);
}

static int told(json_t *messages, const struct outcome *outcomes, size_t count)
{
	json_t *parts = json_array();

	for (size_t i = 0; i < count; i++) {
		json_t *response = json_pack("{ss s{ss}}", "name", outcomes[i].call->name,
					     "response", "result", outcomes[i].text);

		if (*outcomes[i].call->id)
			json_object_set_new(response, "id", json_string(outcomes[i].call->id));
		json_array_append_new(parts, json_pack("{so}", "functionResponse", response));
	}
	return json_array_append_new(messages,
				     json_pack("{ss so}", "role", "user", "parts", parts));
}

static const char *const keys[] = {"GEMINI_API_KEY", "GOOGLE_API_KEY", NULL};
static const char *const bare[] = {"gemini-*", NULL};

const struct provider provider_gemini = {
	.name = "gemini",
	.url = "https://generativelanguage.googleapis.com",
	.keys = keys,
	.key_field = "x-goog-api-key: ",
	.format = "gemini",
	.bare_names = bare,
	.target = target,
	.body = body,
	.asked = asked,
	.take = take,
	.take_whole = take_whole,
	.said = said,
	.told = told,
};
