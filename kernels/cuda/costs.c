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
		.launch_ns = 6990,
		.unit_ns = 3604,
		.row_ns_per_kb = 34.43,
		.read_ns_per_kb = 11.92,
		.copy_ns = 74.95,
		.slot_ns_per_kb = 10.3,
		.stage_ns_per_kb = 3.384,
		.part_ns_per_kb = 14.6,
		.merge_ns = 2333,
		.memory_ns_per_kb = 0.2229,
		.flush_ns_per_kb = 0.1876,
		.cache_kb = 7.976e+04,
		.batch_ns = 1.293e+04,
	},
};
/* clang-format on */

const struct costs *costs_find(int major, int minor)
{
	(void)minor;
	return &tables[major >= 9];
}
