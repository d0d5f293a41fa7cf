/* SPDX-License-Identifier: Apache-2.0 */
/*
 * registry.c - from a name to a manifest: each source is asked in turn until one has it.
 *
 * Whatever a source sends for a digest is hashed and compared; what it sends for a tag is hashed and gets its
 * name by that, and a registry's own idea of the digest (Docker-Content-Digest) has to agree.
 */
#include "registry/registry.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

#include "base/hex.h"
#include "registry/inside.h"

static int hash(const void *data, size_t size, char ret[static DIGEST_TEXT + 1], struct err *e)
{
	unsigned char sum[EVP_MAX_MD_SIZE];
	unsigned length = 0;

	if (EVP_Digest(data, size, sum, &length, EVP_sha256(), NULL) != 1 || length != 32)
		return err_set(e, 0, "OpenSSL cannot make a SHA-256");
	memcpy(ret, "sha256:", 7);
	hex_encode(sum, length, ret + 7);
	return 0;
}

/* ---- opening */

static int copy_text(const char *from, char **ret)
{
	*ret = from ? strdup(from) : NULL;
	return from && !*ret ? -1 : 0;
}

static int copy_site(const struct registry_site *from, struct registry_site *to)
{
	*to = (struct registry_site){.only_mirrors = from->only_mirrors,
				     .insecure = from->insecure};
	if (from->mirror_count) {
		to->mirrors = calloc(from->mirror_count, sizeof *to->mirrors);
		if (!to->mirrors)
			return -1;
	}
	for (; to->mirror_count < from->mirror_count; to->mirror_count++)
		if (copy_text(from->mirrors[to->mirror_count], &to->mirrors[to->mirror_count]) < 0)
			return -1;
	return copy_text(from->name, &to->name) < 0 || copy_text(from->ca_file, &to->ca_file) < 0
		       ? -1
		       : 0;
}

static int copy_config(const struct registry_config *from, struct registry_config *to)
{
	if (!from || from->site_count == 0)
		return 0;
	to->sites = calloc(from->site_count, sizeof *to->sites);
	if (!to->sites)
		return -1;
	for (size_t i = 0; i < from->site_count; i++) {
		to->site_count++;
		if (copy_site(&from->sites[i], &to->sites[i]) < 0)
			return -1;
	}
	return 0;
}

struct registry *registry_open(const struct registry_config *config,
			       const struct reference *reference,
			       const struct registry_options *options, struct err *e)
{
	struct registry *r = calloc(1, sizeof *r);

	if (!r) {
		err_set(e, ENOMEM, "prepare a registry");
		return NULL;
	}
	r->reference = *reference;
	r->options = *options;
	if (copy_config(config, &r->config) < 0 ||
	    copy_text(options->docker_config, &r->docker_config) < 0) {
		err_set(e, ENOMEM, "prepare a registry");
		registry_close(r);
		return NULL;
	}
	if (engine_open(&r->engine, options, e) < 0 || sources_make(r, e) < 0) {
		registry_close(r);
		return NULL;
	}
	return r;
}

void registry_close(struct registry *r)
{
	if (!r)
		return;
	engine_close(&r->engine);
	sources_free(r);
	registry_config_done(&r->config);
	free(r->docker_config);
	free(r);
}

enum registry_cause registry_cause(const struct registry *r)
{
	return r->cause;
}

/* ---- documents */

struct document {
	struct memory text;
	char type[MEDIA_TYPE_MAX + 1];
	char digest[DIGEST_TEXT + 1];
};

static void document_done(struct document *d)
{
	free(d->text.data);
	*d = (struct document){0};
}

/* A type that says nothing more than "some JSON" is no type. */
static const char *useful_type(const struct document *d)
{
	return strncmp(d->type, "application/vnd.", 16) == 0 ? d->type : NULL;
}

