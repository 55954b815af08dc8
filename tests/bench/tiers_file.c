/*
 * tiers_file.c - pages of 128 KiB to the tier file and back, many at a time and each with its
 * checksum, against plain sequential reads and writes of that file. Both have memory in huge pages,
 * as host_tier has: a disk that is told of each small page apart reads at a third of its speed.
 */
#include "tiers.h"

#if defined(BENCH_HAVE_KERNELS) && defined(BENCH_HAVE_KVSTORE)
#include "bench.h"
#include "kvstore/files/tier_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define HUGE_BYTES (2u << 20)
#define PAGE_BYTES 131072u
#define CHUNK_UNITS 256u
#define DEPTH 64u
#define N_PAGES 8192u /* 1 GiB */
#define PLAIN_BYTES (1u << 20) /* at most */
#define ROUNDS 3u /* through all pages */
#define WINDOW_PAGES 1024u /* read by each, in turn: disks have their moods */
#define WINDOWS (N_PAGES / WINDOW_PAGES)

struct file {
	struct tier_file *file; /* owned */
	char *memory; /* owned: DEPTH pages, in huge ones */
	uint32_t model;
	uint32_t *places; /* owned */
	uint64_t *checksums; /* owned */
};

/* Pages [first, end): page i passes through place i % DEPTH of memory. -EBADMSG, ...: as the file
 * says. */
static int stream(struct file *f, bool write, uint32_t first, uint32_t end)
{
	uint32_t begun = first, ended = first;
	struct tier_done done;
	bool free_at[DEPTH];

	memset(free_at, 1, sizeof(free_at));
	while (ended < end) {
		for (; begun < end && free_at[begun % DEPTH] && tier_file_has_room(f->file);
		     begun++) {
			void *page = f->memory + begun % DEPTH * PAGE_BYTES;
			free_at[begun % DEPTH] = false;
			if (write)
				tier_file_write(f->file, f->places[begun], page, PAGE_BYTES,
						&f->checksums[begun]);
			else
				tier_file_read(f->file, f->places[begun], page, PAGE_BYTES,
					       &f->checksums[begun]);
		}
		tier_file_kick(f->file);
		for (uint32_t i = 0; i < PLAIN_BYTES / PAGE_BYTES && tier_file_next(f->file, &done);
		     i++) {
			uint64_t *checksum = done.tag;
			if (done.result)
				return done.result;
			*checksum = done.checksum;
			free_at[(checksum - f->checksums) % DEPTH] = true;
			ended++;
		}
	}
	return 0;
}

static int keep_images(struct file *f)
{
	int r = 0;

	for (uint32_t i = 0; i < N_PAGES && !r; i++) {
		struct {
			struct tier_image image;
			uint32_t token;
		} any = {.image = {.checksum = f->checksums[i],
				   .place = f->places[i],
				   .before = i ? f->places[i - 1] : TIER_NONE,
				   .model = f->model,
				   .pos = i,
				   .n_tokens = 1},
			 .token = i};
		r = tier_catalog_keep(tier_file_catalog(f->file), &any.image);
	}
	return r;
}

/* Seconds of reading or writing bytes [from, to) one after the other, so many at a time. */
static int plain(const struct file *f, const char *path, bool write, uint32_t block_bytes,
		 uint64_t from, uint64_t to, double *ret_s)
{
	int fd =
		open(path, (write ? O_WRONLY | O_CREAT | O_TRUNC : O_RDONLY) | O_DIRECT | O_CLOEXEC,
		     0600);
	int r = fd < 0 ? -EIO : 0;
	uint64_t start_ns = clock_now_ns();

	for (uint64_t at = from; at < to && !r; at += block_bytes) {
		ssize_t n = write ? pwrite(fd, f->memory, block_bytes, (off_t)at)
				  : pread(fd, f->memory, block_bytes, (off_t)at);
		r = n == block_bytes ? 0 : -EIO;
	}
	*ret_s = (double)(clock_now_ns() - start_ns) / 1e9;
	if (fd >= 0)
		close(fd);
	return r;
}

static int memory_new(char **ret)
{
	char *memory = aligned_alloc(HUGE_BYTES, DEPTH * PAGE_BYTES);

	if (!memory)
		return -ENOMEM;
	madvise(memory, DEPTH * PAGE_BYTES, MADV_HUGEPAGE);
	for (uint32_t i = 0; i < DEPTH * PAGE_BYTES; i++)
		memory[i] = (char)(i * 2654435761u >> 24);
	*ret = memory;
	return 0;
}

