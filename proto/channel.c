/*
 * channel.c - the control socket and the segments that travel over it.
 *
 * Binding is guarded by a lock on the socket's directory, so that of two daemons that start at
 * once, each seeing the same stale file, only one replaces it. The lock is advisory and anybody may
 * hold it: it is waited for, but not for ever.
 */
#include "proto/channel.h"

#include "proto/cleanup.h"
#include "proto/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <linux/memfd.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

#define LISTEN_BACKLOG 128
#define BIND_LOCK_TRIES 100
#define BIND_LOCK_PAUSE_NS 10000000L
#define PROBE_MS 100
#define PROBE_TRIES 5
#define SEGMENT_SIZE_SEALS (F_SEAL_GROW | F_SEAL_SHRINK)
#define PAGE_BYTES 4096u /* none is smaller */
#define BLOCK_BYTES 512u /* of st_blocks */

union fd_control {
	char bytes[CMSG_SPACE(sizeof(int) * CHANNEL_MAX_FDS)];
	struct cmsghdr align;
};

static int steal_fd(int *fd)
{
	int stolen = *fd;

	*fd = -1;
	return stolen;
}

const char *channel_default_path(void)
{
	const char *path = getenv("COPPICE_SOCKET");

	return path && *path ? path : "/run/coppice/coppiced.sock";
}

static int address_of(const char *path, struct sockaddr_un *ret)
{
	size_t length = strlen(path);

	if (length == 0)
		return -ENOENT;
	if (length >= sizeof(ret->sun_path))
		return -ENAMETOOLONG;
	*ret = (struct sockaddr_un){.sun_family = AF_UNIX};
	memcpy(ret->sun_path, path, length);
	return 0;
}

static int socket_new(int flags, int *ret_fd)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | flags, 0);

	if (fd < 0)
		return -errno;
	*ret_fd = fd;
	return 0;
}

static int connect_address(int fd, const struct sockaddr_un *address)
{
	if (connect(fd, (const struct sockaddr *)address, sizeof(*address)) < 0)
		return -errno;
	return 0;
}

/* Locked, unless somebody sits on it for too long: he keeps nobody from starting. -1: the directory
 * cannot be opened. */
static int directory_lock(const struct sockaddr_un *address)
{
	struct sockaddr_un copy = *address;
	int fd = open(dirname(copy.sun_path), O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return -1;
	for (int i = 0; flock(fd, LOCK_EX | LOCK_NB) < 0 && i < BIND_LOCK_TRIES; i++)
		nanosleep(&(struct timespec){.tv_nsec = BIND_LOCK_PAUSE_NS}, NULL);
	return fd;
}

/* Somebody answers: 1 if it is still there after a while, 0 if it hung up, -errno where nobody
 * does. */
static int probe_listener(const struct sockaddr_un *address)
{
	CLEANUP_FD int probe = -1;
	int r = socket_new(SOCK_NONBLOCK, &probe);

	if (r == 0)
		r = connect_address(probe, address);
	if (r < 0)
		return r;
	return poll(&(struct pollfd){.fd = probe}, 1, PROBE_MS) == 0;
}

/* 0: the path is a socket that nobody listens on. The kernel closes the listening socket of a
 * process that used io_uring a little after its death, which hangs up whoever connected meanwhile:
 * then ask again. */
static int check_stale(const struct sockaddr_un *address)
{
	struct stat st;
	int r = 0;

	if (lstat(address->sun_path, &st) < 0)
		return -errno;
	if (!S_ISSOCK(st.st_mode))
		return -ENOTSOCK;
	for (int i = 0; i < PROBE_TRIES && r == 0; i++)
		r = probe_listener(address);
	if (r == -ECONNREFUSED)
		return 0;
	return r == -EACCES ? r : -EADDRINUSE;
}

static int bind_address(int fd, const struct sockaddr_un *address)
{
	if (bind(fd, (const struct sockaddr *)address, sizeof(*address)) < 0)
		return -errno;
	return 0;
}

static int bind_or_replace(int fd, const struct sockaddr_un *address)
{
	int r = bind_address(fd, address);

	if (r != -EADDRINUSE)
		return r;
	r = check_stale(address);
	if (r < 0)
		return r;
	if (unlink(address->sun_path) < 0 && errno != ENOENT)
		return -errno;
	return bind_address(fd, address);
}

int channel_listen(const char *path, mode_t mode, int *ret_fd)
{
	CLEANUP_FD int fd = -1;
	CLEANUP_FD int lock = -1;
	struct sockaddr_un address;
	int r;

	r = address_of(path, &address);
	if (r < 0)
		return r;
	r = socket_new(SOCK_NONBLOCK, &fd);
	if (r < 0)
		return r;
	lock = directory_lock(&address);
	/* The file takes the socket's mode less the umask: never wider than asked, then exactly as
	 * asked. */
	if (fchmod(fd, mode) < 0)
		return -errno;
	r = bind_or_replace(fd, &address);
	if (r < 0)
		return r;
	if (chmod(path, mode) < 0 || listen(fd, LISTEN_BACKLOG) < 0) {
		r = -errno;
		unlink(path);
		return r;
	}
	*ret_fd = steal_fd(&fd);
	return 0;
}

/* A time limit of 0 would be none. */
static int limit_sends(int fd, uint64_t timeout_ns)
{
	struct timeval limit = {.tv_sec = (time_t)(timeout_ns / NS_PER_S),
				.tv_usec = (suseconds_t)(timeout_ns % NS_PER_S / NS_PER_US)};

	if (limit.tv_sec == 0 && limit.tv_usec == 0)
		limit.tv_usec = 1;
	if (timeout_ns == CHANNEL_FOREVER)
		limit = (struct timeval){0};
	return setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)) < 0 ? -errno : 0;
}

