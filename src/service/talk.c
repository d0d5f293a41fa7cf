/* SPDX-License-Identifier: Apache-2.0 */
#include "service/talk.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/cleanup.h"

enum { OUT_ENOUGH = 256 << 10 };

struct talk {
	uv_poll_t poll;
	uv_timer_t silence;
	unsigned limit_s; /* 0: the timer was not made */
	unsigned handles; /* still to be closed */
	int fd;
	const struct talk_ops *ops;
	void *data;
	struct frame_reader *reader; /* for bytes that wait; NULL: it needs none */
	char *out;
	size_t out_size, out_room;
	int watched;
	bool held; /* what is said waits for talk_release() */
	bool paused, raw, closed, told_to_wait, finish, saw_end;
	bool inside; /* a callback runs: free later */
};

/* What comes is read here, and most often it is whole: only who has to keep something gets a reader of its own. The loop
 * hands out one talk's bytes at a time. */
static struct frame_reader common;

static void on_ready(uv_poll_t *p, int status, int events);

static void on_closed(uv_handle_t *h)
{
	struct talk *t = h->data;

	if (--t->handles > 0)
		return;
	close(t->fd);
	free(t->reader);
	free(t->out);
	free(t);
}

void talk_close(struct talk *t)
{
	if (t->closed)
		return;
	t->closed = true;
	uv_poll_stop(&t->poll); /* the descriptor goes when the loop has let go of it */
	if (t->limit_s)
		uv_close((uv_handle_t *)&t->silence, on_closed);
	uv_close((uv_handle_t *)&t->poll, on_closed);
}

static void end(struct talk *t, int error)
{
	if (t->closed)
		return;
	t->ops->on_end(t, error);
	talk_close(t);
}

static void on_silence(uv_timer_t *timer)
{
	struct talk *t = timer->data;

	if (!t->paused)
		end(t, -ETIMEDOUT);
}

void talk_limit(struct talk *t, unsigned seconds)
{
	if (!seconds && t->limit_s)
		uv_timer_stop(&t->silence);
	if (t->closed || !seconds || t->limit_s || uv_timer_init(t->poll.loop, &t->silence) < 0)
		return;
	t->silence.data = t;
	t->limit_s = seconds;
	t->handles++;
	uv_timer_start(&t->silence, on_silence, seconds * 1000u, seconds * 1000u);
}

static void watch(struct talk *t)
{
	int events = (t->paused || t->saw_end ? 0 : UV_READABLE) | (t->out_size ? UV_WRITABLE : 0);

	if (t->closed || events == t->watched)
		return;
	t->watched = events;
	if (events)
		uv_poll_start(&t->poll, events, on_ready);
	else
		uv_poll_stop(&t->poll);
}

/* Hand out the frames that are complete. */
static void deliver_from(struct talk *t, struct frame_reader *reader)
{
	const unsigned char *payload;
	struct frame f;
	int r;

	while (!t->closed && !t->paused && !t->raw &&
	       (r = frame_reader_next(reader, &f, &payload)) != 0) {
		if (r < 0) {
			end(t, r);
			return;
		}
		t->ops->on_frame(t, &f, payload);
		if (!t->closed)
			frame_reader_done(reader, &f);
	}
	if (!t->closed && !t->paused && t->raw && reader->filled) {
		size_t n = reader->filled;

		reader->filled = 0;
		t->ops->on_raw(t, reader->buffer, n);
	}
}

static void deliver(struct talk *t)
{
	if (t->reader)
		deliver_from(t, t->reader);
}

/* What is left in the common reader is this talk's. */
static void keep_rest(struct talk *t)
{
	size_t rest = TAKE(common.filled, 0);

	if (t->closed || rest == 0)
		return;
	t->reader = malloc(sizeof *t->reader);
	if (!t->reader) {
		end(t, -ENOMEM);
		return;
	}
	memcpy(t->reader->buffer, common.buffer, rest);
	t->reader->filled = rest;
}

