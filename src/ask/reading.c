/* SPDX-License-Identifier: Apache-2.0 */
#include "ask/reading.h"

#include <string.h>

#include "base/json.h"

static int take_event(void *context, const char *data, size_t size, struct err *e)
{
	struct reading *r = context;
	_cleanup_json_ json_t *event = NULL;

	if (size == 6 && memcmp(data, "[DONE]", 6) == 0)
		return 0;
	event = json_read_output(data, size, e);
	if (!event)
		return err_prefix(e, "the stream is not understood");
	return r->provider->take(r->answer, event, size, e);
}

int reading_take(void *context, const char *type, const char *data, size_t size, struct err *e)
{
	struct reading *r = context;

	if (strcmp(type, "text/event-stream") == 0) {
		r->streamed = true;
		return sse_feed(&r->sse, data, size, take_event, r, e);
	}
	if (strcmp(type, "application/json") != 0)
		return err_set(e, 0, "the answer is of type \"%.60s\", no event stream and no JSON",
			       type);
	if (r->whole.size + size > READING_BYTES)
		return err_set(e, 0, "the answer is longer than %d bytes", READING_BYTES);
	return text_add(&r->whole, data, size) < 0 ? err_set(e, ENOMEM, "keep the answer") : 0;
}

int reading_end(struct reading *r, struct err *e)
{
	_cleanup_json_ json_t *whole = NULL;

	if (!r->streamed) {
		whole = r->whole.size ? json_read_output(r->whole.data, r->whole.size, e) : NULL;
		if (!whole)
			return r->whole.size ? err_prefix(e, "the answer is not understood")
					     : err_set(e, 0, "the answer is empty");
		if (r->provider->take_whole(r->answer, whole, r->whole.size, e) < 0)
			return -1;
	}
	return r->answer->finished ? 0 : err_set(e, 0, "the answer broke off before its end");
}

void reading_done(struct reading *r)
{
	sse_done(&r->sse);
	text_done(&r->whole);
}
