/*
 * slowness.h - how much longer something takes than it is modelled to, learned from what it took.
 *
 * Batches, passes of programs' tokens, attention in these, and legs of paths that stream have one
 * each: of what one of them took, the others learn nothing. What had to be feared of a machine of
 * which nobody had seen anything goes at once with the first that is seen; from then on what is
 * usual follows slowly, as a moment's pause is no pace.
 */
#ifndef COPPICED_SLOWNESS_H
#define COPPICED_SLOWNESS_H

#include <stdbool.h>

#define SLOWNESS_WEIGHT 0.125 /* of one in what is usual */
#define SLOWNESS_MAX 8.0

struct slowness {
	double times; /* 1 at least */
	bool seen; /* some have told */
};

/* Something took so long. At most `most` is learned of it. */
static inline void slowness_learn(struct slowness *s, double most, double modelled_ns,
				  double took_ns)
{
	double times = took_ns / modelled_ns;
	double weight = !s->seen && times < s->times ? 1 : SLOWNESS_WEIGHT;

	times = times < most ? times : most;
	s->times += weight * (times - s->times);
	s->times = s->times > 1 ? s->times : 1;
	s->seen = true;
}

/* A part of something took so long, or so much came between. Until some has told less than was
 * feared nothing is known. */
static inline void slowness_learn_part(struct slowness *s, double most, double modelled_ns,
				       double took_ns)
{
	if (s->seen || took_ns < s->times * modelled_ns)
		slowness_learn(s, most, modelled_ns, took_ns);
}

#endif
