/*
 * soak_test.c - batches of random shapes through one daemon, for as many as COPPICE_SOAK_BATCHES
 * says: prompts that share documents, chunks, single tokens, draft trees, trims, forks and closings
 * of three models at once, with the pool too small for all of it. Every answer is looked at
 * somewhere; what the daemon and the device hold may not grow. argv[1] is the daemon's program;
 * COPPICE_SEED repeats a run.
 *
 * Q is zero, so that a row's answer is the mean of V over what it sees; V is made of token,
 * position and layer.
 */
#include "../fuzz/honest.h"
#include "client/coppice.h"
#include "control_harness.h"
#include "element.h"
#include "tests/sanitized.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define N_SESSIONS 3u
#define N_SEQS 12u
#define N_LAYERS 2u
#define N_DOCUMENTS 4u
#define MAX_TOKENS 2600u
#define DOCUMENT_TOKENS 2000u
#define MAX_PARTS 6u
#define MAX_NEW 64u
#define ARENA_BYTES (UINT64_C(8) << 20)
#define PATIENCE_NS UINT64_C(20000000000)
#define BATCHES 600u
#define MIB 1048576.0
/* What may still come after a fifth of the run: what is left of the pool, and buffers that grow
 * with the largest batch so far and never shrink. A sanitizer keeps what was freed. */
#define MAX_GROWTH_MIB (SANITIZED ? 1024.0 : 64.0)

static const struct {
	uint32_t n_q_heads, n_kv_heads, head_dim;
} shapes[N_SESSIONS] = {{8, 2, 128}, {4, 4, 64}, {16, 1, 64}};

struct sequence {
	struct coppice_seq *handle; /* owned; NULL: none */
	uint32_t ids[MAX_TOKENS];
	uint32_t n; /* tokens that are there */
	uint32_t n_prompt; /* up to here ids are known and still to be computed */
};

/* One sequence's part of a step, with the tokens that it adds. */
struct part {
	struct sequence *seq;
	uint32_t n_new;
	bool draft;
	uint32_t parents[MAX_NEW];
};

struct session {
	struct coppice *c; /* owned, and what follows */
	struct coppice_arena *arena;
	struct coppice_lane *lane;
	struct sequence seqs[N_SEQS];
	uint32_t model, index;
	struct part parts[MAX_PARTS];
	struct coppice_step_seq step[MAX_PARTS];
	uint32_t n_parts;
	uint64_t ticket;
};

struct soak {
	struct harness *h;
	struct client watch;
	struct session sessions[N_SESSIONS];
	uint64_t random;
	uint64_t n_rows, n_checked, n_full;
};

static uint32_t below(struct soak *s, uint32_t n)
{
	s->random = s->random * UINT64_C(6364136223846793005) + 1442695040888963407u;
	return (uint32_t)((s->random >> 33) % n);
}

/* ---- what is right -------------------------------------------------------------------------- */

static float v_of(uint32_t id, uint32_t pos, uint32_t layer, uint32_t d)
{
	uint64_t x = ((uint64_t)id << 32 | pos) * UINT64_C(0x9e3779b97f4a7c15) + layer * 7919 +
		     d * 104729;

	x = (x ^ x >> 31) * UINT64_C(0xbf58476d1ce4e5b9);
	return element_round((float)(x >> 40) * 0x1p-24f - 0.5f);
}

static uint32_t document_id(uint32_t document, uint32_t pos)
{
	return document * 100000 + pos % 977;
}

/* Where a part's token stands once it stays: a draft's by its depth. */
static uint32_t position(const struct part *p, uint32_t i)
{
	uint32_t pos = p->seq->n;

	if (!p->draft)
		return pos + i;
	for (; p->parents[i] != UINT32_MAX; i = p->parents[i])
		pos++;
	return pos;
}

