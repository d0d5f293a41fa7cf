/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cp.c - `cloche cp`: files and folders into and out of a sandbox.
 *
 * A folder travels as a tar. What comes out of a sandbox is hostile: its names and links are never
 * resolved here (client/untar.h), and a file gets the name the caller said, not one from inside.
 */
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

#include "base/end_signals.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/units.h"
#include "cli/remote.h"
#include "client/tar_make.h"
#include "client/untar.h"

enum { REMARKS = 10 };
#define MAX_SIZE_DEFAULT "16g"

struct cp {
	bool links, quiet;
	const char *max_size;
	uint64_t max_bytes;
	struct remote r;
	int signals;
	/* the side in the sandbox */
	const char *sandbox;
	char path[SPEC_PATH_SIZE * 16];
	char target[TARGET_SIZE];
	bool contents; /* SRC/.: what is in it */
	bool into;     /* DST/: a folder */
	/* progress, on a terminal */
	uint64_t bytes, shown_us;
	bool show;
};

#define FIELD(name) offsetof(struct cp, name)
const struct cli_option cp_options[] = {
	{"links", 0, NULL, "out of a sandbox: also make links, which may point anywhere",
	 FIELD(links)},
	{"max-size", 0, "SIZE", "out of a sandbox: the most to write [" MAX_SIZE_DEFAULT "]",
	 FIELD(max_size)},
	{"quiet", 'q', NULL, "no progress and no remarks", FIELD(quiet)},
	{NULL},
};
#undef FIELD

static unsigned remarks_left;

static void remark_left_out(const char *path, const char *why)
{
	struct err e;

	if (remarks_left == 0)
		return;
	remarks_left--;
	err_set(&e, 0, "left out: %.500s: %s", path, why);
	fail(0, &e);
}

static void progress(struct cp *c, size_t size, bool end)
{
	uint64_t now = now_us();

	c->bytes += size;
	if (!c->show || (!end && now - c->shown_us < 200000))
		return;
	c->shown_us = now;
	fprintf(stderr, "\r%.1f MB%s", (double)c->bytes / 1e6, end ? "\r\033[K" : "");
}

/* "ID:PATH", if this is such a thing: no slash in front of the first colon. */
static bool parse_side(struct cp *c, char *text)
{
	char *colon = strchr(text, ':'), *path;
	size_t n;

	if (!colon || memchr(text, '/', (size_t)(colon - text)))
		return false;
	*colon = '\0';
	if (!is_id(text)) {
		*colon = ':';
		return false;
	}
	path = colon + 1;
	c->sandbox = text;
	n = (size_t)snprintf(c->path, sizeof c->path, "%s%s", *path == '/' ? "" : "/workspace/",
			     path);
	if (n >= sizeof c->path) {
		c->path[0] = '\0'; /* refused by prepare() */
		return true;
	}
	if (n >= 2 && strcmp(c->path + n - 2, "/.") == 0) {
		c->contents = true;
		c->path[--n] = '\0';
	}
	c->into = c->path[n - 1] == '/';
	while (n > 1 && c->path[n - 1] == '/')
		c->path[--n] = '\0';
	return true;
}

/* "/v1/sandboxes/ID/WHAT?path=PATH" and more behind it. */
static int make_target(struct cp *c, const char *what, const char *more, struct err *e)
{
	size_t n;

	if (!c->path[0])
		return err_set(e, ENAMETOOLONG, "path in the sandbox");
	if (sandbox_target(c->target, c->sandbox, e, "/%s?path=", what) < 0)
		return -1;
	n = strlen(c->target);
	if (url_encode(c->path, c->target + n, sizeof c->target - n - strlen(more)) < 0)
		return err_set(e, ENAMETOOLONG, "path in the sandbox");
	memcpy(c->target + strlen(c->target), more, strlen(more) + 1);
	return 0;
}

/* The type of c->path inside: 'f', 'd', 'o'ther, 0: not there; -1 with e. */
static int stat_inside(struct cp *c, struct err *e)
{
	_cleanup_answer_ struct answer a = {0};
	const char *type;

	if (make_target(c, "files/stat", "", e) < 0)
		return -1;
	if (remote_ask(&c->r, "GET", c->target, NULL, &a, e) < 0) {
		struct err ignored;

		/* Of the sandbox itself, or of the file? */
		answer_done(&a);
		if (strstr(e->text, "hung up") ||
		    sandbox_target(c->target, c->sandbox, &ignored, "%s", "") < 0 ||
		    remote_ask(&c->r, "GET", c->target, NULL, &a, &ignored) < 0 ||
		    strcmp(text_of(a.json, "state"), "ended") == 0)
			return -1;
		return 0;
	}
	type = text_of(a.json, "type");
	return strcmp(type, "directory") == 0 ? 'd' : strcmp(type, "file") == 0 ? 'f' : 'o';
}

