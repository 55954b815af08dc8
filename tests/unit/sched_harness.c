/*
 * sched_harness.c - the scheduler's thread, or rounds that the test goes itself, and clients with a
 * lane, an arena and memory of their own, who wait on the ring.
 */
#include "sched_harness.h"

#include "daemon/control/arenas.h"
#include "daemon/control/evict.h"
#include "daemon/control/lanes.h"
#include "daemon/control/seqs.h"
#include "daemon/control/verbs.h"
#include "daemon/sched/verbs/models.h"
#include "daemon/sched/verbs/sessions.h"
#include "daemon/sched/seq/wait.h"

#include "daemon/sched/round.h"
#include "proto/clock.h"

#include <errno.h>
#include <linux/futex.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/poll.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define PATIENCE_MS 20000
#define SPINS 1000

void harness_init(struct harness *h)
{
	*h = (struct harness){0};
	h->ops = &backend_cpu;
	config_init(&h->config);
	h->config.extent_bytes = 2u << 20;
	h->config.pool_bytes = 64u << 20;
	h->config.domain_percent = 100; /* one client may fill it */
	h->config.n_threads = 2;
	h->config.max_seqs = 64;
}

void harness_start(struct harness *h)
{
	struct backend_config backend = {.pool_bytes = h->config.pool_bytes,
					 .extent_bytes = h->config.extent_bytes,
					 .n_threads = h->config.n_threads};
	char error[200] = "";

	h->board = mmap(NULL, ABI_BOARD_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
			-1, 0);
	assert_ptr_not_equal(h->board, MAP_FAILED);
	assert_int_equal(h->ops->open(&backend, &h->backend, error, sizeof(error)), 0);
	int r = (h->stepped ? sched_make : sched_new)(&h->config, h->ops, h->backend, h->board,
						      &h->sched);

	assert_int_equal(r, 0);
}

void harness_stop(struct harness *h)
{
	sched_free(h->sched);
	h->ops->close(h->backend);
	munmap(h->board, ABI_BOARD_BYTES);
}

struct sched_request *harness_next_reply(struct harness *h)
{
	struct pollfd p = {.fd = sched_reply_fd(h->sched), .events = POLLIN};
	struct sched_request *request;

	while (!(request = sched_reap(h->sched))) {
		uint64_t count;

		if (h->stepped) {
			sched_round(h->sched);
			continue;
		}

		assert_int_equal(poll(&p, 1, PATIENCE_MS), 1);
		assert_int_equal(read(p.fd, &count, sizeof(count)), sizeof(count));
	}
	return request;
}

int harness_call(struct harness *h, struct sched_request *request)
{
	sched_post(h->sched, request);
	assert_ptr_equal(harness_next_reply(h), request);
	return request->code;
}

struct sched_status harness_status(struct harness *h)
{
	struct sched_status status;
	struct sched_request rq = {.serve = verb_status.serve, .privileged = true, .room = &status};

	assert_int_equal(harness_call(h, &rq), 0);
	return status;
}

void harness_evict(struct harness *h, uint64_t n_pages)
{
	struct evict_call call = {.n_pages = n_pages};
	struct sched_request rq = {.serve = verb_evict.serve, .room = &call};

	assert_int_equal(harness_call(h, &rq), 0);
}

static void add_model(struct client *c, const struct work_shape *shape)
{
	struct model_call call = {.name = "test", .shape = *shape};
	struct sched_request rq = {.serve = verb_model_open.serve,
				   .session = c->session,
				   .room = &call};

	assert_int_equal(harness_call(c->h, &rq), 0);
	c->model = call.model;
	c->shape = *shape;
}

