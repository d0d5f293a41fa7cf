/* SPDX-License-Identifier: Apache-2.0 */
/*
 * package.h - install_packages: which managers there are, what a package's name may look like for each, and the
 * command that installs some.
 *
 * A name is an argument of the manager, never of a shell. What is taken is a name with a version: no URL, no
 * path, no option, nothing that the manager would read as a file.
 */
#ifndef AGENT_PACKAGE_H
#define AGENT_PACKAGE_H

#include <jansson.h>
#include <stdbool.h>

#include "base/err.h"

enum { PACKAGES_MAX = 32, PACKAGE_BYTES = 256 };

/* Where Python finds what is installed: PYTHONUSERBASE of sandboxes with a network. */
#define PACKAGE_FOLDER "/workspace/.packages"

struct package_grammar;

struct package_manager {
	const char *name;
	const char *registry; /* the host it asks, unless it is told of another */
	const char *preset;   /* of the network, which opens that */
	const char *example;
	const char *missing; /* what stderr says where there is no such manager */
	const struct package_grammar *grammar;
	const char *const *command;  /* what comes before the packages; ends with NULL */
	const char *const (*env)[2]; /* name and value; ends with NULL */
};

extern const struct package_manager package_managers[];
extern const size_t package_manager_count;

/* NULL: there is none of this name. */
const struct package_manager *package_manager_find(const char *name);

/* Whether a string is a package with, maybe, a version, as this manager writes it. */
bool package_is_name(const struct package_manager *m, const char *text);

/* Check a list from a model. -1: e->text is for the model. */
int package_check(const struct package_manager *m, const json_t *list, struct err *e) must_check;

/* The command, an array of strings; the environment it wants, an object. New references, NULL without memory. */
json_t *package_command(const struct package_manager *m, const json_t *list) must_check;
json_t *package_environment(const struct package_manager *m) must_check;

#endif
