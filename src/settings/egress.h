/* SPDX-License-Identifier: Apache-2.0 */
/*
 * egress.h - what an egress process is told (egress/config.h), made of a spec and of what the files say.
 *
 * Presets are put in, and the values of those credentials fetched that the spec names. Refusals are typed: errnum ENOENT
 * for a preset or credential that is not there, EPERM for one that is not this owner's, or beyond the operator's
 * policy; the sentence names it.
 */
#ifndef SETTINGS_EGRESS_H
#define SETTINGS_EGRESS_H

#include "network/preset.h"
#include "settings/settings.h"

/* The stage of a refusal for a preset or credential that is not there: what was asked for is wrong, nothing failed. */
#define STAGE_RULES "rules"

/* Where presets are looked for: a user's own, the operator's, those that come with cloche. */
void settings_preset_folders(const struct places *places, struct preset_folders *ret);

/* The request's rules as text, presets put in, and each credential with its host. The caller's. NULL and e. */
char *settings_network_rules(const struct settings *t, const struct places *places,
			     const struct spec *s, struct err *e) must_check;

/* The operator's, "" if there are none. The caller's; NULL at ENOMEM. */
char *settings_network_ceiling(const struct settings *t);

/* Both, parsed. *ret_ceiling NULL: there is none. */
int settings_network_policies(const struct settings *t, const struct places *places,
			      const struct spec *s, struct network_policy **ret_request,
			      struct network_policy **ret_ceiling, struct err *e) must_check;

/* The whole configuration as JSON text, to be freed with settings_egress_free(); NULL for mode none. owner NULL: a run without a service.
 * ret_opens_tls (may be NULL): a rule or credential asks for TLS to be opened. Blocks while a credential's command runs. */
int settings_egress_config(const struct settings *t, const struct places *places,
			   const struct spec *s, const char *owner, char **ret_json,
			   bool *ret_opens_tls, struct err *e) must_check;

/* {"mode":…,"rules":…} for a sandbox that is there already: s has its new rules (mode none: nothing more), and the
 * credentials that it was made with. No secret is in it. */
int settings_egress_rules(const struct settings *t, const struct places *places,
			  const struct spec *s, const char *owner, char **ret_json,
			  struct err *e) must_check;

/* Overwrites it. NULL is fine. */
void settings_egress_free(char *json);

#endif
