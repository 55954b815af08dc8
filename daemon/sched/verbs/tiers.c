/*
 * tiers.c - host memory and the file, made, looked after and written out.
 *
 * Both are lent to the store, which decides what lies where. What goes wrong with one is said once
 * and leaves the daemon working; what is still to be written when it ends is written here.
 */
#include "tiers.h"

#include "daemon/sched/core/doorbell.h"
#include "daemon/base/log.h"
#include "daemon/base/memory_left.h"
#include "daemon/config/quota.h"
#include "scheduler.h"

#include "kvstore/files/tier_file.h"
#include "kvstore/files/tier_host.h"
#include "kvstore/tier.h"
#include "proto/arith.h"
#include "proto/clock.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define UNIT_BYTES 16384u
#define LOOK_NS UINT64_C(50000) /* how often copies are looked at that ring no doorbell */
#define WHY_BYTES 400
#define LOG_NS NS_PER_S /* from a line of the log about altered pages to the next */

/* ---- host memory ---------------------------------------------------------------------------- */

static void *memory_alloc(void *ctx, size_t bytes)
{
	struct sched *s = ctx;

	if (memory_is_short_of(bytes))
		return NULL;
	void *memory =
		mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		return NULL;
	madvise(memory, bytes, MADV_HUGEPAGE);
	if (s->core.ops->tier->pin(s->core.backend, memory, bytes) == 0)
		return memory;
	munmap(memory, bytes);
	return NULL;
}

static void memory_free(void *ctx, void *memory, size_t bytes)
{
	struct sched *s = ctx;

	s->core.ops->tier->unpin(s->core.backend, memory, bytes);
	munmap(memory, bytes);
}

/* ---- copies --------------------------------------------------------------------------------- */

static struct backend_copy copy_of(const struct tier_copy *copy)
{
	return (struct backend_copy){
		.extent = copy->extent,
		.offset_bytes = copy->offset_bytes,
		.bytes = copy->bytes,
		.host = copy->host,
	};
}

static uint64_t mover_down(void *ctx, const struct tier_copy *copy)
{
	struct sched *s = ctx;
	struct backend_copy of = copy_of(copy);

	return s->core.ops->tier->down(s->core.backend, &of);
}

static uint64_t mover_up(void *ctx, const struct tier_copy *copy)
{
	struct sched *s = ctx;
	struct backend_copy of = copy_of(copy);

	return s->core.ops->tier->up(s->core.backend, &of);
}

static uint64_t mover_downs_done(void *ctx)
{
	struct sched *s = ctx;

	return s->core.ops->tier->downs_done(s->core.backend);
}

static uint64_t mover_ups_done(void *ctx)
{
	struct sched *s = ctx;

	return s->core.ops->tier->ups_done(s->core.backend);
}

static void mover_kick(void *ctx)
{
	struct sched *s = ctx;

	s->core.ops->tier->kick(s->core.backend);
}

/* ---- beginning ------------------------------------------------------------------------------ */

static struct tier_file *open_file(const struct config *config)
{
	struct tier_file_config of = {
		.path = config->file_tier,
		.bytes = config->file_tier_bytes,
		.typed_in = config->file_tier_unit,
		.unit_bytes = UNIT_BYTES,
		.chunk_units = (uint32_t)(config->extent_bytes / UNIT_BYTES),
		.depth = 2 * config->tier_depth, /* reads and writes */
	};
	struct tier_file *file = NULL;
	char why[WHY_BYTES];

	if (!config->file_tier[0])
		return NULL;
	of.depth = min_u32(of.depth, 1024);
	if (tier_file_open(&of, &file, why, sizeof(why)) < 0)
		log_error("%s; going on without it: KV that leaves host memory is lost", why);
	return file;
}

/* Its units are the file's, where there is one. */
static struct tier_host *open_host(struct sched *s, struct tier_file *file)
{
	const struct tier_catalog *catalog = file ? tier_file_catalog(file) : NULL;
	struct tier_host_config of = {
		.memory = {.ctx = s, .alloc = memory_alloc, .free = memory_free},
		.bytes = s->core.config->host_tier_bytes,
		.typed_in = s->core.config->host_tier_unit,
		.unit_bytes = catalog ? catalog->unit_bytes : UNIT_BYTES,
		.chunk_units = catalog ? catalog->room.chunk_units
				       : (uint32_t)(s->core.config->extent_bytes / UNIT_BYTES),
	};
	struct tier_host *host = NULL;
	char why[WHY_BYTES];

	if (tier_host_new(&of, &host, why, sizeof(why)) < 0)
		log_error("%s; going on without: KV that leaves the pool is lost", why);
	return host;
}

