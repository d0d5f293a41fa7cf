/* SPDX-License-Identifier: Apache-2.0 */
#include "imaging/meter.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "base/fd.h"

#define REDRAW_US 100000

static volatile sig_atomic_t cancelled;

static void note(int signal_number)
{
	(void)signal_number;
	cancelled = 1;
}

bool is_cancelled(void)
{
	return cancelled;
}

void watch_cancel(void)
{
	const struct sigaction action = {.sa_handler = note};

	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGHUP, &action, NULL);
}

void meter_init(struct meter *m, bool quiet)
{
	*m = (struct meter){.on = !quiet && isatty(2)};
}

void meter_begin(struct meter *m, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	vsnprintf(m->what, sizeof m->what, format, ap);
	va_end(ap);
	m->last_us = 0;
}

void meter_step(struct meter *m, uint64_t done, uint64_t total)
{
	uint64_t now;

	if (!m->on)
		return;
	now = now_us();
	if (now - m->last_us < REDRAW_US && done < total)
		return;
	m->last_us = now;
	m->drawn = true;
	if (total > 0)
		fprintf(stderr, "\r%s  %3.0f%%  %.1f of %.1f MB\033[K", m->what,
			100.0 * (double)done / (double)total, (double)done / 1e6,
			(double)total / 1e6);
	else
		fprintf(stderr, "\r%s  %.1f MB\033[K", m->what, (double)done / 1e6);
}

void meter_remark(struct meter *m, const char *text)
{
	if (!m->on)
		return;
	m->drawn = true;
	fprintf(stderr, "\r%s  %s\033[K", m->what, text);
}

void meter_end(struct meter *m)
{
	if (m->drawn)
		fputs("\r\033[K", stderr);
	m->drawn = false;
}
