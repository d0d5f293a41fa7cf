/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fits.c - whether a prepared interpreter can serve an environment.
 *
 * A variable that was read at the start cannot be changed by setting it now. Each row says who reads it.
 * What is not listed is read when it is used, and is set in the child. TZ is not here: the child calls
 * tzset().
 */
#include "zygote/fits.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

static const struct {
	const char *name;
	bool prefix;
	const char *reader;
} read_once[] = {
	{"PYTHON", true, "the interpreter"},
	{"PATH", false, "the interpreter, to find itself"},
	{"HOME", false, "the interpreter, for the user's modules"},
	{"LANG", true, "the interpreter's encodings"},
	{"LC_", true, "the interpreter's encodings"},
	{"VIRTUAL_ENV", false, "whoever looked for the interpreter"},
	{"LD_", true, "the dynamic linker"},
	{"GLIBC_TUNABLES", false, "libc"},
	{"MALLOC_", true, "libc"},
	{"GCONV_PATH", false, "libc"},
	{"OPENSSL_", true, "OpenSSL"},
	{"OMP_", true, "OpenMP"},
	{"GOMP_", true, "OpenMP"},
	{"KMP_", true, "OpenMP"},
	{"OPENBLAS_", true, "OpenBLAS"},
	{"GOTO_", true, "OpenBLAS"},
	{"BLIS_", true, "BLIS"},
	{"MKL_", true, "MKL"},
	{"NPY_", true, "numpy"},
	{"NUMPY_", true, "numpy"},
	{"NUMEXPR_", true, "numexpr"},
	{"NUMBA_", true, "numba"},
	{"PANDAS_", true, "pandas"},
	{"MPL", true, "matplotlib"},
	{"CUDA_", true, "CUDA"},
	{"TORCH_", true, "torch"},
	{"TF_", true, "tensorflow"},
};

static const char *reader_of(const char *entry)
{
	size_t name = strcspn(entry, "=");

	for (size_t i = 0; i < ARRAY_SIZE(read_once); i++) {
		size_t n = strlen(read_once[i].name);

		if (strncmp(entry, read_once[i].name, n) == 0 &&
		    (read_once[i].prefix ? name >= n : name == n))
			return read_once[i].reader;
	}
	return NULL;
}

/* The first entry of `a` that was read once and is not in `b` just so. */
static int missing(char *const *a, char *const *b, struct err *e)
{
	for (; *a; a++) {
		const char *reader = reader_of(*a);
		char *const *other = b;

		if (!reader)
			continue;
		while (*other && strcmp(*other, *a) != 0)
			other++;
		if (!*other)
			return err_set(e, ENOTSUP,
				       "environment variable %.*s has been read by %s already",
				       (int)strcspn(*a, "="), *a, reader);
	}
	return 0;
}

int environment_fits(char *const *zygote, char *const *wanted, struct err *e)
{
	return missing(wanted, zygote, e) < 0 || missing(zygote, wanted, e) < 0 ? -1 : 0;
}
