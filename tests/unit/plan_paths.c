/*
 * plan_paths.c - see plan_paths.h. Tokens stand one by one, so that a plan which was made of a
 * whole path, and one that took in its last tokens, are alike where they mean the same.
 */
#include "plan_paths.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void put_tokens(struct work_slice *to, const struct work_slice *slices, uint32_t n_slices)
{
	for (uint32_t i = 0; i < n_slices; i++) {
		for (uint32_t j = 0; j < slices[i].count; j++)
			*to++ = (struct work_slice){slices[i].page, (uint16_t)(slices[i].first + j),
						    1};
	}
}

void plan_paths_fill(struct plan_paths *p, const struct backend_job *job)
{
	const struct work_tree *tree = job->tree;

	assert_true(tree->n_queries <= PLAN_PATHS_QUERIES);
	p->id = job->plan_id;
	p->n_queries = tree->n_queries;
	p->n_taken = 0;
	for (uint32_t q = 0; q < tree->n_queries; q++) {
		uint32_t node = tree->queries[q].node;

		p->n_tokens[q] = tree->nodes[node].pos + tree->nodes[node].n_tokens;
		assert_true(p->n_tokens[q] <= PLAN_PATHS_TOKENS);
		for (; node != WORK_NONE; node = tree->nodes[node].parent)
			put_tokens(&p->tokens[q][tree->nodes[node].pos],
				   &tree->slices[tree->nodes[node].slice],
				   tree->nodes[node].n_slices);
	}
}

void plan_paths_take(struct plan_paths *p, const struct backend_job *job)
{
	for (uint32_t i = 0; i < job->list->n_rows; i++) {
		const struct work_row *row = &job->list->rows[i];
		const struct backend_io *io = &job->io[row->query];

		if (io->n_slots == 0)
			continue;
		assert_int_equal(io->n_slots, 1);
		assert_int_equal(io->slots[0].count, 1);
		assert_int_equal(row->pos, p->n_tokens[row->query]);
		p->tokens[row->query][p->n_tokens[row->query]++] = io->slots[0];
	}
	p->n_taken++;
}

/* All of the path, the new tokens with it. Returns how many tokens it has. */
static uint32_t path_of(const struct store_seq *seq, struct work_slice *ret)
{
	uint32_t n_slices, n = store_seq_n_tokens(seq);
	const struct store_slice *slices;

	for (struct store_node *node = store_seq_node(seq); store_node_parent(node);
	     node = store_node_parent(node)) {
		slices = store_node_slices(node, &n_slices);
		put_tokens(&ret[store_node_pos(node)], (const struct work_slice *)slices, n_slices);
	}
	slices = store_seq_slots(seq, &n_slices);
	put_tokens(&ret[n], (const struct work_slice *)slices, n_slices);
	return n + store_seq_n_live(seq);
}

void plan_paths_check(const struct plan_paths *p, uint32_t query, const struct store_seq *seq)
{
	static struct work_slice path[PLAN_PATHS_TOKENS];
	uint32_t n = path_of(seq, path);

	assert_true(query < p->n_queries);
	assert_int_equal(p->n_tokens[query], n);
	assert_memory_equal(p->tokens[query], path, n * sizeof(*path));
}
