/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/remote.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/json.h"
#include "native/stream.h"

int remote_open(struct remote *r, struct err *e)
{
	*r = (struct remote){.service.idle_fd = -1};
	if (places_find(&r->places, e) < 0)
		return -1;
	return service_find(&r->service, &r->places, e);
}

void remote_close(struct remote *r)
{
	service_done(&r->service);
}

void answer_done(struct answer *a)
{
	free(a->text);
	json_decref(a->json);
	*a = (struct answer){0};
}

static int keep_answer(struct answer *a, const struct call *c, struct err *e)
{
	size_t size;
	const char *text = call_text(c, &size);

	if (size == 0)
		return 0;
	a->json = json_read_output(text, size, e);
	if (!a->json)
		return err_prefix(e, "the service's answer");
	a->text = malloc(size + 1);
	if (!a->text)
		return err_set(e, ENOMEM, "keep the service's answer");
	memcpy(a->text, text, size + 1);
	a->size = size;
	return 0;
}

int remote_ask_fds(struct remote *r, const char *method, const char *target, json_t *body,
		   const int *fds, size_t fd_count, struct answer *a, struct err *e)
{
	_cleanup_free_ char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
	const struct request q = {.method = method,
				  .target = target,
				  .type = text ? "application/json" : NULL,
				  .body = text,
				  .body_size = text ? strlen(text) : 0,
				  .fds = fds,
				  .fd_count = fd_count};
	_cleanup_call_ struct call *c = NULL;
	int status;

	*a = (struct answer){0};
	if (body && !text)
		return err_set(e, ENOMEM, "make a request");
	c = call_new(&r->service, &q, e);
	if (!c)
		return -1;
	status = call_run(c, -1, e);
	a->status = call_status(c);
	return status < 0 ? -1 : keep_answer(a, c, e);
}

int remote_ask(struct remote *r, const char *method, const char *target, json_t *body,
	       struct answer *a, struct err *e)
{
	return remote_ask_fds(r, method, target, body, NULL, 0, a, e);
}

struct following {
	struct lines lines;
	line_sink sink;
	void *context;
};

static int take_lines(void *context, const char *data, size_t size, struct err *e)
{
	struct following *f = context;

	return lines_feed(&f->lines, data, size, f->sink, f->context, e);
}

int remote_follow(struct remote *r, const char *target, int cancel_fd, line_sink sink,
		  void *context, struct err *e)
{
	struct following f = {.sink = sink, .context = context};
	const struct request q = {
		.method = "GET", .target = target, .sink = take_lines, .sink_context = &f};
	_cleanup_call_ struct call *c = call_new(&r->service, &q, e);
	int status = c ? call_run(c, cancel_fd, e) : -1;

	if (status == 0 && f.lines.splitter.left.size > 0)
		status = err_set(e, 0, "the service's answer ends within a line");
	lines_done(&f.lines);
	return status;
}

bool is_id(const char *text)
{
	size_t n = strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-");

	return n > 0 && n <= 64 && text[n] == '\0';
}

int sandbox_target(char target[static TARGET_SIZE], const char *id, struct err *e,
		   const char *format, ...)
{
	va_list ap;
	int n, m;

	if (!is_id(id))
		return err_set(e, 0, "not the id of a sandbox: %.60s", id);
	n = snprintf(target, TARGET_SIZE, "/v1/sandboxes/%s", id);
	va_start(ap, format);
	m = vsnprintf(target + n, (size_t)(TARGET_SIZE - n), format, ap);
	va_end(ap);
	return m < 0 || m >= TARGET_SIZE - n ? err_set(e, 0, "the path is too long") : 0;
}

void printer_init(struct printer *p, int fd, bool raw)
{
	*p = (struct printer){.fd = fd, .escape = !raw && isatty(fd)};
}

static void emit(struct printer *p, const char *data, size_t size)
{
	if (!p->gone && fd_write_all(p->fd, data, size) < 0)
		p->gone = true;
}

/* Escape what is complete; the bytes of a cut character wait. */
static void emit_escaped(struct printer *p, const char *data, size_t size, bool last)
{
	while (size > 0) {
		char in[2048], out[4 * sizeof in];
		size_t n = p->waiting, used, made;

		memcpy(in, p->rest, n);
		used = size < sizeof in - n ? size : sizeof in - n;
		memcpy(in + n, data, used);
		data += used;
		size -= used;
		n += used;
		used = terminal_escape(in, n, last && size == 0, out, &made);
		emit(p, out, made);
		p->waiting = n - used < sizeof p->rest ? n - used : 0;
		memcpy(p->rest, in + used, p->waiting);
	}
}

void printer_put(struct printer *p, const char *data, size_t size)
{
	if (p->escape)
		emit_escaped(p, data, size, false);
	else
		emit(p, data, size);
}

void printer_end(struct printer *p)
{
	char out[4 * sizeof p->rest];
	size_t made;

	if (p->waiting == 0)
		return;
	terminal_escape(p->rest, p->waiting, true, out, &made);
	p->waiting = 0;
	emit(p, out, made);
}

static int print_line(const char *text, size_t size)
{
	struct printer p;

	printer_init(&p, 1, false);
	printer_put(&p, text, size);
	printer_end(&p);
	if (size == 0 || text[size - 1] != '\n')
		emit(&p, "\n", 1);
	return p.gone ? EXIT_CLOCHE : 0;
}

int print_answer(const struct answer *a)
{
	return print_line(a->text ? a->text : "", a->size);
}

int print_object(json_t *object)
{
	_cleanup_free_ char *text = json_dumps(object, JSON_OUT);

	return text ? print_line(text, strlen(text)) : EXIT_CLOCHE;
}

static enum reason reason_find(const char *name)
{
	for (int i = 0; name && i < REASON_COUNT; i++)
		if (strcmp(reasons[i].name, name) == 0)
			return (enum reason)i;
	return REASON_COUNT;
}

bool result_end(json_t *object, struct result *ret)
{
	const char *stage = json_string_value(json_object_get(object, "stage"));
	const char *message = json_string_value(json_object_get(object, "message"));
	const char *error = json_string_value(json_object_get(object, "error_code"));
	json_t *exit_code = json_object_get(object, "exit_code");

	*ret = (struct result){
		.reason = reason_find(json_string_value(json_object_get(object, "reason"))),
		.has_exit_code = json_is_integer(exit_code),
		.exit_code = (int)json_integer_value(exit_code) & 255,
		.signal = (int)json_integer_value(json_object_get(object, "signal")) & 127,
		.errnum = EACCES,
	};
	if (ret->reason == REASON_COUNT)
		return false;
	ret->artifacts_failed =
		error && strcmp(error, codes[CODE_SANDBOX_ARTIFACT_EXPORT_FAILED].name) == 0;
	snprintf(ret->stage, sizeof ret->stage, "%s", stage ? stage : "");
	snprintf(ret->message, sizeof ret->message, "%s", message ? message : "");
	/* The object has no errno; its message ends with the errno's text. */
	if (message && (strstr(message, strerror(ENOENT)) || strstr(message, strerror(ENOTDIR))))
		ret->errnum = ENOENT;
	return true;
}

int result_status(json_t *result)
{
	struct result r;

	return result_end(result, &r) ? result_exit_status(&r) : EXIT_CLOCHE;
}
