/*
 * cascade.c - an item for each node, with all rows below it. Every row's partials stand in the
 * order of its path, as nodes come parents first.
 */
#include "cascade.h"

int cascade_plan(struct build *build)
{
	for (uint32_t i = 0; i < build->tree->n_nodes; i++) {
		const struct order_node *at = &build->order->nodes[i];

		build_item(build);
		build_tokens(build, i, build->tree->nodes[i].pos, at->seen_end,
			     (struct order_rows){at->row_begin, at->row_end});
		build_item_end(build);
	}
	return 0;
}
