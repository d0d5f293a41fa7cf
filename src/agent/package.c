/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/package.h"

#include <stdint.h>
#include <string.h>
#include <strings.h>

#define DIGITS  "0123456789"
#define LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

/* NAME[EXTRA,EXTRA] OP VERSION, OP VERSION of PEP 508, and @SCOPE/NAME@OP VERSION || OP VERSION of npm. */
struct package_grammar {
	const char *inner; /* what a name has besides letters and digits, which are its first */
	bool has_scope, has_extras;
	bool may_end_inner;   /* the last character may be one of inner, too */
	bool blank_separates; /* versions */
	const char *at;       /* between name and versions; "": nothing */
	const char *ops[12];  /* before a version, the longer first */
	bool needs_op;
	const char *separators[4]; /* between versions */
	const char *version;       /* what a version has besides letters and digits */
	const char *files[12];     /* what the manager takes for a file ends so */
};

/* https://packaging.python.org/en/latest/specifications/dependency-specifiers/, without URLs and markers. The
 * endings are pip's own (pip._internal.utils.filetypes). */
static const struct package_grammar pip_grammar = {
	.inner = "._-",
	.has_extras = true,
	.at = "",
	.ops = {"===", "==", "~=", "!=", "<=", ">=", "<", ">"},
	.needs_op = true,
	.separators = {","},
	.version = ".*+!_-",
	.files = {".whl", ".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz", ".tar.xz", ".txz",
		  ".tar.lz", ".tlz"},
};

/* https://docs.npmjs.com/cli/configuring-npm/package-json#name, https://github.com/npm/node-semver#ranges, and a
 * dist-tag. The endings are npm-package-arg's. */
static const struct package_grammar npm_grammar = {
	.inner = "._~-",
	.has_scope = true,
	.may_end_inner = true,
	.blank_separates = true,
	.at = "@",
	.ops = {"<=", ">=", "<", ">", "=", "^", "~"},
	.separators = {"||", "- "},
	.version = ".*+_-",
	.files = {".tgz", ".tar.gz", ".tar"},
};

/* Below its own folder, so that a later python3 imports it, also beside a Python that is "externally managed"
 * (PEP 668). What older versions do not know is a variable, which they do not look at. */
static const char *const pip_command[] = {"python3",
					  "-m",
					  "pip",
					  "install",
					  "--user",
					  "--no-input",
					  "--no-cache-dir",
					  "--disable-pip-version-check",
					  "--no-warn-script-location",
					  "--progress-bar",
					  "off",
					  "--retries",
					  "1",
					  "--timeout",
					  "15",
					  NULL};
static const char *const pip_env[][2] = {
	{"PIP_BREAK_SYSTEM_PACKAGES", "1"},
	{"PIP_ROOT_USER_ACTION", "ignore"},
	{"TMPDIR", "/workspace"}, /* /tmp is small */
	{NULL, NULL},
};

/* Into node_modules of the folder that programs start in. */
static const char *const npm_command[] = {
	"npm",           "install",           "--no-audit", "--no-fund", "--no-update-notifier",
	"--no-progress", "--fetch-retries=1", NULL};
static const char *const npm_env[][2] = {
	{"npm_config_cache", PACKAGE_FOLDER "/npm"},
	{"TMPDIR", "/workspace"},
	{NULL, NULL},
};

const struct package_manager package_managers[] = {
	{"pip", "pypi.org", "pypi", "requests or numpy==1.26.4", "No module named pip",
	 &pip_grammar, pip_command, pip_env},
	{"npm", "registry.npmjs.org", "npm", "lodash or @types/node@^20", "'node': No such file",
	 &npm_grammar, npm_command, npm_env},
};
const size_t package_manager_count = sizeof package_managers / sizeof *package_managers;

const struct package_manager *package_manager_find(const char *name)
{
	for (size_t i = 0; i < package_manager_count; i++)
		if (strcmp(package_managers[i].name, name) == 0)
			return &package_managers[i];
	return NULL;
}

/* ---- names ---- */

