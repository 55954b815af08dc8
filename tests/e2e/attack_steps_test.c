/*
 * attack_steps_test.c - what one user can do to hold up another by steps: as many rows as an entry
 * takes, behind long paths, one step after the other.
 *
 * With ATTACK_BUDGET_MS=60000, so that no batch is cut, each of them has to fail.
 */
#include "attack_fixture.h"
#include "stepper.h"

#include "proto/arith.h"
#include "proto/ring.h"

#include <pthread.h>
#include <unistd.h>

#define SESSIONS 5
#define CHUNK STEPPER_CHUNK
#define FORKS 60u
#define ROWS_A_FORK 16u
#define HONEST_CHUNK 128u
#define LONG_TOKENS 32768u

/* A slice of a prompt has few rows however long a batch may be: it is much behind a long path. */
static uint32_t prompt_tokens(void)
{
	return max_u32(attack_path_tokens(), LONG_TOKENS);
}

static void steps_do(struct stepper *s, const uint64_t *seqs, uint32_t n, uint32_t n_new)
{
	if (stepper_step(s, seqs, n, n_new) != 0)
		_exit(97);
}

static void extend_do(struct stepper *s, uint64_t seq, uint32_t n, uint32_t flags)
{
	if (stepper_extend(s, seq, n, flags) != 0)
		_exit(97);
}

static void entry_do(struct stepper *s, struct abi_entry entry)
{
	if (stepper_do(s, entry, NULL, 0) != 0)
		_exit(97);
}

static void trim_do(struct stepper *s, uint64_t seq)
{
	entry_do(s, (struct abi_entry){.kind = ABI_TRIM, .seq = seq, .arg = s->n_appended});
}

static void path_start(struct stepper *s, const struct harness *h, uint32_t n_tokens)
{
	stepper_start(s, h);
	while (s->n_appended < n_tokens) {
		if (stepper_append(s, CHUNK) != 0)
			_exit(97);
	}
}

/* One session's steps come often enough that each measure meets some: a token of the victim's is
 * three entries, and with several sessions each of them would meet a batch. */
struct plan {
	uint32_t n_sessions, n_tokens; /* of the path that is all sessions' */
	void *(*life)(void *); /* of a stepper *, whose tokens are its own */
};

static int compute(const struct harness *h, int said, struct plan plan)
{
	static struct stepper s[SESSIONS];
	static pthread_t threads[SESSIONS];

	for (uint32_t i = 0; i < plan.n_sessions; i++) {
		path_start(&s[i], h, plan.n_tokens);
		stepper_number_from(&s[i], (i + 1) * CHUNK);
	}
	for (uint32_t i = 1; i < plan.n_sessions; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, plan.life, &s[i]), 0);
	attack_is_on(said);
	plan.life(&s[0]);
	return 0;
}

static void *draft(void *stepper)
{
	struct stepper *s = stepper;

	while (attack_goes_on()) {
		extend_do(s, s->seq, CHUNK, ABI_EXTEND_DRAFT | ABI_EXTEND_PARENTS);
		steps_do(s, &s->seq, 1, CHUNK);
		entry_do(s, (struct abi_entry){.kind = ABI_ACCEPT, .seq = s->seq});
	}
	return NULL;
}

static int draft_trees(const struct harness *h, int said)
{
	return compute(h, said, (struct plan){1, attack_path_tokens(), draft});
}

static void prefill(struct stepper *s, uint32_t n)
{
	while (attack_goes_on()) {
		extend_do(s, s->seq, n, 0);
		steps_do(s, &s->seq, 1, n);
		trim_do(s, s->seq);
	}
}

static void *prefill_chunks(void *stepper)
{
	prefill(stepper, CHUNK);
	return NULL;
}

/* As much as goes in one batch: of each session a slice. */
static int prefill_on_all(const struct harness *h, int said)
{
	return compute(h, said, (struct plan){SESSIONS, prompt_tokens(), prefill_chunks});
}

/* What a neighbour costs who has the same path, and steps that nobody would think large. */
static int prefill_behind(const struct harness *h, int said, uint32_t n_tokens)
{
	static struct stepper s;

	path_start(&s, h, n_tokens);
	attack_is_on(said);
	prefill(&s, HONEST_CHUNK);
	return 0;
}

static int prefill_as_others_do(const struct harness *h, int said)
{
	return prefill_behind(h, said, attack_path_tokens());
}

static int prefill_long_as_others_do(const struct harness *h, int said)
{
	return prefill_behind(h, said, prompt_tokens());
}

static void *step_many(void *stepper)
{
	struct stepper *s = stepper;
	uint64_t seqs[FORKS];

	for (uint32_t i = 0; i < FORKS; i++) {
		entry_do(s, (struct abi_entry){.kind = ABI_FORK, .seq = s->seq});
		seqs[i] = ring_completion(s->x.lane, s->x.ticket).value;
	}
	while (attack_goes_on()) {
		if (stepper_extend_all(s, seqs, FORKS, ROWS_A_FORK) != 0)
			_exit(97);
		steps_do(s, seqs, FORKS, ROWS_A_FORK);
		if (stepper_trim_all(s, seqs, FORKS, s->n_appended) != 0)
			_exit(97);
	}
	return NULL;
}

static int step_forks(const struct harness *h, int said)
{
	return compute(h, said, (struct plan){1, attack_path_tokens(), step_many});
}

static void drafts_of_the_widest_trees(void **state)
{
	assert_withstood(state, prefill_as_others_do, draft_trees);
}

static void prefill_behind_long_paths(void **state)
{
	assert_withstood(state, prefill_long_as_others_do, prefill_on_all);
}

static void steps_of_many_forks_and_rows(void **state)
{
	assert_withstood(state, prefill_as_others_do, step_forks);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(drafts_of_the_widest_trees),
		cmocka_unit_test(prefill_behind_long_paths),
		cmocka_unit_test(steps_of_many_forks_and_rows),
	};

	if (harness_init(argc, argv) < 0)
		return 1;
	if (geteuid() != 0) {
		print_message("only root has several users\n");
		return 77;
	}
	return cmocka_run_group_tests_name("attacks by steps", tests, attack_setup,
					   attack_teardown);
}
