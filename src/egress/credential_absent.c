/* SPDX-License-Identifier: Apache-2.0 */
/* Until credential.c and redact.c are merged: there are no credentials, so nothing is added and nothing is redacted. */
#include "egress/credential.h"

const struct credential *credential_for(const struct egress_settings *s, const char *host,
					uint16_t port)
{
	(void)s, (void)host, (void)port;
	return NULL;
}

bool credential_replaces(const struct credential *c, const char *name)
{
	(void)c, (void)name;
	return true;
}

char *credential_target(const struct credential *c, const char *target)
{
	(void)c, (void)target;
	return NULL;
}

struct redactor *redactor_new(const struct egress_settings *s)
{
	(void)s;
	return NULL;
}

void redactor_free(struct redactor *r)
{
	(void)r;
}

int redactor_feed(struct redactor *r, const void *data, size_t size, bool last, const char **ret,
		  size_t *ret_size)
{
	(void)r, (void)data, (void)size, (void)last, (void)ret, (void)ret_size;
	return -ENOSYS;
}

bool redact(const struct redactor *r, char *text, size_t size)
{
	(void)r, (void)text, (void)size;
	return false;
}
