/*
 * peers_test.c - how devices find ways to each other: by stores, by NCCL, with other processes' or
 * not at all. The CUDA runtime's part is played here, NCCL's by fake_nccl.c, which lies where the
 * test's program looks for it.
 */
#include "fake_nccl.h"
#include "kernels/cuda/attend/append.h"
#include "kernels/cuda/device/bring.h"
#include "kernels/cuda/peers/nccl.h"
#include "kernels/cuda/peers/peer.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define DEVICES 3u
#define TIMEOUT_MS 50u
#define PATIENCE_MS 30000u /* with devices that come, however busy the machine is */

/* ---- the machine ---------------------------------------------------------------------------- */

static struct {
	struct cudaDeviceProp devices[DEVICES];
	bool reach[DEVICES][DEVICES]; /* from, to */
	_Atomic uint32_t n_blocks; /* of device memory */
	_Atomic uint32_t n_streams;
	_Atomic bool stuck; /* what NCCL is asked for does not end */
	_Atomic bool hung; /* what is on a stream does not */
} machine;

static _Thread_local int current;

static struct fake_nccl *nccl;

static bool is_busy(void)
{
	return machine.hung || (machine.stuck && nccl->n_gathers > 0);
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *prop, int device)
{
	*prop = machine.devices[device];
	return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
	current = device;
	return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int from, int to)
{
	*can = machine.reach[from][to];
	return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int to, unsigned int flags)
{
	(void)flags;
	return machine.reach[current][to] ? cudaSuccess : cudaErrorPeerAccessUnsupported;
}

cudaError_t cudaMalloc(void **ret, size_t bytes)
{
	assert_non_null(*ret = malloc(bytes));
	machine.n_blocks++;
	return cudaSuccess;
}

cudaError_t cudaFree(void *at)
{
	machine.n_blocks -= at != NULL;
	free(at);
	return cudaSuccess;
}

cudaError_t cudaMemset(void *at, int value, size_t bytes)
{
	memset(at, value, bytes);
	return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void)
{
	return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
	(void)stream;
	assert_false(is_busy());
	return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *ret, unsigned int flags)
{
	(void)flags;
	*ret = (cudaStream_t)&machine;
	machine.n_streams++;
	return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
	assert_ptr_equal(stream, &machine);
	machine.n_streams--;
	return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
	(void)stream;
	return is_busy() ? cudaErrorNotReady : cudaSuccess;
}

cudaError_t cudaHostAlloc(void **ret, size_t bytes, unsigned int flags)
{
	(void)flags;
	assert_non_null(*ret = malloc(bytes));
	return cudaSuccess;
}

cudaError_t cudaMallocHost(void **ret, size_t bytes)
{
	return cudaHostAlloc(ret, bytes, 0);
}

cudaError_t cudaFreeHost(void *at)
{
	free(at);
	return cudaSuccess;
}

cudaError_t cudaGetLastError(void)
{
	return cudaSuccess;
}

const char *cudaGetErrorString(cudaError_t error)
{
	(void)error;
	return "some error";
}

static struct {
	uint32_t exchange, signals, append, bring;
} n_loaded;

int device_exchange_init(void)
{
	n_loaded.exchange++;
	return cudaSuccess;
}

int device_signals_init(void)
{
	n_loaded.signals++;
	return cudaSuccess;
}

int device_append_init(void)
{
	n_loaded.append++;
	return cudaSuccess;
}

int device_bring_init(void)
{
	n_loaded.bring++;
	return cudaSuccess;
}

int device_exchange(const struct device_exchange *exchange, device_stream stream)
{
	(void)exchange;
	(void)stream;
	return cudaSuccess;
}

/* ---- meetings ------------------------------------------------------------------------------- */

struct meeting_of {
	struct queue queues[DEVICES];
	struct queue *members[DEVICES];
	struct peer *ends[DEVICES];
	int devices[DEVICES];
	uint32_t meet_ms;
	char notice[256], error[256];
};

static int setup(void **state)
{
	struct meeting_of *m = calloc(1, sizeof(*m));
	void *library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
	struct fake_nccl *(*find)(void);

	assert_non_null(library);
	*(void **)&find = dlsym(library, "fake_nccl_find");
	assert_non_null(find);
	nccl = find();
	memset(nccl, 0, sizeof(*nccl));
	m->meet_ms = PATIENCE_MS;
	memset(machine.reach, 0, sizeof(machine.reach));
	for (uint32_t i = 0; i < DEVICES; i++) {
		struct cudaDeviceProp *prop = &machine.devices[i];

		snprintf(prop->name, sizeof(prop->name), "GPU of tests");
		prop->major = 9;
		prop->multiProcessorCount = 132;
		m->devices[i] = (int)i;
		m->members[i] = &m->queues[i];
		for (uint32_t j = 0; j < DEVICES; j++)
			machine.reach[i][j] = true;
	}
	*state = m;
	return 0;
}