/* Mean of V over what row i of a part sees, at column d of a KV head. */
static double mean_of(const struct part *p, uint32_t row, uint32_t layer, uint32_t d)
{
	const struct sequence *seq = p->seq;
	double sum = 0;
	uint32_t n = 0, i = row;

	for (; n < seq->n; n++)
		sum += v_of(seq->ids[n], n, layer, d);
	while (i != UINT32_MAX) {
		sum += v_of(seq->ids[seq->n + i], position(p, i), layer, d);
		n++;
		i = p->draft ? p->parents[i] : i ? i - 1 : UINT32_MAX;
	}
	return sum / n;
}

/* A few columns of a random row. fp16 rounds weights and output by up to 2^-11 of values up to a
 * half, and probabilities once more. */
static void check_part(struct soak *s, const struct session *x, uint32_t index, uint32_t layer)
{
	const struct part *p = &x->parts[index];
	uint32_t dim = shapes[x->index].head_dim, heads = shapes[x->index].n_q_heads;
	uint32_t group = heads / shapes[x->index].n_kv_heads, row = below(s, p->n_new);
	const double tolerance = test_on_gpu() ? 1.5e-3 : 2e-5;

	for (uint32_t i = 0; i < 4; i++) {
		uint32_t head = below(s, heads), d = below(s, dim);
		double want = mean_of(p, row, layer, head / group * dim + d);
		double got = element_get(x->step[index].o, ((size_t)row * heads + head) * dim + d);

		if (!(fabs(got - want) <= tolerance))
			fail_msg("session %u, row %u of %u after %u%s, layer %u, head %u: %g, not "
				 "%g",
				 x->index, row, p->n_new, p->seq->n, p->draft ? " (draft)" : "",
				 layer, head, got, want);
	}
	s->n_checked++;
}

/* ---- one session ---------------------------------------------------------------------------- */

static void must(const struct session *x, int r, const char *what)
{
	if (r < 0)
		fail_msg("session %u: %s: %d, %s", x->index, what, r, coppice_explain(x->c));
}

static void session_start(struct session *x, const char *socket, uint32_t index)
{
	char name[16];
	struct coppice_model_info info = {.name = name,
					  .n_layers = N_LAYERS,
					  .n_q_heads = shapes[index].n_q_heads,
					  .n_kv_heads = shapes[index].n_kv_heads,
					  .head_dim = shapes[index].head_dim,
					  .dtype = (enum coppice_dtype)element_dtype()};

	snprintf(name, sizeof(name), "soak%u", index);
	x->index = index;
	assert_int_equal(coppice_connect(&x->c, socket), 0);
	must(x, coppice_model_open(x->c, &info, &x->model), "model");
	must(x, coppice_arena_new(x->c, COPPICE_HOST, ARENA_BYTES, &x->arena), "arena");
	must(x, coppice_lane_new(x->c, &x->lane), "lane");
}

static void seq_close(struct sequence *seq)
{
	coppice_seq_close(seq->handle);
	seq->handle = NULL;
}

static void seq_open(struct soak *s, struct session *x, struct sequence *seq)
{
	struct coppice_match match;
	uint32_t document = below(s, N_DOCUMENTS);

	seq->n_prompt = 1 + below(s, DOCUMENT_TOKENS);
	for (uint32_t i = 0; i < seq->n_prompt; i++)
		seq->ids[i] = document_id(document, i);
	must(x,
	     coppice_seq_open(x->lane, x->model, seq->ids, seq->n_prompt, 0, &seq->handle, &match),
	     "open");
	seq->n = match.cached;
}

static struct sequence *find_free(struct session *x)
{
	for (uint32_t i = 0; i < N_SEQS; i++) {
		if (!x->seqs[i].handle)
			return &x->seqs[i];
	}
	return NULL;
}

static void seq_fork(struct session *x, const struct sequence *from)
{
	struct sequence *to = find_free(x);

	if (!to)
		return;
	*to = *from;
	to->handle = NULL;
	must(x, coppice_seq_fork(from->handle, &to->handle), "fork");
}

