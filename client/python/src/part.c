/*
 * part.c - one sequence's part of steps: arrays that are looked at once, for many steps.
 *
 * Shapes, types, strides and devices are held against the model here. Whether an array lies in an
 * arena of the connection is for each step to say, as arenas come and go.
 */
#include "part.h"

#include "cuda.h"
#include "fault.h"
#include "tensor.h"

#include <errno.h>

enum { Q, K, V, O, LSE, N_ARRAYS };

static const char *const array_names[N_ARRAYS] = {"q", "k", "v", "o", "lse"};

/* What an array is to be. */
struct wanted {
	const char *name;
	unsigned n_heads, head_dim; /* head_dim 0: of lse, which has none */
	int dtype;
};

static struct wanted wanted_of(const struct model_shape *shape, int i)
{
	bool is_kv = i == K || i == V;

	return (struct wanted){
		.name = array_names[i],
		.n_heads = is_kv ? shape->n_kv_heads : shape->n_q_heads,
		.head_dim = i == LSE ? 0 : shape->head_dim,
		.dtype = i == LSE ? COPPICE_FP32 : shape->dtype,
	};
}

static bool is_shaped(const struct wanted *w, const struct dlpack_view *view)
{
	if (view->n_dims != (w->head_dim ? 3 : 2) || view->shape[1] != w->n_heads)
		return false;
	return !w->head_dim || view->shape[2] == w->head_dim;
}

static int complain_shape(const struct wanted *w, const struct dlpack_view *view)
{
	long long n[DLPACK_DIMS_MAX] = {0};

	for (int i = 0; i < view->n_dims; i++)
		n[i] = view->shape[i];
	if (w->head_dim)
		fault_format(-EINVAL,
			     "%s has %d dimensions of %lld, %lld, %lld; wanted: [n_new, %u, %u]",
			     w->name, view->n_dims, n[0], n[1], n[2], w->n_heads, w->head_dim);
	else
		fault_format(-EINVAL, "%s has %d dimensions of %lld, %lld; wanted: [n_new, %u]",
			     w->name, view->n_dims, n[0], n[1], w->n_heads);
	return -1;
}

/* Elements of a row follow each other; rows may be further apart. */
static bool is_dense(const struct dlpack_view *view)
{
	int64_t stride = 1;

	for (int i = view->n_dims - 1; i >= 1; i--) {
		if (view->shape[i] > 1 && view->strides[i] != stride)
			return false;
		stride *= view->shape[i];
	}
	return view->shape[0] <= 1 ||
	       (view->strides[0] >= stride && view->strides[0] <= UINT32_MAX / view->dtype->bytes);
}

static int check_view(const struct wanted *w, const struct dlpack_view *view)
{
	if (!view->dtype || view->dtype->code != w->dtype) {
		fault_format(-EINVAL, "%s is of %s, the model has %s: convert it", w->name,
			     view->dtype ? view->dtype->name : "another type",
			     dtype_name(w->dtype));
		return -1;
	}
	if (!is_shaped(w, view))
		return complain_shape(w, view);
	if (!is_dense(view)) {
		fault_format(-EINVAL,
			     "%s has strides between the elements of a row, or backward: use a "
			     "view whose rows are contiguous",
			     w->name);
		return -1;
	}
	return 0;
}

static int check_device(struct part *self, const char *name, const struct dlpack_view *view)
{
	if (view->device_type == DLPACK_CPU || view->device_type == DLPACK_CUDA_HOST)
		return 0;
	if (view->device_type != DLPACK_CUDA) {
		fault_format(-EINVAL,
			     "%s is on a device of kind %d: arenas are in host memory or a CUDA "
			     "GPU's",
			     name, view->device_type);
		return -1;
	}
	if (self->device != CUDA_ANY_DEVICE && self->device != view->device) {
		fault_format(-EINVAL, "%s is on GPU %d, arrays before it on GPU %d: put all on one",
			     name, view->device, self->device);
		return -1;
	}
	self->device = view->device;
	return 0;
}

