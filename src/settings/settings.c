/* SPDX-License-Identifier: Apache-2.0 */
/*
 * settings.c - the configuration file, CLOCHE_* variables and the operator's policy.
 *
 * YAML is read by a program of its own (cloche-yaml), which prints JSON: the command line links no YAML
 * library, and most runs have no file and pay nothing.
 */
#include "settings/settings.h"

#include <ctype.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/json.h"
#include "base/program.h"

extern char **environ;

#define MAX_CONFIG_BYTES (1u << 20)

static int start_helper(const char *program, const char *file, int *ret_fd, pid_t *ret_pid,
			struct err *e)
{
	char *argv[] = {(char *)(uintptr_t)program, (char *)(uintptr_t)file, NULL};
	posix_spawn_file_actions_t actions;
	int p[2], r;

	if (pipe2(p, O_CLOEXEC) < 0)
		return err_set(e, errno, "make a pipe");
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, p[1], 1);
	r = posix_spawn(ret_pid, program, &actions, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&actions);
	close(p[1]);
	if (r != 0) {
		close(p[0]);
		return err_set(e, r, "run %s", program);
	}
	*ret_fd = p[0];
	return 0;
}

int settings_read_file(const char *file, json_t **ret, struct err *e)
{
	_cleanup_free_ char *text = NULL;
	_cleanup_close_ int fd = -1;
	char helper[PROGRAM_PATH_SIZE];
	size_t size = 0;
	int status = -1, r;
	pid_t pid;

	*ret = NULL;
	if (access(file, F_OK) < 0)
		return errno == ENOENT || errno == ENOTDIR ? 0 : err_set(e, errno, "%s", file);
	if (program_find("cloche-yaml", helper, e) < 0 ||
	    start_helper(helper, file, &fd, &pid, e) < 0)
		return -1;
	r = fd_slurp(fd, MAX_CONFIG_BYTES, &text, &size);
	fd_close(&fd); /* a helper that has more to say must not wait for us */
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (r < 0)
		return err_set(e, -r, "read %s", file);
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
		text[strcspn(text, "\n")] = '\0'; /* it says why */
		return err_set(e, 0, "%s", *text ? text : "cloche-yaml failed");
	}
	*ret = json_read(text, size, e);
	return *ret ? 0 : err_prefix(e, "%s", file);
}

/* A YAML scalar arrives as a string; a list as an array of them. */
static int set_from_json(struct spec *s, const struct option *o, const json_t *value, struct err *e)
{
	const json_t *item;
	size_t i;

	if (json_is_string(value))
		return spec_set(s, o, json_string_value(value), e);
	if (o->kind != OPTION_LIST || !json_is_array(value))
		return err_set(e, 0, "%s: must be a value", o->name);
	json_array_foreach(value, i, item)
		if (!json_is_string(item) || spec_set(s, o, json_string_value(item), e) < 0)
			return -1;
	return 0;
}

static int apply_defaults(struct settings *t, struct spec *s, json_t *defaults, struct err *e)
{
	const char *key;
	json_t *value;

	if (!json_is_object(defaults))
		return err_set(e, 0, "defaults: must be a mapping");
	json_object_foreach(defaults, key, value) {
		const struct option *o = option_find(key);

		if (!o || !o->configurable)
			return err_set(e, 0, "defaults: unknown setting %.60s", key);
		if (set_from_json(s, o, value, e) < 0)
			return err_prefix(e, "defaults");
		t->origins[o - options] = ORIGIN_FILE;
	}
	return 0;
}

static bool is_list_of_texts(const json_t *list)
{
	const json_t *item;
	size_t i;

	if (!json_is_array(list))
		return false;
	json_array_foreach(list, i, item)
		if (!json_is_string(item))
			return false;
	return true;
}

/* Names of modules as an import statement has them. */
static int check_modules(const char *key, const json_t *list, struct err *e)
{
	json_t *name;
	size_t i;

	if (!json_is_array(list) || json_array_size(list) > 64)
		return err_set(e, 0, "policy: %s must be a list of at most 64 names", key);
	json_array_foreach((json_t *)(uintptr_t)list, i, name) {
		const char *text = json_string_value(name);

		if (!text || !*text || strlen(text) > 100 ||
		    strspn(text,
			   "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.") !=
			    strlen(text))
			return err_set(e, 0, "policy: %s: %.60s is no module's name", key,
				       text ? text : "?");
	}
	return 0;
}

static int check_only_false(const char *key, const json_t *value, struct err *e)
{
	return json_is_string(value) && strcmp(json_string_value(value), "false") == 0
		       ? 0
		       : err_set(e, 0, "policy: %s can only be false", key);
}

