/*
 * store_naive.c - the model of store_world.h: every sequence as an array of tokens, searched from
 * end to end, and what the store says held against it.
 */
#include "store_world.h"

#include <string.h>

/* Of its tokens those in the tree, where others find them. */
static uint32_t n_joined(const struct model_seq *m)
{
	uint32_t n_slots, n_tail;

	store_seq_tail(m->q, &n_slots, &n_tail);
	return m->n - n_tail;
}

/* Rows of a slice of the page at rows hold the path's tokens from pos on, as far as it goes.
 * Returns where the slice ends. */
static uint32_t check_rows(const uint64_t *rows, struct store_slice slice, const uint64_t *hashes,
			   uint32_t pos, uint32_t end)
{
	for (uint32_t i = 0; i < slice.count; i++, pos++)
		assert_true(pos >= end || hashes[pos + 1] == rows[slice.first + i]);
	return pos;
}

static void check_nodes(struct world *w, const struct model_seq *m, const uint64_t *hashes)
{
	uint32_t end = m->n;

	for (const struct store_node *n = store_seq_node(m->q); n; n = store_node_parent(n)) {
		uint32_t n_slices, pos = store_node_pos(n);
		const struct store_slice *slices = store_node_slices(n, &n_slices);
		assert_true(pos + store_node_n_tokens(n) >= end);
		for (uint32_t i = 0; i < n_slices && pos < end; i++)
			pos = check_rows(world_row(w, model_of(m->space), slices[i].page, 0),
					 slices[i], hashes, pos, end);
		end = store_node_pos(n);
	}
	assert_int_equal(end, 0);
}

/* Of a gather that others have been at work since, what was on the device may have left it. */
static void check_gathered(struct world *w, const struct model_seq *m, const struct gather *g,
			   const uint64_t *hashes)
{
	uint32_t n_slots, n_tail, pos = 0, model = model_of(m->space);
	const struct store_slice *tail = store_seq_tail(m->q, &n_slots, &n_tail);

	for (uint32_t i = 0; i < g->n_slices; i++) {
		if (i >= g->n_device)
			pos = check_rows(world_place(w, gather_memory(g, i)), g->slices[i], hashes,
					 pos, m->n);
		else if (w->held_by == m)
			pos += g->slices[i].count;
		else
			pos = check_rows(world_row(w, model, g->slices[i].page, 0), g->slices[i],
					 hashes, pos, m->n);
	}
	assert_int_equal(pos, g->n_tokens);
	for (uint32_t i = 0; i < n_slots; i++)
		pos = check_rows(world_row(w, model, tail[i].page, 0), tail[i], hashes, pos, m->n);
	assert_true(pos == m->n && pos == g->n_tokens + n_tail);
}

void naive_check_path(struct world *w, const struct model_seq *m)
{
	uint64_t hashes[2 * WORLD_MAX_TOKENS + 1] = {1};

	assert_int_equal(store_seq_n_tokens(m->q), m->n);
	assert_int_equal(store_seq_n_live(m->q), m->n_live);
	for (uint32_t i = 0; i < m->n; i++)
		hashes[i + 1] = prefix_hash(hashes[i], m->tokens[i]);
	if (w->held_by == m) {
		check_gathered(w, m, &w->held, hashes);
	} else if (store_seq_is_resident(m->q)) {
		check_nodes(w, m, hashes);
	} else {
		assert_true(w->room.long_paths);
		w->n_below++;
		w->n_tails += n_joined(m) < m->n;
		assert_int_equal(gather_begin(&w->gather, m->q), 0);
		check_gathered(w, m, &w->gather, hashes);
		gather_end(&w->gather);
	}
}

void naive_end_leases(struct world *w)
{
	for (uint32_t i = 0; i < WORLD_SEQS; i++)
		if (w->seqs[i].claims && w->seqs[i].lease_ns <= w->f.now_ns)
			w->seqs[i].claims = false;
}

