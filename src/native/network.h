/* SPDX-License-Identifier: Apache-2.0 */
/*
 * network.h - the network of a run without a service: its cloche-egress, a child of this process, from before the
 * sandbox is made until after its last process is dead.
 *
 * Nothing of it stays: the process ends when the socket to it is closed, which the kernel does for a killed supervisor,
 * and holds the only descriptors of the sandbox's network namespace besides the sandbox's own processes.
 */
#ifndef NATIVE_NETWORK_H
#define NATIVE_NETWORK_H

#include "egress/starter.h"
#include "native/capture.h"
#include "native/slot.h"
#include "sandbox/result.h"
#include "sandbox/spec.h"

struct network {
	bool wanted;
	bool redirect; /* all TCP ports are caught (capture.h) */
	bool ended; /* it went away, or talked nonsense, before it was asked to end: what came later is not known */
	struct egress_process egress;
	struct slot ids; /* root: whose ids it becomes; no sandbox maps them */
	struct capture listeners;
	struct egress_ready ready;
};

/* Nothing yet; network_end() may be called from here on. */
void network_init(struct network *n, const struct spec *s);

/* Start it; it gets ready while the sandbox is made. Does nothing without a network policy, as do the others. */
int network_begin(struct network *n, const char *config, const struct places *places,
		  const struct id_range *range, struct err *e) must_check;

/* Wait for it. Afterwards n->ready has the authority that the sandbox shall trust, if one is needed. */
int network_wait(struct network *n, struct err *e) must_check;

/* It serves the listeners (which are closed here) for as long as init lives. */
int network_serve(struct network *n, int init, struct err *e) must_check;

/* What it has to say: read while the run goes on, or it would have to keep it. POLLIN on this; -1: nothing. */
int network_fd(const struct network *n);
void network_read(struct network *n, struct network_usage *usage);

/* Every process of the sandbox is dead: the last of it. */
void network_count(struct network *n, struct network_usage *usage);

/* It is gone when this returns. Idempotent. */
void network_end(struct network *n);

#endif
