/*
 * heads_test.c - the ranks of a tensor-parallel engine as clients, each with its heads of a model:
 * they get what a client with all heads gets, on the device that has these heads, and share nothing
 * with each other. argv[1] is the daemon's program. With COPPICE_TEST_BACKEND=cuda the devices are
 * the four of COPPICE_TEST_DEVICES.
 */
#include "client/coppice.h"
#include "control_harness.h"
#include "element.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define N_LAYERS 2u
#define N_KV_HEADS 8u
#define RATIO 2u
#define HEAD_DIM 64u
#define N_RANKS 4u
#define PROMPT_TOKENS 70u
#define NEXT_TOKENS 5u
#define TOKENS (PROMPT_TOKENS + NEXT_TOKENS)
#define Q_VALUES (N_KV_HEADS * RATIO * HEAD_DIM) /* of a row of all heads */
#define PATIENCE_NS UINT64_C(30000000000)
#define ARENA_BYTES (UINT64_C(2) << 20)
#define FP16_BOUND 2e-3 /* sums and outputs rounded in another order, of values below 1 */

/* A client with KV heads [first, first + n) of the model's; n is N_KV_HEADS: with all. */
struct rank {
	uint32_t first, n;
	struct coppice *c;
	struct coppice_arena *arena;
	struct coppice_lane *lane;
	struct coppice_seq *seq;
	uint32_t model;
	struct coppice_match match;
};

static uint32_t ids[TOKENS];

static struct harness *start(const char *devices, const char *split)
{
	struct harness *h = harness_new("auto");

	h->flags[0] = "--extent=2M";
	h->flags[1] = "--pool=64M";
	h->flags[2] = devices ? split : NULL;
	h->flags[3] = test_on_gpu() ? NULL : devices; /* GPUs are the harness's to name */
	harness_start(h);
	for (uint32_t i = 0; i < TOKENS; i++)
		ids[i] = i + 7;
	return h;
}

static void stop(struct harness *h)
{
	void *state = h;

	harness_teardown(&state);
}

static struct coppice_model_info info_of(uint32_t first, uint32_t n)
{
	return (struct coppice_model_info){
		.name = "engine",
		.n_layers = N_LAYERS,
		.n_q_heads = N_KV_HEADS * RATIO,
		.n_kv_heads = N_KV_HEADS,
		.head_dim = HEAD_DIM,
		.dtype = (enum coppice_dtype)element_dtype(),
		.first_kv_head = n == N_KV_HEADS ? 0 : first,
		.own_kv_heads = n == N_KV_HEADS ? 0 : n,
	};
}

static struct rank rank_open(const struct harness *h, uint32_t first, uint32_t n)
{
	struct coppice_model_info info = info_of(first, n);
	struct rank r = {.first = first, .n = n};

	assert_int_equal(coppice_connect(&r.c, h->socket), 0);
	assert_int_equal(coppice_model_open(r.c, &info, &r.model), 0);
	assert_int_equal(coppice_arena_new(r.c, COPPICE_HOST, ARENA_BYTES, &r.arena), 0);
	assert_int_equal(coppice_lane_new(r.c, &r.lane), 0);
	assert_int_equal(coppice_seq_open(r.lane, r.model, ids, PROMPT_TOKENS, 0, &r.seq, &r.match),
			 0);
	return r;
}

static void rank_close(struct rank *r)
{
	coppice_close(r->c);
}

/* ---- steps ---------------------------------------------------------------------------------- */

enum kind { KIND_Q, KIND_K, KIND_V };

/* The i-th value of a head: anything, but always the same. */
static float value(uint32_t layer, uint32_t token, enum kind kind, uint32_t head, uint32_t i)
{
	uint32_t x = (((layer * 131 + token) * 7 + kind) * 31 + head) * 64 + i;

	x = (x ^ x >> 15) * 0x2c1b3c6du;
	x = (x ^ x >> 12) * 0x297a2d39u;
	return (float)((x ^ x >> 15) >> 8) / (float)(1 << 23) - 1;
}

/* Rows of tokens first and on, of the rank's heads alone. */
static void fill(const struct rank *r, void *to, uint32_t layer, uint32_t first, uint32_t n,
		 enum kind kind)
{
	uint32_t ratio = kind == KIND_Q ? RATIO : 1;
	size_t at = 0;

	for (uint32_t token = first; token < first + n; token++) {
		for (uint32_t head = r->first * ratio; head < (r->first + r->n) * ratio; head++) {
			for (uint32_t i = 0; i < HEAD_DIM; i++)
				element_put(to, at++, value(layer, token, kind, head, i));
		}
	}
}