static void seq_trim(struct soak *s, struct session *x, struct sequence *seq)
{
	uint64_t ticket;

	seq->n = seq->n_prompt = 1 + below(s, seq->n);
	must(x, coppice_seq_trim(seq->handle, seq->n, &ticket), "trim");
	must(x, coppice_wait(x->lane, ticket, PATIENCE_NS), "trim");
}

/* Something happens to a sequence between steps. */
static void disturb(struct soak *s, struct session *x)
{
	struct sequence *seq = &x->seqs[below(s, N_SEQS)];
	bool whole = seq->handle && seq->n > 0 && seq->n == seq->n_prompt;

	if (!seq->handle) {
		seq_open(s, x, seq);
		return;
	}
	switch (below(s, 12)) {
	case 0:
		seq_close(seq);
		break;
	case 1:
		if (whole)
			seq_fork(x, seq);
		break;
	case 2:
		if (whole)
			seq_trim(s, x, seq);
		break;
	default:
		break;
	}
}

/* ---- a step of a session -------------------------------------------------------------------- */

static void make_new(struct soak *s, struct part *p)
{
	struct sequence *seq = p->seq;
	uint32_t left = seq->n_prompt - seq->n;

	p->draft = false;
	if (left) { /* the prompt's next chunk */
		p->n_new = left < MAX_NEW ? left : MAX_NEW;
		return;
	}
	p->n_new = below(s, 4) ? 1 : 1 + below(s, MAX_NEW);
	p->draft = p->n_new > 1 && below(s, 2);
	for (uint32_t i = 0; i < p->n_new; i++) {
		seq->ids[seq->n + i] = below(s, 1000);
		p->parents[i] = i && below(s, 8) ? below(s, i) : UINT32_MAX;
	}
}

static int extend(struct session *x, const struct part *p)
{
	struct sequence *seq = p->seq;
	uint64_t ticket;
	int r = p->draft ? coppice_seq_draft(seq->handle, seq->ids + seq->n, p->parents, p->n_new,
					     &ticket)
			 : coppice_seq_extend(seq->handle, seq->ids + seq->n, p->n_new, &ticket);

	must(x, r, "extend");
	return coppice_wait(x->lane, ticket, PATIENCE_NS);
}

static bool in_step(const struct session *x, const struct sequence *seq)
{
	for (uint32_t i = 0; i < x->n_parts; i++) {
		if (x->parts[i].seq == seq)
			return true;
	}
	return false;
}

/* Up to MAX_PARTS sequences get new tokens; one that finds no room ends. */
static void choose_parts(struct soak *s, struct session *x)
{
	uint32_t wanted = 1 + below(s, MAX_PARTS);

	x->n_parts = 0;
	for (uint32_t i = 0; i < wanted; i++) {
		struct part *p = &x->parts[x->n_parts];
		int r;

		p->seq = &x->seqs[below(s, N_SEQS)];
		if (!p->seq->handle || in_step(x, p->seq) || p->seq->n + MAX_NEW > MAX_TOKENS)
			continue;
		make_new(s, p);
		r = extend(x, p);
		if (r == 0) {
			x->n_parts++;
			continue;
		}
		assert_int_equal(r, -ENOSPC);
		s->n_full++;
		seq_close(p->seq);
	}
}

