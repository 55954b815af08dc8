/*
 * longer.h - how much longer than modelled a model's passes take: what decode takes of one, and
 * what prompts beside it add. What is modelled errs by other things in the one than in the other,
 * and by one factor for both prompts would have more of a pass than they may, or less.
 */
#ifndef COPPICED_LONGER_H
#define COPPICED_LONGER_H

/* Factors; 1 until they are learned. What is learned of a pass is not used before it counts: by
 * the factors by which a pass was foreseen it is filled, too. */
struct longer {
	double decode, prompts;
	double learned_decode, learned_prompts;
};

/* Modelled, of a pass: all that it takes without its prompts, and what these add; 0: no decode, no
 * prompts. */
struct longer_parts {
	double decode_ns, prompts_ns;
};

#define LONGER_NONE ((struct longer){1, 1, 1, 1})

/* A pass took so long. What is usual follows slowly, and one pass counts for no more than a fourth
 * of what is usual. */
void longer_learn(struct longer *longer, const struct longer_parts *parts, double took_ns);
void longer_use_learned(struct longer *longer);
/* Modelled, what prompts may add to a pass that decode is modelled to take so long of, for it to
 * take longer by that part. */
double longer_prompts_ns(const struct longer *longer, double decode_ns, double part);

#endif
