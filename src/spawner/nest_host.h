/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nest_host.h - the process that holds one tenant's nest (native/nest.h) and its Python zygote.
 *
 * A child of the spawner's, real root. Jobs come one after the other on a SEQPACKET socket, each a struct
 * spawner_create; each is answered by a struct worker_report, as a worker's. What it made is the spawner's from
 * then on. It ends when the socket does, and with it everything it made: the spawner closes it when nothing
 * of it is alive.
 */
#ifndef SPAWNER_NEST_HOST_H
#define SPAWNER_NEST_HOST_H

#include "spawner/worker.h"

/* What it is asked for: one message. has_place: the lock of a slot comes along that a dead sandbox of its has left, with
 * cgroup. */
struct nest_job {
	struct spawner_create create;
	uint32_t has_place, slot, realm;
};
int nest_job_send(int jobs, const struct nest_job *j, int lock) must_check;

/* Start it: its pid, *ret_jobs the spawner's end. */
int nest_host_start(const struct worker_place *w, pid_t *ret_pid, int *ret_jobs,
		    struct err *e) must_check;

#endif
