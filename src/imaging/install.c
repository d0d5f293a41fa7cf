/* SPDX-License-Identifier: Apache-2.0 */
#include "imaging/install.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "imaging/merge.h"

char *blob_slurp(const struct blobs *blobs, const char *name, const char *digest, size_t limit,
		 size_t *ret_size, struct err *e)
{
	uint64_t size;
	_cleanup_close_ int fd = blobs->open(blobs->context, name, &size, e);
	_cleanup_free_ char *text = NULL;
	char hex[LAYER_HEX];
	int r;

	if (fd < 0)
		return NULL;
	r = fd_slurp(fd, limit, &text, ret_size);
	if (r < 0) {
		err_set(e, -r, "read %.80s", name);
		return NULL;
	}
	if (digest) {
		hash_text(text, *ret_size, hex);
		if (strcmp(digest + strlen("sha256:"), hex) != 0) {
			err_set(e, 0, "%.80s: the digest is wrong: its bytes are sha256:%s", digest,
				hex);
			return NULL;
		}
	}
	return TAKE_PTR(text);
}

static int check_platform(const struct image_config *c, struct err *e)
{
	if ((*c->os && strcmp(c->os, platform_native.os) != 0) ||
	    (*c->architecture && strcmp(c->architecture, platform_native.architecture) != 0))
		return err_set(e, ENOTSUP, "the image is for %s/%s: this machine runs %s/%s", c->os,
			       c->architecture, platform_native.os, platform_native.architecture);
	return 0;
}

static int install_layer(struct installer *in, const struct parts *parts, size_t i,
			 const struct blobs *blobs, const char *diff_id,
			 struct record_layer *layers, struct err *e)
{
	const struct layer_part *part = &parts->layers[i];
	struct layer_source from = {.digest = *part->digest ? part->digest : diff_id,
				    .diff_id = diff_id};
	_cleanup_close_ int fd = -1;
	int r = layer_look_up(in->store, from.digest, layers, i, &layers[i], e);

	if (r <= 0) {
		in->shared += r == 0;
		return r;
	}
	fd = blobs->open(blobs->context, part->name, &from.size, e);
	if (fd < 0)
		return err_prefix(e, "layer %zu", i + 1);
	if (part->size && part->size != from.size)
		return err_set(e, 0, "layer %zu, %.19s: has %llu bytes where %llu were announced",
			       i + 1, from.digest, (unsigned long long)from.size,
			       (unsigned long long)part->size);
	from.fd = fd;
	meter_begin(&in->meter, "layer %zu of %zu  %.12s", i + 1, parts->layer_count,
		    from.digest + strlen("sha256:"));
	in->unpacked++;
	return layer_have(in->store, &from, layers, i, &in->meter, &in->notes, &layers[i], e);
}

static int install_layers(struct installer *in, const struct parts *parts,
			  const struct blobs *blobs, struct image_record *record, struct err *e)
{
	const struct strings *ids = &record->config.diff_ids;

	if (ids->count != parts->layer_count)
		return err_set(e, 0, "the configuration has %zu layers, the manifest %zu",
			       ids->count, parts->layer_count);
	if (ids->count == 0)
		return err_set(e, 0, "the image has no layers");
	record->layers = calloc(ids->count, sizeof *record->layers);
	if (!record->layers)
		return err_set(e, ENOMEM, "keep an image");
	record->layer_count = ids->count;
	for (size_t i = 0; i < ids->count; i++)
		if (install_layer(in, parts, i, blobs, ids->item[i], record->layers, e) < 0)
			return -1;
	return 0;
}

static void say_busy(void *context)
{
	meter_remark(context, "another process does it, waiting");
}

static int finish(struct installer *in, struct image_record *record, char ret_key[RECORD_KEY_SIZE],
		  struct err *e)
{
	int r;

	meter_begin(&in->meter, "one folder of %zu layers", record->layer_count);
	meter_remark(&in->meter, "");
	if (merge_layers(in->store, record, say_busy, &in->meter, e) < 0)
		return -1;
	meter_begin(&in->meter, "writing to disk");
	meter_remark(&in->meter, "");
	r = keeper_add(in->store, record, ret_key, e);
	meter_end(&in->meter);
	return r;
}

int install_rootfs(struct installer *in, const struct record_layer *layer,
		   char ret_key[RECORD_KEY_SIZE], struct err *e)
{
	_cleanup_image_record_ struct image_record record = {.imported = time(NULL),
							     .layer_count = 1};
	char text[512], hex[LAYER_HEX];
	int n;

	/* The least configuration: the same files give the same id. */
	n = snprintf(text, sizeof text,
		     "{\"architecture\":\"%s\",\"os\":\"%s\",\"config\":{},\"rootfs\":{\"type\":"
		     "\"layers\",\"diff_ids\":[\"%s\"]}}",
		     platform_native.architecture, platform_native.os, layer->digest);
	if (image_config_read(text, (size_t)n, &record.config, e) < 0)
		return -1;
	hash_text(text, (size_t)n, hex);
	snprintf(record.id, sizeof record.id, "sha256:%s", hex);
	record.layers = calloc(1, sizeof *record.layers);
	if (!record.layers)
		return err_set(e, ENOMEM, "keep an image");
	record.layers[0] = *layer;
	return finish(in, &record, ret_key, e);
}

int install_image(struct installer *in, const struct parts *parts, const struct blobs *blobs,
		  char ret_key[RECORD_KEY_SIZE], struct err *e)
{
	_cleanup_image_record_ struct image_record record = {.imported = time(NULL)};
	char hex[LAYER_HEX];
	int r;

	if (image_config_read(parts->config, parts->config_size, &record.config, e) < 0 ||
	    check_platform(&record.config, e) < 0)
		return -1;
	hash_text(parts->config, parts->config_size, hex);
	snprintf(record.id, sizeof record.id, "sha256:%s", hex);
	if (parts->manifest_digest)
		memcpy(record.manifest, parts->manifest_digest, DIGEST_TEXT);
	if (parts->index_digest)
		memcpy(record.index, parts->index_digest, DIGEST_TEXT);
	r = install_layers(in, parts, blobs, &record, e);
	meter_end(&in->meter);
	return r < 0 ? -1 : finish(in, &record, ret_key, e);
}
