/*
 * probe.h - lists made by hand for a backend's kernels: one row of one query over one page, of
 * which the test knows all.
 */
#ifndef COPPICE_TESTS_PROBE_H
#define COPPICE_TESTS_PROBE_H

#include "world.h"

/* K is 0, so that O is the mean of V. fp16, 4 query heads on 2 KV heads of 64, 2 layers, pages of
 * 32. */
struct probe {
	struct world w;
	struct work_query query;
	struct work_tree tree;
	struct work_row row;
	struct work_piece piece;
	struct work_tile tile;
	struct work_item item;
	uint32_t merge_first[2], merge_part;
	struct work_list list;
	_Float16 *q, *o, *k, *v; /* of an arena: [4][64], [4][64], [2][64], [2][64] */
	float *lse; /* [4] */
};

/* Asserts that all goes well. world_done(&p->w) ends it. */
void probe_init(struct probe *p, const struct backend_ops *ops, struct oracle_random *random);
/* One job of this list, to its end. */
void probe_submit(struct probe *p, const struct work_list *list, const struct backend_io *io,
		  uint32_t layer);
/* V of this row of a page becomes value and what follows it, one by one, over both heads; by way of
 * k and v. */
void probe_put(struct probe *p, uint32_t layer, uint32_t page, uint32_t row, float value);

#endif
