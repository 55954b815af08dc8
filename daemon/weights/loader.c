/*
 * loader.c - a loader's life: descriptors, what they are, headers, data, end.
 *
 * It looks at no byte that it reads but the eight that say how long a header is. One core copies a
 * page cache more slowly than a device takes it, so two read a slot, a half each.
 */
#include "loader.h"

#include "wire.h"

#include "daemon/base/aside.h"
#include "proto/arith.h"
#include "proto/clock.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define NOBODY 65534
#define LENGTH_BYTES 8u /* of a safetensors header's length */

struct source {
	int fd; /* owned by the process */
	struct loader_file about;
	uint64_t header_bytes; /* its length's among them */
};

struct loader {
	uint8_t *slots;
	bool taken[LOADER_SLOTS]; /* by the daemon, until it says so */
	uint32_t n_sources;
	struct source sources[LOADER_FILES_MAX];
	struct aside aside; /* reads halves */
};

static bool say(const struct loader_message *message)
{
	return send(LOADER_DAEMON_FD, message, sizeof(*message), MSG_NOSIGNAL) == sizeof(*message);
}

static int fail(uint32_t file, enum loader_failure failure, int error)
{
	say(&(struct loader_message){
		.kind = LOADER_FAILED, .file = file, .failure = failure, .error = error});
	return EXIT_FAILURE;
}

static bool hear(struct loader_message *ret)
{
	ssize_t n;

	do
		n = recv(LOADER_DAEMON_FD, ret, sizeof(*ret), 0);
	while (n < 0 && errno == EINTR);
	return n == sizeof(*ret);
}

/* Hears until it is told to go on (-1), or that this slot is free. */
static bool hear_until(struct loader *l, int slot)
{
	struct loader_message message;

	while (slot < 0 || l->taken[slot]) {
		if (!hear(&message))
			return false;
		if (message.kind == LOADER_GO)
			return slot < 0;
		if (message.kind != LOADER_TAKEN || message.slot >= LOADER_SLOTS)
			return false;
		l->taken[message.slot] = false;
	}
	return true;
}

static bool hear_go(struct loader *l)
{
	return hear_until(l, -1);
}

/* ---- the client's descriptors --------------------------------------------------------------- */

static void take_fds(struct loader *l, struct msghdr *msg)
{
	struct cmsghdr *c = CMSG_FIRSTHDR(msg);
	uint32_t n;

	if (!c || c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
		return;
	n = (uint32_t)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
	for (uint32_t i = 0; i < n && i < LOADER_FILES_MAX; i++)
		memcpy(&l->sources[i].fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
	l->n_sources = n;
}

static bool hear_client(struct loader *l)
{
	static _Alignas(struct cmsghdr) char room[CMSG_SPACE(LOADER_FILES_MAX * sizeof(int))];
	char byte;
	struct iovec iov = {&byte, 1};
	struct msghdr msg = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = room,
			     .msg_controllen = sizeof(room)};
	ssize_t n;

	do
		n = recvmsg(LOADER_CLIENT_FD, &msg, MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (n == 1 && !(msg.msg_flags & MSG_CTRUNC))
		take_fds(l, &msg);
	return l->n_sources > 0;
}

/* 0, or why not. */
static enum loader_failure look(int fd, struct loader_file *ret)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return LOADER_BAD_STAT;
	if (!S_ISREG(st.st_mode))
		return LOADER_NOT_REGULAR;
	if (st.st_size < (off_t)LENGTH_BYTES)
		return LOADER_TOO_SHORT;
	*ret = (struct loader_file){.dev = st.st_dev,
				    .ino = st.st_ino,
				    .bytes = (uint64_t)st.st_size,
				    .mtime_ns = (int64_t)clock_timespec_ns(st.st_mtim),
				    .ctime_ns = (int64_t)clock_timespec_ns(st.st_ctim)};
	return 0;
}

static int look_at_all(struct loader *l)
{
	static struct {
		struct loader_message head;
		struct loader_file files[LOADER_FILES_MAX];
	} packet;
	uint32_t n = l->n_sources;
	size_t bytes = sizeof(packet.head) + n * sizeof(packet.files[0]);

	packet.head = (struct loader_message){.kind = LOADER_FILES, .file = n};
	for (uint32_t i = 0; i < n; i++) {
		enum loader_failure failure = look(l->sources[i].fd, &l->sources[i].about);

		if (failure)
			return fail(i, failure, errno);
		packet.files[i] = l->sources[i].about;
	}
	return send(LOADER_DAEMON_FD, &packet, bytes, MSG_NOSIGNAL) == (ssize_t)bytes
		       ? 0
		       : EXIT_FAILURE;
}

/* ---- reading -------------------------------------------------------------------------------- */

struct piece {
	int fd;
	char *to;
	uint64_t bytes, offset;
	enum loader_failure failure; /* 0: it has been read */
	int error;
};

static void piece_read(void *arg)
{
	struct piece *piece = arg;

	while (piece->bytes > 0) {
		ssize_t n = pread(piece->fd, piece->to, piece->bytes, (off_t)piece->offset);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			piece->failure = n < 0 ? LOADER_BAD_READ : LOADER_CUT_OFF;
			piece->error = errno;
			return;
		}
		piece->to += n;
		piece->offset += (uint64_t)n;
		piece->bytes -= (uint64_t)n;
	}
}

