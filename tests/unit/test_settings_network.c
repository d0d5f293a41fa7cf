/* SPDX-License-Identifier: Apache-2.0 */
/* What files say of the network: the ceiling, names, credentials, presets; and what an egress process is told of it. */
#include "unit.h"

#include <jansson.h>

#include "settings/egress.h"
#include "settings/secret.h"

struct scene {
	char path[256];
	int dir;
	struct places places;
	struct settings settings;
	struct spec spec;
	struct err e;
};

static void begin(struct scene *s)
{
	*s = (struct scene){0};
	s->dir = scratch_make(s->path);
	mkdirat(s->dir, "etc", 0755);
	mkdirat(s->dir, "etc/presets", 0755);
	mkdirat(s->dir, "user", 0755);
	mkdirat(s->dir, "user/presets", 0755);
	snprintf(s->places.system_config, sizeof s->places.system_config, "%.45s/etc/cloche.yaml",
		 s->path);
	snprintf(s->places.config, sizeof s->places.config, "%s/user/cloche.yaml", s->path);
	s->places.rootless = true;
	assert_int_equal(spec_init(&s->spec, &s->e), 0);
}

static void end(struct scene *s)
{
	close(s->dir);
	settings_done(&s->settings);
	spec_done(&s->spec);
	scratch_remove(s->path);
}

/* A file with every "@" replaced by the scratch folder. */
static void file_at(const struct scene *s, const char *name, const char *text)
{
	char full[4096] = "";
	size_t n = 0;

	for (; *text; text++)
		n += (size_t)snprintf(full + n, sizeof full - n, *text == '@' ? "%s" : "%.1s",
				      *text == '@' ? s->path : text);
	text_at(s->dir, name, full);
}

static void loaded(struct scene *s)
{
	if (settings_load(&s->settings, &s->places, false, &s->spec, &s->e) < 0)
		fail_msg("%s", s->e.text);
}

static void set(struct scene *s, const char *option, const char *value)
{
	if (spec_set(&s->spec, option_find(option), value, &s->e) < 0)
		fail_msg("%s", s->e.text);
	s->settings.origins[option_find(option) - options] = ORIGIN_FLAG;
}

static json_t *configured(struct scene *s, const char *owner)
{
	char *text = NULL;
	json_t *j;

	if (settings_egress_config(&s->settings, &s->places, &s->spec, owner, &text, NULL, &s->e) <
	    0)
		fail_msg("%s", s->e.text);
	j = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
	assert_non_null(j);
	settings_egress_free(text);
	return j;
}

static void not_configured(struct scene *s, const char *owner, int errnum, const char *why)
{
	char *text = NULL;

	assert_int_equal(settings_egress_config(&s->settings, &s->places, &s->spec, owner, &text,
						NULL, &s->e),
			 -1);
	assert_null(text);
	assert_contains(s->e.text, why);
	assert_int_equal(s->e.errnum, errnum);
}

static const char *text_of(json_t *j, const char *key)
{
	const char *text = json_string_value(json_object_get(j, key));

	return text ? text : "(none)";
}

/* ---- files that are refused ---- */