static void say_what_was_found(const struct config *config, const struct tier_report *report,
			       const struct store_tiers_found *found)
{
	if (report->journal_torn)
		log_warning("tier file %s: its journal ends in the middle of a record; what came "
			    "before it holds",
			    config->file_tier);
	if (found->n_lost > 0)
		log_warning("tier file %s: %" PRIu64 " pages of it are lost: they fit no model, or "
			    "what comes before them is not there",
			    config->file_tier, found->n_lost);
	if (found->register_error)
		log_warning("tier file %s: host memory is not registered with io_uring (%s): each "
			    "read and write pins it anew, not only those of several pieces of "
			    "memory; LimitMEMLOCK is the limit",
			    config->file_tier, strerror(-found->register_error));
	log_info("tier file %s: %" PRIu64 " tokens are there", config->file_tier, found->n_tokens);
}

static uint64_t room_bytes(const struct tier_room *room, uint32_t unit_bytes)
{
	return (uint64_t)room->n_chunks * room->chunk_units * unit_bytes;
}

/* What of the tiers a user may have. */
static void set_shares(const struct config *config, struct store_tiers_config *of)
{
	uint32_t unit_bytes = of->host->unit_bytes;
	uint64_t host = room_bytes(&of->host->room, unit_bytes);

	of->domain_bytes[STORE_HOST] = quota_host_share(config, host, of->file);
	of->owner_bytes[STORE_HOST] = config->domain_host_bytes;
	if (!of->file)
		return;
	of->domain_bytes[STORE_FILE] =
		quota_file_share(config,
				 room_bytes(&tier_file_catalog(of->file)->room, unit_bytes));
	of->owner_bytes[STORE_FILE] = config->domain_file_bytes;
}

static int attach(struct sched *s, struct tier_host *host, struct tier_file *file)
{
	const struct config *config = s->core.config;
	struct store_tiers_config of = {
		.mover = {.ctx = s,
			  .down = mover_down,
			  .up = mover_up,
			  .downs_done = mover_downs_done,
			  .ups_done = mover_ups_done,
			  .kick = mover_kick},
		.host = host,
		.file = file,
		.depth = config->tier_depth,
		.long_paths = s->streamed.n_extents > 0,
	};
	struct tier_report report = {0};
	struct store_tiers_found found;

	set_shares(config, &of);
	if (file)
		report = tier_file_catalog(file)->report;
	int r = store_tiers_attach(s->core.store, &of, &found);
	if (r == 0 && file)
		say_what_was_found(config, &report, &found);
	return r;
}

/* The file's end rings as clients do. Without that it is looked at in turns. */
static void listen_to_file(struct sched *s)
{
	int fd = store_tiers_fd(s->core.store);

	if (fd >= 0 && doorbell_add(&s->doorbell, fd) < 0)
		log_warning("tier file: its ring cannot be waited for; it is looked at in turns");
}

/* The last extents of the pool, which the store does not have. */
static void take_stage(struct sched *s)
{
	uint64_t extent_bytes = s->core.config->extent_bytes;
	uint32_t first = (uint32_t)((s->core.config->pool_bytes - s->core.config->stage_bytes) /
				    extent_bytes);
	uint32_t n = (uint32_t)(s->core.config->stage_bytes / extent_bytes);

	if (n > 0 && !s->core.ops->tier->leg) {
		log_error("stage: the %s backend computes no attention in legs; going on without",
			  s->core.ops->name);
		return;
	}
	for (uint32_t i = 0; i < n; i++) {
		if (s->core.ops->extent_commit(s->core.backend, first + i) == 0)
			continue;
		while (i-- > 0)
			s->core.ops->extent_release(s->core.backend, first + i);
		log_error("stage: there is no memory for it; going on without");
		return;
	}
	s->streamed.first_extent = first;
	s->streamed.n_extents = n;
}

/* There is nowhere for KV to come from. */
static void give_stage(struct sched *s)
{
	for (uint32_t i = 0; i < s->streamed.n_extents; i++)
		s->core.ops->extent_release(s->core.backend, s->streamed.first_extent + i);
	s->streamed.n_extents = 0;
}

