/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scdump - what the seccomp filters of a live process answer to each system call.
 *
 *	scdump [-v] [-a x86_64|x32|i386] PID
 *
 * Prints one "total" line per architecture, with -v one line per call before it:
 *	ARCH <tab> NUMBER <tab> NAME <tab> VERDICT
 * VERDICT is "allow", "kill", "errno NAME", ... or, where arguments decide, all that can happen:
 * "args(allow|errno EPERM)". Numbers without a name are joined into ranges.
 *
 * A host tool: PTRACE_SECCOMP_GET_FILTER wants CAP_SYS_ADMIN in the first user namespace, no
 * filter on the caller, and CONFIG_CHECKPOINT_RESTORE. The process stops for a moment only.
 *
 * The programs are followed with the call's number and architecture known and everything else
 * unknown; a branch on something unknown is followed both ways. So "args" may name an answer
 * that no argument brings about, but no answer is ever missing. An instruction outside what
 * compilers of seccomp filters use ends the dump: no guesses.
 */
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"

#define MAX_FILTERS  32
#define MAX_ANSWERS  32
#define MAX_TEXT     512
#define X32_BIT      0x40000000U
#define DUMP_END     1024 /* twice the kernel's tables */
#define LAST_X86_64  469  /* file_setattr, Linux 6.17: later names would change golden files */
#define LAST_X32     547  /* pwritev2: the x32 table is closed */
#define FIRST_SHARED 424  /* from here on all architectures have the same numbers */

struct filter {
	struct sock_filter *code;
	size_t len;
};

/* The values a program, or all programs together, can return. */
struct answers {
	uint32_t value[MAX_ANSWERS];
	size_t count;
};

struct arch {
	const char *name;
	uint32_t audit;
	uint32_t scmp;
	uint32_t bit;
	uint32_t last_named;
};

static const struct arch archs[] = {
	{"x86_64", AUDIT_ARCH_X86_64, SCMP_ARCH_X86_64, 0, LAST_X86_64},
	{"x32", AUDIT_ARCH_X86_64, SCMP_ARCH_X32, X32_BIT, LAST_X32},
	{"i386", AUDIT_ARCH_I386, SCMP_ARCH_X86, 0, LAST_X86_64},
};

/* What Debian 12's libseccomp does not know yet (syscall_64.tbl of Linux 6.18). */
static const struct {
	uint32_t nr;
	const char *name;
} later_calls[] = {
	{335, "uretprobe"},
	{336, "uprobe"},
	{448, "process_mrelease"},
	{449, "futex_waitv"},
	{450, "set_mempolicy_home_node"},
	{451, "cachestat"},
	{452, "fchmodat2"},
	{453, "map_shadow_stack"},
	{454, "futex_wake"},
	{455, "futex_wait"},
	{456, "futex_requeue"},
	{457, "statmount"},
	{458, "listmount"},
	{459, "lsm_get_self_attr"},
	{460, "lsm_set_self_attr"},
	{461, "lsm_list_modules"},
	{462, "mseal"},
	{463, "setxattrat"},
	{464, "getxattrat"},
	{465, "listxattrat"},
	{466, "removexattrat"},
	{467, "open_tree_attr"},
	{468, "file_getattr"},
	{469, "file_setattr"},
};

static void fail(const char *what)
{
	fprintf(stderr, "scdump: %s\n", what);
	exit(1);
}

static void fail_errno(const char *what)
{
	fprintf(stderr, "scdump: %s: %m\n", what);
	exit(1);
}

/* --- reading ----------------------------------------------------------------------------- */

static size_t read_filters(pid_t pid, struct filter filters[MAX_FILTERS])
{
	size_t count = 0;
	int status = 0;
	long len = 0;

	if (ptrace(PTRACE_SEIZE, pid, NULL, NULL) < 0)
		fail_errno("attach");
	if (ptrace(PTRACE_INTERRUPT, pid, NULL, NULL) < 0 || waitpid(pid, &status, __WALL) < 0)
		fail_errno("stop");
	if (!WIFSTOPPED(status))
		fail("the process ended");

	/* Index 0 is the filter loaded last; ENOENT is behind the first. */
	while ((len = ptrace(PTRACE_SECCOMP_GET_FILTER, pid, count, NULL)) >= 0) {
		struct filter *f = &filters[count];

		if (++count == MAX_FILTERS)
			fail("too many filters");
		f->len = (size_t)len;
		f->code = calloc(f->len, sizeof *f->code);
		if (!f->code)
			fail("out of memory");
		if (ptrace(PTRACE_SECCOMP_GET_FILTER, pid, count - 1, f->code) != len)
			fail_errno("read a filter");
	}
	/* EINVAL: the process has no filter at all. */
	if (errno != ENOENT && errno != EINVAL)
		fail_errno("read the filters");
	ptrace(PTRACE_DETACH, pid, NULL, NULL);
	return count;
}

