/*
 * decode_test.c - whole tokens by the daemon: the same as an app computes layer by layer, shared
 * like any other KV, and what is refused. The backend is that of COPPICE_TEST_BACKEND, the CPU
 * where there is none; what has the same bits there has the same but for rounding on a GPU.
 */
#include "decode_fixture.h"

#include "client/agent/daemon_attention.h"
#include "client/agent/llama_load.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define PROMPT 500u
#define CHUNK 100u
#define COMPANY 4
#define LONG 2400u
#define LONG_PART 300u

struct decode_service service;

/* ---- the same bits as layer by layer -------------------------------------------------------- */

struct app {
	struct llama model;
	struct daemon_attention attention;
	struct daemon_seq seq;
	struct llama_pass pass;
};

/* name: of its model, whose KV is no other's. */
static void app_open(struct app *app, const char *name)
{
	struct fault fault;

	if (llama_load(MODEL_DIR, &app->model, &fault) < 0)
		fail_msg("%s", fault.text);
	const struct llama_config *c = &app->model.config;
	const struct daemon_options options = {.address.socket_path = service.socket,
					       .model = {.name = name,
							 .n_layers = c->n_layers,
							 .n_q_heads = c->n_q_heads,
							 .n_kv_heads = c->n_kv_heads,
							 .head_dim = c->head_dim,
							 .dtype = COPPICE_BF16},
					       .max_rows = CHUNK};

	if (daemon_attention_open(&app->attention, &options, &fault) < 0 ||
	    llama_pass_init(&app->pass, &app->model, &app->attention.base, &fault) < 0 ||
	    daemon_seq_open(&app->attention.daemon, service.ids, PROMPT, &app->seq, &fault) < 0)
		fail_msg("%s", fault.text);
}

static void app_close(struct app *app)
{
	llama_pass_done(&app->pass);
	daemon_seq_close(&app->seq);
	daemon_attention_close(&app->attention);
	llama_done(&app->model);
}

/* The logits of the last of n tokens from position pos on. */
static void app_run(struct app *app, uint32_t pos, uint32_t n, float *logits)
{
	uint32_t positions[CHUNK], wanted = n - 1;
	const struct attention_part part = {&app->seq, n};
	const struct llama_batch batch = {n, service.ids + pos, positions,     &part,
					  1, &wanted,		logits != NULL};
	struct fault fault;

	for (uint32_t i = 0; i < n; i++)
		positions[i] = pos + i;
	if (daemon_seq_extend(&app->attention.daemon, &app->seq, service.ids + pos, n, &fault) <
		    0 ||
	    llama_forward(&app->pass, &batch, logits, &fault) < 0)
		fail_msg("%s", fault.text);
}

static void logits_have_the_bits_of_an_app_that_computes_the_layers(void **state)
{
	struct decode_client client;
	struct coppice_seq *seq;
	float logits[DECODE_VOCAB];
	struct app app;

	(void)state;
	app_open(&app, "app");
	for (uint32_t pos = 0; pos < PROMPT; pos += CHUNK)
		app_run(&app, pos, CHUNK, logits);
	decode_client_open(&client, &service);
	seq = decode_anew(&client, service.ids, PROMPT);
	decode_assert_same(&client, logits);
	for (uint32_t pos = PROMPT; pos < PROMPT + 8; pos++) {
		app_run(&app, pos, 1, logits);
		assert_int_equal(decode_run(&client, seq, service.ids + pos, 1), 1);
		decode_assert_same(&client, logits);
	}
	decode_client_close(&client);
	app_close(&app);
}

/* A pass has no more than some of its rows, and the next one's plan is made meanwhile where the
 * backend can: it says the same as one that comes in parts, each of which is waited for. */
static void a_long_prompt_is_what_its_parts_are(void **state)
{
	static uint32_t ids[LONG];
	struct decode_client client;
	struct coppice_seq *seq;
	float logits[DECODE_VOCAB];

	(void)state;
	for (uint32_t i = 0; i < LONG; i++)
		ids[i] = service.ids[i * 7 % DECODE_TOKENS];
	decode_client_open(&client, &service);
	coppice_seq_close(decode_prompt(&client, ids, LONG));
	memcpy(logits, decode_logits(&client), sizeof(logits));
	seq = decode_anew(&client, ids, LONG_PART);
	for (uint32_t pos = LONG_PART; pos < LONG; pos += LONG_PART)
		decode_run(&client, seq, ids + pos, LONG_PART);
	decode_assert_same(&client, logits);
	decode_client_close(&client);
}

