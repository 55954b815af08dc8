/*
 * store_random_test.c - a million random operations against a naive model.
 *
 * The model is a flat table of sequences, each with all its token ids, and a shadow of the pages: for every row what was
 * last written there, as a hash of the token's whole prefix. Rows are written at extend, copied by the moves of an
 * accept, and lost when their extent goes back. After each operation every token of the sequence's path must be in its
 * row with the right prefix; claims, matches, lengths and counts must be the table's.
 *
 * One run is done with plenty of room, the others with little, or with tight limits for the domains, or with lower tiers
 * so small that everything moves all the time. There the rows are real bytes: copies end late, leave alone what they need
 * not copy, bits flip in the file, and memory runs short; restarts keep the file alone. COPPICE_SEED repeats the runs,
 * COPPICE_OPS sets the operations of each.
 */
#include "store_fixture.h"

#include "kvstore/tier.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define N_SEQS 24u
#define MAX_TOKENS 48u
#define N_MODELS 2u
#define N_SPACES 6u
#define N_PINS 4u
#define N_RECENT 32u
#define EXTENT_BYTES 832u
#define UNIT_BYTES 4096u
#define CHUNK_UNITS 4u
#define MAX_COPIES 256u

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define DEFAULT_OPS 40000u
#else
#define DEFAULT_OPS 400000u
#endif

struct model_seq {
	struct store_seq *q; /* owned; NULL: this entry is free */
	uint32_t space;
	uint32_t n; /* published */
	uint32_t n_prompt; /* 0: computed or left */
	uint32_t n_live;
	uint32_t n_accepted;
	bool draft;
	bool claims;
	uint64_t lease_ns;
	uint32_t tokens[2 * MAX_TOKENS]; /* published, then the prompt's rest */
	uint32_t live[MAX_TOKENS];
	uint32_t accepted[MAX_TOKENS]; /* indices that will be accepted */
};

/* A token string that was published and may be there still. */
struct recent {
	uint32_t space, n;
	uint64_t losses; /* when it was seen to be there */
	uint32_t tokens[MAX_TOKENS];
};

/* Of a run. */
struct room {
	uint32_t n_extents;
	uint32_t n_devices; /* 0: one */
	uint64_t domain_bytes;
	uint32_t host_units, file_units; /* 0: no such tier */
	uint64_t domain_tier_bytes;
	bool flips; /* bits in the file */
	bool short_memory; /* of tiers, extensions and publications */
};

/* A copy under way: down, with the bytes on their way; up, not begun. */
struct copy {
	struct tier_copy what;
	uint8_t bytes[EXTENT_BYTES];
};

/* Copies of one way, a ring. */
struct copies {
	struct copy ring[MAX_COPIES];
	uint64_t n_asked, n_done;
};

struct world {
	struct fixture f;
	struct room room;
	char directory[64], path[80];
	struct copies downs, ups;
	struct store_model *models[N_MODELS];
	struct model_seq seqs[N_SEQS];
	struct recent recent[N_RECENT];
	uint64_t pins[N_PINS];
	uint8_t pool[FIXTURE_EXTENTS][EXTENT_BYTES];
	uint64_t random;
	uint64_t cursor;
	uint32_t n_recent;
	uint64_t n_enospc, n_edquot, n_fetched, n_restarts, n_restored;
};

static const uint32_t page_tokens[N_MODELS] = {4, 6};
static const uint32_t page_bytes[N_MODELS] = {104, 160};

/* Every fortieth request for memory fails, while this is on. */
static bool memory_is_short;
static uint64_t memory_random = 88172645463325252u;

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t n, size_t bytes);
void *__real_realloc(void *old, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes);

static bool memory_fails(void)
{
	memory_random = memory_random * 6364136223846793005u + 1442695040888963407u;
	return memory_is_short && (memory_random >> 33) % 40 == 0;
}

void *__wrap_malloc(size_t bytes)
{
	return memory_fails() ? NULL : __real_malloc(bytes);
}

void *__wrap_calloc(size_t n, size_t bytes)
{
	return memory_fails() ? NULL : __real_calloc(n, bytes);
}

void *__wrap_realloc(void *old, size_t bytes)
{
	return memory_fails() ? NULL : __real_realloc(old, bytes);
}

static uint32_t random_below(struct world *w, uint32_t n)
{
	w->random ^= w->random << 13;
	w->random ^= w->random >> 7;
	w->random ^= w->random << 17;
	return (uint32_t)((w->random >> 11) % n);
}

