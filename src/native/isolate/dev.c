/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dev.c - /dev: five harmless devices, the usual links, /dev/shm, nothing else; read-only.
 *
 * As root the nodes are made here, in this sandbox's own tmpfs: a bound host node would be one inode
 * for all sandboxes, and locks would leak through it. mknod needs the initial user namespace, so
 * rootless binds the host's nodes; SECURITY.md says so.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "native/isolate/mounts.h"

#define DEV NEW_ROOT "/dev"

static const struct {
	const char *name;
	unsigned minor_number; /* of major 1: Documentation/admin-guide/devices.txt */
} nodes[] = {{"null", 3}, {"zero", 5}, {"full", 7}, {"random", 8}, {"urandom", 9}};

static const char *const links[][2] = {
	{"/proc/self/fd", DEV "/fd"},
	{"/proc/self/fd/0", DEV "/stdin"},
	{"/proc/self/fd/1", DEV "/stdout"},
	{"/proc/self/fd/2", DEV "/stderr"},
};

static int make_node(struct isolation *s, const char *name, unsigned minor_number)
{
	char path[64], host[32];
	int fd;

	snprintf(path, sizeof path, DEV "/%s", name);
	if (!s->plan->rootless) {
		if (mknod(path, S_IFCHR | 0666, makedev(1, minor_number)) < 0 ||
		    chown(path, s->plan->root_mount_id, s->plan->root_mount_id) < 0)
			return step_failed(s, errno, "make device %s", name);
		return 0;
	}
	snprintf(host, sizeof host, "/dev/%s", name);
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	if (fd < 0)
		return step_failed(s, errno, "make a place for %s", host);
	close(fd);
	if (mount(host, path, NULL, MS_BIND, NULL) < 0 ||
	    mount(NULL, path, NULL, MS_REMOUNT | MS_BIND | MS_NOSUID | MS_NOEXEC, NULL) < 0)
		return step_failed(s, errno, "bind %s", host);
	return 0;
}

/* Terminals of its own (profile dev): an instance shared with nobody. */
static int own_terminals(struct isolation *s)
{
	if (mkdir(DEV "/pts", 0755) < 0)
		return step_failed(s, errno, "make /dev/pts");
	if (mount("devpts", DEV "/pts", "devpts", MS_NOSUID | MS_NOEXEC,
		  "newinstance,ptmxmode=0666,mode=0620") < 0)
		return step_failed(s, errno, "mount devpts");
	if (symlink("pts/ptmx", DEV "/ptmx") < 0)
		return step_failed(s, errno, "link /dev/ptmx");
	return 0;
}

int isolate_dev(struct isolation *s)
{
	mode_t mask = umask(0);
	char options[96];
	int r = 0;

	snprintf(options, sizeof options, "size=64k,nr_inodes=32,mode=755,uid=%u,gid=%u",
		 s->plan->root_mount_id, s->plan->root_mount_id);
	if (mount("tmpfs", DEV, "tmpfs", MS_NOSUID | MS_NOEXEC, options) < 0)
		return step_failed(s, errno, "mount /dev");
	for (size_t i = 0; r == 0 && i < sizeof nodes / sizeof *nodes; i++)
		r = make_node(s, nodes[i].name, nodes[i].minor_number);
	for (size_t i = 0; r == 0 && i < sizeof links / sizeof *links; i++)
		if (symlink(links[i][0], links[i][1]) < 0)
			r = step_failed(s, errno, "link %s", links[i][1]);
	if (r == 0 && mkdir(DEV "/shm", 0755) < 0)
		r = step_failed(s, errno, "make /dev/shm");
	if (r == 0 && s->plan->dev_profile)
		r = own_terminals(s);
	umask(mask);
	if (r == 0 && !layer_is_off(s, "ro") &&
	    mount(NULL, DEV, NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NOEXEC, NULL) <
		    0)
		r = step_failed(s, errno, "make /dev read-only");
	return r;
}
