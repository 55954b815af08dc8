/*
 * device_memory.c - roles of device_test.c's clients that are about memory: what is in it and who
 * sees it, what keeps it open, and what becomes of steps that use it.
 */
#include "device_memory.h"

#include "client/coppice_program.h"
#include "client/lib/connection/call.h"
#include "client/lib/memory/arena.h"
#include "device_client.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void fill(struct stem *s, int byte)
{
	uint8_t *bytes = malloc(ARENA_BYTES);

	memset(bytes, byte, ARENA_BYTES);
	CHECK(s->gpu.copy_now((uintptr_t)s->there, (uintptr_t)bytes, ARENA_BYTES) == 0);
	free(bytes);
}

/* What is in the arena; the caller's. */
static uint8_t *read_all(struct stem *s)
{
	uint8_t *bytes = malloc(ARENA_BYTES);

	CHECK(s->gpu.copy_now((uintptr_t)bytes, (uintptr_t)s->there, ARENA_BYTES) == 0);
	return bytes;
}

static bool is_all(struct stem *s, int byte)
{
	uint8_t *bytes = read_all(s);
	bool is = bytes[0] == byte && memcmp(bytes, bytes + 1, ARENA_BYTES - 1) == 0;

	free(bytes);
	return is;
}

static bool has_any(struct stem *s, int byte)
{
	uint8_t *bytes = read_all(s);
	bool has = memchr(bytes, byte, ARENA_BYTES) != NULL;

	free(bytes);
	return has;
}

/* A byte: the arena is zero, then it is filled, and is as it was when all have had their turn. */
int role_hold(const char *socket, char **args)
{
	int byte = atoi(args[0]);
	struct stem s = {0};

	gpu_start(&s);
	client_start(&s, socket, COPPICE_DEVICE);
	CHECK(is_all(&s, 0));
	fill(&s, byte);
	say_go();
	await_go();
	CHECK(is_all(&s, byte));
	if (strcmp(args[1], "tidy") != 0)
		vanish();
	client_end(&s);
	gpu_end(&s);
	return 0;
}

/* Names an arena that another session has, and this one has not. */
int role_thief(const char *socket, char **args)
{
	struct stem s = {0};

	(void)args;
	gpu_start(&s);
	client_start(&s, socket, COPPICE_DEVICE);
	extend(&s, 1);
	s.arena->id = 4; /* 2 is where this connection's prompts lie, 3 may be its streams' */

	struct coppice_step_seq part = part_of(&s, 0, 1);
	struct coppice_step step = {.seqs = &part, .n_seqs = 1};
	uint64_t ticket;

	CHECK(coppice_step(s.lane, &step, &ticket) == 0, "%s", coppice_explain(s.c));
	CHECK(coppice_wait(s.lane, ticket, PATIENCE_NS) == -EINVAL);
	CHECK(strstr(coppice_explain(s.c), "not of this connection"), "%s", coppice_explain(s.c));
	vanish();
}

/* Says that it has closed its arena, and has not: what others have in theirs is nothing that it may
 * see. */
int role_liar(const char *socket, char **args)
{
	int byte = atoi(args[0]);
	Coppice__ArenaFree message = COPPICE__ARENA_FREE__INIT;
	struct call call = call_of("liar");
	CLEANUP_ANSWER struct answer answer = ANSWER_NONE;
	struct stem s = {0};

	gpu_start(&s);
	client_start(&s, socket, COPPICE_DEVICE);
	message.arena = s.arena->id;
	call.request.arena_free = &message;
	CHECK(call_daemon(s.c, &call, &answer) == 0);
	say_go();
	await_go();
	CHECK(!has_any(&s, byte), "another's arena is in view");
	vanish();
}

static struct device_memory open_at(struct stem *s, const struct device_name *name)
{
	struct device_memory memory;

