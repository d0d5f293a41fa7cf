/* SPDX-License-Identifier: Apache-2.0 */
/* Inputs on their way in: what is sent for a file, a folder, a link, and what is refused. */
#include "unit.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "protocol/protocol.h"
#include "native/feed.h"

enum { LINE = 600 };

struct scene {
	char path[256];
	int dir;
	struct spec spec;
	struct err e;
	int result;
	char said[65536]; /* one line per frame: TYPE MODE SIZE PATH [TARGET] */
};

static void begin(struct scene *s)
{
	*s = (struct scene){0};
	umask(022);
	s->dir = scratch_make(s->path);
	assert_int_equal(spec_init(&s->spec, &s->e), 0);
}

static void end(struct scene *s)
{
	close(s->dir);
	spec_done(&s->spec);
	scratch_remove(s->path);
}

static void input(struct scene *s, const char *name, const char *dest)
{
	char text[LINE];

	snprintf(text, sizeof text, "%s/%s%s%s", s->path, name, *dest ? ":" : "", dest);
	if (spec_set(&s->spec, option_find("in"), text, &s->e) < 0)
		fail_msg("%s", s->e.text);
}

static void note(struct scene *s, const struct frame *f, const unsigned char *payload)
{
	size_t n = strlen(s->said);
	struct put_record put;
	const char *path = (const char *)payload + sizeof put, *target;

	if (f->type != FRAME_PUT) {
		snprintf(s->said + n, sizeof s->said - n, "data %u\n", f->size);
		return;
	}
	memcpy(&put, payload, sizeof put);
	assert_true(f->size > sizeof put && payload[f->size - 1] == '\0');
	assert_int_equal(put.uid, 65534);
	assert_int_equal(put.gid, 65534);
	assert_int_equal(put.zero, 0);
	target = path + strlen(path) + 1;
	snprintf(s->said + n, sizeof s->said - n, "%o %llu %s%s%s\n", put.mode,
		 (unsigned long long)put.size_bytes, path, S_ISLNK(put.mode) ? " " : "",
		 S_ISLNK(put.mode) ? target : "");
}

/* The other side reads in this process, the sender is a child: neither waits for ever. */
static void feed(struct scene *s)
{
	static unsigned char payload[FRAME_EXEC_MAX];
	int p[2], answer[2], status;
	struct frame f;
	pid_t child;

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, p), 0);
	assert_int_equal(pipe2(answer, O_CLOEXEC), 0);
	child = fork();
	if (child == 0) {
		close(p[1]);
		s->result = feed_inputs(p[0], &s->spec, -1, &s->e);
		(void)!write(answer[1], &s->e, sizeof s->e);
		_exit(s->result == 0 ? 0 : 1);
	}
	close(p[0]);
	close(answer[1]);
	while (frame_receive(p[1], FROM_HOST, &f, payload, sizeof payload, NULL, NULL) == 0)
		note(s, &f, payload);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) <= 1);
	s->result = -WEXITSTATUS(status);
	assert_int_equal(read(answer[0], &s->e, sizeof s->e), sizeof s->e);
	close(answer[0]);
	close(p[1]);
}

static void test_files(void **state)
{
	static char big[150000];
	struct scene s;

	(void)state;
	begin(&s);
	write_at(s.dir, "file", "abc", 3, 0640);
	write_at(s.dir, "run", "#!/bin/sh\n", 10, 04755);
	write_at(s.dir, "empty", "", 0, 0600);
	write_at(s.dir, "big", big, sizeof big, 0644);
	symlinkat("file", s.dir, "link");
	input(&s, "file", "");
	input(&s, "run", "bin/run");
	input(&s, "empty", "/tmp/e");
	input(&s, "big", "");
	input(&s, "link", ""); /* named by the caller: what it leads to goes in */
	feed(&s);
	assert_int_equal(s.result, 0);
	assert_string_equal(s.said,
			    "100640 3 /workspace/file\ndata 3\n"
			    "100755 10 /workspace/bin/run\ndata 10\n"
			    "100600 0 /tmp/e\n"
			    "100644 150000 /workspace/big\ndata 65536\ndata 65536\ndata 18928\n"
			    "100640 3 /workspace/link\ndata 3\n");
	end(&s);
}

