/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guest side with nothing but one byte stream: stdin, stdout and stderr travel as DATA frames.
 *
 * guest.c, start.c and put.c are compiled in and serve a socket pair from a forked child, without a
 * sandbox and without a filter: this is the protocol as another runtime would carry it. Starting a
 * command means setgroups() and setresuid(), so it takes root.
 */
#include "unit.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "init/command.h"
#include "init/guest.h"
#include "zygote/request.h"

enum { USER = 65534, PATIENCE_MS = 20000 };

struct box {
	int fd; /* our end of the stream */
	pid_t pid;
	unsigned char payload[FRAME_DATA_MAX];
	struct frame f;
	char out[2][1 << 20]; /* what came as stdout, stderr */
	size_t size[2];
	bool eof[2];
	uint32_t credit, limit_ms;
	bool exited; /* EXITED was seen */
	struct exited_record end;
	struct failed_record failed;
};

static struct box *start_box(void)
{
	struct box *b = calloc(1, sizeof *b);
	int p[2];

	assert_non_null(b);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, p), 0);
	fflush(NULL);
	b->pid = fork();
	if (b->pid == 0) {
		static struct guest g;
		sigset_t all;

		close(p[0]);
		prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); /* as PID 1 would be */
		sigfillset(&all);
		sigprocmask(SIG_SETMASK, &all, NULL);
		signal(SIGPIPE, SIG_IGN);
		g.without_seccomp = true;
		guest_init(&g, p[1]);
		guest_loop(&g);
	}
	close(p[1]);
	b->fd = p[0];
	return b;
}

