/* SPDX-License-Identifier: Apache-2.0 */
/*
 * serve.c - `cloche serve`: checks the configuration, makes the folders and sockets, starts the spawner and
 * cloched, starts again whichever ended, and passes SIGTERM on. Sandboxes outlive it.
 *
 * As root, cloched gets a user of its own: the configured one, `cloche` where there is one, else the id
 * behind the sandboxes' block. The listening sockets stay open here, so clients that come while cloched
 * is started again wait instead of being refused.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/json.h"
#include "base/trust.h"
#include "base/units.h"
#include "image/state.h"
#include "native/cgroup.h"
#include "native/slot.h"
#include "service/config.h"
#include "service/mcp_asks.h"
#include "settings/egress.h"
#include "settings/settings.h"

enum {
	EXIT_USAGE = 2,
	FAST_S = 2,
	BACKLOG = 1024,
	MOST_PAUSE_MS = 5000,
	STOP_LIMIT_S = 10,
	OLD_ONE_MS = 3000
};

struct child {
	const char *name;
	pid_t pid;
	int64_t started_us, again_us; /* again_us: not before, when pid is 0 */
	unsigned pause_ms;
};

struct serve {
	struct places places;
	struct service_config config;
	json_t *file;
	char file_name[1024];
	uid_t uid;
	gid_t gid;
	uid_t operator_uid;
	int config_fd, socket_fd, tcp_fd, certificate_fd, key_fd;
	char folder[PATH_MAX]; /* of this program */
	char openapi[PATH_MAX + 64];
	struct child spawner, cloched;
	bool check, end, stopping;
};

static struct serve serve = {.config_fd = -1,
			     .socket_fd = -1,
			     .tcp_fd = -1,
			     .certificate_fd = -1,
			     .key_fd = -1,
			     .spawner = {.name = "cloche-spawner"},
			     .cloched = {.name = "cloched"}};

static const char usage[] =
	"usage: cloche serve [--config FILE] [--check | --end-sandboxes] [--foreground]\n"
	"Keys of `service` in the configuration file, with their defaults:\n";

/* ---- configuration ---- */

/* What models may ask for, as cloched will read it; and that its presets and credentials are there, which cloched cannot
 * see. */
static int check_mcp(const struct serve *s, const struct settings *t, struct spec *spec,
		     struct err *e)
{
	struct network_policy *request = NULL, *ceiling = NULL;
	struct mcp_asks asks;
	int r = mcp_asks_read(&asks, s->config.mcp, t, spec, e);

	if (r == 0 && s->config.mcp && asks.has_network)
		r = settings_network_policies(t, &s->places, spec, &request, &ceiling, e) < 0
			    ? err_prefix(e, "service: mcp")
			    : 0;
	network_policy_free(request);
	network_policy_free(ceiling);
	mcp_asks_done(&asks);
	return r;
}

static int read_keys(struct serve *s, struct err *e)
{
	struct settings check = {0};
	struct spec spec;
	int r;

	if (spec_init(&spec, e) < 0)
		return -1;
	r = s->file ? settings_from_json(&check, &spec, s->file, s->file_name, true, e) : 0;
	if (r == 0) {
		r = service_config_read(&s->config, &s->places, s->file, e);
		if (r == 0)
			r = check_mcp(s, &check, &spec, e);
		if (r < 0)
			err_prefix(e, "%s", s->file_name);
	}
	settings_done(&check);
	spec_done(&spec);
	return r;
}

static int read_file(struct serve *s, const char *file, struct err *e)
{
	if (file) {
		if (file[0] != '/' && !realpath(file, s->file_name))
			return err_set(e, errno, "%s", file);
		if (file[0] == '/')
			snprintf(s->file_name, sizeof s->file_name, "%s", file);
		if (access(s->file_name, R_OK) < 0)
			return err_set(e, errno, "%s", s->file_name);
	} else {
		snprintf(s->file_name, sizeof s->file_name, "%s",
			 s->places.rootless ? s->places.config : s->places.system_config);
	}
	if (settings_read_file(s->file_name, &s->file, e) < 0)
		return -1;
	return read_keys(s, e);
}

/* ---- who cloched is ---- */

