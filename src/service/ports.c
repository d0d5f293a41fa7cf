/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ports.c - HTTP and WebSocket to a server inside, by path, or by a host name of its own (port_gate.h).
 *
 * Each request dials anew through init and says `Connection: close`, so nothing that a client sends later
 * on its connection can reach the server inside by accident, and no key or cookie of this service goes in.
 * The server inside is hostile: its answer is parsed (llhttp, strict), its header bounded, hop-by-hop
 * fields dropped, its body passed on with back-pressure. Only after it has agreed to an upgrade are bytes
 * passed on as they are. By path it shares the API's origin, so it can set no cookie and is told its own
 * host; by host name it is told what the client said, and has cookies of its own.
 */
#include <stdio.h>
#include <string.h>

#include <llhttp.h>

#include "base/units.h"
#include "service/ask.h"
#include "service/handlers.h"
#include "service/port_gate.h"

enum { HEAD_MAX = 32 << 10, FIELDS_MAX = 128, DIAL_LIMIT_S = 60 };

/* Fields that belong to one connection, or to this service. */
static const char *const dropped[] = {
	"connection",
	"keep-alive",
	"proxy-authenticate",
	"proxy-authorization",
	"proxy-connection",
	"te",
	"trailer",
	"transfer-encoding",
	"content-length",
	"host",
	"authorization",
	"cookie",
	"upgrade",
	"expect",
	"x-cloche-session",
	PORT_TOKEN_FIELD,
};

/* What of an answer must not reach the client: it would set state for this service's name. */
static const char *const kept_back[] = {"date",
					"strict-transport-security",
					"alt-svc",
					"public-key-pins",
					"clear-site-data",
					"service-worker-allowed"};

struct port {
	llhttp_t parser;
	llhttp_settings_t settings;
	char head[HEAD_MAX];
	size_t head_size;
	char type[256];
	char field[256], value[8192];
	size_t field_size, value_size;
	unsigned fields;
	bool upgrade, raw, over, broken, has_length, body_ended;
	uint64_t length;
};

static struct port *port_of(struct call *c)
{
	return c->data;
}

static bool is_in(const char *name, const char *const *list, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (strcasecmp(name, list[i]) == 0)
			return true;
	return false;
}

/* ---- the request ---- */

struct text {
	char data[HEAD_MAX];
	size_t size;
	bool full;
};

static void __attribute__((format(printf, 2, 3))) add(struct text *t, const char *format, ...)
{
	va_list ap;
	int n;

	va_start(ap, format);
	n = vsnprintf(t->data + t->size, sizeof t->data - t->size, format, ap);
	va_end(ap);
	if (n < 0 || (size_t)n >= sizeof t->data - t->size)
		t->full = true;
	else
		t->size += (size_t)n;
}

static bool wants_upgrade(const struct exchange *x)
{
	const char *upgrade = exchange_field(x, "upgrade"), *on = exchange_field(x, "connection");

	return upgrade && on && strcasestr(on, "upgrade") && strcasecmp(upgrade, "websocket") == 0;
}

/* The path behind the port, as it came. */
static const char *raw_rest(const struct exchange *x)
{
	const struct call *c = exchange_data(x);
	const char *p = exchange_raw_path(x);

	if (c->gate.by_host)
		return p;
	for (int slashes = 0; *p; p++)
		if (*p == '/' && ++slashes == 6) /* /v1/sandboxes/ID/ports/N/ */
			return p;
	return "/";
}

/* Connection names further fields that are for this hop only. */
static bool is_of_connection(const struct exchange *x, const char *name)
{
	const char *list = exchange_field(x, "connection");
	size_t n = strlen(name);

	while (list && *list) {
		list += strspn(list, ", \t");
		if (strncasecmp(list, name, n) == 0 && strchr(", \t", list[n]))
			return true;
		list += strcspn(list, ",");
	}
	return false;
}

/* What is dropped by path and belongs to the server when it has a name of its own. */
static void write_own_fields(struct text *t, struct call *c)
{
	const char *authorization = exchange_field(c->x, "authorization");
	char cookies[8192];

	if (!c->gate.by_host) {
		add(t, "Host: localhost:%s\r\n", c->sub);
		return;
	}
	add(t, "Host: %s\r\n", exchange_field(c->x, "host"));
	if (port_gate_cookies(exchange_field(c->x, "cookie"), cookies, sizeof cookies))
		add(t, "Cookie: %s\r\n", cookies);
	if (authorization && !port_gate_is_key(authorization))
		add(t, "Authorization: %s\r\n", authorization);
}

