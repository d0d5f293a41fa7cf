/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rootfs.c - a root of its own for every sandbox, from two read-only overlays.
 *
 *	/	overlay of [a small tmpfs of this sandbox] over [the prepared root on disk]
 *	/usr	overlay of [nothing] over [the machine's /usr]
 *
 * An image of the store (store.h) is one overlay: of the same small tmpfs over all its layers. What is mounted later
 * (/dev, /proc, writable places, volumes) has its mount point in the tmpfs, so nothing in an image, a link say, can
 * move it elsewhere; and a /sys that an image brings is hidden.
 *
 * Overlays, not bind mounts: a sandbox must not share one inode with the host or a sibling, since
 * flock and inotify work through shared inodes. All layers are named by short relative paths, so
 * mountinfo shows nothing of the host. As root the layers are id-mapped (root's files are root's
 * inside) where their file system can; elsewhere they belong to nobody.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "native/isolate/mounts.h"

#define OWN       STAGE "/own"
#define READ_ONLY (MS_RDONLY | MS_NOSUID | MS_NODEV)

/* Beside the bundle of an image, which has no limit but this (trust.c). */
#define TRUST_BYTES (2 << 20)

/* A resolver of the sandbox's own, cloche-egress, answers at every address: this is one that no program takes for a
 * mistake. It never makes anybody wait for another server. */
#define RESOLV_CONF "nameserver 127.0.0.1\noptions timeout:5 attempts:1\n"

static int write_own(struct isolation *s, const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
	size_t n = strlen(text);
	int r = 0;

	if (fd < 0)
		return step_failed(s, errno, "create %s", path);
	if (write(fd, text, n) != (ssize_t)n ||
	    fchown(fd, s->plan->root_mount_id, s->plan->root_mount_id) < 0)
		r = step_failed(s, errno, "write %s", path);
	close(fd);
	return r;
}

/* A folder of root inside. */
static int own_folder(struct isolation *s, const char *path)
{
	if (mkdir(path, 0755) < 0 ||
	    chown(path, s->plan->root_mount_id, s->plan->root_mount_id) < 0)
		return step_failed(s, errno, "make %s", path);
	return 0;
}

/* What differs between sandboxes: names, and the mount points their spec asks for. */
static int fill_own(struct isolation *s)
{
	const struct plan *p = s->plan;
	char text[PLAN_PATH + 64];
	int r;

	r = own_folder(s, OWN "/etc");
	if (r < 0)
		return r;
	snprintf(text, sizeof text, "%s\n", p->machine_id);
	r = write_own(s, OWN "/etc/machine-id", text);
	if (r < 0)
		return r;
	snprintf(text, sizeof text, "127.0.0.1\tlocalhost %s\n::1\tlocalhost %s\n", p->hostname,
		 p->hostname);
	r = write_own(s, OWN "/etc/hosts", text);
	if (r == 0 && (p->captured || *p->lowers))
		r = write_own(s, OWN "/etc/resolv.conf", p->captured ? RESOLV_CONF : "");
	if (r == 0 && p->trust)
		r = own_folder(s, OWN TRUST_FOLDER);
	if (r < 0)
		return r;
	for (uint32_t i = 0; i < p->tmpfs_count; i++) {
		if (strcmp(p->tmpfs[i].path, "/dev/shm") == 0)
			continue;
		r = make_directories(OWN, p->tmpfs[i].path, p->root_mount_id);
		if (r < 0)
			return step_failed(s, -r, "make mount point %s", p->tmpfs[i].path);
	}
	for (uint32_t i = 0; i < p->volume_count; i++) {
		if (is_in_volume(p, p->volumes[i].box) ||
		    is_in_writable_place(p, p->volumes[i].box))
			continue;
		r = make_mount_point(OWN, &p->volumes[i], p->root_mount_id);
		if (r < 0)
			return step_failed(s, -r, "make mount point %s", p->volumes[i].box);
	}
	return 0;
}

/* Attach a detached, if possible id-mapped copy of `from` at the new folder `to`. */
static int layer(struct isolation *s, const char *from, const char *to)
{
	bool mapped;
	int fd, r;

	r = own_folder(s, to);
	if (r < 0)
		return r;
	fd = clone_mount(from, s->userns, &mapped);
	if (fd < 0)
		return step_failed(s, -fd, "copy the mount of %s", from);
	r = attach_mount(fd, to);
	close(fd);
	return r < 0 ? step_failed(s, -r, "attach %s", to) : 0;
}

static int overlay(struct isolation *s, const char *where, const char *lowers)
{
	unsigned long flags = layer_is_off(s, "ro") ? MS_NOSUID | MS_NODEV : READ_ONLY;

	/* No redirects of the lower layers are followed: fewer look-ups, and nothing to be led astray by. */
	if (mount("overlay", where, "overlay", flags, lowers) < 0)
		return step_failed(s, errno, "mount an overlay on %s", where);
	return 0;
}

static int host_root(struct isolation *s)
{
	int r = own_folder(s, STAGE "/none");

	if (r == 0)
		r = layer(s, s->plan->template, STAGE "/base");
	if (r == 0)
		r = layer(s, "/usr", STAGE "/usr");
	if (r == 0)
		r = overlay(s, NEW_ROOT, "redirect_dir=nofollow,lowerdir=" OWN ":" STAGE "/base");
	if (r == 0)
		r = overlay(s, NEW_ROOT "/usr",
			    "redirect_dir=nofollow,lowerdir=" STAGE "/none:" STAGE "/usr");
	return r;
}

/* What an image must not decide. A whiteout hides whatever is below its name. */
static int fill_own_for_image(struct isolation *s)
{
	static const char *const folders[] = {OWN "/dev", OWN "/proc"};
	int r = 0;

	for (size_t i = 0; r == 0 && i < sizeof folders / sizeof *folders; i++)
		r = own_folder(s, folders[i]);
	if (r == 0 && mknod(OWN "/sys", S_IFCHR, 0) < 0)
		r = step_failed(s, errno, "hide /sys");
	if (r == 0)
		r = write_own(s, OWN "/etc/hostname", "");
	return r;
}

/* All layers lie in one folder, so one id-mapped mount is enough, and from inside it their names are short: 500
 * of them fit into the page that mount(2) takes. */
static int image_root(struct isolation *s)
{
	char options[PLAN_LOWERS + 64];
	int r = fill_own_for_image(s);

	if (r == 0)
		r = layer(s, "l", STAGE "/l");
	if (r < 0)
		return r;
	snprintf(options, sizeof options, "%sredirect_dir=nofollow,lowerdir=../own:%s",
		 s->plan->rootless ? "userxattr," : "", s->plan->lowers);
	if (chdir(STAGE "/l") < 0)
		return step_failed(s, errno, "enter the layers");
	r = overlay(s, "../new", options);
	if (chdir("../..") < 0)
		return step_failed(s, errno, "leave the layers");
	return r;
}

int isolate_rootfs(struct isolation *s)
{
	static const char *const folders[] = {OWN, NEW_ROOT};
	int r = mount_tmpfs(STAGE, MS_NOEXEC, (1 << 20) + (s->plan->trust ? TRUST_BYTES : 0), 2048,
			    0755, s->plan->root_mount_id, s->plan->root_mount_id);

	if (r < 0)
		return step_failed(s, -r, "mount a tmpfs for the new root");
	for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
		r = own_folder(s, folders[i]);
		if (r < 0)
			return r;
	}
	r = fill_own(s);
	if (r < 0)
		return r;
	return *s->plan->lowers ? image_root(s) : host_root(s);
}
