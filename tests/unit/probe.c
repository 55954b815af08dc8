/*
 * probe.c - the list of one row and its memory, submitted to the backend, and a token's values put
 * into a page.
 */
#include "probe.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

void probe_init(struct probe *p, const struct backend_ops *ops, struct oracle_random *random)
{
	struct world_want want = {.shape = {.n_layers = 2,
					    .n_q_heads = 4,
					    .n_kv_heads = 2,
					    .head_dim = 64,
					    .page_tokens = 32,
					    .dtype = WORK_FP16,
					    .scale = 0.125f},
				  .ops = ops,
				  .n_nodes = 1,
				  .n_queries = 1,
				  .node_tokens = 1};
	char *at;

	*p = (struct probe){.query = {.n_rows = 1},
			    .row = {.pos = 63},
			    .tile = {0, 1, 0, 1},
			    .item = {0, 1, 0, 1, 0, WORK_NONE},
			    .merge_first = {0, 1}};
	world_init(&p->w, &want, random);
	p->tree = (struct work_tree){.queries = &p->query, .n_queries = 1};
	p->list = (struct work_list){.rows = &p->row,
				     .items = &p->item,
				     .tiles = &p->tile,
				     .pieces = &p->piece,
				     .merge_first = p->merge_first,
				     .merge_parts = &p->merge_part,
				     .n_rows = 1,
				     .n_items = 1,
				     .n_tiles = 1,
				     .n_pieces = 1,
				     .n_parts = 1,
				     .kv_tokens_read = 1,
				     .kv_tokens_alone = 3};
	at = world_alloc(&p->w, 4096);
	memset(at, 0, 4096);
	p->q = (_Float16 *)at;
	p->o = (_Float16 *)(at + 512);
	p->k = (_Float16 *)(at + 1024);
	p->v = (_Float16 *)(at + 1280);
	p->lse = (float *)(at + 1536);
}

void probe_submit(struct probe *p, const struct work_list *list, const struct backend_io *io,
		  uint32_t layer)
{
	struct backend_job job = {
		.shape = &p->w.shape, .tree = &p->tree, .list = list, .io = io, .layer = layer};
	struct backend_batch batch = {&job, 1};
	uint64_t id = 0, done = 0;

	assert_int_equal(p->w.ops->submit(p->w.backend, &batch, &id), 0);
	while (done < id)
		assert_int_equal(p->w.ops->completed(p->w.backend, &done), 0);
}

void probe_put(struct probe *p, uint32_t layer, uint32_t page, uint32_t row, float value)
{
	struct work_slice slot = {page, (uint16_t)row, 1};
	struct work_list nothing = {0};
	struct backend_io io = {.k = world_address(&p->w, p->k),
				.v = world_address(&p->w, p->v),
				.slots = &slot,
				.n_slots = 1};

	for (uint32_t i = 0; i < 128; i++)
		p->v[i] = (_Float16)(value + (float)i);
	probe_submit(p, &nothing, &io, layer);
}
