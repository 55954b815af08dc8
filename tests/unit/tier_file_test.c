/*
 * tier_file_test.c - the file of the NVMe tier: pages there and back, its catalog across restarts, and bad files.
 *
 * A page holds a pattern of its number. Every test has a directory of its own beside the test's binary, as the place for
 * temporary files may be a file system without direct I/O.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kvstore/tier_file.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define UNIT 4096u
#define CHUNK 8u
#define PAGE_BYTES 6000u /* two units */
#define N_PAGES 16u
#define DOMAIN 7u

struct fixture {
	char directory[64];
	char path[80];
	struct tier_file *file;
	char *memory; /* owned: [N_PAGES][2 * UNIT] */
	uint32_t model;
	char error[256];
};

static struct tier_file_config config_of(const struct fixture *f)
{
	return (struct tier_file_config){
		.path = f->path,
		.bytes = 1 << 20,
		.unit_bytes = UNIT,
		.chunk_units = CHUNK,
		.depth = 4,
	};
}

static int config_open(struct fixture *f, const struct tier_file_config *config)
{
	f->error[0] = 0;
	int r = tier_file_open(config, &f->file, f->error, sizeof(f->error));
	assert_true(!r == !f->error[0]);
	return r;
}

static int file_open(struct fixture *f)
{
	const struct tier_file_config config = config_of(f);

	return config_open(f, &config);
}

static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	strcpy(f->directory, "tier_file_test.XXXXXX");
	assert_non_null(mkdtemp(f->directory));
	snprintf(f->path, sizeof(f->path), "%s/kv", f->directory);
	f->memory = aligned_alloc(UNIT, N_PAGES * 2 * UNIT);
	memset(f->memory, 0, N_PAGES * 2 * UNIT);
	*state = f;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;

	tier_file_close(f->file);
	unlink(f->path);
	assert_int_equal(rmdir(f->directory), 0); /* and nothing else is left in there */
	free(f->memory);
	free(f);
	return 0;
}

static void *page_at(struct fixture *f, uint32_t i)
{
	return f->memory + (size_t)i * 2 * UNIT;
}

static void page_fill(struct fixture *f, uint32_t i, uint32_t number)
{
	uint8_t *page = page_at(f, i);

	for (uint32_t j = 0; j < PAGE_BYTES; j++)
		page[j] = (uint8_t)(number * 31 + j * 7 + j / 256);
}

static bool page_is(struct fixture *f, uint32_t i, uint32_t number)
{
	const uint8_t *page = page_at(f, i);

	for (uint32_t j = 0; j < PAGE_BYTES; j++)
		if (page[j] != (uint8_t)(number * 31 + j * 7 + j / 256))
			return false;
	return true;
}

/* The next operation that ends, in whatever order. */
static struct tier_done wait_done(struct fixture *f)
{
	struct tier_done done;

	tier_file_kick(f->file);
	while (!tier_file_next(f->file, &done)) {
		struct pollfd poll_fd = {.fd = tier_file_fd(f->file), .events = POLLIN};
		assert_int_equal(poll(&poll_fd, 1, 5000), 1);
	}
	return done;
}

static void model_put(struct fixture *f)
{
	struct tier_model m = {
		.fingerprint = {1, 2},
		.page_bytes = PAGE_BYTES,
		.page_tokens = 16,
		.name = "m",
	};

	assert_int_equal(tier_catalog_model(tier_file_catalog(f->file), &m, &f->model), 0);
}

struct any_image {
	struct tier_image image;
	uint32_t tokens[16];
};

/* The image of page i of one document of pages of 16 tokens. */
static int image_keep(struct fixture *f, uint32_t place, uint32_t before, uint32_t i,
		      uint64_t checksum)
{
	struct any_image any = {
		.image = {.domain = DOMAIN,
			  .salt = 9,
			  .checksum = checksum,
			  .place = place,
			  .before = before,
			  .model = f->model,
			  .pos = i * 16,
			  .n_tokens = 16},
	};

	for (uint32_t j = 0; j < 16; j++)
		any.tokens[j] = i * 16 + j;
	return tier_catalog_keep(tier_file_catalog(f->file), &any.image);
}

/* Writes a document of n pages; places[i] is where page i lies. */
static void document_write(struct fixture *f, uint32_t n, uint32_t *places)
{
	model_put(f);
	for (uint32_t i = 0; i < n; i++) {
		places[i] = tier_room_take(&tier_file_catalog(f->file)->room, 2);
		page_fill(f, 0, i);
		tier_file_write(f->file, places[i], page_at(f, 0), PAGE_BYTES, f);
		struct tier_done done = wait_done(f);
		assert_int_equal(done.result, 0);
		assert_ptr_equal(done.tag, f);
		assert_int_equal(image_keep(f, places[i], i ? places[i - 1] : TIER_NONE, i,
					    done.checksum),
				 0);
	}
}

