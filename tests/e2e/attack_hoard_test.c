/*
 * attack_hoard_test.c - what one user can keep from others, beside those of attack_test: the pool
 * by pins that outlive him and by open sequences, sessions, the journal of the tier file by ever
 * new models.
 *
 * The pool is small, and so is the file. Whoever comes while another hoards gets room, by what the
 * daemon keeps for all others.
 */
#include "attack_fixture.h"
#include "element.h"
#include "stepper.h"

#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#define CONNECT_NS UINT64_C(10000000000)
#define NEWCOMER 65530
#define JOIN_TRIES 400 /* of 5 ms */

/* ---- pins ---- */

/* Of 16 MiB one user's pins may keep 4,096 tokens; the model of the honest takes 1,024. */
#define HOARD_CHUNK 256u
#define NEWCOMER_TOKENS 2048u
#define PIN_NS UINT64_C(2500000000)
#define PIN_AGAIN_MS 250

static int pin(struct stepper *s)
{
	Coppice__SeqPin m = COPPICE__SEQ_PIN__INIT;

	m.seq = s->seq;
	m.for_ns = PIN_NS;
	return client_verb(&s->x.c, seq_pin, &m)->code;
}

/* Pins as much as it may, leaves, and comes back before they end. */
static int pin_and_leave(const struct harness *h, int said)
{
	static struct stepper s;

	for (bool on = false; attack_goes_on(); sleep_ms(PIN_AGAIN_MS)) {
		stepper_start(&s, h);
		while (stepper_append(&s, HOARD_CHUNK) == 0 && pin(&s) == 0)
			continue;
		stepper_end(&s);
		if (!on)
			attack_is_on(said);
		on = true;
	}
	return 0;
}

static void assert_newcomer_has_room(const struct harness *h)
{
	struct stepper s;

	stepper_start(&s, h);
	for (uint32_t n = 0; n < NEWCOMER_TOKENS; n += STEPPER_CHUNK)
		assert_int_equal(stepper_append(&s, STEPPER_CHUNK), 0);
	stepper_end(&s);
}

static void see_pins(const struct harness *h, struct client *root)
{
	Coppice__Evict evict = COPPICE__EVICT__INIT;
	const Coppice__StatusReply *status = client_status(root);

	assert_true(status->pinned_bytes <= status->pinned_bytes_max);
	assert_true(status->pinned_bytes > status->pinned_bytes_max / 2);
	assert_newcomer_has_room(h);
	evict.has_pinned = evict.pinned = true;
	assert_true(client_verb(root, evict, &evict)->evict->n_pins > 0);
}

static void pins_of_a_user_who_leaves(void **state)
{
	assert_attack_withstood(state, &(struct attack){.life = pin_and_leave, .beside = see_pins});
}

/* ---- sessions ---- */

/* As many as it is given, and then more. */
static int hoard_sessions(const struct harness *h, int said)
{
	for (bool on = false; attack_goes_on();) {
		struct client c = {.fd = -1};
		const Coppice__Reply *reply;

		if (channel_connect(h->socket, CONNECT_NS, &c.fd) < 0)
			continue;
		reply = client_hello(&c);
		if (reply && reply->code == 0)
			continue;
		client_close(&c);
		if (!on)
			attack_is_on(said);
		on = true;
	}
	return 0;
}

/* Soon: of those who were refused some may not be gone yet. */
static int join(const struct harness *h, int said)
{
	bool joined = false;

	(void)said;
	for (int i = 0; i < JOIN_TRIES && !joined; i++, sleep_ms(5)) {
		struct client c = {.fd = -1};
		const Coppice__Reply *reply;

		if (channel_connect(h->socket, CONNECT_NS, &c.fd) < 0)
			continue;
		reply = client_hello(&c);
		joined = reply && reply->code == 0;
		client_close(&c);
	}
	return joined ? 0 : 1;
}

