/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nest_driver.c - a nest by hand: commands on standard input, one a line, words apart by tabs; answers on
 * standard output. For tests/service/test_nest.py and for measuring.
 *
 *	cell                 cell N PID                prepare a sandbox; its init's pid on the host
 *	join N ARG...        joined N PID              (PID as the nest counts), or: refused N WHY
 *	exec N ARG...        executed N            as any sandbox runs a command: by its init
 *	result N             result N SIGNALED STATUS SIZE, then SIZE bytes of output
 *	line N               line N TEXT               the next line of what has joined
 *	wait N               ended N STATUS CPU SIZE   then SIZE bytes of output
 *	end N                gone N
 *	pids                 pids KEEPER ZYGOTE
 *	give N               given N         what joins, as descriptors on GIVEN: seat, init, cgroup, tasks
 *	bench COUNT          figures
 *
 * For STANDIN "@python", the zygote is python3, with descriptors 10 to 14 as its 0 to 4, and nothing is asked
 * of it here.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "native/feed.h"
#include "native/nest.h"
#include "nest_standin.h"
#include "protocol/protocol.h"
#include "sandbox/places.h"
#include "sandbox/spec.h"

enum {
	WHY = sizeof(((struct err *)0)->text),
	CELLS_MAX = 4096,
	OUTPUT_MAX = 8 << 20,
	DEADLINE_MS = 60000,
	STREAMS = 10,
	GIVEN = 15
};

static struct nest nest;
static struct places places;
static struct spec spec, zygote_spec;
static int zygote_pidfd, requests;
static struct seated {
	struct cell cell;
	pid_t joined;
	int out;
	uint64_t prepared_us, fork_us;
} cells[CELLS_MAX];
static int cell_count;

__attribute__((noreturn)) static void die(const struct err *e)
{
	fprintf(stderr, "nest_driver: %s: %s\n", e->stage, e->text);
	nest_stop(&nest);
	exit(1);
}

static int number_of(const char *word)
{
	return word ? (int)strtol(word, NULL, 10) : -1;
}

static int host_pid(int pidfd)
{
	char path[64], text[512], *p;

	snprintf(path, sizeof path, "/proc/self/fdinfo/%d", pidfd);
	if (fd_read_file(AT_FDCWD, path, text, sizeof text) < 0 || !(p = strstr(text, "\nPid:")))
		return -1;
	return number_of(p + 5);
}

static void start_nest(void)
{
	struct err e = {0};

	if (places_find(&places, &e) < 0 || nest_start(&nest, &places, NULL, &zygote_spec, &e) < 0)
		die(&e);
}

static void start_python(void)
{
	static char *const argv[] = {(char *)(uintptr_t) "python3", (char *)(uintptr_t) "-", NULL};
	static char *const envp[] = {(char *)(uintptr_t) "HOME=/tmp",
				     (char *)(uintptr_t) "PATH=/usr/local/bin:/usr/bin:/bin",
				     (char *)(uintptr_t) "LANG=C.UTF-8", NULL};
	int fds[ZYGOTE_FDS_IN];
	struct err e = {0};

	for (int i = 0; i < ZYGOTE_FDS_IN; i++)
		fds[i] = STREAMS + (i < ZYGOTE_STDIO ? i : 0);
	start_nest();
	if (nest_zygote(&nest, &zygote_spec, "/usr/bin/python3", argv, envp, fds, &zygote_pidfd,
			&e) < 0)
		die(&e);
	for (int i = 0; i < ZYGOTE_STDIO; i++)
		close(STREAMS + i);
}

static void start(const char *standin)
{
	char *argv[] = {"standin", NULL}, *envp[] = {NULL};
	int p[2], null = open("/dev/null", O_RDWR | O_CLOEXEC), exe;
	struct err e = {0};

	exe = open(standin, O_RDONLY | O_CLOEXEC);
	if (exe < 0 || null < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, p) < 0) {
		perror(standin);
		exit(1);
	}
	const int fds[] = {null, null, 2, p[1], null, exe};

	start_nest();
	if (nest_zygote(&nest, &zygote_spec, "", argv, envp, fds, &zygote_pidfd, &e) < 0)
		die(&e);
	close(p[1]);
	close(exe);
	requests = p[0];
}

