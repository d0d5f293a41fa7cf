/* SPDX-License-Identifier: Apache-2.0 */
#include "ask/envfile.h"

#include <stdbool.h>
#include <string.h>

#define LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_"

static const char *read_value(char *value)
{
	size_t n = strlen(value);
	char quote = *value;

	if (strpbrk(value, "\r\t\v\f\x7f"))
		return "a control character";
	if (quote != '"' && quote != '\'') {
		if (n > 0 && (*value == ' ' || value[n - 1] == ' '))
			return "blanks around the value";
		return strstr(value, " #") ? "\" #\" in a value needs quotes around it" : NULL;
	}
	if (n < 2 || value[n - 1] != quote)
		return "a quote that is not closed at the end of the line";
	value[n - 1] = '\0';
	memmove(value, value + 1, n - 1);
	if (strchr(value, quote) || (quote == '"' && strpbrk(value, "\\$")))
		return "a quote, a backslash or a $ inside of quotes";
	return NULL;
}

static const char *read_line(char *line, char **ret_value)
{
	size_t n = strspn(line, LETTERS "0123456789");

	if (n == 0 || (*line >= '0' && *line <= '9') || line[n] != '=')
		return "it has to be NAME=VALUE, without blanks and without export";
	line[n] = '\0';
	*ret_value = line + n + 1;
	return read_value(*ret_value);
}

static bool is_known(char *const *names, size_t count, const char *name)
{
	for (size_t i = 0; i < count; i++)
		if (strcmp(names[i], name) == 0)
			return true;
	return false;
}

int envfile_read(char *text, size_t size, envfile_sink sink, void *context, struct err *e)
{
	char *names[ENVFILE_NAMES], *line = text, *value = NULL;
	size_t count = 0;

	if (memchr(text, '\0', size))
		return err_set(e, 0, "line 1: the file is no text");
	for (unsigned number = 1; line; number++) {
		char *end = strchr(line, '\n'), *next = end ? end + 1 : NULL;
		const char *wrong;

		if (end)
			*end = '\0';
		if (end && end > line && end[-1] == '\r')
			end[-1] = '\0';
		if (*line && *line != '#') {
			wrong = read_line(line, &value);
			if (!wrong && is_known(names, count, line))
				wrong = "the name stands there twice";
			if (!wrong && count == ENVFILE_NAMES)
				wrong = "too many names";
			if (wrong)
				return err_set(e, 0, "line %u: %s", number, wrong);
			names[count++] = line;
			if (sink(context, line, value, e) < 0)
				return err_prefix(e, "line %u", number);
		}
		line = next;
	}
	return 0;
}