/* Q, K, V and O of a part, one behind the other; Q is zero. */
static void *place_part(struct session *x, uint32_t index, void *at, uint32_t layer)
{
	const struct part *p = &x->parts[index];
	uint32_t dim = shapes[x->index].head_dim;
	size_t q = (size_t)p->n_new * shapes[x->index].n_q_heads * dim;
	size_t kv_row = (size_t)shapes[x->index].n_kv_heads * dim, kv = p->n_new * kv_row;
	void *k = element_at(at, q), *v = element_at(k, kv), *o = element_at(v, kv);

	memset(at, 0, q * element_bytes());
	memset(o, 0xff, q * element_bytes());
	for (uint32_t i = 0; i < p->n_new; i++) {
		uint32_t id = p->seq->ids[p->seq->n + i], pos = position(p, i);

		for (uint32_t d = 0; d < kv_row; d++) {
			element_put(k, i * kv_row + d, (float)(d % 7) - 3);
			element_put(v, i * kv_row + d, v_of(id, pos, layer, d));
		}
	}
	x->step[index] = (struct coppice_step_seq){
		.seq = p->seq->handle, .n_new = p->n_new, .q = at, .k = k, .v = v, .o = o};
	return element_at(o, q);
}

static void submit_layer(struct soak *s, struct session *x, uint32_t layer)
{
	struct coppice_step step = {.layer = layer, .seqs = x->step, .n_seqs = x->n_parts};
	void *at = coppice_arena_base(x->arena);

	for (uint32_t i = 0; i < x->n_parts; i++) {
		at = place_part(x, i, at, layer);
		s->n_rows += x->parts[i].n_new;
	}
	assert_true((uint64_t)((char *)at - (char *)coppice_arena_base(x->arena)) <= ARENA_BYTES);
	if (x->n_parts)
		must(x, coppice_step(x->lane, &step, &x->ticket), "step");
}

static void finish_layer(struct soak *s, struct session *x, uint32_t layer)
{
	if (!x->n_parts)
		return;
	must(x, coppice_wait(x->lane, x->ticket, PATIENCE_NS), "a step");
	check_part(s, x, below(s, x->n_parts), layer);
}

/* Of a draft, a path from its first token down stays. */
static void accept(struct soak *s, struct session *x, struct part *p)
{
	uint32_t path[MAX_NEW], n = 0, ids[MAX_NEW], i = below(s, p->n_new);
	struct sequence *seq = p->seq;
	uint64_t ticket;

	do
		path[n++] = i;
	while ((i = p->parents[i]) != UINT32_MAX);
	for (uint32_t j = 0; j < n / 2; j++) {
		uint32_t other = path[j];

		path[j] = path[n - 1 - j];
		path[n - 1 - j] = other;
	}
	must(x, coppice_seq_accept(seq->handle, path, n, &ticket), "accept");
	must(x, coppice_wait(x->lane, ticket, PATIENCE_NS), "accept");
	for (uint32_t j = 0; j < n; j++)
		ids[j] = seq->ids[seq->n + path[j]];
	memcpy(seq->ids + seq->n, ids, n * sizeof(*ids));
	seq->n += n;
}

static void end_step(struct soak *s, struct session *x)
{
	for (uint32_t i = 0; i < x->n_parts; i++) {
		struct part *p = &x->parts[i];

		if (p->draft)
			accept(s, x, p);
		else
			p->seq->n += p->n_new;
		if (p->seq->n_prompt < p->seq->n)
			p->seq->n_prompt = p->seq->n;
		if (p->seq->n + MAX_NEW > MAX_TOKENS)
			seq_close(p->seq);
	}
}

/* All sessions once: their layers at the same time, so that batches have jobs of several. */
static void round_of_all(struct soak *s)
{
	for (uint32_t i = 0; i < N_SESSIONS; i++) {
		disturb(s, &s->sessions[i]);
		choose_parts(s, &s->sessions[i]);
	}
	for (uint32_t layer = 0; layer < N_LAYERS; layer++) {
		for (uint32_t i = 0; i < N_SESSIONS; i++)
			submit_layer(s, &s->sessions[i], layer);
		for (uint32_t i = 0; i < N_SESSIONS; i++)
			finish_layer(s, &s->sessions[i], layer);
	}
	for (uint32_t i = 0; i < N_SESSIONS; i++)
		end_step(s, &s->sessions[i]);
}

/* ---- what is held --------------------------------------------------------------------------- */

