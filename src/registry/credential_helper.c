/* SPDX-License-Identifier: Apache-2.0 */
/*
 * credential_helper.c - docker-credential-NAME get: the server's name on its stdin, JSON on its stdout.
 *
 * The program is the user's own choice (config.json names it, PATH has it), so it is trusted with what it is
 * asked; not trusted are its wits (base/ask.h).
 */
#include "registry/credentials.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "base/ask.h"
#include "base/json.h"
#include "registry/url.h"

/* What a helper says, and exits 1, when it knows no login (docker-credential-helpers' own words). */
#define NOT_FOUND "credentials not found"

struct helper {
	char program[96];
	char answer[CREDENTIALS_ANSWER_MAX + 1];
	size_t size;
};

static bool name_is_valid(const char *name)
{
	size_t n = strlen(name);

	return n > 0 && n <= 64 && name[0] != '-' && name[0] != '.' &&
	       strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") ==
		       n;
}

static int understand(struct helper *h, int status, struct credentials *ret, struct err *e)
{
	_cleanup_json_ json_t *root = NULL;
	const char *user, *secret;
	char room[80];

	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
		if (strstr(h->answer, NOT_FOUND))
			return 0;
		h->answer[strcspn(h->answer, "\r\n")] = '\0';
		return err_set(e, 0, "%s failed: %s", h->program,
			       text_show(*h->answer ? h->answer : "without a word", room,
					 sizeof room));
	}
	root = json_read(h->answer, h->size, e);
	user = json_string_value(json_object_get(root, "Username"));
	secret = json_string_value(json_object_get(root, "Secret"));
	if (!user || !secret || !*secret)
		return err_set(e, 0, "%s: its answer is no login", h->program);
	if (strcmp(user, "<token>") == 0) {
		ret->identity_token = strdup(secret);
		return ret->identity_token ? 0 : err_set(e, ENOMEM, "keep a login");
	}
	ret->user = strdup(user);
	ret->password = strdup(secret);
	if (ret->user && ret->password)
		return 0;
	credentials_done(ret);
	return err_set(e, ENOMEM, "keep a login");
}

static int ask(struct helper *h, const char *server, int cancel_fd, uint64_t timeout_us,
	       struct credentials *ret, struct err *e)
{
	char get[] = "get", *argv[] = {h->program, get, NULL};
	const struct ask a = {
		.argv = argv,
		.input = server,
		.hint = ", which keeps the logins (install it, or remove it from the file)",
		.cancel_fd = cancel_fd,
		.timeout_us = timeout_us,
	};
	int status;

	return ask_program(&a, h->answer, sizeof h->answer, &h->size, &status, e) < 0
		       ? -1
		       : understand(h, status, ret, e);
}

int credential_helper_ask(const char *name, const char *server, int cancel_fd, uint64_t timeout_us,
			  struct credentials *ret, struct err *e)
{
	struct helper *h;
	char room[80];
	int r;

	*ret = (struct credentials){0};
	if (!name_is_valid(name))
		return err_set(e, 0, "%s is no name of a credential helper",
			       text_show(name, room, sizeof room));
	h = calloc(1, sizeof *h);
	if (!h)
		return err_set(e, ENOMEM, "ask a credential helper");
	snprintf(h->program, sizeof h->program, "docker-credential-%s", name);
	r = ask(h, server, cancel_fd, timeout_us, ret, e);
	explicit_bzero(h, sizeof *h);
	free(h);
	return r;
}
