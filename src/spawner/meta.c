/* SPDX-License-Identifier: Apache-2.0 */
#include "spawner/meta.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "spawner/check.h"

#define MAGIC   "cloche\1"
#define VERSION 1

/* FNV-1a: against accidents, not against root. */
static uint64_t sum_of(const struct meta *m)
{
	const unsigned char *p = (const unsigned char *)m;
	uint64_t h = 0xcbf29ce484222325ull;

	for (size_t i = 0; i < offsetof(struct meta, sum); i++)
		h = (h ^ p[i]) * 0x100000001b3ull;
	return h;
}

static int read_boot_id(char id[40])
{
	ssize_t n = fd_read_file(AT_FDCWD, "/proc/sys/kernel/random/boot_id", id, 40);

	if (n < 0)
		return (int)n;
	id[strcspn(id, "\n")] = '\0';
	return 0;
}

/* Field 22, counted from behind the name, which may hold anything. */
int process_start_ticks(pid_t pid, uint64_t *ret)
{
	char path[32], text[1024], *p;
	ssize_t n;

	snprintf(path, sizeof path, "/proc/%d/stat", pid);
	n = fd_read_file(AT_FDCWD, path, text, sizeof text);
	if (n < 0)
		return (int)n;
	p = strrchr(text, ')');
	for (int field = 2; p && field < 22; field++) {
		p = strchr(p + 1, ' ');
	}
	if (!p)
		return -EBADMSG;
	*ret = strtoull(p + 1, NULL, 10);
	return 0;
}

static void fill_enforced(struct spawner_created *c, const struct enforced *f)
{
#define COPY(field) snprintf(c->enforced.field, sizeof c->enforced.field, "%s", f->field)
	COPY(memory);
	COPY(swap);
	COPY(cpu);
	COPY(pids);
	COPY(network);
	COPY(rootfs);
	COPY(disk);
	COPY(capabilities);
	COPY(seccomp);
#undef COPY
	c->enforced.rootless = f->rootless;
	c->enforced.user_namespace = f->user_namespace;
	c->enforced.uid = f->uid;
	c->enforced.no_new_privs = f->no_new_privs;
	c->enforced.landlock = (uint32_t)f->landlock;
}

static void fill_path(char *field, size_t size, const char *parent, const char *name,
		      const char *file)
{
	if (!parent[0] || snprintf(field, size, "%s/%s/%s", parent, name, file) >= (int)size)
		field[0] = '\0';
}

/* Files that may be read by anybody: the service counts without asking. */
static void fill_paths(struct spawner_created *c, const struct cgroup_host *host, const char *name)
{
	bool v2 = host->version == CGROUP_V2;

	fill_path(c->memory_events, sizeof c->memory_events, v2 ? host->unified : host->v1[MEMORY],
		  name, v2 ? "memory.events" : "memory.oom_control");
	fill_path(c->pids_events, sizeof c->pids_events, v2 ? host->unified : host->v1[PIDS], name,
		  "pids.events");
	fill_path(c->cpu_usage, sizeof c->cpu_usage, v2 ? host->unified : host->v1[CPUACCT], name,
		  v2 ? "cpu.stat" : "cpuacct.usage");
}

