/*
 * state.h - what the scheduler has of sessions: models, arenas, lanes, sequences. The scheduler's
 * thread alone.
 *
 *      sched_session --- models[]  --> sched_model (shared by sessions, counted)
 *                    --- arenas[]      (memory lent by the loop)
 *                    --- lanes       --> sched_lane --- the step it is parked with
 *                    --- seqs        --> sched_seq  --- store_seq
 *
 * A lane serves its entries in order and never holds more than one step, its *parked* step: nothing
 * behind it is looked at until the step's batch is complete. A parked step whose inputs a stream
 * still writes is *awaited* (input_wait.h) and takes part in nothing else until they are there.
 * Sequence handles are (generation << 32 | index) into one table of the daemon, so that a stale or
 * foreign handle is told from a live one.
 */
#ifndef COPPICED_STATE_H
#define COPPICED_STATE_H

#include "daemon/backend/kv_split.h"
#include "daemon/sched/sched.h"

#include "kernels/plan/select.h"
#include "proto/abi.h"

#include <sys/queue.h>

/* A model of the daemon: sessions that open the same name and fingerprint share it. */
struct sched_model {
	LIST_ENTRY(sched_model) link;
	char name[128];
	uint64_t fingerprint[2];
	struct work_shape shape;
	struct split_heads heads; /* of the model that the shape has */
	uint64_t page_bytes;
	struct store_model *store; /* owned: one reference */
	uint32_t n_users; /* sessions that have it */
	struct backend_cost cost;
	char split_why[200]; /* why its KV is split over devices as it is */
};

struct sched_arena {
	uint64_t base; /* the backend's address; 0: no arena */
	uint64_t bytes;
	bool device; /* memory of the backend's own device; else lent by the loop */
};

/* How an entry ended. status: 0 or -errno; where: index of the offending sequence or token. */
struct outcome {
	int32_t status;
	enum abi_reason reason;
	uint32_t where;
	uint64_t value;
	uint64_t cause; /* status not 0: struct abi_completion */
	float attended, mass; /* of a step: struct abi_completion */
};

/* The entry that failed first of those that a sequence depends on. */
struct seq_failure {
	uint64_t ticket; /* of the sequence's lane; 0: none has failed */
	int32_t status;
	enum abi_reason reason;
};

/* Mean keys of a path that is longer than the pool, for sparse prefill: streamed.h. */
struct sched_summary {
	struct backend_summary *of; /* owned; NULL: none */
	uint32_t *n_known; /* owned, [n_layers]: tokens that it has taken in */
	uint64_t bytes;
};

/* What each step looks at comes first. */
struct sched_seq {
	uint64_t handle;
	struct sched_session *session;
	struct sched_lane *lane;
	struct sched_model *model;
	struct store_seq *store; /* owned */
	uint32_t *parents; /* owned; of the live draft tree, NULL: none or a chain */
	uint64_t step_mark; /* the last step that named it: finds doubles */
	uint32_t next_layer; /* of the live extension */
	bool draft; /* the live extension awaits accept */
	bool computed; /* the draft has all layers */
	bool voided; /* a step or publication failed: entries end as that did until a trim */
	/* why it is void, or has no extension: until a trim, or an extend that succeeds */
	struct seq_failure failure;

	LIST_ENTRY(sched_seq) link; /* of its session */
	TAILQ_ENTRY(sched_seq)
	wait_link; /* of the scheduler's waits, first come first, while wait != NULL */
	struct abi_sparse sparse; /* tau 0: it has not asked for it */
	struct sched_summary summary;
	struct sched_request *wait; /* lent by the poster; a SEQ_WAIT not answered yet */
	uint64_t wait_deadline_ns;
};
LIST_HEAD(sched_seq_list, sched_seq);
TAILQ_HEAD(sched_wait_queue, sched_seq);

/* One sequence of a parked step, checked and with addresses instead of offsets. */
struct step_part {
	struct sched_seq *seq;
	uint32_t n_new;
	uint32_t arena_in, arena_out;
	struct backend_io io;
};

/* A step that passed all checks and waits for its batch. */
struct step {
	struct sched_model *model;
	uint32_t layer;
	uint32_t n_parts;
	struct step_part *parts; /* owned, grows, [n_parts] */
	uint32_t parts_room;
	uint32_t n_draft_rows; /* of draft trees */
	bool on_stream; /* a stream writes its inputs, and says so in `ready` */
	uint64_t tell; /* address of a word that the device writes the ticket into; 0: none */
	uint32_t tell_arena; /* where it is; 0: none */
	bool told; /* its entry is complete already */
	bool prefill; /* runs in slices between decode batches */
	bool in_passes; /* and its paths are not all on the device: streamed.h */
	struct select_shares shares; /* of slices whose blocks were chosen */
	uint32_t next_part, next_row; /* prefill: where the next slice begins */
	uint64_t arrival_ns;
};

