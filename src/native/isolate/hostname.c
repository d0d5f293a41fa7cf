/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "native/isolate/isolate.h"

int setdomainname(const char *, size_t); /* musl hides it behind _GNU_SOURCE variants */

int isolate_hostname(struct isolation *s)
{
	const char *name = s->plan->hostname;

	if (sethostname(name, strlen(name)) < 0)
		return step_failed(s, errno, "set host name");
	if (setdomainname("(none)", 6) < 0)
		return step_failed(s, errno, "set domain name");
	return 0;
}
