/* SPDX-License-Identifier: Apache-2.0 */
/*
 * heartbeat - a line with the monotonic time in nanoseconds every 10 ms, for ever.
 *
 * The peer of every denial-of-service test: the largest distance between two lines is what the attack
 * next door cost it.
 */
#include <stdio.h>
#include <time.h>

#define BEAT_NS 10000000L

int main(void)
{
	struct timespec next, now;

	clock_gettime(CLOCK_MONOTONIC, &next);
	for (;;) {
		clock_gettime(CLOCK_MONOTONIC, &now);
		printf("%lld\n", (long long)now.tv_sec * 1000000000 + now.tv_nsec);
		fflush(stdout);
		/* a late beat is late once: the next is 10 ms from now, not from when it should have been */
		next = now;
		next.tv_nsec += BEAT_NS;
		if (next.tv_nsec >= 1000000000)
			next.tv_sec++, next.tv_nsec -= 1000000000;
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, NULL);
	}
}
