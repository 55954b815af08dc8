/*
 * nccl.c - meeting, gathering and parting by NCCL; see nccl.h.
 *
 * NCCL waits for other processes without a limit. So what may wait, meeting and a communicator's
 * end, runs on a thread that nobody joins. It and its waiter each have a reference; who gives up
 * leaves the thread to free what it has in the end. Of NCCL's interface only what is needed is
 * declared here: it has been the same since NCCL 2.
 */
#include "nccl.h"

#include "peer.h"
#include "proto/clock.h"
#include "kernels/thread.h"
#include "kernels/say.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NCCL_INT8 0
#define END_MS 2000u
#define TRY_BYTES 64u /* that devices gather as they meet */
#define PAUSE_NS 1000000L

typedef struct ncclComm *nccl_comm;

struct unique {
	char bytes[NCCL_ID_BYTES];
};

struct nccl {
	void *library; /* owned */
	uint32_t n;
	nccl_comm comms[PEERS_MAX]; /* owned; NULL: given up */
	int (*get_id)(struct unique *);
	int (*init_rank)(nccl_comm *, int, struct unique, int);
	int (*destroy)(nccl_comm);
	int (*abort)(nccl_comm);
	int (*group_start)(void);
	int (*group_end)(void);
	int (*all_gather)(const void *, void *, size_t, int, nccl_comm, struct CUstream_st *);
	const char *(*error)(int);
};

static int find_all(struct nccl *n)
{
	const struct {
		void *to;
		const char *name;
	} symbols[] = {
		{&n->get_id, "ncclGetUniqueId"},     {&n->init_rank, "ncclCommInitRank"},
		{&n->destroy, "ncclCommDestroy"},    {&n->abort, "ncclCommAbort"},
		{&n->group_start, "ncclGroupStart"}, {&n->group_end, "ncclGroupEnd"},
		{&n->all_gather, "ncclAllGather"},   {&n->error, "ncclGetErrorString"},
	};

	for (uint32_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
		void *at = dlsym(n->library, symbols[i].name);

		if (!at)
			return -ENOENT;
		memcpy(symbols[i].to, &at, sizeof(at));
	}
	return 0;
}

