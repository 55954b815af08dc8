/*
 * store_fixture.h - a store over a pool that remembers which extents have memory, and short words
 * for the tests.
 */
#ifndef COPPICE_STORE_FIXTURE_H
#define COPPICE_STORE_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "kvstore/store.h"

#define FIXTURE_EXTENTS 64u
#define FIXTURE_CLAIM_NS 1000u

struct fixture {
	bool committed[FIXTURE_EXTENTS];
	uint32_t n_committed;
	bool refuse; /* the next commits fail */
	struct store *store;
	struct store_model *model;
	uint64_t now_ns;
};

static inline int fixture_commit(void *ctx, uint32_t extent)
{
	struct fixture *f = ctx;

	assert_true(extent < FIXTURE_EXTENTS);
	assert_false(f->committed[extent]);
	if (f->refuse)
		return -12;
	f->committed[extent] = true;
	f->n_committed++;
	return 0;
}

static inline void fixture_release(void *ctx, uint32_t extent)
{
	struct fixture *f = ctx;

	assert_true(f->committed[extent]);
	f->committed[extent] = false;
	f->n_committed--;
}

/* Pages of 4 tokens and 100 bytes unless said otherwise. */
struct fixture_options {
	uint32_t n_extents, extent_pages, page_tokens;
	uint32_t n_devices; /* 0: one */
	uint64_t domain_bytes; /* of all but domain 0 and the owner, who have no limit */
	uint32_t reserved_extents;
	uint64_t owner;
	uint32_t max_domain_pins;
	uint64_t domain_pin_bytes;
	uint64_t prompt_bytes, domain_prompt_bytes;
	uint32_t max_path_nodes;
};

static inline struct store_model *fixture_model(struct fixture *f, const char *name,
						uint32_t page_tokens, uint64_t page_bytes)
{
	struct store_model *m;
	struct store_model_info info = {
		.name = name,
		.fingerprint = {1, 2},
		.page_tokens = page_tokens,
		.page_bytes = page_bytes,
		.striped = true,
	};

	assert_int_equal(store_model_open(f->store, &info, &m), 0);
	return m;
}

static inline void fixture_init(struct fixture *f, struct fixture_options o)
{
	struct store_config config = {
		.pool = {.ctx = f, .commit = fixture_commit, .release = fixture_release},
		.n_extents = o.n_extents ? o.n_extents : 8,
		.extent_bytes = 100 * (o.extent_pages ? o.extent_pages : 16),
		.n_devices = o.n_devices,
		.claim_ns = FIXTURE_CLAIM_NS,
		.domain_bytes = o.domain_bytes,
		.reserved_extents = o.reserved_extents,
		.owner = o.owner,
		.max_domain_pins = o.max_domain_pins,
		.domain_pin_bytes = o.domain_pin_bytes,
		.prompt_bytes = o.prompt_bytes,
		.domain_prompt_bytes = o.domain_prompt_bytes,
		.max_seq_tokens = 100000,
		.max_path_nodes = o.max_path_nodes,
	};

	*f = (struct fixture){0};
	assert_int_equal(store_new(&config, &f->store), 0);
	f->model = fixture_model(f, "m", o.page_tokens ? o.page_tokens : 4, 100);
}

static inline void fixture_check(struct fixture *f)
{
	char error[256] = "";

	if (store_validate(f->store, error, sizeof(error)))
		fail_msg("%s", error);
}

static inline void fixture_done(struct fixture *f)
{
	fixture_check(f);
	store_model_unref(f->model);
	store_free(f->store);
	assert_int_equal(f->n_committed, 0);
}

static inline struct store_stats fixture_stats(const struct fixture *f)
{
	struct store_stats stats;

	store_stats(f->store, &stats);
	return stats;
}

/* Tokens from a string: each character is one. */
static inline uint32_t fixture_ids(const char *text, uint32_t *ret)
{
	uint32_t n = 0;

	for (; text[n]; n++)
		ret[n] = (unsigned char)text[n];
	return n;
}

static inline struct store_seq *fixture_open_in(struct fixture *f, struct store_model *m,
						uint64_t domain, uint64_t salt, const char *prompt,
						struct store_match *ret)
{
	uint32_t ids[1024];
	struct store_match match;
	struct store_seq *q;
	struct store_open open = {
		.model = m,
		.domain = domain,
		.salt = salt,
		.tokens = ids,
		.n_tokens = fixture_ids(prompt, ids),
	};

	assert_int_equal(store_seq_open(f->store, &open, f->now_ns, &q, ret ? ret : &match), 0);
	fixture_check(f);
	return q;
}

static inline struct store_seq *fixture_open(struct fixture *f, const char *prompt,
					     struct store_match *ret)
{
	return fixture_open_in(f, f->model, 1, 0, prompt, ret);
}

static inline int fixture_extend(struct fixture *f, struct store_seq *q, const char *text,
				 bool draft)
{
	uint32_t ids[1024];
	uint32_t n = fixture_ids(text, ids);
	int r = store_seq_extend(q, ids, n, draft, f->now_ns);

	fixture_check(f);
	return r;
}

static inline void fixture_publish(struct fixture *f, struct store_seq *q, const char *text)
{
	assert_int_equal(fixture_extend(f, q, text, false), 0);
	assert_int_equal(store_seq_publish(q, f->now_ns), 0);
	fixture_check(f);
}

static inline void fixture_close(struct fixture *f, struct store_seq *q)
{
	store_seq_close(q, f->now_ns);
	fixture_check(f);
}

/* Opens a prompt and computes all of it. */
static inline struct store_seq *fixture_compute(struct fixture *f, const char *prompt)
{
	struct store_match match;
	struct store_seq *q = fixture_open(f, prompt, &match);

	fixture_publish(f, q, prompt + match.cached);
	return q;
}

/* Puts a prompt into the tree and leaves it there unused. */
static inline void fixture_leave(struct fixture *f, const char *prompt)
{
	fixture_close(f, fixture_compute(f, prompt));
}

/* How much of a prompt is in the tree; changes nothing but what is used last. */
static inline uint32_t fixture_cached(struct fixture *f, const char *prompt)
{
	struct store_match match;

	fixture_close(f, fixture_open(f, prompt, &match));
	return match.cached;
}

/* Page and row of the token at a position of a sequence's published path. */
static inline void fixture_row(const struct store_seq *q, uint32_t pos, uint32_t *ret_page,
			       uint32_t *ret_row)
{
	const struct store_node *n = store_seq_node(q);
	uint32_t n_slices, at;

	while (store_node_pos(n) > pos)
		n = store_node_parent(n);
	const struct store_slice *slices = store_node_slices(n, &n_slices);
	at = store_node_pos(n);
	for (uint32_t i = 0; i < n_slices; at += slices[i++].count) {
		if (pos >= at + slices[i].count)
			continue;
		*ret_page = slices[i].page;
		*ret_row = slices[i].first + (pos - at);
		return;
	}
	fail_msg("position %u is not on the path", pos);
}

#endif
