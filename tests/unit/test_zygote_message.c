/* SPDX-License-Identifier: Apache-2.0 */
/* test_zygote_message.c - src/zygote/message.c and fits.c: what is built is what is read, and nothing else is. */
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "zygote/fits.h"
#include "zygote/message.h"

static char *const argv[] = {"-", "a", "", "b c", NULL};
static char *const envp[] = {"A=1", "B=", NULL};

static ssize_t build(char *buffer)
{
	struct zygote_run run = {.header = {0, 7}, .umask = 022, .limit_count = 1};
	struct err e = {0};

	run.limits[0] = (struct zygote_limit){.resource = 7, .soft = 1, .hard = 2};
	return message_run_build(buffer, &run, "/workspace", argv, envp, &e);
}

static void built_is_read(void **state)
{
	static char buffer[ZYGOTE_MESSAGE_MAX];
	struct run_view v = {0};
	struct err e = {0};
	ssize_t n = build(buffer);

	(void)state;
	assert_true(n > 0);
	assert_int_equal(message_run_split(buffer, (size_t)n, &v, &e), 0);
	assert_string_equal(v.cwd, "/workspace");
	for (size_t i = 0; i < ARRAY_SIZE(argv) - 1; i++)
		assert_string_equal(v.argv[i], argv[i]);
	assert_null(v.argv[4]);
	for (size_t i = 0; i < ARRAY_SIZE(envp) - 1; i++)
		assert_string_equal(v.envp[i], envp[i]);
	assert_null(v.envp[2]);
	assert_int_equal(v.run->header.sequence, 7);
	assert_int_equal(v.run->limits[0].hard, 2);
	run_done(&v);
}

/* Every shorter message is refused, and so is each with one byte more. */
static void cut_is_refused(void **state)
{
	static char whole[ZYGOTE_MESSAGE_MAX];
	ssize_t n = build(whole);

	(void)state;
	for (size_t size = 0; size <= (size_t)n + 1; size++) {
		char *copy = malloc(size + 1); /* so that a sanitizer sees a byte too far */
		struct run_view v = {0};
		struct err e = {0};

		assert_non_null(copy);
		memcpy(copy, whole, size);
		if (size != (size_t)n) {
			assert_int_equal(message_run_split(copy, size, &v, &e), -1);
			assert_true(e.text[0]);
			assert_null(v.argv);
		}
		free(copy);
	}
}

static void too_long_is_refused(void **state)
{
	static char buffer[ZYGOTE_MESSAGE_MAX], text[ZYGOTE_MESSAGE_MAX];
	struct zygote_run run = {.header = {0, 1}};
	char *list[] = {text, NULL};
	struct err e = {0};

	(void)state;
	memset(text, 'x', sizeof text - 1);
	assert_int_equal(message_run_build(buffer, &run, "/", list, envp, &e), -1);
	assert_int_equal(e.errnum, E2BIG);
}

static void wrong_numbers(void **state)
{
	static char buffer[ZYGOTE_MESSAGE_MAX];
	struct zygote_run *run = (struct zygote_run *)buffer;
	ssize_t n = build(buffer);
	const struct {
		uint32_t *field, value;
	} rows[] = {
		{&run->header.type, ZYGOTE_FORK},
		{&run->header.sequence, 0},
		{&run->argc, 0},
		{&run->argc, 3},
		{&run->argc, UINT32_MAX},
		{&run->envc, 3},
		{&run->envc, UINT32_MAX},
		{&run->umask, 01000},
		{&run->limit_count, ZYGOTE_LIMITS_MAX + 1},
		{&run->limits[0].resource, 99},
		{&run->limits[0].zero, 1},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		uint32_t was = *rows[i].field;
		struct run_view v = {0};
		struct err e = {0};

		*rows[i].field = rows[i].value;
		assert_int_equal(message_run_split(buffer, (size_t)n, &v, &e), -1);
		assert_null(v.argv);
		*rows[i].field = was;
	}
}

