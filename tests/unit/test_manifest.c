/* SPDX-License-Identifier: Apache-2.0 */
/* Indexes and manifests: what is read out of good ones, and each reason to refuse one. */
#include "unit.h"

#include "image/manifest.h"

#define H1                        "sha256:1111111111111111111111111111111111111111111111111111111111111111"
#define H2                        "sha256:2222222222222222222222222222222222222222222222222222222222222222"
#define H3                        "sha256:3333333333333333333333333333333333333333333333333333333333333333"
#define OCI                       "application/vnd.oci.image.manifest.v1+json"
#define V2                        "application/vnd.docker.distribution.manifest.v2+json"
#define IDX                       "application/vnd.oci.image.index.v1+json"
#define CFG                       "{'mediaType':'application/vnd.oci.image.config.v1+json','digest':'" H1 "','size':10}"
#define LAYER(type, digest, size) "{'mediaType':'" type "','digest':'" digest "','size':" size "}"
#define GZ                        "application/vnd.oci.image.layer.v1.tar+gzip"
#define IMAGE(config, layers)     "{'schemaVersion':2,'config':" config ",'layers':[" layers "]}"
#define ENTRY(digest, platform) \
	"{'mediaType':'" OCI "','digest':'" digest "','size':5,'platform':{" platform "}}"
#define INDEX(entries) "{'schemaVersion':2,'manifests':[" entries "]}"

static int read_text(const char *quoted, const char *type, const struct platform *p,
		     struct manifest *m, bool *none, struct err *e)
{
	char *text = strdup(quoted);
	int r;

	for (char *c = text; *c; c++)
		if (*c == '\'')
			*c = '"';
	r = manifest_read(text, strlen(text), type, p, m, none, e);
	free(text);
	return r;
}

static void test_image(void **state)
{
	struct manifest m;
	struct err e;

	(void)state;
	assert_int_equal(
		read_text(
			IMAGE(CFG,
			      LAYER(GZ, H2, "7") "," LAYER(
				      "application/vnd.oci.image.layer.v1.tar+zstd", H3,
				      "0") "," LAYER("application/vnd.docker.image.rootfs.diff.tar",
						     H2, "7")),
			OCI, &platform_native, &m, NULL, &e),
		0);
	assert_int_equal(m.kind, MANIFEST_IMAGE);
	assert_string_equal(m.config.digest, H1);
	assert_int_equal(m.layer_count, 3);
	assert_int_equal(m.total, 24);
	assert_string_equal(m.layers[1].digest, H3);
	assert_int_equal(m.layers[0].compression, COMPRESSION_GZIP);
	assert_int_equal(m.layers[1].compression, COMPRESSION_ZSTD);
	assert_int_equal(m.layers[2].compression, COMPRESSION_NONE);
	manifest_done(&m);
}

