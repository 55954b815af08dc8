/*
 * tier_file.c - see tier_file.h.
 *
 * Two descriptors of one file: one with O_DIRECT for pages, one through the page cache for head and journal; they
 * never touch the same blocks. A new file is made beside its name and renamed when it is whole.
 */
#include "tier_file.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#define MAX_DEPTH 1024u
#define BUFFER_BYTES ((size_t)1 << 30) /* of one registered buffer, the kernel's limit */

/* A read or write under way. */
struct file_op {
	struct file_op *next_free;
	void *tag;
	void *page;
	uint64_t bytes;
	uint32_t io_bytes;
	bool write;
	uint64_t checksum;
};

struct tier_file {
	struct io_uring ring;
	bool has_ring;
	int direct_fd; /* owned */
	int fd; /* owned, buffered; locked */
	uint64_t data_at;
	struct file_op *ops; /* owned */
	struct file_op *free_op;
	uint32_t n_under_way;
	char *registered; /* borrowed; NULL: none */
	size_t registered_bytes;
	struct tier_catalog catalog;
};

/* The sentence of why not; returns r. */
__attribute__((format(printf, 5, 6))) static int fail(int r, const char *path, char *error,
						      size_t error_bytes, const char *format, ...)
{
	char why[192];
	va_list args;

	va_start(args, format);
	vsnprintf(why, sizeof(why), format, args);
	va_end(args);
	snprintf(error, error_bytes, "tier file %s: %s", path, why);
	return r;
}

static uint64_t round_up(uint64_t n, uint64_t to)
{
	return (n + to - 1) / to * to;
}

static int open_errno(int r, const char *path, char *error, size_t error_bytes)
{
	return fail(r, path, error, error_bytes, "it cannot be opened: %s", strerror(-r));
}

/* Opens for pages, which only some file systems allow. */
static int open_direct(const char *path, int flags, int *ret, char *error, size_t error_bytes)
{
	int fd = open(path, flags | O_DIRECT | O_CLOEXEC);

	if (fd < 0 && errno == EINVAL)
		return fail(-EOPNOTSUPP, path, error, error_bytes,
			    "its file system has no direct I/O (O_DIRECT)");
	if (fd < 0)
		return open_errno(-errno, path, error, error_bytes);
	*ret = fd;
	return 0;
}

static int lock(int fd, const char *path, char *error, size_t error_bytes)
{
	if (!flock(fd, LOCK_EX | LOCK_NB))
		return 0;
	int r = errno == EWOULDBLOCK ? -EBUSY : -errno;
	return fail(r, path, error, error_bytes, "another process uses it");
}

/* All blocks of a new file, head last. */
static int file_fill(int fd, const struct tier_head *head, const char *path, char *error,
		     size_t error_bytes)
{
	struct tier_catalog catalog;
	uint64_t bytes = tier_head_file_bytes(head);
	int r = fallocate(fd, 0, 0, (off_t)bytes) ? -errno : 0;

	if (r == -EOPNOTSUPP)
		r = ftruncate(fd, (off_t)bytes) ? -errno : 0;
	if (r)
		return fail(r, path, error, error_bytes, "there is no room for %lu bytes: %s",
			    bytes, strerror(-r));
	r = tier_catalog_open(&catalog, fd, head, true);
	if (!r) {
		tier_catalog_close(&catalog);
		r = tier_head_write(fd, head);
	}
	return r ? fail(r, path, error, error_bytes, "it cannot be written: %s", strerror(-r)) : 0;
}

