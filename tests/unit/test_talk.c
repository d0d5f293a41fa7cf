/* SPDX-License-Identifier: Apache-2.0 */
/* Conversations on the loop, against a peer of the test's own: frames in any pieces, a peer that breaks the
 * rules or dies, back-pressure both ways, the silence limit, no memory. After each test every handle is closed. */
#include "unit.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "service/talk.h"

/* ---- memory that runs out: allocations fail while this is set ---- */

static bool no_memory;
void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);
void *__real_realloc(void *p, size_t size);
void *__wrap_realloc(void *p, size_t size);
void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);

void *__wrap_malloc(size_t size)
{
	return no_memory ? NULL : __real_malloc(size);
}

void *__wrap_realloc(void *p, size_t size)
{
	return no_memory ? NULL : __real_realloc(p, size);
}

void *__wrap_calloc(size_t n, size_t size)
{
	return no_memory ? NULL : __real_calloc(n, size);
}

/* ---- a conversation and its other side ---- */

struct meeting {
	uv_loop_t loop;
	char folder[256], path[300];
	int dir, listener, peer;
	struct talk *talk; /* NULL: ended */
	char log[4096];    /* a word per callback */
	size_t logged;
	unsigned rooms, frames;
	bool pause_at_frame, close_at_frame, resume_at_room;
	int error;
	bool ended;
};