static const struct {
	const char *text, *type, *why;
	int errnum;
} bad[] = {
	{"", NULL, "JSON", 0},
	{"[]", NULL, "not a JSON object", 0},
	{"{}", NULL, "schemaVersion", 0},
	{"{'schemaVersion':2}", NULL, "neither", 0},
	{"{'schemaVersion':3,'manifests':[]}", NULL, "schemaVersion", 0},
	{"{'schemaVersion':1,'fsLayers':[]}", NULL, "old schema 1", ENOTSUP},
	{IMAGE(CFG, LAYER(GZ, H2, "7")),
	 "application/vnd.docker.distribution.manifest.v1+prettyjws", "old schema 1", ENOTSUP},
	{IMAGE(CFG, LAYER(GZ, H2, "7")), IDX, "both an index and an image", 0},
	{INDEX(""), OCI, "both an index and an image", 0},
	{"{'schemaVersion':2,'manifests':[],'layers':[],'config':{}}", OCI, "both", 0},
	{"{'schemaVersion':2,'manifests':[],'layers':[],'config':{}}", IDX, "both", 0},
	{"{'schemaVersion':2,'mediaType':'" V2 "','config':" CFG ",'layers':[]}", OCI,
	 "says it is another", 0},
	{"{'schemaVersion':2,'mediaType':7,'config':" CFG ",'layers':[]}", OCI, "not a string", 0},
	{IMAGE(CFG, ""), OCI, "no layers", 0},
	{"{'schemaVersion':2,'config':" CFG ",'layers':{}}", OCI, "no layers", 0},
	{"{'schemaVersion':2,'layers':[]}", OCI, "config", 0},
	{IMAGE("7", LAYER(GZ, H2, "7")), OCI, "config", 0},
	{IMAGE("{'mediaType':'application/vnd.cncf.helm.config.v1+json','digest':'" H1
	       "','size':10}",
	       LAYER(GZ, H2, "7")),
	 OCI, "no container image", ENOTSUP},
	{IMAGE("{'mediaType':'application/vnd.oci.image.config.v1+json','digest':'" H1
	       "','size':99999999}",
	       LAYER(GZ, H2, "7")),
	 OCI, "at most", EFBIG},
	{IMAGE(CFG, LAYER(GZ, "sha256:12", "7")), OCI, "no sha256 digest", 0},
	{IMAGE(CFG, LAYER(GZ, "../../../etc/passwd", "7")), OCI, "no sha256 digest", 0},
	{IMAGE(CFG, LAYER(GZ, H2, "-7")), OCI, "no size", 0},
	{IMAGE(CFG, LAYER(GZ, H2, "7.5")), OCI, "no size", 0},
	{IMAGE(CFG, LAYER(GZ, H2, "'7'")), OCI, "no size", 0},
	{IMAGE(CFG, LAYER(GZ, H2, "9223372036854775807")), OCI, "at most", EFBIG},
	{IMAGE(CFG, LAYER(GZ, H2, "9223372036854775808")), OCI, "JSON", 0},
	{IMAGE(CFG, LAYER(GZ, H2, "7") "," LAYER(GZ, H2, "8")), OCI, "different sizes", 0},
	{IMAGE(CFG, LAYER("application/vnd.oci.image.layer.nondistributable.v1.tar", H2, "7")), OCI,
	 "elsewhere", ENOTSUP},
	{IMAGE(CFG, LAYER(GZ "+encrypted", H2, "7")), OCI, "cannot be unpacked", ENOTSUP},
	{IMAGE(CFG, LAYER("\\u001b[31m", H2, "7")), OCI, "?[31m", ENOTSUP},
	{"{'schemaVersion':2,'manifests':7}", IDX, "not a list", 0},
	{"{'schemaVersion':2,'schemaVersion':2,'manifests':[]}", IDX, "JSON", 0},
	{INDEX(ENTRY("sha256:xx", "'os':'linux','architecture':'amd64'")), IDX, "no sha256", 0},
	{INDEX(""), IDX, "no image for linux/amd64", 0},
	{INDEX("{'mediaType':'" IDX "','digest':'" H1 "','size':5}"), IDX, "no image for", 0},
	{INDEX(ENTRY(H1, "'os':'windows','architecture':'amd64'") "," ENTRY(
		 H2, "'os':'unknown','architecture':'unknown'")),
	 IDX, "there is one for: windows/amd64", 0},
	{IMAGE(CFG, LAYER(GZ, H2, "7")), "application/vnd.wasm.module.v1", "no image manifest",
	 ENOTSUP},
};

static void test_bad(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct manifest m;
		struct err e = {0};

		if (read_text(bad[i].text, bad[i].type, &platform_native, &m, NULL, &e) == 0)
			fail_msg("taken: %s", bad[i].text);
		assert_contains(e.text, bad[i].why);
		assert_int_equal(e.errnum, bad[i].errnum);
	}
}

