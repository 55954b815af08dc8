/*
 * school_layers.h - a school beside sessions that compute their layers themselves, so that passes
 * are cut into segments.
 */
#ifndef SCHOOL_LAYERS_H
#define SCHOOL_LAYERS_H

#include "school.h"

#define N_LAYERS 32u
#define ROUND_NS UINT64_C(5000)
#define PASS_NS (20 * MS) /* of a pupil's entry of N_ROWS */
#define N_ROWS 100u
#define LAYER_NS (0.1 * MS) /* of a batch of others' */

/* A session that computes its layers, one after the other, without end. */
struct other {
	struct client c;
	uint64_t seq, asked_ns;
	uint32_t next_layer, n_steps;
	double longest_ns; /* that it has waited for a step */
	bool idles; /* it asks for nothing, again and again */
};

void other_join(struct other *o, struct school *s, uint64_t user);
void other_end(struct other *o);
/* A prompt's layer of n rows, which goes in slices: it is not waited for. */
void other_ask_prompt(struct other *o, uint32_t n);

/* Pupils of user 1, who ask for N_ROWS again and again. */
struct school *school_of_layers(uint32_t n_pupils);
/* All that ask again do, and the other one, if there is one; nobody's time is jumped over. */
void go_until(struct school *s, struct other *o, uint64_t ns);
/* Until a pass has some segments behind it, and others before it. */
void go_between_segments(struct school *s, struct other *o);

#endif
