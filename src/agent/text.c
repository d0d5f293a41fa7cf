/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/text.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/base64.h"
#include "sandbox/result.h"

const char *const text_form_names[TEXT_COUNT] = {"exit", "plain"};
/* Plain: the documents' 4,000. Exit: what a client's own limit on a tool's answer leaves room for. */
const size_t text_default_chars[TEXT_COUNT] = {16000, 4000};

static const char replacement[] = "\xef\xbf\xbd";

enum text_form text_form_find(const char *name)
{
	enum text_form form = 0;

	while (form < TEXT_COUNT && strcmp(text_form_names[form], name) != 0)
		form++;
	return form;
}

bool text_is_text(const char *data, size_t size)
{
	return !memchr(data, '\0', size) && utf8_prefix(data, size, false) == (ssize_t)size;
}

/* Bytes of the character at data, 0: none is there. */
static size_t character(const char *data, size_t size)
{
	unsigned char c = (unsigned char)*data;
	size_t n = c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;

	return c && n <= size && utf8_prefix(data, n, false) == (ssize_t)n ? n : 0;
}

char *text_repair(const char *data, size_t size, size_t *ret_size)
{
	char *text = malloc(size * (sizeof replacement - 1) + 1);
	size_t n = 0;

	for (size_t i = 0; text && i < size;) {
		size_t whole = character(data + i, size - i);

		if (whole) {
			memcpy(text + n, data + i, whole);
			n += whole;
		} else {
			memcpy(text + n, replacement, sizeof replacement - 1);
			n += sizeof replacement - 1;
		}
		i += whole ? whole : 1;
	}
	if (text)
		text[n] = '\0';
	*ret_size = n;
	return text;
}

char *text_of_stream(const json_t *result, const char *name, size_t *ret_size)
{
	const json_t *value = json_object_get(result, name);
	const char *encoding = json_string_value(json_object_get(result, "encoding"));
	const char *text = json_is_string(value) ? json_string_value(value) : "";
	size_t size = json_is_string(value) ? json_string_length(value) : 0;
	_cleanup_free_ char *decoded = NULL;

	if (encoding && strcmp(encoding, "base64") == 0 &&
	    base64_decode(text, size, &decoded, &size) == 0)
		text = decoded;
	return text_repair(text, size, ret_size);
}

/* Bytes of the first max characters; *ret_all: how many there are. */
static size_t first_characters(const char *text, size_t size, size_t max, size_t *ret_all)
{
	size_t count = 0, cut = size;

	for (size_t i = 0; i < size; i++) {
		if (((unsigned char)text[i] & 0xc0) == 0x80)
			continue;
		if (count++ == max)
			cut = i;
	}
	*ret_all = count;
	return cut;
}

/* The exit status that this end stands for, as the command line would give it. */
static int exit_of(const json_t *result)
{
	const json_t *code = json_object_get(result, "exit_code");
	const char *reason = json_string_value(json_object_get(result, "reason"));

	if (json_is_integer(code))
		return (int)json_integer_value(code);
	for (int i = 0; reason && i < REASON_COUNT; i++) {
		if (strcmp(reasons[i].name, reason) != 0)
			continue;
		if (reasons[i].exit_status >= 0)
			return reasons[i].exit_status;
		return 128 + (int)json_integer_value(json_object_get(result, "signal"));
	}
	return 125;
}

static void tell_truncated(FILE *f, const json_t *result, const char *name)
{
	const json_t *counts = json_object_get(json_object_get(result, "output"), name);
	long long bytes = json_integer_value(json_object_get(counts, "bytes"));
	long long kept = json_integer_value(json_object_get(counts, "kept"));

	if (bytes > kept)
		fprintf(f, "[%s: the first %lld of %lld bytes were kept]\n", name, kept, bytes);
}

