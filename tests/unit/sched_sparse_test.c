/*
 * sched_sparse_test.c - prefill that attends to part of its path, asked for through a ring.
 * argv[1]: the module of the backend, else it is the CPU's; without its device the program says so
 * and exits with 77.
 */
#include "sched_harness.h"

#include "daemon/control/evict.h"
#include "daemon/control/verbs.h"

#include "device_ops.h"
#include "oracle.h"
#include "sched_sparse_long.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define N 900u
#define HALF 430u /* not at a stride */
#define AT_STRIDE 448u /* of 8 and of 16: all rows from here on could be estimated */
#define DRAFT 32u

static struct work_shape shape = {.n_layers = 2,
				  .n_q_heads = 4,
				  .n_kv_heads = 2,
				  .head_dim = 16,
				  .page_tokens = 32,
				  .dtype = WORK_FP32,
				  .scale = 0.25f};
static const struct backend_ops *ops = &backend_cpu;

struct fixture {
	struct harness h;
	struct client c;
	uint32_t ids[N];
	struct oracle_random random;
};

static void start(struct fixture *f)
{
	harness_start(&f->h);
	client_start(&f->c, &f->h, 1000, &shape, ARENA_BYTES);
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	harness_init(&f->h);
	f->h.config.prefill_rows = 256;
	f->h.ops = ops;
	f->random = oracle_seed("sched_sparse");
	for (uint32_t i = 0; i < N; i++)
		f->ids[i] = i;
	start(f);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	client_end(&f->c);
	harness_stop(&f->h);
	free(f);
	return 0;
}

static struct abi_completion ask(struct fixture *f, uint64_t seq, const struct abi_sparse *wish)
{
	return client_do(&f->c, (struct abi_entry){.kind = ABI_SPARSE, .seq = seq}, wish,
			 sizeof(*wish));
}

static uint64_t open_seq(struct fixture *f, const struct abi_sparse *wish)
{
	struct store_match match;
	uint64_t seq;

	assert_int_equal(client_open(&f->c, f->ids, N, &seq, &match), 0);
	assert_int_equal(match.cached, 0);
	if (wish)
		assert_int_equal(ask(f, seq, wish).status, 0);
	return seq;
}

static size_t q_bytes(uint32_t n)
{
	return (size_t)n * shape.n_q_heads * shape.head_dim * work_dtype_bytes(shape.dtype);
}

static size_t k_bytes(uint32_t n)
{
	return (size_t)n * shape.n_kv_heads * shape.head_dim * work_dtype_bytes(shape.dtype);
}

/* Tokens [from, to) of one extension. */
struct stretch {
	uint64_t seq;
	uint32_t from, to;
	uint32_t flags; /* of the extension */
};

/* Extends by the stretch, whose Q, K and V go to the arena from there on; what a step is told of
 * them. */
static struct abi_step_seq extend(struct fixture *f, const struct stretch *x, uint64_t at,
				  const char *values)
{
	uint32_t n = x->to - x->from;
	struct abi_step_seq rec = client_step_seq(&f->c, x->seq, n);
	const struct abi_entry entry = {.kind = ABI_EXTEND,
					.seq = x->seq,
					.count = n,
					.flags = x->flags};

	assert_int_equal(client_do(&f->c, entry, f->ids + x->from, n * 4).status, 0);
	rec.q += at;
	rec.k += at;
	rec.v += at;
	rec.o += at;
	memcpy(f->c.arena + rec.q, values + q_bytes(x->from), q_bytes(n));
	memcpy(f->c.arena + rec.k, values + q_bytes(N) + k_bytes(x->from), k_bytes(n));
	memcpy(f->c.arena + rec.v, values + q_bytes(N) + k_bytes(N) + k_bytes(x->from), k_bytes(n));
	return rec;
}

/* All layers of a step of these stretches, on the same Q, K, V; how the last ended, and O of the
 * first. */
