/* SPDX-License-Identifier: Apache-2.0 */
/*
 * oneshot_body.c - a spec as the body of POST /v1/runs.
 *
 * What nobody said stays out: the service has defaults of its own, and lowers those, but no chosen value,
 * to its policy's maximum.
 */
#include <fcntl.h>
#include <string.h>

#include "base/json.h"
#include "cli/oneshot.h"
#include "native/volume.h"

const char *const oneshot_automatic[2] = {"NODE_OPTIONS", "JAVA_TOOL_OPTIONS"};

int oneshot_hint(struct err *e)
{
	struct err before = *e;

	return err_set(e, 0, "%.700s (--direct runs it without the service)", before.text);
}

/* Amounts as the service's numbers: bytes, seconds, CPUs, processes. */
static json_t *amount_json(const struct spec *s, const struct option *o)
{
	uint64_t v = o->amount(s);

	if (v == SPEC_UNLIMITED)
		return json_string("unlimited");
	if (strstr(o->name, "time"))
		return json_real((double)v / 1e6);
	if (strcmp(o->name, "cpus") == 0)
		return json_real((double)v / 1000);
	return json_integer((json_int_t)v);
}

/* NULL: no scalar that goes along, or not UTF-8. */
static json_t *text_json(const struct spec *s, const char *name)
{
	const struct {
		const char *name, *value;
	} texts[] = {
		{"image", s->image},
		{"runtime", s->runtime},
		{"profile", s->profile},
		{"hostname", s->hostname},
		{"workdir", s->workdir},
		{"on-output-limit", s->kill_on_output_limit ? "kill" : "drop"},
		{"network", network_mode_name(s->network.mode)},
	};

	if (strcmp(name, "user") == 0)
		return json_sprintf("%u:%u", s->uid, s->gid);
	if (strcmp(name, "best-effort") == 0)
		return s->best_effort ? json_true() : NULL;
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		if (strcmp(texts[i].name, name) == 0)
			return json_string(texts[i].value);
	return NULL;
}

static bool is_scalar(const struct option *o)
{
	return o->kind != OPTION_LIST && !o->docker && strcmp(o->name, "out") != 0 &&
	       strcmp(o->name, "venv") != 0;
}

static int add_scalars(json_t *body, const struct oneshot *o, struct err *e)
{
	for (size_t i = 0; i < option_count; i++) {
		char key[64];
		json_t *value;

		if (o->origins[i] == ORIGIN_DEFAULT || !is_scalar(&options[i]))
			continue;
		snprintf(key, sizeof key, "%s", options[i].name);
		for (char *p = key; *p; p++)
			if (*p == '-')
				*p = '_';
		value = options[i].amount ? amount_json(o->spec, &options[i])
					  : text_json(o->spec, options[i].name);
		if (!value && strcmp(options[i].name, "best-effort") == 0)
			continue; /* false: as it is */
		if (json_object_set_new(body, key, value) < 0) {
			err_set(e, 0, "--%s: value is no UTF-8", options[i].name);
			return oneshot_hint(e);
		}
	}
	return 0;
}

static int add_list(json_t *body, const char *key, const struct strings *items, struct err *e)
{
	json_t *list = json_array();

	if (json_object_set_new(body, key, list) < 0)
		return err_set(e, ENOMEM, "make a request");
	for (size_t i = 0; i < items->count; i++)
		if (json_array_append_new(list, json_string(items->item[i])) < 0) {
			err_set(e, 0, "%s: item %zu is no UTF-8", key, i + 1);
			return oneshot_hint(e);
		}
	return 0;
}

/* What is as it would be anyway stays out. */
static bool is_usual_tmpfs(const struct spec *usual, const struct spec_tmpfs *t)
{
	static const struct spec_tmpfs output = {"/output", 64ull << 20, 16384, false};
	const struct spec_tmpfs *other = &output;

	for (size_t i = 0; i < usual->tmpfs_count; i++)
		if (strcmp(usual->tmpfs[i].path, t->path) == 0)
			other = &usual->tmpfs[i];
	return strcmp(other->path, t->path) == 0 && other->size_bytes == t->size_bytes &&
	       other->inodes == t->inodes && other->exec == t->exec;
}

