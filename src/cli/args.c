/* SPDX-License-Identifier: Apache-2.0 */
/*
 * args.c - from argv to a verb's own struct, by its tables.
 *
 * Long options are whole words (no abbreviations), with `--name value` or `--name=value`; letters may be
 * put together when they take no value. "--" ends options. Nothing is done here but storing.
 */
#include <string.h>

#include "cli/cli.h"

/* Every verb has it. */
static const char help_name[] = "help";

const char *const sandbox_options_all[] = {NULL};

/* For a struct that begins with its bool. */
const struct cli_option json_options[] = {
	{"json", 0, NULL, "print the API's JSON instead of a table", 0},
	{NULL},
};

bool verb_takes(const struct verb *verb, const struct option *o)
{
	const char *const *names = verb->sandbox_options;

	/* An option of the verb's own hides the sandbox's of that name. */
	for (const struct cli_option *own = verb->options; own && own->name; own++)
		if (strcmp(own->name, o->name) == 0)
			return false;
	if (!names || names == sandbox_options_all)
		return names != NULL;
	for (; *names; names++)
		if (strcmp(*names, o->name) == 0)
			return true;
	return false;
}

/* What an argument names: a row of one of the two tables, or --help. */
struct match {
	const struct option *option;
	const struct cli_option *own; /* both NULL: --help */
	bool takes_value;
};

static bool match_own(const struct verb *verb, const char *name, size_t n, char letter,
		      struct match *m)
{
	for (const struct cli_option *o = verb->options; o && o->name; o++) {
		if (name ? n > 0 && strlen(o->name) == n && memcmp(o->name, name, n) == 0
			 : o->letter && o->letter == letter) {
			*m = (struct match){NULL, o, o->placeholder != NULL};
			return true;
		}
	}
	return false;
}

static bool match_option(const struct verb *verb, const struct option *o, struct match *m)
{
	if (!o || !verb_takes(verb, o))
		return false;
	*m = (struct match){o, NULL, o->kind != OPTION_FLAG};
	return true;
}

/* The hint at the end: a short synopsis itself, or where the long one is. */
static int unknown(const struct verb *verb, struct err *e, const char *dashes, int n,
		   const char *name)
{
	if (verb->sandbox_options)
		return err_set(e, 0, "unknown option %s%.*s (try `cloche %s --help`)", dashes, n,
			       name, verb->name);
	return err_set(e, 0, "unknown option %s%.*s; usage: cloche %s %s", dashes, n, name,
		       verb->name, verb->synopsis);
}

static int match_long(const struct verb *verb, const char *name, size_t n, struct match *m,
		      struct err *e)
{
	char text[64];

	if (match_own(verb, name, n, 0, m))
		return 0;
	if (n < sizeof text) {
		memcpy(text, name, n);
		text[n] = '\0';
		if (strcmp(text, help_name) == 0) {
			*m = (struct match){0};
			return 0;
		}
		if (!strchr(text, '_') && match_option(verb, option_find(text), m))
			return 0;
	}
	return unknown(verb, e, "--", n > 60 ? 60 : (int)n, name);
}

static int match_short(const struct verb *verb, char letter, struct match *m, struct err *e)
{
	char shown = letter >= ' ' && letter < 0x7f ? letter : '?';

	if (match_own(verb, NULL, 0, letter, m) ||
	    match_option(verb, option_find_letter(letter), m))
		return 0;
	return unknown(verb, e, "-", 1, &shown);
}

static int apply(struct args *a, const struct match *m, const char *value, struct err *e)
{
	char *field = m->own ? (char *)a->values + m->own->offset : NULL;

	if (m->option)
		return a->set(a->values, m->option, value ? value : "true", e);
	if (!m->own)
		a->help = true;
	else if (m->own->list)
		return strings_add((struct strings *)(void *)field, value, 256, e);
	else if (m->own->placeholder)
		*(const char **)(void *)field = value;
	else
		*(bool *)field = true;
	return 0;
}

