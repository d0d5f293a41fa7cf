/* SPDX-License-Identifier: Apache-2.0 */
/*
 * box.c - the life of a sandbox in the spawner: found, killed, frozen, counted, cleaned, remembered.
 *
 * Its cgroup is opened by name for each use, so that an idle sandbox costs two descriptors. All files
 * written to are the kernel's and answer at once; what takes time (a death, a freeze, a cgroup that is
 * still busy) is waited for in the epoll or by the list of busy boxes.
 */
#include "spawner/spawner.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"

/* A v1 freezer tells nobody when it is done, and a cgroup not when it can be removed. */
enum { RETRY_MS = 4 };

static struct box **bucket_of(const struct spawner *s, const char *id)
{
	unsigned h = 2166136261u;

	for (const char *p = id; *p; p++)
		h = (h ^ (unsigned char)*p) * 16777619u;
	return (struct box **)(uintptr_t)&s->buckets[h % BOX_BUCKETS];
}

struct box *box_find(const struct spawner *s, const char *id)
{
	for (struct box *b = *bucket_of(s, id); b; b = b->next)
		if (strcmp(b->meta.created.id, id) == 0)
			return b;
	return NULL;
}

struct box *box_find_pid(const struct spawner *s, pid_t pid)
{
	for (size_t i = 0; i < BOX_BUCKETS; i++)
		for (struct box *b = s->buckets[i]; b; b = b->next)
			if ((pid_t)b->meta.created.pid == pid)
				return b;
	return NULL;
}

/* ---- the list of those that wait for a time */

static void busy_add(struct spawner *s, struct box *b)
{
	if (b->busy)
		return;
	b->busy = true;
	b->busy_before = NULL;
	b->busy_next = s->busy;
	if (s->busy)
		s->busy->busy_before = b;
	s->busy = b;
}

static void busy_remove(struct spawner *s, struct box *b)
{
	if (!b->busy)
		return;
	b->busy = false;
	if (b->busy_before)
		b->busy_before->busy_next = b->busy_next;
	else
		s->busy = b->busy_next;
	if (b->busy_next)
		b->busy_next->busy_before = b->busy_before;
}

/* ---- cgroups */

static void open_cgroup(const struct spawner *s, const struct box *b, struct cgroup *ret)
{
	char name[32];

	cgroup_name(name, b->meta.slot, b->meta.realm);
	cgroup_open(b->elsewhere ?: &s->host, name, b->meta.memory_bytes, ret);
}

/* An ordinary user's sandboxes lie below the cgroup that their service ran in, and an earlier one may have
 * run in another: a terminal's, or a scope of its own. */
static struct cgroup_host *find_elsewhere(const struct spawner *s, const struct meta *m)
{
	const char *path = m->created.memory_events;
	struct cgroup_host *host;
	char end[64], name[32];
	size_t n = strlen(path), of_end;

	cgroup_name(name, m->slot, m->realm);
	of_end = (size_t)snprintf(end, sizeof end, "/%s/memory.events", name);
	if (!s->places.rootless || s->host.version != CGROUP_V2 || n <= of_end ||
	    n - of_end >= sizeof host->unified || strcmp(path + n - of_end, end) != 0 ||
	    (strlen(s->host.unified) == n - of_end &&
	     memcmp(path, s->host.unified, n - of_end) == 0))
		return NULL;
	host = malloc(sizeof *host);
	if (!host)
		return NULL;
	*host = s->host;
	memcpy(host->unified, path, n - of_end);
	host->unified[n - of_end] = '\0';
	return host;
}

static void count(const struct spawner *s, const struct box *b, struct spawner_counters *ret)
{
	struct cgroup_counters c;
	struct cgroup g;

	open_cgroup(s, b, &g);
	cgroup_read(&g, &c);
	*ret = (struct spawner_counters){
		.oom_kills = c.oom_kills,
		.cpu_us = c.cpu_us,
		.memory_peak_bytes = c.memory_peak_bytes,
		.pids_peak = c.pids_peak,
		.memory_hit = c.memory_hit,
		.pids_hit = c.pids_hit,
	};
	cgroup_read_now(&g, &ret->memory_bytes, &ret->pids);
	cgroup_close(&g);
}

