/*
 * decode_model.c - models by name, or by config.json: a safetensors file of random bf16, uniform
 * with the variance 1 / inputs, so that a row keeps its size through the layers; norms' weights
 * are 1.
 *
 * A file is written under another name and renamed when it is whole: what is there is complete.
 */
#ifdef BENCH_HAVE_AGENT
#include "decode_model.h"

#include "client/agent/llama_config.h"
#include "daemon.h"

#include <err.h>
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PIECE 65536u /* elements, written at a time */
#define SETTLE_US 2500000u /* a file that changed just before is hashed by each who opens it */
#define NAME_BYTES 96u

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

static void copy_config(const char *from, const char *to)
{
	char bytes[65536];
	FILE *in = fopen(from, "re"), *out = fopen(to, "we");
	size_t n;

	if (!in || !out)
		err(1, "%s", in ? to : from);
	n = fread(bytes, 1, sizeof(bytes), in);
	if (fwrite(bytes, 1, n, out) != n || fclose(out) != 0)
		err(1, "%s", to);
	fclose(in);
}

/* ---- weights -------------------------------------------------------------------------------- */

struct writer {
	FILE *file;
	const char *path;
	bool header; /* what is written: tensors' lines, else their elements */
	uint64_t at; /* bytes of elements so far */
	uint64_t random;
	uint16_t values[65536]; /* of a draw of 16 bits, of the matrix at hand */
	uint16_t piece[PIECE];
};

static uint16_t bf16_of(float x)
{
	uint32_t bits;

	memcpy(&bits, &x, sizeof(bits));
	return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* xorshift64* (Vigna, 2014), four draws of each word. */
static void draw_piece(struct writer *w, uint64_t n)
{
	for (uint64_t i = 0; i < n; i += 4) {
		uint64_t word;

		w->random ^= w->random >> 12;
		w->random ^= w->random << 25;
		w->random ^= w->random >> 27;
		word = w->random * 0x2545f4914f6cdd1d;
		for (unsigned k = 0; k < 4; k++)
			w->piece[i + k] = w->values[word >> 16 * k & 0xffff];
	}
}

static void write_elements(struct writer *w, uint64_t n, uint32_t n_in, bool ones)
{
	const double most = sqrt(3.0 / n_in);

	for (uint32_t i = 0; i < 65536; i++)
		w->values[i] = bf16_of(ones ? 1 : (float)(most * ((i + 0.5) / 32768 - 1)));
	for (uint64_t left = n; left > 0;) {
		uint64_t now = left < PIECE ? left : PIECE;

		draw_piece(w, (now + 3) & ~UINT64_C(3));
		if (fwrite(w->piece, sizeof(*w->piece), now, w->file) != now)
			err(1, "%s", w->path);
		left -= now;
	}
}

/* n_out 0: a norm's weights. */
static void put(struct writer *w, const char *name, uint32_t n_out, uint32_t n_in)
{
	uint64_t n = (uint64_t)(n_out ? n_out : 1) * n_in;
	char shape[32];

	snprintf(shape, sizeof(shape), n_out ? "%u, %u" : "%u", n_out ? n_out : n_in, n_in);
	if (w->header)
		fprintf(w->file,
			"%s\"%s\": {\"dtype\": \"BF16\", \"shape\": [%s], \"data_offsets\": "
			"[%ju, %ju]}",
			w->at ? ", " : "", name, shape, (uintmax_t)w->at,
			(uintmax_t)(w->at + 2 * n));
	else
		write_elements(w, n, n_in, n_out == 0);
	w->at += 2 * n;
}

static void put_layer(struct writer *w, const struct llama_config *c, uint32_t layer)
{
	const uint32_t q = c->n_q_heads * c->head_dim, kv = c->n_kv_heads * c->head_dim;
	const struct {
		const char *name;
		uint32_t n_out, n_in;
	} parts[] = {
		{"input_layernorm", 0, c->hidden},
		{"self_attn.q_proj", q, c->hidden},
		{"self_attn.k_proj", kv, c->hidden},
		{"self_attn.v_proj", kv, c->hidden},
		{"self_attn.o_proj", c->hidden, q},
		{"post_attention_layernorm", 0, c->hidden},
		{"mlp.gate_proj", c->intermediate, c->hidden},
		{"mlp.up_proj", c->intermediate, c->hidden},
		{"mlp.down_proj", c->hidden, c->intermediate},
	};
	char name[NAME_BYTES];

	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
		snprintf(name, sizeof(name), "model.layers.%u.%s.weight", layer, parts[i].name);
		put(w, name, parts[i].n_out, parts[i].n_in);
	}
}

