/* SPDX-License-Identifier: Apache-2.0 */
/*
 * manifest.c - JSON in, checked plain data out.
 *
 * The order of the checks is the order of the questions: is it JSON within our limits, of which kind is it
 * (and does everything that says so agree), then the descriptors one by one. Nothing of the document is kept but
 * digests, sizes and kinds; strings from it appear in errors only where they are printable.
 */
#include "image/manifest.h"

#include <stdio.h>
#include <string.h>

#include "base/json.h"

enum document { DOCUMENT_INDEX, DOCUMENT_IMAGE, DOCUMENT_OLD };

static const struct {
	const char *type;
	enum document document;
} documents[] = {
	{"application/vnd.oci.image.index.v1+json", DOCUMENT_INDEX},
	{"application/vnd.docker.distribution.manifest.list.v2+json", DOCUMENT_INDEX},
	{"application/vnd.oci.image.manifest.v1+json", DOCUMENT_IMAGE},
	{"application/vnd.docker.distribution.manifest.v2+json", DOCUMENT_IMAGE},
	{"application/vnd.docker.distribution.manifest.v1+json", DOCUMENT_OLD},
	{"application/vnd.docker.distribution.manifest.v1+prettyjws", DOCUMENT_OLD},
};

const char manifest_accept[] = "application/vnd.oci.image.index.v1+json, "
			       "application/vnd.docker.distribution.manifest.list.v2+json, "
			       "application/vnd.oci.image.manifest.v1+json, "
			       "application/vnd.docker.distribution.manifest.v2+json";

static const char *const config_types[] = {
	"application/vnd.oci.image.config.v1+json",
	"application/vnd.docker.container.image.v1+json",
};

static const struct {
	const char *type;
	enum compression compression;
} layer_types[] = {
	{"application/vnd.oci.image.layer.v1.tar", COMPRESSION_NONE},
	{"application/vnd.oci.image.layer.v1.tar+gzip", COMPRESSION_GZIP},
	{"application/vnd.oci.image.layer.v1.tar+zstd", COMPRESSION_ZSTD},
	{"application/vnd.docker.image.rootfs.diff.tar", COMPRESSION_NONE},
	{"application/vnd.docker.image.rootfs.diff.tar.gzip", COMPRESSION_GZIP},
	{"application/vnd.docker.image.rootfs.diff.tar.zstd", COMPRESSION_ZSTD},
};

const struct platform platform_native = {.os = "linux", .architecture = "amd64"};

/* ---- platforms */

static bool is_name(const char *text, size_t size)
{
	if (size == 0 || size > PLATFORM_MAX)
		return false;
	for (size_t i = 0; i < size; i++) {
		char c = text[i];

		if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
		      c == '_' || c == '.' || c == '-'))
			return false;
	}
	return true;
}

int platform_parse(const char *text, struct platform *ret, struct err *e)
{
	struct platform p = {.os = "linux"};
	char *const parts[] = {p.os, p.architecture, p.variant};
	size_t i = strchr(text, '/') ? 0 : 1;

	for (const char *at = text;; i++) {
		size_t n = strcspn(at, "/");

		if (i >= ARRAY_SIZE(parts) || !is_name(at, n))
			return err_set(e, 0,
				       "a platform is OS/ARCHITECTURE or OS/ARCHITECTURE/VARIANT, "
				       "like linux/amd64");
		memcpy(parts[i], at, n);
		parts[i][n] = '\0';
		if (!at[n])
			break;
		at += n + 1;
	}
	*ret = p;
	return 0;
}

void platform_format(const struct platform *p, char ret[static 3 * PLATFORM_MAX + 3])
{
	snprintf(ret, 3 * PLATFORM_MAX + 3, "%s/%s%s%s", p->os, p->architecture,
		 *p->variant ? "/" : "", p->variant);
}

