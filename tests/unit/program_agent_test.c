/*
 * program_agent_test.c - a program of a Llama's layers gives the bits that coppice-agent computes
 * for itself, layer by layer, with attention by the same backend.
 */
#include "client/agent/llama.h"
#include "kernels/plan/plan.h"
#include "program_machine.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TOKENS 100

static const struct model_want llama_want = {.n_layers = 3,
					     .n_q_heads = 6,
					     .n_kv_heads = 2,
					     .head_dim = 32,
					     .hidden = 112,
					     .intermediate = 200,
					     .n_vocab = 300,
					     .page_tokens = 32,
					     .n_turned = 32,
					     .act = PROGRAM_SILU,
					     .embed_factor = 1,
					     .logit_factor = 1,
					     .rope_factor = 1};

/* ---- the agent's model, of the same weights -------------------------------------------------- */

struct agent {
	struct llama model;
	struct llama_layer layers[MODEL_LAYERS];
};

static struct rows_matrix matrix(const struct program_model *m, uint32_t tensor)
{
	const struct program_tensor *t = &m->tensors[tensor];

	return (struct rows_matrix){m->weights + t->offset, t->dtype, t->n_out, t->n_in};
}

static struct llama_layer layer_of(const struct program_model *m, const uint32_t *slots)
{
	return (struct llama_layer){
		.attn_norm = m->values[slots[MODEL_NORM]],
		.mlp_norm = m->values[slots[MODEL_NORM_2]],
		.q = matrix(m, slots[MODEL_Q]),
		.k = matrix(m, slots[MODEL_K]),
		.v = matrix(m, slots[MODEL_V]),
		.o = matrix(m, slots[MODEL_O]),
		.gate = matrix(m, slots[MODEL_GATE]),
		.up = matrix(m, slots[MODEL_UP]),
		.down = matrix(m, slots[MODEL_DOWN]),
	};
}

static void agent_init(struct agent *agent, struct program_model *m)
{
	const struct model_want *w = &llama_want;

	*agent = (struct agent){.model = {
					.config = {.n_vocab = w->n_vocab,
						   .n_layers = w->n_layers,
						   .hidden = w->hidden,
						   .intermediate = w->intermediate,
						   .n_q_heads = w->n_q_heads,
						   .n_kv_heads = w->n_kv_heads,
						   .head_dim = w->head_dim,
						   .norm_eps = m->p.eps},
					.ops = rows_ops_select(NULL),
					.embed = matrix(m, m->p.embed),
					.head = matrix(m, m->p.head),
					.layers = agent->layers,
					.norm = m->values[m->p.final_norm],
					.inv_freq = m->inv_freq,
				}};
	for (uint32_t i = 0; i < w->n_layers; i++)
		agent->layers[i] = layer_of(m, m->slots + (size_t)i * MODEL_SLOTS);
}

/* ---- attention of a whole prompt, by a backend ----------------------------------------------- */

struct attention_job {
	struct attention base;
	struct backend *backend; /* owned */
	struct work_shape shape;
	struct work_node node;
	struct work_slice slices[TOKENS / 32 + 1];
	struct work_query query;
	struct work_tree tree;
	struct work_list list;
};

static int run(struct attention *base, uint32_t layer, const struct attention_part *parts,
	       uint32_t n_parts, struct fault *fault)
{
	struct attention_job *a = (struct attention_job *)base;
	size_t bytes = work_dtype_bytes(a->shape.dtype), dim = a->shape.head_dim;
	struct backend_io io = {
		.q = (uintptr_t)base->q,
		.k = (uintptr_t)base->k,
		.v = (uintptr_t)base->v,
		.o = (uintptr_t)base->o,
		.q_stride = a->shape.n_q_heads * dim * bytes,
		.k_stride = a->shape.n_kv_heads * dim * bytes,
		.v_stride = a->shape.n_kv_heads * dim * bytes,
		.o_stride = a->shape.n_q_heads * dim * bytes,
		.slots = a->slices,
		.n_slots = a->tree.n_slices,
	};
	struct backend_job job = {&a->shape, &a->tree, &a->list, &io, layer};
	uint64_t id;

	(void)parts;
	(void)n_parts;
	(void)fault;
	return backend_cpu.submit(a->backend, &(struct backend_batch){&job, 1}, &id);
}

