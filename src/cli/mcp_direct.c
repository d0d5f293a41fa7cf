/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mcp_direct.c - a run without a service: in a child, because native_run() is synchronous.
 *
 * The child has one socket of ours. It writes one JSON object on it at the end, {"result", "files"} or
 * {"error"}, and takes the socket's end for our wish that the run be over: so a run is taken down in order
 * when it is cancelled, and when we are killed. What it makes (a folder for /output) it removes itself.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base64.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/tree.h"
#include "cli/mcp.h"
#include "native/native.h"
#include "settings/egress.h"

enum { FILES_BYTES = 10 << 20, OUTCOME_BYTES = 16 << 20, SOCKET = 3, PIECE = 64 << 10 };

struct direct {
	pid_t pid;
	int fd;
	char *data;
	size_t size, room;
};

static bool is_argument(const struct tool_call *t)
{
	return t->id == TOOL_RUN_SHELL && t->code_size < SPEC_ARG_BYTES;
}

/* The files that fit, as {"path": base64}; what does not is only listed in the result. */
static json_t *read_files(const char *folder, const struct result *r)
{
	_cleanup_close_ int dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	json_t *files = json_object();
	size_t left = FILES_BYTES;

	for (size_t i = 0; dir >= 0 && i < r->artifact_count; i++) {
		const struct artifact *a = &r->artifacts[i];
		_cleanup_free_ char *data = NULL, *coded = NULL;
		_cleanup_close_ int fd = -1;
		size_t size, n;

		if (a->skipped || a->size_bytes > left || a->size_bytes > RESOURCE_BYTES)
			continue;
		fd = openat(dir, a->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
		if (fd < 0 || fd_slurp(fd, left, &data, &size) < 0)
			continue;
		coded = base64_encode(data, size, &n);
		if (coded && json_object_set_new(files, a->path, json_stringn(coded, n)) == 0)
			left -= size;
	}
	return files;
}

static struct server *server_of(const struct job *j)
{
	return (struct server *)j->w; /* its first member */
}

static int prepare(const struct job *j, struct spec *s, const char *folder, struct err *e)
{
	const struct tool_call *t = &j->c->tool;
	enum language language = tools[t->id].language;
	char seconds[32];
	int r;

	if (t->timeout_s > 0) {
		snprintf(seconds, sizeof seconds, "%.3f", t->timeout_s);
		if (spec_set(s, option_find("timeout"), seconds, e) < 0)
			return -1;
	}
	r = is_argument(t) ? spec_language(s, language, CODE_STRING, t->code, e)
			   : spec_language(s, language, CODE_STDIN, NULL, e);
	if (r < 0 || settings_apply_policy(&server_of(j)->here.settings, s, e) < 0)
		return -1;
	/* Ours, so the operator's folders for the caller's do not bind it. */
	if (spec_set(s, option_find("out"), folder, e) < 0)
		return -1;
	return spec_finish(s, e);
}

static json_t *run_here(struct job *j, const char *folder, struct err *e)
{
	struct mcp_base *base = &server_of(j)->here;
	const struct tool_call *t = &j->c->tool;
	const struct places *places = &server_of(j)->places;
	struct native_io io = {.stdin_fd = -1,
			       .stdin_data = t->code,
			       .stdin_size = is_argument(t) ? 0 : t->code_size,
			       .out_fd = -1,
			       .err_fd = -1,
			       .cancel_fd = SOCKET,
			       .uid_range = base->settings.uid_range};
	struct result r;
	json_t *outcome;
	int done;

	if (prepare(j, &base->spec, folder, e) < 0 ||
	    settings_egress_config(&base->settings, places, &base->spec, NULL, &io.network,
				   &io.network_opens_tls, e) < 0)
		return NULL;
	done = native_run(places, &base->spec, &io, &r, e);
	settings_egress_free(io.network);
	if (done < 0)
		return NULL;
	outcome =
		json_pack("{so so}", "result", result_to_json(&r), "files", read_files(folder, &r));
	result_done(&r);
	return outcome;
}

static void child(struct job *j, int fd)
{
	const char *tmp = getenv("TMPDIR");
	_cleanup_free_ char *text = NULL;
	int null = open("/dev/null", O_RDWR);
	char folder[1024];
	json_t *outcome = NULL;
	struct err e = {0};

	dup2(null, 0);
	dup2(null, 1);
	dup2(fd, SOCKET);
	syscall(SYS_close_range, SOCKET + 1, ~0u, 0);
	fcntl(SOCKET, F_SETFD, FD_CLOEXEC);
	snprintf(folder, sizeof folder, "%.900s/cloche-mcp.XXXXXX",
		 tmp && *tmp == '/' ? tmp : "/tmp");
	if (!mkdtemp(folder)) {
		err_set(&e, errno, "make the folder %.200s", folder);
	} else {
		outcome = run_here(j, folder, &e);
		tree_remove(AT_FDCWD, folder);
	}
	if (!outcome)
		outcome = json_pack("{ss si}", "error", e.text, "code", e.code);
	text = outcome ? json_dumps(outcome, JSON_OUT) : NULL;
	_exit(text && fd_write_all(SOCKET, text, strlen(text)) == 0 ? 0 : 1);
}

int direct_start(struct job *j, struct err *e)
{
	struct direct *d = calloc(1, sizeof *d);
	int ends[2];

	if (!d || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0) {
		err_set(e, d ? errno : ENOMEM, "make a socket");
		free(d);
		return -1;
	}
	d->pid = fork();
	if (d->pid == 0)
		child(j, ends[1]);
	close(ends[1]);
	if (d->pid < 0) {
		err_set(e, errno, "start a process");
		close(ends[0]);
		free(d);
		return -1;
	}
	fcntl(ends[0], F_SETFL, O_NONBLOCK);
	d->fd = ends[0];
	j->here = d;
	return 0;
}

int direct_fd(const struct job *j)
{
	const struct direct *d = j->here;

	return d->fd;
}

static bool has_room(struct direct *d)
{
	size_t room = d->room ? 2 * d->room : (size_t)PIECE;
	char *more;

	if (d->room - d->size >= PIECE)
		return true;
	more = room > 2 * OUTCOME_BYTES ? NULL : realloc(d->data, room);
	if (!more)
		return false;
	d->data = more;
	d->room = room;
	return d->room - d->size >= PIECE || has_room(d);
}

int direct_pump(struct job *j)
{
	struct direct *d = j->here;

	for (;;) {
		ssize_t n;

		if (!has_room(d))
			return 1; /* cut, so it will not be understood */
		n = read(d->fd, d->data + d->size, PIECE);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return 0;
		if (n <= 0)
			return 1;
		d->size += (size_t)n;
	}
}

json_t *direct_outcome(struct job *j, struct err *e)
{
	const struct direct *d = j->here;
	json_t *outcome = json_read_output(d->data, d->size, e);
	const char *error = json_string_value(json_object_get(outcome, "error"));

	if (json_is_object(json_object_get(outcome, "result")))
		return outcome;
	err_set(e, 0, "%s", error ? error : "the process that ran it ended without a word");
	e->code = (int)json_integer_value(json_object_get(outcome, "code"));
	json_decref(outcome);
	return NULL;
}

/* Closing its socket ends the run; it takes as long as a kill takes. */
void direct_end(struct job *j)
{
	struct direct *d = TAKE_PTR(j->here);

	fd_close(&d->fd);
	while (waitpid(d->pid, NULL, 0) < 0 && errno == EINTR)
		continue;
	free(d->data);
	free(d);
}
