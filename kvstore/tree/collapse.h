/*
 * collapse.h - a node and its only child become one, where nobody needs the border between them.
 *
 *      [ a b c d ]          [ a b c d e f ]        chunks of a prompt; what a split left that one
 *           |         ==>      |        |          token stood behind; what is left when one of two
 *        [ e f ]             [ g ]    [ h ]        ways was evicted
 *        |     |
 *      [ g ] [ h ]
 *
 * Left alone are
 *  - roots, and nodes with more children than one;
 *  - a node with users of its own: a sequence or a pin whose path ends there, or a want;
 *  - a child in whose middle a sequence stands: it is about to be split there;
 *  - nodes with copies under way, or waiting to be written to the file;
 *  - a border inside a page of which the two parts lie apart, or one of them is in the
 *    file and the other not: slices meet there that cannot become one;
 *  - what would be too much work at once: many children or users to tell, or a very long run.
 */
#ifndef COPPICE_KVSTORE_COLLAPSE_H
#define COPPICE_KVSTORE_COLLAPSE_H

#include "core.h"

/* Looks at a few of the borders that were noted. Nodes may go: to be called where nobody holds
 * pointers to them. Returns whether more are to be looked at. */
bool collapse_look(struct store *s);

/* The same where it is mostly none. */
static inline bool collapse_some(struct store *s)
{
	return s->borders.n > 0 && collapse_look(s);
}

#endif
