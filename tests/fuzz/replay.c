/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replays a corpus through a fuzz harness without libFuzzer: replay FILE|DIRECTORY...
 *
 * Every input is handed over in a heap block of exactly its size, so that AddressSanitizer and valgrind see a read
 * past its end. The empty input is always tried. A harness that dislikes an input aborts; that fails the test.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "fuzz.h"

static int replay_file(const char *path, size_t size)
{
	FILE *f = fopen(path, "rb");
	uint8_t *data = malloc(size ? size : 1);

	if (!f || !data || fread(data, 1, size, f) != size) {
		perror(path);
		return 1;
	}
	fclose(f);
	fprintf(stderr, "%s: %zu bytes\n", path, size);
	LLVMFuzzerTestOneInput(data, size);
	free(data);
	return 0;
}

static int replay(const char *path, unsigned *count)
{
	struct stat st;
	int failed = 0;

	if (stat(path, &st) < 0) {
		perror(path);
		return 1;
	}
	if (!S_ISDIR(st.st_mode)) {
		(*count)++;
		return replay_file(path, (size_t)st.st_size);
	}

	struct dirent **entries = NULL;
	int n = scandir(path, &entries, NULL, alphasort);

	for (int i = 0; i < n; i++) {
		char below[4096];

		snprintf(below, sizeof(below), "%s/%s", path, entries[i]->d_name);
		if (entries[i]->d_name[0] != '.')
			failed |= replay(below, count);
		free(entries[i]);
	}
	free(entries);
	return failed | (n < 0);
}

int main(int argc, char **argv)
{
	unsigned count = 0;
	int failed = 0;
	uint8_t *nothing = calloc(1, 1);

	LLVMFuzzerTestOneInput(nothing, 0);
	free(nothing);
	for (int i = 1; i < argc; i++)
		failed |= replay(argv[i], &count);
	if (argc > 1 && !count) {
		fprintf(stderr, "no input found\n");
		failed = 1;
	}
	printf("%u inputs replayed\n", count);
	return failed;
}
