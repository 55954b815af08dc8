/*
 * ranks.c - see ranks.h.
 *
 *      rank 0  listens   <-- hello 1 --   rank 1  listens   <-- hello 2 --   rank 2
 *                        -- hello 0 -->                     -- hello 1 -->
 *              listens   <-------------------- hello 2 ---------------------
 */
#include "ranks.h"

#include "exchange_socket.h"
#include "proto/arith.h"
#include "proto/cleanup.h"
#include "proto/clock.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define MAGIC 0x52504f43u
#define RETRY_MS 20u /* before calling again who does not listen yet */
/* A stranger's silence keeps the others waiting for no longer, each after the other. */
#define HELLO_MS 1000u

struct hello {
	uint32_t magic, rank, n_ranks;
};

struct address {
	struct sockaddr_storage at;
	socklen_t bytes;
};

struct joining {
	const struct ranks_config *config;
	uint64_t deadline_ms;
	int listener; /* owned, -1: none */
	int fds[EXCHANGE_RANKS_MAX]; /* owned, -1: not yet */
	char *error;
	size_t error_bytes;
};

__attribute__((format(printf, 3, 4))) static int fail(struct joining *j, int r, const char *format,
						      ...)
{
	va_list args;

	va_start(args, format);
	if (j->error_bytes)
		vsnprintf(j->error, j->error_bytes, format, args);
	va_end(args);
	return r;
}

/* ---- addresses ------------------------------------------------------------------------------ */

static int parse_path(const char *text, struct address *ret)
{
	struct sockaddr_un *un = (struct sockaddr_un *)&ret->at;

	*ret = (struct address){.bytes = sizeof(*un)};
	if (strlen(text) >= sizeof(un->sun_path))
		return -EINVAL;
	un->sun_family = AF_UNIX;
	memcpy(un->sun_path, text, strlen(text) + 1);
	return 0;
}

/* One that can be called: getaddrinfo takes any number, modulo 65536. */
static bool is_port(const char *text)
{
	char *end;
	unsigned long port = *text >= '0' && *text <= '9' ? strtoul(text, &end, 10) : 0;

	return port >= 1 && port <= UINT16_MAX && !*end;
}

/* Numeric: a name server's silence has no place here. */
static int parse_host(const char *text, struct address *ret)
{
	struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV,
				 .ai_socktype = SOCK_STREAM},
			*found;
	const char *colon = strrchr(text, ':');
	char host[64];
	size_t n = colon ? (size_t)(colon - text) : 0;
	bool bracketed = n > 2 && text[0] == '[' && text[n - 1] == ']';

	if (n == 0 || n >= sizeof(host) || !is_port(colon + 1))
		return -EINVAL;
	n -= bracketed ? 2 : 0;
	memcpy(host, text + bracketed, n);
	host[n] = '\0';
	if (getaddrinfo(host, colon + 1, &hints, &found) != 0)
		return -EINVAL;
	*ret = (struct address){.bytes = found->ai_addrlen};
	memcpy(&ret->at, found->ai_addr, found->ai_addrlen);
	freeaddrinfo(found);
	return 0;
}

static int parse_address(const char *text, struct address *ret)
{
	return strchr(text, '/') ? parse_path(text, ret) : parse_host(text, ret);
}

bool ranks_is_address(const char *text)
{
	struct address address;

	return parse_address(text, &address) == 0;
}

static int parse(struct joining *j, uint32_t rank, struct address *ret)
{
	const char *text = j->config->addresses[rank];
	int r = parse_address(text, ret);

	if (r)
		return fail(j, r, "rank %u: \"%s\" is neither a path nor a numeric host:port", rank,
			    text);
	return 0;
}

/* ---- sockets -------------------------------------------------------------------------------- */

