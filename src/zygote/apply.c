/* SPDX-License-Identifier: Apache-2.0 */
/*
 * apply.c - what a RUN asks for, applied to an interpreter that has already started.
 *
 * Order: what can be refused first, limits last (after them even our own allocations may fail). The
 * strings stay where they are: the message is the child's until it ends.
 */
#include <errno.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>

#include "zygote/fits.h"
#include "zygote/interp.h"
#include "zygote/zygote.h"

static bool same_list(char *const *a, char *const *b)
{
	for (; *a && *b; a++, b++)
		if (strcmp(*a, *b) != 0)
			return false;
	return !*a && !*b;
}

static const char *value_of(char *const *list, const char *name)
{
	size_t n = strlen(name);

	for (; *list; list++)
		if (strncmp(*list, name, n) == 0 && (*list)[n] == '=')
			return *list + n + 1;
	return "";
}

/* os.environ's dictionary, as posix.environ is made: of two entries with one name the first counts. */
static int fill_environ(PyObject *dict, char *const *list)
{
	PyDict_Clear(dict);
	for (; *list; list++) {
		size_t n = strcspn(*list, "=");
		_cleanup_object_ PyObject *key = PyBytes_FromStringAndSize(*list, (Py_ssize_t)n);
		_cleanup_object_ PyObject *value = PyBytes_FromString(*list + n + 1);
		int there = key && value ? PyDict_Contains(dict, key) : -1;

		if (there < 0 || (!there && PyDict_SetItem(dict, key, value) < 0))
			return -1;
	}
	return 0;
}

static int set_environ(char **list, struct err *e)
{
	PyObject *os = interp_loaded("os"), *posix = interp_loaded("posix");
	_cleanup_object_ PyObject *mapping = os ? PyObject_GetAttrString(os, "environ") : NULL;
	_cleanup_object_ PyObject *data = mapping ? PyObject_GetAttrString(mapping, "_data") : NULL;
	_cleanup_object_ PyObject *raw = posix ? PyObject_GetAttrString(posix, "environ") : NULL;
	bool zone = strcmp(value_of(environ, "TZ"), value_of(list, "TZ")) != 0;

	if (!data || !raw || fill_environ(data, list) < 0 ||
	    (raw != data && fill_environ(raw, list) < 0))
		return interp_error(e, "environment");
	environ = list;
	if (zone) {
		PyObject *module = interp_loaded("time");
		PyObject *done = module ? PyObject_CallMethod(module, "tzset", NULL) : NULL;

		if (!done)
			return interp_error(e, "time.tzset");
		Py_DECREF(done);
	}
	return 0;
}

/* sys.NAME = the first strings and the rest */
static int set_list(const char *name, PyObject *first, char *const *rest, struct err *e)
{
	_cleanup_object_ PyObject *list = PyList_New(0);

	if (!list || (first && PyList_Append(list, first) < 0))
		return interp_error(e, name);
	for (; *rest; rest++) {
		_cleanup_object_ PyObject *text = PyUnicode_DecodeFSDefault(*rest);

		if (!text || PyList_Append(list, text) < 0)
			return interp_error(e, name);
	}
	return PySys_SetObject(name, list) < 0 ? interp_error(e, name) : 0;
}

static int set_arguments(char *const *argv, struct err *e)
{
	PyObject *original = PySys_GetObject("orig_argv"); /* from 3.10 on */
	_cleanup_object_ PyObject *program =
		original && PyList_Check(original) ? PySequence_GetItem(original, 0) : NULL;
	_cleanup_object_ PyObject *flag = NULL;

	PyErr_Clear();
	if (strcmp(argv[0], "-") == 0) {
		if (!argv[1])
			return 0; /* as it was started */
		if (set_list("argv", NULL, argv, e) < 0)
			return -1;
	} else {
		flag = PyUnicode_FromString("-c");
		if (!flag || set_list("argv", flag, argv + 2, e) < 0)
			return -1;
	}
	return program ? set_list("orig_argv", program, argv, e) : 0;
}

static int check_arguments(char *const *argv, struct err *e)
{
	_cleanup_object_ PyObject *code = NULL;

	if (strcmp(argv[0], "-") == 0)
		return 0;
	if (strcmp(argv[0], "-c") != 0 || !argv[1])
		return err_set(e, ENOTSUP, "a prepared interpreter takes - or -c CODE, not %.20s",
			       argv[0]);
	code = PyUnicode_DecodeUTF8(argv[1], (Py_ssize_t)strlen(argv[1]), "strict");
	if (!code) {
		PyErr_Clear();
		return err_set(e, ENOTSUP, "the code is not UTF-8");
	}
	return 0;
}

static int set_limits(const struct zygote_run *run, struct err *e)
{
	for (uint32_t i = 0; i < run->limit_count; i++) {
		const struct zygote_limit *l = &run->limits[i];
		struct rlimit r = {l->soft, l->hard};

		if (setrlimit((__rlimit_resource_t)l->resource, &r) < 0)
			return err_set(e, errno, "limit %u to %llu", l->resource,
				       (unsigned long long)l->hard);
	}
	return 0;
}

int apply_run(const struct run_view *v, struct err *e)
{
	if (check_arguments(v->argv, e) < 0)
		return -1;
	if (!same_list(environ, v->envp) &&
	    (environment_fits(environ, v->envp, e) < 0 || set_environ(v->envp, e) < 0))
		return -1;
	if (set_arguments(v->argv, e) < 0)
		return -1;
	if (chdir(v->cwd) < 0)
		return err_set(e, errno, "working directory %s", v->cwd);
	umask(v->run->umask);
	return set_limits(v->run, e);
}
