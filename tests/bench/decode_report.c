/*
 * decode_report.c - what coppice-bench decode prints of a round: until all have weights and
 * program, which are read once, and of that until they have the weights; what a client sees of a
 * token (p50, p99), also while sessions come and go, and while another document as long is computed
 * (beside), or others compute their own layers; how long who joins waits for a session, then the
 * weights, the program, the first token, each from what is before it (means); tokens a second of
 * all; the document's computing, the first tokens behind it; weights read a token; what the
 * daemon's passes take, and how long it has none from one token to the next; memory of the daemon
 * and of a client (Pss: a page that several have mapped counts in parts), and of a GPU; and how the
 * p50 compares with the limit: weights and KV read once, at the rate at which this machine reads
 * memory, or that of the card, or all products at that at which it multiplies, whichever is longer.
 *
 * Of tokens while sessions come and go it also says which were slow: decode_slow.h.
 */
#ifdef BENCH_HAVE_AGENT
#include "decode_report.h"

#include "bench.h"

#include <err.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool decode_is_joined(const struct decode_options *o)
{
	return !o->apart && !o->own_document;
}

struct times {
	uint32_t n;
	double p50, p99, p999, most, tokens_s;
};

enum when { ALONE, JOINED, BESIDE, LAYERS, ANEW };

static const struct decode_times *times_at(const struct decode_figures *f, enum when when)
{
	const struct decode_times *const all[] = {&f->alone, &f->joined, &f->beside, &f->layers,
						  &f->anew};

	return all[when];
}

static struct times times_of(const struct decode_board *board, const struct decode_options *o,
			     enum when when)
{
	double *all = calloc((size_t)o->n_clients * DECODE_TIMES, sizeof(*all));
	struct times t = {0};
	uint32_t n = 0;

	if (!all)
		errx(1, "out of memory");
	for (uint32_t i = 0; i < o->n_clients; i++) {
		const struct decode_times *of = times_at(&board->of[i], when);
		double sum = 0;

		for (uint32_t k = 0; k < of->n; k++)
			sum += all[n++] = of->ms[k];
		if (of->n > 0)
			t.tokens_s += 1e3 * o->n_seqs * of->n / sum;
	}
	if (n > 0) {
		bench_sort(all, n);
		t.n = n;
		t.p50 = all[n / 2];
		t.p99 = all[(uint32_t)(n * 0.99)];
		t.p999 = all[(uint32_t)(n * 0.999)];
		t.most = all[n - 1];
	}
	free(all);
	return t;
}

/* ---- the limit ------------------------------------------------------------------------------ */

/* Of a sequence, half way through what is timed. */
static double own_tokens(const struct decode_options *o)
{
	return o->prompt + (o->turn ? o->turn / 2.0 : o->n_tokens * 3 / 4.0);
}

/* Weights once, a document once, and each sequence's own tokens. */
static double reading_ms(const struct decode_options *o, double bytes_s)
{
	const bool each = o->own_document && !o->own_program;
	const double documents = each ? o->n_clients : 1;
	const double tokens = documents * o->document + o->n_clients * o->n_seqs * own_tokens(o);

	return 1e3 * ((double)o->model->pass_bytes + tokens * (double)o->model->kv_bytes) / bytes_s;
}

/* Of a token of each sequence: a product with each weight, and with K and V of all that it sees. */
static double multiplying_ms(const struct decode_options *o, double operations_s)
{
	const struct decode_model *m = o->model;
	const double q = (double)m->n_q_heads * m->head_dim * m->n_layers;
	const double seen = o->document + own_tokens(o);
	const double row = 2 * (double)m->pass_elements + 4 * q * seen;

	return 1e3 * o->n_clients * o->n_seqs * row / operations_s;
}

static double worst_first_ms(const struct decode_board *board, uint32_t n_clients)
{
	double most = 0;

	for (uint32_t i = 0; i < n_clients; i++)
		if (board->of[i].first_ms > most)
			most = board->of[i].first_ms;
	return most;
}

static void put(const char *name, const char *metric, double value, const char *unit)
{
	bench_print("decode", name, metric, value, unit);
}

static void report_joins(const struct decode_joins *j, const char *name)
{
	put(name, "sessions_joined", j->n, "sessions");
	if (j->n == 0)
		return;
	put(name, "join_session", j->connect_ms / j->n, "ms");
	put(name, "join_weights", j->weights_ms / j->n, "ms");
	put(name, "join_weights_most", j->most_weights_ms, "ms");
	put(name, "join_program", j->program_ms / j->n, "ms");
	put(name, "join_first_token", j->first_ms / j->n, "ms");
}

/* ---- slow tokens ---------------------------------------------------------------------------- */

