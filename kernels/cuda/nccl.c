/* nccl.c - see nccl.h. Of its interface only what is needed is declared here: it has been the same since NCCL 2. */
#include "nccl.h"

#include "peer.h"
#include "../say.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>

#define NCCL_INT8 0

typedef struct ncclComm *nccl_comm;

struct nccl {
	void *library; /* owned */
	uint32_t n;
	nccl_comm comms[PEERS_MAX]; /* owned */
	int (*init_all)(nccl_comm *, int, const int *);
	int (*destroy)(nccl_comm);
	int (*all_gather)(const void *, void *, size_t, int, nccl_comm, struct CUstream_st *);
	const char *(*error)(int);
};

static int find_all(struct nccl *n)
{
	*(void **)&n->init_all = dlsym(n->library, "ncclCommInitAll");
	*(void **)&n->destroy = dlsym(n->library, "ncclCommDestroy");
	*(void **)&n->all_gather = dlsym(n->library, "ncclAllGather");
	*(void **)&n->error = dlsym(n->library, "ncclGetErrorString");
	return n->init_all && n->destroy && n->all_gather && n->error ? 0 : -ENOENT;
}

int nccl_new(const int *devices, uint32_t n, struct nccl **ret, char *error, size_t bytes)
{
	struct nccl *l = calloc(1, sizeof(*l));
	int r;

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
	r = l->init_all(l->comms, (int)n, devices);
	if (r) {
		say(error, bytes, "NCCL: %s", l->error(r));
		nccl_free(l);
		return -EIO;
	}
	l->n = n;
	*ret = l;
	return 0;
}

void nccl_free(struct nccl *n)
{
	if (!n)
		return;
	for (uint32_t i = 0; i < n->n; i++)
		n->destroy(n->comms[i]);
	if (n->library)
		dlclose(n->library);
	free(n);
}

int nccl_gather(struct nccl *n, uint32_t rank, const void *from, void *to, uint64_t bytes,
		struct CUstream_st *stream)
{
	return n->all_gather(from, to, bytes, NCCL_INT8, n->comms[rank], stream) ? -EIO : 0;
}
