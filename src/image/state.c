/* SPDX-License-Identifier: Apache-2.0 */
#include "image/state.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "image/store.h"

/* A tick of the clock that file systems use is 10 ms at most (HZ=100). */
#define SETTLED_MS 100

int store_state_open(const struct places *places, int ret[STORE_FOLDERS], struct err *e)
{
	static const char *const names[STORE_FOLDERS] = {".", "refs", "images"};
	_cleanup_image_store_ struct image_store store = {.dir = -1};

	for (size_t i = 0; i < STORE_FOLDERS; i++)
		ret[i] = -1;
	if (image_store_open(places, true, &store, e) < 0)
		return -1;
	for (size_t i = 0; i < STORE_FOLDERS; i++) {
		ret[i] = openat(store.dir, names[i], O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (ret[i] >= 0)
			continue;
		err_set(e, errno, "open %s/%s", store.path, names[i]);
		while (i-- > 0)
			fd_close(&ret[i]);
		return -1;
	}
	return 0;
}

bool store_state_now(const int folders[STORE_FOLDERS], struct store_state *ret)
{
	struct stat st;

	for (size_t i = 0; i < STORE_FOLDERS; i++) {
		if (folders[i] < 0 || fstat(folders[i], &st) < 0 || st.st_nlink == 0)
			return false;
		ret->changed[i] = st.st_ctim;
	}
	return true;
}

/* Times to come are those of a clock that was set back: not before it has passed them. */
bool store_state_is_settled(const struct store_state *s)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	for (size_t i = 0; i < STORE_FOLDERS; i++) {
		int64_t ms = (int64_t)(now.tv_sec - s->changed[i].tv_sec) * 1000 +
			     (now.tv_nsec - s->changed[i].tv_nsec) / 1000000;

		if (ms < SETTLED_MS)
			return false;
	}
	return true;
}
