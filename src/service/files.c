/* SPDX-License-Identifier: Apache-2.0 */
/*
 * files.c - one file or folder at a time: every path is looked up inside the sandbox, by its init's worker,
 * as its user.
 */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/base64.h"
#include "service/ask.h"
#include "service/handlers.h"

/* What a request in work holds. */
struct file_work {
	json_t *rows;
	uint64_t size; /* of the answer */
	struct read_record read;
	bool measured; /* the first look told the size; the bytes come by a second request */
	bool ranged, truncated;
	char path[4096];
};

static struct file_work *work_of(struct call *c)
{
	return c->data;
}

static void drop(struct call *c)
{
	json_decref(work_of(c)->rows);
}

/* The path parameter, checked, or the call is answered. */
static struct file_work *begin(struct call *c)
{
	struct file_work *w = calloc(1, sizeof *w);
	const char *path = exchange_query(c->x, "path");
	struct err e = {0};

	c->data = w;
	if (w)
		c->release = drop;
	if (!w) {
		e.code = PROBLEM_UNAVAILABLE;
	} else if (check_path("path", path, path ? strlen(path) : 0, &e) == 0) {
		snprintf(w->path, sizeof w->path, "%s", path);
		return w;
	}
	call_problem(c, &e);
	return NULL;
}

static const char *type_name(uint32_t mode)
{
	return S_ISREG(mode)   ? "file"
	       : S_ISDIR(mode) ? "directory"
	       : S_ISLNK(mode) ? "symlink"
			       : "other";
}

/* A name from inside may be any bytes: as text where it is UTF-8, else as base64 under another key. */
static void set_name(json_t *j, const char *key, const char *name)
{
	_cleanup_free_ char *text = NULL;
	char other[32];
	size_t n;

	if (utf8_prefix(name, strlen(name), false) == (ssize_t)strlen(name)) {
		json_object_set_new(j, key, json_string(name));
		return;
	}
	snprintf(other, sizeof other, "%s_base64", key);
	text = base64_encode(name, strlen(name), &n);
	json_object_set_new(j, key, json_null());
	json_object_set_new(j, other, text ? json_stringn(text, n) : json_null());
}

static json_t *entry_json(const struct entry_record *r, const char *key, const char *name,
			  const char *target)
{
	char mode[8];
	json_t *j;

	snprintf(mode, sizeof mode, "%04o", r->mode & 07777);
	j = json_pack("{ss sI ss sI sI so}", "type", type_name(r->mode), "size",
		      (json_int_t)r->size_bytes, "mode", mode, "uid", (json_int_t)r->uid, "gid",
		      (json_int_t)r->gid, "modified_at",
		      time_json(r->mtime > 0 ? r->mtime * 1000 : 1));
	if (!j)
		return NULL;
	set_name(j, key, name);
	json_object_set_new(j, "target", json_null());
	if (S_ISLNK(r->mode))
		set_name(j, "target", target);
	return j;
}

/* ---- stat and list ---- */

static bool on_stat(struct call *c, const struct frame *f, const unsigned char *payload)
{
	struct file_work *w = work_of(c);
	struct entry_record r;
	const char *name, *target;

	if (f->type != FRAME_ENTRY || w->rows ||
	    entry_record_decode(payload, f->size, ENTRY_STAT, &r, &name, &target) < 0)
		return false;
	w->rows = entry_json(&r, "path", w->path, target);
	return w->rows != NULL;
}

static void on_stat_done(struct call *c)
{
	struct file_work *w = work_of(c);

	call_reply(c, 200, TAKE_PTR(w->rows));
}

static const struct asking stating = {on_stat, on_stat_done, NULL};

void files_stat(struct call *c)
{
	struct file_work *w = begin(c);

	if (w)
		ask(c, &stating, FRAME_STAT, w->path, strlen(w->path) + 1, NULL, 0);
}