static void test_refused(void **state)
{
	static const struct {
		const char *text, *why;
	} rows[] = {
		{"policy:\n  network: some\n", "network is none, allow or open"},
		{"policy:\n  network: [allow]\n", "network is none, allow or open"},
		{"policy:\n  network_allow: []\n", "network_allow: is empty"},
		{"policy:\n  network_allow: pypi.org\n", "network_allow must be a list"},
		{"policy:\n  network_allow: ['*']\n",
		 "network_allow: \"*\" would allow every host"},
		{"policy:\n  network_allow: [[a]]\n", "network_allow must be a list of texts"},
		{"policy:\n  network_deny: ['a b']\n", "network_deny: "},
		{"policy:\n  network_private: [10.0.0.1/8]\n", "network_private: network"},
		{"policy:\n  network_hosts: [a]\n", "network_hosts is no limit"},
		{"resolve: [a]\n", "resolve: must be a mapping"},
		{"resolve:\n  A.b: [127.0.0.1]\n", "resolve: \"A.b\""},
		{"resolve:\n  10.0.0.1: [127.0.0.1]\n", "resolve: \"10.0.0.1\""},
		{"resolve:\n  a.b: 127.0.0.1\n", "resolve: a.b: must be a list"},
		{"resolve:\n  a.b: []\n", "resolve: a.b: must be a list"},
		{"resolve:\n  a.b: [c.d]\n", "resolve: a.b: \"c.d\" is no address"},
		{"resolve:\n  a.b: [127.1]\n", "resolve: a.b: \"127.1\" is no address"},
		{"upstream_ca: ca.pem\n", "upstream_ca: must be the absolute path"},
		{"credentials: [a]\n", "credentials: must be a mapping"},
		{"credentials:\n  GIT: {host: a.b, header: X, env: Y}\n",
		 "credentials: name \"GIT\""},
		{"credentials:\n  g: x\n", "credentials: g: must be a mapping"},
		{"credentials:\n  g: {header: X, env: Y}\n", "g: needs host"},
		{"credentials:\n  g: {host: a.b, env: Y}\n", "g: needs one of header and query"},
		{"credentials:\n  g: {host: a.b, header: X, query: k, env: Y}\n",
		 "g: needs one of header and query"},
		{"credentials:\n  g: {host: a.b, header: X}\n",
		 "g: needs one of file, env and command"},
		{"credentials:\n  g: {host: a.b, header: X, env: Y, file: /z}\n",
		 "g: needs one of file, env and command"},
		{"credentials:\n  g: {host: '*.b', header: X, env: Y}\n", "g: host: \"*.b\""},
		{"credentials:\n  g: {host: A.b, header: X, env: Y}\n", "g: host: \"A.b\""},
		{"credentials:\n  g: {host: a.b, port: 0, header: X, env: Y}\n", "g: port:"},
		{"credentials:\n  g: {host: a.b, header: 'X: y', env: Y}\n", "g: header:"},
		{"credentials:\n  g: {host: a.b, header: Host, env: Y}\n",
		 "g: header: Host belongs"},
		{"credentials:\n  g: {host: a.b, header: content-length, env: Y}\n",
		 "g: header: content-length belongs"},
		{"credentials:\n  g: {host: a.b, query: 'a&b', env: Y}\n", "g: query:"},
		{"credentials:\n  g: {host: a.b, header: X, value: Bearer, env: Y}\n", "g: value:"},
		{"credentials:\n  g: {host: a.b, header: X, value: '{}{}', env: Y}\n", "g: value:"},
		{"credentials:\n  g: {host: a.b, header: X, value: \"{}\\r\\nA: b\", env: Y}\n",
		 "g: value:"},
		{"credentials:\n  g: {host: a.b, header: X, file: z}\n",
		 "g: file: must be an absolute path"},
		{"credentials:\n  g: {host: a.b, header: X, env: 'A=B'}\n", "g: env:"},
		{"credentials:\n  g: {host: a.b, header: X, command: /bin/true}\n",
		 "g: command: must be a list"},
		{"credentials:\n  g: {host: a.b, header: X, command: [true]}\n",
		 "g: command: must be a list"},
		{"credentials:\n  g: {host: a.b, header: X, env: Y, owners: []}\n", "g: owners:"},
		{"credentials:\n  g: {host: a.b, header: X, env: Y, secret: z}\n",
		 "g: unknown key secret"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct scene s;

		begin(&s);
		file_at(&s, "etc/cloche.yaml", rows[i].text);
		if (settings_load(&s.settings, &s.places, false, &s.spec, &s.e) == 0)
			fail_msg("taken: %s", rows[i].text);
		assert_contains(s.e.text, rows[i].why);
		end(&s);
	}
}

/* A user says what a name is only where no operator has said what may be reached. */
static void test_users_own_file(void **state)
{
	struct scene s;

	(void)state;
	begin(&s);
	file_at(&s, "user/cloche.yaml",
		"resolve:\n  a.b: [127.0.0.1]\ncredentials:\n  g: {host: a.b, header: X, env: Y}\n");
	loaded(&s);
	assert_non_null(json_object_get(s.settings.network.resolve, "a.b"));
	end(&s);
	begin(&s);
	file_at(&s, "etc/cloche.yaml",
		"policy:\n  network_deny: [x.y]\nresolve:\n  c.d: [10.0.0.1]\n");
	file_at(&s, "user/cloche.yaml", "credentials:\n  g: {host: a.b, header: X, env: Y}\n");
	loaded(&s);
	assert_non_null(json_object_get(s.settings.network.credentials, "g"));
	settings_done(&s.settings);
	file_at(&s, "user/cloche.yaml", "resolve:\n  a.b: [127.0.0.1]\n");
	assert_int_equal(settings_load(&s.settings, &s.places, false, &s.spec, &s.e), -1);
	assert_contains(s.e.text, "resolve: the operator's policy");
	end(&s);
}

/* ---- the ceiling ---- */

static void policy_says(struct scene *s, const char *why)
{
	int r = settings_apply_policy(&s->settings, &s->spec, &s->e);

	if (!why && r < 0)
		fail_msg("%s", s->e.text);
	assert_int_equal(r, why ? -1 : 0);
	if (!why)
		return;
	assert_contains(s->e.text, why);
	assert_int_equal(s->e.errnum, EPERM);
}

static void test_highest_mode(void **state)
{
	static const char *const names[] = {"none", "allow", "open"};

	(void)state;
	for (int most = 0; most < 3; most++)
		for (int asked = 0; asked < 3; asked++) {
			struct scene s;
			char text[64];

			begin(&s);
			snprintf(text, sizeof text, "policy:\n  network: %s\n", names[most]);
			file_at(&s, "etc/cloche.yaml", text);
			loaded(&s);
			set(&s, "network", names[asked]);
			policy_says(&s, asked > most ? "--network " : NULL);
			end(&s);
		}
}

static void test_private_addresses(void **state)
{
	static const struct {
		const char *policy, *allow;
		bool serves, fine;
	} rows[] = {
		{"", "a.b within=10.0.0.0/8", false, true},
		{"", "a.b within=10.0.0.0/8", true, false},
		{"", "10.0.0.1:80", true, false},
		{"", "127.0.0.1:80", true, false},
		{"", "8.8.8.8:53", true, true},
		{"", "a.b within=8.8.8.0/24", true, false},
		{"", "a.b", true, true},
		{"policy:\n  network_private: [10.0.0.0/8]\n", "a.b within=10.1.0.0/16", true,
		 true},
		{"policy:\n  network_private: [10.0.0.0/8]\n", "a.b within=10.0.0.0/8", false,
		 true},
		{"policy:\n  network_private: [10.1.0.0/16]\n", "a.b within=10.0.0.0/8", true,
		 false},
		{"policy:\n  network_private: [10.1.0.0/16]\n",
		 "a.b within=10.1.0.0/16,127.0.0.0/8", true, false},
		{"policy:\n  network_private: [10.1.0.0/16]\n", "a.b within=10.0.0.0/8", false,
		 false},
		{"policy:\n  network_private: [10.1.0.0/16]\n", "10.1.2.3:80", true, true},
		{"policy:\n  network_private: []\n", "10.1.2.3:80", false, false},
		{"policy:\n  network_private: ['fd12::/16']\n", "[fd12::1]:80", true, true},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct scene s;

		begin(&s);
		file_at(&s, "etc/cloche.yaml", *rows[i].policy ? rows[i].policy : "defaults: {}\n");
		loaded(&s);
		s.settings.network.serves_others = rows[i].serves;
		set(&s, "network", "allow");
		set(&s, "allow", rows[i].allow);
		policy_says(&s, rows[i].fine ? NULL : "network_private");
		end(&s);
	}
}

static void test_quota_maxima(void **state)
{
	struct scene s;

	(void)state;
	begin(&s);
	file_at(&s, "etc/cloche.yaml", "policy:\n  network_bytes: 1m\n  network_connections: 10\n");
	loaded(&s);
	set(&s, "network", "open");
	policy_says(&s, NULL);
	assert_int_equal(s.spec.network.max_bytes, 1 << 20);
	set(&s, "network-connections", "11");
	policy_says(&s, "at most 10");
	end(&s);
}

/* ---- what the egress process is told ---- */

static void test_configuration(void **state)
{
	struct scene s;
	json_t *j;
	char *text = NULL;
	bool opens;

	(void)state;
	begin(&s);
	file_at(&s, "etc/cloche.yaml",
		"policy:\n  network: allow\n  network_allow: ['*.b', 'x.y within=10.0.0.0/8']\n  network_deny: ['*:25']\n"
		"resolve:\n  a.b: [127.0.0.1, '::1']\nupstream_ca: @/ca.pem\n");
	file_at(&s, "ca.pem", "-----BEGIN CERTIFICATE-----\nMII\n-----END CERTIFICATE-----\n");
	loaded(&s);
	set(&s, "network", "allow");
	set(&s, "allow", "a.b:8443 within=127.0.0.0/8");
	set(&s, "deny", "t.b");
	set(&s, "network-bytes", "1g");
	set(&s, "network-connections", "7");
	j = configured(&s, NULL);
	assert_string_equal(text_of(j, "mode"), "allow");
	assert_string_equal(
		text_of(j, "rules"),
		"allow a.b:8443 within=127.0.0.0/8\ndeny t.b\nmax-bytes 1073741824\nmax-connections 7\n");
	assert_string_equal(text_of(j, "ceiling"),
			    "allow *.b\nallow x.y within=10.0.0.0/8\ndeny *:25\n");
	assert_string_equal(text_of(j, "ceiling_mode"), "allow");
	assert_string_equal(text_of(j, "capture"), "redirect");
	assert_contains(text_of(j, "upstream_ca"), "MII");
	assert_int_equal(json_array_size(json_object_get(json_object_get(j, "resolve"), "a.b")), 2);
	assert_int_equal(json_array_size(json_object_get(j, "credentials")), 0);
	json_decref(j);
	assert_int_equal(settings_egress_config(&s.settings, &s.places, &s.spec, NULL, &text,
						&opens, &s.e),
			 0);
	assert_false(opens);
	settings_egress_free(text);
	set(&s, "allow", "GET https://q.b/*");
	assert_int_equal(settings_egress_config(&s.settings, &s.places, &s.spec, NULL, &text,
						&opens, &s.e),
			 0);
	assert_true(opens);
	settings_egress_free(text);
	file_at(&s, "ca.pem", "nothing\n");
	not_configured(&s, NULL, 0, "upstream_ca: ");
	unlinkat(s.dir, "ca.pem", 0);
	not_configured(&s, NULL, ENOENT, "upstream_ca: ");
	set(&s, "network", "none");
	assert_int_equal(settings_egress_config(&s.settings, &s.places, &s.spec, NULL, &text,
						&opens, &s.e),
			 0);
	assert_true(!text && !opens);
	end(&s);
}

static const char store[] =
	"credentials:\n"
	"  file: {host: a.b, header: Authorization, value: \"Bearer {}\", file: @/secret}\n"
	"  env: {host: a.b, port: 8443, query: key, env: CLOCHE_UNIT_SECRET}\n"
	"  command: {host: a.b, header: X-Key, command: [/bin/echo, \"t 1\"]}\n"
	"  fails: {host: a.b, header: X-Key, command: [/bin/false]}\n"
	"  missing: {host: a.b, header: X-Key, command: [/nonexistent/x]}\n"
	"  floods: {host: a.b, header: X-Key, command: [/usr/bin/head, -c, '70000', /dev/zero]}\n"
	"  owned: {host: a.b, header: X-Key, env: CLOCHE_UNIT_SECRET, owners: [ci, dev]}\n";

static void test_credentials(void **state)
{
	struct scene s;
	json_t *j, *list;

	(void)state;
	begin(&s);
	file_at(&s, "etc/cloche.yaml", store);
	write_at(s.dir, "secret", "pass\"w\\ord\r\n", 12, 0600);
	setenv("CLOCHE_UNIT_SECRET", "e 2", 1);
	loaded(&s);
	set(&s, "network", "allow");
	set(&s, "allow", "a.b:443,8443");
	set(&s, "credential", "file");
	set(&s, "credential", "env");
	set(&s, "credential", "command");
	j = configured(&s, "anyone");
	list = json_object_get(j, "credentials");
	assert_int_equal(json_array_size(list), 3);
	assert_string_equal(text_of(json_array_get(list, 0), "name"), "file");
	assert_string_equal(text_of(json_array_get(list, 0), "header"), "Authorization");
	assert_string_equal(text_of(json_array_get(list, 0), "value"), "Bearer pass\"w\\ord");
	assert_int_equal(json_integer_value(json_object_get(json_array_get(list, 0), "port")), 443);
	assert_string_equal(text_of(json_array_get(list, 1), "query"), "key");
	assert_string_equal(text_of(json_array_get(list, 1), "value"), "e 2");
	assert_int_equal(json_integer_value(json_object_get(json_array_get(list, 1), "port")),
			 8443);
	assert_string_equal(text_of(json_array_get(list, 2), "value"), "t 1");
	assert_contains(text_of(j, "rules"),
			"credential file for a.b:443\ncredential env for a.b:8443\n");
	json_decref(j);
	unsetenv("CLOCHE_UNIT_SECRET");
	not_configured(&s, NULL, 0, "credential env: CLOCHE_UNIT_SECRET is not set");
	end(&s);
}

static void one_credential(struct scene *s, const char *name)
{
	begin(s);
	file_at(s, "etc/cloche.yaml", store);
	loaded(s);
	set(s, "network", "allow");
	set(s, "allow", "a.b");
	set(s, "credential", name);
}

static void test_credentials_refused(void **state)
{
	static const struct {
		const char *content;
		mode_t mode;
		const char *why;
	} files[] = {
		{"x", 0644, "chmod 600"},
		{"x", 0640, "chmod 600"},
		{"", 0600, "its value is empty"},
		{"\n", 0600, "its value is empty"},
		{"a\nb", 0600, "not one line"},
		{"a\r\nX: y\n", 0600, "not one line"},
		{"\xc3\xa4", 0600, "not one line of printable ASCII"},
	};
	static const struct {
		const char *name, *why;
		int errnum;
	} others[] = {
		{"fails", "credential fails: /bin/false ended with status 1", 0},
		{"missing", "credential missing: run /nonexistent/x", ENOENT},
		{"floods", "credential floods: /usr/bin/head says more than 65536 bytes", 0},
		{"file", "credential file: ", ENOENT},
		{"nobody", "there is no credential nobody", ENOENT},
	};
	struct scene s;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		one_credential(&s, "file");
		write_at(s.dir, "secret", files[i].content, strlen(files[i].content),
			 files[i].mode);
		not_configured(&s, NULL, 0, files[i].why);
		if (strlen(files[i].content) > 2)
			assert_null(strstr(s.e.text, files[i].content));
		end(&s);
	}
	for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
		/* There posix_spawn() does not tell that the program is missing. */
		if (others[i].errnum == ENOENT && strcmp(others[i].name, "missing") == 0 &&
		    getenv("CLOCHE_UNDER_VALGRIND"))
			continue;
		one_credential(&s, others[i].name);
		not_configured(&s, NULL, others[i].errnum, others[i].why);
		end(&s);
	}
}