/* Is this a list of some of these words (which have blanks between them)? */
static bool is_of(const char *words, const char *list)
{
	for (;;) {
		size_t n = strcspn(list, ","), k;
		const char *word = words;

		for (; *word; word += k + strspn(word + k, " ")) {
			k = strcspn(word, " ");
			if (k == n && strncmp(word, list, n) == 0)
				break;
		}
		if (n == 0 || !*word)
			return false;
		if (!list[n])
			return true;
		list += n + 1;
	}
}

/* The value that stands in the next argument; moves *i to it. */
static const char *next_value(const struct match *m, int argc, char **argv, int *i, struct err *e)
{
	const char *words = m->own ? m->own->words : NULL;

	if (words && (*i + 1 >= argc || !is_of(words, argv[*i + 1])))
		return words; /* its first word, up to a blank */
	if (*i + 1 < argc)
		return argv[++*i];
	err_set(e, 0, "option %.60s needs a value", argv[*i]);
	return NULL;
}

/* One option at argv[*i]; moves *i to its last argument. *ret_last: operands follow. */
static int parse_option(struct args *a, int argc, char **argv, int *i, bool *ret_last,
			struct err *e)
{
	const char *arg = argv[*i], *value = NULL;
	bool is_long = arg[1] == '-', attached;
	const char *name = arg + (is_long ? 2 : 1);
	struct match m = {0};
	size_t n = is_long ? strcspn(name, "=") : 1;

	if ((is_long ? match_long(a->verb, name, n, &m, e) : match_short(a->verb, *name, &m, e)) <
	    0)
		return -1;
	*ret_last = m.own && m.own->last;
	attached = name[n] != '\0';
	if (attached)
		value = name + n + (name[n] == '=' ? 1 : 0);
	/* --read-only=true: a flag of the option table knows what it may be set to. */
	if (!m.takes_value && attached && !(is_long && m.option)) {
		if (!is_long && name[n] != '=') { /* -it: flags in a row */
			if (apply(a, &m, NULL, e) < 0)
				return -1;
			argv[*i] = argv[*i] + 1;
			argv[*i][0] = '-';
			return parse_option(a, argc, argv, i, ret_last, e);
		}
		return err_set(e, 0, "option %.*s takes no value", (int)n + (is_long ? 2 : 1), arg);
	}
	if (m.takes_value && !attached) {
		value = next_value(&m, argc, argv, i, e);
		if (!value)
			return -1;
	}
	return apply(a, &m, value, e);
}

/* Operands move to the front of what was read, so that they end up side by side. */
int args_parse(struct args *a, int argc, char **argv, struct err *e)
{
	bool last = false;
	int i = 1, kept = 1;

	for (; i < argc && !last; i++) {
		if (strcmp(argv[i], "--") == 0) {
			i++;
			break;
		}
		if (argv[i][0] != '-' || argv[i][1] == '\0') {
			if (kept - 1 >= (int)a->verb->operands_before)
				break;
			argv[kept++] = argv[i];
			continue;
		}
		if (parse_option(a, argc, argv, &i, &last, e) < 0)
			return -1;
	}
	while (i < argc)
		argv[kept++] = argv[i++];
	a->operands = argv + 1;
	a->count = (size_t)kept - 1;
	return 0;
}

int args_ready(struct args *a, int argc, char **argv, size_t min, size_t max)
{
	struct err e = {0};

	if (args_parse(a, argc, argv, &e) < 0)
		return fail(e.code || e.errnum ? EXIT_CLOCHE : EXIT_USAGE, &e);
	if (a->help) {
		print_verb_help(stdout, a->verb);
		return 0;
	}
	if (a->count >= min && a->count <= max)
		return -1;
	err_set(&e, 0, "usage: cloche %s %s", a->verb->name, a->verb->synopsis);
	return fail(EXIT_USAGE, &e);
}
