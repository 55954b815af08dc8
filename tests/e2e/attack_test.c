/*
 * attack_test.c - a matrix: what one user can do to hold up another, an attack a test. Each process
 * has as many sessions as one user may have, and does it as fast as it is answered.
 */
#include "attack_fixture.h"
#include "raw_lane.h"

#include "proto/arith.h"
#include "proto/ring.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define SESSIONS 5
#define OPENERS 64
#define OPENERS_PROMPT_MIB 256
#define PROMPT_TOKENS (1u << 20)
#define ARENA_BYTES (60u << 20)
#define BURST 32
#define CONNECT_NS UINT64_C(10000000000)

static void send_all(struct client *c, Coppice__Request *request, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		request->id = 0;
		client_send(c, request);
	}
}

static void receive_all(struct client *c, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		client_receive(c);
}

/* ---- memory ---- */

static void session_with_prompt(const struct harness *h, struct client *c, uint32_t n_tokens)
{
	*c = client_open(h);
	client_model(c);
	client_arena(c, n_tokens * sizeof(uint32_t));
	client_lane(c);
	for (uint32_t i = 0; i < n_tokens; i++)
		((uint32_t *)c->arena)[i] = i + 1;
}

static int open_prompts(const struct harness *h, int said)
{
	static struct client c[OPENERS];
	Coppice__Request request = COPPICE__REQUEST__INIT;
	Coppice__SeqOpen m = COPPICE__SEQ_OPEN__INIT;

	for (int i = 0; i < OPENERS; i++)
		session_with_prompt(h, &c[i], PROMPT_TOKENS);
	m.model = m.lane = m.arena = 1;
	m.n_tokens = PROMPT_TOKENS;
	m.has_salt = true;
	request.seq_open = &m;
	attack_is_on(said);
	for (; attack_goes_on(); m.salt++) {
		for (int i = 0; i < OPENERS; i++)
			send_all(&c[i], &request, BURST);
		for (int i = 0; i < OPENERS; i++)
			receive_all(&c[i], BURST);
	}
	return 0;
}

static void prompts_that_nobody_computes(void **state)
{
	assert_attack_withstood(state, &(struct attack){.life = open_prompts,
							.prompt_mib = OPENERS_PROMPT_MIB});
}

static void arena_free(struct client *c, uint32_t arena)
{
	Coppice__ArenaFree m = COPPICE__ARENA_FREE__INIT;

	m.arena = arena;
	assert_int_equal(client_verb(c, arena_free, &m)->code, 0);
	munmap(c->arena, c->arena_bytes);
}

static int free_arenas(const struct harness *h, int said)
{
	static struct client c;
	int fd;

	c = client_open(h);
	attack_is_on(said);
	while (attack_goes_on()) {
		uint32_t arena = client_open_arena(&c, ARENA_BYTES, &fd);

		close(fd);
		assert_int_equal(client_seal(&c, arena)->code, 0);
		arena_free(&c, arena);
	}
	return 0;
}

static void arenas_that_come_and_go(void **state)
{
	assert_withstood(state, attack_neighbour, free_arenas);
}

static int end_with_arenas(const struct harness *h, int said)
{
	attack_is_on(said);
	while (attack_goes_on()) {
		struct client c = client_open(h);

		client_arena(&c, ARENA_BYTES);
		client_close(&c);
	}
	return 0;
}

static void sessions_that_end_with_arenas(void **state)
{
	assert_withstood(state, attack_neighbour, end_with_arenas);
}

/* In one that is in use, which is refused, and in one that is about to be. */
static int punch_holes(const struct harness *h, int said)
{
	static struct raw x;
	uint64_t seq;
	int fd;

	x = raw_open(h);
	seq = raw_seq(&x);
	attack_is_on(said);
	while (attack_goes_on()) {
		struct client c = client_open(h);
		uint32_t arena = client_open_arena(&c, ARENA_BYTES, &fd);
		Coppice__Request request = COPPICE__REQUEST__INIT;
		Coppice__ArenaSeal m = COPPICE__ARENA_SEAL__INIT;

		m.arena = arena;
		request.arena_seal = &m;
		client_send(&c, &request);
		for (int i = 0; i < 40; i++) {
			raw_step(&x, seq);
			fallocate(x.arena_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
				  RAW_ARENA_BYTES);
			fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, ARENA_BYTES);
			raw_wait(&x);
		}
		close(fd);
		client_close(&c);
	}
	return 0;
}

static void holes_in_arenas(void **state)
{
	assert_withstood(state, attack_neighbour, punch_holes);
}

/* Bodies in whatever it has, sealed or not: words that read 0 would end their lane. Where all is
 * refused it takes no more of the machine than others' attacks do. */
