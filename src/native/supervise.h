/* SPDX-License-Identifier: Apache-2.0 */
/*
 * supervise.h - watch one running sandbox until it is known how the command ended.
 *
 * One poll loop: the guest protocol, both output streams, the caller's stdin, the caller's wish to end
 * it, and the clocks. The first verdict wins and is recorded before any kill is sent; a command that
 * had ended before keeps its own end.
 */
#ifndef NATIVE_SUPERVISE_H
#define NATIVE_SUPERVISE_H

#include "protocol/protocol.h"
#include "native/cgroup.h"
#include "native/native.h"
#include "native/network.h"
#include "native/stream.h"
#include "sandbox/judge.h"

enum { MAX_PLACES = SPEC_MAX_TMPFS };

struct supervision {
	const struct spec *spec;
	const struct native_io *io;
	struct cgroup *cgroup;
	struct network *network;
	struct network_usage *usage; /* what that one says goes in here */
	int control, pidfd;
	int stdin_pipe; /* write end towards the command, -1: closed */
	struct stream out, err;
	const int *places; /* writable tmpfs mounts, for the disk and inode limits */
	size_t place_count;
	/* what was found out */
	struct evidence *evidence;
	unsigned limits_hit;
	uint64_t started_us; /* when init reported the start of the command; set by the caller */
	uint64_t ended_us;   /* when it was over; 0: it never ran */
	bool survivors;      /* processes were left when the command ended */
	bool protocol_error;
	/* working state */
	struct frame_reader reader;
	int stdin_source;
	const char *stdin_data;
	size_t stdin_size;
	char stdin_buffer[65536];
	uint64_t last_output_us, next_cpu_us, next_disk_us;
};

/* Returns when the command has ended or has to be killed; evidence says which. */
void supervise(struct supervision *s);

/* Sample the writable places once: full ones are noted in limits_hit. Best effort by nature. */
void supervise_sample_disk(struct supervision *s);

#endif
