/* SPDX-License-Identifier: Apache-2.0 */
/* A .env file of anybody's: what is taken is a name and a text of the file, nothing else of it. */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "ask/envfile.h"

struct file {
	const uint8_t *data;
	size_t size;
	size_t count;
};

static int take(void *context, const char *name, const char *value, struct err *e)
{
	struct file *f = context;
	size_t n = strlen(value);

	(void)e;
	CHECK(*name && !strchr(name, '=') && !strchr(name, ' ') && !strchr(name, '\n'));
	CHECK(!strpbrk(value, "\r\n\t"));
	CHECK(n == 0 || memmem(f->data, f->size, value, n));
	f->count++;
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct file f = {data, size, 0};
	struct err e = {0};
	char *text = malloc(size + 1);

	CHECK(text);
	memcpy(text, data, size);
	text[size] = '\0';
	if (envfile_read(text, size, take, &f, &e) < 0)
		CHECK(strncmp(e.text, "line ", 5) == 0);
	else
		CHECK(!*e.text && f.count <= ENVFILE_NAMES);
	free(text);
	return 0;
}
