/*
 * main.c - coppiced: what it is made of, put together in order and taken apart in reverse.
 *
 * Two threads: this one runs the loop (sockets, signals, timers, the service manager), the
 * scheduler's owns the store, the lanes and the backend.
 */
#include "proto/cli/status.h"
#include "daemon/backend/backends.h"
#include "daemon/backend/ranks.h"
#include "daemon/loop/loop_new.h"
#include "kernels/group/exchange.h"
#include "daemon/base/log.h"
#include "daemon/base/memory_left.h"
#include "daemon/base/threads.h"
#include "daemon/config/quota.h"
#include "daemon/config/read.h"
#include "daemon/server/server.h"
#include "daemon/sched/verbs/tiers.h"
#include "daemon/weights/loader.h"
#include "daemon/weights/weights.h"
#include "proto/arith.h"

#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

#define DESCRIPTORS 65536u /* as the unit has it */
#define MAPPED_BYTES (256 << 10)

struct daemon {
	struct config config;
	struct loop *loop; /* owned, as all below */
	struct opened_backend backend;
	struct exchange *ranks; /* NULL: there are no other daemons */
	struct abi_board *board;
	int board_fd;
	struct sched *sched;
	struct weights_table *weights; /* NULL: the backend holds none */
	struct ledger ledger; /* where it holds some */
	struct listener listener;
	struct server server;
};

static int board_new(struct daemon *d)
{
	void *map;
	int r = channel_segment_new("coppice-board", ABI_BOARD_BYTES, 1, &d->board_fd, &map);

	if (r < 0) {
		log_error("no shared memory: %s", strerror(-r));
		return r;
	}
	d->board = map;
	r = channel_segment_keep(d->board_fd);
	if (r < 0) {
		log_error("the board cannot be kept from clients: %s", strerror(-r));
		return r;
	}
	d->board->magic = ABI_BOARD_MAGIC;
	d->board->daemon_pid = (uint32_t)getpid();
	if (getrandom(&d->board->generation, sizeof(d->board->generation), 0) < 0)
		return -errno;
	/* Pairs with the clients' acquire of version. */
	atomic_store_explicit(&d->board->version, ABI_VERSION, memory_order_release);
	return 0;
}

/* Without a size of their own they may take half of the memory that there is: what the pool has not
 * taken yet is theirs too, and a user's three quarters still hold a model of 8 billion on 80 GB. */
static int weights_start(struct daemon *d)
{
	const struct config *c = &d->config;
	struct backend_memory memory = {0};
	struct weights_config config = {
		.ops = d->backend.ops,
		.backend = d->backend.backend,
		.ledger = &d->ledger,
		.loader = "/proc/self/exe",
		.memory = {c->weights_bytes, c->domain_weights_bytes},
		.names = {c->weight_names_bytes, c->domain_weight_names_bytes},
		.max_loads = c->max_loads,
		.domain_max_loads = c->max_domain_loads,
		.stall_ms = c->load_stall_ms,
		.least_rate = c->load_least_rate,
		.max_load_s = c->max_load_s,
	};
	char error[160];

	if (!d->backend.ops->program)
		return 0;
	if (d->backend.ops->memory(c->device[0] ? c->device : NULL, &memory, error, sizeof(error)))
		memory.bytes = UINT64_MAX;
	else if (!config.memory.bytes)
		config.memory.bytes = memory.bytes / 2;
	if (!config.memory.domain_bytes)
		config.memory.domain_bytes = config.memory.bytes / 4 * 3;
	ledger_init(&d->ledger, c->pool_bytes - c->stage_bytes,
		    quota_reserved_extents(c) * c->extent_bytes, config.memory.bytes,
		    memory.bytes - min_u64(c->stage_bytes, memory.bytes));
	sched_share_ledger(d->sched, &d->ledger);
	return weights_table_new(&config, &d->weights);
}

static int daemon_start(struct daemon *d)
{
	int r = loop_new(d->config.loop, &d->loop);

	if (r < 0) {
		log_error("no event loop (%s): %s", d->config.loop, strerror(-r));
		return r;
	}
	r = backends_open(&d->config, &d->backend);
	if (r < 0)
		return r;
	r = ranks_open(&d->config, &d->ranks);
	if (r < 0)
		return r;
	r = board_new(d);
	if (r < 0)
		return r;
	r = listener_open(&d->listener, &d->config);
	if (r < 0)
		return r;
	r = sched_new(&d->config, d->backend.ops, d->backend.backend, d->board, &d->sched);
	if (r < 0)
		log_error("the scheduler cannot be started: %s", strerror(-r));
	return r < 0 ? r : weights_start(d);
}

static int daemon_serve(struct daemon *d)
{
	const struct server_parts parts = {
		.config = &d->config,
		.loop = d->loop,
		.sched = d->sched,
		.board = d->board,
		.board_fd = d->board_fd,
		.backend_name = d->backend.ops->name,
		.weights = d->weights,
	};
	int status;

	if (server_init(&d->server, &parts, &d->listener) < 0)
		return 1;
	log_info("%s ready: backend %s, %s loop, pool of %llu MiB", COPPICE_VERSION,
		 d->backend.ops->name, loop_name(d->loop),
		 (unsigned long long)d->config.pool_bytes >> 20);
	status = server_run(&d->server);
	server_done(&d->server);
	return status;
}

