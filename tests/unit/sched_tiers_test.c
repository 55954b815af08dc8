/* sched_tiers_test.c - KV that leaves the pool and comes back: from host memory, from a file, after
 * a restart. argv[1]: the module of the backend, else it is the CPU's. */
#include "documents.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static void what_left_the_pool_comes_back_from_host_memory(void **state)
{
	struct fixture *f = *state;

	documents_start(f);
	for (uint32_t doc = 0; doc < DOCS; doc++)
		assert_int_equal(document_use(&f->c, doc, DOC_CHUNKS), 0);
	for (uint32_t doc = 0; doc < DOCS; doc++)
		assert_int_equal(document_use(&f->c, doc, DOC_CHUNKS), DOC_TOKENS - 1);
	struct sched_status status = harness_status(&f->h);
	assert_true(status.has_tiers);
	assert_true(status.tiers.tiers[STORE_HOST].hits > 0);
	assert_true(status.tiers.tiers[STORE_HOST].waited_ns > 0);
	assert_int_equal(status.tiers.slices_dropped, 0);
	assert_int_equal(status.tiers.tiers[STORE_FILE].capacity_bytes, 0);
	documents_stop(f);
}

static struct store_tier_stats host_status(struct fixture *f)
{
	return harness_status(&f->h).tiers.tiers[STORE_HOST];
}

/* One user has six documents, with room for four, between two looks of another's at his one; so
 * many slices of this are in host memory then. Limits are as the keys are by default. */
static uint64_t n_kept_beside_many(struct fixture *f)
{
	struct client other;
	uint64_t n_hits;

	f->h.config.host_tier_bytes = 8u << 20;
	documents_start(f);
	client_start(&other, &f->h, 2, &document_shape, DOC_ARENA_BYTES);
	document_use(&other, 0, DOC_CHUNKS);
	for (uint32_t i = 0; i < 2 * DOCS; i++)
		document_use(&f->c, i % DOCS, DOC_CHUNKS);
	assert_true(host_status(f).share_evicted > 0);
	n_hits = host_status(f).hits;
	document_use(&other, 0, DOC_CHUNKS);
	n_hits = host_status(f).hits - n_hits;
	client_end(&other);
	documents_stop(f);
	return n_hits;
}

static void a_user_leaves_room_below_the_pool_to_others(void **state)
{
	assert_int_equal(n_kept_beside_many(*state), 16);
}

/* Of that room a document's is for what is on its way to the file. What the one may have of the
 * rest leaves twelve pages; while these are written, more go than have to. */
static void a_user_leaves_room_above_a_file_to_others(void **state)
{
	struct fixture *f = *state;

	f->h.config.tier_depth = 16;
	documents_with_file(f, 64u << 20);
	assert_in_range(n_kept_beside_many(f), 1, 12);
}

/* What is said of a limit is what binds. */
static void no_user_may_have_more_than_there_is(void **state)
{
	struct fixture *f = *state;

	f->h.config.domain_host_bytes = UINT64_C(1) << 40;
	documents_start(f);
	assert_int_equal(host_status(f).domain_bytes, host_status(f).capacity_bytes);
	documents_stop(f);
}

static void a_daemon_that_is_started_anew_finds_its_documents(void **state)
{
	struct fixture *f = *state;

	documents_with_file(f, 64u << 20);
	documents_start(f);
	for (uint32_t doc = 0; doc < DOCS; doc++)
		document_use(&f->c, doc, DOC_CHUNKS);
	documents_stop(f);
	documents_start(f);
	for (uint32_t doc = 0; doc < DOCS; doc++)
		assert_int_equal(document_use(&f->c, doc, DOC_CHUNKS), DOC_TOKENS - 1);
	assert_true(harness_status(&f->h).tiers.tiers[STORE_FILE].hits > 0);
	documents_stop(f);
}

static void flip(const char *path, long at)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);
	uint8_t byte;

	assert_true(fd >= 0);
	assert_int_equal(pread(fd, &byte, 1, at), 1);
	byte ^= 16;
	assert_int_equal(pwrite(fd, &byte, 1, at), 1);
	close(fd);
}

