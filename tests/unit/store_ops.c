/*
 * store_ops.c - the operations of store_world.h: each is drawn, done on the store and on the model,
 * and what both say is compared.
 */
#include "store_world.h"

#include <errno.h>
#include <string.h>

void ops_open(struct world *w, struct model_seq *m)
{
	struct store_match match;
	uint32_t tokens[WORLD_MAX_TOKENS];
	uint32_t n = naive_prompt(w, tokens);
	uint32_t space = world_below(w, WORLD_SPACES);
	struct store_open open = {
		.model = w->models[model_of(space)],
		.domain = space / WORLD_MODELS % 2,
		.salt = space / (2 * WORLD_MODELS),
		.tokens = tokens,
		.n_tokens = n,
	};

	*m = (struct model_seq){.space = space, .n_prompt = n};
	memcpy(m->tokens, tokens, n * sizeof(*tokens));
	uint32_t least = naive_least_cached(w, m, tokens, n - 1);
	naive_end_leases(w);
	assert_int_equal(store_seq_open(w->f.store, &open, w->f.now_ns, &m->q, &match), 0);
	assert_true(match.cached + match.pending * store_seq_is_promoted(m->q) >= least &&
		    match.cached < n);
	m->n = match.cached;
	naive_check_match(w, m, match);
}

static void op_rematch(struct world *w, struct model_seq *m)
{
	struct store_match match = {0};
	int r = store_seq_rematch(m->q, w->f.now_ns, &match);

	naive_end_leases(w);
	assert_int_equal(r, m->n_live ? -EBUSY : 0);
	if (r)
		return;
	if (m->n_prompt == 0) {
		assert_true(match.cached == m->n && !match.pending && !match.claimed);
		return;
	}
	if (!w->room.host_units)
		assert_true(match.cached >= naive_least_cached(w, m, m->tokens, m->n_prompt - 1));
	assert_true(match.cached >= m->n && match.cached < m->n_prompt);
	m->n = match.cached;
	naive_move_claim(w, m);
	naive_check_match(w, m, match);
}

/* What an extension writes. Of a draft the tokens that will be accepted continue the path, the
 * others are anything. */
