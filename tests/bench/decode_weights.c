/*
 * decode_weights.c - see decode_weights.h. Shapes follow from the program's operations: what a
 * product's outputs are for says how many there are.
 */
#ifdef BENCH_HAVE_AGENT
#include "decode_weights.h"

#include "client/model/file.h"
#include "client/model/model_config.h"

#include <err.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PIECE 65536u /* elements, written at a time */
#define SLOTS_OF_ENDS 3u /* embedding, norm, head */

/* ---- shapes --------------------------------------------------------------------------------- */

struct walk {
	struct decode_tensors *to;
	const struct model_config *config;
	uint32_t layer, width[4]; /* of registers */
};

static void add(struct decode_tensors *to, const struct decode_tensor *tensor)
{
	to->of[to->n++] = *tensor;
}

static void add_slot(struct walk *w, uint32_t slot, struct decode_tensor tensor)
{
	const struct coppice_hf_program *program = w->to->program;

	if (slot == COPPICE_NO_SLOT)
		return;
	tensor.name = program->tensors[w->layer * program->info.n_slots + slot];
	add(w->to, &tensor);
}

static uint32_t q_width(const struct model_config *c)
{
	return c->n_q_heads * c->head_dim;
}

static uint32_t kv_width(const struct model_config *c)
{
	return c->n_kv_heads * c->head_dim;
}

/* Outputs of each matrix of a product. */
static void set_outputs(const struct walk *w, const struct coppice_op *op, bool for_attention,
			uint32_t n_out[3])
{
	const struct model_config *c = w->config;

	n_out[0] = n_out[1] = n_out[2] = c->hidden;
	if (op->flags & COPPICE_OP_GATED) {
		n_out[0] = n_out[1] = op->n_w == 2 ? c->intermediate : 2 * c->intermediate;
	} else if (for_attention) {
		n_out[0] = op->n_w == 3 ? q_width(c) : q_width(c) + 2 * kv_width(c);
		n_out[1] = n_out[2] = kv_width(c);
	}
}

static void walk_linear(struct walk *w, const struct coppice_op *op, bool for_attention)
{
	uint32_t n_out[3], sum = 0;

	set_outputs(w, op, for_attention, n_out);
	for (uint32_t i = 0; i < op->n_w; i++) {
		add_slot(w, op->w[i],
			 (struct decode_tensor){.n_out = n_out[i], .n_in = w->width[op->in]});
		sum += n_out[i];
	}
	for (uint32_t i = 0; i < op->n_w; i++)
		add_slot(w, op->bias[i], (struct decode_tensor){.n_in = n_out[i]});
	w->width[op->out] = op->flags & COPPICE_OP_GATED ? sum / 2 : sum;
}

static void walk_norm(struct walk *w, const struct coppice_op *op)
{
	add_slot(w, op->w[0], (struct decode_tensor){.n_in = w->width[op->in], .is_norm = true});
	w->width[op->out] = w->width[op->in];
}

static void walk_attend(struct walk *w, const struct coppice_op *op)
{
	const struct model_config *c = w->config;
	const bool wide = op->flags & COPPICE_OP_WIDE_NORM;
	const uint32_t n_in[2] = {wide ? q_width(c) : c->head_dim,
				  wide ? kv_width(c) : c->head_dim};

	for (uint32_t i = 0; i < op->n_w; i++)
		add_slot(w, op->w[i], (struct decode_tensor){.n_in = n_in[i], .is_norm = true});
	w->width[op->out] = q_width(c);
}

static void walk_layer(struct walk *w)
{
	const struct coppice_program_info *info = &w->to->program->info;
	const struct coppice_layer_kind *kind = &info->kinds[info->kind_of[w->layer]];

	w->width[COPPICE_X] = info->hidden;
	for (uint32_t i = 0; i < kind->n_ops; i++) {
		const struct coppice_op *op = &info->ops[kind->first_op + i];
		const bool last = i + 1 == kind->n_ops;

		if (op->kind == COPPICE_NORM)
			walk_norm(w, op);
		else if (op->kind == COPPICE_ATTEND)
			walk_attend(w, op);
		else
			walk_linear(w, op, !last && op[1].kind == COPPICE_ATTEND);
	}
}

