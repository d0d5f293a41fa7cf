/* SPDX-License-Identifier: Apache-2.0 */
/*
 * imaging.h - cloche-image: what `cloche image` does. A program of its own, so that the command line need not load
 * what only this needs; it alone links libcurl, and cloche-decode, which it starts, alone links libarchive.
 *
 *	main.c		options, verbs		import.c	archives and folders	pull.c	registries
 *	list.c		ls and inspect		remove.c	rm and prune
 *
 * Exit status: 0, 1 (it could not be done: said on stderr), 2 (usage), 130 (interrupted).
 */
#ifndef IMAGING_IMAGING_H
#define IMAGING_IMAGING_H

#include "image/keeper.h"
#include "imaging/writer.h"
#include "sandbox/places.h"

struct request {
	struct places places;
	bool quiet, json, all, force;
	/* pull, by a service: the name is a client's (registry.h, untrusted_reference). With --state-dir=FOLDER and
	 * --config=FILE, where the store and the operator's configuration are; nobody else's business, so not in any help. */
	bool for_client;
	char **operands;
	size_t count;
};

int verb_pull(struct request *q, struct err *e);
int verb_import(struct request *q, struct err *e);
int verb_ls(struct request *q, struct err *e);
int verb_inspect(struct request *q, struct err *e);
int verb_rm(struct request *q, struct err *e);
int verb_prune(struct request *q, struct err *e);

/* What was left out or changed by rule, on stderr. */
void tell_notes(const struct request *q, const struct tree_notes *n);

/* Remove what nothing refers to, after a change; that somebody else adds just now is no error. */
int tidy(const struct image_store *s, uint64_t *ret_freed, struct err *e) must_check;

#endif
