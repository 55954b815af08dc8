/*
 * model.c - open models. Those of layers that the caller computes are opened here.
 *
 * A model is a number in its connection and never closed, so an object of it is words alone.
 */
#include "model.h"

#include "dtype.h"
#include "fault.h"
#include "number.h"

PyObject *model_make(struct connection *connection, uint32_t number,
		     const struct model_shape *shape)
{
	struct coppice_model_layout layout = {.size = sizeof(layout)};
	int r = coppice_model_query(connection->c, number, &layout);
	struct model *self;

	if (r < 0)
		return fault_of(connection->c, r);
	self = object_new(types.model);
	if (!self)
		return NULL;
	Py_INCREF(connection);
	self->connection = connection;
	self->number = number;
	self->shape = *shape;
	self->page_tokens = layout.page_tokens;
	self->page_bytes = layout.page_bytes;
	return (PyObject *)self;
}

static PyObject *open_model(struct connection *connection, const struct coppice_model_info *info)
{
	uint32_t own = info->own_kv_heads ? info->own_kv_heads : info->n_kv_heads;
	struct model_shape shape = {.n_layers = info->n_layers,
				    .n_kv_heads = own,
				    .head_dim = info->head_dim,
				    .dtype = (int)info->dtype};
	struct coppice *c = connection_enter(connection);
	PyObject *model = NULL;
	uint32_t number;
	int r;

	if (!c)
		return NULL;
	Py_BEGIN_ALLOW_THREADS;
	r = coppice_model_open(c, info, &number);
	Py_END_ALLOW_THREADS;
	if (r < 0)
		fault_of(c, r);
	else {
		shape.n_q_heads = info->n_q_heads / info->n_kv_heads * own;
		model = model_make(connection, number, &shape);
	}
	connection_leave(connection);
	return model;
}

PyObject *model_new(PyObject *connection, PyObject *args, PyObject *kwargs)
{
	static char *names[] = {"name",		"n_layers",	 "n_q_heads",	 "n_kv_heads",
				"head_dim",	"dtype",	 "page_tokens",	 "scale",
				"weights_hash", "first_kv_head", "own_kv_heads", NULL};
	struct coppice_model_info info = {.size = sizeof(info)};
	const char *dtype_word = "float32";
	const struct dtype *dtype;

	if (!PyArg_ParseTupleAndKeywords(
		    args, kwargs, "s|$O&O&O&O&sO&fO&O&O&:model", names, &info.name,
		    NUMBER_32(&info.n_layers), NUMBER_32(&info.n_q_heads),
		    NUMBER_32(&info.n_kv_heads), NUMBER_32(&info.head_dim), &dtype_word,
		    NUMBER_32(&info.page_tokens), &info.scale, NUMBER_64(&info.weights_hash),
		    NUMBER_32(&info.first_kv_head), NUMBER_32(&info.own_kv_heads)))
		return NULL;
	dtype = dtype_by_name(dtype_word);
	if (!dtype)
		return NULL;
	info.dtype = (enum coppice_dtype)dtype->code;
	return open_model((struct connection *)connection, &info);
}

static void model_dealloc(struct model *self)
{
	Py_XDECREF(self->connection);
	object_free(self);
}

static PyObject *model_dtype(struct model *self, void *unused)
{
	(void)unused;
	return PyUnicode_FromString(dtype_name(self->shape.dtype));
}

static PyObject *model_is_program(struct model *self, void *unused)
{
	(void)unused;
	return PyBool_FromLong(self->shape.n_vocab > 0);
}

#define WORD(name, type, member) \
	{ \
		name, type, offsetof(struct model, member), READONLY, NULL \
	}

static PyMemberDef members[] = {
	WORD("connection", T_OBJECT_EX, connection),
	WORD("number", T_UINT, number),
	WORD("n_layers", T_UINT, shape.n_layers),
	WORD("n_q_heads", T_UINT, shape.n_q_heads),
	WORD("n_kv_heads", T_UINT, shape.n_kv_heads),
	WORD("head_dim", T_UINT, shape.head_dim),
	WORD("n_vocab", T_UINT, shape.n_vocab),
	WORD("hidden", T_UINT, shape.hidden),
	WORD("max_positions", T_UINT, shape.max_positions),
	WORD("page_tokens", T_UINT, page_tokens),
	WORD("page_bytes", T_ULONGLONG, page_bytes),
	{NULL},
};

static PyGetSetDef getters[] = {
	{"dtype", (getter)model_dtype, NULL, NULL, NULL},
	{"is_program", (getter)model_is_program, NULL, NULL, NULL},
	{NULL},
};

static PyType_Slot slots[] = {
	TYPE_DOC,
	{Py_tp_dealloc, model_dealloc},
	{Py_tp_members, members},
	{Py_tp_getset, getters},
	{0, NULL},
};

PyTypeObject *model_type_new(PyObject *module)
{
	return type_new(module, &(PyType_Spec){.name = "coppice.Model",
					       .basicsize = sizeof(struct model),
					       .flags = Py_TPFLAGS_DEFAULT |
							Py_TPFLAGS_DISALLOW_INSTANTIATION,
					       .slots = slots});
}
