/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host_marks.h - which prepared roots of the host image nobody can use any more.
 *
 * A sandbox may live as long as the machine runs, and says nowhere which root it lies on. So whoever uses a root
 * for the first time since the machine was started leaves a mark, an empty file "used-BOOT-ROOT" beside it. A root
 * whose marks are all of earlier boots was not used in this one: no sandbox that lives can be on it. One without
 * any (made before there were marks, or still being made) gets a mark of this boot instead, and its turn at the
 * next. Marks and removal are made under a lock on the folder.
 */
#ifndef IMAGE_HOST_MARKS_H
#define IMAGE_HOST_MARKS_H

#include <stdbool.h>

enum { BOOT_ID_SIZE = 37 };

/* This boot's id. False: it cannot be told, then nothing is marked and nothing removed. */
bool boot_id(char ret[BOOT_ID_SIZE]);

bool host_is_marked(int dir, const char *boot, const char *root);
/* Call both with the folder locked. Where a mark cannot be made, the root's older ones go: it then has none. */
void host_mark(int dir, const char *boot, const char *root);
void host_sweep(int dir, const char *boot);

#endif