static void see_sessions(const struct harness *h, struct client *root)
{
	struct other newcomer;

	assert_true(client_status(root)->n_sessions >= 3 + 6);
	newcomer = other_start(h, NEWCOMER, join);
	other_join(&newcomer);
}

static void sessions_that_two_users_hoard(void **state)
{
	assert_attack_withstood(state, &(struct attack){.life = hoard_sessions,
							.n_users = 2,
							.beside = see_sessions});
}

/* ---- the journal ---- */

/* A page of a model is a unit of the file, which has more of them than its journal has room for
 * models of so many tokens. A user may take three quarters of that. A GPU takes no heads of less
 * than 64, whose rows are as long there. */
#define MODEL_DIM (test_on_gpu() ? 64u : 32u)
#define MODEL_TOKENS 64u
#define SESSION_MODELS 15u
#define ROW_BYTES (MODEL_DIM * (uint32_t)element_bytes())
#define FIRST_OF_ROOT 1000000u
#define WRITTEN_TRIES 2000 /* of 5 ms */
#define DISK_TRIES 1000

static uint32_t open_model(struct client *c, unsigned n)
{
	Coppice__ModelOpen m = COPPICE__MODEL_OPEN__INIT;
	char name[32];
	const Coppice__Reply *reply;

	snprintf(name, sizeof(name), "model-%u", n);
	m.name = name;
	m.n_layers = m.n_q_heads = m.n_kv_heads = 1;
	m.head_dim = MODEL_DIM;
	m.dtype = element_dtype();
	m.has_page_tokens = true;
	m.page_tokens = MODEL_TOKENS;
	reply = client_verb(c, model_open, &m);
	assert_int_equal(reply->code, 0);
	return reply->model->model;
}

/* A sequence on a page of the model; returns the status of its extension. */
static int compute_page(struct stepper *s, uint32_t model, uint64_t *ret_seq)
{
	uint64_t seq = client_seq(&s->x.c, model, 1, s->x.arena, 1)->seq->seq;
	struct abi_step_seq rec = {.seq = seq,
				   .k = 1 << 16,
				   .v = 1 << 17,
				   .lse = ABI_NO_OFFSET,
				   .n_new = MODEL_TOKENS,
				   .q_stride = ROW_BYTES,
				   .k_stride = ROW_BYTES,
				   .v_stride = ROW_BYTES,
				   .o_stride = ROW_BYTES,
				   .arena_in = s->x.arena,
				   .arena_out = s->x.arena};
	struct abi_entry step = {.kind = ABI_STEP, .flags = ABI_STEP_APPEND_ONLY, .count = 1};
	int r = stepper_extend(s, seq, MODEL_TOKENS, 0);

	*ret_seq = seq;
	return r ? r : stepper_do(s, step, &rec, sizeof(rec));
}

static void leave_page(struct stepper *s, uint32_t model)
{
	Coppice__SeqClose m = COPPICE__SEQ_CLOSE__INIT;

	assert_int_equal(compute_page(s, model, &m.seq), 0);
	assert_int_equal(client_verb(&s->x.c, seq_close, &m)->code, 0);
}

/* Once the daemon has ended it: until then it counts, and a user may have six. */
static void end_session(struct raw *x)
{
	char byte;

	shutdown(x->c.fd, SHUT_WR);
	while (recv(x->c.fd, &byte, sizeof(byte), 0) > 0)
		continue;
	raw_close(x);
}

static void leave_models(const struct harness *h, unsigned first)
{
	struct stepper s;

	s.x = raw_open(h);
	for (unsigned i = first; i < first + SESSION_MODELS; i++)
		leave_page(&s, open_model(&s.x.c, i));
	end_session(&s.x);
}

/* How many of the user's own nodes are so. */
static uint32_t n_own_nodes(struct client *c, bool (*is_so)(const Coppice__TreeNode *node))
{
	Coppice__Tree tree = COPPICE__TREE__INIT;
	uint32_t n = 0;

	tree.has_cursor = true;
	do {
		const Coppice__Reply *reply = client_verb(c, tree, &tree);

		assert_int_equal(reply->code, 0);
		for (size_t i = 0; i < reply->tree->n_node; i++)
			n += reply->tree->node[i]->domain == geteuid() &&
			     is_so(reply->tree->node[i]);
		tree.cursor = reply->tree->cursor;
	} while (tree.cursor);
	return n;
}

