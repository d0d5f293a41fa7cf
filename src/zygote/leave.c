/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leave.c - to leave without taking the interpreter down, when nobody could tell.
 *
 * Py_FinalizeEx() takes 3 ms, more than all the rest of a short run, because it visits every object there
 * is and so copies every page shared with the zygote. Most of what it does is to free memory that the
 * kernel frees anyway. What a program can observe of it is: threads are waited for, atexit callbacks run,
 * streams are flushed, and objects die: a __del__, the finally of a generator, a file that was not
 * closed, a coroutine that was not awaited, the callback of a weak reference.
 *
 * So: everything that existed before the code was frozen out of the collector's lists (start.c), and what
 * is on them now is the code's. If the death of each is silent (silent.c), we do the first three ourselves
 * and exit; else all goes the ordinary way.
 *
 * Audit and trace hooks see the teardown itself: with one, always the ordinary way. To notice the first,
 * sys.addaudithook is wrapped by a function that looks just like it (and so is gc.freeze).
 */
#include "zygote/interp.h"
#include "zygote/silent.h"
#include "zygote/zygote.h"

/* of modules that need not be there: held here */
static PyObject *get_objects, *freeze_count, *unfreeze;
static PyObject *get_trace, *get_profile, *thread_count;
static const struct {
	const char *module, *name;
	PyObject **place;
} functions[] = {
	{"gc", "get_objects", &get_objects}, {"gc", "get_freeze_count", &freeze_count},
	{"gc", "unfreeze", &unfreeze},       {"sys", "gettrace", &get_trace},
	{"sys", "getprofile", &get_profile}, {"_thread", "_count", &thread_count},
};
static PyObject *stream_out, *stream_err; /* as they were: not held, only compared */
static long frozen;
static bool audited, code_froze, thawed, gc_loaded, foreign;

enum { OBJECTS_MAX = 200000 };

/* ---- functions that we must know of when they are called */

static PyObject *add_audit_hook(PyObject *self, PyObject *args, PyObject *kwargs);
static PyObject *gc_freeze(PyObject *self, PyObject *args, PyObject *kwargs);

static struct watched {
	const char *module, *name;
	PyCFunctionWithKeywords ours;
	PyObject *original;
	char doc[1024]; /* name, signature and text, as the interpreter takes them apart */
	PyMethodDef method;
} watched[] = {
	{.module = "sys", .name = "addaudithook", .ours = add_audit_hook},
	{.module = "gc", .name = "freeze", .ours = gc_freeze},
};

static PyObject *add_audit_hook(PyObject *self, PyObject *args, PyObject *kwargs)
{
	(void)self;
	audited = true;
	return PyObject_Call(watched[0].original, args, kwargs);
}

static PyObject *gc_freeze(PyObject *self, PyObject *args, PyObject *kwargs)
{
	(void)self;
	code_froze = true;
	return PyObject_Call(watched[1].original, args, kwargs);
}

static int watch(struct watched *w, PyObject *module, struct err *e)
{
	_cleanup_object_ PyObject *name = PyUnicode_FromString(w->module), *function = NULL;
	_cleanup_object_ PyObject *signature = NULL, *text = NULL, *joined = NULL, *bytes = NULL;

	w->original = PyObject_GetAttrString(module, w->name);
	if (!name || !w->original)
		return interp_error(e, w->name);
	signature = PyObject_GetAttrString(w->original, "__text_signature__");
	text = PyObject_GetAttrString(w->original, "__doc__");
	joined = signature && text
			 ? PyUnicode_FromFormat("%s%S\n--\n\n%S", w->name, signature, text)
			 : NULL;
	bytes = joined ? PyUnicode_AsUTF8String(joined) : NULL;
	if (!bytes)
		return interp_error(e, w->name);
	snprintf(w->doc, sizeof w->doc, "%s", PyBytes_AsString(bytes));
	w->method = (PyMethodDef){w->name, (PyCFunction)(void (*)(void))w->ours,
				  METH_VARARGS | METH_KEYWORDS, w->doc};
	function = PyCFunction_NewEx(&w->method, module, name);
	if (!function || PyObject_SetAttrString(module, w->name, function) < 0)
		return interp_error(e, w->name);
	return 0;
}

/* gc only if somebody has imported it: else its import is the sign (all_silent). */
static int watch_all(struct err *e)
{
	for (size_t i = 0; i < ARRAY_SIZE(watched); i++) {
		PyObject *module = interp_loaded(watched[i].module);

		if (module && watch(&watched[i], module, e) < 0)
			return -1;
	}
	return 0;
}

/* ---- before the fork */

