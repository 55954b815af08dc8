/*
 * decode_client.c - tokens as coppice-agent computes them, by a program or layer by layer.
 *
 * What a client sees of a token is from its submission to the next one's being chosen: of the
 * likeliest and the log of the sum by a program, of all logits by itself.
 */
#ifdef BENCH_HAVE_AGENT
#include "decode_client.h"

#include "bench.h"
#include "client/agent/forward_daemon.h"
#include "client/agent/forward_self.h"

#include <err.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define CHUNK 256u /* of a prompt, by itself */
#define ENTRY 32768u /* of a prompt, by the daemon, which makes chunks of its own */
#define N_TOP 20u
#define LOOK_US 50u

struct client {
	const struct decode_options *o;
	struct decode_board *board;
	struct decode_figures *figures;
	uint32_t number, first_seq;
	struct forward *forward; /* one of these two */
	struct forward_daemon by_daemon;
	struct forward_self by_self;
	struct daemon_seq seqs[DECODE_SEQS];
	uint32_t *prompts[DECODE_SEQS]; /* owned; with the document before them */
	struct sampler sampler;
	uint32_t last[DECODE_SEQS], length[DECODE_SEQS];
	uint32_t first[DECODE_SEQS]; /* what followed the prompts */
	uint32_t turn_at; /* the length at which the sequences are to begin anew */
	uint32_t n_turns;
};

static void must(int r, const struct fault *fault)
{
	if (r < 0)
		errx(1, "%s", fault->text);
}

static double ms_since(uint64_t start_ns)
{
	return (double)(clock_now_ns() - start_ns) / 1e6;
}

/* ---- phases --------------------------------------------------------------------------------- */

static bool is_over(const struct decode_board *board, enum decode_phase phase)
{
	return atomic_load_explicit(&board->phase, memory_order_acquire) > phase;
}

static void arrive(struct client *cl)
{
	atomic_fetch_add_explicit(&cl->board->n_arrived, 1, memory_order_release);
}

static void await_end(const struct client *cl, enum decode_phase phase)
{
	while (!is_over(cl->board, phase))
		usleep(LOOK_US);
}

/* ---- tokens --------------------------------------------------------------------------------- */

static void read_model(struct client *cl)
{
	struct fault fault;

	must(forward_daemon_read(&cl->by_daemon, cl->o->model->dir, NULL, &fault), &fault);
}

/* A number that nobody sees in what comes of it makes another program, whose passes and KV are no
 * others'. */
static void make_own(struct client *cl)
{
	cl->by_daemon.program->info.eps += 1e-9f * (float)(cl->number + 1);
}

static void connect_by_daemon(struct client *cl, const struct daemon_address *address)
{
	const struct forward_daemon_options options = {.address = *address, .n_top = N_TOP};
	struct fault fault;

	must(forward_daemon_connect(&cl->by_daemon, &options, &fault), &fault);
	cl->forward = &cl->by_daemon.base;
}

static void load_by_daemon(struct client *cl)
{
	struct fault fault;

	must(forward_daemon_load(&cl->by_daemon, false, &fault), &fault);
}

static void make_by_daemon(struct client *cl)
{
	struct fault fault;

	must(forward_daemon_make(&cl->by_daemon, cl->o->n_seqs, &fault), &fault);
}

static void open_by_daemon(struct client *cl, const struct daemon_address *address)
{
	uint64_t start_ns;

	read_model(cl);
	if (cl->o->own_program)
		make_own(cl);
	connect_by_daemon(cl, address);
	start_ns = clock_now_ns();
	load_by_daemon(cl);
	cl->figures->weights_ms = ms_since(start_ns);
	make_by_daemon(cl);
}

static void open_by_self(struct client *cl, const struct daemon_address *address)
{
	const uint32_t first = cl->o->n_seqs * (cl->o->prompt + 1);
	const struct forward_limits limits = {cl->o->n_seqs, first > CHUNK ? first : CHUNK};
	const struct daemon_options options = {.address = *address,
					       .model = {.name = cl->o->model->name,
							 .dtype = COPPICE_BF16}};
	struct fault fault;

	must(forward_self_load(&cl->by_self, cl->o->model->dir, &fault), &fault);
	must(forward_self_open(&cl->by_self, &options, &limits, &fault), &fault);
	cl->forward = &cl->by_self.base;
}

