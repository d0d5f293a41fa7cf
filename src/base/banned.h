/* SPDX-License-Identifier: Apache-2.0 */
/*
 * banned.h - functions that may not be used anywhere in cloche.
 *
 * meson includes this file in front of every translation unit. A use is a compile error whose
 * message says what to use instead. Each is here because it cannot be told how large its output
 * buffer is, because it reports errors by silence, or because it keeps hidden state.
 */
#ifndef BASE_BANNED_H
#define BASE_BANNED_H
#ifndef __ASSEMBLER__

/* The declarations must be read before their names are poisoned. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#pragma GCC poison strcpy strcat strncpy strncat stpcpy sprintf vsprintf gets strtok
#pragma GCC poison atoi atol atoll atof
#pragma GCC poison asctime ctime gmtime localtime
#pragma GCC poison system popen tmpnam tempnam mktemp
#undef alloca
#pragma GCC poison alloca

#endif
#endif