/* --- following a program ----------------------------------------------------------------- */

/* The accumulator: a value, or unknown because it comes from an argument. */
struct word {
	uint32_t value;
	bool known;
};

struct walk {
	const struct filter *filter;
	uint32_t nr, arch;
	struct answers *answers;
	bool *seen; /* per instruction: reached with the accumulator unknown */
};

static void answers_add(struct answers *a, uint32_t value)
{
	for (size_t i = 0; i < a->count; i++)
		if (a->value[i] == value)
			return;
	if (a->count == MAX_ANSWERS)
		fail("too many different answers");
	a->value[a->count++] = value;
}

static struct word load(const struct walk *w, uint32_t offset)
{
	if (offset == offsetof(struct seccomp_data, nr))
		return (struct word){w->nr, true};
	if (offset == offsetof(struct seccomp_data, arch))
		return (struct word){w->arch, true};
	return (struct word){0, false};
}

static bool compare(uint16_t code, uint32_t a, uint32_t k)
{
	switch (code) {
	case BPF_JMP | BPF_JEQ | BPF_K:
		return a == k;
	case BPF_JMP | BPF_JGT | BPF_K:
		return a > k;
	case BPF_JMP | BPF_JGE | BPF_K:
		return a >= k;
	case BPF_JMP | BPF_JSET | BPF_K:
		return (a & k) != 0;
	}
	fail("unknown comparison in a filter");
	return false;
}

/* Jumps go forward only, so this ends; `seen` keeps unknown branches from being walked twice. */
static void walk(const struct walk *w, size_t pc, struct word a)
{
	for (; pc < w->filter->len; pc++) {
		const struct sock_filter *i = &w->filter->code[pc];

		if (!a.known) {
			if (w->seen[pc])
				return;
			w->seen[pc] = true;
		}
		switch (i->code) {
		case BPF_LD | BPF_W | BPF_ABS:
			a = load(w, i->k);
			break;
		case BPF_ALU | BPF_AND | BPF_K:
			a.value &= i->k;
			break;
		case BPF_JMP | BPF_JA:
			pc += i->k;
			break;
		case BPF_RET | BPF_K:
			answers_add(w->answers, i->k);
			return;
		default:
			if (BPF_CLASS(i->code) != BPF_JMP)
				fail("unknown instruction in a filter");
			if (a.known) {
				pc += compare(i->code, a.value, i->k) ? i->jt : i->jf;
				break;
			}
			walk(w, pc + 1 + i->jt, a);
			pc += i->jf;
		}
	}
	fail("a filter runs past its end");
}

/* The kernel takes the most restrictive answer of all filters: the lowest action, as signed. */
static int32_t action(uint32_t value)
{
	return (int32_t)(value & SECCOMP_RET_ACTION_FULL);
}

static struct answers ask(const struct filter *filters, size_t count, uint32_t nr, uint32_t arch)
{
	struct answers all = {{SECCOMP_RET_ALLOW}, 1};

	for (size_t n = 0; n < count; n++) {
		_cleanup_free_ bool *seen = calloc(filters[n].len, sizeof *seen);
		struct answers one = {{0}, 0}, both = {{0}, 0};
		struct walk w = {&filters[n], nr, arch, &one, seen};

		if (!seen)
			fail("out of memory");
		walk(&w, 0, (struct word){0, true});
		for (size_t i = 0; i < all.count; i++)
			for (size_t j = 0; j < one.count; j++)
				answers_add(&both, action(one.value[j]) < action(all.value[i])
							   ? one.value[j]
							   : all.value[i]);
		all = both;
	}
	return all;
}

/* --- printing ---------------------------------------------------------------------------- */

/* Allowing answers first, then by action and number. */
static int by_mildness(const void *left, const void *right)
{
	uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;

	if (action(a) != action(b))
		return action(a) > action(b) ? -1 : 1;
	return a < b ? -1 : a > b;
}

static const char *answer_text(uint32_t value, char text[64])
{
	const char *name = NULL;

	switch (value & SECCOMP_RET_ACTION_FULL) {
	case SECCOMP_RET_ALLOW:
		return "allow";
	case SECCOMP_RET_LOG:
		return "log";
	case SECCOMP_RET_TRACE:
		return "trace";
	case SECCOMP_RET_USER_NOTIF:
		return "notify";
	case SECCOMP_RET_TRAP:
		return "trap";
	case SECCOMP_RET_KILL_THREAD:
		return "kill-thread";
	case SECCOMP_RET_ERRNO:
		name = strerrorname_np((int)(value & SECCOMP_RET_DATA));
		if (name)
			snprintf(text, 64, "errno %s", name);
		else
			snprintf(text, 64, "errno %u", value & SECCOMP_RET_DATA);
		return text;
	default: /* the kernel kills on anything it does not know */
		return "kill";
	}
}