static bool is_in_file(const Coppice__TreeNode *node)
{
	return node->n_pages_backed > 0;
}

static bool awaits_disk(const Coppice__TreeNode *node)
{
	return node->n_pages_host > 0 && node->n_pages_backed == 0;
}

/* What host memory has no more room for before it is written is forgotten: on a slow disk only who
 * waits for it fills the journal. */
static void await_disk(struct client *c)
{
	for (int i = 0; i < DISK_TRIES && n_own_nodes(c, awaits_disk) > 0; i++)
		sleep_ms(5);
}

/* Ever new ones, beyond what the journal has room for. */
static int fill_journal(const struct harness *h, int said)
{
	struct client c = client_open(h);

	attack_is_on(said);
	for (unsigned n = 0; attack_goes_on(); n += SESSION_MODELS) {
		leave_models(h, n);
		await_disk(&c);
	}
	return 0;
}

static bool journal_gives_way(struct client *root)
{
	return client_status(root)->tier_journal_evicted > 0;
}

static void see_journal(const struct harness *h, struct client *root)
{
	const Coppice__StatusReply *status = client_status(root);

	assert_true(status->tier_journal_bytes <= status->tier_journal_max);
	assert_null(status->tier_error);
	leave_models(h, FIRST_OF_ROOT);
	for (int i = 0; i < WRITTEN_TRIES && n_own_nodes(root, is_in_file) == 0; i++)
		sleep_ms(5);
	assert_true(n_own_nodes(root, is_in_file) > 0);
}

static void models_that_fill_the_journal(void **state)
{
	assert_attack_withstood(state, &(struct attack){.life = fill_journal,
							.is_on = journal_gives_way,
							.beside = see_journal});
}

/* ---- open sequences ---- */

/* As long a path as it may have, in use, and a page of each of many models, which would take an
 * extent each. */
static int hold_open(const struct harness *h, int said)
{
	static struct stepper s;
	uint64_t seq;

	stepper_start(&s, h);
	while (stepper_append(&s, HOARD_CHUNK) == 0)
		continue;
	for (unsigned i = 0; i < SESSION_MODELS; i++)
		(void)compute_page(&s, open_model(&s.x.c, i), &seq);
	attack_is_on(said);
	while (attack_goes_on())
		(void)stepper_append(&s, HOARD_CHUNK);
	return 0;
}

static void see_room(const struct harness *h, struct client *root)
{
	(void)root;
	assert_newcomer_has_room(h);
}

static void open_sequences_where_domains_have_a_limit(void **state)
{
	assert_attack_withstood(state, &(struct attack){.life = hold_open, .beside = see_room});
}

/* ---- the pool, where the file says nothing of users ---- */

#define NEWCOMER_CHUNK 512u

/* In a page of a model of its own, and a path as others have. */
static int compute_some(const struct harness *h, int said)
{
	static struct stepper s;
	uint64_t seq;
	int r;

	(void)said;
	stepper_start(&s, h);
	r = stepper_append(&s, NEWCOMER_CHUNK);
	if (r == 0)
		r = compute_page(&s, open_model(&s.x.c, FIRST_OF_ROOT), &seq);
	if (r == 0 && client_status(&s.x.c)->own && client_status(&s.x.c)->domain_pool_bytes == 0)
		r = 1;
	stepper_end(&s);
	return r ? 1 : 0;
}

static void see_what_is_left(const struct harness *h, struct client *root)
{
	const Coppice__StatusReply *status = client_status(root);
	struct other newcomer;

	assert_true(status->domain_pool_bytes_max < status->pool_bytes);
	assert_true(status->pool_bytes_used >= status->domain_pool_bytes_max);
	newcomer = other_start(h, NEWCOMER, compute_some);
	other_join(&newcomer);
	assert_int_equal(compute_some(h, -1), 0);
}

