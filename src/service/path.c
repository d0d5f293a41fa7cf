/* SPDX-License-Identifier: Apache-2.0 */
#include "service/path.h"

#include <string.h>

#include "sandbox/result.h"
#include "service/problem.h"

bool is_kernel_path(const char *path)
{
	static const char *const folders[] = {"proc", "sys", "dev"};
	size_t n;

	for (;;) {
		path += strspn(path, "/");
		n = strcspn(path, "/");
		if (n != 1 || *path != '.')
			break;
		path += n;
	}
	for (size_t i = 0; i < ARRAY_SIZE(folders); i++)
		if (strlen(folders[i]) == n && strncmp(folders[i], path, n) == 0)
			return strncmp(path, "dev/shm", 7) != 0 || (path[7] && path[7] != '/');
	return false;
}

/* What leads upwards is nobody's honest path, and the same file has a name without it. */
static bool climbs(const char *path)
{
	for (const char *p = path; *p; p += strcspn(p, "/")) {
		p += strspn(p, "/");
		if (strncmp(p, "..", 2) == 0 && (p[2] == '/' || !p[2]))
			return true;
	}
	return false;
}

int check_path(const char *name, const char *path, size_t size, struct err *e)
{
	if (!path)
		return err_set(e, 0, "%s: is missing", name);
	if (path[0] != '/')
		return err_set(e, 0, "%s: must be an absolute path", name);
	if (strlen(path) != size || size >= 4096)
		return err_set(e, 0, "%s: must have at most 4095 bytes, and no NUL", name);
	if (utf8_prefix(path, size, false) != (ssize_t)size)
		return err_set(e, 0, "%s: is not UTF-8", name);
	if (climbs(path))
		return err_set(e, 0, "%s: must have no .. component", name);
	if (is_kernel_path(path))
		return problem_set(e, PROBLEM_FORBIDDEN,
				   "%s: %.200s is the kernel's, not a file of the sandbox", name,
				   path);
	return 0;
}
