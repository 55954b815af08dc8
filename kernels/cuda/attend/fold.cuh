/*
 * fold.cuh - rows against keys: a warp's 16 rows against a KV tile with mma, a warp group's 64
 * against a wide tile with wgmma.
 *
 * Both keep Q and O of a warp's rows in the same registers (wgmma's rows per warp lie as those of
 * mma.m16n8k16), so that a row's whole path ends in one place whoever computes what. Online
 * softmax: O and sum are relative to max, in units of scale_log2: a score of the row than which
 * none so far is larger by more than MAX_SLACK.
 */
#ifndef COPPICE_CUDA_FOLD_CUH
#define COPPICE_CUDA_FOLD_CUH

#include "layout.cuh"

#if __CUDA_ARCH__ >= 800

#define MAX_SLACK 8.0f /* powers of 2: weights up to 256 lose nothing in fp16 */
/* A lane's weights of a row together: of more, one may be more than fp16 has. */
#define MOST_WEIGHTS 32768.0f

/* What a warp knows of its work tile. Lane i < 16 holds what concerns row i of the block as a whole
 * (mine_*). */
struct warp_tile {
	struct device_work_tile work_tile;
	uint32_t head;
	uint32_t block, split, n_splits;
	uint64_t mine_o, mine_lse; /* of the row and head; 0: none */
	uint32_t mine_head; /* of the launch's query heads */
	uint32_t mine_pos;
	uint32_t mine_dest; /* entry of the partials, DEVICE_NONE: mine_o, DEVICE_DEST_NOTHING */
	uint32_t token[2]; /* of the lane's rows, lane / 4 and 8 more */
};

template <typename T> struct warp_state {
	float o[T::v / 8][4];
	float max[2], sum[2]; /* of the lane's rows; sum of the lane's columns */
	uint32_t q[T::keeps_q ? T::qk / 16 : 2][4]; /* all of it, or what is being multiplied */
	uint32_t rows; /* where Q lies in shared memory */
};

/* Columns 16 k and on of the row block's Q. */
template <typename T>
__device__ inline void load_q_columns(uint32_t (&q)[4], uint32_t rows, uint32_t k, uint32_t lane)
{
	uint32_t row = lane % DEVICE_BLOCK_ROWS;

	load_matrix(q, rows + q_chunk_offset<T>(row, 2 * k + lane / 16));
}

/* Keys of the KV block that the lane's row i sees end here. */
__device__ inline int32_t seen_end(const struct device_kv_block &kv_block, uint32_t token,
				   bool causal, int32_t pos)
{
	int32_t end = kv_block.end;

	if (causal)
		end = min(end, pos - kv_block.pos + 1);
	return token - kv_block.row_begin < (uint32_t)(kv_block.row_end - kv_block.row_begin) ? end
											      : 0;
}

/* What a variant makes of them. */
template <typename T, uint32_t N>
__device__ inline void change_scores(float (&scores)[N][4], float scale_log2)
{
#pragma unroll
	for (uint32_t j = 0; j < N && T::variant::scores_change; j++) {
#pragma unroll
		for (uint32_t i = 0; i < 4; i++)
			scores[j][i] = T::variant::score(scores[j][i] * scale_log2) / scale_log2;
	}
}

/* What lies before the first position that a row sees scores -inf. Few KV tiles of few models come
 * here: what concerns it stays in memory. */
__device__ inline void mask_lows(float (&scores)[DEVICE_KV_TILE_BLOCKS][4],
				 const struct device_kv_tile *meta, const struct device_row *rows,
				 const struct warp_tile &w)
{
	int32_t key = (int32_t)(threadIdx.x % 4 * 2);

#pragma unroll
	for (uint32_t i = 0; i < 2; i++) {
		int32_t low = 0;

		if (w.token[i] < w.work_tile.n_rows)
			low = (int32_t)rows[w.work_tile.row + w.token[i]].low;
#pragma unroll
		for (uint32_t j = 0; j < DEVICE_KV_TILE_BLOCKS; j++) {
			if (meta->kv_blocks[j].pos + key < low)
				scores[j][2 * i] = -INFINITY;
			if (meta->kv_blocks[j].pos + key + 1 < low)
				scores[j][2 * i + 1] = -INFINITY;
		}
	}
}

