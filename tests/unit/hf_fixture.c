/*
 * hf_fixture.c - the sentence is cleared before each text: none is taken for an older one's.
 */
#include "hf_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

char hf_why[COPPICE_HF_WHY_BYTES];

int hf_parse(const char *text, uint32_t max_positions, struct coppice_hf_program **ret)
{
	const struct coppice_hf_options options = {.max_positions = max_positions};
	memset(hf_why, 0, sizeof(hf_why));
	return coppice_hf_parse(text, strlen(text), &options, ret, hf_why);
}

struct coppice_hf_program *hf_expect_good_within(const char *text, uint32_t max_positions)
{
	struct coppice_hf_program *program;
	if (hf_parse(text, max_positions, &program) < 0)
		fail_msg("%s", hf_why);
	return program;
}

struct coppice_hf_program *hf_expect_good(const char *text)
{
	return hf_expect_good_within(text, 0);
}

void hf_expect_refused_with(int error, const char *text, const char *const *words)
{
	struct coppice_hf_program *program = NULL;
	assert_int_equal(hf_parse(text, 0, &program), error);
	assert_null(program);
	assert_non_null(strstr(hf_why, "config.json: "));
	for (; *words; words++)
		if (!strstr(hf_why, *words))
			fail_msg("'%s' does not say '%s'", hf_why, *words);
}
