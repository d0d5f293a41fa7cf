/* SPDX-License-Identifier: Apache-2.0 */
/* interp.h - Python.h for the zygote's files, and helpers on top of it. No function leaves a Python
 * exception behind unless it says so. */
#ifndef ZYGOTE_INTERP_H
#define ZYGOTE_INTERP_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>

#include "base/err.h"

static inline void cleanup_object(PyObject **p)
{
	Py_XDECREF(*p);
}
#define _cleanup_object_ _cleanup_(cleanup_object)

static inline PyObject *interp_ref(PyObject *p)
{
	Py_XINCREF(p);
	return p;
}

/* sys.modules[name], borrowed, or NULL: never imports. */
PyObject *interp_loaded(const char *name);

/* A module that is needed by us but by nobody else: imported, and forgotten again if it was not there
 * before. New reference. */
PyObject *interp_borrow(const char *name, struct err *e);

/* The pending exception as a sentence, "Type: text", and no longer pending. Returns -1. */
int interp_error(struct err *e, const char *what);

/* The interpreter's minor version: 11 of 3.11. */
int interp_minor(void);

/* A function of the interpreter that is not in the limited API. NULL with e. */
void *interp_symbol(const char *name, struct err *e);

#endif