/* Through the v2 tree even on a hybrid host: what is frozen there dies at once when killed. */
static bool has_v2_freezer(const struct cgroup *g)
{
	return g->dir >= 0;
}

static int write_freeze(const struct cgroup *g, bool freeze)
{
	if (has_v2_freezer(g))
		return fd_write_file(g->dir, "cgroup.freeze", freeze ? "1" : "0");
	if (g->v1[FREEZER] < 0)
		return -EOPNOTSUPP;
	return fd_write_file(g->v1[FREEZER], "freezer.state", freeze ? "FROZEN" : "THAWED");
}

/* Reading also makes a v1 freezer try again. */
static bool is_frozen(const struct cgroup *g)
{
	char text[256];

	if (has_v2_freezer(g))
		return fd_read_file(g->dir, "cgroup.events", text, sizeof text) >= 0 &&
		       strstr(text, "frozen 1");
	return g->v1[FREEZER] >= 0 &&
	       fd_read_file(g->v1[FREEZER], "freezer.state", text, sizeof text) >= 0 &&
	       strncmp(text, "FROZEN", 6) == 0;
}

void box_kill(struct box *b, const struct spawner *s)
{
	struct cgroup g;

	b->killed = true;
	if (b->pidfd < 0)
		return;
	open_cgroup(s, b, &g);
	cgroup_kill(&g);
	cgroup_close(&g);
	syscall(SYS_pidfd_send_signal, b->pidfd, SIGKILL, NULL, 0);
}

bool boxes_are_dying(const struct spawner *s)
{
	for (size_t i = 0; i < BOX_BUCKETS; i++)
		for (const struct box *b = s->buckets[i]; b; b = b->next)
			if (b->killed || b->state == BOX_CLEANING)
				return true;
	return false;
}

void box_discard(struct box *b)
{
	b->killed = b->discarded = true;
	if (b->pidfd >= 0)
		syscall(SYS_pidfd_send_signal, b->pidfd, SIGKILL, NULL, 0);
}

/* ---- pause */

static void freeze_over(struct spawner *s, struct box *b, const char *failed, int errnum)
{
	uint32_t sequence = b->freeze_sequence;
	struct err e = {0};

	spawner_unwatch(s, &b->freeze_fd);
	b->freeze_sequence = 0;
	if (b->state == BOX_LIVE)
		busy_remove(s, b);
	if (!sequence)
		return;
	if (!failed) {
		client_done(s, b->freeze_client, sequence);
		return;
	}
	err_set(&e, errnum, "pause %s: %s", b->meta.created.id, failed);
	client_refuse(s, b->freeze_client, sequence, &e);
}

static void set_frozen(struct spawner *s, struct box *b, bool frozen)
{
	struct cgroup g;

	open_cgroup(s, b, &g);
	write_freeze(&g, frozen);
	cgroup_close(&g);
	b->frozen = frozen;
}

static void look_at_freeze(struct spawner *s, struct box *b, uint64_t now)
{
	struct cgroup g;
	bool frozen;

	open_cgroup(s, b, &g);
	frozen = is_frozen(&g);
	cgroup_close(&g);
	b->next_ms = b->freeze_fd >= 0 ? b->deadline_ms : now + RETRY_MS;
	if (frozen) {
		freeze_over(s, b, NULL, 0);
	} else if (now >= b->deadline_ms) {
		set_frozen(s, b, false);
		freeze_over(s, b, "something in it cannot be frozen", EBUSY);
	}
}

void box_freeze_event(struct spawner *s, struct box *b)
{
	look_at_freeze(s, b, now_ms());
}