/* The guest's exit status; it has to end by itself once the stream has. */
static int end_box(struct box *b)
{
	int status;

	close(b->fd);
	assert_int_equal(waitpid(b->pid, &status, 0), b->pid);
	free(b);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static void order(struct box *b, unsigned flags, const char *const *argv)
{
	struct exec_record exec = {USER, USER, 0, 1, flags, b->limit_ms};
	char payload[4096];
	size_t n = sizeof exec;

	n += (size_t)snprintf(payload + n, sizeof payload - n, "/") + 1;
	for (; *argv; argv++, exec.argc++)
		n += (size_t)snprintf(payload + n, sizeof payload - n, "%s", *argv) + 1;
	n += (size_t)snprintf(payload + n, sizeof payload - n, "PATH=/usr/bin:/bin") + 1;
	memcpy(payload, &exec, sizeof exec);
	assert_int_equal(frame_send(b->fd, FRAME_EXEC, 0, payload, (uint32_t)n, NULL, 0), 0);
}

#define ORDER(b, flags, ...) order(b, flags, (const char *const[]){__VA_ARGS__, NULL})
#define RELAYED              (EXEC_STDIO_FRAMES | EXEC_LAST)

static void take_data(struct box *b)
{
	size_t i = b->f.stream - 1;

	assert_false(b->eof[i]);
	assert_true(b->size[i] + b->f.size <= sizeof b->out[i]);
	memcpy(b->out[i] + b->size[i], b->payload, b->f.size);
	b->size[i] += b->f.size;
}

/* One frame; false at the end of the stream. */
static bool next(struct box *b)
{
	struct pollfd p = {.fd = b->fd, .events = POLLIN};
	uint32_t credit;
	int r;

	assert_true(poll(&p, 1, PATIENCE_MS) > 0);
	r = frame_receive(b->fd, FROM_GUEST, &b->f, b->payload, sizeof b->payload, NULL, NULL);
	if (r == -EPIPE || r == -ECONNRESET)
		return false;
	assert_int_equal(r, 0);
	if (b->f.type == FRAME_DATA)
		take_data(b);
	if (b->f.type == FRAME_EOF)
		b->eof[b->f.stream - 1] = true;
	if (b->f.type == FRAME_CREDIT) {
		memcpy(&credit, b->payload, sizeof credit);
		b->credit += credit;
	}
	if (b->f.type == FRAME_EXITED) {
		b->exited = true;
		assert_int_equal(exited_record_decode(b->payload, b->f.size, &b->end), 0);
	}
	if (b->f.type == FRAME_FAILED)
		assert_int_equal(failed_record_decode(b->payload, b->f.size, &b->failed), 0);
	return true;
}

static void expect(struct box *b, enum frame_type type)
{
	assert_true(next(b));
	assert_int_equal(b->f.type, type);
}

static void until(struct box *b, enum frame_type type)
{
	do
		assert_true(next(b));
	while (b->f.type != type);
}

static bool usable(void)
{
	return geteuid() == 0;
}
#define NEED_ROOT()                                                           \
	do {                                                                  \
		if (!usable())                                                \
			skip_because("becoming the sandbox user takes root"); \
	} while (0)

static void test_output(void **state)
{
	struct box *b;

	(void)state;
	NEED_ROOT();
	b = start_box();
	ORDER(b, RELAYED, "sh", "-c", "printf 'out\\0put'; printf err >&2; id -u; exit 7");
	expect(b, FRAME_STARTED);
	until(b, FRAME_EXITED);
	assert_int_equal(b->size[0], 13);
	assert_memory_equal(b->out[0], "out\0put65534\n", 13);
	assert_int_equal(b->size[1], 3);
	assert_memory_equal(b->out[1], "err", 3);
	assert_true(b->eof[0] && b->eof[1]); /* all output and both ends came before */
	assert_int_equal(b->end.signaled, 0);
	assert_int_equal(b->end.status, 7);
	assert_int_equal(b->end.survivors, 0);
	assert_false(next(b));
	assert_int_equal(end_box(b), 0);
}

/* No output can forge an end: frames printed by the command are data. */
static void test_output_that_looks_like_frames(void **state)
{
	struct box *b;

	(void)state;
	NEED_ROOT();
	b = start_box();
	ORDER(b, RELAYED, "printf",
	      "\\020\\0\\0\\0\\005\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0");
	expect(b, FRAME_STARTED);
	until(b, FRAME_EXITED);
	assert_int_equal(b->size[0], 24);
	assert_int_equal(end_box(b), 0);
}

static void test_large_output(void **state)
{
	struct box *b;

	(void)state;
	NEED_ROOT();
	b = start_box();
	ORDER(b, RELAYED, "sh", "-c", "seq 1 100000; echo done >&2");
	until(b, FRAME_EXITED);
	assert_int_equal(b->size[0], 588895);
	assert_memory_equal(b->out[0] + b->size[0] - 7, "100000\n", 7);
	assert_int_equal(b->size[1], 5);
	assert_int_equal(end_box(b), 0);
}

static void send_stdin(struct box *b, const void *data, uint32_t size)
{
	assert_int_equal(frame_send(b->fd, FRAME_DATA, 0, data, size, NULL, 0), 0);
}

static void test_stdin(void **state)
{
	struct box *b;

	(void)state;
	NEED_ROOT();
	b = start_box();
	ORDER(b, RELAYED, "cat");
	expect(b, FRAME_STARTED);
	send_stdin(b, "a\0b", 3);
	until(b, FRAME_CREDIT);
	assert_int_equal(b->credit, 3);
	while (b->size[0] < 3)
		assert_true(next(b));
	send_stdin(b, "\xff\r\n", 3);
	assert_int_equal(frame_send(b->fd, FRAME_EOF, 0, NULL, 0, NULL, 0), 0);
	until(b, FRAME_EXITED);
	assert_int_equal(b->size[0], 6);
	assert_memory_equal(b->out[0], "a\0b\xff\r\n", 6);
	assert_int_equal(b->credit, 6);
	assert_int_equal(end_box(b), 0);
}

static void test_stdin_ends_before_it_began(void **state)
{
	struct box *b;

	(void)state;
	NEED_ROOT();
	b = start_box();
	ORDER(b, RELAYED, "wc", "-c");
	assert_int_equal(frame_send(b->fd, FRAME_EOF, 0, NULL, 0, NULL, 0), 0);
	until(b, FRAME_EXITED);
	assert_memory_equal(b->out[0], "0\n", 2);
	assert_int_equal(end_box(b), 0);
}

/* 600 kB through a window of 64 KiB: credit is what keeps the two sides in step. */
static void test_credit_window(void **state)
{
	enum { TOTAL = 600000, CHUNK = 20000 };
	static unsigned char data[CHUNK];
	uint32_t sent = 0;
	struct box *b;

	(void)state;
	NEED_ROOT();
	b = start_box();
	ORDER(b, RELAYED, "cat");
	expect(b, FRAME_STARTED);
	while (sent < TOTAL) {
		while (sent - b->credit + CHUNK > STDIN_WINDOW)
			assert_true(next(b));
		for (uint32_t i = 0; i < CHUNK; i++)
			data[i] = (unsigned char)((sent + i) * 31 >> 3);
		send_stdin(b, data, CHUNK);
		sent += CHUNK;
	}
	assert_int_equal(frame_send(b->fd, FRAME_EOF, 0, NULL, 0, NULL, 0), 0);
	until(b, FRAME_EXITED);
	assert_int_equal(b->size[0], TOTAL);
	assert_int_equal(b->credit, TOTAL);
	for (uint32_t i = 0; i < TOTAL; i++)
		assert_int_equal((unsigned char)b->out[0][i], (unsigned char)(i * 31 >> 3));
	assert_int_equal(end_box(b), 0);
}

/* A command that does not read gets no more than the pipe and the window; one byte more is the other
 * side's fault and ends the guest. */
static void test_window_is_a_limit(void **state)
{
	static char data[STDIN_WINDOW];
	struct box *b;

	(void)state;
	NEED_ROOT();
	b = start_box();
	/* ends when there is no one to write to */
	ORDER(b, RELAYED, "sh", "-c", "while sleep 0.1; do echo; done");
	expect(b, FRAME_STARTED);
	send_stdin(b, data, sizeof data); /* fills the pipe */
	until(b, FRAME_CREDIT);
	while (b->credit < STDIN_WINDOW)
		assert_true(next(b));
	send_stdin(b, data, sizeof data); /* fills the window */
	send_stdin(b, data, 1);
	assert_false(next(b));
	assert_int_equal(end_box(b), 1);
}

/* Bytes for a command that has closed its stdin are consumed, not kept. */
static void test_stdin_nobody_reads(void **state)
{
	struct box *b;

	(void)state;
	NEED_ROOT();
	b = start_box();
	ORDER(b, RELAYED, "sh", "-c", "exec <&-; echo closed; sleep 1");
	expect(b, FRAME_STARTED);
	while (b->size[0] < 7)
		assert_true(next(b));
	send_stdin(b, "12345", 5);
	until(b, FRAME_CREDIT);
	assert_int_equal(b->credit, 5);
	until(b, FRAME_EXITED);
	assert_int_equal(end_box(b), 0);
}

static void test_signal(void **state)
{
	uint32_t number = SIGTERM, bad[] = {0, 65, UINT32_MAX};
	struct box *b;

	(void)state;
	NEED_ROOT();
	b = start_box();
	ORDER(b, RELAYED, "sh", "-c",
	      "trap 'echo got it; exit 3' TERM; echo ready; while :; do sleep 0.05; done");
	while (b->size[0] < 6)
		assert_true(next(b));
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(frame_send(b->fd, FRAME_SIGNAL, 0, &bad[i], 4, NULL, 0), 0);
	assert_int_equal(frame_send(b->fd, FRAME_SIGNAL, 0, &number, 4, NULL, 0), 0);
	until(b, FRAME_EXITED);
	assert_int_equal(b->end.status, 3);
	assert_memory_equal(b->out[0], "ready\ngot it\n", 13);
	assert_int_equal(end_box(b), 0);
}

static void test_killed(void **state)
{
	uint32_t number = SIGKILL;
	struct box *b;

	(void)state;
	NEED_ROOT();
	b = start_box();
	ORDER(b, RELAYED, "sleep", "100");
	expect(b, FRAME_STARTED);
	assert_int_equal(frame_send(b->fd, FRAME_SIGNAL, 0, &number, 4, NULL, 0), 0);
	until(b, FRAME_EXITED);
	assert_int_equal(b->end.signaled, 1);
	assert_int_equal(b->end.status, SIGKILL);
	assert_int_equal(end_box(b), 0);
}

static void fails(const char *command, uint32_t errnum)
{
	struct box *b = start_box();

	ORDER(b, RELAYED, command, "x");
	expect(b, FRAME_FAILED);
	assert_int_equal(b->failed.errnum, errnum);
	assert_string_equal(b->failed.stage, "exec");
	assert_string_equal(b->failed.what, command);
	assert_false(next(b)); /* no STARTED, no EXITED */
	assert_int_equal(end_box(b), 1);
}

static void test_command_not_found(void **state)
{
	(void)state;
	NEED_ROOT();
	fails("nonesuch-command", ENOENT);
	fails("/nonesuch/command", ENOENT);
	fails("/etc/passwd", EACCES);
	fails("/etc/passwd/x", ENOTDIR);
	fails("/", EACCES);
}

static void test_survivors(void **state)
{
	struct box *b;

	(void)state;
	NEED_ROOT();
	b = start_box();
	ORDER(b, RELAYED, "sh", "-c", "(sleep 1; echo late) & echo first");
	until(b, FRAME_EXITED);
	assert_int_equal(b->end.survivors, 1);
	assert_memory_equal(b->out[0], "first\n", 6);
	while (!b->eof[0] || !b->eof[1]) /* the guest goes on relaying for who is left */
		assert_true(next(b));
	assert_memory_equal(b->out[0], "first\nlate\n", 11);
	assert_int_equal(end_box(b), 0);
}

static void test_one_command_at_a_time(void **state)
{
	struct box *b;

	(void)state;
	NEED_ROOT();
	b = start_box();
	ORDER(b, EXEC_STDIO_FRAMES, "sleep", "0.2");
	expect(b, FRAME_STARTED);
	ORDER(b, EXEC_STDIO_FRAMES, "echo", "second");
	until(b, FRAME_FAILED);
	assert_int_equal(b->failed.errnum, EBUSY);
	until(b, FRAME_EXITED);
	assert_int_equal(b->size[0], 0);
	assert_int_equal(end_box(b), 0);
}

static size_t descriptors_of(pid_t pid)
{
	char path[64], target[8];
	size_t n = 0;

	for (int fd = 0; fd < 64; fd++) {
		snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, fd);
		n += readlink(path, target, sizeof target) > 0;
	}
	return n;
}

