/*
 * group_ranks_test.c - several processes of one host as one group: each has a device, all have the
 * answers of float64.
 *
 * Without arguments processes have a CPU each, and exchange through the sockets by which they find
 * each other. argv[1] is the module of GPUs: COPPICE_DEVICES names them, with commas, one to a
 * process, and they exchange by NCCL. Where fewer than two are named the program says so and exits
 * with 77, which CTest counts as skipped.
 */
#include "kernels/cuda/module/module.h"
#include "kernels/group/agree.h"
#include "kernels/group/exchange.h"
#include "kernels/group/group.h"
#include "kernels/group/ranks.h"
#include "world.h"
#include "proto/clock.h"

#include <dlfcn.h>
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

#define MIB (UINT64_C(1) << 20)
#define SKIPPED 77
#define RANKS_MAX 8u
#define TIMEOUT_MS 30000u
#define SHORT_MS 700u
#define GPU_SHORT_MS 1500u
#define DEATH_MS 35000u /* NCCL is given 20 s, and devices are opened before */
#define WORLDS 6u
#define GPU_WORLDS 5u /* each makes its connections anew, which takes a second */
#define LSE_BOUND 1e-4

static struct {
	const char *module; /* NULL: CPUs */
	char names[RANKS_MAX][64];
	uint32_t n;
	char folder[64];
	char text[RANKS_MAX][96];
	const char *addresses[RANKS_MAX];
} ranks;

/* ---- processes: what goes wrong in one is its exit status, and a sentence ------------------- */

/* A process of all. Nothing of a device is looked at before the fork. */
struct life {
	struct exchange *exchange; /* owned */
	struct group_device device;
	struct group_config group;
	bool alone; /* its group has another size than the others' */
};

typedef int (*live)(struct life *l, struct oracle_random random);

static int complain(const struct life *l, const char *what)
{
	fprintf(stderr, "rank %u: %s\n", l->exchange ? l->exchange->rank : 0, what);
	return 1;
}

static int find_device(struct life *l, uint32_t rank)
{
	void *module;
	cuda_ops find = NULL;

	l->device = (struct group_device){&backend_cpu, NULL};
	if (!ranks.module)
		return 0;
	module = dlopen(ranks.module, RTLD_NOW | RTLD_LOCAL);
	if (module)
		*(void **)&find = dlsym(module, CUDA_MODULE_OPS);
	if (!find)
		return complain(l, dlerror());
	l->device = (struct group_device){find(), ranks.names[rank]};
	return 0;
}

/* GPUs take longer to be opened than a rank is waited for here. */
static int run_life(live run, uint32_t rank, uint32_t timeout_ms, struct oracle_random random)
{
	struct ranks_config config = {ranks.addresses, rank, ranks.n,
				      ranks.module ? TIMEOUT_MS : timeout_ms};
	uint8_t here = 1, all[RANKS_MAX];
	struct life l = {0};
	char error[256] = "";
	int r;

	if (ranks_connect(&config, &l.exchange, error, sizeof(error)) != 0)
		return complain(&l, error);
	/* who leaves while others still come would be awaited once more */
	if (exchange_tell(l.exchange, &here, 1, all) != 0)
		return complain(&l, l.exchange->error);
	r = find_device(&l, rank);
	l.group = (struct group_config){.devices = &l.device,
					.n_devices = 1,
					.timeout_ms = timeout_ms,
					.ranks = l.exchange};
	if (r == 0)
		r = run(&l, random);
	exchange_free(l.exchange);
	return r;
}

static pid_t start(live run, uint32_t rank, uint32_t timeout_ms, struct oracle_random random)
{
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0)
		_exit(run_life(run, rank, timeout_ms, random));
	return pid;
}