	CHECK(device_open(s->c, "keeper", name, &memory) == 0, "%s", coppice_explain(s->c));
	s->there = (struct place *)(uintptr_t)memory.address;
	return memory;
}

static void free_arena(struct stem *s, uint32_t arena)
{
	Coppice__ArenaFree message = COPPICE__ARENA_FREE__INIT;
	struct call call = call_of("keeper");
	CLEANUP_ANSWER struct answer answer = ANSWER_NONE;

	message.arena = arena;
	call.request.arena_free = &message;
	CHECK(call_daemon(s->c, &call, &answer) == 0);
}

/* A byte: a descriptor that is kept is of the arena that it came with, and of no later one. */
int role_keeper(const char *socket, char **args)
{
	int byte = atoi(args[0]) + 1;
	Coppice__ArenaNew message = COPPICE__ARENA_NEW__INIT;
	struct call call = call_of("keeper");
	CLEANUP_ANSWER struct answer answer = ANSWER_NONE;
	struct device_memory memory;
	struct device_name name;
	struct stem s = {0};

	gpu_start(&s);
	client_start(&s, socket, COPPICE_DEVICE);
	message.kind = COPPICE_DEVICE;
	message.bytes = ARENA_BYTES;
	call.request.arena_new = &message;
	CHECK(call_daemon(s.c, &call, &answer) == 0 && answer.n_fds == 1);
	name = (struct device_name){&answer.reply->arena->device, answer.fds[0], ARENA_BYTES};
	memory = open_at(&s, &name);
	fill(&s, byte);
	device_close(s.c, &memory);
	free_arena(&s, answer.reply->arena->arena);
	say_go();
	await_go();
	open_at(&s, &name);
	CHECK(is_all(&s, byte), "another's arena is in view");
	vanish();
}

static uint32_t count_arenas(struct stem *s)
{
	struct coppice_stats stats = {.size = sizeof(stats)};

	CHECK(coppice_stats(s->c, &stats) == 0, "%s", coppice_explain(s->c));
	return stats.n_arenas;
}

/* On the fake device they are memory's names too. */
static uint32_t count_descriptors(void)
{
	DIR *folder = opendir("/proc/self/fd");
	uint32_t n = 0;

	CHECK(folder != NULL);
	while (readdir(folder))
		n++;
	closedir(folder);
	return n;
}

/* What was asked for and given back leaves nothing. */
int role_tidy(const char *socket, char **args)
{
	struct coppice_arena *arena;
	struct stem s = {0};
	uint32_t n;

	(void)args;
	gpu_start(&s);
	client_start(&s, socket, COPPICE_DEVICE);
	n = count_descriptors();
	for (uint32_t i = 0; i < 8; i++) {
		CHECK(coppice_arena_new(s.c, COPPICE_DEVICE, ARENA_BYTES, &arena) == 0);
		coppice_arena_free(arena);
	}
	CHECK(count_descriptors() == n);
	client_end(&s);
	gpu_end(&s);
	return 0;
}

/* Device memory stays open for who has a reference: the daemon hears that it is free only then. Of
 * what outlives the connection it hears by the end of the process. */
int role_view(const char *socket, char **args)
{
	struct coppice_arena *late;
	struct stem s = {0};
	uint32_t n;

	(void)args;
	gpu_start(&s);
	client_start(&s, socket, COPPICE_DEVICE);
	CHECK(coppice_arena_new(s.c, COPPICE_DEVICE, ARENA_BYTES, &late) == 0);
	n = count_arenas(&s);
	fill(&s, 7);
	coppice_arena_ref(s.arena);
	coppice_arena_free(s.arena);
	CHECK(count_arenas(&s) == n);
	CHECK(is_all(&s, 7));
	coppice_arena_unref(s.arena);
	CHECK(count_arenas(&s) == n - 1);
	s.there = coppice_arena_base(late);
	coppice_arena_ref(late);
	coppice_seq_close(s.seq);
	coppice_lane_free(s.lane);
	coppice_close(s.c);
	CHECK(is_all(&s, 0));
	coppice_arena_unref(late);
	gpu_end(&s);
	return 0;
}

