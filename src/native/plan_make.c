/* SPDX-License-Identifier: Apache-2.0 */
#include "native/plan_make.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/hex.h"
#include "base/landlock.h"
#include "native/native.h"

/* Files the code may have open; more than any interpreter needs, small enough that kernel memory for
 * them stays within the memory limit. */
#define OPEN_FILES    1024
#define FILE_SIZE_MIN (1ull << 30)

/* 128 random bits behind a prefix: ids cannot be guessed. */
int plan_id(char *id, size_t size, const char *prefix, struct err *e)
{
	unsigned char random[16];
	size_t n = strlen(prefix);

	if (getrandom(random, sizeof random, 0) != sizeof random)
		return err_set(e, errno, "get random bytes");
	if (n + 2 * sizeof random >= size)
		return err_set(e, ENAMETOOLONG, "make an id");
	memcpy(id, prefix, n);
	hex_encode(random, sizeof random, id + n);
	return 0;
}

static void plan_rlimits(struct plan *p, const struct spec *s)
{
	uint64_t largest = FILE_SIZE_MIN;

	for (size_t i = 0; i < s->tmpfs_count; i++)
		if (s->tmpfs[i].size_bytes > largest)
			largest = s->tmpfs[i].size_bytes;
	for (size_t i = 0; i < PLAN_RLIMITS; i++)
		p->rlimit[i] = UINT64_MAX;
	/* Not 0: 1 is the value that never starts a pipe core_pattern. */
	p->rlimit[RLIMIT_CORE] = 1;
	p->rlimit[RLIMIT_MEMLOCK] = 0;
	p->rlimit[RLIMIT_MSGQUEUE] = 0;
	p->rlimit[RLIMIT_NICE] = 0;
	p->rlimit[RLIMIT_RTPRIO] = 0;
	p->rlimit[RLIMIT_NOFILE] = OPEN_FILES;
	p->rlimit[RLIMIT_FSIZE] = largest;
	p->rlimit[RLIMIT_SIGPENDING] = 256;
	/* Behind our own clock, and per process: soft, then hard a second later. */
	if (s->cpu_time_us != SPEC_UNLIMITED)
		p->rlimit[RLIMIT_CPU] = s->cpu_time_us / 1000000 + 3;
	/* Above the pids cgroup's limit, so that the one with a counter is met first. */
	p->rlimit[RLIMIT_NPROC] = s->pids_limit + 8;
}

#ifdef CLOCHE_MUTATION
static void plan_mutation(struct plan *p)
{
	const char *off = getenv("CLOCHE_OFF");

	if (off)
		snprintf(p->off, sizeof p->off, "%s", off);
}
#else
static void plan_mutation(struct plan *p)
{
	(void)p;
}
#endif

static void plan_tmpfs(struct plan *p, const struct spec *s, bool has_disk)
{
	for (size_t i = 0; i < s->tmpfs_count; i++) {
		struct plan_tmpfs *t = &p->tmpfs[p->tmpfs_count];

		if (has_disk && strcmp(s->tmpfs[i].path, "/workspace") == 0)
			continue;
		p->tmpfs_count++;
		memcpy(t->path, s->tmpfs[i].path, sizeof t->path);
		t->size_bytes = s->tmpfs[i].size_bytes;
		t->inodes = s->tmpfs[i].inodes;
		t->exec = s->tmpfs[i].exec;
		t->owned = strcmp(t->path, "/dev/shm") != 0;
		/* /dev/shm can be used by name, not listed. */
		t->mode = t->owned ? strcmp(t->path, "/tmp") == 0 ? 01777 : 0755 : 01733;
	}
}

int plan_make(struct plan *p, const struct places *places, const struct spec *s,
	      const struct slot *slot, const struct image *image, bool has_disk, struct err *e)
{
	bool rootless = places->rootless;

	p->rootless = rootless;
	p->uid = s->uid;
	p->gid = s->gid;
	p->root_mount_id = rootless ? 0 : slot->root_uid;
	p->user_mount_id = rootless ? s->uid : slot->user_uid;
	p->user_mount_gid = rootless ? s->gid : slot->user_gid;
	p->dev_profile = strcmp(s->profile, "dev") == 0;
	p->landlock_abi = (uint32_t)landlock_abi();
	if (p->landlock_abi == 0 && !s->best_effort)
		return err_set(
			e, 0,
			"this kernel has no Landlock: add landlock to lsm= on its command line, or "
			"use --best-effort to run without this layer");
	memcpy(p->hostname, s->hostname, sizeof s->hostname);
	memcpy(p->profile, s->profile, sizeof s->profile);
	p->has_lease = image->lease >= 0;
	memcpy(p->template, image->template, sizeof p->template);
	memcpy(p->lowers, image->lowers, sizeof image->lowers);
	if (plan_id(p->machine_id, sizeof p->machine_id, "", e) < 0)
		return -1;
	plan_rlimits(p, s);
	plan_mutation(p);
	plan_tmpfs(p, s, has_disk);
	return 0;
}
