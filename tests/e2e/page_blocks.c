/*
 * page_blocks.c - the C on the pages, compiled: what their blocks take for granted, and the blocks
 * as page_blocks.awk makes functions of them. Nothing of it is run; client/README.md's first block
 * is a program, which first_app_test runs.
 */
#include "coppice_program.h"

#include <err.h>
#include <errno.h>
#include <poll.h>
#include <string.h>

#define must(call) ((call) < 0 ? errx(1, "%s", coppice_explain(c)) : (void)0)

extern struct coppice *c;
extern struct coppice_arena *arena;
extern struct coppice_lane *lane;
extern struct coppice_seq *seq;
extern struct coppice_capture *capture;
extern struct coppice_match match;
extern struct coppice_step step;
extern struct coppice_row *rows;
extern uint32_t model, ids[], other_ids[], token, n_tokens, n_layers;
extern uint64_t ticket;
extern void *k, *stream, *view;
extern size_t view_bytes;

void launch_qkv(uint32_t layer, void *on);
void launch_rest(uint32_t layer, void *on);
void launch_graph(void *on);
void synchronise(void *on);
void begin_capture(void *on);
void end_capture(void *on);

#include "page_blocks.inc"
