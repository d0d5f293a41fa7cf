/* SPDX-License-Identifier: Apache-2.0 */
/*
 * link.h - cloched's line to the spawner: requests with one callback each, ends as they happen.
 *
 * When the spawner goes, every open request is answered with no answer (NULL, NULL), the line is made
 * again as soon as a spawner listens, and what lived is compared (on_up).
 */
#ifndef SERVICE_LINK_H
#define SERVICE_LINK_H

#include <uv.h>

#include "spawner/request.h"

struct link;

/* message: the answer's struct by its header's type, or NULL when the spawner went away. */
typedef void (*link_answer)(void *data, const struct spawner_header *message);

struct link_ops {
	void (*on_ended)(void *context, const struct spawner_ended *e);
	/* It is being made, once its image has been pulled. */
	void (*on_pulling)(void *context, const char *id);
	/* Connected (again): the list of what lives follows by link_list(). */
	void (*on_up)(void *context);
	void (*on_down)(void *context);
	/* Whether one more sandbox may be asked for now; link_create_more() when that changes. */
	bool (*may_create)(void *context);
};

struct link *link_new(uv_loop_t *loop, const char *path, const struct link_ops *ops, void *context,
		      struct err *e) must_check;
/* Who waits is told that no answer will come; freed by the loop. */
void link_close(struct link *l);
bool link_is_up(const struct link *l);

/* Creations wait here until the spawner has room; owners take turns. c and the descriptors are copied. -1 when
 * the line is down or too many wait: no callback then. */
int link_create(struct link *l, const char *owner, const struct spawner_create *c, const int *fds,
		size_t fd_count, link_answer done, void *data) must_check;
/* Everything that was asked for is answered. */
bool link_is_idle(const struct link *l);
void link_create_more(struct link *l);
/* Clients wait for sandboxes, or for the spawner. */
bool link_creations_wait(const struct link *l);
/* Other rules for a sandbox's network. m is copied. -1: not now. */
int link_change(struct link *l, struct spawner_change *m, link_answer done, void *data) must_check;
int link_ask(struct link *l, enum spawner_type type, const char *id, link_answer done,
	     void *data) must_check;
/* One call per LIVE, then DONE. */
int link_list(struct link *l, link_answer each, void *data) must_check;

#endif
