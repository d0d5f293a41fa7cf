/* SPDX-License-Identifier: Apache-2.0 */
/*
 * talk.h - one conversation with the init of a kept sandbox (protocol/conversation.h), on the loop.
 *
 * What comes from inside is hostile: frames are checked by the protocol's decoder, at most one frame is
 * held, and a conversation that breaks the rules ends with -EPROTO. Both directions have back-pressure.
 */
#ifndef SERVICE_TALK_H
#define SERVICE_TALK_H

#include <stdbool.h>
#include <uv.h>

#include "protocol/conversation.h"
#include "base/err.h"

struct talk;

struct talk_ops {
	/* A whole frame. The payload is valid during the call. */
	void (*on_frame)(struct talk *t, const struct frame *f, const unsigned char *payload);
	/* Bytes of a conversation that has become raw. Their end: size 0. */
	void (*on_raw)(struct talk *t, const void *data, size_t size);
	/* There is room again after talk_send() had said to wait. */
	void (*on_room)(struct talk *t);
	/* Hung up: 0, or -errno. The talk is gone after this. */
	void (*on_end)(struct talk *t, int error);
};

/* Connect to the init that listens on this path. Frames may be sent at once. */
struct talk *talk_open(uv_loop_t *loop, const char *path, const struct talk_ops *ops, void *data,
		       struct err *e) must_check;
void *talk_data(const struct talk *t);
/* Nothing was said that is not delivered, and the other side has not hung up. */
bool talk_is_quiet(const struct talk *t);
/* From now on it is somebody else's. */
void talk_hand_over(struct talk *t, const struct talk_ops *ops, void *data);

/* Queue one frame; tail may be NULL: more payload behind the record. False: enough is waiting (256 KiB), go
 * on at on_room. */
bool talk_send(struct talk *t, enum frame_type type, const void *record, size_t record_size,
	       const void *tail, size_t tail_size);
bool talk_send_raw(struct talk *t, const void *data, size_t size);

/* Hang up with -ETIMEDOUT when nothing has moved in either direction for this long, while not paused. 0: no
 * limit any more. */
void talk_limit(struct talk *t, unsigned seconds);

void talk_pause(struct talk *t);
void talk_resume(struct talk *t);

/* From the next byte on nothing is framed. */
void talk_become_raw(struct talk *t);
/* No more will be sent: the other side sees the end. */
void talk_finish(struct talk *t);

/* Hang up; no callback comes after this. May be called from one. */
void talk_close(struct talk *t);

/* What is said in between goes out in one piece, as far as the socket has room for it: a death of ours cannot come in
 * the middle of it. */
void talk_hold(struct talk *t);
void talk_release(struct talk *t);

#endif
