/*
 * config_fixture.h - one reading of the daemon's flags and file: what came out, and what was said.
 */
#ifndef COPPICE_TESTS_CONFIG_FIXTURE_H
#define COPPICE_TESTS_CONFIG_FIXTURE_H

#include "daemon/config/config.h"

/* said on stderr, printed on stdout */
struct reading {
	struct config config;
	int r;
	char said[8192];
	char printed[16384];
};

#define READ(...) read_flags((char *[]){__VA_ARGS__, NULL})

/* flags end with NULL. Each reading takes the place of the one before. */
struct reading *read_flags(char **flags);
/* A file with this text, whose path is good until the next; the caller removes it. */
char *write_file(const char *text);
struct reading *read_text(const char *text);

void assert_says(const struct reading *reading, const char *part);

#endif
