/* SPDX-License-Identifier: Apache-2.0 */
/* plan_make.h - from what a caller wants (spec) to what the set-up code does (plan). */
#ifndef NATIVE_PLAN_MAKE_H
#define NATIVE_PLAN_MAKE_H

#include "image/image.h"
#include "native/plan.h"
#include "native/slot.h"
#include "sandbox/spec.h"

/* Fill an empty plan with everything but volumes. has_disk: /workspace will be a volume. */
int plan_make(struct plan *p, const struct places *places, const struct spec *s,
	      const struct slot *slot, const struct image *image, bool has_disk,
	      struct err *e) must_check;

/* 128 random bits in hexadecimal behind a prefix, as far as they fit. */
int plan_id(char *id, size_t size, const char *prefix, struct err *e) must_check;

#endif
