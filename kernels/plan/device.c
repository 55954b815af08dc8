#include "device.h"

#include <errno.h>
#include <stdlib.h>

enum memory { DEPTH_FIRST };

struct ranked {
	uint32_t row_begin, node;
};

/* Parents have lower indices and begin no later. */
static int compare_ranked(const void *left, const void *right)
{
	const struct ranked *a = left, *b = right;

	if (a->row_begin != b->row_begin)
		return a->row_begin < b->row_begin ? -1 : 1;
	return a->node < b->node ? -1 : a->node > b->node;
}

int device_plan(struct build *build)
{
	const struct work_node *nodes = build->tree->nodes;
	const struct order_node *at = build->order->nodes;
	uint32_t n_nodes = build->tree->n_nodes, n = 0, row_end = 0;
	struct ranked *ranked = build_room(build, DEPTH_FIRST, n_nodes, sizeof(*ranked));

	if (n_nodes && !ranked)
		return -ENOMEM;
	for (uint32_t i = 0; i < n_nodes; i++) {
		if (at[i].seen_end > nodes[i].pos)
			ranked[n++] = (struct ranked){at[i].row_begin, i};
	}
	if (n)
		qsort(ranked, n, sizeof(*ranked), compare_ranked);
	for (uint32_t i = 0; i < n; i++) {
		uint32_t node = ranked[i].node;

		if (i == 0 || at[node].row_begin >= row_end) {
			if (i)
				build_item_end(build);
			build_item(build);
			row_end = at[node].row_end;
		}
		build_tokens(build, node, nodes[node].pos, at[node].seen_end,
			     (struct order_rows){at[node].row_begin, at[node].row_end});
	}
	if (n)
		build_item_end(build);
	return 0;
}
