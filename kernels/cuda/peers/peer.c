/*
 * peer.c - what devices share of each other, and the rounds of an exchange; see peer.h.
 *
 * A meeting is shared by the process's devices and goes with the last of them, as others' kernels
 * may reach into an inbox until then. Memory is made and kernels are loaded when they meet: neither
 * may happen while another device waits. Rows that do not fit an inbox go in rounds, in the same
 * order on all devices. Kernels that wait look at one word in host memory, by which all waiting
 * ends, and in which the device stays that was waited for in vain.
 */
#include "peer.h"

#include "nccl.h"
#include "kernels/cuda/attend/append.h"
#include "kernels/cuda/device/bring.h"
#include "proto/arith.h"
#include "proto/clock.h"
#include "kernels/say.h"

#include <assert.h>
#include <cuda_runtime_api.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* of an inbox, for each sender and half: some row of any shape */
#define SLOT_BYTES (UINT64_C(1) << 20)
#define GATHER_BYTES (UINT64_C(16) << 20) /* of what comes from all at once */
#define GRACE_MS 500u /* an exchange that waits in vain ends by itself, by then */
/* for what is under way in the end, at most, and once more when it was given up */
#define SETTLE_MS 1000u

static_assert(WORK_Q_HEADS_MAX * PEER_ENTRY_MOST <= SLOT_BYTES, "a row fits");

/* What all ends share; the last to go frees it, as others' kernels may reach into an inbox until
 * then. */
struct meeting {
	atomic_uint n_ends;
	uint32_t n; /* devices of this process */
	uint32_t first, n_all; /* their places among all */
	int devices[PEERS_MAX];
	char *inboxes[PEERS_MAX]; /* owned: slots, then the state, then who has come */
	bool crowded; /* some of them are one */
	uint32_t most_blocks;
	uint64_t slot_bytes;
	uint64_t timeout_ns;
	bool apart; /* not all reach each other's memory */
	struct nccl *nccl; /* owned; NULL: inboxes */
};

struct peer {
	struct meeting *meeting;
	struct queue *queue; /* the device's */
	uint32_t index; /* of the process's devices */
	uint32_t *late; /* owned, pinned */
	struct queue_buffer gathered; /* owned */
	uint64_t gathered_bytes; /* from others, ever */
	struct peer_rows *rows; /* owned, [n_room]: of the batch, [n_rows] */
	uint32_t n_rows, n_room;
};

static void meeting_unref(struct meeting *m)
{
	if (atomic_fetch_sub(&m->n_ends, 1) > 1)
		return;
	nccl_free(m->nccl);
	for (uint32_t i = 0; i < m->n; i++) {
		cudaSetDevice(m->devices[i]);
		cudaFree(m->inboxes[i]);
	}
	free(m);
}

void peer_free(struct peer *p)
{
	if (!p)
		return;
	cudaFreeHost(p->late);
	cudaFree(p->gathered.at);
	free(p->rows);
	meeting_unref(p->meeting);
	free(p);
}

/* ---- meeting -------------------------------------------------------------------------------- */

static bool is_crowded(const int *devices, uint32_t n)
{
	for (uint32_t i = 1; i < n; i++) {
		for (uint32_t j = 0; j < i; j++) {
			if (devices[i] == devices[j])
				return true;
		}
	}
	return false;
}

/*
 * Of an exchange of each. Members that are one device leave half of its multiprocessors to those
 * who still attend: attention needs a whole one, and would never have one while those wait for it.
 */
static uint32_t most_blocks(const struct meeting *m, uint32_t n_multiprocessors)
{
	uint32_t room =
		m->crowded ? n_multiprocessors / 2 / m->n : PEER_BLOCKS_AT_ONCE * n_multiprocessors;

	return room < PEER_BLOCKS ? room + !room : PEER_BLOCKS;
}

