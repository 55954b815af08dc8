/*
 * shares_test.c - what one user can take of what all share: sessions, and the daemon's descriptors,
 * those that it has for its clients and those that are on their way to clients who do not read.
 *
 * The kernel counts the latter for the daemon's user, so each daemon here has a user of its own,
 * and few descriptors. Only root can run these tests.
 */
#include "control_harness.h"
#include "honest.h"
#include "other_user.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MAX_FDS 1024u
#define ATTACKER 65533
#define OTHER 65534
#define TRIES 1000 /* of 5 ms */

static struct harness *start(void **state, const char *const flags[HARNESS_FLAGS])
{
	struct harness *h = *state;

	memcpy(h->flags, flags, sizeof(h->flags));
	h->uid = 200000 + (uid_t)getpid() % 100000;
	h->max_fds = MAX_FDS;
	harness_start(h);
	return h;
}

/* ---- packets ---- */

static Coppice__LaneNew pollable = {PROTOBUF_C_MESSAGE_INIT(&coppice__lane_new__descriptor),
				    .has_notify = 1, .notify = 1};

static void ask_lane(struct client *c)
{
	client_send(c, &(Coppice__Request){PROTOBUF_C_MESSAGE_INIT(&coppice__request__descriptor),
					   .lane_new = &pollable});
}

/* ---- who leaves everything unread ---- */

/* Asks for pollable lanes and frees them until it is cut off, or refused. */
static bool flood(const struct harness *h, struct client *c)
{
	Coppice__LaneFree lane_free = COPPICE__LANE_FREE__INIT;
	Coppice__Request request = COPPICE__REQUEST__INIT;
	uint8_t packets[2][64];
	size_t bytes[2];
	int r = 0;

	*c = client_connect(h);
	const Coppice__Reply *reply = client_hello(c);

	if (!reply || reply->code < 0)
		return false;
	request.lane_new = &pollable;
	bytes[0] = coppice__request__pack(&request, packets[0]);
	request.lane_new = NULL;
	lane_free.lane = 1;
	request.lane_free = &lane_free;
	bytes[1] = coppice__request__pack(&request, packets[1]);
	for (int i = 0; i < 100000 && r != -EPIPE && r != -ECONNRESET; i++) {
		r = channel_send(c->fd, packets[i % 2], bytes[i % 2], NULL, MSG_DONTWAIT);
		if (r == -EAGAIN)
			sleep_ms(1);
	}
	return true;
}

static int attack(const struct harness *h, int said)
{
	static struct client clients[60];
	unsigned n = 0;

	while (n < 60 && flood(h, &clients[n]))
		n++;
	return n ? other_stay(said, n) : 1;
}

/* All the sessions that it gets, all of their lanes, and reads everything. */
static int hoard(const struct harness *h, int said)
{
	static struct client clients[60];
	const Coppice__Reply *reply;
	unsigned n = 0;

	for (; n < 60; n++) {
		clients[n] = client_connect(h);
		reply = client_hello(&clients[n]);
		if (!reply || reply->code < 0)
			break;
		do {
			ask_lane(&clients[n]);
			reply = client_receive(&clients[n]);
		} while (reply && reply->code == 0);
	}
	return n ? other_stay(said, n) : 1;
}

/* A session, and a lane with a descriptor; 0 if all of it could be had. */
static int live_honestly(const struct harness *h, int said)
{
	struct client c = client_connect(h);
	const Coppice__Reply *reply = client_hello(&c);

	(void)said;
	if (!reply || reply->code != 0 || c.n_fds != 2)
		return 1;
	ask_lane(&c);
	reply = client_receive(&c);
	if (!reply || reply->code != 0 || c.n_fds != 2)
		return 2;
	client_close(&c);
	return 0;
}

static void assert_lives(const struct harness *h, uid_t uid)
{
	struct other other = other_start(h, uid, live_honestly);

	other_join(&other);
}

