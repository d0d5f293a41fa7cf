/* SPDX-License-Identifier: Apache-2.0 */
/*
 * preset.h - rules in files: NAME.rules in the first of some folders that has it.
 *
 * The same lines as anywhere (policy.h), of allow, deny and max-... only: no preset within a preset, no credential, since
 * who asks for a preset asks for connections and not for secrets.
 */
#ifndef NETWORK_PRESET_H
#define NETWORK_PRESET_H

#include <stddef.h>

#include "base/err.h"

enum { PRESET_FOLDERS_MAX = 3, PRESET_FILE_MAX = 64 << 10, PRESET_PATH_SIZE = 1200 };

struct preset_folders {
	char path[PRESET_FOLDERS_MAX][PRESET_PATH_SIZE];
	size_t count;
};

/* The lines of this preset, checked; the caller's, ending with NUL. ret_folder (may be NULL): which of the folders has it. -1
 * and e: no such preset (errnum ENOENT; names those there are), or what is wrong with which line of which file. */
char *preset_read(const struct preset_folders *folders, const char *name, size_t *ret_folder,
		  struct err *e) must_check;

/* Names of all presets there are, sorted, blanks between, as far as they fit. */
void preset_names(const struct preset_folders *folders, char *text, size_t size);

#endif
