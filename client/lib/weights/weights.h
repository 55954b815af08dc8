/* weights.h - weights as the rest of the library knows them. */
#ifndef COPPICE_CLIENT_WEIGHTS_H
#define COPPICE_CLIENT_WEIGHTS_H

#include "client/coppice_program.h"

/* Their number in the connection. */
uint32_t weights_id(const struct coppice_weights *weights);
struct coppice *weights_connection(const struct coppice_weights *weights);
/* Gives a number up. */
void weights_release(struct coppice *c, uint32_t id);

#endif
