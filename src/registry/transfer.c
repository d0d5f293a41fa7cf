/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transfer.c - libcurl, told to do little: one hop, HTTP/1.1, no decoding, no cookies, no netrc. What it calls
 * back is checked at the first moment it can be: an address before a socket is made for it, and again before a
 * request goes out on a connection that was there; headers line by line; a body when its first byte comes.
 *
 * A check that fails inside a callback fills t->cause and t->err and makes libcurl give up; its own error code is
 * then of no interest.
 */
#include "registry/transfer.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/units.h"
#include "registry/proxy.h"
#include "registry/transfer_inside.h"

int transfer_fail(struct transfer *t, enum registry_cause cause)
{
	t->cause = cause;
	return -1;
}

/* ---- where a connection may go */

static bool may_go(struct transfer *t, const struct sockaddr *address)
{
	enum reach reach = reach_of(address);

	if (t->proxied || reach <= t->limit)
		return true;
	err_set(&t->err, 0, "%s is %s, %s", t->url.host, reach_name(reach),
		t->hops > 0 ? "and nobody outside may lead there"
			    : "which has to be named in the configuration (registries) to be used");
	transfer_fail(t, REGISTRY_FORBIDDEN);
	return false;
}

static curl_socket_t open_socket(void *context, curlsocktype purpose, struct curl_sockaddr *address)
{
	struct transfer *t = context;

	(void)purpose;
	if (!may_go(t, &address->addr))
		return CURL_SOCKET_BAD;
	return socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

static bool read_address(const char *text, struct sockaddr_storage *ret)
{
	struct sockaddr_in6 *six = (struct sockaddr_in6 *)ret;
	struct sockaddr_in *four = (struct sockaddr_in *)ret;

	*ret = (struct sockaddr_storage){0};
	if (inet_pton(AF_INET, text, &four->sin_addr) == 1)
		ret->ss_family = AF_INET;
	else if (inet_pton(AF_INET6, text, &six->sin6_addr) == 1)
		ret->ss_family = AF_INET6;
	return ret->ss_family != 0;
}

/* Also for a connection that another transfer, with other rights, had opened. */
static int before_request(void *context, char *peer, char *self, int peer_port, int self_port)
{
	struct transfer *t = context;
	struct sockaddr_storage address;

	(void)self, (void)peer_port, (void)self_port;
	if (!read_address(peer, &address)) {
		err_set(&t->err, 0, "%s: an address of an unknown kind", t->url.host);
		transfer_fail(t, REGISTRY_FORBIDDEN);
		return CURL_PREREQFUNC_ABORT;
	}
	if (!may_go(t, (struct sockaddr *)&address))
		return CURL_PREREQFUNC_ABORT;
	t->cause = REGISTRY_NONE; /* another address of the same name may have been refused */
	if (t->hops == 0)
		t->answer.reach = t->proxied ? reach_of_host(t->url.host)
					     : reach_of((struct sockaddr *)&address);
	return CURL_PREREQFUNC_OK;
}

/* ---- one hop */

static int add_header(struct transfer *t, const char *name, const char *value)
{
	_cleanup_free_ char *line = NULL;
	struct curl_slist *more;
	int n = asprintf(&line, "%s: %s", name, value);

	if (n < 0) {
		line = NULL;
		return -ENOMEM;
	}
	more = curl_slist_append(t->headers, line);
	explicit_bzero(line, (size_t)n);
	if (!more)
		return -ENOMEM;
	t->headers = more;
	return 0;
}

static void drop_headers(struct transfer *t)
{
	for (struct curl_slist *h = t->headers; h; h = h->next)
		explicit_bzero(h->data, strlen(h->data));
	curl_slist_free_all(t->headers);
	t->headers = NULL;
}

static int make_headers(struct transfer *t)
{
	drop_headers(t);
	if (t->accept && add_header(t, "Accept", t->accept) < 0)
		return -ENOMEM;
	if (t->authorization && t->hops == 0 &&
	    add_header(t, "Authorization", t->authorization) < 0)
		return -ENOMEM;
	return 0;
}

/* curl_easy_setopt() of a text fails only without memory. */
static bool set_texts(struct transfer *t, const char *proxy)
{
	char range[32];

	snprintf(range, sizeof range, "%llu-", (unsigned long long)t->offset);
	return curl_easy_setopt(t->easy, CURLOPT_URL, t->url.text) == CURLE_OK &&
	       curl_easy_setopt(t->easy, CURLOPT_PROXY, proxy ? proxy : "") == CURLE_OK &&
	       curl_easy_setopt(t->easy, CURLOPT_NOPROXY, "") == CURLE_OK &&
	       curl_easy_setopt(t->easy, CURLOPT_USERAGENT, "cloche/" CLOCHE_VERSION) == CURLE_OK &&
	       curl_easy_setopt(t->easy, CURLOPT_PROTOCOLS_STR, "http,https") == CURLE_OK &&
	       curl_easy_setopt(t->easy, CURLOPT_RANGE, t->offset ? range : NULL) == CURLE_OK &&
	       (!t->ca_file || curl_easy_setopt(t->easy, CURLOPT_CAINFO, t->ca_file) == CURLE_OK) &&
	       (!t->ca_file ||
		curl_easy_setopt(t->easy, CURLOPT_CAPATH, "/etc/ssl/certs") == CURLE_OK);
}

static void set_options(struct transfer *t)
{
	bool blind = t->insecure && url_same_origin(&t->url, t->trusted_origin);
	CURL *c = t->easy;

	curl_easy_setopt(c, CURLOPT_PRIVATE, t);
	curl_easy_setopt(c, CURLOPT_ERRORBUFFER, t->curl_error);
	curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
	/* Do not wait for a thread that waits for a silent name server: 20 s more than the time for it. */
	curl_easy_setopt(c, CURLOPT_QUICK_EXIT, 1L);
	curl_easy_setopt(c, CURLOPT_NOPROGRESS, 1L);
	curl_easy_setopt(c, CURLOPT_FOLLOWLOCATION, 0L);
	curl_easy_setopt(c, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	curl_easy_setopt(c, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
	curl_easy_setopt(c, CURLOPT_HEADEROPT, (long)CURLHEADER_SEPARATE);
	curl_easy_setopt(c, CURLOPT_SSL_VERIFYPEER, blind ? 0L : 1L);
	curl_easy_setopt(c, CURLOPT_SSL_VERIFYHOST, blind ? 0L : 2L);
	curl_easy_setopt(c, CURLOPT_BUFFERSIZE, 256L << 10);
	curl_easy_setopt(c, CURLOPT_LOW_SPEED_LIMIT, 256L);
	curl_easy_setopt(c, CURLOPT_LOW_SPEED_TIME,
			 (long)((t->engine->stall_us + 999999) / 1000000));
	curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT_MS, (long)(t->engine->connect_us / 1000));
	curl_easy_setopt(c, CURLOPT_OPENSOCKETFUNCTION, open_socket);
	curl_easy_setopt(c, CURLOPT_OPENSOCKETDATA, t);
	curl_easy_setopt(c, CURLOPT_PREREQFUNCTION, before_request);
	curl_easy_setopt(c, CURLOPT_PREREQDATA, t);
	curl_easy_setopt(c, CURLOPT_HEADERFUNCTION, transfer_take_header);
	curl_easy_setopt(c, CURLOPT_HEADERDATA, t);
	curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, transfer_take_body);
	curl_easy_setopt(c, CURLOPT_WRITEDATA, t);
	curl_easy_setopt(c, CURLOPT_HTTPHEADER, t->headers);
	curl_easy_setopt(c, CURLOPT_NOBODY, t->head ? 1L : 0L);
	if (t->form) {
		curl_easy_setopt(c, CURLOPT_POST, 1L);
		curl_easy_setopt(c, CURLOPT_POSTFIELDSIZE, (long)strlen(t->form));
		curl_easy_setopt(c, CURLOPT_POSTFIELDS, t->form);
	} else if (!t->head) {
		curl_easy_setopt(c, CURLOPT_HTTPGET, 1L);
	}
}

static void forget_answer(struct transfer *t)
{
	enum reach reach = t->answer.reach;

	url_done(&t->answer.at);
	t->answer = (struct answer){.reach = reach};
	free(t->location);
	t->location = NULL;
	t->content_range[0] = t->encoding[0] = t->curl_error[0] = '\0';
	t->header_bytes = t->ignored = 0;
	t->judged = t->has_length = false;
}

/* Send the request to t->url. */
static int send_hop(struct transfer *t)
{
	const char *proxy = proxy_for(&t->url);
	enum reach named = reach_of_host(t->url.host);

	forget_answer(t);
	t->proxied = proxy != NULL;
	/* Libcurl would find out at the socket, unless there is a proxy. */
	if (named > t->limit) {
		err_set(&t->err, 0, "%s is %s, %s", t->url.host, reach_name(named),
			t->hops > 0
				? "and nobody outside may lead there"
				: "which has to be named in the configuration (registries) to be used");
		return transfer_fail(t, REGISTRY_FORBIDDEN);
	}
	curl_easy_reset(t->easy);
	if (make_headers(t) < 0 || !set_texts(t, proxy)) {
		err_set(&t->err, ENOMEM, "prepare a request");
		return transfer_fail(t, REGISTRY_INTERNAL);
	}
	set_options(t);
	if (curl_multi_add_handle(t->engine->multi, t->easy) != CURLM_OK) {
		err_set(&t->err, 0, "libcurl cannot take a request");
		return transfer_fail(t, REGISTRY_INTERNAL);
	}
	return 0;
}

int transfer_start(struct engine *engine, struct transfer *t, const struct url *url, struct err *e)
{
	t->engine = engine;
	t->finished = false;
	t->limit = t->first_reach;
	t->easy = curl_easy_init();
	if (!t->easy || url_copy(url, &t->url) < 0) {
		t->finished = true;
		t->cause = REGISTRY_INTERNAL;
		err_set(&t->err, ENOMEM, "prepare a request");
		*e = t->err;
		return -1;
	}
	if (send_hop(t) < 0) {
		t->finished = true;
		*e = t->err;
		return -1;
	}
	return 0;
}

void transfer_done(struct transfer *t)
{
	if (t->easy) {
		curl_multi_remove_handle(t->engine->multi, t->easy);
		curl_easy_cleanup(t->easy);
	}
	drop_headers(t);
	url_done(&t->url);
	url_done(&t->answer.at);
	free(t->location);
	*t = (struct transfer){0};
}

/* ---- what became of it */

static bool is_redirect(long status)
{
	return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

/* Follow, if we may. 0: on the way. */
static int follow(struct transfer *t)
{
	_cleanup_url_ struct url next = {0};
	char from[URL_SHOWN], to[URL_SHOWN];

	url_show(&t->url, from);
	if (!t->location || t->hops >= t->redirects) {
		err_set(&t->err, 0,
			t->location ? "%s: more than %d redirects" : "%s: a redirect to nowhere",
			from, t->redirects);
		return transfer_fail(t, REGISTRY_FORBIDDEN);
	}
	if (url_read(t->location, &t->url, &next, &t->err) < 0) {
		err_prefix(&t->err, "%s redirects", from);
		return transfer_fail(t, REGISTRY_FORBIDDEN);
	}
	if (t->url.tls && !next.tls) {
		err_set(&t->err, 0, "%s redirects to %s, from https to plain http", from,
			url_show(&next, to));
		return transfer_fail(t, REGISTRY_FORBIDDEN);
	}
	if (t->hops == 0)
		t->limit = t->answer.reach < REACH_LOCAL ? t->answer.reach : REACH_LOCAL;
	t->hops++;
	url_done(&t->url);
	t->url = next;
	next = (struct url){0};
	if (send_hop(t) == 0)
		return 0;
	err_prefix(&t->err, "%s redirects", from);
	return -1;
}

static void finish(struct transfer *t)
{
	t->finished = true;
	if (url_copy(&t->url, &t->answer.at) < 0 && t->cause == REGISTRY_NONE) {
		err_set(&t->err, ENOMEM, "keep an answer");
		t->cause = REGISTRY_INTERNAL;
	}
}

static void take_result(struct transfer *t, CURLcode code)
{
	curl_off_t again = 0;
	bool redirect;

	curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &t->answer.status);
	if (curl_easy_getinfo(t->easy, CURLINFO_RETRY_AFTER, &again) == CURLE_OK && again > 0)
		t->answer.retry_after_s = (uint64_t)again;
	redirect = is_redirect(t->answer.status);
	curl_multi_remove_handle(t->engine->multi, t->easy);
	if (t->cause == REGISTRY_NONE && !(t->ignored > TRANSFER_IGNORED_MAX) && code != CURLE_OK)
		transfer_explain(t, code);
	if (t->cause == REGISTRY_NONE && !redirect)
		transfer_judge_end(t);
	if (t->cause == REGISTRY_NONE && redirect && follow(t) == 0)
		return;
	if (t->cause == REGISTRY_FORBIDDEN && t->hops > 0 && t->answer.status == 0)
		err_prefix(&t->err, "a redirect");
	finish(t);
}

/* ---- the loop */

int engine_open(struct engine *engine, const struct registry_options *options, struct err *e)
{
	*engine = (struct engine){
		.cancel_fd = options->cancel_fd,
		.stall_us = options->stall_us ? options->stall_us : 30000000,
		.connect_us = options->connect_us ? options->connect_us : 15000000,
		.deadline_us = options->deadline_us ? now_us() + options->deadline_us : 0,
	};
	if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
		return err_set(e, 0, "libcurl cannot be used");
	engine->multi = curl_multi_init();
	if (!engine->multi) {
		curl_global_cleanup();
		return err_set(e, ENOMEM, "libcurl");
	}
	return 0;
}

void engine_close(struct engine *engine)
{
	if (engine->multi) {
		curl_multi_cleanup(engine->multi);
		curl_global_cleanup();
	}
	engine->multi = NULL;
}

static void collect(struct engine *engine)
{
	CURLMsg *message;
	int left;

	while ((message = curl_multi_info_read(engine->multi, &left))) {
		struct transfer *t = NULL;

		if (message->msg != CURLMSG_DONE)
			continue;
		curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &t);
		take_result(t, message->data.result);
	}
}

