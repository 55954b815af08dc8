/*
 * foreign_test.c - what one user is told of another, and what two of them have in common. Only root
 * can run these tests.
 */
#include "control_harness.h"
#include "other_user.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#define OTHER 65534

static Coppice__ModelOpen model_of(const char *name)
{
	Coppice__ModelOpen m = COPPICE__MODEL_OPEN__INIT;

	m.name = (char *)name;
	m.n_layers = 2;
	m.n_q_heads = 4;
	m.n_kv_heads = 2;
	m.head_dim = 64;
	m.dtype = 2; /* on every backend */
	return m;
}

static bool opens(struct client *c, const char *name)
{
	Coppice__ModelOpen m = model_of(name);

	return client_verb(c, model_open, &m)->code == 0;
}

/* Sessions of the model in what this client is told; 0: it is not told of it. */
static uint32_t told_of(struct client *c, const char *name)
{
	Coppice__Models m = COPPICE__MODELS__INIT;
	const Coppice__ModelsReply *models = client_verb(c, models, &m)->models;

	for (size_t i = 0; i < models->n_model; i++) {
		if (strcmp(models->model[i]->name, name) == 0)
			return models->model[i]->n_sessions;
	}
	return 0;
}

static const Coppice__StatusReply *status_of(struct client *c)
{
	Coppice__Status m = COPPICE__STATUS__INIT;

	return client_verb(c, status, &m)->status;
}

/* ---- models ---- */

static int look_at_models(const struct harness *h, int said)
{
	struct client c = client_open(h);

	if (!opens(&c, "theirs") || !opens(&c, "common"))
		return 1;
	if (told_of(&c, "ours") != 0)
		return 2;
	if (told_of(&c, "theirs") != 1 || told_of(&c, "common") != 1)
		return 3;
	return other_stay(said, 0);
}

#define SESSIONS 5u
#define MODELS 16u /* of each, one of them common */
#define PAGES_MAX 8u

/* Opens them, and counts what is told: models, and sessions of the common one. */
static bool is_told_all(struct client *c)
{
	Coppice__Models m = COPPICE__MODELS__INIT;
	unsigned n = 0, n_common = 0;

	for (unsigned i = 0; i < PAGES_MAX && (i == 0 || m.cursor); i++) {
		const Coppice__ModelsReply *models = client_verb(c, models, &m)->models;

		n += (unsigned)models->n_model;
		for (size_t k = 0; k < models->n_model; k++)
			if (strcmp(models->model[k]->name, "common") == 0)
				n_common += models->model[k]->n_sessions;
		m.has_cursor = true;
		m.cursor = models->cursor;
	}
	return n == SESSIONS * (MODELS - 1) + 1 && n_common == SESSIONS && m.cursor == 0;
}

static int open_many_models(const struct harness *h, int said)
{
	struct client c[SESSIONS];
	char name[32];

	for (unsigned i = 0; i < SESSIONS; i++) {
		c[i] = client_open(h);
		for (unsigned k = 1; k < MODELS; k++) {
			snprintf(name, sizeof(name), "theirs %u %u", i, k);
			if (!opens(&c[i], name))
				return 1;
		}
		if (!opens(&c[i], "common"))
			return 2;
	}
	return is_told_all(&c[2]) ? other_stay(said, 0) : 3;
}

static void models_of_many_sessions_are_told_once(void **state)
{
	struct harness *h = *state;

	h->flags[0] = "--max-sessions=32"; /* of which several are one user's */
	harness_start(h);
	struct client c = client_open(h);

	assert_true(opens(&c, "ours"));
	assert_true(opens(&c, "common"));
	struct other other = other_start(h, OTHER, open_many_models);

	other_ready(&other);
	other_kill(&other);
	client_close(&c);
}

static void models_of_others_are_not_told(void **state)
{
	struct client c = client_open(*state);

	assert_true(opens(&c, "ours"));
	assert_true(opens(&c, "common"));
	struct other other = other_start(*state, OTHER, look_at_models);

	other_ready(&other);
	assert_int_equal(told_of(&c, "theirs"), 1);
	assert_int_equal(told_of(&c, "common"), 2);
	other_kill(&other);
	client_close(&c);
}

/* ---- counters ---- */

