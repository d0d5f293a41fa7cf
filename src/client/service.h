/* SPDX-License-Identifier: Apache-2.0 */
/*
 * service.h - which service the command line talks to (CONTRACT "Where things are"), and connections
 * to it.
 *
 * CLOCHE_SOCKET (a path, HOST:PORT or http://HOST:PORT, the latter two with CLOCHE_API_KEY), else the
 * user's own service, else the system's. The user's own socket may lie in a folder of /tmp, so what
 * listens there must be ours or root's.
 */
#ifndef CLIENT_SERVICE_H
#define CLIENT_SERVICE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "sandbox/places.h"

struct service {
	char name[300]; /* as the user wrote it or would write it */
	char host[300]; /* for the Host field */
	bool local;     /* a unix socket: descriptors can be passed */
	const char *key;
	struct sockaddr_storage address;
	socklen_t address_size;
	/* Instead of an address: a fresh connection, nonblocking, owned by the caller; or -errno. */
	int (*dial)(void *context);
	void *dial_context;
	int idle_fd; /* a connection that waits for its next request, or -1 */
	uint64_t idle_since_us;
};

/* Find the service that answers: it is connected to. The error names what was tried. */
int service_find(struct service *s, const struct places *places, struct err *e) must_check;
void service_done(struct service *s);

/* CLOCHE_DIRECT is set: what can be done without a service is, as with --direct. */
bool service_is_unwanted(void);

/* A connection without a request on it, nonblocking, owned by the caller; -1 with e. */
int service_connect(struct service *s, struct err *e) must_check;

/* Keep a connection whose answer is complete for the next request. */
void service_keep(struct service *s, int fd);

#endif
