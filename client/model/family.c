/*
 * family.c - a row for each model type. A new one needs a row here, its keys in keys.c, and
 * operations of its own in layers.c where it has any.
 */
#include "family.h"

#include <stddef.h>
#include <string.h>

static const struct family families[] = {
	{.name = "llama", .bit = FAMILY_LLAMA, .eps = 1e-6, .theta = 1e4},
	{.name = "mistral",
	 .bit = FAMILY_MISTRAL,
	 .traits = FAMILY_WINDOWED,
	 .n_kv_heads = 8,
	 .window = 4096,
	 .eps = 1e-6,
	 .theta = 1e4},
	{.name = "qwen2",
	 .bit = FAMILY_QWEN2,
	 .traits = FAMILY_QKV_BIAS,
	 .n_kv_heads = 32,
	 .window = 4096,
	 .eps = 1e-6,
	 .theta = 1e4},
	{.name = "qwen3",
	 .bit = FAMILY_QWEN3,
	 .traits = FAMILY_HEAD_NORMS,
	 .n_kv_heads = 32,
	 .head_dim = 128,
	 .window = 4096,
	 .eps = 1e-6,
	 .theta = 1e4},
	{.name = "phi3",
	 .bit = FAMILY_PHI3,
	 .traits = FAMILY_FUSED | FAMILY_WINDOWED | FAMILY_PARTIAL | FAMILY_SU,
	 .original_positions = 4096,
	 .eps = 1e-5,
	 .theta = 1e4},
	{.name = "olmo2",
	 .bit = FAMILY_OLMO2,
	 .traits = FAMILY_WIDE_NORMS | FAMILY_POST_NORMS,
	 .eps = 1e-5,
	 .theta = 1e4},
	{.name = "seed_oss",
	 .bit = FAMILY_SEED_OSS,
	 .n_kv_heads = 8,
	 .head_dim = 128,
	 .eps = 1e-6,
	 .theta = 1e4,
	 .attention_bias = true},
	{.name = "smollm3",
	 .bit = FAMILY_SMOLLM3,
	 .n_kv_heads = 4,
	 .eps = 1e-6,
	 .theta = 2e6,
	 .tied = true},
};

const struct family *family_find(const char *name)
{
	for (size_t i = 0; i < sizeof(families) / sizeof(families[0]); i++)
		if (!strcmp(families[i].name, name))
			return &families[i];
	return NULL;
}

const char *family_names(void)
{
	return "llama, mistral, qwen2, qwen3, phi3, olmo2, seed_oss, smollm3";
}
