/*
 * attack_device_test.c - what one user can do to hold up another by device arenas: ask for them and
 * give them back as fast as it is answered, keep as many as it gets, also of those that it says it
 * has freed, free them under steps that use them, be killed in a step.
 *
 * The device is the fake one (fake_module.c), whose memory the daemon has. Clients need no driver:
 * none of them looks into what it gets.
 */
#include "attack_fixture.h"
#include "raw_lane.h"

#include "proto/ring.h"

#include <errno.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define SESSIONS 5
#define ARENA_BYTES (2u << 20)
#define DOMAIN_ARENAS 8 /* as many as a user may have, of this size */
#define BURST 16
#define NEWCOMER 65530
#define MOST_MS 8

static const Coppice__Reply *device_arena_new(struct client *c)
{
	Coppice__ArenaNew m = COPPICE__ARENA_NEW__INIT;

	m.kind = 1;
	m.bytes = ARENA_BYTES;
	return client_verb(c, arena_new, &m);
}

/* ---- opens and frees ---- */

static void ask_arenas(struct client *c, unsigned n)
{
	Coppice__Request request = COPPICE__REQUEST__INIT;
	Coppice__ArenaNew m = COPPICE__ARENA_NEW__INIT;

	m.kind = 1;
	m.bytes = ARENA_BYTES;
	request.arena_new = &m;
	for (unsigned i = 0; i < n; i++, request.id = 0)
		client_send(c, &request);
}

static void give_back(struct client *c, const uint32_t *arenas, unsigned n)
{
	Coppice__Request request = COPPICE__REQUEST__INIT;
	Coppice__ArenaFree m = COPPICE__ARENA_FREE__INIT;

	request.arena_free = &m;
	for (unsigned i = 0; i < n; i++, request.id = 0) {
		m.arena = arenas[i];
		client_send(c, &request);
	}
	for (unsigned i = 0; i < n; i++)
		client_receive(c);
}

/* Of as many answers; some are refusals. */
static unsigned receive_arenas(struct client *c, unsigned n, uint32_t *ret_arenas)
{
	unsigned n_had = 0;

	for (unsigned i = 0; i < n; i++) {
		const Coppice__Reply *reply = client_receive(c);

		if (reply->code == 0)
			ret_arenas[n_had++] = reply->arena->arena;
	}
	return n_had;
}

static int flood_arenas(const struct harness *h, int said)
{
	static struct client c[SESSIONS];
	uint32_t arenas[BURST];

	for (int i = 0; i < SESSIONS; i++)
		c[i] = client_open(h);
	attack_is_on(said);
	while (attack_goes_on()) {
		for (int i = 0; i < SESSIONS; i++)
			ask_arenas(&c[i], BURST);
		for (int i = 0; i < SESSIONS; i++)
			give_back(&c[i], arenas, receive_arenas(&c[i], BURST, arenas));
	}
	return 0;
}

static void floods_of_device_arenas(void **state)
{
	assert_withstood(state, attack_neighbour, flood_arenas);
}

/* It says that it has none of them open, so that they are free at once. */
static int end_with_arena(const struct harness *h, int said)
{
	Coppice__Leave leave = COPPICE__LEAVE__INIT;
	Coppice__Request request = COPPICE__REQUEST__INIT;

	attack_is_on(said);
	for (request.leave = &leave; attack_goes_on(); request.id = 0) {
		struct client c = client_open(h);

		if (device_arena_new(&c)->code != 0)
			return 1;
		client_send(&c, &request);
		client_close(&c);
	}
	return 0;
}

static void sessions_that_end_with_device_arenas(void **state)
{
	assert_withstood(state, attack_neighbour, end_with_arena);
}

/* ---- more than its share ---- */

/* All that it gets, and then more. */
static int hoard_arenas(const struct harness *h, int said)
{
	static struct client c[SESSIONS];

	for (int i = 0; i < SESSIONS; i++) {
		c[i] = client_open(h);
		while (device_arena_new(&c[i])->code == 0)
			continue;
	}
	attack_is_on(said);
	for (int i = 0; attack_goes_on(); i = (i + 1) % SESSIONS)
		if (device_arena_new(&c[i])->code != -EDQUOT)
			return 1;
	return 0;
}

static int come_and_take(const struct harness *h, int said)
{
	struct client c = client_open(h);
	int code = device_arena_new(&c)->code;

	(void)said;
	client_close(&c);
	return code ? 1 : 0;
}

static void see_share(const struct harness *h, struct client *root)
{
	Coppice__Status m = COPPICE__STATUS__INIT;
	struct other newcomer = other_start(h, NEWCOMER, come_and_take);

	assert_true(client_verb(root, status, &m)->status->device_arena_bytes >= ARENA_BYTES);
	other_join(&newcomer);
}

static void device_arenas_that_a_user_hoards(void **state)
{
	assert_attack_withstood(state, &(struct attack){.life = hoard_arenas, .beside = see_share});
}