static int prepare(struct file *f, const char *path)
{
	const struct tier_file_config config = {.path = path,
						.bytes = (uint64_t)N_PAGES * PAGE_BYTES * 5 / 4,
						.unit_bytes = PAGE_BYTES,
						.chunk_units = CHUNK_UNITS,
						.depth = DEPTH};
	struct tier_model model = {.page_bytes = PAGE_BYTES, .page_tokens = 1, .name = "bench"};
	char why[400] = "";
	int r = tier_file_open(&config, &f->file, why, sizeof(why));

	if (r) {
		fprintf(stderr, "coppice-bench: %s\n", why);
		return r;
	}
	f->places = calloc(N_PAGES, sizeof(*f->places));
	f->checksums = calloc(N_PAGES, sizeof(*f->checksums));
	if (!f->places || !f->checksums)
		return -ENOMEM;
	for (uint32_t i = 0; i < N_PAGES; i++)
		f->places[i] = tier_room_take(&tier_file_catalog(f->file)->room, 1);
	if (tier_file_register(f->file, f->memory, DEPTH * PAGE_BYTES) != 0)
		fprintf(stderr,
			"coppice-bench: memory is not registered, and pinned anew each time\n");
	return tier_catalog_model(tier_file_catalog(f->file), &model, &f->model);
}

static int timed(struct file *f, bool write, uint32_t first, uint32_t end, double *ret_s)
{
	uint64_t start_ns = clock_now_ns();
	int r = stream(f, write, first, end);

	*ret_s = (double)(clock_now_ns() - start_ns) / 1e9;
	return r;
}

enum way { WAY_FILE, WAY_PLAIN, WAY_PLAIN_PAGE, WAYS };

/* Seconds a window, of all rounds. */
struct reads {
	double s[WAYS][ROUNDS * WINDOWS];
};

/* The same window of the file, of the plain file in large blocks, or in pages. */
static int window_read(struct file *f, const char *plain_path, enum way way, uint32_t window,
		       double *ret_s)
{
	uint32_t first = window * WINDOW_PAGES, end = first + WINDOW_PAGES;

	if (way == WAY_FILE)
		return timed(f, false, first, end, ret_s);
	return plain(f, plain_path, false, way == WAY_PLAIN ? PLAIN_BYTES : PAGE_BYTES,
		     (uint64_t)first * PAGE_BYTES, (uint64_t)end * PAGE_BYTES, ret_s);
}

/* Window by window, one way after the other and each of them first in its turn. */
static int compare(struct file *f, const char *plain_path, struct reads *ret)
{
	int r = 0;

	for (uint32_t i = 0; i < ROUNDS * WINDOWS; i++)
		for (uint32_t j = 0; j < WAYS && !r; j++) {
			enum way way = (i + j) % WAYS;
			r = window_read(f, plain_path, way, i % WINDOWS, &ret->s[way][i]);
		}
	return r;
}

static void print_rate(const char *name, const char *metric, double bytes, double s)
{
	bench_print("tiers", name, metric, bytes / s / 1e9, "GB/s");
}

/* The median of how much faster than the plain way the file was, in the same window. */
static void print_ratio(const struct reads *reads, enum way way, const char *metric)
{
	double ratios[ROUNDS * WINDOWS];

	for (uint32_t i = 0; i < ROUNDS * WINDOWS; i++)
		ratios[i] = reads->s[way][i] / reads->s[WAY_FILE][i];
	bench_print("tiers", "file 128K", metric, bench_median(ratios, ROUNDS * WINDOWS), "1");
}

static void print_reads(struct reads *reads)
{
	static const char *const names[WAYS] = {"file 128K", "file plain 1M", "file plain 128K"};

	print_ratio(reads, WAY_PLAIN, "read_of_plain_1M");
	print_ratio(reads, WAY_PLAIN_PAGE, "read_of_plain_128K");
	for (enum way way = 0; way < WAYS; way++)
		print_rate(names[way], "read", (double)WINDOW_PAGES * PAGE_BYTES,
			   bench_median(reads->s[way], ROUNDS * WINDOWS));
}

int tiers_file(const struct tiers_options *o)
{
	const uint64_t bytes = (uint64_t)N_PAGES * PAGE_BYTES;
	double write_s, plain_write_s;
	struct file f = {0};
	struct reads reads;
	char path[4200];

	snprintf(path, sizeof(path), "%s.plain", o->file);
	int r = memory_new(&f.memory);
	if (!r)
		r = plain(&f, path, true, PLAIN_BYTES, 0, bytes, &plain_write_s);
	if (!r)
		r = prepare(&f, o->file);
	if (!r)
		r = timed(&f, true, 0, N_PAGES, &write_s);
	if (!r)
		r = keep_images(&f);
	if (!r)
		r = compare(&f, path, &reads);
	if (!r) {
		print_rate("file 128K", "write", (double)bytes, write_s);
		print_rate("file plain 1M", "write", (double)bytes, plain_write_s);
		print_reads(&reads);
	}
	tier_file_close(f.file);
	unlink(path);
	unlink(o->file);
	free(f.memory);
	free(f.places);
	free(f.checksums);
	return r;
}
#endif
