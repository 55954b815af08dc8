/*
 * api_fixture.c - the daemon, two sessions, and sequences that are not what they seem.
 *
 * The model has two layers and one head, so that O and LSE of a right step are known in closed form
 * in every type. Handles that are closed, another session's or on the wrong lane are copies of the
 * library's own struct: the library cannot tell, the daemon has to.
 */
#include "api_fixture.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ROWS_ELEMENTS (N_NEW * HEAD_DIM)

struct counts counts_of(struct fixture *f)
{
	Coppice__Status m = COPPICE__STATUS__INIT;
	const Coppice__Reply *reply = client_verb(&f->watch, status, &m);

	assert_int_equal(reply->code, 0);
	return (struct counts){reply->status->n_nodes, reply->status->n_tokens,
			       reply->status->n_pages, reply->status->n_seqs,
			       reply->status->n_pins};
}

void assert_counts(struct fixture *f, const struct counts *before)
{
	struct counts now = counts_of(f);

	assert_memory_equal(&now, before, sizeof(now));
}

void assert_explained(struct coppice *c, const char *words)
{
	if (!strstr(coppice_explain(c), words))
		fail_msg("\"%s\" does not say \"%s\"", coppice_explain(c), words);
}

/* ---- the daemon and two sessions ------------------------------------------------------------ */

struct coppice_model_info fixture_model(void)
{
	return (struct coppice_model_info){
		.name = "m",
		.n_layers = N_LAYERS,
		.n_q_heads = 1,
		.n_kv_heads = 1,
		.head_dim = HEAD_DIM,
		.dtype = (enum coppice_dtype)element_dtype(),
	};
}

void fixture_open_seq(struct fixture *f)
{
	struct coppice_match match;

	assert_int_equal(coppice_seq_open(f->lane, f->model, f->ids, 1, 0, &f->seq, &match), 0);
}

static void make_ghosts(struct fixture *f)
{
	struct coppice_match match;

	fixture_open_seq(f);
	f->closed = *f->seq;
	coppice_seq_close(f->seq);
	assert_int_equal(coppice_seq_open(f->strangers_lane, f->strangers_model, f->ids, 1, 1,
					  &f->strangers_seq, &match),
			 0);
	fixture_open_seq(f);
	f->foreign = *f->seq;
	f->foreign.handle = f->strangers_seq->handle;
	f->astray = *f->seq;
	f->astray.lane = f->other_lane;
}

static int setup_with(void **state, const char *flag, const char *flag2)
{
	struct fixture *f = calloc(1, sizeof(*f));
	struct coppice_model_info info = fixture_model();

	assert_non_null(f);
	for (uint32_t i = 0; i < N_IDS; i++)
		f->ids[i] = i;
	f->h = harness_new("auto");
	f->h->flags[0] = "--max-seq-tokens=30000";
	f->h->flags[1] = "--max-arenas=4";
	f->h->flags[2] = flag;
	f->h->flags[3] = flag2;
	harness_start(f->h);
	f->watch = client_open(f->h);
	assert_int_equal(coppice_connect(&f->c, f->h->socket), 0);
	assert_int_equal(coppice_connect(&f->stranger, f->h->socket), 0);
	assert_int_equal(coppice_model_open(f->c, &info, &f->model), 0);
	assert_int_equal(coppice_model_open(f->stranger, &info, &f->strangers_model), 0);
	assert_int_equal(coppice_arena_new(f->c, COPPICE_HOST, 1, &f->arena), 0);
	assert_int_equal(coppice_arena_new(f->c, COPPICE_HOST, 1, &f->other_arena), 0);
	assert_int_equal(coppice_lane_new(f->c, &f->lane), 0);
	assert_int_equal(coppice_lane_new(f->c, &f->other_lane), 0);
	assert_int_equal(coppice_lane_new(f->stranger, &f->strangers_lane), 0);
	make_ghosts(f);
	*state = f;
	return 0;
}

int fixture_setup(void **state)
{
	return setup_with(state, NULL, NULL);
}