static void put_all(struct writer *w, const struct llama_config *c, bool header)
{
	w->header = header;
	w->at = 0;
	put(w, "model.embed_tokens.weight", c->n_vocab, c->hidden);
	for (uint32_t i = 0; i < c->n_layers; i++)
		put_layer(w, c, i);
	put(w, "model.norm.weight", 0, c->hidden);
	if (!c->tied)
		put(w, "lm_head.weight", c->n_vocab, c->hidden);
}

/* The header's length stands in front of it and is known behind it. */
static void write_weights(const char *path, const struct llama_config *c)
{
	struct writer *w = calloc(1, sizeof(*w));
	char temporary[PATH_MAX + 64];
	uint64_t n_header = 0;

	snprintf(temporary, sizeof(temporary), "%s.new", path);
	if (!w)
		errx(1, "out of memory");
	*w = (struct writer){.path = temporary, .random = 1, .file = fopen(temporary, "we")};
	if (!w->file || fwrite(&n_header, sizeof(n_header), 1, w->file) != 1)
		err(1, "%s", temporary);
	fputc('{', w->file);
	put_all(w, c, true);
	fputc('}', w->file);
	n_header = (uint64_t)ftell(w->file) - sizeof(n_header);
	put_all(w, c, false);
	if (fseek(w->file, 0, SEEK_SET) != 0 ||
	    fwrite(&n_header, sizeof(n_header), 1, w->file) != 1 || fclose(w->file) != 0 ||
	    rename(temporary, path) != 0)
		err(1, "%s", temporary);
	free(w);
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

static void place(const char *shape, const char *cache, struct decode_model *m)
{
	char home[PATH_MAX - 96], config[PATH_MAX + 16];

	if (cache)
		snprintf(home, sizeof(home), "%s", cache);
	else
		bench_program(".", "models", home, sizeof(home));
	make_folder(home);
	if (shape_of(shape)) {
		snprintf(m->name, sizeof(m->name), "%s", shape);
	} else {
		struct llama_config c;
		struct fault fault;

		if (llama_config_read(shape, &c, &fault) < 0)
			errx(1,
			     "--model is one of " DECODE_MODEL_NAMES
			     ", or a Llama's config.json: %s",
			     fault.text);
		snprintf(m->name, sizeof(m->name), "%016jx", (uintmax_t)c.hash);
	}
	snprintf(m->dir, sizeof(m->dir), "%s/%s", home, m->name);
	make_folder(m->dir);
	snprintf(config, sizeof(config), "%s/config.json", m->dir);
	if (shape_of(shape))
		write_config(config, shape_of(shape));
	else
		copy_config(shape, config);
}

static void count(const struct llama_config *c, struct decode_model *m)
{
	const uint64_t q = (uint64_t)c->n_q_heads * c->head_dim,
		       kv = (uint64_t)c->n_kv_heads * c->head_dim;
	const uint64_t layer = c->hidden * (2 * q + 2 * kv + 3 * (uint64_t)c->intermediate);

	m->n_vocab = c->n_vocab;
	m->n_layers = c->n_layers;
	m->n_q_heads = c->n_q_heads;
	m->n_kv_heads = c->n_kv_heads;
	m->head_dim = c->head_dim;
	m->pass_bytes = 2 * (layer * c->n_layers + (uint64_t)c->n_vocab * c->hidden);
	m->kv_bytes = 2 * 2 * kv * c->n_layers;
}

void decode_model_make(const char *shape, const char *cache, struct decode_model *ret)
{
	char path[PATH_MAX + 24];
	struct llama_config config;
	struct fault fault;
	struct stat st;

	*ret = (struct decode_model){0};
	place(shape, cache, ret);
	snprintf(path, sizeof(path), "%s/config.json", ret->dir);
	if (llama_config_read(path, &config, &fault) < 0)
		errx(1, "%s", fault.text);
	snprintf(path, sizeof(path), "%s/model.safetensors", ret->dir);
	if (stat(path, &st) != 0) {
		write_weights(path, &config);
		usleep(SETTLE_US);
		if (stat(path, &st) != 0)
			err(1, "%s", path);
	}
	ret->file_bytes = (uint64_t)st.st_size;
	count(&config, ret);
}
#endif
