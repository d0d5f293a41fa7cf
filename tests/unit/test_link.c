/* SPDX-License-Identifier: Apache-2.0 */
/* cloched's line to the spawner, against a spawner of the test's own: answers in any order, refusals, a spawner
 * that dies in the middle or talks rubbish, a line that is full, and creations that wait in turns. */
#include "unit.h"

#include <sys/socket.h>
#include <sys/un.h>

#include "service/link.h"
#include "spawner/client.h"

enum { MOST_SEEN = 8192 };

/* What the next request is answered with by the kernel; 0: it is sent. */
static int cannot_send;

ssize_t __real_sendmsg(int fd, const struct msghdr *m, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *m, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *m, int flags)
{
	if (cannot_send) {
		errno = TAKE(cannot_send, 0);
		return -1;
	}
	return __real_sendmsg(fd, m, flags);
}

struct seen { /* by whoever asked */
	char name[8];
	unsigned calls, type; /* type 0: no answer will come */
};

struct asked { /* by the spawner */
	uint32_t type, sequence;
	char id[SANDBOX_ID_SIZE];
	int fd;
};

struct line {
	uv_loop_t loop;
	char folder[256], path[300];
	int dir, listener, spawner; /* the spawner's side of the line */
	struct link *link;
	unsigned ups, downs, ends, pulls;
	char ended[SANDBOX_ID_SIZE];
	struct asked asked[MOST_SEEN];
	size_t asked_count;
};

static void on_ended(void *context, const struct spawner_ended *e)
{
	struct line *l = context;

	l->ends++;
	memcpy(l->ended, e->id, sizeof l->ended);
}

static void on_pulling(void *context, const char *id)
{
	((struct line *)context)->pulls++;
	assert_string_equal(id, "sbx_many");
}

static void on_up(void *context)
{
	((struct line *)context)->ups++;
}

static void on_down(void *context)
{
	((struct line *)context)->downs++;
}

/* What a service with too many dying sandboxes answers. */
static bool hold_back;

static bool may_create(void *context)
{
	(void)context;
	return !hold_back;
}

static const struct link_ops ops = {on_ended, on_pulling, on_up, on_down, may_create};

static void on_answer(void *data, const struct spawner_header *message)
{
	struct seen *s = data;

	s->calls++;
	s->type = message ? message->type : 0;
}

static void turn(struct line *l)
{
	for (int i = 0; i < 4; i++)
		uv_run(&l->loop, UV_RUN_NOWAIT);
}

