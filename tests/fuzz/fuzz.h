/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz.h - what every harness has: its one function, and a check that says what was not so and aborts, in any build. */
#ifndef TESTS_FUZZ_H
#define TESTS_FUZZ_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(x)                                                                \
	do {                                                                    \
		if (!(x)) {                                                     \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #x); \
			abort();                                                \
		}                                                               \
	} while (0)

/* libFuzzer's: one input; 0. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
