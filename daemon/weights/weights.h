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

#include "held.h"

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
/* NULL: there is none. */
const struct ledger *weights_ledger(const struct weights_table *table);

#endif
