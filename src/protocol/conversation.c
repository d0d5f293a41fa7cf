/* SPDX-License-Identifier: Apache-2.0 */
/*
 * conversation.c - what comes from inside a kept sandbox, checked.
 *
 * Every value has the range that init gives it; anything else is a broken or taken-over init, and ends
 * the conversation. Nothing is corrected, so that what passes is what was sent.
 */
#include "protocol/conversation.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>

_Static_assert(sizeof(struct start_record) == 88, "start_record is packed");
_Static_assert(sizeof(struct attach_record) == 24, "attach_record is packed");
_Static_assert(sizeof(struct kill_record) == 12, "kill_record is packed");
_Static_assert(sizeof(struct resize_record) == 8, "resize_record is packed");
_Static_assert(sizeof(struct begun_record) == 8, "begun_record is packed");
_Static_assert(sizeof(struct offset_record) == 16, "offset_record is packed");
_Static_assert(sizeof(struct ended_record) == 88, "ended_record is packed");
_Static_assert(sizeof(struct command_record) == 168, "command_record is packed");
_Static_assert(sizeof(struct process_record) == 40, "process_record is packed");
_Static_assert(sizeof(struct listening_record) == 32, "listening_record is packed");
_Static_assert(sizeof(struct room_record) == 32, "room_record is packed");
_Static_assert(sizeof(struct read_record) == 16, "read_record is packed");
_Static_assert(sizeof(struct write_record) == 8, "write_record is packed");
_Static_assert(sizeof(struct entry_record) == 32, "entry_record is packed");

enum {
	PIDS_MAX = 1 << 22, /* PID_MAX_LIMIT of linux/threads.h */
	CHILD_NAME_MAX = 255,
	PATH_BYTES_MAX = 4095,
	MOST_ERRNO = 4095, /* MAX_ERRNO of linux/err.h */
	LINE_BYTES_MAX = 511,
	FLAGS = START_PTY | START_STDIN | START_ATTACH | KEEP_HEAD | KEEP_TAIL | KEEP_LOSSLESS |
		START_WAITS | START_JOINED,
	OF_COMMAND = FLAGS | INPUT_IS_CUT,
};
#define KEPT_MAX (8u << 20)

static bool is_pid(uint32_t pid)
{
	return pid >= 1 && pid <= PIDS_MAX;
}

/* Exactly one string without control characters fills what is left of the payload. */
static const char *only_line(const void *payload, uint32_t size, size_t at, size_t most)
{
	const char *line = (const char *)payload + at;

	if (size <= at || size - at > most + 1 || line[size - at - 1] != '\0')
		return NULL;
	for (size_t i = 0; i + 1 < size - at; i++)
		if ((unsigned char)line[i] < 0x20 || line[i] == 0x7f)
			return NULL;
	return line;
}

int begun_record_decode(const void *payload, uint32_t size, struct begun_record *ret)
{
	struct begun_record r;

	if (size != sizeof r)
		return -EPROTO;
	memcpy(&r, payload, sizeof r);
	if (r.number < 1 || !is_pid(r.pid))
		return -EPROTO;
	*ret = r;
	return 0;
}

int offset_record_decode(const void *payload, uint32_t size, struct offset_record *ret)
{
	struct offset_record r;

	if (size != sizeof r)
		return -EPROTO;
	memcpy(&r, payload, sizeof r);
	if ((r.stream != 1 && r.stream != 2) || r.zero || r.offset > INT64_MAX)
		return -EPROTO;
	*ret = r;
	return 0;
}

static bool is_end(const struct ended_record *r)
{
	if (r->signaled > 1 || r->core > r->signaled || r->survivors > 1 || r->timed_out > 1 ||
	    r->alone > 1 || r->full > (FULL_DISK | FULL_INODES) || (r->alone && r->survivors) ||
	    r->wall_us > INT64_MAX || r->cpu_us > INT64_MAX)
		return false;
	if (r->signaled ? r->status < 1 || r->status > 64 : r->status > 255)
		return false;
	for (int i = 0; i < 2; i++)
		if (r->bytes[i] > INT64_MAX || r->kept[i] > KEPT_MAX || r->first[i] > r->bytes[i] ||
		    r->kept[i] > r->bytes[i] - r->first[i])
			return false;
	return true;
}

