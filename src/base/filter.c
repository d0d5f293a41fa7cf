/* SPDX-License-Identifier: Apache-2.0 */
#include "base/filter.h"

#include <linux/seccomp.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static const int absent[] = {SCMP_SYS(clone3), SCMP_SYS(io_uring_setup), SCMP_SYS(io_uring_enter),
			     SCMP_SYS(io_uring_register), SCMP_SYS(rseq)};

static int add(scmp_filter_ctx ctx, struct filter_call rule)
{
	for (unsigned i = 0; i < rule.count; i++)
		if (rule.conditions[i].datum_b == (scmp_datum_t)SELF)
			rule.conditions[i].datum_b = (scmp_datum_t)getpid();
	return seccomp_rule_add_array(ctx, SCMP_ACT_ALLOW, rule.call, rule.count, rule.conditions);
}

static bool lists(const struct filter_call *calls, size_t count, int call)
{
	for (size_t i = 0; i < count; i++)
		if (calls[i].call == call)
			return true;
	return false;
}

/* The library writes a program to a descriptor, and nowhere else. */
static int export(const scmp_filter_ctx ctx, struct filter *ret)
{
	_cleanup_close_ int fd = memfd_create("filter", MFD_CLOEXEC);
	int r = fd < 0 ? -errno : seccomp_export_bpf(ctx, fd);
	off_t size = r < 0 ? 0 : lseek(fd, 0, SEEK_END);

	if (r < 0)
		return r;
	if (size <= 0 || size > BPF_MAXINSNS * (off_t)sizeof *ret->code)
		return -EIO;
	ret->code = malloc((size_t)size);
	if (!ret->code)
		return -ENOMEM;
	ret->length = (unsigned short)((size_t)size / sizeof *ret->code);
	if (pread(fd, ret->code, (size_t)size, 0) == size)
		return 0;
	filter_done(ret);
	return -EIO;
}

int filter_make(const struct filter_call *allowed, size_t count, struct filter *ret, struct err *e)
{
	scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ERRNO(EPERM));
	int r = ctx ? 0 : -ENOMEM;

	if (r == 0)
		r = seccomp_attr_set(ctx, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
	for (size_t i = 0; r == 0 && i < count; i++)
		r = add(ctx, allowed[i]);
	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(absent); i++)
		if (!lists(allowed, count, absent[i]))
			r = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(ENOSYS), absent[i], 0);
	*ret = (struct filter){0};
	if (r == 0)
		r = export(ctx, ret);
	seccomp_release(ctx);
	return r < 0 ? err_set(e, -r, "make the system call filter") : 0;
}

int filter_use(const struct filter *f, struct err *e)
{
	struct sock_fprog program = {.len = f->length, .filter = f->code};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
	    syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) < 0)
		return err_set(e, errno, "load the system call filter");
	return 0;
}

void filter_done(struct filter *f)
{
	free(f->code);
	*f = (struct filter){0};
}

int filter_load(const struct filter_call *allowed, size_t count, struct err *e)
{
	struct filter f;
	int r = filter_make(allowed, count, &f, e);

	if (r == 0)
		r = filter_use(&f, e);
	filter_done(&f);
	return r;
}
