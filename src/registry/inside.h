/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inside.h - what the files of the client share: sources (a mirror, or the registry itself) and requests to them.
 *
 * A request is a transfer with patience: it logs in when it is asked to, falls back to plain HTTP where that is
 * allowed, waits and tries again, and ends once, with success or a cause.
 */
#ifndef REGISTRY_INSIDE_H
#define REGISTRY_INSIDE_H

#include "registry/credentials.h"
#include "registry/registry.h"
#include "registry/transfer.h"

struct source {
	char *name;       /* host[:port]: for people, and what logins are kept under */
	struct url base;  /* "https://host:port/" */
	char *repository; /* with the mirror's path before it */
	bool insecure;
	bool may_be_plain; /* http will do when https is not spoken */
	bool port_given;
	bool login_allowed;  /* stored logins may be used for it */
	const char *ca_file; /* of the configuration, or NULL */
	bool configured;
	enum reach
		first_reach; /* how far inside it may be; once it has answered, no further than that */
	/* learnt */
	bool answered;
	enum reach reach; /* how far inside it is */
	bool login_known, basic_refused;
	struct credentials login;
	char *authorization; /* for the next request, or NULL */
	unsigned generation; /* counts changes of it */
};

struct registry {
	struct registry_config config;
	struct reference reference;
	struct registry_options options;
	char *docker_config;
	struct engine engine;
	struct source *sources;
	size_t source_count;
	size_t current; /* who gave the manifest */
	bool resolved;
	enum registry_cause cause;
};

struct request {
	/* what */
	struct registry *r;
	struct source *source; /* NULL: `url` is the token server's */
	const char *path;      /* below the repository: "manifests/latest" */
	struct url url;
	struct transfer spec; /* the fields of a request: copied into each transfer */
	bool resumable;       /* go on behind what has come; else restart() before each new try */
	/* how it goes */
	struct transfer t;
	bool running, done;
	uint64_t again_at;
	unsigned attempts, logins, tries;
	uint64_t mark; /* offset at the last failure: progress earns new attempts */
	unsigned generation;
	enum registry_cause cause;
	struct err err;
};

/* Begin; what fails is found by request_poll(). */
void request_start(struct request *q);
/* Look after it: true when it is done. The engine has to be stepped by the caller. */
bool request_poll(struct request *q);
/* Until it is done. -1: q->cause, e. */
int request_run(struct request *q, struct err *e) must_check;
void request_done(struct request *q);
/* Where the next thing happens by itself: a time, or UINT64_MAX. */
uint64_t request_wakes_at(const struct request *q);

/* A source answered 401: find out what to send next time. -1 with *ret_cause. */
int source_log_in(struct registry *r, struct source *s, const struct answer *answer,
		  enum registry_cause *ret_cause, struct err *e) must_check;

/* All sources for the reference, in order. */
int sources_make(struct registry *r, struct err *e) must_check;
void sources_free(struct registry *r);

bool cause_again(enum registry_cause cause);
bool cause_elsewhere(enum registry_cause cause);
static inline int registry_fail(struct registry *r, enum registry_cause cause)
{
	r->cause = cause;
	return -1;
}

/* Fill a growing buffer: body and restart of a transfer. */
struct memory {
	char *data;
	size_t size, room;
};
int memory_take(void *context, const void *data, size_t size, struct err *e);
int memory_restart(void *context, struct err *e);

#endif
