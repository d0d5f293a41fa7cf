/* SPDX-License-Identifier: Apache-2.0 */
/* The zygote's side of joining, without a nest: a child with namespaces of its own is joined. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unit.h"
#include "zygote/join.h"

#define ALL                                                                                        \
	(CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWNET | \
	 CLONE_NEWCGROUP)

static int before_fork, in_child_after_fork;

static void note_before(void)
{
	before_fork++;
}

static void note_in_child(void)
{
	in_child_after_fork++;
}

/* PID 1 of namespaces of its own; its pidfd. */
static pid_t start_init(int *ret_pidfd)
{
	int p[2];
	char byte;
	pid_t pid;

	assert_int_equal(pipe(p), 0);
	pid = (pid_t)syscall(SYS_clone, ALL | SIGCHLD, NULL, NULL, NULL, NULL);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (write(p[1], "x", 1) == 1)
			pause();
		_exit(0);
	}
	close(p[1]);
	if (pid > 0 && read(p[0], &byte, 1) != 1)
		pid = -1;
	close(p[0]);
	*ret_pidfd = pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
	return pid;
}

static void test_split(void **state)
{
	struct join_data data = {1, 2};
	const int fds[] = {10, 11, 12, 13, 14};
	struct err e = {0};
	struct join j;

	(void)state;
	assert_int_equal(join_split(&data, sizeof data, fds, 5, &j, &e), 0);
	assert_true(j.seat == 10 && j.init == 11 && j.cgroup == 12 && j.task_count == 2 &&
		    j.tasks[0] == 13 && j.tasks[1] == 14);
	data.has_cgroup = 0;
	assert_int_equal(join_split(&data, sizeof data, fds, 4, &j, &e), 0);
	assert_true(j.cgroup == -1 && j.tasks[0] == 12 && j.tasks[1] == 13);
}

static void test_split_refuses(void **state)
{
	static const struct {
		struct join_data data;
		size_t size, count;
	} wrong[] = {
		{{1, 2}, sizeof(struct join_data), 4},
		{{1, 2}, sizeof(struct join_data), 6},
		{{2, 0}, sizeof(struct join_data), 4},
		{{0, 9}, sizeof(struct join_data), 11},
		{{0, UINT32_MAX}, sizeof(struct join_data), 1},
		{{0, 0}, sizeof(struct join_data) - 1, 2},
		{{0, 0}, sizeof(struct join_data), 0},
	};
	const int fds[JOIN_FDS_MAX] = {0};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		struct err e = {0};
		struct join j;

		assert_int_equal(
			join_split(&wrong[i].data, wrong[i].size, fds, wrong[i].count, &j, &e), -1);
		assert_string_equal(e.text, "join a sandbox: malformed request");
	}
}

static void test_failure_leaves_nothing(void **state)
{
	struct join j = {.seat = -1, .init = -1, .cgroup = -1};
	sigset_t before, after;

	(void)state;
	sigprocmask(SIG_SETMASK, NULL, &before);
	for (int i = 0; i < 200; i++) {
		struct err e = {0};

		j.cgroup = i % 2 ? 0 : -1; /* not a cgroup: no helper; not a pidfd: no child */
		assert_int_equal(zygote_fork(&j, &e), -1);
		assert_int_equal(e.errnum, EBADF);
	}
	sigprocmask(SIG_SETMASK, NULL, &after);
	assert_memory_equal(&before, &after, 8); /* what the kernel fills of it */
	assert_int_equal(waitpid(-1, NULL, __WALL), -1);
	assert_int_equal(errno, ECHILD);
}

/* The child returns on the same frames, is pid 2 inside, and has run the handlers of pthread_atfork(3). */
static void test_child_is_born_inside(void **state)
{
	volatile unsigned long canary = 0x5eed5eed;
	struct join j = {.seat = -1, .cgroup = -1};
	pid_t init = start_init(&j.init), child;
	struct err e = {0};
	int status = -1;

	(void)state;
	if (init < 0)
		skip_because("no user namespaces here");
	assert_int_equal(join_adopt(), 0);
	before_fork = 0;
	child = zygote_fork(&j, &e);
	if (child == 0)
		_exit(getpid() == 2 && getppid() == 0 && canary == 0x5eed5eed && before_fork == 1 &&
				      in_child_after_fork == 1
			      ? 42
			      : 1);
	assert_true(child > 0);
	assert_int_equal(canary, 0x5eed5eed);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(WEXITSTATUS(status), 42);
	kill(init, SIGKILL);
	waitpid(init, NULL, 0);
	close(j.init);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_split),
		cmocka_unit_test(test_split_refuses),
		cmocka_unit_test(test_failure_leaves_nothing),
		cmocka_unit_test(test_child_is_born_inside),
	};

	pthread_atfork(note_before, NULL, note_in_child);
	return cmocka_run_group_tests_name("join", tests, NULL, NULL);
}
