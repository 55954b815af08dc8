/*
 * modelled.c - the backend that computes nothing, the clock that jumps to what happens next, and
 * clients who ask again when they have had their answer and their pause.
 */
#include "modelled.h"

#include "daemon/sched/core/turns.h"
#include "daemon/sched/round.h"
#include "proto/arith.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define ARENA_BYTES (UINT64_C(1) << 20)
#define CHUNK_TOKENS 32768u /* of a prompt: fits an entry's body */
#define MOMENT_NS 5000u /* a client's that comes back soon */
#define PATIENCE_ROUNDS 1000000u

static const struct work_shape shape = {.n_layers = 1,
					.n_q_heads = 1,
					.n_kv_heads = 1,
					.head_dim = 16,
					.page_tokens = 64,
					.dtype = WORK_FP32};

static struct {
	struct modelled *of;
	uint64_t now_ns, end_ns; /* the batch's */
	uint64_t last_id, busy_ns;
	double estimate_ns; /* before the batch, and a part of it */
} world;

uint64_t modelled_now_ns(void)
{
	return world.now_ns;
}

static void model_cost(struct backend *b, const struct work_shape *of, struct backend_cost *ret)
{
	double key_bytes = 2.0 * of->head_dim * (double)work_dtype_bytes(of->dtype);

	(void)b;
	*ret = (struct backend_cost){.fixed_ns = world.of->fixed_ns,
				     .kv_ns_per_byte = world.of->token_ns / key_bytes,
				     .row_ns_per_byte = world.of->pair_ns / key_bytes};
}

static struct modelled_client *owner(uint64_t address)
{
	for (uint32_t i = 0; i < world.of->n_clients; i++) {
		struct modelled_client *client = &world.of->clients[i];
		if (address - (uintptr_t)client->c.arena < ARENA_BYTES)
			return client;
	}
	return NULL;
}

/* Arithmetic is its client's, and so is reading what no query of the user's has read before. */
static double query_ns(const struct backend_job *job, uint32_t query, uint32_t *read)
{
	const struct work_query *q = &job->tree->queries[query];
	struct modelled_client *client = owner(job->io[query].k);
	uint32_t end = q->pos + q->n_rows;
	double ns = 0;

	if (q->n_rows > world.of->most_rows)
		world.of->most_rows = q->n_rows;
	for (uint32_t row = 0; row < q->n_rows; row++)
		ns += (q->pos + row + 1) * world.of->pair_ns * job->shape->n_q_heads;
	client->had_ns += ns;
	client->rows_ns += ns;
	if (end > read[client->user]) {
		client->had_ns += (end - read[client->user]) * world.of->token_ns;
		read[client->user] = end;
	}
	return ns;
}

/* Nothing is known, so that every block matters as much; whoever asks waits for it. */
static int model_estimate(struct backend *b, const struct backend_estimate *e,
			  const float **ret_mass)
{
	static float mass[MODELLED_BLOCKS];
	uint32_t n = ceil_div(e->n_q, e->block_tokens) * ceil_div(e->n_k, e->block_tokens);

	(void)b;
	assert_in_range(n, 1, MODELLED_BLOCKS);
	for (uint32_t i = 0; i < n; i++)
		mass[i] = 1;
	world.estimate_ns = MODELLED_ESTIMATE_READS * e->n_k * world.of->token_ns;
	world.now_ns += (uint64_t)(world.estimate_ns * world.of->slowness);
	world.of->n_estimates++;
	*ret_mass = mass;
	return 0;
}

/* Of sparse prefill, before its blocks are chosen, and of who brings KV alone. */
static bool only_appends(const struct backend_batch *batch)
{
	return batch->n_jobs == 1 && batch->jobs[0].tree->n_queries == 1 && !batch->jobs[0].io[0].o;
}

