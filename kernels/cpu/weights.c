/*
 * weights.c - weights as memory of this process alone, until somebody wants to map them.
 *
 * Then they move into a memfd, piece by piece, each of which takes the place of what it is a copy
 * of: who reads them meanwhile sees the same bytes. It is not done from the start, as such memory
 * has no huge pages on most machines: programs read it at 0.7 of the speed.
 *
 * Memory comes with what is put: to bring gigabytes takes seconds, and who has them asked for may
 * be gone by then, or send nothing.
 */
#include "weights.h"

#include "huge.h"
#include "proto/arith.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PIECE_BYTES (UINT64_C(16) << 20)
#define SEALS (F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_WRITE | F_SEAL_SEAL)

void cpu_weights_free(struct backend *b, struct backend_weights *weights)
{
	(void)b;
	if (!weights)
		return;
	if (weights->base)
		huge_unmap(weights->base, weights->bytes);
	if (weights->fd >= 0)
		close(weights->fd);
	free(weights);
}

int cpu_weights_new(struct backend *b, uint64_t bytes, struct backend_weights **ret)
{
	struct backend_weights *weights = calloc(1, sizeof(*weights));

	if (!weights)
		return -ENOMEM;
	weights->fd = -1;
	weights->bytes = align_to(max_u64(bytes, 1), HUGE_BYTES);
	weights->base = weights->bytes >= bytes ? huge_map(weights->bytes) : NULL;
	if (!weights->base) {
		cpu_weights_free(b, weights);
		return -ENOMEM;
	}
	*ret = weights;
	return 0;
}

/* All huge pages that bytes from here on are in. */
static int bring(const struct backend_weights *weights, uint64_t offset, uint64_t bytes)
{
	uint64_t begin = offset & ~(HUGE_BYTES - 1);

	return huge_populate(weights->base + begin, align_to(offset + bytes, HUGE_BYTES) - begin);
}

int cpu_weights_put(struct backend *b, struct backend_weights *weights, uint64_t offset,
		    const void *from, uint64_t bytes)
{
	int r;

	(void)b;
	assert(offset <= weights->bytes && bytes <= weights->bytes - offset);
	if (bytes == 0)
		return 0;
	r = bring(weights, offset, bytes);
	if (r == 0)
		memcpy(weights->base + offset, from, bytes);
	return r;
}

/* ---- lent ------------------------------------------------------------------------------------ */

/* By a call, as a lack of memory is a signal where it is found by writing to a mapping. */
static int copy(const struct backend_weights *weights, uint64_t from, uint64_t end)
{
	while (from < end) {
		ssize_t n = pwrite(weights->fd, weights->base + from, end - from, (off_t)from);

		if (n < 0 && errno != EINTR)
			return -ENOMEM;
		from += n > 0 ? (uint64_t)n : 0;
	}
	return 0;
}

/* The mapping is a private one, as a shared one would keep the memory from being sealed. */
static int move(struct backend_weights *weights, uint64_t from, uint64_t bytes)
{
	int r = copy(weights, from, from + bytes);

	if (r == 0 && mmap(weights->base + from, bytes, PROT_READ,
			   MAP_PRIVATE | MAP_FIXED | MAP_POPULATE | MAP_NORESERVE, weights->fd,
			   (off_t)from) == MAP_FAILED)
		r = -ENOMEM;
	return r;
}

static int move_all(struct backend_weights *weights)
{
	int r = 0;

	while (weights->moved_bytes < weights->bytes && r == 0) {
		uint64_t n = min_u64(weights->bytes - weights->moved_bytes, PIECE_BYTES);

		r = move(weights, weights->moved_bytes, n);
		if (r == 0)
			weights->moved_bytes += n;
	}
	return r;
}

static int make_memory(struct backend_weights *weights)
{
	int fd = memfd_create("coppice-weights", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0)
		return errno == EMFILE || errno == ENFILE ? -EIO : -ENOMEM;
	if (ftruncate(fd, (off_t)weights->bytes) < 0) {
		close(fd);
		return -ENOMEM;
	}
	weights->fd = fd;
	return 0;
}

static int seal(struct backend_weights *weights)
{
	if (!weights->sealed && fcntl(weights->fd, F_ADD_SEALS, SEALS) < 0)
		return -EIO;
	weights->sealed = true;
	madvise(weights->base, weights->bytes, MADV_DONTDUMP);
	return 0;
}

/* Where it failed before it goes on. */
int cpu_weights_lend(struct backend *b, struct backend_weights *weights, struct backend_lent *ret)
{
	int r = weights->fd < 0 ? make_memory(weights) : 0;

	(void)b;
	if (r == 0)
		r = move_all(weights);
	if (r == 0)
		r = seal(weights);
	if (r < 0)
		return r;
	*ret = (struct backend_lent){.bytes = weights->bytes, .fd = weights->fd};
	return 0;
}
