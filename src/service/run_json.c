/* SPDX-License-Identifier: Apache-2.0 */
/* run_json.c - a run's result as the API and the store have it, and what that says after a restart. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "native/report.h"
#include "service/kept.h"
#include "service/run.h"

/* The name as a path of the API: everything but RFC 3986's unreserved characters and "/" encoded. */
static json_t *artifact_href(const char *id, const char *path)
{
	_cleanup_free_ char *encoded = malloc(strlen(path) * 3 + 1);
	char *to = encoded;

	if (!encoded)
		return json_null();
	for (const unsigned char *p = (const unsigned char *)path; *p; p++)
		if (isalnum(*p) || strchr("-._~/", *p))
			*to++ = (char)*p;
		else
			to += snprintf(to, 4, "%%%02X", *p);
	*to = '\0';
	return json_sprintf("/v1/runs/%s/artifacts/%s", id, encoded);
}

json_t *run_result_json(const struct run *r)
{
	json_t *j = r->json ? NULL : result_to_json(&r->result), *row;
	size_t i;

	if (r->json)
		return json_incref(r->json);
	json_array_foreach(json_object_get(j, "artifacts"), i, row) {
		if (!json_is_null(json_object_get(row, "skipped")))
			continue;
		json_object_set_new(row, "href",
				    artifact_href(r->result.id,
						  json_string_value(json_object_get(row, "path"))));
		json_object_set_new(row, "executable",
				    json_boolean(r->result.artifacts[i].executable));
	}
	return j;
}

/* ---- after a restart ---- */

/* SPEC_UNLIMITED is no JSON integer. */
static json_t *limit_json(uint64_t value)
{
	return value > INT64_MAX ? json_null() : json_integer((json_int_t)value);
}

static uint64_t limit_of(const json_t *j, const char *key)
{
	const json_t *value = json_object_get(j, key);

	return json_is_integer(value) && json_integer_value(value) >= 0
		       ? (uint64_t)json_integer_value(value)
		       : SPEC_UNLIMITED;
}

char *run_limits_text(const struct run *r, uint64_t cpu_before_us)
{
	const struct spec *s = &r->spec;
	_cleanup_json_ json_t *j;

	j = json_pack("{so so so sb sI so sb}", "cpu_time_us", limit_json(s->cpu_time_us),
		      "idle_timeout_us", limit_json(s->idle_timeout_us), "max_output_bytes",
		      limit_json(s->max_output_bytes), "kill_on_output_limit",
		      s->kill_on_output_limit, "cpu_before_us", (json_int_t)cpu_before_us,
		      "timeout_us", limit_json(s->timeout_us), "input", r->input != NULL);
	return j ? json_dumps(j, JSON_COMPACT) : NULL;
}

/* The wall clock is init's then, which began it. Silence counts from now on: when it began is not known. */
void run_take_limits(struct run *r, const char *text)
{
	_cleanup_json_ json_t *j = text ? json_loads(text, 0, NULL) : NULL;

	r->spec.timeout_us = SPEC_UNLIMITED;
	r->spec.cpu_time_us = limit_of(j, "cpu_time_us");
	r->spec.idle_timeout_us = limit_of(j, "idle_timeout_us");
	r->spec.max_output_bytes =
		j ? limit_of(j, "max_output_bytes") : r->box->spec.max_output_bytes;
	r->spec.kill_on_output_limit = json_is_true(json_object_get(j, "kill_on_output_limit"));
	r->result.timeout_us = limit_of(j, "timeout_us");
	r->cpu_before = limit_of(j, "cpu_before_us");
	r->cpu_known = r->cpu_before != SPEC_UNLIMITED;
}

bool run_limits_have_input(const char *text)
{
	_cleanup_json_ json_t *j = text ? json_loads(text, 0, NULL) : NULL;

	return json_is_true(json_object_get(j, "input"));
}

static int find_reason(const char *name)
{
	for (int i = 0; name && i < REASON_COUNT; i++)
		if (strcmp(reasons[i].name, name) == 0)
			return i;
	return -1;
}

/* Why it was being killed when we were. */
void run_take_stored_verdict(struct run *r, const char *text)
{
	_cleanup_json_ json_t *j = text ? json_loads(text, JSON_ALLOW_NUL, NULL) : NULL;
	int reason = find_reason(json_string_value(json_object_get(j, "reason")));

	r->evidence.has_verdict = reason == REASON_TIMEOUT || reason == REASON_CPU_TIME ||
				  reason == REASON_IDLE_TIMEOUT || reason == REASON_OUTPUT_LIMIT ||
				  reason == REASON_CANCELLED || reason == REASON_KILLED;
	if (!r->evidence.has_verdict)
		return;
	r->evidence.verdict = (enum reason)reason;
	snprintf(r->result.message, sizeof r->result.message, "%s",
		 json_string_value(json_object_get(j, "message")) ?: "");
}

/* The result that was written down before the end was brought about. */
static bool take_stored_result(struct stored_run *stored)
{
	_cleanup_json_ json_t *j =
		stored->result ? json_loads(stored->result, JSON_ALLOW_NUL, NULL) : NULL;
	const char *code = json_string_value(json_object_get(j, "error_code"));
	int reason = find_reason(json_string_value(json_object_get(j, "reason")));
	json_t *exit_code = json_object_get(j, "exit_code");

	if (reason < 0)
		return false;
	stored->reason = (enum reason)reason;
	stored->exit_code = json_is_integer(exit_code) ? (int)json_integer_value(exit_code) : -1;
	free(stored->error_code);
	stored->error_code = code ? strdup(code) : NULL;
	return true;
}

static void make_lost_result(struct service *v, struct stored_run *stored, enum reason why)
{
	struct result result = {.reason = why,
				.cpu_us = RESULT_UNKNOWN,
				.memory_peak_bytes = RESULT_UNKNOWN,
				.pids_peak = RESULT_UNKNOWN};
	_cleanup_json_ json_t *j = NULL;
	enum code code = result_code(&result);
	struct spec spec = {0};

	memcpy(result.id, stored->id, sizeof result.id);
	memcpy(result.sandbox, stored->sandbox, sizeof result.sandbox);
	snprintf(spec.profile, sizeof spec.profile, "default");
	report_message(&result, &spec);
	report_enforced(&result, &spec, NULL, NULL);
	j = result_to_json(&result);
	free(stored->result);
	stored->result = j ? json_dumps(j, JSON_COMPACT) : NULL;
	stored->reason = why;
	free(stored->error_code);
	stored->error_code = code != CODE_NONE ? strdup(codes[code].name) : NULL;
	stored->exit_code = -1;
	kept_remove_files(v, stored->id);
	free(TAKE_PTR(stored->artifact_path));
	stored->artifact_bytes = 0;
}

void run_lost(struct service *v, struct stored_run *stored, enum reason why)
{
	struct err e = {0};

	if (!take_stored_result(stored))
		make_lost_result(v, stored, why == REASON_EXITED ? REASON_LOST : why);
	stored->ended = true;
	stored->ended_ms = wall_ms();
	if (store_begin(v->store, &e) < 0 || store_run_put(v->store, stored, &e) < 0)
		store_failed(v, &e);
	audit(v, "system", stored->session, "run.end", stored->id,
	      json_pack("{ss}", "reason", reasons[stored->reason].name));
}
