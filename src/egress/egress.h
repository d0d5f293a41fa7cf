/* SPDX-License-Identifier: Apache-2.0 */
/*
 * egress.h - inside cloche-egress: one process, one loop, one sandbox.
 *
 * listen.c accepts; proxy.c, socks.c and capture.c learn where a connection wants to go; connect.c decides, looks
 * the name up (lookup.c), checks every address and connects; then either tunnel.c relays, or forward.c passes on one
 * request after the other (answer.c: what comes back), inside TLS that open.c opened or in the clear. resolver.c answers
 * DNS. record.c keeps what happened until control.c has told it.
 *
 * Invariants. What is not decided is not connected; a refusal is recorded before the program inside can see it.
 * A connection's work is its step, called whenever something may have changed, until it says that it waits; it
 * ends by connection_end() or connection_cut() only, after which nothing but returning STEP_OVER is left to do.
 * Its memory lives until the close callbacks of its handles.
 */
#ifndef EGRESS_EGRESS_H
#define EGRESS_EGRESS_H

#include <netinet/in.h>
#include <uv.h>

#include "base/bytes.h"
#include "egress/config.h"
#include "egress/names.h"
#include "egress/stream.h"
#include "egress/wire.h"
#include "http/deadlines.h"
#include "http/head.h"

enum {
#define LIMIT(name, value, ...) LIMIT_##name = (value),
#include "egress/limits.def"
#undef LIMIT
	SMALL_READ = 4096,
	ADDRESSES_MAX = 32,
};

enum wait {
	WAIT_HEADER,
	WAIT_CONNECT,
	WAIT_ADDRESS,
	WAIT_HANDSHAKE,
	WAIT_ANSWER,
	WAIT_IDLE,
	WAIT_LINGER,
};

union address {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
};

struct addresses {
	size_t count; /* 0: there is none, and error says why */
	bool missing; /* the name does not exist */
	const char *error;
	union address list[ADDRESSES_MAX];
};

struct connection;
struct lookup;

/* Who waits for a lookup. done is called from the loop, never from inside lookup_start(). */
struct waiter {
	struct waiter *prev, *next;
	struct lookup *lookup; /* NULL: does not wait */
	void (*done)(struct waiter *w, const struct addresses *found);
};

struct client;
struct question;

struct listener {
	uv_poll_t poll;
	struct egress *egress;
	enum egress_listener kind;
	int fd;
};

struct egress {
	uv_loop_t loop;
	struct egress_settings settings;
	struct network_quota quota;
	struct authority *authority; /* NULL: no TLS is opened */
	struct trust *trust;
	struct redactor *
		redactor; /* of all credentials; answers have one each made of it. NULL: there are none */
	struct names *names;
	struct listener listeners[EGRESS_LISTENERS_MAX];
	size_t listener_count;
	uint64_t netns; /* of the listeners, 0: not known */
	struct connection *connections, *soon;
	size_t open;
	uint64_t begun; /* connections that were allowed, whatever became of them */
	uv_idle_t soon_idle;
	uv_timer_t full_timer;
	bool full;
	struct deadlines deadlines;
	size_t waiting; /* bytes in all queues */

	struct lookup *lookups;
	size_t lookup_count, lookup_pending;
	struct question *questions;
	size_t question_count;

	struct egress_record *records[LIMIT_RECORDS_MAX]; /* by number, modulo */
	uint32_t first, next; /* kept are first..next-1; numbers begin with 1 */
	struct egress_totals totals;
	struct client *clients;
	uv_poll_t control, init;
	int control_fd, init_fd;
	bool listening; /* the control socket */
	uid_t starter;
	uv_timer_t end_timer;
	bool ending;

	char buffer[LIMIT_RELAY_BYTES];
	char chunk[LIMIT_RELAY_BYTES + 32]; /* a piece with its size and its end */
};

/* ---- one connection (connection.c) ---- */

