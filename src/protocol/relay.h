/* SPDX-License-Identifier: Apache-2.0 */
/* relay.h - bytes from one connection to another, nonblocking, with half-close: what is at both ends of a DIAL. */
#ifndef PROTOCOL_RELAY_H
#define PROTOCOL_RELAY_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>

/* One direction: what was read and not yet written. Owns nothing. */
struct direction {
	int from, to;
	unsigned char *data;
	size_t room;
	size_t at, filled;
	bool over; /* its end was passed on, or nobody takes it */
};

/* Read or write once. */
void direction_move(struct direction *d);
/* What to wait for before the next direction_move(); fd -1 when it is over. */
struct pollfd direction_wait(const struct direction *d);

#endif