/* What "" means, and what an architecture's variants are numbered by. */
static int variant_number(const struct platform *p)
{
	int usual = strcmp(p->architecture, "arm") == 0     ? 7
		    : strcmp(p->architecture, "arm64") == 0 ? 8
							    : 1;

	if (!*p->variant)
		return usual;
	if (p->variant[0] == 'v' && p->variant[1] >= '1' && p->variant[1] <= '9' && !p->variant[2])
		return p->variant[1] - '0';
	return -1;
}

int platform_rank(const struct platform *wanted, const struct platform *has)
{
	int want, got;

	if (strcmp(wanted->os, has->os) != 0 ||
	    strcmp(wanted->architecture, has->architecture) != 0)
		return 0;
	if (strcmp(wanted->variant, has->variant) == 0)
		return 100;
	want = variant_number(wanted);
	got = variant_number(has);
	/* A lower variant runs on a higher one, never the other way. */
	return want > 0 && got > 0 && got <= want ? 99 - (want - got) : 0;
}

/* ---- documents */

static int find_document(const char *type)
{
	for (size_t i = 0; i < ARRAY_SIZE(documents); i++)
		if (strcmp(type, documents[i].type) == 0)
			return (int)i;
	return -1;
}

bool manifest_type_is_known(const char *media_type)
{
	int i = find_document(media_type);

	return i >= 0 && documents[i].document != DOCUMENT_OLD;
}

/* A string of somebody else's for an error: short and printable. */
static const char *shown(const char *text, char room[static 64])
{
	size_t n = 0;

	for (; text[n] && n < 63; n++)
		room[n] = text[n] > ' ' && text[n] < 0x7f ? text[n] : '?';
	room[n] = '\0';
	return room;
}

static int check_document(const char *type, struct err *e)
{
	char room[64];
	int i = find_document(type);

	if (i < 0)
		return err_set(e, ENOTSUP, "manifest: %s is no image manifest or index",
			       shown(type, room));
	if (documents[i].document == DOCUMENT_OLD)
		return err_set(e, ENOTSUP,
			       "manifest: is of Docker's old schema 1, which nobody can verify; "
			       "push the image again with a newer tool");
	return i;
}

/* An index or an image? Whatever says something about it must agree. */
static int judge_kind(const json_t *root, const char *media_type, enum manifest_kind *ret,
		      struct err *e)
{
	const json_t *own = json_object_get(root, "mediaType");
	const json_t *version = json_object_get(root, "schemaVersion");
	bool has_entries = json_object_get(root, "manifests") != NULL;
	bool has_layers = json_object_get(root, "layers") || json_object_get(root, "config") ||
			  json_object_get(root, "fsLayers");
	const char *type = media_type;
	enum document document = has_entries ? DOCUMENT_INDEX : DOCUMENT_IMAGE;
	int i;

	if (own && !json_is_string(own))
		return err_set(e, 0, "manifest: mediaType is not a string");
	if (own && type && strcmp(json_string_value(own), type) != 0 &&
	    manifest_type_is_known(json_string_value(own)))
		return err_set(e, 0, "manifest: was sent as one media type and says it is another");
	if (!type)
		type = own ? json_string_value(own) : NULL;
	if (type) {
		i = check_document(type, e);
		if (i < 0)
			return -1;
		document = documents[i].document;
	}
	if (json_integer_value(version) == 1)
		return check_document(documents[ARRAY_SIZE(documents) - 1].type, e);
	if (json_integer_value(version) != 2)
		return err_set(e, 0, "manifest: schemaVersion is not 2");
	if (has_entries == has_layers || has_entries != (document == DOCUMENT_INDEX))
		return err_set(
			e, 0,
			"manifest: could be read as both an index and an image, or as neither");
	*ret = document == DOCUMENT_INDEX ? MANIFEST_INDEX : MANIFEST_IMAGE;
	return 0;
}

static const char *text_of(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text ? text : "";
}

static int read_descriptor(const json_t *j, const char *what, uint64_t max, struct descriptor *ret,
			   struct err *e)
{
	const json_t *size = json_object_get(j, "size");
	const char *digest = text_of(j, "digest");
	char room[64];

