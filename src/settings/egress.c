/* SPDX-License-Identifier: Apache-2.0 */
#include "settings/egress.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/json.h"
#include "settings/secret.h"

enum { CA_BYTES_MAX = 512 << 10 };

/* ---- presets ---- */

static void add_folder(struct preset_folders *f, const char *config)
{
	const char *slash = strrchr(config, '/');

	snprintf(f->path[f->count], sizeof f->path[0], "%.*s/presets",
		 slash ? (int)(slash - config) : 0, config);
	f->count++;
}

/* In the build folder that has this program or library. */
static bool is_built_beside(const char *file, char path[static PRESET_PATH_SIZE])
{
	const char *slash = strrchr(file, '/');

	if (file[0] != '/')
		return false;
	snprintf(path, PRESET_PATH_SIZE, "%.*s/src/network/presets", (int)(slash - file), file);
	return access(path, R_OK) == 0;
}

static void add_own(struct preset_folders *f)
{
	char self[PRESET_PATH_SIZE - 32] = "", *path = f->path[f->count++];
	ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
	Dl_info library;

	if (n > 0 && is_built_beside(self, path))
		return;
	if (dladdr((void *)(uintptr_t)settings_preset_folders, &library) && library.dli_fname &&
	    is_built_beside(library.dli_fname, path))
		return;
	snprintf(path, PRESET_PATH_SIZE, "%s", CLOCHE_DATADIR "/presets");
}

void settings_preset_folders(const struct places *places, struct preset_folders *ret)
{
	*ret = (struct preset_folders){0};
	if (places->rootless)
		add_folder(ret, places->config);
	add_folder(ret, places->system_config);
	add_own(ret);
}

/* ---- rules ---- */

/* A user's own file is a request as much as a flag is. */
static int check_own_preset(const struct settings *t, const char *name, const char *text,
			    struct err *e)
{
	_cleanup_free_ char *copy = strdup(text);
	char *save = NULL;

