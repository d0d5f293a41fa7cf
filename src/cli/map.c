/* SPDX-License-Identifier: Apache-2.0 */
/*
 * map.c - the loop of --map: read lines, give them away, write the answers in order, show how far it is.
 *
 * One thread, one poll. A line is read when there is room for it: those that are not written are bounded in
 * number and bytes, so a file of any length goes through the same memory, and whoever does not read our output stops
 * the reading of our input. Each answer is written as soon as those before it are: what has been written is
 * there whatever happens next, and --resume counts on it.
 *
 * The first Ctrl-C (or SIGTERM) begins nothing more and lets what runs come to its end; the second ends that too; the
 * third ends us. Answers that are complete by then are written, in order, though some between them are missing.
 */
#include "cli/map.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/json.h"
#include "base/splitter.h"
#include "base/units.h"

enum {
	WINDOW = 2048, /* lines that are not written */
	PIECE = 1 << 16,
	PIPE_PIECE = 4096, /* PIPE_BUF: what a pipe that has room takes without blocking */
	HELD_MS = 8000,    /* the service hangs up on whoever takes nothing for 30 s */
	SHOW_MS = 250,
	MOST_JOBS = 1024,
};
#define WINDOW_BYTES (16u << 20)

struct map {
	const struct map_order *o;
	const struct map_way *way;
	void *w;
	int in, out;
	bool out_is_file, progress;
	uint64_t in_size, in_read; /* in_size 0: not known */
	struct splitter lines;
	struct map_seen seen;
	struct map_line *first, **last;
	size_t count, bytes, first_sent;
	uint64_t index, ok, failed, errors, skipped, dropped;
	uint64_t began_us, shown_us, skipped_end, written_end;
	unsigned signals;
	bool dry; /* what was read has no whole line any more */
	bool input_ended, closed, over, fatal;
	struct err why; /* of fatal */
};

/* ---- how far it is ---- */

static void show(struct map *m, bool now)
{
	uint64_t us = now_us(), done = m->ok + m->failed + m->errors;
	double seconds = (double)(us - m->began_us) / 1e6, part = 0, left;
	char rest[64] = "";

	if (!m->progress || (!now && us - m->shown_us < SHOW_MS * 1000))
		return;
	m->shown_us = us;
	if (m->in_size > m->skipped_end && m->written_end > m->skipped_end)
		part = (double)(m->written_end - m->skipped_end) /
		       (double)(m->in_size - m->skipped_end);
	if (part > 0) {
		left = seconds / part - seconds;
		snprintf(rest, sizeof rest, ", %.0f%%, %d:%02d left", part * 100, (int)left / 60,
			 (int)left % 60);
	}
	fprintf(stderr, "\r\033[K%llu done, %llu failed, %llu errors, %.0f/s%s",
		(unsigned long long)done, (unsigned long long)m->failed,
		(unsigned long long)m->errors, seconds > 0 ? (double)done / seconds : 0.0, rest);
	fflush(stderr);
}

static void hide(const struct map *m)
{
	if (m->progress)
		fputs("\r\033[K", stderr);
}

/* ---- the end before the end ---- */

static void give_up(struct map *m, const struct err *e)
{
	if (m->fatal)
		return;
	m->fatal = true;
	m->why = *e;
	m->closed = true;
	m->way->abort(m->w);
}

static void take_signal(struct map *m)
{
	struct signalfd_siginfo info;

	if (read(m->o->cancel_fd, &info, sizeof info) != sizeof info)
		return;
	m->signals++;
	m->closed = true;
	if (m->signals > 1) {
		m->way->abort(m->w);
		return;
	}
	m->way->close(m->w, true);
	hide(m);
	if (!m->o->quiet && m->count > 0)
		fputs("cloche: stopping: what runs comes to its end; once more ends it\n", stderr);
}

/* ---- reading ---- */

static bool has_room(const struct map *m)
{
	return !m->closed && m->count < WINDOW && m->bytes < WINDOW_BYTES && m->way->wants(m->w);
}

static bool is_blank(const char *line, size_t size)
{
	for (size_t i = 0; i < size; i++)
		if (line[i] != ' ' && line[i] != '\t' && line[i] != '\r')
			return false;
	return true;
}

static struct map_line *line_new(struct map *m)
{
	struct map_line *l = calloc(1, sizeof *l);

	if (!l)
		return NULL;
	l->index = m->index++;
	l->end = m->in_read - m->lines.left.size;
	*m->last = l;
	m->last = &l->next;
	m->count++;
	return l;
}