static uint32_t min_u32(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

static uint32_t model_of(uint32_t space)
{
	return space % N_MODELS;
}

static uint64_t prefix_hash(uint64_t before, uint32_t token)
{
	return (before ^ (token + 1)) * 0x9e3779b97f4a7c15u ^ before >> 29;
}

static uint64_t path_hash(const uint32_t *tokens, uint32_t n)
{
	uint64_t hash = 1;

	for (uint32_t i = 0; i < n; i++)
		hash = prefix_hash(hash, tokens[i]);
	return hash;
}

static uint32_t n_devices_of(const struct world *w)
{
	return w->room.n_devices ? w->room.n_devices : 1;
}

static uint64_t *row_at(struct world *w, uint32_t model, uint32_t page, uint32_t row)
{
	uint32_t n = n_devices_of(w), n_pages = EXTENT_BYTES / n / page_bytes[model] * n;
	uint32_t extent = page / n_pages;

	assert_true(extent < FIXTURE_EXTENTS && w->f.committed[extent]);
	assert_true(row < page_tokens[model]);
	return (uint64_t *)(void *)(w->pool[extent] + page % n_pages * page_bytes[model]) + row;
}

static void world_release(void *ctx, uint32_t extent)
{
	struct world *w = ctx;

	fixture_release(&w->f, extent);
	memset(w->pool[extent], 0, EXTENT_BYTES);
}

static int world_commit(void *ctx, uint32_t extent)
{
	struct world *w = ctx;

	w->f.refuse = random_below(w, 200) == 0;
	return fixture_commit(&w->f, extent);
}

/* Every token of the path lies in its row, with its prefix. */
static void check_path(struct world *w, const struct model_seq *m)
{
	uint64_t hashes[2 * MAX_TOKENS + 1] = {1};

	assert_int_equal(store_seq_n_tokens(m->q), m->n);
	assert_int_equal(store_seq_n_live(m->q), m->n_live);
	for (uint32_t i = 0; i < m->n; i++)
		hashes[i + 1] = prefix_hash(hashes[i], m->tokens[i]);
	uint32_t end = m->n;
	for (const struct store_node *n = store_seq_node(m->q); n; n = store_node_parent(n)) {
		uint32_t n_slices, pos = store_node_pos(n);
		const struct store_slice *slices = store_node_slices(n, &n_slices);
		assert_true(pos + store_node_n_tokens(n) >= end);
		for (uint32_t i = 0; i < n_slices; i++)
			for (uint32_t j = 0; j < slices[i].count; j++, pos++)
				assert_true(pos >= end ||
					    hashes[pos + 1] == *row_at(w, model_of(m->space),
								       slices[i].page,
								       slices[i].first + j));
		end = store_node_pos(n);
	}
	assert_int_equal(end, 0);
}

static void end_leases(struct world *w)
{
	for (uint32_t i = 0; i < N_SEQS; i++)
		if (w->seqs[i].claims && w->seqs[i].lease_ns <= w->f.now_ns)
			w->seqs[i].claims = false;
}

/* Changes when something went that a match might have found. */
static uint64_t losses(struct world *w)
{
	struct store_tiers_stats stats;

	store_tiers_stats(w->f.store, &stats);
	return fixture_stats(&w->f).nodes_evicted + stats.slices_dropped + stats.wants_failed;
}

static uint32_t common(const uint32_t *a, const uint32_t *b, uint32_t n)
{
	uint32_t i = 0;

	while (i < n && a[i] == b[i])
		i++;
	return i;
}

/* At least so many tokens must be found: in use, or seen since the last eviction. */
static uint32_t least_cached(struct world *w, const struct model_seq *m, const uint32_t *tokens,
			     uint32_t n)
{
	uint64_t lost = losses(w);
	uint32_t best = 0;

	for (uint32_t i = 0; i < N_SEQS; i++) {
		const struct model_seq *o = &w->seqs[i];
		if (!o->q || o == m || o->space != m->space)
			continue;
		uint32_t c = common(tokens, o->tokens, min_u32(n, o->n));
		best = c > best ? c : best;
	}
	for (uint32_t i = 0; i < N_RECENT; i++) {
		const struct recent *r = &w->recent[i];
		if (r->space != m->space || r->losses != lost)
			continue;
		uint32_t c = common(tokens, r->tokens, min_u32(n, r->n));
		best = c > best ? c : best;
	}
	return best;
}

static void remember(struct world *w, const struct model_seq *m)
{
	struct recent *r = &w->recent[w->n_recent++ % N_RECENT];

	*r = (struct recent){.space = m->space, .n = m->n, .losses = losses(w)};
	memcpy(r->tokens, m->tokens, m->n * sizeof(*r->tokens));
}

/* Who claims the place where the sequence stands and the token that comes next? */
static struct model_seq *claimant_at(struct world *w, const struct model_seq *m)
{
	for (uint32_t i = 0; i < N_SEQS; i++) {
		struct model_seq *o = &w->seqs[i];
		if (o->q && o != m && o->claims && o->space == m->space && o->n == m->n &&
		    !memcmp(o->tokens, m->tokens, (m->n + 1) * sizeof(*m->tokens)))
			return o;
	}
	return NULL;
}

/* The sequence has moved down; its claim moves with it or ends. */
static void move_claim(struct world *w, struct model_seq *m)
{
	if (m->claims && (m->n_prompt == 0 || claimant_at(w, m)))
		m->claims = false;
}

static void check_match(struct world *w, struct model_seq *m, struct store_match match)
{
	const struct model_seq *claimant = claimant_at(w, m);

	assert_int_equal(match.cached, m->n);
	if (match.fetching) {
		assert_true(w->room.host_units > 0 && !match.claimed && match.pending > 0);
		assert_true(m->n + match.pending < m->n_prompt);
		m->claims = false;
		w->n_fetched++;
		return;
	}
	assert_int_equal(match.claimed, !claimant);
	if (claimant) {
		uint32_t n = min_u32(m->n_prompt - 1, claimant->n_prompt) - m->n;
		assert_int_equal(match.pending,
				 common(m->tokens + m->n, claimant->tokens + m->n, n));
		return;
	}
	assert_int_equal(match.pending, 0);
	if (!m->claims)
		m->lease_ns = w->f.now_ns + FIXTURE_CLAIM_NS;
	m->claims = true;
}

/* Mostly what others have, changed somewhere. */
static uint32_t random_prompt(struct world *w, uint32_t *ret)
{
	const struct model_seq *o = &w->seqs[random_below(w, N_SEQS)];
	uint32_t n = 1 + random_below(w, MAX_TOKENS - 8);
	uint32_t kept = 0;

	if (o->q && random_below(w, 8))
		kept = min_u32(n, random_below(w, (o->n_prompt ? o->n_prompt : o->n) + 1));
	memcpy(ret, o->tokens, kept * sizeof(*ret));
	for (uint32_t i = kept; i < n; i++)
		ret[i] = random_below(w, 2);
	return n;
}

static void op_open(struct world *w, struct model_seq *m)
{
	struct store_match match;
	uint32_t tokens[MAX_TOKENS];
	uint32_t n = random_prompt(w, tokens);
	uint32_t space = random_below(w, N_SPACES);
	struct store_open open = {
		.model = w->models[model_of(space)],
		.domain = space / N_MODELS % 2,
		.salt = space / (2 * N_MODELS),
		.tokens = tokens,
		.n_tokens = n,
		.owner = space,
	};

	*m = (struct model_seq){.space = space, .n_prompt = n};
	memcpy(m->tokens, tokens, n * sizeof(*tokens));
	uint32_t least = least_cached(w, m, tokens, n - 1);
	end_leases(w);
	assert_int_equal(store_seq_open(w->f.store, &open, w->f.now_ns, &m->q, &match), 0);
	assert_true(match.cached + match.pending * match.fetching >= least && match.cached < n);
	m->n = match.cached;
	check_match(w, m, match);
}

static void op_rematch(struct world *w, struct model_seq *m)
{
	struct store_match match = {0};
	int r = store_seq_rematch(m->q, w->f.now_ns, &match);

	end_leases(w);
	assert_int_equal(r, m->n_live ? -EBUSY : 0);
	if (r)
		return;
	if (m->n_prompt == 0) {
		assert_true(match.cached == m->n && !match.pending && !match.claimed);
		return;
	}
	if (!w->room.host_units)
		assert_true(match.cached >= least_cached(w, m, m->tokens, m->n_prompt - 1));
	assert_true(match.cached >= m->n && match.cached < m->n_prompt);
	m->n = match.cached;
	move_claim(w, m);
	check_match(w, m, match);
}

/* What an extension writes. Of a draft the tokens that will be accepted continue the path, the others are anything. */
static void write_rows(struct world *w, struct model_seq *m)
{
	uint64_t hash = path_hash(m->tokens, m->n);
	uint32_t n_slots, done = 0, n_next = 0;
	const struct store_slice *slots = store_seq_slots(m->q, &n_slots);

	for (uint32_t i = 0; i < n_slots; i++) {
		for (uint32_t j = 0; j < slots[i].count; j++, done++) {
			uint64_t *row =
				row_at(w, model_of(m->space), slots[i].page, slots[i].first + j);
			assert_int_equal((m->n + done) % page_tokens[model_of(m->space)],
					 slots[i].first + j);
			*row = w->random | 1;
			if (m->draft && (n_next == m->n_accepted || m->accepted[n_next] != done))
				continue;
			hash = prefix_hash(hash, m->live[done]);
			*row = hash;
			n_next++;
		}
	}
	assert_int_equal(done, m->n_live);
}

static void choose_accepted(struct world *w, struct model_seq *m, uint32_t n)
{
	m->n_accepted = 0;
	for (uint32_t i = 0; i < n; i++)
		if (random_below(w, 2))
			m->accepted[m->n_accepted++] = i;
}

static void op_extend(struct world *w, struct model_seq *m)
{
	uint32_t live[MAX_TOKENS];
	uint32_t n = 1 + random_below(w, random_below(w, 2) ? 3 : 12);
	bool draft = random_below(w, 4) == 0;
	bool on_prompt = random_below(w, 8) > 0;

	for (uint32_t i = 0; i < n; i++)
		live[i] = on_prompt && m->n + i < m->n_prompt ? m->tokens[m->n + i]
							      : random_below(w, 2);
	memory_is_short = w->room.short_memory;
	int r = store_seq_extend(m->q, live, n, draft, w->f.now_ns);
	memory_is_short = false;
	end_leases(w);
	w->n_enospc += r == -ENOSPC;
	w->n_edquot += r == -EDQUOT;
	if (m->n_live > 0)
		assert_int_equal(r, -EBUSY);
	else if (m->n + n > MAX_TOKENS)
		assert_int_equal(r, -EINVAL);
	else
		assert_true(r == 0 || r == -ENOSPC || r == -EDQUOT ||
			    (r == -ENOMEM && w->room.short_memory));
	if (r)
		return;
	m->n_live = n;
	m->draft = draft;
	memcpy(m->live, live, n * sizeof(*live));
	choose_accepted(w, m, draft ? n : 0);
	if (m->claims && common(live, m->tokens + m->n, min_u32(n, m->n_prompt - m->n)) <
				 min_u32(n, m->n_prompt - m->n))
		m->claims = false;
	write_rows(w, m);
}

/* The table's side of a publication. */
static void join(struct world *w, struct model_seq *m, const uint32_t *ids, uint32_t n)
{
	uint32_t n_same = m->n_prompt ? min_u32(n, m->n_prompt - m->n) : 0;
	bool agrees = common(ids, m->tokens + m->n, n_same) == n_same;

	if (m->n + n >= m->n_prompt || !agrees)
		m->n_prompt = 0;
	memcpy(m->tokens + m->n, ids, n * sizeof(*ids));
	m->n += n;
	m->n_live = 0;
	m->draft = false;
	move_claim(w, m);
	m->lease_ns = w->f.now_ns + FIXTURE_CLAIM_NS;
	remember(w, m);
}

static void op_publish(struct world *w, struct model_seq *m)
{
	memory_is_short = w->room.short_memory;
	int r = store_seq_publish(m->q, w->f.now_ns);

	memory_is_short = false;
	end_leases(w);
	if (r == -ENOMEM && w->room.short_memory)
		return;
	assert_int_equal(r, m->n_live == 0 || m->draft ? -EINVAL : 0);
	if (r)
		return;
	join(w, m, m->live, m->n_live);
	assert_int_equal(store_seq_n_tokens(m->q), m->n);
}

static void op_accept(struct world *w, struct model_seq *m)
{
	struct store_move moves[MAX_TOKENS];
	uint32_t ids[MAX_TOKENS];
	uint32_t n_moves = 0, model = model_of(m->space);
	int r = store_seq_accept(m->q, m->accepted, m->n_accepted, w->f.now_ns, moves, &n_moves);

	end_leases(w);
	assert_int_equal(r, m->draft ? 0 : -EINVAL);
	if (r)
		return;
	for (uint32_t i = 0; i < n_moves; i++) {
		assert_int_equal(moves[i].to_page % n_devices_of(w),
				 moves[i].from_page % n_devices_of(w));
		*row_at(w, model, moves[i].to_page, moves[i].to_row) =
			*row_at(w, model, moves[i].from_page, moves[i].from_row);
	}
	for (uint32_t i = 0; i < m->n_accepted; i++)
		ids[i] = m->live[m->accepted[i]];
	m->n_live = 0;
	m->draft = false;
	if (m->n_accepted > 0)
		join(w, m, ids, m->n_accepted);
}

static void op_void(struct world *w, struct model_seq *m)
{
	store_seq_void(m->q, w->f.now_ns);
	end_leases(w);
	m->n_live = 0;
	m->draft = false;
}

static void op_trim(struct world *w, struct model_seq *m)
{
	uint32_t n = random_below(w, 4) ? m->n : random_below(w, m->n + 2);
	int r = store_seq_trim(m->q, n, w->f.now_ns);

	end_leases(w);
	assert_int_equal(r, n > m->n ? -EINVAL : 0);
	if (r)
		return;
	m->n_live = 0;
	m->draft = false;
	m->claims = false;
	if (n < m->n)
		m->n_prompt = 0;
	m->n = n;
}

static void op_fork(struct world *w, struct model_seq *m, struct model_seq *to)
{
	struct store_seq *q = NULL;
	int r = store_seq_fork(m->q, 1, w->f.now_ns, &q);

	end_leases(w);
	assert_int_equal(r, m->n_live ? -EBUSY : 0);
	if (r)
		return;
	*to = *m;
	to->q = q;
	to->claims = false;
	check_path(w, to);
}

static void op_close(struct world *w, struct model_seq *m)
{
	store_seq_close(m->q, w->f.now_ns);
	end_leases(w);
	*m = (struct model_seq){0};
}

static void op_progress(struct world *w, struct model_seq *m)
{
	store_seq_progress(m->q, w->f.now_ns);
	end_leases(w);
	m->lease_ns = w->f.now_ns + FIXTURE_CLAIM_NS;
}

static void op_pin(struct world *w, struct model_seq *m)
{
	uint64_t *pin = &w->pins[random_below(w, N_PINS)];

	if (*pin)
		store_unpin(w->f.store, *pin, UINT64_MAX, w->f.now_ns);
	end_leases(w);
	assert_int_equal(store_seq_pin(m->q, w->f.now_ns + random_below(w, 1000), pin), 0);
}

static void op_walk(struct world *w)
{
	struct store_node_info info[8];
	uint64_t pin;
	uint32_t n = store_walk(w->f.store, UINT64_MAX, &w->cursor, info, 1 + random_below(w, 8));

	for (uint32_t i = 0; i < n; i++)
		assert_true(info[i].parent_id ? info[i].n_tokens > 0 : info[i].n_tokens == 0);
	if (n == 0) {
		assert_int_equal(w->cursor, 0);
		return;
	}
	assert_int_equal(store_node_pin(w->f.store, info[0].id, w->f.now_ns + 50, &pin), 0);
}

/* Rows of a page that matter; the others are left alone or spoilt. */
static void rows_copy(void *to, const void *from, const struct tier_copy *what)
{
	size_t at = what->first * sizeof(uint64_t);

	memcpy((char *)to + at, (const char *)from + at, what->count * sizeof(uint64_t));
}

static struct copy *copy_ask(struct copies *c, const struct tier_copy *what)
{
	struct copy *copy = &c->ring[c->n_asked++ % MAX_COPIES];

	assert_true(c->n_asked - c->n_done <= MAX_COPIES);
	copy->what = *what;
	return copy;
}

static uint64_t world_down(void *ctx, const struct tier_copy *what)
{
	struct world *w = ctx;
	struct copy *copy = copy_ask(&w->downs, what);

	assert_true(w->f.committed[what->extent]);
	assert_true(what->offset_bytes + what->bytes <= EXTENT_BYTES);
	memcpy(copy->bytes, w->pool[what->extent] + what->offset_bytes, what->bytes);
	memset(what->host, 0xdb, what->bytes);
	return w->downs.n_asked;
}

static uint64_t world_up(void *ctx, const struct tier_copy *what)
{
	struct world *w = ctx;

	assert_true(w->f.committed[what->extent]);
	assert_true(what->offset_bytes + what->bytes <= EXTENT_BYTES);
	memset(w->pool[what->extent] + what->offset_bytes, 0xdb, what->bytes);
	copy_ask(&w->ups, what);
	return w->ups.n_asked;
}

/* Some end now. */
static uint64_t world_downs_done(void *ctx)
{
	struct world *w = ctx;

	while (w->downs.n_done < w->downs.n_asked && random_below(w, 4)) {
		struct copy *copy = &w->downs.ring[w->downs.n_done++ % MAX_COPIES];
		rows_copy(copy->what.host, copy->bytes, &copy->what);
	}
	return w->downs.n_done;
}

static uint64_t world_ups_done(void *ctx)
{
	struct world *w = ctx;

	while (w->ups.n_done < w->ups.n_asked && random_below(w, 4)) {
		const struct tier_copy *what = &w->ups.ring[w->ups.n_done++ % MAX_COPIES].what;
		assert_true(w->f.committed[what->extent]);
		rows_copy(w->pool[what->extent] + what->offset_bytes, what->host, what);
	}
	return w->ups.n_done;
}

static void world_kick(void *ctx)
{
	(void)ctx;
}

static void *memory_alloc(void *ctx, size_t bytes)
{
	(void)ctx;
	return aligned_alloc(UNIT_BYTES, bytes);
}

static void memory_free(void *ctx, void *memory, size_t bytes)
{
	(void)ctx;
	(void)bytes;
	free(memory);
}

static struct tier_file *world_file(struct world *w)
{
	char error[256] = "";
	struct tier_file *file;
	struct tier_file_config config = {
		.path = w->path,
		.bytes = (256u << 10) + w->room.file_units * UNIT_BYTES,
		.unit_bytes = UNIT_BYTES,
		.chunk_units = CHUNK_UNITS,
		.depth = 4,
	};

	if (tier_file_open(&config, &file, error, sizeof(error)))
		fail_msg("%s", error);
	return file;
}

static void world_attach(struct world *w)
{
	char error[256] = "";
	struct store_tiers_found found;
	struct tier_host_config host = {
		.memory = {.alloc = memory_alloc, .free = memory_free},
		.bytes = w->room.host_units * UNIT_BYTES,
		.unit_bytes = UNIT_BYTES,
		.chunk_units = CHUNK_UNITS,
	};
	struct store_tiers_config config = {
		.mover = {.ctx = w,
			  .down = world_down,
			  .up = world_up,
			  .downs_done = world_downs_done,
			  .ups_done = world_ups_done,
			  .kick = world_kick},
		.domain_bytes = {0, w->room.domain_tier_bytes, w->room.domain_tier_bytes},
		.depth = 4,
	};

	w->downs.n_asked = w->downs.n_done = w->ups.n_asked = w->ups.n_done = 0;
	if (tier_host_new(&host, &config.host, error, sizeof(error)))
		fail_msg("%s", error);
	if (w->room.file_units)
		config.file = world_file(w);
	assert_int_equal(store_tiers_attach(w->f.store, &config, &found), 0);
	assert_int_equal(found.n_lost, 0);
	w->n_restored += found.n_tokens;
}

static void op_poll(struct world *w)
{
	memory_is_short = w->room.short_memory;
	store_tiers_poll(w->f.store, w->f.now_ns);
	memory_is_short = false;
}

/* One bit of some page in the file, past the journal. */
static void op_flip(struct world *w)
{
	static _Alignas(UNIT_BYTES) uint8_t block[UNIT_BYTES];
	struct tier_head head;
	char why[128];
	int fd = open(w->path, O_RDWR | O_CLOEXEC),
	    direct = open(w->path, O_RDWR | O_DIRECT | O_CLOEXEC);

	assert_true(fd >= 0 && direct >= 0);
	assert_int_equal(tier_head_read(fd, UINT64_MAX, &head, why, sizeof(why)), 0);
	off_t at = (off_t)(head.data_at + random_below(w, (uint32_t)head.n_units) * UNIT_BYTES);
	assert_int_equal(pread(direct, block, UNIT_BYTES, at), UNIT_BYTES);
	block[random_below(w, 104)] ^= (uint8_t)(1u << random_below(w, 8));
	assert_int_equal(pwrite(direct, block, UNIT_BYTES, at), UNIT_BYTES);
	close(fd);
	close(direct);
}

static void op_tick(struct world *w)
{
	w->f.now_ns += random_below(w, 40);
	store_tick(w->f.store, w->f.now_ns);
	end_leases(w);
}

static void op_on_seq(struct world *w, struct model_seq *m)
{
	uint32_t op = random_below(w, 100);

	if (op < 12)
		op_rematch(w, m);
	else if (op < 75 && m->n_live == 0)
		op_extend(w, m);
	else if (op < 62)
		op_publish(w, m);
	else if (op < 80)
		op_accept(w, m);
	else if (op < 82)
		op_void(w, m);
	else if (op < 86)
		op_trim(w, m);
	else if (op < 90)
		op_progress(w, m);
	else if (op < 91)
		op_pin(w, m);
	else if (op < 95)
		op_extend(w, m);
	else
		op_close(w, m);
	if (m->q)
		check_path(w, m);
}

static void world_open(struct world *w)
{
	struct store_config config = {
		.pool = {.ctx = w, .commit = world_commit, .release = world_release},
		.n_extents = w->room.n_extents,
		.extent_bytes = EXTENT_BYTES,
		.n_devices = w->room.n_devices,
		.claim_ns = FIXTURE_CLAIM_NS,
		.domain_bytes = w->room.domain_bytes,
		.max_seq_tokens = MAX_TOKENS,
	};

	assert_int_equal(store_new(&config, &w->f.store), 0);
	if (w->room.host_units)
		world_attach(w);
	w->models[0] = fixture_model(&w->f, "a", page_tokens[0], page_bytes[0]);
	w->models[1] = fixture_model(&w->f, "b", page_tokens[1], page_bytes[1]);
	for (uint32_t i = 0; i < N_RECENT; i++)
		w->recent[i].space = N_SPACES;
	memset(w->pins, 0, sizeof(w->pins));
	w->cursor = 0;
}

static void world_close(struct world *w)
{
	for (uint32_t i = 0; i < N_SEQS; i++) {
		store_seq_close(w->seqs[i].q, w->f.now_ns);
		w->seqs[i] = (struct model_seq){0};
	}
	fixture_check(&w->f);
	for (uint32_t i = 0; i < N_MODELS; i++)
		store_model_unref(w->models[i]);
	store_free(w->f.store);
	assert_int_equal(w->f.n_committed, 0);
	assert_true(w->downs.n_done == w->downs.n_asked && w->ups.n_done == w->ups.n_asked);
}

/* The file alone is left; now and then all of it was written first. */
static void op_restart(struct world *w)
{
	if (random_below(w, 2)) {
		store_tiers_flush(w->f.store);
		for (uint32_t i = 0; i < 50; i++)
			store_tiers_poll(w->f.store, w->f.now_ns);
	}
	world_close(w);
	world_open(w);
	w->n_restarts++;
	fixture_check(&w->f);
}

static void world_step(struct world *w)
{
	struct model_seq *m = &w->seqs[random_below(w, N_SEQS)];
	const struct model_seq *other = &w->seqs[random_below(w, N_SEQS)];
	uint32_t op = random_below(w, 100);

	if (w->room.host_units && random_below(w, 3) == 0)
		op_poll(w);
	if (w->room.flips && random_below(w, 200) == 0)
		op_flip(w);
	if (w->room.file_units && random_below(w, 3000) == 0)
		op_restart(w);
	if (op < 3)
		op_tick(w);
	else if (op == 3)
		op_walk(w);
	else if (op == 4)
		store_evict(w->f.store, random_below(w, 2) ? "a" : "b", random_below(w, 8),
			    random_below(w, 4));
	else if (m->q)
		op_on_seq(w, m);
	else if (other->q && random_below(w, 4) == 0)
		op_fork(w, (struct model_seq *)other, m);
	else
		op_open(w, m);
	if (m->q && op >= 5)
		check_path(w, m);
}

static void check_counts(struct world *w)
{
	struct store_stats stats = fixture_stats(&w->f);
	uint64_t n_seqs = 0, n_claims = 0;

	for (uint32_t i = 0; i < N_SEQS; i++) {
		n_seqs += w->seqs[i].q != NULL;
		n_claims += w->seqs[i].q && w->seqs[i].claims;
		if (w->seqs[i].q)
			check_path(w, &w->seqs[i]);
	}
	assert_int_equal(stats.n_seqs, n_seqs);
	assert_int_equal(stats.n_claims, n_claims);
	assert_int_equal(stats.n_extents_used, w->f.n_committed);
	fixture_check(&w->f);
}

static void world_init(struct world *w, uint64_t seed, struct room room)
{
	*w = (struct world){.random = seed * 2 + 1, .room = room};
	if (room.file_units) {
		strcpy(w->directory, "store_random_test.XXXXXX");
		assert_non_null(mkdtemp(w->directory));
		snprintf(w->path, sizeof(w->path), "%s/kv", w->directory);
	}
	world_open(w);
}

static void world_done(struct world *w)
{
	world_close(w);
	if (w->room.file_units) {
		unlink(w->path);
		assert_int_equal(rmdir(w->directory), 0);
	}
}

static uint64_t number_from(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);

	return text ? strtoull(text, NULL, 0) : otherwise;
}

