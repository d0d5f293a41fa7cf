/* SPDX-License-Identifier: Apache-2.0 */
#include "base/json.h"

/* Jansson has no depth setting below its own 2048, and none for how much it makes of a text, so brackets and
 * commas outside strings are counted first. */
static int check_shape(const char *text, size_t size, struct err *e)
{
	size_t depth = 0, values = 0;
	int in_string = 0;

	for (size_t i = 0; i < size; i++) {
		char c = text[i];

		if (in_string) {
			if (c == '\\')
				i++;
			else if (c == '"')
				in_string = 0;
		} else if (c == '"') {
			in_string = 1;
		} else if (c == '[' || c == '{') {
			if (++depth > JSON_MAX_DEPTH)
				return err_set(e, 0, "JSON is nested deeper than %d",
					       JSON_MAX_DEPTH);
		} else if ((c == ']' || c == '}') && depth > 0) {
			depth--;
		} else if (c == ',' && ++values >= JSON_MAX_VALUES) {
			return err_set(e, 0, "JSON has more than %d values", JSON_MAX_VALUES);
		}
	}
	return 0;
}

static json_t *read_strictly(const char *text, size_t size, size_t flags, struct err *e)
{
	json_error_t problem;
	json_t *j;

	if (size > JSON_MAX_BYTES) {
		err_set(e, 0, "JSON has %zu bytes, at most %u", size, JSON_MAX_BYTES);
		return NULL;
	}
	if (check_shape(text, size, e) < 0)
		return NULL;
	j = json_loadb(text, size, JSON_REJECT_DUPLICATES | flags, &problem);
	if (!j)
		err_set(e, 0, "JSON line %d column %d: %s", problem.line, problem.column,
			problem.text);
	return j;
}

json_t *json_read(const char *text, size_t size, struct err *e)
{
	return read_strictly(text, size, 0, e);
}

json_t *json_read_output(const char *text, size_t size, struct err *e)
{
	return read_strictly(text, size, JSON_ALLOW_NUL, e);
}