static int model_submit(struct backend *b, const struct backend_batch *batch, uint64_t *ret_id)
{
	double ns = 0;

	(void)b;
	*ret_id = ++world.last_id;
	if (only_appends(batch)) {
		world.of->n_appends++;
		world.of->n_appends_planned += batch->jobs[0].list->n_tiles;
		return 0;
	}
	for (uint32_t i = 0; i < batch->n_jobs; i++) {
		const struct backend_job *job = &batch->jobs[i];

		world.of->most_slices = max_u64(world.of->most_slices, job->tree->n_slices);
		uint32_t read[MODELLED_CLIENTS] = {0};

		ns += world.of->fixed_ns + (double)job->list->kv_tokens_read * world.of->token_ns;
		for (uint32_t q = 0; q < job->tree->n_queries; q++)
			ns += query_ns(job, q, read);
	}
	if (ns + world.estimate_ns > world.of->longest_ns)
		world.of->longest_ns = ns + world.estimate_ns;
	world.estimate_ns = 0;
	world.of->n_batches++;
	ns *= world.of->slowness;
	world.now_ns += (uint64_t)(world.of->submit_ns + (world.of->holds ? ns : 0));
	world.busy_ns += (uint64_t)ns;
	world.end_ns = world.now_ns + (uint64_t)(world.of->holds ? 0 : ns);
	return 0;
}

static void model_counters(struct backend *b, struct backend_counters *ret)
{
	(void)b;
	*ret = (struct backend_counters){.busy_ns = world.busy_ns};
}

static int model_completed(struct backend *b, uint64_t *ret_id)
{
	(void)b;
	*ret_id = world.last_id - (world.now_ns < world.end_ns);
	return 0;
}

/* KV takes no memory: nobody reads or writes it. */
static int model_commit(struct backend *b, uint32_t extent)
{
	(void)b;
	(void)extent;
	return 0;
}

static void model_release(struct backend *b, uint32_t extent)
{
	(void)b;
	(void)extent;
}

static struct backend_ops ops;

struct modelled *modelled_new(void)
{
	struct modelled *m = calloc(1, sizeof(*m));

	ops = backend_cpu;
	ops.extent_commit = model_commit;
	ops.extent_release = model_release;
	ops.submit = model_submit;
	ops.completed = model_completed;
	ops.counters = model_counters;
	ops.cost = model_cost;
	ops.estimate = model_estimate;
	ops.choose = NULL;
	world.of = m;
	m->moment_ns = MOMENT_NS;
	m->n_q_heads = 1;
	m->pair_ns = MODELLED_PAIR_NS;
	m->token_ns = MODELLED_TOKEN_NS;
	m->fixed_ns = MODELLED_FIXED_NS;
	m->slowness = 1;
	world.now_ns = world.end_ns = 1000000000;
	world.last_id = 0;
	world.busy_ns = 0;
	world.estimate_ns = 0;
	harness_init(&m->h);
	m->h.ops = &ops;
	m->h.stepped = true;
	m->h.config.pool_bytes = 512u << 20;
	m->h.config.max_seqs = 1024;
	m->h.config.batch_window = CONFIG_WINDOW_NEVER;
	return m;
}

void modelled_on(struct modelled *m, enum modelled_backend backend)
{
	static const struct {
		double token_ns, pair_ns, fixed_ns;
	} costs[MODELLED_BACKENDS] = {
		[TWO_CORES] = {MODELLED_TOKEN_NS, MODELLED_PAIR_NS, MODELLED_FIXED_NS},
		[TWO_CORES_WITHOUT_VECTORS] = {MODELLED_TOKEN_NS, 641, MODELLED_FIXED_NS},
		[ONE_CORE] = {2 * MODELLED_TOKEN_NS, 2 * MODELLED_PAIR_NS, MODELLED_FIXED_NS},
		[MOST_CORES] = {MODELLED_TOKEN_NS / 512, MODELLED_PAIR_NS / 512, MODELLED_FIXED_NS},
		[H200] = {1.8, 0.018, 12000},
		[FOUR_H200] = {1.8 / 4, 0.018 / 4, 40000},
	};

	m->token_ns = costs[backend].token_ns;
	m->pair_ns = costs[backend].pair_ns;
	m->fixed_ns = costs[backend].fixed_ns;
}

