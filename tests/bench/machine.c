/* machine.c - threads start together at a barrier; the time is that of the last to end. */
#include "machine.h"
#include "bench.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

#define BUFFER_BYTES ((size_t)512 << 20)
#define THREADS_MAX 256u
#define FMA_LOOPS 400000u

struct probe {
	void (*run)(struct probe *p);
	pthread_barrier_t *start;
	const char *at;
	size_t bytes;
	double fmas; /* done */
	uint64_t start_ns, end_ns;
	volatile float sink;
};

typedef float vec __attribute__((vector_size(64), aligned(4)));

__attribute__((target_clones("avx512f", "avx2", "default"), optimize("O3"))) static void read_run(
	struct probe *p)
{
	vec sum[8] = {0};
	float total = 0;

	for (size_t i = 0; i + sizeof(sum) <= p->bytes; i += sizeof(sum)) {
#pragma GCC unroll 8
		for (int j = 0; j < 8; j++)
			sum[j] += *(const vec *)(p->at + i + j * sizeof(vec));
	}
	for (int j = 0; j < 8; j++) {
		for (int lane = 0; lane < 16; lane++)
			total += sum[j][lane];
	}
	p->sink = total;
}

#ifdef __x86_64__
__attribute__((target("avx512f"))) static void fma_run_avx512(struct probe *p)
{
	__m512 sum[24], x = _mm512_set1_ps(0.999f), y[2];

	y[0] = y[1] = _mm512_set1_ps(p->sink);
#pragma GCC unroll 24
	for (int i = 0; i < 24; i++)
		sum[i] = _mm512_set1_ps((float)i);
	for (uint32_t n = 0; n < FMA_LOOPS; n++) {
#pragma GCC unroll 24
		for (int i = 0; i < 24; i++)
			sum[i] = _mm512_fmadd_ps(x, y[i % 2], sum[i]);
		__asm__ volatile("" : "+v"(x), "+v"(y[0]), "+v"(y[1]));
	}
#pragma GCC unroll 24
	for (int i = 1; i < 24; i++)
		sum[0] = _mm512_add_ps(sum[0], sum[i]);
	p->sink = _mm512_cvtss_f32(sum[0]);
	p->fmas = 24.0 * 16 * FMA_LOOPS;
}

__attribute__((target("avx2,fma"))) static void fma_run_avx2(struct probe *p)
{
	__m256 sum[12], x = _mm256_set1_ps(0.999f), y[2];

	y[0] = y[1] = _mm256_set1_ps(p->sink);
#pragma GCC unroll 12
	for (int i = 0; i < 12; i++)
		sum[i] = _mm256_set1_ps((float)i);
	for (uint32_t n = 0; n < FMA_LOOPS; n++) {
#pragma GCC unroll 12
		for (int i = 0; i < 12; i++)
			sum[i] = _mm256_fmadd_ps(x, y[i % 2], sum[i]);
		__asm__ volatile("" : "+x"(x), "+x"(y[0]), "+x"(y[1]));
	}
#pragma GCC unroll 12
	for (int i = 1; i < 12; i++)
		sum[0] = _mm256_add_ps(sum[0], sum[i]);
	p->sink = _mm256_cvtss_f32(sum[0]);
	p->fmas = 12.0 * 8 * FMA_LOOPS;
}
#endif

static void fma_run_any(struct probe *p)
{
	typedef float small __attribute__((vector_size(16)));
	small sum[8], x = {0.999f}, y = {p->sink};

	for (int i = 0; i < 8; i++)
		sum[i] = (small){(float)i};

	for (uint32_t n = 0; n < FMA_LOOPS; n++) {
#pragma GCC unroll 8
		for (int i = 0; i < 8; i++)
			sum[i] += x * y;
		__asm__ volatile("" ::: "memory");
	}
	for (int i = 1; i < 8; i++)
		sum[0] += sum[i];
	p->sink = sum[0][0];
	p->fmas = 8.0 * 4 * FMA_LOOPS;
}

static void (*fma_run(void))(struct probe *)
{
#ifdef __x86_64__
	if (__builtin_cpu_supports("avx512f"))
		return fma_run_avx512;
	if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
		return fma_run_avx2;
#endif
	return fma_run_any;
}

static void *probe_main(void *arg)
{
	struct probe *p = arg;

	pthread_barrier_wait(p->start);
	p->start_ns = clock_now_ns();
	p->run(p);
	p->end_ns = clock_now_ns();
	return NULL;
}

/* Seconds from the first start to the last end. */
static double run_all(struct machine *m, struct probe *probes)
{
	pthread_t threads[THREADS_MAX];
	pthread_barrier_t start;
	uint64_t first_ns = UINT64_MAX, last_ns = 0;

	pthread_barrier_init(&start, NULL, m->n_threads);
	for (uint32_t i = 0; i < m->n_threads; i++) {
		probes[i].start = &start;
		if (i > 0 && pthread_create(&threads[i], NULL, probe_main, &probes[i]) != 0)
			abort();
	}
	probe_main(&probes[0]);
	for (uint32_t i = 0; i < m->n_threads; i++) {
		if (i > 0)
			pthread_join(threads[i], NULL);
		first_ns = probes[i].start_ns < first_ns ? probes[i].start_ns : first_ns;
		last_ns = probes[i].end_ns > last_ns ? probes[i].end_ns : last_ns;
	}
	pthread_barrier_destroy(&start);
	return (double)(last_ns - first_ns) * 1e-9;
}

int machine_init(struct machine *m, uint32_t n_threads)
{
	void *at = mmap(NULL, BUFFER_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			0);

	if (at == MAP_FAILED)
		return -ENOMEM;
	*m = (struct machine){n_threads < THREADS_MAX ? n_threads : THREADS_MAX, at, BUFFER_BYTES};
	madvise(at, BUFFER_BYTES, MADV_HUGEPAGE);
	memset(at, 0, BUFFER_BYTES);
	return 0;
}

void machine_done(struct machine *m)
{
	if (m->buffer)
		munmap(m->buffer, m->bytes);
	*m = (struct machine){0};
}

double machine_read_rate(struct machine *m)
{
	struct probe probes[THREADS_MAX] = {0};
	size_t share = m->bytes / m->n_threads / 4096 * 4096;

	for (uint32_t i = 0; i < m->n_threads; i++) {
		probes[i].run = read_run;
		probes[i].at = m->buffer + i * share;
		probes[i].bytes = share;
	}
	return (double)share * m->n_threads / run_all(m, probes);
}

double machine_fma_rate(struct machine *m)
{
	struct probe probes[THREADS_MAX] = {0};
	double seconds, fmas = 0;

	for (uint32_t i = 0; i < m->n_threads; i++)
		probes[i].run = fma_run();
	seconds = run_all(m, probes);
	for (uint32_t i = 0; i < m->n_threads; i++)
		fmas += probes[i].fmas;
	return fmas / seconds;
}
