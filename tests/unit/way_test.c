/*
 * way_test.c - a decode step's way through daemon and store, call by call, for way.py.
 *
 * The scheduler and the store are compiled into this program so that each function says when it is
 * entered and left. One client decodes by the CPU backend; once plan and company are what they
 * stay, the calls of one layer's step are written to stdout: "> address" and "<". The layer is none
 * of the first or the last, where a token begins and is published.
 */
#include "daemon/sched/round.h"
#include "sched_harness.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#define CALLS_MAX 4096u

static struct {
	bool on;
	uint32_t n;
	const void *calls[CALLS_MAX]; /* NULL: back from the last */
} way;

#define QUIET __attribute__((no_instrument_function))

QUIET void __cyg_profile_func_enter(void *function, void *site);
QUIET void __cyg_profile_func_exit(void *function, void *site);

void __cyg_profile_func_enter(void *function, void *site)
{
	(void)site;
	if (way.on && way.n < CALLS_MAX)
		way.calls[way.n++] = function;
}

void __cyg_profile_func_exit(void *function, void *site)
{
	(void)function;
	(void)site;
	if (way.on && way.n < CALLS_MAX)
		way.calls[way.n++] = NULL;
}

/* The CPU's, but that a batch is done when it has been submitted: two rounds are all that a step
 * takes. */
QUIET static int submit_and_wait(struct backend *b, const struct backend_batch *batch,
				 uint64_t *ret_id)
{
	uint64_t completed = 0;
	int r = backend_cpu.submit(b, batch, ret_id);

	while (r == 0 && completed < *ret_id)
		r = backend_cpu.completed(b, &completed);
	return r;
}

static void step(struct client *c, uint64_t seq, uint32_t layer)
{
	struct abi_step_seq rec = client_step_seq(c, seq, 1);

	assert_int_equal(client_step(c, &rec, layer).status, 0);
}

static void record(struct client *c, uint64_t seq, uint32_t layer)
{
	struct abi_step_seq rec = client_step_seq(c, seq, 1);
	struct abi_entry entry = {.kind = ABI_STEP, .layer = layer, .count = 1};
	uint64_t ticket = client_submit(c, entry, &rec, sizeof(rec));

	way.on = true;
	sched_round(c->h->sched);
	sched_round(c->h->sched);
	way.on = false;
	assert_int_equal(ring_done(c->lane), ticket);
	assert_int_equal(ring_completion(c->lane, ticket).status, 0);
	assert_true(way.n < CALLS_MAX);
}

int main(void)
{
	static const uint32_t ids[16];
	const struct work_shape shape = {.n_layers = 4,
					 .n_q_heads = 4,
					 .n_kv_heads = 2,
					 .head_dim = 16,
					 .page_tokens = 16,
					 .dtype = WORK_FP32};
	struct backend_ops ops = backend_cpu;
	struct harness h;
	struct client c;
	struct store_match match;
	uint64_t seq;

	ops.submit = submit_and_wait;
	harness_init(&h);
	h.ops = &ops;
	h.stepped = true;
	harness_start(&h);
	client_start(&c, &h, 1000, &shape, 1 << 20);
	assert_int_equal(client_open(&c, ids, 8, &seq, &match), 0);
	client_compute(&c, seq, ids, 8);
	for (int i = 0; i < 3; i++)
		client_compute(&c, seq, ids, 1);
	assert_int_equal(client_extend(&c, seq, ids, 1).status, 0);
	step(&c, seq, 0);
	step(&c, seq, 1);
	record(&c, seq, 2);
	step(&c, seq, 3);
	client_end(&c);
	harness_stop(&h);
	for (uint32_t i = 0; i < way.n; i++)
		way.calls[i] ? printf("> %p\n", way.calls[i]) : puts("<");
	return 0;
}
