/*
 * schedule_mix.c - an order of a strip's KV blocks in which it is cut into parts of the same kind.
 *
 * In the list's order the parts of a strip that shares most of its KV have what all rows see, and
 * the last has what each row has alone: that one waits for memory while the others wait for the
 * tensor cores, and all wait for that one. Mixed, each part has its share of both, and of the
 * latter as much for each row block. Every row has a partial of every part then, so a strip is
 * mixed only where it would have one of most parts in any case. See schedule_impl.h.
 */
#include "schedule_impl.h"

#include <errno.h>
#include <string.h>

struct mix {
	struct cut cut; /* the strip as one work tile */
	uint32_t n_parts;
	uint32_t all[N_QUEUES]; /* KV blocks by queue */
	/* those looked at so far, and of these by queue; and up to where all are of this queue */
	uint32_t end, n[N_QUEUES];
	uint32_t alike_end, queue;
};

/* KV blocks one after the other, of one part. */
struct mix_run {
	uint32_t begin, n, part;
};

static void mix_init(const struct make *m, const struct strip *strip, uint32_t n_parts,
		     struct mix *ret)
{
	uint32_t n_rows = strip->row_end - strip->row_begin;

	*ret = (struct mix){.cut = {.strip = strip, .row_end = n_rows}, .n_parts = n_parts};
	while (m->block_tokens << ret->cut.blocks_log2 < n_rows)
		ret->cut.blocks_log2++;
	ret->cut.block_tokens = (n_rows + (1u << ret->cut.blocks_log2) - 1) >> ret->cut.blocks_log2;
}

/* KV blocks that one after the other are in a part: no KV tile and no wide tile is cut. */
static uint32_t granule_of(uint32_t queue)
{
	return queue == QUEUE_WIDE ? WIDE_TILE_BLOCKS : DEVICE_KV_TILE_BLOCKS;
}

/* The part of the queue's KV block i. Where row blocks have less than a KV tile for each part, they
 * begin at parts of their own. */
static uint32_t part_of(const struct mix *mix, uint32_t queue, uint32_t i)
{
	uint32_t granule = granule_of(queue), n = ceil_div(mix->all[queue], granule);
	uint32_t first = queue == QUEUE_WIDE ? 0 : queue;

	return (uint32_t)((uint64_t)(i / granule) * mix->n_parts / n + first) % mix->n_parts;
}

/* The queue of KV blocks from i on that are alike, and where they end. */
static uint32_t queue_from(const struct make *m, const struct mix *mix, uint32_t i,
			   uint32_t *ret_end)
{
	const struct piece_kv_block *kv_blocks = m->p->scratch[KV_BLOCKS].at;

	*ret_end = kv_blocks[i].alike_end;
	return cut_queue_of(m, &mix->cut, &kv_blocks[i]);
}

static void count_all(const struct make *m, struct mix *mix)
{
	for (uint32_t i = 0, end; i < m->n_kv_blocks; i = end) {
		uint32_t queue = queue_from(m, mix, i, &end);

		mix->all[queue] += end - i;
	}
}

static void look_again(struct mix *mix)
{
	mix->end = mix->alike_end = 0;
	memset(mix->n, 0, sizeof(mix->n));
}

/* The next of them that are alike and of one granule. False: there are none. */
static bool look(const struct make *m, struct mix *mix, struct mix_run *ret)
{
	uint32_t granule, n;

	if (mix->end == m->n_kv_blocks)
		return false;
	if (mix->end == mix->alike_end)
		mix->queue = queue_from(m, mix, mix->end, &mix->alike_end);
	granule = granule_of(mix->queue);
	n = mix->n[mix->queue];
	*ret = (struct mix_run){mix->end, min_u32(mix->alike_end - mix->end, granule - n % granule),
				part_of(mix, mix->queue, n)};
	mix->end += ret->n;
	mix->n[mix->queue] += ret->n;
	return true;
}

/* Where each part's KV blocks begin, from how many each has. */
static void find_begins(const struct make *m, struct mix *mix, uint32_t *begins)
{
	struct mix_run run;

	memset(begins, 0, mix->n_parts * sizeof(*begins));
	look_again(mix);
	while (look(m, mix, &run))
		begins[run.part] += run.n;
	for (uint32_t part = 0, sum = 0; part < mix->n_parts; part++) {
		uint32_t n = begins[part];

		begins[part] = sum;
		sum += n;
	}
}

/* As each part grows its begin becomes its end. */
static void bring_together(const struct make *m, struct mix *mix, uint32_t *begins,
			   struct piece_kv_block *to)
{
	const struct piece_kv_block *kv_blocks = m->p->scratch[KV_BLOCKS].at;
	struct mix_run run;

	look_again(mix);
	while (look(m, mix, &run)) {
		memcpy(to + begins[run.part], kv_blocks + run.begin, run.n * sizeof(*to));
		begins[run.part] += run.n;
	}
}

int strip_mix(struct make *m, const struct strip *strip, uint32_t n_parts, uint32_t *ends)
{
	struct piece_kv_block *mixed;
	struct mix mix;

	mix_init(m, strip, n_parts, &mix);
	count_all(m, &mix);
	if (!mix_pays(mix.all[QUEUE_WIDE], m->n_kv_blocks - mix.all[QUEUE_WIDE], n_parts))
		return 0;
	mixed = make_scratch(m, MIXED, m->n_kv_blocks, sizeof(*mixed));
	if (!mixed)
		return -ENOMEM;
	find_begins(m, &mix, ends);
	bring_together(m, &mix, ends, mixed);
	memcpy(m->p->scratch[KV_BLOCKS].at, mixed, m->n_kv_blocks * sizeof(*mixed));
	strip_find_stretches(m);
	return 1;
}
