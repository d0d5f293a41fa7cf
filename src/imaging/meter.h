/* SPDX-License-Identifier: Apache-2.0 */
/* meter.h - how far it is: one line on a terminal, redrawn at most ten times a second; elsewhere nothing. */
#ifndef IMAGING_METER_H
#define IMAGING_METER_H

#include <stdbool.h>
#include <stdint.h>

struct meter {
	bool on;
	bool drawn;
	char what[128]; /* "layer 2/5 1a2b3c4d5e6f" */
	uint64_t last_us;
};

/* On when stderr is a terminal and nobody asked for quiet. */
void meter_init(struct meter *m, bool quiet);
void meter_begin(struct meter *m, const char *format, ...) __attribute__((format(printf, 2, 3)));
void meter_step(struct meter *m, uint64_t done, uint64_t total);
void meter_remark(struct meter *m, const char *text);
/* Clear the line: before anything else is printed. */
void meter_end(struct meter *m);

/* Did somebody press Ctrl-C, or ask us to end? */
bool is_cancelled(void);
void watch_cancel(void);

#endif