/* O of n tokens from first on goes to o, [tokens][the rank's query heads][HEAD_DIM]. */
static void rank_step(struct rank *r, uint32_t layer, uint32_t first, uint32_t n, float *o)
{
	uint32_t q_values = r->n * RATIO * HEAD_DIM, kv_values = r->n * HEAD_DIM;
	void *q = coppice_arena_base(r->arena), *k = element_at(q, TOKENS * q_values);
	void *v = element_at(k, TOKENS * kv_values), *out = element_at(v, TOKENS * kv_values);
	struct coppice_step_seq part = {
		.seq = r->seq, .n_new = n, .q = q, .k = k, .v = v, .o = out};
	struct coppice_step step = {.layer = layer, .seqs = &part, .n_seqs = 1};
	uint64_t ticket;

	fill(r, q, layer, first, n, KIND_Q);
	fill(r, k, layer, first, n, KIND_K);
	fill(r, v, layer, first, n, KIND_V);
	assert_int_equal(coppice_step(r->lane, &step, &ticket), 0);
	assert_int_equal(coppice_wait(r->lane, ticket, PATIENCE_NS), 0);
	for (size_t i = 0; i < n * q_values; i++)
		o[i] = element_get(out, i);
}

/* A prompt, then token by token. o: [layers][TOKENS][the rank's query heads][HEAD_DIM], owned by
 * the caller. */
static float *rank_run(struct rank *r)
{
	size_t row = r->n * RATIO * HEAD_DIM;
	float *o = calloc(N_LAYERS * TOKENS * row, sizeof(float));
	uint64_t ticket;

	assert_non_null(o);
	for (uint32_t first = 0, n = PROMPT_TOKENS; first < TOKENS; first += n, n = 1) {
		assert_int_equal(coppice_seq_extend(r->seq, ids + first, n, &ticket), 0);
		for (uint32_t layer = 0; layer < N_LAYERS; layer++)
			rank_step(r, layer, first, n, o + (layer * TOKENS + first) * row);
	}
	return o;
}

/* What the rank got is what the client with all heads got of its heads. */
static void assert_part(const struct rank *r, const float *part, const float *whole, double bound)
{
	size_t row = r->n * RATIO * HEAD_DIM;
	double worst = 0;

	for (size_t i = 0; i < N_LAYERS * TOKENS; i++) {
		const float *want = whole + i * Q_VALUES + r->first * RATIO * HEAD_DIM;

		for (size_t j = 0; j < row; j++)
			worst = fmax(worst, fabs((double)part[i * row + j] - want[j]));
	}
	if (!(worst <= bound))
		fail_msg("heads from %u on: off by %g", r->first, worst);
}

/* ---- tests ---------------------------------------------------------------------------------- */

static void run_ranks(const char *devices, const char *split, double bound)
{
	struct harness *h = start(devices, split);
	struct rank whole = rank_open(h, 0, N_KV_HEADS);
	float *all = rank_run(&whole);

	for (uint32_t i = 0; i < N_RANKS; i++) {
		uint32_t n = N_KV_HEADS / N_RANKS;
		struct rank r = rank_open(h, i * n, n);
		float *o;

		assert_int_equal(r.match.cached, 0); /* the whole's KV is nobody else's */
		o = rank_run(&r);
		assert_part(&r, o, all, bound);
		free(o);
		rank_close(&r);
	}
	free(all);
	rank_close(&whole);
	stop(h);
}

static void ranks_get_what_one_client_gets(void **state)
{
	(void)state;
	if (test_on_gpu()) {
		run_ranks("theirs", "--split=heads", FP16_BOUND);
		run_ranks("theirs", "--split=tokens", FP16_BOUND);
		return;
	}
	run_ranks("--devices=cpu,cpu,cpu,cpu", "--split=heads", 0);
	run_ranks("--devices=cpu,cpu", "--split=auto", 0);
	run_ranks("--devices=cpu,cpu,cpu", "--split=auto", 1e-5);
	run_ranks("--devices=cpu,cpu,cpu,cpu", "--split=tokens", 1e-5);
	run_ranks(NULL, NULL, 0);
}

static void a_ranks_kv_is_on_the_device_of_its_heads(void **state)
{
	struct harness *h = start("--devices=cpu,cpu,cpu,cpu", "--split=heads");
	struct client watch = client_open(h);
	(void)state;

	for (uint32_t i = 0; i < N_RANKS; i++) {
		struct rank r = rank_open(h, i * 2, 2);
		const Coppice__StatusReply *status;

		free(rank_run(&r));
		status = client_status(&watch);
		assert_int_equal(status->n_device_page_bytes, N_RANKS);
		for (uint32_t d = 0; d < N_RANKS; d++)
			assert_int_equal(status->device_page_bytes[d] != 0, d <= i);
		assert_int_equal(status->device_page_bytes[i], status->device_page_bytes[0]);
		assert_int_equal(status->exchange_bytes, 0);
		assert_int_equal(status->kv_bytes_moved, 0);
		rank_close(&r);
	}
	client_close(&watch);
	stop(h);
}

/* Two agents of an engine: the second finds on each rank what the first left there. */
static void ranks_share_prompts_with_their_like_alone(void **state)
{
	struct harness *h = start("--devices=cpu,cpu,cpu,cpu", "--split=heads");
	struct rank first = rank_open(h, 2, 2), second, other;
	(void)state;

	free(rank_run(&first));
	second = rank_open(h, 2, 2);
	other = rank_open(h, 4, 2);
	assert_int_equal(second.match.cached, PROMPT_TOKENS - 1);
	assert_int_equal(other.match.cached, 0);
	rank_close(&first);
	rank_close(&second);
	rank_close(&other);
	stop(h);
}

