/* SPDX-License-Identifier: Apache-2.0 */
#include "spawner/check.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum permission { ANYONE, CREATES, CONTROL, EVENT };

static const struct request_row {
	const char *name;
	enum permission permission;
	size_t size;
} rows[] = {
#define REQUEST(name, number, permission, struct_name) \
	[number] = {#name, permission, sizeof(struct struct_name)},
#include "spawner/requests.def"
#undef REQUEST
};

static bool is_zero(const void *data, size_t size)
{
	const unsigned char *p = data;

	return size == 0 || (p[0] == 0 && memcmp(p, p + 1, size - 1) == 0);
}

bool sandbox_id_ok(const char id[SANDBOX_ID_SIZE])
{
	return memcmp(id, "sbx_", 4) == 0 && strnlen(id, SANDBOX_ID_SIZE) == 36 &&
	       strspn(id + 4, "0123456789abcdef") == 32 && is_zero(id + 36, SANDBOX_ID_SIZE - 36);
}

int request_check(const void *message, size_t size, size_t fd_count, bool greeted, struct err *e)
{
	const struct spawner_header *h = message;
	const struct request_row *row;

	if (size < sizeof *h)
		return err_set(e, EBADMSG, "a message of %zu bytes", size);
	row = h->type < ARRAY_SIZE(rows) ? &rows[h->type] : NULL;
	if (!row || !row->name || row->permission == EVENT)
		return err_set(e, EBADMSG, "there is no request %u", h->type);
	if (size != row->size)
		return err_set(e, EBADMSG, "%s: %zu bytes instead of %zu", row->name, size,
			       row->size);
	if (h->sequence == 0)
		return err_set(e, EBADMSG, "%s: has no sequence number", row->name);
	if (!greeted && row->permission != ANYONE)
		return err_set(e, EPERM, "%s: say HELLO first", row->name);
	if (fd_count && row->permission != CREATES)
		return err_set(e, EBADMSG, "%s: takes no descriptors", row->name);
	if (h->type == SPAWNER_HELLO) {
		const struct spawner_hello *hello = message;

		if (hello->version != SPAWNER_VERSION || hello->zero)
			return err_set(e, EPROTO, "version %u of the protocol; this is %d",
				       hello->version, SPAWNER_VERSION);
	} else if (h->type != SPAWNER_LIST &&
		   !sandbox_id_ok((const char *)message + sizeof *h)) { /* the id is first in all */
		return err_set(e, EBADMSG, "%s: the id is not one of a sandbox", row->name);
	}
	return 0;
}

/* ---- the operator's file */

static int policy_read(struct policy *p, struct err *e)
{
	struct spec scratch;

	if (spec_init(&scratch, e) < 0)
		return -1;
	if (settings_load(&p->settings, p->places, false, &scratch, e) < 0) {
		settings_done(&p->settings);
		spec_done(&scratch);
		return -1;
	}
	p->settings.network.serves_others = true;
	spec_done(&scratch);
	return 0;
}

int policy_refresh(struct policy *p, struct err *e)
{
	struct stat st;

	if (stat(p->places->system_config, &st) < 0) {
		if (errno != ENOENT && errno != ENOTDIR)
			return err_set(e, errno, "%s", p->places->system_config);
		st = (struct stat){0};
	}
	if (!p->read || st.st_ino != p->seen.st_ino || st.st_size != p->seen.st_size ||
	    st.st_mtim.tv_sec != p->seen.st_mtim.tv_sec ||
	    st.st_mtim.tv_nsec != p->seen.st_mtim.tv_nsec) {
		settings_done(&p->settings);
		p->why = (struct err){0};
		p->broken = policy_read(p, &p->why) < 0;
		p->seen = st;
		p->read = true;
		p->readings++;
	}
	if (!p->broken)
		return 0;
	*e = p->why;
	e->code = CODE_SANDBOX_CREATE_FAILED;
	return err_prefix(e, "the operator's configuration");
}

void policy_done(struct policy *p)
{
	settings_done(&p->settings);
	p->read = false;
}

/* ---- CREATE */

/* A string of this field: ended, followed by zeros only, without control characters. */
static int text_check(const char *what, const char *field, size_t size, struct err *e)
{
	size_t n = strnlen(field, size);

	if (n == size || !is_zero(field + n, size - n))
		return err_set(e, EBADMSG, "%s: is not one string", what);
	for (size_t i = 0; i < n; i++)
		if ((unsigned char)field[i] < 0x20 || field[i] == 0x7f)
			return err_set(e, EBADMSG, "%s: has a control character", what);
	return 0;
}

static int texts_check(const struct spawner_create *m, struct err *e)
{
	const struct {
		const char *what, *field;
		size_t size;
	} texts[] = {
		{"image", m->image, sizeof m->image},
		{"runtime", m->runtime, sizeof m->runtime},
		{"profile", m->profile, sizeof m->profile},
		{"hostname", m->hostname, sizeof m->hostname},
		{"venv", m->venv, sizeof m->venv},
		{"zygote", m->zygote, sizeof m->zygote},
		{"tenant", m->tenant, sizeof m->tenant},
	};

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		if (text_check(texts[i].what, texts[i].field, texts[i].size, e) < 0)
			return -1;
	for (uint32_t i = 0; i < m->tmpfs_count; i++)
		if (text_check("tmpfs", m->tmpfs[i].path, sizeof m->tmpfs[i].path, e) < 0)
			return -1;
	for (uint32_t i = 0; i < m->volume_count; i++)
		if (text_check("volume", m->volumes[i].box, sizeof m->volumes[i].box, e) < 0 ||
		    text_check("volume", m->volumes[i].host, sizeof m->volumes[i].host, e) < 0)
			return -1;
	return 0;
}

/* Counts and everything that is zero or one. */
static int shape_check(const struct spawner_create *m, struct err *e)
{
	if (m->tmpfs_count > SPEC_MAX_TMPFS || m->volume_count > SPEC_MAX_VOLUMES)
		return err_set(e, EBADMSG, "%u tmpfs and %u volumes: at most %d and %d",
			       m->tmpfs_count, m->volume_count, SPEC_MAX_TMPFS, SPEC_MAX_VOLUMES);
	if (m->pull > 1)
		return err_set(e, EBADMSG, "pull: is neither 0 nor 1");
	if (!is_zero(m->zero, sizeof m->zero) ||
	    !is_zero(m->tmpfs + m->tmpfs_count,
		     (SPEC_MAX_TMPFS - m->tmpfs_count) * sizeof *m->tmpfs) ||
	    !is_zero(m->volumes + m->volume_count,
		     (SPEC_MAX_VOLUMES - m->volume_count) * sizeof *m->volumes))
		return err_set(e, EBADMSG, "CREATE: unused fields are not zero");
	for (uint32_t i = 0; i < m->tmpfs_count; i++)
		if (m->tmpfs[i].exec > 1 || m->tmpfs[i].zero)
			return err_set(e, EBADMSG, "tmpfs %u: a flag is neither 0 nor 1", i);
	for (uint32_t i = 0; i < m->volume_count; i++)
		if (m->volumes[i].writable > 1 || (m->volumes[i].host[0] && m->volumes[i].owner))
			return err_set(e, EBADMSG, "volume %u: flags that mean nothing", i);
	if (m->memory_bytes > SPAWNER_SIZE_MAX || m->memory_swap_bytes > SPAWNER_SIZE_MAX ||
	    m->disk_bytes > SPAWNER_SIZE_MAX)
		return err_set(e, ERANGE, "memory or disk: no machine has so much");
	return 0;
}

/* One value, through the same setter as everyone's. */
static int put(struct spec *s, struct settings *t, const char *name, const char *value,
	       struct err *e)
{
	const struct option *o = option_find(name);

	if (!o)
		return err_set(e, 0, "no option %s", name);
	t->origins[o - options] = ORIGIN_FLAG; /* asked for: never lowered, refused */
	return spec_set(s, o, value, e);
}

static int put_number(struct spec *s, struct settings *t, const char *name, uint64_t value,
		      struct err *e)
{
	char text[24];

	snprintf(text, sizeof text, "%llu", (unsigned long long)value);
	return put(s, t, name, text, e);
}

static int put_limits(struct spec *s, struct settings *t, const struct spawner_create *m,
		      struct err *e)
{
	char cpus[40], user[32];

	snprintf(cpus, sizeof cpus, "%llu.%03llu", (unsigned long long)m->cpus_millis / 1000,
		 (unsigned long long)m->cpus_millis % 1000);
	snprintf(user, sizeof user, "%u:%u", m->uid, m->gid);
	if (put_number(s, t, "memory", m->memory_bytes, e) < 0 ||
	    (m->memory_swap_bytes &&
	     put_number(s, t, "memory-swap", m->memory_swap_bytes, e) < 0) ||
	    put(s, t, "cpus", cpus, e) < 0 ||
	    put_number(s, t, "pids-limit", m->pids_limit, e) < 0 || put(s, t, "user", user, e) < 0)
		return -1;
	return 0;
}

static int put_tmpfs(struct spec *s, struct settings *t, const struct spawner_create *m,
		     struct err *e)
{
	for (uint32_t i = 0; i < m->tmpfs_count; i++) {
		const struct spawner_tmpfs *f = &m->tmpfs[i];
		char text[SPEC_PATH_SIZE + 96];

		if (strchr(f->path, ':') || f->size_bytes > SPAWNER_SIZE_MAX)
			return err_set(e, EBADMSG, "tmpfs %s: impossible path or size", f->path);
		for (uint32_t j = 0; j < i; j++)
			if (strcmp(m->tmpfs[j].path, f->path) == 0)
				return err_set(e, EBADMSG, "tmpfs %s: is there twice", f->path);
		snprintf(text, sizeof text, "%s:size=%llu,inodes=%llu,%s", f->path,
			 (unsigned long long)f->size_bytes, (unsigned long long)f->inodes,
			 f->exec ? "exec" : "noexec");
		if (put(s, t, "tmpfs", text, e) < 0)
			return -1;
	}
	return 0;
}

static int put_volumes(struct spec *s, struct settings *t, const struct spawner_create *m,
		       bool rootless, struct err *e)
{
	for (uint32_t i = 0; i < m->volume_count; i++) {
		const struct spawner_volume *v = &m->volumes[i];
		char text[SPEC_PATH_SIZE + 32];

		if (strchr(v->box, ':'))
			return err_set(e, EBADMSG, "volume %s: impossible path", v->box);
		if (v->host[0] && !t->volume_roots)
			return err_set(e, EPERM,
				       "volume %.200s: the operator's policy has no volume_roots",
				       v->host);
		if (m->disk_bytes && strcmp(v->box, "/workspace") == 0)
			return err_set(e, 0, "volume /workspace: is the disk already");
		if (rootless && v->writable)
			return err_set(
				e, EPERM,
				"volume %.200s: an ordinary user cannot map ids, so files could "
				"not be given back; use the files API, or :ro",
				v->box);
		/* What is mounted there comes from create_volumes(). */
		snprintf(text, sizeof text, "volume:%s:%s", v->box, v->writable ? "rw" : "ro");
		if (put(s, t, "volume", text, e) < 0)
			return -1;
	}
	return 0;
}

/* Each line through the setter of the option that has written it. */
static int put_rule(struct spec *s, struct settings *t, char *line, struct err *e)
{
	static const struct {
		const char *word, *option;
	} words[] = {
		{"allow", "allow"},
		{"deny", "deny"},
		{"preset", "preset"},
		{"credential", "credential"},
		{"max-bytes", "network-bytes"},
		{"max-connections", "network-connections"},
	};
	char *value = strchr(line, ' ');

	if (value)
		*value++ = '\0';
	for (size_t i = 0; value && i < ARRAY_SIZE(words); i++)
		if (strcmp(line, words[i].word) == 0)
			return put(s, t, words[i].option, value, e);
	return err_set(e, EBADMSG, "network: %.40s: is no rule", line);
}

static int network_shape_check(const struct spawner_network *n, struct err *e)
{
	if (n->mode >= NETWORK_MODE_COUNT || n->size > sizeof n->rules ||
	    !is_zero(n->rules + n->size, sizeof n->rules - n->size))
		return err_set(e, EBADMSG, "network: an impossible mode or size");
	if (n->mode == NETWORK_NONE && (n->size || n->owner[0]))
		return err_set(e, EBADMSG, "network: rules that mean nothing");
	if (memchr(n->rules, '\0', n->size) || (n->size && n->rules[n->size - 1] != '\n'))
		return err_set(e, EBADMSG, "network: rules that are no lines");
	return text_check("network owner", n->owner, sizeof n->owner, e);
}

static int put_network(struct spec *s, struct settings *t, const struct spawner_network *n,
		       struct err *e)
{
	_cleanup_free_ char *text = NULL;
	char *rest, *line;

	if (network_shape_check(n, e) < 0)
		return -1;
	if (n->mode == NETWORK_NONE)
		return 0;
	rest = text = strndup(n->rules, n->size);
	if (!text)
		return err_set(e, ENOMEM, "read network rules");
	if (put(s, t, "network", network_mode_name((enum network_mode)n->mode), e) < 0)
		return -1;
	while ((line = strsep(&rest, "\n")))
		if ((*line || rest) && put_rule(s, t, line, e) < 0)
			return -1;
	return 0;
}

static int disk_check(const struct policy *p, const struct spawner_create *m, const struct spec *s,
		      struct err *e)
{
	if (m->disk_bytes == 0)
		return 0;
	if (p->places->rootless)
		return err_set(e, EPERM, "disk: an ordinary user cannot mount one; leave it out");
	if (m->disk_bytes < SPAWNER_DISK_MIN || m->disk_bytes % 4096)
		return err_set(e, ERANGE, "disk: give a multiple of 4096 from %d bytes on",
			       SPAWNER_DISK_MIN);
	for (size_t i = 0; i < s->tmpfs_count; i++)
		if (strncmp(s->tmpfs[i].path, "/workspace/", 11) == 0)
			return err_set(e, 0, "tmpfs %s: is on the disk", s->tmpfs[i].path);
	return 0;
}

static int descriptors_check(const struct spawner_create *m, size_t fd_count, struct err *e)
{
	size_t wanted = 0;

	for (uint32_t i = 0; i < m->volume_count; i++)
		wanted += !m->volumes[i].host[0];
	if (fd_count != wanted)
		return err_set(e, EBADMSG, "CREATE: %zu descriptors for %zu volumes", fd_count,
			       wanted);
	return 0;
}

/* Prepared sandboxes have nothing of a client's but the limits. */
static int zygote_check(const struct policy *p, const struct spawner_create *m, struct err *e)
{
	if (!m->zygote[0])
		return m->tenant[0] || m->prepared
			       ? err_set(e, EBADMSG, "tenant, prepared: mean nothing here")
			       : 0;
	if (strcmp(m->zygote, "python") != 0 || !m->tenant[0] || m->prepared > 1)
		return err_set(e, EBADMSG, "zygote: python, with a tenant");
	if (m->volume_count || m->disk_bytes || m->venv[0] || m->network.mode != NETWORK_NONE)
		return err_set(e, EBADMSG, "zygote: not with volumes, a disk, or a network");
	if (strcmp(m->image, "host") != 0)
		return err_set(e, EBADMSG, "zygote: of the host image only");
	if (p->places->rootless)
		return err_set(e, EPERM, "zygote: needs root");
	if (p->settings.no_prepared_python)
		return err_set(e, EPERM,
			       "zygote: the operator's policy has prepared_python: false");
	return 0;
}

int change_check(const struct policy *p, const struct spawner_change *m, struct spec *s,
		 struct err *e)
{
	struct settings t = p->settings; /* as in create_check() */

	*s = (struct spec){0};
	if (spec_init(s, e) < 0 || spec_add_argument(s, "init", e) < 0)
		return -1;
	for (size_t i = 0; i < ARRAY_SIZE(t.origins); i++)
		t.origins[i] = ORIGIN_DEFAULT;
	if (put_network(s, &t, &m->network, e) < 0 || settings_apply_policy(&t, s, e) < 0)
		return -1;
	return spec_finish(s, e);
}

static int put_names(struct spec *s, struct settings *t, const struct spawner_create *m,
		     struct err *e)
{
	const struct {
		const char *option, *value;
	} names[] = {
		{"image", m->image},
		{"runtime", m->runtime},
		{"profile", m->profile},
		{"hostname", m->hostname},
	};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (put(s, t, names[i].option, names[i].value, e) < 0)
			return -1;
	return 0;
}

int create_check(const struct policy *p, const struct spawner_create *m, size_t fd_count,
		 struct spec *s, struct err *e)
{
	struct settings t = p->settings; /* borrowed; only its origins are written to */

	*s = (struct spec){0};
	if (shape_check(m, e) < 0 || texts_check(m, e) < 0 ||
	    descriptors_check(m, fd_count, e) < 0 || zygote_check(p, m, e) < 0)
		return -1;
	if (spec_init(s, e) < 0 || spec_add_argument(s, "init", e) < 0)
		return -1;
	for (size_t i = 0; i < ARRAY_SIZE(t.origins); i++)
		t.origins[i] = ORIGIN_DEFAULT;
	if (put_names(s, &t, m, e) < 0 || put_limits(s, &t, m, e) < 0 ||
	    put_tmpfs(s, &t, m, e) < 0 || put_network(s, &t, &m->network, e) < 0)
		return -1;
	/* Before there are paths: whether those are allowed is create_volumes()'s to say. */
	if (settings_apply_policy(&t, s, e) < 0)
		return -1;
	if (put_volumes(s, &t, m, p->places->rootless, e) < 0 || disk_check(p, m, s, e) < 0)
		return -1;
	if (m->venv[0]) {
		if (!t.volume_roots)
			return err_set(e, EPERM, "venv: the operator's policy has no volume_roots");
		if (put(s, &t, "venv", m->venv, e) < 0)
			return -1;
	}
	return spec_finish(s, e);
}

/* ---- in the worker */

/* What is really there below one of the operator's folders; no link on the way, whoever put it. */
static int open_below_roots(const struct policy *p, const char *path, int *ret_fd, struct err *e)
{
	const struct open_how how = {.flags = O_PATH | O_CLOEXEC,
				     .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS |
						RESOLVE_NO_MAGICLINKS};
	const json_t *root;
	size_t i;

	json_array_foreach(p->settings.volume_roots, i, root) {
		const char *folder = json_string_value(root), *rest;
		size_t n = folder ? strlen(folder) : 0;
		_cleanup_close_ int dir = -1;

		while (n > 1 && folder[n - 1] == '/')
			n--;
		if (n == 0 || folder[0] != '/' || strncmp(path, folder, n) != 0 ||
		    (path[n] != '/' && path[n] != '\0' && n > 1))
			continue;
		rest = path + n + strspn(path + n, "/");
		dir = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
		if (dir < 0)
			return err_set(e, errno, "volume root %.200s", folder);
		*ret_fd = (int)syscall(SYS_openat2, dir, *rest ? rest : ".", &how, sizeof how);
		return *ret_fd < 0 ? err_set(e, errno, "volume %.200s", path) : 0;
	}
	return err_set(
		e, EPERM,
		"volume %.200s: the operator's policy allows only what is below its volume_roots",
		path);
}

/* An O_PATH descriptor proves nothing but that somebody could walk there: a service that was taken over
 * could make one of any user's folder and say whose it is. One for reading it cannot make, Landlock holding
 * it to its state; so what comes has come from a client who may read it. */
static int take_descriptor(const struct spawner_volume *v, int fd, int *ret_fd, struct err *e)
{
	struct stat st;
	int flags = fcntl(fd, F_GETFL);

	if (flags < 0 || fstat(fd, &st) < 0)
		return err_set(e, errno, "the descriptor for %s", v->box);
	if (flags & O_PATH)
		return err_set(e, EPERM,
			       "the volume for %s: its descriptor must be open for reading",
			       v->box);
	if (st.st_uid == 0 || st.st_uid != v->owner)
		return err_set(e, EPERM,
			       "the volume for %s: belongs to user %u; only what is one's own, and "
			       "never root's, can be given",
			       v->box, st.st_uid);
	*ret_fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	return *ret_fd < 0 ? err_set(e, errno, "the descriptor for %s", v->box) : 0;
}

static size_t place_of(const struct spec *s, const char *box)
{
	size_t i = 0;

	while (i < s->volume_count && strcmp(s->volumes[i].box, box) != 0)
		i++;
	return i;
}

int create_volumes(const struct policy *p, const struct spawner_create *m, const struct spec *s,
		   const int *fds, int ret[PLAN_MAX_VOLUMES], struct err *e)
{
	size_t given = 0;

	for (size_t i = 0; i < PLAN_MAX_VOLUMES; i++)
		ret[i] = -1;
	for (uint32_t i = 0; i < m->volume_count; i++) {
		const struct spawner_volume *v = &m->volumes[i];
		size_t place = place_of(s, v->box); /* spec_finish() has sorted them */
		int r = v->host[0] ? open_below_roots(p, v->host, &ret[place], e)
				   : take_descriptor(v, fds[given++], &ret[place], e);

		if (r < 0)
			return -1;
	}
	return m->venv[0] ? open_below_roots(p, m->venv, &ret[SPEC_MAX_VOLUMES], e) : 0;
}