static int page_read(struct fixture *f, uint32_t place, uint32_t to)
{
	memset(page_at(f, to), 0xee, PAGE_BYTES);
	tier_file_read(f->file, place, page_at(f, to), PAGE_BYTES, NULL);
	return wait_done(f).result;
}

static void file_close(struct fixture *f)
{
	tier_file_close(f->file);
	f->file = NULL;
}

static void restart(struct fixture *f)
{
	file_close(f);
	assert_int_equal(file_open(f), 0);
}

static uint64_t data_at(const struct fixture *f)
{
	struct tier_head head;
	char why[128];
	int fd = open(f->path, O_RDONLY);
	struct stat st;

	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(tier_head_read(fd, (uint64_t)st.st_size, &head, why, sizeof(why)), 0);
	close(fd);
	return head.data_at;
}

static void flip(const struct fixture *f, uint64_t at)
{
	uint8_t byte;
	int fd = open(f->path, O_RDWR);

	assert_int_equal(pread(fd, &byte, 1, (off_t)at), 1);
	byte ^= 4;
	assert_int_equal(pwrite(fd, &byte, 1, (off_t)at), 1);
	close(fd);
}

/* An empty one, which nobody has open. */
static void file_make(struct fixture *f)
{
	assert_int_equal(file_open(f), 0);
	file_close(f);
}

static void assert_refused(const struct fixture *f, int r, int error, const char *sentence)
{
	assert_int_equal(r, error);
	assert_non_null(strstr(f->error, sentence));
}

static void test_pages_come_back_after_a_restart(void **state)
{
	struct fixture *f = *state;
	uint32_t places[N_PAGES];

	assert_int_equal(file_open(f), 0);
	document_write(f, 5, places);
	restart(f);
	const struct tier_catalog *c = tier_file_catalog(f->file);
	assert_int_equal(c->report.n_images, 5);
	assert_int_equal(c->report.n_tokens, 80);
	assert_int_equal(c->report.n_models, 1);
	assert_int_equal(c->report.n_lost, 0);
	assert_false(c->report.journal_torn);
	assert_string_equal(c->models[0].name, "m");
	for (uint32_t i = 0; i < 5; i++) {
		const struct tier_image *image = c->images[places[i]];
		assert_int_equal(image->pos, i * 16);
		assert_int_equal(image->tokens[15], i * 16 + 15);
		assert_int_equal(image->domain, DOMAIN);
		assert_int_equal(image->salt, 9);
		assert_int_equal(page_read(f, places[i], i), 0);
		assert_true(page_is(f, i, i));
	}
}

static void test_as_many_at_once_as_the_depth(void **state)
{
	struct fixture *f = *state;
	uint32_t places[4];
	uint32_t seen = 0;

	assert_int_equal(file_open(f), 0);
	document_write(f, 4, places);
	memset(f->memory, 0, (size_t)N_PAGES * 2 * UNIT);
	for (uint32_t i = 0; i < 4; i++) {
		assert_true(tier_file_has_room(f->file));
		tier_file_read(f->file, places[i], page_at(f, i), PAGE_BYTES, page_at(f, i));
	}
	assert_false(tier_file_has_room(f->file));
	for (uint32_t i = 0; i < 4; i++) {
		struct tier_done done = wait_done(f);
		assert_int_equal(done.result, 0);
		seen |= 1u << (((char *)done.tag - f->memory) / (2 * UNIT));
	}
	assert_int_equal(seen, 15);
	for (uint32_t i = 0; i < 4; i++)
		assert_true(page_is(f, i, i));
}

static void test_registered_memory_serves_as_other_memory_does(void **state)
{
	struct fixture *f = *state;
	uint32_t places[4];

	assert_int_equal(file_open(f), 0);
	int r = tier_file_register(f->file, f->memory, (size_t)8 * 2 * UNIT);
	if (r == -ENOMEM || r == -EPERM)
		skip();
	assert_int_equal(r, 0);
	document_write(f, 4, places);
	assert_int_equal(page_read(f, places[2], 3), 0);
	assert_true(page_is(f, 3, 2));
	assert_int_equal(page_read(f, places[1], 12), 0); /* beyond what is registered */
	assert_true(page_is(f, 12, 1));
}

