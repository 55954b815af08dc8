/*
 * control_program_test.c - the verb program_new from clients that write its message by hand: arrays
 * that are longer than any program's, or not as long as the message says itself.
 */
#include "control_harness.h"

#include <errno.h>
#include <string.h>

#define N_LAYERS 2u
#define N_SLOTS 3u
#define OPS_MAX 256u
#define KINDS_MAX 16u
#define SLOTS_MAX 16384u

/* A message of two layers, of one kind and one operation, and what it points to. */
struct message {
	Coppice__ProgramNew m;
	Coppice__ProgramOp op;
	Coppice__ProgramOp *ops[OPS_MAX + 1];
	uint32_t kind_n_ops[KINDS_MAX + 1];
	uint32_t slots[SLOTS_MAX + 4];
	uint8_t kind_of[N_LAYERS + 1];
};

static struct message message;

/* It fits itself; of the weights the session has none. */
static Coppice__ProgramNew *begin(void)
{
	Coppice__ProgramNew *m = &message.m;

	memset(&message, 0, sizeof(message));
	coppice__program_new__init(m);
	coppice__program_op__init(&message.op);
	for (uint32_t i = 0; i <= OPS_MAX; i++)
		message.ops[i] = &message.op;
	m->weights = 1;
	m->n_layers = N_LAYERS;
	m->n_slots = N_SLOTS;
	m->n_op = 1;
	m->op = message.ops;
	m->n_kind_n_ops = 1;
	m->kind_n_ops = message.kind_n_ops;
	m->kind_of = (ProtobufCBinaryData){N_LAYERS, message.kind_of};
	m->n_slot = (size_t)N_LAYERS * N_SLOTS;
	m->slot = message.slots;
	return m;
}

static void expect(struct client *c, int code, const char *field, const char *text)
{
	assert_refused(client_verb(c, program_new, &message.m), code, field, text);
}

static void arrays_of_another_length_are_refused_by_name(void **state)
{
	struct client c = client_open(*state);

	begin();
	expect(&c, -ENOENT, "weights", NULL);
	begin()->n_op = OPS_MAX;
	expect(&c, -ENOENT, "weights", NULL);
	begin()->n_op = OPS_MAX + 1;
	expect(&c, -EINVAL, "op", "longer than one may be");
	begin()->n_kind_n_ops = KINDS_MAX;
	expect(&c, -ENOENT, "weights", NULL);
	begin()->n_kind_n_ops = KINDS_MAX + 1;
	expect(&c, -EINVAL, "kind_n_ops", "longer than one may be");
	begin()->n_slot--;
	expect(&c, -EINVAL, "slot", "another length");
	begin()->n_slot++;
	expect(&c, -EINVAL, "slot", "another length");
	begin()->kind_of.len--;
	expect(&c, -EINVAL, "kind_of", "another length");
	begin()->kind_of.len++;
	expect(&c, -EINVAL, "kind_of", "another length");
	assert_int_equal(client_count_sessions(&c), 1);
	client_close(&c);
}

/* Of as many as a message holds, and of so many layers that their number wraps around. */
static void slots_are_no_more_than_there_is_room_for(void **state)
{
	struct client c = client_open(*state);
	Coppice__ProgramNew *m = begin();

	m->n_slots = SLOTS_MAX / N_LAYERS;
	m->n_slot = SLOTS_MAX;
	expect(&c, -ENOENT, "weights", NULL);
	m->n_slots++;
	m->n_slot += N_LAYERS;
	expect(&c, -EINVAL, "slot", "longer than one may be");
	m = begin();
	m->n_layers = 1u << 31;
	m->n_slots = 1u << 31;
	m->n_slot = 0;
	expect(&c, -EINVAL, "slot", "another length");
	assert_int_equal(client_count_sessions(&c), 1);
	client_close(&c);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		HARNESS_CASE(epoll, arrays_of_another_length_are_refused_by_name),
		HARNESS_CASE(epoll, slots_are_no_more_than_there_is_room_for),
	};

	if (harness_init(argc, argv) < 0)
		return 1;
	return cmocka_run_group_tests_name("programs by hand", tests, NULL, NULL);
}
