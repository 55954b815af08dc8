/*
 * scene.c - an honest client beside an attack. At the scene's end the daemon has no session and no
 * descriptor more than at its beginning.
 */
#include "scene.h"

#include "raw_lane.h"

#define RUN_MS 40

struct scene scene_begin(void **state)
{
	struct scene s = {.h = *state};

	honest_start(&s.honest, s.h->socket, 1);
	honest_step(&s.honest);
	s.n_fds = process_descriptors(s.h->pid);
	return s;
}

void scene_steps_on(struct scene *s)
{
	assert_true(honest_run(&s->honest, RUN_MS) < SCENE_BOUND_NS);
}

void scene_end(struct scene *s)
{
	scene_steps_on(s);
	for (int i = 0; i < 1000 && process_descriptors(s->h->pid) != s->n_fds; i++)
		sleep_ms(5);
	assert_int_equal(process_descriptors(s->h->pid), s->n_fds);
	struct client c = client_open(s->h);

	count_becomes(&c, 2);
	client_close(&c);
	honest_end(&s->honest);
}