static void descriptors_that_a_user_leaves_unread_lock_nobody_out(void **state)
{
	struct harness *h =
		start(state, (const char *const[HARNESS_FLAGS]){"--max-sessions=64",
								"--max-domain-sessions=40"});
	struct client watch = client_open(h);
	unsigned n_fds = process_descriptors(h->pid);
	struct other attacker = other_start(h, ATTACKER, attack);

	other_ready(&attacker);
	assert_lives(h, OTHER);
	assert_lives(h, 0);
	assert_true(client_status(&watch)->n_unread_fds > 0);
	assert_true(client_status(&watch)->n_unread_fds < MAX_FDS / 2);
	other_kill(&attacker);
	for (int i = 0; i < TRIES && process_descriptors(h->pid) > n_fds; i++)
		sleep_ms(5);
	assert_true(process_descriptors(h->pid) <= n_fds);
	assert_int_equal(client_status(&watch)->n_unread_fds, 0);
	client_close(&watch);
}

static void descriptors_that_a_user_has_lock_nobody_out(void **state)
{
	struct harness *h =
		start(state, (const char *const[HARNESS_FLAGS]){"--max-sessions=64",
								"--max-domain-sessions=40",
								"--max-lanes=64"});
	struct other attacker = other_start(h, ATTACKER, hoard);

	other_ready(&attacker);
	assert_lives(h, OTHER);
	assert_lives(h, 0);
	other_kill(&attacker);
}

/* ---- sessions ---- */

/* All the sessions that it gets, and then connections that say nothing. */
static int crowd(const struct harness *h, int said)
{
	struct client c;
	const Coppice__Reply *reply;
	unsigned n = 0;

	for (;; n++) {
		c = client_connect(h);
		reply = client_hello(&c);
		if (!reply || reply->code < 0)
			break;
	}
	for (int i = 0; i < 60; i++)
		client_connect(h);
	return other_stay(said, n);
}

static void a_user_gets_no_more_sessions_than_are_left_to_others(void **state)
{
	static const unsigned gets[] = {4, 2, 1, 1}; /* of 8 */
	struct harness *h = start(state, (const char *const[HARNESS_FLAGS]){NULL});
	struct other others[4];

	for (unsigned i = 0; i < 4; i++) {
		others[i] = other_start(h, ATTACKER - i, crowd);
		assert_int_equal(other_ready(&others[i]), gets[i]);
	}
	for (unsigned i = 0; i < 4; i++)
		other_kill(&others[i]);
}

#define CONNECTIONS 40u
#define GETS_CONNECTIONS (4u + 8u) /* max_domain_sessions, and some to be refused on */

/* Those that the daemon has not hung up. */
static unsigned n_open(const struct client *clients)
{
	unsigned n = 0;

	for (unsigned i = 0; i < CONNECTIONS; i++) {
		struct pollfd fd = {.fd = clients[i].fd};

		n += poll(&fd, 1, 0) == 0;
	}
	return n;
}

/* Says nothing on any. */
static int connect_often(const struct harness *h, int said)
{
	static struct client clients[CONNECTIONS];
	unsigned n = CONNECTIONS;

	for (unsigned i = 0; i < CONNECTIONS; i++)
		clients[i] = client_connect(h);
	for (unsigned i = 0; i < TRIES && n > GETS_CONNECTIONS; i++, sleep_ms(5))
		n = n_open(clients);
	return other_stay(said, n);
}

static void a_user_gets_no_more_connections_than_sessions_and_some(void **state)
{
	struct harness *h =
		start(state, (const char *const[HARNESS_FLAGS]){"--max-sessions=64",
								"--max-domain-sessions=4", NULL});
	struct other other = other_start(h, ATTACKER, connect_often);

	assert_int_equal(other_ready(&other), GETS_CONNECTIONS);
	other_kill(&other);
}

static void some_sessions_are_for_root_alone(void **state)
{
	struct harness *h =
		start(state, (const char *const[HARNESS_FLAGS]){"--max-sessions=4",
								"--max-domain-sessions=4",
								"--reserved-sessions=2"});
	struct other attacker = other_start(h, ATTACKER, crowd);
	struct client clients[3];

	assert_int_equal(other_ready(&attacker), 4);
	for (int i = 0; i < 3; i++) {
		clients[i] = client_connect(h);
		const Coppice__Reply *reply = client_hello(&clients[i]);

		assert_non_null(reply);
		assert_int_equal(reply->code, i < 2 ? 0 : -EUSERS);
	}
	for (int i = 0; i < 3; i++)
		client_close(&clients[i]);
	other_kill(&attacker);
}