static int check_alike(struct meeting *m, char *error, size_t bytes)
{
	struct cudaDeviceProp first, prop;

	if (cudaGetDeviceProperties(&first, m->devices[0]) != cudaSuccess)
		return -EIO;
	m->most_blocks = most_blocks(m, (uint32_t)first.multiProcessorCount);
	for (uint32_t i = 1; i < m->n; i++) {
		if (cudaGetDeviceProperties(&prop, m->devices[i]) != cudaSuccess)
			return -EIO;
		if (prop.major == first.major && prop.minor == first.minor &&
		    prop.multiProcessorCount == first.multiProcessorCount)
			continue;
		say(error, bytes,
		    "device 0 is %s with %d multiprocessors, device %u is %s with %d: devices of a "
		    "group are alike",
		    first.name, first.multiProcessorCount, i, prop.name, prop.multiProcessorCount);
		return -EINVAL;
	}
	return 0;
}

/* The first pair of which one cannot reach the other's memory; false: all can, and may from now
 * on. */
static bool find_apart(const struct meeting *m, uint32_t *ret_from, uint32_t *ret_to)
{
	for (uint32_t i = 0; i < m->n * m->n; i++) {
		uint32_t from = i / m->n, to = i % m->n;
		int can = 1;
		cudaError_t r = cudaSuccess;

		if (m->devices[from] == m->devices[to])
			continue;
		cudaDeviceCanAccessPeer(&can, m->devices[from], m->devices[to]);
		cudaSetDevice(m->devices[from]);
		if (can)
			r = cudaDeviceEnablePeerAccess(m->devices[to], 0);
		cudaGetLastError();
		if (can && (r == cudaSuccess || r == cudaErrorPeerAccessAlreadyEnabled))
			continue;
		*ret_from = from;
		*ret_to = to;
		return true;
	}
	return false;
}

static uint64_t slots_bytes(const struct meeting *m)
{
	return 2 * m->n * m->slot_bytes;
}

static struct peer_state *find_state(const struct meeting *m, uint32_t rank)
{
	return (struct peer_state *)(void *)(m->inboxes[rank] + slots_bytes(m));
}

static uint32_t *find_come(const struct meeting *m, uint32_t rank)
{
	return (uint32_t *)(find_state(m, rank) + 1);
}

static int make_inboxes(struct meeting *m)
{
	m->slot_bytes = SLOT_BYTES;
	for (uint32_t i = 0; i < m->n; i++) {
		uint64_t bytes =
			slots_bytes(m) + sizeof(struct peer_state) + m->n * sizeof(uint32_t);

		cudaSetDevice(m->devices[i]);
		if (cudaMalloc((void **)&m->inboxes[i], bytes) != cudaSuccess ||
		    cudaMemset(m->inboxes[i], 0, bytes) != cudaSuccess ||
		    cudaDeviceSynchronize() != cudaSuccess) {
			cudaGetLastError();
			return -ENOMEM;
		}
	}
	return 0;
}

/* Where not all reach each other, or it is wanted so: by NCCL, with a notice. */
static int choose_way(struct meeting *m, const struct peer_config *config, char *notice,
		      char *error, size_t bytes)
{
	const struct nccl_ranks ranks = {.devices = m->devices,
					 .n = m->n,
					 .first = m->first,
					 .n_all = m->n_all,
					 .id = config->id,
					 .timeout_ms = config->meet_ms};
	const char *wanted = getenv("COPPICE_EXCHANGE");
	uint32_t from = 0, to = 0;
	bool apart = find_apart(m, &from, &to);
	char why[128] = "";
	int r;

	m->apart = apart;
	if (!apart && !config->id && !(wanted && !strcmp(wanted, "nccl")))
		return 0;
	r = nccl_new(&ranks, &m->nccl, why, sizeof(why));
	if (r && config->id)
		say(error, bytes, "with other processes: %s", why);
	else if (r && apart)
		say(error, bytes,
		    "device %u cannot reach the memory of device %u, and NCCL cannot do it "
		    "instead: %s",
		    from, to, why);
	else if (r)
		say(error, bytes, "COPPICE_EXCHANGE=nccl: %s", why);
	else if (apart)
		say(notice, bytes,
		    "device %u cannot reach the memory of device %u: they exchange by NCCL, which "
		    "takes tens of microseconds more a layer, and there are no device arenas",
		    from, to);
	return r;
}

/* Whatever a member may launch while another waits for it (see launch.cuh). Attention is readied by
 * each batch. */
