/*
 * tier_file.c - pages in and out of a file, and the file itself.
 *
 * Two descriptors of one file: one with O_DIRECT for pages, one through the page cache for head and
 * journal; they never touch the same blocks. A new file is made beside its name and renamed when it
 * is whole.
 *
 * Operations wait for the next kick; those that follow one another in the file go to the system as
 * one, a run: a request costs a disk much the same whatever its size. A run that does not come back
 * whole is done again one by one, so that what is wrong with an operation is no other's loss.
 */
#include "tier_file.h"

#include "proto/arith.h"
#include "proto/cleanup.h"
#include "proto/size_text.h"

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
#include <sys/queue.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#define MAX_DEPTH 1024u
#define BUFFER_BYTES ((size_t)1 << 30) /* of one registered buffer, the kernel's limit */
#define RUN_BYTES (1u << 20) /* where a run ends */
#define RUN_OPS 32u

/* A read or write under way: it waits, is the first of a run or comes behind one, or has ended. */
struct file_op {
	STAILQ_ENTRY(file_op) link; /* of whichever list */
	void *tag;
	void *page;
	uint64_t at; /* in the file */
	uint64_t bytes;
	uint32_t io_bytes;
	bool write;
	bool alone; /* it was in a run that failed */
	uint64_t checksum;
	int result; /* once it has ended: as the system says */
	/* The first of a run: */
	STAILQ_HEAD(, file_op) others;
	uint64_t run_bytes;
	struct iovec parts[RUN_OPS];
};

STAILQ_HEAD(file_ops, file_op);

struct tier_file {
	struct io_uring ring;
	bool has_ring;
	int direct_fd; /* owned */
	int fd; /* owned, buffered; locked */
	uint64_t data_at;
	struct file_op *ops; /* owned */
	struct file_ops free_ops, waiting, ended;
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
	const struct size_text bytes = size_text(config->bytes, config->typed_in);
	const struct size_text unit = size_text(config->unit_bytes, 0);
	int r = tier_head_make(config->bytes, config->unit_bytes, config->chunk_units, &head);

	if (r == -EFBIG)
		return fail(r, config->path, error, error_bytes,
			    "%s is too much: fewer than %lu units of %s", bytes.text,
			    (unsigned long)TIER_NONE, unit.text);
	if (r)
		return fail(r, config->path, error, error_bytes,
			    "%s is too little, or the unit of %s is no multiple of 4K: %lu bytes "
			    "at least",
			    bytes.text, unit.text,
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
	for (uint32_t i = 0; i < depth; i++)
		STAILQ_INSERT_TAIL(&f->free_ops, &f->ops[i], link);
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
	STAILQ_INIT(&f->free_ops);
	STAILQ_INIT(&f->waiting);
	STAILQ_INIT(&f->ended);
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
		while (tier_file_next(f, &done))
			;
		tier_file_kick(f);
		int r = f->n_under_way > 0 ? io_uring_wait_cqe(&f->ring, &cqe) : 0;
		if (r && r != -EINTR && r != -EAGAIN)
			break;
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
	size_t n = ceil_div_u64(bytes, BUFFER_BYTES);
	struct iovec *buffers = calloc(n, sizeof(*buffers));

	if (!buffers)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		size_t at = i * BUFFER_BYTES;
		buffers[i].iov_base = (char *)base + at;
		buffers[i].iov_len = min_u64(bytes - at, BUFFER_BYTES);
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
	return !STAILQ_EMPTY(&f->free_ops);
}

/* The registered buffer that holds all of it; -1: none does. */
static int buffer_of(const struct tier_file *f, const char *page, uint64_t bytes)
{
	if (!f->registered || page < f->registered ||
	    page + bytes > f->registered + f->registered_bytes)
		return -1;
	size_t at = (size_t)(page - f->registered);
	return at / BUFFER_BYTES == (at + bytes - 1) / BUFFER_BYTES ? (int)(at / BUFFER_BYTES) : -1;
}

static void op_begin(struct tier_file *f, uint32_t place, const struct file_op *what)
{
	struct file_op *op = STAILQ_FIRST(&f->free_ops);

	assert(op && (uintptr_t)what->page % TIER_HEAD_BYTES == 0);
	STAILQ_REMOVE_HEAD(&f->free_ops, link);
	*op = *what;
	op->at = f->data_at + (uint64_t)place * f->catalog.unit_bytes;
	op->io_bytes = (uint32_t)round_up(what->bytes, TIER_HEAD_BYTES);
	f->n_under_way++;
	STAILQ_INSERT_TAIL(&f->waiting, op, link);
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

/* ---- runs ----------------------------------------------------------------------------------- */

/* Does the run, of so many parts, go on with this operation? */
static bool run_takes(const struct file_op *run, uint32_t n_parts, const struct file_op *op)
{
	return op && !run->alone && !op->alone && op->write == run->write &&
	       op->at == run->at + run->run_bytes && n_parts < RUN_OPS &&
	       run->run_bytes + op->io_bytes <= RUN_BYTES;
}

/* Takes a run from those that wait. Returns how many pieces of memory it has: what lies together is
 * one. */
static uint32_t run_take(struct tier_file *f)
{
	struct file_op *run = STAILQ_FIRST(&f->waiting), *op = run;
	uint32_t n_parts = 0;

	run->run_bytes = 0;
	STAILQ_INIT(&run->others);
	do {
		struct iovec *last = n_parts > 0 ? &run->parts[n_parts - 1] : NULL;

		STAILQ_REMOVE_HEAD(&f->waiting, link);
		if (op != run)
			STAILQ_INSERT_TAIL(&run->others, op, link);
		if (last && (char *)last->iov_base + last->iov_len == op->page)
			last->iov_len += op->io_bytes;
		else
			run->parts[n_parts++] = (struct iovec){op->page, op->io_bytes};
		run->run_bytes += op->io_bytes;
		op = STAILQ_FIRST(&f->waiting);
	} while (run_takes(run, n_parts, op));
	return n_parts;
}

static void run_prepare(struct tier_file *f, struct file_op *run, uint32_t n_parts)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&f->ring);
	unsigned bytes = (unsigned)run->run_bytes;
	int buffer = n_parts == 1 ? buffer_of(f, run->page, bytes) : -1;

