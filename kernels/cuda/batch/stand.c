/*
 * stand.c - launches that stand; see stand.h. A batch is called at most once, and what was called
 * is known to have been heard before another is: whoever finds that its launch had left makes up
 * for it with the same tables. While a launch stands, nothing waits for the stream.
 */
#include "batch_impl.h"
#include "proto/arith.h"

#include <cuda_runtime_api.h>
#include <errno.h>
#include <string.h>

#define PATIENCE_NS UINT64_C(250000) /* of a launch that stands */
/* usually, from a batch to the next, where a launch is to stand */
#define GAP_MOST_NS UINT64_C(100000)
#define GAP_CUT_NS (4 * GAP_MOST_NS) /* a pause is no gap */
#define GAP_WEIGHT 4u
#define SAME_LEAST 3u /* batches of a plan in a row before one stands for it */
#define LOOKS_A_QUERY 2048u

int stand_init(struct batch *b)
{
	struct stand *s = &b->stand;

	if (cudaMallocHost((void **)&s->calls, BATCH_FRAMES * sizeof(*s->calls)) != cudaSuccess ||
	    cudaMalloc((void **)&s->heard, sizeof(*s->heard)) != cudaSuccess ||
	    cudaMemsetAsync(s->heard, 0, sizeof(*s->heard), b->queue.stream) != cudaSuccess)
		return -ENOMEM;
	memset(s->calls, 0, BATCH_FRAMES * sizeof(*s->calls));
	s->able = code_overlaps(b->code);
	return 0;
}

void stand_done(struct batch *b)
{
	launch_chain_done(&b->stand.chains[0]);
	launch_chain_done(&b->stand.chains[1]);
	cudaFreeHost(b->stand.calls);
	cudaFree(b->stand.heard);
}

static struct batch_frame *frame_of(struct batch *b, uint64_t id)
{
	return &b->frames[id % BATCH_FRAMES];
}

/* ---- calls ---------------------------------------------------------------------------------- */

/* The device reads both at once. */
static void put_packet(struct batch *b, uint64_t id, uint32_t i, uint64_t word, uint64_t tag)
{
	struct device_call *call = &b->stand.calls[id % BATCH_FRAMES];

	__atomic_store_n(&call->packets[i].word, word, __ATOMIC_RELAXED);
	__atomic_store_n(&call->packets[i].tag, tag, __ATOMIC_RELEASE);
}

/* The tag by which a batch's launch went on; that of another batch: it stands. */
static uint64_t answer_of(struct batch *b, uint64_t id)
{
	return __atomic_load_n(&frame_of(b, id)->clock->answer, __ATOMIC_ACQUIRE);
}

/* It takes an empty batch's place. */
static void leave(struct batch *b)
{
	uint64_t id = b->last_id + 1;

	if (!b->stand.stands)
		return;
	put_packet(b, id, 0, 0, DEVICE_CALL_LEAVE(id));
	b->stand.stands = false;
	b->stand.n_same = 0;
	frame_of(b, id)->id = id;
	frame_of(b, id)->counted = false;
	b->last_id = id;
}

/* What ends a batch whose launch stood, or is made up for; heard: NULL where it is sure to go
 * on. */
static struct device_finish finish_of(struct batch *b, uint64_t id, const struct device_call *heard)
{
	return (struct device_finish){.clock = frame_of(b, id)->clock,
				      .id = id,
				      .tells = &b->tells[id % BATCH_FRAMES],
				      .heard = heard};
}

/* Its tables are where they were. */
static int make_up(struct batch *b)
{
	struct stand *s = &b->stand;
	uint64_t id = s->called_id;

	struct device_finish last = finish_of(b, id, NULL);
	const struct layer layer = {.inbound = &s->called_in,
				    .attend = &s->called_attend,
				    .finish = &last};

	s->called_id = 0;
	leave(b);
	if (queue_expect(&b->queue, cudaStreamSynchronize(b->queue.stream)) != 0)
		return -EIO;
	frame_of(b, id)->clock->id = 0;
	return layer_play(&layer, &b->queue, &b->chain);
}

static int take_answer(struct batch *b, uint64_t answer)
{
	if (answer != DEVICE_CALL_GO(b->stand.called_id))
		return make_up(b);
	b->stand.called_id = 0;
	return 0;
}

/* Until the call was heard, or made up for. */
static int settle(struct batch *b)
{
	struct stand *s = &b->stand;

	for (uint32_t n = 1; s->called_id; n++) {
		uint64_t answer = answer_of(b, s->called_id);
		cudaError_t r;

		if (answer >> 1 == s->called_id)
			return take_answer(b, answer);
		if (n % LOOKS_A_QUERY)
			continue;
		r = cudaStreamQuery(b->queue.stream);
		if (r != cudaSuccess && r != cudaErrorNotReady)
			return queue_expect(&b->queue, r);
		cudaGetLastError();
	}
	return 0;
}

int stand_leave(struct batch *b)
{
	int r;

	leave(b);
	r = settle(b);
	b->queue.failed = b->queue.failed || r;
	return r;
}

bool stand_again(struct batch *b, uint64_t id)
{
	uint64_t answer = answer_of(b, id);

	if (b->stand.called_id != id)
		return false;
	if (answer >> 1 != id)
		return true; /* on its way: what came behind did not wait for it */
	b->queue.failed = take_answer(b, answer) != 0;
	return answer != DEVICE_CALL_GO(id);
}