static bool on_child(struct call *c, const struct frame *f, const unsigned char *payload)
{
	struct file_work *w = work_of(c);
	struct entry_record r;
	const char *name, *target;

	if (f->type != FRAME_ENTRY ||
	    entry_record_decode(payload, f->size, ENTRY_CHILD, &r, &name, &target) < 0)
		return false;
	if (json_array_size(w->rows) == w->size) {
		w->truncated = true; /* one more was asked for, to know */
		return true;
	}
	return json_array_append_new(w->rows, entry_json(&r, "name", name, target)) == 0;
}

static void on_list_done(struct call *c)
{
	struct file_work *w = work_of(c);

	call_reply(c, 200,
		   json_pack("{so sb}", "entries", TAKE_PTR(w->rows), "truncated",
			     (int)w->truncated));
}

static const struct asking listing = {on_child, on_list_done, NULL};

void files_list(struct call *c)
{
	struct file_work *w = begin(c);
	struct err e = {0};
	uint32_t most;

	if (!w)
		return;
	if (call_number(c, "limit", 10000, 100000, &w->size, &e) < 0) {
		call_problem(c, &e);
		return;
	}
	w->rows = json_array();
	most = (uint32_t)w->size + 1;
	ask(c, &listing, FRAME_READDIR, &most, sizeof most, w->path, strlen(w->path) + 1);
}

/* ---- read ---- */

/* "bytes=A-B", "bytes=A-" or "bytes=-N"; one range. False: no such form, the whole file is the answer. */
static bool read_range(const char *text, uint64_t size, uint64_t *from, uint64_t *length)
{
	unsigned long long a, b;
	char *end;

	if (strncmp(text, "bytes=", 6) != 0 || strchr(text, ','))
		return false;
	text += 6;
	if (*text == '-') {
		b = strtoull(text + 1, &end, 10);
		if (end == text + 1 || *end)
			return false;
		*from = b < size ? size - b : 0;
		*length = size - *from;
		return true;
	}
	a = strtoull(text, &end, 10);
	if (end == text || *end != '-')
		return false;
	text = end + 1;
	b = *text ? strtoull(text, &end, 10) : UINT64_MAX - 1;
	if ((*text && *end) || b < a)
		return false;
	*from = a;
	*length = a >= size ? 0 : (b < size ? b + 1 : size) - a;
	return true;
}

static void read_from(struct call *c);

static void begin_answer(struct call *c, uint64_t size, int64_t mtime)
{
	struct file_work *w = work_of(c);
	const char *range = exchange_field(c->x, "range");
	uint64_t from = 0, length = size;
	char fields[128] = "Accept-Ranges: bytes\r\n";
	struct err e = {0};

	(void)mtime;
	if (range && read_range(range, size, &from, &length)) {
		if (from >= size) {
			problem_set(&e, PROBLEM_RANGE_NOT_SATISFIABLE, "the file has %llu bytes",
				    (unsigned long long)size);
			call_problem(c, &e);
			return;
		}
		snprintf(fields, sizeof fields, "Content-Range: bytes %llu-%llu/%llu\r\n",
			 (unsigned long long)from, (unsigned long long)(from + length - 1),
			 (unsigned long long)size);
		w->ranged = true;
	}
	w->size = strcmp(exchange_method(c->x), "HEAD") == 0 ? 0 : length;
	exchange_begin(c->x, w->ranged ? 206 : 200, "application/octet-stream", fields, length);
	if (w->read.length != 0 || w->size == 0)
		return;
	w->measured = true;
	box_hang_up(c->box, TAKE_PTR(c->talk));
	w->read = (struct read_record){from, length};
	read_from(c);
}