static int find_user(struct serve *s, struct err *e)
{
	const char *name = s->config.user[0] ? s->config.user : "cloche";
	struct passwd *p = s->places.rootless ? NULL : getpwnam(name);
	struct id_range range;

	s->operator_uid = getuid();
	s->uid = getuid();
	s->gid = getgid();
	if (s->places.rootless)
		return s->config.user[0]
			       ? err_set(e, 0, "service: user: only root can give another user")
			       : 0;
	if (p) {
		s->uid = p->pw_uid;
		s->gid = p->pw_gid;
		return s->uid == 0 ? err_set(e, 0, "service: user: must not be root") : 0;
	}
	if (s->config.user[0])
		return err_set(e, 0, "service: user: there is no user %s", name);
	if (id_range_find(&s->places, json_string_value(json_object_get(s->file, "uid_range")),
			  &range, e) < 0)
		return -1;
	s->uid = range.uid_base + range.slots * IDS_PER_SLOT;
	s->gid = range.gid_base + range.slots * IDS_PER_SLOT;
	return 0;
}

/* ---- folders and sockets ---- */

/* Nobody else writes there, and everybody may walk through: cloched has another user. */
static int make_parent(const char *path)
{
	bool is_new = access(path, F_OK) < 0;
	int r = make_private_dirs(path);
	struct stat st;

	if (r < 0 || getuid() != 0)
		return r;
	/* A root that was there before, made for runs without a service, is opened as well. */
	if (stat(path, &st) < 0)
		return -errno;
	if ((is_new || (st.st_mode & 077) == 0) && chmod(path, 0711) < 0)
		return -errno;
	return 0;
}

static int check_parent(const char *path, struct err *e)
{
	char parent[PATH_MAX];
	char *slash;

	snprintf(parent, sizeof parent, "%s", path);
	slash = strrchr(parent, '/');
	slash[slash == parent] = '\0';
	return path_check_trust(parent, e);
}

static int make_folder(const char *path, mode_t mode, uid_t uid, gid_t gid, struct err *e)
{
	char parent[PATH_MAX];
	char *slash;
	int r;

	snprintf(parent, sizeof parent, "%s", path);
	slash = strrchr(parent, '/');
	if (slash > parent) {
		*slash = '\0';
		if (path_check_trust(parent, e) < 0)
			return -1;
		r = make_parent(parent);
		if (r < 0)
			return err_set(e, -r, "make %s", parent);
	}
	if (mkdir(path, mode) < 0 && errno != EEXIST)
		return err_set(e, errno, "make %s", path);
	if (chown(path, uid, gid) < 0 || chmod(path, mode) < 0)
		return err_set(e, errno, "make %s", path);
	return 0;
}

static int socket_group(const struct serve *s, gid_t *ret, struct err *e)
{
	struct group *g;

	*ret = s->places.rootless ? getgid() : 0;
	if (!s->config.socket_group[0])
		return 0;
	g = getgrnam(s->config.socket_group);
	if (!g)
		return err_set(e, 0, "service: socket_group: there is no group %s",
			       s->config.socket_group);
	/* cloched's group may open the control sockets of sandboxes: no caller may be in it. */
	if (!s->places.rootless && g->gr_gid == s->gid)
		return err_set(
			e, 0,
			"service: socket_group: %s is the group of cloched's user, who needs one "
			"of its own",
			s->config.socket_group);
	*ret = g->gr_gid;
	return 0;
}

static int bind_unix(struct serve *s, struct err *e)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	const char *path = s->config.socket;
	_cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	mode_t before;
	gid_t gid;
	int r;

	if (!path[0])
		return 0;
	if (fd < 0 || strlen(path) >= sizeof a.sun_path)
		return err_set(e, fd < 0 ? errno : ENAMETOOLONG, "%s", path);
	/* Its mode and group are set by name. */
	if (socket_group(s, &gid, e) < 0 || check_parent(path, e) < 0)
		return -1;
	memcpy(a.sun_path, path, strlen(path) + 1);
	if (connect(fd, (struct sockaddr *)&a, sizeof a) == 0) {
		/* Maybe the cloched of a serve that was killed, which has just been told to end. */
		struct pollfd p = {.fd = fd};

		if (poll(&p, 1, OLD_ONE_MS) <= 0)
			return err_set(e, 0, "%s: another service answers there", path);
		close(fd);
		fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		if (fd < 0)
			return err_set(e, errno, "%s", path);
	}
	if (unlink(path) < 0 && errno != ENOENT)
		return err_set(e, errno, "%s", path);
	before = umask(0177);
	r = bind(fd, (struct sockaddr *)&a, sizeof a);
	umask(before);
	if (r < 0 || chown(path, (uid_t)-1, gid) < 0 || chmod(path, 0660) < 0 ||
	    listen(fd, BACKLOG) < 0)
		return err_set(e, errno, "listen on %s", path);
	s->socket_fd = TAKE_FD(fd);
	return 0;
}

