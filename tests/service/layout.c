/* SPDX-License-Identifier: Apache-2.0 */
/* layout.c - the spawner's messages as JSON: numbers of the types, and of each struct its size and fields
 * as [offset, size, count]; so the Python tests cannot drift from the header. */
#include <stddef.h>
#include <stdio.h>

#include "sandbox/model.h"
#include "spawner/meta.h"
#include "spawner/request.h"

#define SIZE(s, f) sizeof(((struct s *)0)->f)
#define FIELD(s, f, element) \
	printf(",\"" #f "\":[%zu,%zu,%zu]", offsetof(struct s, f), element, SIZE(s, f) / element)
#define NUMBER(s, f) FIELD(s, f, SIZE(s, f))
#define TEXT(s, f)   printf(",\"" #f "\":[%zu,1,%zu]", offsetof(struct s, f), SIZE(s, f))
#define BEGIN(s)     printf(",\"" #s "\":{\"\":%zu", sizeof(struct s))
#define END          printf("}")

static void create(void)
{
	BEGIN(spawner_create);
	TEXT(spawner_create, id);
	TEXT(spawner_create, image);
	TEXT(spawner_create, runtime);
	TEXT(spawner_create, profile);
	TEXT(spawner_create, hostname);
	TEXT(spawner_create, venv);
	TEXT(spawner_create, zygote);
	TEXT(spawner_create, tenant);
	NUMBER(spawner_create, prepared);
	TEXT(spawner_create, zero);
	NUMBER(spawner_create, pull);
	NUMBER(spawner_create, memory_bytes);
	NUMBER(spawner_create, memory_swap_bytes);
	NUMBER(spawner_create, cpus_millis);
	NUMBER(spawner_create, pids_limit);
	NUMBER(spawner_create, disk_bytes);
	NUMBER(spawner_create, uid);
	NUMBER(spawner_create, gid);
	NUMBER(spawner_create, tmpfs_count);
	NUMBER(spawner_create, volume_count);
	FIELD(spawner_create, tmpfs, sizeof(struct spawner_tmpfs));
	FIELD(spawner_create, volumes, sizeof(struct spawner_volume));
	FIELD(spawner_create, network, sizeof(struct spawner_network));
	END;
	BEGIN(spawner_network);
	NUMBER(spawner_network, mode);
	NUMBER(spawner_network, size);
	TEXT(spawner_network, owner);
	TEXT(spawner_network, rules);
	END;
	BEGIN(spawner_change);
	TEXT(spawner_change, id);
	FIELD(spawner_change, network, sizeof(struct spawner_network));
	END;
	BEGIN(spawner_tmpfs);
	TEXT(spawner_tmpfs, path);
	NUMBER(spawner_tmpfs, size_bytes);
	NUMBER(spawner_tmpfs, inodes);
	NUMBER(spawner_tmpfs, exec);
	NUMBER(spawner_tmpfs, zero);
	END;
	BEGIN(spawner_volume);
	TEXT(spawner_volume, box);
	TEXT(spawner_volume, host);
	NUMBER(spawner_volume, writable);
	NUMBER(spawner_volume, owner);
	END;
}

static void counters(void)
{
	BEGIN(spawner_counters);
	NUMBER(spawner_counters, oom_kills);
	NUMBER(spawner_counters, cpu_us);
	NUMBER(spawner_counters, memory_peak_bytes);
	NUMBER(spawner_counters, pids_peak);
	NUMBER(spawner_counters, memory_bytes);
	NUMBER(spawner_counters, pids);
	NUMBER(spawner_counters, memory_hit);
	NUMBER(spawner_counters, pids_hit);
	END;
}

static void answers(void)
{
	BEGIN(spawner_created);
	TEXT(spawner_created, id);
	NUMBER(spawner_created, pid);
	TEXT(spawner_created, memory_events);
	TEXT(spawner_created, pids_events);
	TEXT(spawner_created, cpu_usage);
	TEXT(spawner_created, enforced.memory);
	TEXT(spawner_created, enforced.pids);
	TEXT(spawner_created, enforced.cpu);
	TEXT(spawner_created, enforced.disk);
	TEXT(spawner_created, enforced.seccomp);
	TEXT(spawner_created, enforced.network);
	NUMBER(spawner_created, enforced.uid);
	NUMBER(spawner_created, enforced.rootless);
	NUMBER(spawner_created, enforced.user_namespace);
	NUMBER(spawner_created, enforced.landlock);
	END;
	BEGIN(spawner_stats);
	TEXT(spawner_stats, id);
	NUMBER(spawner_stats, paused);
	FIELD(spawner_stats, counters, sizeof(struct spawner_counters));
	END;
	BEGIN(spawner_refused);
	NUMBER(spawner_refused, code);
	NUMBER(spawner_refused, errnum);
	TEXT(spawner_refused, stage);
	TEXT(spawner_refused, text);
	END;
	BEGIN(spawner_ended);
	TEXT(spawner_ended, id);
	NUMBER(spawner_ended, known);
	NUMBER(spawner_ended, signaled);
	NUMBER(spawner_ended, status);
	NUMBER(spawner_ended, killed);
	FIELD(spawner_ended, counters, sizeof(struct spawner_counters));
	END;
	BEGIN(spawner_live);
	FIELD(spawner_live, created, sizeof(struct spawner_created));
	NUMBER(spawner_live, started_ms);
	NUMBER(spawner_live, paused);
	END;
}

int main(void)
{
	printf("{\"version\":%d,\"types\":{\"\":0", SPAWNER_VERSION);
#define REQUEST(name, number, permission, struct_name) printf(",\"" #name "\":%d", number);
#include "spawner/requests.def"
#undef REQUEST
	printf("},\"codes\":[");
	for (int i = 0; i < CODE_COUNT; i++)
		printf("%s\"%s\"", i ? "," : "", codes[i].name);
	printf("],\"structs\":{\"spawner_header\":{\"\":%zu}", sizeof(struct spawner_header));
	create();
	counters();
	answers();
	BEGIN(spawner_hello);
	NUMBER(spawner_hello, version);
	NUMBER(spawner_hello, zero);
	END;
	BEGIN(spawner_by_id);
	TEXT(spawner_by_id, id);
	END;
	BEGIN(spawner_done);
	END;
	BEGIN(meta);
	NUMBER(meta, slot);
	NUMBER(meta, realm);
	NUMBER(meta, start_ticks);
	NUMBER(meta, sum);
	END;
	printf("}}\n");
	return 0;
}
