/* SPDX-License-Identifier: Apache-2.0 */
#include "service/config.h"

#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "base/units.h"

enum kind { TEXT, FOLDER, DURATION, SIZE, COUNT, NUMBER, FLAG, NAMES, MAPPING };

/* One key. fallback NULL: set by config_places(). */
static const struct row {
	const char *key;
	enum kind kind;
	size_t offset, room;
	const char *fallback;
	const char *help;
} rows[] = {
#define ROW(field, kind, fallback, help)              \
	{#field,                                      \
	 kind,                                        \
	 offsetof(struct service_config, field),      \
	 sizeof(((struct service_config *)0)->field), \
	 fallback,                                    \
	 help},
#define ROW_US(key, fallback, help) \
	{#key, DURATION, offsetof(struct service_config, key##_us), 8, fallback, help},
#define ROW_BYTES(key, field, fallback, help) \
	{#key, SIZE, offsetof(struct service_config, field), 8, fallback, help},
	/* clang-format off */
	ROW(socket, FOLDER, NULL, "unix socket of the API")
	ROW(socket_group, TEXT, "", "group that may open the socket besides root")
	ROW(user, TEXT, "", "user of cloched; without one, `cloche` if it exists, else a number of its own")
	ROW(listen, TEXT, "", "ADDRESS:PORT for TCP with API keys; empty: none")
	ROW(tls_certificate, FOLDER, "", "PEM file with the certificate chain for TCP")
	ROW(tls_key, FOLDER, "", "PEM file with its private key")
	ROW(hosts, NAMES, NULL, "values of Host accepted on TCP besides the listening address and localhost")
	ROW(ports_domain, TEXT, "localhost", "ports of sandboxes are at PORT-ID.DOMAIN too; a DOMAIN of your own needs a wildcard in DNS (and in the certificate)")
	ROW(runtime_dir, FOLDER, NULL, "sockets and what lives as long as the machine runs")
	ROW(state_dir, FOLDER, NULL, "database and artifacts; disks of sandboxes are beside it, in STATE_DIR-disks")
	ROW(quota, MAPPING, NULL, "of every owner: sandboxes, runs_per_minute, memory, cpus, disk, output_bytes_per_minute, kept")
	ROW(session_quota, MAPPING, NULL, "of every session of an owner, same keys but kept")
	ROW(mcp, MAPPING, NULL, "what sandboxes get that are made over /mcp: the keys of defaults, and env")
	ROW_BYTES(body_limit, body_bytes, "16m", "largest JSON body")
	ROW(batch_concurrency, COUNT, NULL, "runs of one batch at a time when it does not say; without one, two for each CPU")
	ROW_US(batch_wait, "10m", "how long a run of a batch waits for room in its owner's quota")
	ROW_US(max_timeout, "7d", "longest life of a kept sandbox")
	ROW_BYTES(artifact_limit, artifact_bytes, "64m", "artifacts kept of one run")
	ROW_US(artifact_retention, "24h", "how long artifacts outlive their sandbox")
	ROW_US(paused_retention, "7d", "paused sandboxes are removed after this")
	ROW_US(ended_retention, "24h", "how long an ended sandbox can be read")
	ROW_US(run_retention, "30d", "how long runs are remembered")
	ROW_US(audit_retention, "365d", "how long audit rows are kept")
	ROW(connections, COUNT, "4096", "open connections in all")
	ROW(pool, NUMBER, "16", "sandboxes of one kind that are prepared for one-shot runs, at most; 0: none")
	ROW(pool_floor, NUMBER, "1", "and at least, for ten minutes after a kind was last asked for")
	ROW_BYTES(pool_memory, pool_memory_bytes, "512m", "memory that all prepared sandboxes may use together")
	/* clang-format on */
};

static int duration_with_days(const char *text, uint64_t *ret)
{
	size_t n = strlen(text);
	uint64_t days;
	char digits[24];

	if (n < 2 || n >= sizeof digits || text[n - 1] != 'd')
		return parse_duration(text, ret);
	memcpy(digits, text, n - 1);
	digits[n - 1] = '\0';
	if (parse_count(digits, 1, 36500, &days) < 0)
		return -EINVAL;
	*ret = days * 86400 * 1000000;
	return 0;
}

static int set_text(const struct row *row, char *field, const char *text, struct err *e)
{
	if (strlen(text) >= row->room)
		return err_set(e, 0, "service: %s: longer than %zu", row->key, row->room - 1);
	if (row->kind == FOLDER && *text && *text != '/')
		return err_set(e, 0, "service: %s: %.60s must be an absolute path", row->key, text);
	memcpy(field, text, strlen(text) + 1);
	return 0;
}

static int set_value(const struct row *row, struct service_config *c, const char *text,
		     struct err *e)
{
	void *field = (char *)c + row->offset;
	int r = 0;

	switch (row->kind) {
	case TEXT:
	case FOLDER:
		return set_text(row, field, text, e);
	case DURATION:
		r = duration_with_days(text, field);
		break;
	case SIZE:
		r = parse_size(text, field);
		break;
	case COUNT:
		r = parse_count(text, 1, 20000, field);
		break;
	case NUMBER:
		r = parse_count(text, 0, 20000, field);
		break;
	case FLAG:
		*(bool *)field = strcmp(text, "true") == 0;
		r = *(bool *)field || strcmp(text, "false") == 0 ? 0 : -EINVAL;
		break;
	default:
		r = -EINVAL;
	}
	return r < 0 ? err_set(e, 0, "service: %s: \"%.60s\" is not understood", row->key, text)
		     : 0;
}

static int set_json(const struct row *row, struct service_config *c, json_t *value, struct err *e)
{
	json_t **field = (json_t **)(void *)((char *)c + row->offset);

	if (row->kind != NAMES && row->kind != MAPPING)
		return json_is_string(value)
			       ? set_value(row, c, json_string_value(value), e)
			       : err_set(e, 0, "service: %s: must be a value", row->key);
	if (row->kind == NAMES ? !json_is_array(value) : !json_is_object(value))
		return err_set(e, 0, "service: %s: must be a %s", row->key,
			       row->kind == NAMES ? "list" : "mapping");
	json_decref(*field);
	*field = json_incref(value);
	return 0;
}

static int config_places(struct service_config *c, const struct places *places, struct err *e)
{
	if (snprintf(c->runtime_dir, sizeof c->runtime_dir, "%s", places->runtime) >=
		    (int)sizeof c->runtime_dir ||
	    snprintf(c->state_dir, sizeof c->state_dir, "%s/service", places->state) >=
		    (int)sizeof c->state_dir ||
	    snprintf(c->socket, sizeof c->socket, "%s/cloche.sock", places->runtime) >=
		    (int)sizeof c->socket)
		return err_set(e, ENAMETOOLONG, "%s", places->runtime);
	return 0;
}

/* A run has half a CPU unless it asks for another share. */
static uint64_t usual_concurrency(void)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);

	return cpus < 1 ? 2 : cpus > 512 ? 1024 : 2 * (uint64_t)cpus;
}

