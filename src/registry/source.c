/* SPDX-License-Identifier: Apache-2.0 */
/*
 * source.c - who can be asked for an image: the mirrors of its registry, then the registry.
 *
 * What the configuration names is trusted as far as its place is concerned: a mirror may be on this machine. What
 * only a reference names is not.
 */
#include "registry/inside.h"

#include <stdio.h>
#include <string.h>

/* Docker Hub's names are one thing, the machine that answers is another. */
#define HUB_HOST "registry-1.docker.io"

static const struct registry_site *find_site(const struct registry *r, const char *name)
{
	for (size_t i = 0; i < r->config.site_count; i++)
		if (strcmp(r->config.sites[i].name, name) == 0)
			return &r->config.sites[i];
	return NULL;
}

static int set_base(struct source *s, bool tls, const char *host, struct err *e)
{
	_cleanup_free_ char *text = NULL;

	if (asprintf(&text, "%s://%s/", tls ? "https" : "http", host) < 0) {
		text = NULL;
		return err_set(e, ENOMEM, "prepare a registry");
	}
	return url_read(text, NULL, &s->base, e);
}

static int set_repository(struct source *s, const char *prefix, const char *repository,
			  struct err *e)
{
	size_t n = strlen(prefix);

	while (n > 0 && prefix[n - 1] == '/')
		n--;
	if (asprintf(&s->repository, "%.*s%s%s", (int)n, prefix, n ? "/" : "", repository) < 0) {
		s->repository = NULL;
		return err_set(e, ENOMEM, "prepare a registry");
	}
	return 0;
}

static void apply_site(struct source *s, const struct registry_site *site)
{
	if (!site)
		return;
	s->insecure = site->insecure;
	s->ca_file = site->ca_file;
	s->configured = s->login_allowed = true;
	s->may_be_plain |= site->insecure;
	s->first_reach = REACH_NEVER;
}

/* The registry itself. */
static int make_registry(struct registry *r, struct source *s, struct err *e)
{
	const char *name = r->reference.registry;
	bool hub = strcmp(name, REFERENCE_HUB) == 0;

	s->name = strdup(name);
	if (!s->name)
		return err_set(e, ENOMEM, "prepare a registry");
	if (set_base(s, true, hub ? HUB_HOST : name, e) < 0 ||
	    set_repository(s, "", r->reference.repository, e) < 0)
		return -1;
	s->port_given = strrchr(name, ':') && !strchr(strrchr(name, ':'), ']');
	s->login_allowed = hub || !r->options.untrusted_reference;
	s->first_reach = REACH_PUBLIC;
	if (!r->options.untrusted_reference && !hub)
		s->first_reach =
			reach_of_host(s->base.host) == REACH_LOCAL ? REACH_LOCAL : REACH_PRIVATE;
	/* As Docker has it: who speaks to itself needs no certificate. */
	s->may_be_plain = reach_of_host(s->base.host) == REACH_LOCAL;
	apply_site(s, find_site(r, name));
	return 0;
}

/* "https://harbor.lan/hub": the path stands before the repository's name. */
static int make_mirror(struct registry *r, struct source *s, const char *text, struct err *e)
{
	_cleanup_url_ struct url u = {0};
	const char *host, *path;
	size_t n;

	if (url_read(text, NULL, &u, e) < 0)
		return err_prefix(e, "mirror of %s", r->reference.registry);
	host = strstr(u.text, "://") + 3;
	n = strcspn(host, "/?#");
	path = host + n;
	s->name = strndup(host, n);
	if (!s->name)
		return err_set(e, ENOMEM, "prepare a registry");
	s->may_be_plain = false;
	s->port_given = true; /* the URL says it all */
	s->configured = s->login_allowed = true;
	s->first_reach = REACH_NEVER;
	if (set_base(s, u.tls, s->name, e) < 0 ||
	    set_repository(s, path + (*path == '/'), r->reference.repository, e) < 0)
		return -1;
	apply_site(s, find_site(r, s->name));
	s->may_be_plain = false;
	return 0;
}

int sources_make(struct registry *r, struct err *e)
{
	const struct registry_site *site = find_site(r, r->reference.registry);
	size_t mirrors = site ? site->mirror_count : 0;

	r->sources = calloc(mirrors + 1, sizeof *r->sources);
	if (!r->sources)
		return err_set(e, ENOMEM, "prepare a registry");
	for (size_t i = 0; i < mirrors; i++) {
		r->source_count++;
		if (make_mirror(r, &r->sources[i], site->mirrors[i], e) < 0)
			return -1;
	}
	if (site && site->only_mirrors && mirrors > 0)
		return 0;
	r->source_count++;
	return make_registry(r, &r->sources[mirrors], e);
}

void sources_free(struct registry *r)
{
	for (size_t i = 0; i < r->source_count; i++) {
		struct source *s = &r->sources[i];

		secret_free(&s->authorization);
		credentials_done(&s->login);
		url_done(&s->base);
		free(s->repository);
		free(s->name);
	}
	free(r->sources);
	r->sources = NULL;
	r->source_count = 0;
}
