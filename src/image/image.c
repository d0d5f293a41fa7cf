/* SPDX-License-Identifier: Apache-2.0 */
#include "image/image.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "image/host.h"
#include "image/store.h"

bool image_is_host(const char *name)
{
	return strcmp(name, "host") == 0;
}

static int open_record(const struct places *places, const char *name, struct image_store *store,
		       int *ret_lease, struct image_record *ret, struct err *e)
{
	char key[RECORD_KEY_SIZE];

	if (image_store_open(places, false, store, e) < 0) {
		if (e->errnum != ENOENT)
			return -1;
		return image_is_missing(name, e);
	}
	/* It may be removed, or the name given to another, between the two. */
	for (int tries = 0;; tries++) {
		if (image_find(store, name, key, e) < 0)
			return -1;
		if (image_take(store, key, ret_lease, ret, e) == 0)
			return 0;
		if (e->errnum != ENOENT || tries == 10)
			return -1;
	}
}

static int name_layers(const struct image_record *r, char lowers[IMAGE_LOWERS_SIZE], struct err *e)
{
	size_t n = 0;

	if (*r->merged) {
		memcpy(lowers, r->merged, sizeof r->merged);
		return 0;
	}
	for (size_t i = r->layer_count; i-- > 0;) {
		size_t size = strlen(r->layers[i].name);

		if (n + size + 2 > IMAGE_LOWERS_SIZE)
			return err_set(e, E2BIG, "the image has too many layers");
		memcpy(lowers + n, r->layers[i].name, size);
		n += size;
		lowers[n++] = i > 0 ? ':' : '\0';
	}
	return 0;
}

int image_open(const struct places *places, const char *name, struct image *ret, struct err *e)
{
	_cleanup_image_record_ struct image_record record = {0};
	_cleanup_image_store_ struct image_store store = {.dir = -1};
	struct host_image host;

	*ret = (struct image){.dir = -1, .lease = -1};
	if (image_is_host(name)) {
		if (host_image_open(places, &host, e) < 0)
			return -1;
		ret->dir = host.dir;
		memcpy(ret->template, host.template, sizeof ret->template);
		return 0;
	}
	if (open_record(places, name, &store, &ret->lease, &record, e) < 0)
		return -1;
	if (name_layers(&record, ret->lowers, e) < 0) {
		fd_close(&ret->lease);
		return -1;
	}
	ret->dir = TAKE_FD(store.dir);
	return 0;
}

int image_look(const struct places *places, const char *name, struct image_config *ret,
	       struct err *e)
{
	_cleanup_image_record_ struct image_record record = {0};
	_cleanup_image_store_ struct image_store store = {.dir = -1};
	_cleanup_close_ int lease = -1;

	*ret = (struct image_config){0};
	if (image_is_host(name))
		return 0;
	if (open_record(places, name, &store, &lease, &record, e) < 0)
		return -1;
	*ret = record.config;
	record.config = (struct image_config){0};
	return 0;
}

void image_done(struct image *image)
{
	fd_close(&image->dir);
	fd_close(&image->lease);
}
