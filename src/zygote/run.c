/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run.c - the code, run as `python3 -` and `python3 -c` run it, to the end of the process.
 *
 * This is what Py_RunMain() does with it, step by step, with the same functions and the same file names:
 * the interpreter itself reads the code from the FILE stdin. Where the two differ is the end: when
 * nothing could notice, the interpreter is not taken down (leave.c). What could make a difference there
 * (an exception to be printed by SystemExit's rules, KeyboardInterrupt) goes the ordinary way.
 *
 * The order is that of CPython 3.8 to 3.13, pythonrun.c and main.c.
 */
#include <dlfcn.h>
#include <signal.h>
#include <string.h>

#include "zygote/interp.h"
#include "zygote/zygote.h"

/* PyCompilerFlags, which the limited API does not have. */
struct compiler_flags {
	int flags;
	int feature_version;
};
enum { IGNORE_COOKIE = 0x0800 };

typedef PyObject *run_file_function(FILE *, const char *, int, PyObject *, PyObject *, int,
				    struct compiler_flags *);
typedef PyObject *run_string_function(const char *, int, PyObject *, PyObject *,
				      struct compiler_flags *);

static run_file_function *run_file;
static run_string_function *run_string;
static const int *interrupted; /* a quirk: also set by a KeyboardInterrupt that left exec() */
static PyObject *main_module;
static PyObject *operator_code; /* the operator's warm-up, compiled; NULL: none */
static int minor;

/* What ordinary programs use, so that the pages they will write are copied before the code is there. No
 * class: it would stay, as garbage, until the collector comes. */
static const char *const warm_code[] = {
	"def f(a, *b, c=1, **d):\n"
	"    x = [str(i) for i in range(20)]\n"
	"    return '%s %r' % (a, x) + f'{a!r:>5} {c:.2f}'\n",
	"def g(x): yield from sorted(x, key=str)\n",
	"try:\n"
	"    f(1, 2, d=3); list(g({1: 2, 'b': (3, 4.5)})); 'a,b'.split(','); {1, 2} | {3}; 1 / 0\n"
	"except (ZeroDivisionError, KeyError) as e:\n"
	"    str(e)\n",
	"import sys\n"
	"print('', end='')\n"
	"sys.stdout.flush()\n",
};

int run_prepare(struct err *e)
{
	minor = interp_minor();
	run_file = (run_file_function *)interp_symbol("PyRun_FileExFlags", e);
	run_string = (run_string_function *)interp_symbol("PyRun_StringFlags", e);
	interrupted = dlsym(RTLD_DEFAULT, "_Py_UnhandledKeyboardInterrupt");
	main_module = PyImport_AddModule("__main__");
	if (!main_module)
		return interp_error(e, "__main__");
	return run_file && run_string ? 0 : -1;
}

/* A namespace as __main__ has it. */
static PyObject *new_scratch(void)
{
	PyObject *scratch = PyDict_New();
	_cleanup_object_ PyObject *name = PyUnicode_FromString("__main__");

	if (scratch && name && PyDict_SetItemString(scratch, "__name__", name) == 0 &&
	    PyDict_SetItemString(scratch, "__builtins__", PyEval_GetBuiltins()) == 0)
		return scratch;
	Py_XDECREF(scratch);
	return NULL;
}

static void warm_by_ours(void)
{
	_cleanup_object_ PyObject *scratch = new_scratch();

	for (size_t i = 0; scratch && i < ARRAY_SIZE(warm_code); i++) {
		struct compiler_flags flags = {0, minor};
		_cleanup_object_ PyObject *done = NULL;
		FILE *file = fmemopen((void *)(uintptr_t)warm_code[i], strlen(warm_code[i]), "r");

		if (!file)
			break;
		done = run_file(file, "<stdin>", Py_file_input, scratch, scratch, 0, &flags);
		fclose(file);
		if (!done)
			break;
	}
	PyErr_Clear();
	if (scratch)
		PyDict_Clear(scratch); /* its functions refer to it */
}

/* print() says nothing when there is no sys.stdout. Leaves the exception. */
static bool warm_by_operator(void)
{
	_cleanup_object_ PyObject *scratch = new_scratch(), *done = NULL;
	_cleanup_object_ PyObject *out = interp_ref(PySys_GetObject("stdout"));
	_cleanup_object_ PyObject *err = interp_ref(PySys_GetObject("stderr"));
	PyObject *type, *value, *trace;

	PySys_SetObject("stdout", Py_None);
	PySys_SetObject("stderr", Py_None);
	done = scratch ? PyEval_EvalCode(operator_code, scratch, scratch) : NULL;
	PyErr_Fetch(&type, &value, &trace);
	if (scratch)
		PyDict_Clear(scratch);
	PySys_SetObject("stdout", out);
	PySys_SetObject("stderr", err);
	PyErr_Restore(type, value, trace);
	return done != NULL;
}

int run_rehearse(const char *code, struct err *e)
{
	warm_by_ours();
	if (code[0] == '\0')
		return 0;
	operator_code = Py_CompileString(code, "<warm-up>", Py_file_input);
	return operator_code && warm_by_operator() ? 0 : interp_error(e, "warm-up");
}

void run_warm(void)
{
	warm_by_ours();
	if (operator_code && !warm_by_operator())
		PyErr_Clear();
}

static void flush_stream(const char *name)
{
	PyObject *stream = PySys_GetObject(name);
	_cleanup_object_ PyObject *done =
		stream ? PyObject_CallMethod(stream, "flush", NULL) : NULL;

	if (!done)
		PyErr_Clear();
}

/* flush_io(): after the code, before its exception is printed. */
static void flush_io(void)
{
	PyObject *type, *value, *trace;

	PyErr_Fetch(&type, &value, &trace);
	flush_stream("stderr");
	flush_stream("stdout");
	PyErr_Restore(type, value, trace);
}

static _Noreturn void end(int status, bool by_interrupt)
{
	leave_thaw();
	if (Py_FinalizeEx() < 0)
		status = 120;
	if (by_interrupt) {
		signal(SIGINT, SIG_DFL);
		kill(getpid(), SIGINT);
		status = 128 + SIGINT;
	}
	exit(status);
}

/* SystemExit with no code or a small number, which prints nothing: *ret_status. The exception stays. */
static bool exits_plainly(int *ret_status)
{
	PyObject *type, *value, *trace;
	_cleanup_object_ PyObject *code = NULL;
	bool plain = false;

	if (!PyErr_ExceptionMatches(PyExc_SystemExit))
		return false;
	PyErr_Fetch(&type, &value, &trace);
	PyErr_NormalizeException(&type, &value, &trace);
	if ((PyObject *)Py_TYPE(value) == PyExc_SystemExit)
		code = PyObject_GetAttrString(value, "code");
	if (code == Py_None) {
		*ret_status = 0;
		plain = true;
	} else if (code && PyLong_CheckExact(code)) {
		long n = PyLong_AsLong(code);

		plain = !PyErr_Occurred() && n >= 0 && n <= 255;
		*ret_status = (int)n;
	}
	PyErr_Clear();
	PyErr_Restore(type, value, trace);
	return plain;
}

/*
 * The call that ran the bootstrap, beneath us, holds __main__, as the one that runs the code does in
 * python3 -, and would give it up here. It never comes back, so we do: at the end the module must die
 * when sys.modules loses it, or its objects die after the modules they use.
 */
static void release_main(void)
{
	Py_DECREF(main_module);
}

/* An exception is pending. Print it as the interpreter does; SystemExit ends the process in there. */
static void end_with_error(void)
{
	bool by_interrupt =
		interrupted ? *interrupted : PyErr_Occurred() == PyExc_KeyboardInterrupt;
	int status;

	if (exits_plainly(&status))
		leave_quickly(status);
	if (PyErr_ExceptionMatches(PyExc_SystemExit))
		leave_thaw();
	release_main();
	PyErr_Print();
	if (by_interrupt)
		end(1, true);
}

_Noreturn void run_code(const char *code)
{
	PyObject *dict = PyModule_GetDict(main_module);
	struct compiler_flags flags = {code ? IGNORE_COOKIE : 0, minor};
	PyObject *done = NULL;
	bool cached = !code && minor < 15;

	if (code) {
		done = run_string(code, Py_file_input, dict, dict, &flags);
	} else {
		PyObject *file = PyUnicode_FromString("<stdin>");

		PyDict_SetItemString(dict, "__file__", file);
		if (cached)
			PyDict_SetItemString(dict, "__cached__", Py_None);
		Py_XDECREF(file);
		done = run_file(stdin, "<stdin>", Py_file_input, dict, dict, 0, &flags);
		flush_io();
	}
	if (!done)
		end_with_error();
	else
		release_main();
	Py_XDECREF(done);
	if (!code && PyDict_DelItemString(dict, "__file__") < 0)
		PyErr_Clear();
	if (cached && PyDict_DelItemString(dict, "__cached__") < 0)
		PyErr_Clear();
	if (interrupted && *interrupted)
		end(done ? 0 : 1, true);
	leave_quickly(done ? 0 : 1);
	end(done ? 0 : 1, false);
}
