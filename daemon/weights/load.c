/*
 * load.c - a loader's packets become weights: headers first, then room, then data.
 *
 * Nothing that a loader says is believed: each packet is what comes next, in place and length, or
 * the load has failed. A header is parsed from a copy of our own. The data goes from its slot to
 * the backend's memory and through the hash; a loader that changed it between the two would deceive
 * the user alone whose files these are.
 */
#include "content.h"
#include "spawn.h"
#include "table.h"

#include "daemon/base/aside.h"
#include "kernels/thread.h"

#include "proto/arith.h"
#include "proto/clock.h"
#include "proto/cleanup.h"
#include "proto/size_text.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

/* What is of no use is read too, and nobody else loads meanwhile. */
#define FILES_TIMES 2u
#define FRESH_NS INT64_C(2000000000) /* file systems tell changes no finer than this */

struct load {
	struct weights *weights;
	int client_fd; /* owned; -1 */
	struct loader_process process;
	struct part *parts; /* owned, [n_parts] */
	uint32_t n_parts;
	uint32_t part; /* the one whose turn it is */
	uint64_t headers_bytes; /* so far */
	XXH3_state_t *hash; /* owned: of the tensor that is coming */
	struct aside aside; /* hashes what goes to the backend meanwhile */
	const uint8_t *hashed; /* so many bytes from there on */
	uint64_t hashed_bytes;
};

__attribute__((format(printf, 3, 4))) static int fail(struct load *l, int error, const char *format,
						      ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(l->weights->why, sizeof(l->weights->why), format, args);
	va_end(args);
	return error;
}

/* ---- packets -------------------------------------------------------------------------------- */

static int say(struct load *l, const struct loader_message *message)
{
	if (send(l->process.fd, message, sizeof(*message), MSG_NOSIGNAL) == sizeof(*message))
		return 0;
	return fail(l, -EIO, "The loader of the files ended.");
}

static int say_go(struct load *l)
{
	return say(l, &(struct loader_message){.kind = LOADER_GO});
}

static int explain_failure(struct load *l, const struct loader_message *m)
{
	static const char *const sentences[] = {
		[LOADER_BAD_MESSAGE] = "No descriptors came, or more than 128",
		[LOADER_BAD_STAT] = "It cannot be looked at",
		[LOADER_NOT_REGULAR] = "It is not a regular file",
		[LOADER_TOO_SHORT] = "It is too short for a safetensors file (the header's length "
				     "takes 8 bytes)",
		[LOADER_BAD_READ] = "It cannot be read",
		[LOADER_CUT_OFF] = "It ended before all its bytes had come: was it cut off?",
		[LOADER_CHANGED] = "It changed while it was read",
		[LOADER_BAD_HEADER] = "Its header has a length that is not a safetensors file's",
	};
	bool known = m->failure && m->failure < sizeof(sentences) / sizeof(sentences[0]);
	bool by_errno = m->failure == LOADER_BAD_STAT || m->failure == LOADER_BAD_READ;

	return fail(l, -EINVAL, "File %u: %s%s%s.", m->file + 1,
		    known ? sentences[m->failure] : "the loader failed", by_errno ? ": " : "",
		    by_errno ? strerror(m->error) : "");
}

static int out_of_order(struct load *l)
{
	return fail(l, -EIO, "The loader said what does not come next.");
}

static bool is_cancelled(const struct load *l)
{
	return atomic_load_explicit(&l->weights->cancelled, memory_order_relaxed);
}

/* 0 once a packet is there to be read. */
static int await(struct load *l)
{
	struct pollfd p = {.fd = l->process.fd, .events = POLLIN};
	uint32_t stall_ms = weights_config(l->weights)->stall_ms;
	int n = 0;

	if (!is_cancelled(l)) {
		do
			n = poll(&p, 1, (int)stall_ms);
		while (n < 0 && errno == EINTR);
	}
	if (is_cancelled(l))
		return weights_say_cancelled(l->weights);
	if (n == 0)
		return fail(l, -ETIMEDOUT, "Nothing came of the files for %u ms.", stall_ms);
	return n < 0 ? fail(l, -errno, "The loader cannot be waited for: %s.", strerror(errno)) : 0;
}

/* The next packet, which is to be of this kind. */
static int hear(struct load *l, uint32_t kind, void *packet, size_t bytes, size_t *ret_bytes)
{
	const struct loader_message *m = packet;
	int r = await(l);
	ssize_t n;

	if (r < 0)
		return r;
	n = recv(l->process.fd, packet, bytes, 0);
	if (n < (ssize_t)sizeof(*m))
		return fail(l, -EIO, "The loader of the files ended.");
	if (m->kind == LOADER_FAILED)
		return explain_failure(l, m);
	*ret_bytes = (size_t)n;
	return m->kind == kind ? 0 : out_of_order(l);
}

