/* SPDX-License-Identifier: Apache-2.0 */
#include "init/kept.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "init/worker.h"

enum {
	COMMAND_FDS_MAX = COMMANDS_MAX * 3,
	FIXED = 2, /* reaper, listener */
	TURN = 8,  /* pieces for one peer before the others get theirs */
	ACCEPT_AGAIN_MS = 50,
	SMALL = 4096, /* of a frame: as much is held at once, and for the next one */
};
#define NO_LIMIT (INT64_MAX / 1000)

static const struct handler {
	enum frame_type type;
	void (*open)(struct kept *k, struct conversation *c, char *payload, uint32_t size);
	int (*work)(struct worker *w);
	const char *name; /* of the stage, when it fails */
} handlers[] = {
	{FRAME_START, command_start, NULL, "start"},
	{FRAME_TAKE, command_take, NULL, "take"},
	{FRAME_ATTACH, command_attach, NULL, "attach"},
	{FRAME_INPUT, command_input, NULL, "input"},
	{FRAME_KILL, command_kill, NULL, "kill"},
	{FRAME_RESIZE, command_resize, NULL, "resize"},
	{FRAME_FORGET, command_forget, NULL, "forget"},
	{FRAME_LIST, command_list, NULL, "list"},
	{FRAME_PS, NULL, work_ps, "ps"},
	{FRAME_SPACE, NULL, work_space, "space"},
	{FRAME_PORTS, NULL, work_ports, "ports"},
	{FRAME_READ, NULL, work_read, "read"},
	{FRAME_WRITE, NULL, work_write, "write"},
	{FRAME_STAT, NULL, work_stat, "stat"},
	{FRAME_READDIR, NULL, work_readdir, "readdir"},
	{FRAME_MKDIR, NULL, work_mkdir, "mkdir"},
	{FRAME_REMOVE, NULL, work_remove, "remove"},
	{FRAME_MOVE, NULL, work_move, "move"},
	{FRAME_WALK, NULL, work_walk, "walk"},
	{FRAME_UNPACK, NULL, work_unpack, "unpack"},
	{FRAME_WATCH, NULL, work_watch, "watch"},
	{FRAME_DIAL, NULL, work_dial, "dial"},
};

static const struct handler *find_handler(enum frame_type type)
{
	for (size_t i = 0; i < sizeof handlers / sizeof *handlers; i++)
		if (handlers[i].type == type)
			return &handlers[i];
	return NULL;
}

/* One buffer that nobody has just now: the kernel would make and clear it anew for each conversation. */
static unsigned char *spare_out;

bool conversation_put(struct conversation *c, enum frame_type type, unsigned stream,
		      const void *payload, uint32_t size)
{
	if (!c->out)
		c->out = spare_out ? spare_out : malloc(OUT_SIZE);
	if (!c->out)
		return false;
	if (c->out == spare_out)
		spare_out = NULL;
	if (OUT_SIZE - c->out_to < FRAME_HEADER_SIZE + size)
		return false;
	frame_encode(c->out + c->out_to, type, stream, size);
	if (size)
		memcpy(c->out + c->out_to + FRAME_HEADER_SIZE, payload, size);
	c->out_to += FRAME_HEADER_SIZE + size;
	return true;
}

bool conversation_is_cut(const struct conversation *c)
{
	struct pollfd p = {.fd = c->fd};

	return poll(&p, 1, 0) > 0 && p.revents & (POLLHUP | POLLERR);
}

void conversation_fail(struct conversation *c, const char *stage, int errnum, const char *what)
{
	struct failed_record f = {.errnum = (uint32_t)errnum};

	snprintf(f.stage, sizeof f.stage, "%s", stage);
	snprintf(f.what, sizeof f.what, "%s", what);
	conversation_put(c, FRAME_FAILED, 0, &f, sizeof f);
	c->more = NULL;
	c->over = true;
}

void conversation_done(struct conversation *c)
{
	conversation_put(c, FRAME_DONE, 0, NULL, 0);
	c->more = NULL;
	c->over = true;
}

/* What is small stays with the slot, for the next frame. */
static void drop_frame(struct conversation *c)
{
	if (c->room > SMALL) {
		free(c->payload);
		c->payload = NULL;
		c->room = 0;
	}
	c->header_filled = c->filled = c->input_done = 0;
	c->whole = false;
}

/* The slot is free again, unless a worker has the connection. */
static void hang_up(struct kept *k, struct conversation *c)
{
	command_leave(k, c);
	if (c->fd >= 0)
		close(c->fd);
	c->fd = -1;
	drop_frame(c);
	if (spare_out)
		free(c->out);
	else
		spare_out = c->out;
	c->out = NULL;
	c->out_from = c->out_to = 0;
	if (c->worker == 0)
		k->open_count--;
}

/* ----------------------------------------------------------------------------------------- reading */

/* Room for the payload as it comes: a length alone takes no memory. */
static bool grow(struct conversation *c)
{
	size_t room = c->room ? c->room * 2 : SMALL;
	unsigned char *p;

	if (c->filled < c->room)
		return true;
	if (room > c->frame.size)
		room = c->frame.size;
	p = realloc(c->payload, room);
	if (!p)
		return false;
	c->payload = p;
	c->room = room;
	return true;
}

