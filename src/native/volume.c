/* SPDX-License-Identifier: Apache-2.0 */
/*
 * volume.c - what of the caller's may be mounted, and as whose.
 *
 * A volume is opened once and everything is checked on that descriptor. As root it becomes an id-mapped
 * mount: its owner (the caller, in the ordinary case) outside is the sandbox user inside, so files the
 * code makes belong to the owner afterwards. Where the file system cannot do that, a writable volume is
 * refused, and the message names --in and --out.
 */
#include "native/volume.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "native/idmap.h"
#include "native/mount_api.h"

/* Sockets through which whoever reaches them controls the machine. */
static const char *const engine_sockets[] = {
	"/var/run/docker.sock",
	"/run/docker.sock",
	"/run/containerd/containerd.sock",
	"/run/podman/podman.sock",
	"/run/crio/crio.sock",
	"/run/cloche/cloche.sock",
	"/run/buildkit/buildkitd.sock",
	"/run/dbus/system_bus_socket",
	"/run/systemd/private",
};
static const char *const socket_names[] = {"docker.sock", "containerd.sock", "podman.sock",
					   "crio.sock",   "cloche.sock",     "buildkitd.sock"};

/* Trees of the kernel's or of the whole machine. */
static const char *const forbidden[] = {"/",    "/proc",    "/sys",  "/dev",
					"/run", "/var/run", "/boot", "/etc"};

/* And trees of which no part is a caller's: the kernel's, and the one full of services' sockets. */
static const char *const forbidden_trees[] = {"/proc", "/sys", "/dev", "/run"};

static bool is_below(const char *path, const char *folder)
{
	size_t n = strlen(folder);

	return strcmp(folder, "/") == 0 ||
	       (strncmp(path, folder, n) == 0 && (path[n] == '/' || path[n] == '\0'));
}

static int check_place(const char *path, int fd, struct err *e)
{
	for (size_t i = 0; i < ARRAY_SIZE(forbidden); i++)
		if (strcmp(path, forbidden[i]) == 0)
			return err_set(e, 0,
				       "--volume %.200s: this tree cannot be given to a sandbox",
				       path);
	for (size_t i = 0; i < ARRAY_SIZE(forbidden_trees); i++)
		if (is_below(path, forbidden_trees[i]))
			return err_set(
				e, 0, "--volume %.200s: nothing below %s can be given to a sandbox",
				path, forbidden_trees[i]);
	for (size_t i = 0; i < ARRAY_SIZE(engine_sockets); i++) {
		char real[PATH_MAX];

		if (realpath(engine_sockets[i], real) && is_below(real, path))
			return err_set(e, 0,
				       "--volume %.200s: holds %s, which controls this machine",
				       path, engine_sockets[i]);
	}
	for (size_t i = 0; i < ARRAY_SIZE(socket_names); i++) {
		struct stat st;

		if (fstatat(fd, socket_names[i], &st, AT_SYMLINK_NOFOLLOW) == 0 &&
		    S_ISSOCK(st.st_mode))
			return err_set(e, 0, "--volume %.200s: holds %s, which controls an engine",
				       path, socket_names[i]);
	}
	return 0;
}

/* A detached mount with the owner's ids mapped to the sandbox user's; root's to root inside. */
static int map_mount(const char *path, const struct stat *st, const struct slot *slot, int mount_fd,
		     bool writable, struct err *e)
{
	const struct id_pair uids[] = {{st->st_uid, slot->user_uid}, {0, slot->root_uid}};
	const struct id_pair gids[] = {{st->st_gid, slot->user_gid}, {0, slot->root_gid}};
	_cleanup_close_ int userns = -1;
	struct mount_attr attr = {.attr_set = MOUNT_ATTR_IDMAP};
	struct userns_holder holder;
	int r;

	r = userns_make(uids, st->st_uid ? 2 : 1, gids, st->st_gid ? 2 : 1, NULL, &holder, &userns,
			e);
	userns_holder_reap(&holder);
	if (r < 0)
		return -1;
	attr.userns_fd = (uint64_t)userns;
	if (syscall(SYS_mount_setattr, mount_fd, "", AT_EMPTY_PATH, &attr, sizeof attr) == 0 ||
	    !writable)
		return 0;
	return err_set(
		e, errno,
		"--volume %.200s: this file system cannot map ids; use --in and --out, or :ro",
		path);
}

/* Where the descriptor's file is. A mount of another mount namespace has a path that means nothing here,
 * but it cannot be copied either: open_tree() refuses it. */
static int find_path(int fd, char real[PLAN_HOST_PATH], struct err *e)
{
	char link[64];
	struct stat a, b;
	ssize_t n;

	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	n = readlink(link, real, PLAN_HOST_PATH - 1);
	if (n < 0)
		return err_set(e, errno, "find a volume's path");
	real[n] = '\0';
	if (real[0] != '/' || fstat(fd, &a) < 0 || stat(real, &b) < 0 || a.st_dev != b.st_dev ||
	    a.st_ino != b.st_ino)
		return err_set(e, 0, "--volume %.200s: is not a place of this machine any more",
			       real);
	return 0;
}

int volume_check(int fd, char real[PLAN_HOST_PATH], struct err *e)
{
	struct stat st;

	if (find_path(fd, real, e) < 0)
		return -1;
	if (fstat(fd, &st) < 0)
		return err_set(e, errno, "--volume %.200s", real);
	if (S_ISSOCK(st.st_mode))
		return err_set(e, 0, "--volume %.200s: is a socket; sockets are refused", real);
	if (!S_ISDIR(st.st_mode) && !S_ISREG(st.st_mode))
		return err_set(e, 0, "--volume %.200s: is neither a folder nor a regular file",
			       real);
	return check_place(real, fd, e);
}