static void say(struct meeting *m, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void say(struct meeting *m, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	m->logged += (size_t)vsnprintf(m->log + m->logged, sizeof m->log - m->logged, format, ap);
	va_end(ap);
	assert_true(m->logged < sizeof m->log);
}

static void on_frame(struct talk *t, const struct frame *f, const unsigned char *payload)
{
	struct meeting *m = talk_data(t);

	m->frames++;
	say(m, "%u/%u:%.*s ", f->type, f->stream, f->size > 20 ? 1 : (int)f->size,
	    f->type == FRAME_DATA ? (const char *)payload : "");
	if (m->pause_at_frame)
		talk_pause(t);
	if (m->close_at_frame) {
		talk_close(t);
		m->talk = NULL;
	}
}

static void on_raw(struct talk *t, const void *data, size_t size)
{
	struct meeting *m = talk_data(t);

	say(m, "raw:%.*s ", (int)size, size ? (const char *)data : "");
}

static void on_room(struct talk *t)
{
	struct meeting *m = talk_data(t);

	m->rooms++;
	if (m->resume_at_room)
		talk_resume(t);
}

static void on_end(struct talk *t, int error)
{
	struct meeting *m = talk_data(t);

	assert_false(m->ended);
	m->ended = true;
	m->error = error;
	m->talk = NULL;
}

static const struct talk_ops ops = {on_frame, on_raw, on_room, on_end};

/* Whatever can happen now, happens. */
static void turn(struct meeting *m)
{
	for (int i = 0; i < 8; i++)
		uv_run(&m->loop, UV_RUN_NOWAIT);
}

static void hang_up(struct meeting *m)
{
	if (m->talk)
		talk_close(TAKE(m->talk, NULL));
	if (m->peer >= 0)
		close(TAKE(m->peer, -1));
	turn(m);
}

static void meet(struct meeting *m)
{
	struct err e = {0};

	hang_up(m);
	m->log[m->logged = 0] = '\0';
	m->rooms = m->frames = 0;
	m->ended = m->pause_at_frame = m->close_at_frame = m->resume_at_room = false;
	m->error = 1;
	m->talk = talk_open(&m->loop, m->path, &ops, m, &e);
	if (!m->talk)
		fail_msg("%s", e.text);
	m->peer = accept4(m->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	assert_true(m->peer >= 0);
}

static int setup(void **state)
{
	struct meeting *m = calloc(1, sizeof *m);
	struct sockaddr_un a = {.sun_family = AF_UNIX};

	assert_non_null(m);
	m->dir = scratch_make(m->folder);
	m->peer = -1;
	snprintf(m->path, sizeof m->path, "%s/ctl", m->folder);
	assert_true(strlen(m->path) < sizeof a.sun_path);
	memcpy(a.sun_path, m->path, strlen(m->path));
	m->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(m->listener, (struct sockaddr *)&a, sizeof a), 0);
	assert_int_equal(listen(m->listener, 4), 0);
	assert_int_equal(uv_loop_init(&m->loop), 0);
	*state = m;
	return 0;
}

static int teardown(void **state)
{
	struct meeting *m = *state;

	hang_up(m);
	assert_int_equal(uv_loop_close(&m->loop), 0); /* no handle is left */
	close(m->listener);
	close(m->dir);
	scratch_remove(m->folder);
	free(m);
	return 0;
}

static size_t add(char *to, size_t at, enum frame_type type, unsigned stream, const char *payload)
{
	size_t n = strlen(payload);

	frame_encode((unsigned char *)to + at, type, stream, (uint32_t)n);
	memcpy(to + at + FRAME_HEADER_SIZE, payload, n);
	return at + FRAME_HEADER_SIZE + n;
}

static void peer_sends(struct meeting *m, const char *data, size_t size)
{
	assert_int_equal(send(m->peer, data, size, MSG_NOSIGNAL), (ssize_t)size);
}

/* Everything that has come to the peer is taken. */
static size_t peer_takes(struct meeting *m)
{
	static char data[65536];
	size_t all = 0;
	ssize_t n;

	while ((n = recv(m->peer, data, sizeof data, 0)) > 0)
		all += (size_t)n;
	return all;
}

/* ---- tests ---- */

static void test_frames_split_at_every_byte(void **state)
{
	static const char want[] = "4/1:hello 4/2:x 7/1: 104/0: ";
	struct meeting *m = *state;
	char data[128];
	size_t size = 0;

	size = add(data, size, FRAME_DATA, 1, "hello");
	size = add(data, size, FRAME_DATA, 2, "x");
	size = add(data, size, FRAME_EOF, 1, "");
	size = add(data, size, FRAME_DONE, 0, "");
	for (size_t cut = 0; cut <= size; cut++) {
		meet(m);
		if (cut)
			peer_sends(m, data, cut);
		turn(m);
		assert_int_equal(strncmp(want, m->log, m->logged), 0);
		if (cut < size)
			peer_sends(m, data + cut, size - cut);
		turn(m);
		assert_string_equal(m->log, want);
		assert_false(m->ended);
		close(TAKE(m->peer, -1));
		turn(m);
		assert_true(m->ended);
		assert_int_equal(m->error, 0);
	}
	meet(m); /* and byte by byte */
	for (size_t i = 0; i < size; i++) {
		peer_sends(m, data + i, 1);
		turn(m);
	}
	assert_string_equal(m->log, want);
}

/* What is whole is read where every talk's is: what is not stays with its own. */
static void test_two_in_pieces(void **state)
{
	static const char want[] = "4/1:hello 4/2:x ";
	struct meeting *m = *state, other = {.peer = -1};
	struct err e = {0};
	char data[64];
	size_t size = add(data, 0, FRAME_DATA, 1, "hello");

	size = add(data, size, FRAME_DATA, 2, "x");
	meet(m);
	other.talk = talk_open(&m->loop, m->path, &ops, &other, &e);
	assert_non_null(other.talk);
	other.peer = accept4(m->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	for (size_t i = 0; i < size; i++) {
		peer_sends(m, data + i, 1);
		turn(m);
		peer_sends(&other, data + i, 1);
		turn(m);
	}
	assert_string_equal(m->log, want);
	assert_string_equal(other.log, want);
	talk_close(other.talk);
	close(other.peer);
	turn(m);
}

static struct talk *looked_at;
static bool was_quiet;

static void look(struct talk *t, const struct frame *f, const unsigned char *payload)
{
	(void)f;
	(void)payload;
	looked_at = t;
	was_quiet = talk_is_quiet(t);
}

/* One that is kept for the next is used only if nothing was said on it. */
static void test_quiet(void **state)
{
	static const struct talk_ops looks = {look, NULL, NULL, on_end};
	struct meeting *m = *state;
	char data[64];
	size_t size = add(data, 0, FRAME_DONE, 0, "");

	meet(m);
	assert_true(talk_is_quiet(m->talk));
	peer_sends(m, data, size);
	assert_false(talk_is_quiet(m->talk)); /* in the socket */
	turn(m);
	assert_true(talk_is_quiet(m->talk));
	peer_sends(m, data, 3);
	turn(m);
	assert_false(talk_is_quiet(m->talk)); /* half of a frame */
	peer_sends(m, data + 3, size - 3);
	turn(m);
	assert_int_equal(m->frames, 2);
	assert_true(talk_is_quiet(m->talk));
	talk_hand_over(m->talk, &looks, m);
	peer_sends(m, data, size);
	turn(m);
	assert_ptr_equal(looked_at, m->talk);
	assert_false(was_quiet); /* more of it may be in our hands */
	assert_int_equal(m->frames, 2);
	assert_true(talk_is_quiet(m->talk));
	close(TAKE(m->peer, -1));
	assert_false(talk_is_quiet(m->talk)); /* hung up */
	turn(m);
	assert_true(m->ended);
}

static void ends_with(struct meeting *m, const char *data, size_t size, bool close_it, int error)
{
	meet(m);
	peer_sends(m, data, size);
	if (close_it)
		close(TAKE(m->peer, -1));
	turn(m);
	assert_true(m->ended);
	assert_int_equal(m->error, error);
}

static void test_rules_are_kept(void **state)
{
	struct meeting *m = *state;
	char data[128];
	size_t size = add(data, 0, FRAME_DATA, 1, "hello");

	/* in the middle of a header, and of a payload */
	ends_with(m, data, 3, true, -EPROTO);
	ends_with(m, data, size - 1, true, -EPROTO);
	assert_int_equal(m->frames, 0);
	/* what only a host says; a size that is none */
	size = add(data, 0, FRAME_START, 0, "");
	ends_with(m, data, size, false, -EPROTO);
	frame_encode((unsigned char *)data, FRAME_DONE, 0, 1);
	ends_with(m, data, FRAME_HEADER_SIZE, false, -EPROTO);
	frame_encode((unsigned char *)data, FRAME_DATA, 1, FRAME_DATA_MAX + 1);
	ends_with(m, data, FRAME_HEADER_SIZE, false, -EPROTO);
	memset(data, 0xff, sizeof data);
	ends_with(m, data, sizeof data, false, -EPROTO);
	/* what came before it counts */
	size = add(data, 0, FRAME_DONE, 0, "");
	memset(data + size, 0xff, FRAME_HEADER_SIZE);
	ends_with(m, data, size + FRAME_HEADER_SIZE, false, -EPROTO);
	assert_int_equal(m->frames, 1);
}

static void test_nobody_listens(void **state)
{
	struct meeting *m = *state;
	struct err e = {0};
	char path[300];

	snprintf(path, sizeof path, "%s/none", m->folder);
	assert_null(talk_open(&m->loop, path, &ops, m, &e));
	assert_int_equal(e.errnum, ENOENT);
	memset(path, 'x', sizeof path);
	path[299] = '\0';
	assert_null(talk_open(&m->loop, path, &ops, m, &e));
	assert_int_equal(e.errnum, ENAMETOOLONG);
}

/* A peer that dies with our request unread: the socket has an error then, but its answer was sent before. */
static void test_a_peer_closes_with_unread_data(void **state)
{
	struct meeting *m = *state;
	char data[64];
	size_t size = add(data, 0, FRAME_DONE, 0, "");

	meet(m);
	talk_send(m->talk, FRAME_LIST, NULL, 0, NULL, 0);
	turn(m);
	peer_sends(m, data, size);
	close(TAKE(m->peer, -1));
	turn(m);
	assert_string_equal(m->log, "104/0: ");
	assert_true(m->ended);
	assert_true(m->error == 0 || m->error == -ECONNRESET);
}

static char big[65536];

/* Sends until it is told to wait; returns how many bytes that were. */
static size_t send_until_full(struct meeting *m)
{
	size_t sent = 0;

	for (int i = 0; i < 200; i++) {
		sent += FRAME_HEADER_SIZE + sizeof big;
		if (!talk_send(m->talk, FRAME_DATA, big, sizeof big, NULL, 0))
			return sent;
	}
	fail_msg("13 MB are waiting and nobody said so");
	return 0;
}

static void test_back_pressure_out(void **state)
{
	struct meeting *m = *state;
	size_t sent, taken = 0;

	meet(m);
	sent = send_until_full(m);
	turn(m);
	assert_int_equal(m->rooms, 0); /* the peer took nothing */
	for (int i = 0; i < 200 && taken < sent; i++) {
		taken += peer_takes(m);
		turn(m);
	}
	assert_int_equal(taken, sent);
	assert_int_equal(m->rooms, 1); /* once */
	/* and it may go on */
	assert_true(talk_send(m->talk, FRAME_EOF, NULL, 0, NULL, 0));
	turn(m);
	assert_int_equal(peer_takes(m), FRAME_HEADER_SIZE);
	/* the end of our direction comes behind what waits */
	sent = send_until_full(m);
	talk_finish(m->talk);
	for (taken = 0; taken < sent;) {
		size_t n = peer_takes(m);

		taken += n;
		turn(m);
	}
	assert_int_equal(taken, sent);
	assert_int_equal(recv(m->peer, big, 1, 0), 0);
}

static void test_back_pressure_in(void **state)
{
	struct meeting *m = *state;
	char data[128];
	size_t size = add(data, 0, FRAME_DATA, 1, "a");
	struct pollfd p;
	int sent = 0;

	size = add(data, size, FRAME_DATA, 1, "b");
	meet(m);
	m->pause_at_frame = true;
	peer_sends(m, data, size);
	turn(m);
	assert_string_equal(m->log, "4/1:a "); /* the other one waits */
	turn(m);
	assert_int_equal(m->frames, 1);
	talk_resume(m->talk);
	assert_string_equal(m->log, "4/1:a 4/1:b ");
	/* paused again by the second: the peer's own queue fills, not our memory */
	while (send(m->peer, big, sizeof big, MSG_NOSIGNAL) > 0)
		sent++;
	turn(m);
	p = (struct pollfd){.fd = m->peer, .events = POLLOUT};
	assert_int_equal(poll(&p, 1, 0), 0);
	assert_true(sent < 100);
	assert_int_equal(m->frames, 2);
}

/* Whole frames wait with us, the reading is paused, and the one who may resume it is told of room. */
static void test_resumed_from_room(void **state)
{
	struct meeting *m = *state;
	char data[128];
	size_t size = add(data, 0, FRAME_DATA, 1, "a"), sent, taken = 0;

	size = add(data, size, FRAME_DATA, 1, "b");
	meet(m);
	m->pause_at_frame = true;
	peer_sends(m, data, size);
	turn(m);
	assert_string_equal(m->log, "4/1:a ");
	m->pause_at_frame = false;
	m->resume_at_room = true;
	sent = send_until_full(m);
	for (int i = 0; i < 200 && taken < sent; i++) {
		taken += peer_takes(m);
		turn(m);
	}
	assert_int_equal(m->rooms, 1);
	assert_string_equal(m->log, "4/1:a 4/1:b ");
}

static void on_check(uv_check_t *check)
{
	++*(unsigned *)check->data;
}

static void on_time(uv_timer_t *timer)
{
	uv_stop(timer->loop);
}

/* Paused, with something to send, and the peer is dead: the loop sleeps until somebody resumes. */
static void test_a_dead_peer_costs_no_time(void **state)
{
	struct meeting *m = *state;
	unsigned turns = 0;
	uv_timer_t timer;
	uv_check_t check;

	meet(m);
	send_until_full(m);
	talk_pause(m->talk);
	turn(m);
	close(TAKE(m->peer, -1));
	uv_check_init(&m->loop, &check);
	check.data = &turns;
	uv_check_start(&check, on_check);
	uv_timer_init(&m->loop, &timer);
	uv_timer_start(&timer, on_time, 100, 0);
	uv_run(&m->loop, UV_RUN_DEFAULT);
	uv_close((uv_handle_t *)&check, NULL);
	uv_close((uv_handle_t *)&timer, NULL);
	assert_true(turns < 10);
	assert_false(m->ended);
	talk_resume(m->talk);
	turn(m);
	assert_true(m->ended);
}

static void test_raw(void **state)
{
	struct meeting *m = *state;
	char data[64];
	size_t size = add(data, 0, FRAME_DONE, 0, "");

	meet(m);
	peer_sends(m, data, size);
	turn(m);
	talk_become_raw(m->talk);
	peer_sends(m, "\xff\xffraw", 5);
	turn(m);
	assert_string_equal(m->log, "104/0: raw:\xff\xffraw ");
	talk_send_raw(m->talk, "bytes", 5);
	assert_int_equal(peer_takes(m), 5);
	/* its end is not ours */
	shutdown(m->peer, SHUT_WR);
	turn(m);
	assert_string_equal(m->log, "104/0: raw:\xff\xffraw raw: ");
	assert_false(m->ended);
	talk_send_raw(m->talk, "more", 4);
	assert_int_equal(peer_takes(m), 4);
}

static void test_closed_from_a_callback(void **state)
{
	struct meeting *m = *state;
	char data[64];
	size_t size = add(data, 0, FRAME_DATA, 1, "a");

	size = add(data, size, FRAME_DATA, 1, "b");
	meet(m);
	m->close_at_frame = true;
	peer_sends(m, data, size);
	turn(m);
	assert_string_equal(m->log, "4/1:a ");
	assert_false(m->ended); /* who hangs up is not told of it */
	assert_int_equal(peer_takes(m), 0);
	assert_int_equal(recv(m->peer, data, 1, 0), 0);
}

static void test_silence(void **state)
{
	struct meeting *m = *state;
	struct meeting waits = {.peer = -1};
	struct err e = {0};
	char data[64];
	size_t size = add(data, 0, FRAME_DATA, 1, "a");

	/* one that is paused waits as long as it takes; it is the older */
	waits.talk = talk_open(&m->loop, m->path, &ops, &waits, &e);
	assert_non_null(waits.talk);
	waits.peer = accept4(m->listener, NULL, NULL, SOCK_CLOEXEC);
	talk_limit(waits.talk, 1);
	talk_pause(waits.talk);
	meet(m);
	talk_limit(m->talk, 1);
	peer_sends(m, data, size);
	while (!m->ended)
		uv_run(&m->loop, UV_RUN_ONCE);
	assert_int_equal(m->error, -ETIMEDOUT);
	assert_int_equal(m->frames, 1);
	assert_false(waits.ended);
	/* no limit any more */
	meet(m);
	talk_limit(m->talk, 1);
	talk_limit(m->talk, 0);
	turn(m);
	assert_int_equal(uv_backend_timeout(&m->loop) > 1000, 0);
	talk_close(waits.talk);
	turn(m);
	assert_int_equal(uv_backend_timeout(&m->loop), -1); /* no timer runs */
	close(waits.peer);
}

static void test_no_memory(void **state)
{
	struct meeting *m = *state;
	struct err e = {0};

	no_memory = true;
	assert_null(talk_open(&m->loop, m->path, &ops, m, &e));
	no_memory = false;
	assert_int_equal(e.errnum, ENOMEM);
	meet(m);
	no_memory = true;
	for (int i = 0; i < 20; i++) /* the socket is full long before */
		talk_send(m->talk, FRAME_DATA, big, sizeof big, NULL, 0);
	no_memory = false;
	turn(m);
	assert_true(m->ended); /* half a frame is no conversation */
	peer_takes(m);
	assert_int_equal(recv(m->peer, big, 1, 0), 0);
	/* nor is one whose first half cannot be kept */
	meet(m);
	frame_encode((unsigned char *)big, FRAME_DONE, 0, 0);
	peer_sends(m, big, 3);
	no_memory = true;
	turn(m);
	no_memory = false;
	assert_true(m->ended);
	assert_int_equal(m->error, -ENOMEM);
	meet(m); /* and the next one finds nothing of it */
	peer_sends(m, big, FRAME_HEADER_SIZE);
	turn(m);
	assert_string_equal(m->log, "104/0: ");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_frames_split_at_every_byte),
		TEST(test_two_in_pieces),
		TEST(test_quiet),
		TEST(test_rules_are_kept),
		TEST(test_nobody_listens),
		TEST(test_a_peer_closes_with_unread_data),
		TEST(test_back_pressure_out),
		TEST(test_back_pressure_in),
		TEST(test_resumed_from_room),
		TEST(test_a_dead_peer_costs_no_time),
		TEST(test_raw),
		TEST(test_closed_from_a_callback),
		TEST(test_silence),
		TEST(test_no_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