	if (!digest_is_valid(digest))
		return err_set(e, 0, "manifest: %s: %s is no sha256 digest", what,
			       shown(digest, room));
	if (!json_is_integer(size) || json_integer_value(size) < 0)
		return err_set(e, 0, "manifest: %s: has no size", what);
	if ((uint64_t)json_integer_value(size) > max)
		return err_set(e, EFBIG, "manifest: %s: has %lld bytes, at most %llu are taken",
			       what, (long long)json_integer_value(size), (unsigned long long)max);
	*ret = (struct descriptor){.size = (uint64_t)json_integer_value(size)};
	memcpy(ret->digest, digest, DIGEST_TEXT);
	return 0;
}

static int read_layer(const json_t *j, size_t n, struct descriptor *ret, struct err *e)
{
	const char *type = text_of(j, "mediaType");
	char what[32], room[64];

	snprintf(what, sizeof what, "layer %zu", n + 1);
	if (read_descriptor(j, what, MANIFEST_MAX_BLOB, ret, e) < 0)
		return -1;
	for (size_t i = 0; i < ARRAY_SIZE(layer_types); i++)
		if (strcmp(type, layer_types[i].type) == 0) {
			ret->compression = layer_types[i].compression;
			return 0;
		}
	if (strstr(type, "nondistributable") || strstr(type, ".foreign."))
		return err_set(e, ENOTSUP,
			       "manifest: %s: is not in the registry but elsewhere (%s); such "
			       "layers are not fetched",
			       what, shown(type, room));
	return err_set(e, ENOTSUP, "manifest: %s: is of the kind %s, which cannot be unpacked",
		       what, shown(type, room));
}

static int read_config(const json_t *root, struct descriptor *ret, struct err *e)
{
	const json_t *config = json_object_get(root, "config");
	const char *type = text_of(config, "mediaType");
	char room[64];

	if (read_descriptor(config, "config", MANIFEST_MAX_CONFIG, ret, e) < 0)
		return -1;
	for (size_t i = 0; i < ARRAY_SIZE(config_types); i++)
		if (strcmp(type, config_types[i]) == 0)
			return 0;
	return err_set(e, ENOTSUP, "manifest: is no container image but something of the kind %s",
		       shown(*type ? type : "(none)", room));
}

static int read_image(const json_t *root, struct manifest *m, struct err *e)
{
	const json_t *layers = json_object_get(root, "layers"), *layer;
	size_t count = json_array_size(layers), i;

	if (read_config(root, &m->config, e) < 0)
		return -1;
	if (!json_is_array(layers) || count == 0)
		return err_set(e, 0, "manifest: has no layers");
	if (count > MANIFEST_MAX_LAYERS)
		return err_set(e, EFBIG, "manifest: has %zu layers, at most %d are taken", count,
			       MANIFEST_MAX_LAYERS);
	m->layers = calloc(count, sizeof *m->layers);
	if (!m->layers)
		return err_set(e, ENOMEM, "manifest");
	m->total = m->config.size;
	json_array_foreach(layers, i, layer) {
		if (read_layer(layer, i, &m->layers[i], e) < 0)
			return -1;
		for (size_t k = 0; k < i; k++)
			if (strcmp(m->layers[k].digest, m->layers[i].digest) == 0 &&
			    m->layers[k].size != m->layers[i].size)
				return err_set(e, 0,
					       "manifest: layers %zu and %zu are the same and "
					       "have different sizes",
					       k + 1, i + 1);
		m->total += m->layers[i].size; /* 500 * 64 GiB does not overflow */
	}
	m->layer_count = count;
	if (m->total > MANIFEST_MAX_TOTAL)
		return err_set(
			e, EFBIG,
			"manifest: all layers together have %llu bytes, at most %llu are taken",
			(unsigned long long)m->total, (unsigned long long)MANIFEST_MAX_TOTAL);
	return 0;
}

