/*
 * stripe.c - tokens of a path by device, and the device for the next page.
 *
 * What a path has on each device is counted from its slices when an extension begins, then along
 * with the pages that are chosen; nothing is kept between extensions.
 */
#include "stripe.h"
#include "proto/arith.h"

/* Tokens [0, n) of a node. */
static void count_node(struct stripe *s, const struct store_node *n, uint32_t n_tokens)
{
	for (uint32_t i = 0; i < node_n_device(n) && n_tokens > 0; i++) {
		uint32_t count = min_u32(n->slices[i].count, n_tokens);
		stripe_go_on(s, n->slices[i].page, count);
		n_tokens -= count;
	}
}

void stripe_begin(struct stripe *s, const struct store_node *n, uint32_t n_path)
{
	const struct pages *pages = &node_store(n)->pages;

	*s = (struct stripe){.model = node_model(n), .namespace = n->namespace};
	for (uint32_t i = 0; i < pages->n_devices; i++)
		s->bytes[i] = pages->device_bytes[i];
	for (uint32_t end = n_path; n; end = n->pos, n = n->parent)
		count_node(s, n, end - n->pos);
}

void stripe_go_on(struct stripe *s, uint32_t page, uint32_t n_tokens)
{
	s->tokens[pages_device(&s->model->lent, page)] += n_tokens;
}

static uint64_t least(const struct stripe *s)
{
	uint64_t tokens = s->tokens[0];

	for (uint32_t i = 1; i < s->model->lent.n_devices; i++)
		tokens = min_u64(s->tokens[i], tokens);
	return tokens;
}

bool stripe_allows(const struct stripe *s, uint32_t device, uint32_t n_tokens)
{
	uint64_t run = (uint64_t)STORE_RUN_PAGES * s->model->lent.page_tokens, min = least(s);

	if (s->namespace->at_home)
		return device == s->namespace->home;
	return s->tokens[device] == min || s->tokens[device] + n_tokens <= min + run;
}

uint32_t stripe_choose(struct stripe *s, uint32_t room, uint32_t n_tokens)
{
	uint32_t best = PAGES_NONE;

	for (uint32_t i = 0; i < s->model->lent.n_devices; i++) {
		if (!stripe_allows(s, i, room))
			continue;
		if (best == PAGES_NONE || s->bytes[i] < s->bytes[best] ||
		    (s->bytes[i] == s->bytes[best] && s->tokens[i] < s->tokens[best]))
			best = i;
	}
	s->tokens[best] += n_tokens;
	s->bytes[best] += s->model->lent.page_bytes;
	return best;
}

uint32_t stripe_round(const struct store_node *n, uint32_t index)
{
	const struct store_model *m = node_model(n);

	if (n->namespace->at_home)
		return n->namespace->home;
	return (n->pos / m->lent.page_tokens + index) % m->lent.n_devices;
}
