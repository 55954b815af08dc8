/*
 * shm.c - making and unmaking of shared memory.
 *
 * An entry owns its mapping and its descriptors from the moment it leaves FREE; shm_done gives all
 * of them back, whatever of them there was.
 */
#include "shm.h"

#include "proto/arith.h"
#include "proto/channel.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

uint32_t shm_find_free(const struct shm *table, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		if (table[i].state == SHM_FREE)
			return i + 1;
	}
	return 0;
}

struct shm *shm_find_in(struct shm *table, uint32_t n, uint32_t number, enum shm_state state)
{
	if (number == 0 || number > n || table[number - 1].state != state)
		return NULL;
	return &table[number - 1];
}

/* An entry that owns nothing yet. */
static struct shm entry_in(enum shm_state state, uint16_t generation)
{
	return (struct shm){.state = state, .fd = -1, .notify_fd = -1, .generation = generation};
}

int shm_new(struct shm *shm, const char *name, size_t bytes)
{
	void *map;
	int fd, r = channel_segment_new_open(name, bytes, &fd, &map);

	if (r < 0)
		return r;
	*shm = entry_in(SHM_NEW, shm->generation);
	shm->map = map;
	shm->bytes = bytes;
	shm->fd = fd;
	return 0;
}

static int check_filled(const struct shm *shm)
{
	return shm->filled ? channel_segment_check_filled(shm->fd, shm->bytes) : 0;
}

/* Looked at before, so that it may be filled yet, and behind, as holes may come until then. */
int shm_seal(struct shm *shm)
{
	int r;

	if (shm->fd < 0)
		return 0;
	r = check_filled(shm);
	if (r == 0)
		r = channel_segment_seal(shm->fd);
	if (r == 0)
		r = check_filled(shm);
	if (r < 0)
		return r;
	close(shm->fd);
	shm->fd = -1;
	return 0;
}

static void post(struct shm *shm, struct shm_pages *pages, struct shm_chore *chore,
		 enum shm_chore_kind kind, uid_t uid)
{
	*chore = (struct shm_chore){.kind = kind,
				    .map = shm->map,
				    .bytes = shm->bytes,
				    .uid = uid,
				    .done = chore->done,
				    .user = chore->user};
	shm_pages_post(pages, chore);
}

void shm_fill(struct shm *shm, struct shm_pages *pages, uid_t uid)
{
	post(shm, pages, &shm->chore, SHM_FILL, uid);
}

static void on_filled_beside(struct shm_chore *chore)
{
	struct shm *shm = chore->user;

	shm->coming = chore->code != 0;
}

void shm_fill_beside(struct shm *shm, struct shm_pages *pages, uid_t uid)
{
	shm->coming = true;
	shm->beside.done = on_filled_beside;
	shm->beside.user = shm;
	post(shm, pages, &shm->beside, SHM_FILL, uid);
}

void shm_fill_stop(struct shm *shm)
{
	atomic_store_explicit(&shm->chore.stopped, true, memory_order_relaxed);
	atomic_store_explicit(&shm->beside.stopped, true, memory_order_relaxed);
}

bool shm_is_there(const struct shm *shm, size_t offset, size_t bytes)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), end = offset + bytes;
	unsigned char there[256];

	offset -= offset % page;
	for (size_t n; shm->coming && offset < end; offset += n * page) {
		n = ceil_div_u64(end - offset, page);
		n = min_u64(n, sizeof(there));
		if (mincore((char *)shm->map + offset, n * page, there) < 0)
			return false;
		for (size_t i = 0; i < n; i++)
			if (!(there[i] & 1))
				return false;
	}
	return true;
}

void shm_drop(struct shm *shm, struct shm_pages *pages, uid_t uid)
{
	post(shm, pages, &shm->chore, SHM_DROP, uid);
	shm->map = NULL;
}

void shm_new_device(struct shm *shm, size_t bytes)
{
	*shm = entry_in(SHM_ADDING, shm->generation);
	shm->bytes = bytes;
	shm->device = true;
}

int shm_notify_new(struct shm *shm, int *ret_fd)
{
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
		return -errno;
	shm->notify_fd = pair[0];
	*ret_fd = pair[1];
	return 0;
}

void shm_done(struct shm *shm)
{
	if (shm->state == SHM_FREE)
		return;
	if (shm->map)
		munmap(shm->map, shm->bytes);
	if (shm->fd >= 0)
		close(shm->fd);
	if (shm->notify_fd >= 0)
		close(shm->notify_fd);
	*shm = entry_in(SHM_FREE, (uint16_t)(shm->generation + 1));
}