static void verdict_text(struct answers *a, char text[MAX_TEXT])
{
	char one[64] = "";
	size_t used = 0;

	qsort(a->value, a->count, sizeof *a->value, by_mildness);
	if (a->count == 1) {
		snprintf(text, MAX_TEXT, "%s", answer_text(a->value[0], one));
		return;
	}
	for (size_t i = 0; i < a->count && used < MAX_TEXT; i++)
		used += (size_t)snprintf(text + used, MAX_TEXT - used, "%s%s", i ? "|" : "args(",
					 answer_text(a->value[i], one));
	if (used >= MAX_TEXT - 1)
		fail("too many different answers");
	snprintf(text + used, MAX_TEXT - used, ")");
}

/* The name of a call, or NULL. The caller frees it. */
static char *call_name(const struct arch *arch, uint32_t nr)
{
	char *name = NULL;

	if (nr > arch->last_named)
		return NULL;
	name = seccomp_syscall_resolve_num_arch(arch->scmp, (int)(nr | arch->bit));
	if (name || (nr < FIRST_SHARED && arch->scmp != SCMP_ARCH_X86_64))
		return name;
	for (size_t i = 0; i < ARRAY_SIZE(later_calls); i++)
		if (later_calls[i].nr == nr)
			return strdup(later_calls[i].name);
	return NULL;
}

struct range {
	uint32_t first, last;
	bool open;
	char text[MAX_TEXT];
};

static void range_flush(const struct arch *arch, struct range *r)
{
	if (r->open && r->first == r->last)
		printf("%s\t%u\t-\t%s\n", arch->name, r->first, r->text);
	else if (r->open)
		printf("%s\t%u-%u\t-\t%s\n", arch->name, r->first, r->last, r->text);
	r->open = false;
}

static void dump_edges(const struct arch *arch, const struct filter *filters, size_t count)
{
	static const uint32_t edges[] = {0x3fffffff, 0x40000000, 0x7fffffff, 0x80000000,
					 0xffffffff};
	char text[MAX_TEXT] = "";

	for (size_t i = 0; i < ARRAY_SIZE(edges); i++) {
		struct answers a = ask(filters, count, edges[i], arch->audit);

		verdict_text(&a, text);
		printf("%s\t0x%08x\t-\t%s\n", arch->name, edges[i], text);
	}
}

static void dump(const struct arch *arch, const struct filter *filters, size_t count, bool verbose)
{
	static const char *const kinds[] = {"allow", "args", "errno", "kill"};
	unsigned int tally[ARRAY_SIZE(kinds)] = {0}, named = 0;
	struct range unnamed = {0};

	for (uint32_t nr = 0; nr < DUMP_END; nr++) {
		struct answers a = ask(filters, count, nr | arch->bit, arch->audit);
		_cleanup_free_ char *name = call_name(arch, nr);
		char text[MAX_TEXT] = "";

		verdict_text(&a, text);
		if (!name && verbose) {
			if (unnamed.open && strcmp(unnamed.text, text) != 0)
				range_flush(arch, &unnamed);
			if (!unnamed.open)
				unnamed.first = nr;
			unnamed.open = true;
			unnamed.last = nr;
			snprintf(unnamed.text, sizeof unnamed.text, "%s", text);
		}
		if (!name)
			continue;
		range_flush(arch, &unnamed);
		if (verbose)
			printf("%s\t%u\t%s\t%s\n", arch->name, nr, name, text);
		named++;
		for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
			tally[i] += strncmp(text, kinds[i], strlen(kinds[i])) == 0;
	}
	range_flush(arch, &unnamed);
	if (verbose)
		dump_edges(arch, filters, count);
	printf("%s\ttotal\t%u\t", arch->name, named);
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
		printf("%s%s=%u", i ? " " : "", kinds[i], tally[i]);
	printf("\n");
}

int main(int argc, char **argv)
{
	struct filter filters[MAX_FILTERS] = {{NULL, 0}};
	const char *only = NULL;
	bool verbose = false, found = false;
	size_t count = 0;
	int option = 0;

	while ((option = getopt(argc, argv, "va:")) != -1) {
		if (option == 'v')
			verbose = true;
		else if (option == 'a')
			only = optarg;
		else
			return 2;
	}
	if (optind + 1 != argc) {
		fprintf(stderr, "usage: scdump [-v] [-a x86_64|x32|i386] PID\n");
		return 2;
	}
	count = read_filters((pid_t)strtol(argv[optind], NULL, 10), filters);
	for (size_t i = 0; i < ARRAY_SIZE(archs); i++) {
		if (only && strcmp(only, archs[i].name) != 0)
			continue;
		found = true;
		dump(&archs[i], filters, count, verbose);
	}
	for (size_t i = 0; i < count; i++)
		free(filters[i].code);
	if (!found)
		fail("no such architecture");
	return 0;
}
