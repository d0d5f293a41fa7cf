/* SPDX-License-Identifier: Apache-2.0 */
#include "native/report.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "native/seccomp.h"

static void report_refused(struct result *r)
{
	size_t n = strlen(r->message);
	char hosts[400];

	if (r->exit_code == 0 || r->network.denied == 0)
		return;
	network_usage_text(&r->network, hosts, sizeof hosts);
	snprintf(r->message + n, sizeof r->message - n, "; connections were refused: %s", hosts);
}

void report_message(struct result *r, const struct spec *s)
{
	size_t n = sizeof r->message;

	if (r->message[0])
		return;
	switch (r->reason) {
	case REASON_EXITED:
		if (r->exit_code)
			snprintf(r->message, n, "the command ended with exit code %d",
				 r->exit_code);
		report_refused(r);
		break;
	case REASON_SIGNALED:
		snprintf(r->message, n, "the command was ended by signal %d (%s)", r->signal,
			 strsignal(r->signal));
		break;
	case REASON_SECCOMP_VIOLATION:
		snprintf(r->message, n,
			 "the command was ended for a system call of another architecture");
		break;
	case REASON_TIMEOUT:
		snprintf(r->message, n, "stopped after %.6g s of wall time",
			 (double)s->timeout_us / 1e6);
		break;
	case REASON_CPU_TIME:
		snprintf(r->message, n, "stopped after %.6g s of CPU time",
			 (double)s->cpu_time_us / 1e6);
		break;
	case REASON_IDLE_TIMEOUT:
		snprintf(r->message, n, "stopped after %.6g s without output",
			 (double)s->idle_timeout_us / 1e6);
		break;
	case REASON_OOM:
		snprintf(r->message, n, "out of memory: the limit is %llu bytes",
			 (unsigned long long)s->memory_bytes);
		break;
	case REASON_OUTPUT_LIMIT:
		snprintf(r->message, n, "stopped for printing more than %llu bytes",
			 (unsigned long long)s->max_output_bytes);
		break;
	case REASON_RUNTIME_CRASH:
		snprintf(r->message, n, "the sandbox's init ended without a report");
		break;
	default:
		snprintf(r->message, n, "%s", codes[result_code(r)].people);
	}
}

static const char *mechanism(const struct cgroup *c, bool has)
{
	if (!has)
		return "none";
	return c->host->version == CGROUP_V2 ? "cgroup-v2" : "cgroup-v1";
}

void report_enforced(struct result *r, const struct spec *s, const struct cgroup *c,
		     const struct plan *plan)
{
	const struct seccomp_profile *filter = seccomp_profile_find(s->profile);
	struct enforced *f = &r->enforced;

	*f = (struct enforced){
		.runtime = "native",
		.rootless = geteuid() != 0,
		.uid = s->uid,
		.memory = "none",
		.swap = "none",
		.cpu = "none",
		.pids = "none",
		.network = "none",
		.network_denials = "not observed",
		.rootfs = "none",
		.disk = "none",
		.capabilities = "not dropped",
		.seccomp = "none",
	};
	if (!plan)
		return;
	f->user_namespace = f->no_new_privs = true;
	f->memory = mechanism(c, c->has[MEMORY]);
	f->swap = mechanism(c, c->has_swap);
	if (c->host_without_swap)
		f->swap = "host has no swap";
	f->cpu = mechanism(c, c->has[CPU]);
	f->pids = mechanism(c, c->has[PIDS]);
	f->network = plan->captured ? "egress proxy + netns" : "netns";
	if (plan->captured)
		f->network_denials = "observed";
	f->rootfs = "read-only overlay";
	f->disk = "tmpfs size+inodes";
	f->capabilities = "none";
	f->landlock = (int)plan->landlock_abi;
	if (filter)
		snprintf(f->seccomp, sizeof f->seccomp, "sha256:%s", filter->sha256);
}
