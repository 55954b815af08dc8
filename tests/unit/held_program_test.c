/*
 * held_program_test.c - the name of a program: the same for who gives the same, and another one for
 * whatever else would be computed, as KV is found by it.
 */
#include "daemon/program/held_program.h"
#include "daemon/weights/held.h"
#include "program_model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

struct given {
	struct program_model *model;
	struct weights_table table;
	struct weights weights;
	struct weights_digest digests[MODEL_TENSORS];
};

/* Two kinds of layers, rotary embeddings, biases. */
static void give(struct given *g)
{
	struct oracle_random random = {5};
	const struct model_want want = {
		.n_layers = 4,
		.n_q_heads = 2,
		.n_kv_heads = 1,
		.head_dim = 16,
		.hidden = 32,
		.intermediate = 24,
		.n_vocab = 40,
		.page_tokens = 16,
		.n_turned = 8,
		.dtype = WORK_FP32,
		.weights = WORK_FP32,
		.biases = true,
		.unturned = true,
		.act = PROGRAM_SILU,
		.embed_factor = 1,
		.logit_factor = 1,
		.rope_factor = 1,
	};

	memset(g, 0, sizeof(*g));
	g->model = model_new(&want, &random);
	assert_true(g->model->p.n_kinds > 1);
	pthread_mutex_init(&g->table.lock, NULL);
	for (uint32_t i = 0; i < MODEL_TENSORS; i++)
		g->digests[i].bytes[0] = (uint8_t)(1 + i);
	g->weights.home = &g->table;
	g->weights.state = WEIGHTS_READY;
	g->weights.n_refs = 2; /* so that nobody frees them */
	g->weights.content.tensors = g->model->tensors;
	g->weights.content.digests = g->digests;
	g->weights.content.n_tensors = g->model->p.n_tensors;
	g->weights.content.bytes = g->model->p.weights_bytes;
}

static void take_back(struct given *g)
{
	assert_int_equal(g->weights.n_refs, 2);
	pthread_mutex_destroy(&g->table.lock);
	model_free(g->model);
}

static void name_of(struct given *g, char ret[HELD_PROGRAM_NAME_BYTES])
{
	struct held_program *held;
	char why[PROGRAM_WHY_BYTES];

	if (held_program_new(&g->model->p, &g->weights, &held, why) != 0)
		fail_msg("%s", why);
	strcpy(ret, held->name);
	held_program_free(held, NULL, NULL);
}

/* ---- what is another program ----------------------------------------------------------------- */

static struct program_op *last_op_of(struct given *g, uint32_t kind)
{
	const struct program_kind *k = &g->model->kinds[kind];

	return &g->model->ops[k->first_op + k->n_ops - 1];
}

static void first_kind_ends_sooner(struct given *g)
{
	g->model->kinds[0].n_ops--;
}

static void last_kind_ends_sooner(struct given *g)
{
	g->model->kinds[g->model->p.n_kinds - 1].n_ops--;
}

static void layer_is_of_another_kind(struct given *g)
{
	g->model->kind_of[1] = g->model->kind_of[0];
}

static void operation_adds_no_more(struct given *g)
{
	last_op_of(g, 0)->flags ^= PROGRAM_ADD;
}

static void another_act(struct given *g)
{
	for (uint32_t i = 0; i < g->model->p.n_ops; i++)
		if (g->model->ops[i].flags & PROGRAM_GATED)
			g->model->ops[i].act = PROGRAM_GELU;
}

static void another_scale(struct given *g)
{
	g->model->p.shape.scale *= 2;
}

static void another_eps(struct given *g)
{
	g->model->p.eps *= 2;
}

static void another_factor(struct given *g)
{
	g->model->p.rope_factor = 2;
}

static void another_frequency(struct given *g)
{
	g->model->inv_freq[g->model->p.n_turned / 2 - 1] *= 2;
}

static void another_type_of_kv(struct given *g)
{
	g->model->p.shape.dtype = WORK_FP16;
}

static void another_tensor(struct given *g)
{
	g->digests[g->model->slots[MODEL_Q]].bytes[7]++;
}

static void another_head(struct given *g)
{
	g->digests[g->model->p.head].bytes[15]++;
}

static void whatever_is_computed_otherwise_has_another_name(void **state)
{
	static void (*const changes[])(struct given *) = {
		first_kind_ends_sooner,
		last_kind_ends_sooner,
		layer_is_of_another_kind,
		operation_adds_no_more,
		another_act,
		another_scale,
		another_eps,
		another_factor,
		another_frequency,
		another_type_of_kv,
		another_tensor,
		another_head,
	};
	char own[HELD_PROGRAM_NAME_BYTES], other[HELD_PROGRAM_NAME_BYTES];

	(void)state;
	for (size_t i = 0; i < sizeof(changes) / sizeof(*changes); i++) {
		struct given g;

		give(&g);
		name_of(&g, own);
		changes[i](&g);
		name_of(&g, other);
		if (!strcmp(own, other))
			fail_msg("change %zu has the same name, %s", i, own);
		take_back(&g);
	}
}

static void who_gives_the_same_has_the_same_name(void **state)
{
	char names[2][HELD_PROGRAM_NAME_BYTES];
	struct given g;

	(void)state;
	for (int i = 0; i < 2; i++) {
		give(&g);
		name_of(&g, names[i]);
		take_back(&g);
	}
	assert_string_equal(names[0], names[1]);
	/* where a tensor lies says nothing */
	give(&g);
	g.model->tensors[g.model->p.head].name = "elsewhere";
	name_of(&g, names[1]);
	assert_string_equal(names[0], names[1]);
	take_back(&g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(whatever_is_computed_otherwise_has_another_name),
		cmocka_unit_test(who_gives_the_same_has_the_same_name),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