static struct abi_completion compute_all(struct fixture *f, const struct stretch *stretches,
					 uint32_t n, const char *values, char *ret_o)
{
	struct abi_step_seq recs[2];
	struct abi_completion done = {0};

	assert_true(n <= 2);
	for (uint32_t i = 0; i < n; i++)
		recs[i] = extend(f, &stretches[i], i * ARENA_BYTES / 2, values);
	for (uint32_t layer = 0; layer < shape.n_layers; layer++) {
		done = client_do(&f->c,
				 (struct abi_entry){.kind = ABI_STEP, .count = n, .layer = layer},
				 recs, n * (uint32_t)sizeof(recs[0]));
		assert_int_equal(done.status, 0);
	}
	memcpy(ret_o + q_bytes(stretches[0].from), f->c.arena + recs[0].o,
	       q_bytes(stretches[0].to - stretches[0].from));
	return done;
}

static struct abi_completion compute(struct fixture *f, uint64_t seq, uint32_t from, uint32_t to,
				     const char *values, char *ret_o)
{
	return compute_all(f, &(struct stretch){seq, from, to, 0}, 1, values, ret_o);
}

/* Q, K and V of N tokens; those of some blocks of K lean towards all queries. */
static char *make_values(struct fixture *f)
{
	size_t n_q = (size_t)N * shape.n_q_heads * shape.head_dim;
	size_t n_k = (size_t)N * shape.n_kv_heads * shape.head_dim;
	float *values = malloc((n_q + 2 * n_k) * sizeof(*values));
	char *raw = malloc(q_bytes(N) + 2 * k_bytes(N));

	for (size_t i = 0; i < n_q + 2 * n_k; i++)
		values[i] = oracle_normal(&f->random) + (i < n_q ? 1 : 0);
	for (size_t i = 0; i < n_k; i++)
		values[n_q + i] += i / (n_k / N) / 64 % 4 == 1 ? 2.0f : 0.0f;
	oracle_encode(shape.dtype, raw, values, n_q + 2 * n_k);
	free(values);
	return raw;
}

/* Two extensions, then it is closed and forgotten. */
static struct abi_completion run(struct fixture *f, const struct abi_sparse *wish,
				 const char *values, char *ret_o)
{
	struct evict_call call = {0};
	struct sched_request evict = {.serve = verb_evict.serve, .room = &call};
	uint64_t seq = open_seq(f, wish);
	struct abi_completion done;

	compute(f, seq, 0, HALF, values, ret_o);
	done = compute(f, seq, HALF, N, values, ret_o);
	assert_int_equal(client_close(&f->c, seq), 0);
	assert_int_equal(harness_call(&f->h, &evict), 0);
	return done;
}

static void steps_that_ask_for_nothing_are_exact(void **state)
{
	struct fixture *f = *state;
	char *values = make_values(f), *o = malloc(q_bytes(N));
	struct abi_completion done = run(f, NULL, values, o);

	assert_true(done.attended == 1 && done.mass == 1);
	free(values);
	free(o);
}

/* Of two answers to tokens [from, to). */
static double rows_distance(const char *a, const char *b, uint32_t from, uint32_t to)
{
	size_t n = (size_t)(to - from) * shape.n_q_heads * shape.head_dim;
	float *x = malloc(2 * n * sizeof(*x)), *y = x + n;
	double d;

	oracle_decode(shape.dtype, x, a + q_bytes(from), n);
	oracle_decode(shape.dtype, y, b + q_bytes(from), n);
	d = sparse_distance(x, y, n);
	free(x);
	return d;
}

/* Bit by bit, on the CPU. */
static void assert_same(const char *a, const char *b)
{
	if (ops == &backend_cpu)
		assert_memory_equal(a, b, q_bytes(N));
	assert_true(rows_distance(a, b, 0, N) < ROUNDING);
}