/* The path is resolved first: a link on it then would be somebody's race. */
static int open_volume(const char *host, int *ret_fd, struct err *e)
{
	const struct open_how how = {.flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_NO_SYMLINKS};
	char real[PATH_MAX];

	if (!realpath(host, real))
		return err_set(e, errno, "--volume %.200s", host);
	*ret_fd = (int)syscall(SYS_openat2, AT_FDCWD, real, &how, sizeof how);
	return *ret_fd < 0 ? err_set(e, errno, "--volume %.200s", real) : 0;
}

static int prepare_one(int fd, const char *box, bool writable, const struct slot *slot,
		       bool rootless, struct plan_volume *v, int *ret_mount, struct err *e)
{
	_cleanup_close_ int mount_fd = -1;
	char real[PLAN_HOST_PATH];
	struct stat st;

	if (volume_check(fd, real, e) < 0)
		return -1;
	if (fstat(fd, &st) < 0)
		return err_set(e, errno, "--volume %.200s", real);
	if (rootless && writable)
		return err_set(
			e, 0,
			"--volume %.200s: an ordinary user cannot map ids, so files could not be given "
			"back; use --in and --out, or :ro",
			real);
	snprintf(v->box, sizeof v->box, "%s", box);
	v->dev = st.st_dev;
	v->ino = st.st_ino;
	v->writable = writable;
	v->is_file = S_ISREG(st.st_mode);
	*ret_mount = -1;
	if (rootless) {
		memcpy(v->host, real, strlen(real) + 1);
		return 0;
	}
	mount_fd = (int)syscall(SYS_open_tree, fd, "",
				OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH);
	if (mount_fd < 0)
		return err_set(e, errno, "--volume %.200s: copy the mount", real);
	if (map_mount(real, &st, slot, mount_fd, writable, e) < 0)
		return -1;
	*ret_mount = TAKE_FD(mount_fd);
	return 0;
}

/* opened -1: what is at the path host. */
static int prepare(int opened, const char *host, const char *box, bool writable,
		   const struct slot *slot, bool rootless, struct plan_volume *v, int *ret_mount,
		   struct err *e)
{
	_cleanup_close_ int fd = -1;

	if (opened < 0 && open_volume(host, &fd, e) < 0)
		return -1;
	return prepare_one(opened < 0 ? fd : opened, box, writable, slot, rootless, v, ret_mount,
			   e);
}

/* Its interpreter is a link out of the folder; it must lead into /usr, which is there inside too. */
int venv_check(const char *path, struct err *e)
{
	char python[PATH_MAX], real[PATH_MAX];

	if (path[0] != '/' || box_path_check("path", path, e) < 0)
		return err_set(e, 0, "--venv %.200s: give its absolute path", path);
	if ((size_t)snprintf(python, sizeof python, "%s/bin/python3", path) >= sizeof python ||
	    !realpath(python, real))
		return err_set(e, errno, "--venv %.200s: no bin/python3 in it", path);
	if (!is_below(real, "/usr") && !is_below(real, path))
		return err_set(
			e, 0,
			"--venv %.200s: its interpreter is %.200s, which a sandbox does not have; make it "
			"with /usr/bin/python3 -m venv",
			path, real);
	return 0;
}

int volumes_prepare(const struct spec *s, const int *opened, const struct slot *slot, bool rootless,
		    struct plan *p, int ret_mounts[PLAN_MAX_VOLUMES], struct err *e)
{
	for (size_t i = 0; i < PLAN_MAX_VOLUMES; i++)
		ret_mounts[i] = -1;
	for (size_t i = 0; i < s->volume_count; i++, p->volume_count++)
		if (prepare(opened ? opened[i] : -1, s->volumes[i].host, s->volumes[i].box,
			    s->volumes[i].writable, slot, rootless, &p->volumes[p->volume_count],
			    &ret_mounts[p->volume_count], e) < 0)
			return -1;
	if (!s->venv)
		return 0;
	if (venv_check(s->venv, e) < 0)
		return -1;
	if (prepare(opened ? opened[SPEC_MAX_VOLUMES] : -1, s->venv, s->venv, false, slot, rootless,
		    &p->volumes[p->volume_count], &ret_mounts[p->volume_count], e) < 0)
		return -1;
	p->volume_count++;
	return 0;
}

int volume_point(int root, const struct plan_volume *v, const char *box, uint32_t uid, uint32_t gid,
		 struct err *e)
{
	char path[PLAN_PATH];
	size_t n = strlen(box);

	if (strncmp(v->box, box, n) != 0)
		return 0;
	snprintf(path, sizeof path, "%s", v->box + n);
	for (char *p = path;; p++) {
		char c = *p;
		int fd;

		if (c != '/' && c != '\0')
			continue;
		*p = '\0';
		if (c == '\0' && v->is_file) {
			fd = openat(root, path, O_CREAT | O_WRONLY | O_NOFOLLOW | O_CLOEXEC, 0644);
			if (fd < 0)
				return err_set(e, errno, "make mount point %s", v->box);
			close(fd);
		} else if (mkdirat(root, path, 0755) < 0 && errno != EEXIST) {
			return err_set(e, errno, "make mount point %s", v->box);
		}
		if (fchownat(root, path, uid, gid, AT_SYMLINK_NOFOLLOW) < 0)
			return err_set(e, errno, "make mount point %s", v->box);
		*p = c;
		if (c == '\0')
			return 0;
	}
}