static void walk_all(struct decode_tensors *to, const struct model_config *c)
{
	const struct coppice_hf_program *program = to->program;
	struct walk w = {.to = to, .config = c};

	add(to, &(struct decode_tensor){program->embed, c->n_vocab, c->hidden, false});
	for (; w.layer < c->n_layers; w.layer++)
		walk_layer(&w);
	add(to, &(struct decode_tensor){program->final_norm, 0, c->hidden, true});
	if (!c->tied)
		add(to, &(struct decode_tensor){program->head, c->n_vocab, c->hidden, false});
}

static void read_config(const char *path, struct model_config *ret)
{
	struct fault fault;
	char *bytes = NULL;
	size_t n;

	if (file_read(path, &bytes, &n, &fault) < 0 ||
	    model_config_parse(&(struct model_text){path, bytes, n}, 0, ret, &fault) < 0)
		errx(1, "%s", fault.text);
	free(bytes);
}

void decode_tensors_read(const char *config, struct decode_tensors *ret)
{
	static struct model_config c;
	char why[COPPICE_HF_WHY_BYTES];

	*ret = (struct decode_tensors){0};
	read_config(config, &c);
	if (coppice_hf_read(config, NULL, &ret->program, why) < 0)
		errx(1, "%s", why);
	ret->of = calloc((size_t)c.n_layers * ret->program->info.n_slots + SLOTS_OF_ENDS,
			 sizeof(*ret->of));
	if (!ret->of)
		errx(1, "out of memory");
	walk_all(ret, &c);
}

void decode_tensors_done(struct decode_tensors *tensors)
{
	coppice_hf_free(tensors->program);
	free(tensors->of);
}

uint64_t decode_tensors_read_a_pass(const struct decode_tensors *tensors)
{
	const struct coppice_program_info *info = &tensors->program->info;
	uint64_t n = (uint64_t)info->n_vocab * info->hidden;

	for (uint32_t i = 0; i < tensors->n; i++) {
		const struct decode_tensor *t = &tensors->of[i];

		if (t->name != tensors->program->embed && t->name != tensors->program->head)
			n += (uint64_t)t->n_out * t->n_in;
	}
	return n;
}

/* ---- weights -------------------------------------------------------------------------------- */

struct writer {
	FILE *file;
	const char *path;
	uint64_t random;
	uint16_t values[65536]; /* of a draw of 16 bits, of the matrix at hand */
	uint16_t piece[PIECE];
};

static uint64_t elements_of(const struct decode_tensor *t)
{
	return (uint64_t)(t->n_out ? t->n_out : 1) * t->n_in;
}

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

static void write_elements(struct writer *w, const struct decode_tensor *t)
{
	const double most = sqrt(3.0 / t->n_in);

	for (uint32_t i = 0; i < 65536; i++)
		w->values[i] = bf16_of(t->is_norm ? 1 : (float)(most * ((i + 0.5) / 32768 - 1)));
	for (uint64_t left = elements_of(t); left > 0;) {
		uint64_t now = left < PIECE ? left : PIECE;

		draw_piece(w, (now + 3) & ~UINT64_C(3));
		if (fwrite(w->piece, sizeof(*w->piece), now, w->file) != now)
			err(1, "%s", w->path);
		left -= now;
	}
}

static void write_header(const struct writer *w, const struct decode_tensors *tensors)
{
	uint64_t at = 0;

	fputc('{', w->file);
	for (uint32_t i = 0; i < tensors->n; i++) {
		const struct decode_tensor *t = &tensors->of[i];
		const uint64_t end = at + 2 * elements_of(t);
		char shape[32];

		snprintf(shape, sizeof(shape), t->n_out ? "%u, %u" : "%u",
			 t->n_out ? t->n_out : t->n_in, t->n_in);
		fprintf(w->file,
			"%s\"%s\": {\"dtype\": \"BF16\", \"shape\": [%s], \"data_offsets\": "
			"[%ju, %ju]}",
			i ? ", " : "", t->name, shape, (uintmax_t)at, (uintmax_t)end);
		at = end;
	}
	fputc('}', w->file);
}

/* The header's length stands in front of it and is known behind it. */
void decode_weights_write(const char *path, const struct decode_tensors *tensors)
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
	write_header(w, tensors);
	n_header = (uint64_t)ftell(w->file) - sizeof(n_header);
	for (uint32_t i = 0; i < tensors->n; i++)
		write_elements(w, &tensors->of[i]);
	if (fseek(w->file, 0, SEEK_SET) != 0 ||
	    fwrite(&n_header, sizeof(n_header), 1, w->file) != 1 || fclose(w->file) != 0 ||
	    rename(temporary, path) != 0)
		err(1, "%s", temporary);
	free(w);
}
#endif
