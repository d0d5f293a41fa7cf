/* SPDX-License-Identifier: Apache-2.0 */
/*
 * resolver.c - the sandbox's name server: UDP and TCP around dns.h.
 *
 * A refused name is never asked about outside. An allowed one is looked up when it is asked for, so that a name that
 * does not exist is told apart at once, and answered with an address that stands for it (names.h), never its own.
 */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "egress/dns.h"
#include "egress/egress.h"

enum { AT_ONCE = 32, TYPE_A = 1 };

/* One that waits for a look-up, and how its answer gets back. */
struct question {
	struct question *prev, *next;
	struct waiter waiter;
	struct egress *egress;
	struct connection *c; /* by TCP */
	int fd;               /* by UDP */
	union address from;
	char control[CMSG_SPACE(sizeof(struct in6_pktinfo))];
	size_t control_size;
	struct dns_question asked;
	char data[DNS_QUESTION_MAX];
};

static void unlink_question(struct question *q)
{
	if (q->prev)
		q->prev->next = q->next;
	else
		q->egress->questions = q->next;
	if (q->next)
		q->next->prev = q->prev;
	q->egress->question_count--;
}

/* The answer leaves from the address that was asked: the control message that came says which. */
static void send_answer(struct question *q, const char *answer, size_t size)
{
	struct iovec iov = {(void *)(uintptr_t)answer, size};
	struct msghdr m = {.msg_name = &q->from,
			   .msg_namelen = q->from.any.sa_family == AF_INET6 ? sizeof q->from.v6
									    : sizeof q->from.v4,
			   .msg_iov = &iov,
			   .msg_iovlen = 1,
			   .msg_control = q->control_size ? q->control : NULL,
			   .msg_controllen = q->control_size};
	const unsigned char length[2] = {(unsigned char)(size >> 8), (unsigned char)size};

	if (!q->c)
		(void)sendmsg(q->fd, &m, MSG_DONTWAIT);
	else if (!side_write(q->c->client, length, 2) || !side_write(q->c->client, answer, size))
		q->c->client->lost = true;
}

static void answer(struct question *q, enum dns_result result, struct in_addr address)
{
	char text[DNS_ANSWER_MAX];

	send_answer(q, text, dns_write(q->data, &q->asked, result, address, text));
}

static enum dns_result result_of(struct question *q, const struct addresses *found,
				 struct in_addr *address)
{
	struct egress *g = q->egress;

	if (found->count == 0)
		return found->missing ? DNS_NO_NAME : DNS_FAILED;
	if (q->asked.type != TYPE_A)
		return DNS_EMPTY;
	return names_address(g->names, q->asked.host, uv_now(&g->loop), address) ? DNS_ADDRESS
										 : DNS_FAILED;
}

static void answer_found(struct question *q, const struct addresses *found)
{
	struct in_addr address = {0};
	enum dns_result result = result_of(q, found, &address);

	answer(q, result, address);
}

static void on_found(struct waiter *w, const struct addresses *found)
{
	struct question *q = (struct question *)((char *)w - offsetof(struct question, waiter));
	struct connection *c = q->c;

	answer_found(q, found);
	unlink_question(q);
	free(q);
	if (c) {
		c->question = NULL;
		connection_run(c);
	}
}

static void record_denial(struct egress *g, const struct dns_question *asked,
			  const struct network_answer *a)
{
	struct egress_record r = {.verdict = EGRESS_DENIED, .started_ms = record_wall_ms()};

	snprintf(r.host, sizeof r.host, "%s", asked->host);
	record_rule(&r, a);
	record_put(g, &r);
}

static bool allowed(struct egress *g, const struct dns_question *asked)
{
	const struct network_ask ask = {.host = asked->host};
	struct network_answer a = {.verdict = VERDICT_DENY};

	if (asked->host[0])
		network_decide(g->settings.request, g->settings.ceiling, &ask, &a);
	else
		snprintf(a.why, sizeof a.why, "a question for something that is no host name");
	if (a.verdict == VERDICT_DENY)
		record_denial(g, asked, &a);
	return a.verdict != VERDICT_DENY;
}