int leave_prepare(struct err *e)
{
	gc_loaded = interp_loaded("gc") != NULL;
	for (size_t i = 0; i < ARRAY_SIZE(functions); i++) {
		_cleanup_object_ PyObject *module = interp_borrow(functions[i].module, e);

		if (!module)
			return -1;
		*functions[i].place = PyObject_GetAttrString(module, functions[i].name);
		if (!*functions[i].place)
			return interp_error(e, functions[i].name);
	}
	stream_out = PySys_GetObject("stdout");
	stream_err = PySys_GetObject("stderr");
	if (silent_prepare(e) < 0)
		return -1;
	foreign = !silent_libraries();
	return watch_all(e);
}

static long number_of(PyObject *function)
{
	_cleanup_object_ PyObject *number = PyObject_CallObject(function, NULL);
	long n = number ? PyLong_AsLong(number) : -1;

	PyErr_Clear();
	return n;
}

int leave_freeze(struct err *e)
{
	_cleanup_object_ PyObject *gc = interp_borrow("gc", e), *done = NULL;

	if (!gc)
		return -1;
	PyGC_Collect();
	done = PyObject_CallMethod(gc, "freeze", NULL);
	if (!done)
		return interp_error(e, "gc.freeze");
	frozen = number_of(freeze_count);
	code_froze = false; /* that was us */
	return 0;
}

void leave_thaw(void)
{
	PyObject *type, *value, *trace;
	_cleanup_object_ PyObject *done = NULL;

	if (thawed)
		return;
	thawed = true;
	PyErr_Fetch(&type, &value, &trace);
	if (number_of(freeze_count) <= frozen) /* else the code froze everything itself */
		done = PyObject_CallObject(unfreeze, NULL);
	PyErr_Clear();
	/* or what they belong to would live longer than it should */
	for (size_t i = 0; i < ARRAY_SIZE(functions); i++)
		Py_CLEAR(*functions[i].place);
	PyErr_Restore(type, value, trace);
}

/* ---- is the death of all of it silent? */

static bool all_silent(void)
{
	_cleanup_object_ PyObject *list = NULL;
	Py_ssize_t n;

	if (code_froze || (!gc_loaded && interp_loaded("gc")))
		return false; /* somebody may have moved objects out of sight */
	list = PyObject_CallObject(get_objects, NULL);
	n = list ? PyList_Size(list) : -1;
	if (n < 0 || n > OBJECTS_MAX) {
		PyErr_Clear();
		return false;
	}
	for (Py_ssize_t i = 0; i < n; i++)
		if (!silent_object(PyList_GetItem(list, i)))
			return false;
	return true;
}

static bool is_watched(void)
{
	_cleanup_object_ PyObject *trace = PyObject_CallObject(get_trace, NULL);
	_cleanup_object_ PyObject *profile = PyObject_CallObject(get_profile, NULL);

	PyErr_Clear();
	return audited || trace != Py_None || profile != Py_None;
}

/* ---- what is done at the end */

/* False when it did not go as it should: the ordinary way then does it again, and says so. */
static bool call_if_loaded(const char *module_name, const char *function, bool *ret_called)
{
	PyObject *module = interp_loaded(module_name);
	_cleanup_object_ PyObject *done = NULL;

	if (!module)
		return true;
	if (!PyModule_Check(module))
		return false; /* somebody's own */
	*ret_called = true;
	done = PyObject_CallMethod(module, function, NULL);
	PyErr_Clear();
	return done != NULL;
}

static bool flush_original(const char *name, PyObject *original)
{
	_cleanup_object_ PyObject *done = NULL;

	if (PySys_GetObject(name) != original)
		return false;
	done = PyObject_CallMethod(original, "flush", NULL);
	PyErr_Clear();
	return done != NULL;
}

/* From 3.12 on new threads are refused while the last ones are waited for and atexit callbacks run. With
 * us they would not be. */
static bool is_late(void)
{
	PyObject *module = interp_loaded("atexit");
	_cleanup_object_ PyObject *count = NULL;
	long n;

	if (interp_minor() < 12)
		return false;
	if (!module || number_of(thread_count) != 0)
		return number_of(thread_count) != 0;
	count = PyObject_CallMethod(module, "_ncallbacks", NULL);
	n = count ? PyLong_AsLong(count) : -1;
	PyErr_Clear();
	return n != 0;
}

/* libc's exit handlers and destructors of libraries run if one was loaded that we do not know. Those of
 * OpenSSL, which frees its tables one by one, took a third of all CPU time with pandas. */
static _Noreturn void leave(int status)
{
	if (foreign)
		exit(status);
	fflush(NULL);
	_exit(status);
}

void leave_quickly(int status)
{
	PyObject *type, *value, *trace;
	bool called = false;

	PyErr_Fetch(&type, &value, &trace);
	if (!is_watched() && all_silent() && !is_late() &&
	    call_if_loaded("threading", "_shutdown", &called) &&
	    call_if_loaded("atexit", "_run_exitfuncs", &called) && number_of(thread_count) == 0 &&
	    (!called || (!is_watched() && all_silent())) && flush_original("stdout", stream_out) &&
	    flush_original("stderr", stream_err))
		leave(status);
	PyErr_Restore(type, value, trace);
}