static int load(void)
{
	int r = device_exchange_init();

	r = r ? r : device_signals_init();
	r = r ? r : device_append_init();
	return r ? r : device_bring_init();
}

static int make_ends(struct meeting *m, struct queue *const *queues, struct peer **ret_ends)
{
	for (uint32_t i = 0; i < m->n; i++) {
		struct peer *p = calloc(1, sizeof(*p));

		if (!p)
			return -ENOMEM;
		*p = (struct peer){.meeting = m, .queue = queues[i], .index = i};
		atomic_fetch_add(&m->n_ends, 1);
		ret_ends[i] = p;
		queues[i]->patience_ns = m->timeout_ns + (m->nccl ? 0 : GRACE_MS * NS_PER_MS);
		if (cudaHostAlloc((void **)&p->late, sizeof(*p->late), cudaHostAllocPortable) !=
		    cudaSuccess)
			return -ENOMEM;
		*p->late = 0;
		cudaSetDevice(m->devices[i]);
		if (load() != cudaSuccess)
			return -EIO;
	}
	return 0;
}

static int choose_and_make(struct meeting *m, const struct peer_config *config, char *notice,
			   char *error, size_t bytes)
{
	int r = check_alike(m, error, bytes);

	if (r == 0)
		r = choose_way(m, config, notice, error, bytes);
	if (r == 0 && !m->nccl)
		r = make_inboxes(m);
	return r;
}

int peer_meet(const struct peer_config *config, struct peer **ret_ends, char *notice, char *error,
	      size_t bytes)
{
	struct meeting *m = calloc(1, sizeof(*m));
	int r;

	if (!m)
		return -ENOMEM;
	m->n = config->n;
	m->first = config->first;
	m->n_all = config->n_all;
	m->n_ends = 1; /* this function's */
	m->timeout_ns = config->timeout_ms * NS_PER_MS;
	memcpy(m->devices, config->devices, m->n * sizeof(*m->devices));
	m->crowded = is_crowded(m->devices, m->n);
	r = choose_and_make(m, config, notice, error, bytes);
	if (r == 0)
		r = make_ends(m, config->queues, ret_ends);
	if (r == -EIO && !error[0])
		say(error, bytes, "a device does not answer: %s",
		    cudaGetErrorString(cudaGetLastError()));
	if (r == -ENOMEM)
		say(error, bytes, "no memory for what %u devices exchange", m->n_all);
	if (r == 0 && m->apart)
		r = 1;
	meeting_unref(m);
	return r;
}

/* Kernels look at that word while they wait; whom they have waited for in vain stays there. */
static void end_waits(uint32_t *late)
{
	uint32_t none = 0;

	__atomic_compare_exchange_n(late, &none, PEER_GIVEN_UP, false, __ATOMIC_RELAXED,
				    __ATOMIC_RELAXED);
}

void peer_give_up(struct peer *p)
{
	if (!p)
		return;
	if (p->meeting->nccl)
		nccl_abort(p->meeting->nccl, p->index);
	else
		end_waits(p->late);
}

bool peer_await_end(struct peer *p)
{
	if (!p || queue_settles(p->queue, SETTLE_MS * NS_PER_MS))
		return true;
	peer_give_up(p);
	return queue_settles(p->queue, SETTLE_MS * NS_PER_MS);
}

/* ---- exchange ------------------------------------------------------------------------------- */

static struct device_exchange describe(const struct peer *p, const struct peer_rows *rows,
				       uint32_t first, uint32_t n_rows)
{
	const struct meeting *m = p->meeting;
	uint64_t entry = (uint64_t)first * rows->n_heads;
	struct device_exchange x = {
		.o = (const void *)(uintptr_t)(rows->o + entry * rows->head_dim * 2),
		.lse = (const float *)(uintptr_t)rows->lse + entry,
		.dests = (const struct device_row *)(uintptr_t)rows->dests + first,
		.late = p->late,
		.timeout_ns = m->timeout_ns,
		.slot_bytes = m->slot_bytes,
		.rank = m->first + p->index,
		.n_ranks = m->n_all,
		.n_rows = n_rows,
		.n_heads = rows->n_heads,
		.head_dim = rows->head_dim,
		.bf16 = rows->bf16,
		.most_blocks = m->most_blocks,
		.crowded = m->crowded,
	};

	if (m->nccl)
		return x;
	for (uint32_t i = 0; i < m->n; i++) {
		x.inboxes[i] = m->inboxes[i];
		x.come[i] = find_come(m, i);
	}
	x.state = find_state(m, p->index);
	return x;
}

