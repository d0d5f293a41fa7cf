/* SPDX-License-Identifier: Apache-2.0 */
#include "native/cgroup.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/units.h"
#include "native/sandbox.h"
#include "native/slot.h"

#define MOUNT         "/sys/fs/cgroup"
#define CGROUP2_MAGIC 0x63677270 /* linux/magic.h */
#define PERIOD_US     100000     /* of the CPU quota; the kernel's default */

enum { STEP_ASIDE_TRIES = 16 };

/* The v1 trees, and whether a run may do without. */
static const struct {
	const char *path;
	const char *what;
} v1_trees[CONTROLLER_COUNT] = {
	[MEMORY] = {MOUNT "/memory", "memory"},    [CPU] = {MOUNT "/cpu", "cpu"},
	[CPUACCT] = {MOUNT "/cpuacct", "cpuacct"}, [PIDS] = {MOUNT "/pids", "pids"},
	[FREEZER] = {MOUNT "/freezer", "freezer"},
};

static bool is_cgroup2(const char *path)
{
	struct statfs f;

	return statfs(path, &f) == 0 && f.f_type == CGROUP2_MAGIC;
}

/* Rootless: our own cgroup, from "0::/path" in /proc/self/cgroup. A process that was moved to
 * ".../supervisor" by an earlier run belongs to the parent. */
static void find_delegated(struct cgroup_host *h, const char *mount)
{
	char text[4096], *line, *end;

	if (fd_read_file(AT_FDCWD, "/proc/self/cgroup", text, sizeof text) < 0)
		return;
	line = strncmp(text, "0::", 3) == 0 ? text : strstr(text, "\n0::");
	if (!line)
		return;
	line = strstr(line, "0::") + 3;
	line[strcspn(line, "\n")] = '\0';
	end = strrchr(line, '/');
	if (end && strcmp(end, "/supervisor") == 0)
		*end = '\0';
	if (snprintf(h->unified, sizeof h->unified, "%s%s", mount, strcmp(line, "/") ? line : "") >=
	    (int)sizeof h->unified)
		h->unified[0] = '\0';
}

/* Is this word one of the blank-separated ones? "cpu" is not in "cpuset". */
static bool has_word(const char *text, const char *word)
{
	size_t n = strlen(word);

	for (const char *p = text; *p; p += strspn(p, " \n")) {
		size_t m = strcspn(p, " \n");

		if (m == n && memcmp(p, word, n) == 0)
			return true;
		p += m;
	}
	return false;
}

static bool has_controllers(const struct cgroup_host *h)
{
	static const char *const needed[] = {"memory", "pids", "cpu"};
	char path[sizeof h->unified + 32], text[256];

	snprintf(path, sizeof path, "%s/cgroup.controllers", h->unified);
	if (fd_read_file(AT_FDCWD, path, text, sizeof text) < 0)
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(needed); i++)
		if (!has_word(text, needed[i]))
			return false;
	return true;
}

/* A cgroup below the user's manager belongs to the user whether or not systemd gave it away: then it
 * is systemd's to change, unless it says otherwise (newer managers do, by this attribute) or we asked
 * for it ourselves. */
static bool is_given_away(const struct cgroup_host *h)
{
	char manager[64], value[4];

	snprintf(manager, sizeof manager, "/user@%u.service/", geteuid());
	return getenv(CGROUP_SCOPE_MARK) || !strstr(h->unified, manager) ||
	       (getxattr(h->unified, "user.delegate", value, sizeof value) == 1 && value[0] == '1');
}

