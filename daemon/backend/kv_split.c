/* kv_split.c - see kv_split.h. */
#include "kv_split.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* What auto reckons with, as nobody knows a model's load when it is opened: what several devices
 * are for. */
#define REFERENCE_TOKENS 262144u
#define REFERENCE_SEQS 64u

/* ---- lists ---------------------------------------------------------------------------------- */

/* An item of a list with commas, without the blanks around it. */
struct item {
	const char *text;
	size_t length;
};

/* The next item; *at is behind it then, NULL at the end. */
static struct item item_next(const char **at)
{
	struct item item = {*at, strcspn(*at, ",")};

	*at = item.text[item.length] ? item.text + item.length + 1 : NULL;
	while (item.length && *item.text == ' ')
		item = (struct item){item.text + 1, item.length - 1};
	while (item.length && item.text[item.length - 1] == ' ')
		item.length--;
	return item;
}

static bool item_is(struct item item, const char *word)
{
	return item.length == strlen(word) && memcmp(item.text, word, item.length) == 0;
}

int devices_parse(const char *text, uint32_t *ret_n, bool *ret_cpu)
{
	uint32_t n = 0, n_cpu = 0;

	for (const char *at = text; at; n++) {
		struct item item = item_next(&at);

		if (item.length == 0 || n == GROUP_DEVICES_MAX)
			return -EINVAL;
		n_cpu += item_is(item, "cpu");
	}
	if (n_cpu && n_cpu < n)
		return -EINVAL;
	*ret_n = n;
	*ret_cpu = n_cpu > 0;
	return 0;
}

int list_split(const char *text, char *copy, const char **ret, uint32_t most)
{
	uint32_t n = 0;

	for (const char *at = text; at; n++) {
		struct item item = item_next(&at);

		if (item.length == 0 || n == most)
			return -EINVAL;
		memcpy(copy, item.text, item.length);
		copy[item.length] = 0;
		ret[n] = copy;
		copy += item.length + 1;
	}
	return (int)n;
}

/* ---- split ---------------------------------------------------------------------------------- */

enum split { SPLIT_AUTO, SPLIT_TOKENS, SPLIT_HEADS, SPLIT_NONE };

static enum split split_word(struct item item)
{
	static const char *const words[] = {"auto", "tokens", "heads"};

	for (enum split i = SPLIT_AUTO; i < SPLIT_NONE; i++) {
		if (item_is(item, words[i]))
			return i;
	}
	return SPLIT_NONE;
}

/* A colon parts the model's name from the word; names may have colons themselves. */
static enum split split_item(struct item item, struct item *ret_model)
{
	const char *colon = memrchr(item.text, ':', item.length);

	*ret_model = (struct item){item.text, colon ? (size_t)(colon - item.text) : 0};
	if (!colon)
		return split_word(item);
	item.length -= (size_t)(colon + 1 - item.text);
	item.text = colon + 1;
	return ret_model->length ? split_word(item) : SPLIT_NONE;
}

static bool same_item(struct item a, struct item b)
{
	return a.length == b.length && memcmp(a.text, b.text, a.length) == 0;
}

/* Is the model, or with no name all of them, told something before the item at end? */
static bool split_told(const char *text, const char *end, struct item model)
{
	for (const char *at = text; at && at != end;) {
		struct item of;

		split_item(item_next(&at), &of);
		if (same_item(of, model))
			return true;
	}
	return false;
}

bool split_is_valid(const char *text)
{
	for (const char *at = text; at;) {
		const char *begin = at;
		struct item model;

		if (split_item(item_next(&at), &model) == SPLIT_NONE ||
		    split_told(text, begin, model))
			return false;
	}
	return true;
}

/* What the model is told to do. */
static enum split split_of(const char *text, const char *name)
{
	enum split of_all = SPLIT_AUTO;

	for (const char *at = text; at && *text;) {
		struct item model;
		enum split split = split_item(item_next(&at), &model);

		if (model.length == 0)
			of_all = split;
		else if (item_is(model, name))
			return split;
	}
	return of_all;
}

