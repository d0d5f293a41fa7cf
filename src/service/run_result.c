/* SPDX-License-Identifier: Apache-2.0 */
/* run_result.c - how a run ended, written down and told. */
#include "service/run_result.h"

#include <stdio.h>
#include <string.h>

#include "base/fd.h"
#include "base/json.h"
#include "native/report.h"
#include "service/kept.h"

/* ---- what is remembered ---- */

void run_put(struct run *r, bool ended, const char *result)
{
	struct stored_run s = {
		.owner = r->owner,
		.session = r->session,
		.kind = r->kind,
		.input_sha256 = r->input_sha256,
		.input_bytes = r->input_bytes,
		.ended = ended,
		.reason = r->result.reason,
		.exit_code = r->result.has_exit_code ? r->result.exit_code : -1,
		.result = (char *)(uintptr_t)result,
		.artifact_path = r->kept_bytes ? r->result.id : NULL,
		.artifact_bytes = r->kept_bytes,
		.limits = r->limits,
		.created_ms = r->created_ms,
		.ended_ms = ended ? wall_ms() : 0,
	};
	enum code code = result_code(&r->result);
	struct err e = {0};

	if (ended && code != CODE_NONE)
		s.error_code = (char *)(uintptr_t)codes[code].name;
	memcpy(s.id, r->result.id, sizeof s.id);
	memcpy(s.sandbox, r->result.sandbox, sizeof s.sandbox);
	if (store_begin(r->service->store, &e) < 0 ||
	    store_run_put(r->service->store, &s, &e) < 0) {
		store_failed(r->service, &e);
		return;
	}
	quota_keep_end(r->service->quotas, r->owner, TAKE(r->keeping, 0));
	if (ended)
		kept_settle(r->service, r->owner, r->result.id);
}

/* The sandbox went away under the command: why, the box knows. */
void run_take_verdict_of_box(struct run *r)
{
	const struct box *b = r->box;

	if (r->evidence.main_ended || r->evidence.has_verdict || r->evidence.create_failed ||
	    b->stored.state != STATE_ENDED)
		return;
	r->evidence.has_verdict = true;
	r->evidence.verdict = b->stored.reason;
	if (b->stored.reason == REASON_CREATE_FAILED || b->stored.reason == REASON_IMAGE_MISSING ||
	    b->stored.reason == REASON_RUNTIME_UNAVAILABLE) {
		r->evidence.create_failed = true;
		r->evidence.failed_as = b->stored.reason;
		memcpy(r->result.stage, b->stage, sizeof r->result.stage);
		r->result.errnum = b->errnum;
	}
	if (b->stored.message && !r->result.message[0])
		snprintf(r->result.message, sizeof r->result.message, "%s", b->stored.message);
}

static void count(struct run *r)
{
	const struct spawner_counters *c = &r->box->counters;
	struct result *result = &r->result;
	uint64_t oom;

	result->memory_peak_bytes = result->pids_peak = RESULT_UNKNOWN;
	result->cpu_us = r->cpu_command_us;
	if (r->owns_box && r->box->has_counters) {
		result->cpu_us = c->cpu_us;
		result->memory_peak_bytes = c->memory_peak_bytes;
		result->pids_peak = c->pids_peak;
		result->oom_kills = c->oom_kills;
		result->limits_hit |=
			(c->memory_hit ? HIT_MEMORY : 0) | (c->pids_hit ? HIT_PIDS : 0);
	} else if (r->oom_known && box_oom_count(r->box, &oom) && oom > r->oom_before) {
		result->oom_kills = oom - r->oom_before;
		result->limits_hit |= HIT_MEMORY;
	}
	r->evidence.oom_kills = result->oom_kills;
	if (result->out.bytes > result->out.kept || result->err.bytes > result->err.kept)
		result->limits_hit |= HIT_OUTPUT;
	if (result->network.denied)
		result->limits_hit |= HIT_NETWORK_DENIED;
}

void run_remember_end(struct run *r)
{
	struct service *v = r->service;
	json_t *j = r->json ? r->json : run_result_json(r);
	enum reason reason = r->result.reason;

	r->json = j; /* whoever asked gets the same */
	free(r->text);
	r->text = j ? json_dumps(j, JSON_OUT) : NULL;
	run_put(r, true, r->text ? r->text : "null");
	audit(v, r->owner, r->session, "run.end", r->result.id,
	      json_pack("{ss ss so sb so}", "sandbox", r->result.sandbox, "reason",
			reasons[reason].name, "exit_code",
			r->result.has_exit_code ? json_integer(r->result.exit_code) : json_null(),
			"timed_out", reason == REASON_TIMEOUT, "limits_hit",
			json_incref(json_object_get(j, "limits_hit") ?: json_null())));
}

void run_tell_end(struct run *r)
{
	struct service *v = r->service;
	enum reason reason = r->result.reason;

	v->metrics.runs[reason]++;
	histogram_add(&v->metrics.run, now_us() - r->asked_us);
	v->metrics.output_bytes += r->result.out.bytes + r->result.err.bytes;
	event_emit(v, "run.ended", r->box, r->result.id, reasons[reason].name);
	quota_count_output(v->quotas, r->owner, r->session,
			   r->result.out.bytes + r->result.err.bytes, now_us());
}

void run_complete(struct run *r)
{
	struct result *result = &r->result;

	count(r);
	r->evidence.cpu_limited = r->spec.cpu_time_us != SPEC_UNLIMITED;
	judge(&r->evidence, result);
	if (result->reason == REASON_OOM)
		result->stage[0] = result->message[0] = '\0';
	report_message(result, &r->spec);
	result->enforced = r->box->enforced;
	if (!result->enforced.runtime)
		report_enforced(result, &r->spec, NULL, NULL);
	if (r->started_us && result->wall_ms == 0)
		result->wall_ms = (double)(now_us() - r->started_us) / 1000;
}

/* What is known of the end before something is killed for it: with init goes all that it remembers, and
 * we may go with it. */
void run_remember_verdict(struct run *r)
{
	struct result before = r->result;
	_cleanup_json_ json_t *j = NULL;
	_cleanup_free_ char *text = NULL;

	run_complete(r);
	j = run_result_json(r);
	text = j ? json_dumps(j, JSON_OUT) : NULL;
	run_put(r, false, text);
	r->result = before;
}