/* All of them, rank r by lives[r], or by the last. */
static void run_lives(const live *lives, uint32_t n_lives, uint32_t timeout_ms, const char *name)
{
	struct oracle_random random = oracle_seed(name);
	pid_t pids[RANKS_MAX];
	bool right = true;

	for (uint32_t i = 0; i < ranks.n; i++)
		pids[i] = start(lives[i < n_lives ? i : n_lives - 1], i, timeout_ms, random);
	for (uint32_t i = 0; i < ranks.n; i++) {
		int status;

		assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
		right = right && WIFEXITED(status) && WEXITSTATUS(status) == 0;
	}
	assert_true(right);
}

/* ---- answers -------------------------------------------------------------------------------- */

static double bound_of(enum work_dtype dtype)
{
	static const double bounds[] = {[WORK_FP32] = 2e-6, [WORK_FP16] = 5e-4, [WORK_BF16] = 4e-3};

	return bounds[dtype];
}

static struct work_shape draw_shape(const struct life *l, uint32_t i, struct oracle_random *random)
{
	static const enum work_dtype dtypes[] = {WORK_FP16, WORK_BF16, WORK_FP32};
	static const uint32_t dims[] = {64, 96, 128, 192, 256};
	uint32_t n_kv_heads = 1 + oracle_below(random, 3), dim = dims[i % 5];

	return (struct work_shape){.n_layers = 2,
				   .n_q_heads = n_kv_heads * (1 + oracle_below(random, 4)),
				   .n_kv_heads = n_kv_heads,
				   .head_dim = dim,
				   .page_tokens = 32,
				   .dtype = dtypes[i % (l->device.ops == &backend_cpu ? 3 : 2)],
				   .scale = 1 / sqrtf((float)dim)};
}

static int check_world(const struct life *l, struct world *w)
{
	struct world_answer answer, again;
	struct plan_config config;
	double lse, error;
	bool same;
	char what[128];

	plan_config_init(&config, PLAN_AUTO, &w->shape, 66);
	config.tile_rows = w->ops->tile_rows(w->backend, &w->shape);
	world_run(w, &config, 0, w->tree.n_queries, &answer);
	error = world_error(w, 0, w->tree.n_queries, &answer, &lse);
	world_run(w, &config, 0, w->tree.n_queries, &again);
	same = memcmp(answer.raw, again.raw, answer.raw_bytes) == 0;
	world_answer_done(&answer);
	world_answer_done(&again);
	snprintf(what, sizeof(what), "dim %u, dtype %d: error %g, LSE %g%s", w->shape.head_dim,
		 (int)w->shape.dtype, error, lse, same ? "" : ", and another the second time");
	return error <= bound_of(w->shape.dtype) && lse <= LSE_BOUND && same ? 0
									     : complain(l, what);
}

/* Every process draws the same worlds. */
static int live_in_worlds(struct life *l, struct oracle_random random)
{
	uint32_t n = ranks.module ? GPU_WORLDS : WORLDS;
	int r = 0;

	for (uint32_t i = 0; i < n && r == 0; i++) {
		struct world_want want = {.ops = &backend_group,
					  .group = &l->group,
					  .extent_bytes = 2 * MIB * ranks.n,
					  .n_nodes = 1 + oracle_below(&random, 6),
					  .n_queries = 1 + oracle_below(&random, 8),
					  .node_tokens = 150,
					  .drafts = true};
		struct world w;

		want.shape = draw_shape(l, i, &random);
		world_init(&w, &want, &random);
		r = check_world(l, &w);
		world_done(&w);
	}
	return r;
}

static void test_processes_that_share_tokens_answer_as_one(void **state)
{
	static const live lives[] = {live_in_worlds};

	(void)state;
	run_lives(lives, 1, TIMEOUT_MS, __func__);
}

/* ---- faults --------------------------------------------------------------------------------- */

static int open_group(struct life *l, uint64_t pool_bytes, struct backend **ret, char *error,
		      size_t bytes)
{
	struct backend_config config = {.pool_bytes = pool_bytes,
					.extent_bytes = 2 * MIB * ranks.n,
					.group = &l->group};

	return backend_group.open(&config, ret, error, bytes);
}

