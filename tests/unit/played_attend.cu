/*
 * played_attend.cu - attention and its merge by the kernels' own source on the CPU
 * (played_block.cuh): attend.cu as it is, whose launches run here, block by block. Rows with a
 * first position have the kernels of variant_capped.h. Compiled as C++.
 */
#include "played_block.cuh"

#include "kernels/cuda/attend/attend_kernel.cuh"
/* the merge's is a variable of its own */
#undef __shared__
#define __shared__ static
#include "kernels/cuda/attend/attend.cu"
#include "played_attend.h"
#include "variant_capped.cuh"

extern "C" {
#include "oracle.h"
}

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

#define STACK_BYTES (256u << 10)
#define IDLE_ROUNDS 4u /* in which nobody has moved: nobody ever will */

struct played_index threadIdx, blockIdx, gridDim;
struct played_warp played_warps[PLAYED_THREADS / 32];
struct played_product played_products[PLAYED_THREADS / 32];
struct played_barrier played_barriers[PLAYED_SHARED_BYTES / 8], played_named[16];
alignas(1024) char shared[PLAYED_SHARED_BYTES];

/* Begun as contexts, then left and entered by jumps, which ask nothing of the system. */
struct played_thread {
	ucontext_t context;
	jmp_buf at;
	bool begun;
	char *stack; /* owned, for good */
	const char *waits; /* for what; NULL: it is over */
	uint32_t which;
};

static struct played_thread threads[PLAYED_THREADS];
static jmp_buf all_of_them;
static uint64_t moved;
static const struct launch *launched;

void played_moved(void)
{
	moved++;
}

void played_wait(const char *what, uint32_t which)
{
	struct played_thread *t = &threads[threadIdx.x];

	t->waits = what;
	t->which = which;
	if (_setjmp(t->at) == 0)
		_longjmp(all_of_them, 1);
}

/* ---- values --------------------------------------------------------------------------------- */

float played_values[2][65536];

static void know_values(void)
{
	static bool known;

	for (uint32_t i = 0; i < 65536 && !known; i++) {
		uint16_t v = (uint16_t)i;

		oracle_decode(WORK_FP16, &played_values[0][i], &v, 1);
		oracle_decode(WORK_BF16, &played_values[1][i], &v, 1);
	}
	known = true;
}

uint32_t played_bits(bool bf16, float value)
{
	uint16_t bits;

	oracle_encode(bf16 ? WORK_BF16 : WORK_FP16, &bits, &value, 1);
	return bits;
}

/* ---- launches ------------------------------------------------------------------------------- */

static void run_thread(void)
{
	struct played_thread *t = &threads[threadIdx.x];

	((attend_function)launched->kernel)(*(const struct device_attend *)launched->argument);
	t->waits = NULL;
	played_moved();
	_longjmp(all_of_them, 1);
}

static void begin_block(uint32_t block)
{
	blockIdx.x = block;
	memset(shared, 0xff, sizeof(shared)); /* NaN */
	memset(played_warps, 0, sizeof(played_warps));
	memset(played_products, 0, sizeof(played_products));
	memset(played_barriers, 0, sizeof(played_barriers));
	memset(played_named, 0, sizeof(played_named));
	for (uint32_t i = 0; i < launched->block_threads; i++) {
		struct played_thread *t = &threads[i];

		if (!t->stack)
			t->stack = (char *)malloc(STACK_BYTES);
		getcontext(&t->context);
		t->context.uc_stack.ss_sp = t->stack;
		t->context.uc_stack.ss_size = STACK_BYTES;
		t->waits = "its begin";
		t->begun = false;
		makecontext(&t->context, run_thread, 0);
	}
}

/* Until it waits or is over. */
static void enter_thread(struct played_thread *t)
{
	if (_setjmp(all_of_them))
		return;
	if (t->begun)
		_longjmp(t->at, 1);
	t->begun = true;
	setcontext(&t->context);
}

/* Each thread in turn as long as some are there. False: they wait for each other. */
static bool run_block(uint32_t block)
{
	uint32_t n_threads = launched->block_threads, left = n_threads;

	begin_block(block);
	for (uint32_t idle = 0; left && idle < IDLE_ROUNDS; idle++) {
		uint64_t before = moved;

		left = 0;
		for (uint32_t i = 0; i < n_threads; i++) {
			threadIdx.x = i;
			if (threads[i].waits)
				enter_thread(&threads[i]);
			left += threads[i].waits != NULL;
		}
		idle = moved == before ? idle : 0;
	}
	for (uint32_t i = 0; i < n_threads && left; i += 32)
		fprintf(stderr, "block %u warp %u waits for %s %u\n", block, i / 32,
			threads[i].waits ? threads[i].waits : "nothing", threads[i].which);
	return left == 0;
}

extern "C" int launch_put(const struct launch *l, struct launch_to)
{
	bool right = l->block_threads <= PLAYED_THREADS && l->shared_bytes <= PLAYED_SHARED_BYTES;

	know_values();
	launched = l;
	gridDim.x = l->n_blocks;
	for (uint32_t i = 0; i < l->n_blocks && right; i++)
		right = run_block(i);
	return right ? (int)cudaSuccess : (int)cudaErrorLaunchTimeout;
}

/* ---- what attend.h does not ask for --------------------------------------------------------- */

template <uint32_t QK_DIM, uint32_t V_DIM> static int play(const struct device_attend &a)
{
	typedef kernel_traits<dtype_half, QK_DIM, V_DIM> traits;
	const struct attend_kernels kernels = attend_kernels_of<traits>();
	int r = launch_attend(kernels.attend, layout<traits>::bytes, a, launch_to{});

	return r ? r : launch_merge(kernels.merge, a, launch_to{});
}

extern "C" int played_two_dims(const struct device_attend *a, uint32_t qk_dim)
{
	return qk_dim == 128 ? play<128, 64>(*a) : play<192, 128>(*a);
}

/* ---- what attend.cu asks for ---------------------------------------------------------------- */

struct attend_kernels attend_find_bounded(uint32_t dim, bool bf16)
{
	return attend_find<variant_capped>(dim, bf16);
}

extern "C" int device_find_code(enum code *ret)
{
	*ret = CODE_WGMMA;
	return cudaSuccess;
}

extern "C" cudaError_t cudaGetDevice(int *ret)
{
	*ret = 0;
	return cudaSuccess;
}

extern "C" cudaError_t cudaFuncSetAttribute(const void *, enum cudaFuncAttribute, int)
{
	return cudaSuccess;
}

extern "C" cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *, const void *)
{
	return cudaSuccess;
}
