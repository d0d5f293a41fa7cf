/* SPDX-License-Identifier: Apache-2.0 */
/* What catches connections, as the maker of a network namespace leaves it; and where the kernel has no nf_tables. */
#include "unit.h"

#include <linux/filter.h>
#include <linux/netlink.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "native/netns.h"

/* Answers any socket of nf_tables as a kernel without it does. */
static int without_nf_tables(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 5),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_NETLINK, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, NETLINK_NETFILTER, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPROTONOSUPPORT),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {ARRAY_SIZE(code), code};

	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
	       prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0;
}

static unsigned kinds_of(const struct capture *c)
{
	unsigned kinds = 0;

	for (uint32_t i = 0; i < c->count; i++)
		kinds |= 1u << c->kinds[i];
	return kinds;
}

enum { EVERY_KIND = (1 << LISTEN_KINDS) - 1 };

static int make(struct netns_maker *m, bool wanted)
{
	int fd = -1, r;

	m->capture.wanted = wanted;
	r = netns_begin(m, -1);
	if (r == 0)
		r = netns_finish(m, &fd);
	if (fd >= 0)
		close(fd);
	return r;
}

/* 0: as it should be; else a number of what is not. */
static int look_without_nf_tables(void)
{
	static struct netns_maker m;

	if (without_nf_tables())
		return 1;
	if (make(&m, true) != 0)
		return 2;
	if (m.capture.redirect)
		return 3;
	return kinds_of(&m.capture) == (EVERY_KIND & ~(1u << LISTEN_ANY)) ? 0 : 4;
}

static void need_root(const char *test)
{
	if (geteuid() == 0)
		return;
	printf("skip: %s: makes network namespaces as root\n", test);
	skip();
}

static void test_nothing_unless_wanted(void **state)
{
	static struct netns_maker m;

	(void)state;
	need_root(__func__);
	assert_int_equal(make(&m, false), 0);
	assert_int_equal(m.capture.count, 0);
}

static void test_every_kind(void **state)
{
	static struct netns_maker m;

	(void)state;
	need_root(__func__);
	assert_int_equal(make(&m, true), 0);
	assert_true(m.capture.count <= EGRESS_LISTENERS_MAX);
	assert_int_equal(kinds_of(&m.capture) | 1u << LISTEN_ANY, EVERY_KIND);
	assert_int_equal(m.capture.redirect, kinds_of(&m.capture) == EVERY_KIND);
	capture_done(&m.capture);
	assert_int_equal(m.capture.count, 0);
}

static void test_without_nf_tables(void **state)
{
	int status;
	pid_t pid;

	(void)state;
	need_root(__func__);
	pid = fork();
	if (pid == 0)
		_exit(look_without_nf_tables());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nothing_unless_wanted),
		cmocka_unit_test(test_every_kind),
		cmocka_unit_test(test_without_nf_tables),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
