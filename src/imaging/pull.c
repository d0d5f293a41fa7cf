/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pull.c - `cloche image pull`: from a registry (src/registry) into the store.
 *
 * Blobs go to partial/ first, each under a lock: of several processes that pull the same, one downloads, and the
 * others wait and then find the layers there. What has come of a blob stays for the next time.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/end_signals.h"
#include "base/json.h"
#include "imaging/imaging.h"
#include "imaging/install.h"
#include "registry/download.h"
#include "settings/settings.h"

struct pulling {
	struct installer in;
	int partial; /* the folder */
	int cancel;
	bool for_client;
	struct registry_image image;
	/* what is fetched: files[i] is blobs[i]'s */
	struct download *files;
	struct registry_blob *blobs;
	size_t count;
};

static int add_sites(struct registry_config *config, const char *file, struct err *e)
{
	_cleanup_json_ json_t *root = NULL;

	if (settings_read_file(file, &root, e) < 0)
		return -1;
	if (registry_config_read(config, json_object_get(root, "registries"), e) < 0)
		return err_prefix(e, "%s", file);
	return 0;
}

static int read_sites(struct registry_config *config, const struct places *places, struct err *e)
{
	if (add_sites(config, places->system_config, e) < 0)
		return -1;
	return places->rootless ? add_sites(config, places->config, e) : 0;
}

static void show(void *context, const struct registry_progress *p)
{
	struct meter *meter = context;

	if (p->waiting)
		meter_remark(meter, p->waiting);
	else
		meter_step(meter, p->done, p->total);
}

/* ---- which blobs */

static int by_digest(const void *a, const void *b)
{
	return strcmp(((const struct descriptor *)a)->digest,
		      ((const struct descriptor *)b)->digest);
}

/* 1: the store has it. A layer that depends on those below it is known by all their digests, so those are given. */
static int is_there(const struct pulling *p, const char *digest, struct err *e)
{
	const struct manifest *m = &p->image.parsed;
	struct record_layer *lowers = calloc(m->layer_count, sizeof *lowers), found;
	int r = 1;

	if (!lowers)
		return err_set(e, ENOMEM, "look for a layer");
	for (size_t i = 0; i < m->layer_count; i++) {
		memcpy(lowers[i].digest, m->layers[i].digest, DIGEST_TEXT + 1);
		if (strcmp(m->layers[i].digest, digest) == 0 && r == 1)
			r = layer_look_up(p->in.store, digest, lowers, i, &found, e);
	}
	free(lowers);
	return r < 0 ? -1 : r == 0;
}

/* Every blob once, in order of digests: that is how several processes do not wait for each other. */
static int open_blobs(struct pulling *p, struct err *e)
{
	const struct manifest *m = &p->image.parsed;
	size_t total = m->layer_count + 1;
	_cleanup_free_ struct descriptor *all = calloc(total, sizeof *all);

	p->files = calloc(total, sizeof *p->files);
	p->blobs = calloc(total, sizeof *p->blobs);
	if (!all || !p->files || !p->blobs)
		return err_set(e, ENOMEM, "pull an image");
	all[0] = m->config;
	memcpy(all + 1, m->layers, m->layer_count * sizeof *all);
	qsort(all, total, sizeof *all, by_digest);
	for (size_t i = 0; i < total; i++) {
		struct download *d = &p->files[p->count];
		int there;

		if (i > 0 && by_digest(&all[i], &all[i - 1]) == 0)
			continue;
		there = is_there(p, all[i].digest, e);
		if (there == 0) {
			meter_remark(&p->in.meter, "waiting for another process");
			if (download_open(d, p->partial, &all[i], p->cancel, e) < 0)
				return -1;
			/* Whoever had it may have put it into the store meanwhile. */
			there = is_there(p, all[i].digest, e);
			if (there == 0) {
				p->blobs[p->count++] = download_blob(d);
				continue;
			}
			download_remove(d);
			download_done(d);
		}
		if (there < 0)
			return -1;
		p->in.shared++;
	}
	return 0;
}

static void close_blobs(struct pulling *p, bool remove)
{
	for (size_t i = 0; i < p->count; i++) {
		if (remove)
			download_remove(&p->files[i]);
		download_done(&p->files[i]);
	}
	p->count = 0;
	free(TAKE_PTR(p->files));
	free(TAKE_PTR(p->blobs));
}

/* ---- from partial/ into the store */

static int open_partial(void *context, const char *name, uint64_t *ret_size, struct err *e)
{
	struct pulling *p = context;
	_cleanup_close_ int fd = openat(p->partial, name + strlen("sha256:"), O_RDONLY | O_CLOEXEC);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return err_set(e, errno, "open the download of %.19s", name);
	*ret_size = (uint64_t)st.st_size;
	return TAKE_FD(fd);
}

