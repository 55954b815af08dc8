/* nccl.c - see nccl.h. Of its interface only what is needed is declared here: it has been the same since NCCL 2. */
#include "nccl.h"

#include "peer.h"
#include "../say.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NCCL_INT8 0

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

	if (!l)
		return -ENOMEM;
	/* Nothing here is large enough for multicast, which not every host may use. */
	setenv("NCCL_NVLS_ENABLE", "0", 0);
	/* it has threads of its own that may outlive what it refused */
	l->library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
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

void nccl_free(struct nccl *n)
{
	if (!n)
		return;
	for (uint32_t i = 0; i < n->n; i++) {
		if (n->comms[i])
			n->destroy(n->comms[i]);
	}
	if (n->library)
		dlclose(n->library);
	free(n);
}

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

void nccl_abort(struct nccl *n, uint32_t index)
{
	if (n->comms[index])
		n->abort(n->comms[index]);
	n->comms[index] = NULL;
}