void client_start(struct client *c, struct harness *h, uint64_t domain,
		  const struct work_shape *shape, uint64_t arena_bytes)
{
	*c = (struct client){.h = h,
			     .arena_bytes = arena_bytes,
			     .doorbell = eventfd(0, EFD_NONBLOCK)};
	struct session_add_call add = {++h->next_session, domain, c->doorbell, NULL};
	struct sched_request rq = {.serve = sched_session_add, .room = &add};

	assert_int_equal(harness_call(h, &rq), 0);
	c->session = add.session;
	c->arena =
		mmap(NULL, arena_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct arena_call arena = {1, c->arena, arena_bytes};

	rq = (struct sched_request){.serve = verb_arena_new.serve,
				    .session = c->session,
				    .room = &arena};
	assert_int_equal(harness_call(h, &rq), 0);
	c->lane = mmap(NULL, sizeof(*c->lane), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		       -1, 0);
	struct lane_call lane = {1, c->lane, -1};

	rq = (struct sched_request){.serve = verb_lane_seal.serve,
				    .session = c->session,
				    .room = &lane};
	assert_int_equal(harness_call(h, &rq), 0);
	add_model(c, shape);
}

void client_end(struct client *c)
{
	struct session_end_call end = {0};
	struct sched_request rq = {.serve = sched_session_end, .session = c->session, .room = &end};

	do
		assert_int_equal(harness_call(c->h, &rq), 0);
	while (end.more);
	client_unmap(c);
}

void client_unmap(struct client *c)
{
	munmap(c->arena, c->arena_bytes);
	munmap(c->lane, sizeof(*c->lane));
	close(c->doorbell);
}

uint64_t client_submit(struct client *c, struct abi_entry entry, const void *body,
		       uint32_t body_bytes)
{
	entry.ticket = ++c->ticket;
	entry.body = ring_slot(entry.ticket) % 4 * ABI_BODY_MAX_BYTES;
	entry.body_bytes = body_bytes;
	if (body_bytes)
		memcpy(c->lane->bodies + entry.body, body, body_bytes);
	c->lane->entries[ring_slot(entry.ticket)] = entry;
	ring_publish(c->lane, entry.ticket);
	if (ring_daemon_asleep(c->h->board))
		ring_doorbell(c->doorbell);
	return entry.ticket;
}

static void sleep_on_done(struct abi_lane *lane, uint64_t ticket)
{
	const struct timespec patience = {.tv_sec = PATIENCE_MS / 1000};
	uint64_t done;

	atomic_fetch_add_explicit(&lane->sleepers, 1, memory_order_relaxed);
	atomic_thread_fence(memory_order_seq_cst);
	done = ring_done(lane);
	if (done < ticket) {
		long r = syscall(SYS_futex, ring_done_futex(lane), FUTEX_WAIT, (uint32_t)done,
				 &patience, NULL, 0);

		assert_true(r == 0 || errno != ETIMEDOUT);
	}
	atomic_fetch_sub_explicit(&lane->sleepers, 1, memory_order_relaxed);
}

struct abi_completion client_wait(struct client *c, uint64_t ticket)
{
	for (uint32_t i = 0; ring_done(c->lane) < ticket; i++) {
		if (c->h->stepped)
			sched_round(c->h->sched);
		else if (i >= SPINS)
			sleep_on_done(c->lane, ticket);
	}
	return ring_completion(c->lane, ticket);
}

struct abi_completion client_do(struct client *c, struct abi_entry entry, const void *body,
				uint32_t body_bytes)
{
	return client_wait(c, client_submit(c, entry, body, body_bytes));
}

uint32_t *client_tokens(const uint32_t *tokens, uint32_t n)
{
	uint32_t *copy = malloc(n * sizeof(*copy));

	assert_non_null(copy);
	memcpy(copy, tokens, n * sizeof(*copy));
	return copy;
}

int client_open(struct client *c, const uint32_t *tokens, uint32_t n, uint64_t *ret_seq,
		struct store_match *ret_match)
{
	struct seq_open_call open = {.model = c->model,
				     .lane = 1,
				     .tokens = client_tokens(tokens, n),
				     .n_tokens = n};
	struct sched_request rq = {.serve = verb_seq_open.serve,
				   .beside = verb_seq_open.beside,
				   .session = c->session,
				   .room = &open};
	int r = harness_call(c->h, &rq);

	free(open.tokens);
	if (r == 0) {
		*ret_seq = open.seq;
		*ret_match = open.match;
	}
	return r;
}

struct store_match client_await(struct client *c, uint64_t seq, struct store_match match)
{
	struct seq_wait_call call = {.seq = seq, .for_ns = PATIENCE_MS * NS_PER_MS};
	struct sched_request rq = {.serve = verb_seq_wait.serve,
				   .session = c->session,
				   .room = &call};

	if (!match.pending)
		return match;
	assert_int_equal(harness_call(c->h, &rq), 0);
	return call.match;
}

int client_close(struct client *c, uint64_t seq)
{
	struct sched_request rq = {.serve = verb_seq_close.serve,
				   .beside = verb_seq_close.beside,
				   .session = c->session,
				   .room = &seq};

	return harness_call(c->h, &rq);
}

struct abi_completion client_extend(struct client *c, uint64_t seq, const uint32_t *ids, uint32_t n)
{
	return client_do(c, (struct abi_entry){.kind = ABI_EXTEND, .seq = seq, .count = n}, ids,
			 n * 4);
}

struct abi_step_seq client_step_seq(const struct client *c, uint64_t seq, uint32_t n)
{
	uint32_t elt = (uint32_t)work_dtype_bytes(c->shape.dtype);
	uint32_t q_row = c->shape.n_q_heads * c->shape.head_dim * elt;
	uint32_t k_row = c->shape.n_kv_heads * c->shape.head_dim * elt;

	return (struct abi_step_seq){
		.seq = seq,
		.q = 0,
		.k = (uint64_t)n * q_row,
		.v = (uint64_t)n * (q_row + k_row),
		.o = (uint64_t)n * (q_row + 2 * k_row),
		.lse = ABI_NO_OFFSET,
		.q_stride = q_row,
		.k_stride = k_row,
		.v_stride = k_row,
		.o_stride = q_row,
		.n_new = n,
		.arena_in = 1,
		.arena_out = 1,
	};
}

struct abi_completion client_step(struct client *c, const struct abi_step_seq *rec, uint32_t layer)
{
	return client_do(c, (struct abi_entry){.kind = ABI_STEP, .count = 1, .layer = layer}, rec,
			 sizeof(*rec));
}

void client_compute(struct client *c, uint64_t seq, const uint32_t *ids, uint32_t n)
{
	struct abi_step_seq rec = client_step_seq(c, seq, n);

	assert_int_equal(client_extend(c, seq, ids, n).status, 0);
	for (uint32_t layer = 0; layer < c->shape.n_layers; layer++)
		assert_int_equal(client_step(c, &rec, layer).status, 0);
}
