/*
 * pass_test.c - who goes with a pass of a program's tokens, and with how many.
 */
#include "school.h"

#include "daemon/sched/round.h"
#include "proto/arith.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define DECODE_ROWS 16u
#define BODIES 100000u
#define FAIR 0.45

static void who_was_served_for_long_owes_nothing_to_who_comes(void **state)
{
	struct school *s = school_new(0.2 * MS);
	struct pupil *old, *young;
	double before_ns;

	(void)state;
	school_start(s);
	old = join(s, 1, 10000, 1);
	go_passes(s, 200);
	young = join(s, 2, 10000, 1);
	before_ns = had_ns(old);
	go_passes(s, 40);
	assert_true((had_ns(old) - before_ns) / (had_ns(old) - before_ns + had_ns(young)) > FAIR);
	assert_true(had_ns(young) / (had_ns(old) - before_ns + had_ns(young)) > FAIR);
	school_free(s);
}

/* 30 sessions' decode is 2.4 s of rows. */
static void decode_of_many_is_no_longer_than_some_budgets(void **state)
{
	struct school *s = school_new(5 * MS);

	(void)state;
	school_start(s);
	for (uint32_t i = 0; i < 30; i++)
		join(s, 1, DECODE_ROWS, 1);
	go_passes(s, 60);
	for (uint32_t i = 0; i < 30; i++)
		assert_true(s->pupils[i].c.session->tokens_computed > 0);
	assert_true(world.longest_ns <= FIXED_NS + 4 * BUDGET_NS + 5 * MS);
	school_free(s);
}

/* All rows of a pass, and more. */
static void a_prompt_goes_on_beside_any_decode(void **state)
{
	struct school *s = school_new(0.001 * MS);
	struct pupil *reader;

	(void)state;
	school_start(s);
	for (uint32_t i = 0; i < 20; i++)
		join(s, 1, DECODE_ROWS, 1);
	reader = join(s, 1, 10000, 1);
	go_passes(s, 50);
	assert_true(reader->c.session->tokens_computed >= 40 * 16);
	for (uint32_t i = 0; i < 20; i++)
		assert_true(s->pupils[i].c.session->tokens_computed >= 25 * DECODE_ROWS);
	school_free(s);
}

static void decode_goes_on_beside_any_prompts(void **state)
{
	struct school *s = school_new(0.2 * MS);
	struct pupil *writer;

	(void)state;
	school_start(s);
	for (uint32_t i = 0; i < 20; i++)
		join(s, 1, 10000, 1);
	writer = join(s, 1, 1, 1);
	go_passes(s, 50);
	assert_true(writer->c.session->tokens_computed >= 48);
	assert_true(world.longest_ns <= FIXED_NS + BUDGET_NS + MS);
	school_free(s);
}

/* A token takes 5.2 ms by itself: prompts may add half of that. */
static void prompts_make_a_pass_of_decode_longer_by_a_part(void **state)
{
	struct school *s = school_new(0.2 * MS);
	struct pupil *reader, *writer;
	uint64_t before;

	(void)state;
	s->h.config.prompt_percent = 50;
	school_start(s);
	reader = join(s, 1, 10000, 1);
	writer = join(s, 1, 1, 1);
	go_passes(s, 5);
	world.longest_ns = 0;
	before = reader->c.session->tokens_computed;
	go_passes(s, 20);
	assert_true(writer->c.session->tokens_computed >= 20);
	assert_true(world.longest_ns <= 1.5 * (FIXED_NS + 0.2 * MS));
	assert_in_range(reader->c.session->tokens_computed - before, 20 * 10, 20 * 13);
	school_free(s);
}

/* A prompt all of whose rows are wanted: a pass has rows whose results are in the budget, too, and
 * they are the asker's turn. Of one whose last row alone is wanted a pass has all. */
static void results_that_are_wanted_are_in_the_budget(void **state)
{
	struct school *s = school_new(0.01 * MS);
	struct pupil *one;
	double before_ns;

	(void)state;
	world.wanted_ns = MS;
	school_start(s);
	one = join(s, 1, 0, 1);
	one->wants = one->wants_all = true;
	before_ns = had_ns(one);
	ask(one, 200);
	go_till_all_have(s);
	assert_int_equal(end_of(one).status, 0);
	assert_true(world.longest_ns <= FIXED_NS + BUDGET_NS + 2 * MS);
	assert_in_range(world.n_passes, 7, 8);
	assert_true(had_ns(one) - before_ns >= 190 * MS);
	one->wants_all = false;
	world.n_passes = 0;
	ask(one, 200);
	go_till_all_have(s);
	assert_int_equal(world.n_passes, 1);
	school_free(s);
}

