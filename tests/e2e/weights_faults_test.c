/*
 * weights_faults_test.c - weights that are not as they should be, through the library: each client
 * is told what is wrong by the name of its tensor or key, and nobody else notices anything.
 */
#include "decode_fixture.h"
#include "hung_file.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define BIG_BYTES (256u << 20)
#define STRANGER 12345

struct decode_service service = {.options = {"--load-stall-ms=2000"}};

/* The first six tokens' logits, of a client that has nothing to do with any of it. */
static float logits_before[DECODE_VOCAB];

static void others_notice_nothing(void)
{
	struct decode_client client;

	decode_client_open(&client, &service);
	decode_anew(&client, service.ids, 6);
	decode_assert_same(&client, logits_before);
	decode_client_close(&client);
}

/* What is said of these weights, which cannot be had. */
static void expect_refusal(int fd, int error, const char *words)
{
	struct coppice_weights *weights;
	struct coppice *c;
	int r;

	assert_int_equal(coppice_connect(&c, service.socket), 0);
	r = coppice_weights_open(c, &fd, 1, &weights);
	if (r == 0) {
		r = coppice_weights_wait(weights, COPPICE_SECONDS(60), NULL);
		if (!strstr(coppice_explain(c), words))
			fail_msg("\"%s\" does not say \"%s\"", coppice_explain(c), words);
		coppice_weights_close(weights);
	}
	assert_int_equal(r, error);
	coppice_close(c);
}

/* A file without a name; the caller's. */
static int file_of(const char *header, size_t data_bytes)
{
	uint64_t n = strlen(header);
	int fd = memfd_create("weights", MFD_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, &n, sizeof(n)), sizeof(n));
	assert_int_equal(write(fd, header, n), n);
	assert_int_equal(ftruncate(fd, (off_t)(sizeof(n) + n + data_bytes)), 0);
	return fd;
}

