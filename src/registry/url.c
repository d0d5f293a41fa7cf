/* SPDX-License-Identifier: Apache-2.0 */
#include "registry/url.h"

#include <curl/curl.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

static void free_handle(CURLU **u)
{
	curl_url_cleanup(*u);
}

/* A part as our own string, so that nobody needs to know who frees it. */
static char *part(CURLU *u, CURLUPart what, unsigned flags)
{
	char *text = NULL, *ours = NULL;

	if (curl_url_get(u, what, &text, flags) == CURLUE_OK && text)
		ours = strdup(text);
	curl_free(text);
	return ours;
}

static int refuse(struct err *e, const char *text, const char *why)
{
	char room[URL_SHOWN];
	size_t n;

	text_show(text, room, sizeof room);
	n = strcspn(room, "?#");
	if (memchr(room, '@', n)) /* a login may be in it */
		return err_set(e, 0, "a URL: %s", why);
	return err_set(e, 0, "URL %.*s: %s", (int)n, room, why);
}

static int take_parts(CURLU *u, const char *text, struct url *ret, struct err *e)
{
	_cleanup_free_ char *scheme = part(u, CURLUPART_SCHEME, 0);
	_cleanup_free_ char *port = part(u, CURLUPART_PORT, CURLU_DEFAULT_PORT);
	_cleanup_url_ struct url r = {0};
	size_t n;

	if (!scheme || (strcmp(scheme, "http") != 0 && strcmp(scheme, "https") != 0))
		return refuse(e, text, "neither http nor https");
	r.tls = strcmp(scheme, "https") == 0;
	r.port = port ? (unsigned)strtoul(port, NULL, 10) : 0;
	r.host = part(u, CURLUPART_HOST, 0);
	r.text = part(u, CURLUPART_URL, 0);
	if (!r.host || !r.text)
		return refuse(e, text, "has no host");
	n = strlen(r.host);
	if (r.host[0] == '[' && r.host[n - 1] == ']') {
		memmove(r.host, r.host + 1, n - 2);
		r.host[n - 2] = '\0';
	}
	for (char *p = r.host; *p; p++)
		if (*p >= 'A' && *p <= 'Z')
			*p = (char)(*p - 'A' + 'a');
	if (r.port == 0 || r.port > 65535 || !*r.host)
		return refuse(e, text, "has no host and port that can be connected to");
	*ret = r;
	r = (struct url){0};
	return 0;
}

int url_read(const char *text, const struct url *base, struct url *ret, struct err *e)
{
	_cleanup_(free_handle) CURLU *u = curl_url();

	if (!u)
		return err_set(e, ENOMEM, "take a URL apart");
	if (strnlen(text, URL_MAX + 1) > URL_MAX)
		return refuse(e, text, "is too long");
	if (base && curl_url_set(u, CURLUPART_URL, base->text, 0) != CURLUE_OK)
		return refuse(e, base->text, "cannot be taken apart");
	if (curl_url_set(u, CURLUPART_URL, text, CURLU_NON_SUPPORT_SCHEME) != CURLUE_OK)
		return refuse(e, text, "is malformed");
	if (curl_url_set(u, CURLUPART_FRAGMENT, NULL, 0) != CURLUE_OK)
		return refuse(e, text, "is malformed");
	{
		_cleanup_free_ char *user = part(u, CURLUPART_USER, 0);
		_cleanup_free_ char *password = part(u, CURLUPART_PASSWORD, 0);

		if (user || password)
			return refuse(e, text, "holds a login");
	}
	return take_parts(u, text, ret, e);
}

int url_copy(const struct url *from, struct url *ret)
{
	struct url r = {.port = from->port, .tls = from->tls};

	r.text = strdup(from->text);
	r.host = strdup(from->host);
	if (!r.text || !r.host) {
		url_done(&r);
		return -ENOMEM;
	}
	*ret = r;
	return 0;
}

void url_done(struct url *u)
{
	free(u->text);
	free(u->host);
	*u = (struct url){0};
}

bool url_same_origin(const struct url *a, const struct url *b)
{
	return a->tls == b->tls && a->port == b->port && strcmp(a->host, b->host) == 0;
}

const char *text_show(const char *text, char *room, size_t size)
{
	size_t n = 0;

	for (; text[n] && n + 1 < size; n++)
		room[n] = text[n] >= ' ' && text[n] < 0x7f ? text[n] : '?';
	room[n] = '\0';
	return room;
}

const char *url_show(const struct url *u, char room[static URL_SHOWN])
{
	text_show(u->text, room, URL_SHOWN);
	room[strcspn(room, "?")] = '\0';
	return room;
}