/* An append of nothing but a row of zeros, and attention on it. */
static int start_one(struct backend *b, const struct work_shape *shape, uint64_t at,
		     uint64_t *ret_id)
{
	struct work_slice slice = {0, 0, 1};
	struct work_node node = {.parent = WORK_NONE, .n_tokens = 1, .n_slices = 1};
	struct work_query query = {.node = 0, .n_rows = 1};
	struct work_tree tree = {&node, &slice, &query, 1, 1, 1};
	struct backend_io io = {
		.q = at, .k = at, .v = at, .o = at + 1024, .slots = &slice, .n_slots = 1};
	struct work_list list = {0};
	struct backend_job job = {.shape = shape, .tree = &tree, .list = &list, .io = &io};
	struct backend_batch batch = {&job, 1};
	struct plan_config config;
	int r;

	plan_config_init(&config, PLAN_AUTO, shape, 66);
	config.tile_rows = backend_group.tile_rows(b, shape);
	r = plan_make(&config, &tree, &list);
	if (r == 0)
		r = backend_group.submit(b, &batch, ret_id);
	plan_list_done(&list);
	return r;
}

static int await_one(struct backend *b, uint64_t id)
{
	uint64_t done = 0;
	int r = 0;

	while (r == 0 && done < id)
		r = backend_group.completed(b, &done);
	return r;
}

/* says: what the group dies of. first: before the batch is looked at its memory is given back. */
static int run_one(struct life *l, struct backend *b, bool first, const char *says)
{
	const struct work_shape shape = {1, 1, 1, 64, 32, WORK_FP16, 0.125f, WORK_TOKENS, 0};
	const char *why;
	void *memory = NULL;
	uint64_t base, id = 0;
	int r;

	if (backend_group.extent_commit(b, 0) != 0 || posix_memalign(&memory, 4096, 4096) != 0 ||
	    backend_group.arena_attach(b, memset(memory, 0, 4096), 4096, &base) != 0)
		return complain(l, "no memory");
	r = start_one(b, &shape, base, &id);
	if (first)
		backend_group.extent_release(b, 0);
	r = r ? r : await_one(b, id);
	why = backend_group.fault(b);
	if (says)
		r = r == -EIO && why && strstr(why, says) ? 0 : complain(l, why ? why : "no fault");
	backend_group.arena_detach(b, base, 4096);
	free(memory);
	return r;
}

static uint32_t short_ms(void)
{
	return ranks.module ? GPU_SHORT_MS : SHORT_MS;
}

static int wait_in(struct life *l, bool first, const char *says)
{
	struct backend *b = NULL;
	char error[256] = "";
	uint64_t begin;
	int r;

	if (open_group(l, 2 * MIB * ranks.n, &b, error, sizeof(error)) != 0)
		return complain(l, error);
	begin = clock_now_ms();
	r = run_one(l, b, first, says);
	backend_group.close(b);
	if (clock_now_ms() - begin > 12 * short_ms())
		return complain(l, "it took too long");
	return r;
}

static int live_and_wait(struct life *l, struct oracle_random random)
{
	(void)random;
	/* by sockets those who hear of it first tell the others that they give up */
	return wait_in(l, false, ranks.module ? "has not answered for 1500 ms" : "exchange: ");
}

static int live_and_give_back(struct life *l, struct oracle_random random)
{
	(void)random;
	return wait_in(l, true,
		       ranks.module ? "it waited for other devices in vain" : "exchange: ");
}

static int live_and_never_answer(struct life *l, struct oracle_random random)
{
	struct backend *b = NULL;
	char error[256] = "";

	(void)random;
	if (open_group(l, 2 * MIB * ranks.n, &b, error, sizeof(error)) != 0)
		return complain(l, error);
	usleep(4 * short_ms() * 1000);
	backend_group.close(b);
	return 0;
}

static void test_a_process_that_never_answers_ends_them_in_time(void **state)
{
	static const live lives[] = {live_and_never_answer, live_and_wait};

	(void)state;
	run_lives(lives, 2, short_ms(), __func__);
}

