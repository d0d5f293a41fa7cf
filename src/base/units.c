/* SPDX-License-Identifier: Apache-2.0 */
#include "base/units.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

struct unit {
	const char *name;
	uint64_t factor;
};

/* Longest fraction kept: 9 digits, so that 10^9 * the largest integer part checked below fits. */
#define FRACTION_SCALE 1000000000u

static const struct unit size_units[] = {
	{"", 1},
	{"b", 1},
	{"k", 1ull << 10},
	{"kb", 1ull << 10},
	{"kib", 1ull << 10},
	{"m", 1ull << 20},
	{"mb", 1ull << 20},
	{"mib", 1ull << 20},
	{"g", 1ull << 30},
	{"gb", 1ull << 30},
	{"gib", 1ull << 30},
	{"t", 1ull << 40},
	{"tb", 1ull << 40},
	{"tib", 1ull << 40},
};

static const struct unit duration_units[] = {
	{"", 1000000}, {"us", 1}, {"ms", 1000}, {"s", 1000000}, {"m", 60000000}, {"h", 3600000000u},
};

static const struct unit cpu_units[] = {{"", 1000}};

/* number: DIGITS [ "." DIGITS ] -> whole part and billionths; *rest is what follows. */
static int parse_number(const char *text, uint64_t *whole, uint64_t *billionths, const char **rest)
{
	const char *p = text;
	uint64_t scale = FRACTION_SCALE / 10;

	*whole = *billionths = 0;
	if (*p < '0' || *p > '9')
		return -EINVAL;
	for (; *p >= '0' && *p <= '9'; p++)
		if (__builtin_mul_overflow(*whole, 10u, whole) ||
		    __builtin_add_overflow(*whole, (uint64_t)(*p - '0'), whole))
			return -ERANGE;
	if (*p == '.') {
		p++;
		if (*p < '0' || *p > '9')
			return -EINVAL;
		for (; *p >= '0' && *p <= '9'; p++, scale /= 10)
			*billionths += (uint64_t)(*p - '0') * scale;
	}
	*rest = p;
	return 0;
}

static int parse_with_units(const char *text, const struct unit *units, size_t n, uint64_t *ret)
{
	uint64_t whole, billionths, value, fraction;
	const char *rest;
	int r = parse_number(text, &whole, &billionths, &rest);

	if (r < 0)
		return r;
	for (size_t i = 0; i < n; i++) {
		if (strcasecmp(rest, units[i].name) != 0)
			continue;
		if (__builtin_mul_overflow(whole, units[i].factor, &value))
			return -ERANGE;
		fraction = (uint64_t)((unsigned __int128)billionths * units[i].factor /
				      FRACTION_SCALE);
		if (__builtin_add_overflow(value, fraction, &value) || value > INT64_MAX)
			return -ERANGE;
		if (value == 0)
			return -ERANGE;
		*ret = value;
		return 0;
	}
	return -EINVAL;
}

int parse_size(const char *text, uint64_t *ret_bytes)
{
	return parse_with_units(text, size_units, ARRAY_SIZE(size_units), ret_bytes);
}

int parse_duration(const char *text, uint64_t *ret_us)
{
	return parse_with_units(text, duration_units, ARRAY_SIZE(duration_units), ret_us);
}

int parse_cpus(const char *text, uint64_t *ret_millis)
{
	uint64_t millis;
	int r = parse_with_units(text, cpu_units, ARRAY_SIZE(cpu_units), &millis);

	if (r < 0)
		return r;
	if (millis < 10)
		return -ERANGE;
	*ret_millis = millis;
	return 0;
}

int parse_count(const char *text, uint64_t min, uint64_t max, uint64_t *ret)
{
	uint64_t whole, billionths;
	const char *rest;
	int r = parse_number(text, &whole, &billionths, &rest);

	if (r < 0)
		return r;
	if (*rest || billionths)
		return -EINVAL;
	if (whole < min || whole > max)
		return -ERANGE;
	*ret = whole;
	return 0;
}
