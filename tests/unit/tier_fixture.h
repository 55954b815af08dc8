/*
 * tier_fixture.h - a tier_world with a file of its own for each test. Pages have 4 tokens, so a
 * document of 17 letters has 4 full pages, and the last letter is its reader's to compute.
 */
#ifndef COPPICE_TESTS_TIER_FIXTURE_H
#define COPPICE_TESTS_TIER_FIXTURE_H

#include "tier_world.h"

#define DOCUMENT_A "abcdefghijklmnopq"
#define DOCUMENT_B "ABCDEFGHIJKLMNOPQ"
#define DOCUMENT_C "0123456789+-*/=<>"

struct fixture {
	struct tier_world w;
	char directory[64], path[80];
	char error[256];
};

int tier_set_up(void **state);
int tier_tear_down(void **state);

/* Options' path is the fixture's. */
struct tier_world *tier_world_of(void **state, struct tier_world_options options);
/* The same again over the file alone. */
struct tier_world *tier_restart(void **state);
/* Everything idle leaves the device. */
void tier_evict(struct tier_world *w);
/* Of the node whose run begins so. */
struct store_node_info tier_info_of(struct tier_world *w, char first);

#endif
