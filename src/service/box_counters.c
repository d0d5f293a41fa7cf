/* SPDX-License-Identifier: Apache-2.0 */
/* box_counters.c - a sandbox's counters, read where everybody may. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "service/box.h"

/* How many sandboxes' counters stay open between two of their commands. */
#define COUNTERS_OPEN 64

/* The number behind `key ` in lines of text, or the first number when key is "". */
static bool find_count(const char *text, const char *key, uint64_t *ret)
{
	size_t n = strlen(key);

	for (const char *p = text; p && *p; p = strchr(p, '\n') ? strchr(p, '\n') + 1 : NULL)
		if (strncmp(p, key, n) == 0) {
			*ret = strtoull(p + n, NULL, 10);
			return true;
		}
	return false;
}

bool box_oom_count(struct box *b, uint64_t *ret)
{
	struct service *v = b->service;
	char text[1024];
	ssize_t n;
	int fd = b->memory_events;

	if (fd < 0 && b->created.memory_events[0])
		fd = open(b->created.memory_events, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? -1 : pread(fd, text, sizeof text - 1, 0);
	if (fd >= 0 && b->memory_events < 0) {
		if (v->counters_open < COUNTERS_OPEN) {
			v->counters_open++;
			b->memory_events = fd;
		} else {
			close(fd);
		}
	}
	if (n < 0)
		return false;
	text[n] = '\0';
	return find_count(text, "oom_kill ", ret);
}

void box_close_counters(struct box *b)
{
	if (b->memory_events < 0)
		return;
	b->service->counters_open--;
	fd_close(&b->memory_events);
}

bool box_cpu_us(const struct box *b, uint64_t *ret)
{
	char text[1024];

	if (!b->created.cpu_usage[0] ||
	    fd_read_file(AT_FDCWD, b->created.cpu_usage, text, sizeof text) < 0)
		return false;
	if (strstr(b->created.cpu_usage, "cpuacct"))
		return find_count(text, "", ret) && ((*ret /= 1000), true);
	return find_count(text, "usage_usec ", ret);
}