/* "ADDRESS:PORT" or "[ADDRESS]:PORT", numbers only. */
static int parse_address(const char *text, struct sockaddr_storage *ret, socklen_t *ret_size,
			 struct err *e)
{
	struct sockaddr_in *four = (struct sockaddr_in *)ret;
	struct sockaddr_in6 *six = (struct sockaddr_in6 *)ret;
	const char *colon = strrchr(text, ':');
	char address[64];
	size_t n = colon ? (size_t)(colon - text) : 0;
	uint64_t port;

	*ret = (struct sockaddr_storage){0};
	if (!colon || n >= sizeof address || parse_count(colon + 1, 1, 65535, &port) < 0)
		return err_set(e, 0, "service: listen: give ADDRESS:PORT");
	memcpy(address, text, n);
	address[n] = '\0';
	if (address[0] == '[' && n > 2) {
		address[n - 1] = '\0';
		six->sin6_family = AF_INET6;
		six->sin6_port = htons((uint16_t)port);
		*ret_size = sizeof *six;
		return inet_pton(AF_INET6, address + 1, &six->sin6_addr) == 1
			       ? 0
			       : err_set(e, 0, "service: listen: no address: %s", address);
	}
	four->sin_family = AF_INET;
	four->sin_port = htons((uint16_t)port);
	*ret_size = sizeof *four;
	return inet_pton(AF_INET, address, &four->sin_addr) == 1
		       ? 0
		       : err_set(e, 0, "service: listen: no address: %s", address);
}

static int bind_tcp(struct serve *s, struct err *e)
{
	struct sockaddr_storage a;
	_cleanup_close_ int fd = -1;
	const int on = 1;
	socklen_t size = 0;

	if (!s->config.listen[0])
		return 0;
	if (parse_address(s->config.listen, &a, &size, e) < 0)
		return -1;
	fd = socket(a.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) < 0 ||
	    bind(fd, (struct sockaddr *)&a, size) < 0 || listen(fd, BACKLOG) < 0)
		return err_set(e, errno, "listen on %s", s->config.listen);
	s->tcp_fd = TAKE_FD(fd);
	return 0;
}

/* A file of ours that cloched may read whatever its mode is. */
static int copy_to_memory(const char *path, int *ret, struct err *e)
{
	_cleanup_close_ int in = open(path, O_RDONLY | O_CLOEXEC);
	_cleanup_close_ int out = memfd_create("pem", MFD_CLOEXEC);
	_cleanup_free_ char *data = NULL;
	size_t size;
	int r = in < 0 || out < 0 ? -errno : fd_slurp(in, 1 << 20, &data, &size);

	if (r == 0)
		r = fd_write_all(out, data, size);
	if (r < 0)
		return err_set(e, -r, "%s", path);
	*ret = TAKE_FD(out);
	return 0;
}

static int open_everything(struct serve *s, struct err *e)
{
	if (make_folder(s->config.runtime_dir, 0711, getuid(), getgid(), e) < 0)
		return -1;
	/* State lies below a folder of root's: cloched may not change who walks to it. */
	if (make_folder(s->config.state_dir, 0700, s->uid, s->gid, e) < 0)
		return -1;
	if (s->config.tls_certificate[0] &&
	    (copy_to_memory(s->config.tls_certificate, &s->certificate_fd, e) < 0 ||
	     copy_to_memory(s->config.tls_key, &s->key_fd, e) < 0))
		return -1;
	return bind_unix(s, e) < 0 ? -1 : bind_tcp(s, e);
}

/* ---- children ---- */

static void find_folder(struct serve *s)
{
	ssize_t n = readlink("/proc/self/exe", s->folder, sizeof s->folder - 64);
	char *slash;

	s->folder[n < 0 ? 0 : n] = '\0';
	slash = strrchr(s->folder, '/');
	if (slash)
		*slash = '\0';
	snprintf(s->openapi, sizeof s->openapi, "%s/openapi.json", s->folder);
	if (access(s->openapi, R_OK) < 0)
		snprintf(s->openapi, sizeof s->openapi, "%s", CLOCHE_DATADIR "/openapi.json");
}

