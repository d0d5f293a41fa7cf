/* SPDX-License-Identifier: Apache-2.0 */
/*
 * oneshot_files.c - files to and from a run by a service.
 *
 * In: what native/feed.h finds goes in one request, whose size the service limits. Out: as native/collect.c does
 * it.
 * Names and bytes come from inside the sandbox; that the service is between changes nothing about them.
 */
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base64.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/tree.h"
#include "cli/oneshot.h"
#include "native/collect.h"
#include "native/feed.h"

enum { MOST_FILES = 1024, SLACK = 64 << 10 }; /* the API's; room for the rest of the body */

struct feed {
	json_t *files;
	size_t left; /* bytes of the body */
};

static int too_much(const char *why, struct err *e)
{
	err_set(e, 0, "--in: %s", why);
	return oneshot_hint(e);
}

/* Takes over value. mode 0: none. */
static int add_row(const struct feed *f, const char *box, const char *key, json_t *value,
		   unsigned mode, struct err *e)
{
	json_t *row = json_object();
	char octal[16];

	snprintf(octal, sizeof octal, "%04o", mode);
	if (json_object_set_new(row, "path", json_string(box)) < 0 ||
	    json_object_set_new(row, key, value) < 0 ||
	    (mode && json_object_set_new(row, "mode", json_string(octal)) < 0) ||
	    json_array_append_new(f->files, row) < 0)
		return too_much("a name below it is no UTF-8", e);
	if (json_array_size(f->files) > MOST_FILES)
		return too_much("more than 1024 files, folders and links", e);
	return 0;
}

static int add_folder(void *context, const char *box, mode_t mode, struct err *e)
{
	return add_row(context, box, "folder", json_true(), mode, e);
}

static int add_link(void *context, const char *box, const char *target, struct err *e)
{
	return add_row(context, box, "link", json_string(target), 0, e);
}

static int add_file(void *context, int fd, const struct stat *st, const char *name, const char *box,
		    struct err *e)
{
	_cleanup_free_ char *data = NULL, *coded = NULL;
	struct feed *f = context;
	size_t size;
	ssize_t n;

	if ((uint64_t)st->st_size > f->left / 4 * 3 || f->left < 4096)
		return too_much("more than a request to the service may carry", e);
	data = malloc((size_t)st->st_size + 1);
	if (!data)
		return err_set(e, ENOMEM, "--in: read %.200s", name);
	n = fd_read_all(fd, data, (size_t)st->st_size);
	if (n != st->st_size)
		return err_set(e, n < 0 ? (int)-n : EIO, "--in: read %.200s", name);
	coded = base64_encode(data, (size_t)n, &size);
	if (!coded)
		return err_set(e, ENOMEM, "--in: read %.200s", name);
	f->left -= size;
	return add_row(f, box, "content_base64", json_stringn(coded, size), st->st_mode & 0777, e);
}

int oneshot_files(json_t *body, const struct spec *s, struct err *e)
{
	struct feed f = {json_array(), JSON_MAX_BYTES - SLACK};
	const struct feed_sink to = {add_folder, add_link, add_file, &f};

	if (json_object_set_new(body, "files", f.files) < 0)
		return err_set(e, ENOMEM, "make a request");
	return feed_walk(s, &to, e);
}

/* ---- out ---- */

static int write_piece(void *context, const char *data, size_t size, struct err *e)
{
	const int *fd = context;
	int r = fd_write_all(*fd, data, size);

	return r < 0 ? err_set(e, -r, "write") : 0;
}

static int download(const struct oneshot *o, const char *run, const char *path, int fd)
{
	char target[TARGET_SIZE], name[TARGET_SIZE - 128];
	const struct request q = {
		.method = "GET", .target = target, .sink = write_piece, .sink_context = &fd};
	_cleanup_call_ struct call *c = NULL;
	struct err e;

	if (url_encode(path, name, sizeof name) < 0)
		return -1;
	snprintf(target, sizeof target, "/v1/runs/%s/artifacts/%s", run, name);
	c = call_new(o->service, &q, &e);
	return c ? call_run(c, o->cancel_fd, &e) : -1;
}

static const char unwritable[] = "cannot be written to the output folder";

static bool is_deep(const char *path)
{
	unsigned folders = 0;

	for (; *path; path++)
		folders += *path == '/';
	return folders > TREE_MAX_DEPTH;
}

/* NULL, or why it is left behind. */
static const char *fetch(const struct oneshot *o, const char *run, int out, const char *path,
			 bool executable)
{
	char folder[PATH_MAX];
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	_cleanup_close_ int dir = -1, fd = -1;

	if (snprintf(folder, sizeof folder, "/%s", path) >= (int)sizeof folder || is_deep(path))
		return "nested too deep";
	if (!artifact_name_is_safe(path))
		return "control character in its name";
	folder[slash ? slash - path + 1 : 1] = '\0';
	if (!*name || strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || strstr(folder, "/../") ||
	    (strlen(folder) > 2 && strcmp(folder + strlen(folder) - 3, "/..") == 0))
		return "not a name of a file";
	dir = artifact_folder(out, folder);
	if (dir < 0 || (unlinkat(dir, name, 0) < 0 && errno != ENOENT))
		return unwritable;
	fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
		    executable ? 0777 : 0666);
	if (fd < 0)
		return unwritable;
	if (download(o, run, path, fd) == 0)
		return NULL;
	unlinkat(dir, name, 0);
	return unwritable;
}

static int open_out(const char *folder)
{
	if (mkdir(folder, 0777) < 0 && errno != EEXIST)
		return -1;
	return open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* As the direct way says it: the command's own failure comes first. */
static void mark_failed(json_t *result, json_t *message)
{
	struct result r = {0}, failed;
	_cleanup_json_ json_t *other = NULL;

	if (message)
		json_object_set_new(result, "message", message);
	if (!result_end(result, &failed))
		return;
	r.reason = failed.reason;
	r.has_exit_code = failed.has_exit_code;
	r.exit_code = failed.exit_code;
	r.artifacts_failed = true;
	if (result_code(&r) != CODE_SANDBOX_ARTIFACT_EXPORT_FAILED)
		return;
	other = oneshot_plain(&r);
	for (size_t i = 0; i < 3; i++) {
		static const char *const keys[] = {"ok", "error_code", "model_message"};

		json_object_set(result, keys[i], json_object_get(other, keys[i]));
	}
}

bool oneshot_artifacts(const struct oneshot *o, const char *run, json_t *result)
{
	_cleanup_close_ int out = open_out(o->spec->out_dir);
	bool whole = true;
	json_t *row;
	size_t i;

	if (out < 0) {
		mark_failed(result, json_sprintf("open output folder %.200s: %s", o->spec->out_dir,
						 strerror(errno)));
		return false;
	}
	json_array_foreach(json_object_get(result, "artifacts"), i, row) {
		const char *path = json_string_value(json_object_get(row, "path")), *why;

		if (!path || !json_is_null(json_object_get(row, "skipped")))
			continue;
		why = fetch(o, run, out, path, json_is_true(json_object_get(row, "executable")));
		/* Where it was kept on the way is nothing that a run without a service would tell. */
		json_object_del(row, "href");
		json_object_del(row, "executable");
		if (!why)
			continue;
		whole &= why != unwritable;
		json_object_set_new(row, "skipped", json_string(why));
		json_object_set_new(row, "bytes", json_null());
	}
	if (!whole)
		mark_failed(result, json_sprintf("not every artifact could be written to %.200s",
						 o->spec->out_dir));
	return whole;
}