/* A new file under its name, or nothing. */
static int file_make(const struct tier_file_config *config, char *error, size_t error_bytes)
{
	char temporary[PATH_MAX];
	struct tier_head head;
	int r = tier_head_make(config->bytes, config->unit_bytes, config->chunk_units, &head);

	if (r)
		return fail(r, config->path, error, error_bytes,
			    "%lu bytes are too few, or the unit of %u is no multiple of 4 KiB: "
			    "%lu bytes at least",
			    config->bytes, config->unit_bytes,
			    tier_head_least_bytes(config->unit_bytes, config->chunk_units));
	int n = snprintf(temporary, sizeof(temporary), "%s.new", config->path);
	if (n < 0 || (size_t)n >= sizeof(temporary))
		return fail(-ENAMETOOLONG, config->path, error, error_bytes,
			    "its name is too long");
	int fd = open(temporary, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return open_errno(-errno, config->path, error, error_bytes);
	r = lock(fd, config->path, error, error_bytes);
	if (!r)
		r = file_fill(fd, &head, config->path, error, error_bytes);
	if (!r && rename(temporary, config->path))
		r = open_errno(-errno, config->path, error, error_bytes);
	if (r)
		unlink(temporary);
	close(fd);
	return r;
}

/* A regular file's length; -ENODATA where there is nothing yet. */
static int file_look(const char *path, uint64_t *ret_bytes, char *error, size_t error_bytes)
{
	struct stat st;

	if (stat(path, &st))
		return errno == ENOENT ? -ENODATA : open_errno(-errno, path, error, error_bytes);
	if (!S_ISREG(st.st_mode))
		return fail(-EINVAL, path, error, error_bytes, "it is no regular file");
	*ret_bytes = (uint64_t)st.st_size;
	return 0;
}

/* Head and journal of the file that is there. */
static int file_read(struct tier_file *f, const char *path, char *error, size_t error_bytes)
{
	struct tier_head head;
	struct stat st;
	char why[128];

	if (fstat(f->fd, &st))
		return open_errno(-errno, path, error, error_bytes);
	int r = tier_head_read(f->fd, (uint64_t)st.st_size, &head, why, sizeof(why));
	if (r)
		return fail(r, path, error, error_bytes, "%s", why);
	f->data_at = head.data_at;
	r = tier_catalog_open(&f->catalog, f->fd, &head, false);
	if (r)
		return fail(r, path, error, error_bytes, "its journal cannot be read: %s",
			    r == -EINVAL ? "no area of it has a head" : strerror(-r));
	return 0;
}

static int file_open_fds(struct tier_file *f, const struct tier_file_config *config, char *error,
			 size_t error_bytes)
{
	const char *path = config->path;
	uint64_t bytes = 0;
	int r = file_look(path, &bytes, error, error_bytes);

	if (r && r != -ENODATA)
		return r;
	if (!r)
		r = open_direct(path, O_RDWR, &f->direct_fd, error, error_bytes);
	if (r && r != -ENODATA)
		return r;
	if (r == -ENODATA || bytes == 0) {
		r = file_make(config, error, error_bytes);
		if (f->direct_fd >= 0)
			close(f->direct_fd);
		f->direct_fd = -1;
		if (!r)
			r = open_direct(path, O_RDWR, &f->direct_fd, error, error_bytes);
	}
	if (r)
		return r;
	f->fd = open(path, O_RDWR | O_CLOEXEC);
	if (f->fd < 0)
		return open_errno(-errno, path, error, error_bytes);
	return lock(f->fd, path, error, error_bytes);
}

static int file_open_ring(struct tier_file *f, uint32_t depth, const char *path, char *error,
			  size_t error_bytes)
{
	int r = io_uring_queue_init(depth, &f->ring, 0);

	if (r)
		return fail(r, path, error, error_bytes, "io_uring is refused: %s", strerror(-r));
	f->has_ring = true;
	r = io_uring_register_files(&f->ring, &f->direct_fd, 1);
	if (r)
		return fail(r, path, error, error_bytes, "io_uring registers no files: %s",
			    strerror(-r));
	f->ops = calloc(depth, sizeof(*f->ops));
	if (!f->ops)
		return fail(-ENOMEM, path, error, error_bytes, "no memory");
	for (uint32_t i = depth; i-- > 0;) {
		f->ops[i].next_free = f->free_op;
		f->free_op = &f->ops[i];
	}
	return 0;
}

int tier_file_open(const struct tier_file_config *config, struct tier_file **ret, char *error,
		   size_t error_bytes)
{
	if (config->depth == 0 || config->depth > MAX_DEPTH)
		return fail(-EINVAL, config->path, error, error_bytes,
			    "a depth of %u is not in 1 to %u", config->depth, MAX_DEPTH);
	struct tier_file *f = calloc(1, sizeof(*f));
	if (!f)
		return fail(-ENOMEM, config->path, error, error_bytes, "no memory");
	f->fd = -1;
	f->direct_fd = -1;
	int r = file_open_fds(f, config, error, error_bytes);
	if (!r)
		r = file_read(f, config->path, error, error_bytes);
	if (!r)
		r = file_open_ring(f, config->depth, config->path, error, error_bytes);
	if (r) {
		tier_file_close(f);
		return r;
	}
	*ret = f;
	return 0;
}

void tier_file_close(struct tier_file *f)
{
	struct tier_done done;

	if (!f)
		return;
	while (f->n_under_way > 0) {
		struct io_uring_cqe *cqe;
		io_uring_submit(&f->ring);
		int r = io_uring_wait_cqe(&f->ring, &cqe);
		if (r && r != -EINTR && r != -EAGAIN)
			break;
		while (tier_file_next(f, &done))
			;
	}
	if (f->has_ring)
		io_uring_queue_exit(&f->ring);
	if (f->direct_fd >= 0)
		close(f->direct_fd);
	if (f->fd >= 0)
		close(f->fd);
	tier_catalog_close(&f->catalog);
	free(f->ops);
	free(f);
}

struct tier_catalog *tier_file_catalog(struct tier_file *f)
{
	return &f->catalog;
}

int tier_file_register(struct tier_file *f, void *base, size_t bytes)
{
	size_t n = (bytes + BUFFER_BYTES - 1) / BUFFER_BYTES;
	struct iovec *buffers = calloc(n, sizeof(*buffers));

	if (!buffers)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		size_t at = i * BUFFER_BYTES;
		buffers[i].iov_base = (char *)base + at;
		buffers[i].iov_len = bytes - at < BUFFER_BYTES ? bytes - at : BUFFER_BYTES;
	}
	int r = io_uring_register_buffers(&f->ring, buffers, (unsigned)n);
	free(buffers);
	if (r)
		return r;
	f->registered = base;
	f->registered_bytes = bytes;
	return 0;
}