/* A descriptor that the child shall have, as text; closed on exec otherwise. */
static const char *pass(char text[16], int fd)
{
	fcntl(fd, F_SETFD, 0);
	snprintf(text, 16, "%d", fd);
	return text;
}

/* The file, with the places that only we know: cloched's user has others. */
static char *resolved_config(const struct serve *s)
{
	const struct service_config *c = &s->config;
	_cleanup_json_ json_t *root = s->file ? json_deep_copy(s->file) : json_object();
	json_t *service = json_object_get(root, "service");
	json_t *places = json_pack("{ss, ss, ss}", "runtime_dir", c->runtime_dir, "state_dir",
				   c->state_dir, "socket", c->socket);
	int r;

	json_object_del(root, "credentials"); /* the spawner's: nothing of them is for cloched */
	if (service)
		r = json_object_update_new(service, places);
	else
		r = json_object_set_new(root, "service", places);
	return r < 0 ? NULL : json_dumps(root, JSON_COMPACT);
}

static int write_config(const struct serve *s)
{
	_cleanup_free_ char *text = resolved_config(s);
	int fd = memfd_create("config", 0);

	if (fd < 0 || !text || fd_write_all(fd, text, strlen(text)) < 0 ||
	    lseek(fd, 0, SEEK_SET) < 0)
		_exit(1);
	return fd;
}

/* In the child: what the environment has of them. */
static void forget_credentials(const struct serve *s)
{
	const char *name;
	json_t *credential;

	json_object_foreach(json_object_get(s->file, "credentials"), name, credential) {
		const char *variable = json_string_value(json_object_get(credential, "env"));

		if (variable)
			unsetenv(variable);
	}
}

/* For cloched to see when images change. An ordinary user's prepares nothing. */
static void open_store(const struct serve *s, int folders[STORE_FOLDERS])
{
	struct err e = {0};

	for (size_t i = 0; i < STORE_FOLDERS; i++)
		folders[i] = -1;
	if (!s->places.rootless && store_state_open(&s->places, folders, &e) < 0)
		fprintf(stderr, "cloche serve: no sandboxes of images are prepared: %s\n", e.text);
}

static void exec_cloched(const struct serve *s)
{
	char path[PATH_MAX + 64], texts[8][16], uid[16];
	char *argv[32];
	size_t n = 0;
	int folders[STORE_FOLDERS];

	open_store(s, folders);
	const struct {
		const char *name;
		int fd;
	} fds[] = {{"--config-fd", write_config(s)}, {"--socket-fd", s->socket_fd},
		   {"--tcp-fd", s->tcp_fd},          {"--certificate-fd", s->certificate_fd},
		   {"--key-fd", s->key_fd},          {"--store-fd", folders[0]},
		   {"--refs-fd", folders[1]},        {"--images-fd", folders[2]}};

	snprintf(path, sizeof path, "%s/cloched", s->folder);
	argv[n++] = path;
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
		if (fds[i].fd >= 0) {
			argv[n++] = (char *)(uintptr_t)fds[i].name;
			argv[n++] = (char *)(uintptr_t)pass(texts[i], fds[i].fd);
			if (fds[i].fd == s->certificate_fd || fds[i].fd == s->key_fd)
				lseek(fds[i].fd, 0, SEEK_SET);
		}
	snprintf(uid, sizeof uid, "%u", (unsigned)s->operator_uid);
	argv[n++] = (char *)(uintptr_t) "--operator-uid";
	argv[n++] = uid;
	argv[n++] = (char *)(uintptr_t) "--openapi";
	argv[n++] = (char *)(uintptr_t)s->openapi;
	argv[n++] = (char *)(uintptr_t) "--config-name";
	argv[n++] = (char *)(uintptr_t)s->file_name;
	argv[n] = NULL;
	forget_credentials(s);
	for (int cap = 0; cap < 64; cap++) /* it executes nothing: for who looks at it */
		prctl(PR_CAPBSET_DROP, cap, 0, 0, 0);
	if (getuid() == 0 && (setgroups(0, NULL) < 0 || setresgid(s->gid, s->gid, s->gid) < 0 ||
			      setresuid(s->uid, s->uid, s->uid) < 0))
		_exit(1);
	/* After the change of ids, which clears it. SIGTERM is our order: nobody is left to start a spawner again. */
	prctl(PR_SET_PDEATHSIG, SIGINT);
	execv(path, argv);
}

