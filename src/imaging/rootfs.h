/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rootfs.h - a folder of this machine that is a root file system becomes a layer.
 *
 * It is walked by descriptor, no link is followed, and what lies on another file system is left out, as are sockets.
 * It goes through the same writer as archives do. Its digest is that of the frames (entry.h) in order of names: the
 * same files with the same owners and times are the same layer.
 */
#ifndef IMAGING_ROOTFS_H
#define IMAGING_ROOTFS_H

#include "imaging/layer.h"

int rootfs_have(const struct image_store *s, int folder, struct meter *meter,
		struct tree_notes *notes, struct record_layer *ret, struct err *e) must_check;

#endif