int ended_record_decode(const void *payload, uint32_t size, struct ended_record *ret)
{
	struct ended_record r;

	if (size != sizeof r)
		return -EPROTO;
	memcpy(&r, payload, sizeof r);
	if (!is_end(&r))
		return -EPROTO;
	*ret = r;
	return 0;
}

/* Printable, and nothing behind its end. */
static bool is_tag(const char tag[TAG_SIZE])
{
	size_t n = strnlen(tag, TAG_SIZE);

	if (n == TAG_SIZE)
		return false;
	for (size_t i = 0; i < TAG_SIZE; i++)
		if (i < n ? tag[i] < 0x20 || tag[i] >= 0x7f : tag[i] != '\0')
			return false;
	return true;
}

int command_record_decode(const void *payload, uint32_t size, struct command_record *ret)
{
	static const struct ended_record none;
	struct command_record r;
	uint32_t keep;

	if (size != sizeof r)
		return -EPROTO;
	memcpy(&r, payload, sizeof r);
	keep = r.flags & (KEEP_HEAD | KEEP_TAIL | KEEP_LOSSLESS);
	if (!is_tag(r.tag) || r.number < 1 || !is_pid(r.pid) || r.flags & ~(uint32_t)OF_COMMAND ||
	    keep == 0 || keep & (keep - 1) || r.running > 1 || r.started_ms > INT64_MAX ||
	    r.bytes[0] > INT64_MAX || r.bytes[1] > INT64_MAX)
		return -EPROTO;
	if (r.running ? memcmp(&r.ended, &none, sizeof none) != 0
		      : !is_end(&r.ended) || r.ended.bytes[0] != r.bytes[0] ||
				r.ended.bytes[1] != r.bytes[1])
		return -EPROTO;
	*ret = r;
	return 0;
}

int process_record_decode(const void *payload, uint32_t size, struct process_record *ret,
			  const char **ret_line)
{
	struct process_record r;
	const char *line = only_line(payload, size, sizeof r, LINE_BYTES_MAX);

	if (!line)
		return -EPROTO;
	memcpy(&r, payload, sizeof r);
	if (!is_pid(r.pid) || r.parent > PIDS_MAX || r.threads > PIDS_MAX || r.cpu_ms > INT64_MAX ||
	    r.rss_bytes > INT64_MAX)
		return -EPROTO;
	if (!(r.state >= 'A' && r.state <= 'Z') && !(r.state >= 'a' && r.state <= 'z'))
		return -EPROTO;
	*ret = r;
	*ret_line = line;
	return 0;
}

int listening_record_decode(const void *payload, uint32_t size, struct listening_record *ret,
			    const char **ret_line)
{
	static const uint8_t zero[12];
	struct listening_record r;
	const char *line = only_line(payload, size, sizeof r, LINE_BYTES_MAX);

	if (!line)
		return -EPROTO;
	memcpy(&r, payload, sizeof r);
	if ((r.family != 4 && r.family != 6) || r.port < 1 || r.port > 65535 || r.pid > PIDS_MAX)
		return -EPROTO;
	if (r.family == 4 && memcmp(r.address + 4, zero, sizeof zero) != 0)
		return -EPROTO;
	if (r.pid == 0 && (*line || r.number))
		return -EPROTO;
	*ret = r;
	*ret_line = line;
	return 0;
}

