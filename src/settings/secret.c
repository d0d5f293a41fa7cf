/* SPDX-License-Identifier: Apache-2.0 */
#include "settings/secret.h"

#include <ctype.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/ask.h"
#include "base/fd.h"
#include "base/units.h"

enum { TEMPLATE_MAX = 1024, FIELD_MAX = 63, COMMAND_WORDS_MAX = 32 };

/* ---- the entry ---- */

static const char *text_of(const json_t *entry, const char *key)
{
	const char *text = json_string_value(json_object_get(entry, key));

	return text ? text : "";
}

static bool is_printable(const char *text)
{
	for (; *text; text++)
		if (*text < 0x20 || *text > 0x7e)
			return false;
	return true;
}

static int check_host(const char *name, const json_t *value, struct err *e)
{
	const char *text = json_is_string(value) ? json_string_value(value) : "";
	char host[HOST_SIZE];

	if (network_host(text, strlen(text), host) < 0 || strcmp(host, text) != 0)
		return err_set(
			e, 0,
			"credentials: %s: host: \"%.100s\" is no host such as api.github.com, in lower case, without wildcard",
			name, text);
	return 0;
}

static int check_port(const char *name, const json_t *value, struct err *e)
{
	uint64_t port;

	return json_is_string(value) && parse_count(json_string_value(value), 1, 65535, &port) == 0
		       ? 0
		       : err_set(e, 0, "credentials: %s: port: must be a number from 1 to 65535",
				 name);
}

static bool is_token(const char *text)
{
	size_t n =
		strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.");

	return n > 0 && n <= FIELD_MAX && !text[n];
}

/* Fields that say where a request goes, or where it ends. */
static int check_header(const char *name, const json_t *value, struct err *e)
{
	static const char *const reserved[] = {"host",
					       "connection",
					       "content-length",
					       "transfer-encoding",
					       "te",
					       "trailer",
					       "upgrade",
					       "expect",
					       "proxy-authorization",
					       "proxy-connection",
					       "keep-alive",
					       "via",
					       "max-forwards"};
	const char *text = json_is_string(value) ? json_string_value(value) : "";

	if (!is_token(text))
		return err_set(
			e, 0,
			"credentials: %s: header: must be the name of a field such as Authorization",
			name);
	for (size_t i = 0; i < ARRAY_SIZE(reserved); i++)
		if (strcasecmp(reserved[i], text) == 0)
			return err_set(e, 0,
				       "credentials: %s: header: %s belongs to the connection",
				       name, text);
	return 0;
}

static int check_query(const char *name, const json_t *value, struct err *e)
{
	return json_is_string(value) && is_token(json_string_value(value))
		       ? 0
		       : err_set(e, 0,
				 "credentials: %s: query: must be the name of a parameter such as key",
				 name);
}

static int check_template(const char *name, const json_t *value, struct err *e)
{
	const char *text = json_is_string(value) ? json_string_value(value) : "",
		   *hole = strstr(text, "{}");

	if (!hole || strstr(hole + 2, "{}") || strlen(text) > TEMPLATE_MAX || !is_printable(text))
		return err_set(
			e, 0,
			"credentials: %s: value: must be a text with {} once, where the secret goes, such as \"Bearer {}\"",
			name);
	return 0;
}

static int check_file(const char *name, const json_t *value, struct err *e)
{
	return json_is_string(value) && json_string_value(value)[0] == '/'
		       ? 0
		       : err_set(e, 0, "credentials: %s: file: must be an absolute path", name);
}

static int check_env(const char *name, const json_t *value, struct err *e)
{
	const char *text = json_is_string(value) ? json_string_value(value) : "";

	return *text && !strchr(text, '=') && is_printable(text)
		       ? 0
		       : err_set(e, 0,
				 "credentials: %s: env: must be the name of an environment variable",
				 name);
}

static int check_texts(const json_t *list, size_t max)
{
	const json_t *item;
	size_t i;

	if (!json_is_array(list) || json_array_size(list) == 0 || json_array_size(list) > max)
		return -1;
	json_array_foreach(list, i, item)
		if (!json_is_string(item) ||
		    strlen(json_string_value(item)) != json_string_length(item))
			return -1;
	return 0;
}