static uint32_t tokens_joined(const struct decode_board *board, uint32_t n_clients,
			      struct slow_token *ret)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < n_clients; i++) {
		const struct decode_times *t = &board->of[i].joined;

		for (uint32_t k = 0; k < t->n; k++)
			ret[n++] =
				(struct slow_token){t->begin_ns[k],
						    t->begin_ns[k] + (uint64_t)(1e6 * t->ms[k]), i};
	}
	return n;
}

static uint32_t all_events(const struct decode_board *board, struct slow_event *ret)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i <= DECODE_CLIENTS; i++) {
		memcpy(ret + n, board->events[i].of, board->events[i].n * sizeof(*ret));
		n += board->events[i].n;
	}
	return n;
}

static void report_kind(const struct slow_figures *f, enum slow_kind kind, const char *name)
{
	char metric[32];

	if (f->of[kind].n == 0)
		return;
	snprintf(metric, sizeof(metric), "%s_tokens", slow_name(kind));
	put(name, metric, f->of[kind].n, "tokens");
	snprintf(metric, sizeof(metric), "%s_slow", slow_name(kind));
	put(name, metric, f->of[kind].n_slow, "tokens");
	snprintf(metric, sizeof(metric), "%s_most", slow_name(kind));
	put(name, metric, f->of[kind].most_ms, "ms");
}

static void report_slow(const struct decode_board *board, const struct decode_options *o,
			const char *name)
{
	struct slow_token *tokens = calloc((size_t)o->n_clients * DECODE_TIMES, sizeof(*tokens));
	struct slow_event *events =
		calloc((size_t)(DECODE_CLIENTS + 1) * SLOW_EVENTS, sizeof(*events));
	struct slow_figures f;

	if (!tokens || !events)
		errx(1, "out of memory");
	slow_count(tokens, tokens_joined(board, o->n_clients, tokens), events,
		   all_events(board, events), o->n_clients, &f);
	put(name, "slow_tokens", f.n_slow, "tokens");
	put(name, "slow_part", 100.0 * f.n_slow / f.n, "%");
	put(name, "slow_late_alone", f.n_late_alone, "tokens");
	for (enum slow_kind kind = 0; kind < SLOW_KINDS; kind++)
		report_kind(&f, kind, name);
	free(tokens);
	free(events);
}

/* ---- phases --------------------------------------------------------------------------------- */

static void report_joined(const struct decode_run *run, const struct decode_options *o,
			  const char *name)
{
	const struct times joined = times_of(run->board, o, JOINED);

	put(name, "joined_tokens", joined.n, "tokens");
	put(name, "joined_p50", joined.p50, "ms");
	put(name, "joined_p99", joined.p99, "ms");
	put(name, "joined_p999", joined.p999, "ms");
	put(name, "joined_most", joined.most, "ms");
	put(name, "joined_p99_of_p50", joined.p99 / joined.p50, "");
	report_joins(&run->board->joins, name);
	if (joined.n > 0)
		report_slow(run->board, o, name);
}

static void report_anew(const struct decode_run *run, const struct decode_options *o,
			const char *name)
{
	const struct times anew = times_of(run->board, o, ANEW);

	put(name, "anew_turns", anew.n, "turns");
	put(name, "anew_p50", anew.p50, "ms");
	put(name, "anew_p99", anew.p99, "ms");
}

static void report_layers(const struct decode_run *run, const struct decode_options *o,
			  const char *name)
{
	const struct times tokens = times_of(run->board, o, LAYERS);

	decode_layers_print(&run->layers_alone, name, "layer_alone");
	decode_layers_print(&run->layers_beside, name, "layer_beside");
	put(name, "beside_layers_p50", tokens.p50, "ms");
	put(name, "beside_layers_p99", tokens.p99, "ms");
}

static void report_beside(const struct decode_run *run, const struct decode_options *o,
			  const char *name)
{
	const struct times beside = times_of(run->board, o, BESIDE);

	put(name, "beside_p50", beside.p50, "ms");
	put(name, "beside_p99", beside.p99, "ms");
	put(name, "beside_document", (double)run->board->beside_ns / 1e6, "ms");
}

/* Of the first round, in which nobody has them yet. */
static void report_load(const struct decode_run *run, const struct decode_options *o,
			const char *name)
{
	double most = 0, weights = 0;

	if (o->round > 0 || o->apart || o->own_program)
		return;
	for (uint32_t i = 0; i < o->n_clients; i++) {
		most = fmax(most, run->board->of[i].load_ms);
		weights = fmax(weights, run->board->of[i].weights_ms);
	}
	put(name, "load", most, "ms");
	put(name, "load_rate", (double)o->model->file_bytes / most / 1e6, "GB/s");
	put(name, "load_weights", weights, "ms");
}