double modelled_most_ns(const struct modelled *m, uint32_t n_tokens, uint32_t n_nodes)
{
	double name_ns = PAGE_NS / shape.page_tokens;
	double token_ns = m->token_ns > name_ns ? m->token_ns : name_ns;
	double read_ns = m->fixed_ns + n_tokens * token_ns + n_nodes * NODE_NS;
	double row_ns = n_tokens * m->pair_ns * m->n_q_heads;
	double budget_ns = m->h.config.batch_budget_ms * 1e6;
	double least_ns = read_ns + (row_ns > read_ns ? row_ns : read_ns);

	return budget_ns > least_ns ? budget_ns : least_ns;
}

static uint32_t n_again(const struct modelled *m, const struct modelled_client *client)
{
	return client->user == 1 ? m->first_again : m->others_again;
}

/* Until the client asks again; at once where since_ns is 0. */
static uint64_t pause_ns(struct modelled *m, const struct modelled_client *client,
			 uint64_t since_ns)
{
	if (since_ns == 0 || client->user == 1 || m->gap_ns == 0)
		return since_ns;
	m->random = m->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return since_ns + (m->random >> 33) % m->gap_ns;
}

/* Those who have had what they asked for since so long. */
static void ask_again(struct modelled *m, uint64_t since_ns)
{
	for (uint32_t i = 0; i < m->n_clients; i++) {
		struct modelled_client *client = &m->clients[i];

		if (!n_again(m, client) || !modelled_has(client))
			continue;
		if (!client->again_ns)
			client->again_ns = world.now_ns + pause_ns(m, client, since_ns);
		if (client->again_ns > world.now_ns)
			continue;
		client->again_ns = 0;
		modelled_ask(m, client, n_again(m, client));
	}
}

/* When a client asks again, or the batch ends. */
static uint64_t next_ns(const struct modelled *m)
{
	uint64_t next = world.end_ns > world.now_ns ? world.end_ns : UINT64_MAX;

	for (uint32_t i = 0; i < m->n_clients; i++) {
		uint64_t again_ns = m->clients[i].again_ns;

		if (again_ns > world.now_ns && again_ns < next)
			next = again_ns;
	}
	return next < UINT64_MAX ? next : world.now_ns + m->moment_ns;
}

/* The scheduler looks at it right after completions. */
static uint64_t look_at_clock(void)
{
	if (world.of->instantly)
		ask_again(world.of, 0);
	return world.now_ns;
}

void modelled_start(struct modelled *m)
{
	ops.unseen = m->unseen;
	ops.wants_rows = m->wants_rows;
	harness_start(&m->h);
	m->h.sched->core.clock = look_at_clock;
}

void modelled_free(struct modelled *m)
{
	m->first_again = m->others_again = 0;
	for (uint32_t i = 0; i < m->n_clients; i++)
		while (!modelled_has(&m->clients[i]))
			modelled_round(m);
	for (uint32_t i = 0; i < m->n_clients; i++)
		client_end(&m->clients[i].c);
	harness_stop(&m->h);
	free(m);
}

void modelled_round(struct modelled *m)
{
	sched_round(m->h.sched);
	ask_again(m, m->moment_ns);
	world.now_ns = next_ns(m);
	ask_again(m, m->moment_ns);
	for (uint32_t i = 0; i < m->n_clients; i++) {
		struct modelled_client *client = &m->clients[i];
		double ns = (double)(world.now_ns - client->asked_ns);

		if (!modelled_has(client) && ns > client->longest_ns)
			client->longest_ns = ns;
	}
}

bool modelled_has(const struct modelled_client *client)
{
	return ring_done(client->c.lane) == client->c.ticket;
}

void modelled_await(struct modelled *m, struct modelled_client *client)
{
	for (uint32_t i = 0; !modelled_has(client); i++) {
		assert_true(i < PATIENCE_ROUNDS);
		modelled_round(m);
	}
	assert_int_equal(ring_completion(client->c.lane, client->c.ticket).status, 0);
	client->n_steps++;
}

static uint64_t extend(struct modelled_client *client, uint64_t seq, uint32_t n_new)
{
	static const uint32_t ids[CHUNK_TOKENS];
	struct abi_entry entry = {.kind = ABI_EXTEND, .seq = seq, .count = n_new};

	return client_submit(&client->c, entry, ids, n_new * sizeof(*ids));
}