/* A kept sandbox: command after command over one stream, each with a stdin of its own. */
static void test_commands_in_turn(void **state)
{
	size_t first = 0;
	struct box *b;

	(void)state;
	NEED_ROOT();
	b = start_box();
	for (int i = 0; i < 4; i++) {
		memset(b->eof, 0, sizeof b->eof);
		b->size[0] = b->credit = 0;
		ORDER(b, EXEC_STDIO_FRAMES, "cat");
		expect(b, FRAME_STARTED);
		send_stdin(b, "one", 3);
		while (b->size[0] < 3)
			assert_true(next(b));
		send_stdin(b, "two", 3);
		assert_int_equal(frame_send(b->fd, FRAME_EOF, 0, NULL, 0, NULL, 0), 0);
		until(b, FRAME_EXITED);
		assert_int_equal(b->size[0], 6);
		assert_memory_equal(b->out[0], "onetwo", 6);
	}
	/* ended without reading: its pipes go all the same */
	for (int i = 0; i < 4; i++) {
		memset(b->eof, 0, sizeof b->eof);
		ORDER(b, EXEC_STDIO_FRAMES, "true");
		until(b, FRAME_EXITED);
		while (!b->eof[0] || !b->eof[1])
			assert_true(next(b));
		if (i == 0)
			first = descriptors_of(b->pid);
	}
	assert_int_equal(descriptors_of(b->pid), first);
	assert_int_equal(end_box(b), 0);
}