static bool on_read(struct call *c, const struct frame *f, const unsigned char *payload)
{
	struct file_work *w = work_of(c);
	struct entry_record r;
	const char *name, *target;

	if (f->type == FRAME_ENTRY && !exchange_began(c->x) &&
	    entry_record_decode(payload, f->size, ENTRY_STAT, &r, &name, &target) == 0) {
		begin_answer(c, r.size_bytes, r.mtime);
		return true;
	}
	if (f->type == FRAME_ENTRY && w->measured)
		return true;
	if (f->type == FRAME_EOF)
		return true;
	if (f->type != FRAME_DATA || !exchange_began(c->x))
		return false;
	/* A file that grows meanwhile: what was announced is sent, no more. */
	{
		size_t n = f->size < w->size ? f->size : (size_t)w->size;

		w->size -= n;
		if (n && !exchange_write(c->x, payload, n))
			talk_pause(c->talk);
	}
	return true;
}

static void on_read_done(struct call *c)
{
	struct exchange *x = c->x;
	bool complete = work_of(c)->size == 0;

	c->service->metrics.requests[2]++;
	call_free(c);
	exchange_end(x, complete);
}

static const struct asking reading = {.on_frame = on_read,
				      .on_done = on_read_done,
				      .not_a_folder = PROBLEM_NOT_FOUND};

static void on_reader_room(struct exchange *x)
{
	struct call *c = exchange_data(x);

	if (c->talk)
		talk_resume(c->talk);
}

static void read_from(struct call *c)
{
	struct file_work *w = work_of(c);

	ask(c, &reading, FRAME_READ, &w->read, sizeof w->read, w->path, strlen(w->path) + 1);
}

void files_read(struct call *c)
{
	struct file_work *w = begin(c);

	if (!w)
		return;
	c->ops.on_room = on_reader_room;
	w->read.length = UINT64_MAX;
	if (exchange_field(c->x, "range") || strcmp(exchange_method(c->x), "HEAD") == 0)
		w->read.length = 0; /* first how large it is */
	read_from(c);
}

/* ---- write ---- */

static void on_written(struct call *c)
{
	call_reply(c, 204, NULL);
}

static void on_talk_room(struct call *c)
{
	exchange_resume(c->x);
}

static const struct asking writing = {NULL, on_written, on_talk_room};

static void on_body(struct exchange *x, const void *data, size_t size)
{
	struct call *c = exchange_data(x);
	bool room = true;

	for (size_t done = 0; done < size && c->talk;) {
		size_t n = size - done < FRAME_DATA_MAX ? size - done : FRAME_DATA_MAX;

		room = talk_send(c->talk, FRAME_DATA, (const char *)data + done, n, NULL, 0);
		done += n;
	}
	if (!room)
		exchange_pause(x);
}

static void on_body_end(struct exchange *x)
{
	struct call *c = exchange_data(x);

	if (c->talk)
		talk_send(c->talk, FRAME_EOF, NULL, 0, NULL, 0);
}

static int read_mode(struct call *c, uint32_t *ret, struct err *e)
{
	const char *text = exchange_query(c->x, "mode");
	char *end;
	unsigned long v;

	*ret = 0;
	if (!text)
		return 0;
	v = strtoul(text, &end, 8);
	if (strlen(text) < 3 || strlen(text) > 4 || *end || v > 0777)
		return err_set(e, 0, "mode: must be octal permission bits such as 0644");
	*ret = (uint32_t)v;
	return 0;
}

void files_write(struct call *c)
{
	struct file_work *w = begin(c);
	struct write_record r = {0};
	struct err e = {0};

	if (!w)
		return;
	if (read_mode(c, &r.mode, &e) < 0) {
		call_problem(c, &e);
		return;
	}
	r.flags = (call_flag(c, "parents") ? WRITE_PARENTS : 0) |
		  (call_flag(c, "append") ? WRITE_APPEND : 0) |
		  (call_flag(c, "exclusive") ? WRITE_EXCLUSIVE : 0);
	c->ops.on_body = on_body;
	c->ops.on_body_end = on_body_end;
	ask(c, &writing, FRAME_WRITE, &r, sizeof r, w->path, strlen(w->path) + 1);
}

/* ---- make, move, remove ---- */

static void on_done(struct call *c)
{
	call_reply(c, 204, NULL);
}

static const struct asking plain = {NULL, on_done, NULL};

