/*
 * ring.h - a lane's pair of rings: single producer, single consumer each way, over struct abi_lane.
 *
 * Entry with ticket t lies in slot (t - 1) % ABI_LANE_SLOTS, and so does its completion: accepting
 * an entry reserves the place of its completion, no head index travels back. The client submits
 * ticket t only when done >= t - ABI_LANE_SLOTS and keeps the body until done >= t. The daemon
 * trusts neither: it looks only at `submitted`, and a client that overruns its ring overwrites its
 * own entries.
 *
 *      client                                   daemon
 *      write entry, body
 *      submitted = t   release ---- acquire ->  submitted >= t: copy entry, copy body, check, work
 *                                               write completion
 *      done >= t       acquire <--- release --  done = t
 *
 * Sleeping, daemon: asleep = 1; fence; look again; wait for a doorbell. Client: submitted = t;
 * fence; asleep == 1? ring. Sleeping, client: sleepers += 1; fence; look again; futex wait on done.
 * Daemon: done = t; fence; sleepers? wake. In both pairs the fences are seq_cst, so one of the two
 * sides sees the other's word. (A wake for soon = t may come right before a wait, and does not keep
 * it from sleeping: then that for done wakes it.)
 *
 * The doorbell is an eventfd of the session's own: what is rung before the daemon waits is still
 * there when it does, and nobody else can silence it. (A futex could not do that: its word would
 * have to be one that all clients write.) The daemon never reads it, it only waits for edges.
 */
#ifndef COPPICE_RING_H
#define COPPICE_RING_H

#include "abi.h"

#include <stdbool.h>
#include <string.h>
#include <unistd.h>

/* The race detector does not model fences and warns of them; nothing it must know depends on them
 * here: data passes by the release and acquire pairs. */
#ifdef __SANITIZE_THREAD__
#pragma GCC diagnostic ignored "-Wtsan"
#endif

static inline uint32_t ring_slot(uint64_t ticket)
{
	return (uint32_t)(ticket - 1) & (ABI_LANE_SLOTS - 1);
}

/* Client: publishes ticket, whose entry is in its slot. Pairs with ring_submitted. */
static inline void ring_publish(struct abi_lane *lane, uint64_t ticket)
{
	atomic_store_explicit(&lane->submitted, ticket, memory_order_release);
}

/* Client, after ring_publish: must the daemon be woken? */
static inline bool ring_daemon_asleep(const struct abi_board *board)
{
	atomic_thread_fence(memory_order_seq_cst);
	return atomic_load_explicit(&board->asleep, memory_order_relaxed) != 0;
}

/* Client, when ring_daemon_asleep. A full counter has rung already. */
static inline void ring_doorbell(int doorbell_fd)
{
	uint64_t one = 1;
	ssize_t r = write(doorbell_fd, &one, sizeof(one));

	(void)r;
}

/* Client: the decode with that ticket is to end, if it has not; then no more than a word in a slot
 * is written, which is not looked at. Any thread. */
static inline void ring_cancel(struct abi_lane *lane, uint64_t ticket)
{
	__atomic_store_n(&lane->entries[ring_slot(ticket)].cancelled, ticket, __ATOMIC_RELAXED);
}

/* Client: highest ticket completed. Pairs with ring_complete. */
static inline uint64_t ring_done(const struct abi_lane *lane)
{
	return atomic_load_explicit(&lane->done, memory_order_acquire);
}

/* Client: is it done in a moment? Not said of all, and not of those that a dead daemon lets go. */
static inline bool ring_is_soon(const struct abi_lane *lane, uint64_t ticket)
{
	uint64_t soon = atomic_load_explicit(&lane->soon, memory_order_relaxed);

	return soon >= ticket && soon < ABI_RELEASED;
}

/* Client: the completion of a ticket that is done and not yet overrun. */
static inline struct abi_completion ring_completion(const struct abi_lane *lane, uint64_t ticket)
{
	return lane->completions[ring_slot(ticket)];
}

/* Daemon: goes to sleep; then its last look. */
static inline void ring_fall_asleep(struct abi_board *board)
{
	atomic_store_explicit(&board->asleep, 1, memory_order_relaxed);
	atomic_thread_fence(memory_order_seq_cst);
}

static inline void ring_wake_up(struct abi_board *board)
{
	atomic_store_explicit(&board->asleep, 0, memory_order_relaxed);
}

/* Daemon: highest ticket published. Pairs with ring_publish. */
static inline uint64_t ring_submitted(const struct abi_lane *lane)
{
	return atomic_load_explicit(&lane->submitted, memory_order_acquire);
}

/* Daemon: the one copy of an entry; what the client does to the slot afterwards is nobody's
 * concern. */
static inline void ring_copy_entry(const struct abi_lane *lane, uint64_t ticket,
				   struct abi_entry *ret)
{
	memcpy(ret, (const void *)&lane->entries[ring_slot(ticket)], sizeof(*ret));
}

