/*
 * exchange_socket.c - see exchange_socket.h. A round is a set of messages, to some ranks and from
 * some, which proceed at once as the sockets let them, so that two who send to each other never
 * wait for each other.
 *
 *      message   head (magic, round, bytes), then as many bytes of partials
 */
#include "exchange_socket.h"

#include "proto/clock.h"
#include "kernels/merge.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define MAGIC 0x58504f43u

struct head {
	uint32_t magic;
	uint32_t round; /* of all since the beginning */
	uint64_t bytes;
};

struct message {
	uint32_t peer;
	bool out;
	char *data;
	size_t bytes;
	size_t done; /* of head and data */
	struct head head;
};

struct end {
	struct exchange base;
	int *fds; /* owned, [n_ranks] */
	float *room; /* owned */
	size_t room_floats;
	uint32_t timeout_ms;
	uint32_t round;
	bool failed, forced;
	enum exchange_way way;
};

__attribute__((format(printf, 3, 4))) static int fail(struct end *e, int r, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(e->base.error, sizeof(e->base.error), format, args);
	va_end(args);
	return r;
}

static bool message_over(const struct message *m)
{
	return m->done == sizeof(m->head) + m->bytes;
}

static uint32_t message_iov(struct message *m, struct iovec *iov)
{
	uint32_t n = 0;
	size_t data = m->done > sizeof(m->head) ? m->done - sizeof(m->head) : 0;

	if (m->done < sizeof(m->head))
		iov[n++] = (struct iovec){(char *)&m->head + m->done, sizeof(m->head) - m->done};
	/* what comes in is let into the data only once its head is known to fit */
	if (data < m->bytes && (m->out || n == 0))
		iov[n++] = (struct iovec){m->data + data, m->bytes - data};
	return n;
}

static int check_head(struct end *e, const struct message *m)
{
	if (m->head.magic == MAGIC && m->head.round == e->round && m->head.bytes == m->bytes)
		return 0;
	if (m->head.magic != MAGIC)
		return fail(e, -EPROTO, "what rank %u sends is no exchange", m->peer);
	return fail(e, -EPROTO,
		    "rank %u is at round %u with %llu bytes, rank %u at round %u with %zu", m->peer,
		    m->head.round, (unsigned long long)m->head.bytes, e->base.rank, e->round,
		    m->bytes);
}

/* As far as the socket lets it. */
static int message_step(struct end *e, struct message *m)
{
	struct iovec iov[2];
	struct msghdr msg = {.msg_iov = iov, .msg_iovlen = message_iov(m, iov)};
	int flags = MSG_DONTWAIT | MSG_NOSIGNAL;
	ssize_t n = m->out ? sendmsg(e->fds[m->peer], &msg, flags)
			   : recvmsg(e->fds[m->peer], &msg, flags);
	bool headless = m->done < sizeof(m->head);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (n <= 0)
		return fail(e, -ECONNRESET, "rank %u is gone", m->peer);
	m->done += (size_t)n;
	if (!m->out && headless && m->done == sizeof(m->head))
		return check_head(e, m);
	return 0;
}

/* The messages that are not over, as poll wants them; ret_at: which they are. */
static uint32_t list_open(const struct end *e, const struct message *messages, uint32_t n,
			  struct pollfd *ret, uint32_t *ret_at)
{
	uint32_t n_open = 0;

	for (uint32_t i = 0; i < n; i++) {
		if (message_over(&messages[i]))
			continue;
		ret[n_open] = (struct pollfd){.fd = e->fds[messages[i].peer],
					      .events = messages[i].out ? POLLOUT : POLLIN};
		ret_at[n_open++] = i;
	}
	return n_open;
}

static int round_step(struct end *e, struct message *messages, uint32_t n, uint64_t deadline_ms,
		      bool *ret_over)
{
	struct pollfd fds[2 * EXCHANGE_RANKS_MAX];
	uint32_t at[2 * EXCHANGE_RANKS_MAX], n_open = list_open(e, messages, n, fds, at);
	uint64_t now = clock_now_ms();
	int r = 0;

	*ret_over = n_open == 0;
	if (n_open == 0)
		return 0;
	if (now >= deadline_ms)
		return fail(e, -ETIMEDOUT, "rank %u has not answered rank %u for %u ms",
			    messages[at[0]].peer, e->base.rank, e->timeout_ms);
	if (poll(fds, n_open, (int)(deadline_ms - now)) < 0 && errno != EINTR)
		return fail(e, -errno, "poll: %s", strerror(errno));
	for (uint32_t i = 0; i < n_open && r == 0; i++) {
		if (fds[i].revents)
			r = message_step(e, &messages[at[i]]);
	}
	return r;
}

static int run_round(struct end *e, struct message *messages, uint32_t n)
{
	uint64_t deadline_ms = clock_now_ms() + e->timeout_ms;
	bool over = false;
	int r = 0;

	e->round++;
	for (uint32_t i = 0; i < n; i++) {
		if (messages[i].out)
			messages[i].head = (struct head){MAGIC, e->round, messages[i].bytes};
	}
	while (r == 0 && !over)
		r = round_step(e, messages, n, deadline_ms, &over);
	for (uint32_t i = 0; i < n && r == 0; i++)
		e->base.sent_bytes += messages[i].out ? messages[i].bytes : 0;
	return r;
}