static void say_how_to_get_a_scope(struct cgroup_host *h)
{
	const char *runtime = getenv("XDG_RUNTIME_DIR");
	char path[512];

	snprintf(path, sizeof path, "%s/systemd/private", runtime ? runtime : "");
	if (runtime && access(path, F_OK) == 0)
		snprintf(h->why_not, sizeof h->why_not,
			 "this login's cgroup is not delegated to you: run it as "
			 "`systemd-run --user --scope -p Delegate=yes cloche ...`");
	else
		snprintf(
			h->why_not, sizeof h->why_not,
			"this login's cgroup is not delegated to you, and no systemd manager runs for "
			"you that could: as root, `loginctl enable-linger %u`, and set XDG_RUNTIME_DIR",
			geteuid());
}

static void find_rootless(struct cgroup_host *h)
{
	char path[sizeof h->unified + 32];
	bool writable;

	if (!is_cgroup2(MOUNT)) {
		snprintf(
			h->why_not, sizeof h->why_not,
			"an ordinary user cannot make cgroups on a cgroup v1 host: run as root, or boot "
			"with systemd.unified_cgroup_hierarchy=1");
		return;
	}
	find_delegated(h, MOUNT);
	snprintf(path, sizeof path, "%s/cgroup.subtree_control", h->unified);
	writable = h->unified[0] && access(h->unified, W_OK) == 0 && access(path, W_OK) == 0;
	h->may_be_delegated = !writable || !is_given_away(h);
	if (writable && (!h->may_be_delegated || has_controllers(h))) {
		h->version = CGROUP_V2;
		if (!has_controllers(h))
			snprintf(
				h->why_not, sizeof h->why_not,
				"not every controller is delegated to you: as root, put [Service] "
				"Delegate=cpu memory pids into "
				"/etc/systemd/system/user@.service.d/delegate.conf and log in again");
		return;
	}
	h->unified[0] = '\0';
	say_how_to_get_a_scope(h);
}

void cgroup_host_find(const struct places *places, struct cgroup_host *h)
{
	*h = (struct cgroup_host){0};
	if (places->rootless) {
		find_rootless(h);
		return;
	}
	if (is_cgroup2(MOUNT) && access(MOUNT, W_OK) < 0) {
		snprintf(h->why_not, sizeof h->why_not,
			 MOUNT ": is mounted read-only: mount it read-write");
		return;
	}
	if (is_cgroup2(MOUNT)) {
		h->version = CGROUP_V2;
		memcpy(h->unified, MOUNT "/cloche", sizeof MOUNT "/cloche");
		return;
	}
	if (is_cgroup2(MOUNT "/unified"))
		memcpy(h->unified, MOUNT "/unified/cloche", sizeof MOUNT "/unified/cloche");
	for (int i = 0; i < CONTROLLER_COUNT; i++) {
		if (i == FREEZER && h->unified[0])
			continue; /* the v2 tree kills better */
		if (access(v1_trees[i].path, W_OK) == 0) {
			h->version = CGROUP_V1;
			snprintf(h->v1[i], sizeof h->v1[i], "%s/cloche", v1_trees[i].path);
		} else if (!h->why_not[0]) {
			snprintf(h->why_not, sizeof h->why_not, "%s: %s", v1_trees[i].path,
				 errno == EROFS ? "is mounted read-only: mount it read-write"
						: "is not there: mount the cgroup controllers");
		}
	}
	if (h->version == CGROUP_NONE && !h->why_not[0])
		snprintf(h->why_not, sizeof h->why_not,
			 "no usable cgroup controllers below " MOUNT ": mount cgroup2 there");
}

static bool is_empty(int dir)
{
	char text[64];

	return fd_read_file(dir, "cgroup.procs", text, sizeof text) == 0;
}

/* One SIGKILL to every process listed; true if there was none. */
static bool kill_listed(int dir)
{
	_cleanup_close_ int fd = openat(dir, "cgroup.procs", O_RDONLY | O_CLOEXEC);
	FILE *f = fd < 0 ? NULL : fdopen(fd, "r");
	bool none = true;
	int pid;

	if (!f)
		return false;
	fd = -1;
	while (fscanf(f, "%d", &pid) == 1) {
		none = false;
		if (pid > 0)
			kill(pid, SIGKILL);
	}
	fclose(f);
	return none;
}