static int give_up(struct engine *engine, enum registry_cause cause)
{
	engine->cause = cause;
	return -1;
}

int engine_step(struct engine *engine, uint64_t until, struct err *e)
{
	struct curl_waitfd cancel = {engine->cancel_fd, CURL_WAIT_POLLIN, 0};
	uint64_t now = now_us(), wait_us = 1000000;
	int running;

	if (engine->deadline_us && now >= engine->deadline_us) {
		err_set(e, 0, "not finished within the time for it");
		return give_up(engine, REGISTRY_DEADLINE);
	}
	/* libcurl shortens the wait by its own timers; the second is for a caller's progress. */
	if (until)
		wait_us = until <= now ? 0 : until - now < wait_us ? until - now : wait_us;
	if (engine->deadline_us && engine->deadline_us - now < wait_us)
		wait_us = engine->deadline_us - now;
	if (curl_multi_poll(engine->multi, &cancel, engine->cancel_fd >= 0 ? 1 : 0,
			    (int)((wait_us + 999) / 1000), NULL) != CURLM_OK) {
		err_set(e, 0, "libcurl cannot wait");
		return give_up(engine, REGISTRY_INTERNAL);
	}
	if (engine->cancel_fd >= 0 && (cancel.revents & CURL_WAIT_POLLIN)) {
		err_set(e, 0, "cancelled");
		return give_up(engine, REGISTRY_CANCELLED);
	}
	if (curl_multi_perform(engine->multi, &running) != CURLM_OK) {
		err_set(e, 0, "libcurl cannot go on");
		return give_up(engine, REGISTRY_INTERNAL);
	}
	collect(engine);
	return 0;
}