static struct message message_to(uint32_t peer, const float *data, size_t n_floats)
{
	return (struct message){peer, true, (char *)(uintptr_t)data, n_floats * sizeof(float)};
}

static struct message message_from(uint32_t peer, float *data, size_t n_floats)
{
	return (struct message){peer, false, (char *)data, n_floats * sizeof(float)};
}

static int reserve(struct end *e, size_t n_floats)
{
	float *grown;

	if (n_floats <= e->room_floats)
		return 0;
	grown = realloc(e->room, n_floats * sizeof(*grown));
	if (!grown)
		return fail(e, -ENOMEM, "out of memory for %zu bytes", n_floats * sizeof(*grown));
	e->room = grown;
	e->room_floats = n_floats;
	return 0;
}

/* ---- direct --------------------------------------------------------------------------------- */

static uint32_t rows_of(const struct exchange_rows *rows, uint32_t rank)
{
	uint32_t n = 0;

	for (uint32_t row = 0; row < rows->n_rows; row++)
		n += !rows->owner || rows->owner[row] == rank;
	return n;
}

/* The rows that a rank wants, side by side; returns where they end. */
static float *gather(const struct exchange_rows *rows, uint32_t rank, float *to)
{
	size_t n = exchange_row_floats(rows);

	for (uint32_t row = 0; row < rows->n_rows; row++) {
		if (rows->owner && rows->owner[row] != rank)
			continue;
		memcpy(to, rows->parts + row * n, n * sizeof(*to));
		to += n;
	}
	return to;
}

/* parts: a rank's wanted rows, side by side; the first rank's take their place. */
static void fold_rows(const struct end *e, const struct exchange_rows *rows, const float *parts,
		      bool first)
{
	size_t n = exchange_row_floats(rows);

	for (uint32_t row = 0; row < rows->n_rows; row++) {
		float *to = rows->folded + row * n;

		if (rows->owner && rows->owner[row] != e->base.rank)
			continue;
		if (first)
			memcpy(to, parts, n * sizeof(*to));
		else
			merge_fold_entries(to, parts, rows->n_heads, rows->head_dim);
		parts += n;
	}
}

/* room: what goes to each rank (and what is this one's own), all rows once or, where all want all,
 * not at all; then what comes from each. */
static int run_direct(struct end *e, const struct exchange_rows *rows)
{
	struct message messages[2 * EXCHANGE_RANKS_MAX];
	size_t n = exchange_row_floats(rows), mine = n * rows_of(rows, e->base.rank);
	const float *parts[EXCHANGE_RANKS_MAX];
	uint32_t n_ranks = e->base.n_ranks, n_messages = 0;
	int r = reserve(e, n * rows->n_rows + mine * n_ranks);
	float *at = e->room, *in = e->room + n * rows->n_rows;

	if (r)
		return r;
	for (uint32_t i = 0; i < n_ranks; i++) {
		float *end = rows->owner ? gather(rows, i, at) : at;
		const float *out = rows->owner ? at : rows->parts;
		size_t out_floats = rows->owner ? (size_t)(end - at) : n * rows->n_rows;

		at = end;
		parts[i] = i == e->base.rank ? out : in + i * mine;
		if (i == e->base.rank)
			continue;
		messages[n_messages++] = message_to(i, out, out_floats);
		messages[n_messages++] = message_from(i, in + i * mine, mine);
	}
	r = run_round(e, messages, n_messages);
	for (uint32_t i = 0; i < n_ranks && r == 0; i++)
		fold_rows(e, rows, parts[i], i == 0);
	return r;
}

/* ---- tree ----------------------------------------------------------------------------------- */

/* Up: 1 to 0, 3 to 2, ...; 2 to 0, ...; 4 to 0 ... A round is counted even by those who rest, so
 * that all agree. */
static int run_up(struct end *e, const struct exchange_rows *rows)
{
	size_t n = exchange_row_floats(rows) * rows->n_rows;
	uint32_t rank = e->base.rank, n_ranks = e->base.n_ranks;
	int r = reserve(e, n);

	for (uint32_t step = 1; step < n_ranks && r == 0; step *= 2) {
		struct message message = {0};
		bool from = rank % (2 * step) == 0 && rank + step < n_ranks;
		bool to = rank % (2 * step) == step;

		if (from)
			message = message_from(rank + step, e->room, n);
		else if (to)
			message = message_to(rank - step, rows->folded, n);
		r = run_round(e, &message, from || to);
		if (from && r == 0)
			merge_fold_entries(rows->folded, e->room,
					   (size_t)rows->n_rows * rows->n_heads, rows->head_dim);
	}
	return r;
}

