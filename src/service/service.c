/* SPDX-License-Identifier: Apache-2.0 */
/* service.c - the small things every part of cloched needs: time, ids, the log, the store's turns. */
#include "service/service.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/hex.h"
#include "base/json.h"
#include "service/problem.h"

enum { ID_DIGITS = 32, LOG_MAX = 16384 };

int64_t wall_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

json_t *time_json(int64_t ms)
{
	time_t seconds = (time_t)(ms / 1000);
	char text[64];
	struct tm tm;
	size_t n;

	if (ms <= 0 || !gmtime_r(&seconds, &tm))
		return json_null();
	n = strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &tm);
	snprintf(text + n, sizeof text - n, ".%03dZ", (int)(ms % 1000));
	return json_string(text);
}

void make_object_id(char ret[40], const char *prefix)
{
	unsigned char random[ID_DIGITS / 2];
	size_t n = strlen(prefix);

	/* At most 256 bytes are never short once the pool is ready, which it is long before us. */
	if (getrandom(random, sizeof random, 0) != sizeof random)
		abort();
	memcpy(ret, prefix, n);
	hex_encode(random, sizeof random, ret + n);
}

bool is_object_id(const char *text, const char *prefix)
{
	size_t n = strlen(prefix);

	return strncmp(text, prefix, n) == 0 && strlen(text) == n + ID_DIGITS &&
	       strspn(text + n, "0123456789abcdef") == ID_DIGITS;
}

void log_event(const char *event, json_t *details)
{
	json_t *j = json_pack("{so ss}", "time", time_json(wall_ms()), "event", event);
	char *text;

	if (j && details)
		json_object_update_missing(j, details);
	json_decref(details);
	text = j ? json_dumps(j, JSON_COMPACT | JSON_ENSURE_ASCII) : NULL;
	json_decref(j);
	if (text) {
		size_t n = strlen(text);

		/* One write is one record, also between processes; a log that cannot be written is lost. */
		text[n] = '\n';
		if (write(2, text, n + 1 < LOG_MAX ? n + 1 : LOG_MAX) < 0)
			errno = 0;
	}
	free(text);
}

void store_failed(struct service *v, const struct err *e)
{
	if (!v->store_error[0])
		log_event("store.failed", json_pack("{ss}", "error", e->text));
	snprintf(v->store_error, sizeof v->store_error, "%s", e->text);
	v->store_missed = true;
}

/* Without a commit for so long nobody seems to come: the disk may take its time. */
#define QUIET_MS 5

static void on_quiet(uv_timer_t *t)
{
	struct service *v = t->data;

	store_tidy(v->store);
}

int service_commit(struct service *v)
{
	struct err e = {0};
	bool missed;

	if (store_commit(v->store, &e) < 0)
		store_failed(v, &e);
	missed = TAKE(v->store_missed, false);
	if (missed) {
		v->store_losses++;
		recover_store(v);
	} else if (v->store_error[0] && v->store_wrote && !uv_is_active((uv_handle_t *)&v->again)) {
		v->store_error[0] = '\0';
	}
	v->store_wrote = false;
	if (store_is_untidy(v->store))
		uv_timer_start(&v->tidying, on_quiet, QUIET_MS, 0);
	return missed ? -1 : 0;
}

int service_record(struct service *v, struct err *e)
{
	if (service_commit(v) == 0)
		return 0;
	return problem_set(e, PROBLEM_UNAVAILABLE,
			   "the state cannot be written; nothing was begun");
}

void audit(struct service *v, const char *actor, const char *session, const char *action,
	   const char *object, json_t *details)
{
	_cleanup_free_ char *text = details ? json_dumps(details, JSON_COMPACT) : NULL;
	struct audit_row row = {.time_ms = wall_ms(),
				.actor = actor,
				.session = session,
				.action = action,
				.object = object,
				.details = text ? text : "{}"};
	struct err e = {0};

	json_decref(details);
	if (store_begin(v->store, &e) < 0 || store_audit_add(v->store, &row, &e) < 0)
		store_failed(v, &e);
	else
		v->store_wrote = true;
}
