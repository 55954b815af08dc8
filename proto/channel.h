/*
 * channel.h - the control socket: SOCK_SEQPACKET packets with descriptors, and who is at the other
 * end.
 *
 * One packet is one protobuf-c message of at most CHANNEL_MAX_BYTES. Descriptors travel from the
 * daemon to the client only; what a client attaches is dropped by the kernel (no room is offered
 * for it).
 */
#ifndef COPPICE_CHANNEL_H
#define COPPICE_CHANNEL_H

#include "proto/must_check.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define CHANNEL_MAX_BYTES 65536u
#define CHANNEL_MAX_FDS 4u
#define CHANNEL_FOREVER UINT64_MAX /* as a time limit: none */

/* The other end as the kernel knows it. */
struct channel_peer {
	pid_t pid;
	uid_t uid;
	gid_t gid;
	int pidfd; /* owned; -1 where the kernel has none to give */
};

/* Descriptors that go with a packet, borrowed: CHANNEL_MAX_FDS at most. */
struct channel_fds {
	const int *at; /* [n] */
	unsigned n;
};

/* Room for descriptors that come with one. */
struct channel_fds_room {
	int *at; /* [n] */
	unsigned n; /* that there is room for, then that have come */
};

/* Socket path: $COPPICE_SOCKET, else /run/coppice/coppiced.sock. Static storage or the
 * environment's. */
const char *channel_default_path(void);

/* Listening, non-blocking, close-on-exec socket at path. A stale socket file (nobody answers) is
 * replaced; -EADDRINUSE where somebody does. mode: permission bits of the file. 0 or -errno. */
MUST_CHECK int channel_listen(const char *path, mode_t mode, int *ret_fd);
/* Connected socket, close-on-exec, blocking. -ENOENT, -ECONNREFUSED, -EACCES, -ENAMETOOLONG...;
 * -ETIMEDOUT: so many wait there already, and none was served within timeout_ns. */
MUST_CHECK int channel_connect(const char *path, uint64_t timeout_ns, int *ret_fd);
/* Credentials of a connected socket's peer, from the socket alone. 0 or -errno. */
MUST_CHECK int channel_peer(int fd, struct channel_peer *ret);

/* One packet; fds == NULL: without descriptors. flags: MSG_DONTWAIT or 0; SIGPIPE never comes. 0,
 * -EMSGSIZE, -EAGAIN, -EPIPE, ... */
MUST_CHECK int channel_send(int fd, const void *data, size_t bytes, const struct channel_fds *fds,
			    int flags);
/* One packet into data; bytes > 0. Received descriptors (close-on-exec) become the caller's;
 * surplus ones are closed; inout_fds == NULL: none are received. Returns the packet's length, 0 at
 * hang-up, -EMSGSIZE where it was longer than data, -errno. */
MUST_CHECK ssize_t channel_recv(int fd, void *data, size_t bytes,
				struct channel_fds_room *inout_fds, int flags);

/* A memfd of bytes (zeroed), close-on-exec, sealed against grow, shrink and more seals; read_only:
 * whoever receives it can map it for reading alone, while ret_map stays writable. ret_map: mapped
 * shared, MADV_DONTFORK. 0 or -errno. */
MUST_CHECK int channel_segment_new(const char *name, size_t bytes, int read_only, int *ret_fd,
				   void **ret_map);
/* Another description of a segment, for reading alone, with a place and flags of its own. 0 or
 * -errno. */
MUST_CHECK int channel_segment_reopen(int fd, int *ret_fd);
/* Keeps a segment from being a way for those who receive it to talk: its locks are all taken, and
 * only its owner can open it once more or change what is known of it. 0 or -errno. */
MUST_CHECK int channel_segment_keep(int fd);
/* A segment that others may map writable and punch holes into, until it is sealed. */
MUST_CHECK int channel_segment_new_open(const char *name, size_t bytes, int *ret_fd,
					void **ret_map);
/* From now on nobody makes a writable mapping of it, punches holes, or seals it further. 0, or
 * -errno: -EPERM where somebody else has. */
MUST_CHECK int channel_segment_seal(int fd);
/* Brings all pages of a mapping of one, which are of the calling process's account from then on,
 * whoever has them mapped, and for how long. Blocks. 0 or -ENOMEM. */
MUST_CHECK int channel_segment_fill(void *map, size_t bytes);
/* Are all its pages there? 0, or -errno: -ENODATA where some are not. */
MUST_CHECK int channel_segment_check_filled(int fd, size_t bytes);
/* Maps a received segment whole after checking its size and that it keeps it. 0 or -errno
 * (-EBADMSG). */
MUST_CHECK int channel_segment_map(int fd, size_t bytes, int writable, void **ret_map);
/* The same, so that what is written to it is this process's own; a forked child has it too. */
MUST_CHECK int channel_segment_map_own(int fd, size_t bytes, void **ret_map);

#endif
