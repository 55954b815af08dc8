/*
 * tree.c - the radix tree, drawn.
 *
 *	node tokens pages where users hits  run
 *	   1      0     0           8    8  model "m", user root
 *	   3    512    16           8    7  └─ "In the b"...
 *	   4     60     2           1    0     ├─ "And it c"...
 *	   5     48     2 1h 1f     0    0     └─ "Woe unto"...
 *
 * Where: how many of the pages are not in the pool but in host memory (h), or in the file alone
 * (f). A line is a run of tokens; its number is that of its last node, which a pin keeps with all
 * above.
 */
#include "tree.h"

#include "json.h"
#include "listing.h"
#include "table.h"
#include "tree_lines.h"
#include "proto/arith.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DRAWN_LEVELS 24u
#define SHOWN_IDS 24u

struct tree {
	struct listing nodes; /* owned */
	struct tree_line *lines; /* owned */
	size_t n_lines;
};

static void tree_done(struct tree *t)
{
	listing_done(&t->nodes);
	free(t->lines);
}

static Coppice__TreeNode *node_at(const struct tree *t, size_t i)
{
	return (Coppice__TreeNode *)t->nodes.items[i];
}

static void drop_other_models(struct listing *nodes, const char *model)
{
	size_t n = 0;

	for (size_t i = 0; i < nodes->n; i++) {
		if (strcmp(((Coppice__TreeNode *)nodes->items[i])->model, model) == 0)
			nodes->items[n++] = nodes->items[i];
		else
			protobuf_c_message_free_unpacked(nodes->items[i], NULL);
	}
	nodes->n = n;
}

/* What has no nodes may be open all the same; else it is refused in evict's words. */
static int check_open(struct ctl *ctl, const char *name)
{
	LISTING models = {0};
	int r = listing_read(&ctl->call, "models", &models);

	if (r < 0)
		return r;
	for (size_t i = 0; i < models.n; i++)
		if (strcmp(((Coppice__Model *)models.items[i])->name, name) == 0)
			return 0;
	return call_fail(&ctl->call, -ENOENT, "model", "No model is called \"%s\".", name);
}

static int choose_model(struct ctl *ctl, struct listing *nodes)
{
	const char *name = ctl->options.model;

	if (!name)
		return 0;
	drop_other_models(nodes, name);
	return nodes->n > 0 ? 0 : check_open(ctl, name);
}

static int tree_read(struct ctl *ctl, struct tree *t)
{
	const struct options *o = &ctl->options;
	uint32_t depth =
		o->given & OPTIONS_DEPTH && o->depth < UINT32_MAX ? (uint32_t)o->depth : UINT32_MAX;
	int r = listing_read(&ctl->call, "tree", &t->nodes);

	if (r == 0)
		r = choose_model(ctl, &t->nodes);
	if (r < 0)
		return r;
	r = tree_lines_new((Coppice__TreeNode **)t->nodes.items, t->nodes.n, depth, &t->lines,
			   &t->n_lines);
	return r < 0 ? call_fail_memory(&ctl->call) : 0;
}

/* ---- text ----------------------------------------------------------------------------------- */

static const struct table_column columns[] = {
	{.title = "node"},
	{.title = "tokens"},
	{.title = "pages"},
	{.title = "where", .hides = true},
	{.title = "users"},
	{.title = "hits"},
	{.title = " run", .is_text = true},
};
#define N_COLUMNS (sizeof(columns) / sizeof(*columns))

/* "3h 12f"; empty: all of the run is in the pool. */
static struct text where_text(uint64_t n_host, uint64_t n_file)
{
	struct text t = {""};
	int used = 0;

	if (n_host)
		used = snprintf(t.s, sizeof(t.s), "%" PRIu64 "h", n_host);
	if (n_file)
		snprintf(t.s + used, sizeof(t.s) - (size_t)used, "%s%" PRIu64 "f", used ? " " : "",
			 n_file);
	return t;
}

static int add_row(const struct tree *t, const struct tree_line *line, struct table *table)
{
	const Coppice__TreeNode *first = node_at(t, line->first);
	const Coppice__TreeNode *last = node_at(t, line->first + line->n - 1);
	uint64_t n_tokens = 0, n_pages = 0, n_host = 0, n_file = 0;

	for (size_t i = line->first; i < line->first + line->n; i++) {
		const Coppice__TreeNode *node = node_at(t, i);

		n_tokens += node->n_tokens;
		n_pages += node->n_pages;
		n_host += node->n_pages_host;
		n_file += node->n_pages_file;
	}
	return table_add(table,
			 (struct text[N_COLUMNS]){text_number(last->id), text_count(n_tokens),
						  text_count(n_pages), where_text(n_host, n_file),
						  text_count(first->n_users),
						  text_count(first->hits)});
}

