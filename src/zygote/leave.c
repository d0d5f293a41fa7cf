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
 * is on them now is the code's. If the death of each is known to be silent, by its type, we do the first
 * three ourselves and exit. The rule is a list of what is silent; whatever is not on it takes the ordinary
 * way. Objects the collector does not track hold nothing but numbers, text and memory, as far as the
 * modules go that this list knows; an extension module from elsewhere is not on it.
 *
 * Audit and trace hooks see the teardown itself: with one, always the ordinary way. To notice the first,
 * sys.addaudithook is wrapped by a function that looks just like it.
 */
#include <string.h>

#include "zygote/interp.h"
#include "zygote/zygote.h"

/* Types whose death is silent, beyond that of what they hold. MODULE.QUALNAME as the type says it. */
static const char *const silent_names[] = {
	"builtins.dict",
	"builtins.list",
	"builtins.tuple",
	"builtins.set",
	"builtins.frozenset",
	"builtins.function",
	"builtins.cell",
	"builtins.method",
	"builtins.builtin_function_or_method",
	"builtins.type",
	"builtins.object",
	"builtins.property",
	"builtins.classmethod",
	"builtins.staticmethod",
	"builtins.super",
	"builtins.slice",
	"builtins.mappingproxy",
	"builtins.getset_descriptor",
	"builtins.member_descriptor",
	"builtins.wrapper_descriptor",
	"builtins.method_descriptor",
	"builtins.classmethod_descriptor",
	"builtins.method-wrapper",
	"builtins.frame",
	"builtins.traceback",
	"builtins.int",
	"builtins.str",
	"builtins.float",
	"builtins.complex",
	"builtins.bytes",
	"builtins.bytearray",
	"builtins.bool",
	"builtins.memoryview",
	"builtins.range",
	"builtins.enumerate",
	"builtins.zip",
	"builtins.map",
	"builtins.filter",
	"builtins.reversed",
	"builtins.list_iterator",
	"builtins.tuple_iterator",
	"builtins.list_reverseiterator",
	"builtins.dict_keyiterator",
	"builtins.dict_valueiterator",
	"builtins.dict_itemiterator",
	"builtins.dict_keys",
	"builtins.dict_values",
	"builtins.dict_items",
	"builtins.set_iterator",
	"builtins.str_iterator",
	"builtins.str_ascii_iterator",
	"builtins.bytes_iterator",
	"builtins.callable_iterator",
	"builtins.iterator",
	"types.GenericAlias",
	"types.UnionType",
	"types.SimpleNamespace",
	"_abc._abc_data",
	"functools.partial",
	"functools._lru_cache_wrapper",
	"functools._lru_list_elem",
	"functools.KeyWrapper",
	"collections.deque",
	"collections.defaultdict",
	"collections.OrderedDict",
	"collections._tuplegetter",
	"_collections._tuplegetter",
	"operator.itemgetter",
	"operator.attrgetter",
	"operator.methodcaller",
	"itertools.count",
	"itertools.cycle",
	"itertools.repeat",
	"itertools.chain",
	"itertools.islice",
	"itertools.starmap",
	"itertools.product",
	"itertools.permutations",
	"itertools.combinations",
	"itertools.accumulate",
	"itertools.zip_longest",
	"itertools.groupby",
	"itertools._grouper",
	"itertools.pairwise",
	"itertools.dropwhile",
	"itertools.takewhile",
	"itertools.filterfalse",
	"itertools.compress",
	"itertools._tee",
	"itertools._tee_dataobject",
	"itertools.combinations_with_replacement",
	"re.Pattern",
	"re.Match",
	"_sre.SRE_Scanner",
	"_struct.Struct",
	"_json.Scanner",
	"_json.Encoder",
	"_random.Random",
	"_thread.lock",
	"_thread.RLock",
	"_thread._localdummy",
	"_thread._local",
	"_contextvars.ContextVar",
	"_csv.Dialect",
	"_csv.reader",
	"_csv.writer",
	"datetime.date",
	"datetime.datetime",
	"datetime.time",
	"datetime.timedelta",
	"datetime.timezone",
	"datetime.tzinfo",
	"decimal.Decimal",
	"decimal.Context",
	"array.array",
	"enum.property",
	"types.MethodType",
	"_io.StringIO",
	"_io.BytesIO",
	"string.Formatter",
};

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
static PyObject *silent;                  /* a set of the names above */
static PyObject *stdlib_names;            /* sys.stdlib_module_names, or NULL before 3.10 */
static PyObject *audit_original;          /* sys.addaudithook */
static void *python_dealloc;              /* tp_dealloc of classes written in Python */
static long frozen;
static PyObject *reference_type; /* weakref.ref */
static bool audited, thawed, gc_loaded;

