/*
 * costs.c - one table a code (code.h), in its order; see costs.h. A table says how it was come by.
 * One that was measured on a card holds for that card's code, and for no other's. All are of head
 * dim 128; other dims go by the same constants a KB, 96 and 192 unmeasured.
 */
#include "costs.h"

/* clang-format off */
static const struct costs tables[] = {
	{
		.architecture = "sm_80",
		.fitted = "by calculation: A100, 108 multiprocessors, 1.94 TB/s",
		.launch_ns = 8000,
		.work_tile_ns = 900,
		.row_ns_per_kb = 57,
		.read_ns_per_kb = 42,
		.copy_ns = 250,
		.kv_tile_ns_per_kb = 8,
		.wide_tile_ns_per_kb = 8,
		.turned_times = 1,
		.part_ns_per_kb = 60,
		.merge_ns = 5000,
		.memory_ns_per_kb = 0.528,
		.flush_ns_per_kb = 0.4,
		.cache_kb = 40 << 10,
		.batch_ns = 30000,
		.op_ns = 3000,
		.hidden_product_ns_per_mflop = 2,
		.product_ns_per_mflop = 4,
	},
	{
		.architecture = "sm_90",
		.fitted = "NVIDIA H200, 2026-11-29",
		.launch_ns = 5323,
		.work_tile_ns = 2789.6,
		.row_ns_per_kb = 60.357,
		.read_ns_per_kb = 11.558,
		.copy_ns = 84.139,
		.kv_tile_ns_per_kb = 2.7862,
		.kv_tile_ns = 29.05,
		.wide_tile_ns_per_kb = 2.536,
		.wide_tile_ns = 2.5548,
		.turned_times = 1.6498,
		.part_ns_per_kb = 10.465,
		.merge_ns = 2640,
		.memory_ns_per_kb = 0.21376,
		.flush_ns_per_kb = 0.20137,
		.cache_kb = 75772,
		.batch_ns = 1.503e+04,
		.op_ns = 8500,
		.hidden_product_ns_per_mflop = 0.9,
		.product_ns_per_mflop = 1.58,
	},
};
/* clang-format on */

const struct costs *costs_find(enum code code)
{
	return &tables[code == CODE_WGMMA];
}
