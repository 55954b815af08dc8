/*
 * weights_fixture.h - safetensors files, clients that hand them over, and a backend of which only
 * memory for weights is asked.
 */
#ifndef WEIGHTS_FIXTURE_H
#define WEIGHTS_FIXTURE_H

#include "daemon/weights/weights.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define MIB (UINT64_C(1) << 20)
#define ALICE 1001u
#define BOB 1002u

struct backend_weights {
	uint64_t bytes;
	uint8_t data[];
};

extern const char *fixture_coppiced; /* its path */
extern uint64_t fixture_grain; /* of memory, of tables to come; 1 at first */
extern uint64_t fixture_least_rate; /* of a load, the same; 0 at first */
extern uint32_t fixture_max_load_s; /* the same */
/* Of names, the same, half of it for a user; 64 MiB at first. */
extern uint64_t fixture_names_bytes;
extern struct ledger *fixture_ledger; /* of tables to come; NULL: none */
/* How lending goes; below 0: it fails so. */
extern _Atomic int fixture_lend;
extern _Atomic pthread_t fixture_freed_by; /* who has given the last one back */
extern _Atomic int fixture_n_memories; /* that the backend has given and not got back */

/* A file of three tensors, one of a type that programs do not take. */
#define FIXTURE_HEADER \
	"{\"b\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[0,12]}," \
	"\"ids\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[12,20]}," \
	"\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[20,28]}}"
extern const uint8_t fixture_data[28];

/* All tests of a program, in a folder of their own. Exit status. */
int fixture_run(const char *coppiced, int (*run)(void));

/* With this loader, and room for so much, three quarters of it for a user. A loader may say nothing
 * for so long. */
struct weights_table *fixture_table_of(const char *loader, uint64_t max_bytes, uint32_t stall_ms);
/* Of ours, with patience: the machine may be crowded. */
struct weights_table *fixture_table(void);

/* In the folder; the library's, for two calls. */
const char *fixture_path(const char *name);
/* Writes a file, as if long ago. Its path. */
const char *fixture_file(const char *name, const char *header, const void *data, size_t bytes);
/* One tensor of so many KiB, which begin with the name. */
const char *fixture_file_of(const char *name, uint32_t kib);
int fixture_open(const char *path);

void fixture_send(int socket, const int *fds, uint32_t n);
struct weights *fixture_begin(struct weights_table *table, uid_t domain, const int *fds,
			      uint32_t n);
void fixture_moment(void);
/* Until they are there, or not: what stands for them. */
struct weights *fixture_end(struct weights *weights);
/* All of it, of one file. */
struct weights *fixture_load(struct weights_table *table, uid_t domain, const char *path);
/* The caller's reference goes; they are idle then, if nobody else has one: the thread that loaded
 * them has one until it is over. */
void fixture_leave(struct weights *weights);
/* Until so much is held: what turned out to be there already goes a moment later. */
void fixture_settle(struct weights_table *table, uint64_t bytes);
void fixture_expect_ready(struct weights *weights);
/* They fail so; the reference goes. */
void fixture_expect_failure(struct weights *weights, int error, const char *words);

#endif
