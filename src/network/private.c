/* SPDX-License-Identifier: Apache-2.0 */
/* private.c - whether somebody else's rule may lead inside: to addresses that are not public. */
#include <string.h>

#include "base/address.h"
#include "network/rule.h"

static bool is_within(const struct network_net *inner, const char *outer)
{
	struct network_net net;
	struct err e;

	return network_net_read(outer, strlen(outer), &net, &e) == 0 && net.bits <= inner->bits &&
	       network_net_has(&net, (const struct sockaddr *)&inner->address);
}

static bool is_open(const struct network_net *net, const char *const *nets, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (is_within(net, nets[i]))
			return true;
	return false;
}

int network_private_check(const char *net, struct err *e)
{
	struct network_net ignored;

	return network_net_read(net, strlen(net), &ignored, e);
}

int network_rule_check_private(const char *text, const char *const *nets, size_t count,
			       struct err *e)
{
	struct network_rule r = {0};
	bool fits = true;

	text += strspn(text, " \t");
	if (network_rule_read(&r, false, text, e) < 0) {
		network_rule_done(&r);
		return -1;
	}
	if (r.is_address && reach_of((const struct sockaddr *)&r.address) != REACH_PUBLIC)
		r.nets[r.net_count++] =
			(struct network_net){r.address, r.address.ss_family == AF_INET ? 32 : 128};
	for (size_t i = 0; i < r.net_count; i++)
		fits &= is_open(&r.nets[i], nets, count);
	network_rule_done(&r);
	return fits ? 0
		    : err_set(e, EPERM,
			      "allow %.200s: the operator's policy does not open these addresses (network_private)",
			      text);
}
