/* SPDX-License-Identifier: Apache-2.0 */
/*
 * port_gate.h - a port of a sandbox by a host name of its own, PORT-ID.ports_domain, and who may come in there.
 *
 * Behind such a name is the server inside and nothing of the API: a page that comes from it is of another origin than the
 * API and than every other sandbox. Who may come in: who may use the sandbox (unix socket, API key), and on TCP whoever has a
 * share's secret (store_share_*), as the field X-Cloche-Port-Token, or once as ?cloche_token= in a GET, which becomes a cookie
 * of that name alone (of several of that name, which others may have set, any that is a share's counts). The cookie counts only in requests that the browser says come from that origin itself, or are a
 * navigation to it. Neither secret nor cookie reaches the server inside.
 */
#ifndef SERVICE_PORT_GATE_H
#define SERVICE_PORT_GATE_H

#include "service/call.h"

#define PORT_TOKEN_FIELD  "x-cloche-port-token"
#define PORT_TOKEN_COOKIE "cloche_port"

/* Does this Host name a port? Its sandbox and number then ("8000"). */
bool port_host_parse(const char *domain, const char *host, char ret_id[static 64],
		     char ret_port[static 64]) must_check;

/* By c->id and c->sub: 0 when it came by a valid share (c->owner is the sandbox's, c->gate filled), 1 when it brought none,
 * -1 with e when it may not come in. */
int port_gate_check(struct call *c, struct err *e) must_check;

/* It brought the secret in its query: answer with the cookie, and the way to the same without it. */
void port_gate_redirect(struct call *c);

/* The cookies that are the server's, into ret; false when there are none, or too many. */
bool port_gate_cookies(const char *cookies, char *ret, size_t size);
/* The query without a share's secret, however else it came in, into ret; false: it does not fit. */
bool port_gate_query(const char *query, char *ret, size_t size);
/* May the server inside set this one? Not ours, and none for other names than its own. */
bool port_gate_may_set(const char *cookie);

/* An API key: none of the server's business. */
bool port_gate_is_key(const char *authorization);

/* port_share.c: connections that came by a share. */
void port_shared_enter(struct call *c);
void port_shared_leave(struct call *c);
/* [{"port", "created_at", "expires_at"}], a new reference; NULL with e. */
json_t *port_shares_json(struct call *c, struct err *e) must_check;

/* port_tunnel.c: Upgrade: tcp on a port's path. */
bool port_tunnel_wanted(const struct exchange *x);
void port_tunnel(struct call *c, uint32_t port);

#endif
