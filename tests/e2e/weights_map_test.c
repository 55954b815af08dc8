/*
 * weights_map_test.c - weights that clients map: the same bytes as the files', one copy for all who
 * have them, and nobody's writing reaches another. On a GPU only what is host's is looked at.
 */
#include "decode_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define STRANGER 12345
#define WEIGHTS_MAX 4 /* of a session */

struct decode_service service = {.options = {"--max-weights=4", "--lend-weights=1"}};

static const char *const header =
	"{\"b\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[0,12]},"
	"\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[12,20]}}";

static int file_of(const char *text, const void *data, size_t bytes)
{
	uint64_t n = strlen(text);
	int fd = memfd_create("weights", MFD_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, &n, sizeof(n)), sizeof(n));
	assert_int_equal(write(fd, text, n), n);
	assert_int_equal(write(fd, data, bytes), bytes);
	return fd;
}

static int file_new(void)
{
	return file_of(header, "bbbbBBBB====aaaaAAAA", 20);
}

struct mapping {
	struct coppice *c;
	struct coppice_weights *weights;
	struct coppice_arena *arena;
};

static void must(struct coppice *c, int r)
{
	if (r < 0)
		fail_msg("%s (%d)", coppice_explain(c), r);
}

static void expect(struct coppice *c, int r, int error, const char *words)
{
	assert_int_equal(r, error);
	if (!strstr(coppice_explain(c), words))
		fail_msg("\"%s\" does not say \"%s\"", coppice_explain(c), words);
}

static void open_file(struct mapping *m, int fd)
{
	must(m->c, coppice_weights_open(m->c, &fd, 1, &m->weights));
	must(m->c, coppice_weights_wait(m->weights, COPPICE_SECONDS(60), NULL));
}

static struct mapping mapping_open(int fd)
{
	struct mapping m;

	assert_int_equal(coppice_connect(&m.c, service.socket), 0);
	open_file(&m, fd);
	must(m.c, coppice_weights_map(m.weights, COPPICE_FOREVER, &m.arena));
	return m;
}

static void mapping_close(struct mapping *m)
{
	coppice_arena_free(m->arena);
	coppice_weights_close(m->weights);
	coppice_close(m->c);
}

static char *tensor_at(const struct mapping *m, const char *name)
{
	uint32_t number;
	uint64_t offset;

	must(m->c, coppice_weights_find(m->weights, name, &number));
	must(m->c, coppice_weights_offset(m->weights, number, &offset));
	assert_true(offset + 12 <= coppice_arena_bytes(m->arena));
	return (char *)coppice_arena_base(m->arena) + offset;
}

/* Of the memory behind an address of this process. */
static unsigned long inode_of(const void *address)
{
	unsigned long first, end, inode, found = 0;
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[512];

	while (fgets(line, sizeof(line), maps)) {
		if (sscanf(line, "%lx-%lx %*s %*s %*s %lu", &first, &end, &inode) == 3 &&
		    first <= (uintptr_t)address && (uintptr_t)address < end)
			found = inode;
	}
	fclose(maps);
	return found;
}

static void what_is_mapped_is_what_the_file_has(void **state)
{
	int fd = file_new();
	struct mapping m = mapping_open(fd), again = mapping_open(fd);

	(void)state;
	if (!decode_on_gpu()) {
		assert_memory_equal(tensor_at(&m, "b"), "bbbbBBBB====", 12);
		assert_memory_equal(tensor_at(&m, "a"), "aaaaAAAA", 8);
		assert_int_not_equal(inode_of(coppice_arena_base(m.arena)), 0);
		assert_int_equal(inode_of(coppice_arena_base(m.arena)),
				 inode_of(coppice_arena_base(again.arena)));
	}
	mapping_close(&again);
	mapping_close(&m);
	close(fd);
}

/* They move in pieces of 16 MiB. */
static void many_pieces_are_mapped_whole(void **state)
{
	static const char *const text =
		"{\"big\":{\"dtype\":\"F32\",\"shape\":[10000000],\"data_offsets\":[0,40000000]}}";
	const size_t bytes = 40000000;
	uint32_t *words = malloc(bytes);
	struct mapping m;
	int fd;

	(void)state;
	for (uint32_t i = 0; i < bytes / sizeof(*words); i++)
		words[i] = i * 2654435761u;
	fd = file_of(text, words, bytes);
	m = mapping_open(fd);
	assert_true(coppice_arena_bytes(m.arena) >= bytes);
	if (!decode_on_gpu())
		assert_memory_equal(tensor_at(&m, "big"), words, bytes);
	mapping_close(&m);
	free(words);
	close(fd);
}

static void what_is_written_stays_the_writers_own(void **state)
{
	int fd = file_new();
	struct mapping m = mapping_open(fd), other;

	(void)state;
	if (!decode_on_gpu()) {
		strcpy(tensor_at(&m, "b"), "mine");
		other = mapping_open(fd);
		assert_memory_equal(tensor_at(&other, "b"), "bbbb", 4);
		assert_memory_equal(tensor_at(&m, "b"), "mine", 4);
		mapping_close(&other);
	}
	mapping_close(&m);
	close(fd);
}