/* Without a v2 tree: freeze, so that nothing can fork away, kill, thaw. A frozen task dies only when
 * thawed. */
static void kill_v1(const int v1[CONTROLLER_COUNT])
{
	int by = v1[FREEZER] >= 0 ? v1[FREEZER] : v1[PIDS] >= 0 ? v1[PIDS] : v1[MEMORY];

	for (int i = 0; by >= 0 && i < 100; i++) {
		bool none;

		if (v1[FREEZER] >= 0)
			fd_write_file(v1[FREEZER], "freezer.state", "FROZEN");
		none = kill_listed(by);
		if (v1[FREEZER] >= 0)
			fd_write_file(v1[FREEZER], "freezer.state", "THAWED");
		if (none)
			return;
	}
}

void cgroup_kill(struct cgroup *c)
{
	if (c->v1[CPU] >= 0)
		fd_write_file(c->v1[CPU], "cpu.cfs_quota_us", "-1");
	else if (c->dir >= 0 && c->has[CPU])
		fd_write_file(c->dir, "cpu.max", "max");
	if (c->dir >= 0 && fd_write_file(c->dir, "cgroup.kill", "1") == 0)
		return;
	kill_v1(c->v1);
}

/* A process dies within milliseconds, or hangs in the kernel. */
#define CLEAR_LIMIT_US 1000000

/* Kill what is left in a directory and remove it. Waits for the kernel to let go, with a deadline. */
static int clear(const char *path)
{
	_cleanup_close_ int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	uint64_t deadline = now_us() + CLEAR_LIMIT_US;

	if (dir < 0)
		return errno == ENOENT ? 0 : -errno;
	for (;;) {
		if (rmdir(path) == 0 || errno == ENOENT)
			return 0;
		if (errno != EBUSY || now_us() > deadline)
			return -errno;
		if (fd_write_file(dir, "cgroup.kill", "1") < 0)
			(void)kill_listed(dir);
		while (!is_empty(dir) && now_us() < deadline)
			poll(NULL, 0, 1);
		poll(NULL, 0, 1);
	}
}

/* mkdir parent/name, making the parent or clearing a leftover when needed, and open it. */
static int make_dir(const char *parent, const char *name, int *ret_dir, struct err *e)
{
	char path[640];

	snprintf(path, sizeof path, "%s/%s", parent, name);
	if (mkdir(path, 0755) < 0) {
		int r = -errno;

		if (r == -ENOENT && (mkdir(parent, 0755) == 0 || errno == EEXIST))
			r = mkdir(path, 0755) < 0 ? -errno : 0;
		if (r == -EEXIST) {
			r = clear(path);
			if (r == 0)
				r = mkdir(path, 0755) < 0 ? -errno : 0;
		}
		if (r < 0)
			return err_set(e, -r, "make cgroup %s", path);
	}
	*ret_dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (*ret_dir < 0) {
		err_set(e, errno, "open cgroup %s", path);
		rmdir(path);
		return -1;
	}
	return 0;
}

#ifdef CLOCHE_MUTATION
static bool limit_is_off(const char *file)
{
	const char *off = getenv("CLOCHE_OFF");

	return off && ((strstr(off, "pids") && strncmp(file, "pids.", 5) == 0) ||
		       (strstr(off, "memory") && strncmp(file, "memory.", 7) == 0) ||
		       (strstr(off, "cpu") && strncmp(file, "cpu.", 4) == 0));
}
#else
static bool limit_is_off(const char *file)
{
	(void)file;
	return false;
}
#endif

/* Write one limit. Returns 1 when it is in force, 0 when it is missing and best effort was asked for. */
static int put_limit(int dir, const char *file, const char *value, bool best_effort, struct err *e)
{
	int r = limit_is_off(file) ? 0 : fd_write_file(dir, file, value);

	if (r == 0)
		return 1;
	/* What this host has no means for, not what just went wrong. */
	if (best_effort &&
	    (r == -ENOENT || r == -EACCES || r == -EPERM || r == -EROFS || r == -EOPNOTSUPP))
		return 0;
	return err_set(e, -r, "set %s to %s", file, value);
}