/* ---- sessions that have ended ---- */

/* As many sessions as it gets, each with an answer that it does not read, all ended. Then it gets
 * no more, until it has read. */
static int end_unread(const struct harness *h, int said)
{
	struct client clients[8], one_more;
	const Coppice__Reply *reply;
	int n = 0;

	(void)said;
	for (; n < 8; n++) {
		clients[n] = client_connect(h);
		reply = client_hello(&clients[n]);
		if (!reply || reply->code < 0)
			break;
		ask_lane(&clients[n]);
		poll(&(struct pollfd){.fd = clients[n].fd, .events = POLLIN}, 1, -1);
		shutdown(clients[n].fd, SHUT_WR);
	}
	if (n == 0 || n == 8)
		return 1;
	sleep_ms(1500); /* longer than the daemon takes between two looks */
	one_more = client_connect(h);
	reply = client_hello(&one_more);
	if (!reply || reply->code != -EUSERS)
		return 2;
	for (int i = 0; i < n; i++) {
		if (!client_receive(&clients[i]) || !client_is_cut_off(&clients[i]))
			return 3;
	}
	for (int i = 0; i < TRIES; i++, sleep_ms(5)) {
		one_more = client_connect(h);
		reply = client_hello(&one_more);
		if (reply && reply->code == 0)
			return 0;
	}
	return 4;
}

static void an_ended_session_counts_until_its_answers_are_read(void **state)
{
	struct harness *h = start(state, (const char *const[HARNESS_FLAGS]){NULL});
	struct other other = other_start(h, ATTACKER, end_unread);

	other_join(&other);
}

/* ---- one session ---- */

static void a_session_that_does_not_read_is_refused_descriptors_until_it_does(void **state)
{
	struct harness *h = start(state, (const char *const[HARNESS_FLAGS]){"--max-unread-fds=4",
									    "--max-lanes=4"});
	struct client c = client_open(h);
	unsigned n_refused = 0;

	for (int i = 0; i < 3; i++)
		ask_lane(&c);
	sleep_ms(200);
	for (int i = 0; i < 3; i++) {
		const Coppice__Reply *reply = client_receive(&c);

		n_refused += reply->code < 0;
		if (reply->code < 0)
			assert_refused(reply, -EBUSY, NULL, "max_unread_fds");
	}
	assert_int_equal(n_refused, 1);
	for (int i = 0; i < 2; i++) {
		ask_lane(&c);
		assert_int_equal(client_receive(&c)->code, 0);
		assert_int_equal(c.n_fds, 2);
	}
	client_close(&c);
}

/* A session may make and free for as long as it lives. */
static void descriptors_of_what_was_freed_count_no_more(void **state)
{
	struct harness *h = start(state, (const char *const[HARNESS_FLAGS]){NULL});
	struct client c = client_open(h);
	Coppice__ArenaNew arena_new = COPPICE__ARENA_NEW__INIT;
	uint64_t before = client_status(&c)->n_fds;

	arena_new.bytes = 2 << 20;
	for (uint32_t i = 0; i < 3; i++) {
		Coppice__LaneFree lane_free = COPPICE__LANE_FREE__INIT;
		Coppice__ArenaFree arena_free = COPPICE__ARENA_FREE__INIT;

		lane_free.lane = client_verb(&c, lane_new, &pollable)->lane->lane;
		arena_free.arena = client_verb(&c, arena_new, &arena_new)->arena->arena;
		assert_true(client_status(&c)->n_fds > before);
		assert_int_equal(client_verb(&c, lane_free, &lane_free)->code, 0);
		assert_int_equal(client_verb(&c, arena_free, &arena_free)->code, 0);
		assert_int_equal(client_status(&c)->n_fds, before);
	}
	client_close(&c);
}

/* ---- where the kernel says no ---- */

