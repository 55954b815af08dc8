/*
 * cases.h - the workloads that coppice-bench attention times: those of a file, and some built in
 * that no file lists.
 *
 * An entry of a file has name, nodes and lengths per level, q_heads, kv_heads, head_dim; or
 * new_tokens and total_tokens in place of the first three: causal prefill of a chunk at the end of
 * a context.
 */
#ifndef COPPICE_BENCH_CASES_H
#define COPPICE_BENCH_CASES_H

#include "../unit/oracle.h"
#include "workload.h"

#include <jansson.h>
#include <stdbool.h>

struct case_options {
	uint32_t page_tokens;
	enum work_dtype dtype;
	uint32_t q_heads, kv_heads, head_dim; /* in place of the entries'; 0: theirs */
};

/* Which of the cases are wanted: those with a part in their names, all where it is NULL. Counts
 * them. */
struct case_filter {
	const char *part;
	uint32_t n_found;
};

bool case_wanted(struct case_filter *filter, const char *name);

/* Both fill a spec that workload_spec_done frees, after an error too. 0, -ENOMEM, -EINVAL where the
 * entry lacks something. */
int case_read(const json_t *entry, const struct case_options *o, struct workload_spec *ret);
int case_built_in(uint32_t index, const struct case_options *o, struct workload_spec *ret);
uint32_t case_count(void); /* of those built in */
/* The next tree that random gives: 1/1 to 64/8 heads, head dims 64, 128 and 256, up to 256
 * sequences. 0, -ENOMEM. */
int case_random(uint32_t index, struct oracle_random *random, const struct case_options *o,
		struct workload_spec *ret);

#endif
