/*
 * tree.c - the radix tree, drawn.
 *
 *      node  tokens  pages  where    users  hits
 *         1       0      0               8     8  model "m", user root
 *         2     256      8               8     7  └─ "In the b"...
 *         3     256      8               8     7     ┊  "n the se"...
 *         4      60      2               1     0     ├─ "And it c"...
 *         5      48      2  1h 1f        0     0     └─ "Woe unto"...
 *
 * Where: how many of the pages are not in the pool but in host memory (h), or in the file alone
 * (f).
 *
 * The daemon sends nodes depth first, so the nodes behind a node tell whether it has younger
 * siblings.
 */
#include "tree.h"

#include "json.h"
#include "text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define DRAWN_LEVELS 24u

struct tree {
	Coppice__TreeNode **nodes; /* owned, each and all */
	size_t n;
};

static void tree_done(struct tree *t)
{
	for (size_t i = 0; i < t->n; i++)
		coppice__tree_node__free_unpacked(t->nodes[i], NULL);
	free(t->nodes);
}

/* Moves the nodes of one reply into the tree. */
static int tree_take(struct tree *t, Coppice__TreeReply *from)
{
	size_t n = t->n + from->n_node;
	Coppice__TreeNode **nodes = realloc(t->nodes, (n + 1) * sizeof(*nodes));

	if (!nodes)
		return -ENOMEM;
	for (size_t i = 0; i < from->n_node; i++)
		nodes[t->n + i] = from->node[i];
	from->n_node = 0;
	t->nodes = nodes;
	t->n = n;
	return 0;
}

static int tree_read(struct ctl *ctl, struct tree *t)
{
	Coppice__Tree ask = COPPICE__TREE__INIT;
	size_t n_before;
	int r;

	do {
		Coppice__Request request = COPPICE__REQUEST__INIT;
		CALL_REPLY reply = NULL;
		request.tree = &ask;
		r = call_ask(&ctl->call, &request, &reply);
		if (r < 0)
			return r;
		if (!reply->tree)
			return call_fail(&ctl->call, -EPROTO, "tree",
					 "coppiced's reply lacks its tree");
		ask.has_cursor = 1;
		ask.cursor = reply->tree->cursor;
		n_before = t->n;
		if (tree_take(t, reply->tree) < 0)
			return call_fail(&ctl->call, -ENOMEM, NULL, "out of memory");
	} while (ask.cursor != 0 && t->n > n_before);
	return 0;
}

/* Where a node stands in the drawing. An only child goes on in its parent's column: a long run that
 * came in chunks is a chain of nodes, and would else wander off to the right. */
struct tree_place {
	uint32_t level;
	bool younger; /* a sibling follows */
	bool only;
};

/* Going backwards, seen[d] is true while a node of depth d has been met whose parent has not. */
static void find_younger(const struct tree *t, struct tree_place *places, bool *seen)
{
	for (size_t i = t->n; i-- > 0;) {
		uint32_t depth = t->nodes[i]->depth;
		places[i].younger = seen[depth];
		seen[depth] = true;
		seen[depth + 1] = false;
	}
}

/* level[d] is that of the node of depth d above the one at hand. */
static void find_levels(const struct tree *t, struct tree_place *places, uint32_t *level)
{
	for (size_t i = 0; i < t->n; i++) {
		struct tree_place *p = &places[i];
		uint32_t depth = t->nodes[i]->depth;
		bool first = i > 0 && t->nodes[i - 1]->depth < depth;
		p->only = depth > 1 && first && !p->younger;
		p->level = depth == 0 ? 0 : level[depth - 1] + !p->only;
		level[depth] = p->level;
	}
}

