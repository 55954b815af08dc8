/*
 * attack_lanes_test.c - what one user can do by many lanes to hold up another: steps whose inputs
 * never come, waits that never end, nops on all of them. Beside those of attack_test, which has
 * few lanes a process. ATTACK_SESSIONS says of how many sessions, 12 without: 120 are nearly as
 * many as one user may have by the default of each key, and take 3 GB.
 */
#include "attack_fixture.h"
#include "raw_lane.h"

#include "proto/ring.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define SESSIONS_MAX 124
#define LANES 16
#define WAITS 60 /* of a session at a time; 64 are taken */
#define NEVER_NS UINT64_C(3000000000000)

static int n_sessions = 12;

struct many {
	struct raw x;
	uint64_t seq;
	struct abi_lane *lanes[LANES];
	uint64_t tickets[LANES];
};

static struct many all[SESSIONS_MAX];

static struct abi_lane *lane_new(struct client *c)
{
	Coppice__LaneNew m = COPPICE__LANE_NEW__INIT;
	void *map;
	int fd;

	if (client_verb(c, lane_new, &m)->code != 0)
		_exit(97);
	fd = c->fds[0];
	if (channel_segment_map(fd, sizeof(struct abi_lane), 1, &map) < 0 ||
	    channel_segment_fill(map, sizeof(struct abi_lane)) < 0 ||
	    client_seal_lane(c, c->reply->lane->lane)->code != 0)
		_exit(97);
	return map;
}

static void open_all(const struct harness *h)
{
	for (int i = 0; i < n_sessions; i++) {
		struct many *m = &all[i];

		m->x = raw_open(h);
		m->seq = raw_seq(&m->x);
		m->lanes[0] = m->x.lane;
		for (int j = 1; j < LANES; j++)
			m->lanes[j] = lane_new(&m->x.c);
	}
}

static void submit(struct many *m, int lane, struct abi_entry entry, const void *body,
		   uint32_t bytes)
{
	struct abi_lane *to = m->lanes[lane];

	entry.ticket = ++m->tickets[lane];
	entry.body = ring_slot(entry.ticket) * 4096;
	entry.body_bytes = bytes;
	if (bytes)
		memcpy(to->bodies + entry.body, body, bytes);
	to->entries[ring_slot(entry.ticket)] = entry;
	ring_publish(to, entry.ticket);
}

/* ---- inputs that never come ---- */

static void await_input(struct many *m, int lane)
{
	struct raw *x = &m->x;
	uint64_t seq = client_seq(&x->c, x->model, (uint32_t)lane + 1, x->arena, 1)->seq->seq;
	const struct abi_step_seq rec = {.seq = seq,
					 .lse = ABI_NO_OFFSET,
					 .n_new = 1,
					 .arena_in = x->arena,
					 .arena_out = x->arena};
	uint32_t id = 1;

	submit(m, lane, (struct abi_entry){.kind = ABI_EXTEND, .seq = seq, .count = 1}, &id,
	       sizeof(id));
	submit(m, lane, (struct abi_entry){.kind = ABI_STEP, .flags = ABI_STEP_STREAM, .count = 1},
	       &rec, sizeof(rec));
	ring_doorbell(x->doorbell_fd);
}

static int await_inputs(const struct harness *h, int said)
{
	open_all(h);
	for (int i = 0; i < n_sessions; i++)
		for (int j = 0; j < LANES; j++)
			await_input(&all[i], j);
	attack_is_on(said);
	while (attack_goes_on())
		sleep_ms(10);
	return 0;
}

static bool all_await(struct client *root)
{
	Coppice__Status m = COPPICE__STATUS__INIT;

	return client_verb(root, status, &m)->status->n_input_waits >=
	       (uint64_t)n_sessions * LANES / 2;
}

static void inputs_that_never_come(void **state)
{
	assert_attack_withstood(state, &(struct attack){.life = await_inputs, .is_on = all_await});
}

/* ---- nops ---- */

static int flood_all_lanes(const struct harness *h, int said)
{
	open_all(h);
	attack_is_on(said);
	while (attack_goes_on())
		for (int i = 0; i < n_sessions; i++) {
			for (int j = 0; j < LANES; j++)
				while (all[i].tickets[j] - ring_done(all[i].lanes[j]) < 32)
					submit(&all[i], j, (struct abi_entry){.kind = ABI_NOP},
					       NULL, 0);
			ring_doorbell(all[i].x.doorbell_fd);
		}
	return 0;
}

static void nops_on_all_lanes(void **state)
{
	assert_withstood(state, attack_neighbour, flood_all_lanes);
}

/* ---- waits ---- */

/* For what nobody computes: whatever others publish, all of them are looked at again. */
static int wait_for_ever(const struct harness *h, int said)
{
	open_all(h);
	for (int i = 0; i < n_sessions; i++) {
		Coppice__Request request = COPPICE__REQUEST__INIT;
		Coppice__SeqWait m = COPPICE__SEQ_WAIT__INIT;
		uint64_t seqs[WAITS];

		m.timeout_ns = NEVER_NS;
		request.seq_wait = &m;
		for (int j = 0; j < WAITS; j++)
			seqs[j] = raw_seq(&all[i].x);
		for (int j = 0; j < WAITS; j++, request.id = 0) {
			m.seq = seqs[j];
			client_send(&all[i].x.c, &request);
		}
	}
	attack_is_on(said);
	while (attack_goes_on())
		sleep_ms(10);
	return 0;
}

static void waits_that_never_end(void **state)
{
	assert_withstood(state, attack_neighbour, wait_for_ever);
}

static int setup_lanes(void **state)
{
	static const char *const flags[] = {"--max-sessions=256", "--max-domain-sessions=128",
					    "--max-lanes=16", "--pool=256M", "--extent=2M"};

	return attack_setup_with(state, flags, sizeof(flags) / sizeof(*flags));
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(inputs_that_never_come),
		cmocka_unit_test(nops_on_all_lanes),
		cmocka_unit_test(waits_that_never_end),
	};

	if (getenv("ATTACK_SESSIONS"))
		n_sessions = atoi(getenv("ATTACK_SESSIONS"));
	if (harness_init(argc, argv) < 0)
		return 1;
	if (geteuid() != 0) {
		print_message("only root has several users\n");
		return 77;
	}
	return cmocka_run_group_tests_name("lanes", tests, setup_lanes, attack_teardown);
}