struct side {
	uv_poll_t poll;
	struct connection *c;     /* NULL: closing */
	struct connection *owned; /* freed with it */
	struct stream stream;
	struct bytes out; /* what it has not taken yet */
	int mask;
	bool want_read,
		want_write; /* what the step waits for; want_write beside what out waits for */
	bool ended;         /* nothing more comes from it */
	bool end, told;     /* nothing more goes to it behind out; it was told so */
	bool lost;          /* reset, or worse */
};

enum step { STEP_WAIT, STEP_AGAIN, STEP_OVER };
typedef enum step (*step_function)(struct connection *c);

/* Why something is not done, for the program inside. */
struct failure {
	int status;          /* HTTP */
	const char *code;    /* of the problem document */
	unsigned char socks; /* RFC 1928, 6 */
	char detail[256];
	const char *rule; /* that denies, NULL none */
	bool missing;     /* a rule that allows it, which is the remedy */
};

struct connection {
	struct egress *egress;
	struct connection *prev, *next, *soon_next;
	bool in_soon, running, over;
	enum egress_listener kind;
	struct side *client, *upstream;
	struct bytes in; /* from the client, not used up */
	step_function step;
	struct deadline deadline;
	step_function late; /* when the deadline is over; NULL: cut */

	/* where to: set by whoever calls connect_begin() */
	char host[HOST_SIZE];
	uint16_t port;
	bool tls;            /* the request is inside TLS that was opened */
	struct in_addr name; /* held of names.h, 0 none */
	void (*refuse)(struct connection *c, const struct failure *f);
	step_function connected;
	enum network_verdict verdict; /* of stage CONNECT */
	bool passthrough;
	struct attempt *attempt;   /* connect.c, while it is at work */
	struct forward *forward;   /* forward.c */
	struct question *question; /* resolver.c */
	char *fault; /* why TLS with the upstream did not come about; told to the first request */
	bool gate;   /* tunnel.c: the client's first bytes are still to be judged */

	struct egress_record record;
	bool recording; /* an upstream is there, or being made */
	uint64_t started_us;
	size_t lingered;
};

/* Takes fd. NULL at ENOMEM (fd is closed). */
struct connection *connection_new(struct egress *g, int fd, enum egress_listener kind);
/* Do all that can be done now. */
void connection_run(struct connection *c);
/* Once more in the next turn of the loop. */
void connection_soon(struct connection *c);
/* Over, at once; by_reset: the client sees RST. */
enum step connection_close(struct connection *c, bool by_reset);
/* Over, when the client has taken what is queued for it, or time is over. */
enum step connection_end(struct connection *c);
/* From now on so long, anew if it waits already; then late(). */
void connection_wait(struct connection *c, enum wait kind, step_function late);

/* Before the first connection. */
void connection_deadlines(struct egress *g);

/* NULL at ENOMEM (fd is closed). */
struct side *side_new(struct connection *c, int fd);
void side_close(struct side *s, bool by_reset);
/* Write what it takes now, queue the rest. False: it is lost. */
bool side_write(struct side *s, const void *data, size_t size);
bool side_flush(struct side *s);
/* Read into the shared buffer: bytes, 0 at the end, -EAGAIN, -errno (the side is lost). Counted if it is relayed. */
ssize_t side_read(struct side *s);
/* Read, and add it to b, of which no more than most is wanted. Same results; -ENOBUFS: it is full. */
ssize_t side_read_into(struct side *s, struct bytes *b, size_t most);

/* ---- the parts ---- */

/* listen.c */
int listen_begin(struct egress *g, const uint32_t *kinds, const int *fds, size_t count,
		 struct err *e) must_check;
void listen_room(struct egress *g); /* a connection has gone */
void listen_stop(struct egress *g);

/* Where a connection that came in by a listener of this kind begins. */
enum step proxy_begin(struct connection *c);    /* proxy.c */
enum step capture_begin(struct connection *c);  /* capture.c: HTTP, TLS, ANY */
enum step resolver_begin(struct connection *c); /* resolver.c: DNS by TCP */
void resolver_readable(struct listener *l);     /* resolver.c: DNS by UDP */
void resolver_abandon(struct connection *c);    /* its question, if it waits */
void resolver_stop(struct egress *g);