static void what_was_altered_in_the_file_is_computed_anew(void **state)
{
	struct fixture *f = *state;
	uint32_t n_cached = 0;

	documents_with_file(f, 64u << 20);
	documents_start(f);
	for (uint32_t doc = 0; doc < DOCS; doc++)
		document_use(&f->c, doc, DOC_CHUNKS);
	documents_stop(f);
	for (long at = 4l << 20; at < 64l << 20; at += 600000)
		flip(f->file, at);
	documents_start(f);
	for (uint32_t doc = 0; doc < DOCS; doc++)
		n_cached += document_use(&f->c, doc, DOC_CHUNKS);
	assert_true(n_cached < DOCS * (DOC_TOKENS - 1));
	documents_stop(f);
}

static uint32_t seed(void)
{
	const char *text = getenv("COPPICE_SEED");
	uint32_t value = text ? (uint32_t)strtoul(text, NULL, 0) : (uint32_t)time(NULL);

	print_message("seed %u\n", value);
	return value;
}

/* Everything moves all the time, some of it is dropped, and nothing wrong is served. */
static void documents_at_random_through_tiny_tiers_are_right(void **state)
{
	struct fixture *f = *state;
	uint32_t random = seed();

	f->h.config.host_tier_bytes = 4u << 20;
	documents_with_file(f, 24u << 20);
	documents_start(f);
	for (uint32_t i = 0; i < 60; i++) {
		random = random * 1664525 + 1013904223;
		document_use(&f->c, (random >> 8) % DOCS, 1 + (random >> 16) % DOC_CHUNKS);
		if (i % 20 < 19)
			continue;
		assert_true(harness_status(&f->h).tiers.tiers[STORE_HOST].bytes_in > 0);
		documents_stop(f);
		documents_start(f);
	}
	documents_stop(f);
}

/* A backend's ops, whose copies up do not seem to end for a while: the scheduler's thread is told
 * of none. */
static struct {
	const struct backend_tier_ops *base;
	struct backend_tier_ops tier;
	struct backend_ops ops;
	_Atomic bool holds;
	uint64_t done; /* told last */
} gate;

static uint64_t ups_done_by_gate(struct backend *b)
{
	if (!gate.holds)
		gate.done = gate.base->ups_done(b);
	return gate.done;
}

static void gate_put(struct harness *h)
{
	gate.base = h->ops->tier;
	gate.tier = *gate.base;
	gate.tier.ups_done = ups_done_by_gate;
	gate.ops = *h->ops;
	gate.ops.tier = &gate.tier;
	h->ops = &gate.ops;
}

/* Two who want the same, and one who does not wait but computes, before any of it has come. */
static void who_does_not_wait_computes(void **state)
{
	struct fixture *f = *state;
	uint32_t tokens[DOC_TOKENS];
	float o[DOC_LAYERS][DOC_ROW];
	struct store_match match;
	uint64_t seq, other;

	gate_put(&f->h);
	documents_start(f);
	for (uint32_t doc = 0; doc < DOCS; doc++)
		document_use(&f->c, doc, DOC_CHUNKS);
	for (uint32_t i = 0; i < DOC_TOKENS; i++)
		tokens[i] = document_token(0, i);
	gate.holds = true;
	assert_int_equal(client_open(&f->c, tokens, DOC_TOKENS, &seq, &match), 0);
	assert_true(match.pending > 0 && !match.claimed); /* nobody claims, so it is promoted */
	assert_int_equal(client_open(&f->c, tokens, DOC_TOKENS, &other, &match), 0);
	assert_true(match.pending > 0 && !match.claimed);
	for (uint32_t pos = 0; pos < DOC_TOKENS; pos += DOC_CHUNK) {
		document_compute(&f->c, seq, 0, pos, DOC_CHUNK, o);
		assert_right(&f->c, o, document_expected[0][pos / DOC_CHUNK]);
	}
	gate.holds = false;
	assert_int_equal(client_await(&f->c, other, match).cached, DOC_TOKENS - 1);
	client_close(&f->c, seq);
	client_close(&f->c, other);
	documents_stop(f);
}

