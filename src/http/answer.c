/* SPDX-License-Identifier: Apache-2.0 */
/* answer.c - status lines, fields, and the problem documents of what the HTTP layer itself refuses. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "http/connection.h"

static const char *phrase(int status)
{
	static const struct {
		int status;
		const char *text;
	} phrases[] = {
		{101, "Switching Protocols"},
		{200, "OK"},
		{201, "Created"},
		{202, "Accepted"},
		{204, "No Content"},
		{206, "Partial Content"},
		{304, "Not Modified"},
		{400, "Bad Request"},
		{401, "Unauthorized"},
		{403, "Forbidden"},
		{404, "Not Found"},
		{405, "Method Not Allowed"},
		{408, "Request Timeout"},
		{409, "Conflict"},
		{410, "Gone"},
		{412, "Precondition Failed"},
		{413, "Content Too Large"},
		{414, "URI Too Long"},
		{415, "Unsupported Media Type"},
		{416, "Range Not Satisfiable"},
		{422, "Unprocessable Content"},
		{429, "Too Many Requests"},
		{431, "Request Header Fields Too Large"},
		{500, "Internal Server Error"},
		{501, "Not Implemented"},
		{502, "Bad Gateway"},
		{503, "Service Unavailable"},
		{504, "Gateway Timeout"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(phrases); i++)
		if (phrases[i].status == status)
			return phrases[i].text;
	return "Other";
}

/* The codes of docs/api.md for what is refused before a handler sees it. */
static const struct refusal_row {
	int status;
	const char *code;
	bool retryable;
} refusals[] = {
	{400, "INVALID_REQUEST", false}, {405, "METHOD_NOT_ALLOWED", false},
	{408, "TIMED_OUT", true},        {413, "TOO_LARGE", false},
	{414, "TOO_LARGE", false},       {429, "TOO_MANY_REQUESTS", true},
	{431, "TOO_LARGE", false},       {503, "UNAVAILABLE", true},
	{500, "INTERNAL", false},
};

/* Made anew once a second. */
const char *answer_date(struct http_server *s)
{
	uint64_t now = uv_now(s->loop);
	struct tm tm;
	time_t t;

	if (s->date[0] && now - s->date_ms < 1000)
		return s->date;
	t = time(NULL);
	if (gmtime_r(&t, &tm))
		strftime(s->date, sizeof s->date, "%a, %d %b %Y %H:%M:%S GMT", &tm);
	s->date_ms = now;
	return s->date;
}

size_t answer_head(struct http_server *s, char *text, int status, const char *type,
		   enum answer_body kind, uint64_t size, bool close)
{
	size_t n = (size_t)snprintf(text, ANSWER_HEAD_MAX, "HTTP/1.1 %d %s\r\nDate: %s\r\n", status,
				    phrase(status), answer_date(s));

	if (type)
		n += (size_t)snprintf(text + n, 160, "Content-Type: %.128s\r\n", type);
	if (kind == ANSWER_SIZED)
		n += (size_t)snprintf(text + n, 64, "Content-Length: %" PRIu64 "\r\n", size);
	else if (kind == ANSWER_CHUNKED)
		n += (size_t)snprintf(text + n, 64, "Transfer-Encoding: chunked\r\n");
	if (close)
		n += (size_t)snprintf(text + n, 64, "Connection: close\r\n");
	return n;
}

static bool is_token(char c)
{
	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
	       (c && strchr("!#$%&'*+-.^_`|~", c));
}

bool answer_fields_ok(const char *fields)
{
	while (*fields) {
		size_t name = 0, line = strcspn(fields, "\r\n");

		while (is_token(fields[name]))
			name++;
		if (name == 0 || fields[name] != ':')
			return false;
		for (size_t i = name; i < line; i++)
			if (((unsigned char)fields[i] < 0x20 && fields[i] != '\t') ||
			    fields[i] == 0x7f)
				return false;
		if (fields[line] != '\r' || fields[line + 1] != '\n')
			return false;
		fields += line + 2;
	}
	return true;
}

size_t answer_refusal(struct http_server *s, char *text, size_t room, int status,
		      const char *detail, bool with_body)
{
	const struct refusal_row *row = &refusals[ARRAY_SIZE(refusals) - 1];
	char body[512];
	size_t head, size;

	for (size_t i = 0; i < ARRAY_SIZE(refusals); i++)
		if (refusals[i].status == status)
			row = &refusals[i];
	/* details are literals of ours: without anything to escape but these */
	size = (size_t)snprintf(body, sizeof body,
				"{\"type\":\"about:blank\",\"title\":\"%s\",\"status\":%d,"
				"\"detail\":\"",
				phrase(row->status), row->status);
	for (const char *p = detail; *p && size < sizeof body - 128; p++) {
		if (*p == '"' || *p == '\\')
			body[size++] = '\\';
		body[size++] = *p;
	}
	size += (size_t)snprintf(body + size, sizeof body - size,
				 "\",\"code\":\"%s\",\"retryable\":%s}", row->code,
				 row->retryable ? "true" : "false");
	head = answer_head(s, text, row->status, "application/problem+json", ANSWER_SIZED, size,
			   true);
	head += (size_t)snprintf(text + head, room - head, "%s\r\n%.*s",
				 status == 429 || status == 503 ? "Retry-After: 1\r\n"
				 : status == 405 ? "Allow: GET, HEAD, POST, PUT, PATCH, DELETE\r\n"
						 : "",
				 with_body ? (int)size : 0, body);
	return head;
}