static void test_owners(void **state)
{
	struct scene s;

	(void)state;
	setenv("CLOCHE_UNIT_SECRET", "x", 1);
	one_credential(&s, "owned");
	json_decref(configured(&s, "dev"));
	json_decref(configured(&s, NULL));
	not_configured(&s, "deve", EPERM, "credential owned: is not for deve");
	not_configured(&s, "", EPERM, "credential owned: is not for ");
	end(&s);
	unsetenv("CLOCHE_UNIT_SECRET");
}

/* One that could never be sent is a mistake. */
static void test_credentials_need_a_way(void **state)
{
	static const struct {
		const char *allow, *policy, *why;
	} rows[] = {
		{"c.d", "", "add --allow https://a.b:443"},
		{"a.b:8443", "", "add --allow https://a.b:443"},
		{"passthrough a.b", "", "is passed through"},
		{"a.b", "policy:\n  network_deny: [a.b]\n", "a rule denies it"},
		{"a.b", "policy:\n  network_allow: [c.d]\n", "no rule of the operator's"},
	};

	(void)state;
	setenv("CLOCHE_UNIT_SECRET", "x", 1);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct scene s;
		char text[2048];

		begin(&s);
		snprintf(text, sizeof text, "%s%s", rows[i].policy, store);
		file_at(&s, "etc/cloche.yaml", text);
		loaded(&s);
		set(&s, "network", "allow");
		set(&s, "allow", rows[i].allow);
		set(&s, "credential", "owned");
		not_configured(&s, NULL, 0, rows[i].why);
		end(&s);
	}
	unsetenv("CLOCHE_UNIT_SECRET");
}

