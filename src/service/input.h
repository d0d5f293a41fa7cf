/* SPDX-License-Identifier: Apache-2.0 */
/* input.h - the body of a request into a command's stdin, as it comes and as fast as the command reads. */
#ifndef SERVICE_INPUT_H
#define SERVICE_INPUT_H

#include "service/call.h"

/* Feed command `number` of c->box with the body of c, and with ?eof close its stdin behind that. Answers the
 * call: 204 when all of it is in, 409 when there is no open stdin (any more). */
void input_feed(struct call *c, uint32_t number);

#endif
