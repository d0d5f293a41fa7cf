/* SPDX-License-Identifier: Apache-2.0 */
#include "native/network.h"

#include <string.h>

#include "base/fd.h"

_Static_assert((int)NETWORK_PROXY_PORT == (int)EGRESS_PROXY_PORT, "what programs are told");

enum { RECORDS_AT_ONCE = 64 };

void network_init(struct network *n, const struct spec *s)
{
	*n = (struct network){.wanted = s->network.mode != NETWORK_NONE,
			      .egress = {.pidfd = -1, .setup = -1, .control = -1},
			      .ids = {.lock = -1}};
}

/* As root it becomes an id of a slot of its own: nobody's but its. The slot's lock goes along, so that the id is not
 * given to anybody while it lives, whoever dies first. Not the sandbox's own ids: code that got out of its
 * namespaces could then take over the process that holds its credentials. Rootless there are no ids but the
 * caller's that a process outside of a user namespace could become. */
static int start(struct network *n, const struct places *places, const struct id_range *range,
		 const char *config, struct err *e)
{
	uint32_t uid = UINT32_MAX, gid = UINT32_MAX;

	if (!places->rootless) {
		if (slot_acquire(places, range, 0, &n->ids, e) < 0)
			return -1;
		uid = n->ids.user_uid;
		gid = n->ids.user_gid;
	}
	if (egress_start(&n->egress, n->ids.lock, e) < 0)
		return -1;
	return egress_configure(&n->egress, config, strlen(config), uid, gid, -1, e);
}

int network_begin(struct network *n, const char *config, const struct places *places,
		  const struct id_range *range, struct err *e)
{
	if (!n->wanted)
		return 0;
	return config ? start(n, places, range, config, e)
		      : err_set(e, 0, "the caller gave no configuration of the network");
}

int network_wait(struct network *n, struct err *e)
{
	if (!n->wanted)
		return 0;
	if (egress_wait_ready(&n->egress, &n->ready, e) < 0)
		return -1;
	return egress_watch(n->egress.control, e);
}

int network_serve(struct network *n, int init, struct err *e)
{
	int r;

	if (!n->wanted)
		return 0;
	n->redirect = n->listeners.redirect;
	r = egress_serve(&n->egress, n->listeners.kinds, n->listeners.fds, n->listeners.count, init,
			 e);
	capture_done(&n->listeners);
	return r;
}

int network_fd(const struct network *n)
{
	return n->ended ? -1 : n->egress.control;
}

static void take(void *context, const struct egress_record *r)
{
	struct network_usage *u = context;

	u->bytes_sent += r->sent;
	u->bytes_received += r->received;
	if (r->verdict != EGRESS_DENIED) {
		u->allowed++;
		return;
	}
	u->denied++;
	network_usage_refused(u, *r->host ? r->host : r->address, (uint16_t)r->port);
}

/* It has hung up, or says what an honest one does not: nothing it does could be believed, so it does nothing more. */
static void distrust(struct network *n)
{
	bool served = n->egress.serves;

	n->ended = true;
	egress_stop(&n->egress);
	n->egress.serves = served;
}

void network_read(struct network *n, struct network_usage *usage)
{
	int r = 1;

	/* It may have been taken over, and never stop: the run's clocks come first. */
	for (int i = 0; r > 0 && i < RECORDS_AT_ONCE; i++)
		r = egress_take(n->egress.control, take, usage);
	if (r < 0)
		distrust(n);
}

/* Records that were lost while nobody read are still in the totals. */
void network_count(struct network *n, struct network_usage *usage)
{
	struct egress_totals totals;
	struct err ignored;

	if (n->egress.serves)
		usage->capture = n->redirect ? "redirect" : "ports";
	if (!n->wanted || n->ended || n->egress.control < 0 || !n->egress.serves)
		return;
	if (egress_flush(n->egress.control, take, usage, &totals, &ignored) < 0) {
		distrust(n);
		return;
	}
	if (totals.allowed + totals.failed > usage->allowed)
		usage->allowed = totals.allowed + totals.failed;
	if (totals.denied > usage->denied)
		usage->denied = totals.denied;
}

void network_end(struct network *n)
{
	capture_done(&n->listeners);
	egress_stop(&n->egress);
	slot_release(&n->ids);
}
