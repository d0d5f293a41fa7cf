/* SPDX-License-Identifier: Apache-2.0 */
/*
 * options.c - the table of every setting of a run.
 *
 * One row and one small function each. The function gets text, whether it came from a flag, JSON,
 * a file or the environment, and either stores a checked value or says which value was wrong.
 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/units.h"
#include "sandbox/spec.h"

/* Least memory in which our init and an exec can live at all (measured: 3.1 MiB). */
#define MEMORY_MIN (6ull << 20)

static int reject(struct err *e, int r, const char *value, const char *grammar)
{
	if (r == -ERANGE)
		return err_set(e, 0, "value %.60s is out of range: %s", value, grammar);
	return err_set(e, 0, "value \"%.60s\" is not understood: %s", value, grammar);
}

static int set_size(uint64_t *field, uint64_t min, const char *value, struct err *e)
{
	uint64_t v;
	int r = parse_size(value, &v);

	if (r == 0 && v < min)
		r = -ERANGE;
	if (r < 0)
		return reject(e, r, value, "give a size such as 256m or 1g");
	*field = v;
	return 0;
}

static int set_duration(uint64_t *field, const char *value, struct err *e)
{
	int r = parse_duration(value, field);

	return r < 0 ? reject(e, r, value, "give a duration such as 5s, 500ms or 2m") : 0;
}

static int set_text(char *field, size_t size, const char *value, struct err *e)
{
	if (!*value || strlen(value) >= size)
		return err_set(e, 0, "value must have 1 to %zu characters", size - 1);
	memset(field, 0, size); /* the spawner refuses a field with more behind its end */
	memcpy(field, value, strlen(value));
	return 0;
}

static int set_memory(struct spec *s, const char *v, struct err *e)
{
	return set_size(&s->memory_bytes, MEMORY_MIN, v, e);
}

static int set_memory_swap(struct spec *s, const char *v, struct err *e)
{
	return set_size(&s->memory_swap_bytes, MEMORY_MIN, v, e);
}

static int set_cpus(struct spec *s, const char *v, struct err *e)
{
	uint64_t millis;
	int r = parse_cpus(v, &millis);

	if (r == 0 && millis > 1024 * 1000)
		r = -ERANGE;
	if (r < 0)
		return reject(e, r, v, "give a number of CPUs such as 0.5 or 2");
	s->cpus_millis = millis;
	return 0;
}

static int set_pids(struct spec *s, const char *v, struct err *e)
{
	int r = parse_count(v, 1, 4194304, &s->pids_limit);

	return r < 0 ? reject(e, r, v, "give a number of processes from 1 on") : 0;
}

static int set_timeout(struct spec *s, const char *v, struct err *e)
{
	return set_duration(&s->timeout_us, v, e);
}

static int set_cpu_time(struct spec *s, const char *v, struct err *e)
{
	if (strcmp(v, "off") == 0) {
		s->cpu_time_us = SPEC_UNLIMITED;
		return 0;
	}
	return set_duration(&s->cpu_time_us, v, e);
}

static int set_idle_timeout(struct spec *s, const char *v, struct err *e)
{
	if (strcmp(v, "off") == 0) {
		s->idle_timeout_us = SPEC_UNLIMITED;
		return 0;
	}
	return set_duration(&s->idle_timeout_us, v, e);
}

static int set_max_output(struct spec *s, const char *v, struct err *e)
{
	if (strcmp(v, "unlimited") == 0) {
		s->max_output_bytes = SPEC_UNLIMITED;
		return 0;
	}
	return set_size(&s->max_output_bytes, 1, v, e);
}

static int set_on_output_limit(struct spec *s, const char *v, struct err *e)
{
	if (strcmp(v, "drop") != 0 && strcmp(v, "kill") != 0)
		return reject(e, -EINVAL, v, "drop or kill");
	s->kill_on_output_limit = v[0] == 'k';
	return 0;
}

