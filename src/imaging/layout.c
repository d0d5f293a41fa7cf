/* SPDX-License-Identifier: Apache-2.0 */
#include "imaging/layout.h"

#include <stdio.h>
#include <string.h>

#include "base/json.h"

enum { MAX_IMAGES = 1000 };

#define REF_NAME "org.opencontainers.image.ref.name"
#define BLOBS    "blobs/sha256/"
/* of containerd: the whole name */
#define FULL_NAME "io.containerd.image.name"

static const char *text_of(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text ? text : "";
}

static const char *annotation(const json_t *entry, const char *key)
{
	return text_of(json_object_get(entry, "annotations"), key);
}

static json_t *read_json(const struct blobs *blobs, const char *name, struct err *e)
{
	size_t size;
	_cleanup_free_ char *text = blob_slurp(blobs, name, NULL, MANIFEST_MAX_BYTES, &size, e);
	json_t *j = text ? json_read(text, size, e) : NULL;

	if (text && !j)
		err_prefix(e, "%s", name);
	return j;
}

/* ---- manifests by digest */

static int read_manifest(const struct blobs *blobs, const char *digest, const char *media_type,
			 struct manifest *ret, struct err *e)
{
	size_t size;
	_cleanup_free_ char *text = blob_slurp(blobs, digest, digest, MANIFEST_MAX_BYTES, &size, e);

	if (!text)
		return -1;
	return manifest_read(text, size, media_type && *media_type ? media_type : NULL,
			     &platform_native, ret, NULL, e);
}

static int install_manifest(struct installer *in, const struct blobs *blobs,
			    const struct manifest *m, const char *digest, const char *index,
			    char ret_key[RECORD_KEY_SIZE], struct err *e)
{
	struct parts parts = {.manifest_digest = digest, .index_digest = index};
	_cleanup_free_ char *config = NULL;
	_cleanup_free_ struct layer_part *layers = NULL;

	config = blob_slurp(blobs, m->config.digest, m->config.digest, MANIFEST_MAX_CONFIG,
			    &parts.config_size, e);
	layers = calloc(m->layer_count, sizeof *layers);
	if (!config)
		return -1;
	if (!layers)
		return err_set(e, ENOMEM, "import an image");
	for (size_t i = 0; i < m->layer_count; i++) {
		memcpy(layers[i].name, m->layers[i].digest, DIGEST_TEXT + 1);
		memcpy(layers[i].digest, m->layers[i].digest, DIGEST_TEXT + 1);
		layers[i].size = m->layers[i].size;
	}
	parts.config = config;
	parts.layers = layers;
	parts.layer_count = m->layer_count;
	return install_image(in, &parts, blobs, ret_key, e);
}

int manifest_import(struct installer *in, const struct blobs *blobs, const char *digest,
		    const char *media_type, char ret_key[RECORD_KEY_SIZE], struct err *e)
{
	_cleanup_manifest_ struct manifest first = {0}, second = {0};

	if (read_manifest(blobs, digest, media_type, &first, e) < 0)
		return -1;
	if (first.kind == MANIFEST_IMAGE)
		return install_manifest(in, blobs, &first, digest, NULL, ret_key, e);
	if (read_manifest(blobs, first.chosen.digest, NULL, &second, e) < 0)
		return -1;
	if (second.kind != MANIFEST_IMAGE)
		return err_set(e, 0, "an index of indexes of indexes");
	return install_manifest(in, blobs, &second, first.chosen.digest, digest, ret_key, e);
}

/* ---- OCI layout */

static bool is_wanted(const json_t *entry, const struct reference *wanted)
{
	char full[REFERENCE_TEXT], familiar[REFERENCE_TEXT];
	const char *name = annotation(entry, REF_NAME);

	reference_format(wanted, full);
	reference_familiar(wanted, familiar);
	return strcmp(name, wanted->tag) == 0 || strcmp(name, full) == 0 ||
	       strcmp(name, familiar) == 0 || strcmp(annotation(entry, FULL_NAME), full) == 0;
}

/* What to say when there are several. */
static int ambiguous(const json_t *entries, struct err *e)
{
	char list[300] = "";
	const json_t *entry;
	size_t i;

	json_array_foreach(entries, i, entry) {
		const char *name = annotation(entry, REF_NAME);
		size_t n = strlen(list);

		if (*name && n + strlen(name) + 3 < sizeof list)
			snprintf(list + n, sizeof list - n, "%s%s", n ? ", " : "", name);
	}
	return err_set(
		e, 0,
		"the layout has %zu images: say which by importing it as NAME:TAG with one of "
		"these tags: %s",
		json_array_size(entries), *list ? list : "(none has a name)");
}

static int choose_entry(const json_t *root, const struct reference *wanted, const json_t **ret,
			struct err *e)
{
	const json_t *entries = json_object_get(root, "manifests"), *entry;
	size_t i, found = 0;

	if (!json_is_array(entries) || json_array_size(entries) == 0)
		return err_set(e, 0, "index.json lists no image");
	if (json_array_size(entries) > MANIFEST_MAX_ENTRIES)
		return err_set(e, EFBIG, "index.json lists more than %d images",
			       MANIFEST_MAX_ENTRIES);
	*ret = json_array_get(entries, 0);
	if (json_array_size(entries) == 1)
		return 0;
	if (wanted)
		json_array_foreach(entries, i, entry)
			if (is_wanted(entry, wanted)) {
				*ret = entry;
				found++;
			}
	return found == 1 ? 0 : ambiguous(entries, e);
}

