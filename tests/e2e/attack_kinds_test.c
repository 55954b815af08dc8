/*
 * attack_kinds_test.c - what one user can do to hold up another by kinds of work that attack_test
 * does not have: sparse prefill behind long paths, subnormal numbers, K and V that are only
 * appended, paths that go for others, models, lanes and pins that come and go, and all of it at
 * once by several users.
 */
#include "attack_fixture.h"
#include "element.h"
#include "stepper.h"

#include "proto/ring.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define CHUNK STEPPER_CHUNK
#define MODELS 16
#define LANES 7 /* beside the first */
#define PIN_NS UINT64_C(50000000)
#define HONEST_CHUNK 128u

static void must(bool held)
{
	if (!held)
		_exit(97);
}

static void path_append(struct stepper *s)
{
	for (uint32_t n = 0; n < attack_path_tokens(); n += CHUNK)
		must(stepper_append(s, CHUNK) == 0);
}

static void path_start(struct stepper *s, const struct harness *h)
{
	stepper_start(s, h);
	path_append(s);
}

static void trim(struct stepper *s)
{
	must(stepper_do(s,
			(struct abi_entry){.kind = ABI_TRIM,
					   .seq = s->seq,
					   .arg = attack_path_tokens()},
			NULL, 0) == 0);
}

/* ---- sparse prefill ---- */

/* The least blocks, and nearly all of the mass: whatever can be estimated and chosen is. */
static int prefill_sparsely(const struct harness *h, int said)
{
	const struct abi_sparse wish = {.tau = 0.99, .stride = 8, .block_tokens = 64};
	static struct stepper s;

	path_start(&s, h);
	must(stepper_do(&s, (struct abi_entry){.kind = ABI_SPARSE, .seq = s.seq}, &wish,
			sizeof(wish)) == 0);
	attack_is_on(said);
	for (; attack_goes_on(); trim(&s)) {
		must(stepper_extend(&s, s.seq, CHUNK, 0) == 0);
		must(stepper_step(&s, &s.seq, 1, CHUNK) == 0);
	}
	return 0;
}

static int prefill_honestly(struct stepper *s, int said)
{
	attack_is_on(said);
	for (; attack_goes_on(); trim(s)) {
		must(stepper_extend(s, s->seq, HONEST_CHUNK, 0) == 0);
		must(stepper_step(s, &s->seq, 1, HONEST_CHUNK) == 0);
	}
	return 0;
}

/* What a neighbour costs who has the same path. */
static int prefill_as_others_do(const struct harness *h, int said)
{
	static struct stepper s;

	path_start(&s, h);
	return prefill_honestly(&s, said);
}

static void sparse_prefill_behind_long_paths(void **state)
{
	assert_withstood(state, prefill_as_others_do, prefill_sparsely);
}

/* ---- numbers ---- */

#define SUBNORMALS 0x00010001u /* of each dtype: one or two */

/* As an honest one, but that some processors take many times as long for such numbers. */
static int prefill_subnormals(const struct harness *h, int said)
{
	static struct stepper s;

	stepper_start(&s, h);
	for (uint64_t i = 0; i < s.x.c.arena_bytes / sizeof(uint32_t); i++)
		((uint32_t *)s.x.c.arena)[i] = SUBNORMALS;
	path_append(&s);
	return prefill_honestly(&s, said);
}

static void rows_of_subnormal_numbers(void **state)
{
	assert_withstood(state, prefill_as_others_do, prefill_subnormals);
}

/* ---- appends ---- */

static int append_and_trim(const struct harness *h, int said)
{
	static struct stepper s;

	path_start(&s, h);
	attack_is_on(said);
	for (; attack_goes_on(); trim(&s))
		for (int i = 0; i < 4; i++)
			must(stepper_append(&s, CHUNK) == 0);
	return 0;
}

static void floods_of_appends(void **state)
{
	assert_withstood(state, attack_neighbour, append_and_trim);
}

/* Ever new paths, so that idle ones have to go for them, whole nodes of them. */
static int leave_paths(const struct harness *h, int said)
{
	static struct stepper s;
	Coppice__SeqClose m = COPPICE__SEQ_CLOSE__INIT;

	stepper_start(&s, h);
	attack_is_on(said);
	for (uint32_t n = 1; attack_goes_on(); n++) {
		stepper_number_from(&s, n * attack_path_tokens());
		for (uint32_t i = 0; i < attack_path_tokens(); i += CHUNK)
			must(stepper_append(&s, CHUNK) == 0);
		m.seq = s.seq;
		must(client_verb(&s.x.c, seq_close, &m)->code == 0);
		s.seq = raw_seq(&s.x);
	}
	return 0;
}

