/* SPDX-License-Identifier: Apache-2.0 */
#include "service/call.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/fd.h"
#include "base/json.h"
#include "base/units.h"
#include "service/budget.h"
#include "service/handlers.h"
#include "service/port_gate.h"

enum needs {
	OPEN = 1,
	ADMIN = 2,
	BOX = 4,
	JSON = 8,
	MAYBE_JSON = 16,
	RAW_QUERY = 32,
	BY_HOST = 64,
	OWN_PAGES = 128
};
enum { MAX_QUERIES = 6, MAX_ID = 63, MAX_SESSION = 128 };

#define Q(...)              \
	{                   \
		__VA_ARGS__ \
	}

static const struct route {
	const char *method, *pattern;
	void (*handle)(struct call *c);
	unsigned needs;
	const char *queries[MAX_QUERIES];
} routes[] = {
#define ROUTE(method, pattern, handler, needs, queries) {method, pattern, handler, needs, queries},
#include "service/routes.def"
#undef ROUTE
};

/* Beside the table: its path is not ours. */
static const struct route by_host = {"ANY", "", ports_any, BOX | RAW_QUERY | BY_HOST, {NULL}};

void call_print_routes(FILE *out)
{
	for (size_t i = 0; i < ARRAY_SIZE(routes); i++)
		fprintf(out, "%s %s\n", routes[i].method, routes[i].pattern);
}

/* ---- a call's life ---- */

void call_drop_body(struct call *c)
{
	json_decref(TAKE_PTR(c->body));
	budget_give(c->service, c->owner, TAKE(c->body_room, 0));
}

static bool on_body_room(struct exchange *x, size_t bytes)
{
	struct call *c = exchange_data(x);

	if (bytes <= BUDGET_FREE)
		return true;
	if (!budget_grow(c->service, c->owner, c->body_room, bytes)) {
		c->service->metrics.refused_quota++;
		return false;
	}
	c->body_room = bytes;
	return true;
}

void call_free(struct call *c)
{
	port_shared_leave(c);
	if (c->waits_for)
		*c->waits_for = NULL;
	if (c->release)
		c->release(c);
	if (c->waits_in)
		waiter_remove(c->waits_in, &c->waiter);
	if (c->talk)
		box_hang_up(c->box, TAKE_PTR(c->talk));
	if (c->box)
		box_release(c->box);
	call_drop_body(c);
	free(c->data);
	free(c);
}

static void count_answer(struct call *c, int status)
{
	if (status >= 100 && status < 600)
		c->service->metrics.requests[status / 100]++;
}

void call_reply(struct call *c, int status, json_t *j)
{
	struct exchange *x = c->x;

	count_answer(c, status);
	service_commit(c->service);
	call_free(c);
	if (j || status != 204)
		reply_json(x, status, j);
	else
		exchange_reply(x, status, NULL, NULL, NULL, 0);
}

void call_reply_text(struct call *c, int status, const char *text)
{
	struct exchange *x = c->x;

	count_answer(c, status);
	service_commit(c->service);
	call_free(c);
	reply_json_text(x, status, "application/json", NULL, text);
}

void call_problem(struct call *c, const struct err *e)
{
	int status = problem_status(e);
	unsigned retry = c->retry_after_s ? c->retry_after_s : status == 503 ? 1 : 0;
	struct exchange *x = c->x;

	count_answer(c, status);
	call_free(c);
	problem_reply(x, e, retry);
}

bool call_cut(struct call *c)
{
	struct exchange *x = c->x;

	if (!exchange_began(x))
		return false;
	call_free(c);
	exchange_end(x, false);
	return true;
}

int call_over_quota(struct call *c, const struct quota_denial *denial, struct err *e)
{
	c->service->metrics.refused_quota++;
	c->retry_after_s = denial->retry_after_s;
	c->never_fits = denial->never;
	if (e->errnum == ENOMEM)
		e->code = PROBLEM_UNAVAILABLE;
	return -1;
}

static void on_gone(struct exchange *x)
{
	struct call *c = exchange_data(x);

	if (c->gone)
		c->gone(c);
	call_free(c);
}

