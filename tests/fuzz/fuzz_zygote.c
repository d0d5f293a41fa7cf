/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a prepared interpreter reads: the first byte chooses START, FORK (the second byte is the number of
 * descriptors), RUN as it is, or RUN with a good head. What is accepted must be whole.
 */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "zygote/fits.h"
#include "zygote/message.h"

static void read_run(char *message, size_t size)
{
	struct run_view v = {0};
	struct err e = {0};
	size_t bytes = 0;
	uint32_t n = 0;

	if (message_run_split(message, size, &v, &e) < 0) {
		CHECK(e.text[0] && !v.argv);
		return;
	}
	CHECK(v.run->argc > 0 && v.run->limit_count <= ZYGOTE_LIMITS_MAX && v.run->umask <= 0777);
	bytes += strlen(v.cwd) + 1;
	for (n = 0; v.argv[n]; n++)
		bytes += strlen(v.argv[n]) + 1;
	CHECK(n == v.run->argc);
	for (n = 0; v.envp[n]; n++) {
		CHECK(strchr(v.envp[n], '=') > v.envp[n]);
		bytes += strlen(v.envp[n]) + 1;
	}
	CHECK(n == v.run->envc && bytes == size - sizeof *v.run);
	(void)environment_fits(v.envp, v.envp, &e);
	run_done(&v);
}

static void read_start(const char *message, size_t size)
{
	const char *list[ZYGOTE_MODULES_MAX], *warm;
	struct err e = {0};
	int n = message_start_split(message, size, list, &warm, &e);

	CHECK(n < 0 || !warm[0] || warm + strlen(warm) + 1 == message + size);
	CHECK(n >= 0 || e.text[0]);
	for (int i = 0; i < n; i++)
		CHECK(list[i][0] && list[i] + strlen(list[i]) < message + size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct zygote_run head = {.header = {ZYGOTE_RUN, 1}, .umask = 022};
	char *copy;
	struct err e = {0};

	if (size < 4)
		return 0;
	copy = malloc(size + sizeof head);
	if (!copy)
		return 0;
	if (data[0] % 4 == 3) {
		head.argc = data[1];
		head.envc = data[2];
		memcpy(copy, &head, sizeof head);
		memcpy(copy + sizeof head, data + 4, size - 4);
		read_run(copy, sizeof head + size - 4);
	} else {
		memcpy(copy, data + 4, size - 4);
		if (data[0] % 4 == 0)
			read_start(copy, size - 4);
		else if (data[0] % 4 == 1)
			CHECK(message_fork_check(copy, size - 4, data[1], &e) == 0 || e.text[0]);
		else
			read_run(copy, size - 4);
	}
	free(copy);
	return 0;
}
