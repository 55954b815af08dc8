/*
 * decode_refusal_test.c - programs that are none, and layers of who has one: each a sentence to who
 * asked, which names layer and operation or tensor, and nothing to anybody else.
 */
#include "decode_fixture.h"

#include "client/model/coppice_hf.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define N_OPS_MAX (COPPICE_OPS_MAX * COPPICE_KINDS_MAX)
#define N_LAYERS 5u

struct decode_service service;

/* A good program of its own, that a test may spoil. */
struct trial {
	struct decode_client client;
	struct coppice_hf_program *good;
	struct coppice_program_info info;
	struct coppice_op ops[N_OPS_MAX + 1];
	struct coppice_layer_kind kinds[COPPICE_KINDS_MAX + 1];
	uint32_t tensors[N_LAYERS * COPPICE_SLOTS_MAX];
	uint8_t kind_of[N_LAYERS];
};

static void trial_open(struct trial *t)
{
	*t = (struct trial){0};
	decode_client_open(&t->client, &service);
	t->good = decode_program(&t->client);
}

/* Good again. */
static void trial_begin(struct trial *t)
{
	const struct coppice_program_info *good = &t->good->info;

	assert_int_equal(good->n_layers, N_LAYERS);
	assert_int_equal(good->n_kinds, 1);
	memcpy(t->ops, good->ops, good->n_ops * sizeof(*good->ops));
	memcpy(t->kinds, good->kinds, sizeof(*good->kinds));
	memcpy(t->kind_of, good->kind_of, N_LAYERS);
	memcpy(t->tensors, good->tensors, N_LAYERS * good->n_slots * sizeof(*good->tensors));
	t->info = *good;
	t->info.ops = t->ops;
	t->info.kinds = t->kinds;
	t->info.kind_of = t->kind_of;
	t->info.tensors = t->tensors;
}

/* And what is good goes on. */
static void trial_close(struct trial *t)
{
	coppice_hf_free(t->good);
	decode_prompt(&t->client, service.ids, 20);
	decode_client_close(&t->client);
}

static void says(struct coppice *c, const char *words)
{
	if (!strstr(coppice_explain(c), words))
		fail_msg("\"%s\" does not say \"%s\"", coppice_explain(c), words);
}

static void expect_words(struct coppice *c, int r, const char *words)
{
	assert_int_equal(r, -EINVAL);
	says(c, words);
}

static void is_refused(struct trial *t, const char *words)
{
	uint32_t model;

	expect_words(t->client.c,
		     coppice_program_new(t->client.c, t->client.weights, &t->info, &model), words);
}

/* Index of the kind's operation. */
static uint32_t op_of(const struct trial *t, enum coppice_op_kind kind)
{
	uint32_t i = 0;

	while (t->ops[i].kind != kind)
		i++;
	return i;
}

static void a_program_that_does_not_fit_its_weights_is_told_by_tensor(void **state)
{
	struct trial t;
	static const char down[] = "model.layers.4.mlp.down_proj.weight";
	uint32_t linear, slot, n_slots;

	(void)state;
	trial_open(&t);
	trial_begin(&t);
	n_slots = t.info.n_slots;
	linear = op_of(&t, COPPICE_LINEAR);
	slot = t.ops[linear].w[0];
	t.tensors[2 * n_slots + slot] = t.info.embed; /* of other columns alone */
	is_refused(&t, "layer 2");
	trial_begin(&t);
	assert_int_equal(coppice_weights_find(t.client.weights, down,
					      &t.tensors[2 * n_slots + slot]),
			 0);
	is_refused(&t, "layer 2");
	is_refused(&t, down);
	trial_begin(&t);
	t.tensors[3 * n_slots + slot] = t.info.final_norm;
	is_refused(&t, "model.norm.weight");
	trial_begin(&t);
	t.tensors[n_slots + slot] = coppice_weights_count(t.client.weights);
	is_refused(&t, "layer 1");
	trial_begin(&t);
	t.info.head = UINT32_MAX - 1;
	is_refused(&t, "head");
	trial_begin(&t);
	t.ops[linear].w[0] = n_slots;
	is_refused(&t, "slot");
	trial_close(&t);
}

static void attention_is_once_a_layer(void **state)
{
	struct trial t;
	uint32_t at;

	(void)state;
	trial_open(&t);
	trial_begin(&t);
	at = op_of(&t, COPPICE_ATTEND);
	memmove(t.ops + at, t.ops + at + 1, (t.info.n_ops - at - 1) * sizeof(*t.ops));
	t.info.n_ops = t.kinds[0].n_ops = t.info.n_ops - 1;
	is_refused(&t, "layer 0");
	trial_begin(&t);
	memmove(t.ops + at + 1, t.ops + at, (t.info.n_ops - at) * sizeof(*t.ops));
	t.info.n_ops = t.kinds[0].n_ops = t.info.n_ops + 1;
	is_refused(&t, "layer 0");
	trial_close(&t);
}

