/*
 * tier_file_fixture.c - a folder for the file, opened with small units, and a bit of it flipped to
 * see it refused.
 */
#include "tier_file_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <fcntl.h>
#include <unistd.h>

struct tier_file_config fixture_config(const struct fixture *f)
{
	return (struct tier_file_config){
		.path = f->path,
		.bytes = 1 << 20,
		.unit_bytes = UNIT,
		.chunk_units = CHUNK,
		.depth = 4,
	};
}

int fixture_open_as(struct fixture *f, const struct tier_file_config *config)
{
	f->error[0] = 0;
	int r = tier_file_open(config, &f->file, f->error, sizeof(f->error));
	assert_true(!r == !f->error[0]);
	return r;
}

int fixture_open(struct fixture *f)
{
	const struct tier_file_config config = fixture_config(f);

	return fixture_open_as(f, &config);
}

int fixture_set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	strcpy(f->directory, "tier_file_test.XXXXXX");
	assert_non_null(mkdtemp(f->directory));
	snprintf(f->path, sizeof(f->path), "%s/kv", f->directory);
	f->memory = aligned_alloc(UNIT, N_PAGES * 2 * UNIT);
	memset(f->memory, 0, N_PAGES * 2 * UNIT);
	*state = f;
	return 0;
}

int fixture_tear_down(void **state)
{
	struct fixture *f = *state;

	tier_file_close(f->file);
	unlink(f->path);
	assert_int_equal(rmdir(f->directory), 0); /* and nothing else is left in there */
	free(f->memory);
	free(f);
	return 0;
}

void fixture_close(struct fixture *f)
{
	tier_file_close(f->file);
	f->file = NULL;
}

void fixture_flip(const struct fixture *f, uint64_t at)
{
	uint8_t byte;
	int fd = open(f->path, O_RDWR);

	assert_int_equal(pread(fd, &byte, 1, (off_t)at), 1);
	byte ^= 4;
	assert_int_equal(pwrite(fd, &byte, 1, (off_t)at), 1);
	close(fd);
}

/* An empty one, which nobody has open. */
void fixture_make(struct fixture *f)
{
	assert_int_equal(fixture_open(f), 0);
	fixture_close(f);
}

void fixture_assert_refused(const struct fixture *f, int r, int error, const char *sentence)
{
	assert_int_equal(r, error);
	assert_non_null(strstr(f->error, sentence));
}
