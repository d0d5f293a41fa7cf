/* SPDX-License-Identifier: Apache-2.0 */
#include "base/filter.h"

#include <stdbool.h>

static const int absent[] = {SCMP_SYS(clone3), SCMP_SYS(io_uring_setup), SCMP_SYS(io_uring_enter),
			     SCMP_SYS(io_uring_register), SCMP_SYS(rseq)};

static int add(scmp_filter_ctx ctx, struct filter_call rule)
{
	for (unsigned i = 0; i < rule.count; i++)
		if (rule.conditions[i].datum_b == (scmp_datum_t)SELF)
			rule.conditions[i].datum_b = (scmp_datum_t)getpid();
	return seccomp_rule_add_array(ctx, SCMP_ACT_ALLOW, rule.call, rule.count, rule.conditions);
}

static bool is_among(const struct filter_call *allowed, size_t count, int call)
{
	for (size_t i = 0; i < count; i++)
		if (allowed[i].call == call)
			return true;
	return false;
}

int filter_load(const struct filter_call *allowed, size_t count, struct err *e)
{
	scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ERRNO(EPERM));
	int r = ctx ? 0 : -ENOMEM;

	if (r == 0)
		r = seccomp_attr_set(ctx, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
	for (size_t i = 0; r == 0 && i < count; i++)
		r = add(ctx, allowed[i]);
	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(absent); i++)
		if (!is_among(allowed, count, absent[i]))
			r = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(ENOSYS), absent[i], 0);
	if (r == 0)
		r = seccomp_load(ctx);
	seccomp_release(ctx);
	return r < 0 ? err_set(e, -r, "load the system call filter") : 0;
}
