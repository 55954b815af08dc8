/*
 * plan.c - names of the policies, their defaults, and the one way in: order, policy, merges.
 * After an error the list is empty.
 */
#include "plan.h"

#include "build.h"
#include "cascade.h"
#include "deft.h"
#include "device.h"
#include "fasttree.h"
#include "invariant.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FASTTREE_CHUNK_TOKENS 1024u
#define DEFT_CHUNK_TOKENS 128u
#define SEGMENT_TOKENS 2048u
#define TILE_ROWS 64u

static uint32_t default_chunk_tokens(enum plan_policy policy)
{
	return policy == PLAN_DEFT ? DEFT_CHUNK_TOKENS : FASTTREE_CHUNK_TOKENS;
}

void plan_config_init(struct plan_config *config, enum plan_policy policy,
		      const struct work_shape *shape, uint32_t n_units)
{
	*config = (struct plan_config){
		.policy = policy,
		.deft = PLAN_DEFT_FLATTEN,
		.fasttree = {.alpha = 0.66, .beta = 0.33, .gamma = 0.1},
		.group_heads = shape->n_q_heads / shape->n_kv_heads,
		.tile_rows = TILE_ROWS,
		.segment_tokens = SEGMENT_TOKENS,
		.chunk_tokens = default_chunk_tokens(policy),
		.n_units = n_units ? n_units : 1,
	};
}

static const struct {
	const char *name;
	enum plan_policy policy;
	enum plan_deft deft;
} plan_names[] = {
/* a policy's own name comes first */
#define POLICY(id, name, plan) {name, PLAN_##id, PLAN_DEFT_FLATTEN},
#define VARIANT(id, name, deft) {name, PLAN_##id, deft},
#define ALIAS(id, name) {name, PLAN_##id, PLAN_DEFT_FLATTEN},
#include "policies.def"
};
#define N_PLAN_NAMES (sizeof(plan_names) / sizeof(plan_names[0]))

const char plan_policy_words[] =
#define POLICY(id, name, plan) name " "
#define VARIANT(id, name, deft) name " "
#define ALIAS(id, name) name " "
#include "policies.def"
	;

const char *const plan_ways[PLAN_N_WAYS] = {
#define POLICY(id, name, plan) name,
#define VARIANT(id, name, deft) name,
#include "policies.def"
};

int plan_policy_parse(const char *name, struct plan_config *config)
{
	for (size_t i = 0; i < N_PLAN_NAMES; i++) {
		if (strcmp(name, plan_names[i].name))
			continue;
		config->policy = plan_names[i].policy;
		config->deft = plan_names[i].deft;
		config->chunk_tokens = default_chunk_tokens(config->policy);
		return 0;
	}
	return -EINVAL;
}

const char *plan_policy_name(enum plan_policy policy)
{
	for (size_t i = 0; i < N_PLAN_NAMES; i++)
		if (plan_names[i].policy == policy)
			return plan_names[i].name;
	return NULL;
}

static int auto_plan(struct build *build)
{
	if (build->config->tile_rows == PLAN_DEVICE_ROWS)
		return device_plan(build);
	return invariant_plan(build);
}

static int run_policy(struct build *build)
{
	const bool *last = NULL;
	int r = 0;

	if (build->config->policy == PLAN_FASTTREE)
		r = fasttree_choose(build, &last);
	if (!r)
		r = build_begin(build, last);
	if (r)
		return r;
	switch (build->config->policy) {
#define POLICY(id, name, plan) \
	case PLAN_##id: \
		return plan(build);
#include "policies.def"
	}
	return -EINVAL;
}

int plan_make(const struct plan_config *config, const struct work_tree *tree,
	      struct work_list *list)
{
	struct build build = {.config = config, .tree = tree, .list = list};
	int r;

	build_empty(list);
	if (!config->group_heads)
		return -EINVAL;
	if (!list->scratch)
		list->scratch = calloc(1, sizeof(*list->scratch));
	if (!list->scratch)
		return -ENOMEM;
	build.scratch = list->scratch;
	build.order = &list->scratch->order;
	r = order_count(build.order, tree);
	if (!r)
		r = run_policy(&build);
	if (!r)
		r = build_finish(&build);
	if (r)
		build_empty(list);
	return r;
}

void plan_list_done(struct work_list *list)
{
	if (list->scratch) {
		order_done(&list->scratch->order);
		for (unsigned int i = 0; i < PLAN_POLICY + PLAN_N_POLICY; i++)
			array_done(&list->scratch->memory[i]);
		free(list->scratch);
	}
	*list = (struct work_list){0};
}
