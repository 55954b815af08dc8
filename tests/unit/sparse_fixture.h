/*
 * sparse_fixture.h - one sequence in the pages of a backend under test, the last tokens of which
 * ask: what sparse_test.c tests on.
 */
#ifndef COPPICE_TESTS_SPARSE_FIXTURE_H
#define COPPICE_TESTS_SPARSE_FIXTURE_H

#include "oracle.h"

#include "kernels/backend.h"
#include "kernels/plan/plan.h"

#include <stdbool.h>

#define PAGE 32u
#define N 700u /* tokens of fixture_init's sequence, of which CHUNK ask */
#define CHUNK 300u
#define PAGES_MOST 80u
#define BLOCK 64u /* of what is chosen */

extern const struct backend_ops *fixture_ops; /* the CPU's, until others are set */

struct fixture {
	struct work_shape shape;
	uint32_t n, chunk; /* tokens */
	struct backend *backend; /* owned */
	struct work_slice slices[PAGES_MOST];
	struct work_node node;
	struct work_query query;
	struct work_tree tree;
	float *q, *k, *v; /* owned, as the dtype has them, of all tokens */
	char *arena; /* owned: Q, K, V of all tokens, then room for O, twice */
	uint64_t base, arena_bytes; /* as the backend knows it */
};

bool fixture_on_cpu(void);
/* Of a token's Q and O; of its K or V. */
uint32_t fixture_q_values(const struct fixture *f);
uint32_t fixture_k_values(const struct fixture *f);
uint64_t fixture_row_bytes(const struct fixture *f, uint32_t values);
/* In the arena: of K, behind which V is; of either room for O. */
uint64_t fixture_k_offset(const struct fixture *f);
uint64_t fixture_o_offset(const struct fixture *f, uint32_t which);

/* 6/3 heads, layer 1 of 2. fixture_make: of f's shape, n and chunk. */
void fixture_init(struct fixture *f, enum work_dtype dtype, struct oracle_random *random);
void fixture_make(struct fixture *f, struct oracle_random *random);
void fixture_done(struct fixture *f);

/* To the end. */
void fixture_run(struct fixture *f, const struct backend_job *jobs, uint32_t n_jobs);
struct backend_job fixture_job(const struct fixture *f, const struct work_list *list,
			       const struct backend_io *io);
struct plan_config fixture_plan(const struct fixture *f);

/* Q of those that ask, O to one of both places, where everything that nobody has written is NaN. */
struct backend_io fixture_output(const struct fixture *f, uint32_t which);

/* What the blocks are of a row and KV head. */
typedef const uint64_t *(*kept_function)(const struct fixture *f, const void *of, uint32_t row,
					 uint32_t head);

/* Of O against float64, norm of what is wrong over the norm of what is right; kept NULL: all. */
double fixture_error(const struct fixture *f, uint32_t which, kept_function kept, const void *of);

#endif