static int run_down(struct end *e, const struct exchange_rows *rows)
{
	size_t n = exchange_row_floats(rows) * rows->n_rows;
	uint32_t rank = e->base.rank, n_ranks = e->base.n_ranks, step = 1;
	int r = 0;

	while (step < n_ranks)
		step *= 2;
	for (step /= 2; step && r == 0; step /= 2) {
		struct message message = {0};
		bool to = rank % (2 * step) == 0 && rank + step < n_ranks;
		bool from = rank % (2 * step) == step;

		if (from)
			message = message_from(rank - step, rows->folded, n);
		else if (to)
			message = message_to(rank + step, rows->folded, n);
		r = run_round(e, &message, from || to);
	}
	return r;
}

static int run_tree(struct end *e, const struct exchange_rows *rows)
{
	int r;

	memcpy(rows->folded, rows->parts, exchange_row_floats(rows) * rows->n_rows * sizeof(float));
	r = run_up(e, rows);
	return r ? r : run_down(e, rows);
}

/* ---- ring ----------------------------------------------------------------------------------- */

/* A share of the entries. */
struct share {
	float *data;
	size_t n_entries;
	size_t n_floats;
};

static struct share share_of(const struct end *e, const struct exchange_rows *rows, uint32_t index)
{
	uint64_t n = (uint64_t)rows->n_rows * rows->n_heads, i = index % e->base.n_ranks;
	uint64_t from = n * i / e->base.n_ranks, to = n * (i + 1) / e->base.n_ranks;
	size_t floats = 2 + (size_t)rows->head_dim;

	return (struct share){rows->folded + from * floats, to - from, (to - from) * floats};
}

/* Gives a share to the next rank and takes one from the one before, into its place or, to be
 * folded, beside. */
static int pass(struct end *e, const struct exchange_rows *rows, uint32_t out, uint32_t in,
		bool fold)
{
	uint32_t n_ranks = e->base.n_ranks, rank = e->base.rank;
	struct share give = share_of(e, rows, out), take = share_of(e, rows, in);
	struct message messages[2] = {
		message_to((rank + 1) % n_ranks, give.data, give.n_floats),
		message_from((rank + n_ranks - 1) % n_ranks, fold ? e->room : take.data,
			     take.n_floats),
	};
	int r = run_round(e, messages, 2);

	if (r == 0 && fold)
		merge_fold_entries(take.data, e->room, take.n_entries, rows->head_dim);
	return r;
}

static int run_ring(struct end *e, const struct exchange_rows *rows)
{
	size_t n = exchange_row_floats(rows) * rows->n_rows;
	uint32_t n_ranks = e->base.n_ranks, at = e->base.rank + n_ranks;
	int r = reserve(e, n);

	memcpy(rows->folded, rows->parts, n * sizeof(float));
	for (uint32_t i = 0; i + 1 < n_ranks && r == 0; i++)
		r = pass(e, rows, at - i, at - i - 1, true);
	for (uint32_t i = 0; i + 1 < n_ranks && r == 0; i++)
		r = pass(e, rows, at - i + 1, at - i, false);
	return r;
}

/* ---- the end -------------------------------------------------------------------------------- */

static int run_way(struct end *e, const struct exchange_rows *rows)
{
	size_t bytes = exchange_row_floats(rows) * rows->n_rows * sizeof(float);
	enum exchange_way way = exchange_choose(e->base.n_ranks, bytes, !rows->owner);

	if (e->forced && !rows->owner)
		way = e->way;
	if (way == EXCHANGE_TREE)
		return run_tree(e, rows);
	return way == EXCHANGE_RING ? run_ring(e, rows) : run_direct(e, rows);
}

static void socket_abort(struct exchange *x)
{
	struct end *e = (struct end *)x;

	e->failed = true;
	for (uint32_t i = 0; i < x->n_ranks; i++) {
		if (i != x->rank)
			shutdown(e->fds[i], SHUT_RDWR);
	}
}

static int socket_run(struct exchange *x, const struct exchange_rows *rows)
{
	struct end *e = (struct end *)x;
	int r;

	if (e->failed)
		return -EIO;
	r = run_way(e, rows);
	if (r)
		socket_abort(x);
	return r;
}

static void socket_free(struct exchange *x)
{
	struct end *e = (struct end *)x;

	for (uint32_t i = 0; i < x->n_ranks; i++) {
		if (i != x->rank)
			close(e->fds[i]);
	}
	free(e->fds);
	free(e->room);
	free(e);
}

static const struct exchange_ops socket_ops = {socket_run, socket_abort, socket_free};

int exchange_socket_new(const struct exchange_socket_config *config, struct exchange **ret)
{
	struct end *e;

	if (config->n_ranks > EXCHANGE_RANKS_MAX || config->rank >= config->n_ranks)
		return -EINVAL;
	e = calloc(1, sizeof(*e));
	if (!e)
		return -ENOMEM;
	*e = (struct end){.base = {&socket_ops, config->rank, config->n_ranks},
			  .timeout_ms = config->timeout_ms,
			  .forced = config->forced,
			  .way = config->way};
	e->fds = malloc(config->n_ranks * sizeof(*e->fds));
	if (!e->fds) {
		free(e);
		return -ENOMEM;
	}
	memcpy(e->fds, config->fds, config->n_ranks * sizeof(*e->fds));
	*ret = &e->base;
	return 0;
}