/* socks.c. c->in begins with a 5. */
enum step socks_step(struct connection *c);

/* connect.c: to c->host, c->port; then c->connected is the step, or c->refuse() is called. */
enum step connect_begin(struct connection *c);
void connect_abandon(struct connection *c);
void connect_address_late(struct connection *c);
/* The policy has changed: what is not allowed any more is refused or cut. */
void connect_judge_again(struct connection *c);
/* Deny by this answer: recorded, then told. */
enum step connect_deny(struct connection *c, const struct network_answer *a);
enum step connect_fail(struct connection *c, int status, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* After more bytes were relayed: false when the quota is used up (recorded). */
bool connect_quota(struct connection *c);

/* lookup.c: addresses of a name if they are known, else NULL and w is called (or, count 0, there was no room). */
const struct addresses *lookup_start(struct egress *g, const char *host, struct waiter *w);
void lookup_cancel(struct waiter *w);
void lookup_free(struct egress *g);

/* aim.c: set c->host and c->port from what a client wrote, or from an address it connected to, where an address that stands
 * for a name becomes that name. False: it is neither, which is a denial, recorded, with f for whoever asked. */
bool aim_at(struct connection *c, const char *host, size_t size, uint16_t port, struct failure *f);
bool aim_at_address(struct connection *c, const union address *to, struct failure *f);
/* "host:port", "host", "[::1]:port": the host's size, and the port or otherwise. False: it is none. */
bool aim_split(const char *text, size_t size, uint16_t otherwise, size_t *ret_host,
	       uint16_t *ret_port);

/* tunnel.c: raw both ways from now on, first what has been read of either. With a gate, what looks like TLS has to be for
 * c->host. */
enum step tunnel_begin(struct connection *c, bool gate, struct bytes *from_upstream);
/* open.c: what a connection that was made and answered goes on with: raw, TLS that is opened, or plain requests. */
enum step open_begin(struct connection *c);
/* Look at what the client says first without taking it. */
enum first { FIRST_WAIT, FIRST_TLS, FIRST_OTHER, FIRST_BAD };
enum first open_peek(struct connection *c, struct hello *ret);
/* Go on with the upstream's handshake while the client is still at its own, or at its first request. What is wrong is kept
 * for that one (c->fault). */
void open_shake_upstream(struct connection *c);
/* Cut, with this as the reason that a refusal is recorded by. */
enum step open_refuse(struct connection *c, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* forward.c. proxy: requests name their hosts, CONNECT is taken; else they are for c->host, c->port. */
enum step forward_begin(struct connection *c, bool proxy);
void forward_free(struct connection *c);
/* Add the request that is under way, if there is one. */
void forward_ask(const struct connection *c, struct network_ask *ask);
/* proxy.c: a CONNECT request that forward.c has read. */
enum step proxy_connect(struct connection *c, const struct head *request);

/* problem.c: a whole answer with a problem document, and the connection ends behind it. */
enum step problem_answer(struct connection *c, const struct failure *f, bool with_body);

/* record.c */
void record_begin(struct connection *c);
void record_rule(struct egress_record *r, const struct network_answer *a);
void record_address(struct egress_record *r, const union address *a);
/* It is over: with this verdict, and counted. */
void record_end(struct connection *c, enum egress_verdict verdict, const char *why);
/* A record of no connection. */
void record_put(struct egress *g, const struct egress_record *r);
void record_free(struct egress *g);
uint64_t record_wall_ms(void);

/* control.c. fd is owned from now on. */
int control_begin(struct egress *g, int fd, struct err *e) must_check;
void control_tell(struct egress *g); /* there are new records */
/* The sandbox is over, and nobody has to be told anything any more. */
bool control_is_done(const struct egress *g);
void control_stop(struct egress *g);

/* self.c: all that this process gives up. */
int self_hide(struct err *e) must_check;    /* at once: no core, no tracer */
int self_prepare(struct err *e) must_check; /* what self_restrict() needs and takes long */
int self_restrict(struct err *e) must_check;

#endif