static void *punch_all(void *unused)
{
	off_t at = (off_t)align_to(offsetof(struct abi_lane, bodies), 4096);

	for (;;) {
		unsigned n = 0;

		for (int fd = 3; fd < 40; fd++)
			n += fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at,
				       ABI_BODY_ARENA_BYTES) == 0;
		if (n == 0)
			sleep_ms(1);
	}
	return unused;
}

/* The daemon copies it page by page before it looks whose it is. */
static void submit_long_body(struct raw *x)
{
	uint64_t ticket = ++x->ticket;

	x->lane->entries[ring_slot(ticket)] =
		(struct abi_entry){.ticket = ticket,
				   .kind = ABI_ACCEPT,
				   .count = ABI_BODY_MAX_BYTES / sizeof(uint32_t),
				   .body = 8192,
				   .body_bytes = ABI_BODY_MAX_BYTES};
	ring_publish(x->lane, ticket);
	ring_doorbell(x->doorbell_fd);
}

static int punch_lanes(const struct harness *h, int said)
{
	static pthread_t punchers[4];
	static struct raw x[SESSIONS];

	for (int i = 0; i < SESSIONS; i++)
		x[i] = raw_open(h);
	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&punchers[i], NULL, punch_all, NULL), 0);
	attack_is_on(said);
	for (int i = 0; attack_goes_on(); i = (i + 1) % SESSIONS) {
		for (int j = 0; j < BURST && x[i].ticket - ring_done(x[i].lane) < 200; j++)
			submit_long_body(&x[i]);
	}
	return 0;
}

static void holes_in_lanes(void **state)
{
	assert_withstood(state, attack_neighbour, punch_lanes);
}

/* ---- entries ---- */

static int flood_entries(const struct harness *h, int said, uint32_t kind)
{
	static struct raw x[SESSIONS];
	uint64_t seqs[SESSIONS];

	for (int i = 0; i < SESSIONS; i++) {
		x[i] = raw_open(h);
		seqs[i] = raw_seq(&x[i]);
	}
	attack_is_on(said);
	for (int i = 0; attack_goes_on(); i = (i + 1) % SESSIONS) {
		struct abi_entry entry = {.kind = kind, .seq = kind == ABI_NOP ? 0 : seqs[i]};

		for (uint32_t n = 0; n < ABI_LANE_SLOTS; n++) {
			if (x[i].ticket - ring_done(x[i].lane) < ABI_LANE_SLOTS)
				raw_submit(&x[i], entry, NULL, 0);
		}
	}
	return 0;
}

static int flood_nops(const struct harness *h, int said)
{
	return flood_entries(h, said, ABI_NOP);
}

/* Up to max_seqs; then they are refused. */
static int flood_forks(const struct harness *h, int said)
{
	return flood_entries(h, said, ABI_FORK);
}

static void floods_of_nops(void **state)
{
	assert_withstood(state, attack_neighbour, flood_nops);
}

static void floods_of_forks(void **state)
{
	assert_withstood(state, attack_neighbour, flood_forks);
}

/* ---- messages ---- */

static int flood_opens(const struct harness *h, int said)
{
	static struct client c;
	Coppice__Request opens = COPPICE__REQUEST__INIT, closes = COPPICE__REQUEST__INIT;
	Coppice__SeqOpen open_one = COPPICE__SEQ_OPEN__INIT;
	Coppice__SeqClose close_one = COPPICE__SEQ_CLOSE__INIT;
	uint64_t seqs[BURST];

	session_with_prompt(h, &c, 4096);
	open_one.model = open_one.lane = open_one.arena = 1;
	open_one.n_tokens = 4096;
	opens.seq_open = &open_one;
	closes.seq_close = &close_one;
	attack_is_on(said);
	while (attack_goes_on()) {
		send_all(&c, &opens, BURST);
		for (int i = 0; i < BURST; i++)
			seqs[i] = client_receive(&c)->seq->seq;
		for (int i = 0; i < BURST; i++) {
			close_one.seq = seqs[i];
			send_all(&c, &closes, 1);
		}
		receive_all(&c, BURST);
	}
	return 0;
}

static void floods_of_opens(void **state)
{
	assert_withstood(state, attack_neighbour, flood_opens);
}

/* For a prompt that its own first sequence claims and nobody computes. */
static int flood_waits(const struct harness *h, int said)
{
	static struct client c;
	Coppice__Request request = COPPICE__REQUEST__INIT;
	Coppice__SeqWait m = COPPICE__SEQ_WAIT__INIT;

	session_with_prompt(h, &c, 4096);
	assert_int_equal(client_seq(&c, 1, 1, 1, 4096)->code, 0);
	m.seq = client_seq(&c, 1, 1, 1, 4096)->seq->seq;
	m.timeout_ns = 1;
	request.seq_wait = &m;
	attack_is_on(said);
	while (attack_goes_on()) {
		send_all(&c, &request, BURST);
		receive_all(&c, BURST);
	}
	return 0;
}

static void floods_of_waits(void **state)
{
	assert_withstood(state, attack_neighbour, flood_waits);
}

