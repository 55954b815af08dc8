/*
 * decode_model.c - models by name, or by config.json: a folder with that and with random weights.
 *
 * Of a config.json that is given the type alone is changed, to that of the weights.
 */
#ifdef BENCH_HAVE_AGENT
#include "decode_model.h"

#include "client/agent/llama_config.h"
#include "daemon.h"
#include "decode_weights.h"

#include <err.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SETTLE_US 2500000u /* a file that changed just before is hashed by each who opens it */

static const struct shape {
	const char *name;
	uint32_t hidden, intermediate, n_layers, n_q_heads, n_kv_heads, head_dim, n_vocab;
	bool tied;
} shapes[] = {
	{"tiny", 256, 768, 4, 4, 2, 64, 512, true},
	{"llama-3.2-1b", 2048, 8192, 16, 32, 8, 64, 128256, true},
	{"llama-3.2-3b", 3072, 8192, 28, 24, 8, 128, 128256, true},
	{"llama-3.1-8b", 4096, 14336, 32, 32, 8, 128, 128256, false},
};

#define N_SHAPES (sizeof(shapes) / sizeof(shapes[0]))

/* ---- config.json ---------------------------------------------------------------------------- */

static void write_config(const char *path, const struct shape *s)
{
	FILE *file = fopen(path, "we");

	if (!file)
		err(1, "%s", path);
	fprintf(file,
		"{\"model_type\": \"llama\", \"hidden_act\": \"silu\", \"hidden_size\": %u, "
		"\"intermediate_size\": %u, \"num_hidden_layers\": %u, "
		"\"num_attention_heads\": %u, \"num_key_value_heads\": %u, \"head_dim\": %u, "
		"\"vocab_size\": %u, \"tie_word_embeddings\": %s, \"rms_norm_eps\": 1e-5, "
		"\"max_position_embeddings\": 262144, \"rope_theta\": 500000.0, "
		"\"torch_dtype\": \"bfloat16\"}\n",
		s->hidden, s->intermediate, s->n_layers, s->n_q_heads, s->n_kv_heads, s->head_dim,
		s->n_vocab, s->tied ? "true" : "false");
	if (fclose(file) != 0)
		err(1, "%s", path);
}

/* The caller's reference. */
static json_t *load_config(const char *path)
{
	json_error_t error;
	json_t *config = json_load_file(path, 0, &error);

	if (!json_is_object(config))
		errx(1, "--model is one of " DECODE_MODEL_NAMES ", or a config.json: %s: %s", path,
		     config ? "no object" : error.text);
	json_object_del(config, "torch_dtype");
	json_object_set_new(config, "dtype", json_string("bfloat16"));
	return config;
}

/* What it says names the model: the family, and a hash (FNV-1a). */
static void name_model(const json_t *config, struct decode_model *m)
{
	const char *family = json_string_value(json_object_get(config, "model_type"));
	char *text = json_dumps(config, JSON_SORT_KEYS);
	uint64_t hash = UINT64_C(0xcbf29ce484222325);

	if (!text)
		errx(1, "out of memory");
	for (const char *at = text; *at; at++)
		hash = (hash ^ (unsigned char)*at) * UINT64_C(0x100000001b3);
	snprintf(m->name, sizeof(m->name), "%.30s_%016jx", family ? family : "model",
		 (uintmax_t)hash);
	free(text);
}

/* ---- the folder ----------------------------------------------------------------------------- */

static const struct shape *shape_of(const char *name)
{
	for (size_t i = 0; i < N_SHAPES; i++)
		if (strcmp(shapes[i].name, name) == 0)
			return &shapes[i];
	return NULL;
}

static void make_folder(const char *path)
{
	if (mkdir(path, 0777) != 0 && errno != EEXIST)
		err(1, "%s", path);
}

static void make_home(const char *cache, char home[PATH_MAX - 96])
{
	if (cache)
		snprintf(home, PATH_MAX - 96, "%s", cache);
	else
		bench_program(".", "models", home, PATH_MAX - 96);
	make_folder(home);
}

static void make_config(const char *shape, const char *home, struct decode_model *m, char *path,
			size_t bytes)
{
	const struct shape *s = shape_of(shape);
	json_t *config = s ? NULL : load_config(shape);

	if (s)
		snprintf(m->name, sizeof(m->name), "%s", shape);
	else
		name_model(config, m);
	snprintf(m->dir, sizeof(m->dir), "%s/%s", home, m->name);
	make_folder(m->dir);
	snprintf(path, bytes, "%s/config.json", m->dir);
	if (s)
		write_config(path, s);
	else if (json_dump_file(config, path, JSON_INDENT(2)) != 0)
		errx(1, "%s cannot be written", path);
	json_decref(config);
}

static void make_weights(const struct decode_tensors *tensors, struct decode_model *m)
{
	char path[PATH_MAX + 24];
	struct stat st;

	snprintf(path, sizeof(path), "%s/model.safetensors", m->dir);
	if (stat(path, &st) != 0) {
		decode_weights_write(path, tensors);
		usleep(SETTLE_US);
		if (stat(path, &st) != 0)
			err(1, "%s", path);
	}
	m->file_bytes = (uint64_t)st.st_size;
}

static void count(const struct decode_tensors *tensors, struct decode_model *m)
{
	const struct coppice_program_info *info = &tensors->program->info;

	m->n_vocab = info->n_vocab;
	m->n_layers = info->n_layers;
	m->n_q_heads = info->n_q_heads;
	m->n_kv_heads = info->n_kv_heads;
	m->head_dim = info->head_dim;
	m->pass_elements = decode_tensors_read_a_pass(tensors);
	m->pass_bytes = 2 * m->pass_elements;
	m->kv_bytes = UINT64_C(2) * 2 * info->n_kv_heads * info->head_dim * info->n_layers;
}

void decode_model_make(const char *shape, const char *cache, struct decode_model *ret)
{
	char home[PATH_MAX - 96], config[PATH_MAX + 16];
	struct decode_tensors tensors;
	struct llama_config llama;
	struct fault fault;

	*ret = (struct decode_model){0};
	make_home(cache, home);
	make_config(shape, home, ret, config, sizeof(config));
	decode_tensors_read(config, &tensors);
	make_weights(&tensors, ret);
	count(&tensors, ret);
	ret->is_llama = llama_config_read(config, &llama, &fault) == 0;
	decode_tensors_done(&tensors);
}
#endif