static int take_text(struct map *m, const char *text, size_t size, bool too_long, struct err *e)
{
	struct err why = {0};
	struct map_line *l;
	int r;

	if (!too_long && is_blank(text, size))
		return 0;
	if (map_seen_has(&m->seen, m->index)) {
		m->index++;
		m->skipped++;
		m->skipped_end = m->in_read - m->lines.left.size;
		return 0;
	}
	l = line_new(m);
	if (!l)
		return err_set(e, ENOMEM, "read a line");
	if (too_long) {
		err_set(&why, 0, "the line is longer than %u bytes", JSON_MAX_BYTES);
		r = map_line_problem(l, MAP_TOO_LARGE, &why, e);
	} else if (map_line_read(l, text, size, m->o->language, &why) == 0) {
		m->bytes += size;
		l->held = size;
		return m->way->give(m->w, l, e);
	} else {
		r = map_line_problem(l, MAP_INVALID, &why, e);
	}
	l->ready = r == 0;
	return r;
}

/* As many lines as there is room for. */
static int take_lines(struct map *m, struct err *e)
{
	const char *line = NULL;
	size_t size = 0;

	while (has_room(m)) {
		enum splitter_answer a = splitter_next(&m->lines, m->input_ended, &line, &size);

		if (a == SPLITTER_NONE && m->input_ended) {
			m->closed = true;
			m->way->close(m->w, false);
		}
		m->dry = a == SPLITTER_NONE;
		if (m->dry)
			break;
		if (take_text(m, line, size, a == SPLITTER_TOO_LONG, e) < 0)
			return -1;
	}
	return 0;
}

static int read_input(struct map *m, struct err *e)
{
	char data[PIECE];
	ssize_t n = read(m->in, data, sizeof data);

	if (n < 0 && (errno == EINTR || errno == EAGAIN))
		return 0;
	if (n < 0)
		return err_set(e, errno, "read %.200s", m->o->options.file);
	m->input_ended = n == 0;
	m->dry = false;
	m->in_read += (uint64_t)n;
	return splitter_put(&m->lines, data, (size_t)n) < 0 ? err_set(e, ENOMEM, "read a line") : 0;
}

/* ---- writing ---- */

static void line_free(struct map_line *l)
{
	json_decref(l->request);
	json_decref(l->tag);
	free(l->text);
	free(l->answer);
	free(l);
}

static void drop_first(struct map *m)
{
	struct map_line *l = m->first;
	uint64_t *const counts[] = {[MAP_OPEN] = &m->dropped,
				    [MAP_OK] = &m->ok,
				    [MAP_FAILED] = &m->failed,
				    [MAP_ERROR] = &m->errors,
				    [MAP_DROPPED] = &m->dropped};

	++*counts[l->outcome];
	m->written_end = l->end;
	m->first = l->next;
	if (!m->first)
		m->last = &m->first;
	m->first_sent = 0;
	m->count--;
	m->bytes -= l->held;
	line_free(l);
}

static bool may_write(const struct map *m)
{
	struct pollfd p = {m->out, POLLOUT, 0};

	return m->out_is_file || poll(&p, 1, 0) > 0;
}

/* Whole answers to a file; to a pipe what goes without waiting. */
static int write_some(struct map *m, struct err *e)
{
	while (m->first && m->first->ready) {
		struct map_line *l = m->first;
		size_t left = l->answer_size - m->first_sent;
		ssize_t n;

		if (left == 0) {
			drop_first(m);
			continue;
		}
		if (!may_write(m))
			return 0;
		if (!m->out_is_file && left > PIPE_PIECE)
			left = PIPE_PIECE;
		n = write(m->out, l->answer + m->first_sent, left);
		if (n < 0 && (errno == EINTR || errno == EAGAIN))
			return 0;
		if (n < 0)
			return err_set(e, errno, "write the results");
		m->first_sent += (size_t)n;
	}
	return 0;
}

/* ---- the loop ---- */

enum { ON_INPUT, ON_OUTPUT, ON_SIGNAL, ON_WAY, ON_COUNT };

/* The reader of our output is behind: the service is not read either, but for a sign of life. */
static bool is_held(const struct map *m)
{
	return m->first && m->first->ready && m->count >= WINDOW / 2;
}

/* Wait for something to do. The number of descriptors that are ready, or -1. */
static int wait_for(struct map *m, bool held, struct pollfd p[ON_COUNT], struct err *e)
{
	bool room = has_room(m);
	int wait_ms = -1, n;

	p[ON_INPUT] = (struct pollfd){m->dry && room && !m->input_ended ? m->in : -1, POLLIN, 0};
	p[ON_OUTPUT] = (struct pollfd){m->first && m->first->ready ? m->out : -1, POLLOUT, 0};
	p[ON_SIGNAL] = (struct pollfd){m->o->cancel_fd, POLLIN, 0};
	p[ON_WAY] = m->way->poll(m->w, &wait_ms);
	if (held) {
		p[ON_WAY].fd = -1;
		wait_ms = HELD_MS;
	}
	if (m->progress)
		wait_ms = SHOW_MS;
	if (!m->dry && room) /* what was read is enough to go on */
		wait_ms = 0;
	n = poll(p, ON_COUNT, wait_ms);
	if (n < 0 && errno != EINTR)
		return err_set(e, errno, "wait for results");
	for (int i = 0; i < ON_COUNT && n < 0; i++)
		p[i].revents = 0;
	return n < 0 ? 0 : n;
}