static void a_bad_file_leaves_host_memory(void **state)
{
	struct fixture *f = *state;
	int fd = open(f->file, O_WRONLY | O_CLOEXEC);

	assert_int_equal(write(fd, "this is no tier file", 20), 20);
	close(fd);
	documents_with_file(f, 64u << 20);
	documents_start(f);
	for (uint32_t doc = 0; doc < DOCS; doc++)
		document_use(&f->c, doc, DOC_CHUNKS);
	assert_int_equal(document_use(&f->c, 0, DOC_CHUNKS), DOC_TOKENS - 1);
	assert_int_equal(harness_status(&f->h).tiers.tiers[STORE_FILE].capacity_bytes, 0);
	documents_stop(f);
}

static void memory_that_cannot_be_had_leaves_the_pool(void **state)
{
	struct fixture *f = *state;
	uint64_t all_bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);

	f->h.config.host_tier_bytes = 2 * all_bytes;
	documents_start(f);
	document_use(&f->c, 0, DOC_CHUNKS);
	assert_int_equal(document_use(&f->c, 0, DOC_CHUNKS), DOC_TOKENS - 1);
	assert_false(harness_status(&f->h).has_tiers);
	documents_stop(f);
}

/* As where no more memory may be locked. */
static int pin_nothing(struct backend *b, void *host, uint64_t bytes)
{
	(void)b;
	(void)host;
	(void)bytes;
	return -ENOMEM;
}

/* What is said on stderr from now on goes to a file; returns what restores it. */
static int said_begin(FILE *said)
{
	int before = dup(STDERR_FILENO);

	fflush(stderr);
	assert_true(before >= 0);
	assert_int_equal(dup2(fileno(said), STDERR_FILENO), STDERR_FILENO);
	return before;
}

static void said_end(FILE *said, int before, char *ret, size_t bytes)
{
	fflush(stderr);
	assert_int_equal(dup2(before, STDERR_FILENO), STDERR_FILENO);
	close(before);
	rewind(said);
	ret[fread(ret, 1, bytes - 1, said)] = '\0';
	fclose(said);
}

static void memory_that_cannot_be_pinned_leaves_the_pool(void **state)
{
	static struct backend_tier_ops tier;
	static struct backend_ops ops;
	struct fixture *f = *state;
	FILE *said = tmpfile();
	char text[4096];

	assert_non_null(said);
	tier = *backend_cpu.tier;
	tier.pin = pin_nothing;
	ops = backend_cpu;
	ops.tier = &tier;
	f->h.ops = &ops;
	documents_with_file(f, 64u << 20);
	int before = said_begin(said);
	documents_start(f);
	said_end(said, before, text, sizeof(text));
	assert_non_null(strstr(text, "64M of host memory cannot be had or not be "
				     "pinned; going on without: KV that leaves the pool is lost"));
	assert_null(strstr(text, "lower tiers:"));
	for (uint32_t doc = 0; doc < DOCS; doc++)
		assert_int_equal(document_use(&f->c, doc, DOC_CHUNKS), 0);
	assert_int_equal(document_use(&f->c, DOCS - 1, DOC_CHUNKS), DOC_TOKENS - 1);
	assert_int_equal(document_use(&f->c, 0, DOC_CHUNKS), 0);
	assert_false(harness_status(&f->h).has_tiers);
	documents_stop(f);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, documents_setup, documents_teardown)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		CASE(what_left_the_pool_comes_back_from_host_memory),
		CASE(a_user_leaves_room_below_the_pool_to_others),
		CASE(a_user_leaves_room_above_a_file_to_others),
		CASE(no_user_may_have_more_than_there_is),
		CASE(a_daemon_that_is_started_anew_finds_its_documents),
		CASE(what_was_altered_in_the_file_is_computed_anew),
		CASE(documents_at_random_through_tiny_tiers_are_right),
		CASE(who_does_not_wait_computes),
		CASE(a_bad_file_leaves_host_memory),
		CASE(memory_that_cannot_be_had_leaves_the_pool),
		CASE(memory_that_cannot_be_pinned_leaves_the_pool),
	};

	int r = documents_init(argc, argv);

	return r ? r
		 : cmocka_run_group_tests_name("tiers of the scheduler", tests, documents_expect,
					       NULL);
}
