/* SPDX-License-Identifier: Apache-2.0 */
/* spec.c - a spec's life: defaults, lists, languages, and the checks that need the whole of it. */
#include "sandbox/spec.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

int strings_add(struct strings *list, const char *text, size_t max, struct err *e)
{
	char **more;
	char *copy;

	if (list->count >= max)
		return err_set(e, 0, "too many entries (at most %zu): %.60s", max, text);
	more = realloc(list->item, (list->count + 2) * sizeof *more);
	if (!more)
		return err_set(e, ENOMEM, "keep %.60s", text);
	list->item = more;
	copy = strdup(text);
	if (!copy)
		return err_set(e, ENOMEM, "keep %.60s", text);
	more[list->count++] = copy;
	more[list->count] = NULL;
	return 0;
}

void strings_done(struct strings *list)
{
	for (size_t i = 0; i < list->count; i++)
		free(list->item[i]);
	free(list->item);
	*list = (struct strings){0};
}

int box_path_check(const char *what, const char *path, struct err *e)
{
	const char *p = path;

	if (*p != '/')
		return err_set(e, 0, "%s %.200s: must be an absolute path inside the sandbox", what,
			       path);
	if (strlen(path) >= SPEC_PATH_SIZE)
		return err_set(e, 0, "%s %.60s...: longer than %d bytes", what, path,
			       SPEC_PATH_SIZE - 1);
	while (*p) {
		size_t n = strcspn(++p, "/");

		if ((n == 0 && strcmp(path, "/") != 0) || (n == 1 && p[0] == '.') ||
		    (n == 2 && p[0] == '.' && p[1] == '.'))
			return err_set(e, 0, "%s %.200s: has an empty, \".\" or \"..\" component",
				       what, path);
		for (size_t i = 0; i < n; i++)
			if (iscntrl((unsigned char)p[i]))
				return err_set(e, 0, "%s: has a control character", what);
		p += n;
	}
	return 0;
}

int spec_init(struct spec *s, struct err *e)
{
	static const char *const env[] = {
		"HOME=/tmp",
		"PATH=/usr/local/bin:/usr/bin:/bin",
		"LANG=C.UTF-8",
	};

	*s = (struct spec){
		.memory_bytes = 256ull << 20,
		.cpus_millis = 500,
		.pids_limit = 64,
		.timeout_us = 5000000,
		.cpu_time_us = SPEC_UNLIMITED,
		.idle_timeout_us = SPEC_UNLIMITED,
		.max_output_bytes = 65536,
		.network = {.max_bytes = SPEC_UNLIMITED, .max_connections = SPEC_UNLIMITED},
		.uid = 65534,
		.gid = 65534,
		.image = "host",
		.runtime = "native",
		.profile = "default",
		.hostname = "sandbox",
		.workdir = "/workspace",
		.tmpfs =
			{
				{"/tmp", 64ull << 20, 16384, false},
				{"/dev/shm", 16ull << 20, 1024, false},
				{"/workspace", 256ull << 20, 65536, true},
			},
		.tmpfs_count = 3,
	};
	for (size_t i = 0; i < ARRAY_SIZE(env); i++)
		if (spec_add_env(s, env[i], e) < 0) {
			spec_done(s);
			return -1;
		}
	s->default_env = (1u << ARRAY_SIZE(env)) - 1;
	return 0;
}

void network_spec_done(struct network_spec *n)
{
	strings_done(&n->allow);
	strings_done(&n->deny);
	strings_done(&n->presets);
	strings_done(&n->credentials);
	n->mode = NETWORK_NONE;
}

void spec_done(struct spec *s)
{
	network_spec_done(&s->network);
	strings_done(&s->command);
	strings_done(&s->env);
	strings_done(&s->artifacts);
	for (size_t i = 0; i < s->volume_count; i++)
		free(s->volumes[i].host);
	for (size_t i = 0; i < s->input_count; i++)
		free(s->inputs[i].host);
	free(s->volumes);
	free(s->inputs);
	free(s->out_dir);
	free(s->venv);
	*s = (struct spec){0};
}