static int install(struct pulling *p, char key[RECORD_KEY_SIZE], struct err *e)
{
	const struct manifest *m = &p->image.parsed;
	const struct blobs blobs = {open_partial, p};
	_cleanup_free_ struct layer_part *layers = calloc(m->layer_count, sizeof *layers);
	_cleanup_free_ char *config = NULL;
	struct parts parts = {.manifest_digest = p->image.manifest_digest,
			      .layer_count = m->layer_count};

	if (!layers)
		return err_set(e, ENOMEM, "pull an image");
	if (strcmp(p->image.digest, p->image.manifest_digest) != 0)
		parts.index_digest = p->image.digest;
	config = blob_slurp(&blobs, m->config.digest, m->config.digest, MANIFEST_MAX_CONFIG,
			    &parts.config_size, e);
	if (!config)
		return -1;
	for (size_t i = 0; i < m->layer_count; i++) {
		memcpy(layers[i].name, m->layers[i].digest, DIGEST_TEXT + 1);
		memcpy(layers[i].digest, m->layers[i].digest, DIGEST_TEXT + 1);
		layers[i].size = m->layers[i].size;
	}
	parts.config = config;
	parts.layers = layers;
	return install_image(&p->in, &parts, &blobs, key, e);
}

/* 1: the name stands for this image already. */
static int is_current(const struct pulling *p, const struct reference *r, struct err *e)
{
	_cleanup_image_record_ struct image_record record = {0};
	_cleanup_close_ int lease = -1;
	char name[REF_NAME_SIZE], key[RECORD_KEY_SIZE];
	int n = image_ref_name(r, name, e) < 0 ? -1 : image_ref_read(p->in.store, name, key, e);

	if (n != 0)
		return n < 0 ? -1 : 0;
	if (image_take(p->in.store, key, &lease, &record, e) < 0)
		return e->errnum == ENOENT ? 0 : -1;
	return strcmp(record.manifest, p->image.manifest_digest) == 0;
}

static int fetch(struct pulling *p, const struct registry_config *config, const struct reference *r,
		 bool *ret_current, struct err *e)
{
	const struct registry_options wanted = {.cancel_fd = p->cancel,
						.untrusted_reference = p->for_client,
						.progress = show,
						.progress_context = &p->in.meter};
	struct registry *registry = registry_open(config, r, &wanted, e);
	int n;

	if (!registry)
		return -1;
	n = registry_resolve(registry, &platform_native, &p->image, e);
	if (n == 0)
		n = is_current(p, r, e);
	*ret_current = n == 1;
	if (n == 0)
		n = open_blobs(p, e);
	if (n == 0 && p->count > 0)
		n = registry_fetch(registry, p->blobs, p->count, e);
	meter_end(&p->in.meter);
	registry_close(registry);
	return n < 0 ? -1 : 0;
}

static int pull(struct pulling *p, const struct registry_config *config, const struct reference *r,
		struct err *e)
{
	char key[RECORD_KEY_SIZE], name[REFERENCE_TEXT];
	bool current = false;
	sigset_t before;
	int n;

	reference_familiar(r, name);
	meter_begin(&p->in.meter, "%.100s", name);
	/* While libcurl works, Ctrl-C is read; before and after it is a flag. */
	p->cancel = end_signals_watch(0, &before, e);
	n = p->cancel < 0 ? -1 : fetch(p, config, r, &current, e);
	fd_close(&p->cancel);
	sigprocmask(SIG_SETMASK, &before, NULL); /* from here on it is a flag again */
	if (n == 0 && !current)
		n = install(p, key, e);
	if (n == 0 && !current)
		n = keeper_tag(p->in.store, r, key, e);
	close_blobs(p, n == 0);
	if (n == 0)
		printf("%s\n", name);
	return n;
}

int verb_pull(struct request *q, struct err *e)
{
	_cleanup_image_store_ struct image_store store = {.dir = -1};
	_cleanup_close_ int inside = -1, partial = -1;
	struct registry_config config = {0};
	struct reference name;
	uint64_t freed;
	int r = 0;

	if (image_store_open(&q->places, true, &store, e) < 0 ||
	    read_sites(&config, &q->places, e) < 0)
		return -1;
	inside = keeper_enter(&store, e);
	partial = openat(store.dir, "partial", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (inside < 0 || partial < 0)
		r = inside < 0 ? -1 : err_set(e, errno, "open %s/partial", store.path);
	for (size_t i = 0; i < q->count && r == 0; i++) {
		struct pulling p = {.in.store = &store,
				    .partial = partial,
				    .cancel = -1,
				    .for_client = q->for_client};

		meter_init(&p.in.meter, q->quiet);
		r = reference_parse(q->operands[i], &name, e);
		if (r == 0)
			r = pull(&p, &config, &name, e);
		meter_end(&p.in.meter);
		registry_image_done(&p.image);
		if (r == 0)
			tell_notes(q, &p.in.notes);
		else
			err_prefix(e, "pull %.200s", q->operands[i]);
	}
	registry_config_done(&config);
	fd_close(&inside);
	if (r == 0 && tidy(&store, &freed, e) < 0)
		r = -1;
	return r;
}