/* The guest's own clock, for when the outside is stopped: no report, just the end. */
static void test_limit(void **state)
{
	struct box *b;

	(void)state;
	NEED_ROOT();
	b = start_box();
	b->limit_ms = 200;
	ORDER(b, RELAYED, "cat"); /* until its stdin ends */
	expect(b, FRAME_STARTED);
	while (next(b))
		assert_int_not_equal(b->f.type, FRAME_EXITED);
	assert_int_equal(end_box(b), 1);
	b = start_box(); /* one that is over in time */
	b->limit_ms = 10000;
	ORDER(b, RELAYED, "true");
	until(b, FRAME_EXITED);
	assert_int_equal(end_box(b), 0);
}

/* ---------------------------------------------------------------------------------------- files */

static void put(struct box *b, uint32_t mode, uint64_t size, const char *path, const char *target)
{
	struct put_record record = {size, mode, USER, USER, 0};
	char payload[2048];
	size_t n = sizeof record;

	memcpy(payload, &record, sizeof record);
	n += (size_t)snprintf(payload + n, sizeof payload - n, "%s", path) + 1;
	if (target)
		n += (size_t)snprintf(payload + n, sizeof payload - n, "%s", target) + 1;
	assert_int_equal(frame_send(b->fd, FRAME_PUT, 0, payload, (uint32_t)n, NULL, 0), 0);
}

