/*
 * check.c - whether a program can be run: one walk over the widths of registers, layer by layer.
 *
 * What a walk knows of a register is how wide it is, 0 while nothing was written to it in this
 * layer. A tensor is looked at where it is used, so that what is wrong with it is told of a place.
 * Numbers are multiplied and added in 64 bits, or told when they do not fit.
 */
#include "program.h"

#include "kernels/heads.h"
#include "kernels/say.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define PLACE_BYTES 64
#define NAME_CHARS 120 /* of a tensor: more would leave no room for what is wrong with it */
#define DIM_MAX 256u
#define BAD(...) (tell(__VA_ARGS__), -EINVAL)

struct walk {
	const struct program *p;
	char *why;
	char place[PLACE_BYTES]; /* what is looked at */
	uint32_t layer;
	const struct program_op *op;
	uint32_t width[PROGRAM_REGISTERS];
	uint32_t n_attends; /* of the layer */
	struct program_widths most;
};

static const char *const kind_names[] = {
	[PROGRAM_NORM] = "NORM", [PROGRAM_LINEAR] = "LINEAR", [PROGRAM_ATTEND] = "ATTEND"};
static const uint32_t kind_flags[] = {
	[PROGRAM_NORM] = PROGRAM_ADD,
	[PROGRAM_LINEAR] = PROGRAM_ADD | PROGRAM_GATED,
	[PROGRAM_ATTEND] = PROGRAM_HEAD_NORM | PROGRAM_WIDE_NORM | PROGRAM_UNTURNED,
};
static const char register_names[] = "XABC";

__attribute__((format(printf, 2, 3))) static void tell(const struct walk *w, const char *format,
						       ...)
{
	int n = snprintf(w->why, PROGRAM_WHY_BYTES, "%s: ", w->place);
	va_list args;

	va_start(args, format);
	vsnprintf(w->why + n, PROGRAM_WHY_BYTES - (size_t)n, format, args);
	va_end(args);
}

/* ---- tensors --------------------------------------------------------------------------------- */

static const char *name_of(const struct program_tensor *t)
{
	return t->name ? t->name : "without a name";
}

/* Is it all in the weights' memory? */
static bool lies_inside(const struct program *p, const struct program_tensor *t)
{
	uint64_t n, bytes, end;

	return !__builtin_mul_overflow((uint64_t)(t->n_out ? t->n_out : 1), t->n_in, &n) &&
	       !__builtin_mul_overflow(n, work_dtype_bytes(t->dtype), &bytes) &&
	       !__builtin_add_overflow(t->offset, bytes, &end) && end <= p->weights_bytes;
}

static int find_tensor(const struct walk *w, uint32_t index, const struct program_tensor **ret)
{
	const struct program_tensor *t;

	if (index >= w->p->n_tensors)
		return BAD(w, "tensor %u of %u", index, w->p->n_tensors);
	t = &w->p->tensors[index];
	if (t->dtype != WORK_FP32 && t->dtype != WORK_FP16 && t->dtype != WORK_BF16)
		return BAD(w, "tensor %.*s is of a type that nobody knows (%d)", NAME_CHARS,
			   name_of(t), (int)t->dtype);
	if (t->n_in == 0 || t->offset % PROGRAM_ALIGN != 0)
		return BAD(w, "tensor %.*s is empty, or not aligned to %u bytes", NAME_CHARS,
			   name_of(t), PROGRAM_ALIGN);
	if (!lies_inside(w->p, t))
		return BAD(w, "tensor %.*s ends behind the weights' %llu bytes", NAME_CHARS,
			   name_of(t), (unsigned long long)w->p->weights_bytes);
	*ret = t;
	return 0;
}

static int find_matrix(const struct walk *w, uint32_t index, uint32_t n_in,
		       const struct program_tensor **ret)
{
	const struct program_tensor *t;
	int r = find_tensor(w, index, &t);

	if (r)
		return r;
	if (t->n_out == 0)
		return BAD(w, "tensor %.*s is [%u], [.., %u] is needed", NAME_CHARS, name_of(t),
			   t->n_in, n_in);
	if (t->n_in != n_in)
		return BAD(w, "tensor %.*s is [%u, %u], [.., %u] is needed", NAME_CHARS, name_of(t),
			   t->n_out, t->n_in, n_in);
	*ret = t;
	return 0;
}