static void all_blocks_are_exact_attention(void **state)
{
	const struct abi_sparse all = {.tau = 0.5,
				       .stride = 8,
				       .block_tokens = 64,
				       .recent_blocks = 999};
	const struct abi_sparse one = {.tau = 1, .stride = 8, .block_tokens = 64};
	struct fixture *f = *state;
	char *values = make_values(f), *o = malloc(q_bytes(N)), *exact = malloc(q_bytes(N));
	struct abi_completion done;

	run(f, NULL, values, exact);
	done = run(f, &all, values, o);
	assert_true(done.attended == 1 && fabsf(done.mass - 1) < 1e-5f);
	assert_same(o, exact);
	done = run(f, &one, values, o);
	assert_true(done.attended == 1 && done.mass == 1);
	assert_same(o, exact);
	free(values);
	free(o);
	free(exact);
}

static void less_is_attended_to_and_nearly_the_same_comes_out(void **state)
{
	const struct abi_sparse strides[] = {{0.9, 8, 64, 1, 1}, {0.9, 16, 128, 1, 1}};
	struct fixture *f = *state;
	char *values = make_values(f), *o = malloc(q_bytes(N)), *exact = malloc(q_bytes(N));

	run(f, NULL, values, exact);
	for (uint32_t i = 0; i < 2; i++) {
		struct abi_completion done = run(f, &strides[i], values, o);
		assert_true(done.attended > 0.05f && done.attended < 0.9f);
		assert_true(done.mass >= 0.9f && done.mass < 1);
		assert_true(rows_distance(o, exact, 0, N) < 0.35);
	}
	free(values);
	free(o);
	free(exact);
}

static void forks_want_the_same(void **state)
{
	const struct abi_sparse wish = {.tau = 0.5, .stride = 8, .block_tokens = 64};
	struct fixture *f = *state;
	char *values = make_values(f), *o = malloc(q_bytes(N));
	uint64_t seq = open_seq(f, &wish);
	struct abi_completion done;

	compute(f, seq, 0, HALF, values, o);
	done = client_do(&f->c, (struct abi_entry){.kind = ABI_FORK, .seq = seq}, NULL, 0);
	assert_int_equal(done.status, 0);
	done = compute(f, done.value, HALF, N, values, o);
	assert_true(done.attended < 0.9f && done.mass >= 0.5f);
	free(values);
	free(o);
}

/* A sequence whose prefill is as sparse as can be, up to where all rows could be estimated; exact:
 * answers to all tokens. */
static uint64_t begin_sparse(struct fixture *f, const char *values, char *o, char *exact)
{
	const struct abi_sparse wish = {.tau = 0.1, .stride = 8, .block_tokens = 64};
	uint64_t seq;

	run(f, NULL, values, exact);
	seq = open_seq(f, &wish);
	compute(f, seq, 0, HALF, values, o);
	assert_true(compute(f, seq, HALF, AT_STRIDE, values, o).attended < 0.9f);
	assert_true(rows_distance(o, exact, HALF, AT_STRIDE) > 10 * ROUNDING);
	return seq;
}

static void assert_exact(struct abi_completion done, const char *o, const char *exact, uint32_t n)
{
	assert_true(done.attended == 1 && done.mass == 1);
	assert_true(rows_distance(o, exact, AT_STRIDE, AT_STRIDE + n) < ROUNDING);
}

static void decode_stays_exact(void **state)
{
	struct fixture *f = *state;
	char *values = make_values(f), *o = malloc(q_bytes(N)), *exact = malloc(q_bytes(N));
	uint64_t seq = begin_sparse(f, values, o, exact);

	assert_exact(compute(f, seq, AT_STRIDE, AT_STRIDE + 1, values, o), o, exact, 1);
	free(values);
	free(o);
	free(exact);
}