/* What a row does not see scores -inf. */
__device__ inline void mask_scores(float (&scores)[DEVICE_KV_TILE_BLOCKS][4],
				   const struct device_kv_tile *meta, const struct warp_tile &w,
				   uint32_t lane)
{
	int32_t key = (int32_t)(lane % 4 * 2), pos[2] = {0, 0};
	bool causal = meta->causal;

	if (causal) {
		pos[0] = (int32_t)__shfl_sync(~0u, w.mine_pos, lane / 4);
		pos[1] = (int32_t)__shfl_sync(~0u, w.mine_pos, lane / 4 + 8);
	}
#pragma unroll
	for (uint32_t j = 0; j < DEVICE_KV_TILE_BLOCKS; j++) {
		const struct device_kv_block kv_block = meta->kv_blocks[j];

#pragma unroll
		for (uint32_t i = 0; i < 2; i++) {
			int32_t end = seen_end(kv_block, w.token[i], causal, pos[i]);

			if (key < (int32_t)kv_block.first || key >= end)
				scores[j][2 * i] = -INFINITY;
			if (key + 1 < (int32_t)kv_block.first || key + 1 >= end)
				scores[j][2 * i + 1] = -INFINITY;
		}
	}
}

/* Where whole KV blocks are seen or not, by intervals of tokens. */
template <uint32_t N>
__device__ inline void mask_kv_blocks(float (&scores)[N][4], const struct device_kv_tile *metas,
				      const struct warp_tile &w)
{
#pragma unroll
	for (uint32_t j = 0; j < N; j++) {
		const struct device_kv_block &kv_block =
			metas[j / DEVICE_KV_TILE_BLOCKS].kv_blocks[j % DEVICE_KV_TILE_BLOCKS];
		uint32_t begin = kv_block.row_begin, n = kv_block.row_end - begin;

#pragma unroll
		for (uint32_t i = 0; i < 2; i++) {
			bool sees = w.token[i] - begin < n;

			scores[j][2 * i] = sees ? scores[j][2 * i] : -INFINITY;
			scores[j][2 * i + 1] = sees ? scores[j][2 * i + 1] : -INFINITY;
		}
	}
}

/* The maximum of the lane's rows, raised where scores are so far above it that weights would grow
 * beyond 2^MAX_SLACK; O and sum follow it. Most KV tiles leave all as it is, and need not even ask
 * what the row's other lanes have. */
template <typename T, uint32_t N>
__device__ inline void raise_max(struct warp_state<T> &s, const float (&scores)[N][4],
				 float scale_log2)
{
	float high[2], scale[2];
	bool fresh; /* O and sum are 0, or NaN, which stays */

#pragma unroll
	for (uint32_t i = 0; i < 2; i++) {
		high[i] = -INFINITY;
#pragma unroll
		for (uint32_t j = 0; j < N; j++)
			high[i] = fmaxf(high[i], fmaxf(scores[j][2 * i], scores[j][2 * i + 1]));
		high[i] *= scale_log2;
	}
	if (!__any_sync(~0u, high[0] > s.max[0] + MAX_SLACK || high[1] > s.max[1] + MAX_SLACK))
		return;
	fresh = __all_sync(~0u, s.max[0] == -INFINITY && s.max[1] == -INFINITY);
#pragma unroll
	for (uint32_t i = 0; i < 2; i++) {
		float max = high[i];

		max = fmaxf(max, __shfl_xor_sync(~0u, max, 1));
		max = fmaxf(max, __shfl_xor_sync(~0u, max, 2));
		max = fmaxf(s.max[i], max);
		scale[i] = max == s.max[i] ? 1 : exp2_fast(s.max[i] - max);
		s.max[i] = max;
	}
	if (fresh)
		return;
	s.sum[0] *= scale[0];
	s.sum[1] *= scale[1];
#pragma unroll
	for (uint32_t n = 0; n < T::v / 8; n++) {
		s.o[n][0] *= scale[0];
		s.o[n][1] *= scale[0];
		s.o[n][2] *= scale[1];
		s.o[n][3] *= scale[1];
	}
}

/* What is subtracted from scaled scores; a row that has seen nothing yet has only -inf. */
__device__ inline float max_or_zero(float max)
{
	return max == -INFINITY ? 0 : max;
}