static int check_vector(const struct walk *w, uint32_t index, uint64_t n)
{
	const struct program_tensor *t;
	int r = find_tensor(w, index, &t);

	if (r)
		return r;
	if (t->n_out != 0)
		return BAD(w, "tensor %.*s is [%u, %u], [%llu] is needed", NAME_CHARS, name_of(t),
			   t->n_out, t->n_in, (unsigned long long)n);
	if (t->n_in != n)
		return BAD(w, "tensor %.*s is [%u], [%llu] is needed", NAME_CHARS, name_of(t),
			   t->n_in, (unsigned long long)n);
	return 0;
}

/* The tensor of one of the operation's slots. */
static int find_slot(const struct walk *w, uint32_t slot, uint32_t *ret)
{
	uint32_t tensor;

	if (slot >= w->p->n_slots)
		return BAD(w, "slot %u of %u", slot, w->p->n_slots);
	tensor = w->p->slots[(size_t)w->layer * w->p->n_slots + slot];
	if (tensor == PROGRAM_NONE)
		return BAD(w, "slot %u has no tensor in this layer", slot);
	*ret = tensor;
	return 0;
}

static int check_slot_vector(const struct walk *w, uint32_t slot, uint64_t n)
{
	uint32_t tensor;
	int r = find_slot(w, slot, &tensor);

	return r ? r : check_vector(w, tensor, n);
}

/* ---- operations ------------------------------------------------------------------------------ */

/* The operation leaves so much in its register. */
static int write_out(struct walk *w, uint64_t width)
{
	uint32_t out = w->op->out;

	if (width > UINT32_MAX)
		return BAD(w, "makes %llu elements", (unsigned long long)width);
	if (out == PROGRAM_X && width != w->p->hidden)
		return BAD(w, "writes %llu elements to X, which has %u", (unsigned long long)width,
			   w->p->hidden);
	w->width[out] = (uint32_t)width;
	if (width > w->most.of[out])
		w->most.of[out] = (uint32_t)width;
	return 0;
}

static int check_norm(struct walk *w)
{
	uint32_t width = w->width[w->op->in];
	int r = check_slot_vector(w, w->op->w[0], width);

	return r ? r : write_out(w, width);
}

/* One matrix with its bias; adds its outputs to *n. */
static int check_matrix(const struct walk *w, uint32_t i, uint64_t *n)
{
	const struct program_tensor *t;
	uint32_t tensor;
	int r = find_slot(w, w->op->w[i], &tensor);

	if (!r)
		r = find_matrix(w, tensor, w->width[w->op->in], &t);
	if (!r && w->op->bias[i] != PROGRAM_NONE)
		r = check_slot_vector(w, w->op->bias[i], t->n_out);
	if (!r)
		*n += t->n_out;
	return r;
}

static int check_linear(struct walk *w)
{
	bool gated = w->op->flags & PROGRAM_GATED;
	uint64_t n = 0;
	int r = 0;

	if (w->op->in == w->op->out)
		return BAD(w, "reads and writes %c", register_names[w->op->in]);
	for (uint32_t i = 0; i < w->op->n_w && !r; i++)
		r = check_matrix(w, i, &n);
	if (r)
		return r;
	if (n > UINT32_MAX || (gated && n % 2 != 0))
		return BAD(w, "makes %llu elements%s", (unsigned long long)n,
			   gated ? ", which have no halves" : "");
	if (n > w->most.product)
		w->most.product = (uint32_t)n;
	return write_out(w, gated ? n / 2 : n);
}

static int check_attend(struct walk *w)
{
	uint64_t dim = w->p->shape.head_dim, q = w->p->shape.n_q_heads * dim;
	uint64_t kv = w->p->shape.n_kv_heads * dim;
	bool wide = w->op->flags & PROGRAM_WIDE_NORM;
	int r = 0;

	if (w->width[w->op->in] != q + 2 * kv)
		return BAD(w, "%c has %u elements, q, k and v are %llu", register_names[w->op->in],
			   w->width[w->op->in], (unsigned long long)(q + 2 * kv));
	if (w->op->n_w)
		r = check_slot_vector(w, w->op->w[0], wide ? q : dim);
	if (w->op->n_w && !r)
		r = check_slot_vector(w, w->op->w[1], wide ? kv : dim);
	w->n_attends++;
	return r ? r : write_out(w, q);
}

static bool n_w_fits(const struct program_op *op)
{
	bool norms = op->flags & (PROGRAM_HEAD_NORM | PROGRAM_WIDE_NORM);

	if (op->kind == PROGRAM_LINEAR)
		return op->n_w >= 1 && op->n_w <= 3;
	return op->n_w == (op->kind == PROGRAM_NORM ? 1u : norms ? 2u : 0u);
}