int channel_connect(const char *path, uint64_t timeout_ns, int *ret_fd)
{
	CLEANUP_FD int fd = -1;
	struct sockaddr_un address;
	int r;

	r = address_of(path, &address);
	if (r < 0)
		return r;
	r = socket_new(0, &fd);
	if (r < 0)
		return r;
	r = limit_sends(fd, timeout_ns);
	if (r < 0)
		return r;
	do
		r = connect_address(fd, &address);
	while (r == -EINTR);
	if (r == 0)
		r = limit_sends(fd, CHANNEL_FOREVER);
	if (r < 0)
		return r == -EAGAIN ? -ETIMEDOUT : r;
	*ret_fd = steal_fd(&fd);
	return 0;
}

/* Kernels before 6.5 cannot tell the pidfd from the socket. By number it may be another process's
 * if the peer is gone already, which the hang-up tells anyway. */
static int peer_pidfd(int fd, pid_t pid)
{
	socklen_t length = sizeof(int);
	int pidfd = -1;

	if (getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &length) == 0)
		return pidfd;
	if (errno != ENOPROTOOPT || pid <= 0)
		return -1;
	return (int)syscall(SYS_pidfd_open, pid, 0);
}

int channel_peer(int fd, struct channel_peer *ret)
{
	struct ucred cred;
	socklen_t length = sizeof(cred);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &length) < 0)
		return -errno;
	*ret = (struct channel_peer){
		.pid = cred.pid,
		.uid = cred.uid,
		.gid = cred.gid,
		.pidfd = peer_pidfd(fd, cred.pid),
	};
	return 0;
}

static void attach_fds(struct msghdr *msg, union fd_control *control, const struct channel_fds *fds)
{
	size_t bytes = sizeof(int) * fds->n;
	struct cmsghdr *header;

	memset(control, 0, sizeof(*control));
	msg->msg_control = control->bytes;
	msg->msg_controllen = CMSG_SPACE(bytes);
	header = CMSG_FIRSTHDR(msg);
	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(bytes);
	memcpy(CMSG_DATA(header), fds->at, bytes);
}

int channel_send(int fd, const void *data, size_t bytes, const struct channel_fds *fds, int flags)
{
	unsigned n_fds = fds ? fds->n : 0;
	struct iovec iov = {.iov_base = (void *)data, .iov_len = bytes};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	union fd_control control;
	ssize_t n;

	/* An empty packet could not be told from a hang-up. */
	if (bytes == 0 || n_fds > CHANNEL_MAX_FDS)
		return -EINVAL;
	if (bytes > CHANNEL_MAX_BYTES)
		return -EMSGSIZE;
	if (n_fds)
		attach_fds(&msg, &control, fds);
	do
		n = sendmsg(fd, &msg, flags | MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : 0;
}

/* Moves the packet's descriptors to ret_fds, as many as fit; closes the others. Returns how
 * many. */
static unsigned detach_fds(struct msghdr *msg, int *ret_fds, unsigned max_fds)
{
	unsigned n = 0;

	for (struct cmsghdr *h = CMSG_FIRSTHDR(msg); h; h = CMSG_NXTHDR(msg, h)) {
		if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t at = CMSG_LEN(0); at + sizeof(int) <= h->cmsg_len; at += sizeof(int)) {
			int fd;

			memcpy(&fd, (char *)h + at, sizeof(fd));
			if (n < max_fds)
				ret_fds[n++] = fd;
			else
				close(fd);
		}
	}
	return n;
}