/* Weights of two KV blocks, whose scores these are, in fragments of A; the sums grow by them. */
template <typename T>
__device__ inline void weigh(const float (*scores)[4], float scale_log2, const float (&low)[2],
			     float (&sum)[2], uint32_t (&p)[4])
{
#pragma unroll
	for (uint32_t j = 0; j < 2; j++) {
		float weights[4];

#pragma unroll
		for (uint32_t i = 0; i < 4; i++)
			weights[i] = exp2_fast(fmaf(scores[j][i], scale_log2, -low[i / 2]));
		sum[0] += weights[0] + weights[1];
		sum[1] += weights[2] + weights[3];
		p[j * 2] = T::dtype::pack(weights[0], weights[1]);
		p[j * 2 + 1] = T::dtype::pack(weights[2], weights[3]);
	}
}

/* A KV tile of the ring, as a warp takes it. */
struct kv_tile_at {
	uint32_t at; /* its KV blocks, in shared memory */
	const struct device_kv_tile *meta;
	bool plain; /* the warp's rows see all of it */
};

/* Folds it. Even and odd columns of Q are multiplied in chains of their own, half as long, where
 * there are registers for two. */
template <typename T>
__device__ inline void fold_kv_tile(const struct device_attend &a, const struct warp_tile &w,
				    const struct kv_tile_at &kv_tile, struct warp_state<T> &s)
{
	constexpr uint32_t kv_block_bytes = T::kv_block_bytes;
	float scores[DEVICE_KV_TILE_BLOCKS][4] = {}, odd[DEVICE_KV_TILE_BLOCKS][4] = {}, low[2];
	uint32_t lane = threadIdx.x % 32, row = lane % 8, p[DEVICE_KV_TILE_BLOCKS / 2][4];

#pragma unroll
	for (uint32_t k = 0; k < T::qk / 32; k++) {
		uint32_t from = kv_tile.at + kv_chunk_offset(T::qk, row, k * 4 + lane / 8);

		if constexpr (!T::keeps_q) {
			load_q_columns<T>(s.q[0], s.rows, 2 * k, lane);
			load_q_columns<T>(s.q[1], s.rows, 2 * k + 1, lane);
		}
#pragma unroll
		for (uint32_t j = 0; j < DEVICE_KV_TILE_BLOCKS; j++) {
			uint32_t b[4];

			load_matrix(b, from + j * kv_block_bytes);
			T::dtype::multiply(scores[j], s.q[T::keeps_q ? 2 * k : 0], b[0], b[1]);
			T::dtype::multiply(T::keeps_q ? odd[j] : scores[j],
					   s.q[T::keeps_q ? 2 * k + 1 : 1], b[2], b[3]);
		}
	}
#pragma unroll
	for (uint32_t j = 0; j < DEVICE_KV_TILE_BLOCKS && T::keeps_q; j++) {
#pragma unroll
		for (uint32_t i = 0; i < 4; i++)
			scores[j][i] += odd[j][i];
	}
	change_scores<T>(scores, a.shape.scale_log2);
	if (!kv_tile.plain && kv_tile.meta->partial)
		mask_scores(scores, kv_tile.meta, w, lane);
	else if (!kv_tile.plain)
		mask_kv_blocks(scores, kv_tile.meta, w);
	if (T::variant::bounded && !kv_tile.plain && kv_tile.meta->causal)
		mask_lows(scores, kv_tile.meta, a.rows, w);
	raise_max<T>(s, scores, a.shape.scale_log2);
	low[0] = max_or_zero(s.max[0]);
	low[1] = max_or_zero(s.max[1]);
#pragma unroll
	for (uint32_t t = 0; t < DEVICE_KV_TILE_BLOCKS / 2; t++)
		weigh<T>(&scores[2 * t], a.shape.scale_log2, low, s.sum, p[t]);
#pragma unroll
	for (uint32_t n = 0; n < T::v / 16; n++) {
		uint32_t from = kv_tile.at + T::key_bytes + lane / 8 % 2 * kv_block_bytes +
				kv_chunk_offset(T::v, row, 2 * n + lane / 16);

#pragma unroll
		for (uint32_t t = 0; t < DEVICE_KV_TILE_BLOCKS / 2; t++) {
			uint32_t b[4];

			load_matrix_transposed(b, from + t * 2 * kv_block_bytes);
			T::dtype::multiply(s.o[2 * n], p[t], b[0], b[1]);
			T::dtype::multiply(s.o[2 * n + 1], p[t], b[2], b[3]);
		}
	}
}

