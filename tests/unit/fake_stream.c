/*
 * fake_stream.c - a list of graphs, what each does when it is its turn, and a clock that goes while
 * somebody waits; and the calls of the kernels' hosts that lead here.
 */
#include "fake_stream.h"

#include "kernels/cuda/batch/batch_chosen.h"
#include "kernels/cuda/batch/batch_impl.h"
#include "kernels/cuda/device/bring.h"

#include <cuda_runtime_api.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

/* ---- the device ----------------------------------------------------------------------------- */

struct fake_stream fake;

void fake_reset(void)
{
	memset(&fake, 0, sizeof(fake));
	fake.now_ns = (uint64_t)time(NULL) * 1000000000;
}

int fake_done(void)
{
	assert_int_equal(fake.n_streams, 0);
	assert_int_equal(fake.n_memories, 0);
	return 0;
}

static bool is_called(const struct device_stand *stand)
{
	for (uint32_t i = 0; i < DEVICE_CALL_WORDS; i++) {
		if (stand->call->packets[i].tag != DEVICE_CALL_GO(stand->id))
			return false;
	}
	return true;
}

static void hear(struct fake_graph *g)
{
	uint64_t words[DEVICE_CALL_WORDS];

	for (uint32_t i = 0; i < DEVICE_CALL_WORDS; i++)
		words[i] = g->stand.call->packets[i].word;
	memcpy(&g->in, words, sizeof(g->in));
	assert_ptr_equal(g->in.rows_to, g->stand.rows);
	fake.n_called++;
}

static void deed_of(const struct fake_graph *g)
{
	struct fake_deed *deed = &fake.deeds[g->finish.id];

	deed->n++;
	deed->k = g->in.n_tokens ? g->in.tokens[0].k : 0;
	deed->pool = g->in.pool;
	if (g->in.begin_ns)
		*g->in.begin_ns = fake.now_ns;
	if (g->attends && !g->apart) {
		assert_ptr_equal(g->attend.pool, g->in.pool);
		assert_ptr_equal(g->attend.rows, g->in.rows_to);
		assert_int_equal(g->attend.n_rows, g->in.n_rows);
		assert_true(g->attend.patched || g->in.n_patches == 0);
	}
}

/* A launch that stood is to say so, as it may do nothing. */
static void finish_of(const struct fake_graph *g, bool goes)
{
	const struct device_tells *tells = g->finish.tells;

	assert_int_equal(g->finish.heard != NULL, g->stands);
	for (uint32_t i = 0; goes && tells->id == g->finish.id && i < tells->n; i++)
		*(uint64_t *)(uintptr_t)tells->words[i].address = tells->words[i].value;
	g->finish.clock->id = g->finish.id;
}

/* false: it stands. */
static bool graph_goes(struct fake_graph *g)
{
	bool told = g->stands && g->stand.call->packets[0].tag == DEVICE_CALL_LEAVE(g->stand.id);

	if (g->stands && !g->left && !told && !is_called(&g->stand))
		return false;
	if (g->stands && (g->left || told)) {
		*g->stand.answer = DEVICE_CALL_LEAVE(g->stand.id);
	} else {
		if (g->stands) {
			hear(g);
			*g->stand.answer = DEVICE_CALL_GO(g->stand.id);
		}
		deed_of(g);
	}
	if (g->finishes)
		finish_of(g, !g->stands || (!g->left && !told));
	return true;
}

void fake_runs(void)
{
	while (fake.first < fake.end && graph_goes(&fake.graphs[fake.first % FAKE_GRAPHS]))
		fake.first++;
}

void fake_is_impatient(void)
{
	fake_runs();
	if (fake.first < fake.end)
		fake.graphs[fake.first % FAKE_GRAPHS].left = true;
}

int device_stand(const struct device_stand *stand, struct launch_to to)
{
	(void)to;
	fake.recorded.stand = *stand;
	fake.recorded.stands = true;
	fake.n_stood++;
	return 0;
}

static void graph_add(const struct fake_graph *g)
{
	assert_true(fake.end - fake.first < FAKE_GRAPHS);
	fake.graphs[fake.end++ % FAKE_GRAPHS] = *g;
}

/* What is not recorded goes by itself. */
static int put(const struct fake_graph *g, struct launch_to to)
{
	if (!to.recorded)
		graph_add(g);
	return 0;
}

int device_inbound(const struct device_inbound *in, struct launch_to to)
{
	fake.recorded.in = *in;
	return put(&(struct fake_graph){.apart = true, .in = *in}, to);
}

int device_attend(const struct device_attend *attend, struct launch_to to)
{
	fake.recorded.attend = *attend;
	fake.recorded.attends = true;
	return put(&(struct fake_graph){.apart = true, .attends = true, .attend = *attend}, to);
}