static int look_at_counters(const struct harness *h, int said)
{
	struct client c = client_open(h);
	const Coppice__StatusReply *s;

	(void)said;
	client_model(&c);
	client_lane(&c);
	s = status_of(&c);
	if (!s->own || s->n_sessions != 1 || s->n_lanes != 1 || s->n_seqs != 0)
		return 1;
	if (s->n_nodes || s->n_claims || s->n_pages || s->page_bytes || s->batches ||
	    s->device_arena_bytes || s->prompt_bytes || s->n_tier)
		return 2;
	if (s->has_pass_segments || s->has_passes_cut_in || s->has_pass_slot_waits ||
	    s->has_passes_under_way || s->has_turn_waits || s->has_turn_wait_ns)
		return 4;
	if (s->n_fds > 16 || s->pool_bytes == 0 || s->max_fds == 0)
		return 3;
	if (s->batch_budget_ms == 0 || s->max_token_ms == 0 || s->max_pin_ms == 0)
		return 5;
	return 0;
}

static void counters_of_others_are_not_told(void **state)
{
	struct client clients[4];
	struct other other;

	for (int i = 0; i < 4; i++)
		clients[i] = client_open(*state);
	client_arena(&clients[0], 1 << 20);
	client_model(&clients[0]);
	client_lane(&clients[0]);
	assert_int_equal(client_seq(&clients[0], 1, 1, 1, 40)->code, 0);
	assert_false(status_of(&clients[1])->own);
	assert_int_equal(status_of(&clients[1])->n_seqs, 1);
	assert_true(status_of(&clients[1])->prompt_bytes > 0);
	other = other_start(*state, OTHER, look_at_counters);
	other_join(&other);
	for (int i = 0; i < 4; i++)
		client_close(&clients[i]);
}

/* ---- the board ---- */

static int board_of(struct client *c)
{
	const Coppice__Reply *reply = client_hello(c);

	return reply && reply->code == 0 ? dup(c->fds[0]) : -1;
}

static bool is_shared_by_locks(int one, int two)
{
	struct flock read = {.l_type = F_RDLCK, .l_whence = SEEK_SET, .l_len = 1};
	struct flock told = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 4096, .l_len = 1};

	if (flock(one, LOCK_SH | LOCK_NB) == 0 || flock(two, LOCK_EX | LOCK_NB) == 0)
		return true;
	if (fcntl(one, F_SETLK, &read) == 0 || fcntl(one, F_OFD_SETLK, &read) == 0)
		return true;
	/* Whatever is asked, the daemon's lock is told. */
	return fcntl(two, F_GETLK, &told) == 0 && (told.l_type != F_WRLCK || told.l_len != 0);
}

static int talk_by_the_board(const struct harness *h, int said)
{
	struct client clients[2] = {client_connect(h), client_connect(h)};
	int one = board_of(&clients[0]), two = board_of(&clients[1]);
	char path[64];

	(void)said;
	if (one < 0 || two < 0)
		return 1;
	if (lseek(one, 100, SEEK_SET) != 100 || lseek(two, 0, SEEK_CUR) != 0)
		return 2;
	if (fcntl(one, F_SETFL, O_NONBLOCK) < 0 || fcntl(two, F_GETFL) & O_NONBLOCK)
		return 3;
	if ((fcntl(one, F_GETFL) & O_ACCMODE) != O_RDONLY)
		return 4;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", one);
	if (open(path, O_RDONLY | O_CLOEXEC) >= 0 || errno != EACCES)
		return 5;
	if (fsetxattr(one, "user.word", "x", 1, 0) == 0 || fchmod(one, 0777) == 0 ||
	    futimens(one, NULL) == 0)
		return 6;
	return is_shared_by_locks(one, two) ? 7 : 0;
}

static void the_board_is_no_way_to_talk(void **state)
{
	struct other other = other_start(*state, OTHER, talk_by_the_board);

	other_join(&other);
}

#define CASES(loop) \
	HARNESS_CASE(loop, models_of_others_are_not_told), \
		HARNESS_BARE(loop, models_of_many_sessions_are_told_once), \
		HARNESS_CASE(loop, counters_of_others_are_not_told), \
		HARNESS_CASE(loop, the_board_is_no_way_to_talk)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {CASES(epoll)};

	if (harness_init(argc, argv) < 0)
		return 2;
	if (getuid() != 0)
		return 77;
	return cmocka_run_group_tests_name("foreign", tests, NULL, NULL);
}
