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
		.launch_ns = 6934,
		.unit_ns = 2996,
		.row_ns_per_kb = 7.053,
		.read_ns_per_kb = 11.22,
		.copy_ns = 96.37,
		.slot_ns_per_kb = 10.24,
		.stage_ns_per_kb = 3.873,
		.part_ns_per_kb = 42.34,
		.merge_ns = 2374,
		.memory_ns_per_kb = 0.2018,
		.flush_ns_per_kb = 0.2071,
		.cache_kb = 1.156e+05,
		.batch_ns = 1.974e+04,
	},
};
/* clang-format on */

const struct costs *costs_find(int major, int minor)
{
	(void)minor;
	return &tables[major >= 9];
}