static void test_a_process_that_never_answers_keeps_no_memory(void **state)
{
	static const live lives[] = {live_and_never_answer, live_and_give_back};

	(void)state;
	run_lives(lives, 2, short_ms(), __func__);
}

/* Dies as soon as all have agreed. */
static int live_and_die(struct life *l, struct oracle_random random)
{
	struct backend_config config = {.pool_bytes = 2 * MIB * ranks.n,
					.extent_bytes = 2 * MIB * ranks.n,
					.group = &l->group};
	uint8_t id[BACKEND_MEETING_BYTES];
	char error[256] = "";

	(void)random;
	return agree(&config, id, error, sizeof(error)) ? complain(l, error) : 0;
}

/* By NCCL they never meet, by sockets they find it out when they first exchange. */
static int live_without_it(struct life *l, struct oracle_random random)
{
	uint64_t begin = clock_now_ms();
	struct backend *b = NULL;
	char error[256] = "";
	int r;

	(void)random;
	r = open_group(l, 2 * MIB * ranks.n, &b, error, sizeof(error));
	if (ranks.module)
		r = r && strstr(error, "have come for") ? 0 : complain(l, error);
	else
		r = r ? complain(l, error) : run_one(l, b, false, "exchange: ");
	backend_group.close(b);
	if (clock_now_ms() - begin > DEATH_MS)
		return complain(l, "it took too long");
	return r;
}

static void test_a_process_that_dies_before_it_meets_ends_them_in_time(void **state)
{
	static const live lives[] = {live_without_it, live_and_die, live_without_it};

	(void)state;
	run_lives(lives, 3, short_ms(), __func__);
}

static int live_unlike(struct life *l, struct oracle_random random)
{
	uint64_t extents = l->exchange->rank == 1 ? 2 : 1;
	struct backend *b = NULL;
	char error[256] = "";

	(void)random;
	if (open_group(l, extents * 2 * MIB * ranks.n, &b, error, sizeof(error)) != -EINVAL)
		return complain(l, "processes that are unlike are a group");
	return strstr(error, "all have the same") ? 0 : complain(l, error);
}

static void test_processes_that_differ_say_in_what(void **state)
{
	static const live lives[] = {live_unlike};

	(void)state;
	run_lives(lives, 1, TIMEOUT_MS, __func__);
}

/* The second process has another GPU than the rest; as far as anybody knows, all have CPUs. */
static int find_kind(const char *device, struct backend_kind *ret, char *error, size_t bytes)
{
	(void)error;
	(void)bytes;
	*ret = device ? (struct backend_kind){80, 108} : (struct backend_kind){90, 132};
	return 0;
}

static int live_of_another_kind(struct life *l, struct oracle_random random)
{
	struct backend_ops ops = backend_cpu;
	struct group_device device = {&ops, l->exchange->rank == 1 ? "another" : NULL};
	const char *theirs = l->exchange->rank == 1 ? "rank 0 has a device of compute capability "
						      "9.0 with 132 multiprocessors"
						    : "rank 1 has a device of compute capability "
						      "8.0 with 108 multiprocessors";
	struct backend *b = NULL;
	char error[256] = "";

	(void)random;
	ops.kind = find_kind;
	l->group.devices = &device;
	if (open_group(l, 2 * MIB * ranks.n, &b, error, sizeof(error)) != -EINVAL)
		return complain(l, "devices that are unlike are a group");
	return strstr(error, theirs) && strstr(error, "devices of a group are alike")
		       ? 0
		       : complain(l, error);
}

static void test_devices_of_processes_are_of_one_kind(void **state)
{
	static const live lives[] = {live_of_another_kind};

	(void)state;
	if (ranks.module)
		skip();
	run_lives(lives, 1, TIMEOUT_MS, __func__);
}

