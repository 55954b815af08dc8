/*
 * tso.h - all that two threads can do to each other over a lane, step by step: the atomics of real
 * code become operations that a test puts in any order.
 *
 * A source compiled with this header included first does its explicit atomics on the words that
 * tso_words names through tso_load and its fellows; other words are as they stand, and what is
 * stored there is nobody's concern. A thread has a store buffer: what it stores is seen by the
 * other when it leaves the buffer, in order, at any later time, and a seq_cst fence waits until it
 * is empty. That is the order of x86, but for read-modify-writes, which empty the buffer there: an
 * addition only goes through it, as weaker processors do.
 *
 * tso_explore runs both programs in every order. A program is run again from its start for each of
 * its steps, with what its earlier ones came to, so it must do the same each time.
 */
#ifndef COPPICE_TEST_TSO_H
#define COPPICE_TEST_TSO_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TSO_WORDS 8

struct tso {
	const volatile void *words[TSO_WORDS]; /* shared, all 0 at first; NULL: no more */
	void (*programs[2])(void);
	uint64_t n_states; /* found */
};

/* Every order of the programs' steps. False: in one of them both are asleep, or one that the other
 * will never wake. */
bool tso_explore(struct tso *tso);

uint64_t tso_load(const volatile void *word, size_t bytes);
void tso_store(volatile void *word, uint64_t value);
uint64_t tso_add(volatile void *word, uint64_t value);
uint64_t tso_exchange(volatile void *word, uint64_t value);
void tso_fence(void);

/* The kernel's, for whatever functions of its a test replaces. Flags are 0 at first. */
enum { TSO_FLAGS = 4 };
void tso_flag_set(unsigned flag);
/* Until it is set; takes it back. */
void tso_flag_await(unsigned flag);
void tso_flag_clear(unsigned flag);
/* A futex on the low half of a word. */
void tso_futex_wait(const volatile void *word, uint32_t seen);
void tso_futex_wake(const volatile void *word);

#ifdef TSO_REPLACES_ATOMICS
#define TSO_TYPE(p) __typeof__((void)0, *(p))
#undef atomic_load_explicit
#undef atomic_store_explicit
#undef atomic_fetch_add_explicit
#undef atomic_fetch_sub_explicit
#undef atomic_exchange_explicit
#undef atomic_thread_fence
#define atomic_load_explicit(p, order) ((TSO_TYPE(p))tso_load(p, sizeof(*(p))))
#define atomic_store_explicit(p, value, order) tso_store(p, value)
#define atomic_fetch_add_explicit(p, value, order) tso_add(p, value)
#define atomic_fetch_sub_explicit(p, value, order) tso_add(p, -(uint64_t)(value))
#define atomic_exchange_explicit(p, value, order) ((TSO_TYPE(p))tso_exchange(p, value))
#define atomic_thread_fence(order) tso_fence()
#endif

#endif
