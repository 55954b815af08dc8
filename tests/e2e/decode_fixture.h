/*
 * decode_fixture.h - a coppiced, and clients of it that decode the model of tests/model by its
 * program.
 */
#ifndef DECODE_FIXTURE_H
#define DECODE_FIXTURE_H

#include "client/coppice_program.h"
#include "client/model/coppice_hf.h"

#include <stdbool.h>
#include <sys/types.h>

#define DECODE_TOKENS 600u /* of the document */
#define DECODE_VOCAB 256u
#define DECODE_OUT_BYTES (1u << 20)
#define DECODE_LAYERS_MOST 1024u

struct decode_service {
	const char *options[6]; /* more of them, up to NULL */
	char dir[32], socket[96];
	pid_t pid;
	uint32_t ids[DECODE_TOKENS];
};

/* A session that has the program. */
struct decode_client {
	struct coppice *c;
	struct coppice_arena *arena;
	struct coppice_lane *lane;
	struct coppice_weights *weights;
	uint32_t model;
	uint8_t *out; /* in the arena */
};

/* Where products are rounded to narrow inputs. */
bool decode_on_gpu(void);

/* Each test program defines its own, which comes and goes with the group. It ends as it should,
 * with 0. */
extern struct decode_service service;
int decode_setup(void **state);
int decode_teardown(void **state);

/* What coppicectl prints when it is asked of the service: until the next call. */
const char *decode_listing(const char *words);

void decode_client_open(struct decode_client *client, const struct decode_service *s);
void decode_client_close(struct decode_client *client);
/* The same with the weights of a file of ours. */
void decode_client_open_of(struct decode_client *client, const struct decode_service *s,
			   const char *path);
struct coppice_weights *decode_weights(struct coppice *c);
/* That of tests/model, bound to the client's weights; the caller's to free. */
struct coppice_hf_program *decode_program(const struct decode_client *client);
/* As many layers as there may be, which name the same few matrices, so that the weights are small.
 * Good until the next call. */
struct coppice_program_info decode_deep_program(const struct coppice_hf_program *program);

/* On n of ids; what others have computed of it is cached. */
struct coppice_seq *decode_open(struct decode_client *client, const uint32_t *ids, uint32_t n,
				struct coppice_match *ret);
/* The same, and runs what is not. */
struct coppice_seq *decode_prompt(struct decode_client *client, const uint32_t *ids, uint32_t n);
/* The same, of all of it, whatever is cached. */
struct coppice_seq *decode_anew(struct decode_client *client, const uint32_t *ids, uint32_t n);
/* The next n tokens of a sequence, with all that is wanted of the last; waits. The value. */
uint64_t decode_run(struct decode_client *client, struct coppice_seq *seq, const uint32_t *ids,
		    uint32_t n);
/* What came of it: a struct coppice_row, then logits. */
const struct coppice_row *decode_row(const struct decode_client *client);
const float *decode_logits(const struct decode_client *client);
/* Asserts that the last run's logits [DECODE_VOCAB] have these bits; on a GPU, that they are as
 * near as its rounding has them. */
void decode_assert_same(const struct decode_client *client, const float *logits);

#endif