static void a_program_runs_on_what_was_lent(void **state)
{
	struct decode_client client;
	struct coppice_arena *arena;
	float before[DECODE_VOCAB];

	(void)state;
	decode_client_open(&client, &service);
	decode_anew(&client, service.ids, 6);
	memcpy(before, decode_logits(&client), sizeof(before));
	must(client.c, coppice_weights_map(client.weights, COPPICE_FOREVER, &arena));
	decode_anew(&client, service.ids, 6);
	decode_assert_same(&client, before);
	coppice_arena_free(arena);
	decode_anew(&client, service.ids, 6);
	decode_assert_same(&client, before);
	decode_client_close(&client);
}

static void a_mapping_outlives_weights_and_connection(void **state)
{
	int fd = file_new();
	struct mapping m = mapping_open(fd), other;
	const char *b = tensor_at(&m, "b");

	(void)state;
	coppice_arena_ref(m.arena);
	coppice_weights_close(m.weights);
	coppice_close(m.c);
	other = mapping_open(fd);
	mapping_close(&other);
	if (!decode_on_gpu())
		assert_memory_equal(b, "bbbbBBBB====", 12);
	coppice_arena_unref(m.arena);
	close(fd);
}

static void what_cannot_be_mapped_is_told(void **state)
{
	int fd = file_new();
	struct mapping m = mapping_open(fd);
	struct coppice_weights *more;
	struct coppice_arena *arena;
	uint64_t offset;
	void *piece;

	(void)state;
	expect(m.c, coppice_weights_offset(m.weights, 2, &offset), -EINVAL, "no tensor 2");
	expect(m.c, coppice_arena_alloc(m.arena, 8, 0, &piece), -EINVAL, "there are weights");
	must(m.c, coppice_weights_open(m.c, &fd, 1, &more));
	expect(m.c, coppice_weights_map(more, COPPICE_FOREVER, &arena), -EAGAIN, "wait for");
	coppice_weights_close(more);
	mapping_close(&m);
	close(fd);
}

/* Each mapping is weights that the session has open, until it is freed. */
static void as_many_as_there_may_be(void **state)
{
	int fd = file_new();
	struct mapping m = mapping_open(fd);
	struct coppice_arena *arenas[WEIGHTS_MAX - 1];

	(void)state;
	for (int i = 0; i < WEIGHTS_MAX - 2; i++)
		must(m.c, coppice_weights_map(m.weights, COPPICE_FOREVER, &arenas[i]));
	expect(m.c, coppice_weights_map(m.weights, 0, &arenas[WEIGHTS_MAX - 2]), -EUSERS,
	       "max_weights");
	coppice_arena_free(arenas[0]);
	must(m.c, coppice_weights_map(m.weights, COPPICE_FOREVER, &arenas[0]));
	for (int i = 0; i < WEIGHTS_MAX - 2; i++)
		coppice_arena_free(arenas[i]);
	mapping_close(&m);
	close(fd);
}

/* A step may not name it. */
static void a_step_takes_no_rows_of_weights(void **state)
{
	struct coppice_model_info info = {.size = sizeof(info),
					  .name = "own",
					  .n_layers = 1,
					  .n_q_heads = 1,
					  .n_kv_heads = 1,
					  .head_dim = 64,
					  .dtype = decode_on_gpu() ? COPPICE_BF16 : COPPICE_FP32};
	static const uint32_t ids[] = {1, 2};
	int fd = file_new();
	struct mapping m = mapping_open(fd);
	void *base = coppice_arena_base(m.arena);
	struct coppice_step_seq part = {.n_new = 1, .q = base, .k = base, .v = base, .o = base};
	struct coppice_step step = {.size = sizeof(step), .seqs = &part, .n_seqs = 1};
	struct coppice_lane *lane;
	uint32_t model;

	(void)state;
	must(m.c, coppice_model_open(m.c, &info, &model));
	must(m.c, coppice_lane_new(m.c, &lane));
	must(m.c, coppice_seq_open(lane, model, ids, 2, 0, &part.seq, NULL));
	must(m.c, coppice_seq_extend(part.seq, ids, 1, NULL));
	expect(m.c, coppice_step(lane, &step, NULL), -EINVAL, "arena");
	mapping_close(&m);
	close(fd);
}

static void another_user_has_memory_of_his_own(void **state)
{
	int fd = file_new();
	struct mapping own, strangers;

	(void)state;
	if (geteuid() != 0 || decode_on_gpu())
		skip();
	own = mapping_open(fd);
	assert_int_equal(chmod(service.dir, 0755), 0);
	assert_int_equal(seteuid(STRANGER), 0);
	strangers = mapping_open(fd);
	assert_int_equal(seteuid(0), 0);
	assert_int_not_equal(inode_of(coppice_arena_base(own.arena)),
			     inode_of(coppice_arena_base(strangers.arena)));
	mapping_close(&strangers);
	mapping_close(&own);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_mapped_is_what_the_file_has),
		cmocka_unit_test(many_pieces_are_mapped_whole),
		cmocka_unit_test(what_is_written_stays_the_writers_own),
		cmocka_unit_test(a_program_runs_on_what_was_lent),
		cmocka_unit_test(a_mapping_outlives_weights_and_connection),
		cmocka_unit_test(what_cannot_be_mapped_is_told),
		cmocka_unit_test(as_many_as_there_may_be),
		cmocka_unit_test(a_step_takes_no_rows_of_weights),
		cmocka_unit_test(another_user_has_memory_of_his_own),
	};

	return cmocka_run_group_tests(tests, decode_setup, decode_teardown);
}