/* Reads four pages at once to scattered memory; results [page]. */
static void read_four(struct fixture *f, const uint32_t *places, const uint32_t *to, int *ret)
{
	memset(f->memory, 0xee, (size_t)N_PAGES * 2 * UNIT);
	for (uint32_t i = 0; i < 4; i++)
		tier_file_read(f->file, places[i], page_at(f, to[i]), PAGE_BYTES, &ret[i]);
	for (uint32_t i = 0; i < 4; i++) {
		struct tier_done done = wait_done(f);
		*(int *)done.tag = done.result;
	}
}

static void test_what_is_altered_among_neighbours_fails_alone(void **state)
{
	struct fixture *f = *state;
	const uint32_t to[4] = {9, 3, 4, 12};
	uint32_t places[4];
	int results[4];

	assert_int_equal(file_open(f), 0);
	document_write(f, 4, places);
	read_four(f, places, to, results);
	for (uint32_t i = 0; i < 4; i++) {
		assert_int_equal(results[i], 0);
		assert_true(page_is(f, to[i], i));
	}
	flip(f, data_at(f) + places[2] * UNIT + 5000);
	read_four(f, places, to, results);
	for (uint32_t i = 0; i < 4; i++) {
		assert_int_equal(results[i], i == 2 ? -EBADMSG : 0);
		assert_int_equal(page_is(f, to[i], i), i != 2);
	}
}

static void test_what_is_cut_off_behind_neighbours_fails_alone(void **state)
{
	struct fixture *f = *state;
	const uint32_t to[4] = {0, 1, 2, 3};
	uint32_t places[4];
	int results[4];

	assert_int_equal(file_open(f), 0);
	document_write(f, 4, places);
	assert_int_equal(truncate(f->path, (off_t)(data_at(f) + places[3] * UNIT)), 0);
	read_four(f, places, to, results);
	for (uint32_t i = 0; i < 4; i++)
		assert_int_equal(results[i], i == 3 ? -EIO : 0);
	for (uint32_t i = 0; i < 3; i++)
		assert_true(page_is(f, i, i));
}

static void test_neighbours_are_written_together(void **state)
{
	struct fixture *f = *state;
	const uint32_t from[4] = {5, 6, 2, 9};
	uint32_t places[4];

	assert_int_equal(file_open(f), 0);
	document_write(f, 4, places);
	for (uint32_t i = 0; i < 4; i++) {
		page_fill(f, from[i], 3 - i);
		tier_file_write(f->file, places[3 - i], page_at(f, from[i]), PAGE_BYTES, f);
	}
	for (uint32_t i = 0; i < 4; i++)
		assert_int_equal(wait_done(f).result, 0);
	for (uint32_t i = 0; i < 4; i++) {
		page_fill(f, from[i], i);
		tier_file_write(f->file, places[i], page_at(f, from[i]), PAGE_BYTES, f);
	}
	for (uint32_t i = 0; i < 4; i++)
		assert_int_equal(wait_done(f).result, 0);
	for (uint32_t i = 0; i < 4; i++) {
		assert_int_equal(page_read(f, places[i], i), 0);
		assert_true(page_is(f, i, i));
	}
}

static void test_an_image_that_goes_stays_away(void **state)
{
	struct fixture *f = *state;
	uint32_t places[4];

	assert_int_equal(file_open(f), 0);
	document_write(f, 4, places);
	assert_true(tier_catalog_unref(tier_file_catalog(f->file), places[3]));
	restart(f);
	assert_int_equal(tier_file_catalog(f->file)->report.n_images, 3);
	assert_int_equal(tier_room_take(&tier_file_catalog(f->file)->room, 2), places[3]);
}

/* Far more records than the areas hold. */
static void test_the_journal_is_compacted(void **state)
{
	struct fixture *f = *state;
	uint32_t places[5];

	assert_int_equal(file_open(f), 0);
	document_write(f, 4, places);
	struct tier_catalog *c = tier_file_catalog(f->file);
	uint64_t generation = c->journal.generation;
	for (uint32_t i = 0; i < 5000; i++) {
		places[4] = tier_room_take(&c->room, 2);
		assert_int_equal(image_keep(f, places[4], places[3], 4, i), 0);
		if (i < 4999)
			assert_true(tier_catalog_unref(c, places[4]));
	}
	assert_true(c->journal.generation > generation + 2);
	restart(f);
	c = tier_file_catalog(f->file);
	assert_int_equal(c->report.n_images, 5);
	assert_int_equal(c->images[places[4]]->checksum, 4999);
	for (uint32_t i = 0; i < 4; i++) {
		assert_int_equal(page_read(f, places[i], i), 0);
		assert_true(page_is(f, i, i));
	}
}