int device_finish(const struct device_finish *finish, struct launch_to to)
{
	fake.recorded.finish = *finish;
	fake.recorded.finishes = true;
	return put(&(struct fake_graph){.apart = true, .finishes = true, .finish = *finish}, to);
}

void launch_chain_begin(struct launch_chain *chain)
{
	(void)chain;
	fake.recorded = (struct fake_graph){0};
}

int launch_chain_go(struct launch_chain *chain, struct CUstream_st *stream)
{
	(void)chain;
	(void)stream;
	graph_add(&fake.recorded);
	return 0;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
	(void)stream;
	fake_runs();
	assert_int_equal(fake.first, fake.end);
	return cudaSuccess;
}

/* Who asks gives it time. */
cudaError_t cudaStreamQuery(cudaStream_t stream)
{
	(void)stream;
	fake_runs();
	return fake.first == fake.end ? cudaSuccess : cudaErrorNotReady;
}

int clock_gettime(clockid_t clock, struct timespec *ret)
{
	(void)clock;
	*ret = (struct timespec){(time_t)(fake.now_ns / 1000000000),
				 (long)(fake.now_ns % 1000000000)};
	return 0;
}

/* ---- the rest of it, which does next to nothing --------------------------------------------- */

cudaError_t cudaMalloc(void **ret, size_t bytes)
{
	fake.n_memories++;
	assert_non_null(*ret = calloc(1, bytes));
	return cudaSuccess;
}

cudaError_t cudaMallocHost(void **ret, size_t bytes)
{
	fake.n_pinned++;
	fake.n_memories++;
	assert_non_null(*ret = calloc(1, bytes));
	return cudaSuccess;
}

cudaError_t cudaFree(void *at)
{
	fake.n_memories -= at != NULL;
	free(at);
	return cudaSuccess;
}

cudaError_t cudaFreeHost(void *at)
{
	fake.n_memories -= at != NULL;
	free(at);
	return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
			    cudaStream_t stream)
{
	(void)kind;
	(void)stream;
	memcpy(to, from, bytes);
	return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *at, int value, size_t bytes, cudaStream_t stream)
{
	(void)stream;
	memset(at, value, bytes);
	return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *ret, unsigned flags)
{
	(void)flags;
	fake.n_streams++;
	*ret = (cudaStream_t)&fake;
	return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
	(void)stream;
	fake.n_streams--;
	return cudaSuccess;
}

cudaError_t cudaGetLastError(void)
{
	return cudaSuccess;
}

void launch_chain_done(struct launch_chain *chain)
{
	(void)chain;
}

int device_bring(const struct device_bring *copy, device_stream stream)
{
	(void)stream;
	memcpy((void *)(uintptr_t)copy->to, (const void *)(uintptr_t)copy->from, copy->row_bytes);
	return 0;
}

int device_merge(const struct device_attend *attend, struct launch_to to)
{
	(void)attend;
	(void)to;
	return 0;
}

int device_outbound(const struct device_outbound *outbound, struct launch_to to)
{
	(void)outbound;
	(void)to;
	return 0;
}

int device_move(const struct device_move *move, device_stream stream)
{
	(void)move;
	(void)stream;
	return 0;
}

int device_attend_init(const struct device_kernel *kernel)
{
	(void)kernel;
	return 0;
}

/* The test has no chosen blocks and no other devices. */
int chosen_ready(struct upload *u, const struct backend_job *job, struct chosen_job *ret)
{
	(void)u;
	(void)job;
	(void)ret;
	return -EINVAL;
}

int chosen_launch(struct upload *u, const struct chosen_job *chosen, struct device_attend *attend)
{
	(void)u;
	(void)chosen;
	(void)attend;
	return -EINVAL;
}

void peer_free(struct peer *p)
{
	(void)p;
}

bool peer_is_late(const struct peer *p, uint32_t *ret_rank)
{
	(void)p;
	(void)ret_rank;
	return false;
}

const struct peer_state *peer_state_of(const struct peer *p)
{
	(void)p;
	return NULL;
}

uint64_t peer_gathered_bytes(const struct peer *p)
{
	(void)p;
	return 0;
}

int peer_add(struct peer *p, const struct peer_rows *rows)
{
	(void)p;
	(void)rows;
	return -EINVAL;
}

void peer_forget(struct peer *p)
{
	(void)p;
}

int peer_conclude(struct peer *p)
{
	(void)p;
	return -EINVAL;
}

void peer_describe(const struct peer *p, const struct peer_rows *rows, struct device_exchange *ret)
{
	(void)p;
	(void)rows;
	(void)ret;
}
