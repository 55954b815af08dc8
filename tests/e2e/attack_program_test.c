/*
 * attack_program_test.c - what a user can do by programs to hold up another who computes his layers
 * himself, beside those of attack_test: prompts and tokens without end, on as many sessions as he
 * may have.
 *
 * Passes of such a user are cut into segments, and the backend is others' in between.
 */
#include "attack_fixture.h"
#include "decode_fixture.h"
#include "heavy.h"

#include "client/model/coppice_hf.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define READERS 3
#define WRITERS 3
#define PROMPT_TOKENS 512u

/* So many tokens, without waiting for any. */
static uint64_t submit(struct decode_client *client, struct coppice_seq *seq, uint32_t n)
{
	static const uint32_t ids[PROMPT_TOKENS];
	const struct coppice_decode_seq part = {.seq = seq, .ids = ids, .n_new = n};
	const struct coppice_decode decode = {.size = sizeof(decode), .seqs = &part, .n_seqs = 1};
	uint64_t ticket;

	assert_int_equal(coppice_seq_trim(seq, 0, NULL), 0);
	assert_int_equal(coppice_decode(client->lane, &decode, &ticket), 0);
	return ticket;
}

static int flood_tokens(const struct harness *h, int said)
{
	static struct decode_client clients[READERS + WRITERS];
	static struct coppice_seq *seqs[READERS + WRITERS];
	uint64_t tickets[READERS + WRITERS];

	snprintf(service.socket, sizeof(service.socket), "%s", h->socket);
	for (uint32_t i = 0; i < READERS + WRITERS; i++) {
		const uint32_t first = i;

		decode_client_open(&clients[i], &service);
		seqs[i] = decode_open(&clients[i], &first, 1, NULL);
		tickets[i] = submit(&clients[i], seqs[i], 1);
	}
	attack_is_on(said);
	for (uint32_t i = 0; attack_goes_on(); i = (i + 1) % (READERS + WRITERS)) {
		assert_int_equal(coppice_wait(clients[i].lane, tickets[i], COPPICE_SECONDS(60)), 0);
		tickets[i] = submit(&clients[i], seqs[i], i < READERS ? PROMPT_TOKENS : 1);
	}
	return 0;
}

static void floods_of_tokens_and_prompts_of_programs(void **state)
{
	assert_withstood(state, attack_neighbour, flood_tokens);
}

#define HEAVY_SESSIONS 6u
#define HEAVY_LANES 2u
#define HEAVY_ROWS 16u /* of an entry, which is no prompt */

struct heavy_lane {
	struct coppice_lane *lane;
	struct coppice_seq *seq;
	uint64_t ticket;
};

static void heavy_go(struct heavy_lane *l)
{
	static const uint32_t ids[HEAVY_ROWS];
	const struct coppice_decode_seq part = {.seq = l->seq, .ids = ids, .n_new = HEAVY_ROWS};
	const struct coppice_decode decode = {.size = sizeof(decode), .seqs = &part, .n_seqs = 1};

	if (l->ticket)
		assert_int_equal(coppice_wait(l->lane, l->ticket, COPPICE_SECONDS(60)), 0);
	assert_int_equal(coppice_seq_trim(l->seq, 0, NULL), 0);
	assert_int_equal(coppice_decode(l->lane, &decode, &l->ticket), 0);
}

/* All that a pass may have, in one layer. */
static int flood_one_layer(const struct harness *h, int said)
{
	static struct heavy_lane lanes[HEAVY_SESSIONS * HEAVY_LANES];
	const uint32_t n = HEAVY_SESSIONS * HEAVY_LANES;
	struct coppice_match match;

	for (uint32_t i = 0; i < HEAVY_SESSIONS; i++) {
		uint32_t model;
		struct coppice *c = heavy_open(h->socket, &model);

		for (uint32_t j = i * HEAVY_LANES; j < (i + 1) * HEAVY_LANES; j++) {
			assert_int_equal(coppice_lane_new(c, &lanes[j].lane), 0);
			assert_int_equal(coppice_seq_open(lanes[j].lane, model, &j, 1, 0,
							  &lanes[j].seq, &match),
					 0);
			heavy_go(&lanes[j]);
		}
	}
	attack_is_on(said);
	for (uint32_t i = 0; attack_goes_on(); i = (i + 1) % n)
		heavy_go(&lanes[i]);
	return 0;
}

static void floods_of_tokens_of_one_heavy_layer(void **state)
{
	assert_withstood(state, attack_neighbour, flood_one_layer);
}

/* A prompt without end, whose passes take many times as long as a token of tests/model. */
static int read_without_end(const struct harness *h, int said)
{
	static const uint32_t ids[PROMPT_TOKENS], first;
	struct coppice_lane *lane;
	struct coppice_match match;
	struct coppice_seq *seq;
	uint32_t model;
	struct coppice *c = heavy_open(h->socket, &model);
	const struct coppice_decode_seq part = {.ids = ids, .n_new = PROMPT_TOKENS};
	struct coppice_decode_seq parts[] = {part};
	const struct coppice_decode decode = {.size = sizeof(decode), .seqs = parts, .n_seqs = 1};
	uint64_t ticket;

	assert_int_equal(coppice_lane_new(c, &lane), 0);
	assert_int_equal(coppice_seq_open(lane, model, &first, 1, 0, &seq, &match), 0);
	parts[0].seq = seq;
	for (bool on = false; attack_goes_on(); on = true) {
		assert_int_equal(coppice_seq_trim(seq, 0, NULL), 0);
		assert_int_equal(coppice_decode(lane, &decode, &ticket), 0);
		if (!on)
			attack_is_on(said);
		assert_int_equal(coppice_wait(lane, ticket, COPPICE_SECONDS(60)), 0);
	}
	return 0;
}

