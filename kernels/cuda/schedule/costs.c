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
		.fitted = "NVIDIA H200, 2026-11-21",
		.launch_ns = 4818,
		.work_tile_ns = 3149,
		.row_ns_per_kb = 56.43,
		.read_ns_per_kb = 12.36,
		.copy_ns = 72.34,
		.kv_tile_ns_per_kb = 10.35,
		.wide_tile_ns_per_kb = 3.431,
		.part_ns_per_kb = 13.83,
		.merge_ns = 2747,
		.memory_ns_per_kb = 0.2204,
		.flush_ns_per_kb = 0.1898,
		.cache_kb = 7.6e+04,
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