static bool is_alnum(char c)
{
	return c && strchr(LETTERS DIGITS, c);
}

/* Behind a word of letters, digits and these, which begins with none of these; NULL: there is none. */
static const char *past_word(const char *p, const char *inner, bool may_end_inner)
{
	const char *end = p;

	if (!is_alnum(*p))
		return NULL;
	while (is_alnum(*end) || (*end && strchr(inner, *end)))
		end++;
	return may_end_inner || is_alnum(end[-1]) ? end : NULL;
}

static const char *past_any(const char *p, const char *const *words)
{
	for (; *words; words++)
		if (strncmp(p, *words, strlen(*words)) == 0)
			return p + strlen(*words);
	return p;
}

static const char *past_blanks(const char *p)
{
	return p + strspn(p, " ");
}

static const char *past_extras(const struct package_grammar *g, const char *p)
{
	do {
		p = past_word(past_blanks(p + 1), g->inner, false);
		p = p ? past_blanks(p) : NULL;
	} while (p && *p == ',');
	return p && *p == ']' ? p + 1 : NULL;
}

static const char *past_name(const struct package_grammar *g, const char *p)
{
	if (g->has_scope && *p == '@') {
		p = past_word(p + 1, g->inner, true);
		if (!p || *p++ != '/')
			return NULL;
	}
	p = past_word(p, g->inner, g->may_end_inner);
	return p && g->has_extras && *p == '[' ? past_extras(g, p) : p;
}

/* To the end of the text. */
static bool is_versions(const struct package_grammar *g, const char *p)
{
	for (;;) {
		const char *version = past_any(p = past_blanks(p), g->ops), *end, *next;

		if (g->needs_op && version == p)
			return false;
		version = past_blanks(version);
		end = *version == '*' ? version + 1 : past_word(version, g->version, true);
		if (!end || !*end)
			return end;
		p = past_blanks(end);
		next = past_any(p, g->separators);
		if (next == p && !(g->blank_separates && p > end))
			return false;
		p = next;
	}
}

static bool is_file(const struct package_grammar *g, const char *text)
{
	size_t n = strlen(text);

	for (const char *const *end = g->files; *end; end++)
		if (n >= strlen(*end) && strcasecmp(text + n - strlen(*end), *end) == 0)
			return true;
	return false;
}

bool package_is_name(const struct package_manager *m, const char *text)
{
	const struct package_grammar *g = m->grammar;
	const char *p = past_name(g, text);
	size_t n = strlen(g->at);

	if (!p || is_file(g, text))
		return false;
	return !*p || (strncmp(p, g->at, n) == 0 && is_versions(g, p + n));
}

int package_check(const struct package_manager *m, const json_t *list, struct err *e)
{
	size_t count = json_array_size(list), i;
	json_t *one;

	if (count < 1 || count > PACKAGES_MAX)
		return err_set(e, 0, "The argument \"packages\" must have 1 to %d strings.",
			       PACKAGES_MAX);
	json_array_foreach((json_t *)(uintptr_t)list, i, one) {
		const char *text = json_string_value(one);

		if (!text)
			return err_set(e, 0,
				       "The argument \"packages\" must be a list of strings.");
		if (json_string_length(one) > PACKAGE_BYTES ||
		    strlen(text) != json_string_length(one) || !package_is_name(m, text))
			return err_set(e, 0,
				       "\"%.60s\" is no package of %s: give a name, with or "
				       "without a version (%s); no URL, path or option.",
				       text, m->name, m->example);
	}
	return 0;
}

/* ---- the command ---- */

json_t *package_command(const struct package_manager *m, const json_t *list)
{
	json_t *command = json_array();

	for (const char *const *word = m->command; *word; word++)
		json_array_append_new(command, json_string(*word));
	json_array_extend(command, (json_t *)(uintptr_t)list);
	return command;
}

json_t *package_environment(const struct package_manager *m)
{
	json_t *env = json_object();

	for (size_t i = 0; m->env[i][0]; i++)
		json_object_set_new(env, m->env[i][0], json_string(m->env[i][1]));
	return env;
}
