/* SPDX-License-Identifier: Apache-2.0 */
/* What the state costs, as JSON: bench-store FOLDER (new). One turn is sandbox, run and audit row in one
 * transaction, as the loop of the service makes it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "store/store.h"

enum { TURNS = 20000, ROWS = 100000 };

static void check(int r, const struct err *e)
{
	if (r == 0)
		return;
	fprintf(stderr, "bench-store: %s\n", e->text);
	exit(1);
}

/* Other programs' time slices are not the store's cost. */
static uint64_t cpu_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static void put_turn(struct store *s, int i)
{
	struct stored_sandbox b = {
		.owner = "uid:1000",
		.session = "chat-1",
		.state = STATE_RUNNING,
		.spec = "{\"memory\":268435456,\"cpus\":0.5,\"pids\":64,\"image\":\"host\"}",
		.labels = "{\"project\":\"x\"}",
		.created_ms = 1700000000000 + i,
		.verdict = -1,
		.one_shot = i % 2};
	struct stored_run r = {
		.owner = "uid:1000", .kind = "exec", .input_bytes = 100, .exit_code = -1};
	struct audit_row row = {.time_ms = 1700000000000 + i,
				.actor = "uid:1000",
				.session = "chat-1",
				.action = "sandbox.create",
				.object = b.id,
				.details = "{\"memory\":268435456,\"image\":\"host\"}"};
	char hash[65];
	struct err e = {0};

	snprintf(b.id, sizeof b.id, "sbx_%016x", (unsigned)i * 2654435761u);
	snprintf(r.id, sizeof r.id, "run_%016x", (unsigned)i * 2654435761u);
	memcpy(r.sandbox, b.id, sizeof r.sandbox);
	sha256_hex("print(1)", 8, hash);
	r.input_sha256 = hash;
	check(store_begin(s, &e), &e);
	check(store_sandbox_put(s, &b, &e), &e);
	check(store_run_put(s, &r, &e), &e);
	check(store_audit_add(s, &row, &e), &e);
	check(store_commit(s, &e), &e);
}

int main(int argc, char **argv)
{
	static uint64_t times[TURNS];
	struct err e = {0};
	struct store *s = argc == 2 ? store_open(argv[1], &e) : NULL;
	uint64_t began = now_us(), cpu = cpu_us(), verify, hash;
	int64_t rows = 0, bad;
	char head[65];

	if (!s) {
		fprintf(stderr, "bench-store: %s\n", argc == 2 ? e.text : "FOLDER");
		return 1;
	}
	for (int i = 0; i < TURNS; i++) {
		uint64_t at = now_us();

		put_turn(s, i);
		times[i] = now_us() - at;
	}
	began = now_us() - began;
	cpu = cpu_us() - cpu;
	qsort(times, TURNS, sizeof *times, by_value);
	check(store_begin(s, &e), &e);
	for (int i = TURNS; i < ROWS; i++) {
		struct audit_row row = {
			.actor = "uid:1000", .action = "run.end", .object = "run_1"};

		check(store_audit_add(s, &row, &e), &e);
	}
	check(store_commit(s, &e), &e);
	verify = now_us();
	check(store_audit_verify(s, &rows, &bad, head, &e), &e);
	verify = now_us() - verify;
	hash = now_us();
	for (int i = 0; i < ROWS; i++)
		sha256_hex(head, 64, head);
	hash = now_us() - hash;
	printf("{\"turn_us\":{\"mean\":%.1f,\"cpu_mean\":%.1f,\"p50\":%llu,\"p99\":%llu,\"max\":%llu},"
	       "\"verify\":{\"rows\":%lld,\"ms\":%.1f},\"sha256_hex_us\":%.2f}\n",
	       (double)began / TURNS, (double)cpu / TURNS, (unsigned long long)times[TURNS / 2],
	       (unsigned long long)times[TURNS * 99 / 100], (unsigned long long)times[TURNS - 1],
	       (long long)rows, (double)verify / 1000, (double)hash / ROWS);
	store_close(s);
	return 0;
}
