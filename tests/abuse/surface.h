/* SPDX-License-Identifier: Apache-2.0 */
/* surface.h - what the two halves of surface share; see surface.c. */
#ifndef ABUSE_SURFACE_H
#define ABUSE_SURFACE_H

#define ARRAY_SIZE(a) (sizeof(a) / sizeof *(a))

/* Print a thing that is within reach, and a section's number. */
void line(const char *section, const char *name, const char *detail);
void count(const char *section, const char *what, long n);

/* The errno of f(argument) in a child, 0 for success, -1 if the child died. */
int in_child(int (*f)(const void *), const void *argument);

void section_facts(void);

#endif