static uint32_t multiple_of_64(uint32_t n_rows)
{
	return ceil_div(n_rows, 64) * 64;
}

/* The budget is enough for 150 rows. */
static void a_chunk_is_a_whole_number_of_rows(void **state)
{
	struct school *s = school_new(0.2 * MS);

	(void)state;
	s->program.rows_as = multiple_of_64;
	school_start(s);
	join(s, 1, 10000, 1);
	for (uint32_t i = 0; i < 10; i++) {
		go_passes(s, 1);
		assert_int_equal(world.n_rows, 128);
	}
	school_free(s);
}

/* User 1's 20 sessions ask for more than passes have; user 2 has one, which reads. */
static void a_user_has_his_part_beside_another_with_many_sessions(void **state)
{
	struct school *s = school_new(2 * MS);
	struct pupil *reader;
	double all_ns = 0;

	(void)state;
	school_start(s);
	for (uint32_t i = 0; i < 20; i++)
		join(s, 1, DECODE_ROWS, 1);
	reader = join(s, 2, 10000, 1);
	go_passes(s, 200);
	for (uint32_t i = 0; i < s->n; i++)
		all_ns += had_ns(&s->pupils[i]);
	assert_true(had_ns(reader) / all_ns > FAIR);
	school_free(s);
}

/* Two prompts are longer than the pool, which has room below. */
static void what_left_the_device_is_told_and_not_read(void **state)
{
	struct school *s = school_new(0.0001 * MS);
	struct abi_completion end;
	struct pupil *p;

	(void)state;
	s->h.config.pool_bytes = 6u << 20;
	s->h.config.host_tier_bytes = 64u << 20;
	s->h.config.stage_bytes = 2u << 20;
	school_start(s);
	p = join(s, 1, 0, 1);
	ask(p, 20000);
	while (!has(p))
		go_round(s);
	ask(p, 20000);
	while (!has(p))
		go_round(s);
	end = end_of(p);
	assert_int_equal(end.status, -ENOSPC);
	assert_int_equal(end.reason, ABI_NO_ROOM);
	school_free(s);
}

static void what_was_published_before_a_failure_is_told(void **state)
{
	struct school *s = school_new(2 * MS);
	struct abi_completion end;
	struct pupil *p;

	(void)state;
	school_start(s);
	p = join(s, 1, 0, 1);
	world.n_before_failure = 3;
	ask(p, 1000);
	while (!has(p))
		go_round(s);
	end = end_of(p);
	assert_int_equal(end.status, -ENOMEM);
	assert_int_equal(end.cause, 0);
	assert_int_equal(end.published, p->c.session->tokens_computed);
	assert_in_range(end.published, 3, 999);
	ask(p, 1);
	while (!has(p))
		go_round(s);
	end = end_of(p);
	assert_int_equal(end.status, -ENOMEM);
	assert_int_equal(end.cause, 1);
	assert_int_equal(end.published, 0);
	school_free(s);
}

#define N_SEQS 3u
#define N_TOKENS 5u

/* Each sequence of an entry has the ids that are its own: whoever asks for them finds them. */
static void sequences_of_an_entry_have_each_their_tokens(void **state)
{
	struct {
		struct abi_decode head;
		struct abi_decode_seq seqs[N_SEQS];
		uint32_t ids[N_SEQS][N_TOKENS];
	} body = {0};
	struct school *s = school_new(0.001 * MS);
	struct store_match match;
	struct pupil *p;
	uint64_t seq;

	(void)state;
	school_start(s);
	p = join(s, 1, 0, 1);
	for (uint32_t i = 0; i < N_SEQS; i++) {
		for (uint32_t t = 0; t < N_TOKENS; t++)
			body.ids[i][t] = 100 + 10 * i + t;
		assert_int_equal(client_open(&p->c, body.ids[i], 1, &seq, &match), 0);
		body.seqs[i] = (struct abi_decode_seq){.seq = seq, .n_new = N_TOKENS};
	}
	client_submit(&p->c, (struct abi_entry){.kind = ABI_DECODE, .count = N_SEQS}, &body,
		      sizeof(body.head) + sizeof(body.seqs) + sizeof(body.ids));
	while (!has(p))
		go_round(s);
	assert_int_equal(end_of(p).status, 0);
	assert_int_equal(s->h.sched->core.stats.pass_rows, N_SEQS * N_TOKENS);
	for (uint32_t i = 0; i < N_SEQS; i++) {
		assert_int_equal(client_open(&p->c, body.ids[i], N_TOKENS, &seq, &match), 0);
		assert_int_equal(match.cached, N_TOKENS - 1); /* the last is always computed */
	}
	school_free(s);
}

