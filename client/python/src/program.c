/*
 * program.c - models whose layers the daemon computes: a config.json is read, its tensors are found
 * in the weights, and the daemon checks what comes of it.
 */
#include "program.h"

#include "client/model/coppice_hf.h"
#include "dtype.h"
#include "fault.h"
#include "model.h"
#include "number.h"
#include "weights.h"

#include <errno.h>

struct order {
	const char *path; /* of a config.json; NULL: text has it */
	char *text;
	Py_ssize_t n_bytes;
	struct coppice_hf_options options;
	const struct dtype *dtype; /* NULL: what the config says */
	uint32_t page_tokens;
};

static int read_config(const struct order *order, struct coppice_hf_program **ret, char *why)
{
	if (order->path)
		return coppice_hf_read(order->path, &order->options, ret, why);
	return coppice_hf_parse(order->text, (size_t)order->n_bytes, &order->options, ret, why);
}

/* A program with its tensors. NULL and an exception. */
static struct coppice_hf_program *bound(const struct order *order, struct coppice_weights *weights)
{
	struct coppice_hf_program *program = NULL;
	char why[COPPICE_HF_WHY_BYTES] = "";
	int r;

	Py_BEGIN_ALLOW_THREADS;
	r = read_config(order, &program, why);
	if (r == 0)
		r = coppice_hf_bind(program, coppice_hf_find_weights, weights, why);
	Py_END_ALLOW_THREADS;
	if (r == 0)
		return program;
	coppice_hf_free(program);
	return fault_raise(r, why);
}

static struct model_shape shape_of(const struct coppice_program_info *info)
{
	return (struct model_shape){.n_layers = info->n_layers,
				    .n_q_heads = info->n_q_heads,
				    .n_kv_heads = info->n_kv_heads,
				    .head_dim = info->head_dim,
				    .dtype = (int)info->dtype,
				    .n_vocab = info->n_vocab,
				    .hidden = info->hidden,
				    .max_positions = info->max_positions};
}

static PyObject *give(struct weights *weights, struct coppice_weights *entered,
		      const struct coppice_program_info *info)
{
	struct model_shape shape = shape_of(info);
	struct coppice *c = weights->connection->c;
	uint32_t number;
	int r;

	Py_BEGIN_ALLOW_THREADS;
	r = coppice_program_new(c, entered, info, &number);
	Py_END_ALLOW_THREADS;
	if (r < 0)
		return fault_of(c, r);
	return model_make(weights->connection, number, &shape);
}

static PyObject *open_program(struct weights *weights, const struct order *order)
{
	struct coppice_weights *entered = weights_enter(weights);
	struct coppice_hf_program *program;
	PyObject *model = NULL;

	if (!entered)
		return NULL;
	if (coppice_weights_count(entered) > 0)
		program = bound(order, entered);
	else
		program = fault_raise(-EBUSY, "the weights have not been waited for: wait first");
	if (program) {
		if (order->dtype)
			program->info.dtype = (enum coppice_dtype)order->dtype->code;
		program->info.page_tokens = order->page_tokens;
		model = give(weights, entered, &program->info);
		coppice_hf_free(program);
	}
	weights_leave(weights);
	return model;
}

/* A path as str, or a config's bytes; encoded is to be kept for as long as the order. */
static int read_source(PyObject *config, struct order *order, PyObject **ret_encoded)
{
	if (PyBytes_Check(config)) {
		Py_INCREF(config);
		*ret_encoded = config;
		return PyBytes_AsStringAndSize(config, &order->text, &order->n_bytes);
	}
	if (!PyUnicode_FSConverter(config, ret_encoded))
		return -1;
	order->path = PyBytes_AsString(*ret_encoded);
	return order->path ? 0 : -1;
}

static int read_order(PyObject *config, const char *dtype, struct order *order,
		      PyObject **ret_encoded)
{
	order->options.size = sizeof(order->options);
	if (dtype) {
		order->dtype = dtype_by_name(dtype);
		if (!order->dtype)
			return -1;
	}
	return read_source(config, order, ret_encoded);
}

PyObject *program_new(PyObject *connection, PyObject *args, PyObject *kwargs)
{
	static char *names[] = {"weights", "config", "max_positions", "dtype", "page_tokens", NULL};
	PyObject *weights, *config, *encoded = NULL, *model = NULL;
	const char *dtype = NULL;
	struct order order = {0};

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O|$O&zO&:program", names, types.weights,
					 &weights, &config, NUMBER_32(&order.options.max_positions),
					 &dtype, NUMBER_32(&order.page_tokens)))
		return NULL;
	if ((PyObject *)((struct weights *)weights)->connection != connection)
		return fault_raise(-EINVAL, "the weights are another connection's: open them here");
	if (read_order(config, dtype, &order, &encoded) == 0)
		model = open_program((struct weights *)weights, &order);
	Py_XDECREF(encoded);
	return model;
}