static void decode_beside_prefill_stays_exact(void **state)
{
	const struct abi_sparse wish = {.tau = 0.1, .stride = 8, .block_tokens = 64};
	struct fixture *f = *state;
	char *values = make_values(f), *o = malloc(q_bytes(N)), *exact = malloc(q_bytes(N));
	struct stretch both[2] = {{0, AT_STRIDE, AT_STRIDE + 1, 0}, {0, 0, HALF, 0}};
	struct store_match match;
	uint64_t other;

	both[0].seq = begin_sparse(f, values, o, exact);
	assert_int_equal(client_open(&f->c, f->ids + 1, 1, &other, &match), 0);
	both[1].seq = other;
	assert_exact(compute_all(f, both, 2, values, o), o, exact, 1);
	/* what asks for it beside what does not is what the result is of */
	assert_int_equal(ask(f, other, &wish).status, 0);
	both[0] = (struct stretch){both[0].seq, AT_STRIDE + 1, AT_STRIDE + 2, 0};
	both[1] = (struct stretch){other, HALF, N, 0};
	assert_true(compute_all(f, both, 2, values, o).attended < 0.9f);
	assert_true(rows_distance(o, exact, AT_STRIDE + 1, AT_STRIDE + 2) < ROUNDING);
	free(values);
	free(o);
	free(exact);
}

static void drafts_stay_exact(void **state)
{
	struct fixture *f = *state;
	char *values = make_values(f), *o = malloc(q_bytes(N)), *exact = malloc(q_bytes(N));
	struct stretch draft = {0, AT_STRIDE, AT_STRIDE + DRAFT, ABI_EXTEND_DRAFT};

	draft.seq = begin_sparse(f, values, o, exact);
	assert_exact(compute_all(f, &draft, 1, values, o), o, exact, DRAFT);
	free(values);
	free(o);
	free(exact);
}

static void wishes_that_make_no_sense_are_refused(void **state)
{
	const struct abi_sparse bad[] = {
		{0, 8, 64, 0, 0},	{1.5, 8, 64, 0, 0},    {(double)NAN, 8, 64, 0, 0},
		{-1, 8, 64, 0, 0},	{0.5, 0, 64, 0, 0},    {0.5, 4, 64, 0, 0},
		{0.5, 8, 0, 0, 0},	{0.5, 8, 192, 0, 0},   {0.5, 16, 64, 0, 0},
		{0.5, 8, 131072, 0, 0}, {0.5, 8, 65535, 0, 0},
	};
	struct fixture *f = *state;
	uint64_t seq = open_seq(f, NULL);

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct abi_completion done = ask(f, seq, &bad[i]);
		assert_int_equal(done.status, -EINVAL);
		assert_int_equal(done.reason, ABI_BAD_SPARSE);
	}
	struct abi_entry entry = {.kind = ABI_SPARSE, .seq = seq};
	assert_int_equal(client_do(&f->c, entry, bad, 8).reason, ABI_BAD_BODY);
	entry.flags = 1;
	assert_int_equal(client_do(&f->c, entry, bad, sizeof(bad[0])).reason, ABI_BAD_FLAGS);
}

static void what_is_not_chosen_stays_where_it_is(void **state)
{
	(void)state;
	long_check(ops);
}

static void what_is_seen_whole_beside_a_choice_counts(void **state)
{
	(void)state;
	long_check_seen(ops);
}

/* A backend that cannot estimate takes no wish but for everything. */
static void a_backend_that_cannot_says_so(void **state)
{
	const struct abi_sparse some = {0.5, 8, 64, 0, 0}, all = {1, 8, 64, 0, 0};
	static struct backend_ops without;
	struct fixture f = {0};
	struct abi_completion done;

	(void)state;
	without = *ops;
	without.estimate = NULL;
	harness_init(&f.h);
	f.h.ops = &without;
	start(&f);
	uint64_t seq = open_seq(&f, NULL);
	done = ask(&f, seq, &some);
	assert_int_equal(done.status, -EOPNOTSUPP);
	assert_int_equal(done.reason, ABI_NO_SPARSE);
	assert_int_equal(ask(&f, seq, &all).status, 0);
	client_end(&f.c);
	harness_stop(&f.h);
}

/* ---- a backend that does without lists ------------------------------------------------------ */

static uint32_t n_everything; /* jobs of everything */

static bool takes_everything(struct backend *b, const struct backend_job *job)
{
	uint32_t n = 0;

	(void)b;
	for (uint32_t i = 0; i < job->chosen->n_slices; i++)
		n += job->chosen->slices[i].count;
	assert_int_equal(n, job->list->rows[job->list->n_rows - 1].pos + 1);
	assert_true(job->chosen->block_tokens * job->chosen->n_blocks >= n);
	return !job->chosen->kept;
}