static void test_folder(void **state)
{
	struct scene s;

	(void)state;
	begin(&s);
	mkdirat(s.dir, "d", 0755);
	mkdirat(s.dir, "d/sub", 0500);
	symlinkat("/etc/shadow", s.dir, "d/link");
	input(&s, "d", "");
	feed(&s);
	assert_int_equal(s.result, 0);
	assert_contains(s.said, "40755 0 /workspace/d\n");
	assert_contains(s.said, "40700 0 /workspace/d/sub\n"); /* its owner can go on filling it */
	assert_contains(
		s.said,
		"120777 0 /workspace/d/link /etc/shadow\n"); /* as a link, not what it leads to */
	assert_null(strstr(s.said, "data"));
	end(&s);
}

static void refused(struct scene *s, const char *why)
{
	feed(s);
	assert_int_equal(s->result, -1);
	assert_contains(s->e.text, "--in");
	assert_contains(s->e.text, why);
}

static void test_refused(void **state)
{
	struct scene s;

	(void)state;
	begin(&s);
	input(&s, "missing", "");
	refused(&s, "missing: No such file or directory");
	end(&s);
	begin(&s);
	assert_int_equal(mknodat(s.dir, "fifo", S_IFIFO | 0600, 0), 0);
	input(&s, "fifo", "");
	refused(&s, "fifo");
	assert_string_equal(s.said, "");
	end(&s);
	begin(&s);
	symlinkat("nowhere", s.dir, "dangling");
	input(&s, "dangling", "");
	refused(&s, "dangling");
	end(&s);
}

static void test_too_deep(void **state)
{
	struct scene s;
	int at;

	(void)state;
	begin(&s);
	at = dup(s.dir);
	for (int i = 0; i < 62; i++) {
		int below;

		assert_int_equal(mkdirat(at, "dddd", 0755), 0);
		below = openat(at, "dddd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		close(at);
		at = below;
	}
	close(at);
	input(&s, "dddd", "");
	refused(&s, "too long"); /* a path of more than 255 bytes inside */
	end(&s);
}

static void test_other_side_gone(void **state)
{
	struct scene s;
	int p[2];

	(void)state;
	begin(&s);
	text_at(s.dir, "file", "abc");
	input(&s, "file", "");
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, p), 0);
	close(p[1]);
	signal(SIGPIPE, SIG_IGN);
	assert_int_equal(feed_inputs(p[0], &s.spec, -1, &s.e), -1);
	assert_int_equal(s.e.errnum, EPIPE);
	close(p[0]);
	end(&s);
}

static void test_cancelled(void **state)
{
	struct scene s;
	int p[2], cancel[2];

	(void)state;
	begin(&s);
	text_at(s.dir, "file", "abc");
	input(&s, "file", "");
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, p), 0);
	assert_int_equal(pipe2(cancel, O_CLOEXEC), 0);
	assert_int_equal(write(cancel[1], "x", 1), 1);
	assert_int_equal(feed_inputs(p[0], &s.spec, cancel[0], &s.e), -1);
	assert_int_equal(s.e.errnum, ECANCELED);
	for (int i = 0; i < 2; i++) {
		close(p[i]);
		close(cancel[i]);
	}
	end(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_files),           cmocka_unit_test(test_folder),
		cmocka_unit_test(test_refused),         cmocka_unit_test(test_too_deep),
		cmocka_unit_test(test_other_side_gone), cmocka_unit_test(test_cancelled),
	};

	return cmocka_run_group_tests_name("feed", tests, NULL, NULL);
}
