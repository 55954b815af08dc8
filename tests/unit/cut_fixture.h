/* cut_fixture.h - trees of KV as the GPU's planner cuts them, for tests of what it chooses. */
#ifndef COPPICE_CUT_FIXTURE_H
#define COPPICE_CUT_FIXTURE_H

#include "tests/bench/fit_model.h"

#define BLOCKS 132u
#define HEAD_DIM 128u
#define PAGE_TOKENS 32u
#define ONE_EACH 1.05 /* the share by which every block gets a work tile */

struct cut {
	struct fit_experiment experiment;
	struct schedule schedule;
};

struct workload_spec spec_of(uint32_t n_q_heads, uint32_t n_kv_heads);
/* Scheduled as the choice says, for BLOCKS blocks. Takes over spec. */
void cut_schedule(struct cut *c, struct workload_spec *spec, struct schedule_choice choice);
/* A tree of two levels. */
void cut_make(struct cut *c, struct workload_spec *spec, const uint32_t nodes[2],
	      const uint32_t tokens[2], struct schedule_choice choice);
/* A root and leaves for one KV head, in work tiles of so many tokens at most. */
void cut_init(struct cut *c, uint32_t kv_block, const uint32_t nodes[2], const uint32_t tokens[2],
	      uint32_t work_tile_tokens);
void cut_done(struct cut *c);

#endif
