/* SPDX-License-Identifier: Apache-2.0 */
/* help.c - --help, the manual page's source and the completion: all from the same tables. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "native/stream.h"

int fail(int status, const struct err *e)
{
	terminal_error(e);
	return status;
}

void print_usage(FILE *out)
{
	fprintf(out,
		"cloche runs code nobody has read in a sandbox that is new, strict and thrown away.\n\n"
		"usage: cloche VERB [ARGUMENT...]\n\n");
	for (size_t i = 0; i < verb_count; i++)
		if (verbs[i].run != verb_reference)
			fprintf(out, "  %-8s %s\n", verbs[i].name, verbs[i].help);
	fprintf(out, "\n`cloche help VERB` explains one. `cloche --version` prints the version.\n");
}

static void print_option(FILE *out, char letter, const char *name, const char *placeholder,
			 const char *default_text, const char *help)
{
	char left[64];
	int n = 0;

	if (letter)
		n = snprintf(left, sizeof left, "-%c%s", letter, *name ? ", " : "");
	else
		n = snprintf(left, sizeof left, "    ");
	if (*name)
		n += snprintf(left + n, sizeof left - (size_t)n, "--%s", name);
	if (placeholder)
		snprintf(left + n, sizeof left - (size_t)n, " %s", placeholder);
	fprintf(out, "  %-34s %s", left, help);
	if (default_text && strcmp(default_text, "false") != 0)
		fprintf(out, " [%s]", default_text);
	fputc('\n', out);
}

/* A command in a kept sandbox has the service's default for its time, not a run's, and an agent's tool the
 * contract's. */
static const char *default_for(const struct verb *verb, const struct option *o)
{
	if (verb->run == verb_exec && strcmp(o->name, "timeout") == 0)
		return "30s; with -i or -t: none";
	if ((verb->run == verb_mcp || verb->run == verb_tools) && strcmp(o->name, "timeout") == 0)
		return "30s";
	return o->default_text;
}

void print_verb_help(FILE *out, const struct verb *verb)
{
	fprintf(out, "usage: cloche %s %s\n\n%s\n", verb->name, verb->synopsis, verb->help);
	if (verb->more)
		fprintf(out, "\n%s", verb->more);
	if (!verb->options)
		return;
	fprintf(out, "\noptions:\n");
	for (const struct cli_option *o = verb->options; o->name; o++)
		print_option(out, o->letter, o->name, o->placeholder, NULL, o->help);
	print_option(out, 0, "help", NULL, NULL, "print this");
	for (size_t i = 0; i < option_count; i++)
		if (!options[i].docker && verb_takes(verb, &options[i]))
			print_option(out, options[i].letter, options[i].name,
				     options[i].placeholder, default_for(verb, &options[i]),
				     options[i].help);
	if (verb->sandbox_options == sandbox_options_all)
		fprintf(out,
			"\nDocker's --rm -i --network none --read-only --cap-drop ALL "
			"--security-opt no-new-privileges --name\nare accepted: every sandbox is "
			"made so.\n");
}

int verb_help(const struct verb *verb, int argc, char **argv)
{
	struct err e = {0};

	(void)verb;
	if (argc < 2 || strcmp(argv[1], "--help") == 0) {
		print_usage(stdout);
		return 0;
	}
	for (size_t i = 0; i < verb_count; i++)
		if (strcmp(verbs[i].name, argv[1]) == 0) {
			print_verb_help(stdout, &verbs[i]);
			return 0;
		}
	err_set(&e, 0, "no such verb: %.60s (try `cloche help`)", argv[1]);
	return fail(EXIT_USAGE, &e);
}

int verb_version(const struct verb *verb, int argc, char **argv)
{
	(void)verb;
	(void)argc;
	(void)argv;
	puts("cloche " CLOCHE_VERSION);
	return 0;
}

/* scdoc text; underscores and asterisks in it are markup, so they are escaped. */
static void scdoc_text(const char *text)
{
	for (; *text; text++) {
		if (strchr("_*#|[\\", *text))
			putchar('\\');
		putchar(*text);
	}
}

static void man_option(char letter, const char *name, const char *placeholder,
		       const char *default_text, const char *help)
{
	if (letter)
		printf("*-%c*%s", letter, *name ? ", " : "");
	if (*name) {
		printf("*--");
		scdoc_text(name);
		printf("*");
	}
	if (placeholder) {
		printf(" ");
		scdoc_text(placeholder);
	}
	printf("\n\t");
	scdoc_text(help);
	if (default_text && strcmp(default_text, "false") != 0) {
		printf(". Default: ");
		scdoc_text(default_text);
	}
	printf("\n\n");
}

/* The section of one verb's options; heading NULL: by its name. -c is explained where it belongs. */
static void print_man_verb(const struct verb *verb, const char *heading)
{
	const struct cli_option *o = heading ? language_options : verb->options;

	if (heading)
		printf("# %s\n\n", heading);
	else
		printf("# OPTIONS OF ");
	for (const char *p = heading ? "" : verb->name; *p; p++)
		putchar(*p - 'a' + 'A');
	printf("%s", heading ? "" : "\n\n");
	for (; o->name; o++)
		man_option(o->letter, o->name, o->placeholder, NULL, o->help);
	for (size_t i = 0; i < option_count; i++)
		if (!options[i].docker && verb_takes(verb, &options[i]))
			man_option(options[i].letter, options[i].name, options[i].placeholder,
				   default_for(verb, &options[i]), options[i].help);
	if (verb->more) {
		scdoc_text(verb->more);
		putchar('\n');
	}
}

