/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doctor.c - what this machine and this user have, what is enforced, and how to get the rest.
 *
 * A table of small looks, and at the end a real sandbox: what it reports is the truth, the looks explain
 * it. Exit status 1 when the defaults cannot be enforced.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/json.h"
#include "base/landlock.h"
#include "cli/cli.h"
#include "native/cgroup.h"
#include "native/native.h"
#include "native/seccomp.h"
#include "native/slot.h"
#include "settings/egress.h"

enum verdict { HAVE, PARTLY, MISSING };
static const char *const verdict_names[] = {"ok", "partly", "missing"};

struct finding {
	enum verdict verdict;
	char what[800];   /* what was seen */
	char remedy[800]; /* the one command or change that gets the rest; "" when there is none */
};

struct patient {
	struct places places;
	struct cgroup_host host;
	struct settings settings;
	struct spec spec;
};

static void say(struct finding *f, enum verdict verdict, const char *what, const char *remedy)
{
	f->verdict = verdict;
	snprintf(f->what, sizeof f->what, "%s", what);
	snprintf(f->remedy, sizeof f->remedy, "%s", remedy);
}

static void look_kernel(struct patient *p, struct finding *f)
{
	struct utsname u;
	unsigned major = 0, minor = 0;

	(void)p;
	uname(&u);
	if (sscanf(u.release, "%u.%u", &major, &minor) == 2 &&
	    (major > 6 || (major == 6 && minor >= 1)))
		say(f, HAVE, u.release, "");
	else
		say(f, MISSING, u.release,
		    "cloche is made for Linux 6.1 or newer: upgrade the kernel");
}

static void look_user(struct patient *p, struct finding *f)
{
	char limit[32] = "";

	fd_read_file(AT_FDCWD, "/proc/sys/user/max_user_namespaces", limit, sizeof limit);
	limit[strcspn(limit, "\n")] = '\0';
	if (strcmp(limit, "0") == 0)
		say(f, MISSING, "user namespaces are turned off",
		    "sysctl -w user.max_user_namespaces=65536");
	else
		say(f, HAVE,
		    p->places.rootless ? "ordinary user, user namespaces available" : "root", "");
}

static void look_ids(struct patient *p, struct finding *f)
{
	struct id_range range;
	struct err e = {0};

	if (id_range_find(&p->places, p->settings.uid_range, &range, &e) < 0) {
		say(f, MISSING, e.text,
		    "sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 $USER");
		return;
	}
	say(f, HAVE, "", "");
	snprintf(f->what, sizeof f->what, "%u sandboxes at a time, ids from %u", range.slots,
		 range.uid_base);
	if (p->places.rootless && access("/usr/bin/newuidmap", X_OK) < 0)
		say(f, MISSING, "newuidmap is not installed", "apt install uidmap");
}

static void look_cgroup(struct patient *p, struct finding *f)
{
	static const char *const names[] = {"none", "v1", "v2"};
	char what[200];

	snprintf(what, sizeof what, "%s%s", names[p->host.version],
		 p->host.version == CGROUP_V1 && p->host.unified[0] ? " with a v2 tree for the kill"
								    : "");
	say(f,
	    p->host.version == CGROUP_NONE ? MISSING
	    : p->host.why_not[0]           ? PARTLY
					   : HAVE,
	    what, p->host.why_not);
}

static void look_swap(struct patient *p, struct finding *f)
{
	char path[300];

	snprintf(path, sizeof path, "%s/memory.memsw.limit_in_bytes", "/sys/fs/cgroup/memory");
	if (p->host.version == CGROUP_V1 && access(path, F_OK) < 0)
		say(f, PARTLY, "no swap accounting",
		    "boot with swapaccount=1, or turn swap off: swapoff -a");
	else
		say(f, p->host.version == CGROUP_NONE ? MISSING : HAVE, "swap can be limited", "");
}

