/* SPDX-License-Identifier: Apache-2.0 */
/*
 * login.c - answering 401: Basic, or a token from the server that the challenge names (the distribution project's
 * "token" specification, and its OAuth2 form for identity tokens).
 *
 * The scope that is asked for is ours: to pull from this repository. What the challenge says about scope is not
 * read, so no registry can make us ask for a token for somebody else's.
 */
#include "registry/inside.h"

#include <stdio.h>
#include <string.h>

#include "base/base64.h"
#include "base/json.h"
#include "registry/challenge.h"

enum { TOKEN_ANSWER_MAX = 128 << 10, TOKEN_MAX = 32 << 10, HELPER_TIME_US = 30000000 };

static int load_login(struct registry *r, struct source *s, enum registry_cause *cause,
		      struct err *e)
{
	if (s->login_known)
		return 0;
	s->login_known = true;
	if (!s->login_allowed)
		return 0;
	if (credentials_find(r->docker_config, s->name, r->options.cancel_fd, HELPER_TIME_US,
			     &s->login, e) == 0)
		return 0;
	*cause = e->errnum == ECANCELED ? REGISTRY_CANCELLED : REGISTRY_CREDENTIALS;
	return -1;
}

static int set_authorization(struct source *s, const char *scheme, const char *value, struct err *e)
{
	char *text;

	if (asprintf(&text, "%s %s", scheme, value) < 0)
		return err_set(e, ENOMEM, "log in");
	secret_free(&s->authorization);
	s->authorization = text;
	s->generation++;
	return 0;
}

/* base64 of user:password; NULL without memory. */
static char *basic_value(const struct credentials *c)
{
	_cleanup_secret_ char *plain = NULL;
	size_t size;
	int n = asprintf(&plain, "%s:%s", c->user, c->password);

	if (n < 0) {
		plain = NULL;
		return NULL;
	}
	return base64_encode(plain, (size_t)n, &size);
}

static int use_basic(struct source *s, enum registry_cause *cause, struct err *e)
{
	_cleanup_secret_ char *value = NULL;

	*cause = REGISTRY_UNAUTHORISED;
	if (!s->login.user)
		return err_set(e, 0, "%s wants a login, and none is stored; docker login %s",
			       s->name, s->name);
	value = basic_value(&s->login);
	if (!value) {
		*cause = REGISTRY_INTERNAL;
		return err_set(e, ENOMEM, "log in");
	}
	if (s->authorization && strncmp(s->authorization, "Basic ", 6) == 0 &&
	    strcmp(s->authorization + 6, value) == 0)
		return err_set(e, 0, "%s refuses the stored user name or password; docker login %s",
			       s->name, s->name);
	return set_authorization(s, "Basic", value, e);
}

/* ---- tokens */

/* Is this where a password may be sent for s? */
static int check_realm(const struct source *s, const struct url *realm, struct err *e)
{
	char room[URL_SHOWN];

	if (realm->tls || (!s->base.tls && strcmp(realm->host, s->base.host) == 0))
		return 0;
	return err_set(e, 0, "%s sends us to %s to log in, which is not https", s->name,
		       url_show(realm, room));
}

static char *escape(const char *text)
{
	char *theirs = curl_easy_escape(NULL, text, 0), *ours = theirs ? strdup(theirs) : NULL;

	curl_free(theirs);
	return ours;
}

/* "service=…&scope=…": for a URL or a form. */
static char *token_query(const struct source *s, const struct challenge *c)
{
	_cleanup_free_ char *scope = NULL, *service = escape(c->service), *full = NULL;
	_cleanup_free_ char *account = s->login.user ? escape(s->login.user) : strdup("");
	char *query;

	if (asprintf(&full, "repository:%s:pull", s->repository) < 0) {
		full = NULL;
		return NULL;
	}
	scope = escape(full);
	if (!scope || !service || !account)
		return NULL;
	if (asprintf(&query, "scope=%s%s%s%s%s", scope, *service ? "&service=" : "", service,
		     *account ? "&account=" : "", account) < 0)
		return NULL;
	return query;
}

static char *refresh_form(const struct source *s, const char *query)
{
	_cleanup_secret_ char *token = escape(s->login.identity_token);
	char *form;

	if (!token ||
	    asprintf(&form, "grant_type=refresh_token&client_id=cloche&%s&refresh_token=%s", query,
		     token) < 0)
		return NULL;
	return form;
}

