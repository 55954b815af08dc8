/*
 * api_test.c - what an app may get wrong, through the library and against a real daemon: one clear
 * error to the one who caused it, nothing changed in the store, and the sequence still of use.
 * argv[1] is the daemon's program.
 *
 * Full lanes, empty prompts, unknown models, tickets that never were and a daemon that dies in a
 * step are client_test's; steps that append alone are api_append_test's; what follows from a
 * failure is api_failure_test's.
 */
#include "api_fixture.h"
#include "proto/clock.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>

/* ---- wrong steps ---------------------------------------------------------------------------- */

/* A step on its way to be wrong. */
struct attempt {
	struct fixture *f;
	struct coppice_step_seq parts[2];
	struct coppice_step step;
	struct coppice_lane *lane;
};

static char *end_of_arena(const struct attempt *a)
{
	return (char *)coppice_arena_base(a->f->arena) + coppice_arena_bytes(a->f->arena);
}

static void misalign_q(struct attempt *a)
{
	a->parts[0].q = (const char *)a->parts[0].q + 1;
}

static void misalign_stride(struct attempt *a)
{
	a->parts[0].k_stride = HEAD_DIM * (uint32_t)element_bytes() + 1;
}

static void misalign_lse(struct attempt *a)
{
	a->parts[0].lse = (float *)(void *)((char *)a->parts[0].lse + 1);
}

static void reach_beyond_with_o(struct attempt *a)
{
	a->parts[0].o = end_of_arena(a) - HEAD_DIM * element_bytes();
}

static void reach_beyond_with_stride(struct attempt *a)
{
	a->parts[0].v_stride = UINT32_MAX - 3;
}

static void reach_beyond_with_lse(struct attempt *a)
{
	a->parts[0].lse = (float *)(void *)(end_of_arena(a) - sizeof(float));
}

static void point_before_the_arena(struct attempt *a)
{
	a->parts[0].k = (const char *)coppice_arena_base(a->f->arena) - (UINT64_C(1) << 40);
}

static void mix_arenas(struct attempt *a)
{
	a->parts[0].v = coppice_arena_base(a->f->other_arena);
}

static void give_no_tokens(struct attempt *a)
{
	a->parts[0].n_new = 0;
}

static void give_too_few(struct attempt *a)
{
	a->parts[0].n_new = N_NEW - 1;
}

static void skip_a_layer(struct attempt *a)
{
	a->step.layer = 1;
}

static void name_it_twice(struct attempt *a)
{
	a->step.n_seqs = 2;
}

static void use_the_other_lane(struct attempt *a)
{
	a->lane = a->f->other_lane;
}

static void add_a_closed_one(struct attempt *a)
{
	a->parts[1].seq = &a->f->closed;
	a->step.n_seqs = 2;
}

static void add_a_strangers(struct attempt *a)
{
	a->parts[1].seq = &a->f->foreign;
	a->step.n_seqs = 2;
}

static void add_one_of_another_connection(struct attempt *a)
{
	a->parts[1].seq = a->f->strangers_seq;
	a->step.n_seqs = 2;
}

struct wrong_step {
	void (*spoil)(struct attempt *a);
	int status;
	bool voids; /* it came as far as the daemon, on the sequence's lane */
	const char *words;
};

static int attempt_step(struct fixture *f, const struct wrong_step *wrong)
{
	struct attempt a = {.f = f, .parts = {right_part(f), right_part(f)}, .lane = f->lane};
	uint64_t ticket;
	int r;

	a.step = (struct coppice_step){.seqs = a.parts, .n_seqs = 1};
	wrong->spoil(&a);
	r = coppice_step(a.lane, &a.step, &ticket);
	return r < 0 ? r : coppice_wait(a.lane, ticket, PATIENCE_NS);
}

/* Until a trim all that needs the extension ends as the step did that failed; its pages went at
 * once. */