static int serve(struct map *m, short revents, struct err *e)
{
	int r = m->over ? 1 : m->way->serve(m->w, revents, e);

	m->over |= r > 0;
	return r < 0 ? -1 : 0;
}

static int turn(struct map *m, struct err *e)
{
	struct pollfd p[ON_COUNT];
	bool held = is_held(m);
	int n = wait_for(m, held, p, e);

	if (n < 0)
		return -1;
	if (p[ON_SIGNAL].revents)
		take_signal(m);
	if (p[ON_INPUT].revents && read_input(m, e) < 0)
		return -1;
	if (take_lines(m, e) < 0)
		return -1;
	if ((!held || n == 0) && serve(m, p[ON_WAY].revents, e) < 0)
		return -1;
	return write_some(m, e);
}

static void loop(struct map *m)
{
	struct err e = {0};

	while (!(m->over && !m->first) && m->signals < 3) {
		if (turn(m, &e) < 0) {
			bool again = m->fatal;

			give_up(m, &e);
			if (again) /* not even what was complete can be written */
				break;
		}
		show(m, false);
	}
}

/* ---- beginning and end ---- */

static int open_input(struct map *m, struct err *e)
{
	const char *file = m->o->options.file;
	struct stat st;

	m->in = strcmp(file, "-") == 0 ? 0 : open(file, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	if (m->in < 0 || fstat(m->in, &st) < 0)
		return err_set(e, errno, "open %.200s", file);
	if (S_ISDIR(st.st_mode))
		return err_set(e, EISDIR, "open %.200s", file);
	m->in_size = S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0;
	return 0;
}

static int begin(struct map *m, struct err *e)
{
	const struct map_order *o = m->o;
	uint64_t jobs = 0;
	struct stat st;

	if (o->options.jobs && parse_count(o->options.jobs, 1, MOST_JOBS, &jobs) < 0)
		return err_set(e, 0, "--jobs %.60s: give a number from 1 to %d", o->options.jobs,
			       MOST_JOBS);
	if (open_input(m, e) < 0)
		return -1;
	m->out = map_results_open(&o->options, &m->seen, e);
	if (m->out < 0)
		return -1;
	m->out_is_file = fstat(m->out, &st) == 0 && S_ISREG(st.st_mode);
	m->progress = !o->quiet && isatty(2);
	m->way = o->service ? &map_there : &map_here;
	if (o->service && spec_finish_sandbox(o->spec, e) < 0)
		return -1;
	m->w = m->way->begin(o, (unsigned)jobs, e);
	return m->w ? 0 : -1;
}

/* What is left to say, and the exit status. */
static int conclude(struct map *m)
{
	unsigned long long done = m->ok + m->failed + m->errors;
	const char *more = m->o->options.results ? "; --resume goes on from there" : "";
	struct err e = {0};

	if (m->progress) {
		show(m, true);
		fputc('\n', stderr);
	}
	if (m->fatal) {
		e = m->why;
		fail(0, &e);
	}
	if (m->signals || m->fatal) {
		err_set(&e, 0, "%s after %llu lines: the rest has no result%s",
			m->signals ? "interrupted" : "ended", done, more);
		return fail(m->signals && !m->fatal ? 130 : EXIT_CLOCHE, &e);
	}
	if (m->errors && !m->o->quiet) {
		err_set(&e, 0, "%llu of %llu lines have no result: their \"error\" says why",
			(unsigned long long)m->errors, done);
		fail(0, &e);
	}
	return m->errors ? EXIT_CLOCHE : m->failed ? 1 : 0;
}

int map_run(const struct map_order *o)
{
	struct map m = {.o = o,
			.dry = true,
			.in = -1,
			.out = -1,
			.lines = {.most = JSON_MAX_BYTES},
			.began_us = now_us()};
	struct err e = {0};
	int status;

	m.last = &m.first;
	if (begin(&m, &e) < 0) {
		status = fail(e.code || e.errnum ? EXIT_CLOCHE : EXIT_USAGE, &e);
	} else {
		loop(&m);
		m.way->done(m.w);
		status = conclude(&m);
	}
	while (m.first)
		drop_first(&m);
	splitter_done(&m.lines);
	map_seen_done(&m.seen);
	if (m.in > 0)
		close(m.in);
	if (m.out > 1 && close(m.out) < 0 && status < EXIT_CLOCHE) {
		err_set(&e, errno, "write %.200s", o->options.results);
		status = fail(EXIT_CLOCHE, &e);
	}
	return status;
}
