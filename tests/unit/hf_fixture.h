/*
 * hf_fixture.h - texts that are config.json, and what coppice_hf_parse must say of them.
 */
#ifndef COPPICE_TESTS_HF_FIXTURE_H
#define COPPICE_TESTS_HF_FIXTURE_H

#include "client/model/coppice_hf.h"

#define SIZES \
	"\"vocab_size\": 256, \"num_hidden_layers\": 2, \"hidden_size\": 128, " \
	"\"intermediate_size\": 192, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, " \
	"\"max_position_embeddings\": 512"
#define LLAMA "\"model_type\": \"llama\", " SIZES
#define OF(type) "\"model_type\": \"" type "\", " SIZES

extern char hf_why[COPPICE_HF_WHY_BYTES]; /* the last sentence */

int hf_parse(const char *text, uint32_t max_positions, struct coppice_hf_program **ret);
/* To be freed. Asserts, here and below. */
struct coppice_hf_program *hf_expect_good_within(const char *text, uint32_t max_positions);
struct coppice_hf_program *hf_expect_good(const char *text);
/* The sentence has all of the words, which end with NULL. */
void hf_expect_refused_with(int error, const char *text, const char *const *words);

#define hf_expect_refused(error, text, ...) \
	hf_expect_refused_with(error, text, (const char *const[]){__VA_ARGS__, NULL})

#endif