/* ---- shared --------------------------------------------------------------------------------- */

static void a_row_says_what_its_logits_do(void **state)
{
	struct decode_client client;
	const struct coppice_row *row;
	double sum = 0;

	(void)state;
	decode_client_open(&client, &service);
	decode_prompt(&client, service.ids, 50);
	row = decode_row(&client);
	for (uint32_t i = 0; i < DECODE_VOCAB; i++)
		sum += exp(decode_logits(&client)[i]);
	assert_true(fabs(log(sum) - row->lse) < 1e-5);
	assert_int_equal(row->n_top, 20);
	for (uint32_t i = 0; i < row->n_top; i++) {
		assert_true(row->top[i].logit == decode_logits(&client)[row->top[i].id]);
		assert_true(i == 0 || row->top[i].logit <= row->top[i - 1].logit);
	}
	assert_int_equal(row->top[20].id, 0);
	decode_client_close(&client);
}

static void another_session_finds_what_was_computed(void **state)
{
	struct decode_client first, second;
	struct coppice_match match;
	struct coppice_seq *seq;
	float logits[DECODE_VOCAB];
	uint32_t *ids = service.ids + 20; /* a document that no other test has */

	(void)state;
	decode_client_open(&first, &service);
	decode_client_open(&second, &service);
	seq = decode_open(&first, ids, 300, &match);
	assert_int_equal(match.cached, 0);
	decode_run(&first, seq, ids, 300);
	memcpy(logits, decode_logits(&first), sizeof(logits));
	decode_client_close(&first);
	seq = decode_open(&second, ids, 300, &match);
	assert_int_equal(match.cached, 299);
	decode_run(&second, seq, ids + 299, 1);
	decode_assert_same(&second, logits);
	decode_client_close(&second);
}

/* A process of company: goes on for some tokens, and says by its status whether all was well. */
static void company_run(uint32_t first)
{
	struct decode_client client;
	struct coppice_seq *seq;

	decode_client_open(&client, &service);
	seq = decode_anew(&client, service.ids + first, 100);
	for (uint32_t i = 100; i < 140; i++)
		decode_run(&client, seq, service.ids + first + i, 1);
	_exit(0);
}

static void company_changes_no_bit(void **state)
{
	static float alone[40][DECODE_VOCAB];
	struct decode_client client;
	uint32_t *ids = service.ids + 3;
	pid_t pids[COMPANY];
	int status;

	(void)state;
	decode_client_open(&client, &service);
	for (int turn = 0; turn < 2; turn++) {
		struct coppice_seq *seq;

		for (int i = 0; turn == 1 && i < COMPANY; i++)
			if ((pids[i] = fork()) == 0)
				company_run(30 + 7 * (uint32_t)i);
		seq = decode_anew(&client, ids, 200);
		for (uint32_t i = 0; i < 40; i++) {
			decode_run(&client, seq, ids + 200 + i, 1);
			if (turn == 0)
				memcpy(alone[i], decode_logits(&client), sizeof(alone[i]));
			decode_assert_same(&client, alone[i]);
		}
		coppice_seq_close(seq);
	}
	for (int i = 0; i < COMPANY; i++) {
		assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
		assert_int_equal(status, 0);
	}
	decode_client_close(&client);
}