static int live_and_ask_for_heads(struct life *l, struct oracle_random random)
{
	const struct work_shape shape = {1, 4, 4, 64, 32, WORK_FP16, 0.125f, WORK_HEADS, 0};
	struct backend *b = NULL;
	char error[256] = "";
	uint64_t bytes;

	(void)random;
	if (open_group(l, 2 * MIB * ranks.n, &b, error, sizeof(error)) != 0)
		return complain(l, error);
	bytes = backend_group.page_bytes(b, &shape, error, sizeof(error));
	backend_group.close(b);
	return bytes == 0 && strstr(error, "share tokens, not heads") ? 0 : complain(l, error);
}

static void test_heads_are_not_shared_by_processes(void **state)
{
	static const live lives[] = {live_and_ask_for_heads};

	(void)state;
	run_lives(lives, 1, TIMEOUT_MS, __func__);
}

/* Whose device is not there; the others are told. */
static int live_without_a_device(struct life *l, struct oracle_random random)
{
	struct group_device two[2] = {l->device, l->device};
	struct backend *b = NULL;
	char error[256] = "";

	(void)random;
	if (l->exchange->rank == 1) {
		l->group.devices = two;
		l->group.n_devices = 2; /* CPUs, one to a process */
	}
	if (open_group(l, 2 * MIB * ranks.n, &b, error, sizeof(error)) == 0)
		return complain(l, "a group of which one process has no device");
	return error[0] ? 0 : complain(l, "no word of what is wrong");
}

static void test_a_process_that_cannot_open_its_device_keeps_nobody_waiting(void **state)
{
	static const live lives[] = {live_without_a_device};

	(void)state;
	if (ranks.module)
		skip();
	run_lives(lives, 1, TIMEOUT_MS, __func__);
}

/* ---- the program ---------------------------------------------------------------------------- */

static int make_addresses(void **state)
{
	(void)state;
	strcpy(ranks.folder, "/tmp/group-ranks-XXXXXX");
	if (!mkdtemp(ranks.folder))
		return 1;
	for (uint32_t i = 0; i < ranks.n; i++) {
		snprintf(ranks.text[i], sizeof(ranks.text[i]), "%s/%u", ranks.folder, i);
		ranks.addresses[i] = ranks.text[i];
	}
	return 0;
}

static int drop_addresses(void **state)
{
	(void)state;
	return rmdir(ranks.folder);
}

static void read_names(const char *text)
{
	for (ranks.n = 0; *text && ranks.n < RANKS_MAX; ranks.n++) {
		size_t n = strcspn(text, ",");

		snprintf(ranks.names[ranks.n], sizeof(ranks.names[0]), "%.*s", (int)n, text);
		text += n + (text[n] == ',');
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_processes_that_share_tokens_answer_as_one,
						make_addresses, drop_addresses),
		cmocka_unit_test_setup_teardown(test_a_process_that_never_answers_ends_them_in_time,
						make_addresses, drop_addresses),
		cmocka_unit_test_setup_teardown(test_a_process_that_never_answers_keeps_no_memory,
						make_addresses, drop_addresses),
		cmocka_unit_test_setup_teardown(
			test_a_process_that_dies_before_it_meets_ends_them_in_time, make_addresses,
			drop_addresses),
		cmocka_unit_test_setup_teardown(test_processes_that_differ_say_in_what,
						make_addresses, drop_addresses),
		cmocka_unit_test_setup_teardown(test_devices_of_processes_are_of_one_kind,
						make_addresses, drop_addresses),
		cmocka_unit_test_setup_teardown(test_heads_are_not_shared_by_processes,
						make_addresses, drop_addresses),
		cmocka_unit_test_setup_teardown(
			test_a_process_that_cannot_open_its_device_keeps_nobody_waiting,
			make_addresses, drop_addresses),
	};
	const char *names = getenv("COPPICE_DEVICES");

	ranks.n = 4;
	ranks.module = argc > 1 ? argv[1] : NULL;
	if (ranks.module) {
		read_names(names ? names : "");
		if (ranks.n < 2) {
			fprintf(stderr, "group_ranks_test: COPPICE_DEVICES names no two GPUs\n");
			return SKIPPED;
		}
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