/* Of the first device, of all processes, in MiB; 0 without one, or where nvidia-smi does not
 * say. */
static double device_mib(void)
{
	FILE *out = test_on_gpu() ? popen("nvidia-smi --query-gpu=memory.used "
					  "--format=csv,noheader,nounits -i 0 2>/dev/null",
					  "re")
				  : NULL;
	double mib = 0;

	if (out && fscanf(out, "%lf", &mib) != 1)
		mib = 0;
	if (out)
		pclose(out);
	return mib;
}

static double daemon_mib(const struct soak *s)
{
	return (double)process_bytes(s->h->pid) / MIB;
}

static const Coppice__StatusReply *status_of(struct soak *s)
{
	Coppice__Status m = COPPICE__STATUS__INIT;
	const Coppice__Reply *reply = client_verb(&s->watch, status, &m);

	assert_int_equal(reply->code, 0);
	return reply->status;
}

static void run_to(struct soak *s, uint64_t n_batches)
{
	while (status_of(s)->batches < n_batches)
		round_of_all(s);
}

static uint64_t wanted_batches(void)
{
	const char *text = getenv("COPPICE_SOAK_BATCHES");

	return text ? strtoull(text, NULL, 10) : BATCHES;
}

static void nothing_fails_and_nothing_grows(void **state)
{
	struct soak *s = *state;
	uint64_t n = wanted_batches();
	double device, daemon, device_end, daemon_end;

	run_to(s, n / 5);
	device = device_mib();
	daemon = daemon_mib(s);
	run_to(s, n);
	device_end = device_mib();
	daemon_end = daemon_mib(s);

	const Coppice__StatusReply *status = status_of(s);

	print_message("%llu batches on %s, %llu rows, %llu answers checked, %llu pages evicted, "
		      "the pool full "
		      "%llu times; device memory %.0f to %.0f MiB, the daemon's %.1f to %.1f MiB\n",
		      (unsigned long long)status->batches, status->backend,
		      (unsigned long long)s->n_rows, (unsigned long long)s->n_checked,
		      (unsigned long long)status->pages_evicted, (unsigned long long)s->n_full,
		      device, device_end, daemon, daemon_end);
	assert_true(!test_on_gpu() || (device > 0 && device_end > 0));
	assert_true(device_end - device <= MAX_GROWTH_MIB);
	assert_true(daemon_end - daemon <= MAX_GROWTH_MIB);
}

static int setup(void **state)
{
	struct soak *s = calloc(1, sizeof(*s));
	const char *seed = getenv("COPPICE_SEED");

	assert_non_null(s);
	s->random = seed ? strtoull(seed, NULL, 10) : (uint64_t)time(NULL);
	print_message("COPPICE_SEED=%llu\n", (unsigned long long)s->random);
	s->h = harness_new("auto");
	s->h->flags[0] = "--pool=48M";
	s->h->flags[1] = "--extent=4M";
	s->h->flags[2] = "--max-arena-bytes=64M";
	harness_start(s->h);
	s->watch = client_open(s->h);
	for (uint32_t i = 0; i < N_SESSIONS; i++)
		session_start(&s->sessions[i], s->h->socket, i);
	*state = s;
	return 0;
}

static int teardown(void **state)
{
	struct soak *s = *state;
	void *h = s->h;

	for (uint32_t i = 0; i < N_SESSIONS; i++) {
		for (uint32_t j = 0; j < N_SEQS; j++)
			coppice_seq_close(s->sessions[i].seqs[j].handle);
		coppice_lane_free(s->sessions[i].lane);
		coppice_arena_free(s->sessions[i].arena);
		coppice_close(s->sessions[i].c);
	}
	client_close(&s->watch);
	free(s);
	return harness_teardown(&h);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(nothing_fails_and_nothing_grows, setup, teardown),
	};

	if (harness_init(argc, argv) < 0)
		return 2;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
