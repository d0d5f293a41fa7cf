/* SPDX-License-Identifier: Apache-2.0 */
#include "service/budget.h"

#include <stdlib.h>
#include <string.h>

struct budget {
	struct budget *next;
	uint64_t used;
	char owner[];
};

/* A list: who is in it is sending a large body just now. */
static struct budget **find(struct service *v, const char *owner)
{
	struct budget **at = &v->budgets;

	while (*at && strcmp((*at)->owner, owner) != 0)
		at = &(*at)->next;
	return at;
}

bool budget_grow(struct service *v, const char *owner, size_t from, size_t to)
{
	struct budget **at = find(v, owner), *b = *at;
	size_t size = strlen(owner) + 1;

	if (to <= from)
		return true;
	if ((b ? b->used : 0) + (to - from) > BUDGET_BODIES * (v->config.body_bytes + 1))
		return false;
	if (!b) {
		b = calloc(1, sizeof *b + size);
		if (!b)
			return false;
		memcpy(b->owner, owner, size);
		*at = b;
	}
	b->used += to - from;
	return true;
}

void budget_give(struct service *v, const char *owner, size_t bytes)
{
	struct budget **at = bytes ? find(v, owner) : NULL, *b;

	if (!at || !*at)
		return;
	b = *at;
	b->used -= bytes < b->used ? bytes : b->used;
	if (b->used == 0) {
		*at = b->next;
		free(b);
	}
}