int service_config_quotas(const struct service_config *c, struct quota *ret_owner,
			  struct quota *ret_session, struct err *e)
{
	struct quota owner, session;

	quota_none(&owner);
	quota_none(&session);
	owner.sandboxes = 10000;
	owner.kept_bytes = 2ull << 30;
	if (c->quota && quota_from_json(&owner, c->quota, e) < 0)
		return err_prefix(e, "service: quota");
	if (c->session_quota && quota_from_json(&session, c->session_quota, e) < 0)
		return err_prefix(e, "service: session_quota");
	if (session.kept_bytes != QUOTA_NONE)
		return err_set(
			e, 0,
			"service: session_quota: kept is counted per owner: put it into quota");
	*ret_owner = owner;
	*ret_session = session;
	return 0;
}

int service_config_read(struct service_config *c, const struct places *places, const json_t *root,
			struct err *e)
{
	json_t *service = json_object_get(root, "service"), *value;
	struct quota owner, session;
	const char *key;

	*c = (struct service_config){0};
	if (config_places(c, places, e) < 0)
		return -1;
	c->batch_concurrency = usual_concurrency();
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		if (rows[i].fallback && set_value(&rows[i], c, rows[i].fallback, e) < 0)
			return -1;
	if (service && !json_is_object(service))
		return err_set(e, 0, "service: must be a mapping");
	json_object_foreach(service, key, value) {
		size_t i = 0;

		while (i < ARRAY_SIZE(rows) && strcmp(rows[i].key, key) != 0)
			i++;
		if (i == ARRAY_SIZE(rows))
			return err_set(e, 0, "service: unknown key %.60s", key);
		if (set_json(&rows[i], c, value, e) < 0)
			return -1;
	}
	if (!c->tls_certificate[0] != !c->tls_key[0])
		return err_set(e, 0, "service: tls_certificate and tls_key belong together");
	return service_config_quotas(c, &owner, &session, e);
}

void service_config_done(struct service_config *c)
{
	json_decref(c->hosts);
	json_decref(c->quota);
	json_decref(c->session_quota);
	json_decref(c->mcp);
	*c = (struct service_config){0};
}

void service_config_print_keys(FILE *out)
{
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		fprintf(out, "  %-20s %-10s %s\n", rows[i].key,
			rows[i].fallback ? rows[i].fallback : "", rows[i].help);
}
