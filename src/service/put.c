/* SPDX-License-Identifier: Apache-2.0 */
#include "service/put.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/base64.h"
#include "sandbox/spec.h"

static void send_bytes(struct talk *t, const char *data, size_t size)
{
	for (size_t done = 0; done < size;) {
		size_t n = size - done < FRAME_DATA_MAX ? size - done : FRAME_DATA_MAX;

		talk_send(t, FRAME_DATA, data + done, n, NULL, 0);
		done += n;
	}
	talk_send(t, FRAME_EOF, NULL, 0, NULL, 0);
}

/* A link replaces what has its name, but a folder. full is chopped up. */
static void send_link(struct talk *t, char *full, const char *target)
{
	struct entry_record link = {.mode = S_IFLNK | 0777};
	char names[SPEC_PATH_SIZE + 4096 + 2];
	char *name = strrchr(full, '/') + 1;
	size_t n = strlen(name) + 1, m = strlen(target) + 1;

	memcpy(names, name, n);
	memcpy(names + n, target, m);
	*name = '\0';
	talk_send(t, FRAME_UNPACK, full, strlen(full) + 1, NULL, 0);
	talk_send(t, FRAME_MEMBER, &link, sizeof link, names, n + m);
	talk_send(t, FRAME_FINISH, NULL, 0, NULL, 0);
}

int put_file(struct talk *t, const json_t *row)
{
	const json_t *content = json_object_get(row, "content");
	const json_t *coded = json_object_get(row, "content_base64");
	const char *path = json_string_value(json_object_get(row, "path"));
	const char *link = json_string_value(json_object_get(row, "link"));
	struct write_record w = {(uint32_t)json_integer_value(json_object_get(row, "mode")),
				 WRITE_PARENTS};
	_cleanup_free_ char *decoded = NULL;
	char full[SPEC_PATH_SIZE * 2];
	size_t size = json_string_length(content);

	/* what it is was checked */
	if (coded &&
	    base64_decode(json_string_value(coded), json_string_length(coded), &decoded, &size) < 0)
		return -ENOMEM;
	snprintf(full, sizeof full, "%s%s", *path == '/' ? "" : "/workspace/", path);
	if (link) {
		send_link(t, full, link);
	} else if (json_object_get(row, "folder")) {
		talk_send(t, FRAME_MKDIR, &w, sizeof w, full, strlen(full) + 1);
	} else {
		talk_send(t, FRAME_WRITE, &w, sizeof w, full, strlen(full) + 1);
		send_bytes(t, coded ? decoded : json_string_value(content), size);
	}
	return 0;
}
