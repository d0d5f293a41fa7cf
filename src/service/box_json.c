/* SPDX-License-Identifier: Apache-2.0 */
/* box_json.c - a sandbox as text: what the store keeps of it, that read back, and the object of the API. */
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "service/box.h"

/* ---- what is remembered ---- */

static json_t *number_or_null(uint64_t n)
{
	return n == UINT64_MAX ? json_null() : json_integer((json_int_t)n);
}

static json_t *connections_json(const struct box *b)
{
	return b && b->network ? network_usage_json(b) : json_null();
}

static json_t *usage_json(const struct box *b)
{
	const struct spawner_counters *c = &b->counters;

	if (!b || !b->has_counters)
		return json_pack("{sn sn sn sn sn so}", "cpu_ms", "memory_bytes",
				 "memory_peak_bytes", "pids", "pids_peak", "network",
				 connections_json(b));
	return json_pack("{so so so so so so}", "cpu_ms",
			 c->cpu_us == UINT64_MAX ? json_null()
						 : json_real((double)c->cpu_us / 1000),
			 "memory_bytes", number_or_null(c->memory_bytes), "memory_peak_bytes",
			 number_or_null(c->memory_peak_bytes), "pids", number_or_null(c->pids),
			 "pids_peak", number_or_null(c->pids_peak), "network", connections_json(b));
}

static json_t *strings_json(const struct strings *list)
{
	json_t *j = json_array();

	for (size_t i = 0; j && i < list->count; i++)
		json_array_append_new(j, json_string(list->item[i]));
	return j;
}

static json_t *amount_json(uint64_t n)
{
	return n == SPEC_UNLIMITED ? json_null() : json_integer((json_int_t)n);
}

json_t *box_network_json(const struct spec *s)
{
	const struct network_spec *n = &s->network;

	return json_pack("{ss so so so so so so}", "mode", network_mode_name(n->mode), "allow",
			 strings_json(&n->allow), "deny", strings_json(&n->deny), "preset",
			 strings_json(&n->presets), "credential", strings_json(&n->credentials),
			 "network_bytes", amount_json(n->max_bytes), "network_connections",
			 amount_json(n->max_connections));
}

/* What is kept of the spec: limits for whoever reads it, and what commands need after a restart. The
 * environment goes with the sandbox. */
static char *spec_text(const struct box *b)
{
	const struct spec *s = &b->spec;
	_cleanup_json_ json_t *j =
		json_pack("{ss ss ss s{sI sf sI so} s{so ss sI sI sI sI sI sO? so} sO}", "image",
			  s->image, "runtime", s->runtime, "profile", s->profile, "limits",
			  "memory", (json_int_t)s->memory_bytes, "cpus",
			  (double)s->cpus_millis / 1000, "pids", (json_int_t)s->pids_limit, "disk",
			  b->disk_bytes ? json_integer((json_int_t)b->disk_bytes) : json_null(),
			  "defaults", "env", strings_json(&s->env), "workdir", s->workdir, "uid",
			  (json_int_t)s->uid, "gid", (json_int_t)s->gid, "max_output",
			  (json_int_t)s->max_output_bytes, "life_us", (json_int_t)b->life_us,
			  "expires_us", (json_int_t)b->expires_us, "commands", b->commands,
			  "network", box_network_json(s), "metadata", b->metadata);

	if (j && b->stored.state == STATE_ENDED)
		json_object_del(j, "defaults");
	return j ? json_dumps(j, JSON_COMPACT) : NULL;
}

void box_keep_texts(struct box *b)
{
	_cleanup_json_ json_t *usage = usage_json(b);
	char *text = spec_text(b);

	if (text) {
		free(b->stored.spec);
		b->stored.spec = text;
	}
	if (b->stored.state == STATE_ENDED) {
		free(b->stored.usage);
		b->stored.usage = usage ? json_dumps(usage, JSON_COMPACT) : NULL;
	}
}

void box_keep_enforced(struct box *b)
{
	const struct spawner_created *c = &b->created;

	b->enforced = (struct enforced){
		.runtime = b->spec.runtime,
		.rootless = c->enforced.rootless,
		.user_namespace = c->enforced.user_namespace,
		.uid = c->enforced.uid,
		.memory = c->enforced.memory,
		.swap = c->enforced.swap,
		.cpu = c->enforced.cpu,
		.pids = c->enforced.pids,
		.network = c->enforced.network,
		.network_denials = strncmp(c->enforced.network, "egress", 6) == 0 ? "observed"
										  : "not observed",
		.rootfs = c->enforced.rootfs,
		.disk = c->enforced.disk,
		.capabilities = c->enforced.capabilities,
		.no_new_privs = c->enforced.no_new_privs,
		.landlock = (int)c->enforced.landlock,
	};
	snprintf(b->enforced.seccomp, sizeof b->enforced.seccomp, "%s", c->enforced.seccomp);
}

