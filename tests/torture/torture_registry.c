/* SPDX-License-Identifier: Apache-2.0 */
/* The n-th allocation fails while a manifest is read, registries are configured, a login is found and a registry is
 * asked: an error with a sentence or the right answer, and nothing leaked. */
#include "../unit/unit.h"

#include "base/json.h"
#include "registry/credentials.h"
#include "registry/registry.h"
#include "torture.h"

enum { MOST = 20000 };

#define DIGEST "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static const char manifest_text[] =
	"{\"schemaVersion\":2,\"config\":{\"mediaType\":\"application/vnd.oci.image.config.v1+json\",\"digest\":\"" DIGEST
	"\",\"size\":10},\"layers\":[{\"mediaType\":\"application/vnd.oci.image.layer.v1.tar+gzip\",\"digest\":\"" DIGEST
	"\",\"size\":7}]}";

static const char config_text[] =
	"{\"docker.io\":{\"mirrors\":[\"http://127.0.0.1:1/hub\",\"http://127.0.0.1:1\"],\"only_mirrors\":\"true\"},"
	"\"r.lan:5000\":{\"insecure\":\"true\",\"ca_file\":\"/ca.pem\"}}";

static char folder[256];

static int try_manifest(struct err *e)
{
	struct manifest m;
	int r = manifest_read(manifest_text, sizeof manifest_text - 1, NULL, &platform_native, &m,
			      NULL, e);

	if (r == 0) {
		assert_int_equal(m.layer_count, 1);
		manifest_done(&m);
	}
	return r;
}

static int try_config(struct err *e)
{
	struct registry_config c = {0};
	json_t *root = json_read(config_text, sizeof config_text - 1, e);
	int r = root ? registry_config_read(&c, root, e) : -1;

	if (r == 0)
		assert_int_equal(c.site_count, 2);
	json_decref(root);
	registry_config_done(&c);
	return r;
}

static int try_login(struct err *e)
{
	struct credentials c;
	int r = credentials_find(folder, "r.lan", -1, 1000000, &c, e);

	if (r == 0) {
		assert_string_equal(c.user, "ada");
		assert_string_equal(c.password, "lovelace");
		credentials_done(&c);
	}
	return r;
}

/* Nobody listens on port 1: the right answer is an error, too. */
static int try_pull(struct err *e)
{
	struct registry_options options = {.cancel_fd = -1, .attempts = 1, .docker_config = folder};
	struct registry_config c = {0};
	struct registry_image image;
	struct reference reference;
	struct registry *r = NULL;
	json_t *root = json_read(config_text, sizeof config_text - 1, e);

	if (root && reference_parse("python:3", &reference, e) == 0 &&
	    registry_config_read(&c, root, e) == 0)
		r = registry_open(&c, &reference, &options, e);
	json_decref(root);
	registry_config_done(&c);
	if (r)
		assert_int_equal(registry_resolve(r, &platform_native, &image, e), -1);
	registry_close(r);
	return -1;
}

static void torment(const char *name, int (*attempt)(struct err *), unsigned least)
{
	unsigned long heap;
	struct err e;
	unsigned n;

	/* What libraries keep for ever is there after two rounds. */
	(void)!attempt(&e);
	(void)!attempt(&e);
	heap = torture_heap();
	for (n = 1; n < MOST; n++) {
		int r;

		e = (struct err){0};
		torture_arm(TORTURE_MEMORY, n, 0);
		r = attempt(&e);
		if (!torture_disarm())
			break;
		if (r < 0 && !e.text[0])
			fail_msg("%s: allocation %u (%s): failed without a sentence", name, n,
				 torture_victim());
		if (torture_heap() != heap)
			fail_msg("%s: allocation %u (%s): %ld bytes leaked", name, n,
				 torture_victim(), (long)(torture_heap() - heap));
	}
	print_message("%s: %u allocations\n", name, n - 1);
	assert_true(n > least && n < MOST);
}

static void test_all(void **state)
{
	int dir = scratch_make(folder);

	(void)state;
	assert_true(dir >= 0);
	text_at(dir, "config.json", "{\"auths\":{\"r.lan\":{\"auth\":\"YWRhOmxvdmVsYWNl\"}}}");
	close(dir);
	torment("manifest", try_manifest, 10);
	torment("config", try_config, 10);
	torment("login", try_login, 5);
	torment("pull", try_pull, 30);
	scratch_remove(folder);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_all)};

	(void)argc;
	torture_start(argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