/* Nothing is said where nothing is looked at. */
static bool rest_is_unused(const struct program_op *op)
{
	uint32_t n_bias = op->kind == PROGRAM_LINEAR ? op->n_w : 0;

	for (uint32_t i = op->n_w; i < 3; i++)
		if (op->w[i] != PROGRAM_NONE)
			return false;
	for (uint32_t i = n_bias; i < 3; i++)
		if (op->bias[i] != PROGRAM_NONE)
			return false;
	return true;
}

/* What can be said of an operation without its tensors. */
static int check_fields(const struct walk *w)
{
	const struct program_op *op = w->op;

	if (op->flags & ~kind_flags[op->kind])
		return BAD(w, "flags %#x, of which %s knows %#x", op->flags, kind_names[op->kind],
			   kind_flags[op->kind]);
	if ((op->flags & PROGRAM_HEAD_NORM) && (op->flags & PROGRAM_WIDE_NORM))
		return BAD(w, "norms of heads, and over all heads");
	if (op->in >= PROGRAM_REGISTERS || op->out >= PROGRAM_REGISTERS)
		return BAD(w, "registers %u and %u of %u", op->in, op->out, PROGRAM_REGISTERS);
	if ((op->flags & PROGRAM_ADD) && op->out != PROGRAM_X)
		return BAD(w, "adds to %c; to X alone can be added", register_names[op->out]);
	if (w->width[op->in] == 0)
		return BAD(w, "reads %c, to which this layer has written nothing",
			   register_names[op->in]);
	if (op->act > (op->flags & PROGRAM_GATED ? PROGRAM_GELU_TANH : PROGRAM_ACT_NONE))
		return BAD(w, "activation %u%s", op->act,
			   op->flags & PROGRAM_GATED ? ", which nobody knows" : " without a gate");
	if (!n_w_fits(op) || !rest_is_unused(op))
		return BAD(w, "%u weights; what is unused of weights and biases has no slot",
			   op->n_w);
	if (!isfinite(op->eps) || op->eps < 0)
		return BAD(w, "eps %g", (double)op->eps);
	return 0;
}

static int check_op(struct walk *w)
{
	uint32_t kind = w->op->kind;
	int r;

	if (kind < PROGRAM_NORM || kind > PROGRAM_ATTEND)
		return BAD(w, "kind %u, which nobody knows", kind);
	r = check_fields(w);
	if (r)
		return r;
	if (kind == PROGRAM_NORM)
		return check_norm(w);
	return kind == PROGRAM_LINEAR ? check_linear(w) : check_attend(w);
}

/* ---- layers ---------------------------------------------------------------------------------- */

static void enter_op(struct walk *w, uint32_t index, const struct program_op *op)
{
	bool known = op->kind >= PROGRAM_NORM && op->kind <= PROGRAM_ATTEND;

	w->op = op;
	snprintf(w->place, sizeof(w->place), "layer %u, operation %u (%s)", w->layer, index,
		 known ? kind_names[op->kind] : "?");
}

static int check_layer(struct walk *w)
{
	uint32_t kind = w->p->kind_of[w->layer];
	const struct program_kind *k;
	int r = 0;

	snprintf(w->place, sizeof(w->place), "layer %u", w->layer);
	if (kind >= w->p->n_kinds)
		return BAD(w, "is of kind %u of %u", kind, w->p->n_kinds);
	k = &w->p->kinds[kind];
	memset(w->width, 0, sizeof(w->width));
	w->width[PROGRAM_X] = w->p->hidden;
	w->n_attends = 0;
	for (uint32_t i = 0; i < k->n_ops && !r; i++) {
		enter_op(w, i, &w->p->ops[k->first_op + i]);
		r = check_op(w);
	}
	if (r)
		return r;
	snprintf(w->place, sizeof(w->place), "layer %u", w->layer);
	return w->n_attends == 1 ? 0
				 : BAD(w, "%u operations are ATTEND, 1 is needed", w->n_attends);
}

static int check_kinds(struct walk *w)
{
	const struct program *p = w->p;

	if (p->n_kinds == 0 || p->n_kinds > PROGRAM_KINDS_MAX || p->n_slots > PROGRAM_SLOTS_MAX)
		return BAD(w, "%u kinds of layers and %u slots; at most %u and %u can be done",
			   p->n_kinds, p->n_slots, PROGRAM_KINDS_MAX, PROGRAM_SLOTS_MAX);
	for (uint32_t i = 0; i < p->n_kinds; i++) {
		const struct program_kind *k = &p->kinds[i];

		if (k->n_ops == 0 || k->n_ops > PROGRAM_OPS_MAX || k->n_ops > p->n_ops ||
		    k->first_op > p->n_ops - k->n_ops)
			return BAD(w,
				   "kind %u has %u operations from %u on, of %u; at most %u can be "
				   "done",
				   i, k->n_ops, k->first_op, p->n_ops, PROGRAM_OPS_MAX);
	}
	return 0;
}

