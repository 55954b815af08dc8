/*
 * fake_driver.c - a libcuda.so.1 without a GPU: streams are threads, device memory is shared
 * memory, graphs are lists.
 *
 * It has what libcoppice and device_test.c call, with CUDA's ABI, so that both run where there is
 * no device. What the real one promises is kept: operations of a stream run in order, a write of a
 * word comes after all before it, waits compare cyclically, what is captured does not run. Where
 * FAKE_CUDA_REFUSES is set it lets nobody map another's memory. FAKE_CUDA_DEVICE=other is another
 * device than the module's; FAKE_CUDA_MPS=1 is one of sm_90 under MPS, on which modules may be
 * loaded: of libcoppice's kernels, whatever their code, it does what it knows them to do.
 */
#include "fake.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define API __attribute__((visibility("default")))
#define ERROR_VALUE 1
#define ERROR_CONTEXT 201
#define ERROR_MAP 205
#define BY_DESCRIPTOR 1
#define ERROR_PERMISSION 800
#define ERROR_CAPTURING 900
#define SPINS 200
#define ATTRIBUTE_MAJOR 75
#define ATTRIBUTE_MPS 133

#pragma GCC diagnostic ignored "-Wmissing-prototypes"

struct fake_access {
	int type, device, how;
};

enum op_kind { OP_WRITE, OP_WAIT, OP_AWAIT, OP_COPY, OP_CALL };

struct op {
	struct op *next;
	enum op_kind kind;
	uint64_t address, value; /* write, wait; copy: to, from */
	uint64_t near; /* await: another that may reach the value; 0: none */
	size_t bytes;
	void (*call)(void *);
	void *arg;
};

struct list {
	struct op *first, **last;
	uint64_t n;
};

struct stream {
	struct stream *next; /* of all */
	pthread_t thread;
	pthread_mutex_t mutex;
	pthread_cond_t moved;
	struct list queue;
	uint64_t done;
	bool stopping;
	struct list *capture; /* owned until the capture ends; NULL: none */
};

struct batch_op {
	uint32_t kind, pad0;
	uint64_t address, value;
	uint32_t flags, pad1;
	uint64_t alias, pad2;
};

static _Atomic int n_captures;
static int the_context; /* its address is the only context there is */
static __thread void *current;

/* ---- operations ----------------------------------------------------------------------------- */

static bool reached(uint64_t address, uint64_t value)
{
	return address &&
	       (int64_t)(atomic_load((_Atomic uint64_t *)(uintptr_t)address) - value) >= 0;
}

static void run(const struct op *op)
{
	_Atomic uint64_t *word = (_Atomic uint64_t *)(uintptr_t)op->address;

	switch (op->kind) {
	case OP_WRITE:
		atomic_store(word, op->value);
		break;
	case OP_WAIT:
	case OP_AWAIT:
		for (uint32_t i = 0;
		     !reached(op->address, op->value) && !reached(op->near, op->value); i++) {
			if (i < SPINS)
				sched_yield();
			else
				usleep(50);
		}
		break;
	case OP_COPY:
		memcpy((void *)(uintptr_t)op->address, (void *)(uintptr_t)op->value, op->bytes);
		break;
	default:
		op->call(op->arg);
	}
}

static void list_push(struct list *list, const struct op *op)
{
	struct op *copy = malloc(sizeof(*copy));

	*copy = *op;
	copy->next = NULL;
	*list->last = copy;
	list->last = &copy->next;
	list->n++;
}

static struct list *list_new(void)
{
	struct list *list = calloc(1, sizeof(*list));

	list->last = &list->first;
	return list;
}

static void list_free(struct list *list)
{
	for (struct op *op = list->first, *next; op; op = next) {
		next = op->next;
		free(op);
	}
	free(list);
}

static void *stream_main(void *arg)
{
	struct stream *s = arg;

	pthread_mutex_lock(&s->mutex);
	for (;;) {
		struct op *op = s->queue.first;

		if (!op && s->stopping)
			break;
		if (!op) {
			pthread_cond_wait(&s->moved, &s->mutex);
			continue;
		}
		pthread_mutex_unlock(&s->mutex);
		run(op);
		pthread_mutex_lock(&s->mutex);
		s->queue.first = op->next;
		if (!op->next)
			s->queue.last = &s->queue.first;
		s->done++;
		free(op);
		pthread_cond_broadcast(&s->moved);
	}
	pthread_mutex_unlock(&s->mutex);
	return NULL;
}