static void read_some(struct talk *t)
{
	struct frame_reader *reader = t->reader ? t->reader : &common;
	size_t room = sizeof reader->buffer - reader->filled;
	ssize_t n = room ? recv(t->fd, reader->buffer + reader->filled, room, 0) : -1;

	if (n < 0 && (!room || errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		t->saw_end = true;
		if (n == 0 && t->raw) {
			t->ops->on_raw(t, NULL, 0);
			return;
		}
		end(t, n < 0 ? -errno : reader->filled ? -EPROTO : 0);
		return;
	}
	reader->filled += (size_t)n;
	deliver_from(t, reader);
	if (reader == &common)
		keep_rest(t);
}

static void write_some(struct talk *t)
{
	while (t->out_size > 0) {
		ssize_t n = send(t->fd, t->out, t->out_size, MSG_NOSIGNAL);

		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (n < 0 && t->raw && t->saw_end) { /* it has said all, and reads no more */
			end(t, -errno);
			return;
		}
		/* The other side reads no more: what it has to say about that is still to be read. */
		if (n < 0)
			n = (ssize_t)t->out_size;
		t->out_size -= (size_t)n;
		memmove(t->out, t->out + n, t->out_size);
	}
	if (t->finish) {
		t->finish = false;
		shutdown(t->fd, SHUT_WR);
	}
}

static void on_ready(uv_poll_t *p, int status, int events)
{
	struct talk *t = p->data;

	t->inside = true;
	if (t->limit_s && uv_is_active((uv_handle_t *)&t->silence))
		uv_timer_again(&t->silence);
	if (status <
	    0) { /* an error is pending (libuv stops then); what was said before it still counts */
		t->watched = 0;
		if (t->out_size)
			write_some(t); /* takes the error, and drops what nobody will read */
		if (!t->paused)
			read_some(t);
	} else {
		if (events & UV_WRITABLE)
			write_some(t);
		if (!t->closed && t->told_to_wait && t->out_size < OUT_ENOUGH / 2) {
			t->told_to_wait = false;
			if (t->ops->on_room)
				t->ops->on_room(t);
			deliver(t); /* it may have resumed, and whole frames wait here */
		}
		if (!t->closed && events & UV_READABLE)
			read_some(t);
	}
	t->inside = false;
	if (!t->closed)
		watch(t);
}

struct talk *talk_open(uv_loop_t *loop, const char *path, const struct talk_ops *ops, void *data,
		       struct err *e)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	struct talk *t;

	if (strlen(path) >= sizeof a.sun_path) {
		err_set(e, ENAMETOOLONG, "%s", path);
		return NULL;
	}
	memcpy(a.sun_path, path, strlen(path) + 1);
	t = calloc(1, sizeof *t);
	if (!t) {
		err_set(e, ENOMEM, "talk to a sandbox");
		return NULL;
	}
	t->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (t->fd < 0 || connect(t->fd, (struct sockaddr *)&a, sizeof a) < 0 ||
	    (errno = -uv_poll_init(loop, &t->poll, t->fd)) != 0) {
		err_set(e, errno, "talk to the sandbox at %s", path);
		if (t->fd >= 0)
			close(t->fd);
		free(t);
		return NULL;
	}
	t->ops = ops;
	t->data = data;
	t->poll.data = t;
	t->handles = 1;
	watch(t);
	return t;
}

void *talk_data(const struct talk *t)
{
	return t->data;
}

bool talk_is_quiet(const struct talk *t)
{
	char c;

	return !t->closed && !t->saw_end && !t->inside && !(t->reader && t->reader->filled) &&
	       recv(t->fd, &c, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

void talk_hand_over(struct talk *t, const struct talk_ops *ops, void *data)
{
	t->ops = ops;
	t->data = data;
	if (t->reader && !t->reader->filled && !t->inside)
		free(TAKE_PTR(t->reader));
}

static bool queue(struct talk *t, const void *data, size_t size)
{
	if (t->closed)
		return true;
	if (t->out_size == 0 && size && !t->held) { /* most often it goes at once */
		ssize_t n = send(t->fd, data, size, MSG_NOSIGNAL);

		if (n > 0) {
			data = (const char *)data + n;
			size -= (size_t)n;
		}
	}
	if (size > t->out_room - t->out_size) {
		size_t room = t->out_size + size + 65536;
		char *more = realloc(t->out, room);

		if (!more) { /* on_end will say so */
			shutdown(t->fd, SHUT_RDWR);
			return false;
		}
		t->out = more;
		t->out_room = room;
	}
	if (size)
		memcpy(t->out + t->out_size, data, size);
	t->out_size += size;
	if (!t->held)
		watch(t);
	t->told_to_wait = t->told_to_wait || t->out_size >= OUT_ENOUGH;
	return !t->told_to_wait;
}

bool talk_send(struct talk *t, enum frame_type type, const void *record, size_t record_size,
	       const void *tail, size_t tail_size)
{
	char small[1024];
	unsigned char header[FRAME_HEADER_SIZE];

	frame_encode(header, type, 0, (uint32_t)(record_size + tail_size));
	if (sizeof header + record_size + tail_size <= sizeof small) {
		memcpy(small, header, sizeof header);
		if (record_size)
			memcpy(small + sizeof header, record, record_size);
		if (tail_size)
			memcpy(small + sizeof header + record_size, tail, tail_size);
		return queue(t, small, sizeof header + record_size + tail_size);
	}
	queue(t, header, sizeof header);
	if (record_size)
		queue(t, record, record_size);
	return queue(t, tail, tail_size);
}

bool talk_send_raw(struct talk *t, const void *data, size_t size)
{
	return queue(t, data, size);
}

void talk_pause(struct talk *t)
{
	t->paused = true;
	watch(t);
}

void talk_resume(struct talk *t)
{
	if (!t->paused)
		return;
	t->paused = false;
	if (t->inside)
		return; /* deliver() goes on by itself */
	t->inside = true;
	deliver(t);
	t->inside = false;
	if (!t->closed)
		watch(t);
}

void talk_become_raw(struct talk *t)
{
	t->raw = true;
}

void talk_finish(struct talk *t)
{
	t->finish = true;
	if (t->out_size == 0)
		write_some(t);
}

void talk_hold(struct talk *t)
{
	t->held = true;
}

void talk_release(struct talk *t)
{
	t->held = false;
	if (!t->closed && t->out_size)
		write_some(t);
	watch(t);
}