bool tier_file_has_room(const struct tier_file *f)
{
	return f->free_op != NULL;
}

/* The registered buffer that holds all of it; -1: none does. */
static int buffer_of(const struct tier_file *f, const char *page, uint32_t bytes)
{
	if (!f->registered || page < f->registered ||
	    page + bytes > f->registered + f->registered_bytes)
		return -1;
	size_t at = (size_t)(page - f->registered);
	return at / BUFFER_BYTES == (at + bytes - 1) / BUFFER_BYTES ? (int)(at / BUFFER_BYTES) : -1;
}

static void op_prepare(struct tier_file *f, struct file_op *op, uint32_t place)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&f->ring);
	uint64_t at = f->data_at + (uint64_t)place * f->catalog.unit_bytes;
	int buffer = buffer_of(f, op->page, op->io_bytes);

	assert(sqe); /* as many as operations */
	if (op->write && buffer >= 0)
		io_uring_prep_write_fixed(sqe, 0, op->page, op->io_bytes, at, buffer);
	else if (op->write)
		io_uring_prep_write(sqe, 0, op->page, op->io_bytes, at);
	else if (buffer >= 0)
		io_uring_prep_read_fixed(sqe, 0, op->page, op->io_bytes, at, buffer);
	else
		io_uring_prep_read(sqe, 0, op->page, op->io_bytes, at);
	io_uring_sqe_set_flags(sqe, IOSQE_FIXED_FILE);
	io_uring_sqe_set_data(sqe, op);
}