static uint64_t random_bits(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

/* Mostly what is right, else what is at a border. */
static uint64_t draw(uint64_t *state, uint64_t right)
{
	static const uint64_t borders[] = {0,
					   1,
					   2,
					   16,
					   255,
					   256,
					   257,
					   N_VOCAB,
					   ARENA_BYTES - 528,
					   ARENA_BYTES,
					   UINT32_MAX / 2,
					   UINT32_MAX - 1,
					   UINT32_MAX,
					   UINT64_MAX - 527,
					   UINT64_MAX};
	uint64_t bits = random_bits(state);

	if (bits % 8)
		return right;
	return borders[(bits >> 8) % (sizeof(borders) / sizeof(borders[0]))];
}

struct hostile_body {
	struct abi_decode head;
	struct abi_decode_seq seqs[2];
	uint32_t ids[40];
};

static void draw_body(uint64_t *state, const uint64_t seqs[2], struct hostile_body *ret)
{
	uint32_t first = (uint32_t)(random_bits(state) % 21);

	ret->head = (struct abi_decode){
		.out = draw(state, random_bits(state) % 1000 * 4),
		.arena = (uint32_t)draw(state, 1),
		.stride = (uint32_t)draw(state, 528 + N_VOCAB * 4 + HIDDEN * 4),
		.want = (uint32_t)draw(state, random_bits(state) % 16),
	};
	ret->head.n_top = (uint32_t)draw(state, ret->head.want & 1 ? 20 : 0);
	for (int i = 0; i < 2; i++)
		ret->seqs[i] = (struct abi_decode_seq){
			.seq = draw(state, seqs[i]),
			.n_new = (uint32_t)draw(state, i ? 40 - first : first),
			.first_wanted = (uint32_t)draw(state, random_bits(state) % 20)};
	for (int i = 0; i < 40; i++)
		ret->ids[i] = (uint32_t)(random_bits(state) % N_VOCAB);
	if (random_bits(state) % 8 == 0)
		ret->ids[random_bits(state) % 40] = (uint32_t)draw(state, N_VOCAB);
}

/* What is refused has changed nothing; what is run is written where it may be. */
static void bodies_of_nonsense_hurt_nobody(void **state)
{
	struct school *s = school_new(0.001 * MS);
	struct abi_entry trim = {.kind = ABI_TRIM}, entry = {.kind = ABI_DECODE};
	uint64_t seqs[2], random = (uint64_t)time(NULL) | 1;
	struct store_match match;
	struct hostile_body body;
	uint32_t first = 7, n_good = 0;
	struct pupil *p;

	(void)state;
	print_message("seed %llu\n", (unsigned long long)random);
	school_start(s);
	p = join(s, 1, 0, 1);
	world.instant = true;
	world.arena = (uintptr_t)p->c.arena;
	seqs[0] = p->seq;
	assert_int_equal(client_open(&p->c, &first, 1, &seqs[1], &match), 0);
	for (uint32_t i = 0; i < BODIES; i++) {
		uint64_t before = p->c.session->tokens_computed;

		draw_body(&random, seqs, &body);
		entry.count = (uint32_t)draw(&random, 2);
		struct abi_completion end =
			client_do(&p->c, entry, &body,
				  random_bits(&random) % 16 ? sizeof(body) : sizeof(body) - 4);

		n_good += end.status == 0;
		assert_int_equal(p->c.session->tokens_computed - before,
				 end.status ? end.published : end.value);
		assert_true(end.status == 0 || (end.cause == 0 && end.published == 0));
		for (int j = 0; j < 2 && end.status == 0; j++) {
			trim.seq = seqs[j];
			assert_int_equal(client_do(&p->c, trim, NULL, 0).status, 0);
		}
	}
	assert_true(n_good > BODIES / 50);
	school_free(s);
}

static void a_crowd_of_sequences_that_are_not_there_takes_no_memory(void **state)
{
	struct school *s = school_new(0.001 * MS);
	static struct {
		struct abi_decode head;
		struct abi_decode_seq seqs[16000];
	} body;
	struct abi_entry entry = {.kind = ABI_DECODE, .count = 16000};
	struct pupil *p;

	(void)state;
	school_start(s);
	p = join(s, 1, 0, 1);
	for (int turn = 0; turn < 2; turn++) {
		struct abi_completion end = client_do(&p->c, entry, &body, sizeof(body));

		assert_int_equal(end.reason, turn ? ABI_NO_TOKENS : ABI_STALE_SEQ);
		for (uint32_t i = 0; i < 16000; i++)
			body.seqs[i].seq = p->seq;
	}
	assert_in_range(TAILQ_FIRST(&s->h.sched->core.lanes)->step.parts_room, 1, 100);
	school_free(s);
}

#define N_DRAFTS (MAX_ROWS / ABI_DECODE_DRAFT_MAX)

/* Drafts as long as they may be: as many as a pass has rows for. */
static void ask_for_drafts(struct pupil *p, uint32_t flags)
{
	struct {
		struct abi_decode head;
		struct abi_decode_seq seqs[N_DRAFTS];
		uint32_t ids[MAX_ROWS], parents[MAX_ROWS];
	} body = {0};
	struct store_match match;
	uint64_t seq = p->seq;

	for (uint32_t i = 0; i < N_DRAFTS; i++) {
		if (i > 0)
			assert_int_equal(client_open(&p->c, &i, 1, &seq, &match), 0);
		body.seqs[i] = (struct abi_decode_seq){.seq = seq, .n_new = ABI_DECODE_DRAFT_MAX};
	}
	for (uint32_t i = 0; i < MAX_ROWS; i++)
		body.parents[i] = i % ABI_DECODE_DRAFT_MAX - 1; /* before the first: WORK_NONE */
	client_submit(&p->c,
		      (struct abi_entry){.kind = ABI_DECODE, .flags = flags, .count = N_DRAFTS},
		      &body, sizeof(body));
}

/* Many drafts are as long as a prompt, and go behind others' next tokens as one does. */
static void drafts_of_many_leave_room_for_decode(void **state)
{
	struct school *s = school_new(0.001 * MS);
	struct pupil *drafter, *other;

	(void)state;
	school_start(s);
	drafter = join(s, 1, 0, 1);
	other = join(s, 1, 0, 1);
	ask_for_drafts(drafter, ABI_EXTEND_PARENTS);
	ask(other, 1);
	go_passes(s, 1);
	assert_int_equal(world.n_rows, MAX_ROWS - ABI_DECODE_DRAFT_MAX + 1);
	go_passes(s, 1);
	assert_true(has(other));
	go_round(s);
	assert_true(has(drafter));
	assert_int_equal(end_of(drafter).status, 0);
	school_free(s);
}

struct limits {
	uint32_t budget_ms, prompt_percent;
	double fixed_ns; /* as long as max_token_ms lets a program's weights take to be read */
	double row_ns;
	bool drafts;
};

/* What daemon/README.md says: the weights once, four times and a quarter the longer of them and the
 * budget; and a row of decode and one of a prompt, whatever they take. */
static double most_ns(const struct limits *of)
{
	double longer_ns = of->budget_ms * MS > of->fixed_ns ? of->budget_ms * MS : of->fixed_ns;

	return of->fixed_ns + 4.25 * longer_ns + 2 * of->row_ns;
}

/* Decode and prompts of several users, of more than any pass takes, and drafts. */
static void assert_bounded(const struct limits *of)
{
	struct school *s = school_new(of->row_ns);

	world.fixed_ns = of->fixed_ns;
	s->h.config.batch_budget_ms = of->budget_ms;
	s->h.config.prompt_percent = of->prompt_percent;
	s->h.config.pool_bytes = 64u << 20;
	school_start(s);
	for (uint32_t n = 0; n < 24; n++)
		join(s, n % 3, n % 4 == 0 ? 10000 : DECODE_ROWS, 1);
	if (of->drafts)
		ask_for_drafts(join(s, 4, 0, 1), ABI_EXTEND_PARENTS);
	go_passes(s, 8);
	assert_true(world.longest_ns <= most_ns(of));
	school_free(s);
}

static void no_pass_is_longer_at_the_limits_of_the_keys(void **state)
{
	static const uint32_t budgets_ms[] = {1, 30, 60000}, percents[] = {1, 50, 1000};
	static const double rows_ns[] = {0.001 * MS, 0.5 * MS, 20 * MS, 1000 * MS};
	static const double fixed_ns[] = {FIXED_NS, 2000 * MS};

	(void)state;
	for (uint32_t i = 0; i < 3 * 3 * 4 * 2 * 2; i++) {
		const struct limits limits = {.budget_ms = budgets_ms[i % 3],
					      .prompt_percent = percents[i / 3 % 3],
					      .row_ns = rows_ns[i / 9 % 4],
					      .fixed_ns = fixed_ns[i / 36 % 2],
					      .drafts = i / 72};

		assert_bounded(&limits);
	}
}

/* Beside decode of a row each: prompts add what the key says, and at most what is left to them. */
static void prompts_add_what_the_key_says_whatever_it_is(void **state)
{
	static const uint32_t percents[] = {1, 25, 50, 300, 1000};

	(void)state;
	for (uint32_t i = 0; i < sizeof(percents) / sizeof(*percents); i++) {
		struct school *s = school_new(0.1 * MS);
		double token_ns = FIXED_NS + 2 * 0.1 * MS, most_ns = token_ns * percents[i] / 100;

		s->h.config.prompt_percent = percents[i];
		school_start(s);
		join(s, 1, 1, 1);
		join(s, 1, 1, 1);
		join(s, 1, 10000, 1);
		go_passes(s, 20);
		assert_true(world.longest_ns <=
			    token_ns + (most_ns > 0.1 * MS ? most_ns : 0.1 * MS));
		assert_true(world.longest_ns >= token_ns + most_ns - 0.1 * MS ||
			    world.n_rows == MAX_ROWS);
		school_free(s);
	}
}

/* Parents say that it is a draft; who says so himself says nothing else. */
static void a_draft_with_parents_may_be_called_one(void **state)
{
	struct school *s = school_new(0.001 * MS);
	struct pupil *p;

	(void)state;
	school_start(s);
	p = join(s, 1, 0, 1);
	ask_for_drafts(p, ABI_EXTEND_DRAFT);
	go_round(s);
	assert_int_equal(end_of(p).reason, ABI_BAD_FLAGS);
	ask_for_drafts(p, ABI_EXTEND_DRAFT | ABI_EXTEND_PARENTS);
	while (!has(p))
		go_round(s);
	assert_int_equal(end_of(p).status, 0);
	assert_int_equal(world.n_rows, MAX_ROWS);
	school_free(s);
}

/* A chunk in each pass; what follows its last row is not in it. */
static void a_row_is_scored_by_the_id_behind_it(void **state)
{
	struct school *s = school_new(0.2 * MS);
	struct {
		struct abi_decode head;
		struct abi_decode_seq seq;
		uint32_t ids[300];
	} body = {.head = {.arena = 1, .stride = 1024, .want = ABI_WANT_SCORE}};
	struct pupil *p;

	(void)state;
	school_start(s);
	p = join(s, 1, 0, 1);
	world.arena = (uintptr_t)p->c.arena;
	world.ascends = true;
	world.n_followed = 0;
	body.seq = (struct abi_decode_seq){.seq = p->seq, .n_new = 300, .first_wanted = 100};
	for (uint32_t i = 0; i < 300; i++)
		body.ids[i] = i;
	client_submit(&p->c, (struct abi_entry){.kind = ABI_DECODE, .count = 1}, &body,
		      sizeof(body));
	while (!has(p))
		go_round(s);
	world.ascends = false;
	assert_int_equal(end_of(p).reason, 0);
	assert_int_equal(world.n_followed, 199);
	school_free(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(who_was_served_for_long_owes_nothing_to_who_comes),
		cmocka_unit_test(decode_of_many_is_no_longer_than_some_budgets),
		cmocka_unit_test(a_prompt_goes_on_beside_any_decode),
		cmocka_unit_test(decode_goes_on_beside_any_prompts),
		cmocka_unit_test(prompts_make_a_pass_of_decode_longer_by_a_part),
		cmocka_unit_test(results_that_are_wanted_are_in_the_budget),
		cmocka_unit_test(a_chunk_is_a_whole_number_of_rows),
		cmocka_unit_test(a_user_has_his_part_beside_another_with_many_sessions),
		cmocka_unit_test(bodies_of_nonsense_hurt_nobody),
		cmocka_unit_test(a_crowd_of_sequences_that_are_not_there_takes_no_memory),
		cmocka_unit_test(what_left_the_device_is_told_and_not_read),
		cmocka_unit_test(what_was_published_before_a_failure_is_told),
		cmocka_unit_test(sequences_of_an_entry_have_each_their_tokens),
		cmocka_unit_test(drafts_of_many_leave_room_for_decode),
		cmocka_unit_test(no_pass_is_longer_at_the_limits_of_the_keys),
		cmocka_unit_test(prompts_add_what_the_key_says_whatever_it_is),
		cmocka_unit_test(a_draft_with_parents_may_be_called_one),
		cmocka_unit_test(a_row_is_scored_by_the_id_behind_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