static bool host_has_swap(void)
{
	char text[512];

	/* a header line, then one line per swap area */
	return fd_read_file(AT_FDCWD, "/proc/swaps", text, sizeof text) != 0 &&
	       strchr(text, '\n') && strchr(text, '\n')[1];
}

static int limit_swap(struct cgroup *c, int dir, const char *file, uint64_t value,
		      const struct spec *s, struct err *e)
{
	char text[32];
	int r;

	snprintf(text, sizeof text, "%llu", (unsigned long long)value);
	/* A kernel without swap accounting on a host without swap has nothing to limit. */
	if (faccessat(dir, file, F_OK, 0) < 0 && !host_has_swap()) {
		c->host_without_swap = true;
		return 0;
	}
	r = put_limit(dir, file, text, s->best_effort, e);
	c->has_swap = r > 0;
	return r < 0 ? -1 : 0;
}

/* Controllers must be enabled in the parent for its children. The parent's own parent is the host's
 * root (root) or ours by delegation. */
static int enable_controllers(const struct cgroup_host *h, struct err *e)
{
	static const char *const wanted[] = {"+memory", "+pids", "+cpu"};
	char file[600];
	int failed = 0;

	snprintf(file, sizeof file, "%s/cgroup.subtree_control", h->unified);
	for (size_t i = 0; i < ARRAY_SIZE(wanted); i++) {
		int r = fd_write_file(AT_FDCWD, file, wanted[i]);

		if (r == 0 || failed)
			continue;
		if (h->why_not[0])
			failed = err_set(e, -r, "the %s controller: %s", wanted[i] + 1, h->why_not);
		else
			failed = err_set(e, -r, "enable the %s controller in %s", wanted[i] + 1,
					 file);
	}
	return failed;
}

/* A cgroup with processes of its own cannot give controllers to children: all of them - this one, and
 * the shell it was started from - step aside into a leaf first. */
static int step_aside(const struct cgroup_host *h, struct err *e)
{
	char path[600], pids[16384], *save = NULL;
	_cleanup_close_ int leaf = -1;

	snprintf(path, sizeof path, "%s/supervisor", h->unified);
	if (mkdir(path, 0755) < 0 && errno != EEXIST)
		return err_set(e, errno, "make cgroup %s", path);
	leaf = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (leaf < 0)
		return err_set(e, errno, "open cgroup %s", path);
	snprintf(path, sizeof path, "%s/cgroup.procs", h->unified);
	if (fd_read_file(AT_FDCWD, path, pids, sizeof pids) < 0)
		return err_set(e, errno, "read %s", path);
	for (char *pid = strtok_r(pids, "\n", &save); pid; pid = strtok_r(NULL, "\n", &save)) {
		int r = fd_write_file(leaf, "cgroup.procs", pid);

		if (r < 0 && r != -ESRCH)
			return err_set(e, -r, "move process %s to %s/supervisor", pid, h->unified);
	}
	return 0;
}

/* Whoever steps aside may have forked meanwhile, and the child is still where it was: again. */
static int step_aside_and_enable(const struct cgroup_host *h, struct err *e)
{
	for (int i = 0;; i++) {
		if (step_aside(h, e) < 0)
			return -1;
		if (enable_controllers(h, e) == 0)
			return 0;
		if (e->errnum != EBUSY || i == STEP_ASIDE_TRIES)
			return -1;
		*e = (struct err){0};
	}
}