static void ranks_are_listed_with_their_heads(void **state)
{
	struct harness *h = start("--devices=cpu,cpu,cpu,cpu", "--split=heads");
	struct rank r = rank_open(h, 6, 2);
	struct client watch = client_open(h);
	Coppice__Models m = COPPICE__MODELS__INIT;
	const Coppice__Model *model;
	const Coppice__Reply *reply = client_verb(&watch, models, &m);
	(void)state;

	assert_int_equal(reply->models->n_model, 1);
	model = reply->models->model[0];
	assert_int_equal(model->n_kv_heads, 2);
	assert_int_equal(model->n_q_heads, 2 * RATIO);
	assert_int_equal(model->first_kv_head, 6);
	assert_int_equal(model->all_kv_heads, N_KV_HEADS);
	assert_string_equal(model->split, "home");
	assert_string_equal(model->split_why,
			    "KV heads 6 to 7 of 8 are those of device 3, of 4 devices");
	client_close(&watch);
	rank_close(&r);
	stop(h);
}

static void heads_that_are_not_there_are_refused(void **state)
{
	static const struct {
		uint32_t first, own;
		int code;
		const char *field, *words;
	} cases[] = {
		{0, 9, -EINVAL, "own_kv_heads", "not among the model's 8"},
		{7, 2, -EINVAL, "own_kv_heads", "not among the model's 8"},
		{8, 1, -EINVAL, "first_kv_head", "not among the model's 8"},
		{UINT32_MAX, 1, -EINVAL, "first_kv_head", "not among"},
		{1, UINT32_MAX, -EINVAL, "own_kv_heads", "not among"},
		{UINT32_MAX, UINT32_MAX, -EINVAL, "first_kv_head", "not among"},
		{3, 0, -EINVAL, "own_kv_heads", "how many is not said"},
		{1, 2, -ENOTSUP, "own_kv_heads", "not those of one of 4 devices"},
		{0, 4, -ENOTSUP, "own_kv_heads", "use tokens or auto"},
	};
	struct harness *h = start("--devices=cpu,cpu,cpu,cpu", "--split=heads");
	struct client c = client_open(h);
	(void)state;

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		Coppice__ModelOpen m = COPPICE__MODEL_OPEN__INIT;

		m.name = (char *)(uintptr_t) "engine";
		m.n_layers = N_LAYERS;
		m.n_q_heads = N_KV_HEADS * RATIO;
		m.n_kv_heads = N_KV_HEADS;
		m.head_dim = HEAD_DIM;
		m.has_first_kv_head = m.has_own_kv_heads = 1;
		m.first_kv_head = cases[i].first;
		m.own_kv_heads = cases[i].own;
		assert_refused(client_verb(&c, model_open, &m), cases[i].code, cases[i].field,
			       cases[i].words);
	}
	client_close(&c);
	stop(h);
}

/* A row is as long as its heads: the last one fits at the arena's end, and nothing beyond is ever
 * touched. */
static void rows_are_those_of_the_ranks_heads(void **state)
{
	struct harness *h = start("--devices=cpu,cpu,cpu,cpu", "--split=heads");
	struct rank r = rank_open(h, 4, 2);
	size_t row = r.n * RATIO * HEAD_DIM;
	char *base = coppice_arena_base(r.arena), *end = base + coppice_arena_bytes(r.arena);
	struct coppice_step_seq part = {.seq = r.seq,
					.n_new = 1,
					.q = base,
					.k = element_at(base, row),
					.v = element_at(base, 2 * row),
					.o = end - row * element_bytes()};
	struct coppice_step step = {.seqs = &part, .n_seqs = 1};
	uint64_t ticket;
	int status;
	(void)state;

	assert_int_equal(coppice_seq_extend(r.seq, ids, 1, &ticket), 0);
	assert_int_equal(coppice_step(r.lane, &step, &ticket), 0);
	assert_int_equal(coppice_wait(r.lane, ticket, PATIENCE_NS), 0);
	step.layer = 1;
	part.o = end - (row - 1) * element_bytes();
	status = coppice_step(r.lane, &step, &ticket);
	if (status == 0)
		status = coppice_wait(r.lane, ticket, PATIENCE_NS);
	assert_int_equal(status, -EINVAL);
	rank_close(&r);
	stop(h);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ranks_get_what_one_client_gets),
		cmocka_unit_test(a_ranks_kv_is_on_the_device_of_its_heads),
		cmocka_unit_test(ranks_share_prompts_with_their_like_alone),
		cmocka_unit_test(ranks_are_listed_with_their_heads),
		cmocka_unit_test(heads_that_are_not_there_are_refused),
		cmocka_unit_test(rows_are_those_of_the_ranks_heads),
	};

	return harness_init(argc, argv) || cmocka_run_group_tests(tests, NULL, NULL);
}
