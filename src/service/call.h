/* SPDX-License-Identifier: Apache-2.0 */
/*
 * call.h - one request of the API: who asks, for what, and how it is answered. The table of routes is
 * routes.def; the answer's shapes are docs/openapi.json.
 *
 * A handler owns its call until it has answered: call_reply() and call_problem() free it. When the client
 * goes first, `gone` is called and the call freed after it.
 */
#ifndef SERVICE_CALL_H
#define SERVICE_CALL_H

#include "service/body.h"
#include "service/box.h"
#include "service/problem.h"
#include "service/reply.h"
#include "service/run.h"

struct asking;
struct route;

/* How it came to a port (port_gate.h). */
struct gate {
	bool by_host;  /* PORT-ID.ports_domain: the whole path is the server's */
	bool in_query; /* the secret: to be made a cookie of */
	bool shared;   /* in service->shared */
	struct call *next;
	int64_t expires_ms;
	char secret[SECRET_SIZE];
};

struct call {
	struct service *service;
	struct exchange *x;
	char owner[64];
	char session[132];    /* "" none */
	bool admin;           /* sees and does everything */
	char id[64], sub[64]; /* from the path, checked */
	const char *rest;     /* of the path, behind the pattern */
	struct box *box;      /* held; a live sandbox, on routes that need one */
	json_t *body;
	char body_sha256[65];
	size_t body_room; /* of the owner's budget */
	unsigned retry_after_s;
	bool never_fits; /* refused by a quota that is less than what was asked for */
	struct gate gate;
	struct waiter waiter;
	struct waiter **waits_in;
	struct run *run;
	struct talk *talk;                /* hung up with the call */
	uint64_t input_sent, input_taken; /* of its body, to a command's stdin (input.c) */
	const struct asking *asking;      /* how its frames are answered (ask.h) */
	const struct route *route;        /* while the body comes */
	struct call **waits_for;          /* set to NULL when the call goes */
	void *data;                       /* the handler's, freed with free() */
	void (*gone)(struct call *c);     /* the client went away */
	void (*release)(struct call *c);  /* let go of what data holds, however it ended */
	struct exchange_ops ops;
};

void call_reply(struct call *c, int status, json_t *j);
/* The same with JSON that was made already; NULL is a 500. */
void call_reply_text(struct call *c, int status, const char *text);
void call_problem(struct call *c, const struct err *e);
/* An answer that has begun cannot become a problem: it is cut, so that the client sees that it is not whole, and the call is
 * freed. False: none has begun. */
bool call_cut(struct call *c);
/* Answered otherwise: free it and let go of everything. */
void call_free(struct call *c);

/* The body has been used up: it and its part of the owner's budget are free. */
void call_drop_body(struct call *c);

/* Wait for the box to be made, changed or gone; then tell(call's box, call) by w->tell. */
void call_wait(struct call *c, struct waiter **list, void (*tell)(struct waiter *w, struct box *b));
struct call *call_of_waiter(struct waiter *w);

/* Count the refusal and make it the answer's code; returns -1. */
int call_over_quota(struct call *c, const struct quota_denial *denial, struct err *e);

/* Whether this owner may see what belongs to that one. */
bool call_may_see(const struct call *c, const char *owner);

/* No page's request, or one of a page that came from the Host it is sent to. */
bool call_has_own_origin(const struct exchange *x);

/* The value of a flag in the query: present without a value, or "true". */
bool call_flag(const struct call *c, const char *name);
/* A number in the query; fallback when absent. -1 with e when it is none or outside. */
int call_number(const struct call *c, const char *name, uint64_t fallback, uint64_t max,
		uint64_t *ret, struct err *e) must_check;

/* Make a sandbox for this caller under its quotas, with the descriptors that came along as volumes. stored and
 * spec are taken over. As box_create(). */
struct box *sandbox_begin(struct call *c, struct stored_sandbox *stored, struct spec *spec,
			  uint64_t disk, uint64_t life_us, json_t *metadata,
			  const struct pool_want *want, json_t *volume_fds,
			  struct err *e) must_check;
/* The same with descriptors that were taken before, and stay the caller's. */
struct box *sandbox_begin_with(struct call *c, struct stored_sandbox *stored, struct spec *spec,
			       uint64_t disk, uint64_t life_us, json_t *metadata,
			       const struct pool_want *want, json_t *volume_fds, const int *fds,
			       size_t count, struct err *e) must_check;

/* Refused for what was asked, before anything was tried: no run's result but a problem. */
bool sandbox_was_refused(const struct box *b);
void sandbox_problem(const struct box *b, struct err *e);

/* The http_handler. context: the service. */
void call_route(struct exchange *x, void *context);
/* METHOD PATTERN per line. */
void call_print_routes(FILE *out);

#endif
