/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a compromised service may send to the spawner, up to where something would be made. The first byte
 * chooses: a raw request; a good CREATE with patches (offset, length, bytes), so that its fields are reached;
 * a meta file; an answer, as the service's side reads it. Whatever is accepted must be within the policy.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fuzz.h"
#include "spawner/check.h"
#include "spawner/client.h"
#include "spawner/meta.h"

static struct places places;
static struct policy policy = {.places = &places};

static void check_request(const void *message, size_t size, size_t fds)
{
	const struct spawner_create *m = message;
	struct err e = {0};
	struct spec s;

	if (request_check(message, size, fds, true, &e) < 0) {
		CHECK(e.text[0]);
		return;
	}
	if (m->header.type != SPAWNER_CREATE)
		return;
	if (create_check(&policy, m, fds, &s, &e) < 0) {
		CHECK(e.text[0]);
		spec_done(&s);
		return;
	}
	CHECK(s.uid != 0 && s.gid != 0 && s.uid == m->uid && s.gid == m->gid && !s.best_effort);
	CHECK(s.memory_bytes == m->memory_bytes && s.memory_bytes <= 512 << 20);
	CHECK(s.memory_swap_bytes >= s.memory_bytes);
	CHECK(s.cpus_millis == m->cpus_millis && s.pids_limit == m->pids_limit);
	CHECK(s.pids_limit <= 100 && strcmp(s.image, "host") == 0 && !s.venv);
	CHECK(s.volume_count == m->volume_count && s.volume_count == fds);
	for (uint32_t i = 0; i < m->volume_count; i++)
		CHECK(m->volumes[i].host[0] == '\0');
	for (size_t i = 0; i < s.tmpfs_count; i++)
		CHECK(box_path_check("x", s.tmpfs[i].path, &e) == 0 && s.tmpfs[i].inodes >= 2);
	CHECK(m->disk_bytes == 0 || m->disk_bytes >= SPAWNER_DISK_MIN);
	spec_done(&s);
}

static void patch(const uint8_t *data, size_t size)
{
	static struct spawner_create m;
	size_t fds = size ? data[0] % 4 : 0;

	m = (struct spawner_create){.header = {SPAWNER_CREATE, 1},
				    .id = "sbx_0123456789abcdef0123456789abcdef",
				    .image = "host",
				    .runtime = "native",
				    .profile = "default",
				    .hostname = "sandbox",
				    .memory_bytes = 64 << 20,
				    .cpus_millis = 500,
				    .pids_limit = 16,
				    .uid = 65534,
				    .gid = 65534};
	for (size_t at = 1; at + 3 <= size;) {
		size_t offset = data[at] | (size_t)data[at + 1] << 8, n = data[at + 2];

		at += 3;
		if (n > size - at)
			n = size - at;
		if (offset + n <= sizeof m)
			memcpy((char *)&m + offset, data + at, n);
		at += n;
	}
	check_request(&m, sizeof m, fds);
}

static void answer(const uint8_t *data, size_t size)
{
	union spawner_message m;
	struct spawner_client c;
	int p[2];

	CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, p) == 0);
	c = (struct spawner_client){.fd = p[0]};
	if (size && send(p[1], data, size, 0) > 0 && spawner_receive(&c, &m) == 1) {
		if (m.header.type == SPAWNER_REFUSED)
			CHECK(strlen(m.refused.text) < sizeof m.refused.text &&
			      m.refused.code < CODE_COUNT);
		if (m.header.type == SPAWNER_CREATED)
			CHECK(strlen(m.created.cpu_usage) < sizeof m.created.cpu_usage);
	}
	close(p[1]);
	spawner_disconnect(&c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct meta meta;
	void *copy;

	if (!policy.settings.policy)
		policy.settings.policy =
			json_pack("{s:s,s:s}", "memory", "512m", "pids_limit", "100");
	if (size < 1)
		return 0;
	copy = malloc(size);
	CHECK(copy);
	memcpy(copy, data + 1, size - 1);
	switch (data[0] % 4) {
	case 0:
		check_request(copy, size - 1, 0);
		break;
	case 1:
		patch(copy, size - 1);
		break;
	case 2:
		if (meta_check(copy, size - 1, "sbx_0123456789abcdef0123456789abcdef", &meta) == 0)
			CHECK(meta.created.pid > 1);
		break;
	default:
		answer(copy, size - 1);
	}
	free(copy);
	return 0;
}