static void ask_step(struct modelled_client *client, const uint64_t *seqs, uint32_t n_seqs,
		     uint32_t n_new, uint32_t flags)
{
	const struct abi_entry step = {.kind = ABI_STEP, .count = n_seqs, .flags = flags};
	struct abi_step_seq *recs = calloc(n_seqs, sizeof(*recs));

	for (uint32_t i = 0; i < n_seqs; i++) {
		/* all rows of all sequences have their tensors in one place */
		recs[i] = client_step_seq(&client->c, seqs[i], 1);
		recs[i].n_new = n_new;
		recs[i].q_stride = recs[i].k_stride = recs[i].v_stride = recs[i].o_stride = 0;
	}
	client->asked_ns = world.now_ns;
	client_submit(&client->c, step, recs, n_seqs * (uint32_t)sizeof(*recs));
	free(recs);
}

void modelled_ask_all(struct modelled *m, struct modelled_client *client, const uint64_t *seqs,
		      uint32_t n_seqs, uint32_t n_new)
{
	for (uint32_t i = 0; i < n_seqs; i++) {
		uint64_t ticket = extend(client, seqs[i], n_new);

		/* of one it is there with the step, before anybody else's turn comes */
		if (n_seqs > 1)
			client_wait(&client->c, ticket);
	}
	modelled_ask_step(m, client, seqs, n_seqs, n_new);
}

void modelled_ask_step(struct modelled *m, struct modelled_client *client, const uint64_t *seqs,
		       uint32_t n_seqs, uint32_t n_new)
{
	(void)m;
	ask_step(client, seqs, n_seqs, n_new, 0);
}

void modelled_ask(struct modelled *m, struct modelled_client *client, uint32_t n_new)
{
	modelled_ask_all(m, client, &client->seq, 1, n_new);
}

/* The first session of a user brings the KV of what the others find. */
struct modelled_client *modelled_join(struct modelled *m, uint32_t user, uint32_t n_tokens)
{
	static const uint32_t ids[1 << 20];
	struct modelled_client *client = &m->clients[m->n_clients++];
	struct work_shape of = shape;
	uint32_t budget_ms = m->h.config.batch_budget_ms;
	struct store_match match;

	assert_true(m->n_clients <= MODELLED_CLIENTS);
	client->user = user;
	of.n_q_heads = m->n_q_heads;
	client_start(&client->c, &m->h, user, &of, ARENA_BYTES);
	assert_int_equal(client_open(&client->c, ids, n_tokens, &client->seq, &match), 0);
	m->h.config.batch_budget_ms = 60000;
	m->h.config.prefill_rows = 65536;
	for (uint32_t at = match.cached; at < n_tokens;) {
		uint32_t n = n_tokens - at < CHUNK_TOKENS ? n_tokens - at : CHUNK_TOKENS;
		extend(client, client->seq, n);
		ask_step(client, &client->seq, 1, n, ABI_STEP_APPEND_ONLY);
		modelled_await(m, client);
		at += n;
	}
	/* a step that leaves nobody behind: what that took is settled */
	m->h.config.batch_budget_ms = budget_ms;
	modelled_ask(m, client, 1);
	modelled_await(m, client);
	m->h.config.prefill_rows = 128;
	return client;
}

uint64_t modelled_open(struct modelled *m, struct modelled_client *client, uint32_t first)
{
	const uint32_t ids[] = {first, 0};
	struct abi_entry extend = {.kind = ABI_EXTEND, .count = 1};
	struct store_match match;
	uint64_t seq;

	assert_int_equal(client_open(&client->c, ids, 2, &seq, &match), 0);
	extend.seq = seq;
	assert_int_equal(client_do(&client->c, extend, ids, sizeof(*ids)).status, 0);
	modelled_ask_step(m, client, &seq, 1, 1);
	modelled_await(m, client);
	return seq;
}

void modelled_forget(struct modelled *m)
{
	m->longest_ns = 0;
	m->n_batches = 0;
	m->most_rows = 0;
	for (uint32_t i = 0; i < m->n_clients; i++) {
		m->clients[i].had_ns = m->clients[i].rows_ns = m->clients[i].longest_ns = 0;
		m->clients[i].n_steps = 0;
	}
}