static void assert_void_until_trimmed(struct fixture *f, const struct counts *before, int status)
{
	uint64_t ticket;

	assert_counts(f, before);
	assert_int_equal(right_step(f, 0), status);
	assert_explained(f->c, "failed first: ");
	assert_int_equal(coppice_seq_extend(f->seq, f->ids, N_NEW, &ticket), 0);
	assert_int_equal(coppice_wait(f->lane, ticket, PATIENCE_NS), status);
	assert_counts(f, before);
	fixture_trim(f);
}

static void check_wrong_step(struct fixture *f, const struct wrong_step *wrong)
{
	struct counts bare = counts_of(f), extended;
	int r;

	fixture_extend(f);
	extended = counts_of(f);
	r = attempt_step(f, wrong);
	if (r != wrong->status)
		fail_msg("%d, not %d, for \"%s\"", r, wrong->status, wrong->words);
	assert_explained(f->c, wrong->words);
	if (wrong->voids) {
		assert_void_until_trimmed(f, &bare, r);
		assert_usable(f);
	} else {
		assert_counts(f, &extended);
		fixture_finish(f);
		fixture_trim(f);
	}
}

static void wrong_steps_are_refused_and_change_nothing(void **state)
{
	static const struct wrong_step cases[] = {
		{misalign_q, -EINVAL, true, "sequence 0: a pointer or stride is not aligned"},
		{misalign_stride, -EINVAL, true, "not aligned"},
		{misalign_lse, -EINVAL, true, "lse: to 4"},
		{reach_beyond_with_o, -EINVAL, true, "sequence 0: rows reach beyond the end"},
		{reach_beyond_with_stride, -EINVAL, true, "beyond the end of the arena"},
		{reach_beyond_with_lse, -EINVAL, true, "beyond the end of the arena"},
		{point_before_the_arena, -EINVAL, false,
		 "k of sequence 0 does not lie in an arena"},
		{mix_arenas, -EINVAL, false, "sequence 0 lies in another arena than its fellows"},
		{give_no_tokens, -EINVAL, false, "n_new of sequence 0 is 0"},
		{give_too_few, -EINVAL, true, "sequence 0: n_new is not the length"},
		{skip_a_layer, -EINVAL, true, "step of layer 1"},
		{name_it_twice, -EINVAL, true, "sequence 1: the sequence stands in the step twice"},
		{use_the_other_lane, -EINVAL, false, "use the lane it was opened on"},
		{add_a_closed_one, -ESTALE, true, "sequence 1: the sequence is closed"},
		{add_a_strangers, -ESTALE, true, "belongs to another session"},
		{add_one_of_another_connection, -EINVAL, false,
		 "the handle of sequence 1 belongs to another connection"},
	};
	struct fixture *f = *state;

	assert_usable(f);
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		check_wrong_step(f, &cases[i]);
}

/* ---- other wrong entries -------------------------------------------------------------------- */

static int extend_beyond_the_limit(struct fixture *f, uint64_t *ret_ticket)
{
	return coppice_seq_extend(f->seq, f->ids, MAX_SEQ_TOKENS + 1, ret_ticket);
}

static int extend_a_closed_one(struct fixture *f, uint64_t *ret_ticket)
{
	return coppice_seq_extend(&f->closed, f->ids, N_NEW, ret_ticket);
}

static int extend_a_strangers(struct fixture *f, uint64_t *ret_ticket)
{
	return coppice_seq_extend(&f->foreign, f->ids, N_NEW, ret_ticket);
}

static int trim_a_strangers(struct fixture *f, uint64_t *ret_ticket)
{
	return coppice_seq_trim(&f->foreign, 0, ret_ticket);
}

static int accept_without_a_draft(struct fixture *f, uint64_t *ret_ticket)
{
	return coppice_seq_accept(f->seq, f->ids, 1, ret_ticket);
}

static int draft_with_a_parent_that_comes_later(struct fixture *f, uint64_t *ret_ticket)
{
	static const uint32_t parents[N_NEW] = {UINT32_MAX, 2, 0, 0};

	return coppice_seq_draft(f->seq, f->ids, parents, N_NEW, ret_ticket);
}