static void print_tiers(struct world *w)
{
	struct store_tiers_stats t;

	store_tiers_stats(w->f.store, &t);
	printf("fetching %lu times; since the last of %lu restarts: hits %lu + %lu, down %lu, up "
	       "%lu, "
	       "written %lu, read %lu, dropped %lu, bad %lu, failed %lu; restored %lu tokens; %s\n",
	       w->n_fetched, w->n_restarts, t.tiers[STORE_HOST].hits, t.tiers[STORE_FILE].hits,
	       t.tiers[STORE_HOST].bytes_in, t.tiers[STORE_HOST].bytes_out,
	       t.tiers[STORE_FILE].bytes_in, t.tiers[STORE_FILE].bytes_out, t.slices_dropped,
	       t.images_bad, t.wants_failed, w->n_restored, t.error ? t.error : "no error");
}

static void run(struct room room)
{
	static struct world w;
	uint64_t seed = number_from("COPPICE_SEED", (uint64_t)time(NULL));
	uint64_t n_ops = number_from("COPPICE_OPS", DEFAULT_OPS);

	printf("COPPICE_SEED=%lu COPPICE_OPS=%lu\n", seed, n_ops);
	fflush(stdout);
	world_init(&w, seed, room);
	for (uint64_t i = 0; i < n_ops; i++) {
		world_step(&w);
		if (i % (room.host_units ? 20 : 200) == 0)
			check_counts(&w);
	}
	check_counts(&w);
	struct store_stats s = fixture_stats(&w.f);
	printf("matched %lu published %lu dropped %lu splits %lu evicted %lu nodes, "
	       "%lu without room, %lu over quota\n",
	       s.tokens_matched, s.tokens_published, s.tokens_dropped, s.splits, s.nodes_evicted,
	       w.n_enospc, w.n_edquot);
	if (room.host_units)
		print_tiers(&w);
	world_done(&w);
}