static void free_peers(struct meeting_of *m)
{
	for (uint32_t i = 0; i < DEVICES; i++) {
		peer_free(m->ends[i]);
		m->ends[i] = NULL;
	}
}

static void await_value(_Atomic uint32_t *n, uint32_t value)
{
	for (uint32_t i = 0; i < 5000 && *n != value; i++)
		usleep(1000);
	assert_int_equal(*n, value);
}

static int teardown(void **state)
{
	struct meeting_of *m = *state;

	free_peers(m);
	await_value(&machine.n_blocks, 0);
	await_value(&machine.n_streams, 0);
	await_value(&nccl->n_open, 0);
	free(m);
	unsetenv("COPPICE_EXCHANGE");
	unsetenv("FAKE_NCCL_REFUSE");
	return 0;
}

static int meet(struct meeting_of *m, uint32_t first, uint32_t n_all, const uint8_t *id)
{
	struct peer_config config = {.queues = m->members,
				     .devices = m->devices,
				     .n = DEVICES,
				     .first = first,
				     .n_all = n_all,
				     .id = id,
				     .timeout_ms = TIMEOUT_MS,
				     .meet_ms = m->meet_ms};

	return peer_meet(&config, m->ends, m->notice, m->error, sizeof(m->error));
}

static void assert_says(const char *text, const char *what)
{
	if (!strstr(text, what))
		fail_msg("\"%s\" lacks \"%s\"", text, what);
}

static void test_devices_that_reach_each_other_need_no_nccl(void **state)
{
	struct meeting_of *m = *state;

	assert_int_equal(meet(m, 0, DEVICES, NULL), 0);
	assert_int_equal(nccl->n_comms, 0);
	assert_string_equal(m->notice, "");
	for (uint32_t i = 0; i < DEVICES; i++)
		assert_non_null(peer_state_of(m->ends[i]));
}

/* Where one that is not loaded is first launched by a member alone, loading waits for the others,
 * who wait for that member. */
static void test_kernels_are_loaded_before_anybody_can_wait(void **state)
{
	memset(&n_loaded, 0, sizeof(n_loaded));
	assert_int_equal(meet(*state, 0, DEVICES, NULL), 0);
	assert_int_equal(n_loaded.exchange, DEVICES);
	assert_int_equal(n_loaded.signals, DEVICES);
	assert_int_equal(n_loaded.append, DEVICES);
	assert_int_equal(n_loaded.bring, DEVICES);
}

static struct device_exchange exchange_of(const struct peer *end)
{
	struct peer_rows rows = {.n_rows = 1, .n_heads = 1, .head_dim = 64};
	struct device_exchange x;

	peer_describe(end, &rows, &x);
	return x;
}

/* Of 132 multiprocessors, an exchange's block on each of which is one too many for attention. */
static void test_members_of_one_device_leave_room_for_who_is_awaited(void **state)
{
	struct meeting_of *m = *state;

	memset(m->devices, 0, sizeof(m->devices));
	assert_int_equal(meet(m, 0, DEVICES, NULL), 0);
	assert_in_range(DEVICES * exchange_of(m->ends[0]).most_blocks, 1, 132 / 2);
}

static void test_who_has_met_no_other_waits_for_none(void **state)
{
	uint32_t rank;

	(void)state;
	assert_false(peer_is_late(NULL, &rank));
}

static void test_devices_of_unlike_kinds_are_refused(void **state)
{
	struct meeting_of *m = *state;

	machine.devices[2].multiProcessorCount = 114;
	assert_int_equal(meet(m, 0, DEVICES, NULL), -EINVAL);
	assert_says(m->error, "device 2 is GPU of tests with 114: devices of a group are alike");
}

static void test_devices_that_do_not_reach_each_other_go_by_nccl_with_a_notice(void **state)
{
	struct meeting_of *m = *state;

	machine.reach[1][2] = false;
	assert_int_equal(meet(m, 0, DEVICES, NULL), 1);
	assert_says(m->notice,
		    "device 1 cannot reach the memory of device 2: they exchange by NCCL");
	assert_int_equal(nccl->n_comms, DEVICES);
	assert_int_equal(nccl->n_all, DEVICES);
	assert_int_equal(nccl->n_gathers, DEVICES);
	assert_null(peer_state_of(m->ends[0]));
}

static void test_what_is_missing_is_said_where_neither_way_is_there(void **state)
{
	struct meeting_of *m = *state;

	machine.reach[1][2] = false;
	setenv("FAKE_NCCL_REFUSE", "1", 1);
	assert_int_equal(meet(m, 0, DEVICES, NULL), -EIO);
	assert_says(m->error, "device 1 cannot reach the memory of device 2, and NCCL cannot do it "
			      "instead: NCCL: invalid usage");
}

