/*
 * decode_client.h - one of the processes of coppice-bench decode, and the memory in which they and
 * the parent meet.
 *
 *      LOAD > DOCUMENT: the first one computes it (or all theirs) > FIRST: sequences with prompts
 *      of their own, to their first tokens > WARM > ALONE: times are taken > JOINED: others come
 *      and go > BESIDE: another document is computed > LAYERS: others compute their own > END
 *
 * Who has done a phase's part counts itself as arrived, and from WARM on decodes until the parent
 * begins the next one, so that nobody is ever measured in less company.
 */
#ifndef COPPICE_BENCH_DECODE_CLIENT_H
#define COPPICE_BENCH_DECODE_CLIENT_H

#include "decode_model.h"
#include "decode_slow.h"

#include <stdatomic.h>
#include <stdbool.h>

#define DECODE_CLIENTS 64u
#define DECODE_TIMES 131072u /* of ten minutes */
#define DECODE_SEQS 64u

enum decode_phase {
	DECODE_LOAD,
	DECODE_DOCUMENT,
	DECODE_FIRST,
	DECODE_WARM,
	DECODE_ALONE,
	DECODE_JOINED,
	DECODE_BESIDE,
	DECODE_LAYERS,
	DECODE_END,
};

struct decode_options {
	const struct decode_model *model;
	const char *socket;
	uint32_t n_clients, n_seqs, document, prompt, n_tokens;
	uint32_t stay_ms; /* who joins decodes for so long, each behind a prompt of its own */
	uint32_t every_ms; /* one joins so often; 0: when the one before has left */
	/* After so many tokens each sequence is its prompt again, a process after the other; 0:
	 * never. */
	uint32_t turn;
	uint32_t seconds; /* that they come and go; 0: n_tokens of each sequence */
	uint32_t round; /* of several at one daemon: what they have of their own differs */
	bool apart; /* each process computes its own layers */
	bool own_program; /* nobody else has it: the daemon runs it for that process alone */
	bool beside; /* another document is computed beside them */
	uint32_t n_layered; /* processes that compute their own layers beside them; 0: none */
	bool own_document; /* nobody else has it */
};

/* Of tokens one after the other. */
struct decode_times {
	uint32_t n;
	float ms[DECODE_TIMES];
	uint64_t begin_ns[DECODE_TIMES];
	uint64_t read; /* bytes of weights */
};

struct decode_figures {
	/* weights: of what was until the program was there, too, that until they were loaded */
	double load_ms, weights_ms, document_ms, first_ms;
	struct decode_times alone, joined, beside, layers;
	struct decode_times anew; /* first tokens of a turn, whenever they were */
};

/* Of sessions that came and went, one after the other. */
struct decode_joins {
	uint32_t n;
	/* sums: until they had a session; then the weights; the program, and memory for results;
	 * their first token */
	double connect_ms, weights_ms, program_ms, first_ms;
	double most_weights_ms;
};

/* Shared; each client writes figures of its own. */
struct decode_board {
	_Atomic uint32_t phase, n_arrived; /* arrived: release, of the figures */
	struct decode_joins joins; /* their process's, until it ends */
	_Atomic uint64_t beside_ns; /* that the other document took; 0: it is not there yet */
	struct decode_figures of[DECODE_CLIENTS];
	struct slow_events events[DECODE_CLIENTS + 1]; /* the last: of those that join */
};

_Noreturn void decode_client_main(const struct decode_options *o, struct decode_board *board,
				  uint32_t number);
/* Comes, opens a sequence on the document, takes a token, or tokens for a while, and goes; until
 * the phase is over. */
_Noreturn void decode_joiner_main(const struct decode_options *o, struct decode_board *board);
/* Computes another document as long. */
_Noreturn void decode_reader_main(const struct decode_options *o, struct decode_board *board);

#endif