/* ---- files ---------------------------------------------------------------------------------- */

static bool is_fresh(const struct loader_file *files, uint32_t n)
{
	int64_t now_ns = (int64_t)clock_read_ns(CLOCK_REALTIME);

	for (uint32_t i = 0; i < n; i++)
		if (files[i].ctime_ns > now_ns - FRESH_NS)
			return true;
	return false;
}

static int refuse_bytes(struct load *l, uint64_t bytes)
{
	return fail(l, -EDQUOT,
		    "The files have %s, which is more than %u times what a user's weights may take "
		    "(domain_weights).",
		    size_text(bytes, 0).text, FILES_TIMES);
}

/* 1: they are known, there is nothing to load. */
static int know_files(struct load *l, const struct loader_file *files, uint32_t n)
{
	CLEANUP_FREE struct loader_file *copy = malloc(n * sizeof(*copy));
	struct loader_file *taken;
	uint64_t bytes = 0, domain_bytes = weights_config(l->weights)->memory.domain_bytes;

	l->parts = calloc(n, sizeof(*l->parts));
	if (!copy || !l->parts)
		return fail(l, -ENOMEM, "There is no memory to load them.");
	l->n_parts = n;
	for (uint32_t i = 0; i < n; i++) {
		copy[i] = l->parts[i].about = files[i];
		if (files[i].bytes < SAFETENSORS_LENGTH_BYTES ||
		    __builtin_add_overflow(bytes, files[i].bytes, &bytes))
			return out_of_order(l);
	}
	atomic_store_explicit(&l->weights->bytes_all, bytes, memory_order_relaxed);
	if (bytes / FILES_TIMES > domain_bytes + LOADER_HEADERS_BYTES_MAX)
		return refuse_bytes(l, bytes);
	taken = copy;
	copy = NULL;
	return weights_are_known(l->weights, taken, n, is_fresh(files, n));
}

static int hear_files(struct load *l)
{
	struct {
		struct loader_message head;
		struct loader_file files[LOADER_FILES_MAX];
	} packet;
	size_t bytes = 0;
	int r = hear(l, LOADER_FILES, &packet, sizeof(packet), &bytes);
	uint32_t n = packet.head.file;

	if (r < 0)
		return r;
	if (n == 0 || n > LOADER_FILES_MAX ||
	    bytes != sizeof(packet.head) + n * sizeof(packet.files[0]))
		return out_of_order(l);
	return know_files(l, packet.files, n);
}

/* ---- headers -------------------------------------------------------------------------------- */

static int begin_header(struct load *l, struct part *part, const uint8_t *first, uint64_t bytes)
{
	char why[SAFETENSORS_WHY_BYTES];
	uint64_t n = 0;
	int r;

	if (bytes < SAFETENSORS_LENGTH_BYTES)
		return out_of_order(l);
	r = safetensors_header_length(first, part->about.bytes, &n, why);
	if (r == 0 && n > LOADER_HEADER_BYTES_MAX)
		return fail(l, -EINVAL, "File %u: a header of %" PRIu64 " bytes is not taken.",
			    l->part + 1, n);
	if (r < 0)
		return fail(l, r, "File %u: %s.", l->part + 1, why);
	l->headers_bytes += n;
	if (l->headers_bytes > LOADER_HEADERS_BYTES_MAX)
		return fail(l, -EINVAL,
			    "File %u: headers of more than %u MiB in all are not taken.",
			    l->part + 1, LOADER_HEADERS_BYTES_MAX >> 20);
	part->wanted = SAFETENSORS_LENGTH_BYTES + n;
	part->bytes = malloc(part->wanted);
	return part->bytes ? 0 : fail(l, -ENOMEM, "There is no memory for a header.");
}

static int take_header(struct load *l, const uint8_t *slot, uint64_t bytes)
{
	struct part *part = &l->parts[l->part];
	/* The length is looked at once, in our own copy. */
	uint8_t first[SAFETENSORS_LENGTH_BYTES] = {0};
	int r = 0;

	if (part->have == 0) {
		memcpy(first, slot, min_u64(bytes, sizeof(first)));
		r = begin_header(l, part, first, bytes);
	}
	if (r == 0 && bytes > part->wanted - part->have)
		r = out_of_order(l);
	if (r < 0)
		return r;
	memcpy(part->bytes + part->have, slot, bytes);
	if (part->have == 0)
		memcpy(part->bytes, first, sizeof(first));
	part->have += bytes;
	return 0;
}