static int read_at(struct loader *l, uint32_t file, void *to, uint64_t bytes, uint64_t offset)
{
	const uint64_t half = bytes < 2 * ASIDE_LEAST_BYTES ? 0 : bytes / 2;
	const int fd = l->sources[file].fd;
	struct piece first = {.fd = fd, .to = to, .bytes = bytes - half, .offset = offset};
	struct piece second = {.fd = fd,
			       .to = first.to + first.bytes,
			       .bytes = half,
			       .offset = offset + first.bytes};

	if (half > 0)
		aside_begin(&l->aside, piece_read, &second);
	piece_read(&first);
	if (half > 0)
		aside_end(&l->aside);
	if (first.failure)
		return fail(file, first.failure, first.error);
	return second.failure ? fail(file, second.failure, second.error) : 0;
}

/* Bytes [begin, end) of a file, a slot after the other. */
static int bring(struct loader *l, uint32_t file, uint64_t begin, uint64_t end)
{
	static uint32_t turn;

	while (begin < end) {
		uint32_t slot = turn++ % LOADER_SLOTS;
		uint64_t left = end - begin;
		uint64_t bytes = min_u64(left, LOADER_SLOT_BYTES);
		const struct loader_message piece = {.kind = LOADER_PIECE,
						     .file = file,
						     .slot = slot,
						     .offset = begin,
						     .bytes = bytes};

		if (!hear_until(l, (int)slot))
			return EXIT_FAILURE;
		int r = read_at(l, file, l->slots + (uint64_t)slot * LOADER_SLOT_BYTES, bytes,
				begin);

		if (r)
			return r;
		l->taken[slot] = true;
		if (!say(&piece))
			return EXIT_FAILURE;
		begin += bytes;
	}
	return 0;
}

static int bring_header(struct loader *l, uint32_t file)
{
	struct source *source = &l->sources[file];
	uint64_t n;
	int r = read_at(l, file, &n, LENGTH_BYTES, 0);

	if (r)
		return r;
	n = le64toh(n);
	if (n > LOADER_HEADER_BYTES_MAX || n > source->about.bytes - LENGTH_BYTES)
		return fail(file, LOADER_BAD_HEADER, 0);
	source->header_bytes = LENGTH_BYTES + n;
	return bring(l, file, 0, source->header_bytes);
}

/* The daemon has bytes of one state of the file, or none. */
static int look_again(struct loader *l, uint32_t file)
{
	struct loader_file now;
	enum loader_failure failure = look(l->sources[file].fd, &now);

	if (failure)
		return fail(file, failure, errno);
	if (memcmp(&now, &l->sources[file].about, sizeof(now)) != 0)
		return fail(file, LOADER_CHANGED, 0);
	return 0;
}

static int bring_all(struct loader *l)
{
	int r = 0;

	for (uint32_t i = 0; i < l->n_sources && r == 0; i++)
		r = bring_header(l, i);
	if (r || !hear_go(l))
		return EXIT_FAILURE;
	for (uint32_t i = 0; i < l->n_sources && r == 0; i++) {
		(void)posix_fadvise(l->sources[i].fd, 0, 0, POSIX_FADV_SEQUENTIAL);
		r = bring(l, i, l->sources[i].header_bytes, l->sources[i].about.bytes);
	}
	for (uint32_t i = 0; i < l->n_sources && r == 0; i++)
		r = look_again(l, i);
	if (r == 0 && !say(&(struct loader_message){.kind = LOADER_END}))
		return EXIT_FAILURE;
	return r;
}

/* ---- the process ---------------------------------------------------------------------------- */

/* Whatever it is given, it can do nothing but read it. */
static bool give_up_rights(void)
{
	bool root = geteuid() == 0;

	if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return false;
	if (root && (setgroups(0, NULL) < 0 || setresgid(NOBODY, NOBODY, NOBODY) < 0 ||
		     setresuid(NOBODY, NOBODY, NOBODY) < 0))
		return false;
	/* Another user's now: the death signal was forgotten. */
	if (root && prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
		return false;
	return prctl(PR_SET_DUMPABLE, 0) == 0;
}

int loader_run(void)
{
	static struct loader l;
	int r;

	if (!give_up_rights())
		return EXIT_FAILURE;
	l.slots = mmap(NULL, LOADER_SLOTS_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED,
		       LOADER_SLOTS_FD, 0);
	if (l.slots == MAP_FAILED)
		return EXIT_FAILURE;
	if (!hear_client(&l))
		return fail(0, LOADER_BAD_MESSAGE, 0);
	close(LOADER_CLIENT_FD);
	r = look_at_all(&l);
	if (r == 0 && hear_go(&l)) {
		aside_init(&l.aside, NULL);
		r = bring_all(&l);
		aside_done(&l.aside);
	}
	/* The daemon kills it, so that a close that hangs keeps nobody but this process; and a
	 * reason that is on its way is heard, as the end of a process may be heard before it. */
	while (hear(&(struct loader_message){0}))
		continue;
	return r;
}