static bool token_is_valid(const char *token)
{
	size_t n = strlen(token);

	return n > 0 && n <= TOKEN_MAX &&
	       strspn(token,
		      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~+/=") == n;
}

static int read_token(struct source *s, const struct memory *m, enum registry_cause *cause,
		      struct err *e)
{
	_cleanup_json_ json_t *root = json_read(m->data ? m->data : "", m->size, e);
	const char *token = json_string_value(json_object_get(root, "token"));

	if (!token || !*token)
		token = json_string_value(json_object_get(root, "access_token"));
	*cause = REGISTRY_BAD_ANSWER;
	if (!token || !token_is_valid(token))
		return err_set(e, 0, "the token server of %s answers without a token", s->name);
	*cause = REGISTRY_INTERNAL;
	return set_authorization(s, "Bearer", token, e);
}

static int token_refused(const struct source *s, enum registry_cause *cause, struct err *e)
{
	struct err why = *e;

	if (*cause != REGISTRY_UNAUTHORISED)
		return err_prefix(e, "the token server of %s", s->name);
	if (s->login.user || s->login.identity_token)
		return err_set(e, 0, "%s refuses the stored login (%.200s); docker login %s",
			       s->name, why.text, s->name);
	return err_set(e, 0, "%s wants a login (%.200s); docker login %s", s->name, why.text,
		       s->name);
}

static int ask_for_token(struct registry *r, struct source *s, const struct url *realm, char *query,
			 enum registry_cause *cause, struct err *e)
{
	_cleanup_secret_ char *basic = NULL, *authorization = NULL, *form = NULL;
	_cleanup_free_ char *text = NULL;
	_cleanup_(request_done) struct request q = {.r = r};
	struct memory m = {0};
	int result;

	*cause = REGISTRY_INTERNAL;
	if (s->login.identity_token)
		form = refresh_form(s, query);
	else if (asprintf(&text, "%s%s%s", realm->text, strchr(realm->text, '?') ? "&" : "?",
			  query) < 0)
		text = NULL;
	if (!form && !text)
		return err_set(e, ENOMEM, "log in");
	if (url_read(form ? realm->text : text, NULL, &q.url, e) < 0)
		return -1;
	if (!form && s->login.user) {
		basic = basic_value(&s->login);
		if (!basic || asprintf(&authorization, "Basic %s", basic) < 0) {
			authorization = NULL;
			return err_set(e, ENOMEM, "log in");
		}
	}
	q.spec = (struct transfer){
		.accept = "application/json",
		.authorization = authorization,
		.form = form,
		.insecure = s->insecure,
		.trusted_origin = &s->base,
		.ca_file = s->ca_file,
		.first_reach = s->reach < REACH_LOCAL ? s->reach : REACH_LOCAL,
		.size = TRANSFER_SIZE_UNKNOWN,
		.max = TOKEN_ANSWER_MAX,
		.body = memory_take,
		.restart = memory_restart,
		.context = &m,
	};
	result = request_run(&q, e);
	*cause = q.cause;
	result = result < 0 ? token_refused(s, cause, e) : read_token(s, &m, cause, e);
	if (m.data)
		explicit_bzero(m.data, m.room);
	free(m.data);
	return result;
}

static int use_bearer(struct registry *r, struct source *s, const struct challenge *c,
		      enum registry_cause *cause, struct err *e)
{
	_cleanup_url_ struct url realm = {0};
	_cleanup_free_ char *query = NULL;

	*cause = REGISTRY_INTERNAL;
	if (s->login.registry_token)
		return set_authorization(s, "Bearer", s->login.registry_token, e);
	*cause = REGISTRY_FORBIDDEN;
	if (url_read(c->realm, NULL, &realm, e) < 0)
		return err_prefix(e, "%s: where to log in (the realm of its challenge)", s->name);
	if (check_realm(s, &realm, e) < 0)
		return -1;
	*cause = REGISTRY_INTERNAL;
	query = token_query(s, c);
	if (!query)
		return err_set(e, ENOMEM, "log in");
	return ask_for_token(r, s, &realm, query, cause, e);
}

int source_log_in(struct registry *r, struct source *s, const struct answer *answer,
		  enum registry_cause *ret_cause, struct err *e)
{
	struct challenge c = {0};

	*ret_cause = REGISTRY_BAD_ANSWER;
	if (challenge_read(answer->challenge, &c) < 0)
		return err_set(e, 0, "%s: its WWW-Authenticate is malformed", s->name);
	if (load_login(r, s, ret_cause, e) < 0)
		return -1;
	if (c.scheme == CHALLENGE_BEARER)
		return use_bearer(r, s, &c, ret_cause, e);
	if (c.scheme == CHALLENGE_BASIC)
		return use_basic(s, ret_cause, e);
	*ret_cause = REGISTRY_UNAUTHORISED;
	return err_set(e, 0,
		       "%s wants a login of a kind that is not supported (Basic and Bearer are)",
		       s->name);
}
