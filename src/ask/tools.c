/* SPDX-License-Identifier: Apache-2.0 */
#include "ask/tools.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "agent/text.h"
#include "base/fd.h"
#include "base/json.h"

#define REVISION "2025-11-25"

/* As long as the end of a sandbox may take, and more than that is none. */
enum { END_MS = 20000, HELLO_US = 60000000 };

/* ---- the child ---- */

static int spawn(struct tools *t, char **argv, char **env, int in, int out)
{
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t how;
	sigset_t none;
	int r;

	sigemptyset(&none);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, in, 0);
	posix_spawn_file_actions_adddup2(&actions, out, 1);
	posix_spawnattr_init(&how);
	posix_spawnattr_setsigmask(&how, &none);
	posix_spawnattr_setflags(&how, POSIX_SPAWN_SETSIGMASK);
	r = posix_spawn(&t->pid, argv[0], &actions, &how, argv, env);
	posix_spawnattr_destroy(&how);
	posix_spawn_file_actions_destroy(&actions);
	if (r != 0)
		t->pid = 0;
	return r;
}

static char *text_at(const json_t *list, size_t i)
{
	return (char *)(uintptr_t)json_string_value(json_array_get(list, i));
}

static int start_child(struct tools *t, const struct ask_settings *s, struct err *e)
{
	size_t count = json_array_size(s->mcp);
	_cleanup_free_ char **argv = calloc(count + 3, sizeof *argv);
	_cleanup_free_ char **env = ask_settings_environment(s);
	int in[2] = {-1, -1}, out[2] = {-1, -1}, r;
	static char verb[] = "mcp";

	if (!argv || !env)
		return err_set(e, ENOMEM, "start cloche mcp");
	if (pipe2(in, O_CLOEXEC) < 0 || pipe2(out, O_CLOEXEC) < 0) {
		fd_close(&in[0]);
		fd_close(&in[1]);
		return err_set(e, errno, "make a pipe");
	}
	argv[0] = (char *)(uintptr_t)s->cloche;
	argv[1] = verb;
	for (size_t i = 0; i < count; i++)
		argv[i + 2] = text_at(s->mcp, i);
	r = spawn(t, argv, env, in[0], out[1]);
	close(in[0]);
	close(out[1]);
	t->in = in[1];
	t->out = out[0];
	fcntl(t->in, F_SETFL, O_NONBLOCK);
	fcntl(t->out, F_SETFL, O_NONBLOCK);
	return r ? err_set(e, r, "start %.300s", s->cloche) : 0;
}

void tools_stop(struct tools *t)
{
	int pidfd = t->pid ? (int)syscall(SYS_pidfd_open, t->pid, 0) : -1;
	struct pollfd p = {pidfd, POLLIN, 0};

	fd_close(&t->in);
	if (t->pid && (pidfd < 0 || poll(&p, 1, END_MS) <= 0))
		kill(t->pid, SIGKILL);
	while (t->pid && waitpid(t->pid, NULL, 0) < 0 && errno == EINTR)
		continue;
	fd_close(&pidfd);
	fd_close(&t->out);
	rpc_done(&t->lines);
	bytes_done(&t->queue);
	t->pid = 0;
}

/* ---- messages ---- */

static int enqueue(struct tools *t, json_t *message, struct err *e)
{
	_cleanup_free_ char *text = message ? json_dumps(message, JSON_OUT) : NULL;

	json_decref(message);
	if (!text || !bytes_add(&t->queue, text, strlen(text)) || !bytes_add(&t->queue, "\n", 1))
		return err_set(e, ENOMEM, "make a call");
	return 0;
}

static int request(struct tools *t, const char *method, json_t *params, struct err *e)
{
	return enqueue(t,
		       json_pack("{ss sI ss so}", "jsonrpc", "2.0", "id", (json_int_t)++t->last_id,
				 "method", method, "params", params),
		       e);
}

void use_end(struct use *u, const char *text, bool is_error)
{
	size_t size;

	u->text = text_repair(text, strlen(text), &size);
	u->is_error = is_error;
	u->took_us = u->began_us ? now_us() - u->began_us : 0;
}

void use_done(struct use *u)
{
	json_decref(u->arguments);
	json_decref(u->structured);
	free(u->text);
}

static void take_result(struct use *u, const json_t *answer)
{
	const json_t *result = json_object_get(answer, "result");
	const json_t *content = json_object_get(result, "content");
	const char *text = json_string_value(json_object_get(json_array_get(content, 0), "text"));
	const char *why =
		json_string_value(json_object_get(json_object_get(answer, "error"), "message"));

	u->structured = json_incref(json_object_get(result, "structuredContent"));
	use_end(u,
		text  ? text
		: why ? why
		      : "",
		!json_is_false(json_object_get(result, "isError")));
}

