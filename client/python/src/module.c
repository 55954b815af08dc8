/*
 * module.c - the extension's module: its types, and the library's version.
 *
 * Files call down: docs; base; fault; blocking, ids, dtype, cuda; dlpack, tensor, records;
 * connection over heap; arena, weights, model; lane; sequence; opening, decode, part, step; the
 * types of sequences and lanes, whose tables name all of these.
 */
#include "arena.h"
#include "capture.h"
#include "connection.h"
#include "decode.h"
#include "docs.h"
#include "fault.h"
#include "ids.h"
#include "lane_type.h"
#include "model.h"
#include "part.h"
#include "program.h"
#include "records.h"
#include "sequence_type.h"
#include "tensor.h"
#include "weights.h"

static PyObject *version(PyObject *module, PyObject *unused)
{
	(void)module;
	(void)unused;
	return PyUnicode_FromString(coppice_version());
}

static PyMethodDef functions[] = {
	{"version", version, METH_NOARGS, NULL},
	{"extremes", ids_extremes, METH_O, NULL},
	{NULL},
};

static struct PyModuleDef definition = {
	PyModuleDef_HEAD_INIT,
	.m_name = "coppice._coppice",
	.m_size = -1,
	.m_methods = functions,
};

static void set_makers(void)
{
	makers = (struct makers){.lane = lane_new,
				 .arena = arena_new,
				 .weights = weights_new,
				 .model = model_new,
				 .program = program_new};
}

static bool make_types(PyObject *module)
{
	return (types.connection = connection_type_new(module)) &&
	       (types.weights = weights_type_new(module)) &&
	       (types.model = model_type_new(module)) && (types.arena = arena_type_new(module)) &&
	       (types.tensor = tensor_type_new(module)) && (types.lane = lane_type_new(module)) &&
	       (types.sequence = sequence_type_new(module)) &&
	       (types.part = part_type_new(module)) && (types.decode = decode_type_new(module)) &&
	       (types.capture = capture_type_new(module));
}

PyMODINIT_FUNC PyInit__coppice(void);

PyMODINIT_FUNC PyInit__coppice(void)
{
	PyObject *module;

	definition.m_doc = docs_find("");
	docs_fill_functions(functions);
	module = PyModule_Create(&definition);
	if (!module)
		return NULL;
	set_makers();
	if (fault_init() < 0 || records_init(module) < 0 || !make_types(module))
		Py_CLEAR(module);
	return module;
}