static void test_a_flipped_bit_of_a_page_is_an_error(void **state)
{
	struct fixture *f = *state;
	struct tier_report report;
	uint32_t places[3];

	assert_int_equal(file_open(f), 0);
	document_write(f, 3, places);
	file_close(f);
	flip(f, data_at(f) + places[1] * UNIT + 5000);
	assert_int_equal(tier_verify(f->path, &report, f->error, sizeof(f->error)), 0);
	assert_int_equal(report.n_images, 3);
	assert_int_equal(report.n_bad, 1);
	assert_int_equal(file_open(f), 0);
	assert_int_equal(page_read(f, places[0], 0), 0);
	assert_int_equal(page_read(f, places[1], 1), -EBADMSG);
	assert_int_equal(page_read(f, places[2], 2), 0);
}

static void test_a_flipped_bit_of_the_journal_ends_it_there(void **state)
{
	struct fixture *f = *state;
	struct tier_report report;
	uint32_t places[4];
	uint64_t record = tier_journal_record_bytes(sizeof(struct any_image));
	uint64_t model = tier_journal_record_bytes(sizeof(struct tier_model));

	assert_int_equal(file_open(f), 0);
	document_write(f, 4, places);
	file_close(f);
	flip(f, TIER_HEAD_BYTES + TIER_JOURNAL_BLOCK + model + 2 * record + 70);
	assert_int_equal(tier_verify(f->path, &report, f->error, sizeof(f->error)), 0);
	assert_true(report.journal_torn);
	assert_int_equal(report.n_images, 2);
	assert_int_equal(file_open(f), 0);
	document_write(f, 1, places); /* and goes on there */
	restart(f);
	assert_false(tier_file_catalog(f->file)->report.journal_torn);
	assert_int_equal(tier_file_catalog(f->file)->report.n_images, 3);
}

static void test_a_journal_without_heads_is_refused(void **state)
{
	struct fixture *f = *state;

	file_make(f);
	flip(f, TIER_HEAD_BYTES + 9);
	assert_refused(f, file_open(f), -EINVAL, "no area of it has a head");
}

static void test_too_small_a_file_is_refused(void **state)
{
	struct fixture *f = *state;
	struct tier_file_config config = config_of(f);

	config.bytes = 100000;
	assert_refused(f, config_open(f, &config), -EINVAL, "100000 bytes are too few");
	assert_int_equal(access(f->path, F_OK), -1);
	config.bytes = UINT64_C(1) << 60;
	assert_refused(f, config_open(f, &config), -EFBIG, "too many");
	config.bytes = tier_head_least_bytes(UNIT, CHUNK);
	assert_int_equal(config_open(f, &config), 0);
	assert_int_equal(tier_file_catalog(f->file)->report.n_units, CHUNK);
}

static void test_an_empty_file_is_filled(void **state)
{
	struct fixture *f = *state;

	close(open(f->path, O_CREAT | O_WRONLY, 0600));
	assert_int_equal(file_open(f), 0);
	assert_int_equal(tier_file_catalog(f->file)->report.n_images, 0);
}

static void test_a_truncated_file_is_refused(void **state)
{
	struct fixture *f = *state;
	struct tier_report report;

	file_make(f);
	assert_int_equal(truncate(f->path, 500000), 0);
	assert_refused(f, file_open(f), -EINVAL, "truncated: 500000 bytes of");
	assert_int_equal(tier_verify(f->path, &report, f->error, sizeof(f->error)), -EINVAL);
	assert_int_equal(truncate(f->path, 30), 0);
	assert_int_equal(file_open(f), -EINVAL);
}

static void test_a_damaged_head_is_refused(void **state)
{
	struct fixture *f = *state;

	file_make(f);
	flip(f, 33);
	assert_refused(f, file_open(f), -EINVAL, "head is damaged");
}

static void test_another_version_is_refused(void **state)
{
	struct fixture *f = *state;

	file_make(f);
	flip(f, 8);
	assert_refused(f, file_open(f), -EPROTONOSUPPORT,
		       "it has version 5, and this program knows 1");
}

static void test_a_foreign_file_is_left_alone(void **state)
{
	struct fixture *f = *state;
	char text[64] = "";
	int fd = open(f->path, O_CREAT | O_RDWR, 0600);

	assert_int_equal(write(fd, "Dear diary, ", 12), 12);
	assert_refused(f, file_open(f), -EINVAL, "no tier file");
	assert_int_equal(pread(fd, text, sizeof(text), 0), 12);
	assert_string_equal(text, "Dear diary, ");
	assert_int_equal(ftruncate(fd, 0), 0);
	assert_int_equal(ftruncate(fd, 2 << 20), 0);
	assert_int_equal(file_open(f), -EINVAL);
	close(fd);
}