int spec_add_argument(struct spec *s, const char *argument, struct err *e)
{
	if (strlen(argument) >= SPEC_ARG_BYTES)
		return err_set(
			e, 0,
			"argument %zu: longer than %d bytes; give large data by stdin or --in",
			s->command.count, SPEC_ARG_BYTES - 1);
	return strings_add(&s->command, argument, SPEC_MAX_ARGS, e);
}

/* A later entry of the same name replaces the earlier one. */
int spec_add_env(struct spec *s, const char *entry, struct err *e)
{
	size_t name = strcspn(entry, "=");

	if (name == 0 || entry[name] != '=')
		return err_set(e, 0, "environment entry %.60s: must be NAME=VALUE", entry);
	if (strlen(entry) >= SPEC_ARG_BYTES)
		return err_set(e, 0, "environment entry %.*s: longer than %d bytes",
			       (int)(name < 60 ? name : 60), entry, SPEC_ARG_BYTES - 1);
	for (size_t i = 0; i < s->env.count; i++) {
		char *copy;

		if (strncmp(s->env.item[i], entry, name + 1) != 0)
			continue;
		copy = strdup(entry);
		if (!copy)
			return err_set(e, ENOMEM, "keep environment entry");
		free(s->env.item[i]);
		s->env.item[i] = copy;
		if (i < 32)
			s->default_env &= ~(1u << i);
		return 0;
	}
	return strings_add(&s->env, entry, SPEC_MAX_ENV, e);
}

static const struct {
	const char *name;
	const char *program;
	const char *code_flag;  /* before code given as an argument */
	const char *stdin_flag; /* says that the code is on stdin */
	const char *separator;  /* between the code and the code's own arguments, or NULL */
} languages[LANGUAGE_COUNT] = {
	[LANGUAGE_NONE] = {"", "", "", "", NULL},
	[LANGUAGE_PYTHON] = {"python", "python3", "-c", "-", NULL},
	[LANGUAGE_BASH] = {"bash", "bash", "-c", "-s", NULL},
	[LANGUAGE_NODE] = {"node", "node", "-e", "-", "--"},
};

enum language language_find(const char *name)
{
	for (int i = LANGUAGE_NONE + 1; i < LANGUAGE_COUNT; i++)
		if (strcmp(languages[i].name, name) == 0)
			return (enum language)i;
	return LANGUAGE_NONE;
}

const char *language_name(enum language language)
{
	return languages[language].name;
}

int spec_language(struct spec *s, enum language language, enum code_source source, const char *text,
		  struct err *e)
{
	if (spec_add_argument(s, languages[language].program, e) < 0)
		return -1;
	switch (source) {
	case CODE_STDIN:
		return spec_add_argument(s, languages[language].stdin_flag, e);
	case CODE_FILE:
		return spec_add_argument(s, text, e);
	case CODE_STRING:
		if (spec_add_argument(s, languages[language].code_flag, e) < 0 ||
		    spec_add_argument(s, text, e) < 0)
			return -1;
		if (languages[language].separator)
			return spec_add_argument(s, languages[language].separator, e);
		return 0;
	}
	return err_set(e, 0, "no such code source");
}

static bool has_env(const struct spec *s, const char *name)
{
	size_t n = strlen(name);

	for (size_t i = 0; i < s->env.count; i++)
		if (strncmp(s->env.item[i], name, n) == 0 && s->env.item[i][n] == '=')
			return true;
	return false;
}

/* Runtimes that size themselves by the machine's memory are told their limit: there is no /sys and
 * no /proc/meminfo for them to find it. 3/4 for the heap is what both use as their own rule. */
static int tell_memory_aware_runtimes(struct spec *s, struct err *e)
{
	unsigned long long heap_mb = (s->memory_bytes >> 20) * 3 / 4;
	char entry[128];

	if (heap_mb == 0)
		heap_mb = 1;
	if (!has_env(s, "NODE_OPTIONS")) {
		snprintf(entry, sizeof entry, "NODE_OPTIONS=--max-old-space-size=%llu", heap_mb);
		if (spec_add_env(s, entry, e) < 0)
			return -1;
	}
	if (!has_env(s, "JAVA_TOOL_OPTIONS")) {
		snprintf(entry, sizeof entry,
			 "JAVA_TOOL_OPTIONS=-XX:MaxRAM=%llu -XX:MaxRAMPercentage=75",
			 (unsigned long long)s->memory_bytes);
		if (spec_add_env(s, entry, e) < 0)
			return -1;
	}
	return 0;
}