static void start_names(void **state)
{
	struct {
		struct zygote_start m;
		char names[16];
	} s = {.m = {.header = {ZYGOTE_START, 1}, .version = ZYGOTE_VERSION, .module_count = 2}};
	const char *list[ZYGOTE_MODULES_MAX], *warm;
	struct err e = {0};

	(void)state;
	memcpy(s.names, "os\0json\0x=1", 12);
	assert_int_equal(message_start_split(&s, sizeof s.m + 12, list, &warm, &e), 2);
	assert_string_equal(list[0], "os");
	assert_string_equal(list[1], "json");
	assert_string_equal(warm, "x=1");
	for (size_t n = 0; n < sizeof s; n++)
		if (n != sizeof s.m + 12 && n != sizeof s.m + 8) /* with and without a warm-up */
			assert_int_equal(message_start_split(&s, n, list, &warm, &e), -1);
	s.m.module_count = ZYGOTE_MODULES_MAX + 1;
	assert_int_equal(message_start_split(&s, sizeof s.m + 12, list, &warm, &e), -1);
}

/* Descriptors come along; a list or a message that does not fit is dropped whole. */
static void sent_is_received(void **state)
{
	int pair[2], fds[ZYGOTE_FDS + ZYGOTE_JOIN_FDS_MAX], null = open("/dev/null", O_RDONLY);
	int many[ZYGOTE_FDS] = {null, null, null, null};
	char buffer[64];
	size_t count = 99;

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
	assert_int_equal(message_send(pair[0], "hello", 5, many, 4), 0);
	assert_int_equal(message_receive(pair[1], buffer, sizeof buffer, fds, &count), 5);
	assert_int_equal(count, 4);
	for (size_t i = 0; i < count; i++) {
		assert_int_equal(fcntl(fds[i], F_GETFD), FD_CLOEXEC);
		close(fds[i]);
	}
	assert_int_equal(message_send(pair[0], "hello", 5, many, 4), 0);
	assert_int_equal(message_receive(pair[1], buffer, 4, fds, &count), -EBADMSG);
	assert_int_equal(count, 0);
	assert_int_equal(dup(null), null + 3); /* none of the four was kept */
	close(null + 3);
	assert_int_equal(message_send(pair[0], "x", 1, many, 1000), -E2BIG);
	close(pair[0]);
	assert_int_equal(message_receive(pair[1], buffer, sizeof buffer, fds, &count), 0);
	close(pair[1]);
	close(null);
}

static void environments(void **state)
{
	char *zygote[] = {"PATH=/bin", "HOME=/tmp", "LANG=C.UTF-8", "X=1", NULL};
	char *same[] = {"Y=2",     "LANG=C.UTF-8", "HOME=/tmp", "PATH=/bin",
			"PATHS=x", "HOMER=d",      NULL};
	char *path[] = {"PATH=/sbin", "HOME=/tmp", "LANG=C.UTF-8", NULL};
	char *more[] = {"PATH=/bin", "HOME=/tmp", "LANG=C.UTF-8", "PYTHONX=1", NULL};
	char *less[] = {"PATH=/bin", "HOME=/tmp", NULL};
	struct err e = {0};

	(void)state;
	assert_int_equal(environment_fits(zygote, same, &e), 0);
	assert_int_equal(environment_fits(zygote, path, &e), -1);
	assert_non_null(strstr(e.text, "PATH"));
	assert_int_equal(environment_fits(zygote, more, &e), -1);
	assert_non_null(strstr(e.text, "PYTHONX"));
	assert_int_equal(environment_fits(zygote, less, &e), -1);
	assert_non_null(strstr(e.text, "LANG"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(built_is_read),       cmocka_unit_test(cut_is_refused),
		cmocka_unit_test(too_long_is_refused), cmocka_unit_test(wrong_numbers),
		cmocka_unit_test(start_names),         cmocka_unit_test(sent_is_received),
		cmocka_unit_test(environments),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
