/* SPDX-License-Identifier: Apache-2.0 */
/*
 * silent.c - whether anybody could notice the death of an object.
 *
 * A list of types that die without doing anything but giving up what they hold; what they hold is judged
 * by itself, if the collector tracks it. Objects that it does not track hold nothing but numbers, text and
 * memory, as far as the modules go that are known here: an extension module from elsewhere is itself an
 * object that is not silent. Classes written in Python are as their bases, unless they have a __del__.
 * Whatever is not on the list counts as loud, which costs time and nothing else.
 */
#include "zygote/silent.h"

#include <string.h>

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
	"builtins.builtin_method",
	"builtins.frame",
	"ast.AST",
	"decimal.SignalDictMixin",
	"builtins.managedbuffer",
	"builtins.hamt",
	"builtins.hamt_bitmap_node",
	"builtins.hamt_array_node",
	"builtins.hamt_collision_node",
	"_contextvars.Context",
	"_contextvars.Token",
	"xml.etree.ElementTree.Element",
	"xml.etree.ElementTree.TreeBuilder",
	"xml.etree.ElementTree.XMLParser",
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

static PyObject *silent;            /* a set of the names above */
static PyObject *stdlib_names;      /* sys.stdlib_module_names, or NULL before 3.10 */
static void *python_dealloc;        /* tp_dealloc of classes written in Python */
static PyObject *reference_type;    /* weakref.ref */
static PyTypeObject *function_type; /* of functions written in Python */

enum { VERDICTS = 256 };

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

int silent_prepare(struct err *e)
{
	PyObject *weak = interp_loaded("_weakref"), *os = interp_loaded("os");
	_cleanup_object_ PyObject *function = NULL;

	silent = PySet_New(NULL);
	for (size_t i = 0; i < ARRAY_SIZE(silent_names); i++) {
		_cleanup_object_ PyObject *name = PyUnicode_FromString(silent_names[i]);

		if (!silent || !name || PySet_Add(silent, name) < 0)
			return interp_error(e, "names of types");
	}
	reference_type = weak ? PyObject_GetAttrString(weak, "ReferenceType") : NULL;
	function = os ? PyObject_GetAttrString(os, "getenv") : NULL;
	if (!reference_type || !function)
		return interp_error(e, "weakref.ReferenceType and os.getenv");
	function_type = Py_TYPE(function);
	stdlib_names = interp_ref(PySys_GetObject("stdlib_module_names"));
	return learn_python_dealloc(e);
}

/* Packages of which all that is written in C only holds memory, and has nothing to do at exit. */
static bool is_of_family(PyObject *module)
{
	static const char *const families[] = {"numpy", "pandas._libs", "numexpr", "bottleneck"};
	_cleanup_object_ PyObject *bytes = PyUnicode_AsUTF8String(module);
	const char *name = bytes ? PyBytes_AsString(bytes) : NULL;

	for (size_t i = 0; name && i < ARRAY_SIZE(families); i++) {
		size_t n = strlen(families[i]);

		if (strncmp(name, families[i], n) == 0 && (name[n] == '.' || name[n] == '\0'))
			return true;
	}
	return false;
}

static bool is_named(PyTypeObject *type)
{
	_cleanup_object_ PyObject *module = PyObject_GetAttrString((PyObject *)type, "__module__");
	_cleanup_object_ PyObject *name = PyObject_GetAttrString((PyObject *)type, "__qualname__");
	_cleanup_object_ PyObject *both = NULL;

	if (!module || !name || !PyUnicode_Check(module) || !PyUnicode_Check(name))
		return false;
	both = PyUnicode_FromFormat("%U.%U", module, name);
	return (both && PySet_Contains(silent, both) == 1) || is_of_family(module);
}

static bool is_heap_type(PyTypeObject *type)
{
	return PyType_GetFlags(type) & Py_TPFLAGS_HEAPTYPE;
}

/* Written in Python, or without a death of its own: then it dies as its base does, unless there is a
 * __del__. NULL: it has one. The slots of static types cannot be asked for before 3.10. */
static PyTypeObject *dying_type(PyTypeObject *type)
{
	while (is_heap_type(type)) {
		PyTypeObject *base = PyType_GetSlot(type, Py_tp_base);
		void *dealloc = PyType_GetSlot(type, Py_tp_dealloc);

		if (dealloc != python_dealloc && (!base || !is_heap_type(base) ||
						  PyType_GetSlot(base, Py_tp_dealloc) != dealloc))
			break;
		if (!base || PyType_GetSlot(type, Py_tp_finalize) ||
		    PyType_GetSlot(type, Py_tp_del))
			return NULL;
		type = base;
	}
	return type;
}

static bool is_silent_type(PyTypeObject *type)
{
	bool yes;

	type = dying_type(type);
	if (!type)
		return false;
	if (!is_heap_type(type) && PyType_IsSubtype(type, (PyTypeObject *)PyExc_BaseException))
		return true;
	yes = is_named(type);
	PyErr_Clear();
	return yes;
}

/* Written in Python, or one of the library's. */
static bool is_silent_module(PyObject *module)
{
	_cleanup_object_ PyObject *name = NULL;
	bool yes = PyModule_GetDef(module) == NULL;

	if (!yes && stdlib_names && (name = PyModule_GetNameObject(module)))
		yes = PySequence_Contains(stdlib_names, name) == 1;
	PyErr_Clear();
	return yes;
}

bool silent_libraries(void)
{
	_cleanup_object_ PyObject *modules = PyDict_Values(PyImport_GetModuleDict());
	Py_ssize_t n = modules ? PyList_Size(modules) : -1;

	for (Py_ssize_t i = 0; i < n; i++) {
		PyObject *module = PyList_GetItem(modules, i);
		_cleanup_object_ PyObject *name = NULL;

		if (!PyModule_Check(module) || is_silent_module(module))
			continue;
		name = PyModule_GetNameObject(module);
		if (!name || !is_of_family(name))
			return false;
	}
	PyErr_Clear();
	return n >= 0;
}

/* Without a callback, or with one of the library's that only keeps a weak collection tidy. */
static bool is_silent_reference(PyObject *reference)
{
	static const char *const tidy[] = {"_weakrefset", "weakref", "logging"};
	_cleanup_object_ PyObject *callback = PyObject_GetAttrString(reference, "__callback__");
	_cleanup_object_ PyObject *module = NULL;
	bool yes = callback == Py_None || (callback && PyCFunction_Check(callback));

	if (callback && !yes && Py_TYPE(callback) == function_type) {
		module = PyObject_GetAttrString(callback, "__module__");
		for (size_t i = 0; module && PyUnicode_Check(module) && i < ARRAY_SIZE(tidy); i++)
			yes |= PyUnicode_CompareWithASCIIString(module, tidy[i]) == 0;
	}
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

bool silent_object(PyObject *object)
{
	PyTypeObject *type = Py_TYPE(object);

	if (type == &PyModule_Type)
		return is_silent_module(object);
	if (PyType_IsSubtype(type, (PyTypeObject *)reference_type))
		return is_silent_reference(object) &&
		       (Py_TYPE(object) == (PyTypeObject *)reference_type || dying_type(type));
	return verdict_of(type);
}
