/* SPDX-License-Identifier: Apache-2.0 */
#include "native/supervise.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/fd.h"

/* How often full disks are looked for (SECURITY-BASIS 4.2), and CPU time at the least. */
#define DISK_INTERVAL_US    250000
#define CPU_INTERVAL_MIN_US 5000
/* And where nothing bounds how fast it grows. */
#define CPU_INTERVAL_UNLIMITED_US 50000

enum slot_of_poll {
	POLL_CONTROL,
	POLL_PIDFD,
	POLL_OUT,
	POLL_ERR,
	POLL_SINK_OUT,
	POLL_SINK_ERR,
	POLL_STDIN_SOURCE,
	POLL_STDIN_PIPE,
	POLL_CANCEL,
	POLL_NETWORK,
	POLL_COUNT
};

static void decide(struct supervision *s, enum reason verdict)
{
	if (s->evidence->has_verdict || s->evidence->main_ended)
		return;
	s->evidence->has_verdict = true;
	s->evidence->verdict = verdict;
}

static bool is_over(const struct supervision *s)
{
	return s->evidence->has_verdict || s->evidence->main_ended || s->protocol_error;
}

static void check_output_limit(struct supervision *s, const struct stream *stream)
{
	if (stream->captured->bytes > s->spec->max_output_bytes && s->spec->kill_on_output_limit)
		decide(s, REASON_OUTPUT_LIMIT);
}

/* What the command wrote before it ended counts before its end. A survivor may go on writing: at most
 * a full pipe (1 MiB is the most an ordinary user can make of one) is taken. */
static void take_written(struct supervision *s, struct stream *stream)
{
	uint64_t until = stream->captured->bytes + (1 << 20);

	while (stream->source >= 0 && stream->captured->bytes < until && stream_read(stream) > 0)
		;
	check_output_limit(s, stream);
}

static void command_exited(struct supervision *s, const struct exited_record *r)
{
	if (s->spec->kill_on_output_limit) {
		take_written(s, &s->out);
		take_written(s, &s->err);
		if (s->evidence->has_verdict)
			return;
	}
	s->ended_us = now_us();
	s->survivors = r->survivors;
	s->evidence->main_ended = true;
	s->evidence->main_signaled = r->signaled;
	s->evidence->main_status = (int)r->status;
	s->evidence->main_core = r->core;
}

/* One frame from inside. Anything that does not fit the state of the run is an error. */
static int take_frame(struct supervision *s, const struct frame *f, const unsigned char *payload)
{
	struct exited_record exited;

	if (f->type != FRAME_EXITED || s->evidence->main_ended ||
	    exited_record_decode(payload, f->size, &exited) < 0)
		return -EPROTO;
	command_exited(s, &exited);
	return 0;
}

/* Returns false at the end of the stream. */
static bool read_control(struct supervision *s)
{
	unsigned char data[4096];
	const unsigned char *payload;
	struct frame f;
	ssize_t n = read(s->control, data, sizeof data);
	int r;

	if (n < 0)
		return errno == EINTR || errno == EAGAIN;
	if (n == 0)
		return false;
	if (frame_reader_feed(&s->reader, data, (size_t)n) != (size_t)n)
		s->protocol_error = true;
	while (!s->protocol_error && (r = frame_reader_next(&s->reader, &f, &payload)) != 0) {
		if (r < 0 || take_frame(s, &f, payload) < 0) {
			s->protocol_error = true;
			break;
		}
		frame_reader_done(&s->reader, &f);
	}
	return true;
}

static void close_stdin(struct supervision *s)
{
	fd_close(&s->stdin_pipe);
	s->stdin_source = -1;
	s->stdin_data = NULL;
}

static void read_stdin(struct supervision *s)
{
	ssize_t n = read(s->stdin_source, s->stdin_buffer, sizeof s->stdin_buffer);

	if (n < 0 && (errno == EINTR || errno == EAGAIN))
		return;
	if (n <= 0) {
		close_stdin(s);
		return;
	}
	s->stdin_data = s->stdin_buffer;
	s->stdin_size = (size_t)n;
}

/* The command may not read, or may close its end: that is its affair. */
static void write_stdin(struct supervision *s)
{
	ssize_t n = write(s->stdin_pipe, s->stdin_data, s->stdin_size);

	if (n < 0 && (errno == EINTR || errno == EAGAIN))
		return;
	if (n < 0) {
		close_stdin(s);
		return;
	}
	s->stdin_data += n;
	s->stdin_size -= (size_t)n;
	if (s->stdin_size == 0) {
		s->stdin_data = NULL;
		if (s->stdin_source < 0)
			close_stdin(s);
	}
}

static void take_output(struct supervision *s, struct stream *stream)
{
	ssize_t n = stream_read(stream);

	if (n > 0)
		s->last_output_us = now_us();
	check_output_limit(s, stream);
}

