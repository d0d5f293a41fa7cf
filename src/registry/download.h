/* SPDX-License-Identifier: Apache-2.0 */
/*
 * download.h - the usual sink of a blob: a file of a folder, named by its digest, that a later call goes on with.
 *
 * Several processes may want the same blob: the file is locked while somebody writes it, and who waited for it
 * finds it complete, or gone because the other one is done with it (then it begins anew: look first whether it is
 * still needed). Whoever takes several sorts them by digest, so that no two wait for each other.
 *
 * What is in the file when it is opened is hashed again, so it may be anything: rubbish costs a second download, no
 * more. Nothing is synced: after a power failure it is rubbish or not.
 */
#ifndef REGISTRY_DOWNLOAD_H
#define REGISTRY_DOWNLOAD_H

#include <openssl/evp.h>

#include "registry/registry.h"

struct download {
	int dir, fd;
	char name[65]; /* the digest's digits */
	struct descriptor what;
	EVP_MD_CTX *hash;
	uint64_t size; /* bytes in the file */
};

/* Lock the file of a blob in the folder dir (a descriptor, which must stay open), creating it if it is not there.
 * Waits for whoever has it, at most until cancel_fd (or -1) is readable (errnum ECANCELED). */
int download_open(struct download *d, int dir, const struct descriptor *what, int cancel_fd,
		  struct err *e) must_check;

/* As registry_fetch() takes it; d must stay where it is. */
struct registry_blob download_blob(struct download *d);

/* Remove the file: it has been used, or nobody will. */
void download_remove(struct download *d);

/* Close and unlock; the file stays. Zero and done ones are fine. */
void download_done(struct download *d);

#endif
