/*
 * tree.c - the radix tree, drawn.
 *
 *      node  tokens  pages  users  hits
 *         1       0      0      8     8  model "m", user root
 *         2   4,000     63      8     7  ├─ "In the beginning"...
 *         3      60      1      1     0  │  ├─ "And it came to p"...
 *
 * The daemon sends nodes depth first, so the nodes behind a node tell whether it has younger siblings.
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

/* younger[i]: a sibling of node i follows. at[d] is true while, going backwards, a node of depth d has been met whose
 * parent has not. */
static void find_younger(const struct tree *t, bool *younger, bool *at)
{
	for (size_t i = t->n; i-- > 0;) {
		uint32_t depth = t->nodes[i]->depth;
		younger[i] = at[depth];
		at[depth] = true;
		at[depth + 1] = false;
	}
}

static void draw_branches(const bool *open, uint32_t depth, bool younger)
{
	for (uint32_t d = 1; d < depth && d < DRAWN_LEVELS; d++)
		fputs(open[d] ? "│  " : "   ", stdout);
	if (depth > DRAWN_LEVELS)
		printf("(level %" PRIu32 ") ", depth);
	if (depth > 0)
		fputs(younger ? "├─ " : "└─ ", stdout);
}

static void print_label(const Coppice__TreeNode *n)
{
	char text[160];

	if (n->parent == 0) {
		printf("model \"%s\", user %s", n->model, text_user(n->domain).s);
		if (n->salt != 0)
			printf(", salt %016" PRIx64, n->salt);
	} else {
		text_tokens(text, sizeof(text), n->head, n->n_head, n->n_tokens > n->n_head);
		fputs(text, stdout);
	}
	putchar('\n');
}

static void print_tree(const struct tree *t, const bool *younger, bool *open)
{
	printf("%8s %9s %7s %6s %9s\n", "node", "tokens", "pages", "users", "hits");
	for (size_t i = 0; i < t->n; i++) {
		const Coppice__TreeNode *n = t->nodes[i];
		printf("%8" PRIu64 " %9s %7s %6" PRIu32 " %9s  ", n->id, text_count(n->n_tokens).s,
		       text_count(n->n_pages).s, n->n_users, text_count(n->hits).s);
		draw_branches(open, n->depth, younger[i]);
		open[n->depth] = younger[i];
		print_label(n);
	}
}

static int tree_draw(struct ctl *ctl, const struct tree *t)
{
	uint32_t max_depth = 0;
	bool *levels, *younger, enough;

	for (size_t i = 0; i < t->n; i++)
		if (t->nodes[i]->depth > max_depth)
			max_depth = t->nodes[i]->depth;
	levels = calloc(2 * ((size_t)max_depth + 2), sizeof(*levels));
	younger = calloc(t->n + 1, sizeof(*younger));
	enough = levels && younger;
	if (enough) {
		find_younger(t, younger, levels);
		print_tree(t, younger, levels + max_depth + 2);
	}
	free(levels);
	free(younger);
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
