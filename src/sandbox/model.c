/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/model.h"

const struct code_row codes[CODE_COUNT] = {
#define CODE(name, http, retry, people, model) [CODE_##name] = {#name, http, retry, people, model},
#include "sandbox/codes.def"
#undef CODE
};

const struct reason_row reasons[REASON_COUNT] = {
#define REASON(name, api, code, status, retry) [REASON_##name] = {api, CODE_##code, status, retry},
#include "sandbox/reasons.def"
#undef REASON
};

const char *const limit_hit_names[HIT_COUNT] = {
	"memory", "pids", "disk", "inodes", "output", "network_denied",
};

int state_next(enum state from, enum state_event event)
{
	static const struct {
		enum state from;
		enum state_event event;
		enum state to;
	} transitions[] = {
#define TRANSITION(from, event, to) {STATE_##from, EVENT_##event, STATE_##to},
#include "sandbox/states.def"
#undef TRANSITION
	};

	for (size_t i = 0; i < ARRAY_SIZE(transitions); i++)
		if (transitions[i].from == from && transitions[i].event == event)
			return transitions[i].to;
	return -1;
}

int err_code(struct err *e, enum code code)
{
	e->code = code;
	return -1;
}