static void test_with_plenty_of_room(void **state)
{
	(void)state;
	run((struct room){.n_extents = 48});
}

static void test_with_little_room(void **state)
{
	(void)state;
	run((struct room){.n_extents = 9});
}

static void test_with_limits_of_domains(void **state)
{
	(void)state;
	run((struct room){.n_extents = 48, .domain_bytes = 3000});
}

static void test_with_little_room_and_limits(void **state)
{
	(void)state;
	run((struct room){.n_extents = 12, .domain_bytes = 5000});
}

static void test_with_host_memory_below(void **state)
{
	(void)state;
	run((struct room){.n_extents = 9, .host_units = 40});
}

static void test_with_a_file_below(void **state)
{
	(void)state;
	run((struct room){.n_extents = 9, .host_units = 24, .file_units = 100});
}

static void test_with_a_roomy_file_below(void **state)
{
	(void)state;
	run((struct room){.n_extents = 9, .host_units = 12, .file_units = 1000});
}

static void test_with_tiers_and_limits(void **state)
{
	(void)state;
	run((struct room){.n_extents = 12,
			  .domain_bytes = 5000,
			  .host_units = 32,
			  .file_units = 100,
			  .domain_tier_bytes = 20 * UNIT_BYTES});
}

static void test_with_a_file_whose_bits_flip(void **state)
{
	(void)state;
	run((struct room){.n_extents = 9, .host_units = 24, .file_units = 200, .flips = true});
}

