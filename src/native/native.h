/* SPDX-License-Identifier: Apache-2.0 */
/* native.h - the native runtime: one command in one new sandbox of this kernel's own features. */
#ifndef NATIVE_NATIVE_H
#define NATIVE_NATIVE_H

#include "sandbox/places.h"
#include "sandbox/result.h"
#include "sandbox/spec.h"

struct native_io {
	int stdin_fd;           /* copied to the command until it ends; -1: none */
	const char *stdin_data; /* used instead of a descriptor when not NULL */
	size_t stdin_size;
	int out_fd, err_fd; /* pass kept output on as it comes; -1: keep it for the result */
	bool escape_out,
		escape_err;    /* show control characters escaped (the descriptor is a terminal) */
	int cancel_fd;         /* readable: the caller wants it over; -1: none */
	const char *uid_range; /* operator's block as BASE:COUNT, or NULL */
	/* Under every --network but none, from settings_egress_config(): what cloche-egress is told (egress/config.h), and
	 * whether TLS has to be opened, for which the sandbox gets an authority to trust. */
	char *network;
	bool network_opens_tls;
};

/* Run spec to its end. Returns 0 with *r filled, whatever the reason: what went wrong is in it. Every
 * process of the sandbox is dead and everything made for it is gone when this returns. r is to be freed
 * with result_done(). -1 only when nothing was tried at all (e). */
int native_run(const struct places *places, const struct spec *s, const struct native_io *io,
	       struct result *r, struct err *e) must_check;

#endif