void sched_tiers_attach(struct sched *s)
{
	const struct config *config = s->core.config;

	if (!config->host_tier_bytes)
		return;
	if (!s->core.ops->tier) {
		log_error("host_tier: the %s backend moves no KV; going on without lower tiers",
			  s->core.ops->name);
		return;
	}
	struct tier_file *file = open_file(config);
	struct tier_host *host = open_host(s, file);
	int r = host ? 0 : -ENOMEM;

	if (r == 0) {
		take_stage(s);
		r = attach(s, host, file);
	}

	if (r < 0) {
		if (host)
			log_error("lower tiers: %s; going on without", strerror(-r));
		give_stage(s);
		tier_host_free(host);
		tier_file_close(file);
		return;
	}
	s->tiers.on = true;
	listen_to_file(s);
	log_info("lower tiers: %" PRIu64 " MiB of host memory%s%s", config->host_tier_bytes >> 20,
		 file ? ", file " : "", file ? config->file_tier : "");
}

/* ---- turns and end -------------------------------------------------------------------------- */

static void log_error_once(struct sched *s, const char *error)
{
	if (s->tiers.logged_error || !error)
		return;
	s->tiers.logged_error = true;
	log_error("tier file %s: nothing is written to it any more: %s", s->core.config->file_tier,
		  error);
}

static void log_journal_once(struct sched *s, const struct store_tiers_stats *stats)
{
	if (s->tiers.logged_journal || stats->journal_evicted == 0)
		return;
	s->tiers.logged_journal = true;
	log_warning("tier file %s: its journal is full, of pages of %" PRIu64
		    " models; the oldest leave the file, whatever room it has",
		    s->core.config->file_tier, stats->n_file_models);
}

static void log_altered(struct sched *s, uint64_t n)
{
	if (n == s->tiers.logged_altered)
		return;
	s->tiers.logged_altered = n;
	s->tiers.log_ns = s->core.now_ns + LOG_NS;
	log_warning("tier file %s: %" PRIu64 " pages of it came back altered, or not at all, since "
		    "the start; what they held is computed anew",
		    s->core.config->file_tier, n);
}

/* A disk that goes bad does not fill the log: the rest is said later, or at the end. */
static void log_state(struct sched *s, bool at_end)
{
	struct store_tiers_stats stats;

	store_tiers_stats(s->core.store, &stats);
	log_error_once(s, stats.error);
	log_journal_once(s, &stats);
	if (at_end || s->core.now_ns >= s->tiers.log_ns)
		log_altered(s, stats.images_bad);
}

void sched_tiers_poll(struct sched *s)
{
	if (!s->tiers.on)
		return;
	bool was_busy = s->tiers.busy;

	s->tiers.busy = store_tiers_poll(s->core.store, s->core.now_ns);
	if (was_busy)
		log_state(s, false);
}

uint64_t sched_tiers_deadline_ns(const struct sched *s)
{
	return s->tiers.busy || streamed_busy(&s->streamed) ? s->core.now_ns + LOOK_NS : UINT64_MAX;
}

/* Until nothing is under way; false: that takes longer than tier_flush_ms. */
static bool flush_await(struct sched *s)
{
	const struct timespec look = {.tv_nsec = LOOK_NS};
	uint64_t end_ns = core_clock(&s->core) + s->core.config->tier_flush_ms * NS_PER_MS;

	while (s->core.now_ns = core_clock(&s->core),
	       store_tiers_poll(s->core.store, s->core.now_ns)) {
		if (s->core.now_ns >= end_ns)
			return false;
		nanosleep(&look, NULL);
	}
	return true;
}

void sched_tiers_flush(struct sched *s)
{
	if (!s->tiers.on || store_tiers_fd(s->core.store) < 0)
		return;
	store_tiers_flush(s->core.store);
	if (!flush_await(s))
		log_warning("tier file %s: not everything could be written to it within "
			    "tier_flush_ms",
			    s->core.config->file_tier);
	log_state(s, true);
}

/* ---- --verify-tier
 * -------------------------------------------------------------------------------------- */

int tiers_verify(const struct config *config)
{
	struct tier_report report;
	char why[WHY_BYTES];

	if (tier_verify(config->verify_tier, &report, why, sizeof(why)) < 0) {
		log_error("%s", why);
		return 1;
	}
	printf("%s: version %u, %" PRIu64 " MiB in units of %u KiB\n", config->verify_tier,
	       report.version, report.file_bytes >> 20, report.unit_bytes >> 10);
	printf("  journal    %" PRIu64 " records%s\n", report.n_records,
	       report.journal_torn ? ", and then something that is none" : "");
	printf("  pages      %" PRIu64 " of %u models, %" PRIu64 " tokens\n", report.n_images,
	       report.n_models, report.n_tokens);
	printf("  lost       %" PRIu64 " pages whose paths are not whole\n", report.n_lost);
	printf("  altered    %" PRIu64 " pages whose bytes are not what was written\n",
	       report.n_bad);
	return report.n_bad > 0;
}