static int add_network(json_t *body, const struct network_spec *n, struct err *e)
{
	const struct {
		const char *key;
		const struct strings *list;
	} lists[] = {
		{"allow", &n->allow},
		{"deny", &n->deny},
		{"preset", &n->presets},
		{"credential", &n->credentials},
	};

	for (size_t i = 0; i < ARRAY_SIZE(lists); i++)
		if (lists[i].list->count && add_list(body, lists[i].key, lists[i].list, e) < 0)
			return -1;
	return 0;
}

static int add_tmpfs(json_t *body, const struct spec *s, struct err *e)
{
	json_t *list = json_array();
	struct spec usual;
	int r = 0;

	if (spec_init(&usual, e) < 0) {
		json_decref(list);
		return -1;
	}
	for (size_t i = 0; i < s->tmpfs_count && r == 0; i++) {
		const struct spec_tmpfs *t = &s->tmpfs[i];

		if (is_usual_tmpfs(&usual, t))
			continue;
		r = json_array_append_new(list, json_sprintf("%s:size=%llu,inodes=%llu,%s", t->path,
							     (unsigned long long)t->size_bytes,
							     (unsigned long long)t->inodes,
							     t->exec ? "exec" : "noexec"));
		if (r < 0) {
			err_set(e, 0, "--tmpfs %s: is no UTF-8", t->path);
			oneshot_hint(e);
		}
	}
	spec_done(&usual);
	if (r == 0 && json_array_size(list) > 0)
		return json_object_set_new(body, "tmpfs", list);
	json_decref(list);
	return r;
}

/* The environment of Python is one more volume, read-only at its own path. */
static int add_venv(json_t *body, const struct oneshot *o, int fds[CALL_FDS], size_t *fd_count,
		    struct err *e)
{
	const char *venv = o->spec->venv;
	json_t *list = json_object_get(body, "volume_fds");

	if (!o->service->local) {
		err_set(e, 0, "--venv: a service on another machine does not have it");
		return oneshot_hint(e);
	}
	if (venv_check(venv, e) < 0)
		return -1;
	if (*fd_count >= SPEC_MAX_VOLUMES)
		return err_set(e, 0, "--venv: with it there are more than %d volumes",
			       SPEC_MAX_VOLUMES);
	fds[*fd_count] = open(venv, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fds[*fd_count] < 0)
		return err_set(e, errno, "--venv %.200s", venv);
	++*fd_count;
	if (!list) {
		list = json_array();
		json_object_set_new(body, "volume_fds", list);
	}
	return json_array_append_new(list, json_sprintf("%s:ro", venv)) < 0
		       ? err_set(e, 0, "--venv %.200s: is no UTF-8", venv)
		       : 0;
}

static void drop_automatic(json_t *body, const struct oneshot *o)
{
	for (size_t i = 0; i < ARRAY_SIZE(oneshot_automatic); i++)
		if (!o->own_env[i])
			json_object_del(json_object_get(body, "env"), oneshot_automatic[i]);
}

static int fill(json_t *body, const struct oneshot *o, int fds[CALL_FDS], size_t *fd_count,
		struct err *e)
{
	const struct spec *s = o->spec;

	if (s->no_pull && json_object_set_new(body, "pull", json_string("never")) < 0)
		return err_set(e, ENOMEM, "make a request");
	if (add_scalars(body, o, e) < 0 || add_list(body, "command", &s->command, e) < 0 ||
	    add_tmpfs(body, s, e) < 0 || add_network(body, &s->network, e) < 0)
		return -1;
	if (body_env(body, s, e) < 0)
		return oneshot_hint(e);
	drop_automatic(body, o);
	if (s->volume_count && body_volumes(body, s, o->service->local, fds, fd_count, e) < 0)
		return -1;
	if (s->venv && add_venv(body, o, fds, fd_count, e) < 0)
		return -1;
	if (s->artifacts.count && add_list(body, "artifact", &s->artifacts, e) < 0)
		return -1;
	if (s->out_dir && json_object_set_new(body, "output", json_true()) < 0)
		return err_set(e, ENOMEM, "make a request");
	return s->input_count ? oneshot_files(body, s, e) : 0;
}

json_t *oneshot_body(const struct oneshot *o, int fds[CALL_FDS], size_t *fd_count, struct err *e)
{
	_cleanup_json_ json_t *body = json_object();

	*fd_count = 0;
	if (!body) {
		err_set(e, ENOMEM, "make a request");
		return NULL;
	}
	return fill(body, o, fds, fd_count, e) < 0 ? NULL : TAKE_PTR(body);
}
