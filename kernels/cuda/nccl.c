/* nccl.c - see nccl.h. Of its interface only what is needed is declared here: it has been the same since NCCL 2. */
#include "nccl.h"

#include "peer.h"
#include "../say.h"

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
	/* it has threads of its own that may outlive what it refused, and so may those that end communicators */
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

static int init_ranks(struct nccl *l, const struct nccl_ranks *ranks)
{
	struct unique id;
	int r = 0, end;

	if (ranks->id)
		memcpy(id.bytes, ranks->id, sizeof(id.bytes));
	else
		r = l->get_id(&id);
	r = r ? r : l->group_start();
	if (r)
		return r;
	for (uint32_t i = 0; i < ranks->n && r == 0; i++) {
		cudaSetDevice(ranks->devices[i]);
		r = l->init_rank(&l->comms[i], (int)ranks->n_all, id, (int)(ranks->first + i));
	}
	end = l->group_end();
	return r ? r : end;
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
	if (r)
		return r;
	r = refused(l, init_ranks(l, ranks), error, bytes);
	if (r) {
		nccl_free(l);
		return r;
	}
	l->n = ranks->n;
	*ret = l;
	return 0;
}

/* ---- ending: a communicator's end waits for the other processes of the host, which may be no more --------------------------------- */

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
	struct timespec pause = {0, 1000000};
	struct ending *e = calloc(1, sizeof(*e));
	pthread_t thread;

	if (!e)
		return;
	e->end = end;
	e->n = n;
	memcpy(e->comms, comms, n * sizeof(*comms));
	memset(comms, 0, n * sizeof(*comms));
	atomic_store(&e->n_refs, 2);
	if (pthread_create(&thread, NULL, run_ending, e) != 0) {
		free(e);
		return;
	}
	pthread_detach(thread);
	for (uint32_t i = 0; i < wait_ms && !atomic_load(&e->over); i++)
		nanosleep(&pause, NULL);
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

/* ---- gathering ----------------------------------------------------------------------------------------------------- */

int nccl_gather(struct nccl *n, uint32_t index, const void *from, void *to, uint64_t bytes,
		struct CUstream_st *stream)
{
	if (!n->comms[index])
		return -EIO;
	return n->all_gather(from, to, bytes, NCCL_INT8, n->comms[index], stream) ? -EIO : 0;
}

int nccl_begin(struct nccl *n)
{
	return n->group_start() ? -EIO : 0;
}

int nccl_end(struct nccl *n)
{
	return n->group_end() ? -EIO : 0;
}