void box_keep_enforced_text(struct box *b)
{
	_cleanup_json_ json_t *j = enforced_to_json(&b->enforced);

	free(b->stored.enforced);
	b->stored.enforced = j ? json_dumps(j, JSON_COMPACT) : NULL;
}

/* ---- after a restart ---- */

static int restore_network(struct spec *s, json_t *j, struct err *e)
{
	const char *key;
	json_t *value;

	if (!j) /* written by a version that knew no network */
		return 0;
	if (spec_set_json(s, "network", json_object_get(j, "mode"), false, NULL, e) < 0)
		return -1;
	json_object_foreach(j, key, value)
		if (strcmp(key, "mode") != 0 && !json_is_null(value) &&
		    (!json_is_array(value) || json_array_size(value)) &&
		    spec_set_json(s, key, value, false, NULL, e) < 0)
			return -1;
	return 0;
}

int box_restore_spec(struct box *b, struct err *e)
{
	const char *text = b->stored.spec ? b->stored.spec : "{}";
	_cleanup_json_ json_t *j = json_read(text, strlen(text), e);
	json_t *limits = json_object_get(j, "limits"), *defaults = json_object_get(j, "defaults");
	json_t *item;
	size_t i;

	if (!j || spec_init(&b->spec, e) < 0)
		return -1;
	snprintf(b->spec.profile, sizeof b->spec.profile, "%s",
		 json_string_value(json_object_get(j, "profile")) ?: "default");
	b->spec.memory_bytes = (uint64_t)json_integer_value(json_object_get(limits, "memory"));
	b->spec.cpus_millis =
		(uint64_t)(json_real_value(json_object_get(limits, "cpus")) * 1000 + 0.5);
	b->spec.pids_limit = (uint64_t)json_integer_value(json_object_get(limits, "pids"));
	b->disk_bytes = (uint64_t)json_integer_value(json_object_get(limits, "disk"));
	b->spec.uid = (uint32_t)json_integer_value(json_object_get(defaults, "uid"));
	b->spec.gid = (uint32_t)json_integer_value(json_object_get(defaults, "gid"));
	b->spec.max_output_bytes =
		(uint64_t)json_integer_value(json_object_get(defaults, "max_output"));
	b->life_us = (uint64_t)json_integer_value(json_object_get(defaults, "life_us"));
	b->expires_us = (uint64_t)json_integer_value(json_object_get(defaults, "expires_us"));
	snprintf(b->spec.workdir, sizeof b->spec.workdir, "%s",
		 json_string_value(json_object_get(defaults, "workdir")) ?: "/workspace");
	strings_done(&b->spec.env);
	json_array_foreach(json_object_get(defaults, "env"), i, item)
		if (spec_add_env(&b->spec, json_string_value(item) ?: "", e) < 0)
			return -1;
	if (restore_network(&b->spec, json_object_get(defaults, "network"), e) < 0)
		return -1;
	b->metadata = json_incref(json_object_get(j, "metadata") ?: json_null());
	b->commands = json_incref(json_object_get(defaults, "commands"));
	return 0;
}

/* ---- for readers ---- */

static json_t *object_or_empty(const char *text)
{
	json_t *j = text ? json_loads(text, 0, NULL) : NULL;

	return j ? j : json_object();
}

static json_t *text_or_null(const char *text)
{
	return text ? json_string(text) : json_null();
}

static json_t *seconds_or_null(int64_t ms)
{
	return ms ? json_real((double)ms / 1000) : json_null();
}

json_t *sandbox_json(const struct stored_sandbox *s, struct box *live)
{
	static const char *const states[] = {"creating", "running", "paused", "ended"};
	_cleanup_json_ json_t *spec = object_or_empty(s->spec);
	json_t *limits = json_object_get(spec, "limits"),
	       *metadata = json_object_get(spec, "metadata");
	bool ended = s->state == STATE_ENDED;

	if (live)
		box_follow_wall_clock(live);

	return json_pack("{ss ss so so sO* sO* ss so so so so ss sb so so so so so so}", "id",
			 s->id, "state", states[s->state], "reason",
			 ended ? json_string(reasons[s->reason].name) : json_null(), "message",
			 text_or_null(s->message), "image", json_object_get(spec, "image"),
			 "runtime", json_object_get(spec, "runtime"), "owner", s->owner, "session",
			 text_or_null(s->session), "created_at", time_json(s->created_ms),
			 "expires_at", time_json(ended ? 0 : s->expires_ms), "idle_timeout",
			 seconds_or_null(s->idle_timeout_ms), "on_timeout",
			 s->pause_on_timeout ? "pause" : "kill", "resume_on_touch",
			 s->resume_on_touch, "ended_at", time_json(s->ended_ms), "limits",
			 limits ? json_incref(limits) : json_object(), "labels",
			 object_or_empty(s->labels), "metadata",
			 json_is_object(metadata) ? json_incref(metadata) : json_object(), "usage",
			 live || !s->usage ? usage_json(live) : object_or_empty(s->usage),
			 "enforced", object_or_empty(s->enforced));
}
