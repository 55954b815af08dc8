/*
 * table.h - the table of weights, to who loads them.
 */
#ifndef COPPICED_WEIGHTS_TABLE_H
#define COPPICED_WEIGHTS_TABLE_H

#include "weights.h"

const struct weights_config *weights_config(const struct weights *weights);
/* Out of the table, and nobody's. Not under the lock. */
void weights_free(struct weights *weights);

/* New ones, LOADING, with a reference of the caller's and one of the thread's that is to load them.
 * 0; -EAGAIN: as many are being loaded as may be; -ENOMEM. */
MUST_CHECK int weights_enter(struct weights_table *table, uid_t domain, struct weights **ret);
/* The same, of which no thread could be started: gone. */
void weights_leave(struct weights *weights);
/* What the files are is known: takes them over. Are they weights' that are there, or about to be?
 * Then these stand for them. */
MUST_CHECK bool weights_are_known(struct weights *weights, struct loader_file *files, uint32_t n,
				  bool fresh);
/* Counts so much heap. 0; -ENOSPC, -EDQUOT and a sentence in why. */
MUST_CHECK int weights_take_names(struct weights *weights, uint64_t bytes);
/* Room for what is to be loaded, of which what nobody refers to makes way. 0 with content.memory;
 * -ENOSPC, -EDQUOT, -ENOMEM, -ECANCELED, -ETIMEDOUT and a sentence in why. */
MUST_CHECK int weights_take_room(struct weights *weights, uint64_t bytes);
/* Says why: nobody waits for them, -ECANCELED; or another did for their slot, -ETIMEDOUT. */
MUST_CHECK int weights_say_cancelled(struct weights *weights);
/* All is there: READY, or the same bytes as others that are. */
void weights_make_ready(struct weights *weights);
/* A thread that has a reference, and that the table awaits, ends; not under the lock. */
void weights_thread_over(struct weights *weights);
/* The loader can be ended by whoever cancels; -1: no more. */
void weights_lend_loader(struct weights *weights, int fd);
/* The thread that loads them ends; pid: of a loader that hangs, 0: it is gone. */
void weights_load_over(struct weights *weights, pid_t hanging);

#endif