static void test_put(void **state)
{
	char dir[256], path[400], text[64];
	struct stat st;
	struct box *b;
	int fd;

	(void)state;
	NEED_ROOT();
	fd = scratch_make(dir);
	assert_int_equal(fchmod(fd, 0777), 0);
	b = start_box();
	snprintf(path, sizeof path, "%s/deep/er/file", dir);
	put(b, S_IFREG | 0640, 10, path, NULL);
	send_stdin(b, "01234", 5);
	send_stdin(b, "56789", 5);
	snprintf(path, sizeof path, "%s/folder", dir);
	put(b, S_IFDIR | 0750, 0, path, NULL);
	put(b, S_IFDIR | 0750, 0, path, NULL); /* once more is fine */
	snprintf(path, sizeof path, "%s/link", dir);
	put(b, S_IFLNK | 0777, 0, path, "../../etc/shadow");
	snprintf(path, sizeof path, "%s/empty", dir);
	put(b, S_IFREG | 0600, 0, path, NULL);
	ORDER(b, RELAYED, "true"); /* answers when all of the above is done */
	until(b, FRAME_EXITED);
	assert_int_equal(read_at(fd, "deep/er/file", text, sizeof text), 10);
	assert_string_equal(text, "0123456789");
	assert_int_equal(fstatat(fd, "deep/er/file", &st, 0), 0);
	assert_int_equal(st.st_uid, USER);
	assert_int_equal(st.st_mode & 07777, 0640);
	assert_int_equal(fstatat(fd, "folder", &st, 0), 0);
	assert_true(S_ISDIR(st.st_mode) && (st.st_mode & 0777) == 0750);
	assert_int_equal(readlinkat(fd, "link", text, sizeof text), 16);
	assert_int_equal(fstatat(fd, "empty", &st, 0), 0);
	assert_int_equal(st.st_size, 0);
	assert_int_equal(end_box(b), 0);
	close(fd);
	scratch_remove(dir);
}

/* A link in the way is not followed; the failure names the path and the guest ends. */
static void test_put_follows_no_link(void **state)
{
	char dir[256], other[256], path[400];
	struct box *b;
	int fd, elsewhere;

	(void)state;
	NEED_ROOT();
	fd = scratch_make(dir);
	elsewhere = scratch_make(other);
	fchmod(fd, 0777);
	fchmod(elsewhere, 0777);
	assert_int_equal(symlinkat(other, fd, "way"), 0);
	for (int last = 0; last < 2; last++) {
		b = start_box();
		snprintf(path, sizeof path, "%s/%s", dir, last ? "way" : "way/file");
		put(b, S_IFREG | 0644, 3, path, NULL);
		send_stdin(b, "abc", 3);
		expect(b, FRAME_FAILED);
		assert_string_equal(b->failed.stage, "files");
		assert_string_equal(b->failed.what, path);
		assert_int_equal(b->failed.errnum, ELOOP);
		assert_int_equal(end_box(b), 1);
	}
	assert_int_equal(faccessat(elsewhere, "file", F_OK, 0), -1);
	close(fd);
	close(elsewhere);
	scratch_remove(dir);
	scratch_remove(other);
}

