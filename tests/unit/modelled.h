/*
 * modelled.h - a scheduler whose backend computes nothing and takes the time that its jobs are
 * modelled to take, by a clock that stands still otherwise. For tests of who waits how long.
 *
 * A row takes MODELLED_PAIR_NS a query head for each token that it sees, and MODELLED_TOKEN_NS are
 * what a token takes to be read, once for all rows of a job: a CPU of two cores, and a model of 32
 * heads.
 */
#ifndef COPPICE_TESTS_MODELLED_H
#define COPPICE_TESTS_MODELLED_H

#include "sched_harness.h"

#define MODELLED_PAIR_NS 76.0
#define MODELLED_TOKEN_NS 170.0
#define MODELLED_FIXED_NS 2000.0
/* What an estimate for sparse prefill takes, in times that its path is read: as seen on a CPU. */
#define MODELLED_ESTIMATE_READS 12.0
#define MODELLED_BLOCKS 16384u /* of one, at most */
#define MODELLED_CLIENTS 80u

/* A session with a sequence on so many tokens, and the step that it is at. */
struct modelled_client {
	struct client c;
	uint64_t seq;
	uint32_t user;
	double had_ns; /* of the backend's time */
	double rows_ns; /* of this arithmetic: what it has whomever it shares with */
	uint64_t n_steps; /* that ended */
	uint64_t asked_ns; /* when its step was submitted */
	uint64_t again_ns; /* when it asks again; 0: nobody knows yet */
	double longest_ns; /* that one took to end */
};

struct modelled {
	struct harness h;
	struct modelled_client clients[MODELLED_CLIENTS];
	uint32_t n_clients;
	double longest_ns; /* of a batch */
	uint64_t most_slices; /* of pages, of a batch */
	uint32_t most_rows; /* of a query */
	uint64_t n_batches, n_estimates;
	uint64_t n_appends; /* batches that only append */
	uint64_t n_appends_planned; /* KV tiles of their plans */
	/* Rows that clients ask for once they have what they asked for, those of user 1 and others;
	 * 0: they do not. */
	uint32_t first_again, others_again;
	uint32_t n_q_heads; /* of the models of who joins; one KV head */
	/* What the backend takes, before it starts: MODELLED_PAIR_NS, MODELLED_TOKEN_NS,
	 * MODELLED_FIXED_NS. */
	double pair_ns, token_ns, fixed_ns;
	double slowness; /* so much longer than modelled batches take; 1: as long */
	double submit_ns; /* beside that: what comes before the backend is at work, here */
	bool holds; /* it is at work on this thread, too, while it is asked */
	double unseen; /* what the backend has to be feared to take, before it starts */
	bool wants_rows; /* as a device does, before it starts */
	uint64_t moment_ns; /* after which they do */
	uint64_t gap_ns; /* and up to so much more at random, of all users but the first */
	uint64_t random; /* what follows */
	bool instantly; /* they do before anything else goes on */
};

/* What a token of 8 KiB takes to be read, and a row of it for each query head, as daemon/README.md
 * has it: the first is what is said above. Of cores so many as the key threads takes at least and
 * at most, too. */
enum modelled_backend {
	TWO_CORES,
	TWO_CORES_WITHOUT_VECTORS,
	ONE_CORE,
	MOST_CORES,
	H200,
	FOUR_H200,
	MODELLED_BACKENDS
};
/* Before it starts. */
void modelled_on(struct modelled *m, enum modelled_backend backend);

/* What daemon/README.md says that a batch takes at most, of a path of so many tokens and nodes: the
 * budget; or, where it takes long to be read or planned, as much arithmetic, or a row of it. */
double modelled_most_ns(const struct modelled *m, uint32_t n_tokens, uint32_t n_nodes);

/* The config may be changed until modelled_start, and batch_budget_ms at any time. */
struct modelled *modelled_new(void);
void modelled_start(struct modelled *m);
void modelled_free(struct modelled *m);

/* A session of the user whose sequence has so many tokens, the same for all of a user's. They are
 * appended, and nothing of them is computed. */
struct modelled_client *modelled_join(struct modelled *m, uint32_t user, uint32_t n_tokens);
/* The sequence's next step is of so many new tokens. What it submits is not waited for. */
void modelled_ask(struct modelled *m, struct modelled_client *client, uint32_t n_new);
/* Of several sequences of the client's. */
void modelled_ask_all(struct modelled *m, struct modelled_client *client, const uint64_t *seqs,
		      uint32_t n_seqs, uint32_t n_new);
/* The same, where they have been extended. */
void modelled_ask_step(struct modelled *m, struct modelled_client *client, const uint64_t *seqs,
		       uint32_t n_seqs, uint32_t n_new);
/* It has what it asked for. */
bool modelled_has(const struct modelled_client *client);
/* Goes on until the client has what it asked for. */
void modelled_await(struct modelled *m, struct modelled_client *client);
/* A sequence more of the client's, which begins as no other does: its first token is computed. */
uint64_t modelled_open(struct modelled *m, struct modelled_client *client, uint32_t first);
/* Goes a round, and on to what happens next: the batch ends, or a client asks again. */
void modelled_round(struct modelled *m);
uint64_t modelled_now_ns(void);
/* Nobody has had anything yet, and no batch was long. */
void modelled_forget(struct modelled *m);

#endif
