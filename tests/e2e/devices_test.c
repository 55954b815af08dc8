/*
 * devices_test.c - a daemon with several devices, as clients see it: arenas on the device that is
 * named, models split over heads or tokens with a reason. argv[1] is the daemon's program; the fake
 * module stands where the real one is looked for.
 */
#include "control_harness.h"
#include "fake.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COSTS \
	"auto: 64 sequences behind the same 262144 tokens are expected to take %lf us a layer " \
	"with tokens, %lf us with heads"

static int setup(void **state)
{
	struct harness *h = harness_new("auto");

	h->flags[0] = "--backend=cuda";
	h->flags[1] = "--devices=0,1";
	h->flags[2] = "--split=auto,whole:tokens";
	h->flags[3] = "--extent=2M";
	harness_start(h);
	*state = h;
	return 0;
}

static const Coppice__Reply *ask_arena(struct client *c, const char *device, size_t n,
				       uint32_t kind)
{
	Coppice__ArenaNew m = COPPICE__ARENA_NEW__INIT;

	m.kind = kind;
	m.bytes = FAKE_ARENA_BYTES;
	m.has_device = device != NULL;
	m.device = (ProtobufCBinaryData){n, (uint8_t *)(uintptr_t)device};
	return client_verb(c, arena_new, &m);
}

static void a_device_arena_is_on_the_device_that_is_named(void **state)
{
	char uuid[] = FAKE_UUID;
	struct client c;

	for (uint32_t i = 0; i < 2; i++) {
		const Coppice__Reply *reply;

		c = client_open(*state);
		uuid[15] = (char)(FAKE_UUID[15] + 1 - i);
		reply = ask_arena(&c, uuid, 16, 1);
		assert_int_equal(reply->code, 0);
		assert_int_equal(reply->arena->device.len, 16);
		assert_memory_equal(reply->arena->device.data, uuid, 16);
		client_close(&c);
	}
	c = client_open(*state);
	assert_int_equal(ask_arena(&c, NULL, 0, 1)->code, 0);
	client_close(&c);
}

static void a_device_that_the_daemon_lacks_is_refused(void **state)
{
	struct client c = client_open(*state);

	assert_refused(ask_arena(&c, "another's device", 16, 1), -ENODEV, "device",
		       "among the daemon's devices");
	assert_refused(ask_arena(&c, "coppice fake gpw", 16, 1), -ENODEV, "device", NULL);
	assert_refused(ask_arena(&c, FAKE_UUID, 15, 1), -EINVAL, "device", "16 bytes");
	assert_refused(ask_arena(&c, FAKE_UUID, 16, 0), -EINVAL, "device", "kind 1");
	client_close(&c);
}

static const Coppice__Reply *open_model(struct client *c, const char *name, uint32_t n_q_heads,
					uint32_t n_kv_heads)
{
	Coppice__ModelOpen m = COPPICE__MODEL_OPEN__INIT;

	m.name = (char *)(uintptr_t)name;
	m.n_layers = 2;
	m.n_q_heads = n_q_heads;
	m.n_kv_heads = n_kv_heads;
	m.head_dim = 64;
	m.dtype = 1;
	return client_verb(c, model_open, &m);
}

static const Coppice__Model *find_model(struct client *c, const char *name)
{
	Coppice__Models m = COPPICE__MODELS__INIT;
	const Coppice__ModelsReply *reply = client_verb(c, models, &m)->models;

	assert_non_null(reply);
	for (size_t i = 0; i < reply->n_model; i++) {
		if (strcmp(reply->model[i]->name, name) == 0)
			return reply->model[i];
	}
	fail_msg("no model is called %s", name);
	return NULL;
}

static void models_say_how_they_are_split_and_why(void **state)
{
	static const struct {
		const char *name;
		uint32_t n_kv_heads;
		const char *split, *why;
	} cases[] = {
		{"even", 4, "heads", "with heads (2 on each device"},
		{"odd", 3, "tokens", "3 KV heads cannot be shared out evenly to 2 devices"},
		{"whole", 4, "tokens", "in the config"},
	};
	struct client c = client_open(*state);

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		assert_int_equal(open_model(&c, cases[i].name, 12, cases[i].n_kv_heads)->code, 0);

		const Coppice__Model *model = find_model(&c, cases[i].name);

		assert_int_equal(model->n_devices, 2);
		assert_string_equal(model->split, cases[i].split);
		assert_non_null(strstr(model->split_why, cases[i].why));
	}
	client_close(&c);
}

static void status_counts_each_device(void **state)
{
	struct client c = client_open(*state);
	Coppice__Status m = COPPICE__STATUS__INIT;
	const Coppice__StatusReply *status = client_verb(&c, status, &m)->status;

	assert_string_equal(status->backend, "cuda x 2");
	assert_int_equal(status->n_device_page_bytes, 2);
	assert_true(status->has_exchange_bytes && status->has_exchange_ns);
	assert_true(status->has_kv_bytes_moved);
	assert_int_equal(status->kv_bytes_moved, 0);
	client_close(&c);
}

