/* SPDX-License-Identifier: Apache-2.0 */
#include "registry/proxy.h"

#include <arpa/inet.h>
#include <stdint.h>
#include <string.h>
#include <strings.h>

#include "base/units.h"
#include "base/address.h"

/* Is the address host in the network text = "10.0.0.0/8"? */
static bool is_in_network(const char *text, const char *host)
{
	unsigned char net[16], address[16];
	char *slash = strchr(text, '/');
	int family = strchr(host, ':') ? AF_INET6 : AF_INET;
	uint64_t bits, bytes;

	if (!slash || parse_count(slash + 1, 0, family == AF_INET ? 32 : 128, &bits) < 0)
		return false;
	*slash = '\0';
	if (inet_pton(family, text, net) != 1 || inet_pton(family, host, address) != 1)
		return false;
	bytes = bits / 8;
	return memcmp(net, address, bytes) == 0 &&
	       (bits % 8 == 0 || (net[bytes] ^ address[bytes]) >> (8 - bits % 8) == 0);
}

/* "[::1]:80" and "host:80" lose their port, which must then be the one; brackets go, too. */
static bool take_port(char **word, unsigned port)
{
	char *w = *word, *colon = strrchr(w, ':');
	uint64_t n;

	if (*w == '[') {
		char *end = strchr(w, ']');

		if (!end)
			return false;
		*end = '\0';
		*word = w + 1;
		colon = end[1] == ':' ? end + 1 : NULL;
	} else if (colon && strchr(w, ':') != colon) {
		return true; /* an IPv6 address without brackets */
	}
	if (!colon)
		return true;
	if (parse_count(colon + 1, 1, 65535, &n) < 0 || n != port)
		return false;
	*colon = '\0';
	return true;
}

static bool matches(char *word, const char *host, unsigned port)
{
	size_t n, size = strlen(host);

	if (strcmp(word, "*") == 0)
		return true;
	if (strchr(word, '/'))
		return is_in_network(word, host);
	if (!take_port(&word, port))
		return false;
	if (*word == '*')
		word++;
	while (*word == '.')
		word++;
	n = strlen(word);
	if (n == 0 || n > size || strcasecmp(host + size - n, word) != 0)
		return false;
	return n == size || host[size - n - 1] == '.';
}

bool proxy_is_excepted(const char *list, const char *host, unsigned port)
{
	char word[256];

	while (*list) {
		size_t n = strcspn(list, ", \t");

		if (n > 0 && n < sizeof word) {
			memcpy(word, list, n);
			word[n] = '\0';
			if (matches(word, host, port))
				return true;
		}
		list += n;
		list += strspn(list, ", \t");
	}
	return false;
}

static const char *variable(const char *lower, const char *upper)
{
	const char *value = getenv(lower);

	if (!value || !*value)
		value = getenv(upper);
	return value && *value ? value : NULL;
}

const char *proxy_for(const struct url *u)
{
	const char *no = variable("no_proxy", "NO_PROXY");
	const char *proxy = u->tls ? variable("https_proxy", "HTTPS_PROXY")
				   : variable("http_proxy", "HTTP_PROXY");

	if (!proxy)
		proxy = variable("all_proxy", "ALL_PROXY");
	if (!proxy || reach_of_host(u->host) == REACH_LOCAL)
		return NULL;
	return no && proxy_is_excepted(no, u->host, u->port) ? NULL : proxy;
}
