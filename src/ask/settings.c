/* SPDX-License-Identifier: Apache-2.0 */
#include "ask/settings.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ask/envfile.h"
#include "ask/model.h"
#include "base/address.h"
#include "base/fd.h"
#include "base/json.h"

#define MODEL_DEFAULT "claude-opus-4-8"

/* Every variable that may hold a key; `cloche ask` refuses them for sandboxes by the same list. */
static const char *const key_names[] = {
#define KEY(name) name,
#include "ask/keys.def"
#undef KEY
};

/* What a .env file may say. */
static const char *const file_names[] = {
	"MODEL",
	"BASE_URL",
#define KEY(name) name,
#include "ask/keys.def"
#undef KEY
};

struct file {
	char *values[ARRAY_SIZE(file_names)];
	bool has_key;
};

static void file_done(struct file *f)
{
	for (size_t i = 0; i < ARRAY_SIZE(file_names); i++) {
		if (f->values[i])
			explicit_bzero(f->values[i], strlen(f->values[i]));
		free(f->values[i]);
	}
}

static const char *file_get(const struct file *f, const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(file_names); i++)
		if (strcmp(file_names[i], name) == 0)
			return f->values[i];
	return NULL;
}

static int take_line(void *context, const char *name, const char *value, struct err *e)
{
	struct file *f = context;

	for (size_t i = 0; i < ARRAY_SIZE(file_names); i++) {
		if (strcmp(file_names[i], name) != 0 || !*value)
			continue;
		f->values[i] = strdup(value);
		f->has_key |= i >= 2;
		if (!f->values[i])
			return err_set(e, ENOMEM, "keep %s", name);
	}
	return 0;
}

/* A folder that goes into sandboxes must not hold the file with the keys. */
static int check_volumes(const struct ask_settings *s, const char *name, struct err *e)
{
	_cleanup_free_ char *file = realpath(name, NULL);

	for (size_t i = 0; file && i < json_array_size(s->volumes); i++) {
		const char *host = json_string_value(json_array_get(s->volumes, i));
		_cleanup_free_ char *folder = host ? realpath(host, NULL) : NULL;
		size_t n = folder ? strlen(folder) : 0;

		if (!folder || strncmp(folder, file, n) != 0)
			continue;
		if (n == 1 || file[n] == '/' || !file[n])
			return err_set(e, 0,
				       "%.200s holds a key, and --volume %.200s would give it to "
				       "sandboxes: keep one of them elsewhere",
				       name, host);
	}
	return 0;
}

static int read_file(const struct ask_settings *s, struct file *f, struct err *e)
{
	const char *said = json_string_value(json_object_get(s->said, "env_file"));
	const char *name = said ? said : ".env";
	_cleanup_close_ int fd = *name ? open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
	_cleanup_free_ char *text = NULL;
	struct stat st;
	size_t size;
	int r;

	if (!*name || (!said && fd < 0 && errno == ENOENT))
		return 0;
	if (fd < 0 || fstat(fd, &st) < 0)
		return err_set(e, errno, "open %.300s", name);
	if (!S_ISREG(st.st_mode))
		return err_set(e, 0, "%.300s: no regular file (--env-file '' reads none)", name);
	if (st.st_uid != geteuid() && st.st_uid != 0)
		return err_set(e, 0,
			       "%.300s belongs to somebody else, who would choose where your "
			       "questions go (--env-file '' reads none)",
			       name);
	r = fd_slurp(fd, ENVFILE_BYTES, &text, &size);
	if (r < 0)
		return err_set(e, -r, "read %.300s", name);
	r = envfile_read(text, size, take_line, f, e);
	explicit_bzero(text, size);
	if (r < 0)
		return err_prefix(e, "%.300s", name);
	return f->has_key ? check_volumes(s, name, e) : 0;
}

static const char *from_environment(const char *name)
{
	const char *value = getenv(name);

	return value && *value ? value : NULL;
}

/* What goes into a header must be no more than a word. */
static bool is_key(const char *key)
{
	size_t n = 0;

	while (key[n] > ' ' && key[n] < 0x7f)
		n++;
	return !key[n] && n < KEY_BYTES;
}

static int choose_key(struct ask_settings *s, const struct file *f, bool url_of_file, struct err *e)
{
	const char *key = NULL;

	for (const char *const *name = s->provider->keys; *name && !key; name++) {
		s->key_name = *name;
		key = url_of_file ? NULL : from_environment(*name);
		key = key ? key : file_get(f, *name);
	}
	if (!key && s->elsewhere)
		return 0;
	s->key_name = key ? s->key_name : s->provider->keys[0];
	if (!key)
		return err_set(e, 0, "%s asks for a key: set %s, in the environment or in .env",
			       s->provider->name, s->key_name);
	if (!is_key(key))
		return err_set(e, 0, "%s: a key is printable characters without blanks",
			       s->key_name);
	if (!s->url.tls && reach_of_host(s->url.host) != REACH_LOCAL)
		return err_set(e, 0,
			       "%s: the key of %s would go there in the clear: use https, or leave "
			       "the key out",
			       s->url.text, s->key_name);
	s->key = strdup(key);
	return s->key ? 0 : err_set(e, ENOMEM, "keep a key");
}

