/*
 * arena.c - memory that the daemon sees too, and tensors cut from it.
 *
 * The object has a reference to the arena beside the library's, and each tensor one to the object:
 * so close gives the arena back to the daemon, and the memory stays mapped until the last array in
 * it is gone, also after the connection's end.
 */
#include "arena.h"

#include "connection.h"
#include "cuda.h"
#include "fault.h"
#include "tensor.h"

#include <errno.h>

struct arena {
	PyObject_HEAD;
	struct connection *connection; /* a reference */
	struct coppice_arena *arena; /* a reference of ours */
	bool closed; /* the daemon has it back, or will by the connection's end */
	bool is_device;
	int device; /* CUDA's number of it */
};

/* ---- its life ------------------------------------------------------------------------------- */

struct order {
	size_t n_bytes;
	enum coppice_memory memory;
	const char *device; /* a UUID; NULL: whichever the daemon takes */
};

static int call_new(struct coppice *c, const struct order *order, struct coppice_arena **ret)
{
	if (order->device)
		return coppice_arena_new_on(c, (const uint8_t *)order->device, order->n_bytes, ret);
	return coppice_arena_new(c, order->memory, order->n_bytes, ret);
}

/* Its arena is there. */
static void take_over(struct arena *self)
{
	coppice_arena_ref(self->arena);
	self->is_device = coppice_arena_memory(self->arena) == COPPICE_DEVICE;
	if (self->is_device)
		self->device = cuda_device_of(coppice_arena_base(self->arena));
}

PyObject *arena_make(struct connection *connection, struct coppice_arena *arena)
{
	struct arena *self = object_new(types.arena);

	if (!self) {
		coppice_arena_free(arena);
		return NULL;
	}
	Py_INCREF(connection);
	self->connection = connection;
	self->arena = arena;
	take_over(self);
	return (PyObject *)self;
}

static int get_memory(struct arena *self, const struct order *order)
{
	struct coppice *c = connection_enter(self->connection);
	int r;

	if (!c)
		return -1;
	Py_BEGIN_ALLOW_THREADS;
	r = call_new(c, order, &self->arena);
	Py_END_ALLOW_THREADS;
	if (r < 0)
		fault_of(c, r);
	else
		take_over(self);
	connection_leave(self->connection);
	return r < 0 ? -1 : 0;
}

static int read_order(const char *memory, Py_ssize_t device_bytes, struct order *order)
{
	if (order->device && device_bytes != COPPICE_DEVICE_BYTES) {
		fault_format(-EINVAL, "a device is named by its UUID of %d bytes, not %zd",
			     COPPICE_DEVICE_BYTES, device_bytes);
		return -1;
	}
	if (order->device || strcmp(memory, "device") == 0)
		order->memory = COPPICE_DEVICE;
	else if (strcmp(memory, "host") != 0) {
		fault_format(-EINVAL, "there is no memory %s: host or device", memory);
		return -1;
	}
	return 0;
}

PyObject *arena_new(PyObject *connection, PyObject *args, PyObject *kwargs)
{
	static char *names[] = {"n_bytes", "memory", "device", NULL};
	struct order order = {.memory = COPPICE_HOST};
	const char *memory = "host";
	Py_ssize_t n_bytes, device_bytes = 0;
	struct arena *self;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "n|$sz#:arena", names, &n_bytes, &memory,
					 &order.device, &device_bytes) ||
	    read_order(memory, device_bytes, &order) < 0)
		return NULL;
	if (n_bytes <= 0)
		return fault_format(-EINVAL, "an arena of %zd bytes: 1 or more", n_bytes);
	order.n_bytes = (size_t)n_bytes;
	self = object_new(types.arena);
	if (!self)
		return NULL;
	Py_INCREF(connection);
	self->connection = (struct connection *)connection;
	if (get_memory(self, &order) < 0)
		Py_CLEAR(self);
	return (PyObject *)self;
}

static void give_back(struct arena *self, bool unmap)
{
	struct coppice *c = connection_hold(self->connection);
	bool give = c && !self->closed;

	self->closed = true;
	Py_BEGIN_ALLOW_THREADS;
	if (give)
		coppice_arena_free(self->arena);
	if (unmap)
		coppice_arena_unref(self->arena);
	Py_END_ALLOW_THREADS;
	connection_leave(self->connection);
}

static PyObject *arena_close(struct arena *self, PyObject *unused)
{
	(void)unused;
	give_back(self, false);
	Py_RETURN_NONE;
}

static void arena_dealloc(struct arena *self)
{
	if (self->arena)
		give_back(self, true);
	Py_XDECREF(self->connection);
	object_free(self);
}

/* ---- tensors -------------------------------------------------------------------------------- */

static int read_shape(PyObject *shape, struct dlpack_view *view)
{
	Py_ssize_t n = PyTuple_Check(shape) ? PyTuple_Size(shape) : 1;

	if (n > DLPACK_DIMS_MAX) {
		fault_format(-EINVAL, "%zd dimensions: at most %d", n, DLPACK_DIMS_MAX);
		return -1;
	}
	view->n_dims = (int)n;
	for (Py_ssize_t i = 0; i < n; i++) {
		PyObject *item = PyTuple_Check(shape) ? PyTuple_GetItem(shape, i) : shape;

		view->shape[i] = PyLong_AsLongLong(item);
		if (view->shape[i] == -1 && PyErr_Occurred())
			return -1;
		if (view->shape[i] < 1 || view->shape[i] > INT32_MAX) {
			fault_format(-EINVAL, "dimension %zd is %lld: 1 to %d are taken", i,
				     (long long)view->shape[i], INT32_MAX);
			return -1;
		}
	}
	return 0;
}

