/*
 * attack_fixture.h - one user attacks, another decodes and asks for figures: what he waits for is
 * held against what he waits for beside an honest neighbour. Others have tokens computed, and an
 * agent writes.
 *
 * A daemon for all attacks, its victims (attack_victims.h) in processes of their own, and for each
 * attack a process of another user. Only root can do that.
 */
#ifndef ATTACK_FIXTURE_H
#define ATTACK_FIXTURE_H

#include "other_user.h"

#define ATTACK_PROMPT_MIB 64

/* Of main's tests: the daemon and the honest client come and go with the group. */
int attack_setup(void **state);
/* The same with other flags: n of them; "TIER" stands for that of a file in the daemon's folder. */
int attack_setup_with(void **state, const char *const *flags, unsigned n);
int attack_teardown(void **state);

/* Of the paths behind which attacks compute: ATTACK_TOKENS, a multiple of 8,192; without it, 8,192.
 * The pool of attack_setup grows with it. */
uint32_t attack_path_tokens(void);

/* The attack is on, for who measures. From its process. */
void attack_is_on(int said);
/* Until it is killed, or nobody is there any more. */
bool attack_goes_on(void);
/* Who decodes, and does nothing else. */
int attack_neighbour(const struct harness *h, int said);

struct attack {
	other_life *life;
	const char *name; /* a neighbour's */
	unsigned n_users; /* that live so, each another; 0: one */
	unsigned n_neighbours; /* that are its match, as many of them compute; 0: one */
	uint32_t prompt_mib; /* domain_prompt_bytes; 0: ATTACK_PROMPT_MIB */
	bool (*is_on)(struct client *root); /* NULL: once they say so */
	/* What else has to be so while it is on, for root; NULL: nothing. */
	void (*beside)(const struct harness *h, struct client *root);
};

/* While an attacker lives so, the victims have right answers. No step and no token is held up for
 * more than 50 ms beyond the longest beside that neighbour, no answer and no joining of root's for
 * more than 200: so long a thread of the daemon computes meanwhile. By the clock the fourth longest
 * of each is held against the neighbour's. An agent writes what it writes alone, the watchdog is
 * fed, and the daemon's memory is within its keys; when the attacker has been killed, all is as
 * before, and when the group's victims have gone, as it was before them. Under sanitizers no
 * neighbour is measured and memory is not asserted: nothing takes more than 2 s. With
 * ATTACK_SECONDS times are printed and not asserted (attack_watch.h), with ATTACK_BUDGET_MS it is
 * the daemon's batch_budget_ms. */
#define assert_withstood(state, honest, hostile) \
	attack_withstand(state, &(const struct attack){.life = (honest), .name = #honest}, \
			 &(const struct attack){.life = (hostile)}, __func__)
/* The same of a struct attack *, beside an honest neighbour who decodes. */
#define assert_attack_withstood(state, ...) \
	attack_withstand(state, \
			 &(const struct attack){.life = attack_neighbour, \
						.name = "attack_neighbour"}, \
			 (__VA_ARGS__), __func__)
void attack_withstand(void **state, const struct attack *neighbour, const struct attack *attack,
		      const char *name);

#endif