static void make_sampler(struct client *cl)
{
	const struct sampler_config greedy = {.top_p = 1};

	if (sampler_init(&cl->sampler, &greedy, cl->o->model->n_vocab) != 0)
		errx(1, "out of memory");
}

static void open_all(struct client *cl)
{
	const struct daemon_address address = {.socket_path = cl->o->socket};

	if (cl->o->apart)
		open_by_self(cl, &address);
	else
		open_by_daemon(cl, &address);
	make_sampler(cl);
}

static void close_all(struct client *cl)
{
	for (uint32_t i = 0; i < cl->o->n_seqs; i++)
		daemon_seq_close(&cl->seqs[i]);
	for (uint32_t i = 0; i < cl->o->n_seqs; i++)
		free(cl->prompts[i]);
	sampler_done(&cl->sampler);
	forward_self_done(&cl->by_self);
	forward_daemon_done(&cl->by_daemon);
}

/* Of what each token is made: 0 for what all have in common. */
static uint32_t owner_of(const struct client *cl, uint32_t seq, uint32_t at)
{
	const uint32_t n_before = cl->o->round * (DECODE_CLIENTS + 1) + cl->number;

	if (at < cl->o->document)
		return cl->o->own_document ? 1 + cl->number : 0;
	return 1 + n_before * DECODE_SEQS + seq;
}

/* The document, then a prompt that nobody else has; the caller's. */
static uint32_t *tokens_of(const struct client *cl, uint32_t seq)
{
	const uint32_t n = cl->o->document + cl->o->prompt, n_vocab = cl->o->model->n_vocab;
	uint32_t *ids = calloc(n, sizeof(*ids));

	if (!ids)
		errx(1, "out of memory");
	for (uint32_t i = 0; i < n; i++)
		ids[i] = (i * 7919u + owner_of(cl, seq, i) * 104729u + 13u) % n_vocab;
	return ids;
}

/* Opens a sequence on the first n tokens and computes what is not there, but for the last `left`
 * ones. Returns how many it has. */
static uint32_t fill(struct client *cl, struct daemon_seq *seq, const uint32_t *ids, uint32_t n,
		     uint32_t left)
{
	struct daemon *daemon = cl->forward->daemon;
	const uint32_t chunk = cl->o->apart ? CHUNK : ENTRY;
	struct fault fault;
	uint32_t at;

	must(daemon_seq_open(daemon, ids, n, seq, &fault), &fault);
	must(daemon_seq_wait(daemon, seq, &fault), &fault);
	at = seq->match.cached;
	while (at + left < n) {
		const uint32_t rest = n - left - at, now = rest < chunk ? rest : chunk;
		const struct forward_part part = {seq, ids + at, at, now};

		must(cl->forward->run(cl->forward, &part, 1, false, &fault), &fault);
		at += now;
	}
	return at;
}

static void choose(struct client *cl)
{
	for (uint32_t i = 0; i < cl->o->n_seqs; i++) {
		const struct sampler_scores scores = cl->forward->scores(cl->forward, i);

		cl->last[i] = sampler_pick(&cl->sampler, &scores).id;
	}
}

static void make_prompts(struct client *cl)
{
	for (uint32_t i = 0; i < cl->o->n_seqs; i++)
		cl->prompts[i] = tokens_of(cl, cl->first_seq + i);
}

/* All its prompts at once, behind the document. */
static void first_tokens(struct client *cl)
{
	struct forward_part parts[DECODE_SEQS];
	const uint32_t n = cl->o->document + cl->o->prompt;
	struct fault fault;

	for (uint32_t i = 0; i < cl->o->n_seqs; i++) {
		uint32_t at = fill(cl, &cl->seqs[i], cl->prompts[i], n, cl->o->prompt);

		parts[i] = (struct forward_part){&cl->seqs[i], cl->prompts[i] + at, at, n - at};
		cl->length[i] = n;
	}
	must(cl->forward->run(cl->forward, parts, cl->o->n_seqs, true, &fault), &fault);
	choose(cl);
}

static void note(struct client *cl, enum slow_kind kind, uint64_t begin_ns)
{
	slow_note(&cl->board->events[cl->number],
		  &(struct slow_event){begin_ns, clock_now_ns(), kind, cl->number});
}

/* ---- turns ---------------------------------------------------------------------------------- */

static uint32_t prompt_end(const struct client *cl)
{
	return cl->o->document + cl->o->prompt;
}

