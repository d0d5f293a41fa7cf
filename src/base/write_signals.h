/* SPDX-License-Identifier: Apache-2.0 */
/* write_signals.h - let writes fail instead of ending the process, in one thread and for a while. */
#ifndef BASE_WRITE_SIGNALS_H
#define BASE_WRITE_SIGNALS_H

#include <signal.h>
#include <stdbool.h>

enum { WRITE_SIGNALS = 2 };

struct write_signals {
	sigset_t set, before;
	bool was_pending[WRITE_SIGNALS];
};

/* Between the two, SIGPIPE and SIGXFSZ of this thread's writes come to nothing: EPIPE and EFBIG are
 * returned. Signals of others that were pending before stay so. */
void write_signals_block(struct write_signals *w);
void write_signals_restore(struct write_signals *w);

#endif
