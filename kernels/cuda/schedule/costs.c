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
		.launch_ns = 5113,
		.work_tile_ns = 3167,
		.row_ns_per_kb = 48.81,
		.read_ns_per_kb = 11.2,
		.copy_ns = 85.36,
		.kv_tile_ns_per_kb = 3.221,
		.kv_tile_ns = 25.11,
		.wide_tile_ns_per_kb = 1.94,
		.wide_tile_ns = 4.754,
		.turned_times = 1.642,
		.part_ns_per_kb = 19.26,
		.merge_ns = 1839,
		.memory_ns_per_kb = 0.2171,
		.flush_ns_per_kb = 0.2135,
		.cache_kb = 7.504e+04,
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