static void write_head(struct text *t, struct call *c)
{
	struct exchange *x = c->x;
	uint64_t size = exchange_body_size(x);
	const char *name, *value;
	char query[HEAD_MAX];

	t->full |= !port_gate_query(exchange_raw_query(x), query, sizeof query);
	add(t, "%s %s%s%s HTTP/1.1\r\n", exchange_method(x), raw_rest(x), *query ? "?" : "", query);
	write_own_fields(t, c);
	for (size_t i = 0; exchange_field_at(x, i, &name, &value); i++)
		if (!is_in(name, dropped, ARRAY_SIZE(dropped)) && !is_of_connection(x, name))
			add(t, "%s: %s\r\n", name, value);
	if (port_of(c)->upgrade)
		add(t, "Connection: Upgrade\r\nUpgrade: websocket\r\n");
	else
		add(t, "Connection: close\r\n");
	if (size == UINT64_MAX)
		add(t, "Transfer-Encoding: chunked\r\n");
	else if (size > 0 || strcmp(exchange_method(x), "POST") == 0)
		add(t, "Content-Length: %llu\r\n", (unsigned long long)size);
	add(t, "\r\n");
}

static void on_body(struct exchange *x, const void *data, size_t size)
{
	struct call *c = exchange_data(x);
	bool chunked = !port_of(c)->raw && exchange_body_size(x) == UINT64_MAX;
	char head[32];
	bool room;

	if (chunked)
		talk_send_raw(c->talk, head, (size_t)snprintf(head, sizeof head, "%zx\r\n", size));
	room = talk_send_raw(c->talk, data, size);
	if (chunked)
		room = talk_send_raw(c->talk, "\r\n", 2);
	if (!room)
		exchange_pause(x);
}

static void on_body_end(struct exchange *x)
{
	struct call *c = exchange_data(x);

	if (port_of(c)->raw)
		talk_finish(c->talk);
	else if (exchange_body_size(x) == UINT64_MAX)
		talk_send_raw(c->talk, "0\r\n\r\n", 5);
}

/* ---- the answer ---- */

static void end_answer(struct call *c, bool complete)
{
	struct exchange *x = c->x;

	c->service->metrics.requests[2]++;
	call_free(c);
	exchange_end(x, complete);
}

static void bad_answer(struct call *c)
{
	struct err e = {0};

	if (exchange_began(c->x)) {
		end_answer(c, false);
		return;
	}
	problem_set(&e, PROBLEM_BAD_GATEWAY, "what answers on port %s inside does not speak HTTP",
		    c->sub);
	call_problem(c, &e);
}

static struct call *call_of(llhttp_t *p)
{
	return p->data;
}

static int on_field(llhttp_t *p, const char *at, size_t n)
{
	struct port *o = port_of(call_of(p));

	if (o->field_size + n >= sizeof o->field)
		return -1;
	memcpy(o->field + o->field_size, at, n);
	o->field_size += n;
	return 0;
}

static int on_value(llhttp_t *p, const char *at, size_t n)
{
	struct port *o = port_of(call_of(p));

	if (o->value_size + n >= sizeof o->value)
		return -1;
	memcpy(o->value + o->value_size, at, n);
	o->value_size += n;
	return 0;
}

static bool is_clean(const char *text)
{
	for (; *text; text++)
		if ((unsigned char)*text < ' ' && *text != '\t')
			return false;
	return true;
}

static bool passes(const struct call *c, const struct port *o)
{
	if (strcasecmp(o->field, "set-cookie") == 0)
		return c->gate.by_host && port_gate_may_set(o->value);
	if (o->upgrade && strcasecmp(o->field, "upgrade") == 0)
		return true;
	return !is_in(o->field, kept_back, ARRAY_SIZE(kept_back)) &&
	       !is_in(o->field, dropped, ARRAY_SIZE(dropped));
}

static int on_field_complete(llhttp_t *p)
{
	struct port *o = port_of(call_of(p));
	int n;

	o->field[o->field_size] = o->value[o->value_size] = '\0';
	o->field_size = o->value_size = 0;
	if (++o->fields > FIELDS_MAX || !is_clean(o->value) || !is_clean(o->field))
		return -1;
	if (strcasecmp(o->field, "content-type") == 0) {
		snprintf(o->type, sizeof o->type, "%.255s", o->value);
		return 0;
	}
	if (!passes(call_of(p), o))
		return 0;
	n = snprintf(o->head + o->head_size, sizeof o->head - o->head_size, "%s: %s\r\n", o->field,
		     o->value);
	if (n < 0 || (size_t)n >= sizeof o->head - o->head_size)
		return -1;
	o->head_size += (size_t)n;
	return 0;
}

static void take_over(struct call *c)
{
	struct port *o = port_of(c);
	struct text *t = calloc(1, sizeof *t);

	if (!t)
		return;
	add(t, "HTTP/1.1 101 Switching Protocols\r\n%sConnection: Upgrade\r\n\r\n", o->head);
	o->raw = true;
	exchange_take_over(c->x, t->data, t->size);
	free(t);
}

static int on_head_complete(llhttp_t *p)
{
	struct call *c = call_of(p);
	struct port *o = port_of(c);
	bool no_body = p->status_code == 204 || p->status_code == 304 ||
		       strcmp(exchange_method(c->x), "HEAD") == 0;

	o->head[o->head_size] = '\0';
	if (p->status_code == 101) {
		if (!o->upgrade)
			return -1;
		take_over(c);
		return 2; /* no message follows: what is left is raw */
	}
	if (p->status_code < 200) { /* 100, 103: not for us to pass on */
		o->head_size = 0;
		return 0;
	}
	o->has_length = p->flags & F_CONTENT_LENGTH;
	o->length = p->content_length;
	exchange_begin(c->x, p->status_code, o->type[0] ? o->type : NULL, o->head,
		       no_body         ? 0
		       : o->has_length ? o->length
				       : UINT64_MAX);
	return no_body ? 1 : 0;
}

