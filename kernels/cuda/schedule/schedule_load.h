/* schedule_load.h - what a strip's warps have to do, as runs are added one by one. */
#ifndef COPPICE_CUDA_SCHEDULE_LOAD_H
#define COPPICE_CUDA_SCHEDULE_LOAD_H

#include "schedule_impl.h"

/* A KV tile or wide tile that is not full: row blocks that see something of it. */
struct open_tile {
	uint32_t kv_blocks, blocks;
};

/* KV blocks that each row block folds, one way of dealing tokens to blocks. */
struct deal {
	uint32_t narrow[DEVICE_WARPS], wide[DEVICE_WARPS]; /* in KV tiles, in wide tiles */
	struct open_tile common, wide_tile;
	uint32_t touched; /* blocks that have got something since the busiest was looked for */
	/* of the busiest, KV tiles being folded whole: what is added makes no block's less */
	double most_ns;
};

/* A run, as rows [begin, end) of a strip see it. */
struct seen_run {
	const struct run *run;
	uint32_t begin, end;
};

/* What warps have to do with KV blocks of a strip: reading goes on beside arithmetic, and who has
 * most to fold is waited for. */
struct load {
	double read_ns;
	uint32_t all; /* KV blocks that all rows see */
	uint32_t n_wide; /* KV blocks that go into wide tiles, of neighbours */
	struct deal near; /* of the others: neighbours in a row block */
	struct deal turns; /* tokens dealt in turn */
	uint32_t n_rows, n_blocks, block_tokens;
	uint32_t first, last; /* row blocks of neighbours that see something */
	bool wide; /* the last that was added goes into wide tiles */
	bool all_wide; /* and so does what all rows see */
};

/* Nothing. */
void load_init(const struct make *m, const struct strip *strip, struct load *ret);
/* Of rows that not all are: in row blocks of neighbours, and dealt in turn. */
void load_add_some(const struct make *m, struct load *load, const struct seen_run *seen);
/* KV blocks that all rows see, and that take so long to read. */
static inline void load_add_all(struct load *load, uint32_t n_kv_blocks, double read_ns)
{
	load->wide = load->all_wide;
	load->first = 0;
	load->last = load->n_blocks - 1;
	load->all += n_kv_blocks;
	load->n_wide += load->all_wide ? n_kv_blocks : 0;
	load->read_ns += read_ns;
}

static inline void load_add(const struct make *m, struct load *load, const struct seen_run *seen)
{
	if (seen->end - seen->begin == load->n_rows)
		load_add_all(load, seen->run->n_kv_blocks, seen->run->read_ns);
	else
		load_add_some(m, load, seen);
}

/* What all of it takes together. */
double load_ns(const struct make *m, struct load *load);
/* The same of a load that has nothing but KV blocks which all rows see: of a strip as another
 * load's. */
double load_ns_all(const struct make *m, const struct load *like, uint32_t n_kv_blocks,
		   double read_ns);
/* Adds a run, unless that makes a part of it take much longer at once: it brings rows, for which
 * warps are missing where most was folded by all. Then it is for the next part, and this load is of
 * no more use. ns: what load takes, before and after. */
bool load_takes(const struct make *m, struct load *load, const struct seen_run *seen,
		double limit_ns, double *ns);
/* KV blocks of which a part has a multiple, if it ends behind the run added last, with n_kv_blocks,
 * a power of two:
 * half a wide tile takes as long as a whole one, and so does half a turn of the warps, of which
 * many parts have but one or two. */
static inline uint32_t load_granule(const struct load *load, uint32_t n_kv_blocks)
{
	const uint32_t few_turns = 2; /* of all warps, a KV tile each: a part has whole ones */
	uint32_t turn = DEVICE_KV_TILE_BLOCKS * (DEVICE_WARPS / load->n_blocks);

	if (load->wide)
		return WIDE_TILE_BLOCKS;
	return n_kv_blocks < few_turns * turn ? turn : DEVICE_KV_TILE_BLOCKS;
}

#endif