static int flood_messages(const struct harness *h, int said)
{
	static struct client c[SESSIONS];
	Coppice__Request requests[4] = {COPPICE__REQUEST__INIT, COPPICE__REQUEST__INIT,
					COPPICE__REQUEST__INIT, COPPICE__REQUEST__INIT};
	Coppice__Status status = COPPICE__STATUS__INIT;
	Coppice__Tree tree = COPPICE__TREE__INIT;
	Coppice__Sessions sessions = COPPICE__SESSIONS__INIT;
	Coppice__Pins pins = COPPICE__PINS__INIT;

	requests[0].status = &status;
	requests[1].tree = &tree;
	requests[2].sessions = &sessions;
	requests[3].pins = &pins;
	for (int i = 0; i < SESSIONS; i++)
		c[i] = client_open(h);
	attack_is_on(said);
	for (int n = 0; attack_goes_on(); n++) {
		for (int i = 0; i < SESSIONS; i++)
			send_all(&c[i], &requests[n % 4], BURST);
		for (int i = 0; i < SESSIONS; i++)
			receive_all(&c[i], BURST);
	}
	return 0;
}

static void floods_of_messages(void **state)
{
	assert_withstood(state, attack_neighbour, flood_messages);
}

static int flood_connections(const struct harness *h, int said)
{
	attack_is_on(said);
	while (attack_goes_on()) {
		struct client c = {.fd = -1};

		if (channel_connect(h->socket, CONNECT_NS, &c.fd) < 0)
			continue;
		(void)client_hello(&c);
		client_close(&c);
	}
	return 0;
}

static void floods_of_connections(void **state)
{
	assert_withstood(state, attack_neighbour, flood_connections);
}

/* Lanes with descriptors, of whose answers none is read, until there are no more. */
static void ask_for_descriptors(int fd)
{
	Coppice__Request request = COPPICE__REQUEST__INIT;
	Coppice__LaneNew m = COPPICE__LANE_NEW__INIT;
	uint8_t packet[64];
	size_t bytes;

	m.has_notify = m.notify = true;
	request.lane_new = &m;
	bytes = coppice__request__pack(&request, packet);
	for (int i = 0; i < 100; i++)
		(void)!channel_send(fd, packet, bytes, NULL, MSG_DONTWAIT);
}

static bool said_hello(struct client *c)
{
	const Coppice__Reply *reply = client_hello(c);

	return reply && reply->code == 0;
}

/* It keeps the sockets, as many as it may have: where another one is refused the oldest goes. */
static int leave_descriptors(const struct harness *h, int said)
{
	static int kept[OPENERS];
	unsigned first = 0, end = 0;

	attack_is_on(said);
	while (attack_goes_on()) {
		struct client c = {.fd = -1};
		bool has_room;

		if (channel_connect(h->socket, CONNECT_NS, &c.fd) < 0)
			continue;
		has_room = said_hello(&c);
		if (has_room) {
			ask_for_descriptors(c.fd);
			kept[end++ % OPENERS] = dup(c.fd);
		}
		if (end > first && (!has_room || end - first == OPENERS))
			close(kept[first++ % OPENERS]);
		client_close(&c);
	}
	return 0;
}

static void descriptors_that_nobody_reads(void **state)
{
	assert_withstood(state, attack_neighbour, leave_descriptors);
}

static int setup_for_many(void **state)
{
	static const char *const flags[] = {"--max-sessions=256",    "--max-domain-sessions=128",
					    "--max-arena-bytes=64M", "--domain-prompt-bytes=256M",
					    "--pool=256M",	     "--extent=2M"};

	return attack_setup_with(state, flags, sizeof(flags) / sizeof(*flags));
}

int main(int argc, char **argv)
{
	const struct CMUnitTest with_many_sessions[] = {
		cmocka_unit_test(prompts_that_nobody_computes),
	};
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(arenas_that_come_and_go),
		cmocka_unit_test(sessions_that_end_with_arenas),
		cmocka_unit_test(holes_in_arenas),
		cmocka_unit_test(holes_in_lanes),
		cmocka_unit_test(floods_of_nops),
		cmocka_unit_test(floods_of_forks),
		cmocka_unit_test(floods_of_opens),
		cmocka_unit_test(floods_of_waits),
		cmocka_unit_test(floods_of_messages),
		cmocka_unit_test(floods_of_connections),
		cmocka_unit_test(descriptors_that_nobody_reads),
	};
	int failures;

	if (harness_init(argc, argv) < 0)
		return 1;
	if (geteuid() != 0) {
		print_message("only root has several users\n");
		return 77;
	}
	failures = cmocka_run_group_tests_name("attacks of many sessions", with_many_sessions,
					       setup_for_many, attack_teardown);
	return failures +
	       cmocka_run_group_tests_name("attacks", tests, attack_setup, attack_teardown);
}