/* A layer of a new token of each sequence, behind so many that are common to all. */
static double layer_ns(const struct backend_ops *ops, struct backend *backend,
		       struct work_shape shape, enum work_split split)
{
	double bytes = 2.0 * shape.n_kv_heads * shape.head_dim *
		       (double)work_dtype_bytes(shape.dtype) * REFERENCE_TOKENS;
	double rows = (double)REFERENCE_SEQS * shape.n_q_heads / shape.n_kv_heads;
	struct backend_cost cost;

	shape.split = split;
	ops->cost(backend, &shape, &cost);
	return cost.fixed_ns + (cost.kv_ns_per_byte + cost.row_ns_per_byte * rows) * bytes;
}

static int choose_heads(struct work_shape *shape, uint32_t n, bool divides, char *why,
			size_t why_bytes)
{
	if (!divides) {
		snprintf(why, why_bytes,
			 "split = heads, but %u KV heads cannot be shared out evenly to %u "
			 "devices: use tokens or auto.",
			 shape->n_kv_heads, n);
		return -ENOTSUP;
	}
	shape->split = WORK_HEADS;
	snprintf(why, why_bytes, "split = heads in the config: %u of %u KV heads on each device",
		 shape->n_kv_heads / n, shape->n_kv_heads);
	return 0;
}

static void choose_by_cost(const struct backend_ops *ops, struct backend *backend,
			   struct work_shape *shape, uint32_t n, char *why, size_t why_bytes)
{
	double tokens_us = layer_ns(ops, backend, *shape, WORK_TOKENS) / 1e3;
	double heads_us = layer_ns(ops, backend, *shape, WORK_HEADS) / 1e3;

	shape->split = heads_us <= tokens_us ? WORK_HEADS : WORK_TOKENS;
	snprintf(
		why, why_bytes,
		"auto: %u sequences behind the same %u tokens are expected to take %.1f us a layer "
		"with tokens, %.1f us with heads (%u on each device, nothing to exchange)",
		REFERENCE_SEQS, REFERENCE_TOKENS, tokens_us, heads_us, shape->n_kv_heads / n);
}

/* Of some heads: the device that has them, if they are of one. */
static bool find_home(const struct split_heads *heads, uint32_t n_own, uint32_t n, uint32_t *ret)
{
	uint32_t each = heads->all / n;

	*ret = each ? heads->first / each : 0;
	return heads->all % n == 0 && (heads->first + n_own - 1) / each == *ret;
}

static int choose_home(struct work_shape *shape, const struct split_heads *heads, uint32_t n,
		       bool must, char *why, size_t why_bytes)
{
	uint32_t last = heads->first + shape->n_kv_heads - 1, home;

	if (find_home(heads, shape->n_kv_heads, n, &home)) {
		shape->split = WORK_HOME;
		shape->home = home;
		snprintf(why, why_bytes,
			 "KV heads %u to %u of %u are those of device %u, of %u devices",
			 heads->first, last, heads->all, home, n);
		return 0;
	}
	snprintf(why, why_bytes, "%sKV heads %u to %u of %u are not those of one of %u devices%s",
		 must ? "split = heads, but " : "auto: ", heads->first, last, heads->all, n,
		 must ? ": open those of one, or use tokens or auto." : "");
	return must ? -ENOTSUP : 0;
}

int split_choose(const struct config *config, const struct backend_ops *ops,
		 struct backend *backend, const char *model, const struct split_heads *heads,
		 struct work_shape *shape, char *why, size_t why_bytes)
{
	enum split split = split_of(config->split, model);
	uint32_t n = config->n_devices;
	bool divides = n > 1 && shape->n_kv_heads % n == 0;

	shape->split = WORK_TOKENS;
	if (n <= 1)
		snprintf(why, why_bytes, "one device");
	else if (heads->all && split != SPLIT_TOKENS)
		return choose_home(shape, heads, n, split == SPLIT_HEADS, why, why_bytes);
	else if (split == SPLIT_HEADS)
		return choose_heads(shape, n, divides, why, why_bytes);
	else if (split == SPLIT_TOKENS)
		snprintf(why, why_bytes, "split = tokens in the config");
	else if (!divides)
		snprintf(why, why_bytes,
			 "auto: %u KV heads cannot be shared out evenly to %u devices",
			 shape->n_kv_heads, n);
	else
		choose_by_cost(ops, backend, shape, n, why, why_bytes);
	return 0;
}