/* A name in the layout counts when it is a whole one; a mere tag has no repository. */
static int name_in_layout(const json_t *entry, struct reference *ret)
{
	const char *candidates[] = {annotation(entry, FULL_NAME), annotation(entry, REF_NAME)};
	struct err ignored;

	for (size_t i = 0; i < ARRAY_SIZE(candidates); i++)
		if ((i == 0 || strchr(candidates[i], '/') || strchr(candidates[i], ':')) &&
		    *candidates[i] && reference_parse(candidates[i], ret, &ignored) == 0)
			return 0;
	return -1;
}

int layout_import(struct installer *in, const struct blobs *blobs, const struct naming *names,
		  struct err *e)
{
	_cleanup_json_ json_t *root = read_json(blobs, "index.json", e);
	const struct reference *name = names->wanted;
	struct reference own;
	char key[RECORD_KEY_SIZE];
	const json_t *entry = NULL;
	const char *digest;

	if (!root || choose_entry(root, names->wanted, &entry, e) < 0)
		return -1;
	digest = text_of(entry, "digest");
	if (!digest_is_valid(digest))
		return err_set(e, 0, "index.json: no sha256 digest: %.80s", digest);
	if (manifest_import(in, blobs, digest, text_of(entry, "mediaType"), key, e) < 0)
		return -1;
	if (!name && name_in_layout(entry, &own) == 0)
		name = &own;
	if (name && keeper_tag(in->store, name, key, e) < 0)
		return -1;
	names->added(name, key);
	return 0;
}

/* ---- docker save */

static int saved_layers(const json_t *list, struct layer_part *layers, struct err *e)
{
	const json_t *item;
	size_t i;

	json_array_foreach(list, i, item) {
		const char *name = json_string_value(item);

		if (!name || strlen(name) >= sizeof layers[i].name)
			return err_set(e, 0, "manifest.json: Layers[%zu] is no name", i);
		memcpy(layers[i].name, name, strlen(name) + 1);
		/* As newer Docker writes it: perhaps compressed, under the digest of what it is. Else it is the
		 * archive itself, whose digest the configuration has. */
		if (strncmp(name, BLOBS, strlen(BLOBS)) == 0)
			snprintf(layers[i].digest, sizeof layers[i].digest, "sha256:%.64s",
				 name + strlen(BLOBS));
		if (*layers[i].digest && !digest_is_valid(layers[i].digest))
			return err_set(e, 0, "manifest.json: Layers[%zu] is no sha256 digest", i);
	}
	return 0;
}

static int tag_saved(struct installer *in, const json_t *image, const struct naming *names,
		     const char *key, struct err *e)
{
	const json_t *tags = json_object_get(image, "RepoTags"), *tag;
	struct reference r;
	size_t i, count = 0;

	if (names->wanted) {
		if (keeper_tag(in->store, names->wanted, key, e) < 0)
			return -1;
		names->added(names->wanted, key);
		return 0;
	}
	json_array_foreach(tags, i, tag) {
		const char *text = json_string_value(tag);

		if (!text || reference_parse(text, &r, e) < 0)
			return err_prefix(e, "manifest.json: RepoTags[%zu]", i);
		if (keeper_tag(in->store, &r, key, e) < 0)
			return -1;
		names->added(&r, key);
		count++;
	}
	if (count == 0)
		names->added(NULL, key);
	return 0;
}

static int import_saved_image(struct installer *in, const struct blobs *blobs, const json_t *image,
			      const struct naming *names, struct err *e)
{
	const json_t *list = json_object_get(image, "Layers");
	const char *config_name = text_of(image, "Config");
	struct parts parts = {.layer_count = json_array_size(list)};
	_cleanup_free_ struct layer_part *layers = NULL;
	_cleanup_free_ char *config = NULL;
	char key[RECORD_KEY_SIZE];

	if (!*config_name || parts.layer_count == 0)
		return err_set(e, 0, "manifest.json: an image without Config or Layers");
	if (parts.layer_count > CONFIG_MAX_LAYERS)
		return err_set(e, EFBIG, "manifest.json: %zu layers, at most %d are taken",
			       parts.layer_count, CONFIG_MAX_LAYERS);
	layers = calloc(parts.layer_count, sizeof *layers);
	if (!layers)
		return err_set(e, ENOMEM, "import an image");
	if (saved_layers(list, layers, e) < 0)
		return -1;
	config = blob_slurp(blobs, config_name, NULL, MANIFEST_MAX_CONFIG, &parts.config_size, e);
	if (!config)
		return -1;
	parts.config = config;
	parts.layers = layers;
	if (install_image(in, &parts, blobs, key, e) < 0)
		return -1;
	return tag_saved(in, image, names, key, e);
}

int saved_import(struct installer *in, const struct blobs *blobs, const struct naming *names,
		 struct err *e)
{
	_cleanup_json_ json_t *root = read_json(blobs, "manifest.json", e);
	const json_t *image;
	size_t i;

	if (!root)
		return -1;
	if (!json_is_array(root) || json_array_size(root) == 0 ||
	    json_array_size(root) > MAX_IMAGES)
		return err_set(e, 0, "manifest.json is no list of 1 to %d images", MAX_IMAGES);
	if (names->wanted && json_array_size(root) > 1)
		return err_set(
			e, 0,
			"the archive has %zu images with names of their own: import it without a name",
			json_array_size(root));
	json_array_foreach(root, i, image)
		if (import_saved_image(in, blobs, image, names, e) < 0)
			return -1;
	return 0;
}