static int check_document(struct registry *r, struct source *s, const struct answer *a,
			  const char *selector, struct document *d, struct err *e)
{
	memcpy(d->type, a->content_type, sizeof d->type);
	if (strcmp(d->type, "text/html") == 0) {
		err_set(e, 0,
			"%s answers with a web page, not as a registry; check its name and port",
			s->name);
		return registry_fail(r, REGISTRY_NOT_A_REGISTRY);
	}
	if (hash(d->text.data ? d->text.data : "", d->text.size, d->digest, e) < 0)
		return registry_fail(r, REGISTRY_INTERNAL);
	if (digest_is_valid(selector) && strcmp(selector, d->digest) != 0) {
		err_set(e, 0,
			"%s sends something else (%.19s...) for the digest %.19s...; nothing of it is used",
			s->name, d->digest, selector);
		return registry_fail(r, REGISTRY_DIGEST);
	}
	if (*a->digest && strcmp(a->digest, d->digest) != 0) {
		err_set(e, 0,
			"%s says the manifest is %.19s... and sends %.19s...; nothing of it is used",
			s->name, a->digest, d->digest);
		return registry_fail(r, REGISTRY_DIGEST);
	}
	return 0;
}

/* The document that a tag or digest stands for at this source. */
static int get_document(struct registry *r, struct source *s, const char *selector,
			struct document *ret, struct err *e)
{
	_cleanup_(document_done) struct document d = {0};
	_cleanup_(request_done) struct request q = {.r = r, .source = s};
	char path[16 + DIGEST_TEXT + REFERENCE_TAG_MAX];

	snprintf(path, sizeof path, "manifests/%s", selector);
	q.path = path;
	q.spec = (struct transfer){
		.accept = manifest_accept,
		.size = TRANSFER_SIZE_UNKNOWN,
		.max = MANIFEST_MAX_BYTES,
		.body = memory_take,
		.restart = memory_restart,
		.context = &d.text,
	};
	if (request_run(&q, e) < 0)
		return registry_fail(r, q.cause == REGISTRY_SINK ? REGISTRY_INTERNAL : q.cause);
	if (check_document(r, s, &q.t.answer, selector, &d, e) < 0)
		return -1;
	*ret = d;
	d = (struct document){0};
	return 0;
}

static enum registry_cause cause_of_document(const struct err *e, bool no_platform)
{
	if (no_platform)
		return REGISTRY_NO_PLATFORM;
	return e->errnum == EFBIG     ? REGISTRY_TOO_LARGE
	       : e->errnum == ENOTSUP ? REGISTRY_UNSUPPORTED
	       : e->errnum == ENOMEM  ? REGISTRY_INTERNAL
				      : REGISTRY_BAD_ANSWER;
}

static int read_document(struct registry *r, const struct source *s, const struct document *d,
			 const struct platform *platform, struct manifest *ret, struct err *e)
{
	bool no_platform;

	if (manifest_read(d->text.data ? d->text.data : "", d->text.size, useful_type(d), platform,
			  ret, &no_platform, e) == 0)
		return 0;
	registry_fail(r, cause_of_document(e, no_platform));
	return err_prefix(e, "%s", s->name);
}

static void give(struct document *from, char **data, size_t *size)
{
	*data = TAKE_PTR(from->text.data);
	*size = from->text.size;
}

/* The manifest that an index chose: no further index, and as long as the index says. */
static int get_chosen(struct registry *r, struct source *s, const struct descriptor *chosen,
		      const struct platform *platform, struct document *d, struct manifest *m,
		      struct err *e)
{
	if (get_document(r, s, chosen->digest, d, e) < 0 ||
	    read_document(r, s, d, platform, m, e) < 0)
		return -1;
	if (d->text.size != chosen->size || m->kind != MANIFEST_IMAGE) {
		err_set(e, 0,
			"%s: the index says that %.19s... is a manifest of %llu bytes, and it is not",
			s->name, chosen->digest, (unsigned long long)chosen->size);
		return registry_fail(r, REGISTRY_BAD_ANSWER);
	}
	return 0;
}

static int resolve_at(struct registry *r, struct source *s, const struct platform *platform,
		      struct registry_image *ret, struct err *e)
{
	_cleanup_(document_done) struct document first = {0}, second = {0};
	_cleanup_manifest_ struct manifest m = {0};
	uint64_t most = r->options.max_total ? r->options.max_total : UINT64_C(20) << 30;
	struct document *last = &first;

