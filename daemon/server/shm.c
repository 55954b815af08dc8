/*
 * shm.c - making and unmaking of shared memory.
 */
#include "shm.h"

#include "proto/channel.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

uint32_t segment_find_free(const struct segment *table, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		if (table[i].state == SEGMENT_FREE)
			return i + 1;
	}
	return 0;
}

struct segment *segment_find(struct segment *table, uint32_t n, uint32_t number)
{
	if (number == 0 || number > n || table[number - 1].state != SEGMENT_READY)
		return NULL;
	return &table[number - 1];
}

int segment_new(struct segment *segment, const char *name, size_t bytes, int *ret_fd)
{
	void *map;
	int r = channel_segment_new(name, bytes, 0, ret_fd, &map);

	if (r < 0)
		return r;
	*segment = (struct segment){
		.state = SEGMENT_ADDING, .map = map, .bytes = bytes, .fd = -1, .notify_fd = -1};
	return 0;
}

void segment_new_device(struct segment *segment, size_t bytes)
{
	*segment = (struct segment){.state = SEGMENT_ADDING,
				    .bytes = bytes,
				    .fd = -1,
				    .notify_fd = -1};
}

int segment_keep_fd(struct segment *segment, int fd)
{
	segment->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	return segment->fd < 0 ? -errno : 0;
}

int segment_notify_new(struct segment *segment, int *ret_fd)
{
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
		return -errno;
	segment->notify_fd = pair[0];
	*ret_fd = pair[1];
	return 0;
}

void segment_done(struct segment *segment)
{
	if (segment->state == SEGMENT_FREE)
		return;
	if (segment->map)
		munmap(segment->map, segment->bytes);
	if (segment->fd >= 0)
		close(segment->fd);
	if (segment->notify_fd >= 0)
		close(segment->notify_fd);
	*segment = (struct segment){.state = SEGMENT_FREE, .fd = -1, .notify_fd = -1};
}
