/*
 * attack_tokens.h - a victim who has the daemon compute whole tokens, as the demo's agents have.
 */
#ifndef ATTACK_TOKENS_H
#define ATTACK_TOKENS_H

#include "attack_watch.h"
#include "control_harness.h"

/* Prompts, and tokens behind each, until nobody is there any more; a byte to said once it does.
 * All logits have the bits of the first time. w: where each token's time goes. Where no table is
 * asked for it is a token now and then, for some per cent of a processor. */
int attack_tokens(const struct harness *h, struct watch *w, int said);

#endif