static int prepare_v2_parent(const struct cgroup_host *h, bool rootless, struct err *e)
{
	const struct cgroup_host top = {.unified = MOUNT};
	char text[256], file[600];

	snprintf(file, sizeof file, "%s/cgroup.subtree_control", h->unified);
	if (fd_read_file(AT_FDCWD, file, text, sizeof text) >= 0 && has_word(text, "memory") &&
	    has_word(text, "pids") && has_word(text, "cpu"))
		return 0;
	if (rootless)
		return step_aside_and_enable(h, e);
	if (mkdir(h->unified, 0755) < 0 && errno != EEXIST)
		return err_set(e, errno, "make cgroup %s", h->unified);
	/* In a container the root of what we see has processes in it, which is not the real root's
	 * privilege: they step aside. */
	if (enable_controllers(&top, e) < 0 &&
	    (e->errnum != EBUSY || step_aside_and_enable(&top, e) < 0))
		return -1;
	return enable_controllers(h, e);
}

static int limit_v2(struct cgroup *c, const struct spec *s, struct err *e)
{
	char memory[32], pids[32], cpu[64];
	const struct {
		enum controller controller;
		const char *file, *value;
	} limits[] = {
		{MEMORY, "memory.max", memory}, {PIDS, "pids.max", pids}, {CPU, "cpu.max", cpu}};

	snprintf(memory, sizeof memory, "%llu", (unsigned long long)s->memory_bytes);
	snprintf(pids, sizeof pids, "%llu",
		 (unsigned long long)s->pids_limit + 1); /* and our init */
	snprintf(cpu, sizeof cpu, "%llu %d",
		 (unsigned long long)s->cpus_millis * (PERIOD_US / 1000), PERIOD_US);
	for (size_t i = 0; i < ARRAY_SIZE(limits); i++) {
		int r = put_limit(c->dir, limits[i].file, limits[i].value, s->best_effort, e);

		if (r < 0)
			return -1;
		c->has[limits[i].controller] = r;
	}
	return limit_swap(c, c->dir, "memory.swap.max", s->memory_swap_bytes - s->memory_bytes, s,
			  e);
}

void cgroup_name(char name[32], uint32_t slot, uint32_t realm)
{
	snprintf(name, 32, "%u-%08x", slot, realm);
}

int cgroup_create(const struct cgroup_host *host, const struct slot *slot, const struct spec *s,
		  struct cgroup *ret, struct err *e)
{
	struct cgroup c = {.host = host,
			   .dir = -1,
			   .v1 = {-1, -1, -1, -1, -1},
			   .memory_limit = s->memory_bytes};
	bool rootless = geteuid() != 0;

	cgroup_name(c.name, slot->number, slot->realm);
	*ret = c;
	if (host->version == CGROUP_NONE && !s->best_effort)
		return err_set(e, 0, "limits cannot be enforced: %s", host->why_not);
	if (!host->unified[0])
		return 0;
	if (host->version == CGROUP_V2 && prepare_v2_parent(host, rootless, e) < 0 &&
	    !s->best_effort)
		return -1;
	if (make_dir(host->unified, c.name, &ret->dir, e) < 0)
		return -1;
	return host->version == CGROUP_V2 ? limit_v2(ret, s, e) : 0;
}

/* v1 counts what sockets buffer apart, and not at all without this limit; v2 counts it as memory. So a part of the
 * memory limit, beside it. */
#define SOCKETS_FILE        "memory.kmem.tcp.limit_in_bytes"
#define SOCKETS_PART        8
#define SOCKETS_LEAST_BYTES (4u << 20)

static uint64_t socket_bytes(const struct spec *s)
{
	uint64_t part = s->memory_bytes / SOCKETS_PART / 4096 * 4096; /* as it is read back */

	return part < SOCKETS_LEAST_BYTES ? SOCKETS_LEAST_BYTES : part;
}