static bool has_room(const struct batch_frame *frame, size_t host_bytes, size_t device_bytes)
{
	return frame->device->at && frame->host.bytes >= host_bytes &&
	       frame->device->bytes >= device_bytes;
}

/* All but where things lie. */
static bool is_foreseen(const struct batch *b, const struct backend_job *job,
			const struct batch_need *need)
{
	const struct stand *s = &b->stand;

	return job->plan_id == s->plan_id && s->plan->plan_id == s->plan_id &&
	       memcmp(&s->plan->shape, job->shape, sizeof(*job->shape)) == 0 && !job->chosen &&
	       job->layer == s->layer && job->head == s->head &&
	       backend_job_heads(job) == s->attend.shape.n_kv_heads &&
	       job_n_rows(job) == s->attend.n_rows && need->n_wanted == job->tree->n_queries &&
	       !need->place.met && !need->place.stage_o &&
	       (s->attend.patched || s->plan->growth.n_patches == 0);
}

bool stand_fits(struct batch *b, const struct backend_job *job, const struct batch_need *need,
		size_t host_bytes, size_t device_bytes)
{
	const struct stand *s = &b->stand;
	uint64_t id = b->last_id + 1;

	if (!s->stands || !is_foreseen(b, job, need) || s->attend.n_blocks != b->n_blocks ||
	    s->attend.part_o != b->parts.at || answer_of(b, id) == DEVICE_CALL_LEAVE(id))
		return false;
	host_bytes += align_up(s->plan->growth.n_patches * sizeof(struct device_patch));
	if (!has_room(frame_of(b, id), host_bytes, device_bytes))
		return false;
	b->queue.failed = b->queue.failed || settle(b) != 0;
	return s->stands && !b->queue.failed;
}

void stand_call(struct batch *b, const struct device_inbound *in)
{
	struct stand *s = &b->stand;
	uint64_t words[DEVICE_CALL_WORDS] = {0}, id = b->last_id + 1;

	memcpy(words, in, sizeof(*in));
	for (uint32_t i = 0; i < DEVICE_CALL_WORDS; i++)
		put_packet(b, id, i, words[i], DEVICE_CALL_GO(id));
	s->stands = false;
	s->called_id = id;
	s->called_in = *in;
	s->called_attend = s->attend;
	b->last = s->attend;
	b->last_exchange.n_rows = 0;
	b->n_last++;
}

/* ---- what is to come ------------------------------------------------------------------------ */

void stand_note_done(struct batch *b)
{
	b->stand.done_ns = clock_now_ns();
}

static void note_gap(struct stand *s, bool first)
{
	uint64_t gap_ns = clock_now_ns() - s->done_ns, *usual = &s->gap_ns[first];

	if (!s->done_ns)
		return;
	gap_ns = min_u64(gap_ns, GAP_CUT_NS);
	*usual = *usual ? *usual - *usual / GAP_WEIGHT + gap_ns / GAP_WEIGHT : gap_ns;
}

static bool comes_soon(const struct stand *s, bool first)
{
	return s->n_same >= SAME_LEAST && s->gap_ns[first] && s->gap_ns[first] <= GAP_MOST_NS;
}

/* The batch of last_id a layer on, with the next frame's rows. */
static void foresee(struct batch *b, const struct backend_job *job, const struct batch_plan *plan)
{
	struct stand *s = &b->stand;
	uint64_t layer_bytes = kv_head_bytes(job->shape) * job->shape->n_kv_heads;

	s->plan = plan;
	s->plan_id = plan->plan_id;
	s->layer = (job->layer + 1) % job->shape->n_layers;
	s->head = job->head;
	s->attend = b->last;
	s->attend.pool = s->attend.pool - job->layer * layer_bytes + s->layer * layer_bytes;
	s->attend.rows = frame_of(b, b->last_id + 1)->device->at;
	s->attend.patched = s->layer == 0; /* a token later */
}

static int launch(struct batch *b)
{
	struct stand *s = &b->stand;
	uint64_t id = b->last_id + 1;
	struct batch_frame *frame = frame_of(b, id);
	struct device_stand stand = {
		.call = &s->calls[id % BATCH_FRAMES],
		.heard = s->heard,
		.rows = frame->device->at,
		.answer = &frame->clock->answer,
		.id = id,
		.patience_ns = PATIENCE_NS,
		.n_rows = s->attend.n_rows,
	};

	struct device_finish last = finish_of(b, id, s->heard);
	const struct layer layer = {.stand = &stand, .attend = &s->attend, .finish = &last};

	frame->clock->begin_ns = 0;
	return layer_play(&layer, &b->queue, &s->chains[id % 2]);
}

void stand_next(const struct upload *u, const struct backend_job *job)
{
	struct batch *b = u->b;
	struct stand *s = &b->stand;
	const struct batch_frame *next = frame_of(b, b->last_id + 1);

	if (!s->able || b->peer || !job || !u->plan || u->plan->plan_id == 0 ||
	    u->plan->attend.n_work_tiles == 0 || b->needs[0].place.stage_o) {
		s->n_same = 0;
		return;
	}
	note_gap(s, job->layer == 0);
	s->n_same = u->plan->plan_id == s->last_plan_id ? s->n_same + 1 : 0;
	s->last_plan_id = u->plan->plan_id;
	if (!comes_soon(s, (job->layer + 1) % job->shape->n_layers == 0) ||
	    (next->id && !next->counted) || !has_room(next, u->host_due, u->device_used))
		return;
	foresee(b, job, u->plan);
	s->stands = launch(b) == 0;
	b->queue.failed = b->queue.failed || !s->stands;
}