static void paths_that_come_and_go(void **state)
{
	assert_withstood(state, attack_neighbour, leave_paths);
}

/* ---- what comes and goes ---- */

/* Each has another name, so that the store has never had it. */
static int flood_models(const struct harness *h, int said)
{
	struct client c = client_open(h);
	char name[32];

	attack_is_on(said);
	for (unsigned long n = 0; attack_goes_on();) {
		struct client other = client_open(h);

		for (int i = 0; i < MODELS; i++) {
			Coppice__ModelOpen m = COPPICE__MODEL_OPEN__INIT;

			snprintf(name, sizeof(name), "model-%lu", n++);
			m.name = name;
			m.n_layers = m.n_q_heads = m.n_kv_heads = 1;
			m.head_dim = 64;
			m.dtype = element_dtype();
			must(client_verb(&other, model_open, &m)->code == 0);
		}
		client_close(&other);
	}
	client_close(&c);
	return 0;
}

static void floods_of_models(void **state)
{
	assert_withstood(state, attack_neighbour, flood_models);
}

static void lane_bring(struct client *c)
{
	Coppice__LaneNew m = COPPICE__LANE_NEW__INIT;
	void *map;

	must(client_verb(c, lane_new, &m)->code == 0);
	must(channel_segment_map(c->fds[0], sizeof(struct abi_lane), 1, &map) == 0);
	must(channel_segment_fill(map, sizeof(struct abi_lane)) == 0);
	must(client_seal_lane(c, c->reply->lane->lane)->code == 0);
	munmap(map, sizeof(struct abi_lane));
}

static int flood_lanes(const struct harness *h, int said)
{
	struct client c = client_open(h);

	attack_is_on(said);
	while (attack_goes_on()) {
		for (int i = 0; i < LANES; i++)
			lane_bring(&c);
		for (uint32_t i = 1; i <= LANES; i++) {
			Coppice__LaneFree m = COPPICE__LANE_FREE__INIT;

			m.lane = i;
			must(client_verb(&c, lane_free, &m)->code == 0);
		}
	}
	return 0;
}

static void floods_of_lanes(void **state)
{
	assert_withstood(state, attack_neighbour, flood_lanes);
}

/* Many of one path, which all end by themselves. Who is answered fast has as many as he may before
 * the first ends. */
static int flood_pins(const struct harness *h, int said)
{
	static struct stepper s;
	Coppice__SeqPin m = COPPICE__SEQ_PIN__INIT;

	path_start(&s, h);
	m.seq = s.seq;
	m.for_ns = PIN_NS;
	attack_is_on(said);
	while (attack_goes_on()) {
		int code = client_verb(&s.x.c, seq_pin, &m)->code;

		must(code == 0 || code == -EDQUOT || code == -EUSERS);
	}
	return 0;
}

static void floods_of_pins(void **state)
{
	assert_withstood(state, attack_neighbour, flood_pins);
}

/* ---- several users ---- */

static int attack_by_turns(const struct harness *h, int said)
{
	static other_life *const lives[] = {flood_models, flood_lanes, append_and_trim,
					    prefill_sparsely};

	return lives[geteuid() % 4](h, said);
}

/* Two of the four compute. */
static void four_users_at_once(void **state)
{
	assert_attack_withstood(state, &(struct attack){.life = attack_by_turns,
							.n_users = 4,
							.n_neighbours = 2});
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sparse_prefill_behind_long_paths),
		cmocka_unit_test(rows_of_subnormal_numbers),
		cmocka_unit_test(floods_of_appends),
		cmocka_unit_test(paths_that_come_and_go),
		cmocka_unit_test(floods_of_models),
		cmocka_unit_test(floods_of_lanes),
		cmocka_unit_test(floods_of_pins),
		cmocka_unit_test(four_users_at_once),
	};

	if (harness_init(argc, argv) < 0)
		return 1;
	if (geteuid() != 0) {
		print_message("only root has several users\n");
		return 77;
	}
	return cmocka_run_group_tests_name("kinds of work", tests, attack_setup, attack_teardown);
}
