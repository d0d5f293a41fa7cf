/* SPDX-License-Identifier: Apache-2.0 */
/*
 * load.c - one HTTP request again and again, over connections that are kept, with nothing of an interpreter in the times.
 *
 *	bench-load ADDRESS CLIENTS SECONDS COUNT GAP_US WANTED < REQUEST
 *
 * ADDRESS: a path, or 127.0.0.1's port. Each of CLIENTS processes sends REQUEST (bytes, whole) until SECONDS
 * are over or it has sent COUNT (0: no such limit), GAP_US after the answer before. One line for each answer: its
 * nanoseconds, its status, and 1 when WANTED is in it. Answers have a Content-Length.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ANSWER_MAX = 1 << 20 };

static char request[1 << 20], answer[ANSWER_MAX + 1];
static size_t request_size;

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static int connect_to(const char *address)
{
	struct sockaddr_un u = {.sun_family = AF_UNIX};
	struct sockaddr_in i = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	bool path = address[0] == '/';
	int fd = socket(path ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), r;

	if (path) {
		snprintf(u.sun_path, sizeof u.sun_path, "%s", address);
		r = connect(fd, (const struct sockaddr *)&u, sizeof u);
	} else {
		i.sin_port = htons((uint16_t)strtoul(address, NULL, 10));
		r = connect(fd, (const struct sockaddr *)&i, sizeof i);
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
	}
	if (r < 0) {
		fprintf(stderr, "bench-load: %s: %s\n", address, strerror(errno));
		exit(1);
	}
	return fd;
}

/* The whole answer is in the buffer: its size; 0: not yet. */
static size_t whole(size_t got)
{
	const char *end = memmem(answer, got, "\r\n\r\n", 4), *length;
	size_t size;

	if (!end)
		return 0;
	length = strcasestr(answer, "\r\ncontent-length:");
	size = (size_t)(end - answer) + 4 +
	       (length && length < end ? strtoul(length + 17, NULL, 10) : 0);
	return got >= size ? size : 0;
}

static void ask(int fd, const char *wanted)
{
	uint64_t began = now_ns();
	size_t got = 0;

	if (send(fd, request, request_size, MSG_NOSIGNAL) != (ssize_t)request_size) {
		printf("0\t0\t0\n");
		exit(1);
	}
	do {
		ssize_t n = recv(fd, answer + got, ANSWER_MAX - got, 0);

		if (n <= 0) {
			printf("0\t0\t0\n");
			exit(1);
		}
		got += (size_t)n;
		answer[got] = '\0';
	} while (!whole(got));
	printf("%llu\t%.3s\t%d\n", (unsigned long long)(now_ns() - began), answer + 9,
	       memmem(answer, got, wanted, strlen(wanted)) != NULL);
}

static void client(const char *address, double seconds, unsigned long count, unsigned gap_us,
		   const char *wanted)
{
	int fd = connect_to(address);
	uint64_t until = now_ns() + (uint64_t)(seconds * 1e9);

	for (unsigned long i = 0; (count == 0 || i < count) && now_ns() < until; i++) {
		ask(fd, wanted);
		if (gap_us)
			usleep(gap_us);
	}
	fflush(stdout);
	_exit(0);
}

int main(int argc, char **argv)
{
	unsigned clients;

	if (argc != 7) {
		fprintf(stderr,
			"usage: bench-load ADDRESS CLIENTS SECONDS COUNT GAP_US WANTED < REQUEST\n");
		return 2;
	}
	request_size = fread(request, 1, sizeof request, stdin);
	setvbuf(stdout, NULL, _IOLBF, 0); /* lines of several clients, each written whole */
	clients = (unsigned)strtoul(argv[2], NULL, 10);
	for (unsigned i = 0; i < clients; i++)
		if (fork() == 0)
			client(argv[1], strtod(argv[3], NULL), strtoul(argv[4], NULL, 10),
			       (unsigned)strtoul(argv[5], NULL, 10), argv[6]);
	while (wait(NULL) > 0)
		;
	return 0;
}
