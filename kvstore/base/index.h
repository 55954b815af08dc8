/*
 * index.h - an intrusive hash index that grows by one bucket at a time.
 *
 * Linear hashing: an insert splits at most one bucket, and bucket arrays are added, never copied,
 * so that no single insert stalls however large the index is. Inserting cannot fail: where memory
 * for buckets is short, chains grow. Whoever embeds a link compares its own key; the index compares
 * 64-bit hashes.
 *
 *      segments  [0] 64 heads   [1] 64 more   [2] 128 more   [3] 256 more ...
 *                n_buckets of them in use
 */
#ifndef COPPICE_KVSTORE_INDEX_H
#define COPPICE_KVSTORE_INDEX_H

#include <stddef.h>
#include <stdint.h>

#define INDEX_FIRST_BUCKETS 64u
#define INDEX_SEGMENTS 26u

struct index_link {
	struct index_link *next;
	uint64_t hash;
};

/* Not movable: segments[0] points into it. */
struct index {
	struct index_link **segments[INDEX_SEGMENTS]; /* owned, but the first */
	uint32_t n_buckets;
	uint32_t mask; /* smallest 2^k - 1 >= n_buckets - 1 */
	uint64_t n_links;
	struct index_link *first[INDEX_FIRST_BUCKETS];
};

void index_init(struct index *ix);
/* Frees the buckets; the links belong to others. */
void index_done(struct index *ix);
void index_insert(struct index *ix, struct index_link *link, uint64_t hash);
/* The link must be in. */
void index_remove(struct index *ix, struct index_link *link);

/* Keyed, so that nobody can aim at a bucket. */
static inline uint64_t index_hash(const uint64_t seed[2], uint64_t a, uint64_t b)
{
	__uint128_t product = (__uint128_t)(a ^ seed[0]) * (b ^ seed[1]);
	uint64_t x = (uint64_t)product ^ (uint64_t)(product >> 64);

	x = (x ^ (x >> 32)) * 0x9e3779b97f4a7c15u;
	return x ^ (x >> 29);
}

static inline struct index_link **index_bucket(const struct index *ix, uint64_t hash)
{
	uint32_t b = (uint32_t)hash & ix->mask;

	if (b >= ix->n_buckets)
		b &= ix->mask >> 1;
	if (b < INDEX_FIRST_BUCKETS)
		return &ix->segments[0][b];
	uint32_t top = 31u - (uint32_t)__builtin_clz(b);
	return &ix->segments[top - 5][b - (1u << top)];
}

static inline struct index_link *index_match(struct index_link *link, uint64_t hash)
{
	while (link && link->hash != hash)
		link = link->next;
	return link;
}

/* First link of this hash, then the next one; NULL: no more. */
static inline struct index_link *index_find(const struct index *ix, uint64_t hash)
{
	return index_match(*index_bucket(ix, hash), hash);
}

static inline struct index_link *index_find_next(const struct index_link *link)
{
	return index_match(link->next, link->hash);
}

#define INDEX_ENTRY(link, type, member) ((type *)((char *)(link)-offsetof(type, member)))

#endif
