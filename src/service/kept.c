/* SPDX-License-Identifier: Apache-2.0 */
#include "service/kept.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/tree.h"
#include "service/run.h"

/* Runs that lose something in one go: the loop is not held up for longer. The rest has its turn with the next
 * file, run or minute. */
enum { MOST_DROPPED = 256, MOST_EXPIRED = 64 };

int kept_open_root(const struct service *v, bool make)
{
	char path[sizeof v->config.state_dir + 16];

	snprintf(path, sizeof path, "%s/artifacts", v->config.state_dir);
	if (make)
		(void)mkdir(path, 0700);
	return open(path, O_PATH | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
}

void kept_remove_files(struct service *v, const char *run)
{
	_cleanup_close_ int root = kept_open_root(v, false);

	if (root >= 0)
		(void)tree_remove(root, run);
}

/* ---- room ---- */

/* False: the store cannot be written, so nothing was removed. */
static bool drop(struct service *v, const char *owner, const char *run, bool whole)
{
	struct err e = {0};

	if (store_begin(v->store, &e) < 0 ||
	    (whole ? store_run_forget(v->store, run, &e)
		   : store_artifacts_forget(v->store, run, &e)) < 0) {
		store_failed(v, &e);
		return false;
	}
	v->store_wrote = true;
	kept_remove_files(v, run);
	if (!whole)
		audit(v, "system", NULL, "run.artifacts_dropped", run,
		      json_pack("{ss ss}", "owner", owner, "why", "quota"));
	return true;
}

/* The oldest artifacts of the owner's make room. False: there are none that could. */
static bool drop_artifacts(struct service *v, const char *owner, const char *except)
{
	struct err e = {0};
	char run[40];

	return store_run_oldest(v->store, owner, true, except, run, &e) == 0 &&
	       drop(v, owner, run, false);
}

static bool drop_run(struct service *v, const char *owner, const char *except)
{
	struct err e = {0};
	char run[40];

	return store_run_oldest(v->store, owner, false, except, run, &e) == 0 &&
	       drop(v, owner, run, true);
}

bool kept_take(struct service *v, const char *owner, uint64_t bytes)
{
	struct err e = {0};
	uint64_t stored;

	if (bytes > quota_kept_limit(v->quotas, owner))
		return false; /* nothing is dropped in vain */
	for (unsigned i = 0; store_kept(v->store, owner, &stored, &e) == 0; i++) {
		if (quota_keep(v->quotas, owner, stored, bytes, now_us()))
			return true;
		if (i == MOST_DROPPED || !drop_artifacts(v, owner, NULL))
			return false;
	}
	return false;
}

/* Artifacts of runs that are about to end: they can give way once that has happened. */
static uint64_t about_to_end(const struct service *v, const char *owner)
{
	uint64_t bytes = 0;

	for (const struct run *r = v->runs; r; r = r->next)
		if (strcmp(r->owner, owner) == 0)
			bytes += r->kept_bytes - r->keeping;
	return bytes;
}

void kept_settle(struct service *v, const char *owner, const char *run)
{
	uint64_t limit = quota_kept_limit(v->quotas, owner), stored, later;
	struct err e = {0};

	if (limit == QUOTA_NONE)
		return;
	for (unsigned i = 0; i < MOST_DROPPED; i++) {
		if (store_kept(v->store, owner, &stored, &e) < 0 || stored <= limit)
			return;
		if (drop_artifacts(v, owner, run))
			continue;
		later = about_to_end(v, owner);
		if (stored <= later || stored - later <= limit || !drop_run(v, owner, run))
			return;
	}
}

/* ---- time ---- */

bool kept_expire(struct service *v)
{
	uint64_t age_us = v->config.artifact_retention_us;
	struct err e = {0};
	char run[40];

	if (v->config.run_retention_us < age_us) /* without its run there is no way to them */
		age_us = v->config.run_retention_us;
	for (unsigned i = 0; i < MOST_EXPIRED; i++) {
		if (store_artifacts_old(v->store, wall_ms() - (int64_t)(age_us / 1000), run, &e) !=
		    0)
			return false;
		if (store_begin(v->store, &e) < 0 ||
		    store_artifacts_forget(v->store, run, &e) < 0) {
			store_failed(v, &e);
			return false;
		}
		v->store_wrote = true;
		kept_remove_files(v, run);
	}
	return true;
}

static bool has_artifacts(struct service *v, const char *run)
{
	struct stored_run s = {0};
	struct err e = {0};
	int r = store_run_get(v->store, run, &s, &e);
	bool has = r < 0 || (r == 0 && s.artifact_path);

	stored_run_done(&s);
	return has;
}

void kept_sweep(struct service *v)
{
	_cleanup_close_ int root = kept_open_root(v, false);
	int list = root < 0 ? -1 : openat(root, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = list < 0 ? NULL : fdopendir(list);
	struct dirent *entry;

	while (d && (entry = readdir(d)))
		if (is_object_id(entry->d_name, "run_") && !has_artifacts(v, entry->d_name))
			(void)tree_remove(root, entry->d_name);
	if (d)
		closedir(d);
}

/* ---- whose ---- */

void kept_know_owner(struct service *v, const char *owner)
{
	struct stored_key key = {0};
	struct quota q = v->owner_quota;
	struct err e = {0};

	if (strncmp(owner, "key:", 4) != 0 || store_key_get(v->store, owner + 4, &key, &e) != 0)
		return;
	if (key.quota && quota_from_text(&q, key.quota, strlen(key.quota), &e) == 0 &&
	    quota_set_owner(v->quotas, owner, &q, now_us()) < 0)
		log_event("quota.unknown", json_pack("{ss}", "owner", owner));
	stored_key_done(&key);
}