static void test_nccl_is_taken_where_it_is_wanted(void **state)
{
	struct meeting_of *m = *state;

	setenv("COPPICE_EXCHANGE", "nccl", 1);
	assert_int_equal(meet(m, 0, DEVICES, NULL), 0);
	assert_int_equal(nccl->n_comms, DEVICES);
	assert_string_equal(m->notice, "");
}

static void test_one_gpu_is_not_two_ranks_of_nccl(void **state)
{
	struct meeting_of *m = *state;

	setenv("COPPICE_EXCHANGE", "nccl", 1);
	m->devices[2] = 0;
	assert_int_equal(meet(m, 0, DEVICES, NULL), -EIO);
	assert_says(m->error, "COPPICE_EXCHANGE=nccl: NCCL: a GPU is one rank");
}

static void test_devices_of_several_processes_are_ranks_of_one_communicator(void **state)
{
	uint8_t id[NCCL_ID_BYTES] = {'t'};
	struct meeting_of *m = *state;

	assert_int_equal(meet(m, 6, 12, id), 0);
	assert_int_equal(nccl->n_comms, DEVICES);
	assert_int_equal(nccl->n_all, 12);
	assert_int_equal(nccl->id, 't');
	for (uint32_t i = 0; i < DEVICES; i++)
		assert_int_equal(nccl->ranks[i], 6 + i);
}

/* Those of all other processes' devices, whoever's they are. */
static void test_rows_that_nccl_brings_are_counted(void **state)
{
	struct peer_rows rows = {.n_rows = 5, .n_heads = 2, .head_dim = 64};
	uint8_t id[NCCL_ID_BYTES] = {'t'};
	struct meeting_of *m = *state;
	struct peer *end;

	assert_int_equal(meet(m, 6, 12, id), 0);
	end = m->ends[1];
	assert_int_equal(peer_gathered_bytes(end), 0);
	assert_int_equal(peer_add(end, &rows), 0);
	assert_int_equal(peer_conclude(end), 0);
	assert_int_equal(peer_gathered_bytes(end), 11 * 5 * 2 * (64 * 2 + 4));
	assert_int_equal(peer_gathered_bytes(m->ends[0]), 0);
}

static void test_a_meeting_has_an_id(void **state)
{
	uint8_t id[NCCL_ID_BYTES] = {0};
	struct meeting_of *m = *state;

	assert_int_equal(nccl_id(id, m->error, sizeof(m->error)), 0);
	for (uint32_t i = 0; i < NCCL_ID_BYTES; i++)
		assert_int_equal(id[i], 'i');
}

static void test_what_waits_for_others_in_the_end_is_given_up(void **state)
{
	struct meeting_of *m = *state;

	setenv("COPPICE_EXCHANGE", "nccl", 1);
	assert_int_equal(meet(m, 0, DEVICES, NULL), 0);
	assert_true(peer_await_end(m->ends[0]));
	assert_int_equal(nccl->n_open, DEVICES);
	machine.stuck = true;
	assert_false(peer_await_end(m->ends[1]));
	machine.stuck = false;
	await_value(&nccl->n_aborted, 1);
}

static void test_what_waits_for_others_stores_is_told_that_they_are_given_up(void **state)
{
	struct meeting_of *m = *state;
	uint32_t rank = 0;

	assert_int_equal(meet(m, 0, DEVICES, NULL), 0);
	assert_false(peer_is_late(m->ends[0], &rank));
	*exchange_of(m->ends[1]).late = 1 + 2;
	for (uint32_t i = 0; i < 2; i++)
		peer_give_up(m->ends[i]);
	assert_true(peer_is_late(m->ends[0], &rank));
	assert_int_equal(rank, PEER_GIVEN_UP);
	assert_true(peer_is_late(m->ends[1], &rank));
	assert_int_equal(rank, 2);
	assert_false(peer_is_late(m->ends[2], &rank));
}

static void test_what_others_stores_keep_waiting_in_the_end_is_given_up(void **state)
{
	struct meeting_of *m = *state;
	uint32_t rank;

	assert_int_equal(meet(m, 0, DEVICES, NULL), 0);
	assert_true(peer_await_end(m->ends[0]));
	machine.hung = true;
	assert_false(peer_await_end(m->ends[1]));
	machine.hung = false;
	assert_false(peer_is_late(m->ends[0], &rank));
	assert_true(peer_is_late(m->ends[1], &rank));
	assert_int_equal(rank, PEER_GIVEN_UP);
}

