/* SPDX-License-Identifier: Apache-2.0 */
#include "ask/http.h"

#include <curl/curl.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/fd.h"
#include "registry/proxy.h"

struct way {
	const struct http_question *q;
	struct http_answer *a;
	struct curl_slist *fields;
	size_t header_bytes, bytes;
	uint64_t heard_us;
	bool refused;
	struct err *e;
	char detail[CURL_ERROR_SIZE];
};

static void take_type(struct http_answer *a, const char *value, size_t size)
{
	size_t n = 0;

	for (; n < size && n < sizeof a->type - 1 && !strchr("; \t\r\n", value[n]); n++)
		a->type[n] = (char)(value[n] >= 'A' && value[n] <= 'Z' ? value[n] + 32 : value[n]);
	a->type[n] = '\0';
}

/* The status is wanted before the first byte of the body. */
static void take_status(struct http_answer *a, const char *line, size_t size)
{
	const char *code = memchr(line, ' ', size);

	a->status = code ? strtol(code, NULL, 10) : 0;
	a->type[0] = '\0';
}

static size_t on_header(char *data, size_t size, size_t count, void *context)
{
	static const char type[] = "content-type:";
	struct way *w = context;
	size_t n = size * count, skip = sizeof type - 1;

	if (n > 12 && strncmp(data, "HTTP/", 5) == 0)
		take_status(w->a, data, n);

	w->heard_us = now_us();
	w->header_bytes += n;
	if (w->header_bytes > HTTP_HEADER_BYTES) {
		w->refused = true;
		err_set(w->e, 0, "the answer has more than %d bytes of headers", HTTP_HEADER_BYTES);
		return 0;
	}
	if (n <= skip || strncasecmp(data, type, skip) != 0)
		return n;
	while (skip < n && (data[skip] == ' ' || data[skip] == '\t'))
		skip++;
	take_type(w->a, data + skip, n - skip);
	return n;
}

static void keep_message(struct http_answer *a, const char *data, size_t size)
{
	size_t room = HTTP_MESSAGE_BYTES - a->message_size, n = size < room ? size : room;

	memcpy(a->message + a->message_size, data, n);
	a->message_size += n;
	a->message[a->message_size] = '\0';
}

static size_t on_body(char *data, size_t size, size_t count, void *context)
{
	struct way *w = context;
	size_t n = size * count;

	w->heard_us = now_us();
	w->bytes += n;
	if (w->bytes > HTTP_ANSWER_BYTES) {
		w->refused = true;
		err_set(w->e, 0, "the answer is longer than %d bytes", HTTP_ANSWER_BYTES);
		return 0;
	}
	if (w->a->status / 100 != 2) {
		keep_message(w->a, data, n);
		return n;
	}
	if (w->q->take(w->q->context, w->a->type, data, n, w->e) == 0)
		return n;
	w->refused = true;
	return 0;
}

static bool add_field(struct way *w, const char *field)
{
	struct curl_slist *more = curl_slist_append(w->fields, field);

	if (more)
		w->fields = more;
	return more != NULL;
}

static void drop_fields(struct way *w)
{
	for (struct curl_slist *f = w->fields; f; f = f->next)
		explicit_bzero(f->data, strlen(f->data));
	curl_slist_free_all(w->fields);
}

