/*
 * tensor.c - dense arrays in memory that the daemon sees too, for packages that know arrays.
 *
 * By DLPack, and by the array interfaces of numpy's and CUDA's. Host memory can be read and written
 * without any of them.
 */
#include "tensor.h"

#include "fault.h"

#include <errno.h>

size_t tensor_bytes(const struct dlpack_view *view)
{
	size_t bytes = view->dtype->bytes;

	for (int i = 0; i < view->n_dims; i++)
		bytes *= (size_t)view->shape[i];
	return bytes;
}

PyObject *tensor_make(PyObject *owner, const struct dlpack_view *view)
{
	struct tensor *self = object_new(types.tensor);
	int64_t stride = 1;

	if (!self)
		return NULL;
	Py_INCREF(owner);
	self->owner = owner;
	self->view = *view;
	self->n_bytes = tensor_bytes(view);
	for (int i = view->n_dims - 1; i >= 0; i--) {
		self->view.strides[i] = stride;
		stride *= view->shape[i];
	}
	return (PyObject *)self;
}

static void tensor_dealloc(struct tensor *self)
{
	Py_XDECREF(self->owner);
	object_free(self);
}

/* ---- what it is ----------------------------------------------------------------------------- */

static PyObject *tensor_shape(struct tensor *self, void *unused)
{
	PyObject *shape = PyTuple_New(self->view.n_dims);

	(void)unused;
	for (int i = 0; shape && i < self->view.n_dims; i++) {
		PyObject *n = PyLong_FromLongLong(self->view.shape[i]);

		if (!n || PyTuple_SetItem(shape, i, n) < 0)
			Py_CLEAR(shape);
	}
	return shape;
}

static PyObject *tensor_dtype(struct tensor *self, void *unused)
{
	(void)unused;
	return PyUnicode_FromString(self->view.dtype->name);
}

static PyObject *tensor_nbytes(struct tensor *self, void *unused)
{
	(void)unused;
	return PyLong_FromSize_t(self->n_bytes);
}

static PyObject *tensor_address(struct tensor *self, void *unused)
{
	(void)unused;
	return PyLong_FromVoidPtr(self->view.base);
}

static bool is_host(const struct tensor *self)
{
	return self->view.device_type == DLPACK_CPU;
}

static PyObject *interface_of(struct tensor *self, int version)
{
	PyObject *shape;

	if (!self->view.dtype->typestr) {
		PyErr_Format(PyExc_AttributeError,
			     "numpy has no %s: use torch.from_dlpack, or a tensor of uint8",
			     self->view.dtype->name);
		return NULL;
	}
	shape = tensor_shape(self, NULL);
	if (!shape)
		return NULL;
	return Py_BuildValue("{s:N,s:s,s:(NO),s:i}", "shape", shape, "typestr",
			     self->view.dtype->typestr, "data", PyLong_FromVoidPtr(self->view.base),
			     Py_False, "version", version);
}

static PyObject *tensor_array_interface(struct tensor *self, void *unused)
{
	(void)unused;
	if (is_host(self))
		return interface_of(self, 3);
	PyErr_SetString(PyExc_AttributeError, "the tensor is in a GPU's memory: use "
					      "torch.from_dlpack or cupy.asarray");
	return NULL;
}

static PyObject *tensor_cuda_array_interface(struct tensor *self, void *unused)
{
	(void)unused;
	if (!is_host(self))
		return interface_of(self, 2);
	PyErr_SetString(PyExc_AttributeError, "the tensor is in host memory");
	return NULL;
}

/* -1 and an exception. */
static int is_version_1(PyObject *version)
{
	long major;

	if (!version || version == Py_None)
		return 0;
	if (!PyTuple_Check(version) || PyTuple_Size(version) < 1) {
		PyErr_SetString(PyExc_TypeError, "max_version is (major, minor)");
		return -1;
	}
	major = PyLong_AsLong(PyTuple_GetItem(version, 0));
	return PyErr_Occurred() ? -1 : major >= 1;
}

static PyObject *tensor_dlpack(struct tensor *self, PyObject *args, PyObject *kwargs)
{
	static char *names[] = {"stream", "max_version", "dl_device", "copy", NULL};
	PyObject *ignored, *version = NULL, *copy = Py_None;
	int versioned;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|$OOOO:__dlpack__", names, &ignored,
					 &version, &ignored, &copy))
		return NULL;
	versioned = is_version_1(version);
	if (versioned < 0)
		return NULL;
	if (copy == Py_True) {
		PyErr_SetString(PyExc_BufferError, "a coppice.Tensor is not copied: copy the array "
						   "that is made of it");
		return NULL;
	}
	return dlpack_capsule_new((PyObject *)self, &self->view, versioned);
}