/* Room for 4,096 tokens of the model in fp32, twice as many in fp16. */
int fixture_setup_small_pool(void **state)
{
	return setup_with(state, "--pool=4M", "--extent=2M");
}

int fixture_setup_small_share(void **state)
{
	return setup_with(state, "--domain-bytes=4M", NULL);
}

int fixture_teardown(void **state)
{
	struct fixture *f = *state;
	void *h = f->h;

	coppice_close(f->c);
	coppice_close(f->stranger);
	client_close(&f->watch);
	free(f);
	return harness_teardown(&h);
}

/* ---- right steps ---------------------------------------------------------------------------- */

struct coppice_step_seq right_part(struct fixture *f)
{
	void *rows = coppice_arena_base(f->arena);

	return (struct coppice_step_seq){
		.seq = f->seq,
		.n_new = N_NEW,
		.q = rows,
		.k = element_at(rows, ROWS_ELEMENTS),
		.v = element_at(rows, 2 * ROWS_ELEMENTS),
		.o = element_at(rows, 3 * ROWS_ELEMENTS),
		.lse = element_at(rows, 4 * ROWS_ELEMENTS),
	};
}

/* Every token's V is the same, and so is what attention makes of them. Of its K a token's place is
 * the score, in both types exactly: each of HEAD_DIM products is 1/8 of it, and the scale 1/8. */
static void fill_rows(const struct coppice_step_seq *part)
{
	void *q = (void *)(uintptr_t)part->q, *k = (void *)(uintptr_t)part->k;
	void *v = (void *)(uintptr_t)part->v;

	static_assert(HEAD_DIM == 64, "the scale is 1/8");
	for (uint32_t i = 0; i < ROWS_ELEMENTS; i++) {
		element_put(q, i, 0.125f);
		element_put(k, i, (float)(i / HEAD_DIM));
		element_put(v, i, (float)(i % HEAD_DIM));
		element_put(part->o, i, -1);
	}
	for (uint32_t i = 0; i < N_NEW; i++)
		part->lse[i] = -1;
}

/* Row i has seen the scores 0 to i. */
static void assert_rows(const struct coppice_step_seq *part)
{
	/* fp16 rounds weights and output by up to 2^-11 of the largest value */
	const double tolerance = test_on_gpu() ? 0.1 : 1e-4;
	double sum = 0;

	for (uint32_t i = 0; i < ROWS_ELEMENTS; i++)
		assert_float_equal(element_get(part->o, i), (float)(i % HEAD_DIM), tolerance);
	/* of scores that are exact: what is left is fp32's, and on a device that of its fast exp2
	 * and log2 */
	for (uint32_t i = 0; i < N_NEW; i++) {
		sum += exp(i);
		assert_float_equal(part->lse[i], log(sum), LSE_TOLERANCE);
	}
}

int right_step(struct fixture *f, uint32_t layer)
{
	struct coppice_step_seq part = right_part(f);
	struct coppice_step step = {.layer = layer, .seqs = &part, .n_seqs = 1};
	uint64_t ticket;
	int r;

	fill_rows(&part);
	assert_int_equal(coppice_step(f->lane, &step, &ticket), 0);
	r = coppice_wait(f->lane, ticket, PATIENCE_NS);
	if (r == 0)
		assert_rows(&part);
	return r;
}

void fixture_extend(struct fixture *f)
{
	uint64_t ticket;

	assert_int_equal(coppice_seq_extend(f->seq, f->ids, N_NEW, &ticket), 0);
	assert_int_equal(coppice_wait(f->lane, ticket, PATIENCE_NS), 0);
}

void fixture_trim(struct fixture *f)
{
	uint64_t ticket;

	assert_int_equal(coppice_seq_trim(f->seq, 0, &ticket), 0);
	assert_int_equal(coppice_wait(f->lane, ticket, PATIENCE_NS), 0);
}

void fixture_finish(struct fixture *f)
{
	for (uint32_t layer = 0; layer < N_LAYERS; layer++)
		assert_int_equal(right_step(f, layer), 0);
}

void assert_usable(struct fixture *f)
{
	fixture_extend(f);
	fixture_finish(f);
	fixture_trim(f);
}
