/* SPDX-License-Identifier: Apache-2.0 */
/*
 * capture.c - routes, listeners and the redirect of a sandbox that has a network policy.
 *
 * Runs where netns.c's maker runs: beside its caller, in the caller's memory. So there is no C library in here but
 * for memcpy(), and messages are made on a small buffer of the one maker that there is at a time in a process.
 *
 * nf_tables: one table of the family inet, with one chain in the prerouting hook, through which all comes that is sent over
 * lo, and in it a rule for IPv4, and one like it for IPv6 (as the nft program would print it):
 *
 *	meta nfproto ipv4 tcp flags & (syn | ack) == syn ip daddr != 127.0.0.0/8 tcp dport != {53, 80, 443} tproxy ip to :ANY
 *
 * Only a connection's first packet needs it. 53, 80 and 443 have listeners of their own, which are reached by the route
 * alone. Everywhere the destination is the socket's own name (getsockname). Not nat: that tracks connections in memory
 * of the kernel that no cgroup is charged for, 262,144 of them by default in each namespace.
 */
#include "native/capture.h"

#include <errno.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "native/clone3.h"
#include "native/raw.h"

#ifndef IPV6_FREEBIND
#define IPV6_FREEBIND 78 /* linux/in6.h, 4.15 */
#endif

enum { ANY_PORT = 3129, BACKLOG = 1024, BUFFER = 4096, LOOPBACK_INDEX = 1 };

/* ---- netlink ---- */

struct message {
	uint32_t size;   /* of all messages so far */
	uint32_t header; /* where the last one begins */
	uint32_t sequence;
	char data[BUFFER];
};

in_clone_child static void add(struct message *m, const void *data, uint32_t size)
{
	if (size)
		memcpy(m->data + m->size, data, size);
	m->size += size;
	while (m->size % NLA_ALIGNTO)
		m->data[m->size++] = 0;
}

/* The length of what began at this place is everything up to now. */
in_clone_child static void close_header(struct message *m)
{
	uint32_t size = m->size - m->header;

	memcpy(m->data + m->header, &size, sizeof size);
}

in_clone_child static void begin(struct message *m, uint16_t type, uint16_t flags)
{
	struct nlmsghdr h = {.nlmsg_type = type,
			     .nlmsg_flags = NLM_F_REQUEST | flags,
			     .nlmsg_seq = ++m->sequence};

	m->header = m->size;
	add(m, &h, sizeof h);
}

in_clone_child static void attribute(struct message *m, uint16_t type, const void *data,
				     uint32_t size)
{
	struct nlattr a = {.nla_len = (uint16_t)(sizeof a + size), .nla_type = type};

	add(m, &a, sizeof a);
	add(m, data, size);
}

in_clone_child static void attribute_text(struct message *m, uint16_t type, const char *text)
{
	attribute(m, type, text, (uint32_t)strlen(text) + 1);
}

/* nf_tables has all numbers in network order. */
in_clone_child static void attribute_number(struct message *m, uint16_t type, uint32_t value)
{
	value = htonl(value);
	attribute(m, type, &value, sizeof value);
}

in_clone_child static uint32_t nest(struct message *m, uint16_t type)
{
	uint32_t at = m->size;

	attribute(m, NLA_F_NESTED | type, NULL, 0);
	return at;
}

in_clone_child static void unnest(struct message *m, uint32_t at)
{
	uint16_t size = (uint16_t)(m->size - at);

	memcpy(m->data + at, &size, sizeof size);
}

/* Send, and take an answer to each of the messages that asked for one. The kernel has answered when the send
 * returns. 0, or the first -errno. */
in_clone_child static int transact(int protocol, const struct message *m, unsigned answers)
{
	struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};
	struct iovec iov = {(void *)(uintptr_t)m->data, m->size};
	struct msghdr message = {.msg_name = &kernel,
				 .msg_namelen = sizeof kernel,
				 .msg_iov = &iov,
				 .msg_iovlen = 1};
	char answer[512];
	long fd = raw_call(SYS_socket, AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol, 0), n;
	int r = 0;

	if (fd < 0)
		return (int)fd;
	n = raw_call(SYS_sendmsg, fd, (long)&message, 0, 0);
	if (n < 0)
		r = (int)n;
	while (r == 0 && answers-- > 0) {
		struct nlmsgerr error;

		iov = (struct iovec){answer, sizeof answer};
		message = (struct msghdr){.msg_iov = &iov, .msg_iovlen = 1};
		n = raw_call(SYS_recvmsg, fd, (long)&message, MSG_DONTWAIT, 0);
		if (n < (long)(sizeof(struct nlmsghdr) + sizeof error)) {
			r = n < 0 ? (int)n : -EPROTO;
			break;
		}
		memcpy(&error, answer + sizeof(struct nlmsghdr), sizeof error);
		r = error.error;
	}
	raw_call(SYS_close, fd, 0, 0, 0);
	return r;
}