static int trim_to_more_than_there_is(struct fixture *f, uint64_t *ret_ticket)
{
	return coppice_seq_trim(f->seq, 1, ret_ticket);
}

static int attend_to_more_than_everything(struct fixture *f, uint64_t *ret_ticket)
{
	const struct coppice_sparse wish = {.tau = 1.01};

	return coppice_seq_sparse(f->seq, &wish, ret_ticket);
}

static int fork_a_closed_one(struct fixture *f, uint64_t *ret_ticket)
{
	struct coppice_seq *fork;

	(void)ret_ticket;
	return coppice_seq_fork(&f->closed, &fork);
}

static int wait_for_a_closed_one(struct fixture *f, uint64_t *ret_ticket)
{
	(void)ret_ticket;
	return coppice_seq_wait(&f->closed, 0, NULL);
}

static int pin_a_strangers(struct fixture *f, uint64_t *ret_ticket)
{
	(void)ret_ticket;
	return coppice_seq_pin(&f->foreign, 1000000000, NULL);
}

static int unpin_what_is_not_pinned(struct fixture *f, uint64_t *ret_ticket)
{
	(void)ret_ticket;
	return coppice_unpin(f->c, 12345);
}

static int open_too_long_a_prompt(struct fixture *f, uint64_t *ret_ticket)
{
	struct coppice_match match;
	struct coppice_seq *seq;

	(void)ret_ticket;
	return coppice_seq_open(f->lane, f->model, f->ids, MAX_SEQ_TOKENS + 1, 0, &seq, &match);
}

struct wrong_call {
	int (*call)(struct fixture *f, uint64_t *ret_ticket); /* no ticket: it is all in the code */
	int status;
	const char *words;
};

static void check_wrong_call(struct fixture *f, const struct wrong_call *wrong)
{
	struct counts before = counts_of(f);
	uint64_t ticket = 0;
	int r = wrong->call(f, &ticket);

	if (r == 0)
		r = coppice_wait(f->lane, ticket, PATIENCE_NS);
	if (r != wrong->status)
		fail_msg("%d, not %d, for \"%s\"", r, wrong->status, wrong->words);
	assert_explained(f->c, wrong->words);
	assert_counts(f, &before);
	assert_usable(f);
}

static void wrong_calls_are_refused_and_change_nothing(void **state)
{
	static const struct wrong_call cases[] = {
		{extend_beyond_the_limit, -E2BIG, "extend (ticket"},
		{extend_a_closed_one, -ESTALE, "the sequence is closed"},
		{extend_a_strangers, -ESTALE, "belongs to another session"},
		{trim_a_strangers, -ESTALE, "trim (ticket"},
		{accept_without_a_draft, -EINVAL, "no live tokens"},
		{draft_with_a_parent_that_comes_later, -EINVAL, "a parent does not come before"},
		{trim_to_more_than_there_is, -EINVAL, "fewer tokens than are to be kept"},
		{attend_to_more_than_everything, -EINVAL, "tau must be above 0"},
		{fork_a_closed_one, -ESTALE, "fork (ticket"},
		{wait_for_a_closed_one, -ESTALE, "coppice_seq_wait: No open sequence"},
		{pin_a_strangers, -ESTALE, "coppice_seq_pin: No open sequence"},
		{unpin_what_is_not_pinned, -ENOENT, "no pin 12345"},
		{open_too_long_a_prompt, -E2BIG, "30001 tokens is too long"},
	};
	struct fixture *f = *state;

	assert_usable(f);
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		check_wrong_call(f, &cases[i]);
}

