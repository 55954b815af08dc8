/*
 * tiers_fixture.h - a daemon as a process, with tiers below its pool, and what is done to its file.
 */
#ifndef TIERS_FIXTURE_H
#define TIERS_FIXTURE_H

#include "control_harness.h"

struct tiers {
	struct harness *h;
	char path[128], flag[160];
};

/* Of main, as harness_init. 0; 1; or 77 where there is no io_uring and so no file, which it
 * says. */
int tiers_init(int argc, char **argv);
struct tiers tiers_of(void **state); /* of a harness that has not started */
void tiers_start_with(struct tiers *t, const char *host, const char *file_bytes);
/* With 64 MiB of either, and no write to any file beyond so many bytes of it. */
void tiers_start_limited(struct tiers *t, uint64_t bytes);
void tiers_make_file(struct tiers *t); /* that of a daemon that was */
void tiers_done(struct tiers *t); /* no file any more */
int tiers_verify(const struct tiers *t); /* coppiced --verify-tier: its exit status */

void tiers_get(const char *path, off_t at, void *ret, size_t n);
void tiers_put(const char *path, off_t at, const void *bytes, size_t n);

#endif
