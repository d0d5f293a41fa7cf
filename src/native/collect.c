/* SPDX-License-Identifier: Apache-2.0 */
#include "native/collect.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <linux/openat2.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/tree.h"

/* Why something stayed behind; an index travels through the pipe of the rootless collector. */
enum skip {
	TAKEN,
	LINK,
	SPECIAL,
	NAME,
	TOO_LARGE,
	TOO_MANY,
	TOO_DEEP,
	UNREADABLE,
	UNWRITABLE,
	TWICE
};
static const char *const skip_text[] = {
	[TAKEN] = NULL,
	[LINK] = "symbolic link",
	[SPECIAL] = "not a regular file",
	[NAME] = "control character in its name",
	[TOO_LARGE] = "too large",
	[TOO_MANY] = "too much: this and the rest was left out",
	[TOO_DEEP] = "nested too deep",
	[UNREADABLE] = "cannot be read",
	[TWICE] = "another artifact has this name",
	[UNWRITABLE] = "cannot be written to the output folder",
};

/* One finding: in memory, or as the header of a record in the pipe. */
struct finding {
	uint64_t size_bytes;
	uint32_t skip;
	uint32_t path_size;
};

struct collector {
	const struct strings *patterns; /* NULL: everything */
	const struct collect_source *from;
	struct result *result; /* in this process */
	int pipe;              /* to the supervisor, or -1 */
	int output; /* while /workspace is collected: /output, whose files go first; else -1 */
	uint64_t bytes_left;
	/* Names are hostile too: how many may be told, how long together, how many looked at, how long. */
	unsigned told_left, looked_left;
	size_t names_left;
	uint64_t deadline_us;
	bool stopped;
};

static void add_to_result(struct result *r, const char *path, const struct finding *f)
{
	struct artifact *more = realloc(r->artifacts, (r->artifact_count + 1) * sizeof *more);
	char *copy = strdup(path);

	if (more)
		r->artifacts = more;
	if (!more || !copy) {
		free(copy);
		r->artifacts_failed = true;
		return;
	}
	more[r->artifact_count++] = (struct artifact){
		copy, f->skip ? RESULT_UNKNOWN : f->size_bytes, skip_text[f->skip]};
}

static void tell(struct collector *c, const char *path, uint64_t size, enum skip skip)
{
	struct finding f = {size, skip, (uint32_t)strlen(path)};

	if (c->pipe < 0) {
		add_to_result(c->result, path, &f);
	} else if (fd_write_all(c->pipe, &f, sizeof f) < 0 ||
		   fd_write_all(c->pipe, path, f.path_size) < 0) {
		_exit(1);
	}
}

/* The export ends here; the last word about it is where. */
static void stop(struct collector *c, const char *path)
{
	if (!c->stopped)
		tell(c, path, 0, TOO_MANY);
	c->stopped = true;
}

static void found(struct collector *c, const char *path, uint64_t size, enum skip skip)
{
	size_t n = strlen(path) + 1;

	c->told_left--;
	c->names_left -= n;
	tell(c, path, size, skip);
}

/* The time for the export is up, or the caller wants it to end. */
static bool is_over(const struct collector *c)
{
	struct pollfd p = {.fd = c->from->cancel_fd, .events = POLLIN};

	return now_us() > c->deadline_us || (p.fd >= 0 && poll(&p, 1, 0) > 0);
}

/* Whether there is budget left to look at, and tell of, one more entry. */
static bool go_on(struct collector *c, const char *path)
{
	if (c->looked_left == 0 || c->told_left == 0 || c->names_left < PATH_MAX || is_over(c))
		stop(c, path);
	else
		c->looked_left--;
	return !c->stopped;
}

bool artifact_is_wanted(const struct strings *patterns, const char *path)
{
	char parent[PATH_MAX];

	if (!patterns)
		return true;
	snprintf(parent, sizeof parent, "%s", path);
	for (char *end = parent + strlen(parent); end; end = strrchr(parent, '/')) {
		*end = '\0';
		for (size_t i = 0; i < patterns->count; i++)
			if (fnmatch(patterns->item[i], parent, FNM_PATHNAME) == 0)
				return true;
	}
	return false;
}

bool artifact_name_is_safe(const char *name)
{
	for (; *name; name++)
		if (iscntrl((unsigned char)*name))
			return false;
	return true;
}