static int check_bool(const char *key, const json_t *value, struct err *e)
{
	const char *text = json_is_string(value) ? json_string_value(value) : "";

	return strcmp(text, "true") == 0 || strcmp(text, "false") == 0
		       ? 0
		       : err_set(e, 0, "policy: %s is true or false", key);
}

static int check_names(const char *key, const json_t *value, struct err *e)
{
	return is_list_of_texts(value) ? 0
				       : err_set(e, 0, "policy: %s must be a list of names", key);
}

static int check_folders(const char *key, const json_t *value, struct err *e)
{
	return json_is_array(value) ? 0
				    : err_set(e, 0, "policy: %s must be a list of folders", key);
}

/* What in a policy is no option's maximum; and the network's keys (network.c). */
static const struct policy_key {
	const char *key;
	int (*check)(const char *key, const json_t *value, struct err *e);
} policy_keys[] = {
	{"best_effort", check_only_false}, {"prepared_python", check_only_false},
	{"image_user", check_bool},        {"images", check_names},
	{"python_modules", check_modules}, {"volume_roots", check_folders},
};

static const struct policy_key *find_policy_key(const char *key)
{
	for (size_t i = 0; i < ARRAY_SIZE(policy_keys); i++)
		if (strcmp(policy_keys[i].key, key) == 0)
			return &policy_keys[i];
	return NULL;
}

static int check_maximum(const char *key, const json_t *value, struct err *e)
{
	const struct option *o = option_find(key);
	struct spec scratch = {0};

	if (!o || !o->amount || !json_is_string(value))
		return err_set(e, 0, "policy: %.60s is no limit with a maximum", key);
	return spec_set(&scratch, o, json_string_value(value), e) < 0 ? err_prefix(e, "policy") : 0;
}

static int check_policy(const json_t *policy, struct err *e)
{
	const char *key;
	json_t *value;

	if (!json_is_object(policy))
		return err_set(e, 0, "policy: must be a mapping");
	json_object_foreach((json_t *)(uintptr_t)policy, key, value) {
		const struct policy_key *row = find_policy_key(key);
		int r;

		if (row)
			r = row->check(key, value, e);
		else if (is_network_policy_key(key))
			r = network_policy_key_check(key, value, e);
		else
			r = check_maximum(key, value, e);
		if (r < 0)
			return -1;
	}
	return 0;
}

static int take_policy(struct settings *t, json_t *policy, struct err *e)
{
	const char *key;
	json_t *value;

	if (check_policy(policy, e) < 0)
		return -1;
	network_policy_take(&t->network, policy);
	t->volume_roots = json_incref(json_object_get(policy, "volume_roots"));
	t->images = json_incref(json_object_get(policy, "images"));
	value = json_object_get(policy, "image_user");
	t->image_user = value && strcmp(json_string_value(value), "true") == 0;
	t->no_best_effort = json_object_get(policy, "best_effort") != NULL;
	t->no_prepared_python = json_object_get(policy, "prepared_python") != NULL;
	t->python_modules = json_incref(json_object_get(policy, "python_modules"));
	/* Not json_copy(): without memory it gives a part of it. */
	t->policy = json_object();
	json_object_foreach(policy, key, value)
		if (!find_policy_key(key) && !is_network_policy_key(key) &&
		    json_object_set(t->policy, key, value) < 0)
			return err_set(e, ENOMEM, "keep the policy");
	return t->policy ? 0 : err_set(e, ENOMEM, "keep the policy");
}

int settings_from_json(struct settings *t, struct spec *s, json_t *root, const char *file,
		       bool binding, struct err *e)
{
	const char *key;
	json_t *value;

	t->has_file = true;
	if (!json_is_object(root))
		return err_set(e, 0, "%s: must be a mapping", file);
	json_object_foreach(root, key, value) {
		int r = network_key_take(&t->network, key, value, binding, e);

		if (r != 0)
			r = r < 0 ? -1 : 0;
		else if (strcmp(key, "defaults") == 0)
			r = apply_defaults(t, s, value, e);
		else if (strcmp(key, "policy") == 0 && binding)
			r = take_policy(t, value, e);
		else if (strcmp(key, "uid_range") == 0 && binding && json_is_string(value))
			r = (t->uid_range = strdup(json_string_value(value)))
				    ? 0
				    : err_set(e, ENOMEM, "keep uid_range");
		else if (strcmp(key, "service") != 0 && /* src/service/config.c reads that */
			 strcmp(key, "registries") !=
				 0) /* src/registry/config.c, in cloche-image */
			r = err_set(e, 0, "unknown or misplaced key %.60s", key);
		if (r < 0)
			return err_prefix(e, "%s", file);
	}
	return 0;
}

