/* SPDX-License-Identifier: Apache-2.0 */
/* Any text as an image's name: what is taken comes out the same from both of its written forms. */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "image/reference.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char text[REFERENCE_TEXT], *copy = malloc(size + 1);
	struct reference r, again;
	struct err e;

	CHECK(copy);
	memcpy(copy, data, size);
	copy[size] = '\0';
	if (reference_parse(copy, &r, &e) == 0) {
		CHECK(!strstr(r.repository, "..") && r.repository[0] != '/');
		CHECK(*r.digest ? digest_is_valid(r.digest) : *r.tag);
		reference_format(&r, text);
		CHECK(reference_parse(text, &again, &e) == 0);
		CHECK(memcmp(&r, &again, sizeof r) == 0);
		reference_familiar(&r, text);
		CHECK(reference_parse(text, &again, &e) == 0);
		CHECK(memcmp(&r, &again, sizeof r) == 0);
	}
	free(copy);
	return 0;
}
