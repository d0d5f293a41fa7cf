/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transfer_answer.c - what comes back: header lines, bodies, and libcurl's reasons.
 *
 * A body is handed on only after everything the headers say about it was checked, and never more of it than
 * was announced by whoever asked (t->size) or is allowed (t->max). The body of anything but a success is a
 * message for people: its beginning is kept.
 */
#include "registry/transfer_inside.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/units.h"

/* ---- headers */

static void keep_lower(const char *value, size_t n, const char *ends, char *ret, size_t size)
{
	size_t i = 0;

	for (; i < n && i + 1 < size && !strchr(ends, value[i]); i++)
		ret[i] = value[i] >= 'A' && value[i] <= 'Z' ? (char)(value[i] - 'A' + 'a')
							    : value[i];
	ret[i] = '\0';
}

static int take_content_type(struct transfer *t, const char *value, size_t n)
{
	keep_lower(value, n, "; \t", t->answer.content_type, sizeof t->answer.content_type);
	return 0;
}

static int take_length(struct transfer *t, const char *value, size_t n)
{
	char digits[24];

	keep_lower(value, n, "", digits, sizeof digits);
	if (n >= sizeof digits || parse_count(digits, 0, UINT64_MAX, &t->length) < 0)
		return -EINVAL;
	t->has_length = true;
	return 0;
}

static int take_location(struct transfer *t, const char *value, size_t n)
{
	if (n > URL_MAX || t->location)
		return -EINVAL;
	t->location = strndup(value, n);
	return t->location ? 0 : -ENOMEM;
}

static int take_challenge(struct transfer *t, const char *value, size_t n)
{
	char *all = t->answer.challenge;
	size_t used = strlen(all);

	if (used + n + 3 > sizeof t->answer.challenge)
		return -EINVAL;
	if (used)
		all[used++] = ',';
	memcpy(all + used, value, n);
	all[used + n] = '\0';
	return 0;
}

static int take_digest(struct transfer *t, const char *value, size_t n)
{
	char text[DIGEST_TEXT + 1];

	keep_lower(value, n, "", text, sizeof text);
	if (n == DIGEST_TEXT && digest_is_valid(text))
		memcpy(t->answer.digest, text, sizeof text);
	return 0;
}

static int take_version(struct transfer *t, const char *value, size_t n)
{
	t->answer.is_registry = n >= 10 && strncasecmp(value, "registry/2", 10) == 0;
	return 0;
}

static int take_range(struct transfer *t, const char *value, size_t n)
{
	keep_lower(value, n, "", t->content_range, sizeof t->content_range);
	return 0;
}

static int take_encoding(struct transfer *t, const char *value, size_t n)
{
	keep_lower(value, n, "", t->encoding, sizeof t->encoding);
	return 0;
}

static const struct {
	const char *name;
	int (*take)(struct transfer *t, const char *value, size_t n);
} headers[] = {
	{"Content-Type", take_content_type},
	{"Content-Length", take_length},
	{"Location", take_location},
	{"WWW-Authenticate", take_challenge},
	{"Docker-Content-Digest", take_digest},
	{"Docker-Distribution-Api-Version", take_version},
	{"Content-Range", take_range},
	{"Content-Encoding", take_encoding},
};

/* An interim answer's headers count for nothing. */
static void begin_answer(struct transfer *t)
{
	free(t->location);
	t->location = NULL;
	t->answer.challenge[0] = t->answer.content_type[0] = t->answer.digest[0] = '\0';
	t->content_range[0] = t->encoding[0] = '\0';
	t->answer.is_registry = t->has_length = false;
}

/* NULL, or the name of the header that is malformed. */
static const char *take_line(struct transfer *t, const char *line, size_t n)
{
	const char *colon = memchr(line, ':', n), *value, *end = line + n;

	while (end > line && (end[-1] == '\r' || end[-1] == '\n' || end[-1] == ' '))
		end--;
	if (!colon || colon >= end)
		return NULL;
	for (value = colon + 1; value < end && (*value == ' ' || *value == '\t');)
		value++;
	for (size_t i = 0; i < ARRAY_SIZE(headers); i++) {
		size_t name = strlen(headers[i].name);

		if (name != (size_t)(colon - line) || strncasecmp(line, headers[i].name, name) != 0)
			continue;
		if (memchr(value, '\0', (size_t)(end - value)) ||
		    headers[i].take(t, value, (size_t)(end - value)) < 0)
			return headers[i].name;
	}
	return NULL;
}