	assert(sqe); /* as many as operations */
	if (run->write && buffer >= 0)
		io_uring_prep_write_fixed(sqe, 0, run->page, bytes, run->at, buffer);
	else if (run->write)
		io_uring_prep_writev(sqe, 0, run->parts, n_parts, run->at);
	else if (buffer >= 0)
		io_uring_prep_read_fixed(sqe, 0, run->page, bytes, run->at, buffer);
	else
		io_uring_prep_readv(sqe, 0, run->parts, n_parts, run->at);
	io_uring_sqe_set_flags(sqe, IOSQE_FIXED_FILE);
	io_uring_sqe_set_data(sqe, run);
}

void tier_file_kick(struct tier_file *f)
{
	while (!STAILQ_EMPTY(&f->waiting)) {
		struct file_op *run = STAILQ_FIRST(&f->waiting);

		run_prepare(f, run, run_take(f));
	}
	if (io_uring_sq_ready(&f->ring) > 0)
		io_uring_submit(&f->ring);
}

/* A run that is not whole waits again, each operation alone; what was alone anyway has ended so. */
static void run_end(struct tier_file *f, struct file_op *run, int result)
{
	bool whole = result >= 0 && (uint64_t)result == run->run_bytes;
	struct file_ops *to = whole || STAILQ_EMPTY(&run->others) ? &f->ended : &f->waiting;
	struct file_ops others = STAILQ_HEAD_INITIALIZER(others);
	struct file_op *op;

	STAILQ_CONCAT(&others, &run->others);
	STAILQ_INSERT_HEAD(&others, run, link);
	STAILQ_FOREACH (op, &others, link) {
		op->alone = !whole;
		op->result = whole ? (int)op->io_bytes : result;
	}
	STAILQ_CONCAT(to, &others);
}

/* What a read brought is what was written, or it is nothing. */
static int op_result(const struct file_op *op)
{
	if (op->result < 0)
		return op->result;
	if ((uint32_t)op->result != op->io_bytes)
		return -EIO;
	if (!op->write && XXH3_64bits(op->page, op->bytes) != op->checksum)
		return -EBADMSG;
	return 0;
}

/* Runs that the system is done with, until something has ended. */
static void look_at_runs(struct tier_file *f)
{
	struct io_uring_cqe *cqe;

	while (STAILQ_EMPTY(&f->ended) && !io_uring_peek_cqe(&f->ring, &cqe)) {
		struct file_op *run = io_uring_cqe_get_data(cqe);
		int result = cqe->res;

		io_uring_cqe_seen(&f->ring, cqe);
		run_end(f, run, result);
		if (STAILQ_EMPTY(&f->ended))
			tier_file_kick(f);
	}
}

bool tier_file_next(struct tier_file *f, struct tier_done *ret)
{
	struct file_op *op;

	if (f->n_under_way > 0)
		look_at_runs(f);
	op = STAILQ_FIRST(&f->ended);
	if (!op)
		return false;
	STAILQ_REMOVE_HEAD(&f->ended, link);
	*ret = (struct tier_done){
		.tag = op->tag,
		.result = op_result(op),
		.checksum = op->checksum,
	};
	STAILQ_INSERT_HEAD(&f->free_ops, op, link);
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
	CLEANUP_FREE struct tier_image **images = NULL;
	uint64_t n;
	int r = tier_catalog_images(&f->catalog, &images, &n);

	if (r)
		return r;
	for (uint64_t i = 0; i < n && !r; i++) {
		uint64_t bytes = f->catalog.models[images[i]->model - 1].model.page_bytes;
		uint64_t at = f->data_at + (uint64_t)images[i]->place * f->catalog.unit_bytes;
		CLEANUP_FREE void *page = malloc(bytes);
		if (!page)
			r = -ENOMEM;
		else if (pread(f->fd, page, bytes, (off_t)at) != (ssize_t)bytes ||
			 XXH3_64bits(page, bytes) != images[i]->checksum)
			report->n_bad++;
	}
	return r;
}

int tier_verify(const char *path, struct tier_report *ret, char *error, size_t error_bytes)
{
	struct tier_file f = {.direct_fd = -1};
	struct tier_report report;
	uint64_t bytes;
	int r = file_look(path, &bytes, error, error_bytes);

	if (r && r != -ENODATA)
		return r;
	f.fd = open(path, O_RDONLY | O_CLOEXEC);
	if (f.fd < 0)
		return open_errno(-errno, path, error, error_bytes);
	r = 0;
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