static int on_answer_body(llhttp_t *p, const char *at, size_t n)
{
	struct call *c = call_of(p);

	if (!exchange_write(c->x, at, n))
		talk_pause(c->talk);
	return 0;
}

static int on_complete(llhttp_t *p)
{
	port_of(call_of(p))->over = p->status_code >= 200;
	return 0;
}

static void pass_raw(struct call *c, const void *data, size_t size)
{
	if (size && !exchange_write(c->x, data, size))
		talk_pause(c->talk);
}

static void on_raw(struct talk *t, const void *data, size_t size)
{
	struct call *c = talk_data(t);
	struct port *o = port_of(c);
	llhttp_errno_t r;

	if (o->raw) {
		if (size)
			pass_raw(c, data, size);
		else
			end_answer(c, true);
		return;
	}
	if (size == 0) { /* a body without length ends here; anything else is cut */
		bool complete = llhttp_finish(&o->parser) == HPE_OK && exchange_began(c->x);

		if (complete)
			end_answer(c, true);
		else
			bad_answer(c);
		return;
	}
	r = llhttp_execute(&o->parser, data, size);
	if (o->raw) {
		const char *rest = llhttp_get_error_pos(&o->parser);

		if (r == HPE_PAUSED_UPGRADE && rest)
			pass_raw(c, rest, size - (size_t)(rest - (const char *)data));
	} else if (o->over) {
		end_answer(c, true);
	} else if (r != HPE_OK) {
		bad_answer(c);
	}
}

/* ---- dialling ---- */

static void on_dial_frame(struct talk *t, const struct frame *f, const unsigned char *payload)
{
	struct call *c = talk_data(t);
	struct failed_record failed;

	if (f->type == FRAME_FAILED && failed_record_decode(payload, f->size, &failed) == 0) {
		failed.errnum = failed.errnum ? failed.errnum : ECONNREFUSED;
		ask_failed(c, &failed);
	} else if (f->type == FRAME_DONE) {
		struct text *head = calloc(1, sizeof *head);

		talk_become_raw(t);
		if (head)
			write_head(head, c);
		if (!head || head->full) {
			free(head);
			bad_answer(c);
			return;
		}
		talk_send_raw(t, head->data, head->size);
		free(head);
		if (port_of(c)->upgrade)
			talk_limit(t, 0);
		exchange_resume(c->x);
	} else {
		bad_answer(c);
	}
}

static void on_dial_room(struct talk *t)
{
	struct call *c = talk_data(t);

	exchange_resume(c->x);
}

static void on_dial_end(struct talk *t, int error)
{
	(void)error;
	bad_answer(talk_data(t));
}

static const struct talk_ops dial_ops = {.on_frame = on_dial_frame,
					 .on_raw = on_raw,
					 .on_room = on_dial_room,
					 .on_end = on_dial_end};

static void on_client_room(struct exchange *x)
{
	struct call *c = exchange_data(x);

	if (c->talk)
		talk_resume(c->talk);
}

void ports_any(struct call *c)
{
	struct err e = {0};
	struct port *o;
	uint64_t number;
	uint32_t port;

	if (parse_count(c->sub, 1, 65535, &number) < 0) {
		err_set(&e, 0, "port %s: must be a number from 1 to 65535", c->sub);
		call_problem(c, &e);
		return;
	}
	if (c->gate.in_query) {
		port_gate_redirect(c);
		return;
	}
	if (!c->gate.by_host && port_tunnel_wanted(c->x)) {
		port_tunnel(c, (uint32_t)number);
		return;
	}
	c->data = o = calloc(1, sizeof *o);
	if (!o)
		e.code = PROBLEM_UNAVAILABLE;
	else
		c->talk = box_talk(c->box, &dial_ops, c, &e);
	if (!c->talk) {
		call_problem(c, &e);
		return;
	}
	o->upgrade = wants_upgrade(c->x);
	llhttp_settings_init(&o->settings);
	o->settings.on_header_field = on_field;
	o->settings.on_header_value = on_value;
	o->settings.on_header_value_complete = on_field_complete;
	o->settings.on_headers_complete = on_head_complete;
	o->settings.on_body = on_answer_body;
	o->settings.on_message_complete = on_complete;
	llhttp_init(&o->parser, HTTP_RESPONSE, &o->settings);
	o->parser.data = c;
	c->ops.on_body = on_body;
	c->ops.on_body_end = on_body_end;
	c->ops.on_room = on_client_room;
	exchange_pause(c->x);
	talk_limit(c->talk, DIAL_LIMIT_S);
	port = (uint32_t)number;
	talk_send(c->talk, FRAME_DIAL, &port, sizeof port, NULL, 0);
}
