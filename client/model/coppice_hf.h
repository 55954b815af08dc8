/*
 * coppice_hf.h - from a Hugging Face config.json to a program for coppice_program_new.
 *
 *      coppice_hf_read > (the weights are opened) > coppice_hf_bind > coppice_program_new >
 *      coppice_hf_free;  or, once the weights are there, coppice_hf_program_new alone
 *
 * Families, by model_type: llama, mistral, qwen2, qwen3, phi3 (Phi-3 and Phi-4), olmo2, seed_oss,
 * smollm3. Tensors have the names that transformers gives them.
 *
 * config.json is read as transformers 4 and 5 write it. A key whose meaning is not known, or that
 * asks for what programs do not compute, is refused by its name and value, with what would help.
 * RoPE may be default, linear, llama3, yarn or longrope, of all dims of a head or (phi3) of some:
 * what a digest can hold. Of longrope's two lists the short one is taken where max_positions ends
 * with the original positions, and the long one where it goes beyond: what transformers does to a
 * sequence of max_positions. dynamic is refused.
 *
 * No function blocks but for the file, and none keeps anything between calls. Any thread.
 */
#ifndef COPPICE_HF_H
#define COPPICE_HF_H

#include "coppice_program.h"

#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

#define COPPICE_HF_WHY_BYTES 640u

struct coppice_hf_options {
	size_t size; /* sizeof(struct coppice_hf_options), or 0 */
	/* A sequence has so many tokens at most; 0: as many as the model was made for. Fewer may
	 * allow what is refused else: a sliding window that no sequence outgrows. */
	uint32_t max_positions;
};

/* Made by the library alone. What it has beside info stays as it is. */
struct coppice_hf_program {
	const char *embed, *final_norm, *head; /* names */
	const char *const *tensors; /* [n_layers][n_slots] names; NULL where info has no tensor */
	/* Owned by it, as all its arrays. dtype is what config.json says of the weights; set
	 * another if they are to be computed with as that. Tensors are set by coppice_hf_bind.
	 * Last, as it may grow: of a copy size is to be set to that of the app's own struct. */
	struct coppice_program_info info;
};

/* A tensor's number by its name. 0; -ENOENT: there is none; or another -errno, which ends the
 * binding. */
typedef int (*coppice_hf_find)(void *context, const char *name, uint32_t *ret_tensor);

/* options NULL: none. 0 with a program to be freed; or -errno and a sentence that names file, key
 * and value: -ENOENT and what else open and read say; -EINVAL: it is damaged, or contradicts
 * itself; -ENOTSUP: it asks for what is not computed; -ENOMEM. */
COPPICE_MUST_CHECK int coppice_hf_read(const char *path, const struct coppice_hf_options *options,
				       struct coppice_hf_program **ret,
				       char why[COPPICE_HF_WHY_BYTES]);
/* The same of bytes in memory. */
COPPICE_MUST_CHECK int coppice_hf_parse(const void *text, size_t n_bytes,
					const struct coppice_hf_options *options,
					struct coppice_hf_program **ret,
					char why[COPPICE_HF_WHY_BYTES]);
/* Sets info's tensors. A head that the weights have is used, whatever config.json says of ties; one
 * that they do not have is the embedding. 0; -ENOENT and a sentence that names the tensor that is
 * missing; or what find returned. */
COPPICE_MUST_CHECK int coppice_hf_bind(struct coppice_hf_program *program, coppice_hf_find find,
				       void *context, char why[COPPICE_HF_WHY_BYTES]);
/* NULL is fine. */
void coppice_hf_free(struct coppice_hf_program *program);

/* For coppice_hf_bind: the context is a struct coppice_weights, which have been waited for. */
COPPICE_MUST_CHECK static inline int coppice_hf_find_weights(void *weights, const char *name,
							     uint32_t *ret_tensor)
{
	return coppice_weights_find((const struct coppice_weights *)weights, name, ret_tensor);
}

/* From path to a model in one call, without options: reads, binds, coppice_program_new, frees. The
 * weights have been waited for. Blocks. -errno and a sentence as each of these. */
COPPICE_MUST_CHECK static inline int coppice_hf_program_new(struct coppice *c,
							    struct coppice_weights *weights,
							    const char *path, uint32_t *ret_model,
							    char why[COPPICE_HF_WHY_BYTES])
{
	struct coppice_hf_program *program = NULL;
	int r = coppice_hf_read(path, NULL, &program, why);

	if (r == 0)
		r = coppice_hf_bind(program, coppice_hf_find_weights, weights, why);
	if (r == 0) {
		r = coppice_program_new(c, weights, &program->info, ret_model);
		if (r < 0)
			snprintf(why, COPPICE_HF_WHY_BYTES, "%s", coppice_explain(c));
	}
	coppice_hf_free(program);
	return r;
}

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