static void look_landlock(struct patient *p, struct finding *f)
{
	int abi = landlock_abi();

	(void)p;
	say(f,
	    abi >= 6  ? HAVE
	    : abi > 0 ? PARTLY
		      : MISSING,
	    "",
	    abi == 0 ? "add landlock to lsm= on the kernel's command line"
	    : abi >= 6
		    ? ""
		    : "signals and abstract sockets are scoped from Linux 6.12 on (namespaces do it anyway)");
	snprintf(f->what, sizeof f->what, "ABI %d", abi);
}

static void look_seccomp(struct patient *p, struct finding *f)
{
	const struct seccomp_profile *filter = seccomp_profile_find("default");
	char actions[256] = "";

	(void)p;
	if (fd_read_file(AT_FDCWD, "/proc/sys/kernel/seccomp/actions_avail", actions,
			 sizeof actions) < 0 ||
	    !strstr(actions, "kill_process") || !filter)
		say(f, MISSING, "no seccomp filters", "use a kernel with CONFIG_SECCOMP_FILTER");
	else
		say(f, HAVE, "", "");
	if (filter && f->verdict == HAVE)
		snprintf(f->what, sizeof f->what, "default: %u instructions, sha256:%.16s...",
			 filter->len, filter->sha256);
}

static void look_memfd(struct patient *p, struct finding *f)
{
	char value[16] = "0";

	(void)p;
	fd_read_file(AT_FDCWD, "/proc/sys/vm/memfd_noexec", value, sizeof value);
	if (value[0] == '2')
		say(f, MISSING, "vm.memfd_noexec is 2: init cannot be executed",
		    "sysctl -w vm.memfd_noexec=1");
	else
		say(f, HAVE, "init runs from a sealed memory file", "");
}

static void look_usr(struct patient *p, struct finding *f)
{
	struct stat st;

	(void)p;
	if (lstat("/bin", &st) == 0 && S_ISLNK(st.st_mode))
		say(f, HAVE, "the machine's /usr, read-only", "");
	else
		say(f, MISSING, "/bin is no link into /usr", "apt install usrmerge");
}

static int run_true(struct patient *p, const struct spec *s, struct result *r, struct err *e)
{
	struct native_io io = {.stdin_fd = -1,
			       .out_fd = -1,
			       .err_fd = -1,
			       .cancel_fd = -1,
			       .uid_range = p->settings.uid_range};
	int done = settings_egress_config(&p->settings, &p->places, s, NULL, &io.network,
					  &io.network_opens_tls, e);

	if (done == 0)
		done = native_run(&p->places, s, &io, r, e);
	settings_egress_free(io.network);
	return done;
}

/* A sandbox with a network policy that allows nothing: what it takes is then there. */
static void look_network(struct patient *p, struct finding *f)
{
	struct spec s = {0};
	struct result r = {0};
	struct err e = {0};

	if (spec_copy(&s, &p->spec, &e) < 0 ||
	    spec_set(&s, option_find("network"), "allow", &e) < 0 ||
	    spec_add_argument(&s, "/usr/bin/true", &e) < 0 || spec_finish(&s, &e) < 0 ||
	    run_true(p, &s, &r, &e) < 0)
		say(f, MISSING, e.text, "");
	else if (!result_ok(&r))
		say(f, MISSING, r.message, "only --network none can be used; see the self-test");
	else if (strcmp(r.network.capture, "redirect") == 0)
		say(f, HAVE, "programs that know no proxy are caught on every TCP port", "");
	else
		say(f, PARTLY,
		    "programs that know no proxy are caught on ports 80, 443 and 53 only; others are refused",
		    "load tproxy for nf_tables: sudo modprobe nft_tproxy");
	spec_done(&s);
	result_done(&r);
}