void box_pause(struct spawner *s, struct box *b, uint32_t sequence)
{
	struct cgroup g;
	int r;

	if (b->freeze_sequence || b->killed) {
		struct err e = {0};

		err_set(&e, EAGAIN, "pause %s: %s", b->meta.created.id,
			b->killed ? "it is being killed" : "it is being paused");
		client_refuse(s, s->client_number, sequence, &e);
		return;
	}
	b->freeze_sequence = sequence;
	b->freeze_client = s->client_number;
	open_cgroup(s, b, &g);
	if (has_v2_freezer(&g))
		b->freeze_fd = openat(g.dir, "cgroup.events", O_RDONLY | O_CLOEXEC);
	r = write_freeze(&g, true);
	cgroup_close(&g);
	if (r < 0) {
		freeze_over(s, b, "no freezer", -r);
		return;
	}
	b->frozen = true;
	b->deadline_ms = now_ms() + FREEZE_DEADLINE_MS;
	b->freeze_source.kind = SOURCE_FREEZE;
	if (b->freeze_fd >= 0 &&
	    spawner_watch(s, b->freeze_fd, &b->freeze_source, EPOLLPRI | EPOLLERR) < 0)
		fd_close(&b->freeze_fd); /* then by looking again and again */
	busy_add(s, b);
	look_at_freeze(s, b, now_ms());
}

void box_resume(struct spawner *s, struct box *b, uint32_t sequence)
{
	freeze_over(s, b, "it was resumed meanwhile", ECANCELED);
	set_frozen(s, b, false);
	client_done(s, s->client_number, sequence);
}

void box_stats(struct spawner *s, struct box *b, uint32_t sequence)
{
	struct spawner_stats m = {
		.header = {SPAWNER_STATS_ARE, sequence},
		.paused = b->frozen && !b->freeze_sequence,
	};

	memcpy(m.id, b->meta.created.id, sizeof m.id);
	count(s, b, &m.counters);
	client_send(s, s->client_number, &m, sizeof m);
}

/* ---- death */

struct end *end_find(const struct spawner *s, const char *id)
{
	struct end *x = s->ends;

	while (x && strcmp(x->ended.id, id) != 0)
		x = x->next;
	return x;
}

void end_release(struct spawner *s, const char *id)
{
	for (struct end **at = &s->ends; *at; at = &(*at)->next) {
		struct end *x = *at;

		if (strcmp(x->ended.id, id) != 0)
			continue;
		*at = x->next;
		if (!x->next)
			s->ends_end = at;
		worker_remove_folder(s->place.sandboxes, x->ended.id);
		free(x);
		s->end_count--;
		return;
	}
}

/* Remember the end until somebody has taken it; the oldest of too many is lost, aloud. */
static void end_add(struct spawner *s, const struct spawner_ended *ended)
{
	struct end *x = calloc(1, sizeof *x);
	char oldest[SANDBOX_ID_SIZE];

	if (!x) {
		fprintf(stderr,
			"cloche-spawner: out of memory: the end of %s waits for a restart\n",
			ended->id);
		return;
	}
	x->ended = *ended;
	if (s->end_count == ENDS_MAX) {
		memcpy(oldest, s->ends->ended.id, sizeof oldest);
		fprintf(stderr, "cloche-spawner: nobody has taken the end of %s: it is lost\n",
			oldest);
		end_release(s, oldest);
	}
	*s->ends_end = x;
	s->ends_end = &x->next;
	s->end_count++;
	if (s->greeted)
		client_send(s, s->client_number, &x->ended, sizeof x->ended);
}