/* ---- presets ---- */

static void test_presets(void **state)
{
	struct scene s;
	json_t *j;

	(void)state;
	begin(&s);
	loaded(&s);
	file_at(&s, "etc/presets/corp.rules", "# ours\nallow git.corp within=10.0.0.0/8\n");
	file_at(&s, "etc/presets/pypi.rules", "allow mirror.corp\n");
	set(&s, "network", "allow");
	set(&s, "preset", "corp");
	set(&s, "preset", "pypi");
	set(&s, "deny", "a.b");
	j = configured(&s, NULL);
	assert_string_equal(
		text_of(j, "rules"),
		"deny a.b\npreset corp {\n# ours\nallow git.corp within=10.0.0.0/8\n\n}\npreset pypi {\nallow mirror.corp\n\n}\n");
	json_decref(j);
	/* a user's own file comes first */
	file_at(&s, "user/presets/pypi.rules", "allow mine.corp");
	j = configured(&s, NULL);
	assert_contains(text_of(j, "rules"), "preset pypi {\nallow mine.corp\n}\n");
	json_decref(j);
	end(&s);
}

static void test_presets_refused(void **state)
{
	static const struct {
		const char *text, *why;
	} rows[] = {
		{"allow a.b\nallow *\n", "/etc/presets/x.rules line 2: \"*\""},
		{"\npreset pypi\n",
		 "/etc/presets/x.rules line 2: preset: a preset has allow, deny"},
		{"  preset y {\nallow a.b\n}\n", "x.rules line 1: preset: a preset has"},
		{"allow a.b\n}\nallow c.d\n", "x.rules line 2: }: a preset has"},
		{"credential github\n", "x.rules line 1: credential: a preset has"},
		{"alow a.b\n", "x.rules line 1: \"alow\""},
	};
	struct scene s;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		begin(&s);
		loaded(&s);
		file_at(&s, "etc/presets/x.rules", rows[i].text);
		set(&s, "network", "allow");
		set(&s, "preset", "x");
		not_configured(&s, NULL, 0, rows[i].why);
		end(&s);
	}
	begin(&s);
	loaded(&s);
	file_at(&s, "etc/presets/corp.rules", "allow a.b\n");
	set(&s, "network", "allow");
	set(&s, "preset", "nope");
	not_configured(&s, NULL, ENOENT, "there is no preset nope (there are: corp");
	mkdirat(s.dir, "etc/presets/nope.rules", 0755);
	not_configured(&s, NULL, 0, "nope.rules: is not a file");
	end(&s);
}

