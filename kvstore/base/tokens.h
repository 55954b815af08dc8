/*
 * tokens.h - how far two runs of tokens agree.
 */
#ifndef COPPICE_KVSTORE_TOKENS_H
#define COPPICE_KVSTORE_TOKENS_H

#include <stdint.h>
#include <string.h>

#define TOKENS_COMPARED 2048u /* at once, before looking for where they differ */

/* Length of the common prefix. */
static inline uint32_t tokens_common(const uint32_t *a, const uint32_t *b, uint32_t n)
{
	uint32_t done = 0;

	for (; n - done > TOKENS_COMPARED; done += TOKENS_COMPARED)
		if (memcmp(a + done, b + done, TOKENS_COMPARED * sizeof(*a)))
			break;
	uint32_t end = n - done > TOKENS_COMPARED ? done + TOKENS_COMPARED : n;
	if (!memcmp(a + done, b + done, (end - done) * sizeof(*a)))
		return end;
	while (a[done] == b[done])
		done++;
	return done;
}

#endif
