/*
 * documents.h - documents through a real scheduler whose pool they do not fit, with tiers below: on
 * the CPU's backend in fp32, on that of a module in fp16 with heads twice as wide, so that rows and
 * pages have the same bytes.
 *
 * What attention gives for the last token of each chunk is compared with what it gave in a
 * scheduler whose pool holds everything: wrong KV anywhere before that token would show.
 */
#ifndef COPPICE_TESTS_DOCUMENTS_H
#define COPPICE_TESTS_DOCUMENTS_H

#include "sched_harness.h"

#define DOC_LAYERS 2u
#define DOC_HEADS 4u
#define DOC_ROW_BYTES 1024u
#define DOC_ROW (DOC_ROW_BYTES / 2) /* values of fp16; half of them in fp32, the others stay 0 */
#define DOC_CHUNK 64u /* tokens of an extension */
#define DOC_CHUNKS 8u
#define DOC_TOKENS (DOC_CHUNK * DOC_CHUNKS) /* 16 pages of 128 KiB: one extent of 2 MiB */
#define DOCS 6u
#define LONG_DOC 9u
#define LONG_CHUNKS 16u /* 32 pages, where the pool has room for 16 beside the stage */
#define LONG_TOKENS (DOC_CHUNK * LONG_CHUNKS)
#define DOC_ARENA_BYTES (UINT64_C(1) << 20)

extern struct work_shape document_shape;

/* O of the last token of each prompt of whole chunks, by layer. */
extern float document_expected[DOCS][DOC_CHUNKS][DOC_LAYERS][DOC_ROW];
extern float document_expected_long[LONG_CHUNKS][DOC_LAYERS][DOC_ROW];

struct fixture {
	struct harness h;
	struct client c;
	char file[64]; /* empty: none */
};

/* Of main: argv[1] is the backend's module, else it is the CPU's. 0; or what to exit with, 77 where
 * the module has no device. */
int documents_init(int argc, char **argv);
/* Of main: computes what is expected. */
int documents_expect(void **state);

/* A pool for two documents, host memory below. */
int documents_setup(void **state);
int documents_teardown(void **state);
void documents_with_file(struct fixture *f, uint64_t bytes);
/* The scheduler and its client; and again. */
void documents_start(struct fixture *f);
void documents_stop(struct fixture *f);

uint32_t document_token(uint32_t doc, uint32_t pos);
/* A shape of fp32 as the backend takes it, of the same bytes. */
struct work_shape document_shape_of(struct work_shape shape);
/* Q, K and V of these tokens into the arena, one after the other. */
void document_fill(struct client *c, uint32_t doc, uint32_t pos, uint32_t n, uint32_t layer);
/* Tokens [pos, pos + n) of a document, all layers; O of the last goes to ret. */
void document_compute(struct client *c, uint64_t seq, uint32_t doc, uint32_t pos, uint32_t n,
		      float ret[DOC_LAYERS][DOC_ROW]);
/* A row of O in the arena, at that offset. */
void document_output(const struct client *c, uint64_t at, float ret[DOC_ROW]);
/* Opens the first n_chunks of a document, waits for what lies lower, computes the rest; every O
 * that is known is right. Returns how many tokens were there. */
uint32_t document_use(struct client *c, uint32_t doc, uint32_t n_chunks);
/* Legs merge states where one go adds up keys one after the other: the same but for rounding. */
void assert_close(float (*got)[DOC_ROW], float (*want)[DOC_ROW]);
/* The same bits on the CPU where there are no legs; close on a device, which adds up as its plan
 * of the batch has it. */
void assert_right(const struct client *c, float (*got)[DOC_ROW], float (*want)[DOC_ROW]);

#endif