static void tell_artifacts(FILE *f, const json_t *result)
{
	const json_t *list = json_object_get(result, "artifacts"), *row;
	size_t i, told = 0;

	json_array_foreach((json_t *)(uintptr_t)list, i, row) {
		const char *path = json_string_value(json_object_get(row, "path"));
		const char *skipped = json_string_value(json_object_get(row, "skipped"));

		if (!path || told == 20)
			continue;
		told++;
		if (skipped)
			fprintf(f, "[file %s was left behind: %s]\n", path, skipped);
		else
			fprintf(f, "[file %s, %lld bytes]\n", path,
				(long long)json_integer_value(json_object_get(row, "bytes")));
	}
	if (json_array_size(list) > told)
		fprintf(f, "[and %zu more files]\n", json_array_size(list) - told);
}

/* Why it ended, unless the program ended by itself with success. */
static void tell_end(FILE *f, const json_t *result, bool also_exit)
{
	const char *reason = json_string_value(json_object_get(result, "reason"));
	const char *message = json_string_value(json_object_get(result, "model_message"));
	bool exited = reason && strcmp(reason, "exited") == 0;
	bool failed = !json_is_true(json_object_get(result, "ok"));
	const char *code = json_string_value(json_object_get(result, "error_code"));
	bool own = code && strcmp(code, codes[CODE_COMMAND_FAILED].name) == 0;

	if (message && failed && (!exited || also_exit || !own))
		fprintf(f, "[%s]\n", message);
}

static void put_stream(FILE *f, const json_t *result, const char *name, size_t max)
{
	size_t size, all, cut;
	_cleanup_free_ char *text = text_of_stream(result, name, &size);

	if (!text)
		return;
	cut = first_characters(text, size, max, &all);
	fprintf(f, "%s:\n", name);
	fwrite(text, 1, cut, f);
	if (cut > 0 && text[cut - 1] != '\n')
		fputc('\n', f);
	if (cut < size)
		fprintf(f, "[cut: the first %zu of %zu characters]\n", max, all);
}

static void put_exit(FILE *f, const json_t *result, size_t max)
{
	fprintf(f, "exit=%d\n", exit_of(result));
	put_stream(f, result, "stdout", max);
	put_stream(f, result, "stderr", max);
	tell_truncated(f, result, "stdout");
	tell_truncated(f, result, "stderr");
	tell_end(f, result, false);
	tell_artifacts(f, result);
}

static bool is_blank(char c)
{
	return c == ' ' || (c >= '\t' && c <= '\r');
}

static void put_plain(FILE *f, const json_t *result, size_t max)
{
	size_t out_size, err_size, size, all, cut;
	_cleanup_free_ char *out = text_of_stream(result, "stdout", &out_size);
	_cleanup_free_ char *err = text_of_stream(result, "stderr", &err_size);
	_cleanup_free_ char *joined = out && err ? malloc(out_size + err_size + 1) : NULL;
	const char *text = joined;

	if (!joined)
		return;
	memcpy(joined, out, out_size);
	memcpy(joined + out_size, err, err_size);
	size = out_size + err_size;
	for (; size > 0 && is_blank(text[size - 1]); size--)
		continue;
	for (; size > 0 && is_blank(*text); size--)
		text++;
	cut = first_characters(text, size, max, &all);
	if (size == 0)
		fputs("(no output)", f);
	fwrite(text, 1, cut, f);
	fputc('\n', f);
	if (cut < size)
		fprintf(f, "[cut: the first %zu of %zu characters]\n", max, all);
	tell_truncated(f, result, "stdout");
	tell_truncated(f, result, "stderr");
	tell_end(f, result, true);
	tell_artifacts(f, result);
}

char *text_of_result(const json_t *result, enum text_form form, size_t max_chars)
{
	char *text = NULL;
	size_t size;
	FILE *f = open_memstream(&text, &size);

	if (!f)
		return NULL;
	if (form == TEXT_PLAIN)
		put_plain(f, result, max_chars);
	else
		put_exit(f, result, max_chars);
	if (fclose(f) != 0) {
		free(text);
		return NULL;
	}
	if (size > 0 && text[size - 1] == '\n')
		text[size - 1] = '\0';
	return text;
}
