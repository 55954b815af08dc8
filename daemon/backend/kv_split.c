/*
 * kv_split.c - the choice between tokens, heads and one device.
 *
 * What the config says of the model is done, or refused with a sentence; "auto" weighs both ways by
 * what the backend says a step costs, and a model that brings some heads of a larger one goes to
 * the device that has these.
 */
#include "kv_split.h"

#include "daemon/config/lists.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

/* What auto reckons with, as nobody knows a model's load when it is opened: what several devices
 * are for. */
#define REFERENCE_TOKENS 262144u
#define REFERENCE_SEQS 64u

/* A question under way: what is asked, and where the answer goes. */
struct choice {
	const struct split_question *of;
	struct work_shape *shape;
	uint32_t n; /* devices */
	char *why;
	size_t why_bytes;
};

static void __attribute__((format(printf, 2, 3))) say(struct choice *c, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(c->why, c->why_bytes, format, args);
	va_end(args);
}

/* A layer of a new token of each sequence, behind so many that are common to all. */
static double layer_us(const struct choice *c, enum work_split split)
{
	struct work_shape shape = *c->shape;
	double bytes = 2.0 * shape.n_kv_heads * shape.head_dim *
		       (double)work_dtype_bytes(shape.dtype) * REFERENCE_TOKENS;
	double rows = (double)REFERENCE_SEQS * shape.n_q_heads / shape.n_kv_heads;
	struct backend_cost cost;

	shape.split = split;
	c->of->ops->cost(c->of->backend, &shape, &cost);
	return (cost.fixed_ns + (cost.kv_ns_per_byte + cost.row_ns_per_byte * rows) * bytes) / 1e3;
}

static int choose_heads(struct choice *c)
{
	uint32_t heads = c->shape->n_kv_heads;

	if (heads % c->n) {
		say(c,
		    "split = heads, but %u KV heads cannot be shared out evenly to %u devices: use "
		    "tokens or auto.",
		    heads, c->n);
		return -ENOTSUP;
	}
	c->shape->split = WORK_HEADS;
	say(c, "split = heads in the config: %u of %u KV heads on each device", heads / c->n,
	    heads);
	return 0;
}

static int choose_tokens(struct choice *c)
{
	say(c, "split = tokens in the config");
	return 0;
}

static int choose_by_cost(struct choice *c)
{
	double tokens_us, heads_us;
	uint32_t heads = c->shape->n_kv_heads;

	if (heads % c->n) {
		say(c, "auto: %u KV heads cannot be shared out evenly to %u devices", heads, c->n);
		return 0;
	}
	tokens_us = layer_us(c, WORK_TOKENS);
	heads_us = layer_us(c, WORK_HEADS);
	c->shape->split = heads_us <= tokens_us ? WORK_HEADS : WORK_TOKENS;
	say(c,
	    "auto: %u sequences behind the same %u tokens are expected to take %.1f us a layer "
	    "with tokens, %.1f us with heads (%u on each device, nothing to exchange)",
	    REFERENCE_SEQS, REFERENCE_TOKENS, tokens_us, heads_us, heads / c->n);
	return 0;
}

/* Of some heads: the device that has them, if they are of one. */
static bool find_home(const struct choice *c, uint32_t *ret)
{
	const struct split_heads *heads = c->of->heads;
	uint32_t each = heads->all / c->n;

	if (!each || heads->all % c->n ||
	    (heads->first + c->shape->n_kv_heads - 1) / each != heads->first / each)
		return false;
	*ret = heads->first / each;
	return true;
}

static int choose_home(struct choice *c, bool must)
{
	const struct split_heads *heads = c->of->heads;
	uint32_t last = heads->first + c->shape->n_kv_heads - 1, home;

	if (find_home(c, &home)) {
		c->shape->split = WORK_HOME;
		c->shape->home = home;
		say(c, "KV heads %u to %u of %u are those of device %u, of %u devices",
		    heads->first, last, heads->all, home, c->n);
		return 0;
	}
	say(c, "%sKV heads %u to %u of %u are not those of one of %u devices%s",
	    must ? "split = heads, but " : "auto: ", heads->first, last, heads->all, c->n,
	    must ? ": open those of one, or use tokens or auto." : "");
	return must ? -ENOTSUP : 0;
}

int split_choose(const struct split_question *of, struct work_shape *shape, char *why,
		 size_t why_bytes)
{
	struct choice c = {of, shape, of->config->n_devices, why, why_bytes};
	enum list_split rule = list_split_of(of->config->split, of->model);

	shape->split = WORK_TOKENS;
	if (c.n <= 1) {
		say(&c, "one device");
		return 0;
	}
	if (of->heads->all && rule != LIST_SPLIT_TOKENS)
		return choose_home(&c, rule == LIST_SPLIT_HEADS);
	if (rule == LIST_SPLIT_HEADS)
		return choose_heads(&c);
	return rule == LIST_SPLIT_TOKENS ? choose_tokens(&c) : choose_by_cost(&c);
}
