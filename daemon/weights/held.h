/*
 * held.h - what is held: a model's weights, and the table of all of them. The ground on which
 * weights.c and its parts (content, load_slots, share) stand; it calls none of them.
 */
#ifndef COPPICED_WEIGHTS_HELD_H
#define COPPICED_WEIGHTS_HELD_H

#include "daemon/backend/ledger.h"
#include "kernels/program/backend_program.h"
#include "wire.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/queue.h>
#include <sys/types.h>

#define WEIGHTS_DIGEST_BYTES 16u
#define WEIGHTS_WHY_BYTES 240u

enum weights_state { WEIGHTS_LOADING, WEIGHTS_READY, WEIGHTS_FAILED };
enum weights_overdue { WEIGHTS_IN_TIME, WEIGHTS_TOO_SLOW, WEIGHTS_TOO_LONG };
enum weights_lending { WEIGHTS_HOME, WEIGHTS_MOVING, WEIGHTS_LENT }; /* lend.h */

struct weights_digest {
	uint8_t bytes[WEIGHTS_DIGEST_BYTES]; /* xxh3-128, canonical */
};

/* What they are once they are READY; never changes then. Tensors by name; those of types that no
 * program takes are left out. */
struct weights_content {
	struct program_tensor *tensors; /* owned, names too, [n_tensors] */
	struct weights_digest *digests; /* owned, [n_tensors]: of name, type, shape and bytes */
	uint32_t n_tensors;
	struct weights_digest digest; /* of all of them */
	struct backend_weights *memory; /* owned */
	uint64_t bytes; /* of memory, as the backend takes it */
	uint64_t names_bytes; /* of heap, for all tensors of the files */
};

struct weights {
	TAILQ_ENTRY(weights) link; /* of the table; but for those that others stand for */
	struct weights_table *home; /* borrowed */
	uid_t domain;
	uint64_t number; /* among all ever, for who lists them */
	_Atomic enum weights_state state; /* release: all else holds by then */
	_Atomic uint64_t bytes_done, bytes_all; /* of the files; 0: not known yet */
	_Atomic bool cancelled; /* nobody wants them any more, or another their slot */
	_Atomic enum weights_overdue overdue; /* why another has their slot */
	int error; /* FAILED: -errno */
	char why[WEIGHTS_WHY_BYTES];
	struct weights_content content;

	/* the table's lock is of what follows */
	uint32_t n_refs;
	uint64_t used; /* when the last reference went, counted */
	struct weights *same; /* reference: these stand for it; NULL: itself */
	struct loader_file *files; /* owned: what they were loaded from */
	uint32_t n_files;
	uint64_t scratch_bytes; /* that programs of theirs take beside them */
	uint64_t begin_ns; /* of their load */
	bool loads; /* a loader reads them, or its end is awaited */
	bool fresh; /* a file had changed just before: it may again without its times telling */
	int loader_fd; /* owned: to cancel what waits for it; -1 */
	enum weights_lending lending;
	struct backend_lent lent; /* once they are LENT */
	int lend_error; /* why they could not be, for who asks next; 0: nothing to tell */
};
TAILQ_HEAD(weights_list, weights);

/* Of all, and of a user. Where the first is more, its last part is for users who have little. */
struct weights_max {
	uint64_t bytes, domain_bytes;
};

struct weights_config {
	const struct backend_ops *ops;
	struct backend *backend; /* borrowed */
	struct ledger *ledger; /* borrowed: what they have together with KV; NULL: no account */
	const char *loader; /* path of coppiced */
	struct weights_max memory, names;
	/* loaders at a time, those that hang among them; root and the daemon's user have as many as
	 * any beside all */
	uint32_t max_loads, domain_max_loads;
	uint32_t stall_ms; /* a loader of which nothing comes for so long is ended */
	/* Overdue is a load of less a second, beside a stall in all, or that takes so long: it ends
	 * where another finds no slot. 0: any rate, any time. */
	uint64_t least_rate;
	uint32_t max_load_s;
};

struct hanging;

struct weights_table {
	struct weights_config config;
	pthread_mutex_t lock;
	pthread_cond_t over; /* a load is */
	struct weights_list all; /* in order of number */
	SLIST_HEAD(, hanging) hanging; /* loaders that were killed and are still there */
	uint64_t last_number, n_uses;
	uint64_t refused_ns; /* when one who loads nothing found no slot; 0: he has one */
	uint32_t n_loads; /* threads that load, or lend */
	atomic_bool ending; /* nobody is to wait for room */
};

static inline enum weights_state weights_state(const struct weights *weights)
{
	return atomic_load_explicit(&weights->state, memory_order_acquire);
}

#endif