static void open_sequences_leave_a_part_of_the_pool(void **state)
{
	assert_attack_withstood(state,
				&(struct attack){.life = hold_open, .beside = see_what_is_left});
}

/* Both at once, each as much as it gets; a third finds a part, and a fourth. */
static void see_what_two_leave(const struct harness *h, struct client *root)
{
	const Coppice__StatusReply *status = client_status(root);
	struct other newcomer;

	assert_true(status->reserved_pool_bytes > 0);
	assert_true(status->pool_bytes_used >= status->pool_bytes - status->reserved_pool_bytes);
	newcomer = other_start(h, NEWCOMER, compute_some);
	other_join(&newcomer);
	newcomer = other_start(h, NEWCOMER - 1, compute_some);
	other_join(&newcomer);
}

static void open_sequences_of_two_users_leave_a_part_to_a_third(void **state)
{
	assert_attack_withstood(state, &(struct attack){.life = hold_open,
							.n_users = 2,
							.beside = see_what_two_leave});
}

/* ---- all of them ---- */

static int pool_setup(void **state)
{
	static const char *const flags[] = {"--max-sessions=12", "--max-domain-sessions=6",
					    "--pool=16M", "--extent=2M"};

	return attack_setup_with(state, flags, sizeof(flags) / sizeof(*flags));
}

static int limit_setup(void **state)
{
	static const char *const flags[] = {"--pool=16M", "--extent=2M", "--domain-bytes=6M"};

	return attack_setup_with(state, flags, sizeof(flags) / sizeof(*flags));
}

static int usual_setup(void **state)
{
	static const char *const flags[] = {"--pool=64M", "--extent=2M"};

	return attack_setup_with(state, flags, sizeof(flags) / sizeof(*flags));
}

/* An extent is as large on each. On a machine of one GPU, too. */
static int devices_setup(void **state)
{
	static const char *const flags[] = {"--pool=128M", "--extent=2M", "--backend=cpu",
					    "--devices=cpu,cpu"};

	return attack_setup_with(state, flags, sizeof(flags) / sizeof(*flags));
}

static int file_setup(void **state)
{
	static const char *const flags[] = {"--pool=16M", "--extent=2M", "--host-tier=16M", "TIER",
					    "--file-tier-bytes=20M"};

	return attack_setup_with(state, flags, sizeof(flags) / sizeof(*flags));
}

int main(int argc, char **argv)
{
	const struct CMUnitTest pool[] = {
		cmocka_unit_test(pins_of_a_user_who_leaves),
		cmocka_unit_test(sessions_that_two_users_hoard),
	};
	const struct CMUnitTest limit[] = {
		cmocka_unit_test(open_sequences_where_domains_have_a_limit),
	};
	const struct CMUnitTest usual[] = {
		cmocka_unit_test(open_sequences_leave_a_part_of_the_pool),
		cmocka_unit_test(open_sequences_of_two_users_leave_a_part_to_a_third),
	};
	const struct CMUnitTest file[] = {
		cmocka_unit_test(models_that_fill_the_journal),
	};
	int r;

	if (harness_init(argc, argv) < 0)
		return 1;
	if (geteuid() != 0) {
		print_message("only root has several users\n");
		return 77;
	}
	r = cmocka_run_group_tests_name("hoards", pool, pool_setup, attack_teardown);
	r += cmocka_run_group_tests_name("hoards, domain_bytes", limit, limit_setup,
					 attack_teardown);
	r += cmocka_run_group_tests_name("hoards, as it comes", usual, usual_setup,
					 attack_teardown);
	r += cmocka_run_group_tests_name("hoards, several devices", usual, devices_setup,
					 attack_teardown);
	if (harness_has_uring())
		r += cmocka_run_group_tests_name("hoards, with a file", file, file_setup,
						 attack_teardown);
	return r;
}