/* A process after the other. */
static void begin_turns(struct client *cl)
{
	const uint64_t n = (uint64_t)cl->o->turn * (cl->number + 1) / cl->o->n_clients;

	memcpy(cl->first, cl->last, sizeof(cl->first));
	cl->turn_at = prompt_end(cl) + (n ? (uint32_t)n : 1);
}

/* What is said this time is what nobody has said before: else each token would be found in the
 * tree, where others' are not. */
static void trim(struct client *cl, uint32_t seq)
{
	const int r = coppice_seq_trim(cl->seqs[seq].handle, prompt_end(cl), NULL);
	struct fault fault;

	if (r < 0)
		must(daemon_fail(cl->forward->daemon, r, "a sequence was not trimmed", &fault),
		     &fault);
	cl->length[seq] = prompt_end(cl);
	cl->last[seq] = (cl->first[seq] + cl->n_turns) % cl->o->model->n_vocab;
}

/* Whether it is time for it. */
static bool begin_anew(struct client *cl)
{
	if (!cl->o->turn || cl->length[0] < cl->turn_at)
		return false;
	cl->n_turns++;
	for (uint32_t i = 0; i < cl->o->n_seqs; i++)
		trim(cl, i);
	cl->turn_at = prompt_end(cl) + cl->o->turn;
	return true;
}

/* One of each sequence; true: a turn's first one. */
static bool token(struct client *cl)
{
	const uint64_t begin_ns = clock_now_ns();
	const bool anew = begin_anew(cl);
	struct forward_part parts[DECODE_SEQS];
	struct fault fault;

	for (uint32_t i = 0; i < cl->o->n_seqs; i++)
		parts[i] = (struct forward_part){&cl->seqs[i], &cl->last[i], cl->length[i]++, 1};
	must(cl->forward->run(cl->forward, parts, cl->o->n_seqs, true, &fault), &fault);
	choose(cl);
	if (anew)
		note(cl, SLOW_ANEW, begin_ns);
	return anew;
}

static void add_time(struct decode_times *times, uint64_t begin_ns)
{
	if (times->n == DECODE_TIMES)
		return;
	times->begin_ns[times->n] = begin_ns;
	times->ms[times->n++] = (float)ms_since(begin_ns);
}

/* The same, timed. */
static void take(struct client *cl, struct decode_times *times)
{
	const uint64_t begin_ns = clock_now_ns();
	const bool anew = token(cl);

	add_time(anew ? &cl->figures->anew : times, begin_ns);
}

/* ---- a client ------------------------------------------------------------------------------- */

static void decode_until_over(struct client *cl, enum decode_phase phase)
{
	while (!is_over(cl->board, phase))
		token(cl);
}

static uint64_t weights_read(struct client *cl)
{
	struct fault fault;
	uint64_t bytes;

	must(cl->forward->weights_read(cl->forward, &bytes, &fault), &fault);
	return bytes;
}

static void measure(struct client *cl, enum decode_phase phase, uint32_t most,
		    struct decode_times *times)
{
	const uint64_t before = weights_read(cl);

	while (times->n < most && !is_over(cl->board, phase))
		take(cl, times);
	times->read = weights_read(cl) - before;
	arrive(cl);
	decode_until_over(cl, phase);
}

/* For so many tokens, or so long. */
static void measure_joined(struct client *cl)
{
	struct decode_times *times = &cl->figures->joined;
	const uint64_t start_ns = clock_now_ns();

	while (times->n < DECODE_TIMES && ms_since(start_ns) < 1e3 * cl->o->seconds)
		take(cl, times);
	measure(cl, DECODE_JOINED, cl->o->seconds ? 0 : cl->o->n_tokens, times);
}

static void compute_document(struct client *cl, uint32_t which)
{
	uint32_t *ids = tokens_of(cl, 0);
	struct daemon_seq seq;

	for (uint32_t i = 0; i < cl->o->document; i++)
		ids[i] = (ids[i] + which) % cl->o->model->n_vocab;

	const uint64_t start_ns = clock_now_ns();

	fill(cl, &seq, ids, cl->o->document, 0);
	daemon_seq_close(&seq);
	free(ids);
	cl->figures->document_ms = ms_since(start_ns);
}

/* A whole turn at least, from which on sequences are of all lengths. */
static void warm(struct client *cl)
{
	const uint32_t n = cl->o->n_tokens / 4;

	begin_turns(cl);
	for (uint32_t i = 0; i < (cl->o->turn > n ? cl->o->turn : n); i++)
		token(cl);
}

