/*
 * agree.h - processes that are to be one group tell each other what their devices are, and know
 * their meeting from then on.
 */
#ifndef COPPICE_GROUP_AGREE_H
#define COPPICE_GROUP_AGREE_H

#include "proto/must_check.h"
#include "kernels/backend.h"

/* config: of the group that this process opens, which has ranks; the first device's kind stands for
 * all. ret [BACKEND_MEETING_BYTES]: as backend_meeting's id, where devices meet. Blocks until all
 * have told. 0; -EINVAL where they are unlike; -errno; and a sentence. */
MUST_CHECK int agree(const struct backend_config *config, uint8_t *ret, char *error,
		     size_t error_bytes);

#endif
