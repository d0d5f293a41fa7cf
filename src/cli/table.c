/* SPDX-License-Identifier: Apache-2.0 */
/* table.c - columns for people, and how values are put into words. What stands in a cell may come from a
 * sandbox, so it is escaped; widths count characters. */
#include <stdarg.h>
#include <string.h>
#include <time.h>

#include "cli/remote.h"
#include "native/stream.h"

enum { CELL_BYTES = 512 };

struct table {
	const char *const *heads;
	size_t columns, count, room;
	char **cells;
};

struct table *table_new(const char *const *heads, size_t columns)
{
	struct table *t = calloc(1, sizeof *t);

	if (t) {
		t->heads = heads;
		t->columns = columns;
	}
	return t;
}

/* Without memory a cell is missing, and so is its row. */
void table_cell(struct table *t, const char *format, ...)
{
	char text[CELL_BYTES / 4], shown[CELL_BYTES];
	size_t size;
	va_list ap;

	if (!t)
		return;
	if (t->count == t->room) {
		size_t room = t->room ? t->room * 2 : 64;
		char **more = realloc(t->cells, room * sizeof *more);

		if (!more)
			return;
		t->cells = more;
		t->room = room;
	}
	va_start(ap, format);
	vsnprintf(text, sizeof text, format, ap);
	va_end(ap);
	for (char *p = text; *p; p++)
		if (*p == '\n' || *p == '\t')
			*p = ' ';
	terminal_escape(text, strlen(text), true, shown, &size);
	t->cells[t->count] = strndup(shown, size);
	if (t->cells[t->count])
		t->count++;
}

static size_t width_of(const char *text)
{
	size_t n = 0;

	for (; *text; text++)
		n += ((unsigned char)*text & 0xc0) != 0x80;
	return n;
}

static void print_cell(const char *text, size_t width, bool last)
{
	fputs(text, stdout);
	for (size_t n = width_of(text); !last && n < width + 2; n++)
		putchar(' ');
	if (last)
		putchar('\n');
}

void table_print(const struct table *t)
{
	size_t rows, width[16] = {0};

	if (!t || t->columns > ARRAY_SIZE(width))
		return;
	rows = t->count / t->columns;
	for (size_t c = 0; c < t->columns; c++) {
		width[c] = width_of(t->heads[c]);
		for (size_t r = 0; r < rows; r++) {
			size_t n = width_of(t->cells[r * t->columns + c]);

			width[c] = n > width[c] ? n : width[c];
		}
	}
	for (size_t c = 0; c < t->columns; c++)
		print_cell(t->heads[c], width[c], c + 1 == t->columns);
	for (size_t i = 0; i < rows * t->columns; i++)
		print_cell(t->cells[i], width[i % t->columns], i % t->columns + 1 == t->columns);
}

void table_free(struct table *t)
{
	if (!t)
		return;
	for (size_t i = 0; i < t->count; i++)
		free(t->cells[i]);
	free(t->cells);
	free(t);
}

const char *text_of(json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text && *text ? text : "-";
}

const char *size_text(const json_t *bytes, char buf[static 32])
{
	static const char units[] = "bkmgt";
	double v = json_number_value(bytes);
	int u = 0;

	if (!json_is_number(bytes))
		return "-";
	for (; v >= 1024 && units[u + 1]; u++)
		v /= 1024;
	snprintf(buf, 32, v < 10 && u ? "%.1f%c" : "%.0f%c", v, units[u]);
	return buf;
}

const char *ago_text(const json_t *time_value, char buf[static 32])
{
	static const struct {
		char unit;
		long long seconds;
	} units[] = {{'d', 86400}, {'h', 3600}, {'m', 60}, {'s', 1}};
	const char *text = json_string_value(time_value), *rest;
	struct tm tm = {0};
	long long left;
	size_t u = 0;

	rest = text ? strptime(text, "%Y-%m-%dT%H:%M:%S", &tm) : NULL;
	if (!rest || (*rest != '.' && *rest != 'Z'))
		return "-";
	left = (long long)timegm(&tm) - (long long)time(NULL);
	while (u + 1 < ARRAY_SIZE(units) && llabs(left) < units[u].seconds)
		u++;
	snprintf(buf, 32, left > 0 ? "in %lld%c" : "%lld%c ago", llabs(left) / units[u].seconds,
		 units[u].unit);
	return buf;
}

const char *labels_text(json_t *labels, char *buf, size_t size)
{
	const char *name;
	json_t *value;
	size_t n = 0;

	buf[0] = '\0';
	json_object_foreach(labels, name, value) {
		const char *text = json_string_value(value);
		int m = snprintf(buf + n, size - n, "%s%s=%s", n ? "," : "", name,
				 text ? text : "");

		if (m < 0 || (size_t)m >= size - n)
			break;
		n += (size_t)m;
	}
	return n ? buf : "-";
}