ssize_t channel_recv(int fd, void *data, size_t bytes, struct channel_fds_room *inout_fds,
		     int flags)
{
	struct iovec iov = {.iov_base = data, .iov_len = bytes};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	unsigned max_fds = inout_fds ? inout_fds->n : 0;
	union fd_control control;
	ssize_t n;

	if (max_fds) {
		msg.msg_control = control.bytes;
		msg.msg_controllen = sizeof(control.bytes);
	}
	do
		n = recvmsg(fd, &msg, flags | MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	if (msg.msg_flags & MSG_TRUNC) {
		detach_fds(&msg, NULL, 0);
		return -EMSGSIZE;
	}
	if (inout_fds)
		inout_fds->n = detach_fds(&msg, inout_fds->at, max_fds);
	return n;
}

/* Not executable where the kernel knows the flag (6.3); some hosts then insist on it. */
static int memfd_new(const char *name, int *ret_fd)
{
	int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);

	if (fd < 0 && errno == EINVAL)
		fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return -errno;
	*ret_fd = fd;
	return 0;
}

static int map_shared(int fd, size_t bytes, int protection, void **ret_map)
{
	void *map = mmap(NULL, bytes, protection, MAP_SHARED, fd, 0);

	if (map == MAP_FAILED)
		return -errno;
	if (madvise(map, bytes, MADV_DONTFORK) < 0) {
		int r = -errno;

		munmap(map, bytes);
		return r;
	}
	*ret_map = map;
	return 0;
}

/* Mappings that there are before a seal stay what they are. */
static int segment_new(const char *name, size_t bytes, int seals, int *ret_fd, void **ret_map)
{
	CLEANUP_FD int fd = -1;
	void *map;
	int r;

	r = memfd_new(name, &fd);
	if (r < 0)
		return r;
	if (ftruncate(fd, (off_t)bytes) < 0)
		return -errno;
	r = map_shared(fd, bytes, PROT_READ | PROT_WRITE, &map);
	if (r < 0)
		return r;
	if (fcntl(fd, F_ADD_SEALS, seals) < 0) {
		r = -errno;
		munmap(map, bytes);
		return r;
	}
	*ret_fd = steal_fd(&fd);
	*ret_map = map;
	return 0;
}

int channel_segment_reopen(int fd, int *ret_fd)
{
	char path[64];
	int again;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	again = open(path, O_RDONLY | O_CLOEXEC);
	if (again < 0)
		return -errno;
	*ret_fd = again;
	return 0;
}

/* The description's own lock, as the process's would go with any descriptor of it that is closed.
 */
int channel_segment_keep(int fd)
{
	struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

	if (fchmod(fd, S_IRUSR) < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0 ||
	    fcntl(fd, F_OFD_SETLK, &whole) < 0)
		return -errno;
	return 0;
}

int channel_segment_new(const char *name, size_t bytes, int read_only, int *ret_fd, void **ret_map)
{
	return segment_new(name, bytes,
			   SEGMENT_SIZE_SEALS | F_SEAL_SEAL | (read_only ? F_SEAL_FUTURE_WRITE : 0),
			   ret_fd, ret_map);
}

int channel_segment_new_open(const char *name, size_t bytes, int *ret_fd, void **ret_map)
{
	return segment_new(name, bytes, SEGMENT_SIZE_SEALS, ret_fd, ret_map);
}

int channel_segment_seal(int fd)
{
	return fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) < 0 ? -errno : 0;
}

int channel_segment_fill(void *map, size_t bytes)
{
	int r;

	do
		r = madvise(map, bytes, MADV_POPULATE_WRITE);
	while (r < 0 && (errno == EINTR || errno == EAGAIN));
	if (r == 0 || errno != EINVAL)
		return r == 0 ? 0 : -ENOMEM;
	/* The kernel is older than 5.14. What is there stays. */
	for (size_t at = 0; at < bytes; at += PAGE_BYTES) {
		volatile char *page = (char *)map + at;

		*page = *page;
	}
	return 0;
}

int channel_segment_check_filled(int fd, size_t bytes)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	return (uint64_t)st.st_blocks * BLOCK_BYTES < bytes ? -ENODATA : 0;
}

/* 0: so large for good. */
static int check_segment(int fd, size_t bytes)
{
	int seals = fcntl(fd, F_GET_SEALS);
	struct stat st;

	if (seals < 0 || (seals & SEGMENT_SIZE_SEALS) != SEGMENT_SIZE_SEALS)
		return -EBADMSG;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (bytes == 0 || (uint64_t)st.st_size != bytes)
		return -EBADMSG;
	return 0;
}

int channel_segment_map(int fd, size_t bytes, int writable, void **ret_map)
{
	int r = check_segment(fd, bytes);

	if (r < 0)
		return r;
	return map_shared(fd, bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ, ret_map);
}

int channel_segment_map_own(int fd, size_t bytes, void **ret_map)
{
	int r = check_segment(fd, bytes);
	void *map;

	if (r < 0)
		return r;
	map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, fd, 0);
	if (map == MAP_FAILED)
		return -errno;
	*ret_map = map;
	return 0;
}