int meta_fill(struct meta *m, const struct kept_sandbox *made, const struct cgroup_host *host,
	      const char *id, uint64_t memory_bytes)
{
	struct timespec t;
	char name[32];
	int r;

	*m = (struct meta){.magic = MAGIC,
			   .version = VERSION,
			   .size = sizeof *m,
			   .slot = made->slot.number,
			   .realm = made->slot.realm,
			   .memory_bytes = memory_bytes};
	r = read_boot_id(m->boot_id);
	if (r == 0)
		r = process_start_ticks(made->pid, &m->start_ticks);
	if (r < 0)
		return r;
	clock_gettime(CLOCK_BOOTTIME, &t);
	m->started_ms = (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
	snprintf(m->created.id, sizeof m->created.id, "%s", id);
	m->created.pid = (uint32_t)made->pid;
	if (made->listeners.count)
		m->created.capture = made->listeners.redirect ? 2 : 1;
	cgroup_name(name, m->slot, m->realm);
	fill_paths(&m->created, host, name);
	fill_enforced(&m->created, &made->enforced);
	m->sum = sum_of(m);
	return 0;
}

static int write_whole(int folder, const char *name, const void *data, size_t size)
{
	_cleanup_close_ int fd =
		openat(folder, "new", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	int r;

	if (fd < 0)
		return -errno;
	r = fd_write_all(fd, data, size);
	if (r < 0)
		return r;
	return renameat(folder, "new", folder, name) < 0 ? -errno : 0;
}

int meta_write(int folder, const struct meta *m)
{
	return write_whole(folder, "meta", m, sizeof *m);
}

int ended_write(int folder, const struct spawner_ended *ended)
{
	int r = write_whole(folder, "ended", ended, sizeof *ended);

	if (r < 0)
		return r;
	unlinkat(folder, "ctl", 0);
	unlinkat(folder, "meta", 0);
	return 0;
}

int ended_read(int folder, const char *id, struct spawner_ended *ret)
{
	_cleanup_close_ int fd = openat(folder, "ended", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	char data[sizeof *ret + 1];
	ssize_t n;

	if (fd < 0)
		return -errno;
	n = fd_read_all(fd, data, sizeof data);
	if (n < 0)
		return (int)n;
	if (n != sizeof *ret)
		return -EBADMSG;
	memcpy(ret, data, sizeof *ret);
	if (ret->header.type != SPAWNER_ENDED || ret->header.sequence != 0 ||
	    !sandbox_id_ok(ret->id) || strcmp(ret->id, id) != 0)
		return -EBADMSG;
	return 0;
}

static bool ends(const char *field, size_t size)
{
	return strnlen(field, size) < size;
}

/* Every string of it will be sent on and used. */
static bool texts_end(const struct spawner_created *c)
{
	return ends(c->memory_events, sizeof c->memory_events) &&
	       ends(c->pids_events, sizeof c->pids_events) &&
	       ends(c->cpu_usage, sizeof c->cpu_usage) &&
	       ends(c->enforced.memory, sizeof c->enforced.memory) &&
	       ends(c->enforced.swap, sizeof c->enforced.swap) &&
	       ends(c->enforced.cpu, sizeof c->enforced.cpu) &&
	       ends(c->enforced.pids, sizeof c->enforced.pids) &&
	       ends(c->enforced.network, sizeof c->enforced.network) &&
	       ends(c->enforced.rootfs, sizeof c->enforced.rootfs) &&
	       ends(c->enforced.disk, sizeof c->enforced.disk) &&
	       ends(c->enforced.capabilities, sizeof c->enforced.capabilities) &&
	       ends(c->enforced.seccomp, sizeof c->enforced.seccomp);
}

int meta_check(const void *data, size_t size, const char *id, struct meta *ret)
{
	struct meta m;

	if (size != sizeof m)
		return -EBADMSG;
	memcpy(&m, data, sizeof m);
	if (memcmp(m.magic, MAGIC, sizeof m.magic) != 0 || m.version != VERSION ||
	    m.size != sizeof m || m.sum != sum_of(&m))
		return -EBADMSG;
	if (!sandbox_id_ok(m.created.id) || strcmp(m.created.id, id) != 0 || m.created.pid < 2 ||
	    m.created.pid > INT32_MAX || m.created.capture > 2 ||
	    !ends(m.boot_id, sizeof m.boot_id) || !texts_end(&m.created))
		return -EBADMSG;
	*ret = m;
	return 0;
}

int meta_read(int folder, const char *id, struct meta *ret)
{
	_cleanup_close_ int fd = openat(folder, "meta", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	char data[sizeof(struct meta) + 1];
	ssize_t n;

	if (fd < 0)
		return -errno;
	n = fd_read_all(fd, data, sizeof data);
	return n < 0 ? (int)n : meta_check(data, (size_t)n, id, ret);
}

/* The cgroup is going to be killed: it must be that process's own. */
static bool is_in_cgroup(pid_t pid, const char *name)
{
	char path[32], text[8192], end[40];

	snprintf(path, sizeof path, "/proc/%d/cgroup", pid);
	snprintf(end, sizeof end, "/%s\n", name);
	return fd_read_file(AT_FDCWD, path, text, sizeof text) >= 0 && strstr(text, end);
}

/* Its slot's lock is held, and by init: share it, so that the slot is ours beyond its death. */
static int share_lock(const struct meta *m, const struct places *places, int pidfd, int *ret_lock)
{
	char path[sizeof places->runtime + 32];
	_cleanup_close_ int own = -1;
	struct stat a, b;

	if (slot_try(places, m->slot, &own) != -EWOULDBLOCK)
		return -EBADMSG;
	own = (int)syscall(SYS_pidfd_getfd, pidfd, INIT_LOCK_FD, 0);
	snprintf(path, sizeof path, "%s/slots/%u", places->runtime, m->slot);
	if (own >= 0 && (fstat(own, &a) < 0 || stat(path, &b) < 0 || a.st_dev != b.st_dev ||
			 a.st_ino != b.st_ino))
		return -EBADMSG;
	*ret_lock = TAKE_FD(own);
	return 0;
}

int meta_adopt(const struct meta *m, const struct places *places, int *ret_pidfd, int *ret_lock)
{
	_cleanup_close_ int pidfd = -1;
	pid_t pid = (pid_t)m->created.pid;
	char boot_id[40], name[32];
	struct pollfd p;
	struct err ignored;
	uint64_t ticks;
	uint32_t realm;
	int r;

	if (read_boot_id(boot_id) < 0 || strcmp(boot_id, m->boot_id) != 0)
		return -ESRCH;
	pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (pidfd < 0)
		return errno == ESRCH || errno == EINVAL ? -ESRCH : -errno;
	r = process_start_ticks(pid, &ticks);
	if (r < 0 && r != -ENOENT && r != -ESRCH)
		return r;
	if (r < 0 || ticks != m->start_ticks)
		return -ESRCH;
	p = (struct pollfd){.fd = pidfd, .events = POLLIN};
	if (poll(&p, 1, 0) != 0)
		return -ESRCH;
	cgroup_name(name, m->slot, m->realm);
	if (slot_realm(places, &realm, &ignored) < 0 || realm != m->realm ||
	    !is_in_cgroup(pid, name) || share_lock(m, places, pidfd, ret_lock) < 0)
		return -EBADMSG;
	*ret_pidfd = TAKE_FD(pidfd);
	return 0;
}