static int choose_url(struct ask_settings *s, const char *text, struct err *e)
{
	_cleanup_free_ char *copy = strdup(text ? text : s->provider->url);
	size_t n = copy ? strlen(copy) : 0;

	s->elsewhere = text != NULL;
	if (!copy)
		return err_set(e, ENOMEM, "keep a URL");
	while (n > 0 && copy[n - 1] == '/')
		copy[--n] = '\0';
	if (strpbrk(copy, "?#"))
		return err_set(e, 0, "BASE_URL: a URL without ? and #");
	if (url_read(copy, NULL, &s->url, e) < 0)
		return err_prefix(e, "BASE_URL");
	/* A path of one slash was added. */
	n = strlen(s->url.text);
	if (s->url.text[n - 1] == '/')
		s->url.text[n - 1] = '\0';
	return 0;
}

static int choose(struct ask_settings *s, const struct file *f, struct err *e)
{
	const char *model = json_string_value(json_object_get(s->said, "model"));
	const char *url = json_string_value(json_object_get(s->said, "base_url"));
	bool url_of_file;

	url = url ? url : from_environment("BASE_URL");
	url_of_file = !url && file_get(f, "BASE_URL");
	url = url ? url : file_get(f, "BASE_URL");
	model = model ? model : from_environment("MODEL");
	model = model ? model : file_get(f, "MODEL");
	if (model_choose(model ? model : MODEL_DEFAULT, url != NULL, &s->provider, &model, e) < 0)
		return -1;
	s->model = strdup(model);
	if (!s->model)
		return err_set(e, ENOMEM, "keep the model's name");
	if (choose_url(s, url, e) < 0)
		return -1;
	return choose_key(s, f, url_of_file, e);
}

static const char *string(const struct ask_settings *s, const char *key)
{
	const char *text = json_string_value(json_object_get(s->said, key));

	return text ? text : "";
}

static double number(const struct ask_settings *s, const char *key)
{
	return json_number_value(json_object_get(s->said, key));
}

static void take_said(struct ask_settings *s)
{
	const json_t *temperature = json_object_get(s->said, "temperature");

	s->cloche = string(s, "cloche");
	s->prompt = string(s, "prompt");
	s->instructions = string(s, "system");
	s->mcp = json_object_get(s->said, "mcp");
	s->tools = json_object_get(s->said, "tools");
	s->approve = json_object_get(s->said, "approve");
	s->volumes = json_object_get(s->said, "volumes");
	s->temperature = json_number_value(temperature);
	s->temperature_said = json_is_number(temperature);
	s->has_temperature = true;
	s->max_steps = (long long)number(s, "max-steps");
	s->max_tokens = (long long)number(s, "max-tokens");
	s->timeout_s = number(s, "timeout");
	s->stall_s = number(s, "stall-timeout");
	s->run_timeout_s = number(s, "run-timeout");
	s->memory_mib = (size_t)number(s, "memory_mib");
	s->json = json_is_true(json_object_get(s->said, "json"));
	s->quiet = json_is_true(json_object_get(s->said, "quiet"));
	s->session = json_is_true(json_object_get(s->said, "session"));
	s->has_network = json_is_true(json_object_get(s->said, "network"));
}

int ask_settings_read(struct ask_settings *s, struct err *e)
{
	_cleanup_free_ char *text = NULL;
	struct file f = {0};
	size_t size;
	int r = fd_slurp(SETTINGS_FD, JSON_MAX_BYTES, &text, &size);

	*s = (struct ask_settings){0};
	close(SETTINGS_FD);
	s->said = r < 0 ? NULL : json_read_output(text, size, e);
	if (!json_is_object(s->said))
		return err_set(e, 0, "cloche-ask is started by `cloche ask`");
	take_said(s);
	r = read_file(s, &f, e);
	if (r == 0)
		r = choose(s, &f, e);
	file_done(&f);
	return r;
}

void ask_settings_done(struct ask_settings *s)
{
	if (s->key)
		explicit_bzero(s->key, strlen(s->key));
	free(s->key);
	free(s->model);
	url_done(&s->url);
	json_decref(s->said);
}

static bool holds_key(const struct ask_settings *s, const char *entry)
{
	for (size_t i = 0; i < ARRAY_SIZE(key_names); i++) {
		size_t n = strlen(key_names[i]);

		if (strncmp(entry, key_names[i], n) == 0 && entry[n] == '=')
			return true;
	}
	return s->key && strstr(entry, s->key);
}

char **ask_settings_environment(const struct ask_settings *s)
{
	size_t count = 0, n = 0;
	char **list;

	while (environ[count])
		count++;
	list = calloc(count + 1, sizeof *list);
	for (size_t i = 0; list && i < count; i++)
		if (!holds_key(s, environ[i]))
			list[n++] = environ[i];
	return list;
}

void ask_settings_redact(const struct ask_settings *s, char *text)
{
	size_t n = s->key ? strlen(s->key) : 0;

	for (char *p = n ? strstr(text, s->key) : NULL; p; p = strstr(p, s->key))
		memset(p, '*', n);
}