static const char *last_part(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

struct receiver {
	struct cp *c;
	int fd;
	struct untar *untar;
};

static int take_bytes(void *context, const char *data, size_t size, struct err *e)
{
	struct receiver *v = context;
	int r = 0;

	progress(v->c, size, false);
	if (v->untar)
		return untar_feed(v->untar, data, size, e);
	if (v->c->bytes > v->c->max_bytes)
		return err_set(e, 0, "more than %llu bytes (--max-size)",
			       (unsigned long long)v->c->max_bytes);
	r = fd_write_all(v->fd, data, size);
	return r < 0 ? err_set(e, -r, "write") : 0;
}

static int unhex(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* "2, d/f, g%20h": how many could not be read, and their names as far as there was room for them. */
static unsigned remark_skipped(const struct call *call)
{
	size_t size, i = 0, n = 0;
	const char *text = call_trailer(call, "cloche-skipped", &size);
	char name[PATH_MAX];
	uint64_t count = 0;

	if (!text)
		return 0;
	for (; i < size && text[i] >= '0' && text[i] <= '9' && count < UINT32_MAX; i++)
		count = count * 10 + (uint64_t)(text[i] - '0');
	for (; i <= size; i++) {
		bool coded = i + 2 < size && text[i] == '%' && unhex(text[i + 1]) >= 0 &&
			     unhex(text[i + 2]) >= 0;

		if (i == size || text[i] == ',') {
			name[n] = '\0';
			if (n > 0)
				remark_left_out(name, "it cannot be read");
			n = 0;
		} else if (text[i] != ' ' && n + 1 < sizeof name) {
			name[n++] = coded ? (char)(unhex(text[i + 1]) * 16 + unhex(text[i + 2]))
					  : text[i];
			i += coded ? 2 : 0;
		}
	}
	return (unsigned)count;
}

/* ret_skipped: what is below the folder and could not be read; NULL: no folder. */
static int get(struct cp *c, struct receiver *v, unsigned *ret_skipped, struct err *e)
{
	const struct request q = {.method = "GET",
				  .target = c->target,
				  .fields = ret_skipped ? "TE: trailers\r\n" : NULL,
				  .trailers = ret_skipped != NULL,
				  .sink = take_bytes,
				  .sink_context = v};
	_cleanup_call_ struct call *call = call_new(&c->r.service, &q, e);
	int r = call ? call_run(call, c->signals, e) : -1;

	progress(c, 0, true);
	if (r == 0 && ret_skipped)
		*ret_skipped = remark_skipped(call);
	return r;
}

/* A file to a path of ours: complete under its name, or not at all. */
static int get_file_to(struct cp *c, const char *path, struct err *e)
{
	struct receiver v = {.c = c, .fd = -1};
	_cleanup_free_ char *temporary = NULL;
	_cleanup_close_ int fd = -1;
	struct stat st;
	mode_t mask = umask(077);
	int r;

	umask(mask);
	if (stat(path, &st) == 0 && !S_ISREG(st.st_mode)) {
		fd = open(path, O_WRONLY | O_CLOEXEC); /* /dev/null, a pipe */
		v.fd = fd;
		return fd < 0 ? err_set(e, errno, "open %.300s", path) : get(c, &v, NULL, e);
	}
	if (asprintf(&temporary, "%s.cloche-XXXXXX", path) < 0) {
		temporary = NULL;
		return err_set(e, ENOMEM, "write %.300s", path);
	}
	fd = mkostemp(temporary, O_CLOEXEC);
	if (fd < 0)
		return err_set(e, errno, "write %.300s", path);
	v.fd = fd;
	r = get(c, &v, NULL, e);
	if (r == 0 && (fchmod(fd, 0666 & ~mask) < 0 || rename(temporary, path) < 0))
		r = err_set(e, errno, "write %.300s", path);
	if (r < 0)
		unlink(temporary);
	return r;
}

static bool is_folder(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* DST, or DST/NAME when DST is a folder; the caller frees. */
static char *choose_name(const char *dst, const char *name, struct err *e)
{
	size_t n = strlen(dst);
	char *path = NULL;
	int r;

	if (is_folder(dst))
		r = asprintf(&path, "%s%s%s", dst, n && dst[n - 1] == '/' ? "" : "/", name);
	else
		r = asprintf(&path, "%s", dst);
	if (r >= 0)
		return path;
	err_set(e, ENOMEM, "choose a name");
	return NULL;
}

static int sum_up(const struct cp *c, unsigned left_out)
{
	if (!c->quiet && left_out > REMARKS)
		fprintf(stderr, "cloche: left out %u in all\n", left_out);
	return left_out > 0;
}

static int get_folder_to(struct cp *c, const char *dst, struct err *e)
{
	_cleanup_free_ char *path =
		c->contents || !c->path[1] ? strdup(dst) : choose_name(dst, last_part(c->path), e);
	_cleanup_close_ int root = -1;
	struct untar *u;
	struct receiver v = {.c = c, .fd = -1};
	unsigned skipped = 0;
	int r;

	if (!path)
		return -1;
	if (mkdir(path, 0777) < 0 && errno != EEXIST)
		return err_set(e, errno, "make the folder %.300s", path);
	root = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (root < 0)
		return err_set(e, errno, "open the folder %.300s", path);
	u = malloc(sizeof *u);
	if (!u)
		return err_set(e, ENOMEM, "unpack");
	untar_init(u, root, c->links, c->max_bytes);
	u->left_out = remark_left_out;
	v.untar = u;
	r = get(c, &v, &skipped, e);
	if (r == 0)
		r = untar_end(u, e);
	if (r == 0)
		r = sum_up(c, u->left_out_count + skipped);
	untar_done(u);
	free(u);
	return r;
}

static int copy_out(struct cp *c, const char *dst, struct err *e)
{
	struct receiver v = {.c = c, .fd = 1};
	_cleanup_free_ char *path = NULL;
	unsigned skipped = 0;
	int type = stat_inside(c, e);

	if (type <= 0)
		return -1;
	if (type == 'o')
		return err_set(e, 0, "%.300s: neither a file nor a folder", c->path);
	if (make_target(c, type == 'd' ? "archive" : "files", "", e) < 0)
		return -1;
	if (strcmp(dst, "-") == 0)
		return get(c, &v, type == 'd' ? &skipped : NULL, e) < 0 ? -1 : sum_up(c, skipped);
	if (type == 'd')
		return get_folder_to(c, dst, e);
	if (c->into || c->contents)
		return err_set(e, ENOTDIR, "%.300s", c->path);
	path = choose_name(dst, last_part(c->path), e);
	return path ? get_file_to(c, path, e) : -1;
}

struct sender {
	struct cp *c;
	int fd;
	struct tar_maker *maker;
};

static ssize_t give_bytes(void *context, char *data, size_t room)
{
	struct sender *s = context;
	ssize_t n = s->maker ? tar_maker_read(s->maker, data, room) : read(s->fd, data, room);

	if (n < 0 && !s->maker)
		n = errno == EAGAIN ? -EIO : -errno;
	if (n > 0)
		progress(s->c, (size_t)n, false);
	return n;
}

static int put(struct cp *c, struct sender *s, const char *type, uint64_t size, struct err *e)
{
	const struct request q = {.method = "PUT",
				  .target = c->target,
				  .type = type,
				  .source = give_bytes,
				  .source_context = s,
				  .source_size = size};
	_cleanup_call_ struct call *call = call_new(&c->r.service, &q, e);
	int r = call ? call_run(call, c->signals, e) : -1;

	progress(c, 0, true);
	return r;
}

/* Into a folder that is there: below it, under the source's name. */
static int add_name(struct cp *c, const char *name, struct err *e)
{
	size_t n = strlen(c->path);
	int m = snprintf(c->path + n, sizeof c->path - n, "%s%s", n > 1 ? "/" : "", name);

	return m < 0 || (size_t)m >= sizeof c->path - n ? err_set(e, ENAMETOOLONG, "%.300s", name)
							: 0;
}

static int put_file(struct cp *c, int fd, const char *name, const struct stat *st, struct err *e)
{
	struct sender s = {.c = c, .fd = fd};
	int type = stat_inside(c, e);
	bool regular = S_ISREG(st->st_mode);
	char more[32];

	/* Nothing of that name is fine; a sandbox that cannot be asked is not. */
	if (type < 0 || ((type == 'd' || c->into) && add_name(c, name, e) < 0))
		return -1;
	snprintf(more, sizeof more, "&mode=0%o", st->st_mode & 0111 ? 0755u : 0644u);
	if (make_target(c, "files", more, e) < 0)
		return -1;
	return put(c, &s, "application/octet-stream", regular ? (uint64_t)st->st_size : UINT64_MAX,
		   e);
}

static int make_folder_inside(struct cp *c, struct err *e)
{
	_cleanup_answer_ struct answer a = {0};
	_cleanup_json_ json_t *body = json_object();

	if (json_object_set_new(body, "path", json_string(c->path)) < 0 ||
	    json_object_set_new(body, "parents", json_true()) < 0)
		return err_set(e, 0, "path in the sandbox is no UTF-8");
	if (sandbox_target(c->target, c->sandbox, e, "/files/mkdir") < 0)
		return -1;
	return remote_ask(&c->r, "POST", c->target, body, &a, e);
}

static int put_folder(struct cp *c, int fd, const char *name, bool contents, struct err *e)
{
	struct sender s = {.c = c, .fd = -1};
	int type = stat_inside(c, e), r;

	if (type < 0 || (!contents && (type == 'd' || c->into) && add_name(c, name, e) < 0))
		return -1;
	if (type != 'd' || !contents) {
		if (make_folder_inside(c, e) < 0)
			return -1;
	}
	if (make_target(c, "archive", "", e) < 0)
		return -1;
	s.maker = tar_maker_new(fd, e);
	if (!s.maker)
		return -1;
	r = put(c, &s, "application/x-tar", UINT64_MAX, e);
	if (r < 0 && e->errnum && e->errnum != ECANCELED)
		err_prefix(e, "%.300s", tar_maker_path(s.maker));
	if (r == 0 && tar_maker_left_out(s.maker) > 0) {
		if (!c->quiet)
			fprintf(stderr,
				"cloche: left out: %u that are no files, folders or links\n",
				tar_maker_left_out(s.maker));
		r = 1;
	}
	tar_maker_free(s.maker);
	return r;
}

/* stdin: a tar if the path is a folder, else the content of a file. */
static int put_stdin(struct cp *c, struct err *e)
{
	struct sender s = {.c = c, .fd = 0};
	int type = stat_inside(c, e);

	if (type < 0)
		return -1;
	if (type != 'd' && c->into)
		return err_set(e, 0, "%.300s: no such folder", c->path);
	if (make_target(c, type == 'd' ? "archive" : "files", type == 'd' ? "" : "&mode=0644", e) <
	    0)
		return -1;
	return put(c, &s, type == 'd' ? "application/x-tar" : "application/octet-stream",
		   UINT64_MAX, e);
}

static int copy_in(struct cp *c, char *src, struct err *e)
{
	_cleanup_close_ int fd = -1;
	size_t n = strlen(src);
	bool contents = strcmp(src, ".") == 0 || (n >= 2 && strcmp(src + n - 2, "/.") == 0);
	struct stat st;

	if (c->contents)
		return err_set(e, 0, "a destination does not end with /.");
	if (strcmp(src, "-") == 0)
		return put_stdin(c, e);
	fd = open(src, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0)
		return err_set(e, errno, "open %.300s", src);
	while (n > 1 && src[n - 1] == '/')
		src[--n] = '\0';
	if (S_ISDIR(st.st_mode))
		return put_folder(c, fd, last_part(src), contents || strcmp(src, "/") == 0, e);
	return put_file(c, fd, last_part(src), &st, e);
}

static int copy(struct cp *c, char **operands, struct err *e)
{
	char *src = operands[0], *dst = operands[1];
	bool out = parse_side(c, src), in = !out && parse_side(c, dst);

	if (parse_size(c->max_size ? c->max_size : MAX_SIZE_DEFAULT, &c->max_bytes) < 0)
		return err_set(e, 0, "--max-size %.60s: give a size such as 1g", c->max_size);
	if (out && strcmp(dst, "-") != 0) {
		struct cp other = {0};
		_cleanup_free_ char *text = strdup(dst);

		if (text && parse_side(&other, text))
			return err_set(e, 0, "from one sandbox to another: copy to - and from -");
	}
	if (!out && !in)
		return err_set(e, 0, "neither side is SANDBOX:PATH");
	c->signals = end_signals_watch(0, NULL, e);
	if (c->signals < 0 || remote_open(&c->r, e) < 0)
		return -1;
	return out ? copy_out(c, dst, e) : copy_in(c, src, e);
}

int verb_cp(const struct verb *verb, int argc, char **argv)
{
	struct cp *c = calloc(1, sizeof *c);
	struct args a = {.verb = verb, .values = c};
	struct err e = {0};
	int status;

	if (!c) {
		err_set(&e, ENOMEM, "copy");
		return fail(EXIT_CLOCHE, &e);
	}
	c->signals = c->r.service.idle_fd = -1;
	status = args_ready(&a, argc, argv, 2, 2);
	if (status < 0) {
		c->show = !c->quiet && isatty(2) && strcmp(a.operands[1], "-") != 0;
		remarks_left = c->quiet ? 0 : REMARKS;
		status = copy(c, a.operands, &e);
		if (status < 0)
			status = e.errnum == ECANCELED ? 130 : fail(EXIT_CLOCHE, &e);
	}
	remote_close(&c->r);
	fd_close(&c->signals);
	free(c);
	return status;
}