static void draw_branches(const bool *open, const struct tree_place *p)
{
	uint32_t level = p->level + p->only;

	for (uint32_t d = 1; d < level && d < DRAWN_LEVELS; d++)
		fputs(open[d] ? "│  " : "   ", stdout);
	if (level > DRAWN_LEVELS)
		printf("(level %" PRIu32 ") ", level);
	if (p->only)
		fputs("┊  ", stdout);
	else if (level > 0)
		fputs(p->younger ? "├─ " : "└─ ", stdout);
}

static void print_label(const Coppice__TreeNode *n)
{
	char text[160], name[TEXT_QUOTED_BYTES];

	if (n->parent == 0) {
		printf("model \"%s\", user %s", text_quoted(name, sizeof(name), n->model),
		       text_user(n->domain).s);
		if (n->salt != 0)
			printf(", salt %016" PRIx64, n->salt);
	} else {
		text_tokens(text, sizeof(text), n->head, n->n_head, n->n_tokens > n->n_head);
		fputs(text, stdout);
	}
	putchar('\n');
}

/* "3h 12f"; empty: all of the node is in the pool. */
static struct text where_text(const Coppice__TreeNode *n)
{
	struct text t = {""};
	size_t used = 0;

	if (n->n_pages_host)
		used = (size_t)snprintf(t.s, sizeof(t.s), "%" PRIu32 "h", n->n_pages_host);
	if (n->n_pages_file)
		snprintf(t.s + used, sizeof(t.s) - used, "%s%" PRIu32 "f", used ? " " : "",
			 n->n_pages_file);
	return t;
}

static bool has_lower(const struct tree *t)
{
	for (size_t i = 0; i < t->n; i++)
		if (t->nodes[i]->n_pages_host || t->nodes[i]->n_pages_file)
			return true;
	return false;
}

static void print_tree(const struct tree *t, const struct tree_place *places, bool *open)
{
	int where = has_lower(t) ? 13 : 0; /* no such column where all is in the pool */

	printf("%8s %9s %7s%*s %6s %9s\n", "node", "tokens", "pages", where, where ? "where" : "",
	       "users", "hits");
	for (size_t i = 0; i < t->n; i++) {
		const Coppice__TreeNode *n = t->nodes[i];
		printf("%8" PRIu64 " %9s %7s%*s %6" PRIu32 " %9s  ", n->id,
		       text_count(n->n_tokens).s, text_count(n->n_pages).s, where, where_text(n).s,
		       n->n_users, text_count(n->hits).s);
		draw_branches(open, &places[i]);
		if (!places[i].only)
			open[places[i].level] = places[i].younger;
		print_label(n);
	}
}

static int tree_draw(struct ctl *ctl, const struct tree *t)
{
	struct tree_place *places = calloc(t->n + 1, sizeof(*places));
	uint32_t max_depth = 0, *levels;
	bool *seen, *open, enough;

	for (size_t i = 0; i < t->n; i++)
		if (t->nodes[i]->depth > max_depth)
			max_depth = t->nodes[i]->depth;
	levels = calloc((size_t)max_depth + 2, sizeof(*levels));
	seen = calloc((size_t)max_depth + 2, sizeof(*seen));
	open = calloc((size_t)max_depth + 2, sizeof(*open));
	enough = places && levels && seen && open;
	if (enough) {
		find_younger(t, places, seen);
		find_levels(t, places, levels);
		print_tree(t, places, open);
	}
	free(places);
	free(levels);
	free(seen);
	free(open);
	return enough ? 0 : call_fail(&ctl->call, -ENOMEM, NULL, "out of memory");
}

static int tree_json(const struct tree *t)
{
	json_t *array = json_array();

	for (size_t i = 0; i < t->n; i++)
		json_array_append_new(array, json_message(&t->nodes[i]->base));
	return json_print(json_pack("{s:o}", "nodes", array));
}

int tree_run(struct ctl *ctl)
{
	struct tree tree = {0};
	int r = tree_read(ctl, &tree);

	if (r == 0)
		r = ctl->options.json ? tree_json(&tree) : tree_draw(ctl, &tree);
	tree_done(&tree);
	return r;
}