void call_wait(struct call *c, struct waiter **list, void (*tell)(struct waiter *w, struct box *b))
{
	c->waiter.tell = tell;
	c->waits_in = list;
	waiter_add(list, &c->waiter);
}

struct call *call_of_waiter(struct waiter *w)
{
	struct call *c = (struct call *)((char *)w - offsetof(struct call, waiter));

	c->waits_in = NULL;
	return c;
}

bool call_may_see(const struct call *c, const char *owner)
{
	return c->admin || strcmp(c->owner, owner) == 0;
}

bool call_flag(const struct call *c, const char *name)
{
	const char *value = exchange_query(c->x, name);

	return value && (!*value || strcmp(value, "true") == 0);
}

int call_number(const struct call *c, const char *name, uint64_t fallback, uint64_t max,
		uint64_t *ret, struct err *e)
{
	const char *value = exchange_query(c->x, name);

	*ret = fallback;
	if (!value)
		return 0;
	if (parse_count(value, 0, max, ret) < 0)
		return err_set(e, 0, "%s: must be a number from 0 to %llu", name,
			       (unsigned long long)max);
	return 0;
}

/* ---- who asks ---- */

bool call_has_own_origin(const struct exchange *x)
{
	const char *origin = exchange_field(x, "origin"), *host = exchange_field(x, "host");
	const char *p = origin ? strstr(origin, "://") : NULL;

	return !origin || (p && host && strcasecmp(p + 3, host) == 0);
}

/* The browser's rules do not protect a service on loopback: a page of another site may send what a form
 * can. So nothing is heard that a browser marks as a page's. MCP wants a page of our own origin heard: only on TCP, where a
 * key is needed, which no browser adds by itself, since ports by path are of that origin, too. */
static bool is_page(const struct exchange *x, unsigned needs)
{
	const char *site = exchange_field(x, "sec-fetch-site");
	bool own =
		needs & OWN_PAGES && exchange_peer(x)->kind == PEER_TCP && call_has_own_origin(x);

	return (exchange_field(x, "origin") && !own) ||
	       (site && strcmp(site, "none") != 0 && strcmp(site, "same-origin") != 0);
}

/* And on TCP the name must be ours. */
static int check_origin(const struct service *v, const struct exchange *x, unsigned needs,
			struct err *e)
{
	const char *host = exchange_field(x, "host");
	size_t n = host ? strcspn(host, ":") : 0;
	json_t *name;
	size_t i;

	if (is_page(x, needs))
		return problem_set(e, PROBLEM_FORBIDDEN, "requests of web pages are not served");
	if (host && host[0] == '[') /* [::1]:80 */
		n = strcspn(host, "]") + 1;
	if (exchange_peer(x)->kind != PEER_TCP ||
	    (n == 9 && strncasecmp(host, "localhost", 9) == 0) ||
	    (host && strncmp(v->config.listen, host, n) == 0 && v->config.listen[n] == ':'))
		return 0;
	json_array_foreach(v->config.hosts, i, name)
		if (host && json_is_string(name) && strlen(json_string_value(name)) == n &&
		    strncasecmp(json_string_value(name), host, n) == 0)
			return 0;
	return problem_set(e, PROBLEM_FORBIDDEN,
			   "this Host is not served: add it to hosts in the configuration");
}

/* A key may have its own quota; it is forgotten while its owner does nothing. */
static int tell_quota(struct call *c, const struct stored_key *key, struct err *e)
{
	struct quota q = c->service->owner_quota;
	int r;

	if (key->quota && quota_from_text(&q, key->quota, strlen(key->quota), e) < 0)
		return -1;
	r = quota_set_owner(c->service->quotas, c->owner, key->quota ? &q : NULL, now_us());
	return r < 0 ? problem_set(e, PROBLEM_UNAVAILABLE, "too many callers at a time") : 0;
}