static const struct {
	const char *wanted, *entries, *digest; /* NULL: none */
} choices[] = {
	{"linux/amd64",
	 ENTRY(H1, "'os':'linux','architecture':'arm64'") "," ENTRY(
		 H2, "'os':'linux','architecture':'amd64'"),
	 H2},
	/* v2 would not run here, v1 does */
	{"linux/amd64", ENTRY(H1, "'os':'linux','architecture':'amd64','variant':'v2'"), NULL},
	{"linux/amd64",
	 ENTRY(H1, "'os':'linux','architecture':'amd64','variant':'v3'") "," ENTRY(
		 H2, "'os':'linux','architecture':'amd64','variant':'v1'"),
	 H2},
	{"linux/arm",
	 ENTRY(H1, "'os':'linux','architecture':'arm','variant':'v6'") "," ENTRY(
		 H2, "'os':'linux','architecture':'arm','variant':'v7'"),
	 H2},
	{"linux/arm/v6",
	 ENTRY(H1, "'os':'linux','architecture':'arm','variant':'v5'") "," ENTRY(
		 H2, "'os':'linux','architecture':'arm','variant':'v7'"),
	 H1},
	{"linux/arm64", ENTRY(H1, "'os':'linux','architecture':'arm64','variant':'v8'"), H1},
	{"arm64", ENTRY(H1, "'os':'linux','architecture':'arm64'"), H1},
	/* the first of two that are the same */
	{"amd64",
	 ENTRY(H3, "'os':'linux','architecture':'amd64'") "," ENTRY(
		 H2, "'os':'linux','architecture':'amd64'"),
	 H3},
	/* one image without a platform is what it is; of two nobody knows */
	{"amd64", "{'mediaType':'" V2 "','digest':'" H1 "','size':5}", H1},
	{"amd64",
	 "{'mediaType':'" V2 "','digest':'" H1 "','size':5},{'mediaType':'" V2 "','digest':'" H2
	 "','size':5}",
	 NULL},
	{"amd64", ENTRY(H1, "'os':'linux','architecture':'../../x'"), NULL},
};

static void test_choice(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(choices); i++) {
		struct platform p;
		struct manifest m;
		char text[4096];
		struct err e;
		bool none = false;
		int r;

		assert_int_equal(platform_parse(choices[i].wanted, &p, &e), 0);
		snprintf(text, sizeof text, INDEX("%s"), choices[i].entries);
		r = read_text(text, IDX, &p, &m, &none, &e);
		if (!choices[i].digest) {
			assert_int_equal(r, -1);
			assert_true(none);
			continue;
		}
		if (r < 0)
			fail_msg("%s: %s", text, e.text);
		assert_int_equal(m.kind, MANIFEST_INDEX);
		assert_string_equal(m.chosen.digest, choices[i].digest);
		assert_int_equal(m.chosen.size, 5);
	}
}

static void test_many(void **state)
{
	size_t room = (MANIFEST_MAX_LAYERS + 2) * 300, n;
	char *text = malloc(room);
	struct manifest m;
	struct err e;

	(void)state;
	for (int count = MANIFEST_MAX_LAYERS; count <= MANIFEST_MAX_LAYERS + 1; count++) {
		n = (size_t)snprintf(text, room, "{'schemaVersion':2,'config':" CFG ",'layers':[");
		for (int i = 0; i < count; i++)
			n += (size_t)snprintf(text + n, room - n, "%s" LAYER(GZ, H2, "1"),
					      i ? "," : "");
		snprintf(text + n, room - n, "]}");
		if (count == MANIFEST_MAX_LAYERS) {
			assert_int_equal(read_text(text, OCI, &platform_native, &m, NULL, &e), 0);
			assert_int_equal(m.total, MANIFEST_MAX_LAYERS + 10);
			manifest_done(&m);
		} else {
			assert_int_equal(read_text(text, OCI, &platform_native, &m, NULL, &e), -1);
			assert_int_equal(e.errnum, EFBIG);
		}
	}
	free(text);
}

static void test_platforms(void **state)
{
	static const char *const refused[] = {"",
					      "/",
					      "linux/",
					      "linux/amd64/",
					      "a/b/c/d",
					      "li nux/x",
					      "linux/\x1b",
					      "linux//x",
					      "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa/x"};
	char text[3 * PLATFORM_MAX + 3];
	struct platform p;
	struct err e;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(refused); i++)
		assert_int_equal(platform_parse(refused[i], &p, &e), -1);
	assert_int_equal(platform_parse("linux/arm/v7", &p, &e), 0);
	platform_format(&p, text);
	assert_string_equal(text, "linux/arm/v7");
	platform_format(&platform_native, text);
	assert_string_equal(text, "linux/amd64");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_image),     cmocka_unit_test(test_bad),
		cmocka_unit_test(test_choice),    cmocka_unit_test(test_many),
		cmocka_unit_test(test_platforms),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