/* ---- routes ---- */

in_clone_child static int add_route(struct message *m, int family)
{
	const struct rtmsg route = {.rtm_family = (unsigned char)family,
				    .rtm_table = RT_TABLE_LOCAL,
				    .rtm_protocol = RTPROT_STATIC,
				    .rtm_scope =
					    family == AF_INET ? RT_SCOPE_HOST : RT_SCOPE_UNIVERSE,
				    .rtm_type = RTN_LOCAL};
	const uint32_t device = LOOPBACK_INDEX;

	m->size = 0;
	begin(m, RTM_NEWROUTE, NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL);
	add(m, &route, sizeof route);
	attribute(m, RTA_OIF, &device, sizeof device);
	close_header(m);
	return transact(NETLINK_ROUTE, m, 1);
}

/* ---- redirect: nf_tables calls the families as sockets do (NFPROTO_IPV4 is AF_INET) ---- */

#define NFPROTO_INET 1 /* linux/netfilter.h, which cannot be included beside musl's netinet/in.h */

#define TABLE "cloche"
#define CHAIN "capture"

in_clone_child static void begin_nft(struct message *m, uint8_t type, uint16_t flags,
				     uint8_t family)
{
	struct nfgenmsg g = {.nfgen_family = family, .version = NFNETLINK_V0};

	begin(m, (uint16_t)(NFNL_SUBSYS_NFTABLES << 8 | type), flags);
	add(m, &g, sizeof g);
}

in_clone_child static void batch(struct message *m, uint16_t type)
{
	struct nfgenmsg g = {.version = NFNETLINK_V0, .res_id = htons(NFNL_SUBSYS_NFTABLES)};

	begin(m, type, 0);
	add(m, &g, sizeof g);
	close_header(m);
}

/* One expression of a rule: between these two come its attributes. */
struct expression {
	uint32_t element, data;
};

in_clone_child static struct expression expression(struct message *m, const char *name)
{
	struct expression x = {.element = nest(m, NFTA_LIST_ELEM)};

	attribute_text(m, NFTA_EXPR_NAME, name);
	x.data = nest(m, NFTA_EXPR_DATA);
	return x;
}

in_clone_child static void expression_end(struct message *m, struct expression x)
{
	unnest(m, x.data);
	unnest(m, x.element);
}

in_clone_child static void data_value(struct message *m, uint16_t type, const void *value,
				      uint32_t size)
{
	uint32_t at = nest(m, type);

	attribute(m, NFTA_DATA_VALUE, value, size);
	unnest(m, at);
}

in_clone_child static void load_payload(struct message *m, uint32_t base, uint32_t offset,
					uint32_t size)
{
	struct expression x = expression(m, "payload");

	attribute_number(m, NFTA_PAYLOAD_DREG, NFT_REG_1);
	attribute_number(m, NFTA_PAYLOAD_BASE, base);
	attribute_number(m, NFTA_PAYLOAD_OFFSET, offset);
	attribute_number(m, NFTA_PAYLOAD_LEN, size);
	expression_end(m, x);
}

in_clone_child static void compare(struct message *m, uint32_t operation, const void *value,
				   uint32_t size)
{
	struct expression x = expression(m, "cmp");

	attribute_number(m, NFTA_CMP_SREG, NFT_REG_1);
	attribute_number(m, NFTA_CMP_OP, operation);
	data_value(m, NFTA_CMP_DATA, value, size);
	expression_end(m, x);
}

/* What is in one byte of the packet's metadata. */
in_clone_child static void only_with(struct message *m, uint32_t key, uint8_t value)
{
	struct expression x = expression(m, "meta");

	attribute_number(m, NFTA_META_DREG, NFT_REG_1);
	attribute_number(m, NFTA_META_KEY, key);
	expression_end(m, x);
	compare(m, NFT_CMP_EQ, &value, sizeof value);
}

