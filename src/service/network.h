/* SPDX-License-Identifier: Apache-2.0 */
/*
 * network.h - what a sandbox's connections come to, as the process that makes them tells (egress/wire.h).
 *
 * One connection to RUNTIME/sandboxes/ID/egress per sandbox that has a network, from when it runs until the end of what
 * there is to hear. Whoever has taken that process over may say what it likes: messages are checked (egress_receive), texts
 * are bounded, at most RECORDS_A_TURN are taken at a time, nonsense ends the connection and the process (the spawner
 * kills it), and nothing of it is believed but about this sandbox.
 *
 * A record is acknowledged when its audit row is on the disk: what is not, is told again to whoever connects next. Rows are
 * written a second after the first connection, later and later while they go on (a minute at most), and at every flush;
 * alike connections are together, and those of one rule when there are too many to name.
 */
#ifndef SERVICE_NETWORK_H
#define SERVICE_NETWORK_H

#include "egress/starter.h"
#include "service/service.h"

struct network;

/* Who wants what is told from now on, of connections that began no earlier than since_ms. Embedded in its owner. */
struct network_listener {
	struct network_listener *next;
	struct network_usage *usage;
	int64_t since_ms;
	struct box *box; /* NULL: it does not listen */
};

/* Who waits until all has been told that has happened by now. Embedded in its owner. */
struct network_flush {
	struct network_flush *next;
	void (*done)(struct network_flush *f);
	uint32_t sequence;
	uint64_t until_us;
	struct box *box; /* NULL: it does not wait */
};

/* The box runs, or was adopted. Nothing for one without a network. */
void network_open(struct box *b);
/* Hear no more. */
void network_close(struct box *b);

void network_listen(struct box *b, struct network_listener *l, struct network_usage *usage,
		    int64_t since_ms);
void network_unlisten(struct network_listener *l);

/* f->done is called from the loop, when it has answered, is gone, or limit_ms are over. False: there is nothing to wait for, and
 * done is not called. */
bool network_flush(struct box *b, struct network_flush *f, unsigned limit_ms) must_check;
void network_unflush(struct network_flush *f);

/* It has ended, and that is written down: hear what its connections came to at last, which is in the process that made them,
 * then let the spawner forget it, and let go of b. */
void network_hear_out(struct box *b);

/* As the last flush was answered no connection was open: with nobody left to open one, everything is told. */
bool network_is_still(const struct box *b);
/* What is there without waiting. */
void network_drain(struct box *b);

/* "redirect", "ports", or NULL: it has none. */
const char *network_capture(const struct box *b);

/* {"allowed", "denied", "failed", "bytes", "open"} of the sandbox's whole life, as far as it is known. */
json_t *network_usage_json(const struct box *b) must_check;
/* The last refusals, newest last: [{"host", "port", "rule", "why", "at"}]. */
json_t *network_refused_json(const struct box *b) must_check;
/* "serving", "ended", or "none". */
const char *network_state(const struct box *b);

#endif