/* An app computes its layers while programs' tokens are computed in segments between them. */
static void layers_beside_passes_have_their_bits_and_so_have_passes(void **state)
{
	struct decode_client client;
	float logits[DECODE_VOCAB];
	struct coppice_seq *seq;
	pid_t pids[COMPANY];
	struct app app;
	int status;

	(void)state;
	for (int i = 0; i < COMPANY; i++)
		if ((pids[i] = fork()) == 0)
			company_run(30 + 7 * (uint32_t)i);
	app_open(&app, "beside");
	for (uint32_t pos = 0; pos < PROMPT; pos += CHUNK)
		app_run(&app, pos, CHUNK, logits);
	decode_client_open(&client, &service);
	seq = decode_anew(&client, service.ids, PROMPT);
	decode_assert_same(&client, logits);
	for (uint32_t pos = PROMPT; pos < PROMPT + 40; pos++) {
		app_run(&app, pos, 1, logits);
		decode_run(&client, seq, service.ids + pos, 1);
		decode_assert_same(&client, logits);
	}
	for (int i = 0; i < COMPANY; i++) {
		assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
		assert_int_equal(status, 0);
	}
	decode_client_close(&client);
	app_close(&app);
}

static void a_fork_goes_its_own_way(void **state)
{
	struct decode_client client;
	struct coppice_seq *seq, *fork;
	float logits[DECODE_VOCAB];
	uint32_t other = 'x';

	(void)state;
	decode_client_open(&client, &service);
	seq = decode_prompt(&client, service.ids, 60);
	assert_int_equal(coppice_seq_fork(seq, &fork), 0);
	decode_run(&client, fork, &other, 1);
	decode_run(&client, seq, service.ids + 60, 1);
	memcpy(logits, decode_logits(&client), sizeof(logits));
	assert_int_equal(coppice_seq_trim(fork, 60, NULL), 0);
	decode_run(&client, fork, service.ids + 60, 1);
	decode_assert_same(&client, logits);
	decode_client_close(&client);
}

/* ---- what is told --------------------------------------------------------------------------- */

static void expect_listing(const char *verb, const char *words)
{
	const char *text = decode_listing(verb);

	if (!strstr(text, words))
		fail_msg("%s does not say \"%s\": %s", verb, words, text);
}

/* Bytes are columns: what is listed here has no others. */
static void expect_80_columns(const char *verb)
{
	for (const char *line = decode_listing(verb); *line; line += strcspn(line, "\n") + 1) {
		size_t n = strcspn(line, "\n");

		if (n > 80)
			fail_msg("%s: %zu columns: %.*s", verb, n, (int)n, line);
		if (!line[n])
			break;
	}
}

static void weights_and_passes_are_told(void **state)
{
	struct decode_client client;

	(void)state;
	decode_client_open(&client, &service);
	decode_anew(&client, service.ids, 20);
	expect_listing("weights", "47"); /* tensors */
	expect_listing("status", "of programs");
	expect_listing("status", "weights ");
	expect_listing("status", "taken by KV and weights together");
	expect_listing("weights", "taken by KV and weights together");
	expect_listing("top --count 1 --interval 20ms", ", of which weights ");
	expect_listing("models", "program:");
	expect_listing("top --count 1 --interval 20ms", "  passes  ");
	expect_80_columns("top --count 1 --interval 20ms");
	decode_client_close(&client);
}

/* ---- what is refused ------------------------------------------------------------------------ */

static int run_bad(struct decode_client *client, const struct coppice_decode *decode)
{
	uint64_t ticket;
	int r = coppice_decode(client->lane, decode, &ticket);

	return r < 0 ? r : coppice_wait(client->lane, ticket, COPPICE_SECONDS(10));
}

static void expect_words(struct decode_client *client, int r, int error, const char *words)
{
	assert_int_equal(r, error);
	if (!strstr(coppice_explain(client->c), words))
		fail_msg("\"%s\" does not say \"%s\"", coppice_explain(client->c), words);
}

