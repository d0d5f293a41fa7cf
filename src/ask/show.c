/* SPDX-License-Identifier: Apache-2.0 */
#include "ask/show.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "native/stream.h"
#include "sandbox/result.h"

enum { PIECE = 4096, SHORT = 96 };

void show_init(struct show *w, const struct ask_settings *s)
{
	const char *no = getenv("NO_COLOR");

	*w = (struct show){.quiet = s->quiet, .json = s->json, .live = -1};
	w->colour = isatty(2) && !(no && *no);
	if (!s->json && isatty(1))
		w->live = 1;
	else if (!s->quiet && isatty(2))
		w->live = 2;
}

static void put(struct show *w, int fd, const char *text, size_t size)
{
	if (size == 0)
		return;
	w->in_line = text[size - 1] != '\n';
	if (fd_write_all(fd, text, size) < 0 && w->live == fd)
		w->live = -1; /* who read it is gone */
}

void show_text(void *show, const char *data, size_t size)
{
	struct show *w = show;
	char piece[PIECE + sizeof w->rest], shown[4 * sizeof piece];

	while (w->live >= 0 && size > 0) {
		size_t n = size < PIECE ? size : PIECE, shown_size, used;

		memcpy(piece, w->rest, w->rest_size);
		memcpy(piece + w->rest_size, data, n);
		data += n;
		size -= n;
		n += w->rest_size;
		used = terminal_escape(piece, n, false, shown, &shown_size);
		w->rest_size = n - used < sizeof w->rest ? n - used : 0;
		memcpy(w->rest, piece + used, w->rest_size);
		put(w, w->live, shown, shown_size);
	}
}

static void end_line(struct show *w)
{
	w->rest_size = 0;
	if (w->live >= 0 && w->in_line)
		put(w, w->live, "\n", 1);
	w->in_line = false;
}

void show_block(FILE *f, const char *text, size_t size, const char *indent, size_t lines)
{
	while (size > 0) {
		const char *end = memchr(text, '\n', size);
		size_t n = end ? (size_t)(end - text) : size, at = 0;

		if (lines-- == 0) {
			fprintf(f, "%s... (%zu more bytes)\n", indent, size);
			return;
		}
		fputs(indent, f);
		while (at < n) {
			char shown[4 * PIECE];
			size_t piece = n - at < PIECE ? n - at : PIECE, shown_size;
			size_t used = terminal_escape(text + at, piece, at + piece == n, shown,
						      &shown_size);

			fwrite(shown, 1, shown_size, f);
			at += used ? used : piece;
		}
		fputc('\n', f);
		text += n + (end ? 1 : 0);
		size -= n + (end ? 1 : 0);
	}
}

void show_said(struct show *w, const struct answer *a)
{
	if (w->live >= 0)
		end_line(w);
	else if (!w->quiet && a->call_count > 0)
		show_block(stderr, a->text.data ? a->text.data : "", a->text.size, "", SIZE_MAX);
}

/* The first line that says something, cut to fit. */
static void put_short(const char *text)
{
	char shown[4 * SHORT];
	size_t blank = strspn(text, " \t\r\n"), n = strcspn(text + blank, "\r\n"), size;
	bool cut = n > SHORT, more = text[blank + n + strspn(text + blank + n, " \t\r\n")] != '\0';
	ssize_t whole;

	if (cut) {
		whole = utf8_prefix(text + blank, SHORT, true);
		n = whole > 0 ? (size_t)whole : SHORT;
	}
	terminal_escape(text + blank, n, true, shown, &size);
	for (size_t i = 0; i < size; i++)
		fputc(shown[i] == '\t' ? ' ' : shown[i], stderr);
	if (cut || more)
		fputs(" ...", stderr);
}

static void put_head(const struct show *w, const struct use *u, size_t number)
{
	char name[64];

	snprintf(name, sizeof name, "%s", u->call->name);
	fprintf(stderr, "%s[%zu] ", w->colour ? "\033[2m" : "", number);
	put_short(name);
}

static void put_tail(const struct show *w)
{
	fputs(w->colour ? "\033[0m\n" : "\n", stderr);
}

/* What a call is about: its code, its command, its path. */
static const char *gist_of(const struct use *u)
{
	static const char *const keys[] = {"code", "command", "path", "sandbox"};

	for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
		const char *text = json_string_value(json_object_get(u->arguments, keys[i]));

		if (text)
			return text;
	}
	return "";
}

void show_call(struct show *w, const struct use *u, size_t number)
{
	if (w->quiet)
		return;
	put_head(w, u, number);
	fputs(": ", stderr);
	put_short(gist_of(u));
	put_tail(w);
}

void show_outcome(struct show *w, const struct use *u, size_t number)
{
	const json_t *code = json_object_get(u->structured, "exit_code");
	const char *reason = json_string_value(json_object_get(u->structured, "reason"));
	const char *out = json_string_value(json_object_get(u->structured, "stdout"));
	const char *err = json_string_value(json_object_get(u->structured, "stderr"));
	const char *last = err && *err ? strrchr(err, '\n') : NULL;

	if (w->quiet)
		return;
	put_head(w, u, number);
	if (!reason) {
		fputs(" -> ", stderr);
		put_short(u->text ? u->text : "");
		put_tail(w);
		return;
	}
	/* The last line of a traceback says it. */
	while (last && last > err && (last[1] == '\0' || *last != '\n'))
		last--;
	if (json_is_integer(code))
		fprintf(stderr, " -> exit %lld", (long long)json_integer_value(code));
	else
		fprintf(stderr, " -> %.32s", reason);
	fprintf(stderr, " in %.0f ms: ", (double)u->took_us / 1000);
	put_short(u->is_error && err && *err ? last ? last : err : out ? out : "");
	put_tail(w);
}

void show_note(struct show *w, const char *format, ...)
{
	char text[1024];
	va_list ap;

	if (w->quiet)
		return;
	va_start(ap, format);
	vsnprintf(text, sizeof text, format, ap);
	va_end(ap);
	fputs("cloche: ", stderr);
	show_block(stderr, text, strlen(text), "", 1);
}

void show_error(struct show *w, const struct err *e)
{
	if (w->live >= 0)
		end_line(w);
	terminal_error(e);
}

int show_answer(struct show *w, const char *text, size_t size)
{
	if (w->live == 1) /* it was there while it came */
		return 0;
	if (fd_write_all(1, text, size) < 0)
		return -1;
	return size > 0 && text[size - 1] == '\n' ? 0 : fd_write_all(1, "\n", 1);
}