static PyObject *tensor_dlpack_device(struct tensor *self, PyObject *unused)
{
	(void)unused;
	return Py_BuildValue("(ii)", self->view.device_type, self->view.device);
}

/* ---- host memory ---------------------------------------------------------------------------- */

static bool check_host(const struct tensor *self)
{
	if (!is_host(self))
		fault_raise(-EINVAL, "the tensor is in a GPU's memory: use torch.from_dlpack");
	return is_host(self);
}

static PyObject *tensor_tobytes(struct tensor *self, PyObject *unused)
{
	(void)unused;
	if (!check_host(self))
		return NULL;
	return PyBytes_FromStringAndSize((const char *)self->view.base, (Py_ssize_t)self->n_bytes);
}

static PyObject *tensor_write(struct tensor *self, PyObject *args)
{
	const char *data;
	Py_ssize_t n;

	if (!PyArg_ParseTuple(args, "y#:write", &data, &n) || !check_host(self))
		return NULL;
	if ((size_t)n > self->n_bytes)
		return fault_format(-EINVAL, "%zd bytes do not fit a tensor of %zu", n,
				    self->n_bytes);
	memcpy(self->view.base, data, (size_t)n);
	Py_RETURN_NONE;
}

/* The bits of a bfloat16 are a float32's upper half. */
static PyObject *element(const struct tensor *self, size_t i)
{
	const uint8_t *at = self->view.base + i * self->view.dtype->bytes;
	uint32_t bits = 0;
	float value;

	if (self->view.dtype->code == DTYPE_UINT8)
		return PyLong_FromLong(*at);
	if (self->view.dtype->code == COPPICE_FP16) {
		_Float16 half;

		memcpy(&half, at, sizeof(half));
		return PyFloat_FromDouble((double)half);
	}
	if (self->view.dtype->code == COPPICE_BF16)
		memcpy((uint8_t *)&bits + 2, at, 2);
	else
		memcpy(&bits, at, 4);
	memcpy(&value, &bits, sizeof(value));
	return PyFloat_FromDouble((double)value);
}

static PyObject *tensor_tolist(struct tensor *self, PyObject *unused)
{
	size_t n = self->n_bytes / self->view.dtype->bytes;
	PyObject *list;

	(void)unused;
	if (!check_host(self))
		return NULL;
	list = PyList_New((Py_ssize_t)n);
	for (size_t i = 0; list && i < n; i++) {
		PyObject *item = element(self, i);

		if (!item || PyList_SetItem(list, (Py_ssize_t)i, item) < 0)
			Py_CLEAR(list);
	}
	return list;
}

static PyMethodDef methods[] = {
	{"__dlpack__", KEYWORDS(tensor_dlpack), METH_VARARGS | METH_KEYWORDS, NULL},
	{"__dlpack_device__", (PyCFunction)tensor_dlpack_device, METH_NOARGS, NULL},
	{"tobytes", (PyCFunction)tensor_tobytes, METH_NOARGS, NULL},
	{"write", (PyCFunction)tensor_write, METH_VARARGS, NULL},
	{"tolist", (PyCFunction)tensor_tolist, METH_NOARGS, NULL},
	{NULL},
};

static PyGetSetDef getters[] = {
	{"shape", (getter)tensor_shape, NULL, NULL, NULL},
	{"dtype", (getter)tensor_dtype, NULL, NULL, NULL},
	{"nbytes", (getter)tensor_nbytes, NULL, NULL, NULL},
	{"address", (getter)tensor_address, NULL, NULL, NULL},
	{"__array_interface__", (getter)tensor_array_interface, NULL, NULL, NULL},
	{"__cuda_array_interface__", (getter)tensor_cuda_array_interface, NULL, NULL, NULL},
	{NULL},
};

static PyType_Slot slots[] = {
	TYPE_DOC,
	{Py_tp_dealloc, tensor_dealloc},
	{Py_tp_methods, methods},
	{Py_tp_getset, getters},
	{0, NULL},
};

PyTypeObject *tensor_type_new(PyObject *module)
{
	return type_new(module, &(PyType_Spec){.name = "coppice.Tensor",
					       .basicsize = sizeof(struct tensor),
					       .flags = Py_TPFLAGS_DEFAULT |
							Py_TPFLAGS_DISALLOW_INSTANTIATION,
					       .slots = slots});
}
