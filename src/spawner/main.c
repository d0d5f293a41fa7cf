/* SPDX-License-Identifier: Apache-2.0 */
/*
 * main.c - cloche-spawner: the only part of the service with privileges.
 *
 * Started by `cloche serve`, as root or as the ordinary user whose service it is. Sandboxes outlive it:
 * when it ends, by whatever signal, the next one adopts them.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/units.h"
#include "native/launch.h"
#include "spawner/spawner.h"

enum { LOCK_LIMIT_S = 3, EXIT_USAGE = 2, BACKLOG = 8 };

struct arguments {
	const char *runtime, *state, *disks, *socket, *config;
	uint32_t uid, gid;
	bool end_all;
};

static const char usage[] =
	"usage: cloche-spawner [--runtime-dir DIR] [--state-dir DIR] [--disk-dir DIR]\n"
	"                      [--service-uid N] [--service-gid N] [--socket FD|PATH]\n"
	"                      [--config FILE] [--end all]\n"
	"The privileged part of `cloche serve`, which starts it.\n";

static int parse_id(const char *what, const char *text, uint32_t *ret, struct err *e)
{
	uint64_t v;

	if (parse_count(text, 0, UINT32_MAX - 1, &v) < 0)
		return err_set(e, 0, "--%s %.40s: give a number", what, text);
	*ret = (uint32_t)v;
	return 0;
}

/* --name value, nothing else. */
static int parse_arguments(char **argv, struct arguments *a, struct err *e)
{
	for (char **p = argv + 1; *p; p += 2) {
		const char *name = strncmp(*p, "--", 2) == 0 ? *p + 2 : "", *value = p[1];
		int r = 0;

		if (!value)
			return err_set(e, 0, "%.40s: needs a value", *p);
		if (strcmp(name, "runtime-dir") == 0)
			a->runtime = value;
		else if (strcmp(name, "state-dir") == 0)
			a->state = value;
		else if (strcmp(name, "disk-dir") == 0)
			a->disks = value;
		else if (strcmp(name, "service-uid") == 0)
			r = parse_id(name, value, &a->uid, e);
		else if (strcmp(name, "service-gid") == 0)
			r = parse_id(name, value, &a->gid, e);
		else if (strcmp(name, "socket") == 0)
			a->socket = value;
		else if (strcmp(name, "config") == 0)
			a->config = value;
		else if (strcmp(name, "end") == 0 && strcmp(value, "all") == 0)
			a->end_all = true;
		else
			return err_set(e, 0, "%.40s: is not understood", *p);
		if (r < 0)
			return -1;
	}
	return 0;
}

static int put_place(char *field, size_t size, const char *what, const char *value, struct err *e)
{
	if (!value)
		return 0;
	if (value[0] != '/' || strlen(value) >= size)
		return err_set(e, 0, "--%s %.100s: give an absolute path", what, value);
	memcpy(field, value, strlen(value) + 1);
	return 0;
}

static int find_places(struct spawner *s, const struct arguments *a, struct err *e)
{
	struct places *p = &s->places;

	if (places_find(p, e) < 0 ||
	    put_place(p->runtime, sizeof p->runtime, "runtime-dir", a->runtime, e) < 0 ||
	    put_place(p->state, sizeof p->state, "state-dir", a->state, e) < 0)
		return -1;
	snprintf(s->disks, sizeof s->disks, "%s/disks", p->state);
	if (put_place(s->disks, sizeof s->disks, "disk-dir", a->disks, e) < 0)
		return -1;
	return put_place(p->system_config, sizeof p->system_config, "config", a->config, e);
}

/* The runtime folder is walked through by clients on their way to the service's socket; what is in it
 * looks after itself. */
static int make_folders(struct spawner *s, uint32_t gid, struct err *e)
{
	char path[sizeof s->places.runtime + 16];
	int r = make_private_dirs(s->places.runtime);
	uint32_t realm;

	snprintf(path, sizeof path, "%s/sandboxes", s->places.runtime);
	if (r == 0)
		r = make_private_dirs(path);
	if (r < 0)
		return err_set(e, -r, "make %s", path);
	if (chmod(s->places.runtime, 0711) < 0 || chown(path, (uid_t)-1, gid) < 0 ||
	    chmod(path, 0710) < 0)
		return err_set(e, errno, "make %s", path);
	if (slot_realm(&s->places, &realm, e) < 0)
		return -1;
	s->place.sandboxes = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return s->place.sandboxes < 0 ? err_set(e, errno, "open %s", path) : 0;
}

static void wake(int signal_number)
{
	(void)signal_number;
}

/* One spawner per runtime folder. The last one's lock goes with it, or with the worker that dies of its
 * death: that is worth a moment's wait. */
static int be_the_only_one(const struct spawner *s, struct err *e)
{
	char path[sizeof s->places.runtime + 16];
	int fd, r;

	snprintf(path, sizeof path, "%s/spawner.lock", s->places.runtime);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return err_set(e, errno, "open %s", path);
	sigaction(SIGALRM, &(struct sigaction){.sa_handler = wake}, NULL);
	alarm(LOCK_LIMIT_S);
	r = flock(fd, LOCK_EX) < 0 ? -errno : 0;
	alarm(0);
	if (r < 0) {
		close(fd);
		return err_set(e, 0, "another spawner serves %s", s->places.runtime);
	}
	return 0; /* kept open, and so locked, until the end */
}