static void test_a_file_without_direct_io_is_refused(void **state)
{
	struct fixture *f = *state;
	struct tier_file_config config = config_of(f);

	config.path = "/proc/self/comm";
	assert_refused(f, config_open(f, &config), -EOPNOTSUPP, "no direct I/O");
}

static void test_what_is_no_file_is_refused(void **state)
{
	struct fixture *f = *state;
	struct tier_file_config config = config_of(f);

	config.path = f->directory;
	assert_int_equal(config_open(f, &config), -EINVAL);
	config.path = "/nowhere/at/all";
	assert_int_equal(config_open(f, &config), -ENOENT);
}

/* Memory file systems know before they begin that they have not as much. */
static void test_a_full_file_system_is_refused(void **state)
{
	struct fixture *f = *state;
	struct tier_file_config config = config_of(f);
	struct statvfs fs;

	config.path = "/dev/shm/coppice_tier_file_test";
	if (statvfs("/dev/shm", &fs) || fs.f_blocks == 0 || access("/dev/shm", W_OK))
		skip();
	config.bytes = (fs.f_blocks + 1) * fs.f_frsize * 2;
	assert_refused(f, config_open(f, &config), -ENOSPC, "there is no room for");
	assert_int_equal(access(config.path, F_OK), -1);
	assert_int_equal(access("/dev/shm/coppice_tier_file_test.new", F_OK), -1);
}

static void test_a_read_only_file_is_refused(void **state)
{
	struct fixture *f = *state;

	file_make(f);
	assert_int_equal(chmod(f->path, 0444), 0);
	assert_int_equal(chmod(f->directory, 0755), 0);
	bool was_root = geteuid() == 0;
	if (was_root)
		assert_int_equal(seteuid(65534), 0);
	int r = file_open(f);
	if (was_root)
		assert_int_equal(seteuid(0), 0);
	assert_int_equal(r, -EACCES);
	assert_non_null(strstr(f->error, "Permission denied"));
}

static void test_a_file_in_use_is_refused(void **state)
{
	struct fixture *f = *state;
	struct tier_report report;
	struct tier_file_config config = config_of(f);
	struct tier_file *other;

	assert_int_equal(file_open(f), 0);
	assert_int_equal(tier_file_open(&config, &other, f->error, sizeof(f->error)), -EBUSY);
	assert_non_null(strstr(f->error, "another process uses it"));
	assert_int_equal(tier_verify(f->path, &report, f->error, sizeof(f->error)), -EBUSY);
}

/* In a process of its own, as filters stay. */
static int open_without_io_uring(struct fixture *f)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_io_uring_setup, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {.len = 4, .filter = filter};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
		return 77;
	struct tier_file_config config = config_of(f);
	int r = config_open(f, &config);
	return r == -EPERM && strstr(f->error, "io_uring is refused") ? 0 : 1;
}

static void test_a_refused_io_uring_is_a_sentence(void **state)
{
	struct fixture *f = *state;
	int status;
	pid_t pid = fork();

	if (pid == 0)
		_exit(open_without_io_uring(f));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WEXITSTATUS(status) == 77)
		skip();
	assert_int_equal(status, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_pages_come_back_after_a_restart),
		TEST(test_as_many_at_once_as_the_depth),
		TEST(test_registered_memory_serves_as_other_memory_does),
		TEST(test_what_is_altered_among_neighbours_fails_alone),
		TEST(test_what_is_cut_off_behind_neighbours_fails_alone),
		TEST(test_neighbours_are_written_together),
		TEST(test_an_image_that_goes_stays_away),
		TEST(test_the_journal_is_compacted),
		TEST(test_a_flipped_bit_of_a_page_is_an_error),
		TEST(test_a_flipped_bit_of_the_journal_ends_it_there),
		TEST(test_a_journal_without_heads_is_refused),
		TEST(test_too_small_a_file_is_refused),
		TEST(test_an_empty_file_is_filled),
		TEST(test_a_truncated_file_is_refused),
		TEST(test_a_damaged_head_is_refused),
		TEST(test_another_version_is_refused),
		TEST(test_a_foreign_file_is_left_alone),
		TEST(test_a_file_without_direct_io_is_refused),
		TEST(test_what_is_no_file_is_refused),
		TEST(test_a_full_file_system_is_refused),
		TEST(test_a_read_only_file_is_refused),
		TEST(test_a_file_in_use_is_refused),
		TEST(test_a_refused_io_uring_is_a_sentence),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
