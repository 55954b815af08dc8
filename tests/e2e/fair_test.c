/*
 * fair_test.c - who has how much of the backend's time where not all fit a batch: users of one
 * session and of many, and the sessions of one user, real processes of real users.
 *
 * Time is what the daemon has accounted each session (backend_ns of sessions), which does not
 * depend on how busy the machine is with other things; and what has to be done is there, as long as
 * those who ask for it run.
 */
#include "bench/busy.h"
#include "control_harness.h"
#include "element.h"
#include "other_user.h"

#include <string.h>
#include <unistd.h>

#define USER_OF_ONE 65533
#define USER_OF_MANY 65534
#define MANY 64u
#define FAIR 0.45
#define WATCHED_NS UINT64_C(800000000)
#define TRIES 10000 /* of 5 ms */
#define LOOKS 5

struct figures {
	uint32_t n;
	uint64_t had_ns, least_ns; /* all of a user's sessions, and one */
};

/* ---- who is busy ---- */

/* 0.1 to 0.3 ms a step, so that few fill a batch: rows of a prompt, which take as long whoever else
 * attends the same path. So that is one for all sessions of a user, and made once. */
static const struct busy of_cpu = {.n_tokens = 1024,
				   .one_path = true,
				   .q_heads = 4,
				   .kv_heads = 2,
				   .dim = 128,
				   .rows = 8,
				   .ahead = 8};
static const struct busy of_gpu = {.n_tokens = 16384,
				   .one_path = true,
				   .q_heads = 64,
				   .kv_heads = 1,
				   .dim = 128,
				   .rows = 128,
				   .ahead = 8};

/* 64 such steps and one of another user do not fit the default budget as they are modelled, of two
 * threads; a machine that is slower than that, as is learned, has less room still. */
static const struct busy of_default_budget = {.n_tokens = 4096,
					      .one_path = true,
					      .q_heads = 4,
					      .kv_heads = 2,
					      .dim = 128,
					      .rows = 24,
					      .ahead = 8};

static bool by_default; /* the test's: children know it */

static int be_busy(const struct harness *h, int said, uint32_t n_sessions)
{
	struct busy busy = by_default ? of_default_budget : test_on_gpu() ? of_gpu : of_cpu;

	busy.n_sessions = n_sessions;
	if (by_default && n_sessions > 1)
		busy.ahead = 1;
	return busy_run(&busy, h->socket, said) < 0;
}

static int be_one(const struct harness *h, int said)
{
	return be_busy(h, said, 1);
}

static int be_many(const struct harness *h, int said)
{
	return be_busy(h, said, MANY);
}

/* ---- what they have had ---- */

struct had {
	uint32_t n;
	struct {
		uint64_t id, ns;
		uint32_t uid;
	} sessions[MANY + 2];
};

static void add_page(struct had *had, const Coppice__SessionsReply *page)
{
	for (size_t i = 0; i < page->n_session; i++) {
		const Coppice__Session *s = page->session[i];

		assert_true(had->n < MANY + 2);
		had->sessions[had->n].id = s->id;
		had->sessions[had->n].uid = s->uid;
		had->sessions[had->n++].ns = s->backend_ns;
	}
}

static struct had had_by_now(struct client *root)
{
	Coppice__Sessions m = COPPICE__SESSIONS__INIT;
	struct had had = {0};

	m.has_cursor = true;
	do {
		const Coppice__Reply *reply = client_verb(root, sessions, &m);

		assert_int_equal(reply->code, 0);
		add_page(&had, reply->sessions);
		m.cursor = reply->sessions->cursor;
	} while (m.cursor);
	return had;
}

/* Between two looks, at which the same sessions were there. */
static struct figures of_user(const struct had *from, const struct had *to, uid_t uid)
{
	struct figures f = {.least_ns = UINT64_MAX};