static int weights_file(void)
{
	static const char header[] =
		"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}";
	uint64_t n = sizeof(header) - 1;
	int fd = memfd_create("weights", MFD_CLOEXEC);

	CHECK(fd >= 0 && write(fd, &n, sizeof(n)) == sizeof(n));
	CHECK(write(fd, header, n) == (ssize_t)n && write(fd, "weights!", 8) == 8);
	return fd;
}

static struct coppice_arena *map_weights(struct coppice *c)
{
	struct coppice_weights *weights;
	struct coppice_arena *arena;
	int fd = weights_file();

	CHECK(coppice_weights_open(c, &fd, 1, &weights) == 0, "%s", coppice_explain(c));
	CHECK(coppice_weights_wait(weights, PATIENCE_NS, NULL) == 0, "%s", coppice_explain(c));
	CHECK(coppice_weights_map(weights, PATIENCE_NS, &arena) == 0, "%s", coppice_explain(c));
	coppice_weights_close(weights);
	close(fd);
	return arena;
}

static void check_weights(struct stem *s, const struct coppice_arena *arena)
{
	char bytes[8];

	CHECK(coppice_arena_memory(arena) == COPPICE_DEVICE);
	CHECK(s->gpu.copy_now((uintptr_t)bytes, (uintptr_t)coppice_arena_base(arena), 8) == 0);
	CHECK(memcmp(bytes, "weights!", 8) == 0);
}

/* What is mapped of weights outlives the connection, and stays for as long as the process. */
int role_weights(const char *socket, char **args)
{
	struct stem s = {0};
	struct coppice_arena *arena;

	(void)args;
	gpu_start(&s);
	CHECK(coppice_connect(&s.c, socket) == 0, "%s", coppice_explain(NULL));
	arena = map_weights(s.c);
	check_weights(&s, arena);
	coppice_arena_ref(arena);
	coppice_close(s.c);
	check_weights(&s, arena);
	say_go();
	await_go();
	check_weights(&s, arena);
	vanish();
}

/* arena | seq: what a step uses that waits for its stream is freed under it. */
int role_cancelled(const char *socket, char **args)
{
	bool arena = strcmp(args[0], "arena") == 0;
	struct stem s = {0};
	_Atomic int gate = 0;
	uint64_t ticket, extended;

	gpu_start(&s);
	client_start(&s, socket, COPPICE_HOST);
	CHECK(coppice_seq_extend(s.seq, &(uint32_t){1}, 1, &extended) == 0);
	CHECK(s.gpu.call(s.stream, hold_gate, (void *)&gate) == 0);

	struct coppice_step_seq part = part_of(&s, 0, 1);
	struct coppice_step step = {.seqs = &part, .n_seqs = 1};

	CHECK(coppice_step_on_stream(s.lane, &step, s.stream, &ticket) == 0, "%s",
	      coppice_explain(s.c));
	CHECK(coppice_wait(s.lane, extended, PATIENCE_NS) == 0);
	pause_us(20000); /* the daemon has read the step by then, and waits for the stream */
	if (arena)
		coppice_arena_free(s.arena);
	else
		coppice_seq_close(s.seq);
	CHECK(coppice_wait(s.lane, ticket, PATIENCE_NS) == -ECANCELED, "%s", coppice_explain(s.c));
	CHECK(strstr(coppice_explain(s.c), arena ? "an arena that it uses was freed"
						 : "sequence 0: one of its sequences was closed"),
	      "%s", coppice_explain(s.c));
	CHECK(strstr(coppice_explain(s.c), "while"), "%s", coppice_explain(s.c));
	gate = 1;
	CHECK(s.gpu.stream_await(s.stream) == 0);
	coppice_close(s.c);
	gpu_end(&s);
	return 0;
}
