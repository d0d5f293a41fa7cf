/* SPDX-License-Identifier: Apache-2.0 */
/* run_start.c - what init is told to begin: a command of its own, or the one that waits. */
#include <string.h>

#include "service/run.h"

/* Init's own clock runs out this much after ours: it is for when we are not there. */
#define INIT_LATER_MS 1000

static size_t append(char *text, size_t at, const char *string)
{
	size_t n = strlen(string) + 1;

	memcpy(text + at, string, n);
	return at + n;
}

int run_start_strings(const struct spec *spec, struct start_record *s, char **ret, size_t *ret_size,
		      struct err *e)
{
	const struct strings *lists[] = {&spec->command, &spec->env};
	size_t size = strlen(spec->workdir) + 1;
	size_t at = 0;

	s->argc = (uint32_t)spec->command.count;
	s->envc = (uint32_t)spec->env.count;
	for (size_t l = 0; l < ARRAY_SIZE(lists); l++)
		for (size_t i = 0; i < lists[l]->count; i++)
			size += strlen(lists[l]->item[i]) + 1;
	*ret = malloc(size);
	if (!*ret)
		return err_set(e, ENOMEM, "start the command");
	at = append(*ret, at, spec->workdir);
	for (size_t l = 0; l < ARRAY_SIZE(lists); l++)
		for (size_t i = 0; i < lists[l]->count; i++)
			at = append(*ret, at, lists[l]->item[i]);
	*ret_size = at;
	return 0;
}

int run_start_record(const struct run *r, struct start_record *ret, char **ret_strings,
		     size_t *ret_size, struct err *e)
{
	const struct spec *s = &r->spec;
	uint64_t limit_ms = s->timeout_us / 1000 + INIT_LATER_MS;

	*ret = (struct start_record){
		.uid = s->uid,
		.gid = s->gid,
		.flags = START_ATTACH | (r->input || r->stdin_open ? START_STDIN : 0) |
			 (r->streamed ? KEEP_LOSSLESS : KEEP_HEAD),
		.limit_ms = s->timeout_us == SPEC_UNLIMITED || limit_ms > UINT32_MAX
				    ? 0
				    : (uint32_t)limit_ms,
		/* One more byte, where passing the limit is the end of it. */
		.keep_bytes = s->max_output_bytes + (s->kill_on_output_limit ? 1 : 0),
	};
	memcpy(ret->tag, r->result.id, sizeof ret->tag);
	return run_start_strings(s, ret, ret_strings, ret_size, e);
}

void run_take_record(const struct run *r, const struct start_record *s, struct take_record *ret)
{
	*ret = (struct take_record){
		.number = r->box->waiting,
		.flags = s->flags & (KEEP_HEAD | KEEP_TAIL | KEEP_LOSSLESS),
		.limit_ms = s->limit_ms,
		.keep_bytes = s->keep_bytes,
	};
}
