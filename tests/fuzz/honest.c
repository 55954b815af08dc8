/* honest.c - see honest.h. Q is zero, so that the answer is the mean of V; V is made of a hash of
 * the tokens so far. */
#include "honest.h"

#include "../e2e/element.h"
#include "proto/clock.h"

#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define MAX_TOKENS 300
#define PATIENCE_NS UINT64_C(20000000000)
#define REST_US 300

static uint64_t mix(uint64_t hash, uint32_t id)
{
	hash = (hash ^ (id + 1)) * UINT64_C(0x9e3779b97f4a7c15);
	return hash ^ hash >> 29;
}

static float v_of(uint64_t hash, uint32_t layer, int d)
{
	uint64_t h = mix(hash, (uint32_t)d + 1000 * (layer + 1));

	return element_round((float)((double)(h >> 40) / (1 << 24)) - 0.5f);
}

/* r: of the submission. */
static void done(struct honest *h, int r, const uint64_t *ticket)
{
	if (r == 0)
		r = coppice_wait(h->lane, *ticket, PATIENCE_NS);
	if (r < 0)
		fail_msg("an honest client was answered %d: %s", r, coppice_explain(h->c));
}

/* Layout of the arena, in elements: q, k, v, o. fp16 rounds weights and output by up to 2^-11 of
 * values up to a half. */
static void compute_layer(struct honest *h, uint32_t layer)
{
	void *q = coppice_arena_base(h->arena), *k = element_at(q, HONEST_DIM);
	void *v = element_at(k, HONEST_DIM), *o = element_at(v, HONEST_DIM);
	const double tolerance = test_on_gpu() ? 1e-3 : 1e-5;
	struct coppice_step_seq part = {.seq = h->seq, .n_new = 1, .q = q, .k = k, .v = v, .o = o};
	struct coppice_step step = {.layer = layer, .seqs = &part, .n_seqs = 1};
	uint64_t ticket = 0;

	for (int d = 0; d < HONEST_DIM; d++) {
		element_put(q, (size_t)d, 0);
		element_put(k, (size_t)d, v_of(h->hash + 1, layer, d));
		element_put(v, (size_t)d, v_of(h->hash, layer, d));
		h->sum[layer][d] += v_of(h->hash, layer, d);
	}
	done(h, coppice_step(h->lane, &step, &ticket), &ticket);
	for (int d = 0; d < HONEST_DIM; d++)
		assert_true(fabs(element_get(o, (size_t)d) - h->sum[layer][d] / h->n) < tolerance);
}

static uint32_t id_at(const struct honest *h, uint32_t i)
{
	return h->family * 1000 + i;
}

void honest_extend(struct honest *h)
{
	uint32_t id = id_at(h, h->n);
	uint64_t ticket = 0;

	h->hash = mix(h->hash, id);
	h->n++;
	done(h, coppice_seq_extend(h->seq, &id, 1, &ticket), &ticket);
}

void honest_compute(struct honest *h)
{
	for (uint32_t layer = 0; layer < HONEST_LAYERS; layer++)
		compute_layer(h, layer);
}

/* A prompt of one token is never cached: who asks computes it. */
static void begin(struct honest *h)
{
	struct coppice_match match;
	uint32_t first = id_at(h, 0);
	int r = coppice_seq_open(h->lane, h->model, &first, 1, 0, &h->seq, &match);

	if (r < 0)
		fail_msg("an honest client was answered %d: %s", r, coppice_explain(h->c));
	assert_int_equal(match.cached, 0);
	h->n = 0;
	h->hash = 1;
	memset(h->sum, 0, sizeof(h->sum));
	honest_extend(h);
	honest_compute(h);
}

void honest_start(struct honest *h, const char *socket, uint32_t family)
{
	struct coppice_model_info info = {.name = "honest",
					  .n_layers = HONEST_LAYERS,
					  .n_q_heads = 1,
					  .n_kv_heads = 1,
					  .head_dim = HONEST_DIM,
					  .dtype = (enum coppice_dtype)element_dtype()};

	*h = (struct honest){.family = family};
	assert_int_equal(coppice_connect(&h->c, socket), 0);
	assert_int_equal(coppice_model_open(h->c, &info, &h->model), 0);
	assert_int_equal(coppice_arena_new(h->c, COPPICE_HOST, 1 << 20, &h->arena), 0);
	assert_int_equal(coppice_lane_new(h->c, &h->lane), 0);
	begin(h);
}

void honest_step(struct honest *h)
{
	uint64_t start = clock_now_ns(), took;

	if (h->n == MAX_TOKENS) {
		coppice_seq_close(h->seq);
		h->seq = NULL;
		begin(h);
	} else {
		honest_extend(h);
		honest_compute(h);
	}
	took = clock_now_ns() - start;
	h->longest_ns = took > h->longest_ns ? took : h->longest_ns;
	h->n_steps++;
}

uint64_t honest_run(struct honest *h, unsigned ms)
{
	uint64_t end = clock_now_ns() + ms * UINT64_C(1000000);

	h->longest_ns = 0;
	do {
		honest_step(h);
		usleep(REST_US);
	} while (clock_now_ns() < end);
	return h->longest_ns;
}

void honest_end(struct honest *h)
{
	coppice_seq_close(h->seq);
	coppice_lane_free(h->lane);
	coppice_arena_free(h->arena);
	coppice_close(h->c);
}

unsigned process_descriptors(pid_t pid)
{
	char path[64];
	unsigned n = 0;

	snprintf(path, sizeof(path), "/proc/%d/fd", pid);
	DIR *folder = opendir(path);

	assert_non_null(folder);
	for (const struct dirent *entry; (entry = readdir(folder));)
		n += entry->d_name[0] != '.';
	closedir(folder);
	return n;
}

uint64_t process_bytes(pid_t pid)
{
	unsigned long long size = 0, resident = 0;
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/statm", pid);
	FILE *file = fopen(path, "re");

	assert_non_null(file);
	assert_int_equal(fscanf(file, "%llu %llu", &size, &resident), 2);
	fclose(file);
	return resident * (uint64_t)sysconf(_SC_PAGESIZE);
}
