/*
 * decode_model.h - models of random weights for coppice-bench decode: a Llama's shape by name, or
 * one of any family by its config.json, written once as a folder that every client can load.
 */
#ifndef COPPICE_BENCH_DECODE_MODEL_H
#define COPPICE_BENCH_DECODE_MODEL_H

#include "proto/must_check.h"

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

struct decode_model {
	char dir[PATH_MAX]; /* has config.json and model.safetensors */
	char name[64];
	uint64_t file_bytes;
	uint64_t pass_bytes, pass_elements; /* of weights that a pass reads */
	uint64_t kv_bytes; /* of a token, in the weights' type */
	uint32_t n_vocab, n_layers, n_q_heads, n_kv_heads, head_dim;
	bool is_llama; /* such as coppice-agent computes by itself */
};

#define DECODE_MODEL_NAMES "tiny, llama-3.2-1b, llama-3.2-3b, llama-3.1-8b"

/* shape: one of these names, or the path of a config.json. cache: where models are kept,
 * NULL: under the build folder. Writes what is not there yet; ends the program with a sentence
 * where that fails. */
void decode_model_make(const char *shape, const char *cache, struct decode_model *ret);

#endif
