/*
 * held_program.c - what a client gave, copied and checked, and the digest that is its KV's name.
 *
 * The digest is of values, never of padding: field by field, arrays with their lengths in front. A
 * tensor goes into it by its own digest, so that neither its place nor its file matters.
 */
#include "held_program.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

/* Of how rows are computed: what is cached under another number is not found any more. */
#define NUMERICS 1u

/* ---- the digest ----------------------------------------------------------------------------- */

static void hash_number(XXH3_state_t *hash, uint64_t n)
{
	XXH3_128bits_update(hash, &n, sizeof(n));
}

static void hash_float(XXH3_state_t *hash, float x)
{
	XXH3_128bits_update(hash, &x, sizeof(x));
}

static void hash_tensor(XXH3_state_t *hash, const struct weights_content *content, uint32_t tensor)
{
	static const struct weights_digest none;
	const struct weights_digest *digest =
		tensor == PROGRAM_NONE ? &none : &content->digests[tensor];

	XXH3_128bits_update(hash, digest, sizeof(*digest));
}

static void hash_shape(XXH3_state_t *hash, const struct program *p)
{
	const struct work_shape *s = &p->shape;
	const uint64_t numbers[] = {
		NUMERICS,  s->n_layers, s->n_q_heads, s->n_kv_heads, s->head_dim, s->dtype,
		p->hidden, p->n_vocab,	p->n_ops,     p->n_kinds,    p->n_slots,  p->n_turned,
	};

	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		hash_number(hash, numbers[i]);
	hash_float(hash, s->scale);
	hash_float(hash, p->eps);
	hash_float(hash, p->embed_factor);
	hash_float(hash, p->logit_factor);
	hash_float(hash, p->rope_factor);
	XXH3_128bits_update(hash, p->inv_freq, p->n_turned / 2 * sizeof(*p->inv_freq));
}

static void hash_op(XXH3_state_t *hash, const struct program_op *op)
{
	const uint32_t numbers[] = {op->kind, op->flags, op->in, op->out, op->act, op->n_w};

	XXH3_128bits_update(hash, numbers, sizeof(numbers));
	XXH3_128bits_update(hash, op->w, sizeof(op->w));
	XXH3_128bits_update(hash, op->bias, sizeof(op->bias));
	hash_float(hash, op->eps);
}

/* Checked: all its indices are good. */
static void hash_program(XXH3_state_t *hash, const struct program *p,
			 const struct weights_content *content)
{
	hash_shape(hash, p);
	for (uint32_t i = 0; i < p->n_ops; i++)
		hash_op(hash, &p->ops[i]);
	for (uint32_t i = 0; i < p->n_kinds; i++) {
		hash_number(hash, p->kinds[i].first_op);
		hash_number(hash, p->kinds[i].n_ops);
	}
	XXH3_128bits_update(hash, p->kind_of, p->shape.n_layers);
	for (uint32_t i = 0; i < p->shape.n_layers * p->n_slots; i++)
		hash_tensor(hash, content, p->slots[i]);
	hash_tensor(hash, content, p->embed);
	hash_tensor(hash, content, p->final_norm);
	hash_tensor(hash, content, p->head);
}

static int name_set(struct held_program *held)
{
	XXH3_state_t *hash = XXH3_createState();
	XXH128_canonical_t canonical;
	char *at = held->name + strlen(HELD_PROGRAM_PREFIX);

	if (!hash)
		return -ENOMEM;
	XXH3_128bits_reset(hash);
	hash_program(hash, &held->program, &held->weights->content);
	XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(hash));
	XXH3_freeState(hash);
	strcpy(held->name, HELD_PROGRAM_PREFIX);
	for (size_t i = 0; i < sizeof(canonical.digest); i++, at += 2)
		snprintf(at, 3, "%02x", canonical.digest[i]);
	return 0;
}

/* ---- what a pass reads ---------------------------------------------------------------------- */

/* All but the embedding, of which it takes rows, unless that is the head too. */
static uint64_t pass_bytes(const struct program *p)
{
	uint64_t bytes = program_tensor_bytes(&p->tensors[p->final_norm]) +
			 program_tensor_bytes(&p->tensors[p->head]);

	for (uint32_t i = 0; i < p->shape.n_layers * p->n_slots; i++)
		if (p->slots[i] != PROGRAM_NONE)
			bytes += program_tensor_bytes(&p->tensors[p->slots[i]]);
	return bytes;
}

/* ---- a copy --------------------------------------------------------------------------------- */

/* NULL: no memory. */
static void *copy(const void *from, size_t n, size_t bytes)
{
	void *to = malloc(n * bytes + 1);

	if (to && n > 0)
		memcpy(to, from, n * bytes);
	return to;
}