/* Changes when something went that a match might have found. */
static uint64_t losses(struct world *w)
{
	struct store_tiers_stats stats;

	store_tiers_stats(w->f.store, &stats);
	return fixture_stats(&w->f).slices_evicted + stats.slices_dropped + stats.wants_failed;
}

uint32_t naive_least_cached(struct world *w, const struct model_seq *m, const uint32_t *tokens,
			    uint32_t n)
{
	uint64_t lost = losses(w);
	uint32_t best = 0;

	for (uint32_t i = 0; i < WORLD_SEQS; i++) {
		const struct model_seq *o = &w->seqs[i];
		if (!o->q || o == m || o->space != m->space)
			continue;
		uint32_t c = common(tokens, o->tokens, min_u32(n, n_joined(o)));
		best = c > best ? c : best;
	}
	for (uint32_t i = 0; i < WORLD_RECENT; i++) {
		const struct recent *r = &w->recent[i];
		if (r->space != m->space || r->losses != lost)
			continue;
		uint32_t c = common(tokens, r->tokens, min_u32(n, r->n));
		best = c > best ? c : best;
	}
	return best;
}

void naive_remember(struct world *w, const struct model_seq *m)
{
	struct recent *r = &w->recent[w->n_recent++ % WORLD_RECENT];

	*r = (struct recent){.space = m->space, .n = n_joined(m), .losses = losses(w)};
	memcpy(r->tokens, m->tokens, r->n * sizeof(*r->tokens));
}

/* Who claims the place where the sequence stands and the token that comes next? */
static struct model_seq *claimant_at(struct world *w, const struct model_seq *m)
{
	for (uint32_t i = 0; i < WORLD_SEQS; i++) {
		struct model_seq *o = &w->seqs[i];
		if (o->q && o != m && o->claims && o->space == m->space && o->n == m->n &&
		    !memcmp(o->tokens, m->tokens, (m->n + 1) * sizeof(*m->tokens)))
			return o;
	}
	return NULL;
}

void naive_move_claim(struct world *w, struct model_seq *m)
{
	if (m->claims && (m->n_prompt == 0 || claimant_at(w, m)))
		m->claims = false;
}

void naive_check_match(struct world *w, struct model_seq *m, struct store_match match)
{
	const struct model_seq *claimant = claimant_at(w, m);

	assert_int_equal(match.cached, m->n);
	if (store_seq_is_promoted(m->q)) {
		assert_true(w->room.host_units > 0 && !match.claimed && match.pending > 0);
		assert_true(m->n + match.pending < m->n_prompt);
		m->claims = false;
		w->n_promoted++;
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

uint32_t naive_prompt(struct world *w, uint32_t *ret)
{
	const struct model_seq *o = &w->seqs[world_below(w, WORLD_SEQS)];
	uint32_t n = 1 + world_below(w, WORLD_MAX_TOKENS - 8);
	uint32_t kept = 0;

	if (o->q && world_below(w, 8))
		kept = min_u32(n, world_below(w, (o->n_prompt ? o->n_prompt : o->n) + 1));
	memcpy(ret, o->tokens, kept * sizeof(*ret));
	for (uint32_t i = kept; i < n; i++)
		ret[i] = world_below(w, 2);
	return n;
}

void naive_check_counts(struct world *w)
{
	struct store_stats stats = fixture_stats(&w->f);
	uint64_t n_seqs = 0, n_claims = 0;

	if (w->held_by)
		ops_let_go(w); /* the store does not count what gathers refer to */
	for (uint32_t i = 0; i < WORLD_SEQS; i++) {
		n_seqs += w->seqs[i].q != NULL;
		n_claims += w->seqs[i].q && w->seqs[i].claims;
		if (w->seqs[i].q)
			naive_check_path(w, &w->seqs[i]);
	}
	assert_int_equal(stats.n_seqs, n_seqs);
	assert_int_equal(stats.n_claims, n_claims);
	assert_int_equal(stats.n_extents_used, w->f.n_committed);
	fixture_check(&w->f);
}