static void print_man(void)
{
	printf("cloche(1)\n\n# NAME\n\ncloche - run code nobody has read, in a sandbox that is new, strict and "
	       "thrown away\n\n# SYNOPSIS\n\n");
	for (size_t i = 0; i < verb_count; i++) {
		if (verbs[i].run == verb_reference)
			continue;
		printf("%s*cloche %s*", i ? "++\n" : "", verbs[i].name);
		if (*verbs[i].synopsis)
			putchar(' ');
		scdoc_text(verbs[i].synopsis);
	}
	printf("\n\n# VERBS\n\n");
	for (size_t i = 0; i < verb_count; i++)
		if (verbs[i].run != verb_reference)
			printf("*%s*\n\t%s\n\n", verbs[i].name, verbs[i].help);
	print_man_verb(&verbs[0], "OPTIONS OF RUN, PYTHON, BASH AND NODE");
	for (size_t i = 1; i < verb_count; i++)
		if (verbs[i].options && verbs[i].run != verb_language)
			print_man_verb(&verbs[i], NULL);
}

static void print_man_ends(void)
{
	printf("# EXIT STATUS\n\nThe command's own, or by the reason the run ended (*--json* is the truth: a command "
	       "may exit with any of these itself):\n\n");
	for (int i = 0; i < REASON_COUNT; i++) {
		printf("*");
		scdoc_text(reasons[i].name);
		if (reasons[i].exit_status == EXIT_OWN)
			printf("*\n\tthe exit code of the command\n\n");
		else if (reasons[i].exit_status == EXIT_SIGNAL)
			printf("*\n\t128 + the number of the signal\n\n");
		else
			printf("*\n\t%d: %s\n\n", reasons[i].exit_status,
			       codes[reasons[i].code].people);
	}
	printf("A command that is not found gives 127, one that cannot be executed 126, wrong usage 2.\n\n"
	       "# FILES\n\n_/etc/cloche/cloche.yaml_, _$XDG\\_CONFIG\\_HOME/cloche/cloche.yaml_\n\tConfiguration: "
	       "*defaults:* (any option with a default), *policy:* (maxima nobody can exceed, and "
	       "*volume\\_roots:*; system file only), *uid\\_range:* (BASE:COUNT, system file only)\n\n"
	       "# ENVIRONMENT\n\n*CLOCHE\\_SOCKET*\n\tthe service to use: a path, HOST:PORT or http://HOST:PORT\n\n"
	       "*CLOCHE\\_DIRECT*\n\t1: run, python, bash and node use no service, as with --direct\n\n"
	       "*CLOCHE\\_API\\_KEY*\n\tthe key for HOST:PORT. It goes as it is, so only over a network that is "
	       "trusted: there is no TLS here, use an ssh tunnel or curl\n\n*CLOCHE\\_NAME*\n\tas the option *--name*, for every option with a default\n\n"
	       "# EXAMPLES\n\n*cloche python -c* 'print(sum(range(10)))'\n\n"
	       "*cloche run --in* data.csv *--out* results *--* python3 -c 'print(1)'\n");
}

static void print_verb_completion(const struct verb *verb)
{
	printf("\t%s)\n\t\tcase $cur in\n\t\t-*) COMPREPLY=($(compgen -W \"", verb->name);
	for (const struct cli_option *o = verb->options; o && o->name; o++)
		if (*o->name)
			printf("--%s ", o->name);
	for (size_t i = 0; i < option_count; i++)
		if (!options[i].docker && verb_takes(verb, &options[i]))
			printf("--%s ", options[i].name);
	printf("--help\" -- \"$cur\")) ;;\n");
	if (verb->words)
		printf("\t\t*) COMPREPLY=($(compgen -W \"%s\" -- \"$cur\")) ;;\n", verb->words);
	else
		printf("\t\t*) COMPREPLY=($(compgen -f -- \"$cur\")) ;;\n");
	printf("\t\tesac ;;\n");
}

static void print_bash_completion(void)
{
	printf("# bash completion for cloche, made from its tables\n_cloche() {\n"
	       "\tlocal cur=${COMP_WORDS[COMP_CWORD]}\n\tif [ \"$COMP_CWORD\" = 1 ]; then\n"
	       "\t\tCOMPREPLY=($(compgen -W \"");
	for (size_t i = 0; i < verb_count; i++)
		if (verbs[i].run != verb_reference)
			printf("%s ", verbs[i].name);
	printf("\" -- \"$cur\"))\n\t\treturn\n\tfi\n\tcase ${COMP_WORDS[1]} in\n");
	for (size_t i = 0; i < verb_count; i++)
		if (verbs[i].run != verb_reference)
			print_verb_completion(&verbs[i]);
	printf("\tesac\n}\ncomplete -F _cloche cloche\n");
}

int verb_reference(const struct verb *verb, int argc, char **argv)
{
	struct err e = {0};

	if (argc == 2 && strcmp(argv[1], "man") == 0) {
		print_man();
		print_man_ends();
		return 0;
	}
	if (argc == 2 && strcmp(argv[1], "bash") == 0) {
		print_bash_completion();
		return 0;
	}
	err_set(&e, 0, "usage: cloche %s %s", verb->name, verb->synopsis);
	return fail(EXIT_USAGE, &e);
}