	if (!copy)
		return err_set(e, ENOMEM, "preset %s", name);
	for (char *line = strtok_r(copy, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		line += strspn(line, " \t");
		line[strcspn(line, "#\r")] = '\0';
		if (strncmp(line, "allow", 5) == 0 && strspn(line + 5, " \t") &&
		    network_settings_check_rule(&t->network, line + 6, e) < 0)
			return err_prefix(e, "preset %s", name);
	}
	return 0;
}

static int put_presets(const struct settings *t, const struct places *places, const struct spec *s,
		       FILE *f, struct err *e)
{
	struct preset_folders folders;

	settings_preset_folders(places, &folders);
	for (size_t i = 0; i < s->network.presets.count; i++) {
		const char *name = s->network.presets.item[i];
		size_t folder = 0;
		_cleanup_free_ char *text = preset_read(&folders, name, &folder, e);

		if (!text)
			return e->errnum == ENOENT ? err_stage(e, STAGE_RULES) : -1;
		if (places->rootless && folder == 0 && check_own_preset(t, name, text, e) < 0)
			return -1;
		fprintf(f, "preset %s {\n%s\n}\n", name, text);
	}
	return 0;
}

static const json_t *find_credential(const struct settings *t, const char *name, struct err *e)
{
	const json_t *entry = json_object_get(t->network.credentials, name);

	if (!entry) {
		err_set(e, 0,
			"there is no credential %s: the operator defines it under credentials: in cloche.yaml",
			name);
		e->errnum = ENOENT;
		err_stage(e, STAGE_RULES);
	}
	return entry;
}

static int put_credentials(const struct settings *t, const struct spec *s, FILE *f, struct err *e)
{
	for (size_t i = 0; i < s->network.credentials.count; i++) {
		const char *name = s->network.credentials.item[i];
		const json_t *entry = find_credential(t, name, e);

		if (!entry)
			return -1;
		fprintf(f, "credential %s for %s:%u\n", name, secret_host(entry),
			secret_port(entry));
	}
	return 0;
}

static void put_lines(const char *word, const struct strings *list, FILE *f)
{
	for (size_t i = 0; i < list->count; i++)
		fprintf(f, "%s %s\n", word, list->item[i]);
}

static void put_quota(const char *word, uint64_t value, FILE *f)
{
	if (value != SPEC_UNLIMITED)
		fprintf(f, "%s %llu\n", word, (unsigned long long)value);
}

static int put_rules(const struct settings *t, const struct places *places, const struct spec *s,
		     FILE *f, struct err *e)
{
	const struct network_spec *n = &s->network;

	put_lines("allow", &n->allow, f);
	put_lines("deny", &n->deny, f);
	put_quota("max-bytes", n->max_bytes, f);
	put_quota("max-connections", n->max_connections, f);
	return put_presets(t, places, s, f, e) < 0 ? -1 : put_credentials(t, s, f, e);
}

char *settings_network_rules(const struct settings *t, const struct places *places,
			     const struct spec *s, struct err *e)
{
	_cleanup_free_ char *text = NULL;
	size_t size;
	FILE *f = open_memstream(&text, &size);
	int r;

	if (!f) {
		err_set(e, ENOMEM, "keep the network's rules");
		return NULL;
	}
	r = put_rules(t, places, s, f, e);
	if (fclose(f) != 0 && r == 0)
		r = err_set(e, ENOMEM, "keep the network's rules");
	return r < 0 ? NULL : TAKE_PTR(text);
}

static void put_json_lines(const char *word, const json_t *list, FILE *f)
{
	const json_t *item;
	size_t i;

	json_array_foreach(list, i, item)
		fprintf(f, "%s %s\n", word, json_string_value(item));
}

char *settings_network_ceiling(const struct settings *t)
{
	_cleanup_free_ char *text = NULL;
	size_t size;
	FILE *f = open_memstream(&text, &size);

	if (!f)
		return NULL;
	put_json_lines("allow", t->network.allow, f);
	put_json_lines("deny", t->network.deny, f);
	return fclose(f) == 0 ? TAKE_PTR(text) : NULL;
}

/* ---- policies ---- */

static int make_texts(const struct settings *t, const struct places *places, const struct spec *s,
		      char **rules, char **ceiling, struct err *e)
{
	*rules = settings_network_rules(t, places, s, e);
	if (!*rules)
		return -1;
	*ceiling = settings_network_ceiling(t);
	return *ceiling ? 0 : err_set(e, ENOMEM, "keep the network's rules");
}

static enum network_mode ceiling_mode(const struct settings *t)
{
	return t->network.has_mode ? t->network.mode : NETWORK_OPEN;
}

static int parse_both(const struct settings *t, const struct spec *s, const char *rules,
		      const char *ceiling, struct network_policy **ret_request,
		      struct network_policy **ret_ceiling, struct err *e)
{
	*ret_request = *ret_ceiling = NULL;
	if (network_policy_parse(rules, strlen(rules), "rules", s->network.mode, ret_request, e) <
	    0)
		return -1;
	if (!*ceiling || network_policy_parse(ceiling, strlen(ceiling), "policy", ceiling_mode(t),
					      ret_ceiling, e) == 0)
		return 0;
	network_policy_free(TAKE_PTR(*ret_request));
	return -1;
}

int settings_network_policies(const struct settings *t, const struct places *places,
			      const struct spec *s, struct network_policy **ret_request,
			      struct network_policy **ret_ceiling, struct err *e)
{
	_cleanup_free_ char *rules = NULL, *ceiling = NULL;

	if (make_texts(t, places, s, &rules, &ceiling, e) < 0)
		return -1;
	return parse_both(t, s, rules, ceiling, ret_request, ret_ceiling, e);
}

static int check_owner(const struct settings *t, const char *name, const char *owner, struct err *e)
{
	const json_t *entry = find_credential(t, name, e);

	if (!entry)
		return -1;
	return secret_is_for(entry, owner)
		       ? 0
		       : err_set(e, EPERM,
				 "credential %s: is not for %.100s (owners: in the operator's cloche.yaml)",
				 name, owner);
}

/* One that nothing can be sent with is a mistake, and better said now than looked for later. */
static int check_reach(const struct settings *t, const char *name,
		       const struct network_policy *request, const struct network_policy *ceiling,
		       struct err *e)
{
	const json_t *entry = json_object_get(t->network.credentials, name);
	const struct network_ask ask = {
		.host = secret_host(entry), .port = secret_port(entry), .tls = true};
	struct network_answer answer;