static int open_beneath(int dir, const char *name, int flags)
{
	struct open_how how = {
		.flags = (uint64_t)flags | O_CLOEXEC | O_NOFOLLOW,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS |
			   RESOLVE_NO_XDEV,
	};

	return (int)syscall(SYS_openat2, dir, name, &how, sizeof how);
}

static bool exists_beneath(int dir, const char *path)
{
	_cleanup_close_ int fd = open_beneath(dir, path, O_PATH);

	return fd >= 0;
}

static enum skip copy_bytes(const struct collector *c, int in, int out, uint64_t size)
{
	char data[65536];

	while (size > 0) {
		ssize_t n = fd_read_all(in, data, size < sizeof data ? (size_t)size : sizeof data);

		if (n <= 0)
			return UNREADABLE;
		if (fd_write_all(out, data, (size_t)n) < 0)
			return UNWRITABLE;
		if (is_over(c))
			return TOO_MANY;
		size -= (uint64_t)n;
	}
	return TAKEN;
}

static enum skip copy_file(struct collector *c, int from, int to, const char *name,
			   uint64_t *ret_size)
{
	_cleanup_close_ int in = open_beneath(from, name, O_RDONLY | O_NONBLOCK);
	_cleanup_close_ int out = -1;
	enum skip skip;
	struct stat st;

	if (in < 0 || fstat(in, &st) < 0)
		return UNREADABLE;
	if (!S_ISREG(st.st_mode))
		return SPECIAL;
	*ret_size = (uint64_t)st.st_size;
	if (*ret_size > c->bytes_left)
		return TOO_LARGE;
	c->bytes_left -= *ret_size;
	if (unlinkat(to, name, 0) < 0 && errno != ENOENT)
		return UNWRITABLE;
	out = openat(to, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
		     st.st_mode & 0111 ? 0777 : 0666);
	if (out < 0)
		return UNWRITABLE;
	skip = copy_bytes(c, in, out, *ret_size);
	if (skip != TAKEN)
		(void)unlinkat(to, name, 0);
	return skip;
}

static void collect_folder(struct collector *c, int from, int out, const char *path, int depth);

