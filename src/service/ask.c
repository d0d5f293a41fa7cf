/* SPDX-License-Identifier: Apache-2.0 */
#include "service/ask.h"

#include <string.h>

enum { SILENCE_LIMIT_S = 30 };

/* What an errno from inside says about the request. */
static const struct {
	int errnum;
	enum problem problem;
} meanings[] = {
	{ENOENT, PROBLEM_NOT_FOUND},         {ESRCH, PROBLEM_CONFLICT},
	{EEXIST, PROBLEM_CONFLICT},          {ENOTEMPTY, PROBLEM_CONFLICT},
	{EBUSY, PROBLEM_CONFLICT},           {EACCES, PROBLEM_FORBIDDEN},
	{EPERM, PROBLEM_FORBIDDEN},          {EROFS, PROBLEM_FORBIDDEN},
	{ENOTDIR, PROBLEM_CONFLICT},         {EISDIR, PROBLEM_CONFLICT},
	{ELOOP, PROBLEM_FORBIDDEN},          {EXDEV, PROBLEM_FORBIDDEN},
	{ECONNREFUSED, PROBLEM_BAD_GATEWAY}, {ETIMEDOUT, PROBLEM_BAD_GATEWAY},
	{EHOSTUNREACH, PROBLEM_BAD_GATEWAY}, {ENETUNREACH, PROBLEM_BAD_GATEWAY},
	{EPIPE, PROBLEM_CONFLICT},           {EAGAIN, PROBLEM_UNAVAILABLE},
	{ENOMEM, PROBLEM_UNAVAILABLE},
};

void ask_failed(struct call *c, const struct failed_record *failed)
{
	struct err e = {0};

	if (call_cut(c))
		return;
	err_set(&e, (int)failed->errnum, "%s", failed->what);
	for (size_t i = 0; i < ARRAY_SIZE(meanings); i++)
		if (meanings[i].errnum == (int)failed->errnum)
			e.code = (int)meanings[i].problem;
	if (failed->errnum == ENOTDIR && c->asking && c->asking->not_a_folder)
		e.code = (int)c->asking->not_a_folder;
	if ((failed->errnum == ELOOP || failed->errnum == EXDEV) && c->asking && c->asking->link)
		e.code = (int)c->asking->link;
	if (failed->errnum == ENOSPC || failed->errnum == EDQUOT || failed->errnum == EFBIG) {
		e.code = PROBLEM_CONFLICT;
		err_prefix(&e, "the sandbox's disk is full");
	}
	call_problem(c, &e);
}

static void broken(struct call *c)
{
	struct err e = {0};

	if (call_cut(c))
		return;
	/* When its init is dead, the spawner will say so in a moment. */
	if (c->box->killing || c->box->stored.state == STATE_ENDED)
		problem_set(&e, PROBLEM_SANDBOX_ENDED, "sandbox %s has ended", c->box->stored.id);
	else
		problem_set(&e, PROBLEM_UNAVAILABLE, "the sandbox hung up before it had answered");
	call_problem(c, &e);
}

static void on_frame(struct talk *t, const struct frame *f, const unsigned char *payload)
{
	struct call *c = talk_data(t);
	const struct asking *how = c->asking;
	struct failed_record failed;

	if (f->type == FRAME_DONE)
		how->on_done(c);
	else if (f->type == FRAME_FAILED && failed_record_decode(payload, f->size, &failed) == 0)
		ask_failed(c, &failed);
	else if (!how->on_frame || !how->on_frame(c, f, payload))
		broken(c);
}

static void on_end(struct talk *t, int error)
{
	struct call *c = talk_data(t);

	(void)error;
	broken(c);
}

static void on_room(struct talk *t)
{
	struct call *c = talk_data(t);

	if (c->asking->on_room)
		c->asking->on_room(c);
}

static const struct talk_ops ops = {.on_frame = on_frame, .on_room = on_room, .on_end = on_end};

bool ask(struct call *c, const struct asking *how, enum frame_type type, const void *record,
	 size_t record_size, const void *tail, size_t tail_size)
{
	struct err e = {0};

	c->asking = how;
	c->talk = box_talk(c->box, &ops, c, &e);
	if (!c->talk) {
		call_problem(c, &e);
		return false;
	}
	talk_limit(c->talk, SILENCE_LIMIT_S);
	talk_send(c->talk, type, record, record_size, tail, tail_size);
	return true;
}
