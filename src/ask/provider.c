/* SPDX-License-Identifier: Apache-2.0 */
#include "ask/provider.h"

#include <string.h>

const char *provider_error(const json_t *body)
{
	const json_t *error;
	const char *text;

	if (json_is_array(body))
		body = json_array_get(body, 0);
	error = json_object_get(body, "error");
	if (!error)
		error = body;
	text = json_string_value(json_is_string(error) ? error : json_object_get(error, "message"));
	if (!text)
		text = json_string_value(json_object_get(error, "detail"));
	return text ? text : "";
}

int provider_check(struct answer *a, const json_t *event, const char *const *words, struct err *e)
{
	const json_t *error = json_object_get(event, "error");
	const char *type = json_string_value(json_object_get(error, "type"));
	const char *status = json_string_value(json_object_get(error, "status"));
	const char *text = provider_error(event);

	if (!json_is_object(event))
		return err_set(e, 0, "the answer is no object");
	if (!error || json_is_null(error))
		return 0;
	type = type ? type : status ? status : "";
	for (; *words; words++)
		a->temporary |= strcmp(*words, type) == 0;
	return err_set(e, 0, "the answer is an error: %.60s%s%.400s", type, *type ? ": " : "",
		       text);
}

void provider_count(long long *n, const json_t *value)
{
	if (json_is_integer(value) && json_integer_value(value) >= 0)
		*n = json_integer_value(value);
}
