/* SPDX-License-Identifier: Apache-2.0 */
/*
 * request.c - what a request asks for, and the one way it is written upstream.
 *
 * It is written from what was understood, never copied: one request line with the path, the Host that was decided
 * about, one framing. So whoever reads it there reads what was judged here.
 */
#include <string.h>
#include <strings.h>

#include "egress/forward.h"

static const char scheme[] = "http://";

/* Meant for the next hop only (RFC 9110, 7.6.1), or what a proxy would take as an order. */
static const char *const dropped[] = {
	"connection",
	"keep-alive",
	"proxy-connection",
	"te",
	"trailer",
	"transfer-encoding",
	"content-length",
	"upgrade",
	"host",
	"expect",
	"http2-settings",
	"x-upstream-https-proxy",
};

const char *request_aim(const struct head *h, bool proxy, struct request_aim *ret)
{
	size_t size = strlen(h->text), rest;
	const char *authority = h->text + sizeof scheme - 1;

	*ret = (struct request_aim){.target = h->text};
	if (!proxy)
		return h->text[0] == '/' ? NULL : "a request target that is not origin-form";
	if (size < sizeof scheme || strncasecmp(h->text, scheme, sizeof scheme - 1) != 0)
		return "a proxy is asked for http://HOST/PATH, or by CONNECT for HOST:PORT";
	rest = strcspn(authority, "/?");
	if (!aim_split(authority, rest, 80, &ret->host_size, &ret->port))
		return "a request target without a host, or with a user";
	ret->host = authority;
	ret->target = authority[rest] ? authority + rest : "/";
	return *ret->target == '/' ? NULL : "a request target without a path";
}

bool request_host_agrees(const struct head *h, const char *host, uint16_t port, bool tls)
{
	const char *field = head_field(h, "host");
	char canonical[HOST_SIZE];
	uint16_t its;
	size_t size;

	if (!field)
		return true;
	return aim_split(field, strlen(field), tls ? 443 : 80, &size, &its) && its == port &&
	       network_host(field, size, canonical) == 0 && strcmp(canonical, host) == 0;
}

bool request_hop_by_hop(const struct head *h, const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(dropped); i++)
		if (strcmp(dropped[i], name) == 0)
			return true;
	if (strncmp(name, "proxy-", 6) == 0)
		return true;
	for (size_t i = 0; i < h->field_count; i++)
		if (strcmp(h->fields[i].name, "connection") == 0 &&
		    list_has_token(h->fields[i].value, name))
			return true;
	return false;
}

bool request_is_upgrade(const struct head *h)
{
	const char *to = head_field(h, "upgrade"), *connection = head_field(h, "connection");

	return to && connection && strcasecmp(to, "websocket") == 0 && !h->http10 &&
	       h->body_size == 0 && strcmp(h->method, "GET") == 0 &&
	       list_has_token(connection, "upgrade");
}

bool text_add(struct bytes *b, const char *text)
{
	return bytes_add(b, text, strlen(text));
}

bool field_add(struct bytes *b, const char *name, const char *value)
{
	return text_add(b, name) && text_add(b, ": ") && text_add(b, value) && text_add(b, "\r\n");
}

/* What a secret could be read by in spite of its redaction: pieces of an answer, or one that is compressed. */
static const char *const hiding[] = {"accept-encoding", "range", "if-range", "request-range",
				     "x-ms-range"};

/* What some servers take in place of the method and the path that were judged. */
static const char *const overriding[] = {
	"x-http-method-override", "x-http-method", "x-method-override",
	"x-original-url",         "x-rewrite-url",
};

static bool is_one_of(const char *name, const char *const *list, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (field_is(name, list[i]))
			return true;
	return false;
}

static bool goes_up(const struct forward *f, const char *name)
{
	if (request_hop_by_hop(&f->request, name))
		return false;
	if (f->looked_at && is_one_of(name, overriding, ARRAY_SIZE(overriding)))
		return false;
	return !f->credential || (!credential_replaces(f->credential, name) &&
				  !is_one_of(name, hiding, ARRAY_SIZE(hiding)));
}

static bool add_host(const struct connection *c, struct bytes *b)
{
	char text[HOST_SIZE + 16];
	bool usual = c->port == (c->tls ? 443 : 80), v6 = strchr(c->host, ':');

	snprintf(text, sizeof text, "%s%s%s", v6 ? "[" : "", c->host, v6 ? "]" : "");
	if (!usual)
		snprintf(text + strlen(text), sizeof text - strlen(text), ":%u", c->port);
	return field_add(b, "Host", text);
}

static bool add_framing(const struct forward *f, struct bytes *b)
{
	char number[32];

	if (f->upgrade)
		return text_add(b, "Connection: Upgrade\r\nUpgrade: websocket\r\n");
	if (f->request.body_size == UINT64_MAX)
		return text_add(b, "Transfer-Encoding: chunked\r\n");
	snprintf(number, sizeof number, "%llu", (unsigned long long)f->request.body_size);
	return !head_field(&f->request, "content-length") || field_add(b, "Content-Length", number);
}

static bool add_credential(const struct forward *f, struct bytes *b)
{
	const struct credential *k = f->credential;

	if (!k)
		return true;
	if (!text_add(b, "Accept-Encoding: identity\r\n"))
		return false;
	return !k->header[0] || (text_add(b, k->header) && text_add(b, ": ") &&
				 bytes_add(b, k->value, k->size) && text_add(b, "\r\n"));
}

static bool add_line(const struct forward *f, struct bytes *b)
{
	bool in_query = f->credential && f->credential->query[0];
	char *target = in_query ? credential_target(f->credential, f->target) : NULL;
	bool ok = (!in_query || target) && text_add(b, f->request.method) && text_add(b, " ") &&
		  text_add(b, target ? target : f->target) && text_add(b, " HTTP/1.1\r\n");

	if (target)
		explicit_bzero(target, strlen(target));
	free(target);
	return ok;
}

bool request_write(struct connection *c, struct bytes *b)
{
	struct forward *f = c->forward;

	if (!add_line(f, b) || !add_host(c, b))
		return false;
	for (size_t i = 0; i < f->request.field_count; i++)
		if (goes_up(f, f->request.fields[i].name) &&
		    !field_add(b, f->request.fields[i].name, f->request.fields[i].value))
			return false;
	return add_credential(f, b) && add_framing(f, b) && text_add(b, "\r\n");
}
