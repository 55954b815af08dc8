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

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TIMES_ARE_TOLD false
#else
#define TIMES_ARE_TOLD true
#endif

#define CONTROL_NS (TIMES_ARE_TOLD ? UINT64_C(200000000) : UINT64_C(2000000000))

/* What is waited for: of a window the longest, of some windows the middle one of each. */
struct figures {
	uint64_t step_ns, control_ns;
	uint64_t join_ns; /* root's */
	uint64_t silence_ns; /* the watchdog's, the longest of all */
};

struct victims {
	const struct harness *h; /* borrowed: its daemon runs */
	struct other honest;
	struct other tokens; /* where the daemon holds weights */
	bool has_tokens;
	struct agent agent; /* between the next two */
	char *text; /* owned: what it writes where nobody attacks */
};

/* Once they have started. times: where each adds his; NULL: nobody asks. */
void victims_start(struct victims *v, const struct harness *h, struct watch *times);
void victims_end(struct victims *v);
/* coppice-agent writes its text meanwhile; in the end it is what it has written before. */
void victims_write(struct victims *v);
void victims_have_written(struct victims *v);
/* Who has tokens computed has none for a while. */
void victims_hold_tokens(struct victims *v);
void victims_go_on(struct victims *v);
/* Of the next windows. */
struct figures victims_measure(struct victims *v);
/* Is f no more than a bound beyond what is waited for beside another? */
bool figures_are_near(struct figures f, struct figures beside);
/* Round trip of a status. */
uint64_t victims_control_ns(struct client *c);

#endif
