/*
 * lists.c - one walk over items serves all lists; the caller's text is not changed.
 */
#include "lists.h"

#include "kernels/group/exchange.h"
#include "kernels/group/group.h"
#include "kernels/group/ranks.h"

#include <errno.h>
#include <string.h>

#define LIST_BYTES 2048 /* that the longest list of addresses may have: config.ranks */

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

int list_devices(const char *text, uint32_t *ret_n, bool *ret_cpu)
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

int list_items(const char *text, char *copy, const char **ret, uint32_t most)
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

int list_ranks(const char *text, uint32_t *ret_n)
{
	char copy[LIST_BYTES];
	const char *addresses[EXCHANGE_RANKS_MAX];
	int n = list_items(text, copy, addresses, EXCHANGE_RANKS_MAX);

	if (n < 0)
		return n;
	for (int i = 0; i < n; i++) {
		if (!ranks_is_address(addresses[i]))
			return -EINVAL;
		for (int j = 0; j < i; j++) {
			if (strcmp(addresses[i], addresses[j]) == 0)
				return -EINVAL;
		}
	}
	*ret_n = (uint32_t)n;
	return 0;
}

/* ---- split ---- */

static enum list_split split_word(struct item item)
{
	static const char *const words[] = {"auto", "tokens", "heads"};

	for (enum list_split i = LIST_SPLIT_AUTO; i < LIST_SPLIT_NONE; i++) {
		if (item_is(item, words[i]))
			return i;
	}
	return LIST_SPLIT_NONE;
}

/* A colon parts the model's name from the word; names may have colons themselves. */
static enum list_split split_item(struct item item, struct item *ret_model)
{
	const char *colon = memrchr(item.text, ':', item.length);

	*ret_model = (struct item){item.text, colon ? (size_t)(colon - item.text) : 0};
	if (!colon)
		return split_word(item);
	item.length -= (size_t)(colon + 1 - item.text);
	item.text = colon + 1;
	return ret_model->length ? split_word(item) : LIST_SPLIT_NONE;
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

bool list_is_splits(const char *text)
{
	for (const char *at = text; at;) {
		const char *begin = at;
		struct item model;

		if (split_item(item_next(&at), &model) == LIST_SPLIT_NONE ||
		    split_told(text, begin, model))
			return false;
	}
	return true;
}

enum list_split list_split_of(const char *text, const char *model_name)
{
	enum list_split of_all = LIST_SPLIT_AUTO;

	for (const char *at = text; at && *text;) {
		struct item model;
		enum list_split split = split_item(item_next(&at), &model);

		if (model.length == 0)
			of_all = split;
		else if (item_is(model, model_name))
			return split;
	}
	return of_all;
}