	network_decide(request, ceiling, &ask, &answer);
	if (answer.verdict == VERDICT_DENY)
		return err_set(
			e, 0,
			"credential %s: %s; a credential allows nothing by itself: add --allow https://%s:%u",
			name, answer.why, ask.host, ask.port);
	if (!answer.credential)
		return err_set(
			e, 0,
			"credential %s: %s is passed through, so nothing can be added to its requests (%.200s)",
			name, ask.host, answer.rule ? answer.rule : "");
	return 0;
}

static int check_credential(const struct settings *t, const char *name, const char *owner,
			    const struct network_policy *request,
			    const struct network_policy *ceiling, struct err *e)
{
	return check_owner(t, name, owner, e) < 0 ? -1 : check_reach(t, name, request, ceiling, e);
}

static int check_text(const char *rules, enum network_mode mode, struct err *e)
{
	struct network_policy *p;

	if (network_policy_parse(rules, strlen(rules), "rules", mode, &p, e) < 0)
		return -1;
	network_policy_free(p);
	return 0;
}

static int check_all(const struct settings *t, const struct spec *s, const char *owner,
		     const char *rules, const char *ceiling_text, bool *ret_opens_tls,
		     struct err *e)
{
	struct network_policy *request, *ceiling;
	int r = 0;

	if (network_settings_check(&t->network, s, e) < 0 ||
	    parse_both(t, s, rules, ceiling_text, &request, &ceiling, e) < 0)
		return -1;
	for (size_t i = 0; i < s->network.credentials.count && r == 0; i++)
		r = check_credential(t, s->network.credentials.item[i], owner, request, ceiling, e);
	*ret_opens_tls = s->network.credentials.count || network_policy_looks(request) ||
			 (ceiling && network_policy_looks(ceiling));
	network_policy_free(request);
	network_policy_free(ceiling);
	return r;
}

/* ---- JSON ---- */

/* NULL without one. */
static json_t *read_ca(const struct settings *t, struct err *e)
{
	_cleanup_close_ int fd = -1;
	_cleanup_free_ char *text = NULL;
	const char *path = t->network.upstream_ca;
	size_t size;
	json_t *j;
	int r;

	if (!path)
		return json_null();
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	if (fd < 0) {
		err_set(e, errno, "upstream_ca: %.300s", path);
		return NULL;
	}
	r = fd_slurp(fd, CA_BYTES_MAX, &text, &size);
	if (r < 0) {
		err_set(e, -r, "upstream_ca: read %.300s", path);
		return NULL;
	}
	j = strstr(text, "-----BEGIN CERTIFICATE-----") ? json_stringn(text, size) : NULL;
	if (!j)
		err_set(e, 0, "upstream_ca: %.300s has no certificate in PEM", path);
	return j;
}

/* Everything but secrets. */
static char *public_text(const struct settings *t, const struct spec *s, const char *rules,
			 const char *ceiling, struct err *e)
{
	json_t *ca = read_ca(t, e), *resolve = t->network.resolve;
	_cleanup_json_ json_t *root = NULL;
	char *text;

	if (!ca)
		return NULL;
	resolve = resolve ? json_incref(resolve) : json_object();
	root = json_pack("{ss ss ss ss so so ss}", "mode", network_mode_name(s->network.mode),
			 "rules", rules, "ceiling", ceiling, "ceiling_mode",
			 network_mode_name(ceiling_mode(t)), "resolve", resolve, "upstream_ca", ca,
			 "capture", "redirect");
	text = root ? json_dumps(root, JSON_COMPACT) : NULL;
	if (!text)
		err_set(e, ENOMEM, "make the network's configuration");
	return text;
}

/* Printable ASCII as a JSON string. By hand: nothing of a library's memory holds a secret. */
static char *put_string(char *p, const char *text)
{
	*p++ = '"';
	for (; *text; text++) {
		if (*text == '"' || *text == '\\')
			*p++ = '\\';
		*p++ = *text;
	}
	*p++ = '"';
	return p;
}

static char *put_key(char *p, const char *key, const char *text)
{
	p = put_string(p, key);
	*p++ = ':';
	return put_string(p, text);
}

static char *put_credential(char *p, const char *name, const json_t *entry, const char *value)
{
	const char *header = json_string_value(json_object_get(entry, "header"));
	const char *query = json_string_value(json_object_get(entry, "query"));

	*p++ = '{';
	p = put_key(p, "name", name);
	*p++ = ',';
	p = put_key(p, "host", secret_host(entry));
	p += snprintf(p, 24, ",\"port\":%u,", secret_port(entry));
	p = put_key(p, header ? "header" : "query", header ? header : query);
	*p++ = ',';
	p = put_key(p, "value", value);
	*p++ = '}';
	return p;
}

static size_t credential_room(const char *value)
{
	return 2 * strlen(value) + NETWORK_NAME_SIZE + HOST_SIZE + 256;
}

/* The public part with "credentials" put behind. */
static int put_together(const struct settings *t, const struct spec *s, const char *text,
			char *const *values, char **ret, struct err *e)
{
	static const char begin[] = ",\"credentials\":[";
	size_t size = strlen(text), room = size + 64;
	char *json, *p;

	for (size_t i = 0; i < s->network.credentials.count; i++)
		room += credential_room(values[i]);
	json = malloc(room);
	if (!json)
		return err_set(e, ENOMEM, "make the network's configuration");
	memcpy(json, text, size - 1); /* without its last brace */
	p = json + size - 1;
	p = mempcpy(p, begin, sizeof begin - 1);
	for (size_t i = 0; i < s->network.credentials.count; i++) {
		const char *name = s->network.credentials.item[i];

		if (i)
			*p++ = ',';
		p = put_credential(p, name, json_object_get(t->network.credentials, name),
				   values[i]);
	}
	memcpy(p, "]}", 3);
	*ret = json;
	return 0;
}

static int put_secrets(const struct settings *t, const struct spec *s, const char *text, char **ret,
		       struct err *e)
{
	char *values[SPEC_MAX_CREDENTIALS] = {NULL};
	int r = 0;

