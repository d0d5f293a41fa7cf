/* SPDX-License-Identifier: Apache-2.0 */
#include "ask/answer.h"

#include <stdio.h>
#include <string.h>

#include "base/json.h"

const char *const stop_names[STOP_COUNT] = {NULL,      "end",   "tools", "length",
					    "refused", "pause", "other"};

int text_add(struct text *t, const char *data, size_t size)
{
	if (size >= t->room - t->size) {
		size_t room = t->room ? t->room : 256;
		char *more;

		while (room - t->size <= size)
			room *= 2;
		more = realloc(t->data, room);
		if (!more)
			return -ENOMEM;
		t->data = more;
		t->room = room;
	}
	if (size > 0)
		memcpy(t->data + t->size, data, size);
	t->size += size;
	t->data[t->size] = '\0';
	return 0;
}

void text_done(struct text *t)
{
	free(t->data);
	*t = (struct text){0};
}

void answer_done(struct answer *a)
{
	for (size_t i = 0; i < a->part_count; i++) {
		json_decref(a->parts[i].raw);
		text_done(&a->parts[i].text);
		text_done(&a->parts[i].more);
	}
	for (size_t i = 0; i < a->call_count; i++) {
		free(a->calls[i].id);
		free(a->calls[i].name);
		text_done(&a->calls[i].arguments);
	}
	free(a->parts);
	free(a->calls);
	text_done(&a->text);
	*a = (struct answer){0};
}

int answer_charge(struct answer *a, size_t size, struct err *e)
{
	a->begun = true;
	a->charged += size;
	if (a->charged <= ANSWER_BYTES)
		return 0;
	return err_set(e, 0, "the answer is more than what is kept of one (%d bytes)",
		       ANSWER_BYTES);
}

int answer_say(struct answer *a, const char *data, size_t size, struct err *e)
{
	if (size == 0)
		return 0;
	if (answer_charge(a, size, e) < 0)
		return -1;
	if (text_add(&a->text, data, size) < 0)
		return err_set(e, ENOMEM, "keep an answer");
	if (a->on_text)
		a->on_text(a->context, data, size);
	return 0;
}

static int say_one(struct answer *a, const json_t *item, struct err *e)
{
	const json_t *text = json_is_string(item) ? item : json_object_get(item, "text");

	if (!json_is_string(text))
		return 0;
	return answer_say(a, json_string_value(text), json_string_length(text), e);
}

int answer_say_content(struct answer *a, const json_t *content, struct err *e)
{
	if (!json_is_array(content))
		return say_one(a, content, e);
	for (size_t i = 0; i < json_array_size(content); i++)
		if (say_one(a, json_array_get(content, i), e) < 0)
			return -1;
	return 0;
}

int answer_grow(struct answer *a, struct text *t, const json_t *string, struct err *e)
{
	size_t size = json_string_length(string);

	if (!json_is_string(string) || size == 0)
		return 0;
	if (answer_charge(a, size, e) < 0)
		return -1;
	return text_add(t, json_string_value(string), size) < 0
		       ? err_set(e, ENOMEM, "keep an answer")
		       : 0;
}

struct part *answer_part(struct answer *a, json_t *raw, size_t bytes, struct err *e)
{
	struct part *more;

	if (answer_charge(a, bytes, e) < 0)
		return NULL;
	if (a->part_count == ANSWER_PARTS) {
		err_set(e, 0, "the answer has more than %d parts", ANSWER_PARTS);
		return NULL;
	}
	more = reallocarray(a->parts, a->part_count + 1, sizeof *more);
	if (!more) {
		err_set(e, ENOMEM, "keep an answer");
		return NULL;
	}
	a->parts = more;
	more += a->part_count++;
	*more = (struct part){.raw = json_incref(raw), .call = -1};
	return more;
}

static char *word_of(const json_t *word)
{
	const char *text = json_string_value(word);

	return strdup(text ? text : "");
}

int answer_call(struct answer *a, const json_t *id, const json_t *name, struct err *e)
{
	struct call *more;

	if (answer_charge(a, json_string_length(id) + json_string_length(name), e) < 0)
		return -1;
	if (a->call_count == ANSWER_CALLS)
		return err_set(e, 0, "the answer calls more than %d tools", ANSWER_CALLS);
	more = reallocarray(a->calls, a->call_count + 1, sizeof *more);
	if (!more)
		return err_set(e, ENOMEM, "keep an answer");
	a->calls = more;
	more += a->call_count;
	*more = (struct call){.id = word_of(id), .name = word_of(name)};
	if (!more->id || !more->name) {
		free(more->id);
		free(more->name);
		return err_set(e, ENOMEM, "keep an answer");
	}
	return (int)a->call_count++;
}

json_t *call_arguments(const struct call *c, struct err *e)
{
	json_t *j;

	if (c->arguments.size == 0)
		return json_object();
	j = json_read_output(c->arguments.data, c->arguments.size, e);
	if (json_is_object(j))
		return j;
	if (j)
		err_set(e, 0, "they must be an object");
	json_decref(j);
	err_prefix(e, "The arguments are not what they must be");
	return NULL;
}

json_t *call_echo(const struct call *c)
{
	struct err ignored;
	json_t *j = call_arguments(c, &ignored);

	return j ? j : json_object();
}

void answer_stop(struct answer *a, const json_t *word, const struct stop_word *words)
{
	const char *text = json_string_value(word);

	if (!text || !*text)
		return;
	/* Cut, it might be no text any more. */
	snprintf(a->stop_word, sizeof a->stop_word, "%s",
		 strlen(text) < sizeof a->stop_word ? text : "");
	while (words->word && strcmp(words->word, text) != 0)
		words++;
	a->stop = words->word ? words->stop : STOP_OTHER;
}
