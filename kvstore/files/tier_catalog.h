/*
 * tier_catalog.h - what lies where in a tier file: models and images, in memory and in the file's
 * journal.
 *
 * An image is a page in the file with what is needed to find it again: model, domain, salt, token
 * ids, the image before it on its path, and the checksum of its bytes. An image is kept after those
 * before it, and goes before they go; so whatever part of the journal is there, what it says is a
 * set of whole paths, but for those whose end it has lost.
 *
 * A model without images is no more: its record goes when the journal is written anew, and its
 * number is given to the next. Records of images are charged to their domain, and those of models
 * to the domain whose image came first.
 *
 * A place of the room is taken first, then its page is written, then its image kept; with the
 * place's last reference the image goes. The journal may lag behind the pages (a kill, a loss of
 * power): then a checksum does not fit.
 */
#ifndef COPPICE_KVSTORE_TIER_CATALOG_H
#define COPPICE_KVSTORE_TIER_CATALOG_H

#include "tier_head.h"
#include "tier_journal.h"
#include "tier_room.h"
#include "tier_shares.h"

/* What a file holds, and what of it was lost. */
struct tier_report {
	uint32_t version, unit_bytes;
	uint64_t file_bytes, n_units;
	uint32_t n_models;
	uint64_t n_records, n_images, n_tokens;
	bool journal_torn; /* the journal ended in something that is no record */
	uint64_t n_lost; /* images that the journal names, but not all of the path before them */
	uint64_t n_bad; /* images whose bytes are not what was written (tier_verify alone) */
};

struct tier_model {
	uint64_t fingerprint[2];
	uint64_t page_bytes;
	uint32_t page_tokens;
	uint32_t number; /* in the file, from 1 */
	char name[128];
};

struct tier_image {
	uint64_t id; /* never used again */
	uint64_t before_id; /* of the image with the token at pos - 1; 0: pos is 0 */
	uint64_t domain, salt;
	uint64_t checksum; /* of the page */
	uint32_t place;
	uint32_t before; /* its place; TIER_NONE: pos is 0 */
	uint32_t model; /* number */
	uint32_t pos; /* of the first token */
	uint32_t n_tokens;
	uint32_t pad;
	uint32_t tokens[];
};

/* A model lasts as long as it has images; then its number is the next new model's. */
struct tier_model_entry {
	struct tier_model model; /* page_tokens is 0: never any */
	uint64_t n_images;
	bool logged; /* the journal has its record */
	uint64_t payer; /* the domain of its first image, which is charged for the record */
};

struct tier_catalog {
	struct tier_journal journal;
	struct tier_room room;
	struct tier_model_entry *models; /* owned: [number - 1] */
	struct tier_image **images; /* owned, each too: [place]; NULL: none */
	uint32_t n_models; /* of the table */
	uint32_t n_kept_models; /* that have images */
	struct tier_shares shares; /* who is charged how much of the journal */
	uint32_t unit_bytes;
	uint64_t last_id;
	/* something is gone that the journal still has: it is written anew before anything new */
	bool behind;
	struct tier_report report; /* as found at open */
};

/* fresh: an empty journal is made, else the journal is replayed. fd is borrowed. 0; -EINVAL: the
 * journal's areas are damaged; -ENOMEM, -errno. Blocks. */
MUST_CHECK int tier_catalog_open(struct tier_catalog *c, int fd, const struct tier_head *head,
				 bool fresh);
void tier_catalog_close(struct tier_catalog *c); /* one that is all zero is fine */

/* The number of a model (its own is ignored), looked for first where it was before; 0: nobody
 * knows. It is the model's while an image has it; one without images has it until the next call.
 * -ENOMEM; -ENOSPC: there are too many. */
MUST_CHECK int tier_catalog_model(struct tier_catalog *c, const struct tier_model *model,
				  uint32_t *inout_number);
/* Puts an image down at a taken place, after its model if that is new; it is copied, id and
 * before_id are ignored. -ENOSPC: no room in the journal, -ENOMEM; -EIO: the journal cannot be
 * written any more. */
MUST_CHECK int tier_catalog_keep(struct tier_catalog *c, const struct tier_image *image);
/* Bytes that so many images of so many tokens may take in the journal, each of a new model. */
uint64_t tier_catalog_bytes(uint64_t n_images, uint32_t n_tokens);
/* Bytes that the journal has for records that are needed. */
uint64_t tier_catalog_room(const struct tier_catalog *c);
/* One reference to a place less. Returns whether it is free now, its image gone. */
bool tier_catalog_unref(struct tier_catalog *c, uint32_t place);
/* Is the image before it there, and does it reach to where this one begins? */
bool tier_catalog_follows(const struct tier_catalog *c, const struct tier_image *image);
/* Of a place with an image only the tokens before pos are referred to any more. */
void tier_catalog_shorten(struct tier_catalog *c, uint32_t place, uint32_t pos);
/* All images, those before others on a path first; the array is the caller's to free. -ENOMEM. */
MUST_CHECK int tier_catalog_images(const struct tier_catalog *c, struct tier_image ***ret,
				   uint64_t *ret_n);

#endif
