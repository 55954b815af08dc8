/*
 * tier_leg_test.c - attention in legs on a device: each row has what all legs that had it saw,
 * whatever heads and rows a leg is of.
 *
 * The device is the machine's memory. Attention is the test's: a leg leaves a value of its own as
 * the output of each entry that it has, and equal weight. So what comes out is the mean of the
 * values, and the LSE is the logarithm of how many they are. Outputs of entries that a leg does
 * not have are garbage.
 */
#include "kernels/cuda/device/bring.h"
#include "kernels/cuda/tiers/leg.h"
#include "oracle.h"

#include <cuda_runtime_api.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define HEAD_DIM 8u
#define HEADS 4u /* two of each KV head */
#define KV_HEADS 2u
#define ROWS 5u /* of two queries */
#define ROW_BYTES (HEADS * HEAD_DIM * 2)
#define MANY (3 * FOLD_PARTS) /* more legs than are folded at once */
#define GARBAGE 1e6f

static const struct work_shape shape = {.n_layers = 1,
					.n_q_heads = HEADS,
					.n_kv_heads = KV_HEADS,
					.head_dim = HEAD_DIM,
					.page_tokens = 32,
					.dtype = WORK_BF16};

/* ---- the device ----------------------------------------------------------------------------- */

static struct {
	uint32_t n_memories, n_events, n_brought; /* rows */
	size_t most_bytes; /* that can be had at once */
	bool is_at_it;
} device;

cudaError_t cudaMalloc(void **ret, size_t bytes)
{
	if (bytes > device.most_bytes)
		return cudaErrorMemoryAllocation;
	assert_non_null(*ret = malloc(bytes));
	device.n_memories++;
	return cudaSuccess;
}

cudaError_t cudaFree(void *at)
{
	device.n_memories -= at != NULL;
	free(at);
	return cudaSuccess;
}

cudaError_t cudaGetLastError(void)
{
	return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
	(void)stream;
	return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *ret, unsigned flags)
{
	(void)flags;
	device.n_events++;
	*ret = (cudaEvent_t)&device;
	return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
	(void)event;
	device.n_events--;
	return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
	(void)event;
	(void)stream;
	device.is_at_it = true;
	return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
	(void)event;
	return device.is_at_it ? cudaErrorNotReady : cudaSuccess;
}

int device_bring(const struct device_bring *copy, device_stream stream)
{
	(void)stream;
	for (uint32_t i = 0; i < copy->n_rows; i++)
		memcpy((void *)(uintptr_t)(copy->to + i * copy->to_stride),
		       (const void *)(uintptr_t)(copy->from + i * copy->from_stride),
		       copy->row_bytes);
	device.n_brought += copy->n_rows;
	return cudaSuccess;
}

/* What states and parts say of an entry, one after the other: the sum of weighted outputs, and of
 * weights. */
struct sum {
	double o, weight;
};

static void add(struct sum *sum, double o, double lse)
{
	sum->o += exp(lse) * o;
	sum->weight += exp(lse);
}

static struct sum sum_of(const struct device_fold *f, uint32_t row, uint32_t head)
{
	uint64_t entry = (uint64_t)row * f->n_heads + head;
	const float *state = f->state + entry * (f->head_dim + 1);
	struct sum sum = {0};
	float o;

	if (f->had)
		add(&sum, state[0], state[f->head_dim]);
	for (uint32_t k = 0; k < f->n_parts; k++) {
		const struct device_part *part = &f->parts[k];
		const char *at = f->part_o + k * f->o_bytes + entry * f->head_dim * 2;

		if (row < part->begin || row >= part->end || !(part->heads >> head / f->group & 1))
			continue;
		oracle_decode(WORK_BF16, &o, at, 1);
		add(&sum, o, ((const float *)(f->part_lse + k * f->lse_bytes))[entry]);
	}
	return sum;
}

int device_fold(const struct device_fold *f, device_stream stream)
{
	(void)stream;
	assert_in_range(f->n_parts, 0, FOLD_PARTS);
	for (uint32_t i = 0; i < f->n_rows * f->n_heads; i++) {
		uint32_t index = i / f->n_heads, row = f->first_row + index, head = i % f->n_heads;
		float *state = f->state + ((uint64_t)row * f->n_heads + head) * (f->head_dim + 1);
		struct sum sum = sum_of(f, row, head);
		float o = (float)(sum.o / sum.weight), lse = (float)log(sum.weight);

		if (!f->last) {
			state[0] = o;
			state[f->head_dim] = lse;
			continue;
		}
		oracle_encode(WORK_BF16,
			      (char *)(uintptr_t)(f->o + index * f->o_stride) +
				      head * f->head_dim * 2,
			      &o, 1);
		if (f->lse)
			((float *)(uintptr_t)(f->lse + index * f->lse_stride))[head] = lse;
	}
	return cudaSuccess;
}

