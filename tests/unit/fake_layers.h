/* fake_layers.h - the layers of a batch on the played device: attention is the CPU's. */
#ifndef COPPICE_TESTS_FAKE_LAYERS_H
#define COPPICE_TESTS_FAKE_LAYERS_H

#include "kernels/backend.h"

/* Of which attention is asked from now on. */
void fake_layers_on(struct backend *cpu);

#endif