static struct seated *at(const char *word)
{
	int i = number_of(word);

	if (i < 0 || i >= cell_count) {
		fprintf(stderr, "nest_driver: no cell %s\n", word ? word : "");
		exit(2);
	}
	return &cells[i];
}

/* A sandbox cannot be joined while its init, as the sandbox's user, puts files: until all are read and it
 * sleeps as itself again. */
static int wait_for_files(const struct seated *s, struct err *e)
{
	uint64_t until = now_us() + DEADLINE_MS * 1000;
	char path[64], text[1024];
	int unread;

	snprintf(path, sizeof path, "/proc/%d/stat", host_pid(s->cell.pidfd));
	do {
		if (ioctl(s->cell.control, SIOCOUTQ, &unread) < 0 ||
		    fd_read_file(AT_FDCWD, path, text, sizeof text) < 0)
			return err_set(e, errno, "wait for the sandbox's files");
		if (unread == 0 && strstr(text, ") S "))
			return 0;
		usleep(1000);
	} while (now_us() < until);
	return err_set(e, ETIMEDOUT, "wait for the sandbox's files");
}

static int make(struct seated *s, struct err *e)
{
	uint64_t begun = now_us();

	*s = (struct seated){.out = -1};
	if (nest_cell(&nest, &spec, &(struct slot){.lock = -1}, &s->cell, e) < 0 ||
	    feed_inputs(s->cell.control, &spec, -1, e) < 0 ||
	    (spec.input_count && wait_for_files(s, e) < 0))
		return -1;
	s->prepared_us = now_us() - begun;
	return 0;
}