static const struct {
	const char *name;
	void (*look)(struct patient *p, struct finding *f);
} looks[] = {
	{"kernel", look_kernel},   {"user", look_user},   {"ids", look_ids},
	{"cgroup", look_cgroup},   {"swap", look_swap},   {"landlock", look_landlock},
	{"seccomp", look_seccomp}, {"memfd", look_memfd}, {"image", look_usr},
	{"network", look_network},
};

/* A whole sandbox with the defaults of this machine. */
static int self_test(struct patient *p, struct result *r, struct finding *f)
{
	struct err e = {0};

	if (spec_add_argument(&p->spec, "/usr/bin/true", &e) < 0 || spec_finish(&p->spec, &e) < 0 ||
	    run_true(p, &p->spec, r, &e) < 0) {
		say(f, MISSING, e.text, "");
		return -1;
	}
	if (result_ok(r))
		say(f, HAVE, "a sandbox with the default limits was made, used and removed", "");
	else
		say(f, MISSING, "", "");
	if (!result_ok(r))
		snprintf(f->what, sizeof f->what, "%s: %.250s", r->stage, r->message);
	return 0;
}

static void print_finding(const char *name, const struct finding *f, json_t *list)
{
	if (list) {
		json_array_append_new(list, json_pack("{ssssssss}", "name", name, "state",
						      verdict_names[f->verdict], "found", f->what,
						      "remedy", f->remedy));
		return;
	}
	printf("%-10s %-8s %s\n", name, verdict_names[f->verdict], f->what);
	if (f->remedy[0])
		printf("%-19s -> %s\n", "", f->remedy);
}

static bool everything_enforced(const struct result *r)
{
	const struct enforced *f = &r->enforced;
	const char *const needed[] = {f->memory,  f->swap,   f->cpu, f->pids,
				      f->network, f->rootfs, f->disk};

	for (size_t i = 0; i < ARRAY_SIZE(needed); i++)
		if (strcmp(needed[i], "none") == 0)
			return false;
	return result_ok(r) && f->landlock > 0 && f->no_new_privs;
}

static int examine(struct patient *p, bool json)
{
	json_t *list = json ? json_array() : NULL;
	struct result r = {0};
	struct finding f;
	bool good;

	cgroup_host_find(&p->places, &p->host);
	for (size_t i = 0; i < ARRAY_SIZE(looks); i++) {
		f = (struct finding){0};
		looks[i].look(p, &f);
		print_finding(looks[i].name, &f, list);
	}
	f = (struct finding){0};
	good = self_test(p, &r, &f) == 0 && everything_enforced(&r);
	print_finding("self-test", &f, list);
	if (json) {
		_cleanup_json_ json_t *result = result_to_json(&r);
		_cleanup_json_ json_t *all =
			json_pack("{sososO}", "defaults_enforced", json_boolean(good), "checks",
				  list, "enforced", json_object_get(result, "enforced"));

		json_dumpf(all, stdout, JSON_INDENT(1));
		putchar('\n');
	} else {
		printf("\n%s\n",
		       good ? "Every default limit and layer is enforced here."
			    : "The defaults cannot be enforced here: runs are refused, unless "
			      "--best-effort.");
	}
	result_done(&r);
	return good ? 0 : 1;
}

int verb_doctor(const struct verb *verb, int argc, char **argv)
{
	bool json = false;
	struct args a = {.verb = verb, .values = &json};
	struct patient p = {0};
	struct err e = {0};
	int status = args_ready(&a, argc, argv, 0, 0);

	if (status >= 0)
		return status;
	if (places_find(&p.places, &e) < 0)
		return fail(EXIT_CLOCHE, &e);
	scope_enter(&p.places, argc + 1, argv - 1);
	if (spec_init(&p.spec, &e) < 0 ||
	    settings_load(&p.settings, &p.places, true, &p.spec, &e) < 0)
		status = fail(EXIT_CLOCHE, &e);
	else
		status = examine(&p, json);
	spec_done(&p.spec);
	settings_done(&p.settings);
	return status;
}
