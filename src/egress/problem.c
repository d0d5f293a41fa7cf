/* SPDX-License-Identifier: Apache-2.0 */
/* problem.c - what a program inside is told when its request is not passed on: RFC 9457, and how to allow it. */
#include <string.h>

#include "base/json.h"
#include "egress/egress.h"

static const struct {
	int status;
	const char *title;
} titles[] = {
	{400, "Bad Request"},        {403, "Forbidden"},
	{405, "Method Not Allowed"}, {408, "Request Timeout"},
	{413, "Content Too Large"},  {414, "URI Too Long"},
	{417, "Expectation Failed"}, {431, "Request Header Fields Too Large"},
	{502, "Bad Gateway"},        {503, "Service Unavailable"},
	{504, "Gateway Timeout"},
};

static const char *title_of(int status)
{
	for (size_t i = 0; i < ARRAY_SIZE(titles); i++)
		if (titles[i].status == status)
			return titles[i].title;
	return "Error";
}

static json_t *text_or_null(const char *text)
{
	json_t *j = text && *text ? json_string(text) : NULL;

	return j ? j : json_null();
}

static json_t *document(const struct connection *c, const struct failure *f, const char *place)
{
	json_t *j = json_pack("{ss ss si ss ss so si}", "type", "about:blank", "title",
			      title_of(f->status), "status", f->status, "detail", f->detail, "code",
			      f->code, "host", text_or_null(c->host), "port", (int)c->port);
	char allow[HOST_SIZE + 32];

	if (!j || f->status != 403)
		return j;
	/* A quota, an address, a spelling: no rule of this form would help, and the detail says what it is. */
	json_object_set_new(j, "rule", f->missing ? json_string("no rule") : text_or_null(f->rule));
	snprintf(allow, sizeof allow, "--allow %s", place);
	if (f->missing)
		json_object_set_new(j, "remedy", json_string(allow));
	return j;
}

enum step problem_answer(struct connection *c, const struct failure *f, bool with_body)
{
	char place[HOST_SIZE + 16], head[HOST_SIZE + 512];
	_cleanup_json_ json_t *j = NULL;
	_cleanup_free_ char *body = NULL;
	int n;

	snprintf(place, sizeof place, strchr(c->host, ':') ? "[%s]:%u" : "%s:%u", c->host, c->port);
	j = document(c, f, place);
	body = j ? json_dumps(j, JSON_COMPACT | JSON_ENSURE_ASCII) : NULL;
	n = snprintf(head, sizeof head,
		     "HTTP/1.1 %d %s\r\nContent-Type: application/problem+json\r\n%s%s%s"
		     "Content-Length: %zu\r\nConnection: close\r\n\r\n",
		     f->status, title_of(f->status), f->status == 403 ? "Cloche-Denied: " : "",
		     f->status == 403 ? place : "", f->status == 403 ? "\r\n" : "",
		     body ? strlen(body) : 0);
	if (!side_write(c->client, head, (size_t)n) ||
	    (with_body && body && !side_write(c->client, body, strlen(body))))
		return connection_close(c, true);
	return connection_end(c);
}