static int use_venv(struct spec *s, struct err *e)
{
	const char *path = "/usr/local/bin:/usr/bin:/bin";
	_cleanup_free_ char *entry = NULL;

	for (size_t i = 0; i < s->env.count; i++)
		if (strncmp(s->env.item[i], "PATH=", 5) == 0)
			path = s->env.item[i] + 5;
	if (asprintf(&entry, "PATH=%s/bin:%s", s->venv, path) < 0) {
		entry = NULL;
		return err_set(e, ENOMEM, "make PATH");
	}
	if (spec_add_env(s, entry, e) < 0)
		return -1;
	free(TAKE_PTR(entry));
	if (asprintf(&entry, "VIRTUAL_ENV=%s", s->venv) < 0) {
		entry = NULL;
		return err_set(e, ENOMEM, "make VIRTUAL_ENV");
	}
	return spec_add_env(s, entry, e);
}

/* Programs that know proxies find ours; the others are caught (native/capture.h). Not socks5h for all: httpx would ask for
 * a package that it may not have. */
static int tell_proxy(struct spec *s, struct err *e)
{
	static const char *const proxies[] = {"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY",
					      "http_proxy", "https_proxy", "all_proxy"};
	static const char *const directs[] = {"NO_PROXY", "no_proxy"};
	char entry[64];

	if (s->network.mode == NETWORK_NONE)
		return 0;
	for (size_t i = 0; i < ARRAY_SIZE(proxies); i++) {
		snprintf(entry, sizeof entry, "%s=http://127.0.0.1:%d", proxies[i],
			 NETWORK_PROXY_PORT);
		if (!has_env(s, proxies[i]) && spec_add_env(s, entry, e) < 0)
			return -1;
	}
	for (size_t i = 0; i < ARRAY_SIZE(directs); i++) {
		snprintf(entry, sizeof entry, "%s=localhost,127.0.0.1,::1", directs[i]);
		if (!has_env(s, directs[i]) && spec_add_env(s, entry, e) < 0)
			return -1;
	}
	return 0;
}

static int check_totals(const struct spec *s, struct err *e)
{
	size_t total = 0;

	for (size_t i = 0; i < s->command.count; i++)
		total += strlen(s->command.item[i]) + 1;
	for (size_t i = 0; i < s->env.count; i++)
		total += strlen(s->env.item[i]) + 1;
	if (total > SPEC_ARGS_BYTES)
		return err_set(e, 0, "arguments and environment: %zu bytes, at most %d", total,
			       SPEC_ARGS_BYTES);
	return 0;
}

static bool mount_exists(const struct spec *s, const char *path)
{
	for (size_t i = 0; i < s->tmpfs_count; i++)
		if (strcmp(s->tmpfs[i].path, path) == 0)
			return true;
	return false;
}

static bool is_below(const char *path, const char *folder)
{
	size_t n = strlen(folder);

	return strncmp(path, folder, n) == 0 && path[n] == '/';
}

static int check_mounts(const struct spec *s, struct err *e)
{
	for (size_t i = 0; i < s->tmpfs_count; i++)
		for (size_t j = 0; j < s->volume_count; j++)
			if (is_below(s->tmpfs[i].path, s->volumes[j].box))
				return err_set(e, 0, "--tmpfs %s: is below the volume %s",
					       s->tmpfs[i].path, s->volumes[j].box);
	for (size_t i = 0; i < s->volume_count; i++)
		for (size_t j = 0; j < i; j++)
			if (strcmp(s->volumes[i].box, s->volumes[j].box) == 0)
				return err_set(e, 0, "--volume: %s is mounted twice",
					       s->volumes[i].box);
	return 0;
}