static int parse_header(struct load *l)
{
	struct part *part = &l->parts[l->part];
	uint64_t n = part->wanted - SAFETENSORS_LENGTH_BYTES;
	char why[SAFETENSORS_WHY_BYTES];
	int r = safetensors_header_parse((const char *)part->bytes + SAFETENSORS_LENGTH_BYTES, n,
					 part->about.bytes - part->wanted, &part->header, why);

	if (r < 0)
		return fail(l, r, "File %u: %s.", l->part + 1, why);
	free(part->bytes);
	part->bytes = NULL;
	part->numbers = calloc(part->header.n_tensors + 1, sizeof(*part->numbers));
	if (!part->numbers)
		return fail(l, -ENOMEM, "There is no memory for a header.");
	return weights_take_names(l->weights, content_names_bytes(&part->header));
}

/* A piece of the part whose turn it is, from this offset on. */
static int hear_piece(struct load *l, uint64_t offset, struct loader_message *ret)
{
	size_t bytes = 0;
	int r = hear(l, LOADER_PIECE, ret, sizeof(*ret), &bytes);

	if (r < 0)
		return r;
	if (ret->file != l->part || ret->slot >= LOADER_SLOTS || ret->offset != offset ||
	    ret->bytes == 0 || ret->bytes > LOADER_SLOT_BYTES)
		return out_of_order(l);
	return 0;
}

static const uint8_t *slot_of(const struct load *l, const struct loader_message *piece)
{
	return l->process.slots + (uint64_t)piece->slot * LOADER_SLOT_BYTES;
}

static int took(struct load *l, const struct loader_message *piece)
{
	atomic_fetch_add_explicit(&l->weights->bytes_done, piece->bytes, memory_order_relaxed);
	return say(l, &(struct loader_message){.kind = LOADER_TAKEN, .slot = piece->slot});
}

static int hear_header(struct load *l)
{
	struct part *part = &l->parts[l->part];
	struct loader_message piece;
	int r = 0;

	do {
		r = hear_piece(l, part->have, &piece);
		if (r == 0)
			r = take_header(l, slot_of(l, &piece), piece.bytes);
		if (r == 0)
			r = took(l, &piece);
	} while (r == 0 && part->have < part->wanted);
	return r < 0 ? r : parse_header(l);
}

static int make_content(struct load *l)
{
	uint64_t bytes = 0;
	int r = content_make(&l->weights->content, l->parts, l->n_parts, &bytes, l->weights->why);

	return r < 0 ? r : weights_take_room(l->weights, bytes);
}

/* ---- data ----------------------------------------------------------------------------------- */

/* Name, type and shape go before the bytes. */
static void hash_begin(struct load *l, const struct program_tensor *t)
{
	const uint32_t about[] = {(uint32_t)t->dtype, t->n_out, t->n_in};

	XXH3_128bits_reset(l->hash);
	XXH3_128bits_update(l->hash, t->name, strlen(t->name) + 1);
	XXH3_128bits_update(l->hash, about, sizeof(about));
}

static void hash_end(struct load *l, uint32_t number)
{
	XXH128_canonical_t canonical;

	XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(l->hash));
	memcpy(&l->weights->content.digests[number], &canonical, sizeof(canonical));
}

static void hash_bytes(void *arg)
{
	struct load *l = arg;

	XXH3_128bits_update(l->hash, l->hashed, l->hashed_bytes);
}

/* To the backend and through the hash, at once where there is much of it. */
static int put(struct load *l, uint64_t offset, const uint8_t *from, uint64_t bytes)
{
	const struct weights_config *config = weights_config(l->weights);
	const bool aside = bytes >= ASIDE_LEAST_BYTES;
	int r;

	l->hashed = from;
	l->hashed_bytes = bytes;
	if (aside)
		aside_begin(&l->aside, hash_bytes, l);
	else
		hash_bytes(l);
	r = config->ops->program->weights_put(config->backend, l->weights->content.memory, offset,
					      from, bytes);
	if (aside)
		aside_end(&l->aside);
	return r;
}

/* Some bytes of the tensor that they have come to. */
static int take_bytes(struct load *l, struct part *part, const uint8_t *from, uint64_t bytes)
{
	const struct safetensors_tensor *t = &part->header.tensors[part->tensor];
	struct weights_content *c = &l->weights->content;
	uint32_t number = part->numbers[part->tensor];
	uint64_t at = part->at - t->begin;
	int r = 0;

	if (number != PROGRAM_NONE) {
		if (at == 0)
			hash_begin(l, &c->tensors[number]);
		r = put(l, c->tensors[number].offset + at, from, bytes);
	}
	part->at += bytes;
	if (r < 0)
		return fail(l, r, "The device does not take them: %s.", strerror(-r));
	if (part->at == t->end && number != PROGRAM_NONE)
		hash_end(l, number);
	return 0;
}

