/* SPDX-License-Identifier: Apache-2.0 */
/* policy.c - the text of a policy, line by line; each kind of line is a row of a table. */
#include "network/policy.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/units.h"
#include "network/rule.h"

static const char *const modes[NETWORK_MODE_COUNT] = {"none", "allow", "open"};

enum network_mode network_mode_find(const char *name)
{
	int i = 0;

	while (i < NETWORK_MODE_COUNT && strcmp(modes[i], name) != 0)
		i++;
	return (enum network_mode)i;
}

const char *network_mode_name(enum network_mode mode)
{
	return mode < NETWORK_MODE_COUNT ? modes[mode] : "?";
}

int network_name_check(const char *name, struct err *e)
{
	size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_-");

	if (n == 0 || name[n] || n >= NETWORK_NAME_SIZE || !isalnum((unsigned char)*name))
		return err_set(
			e, 0,
			"name \"%.70s\": give 1 to %d of a-z, 0-9, - and _, the first a letter or digit",
			name, NETWORK_NAME_SIZE - 1);
	return 0;
}

int network_rule_check(const char *verb, const char *text, struct err *e)
{
	struct network_rule rule = {0};
	int r;

	text += strspn(text, " \t");
	if (strchr(text, '#'))
		return err_set(e, 0, "\"%.60s\": has no room for a comment (#)", text);
	r = network_rule_read(&rule, strcmp(verb, "deny") == 0, text, e);
	network_rule_done(&rule);
	return r;
}

/* ---- lines ---- */

struct reader {
	struct network_policy *p;
	const char *source; /* of the block we are in, or NULL */
};

static int line_rule(struct reader *r, const char *rest, bool deny, struct err *e)
{
	struct network_policy *p = r->p;
	struct network_rule *more;

	if (p->rule_count == POLICY_RULES_MAX)
		return err_set(e, 0, "more than %d rules", POLICY_RULES_MAX);
	if (p->rule_count % 64 == 0) {
		more = reallocarray(p->rules, p->rule_count + 64, sizeof *more);
		if (!more)
			return err_set(e, ENOMEM, "keep a rule");
		p->rules = more;
	}
	more = &p->rules[p->rule_count];
	if (network_rule_read(more, deny, rest, e) < 0) {
		network_rule_done(more);
		return -1;
	}
	more->source = r->source;
	p->rule_count++;
	return 0;
}

static int line_allow(struct reader *r, const char *rest, struct err *e)
{
	return line_rule(r, rest, false, e);
}

static int line_deny(struct reader *r, const char *rest, struct err *e)
{
	return line_rule(r, rest, true, e);
}

/* "NAME {" begins its lines, put in by who expanded them. */
static int line_preset(struct reader *r, const char *rest, struct err *e)
{
	char name[NETWORK_NAME_SIZE];
	size_t n = strcspn(rest, " \t");
	char **more;

	if (n >= sizeof name)
		n = sizeof name - 1;
	memcpy(name, rest, n);
	name[n] = '\0';
	if (network_name_check(name, e) < 0)
		return -1;
	rest += n + strspn(rest + n, " \t");
	if (r->source)
		return err_set(e, 0, "preset %s: stands within another's lines", name);
	if (strcmp(rest, "{") != 0)
		return err_set(
			e, 0,
			"preset %s: its lines have not been put in (a preset stands in a request only)",
			name);
	more = reallocarray(r->p->sources, r->p->source_count + 1, sizeof *more);
	if (!more)
		return err_set(e, ENOMEM, "keep a preset");
	r->p->sources = more;
	if (asprintf(&more[r->p->source_count], "preset %s", name) < 0)
		return err_set(e, ENOMEM, "keep a preset");
	r->source = more[r->p->source_count++];
	return 0;
}

static int line_end(struct reader *r, const char *rest, struct err *e)
{
	if (!r->source || *rest)
		return err_set(e, 0, "}: ends no preset");
	r->source = NULL;
	return 0;
}

/* NAME, or NAME for HOST:PORT once the store has been asked. */
static int line_credential(struct reader *r, const char *rest, struct err *e)
{
	struct network_policy *p = r->p;
	struct network_credential c = {.port = 443};
	char words[RULE_TEXT_MAX], *save = NULL, *name, *word, *host, *colon;
	struct network_credential *more;
	uint64_t port = 443;

	if (strlen(rest) >= sizeof words)
		return err_set(e, 0, "is longer than %d bytes", RULE_TEXT_MAX - 1);
	memcpy(words, rest, strlen(rest) + 1);
	name = strtok_r(words, " \t", &save);
	if (network_name_check(name ? name : "", e) < 0)
		return -1;
	memcpy(c.name, name, strlen(name));
	word = strtok_r(NULL, " \t", &save);
	if (word) {
		host = strtok_r(NULL, " \t", &save);
		colon = host ? strrchr(host, ':') : NULL;
		if (strcmp(word, "for") != 0 || !colon || strtok_r(NULL, " \t", &save) ||
		    network_host(host, (size_t)(colon - host), c.host) < 0 ||
		    parse_count(colon + 1, 1, 65535, &port) < 0)
			return err_set(e, 0, "credential %s: give its name only", c.name);
		c.port = (uint16_t)port;
	}
	for (size_t i = 0; i < p->credential_count; i++)
		if (strcmp(p->credentials[i].name, c.name) == 0)
			return 0;
	more = reallocarray(p->credentials, p->credential_count + 1, sizeof *more);
	if (!more)
		return err_set(e, ENOMEM, "keep a credential");
	p->credentials = more;
	more[p->credential_count++] = c;
	return 0;
}