static void attention_init(struct attention_job *a, const struct work_shape *shape)
{
	struct backend_config config = {8u << 20, 2u << 20, 1, NULL};
	size_t q = (size_t)TOKENS * shape->n_q_heads * shape->head_dim * 4;
	struct plan_config plan;

	*a = (struct attention_job){
		.base = {(enum coppice_dtype)shape->dtype, TOKENS, malloc(q), malloc(q), malloc(q),
			 malloc(q), run},
		.shape = *shape,
		.node = {WORK_NONE, 0, TOKENS, 0, TOKENS / 32 + 1},
		.query = {.n_rows = TOKENS},
	};
	for (uint32_t i = 0; i <= TOKENS / 32; i++)
		a->slices[i] = (struct work_slice){i, 0, i < TOKENS / 32 ? 32 : TOKENS % 32};
	a->tree = (struct work_tree){&a->node, a->slices, &a->query, 1, TOKENS / 32 + 1, 1};
	plan_config_init(&plan, PLAN_AUTO, shape, 2);
	plan.tile_rows = 64;
	plan.segment_tokens = WORK_TILE_TOKENS;
	assert_int_equal(plan_make(&plan, &a->tree, &a->list), 0);
	assert_int_equal(backend_cpu.open(&config, &a->backend, NULL, 0), 0);
	for (uint32_t i = 0; i < 4; i++)
		assert_int_equal(backend_cpu.extent_commit(a->backend, i), 0);
}

static void attention_done(struct attention_job *a)
{
	plan_list_done(&a->list);
	backend_cpu.close(a->backend);
	free(a->base.q);
	free(a->base.k);
	free(a->base.v);
	free(a->base.o);
}

/* ---- the test -------------------------------------------------------------------------------- */

static float *agent_logits(struct program_model *m, const uint32_t *ids)
{
	uint32_t positions[TOKENS];
	const struct llama_batch batch = {TOKENS, ids, positions, NULL, 0, positions, TOKENS};
	float *logits = malloc((size_t)TOKENS * m->p.n_vocab * sizeof(float));
	struct attention_job attention;
	struct llama_pass pass;
	struct agent agent;
	struct fault fault;

	assert_non_null(logits);
	for (uint32_t i = 0; i < TOKENS; i++)
		positions[i] = i;
	agent_init(&agent, m);
	attention_init(&attention, &m->p.shape);
	assert_int_equal(llama_pass_init(&pass, &agent.model, &attention.base, &fault), 0);
	assert_int_equal(llama_forward(&pass, &batch, logits, &fault), 0);
	llama_pass_done(&pass);
	attention_done(&attention);
	return logits;
}

static void check_bits(struct model_want want, struct oracle_random *random)
{
	struct program_model *m;
	struct machine machine;
	struct machine_result result;
	float *logits;

	m = model_new(&want, random);
	m->p.eps = 1e-5f; /* the agent's norms all have the same */
	machine_init(&machine, m, 2);
	for (uint32_t i = 0; i < TOKENS; i++)
		machine.seqs[0].ids[i] = oracle_below(random, want.n_vocab);
	machine_run(&machine, &(struct machine_part){0, TOKENS, NULL}, 1, 0, &result);
	logits = agent_logits(m, machine.seqs[0].ids);
	assert_memory_equal(result.logits, logits, (size_t)TOKENS * want.n_vocab * sizeof(float));
	free(logits);
	machine_result_done(&result);
	machine_done(&machine);
	model_free(m);
}

static void test_a_program_of_a_llama_gives_the_agents_bits(void **state)
{
	struct oracle_random random = oracle_seed(__func__);

	(void)state;
	for (uint32_t i = 0; i < 9; i++) {
		struct model_want want = llama_want;

		want.dtype = i % 3;
		want.weights = i / 3;
		want.tied = i % 2;
		check_bits(want, &random);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_program_of_a_llama_gives_the_agents_bits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