static int bind_socket(struct spawner *s, const char *path, uint32_t uid, struct err *e)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	mode_t mask;
	int r;

	if (strlen(path) >= sizeof a.sun_path)
		return err_set(e, ENAMETOOLONG, "%s", path);
	memcpy(a.sun_path, path, strlen(path) + 1);
	if (unlink(path) < 0 && errno != ENOENT)
		return err_set(e, errno, "remove %s", path);
	s->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	mask = umask(0177);
	r = s->listener < 0 ? -1 : bind(s->listener, (struct sockaddr *)&a, sizeof a);
	umask(mask);
	if (r < 0 || chown(path, uid, (gid_t)-1) < 0 || listen(s->listener, BACKLOG) < 0)
		return err_set(e, errno, "listen on %s", path);
	return 0;
}

/* A number is a descriptor that listens already. */
static int open_listener(struct spawner *s, const struct arguments *a, struct err *e)
{
	char path[sizeof s->places.runtime + 16];
	uint64_t fd;
	int type = 0;
	socklen_t size = sizeof type;

	snprintf(path, sizeof path, "%s/spawner.sock", s->places.runtime);
	if (!a->socket || parse_count(a->socket, 3, 1 << 20, &fd) < 0)
		return bind_socket(s, a->socket ? a->socket : path, a->uid, e);
	s->listener = (int)fd;
	if (getsockopt(s->listener, SOL_SOCKET, SO_TYPE, &type, &size) < 0 ||
	    type != SOCK_SEQPACKET || fcntl(s->listener, F_SETFD, FD_CLOEXEC) < 0 ||
	    fcntl(s->listener, F_SETFL, O_NONBLOCK) < 0)
		return err_set(e, 0, "--socket %s: is no SEQPACKET socket", a->socket);
	return 0;
}

static int open_loop(struct spawner *s, struct err *e)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	s->epoll = epoll_create1(EPOLL_CLOEXEC);
	s->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (s->epoll < 0 || s->signals < 0)
		return err_set(e, errno, "make an epoll");
	s->signal_source.kind = SOURCE_SIGNAL;
	s->listener_source.kind = SOURCE_LISTENER;
	s->client_source.kind = SOURCE_CLIENT;
	if (spawner_watch(s, s->signals, &s->signal_source, EPOLLIN) < 0)
		return err_set(e, errno, "watch signals");
	return 0;
}

/* Making one is work for a processor. More at a time than there are makes none of them sooner, and all who run
 * commands meanwhile wait; one more keeps them busy when one waits for a disk. */
static void count_workers(struct spawner *s)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);

	s->worker_count = cpus < 2 ? 2 : (size_t)cpus + 1;
	if (s->worker_count > WORKERS_MAX)
		s->worker_count = WORKERS_MAX;
}

/* Two descriptors per sandbox: there are never more than can be had. */
static void raise_limits(struct spawner *s)
{
	struct rlimit l = {.rlim_cur = 1024};

	if (getrlimit(RLIMIT_NOFILE, &l) == 0) {
		l.rlim_cur = l.rlim_max;
		setrlimit(RLIMIT_NOFILE, &l);
	}
	s->box_max = l.rlim_cur > DESCRIPTORS_OWN ? (l.rlim_cur - DESCRIPTORS_OWN) / 2 : 1;
}

static int begin(struct spawner *s, const struct arguments *a, struct err *e)
{
	int init;

	if (find_places(s, a, e) < 0)
		return -1;
	cgroup_host_find(&s->places, &s->host);
	if (s->host.version == CGROUP_NONE)
		return err_set(e, 0, "limits cannot be enforced: %s", s->host.why_not);
	s->service_uid = a->uid;
	s->policy.places = &s->places;
	s->place = (struct worker_place){.places = &s->places,
					 .disks = s->disks,
					 .policy = &s->policy,
					 .host = &s->host,
					 .service_gid = a->gid,
					 .sandboxes = -1};
	if (make_folders(s, a->gid, e) < 0 || be_the_only_one(s, e) < 0 || open_loop(s, e) < 0)
		return -1;
	if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) < 0)
		return err_set(e, errno, "become the reaper of sandboxes");
	raise_limits(s);
	if (launch_prepare(&init, e) < 0)
		return -1;
	count_workers(s);
	s->ending = a->end_all; /* kills what it adopts, serves nobody, ends with the last one */
	if (boxes_adopt(s, e) < 0)
		return -1;
	if (s->ending)
		return 0;
	if (open_listener(s, a, e) < 0)
		return -1;
	if (spawner_watch(s, s->listener, &s->listener_source, EPOLLIN) < 0)
		return err_set(e, errno, "watch the socket");
	/* What died with the last spawner may not be quite dead yet: look once now and once later. */
	s->sweeper = worker_sweep(&s->place);
	if (s->sweeper < 0)
		return err_set(e, (int)-s->sweeper, "start a child");
	s->sweep_ms = now_ms() + SWEEP_DELAY_MS;
	return 0;
}

int main(int argc, char **argv)
{
	static struct spawner s = {
		.epoll = -1, .signals = -1, .listener = -1, .client = -1, .place.sandboxes = -1};
	struct arguments a = {.uid = geteuid(), .gid = getegid()};
	struct err e = {0};

	s.out_end = &s.out;
	s.ends_end = &s.ends;
	(void)argc;
	if (parse_arguments(argv, &a, &e) < 0) {
		fprintf(stderr, "cloche-spawner: %s\n%s", e.text, usage);
		return EXIT_USAGE;
	}
	if (begin(&s, &a, &e) < 0 || spawner_run(&s, &e) < 0) {
		fprintf(stderr, "cloche-spawner: %s\n", e.text);
		return 1;
	}
	policy_done(&s.policy);
	return 0;
}
