/* cut_fixture.c - a workload as the bench makes it, scheduled for an H200; see cut_fixture.h. */
#include "cut_fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

struct workload_spec spec_of(uint32_t n_q_heads, uint32_t n_kv_heads)
{
	return (struct workload_spec){.shape = {.n_layers = 1,
						.n_q_heads = n_q_heads,
						.n_kv_heads = n_kv_heads,
						.head_dim = HEAD_DIM,
						.page_tokens = PAGE_TOKENS,
						.dtype = WORK_FP16,
						.scale = 1 / sqrtf(HEAD_DIM)}};
}

void cut_schedule(struct cut *c, struct workload_spec *spec, struct schedule_choice choice)
{
	uint64_t page_sources =
		(uint64_t)spec->shape.n_kv_heads * PAGE_TOKENS * 4 * HEAD_DIM / KV_SOURCE_BYTES;

	*c = (struct cut){0};
	assert_int_equal(fit_experiment_of(&c->experiment, spec), 0);

	struct schedule_want want = {.shape = &c->experiment.spec.shape,
				     .list = &c->experiment.list,
				     .pages = {64, page_sources, 64 * page_sources},
				     .costs = costs_find(CODE_WGMMA),
				     .n_blocks = BLOCKS,
				     .code = CODE_WGMMA,
				     .choice = choice};

	assert_int_equal(schedule_make(&c->schedule, &want), 0);
}

void cut_make(struct cut *c, struct workload_spec *spec, const uint32_t nodes[2],
	      const uint32_t tokens[2], struct schedule_choice choice)
{
	snprintf(spec->name, sizeof(spec->name), "cut");
	assert_int_equal(workload_spec_levels(spec, nodes, tokens, 2), 0);
	cut_schedule(c, spec, choice);
}

void cut_init(struct cut *c, uint32_t kv_block, const uint32_t nodes[2], const uint32_t tokens[2],
	      uint32_t work_tile_tokens)
{
	struct workload_spec spec = spec_of(kv_block, 1);

	cut_make(c, &spec, nodes, tokens, (struct schedule_choice){work_tile_tokens, ONE_EACH});
}

void cut_done(struct cut *c)
{
	schedule_done(&c->schedule);
	fit_experiment_done(&c->experiment);
}
