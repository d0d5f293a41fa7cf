/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wire.h - how cloche-egress is told what to do, and what it tells: one SEQPACKET message each, fixed structs.
 *
 * `cloche-egress FD` is one process for one sandbox, without privileges. On FD come, in this order,
 *
 *	CONFIG  + [sealed memfd with the configuration (config.h), control socket]; answered by READY or REFUSED
 *	SERVE   + the listeners in their order, and last a pidfd of the sandbox's init
 *
 * after which FD is closed. It may so be started before there is a sandbox, and wait. The control socket is a
 * connected one (a run without a service) or a listening one (RUNTIME/sandboxes/ID/egress: the spawner and cloched
 * connect, again after a restart). Peer credentials say what a client may: POLICY only from its starter's uid or 0.
 *
 * It ends when init has died and its records were acknowledged (or ten seconds later), or when a connected control
 * socket is hung up on. Its death denies everything: nobody else holds the sockets.
 *
 * Everything it says may be said by whoever has taken it over: clients check sizes, NULs and ranges, and
 * believe nothing but about this one sandbox.
 */
#ifndef EGRESS_WIRE_H
#define EGRESS_WIRE_H

#include <stdbool.h>
#include <stdint.h>

enum { EGRESS_VERSION = 1, EGRESS_MESSAGE_MAX = 64 << 10, EGRESS_CA_MAX = 8 << 10 };

enum egress_type {
	EGRESS_CONFIG = 1,
	EGRESS_SERVE = 2,
	EGRESS_POLICY =
		3, /* + memfd: struct config's "mode" and "rules" anew; DONE or REFUSED (then the old one holds) */
	EGRESS_FLUSH = 4, /* TOTALS: everything refused or closed so far has been said before it */
	EGRESS_ACK = 5,   /* records up to this number need not be kept */
	EGRESS_WATCH = 6, /* RECORD from now on, first those kept */

	EGRESS_READY = 32,
	EGRESS_DONE = 33,
	EGRESS_REFUSED = 34,
	EGRESS_RECORD = 35,
	EGRESS_TOTALS = 36,
};

/* What a listener is for. All are sockets made inside the sandbox's network namespace. */
enum egress_listener {
	LISTEN_PROXY, /* TCP 127.0.0.1:3128: HTTP proxy, CONNECT and SOCKS5, told apart by the first byte */
	LISTEN_HTTP, /* TCP *:80, also caught by the default route: getsockname() is where it was going */
	LISTEN_TLS, /* TCP *:443 */
	LISTEN_ANY, /* TCP, all other ports (nf_tables' tproxy): getsockname() is where it was going */
	LISTEN_DNS, /* UDP *:53, IP_PKTINFO and IPV6_RECVPKTINFO set: answers come from where was asked */
	LISTEN_DNS_TCP,
	LISTEN_KINDS,
};
enum { EGRESS_PROXY_PORT = 3128, EGRESS_LISTENERS_MAX = 16 };

struct egress_header {
	uint32_t type;
	uint32_t sequence; /* of a request and its answer; in RECORD: its number, from 1 */
};

struct egress_config {
	struct egress_header header;
	uint32_t version;
	uint32_t uid, gid; /* to become; UINT32_MAX: stay */
	uint32_t zero;
};

struct egress_serve {
	struct egress_header header;
	uint32_t count; /* of listeners */
	uint32_t kinds[EGRESS_LISTENERS_MAX];
	uint32_t zero;
};

struct egress_ready {
	struct egress_header header;
	uint32_t ca_size; /* 0: no rule asks for TLS to be opened */
	uint32_t zero;
	char ca[EGRESS_CA_MAX]; /* this sandbox's own certificate authority, PEM, without NUL */
};

struct egress_refused {
	struct egress_header header;
	char message[504];
};

/* ACK, DONE, FLUSH, WATCH, POLICY. ACK: header.sequence is the last number. */
struct egress_plain {
	struct egress_header header;
};

enum egress_verdict {
	EGRESS_DENIED,
	EGRESS_ALLOWED,
	EGRESS_FAILED /* allowed, but did not come about */
};

/* A connection, or a request that was refused in one: said when it is refused, or has ended. */
struct egress_record {
	struct egress_header header;
	uint32_t verdict;
	uint32_t port;
	uint64_t started_ms; /* CLOCK_REALTIME */
	uint64_t duration_us;
	uint64_t sent, received; /* bytes from the sandbox, to it */
	char host[256];          /* as asked for; "" could not be learnt */
	char address[48];        /* connected to, or refused; "" none */
	char rule[512];          /* its text, "" none */
	char why[200];
	char credential[64]; /* that was added, "" none */
	char method[16];     /* of a refused request, "" else */
	char path[128];      /* without query, cut */
};

/* A record as it may be believed: whole texts, a host that is one, numbers in their ranges. Another never leaves an honest
 * cloche-egress: for its client it is the word of one that has been taken over, which it ends. */
bool egress_record_is_valid(const struct egress_record *r);

struct egress_totals {
	struct egress_header header;
	uint64_t allowed, denied, failed; /* connections and refused requests so far */
	uint64_t bytes, open;
	uint64_t lost; /* records dropped since nobody took them: RECORDS_MAX wait at most */
};

#endif