static void set_array(struct coppice_step_seq *step, int i, const struct dlpack_view *view)
{
	const void **in[] = {&step->q, &step->k, &step->v};
	uint32_t *strides[] = {&step->q_stride, &step->k_stride, &step->v_stride, &step->o_stride,
			       &step->lse_stride};

	if (i <= V)
		*in[i] = view->base;
	else if (i == O)
		step->o = view->base;
	else
		step->lse = (float *)view->base;
	if (view->shape[0] > 1)
		*strides[i] = (uint32_t)view->strides[0] * view->dtype->bytes;
}

static int check_rows(struct part *self, const char *name, const struct dlpack_view *view)
{
	if (view->shape[0] < 1 || view->shape[0] > UINT32_MAX ||
	    (self->step.n_new && self->step.n_new != view->shape[0])) {
		fault_format(-EINVAL, "%s has %lld rows, arrays before it %u: a row a new token",
			     name, (long long)view->shape[0], self->step.n_new);
		return -1;
	}
	self->step.n_new = (uint32_t)view->shape[0];
	return 0;
}

static int view_of(PyObject *array, const char *name, struct dlpack_view *ret)
{
	if (Py_TYPE(array) != types.tensor)
		return dlpack_read(array, name, ret);
	*ret = ((struct tensor *)array)->view;
	return 0;
}

static int add_array(struct part *self, int i, PyObject *array)
{
	struct wanted w = wanted_of(&self->seq->model->shape, i);
	struct dlpack_view view;

	if (array == Py_None)
		return 0;
	if (view_of(array, w.name, &view) < 0 || check_view(&w, &view) < 0 ||
	    check_device(self, w.name, &view) < 0 || check_rows(self, w.name, &view) < 0)
		return -1;
	set_array(&self->step, i, &view);
	Py_INCREF(array);
	self->arrays[i] = array;
	return 0;
}

static int add_arrays(struct part *self, PyObject *const *arrays)
{
	if (arrays[K] == Py_None || arrays[V] == Py_None) {
		fault_raise(-EINVAL, "k and v are wanted; q and o may be None, to append only");
		return -1;
	}
	if ((arrays[Q] == Py_None) != (arrays[O] == Py_None)) {
		fault_raise(-EINVAL, "q and o are wanted both, or neither, to append only");
		return -1;
	}
	for (int i = 0; i < N_ARRAYS; i++) {
		if (add_array(self, i, arrays[i]) < 0)
			return -1;
	}
	return 0;
}

static PyObject *part_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
	static char *names[] = {"seq", "q", "k", "v", "o", "lse", NULL};
	PyObject *arrays[N_ARRAYS] = {Py_None, Py_None, Py_None, Py_None, Py_None};
	struct part *self;
	PyObject *seq;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!OOO|OO:Part", names, types.sequence, &seq,
					 &arrays[Q], &arrays[K], &arrays[V], &arrays[O],
					 &arrays[LSE]))
		return NULL;
	self = object_new(type);
	if (!self)
		return NULL;
	Py_INCREF(seq);
	self->seq = (struct sequence *)seq;
	self->device = CUDA_ANY_DEVICE;
	if (add_arrays(self, arrays) < 0)
		Py_CLEAR(self);
	return (PyObject *)self;
}

static void part_dealloc(struct part *self)
{
	for (int i = 0; i < N_ARRAYS; i++)
		Py_XDECREF(self->arrays[i]);
	Py_XDECREF(self->seq);
	object_free(self);
}

static PyMemberDef members[] = {
	{"seq", T_OBJECT_EX, offsetof(struct part, seq), READONLY, NULL},
	{"n_new", T_UINT, offsetof(struct part, step.n_new), READONLY, NULL},
	{NULL},
};

static PyType_Slot slots[] = {
	TYPE_DOC,  {Py_tp_new, part_new}, {Py_tp_dealloc, part_dealloc}, {Py_tp_members, members},
	{0, NULL},
};

PyTypeObject *part_type_new(PyObject *module)
{
	return type_new(module, &(PyType_Spec){.name = "coppice.Part",
					       .basicsize = sizeof(struct part),
					       .flags = Py_TPFLAGS_DEFAULT,
					       .slots = slots});
}
