/*
 * validate_domain.c - what a domain is charged for prompts and pins, counted again.
 *
 * Both are sums over the trees of the domain, whatever the model and salt. Prompts are never more
 * than there may be. What pins keep may be, by slices that were cut in two since.
 */
#include "validate_domain.h"

#include "kvstore/seq/prompt.h"

struct charges {
	uint64_t prompt_bytes, pinned_bytes;
};

static void namespace_charges(const struct store_namespace *namespace, struct charges *inout)
{
	uint64_t page_bytes = namespace->holding->model->lent.page_bytes;

	for (const struct store_node *n = namespace->root; n; n = note_next(n)) {
		const struct store_seq *q;
		LIST_FOREACH (q, &n->seqs, at_node)
			inout->prompt_bytes += prompt_bytes(q);
		inout->pinned_bytes += n->n_pinned > 0 ? n->n_slices * page_bytes : 0;
	}
}

int validate_domain(struct validate *v, const struct store_domain *d)
{
	const struct store_namespace *namespace;
	uint64_t limit = v->s->config.domain_prompt_bytes;
	struct charges found = {0};

	TAILQ_FOREACH (namespace, &v->s->all_namespaces, all)
		if (namespace->holding->domain == d)
			namespace_charges(namespace, &found);
	CHECK(v, found.prompt_bytes == d->prompt_bytes && (limit == 0 || d->prompt_bytes <= limit),
	      "domain %lu: %lu bytes of prompts, counted %lu", d->id, d->prompt_bytes,
	      found.prompt_bytes);
	CHECK(v, found.pinned_bytes == d->pinned_bytes, "domain %lu: %lu bytes pinned, counted %lu",
	      d->id, d->pinned_bytes, found.pinned_bytes);
	return 0;
}
