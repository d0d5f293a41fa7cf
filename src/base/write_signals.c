/* SPDX-License-Identifier: Apache-2.0 */
#include "base/write_signals.h"

#include <errno.h>
#include <stddef.h>
#include <time.h>

static const int numbers[WRITE_SIGNALS] = {SIGPIPE, SIGXFSZ};

void write_signals_block(struct write_signals *w)
{
	sigset_t pending;

	sigemptyset(&w->set);
	sigpending(&pending);
	for (size_t i = 0; i < WRITE_SIGNALS; i++) {
		sigaddset(&w->set, numbers[i]);
		w->was_pending[i] = sigismember(&pending, numbers[i]);
	}
	pthread_sigmask(SIG_BLOCK, &w->set, &w->before);
}

/* What came meanwhile was ours. */
void write_signals_restore(struct write_signals *w)
{
	const struct timespec now = {0};

	for (size_t i = 0; i < WRITE_SIGNALS; i++)
		if (w->was_pending[i])
			sigdelset(&w->set, numbers[i]);
	while (sigtimedwait(&w->set, NULL, &now) > 0 || errno == EINTR)
		;
	pthread_sigmask(SIG_SETMASK, &w->before, NULL);
}
