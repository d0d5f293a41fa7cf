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
	int output;         /* /output, or -1 */
	int workspace;      /* /workspace, or -1 */
	int userns;         /* rootless: the namespace that owns the files, or -1 */
	int cancel_fd;      /* readable: stop, or -1 */
	uint64_t bytes_max; /* of all files together: what the places could hold; holes count */
};

/* What an export tells of at most, looks at at most, and how long it may take, whatever the sandbox
 * left: names and their number are hostile as well. */
enum { COLLECT_MAX_TOLD = 16384, COLLECT_MAX_LOOKED = 1000000, COLLECT_MAX_NAMES = 1 << 20 };
#define COLLECT_MAX_US    30000000u
#define COLLECT_MAX_BYTES (1ull << 30)

/* Copy into s->out_dir (made if missing). Fills r->artifacts; sets r->artifacts_failed and
 * r->message when the export as a whole did not work. */
void collect_artifacts(const struct spec *s, const struct collect_source *from, struct result *r);

/* Whether the path below a place, or a folder it is in, matches one of these globs (NULL: all do); and whether
 * its name may be shown and made: no control characters. */
bool artifact_is_wanted(const struct strings *patterns, const char *path);
bool artifact_name_is_safe(const char *name);

/* The folder of this path ("" itself) below the output folder, made as needed, no link followed; the caller
 * closes it. -1 if it cannot be. */
int artifact_folder(int out, const char *path);

#endif
