/* SPDX-License-Identifier: Apache-2.0 */
/*
 * client.h - the service's side of the spawner's protocol. Nothing here waits: the caller polls
 * client->fd (POLLIN always, POLLOUT after -EAGAIN) and calls spawner_receive() until it returns 0.
 *
 * After -ECONNRESET (the spawner has died, or another client took this one's place) close, connect
 * again, say HELLO and LIST: what was not answered is found in their answers.
 */
#ifndef SPAWNER_CLIENT_H
#define SPAWNER_CLIENT_H

#include "spawner/request.h"

struct spawner_client {
	int fd; /* -1: not connected */
	uint32_t sequence;
};

/* What the spawner says; header.type tells which. */
union spawner_message {
	struct spawner_header header;
	struct spawner_created created;
	struct spawner_done done;
	struct spawner_refused refused;
	struct spawner_stats stats;
	struct spawner_ended ended;
	struct spawner_live live;
	struct spawner_by_id pulling;
};

/* 0 or -errno (ENOENT, ECONNREFUSED: not there yet; EAGAIN: its queue is full). */
int spawner_connect(struct spawner_client *c, const char *path) must_check;
void spawner_disconnect(struct spawner_client *c);

/* Send one request; its header is filled in here. fds (may be none) are copied, not taken. The sequence
 * number that its answer will have, or -EAGAIN: wait for POLLOUT and send it again; or -errno. */
int64_t spawner_send(struct spawner_client *c, enum spawner_type type, void *request, size_t size,
		     const int *fds, size_t fd_count) must_check;

/* The common ones: SPAWNER_HELLO and SPAWNER_LIST (id NULL), KILL, PAUSE, RESUME, STATS, RELEASE. */
int64_t spawner_ask(struct spawner_client *c, enum spawner_type type, const char *id) must_check;

/* 1 and one checked message; 0: no more for now; -ECONNRESET; -EPROTO (disconnect). */
int spawner_receive(struct spawner_client *c, union spawner_message *ret) must_check;

#endif
