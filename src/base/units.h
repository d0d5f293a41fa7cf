/* SPDX-License-Identifier: Apache-2.0 */
/*
 * units.h - strict parsing of sizes, durations and counts as people write them.
 *
 * One grammar: decimal digits, optionally a fraction, then a unit. No sign, no exponent, no
 * hexadecimal, no blanks; what does not fit the type is an error, never clipped. Zero is refused
 * (zero never means unlimited): callers that allow it say so. All return 0 or -EINVAL/-ERANGE.
 */
#ifndef BASE_UNITS_H
#define BASE_UNITS_H

#include <stdint.h>

#include "base/cleanup.h"

/* "256m", "1.5g", "65536", "64KiB": bytes; b k m g t (powers of 1024), an optional "b" or "ib". */
int parse_size(const char *text, uint64_t *ret_bytes) must_check;

/* "5s", "1.5", "500ms", "2m", "1h": microseconds; no unit means seconds. */
int parse_duration(const char *text, uint64_t *ret_us) must_check;

/* "0.5", "2": thousandths of a CPU, at least 10 (the kernel's smallest quota is 1 ms per period). */
int parse_cpus(const char *text, uint64_t *ret_millis) must_check;

/* A whole number from min to max. */
int parse_count(const char *text, uint64_t min, uint64_t max, uint64_t *ret) must_check;

#endif
