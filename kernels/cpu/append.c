/* append.c - K goes in transposed, a column for a token; V row by row. */
#include "append.h"
#include "kernels/accesses.h"

#include <assert.h>
#include <string.h>

#define ALONE_BYTES (256u << 10) /* less than this is done before a worker is awake */

struct append {
	const struct pool_pages *pages;
	const struct backend_job *job;
};

struct source {
	const char *k;
	const char *v;
	uint64_t k_stride;
	uint64_t v_stride;
};

/* Elements lie where their type may, and who knows that tells ThreadSanitizer of one access. As it
 * is inlined, sanitizers look at it as they do at its caller. */
static inline __attribute__((always_inline)) void copy_value(char *to, const char *from,
							     size_t bytes)
{
	if (bytes == 2)
		memcpy(__builtin_assume_aligned(to, 2), __builtin_assume_aligned(from, 2), 2);
	else
		memcpy(__builtin_assume_aligned(to, 4), __builtin_assume_aligned(from, 4), 4);
}

static RACES_TOLD void append_keys(const struct pool_pages *pages, const struct work_shape *shape,
				   char *block, const struct work_slice *slot,
				   const struct source *from)
{
	size_t bytes = work_dtype_bytes(shape->dtype), line = shape->page_tokens * bytes;

	for (uint32_t d = 0; d < shape->head_dim; d++) {
		for (uint32_t i = 0; i < slot->count; i++)
			copy_value(block + d * line + pages->key_place[slot->first + i] * bytes,
				   from->k + i * from->k_stride + d * bytes, bytes);
	}
}

static char *values_of(const struct pool_pages *pages, const struct work_shape *shape, char *block,
		       const struct work_slice *slot)
{
	return block + pages->value_bytes +
	       slot->first * shape->head_dim * work_dtype_bytes(shape->dtype);
}

static RACES_TOLD void append_values(const struct pool_pages *pages, const struct work_shape *shape,
				     char *block, const struct work_slice *slot,
				     const struct source *from)
{
	size_t bytes = work_dtype_bytes(shape->dtype);
	char *to = values_of(pages, shape, block, slot);

	for (uint32_t i = 0; i < slot->count; i++, to += shape->head_dim * bytes) {
		for (uint32_t d = 0; d < shape->head_dim; d++)
			copy_value(to + pages->dim_place[d] * bytes,
				   from->v + i * from->v_stride + d * bytes, bytes);
	}
}

/* The keys of a whole page lie side by side. Of part of one they do not: others may write between
 * them. */
static void tell_keys(const struct pool_pages *pages, const struct work_shape *shape, char *block,
		      const struct work_slice *slot)
{
	size_t bytes = work_dtype_bytes(shape->dtype), line = shape->page_tokens * bytes;

	if (slot->count == shape->page_tokens) {
		access_write(block, shape->head_dim * line);
		return;
	}
	for (uint32_t d = 0; d < shape->head_dim; d++, block += line)
		for (uint32_t i = 0; i < slot->count; i++)
			access_write(block + pages->key_place[slot->first + i] * bytes, bytes);
}

/* What append_keys and append_values read and write (accesses.h). */
static void tell(const struct pool_pages *pages, const struct work_shape *shape, char *block,
		 const struct work_slice *slot, const struct source *from)
{
	size_t row_bytes = shape->head_dim * work_dtype_bytes(shape->dtype);

	tell_keys(pages, shape, block, slot);
	access_write(values_of(pages, shape, block, slot), slot->count * row_bytes);
	access_read_lines(from->k, row_bytes, from->k_stride, slot->count);
	access_read_lines(from->v, row_bytes, from->v_stride, slot->count);
}

/* Unit: one query, one KV head. */
static void append_unit(void *arg, uint32_t thread, uint32_t unit)
{
	const struct append *a = arg;
	const struct work_shape *shape = a->job->shape;
	const struct backend_io *io = &a->job->io[unit / shape->n_kv_heads];
	uint32_t head = unit % shape->n_kv_heads, row = 0;
	size_t head_bytes = head * shape->head_dim * work_dtype_bytes(shape->dtype);

	(void)thread;
	for (uint32_t i = 0; i < io->n_slots; i++) {
		const struct work_slice *slot = &io->slots[i];
		struct source from = {
			.k = (const char *)(uintptr_t)(io->k + row * io->k_stride + head_bytes),
			.v = (const char *)(uintptr_t)(io->v + row * io->v_stride + head_bytes),
			.k_stride = io->k_stride,
			.v_stride = io->v_stride,
		};
		char *block = pool_block(a->pages, slot->page, a->job->layer, head);

		assert(slot->page < a->pages->n_pages);
		assert(slot->first + slot->count <= shape->page_tokens);
		if (RACES_ARE_TOLD)
			tell(a->pages, shape, block, slot, &from);
		append_keys(a->pages, shape, block, slot, &from);
		append_values(a->pages, shape, block, slot, &from);
		row += slot->count;
	}
}

static uint64_t append_bytes(const struct backend_job *job)
{
	uint64_t tokens = 0;

	for (uint32_t i = 0; i < job->tree->n_queries; i++)
		tokens += job->io[i].n_slots ? job->tree->queries[i].n_rows : 0;
	return tokens * job->shape->n_kv_heads * job->shape->head_dim * 2 *
	       work_dtype_bytes(job->shape->dtype);
}

void append_job(const struct pool_pages *pages, struct threads *threads,
		const struct backend_job *job)
{
	struct append a = {pages, job};

	threads_run(threads, append_unit, &a, job->tree->n_queries * job->shape->n_kv_heads,
		    append_bytes(job) < ALONE_BYTES);
}

void append_move(const struct pool_pages *pages, const struct work_shape *shape,
		 const struct backend_move *move)
{
	size_t bytes = work_dtype_bytes(shape->dtype), line = shape->page_tokens * bytes;
	size_t row_bytes = shape->head_dim * bytes;
	size_t from_key = pages->key_place[move->from_row] * bytes;
	size_t to_key = pages->key_place[move->to_row] * bytes;

	assert(move->from_page < pages->n_pages && move->to_page < pages->n_pages);
	assert(move->from_row < shape->page_tokens && move->to_row < shape->page_tokens);
	for (uint32_t i = 0; i < shape->n_layers * shape->n_kv_heads; i++) {
		char *from = pool_block(pages, move->from_page, 0, i);
		char *to = pool_block(pages, move->to_page, 0, i);

		for (uint32_t d = 0; d < shape->head_dim; d++)
			copy_value(to + d * line + to_key, from + d * line + from_key, bytes);
		memmove(to + pages->value_bytes + move->to_row * row_bytes,
			from + pages->value_bytes + move->from_row * row_bytes, row_bytes);
	}
}