static void heads_that_are_not_to_be_divided_are_refused(void **state)
{
	struct harness *h = *state;
	struct client c;

	harness_stop(h, 15);
	h->flags[2] = "--split=heads";
	harness_start(h);
	c = client_open(h);
	assert_refused(open_model(&c, "odd", 12, 3), -ENOTSUP, "n_kv_heads", "use tokens or auto");
	client_close(&c);
}

static uint64_t pool_mib(struct harness *h, const char *pool)
{
	Coppice__Status m = COPPICE__STATUS__INIT;
	struct client c;

	harness_stop(h, 15);
	h->flags[4] = pool;
	harness_start(h);
	c = client_open(h);

	uint64_t mib = client_verb(&c, status, &m)->status->pool_bytes >> 20;

	client_close(&c);
	return mib;
}

/* Of 2,000 and 1,000 MiB; usually 300 and 700. */
static void a_pool_that_is_a_share_is_as_large_on_each_device_as_on_the_least(void **state)
{
	assert_int_equal(pool_mib(*state, "--pool=0"), 600);
	assert_int_equal(pool_mib(*state, "--pool=25%"), 500);
	assert_int_equal(pool_mib(*state, "--pool=400M"), 400);
}

static void a_share_without_room_for_an_extent_and_the_stage_is_a_sentence(void **state)
{
	struct harness *h = *state;

	harness_stop(h, 15);
	h->flags[4] = "--pool=1%";
	h->flags[5] = "--stage=20M";
	h->flags[6] = "--host-tier=64M";
	assert_int_equal(harness_wait(harness_spawn(h)), 1);
	assert_true(harness_log_has(h, "a pool of 20M, and 24M is the least"));
}

/* The daemon that setup started goes, and another comes. */
static struct harness *with_meeting(void **state, const char *how)
{
	struct harness *h = *state;

	harness_stop(h, 15);
	setenv("FAKE_CUDA_MEET", how, 1);
	return h;
}

static void devices_that_do_not_reach_each_other_are_a_warning(void **state)
{
	struct harness *h = with_meeting(state, "apart");
	struct client c;

	harness_start(h);
	assert_true(harness_log_has(h, "the fake devices do not reach each other"));
	c = client_open(h);
	assert_refused(ask_arena(&c, NULL, 0, 1), -EOPNOTSUPP, "kind", "use a host arena");
	client_close(&c);
}

/* Devices divide the heads of both. What the many rows of one lose by heads is more than an
 * exchange, the few ones' of the other less. */
static void auto_goes_by_cost(void **state)
{
	struct harness *h = with_meeting(state, "apart");
	const Coppice__Model *model;
	double tokens_us = 0, heads_us = 0;
	struct client c;

	harness_start(h);
	c = client_open(h);
	assert_int_equal(open_model(&c, "many rows", 12, 4)->code, 0);
	model = find_model(&c, "many rows");
	assert_string_equal(model->split, "tokens");
	assert_int_equal(sscanf(model->split_why, COSTS, &tokens_us, &heads_us), 2);
	assert_true(tokens_us < heads_us);
	assert_int_equal(open_model(&c, "few rows", 4, 4)->code, 0);
	model = find_model(&c, "few rows");
	assert_string_equal(model->split, "heads");
	assert_int_equal(sscanf(model->split_why, COSTS, &tokens_us, &heads_us), 2);
	assert_true(tokens_us > heads_us);
	client_close(&c);
}

static void devices_that_cannot_meet_are_a_sentence_and_status_1(void **state)
{
	struct harness *h = with_meeting(state, "never");

	assert_int_equal(harness_wait(harness_spawn(h)), 1);
	assert_true(harness_log_has(h, "the fake devices do not reach each other"));
}

static int teardown(void **state)
{
	unsetenv("FAKE_CUDA_MEET");
	return harness_teardown(state);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(a_device_arena_is_on_the_device_that_is_named),
		TEST(a_device_that_the_daemon_lacks_is_refused),
		TEST(models_say_how_they_are_split_and_why),
		TEST(status_counts_each_device),
		TEST(heads_that_are_not_to_be_divided_are_refused),
		TEST(a_pool_that_is_a_share_is_as_large_on_each_device_as_on_the_least),
		TEST(a_share_without_room_for_an_extent_and_the_stage_is_a_sentence),
		TEST(devices_that_do_not_reach_each_other_are_a_warning),
		TEST(auto_goes_by_cost),
		TEST(devices_that_cannot_meet_are_a_sentence_and_status_1),
	};

	if (harness_init(argc, argv) < 0)
		return 2;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