/* Dimensions are below 2^31 each, so four of them can be more than a size_t. */
static bool fits(const struct dlpack_view *view, size_t room)
{
	room /= view->dtype->bytes;
	for (int i = 0; i < view->n_dims; i++)
		room /= (size_t)view->shape[i];
	return room > 0;
}

static int place(struct arena *self, long long offset, struct dlpack_view *view)
{
	size_t all = coppice_arena_bytes(self->arena);
	void *base = NULL;
	int r = -ENOSPC;

	if (offset >= 0 && offset % view->dtype->bytes != 0) {
		fault_format(-EINVAL, "offset %lld is no multiple of the %u bytes of %s", offset,
			     view->dtype->bytes, view->dtype->name);
		return -1;
	}
	if (offset >= 0 && (size_t)offset < all && fits(view, all - (size_t)offset)) {
		base = (uint8_t *)coppice_arena_base(self->arena) + offset;
		r = 0;
	} else if (offset < 0 && fits(view, all)) {
		r = coppice_arena_alloc(self->arena, tensor_bytes(view), 0, &base);
	}
	view->base = base;
	if (r == -ENOSPC)
		fault_format(r,
			     "the arena of %zu bytes has no room for the tensor: make a larger "
			     "one, or reset it",
			     all);
	else if (r < 0)
		fault_of(self->connection->c, r);
	return r < 0 ? -1 : 0;
}

static int read_offset(PyObject *offset, long long *ret)
{
	*ret = -1;
	if (offset == NULL || offset == Py_None)
		return 0;
	*ret = PyLong_AsLongLong(offset);
	if (*ret == -1 && PyErr_Occurred())
		return -1;
	if (*ret < 0)
		fault_format(-EINVAL, "offset %lld: 0 or more", *ret);
	return *ret < 0 ? -1 : 0;
}

static PyObject *arena_tensor(struct arena *self, PyObject *args, PyObject *kwargs)
{
	static char *names[] = {"shape", "dtype", "offset", NULL};
	struct dlpack_view view = {.device_type = self->is_device ? DLPACK_CUDA : DLPACK_CPU,
				   .device = self->device};
	PyObject *shape, *offset = NULL;
	const char *dtype = "float32";
	long long at;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|s$O:tensor", names, &shape, &dtype,
					 &offset) ||
	    read_offset(offset, &at) < 0 || read_shape(shape, &view) < 0)
		return NULL;
	if (self->closed || self->connection->closed)
		return fault_closed("arena");
	view.dtype = dtype_by_name(dtype);
	if (!view.dtype || place(self, at, &view) < 0)
		return NULL;
	return tensor_make((PyObject *)self, &view);
}

static PyObject *arena_reset(struct arena *self, PyObject *unused)
{
	(void)unused;
	coppice_arena_reset(self->arena);
	Py_RETURN_NONE;
}

/* ---- what it is ----------------------------------------------------------------------------- */

static PyObject *arena_closed(struct arena *self, void *unused)
{
	(void)unused;
	return PyBool_FromLong(self->closed || self->connection->closed);
}

static PyObject *arena_address(struct arena *self, void *unused)
{
	(void)unused;
	return PyLong_FromVoidPtr(coppice_arena_base(self->arena));
}

static PyObject *arena_nbytes(struct arena *self, void *unused)
{
	(void)unused;
	return PyLong_FromSize_t(coppice_arena_bytes(self->arena));
}

static PyObject *arena_memory(struct arena *self, void *unused)
{
	(void)unused;
	return PyUnicode_FromString(self->is_device ? "device" : "host");
}

static PyMethodDef methods[] = {
	{"close", (PyCFunction)arena_close, METH_NOARGS, NULL},
	{"tensor", KEYWORDS(arena_tensor), METH_VARARGS | METH_KEYWORDS, NULL},
	{"reset", (PyCFunction)arena_reset, METH_NOARGS, NULL},
	CONTEXT_ENTER,
	CONTEXT_EXIT,
	{NULL},
};

static PyGetSetDef getters[] = {
	{"closed", (getter)arena_closed, NULL, NULL, NULL},
	{"address", (getter)arena_address, NULL, NULL, NULL},
	{"nbytes", (getter)arena_nbytes, NULL, NULL, NULL},
	{"memory", (getter)arena_memory, NULL, NULL, NULL},
	{NULL},
};

static PyType_Slot slots[] = {
	TYPE_DOC,
	{Py_tp_dealloc, arena_dealloc},
	{Py_tp_methods, methods},
	{Py_tp_getset, getters},
	{0, NULL},
};

PyTypeObject *arena_type_new(PyObject *module)
{
	return type_new(module, &(PyType_Spec){.name = "coppice.Arena",
					       .basicsize = sizeof(struct arena),
					       .flags = Py_TPFLAGS_DEFAULT |
							Py_TPFLAGS_DISALLOW_INSTANTIATION,
					       .slots = slots});
}