int room_record_decode(const void *payload, uint32_t size, struct room_record *ret,
		       const char **ret_path)
{
	struct room_record r;
	const char *path = only_line(payload, size, sizeof r, PATH_BYTES_MAX);

	if (!path || path[0] != '/')
		return -EPROTO;
	memcpy(&r, payload, sizeof r);
	if (r.size_bytes > INT64_MAX || r.used_bytes > r.size_bytes || r.inodes > INT64_MAX ||
	    r.used_inodes > r.inodes)
		return -EPROTO;
	*ret = r;
	*ret_path = path;
	return 0;
}

static bool is_child_name(const char *name, size_t size)
{
	if (size < 1 || size > CHILD_NAME_MAX || memchr(name, '/', size))
		return false;
	return !(name[0] == '.' && (size == 1 || (size == 2 && name[1] == '.')));
}

static bool is_name(const char *name, enum entry_kind kind)
{
	size_t size = strlen(name);

	if (kind == ENTRY_STAT)
		return size >= 1 && size <= PATH_BYTES_MAX;
	if (kind == ENTRY_CHILD)
		return is_child_name(name, size);
	if (size > PATH_BYTES_MAX)
		return false;
	for (;;) { /* every component */
		size_t n = strcspn(name, "/");

		if (!is_child_name(name, n))
			return false;
		if (!name[n])
			return true;
		name += n + 1;
	}
}

static bool is_mode(uint32_t mode, enum entry_kind kind)
{
	if (mode & ~(uint32_t)(S_IFMT | 07777))
		return false;
	switch (mode & S_IFMT) {
	case S_IFREG:
	case S_IFDIR:
	case S_IFLNK:
		return true;
	case S_IFIFO:
	case S_IFSOCK:
	case S_IFCHR:
	case S_IFBLK:
		return kind != ENTRY_BELOW;
	default:
		return false;
	}
}

int entry_record_decode(const void *payload, uint32_t size, enum entry_kind kind,
			struct entry_record *ret, const char **ret_name, const char **ret_target)
{
	const char *name = (const char *)payload + sizeof(struct entry_record), *target;
	const char *end = (const char *)payload + size;
	struct entry_record r;

	if (size < sizeof r + 2 || end[-1] != '\0')
		return -EPROTO;
	memcpy(&r, payload, sizeof r);
	target = name + strlen(name) + 1; /* ends inside: the last byte is NUL */
	if (target >= end || target + strlen(target) + 1 != end)
		return -EPROTO;
	if (!is_mode(r.mode, kind) || r.zero || r.size_bytes > INT64_MAX || !is_name(name, kind))
		return -EPROTO;
	if (!S_ISLNK(r.mode) == (*target != '\0') || strlen(target) > PATH_BYTES_MAX)
		return -EPROTO;
	*ret = r;
	*ret_name = name;
	*ret_target = target;
	return 0;
}

int skipped_decode(const void *payload, uint32_t size, int *ret_errno, const char **ret_path)
{
	const char *path = (const char *)payload + sizeof(uint32_t);
	uint32_t number;

	if (size < sizeof number + 2 || path[size - sizeof number - 1] != '\0' ||
	    strlen(path) != size - sizeof number - 1)
		return -EPROTO;
	memcpy(&number, payload, sizeof number);
	if (number == 0 || number > MOST_ERRNO || !is_name(path, ENTRY_BELOW))
		return -EPROTO;
	*ret_errno = (int)number;
	*ret_path = path;
	return 0;
}

int watch_event_decode(const void *payload, uint32_t size, enum watch_event *ret,
		       const char **ret_name)
{
	const char *name = (const char *)payload + sizeof(uint32_t);
	uint32_t number;

	if (size < sizeof number + 2 || name[size - sizeof number - 1] != '\0' ||
	    strlen(name) != size - sizeof number - 1)
		return -EPROTO;
	memcpy(&number, payload, sizeof number);
	if (number < WATCH_CREATE || number > WATCH_OVERFLOW)
		return -EPROTO;
	if (strcmp(name, ".") != 0 && !is_child_name(name, strlen(name)))
		return -EPROTO;
	*ret = (enum watch_event)number;
	*ret_name = name;
	return 0;
}
