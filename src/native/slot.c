/* SPDX-License-Identifier: Apache-2.0 */
#include "native/slot.h"

#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/units.h"

/* Root's default block: above systemd's container range (it ends at 0x6fffffff), below the ids that
 * old software takes for negative. */
#define DEFAULT_BASE  0x70000000u
#define DEFAULT_COUNT 131072u
#define MAX_SLOTS     65536u

enum { PROBED_IN_ORDER = 8 };

static int parse_block(const char *block, uint32_t *base, uint32_t *count, struct err *e)
{
	char text[32];
	char *colon;
	uint64_t b, c;

	if (strlen(block) >= sizeof text)
		goto bad;
	memcpy(text, block, strlen(block) + 1);
	colon = strchr(text, ':');
	if (!colon)
		goto bad;
	*colon = '\0';
	if (parse_count(text, 65536, UINT32_MAX - 65536, &b) < 0 ||
	    parse_count(colon + 1, IDS_PER_SLOT, UINT32_MAX, &c) < 0 || b + c > UINT32_MAX)
		goto bad;
	*base = (uint32_t)b;
	*count = (uint32_t)c;
	return 0;
bad:
	return err_set(e, 0, "uid_range %.40s: give BASE:COUNT, with BASE at least 65536", block);
}

/* The first range of this user in /etc/subuid or /etc/subgid: lines of NAME_OR_UID:BASE:COUNT. */
static int find_sub_range(const char *path, uint32_t *base, uint32_t *count, struct err *e)
{
	_cleanup_free_ char *line = NULL;
	struct passwd entry, *me = NULL;
	char names[4096]; /* of it; a longer entry is found by its number only */
	char number[16];
	size_t room = 0;
	FILE *f = fopen(path, "re");
	int found = 0;

	if (getpwuid_r(geteuid(), &entry, names, sizeof names, &me) != 0)
		me = NULL;
	snprintf(number, sizeof number, "%u", geteuid());
	while (f && !found && getline(&line, &room, f) > 0) {
		char *colon = strchr(line, ':');

		if (!colon)
			continue;
		*colon = '\0';
		colon[1 + strcspn(colon + 1, "\n")] = '\0';
		if (strcmp(line, number) != 0 && (!me || strcmp(line, me->pw_name) != 0))
			continue;
		found = parse_block(colon + 1, base, count, e) == 0;
	}
	if (f)
		fclose(f);
	if (!found)
		return err_set(
			e, 0,
			"no ids for sandboxes: %s has no range for %s; add one with "
			"`sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 %s`",
			path, me ? me->pw_name : number, me ? me->pw_name : number);
	return 0;
}

int id_range_find(const struct places *places, const char *block, struct id_range *ret,
		  struct err *e)
{
	uint32_t uids = DEFAULT_COUNT, gids;

	ret->uid_base = ret->gid_base = DEFAULT_BASE;
	if (!places->rootless) {
		if (block && parse_block(block, &ret->uid_base, &uids, e) < 0)
			return -1;
		ret->gid_base = ret->uid_base;
		gids = uids;
	} else if (find_sub_range("/etc/subuid", &ret->uid_base, &uids, e) < 0 ||
		   find_sub_range("/etc/subgid", &ret->gid_base, &gids, e) < 0) {
		return -1;
	}
	ret->slots = (uids < gids ? uids : gids) / IDS_PER_SLOT;
	if (ret->slots > MAX_SLOTS)
		ret->slots = MAX_SLOTS;
	return 0;
}

int slot_try(const struct places *places, uint32_t number, int *ret_lock)
{
	char path[sizeof places->runtime + 32];
	_cleanup_close_ int fd = -1;
	struct stat st;

	snprintf(path, sizeof path, "%s/slots/%u", places->runtime, number);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return -errno;
	if (flock(fd, LOCK_EX | LOCK_NB) < 0)
		return -errno;
	/* A lock on a file that somebody has removed meanwhile locks nothing. */
	if (fstat(fd, &st) < 0 || st.st_nlink == 0)
		return -EWOULDBLOCK;
	*ret_lock = TAKE_FD(fd);
	return 0;
}