static int who_asks(struct call *c, struct err *e)
{
	const struct peer *p = exchange_peer(c->x);
	const char *field = exchange_field(c->x, "authorization");
	struct stored_key key = {0};
	int r = 1;

	if (p->kind == PEER_INSIDE) { /* mcp.c, for a caller that was admitted */
		snprintf(c->owner, sizeof c->owner, "%s", p->address);
		c->admin = p->uid == 0;
		return 0;
	}
	if (p->kind == PEER_UNIX) {
		snprintf(c->owner, sizeof c->owner, "uid:%u", (unsigned)p->uid);
		c->admin = p->uid == 0 || p->uid == c->service->operator_uid;
		return 0;
	}
	if (field && strncasecmp(field, "Bearer ", 7) == 0)
		r = store_key_find(c->service->store, field + 7, &key, e);
	if (r < 0) {
		e->code = PROBLEM_UNAVAILABLE;
		return -1;
	}
	if (r == 0) {
		snprintf(c->owner, sizeof c->owner, "key:%s", key.id);
		r = tell_quota(c, &key, e);
		stored_key_done(&key);
		return r;
	}
	return problem_set(e, PROBLEM_UNAUTHENTICATED,
			   "send Authorization: Bearer clk_… (cloche key create)");
}

static int read_session(struct call *c, struct err *e)
{
	const char *text = exchange_field(c->x, "x-cloche-session");

	if (!text)
		return 0;
	for (const char *p = text; *p; p++)
		if (!isalnum((unsigned char)*p) && !strchr("._:-", *p))
			return err_set(e, 0, "X-Cloche-Session: letters, digits and ._:- only");
	if (!*text || strlen(text) > MAX_SESSION)
		return err_set(e, 0, "X-Cloche-Session: 1 to %d characters", MAX_SESSION);
	snprintf(c->session, sizeof c->session, "%s", text);
	return 0;
}

/* ---- which route ---- */

static bool take_id(char *ret, const char **p)
{
	size_t n = strcspn(*p, "/");

	if (n == 0 || n > MAX_ID)
		return false;
	for (size_t i = 0; i < n; i++)
		if (!isalnum((unsigned char)(*p)[i]) && (*p)[i] != '_' && (*p)[i] != '-')
			return false;
	memcpy(ret, *p, n);
	ret[n] = '\0';
	*p += n;
	return true;
}

static bool matches(const struct route *r, const char *path, struct call *c)
{
	for (const char *p = r->pattern; *p || *path;) {
		if (strncmp(p, "{rest}", 6) == 0) {
			c->rest = path;
			return true;
		}
		if (strncmp(p, "{id}", 4) == 0) {
			p += 4;
			if (!take_id(c->id, &path))
				return false;
		} else if (strncmp(p, "{sub}", 5) == 0) {
			p += 5;
			if (!take_id(c->sub, &path))
				return false;
		} else if (*p++ != *path++) {
			return false;
		}
	}
	return true;
}

static const struct route *find_route(struct call *c, struct err *e)
{
	const char *method = exchange_method(c->x), *path = exchange_path(c->x);
	bool other_method = false;

	for (size_t i = 0; i < ARRAY_SIZE(routes); i++) {
		if (!matches(&routes[i], path, c))
			continue;
		if (strcmp(routes[i].method, method) == 0 || strcmp(routes[i].method, "ANY") == 0 ||
		    (strcmp(method, "HEAD") == 0 && strcmp(routes[i].method, "GET") == 0))
			return &routes[i];
		other_method = true;
	}
	if (other_method)
		problem_set(e, PROBLEM_METHOD_NOT_ALLOWED, "%s is not for %.200s", method, path);
	else
		problem_set(e, PROBLEM_NOT_FOUND, "no such path: %.200s", path);
	return NULL;
}

static int find_box(struct call *c, struct err *e)
{
	struct box *b = box_find(c->service, c->id);
	struct stored_sandbox stored = {0};
	bool mine;

	if (b && call_may_see(c, b->stored.owner) && !b->stored.one_shot) {
		box_hold(b);
		c->box = b;
		return box_touch(b, e);
	}
	if (!b && store_sandbox_get(c->service->store, c->id, &stored, e) == 0) {
		mine = call_may_see(c, stored.owner) && !stored.one_shot;
		stored_sandbox_done(&stored);
		if (mine)
			return problem_set(e, PROBLEM_SANDBOX_ENDED, "sandbox %s has ended", c->id);
	}
	return problem_set(e, PROBLEM_NOT_FOUND, "no such sandbox: %s", c->id);
}