static int submit_by_list(struct backend *b, const struct backend_batch *batch, uint64_t *ret_id)
{
	struct backend_job job = batch->jobs[0];

	if (!job.chosen)
		return backend_cpu.submit(b, batch, ret_id);
	if (n_everything++ % 2)
		return -ENOMEM;
	job.chosen = NULL;
	return backend_cpu.submit(b, &(struct backend_batch){&job, 1}, ret_id);
}

static void start_anew(struct fixture *f, const struct backend_ops *with)
{
	client_end(&f->c);
	harness_stop(&f->h);
	f->h.ops = with;
	start(f);
}

static void exact_prefill_may_do_without_its_list(void **state)
{
	const struct abi_sparse some = {0.5, 8, 64, 0, 0};
	static struct backend_ops other;
	struct fixture *f = *state;
	char *values = make_values(f), *o = malloc(q_bytes(N)), *exact = malloc(q_bytes(N));

	if (ops == &backend_cpu) {
		run(f, NULL, values, exact);
		other = backend_cpu;
		other.takes_chosen = takes_everything;
		other.submit = submit_by_list;
		start_anew(f, &other);
		run(f, NULL, values, o);
		assert_int_equal(n_everything, 2 * shape.n_layers * 2);
		assert_same(o, exact);
		run(f, &some, values, o);
		assert_int_equal(n_everything, 2 * shape.n_layers * 2);
	}
	free(values);
	free(o);
	free(exact);
}

static bool takes_any(struct backend *b, const struct backend_job *job)
{
	(void)b;
	return job->chosen->kept != NULL;
}

static int submit_lists_alone(struct backend *b, const struct backend_batch *batch,
			      uint64_t *ret_id)
{
	return batch->jobs[0].chosen ? -ENOMEM : backend_cpu.submit(b, batch, ret_id);
}

static void what_finds_no_room_as_chosen_is_exact_and_says_so(void **state)
{
	const struct abi_sparse some = {0.5, 8, 64, 0, 0};
	static struct backend_ops other;
	struct fixture *f = *state;
	char *values = make_values(f), *o = malloc(q_bytes(N)), *exact = malloc(q_bytes(N));
	struct abi_completion done;

	if (ops == &backend_cpu) {
		run(f, NULL, values, exact);
		other = backend_cpu;
		other.takes_chosen = takes_any;
		other.submit = submit_lists_alone;
		start_anew(f, &other);
		done = run(f, &some, values, o);
		assert_true(done.attended == 1 && done.mass == 1);
		assert_same(o, exact);
	}
	free(values);
	free(o);
	free(exact);
}

/* A GPU knows no fp32, and fewer head dims. */
static int find_device(const char *module)
{
	int r = device_ops(module, &ops);

	shape.dtype = WORK_FP16;
	shape.head_dim = 64;
	shape.scale = 0.0625f;
	return r;
}

int main(int argc, char **argv)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(steps_that_ask_for_nothing_are_exact),
		TEST(all_blocks_are_exact_attention),
		TEST(less_is_attended_to_and_nearly_the_same_comes_out),
		TEST(forks_want_the_same),
		TEST(decode_stays_exact),
		TEST(decode_beside_prefill_stays_exact),
		TEST(drafts_stay_exact),
		TEST(wishes_that_make_no_sense_are_refused),
		cmocka_unit_test(what_is_not_chosen_stays_where_it_is),
		cmocka_unit_test(what_is_seen_whole_beside_a_choice_counts),
		cmocka_unit_test(a_backend_that_cannot_says_so),
		TEST(exact_prefill_may_do_without_its_list),
		TEST(what_finds_no_room_as_chosen_is_exact_and_says_so),
	};

	int r = argc > 1 ? find_device(argv[1]) : 0;

	return r ? r : cmocka_run_group_tests(tests, NULL, NULL);
}
