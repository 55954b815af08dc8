/*
 * head.c - final norm and head of the wanted rows alone, some at a time, and what comes of their
 * logits, which never leave the device unless somebody wants all of them.
 *
 * So many rows go at a time that reading the head again for the next ones is little beside their
 * products.
 */
#include "head.h"

#include "proto/arith.h"

#include "product.h"

#define OF_LOGITS (PROGRAM_WANT_TOP | PROGRAM_WANT_SCORE | PROGRAM_WANT_LOGITS)

/* Wanted rows [first, first + n). */
struct head {
	struct batch *b;
	const struct backend_run *run;
	uint32_t first, n;
	uint64_t *begin_ns; /* NULL: others come behind them */
};

static int norm_wanted(const struct head *head)
{
	const struct backend_program *program = head->run->program;
	const struct program *p = program->p;
	const struct program_scratch *s = &program->scratch;
	bool bf16 = p->shape.dtype == WORK_BF16;
	struct device_norm norm = {
		.wide = s->wide[PROGRAM_X],
		.weight = product_vector(program, &p->tensors[p->final_norm]),
		.out = {.narrow = s->normed, .narrow_stride = p->hidden, .bf16 = bf16},
		.wanted = s->wanted + head->first,
		.begin_ns = head->begin_ns,
		.stride = s->stride[PROGRAM_X],
		.n = p->hidden,
		.n_rows = head->n,
		.n_vocab = p->n_vocab,
		.eps = p->eps,
	};

	return queue_expect(&head->b->queue, device_norm(&norm, queue_to(&head->b->queue)));
}

static struct device_few few_of(const struct backend_program *program, uint32_t n_rows)
{
	const struct program *p = program->p;
	const struct program_scratch *s = &program->scratch;

	return (struct device_few){
		.in = s->normed,
		.w = {program->weights->base + p->tensors[p->head].offset},
		.out = {.wide = s->logits,
			.wide_stride = s->logits_stride,
			.bf16 = p->shape.dtype == WORK_BF16},
		.n_out = {p->n_vocab},
		.in_stride = p->hidden,
		.w_stride = p->hidden,
		.n_in = p->hidden,
		.n_rows = n_rows,
	};
}

static int multiply_many(struct batch *b, const struct backend_program *program, uint32_t n_rows)
{
	const struct program *p = program->p;
	const struct lt_product product = {
		.w = program->weights->base + p->tensors[p->head].offset,
		.in = program->scratch.normed,
		.out = program->scratch.logits,
		.n_w = 1,
		.n_out = p->n_vocab,
		.n_in = p->hidden,
		.n_rows = n_rows,
		.in_stride = p->hidden,
		.out_stride = program->scratch.logits_stride,
		.type = p->shape.dtype,
		.out_type = WORK_FP32,
	};

	return product_run(b, program, &product);
}

int head_multiply(struct batch *b, const struct backend_program *program, uint32_t n_rows)
{
	const struct device_few few = few_of(program, n_rows);

	return product_takes_few(&few) ? product_few(b, program, &few)
				       : multiply_many(b, program, n_rows);
}

static int tell(const struct head *head, bool logits)
{
	const struct backend_program *program = head->run->program;
	const struct program_scratch *s = &program->scratch;
	struct device_results results = {
		.logits = s->logits,
		.wanted = s->wanted + head->first,
		.sums = s->sums,
		.tops = s->tops,
		.stride = s->logits_stride,
		.factor = program->p->logit_factor,
		.n_vocab = program->p->n_vocab,
		.n_rows = head->n,
		.n_chunks = logits ? results_chunks(program->p->n_vocab) : 0,
	};

	return queue_expect(&head->b->queue, device_results(&results, queue_to(&head->b->queue)));
}

static bool wants_logits(const struct head *head)
{
	for (uint32_t i = 0; i < head->n; i++)
		if (head->run->rows->wanted[head->first + i].want & OF_LOGITS)
			return true;
	return false;
}

static int run_some(const struct head *head)
{
	bool logits = wants_logits(head);
	int r = norm_wanted(head);

	if (!r && logits)
		r = head_multiply(head->b, head->run->program, head->n);
	return r ? r : tell(head, logits);
}

uint32_t head_blocks(const struct backend_run *run)
{
	return ceil_div(run->rows->n_wanted, PROGRAM_HEAD_ROWS);
}

int head_run(struct batch *b, const struct backend_run *run, uint32_t block, uint64_t *ending_ns)
{
	uint32_t first = block * PROGRAM_HEAD_ROWS, left = run->rows->n_wanted - first;
	const struct head head = {b, run, first, min_u32(left, PROGRAM_HEAD_ROWS),
				  left <= PROGRAM_HEAD_ROWS ? ending_ns : NULL};

	return run_some(&head);
}
