/* SPDX-License-Identifier: Apache-2.0 */
/* seat.c - a prepared sandbox's one seat: dumpable, and so joinable, until somebody has taken it (cell.c). */
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "init/guest.h"
#include "native/seat.h"

/* The kernel says which process of this pid namespace it was. */
static bool hear_who_joined(struct guest *g)
{
	union {
		char space[CMSG_SPACE(sizeof(struct ucred))];
		struct cmsghdr align;
	} control;
	char joined = 0;
	struct iovec iov = {&joined, 1};
	struct msghdr m = {.msg_iov = &iov,
			   .msg_iovlen = 1,
			   .msg_control = &control,
			   .msg_controllen = sizeof control};
	const struct cmsghdr *c;
	struct ucred who;

	if (recvmsg(g->seat, &m, 0) != 1 || joined != SEAT_JOINED)
		return false;
	c = CMSG_FIRSTHDR(&m);
	if (!c || c->cmsg_type != SCM_CREDENTIALS)
		return false;
	memcpy(&who, CMSG_DATA(c), sizeof who);
	g->joined = who.pid;
	return true;
}

void guest_seat(struct guest *g)
{
	struct seat_record r = {
		.uid = g->plan->uid, .gid = g->plan->gid, .landlock = g->ruleset >= 0};
	union {
		char space[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control = {0};
	struct iovec iov = {&r, sizeof r};
	struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};

	if (!hear_who_joined(g))
		_exit(1);   /* who began to join is gone */
	guest_close_seat(); /* before the answer: whoever has it knows */
	memcpy(r.profile, g->plan->profile, sizeof r.profile);
	memcpy(r.rlimit, g->plan->rlimit, sizeof r.rlimit);
	if (g->ruleset >= 0) {
		struct cmsghdr *c;

		m.msg_control = &control;
		m.msg_controllen = sizeof control;
		c = CMSG_FIRSTHDR(&m);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(c), &g->ruleset, sizeof(int));
	}
	if (sendmsg(g->seat, &m, MSG_NOSIGNAL) != sizeof r)
		_exit(1);
	close(g->seat);
	g->seat = -1;
	if (g->ruleset >= 0)
		close(g->ruleset);
	g->ruleset = -1;
}
