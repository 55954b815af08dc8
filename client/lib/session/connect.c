/*
 * connect.c - how a connection begins and ends.
 *
 * Until the daemon has said hello its sentences are the thread's (key EXPLAIN_CONNECT); then the
 * connection gets a key of its own. Its end stops the thread that watches, if there is one, and
 * frees from the top down: lanes with their sequences and streams, arenas, then the daemon hears
 * that nothing of the device is open any more.
 */
#include "lane_open.h"

#include "client/lib/base/clock.h"
#include "client/lib/connection/call.h"
#include "client/lib/connection/model.h"
#include "client/lib/connection/watch.h"
#include "client/lib/memory/arena.h"
#include "proto/channel_why.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

const char *coppice_version(void)
{
	return COPPICE_VERSION;
}

const char *coppice_explain(const struct coppice *c)
{
	return explain_last(c ? c->key : EXPLAIN_CONNECT);
}

static int alive_page_new(_Atomic uint32_t **ret)
{
	size_t bytes = (size_t)sysconf(_SC_PAGESIZE);
	void *page = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (page == MAP_FAILED)
		return -errno;
	if (madvise(page, bytes, MADV_WIPEONFORK) < 0) {
		int r = -errno;

		munmap(page, bytes);
		return r;
	}
	*ret = page;
	atomic_store_explicit(*ret, 1, memory_order_relaxed);
	return 0;
}

/* The condition's time limits are on the monotonic clock. */
static void locks_init(struct coppice *c)
{
	pthread_condattr_t attributes;

	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&c->answered, &attributes);
	pthread_condattr_destroy(&attributes);
	pthread_mutex_init(&c->lock, NULL);
	pthread_mutex_init(&c->lists_lock, NULL);
	pthread_mutex_init(&c->near_lock, NULL);
	pthread_mutex_init(&c->prompt_lock, NULL);
}

static void connection_free(struct coppice *c)
{
	connection_unmap(c, c->board, ABI_BOARD_BYTES);
	if (c->socket >= 0)
		close(c->socket);
	if (c->doorbell >= 0)
		close(c->doorbell);
	if (c->answers_fd >= 0)
		close(c->answers_fd);
	if (c->poll_fd >= 0)
		close(c->poll_fd);
	if (c->watch_fd >= 0)
		close(c->watch_fd);
	free(c->inbox);
	atomic_store_explicit(&c->closed, 1, memory_order_relaxed);
	connection_unref(c);
}

static void connection_freep(struct coppice **c)
{
	if (*c)
		connection_free(*c);
}

static int connection_new(struct coppice **ret)
{
	struct coppice *c = calloc(1, sizeof(*c));
	int r = -ENOMEM;

	if (!c)
		return -ENOMEM;
	c->n_refs = 1;
	c->key = EXPLAIN_CONNECT;
	c->socket = -1;
	c->doorbell = -1;
	c->poll_fd = -1;
	c->answers_fd = -1;
	c->watch_fd = -1;
	c->inbox = malloc(CHANNEL_MAX_BYTES);
	if (c->inbox)
		r = alive_page_new(&c->alive);
	if (r < 0) {
		free(c->inbox);
		free(c);
		return r;
	}
	locks_init(c);
	list_init(&c->lanes);
	*ret = c;
	return 0;
}

static int explain_connect(const char *path, int code)
{
	char why[CHANNEL_WHY_BYTES];

	channel_why_connect(path, code, why, sizeof(why));
	return explain(EXPLAIN_CONNECT, code, "%s", why);
}

static int map_board(struct coppice *c, int fd)
{
	void *map;
	int r = channel_segment_map(fd, ABI_BOARD_BYTES, 0, &map);

	if (r < 0)
		return explain(c->key, -EPROTO, "the daemon's board cannot be mapped: %s",
			       strerrordesc_np(-r));
	c->board = map;
	/* Pairs with the daemon's release when the board was complete. */
	if (atomic_load_explicit(&c->board->version, memory_order_acquire) != ABI_VERSION ||
	    c->board->magic != ABI_BOARD_MAGIC)
		return explain(c->key, -EPROTO,
			       "the daemon's board is not of ABI version %u; library and daemon "
			       "are of different versions",
			       ABI_VERSION);
	return 0;
}

static int say_hello(struct coppice *c, uint64_t timeout_ns)
{
	Coppice__Hello hello = COPPICE__HELLO__INIT;
	struct call call = call_of("coppice_connect");
	CLEANUP_ANSWER struct answer answer = ANSWER_NONE;
	int r;

	hello.abi_version = ABI_VERSION;
	hello.client_name = program_invocation_short_name;
	call.request.hello = &hello;
	call.timeout_ns = timeout_ns;
	r = call_daemon(c, &call, &answer);
	if (r < 0)
		return r;
	if (!answer.reply->hello || answer.n_fds != 2)
		return call_bad_answer(c, call.what);
	if (answer.reply->hello->abi_version != ABI_VERSION)
		return explain(c->key, -EPROTO,
			       "the daemon (%s) speaks ABI version %u, this library %u: install "
			       "the same version of both",
			       answer.reply->hello->daemon_version,
			       answer.reply->hello->abi_version, ABI_VERSION);
	c->session = answer.reply->hello->session;
	c->doorbell = answer_take_fd(&answer, 1);
	return map_board(c, answer.fds[0]);
}

int coppice_connect(struct coppice **ret, const char *path)
{
	return coppice_connect_timeout(ret, path, COPPICE_CONNECT_NS);
}

int coppice_connect_timeout(struct coppice **ret, const char *path, uint64_t timeout_ns)
{
	uint64_t deadline_ns = clock_add_ns(clock_now_ns(), timeout_ns);
	__attribute__((cleanup(connection_freep))) struct coppice *c = NULL;
	int r;

	*ret = NULL;
	if (!path)
		path = channel_default_path();
	r = connection_new(&c);
	if (r == 0)
		r = channel_connect(path, timeout_ns, &c->socket);
	if (r < 0)
		return explain_connect(path, r);
	r = say_hello(c, clock_left_ns(deadline_ns));
	if (r < 0)
		return r;
	/* Unlike any other's: no two connections of a process have time and place in common. */
	c->key = (clock_now_ns() << 16) ^ (uintptr_t)c;
	*ret = c;
	c = NULL;
	return 0;
}

void coppice_close(struct coppice *c)
{
	if (!c)
		return;
	watch_end(c);
	lane_drop_all(c);
	arena_drop_all(c);
	call_leave(c);
	model_drop_all(c);
	connection_free(c);
}