in_clone_child static void only_beginnings(struct message *m)
{
	static const uint8_t syn_and_ack = 0x12, syn = 0x02, none = 0;
	struct expression x;

	only_with(m, NFT_META_L4PROTO, IPPROTO_TCP);
	load_payload(m, NFT_PAYLOAD_TRANSPORT_HEADER, 13, 1);
	x = expression(m, "bitwise");
	attribute_number(m, NFTA_BITWISE_SREG, NFT_REG_1);
	attribute_number(m, NFTA_BITWISE_DREG, NFT_REG_1);
	attribute_number(m, NFTA_BITWISE_LEN, 1);
	data_value(m, NFTA_BITWISE_MASK, &syn_and_ack, 1);
	data_value(m, NFTA_BITWISE_XOR, &none, 1);
	expression_end(m, x);
	compare(m, NFT_CMP_EQ, &syn, sizeof syn);
}

/* One byte of the address tells 127.0.0.0/8. */
in_clone_child static void not_to_loopback(struct message *m, uint8_t family)
{
	static const uint8_t first = 127;
	static const uint8_t one[16] = {[15] = 1};

	if (family == AF_INET) {
		load_payload(m, NFT_PAYLOAD_NETWORK_HEADER, 16, 1);
		compare(m, NFT_CMP_NEQ, &first, sizeof first);
	} else {
		load_payload(m, NFT_PAYLOAD_NETWORK_HEADER, 24, 16);
		compare(m, NFT_CMP_NEQ, one, sizeof one);
	}
}

in_clone_child static void not_these_ports(struct message *m)
{
	static const uint16_t ports[] = {53, 80, 443};

	load_payload(m, NFT_PAYLOAD_TRANSPORT_HEADER, 2, 2);
	for (unsigned i = 0; i < sizeof ports / sizeof *ports; i++) {
		uint16_t port = htons(ports[i]);

		compare(m, NFT_CMP_NEQ, &port, sizeof port);
	}
}

in_clone_child static void to_any(struct message *m, uint8_t family)
{
	const uint16_t port = htons(ANY_PORT);
	struct expression x = expression(m, "immediate");

	attribute_number(m, NFTA_IMMEDIATE_DREG, NFT_REG_1);
	data_value(m, NFTA_IMMEDIATE_DATA, &port, sizeof port);
	expression_end(m, x);
	x = expression(m, "tproxy");
	attribute_number(m, NFTA_TPROXY_FAMILY, family);
	attribute_number(m, NFTA_TPROXY_REG_PORT, NFT_REG_1);
	expression_end(m, x);
}

in_clone_child static void add_chain(struct message *m)
{
	uint32_t hook;

	begin_nft(m, NFT_MSG_NEWCHAIN, NLM_F_CREATE, NFPROTO_INET);
	attribute_text(m, NFTA_CHAIN_TABLE, TABLE);
	attribute_text(m, NFTA_CHAIN_NAME, CHAIN);
	hook = nest(m, NFTA_CHAIN_HOOK);
	attribute_number(m, NFTA_HOOK_HOOKNUM, 0);               /* NF_INET_PRE_ROUTING */
	attribute_number(m, NFTA_HOOK_PRIORITY, (uint32_t)-150); /* NF_IP_PRI_MANGLE */
	unnest(m, hook);
	attribute_text(m, NFTA_CHAIN_TYPE, "filter");
	close_header(m);
}

in_clone_child static void add_rule(struct message *m, uint8_t family, uint16_t flags)
{
	uint32_t list;

	begin_nft(m, NFT_MSG_NEWRULE, NLM_F_CREATE | NLM_F_APPEND | flags, NFPROTO_INET);
	attribute_text(m, NFTA_RULE_TABLE, TABLE);
	attribute_text(m, NFTA_RULE_CHAIN, CHAIN);
	list = nest(m, NFTA_RULE_EXPRESSIONS);
	only_with(m, NFT_META_NFPROTO, family);
	only_beginnings(m);
	not_to_loopback(m, family);
	not_these_ports(m);
	to_any(m, family);
	unnest(m, list);
	close_header(m);
}

/* One batch: all of it or nothing. Only the last message is answered when all is well; a failure is answered at
 * once, whatever was asked for. */
in_clone_child static int add_redirect(struct message *m, bool ipv6)
{
	m->size = 0;
	batch(m, NFNL_MSG_BATCH_BEGIN);
	begin_nft(m, NFT_MSG_NEWTABLE, NLM_F_CREATE, NFPROTO_INET);
	attribute_text(m, NFTA_TABLE_NAME, TABLE);
	close_header(m);
	add_chain(m);
	add_rule(m, AF_INET, ipv6 ? 0 : NLM_F_ACK);
	if (ipv6)
		add_rule(m, AF_INET6, NLM_F_ACK);
	batch(m, NFNL_MSG_BATCH_END);
	return transact(NETLINK_NETFILTER, m, 1);
}

