/*
 * wire.h - what the daemon and a loader say to each other: packets over a socket pair, and the
 * slots of a memfd through which bytes of files come.
 *
 *      loader                                    daemon
 *      (descriptors from the client)
 *      LOADER_FILES, of each what fstat says ->
 *                                           <-   LOADER_GO: read them
 *      LOADER_PIECE of each header, in order ->
 *                                           <-   LOADER_GO: there is room for the data
 *      LOADER_PIECE of the data, in order   ->
 *                                           <-   LOADER_TAKEN: the slot is free again
 *      LOADER_END                           ->
 *
 * At any time LOADER_FAILED. The daemon believes none of it: a loader is killed for the first
 * packet that is not what comes next.
 */
#ifndef COPPICED_WEIGHTS_WIRE_H
#define COPPICED_WEIGHTS_WIRE_H

#include <stdint.h>

#define LOADER_DAEMON_FD 3
#define LOADER_CLIENT_FD 4
#define LOADER_SLOTS_FD 5

#define LOADER_FILES_MAX 128u
#define LOADER_SLOTS 4u
#define LOADER_SLOT_BYTES (8u << 20)
#define LOADER_SLOTS_BYTES ((uint64_t)LOADER_SLOTS * LOADER_SLOT_BYTES)
/* A header of more is refused: one of 10,000 tensors has 1.5 MiB. */
#define LOADER_HEADER_BYTES_MAX (4u << 20)
/* Of all files: each tensor that one tells of takes memory, be it empty or of no use. */
#define LOADER_HEADERS_BYTES_MAX (16u << 20)

enum loader_kind {
	LOADER_FILES = 1,
	LOADER_GO,
	LOADER_PIECE,
	LOADER_TAKEN,
	LOADER_END,
	LOADER_FAILED,
};

/* Why a file cannot be had; errno says the rest of LOADER_BAD_READ and LOADER_BAD_STAT. */
enum loader_failure {
	LOADER_BAD_MESSAGE = 1, /* the client sent no descriptors, or too many */
	LOADER_BAD_STAT,
	LOADER_NOT_REGULAR,
	LOADER_TOO_SHORT,
	LOADER_BAD_READ,
	LOADER_CUT_OFF, /* it ended before the bytes that it had */
	LOADER_CHANGED, /* while it was read */
	LOADER_BAD_HEADER, /* longer than the file, or than is taken */
};

struct loader_message {
	uint32_t kind;
	uint32_t file; /* index; of LOADER_FILES: how many */
	uint32_t slot;
	int32_t error; /* errno */
	uint32_t failure; /* enum loader_failure */
	uint32_t pad;
	uint64_t offset; /* in the file */
	uint64_t bytes;
};

/* Behind a LOADER_FILES, so many. By these a file is known again. */
struct loader_file {
	uint64_t dev, ino, bytes;
	int64_t mtime_ns, ctime_ns;
};

#endif
