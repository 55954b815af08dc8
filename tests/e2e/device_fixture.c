/*
 * device_fixture.c - starts the daemon with limits that tests can reach, and client processes; ends
 * them all, and checks how they ended.
 */
#include "device_fixture.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define TRIES 1000 /* of 5 ms */
#define ARENA_BYTES (2u << 20)

const char *program, *coppiced;
bool fake;

/* ---- client processes ----------------------------------------------------------------------- */

struct stem stem_start_with(const struct fixture *f, const char *variable, const char *role,
			    const char *arg, const char *arg2)
{
	const char *argv[] = {program, coppiced, f->h->socket, role, arg, arg2, NULL};

	return stem_exec(argv, variable);
}

struct stem stem_start(const struct fixture *f, const char *role, const char *arg, const char *arg2)
{
	return stem_start_with(f, NULL, role, arg, arg2);
}

void stem_run(const struct fixture *f, const char *role, const char *arg, const char *arg2)
{
	struct stem stem = stem_start(f, role, arg, arg2);

	assert_int_equal(stem_end(&stem), 0);
}

/* ---- fixture -------------------------------------------------------------------------------- */

/* flag: one more of the daemon's, or NULL. */
static struct fixture *fixture_new(const char *flag)
{
	struct fixture *f = calloc(1, sizeof(*f));
	int n = 0;

	assert_non_null(f);
	f->h = harness_new("auto");
	snprintf(f->fault, sizeof(f->fault), "%s/fault", f->h->folder);
	setenv("FAKE_CUDA_FAULT", f->fault, 1);
	f->h->flags[n++] = "--backend=cuda";
	f->h->flags[n++] = "--threads=2";
	/* Idle sides spin in some of ctest's runs, and sleep in the others. */
	f->h->flags[n++] = getenv("COPPICE_TEST_SLEEP") ? "--spin-us=0" : "--spin-us=50";
	f->h->flags[n++] = "--max-device-arena-bytes=6M";
	f->h->flags[n++] = "--max-arenas=4";
	f->h->flags[n++] = "--lend-weights=1";
	f->h->flags[n++] = flag ? flag : "--device-arena-bytes=64M";
	harness_start(f->h);
	return f;
}

int setup(void **state)
{
	*state = fixture_new(NULL);
	return 0;
}

int setup_one_arena(void **state)
{
	*state = fixture_new("--device-arena-bytes=2M");
	return 0;
}

int setup_without_device(void **state)
{
	*state = fixture_new("--backend=cpu");
	return 0;
}

int setup_four_arenas(void **state)
{
	*state = fixture_new("--device-arena-bytes=8M");
	return 0;
}

int teardown(void **state)
{
	struct fixture *f = *state;

	if (f->h->pid)
		assert_int_equal(harness_stop(f->h, SIGTERM), 0);
	unlink(f->fault);
	harness_free(f->h);
	free(f);
	return 0;
}

const Coppice__Reply *arena_new_of(struct client *c, uint32_t kind)
{
	Coppice__ArenaNew m = COPPICE__ARENA_NEW__INIT;

	m.kind = kind;
	m.bytes = ARENA_BYTES;
	return client_verb(c, arena_new, &m);
}

const Coppice__Reply *arena_new(struct client *c)
{
	return arena_new_of(c, 1);
}

void arena_free(struct client *c, uint32_t arena)
{
	Coppice__ArenaFree m = COPPICE__ARENA_FREE__INIT;

	m.arena = arena;
	assert_int_equal(client_verb(c, arena_free, &m)->code, 0);
}

void assert_room_comes_back(const struct fixture *f)
{
	struct client c = client_open(f->h);

	for (int i = 0; i < TRIES && arena_new(&c)->code != 0; i++)
		sleep_ms(5);
	assert_int_equal(c.reply->code, 0);
	arena_free(&c, c.reply->arena->arena);
	client_close(&c);
}

unsigned count_in_log(const struct fixture *f, const char *words)
{
	FILE *log = fopen(f->h->log, "re");
	char line[1024];
	unsigned n = 0;

	assert_non_null(log);
	while (fgets(line, sizeof(line), log))
		n += strstr(line, words) != NULL;
	fclose(log);
	return n;
}