/* false: no platform, or one that is not well formed: not for us. */
static bool read_platform(const json_t *entry, struct platform *ret)
{
	const json_t *p = json_object_get(entry, "platform");
	const char *texts[] = {text_of(p, "os"), text_of(p, "architecture"), text_of(p, "variant")};
	char *const rooms[] = {ret->os, ret->architecture, ret->variant};

	*ret = (struct platform){0};
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		if (i == 2 && !*texts[i])
			return true;
		if (!is_name(texts[i], strlen(texts[i])))
			return false;
		memcpy(rooms[i], texts[i], strlen(texts[i]));
	}
	return true;
}

static int no_platform(const struct platform *wanted, const char *seen, struct err *e)
{
	char name[3 * PLATFORM_MAX + 3];

	platform_format(wanted, name);
	return err_set(e, 0, "there is no image for %s; there is one for: %s", name,
		       *seen ? seen : "(no platform at all)");
}

static void remember(char *seen, size_t size, const struct platform *p)
{
	size_t used = strlen(seen);
	char name[3 * PLATFORM_MAX + 3];

	platform_format(p, name);
	if (!strstr(seen, name) && used + strlen(name) + 3 < size)
		snprintf(seen + used, size - used, "%s%s", used ? ", " : "", name);
}

static int read_index(const json_t *root, const struct platform *wanted, struct manifest *m,
		      bool *ret_no_platform, struct err *e)
{
	const json_t *entries = json_object_get(root, "manifests"), *entry, *best = NULL;
	char seen[300] = "";
	struct platform p;
	int best_rank = 0;
	size_t i;

	if (!json_is_array(entries))
		return err_set(e, 0, "index: manifests is not a list");
	if (json_array_size(entries) > MANIFEST_MAX_ENTRIES)
		return err_set(e, EFBIG, "index: has %zu entries, at most %d are taken",
			       json_array_size(entries), MANIFEST_MAX_ENTRIES);
	json_array_foreach(entries, i, entry) {
		int document = find_document(text_of(entry, "mediaType")), rank;

		/* Attestations and the like have the platform unknown/unknown. */
		if (document < 0 || documents[document].document != DOCUMENT_IMAGE)
			continue;
		if (!read_platform(entry, &p)) {
			/* A single image without a platform is what it is. */
			if (json_array_size(entries) == 1 && !json_object_get(entry, "platform"))
				best = entry;
			continue;
		}
		rank = platform_rank(wanted, &p);
		if (strcmp(p.os, "unknown") != 0)
			remember(seen, sizeof seen, &p);
		if (rank > best_rank) {
			best_rank = rank;
			best = entry;
		}
	}
	if (!best) {
		*ret_no_platform = true;
		return no_platform(wanted, seen, e);
	}
	return read_descriptor(best, "the entry of the index", MANIFEST_MAX_BYTES, &m->chosen, e);
}

int manifest_read(const char *text, size_t size, const char *media_type,
		  const struct platform *wanted, struct manifest *ret, bool *ret_no_platform,
		  struct err *e)
{
	_cleanup_manifest_ struct manifest m = {0};
	_cleanup_json_ json_t *root = NULL;
	bool no_platform_here;
	int r;

	if (!ret_no_platform)
		ret_no_platform = &no_platform_here;
	*ret_no_platform = false;
	if (size > MANIFEST_MAX_BYTES)
		return err_set(e, EFBIG, "manifest: has %zu bytes, at most %d are taken", size,
			       MANIFEST_MAX_BYTES);
	root = json_read(text, size, e);
	if (!root)
		return err_prefix(e, "manifest");
	if (!json_is_object(root))
		return err_set(e, 0, "manifest: is not a JSON object");
	if (judge_kind(root, media_type, &m.kind, e) < 0)
		return -1;
	r = m.kind == MANIFEST_INDEX ? read_index(root, wanted, &m, ret_no_platform, e)
				     : read_image(root, &m, e);
	if (r < 0)
		return -1;
	*ret = m;
	m.layers = NULL;
	return 0;
}

void manifest_done(struct manifest *m)
{
	free(m->layers);
	*m = (struct manifest){0};
}
