/*
 * tree_lines.c - three looks at nodes that are sorted depth first: which are chained to the one
 * before, which have a younger sibling, how deep the lines are.
 *
 * The parent of an only child is the node before it, so a chain is a run of neighbours in the list.
 */
#include "tree_lines.h"

#include "text.h"
#include "proto/arith.h"
#include "proto/cleanup.h"

#include <errno.h>
#include <stdlib.h>

/* The chain that node i begins, and node i alone for now: what follows is not looked at yet. */
static struct tree_line line_begin(Coppice__TreeNode *const *nodes, size_t i)
{
	return (struct tree_line){.first = i, .n = 1, .depth = nodes[i]->depth};
}

/* Going backwards, seen[d] is true while a node of depth d has been met whose parent has not.
 * younger[i]: a sibling follows node i. */
static void find_younger(Coppice__TreeNode *const *nodes, size_t n, bool *younger, bool *seen)
{
	for (size_t i = n; i-- > 0;) {
		uint32_t depth = nodes[i]->depth;

		younger[i] = seen[depth];
		seen[depth] = true;
		seen[depth + 1] = false;
	}
}

/* A model's own line holds no tokens: nothing is chained to it. */
static bool is_chained(Coppice__TreeNode *const *nodes, size_t i, const bool *younger)
{
	return i > 0 && nodes[i]->depth > 1 && nodes[i - 1]->depth < nodes[i]->depth && !younger[i];
}

static size_t find_chains(Coppice__TreeNode *const *nodes, size_t n, const bool *younger,
			  struct tree_line *lines)
{
	size_t n_lines = 0;

	for (size_t i = 0; i < n; i++) {
		if (is_chained(nodes, i, younger)) {
			lines[n_lines - 1].n++;
			lines[n_lines - 1].depth = nodes[i]->depth;
			continue;
		}
		lines[n_lines] = line_begin(nodes, i);
		lines[n_lines++].younger = younger[i];
	}
	return n_lines;
}

/* level[d] is that of the line above with a node of depth d. */
static void find_levels(Coppice__TreeNode *const *nodes, struct tree_line *lines, size_t n,
			uint32_t *level)
{
	for (size_t i = 0; i < n; i++) {
		struct tree_line *line = &lines[i];
		uint32_t depth = nodes[line->first]->depth;

		line->level = depth == 0 ? 0 : level[depth - 1] + 1;
		level[line->depth] = line->level;
	}
}

static bool chain_is_text(Coppice__TreeNode *const *nodes, const struct tree_line *line)
{
	for (size_t i = line->first; i < line->first + line->n; i++)
		if (!text_is_text(nodes[i]->head, nodes[i]->n_head))
			return false;
	return true;
}

/* A few ids of a large vocabulary look like text by chance; those of a whole tree do not. */
static void find_text(Coppice__TreeNode *const *nodes, struct tree_line *lines, size_t n)
{
	size_t end;

	for (size_t i = 0; i < n; i = end) {
		bool is_text = chain_is_text(nodes, &lines[i]);

		for (end = i + 1; end < n && lines[end].level > 0; end++)
			is_text = is_text && chain_is_text(nodes, &lines[end]);
		for (size_t j = i; j < end; j++)
			lines[j].is_text = is_text;
	}
}

/* The line that was kept last is above those that were left out since. */
static size_t leave_out(struct tree_line *lines, size_t n, uint32_t max_level)
{
	size_t n_kept = 0;

	for (size_t i = 0; i < n; i++) {
		if (lines[i].level <= max_level)
			lines[n_kept++] = lines[i];
		else
			lines[n_kept - 1].n_below++;
	}
	return n_kept;
}

static uint32_t max_depth(Coppice__TreeNode *const *nodes, size_t n)
{
	uint32_t max = 0;

	for (size_t i = 0; i < n; i++)
		max = max_u32(nodes[i]->depth, max);
	return max;
}

int tree_lines_new(Coppice__TreeNode *const *nodes, size_t n, uint32_t max_level,
		   struct tree_line **ret, size_t *ret_n)
{
	size_t n_depths = (size_t)max_depth(nodes, n) + 2, n_lines;
	CLEANUP_FREE struct tree_line *lines = calloc(n + 1, sizeof(*lines));
	CLEANUP_FREE uint32_t *level = calloc(n_depths, sizeof(*level));
	CLEANUP_FREE bool *younger = calloc(n + 1, sizeof(*younger));
	CLEANUP_FREE bool *seen = calloc(n_depths, sizeof(*seen));

	if (!lines || !level || !younger || !seen)
		return -ENOMEM;
	find_younger(nodes, n, younger, seen);
	n_lines = find_chains(nodes, n, younger, lines);
	find_levels(nodes, lines, n_lines, level);
	find_text(nodes, lines, n_lines);
	*ret_n = leave_out(lines, n_lines, max_level);
	*ret = lines;
	lines = NULL;
	return 0;
}