static int put(struct stream *s, struct op op)
{
	pthread_mutex_lock(&s->mutex);
	list_push(s->capture ? s->capture : &s->queue, &op);
	pthread_cond_broadcast(&s->moved);
	pthread_mutex_unlock(&s->mutex);
	return 0;
}

/* ---- the driver, devices, contexts ---------------------------------------------------------- */

API int cuInit(unsigned flags)
{
	return flags ? ERROR_VALUE : 0;
}

API int cuGetErrorString(int error, const char **ret)
{
	*ret = error == ERROR_CONTEXT ? "invalid device context" : "an error of the fake driver";
	return 0;
}

API int cuDeviceGetCount(int *ret)
{
	const char *n = getenv("FAKE_CUDA_DEVICES");

	*ret = n ? atoi(n) : 1;
	return 0;
}

API int cuDeviceGet(int *ret, int index)
{
	*ret = index;
	return 0;
}

API int cuDeviceGetUuid_v2(uint8_t *ret, int device)
{
	const char *which = getenv("FAKE_CUDA_DEVICE");

	(void)device;
	memcpy(ret, FAKE_UUID, 16);
	if (which && strcmp(which, "other") == 0)
		ret[0] = 'X';
	return 0;
}

API int cuDeviceGetAttribute(int *ret, int attribute, int device)
{
	bool mps = getenv("FAKE_CUDA_MPS") != NULL;

	(void)device;
	*ret = attribute == ATTRIBUTE_MPS ? mps : attribute == ATTRIBUTE_MAJOR ? (mps ? 9 : 8) : 1;
	return 0;
}

API int cuDevicePrimaryCtxRetain(void **ret, int device)
{
	(void)device;
	*ret = &the_context;
	return 0;
}

API int cuDevicePrimaryCtxRelease_v2(int device)
{
	(void)device;
	return 0;
}

API int cuCtxGetCurrent(void **ret)
{
	*ret = current;
	return 0;
}

API int cuCtxGetDevice(int *ret)
{
	*ret = 0;
	return current ? 0 : ERROR_CONTEXT;
}

API int cuCtxPushCurrent_v2(void *context)
{
	current = context;
	return 0;
}

/* The thread's own stays: nobody here has two. */
API int cuCtxPopCurrent_v2(void **ret)
{
	*ret = current;
	return 0;
}

/* Streams hold nothing that is unmapped here: tests wait for them. */
API int cuCtxSynchronize(void)
{
	return current ? 0 : ERROR_CONTEXT;
}

/* ---- memory --------------------------------------------------------------------------------- */

/* The importer's own until it is released. */
API int cuMemImportFromShareableHandle(uint64_t *ret, void *from, int kind)
{
	int fd;

	if (kind != BY_DESCRIPTOR)
		return ERROR_VALUE;
	if (getenv("FAKE_CUDA_REFUSES"))
		return ERROR_PERMISSION;
	fd = fake_unwrap((int)(intptr_t)from);
	*ret = (uint64_t)fd;
	return fd < 0 ? ERROR_VALUE : 0;
}

API int cuMemRelease(uint64_t memory)
{
	return close((int)memory) < 0 ? ERROR_VALUE : 0;
}

API int cuMemAddressReserve(uint64_t *ret, size_t bytes, size_t align, uint64_t near,
			    unsigned long long flags)
{
	void *at = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (align || near || flags || at == MAP_FAILED)
		return ERROR_VALUE;
	*ret = (uintptr_t)at;
	return 0;
}

API int cuMemAddressFree(uint64_t address, size_t bytes)
{
	return munmap((void *)(uintptr_t)address, bytes) < 0 ? ERROR_VALUE : 0;
}

