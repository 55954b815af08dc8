/*
 * school_layers.c - what another session waits for a step is measured from its asking for it to its
 * asking for the next.
 */
#include "school_layers.h"

#include "daemon/sched/round.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define PROMPT_MOST 200u

static const struct work_shape own_shape = {.n_layers = N_LAYERS,
					    .n_q_heads = 1,
					    .n_kv_heads = 1,
					    .head_dim = 32, /* no pupils' model */
					    .page_tokens = 64,
					    .dtype = WORK_FP32};

void other_join(struct other *o, struct school *s, uint64_t user)
{
	uint32_t ids[] = {1, 2, 3};
	struct store_match match;

	*o = (struct other){0};
	world.instant = true;
	client_start(&o->c, &s->h, user, &own_shape, ARENA_BYTES);
	assert_int_equal(client_open(&o->c, ids, 3, &o->seq, &match), 0);
	world.instant = false;
}

void other_end(struct other *o)
{
	world.instant = true;
	client_end(&o->c);
}

void other_ask_prompt(struct other *o, uint32_t n)
{
	static const uint32_t ids[PROMPT_MOST];
	struct abi_step_seq rec = client_step_seq(&o->c, o->seq, n);
	struct abi_entry extend = {.kind = ABI_EXTEND, .seq = o->seq, .count = n};
	struct abi_entry step = {.kind = ABI_STEP, .count = 1};

	assert_true(n <= PROMPT_MOST);
	client_submit(&o->c, extend, ids, n * sizeof(*ids));
	client_submit(&o->c, step, &rec, sizeof(rec));
}

static bool other_waits(const struct other *o)
{
	return atomic_load(&o->c.lane->done) < o->c.ticket;
}

/* Its next step, if it has the one before. */
static void other_go(struct other *o)
{
	struct abi_step_seq rec = client_step_seq(&o->c, o->seq, 1);
	struct abi_entry extend = {.kind = ABI_EXTEND, .seq = o->seq, .count = 1};
	struct abi_entry step = {.kind = ABI_STEP, .layer = o->next_layer, .count = 1};
	uint32_t id = 7;

	if (other_waits(o))
		return;
	if (o->c.ticket)
		assert_int_equal(ring_completion(o->c.lane, o->c.ticket).reason, 0);
	if (o->asked_ns && (double)(world.now_ns - o->asked_ns) > o->longest_ns)
		o->longest_ns = (double)(world.now_ns - o->asked_ns);
	if (o->idles) {
		client_submit(&o->c, (struct abi_entry){.kind = ABI_NOP}, NULL, 0);
		o->asked_ns = 0;
		return;
	}
	o->n_steps += o->asked_ns != 0;
	if (o->next_layer == 0)
		client_submit(&o->c, extend, &id, sizeof(id));
	client_submit(&o->c, step, &rec, sizeof(rec));
	o->next_layer = (o->next_layer + 1) % N_LAYERS;
	o->asked_ns = world.now_ns;
}

void go_until(struct school *s, struct other *o, uint64_t ns)
{
	while (world.now_ns < ns) {
		for (uint32_t i = 0; i < s->n; i++)
			if (s->pupils[i].again && has(&s->pupils[i])) {
				assert_int_equal(s->pupils[i].c.ticket
							 ? end_of(&s->pupils[i]).status
							 : 0,
						 0);
				ask(&s->pupils[i], s->pupils[i].again);
			}
		if (o)
			other_go(o);
		sched_round(s->h.sched);
		world.now_ns += ROUND_NS;
	}
}

struct school *school_of_layers(uint32_t n_pupils)
{
	struct school *s = school_new((PASS_NS - FIXED_NS) / N_ROWS);

	world.batch_ns = LAYER_NS;
	school_start(s);
	for (uint32_t i = 0; i < n_pupils; i++)
		join(s, 1, N_ROWS, N_LAYERS);
	return s;
}

void go_between_segments(struct school *s, struct other *o)
{
	while (!s->h.sched->passes.now->under_way || world.next == 0)
		go_until(s, o, world.now_ns + ROUND_NS);
}
