/*
 * store_random_test.c - a million random operations against a naive model.
 *
 * The model is a flat table of sequences, each with all its token ids, and a shadow of the pages: for every row what was
 * last written there, as a hash of the token's whole prefix. Rows are written at extend, copied by the moves of an
 * accept, and lost when their extent goes back. After each operation every token of the sequence's path must be in its
 * row with the right prefix; claims, matches, lengths and counts must be the table's.
 *
 * One run is done with plenty of room, the others with little, or with tight limits for the domains. COPPICE_SEED
 * repeats them, COPPICE_OPS sets the operations of each.
 */
#include "store_fixture.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define N_SEQS 24u
#define MAX_TOKENS 48u
#define N_MODELS 2u
#define N_SPACES 6u
#define N_PINS 4u
#define N_RECENT 32u
#define EXTENT_BYTES 800u
#define MAX_ROWS 4096u

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
	uint64_t nodes_evicted; /* when it was seen to be there */
	uint32_t tokens[MAX_TOKENS];
};

struct world {
	struct fixture f;
	struct store_model *models[N_MODELS];
	struct model_seq seqs[N_SEQS];
	struct recent recent[N_RECENT];
	uint64_t pins[N_PINS];
	uint64_t rows[N_MODELS][MAX_ROWS];
	uint64_t random;
	uint64_t cursor;
	uint32_t n_recent;
	uint64_t n_enospc, n_edquot;
};

static const uint32_t page_tokens[N_MODELS] = {4, 6};
static const uint32_t page_bytes[N_MODELS] = {100, 160};

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

static uint64_t *row_at(struct world *w, uint32_t model, uint32_t page, uint32_t row)
{
	uint32_t n_pages = EXTENT_BYTES / page_bytes[model];
	uint32_t index = page * page_tokens[model] + row;

	assert_true(w->f.committed[page / n_pages]);
	assert_true(row < page_tokens[model] && index < MAX_ROWS);
	return &w->rows[model][index];
}

static void world_release(void *ctx, uint32_t extent)
{
	struct world *w = ctx;

	fixture_release(&w->f, extent);
	for (uint32_t m = 0; m < N_MODELS; m++) {
		uint32_t n = EXTENT_BYTES / page_bytes[m] * page_tokens[m];
		memset(&w->rows[m][extent * n], 0, n * sizeof(w->rows[m][0]));
	}
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

static uint64_t nodes_evicted(struct world *w)
{
	return fixture_stats(&w->f).nodes_evicted;
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
	uint64_t evicted = nodes_evicted(w);
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
		if (r->space != m->space || r->nodes_evicted != evicted)
			continue;
		uint32_t c = common(tokens, r->tokens, min_u32(n, r->n));
		best = c > best ? c : best;
	}
	return best;
}

static void remember(struct world *w, const struct model_seq *m)
{
	struct recent *r = &w->recent[w->n_recent++ % N_RECENT];

	*r = (struct recent){.space = m->space, .n = m->n, .nodes_evicted = nodes_evicted(w)};
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
	assert_true(match.cached >= least && match.cached < n);
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
	int r = store_seq_extend(m->q, live, n, draft, w->f.now_ns);
	end_leases(w);
	w->n_enospc += r == -ENOSPC;
	w->n_edquot += r == -EDQUOT;
	if (m->n_live > 0)
		assert_int_equal(r, -EBUSY);
	else if (m->n + n > MAX_TOKENS)
		assert_int_equal(r, -EINVAL);
	else
		assert_true(r == 0 || r == -ENOSPC || r == -EDQUOT);
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
	int r = store_seq_publish(m->q, w->f.now_ns);

	end_leases(w);
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
	for (uint32_t i = 0; i < n_moves; i++)
		*row_at(w, model, moves[i].to_page, moves[i].to_row) =
			*row_at(w, model, moves[i].from_page, moves[i].from_row);
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

static void world_step(struct world *w)
{
	struct model_seq *m = &w->seqs[random_below(w, N_SEQS)];
	const struct model_seq *other = &w->seqs[random_below(w, N_SEQS)];
	uint32_t op = random_below(w, 100);

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

static void world_init(struct world *w, uint64_t seed, uint32_t n_extents, uint64_t domain_bytes)
{
	struct store_config config = {
		.pool = {.ctx = w, .commit = world_commit, .release = world_release},
		.n_extents = n_extents,
		.extent_bytes = EXTENT_BYTES,
		.claim_ns = FIXTURE_CLAIM_NS,
		.domain_bytes = domain_bytes,
		.max_seq_tokens = MAX_TOKENS,
	};

	*w = (struct world){.random = seed * 2 + 1};
	assert_int_equal(store_new(&config, &w->f.store), 0);
	w->models[0] = fixture_model(&w->f, "a", page_tokens[0], page_bytes[0]);
	w->models[1] = fixture_model(&w->f, "b", page_tokens[1], page_bytes[1]);
	for (uint32_t i = 0; i < N_RECENT; i++)
		w->recent[i].space = N_SPACES;
}

static void world_done(struct world *w)
{
	for (uint32_t i = 0; i < N_SEQS; i++)
		store_seq_close(w->seqs[i].q, w->f.now_ns);
	fixture_check(&w->f);
	for (uint32_t i = 0; i < N_MODELS; i++)
		store_model_unref(w->models[i]);
	store_free(w->f.store);
	assert_int_equal(w->f.n_committed, 0);
}

static uint64_t number_from(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);

	return text ? strtoull(text, NULL, 0) : otherwise;
}

static void run(uint32_t n_extents, uint64_t domain_bytes)
{
	static struct world w;
	uint64_t seed = number_from("COPPICE_SEED", (uint64_t)time(NULL));
	uint64_t n_ops = number_from("COPPICE_OPS", DEFAULT_OPS);

	printf("COPPICE_SEED=%lu COPPICE_OPS=%lu\n", seed, n_ops);
	fflush(stdout);
	world_init(&w, seed, n_extents, domain_bytes);
	for (uint64_t i = 0; i < n_ops; i++) {
		world_step(&w);
		if (i % 200 == 0)
			check_counts(&w);
	}
	check_counts(&w);
	struct store_stats s = fixture_stats(&w.f);
	printf("matched %lu published %lu dropped %lu splits %lu evicted %lu nodes, "
	       "%lu without room, %lu over quota\n",
	       s.tokens_matched, s.tokens_published, s.tokens_dropped, s.splits, s.nodes_evicted,
	       w.n_enospc, w.n_edquot);
	world_done(&w);
}

static void test_with_plenty_of_room(void **state)
{
	(void)state;
	run(48, 0);
}

static void test_with_little_room(void **state)
{
	(void)state;
	run(9, 0);
}

static void test_with_limits_of_domains(void **state)
{
	(void)state;
	run(48, 3000);
}

static void test_with_little_room_and_limits(void **state)
{
	(void)state;
	run(12, 5000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_with_plenty_of_room),
		cmocka_unit_test(test_with_little_room),
		cmocka_unit_test(test_with_limits_of_domains),
		cmocka_unit_test(test_with_little_room_and_limits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