static void lower(uint64_t *field, uint64_t value)
{
	if (value < *field)
		*field = value;
}

static int line_bytes(struct reader *r, const char *rest, struct err *e)
{
	uint64_t v;

	if (parse_size(rest, &v) < 0)
		return err_set(e, 0, "max-bytes \"%.40s\": give a size such as 100m or 1g", rest);
	lower(&r->p->quota.bytes, v);
	return 0;
}

static int line_connections(struct reader *r, const char *rest, struct err *e)
{
	uint64_t v;

	if (parse_count(rest, 1, NETWORK_CONNECTIONS_MAX, &v) < 0)
		return err_set(e, 0, "max-connections \"%.40s\": give a number from 1 on", rest);
	lower(&r->p->quota.connections, v);
	return 0;
}

static int line_open(struct reader *r, const char *rest, struct err *e)
{
	uint64_t v;

	if (parse_count(rest, 1, NETWORK_OPEN_MAX, &v) < 0)
		return err_set(e, 0, "max-open \"%.40s\": give a number from 1 to %d", rest,
			       NETWORK_OPEN_MAX);
	lower(&r->p->quota.open, v);
	return 0;
}

static const struct {
	const char *word;
	int (*read)(struct reader *r, const char *rest, struct err *e);
} lines[] = {
	{"allow", line_allow},
	{"deny", line_deny},
	{"preset", line_preset},
	{"}", line_end},
	{"credential", line_credential},
	{"max-bytes", line_bytes},
	{"max-connections", line_connections},
	{"max-open", line_open},
};

static int read_line(struct reader *r, const char *line, struct err *e)
{
	size_t n = strcspn(line, " \t");

	for (size_t i = 0; i < ARRAY_SIZE(lines); i++)
		if (strlen(lines[i].word) == n && strncmp(lines[i].word, line, n) == 0)
			return lines[i].read(r, line + n + strspn(line + n, " \t"), e);
	return err_set(
		e, 0,
		"\"%.*s\": a line begins with allow, deny, preset, credential, max-bytes, max-connections or max-open",
		(int)(n < 40 ? n : 40), line);
}

/* A line without its comment and the blanks around it: "" if nothing is left. -1: too long, or not text. */
static int clean_line(const char *text, size_t size, char line[static RULE_TEXT_MAX], struct err *e)
{
	const char *hash = memchr(text, '#', size);

	if (hash)
		size = (size_t)(hash - text);
	while (size && (text[size - 1] == ' ' || text[size - 1] == '\t' || text[size - 1] == '\r'))
		size--;
	while (size && (*text == ' ' || *text == '\t')) {
		text++;
		size--;
	}
	if (size >= RULE_TEXT_MAX)
		return err_set(e, 0, "is longer than %d bytes", RULE_TEXT_MAX - 1);
	if (memchr(text, 0, size))
		return err_set(e, 0, "has a NUL character");
	memcpy(line, text, size);
	line[size] = '\0';
	return 0;
}

static int read_text(struct reader *r, const char *text, size_t size, const char *where,
		     struct err *e)
{
	char line[RULE_TEXT_MAX];
	size_t number = 0;

	if (size > POLICY_PARSED_MAX)
		return err_set(e, 0, "%s: %zu bytes of rules, at most %d", where, size,
			       POLICY_PARSED_MAX);
	while (size) {
		const char *end = memchr(text, '\n', size);
		size_t n = end ? (size_t)(end - text) : size;

		number++;
		if (clean_line(text, n, line, e) < 0 || (*line && read_line(r, line, e) < 0))
			return err_prefix(e, "%s line %zu", where, number);
		n += end ? 1 : 0;
		text += n;
		size -= n;
	}
	return r->source ? err_set(e, 0, "%s: %s has no end", where, r->source) : 0;
}

int network_policy_parse(const char *text, size_t size, const char *where, enum network_mode mode,
			 struct network_policy **ret, struct err *e)
{
	struct network_policy *p = calloc(1, sizeof *p);
	struct reader r = {.p = p};

	if (!p)
		return err_set(e, ENOMEM, "keep a policy");
	p->mode = mode;
	p->quota = (struct network_quota){UINT64_MAX, UINT64_MAX, UINT64_MAX};
	if (read_text(&r, text, size, where, e) < 0) {
		network_policy_free(p);
		return -1;
	}
	*ret = p;
	return 0;
}

void network_policy_free(struct network_policy *p)
{
	if (!p)
		return;
	for (size_t i = 0; i < p->rule_count; i++)
		network_rule_done(&p->rules[i]);
	for (size_t i = 0; i < p->source_count; i++)
		free(p->sources[i]);
	free(p->rules);
	free(p->sources);
	free(p->credentials);
	free(p);
}

bool network_policy_looks(const struct network_policy *p)
{
	for (size_t i = 0; i < p->rule_count; i++)
		if (network_rule_looks(&p->rules[i]) && p->rules[i].scheme != SCHEME_HTTP)
			return true;
	return false;
}

const char *network_policy_credential(const struct network_policy *p, size_t i)
{
	return i < p->credential_count ? p->credentials[i].name : NULL;
}
