/* SPDX-License-Identifier: Apache-2.0 */
/* join_cell.c - the real joiner: a child is born in a prepared sandbox (join.h). */
#include "zygote/join.h"

#include "zygote/joiner.h"
#include "zygote/request.h"

/* The child's parent is a helper that is gone at once; so that ENDED can be told, the zygote takes its place.
 * When the zygote is dead, PID 1 of its pid namespace does. */
static int adopt(struct err *e)
{
	int r = join_adopt();

	return r < 0 ? err_set(e, -r, "adopt the children") : 0;
}

static int split(const struct joiner_seat *seat, struct join *ret, struct err *e)
{
	return join_split(seat->data, seat->size, seat->fds, seat->fd_count, ret, e);
}

static pid_t fork_inside(const struct joiner_seat *seat, struct err *e)
{
	struct join j;

	return split(seat, &j, e) < 0 ? -1 : zygote_fork(&j, e);
}

static int join(const struct joiner_seat *seat, struct err *e)
{
	struct join j;

	return split(seat, &j, e) < 0 ? -1 : zygote_join(&j, e);
}

/* As join_split() has checked. */
static bool leaves(const struct joiner_seat *seat)
{
	return ((const struct join_data *)seat->data)->of_init;
}

_Static_assert((int)JOIN_FDS_MAX <= (int)ZYGOTE_JOIN_FDS_MAX,
	       "a FORK must carry what the joiner needs");

const struct joiner zygote_joiner = {.name = "cell",
				     .begin = adopt,
				     .leaves = leaves,
				     .fork = fork_inside,
				     .join = join};
