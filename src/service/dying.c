/* SPDX-License-Identifier: Apache-2.0 */
#include "service/dying.h"

#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "service/link.h"

enum { MANY = 64, TOO_MANY = 512 };

struct dying {
	struct dying *next;
	uint64_t since_us;
	bool written;
	char id[40];
};

static void ignore_answer(void *data, const struct spawner_header *message)
{
	(void)data;
	(void)message;
}

void dying_add(struct service *v, const char *id, bool written)
{
	struct dying *d = calloc(1, sizeof *d);

	/* A line that is down forgets them all: nothing to be done now. */
	if (link_ask(v->link, written && d ? SPAWNER_DISCARD : SPAWNER_KILL, id, ignore_answer,
		     NULL) < 0 ||
	    !d) {
		free(d);
		return;
	}
	memcpy(d->id, id, sizeof d->id);
	d->since_us = now_us();
	d->written = written;
	d->next = v->dying;
	v->dying = d;
	v->dying_count++;
}

enum dying_end dying_on_ended(struct service *v, const char *id)
{
	struct dying **at = &v->dying, *d;
	bool written;

	while (*at && strcmp((*at)->id, id) != 0)
		at = &(*at)->next;
	d = *at;
	if (!d)
		return DYING_NOT;
	*at = d->next;
	v->dying_count--;
	histogram_add(&v->metrics.teardown, now_us() - d->since_us);
	written = d->written;
	free(d);
	return written ? DYING_WRITTEN : DYING_UNWRITTEN;
}

bool dying_are_many(const struct service *v)
{
	return v->dying_count > MANY;
}

bool dying_are_too_many(const struct service *v)
{
	return v->dying_count > TOO_MANY;
}

void dying_forget(struct service *v)
{
	while (v->dying) {
		struct dying *d = v->dying;

		v->dying = d->next;
		free(d);
	}
	v->dying_count = 0;
}
