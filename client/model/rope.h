/*
 * rope.h - rotary positions: what config.json says of them, and the inverse frequencies that come
 * of it.
 *
 * The daemon knows one kind: angles are position * inv_freq[i], cosines and sines are multiplied by
 * a factor. All that does not change with a sequence's length can be brought into that form. What
 * does (dynamic; longrope where it switches) cannot: K of old tokens would have to change.
 *
 *      default   theta^(-2i/d), d turned dims of a head
 *      linear    that / factor
 *      llama3    slow ones / factor, fast ones as they are, between them a blend by wavelength
 *                (Llama 3.1)
 *      yarn      the same, the blend by index (arXiv:2309.00071)
 *      longrope  each divided by a number of its own, of two lists (arXiv:2402.13753)
 */
#ifndef MODEL_ROPE_H
#define MODEL_ROPE_H

#include "family.h"
#include "reading.h"

#define ROPE_HALF_MAX 128u /* inverse frequencies of a head */

enum rope_kind { ROPE_DEFAULT, ROPE_LINEAR, ROPE_LLAMA3, ROPE_YARN, ROPE_LONGROPE };

struct rope {
	enum rope_kind kind;
	uint32_t n_turned; /* dims of a head: even */
	double theta;
	double factor; /* of linear, llama3 and yarn */
	double low_freq_factor, high_freq_factor; /* of llama3 */
	double original_positions; /* of llama3, yarn and longrope */
	double beta_fast, beta_slow; /* of yarn */
	bool truncate; /* of yarn */
	double divisors[ROPE_HALF_MAX]; /* of longrope: [n_turned / 2] */
	double attention_factor; /* of cosines and sines; 1 unless yarn or longrope */
};

struct rope_shape {
	uint32_t head_dim;
	uint32_t max_positions; /* as config.json has it */
	uint32_t limit; /* positions that are used, at most as many */
};

/* As config.json has it. */
const char *rope_kind_name(enum rope_kind kind);
/* in is all of config.json. 0, or -errno and a sentence. */
MUST_CHECK int rope_read(const struct reading *in, const struct family *family,
			 const struct rope_shape *shape, struct rope *ret);
/* [n_turned / 2] radians a position. */
void rope_frequencies(const struct rope *rope, double *inv_freq);

#endif