	for (size_t i = 0; i < s->network.credentials.count && r == 0; i++) {
		const char *name = s->network.credentials.item[i];

		values[i] = secret_value(name, json_object_get(t->network.credentials, name), e);
		r = values[i] ? 0 : -1;
	}
	if (r == 0)
		r = put_together(t, s, text, values, ret, e);
	for (size_t i = 0; i < ARRAY_SIZE(values); i++)
		secret_free(&values[i]);
	return r;
}

int settings_egress_config(const struct settings *t, const struct places *places,
			   const struct spec *s, const char *owner, char **ret_json,
			   bool *ret_opens_tls, struct err *e)
{
	_cleanup_free_ char *rules = NULL, *ceiling = NULL, *text = NULL;
	bool opens_tls = false;

	if (s->network.mode == NETWORK_NONE) {
		*ret_json = NULL;
		if (ret_opens_tls)
			*ret_opens_tls = false;
		return 0;
	}
	if (make_texts(t, places, s, &rules, &ceiling, e) < 0 ||
	    check_all(t, s, owner, rules, ceiling, &opens_tls, e) < 0)
		return -1;
	text = public_text(t, s, rules, ceiling, e);
	if (!text || put_secrets(t, s, text, ret_json, e) < 0)
		return -1;
	if (ret_opens_tls)
		*ret_opens_tls = opens_tls;
	return 0;
}

int settings_egress_rules(const struct settings *t, const struct places *places,
			  const struct spec *s, const char *owner, char **ret_json, struct err *e)
{
	_cleanup_free_ char *rules = NULL, *ceiling = NULL;
	_cleanup_json_ json_t *root = NULL;

	if (make_texts(t, places, s, &rules, &ceiling, e) < 0 ||
	    network_settings_check(&t->network, s, e) < 0)
		return -1;
	for (size_t i = 0; i < s->network.credentials.count; i++)
		if (check_owner(t, s->network.credentials.item[i], owner, e) < 0)
			return -1;
	if (check_text(rules, s->network.mode, e) < 0)
		return -1;
	root = json_pack("{ss ss}", "mode", network_mode_name(s->network.mode), "rules", rules);
	*ret_json = root ? json_dumps(root, JSON_COMPACT) : NULL;
	return *ret_json ? 0 : err_set(e, ENOMEM, "keep the network's rules");
}

void settings_egress_free(char *json)
{
	secret_free(&json);
}