static void what_is_wrong_in_a_file_is_told_by_tensor(void **state)
{
	static const struct {
		const char *header;
		size_t data_bytes;
		const char *words;
	} bad[] = {
		{"{\"q\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 7, "tensor q"},
		{"{\"q\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,0]}}", 8, "tensor q"},
		{"{\"q\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,9999999999999]}}", 8,
		 "tensor q"},
		{"{\"q\":{\"dtype\":\"F32\",\"shape\":[4294967295,4294967295,4294967295],"
		 "\"data_offsets\":[0,8]}}",
		 8, "tensor q"},
		{"{\"q\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
		 "\"k\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]}}",
		 12, "overlap"},
		{"{\"q\":{\"dtype\":\"F8_E9M9\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8,
		 "tensor q: unknown dtype F8_E9M9"},
		{"{\"q\":{\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "tensor q"},
		{"{\"q\":", 0, "JSON"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		int fd = file_of(bad[i].header, bad[i].data_bytes);

		expect_refusal(fd, -EINVAL, bad[i].words);
		close(fd);
	}
	others_notice_nothing();
}

static void what_is_no_file_is_told(void **state)
{
	int pipes[2], ends[2];
	const int fds[] = {open("/tmp", O_RDONLY | O_CLOEXEC),
			   open("/proc/self/status", O_RDONLY | O_CLOEXEC),
			   open("/dev/zero", O_RDONLY | O_CLOEXEC), file_of("", 0)};
	static const char *const words[] = {"not a regular file", "too short", "not a regular file",
					    "not a safetensors file"};

	(void)state;
	for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++) {
		expect_refusal(fds[i], -EINVAL, words[i]);
		close(fds[i]);
	}
	assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
	expect_refusal(pipes[0], -EINVAL, "not a regular file");
	expect_refusal(ends[0], -EINVAL, "not a regular file");
	for (int i = 0; i < 2; i++) {
		close(pipes[i]);
		close(ends[i]);
	}
	others_notice_nothing();
}

/* ---- files that change ---------------------------------------------------------------------- */

struct writer {
	int fd;
	off_t at;
	_Atomic bool stops;
};

static void *write_on(void *arg)
{
	struct writer *writer = arg;

	while (!atomic_load(&writer->stops)) {
		if (pwrite(writer->fd, "x", 1, writer->at) != 1)
			break;
		usleep(500);
	}
	return NULL;
}

static void a_file_that_changes_while_it_is_read_is_told(void **state)
{
	static struct writer writer;
	char header[128];
	pthread_t thread;

	(void)state;
	snprintf(header, sizeof(header),
		 "{\"q\":{\"dtype\":\"F32\",\"shape\":[%u],\"data_offsets\":[0,%u]}}",
		 BIG_BYTES / 4, BIG_BYTES);
	writer.fd = file_of(header, BIG_BYTES);
	writer.at = BIG_BYTES / 2;
	assert_int_equal(pthread_create(&thread, NULL, write_on, &writer), 0);
	expect_refusal(writer.fd, -EINVAL, "changed");
	atomic_store(&writer.stops, true);
	pthread_join(thread, NULL);
	close(writer.fd);
	others_notice_nothing();
}

/* ---- files that nobody answers for ----------------------------------------------------------- */

static void a_file_that_hangs_delays_nobody_but_its_client(void **state)
{
	struct coppice_weights *weights;
	struct hung_file file;
	struct coppice *c;
	int r;

	(void)state;
	if (!hung_file_open(&file)) {
		print_message("no FUSE mount of our own on this machine: not tested\n");
		skip();
	}
	assert_int_equal(coppice_connect(&c, service.socket), 0);
	assert_int_equal(coppice_weights_open(c, &file.fd, 1, &weights), 0);
	others_notice_nothing();
	r = coppice_weights_wait(weights, COPPICE_SECONDS(60), NULL);
	assert_int_equal(r, -ETIMEDOUT);
	if (!strstr(coppice_explain(c), "Nothing came of the files"))
		fail_msg("%s", coppice_explain(c));
	coppice_weights_close(weights);
	coppice_close(c);
	others_notice_nothing();
	hung_file_end(&file);
	others_notice_nothing();
}

/* ---- numbers that are none ------------------------------------------------------------------- */

/* The model's file with a few NaNs in its last bytes, which are of some matrix. */
static void write_nans(const char *path)
{
	static const uint16_t nan_bits[] = {0x7fc0, 0x7fc0, 0xff81};
	char command[256];
	int fd;

	snprintf(command, sizeof(command), "cp %s/model.safetensors %s", MODEL_DIR, path);
	assert_int_equal(system(command), 0);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_true(lseek(fd, -(off_t)sizeof(nan_bits), SEEK_END) > 0);
	assert_int_equal(write(fd, nan_bits, sizeof(nan_bits)), sizeof(nan_bits));
	close(fd);
}

static void weights_with_nans_spoil_no_others_tokens(void **state)
{
	struct decode_client client;
	char path[128];

	(void)state;
	snprintf(path, sizeof(path), "%s/nan", service.dir);
	write_nans(path);
	decode_client_open_of(&client, &service, path);
	unlink(path);
	decode_anew(&client, service.ids, 6);
	assert_true(isnan(decode_row(&client)->lse));
	for (uint32_t i = 0; i < decode_row(&client)->n_top; i++)
		assert_false(isnan(decode_row(&client)->top[i].logit));
	others_notice_nothing();
	decode_client_close(&client);
}

/* ---- two users ------------------------------------------------------------------------------- */

/* As many as a listing of all users' has. */
static unsigned n_weights(void)
{
	unsigned n = 0;

	for (const char *at = decode_listing("weights"); (at = strchr(at, '\n')); at++)
		n++;
	return n - 1; /* what columns are */
}

/* The same files, and the same tokens behind the same program. */
static void two_users_share_no_weights_and_no_kv(void **state)
{
	struct decode_client own, strangers;
	struct coppice_match match;
	unsigned n_before;

	(void)state;
	if (geteuid() != 0) {
		print_message("only root can be two users: not tested\n");
		skip();
	}
	decode_client_open(&own, &service);
	decode_prompt(&own, service.ids, 100);
	n_before = n_weights();
	assert_int_equal(chmod(service.dir, 0755), 0);
	assert_int_equal(seteuid(STRANGER), 0);
	decode_client_open(&strangers, &service);
	assert_int_equal(seteuid(0), 0);
	assert_int_equal(n_weights(), n_before + 1);
	decode_open(&strangers, service.ids, 100, &match);
	assert_int_equal(match.cached, 0);
	decode_open(&own, service.ids, 100, &match);
	assert_int_equal(match.cached, 99);
	decode_client_close(&strangers);
	decode_client_close(&own);
}

static int setup(void **state)
{
	struct decode_client client;

	decode_setup(state);
	decode_client_open(&client, &service);
	decode_anew(&client, service.ids, 6);
	memcpy(logits_before, decode_logits(&client), sizeof(logits_before));
	decode_client_close(&client);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_wrong_in_a_file_is_told_by_tensor),
		cmocka_unit_test(what_is_no_file_is_told),
		cmocka_unit_test(a_file_that_changes_while_it_is_read_is_told),
		cmocka_unit_test(a_file_that_hangs_delays_nobody_but_its_client),
		cmocka_unit_test(weights_with_nans_spoil_no_others_tokens),
		cmocka_unit_test(two_users_share_no_weights_and_no_kv),
	};

	return cmocka_run_group_tests(tests, setup, decode_teardown);
}