/* What is the operator's may lead inside, what is a user's own only as far as the operator lets requests. */
static void test_presets_that_lead_inside(void **state)
{
	struct scene s;

	(void)state;
	begin(&s);
	file_at(&s, "etc/cloche.yaml", "policy:\n  network_private: []\n");
	loaded(&s);
	file_at(&s, "etc/presets/corp.rules", "allow git.corp within=10.0.0.0/8\n");
	file_at(&s, "user/presets/mine.rules",
		"allow c.d # fine\n\tallow\tgit.corp within=10.0.0.0/8 # not\n");
	set(&s, "network", "allow");
	set(&s, "preset", "corp");
	json_decref(configured(&s, NULL));
	set(&s, "preset", "mine");
	not_configured(&s, NULL, EPERM, "preset mine: allow git.corp within=10.0.0.0/8");
	end(&s);
}

/* ---- a change of rules ---- */

static void test_live_rules(void **state)
{
	struct scene s;
	char *text = NULL;
	json_t *j;

	(void)state;
	setenv("CLOCHE_UNIT_SECRET", "hush-hush", 1);
	one_credential(&s, "owned");
	assert_int_equal(settings_egress_rules(&s.settings, &s.places, &s.spec, "ci", &text, &s.e),
			 0);
	assert_null(strstr(text, "hush"));
	j = json_loads(text, 0, NULL);
	settings_egress_free(text);
	assert_int_equal(json_object_size(j), 2);
	assert_string_equal(text_of(j, "mode"), "allow");
	assert_string_equal(text_of(j, "rules"), "allow a.b\ncredential owned for a.b:443\n");
	json_decref(j);
	text = NULL;
	assert_int_equal(
		settings_egress_rules(&s.settings, &s.places, &s.spec, "other", &text, &s.e), -1);
	assert_int_equal(s.e.errnum, EPERM);
	set(&s, "network", "none");
	assert_int_equal(settings_egress_rules(&s.settings, &s.places, &s.spec, "ci", &text, &s.e),
			 0);
	assert_string_equal(text, "{\"mode\":\"none\",\"rules\":\"\"}");
	settings_egress_free(text);
	end(&s);
	unsetenv("CLOCHE_UNIT_SECRET");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_users_own_file),
		cmocka_unit_test(test_highest_mode),
		cmocka_unit_test(test_private_addresses),
		cmocka_unit_test(test_quota_maxima),
		cmocka_unit_test(test_configuration),
		cmocka_unit_test(test_credentials),
		cmocka_unit_test(test_credentials_refused),
		cmocka_unit_test(test_owners),
		cmocka_unit_test(test_credentials_need_a_way),
		cmocka_unit_test(test_presets),
		cmocka_unit_test(test_presets_refused),
		cmocka_unit_test(test_presets_that_lead_inside),
		cmocka_unit_test(test_live_rules),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