/* What is left of it: how it ended, also for a spawner that comes later; nothing if nobody knew of it. */
static void box_ended(struct spawner *s, const struct box *b)
{
	const char *id = b->meta.created.id;
	struct spawner_ended ended = {
		.header = {SPAWNER_ENDED, 0},
		.known = b->reaped,
		.signaled = b->signaled,
		.status = (uint32_t)b->status,
		.killed = b->killed,
		.counters = b->counters,
	};
	_cleanup_close_ int folder = -1;
	int r;

	memcpy(ended.id, id, sizeof ended.id);
	if (b->silent || b->discarded) {
		worker_remove_folder(s->place.sandboxes, id);
		if (!b->silent && s->greeted)
			client_send(s, s->client_number, &ended, sizeof ended);
		return;
	}
	folder = openat(s->place.sandboxes, id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	r = folder < 0 ? -errno : ended_write(folder, &ended);
	if (r < 0)
		fprintf(stderr, "cloche-spawner: cannot keep the end of %s: %s\n", id,
			strerror(-r));
	end_add(s, &ended);
}

static void box_free(struct spawner *s, struct box *b)
{
	struct box **at = bucket_of(s, b->meta.created.id);

	busy_remove(s, b);
	while (*at != b)
		at = &(*at)->next;
	*at = b->next;
	spawner_unwatch(s, &b->pidfd);
	spawner_unwatch(s, &b->freeze_fd);
	if (b->nest)
		nests_box_gone(s, b->nest);
	fd_close(&b->lock); /* last: from here on the slot is anybody's */
	free(b->elsewhere);
	free(b);
	s->box_count--;
}

/* One try; a cgroup can be busy for a moment after its last process was reaped. */
static void clean(struct spawner *s, struct box *b, uint64_t now)
{
	char name[32];
	int r;

	cgroup_name(name, b->meta.slot, b->meta.realm);
	r = nests_keep_place(b) ? 0 : cgroup_remove(b->elsewhere ?: &s->host, name);
	if (r < 0 && now < b->deadline_ms) {
		b->next_ms = now + RETRY_MS;
		return;
	}
	if (r < 0) { /* whoever gets the slot next tries again */
		fprintf(stderr, "cloche-spawner: cgroup %s of %s: %s\n", name, b->meta.created.id,
			strerror(-r));
		s->sweep_ms = now + CLEAN_DEADLINE_MS;
	}
	box_ended(s, b);
	box_free(s, b);
}

/* Its pidfd tells: init is dead, and the kernel lets it go only after everything else of its pid namespace. */
void box_dead(struct spawner *s, struct box *b)
{
	siginfo_t info = {0};

	if (b->state == BOX_CLEANING)
		return;
	if (!b->reaped &&
	    waitid((idtype_t)P_PIDFD, (id_t)b->pidfd, &info, WEXITED | WNOHANG | __WALL) == 0 &&
	    info.si_pid != 0) {
		b->reaped = true;
		b->signaled = info.si_code != CLD_EXITED;
		b->status = info.si_status;
	}
	/* Its worker has not ended yet, so it is not our child yet: SIGCHLD will bring us back. */
	if (b->ours && !b->reaped) {
		epoll_ctl(s->epoll, EPOLL_CTL_DEL, b->pidfd, NULL);
		return;
	}
	if (!b->discarded)
		count(s, b, &b->counters);
	b->state = BOX_CLEANING;
	freeze_over(s, b, "it has ended", ESRCH);
	spawner_unwatch(s, &b->pidfd);
	b->deadline_ms = now_ms() + CLEAN_DEADLINE_MS;
	busy_add(s, b);
	clean(s, b, now_ms());
}

uint64_t box_deadlines(struct spawner *s, uint64_t now)
{
	uint64_t next = UINT64_MAX;
	struct box *b, *following;

	for (b = s->busy; b; b = following) {
		following = b->busy_next;
		if (now >= b->next_ms && b->state == BOX_CLEANING) {
			clean(s, b, now); /* may free it */
			next = now + RETRY_MS < next ? now + RETRY_MS : next;
			continue;
		}
		if (now >= b->next_ms)
			look_at_freeze(s, b, now);
		if (b->busy && b->next_ms < next)
			next = b->next_ms;
	}
	return next;
}

/* ---- beginning */

struct box *box_add(struct spawner *s, const struct meta *m, int pidfd, int lock)
{
	struct box *b = calloc(1, sizeof *b), **at;

	if (!b) {
		syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0);
		fd_close(&pidfd);
		fd_close(&lock);
		return NULL;
	}
	b->source.kind = SOURCE_BOX;
	b->meta = *m;
	if (!s->places.rootless) /* it was made with less; its commands have what we have */
		setpriority(PRIO_PROCESS, (id_t)m->created.pid, getpriority(PRIO_PROCESS, 0));
	b->pidfd = pidfd;
	b->lock = lock;
	b->freeze_fd = -1;
	at = bucket_of(s, m->created.id);
	b->next = *at;
	*at = b;
	s->box_count++;
	if (spawner_watch(s, pidfd, &b->source, EPOLLIN) < 0) {
		fprintf(stderr, "cloche-spawner: cannot watch %s: %s\n", m->created.id,
			strerror(errno));
		box_kill(b, s);
	}
	return b;
}

