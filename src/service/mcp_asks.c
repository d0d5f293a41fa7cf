/* SPDX-License-Identifier: Apache-2.0 */
#include "service/mcp_asks.h"

#include <errno.h>
#include <string.h>

#include "agent/worker.h"

/* Beside what may be a default: an index of one's own is named by a variable. Whoever gives up a limit is not a service. */
static bool is_key(const struct option *o)
{
	return o && strcmp(o->name, "best-effort") != 0 &&
	       (o->configurable || strcmp(o->name, "env") == 0);
}

/* Dashes are as good as everywhere in the file. */
static void underscored(const char *name, char ret[static 32])
{
	snprintf(ret, 32, "%s", name);
	for (char *p = ret; (p = strchr(p, '-'));)
		*p = '_';
}

static int take_keys(struct mcp_asks *a, const json_t *mcp, struct spec *s, bool *was_set,
		     struct err *e)
{
	const char *name;
	json_t *value;

	json_object_foreach((json_t *)(uintptr_t)mcp, name, value) {
		const struct option *o = option_find(name);
		char key[32];

		if (!is_key(o))
			return err_set(
				e, 0,
				"unknown key %.60s: these are what defaults may have, and env",
				name);
		underscored(o->name, key);
		if (spec_set_json(s, key, value, false, was_set, e) < 0)
			return err_prefix(e, "%s", key);
		if (json_object_set(a->body, key, value) < 0)
			return err_set(e, ENOMEM, "%s", key);
	}
	return 0;
}

/* Within the policy: what stands in the mapping is chosen, what does not is lowered. The contract's 30 s for agents' tools,
 * where nobody said anything. */
static int stay_within(struct settings *t, struct spec *s, const bool *was_set, struct err *e)
{
	const struct option *timeout = option_find("timeout");
	enum origin of_timeout = t->origins[timeout - options];

	t->network.serves_others = true;
	for (size_t i = 0; i < ARRAY_SIZE(t->origins); i++)
		t->origins[i] = was_set[i] ? ORIGIN_FLAG : ORIGIN_DEFAULT;
	if (of_timeout == ORIGIN_DEFAULT && !was_set[timeout - options] &&
	    spec_set(s, timeout, "30s", e) < 0)
		return -1;
	return settings_apply_policy(t, s, e) < 0 ? -1 : spec_finish_sandbox(s, e);
}

static int set_output(struct mcp_asks *a, const struct settings *t, const struct spec *s,
		      struct err *e)
{
	if (s->max_output_bytes <= OUTPUT_MAX)
		return 0;
	if (t->origins[option_find("max-output") - options] == ORIGIN_FLAG)
		return err_set(e, 0, "max_output: for a model at most 1m");
	json_object_set_new(a->body, "max_output", json_integer(OUTPUT_MAX));
	return 0;
}

/* What a request has to say because its receiver's own default is another, or because we have to know. */
static int tell(struct mcp_asks *a, const struct settings *t, const struct spec *s, struct err *e)
{
	a->timeout_s = (double)s->timeout_us / 1e6;
	a->has_network = s->network.mode != NETWORK_NONE;
	if (set_output(a, t, s, e) < 0)
		return -1;
	return json_object_set_new(a->body, "output", json_true()) < 0 ||
			       json_object_set_new(a->body, "timeout", json_real(a->timeout_s)) <
				       0 ||
			       json_object_set_new(
				       a->body, "network",
				       json_string(network_mode_name(s->network.mode))) < 0
		       ? err_set(e, ENOMEM, "keep the keys")
		       : 0;
}

int mcp_asks_read(struct mcp_asks *a, const json_t *mcp, const struct settings *settings,
		  struct spec *spec, struct err *e)
{
	bool was_set[SETTINGS_MAX_OPTIONS] = {false};
	struct settings t = *settings; /* borrowed; only its origins are written to */
	struct err of_requests = {0};  /* without the mapping it is theirs to be refused */

	*a = (struct mcp_asks){.body = json_object()};
	if (!a->body)
		return err_set(e, ENOMEM, "service: mcp");
	if (take_keys(a, mcp, spec, was_set, e) < 0 ||
	    (stay_within(&t, spec, was_set, mcp ? e : &of_requests) < 0 && mcp) ||
	    tell(a, &t, spec, e) < 0)
		return err_prefix(e, "service: mcp");
	return 0;
}

void mcp_asks_done(struct mcp_asks *a)
{
	json_decref(a->body);
	*a = (struct mcp_asks){0};
}
