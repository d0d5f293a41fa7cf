/* SPDX-License-Identifier: Apache-2.0 */
/*
 * port_share.c - shares of a port: made, listed, revoked, and the connections that came by one, which end with it.
 */
#include <stdio.h>
#include <string.h>

#include "base/units.h"
#include "service/handlers.h"
#include "service/port_gate.h"

#define SHARE_LIFE_US (3600ull * 1000000)

/* ---- connections ---- */

void port_shared_leave(struct call *c)
{
	struct call **at = &c->service->shared;

	if (!c->gate.shared)
		return;
	while (*at != c)
		at = &(*at)->gate.next;
	*at = c->gate.next;
	c->gate.shared = false;
}

static void cut(struct call *c)
{
	struct err e = {0};

	if (call_cut(c))
		return;
	problem_set(&e, PROBLEM_UNAUTHENTICATED, "this share of the port is over");
	call_problem(c, &e);
}

/* Those of this port, or (port NULL) those that are too old. */
static void cut_some(struct service *v, const char *id, const char *port)
{
	int64_t now = wall_ms();

	for (struct call *c = v->shared, *next; c; c = next) {
		next = c->gate.next;
		if (port ? strcmp(c->id, id) == 0 && strcmp(c->sub, port) == 0
			 : c->gate.expires_ms <= now)
			cut(c);
	}
}

static void wait_for_next(struct service *v);

static void on_expired(uv_timer_t *t)
{
	cut_some(t->data, NULL, NULL);
	wait_for_next(t->data);
}

/* The clock on the wall may be set meanwhile: it is looked at once a minute. */
static void wait_for_next(struct service *v)
{
	int64_t now = wall_ms(), first = now + 60000;

	for (const struct call *c = v->shared; c; c = c->gate.next)
		if (c->gate.expires_ms < first)
			first = c->gate.expires_ms;
	if (v->shared)
		uv_timer_start(&v->sharing, on_expired, first > now ? (uint64_t)(first - now) : 1,
			       0);
}

void port_shared_enter(struct call *c)
{
	c->gate.next = c->service->shared;
	c->gate.shared = true;
	c->service->shared = c;
	if (!uv_is_active((uv_handle_t *)&c->service->sharing) ||
	    uv_timer_get_due_in(&c->service->sharing) >
		    (uint64_t)(c->gate.expires_ms > wall_ms() ? c->gate.expires_ms - wall_ms() : 0))
		wait_for_next(c->service);
}

/* ---- routes ---- */

static int read_port(const struct call *c, uint64_t *ret, struct err *e)
{
	return parse_count(c->sub, 1, 65535, ret) < 0 || c->sub[0] == '0'
		       ? err_set(e, 0, "port %s: must be a number from 1 to 65535", c->sub)
		       : 0;
}

static int read_life(struct call *c, uint64_t *ret_us, struct err *e)
{
	json_t *life = json_object_get(c->body, "expires_in");
	const char *key;
	json_t *value;

	json_object_foreach(c->body, key, value)
		if (strcmp(key, "expires_in") != 0)
			return err_set(e, 0, "%.60s: is unknown (expires_in)", key);
	if (c->body && !json_is_object(c->body))
		return err_set(e, 0, "the body must be an object");
	*ret_us = SHARE_LIFE_US;
	if (!life || json_is_null(life))
		return 0;
	if (json_is_number(life))
		*ret_us = json_number_value(life) > 0 && json_number_value(life) < 1e9
				  ? (uint64_t)(json_number_value(life) * 1e6)
				  : 0;
	else if (!json_is_string(life) || parse_duration(json_string_value(life), ret_us) < 0)
		return err_set(e, 0, "expires_in: must be a duration, such as 3600 or \"1h\"");
	if (*ret_us < 1000000 || *ret_us > c->service->config.max_timeout_us)
		return err_set(e, 0, "expires_in: must be from 1 s to %llu s",
			       (unsigned long long)(c->service->config.max_timeout_us / 1000000));
	return 0;
}

/* As a browser on this machine, or one that ports_domain leads here, writes it. */
static json_t *url_of(const struct call *c, const char *secret)
{
	const struct service_config *config = &c->service->config;
	const char *colon = strrchr(config->listen, ':');

	return json_sprintf("%s://%s-sbx-%s.%s%s/?cloche_token=%s",
			    config->tls_certificate[0] ? "https" : "http", c->sub, c->id + 4,
			    config->ports_domain, colon ? colon : "", secret);
}

static void note(struct call *c, const char *action)
{
	uint64_t port = strtoull(c->sub, NULL, 10);

	audit(c->service, c->owner, c->session[0] ? c->session : NULL, action, c->id,
	      json_pack("{sI}", "port", (json_int_t)port));
}

void ports_share(struct call *c)
{
	char secret[SECRET_SIZE];
	struct err e = {0};
	uint64_t port, life;
	int64_t expires;

	if (read_port(c, &port, &e) < 0 || read_life(c, &life, &e) < 0) {
		call_problem(c, &e);
		return;
	}
	if (!c->service->config.listen[0]) {
		problem_set(
			&e, PROBLEM_CONFLICT,
			"the service has no TCP address to share ports on: set service.listen, or "
			"use `cloche port-forward`");
		call_problem(c, &e);
		return;
	}
	expires = wall_ms() + (int64_t)(life / 1000);
	if (store_share_create(c->service->store, c->id, (unsigned)port, expires, secret, &e) < 0) {
		e.code = e.errnum == EDQUOT ? PROBLEM_CONFLICT : PROBLEM_UNAVAILABLE;
		call_problem(c, &e);
		return;
	}
	note(c, "port.share");
	call_reply(c, 201,
		   json_pack("{si so ss so}", "port", (int)port, "url", url_of(c, secret), "token",
			     secret, "expires_at", time_json(expires)));
}

void ports_unshare(struct call *c)
{
	struct err e = {0};
	uint64_t port;
	int r = read_port(c, &port, &e);

	if (r == 0) {
		r = store_share_revoke(c->service->store, c->id, (unsigned)port, &e);
		if (r < 0)
			e.code = PROBLEM_UNAVAILABLE;
		if (r > 0)
			r = problem_set(&e, PROBLEM_NOT_FOUND, "port %s is not shared", c->sub);
	}
	if (r < 0) {
		call_problem(c, &e);
		return;
	}
	cut_some(c->service, c->id, c->sub);
	note(c, "port.unshare");
	call_reply(c, 204, NULL);
}

static int add_share(const struct stored_share *share, void *data)
{
	return json_array_append_new(data, json_pack("{si so so}", "port", (int)share->port,
						     "created_at", time_json(share->created_ms),
						     "expires_at", time_json(share->expires_ms)));
}

json_t *port_shares_json(struct call *c, struct err *e)
{
	json_t *list = json_array();

	if (store_share_list(c->service->store, c->id, add_share, list, e) == 0)
		return list;
	json_decref(list);
	return NULL;
}