/* There, but not to be reached until access is set. */
API int cuMemMap(uint64_t address, size_t bytes, size_t offset, uint64_t memory,
		 unsigned long long flags)
{
	void *at = (void *)(uintptr_t)address;

	if (offset || flags)
		return ERROR_VALUE;
	at = mmap(at, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, (int)memory, 0);
	return at == MAP_FAILED ? ERROR_MAP : 0;
}

API int cuMemUnmap(uint64_t address, size_t bytes)
{
	void *at = mmap((void *)(uintptr_t)address, bytes, PROT_NONE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);

	return at == MAP_FAILED ? ERROR_MAP : 0;
}

API int cuMemSetAccess(uint64_t address, size_t bytes, const struct fake_access *access, size_t n)
{
	if (n != 1 || access->type != 1 || access->device != 0 || access->how != 3)
		return ERROR_VALUE;
	return mprotect((void *)(uintptr_t)address, bytes, PROT_READ | PROT_WRITE) < 0 ? ERROR_MAP
										       : 0;
}

API int cuMemHostRegister_v2(void *host, size_t bytes, unsigned flags)
{
	(void)flags;
	if (atomic_load(&n_captures))
		return ERROR_CAPTURING;
	return (uintptr_t)host % 4096 || bytes % 4096 ? ERROR_VALUE : 0;
}

API int cuMemHostUnregister(void *host)
{
	return host ? 0 : ERROR_VALUE;
}

API int cuMemHostGetDevicePointer_v2(uint64_t *ret, void *host, unsigned flags)
{
	(void)flags;
	*ret = (uintptr_t)host;
	return 0;
}

API int cuMemHostAlloc(void **ret, size_t bytes, unsigned flags)
{
	(void)flags;
	*ret = calloc(1, bytes);
	return *ret ? 0 : ERROR_VALUE;
}

API int cuMemFreeHost(void *host)
{
	free(host);
	return 0;
}

API int cuMemcpy(uint64_t to, uint64_t from, size_t bytes)
{
	memcpy((void *)(uintptr_t)to, (void *)(uintptr_t)from, bytes);
	return 0;
}

/* ---- streams -------------------------------------------------------------------------------- */

static struct stream *streams; /* of this process */
static pthread_mutex_t streams_lock = PTHREAD_MUTEX_INITIALIZER;

static void stream_link(struct stream *s)
{
	pthread_mutex_lock(&streams_lock);
	s->next = streams;
	streams = s;
	pthread_mutex_unlock(&streams_lock);
}

static void stream_unlink(struct stream *s)
{
	struct stream **at = &streams;

	pthread_mutex_lock(&streams_lock);
	while (*at != s)
		at = &(*at)->next;
	*at = s->next;
	pthread_mutex_unlock(&streams_lock);
}

API int cuStreamCreate(struct stream **ret, unsigned flags)
{
	struct stream *s = calloc(1, sizeof(*s));

	(void)flags;
	s->queue.last = &s->queue.first;
	pthread_mutex_init(&s->mutex, NULL);
	pthread_cond_init(&s->moved, NULL);
	pthread_create(&s->thread, NULL, stream_main, s);
	stream_link(s);
	*ret = s;
	return 0;
}

API int cuStreamSynchronize(struct stream *s)
{
	pthread_mutex_lock(&s->mutex);
	while (s->done < s->queue.n)
		pthread_cond_wait(&s->moved, &s->mutex);
	pthread_mutex_unlock(&s->mutex);
	return 0;
}

API int cuStreamDestroy_v2(struct stream *s)
{
	stream_unlink(s);
	pthread_mutex_lock(&s->mutex);
	s->stopping = true;
	pthread_cond_broadcast(&s->moved);
	pthread_mutex_unlock(&s->mutex);
	pthread_join(s->thread, NULL);
	pthread_cond_destroy(&s->moved);
	pthread_mutex_destroy(&s->mutex);
	free(s);
	return 0;
}

API int cuStreamGetCtx(struct stream *s, void **ret)
{
	(void)s;
	*ret = &the_context;
	return 0;
}

API int cuStreamIsCapturing(struct stream *s, int *ret)
{
	*ret = s->capture != NULL;
	return 0;
}

API int cuStreamWriteValue64_v2(struct stream *s, uint64_t address, uint64_t value, unsigned flags)
{
	return flags ? ERROR_VALUE
		     : put(s, (struct op){.kind = OP_WRITE, .address = address, .value = value});
}

