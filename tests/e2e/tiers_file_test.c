/*
 * tiers_file_test.c - the daemon as a process and a document in its tier file: what is wrong in the
 * file is a clear sentence and right answers, and what came from it is counted. On both loops.
 */
#include "element.h"
#include "tier_documents.h"
#include "tiers_fixture.h"

#include "kvstore/files/tier_catalog.h"
#include "kvstore/files/tier_head.h"
#include "proto/arith.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define DOC 3u
#define BEFORE 5u /* pages of the document before what is altered */
#define PAGE_TOKENS (DOCUMENT_TOKENS / DOCUMENT_PAGES)

/* Its right answers; returns how many tokens were there. */
static uint32_t any_ask(struct tiers *t, uint32_t doc)
{
	struct reader r;
	int n_cached;

	reader_open(&r, t->h);
	n_cached = document_use(&r, doc, DOCUMENT_TOKENS);
	reader_close(&r);
	assert_true(n_cached >= 0);
	return (uint32_t)n_cached;
}

static uint32_t document_ask(struct tiers *t)
{
	return any_ask(t, DOC);
}

static void start(struct tiers *t)
{
	tiers_start_with(t, "--host-tier=64M", "--file-tier-bytes=64M");
}

/* A file that has the document, and the daemon that wrote it has ended. */
static void a_written_file(struct tiers *t)
{
	start(t);
	assert_int_equal(document_ask(t), 0);
	assert_int_equal(harness_stop(t->h, SIGTERM), 0);
}

static struct tier_head head_of(const struct tiers *t)
{
	struct tier_head head;

	tiers_get(t->path, 0, &head, sizeof(head));
	return head;
}

static void flip(const struct tiers *t, uint64_t at)
{
	uint8_t byte;

	tiers_get(t->path, (off_t)at, &byte, 1);
	byte ^= 16;
	tiers_put(t->path, (off_t)at, &byte, 1);
}

static uint64_t page_bytes(void)
{
	return 2 * 2 * PAGE_TOKENS * 64 * element_bytes();
}

/* A byte of a page. They lie one after the other, in whole units, in the order in which they were
 * written. */
static void flip_page(const struct tiers *t, uint64_t i)
{
	struct tier_head head = head_of(t);
	uint64_t n_units = ceil_div_u64(page_bytes(), head.unit_bytes);

	flip(t, head.data_at + i * n_units * head.unit_bytes + 1000);
}

static void an_altered_page_is_said_and_computed_anew(void **state)
{
	struct tiers t = tiers_of(state);

	a_written_file(&t);
	flip_page(&t, BEFORE);
	start(&t);
	assert_true(harness_log_has(t.h, "tier: 384 tokens are there"));
	assert_false(harness_log_has(t.h, "altered"));
	assert_int_equal(document_ask(&t), BEFORE * PAGE_TOKENS);
	assert_true(harness_log_has(t.h, "tier: 1 pages of it came back altered, or not at all, "
					 "since the start; what they held is computed anew"));
	assert_int_equal(document_ask(&t), DOCUMENT_TOKENS - 1);
	assert_int_equal(harness_stop(t.h, SIGTERM), 0);
	assert_false(harness_log_has(t.h, "tier: 2 pages"));
	start(&t);
	assert_int_equal(document_ask(&t), DOCUMENT_TOKENS - 1); /* it is in the file again */
	tiers_done(&t);
}

/* Two within a second are said together, at the latest when the daemon ends. */
static void all_that_came_back_altered_is_said_at_the_end(void **state)
{
	struct tiers t = tiers_of(state);

	start(&t);
	assert_int_equal(any_ask(&t, DOC), 0);
	assert_int_equal(any_ask(&t, DOC + 1), 0);
	assert_int_equal(harness_stop(t.h, SIGTERM), 0);
	flip_page(&t, BEFORE);
	flip_page(&t, DOCUMENT_PAGES + BEFORE);
	start(&t);
	assert_int_equal(any_ask(&t, DOC), BEFORE * PAGE_TOKENS);
	assert_int_equal(any_ask(&t, DOC + 1), BEFORE * PAGE_TOKENS);
	assert_int_equal(harness_stop(t.h, SIGTERM), 0);
	assert_true(harness_log_has(t.h, "tier: 1 pages of it came back altered"));
	assert_true(harness_log_has(t.h, "tier: 2 pages of it came back altered"));
	tiers_done(&t);
}

/* Where the record of the image after the first five lies, in a journal that has no other but the
 * model's. */
