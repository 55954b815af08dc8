/*
 * school.h - sessions whose programs' tokens are computed by a backend that computes nothing and
 * takes the time that rows are modelled to take, by a clock of the test's own.
 */
#ifndef SCHOOL_H
#define SCHOOL_H

#include "kernels/program/backend_program.h"
#include "sched_harness.h"

#define MS 1e6
#define US UINT64_C(1000)
#define FIXED_NS (5 * MS)
#define BUDGET_NS (30 * MS)
#define MAX_ROWS 256u
#define N_VOCAB 1000u
#define HIDDEN 64u
#define ARENA_BYTES (UINT64_C(1) << 20)
#define PUPILS_MAX 40u
#define WORLD_PLACES 8u
#define ROUND_NS UINT64_C(5000)

struct world {
	double row_ns, fixed_ns; /* what all need: FIXED_NS, unless a test says otherwise */
	uint32_t hidden_rows; /* of which reading the weights hides a part: none, in fact */
	double wanted_ns; /* of each row but one whose results are wanted, behind the last layer */
	uint64_t now_ns, end_ns, last_id;
	double longest_ns; /* of a pass */
	uint32_t n_passes, n_rows; /* rows of the last one, of new tokens */
	uint32_t n_segments;
	uint32_t n_places; /* of a pass, at which it can end; 0: behind each layer */
	uint32_t next; /* the place where the last pass stands; 0: the first */
	/* of each model the same */
	struct world_place {
		const struct work_shape *of;
		uint32_t next;
	} places[WORLD_PLACES];
	bool begins_small; /* a pass's first segment is no part of it */
	uint32_t stale_at; /* the segment that begins there is refused once; 0: none is */
	double longest_segment_ns, ran_ns; /* and of all */
	double longest_attend_ns; /* that is expected of a layer */
	double batch_ns; /* what others' layers take */
	uint64_t arena; /* of who wants something; 0: of several */
	bool ascends; /* each id is its predecessor's plus one: that is what follows a row */
	uint32_t n_followed; /* rows that something follows */
	bool instant; /* none takes any time */
	bool ends; /* the school is about to be freed */
	uint32_t n_before_failure; /* passes that go well; 0: all do */
};
extern struct world world;

/* A session with a sequence, whose entry has so many tokens, again and again; 0: nothing. */
struct pupil {
	struct client c;
	uint64_t seq;
	uint32_t again;
	bool wants; /* the score of an entry's last row; */
	bool wants_all; /* of all its rows */
};

struct school {
	struct harness h;
	struct backend_ops ops;
	struct backend_program_ops program;
	struct pupil pupils[PUPILS_MAX];
	uint32_t n;
};

struct school *school_new(double row_ns);
void school_start(struct school *s);
void school_free(struct school *s);

/* Its sequence is opened once the pass is over. */
struct pupil *join(struct school *s, uint64_t user, uint32_t again, uint32_t n_layers);
/* What it asked for last. */
bool has(const struct pupil *p);
struct abi_completion end_of(const struct pupil *p);
/* For n tokens more. */
void ask(struct pupil *p, uint32_t n);
/* A sequence of its own, and its prompt at once. */
void begin_anew(struct pupil *p, uint32_t n);
/* A round; whoever has what it asked for asks again. */
void go_round(struct school *s);
void go_passes(struct school *s, uint32_t n);
/* Rounds for so long, and no pass ends before its time. */
void go_for(struct school *s, uint64_t ns);
/* To the end of what all have asked for. */
void go_till_all_have(struct school *s);
double had_ns(const struct pupil *p);

#endif