/* A kernel without it has no TCP (CONFIG_INET). */
static int limit_sockets(struct cgroup *c, const struct spec *s, struct err *e)
{
	char text[32];

	if (faccessat(c->v1[MEMORY], SOCKETS_FILE, F_OK, 0) < 0)
		return 0;
	snprintf(text, sizeof text, "%llu", (unsigned long long)socket_bytes(s));
	return put_limit(c->v1[MEMORY], SOCKETS_FILE, text, s->best_effort, e) < 0 ? -1 : 0;
}

static int limit_v1(struct cgroup *c, enum controller i, const struct spec *s, struct err *e)
{
	char text[32];
	int r = 1;

	switch (i) {
	case MEMORY: /* a new cgroup: memory first, then memory and swap together, which is never lower */
		snprintf(text, sizeof text, "%llu", (unsigned long long)s->memory_bytes);
		r = put_limit(c->v1[i], "memory.limit_in_bytes", text, s->best_effort, e);
		if (r >= 0 && limit_swap(c, c->v1[i], "memory.memsw.limit_in_bytes",
					 s->memory_swap_bytes, s, e) < 0)
			return -1;
		if (r >= 0 && limit_sockets(c, s, e) < 0)
			return -1;
		break;
	case CPU:
		snprintf(text, sizeof text, "%llu",
			 (unsigned long long)s->cpus_millis * (PERIOD_US / 1000));
		r = put_limit(c->v1[i], "cpu.cfs_quota_us", text, s->best_effort, e);
		break;
	case PIDS:
		snprintf(text, sizeof text, "%llu", (unsigned long long)s->pids_limit + 1);
		r = put_limit(c->v1[i], "pids.max", text, s->best_effort, e);
		break;
	default:
		break;
	}
	c->has[i] = r > 0;
	return r < 0 ? -1 : 0;
}

/* cpu and cpuacct are one tree on most hosts: the second name leads to the same directory. */
static bool same_as_cpu(const struct cgroup *c)
{
	struct stat a, b;

	return c->v1[CPU] >= 0 && stat(v1_trees[CPU].path, &a) == 0 &&
	       stat(v1_trees[CPUACCT].path, &b) == 0 && a.st_dev == b.st_dev &&
	       a.st_ino == b.st_ino;
}

int cgroup_create_v1(struct cgroup *c, const struct spec *s, int *ret_fds, size_t *ret_count,
		     struct err *e)
{
	*ret_count = 0;
	if (c->host->version != CGROUP_V1)
		return 0;
	for (int i = 0; i < CONTROLLER_COUNT; i++) {
		if (!c->host->v1[i][0]) {
			if ((i == FREEZER && c->dir >= 0) || i == CPUACCT || s->best_effort)
				continue;
			return err_set(e, 0, "limits cannot be enforced: %s", c->host->why_not);
		}
		if (i == CPUACCT && same_as_cpu(c)) {
			if (c->v1[i] < 0)
				c->v1[i] = fcntl(c->v1[CPU], F_DUPFD_CLOEXEC, 0);
			continue;
		}
		if (c->v1[i] < 0 && make_dir(c->host->v1[i], c->name, &c->v1[i], e) < 0)
			return -1;
		if (limit_v1(c, i, s, e) < 0)
			return -1;
		ret_fds[*ret_count] = openat(c->v1[i], "tasks", O_WRONLY | O_CLOEXEC);
		if (ret_fds[*ret_count] < 0)
			return err_set(e, errno, "open tasks of cgroup %s/%s", c->host->v1[i],
				       c->name);
		(*ret_count)++;
	}
	return 0;
}