static bool prepare(struct way *w, CURL *c)
{
	const struct http_question *q = w->q;
	const char *proxy = proxy_for(q->url);
	bool made = add_field(w, "Content-Type: application/json") &&
		    add_field(w, "Accept: text/event-stream, application/json") &&
		    add_field(w, "Expect:");

	for (const char *const *f = q->fields; made && *f; f++)
		made = add_field(w, *f);
	if (!made || curl_easy_setopt(c, CURLOPT_URL, q->url->text) != CURLE_OK ||
	    curl_easy_setopt(c, CURLOPT_PROXY, proxy ? proxy : "") != CURLE_OK ||
	    curl_easy_setopt(c, CURLOPT_NOPROXY, "") != CURLE_OK ||
	    curl_easy_setopt(c, CURLOPT_USERAGENT, "cloche/" CLOCHE_VERSION) != CURLE_OK ||
	    curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https") != CURLE_OK)
		return false;
	curl_easy_setopt(c, CURLOPT_ERRORBUFFER, w->detail);
	curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(c, CURLOPT_QUICK_EXIT, 1L);
	curl_easy_setopt(c, CURLOPT_FOLLOWLOCATION, 0L);
	curl_easy_setopt(c, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	curl_easy_setopt(c, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
	curl_easy_setopt(c, CURLOPT_HEADEROPT, (long)CURLHEADER_SEPARATE);
	curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT_MS, (long)(q->connect_us / 1000));
	curl_easy_setopt(c, CURLOPT_HTTPHEADER, w->fields);
	curl_easy_setopt(c, CURLOPT_HEADERFUNCTION, on_header);
	curl_easy_setopt(c, CURLOPT_HEADERDATA, w);
	curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_body);
	curl_easy_setopt(c, CURLOPT_WRITEDATA, w);
	curl_easy_setopt(c, CURLOPT_POST, 1L);
	curl_easy_setopt(c, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)q->size);
	curl_easy_setopt(c, CURLOPT_POSTFIELDS, q->body);
	return true;
}

static enum http_end judge(struct way *w, CURL *c, CURLcode code)
{
	curl_off_t again = 0;

	if (w->refused)
		return HTTP_REFUSED;
	if (code != CURLE_OK) {
		err_set(w->e, 0, "%.300s", *w->detail ? w->detail : curl_easy_strerror(code));
		return w->header_bytes > 0 ? HTTP_CUT : HTTP_UNREACHABLE;
	}
	if (curl_easy_getinfo(c, CURLINFO_RETRY_AFTER, &again) == CURLE_OK && again > 0)
		w->a->retry_after_s = (uint64_t)again;
	return HTTP_DONE;
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* Wait for something to happen. HTTP_DONE: it may go on. */
static enum http_end wait(struct way *w, CURLM *multi)
{
	struct curl_waitfd cancel = {w->q->cancel_fd, CURL_WAIT_POLLIN, 0};
	uint64_t now = now_us(), until = earlier(w->heard_us + w->q->stall_us, w->q->deadline_us);

	if (now >= w->q->deadline_us) {
		err_set(w->e, 0, "the time for it is over");
		return HTTP_DEADLINE;
	}
	if (now >= until) {
		err_set(w->e, 0, "nothing came for %.6g s", (double)w->q->stall_us / 1e6);
		return HTTP_STALLED;
	}
	if (curl_multi_poll(multi, &cancel, 1, (int)((until - now) / 1000 + 1), NULL) != CURLM_OK) {
		err_set(w->e, 0, "libcurl cannot wait");
		return HTTP_INTERNAL;
	}
	if (!cancel.revents)
		return HTTP_DONE;
	err_set(w->e, 0, "interrupted");
	return HTTP_CANCELLED;
}

static enum http_end go(struct way *w, CURLM *multi, CURL *c)
{
	enum http_end end = HTTP_DONE;
	int running = 1, left;
	CURLMsg *message;

	while (end == HTTP_DONE) {
		if (curl_multi_perform(multi, &running) != CURLM_OK) {
			err_set(w->e, 0, "libcurl cannot go on");
			return HTTP_INTERNAL;
		}
		message = curl_multi_info_read(multi, &left);
		if (message && message->msg == CURLMSG_DONE)
			return judge(w, c, message->data.result);
		end = wait(w, multi);
	}
	return end;
}

enum http_end http_ask(const struct http_question *q, struct http_answer *ret, struct err *e)
{
	struct way w = {.q = q, .a = ret, .e = e, .heard_us = now_us()};
	CURLM *multi = curl_multi_init();
	CURL *c = curl_easy_init();
	enum http_end end = HTTP_INTERNAL;

	*ret = (struct http_answer){0};
	if (!multi || !c || !prepare(&w, c) || curl_multi_add_handle(multi, c) != CURLM_OK) {
		err_set(e, ENOMEM, "prepare a request");
	} else {
		end = go(&w, multi, c);
		curl_multi_remove_handle(multi, c);
	}
	curl_easy_cleanup(c);
	curl_multi_cleanup(multi);
	drop_fields(&w);
	return end;
}