static void wait_for(struct question *q)
{
	struct egress *g = q->egress;
	struct question *kept = malloc(sizeof *kept);
	const struct addresses *found;

	if (!kept || g->question_count >= LIMIT_QUESTIONS_MAX) {
		free(kept);
		answer(q, DNS_FAILED, (struct in_addr){0});
		return;
	}
	*kept = *q;
	kept->waiter.done = on_found;
	found = lookup_start(g, kept->asked.host, &kept->waiter);
	if (found) {
		answer_found(q, found);
		free(kept);
		return;
	}
	kept->prev = NULL;
	kept->next = g->questions;
	if (kept->next)
		kept->next->prev = kept;
	g->questions = kept;
	g->question_count++;
	if (kept->c)
		kept->c->question = kept;
}

/* q->data holds the message. */
static void handle(struct question *q, size_t size)
{
	char text[DNS_ANSWER_MAX];
	int r = dns_read(q->data, size, &q->asked);

	if (r == -EPROTO)
		send_answer(q, text, dns_write_formerr(q->asked.id, text));
	if (r < 0)
		return;
	if (allowed(q->egress, &q->asked))
		wait_for(q);
	else
		answer(q, DNS_REFUSED, (struct in_addr){0});
}

void resolver_readable(struct listener *l)
{
	for (int i = 0; i < AT_ONCE && !l->egress->ending; i++) {
		struct question q = {.egress = l->egress, .fd = l->fd};
		struct iovec iov = {q.data, sizeof q.data};
		struct msghdr m = {.msg_name = &q.from,
				   .msg_namelen = sizeof q.from,
				   .msg_iov = &iov,
				   .msg_iovlen = 1,
				   .msg_control = q.control,
				   .msg_controllen = sizeof q.control};
		ssize_t n = recvmsg(l->fd, &m, MSG_DONTWAIT);

		if (n < 0)
			return;
		q.control_size = m.msg_flags & MSG_CTRUNC ? 0 : m.msg_controllen;
		if (!(m.msg_flags & MSG_TRUNC))
			handle(&q, (size_t)n);
	}
}

/* ---- by TCP: two bytes of length before each message (RFC 7766) ---- */

static size_t message_size(const struct connection *c)
{
	const unsigned char *p = (const unsigned char *)c->in.data + c->in.start;

	return c->in.size < 2 ? 0 : (size_t)p[0] << 8 | p[1];
}

static enum step tcp_step(struct connection *c)
{
	size_t size = message_size(c);
	struct question q = {.egress = c->egress, .c = c};
	ssize_t n;

	c->client->want_read = false;
	if (c->question || c->client->out.size)
		return STEP_WAIT;
	if (c->in.size >= 2 && (size == 0 || size > DNS_QUESTION_MAX))
		return connection_close(c, true);
	if (c->in.size >= 2 && c->in.size >= 2 + size) {
		memcpy(q.data, c->in.data + c->in.start + 2, size);
		bytes_drop(&c->in, 2 + size);
		handle(&q, size);
		connection_wait(c, WAIT_HEADER, NULL);
		return STEP_AGAIN;
	}
	n = side_read_into(c->client, &c->in, 2 + DNS_QUESTION_MAX);
	c->client->want_read = n == -EAGAIN;
	if (n == -EAGAIN)
		return STEP_WAIT;
	return n > 0 ? STEP_AGAIN : connection_close(c, n < 0);
}

enum step resolver_begin(struct connection *c)
{
	c->step = tcp_step;
	connection_wait(c, WAIT_HEADER, NULL);
	return STEP_AGAIN;
}

static void drop(struct question *q)
{
	lookup_cancel(&q->waiter);
	unlink_question(q);
	free(q);
}

void resolver_abandon(struct connection *c)
{
	if (c->question)
		drop(TAKE_PTR(c->question));
}

void resolver_stop(struct egress *g)
{
	while (g->questions)
		drop(g->questions);
}