/* Daemon: of a decode that it has taken, and not completed. Nothing but its end depends on it. */
static inline bool ring_is_cancelled(const struct abi_lane *lane, uint64_t ticket)
{
	return __atomic_load_n(&lane->entries[ring_slot(ticket)].cancelled, __ATOMIC_RELAXED) ==
	       ticket;
}

/* What a completion says beside its ticket, in the words that struct abi_completion has behind
 * it. */
struct ring_completion_words {
	uint64_t status, value, detail;
};

/* The word of status, reason and where. */
static inline uint64_t ring_status_word(int32_t status, uint16_t reason, uint16_t where)
{
	static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the status comes first");
	static_assert(offsetof(struct abi_completion, status) == 8 &&
			      offsetof(struct abi_completion, reason) == 12 &&
			      offsetof(struct abi_completion, where) == 14,
		      "one word");
	return (uint32_t)status | (uint64_t)reason << 32 | (uint64_t)where << 48;
}

/* Daemon: completes the next ticket in order. Pairs with ring_done. The completion's line and that
 * of `done` are with the client's core, and come from there together: so it is written by two
 * stores from registers, right before `done`. By more, and sooner, a round trip takes a tenth
 * longer; a struct that was just filled word by word would be waited for when it is copied. */
static inline void ring_complete(struct abi_lane *lane, uint64_t ticket,
				 struct ring_completion_words words)
{
	typedef uint64_t half __attribute__((vector_size(16), aligned(8), may_alias));
	half *to = (half *)&lane->completions[ring_slot(ticket)];

	to[0] = (half){ticket, words.status};
	to[1] = (half){words.value, words.detail};
	atomic_store_explicit(&lane->soon, ticket, memory_order_relaxed);
	atomic_store_explicit(&lane->done, ticket, memory_order_release);
}

/* Daemon: the entry with this ticket, the next to complete, is done in a moment: its step is on the
 * device, or the last of a decode. Who sleeps on done may be woken for that. Nothing but time
 * depends on it. */
static inline void ring_tell_soon(struct abi_lane *lane, uint64_t ticket)
{
	atomic_store_explicit(&lane->soon, ticket, memory_order_relaxed);
}

/* Daemon, after ring_complete or ring_tell_soon: does a client thread sleep on done? */
static inline bool ring_client_asleep(struct abi_lane *lane)
{
	atomic_thread_fence(memory_order_seq_cst);
	return atomic_load_explicit(&lane->sleepers, memory_order_relaxed) != 0;
}

/* Daemon, after ring_client_asleep, whose fence is this one's too: is a byte on the completion
 * descriptor wanted? Takes the wish back before the byte is sent, so that a wish made meanwhile is
 * not lost. */
static inline bool ring_take_notify(struct abi_lane *lane)
{
	return atomic_load_explicit(&lane->notify, memory_order_relaxed) != 0 &&
	       atomic_exchange_explicit(&lane->notify, 0, memory_order_relaxed) != 0;
}

/* Daemon: has a stream written the inputs of a step with ABI_STEP_STREAM? Pairs with the stream's
 * write of `ready`, before which the device has made all its earlier writes visible. */
static inline bool ring_is_ready(const struct abi_lane *lane, uint64_t ticket)
{
	return atomic_load_explicit(&lane->ready, memory_order_acquire) >= ticket;
}

/* Daemon: the same of a step with ABI_STEP_WORDS; the word is taken back, for the next replay. */
static inline bool ring_take_ready_word(struct abi_lane *lane, uint32_t word)
{
	return atomic_load_explicit(&lane->ready_words[word], memory_order_relaxed) != 0 &&
	       atomic_exchange_explicit(&lane->ready_words[word], 0, memory_order_acquire) != 0;
}

/* Daemon, after ring_complete: lets the stream of a step with ABI_STEP_WORDS go on, which takes the
 * word back. */
static inline void ring_set_done_word(struct abi_lane *lane, uint32_t word)
{
	atomic_store_explicit(&lane->done_words[word], 1, memory_order_release);
}

/* The client that outlives the daemon: every stream that waits in the lane goes on. May be done by
 * several threads, and again, for streams that began to wait later. */
static inline void ring_release_streams(struct abi_lane *lane)
{
	atomic_fetch_or_explicit(&lane->done, ABI_RELEASED, memory_order_release);
	atomic_fetch_or_explicit(&lane->soon, ABI_RELEASED, memory_order_release);
	for (uint32_t i = 0; i < ABI_LANE_WORDS; i++)
		atomic_store_explicit(&lane->done_words[i], 1, memory_order_release);
}

/* The futex that client threads sleep on: low half of done. */
static inline _Atomic uint32_t *ring_done_futex(struct abi_lane *lane)
{
	static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the low half comes first");
	return (_Atomic uint32_t *)&lane->done;
}

#endif
