/*
 * weights.h - the tensors of models, held once for all sessions of a user.
 *
 *      weights_open ---> LOADING, by a loader and a thread of their own (load.c)
 *                          |  the same files, or the same bytes, as weights that are there:
 *                          |  these stand for them from then on (weights_real)
 *                          +--> READY        +--> FAILED, with a sentence
 *
 * Whoever has a reference keeps them: a session's handle, a program. Without any they stay as long
 * as nobody needs the room. All functions: any thread.
 */
#ifndef COPPICED_WEIGHTS_H
#define COPPICED_WEIGHTS_H

#include "daemon/backend/ledger.h"
#include "kernels/program/backend_program.h"
#include "wire.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/queue.h>
#include <sys/types.h>

#define WEIGHTS_DIGEST_BYTES 16u
#define WEIGHTS_WHY_BYTES 240u

enum weights_state { WEIGHTS_LOADING, WEIGHTS_READY, WEIGHTS_FAILED };
enum weights_overdue { WEIGHTS_IN_TIME, WEIGHTS_TOO_SLOW, WEIGHTS_TOO_LONG };
enum weights_lending { WEIGHTS_HOME, WEIGHTS_MOVING, WEIGHTS_LENT }; /* lend.h */

struct weights_digest {
	uint8_t bytes[WEIGHTS_DIGEST_BYTES]; /* xxh3-128, canonical */
};

/* What they are once they are READY; never changes then. Tensors by name; those of types that no
 * program takes are left out. */
struct weights_content {
	struct program_tensor *tensors; /* owned, names too, [n_tensors] */
	struct weights_digest *digests; /* owned, [n_tensors]: of name, type, shape and bytes */
	uint32_t n_tensors;
	struct weights_digest digest; /* of all of them */
	struct backend_weights *memory; /* owned */
	uint64_t bytes; /* of memory, as the backend takes it */
	uint64_t names_bytes; /* of heap, for all tensors of the files */
};

struct weights {
	TAILQ_ENTRY(weights) link; /* of the table; but for those that others stand for */
	struct weights_table *home; /* borrowed */
	uid_t domain;
	uint64_t number; /* among all ever, for who lists them */
	_Atomic enum weights_state state; /* release: all else holds by then */
	_Atomic uint64_t bytes_done, bytes_all; /* of the files; 0: not known yet */
	_Atomic bool cancelled; /* nobody wants them any more, or another their place */
	_Atomic enum weights_overdue overdue; /* why another has their place */
	int error; /* FAILED: -errno */
	char why[WEIGHTS_WHY_BYTES];
	struct weights_content content;

	/* the table's lock is of what follows */
	uint32_t n_refs;
	uint64_t used; /* when the last reference went, counted */
	struct weights *same; /* reference: these stand for it; NULL: itself */
	struct loader_file *files; /* owned: what they were loaded from */
	uint32_t n_files;
	uint64_t scratch_bytes; /* that programs of theirs take beside them */
	uint64_t begin_ns; /* of their load */
	bool loads; /* a loader reads them, or its end is awaited */
	bool fresh; /* a file had changed just before: it may again without its times telling */
	int loader_fd; /* owned: to cancel what waits for it; -1 */
	enum weights_lending lending;
	struct backend_lent lent; /* once they are LENT */
	int lend_error; /* why they could not be, for who asks next; 0: nothing to tell */
};
TAILQ_HEAD(weights_list, weights);

/* Of all, and of a user. Where the first is more, its last part is for users who have little. */
struct weights_max {
	uint64_t bytes, domain_bytes;
};

struct weights_config {
	const struct backend_ops *ops;
	struct backend *backend; /* borrowed */
	struct ledger *ledger; /* borrowed: what they have together with KV; NULL: no account */
	const char *loader; /* path of coppiced */
	struct weights_max memory, names;
	/* loaders at a time, those that hang among them; root and the daemon's user have as many as
	 * any beside all */
	uint32_t max_loads, domain_max_loads;
	uint32_t stall_ms; /* a loader of which nothing comes for so long is ended */
	/* Overdue is a load of less a second, beside a stall in all, or that takes so long: it ends
	 * where another finds no place. 0: any rate, any time. */
	uint64_t least_rate;
	uint32_t max_load_s;
};

struct weights_table;

/* 0 or -ENOMEM. */
MUST_CHECK int weights_table_new(const struct weights_config *config, struct weights_table **ret);
/* Waits for the end of what is being loaded and nobody wants any more: nothing that loads looks at
 * KV from then on. What waits for room ends at once, whoever wants it. NULL is fine. Blocks. */
void weights_table_end_loads(struct weights_table *table);
/* The same, and all goes. Nobody has a reference any more. NULL is fine. Blocks. */
void weights_table_free(struct weights_table *table);

/* A reference, and *ret_client_fd, over which the client sends descriptors (owned). 0; -EAGAIN:
 * as many are being loaded as may be, of all or of this user; -ENOMEM, -EMFILE... */
MUST_CHECK int weights_open(struct weights_table *table, uid_t domain, struct weights **ret,
			    int *ret_client_fd);
struct weights *weights_ref(struct weights *weights);
void weights_unref(struct weights *weights); /* NULL is fine */
/* Itself, or those that stand for it; for as long as the reference. Until they are READY others may
 * come to stand for these. */
struct weights *weights_real(struct weights *weights);
/* The same of what is READY, whose content stays for as long as the reference; else NULL. READY
 * alone says nothing of the content: it goes where others stand for these. */
struct weights *weights_ready(struct weights *weights);

/* A program of theirs takes so much memory, which counts as theirs. 0; -EDQUOT, -ENOSPC and a
 * sentence; -EAGAIN: what makes room is being freed, ask again, until then: *until_ns, 0 at first,
 * is set. Does not wait for it. */
MUST_CHECK int weights_take_scratch(struct weights *weights, uint64_t bytes, uint64_t *until_ns,
				    char why[WEIGHTS_WHY_BYTES]);
void weights_give_scratch(struct weights *weights, uint64_t bytes);

static inline enum weights_state weights_state(const struct weights *weights)
{
	return atomic_load_explicit(&weights->state, memory_order_acquire);
}

/* What there is, for who lists it: in order of number, those above after, at most n. */
struct weights_row {
	uint64_t number;
	uid_t domain;
	enum weights_state state;
	uint32_t n_refs, n_tensors;
	uint64_t bytes, bytes_done, bytes_all;
};
uint32_t weights_rows(struct weights_table *table, uint64_t after, struct weights_row *ret,
		      uint32_t n);

/* Of all, that is held, and that may be. */
uint64_t weights_bytes(struct weights_table *table);
uint64_t weights_names_bytes(struct weights_table *table);
const struct weights_config *weights_table_config(const struct weights_table *table);
/* The last of what all may have, of which a user gets no more than he leaves. */
uint64_t weights_reserved_bytes(const struct weights_max *max);
/* NULL: there is none. */
const struct ledger *weights_ledger(const struct weights_table *table);

#endif
