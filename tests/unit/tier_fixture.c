/*
 * tier_fixture.c - a folder for each test's file, the world opened over it, and opened again as a
 * daemon that starts anew would.
 */
#include "tier_fixture.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

int tier_set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	strcpy(f->directory, "tier_test.XXXXXX");
	assert_non_null(mkdtemp(f->directory));
	snprintf(f->path, sizeof(f->path), "%s/kv", f->directory);
	*state = f;
	return 0;
}

int tier_tear_down(void **state)
{
	struct fixture *f = *state;

	if (f->w.store)
		tier_world_close(&f->w);
	unlink(f->path);
	assert_int_equal(rmdir(f->directory), 0);
	free(f);
	return 0;
}

struct tier_world *tier_world_of(void **state, struct tier_world_options options)
{
	struct fixture *f = *state;

	options.path = f->path;
	if (tier_world_open(&f->w, options, f->error, sizeof(f->error)))
		fail_msg("%s", f->error);
	return &f->w;
}

struct tier_world *tier_restart(void **state)
{
	struct fixture *f = *state;
	struct tier_world_options options = f->w.options;

	tier_world_close(&f->w);
	return tier_world_of(state, options);
}

void tier_evict(struct tier_world *w)
{
	store_evict(w->store, NULL, UINT32_MAX, UINT32_MAX);
	tier_world_check(w);
}

struct store_node_info tier_info_of(struct tier_world *w, char first)
{
	struct store_node_info info[16];
	uint64_t cursor = 0;
	uint32_t n = store_walk(w->store, UINT64_MAX, &cursor, info, 16);

	for (uint32_t i = 0; i < n; i++)
		if (info[i].n_head > 0 && info[i].head[0] == (uint32_t)first)
			return info[i];
	fail_msg("no node begins with %c", first);
	return info[0];
}
