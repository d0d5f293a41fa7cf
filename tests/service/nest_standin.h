/* SPDX-License-Identifier: Apache-2.0 */
/* nest_standin.h - what nest_driver asks of nest_standin, one SEQPACKET message each on descriptor 3. */
#ifndef TESTS_NEST_STANDIN_H
#define TESTS_NEST_STANDIN_H

#include "zygote/join.h"

/* + standard output (and error), then what joins. argv: strings, each with its NUL. */
struct standin_request {
	struct join_data join;
	uint32_t argc;
	uint32_t strings;
	char argv[8192];
};

struct standin_answer {
	int32_t pid; /* -1: text says why */
	uint32_t fork_us;
	char text[sizeof(((struct err *)0)->text)];
};

#endif