/* The other lane may hold entries of the sequence's owner, but the sequence has one timeline. */
static void a_sequence_used_from_two_lanes_is_refused(void **state)
{
	struct fixture *f = *state;
	struct counts before;
	uint64_t ticket;

	assert_usable(f);
	before = counts_of(f);
	assert_int_equal(coppice_seq_extend(&f->astray, f->ids, N_NEW, &ticket), 0);
	assert_int_equal(coppice_wait(f->other_lane, ticket, PATIENCE_NS), -EINVAL);
	assert_explained(f->c, "use the lane it was opened on");
	assert_counts(f, &before);
	assert_usable(f);
}

static void a_closed_sequences_entries_end_with_a_status(void **state)
{
	struct fixture *f = *state;
	struct coppice_step_seq part = right_part(f);
	struct coppice_step step = {.seqs = &part, .n_seqs = 1};
	uint64_t tickets[3];

	for (int round = 0; round < 50; round++) {
		assert_int_equal(coppice_seq_extend(f->seq, f->ids, N_NEW, &tickets[0]), 0);
		assert_int_equal(coppice_step(f->lane, &step, &tickets[1]), 0);
		coppice_seq_close(f->seq);
		assert_int_equal(coppice_nop(f->lane, &tickets[2]), 0);
		for (int i = 0; i < 2; i++) {
			int r = coppice_wait(f->lane, tickets[i], PATIENCE_NS);

			assert_true(r == 0 || r == -ESTALE || r == -ECANCELED);
			if (r == -ECANCELED)
				assert_explained(f->c, "was closed while it was in flight");
		}
		assert_int_equal(coppice_wait(f->lane, tickets[2], PATIENCE_NS), 0);
		fixture_open_seq(f);
		part.seq = f->seq;
	}
	assert_int_equal(counts_of(f).n_pages, 0);
	assert_usable(f);
}

/* ---- models --------------------------------------------------------------------------------- */

static void wrong_models_are_refused_by_name(void **state)
{
	static const struct {
		uint32_t n_q_heads, n_kv_heads, head_dim, dtype, window, n_sinks;
		float soft_cap;
		const char *words;
	} cases[] = {
		{3, 2, 64, 0, 0, 0, 0, "(n_q_heads)"},
		{258, 2, 64, 0, 0, 0, 0, "(n_q_heads)"},
		{0, 1, 64, 0, 0, 0, 0, "(n_q_heads)"},
		{1, 0, 64, 0, 0, 0, 0, "(n_kv_heads)"},
		{1, 1, 24, 0, 0, 0, 0, "(head_dim)"},
		{1, 1, 512, 0, 0, 0, 0, "(head_dim)"},
		{1, 1, 64, 7, 0, 0, 0, "(dtype)"},
		{1, 1, 64, COPPICE_FP8_E4M3, 0, 0, 0, "no kernels for fp8 (e4m3)"},
		{1, 1, 64, COPPICE_FP8_E5M2, 0, 0, 0, "no kernels for fp8 (e5m2)"},
		{1, 1, 64, 0, 128, 0, 0, "no kernels for window"},
		{1, 1, 64, 0, 0, 4, 0, "no kernels for n_sinks"},
		{1, 1, 64, 0, 0, 0, 30, "no kernels for soft_cap"},
		{1, 1, 64, 0, 0, 0, NAN, "no kernels for soft_cap"},
	};
	struct fixture *f = *state;
	uint32_t model = 77;

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct coppice_model_info info = fixture_model();

		info.n_q_heads = cases[i].n_q_heads;
		info.n_kv_heads = cases[i].n_kv_heads;
		info.head_dim = cases[i].head_dim;
		if (cases[i].dtype)
			info.dtype = (enum coppice_dtype)cases[i].dtype;
		info.window = cases[i].window;
		info.n_sinks = cases[i].n_sinks;
		info.soft_cap = cases[i].soft_cap;
		assert_true(coppice_model_open(f->c, &info, &model) < 0);
		assert_explained(f->c, cases[i].words);
		assert_int_equal(model, 77);
	}
	assert_usable(f);
}

/* ---- the daemon's death --------------------------------------------------------------------- */

static uint64_t died_ns;

