/*
 * element.h - numbers of a model's dtype, as tests write and read them in arenas: fp32 on the CPU,
 * fp16 on a GPU, which takes no fp32. The backend is that of COPPICE_TEST_BACKEND, the CPU where
 * that is not set.
 */
#ifndef COPPICE_TESTS_ELEMENT_H
#define COPPICE_TESTS_ELEMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static inline const char *test_backend(void)
{
	const char *name = getenv("COPPICE_TEST_BACKEND");

	return name && *name ? name : "cpu";
}

/* Asked for each number: the environment is read once a file. */
static inline bool test_on_gpu(void)
{
	static enum { UNKNOWN, NO, YES } on_gpu;

	if (on_gpu == UNKNOWN)
		on_gpu = strcmp(test_backend(), "cuda") == 0 ? YES : NO;
	return on_gpu == YES;
}

/* COPPICE_FP16 or COPPICE_FP32, as the control messages have them too. */
static inline unsigned element_dtype(void)
{
	return test_on_gpu() ? 1 : 0;
}

static inline size_t element_bytes(void)
{
	return test_on_gpu() ? 2 : 4;
}

/* Where the i-th number of a row lies. */
static inline void *element_at(void *row, size_t i)
{
	return (char *)row + i * element_bytes();
}

static inline void element_put(void *row, size_t i, float value)
{
	if (test_on_gpu())
		((_Float16 *)row)[i] = (_Float16)value;
	else
		((float *)row)[i] = value;
}

static inline float element_get(const void *row, size_t i)
{
	return test_on_gpu() ? (float)((const _Float16 *)row)[i] : ((const float *)row)[i];
}

/* What is left of a value once it is stored. */
static inline float element_round(float value)
{
	return test_on_gpu() ? (float)(_Float16)value : value;
}

#endif