static int copy_arrays(struct program *p)
{
	p->inv_freq = copy(p->inv_freq, p->n_turned / 2, sizeof(*p->inv_freq));
	p->ops = copy(p->ops, p->n_ops, sizeof(*p->ops));
	p->kinds = copy(p->kinds, p->n_kinds, sizeof(*p->kinds));
	p->kind_of = copy(p->kind_of, p->shape.n_layers, sizeof(*p->kind_of));
	p->slots = copy(p->slots, (size_t)p->shape.n_layers * p->n_slots, sizeof(*p->slots));
	return p->inv_freq && p->ops && p->kinds && p->kind_of && p->slots ? 0 : -ENOMEM;
}

int held_program_new(const struct program *from, struct weights *weights, struct held_program **ret,
		     char why[PROGRAM_WHY_BYTES])
{
	struct held_program *held;
	struct program checked = *from;
	struct program_widths widths;
	int r;

	checked.tensors = weights->content.tensors;
	checked.n_tensors = weights->content.n_tensors;
	checked.weights_bytes = weights->content.bytes;
	r = program_check(&checked, &widths, why);
	if (r < 0)
		return r;
	snprintf(why, PROGRAM_WHY_BYTES, "There is no memory for the program.");
	held = calloc(1, sizeof(*held));
	if (!held)
		return -ENOMEM;
	held->program = checked;
	held->pass_bytes = pass_bytes(&checked);
	held->weights = weights_ref(weights);
	r = copy_arrays(&held->program);
	if (r == 0)
		r = name_set(held);
	if (r < 0)
		held_program_free(held, NULL, NULL);
	else
		*ret = held;
	return r;
}

/* One row keeps everybody for as long as the weights take to be read: layers may name a matrix as
 * often as they like. */
static int cost_check(const struct held_program *held, const struct held_backend *with,
		      char why[PROGRAM_WHY_BYTES])
{
	double ms = held->cost.fixed_ns / 1e6;

	if (ms <= with->max_token_ms)
		return 0;
	snprintf(why, PROGRAM_WHY_BYTES,
		 "A token would take %.0f ms here, which is more than %u (max_token_ms): the "
		 "program is too long.",
		 ms, with->max_token_ms);
	return -E2BIG;
}

static int take_scratch(struct held_program *held, char why[PROGRAM_WHY_BYTES])
{
	return weights_take_scratch(held->weights, held->cost.scratch_bytes, &held->until_ns, why);
}

/* has_scratch: it is taken already. */
static int begin(struct held_program *held, const struct held_backend *with, bool has_scratch,
		 char why[PROGRAM_WHY_BYTES])
{
	const struct backend_program_ops *ops = with->ops->program;
	struct backend_program *program;
	int r;

	snprintf(why, PROGRAM_WHY_BYTES, "The backend has no memory for the program.");
	r = ops->program_new(with->backend, &held->program, held->weights->content.memory, &program,
			     why);
	if (r < 0)
		return r;
	ops->cost(with->backend, program, &held->cost);
	r = cost_check(held, with, why);
	if (r == 0 && !has_scratch)
		r = take_scratch(held, why);
	if (r < 0)
		ops->program_free(with->backend, program);
	else
		held->backend = program;
	return r;
}

/* Who asks again has been told what it takes: the backend makes nothing before there is room. */
static int try_begin(struct held_program *held, const struct held_backend *with,
		     char why[PROGRAM_WHY_BYTES])
{
	uint64_t known_bytes = held->cost.scratch_bytes;
	int r = known_bytes ? take_scratch(held, why) : 0;

	if (r < 0)
		return r;
	r = begin(held, with, known_bytes > 0, why);
	if (r < 0 && known_bytes)
		weights_give_scratch(held->weights, known_bytes);
	return r;
}

/* The first time nothing has gone for it: a device may be full of what nobody refers to. */
int held_program_begin(struct held_program *held, const struct held_backend *with,
		       char why[PROGRAM_WHY_BYTES])
{
	const struct backend_program_ops *ops = with->ops->program;
	bool first = held->cost.scratch_bytes == 0;
	int r = try_begin(held, with, why);

	if (r != -ENOMEM || !first || !ops->program_bytes)
		return r;
	held->cost.scratch_bytes = ops->program_bytes(with->backend, &held->program);
	return held->cost.scratch_bytes ? try_begin(held, with, why) : r;
}

bool held_program_prepare(struct held_program *held, const struct backend_ops *ops,
			  struct backend *backend)
{
	const struct backend_program_ops *with = ops->program;

	if (!held->ready)
		held->ready =
			!with->program_prepare || !with->program_prepare(backend, held->backend);
	return !held->ready;
}

void held_program_free(struct held_program *held, const struct backend_ops *ops,
		       struct backend *backend)
{
	if (!held)
		return;
	if (held->backend) {
		ops->program->program_free(backend, held->backend);
		weights_give_scratch(held->weights, held->cost.scratch_bytes);
	}
	free((void *)held->program.inv_freq);
	free((void *)held->program.ops);
	free((void *)held->program.kinds);
	free((void *)held->program.kind_of);
	free((void *)held->program.slots);
	weights_unref(held->weights);
	free(held);
}
