/* SPDX-License-Identifier: Apache-2.0 */
/* http_load.c - one kept-alive connection, one small request at a time: http-load SOCKET COUNT prints
 * requests per second and the median and 99th percentile of the time of one, in microseconds. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
	static const char text[] = "GET /collect HTTP/1.1\r\nHost: x\r\nAccept: */*\r\n\r\n";
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	size_t count = argc > 2 ? strtoul(argv[2], NULL, 10) : 0;
	double *took = calloc(count + 1, sizeof *took), begin = now();

	if (!count || !took || fd < 0)
		return 2;
	snprintf(a.sun_path, sizeof a.sun_path, "%s", argv[1]);
	if (connect(fd, (void *)&a, sizeof a) < 0) {
		perror(argv[1]);
		return 1;
	}
	for (size_t i = 0; i < count; i++) {
		char answer[1024];
		double start = now();
		ssize_t n = send(fd, text, sizeof text - 1, 0);

		if (n > 0)
			n = recv(fd, answer, sizeof answer, 0);
		if (n < 12 || memcmp(answer, "HTTP/1.1 200", 12) != 0)
			return 1;
		took[i] = now() - start;
	}
	begin = now() - begin;
	qsort(took, count, sizeof *took, by_size);
	printf("%.0f requests/s, p50 %.1f us, p99 %.1f us\n", (double)count / begin * 1e6,
	       took[count / 2], took[count * 99 / 100]);
	free(took);
	close(fd);
	return 0;
}
