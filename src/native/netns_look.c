/* SPDX-License-Identifier: Apache-2.0 */
/*
 * netns_look.c - see netns_look.h. For the tables of sockets (tcp, tcp6, udp, udp6, unix) stand the numbers of sockstat,
 * which are the namespace's own: "used" counts sockets of every family, "tw" those in TIME_WAIT. To read the tables
 * themselves walks the machine's hash tables and takes milliseconds.
 */
#include "native/netns_look.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char *const files[] = {"sockstat", "sockstat6", "snmp",         "snmp6",
				    "netstat",  "dev",       "ip6_flowlabel"};

/* These of sockstat's are the machine's: sockets allocated, pages of all, orphans of TCP (which count in "used" where
 * they are). */
static void forget_the_machine(char *text)
{
	static const char *const names[] = {" alloc ", " mem ", " orphan "};

	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		for (char *p = text; (p = strstr(p, names[i]));) {
			p += strlen(names[i]);
			for (; *p >= '0' && *p <= '9'; p++)
				*p = '#';
		}
}

/* Numbers of other lengths must not move what follows: each '#' run is one. */
static size_t squeeze(char *text)
{
	char *to = text;

	for (const char *p = text; *p; p++)
		if (*p != '#' || to == text || to[-1] != '#')
			*to++ = *p;
	*to = '\0';
	return (size_t)(to - text);
}

/* One file behind what is there; one that this kernel has not is empty, for all namespaces alike. */
static int add_file(const char *name, struct netns_look *l)
{
	char path[64], *text = l->text + l->size;
	size_t room = sizeof l->text - 1 - l->size, got = 0;
	ssize_t n;
	int fd;

	snprintf(path, sizeof path, "/proc/self/net/%s", name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? 0 : -errno;
	while ((n = read(fd, text + got, room - got)) > 0)
		got += (size_t)n;
	if (n < 0 || got == room)
		n = n < 0 ? -errno : -EFBIG;
	close(fd);
	if (n < 0)
		return (int)n;
	text[got] = '\0';
	if (strncmp(name, "sockstat", 8) == 0) {
		forget_the_machine(text);
		got = squeeze(text);
	}
	l->size += got;
	return 0;
}

int netns_look(int netns, int home, struct netns_look *ret)
{
	int r = 0;

	ret->size = 0;
	if (setns(netns, CLONE_NEWNET) < 0)
		return -errno;
	for (size_t i = 0; r == 0 && i < sizeof files / sizeof *files; i++)
		r = add_file(files[i], ret);
	if (setns(home, CLONE_NEWNET) < 0)
		_exit(1);
	if (r < 0)
		ret->size = 0;
	return r;
}

bool netns_looks_like(const struct netns_look *a, const struct netns_look *b)
{
	return a->size > 0 && a->size == b->size && memcmp(a->text, b->text, a->size) == 0;
}
