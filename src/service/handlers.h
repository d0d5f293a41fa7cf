/* SPDX-License-Identifier: Apache-2.0 */
/* handlers.h - one function per route, declared from the table. */
#ifndef SERVICE_HANDLERS_H
#define SERVICE_HANDLERS_H

#include "service/call.h"

#define ROUTE(method, pattern, handler, needs, queries) void handler(struct call *c);
#include "service/routes.def"
#undef ROUTE

#endif