static uint64_t record_at(void)
{
	const uint64_t head_bytes = 16;
	uint64_t image = head_bytes + sizeof(struct tier_image) + PAGE_TOKENS * sizeof(uint32_t);

	return TIER_HEAD_BYTES + TIER_JOURNAL_BLOCK + head_bytes + sizeof(struct tier_model) +
	       BEFORE * image;
}

static void an_altered_journal_is_said_and_holds_up_to_there(void **state)
{
	struct tiers t = tiers_of(state);

	a_written_file(&t);
	flip(&t, record_at() + 70);
	start(&t);
	assert_true(harness_log_has(t.h, "tier: its journal ends in the middle of a record; what "
					 "came before it holds"));
	assert_true(harness_log_has(t.h, "tier: 160 tokens are there"));
	assert_int_equal(document_ask(&t), BEFORE * PAGE_TOKENS);
	assert_int_equal(harness_stop(t.h, SIGTERM), 0);
	start(&t);
	assert_int_equal(document_ask(&t), DOCUMENT_TOKENS - 1); /* what was lost is there again */
	tiers_done(&t);
}

/* The journal forgets the page after the first five. */
static void forget_page(const struct tiers *t)
{
	int fd = open(t->path, O_RDWR | O_CLOEXEC);
	struct tier_head head = head_of(t);
	struct tier_catalog catalog;
	struct tier_image **images;
	uint64_t n;

	assert_true(fd >= 0);
	assert_int_equal(tier_catalog_open(&catalog, fd, &head, false), 0);
	assert_int_equal(tier_catalog_images(&catalog, &images, &n), 0);
	assert_int_equal(n, DOCUMENT_PAGES);
	assert_true(tier_catalog_unref(&catalog, images[BEFORE]->place));
	free(images);
	tier_catalog_close(&catalog);
	close(fd);
}

static void pages_without_what_comes_before_are_said_to_be_lost(void **state)
{
	struct tiers t = tiers_of(state);

	a_written_file(&t);
	forget_page(&t);
	assert_int_equal(tiers_verify(&t), 0);
	assert_true(harness_log_has(t.h, "  pages      5 of 1 models, 160 tokens\n"));
	assert_true(harness_log_has(t.h, "  lost       6 pages whose paths are not whole\n"));
	start(&t);
	assert_true(harness_log_has(t.h, "tier: 6 pages of it are lost: they fit no model, or what "
					 "comes before them is not there"));
	assert_true(harness_log_has(t.h, "tier: 160 tokens are there"));
	assert_int_equal(document_ask(&t), BEFORE * PAGE_TOKENS);
	tiers_done(&t);
}

/* What the status says of it; empty: nothing. */
static void tier_error(const struct tiers *t, char *ret, size_t bytes)
{
	Coppice__Status status = COPPICE__STATUS__INIT;
	struct client c = client_open(t->h);
	const Coppice__Reply *reply = client_verb(&c, status, &status);

	snprintf(ret, bytes, "%s", reply->status->tier_error ? reply->status->tier_error : "");
	client_close(&c);
}

/* What nobody uses leaves the pool, and is written to the file. */
static void evict(const struct tiers *t)
{
	Coppice__Evict all = COPPICE__EVICT__INIT;
	struct client c = client_open(t->h);

	assert_int_equal(client_verb(&c, evict, &all)->code, 0);
	client_close(&c);
}

/* Its journal can be written, its pages cannot. */
static void a_file_that_takes_no_more_is_said(void **state)
{
	struct tiers t = tiers_of(state);
	char why[64];

	tiers_make_file(&t);
	tiers_start_limited(&t, head_of(&t).data_at);
	assert_int_equal(document_ask(&t), 0);
	evict(&t);
	for (int i = 0; i < 1000 && !harness_log_has(t.h, "is written to it any more"); i++)
		sleep_ms(5);
	assert_true(
		harness_log_has(t.h, "tier: nothing is written to it any more: File too large"));
	tier_error(&t, why, sizeof(why));
	assert_string_equal(why, "File too large");
	assert_int_equal(document_ask(&t), DOCUMENT_TOKENS - 1);
	assert_int_equal(harness_stop(t.h, SIGTERM), 0);
	start(&t);
	assert_true(harness_log_has(t.h, "tier: 0 tokens are there"));
	tier_error(&t, why, sizeof(why));
	assert_string_equal(why, "");
	tiers_done(&t);
}

