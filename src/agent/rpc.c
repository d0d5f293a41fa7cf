/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/rpc.h"

#include <stdint.h>
#include <string.h>

#include "base/json.h"

static bool append(struct rpc_lines *l, const char *data, size_t size)
{
	if (size > RPC_LINE_BYTES - l->size)
		return false;
	if (l->size + size > l->room) {
		size_t room = l->room ? l->room : 4096;
		char *more;

		while (room < l->size + size)
			room *= 2;
		more = realloc(l->data, room);
		if (!more)
			return false;
		l->data = more;
		l->room = room;
	}
	if (size > 0)
		memcpy(l->data + l->size, data, size);
	l->size += size;
	return true;
}

/* What a long line took is given back. */
static void clear(struct rpc_lines *l)
{
	if (l->room > 64 << 10) {
		free(TAKE_PTR(l->data));
		l->room = 0;
	}
	l->size = 0;
}

static bool is_blank(const char *line, size_t size)
{
	for (size_t i = 0; i < size; i++)
		if (!strchr(" \t\r", line[i]) || !line[i])
			return false;
	return true;
}

static void finish(struct rpc_lines *l, rpc_sink sink, void *context)
{
	if (!l->skipping && l->size > 0 && !is_blank(l->data, l->size))
		sink(context, l->data, l->size);
	l->skipping = false;
	clear(l);
}

void rpc_feed(struct rpc_lines *l, const char *data, size_t size, rpc_sink sink, void *context)
{
	while (size > 0) {
		const char *end = memchr(data, '\n', size);
		size_t n = end ? (size_t)(end - data) : size;

		if (!l->skipping && !append(l, data, n)) {
			l->skipping = true;
			clear(l);
			sink(context, NULL, 0);
		}
		if (!end)
			return;
		finish(l, sink, context);
		data += n + 1;
		size -= n + 1;
	}
}

void rpc_done(struct rpc_lines *l)
{
	free(l->data);
	*l = (struct rpc_lines){0};
}

json_t *rpc_parse(const char *line, size_t size, int *ret_code, struct err *e)
{
	json_t *j = json_read_output(line, size, e);

	*ret_code = RPC_PARSE_ERROR;
	if (!j || json_is_object(j) || json_is_array(j))
		return j;
	json_decref(j);
	*ret_code = RPC_INVALID_REQUEST;
	err_set(e, 0, "a message must be an object");
	return NULL;
}

/* A text or a whole number; what is longer than any client's is not carried around. */
static bool is_id(const json_t *id)
{
	return json_is_integer(id) ||
	       (json_is_string(id) && json_string_length(id) <= RPC_ID_BYTES);
}

static int check_members(const json_t *object, struct err *e)
{
	static const char *const known[] = {"jsonrpc", "id", "method", "params", "result", "error"};
	const char *key;
	json_t *v;

	json_object_foreach((json_t *)(uintptr_t)object, key, v) {
		size_t i = 0;

		while (i < ARRAY_SIZE(known) && strcmp(known[i], key) != 0)
			i++;
		if (i == ARRAY_SIZE(known))
			return err_set(e, 0, "a message has no member \"%.40s\"", key);
	}
	return 0;
}

static int read_response(struct rpc_message *m, const json_t *object, struct err *e)
{
	const json_t *result = json_object_get(object, "result");
	const json_t *error = json_object_get(object, "error");

	if (!result && !error)
		return err_set(e, 0, "a request needs a method");
	m->kind = RPC_RESPONSE;
	m->id = NULL; /* nobody is answered about an answer */
	if (result && error)
		return err_set(e, 0, "an answer has one of result and error");
	return json_object_get(object, "params") ? err_set(e, 0, "an answer has no params") : 0;
}

int rpc_read(struct rpc_message *m, json_t *object, int *ret_code, struct err *e)
{
	json_t *id = json_object_get(object, "id"), *method = json_object_get(object, "method");
	const char *version = json_string_value(json_object_get(object, "jsonrpc"));

	*m = (struct rpc_message){.kind = id ? RPC_REQUEST : RPC_NOTIFICATION};
	*ret_code = RPC_INVALID_REQUEST;
	if (!json_is_object(object))
		return err_set(e, 0, "a message must be an object");
	if (is_id(id))
		m->id = id;
	if (!version || strcmp(version, "2.0") != 0)
		return err_set(e, 0, "jsonrpc must be \"2.0\"");
	if (check_members(object, e) < 0)
		return -1;
	if (!method)
		return read_response(m, object, e);
	if (id && !m->id)
		return err_set(e, 0, "an id must be a text of at most %d bytes or a whole number",
			       RPC_ID_BYTES);
	if (!json_is_string(method) || json_string_length(method) > RPC_METHOD_BYTES ||
	    strlen(json_string_value(method)) != json_string_length(method))
		return err_set(e, 0, "method must be a text of at most %d bytes", RPC_METHOD_BYTES);
	if (json_object_get(object, "result") || json_object_get(object, "error"))
		return err_set(e, 0, "a request has no result and no error");
	m->method = json_string_value(method);
	m->params = json_object_get(object, "params");
	if (!m->params || json_is_object(m->params))
		return 0;
	*ret_code = RPC_INVALID_PARAMS;
	return err_set(e, 0, "params must be an object");
}

json_t *rpc_result(const json_t *id, json_t *result)
{
	return json_pack("{ss sO? so}", "jsonrpc", "2.0", "id", id, "result", result);
}

json_t *rpc_error(const json_t *id, int code, const char *message, json_t *data)
{
	json_t *error = json_pack("{si ss}", "code", code, "message", message);

	if (data && json_object_set_new(error, "data", data) < 0) {
		json_decref(error);
		return NULL;
	}
	return json_pack("{ss so so}", "jsonrpc", "2.0", "id",
			 id ? json_incref((json_t *)(uintptr_t)id) : json_null(), "error", error);
}

json_t *rpc_notification(const char *method, json_t *params)
{
	return json_pack("{ss ss so}", "jsonrpc", "2.0", "method", method, "params", params);
}