/* 1: a whole frame; 0: not yet; -1: there will be none. */
static int read_frame(struct conversation *c)
{
	while (!c->whole) {
		bool head = c->header_filled < FRAME_HEADER_SIZE;
		ssize_t n;

		if (!head && c->filled == c->frame.size) {
			c->whole = true;
			break;
		}
		if (!head && !grow(c))
			return -1;
		n = head ? read(c->fd, c->header + c->header_filled,
				FRAME_HEADER_SIZE - c->header_filled)
			 : read(c->fd, c->payload + c->filled,
				(c->room < c->frame.size ? c->room : c->frame.size) - c->filled);
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return 0;
		if (n <= 0) {
			c->half = n == 0 && c->opened && c->header_filled == 0;
			return c->half ? 0 : -1;
		}
		if (c->opening_until == NO_LIMIT)
			c->opening_until = guest_now_us() / 1000 + OPENING_MS;
		if (!head) {
			c->filled += (size_t)n;
			continue;
		}
		c->header_filled += (size_t)n;
		if (c->header_filled == FRAME_HEADER_SIZE &&
		    frame_decode(c->header, FROM_HOST, &c->frame) < 0)
			return -1;
	}
	return 1;
}

static void give_to_worker(struct kept *k, struct conversation *c, const struct handler *h)
{
	struct worker w = {.kept = k,
			   .fd = c->fd,
			   .payload = c->payload,
			   .size = c->frame.size,
			   .stage = h->name};
	pid_t pid = fork();

	if (pid == 0)
		worker_run(&w, h->work);
	if (pid < 0) {
		conversation_fail(c, h->name, errno, "fork");
		return;
	}
	c->worker = pid;
	hang_up(k, c);
}

/* The first frame. */
static void open_conversation(struct kept *k, struct conversation *c)
{
	const struct handler *h = find_handler(c->frame.type);

	c->opened = true;
	if (!h) {
		hang_up(k, c);
		return;
	}
	if (h->work) {
		give_to_worker(k, c, h);
		return;
	}
	h->open(k, c, (char *)c->payload, c->frame.size);
	drop_frame(c);
}

/* Frames, as many as can be taken now. */
static void take_frames(struct kept *k, struct conversation *c)
{
	for (int turn = 0; turn < TURN && c->fd >= 0 && !c->over && !c->half; turn++) {
		int r = read_frame(c);

		if (r < 0) {
			hang_up(k, c);
			return;
		}
		if (r == 0)
			return;
		if (!c->opened) {
			open_conversation(k, c);
		} else if (!c->takes_input) {
			hang_up(k, c); /* nothing more was to be said */
		} else {
			if (!command_take_frame(k, c))
				return;
			drop_frame(c);
		}
	}
}

/* ----------------------------------------------------------------------------------------- writing */

static void produce(struct kept *k, struct conversation *c)
{
	c->out_from = c->out_to = 0;
	if (c->credit > 0 && conversation_put(c, FRAME_CREDIT, 0, &c->credit, sizeof c->credit))
		c->credit = 0;
	if (c->more)
		c->more(k, c);
}

