/* SPDX-License-Identifier: Apache-2.0 */
/*
 * module.c - the extension module: nothing but a free function (launch.h says why).
 *
 * It has no row in sys.modules and no Python object is left of it when zygote_begin() is called; the
 * shared object stays mapped, which /proc/self/maps of a child shows.
 */
#include "zygote/interp.h"
#include "zygote/zygote.h"

static void begin(void *module)
{
	(void)module;
	zygote_begin();
}

static PyModuleDef_Slot no_slots[] = {{0, NULL}};

static struct PyModuleDef definition = {
	PyModuleDef_HEAD_INIT, .m_name = "cloche_zygote", .m_size = 0,
	.m_slots = no_slots,   .m_free = begin,
};

PyMODINIT_FUNC PyInit_cloche_zygote(void);
PyMODINIT_FUNC PyInit_cloche_zygote(void)
{
	return PyModuleDef_Init(&definition);
}
