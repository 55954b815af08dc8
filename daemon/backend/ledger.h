/*
 * ledger.h - one account of the memory that KV and weights have of what computes, so that both
 * together are never more than there is. Any thread; but for ledger_ask_kv and ledger_await nothing
 * blocks.
 */
#ifndef COPPICED_LEDGER_H
#define COPPICED_LEDGER_H

#include "proto/must_check.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* KV: extents that models have, or are about to. WEIGHTS: with what programs take beside them. */
enum ledger_use { LEDGER_KV, LEDGER_WEIGHTS, LEDGER_N_USES };

struct ledger {
	uint64_t max_bytes; /* of all; set before anybody takes, as the next two */
	uint64_t pool_bytes, kept_bytes; /* weights leave so much of the pool's to KV */
	_Atomic uint64_t all_bytes;
	_Atomic uint64_t of[LEDGER_N_USES]; /* parts of them; to be told, a moment late */
	_Atomic uint64_t announced[LEDGER_N_USES]; /* parts of these that are about to come back */
	/* Wakes who has KV; any thread. NULL: nobody. Set before anybody takes. */
	void (*wake)(void *ctx);
	void *wake_ctx; /* borrowed */
	pthread_mutex_t asking; /* one after the other; all zero is fine */
	_Atomic uint64_t wanted_bytes; /* room that KV nobody uses is to leave; 0: none */
};

/* Of one who wants room, for all that he waits for. */
struct ledger_wait {
	uint64_t until_ns; /* CLOCK_MONOTONIC */
	bool (*is_over)(const void *ctx); /* NULL: not before */
	const void *ctx; /* borrowed */
};

/* Where they may have that much of so much memory: all of the pool, and beside it what is left but
 * for some. The pool's last are kept for KV, whatever weights have: newcomers are to find them. */
void ledger_init(struct ledger *ledger, uint64_t pool_bytes, uint64_t kept_bytes,
		 uint64_t weights_bytes, uint64_t memory_bytes);
/* 0 or -ENOSPC. ledger NULL: 0. */
MUST_CHECK int ledger_take(struct ledger *ledger, enum ledger_use use, uint64_t bytes);
/* Might weights have so much if nobody used any KV, and no others were there? ledger NULL: yes. */
bool ledger_holds_weights(const struct ledger *ledger, uint64_t bytes);
/* What KV may take. ledger NULL: UINT64_MAX. */
uint64_t ledger_left(const struct ledger *ledger);
/* For a while from now on, or until is_over says so, which is asked again and again by who waits.
 * is_over NULL: never before. */
struct ledger_wait ledger_wait_for(bool (*is_over)(const void *ctx), const void *ctx);
/* Asks for room for weights, and waits until it is there, or KV has no more to give, or the wait is
 * over. 0 or -ENOSPC; others may take it before who has asked. ledger NULL: -ENOSPC. */
MUST_CHECK int ledger_ask_kv(struct ledger *ledger, uint64_t bytes, const struct ledger_wait *wait);
/* For who has KV, each round: how much room is asked for, 0: none? */
static inline uint64_t ledger_is_asked(const struct ledger *ledger)
{
	return ledger ? atomic_load_explicit(&ledger->wanted_bytes, memory_order_relaxed) : 0;
}
/* How much KV is to go for that at least, beside what is announced. */
uint64_t ledger_wants_kv(const struct ledger *ledger);
/* KV that nobody uses is less than who asked for so much needs. Who asks for something else by now
 * is not meant. */
void ledger_has_no_kv(struct ledger *ledger, uint64_t asked);
/* So much of what was taken is about to be given: who needs room need not look for other. No more
 * once it is given, or is to stay after all. ledger NULL is fine. */
void ledger_announce(struct ledger *ledger, enum ledger_use use, uint64_t bytes);
void ledger_announce_no_more(struct ledger *ledger, enum ledger_use use, uint64_t bytes);
/* Do weights have room for so much, or will they once what is announced is back? That is waited
 * for. False: they will not, or the wait is over. Not for who has KV, which it may be. */
MUST_CHECK bool ledger_await(const struct ledger *ledger, uint64_t bytes,
			     const struct ledger_wait *wait);
/* Of what was taken. ledger NULL is fine. */
void ledger_give(struct ledger *ledger, enum ledger_use use, uint64_t bytes);

#endif
