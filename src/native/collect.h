/* SPDX-License-Identifier: Apache-2.0 */
/*
 * collect.h - take artifacts out of a sandbox in which every process is dead.
 *
 * The folders are descriptors of the sandbox's tmpfs mounts. Names and contents are hostile: no link is
 * followed, only regular files and folders leave, sizes are apparent sizes and capped, and names are
 * written with openat below the caller's folder, never as paths.
 */
#ifndef NATIVE_COLLECT_H
#define NATIVE_COLLECT_H

#include "sandbox/result.h"
#include "sandbox/spec.h"

struct collect_source {
	int output;    /* /output, or -1 */
	int workspace; /* /workspace, or -1 */
	int userns;    /* rootless: the namespace that owns the files, or -1 */
};

/* Most of everything together, whatever the sandbox could hold: a sparse file's apparent size counts. */
#define COLLECT_MAX_BYTES (1ull << 30)
enum { COLLECT_MAX_FILES = 65536 };

/* Copy into s->out_dir (made if missing). Fills r->artifacts; sets r->artifacts_failed and
 * r->message when the export as a whole did not work. */
void collect_artifacts(const struct spec *s, const struct collect_source *from, struct result *r);

#endif