static int check_command(const char *name, const json_t *value, struct err *e)
{
	return check_texts(value, COMMAND_WORDS_MAX) == 0 &&
			       json_string_value(json_array_get(value, 0))[0] == '/'
		       ? 0
		       : err_set(e, 0,
				 "credentials: %s: command: must be a list: the absolute path of a program and its arguments",
				 name);
}

static int check_owners(const char *name, const json_t *value, struct err *e)
{
	return check_texts(value, SECRET_OWNERS_MAX) == 0
		       ? 0
		       : err_set(e, 0, "credentials: %s: owners: must be a list of owners", name);
}

static int read_file(const char *name, const json_t *value, char *room, struct err *e);
static int read_env(const char *name, const json_t *value, char *room, struct err *e);
static int read_command(const char *name, const json_t *value, char *room, struct err *e);

static const struct {
	const char *key;
	int (*check)(const char *name, const json_t *value, struct err *e);
	/* Of a source: its secret into room, of SECRET_BYTES_MAX + 2 bytes, NUL-terminated. */
	int (*read)(const char *name, const json_t *value, char *room, struct err *e);
	enum { OTHER, WHERE, SOURCE } kind;
} keys[] = {
	{"host", check_host, NULL, OTHER},
	{"port", check_port, NULL, OTHER},
	{"value", check_template, NULL, OTHER},
	{"owners", check_owners, NULL, OTHER},
	{"header", check_header, NULL, WHERE},
	{"query", check_query, NULL, WHERE},
	{"file", check_file, read_file, SOURCE},
	{"env", check_env, read_env, SOURCE},
	{"command", check_command, read_command, SOURCE},
};

static size_t find_key(const char *key)
{
	size_t i = 0;

	while (i < ARRAY_SIZE(keys) && strcmp(keys[i].key, key) != 0)
		i++;
	return i;
}

int secret_check(const char *name, const json_t *entry, struct err *e)
{
	unsigned count[SOURCE + 1] = {0};
	const char *key;
	json_t *value;

	if (network_name_check(name, e) < 0)
		return err_prefix(e, "credentials");
	if (!json_is_object(entry))
		return err_set(e, 0, "credentials: %s: must be a mapping", name);
	json_object_foreach((json_t *)(uintptr_t)entry, key, value) {
		size_t i = find_key(key);

		if (i == ARRAY_SIZE(keys))
			return err_set(e, 0, "credentials: %s: unknown key %.60s", name, key);
		if (keys[i].check(name, value, e) < 0)
			return -1;
		count[keys[i].kind]++;
	}
	if (!json_object_get(entry, "host"))
		return err_set(e, 0, "credentials: %s: needs host, the one that it is for", name);
	if (count[WHERE] != 1)
		return err_set(e, 0, "credentials: %s: needs one of header and query", name);
	if (count[SOURCE] != 1)
		return err_set(e, 0, "credentials: %s: needs one of file, env and command", name);
	return 0;
}

bool secret_is_for(const json_t *entry, const char *owner)
{
	const json_t *owners = json_object_get(entry, "owners"), *item;
	size_t i;

	if (!owner || !owners)
		return true;
	json_array_foreach(owners, i, item)
		if (strcmp(json_string_value(item), owner) == 0)
			return true;
	return false;
}

const char *secret_host(const json_t *entry)
{
	return text_of(entry, "host");
}

uint16_t secret_port(const json_t *entry)
{
	uint64_t port;

	return parse_count(text_of(entry, "port"), 1, 65535, &port) == 0 ? (uint16_t)port : 443;
}

/* ---- its value ---- */

