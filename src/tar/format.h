/* SPDX-License-Identifier: Apache-2.0 */
/* format.h - the fields of a header block (POSIX.1-2017, pax, "ustar Interchange Format"). */
#ifndef TAR_FORMAT_H
#define TAR_FORMAT_H

#include "tar/tar.h"

struct tar_block {
	char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], sum[8], type, target[100];
	char magic[6], version[2], user[32], group[32], major[8], minor[8], prefix[155], pad[12];
};
_Static_assert(sizeof(struct tar_block) == TAR_BLOCK, "a header is one block");

/* The sum of its bytes, those of the field itself taken for spaces. */
unsigned tar_sum(const struct tar_block *h);

#endif