size_t transfer_take_header(char *data, size_t size, size_t count, void *context)
{
	struct transfer *t = context;
	char room[URL_SHOWN];
	const char *name;
	size_t n = size * count;

	t->header_bytes += n;
	if (t->header_bytes > TRANSFER_HEADERS_MAX) {
		err_set(&t->err, 0, "%s sends more than %d bytes of headers",
			url_show(&t->url, room), TRANSFER_HEADERS_MAX);
		transfer_fail(t, REGISTRY_TOO_LARGE);
		return 0;
	}
	if (t->judged) /* what stands behind a chunked body changes nothing */
		return n;
	if (n >= 5 && memcmp(data, "HTTP/", 5) == 0) {
		begin_answer(t);
		return n;
	}
	name = take_line(t, data, n);
	if (!name)
		return n;
	err_set(&t->err, 0, "%s sends a malformed header %s", url_show(&t->url, room), name);
	transfer_fail(t, REGISTRY_BAD_ANSWER);
	return 0;
}

/* ---- bodies */

static bool is_success(const struct transfer *t)
{
	return t->answer.status == 200 || t->answer.status == 206;
}

static int bad(struct transfer *t, const char *what)
{
	char room[URL_SHOWN];

	err_set(&t->err, 0, "%s %s", url_show(&t->url, room), what);
	return transfer_fail(t, REGISTRY_BAD_ANSWER);
}

/* "bytes 100-199/200", for what is behind the 100 that are here. */
static bool range_fits(const struct transfer *t)
{
	const char *p = t->content_range;
	char *end;
	unsigned long long first, last;

	if (strncmp(p, "bytes ", 6) != 0)
		return false;
	first = strtoull(p + 6, &end, 10);
	if (*end != '-' || first != t->offset)
		return false;
	last = strtoull(end + 1, &end, 10);
	return *end == '/' && last >= first && last != ULLONG_MAX &&
	       (t->size == TRANSFER_SIZE_UNKNOWN || last + 1 == t->size);
}

/* All headers are there. */
static int judge_begin(struct transfer *t)
{
	char what[96];

	t->judged = true;
	if (*t->encoding && strcmp(t->encoding, "identity") != 0)
		return bad(t, "sends it packed once more (Content-Encoding), which nobody asked "
			      "for");
	if (t->answer.status == 206 && (t->offset == 0 || !range_fits(t)))
		return bad(t, "sends another part than was asked for");
	if (t->answer.status == 200 && t->offset > 0) {
		t->offset = 0;
		if (t->restart && t->restart(t->context, &t->err) < 0)
			return transfer_fail(t, REGISTRY_SINK);
	}
	if (t->has_length && t->size != TRANSFER_SIZE_UNKNOWN && t->length != t->size - t->offset) {
		snprintf(what, sizeof what, "says it has %llu bytes where the manifest says %llu",
			 (unsigned long long)t->length, (unsigned long long)(t->size - t->offset));
		return bad(t, what);
	}
	if (t->has_length && t->size == TRANSFER_SIZE_UNKNOWN && t->length > t->max) {
		snprintf(what, sizeof what, "wants to send %llu bytes, at most %llu are taken",
			 (unsigned long long)t->length, (unsigned long long)t->max);
		bad(t, what);
		return transfer_fail(t, REGISTRY_TOO_LARGE);
	}
	return 0;
}

/* Of no success: the beginning is kept, a little more is read, then it is left. */
static size_t take_message(struct transfer *t, const char *data, size_t n)
{
	struct answer *a = &t->answer;
	size_t room = TRANSFER_MESSAGE_MAX - a->message_size, keep = n < room ? n : room;

	memcpy(a->message + a->message_size, data, keep);
	a->message_size += keep;
	a->message[a->message_size] = '\0';
	t->ignored += n;
	return t->ignored > TRANSFER_IGNORED_MAX ? 0 : n;
}

static int check_amount(struct transfer *t, size_t n)
{
	char what[96];

	if (t->size != TRANSFER_SIZE_UNKNOWN) {
		if (n <= t->size - t->offset - t->received)
			return 0;
		snprintf(what, sizeof what, "sends more than the %llu bytes that the manifest says",
			 (unsigned long long)t->size);
		return bad(t, what);
	}
	if (n <= t->max - t->received)
		return 0;
	snprintf(what, sizeof what, "sends more than %llu bytes", (unsigned long long)t->max);
	bad(t, what);
	return transfer_fail(t, REGISTRY_TOO_LARGE);
}

size_t transfer_take_body(char *data, size_t size, size_t count, void *context)
{
	struct transfer *t = context;
	size_t n = size * count;

	curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &t->answer.status);
	if (!is_success(t))
		return take_message(t, data, n);
	if (!t->judged && judge_begin(t) < 0)
		return 0;
	if (check_amount(t, n) < 0)
		return 0;
	if (t->body(t->context, data, n, &t->err) < 0) {
		transfer_fail(t, REGISTRY_SINK);
		return 0;
	}
	t->received += n;
	return n;
}

void transfer_judge_end(struct transfer *t)
{
	char room[URL_SHOWN];

	if (t->head || !is_success(t) || (!t->judged && judge_begin(t) < 0))
		return;
	if (t->size == TRANSFER_SIZE_UNKNOWN || t->received == t->size - t->offset)
		return;
	err_set(&t->err, 0, "%s ended after %llu of %llu bytes", url_show(&t->url, room),
		(unsigned long long)(t->offset + t->received), (unsigned long long)t->size);
	transfer_fail(t, REGISTRY_CUT);
}