static int check_query(const struct call *c, const struct route *r, struct err *e)
{
	const char *bad = "";

	static const char *const flags[] = {"stream",    "all",       "follow",
					    "eof",       "parents",   "append",
					    "exclusive", "recursive", "progress"};

	if (r->needs & RAW_QUERY)
		return 0;
	for (size_t i = 0; i < ARRAY_SIZE(flags); i++) {
		const char *value = exchange_query(c->x, flags[i]);

		if (value && *value && strcmp(value, "true") != 0)
			return err_set(e, 0, "query parameter %s: is there, or not, or \"true\"",
				       flags[i]);
	}
	if (exchange_query_check(c->x, r->queries, &bad) == 0)
		return 0;
	return err_set(e, 0, "query parameter %.60s is unknown or given twice", bad);
}

/* ---- bodies ---- */

static void on_json(struct exchange *x, char *data, size_t size)
{
	struct call *c = exchange_data(x);
	const struct route *r = c->route;
	struct err e = {0};

	if (size > 0 || r->needs & JSON) {
		sha256_hex(data, size, c->body_sha256);
		c->body = json_read(data, size, &e);
	}
	exchange_drop_body(x);
	if (!c->body && (size > 0 || r->needs & JSON)) {
		e.code = 0;
		call_problem(c, &e);
		return;
	}
	/* The body may have taken its time: the sandbox is looked at as it is now. */
	if (c->box && box_touch(c->box, &e) < 0) {
		call_problem(c, &e);
		return;
	}
	r->handle(c);
}

static bool is_json(const char *type)
{
	size_t n = type ? strcspn(type, "; \t") : 0;

	return n == 16 && strncasecmp(type, "application/json", 16) == 0;
}

static int check_type(const struct call *c, const struct route *r, struct err *e)
{
	const char *type = exchange_field(c->x, "content-type");

	if (!(r->needs & (JSON | MAYBE_JSON)) || is_json(type) ||
	    (r->needs & MAYBE_JSON && !type && exchange_body_size(c->x) == 0))
		return 0;
	return problem_set(e, PROBLEM_UNSUPPORTED_MEDIA_TYPE,
			   "send JSON, with Content-Type: application/json");
}

static int admit_by_host(struct call *c, struct err *e)
{
	int r = port_gate_check(c, e);

	if (r < 0 || (r > 0 && who_asks(c, e) < 0))
		return -1;
	return find_box(c, e);
}

static int admit(struct call *c, const struct route *r, struct err *e)
{
	if (r->needs & BY_HOST)
		return admit_by_host(c, e);
	if (check_origin(c->service, c->x, r->needs, e) < 0)
		return -1;
	if (!(r->needs & OPEN) && who_asks(c, e) < 0)
		return -1;
	if (r->needs & ADMIN && !c->admin)
		return problem_set(e, PROBLEM_FORBIDDEN, "only root, on the unix socket");
	if (read_session(c, e) < 0 || check_query(c, r, e) < 0 || check_type(c, r, e) < 0)
		return -1;
	return r->needs & BOX ? find_box(c, e) : 0;
}

void call_route(struct exchange *x, void *context)
{
	struct service *v = context;
	struct call *c = calloc(1, sizeof *c);
	const struct route *r;
	struct err e = {0};

	if (!c) {
		e.code = PROBLEM_UNAVAILABLE;
		problem_reply(x, &e, 1);
		return;
	}
	c->service = v;
	c->x = x;
	c->gate.by_host =
		port_host_parse(v->config.ports_domain, exchange_field(x, "host"), c->id, c->sub);
	r = c->gate.by_host ? &by_host : find_route(c, &e);
	if (!r || admit(c, r, &e) < 0) {
		call_problem(c, &e);
		return;
	}
	c->ops.on_gone = on_gone;
	c->ops.on_body_room = on_body_room;
	exchange_set_ops(x, &c->ops, c);
	if (r->needs & (JSON | MAYBE_JSON)) {
		c->route = r;
		exchange_collect(x, v->config.body_bytes, on_json);
	} else {
		r->handle(c);
	}
}