/* So many descriptors under way of the daemon's user that it can send none itself. */
static int fill(const struct harness *h, int said)
{
	const int zero[CHANNEL_MAX_FDS] = {0};
	const struct channel_fds fds = {zero, CHANNEL_MAX_FDS};
	int pair[2];

	(void)h;
	for (unsigned n = 0; n <= MAX_FDS;) {
		if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
			return 1;
		while (n <= MAX_FDS && channel_send(pair[0], "", 1, &fds, MSG_DONTWAIT) == 0)
			n += CHANNEL_MAX_FDS;
	}
	return other_stay(said, 0);
}

static void too_many_under_way_is_an_error_to_who_asks(void **state)
{
	struct harness *h = start(state, (const char *const[HARNESS_FLAGS]){NULL});
	struct client c = client_open(h), late = client_connect(h);
	struct other filler = other_start(h, h->uid, fill);
	Coppice__ArenaNew arena_new = COPPICE__ARENA_NEW__INIT;

	other_ready(&filler);
	arena_new.bytes = 8 << 20; /* all that a session may have */
	assert_refused(client_verb(&c, lane_new, &pollable), -ETOOMANYREFS, NULL, "descriptors");
	assert_refused(client_verb(&c, arena_new, &arena_new), -ETOOMANYREFS, NULL, "descriptors");
	assert_refused(client_hello(&late), -ETOOMANYREFS, NULL, "descriptors");
	assert_true(client_is_cut_off(&late));
	client_close(&late);
	assert_int_equal(client_status(&c)->n_lanes, 0);
	other_kill(&filler);
	for (int i = 0; i < 2; i++) /* as many lanes as it may have: none was lost */
		assert_int_equal(client_verb(&c, lane_new, &pollable)->code, 0);
	assert_int_equal(client_verb(&c, arena_new, &arena_new)->code, 0);
	client_close(&c);
}

/* Of a device arena it is known only when the memory is there: that goes again. */
static void device_memory_whose_descriptor_cannot_go_is_free_again(void **state)
{
	struct harness *h =
		start(state, (const char *const[HARNESS_FLAGS]){"--backend=cuda",
								"--device-arena-bytes=2M",
								"--max-arenas=1"});
	struct client c = client_open(h);
	struct other filler = other_start(h, h->uid, fill);
	Coppice__ArenaNew m = COPPICE__ARENA_NEW__INIT;

	other_ready(&filler);
	m.kind = 1;
	m.bytes = 2 << 20;
	for (int i = 0; i < 3; i++)
		assert_refused(client_verb(&c, arena_new, &m), -ETOOMANYREFS, NULL, "descriptors");
	assert_int_equal(client_status(&c)->device_arena_bytes, 0);
	other_kill(&filler);
	assert_int_equal(client_verb(&c, arena_new, &m)->code, 0);
	assert_int_equal(c.n_fds, 1);
	client_close(&c);
}

#define CASES(loop) \
	HARNESS_BARE(loop, descriptors_that_a_user_leaves_unread_lock_nobody_out), \
		HARNESS_BARE(loop, descriptors_that_a_user_has_lock_nobody_out), \
		HARNESS_BARE(loop, a_user_gets_no_more_sessions_than_are_left_to_others), \
		HARNESS_BARE(loop, a_user_gets_no_more_connections_than_sessions_and_some), \
		HARNESS_BARE(loop, some_sessions_are_for_root_alone), \
		HARNESS_BARE(loop, an_ended_session_counts_until_its_answers_are_read), \
		HARNESS_BARE(loop, \
			     a_session_that_does_not_read_is_refused_descriptors_until_it_does), \
		HARNESS_BARE(loop, descriptors_of_what_was_freed_count_no_more), \
		HARNESS_BARE(loop, too_many_under_way_is_an_error_to_who_asks), \
		HARNESS_BARE(loop, device_memory_whose_descriptor_cannot_go_is_free_again)

int main(int argc, char **argv)
{
	const struct CMUnitTest on_uring[] = {CASES(uring)}, on_epoll[] = {CASES(epoll)};
	int failed = harness_init(argc, argv);

	if (failed < 0)
		return 2;
	if (getuid() != 0)
		return 77;
	if (harness_has_uring())
		failed += cmocka_run_group_tests(on_uring, NULL, NULL);
	return failed + cmocka_run_group_tests(on_epoll, NULL, NULL);
}