/* All rows of all devices come to each. */
static int gather(struct peer *p, struct device_exchange *x)
{
	uint64_t entries = (uint64_t)x->n_rows * x->n_heads, o_bytes = entries * x->head_dim * 2;
	uint64_t lse_bytes = entries * sizeof(float);
	struct nccl *nccl = p->meeting->nccl;
	struct nccl_piece o = {.from = x->o, .bytes = o_bytes};
	struct nccl_piece lse = {.from = x->lse, .bytes = lse_bytes};
	int r = queue_grow(p->queue, &p->gathered, x->n_ranks * (o_bytes + lse_bytes));

	if (r)
		return r;
	o.to = p->gathered.at;
	lse.to = (char *)o.to + x->n_ranks * o_bytes;
	x->gathered = o.to;
	x->gathered_lse = lse.to;
	r = nccl_gather(nccl, p->index, &o, p->queue->stream);
	if (r == 0)
		r = nccl_gather(nccl, p->index, &lse, p->queue->stream);
	if (r == 0)
		p->gathered_bytes += (x->n_ranks - 1) * (o_bytes + lse_bytes);
	return r;
}

static uint32_t round_rows(const struct peer *p, const struct peer_rows *rows)
{
	uint64_t row_bytes = (uint64_t)rows->n_heads * peer_entry_bytes(rows->head_dim);
	uint64_t bytes =
		p->meeting->nccl ? GATHER_BYTES / p->meeting->n_all : p->meeting->slot_bytes;
	uint64_t n = bytes / row_bytes ? bytes / row_bytes : 1;

	return (uint32_t)min_u64(n, rows->n_rows);
}

static int exchange_rows(struct peer *p, const struct peer_rows *rows)
{
	uint32_t step = round_rows(p, rows);
	int r = 0;

	for (uint32_t first = 0; first < rows->n_rows && r == 0; first += step) {
		struct device_exchange x =
			describe(p, rows, first, min_u32(rows->n_rows - first, step));

		if (p->meeting->nccl)
			r = gather(p, &x);
		if (r == 0)
			r = queue_expect(p->queue, device_exchange(&x, p->queue->stream));
	}
	return r;
}

int peer_add(struct peer *p, const struct peer_rows *rows)
{
	if (p->n_rows == p->n_room) {
		uint32_t n = 2 * p->n_room + 8;
		struct peer_rows *more = realloc(p->rows, n * sizeof(*more));

		if (!more)
			return -ENOMEM;
		p->rows = more;
		p->n_room = n;
	}
	p->rows[p->n_rows++] = *rows;
	return 0;
}

void peer_forget(struct peer *p)
{
	if (p)
		p->n_rows = 0;
}

int peer_conclude(struct peer *p)
{
	int r = 0;

	for (uint32_t i = 0; i < p->n_rows && r == 0; i++)
		r = exchange_rows(p, &p->rows[i]);
	p->n_rows = 0;
	return r;
}

bool peer_is_late(const struct peer *p, uint32_t *ret_rank)
{
	uint32_t late = p ? *(volatile const uint32_t *)p->late : 0;

	*ret_rank = late == PEER_GIVEN_UP ? late : late - 1;
	return late > 0;
}

const struct peer_state *peer_state_of(const struct peer *p)
{
	return p && !p->meeting->nccl ? find_state(p->meeting, p->index) : NULL;
}

uint64_t peer_gathered_bytes(const struct peer *p)
{
	return p ? p->gathered_bytes : 0;
}

void peer_describe(const struct peer *p, const struct peer_rows *rows, struct device_exchange *ret)
{
	*ret = describe(p, rows, 0, round_rows(p, rows));
	if (p->meeting->nccl)
		ret->n_rows = 0;
}