static int open_dir(const char *parent, const char *name)
{
	char path[640];

	if (!parent[0])
		return -1;
	snprintf(path, sizeof path, "%s/%s", parent, name);
	return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

void cgroup_open(const struct cgroup_host *host, const char *name, uint64_t memory_limit,
		 struct cgroup *ret)
{
	*ret = (struct cgroup){.host = host, .memory_limit = memory_limit};
	snprintf(ret->name, sizeof ret->name, "%s", name);
	ret->dir = open_dir(host->unified, name);
	for (int i = 0; i < CONTROLLER_COUNT; i++) {
		ret->v1[i] = open_dir(host->v1[i], name);
		ret->has[i] = host->version == CGROUP_V2 ? ret->dir >= 0 : ret->v1[i] >= 0;
	}
}

void cgroup_close(struct cgroup *c)
{
	fd_close(&c->dir);
	for (int i = 0; i < CONTROLLER_COUNT; i++)
		fd_close(&c->v1[i]);
}

/* Page cache and kernel memory of the dead that nobody has freed would be the next one's peak. */
#define TAKE_OVER_BYTES (1u << 20)
/* An init and a command: what no sandbox can be without. */
#define TAKE_OVER_PIDS 2

/* v1: what it shows is the limits. Others would have to be written in an order that depends on the old ones. */
static bool has_limits(const struct cgroup *c, const struct spec *s)
{
	uint64_t swap = cgroup_count(c->v1[MEMORY], "memory.memsw.limit_in_bytes", "");
	uint64_t sockets = cgroup_count(c->v1[MEMORY], SOCKETS_FILE, "");

	return (sockets == UINT64_MAX || sockets == socket_bytes(s)) &&
	       cgroup_count(c->v1[MEMORY], "memory.limit_in_bytes", "") == s->memory_bytes &&
	       (swap == UINT64_MAX || swap == s->memory_swap_bytes) &&
	       cgroup_count(c->v1[PIDS], "pids.max", "") == s->pids_limit + 1;
}

static bool shows_nothing(const struct cgroup *c)
{
	uint64_t peak = cgroup_count(c->v1[PIDS], "pids.peak", "");
	uint64_t sockets = cgroup_count(c->v1[MEMORY], "memory.kmem.tcp.usage_in_bytes", "");

	return is_empty(c->v1[PIDS]) && is_empty(c->v1[MEMORY]) &&
	       cgroup_count(c->v1[PIDS], "pids.events", "max") == 0 &&
	       (peak == UINT64_MAX || peak <= TAKE_OVER_PIDS) &&
	       cgroup_count(c->v1[MEMORY], "memory.oom_control", "oom_kill") == 0 &&
	       cgroup_count(c->v1[MEMORY], "memory.usage_in_bytes", "") < TAKE_OVER_BYTES &&
	       (sockets == 0 || sockets == UINT64_MAX);
}

static bool begin_anew(const struct cgroup *c)
{
	int swap = fd_write_file(c->v1[MEMORY], "memory.memsw.max_usage_in_bytes", "0");

	return fd_write_file(c->v1[MEMORY], "memory.max_usage_in_bytes", "0") == 0 &&
	       (swap == 0 || swap == -ENOENT) &&
	       fd_write_file(c->v1[CPUACCT], "cpuacct.usage", "0") == 0;
}

/* The v2 directory is always a new one: who is born in one that was killed once is killed, too (Linux 6.18 compares
 * the count of kills with that of the parent's cgroup). */
void cgroup_take_over(struct cgroup *c, const struct spec *s)
{
	bool all = c->host->version == CGROUP_V1 && c->dir >= 0 && !s->best_effort;

	for (int i = 0; all && i < CONTROLLER_COUNT; i++)
		if (i != FREEZER) {
			c->v1[i] = open_dir(c->host->v1[i], c->name);
			all = c->v1[i] >= 0;
		}
	if (all && has_limits(c, s) && shows_nothing(c) && begin_anew(c))
		return;
	for (int i = 0; i < CONTROLLER_COUNT; i++) {
		char path[640];

		fd_close(&c->v1[i]);
		snprintf(path, sizeof path, "%s/%s", c->host->v1[i], c->name);
		if (c->host->v1[i][0])
			rmdir(path); /* what cannot go yet is waited for by who makes it anew */
	}
}

int cgroup_remove(const struct cgroup_host *host, const char *name)
{
	char path[640];
	int r = 0;

	/* The tree that tells of the others goes last (cgroup_sweep). */
	for (int i = CONTROLLER_COUNT; i >= 0; i--) {
		const char *parent = i > 0 ? host->v1[i - 1] : host->unified;

		if (!parent[0] || (i == 0 && r < 0))
			continue;
		snprintf(path, sizeof path, "%s/%s", parent, name);
		if (rmdir(path) < 0 && errno != ENOENT)
			r = -errno;
	}
	return r;
}

/* A cgroup can stay busy for a moment after its last process was reaped. */
static int remove_dir(const char *parent, const char *name, struct err *e)
{
	char path[640];
	int r;

	snprintf(path, sizeof path, "%s/%s", parent, name);
	if (rmdir(path) == 0 || errno == ENOENT)
		return 0;
	r = clear(path);
	return r < 0 ? err_set(e, -r, "remove cgroup %s", path) : 0;
}

int cgroup_destroy(struct cgroup *c, struct err *e)
{
	int result = 0;

	for (int i = CONTROLLER_COUNT - 1; i >= 0; i--) {
		if (c->v1[i] < 0)
			continue;
		fd_close(&c->v1[i]);
		if (remove_dir(c->host->v1[i], c->name, e) < 0)
			result = -1;
	}
	if (c->dir >= 0) {
		fd_close(&c->dir);
		if (remove_dir(c->host->unified, c->name, e) < 0)
			result = -1;
	}
	return result;
}

/* The slot a directory of ours is named after, or -1. */
static int64_t slot_of(const char *name, const char *realm)
{
	const char *dash = strchr(name, '-');
	char number[16];
	uint64_t n;

	if (!dash || strcmp(dash + 1, realm) != 0 || (size_t)(dash - name) >= sizeof number)
		return -1;
	memcpy(number, name, (size_t)(dash - name));
	number[dash - name] = '\0';
	return parse_count(number, 0, UINT32_MAX, &n) < 0 ? -1 : (int64_t)n;
}

/* A slot that nobody holds: whatever its directories still have in them is killed, and they go; the one
 * that tells of the others goes last. */
static void sweep_slot(const struct cgroup_host *host, const char *name)
{
	char path[640];

	if (host->unified[0]) {
		snprintf(path, sizeof path, "%s/%.30s/cgroup.kill", host->unified, name);
		fd_write_file(AT_FDCWD, path, "1");
	}
	for (int i = CONTROLLER_COUNT - 1; i >= 0; i--) {
		if (!host->v1[i][0])
			continue;
		snprintf(path, sizeof path, "%s/%.30s", host->v1[i], name);
		clear(path);
	}
	if (host->unified[0]) {
		snprintf(path, sizeof path, "%s/%.30s", host->unified, name);
		clear(path);
	}
}

/* One tree tells of all: a run's directory in it is made first and removed last. */
void cgroup_sweep(const struct cgroup_host *host, const struct places *places)
{
	const char *parent = host->unified[0] ? host->unified : host->v1[MEMORY];
	struct dirent *entry;
	struct err ignored;
	char realm[16];
	struct stat st;
	uint32_t id;
	DIR *d;

	/* Two links and one for each folder in it: most often there is none. */
	if (!parent[0] || stat(parent, &st) < 0 || st.st_nlink == 2 ||
	    slot_realm(places, &id, &ignored) < 0)
		return;
	snprintf(realm, sizeof realm, "%08x", id);
	d = opendir(parent);
	while (d && (entry = readdir(d))) {
		int64_t slot = entry->d_type == DT_DIR ? slot_of(entry->d_name, realm) : -1;
		_cleanup_close_ int lock = -1;

		if (slot < 0 || slot_try(places, (uint32_t)slot, &lock) < 0)
			continue; /* alive, or not ours to judge */
		sweep_slot(host, entry->d_name);
	}
	if (d)
		closedir(d);
}
