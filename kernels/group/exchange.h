/*
 * exchange.h - what devices tell each other of a row: (max, sum, output) of each head, however long
 * the context.
 *
 * Every rank puts its partials of all rows; who wants a row gets the merge of all ranks' (merge.h).
 * Ranks call run the same number of times with the same rows; it blocks, and no wait is longer than
 * the time limit.
 *
 *      direct   everybody to everybody who wants it     one round; the only way where each row is
 *                                                       wanted by one rank
 *      tree     pairs, pairs of pairs, ..., and back    few rounds of everything
 *      ring     a share of the entries from neighbour   many rounds of little: large parts
 *               to neighbour, twice around
 *
 * The order of merging depends on rows, ranks and way alone, so that bits repeat, and all who want
 * a row get the same. (Tree Attention, arXiv:2408.04093; recursive halving and rings as in R.
 * Thakur et al., "Optimization of Collective Communication Operations in MPICH", 2005.)
 */
#ifndef COPPICE_GROUP_EXCHANGE_H
#define COPPICE_GROUP_EXCHANGE_H

#include "proto/must_check.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EXCHANGE_RANKS_MAX 64u
#define EXCHANGE_ERROR_BYTES 160u

struct exchange_rows {
	const float *parts; /* [n_rows][n_heads][2 + head_dim]: max, sum, output */
	/* as parts, elsewhere; the rows that this rank does not want are left undefined */
	float *folded;
	const uint32_t *owner; /* [n_rows], the rank that wants the row; NULL: all want all */
	uint32_t n_rows, n_heads, head_dim;
};

static inline size_t exchange_row_floats(const struct exchange_rows *rows)
{
	return rows->n_heads * (2 + (size_t)rows->head_dim);
}

enum exchange_way { EXCHANGE_DIRECT, EXCHANGE_TREE, EXCHANGE_RING };

/* The fastest by a model of rounds, messages and bytes. bytes: of all rows. */
enum exchange_way exchange_choose(uint32_t n_ranks, uint64_t bytes, bool all);

/*
 * Bytes of partials that all ranks together send, whatever the length of the context; n ranks, B
 * bytes of all rows:
 *      rows of one owner each   (n - 1) B          (every rank sends what is not its own: it sums
 *                                                  to this however rows are dealt)
 *      all, direct              n (n - 1) B
 *      all, tree or ring        2 (n - 1) B
 * What a transport needs to frame them is not counted.
 */
uint64_t exchange_bytes(enum exchange_way way, bool all, uint32_t n_ranks, uint64_t bytes);

struct exchange_ops;

/* One rank's end; each implementation's own begins with it. */
struct exchange {
	const struct exchange_ops *ops;
	uint32_t rank, n_ranks;
	/* of partials, that this rank gave to others or, in memory, read of others; only grows */
	uint64_t sent_bytes;
	char error[EXCHANGE_ERROR_BYTES]; /* of a run that failed: a sentence */
};

struct exchange_ops {
	MUST_CHECK int (*run)(struct exchange *x, const struct exchange_rows *rows);
	void (*abort)(struct exchange *x);
	void (*free)(struct exchange *x);
};

/* Others may read parts after this rank's run has ended: they stay as they are until its next run,
 * or everybody's this one, has ended. 0; -ETIMEDOUT: a rank did not answer in time; -ECONNRESET: a
 * rank is gone; -EPROTO: a rank speaks of other rows; -EIO: failed before or given up by another;
 * -ENOMEM. After an error all ends of the exchange are done with. */
MUST_CHECK static inline int exchange_run(struct exchange *x, const struct exchange_rows *rows)
{
	return x->ops->run(x, rows);
}

/* This rank will not come again: the others' runs fail at once. */
static inline void exchange_abort(struct exchange *x)
{
	x->ops->abort(x);
}

/* Every rank, each a process, tells all others so many bytes of its own: ret [n_ranks][bytes]. As
 * exchange_run. */
MUST_CHECK int exchange_tell(struct exchange *x, const void *mine, uint32_t bytes, void *ret);

static inline void exchange_free(struct exchange *x) /* NULL is fine */
{
	if (x)
		x->ops->free(x);
}

#endif
