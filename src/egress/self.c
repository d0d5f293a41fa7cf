/* SPDX-License-Identifier: Apache-2.0 */
/*
 * self.c - cloche-egress reads what a sandbox and the Internet say, and holds secrets, so it is held like a sandbox.
 *
 * No capability, nothing executable ever, the system calls of self_calls.def only, and of the files those that glibc's
 * resolver reads. It connects where it likes: to do that is its job, and whoever takes it over has the
 * network of this one sandbox without its rules. Nobody may read its memory, and it leaves no core.
 */
#include <fcntl.h>
#include <linux/capability.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "base/filter.h"
#include "base/landlock.h"
#include "egress/egress.h"

static const struct filter_call allowed[] = {
#include "egress/self_calls.def"
#ifdef __SANITIZE_ADDRESS__
	CALL(sigaltstack) /* a thread begins: its handler's stack */
#endif
};

/* resolv.conf(5), nsswitch.conf(5), gai.conf(5); what a resolv.conf that is a link leads to, and where it is made anew. */
static const struct landlock_path readable[] = {
	{"/etc/resolv.conf", LANDLOCK_READ_FILE}, {"/etc/hosts", LANDLOCK_READ_FILE},
	{"/etc/host.conf", LANDLOCK_READ_FILE},   {"/etc/nsswitch.conf", LANDLOCK_READ_FILE},
	{"/etc/gai.conf", LANDLOCK_READ_FILE},    {"/run/systemd/resolve", LANDLOCK_READ_FILE},
	{"/run/resolvconf", LANDLOCK_READ_FILE},  {"/run/NetworkManager", LANDLOCK_READ_FILE},
};

/* Where the value is 1, a core that goes to a program (core_pattern "|...") is not made either (core(5)). */
int self_hide(struct err *e)
{
	const struct rlimit no_core = {1, 1};

	/* Without CAP_SETPCAP it stays, of no use under no_new_privs. */
	for (int cap = 0; prctl(PR_CAPBSET_READ, cap, 0, 0, 0) >= 0; cap++)
		(void)prctl(PR_CAPBSET_DROP, cap, 0, 0, 0);
	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 || setrlimit(RLIMIT_CORE, &no_core) < 0 ||
	    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return err_set(e, errno, "hide this process");
	return 0;
}

static int drop_capabilities(struct err *e)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	const struct __user_cap_data_struct none[2] = {0};

	if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0 ||
	    syscall(SYS_capset, &header, none) < 0)
		return err_set(e, errno, "give up capabilities");
	return 0;
}

static struct filter filter;

int self_prepare(struct err *e)
{
	return filter_make(allowed, ARRAY_SIZE(allowed), &filter, e);
}

int self_restrict(struct err *e)
{
	int r;

	if (drop_capabilities(e) < 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
		return e->text[0] ? -1 : err_set(e, errno, "hide this process");
	if (landlock_restrict(readable, ARRAY_SIZE(readable), LANDLOCK_TCP_BIND,
			      LANDLOCK_SIGNAL | LANDLOCK_ABSTRACT_UNIX, e) < 0)
		return -1;
	r = filter_use(&filter, e);
	filter_done(&filter);
	return r;
}