/* Neither to give up nor to end takes longer because another process does neither. */
static void test_a_process_that_does_not_end_keeps_nobody_from_it(void **state)
{
	struct meeting_of *m = *state;

	setenv("COPPICE_EXCHANGE", "nccl", 1);
	assert_int_equal(meet(m, 0, DEVICES, NULL), 0);
	nccl->silent = true;
	peer_give_up(m->ends[0]);
	free_peers(m);
	assert_int_equal(nccl->n_open, DEVICES);
	nccl->silent = false;
}

static void test_devices_that_do_not_answer_by_nccl_have_not_met(void **state)
{
	struct meeting_of *m = *state;

	setenv("COPPICE_EXCHANGE", "nccl", 1);
	machine.stuck = true;
	m->meet_ms = TIMEOUT_MS;
	assert_int_equal(meet(m, 0, DEVICES, NULL), -ETIMEDOUT);
	assert_says(m->error, "not all of 3 devices have come for 50 ms");
	await_value(&nccl->n_aborted, DEVICES);
	machine.stuck = false;
}

/* Whatever waits for the stream: here, for room. */
static void test_what_is_under_way_by_nccl_is_waited_for_so_long(void **state)
{
	struct meeting_of *m = *state;
	struct queue *q = &m->queues[0];
	struct queue_buffer buffer = {0};

	setenv("COPPICE_EXCHANGE", "nccl", 1);
	assert_int_equal(meet(m, 0, DEVICES, NULL), 0);
	assert_int_equal(queue_grow(q, &buffer, 1), 0);
	machine.stuck = true;
	assert_int_equal(queue_grow(q, &buffer, 2 * buffer.bytes), -EIO);
	assert_int_equal(q->error, cudaErrorTimeout);
	assert_true(q->failed);
	assert_int_equal(queue_await(q), -EIO);
	machine.stuck = false;
	cudaFree(buffer.at);
}

/* An exchange ends by itself before that, so it is the device. What failed otherwise is waited for
 * as ever. */
static void test_a_device_of_a_group_is_waited_for_so_long(void **state)
{
	struct meeting_of *m = *state;
	struct queue *q = &m->queues[0];

	assert_int_equal(meet(m, 0, DEVICES, NULL), 0);
	assert_true(q->patience_ns > TIMEOUT_MS * UINT64_C(1000000));
	assert_true(peer_await_end(NULL));
	q->failed = true;
	assert_int_equal(queue_await(q), 0);
	machine.hung = true;
	assert_int_equal(queue_await(q), -EIO);
	assert_int_equal(q->error, cudaErrorTimeout);
	assert_true(q->stuck);
	machine.hung = false;
	assert_int_equal(queue_await(q), -EIO);
}

/* Which may come back long after nobody waits for it any more. */
static void test_a_process_that_dies_before_it_meets_keeps_nobody_waiting(void **state)
{
	uint8_t id[NCCL_ID_BYTES] = {'t'};
	struct meeting_of *m = *state;

	nccl->absent = true;
	m->meet_ms = TIMEOUT_MS;
	assert_int_equal(meet(m, 3, 12, id), -ETIMEDOUT);
	assert_says(m->error,
		    "with other processes: NCCL: not all of 12 devices have come for 50 ms");
	assert_int_equal(nccl->n_aborted, 0);
	nccl->absent = false;
	await_value(&nccl->n_aborted, DEVICES);
	assert_int_equal(nccl->n_gathers, DEVICES);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		CASE(test_devices_that_reach_each_other_need_no_nccl),
		CASE(test_kernels_are_loaded_before_anybody_can_wait),
		CASE(test_members_of_one_device_leave_room_for_who_is_awaited),
		CASE(test_who_has_met_no_other_waits_for_none),
		CASE(test_devices_of_unlike_kinds_are_refused),
		CASE(test_devices_that_do_not_reach_each_other_go_by_nccl_with_a_notice),
		CASE(test_what_is_missing_is_said_where_neither_way_is_there),
		CASE(test_nccl_is_taken_where_it_is_wanted),
		CASE(test_one_gpu_is_not_two_ranks_of_nccl),
		CASE(test_devices_of_several_processes_are_ranks_of_one_communicator),
		CASE(test_rows_that_nccl_brings_are_counted),
		CASE(test_a_meeting_has_an_id),
		CASE(test_what_waits_for_others_in_the_end_is_given_up),
		CASE(test_what_waits_for_others_stores_is_told_that_they_are_given_up),
		CASE(test_what_others_stores_keep_waiting_in_the_end_is_given_up),
		CASE(test_a_device_of_a_group_is_waited_for_so_long),
		CASE(test_a_process_that_does_not_end_keeps_nobody_from_it),
		CASE(test_devices_that_do_not_answer_by_nccl_have_not_met),
		CASE(test_a_process_that_dies_before_it_meets_keeps_nobody_waiting),
		CASE(test_what_is_under_way_by_nccl_is_waited_for_so_long),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
