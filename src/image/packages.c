/* SPDX-License-Identifier: Apache-2.0 */
#include "image/packages.h"

#include <sys/stat.h>

/* dpkg's, and where `pip install` of the machine's Python puts what it gets: by version, as there is nothing above that tells. */
static const char *const folders[PACKAGE_FOLDERS] = {
	"/usr",
	"/usr/bin",
	"/usr/lib",
	"/usr/lib/x86_64-linux-gnu",
	"/usr/lib/python3/dist-packages",
	"/etc/ld.so.cache",
	"/usr/local/lib",
	"/usr/local/lib/python3.9/dist-packages",
	"/usr/local/lib/python3.10/dist-packages",
	"/usr/local/lib/python3.11/dist-packages",
	"/usr/local/lib/python3.12/dist-packages",
	"/usr/local/lib/python3.13/dist-packages",
	"/usr/local/lib/python3.14/dist-packages",
};

void packages_state_now(struct packages_state *ret)
{
	struct stat st;

	for (int i = 0; i < PACKAGE_FOLDERS; i++)
		ret->changed[i] = stat(folders[i], &st) == 0 ? st.st_mtim : (struct timespec){0};
}
