/*
 * move.h - pages on their way between tiers.
 *
 * A move refers to the places that it reads and writes, so that neither can become anybody else's,
 * and remembers which slice of which node it serves. When it has ended it counts only if that slice
 * is still the next one of its kind in that node, and the path before it is where it ought to be;
 * else its work is thrown away and, if still wanted, done again. So trees change as they please,
 * whatever is under way. A write knows its slice by its rows alone, so it counts only if the node
 * has dropped none since.
 *
 * Moves of one kind are served in the order in which they began.
 */
#ifndef COPPICE_KVSTORE_MOVE_H
#define COPPICE_KVSTORE_MOVE_H

#include "state.h"

enum move_state {
	MOVE_COPYING, /* by the mover */
	MOVE_READY, /* WRITE: the page is in host memory, the write has not begun */
	MOVE_IO,
	MOVE_ENDED
};

struct tier_move {
	TAILQ_ENTRY(tier_move) link;
	struct store_holding *holding; /* stays as long as the move */
	uint64_t node_id; /* DOWN: 0 */
	uint32_t pos; /* of the slice's first token */
	struct store_slice slice; /* rows of it; UP: with the page that is taken for it */
	uint32_t n_dropped; /* WRITE: of the node when it began */
	uint32_t host; /* place, referred to */
	uint32_t file; /* place, referred to; TIER_NONE: none */
	enum move_state state;
	uint64_t token; /* of the copy */
	int result;
	uint64_t checksum;
};

/* Each begins one move, if the way has room (move_has_room; DOWN always has). The node has a part.
 * -ENOMEM. */
bool move_has_room(const struct tiers *t, enum tier_way way);
/* A page, whose rows matter, into a place that it refers to from now on too. */
MUST_CHECK int move_down(struct store *s, struct store_holding *h, struct store_slice page,
			 uint32_t host, uint64_t *ret_token);
/* The node's slice of this index, in host memory, into page, which becomes the move's. */
MUST_CHECK int move_up(struct store *s, struct store_node *n, uint32_t index,
		       struct store_slice page);
/* The node's slice of this index from the file into a taken place of host memory, which becomes the
 * move's. */
MUST_CHECK int move_read(struct store *s, struct store_node *n, uint32_t index, uint32_t host);
/* A page in host memory, or on its way there. */
struct move_source {
	uint32_t host; /* place */
	uint64_t token; /* of the copy that fills it first; 0: none */
};
/* The node's slice of this index from there, which becomes the move's to refer to, into a taken
 * place of the file, which becomes the move's. */
MUST_CHECK int move_write(struct store *s, struct store_node *n, uint32_t index,
			  struct move_source from, uint32_t file);

/* Moves that have ended take effect. */
void moves_retire(struct store *s);
/* Of these, copies down: their places are filled. At any time, as no tree is concerned. */
void moves_retire_down(struct store *s);
/* Until none is left; none begins. Blocks. */
void moves_drain(struct store *s);

#endif