/* It is there from the first round on; several at once tell nothing of one. */
static void report_document(const struct decode_options *o, double ms, const char *name)
{
	if (o->round > 0 || o->own_document)
		return;
	put(name, "document", ms, "ms");
	put(name, "document_rate", 1e3 * o->document / ms, "tokens/s");
}

/* ---- the daemon ----------------------------------------------------------------------------- */

/* From a token's begin to the next one's, in the mean. */
static double period_ms(const struct decode_run *run, const struct decode_options *o)
{
	double sum = 0;
	uint32_t n = 0;

	for (uint32_t i = 0; i < o->n_clients; i++) {
		const struct decode_times *t = &run->board->of[i].alone;

		if (t->n < 2)
			continue;
		sum += (double)(t->begin_ns[t->n - 1] - t->begin_ns[0]) / 1e6;
		n += t->n - 1;
	}
	return n > 0 ? sum / n : 0;
}

/* A token is as many passes as rows of all are more than a pass has: each program has passes of its
 * own, and who misses one waits for two. */
static void report_passes(const struct decode_run *run, const struct decode_options *o,
			  const char *name)
{
	const double n = (double)(run->after.n_passes - run->before.n_passes);
	const double n_rows = (double)(run->after.n_rows - run->before.n_rows);
	const double ms = (double)(run->after.pass_ns - run->before.pass_ns) / 1e6;
	const double n_a_token = n * o->n_clients * o->n_seqs / n_rows;

	if (n == 0 || n_rows == 0)
		return;
	put(name, "pass", ms / n, "ms");
	put(name, "rows_a_pass", n_rows / n, "rows");
	put(name, "idle_between_tokens", period_ms(run, o) - n_a_token * ms / n, "ms");
}

/* What is taken beside weights and KV: the driver's context, programs' memory for rows, plans. */
static void report_memory(const struct decode_run *run, const struct decode_options *o,
			  const char *name)
{
	const double taken = run->device_bytes - run->device_before_bytes;

	put(name, "daemon_memory", run->daemon_bytes / 1e6, "MB");
	put(name, "client_memory", run->client_bytes / 1e6, "MB");
	put(name, "held_weights", run->after.weights_bytes / 1e6, "MB");
	put(name, "held_kv", run->after.page_bytes / 1e6, "MB");
	put(name, "held_pool", run->after.pool_bytes / 1e6, "MB");
	put(name, "clients_on_device", run->n_on_device, "clients");
	if (run->device_before_bytes < 0 || run->device_bytes < 0)
		return;
	put(name, "device_memory", taken / 1e6, "MB");
	put(name, "device_beside",
	    (taken - (double)o->model->file_bytes - run->after.pool_bytes) / 1e6, "MB");
}

static void report_limit(const struct decode_options *o, const struct decode_rates *rates,
			 double token_p50, const char *name)
{
	const double reading = reading_ms(o, rates->bytes_s);
	const double multiplying = multiplying_ms(o, rates->operations_s);
	const double limit = fmax(reading, multiplying);

	put(name, "limit_reading", reading, "ms");
	put(name, "limit_multiplying", multiplying, "ms");
	put(name, "limit", limit, "ms");
	put(name, "limit_of_time", limit / token_p50, "");
}

void decode_report(const struct decode_run *run, const struct decode_options *o,
		   const struct decode_rates *rates)
{
	const struct decode_figures *first = &run->board->of[0];
	const struct times alone = times_of(run->board, o, ALONE);
	double read = 0;
	char name[128];

	snprintf(name, sizeof(name), "%s_%ux%u_d%u%s", o->model->name, o->n_clients, o->n_seqs,
		 o->document,
		 o->apart || o->own_program ? "_apart"
		 : o->own_document	    ? "_private"
					    : "");
	for (uint32_t i = 0; i < o->n_clients; i++)
		read += (double)run->board->of[i].alone.read /
			(o->n_clients * o->n_seqs * o->n_tokens);
	report_load(run, o, name);
	put(name, "token_p50", alone.p50, "ms");
	put(name, "token_p99", alone.p99, "ms");
	put(name, "tokens_s", alone.tokens_s, "1/s");
	if (decode_is_joined(o))
		report_joined(run, o, name);
	if (decode_is_joined(o) && o->beside)
		report_beside(run, o, name);
	if (decode_is_joined(o) && o->turn)
		report_anew(run, o, name);
	if (decode_is_joined(o) && o->n_layered)
		report_layers(run, o, name);
	report_document(o, first->document_ms, name);
	put(name, "first_tokens", worst_first_ms(run->board, o->n_clients), "ms");
	put(name, "weights_a_token", read / 1e6, "MB");
	report_passes(run, o, name);
	report_memory(run, o, name);
	report_limit(o, rates, alone.p50, name);
}
#endif