	if (get_document(r, s, reference_selector(&r->reference), &first, e) < 0 ||
	    read_document(r, s, &first, platform, &m, e) < 0)
		return -1;
	if (m.kind == MANIFEST_INDEX) {
		struct descriptor chosen = m.chosen;

		last = &second;
		if (get_chosen(r, s, &chosen, platform, &second, &m, e) < 0)
			return -1;
	}
	if (m.total > most) {
		err_set(e, 0, "%s: the image has %llu bytes, at most %llu are taken", s->name,
			(unsigned long long)m.total, (unsigned long long)most);
		return registry_fail(r, REGISTRY_TOO_LARGE);
	}
	*ret = (struct registry_image){.parsed = m};
	m = (struct manifest){0};
	memcpy(ret->digest, first.digest, sizeof ret->digest);
	memcpy(ret->manifest_digest, last->digest, sizeof ret->manifest_digest);
	memcpy(ret->media_type, last->type, sizeof ret->media_type);
	give(last, &ret->manifest, &ret->manifest_size);
	if (last != &first)
		give(&first, &ret->index, &ret->index_size);
	return 0;
}

static int describe(struct registry *r, struct err *e)
{
	char name[REFERENCE_TEXT];

	reference_familiar(&r->reference, name);
	return err_prefix(e, "%.300s", name);
}

/* The sources one after the other, until one has it or one fails in a way that the next cannot mend. */
static int ask_all(struct registry *r,
		   int (*ask)(struct registry *, struct source *, void *, struct err *),
		   void *context, struct err *e)
{
	struct err earlier = {0};
	bool has_earlier = false;

	for (size_t i = 0; i < r->source_count; i++) {
		r->cause = REGISTRY_NONE;
		if (ask(r, &r->sources[i], context, e) == 0) {
			r->current = i;
			return 0;
		}
		if (!cause_elsewhere(r->cause) || i + 1 == r->source_count)
			break;
		earlier = *e;
		has_earlier = true;
	}
	if (has_earlier && r->cause != REGISTRY_CANCELLED && r->cause != REGISTRY_DEADLINE) {
		struct err last = *e;

		err_set(e, last.errnum == EFBIG || last.errnum == ENOTSUP ? 0 : last.errnum,
			"%.400s; before that, %.250s", last.text, earlier.text);
	}
	return describe(r, e);
}

struct resolving {
	const struct platform *platform;
	struct registry_image *ret;
};

static int resolve_one(struct registry *r, struct source *s, void *context, struct err *e)
{
	struct resolving *c = context;

	return resolve_at(r, s, c->platform, c->ret, e);
}

int registry_resolve(struct registry *r, const struct platform *platform,
		     struct registry_image *ret, struct err *e)
{
	struct resolving c = {platform, ret};

	if (ask_all(r, resolve_one, &c, e) < 0)
		return -1;
	r->resolved = true;
	return 0;
}

/* HEAD is cheaper for both sides, and some count it less; where it does not help, GET. */
static int digest_one(struct registry *r, struct source *s, void *context, struct err *e)
{
	_cleanup_(document_done) struct document d = {0};
	_cleanup_(request_done) struct request q = {.r = r, .source = s};
	char path[16 + DIGEST_TEXT + REFERENCE_TAG_MAX], *ret = context;
	int result;

	snprintf(path, sizeof path, "manifests/%s", reference_selector(&r->reference));
	q.path = path;
	q.spec = (struct transfer){
		.accept = manifest_accept,
		.head = true,
		.size = TRANSFER_SIZE_UNKNOWN,
		.body = memory_take,
		.restart = memory_restart,
		.context = &d.text,
	};
	result = request_run(&q, e);
	if (result == 0 && *q.t.answer.digest) {
		memcpy(ret, q.t.answer.digest, DIGEST_TEXT + 1);
		return 0;
	}
	/* A HEAD has no body to say why. */
	if (result < 0 && q.cause != REGISTRY_NOT_FOUND && q.cause != REGISTRY_NOT_A_REGISTRY &&
	    q.cause != REGISTRY_BAD_ANSWER)
		return registry_fail(r, q.cause);
	if (get_document(r, s, reference_selector(&r->reference), &d, e) < 0)
		return -1;
	memcpy(ret, d.digest, DIGEST_TEXT + 1);
	return 0;
}

int registry_digest(struct registry *r, char ret[static DIGEST_TEXT + 1], struct err *e)
{
	return ask_all(r, digest_one, ret, e);
}

void registry_image_done(struct registry_image *image)
{
	free(image->index);
	free(image->manifest);
	manifest_done(&image->parsed);
	*image = (struct registry_image){0};
}
