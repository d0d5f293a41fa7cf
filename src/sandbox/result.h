/* SPDX-License-Identifier: Apache-2.0 */
/*
 * result.h - what a run came to: the one record that every surface prints (CONTRACT "Result").
 *
 * A value that cannot be had is marked unknown and prints as null; nothing is invented.
 */
#ifndef SANDBOX_RESULT_H
#define SANDBOX_RESULT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sandbox/model.h"

#define RESULT_UNKNOWN UINT64_MAX

/* One captured stream. bytes = kept + dropped. data holds the kept bytes unless they were passed on. */
struct captured {
	uint64_t bytes;
	uint64_t kept;
	char *data;
	size_t size;
};

struct artifact {
	char *path;          /* below the out folder, as exported; bytes as they are */
	uint64_t size_bytes; /* RESULT_UNKNOWN when skipped */
	const char *skipped; /* why it was not exported, or NULL; a constant */
	bool executable;     /* known in the service only, which keeps no modes */
};

/* What was refused: this host and port, so many times. host "": it could not be learnt; port 0: its name
 * was asked for. */
enum { NETWORK_DENIED_MAX = 64 };
struct network_denied {
	char host[256];
	uint16_t port;
	uint64_t count;
};

/* What the sandbox's connections came to. allowed: those that were, whether they came about or not. */
struct network_usage {
	uint64_t allowed, denied, bytes_sent, bytes_received;
	const char *
		capture; /* what programs that know no proxy are caught by; "redirect": every TCP port, "ports": 80,
			      * 443 and 53; NULL: there is no network */
	struct network_denied
		*refused; /* distinct, the NETWORK_DENIED_MAX most recent, the last one last */
	size_t refused_count;
};

struct enforced {
	const char *runtime;
	bool rootless;
	bool user_namespace;
	uint32_t uid;
	const char *memory, *swap, *cpu, *pids; /* mechanism or "none" */
	const char *network, *network_denials;
	const char *rootfs, *disk, *capabilities;
	bool no_new_privs;
	char seccomp[80];
	int landlock; /* ABI in use; 0: none */
};

struct result {
	char id[40], sandbox[40];
	enum reason reason;
	bool has_exit_code;
	int exit_code;
	int signal; /* 0: none */
	bool core_dumped;
	char stage[16];
	int errnum;
	char message[768];
	struct captured out, err;
	unsigned limits_hit;
	uint64_t oom_kills;
	struct artifact *artifacts;
	size_t artifact_count;
	bool artifacts_failed; /* the export itself failed: SANDBOX_ARTIFACT_EXPORT_FAILED */
	struct network_usage network;
	double wall_ms;
	uint64_t timeout_us;                           /* the limit that applied */
	uint64_t cpu_us, memory_peak_bytes, pids_peak; /* RESULT_UNKNOWN possible */
	struct enforced enforced;
};

void result_done(struct result *r);

/* The error code, whether the caller should try again, and the CLI's exit status. */
enum code result_code(const struct result *r);
bool result_retryable(const struct result *r);
int result_exit_status(const struct result *r);
bool result_ok(const struct result *r);

/* Note a refusal (counted in denied by the caller). Without memory it is left out. */
void network_usage_refused(struct network_usage *u, const char *host, uint16_t port);
void network_usage_done(struct network_usage *u);

/* "evil.test:443 (3 times), other.test:80": as many as fit, then "and N more". */
void network_usage_text(const struct network_usage *u, char *text, size_t size);

/* The result's object "network". */
json_t *network_usage_to_json(const struct network_usage *u) must_check;

/* The result object. A new reference, or NULL when memory is short. */
json_t *result_to_json(const struct result *r) must_check;

/* What holds the limits: the object `enforced`, of a result and of a sandbox. */
json_t *enforced_to_json(const struct enforced *f) must_check;

/* The number of bytes of data[0..size) up to the last whole UTF-8 character, or -1 if the rest is not
 * valid UTF-8. truncated: the end of data was cut by a cap, so an incomplete last character is the
 * cap's doing and is left out. */
ssize_t utf8_prefix(const char *data, size_t size, bool truncated);

#endif