/* The shape only: whether there is such an image is seen when it is opened (image/reference.h has the grammar). */
static int set_image(struct spec *s, const char *v, struct err *e)
{
	static const char allowed[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/:@[]";
	size_t n = strlen(v);

	if (strspn(v, allowed) != n || (n && !isalnum((unsigned char)*v) && *v != '[') ||
	    strstr(v, "..") || strstr(v, "//") || (n && v[n - 1] == '/'))
		return reject(e, -EINVAL, v, "host, or an image such as python:3.12-slim");
	return set_text(s->image, sizeof s->image, v, e);
}

static int set_runtime(struct spec *s, const char *v, struct err *e)
{
	if (strcmp(v, "native") != 0) {
		err_set(e, 0, "no such runtime: %.60s (only \"native\" is available)", v);
		return err_code(e, CODE_SANDBOX_RUNTIME_UNAVAILABLE);
	}
	return set_text(s->runtime, sizeof s->runtime, v, e);
}

static int set_profile(struct spec *s, const char *v, struct err *e)
{
	static const char *const known[] = {"default", "dev", "no-locks"};

	for (size_t i = 0; i < ARRAY_SIZE(known); i++)
		if (strcmp(v, known[i]) == 0)
			return set_text(s->profile, sizeof s->profile, v, e);
	return reject(e, -EINVAL, v, "default, dev or no-locks");
}

/* Back to none: rules that were for the mode before, a file's for example, go with it. */
static int set_network(struct spec *s, const char *v, struct err *e)
{
	enum network_mode mode = network_mode_find(v);

	if (strcmp(v, "host") == 0 || strcmp(v, "bridge") == 0 ||
	    strncmp(v, "container:", sizeof "container:" - 1) == 0)
		return reject(
			e, -EINVAL, v,
			"every sandbox has a network of its own, and nobody may have it share another's; "
			"say allow (what --allow and --preset name) or open (every public address)");
	if (mode == NETWORK_MODE_COUNT)
		return reject(
			e, -EINVAL, v,
			"none, allow (what --allow and --preset name) or open (every public address)");
	if (mode == NETWORK_NONE && s->network.mode != NETWORK_NONE)
		network_spec_done(&s->network);
	s->network.mode = mode;
	return 0;
}

static int set_allow(struct spec *s, const char *v, struct err *e)
{
	return network_rule_check("allow", v, e) < 0
		       ? -1
		       : strings_add(&s->network.allow, v, SPEC_MAX_RULES, e);
}

static int set_deny(struct spec *s, const char *v, struct err *e)
{
	return network_rule_check("deny", v, e) < 0
		       ? -1
		       : strings_add(&s->network.deny, v, SPEC_MAX_RULES, e);
}

static int set_preset(struct spec *s, const char *v, struct err *e)
{
	return network_name_check(v, e) < 0
		       ? -1
		       : strings_add(&s->network.presets, v, SPEC_MAX_PRESETS, e);
}

static int set_credential(struct spec *s, const char *v, struct err *e)
{
	return network_name_check(v, e) < 0
		       ? -1
		       : strings_add(&s->network.credentials, v, SPEC_MAX_CREDENTIALS, e);
}

static int set_network_bytes(struct spec *s, const char *v, struct err *e)
{
	if (strcmp(v, "unlimited") == 0) {
		s->network.max_bytes = SPEC_UNLIMITED;
		return 0;
	}
	return set_size(&s->network.max_bytes, 1, v, e);
}

static int set_network_connections(struct spec *s, const char *v, struct err *e)
{
	int r;

	if (strcmp(v, "unlimited") == 0) {
		s->network.max_connections = SPEC_UNLIMITED;
		return 0;
	}
	r = parse_count(v, 1, NETWORK_CONNECTIONS_MAX, &s->network.max_connections);
	return r < 0 ? reject(e, r, v, "give a number of connections from 1 on, or unlimited") : 0;
}

static int set_user(struct spec *s, const char *v, struct err *e)
{
	char text[32];
	char *colon;
	uint64_t uid, gid;
	int r;

	if (strlen(v) >= sizeof text)
		return reject(e, -EINVAL, v, "numbers only: UID or UID:GID");
	memcpy(text, v, strlen(v) + 1);
	colon = strchr(text, ':');
	if (colon)
		*colon = '\0';
	r = parse_count(text, 0, UINT32_MAX - 1, &uid);
	gid = uid;
	if (r == 0 && colon)
		r = parse_count(colon + 1, 0, UINT32_MAX - 1, &gid);
	if (r < 0)
		return reject(e, r, v, "numbers only: UID or UID:GID");
	if (uid == 0 || gid == 0)
		return err_set(
			e, 0,
			"value %s: no one is root in a sandbox; nobody can allow it by a request",
			v);
	s->uid = (uint32_t)uid;
	s->gid = (uint32_t)gid;
	return 0;
}

/* NAME takes the caller's value, if there is one; that is a choice made by name. */
static int set_env(struct spec *s, const char *v, struct err *e)
{
	_cleanup_free_ char *entry = NULL;
	const char *value;

	if (strchr(v, '='))
		return spec_add_env(s, v, e);
	if (!*v)
		return err_set(e, 0, "give NAME=VALUE, or NAME to pass the caller's value");
	value = getenv(v);
	if (!value)
		return err_set(e, 0, "%.60s is not set in the caller's environment", v);
	if (asprintf(&entry, "%s=%s", v, value) < 0) {
		entry = NULL;
		return err_set(e, ENOMEM, "keep environment entry");
	}
	return spec_add_env(s, entry, e);
}

static int set_env_file(struct spec *s, const char *v, struct err *e)
{
	_cleanup_(cleanup_free) char *line = NULL;
	size_t room = 0;
	unsigned number = 0;
	FILE *f = fopen(v, "re");
	int r = 0;

	if (!f)
		return err_set(e, errno, "open %.200s", v);
	while (r == 0) {
		ssize_t n = getline(&line, &room, f);

		if (n < 0)
			break;
		number++;
		if (strlen(line) != (size_t)n) {
			r = err_set(e, 0, "%.200s line %u: has a NUL byte", v, number);
			break;
		}
		line[strcspn(line, "\r\n")] = '\0';
		if (!*line || *line == '#')
			continue;
		r = spec_add_env(s, line, e);
		if (r < 0)
			err_prefix(e, "%.200s line %u", v, number);
	}
	if (r == 0 && ferror(f))
		r = err_set(e, errno, "read %.200s", v);
	fclose(f);
	return r;
}

static int set_workdir(struct spec *s, const char *v, struct err *e)
{
	static const char *const kernel_dirs[] = {"/proc", "/dev", "/sys"};

	if (box_path_check("directory", v, e) < 0)
		return -1;
	for (size_t i = 0; i < ARRAY_SIZE(kernel_dirs); i++) {
		size_t n = strlen(kernel_dirs[i]);

		if (strncmp(v, kernel_dirs[i], n) == 0 && (v[n] == '/' || !v[n]))
			return err_set(e, 0, "directory %.100s: cannot be below %s", v,
				       kernel_dirs[i]);
	}
	return set_text(s->workdir, sizeof s->workdir, v, e);
}

/* Where something of the caller's may be mounted. /usr, /etc and the kernel's own trees would
 * change what every other layer relies on. */
static int check_mount_point(const char *path, struct err *e)
{
	static const char *const reserved[] = {"/usr",   "/etc",   "/proc",  "/dev",
					       "/sys",   "/bin",   "/sbin",  "/lib",
					       "/lib32", "/lib64", "/libx32"};

	if (box_path_check("path", path, e) < 0)
		return -1;
	if (strcmp(path, "/") == 0)
		return err_set(e, 0,
			       "path /: the root of a sandbox is read-only and cannot be replaced");
	for (size_t i = 0; i < ARRAY_SIZE(reserved); i++) {
		size_t n = strlen(reserved[i]);

		if (strncmp(path, reserved[i], n) == 0 && (path[n] == '/' || !path[n]) &&
		    strcmp(path, "/dev/shm") != 0)
			return err_set(e, 0, "path %.100s: nothing can be mounted below %s", path,
				       reserved[i]);
	}
	return 0;
}

static int tmpfs_option(struct spec_tmpfs *t, const char *word, struct err *e)
{
	uint64_t v;

	if (strncmp(word, "size=", 5) == 0) {
		if (parse_size(word + 5, &v) < 0)
			return reject(e, -EINVAL, word, "size=64m");
		t->size_bytes = v;
	} else if (strncmp(word, "inodes=", 7) == 0 || strncmp(word, "nr_inodes=", 10) == 0) {
		if (parse_count(strchr(word, '=') + 1, 2, 100000000, &v) < 0)
			return reject(e, -EINVAL, word, "inodes=16384");
		t->inodes = v;
	} else if (strcmp(word, "exec") == 0) {
		t->exec = true;
	} else if (strcmp(word, "noexec") == 0) {
		t->exec = false;
	} else if (strcmp(word, "rw") != 0 && strcmp(word, "nosuid") != 0 &&
		   strcmp(word, "nodev") != 0) {
		return reject(e, -EINVAL, word, "size=, inodes=, exec, noexec");
	}
	return 0;
}

static int set_tmpfs(struct spec *s, const char *v, struct err *e)
{
	struct spec_tmpfs t = {.size_bytes = 64ull << 20, .inodes = 16384};
	size_t n = strcspn(v, ":");
	_cleanup_free_ char *words = NULL;
	char *save = NULL;
	size_t i;

	if (n >= sizeof t.path)
		return err_set(e, 0, "path is longer than %zu bytes", sizeof t.path - 1);
	memcpy(t.path, v, n);
	if (check_mount_point(t.path, e) < 0)
		return -1;
	for (i = 0; i < s->tmpfs_count; i++)
		if (strcmp(s->tmpfs[i].path, t.path) == 0) {
			t = s->tmpfs[i];
			break;
		}
	if (i == SPEC_MAX_TMPFS)
		return err_set(e, 0, "at most %d", SPEC_MAX_TMPFS);
	words = strdup(v[n] ? v + n + 1 : "");
	if (!words)
		return err_set(e, ENOMEM, "keep %.60s", v);
	for (char *w = strtok_r(words, ",", &save); w; w = strtok_r(NULL, ",", &save))
		if (tmpfs_option(&t, w, e) < 0)
			return -1;
	if (strcmp(t.path, "/dev/shm") == 0 && t.exec)
		return err_set(e, 0, "/dev/shm: is always noexec");
	s->tmpfs[i] = t;
	if (i == s->tmpfs_count)
		s->tmpfs_count++;
	return 0;
}

/* Room for one more item in a list of owned structs: the new, zeroed one, not yet counted. */
static void *grow(void *list, size_t count, size_t item_size, size_t max, struct err *e)
{
	void **items = list;
	char *more;

	if (count == max) {
		err_set(e, 0, "at most %zu", max);
		return NULL;
	}
	more = realloc(*items, (count + 1) * item_size);
	if (!more) {
		err_set(e, ENOMEM, "keep one more");
		return NULL;
	}
	*items = more;
	return memset(more + count * item_size, 0, item_size);
}

/* HOST:BOX[:ro|rw]. A colon cannot be told from a separator, so it is refused inside the paths;
 * everything else is fine, since no path of a caller ever becomes part of a mount option. */
static int set_volume(struct spec *s, const char *v, struct err *e)
{
	const char *box = strchr(v, ':');
	const char *mode = box ? strchr(box + 1, ':') : NULL;
	struct spec_volume *volume;
	char path[SPEC_PATH_SIZE];
	size_t n;

	if (!box || box == v)
		return err_set(e, 0, "value \"%.100s\": give HOST:BOX or HOST:BOX:ro", v);
	if (mode && strcmp(mode, ":ro") != 0 && strcmp(mode, ":rw") != 0)
		return err_set(e, 0,
			       "value \"%.100s\": the part after the second colon must be ro or rw",
			       v);
	n = mode ? (size_t)(mode - box - 1) : strlen(box + 1);
	if (n >= sizeof path)
		return err_set(e, 0, "path inside is longer than %zu bytes", sizeof path - 1);
	memcpy(path, box + 1, n);
	path[n] = '\0';
	if (check_mount_point(path, e) < 0)
		return -1;
	volume = grow(&s->volumes, s->volume_count, sizeof *volume, SPEC_MAX_VOLUMES, e);
	if (!volume)
		return -1;
	memcpy(volume->box, path, n + 1);
	volume->writable = !mode || strcmp(mode, ":rw") == 0;
	volume->host = strndup(v, (size_t)(box - v));
	if (!volume->host)
		return err_set(e, ENOMEM, "keep %.60s", v);
	s->volume_count++;
	return 0;
}

/* The last component of a path, without slashes behind it. */
static int last_name(const char *path, char *name, size_t size)
{
	size_t end = strlen(path), start;

	while (end > 0 && path[end - 1] == '/')
		end--;
	for (start = end; start > 0 && path[start - 1] != '/'; start--)
		;
	if (end == start || end - start >= size)
		return -1;
	memcpy(name, path + start, end - start);
	name[end - start] = '\0';
	return 0;
}

int spec_add_input(struct spec *s, const char *host, const char *box, struct err *e)
{
	struct spec_input *in;

	if (strlen(box) >= sizeof in->box)
		return err_set(e, 0, "destination is longer than %zu bytes", sizeof in->box - 1);
	if (box_path_check("destination", box, e) < 0)
		return -1;
	in = grow(&s->inputs, s->input_count, sizeof *in, SPEC_MAX_INPUTS, e);
	if (!in)
		return -1;
	in->host = strdup(host);
	if (!in->host)
		return err_set(e, ENOMEM, "keep %.60s", host);
	memcpy(in->box, box, strlen(box) + 1);
	s->input_count++;
	return 0;
}

/* SRC or SRC:DEST; DEST is below /workspace unless absolute, and a folder to put SRC in if it ends with
 * a slash. */
static int set_in(struct spec *s, const char *v, struct err *e)
{
	const char *dest = strrchr(v, ':');
	size_t n = dest ? (size_t)(dest - v) : strlen(v);
	bool into = !dest || (dest[1] && dest[strlen(dest) - 1] == '/');
	char name[SPEC_PATH_SIZE] = "", box[SPEC_PATH_SIZE];
	_cleanup_free_ char *host = strndup(v, n);
	int len;

	if (!host)
		return err_set(e, ENOMEM, "keep %.60s", v);
	if (n == 0 || (dest && !dest[1]) || (into && last_name(host, name, sizeof name) < 0))
		return err_set(e, 0, "value \"%.100s\": give SRC or SRC:DEST", v);
	len = snprintf(box, sizeof box, "%s%s%s", dest && dest[1] == '/' ? "" : "/workspace/",
		       dest ? dest + 1 : "", name);
	if (len < 0 || (size_t)len >= sizeof box)
		return err_set(e, 0, "destination is longer than %zu bytes", sizeof box - 1);
	return spec_add_input(s, host, box, e);
}

static int replace_text(char **field, const char *value, struct err *e)
{
	char *copy;

	if (!*value)
		return err_set(e, 0, "needs a value");
	copy = strdup(value);
	if (!copy)
		return err_set(e, ENOMEM, "keep %.60s", value);
	free(*field);
	*field = copy;
	return 0;
}

static int set_out(struct spec *s, const char *v, struct err *e)
{
	return replace_text(&s->out_dir, v, e);
}

static int set_venv(struct spec *s, const char *v, struct err *e)
{
	return replace_text(&s->venv, v, e);
}

static int set_artifact(struct spec *s, const char *v, struct err *e)
{
	if (!*v || *v == '/' || strstr(v, "..") || strlen(v) >= SPEC_PATH_SIZE)
		return err_set(e, 0,
			       "value \"%.100s\": give a pattern below /workspace, such as *.png",
			       v);
	return strings_add(&s->artifacts, v, SPEC_MAX_ARTIFACTS, e);
}

static int set_hostname(struct spec *s, const char *v, struct err *e)
{
	if (*v && !isalnum((unsigned char)*v))
		return reject(e, -EINVAL, v, "begin with a letter or digit");
	for (const char *p = v; *p; p++)
		if (!isalnum((unsigned char)*p) && *p != '-' && *p != '.')
			return reject(e, -EINVAL, v, "letters, digits, - and .");
	return set_text(s->hostname, sizeof s->hostname, v, e);
}

static int set_best_effort(struct spec *s, const char *v, struct err *e)
{
	if (strcmp(v, "true") != 0 && strcmp(v, "false") != 0)
		return reject(e, -EINVAL, v, "true or false");
	s->best_effort = v[0] == 't';
	return 0;
}

/* Docker's strict flags: already so. */
static int accept_flag(struct spec *s, const char *v, struct err *e)
{
	(void)s;
	if (strcmp(v, "true") != 0)
		return err_set(e, 0, "cannot be turned off: it is how every sandbox is made");
	return 0;
}

static int accept_cap_drop(struct spec *s, const char *v, struct err *e)
{
	(void)s;
	if (strcasecmp(v, "all") != 0)
		return err_set(
			e, 0,
			"value %.60s: all capabilities are dropped, always; only ALL is accepted",
			v);
	return 0;
}

static int accept_security_opt(struct spec *s, const char *v, struct err *e)
{
	(void)s;
	if (strcmp(v, "no-new-privileges") != 0 && strcmp(v, "no-new-privileges:true") != 0 &&
	    strcmp(v, "no-new-privileges=true") != 0)
		return err_set(
			e, 0,
			"value %.60s: only no-new-privileges is accepted; the seccomp filter "
			"cannot be weakened by a request (see --profile)",
			v);
	return 0;
}

static int accept_name(struct spec *s, const char *v, struct err *e)
{
	(void)s;
	if (!*v)
		return err_set(e, 0, "needs a value");
	return 0;
}

static int refuse_privilege(struct spec *s, const char *v, struct err *e)
{
	(void)s;
	(void)v;
	return err_set(e, 0, "is refused: nobody can weaken a sandbox by a request");
}

#define AMOUNT_OF(name, field)                              \
	static uint64_t amount_##name(const struct spec *s) \
	{                                                   \
		return s->field;                            \
	}
#define AMOUNT(field) AMOUNT_OF(field, field)
AMOUNT(memory_bytes)
AMOUNT(memory_swap_bytes)
AMOUNT(cpus_millis)
AMOUNT(pids_limit)
AMOUNT(timeout_us)
AMOUNT(cpu_time_us)
AMOUNT(idle_timeout_us)
AMOUNT(max_output_bytes)
AMOUNT_OF(network_bytes, network.max_bytes)
AMOUNT_OF(network_connections, network.max_connections)

#define VALUE OPTION_VALUE
#define LIST  OPTION_LIST
#define FLAG  OPTION_FLAG
const struct option options[] = {
	{"image", 0, VALUE, "REF", "host", set_image, true, false, NULL,
	 "what the code sees as its system: an image, or host: this machine's /usr, read-only"},
	{"runtime", 0, VALUE, "NAME", "native", set_runtime, true, false, NULL,
	 "isolation runtime"},
	{"profile", 0, VALUE, "NAME", "default", set_profile, true, false, NULL,
	 "system calls: default, dev (own terminals), no-locks (no file locks)"},
	{"memory", 'm', VALUE, "SIZE", "256m", set_memory, true, false, amount_memory_bytes,
	 "memory limit"},
	{"memory-swap", 0, VALUE, "SIZE", "= memory", set_memory_swap, true, false,
	 amount_memory_swap_bytes, "memory plus swap; equal to memory: no swap"},
	{"cpus", 0, VALUE, "N", "0.5", set_cpus, true, false, amount_cpus_millis, "CPU limit"},
	{"pids-limit", 0, VALUE, "N", "64", set_pids, true, false, amount_pids_limit,
	 "processes and threads at the same time"},
	{"timeout", 0, VALUE, "TIME", "5s", set_timeout, true, false, amount_timeout_us,
	 "wall clock limit"},
	{"cpu-time", 0, VALUE, "TIME", "off", set_cpu_time, true, false, amount_cpu_time_us,
	 "CPU time limit of all processes together"},
	{"idle-timeout", 0, VALUE, "TIME", "off", set_idle_timeout, true, false,
	 amount_idle_timeout_us, "longest time without output"},
	{"max-output", 0, VALUE, "SIZE", "65536", set_max_output, true, false,
	 amount_max_output_bytes, "bytes kept of each of stdout and stderr, or unlimited"},
	{"on-output-limit", 0, VALUE, "drop|kill", "drop", set_on_output_limit, true, false, NULL,
	 "drop: the program goes on; kill: the run ends"},
	{"network", 0, VALUE, "none|allow|open", "none", set_network, true, false, NULL,
	 "none: its own loopback only; allow: what the rules name; open: every public address"},
	{"allow", 0, LIST, "RULE", NULL, set_allow, true, false, NULL,
	 "with --network allow: HOST[:PORT], *.DOMAIN, or METHODS URL; see docs/network.md"},
	{"deny", 0, LIST, "RULE", NULL, set_deny, true, false, NULL,
	 "never connect to this, whatever allows it"},
	{"preset", 0, LIST, "NAME", NULL, set_preset, true, false, NULL,
	 "rules from a file: pypi, npm, debian, crates, go, conda, github-read, or the operator's"},
	{"credential", 0, LIST, "NAME", NULL, set_credential, true, false, NULL,
	 "add the operator's credential NAME to requests, outside of the sandbox"},
	{"network-bytes", 0, VALUE, "SIZE", "unlimited", set_network_bytes, true, false,
	 amount_network_bytes, "bytes sent and received over all connections"},
	{"network-connections", 0, VALUE, "N", "unlimited", set_network_connections, true, false,
	 amount_network_connections, "connections in all"},
	{"user", 'u', VALUE, "UID[:GID]", "65534:65534", set_user, true, false, NULL,
	 "user inside, numbers only; never a user of this machine"},
	{"env", 'e', LIST, "K=V|NAME", NULL, set_env, false, false, NULL,
	 "environment entry; NAME passes the caller's value"},
	{"env-file", 0, LIST, "FILE", NULL, set_env_file, false, false, NULL,
	 "environment entries, one a line"},
	{"workdir", 'w', VALUE, "DIR", "/workspace", set_workdir, true, false, NULL,
	 "working directory inside"},
	{"tmpfs", 0, LIST, "PATH[:size=,inodes=]", NULL, set_tmpfs, true, false, NULL,
	 "writable memory at PATH, counted in --memory"},
	{"volume", 'v', LIST, "HOST:BOX[:ro|rw]", NULL, set_volume, false, false, NULL,
	 "a folder or file of this machine"},
	{"in", 0, LIST, "SRC[:DEST]", NULL, set_in, false, false, NULL,
	 "copy a file or folder in, to /workspace unless DEST says otherwise"},
	{"out", 0, VALUE, "DIR", NULL, set_out, false, false, NULL,
	 "collect what is left in /output here"},
	{"artifact", 0, LIST, "GLOB", NULL, set_artifact, false, false, NULL,
	 "collect matching files of /workspace into --out too"},
	{"venv", 0, VALUE, "DIR", NULL, set_venv, false, false, NULL,
	 "Python virtual environment, read-only, first in PATH"},
	{"hostname", 'h', VALUE, "NAME", "sandbox", set_hostname, true, false, NULL,
	 "host name inside"},
	{"best-effort", 0, FLAG, NULL, "false", set_best_effort, true, false, NULL,
	 "run even when a limit cannot be enforced here; the result says which"},
	{"rm", 0, FLAG, NULL, NULL, accept_flag, false, true, NULL, "always so"},
	{"interactive", 'i', FLAG, NULL, NULL, accept_flag, false, true, NULL,
	 "stdin is always passed"},
	{"read-only", 0, FLAG, NULL, NULL, accept_flag, false, true, NULL, "always so"},
	{"cap-drop", 0, LIST, "ALL", NULL, accept_cap_drop, false, true, NULL, "always so"},
	{"security-opt", 0, LIST, "no-new-privileges", NULL, accept_security_opt, false, true, NULL,
	 "always so"},
	{"name", 0, VALUE, "NAME", NULL, accept_name, false, true, NULL,
	 "accepted and not used: runs have ids"},
	{"privileged", 0, FLAG, NULL, NULL, refuse_privilege, false, true, NULL, "refused"},
	{"cap-add", 0, LIST, "CAP", NULL, refuse_privilege, false, true, NULL, "refused"},
};
const size_t option_count = ARRAY_SIZE(options);

static bool same_name(const char *a, const char *b)
{
	for (; *a && *b; a++, b++)
		if (*a != *b && !((*a == '-' || *a == '_') && (*b == '-' || *b == '_')))
			return false;
	return *a == *b;
}

const struct option *option_find(const char *name)
{
	for (size_t i = 0; i < option_count; i++)
		if (same_name(options[i].name, name))
			return &options[i];
	return NULL;
}

const struct option *option_find_letter(char letter)
{
	for (size_t i = 0; i < option_count; i++)
		if (options[i].letter && options[i].letter == letter)
			return &options[i];
	return NULL;
}

int spec_set(struct spec *s, const struct option *o, const char *value, struct err *e)
{
	if (o->set(s, value, e) < 0) {
		int code = e->code;

		err_prefix(e, "--%s", o->name);
		e->code = code;
		return -1;
	}
	return 0;
}
