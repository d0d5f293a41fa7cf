/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/result.h"

#include <stdio.h>
#include <string.h>

#include "base/base64.h"

void result_done(struct result *r)
{
	free(r->out.data);
	free(r->err.data);
	for (size_t i = 0; i < r->artifact_count; i++)
		free(r->artifacts[i].path);
	free(r->artifacts);
	network_usage_done(&r->network);
	*r = (struct result){0};
}

bool result_ok(const struct result *r)
{
	return r->reason == REASON_EXITED && r->has_exit_code && r->exit_code == 0 &&
	       !r->artifacts_failed;
}

enum code result_code(const struct result *r)
{
	enum code code = reasons[r->reason].code;

	if (r->reason == REASON_EXITED && r->exit_code == 0)
		return r->artifacts_failed ? CODE_SANDBOX_ARTIFACT_EXPORT_FAILED : CODE_NONE;
	return code == CODE_COMMAND_FAILED && r->network.denied > 0 ? CODE_SANDBOX_NETWORK_DENIED
								    : code;
}

/* A command that is not there, or not executable, will not be there next time either. */
bool result_retryable(const struct result *r)
{
	if (r->reason == REASON_CREATE_FAILED && strcmp(r->stage, "exec") == 0)
		return false;
	return reasons[r->reason].retryable;
}

int result_exit_status(const struct result *r)
{
	int status = reasons[r->reason].exit_status;

	if (r->reason == REASON_CREATE_FAILED && strcmp(r->stage, "exec") == 0)
		return r->errnum == ENOENT || r->errnum == ENOTDIR ? 127 : 126;
	if (status == EXIT_SIGNAL)
		return 128 + r->signal;
	if (status == EXIT_OWN)
		return r->exit_code == 0 && r->artifacts_failed ? 125 : r->exit_code;
	return status;
}

/* Length of the valid UTF-8 character at p (RFC 3629: no overlong forms, no surrogates), 0 if there
 * is none, -1 if it is valid so far but cut off by the end. */
static int utf8_char(const unsigned char *p, size_t left)
{
	unsigned char low = 0x80, high = 0xbf;
	int n;

	if (p[0] < 0x80)
		return 1;
	if (p[0] < 0xc2 || p[0] > 0xf4)
		return 0;
	n = p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
	if (p[0] == 0xe0)
		low = 0xa0;
	else if (p[0] == 0xed)
		high = 0x9f;
	else if (p[0] == 0xf0)
		low = 0x90;
	else if (p[0] == 0xf4)
		high = 0x8f;
	for (int i = 1; i < n; i++) {
		if ((size_t)i >= left)
			return -1;
		if (p[i] < low || p[i] > high)
			return 0;
		low = 0x80;
		high = 0xbf;
	}
	return n;
}

ssize_t utf8_prefix(const char *data, size_t size, bool truncated)
{
	size_t i = 0;

	while (i < size) {
		int n = utf8_char((const unsigned char *)data + i, size - i);

		if (n == -1 && truncated)
			break;
		if (n <= 0)
			return -1;
		i += (size_t)n;
	}
	return (ssize_t)i;
}

static json_t *stream_text(const struct captured *c, ssize_t prefix, bool raw)
{
	_cleanup_free_ char *text = NULL;
	size_t size;

	if (!raw)
		return json_stringn(c->size ? c->data : "", (size_t)prefix);
	text = base64_encode(c->data ? c->data : "", c->size, &size);
	return text ? json_stringn(text, size) : NULL;
}

static json_t *stream_counts(const struct captured *c, uint64_t kept)
{
	return json_pack("{sIsIsI}", "bytes", (json_int_t)c->bytes, "kept", (json_int_t)kept,
			 "dropped", (json_int_t)(c->bytes - kept));
}

static json_t *number_or_null(uint64_t value, double divisor)
{
	if (value == RESULT_UNKNOWN)
		return json_null();
	return divisor == 1 ? json_integer((json_int_t)value) : json_real((double)value / divisor);
}

/* A file name from inside may be any bytes; what is not UTF-8 is shown as \xNN. */
static json_t *name_text(const char *name)
{
	size_t size = strlen(name);
	_cleanup_free_ char *text = NULL;
	char *t;

	if (utf8_prefix(name, size, false) == (ssize_t)size)
		return json_stringn(name, size);
	text = t = malloc(size * 4 + 1);
	if (!text)
		return NULL;
	for (const unsigned char *p = (const unsigned char *)name; *p; p++)
		t += snprintf(t, 5, *p >= 0x80 || *p == '\\' ? "\\x%02x" : "%c", *p);
	return json_stringn(text, (size_t)(t - text));
}

static json_t *artifacts_json(const struct result *r)
{
	json_t *list = json_array();

	for (size_t i = 0; list && i < r->artifact_count; i++) {
		const struct artifact *a = &r->artifacts[i];
		json_t *row = json_pack("{sososo}", "path", name_text(a->path), "bytes",
					number_or_null(a->size_bytes, 1), "skipped",
					a->skipped ? json_string(a->skipped) : json_null());

		if (json_array_append_new(list, row) < 0) {
			json_decref(list);
			return NULL;
		}
	}
	return list;
}