/* A dead one that an earlier spawner had: its cgroup can be counted and removed once the slot is ours, and
 * somebody may wait to hear of it. */
static void bury(struct spawner *s, const struct meta *m, bool silent)
{
	struct box *b;
	int lock = -1;

	if (slot_try(&s->places, m->slot, &lock) < 0) {
		s->sweep_ms = now_ms() + SWEEP_DELAY_MS;
		lock = -1;
	}
	b = calloc(1, sizeof *b);
	if (!b) {
		fd_close(&lock);
		return;
	}
	b->meta = *m;
	b->elsewhere = find_elsewhere(s, m);
	b->pidfd = b->freeze_fd = -1;
	b->lock = lock;
	b->silent = silent;
	b->next = *bucket_of(s, m->created.id);
	*bucket_of(s, m->created.id) = b;
	s->box_count++;
	if (lock < 0) { /* somebody else's cgroup by now, or one that is swept later */
		b->counters = (struct spawner_counters){.cpu_us = UINT64_MAX,
							.memory_peak_bytes = UINT64_MAX,
							.pids_peak = UINT64_MAX,
							.memory_bytes = UINT64_MAX,
							.pids = UINT64_MAX};
		box_ended(s, b);
		box_free(s, b);
		return;
	}
	box_dead(s, b);
}

void box_adopt(struct spawner *s, const char *id, bool silent)
{
	_cleanup_close_ int folder =
		openat(s->place.sandboxes, id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	int pidfd = -1, lock = -1, r;
	struct spawner_ended ended;
	struct cgroup g;
	struct meta m;
	struct box *b;

	if (folder < 0)
		return;
	if (ended_read(folder, id, &ended) == 0) {
		end_add(s, &ended);
		return;
	}
	r = meta_read(folder, id, &m);
	if (r == 0)
		r = meta_adopt(&m, &s->places, &pidfd, &lock);
	if (r == -ESRCH) {
		bury(s, &m, silent);
		return;
	}
	if (r < 0 && r != -ENOENT && r != -ELOOP && r != -EBADMSG) {
		fprintf(stderr, "cloche-spawner: %s waits for a restart: %s\n", id, strerror(-r));
		return;
	}
	if (r < 0) { /* unfinished, or not to be believed */
		if (r != -ENOENT)
			fprintf(stderr, "cloche-spawner: %s: its meta file is not to be believed\n",
				id);
		worker_remove_folder(s->place.sandboxes, id);
		s->sweep_ms = now_ms() + SWEEP_DELAY_MS;
		return;
	}
	b = box_add(s, &m, pidfd, lock);
	if (!b)
		return;
	b->silent = silent;
	b->elsewhere = find_elsewhere(s, &m);
	open_cgroup(s, b, &g);
	b->frozen = is_frozen(&g);
	cgroup_close(&g);
	if (silent)
		box_kill(b, s);
}

int boxes_adopt(struct spawner *s, struct err *e)
{
	int fd = openat(s->place.sandboxes, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;

	if (!d) {
		fd_close(&fd);
		return err_set(e, errno, "read %s/sandboxes", s->places.runtime);
	}
	while ((entry = readdir(d))) {
		char id[SANDBOX_ID_SIZE] = "";

		if (strlen(entry->d_name) >= sizeof id)
			continue;
		memcpy(id, entry->d_name, strlen(entry->d_name));
		if (sandbox_id_ok(id))
			box_adopt(s, id, s->ending);
	}
	closedir(d);
	return 0;
}