static void what_is_no_decode_is_refused_and_changes_nothing(void **state)
{
	struct decode_client client;
	uint32_t ids[300] = {1, DECODE_VOCAB}, n;
	struct coppice_decode_seq part = {.ids = ids, .n_new = 2, .first_wanted = 1};
	struct coppice_decode decode = {.size = sizeof(decode), .seqs = &part, .n_seqs = 1};

	(void)state;
	decode_client_open(&client, &service);
	part.seq = decode_prompt(&client, service.ids, 10);
	expect_words(&client, run_bad(&client, &decode), -EINVAL, "n_vocab");
	expect_words(&client, run_bad(&client, &decode), -EINVAL, "decode (ticket");
	ids[1] = 1;
	part.n_new = 300;
	part.first_wanted = 0;
	decode.want = COPPICE_WANT_SCORE;
	decode.out = client.out;
	expect_words(&client, run_bad(&client, &decode), -EINVAL, "256 rows");
	part.n_new = 2;
	decode.n_top = 1;
	expect_words(&client, run_bad(&client, &decode), -EINVAL, "want, n_top");
	decode.n_top = 0;
	decode.out_stride = 8;
	expect_words(&client, run_bad(&client, &decode), -EINVAL, "out_stride");
	decode.out_stride = 0;
	decode.out = client.out + DECODE_OUT_BYTES * 2 - 64;
	expect_words(&client, run_bad(&client, &decode), -EINVAL, "beyond the end of the arena");
	decode.out = ids;
	expect_words(&client, run_bad(&client, &decode), -EINVAL, "does not lie in an arena");
	assert_int_equal(coppice_seq_length(part.seq, &n), 0);
	assert_int_equal(n, 10);
	decode_run(&client, part.seq, service.ids + 10, 1);
	decode_client_close(&client);
}

static void layers_of_a_program_are_not_a_clients(void **state)
{
	struct coppice_model_info info = {.size = sizeof(info),
					  .name = "own",
					  .n_layers = 1,
					  .n_q_heads = 1,
					  .n_kv_heads = 1,
					  .head_dim = 64,
					  .dtype = COPPICE_BF16};
	struct coppice_decode_seq part = {.ids = service.ids, .n_new = 1};
	struct coppice_decode decode = {.size = sizeof(decode), .seqs = &part, .n_seqs = 1};
	struct decode_client client;
	struct coppice_seq *seq;
	uint64_t ticket;
	uint32_t own;

	(void)state;
	decode_client_open(&client, &service);
	seq = decode_open(&client, service.ids, 10, NULL);
	assert_int_equal(coppice_seq_extend(seq, service.ids, 1, &ticket), 0);
	expect_words(&client, coppice_wait(client.lane, ticket, COPPICE_SECONDS(10)), -EINVAL,
		     "coppice_decode");
	assert_int_equal(coppice_model_open(client.c, &info, &own), 0);
	assert_int_equal(coppice_seq_open(client.lane, own, service.ids, 4, 0, &part.seq, NULL), 0);
	expect_words(&client, run_bad(&client, &decode), -EINVAL, "coppice_step");
	info.name = "program:0123";
	expect_words(&client, coppice_model_open(client.c, &info, &own), -EINVAL, "program:");
	decode_client_close(&client);
}

/* ---- kills ---------------------------------------------------------------------------------- */

static void clients_that_are_killed_leave_others_alone(void **state)
{
	struct decode_client client;
	struct coppice_seq *seq;
	float logits[DECODE_VOCAB];

	(void)state;
	decode_client_open(&client, &service);
	for (uint32_t i = 0; i < 6; i++) {
		pid_t pid = fork();

		if (pid == 0)
			company_run(i);
		usleep(20000 + 17000 * i);
		seq = decode_anew(&client, service.ids, 80);
		if (i == 0)
			memcpy(logits, decode_logits(&client), sizeof(logits));
		decode_assert_same(&client, logits);
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		coppice_seq_close(seq);
	}
	decode_client_close(&client);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(logits_have_the_bits_of_an_app_that_computes_the_layers),
		cmocka_unit_test(a_long_prompt_is_what_its_parts_are),
		cmocka_unit_test(a_row_says_what_its_logits_do),
		cmocka_unit_test(another_session_finds_what_was_computed),
		cmocka_unit_test(company_changes_no_bit),
		cmocka_unit_test(layers_beside_passes_have_their_bits_and_so_have_passes),
		cmocka_unit_test(a_fork_goes_its_own_way),
		cmocka_unit_test(weights_and_passes_are_told),
		cmocka_unit_test(what_is_no_decode_is_refused_and_changes_nothing),
		cmocka_unit_test(layers_of_a_program_are_not_a_clients),
		cmocka_unit_test(clients_that_are_killed_leave_others_alone),
	};

	return cmocka_run_group_tests(tests, decode_setup, decode_teardown);
}