static json_t *limits_hit_json(unsigned hit)
{
	json_t *list = json_array();

	for (int i = 0; i < HIT_COUNT; i++)
		if (hit & (1u << i) &&
		    json_array_append_new(list, json_string(limit_hit_names[i])) < 0) {
			json_decref(list);
			return NULL;
		}
	return list;
}

json_t *enforced_to_json(const struct enforced *f)
{
	return json_pack("{ss sb sb sI ss ss ss ss ss ss ss ss ss sb ss si}", "runtime", f->runtime,
			 "rootless", f->rootless, "user_namespace", f->user_namespace, "uid",
			 (json_int_t)f->uid, "memory", f->memory, "swap", f->swap, "cpu", f->cpu,
			 "pids", f->pids, "network", f->network, "network_denials",
			 f->network_denials, "rootfs", f->rootfs, "disk", f->disk, "capabilities",
			 f->capabilities, "no_new_privs", f->no_new_privs, "seccomp", f->seccomp,
			 "landlock", f->landlock);
}

/* Hosts only: they are names by their form, nothing a sentence could be made of. */
static void denied_message(const struct network_usage *u, char *text, size_t size)
{
	char hosts[400];

	network_usage_text(u, hosts, sizeof hosts);
	snprintf(
		text, size,
		"The code failed, and its connections to %s were refused: these hosts are not allowed "
		"here. Trying again will not help.",
		hosts);
}

/* What a model is told: what happened, in general words, never a host path. */
static void model_message(const struct result *r, char *text, size_t size)
{
	enum code code = result_code(r);

	if (code == CODE_SANDBOX_NETWORK_DENIED) {
		denied_message(&r->network, text, size);
		return;
	}
	switch (r->reason) {
	case REASON_EXITED:
		if (code == CODE_COMMAND_FAILED)
			snprintf(text, size, "The command ended with exit code %d.", r->exit_code);
		else
			snprintf(text, size, "%s", codes[code].model);
		break;
	case REASON_SIGNALED:
		snprintf(text, size, "The command was ended by signal %d.", r->signal);
		break;
	case REASON_SECCOMP_VIOLATION:
		snprintf(text, size, "The command made a system call that is not allowed.");
		break;
	case REASON_TIMEOUT:
		snprintf(text, size, "The code did not finish within %.6g second%s.",
			 (double)r->timeout_us / 1e6, r->timeout_us == 1000000 ? "" : "s");
		break;
	case REASON_CREATE_FAILED:
		if (strcmp(r->stage, "exec") == 0) {
			snprintf(text, size,
				 "The command could not be found or is not executable.");
			break;
		}
		/* fall through */
	default:
		snprintf(text, size, "%s", codes[code].model);
	}
}

/* What was passed on as it came is not here any more, but was kept. */
static uint64_t kept_of(const struct captured *c, bool raw, ssize_t text)
{
	return c->size == 0 ? c->kept : raw ? c->size : (uint64_t)text;
}

json_t *result_to_json(const struct result *r)
{
	bool out_cut = r->out.size < r->out.bytes, err_cut = r->err.size < r->err.bytes;
	ssize_t out_text = utf8_prefix(r->out.data, r->out.size, out_cut);
	ssize_t err_text = utf8_prefix(r->err.data, r->err.size, err_cut);
	bool raw = out_text < 0 || err_text < 0;
	uint64_t out_kept = kept_of(&r->out, raw, out_text),
		 err_kept = kept_of(&r->err, raw, err_text);
	enum code code = result_code(r);
	char for_model[640];
	const char *message = r->message[0] ? r->message : codes[code].people;

	model_message(r, for_model, sizeof for_model);
	return json_pack(
		"{ss ss sb ss so sb so so ss so so sb so so ss s{so so} so sI so so s{sf so so so} so}",
		"id", r->id, "sandbox", r->sandbox, "ok", result_ok(r), "reason",
		reasons[r->reason].name, "error_code",
		code == CODE_NONE ? json_null() : json_string(codes[code].name), "retryable",
		result_retryable(r), "stage", r->stage[0] ? json_string(r->stage) : json_null(),
		"message", name_text(message), "model_message", for_model, "exit_code",
		r->has_exit_code ? json_integer(r->exit_code) : json_null(), "signal",
		r->signal ? json_integer(r->signal) : json_null(), "timed_out",
		r->reason == REASON_TIMEOUT, "stdout", stream_text(&r->out, out_text, raw),
		"stderr", stream_text(&r->err, err_text, raw), "encoding", raw ? "base64" : "utf-8",
		"output", "stdout", stream_counts(&r->out, out_kept), "stderr",
		stream_counts(&r->err, err_kept), "limits_hit", limits_hit_json(r->limits_hit),
		"oom_kills", (json_int_t)r->oom_kills, "artifacts", artifacts_json(r), "network",
		network_usage_to_json(&r->network), "usage", "wall_ms", r->wall_ms, "cpu_ms",
		number_or_null(r->cpu_us, 1000), "memory_peak_bytes",
		number_or_null(r->memory_peak_bytes, 1), "pids_peak",
		number_or_null(r->pids_peak, 1), "enforced", enforced_to_json(&r->enforced));
}
