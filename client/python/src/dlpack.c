/*
 * dlpack.c - arrays of other packages', and ours for them.
 *
 * A capsule that is read here is not consumed: its own destructor gives the array back, and the
 * memory stays by the object, which the caller keeps. What takes a capsule of ours may end it in
 * any thread, so its deleter takes the interpreter's lock.
 */
#include "dlpack.h"

#include "fault.h"

#include <errno.h>
#include <stdlib.h>

static const char plain_name[] = "dltensor", versioned_name[] = "dltensor_versioned";

struct dl_device {
	int32_t type, id;
};

struct dl_dtype {
	uint8_t code, bits;
	uint16_t lanes;
};

struct dl_tensor {
	void *data;
	struct dl_device device;
	int32_t n_dims;
	struct dl_dtype dtype;
	int64_t *shape, *strides; /* strides NULL: dense */
	uint64_t byte_offset;
};

struct dl_managed {
	struct dl_tensor tensor;
	void *context;
	void (*deleter)(struct dl_managed *self);
};

struct dl_versioned {
	uint32_t major, minor;
	void *context;
	void (*deleter)(struct dl_versioned *self);
	uint64_t flags;
	struct dl_tensor tensor;
};

/* ---- others' -------------------------------------------------------------------------------- */

static int read_device(PyObject *array, int *ret_type)
{
	PyObject *pair = PyObject_CallMethod(array, "__dlpack_device__", NULL);
	int id, r = -1;

	if (pair && PyArg_ParseTuple(pair, "ii", ret_type, &id))
		r = 0;
	Py_XDECREF(pair);
	return r;
}

/* Of memory of a GPU the stream -1 says that nothing is to be waited for. */
static PyObject *capsule_of(PyObject *array, int device_type)
{
	PyObject *method, *args, *kwargs, *capsule = NULL;

	if (device_type == DLPACK_CPU)
		return PyObject_CallMethod(array, "__dlpack__", NULL);
	method = PyObject_GetAttrString(array, "__dlpack__");
	args = PyTuple_New(0);
	kwargs = Py_BuildValue("{s:i}", "stream", -1);
	if (method && args && kwargs)
		capsule = PyObject_Call(method, args, kwargs);
	Py_XDECREF(method);
	Py_XDECREF(args);
	Py_XDECREF(kwargs);
	return capsule;
}

static void dense_strides(struct dlpack_view *view)
{
	int64_t stride = 1;

	for (int i = view->n_dims - 1; i >= 0; i--) {
		view->strides[i] = stride;
		stride *= view->shape[i];
	}
}

static int read_tensor(const struct dl_tensor *from, const char *what, struct dlpack_view *ret)
{
	if (from->n_dims > DLPACK_DIMS_MAX) {
		fault_format(-EINVAL, "%s has %d dimensions, at most %d are taken", what,
			     from->n_dims, DLPACK_DIMS_MAX);
		return -1;
	}
	*ret = (struct dlpack_view){.base = (uint8_t *)from->data + from->byte_offset,
				    .device_type = from->device.type,
				    .device = from->device.id,
				    .n_dims = from->n_dims};
	ret->dtype =
		from->dtype.lanes == 1 ? dtype_by_dlpack(from->dtype.code, from->dtype.bits) : NULL;
	memcpy(ret->shape, from->shape, (size_t)from->n_dims * sizeof(int64_t));
	dense_strides(ret);
	if (from->strides)
		memcpy(ret->strides, from->strides, (size_t)from->n_dims * sizeof(int64_t));
	return 0;
}

int dlpack_read(PyObject *array, const char *what, struct dlpack_view *ret)
{
	struct dl_managed *managed;
	PyObject *capsule;
	int device_type, r = -1;

	if (!PyObject_HasAttrString(array, "__dlpack__")) {
		PyErr_Format(PyExc_TypeError,
			     "%s is no array: a coppice.Tensor, or one of torch, numpy, cupy",
			     what);
		return -1;
	}
	if (read_device(array, &device_type) < 0)
		return -1;
	capsule = capsule_of(array, device_type);
	if (!capsule)
		return -1;
	managed = PyCapsule_GetPointer(capsule, plain_name);
	if (managed)
		r = read_tensor(&managed->tensor, what, ret);
	Py_DECREF(capsule);
	return r;
}

/* ---- ours ----------------------------------------------------------------------------------- */

/* What one of both points to, and itself. */
struct ours {
	union {
		struct dl_managed plain;
		struct dl_versioned versioned;
	};
	PyObject *owner; /* a reference */
	int64_t shape[DLPACK_DIMS_MAX], strides[DLPACK_DIMS_MAX];
};

static void ours_free(struct ours *ours)
{
	PyGILState_STATE state;

	if (Py_IsInitialized()) {
		state = PyGILState_Ensure();
		Py_DECREF(ours->owner);
		PyGILState_Release(state);
	}
	free(ours);
}

static void plain_delete(struct dl_managed *self)
{
	ours_free(self->context);
}

static void versioned_delete(struct dl_versioned *self)
{
	ours_free(self->context);
}

/* Of a capsule that nobody took: who takes one gives it another name. */
static void plain_end(PyObject *capsule)
{
	if (PyCapsule_IsValid(capsule, plain_name))
		plain_delete(PyCapsule_GetPointer(capsule, plain_name));
}

static void versioned_end(PyObject *capsule)
{
	if (PyCapsule_IsValid(capsule, versioned_name))
		versioned_delete(PyCapsule_GetPointer(capsule, versioned_name));
}

static struct dl_tensor tensor_of(struct ours *ours, const struct dlpack_view *view)
{
	return (struct dl_tensor){
		.data = view->base,
		.device = {view->device_type, view->device},
		.n_dims = view->n_dims,
		.dtype = {view->dtype->dlpack_code, view->dtype->dlpack_bits, 1},
		.shape = ours->shape,
		.strides = ours->strides,
	};
}

static void fill(struct ours *ours, const struct dlpack_view *view, bool versioned)
{
	if (versioned)
		ours->versioned = (struct dl_versioned){.major = 1,
							.context = ours,
							.deleter = versioned_delete,
							.tensor = tensor_of(ours, view)};
	else
		ours->plain = (struct dl_managed){.tensor = tensor_of(ours, view),
						  .context = ours,
						  .deleter = plain_delete};
}

PyObject *dlpack_capsule_new(PyObject *owner, const struct dlpack_view *view, bool versioned)
{
	struct ours *ours = calloc(1, sizeof(*ours));
	PyObject *capsule;

	if (!ours)
		return PyErr_NoMemory();
	memcpy(ours->shape, view->shape, sizeof(ours->shape));
	memcpy(ours->strides, view->strides, sizeof(ours->strides));
	ours->owner = owner;
	Py_INCREF(owner);
	fill(ours, view, versioned);
	if (versioned)
		capsule = PyCapsule_New(ours, versioned_name, versioned_end);
	else
		capsule = PyCapsule_New(ours, plain_name, plain_end);
	if (!capsule)
		ours_free(ours);
	return capsule;
}
