/*
 * store_inside.h - what tests ask of a store's sequences that nobody else needs to know.
 */
#ifndef COPPICE_TESTS_STORE_INSIDE_H
#define COPPICE_TESTS_STORE_INSIDE_H

#include "kvstore/tree/core.h"

/* Is what its match says is pending on its way from a lower tier? Else another computes it. */
static inline bool store_seq_is_promoted(const struct store_seq *q)
{
	return q->want != NULL;
}

#endif