static int read_file(const char *name, const json_t *value, char *room, struct err *e)
{
	const char *path = json_string_value(value);
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	struct stat st;
	ssize_t n;

	if (fd < 0 || fstat(fd, &st) < 0)
		return err_set(e, errno, "credential %s: %.300s", name, path);
	if (!S_ISREG(st.st_mode))
		return err_set(e, 0, "credential %s: %.300s is not a file", name, path);
	if (st.st_mode & 077)
		return err_set(
			e, 0,
			"credential %s: %.300s can be opened by others (mode %04o): chmod 600 %.300s",
			name, path, st.st_mode & 07777, path);
	if (st.st_uid != 0 && st.st_uid != geteuid())
		return err_set(e, 0,
			       "credential %s: %.300s belongs to user %u: it must be root's or %s",
			       name, path, st.st_uid, geteuid() ? "yours" : "nobody else's");
	n = fd_read_all(fd, room, SECRET_BYTES_MAX + 1);
	if (n < 0)
		return err_set(e, (int)-n, "credential %s: read %.300s", name, path);
	if (n > SECRET_BYTES_MAX)
		return err_set(e, 0, "credential %s: %.300s has more than %d bytes", name, path,
			       SECRET_BYTES_MAX);
	if (memchr(room, 0, (size_t)n))
		return err_set(e, 0, "credential %s: %.300s has a NUL byte", name, path);
	room[n] = '\0';
	return 0;
}

static int read_env(const char *name, const json_t *value, char *room, struct err *e)
{
	const char *text = getenv(json_string_value(value));

	if (!text)
		return err_set(e, 0, "credential %s: %.100s is not set in the environment", name,
			       json_string_value(value));
	if (strlen(text) > SECRET_BYTES_MAX)
		return err_set(e, 0, "credential %s: %.100s has more than %d bytes", name,
			       json_string_value(value), SECRET_BYTES_MAX);
	memcpy(room, text, strlen(text) + 1);
	return 0;
}

static int read_command(const char *name, const json_t *value, char *room, struct err *e)
{
	char *argv[COMMAND_WORDS_MAX + 1] = {NULL};
	const struct ask a = {.argv = argv,
			      .input = "",
			      .hint = "",
			      .cancel_fd = -1,
			      .timeout_us = SECRET_COMMAND_MS * 1000ull};
	const json_t *word;
	size_t i, size;
	int status;

	json_array_foreach(value, i, word)
		argv[i] = (char *)(uintptr_t)json_string_value(word);
	if (ask_program(&a, room, SECRET_BYTES_MAX + 1, &size, &status, e) < 0)
		return err_prefix(e, "credential %s", name);
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
		return err_set(e, 0, "credential %s: %.200s ended with %s %d", name, argv[0],
			       WIFEXITED(status) ? "status" : "signal",
			       WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
	return memchr(room, 0, size)
		       ? err_set(e, 0, "credential %s: %.200s printed a NUL byte", name, argv[0])
		       : 0;
}

static void cut_newline(char *text)
{
	size_t n = strlen(text);

	if (n && text[n - 1] == '\n')
		text[--n] = '\0';
	if (n && text[n - 1] == '\r')
		text[--n] = '\0';
}

static char *fill(const char *name, const json_t *entry, const char *secret, struct err *e)
{
	const char *template = json_string_value(json_object_get(entry, "value")) ?: "{}";
	const char *hole = strstr(template, "{}");
	size_t size = strlen(secret) + strlen(template);
	char *value;

	if (!*secret || !is_printable(secret) || size > SECRET_VALUE_MAX) {
		err_set(e, 0, "credential %s: its value is %s", name,
			!*secret                ? "empty"
			: !is_printable(secret) ? "not one line of printable ASCII"
						: "too long");
		return NULL;
	}
	value = malloc(size + 1);
	if (value)
		mempcpy(mempcpy(mempcpy(value, template, (size_t)(hole - template)), secret,
				strlen(secret)),
			hole + 2, strlen(hole + 2) + 1);
	else
		err_set(e, ENOMEM, "credential %s", name);
	return value;
}

char *secret_value(const char *name, const json_t *entry, struct err *e)
{
	char *room = calloc(1, SECRET_BYTES_MAX + 2), *value = NULL;
	int r = -1;

	if (!room) {
		err_set(e, ENOMEM, "credential %s", name);
		return NULL;
	}
	for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
		const json_t *source = json_object_get(entry, keys[i].key);

		if (keys[i].kind == SOURCE && source)
			r = keys[i].read(name, source, room, e);
	}
	if (r == 0) {
		cut_newline(room);
		value = fill(name, entry, room, e);
	}
	explicit_bzero(room, SECRET_BYTES_MAX + 2);
	free(room);
	return value;
}