static int socket_new(const struct address *address)
{
	int fd = socket(address->at.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int one = 1;

	if (fd >= 0 && address->at.ss_family != AF_UNIX) {
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	}
	return fd;
}

static int wait_for(int fd, short events, uint64_t deadline_ms)
{
	struct pollfd p = {.fd = fd, .events = events};
	uint64_t now = clock_now_ms();
	int n = now < deadline_ms ? poll(&p, 1, (int)(deadline_ms - now)) : 0;

	if (n < 0)
		return errno == EINTR ? 0 : -errno;
	return n > 0 ? 0 : -ETIMEDOUT;
}

static int pass(int fd, bool out, struct hello *hello, uint64_t deadline_ms)
{
	char *at = (char *)hello;
	size_t done = 0;

	while (done < sizeof(*hello)) {
		int r = wait_for(fd, out ? POLLOUT : POLLIN, deadline_ms);
		ssize_t n;

		if (r)
			return r;
		n = out ? send(fd, at + done, sizeof(*hello) - done, MSG_NOSIGNAL)
			: recv(fd, at + done, sizeof(*hello) - done, 0);
		if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
			return -ECONNRESET;
		done += n > 0 ? (size_t)n : 0;
	}
	return 0;
}

static int say_hello(const struct joining *j, int fd, uint64_t deadline_ms)
{
	struct hello hello = {MAGIC, j->config->rank, j->config->n_ranks};

	return pass(fd, true, &hello, deadline_ms);
}

/* ret_rank: who it is; -EPROTO: a stranger, or of another list. */
static int hear_hello(const struct joining *j, int fd, uint64_t deadline_ms, uint32_t *ret_rank)
{
	struct hello hello;
	int r = pass(fd, false, &hello, deadline_ms);

	if (r)
		return r;
	if (hello.magic != MAGIC || hello.n_ranks != j->config->n_ranks ||
	    hello.rank >= hello.n_ranks)
		return -EPROTO;
	*ret_rank = hello.rank;
	return 0;
}

/* ---- joining -------------------------------------------------------------------------------- */

/* What an earlier run left behind, a socket where nobody answers, goes; anything else is in the
 * way. */
static void clear_path(const struct address *own, const char *text)
{
	struct stat st;
	CLEANUP_FD int fd = socket_new(own);

	if (fd >= 0 && lstat(text, &st) == 0 && S_ISSOCK(st.st_mode) &&
	    connect(fd, (const struct sockaddr *)&own->at, own->bytes) != 0 &&
	    errno == ECONNREFUSED)
		unlink(text);
}

static int listen_own(struct joining *j)
{
	const char *text = j->config->addresses[j->config->rank];
	struct address own;
	int r = parse(j, j->config->rank, &own);

	if (r)
		return r;
	if (own.at.ss_family == AF_UNIX)
		clear_path(&own, text);
	int fd = socket_new(&own);
	if (fd >= 0 && bind(fd, (struct sockaddr *)&own.at, own.bytes) == 0 &&
	    listen(fd, EXCHANGE_RANKS_MAX) == 0) {
		j->listener = fd;
		return 0;
	}
	r = -errno;
	if (fd >= 0)
		close(fd);
	return fail(j, r, "rank %u cannot listen at %s: %s", j->config->rank, text, strerror(-r));
}

/* One attempt. */
static int call_once(struct joining *j, uint32_t rank, const struct address *address)
{
	int fd = socket_new(address), r, result = 0;
	socklen_t bytes = sizeof(result);
	uint32_t heard;

	if (fd < 0)
		return -errno;
	r = connect(fd, (const struct sockaddr *)&address->at, address->bytes) == 0 ? 0 : -errno;
	if (r == -EINPROGRESS) {
		r = wait_for(fd, POLLOUT, j->deadline_ms);
		if (r == 0 && getsockopt(fd, SOL_SOCKET, SO_ERROR, &result, &bytes) == 0)
			r = -result;
	}
	if (r == 0)
		r = say_hello(j, fd, j->deadline_ms);
	if (r == 0)
		r = hear_hello(j, fd, j->deadline_ms, &heard);
	if (r == 0 && heard != rank)
		r = -EPROTO;
	if (r)
		close(fd);
	else
		j->fds[rank] = fd;
	return r;
}

/* Who does not listen yet is called again. */
static int call(struct joining *j, uint32_t rank)
{
	struct timespec pause = {0, RETRY_MS * 1000000L};
	struct address address;
	int r = parse(j, rank, &address);

	if (r)
		return r;
	while ((r = call_once(j, rank, &address)) != 0) {
		if (clock_now_ms() + RETRY_MS >= j->deadline_ms)
			return fail(j, -ETIMEDOUT, "rank %u at %s has not answered for %u ms: %s",
				    rank, j->config->addresses[rank], j->config->timeout_ms,
				    strerror(-r));
		nanosleep(&pause, NULL);
	}
	return 0;
}

static uint64_t hello_deadline(const struct joining *j)
{
	uint64_t limit = clock_now_ms() + HELLO_MS;

	return min_u64(limit, j->deadline_ms);
}

/* Has who called first, of that rank, hung up? It may have been started anew. */
static bool is_gone(int fd)
{
	char byte;
	ssize_t n = recv(fd, &byte, 1, MSG_PEEK);

	return n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
}

static bool is_awaited(const struct joining *j, uint32_t rank)
{
	return rank > j->config->rank && (j->fds[rank] < 0 || is_gone(j->fds[rank]));
}

/* A rank above this one, or a stranger, who is hung up on. */
static void answer(struct joining *j)
{
	int fd = accept4(j->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK), one = 1;
	uint64_t deadline_ms = hello_deadline(j);
	uint32_t rank;

	if (fd < 0)
		return;
	if (hear_hello(j, fd, deadline_ms, &rank) != 0 || !is_awaited(j, rank) ||
	    say_hello(j, fd, deadline_ms) != 0) {
		close(fd);
		return;
	}
	if (j->fds[rank] >= 0)
		close(j->fds[rank]);
	/* of no use to a path's socket, and refused by it */
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	j->fds[rank] = fd;
}

/* n_ranks: none. */
static uint32_t next_awaited(const struct joining *j)
{
	uint32_t rank = j->config->rank + 1;

	while (rank < j->config->n_ranks && !is_awaited(j, rank))
		rank++;
	return rank;
}

static int answer_all(struct joining *j)
{
	uint32_t rank;

	while ((rank = next_awaited(j)) < j->config->n_ranks) {
		if (wait_for(j->listener, POLLIN, j->deadline_ms) != 0)
			return fail(j, -ETIMEDOUT, "rank %u of %s has not called for %u ms", rank,
				    j->config->addresses[rank], j->config->timeout_ms);
		answer(j);
	}
	return 0;
}

static int join_all(struct joining *j)
{
	int r = listen_own(j);

	for (uint32_t rank = 0; r == 0 && rank < j->config->rank; rank++)
		r = call(j, rank);
	return r ? r : answer_all(j);
}

static void stop_listening(const struct joining *j)
{
	const char *own = j->config->addresses[j->config->rank];

	if (j->listener < 0)
		return;
	close(j->listener);
	if (strchr(own, '/'))
		unlink(own);
}

int ranks_connect(const struct ranks_config *config, struct exchange **ret, char *error,
		  size_t error_bytes)
{
	struct joining j = {.config = config,
			    .deadline_ms = clock_now_ms() + config->timeout_ms,
			    .listener = -1,
			    .error = error,
			    .error_bytes = error_bytes};
	struct exchange_socket_config ends = {.rank = config->rank,
					      .n_ranks = config->n_ranks,
					      .fds = j.fds,
					      .timeout_ms = config->timeout_ms};
	int r;

	if (config->n_ranks > EXCHANGE_RANKS_MAX || config->rank >= config->n_ranks)
		return fail(&j, -EINVAL, "rank %u of %u: ranks are 1 to %u", config->rank,
			    config->n_ranks, EXCHANGE_RANKS_MAX);
	for (uint32_t i = 0; i < config->n_ranks; i++)
		j.fds[i] = -1;
	r = join_all(&j);
	stop_listening(&j);
	if (r == 0)
		r = exchange_socket_new(&ends, ret);
	for (uint32_t i = 0; r && i < config->n_ranks; i++) {
		if (j.fds[i] >= 0)
			close(j.fds[i]);
	}
	return r;
}
