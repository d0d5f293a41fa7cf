/* SPDX-License-Identifier: Apache-2.0 */
/* box_request.c - what the spawner is asked for, of a sandbox that is to be made. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "image/image.h"
#include "service/box.h"
#include "service/pool.h"
#include "service/problem.h"

static int add_volume(struct spawner_create *c, const char *box, const char *host, bool writable,
		      uint32_t owner, struct err *e)
{
	struct spawner_volume *v = &c->volumes[c->volume_count];

	if (c->volume_count == ARRAY_SIZE(c->volumes))
		return problem_set(e, PROBLEM_INVALID_REQUEST, "volume: at most %d",
				   SPEC_MAX_VOLUMES);
	if (strlen(box) >= sizeof v->box || strlen(host) >= sizeof v->host)
		return problem_set(e, PROBLEM_INVALID_REQUEST, "volume: the path is too long");
	memcpy(v->box, box, strlen(box) + 1);
	memcpy(v->host, host, strlen(host) + 1);
	v->writable = writable;
	v->owner = owner;
	c->volume_count++;
	return 0;
}

/* "BOX[:ro|:rw]" of a volume whose descriptor came along. */
static int add_fd_volume(struct spawner_create *c, const char *text, uint32_t owner, struct err *e)
{
	char box[SPEC_PATH_SIZE];
	size_t n = strlen(text);
	bool writable = n > 3 && strcmp(text + n - 3, ":rw") == 0;

	if (n > 3 && (writable || strcmp(text + n - 3, ":ro") == 0))
		n -= 3;
	if (n >= sizeof box)
		return problem_set(e, PROBLEM_INVALID_REQUEST, "volume_fds: the path is too long");
	memcpy(box, text, n);
	box[n] = '\0';
	if (box_path_check("volume_fds", box, e) < 0)
		return -1;
	return add_volume(c, box, "", writable, owner, e);
}

int box_fill_network(struct spawner_network *n, const struct spec *s, const char *owner,
		     struct err *e)
{
	_cleanup_free_ char *rules = NULL;
	size_t size;

	if (s->network.mode == NETWORK_NONE)
		return 0;
	rules = spec_network_rules(s);
	if (!rules)
		return err_set(e, ENOMEM, "write network rules");
	size = strlen(rules);
	if (size > sizeof n->rules || strlen(owner) >= sizeof n->owner)
		return problem_set(e, PROBLEM_INVALID_REQUEST,
				   "network: %zu bytes of rules; at most %zu", size,
				   sizeof n->rules);
	n->mode = s->network.mode;
	n->size = (uint32_t)size;
	memcpy(n->rules, rules, size);
	memcpy(n->owner, owner, strlen(owner));
	return 0;
}

int box_fill_create(struct spawner_create *c, const struct box *b, const char *const *fd_boxes,
		    size_t fd_count, struct err *e)
{
	const struct spec *s = &b->spec;

	if (box_fill_network(&c->network, s, b->stored.owner, e) < 0)
		return -1;
	memcpy(c->id, b->stored.id, sizeof c->id);
	memcpy(c->image, s->image, strlen(s->image));
	c->pull = !s->no_pull && !image_is_host(s->image);
	memcpy(c->runtime, s->runtime, strlen(s->runtime));
	memcpy(c->profile, s->profile, strlen(s->profile));
	memcpy(c->hostname, s->hostname, strlen(s->hostname));
	c->memory_bytes = s->memory_bytes;
	c->memory_swap_bytes = s->memory_swap_bytes;
	c->cpus_millis = s->cpus_millis;
	c->pids_limit = s->pids_limit;
	c->disk_bytes = b->disk_bytes;
	c->uid = s->uid;
	c->gid = s->gid;
	for (size_t i = 0; i < s->tmpfs_count; i++) {
		struct spawner_tmpfs *t = &c->tmpfs[c->tmpfs_count++];

		memcpy(t->path, s->tmpfs[i].path, strlen(s->tmpfs[i].path));
		t->size_bytes = s->tmpfs[i].size_bytes;
		t->inodes = s->tmpfs[i].inodes;
		t->exec = s->tmpfs[i].exec;
	}
	for (size_t i = 0; i < fd_count; i++)
		if (add_fd_volume(c, fd_boxes[i], b->fd_owner, e) < 0)
			return -1;
	for (size_t i = 0; i < s->volume_count; i++)
		if (add_volume(c, s->volumes[i].box, s->volumes[i].host, s->volumes[i].writable, 0,
			       e) < 0)
			return -1;
	return 0;
}

int box_ask(struct box *b, struct spawner_create *c, const int *fds, size_t fd_count,
	    link_answer done)
{
	if (b->joins) {
		memcpy(c->zygote, "python", sizeof "python");
		snprintf(c->tenant, sizeof c->tenant, "%s", b->stored.owner);
	}
	return link_create(b->service->link, b->stored.owner, c, fds, fd_count, done, b);
}

int box_ask_without_zygote(struct box *b, link_answer done)
{
	_cleanup_free_ struct spawner_create *c = calloc(1, sizeof *c);
	struct err ignored;

	b->joins = false;
	pool_zygote_failed(b->service, b->stored.owner);
	return c && box_fill_create(c, b, NULL, 0, &ignored) == 0 ? box_ask(b, c, NULL, 0, done)
								  : -1;
}
