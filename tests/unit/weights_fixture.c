/* weights_fixture.c - a backend of malloc, and files in a folder under /tmp. */
#include "weights_fixture.h"

#include "proto/clock.h"
#include "daemon/base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define PATIENCE_MS 30000u
#define LONG_AGO 1000000000 /* seconds since the epoch */

const char *fixture_coppiced;
static char folder[] = "/tmp/coppice-weights-XXXXXX";

/* ---- a backend of which only weights are asked ---------------------------------------------- */

_Atomic int fixture_n_memories, fixture_lend;
_Atomic pthread_t fixture_freed_by;
struct ledger *fixture_ledger;
uint64_t fixture_grain = 1, fixture_least_rate, fixture_names_bytes = 64 * MIB;
uint32_t fixture_max_load_s;

static int memory_new(struct backend *b, uint64_t bytes, struct backend_weights **ret)
{
	(void)b;
	*ret = malloc(sizeof(**ret) + bytes);
	if (!*ret)
		return -ENOMEM;
	(*ret)->bytes = bytes;
	fixture_n_memories++;
	return 0;
}

static int memory_put(struct backend *b, struct backend_weights *weights, uint64_t offset,
		      const void *from, uint64_t bytes)
{
	(void)b;
	assert_true(offset <= weights->bytes && bytes <= weights->bytes - offset);
	memcpy(weights->data + offset, from, bytes);
	return 0;
}

static void memory_free(struct backend *b, struct backend_weights *weights)
{
	(void)b;
	fixture_freed_by = pthread_self();
	fixture_n_memories -= weights != NULL;
	free(weights);
}

static int memory_lend(struct backend *b, struct backend_weights *weights, struct backend_lent *ret)
{
	(void)b;
	fixture_moment();
	if (fixture_lend == 0)
		*ret = (struct backend_lent){.bytes = weights->bytes, .fd = -1};
	return fixture_lend;
}

static struct backend_program_ops program_ops = {.weights_lend = memory_lend,
						 .weights_new = memory_new,
						 .weights_put = memory_put,
						 .weights_free = memory_free};
static const struct backend_ops ops = {.program = &program_ops};

struct weights_table *fixture_table_of(const char *loader, uint64_t max_bytes, uint32_t stall_ms)
{
	const struct weights_config config = {.ops = &ops,
					      .ledger = fixture_ledger,
					      .loader = loader,
					      .memory = {max_bytes, max_bytes / 4 * 3},
					      .names = {fixture_names_bytes,
							fixture_names_bytes / 2},
					      .max_loads = 8,
					      .domain_max_loads = 2,
					      .stall_ms = stall_ms,
					      .least_rate = fixture_least_rate,
					      .max_load_s = fixture_max_load_s};
	struct weights_table *table;

	program_ops.weights_grain = fixture_grain;
	assert_int_equal(weights_table_new(&config, &table), 0);
	return table;
}

struct weights_table *fixture_table(void)
{
	return fixture_table_of(fixture_coppiced, 64 * MIB, PATIENCE_MS);
}

/* ---- files ---------------------------------------------------------------------------------- */

const char *fixture_path(const char *name)
{
	static char path[2][128];
	static int turn;

	turn = !turn;
	snprintf(path[turn], sizeof(path[turn]), "%s/%s", folder, name);
	return path[turn];
}

