/* costs.c - see costs.h. */
#include "costs.h"

/* clang-format off */
static const struct costs tables[] = {
	{
		.architecture = "sm_80",
		.fitted = "by calculation: A100, 108 multiprocessors, 1.94 TB/s",
		.launch_ns = 8000,
		.unit_ns = 900,
		.row_ns_per_kb = 57,
		.read_ns_per_kb = 42,
		.copy_ns = 250,
		.slot_ns_per_kb = 8,
		.stage_ns_per_kb = 8,
		.part_ns_per_kb = 60,
		.merge_ns = 5000,
		.memory_ns_per_kb = 0.528,
		.flush_ns_per_kb = 0.4,
		.cache_kb = 40 << 10,
		.batch_ns = 30000,
	},
	{
		.architecture = "sm_90",
		.fitted = "NVIDIA H200, 2026-11-21",
		.launch_ns = 7099,
		.unit_ns = 3564,
		.row_ns_per_kb = 30.89,
		.read_ns_per_kb = 11.62,
		.copy_ns = 78.08,
		.slot_ns_per_kb = 10.31,
		.stage_ns_per_kb = 3.684,
		.part_ns_per_kb = 10.92,
		.merge_ns = 2624,
		.memory_ns_per_kb = 0.2196,
		.flush_ns_per_kb = 0.1888,
		.cache_kb = 7.957e+04,
		.batch_ns = 1.293e+04,
	},
};
/* clang-format on */

const struct costs *costs_find(int major, int minor)
{
	(void)minor;
	return &tables[major >= 9];
}