void supervise_sample_disk(struct supervision *s)
{
	for (size_t i = 0; i < s->place_count; i++) {
		struct statfs f;

		if (fstatfs(s->places[i], &f) < 0)
			continue;
		if (f.f_blocks && f.f_bavail == 0)
			s->limits_hit |= HIT_DISK;
		if (f.f_files && f.f_ffree == 0)
			s->limits_hit |= HIT_INODES;
	}
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static uint64_t after(uint64_t start, uint64_t span)
{
	return span == SPEC_UNLIMITED ? UINT64_MAX : start + span;
}

/* CPU time can grow at most as fast as the quota allows: look again when it could be used up. */
static void check_cpu_time(struct supervision *s, uint64_t now)
{
	uint64_t used = cgroup_cpu_us(s->cgroup), left;

	if (used == UINT64_MAX)
		used = 0;
	if (used >= s->spec->cpu_time_us) {
		decide(s, REASON_CPU_TIME);
		return;
	}
	left = s->cgroup->has[CPU] ? (s->spec->cpu_time_us - used) * 1000 / s->spec->cpus_millis
				   : CPU_INTERVAL_UNLIMITED_US;
	s->next_cpu_us = now + (left > CPU_INTERVAL_MIN_US ? left : CPU_INTERVAL_MIN_US);
}

/* Apply every clock that has run out; returns when the next one does. */
static uint64_t check_clocks(struct supervision *s)
{
	const struct spec *spec = s->spec;
	uint64_t now = now_us(), wall, idle;

	wall = after(s->started_us, spec->timeout_us);
	idle = after(s->last_output_us, spec->idle_timeout_us);
	if (spec->cpu_time_us != SPEC_UNLIMITED && now >= s->next_cpu_us)
		check_cpu_time(s, now);
	if (now >= wall)
		decide(s, REASON_TIMEOUT);
	if (now >= idle)
		decide(s, REASON_IDLE_TIMEOUT);
	if (now >= s->next_disk_us) {
		if (s->next_disk_us)
			supervise_sample_disk(s);
		s->next_disk_us = now + DISK_INTERVAL_US;
	}
	wall = earlier(earlier(wall, idle), s->next_disk_us);
	return spec->cpu_time_us != SPEC_UNLIMITED ? earlier(wall, s->next_cpu_us) : wall;
}

static void wait_for_events(struct supervision *s, uint64_t deadline, struct pollfd p[POLL_COUNT])
{
	const struct pollfd wanted[POLL_COUNT] = {
		[POLL_CONTROL] = {s->control, POLLIN, 0},
		[POLL_PIDFD] = {s->pidfd, POLLIN, 0},
		[POLL_OUT] = {stream_wants_input(&s->out) ? s->out.source : -1, POLLIN, 0},
		[POLL_ERR] = {stream_wants_input(&s->err) ? s->err.source : -1, POLLIN, 0},
		/* without events, poll still tells when a pipe's or socket's reader goes away */
		[POLL_SINK_OUT] = {s->out.sink, stream_wants_room(&s->out) ? POLLOUT : 0, 0},
		[POLL_SINK_ERR] = {s->err.sink, stream_wants_room(&s->err) ? POLLOUT : 0, 0},
		[POLL_STDIN_SOURCE] = {s->stdin_data || s->stdin_pipe < 0 ? -1 : s->stdin_source,
				       POLLIN, 0},
		[POLL_STDIN_PIPE] = {s->stdin_data ? s->stdin_pipe : -1, POLLOUT, 0},
		[POLL_CANCEL] = {s->io->cancel_fd, POLLIN, 0},
		[POLL_NETWORK] = {network_fd(s->network), POLLIN, 0},
	};
	struct timespec t, *timeout = NULL;
	uint64_t now = now_us();

	memcpy(p, wanted, sizeof wanted);
	if (deadline != UINT64_MAX) {
		uint64_t left = deadline > now ? deadline - now : 0;

		t = (struct timespec){(time_t)(left / 1000000), (long)(left % 1000000) * 1000};
		timeout = &t;
	}
	if (ppoll(p, POLL_COUNT, timeout, NULL) < 0)
		for (int i = 0; i < POLL_COUNT; i++)
			p[i].revents = 0;
}

static void serve_sink(struct stream *stream, int revents)
{
	if (revents & (POLLERR | POLLHUP | POLLNVAL))
		stream->sink_gone = true;
	else if (revents & POLLOUT)
		stream_flush_some(stream);
}

static void handle_events(struct supervision *s, const struct pollfd p[POLL_COUNT])
{
	bool control_open = true;

	/* The end of the command is looked at before the clocks: what came first wins. */
	if (p[POLL_CONTROL].revents)
		control_open = read_control(s);
	if (p[POLL_OUT].revents)
		take_output(s, &s->out);
	if (p[POLL_ERR].revents)
		take_output(s, &s->err);
	serve_sink(&s->out, p[POLL_SINK_OUT].revents);
	serve_sink(&s->err, p[POLL_SINK_ERR].revents);
	if (p[POLL_STDIN_SOURCE].revents)
		read_stdin(s);
	if (p[POLL_STDIN_PIPE].revents)
		write_stdin(s);
	if (p[POLL_NETWORK].revents)
		network_read(s->network, s->usage);
	if (p[POLL_CANCEL].revents || s->out.sink_gone || s->err.sink_gone)
		decide(s, REASON_CANCELLED);
	if (!is_over(s) && (!control_open || (p[POLL_PIDFD].revents && !p[POLL_CONTROL].revents))) {
		/* Init is gone without a record. It has a clock of its own, for when this process is
		 * stopped or blocked: then it was the time-out all the same. */
		if (now_us() >= after(s->started_us, s->spec->timeout_us))
			decide(s, REASON_TIMEOUT);
		s->protocol_error = true;
	}
}

void supervise(struct supervision *s)
{
	struct pollfd p[POLL_COUNT];

	while (!is_over(s)) {
		uint64_t deadline = check_clocks(s);

		if (is_over(s))
			break;
		wait_for_events(s, deadline, p);
		handle_events(s, p);
	}
	close_stdin(s);
	if (!s->ended_us)
		s->ended_us = now_us();
}