/* Beside the state, never in it: what is below state_dir is cloched's, who could put other folders there. */
static void find_disks(const struct serve *s, char *ret, size_t size)
{
	json_t *service = json_object_get(s->file, "service");

	if (json_object_get(service, "state_dir"))
		snprintf(ret, size, "%s-disks", s->config.state_dir);
	else
		snprintf(ret, size, "%s/disks", s->places.state);
}

static void exec_spawner(const struct serve *s)
{
	char path[PATH_MAX + 64], uid[16], gid[16], socket[PATH_MAX], disks[PATH_MAX];
	char *argv[18] = {path,
			  (char *)(uintptr_t) "--runtime-dir",
			  (char *)(uintptr_t)s->config.runtime_dir,
			  (char *)(uintptr_t) "--state-dir",
			  (char *)(uintptr_t)s->places.state,
			  (char *)(uintptr_t) "--service-uid",
			  uid,
			  (char *)(uintptr_t) "--service-gid",
			  gid,
			  (char *)(uintptr_t) "--socket",
			  socket,
			  (char *)(uintptr_t) "--disk-dir",
			  disks,
			  (char *)(uintptr_t) "--end",
			  (char *)(uintptr_t) "all",
			  NULL,
			  NULL,
			  NULL};
	char **more = &argv[s->end ? 15 : 13];

	if (s->file) {
		*more++ = (char *)(uintptr_t) "--config";
		*more++ = (char *)(uintptr_t)s->file_name;
	}
	*more = NULL;

	find_disks(s, disks, sizeof disks);
	snprintf(path, sizeof path, "%s/cloche-spawner", s->folder);
	snprintf(uid, sizeof uid, "%u", (unsigned)s->uid);
	snprintf(gid, sizeof gid, "%u", (unsigned)s->gid);
	snprintf(socket, sizeof socket, "%s/spawner.sock", s->config.runtime_dir);
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	execv(path, argv);
}

static void start_child(struct serve *s, struct child *c)
{
	pid_t parent = getpid();
	sigset_t none;

	c->started_us = (int64_t)now_us();
	c->pid = fork();
	if (c->pid < 0) {
		c->pid = 0;
		c->again_us = (int64_t)now_us() + 1000000;
		return;
	}
	if (c->pid > 0)
		return;
	setpgid(0, 0); /* what a terminal sends is for us: they stop in their order */
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	if (c == &s->cloched)
		exec_cloched(s);
	else
		exec_spawner(s);
	fprintf(stderr, "cloche serve: start %s/%s: %s\n", s->folder, c->name, strerror(errno));
	_exit(getppid() == parent ? 127 : 1);
}

/* One that ends at once is given more and more time. */
static void child_ended(struct child *c, int status)
{
	int64_t now = (int64_t)now_us();
	bool fast = now - c->started_us < FAST_S * 1000000ll;

	c->pid = 0;
	c->pause_ms = !fast ? 0 : c->pause_ms ? c->pause_ms * 2 : 50;
	if (c->pause_ms > MOST_PAUSE_MS)
		c->pause_ms = MOST_PAUSE_MS;
	c->again_us = now + c->pause_ms * 1000ll;
	if (WIFSIGNALED(status))
		fprintf(stderr, "cloche serve: %s was ended by signal %d; it is started again\n",
			c->name, WTERMSIG(status));
	else
		fprintf(stderr, "cloche serve: %s ended with %d; it is started again\n", c->name,
			WEXITSTATUS(status));
}

/* After cloched, which may still tell it something. */
static void stop_spawner(const struct serve *s)
{
	if (!s->cloched.pid && s->spawner.pid)
		kill(s->spawner.pid, SIGTERM);
}

static void reap(struct serve *s)
{
	struct child *children[] = {&s->spawner, &s->cloched};
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
		for (size_t i = 0; i < ARRAY_SIZE(children); i++)
			if (children[i]->pid == pid) {
				if (s->stopping) {
					children[i]->pid = 0;
					stop_spawner(s);
				} else {
					child_ended(children[i], status);
				}
			}
}

