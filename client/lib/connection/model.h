/* model.h - what the library remembers of the models a connection has opened. */
#ifndef COPPICE_CLIENT_MODEL_H
#define COPPICE_CLIENT_MODEL_H

#include "client/coppice.h"
#include "proto/must_check.h"

/* Bytes of one token's row where rows follow each other. */
struct model {
	uint32_t id;
	uint32_t q_row_bytes; /* o too */
	uint32_t kv_row_bytes;
	uint32_t lse_row_bytes;
	uint32_t n_vocab, hidden; /* of a program; 0: it is none */
	uint32_t page_tokens; /* of the store's pages */
	uint64_t page_bytes; /* all layers */
};

/* Known from now on. 0 or -ENOMEM; explains by the public function's name. */
MUST_CHECK int model_remember(struct coppice *c, const struct model *model, const char *what);
/* 0, or -EINVAL with a sentence: not opened on this connection. */
MUST_CHECK int model_find(struct coppice *c, uint32_t id, struct model *ret);
void model_drop_all(struct coppice *c);

#endif