API int cuStreamWaitValue64_v2(struct stream *s, uint64_t address, uint64_t value, unsigned flags)
{
	return flags ? ERROR_VALUE
		     : put(s, (struct op){.kind = OP_WAIT, .address = address, .value = value});
}

API int cuStreamBatchMemOp_v2(struct stream *s, unsigned n, const struct batch_op *ops,
			      unsigned flags)
{
	if (flags || n > 256)
		return ERROR_VALUE;
	for (unsigned i = 0; i < n; i++) {
		if (ops[i].kind != 4 && ops[i].kind != 5)
			return ERROR_VALUE;
		put(s, (struct op){.kind = ops[i].kind == 4 ? OP_WAIT : OP_WRITE,
				   .address = ops[i].address,
				   .value = ops[i].value});
	}
	return 0;
}

/* ---- kernels -------------------------------------------------------------------------------- */

/* Waits for all that is under way, as the real one may. */
API int cuModuleLoadData(void **ret, const void *image)
{
	pthread_mutex_lock(&streams_lock);
	for (struct stream *s = streams; s; s = s->next)
		cuStreamSynchronize(s);
	pthread_mutex_unlock(&streams_lock);
	*ret = (void *)(uintptr_t)image;
	return atomic_load(&n_captures) ? ERROR_CAPTURING : 0;
}

API int cuModuleUnload(void *module)
{
	return module ? 0 : ERROR_VALUE;
}

/* A function is what it does. */
API int cuModuleGetFunction(const enum op_kind **ret, void *module, const char *name)
{
	static const enum op_kind write = OP_WRITE, await = OP_AWAIT;

	if (!module || (strcmp(name, "tell") != 0 && strcmp(name, "await") != 0))
		return ERROR_VALUE;
	*ret = strcmp(name, "tell") == 0 ? &write : &await;
	return 0;
}

struct launch {
	uint32_t grid[3], block[3], shared_bytes;
	struct stream *stream;
	void *attributes;
	uint32_t n_attributes;
};

API int cuLaunchKernelEx(const struct launch *launch, const enum op_kind *function,
			 void **arguments, void **extra)
{
	const uint64_t *const *words = (const uint64_t *const *)arguments;

	if (!current || extra || launch->grid[0] != 1 || launch->block[0] != 1)
		return ERROR_VALUE;
	return put(launch->stream, (struct op){.kind = *function,
					       .address = *words[0],
					       .value = *words[1],
					       .near = *function == OP_AWAIT ? *words[2] : 0});
}

/* ---- copies --------------------------------------------------------------------------------- */

API int cuMemcpyAsync(uint64_t to, uint64_t from, size_t bytes, struct stream *s)
{
	return put(s, (struct op){.kind = OP_COPY, .address = to, .value = from, .bytes = bytes});
}

API int cuLaunchHostFunc(struct stream *s, void (*call)(void *), void *arg)
{
	return put(s, (struct op){.kind = OP_CALL, .call = call, .arg = arg});
}

/* ---- graphs --------------------------------------------------------------------------------- */

API int cuStreamBeginCapture_v2(struct stream *s, int mode)
{
	(void)mode;
	s->capture = list_new();
	atomic_fetch_add(&n_captures, 1);
	return 0;
}

API int cuStreamEndCapture(struct stream *s, struct list **ret)
{
	*ret = s->capture;
	s->capture = NULL;
	atomic_fetch_sub(&n_captures, 1);
	return *ret ? 0 : ERROR_VALUE;
}

/* The graph itself is launched. */
API int cuGraphInstantiateWithFlags(struct list **ret, struct list *graph, unsigned long long flags)
{
	(void)flags;
	*ret = graph;
	return 0;
}

API int cuGraphLaunch(struct list *graph, struct stream *s)
{
	for (const struct op *op = graph->first; op; op = op->next)
		put(s, *op);
	return 0;
}

API int cuGraphExecDestroy(struct list *graph)
{
	(void)graph;
	return 0;
}

API int cuGraphDestroy(struct list *graph)
{
	list_free(graph);
	return 0;
}
