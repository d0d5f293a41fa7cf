/* SPDX-License-Identifier: Apache-2.0 */
/* put.h - one row of a run's "files" into its sandbox: a file, a folder or a link. */
#ifndef SERVICE_PUT_H
#define SERVICE_PUT_H

#include <jansson.h>

#include "service/talk.h"

/* Say all of it on this new conversation; init answers DONE or FAILED. The row was checked (body.c): path;
 * content, content_base64, link or folder; mode as a number. 0 or -ENOMEM. */
int put_file(struct talk *t, const json_t *row) must_check;

#endif
