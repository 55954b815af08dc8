/*
 * layers.h - the operations of a family's layers, and the names of the tensors that they read.
 */
#ifndef MODEL_LAYERS_H
#define MODEL_LAYERS_H

#include "model_config.h"

struct layers {
	struct coppice_op ops[2 * COPPICE_OPS_MAX];
	struct coppice_layer_kind kinds[2];
	uint32_t n_ops, n_kinds, n_slots;
	uint8_t kind_of[MODEL_LAYERS_MAX];
	/* What a name has behind "model.layers.N."; with its .weight or .bias */
	const char *slots[COPPICE_SLOTS_MAX];
};

/* Every kind uses every slot. */
void layers_make(const struct model_config *config, struct layers *ret);

#endif