/* ------------------------------------------------------------------------------ malformed frames */

static void ends(const void *bytes, size_t size)
{
	struct box *b = start_box();

	assert_int_equal(write(b->fd, bytes, size), (ssize_t)size);
	shutdown(b->fd, SHUT_WR);
	while (next(b))
		assert_int_equal(b->f.type, FRAME_FAILED);
	end_box(b);
}

static void malformed_exec(uint32_t argc, uint32_t envc, const char *strings, size_t size)
{
	struct exec_record exec = {USER, USER, argc, envc, RELAYED, 0};
	unsigned char frame[256];

	frame_encode(frame, FRAME_EXEC, 0, (uint32_t)(sizeof exec + size));
	memcpy(frame + FRAME_HEADER_SIZE, &exec, sizeof exec);
	memcpy(frame + FRAME_HEADER_SIZE + sizeof exec, strings, size);
	ends(frame, FRAME_HEADER_SIZE + sizeof exec + size);
}

static void test_malformed_commands(void **state)
{
	(void)state;
	malformed_exec(1, 0, "", 0);
	malformed_exec(0, 0, "/", 2);
	malformed_exec(1, 0, "/", 2);
	malformed_exec(1, 0, "/\0true", 6);
	malformed_exec(2, 0, "/\0true", 7);
	malformed_exec(1, 1, "/\0true", 7);
	malformed_exec(1, 0, "/\0true\0x", 9);
	malformed_exec(UINT32_MAX, UINT32_MAX, "/\0true", 7);
	malformed_exec(0x80000000u, 0x80000000u, "/\0true", 7);
	malformed_exec(UINT32_MAX, 2, "/\0true", 7);
}

static void test_malformed_frames(void **state)
{
	static const unsigned char bad[][12] = {
		{0, 0, 0, 0, 1, 0, 0, 0},              /* READY from outside */
		{0, 0, 0, 0, 99, 0, 0, 0},             /* unknown */
		{1, 0, 0, 0, 4, 1, 0, 0, 'x'},         /* stdin under the name of stdout */
		{0xff, 0xff, 0xff, 0xff, 16, 0, 0, 0}, /* 4 GiB */
		{0, 0, 0, 0, 33, 0, 0, 0},             /* CGROUP: only while it is made */
		{4, 0, 0, 0, 18, 0, 1, 0, 9, 0, 0, 0}, /* reserved field */
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		ends(bad[i], 12);
}

static void test_stream_ends(void **state)
{
	struct box *b = start_box();

	(void)state;
	assert_int_equal(end_box(b), 0);
}

/* A kept sandbox's listener comes with SERVE, exactly one, and nothing else brings a descriptor. */
static void test_serve_refused(void **state)
{
	int two[2] = {0, 1};
	uint32_t number = 9;
	struct box *b = start_box();

	(void)state;
	assert_int_equal(frame_send(b->fd, FRAME_SERVE, 0, NULL, 0, NULL, 0), 0);
	assert_false(next(b));
	assert_int_equal(end_box(b), 1);
	b = start_box();
	assert_int_equal(frame_send(b->fd, FRAME_SIGNAL, 0, &number, sizeof number, two, 1), 0);
	assert_false(next(b));
	assert_int_equal(end_box(b), 1);
	b = start_box();
	ORDER(b, RELAYED, "sleep", "60");
	assert_int_equal(frame_send(b->fd, FRAME_SERVE, 0, NULL, 0, two, 1), 0);
	while (next(b))
		;
	assert_int_equal(end_box(b), 1);
}

/* Taken over: DONE, and the stream's end is not the guest's any more. */
static void test_serve(void **state)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX, .sun_path = "\0cloche-unit-serve"};
	int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), c;
	struct box *b = start_box();

	(void)state;
	snprintf(a.sun_path + 1, sizeof a.sun_path - 1, "cloche-unit-serve-%d", getpid());
	assert_int_equal(bind(listener, (struct sockaddr *)&a, sizeof a), 0);
	assert_int_equal(listen(listener, 8), 0);
	assert_int_equal(frame_send(b->fd, FRAME_SERVE, 0, NULL, 0, &listener, 1), 0);
	close(listener);
	assert_true(next(b));
	assert_int_equal(b->f.type, FRAME_DONE);
	assert_false(next(b));
	c = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(connect(c, (struct sockaddr *)&a, sizeof a), 0);
	assert_int_equal(frame_send(c, FRAME_LIST, 0, NULL, 0, NULL, 0), 0);
	assert_int_equal(frame_receive(c, FROM_GUEST, &b->f, NULL, 0, NULL, NULL), 0);
	assert_int_equal(b->f.type, FRAME_DONE);
	close(c);
	assert_int_equal(kill(b->pid, SIGKILL), 0);
	assert_int_equal(end_box(b), -SIGKILL);
}

