/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "imaging/imaging.h"

int tidy(const struct image_store *s, uint64_t *ret_freed, struct err *e)
{
	*ret_freed = 0;
	return keeper_collect(s, false, ret_freed, e) < 0 ? -1 : 0;
}

struct names_of {
	const struct image_store *store;
	const char *key;
	bool remove;
	unsigned count;
};

static int each_name(void *context, const char *name, struct err *e)
{
	struct names_of *n = context;
	char key[RECORD_KEY_SIZE];
	int r = image_ref_read(n->store, name, key, e);

	if (r != 0 || strcmp(key, n->key) != 0)
		return r < 0 ? -1 : 0;
	n->count++;
	return n->remove && keeper_untag(n->store, name, e) < 0 ? -1 : 0;
}

static int in_use(const char *name, struct err *e)
{
	return err_set(e, EBUSY, "%.200s: a sandbox runs it; end that first (`cloche ls`)", name);
}

/* An ordinary user's service prepares nothing; and who did not let go within one wait will not in a second one. */
static int remove_record(const struct image_store *s, const char *key, bool *waited, struct err *e)
{
	int r = keeper_remove(s, key, s->rootless || *waited ? 0 : KEEPER_PATIENCE_S, e);

	*waited |= r == 1;
	return r;
}

/* By a name only that name goes, and the image with its last one; by an id all of it. */
static int remove_one(const struct image_store *s, const char *name, bool force, bool *waited,
		      struct err *e)
{
	struct names_of all = {.store = s};
	char key[RECORD_KEY_SIZE], file[REF_NAME_SIZE], other[RECORD_KEY_SIZE];
	struct reference r;
	struct err ignored;
	bool by_name;
	int n;

	if (image_find(s, name, key, e) < 0)
		return -1;
	by_name = reference_parse(name, &r, &ignored) == 0 &&
		  image_ref_name(&r, file, &ignored) == 0 &&
		  image_ref_read(s, file, other, &ignored) == 0;
	all.key = key;
	if (image_store_list(s, "refs", each_name, &all, e) < 0)
		return -1;
	if (by_name && all.count > 1)
		return keeper_untag(s, file, e) < 0 ? -1 : 0;
	if (!by_name && all.count > 1 && !force)
		return err_set(e, 0, "%.80s: has %u names: remove them one by one, or use --force",
			       name, all.count);
	/* The record first: it is what tells whether a sandbox runs it. A name without an image is nothing. */
	n = remove_record(s, key, waited, e);
	if (n != 0)
		return n < 0 ? -1 : in_use(name, e);
	all.remove = true;
	return image_store_list(s, "refs", each_name, &all, e);
}

int verb_rm(struct request *q, struct err *e)
{
	_cleanup_image_store_ struct image_store store = {.dir = -1};
	struct err first = {0}, ignored;
	bool waited = false;
	uint64_t freed;
	int r = 0;

	if (image_store_open(&q->places, true, &store, e) < 0)
		return -1;
	for (size_t i = 0; i < q->count; i++) {
		if (remove_one(&store, q->operands[i], q->force, &waited, e) == 0) {
			if (!q->quiet)
				printf("%s\n", q->operands[i]);
		} else if (r++ == 0) {
			first = *e;
		}
	}
	if (tidy(&store, &freed, r ? &ignored : e) < 0 && r == 0)
		return -1;
	if (r == 0)
		return 0;
	*e = first;
	return r == 1 ? -1
		      : err_prefix(e, "%d of %zu could not be removed; the first", r, q->count);
}

struct pruning {
	const struct image_store *store;
	bool all, waited;
	unsigned removed;
};

static int prune_one(void *context, const char *key, struct err *e)
{
	struct pruning *p = context;
	struct names_of names = {.store = p->store, .key = key, .remove = true};
	bool named = false;
	int r;

	if (!p->all && (keeper_is_named(p->store, key, &named, e) < 0 || named))
		return named ? 0 : -1;
	r = remove_record(p->store, key, &p->waited, e);
	if (r != 0) /* what a sandbox runs stays */
		return r < 0 ? -1 : 0;
	p->removed++;
	return image_store_list(p->store, "refs", each_name, &names, e);
}

int verb_prune(struct request *q, struct err *e)
{
	_cleanup_image_store_ struct image_store store = {.dir = -1};
	struct pruning p = {.store = &store, .all = q->all};
	uint64_t freed = 0;
	int r;

	if (image_store_open(&q->places, true, &store, e) < 0 ||
	    image_store_list(&store, "images", prune_one, &p, e) < 0)
		return -1;
	r = keeper_collect(&store, true, &freed, e);
	if (r < 0)
		return -1;
	if (!q->quiet)
		printf("%u images removed, %.1f MB freed\n", p.removed, (double)freed / 1e6);
	if (r == 1 && !q->quiet)
		fprintf(stderr,
			"cloche: another process adds an image just now: its end frees the disk\n");
	return 0;
}