/* Pages of the nodes in host memory, in the file alone, and in the file wherever else. */
static void assert_pages(const struct tiers *t, uint32_t n_host, uint32_t n_file, uint32_t n_backed)
{
	Coppice__Tree tree = COPPICE__TREE__INIT;
	struct client c = client_open(t->h);
	const Coppice__TreeReply *reply = client_verb(&c, tree, &tree)->tree;
	uint32_t n[3] = {0};

	for (size_t i = 0; i < reply->n_node; i++) {
		n[0] += reply->node[i]->n_pages_host;
		n[1] += reply->node[i]->n_pages_file;
		n[2] += reply->node[i]->n_pages_backed;
	}
	client_close(&c);
	assert_int_equal(n[0], n_host);
	assert_int_equal(n[1], n_file);
	assert_int_equal(n[2], n_backed);
}

/* Both tiers, once nothing moves. */
static void tiers_ask(const struct tiers *t, Coppice__TierStatus ret[2])
{
	Coppice__Status status = COPPICE__STATUS__INIT;
	struct client c = client_open(t->h);
	const Coppice__StatusReply *reply;
	int n_left = 1000;

	do {
		reply = client_verb(&c, status, &status)->status;
	} while (reply->tier_moves > 0 && n_left-- > 0);
	assert_int_equal(reply->tier_moves, 0);
	assert_int_equal(reply->n_tier, 2);
	for (int i = 0; i < 2; i++)
		ret[i] = *reply->tier[i]; /* but for the name, which goes */
	client_close(&c);
}

static void what_comes_from_the_file_is_counted(void **state)
{
	struct tiers t = tiers_of(state);
	Coppice__TierStatus tiers[2];
	const Coppice__TierStatus *host = &tiers[0], *file = &tiers[1];

	a_written_file(&t);
	start(&t);
	assert_pages(&t, 0, DOCUMENT_PAGES, DOCUMENT_PAGES);
	assert_int_equal(document_ask(&t), DOCUMENT_TOKENS - 1);
	tiers_ask(&t, tiers);
	assert_int_equal(file->hits, DOCUMENT_PAGES);
	assert_int_equal(file->bytes_out, DOCUMENT_PAGES * page_bytes());
	assert_int_equal(file->bytes_in, 0);
	assert_true(file->waited_ns > 0);
	assert_int_equal(host->hits, 0);
	assert_int_equal(host->bytes_out, DOCUMENT_PAGES * page_bytes());
	assert_int_equal(host->waited_ns, 0);
	assert_pages(&t, 0, 0, DOCUMENT_PAGES); /* the last was of two nodes meanwhile */

	evict(&t);
	tiers_ask(&t, tiers);
	assert_pages(&t, DOCUMENT_PAGES, 0, DOCUMENT_PAGES);
	assert_int_equal(document_ask(&t), DOCUMENT_TOKENS - 1);
	tiers_ask(&t, tiers);
	assert_int_equal(file->hits, DOCUMENT_PAGES);
	assert_int_equal(host->hits, DOCUMENT_PAGES);
	assert_true(host->waited_ns > 0);
	tiers_done(&t);
}

static void altered_pages_are_counted_by_a_verification(void **state)
{
	struct tiers t = tiers_of(state);

	a_written_file(&t);
	assert_int_equal(tiers_verify(&t), 0);
	assert_true(harness_log_has(t.h, "  pages      12 of 1 models, 384 tokens\n"));
	assert_true(harness_log_has(t.h, "  altered    0 pages whose bytes"));
	flip_page(&t, BEFORE);
	assert_int_equal(tiers_verify(&t), 1);
	assert_true(harness_log_has(t.h,
				    "  altered    1 pages whose bytes are not what was written\n"));
	tiers_done(&t);
}

#define CASES(loop) \
	{ \
		HARNESS_BARE(loop, an_altered_page_is_said_and_computed_anew), \
			HARNESS_BARE(loop, all_that_came_back_altered_is_said_at_the_end), \
			HARNESS_BARE(loop, pages_without_what_comes_before_are_said_to_be_lost), \
			HARNESS_BARE(loop, what_comes_from_the_file_is_counted), \
			HARNESS_BARE(loop, an_altered_journal_is_said_and_holds_up_to_there), \
			HARNESS_BARE(loop, a_file_that_takes_no_more_is_said), \
			HARNESS_BARE(loop, altered_pages_are_counted_by_a_verification), \
	}

int main(int argc, char **argv)
{
	const struct CMUnitTest epoll[] = CASES(epoll);
	const struct CMUnitTest uring[] = CASES(uring);
	int r = tiers_init(argc, argv);

	if (r)
		return r;
	r = cmocka_run_group_tests_name("file tier, epoll", epoll, NULL, NULL);
	r += cmocka_run_group_tests_name("file tier, io_uring", uring, NULL, NULL);
	return r;
}