/* Send what there is; false: the peer is gone. */
static bool flush_out(struct conversation *c)
{
	while (c->out_from < c->out_to) {
		ssize_t n = send(c->fd, c->out + c->out_from, c->out_to - c->out_from,
				 MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno == EAGAIN;
		c->out_from += (size_t)n;
	}
	return true;
}

/* As one that was just accepted, but for its time: it begins with the first byte, which may lie there while the sandbox is
 * frozen. Who holds it hangs up. */
static void open_again(struct kept *k, struct conversation *c)
{
	command_leave(k, c);
	*c = (struct conversation){.fd = c->fd,
				   .payload = c->payload,
				   .room = c->room,
				   .out = c->out,
				   .opening_until = NO_LIMIT};
}

static void pump(struct kept *k, struct conversation *c)
{
	for (int turn = 0; turn < TURN && c->fd >= 0 && !command_is_held(c); turn++) {
		if (!flush_out(c)) {
			hang_up(k, c);
			return;
		}
		if (c->out_from < c->out_to)
			return;
		if (c->over && c->out_to > 0) {
			hang_up(k, c);
			return;
		}
		if (c->again) {
			open_again(k, c);
			return;
		}
		produce(k, c);
		if (c->out_to == 0) {
			if (c->over) /* no memory even for the last words */
				hang_up(k, c);
			return;
		}
	}
}

/* -------------------------------------------------------------------------------------------- loop */

static void accept_all(struct kept *k)
{
	while (k->open_count < CONVERSATIONS_MAX) {
		int fd = accept4(k->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
		struct conversation *c = k->slots;

		if (fd < 0) {
			k->accept_later =
				errno != EAGAIN && errno != EINTR && errno != ECONNABORTED;
			return;
		}
		while (c < k->slots + k->used && (c->fd >= 0 || c->worker > 0))
			c++;
		if (c == k->slots + k->used)
			k->used++;
		*c = (struct conversation){.fd = fd,
					   .payload = c->payload,
					   .room = c->room,
					   .opening_until = guest_now_us() / 1000 + OPENING_MS};
		k->open_count++;
		take_frames(k, c);
		if (c->fd >= 0)
			pump(k, c);
	}
}

static void worker_ended(struct kept *k, pid_t pid)
{
	EACH_CONVERSATION(k, c)
		if (c->worker == pid) {
			c->worker = 0;
			k->open_count--;
			return;
		}
}

static void reap(struct kept *k)
{
	struct signalfd_siginfo ignored;
	struct rusage used;
	int status;
	pid_t pid;

	while (read(k->g->reaper, &ignored, sizeof ignored) > 0)
		;
	while ((pid = wait4(-1, &status, WNOHANG, &used)) > 0)
		if (!commands_reaped(k, pid, status, &used))
			worker_ended(k, pid);
	commands_ended(k);
}

static short events_of(const struct conversation *c)
{
	short events = 0;

	if (!c->over && !c->half && !c->whole)
		events |= POLLIN;
	if (c->out_from < c->out_to && !command_is_held(c))
		events |= POLLOUT;
	return events;
}

/* A peer that takes input which its command does not want yet would be polled in vain: `whole` stops it. */
static size_t add_conversations(struct kept *k, struct pollfd *p, struct conversation **who,
				int64_t *until_us)
{
	size_t n = 0;

	EACH_CONVERSATION(k, c) {
		if (c->fd < 0)
			continue;
		if (!c->opened && c->opening_until < *until_us / 1000)
			*until_us = c->opening_until * 1000;
		who[n] = c;
		p[n++] = (struct pollfd){.fd = c->fd, .events = events_of(c)};
	}
	return n;
}

static void serve_conversation(struct kept *k, struct conversation *c, const struct pollfd *p,
			       int64_t now_ms)
{
	if (c->fd != p->fd)
		return;
	if (p->revents & (POLLHUP | POLLERR) && (c->opened || !(p->revents & POLLIN))) {
		/* What it still said before it went may be input. */
		if (c->takes_input)
			take_frames(k, c);
		if (c->fd >= 0)
			hang_up(k, c);
		return;
	}
	/* What was said in time may be read late. */
	if (p->revents & POLLIN || c->whole)
		take_frames(k, c);
	if (c->fd == p->fd && !c->opened && now_ms >= c->opening_until)
		hang_up(k, c);
}

static int poll_until(struct pollfd *p, size_t count, int64_t until_us, int64_t now_us)
{
	int64_t left = until_us > now_us ? until_us - now_us : 0;
	struct timespec t = {.tv_sec = left / 1000000, .tv_nsec = left % 1000000 * 1000};

	return ppoll(p, count, until_us == INT64_MAX ? NULL : &t, NULL);
}

static void turn(struct kept *k)
{
	static struct pollfd p[FIXED + CONVERSATIONS_MAX + COMMAND_FDS_MAX];
	static struct conversation *who[CONVERSATIONS_MAX];
	bool may_accept = k->open_count < CONVERSATIONS_MAX && !k->accept_later;
	int64_t until = INT64_MAX, now = guest_now_us();
	size_t talking, running;

	p[0] = (struct pollfd){.fd = k->g->reaper, .events = POLLIN};
	p[1] = (struct pollfd){.fd = may_accept ? k->listener : -1, .events = POLLIN};
	commands_clock(k, now, &until);
	talking = add_conversations(k, p + FIXED, who, &until);
	running = commands_poll(k, p + FIXED + talking, COMMAND_FDS_MAX, now / 1000);
	if (k->accept_later && until > now + ACCEPT_AGAIN_MS * 1000)
		until = now + ACCEPT_AGAIN_MS * 1000;
	if (poll_until(p, FIXED + talking + running, until, now) < 0) {
		if (errno != EINTR && errno != ENOMEM)
			_exit(1);
		return;
	}
	k->accept_later = false;
	now = guest_now_us();
	commands_let_go(k, now);
	now /= 1000;
	commands_ready(k, p + FIXED + talking, running);
	if (p[0].revents)
		reap(k);
	for (size_t i = 0; i < talking; i++)
		serve_conversation(k, who[i], &p[FIXED + i], now);
	if (p[1].revents)
		accept_all(k);
	EACH_CONVERSATION(k, c)
		if (c->fd >= 0)
			pump(k, c);
}

void guest_keep(struct guest *g, int listener)
{
	static struct kept kept;

	guest_outlive();
	kept.g = g;
	kept.listener = listener;
	kept.born_us = guest_now_us();
	if (fcntl(listener, F_SETFL, O_NONBLOCK) < 0 ||
	    frame_send(g->control, FRAME_DONE, 0, NULL, 0, NULL, 0) < 0)
		_exit(1);
	close(g->control);
	g->control = -1;
	for (;;)
		turn(&kept);
}
