/* SPDX-License-Identifier: Apache-2.0 */
/* interp.c - helpers on top of Python.h. */
#include "zygote/interp.h"

#include <dlfcn.h>
#include <errno.h>

PyObject *interp_loaded(const char *name)
{
	return PyDict_GetItemString(PyImport_GetModuleDict(), name);
}

PyObject *interp_borrow(const char *name, struct err *e)
{
	bool was_there = interp_loaded(name) != NULL;
	PyObject *module = PyImport_ImportModule(name);

	if (!module) {
		interp_error(e, name);
		return NULL;
	}
	if (!was_there && PyDict_DelItemString(PyImport_GetModuleDict(), name) < 0)
		PyErr_Clear();
	return module;
}

int interp_error(struct err *e, const char *what)
{
	_cleanup_object_ PyObject *type = NULL, *value = NULL, *trace = NULL;
	_cleanup_object_ PyObject *name = NULL, *text = NULL, *a = NULL, *b = NULL;

	PyErr_Fetch(&type, &value, &trace);
	PyErr_NormalizeException(&type, &value, &trace);
	name = type ? PyObject_GetAttrString(type, "__name__") : NULL;
	text = value ? PyObject_Str(value) : NULL;
	a = name ? PyUnicode_AsEncodedString(name, "utf-8", "replace") : NULL;
	b = text ? PyUnicode_AsEncodedString(text, "utf-8", "replace") : NULL;
	PyErr_Clear();
	return err_set(e, 0, "%s: %s: %s", what, a ? PyBytes_AsString(a) : "an error",
		       b ? PyBytes_AsString(b) : "without a text");
}

void *interp_symbol(const char *name, struct err *e)
{
	void *p = dlsym(RTLD_DEFAULT, name);

	if (!p)
		err_set(e, ENOTSUP, "this interpreter has no %s", name);
	return p;
}

int interp_minor(void)
{
	static int minor;
	PyObject *version = PySys_GetObject("version_info");
	_cleanup_object_ PyObject *number =
		version && !minor ? PySequence_GetItem(version, 1) : NULL;

	if (number)
		minor = (int)PyLong_AsLong(number);
	PyErr_Clear();
	return minor;
}