/* Of a time that is not just now. */
static void age(const char *path)
{
	const struct timespec times[2] = {{.tv_sec = LONG_AGO}, {.tv_sec = LONG_AGO}};

	assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

const char *fixture_file(const char *name, const char *header, const void *data, size_t bytes)
{
	const char *path = fixture_path(name);
	FILE *file = fopen(path, "w");
	uint64_t n = strlen(header);

	assert_non_null(file);
	assert_int_equal(fwrite(&n, sizeof(n), 1, file), 1);
	assert_int_equal(fwrite(header, 1, n, file), n);
	assert_int_equal(fwrite(data, 1, bytes, file), bytes);
	assert_int_equal(fclose(file), 0);
	age(path);
	return path;
}

const char *fixture_file_of(const char *name, uint32_t kib)
{
	char header[128];
	uint8_t *data = calloc(kib, 1024);
	const char *path;

	assert_non_null(data);
	memcpy(data, name, strlen(name));
	snprintf(header, sizeof(header),
		 "{\"x\":{\"dtype\":\"F32\",\"shape\":[%u],\"data_offsets\":[0,%u]}}", kib * 256,
		 kib * 1024);
	path = fixture_file(name, header, data, kib * 1024);
	free(data);
	return path;
}

int fixture_open(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

	assert_true(fd >= 0);
	return fd;
}

const uint8_t fixture_data[28] = {1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14,
				  15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28};

/* ---- a client ------------------------------------------------------------------------------- */

void fixture_send(int socket, const int *fds, uint32_t n)
{
	_Alignas(struct cmsghdr) char room[CMSG_SPACE(256 * sizeof(int))] = {0};
	char byte = 0;
	struct iovec iov = {&byte, 1};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	struct cmsghdr *c;

	if (n > 0) {
		msg.msg_control = room;
		msg.msg_controllen = CMSG_SPACE(n * sizeof(int));
		c = CMSG_FIRSTHDR(&msg);
		*c = (struct cmsghdr){.cmsg_level = SOL_SOCKET,
				      .cmsg_type = SCM_RIGHTS,
				      .cmsg_len = CMSG_LEN(n * sizeof(int))};
		memcpy(CMSG_DATA(c), fds, n * sizeof(int));
	}
	assert_int_equal(sendmsg(socket, &msg, MSG_NOSIGNAL), 1);
}

struct weights *fixture_begin(struct weights_table *table, uid_t domain, const int *fds, uint32_t n)
{
	struct weights *weights;
	int socket, r;

	/* One that was there before counts until its loader is gone. */
	while ((r = weights_open(table, domain, &weights, &socket)) == -EAGAIN)
		fixture_moment();
	assert_int_equal(r, 0);
	fixture_send(socket, fds, n);
	close(socket);
	return weights;
}

void fixture_moment(void)
{
	nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

/* Until they are there, or not: what stands for them. */
struct weights *fixture_end(struct weights *weights)
{
	while (weights_state(weights_real(weights)) == WEIGHTS_LOADING)
		fixture_moment();
	return weights_real(weights);
}

struct weights *fixture_load(struct weights_table *table, uid_t domain, const char *path)
{
	int fd = fixture_open(path);
	struct weights *weights = fixture_begin(table, domain, &fd, 1);

	close(fd);
	fixture_end(weights);
	return weights;
}

static bool is_anybodys(struct weights_table *table, uint64_t number)
{
	struct weights_row row;

	return weights_rows(table, number - 1, &row, 1) == 1 && row.number == number &&
	       row.n_refs > 0;
}

void fixture_leave(struct weights *weights)
{
	struct weights_table *table = weights->home;
	uint64_t number = weights->number;

	weights_unref(weights);
	while (is_anybodys(table, number))
		fixture_moment();
}

/* What turned out to be there already goes a moment later. */
void fixture_settle(struct weights_table *table, uint64_t bytes)
{
	uint64_t deadline_ns = clock_now_ns() + UINT64_C(5000000000);

	while (weights_bytes(table) != bytes && clock_now_ns() < deadline_ns)
		fixture_moment();
	assert_int_equal(weights_bytes(table), bytes);
}

void fixture_expect_ready(struct weights *weights)
{
	const struct weights *real = weights_real(weights);

	if (weights_state(real) != WEIGHTS_READY)
		fail_msg("%s", real->why);
}

void fixture_expect_failure(struct weights *weights, int error, const char *words)
{
	const struct weights *real = fixture_end(weights);

	assert_int_equal(weights_state(real), WEIGHTS_FAILED);
	assert_int_equal(real->error, error);
	if (!strstr(real->why, words))
		fail_msg("\"%s\" does not say \"%s\"", real->why, words);
	weights_unref(weights);
}

int fixture_run(const char *coppiced, int (*run)(void))
{
	char command[128];
	int failed;

	fixture_coppiced = coppiced;
	log_level_set(LOG_LEVEL_ERROR);
	if (!mkdtemp(folder))
		return 1;
	failed = run();
	snprintf(command, sizeof(command), "rm -r %s", folder);
	return system(command) != 0 || failed;
}
