/*
 * hf.c - a program in one piece of memory with all that it points to.
 *
 * Every kind of layer uses every slot (layers.c), so the table of tensors has no holes.
 */
#include "coppice_hf.h"

#include "file.h"
#include "layers.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_BYTES 64

struct hf {
	struct coppice_hf_program program; /* first: freed by its address */
	struct model_config config;
	struct layers layers;
	double inv_freq[ROPE_HALF_MAX];
	uint32_t *tensors; /* owned, [n_layers][n_slots] */
	const char **names; /* owned, the same */
	char (*bytes)[NAME_BYTES]; /* owned, the same: what names point to */
};

static void make_names(struct hf *hf)
{
	const uint32_t n_slots = hf->layers.n_slots;
	for (uint32_t i = 0; i < hf->config.n_layers * n_slots; i++) {
		snprintf(hf->bytes[i], NAME_BYTES, "model.layers.%u.%s", i / n_slots,
			 hf->layers.slots[i % n_slots]);
		hf->names[i] = hf->bytes[i];
		hf->tensors[i] = COPPICE_NO_SLOT;
	}
}

static void make_info(struct hf *hf)
{
	const struct model_config *c = &hf->config;
	const struct layers *layers = &hf->layers;
	rope_frequencies(&c->rope, hf->inv_freq);
	hf->program.info = (struct coppice_program_info){
		.size = sizeof(struct coppice_program_info),
		.hidden = c->hidden,
		.n_vocab = c->n_vocab,
		.n_layers = c->n_layers,
		.n_q_heads = c->n_q_heads,
		.n_kv_heads = c->n_kv_heads,
		.head_dim = c->head_dim,
		.max_positions = c->max_positions,
		.dtype = c->dtype,
		.eps = c->norm_eps,
		.rope_factor = c->rope.attention_factor,
		.n_turned = c->rope.n_turned,
		.inv_freq = hf->inv_freq,
		.embed = COPPICE_NO_SLOT,
		.final_norm = COPPICE_NO_SLOT,
		.head = COPPICE_NO_SLOT,
		.ops = layers->ops,
		.kinds = layers->kinds,
		.kind_of = layers->kind_of,
		.tensors = hf->tensors,
		.n_ops = layers->n_ops,
		.n_kinds = layers->n_kinds,
		.n_slots = layers->n_slots,
	};
}

static void make_program(struct hf *hf)
{
	make_names(hf);
	make_info(hf);
	hf->program.embed = "model.embed_tokens.weight";
	hf->program.final_norm = "model.norm.weight";
	hf->program.head = "lm_head.weight";
	hf->program.tensors = hf->names;
}

static int make(const struct model_text *text, const struct coppice_hf_options *options,
		struct hf *hf, struct fault *fault)
{
	int r = model_config_parse(text, options ? options->max_positions : 0, &hf->config, fault);
	if (r < 0)
		return r;
	layers_make(&hf->config, &hf->layers);
	const size_t n = (size_t)hf->config.n_layers * hf->layers.n_slots;
	hf->tensors = calloc(n, sizeof(*hf->tensors));
	hf->names = calloc(n, sizeof(*hf->names));
	hf->bytes = calloc(n, sizeof(*hf->bytes));
	if (!hf->tensors || !hf->names || !hf->bytes)
		return fault_set(fault, -ENOMEM, "out of memory");
	make_program(hf);
	return 0;
}

static int parse(const struct model_text *text, const struct coppice_hf_options *options,
		 struct coppice_hf_program **ret, struct fault *fault)
{
	if (options && options->size && options->size != sizeof(*options))
		return fault_set(fault, -E2BIG, "coppice_hf_options of %zu bytes are not known",
				 options->size);
	struct hf *hf = calloc(1, sizeof(*hf));
	if (!hf)
		return fault_set(fault, -ENOMEM, "out of memory");
	int r = make(text, options, hf, fault);
	if (r < 0)
		coppice_hf_free(&hf->program);
	else
		*ret = &hf->program;
	return r;
}

_Static_assert(sizeof(struct fault) <= COPPICE_HF_WHY_BYTES, "a sentence goes whole");

int coppice_hf_parse(const void *text, size_t n_bytes, const struct coppice_hf_options *options,
		     struct coppice_hf_program **ret, char why[COPPICE_HF_WHY_BYTES])
{
	const struct model_text from = {"config.json", text, n_bytes};
	struct fault fault = {""};
	int r = parse(&from, options, ret, &fault);
	memcpy(why, fault.text, sizeof(fault.text));
	return r;
}

int coppice_hf_read(const char *path, const struct coppice_hf_options *options,
		    struct coppice_hf_program **ret, char why[COPPICE_HF_WHY_BYTES])
{
	struct fault fault = {""};
	char *bytes = NULL; /* owned */
	size_t n;
	int r = file_read(path, &bytes, &n, &fault);
	if (r == 0)
		r = parse(&(struct model_text){path, bytes, n}, options, ret, &fault);
	free(bytes);
	memcpy(why, fault.text, sizeof(fault.text));
	return r;
}

struct binding {
	coppice_hf_find find;
	void *context;
	char *why; /* [COPPICE_HF_WHY_BYTES] */
};

static int refuse_tensor(const struct binding *b, int error, const char *name)
{
	snprintf(b->why, COPPICE_HF_WHY_BYTES, "tensor %s %s", name,
		 error == -ENOENT ? "is not in the weights, and config.json asks for it"
				  : "could not be looked up");
	return error;
}

static int find_tensor(const struct binding *b, const char *name, uint32_t *ret)
{
	int r = b->find(b->context, name, ret);
	return r < 0 ? refuse_tensor(b, r, name) : 0;
}

/* Each of embedding and head stands for the other where one of them is missing. A head of its own
 * that config.json calls tied is used: files that have both and mean one have the same in both. */
static int bind_ends(struct hf *hf, const struct binding *b)
{
	const struct coppice_hf_program *program = &hf->program;
	uint32_t head = COPPICE_NO_SLOT, embed = COPPICE_NO_SLOT;
	const int has_head = b->find(b->context, program->head, &head);
	if (has_head < 0 && has_head != -ENOENT)
		return refuse_tensor(b, has_head, program->head);
	int r = b->find(b->context, program->embed, &embed);
	if (r == -ENOENT && has_head == 0 && hf->config.tied) {
		embed = head;
		r = 0;
	}
	if (r < 0)
		return refuse_tensor(b, r, program->embed);
	hf->program.info.embed = embed;
	hf->program.info.head = has_head == 0 ? head : embed;
	return find_tensor(b, program->final_norm, &hf->program.info.final_norm);
}

int coppice_hf_bind(struct coppice_hf_program *program, coppice_hf_find find, void *context,
		    char why[COPPICE_HF_WHY_BYTES])
{
	struct hf *hf = (struct hf *)program;
	const struct binding b = {.find = find, .context = context, .why = why};
	int r = bind_ends(hf, &b);
	for (uint32_t i = 0; r == 0 && i < hf->config.n_layers * hf->layers.n_slots; i++)
		r = find_tensor(&b, program->tensors[i], &hf->tensors[i]);
	return r;
}

void coppice_hf_free(struct coppice_hf_program *program)
{
	struct hf *hf = (struct hf *)program;
	if (!hf)
		return;
	free(hf->tensors);
	free(hf->names);
	free(hf->bytes);
	free(hf);
}