/* After some round trips, so that the wait has mostly begun; harness_stop returns when the kernel
 * has reported the death. */
static void *kill_the_daemon(void *arg)
{
	struct fixture *f = arg;

	for (int i = 0; i < 50; i++)
		(void)counts_of(f);
	harness_stop(f->h, SIGKILL);
	died_ns = clock_now_ns();
	return NULL;
}

/* How long after the daemon's death a wait for somebody else's tokens ends. */
static uint64_t wait_beyond_death(struct fixture *f)
{
	struct coppice_match match;
	struct coppice_seq *first, *second;
	pthread_t killer;
	uint64_t end_ns;

	assert_int_equal(coppice_seq_open(f->lane, f->model, f->ids, 100, 2, &first, &match), 0);
	assert_true(match.claimed);
	assert_int_equal(coppice_seq_open(f->lane, f->model, f->ids, 100, 2, &second, &match), 0);
	assert_int_equal(match.pending, 99);
	assert_int_equal(pthread_create(&killer, NULL, kill_the_daemon, f), 0);
	assert_int_equal(coppice_seq_wait(second, COPPICE_FOREVER, &match), -ECONNRESET);
	end_ns = clock_now_ns();
	pthread_join(killer, NULL);
	assert_explained(f->c, "daemon is gone");
	assert_int_equal(coppice_seq_open(f->lane, f->model, f->ids, 1, 0, &first, &match),
			 -ECONNRESET);
	return end_ns > died_ns ? end_ns - died_ns : 0;
}

/* Of some waits: a machine may be busy with others when one of them is to go on. */
static void a_wait_for_a_prompt_ends_with_the_daemon(void **state)
{
	uint64_t took_ns = wait_beyond_death(*state);

	for (int i = 0; i < 5 && took_ns >= UINT64_C(200000000); i++) {
		assert_int_equal(fixture_teardown(state), 0);
		assert_int_equal(fixture_setup(state), 0);
		took_ns = wait_beyond_death(*state);
	}
	assert_true(took_ns < UINT64_C(200000000));
}

#define LONG_TOKENS 27000u
#define LONG_PROMPTS 20u /* some more than 2 MiB of ids */

/* And there is room for a few more, as prompts grow by a little. */
static void ids_of_long_prompts_have_room_in_an_arena(void **state)
{
	struct fixture *f = *state;
	struct coppice_prompt prompts[LONG_PROMPTS];
	struct coppice_seq *seqs[LONG_PROMPTS];
	Coppice__Status status = COPPICE__STATUS__INIT;
	uint64_t others, all;

	for (uint32_t i = 0; i < LONG_PROMPTS; i++)
		prompts[i] = (struct coppice_prompt){.model = f->model,
						     .n_tokens = LONG_TOKENS,
						     .tokens = f->ids};
	coppice_arena_free(f->other_arena); /* there is no room for another beside it */
	others = client_verb(&f->watch, status, &status)->status->arena_bytes - (64 << 10);
	assert_int_equal(coppice_seq_open_many(f->lane, prompts, LONG_PROMPTS, seqs, NULL), 0);
	for (int i = 0; i < 1000; i++) {
		all = client_verb(&f->watch, status, &status)->status->arena_bytes;
		if (all == others + (4 << 20))
			break;
		sleep_ms(5);
	}
	assert_int_equal(all - others, 4 << 20);
	for (uint32_t i = 0; i < LONG_PROMPTS; i++)
		coppice_seq_close(seqs[i]);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(wrong_steps_are_refused_and_change_nothing),
		TEST(wrong_calls_are_refused_and_change_nothing),
		TEST(a_sequence_used_from_two_lanes_is_refused),
		TEST(a_closed_sequences_entries_end_with_a_status),
		TEST(wrong_models_are_refused_by_name),
		TEST(a_wait_for_a_prompt_ends_with_the_daemon),
		TEST(ids_of_long_prompts_have_room_in_an_arena),
	};

	if (harness_init(argc, argv) < 0)
		return 2;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
