/*
 * fake_lt.c - cuBLASLt, played: products at once, by the oracle.
 */
#include "fake_device.h"
#include "oracle.h"

#include "daemon/base/grow.h"
#include "kernels/cuda/program/lt.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

/* A matrix's values and what comes out. Kept, as to get as much anew for each product takes a
 * sanitizer longer than the product. */
static struct {
	float *w, *made;
	double *y;
	uint32_t w_room, made_room, y_room;
} room;

int lt_open(struct lt **ret, char *why, size_t bytes)
{
	(void)why;
	(void)bytes;
	*ret = (struct lt *)&room;
	return 0;
}

void lt_close(struct lt *lt)
{
	(void)lt;
}

uint32_t fake_device_refused;

int lt_find(struct lt *lt, const struct lt_product *p)
{
	assert_true(p->n_w > 0 && p->n_out > 0 && p->n_in > 0 && p->n_rows > 0);
	return lt && p->n_in % 8 == 0 && p->n_out != fake_device_refused ? 0 : -EOPNOTSUPP;
}

/* A matrix of it: y is what was there before, and then what is. */
static void product_make(const struct lt_product *p, struct oracle_product *o, const char *matrix,
			 char *out)
{
	uint32_t n_y = p->n_rows * p->n_out, n_w = p->n_out * p->n_in;
	const float *before = (const float *)(void *)out;

	assert_int_equal(GROW(room.w, room.w_room, n_w), 0);
	assert_int_equal(GROW(room.made, room.made_room, n_y), 0);
	assert_int_equal(GROW(room.y, room.y_room, n_y), 0);
	oracle_decode(p->type, room.w, matrix, n_w);
	for (size_t i = 0; i < n_y; i++)
		room.y[i] =
			p->add ? (double)before[i / p->n_out * p->out_stride + i % p->n_out] : 0;
	o->w = room.w;
	o->y = room.y;
	oracle_multiply(o);
	for (size_t i = 0; i < n_y; i++)
		room.made[i] = (float)room.y[i];
	for (size_t row = 0; row < p->n_rows; row++)
		oracle_encode(p->out_type,
			      out + row * p->out_stride * work_dtype_bytes(p->out_type),
			      room.made + row * p->n_out, p->n_out);
}

static double *product_inputs(const struct lt_product *p)
{
	double *x = malloc((size_t)p->n_rows * p->n_in * sizeof(*x));
	float *row = malloc(p->n_in * sizeof(*row));

	assert_true(x && row);
	for (size_t r = 0; r < p->n_rows; r++) {
		oracle_decode(p->type, row, (const char *)p->in + 2 * r * p->in_stride, p->n_in);
		for (uint32_t i = 0; i < p->n_in; i++)
			x[r * p->n_in + i] = (double)row[i];
	}
	free(row);
	return x;
}

int lt_multiply(struct lt *lt, const struct lt_product *p, void *workspace,
		struct CUstream_st *stream)
{
	double *x = product_inputs(p);
	struct oracle_product product = {.x = x,
					 .y_stride = p->n_out,
					 .n_rows = p->n_rows,
					 .n_out = p->n_out,
					 .n_in = p->n_in};

	(void)lt;
	(void)stream;
	assert_true(workspace && !(p->add && p->out_type != WORK_FP32));
	assert_true(p->in_stride >= p->n_in && p->out_stride >= p->n_out * p->n_w && p->n_w > 0);
	/* cuBLASLt reads elsewhere where the second matrix lies before the first */
	assert_true(p->n_w == 1 || (p->w_stride >= (uint64_t)p->n_out * p->n_in &&
				    p->w_stride < UINT64_C(1) << 40));
	for (uint32_t i = 0; i < p->n_w; i++)
		product_make(p, &product, (const char *)p->w + 2 * i * p->w_stride,
			     (char *)p->out + i * p->n_out * work_dtype_bytes(p->out_type));
	free(x);
	return 0;
}
