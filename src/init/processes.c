/* SPDX-License-Identifier: Apache-2.0 */
/*
 * processes.c - what is going on inside, in a worker (worker.h): processes, space, ports.
 *
 * /proc shows the sandbox user what it may inspect: its own processes, except those that have made
 * themselves undumpable (workers are among them).
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "init/worker.h"

enum { LINE_MAX_BYTES = 510 };

static ssize_t read_of(pid_t pid, const char *file, char *text, size_t size)
{
	char path[64];
	ssize_t n;
	int fd;

	snprintf(path, sizeof path, "/proc/%d/%s", pid, file);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	n = read(fd, text, size - 1);
	close(fd);
	if (n >= 0)
		text[n] = '\0';
	return n;
}

/* The number at *p, which is left behind it. sscanf would be a sixth of init. */
static uint64_t take_number(const char **p)
{
	uint64_t n = 0;

	while (**p == ' ')
		(*p)++;
	if (**p == '-')
		(*p)++;
	while (**p >= '0' && **p <= '9')
		n = n * 10 + (uint64_t)(*(*p)++ - '0');
	return n;
}

/* The fields of /proc/PID/stat behind the name, which may hold anything: proc(5) counts them from 1, the
 * state is the third. */
static bool read_stat(pid_t pid, struct process_record *r)
{
	enum { PARENT = 4, USER_TICKS = 14, KERNEL_TICKS, THREADS = 20, TICKS_A_SECOND = 100 };
	char text[1024];
	const char *p;
	uint64_t field[THREADS + 1] = {0};

	if (read_of(pid, "stat", text, sizeof text) <= 0 || !(p = strrchr(text, ')')) ||
	    strlen(p) < 4)
		return false;
	r->state = (unsigned char)p[2];
	p += 3;
	for (int i = PARENT; i <= THREADS; i++)
		field[i] = take_number(&p);
	r->parent = (uint32_t)field[PARENT];
	r->threads = (uint32_t)field[THREADS];
	r->cpu_ms = (field[USER_TICKS] + field[KERNEL_TICKS]) * 1000 / TICKS_A_SECOND;
	return true;
}

/* Arguments parted by spaces; a process without any (a zombie) shows its name in brackets. */
static size_t read_line(pid_t pid, char *line)
{
	ssize_t n = read_of(pid, "cmdline", line, LINE_MAX_BYTES + 1);

	while (n > 0 && line[n - 1] == '\0')
		n--;
	if (n <= 0) {
		char name[64];

		n = read_of(pid, "comm", name, sizeof name);
		while (n > 0 && name[n - 1] == '\n')
			name[--n] = '\0';
		n = snprintf(line, LINE_MAX_BYTES, "[%s]", n > 0 ? name : "?");
	}
	for (ssize_t i = 0; i < n; i++) {
		unsigned char c = (unsigned char)line[i];

		line[i] = c == '\0' ? ' ' : c < 0x20 || c == 0x7f ? '?' : (char)c;
	}
	line[n] = '\0';
	return (size_t)n + 1;
}

static void send_process(struct worker *w, pid_t pid)
{
	static char payload[sizeof(struct process_record) + LINE_MAX_BYTES + 2];
	struct process_record r = {.pid = (uint32_t)pid};
	char text[128], path[32];
	struct stat st;
	pid_t session;
	size_t n;

	snprintf(path, sizeof path, "/proc/%d", pid);
	session = getsid(pid);
	if (stat(path, &st) < 0 || session < 0 || !read_stat(pid, &r))
		return; /* gone meanwhile */
	r.uid = st.st_uid;
	r.number = commands_session(w->kept, session);
	if (read_of(pid, "statm", text, sizeof text) > 0) {
		const char *at = text;

		take_number(&at);
		r.rss_bytes = take_number(&at) * (uint64_t)sysconf(_SC_PAGESIZE);
	}
	memcpy(payload, &r, sizeof r);
	n = read_line(pid, payload + sizeof r);
	worker_send(w, FRAME_PROCESS, 0, payload, (uint32_t)(sizeof r + n));
}

int work_ps(struct worker *w)
{
	DIR *proc = opendir("/proc");
	struct dirent *e;

	if (!proc)
		return worker_failed(w, errno, "/proc");
	while ((e = readdir(proc))) {
		pid_t pid = (pid_t)strtol(e->d_name, NULL, 10);

		if (e->d_name[0] >= '1' && e->d_name[0] <= '9' && pid > 1 && pid != getpid())
			send_process(w, pid);
	}
	return 0;
}

static void send_room(struct worker *w, const char *place)
{
	static char payload[sizeof(struct room_record) + PLAN_PATH];
	size_t size = strlen(place) + 1;
	struct room_record r;
	struct statvfs fs;

	if (size > PLAN_PATH || statvfs(place, &fs) < 0)
		return;
	r = (struct room_record){
		.size_bytes = (uint64_t)fs.f_blocks * fs.f_frsize,
		.used_bytes = (uint64_t)(fs.f_blocks - fs.f_bfree) * fs.f_frsize,
		.inodes = fs.f_files,
		.used_inodes = fs.f_files - fs.f_ffree,
	};
	memcpy(payload, &r, sizeof r);
	memcpy(payload + sizeof r, place, size);
	worker_send(w, FRAME_ROOM, 0, payload, (uint32_t)(sizeof r + size));
}

int work_space(struct worker *w)
{
	const struct plan *p = w->kept->g->plan;
	bool workspace = false;

	for (uint32_t i = 0; p && i < p->tmpfs_count; i++) {
		send_room(w, p->tmpfs[i].path);
		workspace = workspace || strcmp(p->tmpfs[i].path, "/workspace") == 0;
	}
	if (!workspace)
		send_room(w, "/workspace");
	return 0;
}