/* A volume takes the place of a tmpfs at the same path. */
static void drop_covered_tmpfs(struct spec *s)
{
	size_t kept = 0;

	for (size_t i = 0; i < s->tmpfs_count; i++) {
		bool covered = false;

		for (size_t j = 0; j < s->volume_count; j++)
			covered |= strcmp(s->volumes[j].box, s->tmpfs[i].path) == 0;
		if (!covered)
			s->tmpfs[kept++] = s->tmpfs[i];
	}
	s->tmpfs_count = kept;
}

/* A place below another is mounted after it. */
static void parents_first(struct spec *s)
{
	for (size_t i = 1; i < s->tmpfs_count; i++)
		for (size_t j = i; j > 0 && strlen(s->tmpfs[j].path) < strlen(s->tmpfs[j - 1].path);
		     j--) {
			struct spec_tmpfs t = s->tmpfs[j];

			s->tmpfs[j] = s->tmpfs[j - 1];
			s->tmpfs[j - 1] = t;
		}
	for (size_t i = 1; i < s->volume_count; i++)
		for (size_t j = i;
		     j > 0 && strlen(s->volumes[j].box) < strlen(s->volumes[j - 1].box); j--) {
			struct spec_volume v = s->volumes[j];

			s->volumes[j] = s->volumes[j - 1];
			s->volumes[j - 1] = v;
		}
}

/* Its lists by the words that begin a line of them. */
struct network_list {
	const char *word;
	const struct strings *list;
};
enum { NETWORK_LISTS = 4 };

static void network_lists(const struct network_spec *n, struct network_list ret[NETWORK_LISTS])
{
	ret[0] = (struct network_list){"allow", &n->allow};
	ret[1] = (struct network_list){"deny", &n->deny};
	ret[2] = (struct network_list){"preset", &n->presets};
	ret[3] = (struct network_list){"credential", &n->credentials};
}

char *spec_network_rules(const struct spec *s)
{
	struct network_list lists[NETWORK_LISTS];
	char *text = NULL;
	size_t size;
	FILE *f = open_memstream(&text, &size);
	bool failed;

	if (!f)
		return NULL;
	network_lists(&s->network, lists);
	for (size_t i = 0; i < NETWORK_LISTS; i++)
		for (size_t k = 0; k < lists[i].list->count; k++)
			fprintf(f, "%s %s\n", lists[i].word, lists[i].list->item[k]);
	if (s->network.max_bytes != SPEC_UNLIMITED)
		fprintf(f, "max-bytes %" PRIu64 "\n", s->network.max_bytes);
	if (s->network.max_connections != SPEC_UNLIMITED)
		fprintf(f, "max-connections %" PRIu64 "\n", s->network.max_connections);
	failed = ferror(f);
	failed |= fclose(f) != 0;
	if (failed)
		free(TAKE_PTR(text));
	return text;
}

static int check_network(const struct spec *s, struct err *e)
{
	struct network_list lists[NETWORK_LISTS];
	size_t size = 0;

	network_lists(&s->network, lists);
	for (size_t i = 0; i < NETWORK_LISTS; i++) {
		const struct strings *list = lists[i].list;

		if (list->count && s->network.mode == NETWORK_NONE)
			return err_set(
				e, 0,
				"--%s %.60s: there is no network under --network none; add --network allow",
				lists[i].word, list->item[0]);
		for (size_t k = 0; k < list->count; k++)
			size += strlen(lists[i].word) + strlen(list->item[k]) + 2;
	}
	if (size > POLICY_TEXT_MAX - 64)
		return err_set(
			e, 0,
			"--allow, --deny: %zu bytes of rules, at most %d; put them into a preset (docs/network.md)",
			size, POLICY_TEXT_MAX - 64);
	return 0;
}

int spec_finish(struct spec *s, struct err *e)
{
	if (s->command.count == 0 || s->command.item[0][0] == '\0')
		return err_set(e, 0, "no command to run");
	return spec_finish_sandbox(s, e);
}