/* ---- listeners ---- */

static const struct kind {
	uint32_t kind;
	uint16_t port;
	bool datagram;
	bool loopback; /* there only; else on every address */
} kinds[] = {
	{LISTEN_PROXY, EGRESS_PROXY_PORT, false, true},
	{LISTEN_HTTP, 80, false, false},
	{LISTEN_TLS, 443, false, false},
	{LISTEN_DNS, 53, true, false},
	{LISTEN_DNS_TCP, 53, false, false},
};
static const struct kind any = {LISTEN_ANY, ANY_PORT, false,
				true}; /* and transparent: tproxy's condition */

in_clone_child static long set(long fd, int level, int option)
{
	static const int on = 1;

	return raw_call5(SYS_setsockopt, fd, level, option, (long)&on, sizeof on);
}

/* UDP answers have to come from the address that was asked, which no interface has. */
in_clone_child static long set_datagram(long fd, int family)
{
	long r;

	if (family == AF_INET)
		return set(fd, SOL_IP, IP_PKTINFO);
	r = set(fd, SOL_IPV6, IPV6_RECVPKTINFO);
	return r < 0 ? r : set(fd, SOL_IPV6, IPV6_FREEBIND);
}

in_clone_child static long bind_to(long fd, int family, const struct kind *k)
{
	struct sockaddr_in a4 = {.sin_family = AF_INET, .sin_port = htons(k->port)};
	struct sockaddr_in6 a6 = {.sin6_family = AF_INET6, .sin6_port = htons(k->port)};

	if (k->loopback) {
		a4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		a6.sin6_addr.s6_addr[15] = 1;
	}
	return family == AF_INET ? raw_call(SYS_bind, fd, (long)&a4, sizeof a4, 0)
				 : raw_call(SYS_bind, fd, (long)&a6, sizeof a6, 0);
}

in_clone_child static int add_listener(struct capture *c, int family, const struct kind *k)
{
	int type = (k->datagram ? SOCK_DGRAM : SOCK_STREAM) | SOCK_NONBLOCK | SOCK_CLOEXEC;
	long fd = raw_call(SYS_socket, family, type, 0, 0), r = 0;

	if (fd < 0)
		return (int)fd;
	c->kinds[c->count] = k->kind;
	c->fds[c->count++] = (int)fd;
	if (family == AF_INET6)
		r = set(fd, SOL_IPV6, IPV6_V6ONLY);
	if (r == 0 && k->kind == LISTEN_ANY)
		r = family == AF_INET ? set(fd, SOL_IP, IP_TRANSPARENT)
				      : set(fd, SOL_IPV6, IPV6_TRANSPARENT);
	if (r == 0)
		r = bind_to(fd, family, k);
	if (r == 0)
		r = k->datagram ? set_datagram(fd, family)
				: raw_call(SYS_listen, fd, BACKLOG, 0, 0);
	return (int)r;
}

in_clone_child static int add_family(struct capture *c, struct message *m, int family)
{
	int r = add_route(m, family);

	for (unsigned i = 0; r == 0 && i < sizeof kinds / sizeof *kinds; i++)
		r = add_listener(c, family, &kinds[i]);
	return r;
}

/* Is there an address ::1? Not without IPv6, nor where net.ipv6.conf.*.disable_ipv6 is what new namespaces get. */
in_clone_child static bool has_ipv6(void)
{
	static const struct kind probe = {.port = 0, .loopback = true};
	long fd = raw_call(SYS_socket, AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0, 0);
	bool has;

	if (fd < 0)
		return false;
	has = bind_to(fd, AF_INET6, &probe) == 0;
	raw_call(SYS_close, fd, 0, 0, 0);
	return has;
}

in_clone_child int capture_make(struct capture *c)
{
	bool ipv6 = has_ipv6();
	struct message m;
	int r;

	m.sequence = 0;
	r = add_family(c, &m, AF_INET);
	if (r == 0 && ipv6)
		r = add_family(c, &m, AF_INET6);
	if (r < 0)
		return r;
	c->redirect = add_redirect(&m, ipv6) == 0;
	if (c->redirect)
		r = add_listener(c, AF_INET, &any);
	if (c->redirect && r == 0 && ipv6)
		r = add_listener(c, AF_INET6, &any);
	return r;
}

void capture_done(struct capture *c)
{
	for (uint32_t i = 0; i < c->count; i++)
		close(c->fds[i]);
	c->count = 0;
}
