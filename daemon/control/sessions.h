/* sessions.h - what the verb sessions takes and gives: a page of them. */
#ifndef COPPICED_SESSIONS_PAGE_H
#define COPPICED_SESSIONS_PAGE_H

#include <stdint.h>

#define SESSIONS_PAGE 64u

struct session_info {
	uint64_t id;
	uint32_t n_lanes, n_seqs;
	uint64_t entries, decode_steps, tokens_matched, tokens_computed, backend_ns;
	uint64_t weights_bytes_read;
};

struct sessions_page {
	uint64_t cursor; /* of the page; answered: of the next one, 0: there is none */
	uint32_t n;
	struct session_info infos[SESSIONS_PAGE];
};

#endif
