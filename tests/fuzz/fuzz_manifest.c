/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a manifest or index: what is taken keeps the promises of manifest.h. The first byte chooses the media
 * type they are said to have. */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "image/manifest.h"

static const char *const types[] = {
	NULL,
	"application/vnd.oci.image.index.v1+json",
	"application/vnd.docker.distribution.manifest.list.v2+json",
	"application/vnd.oci.image.manifest.v1+json",
	"application/vnd.docker.distribution.manifest.v2+json",
	"application/vnd.docker.distribution.manifest.v1+json",
};

static void check_image(const struct manifest *m)
{
	uint64_t total = m->config.size;

	CHECK(digest_is_valid(m->config.digest) && m->config.size <= MANIFEST_MAX_CONFIG);
	CHECK(m->layer_count > 0 && m->layer_count <= MANIFEST_MAX_LAYERS);
	for (size_t i = 0; i < m->layer_count; i++) {
		CHECK(digest_is_valid(m->layers[i].digest));
		CHECK(m->layers[i].size <= MANIFEST_MAX_BLOB);
		total += m->layers[i].size;
	}
	CHECK(m->total == total && total <= MANIFEST_MAX_TOTAL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct manifest m;
	struct err e;
	bool none;

	if (size < 1)
		return 0;
	if (manifest_read((const char *)data + 1, size - 1, types[data[0] % 6], &platform_native,
			  &m, &none, &e) == 0) {
		if (m.kind == MANIFEST_IMAGE)
			check_image(&m);
		else
			CHECK(digest_is_valid(m.chosen.digest) &&
			      m.chosen.size <= MANIFEST_MAX_BYTES);
		manifest_done(&m);
	} else {
		for (const char *p = e.text; *p; p++)
			CHECK((unsigned char)*p >= ' ' || strstr(e.text, "JSON"));
	}
	return 0;
}