static void op_begin(struct tier_file *f, uint32_t place, const struct file_op *what)
{
	struct file_op *op = f->free_op;

	assert(op && (uintptr_t)what->page % TIER_HEAD_BYTES == 0);
	f->free_op = op->next_free;
	*op = *what;
	op->io_bytes = (uint32_t)round_up(what->bytes, TIER_HEAD_BYTES);
	f->n_under_way++;
	op_prepare(f, op, place);
}

void tier_file_write(struct tier_file *f, uint32_t place, void *page, uint64_t bytes, void *tag)
{
	op_begin(f, place,
		 &(struct file_op){.tag = tag,
				   .page = page,
				   .bytes = bytes,
				   .write = true,
				   .checksum = XXH3_64bits(page, bytes)});
}

void tier_file_read(struct tier_file *f, uint32_t place, void *page, uint64_t bytes, void *tag)
{
	op_begin(f, place,
		 &(struct file_op){.tag = tag,
				   .page = page,
				   .bytes = bytes,
				   .checksum = f->catalog.images[place]->checksum});
}

void tier_file_kick(struct tier_file *f)
{
	if (io_uring_sq_ready(&f->ring) > 0)
		io_uring_submit(&f->ring);
}

/* What a read brought is what was written, or it is nothing. */
static int op_result(const struct file_op *op, int result)
{
	if (result < 0)
		return result;
	if ((uint32_t)result != op->io_bytes)
		return -EIO;
	if (!op->write && XXH3_64bits(op->page, op->bytes) != op->checksum)
		return -EBADMSG;
	return 0;
}

bool tier_file_next(struct tier_file *f, struct tier_done *ret)
{
	struct io_uring_cqe *cqe;

	if (f->n_under_way == 0 || io_uring_peek_cqe(&f->ring, &cqe))
		return false;
	struct file_op *op = io_uring_cqe_get_data(cqe);
	*ret = (struct tier_done){
		.tag = op->tag,
		.result = op_result(op, cqe->res),
		.checksum = op->checksum,
	};
	io_uring_cqe_seen(&f->ring, cqe);
	op->next_free = f->free_op;
	f->free_op = op;
	f->n_under_way--;
	return true;
}

int tier_file_fd(const struct tier_file *f)
{
	return f->ring.ring_fd;
}

/* How many images are not what was written. */
static int verify_images(const struct tier_file *f, struct tier_report *report)
{
	struct tier_image **images;
	uint64_t n;
	int r = tier_catalog_images(&f->catalog, &images, &n);

	if (r)
		return r;
	for (uint64_t i = 0; i < n && !r; i++) {
		uint64_t bytes = f->catalog.models[images[i]->model - 1].page_bytes;
		uint64_t at = f->data_at + (uint64_t)images[i]->place * f->catalog.unit_bytes;
		void *page = malloc(bytes);
		if (!page)
			r = -ENOMEM;
		else if (pread(f->fd, page, bytes, (off_t)at) != (ssize_t)bytes ||
			 XXH3_64bits(page, bytes) != images[i]->checksum)
			report->n_bad++;
		free(page);
	}
	free(images);
	return r;
}

int tier_verify(const char *path, struct tier_report *ret, char *error, size_t error_bytes)
{
	struct tier_file f = {.direct_fd = -1};
	struct tier_report report;

	f.fd = open(path, O_RDONLY | O_CLOEXEC);
	if (f.fd < 0)
		return open_errno(-errno, path, error, error_bytes);
	int r = 0;
	if (flock(f.fd, LOCK_SH | LOCK_NB))
		r = fail(-EBUSY, path, error, error_bytes, "another process uses it");
	if (!r)
		r = file_read(&f, path, error, error_bytes);
	if (!r) {
		report = f.catalog.report;
		r = verify_images(&f, &report);
		tier_catalog_close(&f.catalog);
	}
	if (!r)
		*ret = report;
	close(f.fd);
	return r;
}
