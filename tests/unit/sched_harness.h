/*
 * sched_harness.h - a real scheduler with the CPU backend in this process, and sessions that speak
 * to it through real rings, as the loop and a client would. For tests.
 */
#ifndef COPPICE_SCHED_HARNESS_H
#define COPPICE_SCHED_HARNESS_H

#include "daemon/sched/core/status.h"
#include "daemon/sched/sched.h"
#include "kvstore/store.h"
#include "proto/ring.h"

#include <stdbool.h>

struct harness {
	struct config config;
	struct backend *backend; /* owned */
	struct abi_board *board; /* owned */
	struct sched *sched; /* owned */
	uint64_t next_session;
	/* the CPU backend's, or another from before harness_start on */
	const struct backend_ops *ops;
	bool stepped; /* no thread: waiting goes the rounds; set before harness_start */
};

/* A session with one lane, one arena and one model. */
struct client {
	struct harness *h;
	struct sched_session *session;
	struct abi_lane *lane; /* owned */
	uint8_t *arena; /* owned */
	uint64_t arena_bytes;
	int doorbell; /* owned */
	uint32_t model;
	struct work_shape shape;
	uint64_t ticket; /* last submitted */
};

/* config holds what differs from small defaults; change h->config between harness_init and
 * harness_start. */
void harness_init(struct harness *h);
void harness_start(struct harness *h);
void harness_stop(struct harness *h);

/* Posts, waits for the answer, returns its code. The caller's request. */
int harness_call(struct harness *h, struct sched_request *request);
/* The next answer that comes, whosever; waits. */
struct sched_request *harness_next_reply(struct harness *h);
struct sched_status harness_status(struct harness *h);
/* So many idle pages at most, in one turn. */
void harness_evict(struct harness *h, uint64_t n_pages);

void client_start(struct client *c, struct harness *h, uint64_t domain,
		  const struct work_shape *shape, uint64_t arena_bytes);
void client_end(struct client *c);
/* The second half of client_end, for a client whose scheduler is gone. */
void client_unmap(struct client *c);

/* Publishes an entry with a body; returns its ticket. */
uint64_t client_submit(struct client *c, struct abi_entry entry, const void *body,
		       uint32_t body_bytes);
/* Waits for it as the library does and returns its completion. Fails the test after 20 s. */
struct abi_completion client_wait(struct client *c, uint64_t ticket);
struct abi_completion client_do(struct client *c, struct abi_entry entry, const void *body,
				uint32_t body_bytes);

/* Token ids of a call of seq_open: owned by who asks, who frees what is left of them. */
uint32_t *client_tokens(const uint32_t *tokens, uint32_t n);
/* code; fills *ret_seq and *ret_match when 0. */
int client_open(struct client *c, const uint32_t *tokens, uint32_t n, uint64_t *ret_seq,
		struct store_match *ret_match);
/* Waits for what is pending of a match; returns what is there then. */
struct store_match client_await(struct client *c, uint64_t seq, struct store_match match);
int client_close(struct client *c, uint64_t seq);
struct abi_completion client_extend(struct client *c, uint64_t seq, const uint32_t *ids,
				    uint32_t n);
/* A step record for n rows at the arena's start: q, k, v, o one after the other, rows dense. */
struct abi_step_seq client_step_seq(const struct client *c, uint64_t seq, uint32_t n);
struct abi_completion client_step(struct client *c, const struct abi_step_seq *rec, uint32_t layer);
/* extend and all layers of n tokens. */
void client_compute(struct client *c, uint64_t seq, const uint32_t *ids, uint32_t n);

#endif