	assert_int_equal(from->n, to->n);
	for (uint32_t i = 0; i < to->n; i++) {
		uint64_t ns = to->sessions[i].ns - from->sessions[i].ns;

		assert_int_equal(from->sessions[i].id, to->sessions[i].id);
		if (to->sessions[i].uid != uid)
			continue;
		f.n++;
		f.had_ns += ns;
		f.least_ns = ns < f.least_ns ? ns : f.least_ns;
	}
	return f;
}

static uint64_t sum(const struct had *had)
{
	uint64_t ns = 0;

	for (uint32_t i = 0; i < had->n; i++)
		ns += had->sessions[i].ns;
	return ns;
}

/* From now on. */
static void watch(struct client *root, struct had *ret_from, struct had *ret_to)
{
	*ret_from = had_by_now(root);
	for (int i = 0; i < TRIES; i++, sleep_ms(5)) {
		*ret_to = had_by_now(root);
		if (sum(ret_to) - sum(ret_from) >= (by_default ? WATCHED_NS / 4 : WATCHED_NS))
			return;
	}
	fail_msg("the backend has done little for %d s", TRIES / 200);
}

/* ---- tests ---- */

static struct harness *start(void **state, const char *flag)
{
	const char *const flags[] = {"--pool=160M",	      "--extent=2M",
				     "--max-sessions=160",    "--max-domain-sessions=70",
				     "--max-arena-bytes=32M", flag};
	struct harness *h = *state;

	memcpy(h->flags, flags, sizeof(flags));
	harness_start(h);
	return h;
}

static bool is_fair(struct client *root)
{
	struct figures a, b;
	struct had from, to;

	watch(root, &from, &to);
	a = of_user(&from, &to, USER_OF_ONE);
	b = of_user(&from, &to, USER_OF_MANY);
	print_message("one of 1 has %.3f of the time, the least of %u has %.2f of a part\n",
		      (double)a.had_ns / (double)(a.had_ns + b.had_ns), b.n,
		      (double)b.least_ns * b.n / (double)b.had_ns);
	assert_int_equal(a.n, 1);
	assert_int_equal(b.n, MANY);
	return (double)a.had_ns >= FAIR * (double)(a.had_ns + b.had_ns) &&
	       (by_default || (double)b.least_ns * MANY >= 2 * FAIR * (double)b.had_ns);
}

/* Most of some looks show it, not all: while a machine runs others and not the user of one session,
 * he asks for less than he may have. */
static void one_has_as_much_as_many(const struct harness *h)
{
	struct client root = client_open(h);
	struct other one = other_start(h, USER_OF_ONE, be_one);
	struct other many = other_start(h, USER_OF_MANY, be_many);
	int n_fair = 0, n_unfair = 0;

	(void)other_ready(&one);
	(void)other_ready(&many);
	print_message("1 and %u sessions are busy\n", MANY);
	while (n_fair <= LOOKS / 2 && n_unfair <= LOOKS / 2)
		(*(is_fair(&root) ? &n_fair : &n_unfair))++;
	assert_true(n_fair > n_unfair);
	other_kill(&one);
	other_kill(&many);
	client_close(&root);
}

static void a_user_of_one_session_has_as_much_as_one_of_many(void **state)
{
	by_default = false;
	one_has_as_much_as_many(start(state, "--batch-budget-ms=1"));
}

/* What a step takes is modelled by how many threads compute. Of the many each has a handful of
 * steps, which says nothing of one of them. */
static void the_same_with_the_default_budget(void **state)
{
	if (test_on_gpu())
		skip(); /* no step of so few rows takes it as long */
	by_default = true;
	one_has_as_much_as_many(start(state, "--threads=2"));
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		HARNESS_BARE(epoll, a_user_of_one_session_has_as_much_as_one_of_many),
		HARNESS_BARE(epoll, the_same_with_the_default_budget),
	};

	if (harness_init(argc, argv) < 0)
		return 1;
	if (geteuid() != 0) {
		print_message("only root has several users\n");
		return 77;
	}
	return cmocka_run_group_tests_name("fairness", tests, NULL, NULL);
}