int artifact_folder(int out, const char *path)
{
	char copy[PATH_MAX];
	int dir = fcntl(out, F_DUPFD_CLOEXEC, 0);
	char *save = NULL;

	snprintf(copy, sizeof copy, "%s", path);
	for (char *p = strtok_r(copy, "/", &save); p && dir >= 0; p = strtok_r(NULL, "/", &save)) {
		int next;

		(void)mkdirat(dir, p, 0777);
		next = openat(dir, p, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		close(dir);
		dir = next;
	}
	return dir;
}

static void collect_subfolder(struct collector *c, int from, int out, const char *path,
			      const char *name, int depth)
{
	_cleanup_close_ int below = -1, to = -1;

	if (artifact_name_is_safe(name))
		below = open_beneath(from, name, O_RDONLY | O_DIRECTORY);
	if (below >= 0 && artifact_is_wanted(c->patterns, path))
		to = artifact_folder(out, path); /* an empty one is a result too */
	if (below >= 0)
		collect_folder(c, below, out, path, depth + 1);
	else if (artifact_is_wanted(c->patterns, path))
		found(c, path, 0, artifact_name_is_safe(name) ? UNREADABLE : NAME);
}

/* Why a file is left behind before it is even opened, or TAKEN. */
static enum skip unfit(const struct collector *c, const char *path, const char *name, mode_t mode)
{
	if (S_ISLNK(mode))
		return LINK;
	if (!S_ISREG(mode))
		return SPECIAL;
	if (!artifact_name_is_safe(name))
		return NAME;
	return c->output >= 0 && exists_beneath(c->output, path) ? TWICE : TAKEN;
}

static void collect_entry(struct collector *c, int from, int out, const char *folder,
			  const char *name, int depth)
{
	char path[PATH_MAX];
	_cleanup_close_ int to = -1;
	uint64_t size = 0;
	enum skip skip;
	struct stat st;

	if ((size_t)snprintf(path, sizeof path, "%s%s%s", folder, *folder ? "/" : "", name) >=
		    sizeof path ||
	    depth > TREE_MAX_DEPTH) {
		found(c, folder, 0, TOO_DEEP);
		return;
	}
	if (fstatat(from, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return;
	if (S_ISDIR(st.st_mode)) {
		collect_subfolder(c, from, out, path, name, depth);
		return;
	}
	if (!artifact_is_wanted(c->patterns, path))
		return;
	skip = unfit(c, path, name, st.st_mode);
	if (skip == TAKEN) {
		to = artifact_folder(out, folder);
		skip = to < 0 ? UNWRITABLE : copy_file(c, from, to, name, &size);
	}
	found(c, path, size, skip);
}

static void collect_folder(struct collector *c, int from, int out, const char *path, int depth)
{
	int fd = fcntl(from, F_DUPFD_CLOEXEC, 0);
	struct dirent *entry;
	DIR *d = fd < 0 ? NULL : fdopendir(fd);

	if (!d) {
		fd_close(&fd);
		found(c, path, 0, UNREADABLE);
		return;
	}
	rewinddir(d);
	while (!c->stopped && (entry = readdir(d)))
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
		    go_on(c, path))
			collect_entry(c, from, out, path, entry->d_name, depth);
	closedir(d);
}

static void collect_all(struct collector *c, const struct spec *s, int out)
{
	const struct collect_source *from = c->from;

	if (from->output >= 0)
		collect_folder(c, from->output, out, "", 0);
	if (from->workspace >= 0 && s->artifacts.count > 0) {
		c->patterns = &s->artifacts;
		c->output = from->output;
		collect_folder(c, from->workspace, out, "", 0);
	}
}

/* Rootless: the files belong to ids of ours that we are not. A child enters the sandbox's user
 * namespace, where it may read them, while it stays the caller towards the output folder. */
__attribute__((noreturn)) static void collector_child(struct collector *c, const struct spec *s,
						      const struct collect_source *from, int out)
{
	if (setns(from->userns, CLONE_NEWUSER) < 0)
		_exit(1);
	collect_all(c, s, out);
	_exit(0);
}

static bool read_findings(int fd, struct result *r)
{
	for (;;) {
		char path[PATH_MAX];
		struct finding f;
		ssize_t n = fd_read_all(fd, &f, sizeof f);

		if (n == 0)
			return true;
		if (n != sizeof f || f.skip >= ARRAY_SIZE(skip_text) ||
		    f.path_size >= sizeof path ||
		    fd_read_all(fd, path, f.path_size) != (ssize_t)f.path_size)
			return false;
		path[f.path_size] = '\0';
		add_to_result(r, path, &f);
	}
}

static bool collect_in_child(struct collector *c, const struct spec *s,
			     const struct collect_source *from, int out)
{
	_cleanup_close_ int read_end = -1, write_end = -1;
	int p[2], status;
	bool ok;
	pid_t pid;

	if (pipe2(p, O_CLOEXEC) < 0)
		return false;
	read_end = p[0];
	write_end = p[1];
	pid = fork();
	if (pid < 0)
		return false;
	if (pid == 0) {
		c->pipe = write_end;
		collector_child(c, s, from, out);
	}
	fd_close(&write_end);
	ok = read_findings(read_end, c->result);
	fd_close(&read_end);
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return false;
	return ok && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

void collect_artifacts(const struct spec *s, const struct collect_source *from, struct result *r)
{
	struct collector c = {.from = from,
			      .result = r,
			      .pipe = -1,
			      .output = -1,
			      .bytes_left = from->bytes_max < COLLECT_MAX_BYTES ? from->bytes_max
										: COLLECT_MAX_BYTES,
			      .told_left = COLLECT_MAX_TOLD,
			      .looked_left = COLLECT_MAX_LOOKED,
			      .names_left = COLLECT_MAX_NAMES,
			      .deadline_us = now_us() + COLLECT_MAX_US};
	_cleanup_close_ int out = -1;

	if (!s->out_dir)
		return;
	if (mkdir(s->out_dir, 0777) < 0 && errno != EEXIST)
		out = -1;
	else
		out = open(s->out_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (out < 0) {
		r->artifacts_failed = true;
		snprintf(r->message, sizeof r->message, "open output folder %.200s: %s", s->out_dir,
			 strerror(errno));
		return;
	}
	if (from->userns < 0)
		collect_all(&c, s, out);
	else if (!collect_in_child(&c, s, from, out))
		r->artifacts_failed = true;
	for (size_t i = 0; i < r->artifact_count; i++)
		if (r->artifacts[i].skipped == skip_text[UNWRITABLE])
			r->artifacts_failed = true;
	if (r->artifacts_failed && !r->message[0])
		snprintf(r->message, sizeof r->message,
			 "not every artifact could be written to %.200s", s->out_dir);
}
