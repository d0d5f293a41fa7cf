/* SPDX-License-Identifier: Apache-2.0 */
#include "protocol/relay.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

void direction_move(struct direction *d)
{
	ssize_t n;

	if (d->at == d->filled) {
		n = read(d->from, d->data, d->room);
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (n <= 0) {
			shutdown(d->to, SHUT_WR);
			d->over = true;
			return;
		}
		d->at = 0;
		d->filled = (size_t)n;
	}
	n = send(d->to, d->data + d->at, d->filled - d->at, MSG_NOSIGNAL);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n < 0) { /* nobody takes it: the sender shall know */
		shutdown(d->from, SHUT_RD);
		d->over = true;
		return;
	}
	d->at += (size_t)n;
}

struct pollfd direction_wait(const struct direction *d)
{
	bool full = d->at < d->filled;

	return (struct pollfd){.fd = d->over ? -1
				     : full  ? d->to
					     : d->from,
			       .events = full ? POLLOUT : POLLIN};
}