static void daemon_done(struct daemon *d)
{
	listener_done(&d->listener);
	weights_table_end_loads(d->weights); /* they may ask the scheduler for room */
	sched_free(d->sched);
	weights_table_free(d->weights);
	if (d->board)
		munmap(d->board, ABI_BOARD_BYTES);
	if (d->board_fd >= 0)
		close(d->board_fd);
	exchange_free(d->ranks);
	backends_close(&d->backend);
	loop_free(d->loop);
	free(d);
}

/* A session takes three and a lane up to two: what a shell gives, mostly 1,024, is for few clients.
 * Where there are no more, some are refused sooner, with a sentence. */
static void raise_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur >= DESCRIPTORS)
		return;
	limit.rlim_cur = min_u64(limit.rlim_max, DESCRIPTORS);
	(void)setrlimit(RLIMIT_NOFILE, &limit);
}

/* Half-built things are freed by daemon_done; only a stop that did not end in time leaves without
 * it. */
static int daemon_run(struct daemon *d)
{
	int status = daemon_start(d) < 0 ? 1 : daemon_serve(d);

	if (d->server.forced)
		_exit(status);
	daemon_done(d);
	return status;
}

/* How a pool that is a share came about. */
static const char *share_text(const struct config *config, char *text, size_t bytes)
{
	if (config->pool_bytes)
		return "";
	if (config->pool_percent)
		snprintf(text, bytes, " (%u %%)", config->pool_percent);
	else
		snprintf(text, bytes, " (the usual share)");
	return text;
}

static const char *user_text(const struct config *config, char *text, size_t bytes)
{
	uint64_t most = quota_domain_bytes(config, false);

	if (most == 0)
		return "";
	snprintf(text, bytes, ", of which a user may hold %llu MiB",
		 (unsigned long long)max_u64(most, config->extent_bytes) >> 20);
	return text;
}

/* A file that is there keeps its size, which is not known here. */
static void print_tiers(const struct config *config)
{
	uint64_t bytes = config->host_tier_bytes;

	if (!bytes)
		return;
	printf("below the pool: host memory of %llu MiB, of which a user may hold %llu MiB",
	       (unsigned long long)bytes >> 20,
	       (unsigned long long)quota_host_share(config, bytes, config->file_tier[0]) >> 20);
	if (memory_is_short_of(bytes))
		printf(" (%llu MiB are left of the machine's: a daemon would go on without)",
		       (unsigned long long)memory_left() >> 20);
	if (config->file_tier[0] && config->domain_file_bytes)
		printf("; file %s, of which a user may hold %llu MiB", config->file_tier,
		       (unsigned long long)config->domain_file_bytes >> 20);
	else if (config->file_tier[0])
		printf("; file %s, of which a user may hold three quarters", config->file_tier);
	printf("\n");
}

/* Looks at what computes, too: how much a share is, and whether a pool fits, no file tells. A
 * config may be checked where there is no such device. */
static int check_config(struct config *config)
{
	struct opened_backend looked;
	char text[32], user[64];
	const char *share = share_text(config, text, sizeof(text));
	int r = backends_look(config, &looked);

	if (r == -ENOMEM)
		return CLI_FAILED;
	printf("OK: socket %s, ", config->socket_path);
	if (r < 0)
		printf("backend %s, which this machine does not have\n", config->backend);
	else
		printf("backend %s, pool %llu MiB%s%s\n", looked.name,
		       (unsigned long long)config->pool_bytes >> 20, share,
		       user_text(config, user, sizeof(user)));
	print_tiers(config);
	return CLI_OK;
}

/* What this process is: the daemon, or a look at something. */
static int run_as(struct daemon *d)
{
	enum log_level level;
	int status;

	if (log_level_parse(d->config.log_level, &level) == 0)
		log_level_set(level);
	if (!d->config.check_only && !d->config.verify_tier[0]) {
		raise_limit();
		threads_block_signals();
		return daemon_run(d);
	}
	if (d->config.check_only)
		status = check_config(&d->config);
	else
		status = tiers_verify(&d->config);
	free(d);
	return status;
}

int main(int argc, char **argv)
{
	struct daemon *d;
	int r;

	if (argc == 2 && !strcmp(argv[1], "--loader"))
		return loader_run();
	d = calloc(1, sizeof(*d));
	log_init();
	/* Else the C library raises it to the largest that was freed, and prompts that users left
	 * stay in a heap that shrinks from its top alone. */
	mallopt(M_MMAP_THRESHOLD, MAPPED_BYTES);
	if (!d)
		return CLI_FAILED;
	d->board_fd = d->listener.fd = -1;
	config_init(&d->config);
	r = config_read(&d->config, argc, argv);
	if (r == 0)
		return run_as(d);
	free(d);
	return r < 0 ? CLI_USAGE : CLI_OK;
}
