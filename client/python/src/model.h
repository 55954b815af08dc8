/* model.h - open models: of layers that the caller computes, and of programs. */
#ifndef COPPICE_PYTHON_MODEL_H
#define COPPICE_PYTHON_MODEL_H

#include "connection.h"

/* Shapes, whichever kind it is; n_vocab 0: the caller computes its layers. */
struct model_shape {
	unsigned n_layers, n_q_heads, n_kv_heads, head_dim;
	int dtype; /* enum coppice_dtype */
	unsigned n_vocab, hidden, max_positions;
};

struct model {
	PyObject_HEAD;
	struct connection *connection; /* a reference */
	unsigned number;
	struct model_shape shape; /* of what its steps have: of a rank, its own heads */
	unsigned page_tokens;
	unsigned long long page_bytes;
};

/* Of a number that was opened on the connection, which is entered. NULL and an exception. */
PyObject *model_make(struct connection *connection, uint32_t number,
		     const struct model_shape *shape);

/* A connection's method: model(name, *, n_layers, ...). */
PyObject *model_new(PyObject *connection, PyObject *args, PyObject *kwargs);
/* The type. NULL and an exception. */
PyTypeObject *model_type_new(PyObject *module);

#endif