/* What leads to a line: for each level above, whether it goes on further down. */
static void draw_branches(const bool *open, const struct tree_line *line)
{
	for (uint32_t level = 1; level < line->level && level <= DRAWN_LEVELS; level++)
		fputs(open[level] ? "│  " : "   ", stdout);
	if (line->level > DRAWN_LEVELS)
		printf("(level %" PRIu32 ") ", line->level);
	if (line->level > 0)
		fputs(line->younger ? "├─ " : "└─ ", stdout);
}

static void print_root(const Coppice__TreeNode *root)
{
	char name[TEXT_QUOTED_BYTES];

	printf("model \"%s\", user %s", text_quoted(name, sizeof(name), root->model),
	       text_user(root->domain).s);
	if (root->salt != 0)
		printf(", salt %016" PRIx64, root->salt);
}

/* The first ids of a run: a node tells a few of its own, so the next one's turn comes where it told
 * all. False: there are more. */
static bool collect_ids(const struct tree *t, const struct tree_line *line, uint32_t *ids,
			size_t *ret_n)
{
	bool all = true;
	size_t n = 0;

	for (size_t i = line->first; all && i < line->first + line->n; i++) {
		const Coppice__TreeNode *node = node_at(t, i);
		size_t taken = min_u64(node->n_head, SHOWN_IDS - n);

		memcpy(ids + n, node->head, taken * sizeof(*ids));
		n += taken;
		all = taken == node->n_tokens;
	}
	*ret_n = n;
	return all;
}

static void print_ids(const struct tree *t, const struct tree_line *line)
{
	struct text_run run = {.is_text = line->is_text};
	uint32_t ids[SHOWN_IDS];
	char text[TEXT_RUN_BYTES];

	run.ids = ids;
	run.goes_on = !collect_ids(t, line, ids, &run.n);
	fputs(text_tokens(text, sizeof(text), &run), stdout);
}

static void print_line(const struct tree *t, const struct tree_line *line, const bool *open)
{
	const Coppice__TreeNode *first = node_at(t, line->first);

	putchar(' ');
	draw_branches(open, line);
	if (first->parent == 0)
		print_root(first);
	else
		print_ids(t, line);
	if (line->n_below > 0)
		printf("  (and %zu below)", line->n_below);
	putchar('\n');
}

static void print_lines(const struct tree *t, const struct table *table)
{
	bool open[DRAWN_LEVELS + 1] = {0};

	table_print_titles(table);
	putchar('\n');
	for (size_t i = 0; i < t->n_lines; i++) {
		table_print_row(table, i);
		print_line(t, &t->lines[i], open);
		if (t->lines[i].level <= DRAWN_LEVELS)
			open[t->lines[i].level] = t->lines[i].younger;
	}
}

static int tree_draw(struct ctl *ctl, const struct tree *t)
{
	TABLE table = table_new(columns, N_COLUMNS);

	for (size_t i = 0; i < t->n_lines; i++)
		if (add_row(t, &t->lines[i], &table) < 0)
			return call_fail_memory(&ctl->call);
	if (t->n_lines > 0)
		print_lines(t, &table);
	else if (ctl->options.model)
		printf("no nodes of a model \"%s\"\n", ctl->options.model);
	else
		puts("no nodes");
	return 0;
}

/* ---- JSON ----------------------------------------------------------------------------------- */

static int tree_json(struct ctl *ctl, const struct tree *t)
{
	json_t *array = json_array();

	for (size_t i = 0; i < t->n_lines; i++) {
		ProtobufCMessage **nodes = t->nodes.items + t->lines[i].first;

		for (size_t k = 0; k < t->lines[i].n; k++)
			json_array_append_new(array, json_message(nodes[k]));
	}
	return json_print(&ctl->call, json_pack("{s:o}", "nodes", array));
}

int tree_run(struct ctl *ctl)
{
	struct tree tree = {0};
	int r = tree_read(ctl, &tree);

	if (r == 0)
		r = ctl->options.json ? tree_json(ctl, &tree) : tree_draw(ctl, &tree);
	tree_done(&tree);
	return r;
}
