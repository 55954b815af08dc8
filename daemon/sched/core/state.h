/*
 * state.h - what the scheduler has of sessions: models, arenas, lanes, sequences. The scheduler's
 * thread alone.
 *
 *      sched_session --- user        --> sched_user  (as models)
 *                    --- models[]    --> sched_model (shared by sessions, counted)
 *                    --- arenas[]      (memory lent by the loop)
 *                    --- lanes       --> sched_lane (lane.h) --- its step
 *                    --- seqs        --> sched_seq  --- store_seq
 */
#ifndef COPPICED_STATE_H
#define COPPICED_STATE_H

#include "daemon/backend/kv_split.h"
#include "proto/must_check.h"
#include "daemon/config/config.h"
#include "longer.h"
#include "request.h"

#include "kernels/backend.h"
#include "kernels/plan/select.h"
#include "kvstore/tier.h"
#include "proto/abi.h"

#include <sys/queue.h>

struct held_program; /* daemon/program */

/* A model of the daemon: sessions that open the same name and fingerprint share it. */
struct sched_model {
	LIST_ENTRY(sched_model) link;
	char name[128];
	uint64_t fingerprint[2];
	struct work_shape shape;
	struct split_heads heads; /* of the model that the shape has */
	uint64_t page_bytes;
	struct store_model *store; /* owned: one reference */
	struct held_program *program; /* owned; NULL: sessions compute it */
	uint32_t n_users; /* sessions that have it */
	uint32_t n_listed; /* of these, that who lists models is told of; while he is */
	uint64_t listed_in; /* the list that it is in so far: sched's n_model_lists */
	struct backend_cost cost;
	/* by it, in a layer: arithmetic of a row and a token that it sees, and reading a token */
	double pair_ns, token_ns;
	double name_ns; /* a token's part of naming its page in a plan */
	struct longer longer; /* its passes */
	uint64_t fit, fit_paths; /* run/fit.c: those of its lanes that are away */
	char split_why[200]; /* why its KV is split over devices as it is */
};

#define SCHED_ARENA_PIECE (UINT64_C(8) << 20) /* of the host's: attached and detached by these */

struct sched_arena {
	uint64_t base; /* the backend's address; 0: no arena */
	uint64_t bytes; /* that are attached */
	bool device; /* memory of the backend's own device; else lent by the loop */
	uint32_t number; /* as the client names it: arena_number.h; 0: he cannot, or not any more */
};

/* How an entry ended. status: 0 or -errno; where: index of the offending sequence or token. */
struct outcome {
	int32_t status;
	enum abi_reason reason;
	uint32_t where;
	uint64_t value; /* of a decode the tokens that it has published, whatever the status */
	uint64_t cause; /* status not 0: struct abi_completion */
	float attended, mass; /* of a step: struct abi_completion */
};

/* The entry that failed first of those that a sequence depends on. */
struct seq_failure {
	uint64_t ticket; /* of the sequence's lane; 0: none has failed */
	int32_t status;
	enum abi_reason reason;
};

/* Mean keys of a path that is longer than the pool, for sparse prefill: seq/summary.h. */
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
	uint64_t last_step; /* number of the last step that named it: finds doubles */
	uint32_t next_layer; /* of the live extension */
	bool draft; /* the live extension awaits accept */
	bool computed; /* the draft has all layers */
	bool voided; /* a step or publication failed: entries end as that did until a trim */
	/* why it is void, or has no extension: until a trim, or an extend that succeeds */
	struct seq_failure failure;

	LIST_ENTRY(sched_seq) link; /* of its session */
	/* of the scheduler's waits, first come first, while wait != NULL */
	TAILQ_ENTRY(sched_seq) wait_link;
	TAILQ_ENTRY(sched_seq) due_link; /* the same, those whose time is looked at next first */
	struct abi_sparse sparse; /* tau 0: it has not asked for it */
	struct sched_summary summary;
	struct sched_request *wait; /* lent by the poster; a wait not answered yet */
	uint64_t wait_deadline_ns;
};
LIST_HEAD(sched_seq_list, sched_seq);
TAILQ_HEAD(sched_wait_queue, sched_seq);
LIST_HEAD(sched_lane_list, sched_lane);

/* Whose sessions share KV, and have the backend's time together: turns.h. */
struct sched_user {
	LIST_ENTRY(sched_user) link;
	uint64_t domain;
	uint32_t n_sessions; /* that are not freed yet */
	struct request_queue requests; /* of his that wait, and then: */
	TAILQ_ENTRY(sched_user) requests_link;
	/* Of the last round of lanes in which there was something of his, step/lanes.c. */
	uint64_t lanes_round;
	uint32_t n_entries;
	uint64_t lanes_ns;
	/* The first sequence of a program since his last tokens; 0: none was. seq/pace.h. */
	uint64_t opened_ns;
	double had_ns; /* of the backend's time */
	uint64_t waited_ns; /* until then what was waited for any lane of his is in that */
	double sessions_had_ns; /* each of his sessions at least */
	/* token/company.c: what others have waited for him in vain; number of the last pass to
	 * which he came */
	double vain_ns;
	uint64_t came;
	/* run/fit.c: as if all that wait had had their turns, and the session that ends first */
	double fit_ns, fit_end_ns;
	uint64_t fit; /* number of the fit that these are of */
};
LIST_HEAD(sched_user_list, sched_user);
TAILQ_HEAD(sched_user_queue, sched_user);

/* Pages that were evicted for a session's KV, since the log last said so; seq/evicted.h. */
struct sched_evicted {
	uint64_t n_pages;
	uint64_t line_ns; /* when it may say so again */
};

struct sched_session {
	LIST_ENTRY(sched_session) link;
	uint64_t id;
	uint64_t domain;
	struct sched_user *user; /* owned: one reference */
	double had_ns; /* of the backend's time */
	double backend_ns; /* the same, as if it had never been away */
	double fit_ns; /* run/fit.c, as its user's */
	uint64_t fit;
	int doorbell_fd; /* lent by the loop */
	/* owned array of config.max_models, each a user of the model; number = index + 1 */
	struct sched_model **models;
	struct sched_arena *arenas; /* owned array of config.max_arenas + 1, by place */
	struct sched_lane_list lanes; /* owned */
	struct sched_seq_list seqs; /* owned */
	/* nothing is left but device arenas, which the client's process may have open */
	bool ended;
	uint32_t n_seqs, n_lanes;
	uint64_t request_waits; /* number of the last look at requests in which one of its waits */
	uint64_t last_job; /* number of the last that a step of its was in: seq/pace.h */
	uint64_t entries, decode_steps, tokens_matched, tokens_computed;
	uint64_t weights_bytes_read; /* by passes of programs: its part, by its rows */
	struct sched_evicted evicted;
};
LIST_HEAD(sched_session_list, sched_session);
LIST_HEAD(sched_model_list, sched_model);

#endif
