/* SPDX-License-Identifier: Apache-2.0 */
#include "registry/download.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/hex.h"

enum { PIECE = 256 << 10 };

static int begin_hash(struct download *d, struct err *e)
{
	if (EVP_DigestInit_ex(d->hash, EVP_sha256(), NULL) == 1)
		return 0;
	return err_set(e, 0, "OpenSSL cannot make a SHA-256");
}

static int add(struct download *d, const void *data, size_t size, struct err *e)
{
	if (EVP_DigestUpdate(d->hash, data, size) != 1)
		return err_set(e, 0, "OpenSSL cannot make a SHA-256");
	d->size += size;
	return 0;
}

/* ---- the sink */

static int sink_write(void *context, const void *data, size_t size, struct err *e)
{
	struct download *d = context;
	int r = fd_write_all(d->fd, data, size);

	if (r < 0)
		return err_set(e, -r, "keep a download of %llu bytes",
			       (unsigned long long)d->what.size);
	return add(d, data, size, e);
}

static int sink_restart(void *context, struct err *e)
{
	struct download *d = context;

	d->size = 0;
	if (ftruncate(d->fd, 0) < 0 || lseek(d->fd, 0, SEEK_SET) < 0)
		return err_set(e, errno, "begin a download again");
	return begin_hash(d, e);
}

static int sink_finish(void *context, bool *ret_mismatch, struct err *e)
{
	struct download *d = context;
	unsigned char sum[EVP_MAX_MD_SIZE];
	char hex[65];
	unsigned n = 0;

	if (EVP_DigestFinal_ex(d->hash, sum, &n) != 1 || n != 32)
		return err_set(e, 0, "OpenSSL cannot make a SHA-256");
	hex_encode(sum, n, hex);
	*ret_mismatch = strcmp(hex, d->name) != 0;
	return *ret_mismatch ? err_set(e, 0, "the bytes are sha256:%s", hex) : 0;
}

/* ---- the file */

/* In a child: it and its maker share the open file, and so the lock. */
static void wait_in_child(int fd, pid_t maker)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (getppid() == maker && flock(fd, LOCK_EX) < 0)
		if (errno != EINTR)
			_exit(1);
	_exit(0);
}

static int wait_for_child(pid_t pid, int cancel_fd, struct err *e)
{
	_cleanup_close_ int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	struct pollfd p[] = {{pidfd, POLLIN, 0}, {cancel_fd, POLLIN, 0}};
	bool cancelled = false;
	int status = -1;

	while (pidfd >= 0 && poll(p, ARRAY_SIZE(p), -1) < 0 && errno == EINTR)
		;
	if (pidfd >= 0 && !p[0].revents && p[1].revents) {
		cancelled = true;
		kill(pid, SIGKILL);
	}
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (cancelled)
		return err_set(e, ECANCELED, "wait for another process's download");
	return status == 0 ? 0 : err_set(e, 0, "wait for another process's download: it failed");
}

/* flock() waits for the lock and for nothing else, so a child does the waiting, and both ends are descriptors. */
static int lock(int fd, int cancel_fd, struct err *e)
{
	pid_t maker = getpid(), pid;

	if (flock(fd, LOCK_EX | LOCK_NB) == 0)
		return 0;
	if (errno != EWOULDBLOCK)
		return err_set(e, errno, "lock a download");
	pid = fork();
	if (pid < 0)
		return err_set(e, errno, "wait for another process's download");
	if (pid == 0)
		wait_in_child(fd, maker);
	return wait_for_child(pid, cancel_fd, e);
}

/* 0: locked, and still the file of that name; 1: it went away meanwhile. */
static int open_locked(struct download *d, int cancel_fd, struct err *e)
{
	struct stat here, there;

	d->fd = openat(d->dir, d->name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (d->fd < 0)
		return err_set(e, errno, "create a file for a download");
	if (lock(d->fd, cancel_fd, e) < 0)
		return -1;
	if (fstat(d->fd, &here) == 0 &&
	    fstatat(d->dir, d->name, &there, AT_SYMLINK_NOFOLLOW) == 0 &&
	    here.st_dev == there.st_dev && here.st_ino == there.st_ino && S_ISREG(here.st_mode))
		return 0;
	fd_close(&d->fd);
	return 1;
}

static int hash_what_is_there(struct download *d, struct err *e)
{
	_cleanup_free_ char *piece = malloc(PIECE);
	ssize_t n = 1;

	if (!piece)
		return err_set(e, ENOMEM, "read a download");
	/* One byte more than there can be: then it is thrown away. */
	while (n > 0 && d->size <= d->what.size) {
		n = fd_read_all(d->fd, piece, PIECE);
		if (n < 0)
			return err_set(e, (int)-n, "read a download");
		if (add(d, piece, (size_t)n, e) < 0)
			return -1;
	}
	return d->size > d->what.size ? sink_restart(d, e) : 0;
}

int download_open(struct download *d, int dir, const struct descriptor *what, int cancel_fd,
		  struct err *e)
{
	int r;

	*d = (struct download){.dir = dir, .fd = -1, .what = *what};
	memcpy(d->name, what->digest + strlen("sha256:"), sizeof d->name);
	d->hash = EVP_MD_CTX_new();
	if (!d->hash)
		return err_set(e, ENOMEM, "prepare a download");
	do
		r = begin_hash(d, e) < 0 ? -1 : open_locked(d, cancel_fd, e);
	while (r > 0);
	if (r == 0)
		r = hash_what_is_there(d, e);
	if (r < 0)
		download_done(d);
	return r;
}

struct registry_blob download_blob(struct download *d)
{
	return (struct registry_blob){
		.what = d->what,
		.offset = d->size,
		.sink = {sink_write, sink_restart, sink_finish, d},
	};
}

void download_remove(struct download *d)
{
	if (d->fd >= 0)
		unlinkat(d->dir, d->name, 0);
}

void download_done(struct download *d)
{
	EVP_MD_CTX_free(d->hash);
	d->hash = NULL;
	if (d->fd > 0)
		fd_close(&d->fd);
	d->fd = -1;
}
