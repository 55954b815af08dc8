/*
 * tiers_file.c - pages of 128 KiB to the tier file and back, many at a time and each with its checksum, against plain
 * sequential reads and writes of that file.
 */
#include "tiers.h"

#if defined(BENCH_HAVE_KERNELS) && defined(BENCH_HAVE_KVSTORE)
#include "bench.h"
#include "kvstore/tier_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE_BYTES 131072u
#define CHUNK_UNITS 256u
#define DEPTH 32u
#define N_PAGES 8192u /* 1 GiB */
#define PLAIN_BYTES (1u << 20) /* at most */
#define ROUNDS 3u /* of each, in turn: disks have their moods */

struct file {
	struct tier_file *file; /* owned */
	char *memory; /* owned: DEPTH pages */
	uint32_t model;
	uint32_t *places; /* owned */
	uint64_t *checksums; /* owned */
};

/* Page i passes through place i % DEPTH of memory. -EBADMSG, ...: as the file says. */
static int stream(struct file *f, bool write)
{
	uint32_t begun = 0, ended = 0;
	struct tier_done done;
	bool free_at[DEPTH];

	memset(free_at, 1, sizeof(free_at));
	while (ended < N_PAGES) {
		for (; begun < N_PAGES && free_at[begun % DEPTH] && tier_file_has_room(f->file);
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
		while (tier_file_next(f->file, &done)) {
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

/* Seconds of reading or writing as many bytes one after the other, so many at a time. */
static int plain(const char *path, bool write, uint32_t block_bytes, double *ret_s)
{
	int fd =
		open(path, (write ? O_WRONLY | O_CREAT | O_TRUNC : O_RDONLY) | O_DIRECT | O_CLOEXEC,
		     0600);
	void *block = aligned_alloc(4096, PLAIN_BYTES);
	uint64_t start_ns = bench_now_ns();
	int r = fd < 0 || !block ? -EIO : 0;

	for (uint64_t at = 0; at < (uint64_t)N_PAGES * PAGE_BYTES && !r; at += block_bytes) {
		if (write && at == 0)
			memset(block, 7, PLAIN_BYTES);
		ssize_t n = write ? pwrite(fd, block, block_bytes, (off_t)at)
				  : pread(fd, block, block_bytes, (off_t)at);
		r = n == block_bytes ? 0 : -EIO;
	}
	*ret_s = (double)(bench_now_ns() - start_ns) / 1e9;
	free(block);
	if (fd >= 0)
		close(fd);
	return r;
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
	f->memory = mmap(NULL, DEPTH * PAGE_BYTES, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	f->places = calloc(N_PAGES, sizeof(*f->places));
	f->checksums = calloc(N_PAGES, sizeof(*f->checksums));
	if (f->memory == MAP_FAILED || !f->places || !f->checksums)
		return -ENOMEM;
	for (uint32_t i = 0; i < DEPTH * PAGE_BYTES; i++)
		f->memory[i] = (char)(i * 2654435761u >> 24);
	for (uint32_t i = 0; i < N_PAGES; i++)
		f->places[i] = tier_room_take(&tier_file_catalog(f->file)->room, 1);
	tier_file_register(f->file, f->memory, DEPTH * PAGE_BYTES);
	return tier_catalog_model(tier_file_catalog(f->file), &model, &f->model);
}

static int timed(struct file *f, bool write, double *ret_s)
{
	uint64_t start_ns = bench_now_ns();
	int r = stream(f, write);

	*ret_s = (double)(bench_now_ns() - start_ns) / 1e9;
	return r;
}

/* Of all rounds. */
struct reads {
	double s[ROUNDS], plain_s[ROUNDS],
		plain_page_s[ROUNDS]; /* plain: in large blocks, in pages */
};

/* The file's reads and plain ones in turn. */
static int compare(struct file *f, const char *plain_path, struct reads *ret)
{
	int r = 0;

	for (uint32_t i = 0; i < ROUNDS && !r; i++) {
		r = plain(plain_path, false, PLAIN_BYTES, &ret->plain_s[i]);
		if (!r)
			r = plain(plain_path, false, PAGE_BYTES, &ret->plain_page_s[i]);
		if (!r)
			r = timed(f, false, &ret->s[i]);
	}
	return r;
}

static void print(const char *name, const char *metric, double s)
{
	bench_print("tiers", name, metric, (double)N_PAGES * PAGE_BYTES / s / 1e9, "GB/s");
}

int tiers_file(const struct tiers_options *o)
{
	double write_s, plain_write_s;
	struct file f = {0};
	struct reads reads;
	char path[4200];

	snprintf(path, sizeof(path), "%s.plain", o->file);
	int r = plain(path, true, PLAIN_BYTES, &plain_write_s);
	if (!r)
		r = prepare(&f, o->file);
	if (!r)
		r = timed(&f, true, &write_s);
	if (!r)
		r = keep_images(&f);
	if (!r)
		r = compare(&f, path, &reads);
	if (!r) {
		double s = bench_median(reads.s, ROUNDS);
		double plain_s = bench_median(reads.plain_s, ROUNDS);
		double page_s = bench_median(reads.plain_page_s, ROUNDS);

		print("file 128K", "write", write_s);
		print("file plain 1M", "write", plain_write_s);
		print("file 128K", "read", s);
		print("file plain 1M", "read", plain_s);
		print("file plain 128K", "read", page_s);
		bench_print("tiers", "file 128K", "read_of_plain_1M", plain_s / s, "1");
		bench_print("tiers", "file 128K", "read_of_plain_128K", page_s / s, "1");
	}
	tier_file_close(f.file);
	unlink(path);
	unlink(o->file);
	free(f.places);
	free(f.checksums);
	return r;
}
#endif