static void decode(struct client *cl)
{
	const uint64_t start_ns = clock_now_ns();

	first_tokens(cl);
	cl->figures->first_ms = ms_since(start_ns);
	arrive(cl);
	await_end(cl, DECODE_FIRST);
	warm(cl);
	arrive(cl);
	decode_until_over(cl, DECODE_WARM);
	measure(cl, DECODE_ALONE, cl->o->n_tokens, &cl->figures->alone);
	measure_joined(cl);
	measure(cl, DECODE_BESIDE, DECODE_TIMES, &cl->figures->beside);
	measure(cl, DECODE_LAYERS, DECODE_TIMES, &cl->figures->layers);
}

_Noreturn void decode_client_main(const struct decode_options *o, struct decode_board *board,
				  uint32_t number)
{
	struct client cl = {.o = o,
			    .board = board,
			    .figures = &board->of[number],
			    .number = number};
	const uint64_t start_ns = clock_now_ns();

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	open_all(&cl);
	make_prompts(&cl);
	cl.figures->load_ms = ms_since(start_ns);
	arrive(&cl);
	await_end(&cl, DECODE_LOAD);
	if (number == 0 || o->own_document)
		compute_document(&cl, 0);
	arrive(&cl);
	await_end(&cl, DECODE_DOCUMENT);
	decode(&cl);
	close_all(&cl);
	exit(0);
}

/* ---- who comes and goes --------------------------------------------------------------------- */

/* Since then until now it was this that it did. */
static double lap_ms(struct client *cl, enum slow_kind kind, uint64_t *since_ns)
{
	const uint64_t before_ns = *since_ns;

	note(cl, kind, before_ns);
	*since_ns = clock_now_ns();
	return (double)(*since_ns - before_ns) / 1e6;
}

static void open_joiner(struct client *cl, struct decode_joins *joins)
{
	const struct daemon_address address = {.socket_path = cl->o->socket};
	double weights_ms;

	read_model(cl);
	make_prompts(cl);
	make_sampler(cl);
	uint64_t at_ns = clock_now_ns();

	connect_by_daemon(cl, &address);
	joins->connect_ms += lap_ms(cl, SLOW_SESSION, &at_ns);
	load_by_daemon(cl);
	joins->weights_ms += weights_ms = lap_ms(cl, SLOW_WEIGHTS, &at_ns);
	make_by_daemon(cl);
	joins->program_ms += lap_ms(cl, SLOW_PROGRAM, &at_ns);
	first_tokens(cl);
	joins->first_ms += lap_ms(cl, SLOW_PROMPT, &at_ns);
	if (weights_ms > joins->most_weights_ms)
		joins->most_weights_ms = weights_ms;
}

static void join(struct client *cl)
{
	const struct decode_options *o = cl->o;
	const uint64_t start_ns = clock_now_ns();
	uint64_t at_ns;

	open_joiner(cl, &cl->board->joins);
	at_ns = clock_now_ns();
	while (ms_since(start_ns) < o->stay_ms && !is_over(cl->board, DECODE_JOINED))
		token(cl);
	(void)lap_ms(cl, SLOW_STAYS, &at_ns);
	close_all(cl);
	(void)lap_ms(cl, SLOW_LEAVES, &at_ns);
	cl->board->joins.n++;
	while (ms_since(start_ns) < o->every_ms && !is_over(cl->board, DECODE_JOINED))
		usleep(LOOK_US);
}

_Noreturn void decode_joiner_main(const struct decode_options *o, struct decode_board *board)
{
	struct decode_options one = *o;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	one.n_seqs = 1;
	one.turn = 0;
	for (uint32_t i = 0; !is_over(board, DECODE_JOINED); i++) {
		struct client cl = {.o = &one,
				    .board = board,
				    .number = DECODE_CLIENTS,
				    .first_seq = o->stay_ms ? i % DECODE_SEQS : 0};

		join(&cl);
	}
	exit(0);
}

_Noreturn void decode_reader_main(const struct decode_options *o, struct decode_board *board)
{
	struct decode_figures figures = {0};
	struct client cl = {.o = o, .board = board, .figures = &figures};

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	open_all(&cl);
	compute_document(&cl, 1 + o->round);
	atomic_store_explicit(&board->beside_ns, (uint64_t)(figures.document_ms * 1e6),
			      memory_order_relaxed);
	close_all(&cl);
	exit(0);
}
#endif