/* ---- legs ------------------------------------------------------------------------------------ */

/* Three rows and two; outputs are in lines of their own, LSEs of the second query not wanted. */
struct world {
	struct leg leg;
	struct queue queue;
	struct work_query queries[2];
	struct work_tree trees[2];
	struct work_list list;
	struct backend_io io[2];
	char q[ROWS][ROW_BYTES], o[ROWS][2 * ROW_BYTES];
	float lse[ROWS][HEADS];
	double sums[ROWS][HEADS]; /* of values */
	uint32_t n[ROWS][HEADS]; /* of them */
};

static const uint32_t first_rows[2] = {0, 3};

static int setup(void **state)
{
	struct world *w = calloc(1, sizeof(*w));

	assert_non_null(w);
	memset(&device, 0, sizeof(device));
	device.most_bytes = SIZE_MAX;
	for (uint32_t row = 0; row < ROWS; row++)
		memset(w->q[row], (int)row + 1, ROW_BYTES);
	for (uint32_t i = 0; i < 2; i++) {
		uint32_t row = first_rows[i];

		w->queries[i].n_rows = i == 0 ? 3 : 2;
		w->io[i] = (struct backend_io){.q = (uintptr_t)w->q[row],
					       .q_stride = ROW_BYTES,
					       .o = (uintptr_t)w->o[row],
					       .o_stride = 2 * ROW_BYTES,
					       .lse = i == 0 ? (uintptr_t)w->lse[row] : 0,
					       .lse_stride = sizeof(w->lse[0])};
	}
	*state = w;
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;

	leg_done(&w->leg);
	assert_int_equal(device.n_memories + device.n_events, 0);
	free(w);
	return 0;
}

/* An entry of the job: its Q is the row's. */
static void leave(struct world *w, const struct backend_io *io, uint32_t i, uint32_t row,
		  uint32_t head, float value)
{
	assert_memory_equal((const void *)(uintptr_t)(io->q + i * io->q_stride), w->q[row],
			    ROW_BYTES);
	for (uint32_t at = 0; at < HEAD_DIM; at++)
		oracle_encode(WORK_BF16,
			      (char *)(uintptr_t)(io->o + i * io->o_stride) +
				      (head * HEAD_DIM + at) * 2,
			      &value, 1);
	((float *)(uintptr_t)(io->lse + i * io->lse_stride))[head] = value == GARBAGE ? GARBAGE : 0;
	w->sums[row][head] += value == GARBAGE ? 0 : value;
	w->n[row][head] += value != GARBAGE;
}

static void attend(struct world *w, const struct backend_job *job, uint32_t row, float value)
{
	uint32_t group = HEADS / KV_HEADS, n = backend_job_heads(job);

	for (uint32_t i = 0; i < job->tree->n_queries; i++)
		for (uint32_t j = 0; j < job->tree->queries[i].n_rows; j++, row++)
			for (uint32_t head = 0; head < HEADS; head++)
				leave(w, &job->io[i], j, row, head,
				      head / group - job->head < n ? value : GARBAGE);
}

/* Of both queries or one, of both KV heads or one. */
struct wish {
	uint32_t query, n_queries, head, n_heads;
	float value;
	bool first, last;
	uint64_t rows_id, id;
};

static void go(struct world *w, const struct wish *wish)
{
	struct work_tree tree = {.queries = &w->queries[wish->query], .n_queries = wish->n_queries};
	struct work_list list = {.n_rows = wish->n_queries == 2 ? ROWS : tree.queries[0].n_rows};
	/* the second is none of the batch's */
	struct backend_job jobs[2] = {{.shape = &shape,
				       .tree = &tree,
				       .list = &list,
				       .io = &w->io[wish->query],
				       .head = wish->head,
				       .n_heads = wish->n_heads}};
	struct backend_batch batch = {jobs, 1};
	struct backend_leg leg = {.first_row = first_rows[wish->query],
				  .n_rows = ROWS,
				  .first = wish->first,
				  .last = wish->last,
				  .rows_id = wish->rows_id};
	const struct backend_job *made;

	assert_int_equal(leg_begin(&w->leg, &w->queue, &batch, &leg, &made), 0);
	attend(w, made, first_rows[wish->query], wish->value);
	assert_int_equal(leg_end(&w->leg, &w->queue, &batch, &leg, wish->id), 0);
	assert_false(w->queue.failed);
}