static int load(struct nccl **ret, char *error, size_t bytes)
{
	struct nccl *l = calloc(1, sizeof(*l));
	Dl_info own;

	if (!l)
		return -ENOMEM;
	/* Nothing here is large enough for multicast, which not every host may use. */
	setenv("NCCL_NVLS_ENABLE", "0", 0);
	/* it has threads of its own that may outlive what it refused, and so may those that end
	 * communicators */
	l->library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	if (dladdr((void *)(uintptr_t)load, &own) != 0)
		dlopen(own.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
	if (!l->library || find_all(l) != 0) {
		say(error, bytes, "libnccl.so.2 is not installed, or lacks what is needed");
		nccl_free(l);
		return -ENOENT;
	}
	*ret = l;
	return 0;
}

static int refused(const struct nccl *l, int r, char *error, size_t bytes)
{
	if (r == 0)
		return 0;
	say(error, bytes, "NCCL: %s", l->error(r));
	return -EIO;
}

int nccl_id(uint8_t *ret, char *error, size_t bytes)
{
	struct nccl *l;
	struct unique id;
	int r = load(&l, error, bytes);

	if (r)
		return r;
	r = refused(l, l->get_id(&id), error, bytes);
	nccl_free(l);
	if (r == 0)
		memcpy(ret, id.bytes, sizeof(id.bytes));
	return r;
}

/* It would wait for itself. */
static bool has_twice(const struct nccl_ranks *ranks)
{
	for (uint32_t i = 1; i < ranks->n; i++) {
		for (uint32_t j = 0; j < i; j++) {
			if (ranks->devices[i] == ranks->devices[j])
				return true;
		}
	}
	return false;
}

/* ---- meeting: on a thread, as NCCL waits for who has not come, and knows no limit ----------- */

enum { UNDER_WAY, OVER, GIVEN_UP };

struct trial {
	char *at; /* owned */
	cudaStream_t stream; /* owned */
};

/* What is lent to the thread. One that never comes back keeps it, and what it owns, for as long as
 * the process lives. */
struct joining {
	struct nccl *nccl; /* owned; who asked takes it, if all went well and in time */
	int devices[PEERS_MAX];
	uint32_t n, first, n_all;
	struct unique id;
	bool has_id;
	struct trial trials[PEERS_MAX]; /* owned, [n] */
	/* changed once, by whoever is first: the thread, or who no longer waits for it */
	atomic_int state;
	atomic_uint n_refs; /* theirs */
	int r; /* as nccl_new; set, and error, before it is OVER */
	char error[160];
};

static int init_ranks(struct joining *j)
{
	struct nccl *l = j->nccl;
	int r = j->has_id ? 0 : l->get_id(&j->id), end;

	r = r ? r : l->group_start();
	if (r)
		return r;
	for (uint32_t i = 0; i < j->n && r == 0; i++) {
		cudaSetDevice(j->devices[i]);
		r = l->init_rank(&l->comms[i], (int)j->n_all, j->id, (int)(j->first + i));
	}
	end = l->group_end();
	return r ? r : end;
}

static bool trials_init(struct joining *j)
{
	for (uint32_t i = 0; i < j->n; i++) {
		struct trial *t = &j->trials[i];

		cudaSetDevice(j->devices[i]);
		if (cudaMalloc((void **)&t->at, (j->n_all + UINT64_C(1)) * TRY_BYTES) !=
			    cudaSuccess ||
		    cudaStreamCreateWithFlags(&t->stream, cudaStreamNonBlocking) != cudaSuccess)
			return false;
	}
	return true;
}

static void trials_done(struct joining *j)
{
	for (uint32_t i = 0; i < j->n; i++) {
		cudaSetDevice(j->devices[i]);
		if (j->trials[i].stream)
			cudaStreamDestroy(j->trials[i].stream);
		cudaFree(j->trials[i].at);
	}
	cudaGetLastError();
}

/* It makes its connections where they are first used: here, where all are. */
static int gather_once(struct joining *j)
{
	struct nccl *l = j->nccl;
	int r = l->group_start(), end;

	if (r)
		return r;
	for (uint32_t i = 0; i < j->n && r == 0; i++) {
		const struct trial *t = &j->trials[i];

		cudaSetDevice(j->devices[i]);
		r = l->all_gather(t->at, t->at + TRY_BYTES, TRY_BYTES, NCCL_INT8, l->comms[i],
				  t->stream);
	}
	end = l->group_end();
	return r ? r : end;
}

static void pause_for(long ns)
{
	nanosleep(&(struct timespec){0, ns}, NULL);
}

/* Until what was gathered is there, or nobody waits for that any more. */
static int await_trials(struct joining *j)
{
	cudaError_t r = cudaSuccess;

	for (uint32_t i = 0; i < j->n && r == cudaSuccess; i++) {
		cudaSetDevice(j->devices[i]);
		while ((r = cudaStreamQuery(j->trials[i].stream)) == cudaErrorNotReady &&
		       atomic_load(&j->state) == UNDER_WAY)
			pause_for(PAUSE_NS);
	}
	return r == cudaSuccess ? 0 : -EIO;
}

static int join(struct joining *j)
{
	int r = refused(j->nccl, init_ranks(j), j->error, sizeof(j->error));

	if (r == 0) {
		j->nccl->n = j->n;
		r = trials_init(j) ? refused(j->nccl, gather_once(j), j->error, sizeof(j->error))
				   : -EIO;
	}
	if (r == 0)
		r = await_trials(j);
	if (r && !j->error[0])
		say(j->error, sizeof(j->error), "NCCL: a device fails as it is first used");
	return r;
}

static void joining_unref(struct joining *j)
{
	if (atomic_fetch_sub(&j->n_refs, 1) == 1)
		free(j);
}

static void *run_joining(void *arg)
{
	struct joining *j = arg;
	int under_way = UNDER_WAY;
	bool taken;

	j->r = join(j);
	taken = atomic_compare_exchange_strong(&j->state, &under_way, OVER) && j->r == 0;
	for (uint32_t i = 0; !taken && i < j->nccl->n; i++) {
		j->nccl->abort(j->nccl->comms[i]);
		j->nccl->comms[i] = NULL;
	}
	trials_done(j);
	if (!taken)
		nccl_free(j->nccl);
	joining_unref(j);
	return NULL;
}

/* False: it is over. */
static bool gives_up(struct joining *j, uint32_t timeout_ms)
{
	uint64_t deadline_ns = clock_now_ns() + timeout_ms * NS_PER_MS;
	int under_way = UNDER_WAY;

	while (atomic_load(&j->state) == UNDER_WAY && clock_now_ns() < deadline_ns)
		pause_for(PAUSE_NS);
	return atomic_compare_exchange_strong(&j->state, &under_way, GIVEN_UP);
}

static int joining_new(const struct nccl_ranks *ranks, struct nccl *l, struct joining **ret)
{
	struct joining *j = calloc(1, sizeof(*j));
	pthread_t thread;

	if (!j)
		return -ENOMEM;
	j->nccl = l;
	j->n = ranks->n;
	j->first = ranks->first;
	j->n_all = ranks->n_all;
	j->has_id = ranks->id;
	memcpy(j->devices, ranks->devices, ranks->n * sizeof(*ranks->devices));
	if (ranks->id)
		memcpy(j->id.bytes, ranks->id, sizeof(j->id.bytes));
	atomic_store(&j->n_refs, 2);
	if (thread_start("nccl-joining", run_joining, j, &thread) != 0) {
		free(j);
		return -EAGAIN;
	}
	pthread_detach(thread);
	*ret = j;
	return 0;
}

/* Takes l. */
static int join_in_time(const struct nccl_ranks *ranks, struct nccl *l, struct nccl **ret,
			char *error, size_t bytes)
{
	struct joining *j;
	int r = joining_new(ranks, l, &j);

	if (r) {
		nccl_free(l);
		say(error, bytes, "NCCL: no thread to meet on");
		return -EIO;
	}
	if (gives_up(j, ranks->timeout_ms)) {
		say(error, bytes, "NCCL: not all of %u devices have come for %u ms", ranks->n_all,
		    ranks->timeout_ms);
		joining_unref(j);
		return -ETIMEDOUT;
	}
	r = j->r;
	if (r)
		say(error, bytes, "%s", j->error);
	else
		*ret = l;
	joining_unref(j);
	return r;
}

int nccl_new(const struct nccl_ranks *ranks, struct nccl **ret, char *error, size_t bytes)
{
	struct nccl *l;
	int r;

	if (has_twice(ranks)) {
		say(error, bytes, "NCCL: a GPU is one rank, and no more");
		return -EIO;
	}
	r = load(&l, error, bytes);
	return r ? r : join_in_time(ranks, l, ret, error, bytes);
}

/* ---- ending: a communicator's end waits for the other processes of the host, which may be no m */

struct ending {
	int (*end)(nccl_comm);
	nccl_comm comms[PEERS_MAX];
	uint32_t n;
	atomic_uint n_refs; /* the thread's, and that of who waits for it */
	atomic_bool over;
};

static void ending_unref(struct ending *e)
{
	if (atomic_fetch_sub(&e->n_refs, 1) == 1)
		free(e);
}

static void *run_ending(void *arg)
{
	struct ending *e = arg;

	for (uint32_t i = 0; i < e->n; i++) {
		if (e->comms[i])
			e->end(e->comms[i]);
	}
	atomic_store(&e->over, true);
	ending_unref(e);
	return NULL;
}

/* On a thread that nobody joins; what cannot be ended stays. Waits for it no longer than that. */
static void end_comms(int (*end)(nccl_comm), nccl_comm *comms, uint32_t n, uint32_t wait_ms)
{
	struct ending *e = calloc(1, sizeof(*e));
	pthread_t thread;

	if (!e)
		return;
	e->end = end;
	e->n = n;
	memcpy(e->comms, comms, n * sizeof(*comms));
	memset(comms, 0, n * sizeof(*comms));
	atomic_store(&e->n_refs, 2);
	if (thread_start("nccl-ending", run_ending, e, &thread) != 0) {
		free(e);
		return;
	}
	pthread_detach(thread);
	for (uint32_t i = 0; i < wait_ms && !atomic_load(&e->over); i++)
		pause_for(PAUSE_NS);
	ending_unref(e);
}

void nccl_free(struct nccl *n)
{
	bool any = false;

	if (!n)
		return;
	for (uint32_t i = 0; i < n->n; i++)
		any = any || n->comms[i];
	if (any)
		end_comms(n->destroy, n->comms, n->n, END_MS);
	if (n->library)
		dlclose(n->library);
	free(n);
}

void nccl_abort(struct nccl *n, uint32_t index)
{
	if (n->comms[index])
		end_comms(n->abort, &n->comms[index], 1, 0);
}

/* ---- gathering ------------------------------------------------------------------------------ */

int nccl_gather(struct nccl *n, uint32_t index, const struct nccl_piece *piece,
		struct CUstream_st *stream)
{
	int r;

	if (!n->comms[index])
		return -EIO;
	r = n->all_gather(piece->from, piece->to, piece->bytes, NCCL_INT8, n->comms[index], stream);
	return r ? -EIO : 0;
}