/* ---- what all layers share ------------------------------------------------------------------- */

static int check_shape(struct walk *w)
{
	const struct work_shape *s = &w->p->shape;
	char error[PROGRAM_WHY_BYTES / 2];

	if (!heads_check(s, error, sizeof(error)))
		return BAD(w, "%s", error);
	if (s->n_layers > PROGRAM_LAYERS_MAX)
		return BAD(w, "%u layers; at most %u can be done", s->n_layers, PROGRAM_LAYERS_MAX);
	if (s->head_dim == 0 || s->head_dim % 16 != 0 || s->head_dim > DIM_MAX)
		return BAD(w, "head_dim %u is no multiple of 16 from 16 to %u", s->head_dim,
			   DIM_MAX);
	if (s->page_tokens != 16 && s->page_tokens != 32 && s->page_tokens != 64)
		return BAD(w, "page_tokens %u is not 16, 32 or 64", s->page_tokens);
	if (s->dtype != WORK_FP32 && s->dtype != WORK_FP16 && s->dtype != WORK_BF16)
		return BAD(w, "dtype %d is not fp32, fp16 or bf16", (int)s->dtype);
	if (w->p->hidden == 0 || w->p->n_vocab == 0 || w->p->max_positions == 0)
		return BAD(w, "hidden %u, n_vocab %u, max_positions %u: none may be 0",
			   w->p->hidden, w->p->n_vocab, w->p->max_positions);
	return 0;
}

static int check_factors(struct walk *w)
{
	const struct {
		const char *name;
		float value;
	} factors[] = {{"scale", w->p->shape.scale},
		       {"embed_factor", w->p->embed_factor},
		       {"logit_factor", w->p->logit_factor},
		       {"rope_factor", w->p->rope_factor}};

	for (uint32_t i = 0; i < sizeof(factors) / sizeof(factors[0]); i++)
		if (!isfinite(factors[i].value))
			return BAD(w, "%s %g is not finite", factors[i].name,
				   (double)factors[i].value);
	if (!isfinite(w->p->eps) || w->p->eps < 0)
		return BAD(w, "eps %g", (double)w->p->eps);
	return 0;
}

static int check_turns(struct walk *w)
{
	const struct program *p = w->p;

	if (p->n_turned % 2 != 0 || p->n_turned > p->shape.head_dim)
		return BAD(w, "n_turned %u is odd, or above the head_dim %u", p->n_turned,
			   p->shape.head_dim);
	for (uint32_t i = 0; i < p->n_turned / 2; i++)
		if (!isfinite(p->inv_freq[i]))
			return BAD(w, "inv_freq[%u] %g is not finite", i, p->inv_freq[i]);
	return 0;
}

/* A matrix with a row for each id. */
static int check_ids(struct walk *w, const char *place, uint32_t tensor)
{
	const struct program_tensor *t;
	int r;

	snprintf(w->place, sizeof(w->place), "%s", place);
	r = find_matrix(w, tensor, w->p->hidden, &t);
	if (!r && t->n_out != w->p->n_vocab)
		r = BAD(w, "tensor %.*s is [%u, %u], [%u, %u] is needed", NAME_CHARS, name_of(t),
			t->n_out, t->n_in, w->p->n_vocab, w->p->hidden);
	return r;
}

static int check_ends(struct walk *w)
{
	int r = check_ids(w, "embedding", w->p->embed);

	if (!r)
		r = check_ids(w, "head", w->p->head);
	snprintf(w->place, sizeof(w->place), "final norm");
	return r ? r : check_vector(w, w->p->final_norm, w->p->hidden);
}

int program_check(const struct program *p, struct program_widths *ret, char why[PROGRAM_WHY_BYTES])
{
	struct walk w = {.p = p, .why = why, .place = "program"};
	int r = check_shape(&w);

	if (!r)
		r = check_factors(&w);
	if (!r)
		r = check_turns(&w);
	if (!r)
		r = check_kinds(&w);
	if (!r)
		r = check_ends(&w);
	w.most.of[PROGRAM_X] = p->hidden;
	for (w.layer = 0; !r && w.layer < p->shape.n_layers; w.layer++)
		r = check_layer(&w);
	if (!r)
		*ret = w.most;
	return r;
}