#ifdef WGMMA
#define HALF_KV_TILES (DEVICE_WIDE_KV_TILES / 2)
#define HALF_BLOCKS (HALF_KV_TILES * DEVICE_KV_TILE_BLOCKS)

/* Of half a wide tile. */
typedef float half_scores[HALF_BLOCKS][4];
typedef uint32_t half_weights[HALF_BLOCKS / 2][4];

/* Where columns 16 k and on of keys begin. */
template <typename T> __device__ constexpr uint32_t key_step(uint32_t k)
{
	return kv_chunk_offset(T::qk, 0, 2 * k);
}

/* Scores of half a wide tile, which begins at the shared address; started. */
template <typename T>
__device__ inline void start_scores(const struct warp_state<T> &s, uint32_t at, half_scores &scores)
{
	uint64_t keys = wgmma_matrix<kv_atom_values(T::qk)>(uniform(at), 16, T::kv_block_bytes);

	wgmma_begin();
#pragma unroll
	for (uint32_t k = 0; k < T::qk / 16; k++)
		T::dtype::template multiply_wide<0>(scores, s.q[k],
						    wgmma_behind(keys, key_step<T>(k)), k != 0);
	wgmma_commit();
}

/* Weights times values of the half at that shared address; started. */
template <typename T>
__device__ inline void start_values(struct warp_state<T> &s, const half_weights &p, uint32_t at)
{
	constexpr uint32_t kv_block_bytes = T::kv_block_bytes;
	uint64_t values = wgmma_matrix<kv_atom_values(T::v)>(uniform(at) + T::key_bytes,
							     kv_atom_bytes(T::v), kv_block_bytes);

	wgmma_begin();
#pragma unroll
	for (uint32_t t = 0; t < HALF_BLOCKS / 2; t++)
		T::dtype::template multiply_wide<1>(s.o, p[t],
						    wgmma_behind(values, t * 2 * kv_block_bytes),
						    true);
	wgmma_commit();
}

/* Of the half whose first KV tile is in that slot: what rows do not see scores -inf. */
template <typename T>
__device__ inline void mask_half(const struct device_attend &a, const struct warp_tile &w,
				 half_scores &scores, const struct device_kv_tile *metas,
				 uint32_t slot)
{
	const struct device_kv_tile *wide =
		metas + slot / DEVICE_WIDE_KV_TILES * DEVICE_WIDE_KV_TILES;

	change_scores<T>(scores, a.shape.scale_log2);
	if (!(wide->plain_wide >> threadIdx.x / 32 & 1))
		mask_kv_blocks(scores, metas + slot, w);
}

/* In place of the maximum of a row that has none yet. Scores are to be above it: the weight of one
 * below is 0, and a row of such scores alone is as one that sees nothing. */
#define NO_MAX -1e30f

/* Makes weights of scores by the maxima that the rows have, for which none of them waits. A row
 * that has none yet gets weights beyond all bounds for whatever it sees. */
template <typename T>
__device__ inline void weigh_half(const struct device_attend &a, const half_scores &scores,
				  const struct warp_state<T> &s, float (&sum)[2], half_weights &p)
{
	const float low[2] = {fmaxf(s.max[0], NO_MAX), fmaxf(s.max[1], NO_MAX)};

	sum[0] = sum[1] = 0;
#pragma unroll
	for (uint32_t t = 0; t < HALF_BLOCKS / 2; t++)
		weigh<T>(&scores[2 * t], a.shape.scale_log2, low, sum, p[t]);
}

/* Some row has weights that are too many, or are no numbers: its maximum may have to be raised. */
__device__ inline bool weights_amiss(const float (&sum)[2])
{
	return __any_sync(~0u, !(sum[0] <= MOST_WEIGHTS && sum[1] <= MOST_WEIGHTS));
}

/* The same, the maxima raised where need be; nothing is under way. */
template <typename T>
__device__ inline void weigh_anew(const struct device_attend &a, const half_scores &scores,
				  struct warp_state<T> &s, float (&sum)[2], half_weights &p)
{
	do {
		raise_max<T>(s, scores, a.shape.scale_log2);
		weigh_half<T>(a, scores, s, sum, p);
		/* what is no number stays so */
	} while (__any_sync(~0u, sum[0] > MOST_WEIGHTS || sum[1] > MOST_WEIGHTS));
}
#endif
#endif

#endif