/* ---- libcurl's reasons */

static const struct {
	CURLcode code;
	enum registry_cause cause;
	const char *text; /* what the object did, and what to do */
} reasons[] = {
	{CURLE_COULDNT_RESOLVE_HOST, REGISTRY_UNREACHABLE,
	 "its name has no address; check the name, the network and DNS"},
	{CURLE_COULDNT_RESOLVE_PROXY, REGISTRY_UNREACHABLE,
	 "the proxy's name has no address; check HTTPS_PROXY and HTTP_PROXY"},
	{CURLE_COULDNT_CONNECT, REGISTRY_UNREACHABLE,
	 "no connection; is it up, and reachable from here?"},
	{CURLE_PROXY, REGISTRY_UNREACHABLE, "the proxy refuses; check HTTPS_PROXY and HTTP_PROXY"},
	{CURLE_SSL_CONNECT_ERROR, REGISTRY_TLS,
	 "does not speak TLS with us; if it is a registry without TLS, say insecure: true for it "
	 "in the configuration"},
	{CURLE_PEER_FAILED_VERIFICATION, REGISTRY_TLS,
	 "its certificate is not trusted; name the CA's file as ca_file for it in the "
	 "configuration"},
	{CURLE_SSL_CACERT_BADFILE, REGISTRY_TLS, "the CA's file (ca_file) cannot be read"},
	{CURLE_SSL_CERTPROBLEM, REGISTRY_TLS,
	 "wants a certificate of ours, which is not supported"},
	{CURLE_RECV_ERROR, REGISTRY_CUT, "the connection broke off"},
	{CURLE_SEND_ERROR, REGISTRY_CUT, "the connection broke off"},
	{CURLE_GOT_NOTHING, REGISTRY_CUT, "closed the connection without an answer"},
	{CURLE_PARTIAL_FILE, REGISTRY_CUT, "the connection broke off before the end"},
	{CURLE_WEIRD_SERVER_REPLY, REGISTRY_NOT_A_REGISTRY, "does not speak proper HTTP"},
	{CURLE_UNSUPPORTED_PROTOCOL, REGISTRY_NOT_A_REGISTRY, "does not speak HTTP/1.1"},
	{CURLE_BAD_CONTENT_ENCODING, REGISTRY_BAD_ANSWER, "its answer cannot be decoded"},
	{CURLE_FILESIZE_EXCEEDED, REGISTRY_BAD_ANSWER, "announces a length that nothing can have"},
	{CURLE_OUT_OF_MEMORY, REGISTRY_INTERNAL, "out of memory"},
};

/* Before or after there was a connection to talk on? */
static void explain_timeout(struct transfer *t, const char *where)
{
	curl_off_t ready = 0;

	curl_easy_getinfo(t->easy, CURLINFO_PRETRANSFER_TIME_T, &ready);
	if (ready > 0) {
		err_set(&t->err, 0, "%s stopped sending (nothing for %llu s)", where,
			(unsigned long long)(t->engine->stall_us + 999999) / 1000000);
		transfer_fail(t, REGISTRY_STALLED);
		return;
	}
	err_set(&t->err, 0, "%s: no connection within %llu s; is it up, and reachable from here?",
		where, (unsigned long long)(t->engine->connect_us + 999999) / 1000000);
	transfer_fail(t, REGISTRY_UNREACHABLE);
}

void transfer_explain(struct transfer *t, CURLcode code)
{
	const char *through = t->proxied ? " (through the proxy)" : "";
	char where[URL_SHOWN + 32], room[URL_SHOWN], detail[160];

	snprintf(where, sizeof where, "%s%s", url_show(&t->url, room), through);
	if (code == CURLE_OPERATION_TIMEDOUT) {
		explain_timeout(t, where);
		return;
	}
	/* Libcurl's word for a header line above its own limit; we were the ones who asked for the answer. */
	if (code == CURLE_OUT_OF_MEMORY && t->header_bytes > 0 && !t->judged) {
		err_set(&t->err, 0, "%s sends a header that is too long", where);
		transfer_fail(t, REGISTRY_TOO_LARGE);
		return;
	}
	t->no_tls = code == CURLE_SSL_CONNECT_ERROR && t->hops == 0;
	text_show(*t->curl_error ? t->curl_error : curl_easy_strerror(code), detail, sizeof detail);
	for (size_t i = 0; i < ARRAY_SIZE(reasons); i++)
		if (reasons[i].code == code) {
			err_set(&t->err, 0, "%s: %s (%s)", where, reasons[i].text, detail);
			transfer_fail(t, reasons[i].cause);
			return;
		}
	err_set(&t->err, 0, "%s: %s", where, detail);
	transfer_fail(t, REGISTRY_BAD_ANSWER);
}
