/*
 * birth.c - the scheduler's parts, put together and taken apart.
 *
 * Each part gets a pointer to the core, and to the parts below it that it works with. They end in
 * the order of what they hold: sessions first, as these hold everything else, the store after
 * whatever has pages of it.
 */
#include "birth.h"

#include "daemon/config/quota.h"
#include "daemon/sched/verbs/sessions.h"
#include "extents.h"
#include "proto/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

static int make_store(struct sched *s)
{
	const struct config *config = s->core.config;
	struct store_config of = {
		.pool = {.ctx = s,
			 .commit = extents_commit,
			 .left = extents_left,
			 .release = extents_release},
		.n_extents = (uint32_t)((config->pool_bytes - config->stage_bytes) /
					config->extent_bytes),
		.extent_bytes = config->extent_bytes,
		.n_devices = config->n_devices,
		.claim_ns = config->claim_ms * NS_PER_MS,
		.domain_bytes = quota_domain_bytes(config, false),
		.owner = geteuid(),
		.owner_bytes = quota_domain_bytes(config, true),
		.reserved_extents = quota_reserved_extents(config),
		.max_domain_pins = config->max_domain_pins,
		.domain_pin_bytes = quota_pin_bytes(config),
		.prompt_bytes = config->prompt_bytes,
		.domain_prompt_bytes = config->domain_prompt_bytes,
		.max_seq_tokens = config->max_seq_tokens,
		.max_path_nodes = config->max_path_nodes,
	};

	int r = extents_init(s, of.n_extents);

	return r < 0 ? r : store_new(&of, &s->core.store);
}

static void make_parts(struct sched *s)
{
	struct sched_core *core = &s->core;

	core->n_cores = (uint32_t)sysconf(_SC_NPROCESSORS_ONLN);
	TAILQ_INIT(&core->lanes);
	step_queues_init(&core->steps);
	handle_table_init(&core->seqs);
	LIST_INIT(&core->users);
	core->batches.times = core->ops->unseen > 1 ? core->ops->unseen : 1;
	core->passes = core->attention = core->batches;
	LIST_INIT(&s->sessions);
	LIST_INIT(&s->ended_sessions);
	LIST_INIT(&s->models);
	s->lanes = (struct lanes){.core = core, .input_wait = &s->input_wait};
	input_wait_init(&s->input_wait, core);
	waits_init(&s->waits, core);
	batch_init(&s->batch, core);
	window_init(&s->window, core, &s->batch);
	s->fit = (struct fit){.batch = &s->batch};
	passes_init(&s->passes, core, &s->batch.plans);
	streamed_init(&s->streamed, core);
}

int sched_make(const struct config *config, const struct backend_ops *ops, struct backend *backend,
	       struct abi_board *board, struct sched **ret)
{
	struct sched *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	s->board = board;
	s->core.config = config;
	s->core.ops = ops;
	s->core.backend = backend;
	int r = requests_init(&s->core.requests);

	if (r < 0) {
		free(s);
		return r;
	}
	make_parts(s);
	r = doorbell_init(&s->doorbell);
	if (r == 0)
		r = make_store(s);
	if (r < 0) {
		sched_unmake(s);
		return r;
	}
	sched_tiers_attach(s);
	*ret = s;
	return 0;
}

/* Of a backend that has failed copies never end, and the process does: the file is what it was. */
static void free_store(struct sched *s)
{
	if (s->tiers.on && core_failed(&s->core))
		return;
	if (s->core.store) {
		sched_tiers_flush(s);
		extents_let_go_ahead(s);
	}
	store_free(s->core.store);
}

void sched_unmake(struct sched *s)
{
	if (s->batch.in_flight)
		batch_fail(&s->batch);
	if (s->passes.n_under_way > 0)
		passes_fail(&s->passes);
	sessions_end_all(s);
	fit_done(&s->fit);
	passes_done(&s->passes);
	batch_done(&s->batch);
	streamed_done(&s->streamed);
	free_store(s);
	extents_done(s);
	handle_table_done(&s->core.seqs);
	requests_done(&s->core.requests);
	doorbell_done(&s->doorbell);
	lanes_done(&s->lanes);
	free(s);
}