/* ------------------------------------------------------------------------------------------- PORTS */

enum { PORTS_LISTED_MAX = 256, LISTENING = 0x0a /* TCP_LISTEN */ };

/* Found by the kernel's table first, then looked for among the processes' descriptors. */
static struct listener {
	struct listening_record record;
	uint64_t inode;
} listeners[PORTS_LISTED_MAX];
static size_t listener_count;

static uint32_t take_hex(const char **p)
{
	uint32_t n = 0;

	for (;; (*p)++) {
		char c = **p;

		if (c >= '0' && c <= '9')
			n = n << 4 | (uint32_t)(c - '0');
		else if (c >= 'A' && c <= 'F')
			n = n << 4 | (uint32_t)(c - 'A' + 10);
		else
			return n;
	}
}

/* "SLOT: ADDRESS:PORT ADDRESS:PORT STATE QUEUES TIMER RETRANSMITS UID TIMEOUT INODE ..." (proc_pid_net(5)): an address
 * is one or four words, each as the machine reads it. */
static void take_listener(const struct guest *g, const char *p, uint32_t family)
{
	enum { FIELDS_TO_UID = 3, FIELDS_TO_INODE = 2 };
	struct listener l = {.record.family = family};
	uint32_t uid;

	p = strchr(p, ':');
	if (!p || listener_count == PORTS_LISTED_MAX)
		return;
	p += 1 + strspn(p + 1, " ");
	for (uint32_t i = 0; i < (family == 4 ? 1 : 4); i++) {
		char word[9] = "";
		const char *at = word;
		uint32_t value;

		memcpy(word, p, strnlen(p, 8));
		p += strlen(word);
		value = take_hex(&at);
		memcpy(l.record.address + 4 * i, &value, sizeof value);
	}
	if (*p++ != ':')
		return;
	l.record.port = take_hex(&p);
	p += strspn(p, " ");
	p += strcspn(p, " "); /* the other side's */
	p += strspn(p, " ");
	if (take_hex(&p) != LISTENING)
		return;
	for (int i = 0; i < FIELDS_TO_UID; i++) {
		p += strspn(p, " ");
		p += strcspn(p, " ");
	}
	uid = (uint32_t)take_number(&p);
	take_number(&p);
	l.inode = take_number(&p);
	if (uid == g->uid && l.record.port >= 1 && l.record.port <= 65535)
		listeners[listener_count++] = l;
}

/* Line by line, whatever its length: a table of many connections is long. */
static bool read_table(const struct guest *g, const char *path, uint32_t family)
{
	static char text[16384];
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t filled = 0;
	ssize_t n;

	if (fd < 0)
		return errno == ENOENT; /* a kernel without IPv6 */
	while ((n = read(fd, text + filled, sizeof text - 1 - filled)) > 0) {
		char *line = text, *end;

		text[filled += (size_t)n] = '\0';
		for (; (end = strchr(line, '\n')); line = end + 1) {
			*end = '\0';
			take_listener(g, line, family);
		}
		filled -= (size_t)(line - text);
		if (filled == sizeof text - 1) /* no line of the kernel's is so long */
			filled = 0;
		memmove(text, line, filled);
	}
	close(fd);
	return n == 0;
}

/* "socket:[INODE]" */
static void take_descriptor(const struct kept *k, pid_t pid, const char *link)
{
	const char *p = link + sizeof "socket:[" - 1;
	uint64_t inode;

	if (strncmp(link, "socket:[", sizeof "socket:[" - 1) != 0)
		return;
	inode = take_number(&p);
	for (size_t i = 0; i < listener_count; i++) {
		struct listening_record *r = &listeners[i].record;

		if (listeners[i].inode != inode || r->pid)
			continue;
		r->pid = (uint32_t)pid;
		r->number = commands_session(k, getsid(pid));
	}
}

static void look_at_descriptors(const struct kept *k, pid_t pid)
{
	char path[64], link[64];
	struct dirent *e;
	DIR *fds;

	snprintf(path, sizeof path, "/proc/%d/fd", pid);
	fds = opendir(path);
	while (fds && (e = readdir(fds))) {
		ssize_t n = readlinkat(dirfd(fds), e->d_name, link, sizeof link - 1);

		if (n <= 0)
			continue;
		link[n] = '\0';
		take_descriptor(k, pid, link);
	}
	if (fds)
		closedir(fds);
}

static void send_listener(struct worker *w, const struct listener *l)
{
	static char payload[sizeof(struct listening_record) + LINE_MAX_BYTES + 2];
	size_t n = 1;

	memcpy(payload, &l->record, sizeof l->record);
	payload[sizeof l->record] = '\0';
	if (l->record.pid)
		n = read_line((pid_t)l->record.pid, payload + sizeof l->record);
	worker_send(w, FRAME_LISTENING, 0, payload, (uint32_t)(sizeof l->record + n));
}

int work_ports(struct worker *w)
{
	const struct guest *g = w->kept->g;
	DIR *proc = opendir("/proc");
	struct dirent *e;

	if (!proc || !read_table(g, "/proc/self/net/tcp", 4) ||
	    !read_table(g, "/proc/self/net/tcp6", 6))
		return worker_failed(w, errno, "/proc");
	while (listener_count > 0 && (e = readdir(proc)))
		if (e->d_name[0] >= '1' && e->d_name[0] <= '9')
			look_at_descriptors(w->kept, (pid_t)strtol(e->d_name, NULL, 10));
	for (size_t i = 0; i < listener_count; i++)
		send_listener(w, &listeners[i]);
	return 0;
}
