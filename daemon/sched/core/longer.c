/*
 * longer.c - what is usual goes a part of the way to what was seen, and no pass moves it far. Of a
 * pass with prompts only what is beyond decode's usual part is theirs.
 */
#include "longer.h"

#include <math.h>

#define WEIGHT 0.125 /* of a pass in what is usual */
#define PASS_PART 0.25 /* of what is usual: what a pass may differ from it by */
#define LEAST 0.25
#define MOST 8.0
/* Of what decode takes: less is lost in what passes differ by without prompts. */
#define PROMPTS_LEAST 0.1

static void follow(double *inout, double seen)
{
	double usual = *inout, most = PASS_PART * usual;

	usual += WEIGHT * fmin(fmax(seen - usual, -most), most);
	*inout = fmin(fmax(usual, LEAST), MOST);
}

void longer_learn(struct longer *longer, const struct longer_parts *parts, double took_ns)
{
	double decode_ns = parts->decode_ns, prompts_ns = parts->prompts_ns;

	if (decode_ns <= 0)
		return;
	if (prompts_ns <= 0)
		follow(&longer->learned_decode, took_ns / decode_ns);
	else if (prompts_ns >= PROMPTS_LEAST * decode_ns)
		follow(&longer->learned_prompts,
		       (took_ns - longer->learned_decode * decode_ns) / prompts_ns);
}

void longer_use_learned(struct longer *longer)
{
	longer->decode = longer->learned_decode;
	longer->prompts = longer->learned_prompts;
}

double longer_prompts_ns(const struct longer *longer, double decode_ns, double part)
{
	return part * decode_ns * longer->decode / longer->prompts;
}