int spec_finish_sandbox(struct spec *s, struct err *e)
{
	if (s->memory_swap_bytes == 0)
		s->memory_swap_bytes = s->memory_bytes;
	if (s->memory_swap_bytes < s->memory_bytes)
		return err_set(
			e, 0, "--memory-swap is memory plus swap: it cannot be less than --memory");
	if (s->artifacts.count > 0 && !s->out_dir)
		return err_set(e, 0, "--artifact: say with --out where they shall go");
	if (s->out_dir && !mount_exists(s, "/output")) {
		if (s->tmpfs_count == SPEC_MAX_TMPFS)
			return err_set(e, 0, "--tmpfs: too many");
		s->tmpfs[s->tmpfs_count++] =
			(struct spec_tmpfs){"/output", 64ull << 20, 16384, false};
	}
	if (check_network(s, e) < 0)
		return -1;
	drop_covered_tmpfs(s);
	parents_first(s);
	if (s->venv && use_venv(s, e) < 0)
		return -1;
	if (check_mounts(s, e) < 0 || tell_memory_aware_runtimes(s, e) < 0 || tell_proxy(s, e) < 0)
		return -1;
	return check_totals(s, e);
}

static bool copy_strings(struct strings *ret, const struct strings *s)
{
	if (s->count == 0)
		return true;
	ret->item = calloc(s->count + 1, sizeof *ret->item);
	for (; ret->item && ret->count < s->count; ret->count++) {
		ret->item[ret->count] = strdup(s->item[ret->count]);
		if (!ret->item[ret->count])
			return false;
	}
	return ret->item != NULL;
}

static bool copy_text(char **ret, const char *text)
{
	*ret = text ? strdup(text) : NULL;
	return !text == !*ret;
}

static bool copy_network(struct network_spec *ret, const struct network_spec *n)
{
	return copy_strings(&ret->allow, &n->allow) && copy_strings(&ret->deny, &n->deny) &&
	       copy_strings(&ret->presets, &n->presets) &&
	       copy_strings(&ret->credentials, &n->credentials);
}

static bool copy_volumes(struct spec *ret, const struct spec *s)
{
	if (s->volume_count == 0)
		return true;
	ret->volumes = calloc(s->volume_count, sizeof *ret->volumes);
	for (; ret->volumes && ret->volume_count < s->volume_count; ret->volume_count++) {
		struct spec_volume *to = &ret->volumes[ret->volume_count];

		*to = s->volumes[ret->volume_count];
		if (!copy_text(&to->host, s->volumes[ret->volume_count].host))
			return false;
	}
	return ret->volumes != NULL;
}

static bool copy_inputs(struct spec *ret, const struct spec *s)
{
	if (s->input_count == 0)
		return true;
	ret->inputs = calloc(s->input_count, sizeof *ret->inputs);
	for (; ret->inputs && ret->input_count < s->input_count; ret->input_count++) {
		struct spec_input *to = &ret->inputs[ret->input_count];

		*to = s->inputs[ret->input_count];
		if (!copy_text(&to->host, s->inputs[ret->input_count].host))
			return false;
	}
	return ret->inputs != NULL;
}

int spec_copy_limits(struct spec *ret, const struct spec *s, struct err *e)
{
	struct network_spec *n = &ret->network;

	*ret = *s;
	ret->command = ret->env = ret->artifacts = (struct strings){0};
	n->allow = n->deny = n->presets = n->credentials = (struct strings){0};
	ret->volumes = NULL;
	ret->inputs = NULL;
	ret->volume_count = ret->input_count = 0;
	ret->out_dir = ret->venv = NULL;
	if (copy_network(n, &s->network) && copy_volumes(ret, s))
		return 0;
	spec_done(ret);
	return err_set(e, ENOMEM, "copy a spec");
}

int spec_copy(struct spec *ret, const struct spec *s, struct err *e)
{
	if (spec_copy_limits(ret, s, e) < 0)
		return -1;
	if (copy_strings(&ret->command, &s->command) && copy_strings(&ret->env, &s->env) &&
	    copy_strings(&ret->artifacts, &s->artifacts) && copy_inputs(ret, s) &&
	    copy_text(&ret->out_dir, s->out_dir) && copy_text(&ret->venv, s->venv))
		return 0;
	spec_done(ret);
	return err_set(e, ENOMEM, "copy a spec");
}
