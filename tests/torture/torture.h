/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torture.h - the n-th call fails.
 *
 * The linker (--wrap) sends the allocations and, for a whole run, the system calls of our code to
 * torture.c. torture_arm(n) lets the n-th of them fail, once; torture_fired() says whether it came to
 * that. Nothing is replaced inside libc: what getline() or opendir() allocate counts as one call.
 */
#ifndef TESTS_TORTURE_H
#define TESTS_TORTURE_H

#include <stdbool.h>

enum torture_kind { TORTURE_NONE, TORTURE_MEMORY, TORTURE_CALLS };

/* The n-th call (from 1) of this kind fails; errnum: with this error (system calls). */
void torture_arm(enum torture_kind kind, unsigned n, int errnum);

/* Back to normal. True if a call was made to fail. */
bool torture_disarm(void);

/* The name of the function that failed last. */
const char *torture_victim(void);

/* Call first: starts the program once more with the C library's per-thread cache off, whose free pieces it
 * would count as used. */
void torture_start(char **argv);

/* Bytes of the heap that are in use, as the C library counts them; 0 under a sanitizer or valgrind, which
 * have their own leak check at the end of the program. */
unsigned long torture_heap(void);

#endif