static int take_data(struct load *l, const uint8_t *from, uint64_t bytes)
{
	struct part *part = &l->parts[l->part];
	int r = 0;

	while (bytes > 0 && r == 0) {
		const struct safetensors_tensor *t = &part->header.tensors[part->tensor];
		uint64_t left = t->end - part->at, n = min_u64(left, bytes);

		if (n > 0)
			r = take_bytes(l, part, from, n);
		from += n;
		bytes -= n;
		part->tensor += part->at == t->end;
	}
	return r;
}

static int hear_data(struct load *l)
{
	struct part *part = &l->parts[l->part];
	uint64_t data_bytes = part->about.bytes - part->wanted;
	struct loader_message piece;
	int r = 0;

	while (part->at < data_bytes && r == 0) {
		r = hear_piece(l, part->wanted + part->at, &piece);
		if (r == 0 && piece.bytes > data_bytes - part->at)
			r = out_of_order(l);
		if (r == 0)
			r = take_data(l, slot_of(l, &piece), piece.bytes);
		if (r == 0)
			r = took(l, &piece);
	}
	return r;
}

/* ---- the load ------------------------------------------------------------------------------- */

static int each_part(struct load *l, int (*hear_part)(struct load *l))
{
	int r = 0;

	for (l->part = 0; l->part < l->n_parts && r == 0; l->part++)
		r = hear_part(l);
	return r;
}

static int hear_all_data(struct load *l)
{
	int r;

	aside_init(&l->aside, NULL);
	r = each_part(l, hear_data);
	aside_done(&l->aside);
	return r;
}

static int bring(struct load *l)
{
	struct loader_message end;
	size_t bytes;
	int r = say_go(l);

	if (r == 0)
		r = each_part(l, hear_header);
	if (r == 0)
		r = make_content(l);
	if (r == 0)
		r = say_go(l);
	if (r == 0)
		r = hear_all_data(l);
	return r < 0 ? r : hear(l, LOADER_END, &end, sizeof(end), &bytes);
}

static int load_run(struct load *l)
{
	int r = loader_spawn(weights_config(l->weights)->loader, l->client_fd, &l->process);

	close(l->client_fd);
	if (r < 0)
		return fail(l, r, "No process can be started to read them: %s.", strerror(-r));
	weights_lend_loader(l->weights, l->process.fd);
	r = hear_files(l);
	if (r == 0)
		r = bring(l);
	else if (r > 0)
		return 0;
	if (r == 0) {
		content_digest(&l->weights->content);
		weights_make_ready(l->weights);
	}
	return r;
}

static void parts_free(struct load *l)
{
	for (uint32_t i = 0; i < l->n_parts; i++) {
		free(l->parts[i].bytes);
		free(l->parts[i].numbers);
		safetensors_header_done(&l->parts[i].header);
	}
	free(l->parts);
	XXH3_freeState(l->hash);
}

static void *load_main(void *arg)
{
	struct load *l = arg;
	struct weights *weights = l->weights;
	int r;

	pthread_setname_np(pthread_self(), "coppice-load");
	r = load_run(l);
	if (r < 0 && is_cancelled(l))
		r = weights_say_cancelled(weights);
	if (r < 0) {
		weights->error = r;
		/* Pairs with the acquire of weights_state. */
		atomic_store_explicit(&weights->state, WEIGHTS_FAILED, memory_order_release);
	}
	weights_lend_loader(weights, -1);
	(void)loader_kill(&l->process);
	pid_t hanging = l->process.pid;

	parts_free(l);
	free(l);
	weights_load_over(weights, hanging);
	return NULL;
}

/* Starts a thread that ends with weights_load_over. client_fd: the loader's end, the call's. */
static int start(struct weights *weights, int client_fd)
{
	struct load *l = calloc(1, sizeof(*l));
	pthread_t thread;
	int r = -ENOMEM;

	if (l) {
		*l = (struct load){.weights = weights,
				   .client_fd = client_fd,
				   .process.fd = -1,
				   .hash = XXH3_createState()};
		r = l->hash ? thread_start(NULL, load_main, l, &thread) : -ENOMEM;
	}
	if (r == 0) {
		pthread_detach(thread);
		return 0;
	}
	close(client_fd);
	if (l)
		parts_free(l);
	free(l);
	return r;
}

static int start_with_client(struct weights *weights, int *ret_client_fd)
{
	int ends[2], r;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
		return -errno;
	r = start(weights, ends[1]);
	if (r < 0)
		close(ends[0]);
	else
		*ret_client_fd = ends[0];
	return r;
}

int weights_open(struct weights_table *table, uid_t domain, struct weights **ret,
		 int *ret_client_fd)
{
	struct weights *weights;
	int r = weights_enter(table, domain, &weights);

	if (r < 0)
		return r;
	r = start_with_client(weights, ret_client_fd);
	if (r < 0)
		weights_leave(weights);
	else
		*ret = weights;
	return r;
}
