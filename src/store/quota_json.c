/* SPDX-License-Identifier: Apache-2.0 */
/* quota_json.c - quotas as people write them, in the configuration and with a key. */
#include "store/quota.h"

#include <stddef.h>
#include <string.h>

#include "base/json.h"
#include "base/units.h"

enum unit { COUNT, SIZE, CPUS };

static const struct row {
	const char *name;
	size_t offset;
	enum unit unit;
} rows[QUOTA_COUNT] = {
#define QUOTA(NAME, field, json_name, unit) {json_name, offsetof(struct quota, field), unit},
#include "store/quota.def"
#undef QUOTA
};

/* A CPU count beyond this is a mistake; it also keeps the conversion exact. */
#define MOST_CPUS 1000000.0

const char *quota_name(enum quota_kind kind)
{
	return kind == QUOTA_NAMES ? "sessions" : rows[kind].name;
}

static uint64_t *field(struct quota *q, const struct row *row)
{
	return (uint64_t *)((char *)q + row->offset);
}

void quota_none(struct quota *q)
{
	for (size_t i = 0; i < QUOTA_COUNT; i++)
		*field(q, &rows[i]) = QUOTA_NONE;
}

static int read_string(const struct row *row, const json_t *value, uint64_t *ret)
{
	const char *text = json_string_value(value);
	int r;

	if (strcmp(text, "unlimited") == 0) {
		*ret = QUOTA_NONE;
		return 0;
	}
	switch (row->unit) {
	case SIZE:
		return parse_size(text, ret);
	case CPUS:
		r = parse_cpus(text, ret);
		return r == 0 && *ret > MOST_CPUS * 1000 ? -ERANGE : r;
	default:
		return parse_count(text, 1, INT64_MAX, ret);
	}
}

static int read_value(const struct row *row, const json_t *value, uint64_t *ret)
{
	if (json_is_null(value)) {
		*ret = QUOTA_NONE;
		return 0;
	}
	if (json_is_string(value))
		return read_string(row, value, ret);
	if (row->unit == CPUS && json_is_number(value)) {
		double cpus = json_number_value(value);

		if (!(cpus >= 0.01 && cpus <= MOST_CPUS))
			return -ERANGE;
		*ret = (uint64_t)(cpus * 1000 + 0.5);
		return 0;
	}
	if (!json_is_integer(value))
		return -EINVAL;
	if (json_integer_value(value) < 1)
		return -ERANGE;
	*ret = (uint64_t)json_integer_value(value);
	return 0;
}

static int read_field(struct quota *q, const char *name, const json_t *value, struct err *e)
{
	for (size_t i = 0; i < QUOTA_COUNT; i++) {
		int r;

		if (strcmp(name, rows[i].name) != 0)
			continue;
		r = read_value(&rows[i], value, field(q, &rows[i]));
		if (r < 0)
			return err_set(e, 0, "quota %s: %s", name,
				       r == -ERANGE ? "0, or more than there can be"
						    : "not a number, or a number with its unit");
		return 0;
	}
	return err_set(e, 0, "quota %.64s: there is no such quota", name);
}

int quota_from_json(struct quota *q, const json_t *object, struct err *e)
{
	struct quota result = *q;
	const char *name;
	json_t *value;

	if (!json_is_object(object))
		return err_set(e, 0, "a quota is an object");
	json_object_foreach((json_t *)object, name, value)
		if (read_field(&result, name, value, e) < 0)
			return -1;
	*q = result;
	return 0;
}

int quota_from_text(struct quota *q, const char *text, size_t size, struct err *e)
{
	_cleanup_json_ json_t *j = json_read(text, size, e);

	return j ? quota_from_json(q, j, e) : -1;
}

json_t *quota_to_json(const struct quota *q)
{
	_cleanup_json_ json_t *object = json_object();

	for (size_t i = 0; object && i < QUOTA_COUNT; i++) {
		uint64_t value = *field((struct quota *)q, &rows[i]);
		json_t *j;

		if (value == QUOTA_NONE)
			j = json_null();
		else if (rows[i].unit == CPUS)
			j = json_real((double)value / 1000);
		else
			j = json_integer(value > INT64_MAX ? INT64_MAX : (json_int_t)value);
		if (json_object_set_new(object, rows[i].name, j) < 0)
			return NULL;
	}
	return TAKE_PTR(object);
}