static void assert_means(const struct world *w)
{
	for (uint32_t row = 0; row < ROWS; row++) {
		for (uint32_t head = 0; head < HEADS; head++) {
			double mean = w->sums[row][head] / w->n[row][head];
			float o;

			oracle_decode(WORK_BF16, &o, w->o[row] + head * HEAD_DIM * 2, 1);
			assert_true(fabs(o - mean) < 0.01 * mean); /* bf16 has 8 bits */
			assert_true(row >= first_rows[1] ||
				    fabs(w->lse[row][head] - log(w->n[row][head])) < 1e-4);
		}
	}
}

/* More legs than states wait for each other; each goes for other rows or heads. */
static void go_many(struct world *w)
{
	for (uint32_t i = 0; i < MANY; i++) {
		struct wish wish = {.n_queries = 2,
				    .value = 1 + (float)i,
				    .first = i == 0,
				    .last = i + 1 == MANY,
				    .id = i + 1};

		if (i % 3 == 1) {
			wish.query = i / 3 % 2;
			wish.n_queries = 1;
		} else if (i % 3 == 2 && !wish.last) {
			wish.head = i / 3 % 2;
			wish.n_heads = 1;
		}
		go(w, &wish);
	}
	assert_means(w);
}

static void each_row_has_what_all_its_legs_saw(void **state)
{
	go_many(*state);
	assert_int_equal(device.n_brought, ROWS); /* once each */
}

static void without_memory_for_several_each_is_folded_at_once(void **state)
{
	struct world *w = *state;

	device.most_bytes = 6 * ROWS * ROW_BYTES;
	go_many(w);
	assert_true(w->leg.sparing);
}

static void a_path_after_another_begins_anew(void **state)
{
	struct world *w = *state;

	for (int i = 0; i < 2; i++) {
		memset(w->sums, 0, sizeof(w->sums));
		memset(w->n, 0, sizeof(w->n));
		go_many(w);
	}
	assert_int_equal(device.n_brought, 2 * ROWS);
}

static void what_an_estimate_brought_comes_no_second_time(void **state)
{
	struct world *w = *state;
	const struct backend_estimate estimate = {.shape = &shape,
						  .q = (uintptr_t)w->q,
						  .q_stride = ROW_BYTES,
						  .n_q = ROWS,
						  .rows_id = 5};
	struct wish wish = {.n_queries = 2, .value = 3, .first = true, .last = true, .id = 1};
	uint64_t q;

	w->queries[0].n_rows = ROWS; /* one query has all rows then */
	wish.n_queries = 1;
	for (uint64_t id = 5; id <= 6; id++) {
		device.n_brought = 0;
		assert_int_equal(leg_bring(&w->leg, &w->queue, &estimate, &q), 0);
		wish.rows_id = id;
		go(w, &wish);
		assert_int_equal(device.n_brought, id == 5 ? ROWS : 2 * ROWS);
	}
}

/* A batch is done before its states are folded. */
static void a_last_leg_is_complete_when_it_is_folded(void **state)
{
	struct world *w = *state;
	uint64_t id = 7;

	go(w, &(struct wish){.n_queries = 2, .value = 3, .first = true, .id = 6});
	leg_completed(&w->leg, &id);
	assert_int_equal(id, 7);
	go(w, &(struct wish){.n_queries = 2, .value = 3, .last = true, .id = 7});
	id = 6;
	leg_completed(&w->leg, &id);
	assert_int_equal(id, 6);
	id = 8;
	leg_completed(&w->leg, &id);
	assert_int_equal(id, 6);
	device.is_at_it = false;
	id = 8;
	leg_completed(&w->leg, &id);
	assert_int_equal(id, 8);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(each_row_has_what_all_its_legs_saw),
		TEST(without_memory_for_several_each_is_folded_at_once),
		TEST(a_path_after_another_begins_anew),
		TEST(what_an_estimate_brought_comes_no_second_time),
		TEST(a_last_leg_is_complete_when_it_is_folded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
