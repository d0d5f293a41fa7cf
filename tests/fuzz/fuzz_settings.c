/* SPDX-License-Identifier: Apache-2.0 */
/* A configuration file of anybody's, by both its readers: YAML becomes JSON or one line, that becomes settings, a policy
 * that is then applied, or one line. */
#include <stdlib.h>

#include "fuzz.h"
#include "base/json.h"
#include "settings/settings.h"

int yaml_main(int argc, char **argv);
#define main yaml_main
#include "../../src/cli/yaml.c"
#undef main

static void check_strings(const json_t *j, int depth)
{
	const char *key;
	const json_t *value;
	size_t i;

	CHECK(depth <= MAX_DEPTH);
	CHECK(json_is_string(j) || json_is_array(j) || json_is_object(j));
	CHECK(!json_is_string(j) || strlen(json_string_value(j)) == json_string_length(j));
	if (json_is_array(j))
		json_array_foreach(j, i, value)
			check_strings(value, depth + 1);
	if (json_is_object(j))
		json_object_foreach((json_t *)j, key, value)
			check_strings(value, depth + 1);
}

static json_t *from_yaml(const uint8_t *data, size_t size)
{
	struct reader r = {.file = "x"};
	json_t *j;

	CHECK(yaml_parser_initialize(&r.parser));
	yaml_parser_set_input_string(&r.parser, data, size);
	j = read_document(&r);
	yaml_parser_delete(&r.parser);
	CHECK(!j == !!r.problem[0]);
	return j;
}

static void use(json_t *root, bool binding)
{
	struct settings t = {0};
	struct err e = {0};
	struct spec s;

	CHECK(spec_init(&s, &e) == 0);
	if (settings_from_json(&t, &s, root, "x", binding, &e) < 0)
		CHECK(e.text[0]);
	else if (settings_apply_policy(&t, &s, &e) < 0)
		CHECK(e.text[0] && binding);
	CHECK(binding || (!t.policy && !t.uid_range && !t.volume_roots && !t.images));
	settings_done(&t);
	spec_done(&s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	json_t *root = from_yaml(data, size);

	if (!root)
		return 0;
	check_strings(root, 0);
	use(root, true);
	use(root, false);
	json_decref(root);
	return 0;
}
