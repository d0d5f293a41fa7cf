/* SPDX-License-Identifier: Apache-2.0 */
/* policy.h - what the command line says of a spec's network. */
#ifndef CLI_POLICY_H
#define CLI_POLICY_H

#include <stdio.h>

#include "cli/cli.h"

/* Names of the option table's rows that are about the network, for a list of rows; and as a list, which ends with NULL. */
#define NETWORK_ROWS \
	"network", "allow", "deny", "preset", "credential", "network-bytes", "network-connections"
extern const char *const network_rows[];

/* On stderr, a line each: what whoever gave these --allow should know. */
void policy_warn(const struct spec *s);
void policy_print_warnings(const struct network_policy *p, FILE *out);

/* {"mode","rules":[…],"operator":[…],"credentials":[{"name","host","port"}],"warnings":[…]}: presets put in, no secret read.
 * NULL and e. */
json_t *policy_json(const struct settings *t, const struct places *places, const struct spec *s,
		    struct err *e) must_check;

#endif