/* What has joined answers this, and goes on for a while. */
static pid_t joined_child(int control, uint32_t answer)
{
	struct zygote_header h = {answer, 1};
	char data[4096];
	pid_t pid = fork();

	if (pid == 0) {
		alarm(3);
		if (recv(control, data, sizeof data, 0) > 0 &&
		    send(control, &h, sizeof h, 0) == sizeof h)
			pause();
		_exit(0);
	}
	return pid;
}

/* It said that it runs, or something that nobody understands: whoever is told that it did not is told the truth. */
static void test_what_joined_in_vain_is_dead(void **state)
{
	static const uint32_t answers[] = {ZYGOTE_RUNNING, ZYGOTE_FORKED};
	struct kept *k = calloc(1, sizeof *k);

	(void)state;
	assert_non_null(k);
	for (size_t i = 0; i < ARRAY_SIZE(answers); i++) {
		char strings[] = "/\0python3\0-\0";
		struct start_record start = {.argc = 2};
		struct guest g = {.joined_fds = {-1, -1, -1, -1}}; /* its streams cannot be read */
		struct command m = {.in = -1};
		const char *what = NULL;
		int pair[2], status;

		assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
		g.joined = joined_child(pair[1], answers[i]);
		close(pair[1]);
		g.joined_fds[JOINED_CONTROL] = pair[0];
		k->g = &g;
		assert_int_equal(command_adopt(k, &m, &start, strings, sizeof strings - 1, &what),
				 answers[i] == ZYGOTE_RUNNING ? -EBADF : -EPROTO);
		assert_int_equal(waitpid(g.joined, &status, 0), g.joined);
		assert_true(WIFSIGNALED(status));
		assert_int_equal(WTERMSIG(status), SIGKILL);
	}
	free(k);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_what_joined_in_vain_is_dead),
		cmocka_unit_test(test_output),
		cmocka_unit_test(test_output_that_looks_like_frames),
		cmocka_unit_test(test_large_output),
		cmocka_unit_test(test_stdin),
		cmocka_unit_test(test_stdin_ends_before_it_began),
		cmocka_unit_test(test_credit_window),
		cmocka_unit_test(test_window_is_a_limit),
		cmocka_unit_test(test_stdin_nobody_reads),
		cmocka_unit_test(test_signal),
		cmocka_unit_test(test_killed),
		cmocka_unit_test(test_command_not_found),
		cmocka_unit_test(test_survivors),
		cmocka_unit_test(test_one_command_at_a_time),
		cmocka_unit_test(test_commands_in_turn),
		cmocka_unit_test(test_limit),
		cmocka_unit_test(test_put),
		cmocka_unit_test(test_put_follows_no_link),
		cmocka_unit_test(test_malformed_commands),
		cmocka_unit_test(test_malformed_frames),
		cmocka_unit_test(test_stream_ends),
		cmocka_unit_test(test_serve_refused),
		cmocka_unit_test(test_serve),
	};

	return cmocka_run_group_tests_name("guest", tests, NULL, NULL);
}
