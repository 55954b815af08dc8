/*
 * lane_honest.c - what each turn of the honest session does, at random, with the values that its
 * rows must have, drawn from a hash of the path.
 */
#include "lane_honest.h"

#include "daemon/sched/round.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define N_HEADS 2
#define FRIEND_ID 0x50000000u

const struct work_shape LANE_SHAPE = {.n_layers = N_LAYERS,
				      .n_q_heads = N_HEADS,
				      .n_kv_heads = 1,
				      .head_dim = DIM,
				      .page_tokens = 16,
				      .dtype = WORK_FP32};

static uint64_t mix(uint64_t hash, uint32_t id)
{
	hash = (hash ^ (id + 1)) * UINT64_C(0x9e3779b97f4a7c15);
	return hash ^ hash >> 29;
}

static float v_of(uint64_t hash, uint32_t layer, int x)
{
	uint64_t h = mix(hash, (uint32_t)x + 1000 * (layer + 1));

	return (float)((double)(h >> 40) / (1 << 24)) - 0.5f;
}

static void append(struct naive *q, uint32_t id)
{
	q->ids[q->n] = id;
	q->hash[q->n + 1] = mix(q->hash[q->n], id);
	for (uint32_t layer = 0; layer < N_LAYERS; layer++) {
		for (int x = 0; x < DIM; x++)
			q->sum[layer][q->n + 1][x] =
				q->sum[layer][q->n][x] + v_of(q->hash[q->n + 1], layer, x);
	}
	q->n++;
}

static void write_rows(struct client *c, const struct abi_step_seq *rec, uint32_t layer,
		       const uint64_t *hashes)
{
	float *k = (float *)(void *)(c->arena + rec->k), *v = (float *)(void *)(c->arena + rec->v);

	memset(c->arena + rec->q, 0, (size_t)rec->n_new * rec->q_stride);
	for (uint32_t i = 0; i < rec->n_new; i++) {
		for (int x = 0; x < DIM; x++) {
			k[i * DIM + x] = v_of(hashes[i] + 1, layer, x);
			v[i * DIM + x] = v_of(hashes[i], layer, x);
		}
	}
}

static void check_rows(const struct client *c, const struct abi_step_seq *rec, uint32_t layer,
		       const struct naive *q, uint32_t from)
{
	const float *o = (const float *)(const void *)(c->arena + rec->o);

	for (uint32_t i = 0; i < rec->n_new; i++) {
		const double *sum = q->sum[layer][from + i + 1];

		for (int x = 0; x < N_HEADS * DIM; x++)
			assert_true(fabs(o[i * N_HEADS * DIM + x] - sum[x % DIM] / (from + i + 1)) <
				    2e-6);
	}
}

/* The friend's domain may be full of the hostile session's pages; the stranger's may not. */
static bool is_refused(struct lane_honest *who, int status)
{
	if (status == 0)
		return false;
	assert_true(who->is_friend);
	assert_true(status == -EDQUOT || status == -ENOSPC);
	who->n_refused++;
	return true;
}

/* Computes the tokens that the naive model has from `from` on; false: there is no room, and they
 * are gone again. */
static bool compute(struct lane_honest *who, struct naive *q, uint32_t from)
{
	uint32_t n = q->n - from;
	struct client *c = &who->c;
	struct abi_step_seq rec = client_step_seq(c, q->handle, n);

	if (is_refused(who, client_extend(c, q->handle, q->ids + from, n).status)) {
		q->n = from;
		return false;
	}
	for (uint32_t layer = 0; layer < N_LAYERS; layer++) {
		write_rows(c, &rec, layer, q->hash + from + 1);
		assert_int_equal(client_step(c, &rec, layer).status, 0);
		check_rows(c, &rec, layer, q, from);
	}
	who->n_steps++;
	return true;
}

static uint32_t honest_id(struct draw *d, const struct lane_honest *who)
{
	return draw_below(d, 3) + (who->is_friend ? FRIEND_ID : 0);
}

void lane_honest_open(struct draw *d, struct lane_honest *who, struct naive *q, uint32_t n_more)
{
	struct store_match match;

	q->n = 0;
	q->hash[0] = 1;
	for (uint32_t i = 0; i < N_BASE; i++)
		append(q, BASE_ID + i);
	for (uint32_t i = 0; i < n_more; i++)
		append(q, honest_id(d, who));
	assert_int_equal(client_open(&who->c, q->ids, q->n, &q->handle, &match), 0);
	assert_true(match.cached < q->n);
	if (compute(who, q, match.cached))
		return;
	q->handle = 0;
	assert_int_equal(client_close(&who->c, LIST_FIRST(&who->c.session->seqs)->handle), 0);
}

static void honest_extend(struct draw *d, struct lane_honest *who, struct naive *q)
{
	uint32_t from = q->n, n = 1 + draw_below(d, 4);

	if (q->n + n > MAX_LEN)
		return;
	while (n--)
		append(q, honest_id(d, who));
	compute(who, q, from);
}

static void honest_trim(struct draw *d, struct lane_honest *who, struct naive *q)
{
	struct abi_entry trim = {.kind = ABI_TRIM,
				 .seq = q->handle,
				 .arg = N_BASE + draw_below(d, q->n - N_BASE + 1)};

	assert_int_equal(client_do(&who->c, trim, NULL, 0).status, 0);
	q->n = (uint32_t)trim.arg;
}

/* Its first sequence stays for ever and holds the base. */
void lane_honest_turn(struct draw *d, struct lane_honest *who)
{
	uint32_t i = draw_below(d, SEQS_A_CLIENT), what = draw_below(d, 10);
	struct naive *q = &who->seqs[i];

	if (!q->handle) {
		lane_honest_open(d, who, q, 1 + draw_below(d, 40));
	} else if (what < 7 || i == 0) {
		honest_extend(d, who, q);
	} else if (what < 9) {
		honest_trim(d, who, q);
	} else {
		assert_int_equal(client_close(&who->c, q->handle), 0);
		q->handle = 0;
	}
}