/* Says that it has freed them all, and has the descriptors. */
static int keep_arenas(const struct harness *h, int said)
{
	int kept[2 * DOMAIN_ARENAS];
	struct client c = client_open(h);
	unsigned n = 0;

	for (; n < 2 * DOMAIN_ARENAS; n++) {
		const Coppice__Reply *reply = device_arena_new(&c);

		if (reply->code == -EDQUOT)
			break;
		if (reply->code != 0)
			return 1;
		kept[n] = dup(c.fds[0]);
		give_back(&c, &reply->arena->arena, 1);
	}
	if (n != DOMAIN_ARENAS)
		return 1;
	attack_is_on(said);
	while (attack_goes_on())
		if (device_arena_new(&c)->code != -EDQUOT || kept[n - 1] < 0)
			return 1;
	return 0;
}

static void see_kept(const struct harness *h, struct client *root)
{
	Coppice__Status m = COPPICE__STATUS__INIT;
	const Coppice__StatusReply *status = client_verb(root, status, &m)->status;

	assert_int_equal(status->kept_arena_bytes, DOMAIN_ARENAS * ARENA_BYTES);
	assert_true(status->device_arena_bytes >= status->kept_arena_bytes);
	see_share(h, root);
}

static void device_arenas_that_are_freed_and_kept(void **state)
{
	assert_attack_withstood(state, &(struct attack){.life = keep_arenas, .beside = see_kept});
}

/* ---- under steps ---- */

/* A session that steps on a device arena of its own. */
static struct raw step_start(const struct harness *h, uint64_t *ret_seq)
{
	struct raw x = raw_open(h);

	*ret_seq = raw_seq(&x);
	return x;
}

static int free_under_steps(const struct harness *h, int said)
{
	static struct raw x;
	uint64_t seq;

	x = step_start(h, &seq);
	attack_is_on(said);
	while (attack_goes_on()) {
		const Coppice__Reply *reply = device_arena_new(&x.c);

		if (reply->code != 0)
			return 1;
		x.arena = reply->arena->arena;
		for (int i = 0; i < 8; i++)
			raw_step(&x, seq);
		give_back(&x.c, &x.arena, 1);
		raw_wait(&x);
	}
	return 0;
}

static void device_arenas_that_are_freed_under_steps(void **state)
{
	assert_withstood(state, attack_neighbour, free_under_steps);
}

/* Says so once it steps. */
static void step_for_ever(const struct harness *h, pid_t parent, int steps)
{
	struct raw x;
	uint64_t seq;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	x = step_start(h, &seq);
	x.arena = device_arena_new(&x.c)->arena->arena;
	for (bool told = false;; told = true) {
		for (int i = 0; i < 8; i++)
			raw_step(&x, seq);
		raw_wait(&x);
		if (ring_completion(x.lane, x.ticket - 1).status != 0)
			_exit(1);
		if (!told && write(steps, "", 1) != 1)
			_exit(1);
	}
}

/* Returns what it died of, some time after its first steps. */
static int die_after(const struct harness *h, unsigned ms)
{
	int steps[2], status;
	char byte;
	pid_t parent = getpid(), pid;

	if (pipe(steps) < 0)
		return 1;
	pid = fork();
	if (pid == 0)
		step_for_ever(h, parent, steps[1]);
	close(steps[1]);
	if (read(steps[0], &byte, 1) == 1)
		sleep_ms(ms);
	close(steps[0]);
	kill(pid, SIGKILL);
	return waitpid(pid, &status, 0) == pid && WIFSIGNALED(status) ? WTERMSIG(status) : 1;
}

static int die_in_steps(const struct harness *h, int said)
{
	attack_is_on(said);
	for (unsigned i = 0; attack_goes_on(); i++) {
		if (die_after(h, i % MOST_MS) != SIGKILL)
			return 1;
	}
	return 0;
}

static void clients_that_die_with_device_arenas_in_use(void **state)
{
	assert_withstood(state, attack_neighbour, die_in_steps);
}

static int device_setup(void **state)
{
	static const char *const flags[] = {"--backend=cuda",
					    "--max-sessions=64",
					    "--max-domain-sessions=6",
					    "--max-arenas=8",
					    "--max-device-arena-bytes=8M",
					    "--domain-device-arena-bytes=16M",
					    "--device-arena-bytes=24M",
					    "--extent=2M"};

	return attack_setup_with(state, flags, sizeof(flags) / sizeof(*flags));
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(floods_of_device_arenas),
		cmocka_unit_test(sessions_that_end_with_device_arenas),
		cmocka_unit_test(device_arenas_that_a_user_hoards),
		cmocka_unit_test(device_arenas_that_are_freed_and_kept),
		cmocka_unit_test(device_arenas_that_are_freed_under_steps),
		cmocka_unit_test(clients_that_die_with_device_arenas_in_use),
	};

	if (harness_init(argc, argv) < 0)
		return 1;
	if (geteuid() != 0) {
		print_message("only root has several users\n");
		return 77;
	}
	return cmocka_run_group_tests_name("device arenas", tests, device_setup, attack_teardown);
}