static void start_due(struct serve *s, struct timespec *wait)
{
	struct child *children[] = {&s->spawner, &s->cloched};
	int64_t now = (int64_t)now_us(), left = 3600000000ll;

	for (size_t i = 0; i < ARRAY_SIZE(children) && !s->stopping; i++) {
		if (children[i]->pid)
			continue;
		if (children[i]->again_us <= now)
			start_child(s, children[i]);
		else if (children[i]->again_us - now < left)
			left = children[i]->again_us - now;
	}
	wait->tv_sec = left / 1000000;
	wait->tv_nsec = left % 1000000 * 1000;
}

static void stop(struct serve *s)
{
	if (TAKE(s->stopping, true))
		return;
	/* One that has just died leaves what only its successor finds. */
	if (s->cloched.pid && !s->spawner.pid)
		start_child(s, &s->spawner);
	if (s->cloched.pid)
		kill(s->cloched.pid, SIGTERM);
	stop_spawner(s);
	alarm(STOP_LIMIT_S);
}

static int run(struct serve *s)
{
	const int wanted[] = {SIGCHLD, SIGTERM, SIGINT, SIGALRM, SIGHUP};
	struct timespec wait;
	sigset_t set;

	sigemptyset(&set);
	for (size_t i = 0; i < ARRAY_SIZE(wanted); i++)
		sigaddset(&set, wanted[i]);
	sigprocmask(SIG_BLOCK, &set, NULL);
	for (;;) {
		int number;

		reap(s);
		start_due(s, &wait);
		if (s->stopping && !s->spawner.pid && !s->cloched.pid)
			break;
		number = sigtimedwait(&set, NULL, &wait);
		if (number == SIGTERM || number == SIGINT)
			stop(s);
		if (number == SIGALRM) { /* who did not hear is ended */
			if (s->cloched.pid)
				kill(s->cloched.pid, SIGKILL);
			if (s->spawner.pid)
				kill(s->spawner.pid, SIGKILL);
		}
	}
	if (s->config.socket[0])
		unlink(s->config.socket);
	return 0;
}

/* ---- the beginning ---- */

/* What the spawner cannot do without, and would only say to be started again, for ever. */
static int check_host(const struct serve *s, struct err *e)
{
	struct cgroup_host host;
	struct id_range range;

	cgroup_host_find(&s->places, &host);
	if (host.version == CGROUP_NONE)
		return err_set(e, 0, "limits cannot be enforced: %s", host.why_not);
	return id_range_find(&s->places, json_string_value(json_object_get(s->file, "uid_range")),
			     &range, e);
}

static int parse(struct serve *s, char **argv, const char **ret_file, struct err *e)
{
	for (char **p = argv + 1; *p; p++) {
		if (strcmp(*p, "--check") == 0)
			s->check = true;
		else if (strcmp(*p, "--end-sandboxes") == 0)
			s->end = true;
		else if (strcmp(*p, "--config") == 0 && p[1])
			*ret_file = *++p;
		else if (strncmp(*p, "--config=", 9) == 0)
			*ret_file = *p + 9;
		else if (strcmp(*p, "--foreground") != 0)
			return err_set(e, 0, "%.60s: is not understood (--config FILE, --check)",
				       *p);
	}
	return 0;
}

int main(int argc, char **argv)
{
	const char *file = NULL;
	struct serve *s = &serve;
	struct err e = {0};

	(void)argc;
	if (argv[1] && strcmp(argv[1], "--keys") == 0) {
		fputs(usage, stdout);
		service_config_print_keys(stdout);
		return 0;
	}
	if (parse(s, argv, &file, &e) < 0) {
		fprintf(stderr, "cloche serve: %s\n", e.text);
		return EXIT_USAGE;
	}
	umask(022);
	find_folder(s);
	if (places_find(&s->places, &e) < 0 || read_file(s, file, &e) < 0 || find_user(s, &e) < 0) {
		fprintf(stderr, "cloche serve: %s\n", e.text);
		return 1;
	}
	if (s->check) {
		printf("%s: %s\n", s->file_name, s->file ? "ok" : "not there: the defaults apply");
		return 0;
	}
	if (s->end) { /* the service is stopped; packages are removed so */
		exec_spawner(s);
		fprintf(stderr, "cloche serve: start %s/cloche-spawner: %s\n", s->folder,
			strerror(errno));
		return 1;
	}
	if (check_host(s, &e) < 0 || open_everything(s, &e) < 0) {
		fprintf(stderr, "cloche serve: %s\n", e.text);
		return 1;
	}
	return run(s);
}