enum { OBJECTS_MAX = 200000, VERDICTS = 256 };

/* ---- sys.addaudithook */

static PyObject *add_audit_hook(PyObject *self, PyObject *args, PyObject *kwargs)
{
	(void)self;
	audited = true;
	return PyObject_Call(audit_original, args, kwargs);
}

static int watch_audit_hooks(struct err *e)
{
	static char doc[1024];
	static PyMethodDef method = {"addaudithook", (PyCFunction)(void (*)(void))add_audit_hook,
				     METH_VARARGS | METH_KEYWORDS, doc};
	PyObject *sys = interp_loaded("sys");
	_cleanup_object_ PyObject *name = PyUnicode_FromString("sys"), *function = NULL;
	_cleanup_object_ PyObject *signature = NULL, *text = NULL, *joined = NULL, *bytes = NULL;

	audit_original = interp_ref(PySys_GetObject("addaudithook"));
	if (!audit_original || !sys || !name)
		return err_set(e, 0, "sys.addaudithook is not there");
	signature = PyObject_GetAttrString(audit_original, "__text_signature__");
	text = PyObject_GetAttrString(audit_original, "__doc__");
	joined = signature && text
			 ? PyUnicode_FromFormat("addaudithook%S\n--\n\n%S", signature, text)
			 : NULL;
	bytes = joined ? PyUnicode_AsUTF8String(joined) : NULL;
	if (!bytes)
		return interp_error(e, "sys.addaudithook");
	snprintf(doc, sizeof doc, "%s", PyBytes_AsString(bytes));
	function = PyCFunction_NewEx(&method, sys, name);
	if (!function || PySys_SetObject("addaudithook", function) < 0)
		return interp_error(e, "sys.addaudithook");
	return 0;
}

/* ---- before the fork */

/* What a class statement makes, to know such types by. */
static int learn_python_dealloc(struct err *e)
{
	_cleanup_object_ PyObject *class =
		PyObject_CallFunction((PyObject *)&PyType_Type, "s(){}", "C");

	if (!class)
		return interp_error(e, "a class");
	python_dealloc = PyType_GetSlot((PyTypeObject *)class, Py_tp_dealloc);
	return python_dealloc ? 0 : err_set(e, 0, "a class without tp_dealloc");
}

