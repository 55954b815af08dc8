/*
 * tier_documents.h - documents of a client whose daemon has tiers below its pool, and what
 * attention over them gives.
 *
 * Q, K and V are functions of document, layer and position. What comes back for the last token of
 * each extension is compared with plain attention in this process: it is right if, and only if,
 * each token's own K and V are seen, once, and nothing else. Attention does not know an order; a
 * prompt that ends within a document knows what comes before its end.
 */
#ifndef TIER_DOCUMENTS_H
#define TIER_DOCUMENTS_H

#include "control_harness.h"

#define DOCUMENT_TOKENS 384u
#define DOCUMENT_PAGES (DOCUMENT_TOKENS / 32u) /* pages have 32 tokens */

struct reader {
	struct coppice *c; /* owned */
	struct coppice_lane *lane;
	void *rows; /* of an arena: Q, K, V, O */
	uint32_t model;
};

void reader_open(struct reader *r, const struct harness *h);
void reader_close(struct reader *r);
/* Opens the first n tokens of a document, waits for what comes from lower tiers, computes the rest
 * and asserts that it is right. Returns how many tokens were there; -1: the daemon is gone. */
int document_use(struct reader *r, uint32_t doc, uint32_t n);

#endif