static void write_rows(struct world *w, struct model_seq *m)
{
	uint64_t hash = path_hash(m->tokens, m->n);
	uint32_t n_slots, done = 0, n_next = 0;
	const struct store_slice *slots = store_seq_slots(m->q, &n_slots);

	for (uint32_t i = 0; i < n_slots; i++) {
		for (uint32_t j = 0; j < slots[i].count; j++, done++) {
			uint64_t *row =
				world_row(w, model_of(m->space), slots[i].page, slots[i].first + j);
			assert_int_equal((m->n + done) % world_page_tokens[model_of(m->space)],
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
		if (world_below(w, 2))
			m->accepted[m->n_accepted++] = i;
}

static void op_extend(struct world *w, struct model_seq *m)
{
	uint32_t live[WORLD_MAX_TOKENS];
	uint32_t n = 1 + world_below(w, world_below(w, 2) ? 3 : 12);
	bool draft = world_below(w, 4) == 0;
	bool on_prompt = world_below(w, 8) > 0;

	for (uint32_t i = 0; i < n; i++)
		live[i] = on_prompt && m->n + i < m->n_prompt ? m->tokens[m->n + i]
							      : world_below(w, 2);
	world_memory_is_short = w->room.short_memory;
	int r = store_seq_extend(m->q, live, n, draft, w->f.now_ns);
	world_memory_is_short = false;
	naive_end_leases(w);
	w->n_enospc += r == -ENOSPC;
	w->n_edquot += r == -EDQUOT;
	if (m->n_live > 0)
		assert_int_equal(r, -EBUSY);
	else if (m->n + n > WORLD_MAX_TOKENS)
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

/* The table's side of a publication. Below the device nobody waits for it. */
static void join(struct world *w, struct model_seq *m, const uint32_t *ids, uint32_t n)
{
	uint32_t n_same = m->n_prompt ? min_u32(n, m->n_prompt - m->n) : 0;
	bool agrees = common(ids, m->tokens + m->n, n_same) == n_same;

	if (m->n + n >= m->n_prompt || !agrees || !store_seq_is_resident(m->q))
		m->n_prompt = 0;
	memcpy(m->tokens + m->n, ids, n * sizeof(*ids));
	m->n += n;
	m->n_live = 0;
	m->draft = false;
	naive_move_claim(w, m);
	m->lease_ns = w->f.now_ns + FIXTURE_CLAIM_NS;
	naive_remember(w, m);
}

static void op_publish(struct world *w, struct model_seq *m)
{
	world_memory_is_short = w->room.short_memory;
	int r = store_seq_publish(m->q, w->f.now_ns);

	world_memory_is_short = false;
	naive_end_leases(w);
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
	struct store_move room[WORLD_MAX_TOKENS];
	struct store_moves moves = {.moves = room};
	uint32_t ids[WORLD_MAX_TOKENS];
	uint32_t model = model_of(m->space);
	int r = store_seq_accept(m->q, m->accepted, m->n_accepted, w->f.now_ns, &moves);

	naive_end_leases(w);
	assert_int_equal(r, m->draft ? 0 : -EINVAL);
	if (r)
		return;
	for (uint32_t i = 0; i < moves.n; i++) {
		assert_int_equal(room[i].to_page % world_n_devices(w),
				 room[i].from_page % world_n_devices(w));
		*world_row(w, model, room[i].to_page, room[i].to_row) =
			*world_row(w, model, room[i].from_page, room[i].from_row);
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
	naive_end_leases(w);
	m->n_live = 0;
	m->draft = false;
}

static void op_trim(struct world *w, struct model_seq *m)
{
	uint32_t n = world_below(w, 4) ? m->n : world_below(w, m->n + 2);
	int r = store_seq_trim(m->q, n, w->f.now_ns);

	naive_end_leases(w);
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

void ops_fork(struct world *w, struct model_seq *m, struct model_seq *to)
{
	struct store_seq *q = NULL;
	int r = store_seq_fork(m->q, w->f.now_ns, &q);

	naive_end_leases(w);
	if (r == -ENOSPC && w->room.long_paths && !m->n_live)
		return; /* for its tail */
	assert_int_equal(r, m->n_live ? -EBUSY : 0);
	if (r)
		return;
	*to = *m;
	to->q = q;
	to->claims = false;
	naive_check_path(w, to);
}

static void op_close(struct world *w, struct model_seq *m)
{
	store_seq_close(m->q, w->f.now_ns);
	naive_end_leases(w);
	*m = (struct model_seq){0};
}

static void op_progress(struct world *w, struct model_seq *m)
{
	store_seq_progress(m->q, w->f.now_ns);
	naive_end_leases(w);
	m->lease_ns = w->f.now_ns + FIXTURE_CLAIM_NS;
}

static void op_pin(struct world *w, struct model_seq *m)
{
	uint64_t *pin = &w->pins[world_below(w, WORLD_PINS)];

	if (*pin) {
		int r = store_unpin(w->f.store, *pin, UINT64_MAX, w->f.now_ns);
		assert_true(r == 0 || r == -ENOENT); /* it may have ended */
	}
	naive_end_leases(w);
	int r = store_seq_pin(m->q, w->f.now_ns + world_below(w, 1000), pin);

	if (w->room.long_paths && r == (m->n_live ? -EBUSY : -ENOSPC))
		return; /* for its tail */
	assert_int_equal(r, 0);
}

void ops_walk(struct world *w)
{
	struct store_node_info info[8];
	uint64_t pin;
	uint32_t n = store_walk(w->f.store, UINT64_MAX, &w->cursor, info, 1 + world_below(w, 8));

	for (uint32_t i = 0; i < n; i++)
		assert_true(info[i].parent_id ? info[i].n_tokens > 0 : info[i].n_tokens == 0);
	if (n == 0) {
		assert_int_equal(w->cursor, 0);
		return;
	}
	assert_int_equal(store_node_pin(w->f.store, info[0].id, w->f.now_ns + 50, &pin), 0);
}

void ops_pins(struct world *w)
{
	struct store_pin_info info[4];
	uint64_t cursor = 0, last = 0, n_all = 0;

	do {
		uint32_t n = store_pins(w->f.store, UINT64_MAX, &cursor, info, 4);
		for (uint32_t i = 0; i < n; i++) {
			assert_true(info[i].id > last && info[i].until_ns > 0);
			last = info[i].id;
		}
		n_all += n;
	} while (cursor);
	assert_int_equal(n_all, fixture_stats(&w->f).n_pins);
}

void ops_tick(struct world *w)
{
	w->f.now_ns += world_below(w, 40);
	store_tick(w->f.store, w->f.now_ns);
	naive_end_leases(w);
}

void ops_hold(struct world *w, const struct model_seq *m)
{
	if (w->held_by || !m->q || store_seq_is_resident(m->q))
		return;
	assert_int_equal(gather_begin(&w->held, m->q), 0);
	w->held_by = m;
	w->n_held++;
}

void ops_let_go(struct world *w)
{
	naive_check_path(w, w->held_by);
	gather_end(&w->held);
	w->held_by = NULL;
}

void ops_on_seq(struct world *w, struct model_seq *m)
{
	uint32_t op = world_below(w, 100);

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
		naive_check_path(w, m);
}
