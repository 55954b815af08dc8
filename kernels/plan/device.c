/*
 * device.c - the tree as it is, for a backend that cuts items by itself: one item, nodes depth
 * first, so that rows that share something lie side by side.
 */
#include "device.h"

int device_plan(struct build *build)
{
	const struct work_node *nodes = build->tree->nodes;
	const struct order_node *at = build->order->nodes;
	const struct build_ranked *ranked;
	uint32_t n, row_end = 0;
	int r = build_depth_first(build, &ranked, &n);

	if (r)
		return r;
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
