/*
 * attack_tokens.c - see attack_tokens.h. The model is that of tests/model. Each token is waited
 * for; where no table is asked for the next one is soon enough a while later.
 */
#include "attack_tokens.h"

#include "attack_fixture.h"
#include "decode_fixture.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PROMPT 80u
#define TOKENS 40u
#define PAUSE_US 20000

struct decode_service service; /* the fixture's: the daemon is the harness's */

/* One token, as it was the first time. */
static void compute_token(struct decode_client *client, struct coppice_seq *seq, uint32_t i,
			  bool first)
{
	static float logits[TOKENS][DECODE_VOCAB];

	decode_run(client, seq, service.ids + PROMPT + i, 1);
	if (first)
		memcpy(logits[i], decode_logits(client), sizeof(logits[i]));
	decode_assert_same(client, logits[i]);
}

static void write_text(struct decode_client *client, struct watch *w, bool first)
{
	struct coppice_seq *seq = decode_anew(client, service.ids, PROMPT);

	for (uint32_t i = 0; i < TOKENS; i++) {
		struct watch_since start = watch_now(w);

		compute_token(client, seq, i, first);
		watch_add(w, WATCH_TOKENS, start);
		if (watch_seconds() == 0)
			usleep(PAUSE_US);
	}
	coppice_seq_close(seq);
}

int attack_tokens(const struct harness *h, struct watch *w, int said)
{
	struct decode_client client;

	for (uint32_t i = 0; i < DECODE_TOKENS; i++)
		service.ids[i] = i * 7 % DECODE_VOCAB;
	snprintf(service.socket, sizeof(service.socket), "%s", h->socket);
	decode_client_open(&client, &service);
	write_text(&client, w, true);
	attack_is_on(said);
	while (attack_goes_on())
		write_text(&client, w, false);
	return 0;
}