#define BESIDE_PROMPT 80u
#define BESIDE_TOKENS 40u
#define BESIDE_ALONE 20u
#define BESIDE_PAUSE_US 10000

static uint64_t count_passes(struct client *root)
{
	Coppice__Status status = COPPICE__STATUS__INIT;

	return client_verb(root, status, &status)->status->passes;
}

/* A token is there, as it was the first time, before the reader's pass has ended that was under way
 * when it was asked for: no pass but its own has begun meanwhile. Between two passes, and where
 * this process waits for a processor, it may be otherwise. Who pauses so long is not waited for. */
static void write_beside_reader(const struct harness *h, struct client *root)
{
	static float logits[BESIDE_TOKENS][DECODE_VOCAB];
	static bool seen;
	struct decode_client client;
	struct coppice_seq *seq;
	uint32_t n_alone = 0;

	snprintf(service.socket, sizeof(service.socket), "%s", h->socket);
	decode_client_open(&client, &service);
	seq = decode_anew(&client, service.ids, BESIDE_PROMPT);
	for (uint32_t i = 0; i < BESIDE_TOKENS; i++) {
		uint64_t before;

		usleep(BESIDE_PAUSE_US);
		before = count_passes(root);

		decode_run(&client, seq, service.ids + BESIDE_PROMPT + i, 1);
		n_alone += count_passes(root) == before + 1;
		if (!seen)
			memcpy(logits[i], decode_logits(&client), sizeof(logits[i]));
		decode_assert_same(&client, logits[i]);
	}
	seen = true;
	print_message("%u of %u tokens within a pass of a reader's\n", n_alone, BESIDE_TOKENS);
	coppice_seq_close(seq);
	decode_client_close(&client);
	assert_true(n_alone >= BESIDE_ALONE);
}

static void tokens_beside_a_prompt_of_another_program(void **state)
{
	const struct attack attack = {.life = read_without_end, .beside = write_beside_reader};

	assert_attack_withstood(state, &attack);
}

/* Opens and leaves, again and again: weights that are there, a program of them. */
static int flood_programs(const struct harness *h, int said)
{
	struct decode_client client;

	snprintf(service.socket, sizeof(service.socket), "%s", h->socket);
	for (bool on = false; attack_goes_on(); on = true) {
		decode_client_open(&client, &service);
		decode_client_close(&client);
		if (!on)
			attack_is_on(said);
	}
	return 0;
}

static void floods_of_programs(void **state)
{
	assert_withstood(state, attack_neighbour, flood_programs);
}

/* Of as many layers as there may be, each of which is looked at before it is refused. */
static int ask_for_long_programs(const struct harness *h, int said)
{
	struct coppice_program_info info;
	struct decode_client client;
	uint32_t model;

	snprintf(service.socket, sizeof(service.socket), "%s", h->socket);
	decode_client_open(&client, &service);
	info = decode_deep_program(decode_program(&client));
	info.max_positions = UINT32_MAX;
	attack_is_on(said);
	while (attack_goes_on())
		if (coppice_program_new(client.c, client.weights, &info, &model) == 0)
			return 98;
	return 0;
}

static void floods_of_programs_of_most_layers(void **state)
{
	assert_withstood(state, attack_neighbour, ask_for_long_programs);
}

#define LOADERS 4u /* users who have as many loads as all may have */

static const Coppice__Reply *open_weights(struct client *c)
{
	Coppice__WeightsOpen open = COPPICE__WEIGHTS_OPEN__INIT;

	return client_verb(c, weights_open, &open);
}

/* Begins loads, of which no file ever comes. */
static int hold_loads(const struct harness *h, int said)
{
	struct client c = client_open(h);

	for (bool on = false; attack_goes_on(); usleep(1000)) {
		int r = open_weights(&c)->code;

		c.n_fds = 0; /* it stays open */
		if (r == 0)
			continue;
		if (!on)
			attack_is_on(said);
		on = true;
	}
	return 0;
}

/* And nothing of it stays, neither here nor in the daemon. */
static void load_as_root(const struct harness *h, struct client *root)
{
	Coppice__WeightsClose close = COPPICE__WEIGHTS_CLOSE__INIT;
	const Coppice__Reply *opened = open_weights(root);

	(void)h;
	assert_int_equal(opened->code, 0);
	close.weights = opened->weights->weights;
	assert_int_equal(client_verb(root, weights_close, &close)->code, 0);
}

static void loads_that_never_end(void **state)
{
	const struct attack attack = {.life = hold_loads,
				      .n_users = LOADERS,
				      .beside = load_as_root};

	assert_attack_withstood(state, &attack);
}

static int setup(void **state)
{
	static const char *const flags[] = {"--max-sessions=64", "--max-domain-sessions=6",
					    "--pool=256M", "--extent=2M"};

	return attack_setup_with(state, flags, sizeof(flags) / sizeof(*flags));
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(floods_of_tokens_and_prompts_of_programs),
		cmocka_unit_test(floods_of_tokens_of_one_heavy_layer),
		cmocka_unit_test(tokens_beside_a_prompt_of_another_program),
		cmocka_unit_test(floods_of_programs),
		cmocka_unit_test(floods_of_programs_of_most_layers),
		cmocka_unit_test(loads_that_never_end),
	};

	if (harness_init(argc, argv) < 0)
		return 1;
	if (geteuid() != 0) {
		print_message("only root has several users\n");
		return 77;
	}
	return cmocka_run_group_tests_name("attacks by programs", tests, setup, attack_teardown);
}
