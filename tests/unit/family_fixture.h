/*
 * family_fixture.h - the models of tests/model/families: their config.json, what transformers made
 * of it, and their weights, which are drawn anew.
 */
#ifndef COPPICE_TESTS_FAMILY_FIXTURE_H
#define COPPICE_TESTS_FAMILY_FIXTURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FAMILY_PROMPTS 3
#define FAMILY_TOKENS 64 /* behind each prompt */
#define FAMILY_TOP 8

/* As the file has it. */
struct family_row {
	float lse, score; /* of the sum, and of the next id */
	float logits[FAMILY_TOP]; /* falling */
	uint16_t ids[FAMILY_TOP];
};

struct family_tensor {
	const char *name;
	uint32_t n_out, n_in; /* n_out 0: a vector */
};

struct family_model {
	const char *name;
	bool on_gpu; /* its sizes are such as a GPU takes too */
	char *config; /* owned: config.json */
	uint32_t max_positions; /* for coppice_hf_options */
	uint32_t n_vocab;
	struct family_tensor *tensors; /* owned, [n_tensors] */
	uint32_t n_tensors;
	double *inv_freq; /* owned, [n_inv_freq] */
	uint32_t n_inv_freq;
	double rope_factor;
	/* How far transformers' logits move with q, k, v and attention's outputs in bf16; with all
	 * that goes into products, too; and with angles in float64. */
	double moved_bf16, moved_products, moved_angles;
	const struct family_row *rows; /* [FAMILY_PROMPTS][FAMILY_TOKENS] */
};

struct families {
	void *notes; /* owned: models.json, read */
	struct family_row *rows; /* owned */
	struct family_model *models; /* owned, [n] */
	uint32_t n;
};

extern const uint32_t family_prompts[FAMILY_PROMPTS];

/* Reads MODELS_DIR; asserts that all is there. */
void families_init(struct families *families);
void families_done(struct families *families);

/* Element by element what tests/model/families.py draws; of eight significant bits at most, so the
 * same in every type. */
void family_weight(const struct family_model *model, const struct family_tensor *tensor,
		   float *ret);
/* The prompt of so many tokens and FAMILY_TOKENS behind it. */
void family_ids(const struct family_model *model, uint32_t n_prompt, uint32_t *ret);

#endif
