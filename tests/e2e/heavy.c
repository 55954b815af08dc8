/* heavy.c - see heavy.h. All weights are 0: what comes of them is of no matter. */
#include "heavy.h"

#include "element.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#define WIDE UINT32_MAX /* stands for width() */
#define HEAD_DIM 64u
#define VOCAB 16u
#define N_PRODUCTS (COPPICE_OPS_MAX - 3)

enum { SLOT_HEADS, SLOT_OUT, SLOT_HEAVY, N_SLOTS };

struct named {
	const char *name;
	uint32_t n_out, n_in; /* n_out 0: a vector */
};

/* In order of names, which is that of their numbers. */
static const struct named tensors[] = {
	{"embed", VOCAB, WIDE}, {"heads", HEAD_DIM, WIDE}, {"heavy", WIDE, WIDE},
	{"norm", 0, WIDE},	{"out", WIDE, HEAD_DIM},
};
enum { EMBED, HEADS, HEAVY, NORM, OUT, N_TENSORS };

/* A GPU takes a thousandth of the time for as much: it would be done with a prompt's 512 rows
 * sooner than with a token of a small model. These are 3.6e12 multiplications and additions. */
static uint32_t width(void)
{
	return test_on_gpu() ? 16384 : 2048;
}

static uint32_t length(uint32_t n)
{
	return n == WIDE ? width() : n;
}

static int write_header(char *at, size_t bytes, uint64_t *ret_data_bytes)
{
	uint64_t begin = 0;
	int n = snprintf(at, bytes, "{");

	for (uint32_t i = 0; i < N_TENSORS; i++) {
		const struct named *t = &tensors[i];
		uint32_t n_out = length(t->n_out), n_in = length(t->n_in);
		uint64_t end = begin + (uint64_t)(n_out ? n_out : 1) * n_in * 2;
		char outs[16] = "";

		if (n_out)
			snprintf(outs, sizeof(outs), "%u,", n_out);
		n += snprintf(at + n, bytes - (size_t)n,
			      "%s\"%s\":{\"dtype\":\"BF16\",\"shape\":[%s%u],"
			      "\"data_offsets\":[%llu,%llu]}",
			      i ? "," : "", t->name, outs, n_in, (unsigned long long)begin,
			      (unsigned long long)end);
		begin = end;
	}
	*ret_data_bytes = begin;
	return n + snprintf(at + n, bytes - (size_t)n, "}");
}

static int file_new(void)
{
	int fd = memfd_create("heavy", MFD_CLOEXEC);
	uint64_t n_data, n;
	char header[1024];

	assert_true(fd >= 0);
	n = (uint64_t)write_header(header, sizeof(header), &n_data);
	assert_int_equal(write(fd, &n, sizeof(n)), sizeof(n));
	assert_int_equal(write(fd, header, n), n);
	assert_int_equal(ftruncate(fd, (off_t)(sizeof(n) + n + n_data)), 0);
	return fd;
}

static struct coppice_op linear(uint32_t in, uint32_t out, uint32_t slot, uint32_t n_w)
{
	struct coppice_op op = {.kind = COPPICE_LINEAR, .in = in, .out = out, .n_w = n_w};

	for (uint32_t i = 0; i < 3; i++) {
		op.w[i] = i < n_w ? slot : COPPICE_NO_SLOT;
		op.bias[i] = COPPICE_NO_SLOT;
	}
	return op;
}

static void set_ops(struct coppice_op ops[COPPICE_OPS_MAX])
{
	ops[0] = linear(COPPICE_X, COPPICE_A, SLOT_HEADS, 3);
	ops[1] = linear(COPPICE_A, COPPICE_B, 0, 0);
	ops[1].kind = COPPICE_ATTEND;
	ops[1].flags = COPPICE_OP_UNTURNED;
	ops[2] = linear(COPPICE_B, COPPICE_C, SLOT_OUT, 1);
	for (uint32_t i = 0; i < N_PRODUCTS; i++) {
		uint32_t in = i % 2 ? COPPICE_A : COPPICE_C;

		ops[3 + i] = linear(in, in == COPPICE_A ? COPPICE_C : COPPICE_A, SLOT_HEAVY, 1);
	}
}

static void must(struct coppice *c, int r)
{
	if (r < 0)
		fail_msg("%s (%d)", coppice_explain(c), r);
}

static struct coppice_weights *load(struct coppice *c)
{
	struct coppice_weights *weights;
	int fd = file_new();

	must(c, coppice_weights_open(c, &fd, 1, &weights));
	close(fd);
	must(c, coppice_weights_wait(weights, COPPICE_SECONDS(60), NULL));
	return weights;
}

struct coppice *heavy_open(const char *socket, uint32_t *ret_model)
{
	static const uint32_t of_layer[N_SLOTS] = {HEADS, OUT, HEAVY};
	static const struct coppice_layer_kind kind = {0, COPPICE_OPS_MAX};
	static const uint8_t kind_of = 0;
	struct coppice_op ops[COPPICE_OPS_MAX];
	const struct coppice_program_info info = {.size = sizeof(info),
						  .hidden = width(),
						  .n_vocab = VOCAB,
						  .n_layers = 1,
						  .n_q_heads = 1,
						  .n_kv_heads = 1,
						  .head_dim = HEAD_DIM,
						  .max_positions = 1u << 20,
						  .dtype = COPPICE_BF16,
						  .eps = 1e-5f,
						  .embed = EMBED,
						  .final_norm = NORM,
						  .head = EMBED,
						  .ops = ops,
						  .kinds = &kind,
						  .kind_of = &kind_of,
						  .tensors = of_layer,
						  .n_ops = COPPICE_OPS_MAX,
						  .n_kinds = 1,
						  .n_slots = N_SLOTS};
	struct coppice_weights *weights;
	struct coppice *c;

	assert_int_equal(coppice_connect(&c, socket), 0);
	weights = load(c);
	set_ops(ops);
	must(c, coppice_program_new(c, weights, &info, ret_model));
	coppice_weights_close(weights);
	return c;
}