static void test_with_tiers_and_short_memory(void **state)
{
	(void)state;
	run((struct room){
		.n_extents = 9, .host_units = 24, .file_units = 200, .short_memory = true});
}

static void test_with_two_devices(void **state)
{
	(void)state;
	run((struct room){.n_extents = 48, .n_devices = 2});
}

static void test_with_three_devices_and_little_room(void **state)
{
	(void)state;
	run((struct room){.n_extents = 12, .n_devices = 3});
}

static void test_with_four_devices_and_limits(void **state)
{
	(void)state;
	run((struct room){.n_extents = 24, .n_devices = 4, .domain_bytes = 9000});
}

static void test_with_four_devices_and_tiers(void **state)
{
	(void)state;
	run((struct room){.n_extents = 16, .n_devices = 4, .host_units = 24, .file_units = 200});
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_with_plenty_of_room),
		cmocka_unit_test(test_with_little_room),
		cmocka_unit_test(test_with_limits_of_domains),
		cmocka_unit_test(test_with_little_room_and_limits),
		cmocka_unit_test(test_with_host_memory_below),
		cmocka_unit_test(test_with_a_file_below),
		cmocka_unit_test(test_with_a_roomy_file_below),
		cmocka_unit_test(test_with_tiers_and_limits),
		cmocka_unit_test(test_with_a_file_whose_bits_flip),
		cmocka_unit_test(test_with_tiers_and_short_memory),
		cmocka_unit_test(test_with_two_devices),
		cmocka_unit_test(test_with_three_devices_and_little_room),
		cmocka_unit_test(test_with_four_devices_and_limits),
		cmocka_unit_test(test_with_four_devices_and_tiers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
