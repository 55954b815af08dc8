/*
 * attack_victims.h - who lives while another user attacks: one who computes his layers himself and
 * asks for figures, one who has a token computed now and then, and coppice-agent, of each attack
 * one. Each is another user, and what he is told is checked.
 */
#ifndef ATTACK_VICTIMS_H
#define ATTACK_VICTIMS_H

#include "agent_fixture.h"
#include "attack_watch.h"
#include "other_user.h"

struct victims {
	const struct harness *h; /* borrowed: its daemon runs */
	struct other honest;
	struct other tokens; /* where the daemon holds weights */
	bool has_tokens;
	struct agent agent; /* between the next two */
	char *text; /* owned: what it writes where nobody attacks */
};

/* Once they have started. w: where each adds his times. */
void victims_start(struct victims *v, const struct harness *h, struct watch *w);
void victims_end(struct victims *v);
/* coppice-agent writes its text meanwhile; in the end it is what it has written before. */
void victims_write(struct victims *v);
void victims_have_written(struct victims *v);
/* Who has tokens computed has none for a while. */
void victims_hold_tokens(struct victims *v);
void victims_go_on(struct victims *v);
/* Asks for a status. */
void victims_ask(struct client *c);

#endif
