/* SPDX-License-Identifier: Apache-2.0 */
/* report.h - what a run's result says about it: in one line for people, and what was in force. */
#ifndef NATIVE_REPORT_H
#define NATIVE_REPORT_H

#include "native/cgroup.h"
#include "native/plan.h"
#include "sandbox/result.h"
#include "sandbox/spec.h"

/* Fill r->message from the reason, unless something more exact is there already. */
void report_message(struct result *r, const struct spec *s);

/* Fill r->enforced. plan: of a sandbox that was made; NULL when none was. */
void report_enforced(struct result *r, const struct spec *s, const struct cgroup *c,
		     const struct plan *plan);

#endif
