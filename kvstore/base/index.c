/*
 * index.c - linear hashing over intrusive links; see index.h.
 *
 * Bucket b >= 64 was split off bucket b - 2^k, 2^k the highest power of two in b; segment k - 5
 * begins at 2^k.
 */
#include "index.h"

#include <assert.h>
#include <stdlib.h>

void index_init(struct index *ix)
{
	*ix = (struct index){
		.n_buckets = INDEX_FIRST_BUCKETS,
		.mask = INDEX_FIRST_BUCKETS - 1,
	};
	ix->segments[0] = ix->first;
}

void index_done(struct index *ix)
{
	for (uint32_t i = 1; i < INDEX_SEGMENTS; i++)
		free(ix->segments[i]);
}

static void index_split(struct index *ix, uint32_t source, uint32_t target)
{
	struct index_link **from = index_bucket(ix, source);

	ix->n_buckets = target + 1;
	if (target > ix->mask)
		ix->mask = 2 * ix->mask + 1;
	struct index_link **to = index_bucket(ix, target);
	while (*from) {
		struct index_link *link = *from;
		if (((uint32_t)link->hash & ix->mask) != target) {
			from = &link->next;
			continue;
		}
		*from = link->next;
		link->next = *to;
		*to = link;
	}
}

static void index_grow(struct index *ix)
{
	uint32_t target = ix->n_buckets;
	uint32_t top = 31u - (uint32_t)__builtin_clz(target);

	if (top - 5 >= INDEX_SEGMENTS)
		return;
	if (!ix->segments[top - 5])
		ix->segments[top - 5] = calloc(1u << top, sizeof(*ix->segments[0]));
	if (ix->segments[top - 5])
		index_split(ix, target - (1u << top), target);
}

void index_insert(struct index *ix, struct index_link *link, uint64_t hash)
{
	if (ix->n_links >= ix->n_buckets)
		index_grow(ix);
	struct index_link **bucket = index_bucket(ix, hash);
	link->hash = hash;
	link->next = *bucket;
	*bucket = link;
	ix->n_links++;
}

void index_remove(struct index *ix, struct index_link *link)
{
	struct index_link **at = index_bucket(ix, link->hash);

	while (*at != link) {
		assert(*at);
		at = &(*at)->next;
	}
	*at = link->next;
	ix->n_links--;
}