/* The spawner takes what has come. False: nothing more. */
static bool spawner_takes(struct line *l)
{
	static char data[SPAWNER_MESSAGE_MAX];
	union {
		char space[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec iov = {data, sizeof data};
	struct msghdr m = {.msg_iov = &iov,
			   .msg_iovlen = 1,
			   .msg_control = &control,
			   .msg_controllen = sizeof control};
	ssize_t n = recvmsg(l->spawner, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	struct asked *a = &l->asked[l->asked_count];

	if (n <= 0)
		return false;
	assert_true(l->asked_count < MOST_SEEN && n >= (ssize_t)sizeof(struct spawner_header));
	memcpy(&a->type, data, 8);
	if (n >= (ssize_t)sizeof(struct spawner_by_id))
		memcpy(a->id, data + sizeof(struct spawner_header), SANDBOX_ID_SIZE);
	a->fd = -1;
	if (CMSG_FIRSTHDR(&m))
		memcpy(&a->fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof a->fd);
	l->asked_count++;
	return true;
}

static void settle(struct line *l)
{
	size_t before;

	do {
		before = l->asked_count;
		turn(l);
		while (spawner_takes(l))
			;
	} while (l->asked_count > before);
}

static void say(struct line *l, uint32_t type, uint32_t sequence)
{
	union spawner_message m = {.header = {type, sequence}};
	size_t size = type == SPAWNER_DONE        ? sizeof m.done
		      : type == SPAWNER_REFUSED   ? sizeof m.refused
		      : type == SPAWNER_CREATED   ? sizeof m.created
		      : type == SPAWNER_STATS_ARE ? sizeof m.stats
		      : type == SPAWNER_ENDED     ? sizeof m.ended
		      : type == SPAWNER_PULLING   ? sizeof m.pulling
						  : sizeof m.live;

	if (type == SPAWNER_ENDED)
		snprintf(m.ended.id, sizeof m.ended.id, "sbx_gone");
	if (type == SPAWNER_PULLING)
		snprintf(m.pulling.id, sizeof m.pulling.id, "sbx_many");
	assert_int_equal(send(l->spawner, &m, size, MSG_NOSIGNAL), (ssize_t)size);
}

/* A spawner listens, and answers HELLO. */
static void spawner_comes(struct line *l)
{
	unsigned ups = l->ups;

	l->asked_count = 0;
	while ((l->spawner = accept4(l->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) < 0)
		uv_run(&l->loop, UV_RUN_ONCE); /* its timer connects */
	settle(l);
	assert_int_equal(l->asked_count, 1);
	assert_int_equal(l->asked[0].type, SPAWNER_HELLO);
	assert_false(link_is_up(l->link));
	say(l, SPAWNER_DONE, l->asked[0].sequence);
	settle(l);
	assert_true(link_is_up(l->link));
	assert_int_equal(l->ups, ups + 1);
	l->asked_count = 0;
}

static int setup(void **state)
{
	struct line *l = calloc(1, sizeof *l);
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	struct err e = {0};

	assert_non_null(l);
	l->dir = scratch_make(l->folder);
	snprintf(l->path, sizeof l->path, "%s/s", l->folder);
	memcpy(a.sun_path, l->path, strlen(l->path));
	l->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	assert_int_equal(bind(l->listener, (struct sockaddr *)&a, sizeof a), 0);
	assert_int_equal(listen(l->listener, 4), 0);
	assert_int_equal(uv_loop_init(&l->loop), 0);
	l->link = link_new(&l->loop, l->path, &ops, l, &e);
	assert_non_null(l->link);
	spawner_comes(l);
	*state = l;
	return 0;
}

static int teardown(void **state)
{
	struct line *l = *state;

	if (l->link)
		link_close(l->link);
	turn(l);
	assert_int_equal(uv_loop_close(&l->loop), 0);
	if (l->spawner >= 0)
		close(l->spawner);
	close(l->listener);
	close(l->dir);
	scratch_remove(l->folder);
	free(l);
	return 0;
}

static void got(const struct seen *s, unsigned calls, unsigned type)
{
	assert_int_equal(s->calls, calls);
	assert_int_equal(s->type, type);
}

static void test_answers_out_of_order(void **state)
{
	struct line *l = *state;
	struct seen a = {0}, b = {0}, c = {0}, d = {0};

	assert_int_equal(link_ask(l->link, SPAWNER_KILL, "sbx_a", on_answer, &a), 0);
	assert_int_equal(link_ask(l->link, SPAWNER_PAUSE, "sbx_b", on_answer, &b), 0);
	assert_int_equal(link_ask(l->link, SPAWNER_STATS, "sbx_c", on_answer, &c), 0);
	settle(l);
	assert_int_equal(l->asked_count, 3);
	assert_string_equal(l->asked[1].id, "sbx_b");
	say(l, SPAWNER_STATS_ARE, l->asked[2].sequence);
	turn(l);
	got(&a, 0, 0);
	got(&c, 1, SPAWNER_STATS_ARE);
	/* the last in line is gone: the next one is still told */
	assert_int_equal(link_ask(l->link, SPAWNER_RESUME, "sbx_d", on_answer, &d), 0);
	settle(l);
	say(l, SPAWNER_DONE, l->asked[0].sequence);
	say(l, SPAWNER_ENDED, 0);                   /* an event in between */
	say(l, SPAWNER_DONE, 12345678);             /* nobody's */
	say(l, SPAWNER_DONE, l->asked[2].sequence); /* for the second time */
	say(l, SPAWNER_REFUSED, l->asked[3].sequence);
	say(l, SPAWNER_REFUSED, l->asked[1].sequence);
	turn(l);
	got(&a, 1, SPAWNER_DONE);
	got(&b, 1, SPAWNER_REFUSED);
	got(&c, 1, SPAWNER_STATS_ARE);
	got(&d, 1, SPAWNER_REFUSED);
	assert_int_equal(l->ends, 1);
	assert_string_equal(l->ended, "sbx_gone");
	assert_int_equal(l->downs, 0);
}

static void test_list(void **state)
{
	struct line *l = *state;
	struct seen s = {0};

	assert_int_equal(link_list(l->link, on_answer, &s), 0);
	settle(l);
	say(l, SPAWNER_LIVE, l->asked[0].sequence);
	say(l, SPAWNER_LIVE, l->asked[0].sequence);
	turn(l);
	got(&s, 2, SPAWNER_LIVE);
	say(l, SPAWNER_DONE, l->asked[0].sequence);
	say(l, SPAWNER_LIVE, l->asked[0].sequence); /* after the end: nobody's */
	turn(l);
	got(&s, 3, SPAWNER_DONE);
}

static int create(struct line *l, const char *owner, const char *id, const int *fds,
		  size_t fd_count, struct seen *s)
{
	struct spawner_create *c = calloc(1, sizeof *c);
	int r;

	assert_non_null(c);
	snprintf(c->id, sizeof c->id, "%s", id);
	r = link_create(l->link, owner, c, fds, fd_count, on_answer, s);
	free(c);
	return r;
}

/* Who asks again when told that nothing came would ask for ever, were it told so within its own call. */
static void test_nobody_is_answered_within_a_call(void **state)
{
	struct line *l = *state;
	struct seen made[3] = {0};

	close(TAKE(l->spawner, -1)); /* and the loop has not turned since */
	for (int i = 0; i < 3; i++) {
		create(l, "o", "sbx_x", NULL, 0, &made[i]);
		got(&made[i], 0, 0);
	}
	turn(l);
	for (int i = 0; i < 3; i++)
		got(&made[i], 1, 0);
}

static void test_it_dies_in_the_middle(void **state)
{
	struct line *l = *state;
	struct seen asked = {0}, listed = {0}, made[20] = {0};

	assert_int_equal(link_ask(l->link, SPAWNER_KILL, "sbx_a", on_answer, &asked), 0);
	assert_int_equal(link_list(l->link, on_answer, &listed), 0);
	for (int i = 0; i < 20; i++) /* some are with the spawner, some wait */
		assert_int_equal(create(l, "o", "sbx_x", NULL, 0, &made[i]), 0);
	settle(l);
	say(l, SPAWNER_LIVE, l->asked[1].sequence);
	turn(l);
	close(TAKE(l->spawner, -1));
	turn(l);
	got(&asked, 1, 0);
	got(&listed, 2, 0);
	for (int i = 0; i < 20; i++)
		got(&made[i], 1, 0);
	assert_int_equal(l->downs, 1);
	assert_false(link_is_up(l->link));
	assert_int_equal(link_ask(l->link, SPAWNER_KILL, "sbx_a", on_answer, &asked), -1);
	assert_int_equal(link_list(l->link, on_answer, &asked), -1);
	assert_int_equal(create(l, "o", "sbx_x", NULL, 0, &asked), -1);
	got(&asked, 1, 0);
	/* the next spawner knows nothing of it, and is asked again */
	spawner_comes(l);
	assert_int_equal(create(l, "o", "sbx_y", NULL, 0, &made[0]), 0);
	settle(l);
	assert_int_equal(l->asked_count, 1);
	say(l, SPAWNER_CREATED, l->asked[0].sequence);
	turn(l);
	got(&made[0], 2, SPAWNER_CREATED);
}

static void test_rubbish_ends_the_line(void **state)
{
	static const struct spawner_header wrong[] = {
		{SPAWNER_CREATED, 1}, {SPAWNER_KILL, 1}, {0, 0}, {77, 1}};
	struct line *l = *state;

	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		struct seen s = {0};

		assert_int_equal(link_ask(l->link, SPAWNER_KILL, "sbx_a", on_answer, &s), 0);
		settle(l);
		assert_int_equal(send(l->spawner, &wrong[i], sizeof wrong[i], MSG_NOSIGNAL),
				 (ssize_t)sizeof wrong[i]);
		turn(l);
		got(&s, 1, 0);
		assert_int_equal(l->downs, i + 1);
		close(TAKE(l->spawner, -1));
		spawner_comes(l);
	}
}

static void test_another_version_is_not_up(void **state)
{
	struct line *l = *state;

	close(TAKE(l->spawner, -1));
	turn(l);
	while ((l->spawner = accept4(l->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) < 0)
		uv_run(&l->loop, UV_RUN_ONCE);
	l->asked_count = 0;
	settle(l);
	say(l, SPAWNER_REFUSED, l->asked[0].sequence);
	turn(l);
	assert_false(link_is_up(l->link));
	assert_int_equal(l->ups, 1);
	close(TAKE(l->spawner, -1));
	turn(l);
	assert_int_equal(l->downs, 1); /* of the first one: what was not up is not down */
	spawner_comes(l);
}

/* Sixteen are with the spawner at most; who asks for many does not keep another one waiting behind all. */
static void test_creations_take_turns(void **state)
{
	struct line *l = *state;
	static struct seen many[40], few[3];
	size_t with_it;

	memset(many, 0, sizeof many);
	memset(few, 0, sizeof few);
	for (int i = 0; i < 40; i++) {
		assert_int_equal(create(l, "many", "sbx_many", NULL, 0, &many[i]), 0);
		settle(l);
	}
	with_it = l->asked_count;
	assert_int_equal(with_it, 16);
	for (int i = 0; i < 3; i++)
		assert_int_equal(create(l, "few", "sbx_few", NULL, 0, &few[i]), 0);
	settle(l);
	assert_int_equal(l->asked_count, with_it);
	/* each that ends makes room for one, in turns */
	for (int i = 0; i < 6; i++) {
		say(l, i % 2 ? SPAWNER_REFUSED : SPAWNER_CREATED, l->asked[i].sequence);
		settle(l);
		assert_int_equal(l->asked_count, with_it + (size_t)i + 1);
	}
	for (int i = 0; i < 3; i++) {
		const struct asked *a = &l->asked[with_it + (size_t)i * 2];

		assert_true((strcmp(a[0].id, "sbx_few") == 0) != (strcmp(a[1].id, "sbx_few") == 0));
	}
	got(&many[0], 1, SPAWNER_CREATED);
	got(&many[1], 1, SPAWNER_REFUSED);
	/* the rest, in order, and none is forgotten */
	for (size_t i = 6; i < 43; i++) {
		say(l, SPAWNER_CREATED, l->asked[i].sequence);
		settle(l);
	}
	assert_int_equal(l->asked_count, 43);
	for (int i = 6; i < 40; i++)
		got(&many[i], 1, SPAWNER_CREATED);
	for (int i = 0; i < 3; i++)
		got(&few[i], 1, SPAWNER_CREATED);
}

/* Those whose image is being pulled are in nobody's way, and are answered like all. */
static void test_pulls_make_room(void **state)
{
	struct line *l = *state;
	static struct seen many[40];

	memset(many, 0, sizeof many);
	for (int i = 0; i < 40; i++)
		assert_int_equal(create(l, "many", "sbx_many", NULL, 0, &many[i]), 0);
	settle(l);
	assert_int_equal(l->asked_count, 16);
	for (int i = 0; i < 10; i++) {
		say(l, SPAWNER_PULLING, l->asked[i % 5].sequence); /* told twice, it counts once */
		settle(l);
	}
	assert_int_equal(l->asked_count, 21);
	assert_int_equal(l->pulls, 10);
	for (int i = 0; i < 5; i++) {
		say(l, SPAWNER_CREATED, l->asked[i].sequence);
		settle(l);
		got(&many[i], 1, SPAWNER_CREATED);
	}
	assert_int_equal(l->asked_count, 21);
	say(l, SPAWNER_CREATED, l->asked[5].sequence);
	settle(l);
	assert_int_equal(l->asked_count, 22);
	for (size_t i = 6; i < 40; i++) {
		say(l, SPAWNER_CREATED, l->asked[i].sequence);
		settle(l);
	}
	for (int i = 5; i < 40; i++)
		got(&many[i], 1, SPAWNER_CREATED);
}

/* Too many are dying: nothing more is asked for until somebody says so. */
static void test_creations_are_held_back(void **state)
{
	struct line *l = *state;
	static struct seen one;

	memset(&one, 0, sizeof one);
	assert_true(link_is_idle(l->link));
	assert_false(link_creations_wait(l->link));
	hold_back = true;
	assert_int_equal(create(l, "any", "sbx_any", NULL, 0, &one), 0);
	settle(l);
	assert_int_equal(l->asked_count, 0);
	assert_true(link_creations_wait(l->link));
	assert_false(link_is_idle(l->link));
	hold_back = false;
	link_create_more(l->link);
	settle(l);
	assert_int_equal(l->asked_count, 1);
	assert_false(link_is_idle(l->link));
	say(l, SPAWNER_CREATED, l->asked[0].sequence);
	settle(l);
	got(&one, 1, SPAWNER_CREATED);
	assert_true(link_is_idle(l->link));
}

static unsigned descriptors(void)
{
	unsigned n = 0;

	for (int fd = 0; fd < 256; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static void test_descriptors_come_along(void **state)
{
	struct line *l = *state;
	struct seen s = {0}, waits[40] = {0};
	int fds[SPEC_MAX_VOLUMES + 1], bad = 9999;
	unsigned before = descriptors();
	struct stat mine, its;

	fds[0] = open(l->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(create(l, "o", "sbx_x", fds, 1, &s), 0);
	fstat(fds[0], &mine);
	close(fds[0]); /* ours; the copy goes */
	settle(l);
	assert_int_equal(l->asked_count, 1);
	assert_true(l->asked[0].fd >= 0);
	assert_int_equal(fstat(l->asked[0].fd, &its), 0);
	assert_true(mine.st_ino == its.st_ino && mine.st_dev == its.st_dev);
	close(l->asked[0].fd);
	assert_int_equal(descriptors(), before); /* the copy is closed once it was sent */
	assert_int_equal(create(l, "o", "sbx_x", fds, SPEC_MAX_VOLUMES + 1, &s), -1);
	assert_int_equal(create(l, "o", "sbx_x", &bad, 1, &s), -1);
	/* those that never went out are closed when the line goes down */
	for (int i = 0; i < 40; i++)
		assert_int_equal(create(l, "o", "sbx_x", &l->dir, 1, &waits[i]), 0);
	assert_true(descriptors() > before);
	close(TAKE(l->spawner, -1));
	turn(l);
	assert_int_equal(descriptors(), before - 2); /* both ends of the line are gone */
	got(&waits[39], 1, 0);
}

/* Nobody reads: what does not fit waits, in order; beyond 4,096 nobody may. */
static void test_a_full_line(void **state)
{
	struct line *l = *state;
	static struct seen s[4200];
	int taken = 0;

	memset(s, 0, sizeof s);
	while (taken < 4200 && link_ask(l->link, SPAWNER_STATS, "sbx_a", on_answer, &s[taken]) == 0)
		taken++;
	assert_int_equal(taken, 4096);
	settle(l);
	assert_int_equal(l->asked_count, 4096);
	for (size_t i = 1; i < 4096; i++)
		assert_int_equal(l->asked[i].sequence, l->asked[i - 1].sequence + 1);
	for (size_t i = 0; i < 4096; i++) {
		say(l, SPAWNER_DONE, l->asked[i].sequence);
		if (i % 64 == 0)
			turn(l);
	}
	turn(l);
	for (int i = 0; i < 4096; i++)
		got(&s[i], 1, SPAWNER_DONE);
	assert_int_equal(link_ask(l->link, SPAWNER_STATS, "sbx_a", on_answer, &s[4100]), 0);
}

/* However much else waits for an answer, that of a creation finds whoever asked for it. */
static void test_a_creation_behind_all_there_may_be(void **state)
{
	struct line *l = *state;
	static struct seen many, made; /* told once more when the line is closed */

	memset(&many, 0, sizeof many);
	memset(&made, 0, sizeof made);
	for (int i = 0; i < 4096; i++)
		assert_int_equal(link_ask(l->link, SPAWNER_STATS, "sbx_a", on_answer, &many), 0);
	settle(l);
	assert_int_equal(create(l, "o", "sbx_x", NULL, 0, &made), 0);
	got(&made, 0, 0);
	settle(l);
	assert_int_equal(l->asked_count, 4097);
	assert_int_equal(l->asked[4096].type, SPAWNER_CREATE);
	say(l, SPAWNER_CREATED, l->asked[4096].sequence);
	turn(l);
	got(&made, 1, SPAWNER_CREATED);
	got(&many, 0, 0);
}

/* "No answer will come" is said by a line that has gone down, and by that only: who hears it waits for the next. */
static void test_what_cannot_be_sent_is_refused(void **state)
{
	static const int why[] = {ENOMEM, ETOOMANYREFS, EMSGSIZE};
	struct line *l = *state;
	struct seen made[2];

	for (size_t i = 0; i < ARRAY_SIZE(why); i++) {
		memset(made, 0, sizeof made);
		cannot_send = why[i];
		assert_int_equal(create(l, "o", "sbx_x", &l->dir, 1, &made[0]), 0);
		got(&made[0], 0, 0); /* not within the call */
		assert_int_equal(create(l, "o", "sbx_y", NULL, 0, &made[1]), 0);
		settle(l);
		got(&made[0], 1, SPAWNER_REFUSED);
		assert_int_equal(l->asked_count, i + 1); /* the other one */
		say(l, SPAWNER_CREATED, l->asked[i].sequence);
		turn(l);
		got(&made[1], 1, SPAWNER_CREATED);
		assert_true(link_is_idle(l->link));
		assert_int_equal(l->downs, 0);
	}
}

static void test_closing_tells_who_waits(void **state)
{
	struct line *l = *state;
	struct seen a = {0}, c = {0};

	assert_int_equal(link_ask(l->link, SPAWNER_KILL, "sbx_a", on_answer, &a), 0);
	assert_int_equal(create(l, "o", "sbx_x", NULL, 0, &c), 0);
	link_close(l->link);
	got(&a, 1, 0);
	got(&c, 1, 0);
	l->link = NULL;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_answers_out_of_order),
		TEST(test_list),
		TEST(test_nobody_is_answered_within_a_call),
		TEST(test_it_dies_in_the_middle),
		TEST(test_rubbish_ends_the_line),
		TEST(test_another_version_is_not_up),
		TEST(test_creations_take_turns),
		TEST(test_pulls_make_room),
		TEST(test_creations_are_held_back),
		TEST(test_descriptors_come_along),
		TEST(test_a_full_line),
		TEST(test_a_creation_behind_all_there_may_be),
		TEST(test_what_cannot_be_sent_is_refused),
		TEST(test_closing_tells_who_waits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
