/*
 * example.c - a whole client: one sequence, a prompt, a few decoded tokens. Q, K and V are made up
 * where a model would compute them; everything else is as an app writes it.
 */
#include "coppice.h"

#include <stdio.h>
#include <stdlib.h>

enum { LAYERS = 2, Q_HEADS = 4, KV_HEADS = 2, DIM = 64, PROMPT = 20, DECODED = 4 };
enum { Q_ROW = Q_HEADS * DIM, KV_ROW = KV_HEADS * DIM };

static void check(int code, const struct coppice *c)
{
	if (code == 0)
		return;
	fprintf(stderr, "%s\n", coppice_explain(c));
	exit(1);
}

static void make_up(float *rows, size_t n, uint32_t seed)
{
	for (size_t i = 0; i < n; i++)
		rows[i] = (float)((i * 37 + seed * 101) % 97) / 97.0f - 0.5f;
}

int main(void)
{
	struct coppice_model_info info = {
		.size = sizeof(info),
		.name = "example",
		.n_layers = LAYERS,
		.n_q_heads = Q_HEADS,
		.n_kv_heads = KV_HEADS,
		.head_dim = DIM,
		.dtype = COPPICE_FP32,
	};
	struct coppice *c;
	struct coppice_arena *arena;
	struct coppice_lane *lane;
	struct coppice_seq *seq;
	struct coppice_match match;
	uint32_t model, ids[PROMPT + DECODED];

	for (uint32_t i = 0; i < PROMPT + DECODED; i++)
		ids[i] = 1000 + i;
	check(coppice_connect(&c, NULL), NULL);
	check(coppice_model_open(c, &info, &model), c);
	check(coppice_arena_new(c, COPPICE_HOST, 1 << 20, &arena), c);
	check(coppice_lane_new(c, &lane), c);
	check(coppice_seq_open(lane, model, ids, PROMPT, 0, &seq, &match), c);
	check(coppice_seq_wait(seq, COPPICE_FOREVER, &match), c);
	printf("%u of %u prompt tokens were cached\n", match.cached, PROMPT);

	float *q = coppice_arena_base(arena), *k = q + PROMPT * Q_ROW;
	float *v = k + PROMPT * KV_ROW, *o = v + PROMPT * KV_ROW;

	/* First what is missing of the prompt, then token by token. */
	for (uint32_t at = match.cached, n = PROMPT - at; at < PROMPT + DECODED; at += n, n = 1) {
		check(coppice_seq_extend(seq, &ids[at], n, NULL), c);
		for (uint32_t layer = 0; layer < LAYERS; layer++) {
			struct coppice_step_seq part = {seq, n, q, k, v, o};
			struct coppice_step step = {.size = sizeof(step),
						    .layer = layer,
						    .seqs = &part,
						    .n_seqs = 1};

			make_up(q, n * Q_ROW, at + layer);
			make_up(k, n * KV_ROW, at + layer + 1);
			make_up(v, n * KV_ROW, at + layer + 2);
			check(coppice_step_wait(lane, &step, COPPICE_FOREVER, NULL), c);
		}
		printf("token %2u: o = %+.4f %+.4f %+.4f %+.4f ...\n", at + n - 1,
		       o[(n - 1) * Q_ROW], o[(n - 1) * Q_ROW + 1], o[(n - 1) * Q_ROW + 2],
		       o[(n - 1) * Q_ROW + 3]);
	}
	coppice_seq_close(seq);
	coppice_lane_free(lane);
	coppice_arena_free(arena);
	coppice_close(c);
	return 0;
}
