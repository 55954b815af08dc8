/*
 * fake_nccl.c - a libnccl.so.2 that gathers nothing: who is a rank of what, and who has been given
 * up. FAKE_NCCL_REFUSE=1: it makes no communicators.
 */
#include "fake_nccl.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct fake_nccl fake_nccl;

struct unique {
	char bytes[128];
};

int ncclGetUniqueId(struct unique *ret);
int ncclCommInitRank(void **ret, int n, struct unique id, int rank);
int ncclCommDestroy(void *comm);
int ncclCommAbort(void *comm);
int ncclGroupStart(void);
int ncclGroupEnd(void);
int ncclAllGather(const void *from, void *to, size_t n, int type, void *comm, void *stream);
const char *ncclGetErrorString(int r);

struct fake_nccl *fake_nccl_find(void)
{
	return &fake_nccl;
}

int ncclGetUniqueId(struct unique *ret)
{
	memset(ret, 'i', sizeof(*ret));
	return 0;
}

int ncclCommInitRank(void **ret, int n, struct unique id, int rank)
{
	if (getenv("FAKE_NCCL_REFUSE"))
		return 5;
	fake_nccl.n_all = n;
	fake_nccl.id = id.bytes[0];
	*ret = &fake_nccl.ranks[fake_nccl.n_comms];
	fake_nccl.ranks[fake_nccl.n_comms++] = rank;
	fake_nccl.n_open++;
	return 0;
}

/* As the real one does while another rank has not ended. */
static void wait_for_others(void)
{
	while (fake_nccl.silent)
		usleep(1000);
}

int ncclCommAbort(void *comm)
{
	(void)comm;
	fake_nccl.n_aborted++;
	wait_for_others();
	fake_nccl.n_open--;
	return 0;
}

int ncclCommDestroy(void *comm)
{
	(void)comm;
	wait_for_others();
	fake_nccl.n_open--;
	return 0;
}

int ncclGroupStart(void)
{
	return 0;
}

/* The real one looks for the other ranks here, and does not come back without them. */
int ncclGroupEnd(void)
{
	while (fake_nccl.absent)
		usleep(1000);
	return 0;
}

int ncclAllGather(const void *from, void *to, size_t n, int type, void *comm, void *stream)
{
	(void)from;
	(void)to;
	(void)n;
	(void)type;
	(void)comm;
	(void)stream;
	fake_nccl.n_gathers++;
	return 0;
}

const char *ncclGetErrorString(int r)
{
	return r == 5 ? "invalid usage" : "unknown";
}