int leave_prepare(struct err *e)
{
	PyObject *weak = interp_loaded("_weakref");

	gc_loaded = interp_loaded("gc") != NULL;
	silent = PySet_New(NULL);
	for (size_t i = 0; i < ARRAY_SIZE(silent_names); i++) {
		_cleanup_object_ PyObject *name = PyUnicode_FromString(silent_names[i]);

		if (!silent || !name || PySet_Add(silent, name) < 0)
			return interp_error(e, "names of types");
	}
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
	reference_type = weak ? PyObject_GetAttrString(weak, "ReferenceType") : NULL;
	if (!reference_type)
		return interp_error(e, "_weakref.ReferenceType");
	stdlib_names = interp_ref(PySys_GetObject("stdlib_module_names"));
	return learn_python_dealloc(e) < 0 ? -1 : watch_audit_hooks(e);
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

static bool is_named(PyTypeObject *type)
{
	_cleanup_object_ PyObject *module = PyObject_GetAttrString((PyObject *)type, "__module__");
	_cleanup_object_ PyObject *name = PyObject_GetAttrString((PyObject *)type, "__qualname__");
	_cleanup_object_ PyObject *both = NULL;

	if (module && name && PyUnicode_Check(module) && PyUnicode_Check(name))
		both = PyUnicode_FromFormat("%U.%U", module, name);
	return both && PySet_Contains(silent, both) == 1;
}

static bool is_silent_type(PyTypeObject *type)
{
	bool yes;

	/* written in Python: its own death is that of its base, unless it has a __del__ */
	while ((PyType_GetFlags(type) & Py_TPFLAGS_HEAPTYPE) &&
	       PyType_GetSlot(type, Py_tp_dealloc) == python_dealloc) {
		if (PyType_GetSlot(type, Py_tp_finalize) || PyType_GetSlot(type, Py_tp_del))
			return false;
		type = PyType_GetSlot(type, Py_tp_base);
		if (!type)
			return false;
	}
	if (!(PyType_GetFlags(type) & Py_TPFLAGS_HEAPTYPE) &&
	    PyType_IsSubtype(type, (PyTypeObject *)PyExc_BaseException))
		return true;
	yes = is_named(type);
	PyErr_Clear();
	return yes;
}

static bool is_silent_module(PyObject *module)
{
	_cleanup_object_ PyObject *name = NULL;
	bool yes = PyModule_GetDef(module) == NULL; /* written in Python */

	if (!yes && stdlib_names && (name = PyModule_GetNameObject(module)))
		yes = PySequence_Contains(stdlib_names, name) == 1;
	PyErr_Clear();
	return yes;
}

static bool is_silent_reference(PyObject *reference)
{
	_cleanup_object_ PyObject *callback = PyObject_GetAttrString(reference, "__callback__");
	bool yes = callback == Py_None || (callback && PyCFunction_Check(callback));

	PyErr_Clear();
	return yes;
}

/* One verdict per type; many objects are of few types. */
static bool verdict_of(PyTypeObject *type)
{
	static struct {
		PyTypeObject *type;
		bool yes;
	} verdicts[VERDICTS];
	size_t slot = ((uintptr_t)type >> 4) % VERDICTS;

	if (verdicts[slot].type != type) {
		verdicts[slot].yes = is_silent_type(type);
		verdicts[slot].type = type;
	}
	return verdicts[slot].yes;
}

static bool is_silent(PyObject *object)
{
	PyTypeObject *type = Py_TYPE(object);

	if (type == &PyModule_Type)
		return is_silent_module(object);
	if ((PyObject *)type == reference_type)
		return is_silent_reference(object);
	return verdict_of(type);
}

static bool all_silent(void)
{
	_cleanup_object_ PyObject *list = NULL;
	Py_ssize_t n;

	if (!gc_loaded && interp_loaded("gc"))
		return false; /* somebody may have moved objects out of sight */
	if (number_of(freeze_count) > frozen)
		return false;
	list = PyObject_CallObject(get_objects, NULL);
	n = list ? PyList_Size(list) : -1;
	if (n < 0 || n > OBJECTS_MAX) {
		PyErr_Clear();
		return false;
	}
	for (Py_ssize_t i = 0; i < n; i++)
		if (!is_silent(PyList_GetItem(list, i)))
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

void leave_quickly(int status)
{
	PyObject *type, *value, *trace;
	bool called = false;

	PyErr_Fetch(&type, &value, &trace);
	if (!is_watched() && all_silent() && call_if_loaded("threading", "_shutdown", &called) &&
	    call_if_loaded("atexit", "_run_exitfuncs", &called) && number_of(thread_count) == 0 &&
	    (!called || (!is_watched() && all_silent())) && flush_original("stdout", stream_out) &&
	    flush_original("stderr", stream_err))
		exit(status);
	PyErr_Restore(type, value, trace);
}
