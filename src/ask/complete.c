/* SPDX-License-Identifier: Apache-2.0 */
#include "ask/complete.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "ask/http.h"
#include "ask/reading.h"
#include "base/fd.h"
#include "base/json.h"

/* 1 + 3 times; a provider that says to come back in more than a minute means later. */
enum { TRIES = 4, FIRST_PAUSE_MS = 500, RETRY_AFTER_MAX_S = 60, CONNECT_US = 15000000 };

/* ---- asking once ---- */

static char *make_body(const struct asking *q, size_t *ret_size)
{
	const struct ask_settings *s = q->s;
	const struct question question = {.model = s->model,
					  .instructions = s->instructions,
					  .temperature = s->temperature,
					  .has_temperature = s->has_temperature,
					  .max_tokens = s->max_tokens,
					  .elsewhere = s->elsewhere,
					  .messages = q->messages,
					  .tools = q->tools};
	json_t *body = s->provider->body(&question);
	char *text = body ? json_dumps(body, JSON_OUT) : NULL;

	json_decref(body);
	*ret_size = text ? strlen(text) : 0;
	return text;
}

static int make_url(const struct ask_settings *s, struct url *ret, struct err *e)
{
	const struct question question = {.model = s->model};
	_cleanup_free_ char *target = s->provider->target(&question);

	if (!target || url_copy(&s->url, ret) < 0)
		return err_set(e, ENOMEM, "prepare a request");
	free(ret->text);
	if (asprintf(&ret->text, "%s%s", s->url.text, target) < 0) {
		ret->text = NULL;
		return err_set(e, ENOMEM, "prepare a request");
	}
	return 0;
}

static enum http_end ask_once(const struct asking *q, struct answer *a, struct http_answer *ret,
			      struct err *e)
{
	const struct ask_settings *s = q->s;
	char key[KEY_BYTES + 64] = "";
	const char *fields[3] = {NULL};
	size_t count = 0, size;
	_cleanup_free_ char *body = make_body(q, &size);
	_cleanup_url_ struct url url = {0};
	struct reading r = {.provider = s->provider, .answer = a};
	const struct http_question question = {
		.url = &url,
		.fields = fields,
		.body = body,
		.size = size,
		.connect_us = CONNECT_US,
		.stall_us = (uint64_t)(s->stall_s * 1e6),
		.deadline_us = q->deadline_us,
		.cancel_fd = q->signals,
		.take = reading_take,
		.context = &r,
	};
	enum http_end end;

	if (s->key) {
		snprintf(key, sizeof key, "%s%s", s->provider->key_field, s->key);
		fields[count++] = key;
	}
	if (s->provider->field)
		fields[count++] = s->provider->field;
	if (!body)
		err_set(e, ENOMEM, "prepare a request");
	if (!body || make_url(s, &url, e) < 0)
		return HTTP_INTERNAL;
	end = http_ask(&question, ret, e);
	explicit_bzero(key, sizeof key);
	if (end == HTTP_DONE && ret->status / 100 == 2 && reading_end(&r, e) < 0)
		end = HTTP_CUT;
	/* It has said all, so how the connection ended is of no interest. */
	if (end == HTTP_CUT && r.streamed && a->finished)
		end = HTTP_DONE;
	reading_done(&r);
	return end;
}

/* ---- what it came to ---- */

static bool is_temporary(long status)
{
	static const long list[] = {429, 500, 502, 503, 504, 529};

	for (size_t i = 0; i < ARRAY_SIZE(list); i++)
		if (list[i] == status)
			return true;
	return false;
}

static void advise(const struct ask_settings *s, long status, char *text, size_t size)
{
	if (status == 401 || status == 403)
		snprintf(text, size, s->key ? " (check the key in %s)" : " (it wants a key: %s)",
			 s->key_name);
	else if (status == 404)
		snprintf(text, size, " (check MODEL and BASE_URL)");
	else if (status / 100 == 3)
		snprintf(text, size, " (redirects are not followed: set BASE_URL to where it is)");
}