/* How a lane keeps company; batch_window.c. All zero: it has decoded nothing yet. */
struct lockstep {
	uint32_t n_met; /* how many met in its last decode job; 0: none was */
	uint32_t n_layers;
	uint32_t next_layer;
	bool chosen; /* its step has been decided on */
	uint64_t held_until_ns; /* its step waits for company until then at most; 0: it does not */
	uint64_t done_ns; /* when its last decode step completed; 0: never */
	double lag_ns
		/* from completion to the next step: [0] within a token, [1] to the next token's
		 * first layer */
		[2];
	double layer_ns; /* from completion to completion within a token */
	const struct sched_model *model;
	const struct sched_seq *seq; /* the first of its last step: what it may share with others */
};

/* What polling reads of a lane: a word of the client's, and the ticket we have taken from it
 * last. */
struct lane_poll {
	const _Atomic uint64_t *submitted;
	uint64_t accepted;
	struct sched_lane *lane;
};

struct sched_lane {
	TAILQ_ENTRY(sched_lane) link; /* of the scheduler: all lanes, in order of service */
	LIST_ENTRY(sched_lane) session_link;
	struct sched_session *session;
	uint32_t number; /* in its session */
	uint64_t serial; /* among all lanes ever */
	uint32_t poll; /* index in the scheduler's polls */
	struct abi_lane *shared; /* lent by the loop; hostile */
	int notify_fd; /* lent; -1: none */
	uint64_t accepted; /* tickets taken from the ring; ours, never read back */
	uint32_t word; /* the entry's pair of words; ABI_LANE_WORDS: none */
	bool parked; /* step holds the entry `accepted`, not complete yet */
	bool awaited; /* parked, and a stream has not written its inputs yet */
	TAILQ_ENTRY(sched_lane) await_link; /* of the scheduler, while awaited */
	uint64_t await_since_ns, await_look_ns; /* since when; when to look again */
	/* how the parked step ends once its inputs are there; status 0: it runs */
	struct outcome refusal;
	bool broken; /* its words made no sense: not served any more */
	uint32_t n_seqs;
	uint64_t active_ns; /* when it last had an entry */
	struct step step;
	struct lockstep lockstep;
	uint8_t *body; /* owned, ABI_BODY_MAX_BYTES: the one copy of an entry's body */
};
LIST_HEAD(sched_lane_list, sched_lane);
TAILQ_HEAD(sched_lane_queue, sched_lane);

struct sched_session {
	LIST_ENTRY(sched_session) link;
	uint64_t id;
	uint64_t domain;
	int bell_fd; /* lent by the loop */
	/* owned array of config.max_models, each a user of the model; number = index + 1 */
	struct sched_model **models;
	struct sched_arena *arenas; /* owned array of config.max_arenas + 1, by number */
	struct sched_lane_list lanes; /* owned */
	struct sched_seq_list seqs; /* owned */
	/* nothing is left but device arenas, which the client's process may have open */
	bool ended;
	uint32_t n_seqs, n_lanes, n_arenas;
	uint64_t arena_bytes;
	uint64_t prompt_bytes; /* of its sequences' prompts, at most: some are computed by now */
	uint64_t meeting; /* the last that one of its lanes was in */
	uint64_t entries, decode_steps, tokens_matched, tokens_computed;
};
LIST_HEAD(sched_session_list, sched_session);
LIST_HEAD(sched_model_list, sched_model);

/* Handles: one table for all sessions. */
struct handle_table {
	struct handle_slot {
		struct sched_seq *seq; /* NULL: free */
		uint32_t generation;
		uint32_t next_free;
	} * slots; /* owned */
	uint32_t n_slots, free;
};

int handle_add(struct handle_table *table,
	       struct sched_seq *seq); /* fills seq->handle; 0 or -ENOMEM */
void handle_remove(struct handle_table *table, uint64_t handle);
/* The live sequence with this handle, or NULL; and of this session. */
struct sched_seq *handle_seq(const struct handle_table *table, uint64_t handle);
struct sched_seq *handle_find(const struct handle_table *table, const struct sched_session *session,
			      uint64_t handle);
void handle_table_done(struct handle_table *table);

#endif
