/* SPDX-License-Identifier: Apache-2.0 */
#include "imaging/helper.h"

#include <stdio.h>
#include <string.h>

int helper_find(const char *name, char ret[HELPER_PATH_SIZE], struct err *e)
{
	char self[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
	char *slash;

	if (n < 0)
		return err_set(e, errno, "find this program");
	self[n] = '\0';
	slash = strrchr(self, '/');
	*slash = '\0';
	snprintf(ret, HELPER_PATH_SIZE, "%s/%s", self, name);
	if (access(ret, X_OK) < 0)
		return err_set(e, errno, "%s (reinstall cloche)", ret);
	return 0;
}
