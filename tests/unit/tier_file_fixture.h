/*
 * tier_file_fixture.h - a tier file in a directory of its own, and how it is spoilt.
 */
#ifndef COPPICE_TESTS_TIER_FILE_FIXTURE_H
#define COPPICE_TESTS_TIER_FILE_FIXTURE_H

#include "kvstore/files/tier_file.h"

#define UNIT 4096u
#define CHUNK 8u
#define N_PAGES 16u

struct fixture {
	char directory[64];
	char path[80];
	struct tier_file *file;
	char *memory; /* owned: [N_PAGES][2 * UNIT] */
	uint32_t model;
	char error[256];
};

struct tier_file_config fixture_config(const struct fixture *f);
int fixture_open_as(struct fixture *f, const struct tier_file_config *config);
int fixture_open(struct fixture *f);
int fixture_set_up(void **state);
int fixture_tear_down(void **state);
void fixture_close(struct fixture *f);
void fixture_flip(const struct fixture *f, uint64_t at);
/* An empty one, which nobody has open. */
void fixture_make(struct fixture *f);
void fixture_assert_refused(const struct fixture *f, int r, int error, const char *sentence);

#endif