/* out: goes first, -1: does not. */
static int send_joining(int socket, const struct seated *s, void *data, size_t size, int out)
{
	int fds[1 + JOIN_FDS_MAX];
	union {
		char space[CMSG_SPACE(sizeof fds)];
		struct cmsghdr align;
	} control = {0};
	struct iovec iov = {data, size};
	struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control};
	size_t n = 0;
	struct cmsghdr *c;

	if (out >= 0)
		fds[n++] = out;
	fds[n++] = s->cell.seat;
	fds[n++] = s->cell.pidfd;
	if (s->cell.cgroup.dir >= 0)
		fds[n++] = s->cell.cgroup.dir;
	for (size_t i = 0; i < s->cell.task_count; i++)
		fds[n++] = s->cell.tasks[i];
	m.msg_controllen = CMSG_SPACE(n * sizeof(int));
	c = CMSG_FIRSTHDR(&m);
	*c = (struct cmsghdr){CMSG_LEN(n * sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
	memcpy(CMSG_DATA(c), fds, n * sizeof(int));
	return sendmsg(socket, &m, 0) < 0 ? -1 : 0;
}

static struct join_data join_data(const struct seated *s)
{
	return (struct join_data){s->cell.cgroup.dir >= 0, (uint32_t)s->cell.task_count};
}

static void give(const struct seated *s)
{
	struct join_data data = join_data(s);

	if (send_joining(GIVEN, s, &data, sizeof data, -1) < 0) {
		perror("give");
		exit(1);
	}
}

/* argv: what is left of the line. */
static int join(struct seated *s, char *argv, char why[WHY])
{
	struct standin_request *r = calloc(1, sizeof *r);
	struct standin_answer a;
	int p[2];

	if (!r || pipe2(p, O_CLOEXEC) < 0)
		exit(1);
	r->join = join_data(s);
	for (char *word = argv; word && r->argc < 60; r->argc++) {
		char *next = strchr(word, '\t');
		size_t n;

		if (next)
			*next++ = '\0';
		n = strlen(word) + 1;
		if (n > sizeof r->argv - r->strings)
			exit(2);
		memcpy(r->argv + r->strings, word, n);
		r->strings += (uint32_t)n;
		word = next;
	}
	if (send_joining(requests, s, r, sizeof *r, p[1]) < 0) {
		perror("send to the zygote");
		exit(1);
	}
	free(r);
	close(p[1]);
	if (recv(requests, &a, sizeof a, 0) != sizeof a) {
		fprintf(stderr, "nest_driver: the zygote is gone\n");
		exit(1);
	}
	if (a.pid < 0) {
		close(p[0]);
		memcpy(why, a.text, sizeof a.text);
		return -1;
	}
	s->joined = a.pid;
	s->out = p[0];
	s->fork_us = a.fork_us;
	return 0;
}

/* A command of the init's, with output by pipes of its own. */
static void execute(struct seated *s, char *argv)
{
	char payload[16384];
	struct exec_record exec = {.uid = spec.uid, .gid = spec.gid, .flags = EXEC_LAST};
	size_t size = sizeof exec + sizeof "/workspace", count = 3;
	int pipes[3] = {-1, -1, -1};
	struct frame f;

	memcpy(payload + sizeof exec, "/workspace", sizeof "/workspace");
	for (char *word; (word = strsep(&argv, "\t")); exec.argc++) {
		size_t n = strlen(word) + 1;

		if (n + 64 > sizeof payload - size)
			exit(2);
		memcpy(payload + size, word, n);
		size += n;
	}
	memcpy(payload + size, "HOME=/tmp", sizeof "HOME=/tmp");
	size += sizeof "HOME=/tmp";
	exec.envc = 1;
	memcpy(payload, &exec, sizeof exec);
	if (frame_send(s->cell.control, FRAME_EXEC, 0, payload, (uint32_t)size, NULL, 0) < 0 ||
	    frame_receive(s->cell.control, FROM_GUEST, &f, payload, sizeof payload, pipes, &count) <
		    0 ||
	    f.type != FRAME_STARTED || count != 3) {
		fprintf(stderr, "nest_driver: the command did not start\n");
		exit(1);
	}
	close(pipes[0]);
	close(pipes[2]);
	s->out = pipes[1];
	if (fcntl(s->out, F_SETFL, 0) < 0) /* init's ends never block */
		exit(1);
}

static void say_result(struct seated *s, int number)
{
	struct exited_record ended = {0};
	unsigned char payload[64];
	struct frame f = {0};
	size_t size = 0;
	char *text = NULL;

	if (fd_slurp(s->out, OUTPUT_MAX, &text, &size) < 0)
		size = 0;
	if (frame_receive(s->cell.control, FROM_GUEST, &f, payload, sizeof payload, NULL, NULL) <
		    0 ||
	    f.type != FRAME_EXITED || exited_record_decode(payload, f.size, &ended) < 0)
		ended.status = UINT32_MAX;
	printf("result\t%d\t%u\t%u\t%zu\n", number, ended.signaled, ended.status, size);
	fwrite(text, 1, size, stdout);
	free(text);
}

static void say_line(struct seated *s, int number)
{
	char text[4096];
	size_t n = 0;

	while (n + 1 < sizeof text && read(s->out, text + n, 1) == 1 && text[n] != '\n')
		n++;
	text[n] = '\0';
	printf("line\t%d\t%s\n", number, text);
}

static void say_end(struct seated *s, int number)
{
	struct nest_end end;
	size_t size = 0;
	char *text = NULL;
	int r = nest_wait(&nest, s->joined, DEADLINE_MS, &end);

	if (r < 0) {
		printf("lost\t%d\t%s\n", number, strerror(-r));
		return;
	}
	if (fd_slurp(s->out, OUTPUT_MAX, &text, &size) < 0)
		size = 0;
	printf("ended\t%d\t%u\t%llu\t%zu\n", number, end.status, (unsigned long long)end.cpu_us,
	       size);
	fwrite(text, 1, size, stdout);
	free(text);
	s->joined = 0;
}

static void end(struct seated *s)
{
	struct err e = {0};

	if (nest_end_cell(&nest, &s->cell, s->joined, &e) < 0)
		die(&e);
	fd_close(&s->out);
	s->joined = 0;
}

static int by_size(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static void say_figures(const char *what, uint64_t *v, size_t n)
{
	qsort(v, n, sizeof *v, by_size);
	printf("%s_us p50 %llu p95 %llu p99 %llu\n", what, (unsigned long long)v[n / 2],
	       (unsigned long long)v[n * 95 / 100], (unsigned long long)v[n * 99 / 100]);
}

/* Prepare, join with a child that says one line and leaves, end. */
static void bench(size_t n)
{
	enum { PREPARE, FORK, JOIN, END, PARTS };
	static const char *const names[] = {"prepare", "zygote_fork", "request_to_first_line",
					    "end"};
	uint64_t *v[PARTS];
	struct err e = {0};
	char why[WHY];

	for (int i = 0; i < PARTS; i++)
		if (!(v[i] = calloc(n, sizeof **v)))
			exit(1);
	for (size_t i = 0; i < n; i++) {
		struct seated s;
		uint64_t begun;
		char byte;

		if (make(&s, &e) < 0)
			die(&e);
		begun = now_us();
		if (join(&s, NULL, why) < 0 || read(s.out, &byte, 1) != 1) {
			fprintf(stderr, "nest_driver: %s\n", why);
			exit(1);
		}
		v[PREPARE][i] = s.prepared_us;
		v[FORK][i] = s.fork_us;
		v[JOIN][i] = now_us() - begun;
		begun = now_us();
		end(&s);
		v[END][i] = now_us() - begun;
	}
	for (int i = 0; i < PARTS; i++) {
		say_figures(names[i], v[i], n);
		free(v[i]);
	}
}

static void obey(char *line)
{
	char *rest = line, *word = strsep(&rest, "\t"), why[WHY] = "";
	struct err e = {0};

	if (strcmp(word, "cell") == 0) {
		if (make(&cells[cell_count], &e) < 0) {
			printf("failed\t%s\t%s\n", e.stage, e.text);
			fflush(stdout);
			return;
		}
		printf("cell\t%d\t%d\n", cell_count, host_pid(cells[cell_count].cell.pidfd));
		cell_count += cell_count < CELLS_MAX - 1;
	} else if (strcmp(word, "join") == 0) {
		struct seated *s = at(word = strsep(&rest, "\t"));

		if (join(s, rest, why) == 0)
			printf("joined\t%s\t%d\n", word, s->joined);
		else
			printf("refused\t%s\t%s\n", word, why);
	} else if (strcmp(word, "exec") == 0) {
		struct seated *s = at(word = strsep(&rest, "\t"));

		execute(s, rest);
		printf("executed\t%s\n", word);
	} else if (strcmp(word, "result") == 0) {
		say_result(at(rest), number_of(rest));
	} else if (strcmp(word, "line") == 0) {
		say_line(at(rest), number_of(rest));
	} else if (strcmp(word, "wait") == 0) {
		say_end(at(rest), number_of(rest));
	} else if (strcmp(word, "end") == 0) {
		end(at(rest));
		printf("gone\t%s\n", rest);
	} else if (strcmp(word, "give") == 0) {
		struct seated *s = at(rest);

		give(s);
		fd_close(&s->cell.seat);
		printf("given\t%s\n", rest);
	} else if (strcmp(word, "pids") == 0) {
		printf("pids\t%d\t%d\n", host_pid(nest.pidfd), host_pid(zygote_pidfd));
	} else if (strcmp(word, "bench") == 0) {
		bench((size_t)number_of(rest));
	} else {
		printf("what\n");
	}
	fflush(stdout);
}

static void make_spec(struct spec *s, int argc, char **argv)
{
	struct err e = {0};

	if (spec_init(s, &e) < 0)
		die(&e);
	for (int i = 0; i + 1 < argc; i += 2) {
		const struct option *o = option_find(argv[i]);

		if (!o || spec_set(s, o, argv[i + 1], &e) < 0)
			die(&e);
	}
	if (spec_finish_sandbox(s, &e) < 0)
		die(&e);
}

/* nest_driver STANDIN [OPTION VALUE]... */
int main(int argc, char **argv)
{
	static char line[16384];
	static char *for_zygote[] = {(char *)(uintptr_t) "memory", (char *)(uintptr_t) "1g",
				     (char *)(uintptr_t) "cpus", (char *)(uintptr_t) "2"};

	if (argc < 2)
		return 2;
	make_spec(&zygote_spec, 4, for_zygote);
	make_spec(&spec, argc - 2, argv + 2);
	if (strcmp(argv[1], "@python") == 0)
		start_python();
	else
		start(argv[1]);
	printf("ready\n");
	fflush(stdout);
	while (fgets(line, sizeof line, stdin)) {
		line[strcspn(line, "\n")] = '\0';
		obey(line);
	}
	for (int i = 0; i < cell_count; i++)
		if (cells[i].cell.pidfd >= 0)
			end(&cells[i]);
	nest_stop(&nest);
	return 0;
}