/* The folder of the locks, made if missing. It and its parent must be ours alone: whoever could remove a
 * lock could have two sandboxes share their ids. */
int slot_realm(const struct places *places, uint32_t *ret_realm, struct err *e)
{
	char path[sizeof places->runtime + 32];
	struct stat st, parent;
	int r = 0;

	snprintf(path, sizeof path, "%s/slots", places->runtime);
	if (lstat(path, &st) < 0) {
		r = make_private_dirs(path);
		if (r == 0 && lstat(path, &st) < 0)
			r = -errno;
	}
	if (r == 0 && lstat(places->runtime, &parent) < 0)
		r = -errno;
	if (r < 0)
		return err_set(e, -r, "make %s", path);
	if (!S_ISDIR(st.st_mode) || !S_ISDIR(parent.st_mode) || st.st_uid != geteuid() ||
	    parent.st_uid != geteuid() || (st.st_mode | parent.st_mode) & 022)
		return err_set(e, EPERM, "%s: others may write there: remove it", path);
	*ret_realm =
		(uint32_t)(st.st_ino * 0x9e3779b1u ^ (st.st_ino >> 32) ^ st.st_dev * 0x85ebca6bu);
	return 0;
}

struct slot slot_at(const struct id_range *range, uint32_t number, uint32_t realm, int lock)
{
	uint32_t uid = range->uid_base + number * IDS_PER_SLOT;
	uint32_t gid = range->gid_base + number * IDS_PER_SLOT;

	return (struct slot){.lock = lock,
			     .number = number,
			     .realm = realm,
			     .root_uid = uid,
			     .root_gid = gid,
			     .user_uid = uid + 1,
			     .user_gid = gid + 1};
}

/* Which slot the nth try is for, -1: enough of that. The first few by their order, then by chance among twice as many
 * after every second try: so few files are made, and where thousands are in use not each of them is asked. */
static int64_t probe(uint32_t n, uint32_t count)
{
	uint32_t window, chance;

	if (n < PROBED_IN_ORDER)
		return n < count ? (int64_t)n : -1;
	window = PROBED_IN_ORDER << (n - PROBED_IN_ORDER) / 2; /* soon more than MAX_SLOTS */
	if (window > count || getrandom(&chance, sizeof chance, 0) != sizeof chance)
		return -1;
	return chance % window;
}

/* By probing, and when that finds none by asking all. */
static int find_free(const struct places *places, const struct id_range *range, uint32_t from,
		     uint32_t *ret_number, int *ret_lock)
{
	int r = -EWOULDBLOCK;
	int64_t n;

	for (uint32_t i = 0; r == -EWOULDBLOCK; i++) {
		n = from < range->slots ? probe(i, range->slots - from) : -1;
		if (n < 0)
			break;
		*ret_number = from + (uint32_t)n;
		r = slot_try(places, *ret_number, ret_lock);
	}
	for (uint32_t i = from; r == -EWOULDBLOCK && i < range->slots; i++) {
		*ret_number = i;
		r = slot_try(places, i, ret_lock);
	}
	return r;
}

int slot_acquire(const struct places *places, const struct id_range *range, uint32_t from,
		 struct slot *ret, struct err *e)
{
	uint32_t realm, number = from;
	int r;

	if (slot_realm(places, &realm, e) < 0)
		return -1;
	r = find_free(places, range, from, &number, &ret->lock);
	if (r == -EWOULDBLOCK)
		return err_set(
			e, 0,
			"all %u slots are in use: wait for a run to end, or give a larger uid_range",
			range->slots);
	if (r < 0)
		return err_set(e, -r, "lock %s/slots/%u", places->runtime, number);
	*ret = slot_at(range, number, realm, ret->lock);
	return 0;
}

void slot_release(struct slot *s)
{
	fd_close(&s->lock);
}