static void a_program_that_is_too_long_is_told(void **state)
{
	struct trial t;

	(void)state;
	trial_open(&t);
	trial_begin(&t);
	t.info.n_ops = t.kinds[0].n_ops = N_OPS_MAX + 1;
	is_refused(&t, "too long");
	trial_begin(&t);
	t.info.n_kinds = COPPICE_KINDS_MAX + 1;
	is_refused(&t, "too long");
	trial_begin(&t);
	t.info.n_layers = 1000000;
	is_refused(&t, "too long");
	trial_begin(&t);
	t.info.n_ops = t.kinds[0].n_ops = COPPICE_OPS_MAX + 1; /* of one kind */
	is_refused(&t, "16");
	trial_close(&t);
}

static void a_step_on_a_programs_sequence_is_told(void **state)
{
	struct decode_client client;
	struct coppice_step_seq part = {.n_new = 1};
	struct coppice_step step = {.size = sizeof(step), .layer = 0, .seqs = &part, .n_seqs = 1};
	uint64_t ticket;
	int r;

	(void)state;
	decode_client_open(&client, &service);
	part.seq = decode_prompt(&client, service.ids, 10);
	part.q = part.k = part.v = part.o = client.out;
	r = coppice_step(client.lane, &step, &ticket);
	if (r == 0)
		r = coppice_wait(client.lane, ticket, COPPICE_SECONDS(10));
	expect_words(client.c, r, "coppice_decode");
	assert_int_equal(decode_run(&client, part.seq, service.ids + 10, 1), 1);
	decode_client_close(&client);
}

static void weights_are_lent_where_the_daemon_says_so_alone(void **state)
{
	struct decode_client client;
	struct coppice_arena *arena;

	(void)state;
	decode_client_open(&client, &service);
	assert_int_equal(coppice_weights_map(client.weights, COPPICE_SECONDS(10), &arena), -EPERM);
	assert_non_null(strstr(coppice_explain(client.c), "lend_weights"));
	decode_prompt(&client, service.ids, 10);
	decode_client_close(&client);
}

/* At once, and not when the weights are there. */
static void progress_without_a_size_is_told(void **state)
{
	struct decode_client client;
	struct coppice_progress progress = {0};

	(void)state;
	decode_client_open(&client, &service);
	assert_int_equal(coppice_weights_wait(client.weights, COPPICE_FOREVER, &progress), -EINVAL);
	expect_words(client.c, -EINVAL, "coppice_weights_wait: the struct's size is 0");
	progress.size = sizeof(progress);
	assert_int_equal(coppice_weights_wait(client.weights, COPPICE_FOREVER, &progress), 0);
	assert_true(progress.bytes > 0 && progress.bytes_done == progress.bytes);
	assert_int_equal(progress.size, sizeof(progress));
	decode_client_close(&client);
}

static void tensors_are_known_once_weights_have_been_waited_for(void **state)
{
	static const char name[] = "model.norm.weight";
	struct decode_client client;
	struct coppice_weights *weights;
	struct coppice_tensor tensor;
	uint32_t number;
	int fd = open(MODEL_DIR "/model.safetensors", O_RDONLY | O_CLOEXEC);

	(void)state;
	assert_true(fd >= 0);
	decode_client_open(&client, &service);
	assert_int_equal(coppice_weights_open(client.c, &fd, 1, &weights), 0);
	close(fd);
	assert_int_equal(coppice_weights_find(weights, name, &number), -ENOENT);
	says(client.c, "coppice_weights_find: tensors are known once coppice_weights_wait");
	assert_int_equal(coppice_weights_tensor(weights, 0, &tensor), -EINVAL);
	says(client.c, "coppice_weights_tensor: tensors are known once");
	assert_int_equal(coppice_weights_wait(weights, COPPICE_FOREVER, NULL), 0);
	assert_int_equal(coppice_weights_find(weights, name, &number), 0);
	assert_int_equal(coppice_weights_find(weights, "no", &number), -ENOENT);
	says(client.c, "the weights have no tensor no");
	coppice_weights_close(weights);
	decode_client_close(&client);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_program_that_does_not_fit_its_weights_is_told_by_tensor),
		cmocka_unit_test(attention_is_once_a_layer),
		cmocka_unit_test(a_program_that_is_too_long_is_told),
		cmocka_unit_test(a_step_on_a_programs_sequence_is_told),
		cmocka_unit_test(weights_are_lent_where_the_daemon_says_so_alone),
		cmocka_unit_test(progress_without_a_size_is_told),
		cmocka_unit_test(tensors_are_known_once_weights_have_been_waited_for),
	};

	return cmocka_run_group_tests(tests, decode_setup, decode_teardown);
}