static void explain_status(const struct ask_settings *s, const struct http_answer *h, struct err *e)
{
	struct err ignored;
	_cleanup_json_ json_t *body = json_read_output(h->message, h->message_size, &ignored);
	const char *text = provider_error(body);
	char advice[128] = "";

	advise(s, h->status, advice, sizeof advice);
	err_set(e, 0, "it answers %ld%s%.300s%s", h->status, *text ? ": " : "", text, advice);
}

/* Models that think have no temperature and refuse one. It is ours, unless somebody asked for it. */
static bool refuses_temperature(struct ask_settings *s, const struct http_answer *h)
{
	if (h->status != 400 || !s->has_temperature || s->temperature_said ||
	    !strstr(h->message, "temperature"))
		return false;
	s->has_temperature = false;
	return true;
}

static enum asked pause_for(const struct asking *q, uint64_t us, struct err *e)
{
	struct pollfd p = {q->signals, POLLIN, 0};
	uint64_t now = now_us(), until = now + us;

	if (until >= q->deadline_us) {
		err_prefix(e, "no time is left to try again");
		return ASKED_DEADLINE;
	}
	for (; now < until; now = now_us()) {
		int r = poll(&p, 1, (int)((until - now) / 1000 + 1));

		if (r > 0)
			return ASKED_CANCELLED;
		if (r < 0 && errno != EINTR)
			break;
	}
	return ASKED_DONE;
}

/* Doubled each time, and anything from half of it up, so that many who were refused together come apart. */
static uint64_t pause_us(int try, uint64_t retry_after_s)
{
	uint64_t us = (uint64_t)FIRST_PAUSE_MS * 1000 << try;
	uint32_t random = 0;

	if (retry_after_s)
		us = retry_after_s * 1000000;
	if (getrandom(&random, sizeof random, 0) != sizeof random)
		random = 0;
	return retry_after_s ? us + random % 250000 : us / 2 + random % (us / 2);
}

static enum asked outcome_of(enum http_end end)
{
	return end == HTTP_DEADLINE    ? ASKED_DEADLINE
	       : end == HTTP_CANCELLED ? ASKED_CANCELLED
				       : ASKED_FAILED;
}

/* Why this try gave no answer, and whether another may follow at once. */
static bool explain(const struct asking *q, const struct answer *a, enum http_end end,
		    const struct http_answer *h, struct err *e)
{
	if (end == HTTP_DONE) {
		explain_status(q->s, h, e);
		return is_temporary(h->status);
	}
	if (end == HTTP_UNREACHABLE)
		return true;
	return (end == HTTP_CUT || end == HTTP_REFUSED) && a->temporary;
}

static void name_whom(const struct asking *q, int tries, struct err *e)
{
	const struct ask_settings *s = q->s;
	char shown[URL_SHOWN], often[32] = "";

	if (tries > 1)
		snprintf(often, sizeof often, ", asked %d times", tries);
	ask_settings_redact(s, e->text);
	err_prefix(e, "model %.80s at %s%s", s->model, url_show(&s->url, shown), often);
}

enum asked complete(struct asking *q, struct answer *ret, bool *ret_retryable, struct err *e)
{
	enum asked asked = ASKED_FAILED;
	int tries = 0;

	for (;;) {
		struct http_answer h;
		enum http_end end;
		bool again;

		*ret = (struct answer){.on_text = show_text, .context = q->show};
		q->attempts++;
		end = ask_once(q, ret, &h, e);
		if (end == HTTP_DONE && h.status / 100 == 2)
			return ASKED_DONE;
		if (end == HTTP_DONE && refuses_temperature(q->s, &h)) {
			show_note(q->show, "%.80s takes no temperature: asked without",
				  q->s->model);
			answer_done(ret);
			continue;
		}
		again = explain(q, ret, end, &h, e);
		asked = outcome_of(end);
		*ret_retryable = again || end == HTTP_CUT || end == HTTP_STALLED;
		if (++tries == TRIES || !again || ret->begun || h.retry_after_s > RETRY_AFTER_MAX_S)
			break;
		asked = pause_for(q, pause_us(tries - 1, h.retry_after_s), e);
		if (asked != ASKED_DONE)
			break;
		answer_done(ret);
	}
	name_whom(q, tries, e);
	return asked;
}
