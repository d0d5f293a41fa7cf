/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transfer.h - one HTTP exchange at a time per struct transfer, many of them in one loop, by libcurl.
 *
 * A transfer follows redirects by itself, each checked (registry.h has the rules), and ends with a status or a
 * cause. It never retries and knows nothing of logins: request.h does. Bounded here: header bytes, body bytes,
 * redirects, time without data, where a connection may go.
 */
#ifndef REGISTRY_TRANSFER_H
#define REGISTRY_TRANSFER_H

#include <curl/curl.h>

#include "base/address.h"
#include "registry/registry.h"
#include "registry/url.h"

enum {
	TRANSFER_REDIRECTS = 5,
	TRANSFER_HEADERS_MAX = 64 << 10, /* of one answer, all lines together */
	TRANSFER_MESSAGE_MAX = 2048,     /* kept of an answer that is not a success */
	TRANSFER_IGNORED_MAX = 64 << 10, /* read of one, so that the connection can be used again */
};

#define TRANSFER_SIZE_UNKNOWN UINT64_MAX

struct engine {
	CURLM *multi;
	int cancel_fd;
	uint64_t stall_us, connect_us, deadline_us; /* the last is a time, 0: none */
	enum registry_cause cause;                  /* why engine_step() failed */
};

struct answer {
	long status;
	char content_type[MEDIA_TYPE_MAX + 1];  /* lower case, without parameters */
	char digest[DIGEST_TEXT + 1];           /* Docker-Content-Digest, if it is one */
	char challenge[8192];                   /* all WWW-Authenticate, joined by commas */
	bool is_registry;                       /* Docker-Distribution-Api-Version is there */
	uint64_t retry_after_s;                 /* 0: not said */
	char message[TRANSFER_MESSAGE_MAX + 1]; /* beginning of the body of what is no success */
	size_t message_size;
	enum reach reach; /* where the first hop was answered from */
	struct url at;    /* who answered, after redirects */
};

struct transfer {
	/* The request; strings belong to the caller and stay until it is finished. */
	const char *accept;        /* or NULL */
	const char *authorization; /* "Bearer …", for the first origin only; or NULL */
	const char *form;          /* body of a POST; NULL: GET */
	bool head;
	const struct url *trusted_origin; /* the host that `insecure` speaks of */
	bool insecure;
	const char *ca_file;
	enum reach first_reach; /* how far inside the first hop may be */
	int redirects;          /* how many may be followed */
	uint64_t offset;        /* ask for what is behind it */
	uint64_t size;          /* of the whole body, offset included; or TRANSFER_SIZE_UNKNOWN */
	uint64_t max;           /* bytes of a body of unknown size */
	/* Body of a success. A failure ends the transfer with cause SINK. */
	int (*body)(void *context, const void *data, size_t size, struct err *e);
	/* The server begins at 0 instead of offset. */
	int (*restart)(void *context, struct err *e);
	void *context;

	/* The result. */
	bool finished;
	enum registry_cause cause; /* NONE: answer.status says how it went */
	struct err err;            /* of a cause */
	bool no_tls;               /* TLS: it is not spoken there. Not: its certificate is bad */
	struct answer answer;
	uint64_t received; /* bytes of body handed on, from offset on */

	/* inside */
	struct engine *engine;
	CURL *easy;
	struct curl_slist *headers;
	struct url url; /* of this hop */
	int hops;
	enum reach limit;
	bool proxied, judged, has_length;
	size_t header_bytes, ignored;
	char *location;
	char content_range[96];
	char encoding[32];
	uint64_t length;
	char curl_error[CURL_ERROR_SIZE];
};

int engine_open(struct engine *engine, const struct registry_options *options,
		struct err *e) must_check;
void engine_close(struct engine *engine);

/* Begin. url is copied; the request's fields of t are set, all others zero. On failure t is as finished. */
int transfer_start(struct engine *engine, struct transfer *t, const struct url *url,
		   struct err *e) must_check;

/* Stop if it runs, and free; t may then be filled again. */
void transfer_done(struct transfer *t);

/* Let everything go on until something happens, or until the time `until` (0: none). Fails when cancelled or when the
 * time for everything is up: engine->cause. */
int engine_step(struct engine *engine, uint64_t until, struct err *e) must_check;

#endif