static void on_line(void *context, const char *line, size_t size)
{
	struct tools *t = context;
	struct err ignored;
	int code;
	_cleanup_json_ json_t *m = line ? rpc_parse(line, size, &code, &ignored) : NULL;
	const json_t *id = json_object_get(m, "id");
	const char *session = json_string_value(json_object_get(
		json_object_get(json_object_get(m, "result"), "_meta"), "cloche/session"));

	if (!json_is_object(m)) {
		t->broken = true;
		return;
	}
	if (session)
		snprintf(t->session, sizeof t->session, "%s", session);
	for (size_t i = 0; json_is_integer(id) && i < t->count; i++) {
		struct use *u = &t->uses[i];

		if (u->text || u->id != json_integer_value(id))
			continue;
		take_result(u, m);
		if (t->on_end)
			t->on_end(t->context, u);
	}
}

static int flush(struct tools *t)
{
	while (t->queue.size > 0) {
		ssize_t n = write(t->in, t->queue.data + t->queue.start, t->queue.size);

		if (n < 0 && errno == EAGAIN)
			return 0;
		if (n < 0 && errno != EINTR)
			return -1;
		bytes_drop(&t->queue, n > 0 ? (size_t)n : 0);
	}
	return 0;
}

static int receive(struct tools *t)
{
	char data[64 << 10];
	ssize_t n = read(t->out, data, sizeof data);

	if (n > 0)
		rpc_feed(&t->lines, data, (size_t)n, on_line, t);
	return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR)) ? 0 : -1;
}

static bool is_busy(const struct tools *t)
{
	for (size_t i = 0; i < t->count; i++)
		if (!t->uses[i].text)
			return true;
	return false;
}

static enum tools_end turn(struct tools *t, int signals, uint64_t deadline_us)
{
	struct pollfd p[] = {{t->out, POLLIN, 0},
			     {t->queue.size > 0 ? t->in : -1, POLLOUT, 0},
			     {signals, POLLIN, 0}};
	uint64_t now = now_us();

	if (now >= deadline_us)
		return TOOLS_DEADLINE;
	if (poll(p, ARRAY_SIZE(p), (int)((deadline_us - now) / 1000 + 1)) < 0)
		return errno == EINTR ? TOOLS_DONE : TOOLS_LOST;
	if (p[2].revents)
		return TOOLS_CANCELLED;
	if ((p[1].revents && flush(t) < 0) || (p[0].revents && receive(t) < 0) || t->broken)
		return TOOLS_LOST;
	return TOOLS_DONE;
}

static int begin(struct tools *t, struct use *u, struct err *e)
{
	json_t *params = json_pack("{ss sO}", "name", u->call->name, "arguments", u->arguments);

	u->began_us = now_us();
	if (!params || request(t, "tools/call", params, e) < 0)
		return -1;
	u->id = t->last_id;
	return 0;
}

enum tools_end tools_run(struct tools *t, struct use *uses, size_t count, int signals,
			 uint64_t deadline_us, struct err *e)
{
	enum tools_end end = TOOLS_DONE;

	t->uses = uses;
	t->count = count;
	for (size_t i = 0; i < count; i++)
		if (!uses[i].text && begin(t, &uses[i], e) < 0)
			return TOOLS_LOST;
	while (end == TOOLS_DONE && is_busy(t))
		end = turn(t, signals, deadline_us);
	t->count = 0;
	if (end == TOOLS_LOST)
		err_set(e, 0, "cloche mcp, which runs the tools, ended (what it said is above)");
	if (end == TOOLS_DEADLINE)
		err_set(e, 0, "the time for it is over");
	if (end == TOOLS_CANCELLED)
		err_set(e, 0, "interrupted");
	return end;
}

int tools_start(struct tools *t, const struct ask_settings *s, struct err *e)
{
	static const struct call hello = {0};
	struct use u = {.call = &hello};
	enum tools_end end = TOOLS_DONE;
	uint64_t deadline_us = now_us() + HELLO_US;
	json_t *params = json_pack("{ss s{} s{ssss}}", "protocolVersion", REVISION, "capabilities",
				   "clientInfo", "name", "cloche-ask", "version", CLOCHE_VERSION);

	if (start_child(t, s, e) < 0 || request(t, "initialize", params, e) < 0)
		return -1;
	u.id = t->last_id;
	t->uses = &u;
	t->count = 1;
	while (end == TOOLS_DONE && !u.text)
		end = turn(t, -1, deadline_us);
	t->count = 0;
	use_done(&u);
	if (end != TOOLS_DONE)
		return err_set(e, 0, "cloche mcp, which runs the tools, did not start");
	return enqueue(t, rpc_notification("notifications/initialized", json_object()), e);
}