/* CLOCHE_MEMORY=1g is --memory 1g. Other CLOCHE_ variables are not settings. */
static int apply_environment(struct settings *t, struct spec *s, struct err *e)
{
	for (char **entry = environ; *entry; entry++) {
		const struct option *o;
		char name[64];
		size_t n;

		if (strncmp(*entry, "CLOCHE_", 7) != 0)
			continue;
		n = strcspn(*entry + 7, "=");
		if (n >= sizeof name || (*entry)[7 + n] != '=')
			continue;
		for (size_t i = 0; i < n; i++)
			name[i] = (char)tolower((unsigned char)(*entry)[7 + i]);
		name[n] = '\0';
		o = option_find(name);
		if (!o || !o->configurable)
			continue;
		if (spec_set(s, o, *entry + 7 + n + 1, e) < 0)
			return err_prefix(e, "CLOCHE_%.*s", (int)n, *entry + 7);
		t->origins[o - options] = ORIGIN_ENV;
	}
	return 0;
}

static int apply_file(struct settings *t, struct spec *s, const char *file, bool binding,
		      struct err *e)
{
	_cleanup_json_ json_t *root = NULL;

	if (settings_read_file(file, &root, e) < 0)
		return -1;
	return root ? settings_from_json(t, s, root, file, binding, e) : 0;
}

int settings_load(struct settings *t, const struct places *places, bool environment, struct spec *s,
		  struct err *e)
{
	*t = (struct settings){0};
	if (option_count > ARRAY_SIZE(t->origins))
		return err_set(e, 0, "too many options");
	if (apply_file(t, s, places->system_config, true, e) < 0)
		return -1;
	if (places->rootless && apply_file(t, s, places->config, false, e) < 0)
		return -1;
	return environment ? apply_environment(t, s, e) : 0;
}

static bool is_below_a_root(const char *real, const json_t *roots)
{
	const json_t *root;
	size_t i;

	json_array_foreach(roots, i, root) {
		const char *folder = json_string_value(root);
		size_t n = folder ? strlen(folder) : 0;

		while (n > 1 && folder[n - 1] == '/')
			n--;
		if (n && strncmp(real, folder, n) == 0 && (real[n] == '/' || !real[n] || n == 1))
			return true;
	}
	return false;
}

/* A path of the caller's, made real, and below one of the operator's folders. */
static int check_root(const struct settings *t, const char *what, char **path, struct err *e)
{
	_cleanup_free_ char *real = NULL;

	if (!t->volume_roots || !*path)
		return 0;
	real = realpath(*path, NULL);
	if (!real)
		return err_set(e, errno, "%s %.200s", what, *path);
	if (!is_below_a_root(real, t->volume_roots))
		return err_set(
			e, EPERM,
			"%s %.200s: the operator's policy allows only what is below its volume_roots",
			what, *path);
	/* From here on the path that was checked is the one that is used. */
	free(*path);
	*path = TAKE_PTR(real);
	return 0;
}

static int check_roots(const struct settings *t, struct spec *s, struct err *e)
{
	for (size_t i = 0; i < s->volume_count; i++)
		if (check_root(t, "--volume", &s->volumes[i].host, e) < 0)
			return -1;
	for (size_t i = 0; i < s->input_count; i++)
		if (check_root(t, "--in", &s->inputs[i].host, e) < 0)
			return -1;
	return check_root(t, "--out", &s->out_dir, e) < 0 ? -1
							  : check_root(t, "--venv", &s->venv, e);
}

int settings_apply_policy(struct settings *t, struct spec *s, struct err *e)
{
	const char *key;
	json_t *value;

	if (check_roots(t, s, e) < 0 || settings_check_image(t, s, e) < 0)
		return -1;
	if (network_settings_check(&t->network, s, e) < 0)
		return -1;
	if (t->no_best_effort && s->best_effort)
		return err_set(e, EPERM, "--best-effort: the operator's policy forbids it");
	json_object_foreach(t->policy, key, value) {
		const struct option *o = option_find(key);
		struct spec limit = {0};

		if (spec_set(&limit, o, json_string_value(value), e) < 0)
			return err_prefix(e, "policy");
		/* 0: derived from another option, which has its own maximum */
		if (o->amount(s) <= o->amount(&limit))
			continue;
		if (t->origins[o - options] != ORIGIN_DEFAULT)
			return err_set(e, EPERM, "--%s: the operator's policy allows at most %.60s",
				       o->name, json_string_value(value));
		if (spec_set(s, o, json_string_value(value), e) < 0)
			return -1;
		t->origins[o - options] = ORIGIN_POLICY;
	}
	return 0;
}

void settings_done(struct settings *t)
{
	free(t->uid_range);
	json_decref(t->policy);
	json_decref(t->volume_roots);
	json_decref(t->images);
	json_decref(t->python_modules);
	network_settings_done(&t->network);
	*t = (struct settings){0};
}