void files_remove(struct call *c)
{
	uint32_t recursive = call_flag(c, "recursive");
	struct file_work *w = begin(c);

	if (w)
		ask(c, &plain, FRAME_REMOVE, &recursive, sizeof recursive, w->path,
		    strlen(w->path) + 1);
}

/* A string of the body; NULL with e when it is no path. */
static const char *body_path(const struct call *c, const char *key, struct err *e)
{
	json_t *v = json_object_get(c->body, key);
	const char *text = json_is_string(v) ? json_string_value(v) : NULL;

	return check_path(key, text, text ? json_string_length(v) : 0, e) < 0 ? NULL : text;
}

/* Only these keys, and the flag among them true or false. */
static int body_flag(const struct call *c, const char *flag, size_t others, bool *ret,
		     struct err *e)
{
	json_t *v = json_object_get(c->body, flag);

	if (!json_is_object(c->body) || json_object_size(c->body) > others + (v ? 1 : 0))
		return err_set(e, 0, "unknown fields in the body");
	if (v && !json_is_boolean(v))
		return err_set(e, 0, "%s: must be true or false", flag);
	*ret = json_is_true(v);
	return 0;
}

void files_mkdir(struct call *c)
{
	json_t *mode = json_object_get(c->body, "mode");
	struct write_record r = {0};
	struct err e = {0};
	const char *path;
	bool parents = false;

	path = body_path(c, "path", &e);
	if (path && body_flag(c, "parents", mode ? 2 : 1, &parents, &e) == 0) {
		const char *text = json_is_string(mode) ? json_string_value(mode) : "";
		char *end = (char *)(uintptr_t) "";

		if (mode)
			r.mode = (uint32_t)strtoul(text, &end, 8);
		r.flags = parents ? WRITE_PARENTS : 0;
		if (!mode || (strlen(text) >= 3 && strlen(text) <= 4 && !*end && r.mode <= 0777)) {
			ask(c, &plain, FRAME_MKDIR, &r, sizeof r, path, strlen(path) + 1);
			return;
		}
		err_set(&e, 0, "mode: must be octal permission bits such as \"0755\"");
	}
	call_problem(c, &e);
}

void files_move(struct call *c)
{
	struct err e = {0};
	const char *from = body_path(c, "from", &e), *to = from ? body_path(c, "to", &e) : NULL;
	char both[2 * 4096];
	uint32_t replace;
	bool flag = false;
	size_t n;

	if (!to || body_flag(c, "replace", 2, &flag, &e) < 0) {
		call_problem(c, &e);
		return;
	}
	replace = flag;
	n = strlen(from) + 1;
	memcpy(both, from, n);
	memcpy(both + n, to, strlen(to) + 1);
	ask(c, &plain, FRAME_MOVE, &replace, sizeof replace, both, n + strlen(to) + 1);
}

/* ---- watch ---- */

static bool on_event(struct call *c, const struct frame *f, const unsigned char *payload)
{
	static const char *const names[] = {NULL,     "create",     "modify",  "remove",
					    "rename", "attributes", "overflow"};
	enum watch_event event;
	const char *name;
	json_t *j;

	if (f->type != FRAME_EVENT || !exchange_began(c->x) ||
	    watch_event_decode(payload, f->size, &event, &name) < 0)
		return false;
	j = json_pack("{ss}", "type", names[event]);
	if (j)
		set_name(j, "name", name);
	if (!reply_line(c->x, j))
		talk_pause(c->talk);
	return true;
}

static void on_watching(struct call *c)
{
	talk_limit(c->talk, 0);
	reply_lines_begin(c->x);
}

static const struct asking watching = {on_event, on_watching, NULL};

void files_watch(struct call *c)
{
	struct file_work *w = begin(c);

	if (!w)
		return;
	c->ops.on_room = on_reader_room;
	ask(c, &watching, FRAME_WATCH, w->path, strlen(w->path) + 1, NULL, 0);
}
