/*
 * request.h - what the loop asks of the scheduler, and what the scheduler answers.
 *
 * The scheduler knows no verbs: a request brings the function that serves it. What the older verbs
 * take and give is in struct sched_request; others have their own struct in its room.
 */
#ifndef COPPICED_SCHED_REQUEST_H
#define COPPICED_SCHED_REQUEST_H

#include "daemon/config/config.h"
#include "kernels/backend.h"
#include "kernels/group/group.h"
#include "kvstore/tier.h"
#include "proto/abi.h"

struct sched_session;

struct sched;
struct sched_request;

/* Serves a request, on the scheduler's thread between two batches. 0, -errno after filling message
 * and field, or SCHED_LATER: it is kept, and goes back when it is answered. */
typedef int (*sched_service)(struct sched *s, struct sched_request *rq);
#define SCHED_LATER 1

#define SCHED_TREE_PAGE 224u
#define SCHED_SESSIONS_PAGE 64u
#define SCHED_MODELS_PAGE 64u

struct sched_status {
	struct store_stats store;
	struct store_tiers_stats tiers; /* of no use where has_tiers is false */
	bool has_tiers;
	uint64_t n_streamed, staged_bytes; /* of streamed attention */
	struct backend_counters backend;
	uint64_t n_sessions, n_lanes;
	uint64_t entries, entries_failed;
	uint64_t plans_ahead; /* made ahead, and taken */
	uint64_t batches, decode_jobs, decode_sessions, prefill_jobs;
	uint64_t steps_cut, cut_batches; /* decode steps that took too long, and their slices */
	uint64_t decode_kv_bytes_read, decode_kv_bytes_alone;
	uint64_t windows_won, windows_lost, window_ns;
	uint64_t n_input_waits; /* lanes whose step awaits a stream */
	uint64_t device_page_bytes[GROUP_DEVICES_MAX]; /* of pages in use, of each device */
	bool draining;
	bool own; /* of a user's own sessions, beside what all may know */
};

struct sched_session_info {
	uint64_t id;
	uint32_t n_lanes, n_seqs, n_arenas;
	uint64_t arena_bytes, entries, decode_steps, tokens_matched, tokens_computed;
};

struct sched_model_info {
	char name[128];
	struct work_shape shape;
	/* where the shape's are some of them; 0, 0: they are all */
	uint32_t first_kv_head, all_kv_heads;
	uint64_t page_bytes;
	uint32_t n_users, n_devices;
	char split_why[200];
};

struct request_queue {
	struct sched_request *first, **last;
};

/* Zeroed by the poster, who owns it before sched_post and again after sched_reap. */
struct sched_request {
	struct sched_request *next; /* the scheduler's */
	sched_service serve;
	bool slow; /* it may take milliseconds: nothing else is served in its round */
	void *room; /* lent by the poster: what a service takes and gives that is not in here */
	struct sched_session *session; /* NULL: of one that joins, and the daemon's own */
	void *cookie; /* the poster's */
	uint64_t id; /* the poster's */
	/* root or the daemon's own user: all domains; else the session's domain alone */
	bool privileged;
	union {
		struct {
			uint64_t id, domain;
			/* lent until the session has ended: an eventfd that the client rings */
			int bell_fd;
		} session_add;
		struct {
			char name[128];
			/* page_tokens 0: the daemon's choice; scale 0: 1 / sqrt(head_dim) */
			struct work_shape shape;
			uint64_t weights_hash;
			/* the shape's that are meant; 0, 0: all */
			uint32_t first_kv_head, own_kv_heads;
		} model;
		bool keep_device; /* session_end: the device arenas stay, for a second one */
		struct {
			uint32_t arena; /* number in the session, from 1, given by the loop */
			void *base; /* lent; NULL: device memory, which the backend makes */
			uint64_t bytes;
			uint8_t device[BACKEND_DEVICE_BYTES]; /* UUID; all zero: any */
		} arena;
		struct {
			uint32_t lane; /* as arena */
			struct abi_lane *shared; /* lent; header filled by the loop */
			int notify_fd; /* lent; -1: none */
		} lane;
		struct {
			uint32_t model, lane;
			uint32_t *tokens; /* owned by the poster: a copy; freed by it after reap */
			uint32_t n_tokens;
			uint64_t salt;
		} open;
		struct {
			uint64_t seq, for_ns; /* wait: time limit; pin: how long */
		} seq;
		uint64_t pin;
		struct {
			uint64_t node, for_ns;
		} node_pin;
		uint64_t cursor; /* tree, sessions, models */
		struct {
			char model[128]; /* empty: all */
			uint64_t n_pages; /* 0: all that can go */
			bool pinned; /* pins end where nothing else can go */
		} evict;
		bool drain; /* true: no new sequences; false: again */
	} in;
	int code; /* 0 or -errno */
	char message[240]; /* a sentence where code is not 0 */
	const char *field; /* static; NULL: none */
	union {
		struct sched_session *session; /* session_add */
		struct {
			/* NULL, or it has arenas still: of the device, and if more others too */
			struct sched_session *session;
			bool more;
		} end;
		struct backend_arena arena; /* of a device arena */
		struct {
			uint32_t model, page_tokens;
			uint64_t page_bytes;
		} model;
		struct {
			uint64_t seq;
			struct store_match match;
		} seq; /* also filled with -ETIMEDOUT */
		struct {
			uint32_t n_tokens, n_live;
		} length;
		uint64_t pin;
		struct sched_status *status; /* lent by the poster before the call, filled */
		struct {
			/* lent by the poster: room for SCHED_TREE_PAGE */
			struct store_node_info *nodes;
			/* lent, as many: the nodes' models; the store's may go */
			char (*names)[128];
			uint32_t n;
			uint64_t cursor;
		} tree;
		struct {
			/* lent by the poster: room for SCHED_SESSIONS_PAGE */
			struct sched_session_info *infos;
			uint32_t n;
			uint64_t cursor;
		} sessions;
		struct {
			/* lent by the poster: room for SCHED_MODELS_PAGE */
			struct sched_model_info *infos;
			uint32_t n;
			uint64_t cursor;
		} models;
		struct {
			uint64_t n_pages;
			uint64_t n_pins; /* ended */
			bool more; /* some may go when copies to lower tiers have ended */
		} evict;
	} out;
};

#endif
