/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "imaging/imaging.h"
#include "imaging/meter.h"

enum { EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_INTERRUPTED = 130 };
enum { TAKES_QUIET = 1, TAKES_JSON = 2, TAKES_ALL = 4, TAKES_FORCE = 8, TAKES_SERVICE = 16 };

static const struct verb {
	const char *name;
	const char *synopsis;
	int (*run)(struct request *q, struct err *e);
	unsigned takes;
	size_t min, max; /* operands */
} verbs[] = {
	{"pull", "IMAGE...", verb_pull, TAKES_QUIET | TAKES_SERVICE, 1, SIZE_MAX},
	{"import", "FILE|FOLDER|- [NAME[:TAG]]", verb_import, TAKES_QUIET, 1, 2},
	{"ls", "[--json]", verb_ls, TAKES_JSON, 0, 0},
	{"inspect", "IMAGE...", verb_inspect, TAKES_JSON, 1, SIZE_MAX},
	{"rm", "[--force] IMAGE...", verb_rm, TAKES_QUIET | TAKES_FORCE, 1, SIZE_MAX},
	{"prune", "[--all]", verb_prune, TAKES_QUIET | TAKES_ALL, 0, 0},
};

/* One line, without control characters: names in it may be anybody's. */
static int fail(int status, const struct err *e)
{
	fputs("cloche: ", stderr);
	for (const char *p = e->text; *p; p++) {
		if (iscntrl((unsigned char)*p))
			fprintf(stderr, "\\x%02x", (unsigned char)*p);
		else
			fputc(*p, stderr);
	}
	fputc('\n', stderr);
	return status;
}

static int usage(const struct verb *v)
{
	if (v) {
		fprintf(stderr, "usage: cloche image %s %s\n", v->name, v->synopsis);
		return EXIT_USAGE;
	}
	for (size_t i = 0; i < ARRAY_SIZE(verbs); i++)
		fprintf(stderr, "%s cloche image %s %s\n", i ? "      " : "usage:", verbs[i].name,
			verbs[i].synopsis);
	return EXIT_USAGE;
}

static bool put_place(char *field, size_t size, const char *option, const char *word)
{
	size_t n = strlen(option);

	if (strncmp(word, option, n) != 0 || word[n] != '/' || strlen(word + n) >= size)
		return false;
	memcpy(field, word + n, strlen(word + n) + 1);
	return true;
}

static bool take_option(struct request *q, const struct verb *v, const char *word)
{
	const struct {
		const char *name, *letter;
		unsigned bit;
		bool *value;
	} known[] = {
		{"--quiet", "-q", TAKES_QUIET, &q->quiet},
		{"--json", "", TAKES_JSON, &q->json},
		{"--all", "-a", TAKES_ALL, &q->all},
		{"--force", "-f", TAKES_FORCE, &q->force},
		{"--for-client", "", TAKES_SERVICE, &q->for_client},
	};

	for (size_t i = 0; i < ARRAY_SIZE(known); i++)
		if (v->takes & known[i].bit &&
		    (strcmp(word, known[i].name) == 0 || strcmp(word, known[i].letter) == 0)) {
			*known[i].value = true;
			return true;
		}
	if (!(v->takes & TAKES_SERVICE))
		return false;
	return put_place(q->places.state, sizeof q->places.state, "--state-dir=", word) ||
	       put_place(q->places.system_config, sizeof q->places.system_config,
			 "--config=", word);
}

/* Operands go to the front of argv. */
static int parse(struct request *q, const struct verb *v, int argc, char **argv)
{
	bool may_be_option = true;

	q->operands = argv;
	for (int i = 0; i < argc; i++) {
		if (may_be_option && strcmp(argv[i], "--") == 0)
			may_be_option = false;
		else if (!may_be_option || argv[i][0] != '-' || !argv[i][1])
			argv[q->count++] = argv[i];
		else if (!take_option(q, v, argv[i])) {
			fprintf(stderr, "cloche: image %s: no such option\n", v->name);
			return -1;
		}
	}
	return q->count < v->min || q->count > v->max ? -1 : 0;
}

int main(int argc, char **argv)
{
	const struct verb *v = NULL;
	struct request q = {0};
	struct err e = {0};

	signal(SIGPIPE, SIG_IGN);
	signal(SIGCHLD, SIG_DFL);
	umask(0); /* modes are what we say */
	for (size_t i = 0; argc > 1 && i < ARRAY_SIZE(verbs); i++)
		if (strcmp(argv[1], verbs[i].name) == 0)
			v = &verbs[i];
	if (!v)
		return usage(NULL);
	if (places_find(&q.places, &e) < 0)
		return fail(EXIT_FAILED, &e);
	if (parse(&q, v, argc - 2, argv + 2) < 0)
		return usage(v);
	watch_cancel();
	if (v->run(&q, &e) < 0)
		return fail(is_cancelled() ? EXIT_INTERRUPTED : EXIT_FAILED, &e);
	if (fflush(stdout) != 0) {
		err_set(&e, errno, "write to stdout");
		return fail(EXIT_FAILED, &e);
	}
	return 0;
}
