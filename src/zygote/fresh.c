/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fresh.c - what siblings would share by accident: state that a process draws once for itself.
 *
 * Libraries notice a fork by getpid(), and siblings in pid namespaces of their own all have the same pid:
 * three of them once drew the same bytes from OpenSSL. So whatever generates is told. `random` needs no
 * row: it seeds itself after a fork. A module of the operator's that draws at import and keeps the result
 * must do so too (os.register_at_fork), or all children have it.
 *
 * Not here because it cannot be changed after the start: the hash seed and the address layout, which all
 * children of one zygote share.
 */
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <string.h>
#include <sys/random.h>

#include "zygote/interp.h"
#include "zygote/zygote.h"

/* ---- libraries, by the name of their file, wherever they were loaded from */

static int renew_openssl(void *function)
{
	return ((int (*)(void))function)() == 1
		       ? 0
		       : -1; /* RAND_poll: the primary generator reseeds, */
} /* and its descendants notice */

static int renew_sqlite(void *function)
{
	((void (*)(int, void *))function)(0,
					  NULL); /* sqlite3_randomness(0): seed again when asked */
	return 0;
}

static const struct {
	const char *file, *symbol;
	int (*renew)(void *function);
} libraries[] = {
	{"libcrypto", "RAND_poll", renew_openssl},
	{"libsqlite3", "sqlite3_randomness", renew_sqlite},
};

enum { LIBRARIES_MAX = 16 }; /* wheels bring copies of their own */
static struct {
	const char *name;
	int (*renew)(void *function);
	void *function;
} found[LIBRARIES_MAX];
static size_t found_count;

static int look_at_library(struct dl_phdr_info *info, size_t size, void *argument)
{
	const char *base = strrchr(info->dlpi_name, '/');
	struct err *e = argument;

	(void)size;
	base = base ? base + 1 : info->dlpi_name;
	for (size_t i = 0; i < ARRAY_SIZE(libraries); i++) {
		void *handle, *function;

		if (strncmp(base, libraries[i].file, strlen(libraries[i].file)) != 0)
			continue;
		handle = dlopen(info->dlpi_name, RTLD_LAZY | RTLD_NOLOAD);
		function = handle ? dlsym(handle, libraries[i].symbol) : NULL;
		if (!function)
			return err_set(e, 0,
				       "%s: has no %s, and its random numbers cannot be renewed",
				       info->dlpi_name, libraries[i].symbol);
		if (found_count == LIBRARIES_MAX)
			return err_set(e, E2BIG, "more than %d copies of OpenSSL and SQLite",
				       LIBRARIES_MAX);
		found[found_count].name = libraries[i].file;
		found[found_count].renew = libraries[i].renew;
		found[found_count++].function = function;
	}
	return 0;
}

/* ---- modules, if they are loaded */

/* Set back in the first process: nothing uses them before a child does. */
static const struct {
	const char *module, *object, *attribute;
	const char *maker_module, *maker; /* NULL: None */
} unset[] = {
	{"tempfile", NULL, "_name_sequence", NULL, NULL},
	{"tempfile", NULL, "tempdir", NULL, NULL},
	{"uuid", NULL, "_last_timestamp", NULL, NULL},
	{"uuid", NULL, "_node", NULL, NULL},
	{"multiprocessing.synchronize", "SemLock", "_rand", "tempfile", "_RandomNameSequence"},
};

static PyObject *numpy_seed;     /* numpy.random.seed */
static PyObject *main_process;   /* multiprocessing.process.current_process() */
static PyObject *process_module; /* multiprocessing.process */
static PyObject *logging_module;
static const char *logging_counts; /* what its _startTime is of: nanoseconds from 3.13 on */

static int unset_row(size_t i, struct err *e)
{
	PyObject *module = interp_loaded(unset[i].module);
	_cleanup_object_ PyObject *object = NULL, *value = NULL;

	if (!module)
		return 0;
	object = unset[i].object ? PyObject_GetAttrString(module, unset[i].object)
				 : interp_ref(module);
	if (!object || !PyObject_HasAttrString(object, unset[i].attribute)) {
		PyErr_Clear();
		return 0; /* another version, or it was never drawn */
	}
	if (unset[i].maker) {
		PyObject *maker = interp_loaded(unset[i].maker_module);

		value = maker ? PyObject_CallMethod(maker, unset[i].maker, NULL) : NULL;
	} else {
		value = interp_ref(Py_None);
	}
	if (!value || PyObject_SetAttrString(object, unset[i].attribute, value) < 0)
		return interp_error(e, unset[i].attribute);
	return 0;
}

static int renew_authkey(struct err *e)
{
	_cleanup_object_ PyObject *key = NULL;
	char bytes[32];

	if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
		return err_set(e, errno, "getrandom");
	key = PyBytes_FromStringAndSize(bytes, sizeof bytes);
	if (!key || PyObject_SetAttrString(main_process, "authkey", key) < 0)
		return interp_error(e, "multiprocessing's authkey");
	return 0;
}

static int renew_all(struct err *e)
{
	for (size_t i = 0; i < found_count; i++)
		if (found[i].renew(found[i].function) < 0)
			return err_set(e, 0, "%s: its random numbers could not be renewed",
				       found[i].name);
	if (numpy_seed) {
		_cleanup_object_ PyObject *done = PyObject_CallObject(numpy_seed, NULL);

		if (!done)
			return interp_error(e, "numpy.random.seed");
	}
	return main_process ? renew_authkey(e) : 0;
}

int fresh_prepare(struct err *e)
{
	PyObject *numpy = interp_loaded("numpy.random");
	_cleanup_object_ PyObject *start = NULL;

	logging_module = interp_loaded("logging");
	process_module = interp_loaded("multiprocessing.process");
	if (dl_iterate_phdr(look_at_library, e) != 0)
		return -1;
	for (size_t i = 0; i < ARRAY_SIZE(unset); i++)
		if (unset_row(i, e) < 0)
			return -1;
	if (numpy && !(numpy_seed = PyObject_GetAttrString(numpy, "seed")))
		return interp_error(e, "numpy.random.seed");
	if (process_module &&
	    !(main_process = PyObject_CallMethod(process_module, "current_process", NULL)))
		return interp_error(e, "multiprocessing.process.current_process");
	if (logging_module && !(start = PyObject_GetAttrString(logging_module, "_startTime")))
		return interp_error(e, "logging._startTime");
	logging_counts = start && PyLong_Check(start) ? "time_ns" : "time";
	/* once here, so that what they make at their first use is there, and shared */
	return renew_all(e);
}

int fresh_sibling(struct err *e)
{
	int r = renew_all(e);

	/* once in its life: nothing may live longer because of us */
	Py_CLEAR(numpy_seed);
	Py_CLEAR(main_process);
	return r;
}

/* MODULE.attribute = FROM.function(), the moment the code begins: when and where the program started. */
static void set_now(PyObject *module, const char *attribute, const char *from, const char *function)
{
	PyObject *source = interp_loaded(from);
	_cleanup_object_ PyObject *now =
		source ? PyObject_CallMethod(source, function, NULL) : NULL;

	if (!now || PyObject_SetAttrString(module, attribute, now) < 0)
		PyErr_Clear();
}

void fresh_moment(void)
{
	if (logging_module)
		set_now(logging_module, "_startTime", "time", logging_counts);
	if (process_module)
		set_now(process_module, "ORIGINAL_DIR", "os", "getcwd");
}
