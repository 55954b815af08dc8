/*
 * control_memory_test.c - what a client can have of the daemon's memory: token ids of prompts that
 * nobody computes, and arenas; that nobody waits while pages of arenas come and go. And what it has
 * of the daemon's descriptors.
 */
#include "control_harness.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PROMPT_TOKENS (256u << 10)

static void start_with(struct harness *h, const char *flag, const char *other)
{
	h->flags[0] = flag;
	h->flags[1] = other;
	harness_start(h);
}

static void client_prepare(struct client *c)
{
	client_model(c);
	client_arena(c, PROMPT_TOKENS * sizeof(uint32_t));
	client_lane(c);
}

static uint64_t prompt_bytes(struct client *c)
{
	return client_status(c)->prompt_bytes;
}

static void prompts_of_all_sessions_of_a_user_count(void **state)
{
	struct harness *h = *state;
	Coppice__SeqClose m = COPPICE__SEQ_CLOSE__INIT;

	start_with(h, "--domain-prompt-bytes=1M", NULL);
	struct client a = client_open(h), b = client_open(h);

	client_prepare(&a);
	client_prepare(&b);
	m.seq = client_seq(&a, 1, 1, 1, PROMPT_TOKENS - 10)->seq->seq;
	assert_refused(client_seq(&b, 1, 1, 1, 11), -EDQUOT, "n_tokens", "domain_prompt_bytes");
	assert_int_equal(client_seq(&b, 1, 1, 1, 10)->code, 0);
	assert_int_equal(prompt_bytes(&b), 1 << 20);
	assert_int_equal(client_verb(&a, seq_close, &m)->code, 0);
	assert_int_equal(prompt_bytes(&b), 40);
	client_close(&b);
	count_becomes(&a, 1);
	assert_int_equal(prompt_bytes(&a), 0);
	client_close(&a);
}

static void prompts_of_all_users_count(void **state)
{
	struct harness *h = *state;

	start_with(h, "--prompt-bytes=1M", NULL);
	struct client c = client_open(h);

	client_prepare(&c);
	assert_int_equal(client_seq(&c, 1, 1, 1, PROMPT_TOKENS)->code, 0);
	assert_refused(client_seq(&c, 1, 1, 1, 1), -EDQUOT, "n_tokens", "(prompt_bytes)");
	client_close(&c);
}

static void open_send(struct client *c)
{
	Coppice__Request request = COPPICE__REQUEST__INIT;
	Coppice__SeqOpen m = COPPICE__SEQ_OPEN__INIT;

	m.model = m.lane = m.arena = 1;
	m.n_tokens = PROMPT_TOKENS;
	request.seq_open = &m;
	client_send(c, &request);
}

/* Copies on their way to the scheduler are memory, too. */
static void a_burst_of_opens_takes_no_more(void **state)
{
	enum { BURST = 64 };
	struct harness *h = *state;
	int n_open = 0;

	start_with(h, "--domain-prompt-bytes=1M", NULL);
	struct client c = client_open(h);

	client_prepare(&c);
	for (int i = 0; i < BURST; i++)
		open_send(&c);
	for (int i = 0; i < BURST; i++) {
		const Coppice__Reply *reply = client_receive(&c);

		n_open += reply->code == 0;
		if (reply->code != 0)
			assert_refused(reply, -EDQUOT, "n_tokens", "domain_prompt_bytes");
	}
	assert_int_equal(n_open, 1);
	assert_int_equal(prompt_bytes(&c), 1 << 20);
	client_close(&c);
}

/* Whether it has them all already, or one of them again. */
static void a_session_has_so_many_models(void **state)
{
	enum { MOST = 3 };
	struct harness *h = *state;
	Coppice__ModelOpen m = COPPICE__MODEL_OPEN__INIT;
	char name[8];

	start_with(h, "--max-models=3", NULL);
	struct client c = client_open(h);

	m.name = name;
	m.n_layers = m.n_q_heads = m.n_kv_heads = 1;
	m.head_dim = 64;
	for (int i = 0; i < MOST; i++) {
		snprintf(name, sizeof(name), "%d", i);
		assert_int_equal(client_verb(&c, model_open, &m)->code, 0);
	}
	assert_int_equal(client_verb(&c, model_open, &m)->code, 0);
	snprintf(name, sizeof(name), "%d", MOST);
	assert_refused(client_verb(&c, model_open, &m), -EUSERS, NULL, "(max_models)");
	client_close(&c);
}

/* ---- arenas ---- */

#define LARGE_BYTES (512u << 20)

static void arena_send(struct client *c, uint32_t seal, uint32_t free_it, uint64_t new_bytes)
{
	Coppice__Request request = COPPICE__REQUEST__INIT;
	Coppice__ArenaSeal seals = COPPICE__ARENA_SEAL__INIT;
	Coppice__ArenaFree frees = COPPICE__ARENA_FREE__INIT;
	Coppice__ArenaNew news = COPPICE__ARENA_NEW__INIT;

	seals.arena = seal;
	frees.arena = free_it;
	news.bytes = new_bytes;
	request.arena_seal = seal ? &seals : NULL;
	request.arena_free = free_it ? &frees : NULL;
	request.arena_new = new_bytes ? &news : NULL;
	client_send(c, &request);
}

/* How often another is answered before this client is. */
static unsigned answers_until(struct client *other, struct client *c)
{
	struct pollfd p = {.fd = c->fd, .events = POLLIN};
	Coppice__Status status = COPPICE__STATUS__INIT;
	unsigned n = 0;

	for (; poll(&p, 1, 0) == 0; n++)
		assert_int_equal(client_verb(other, status, &status)->code, 0);
	assert_int_equal(client_receive(c)->code, 0);
	return n;
}

/* Of some times one shows it: at the others a machine may have been busy with others. */
static void nobody_waits_for_the_pages_of_an_arena(void **state)
{
	bool sealing_is_aside = false, freeing_is_aside = false;
	struct harness *h = *state;

	start_with(h, "--max-arena-bytes=1G", NULL);
	struct client c = client_open(h), other = client_open(h);

	for (int i = 0; i < 10 && !(sealing_is_aside && freeing_is_aside); i++) {
		int fd;
		uint32_t arena = client_open_arena(&c, LARGE_BYTES, &fd);

		arena_send(&c, arena, 0, 0);
		sealing_is_aside |= answers_until(&other, &c) >= 10;
		arena_send(&c, 0, arena, 0);
		freeing_is_aside |= answers_until(&other, &c) >= 10;
		close(fd);
	}
	assert_true(sealing_is_aside && freeing_is_aside);
	client_close(&c);
	client_close(&other);
}

static void an_arena_counts_until_its_pages_are_free(void **state)
{
	struct harness *h = *state;

	start_with(h, "--max-arena-bytes=512M", NULL);
	struct client c = client_open(h);
	uint32_t arena = client_arena(&c, LARGE_BYTES);

	arena_send(&c, 0, arena, 0);
	arena_send(&c, 0, 0, LARGE_BYTES);
	assert_refused(client_receive(&c), -EDQUOT, "bytes", "max_arena_bytes");
	assert_int_equal(client_receive(&c)->code, 0);
	arena_send(&c, 0, 0, LARGE_BYTES);
	assert_int_equal(client_receive(&c)->code, 0);
	client_close(&c);
}

static void arenas_of_all_sessions_of_a_user_count(void **state)
{
	struct harness *h = *state;
	Coppice__ArenaNew m = COPPICE__ARENA_NEW__INIT;
	Coppice__Status status = COPPICE__STATUS__INIT;

	start_with(h, "--domain-arena-bytes=6M", NULL);
	struct client a = client_open(h), b = client_open(h);

	client_arena(&a, 4 << 20);
	m.bytes = 4 << 20;
	assert_refused(client_verb(&b, arena_new, &m), -EDQUOT, "bytes", "domain_arena_bytes");
	client_arena(&b, 2 << 20);
	assert_int_equal(client_verb(&a, status, &status)->status->arena_bytes, 6 << 20);
	client_close(&a);
	for (int i = 0; i < 1000 && client_verb(&b, status, &status)->status->arena_bytes > m.bytes;
	     i++)
		sleep_ms(5);
	assert_int_equal(client_verb(&b, arena_new, &m)->code, 0);
	client_close(&b);
}

static void arenas_of_prompts_are_told_as_others_are(void **state)
{
	struct harness *h = *state;
	Coppice__ArenaNew m = COPPICE__ARENA_NEW__INIT;
	Coppice__Sessions sessions = COPPICE__SESSIONS__INIT;
	const Coppice__SessionsReply *told;

	start_with(h, NULL, NULL);
	struct client c = client_open(h);

	client_arena(&c, 4 << 20);
	m.bytes = 2 << 20;
	m.has_ids = m.ids = true;
	assert_int_equal(client_verb(&c, arena_new, &m)->code, 0);
	told = client_verb(&c, sessions, &sessions)->sessions;
	assert_int_equal(told->n_session, 1);
	assert_int_equal(told->session[0]->n_arenas, 2);
	assert_int_equal(told->session[0]->arena_bytes, 6 << 20);
	client_close(&c);
}

/* They are what a client's first prompt waits for. */
static void arenas_of_prompts_are_as_large_as_they_have_to_be(void **state)
{
	struct harness *h = *state;
	Coppice__ArenaNew m = COPPICE__ARENA_NEW__INIT;

	start_with(h, "--max-arenas=3", "--max-arena-bytes=4M");
	struct client c = client_open(h);

	m.has_ids = m.ids = true;
	m.bytes = 1;
	assert_int_equal(client_verb(&c, arena_new, &m)->arena->bytes, 64 << 10);
	m.bytes = (64 << 10) + 1;
	assert_int_equal(client_verb(&c, arena_new, &m)->arena->bytes, 128 << 10);
	m.bytes = 4 << 20;
	assert_refused(client_verb(&c, arena_new, &m), -EDQUOT, "bytes", "4194304 bytes");
	client_close(&c);
}

/* Of arenas, what the daemon has mapped of their pages. */
static uint64_t arena_bytes_mapped(const struct harness *h)
{
	char path[64], line[256];
	unsigned long long kib, sum = 0;
	bool ours = false;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/smaps", (int)h->pid);
	file = fopen(path, "r");
	assert_non_null(file);
	while (fgets(line, sizeof(line), file)) {
		if (strstr(line, "r--") || strstr(line, "rw-"))
			ours = strstr(line, "coppice-arena");
		else if (ours && sscanf(line, "Rss: %llu kB", &kib) == 1)
			sum += kib;
	}
	fclose(file);
	return sum << 10;
}

/* So nobody can have them swapped out. */
static void arenas_of_prompts_are_mapped_soon(void **state)
{
	struct harness *h = *state;
	Coppice__ArenaNew m = COPPICE__ARENA_NEW__INIT;

	start_with(h, "--max-arenas=3", "--max-arena-bytes=4M");
	struct client c = client_open(h);
	const Coppice__Reply *reply;
	uint32_t arena;

	m.has_ids = m.ids = true;
	m.bytes = 4 << 20;
	reply = client_verb(&c, arena_new, &m);
	assert_int_equal(reply->code, 0);
	arena = reply->arena->arena;
	client_fill(c.fds[0], reply->arena->bytes);
	assert_int_equal(client_seal(&c, arena)->code, 0);
	for (int i = 0; i < 1000 && arena_bytes_mapped(h) < m.bytes; i++)
		sleep_ms(5);
	assert_int_equal(arena_bytes_mapped(h), m.bytes);
	client_close(&c);
}

/* And taken back while they still come. */
static void arenas_of_prompts_come_and_go(void **state)
{
	struct harness *h = *state;
	Coppice__ArenaNew m = COPPICE__ARENA_NEW__INIT;
	Coppice__ArenaFree gone = COPPICE__ARENA_FREE__INIT;

	start_with(h, "--max-arena-bytes=64M", NULL);
	struct client other = client_open(h);

	m.has_ids = m.ids = true;
	m.bytes = 64 << 20;
	for (int i = 0; i < 6; i++) {
		struct client c = client_open(h);
		const Coppice__Reply *reply = client_verb(&c, arena_new, &m);

		assert_int_equal(reply->code, 0);
		gone.arena = reply->arena->arena;
		client_fill(c.fds[0], reply->arena->bytes);
		assert_int_equal(client_seal(&c, gone.arena)->code, 0);
		if (i % 2)
			assert_int_equal(client_verb(&c, arena_free, &gone)->code, 0);
		client_close(&c);
		count_becomes(&other, 1);
	}
	assert_int_equal(arena_bytes_mapped(h), 0);
	client_close(&other);
}

static void arenas_of_all_users_count(void **state)
{
	struct harness *h = *state;
	Coppice__ArenaNew m = COPPICE__ARENA_NEW__INIT;

	start_with(h, "--arena-bytes=4M", NULL);
	struct client c = client_open(h);

	m.bytes = 6 << 20;
	assert_refused(client_verb(&c, arena_new, &m), -EDQUOT, "bytes", "(arena_bytes)");
	client_arena(&c, 4 << 20);
	client_close(&c);
}

/* With pages on their way in, and out. */
static void a_session_ends_while_its_pages_come_and_go(void **state)
{
	struct harness *h = *state;
	int fd;

	start_with(h, "--max-arena-bytes=1G", NULL);
	struct client other = client_open(h);

	for (int i = 0; i < 4; i++) {
		struct client c = client_open(h);
		uint32_t arena = client_open_arena(&c, LARGE_BYTES / 4, &fd);

		arena_send(&c, arena, 0, 0);
		if (i % 2) {
			assert_int_equal(client_receive(&c)->code, 0);
			arena_send(&c, 0, arena, 0);
		}
		close(fd);
		client_close(&c);
		count_becomes(&other, 1);
	}
	client_close(&other);
}

/* As many as threads of an app may make at the same time. */
static void few_arenas_are_left_unsealed(void **state)
{
	struct harness *h = *state;
	Coppice__ArenaNew m = COPPICE__ARENA_NEW__INIT;

	start_with(h, "--max-arenas=32", "--max-arena-bytes=64M");
	struct client c = client_open(h);
	int fd;
	uint32_t filled = client_open_arena(&c, 1, &fd);

	close(fd);
	m.bytes = 1;
	for (int i = 1; i < 16; i++)
		assert_int_equal(client_verb(&c, arena_new, &m)->code, 0);
	assert_refused(client_verb(&c, arena_new, &m), -EBUSY, NULL, "arena_seal");
	assert_int_equal(client_seal(&c, filled)->code, 0);
	assert_int_equal(client_verb(&c, arena_new, &m)->code, 0);
	client_close(&c);
}

/* ---- descriptors ---- */

#define SESSION_FDS 3u /* its socket, its peer's pidfd, its doorbell */

/* Soon: who was there before may not be gone yet. */
static void assert_fds_become(struct client *c, uint64_t n)
{
	Coppice__Status status = COPPICE__STATUS__INIT;

	for (int i = 0; i < 1000 && client_verb(c, status, &status)->status->n_fds != n; i++)
		sleep_ms(5);
	assert_int_equal(client_verb(c, status, &status)->status->n_fds, n);
}

static uint32_t pollable_lane(struct client *c)
{
	Coppice__LaneNew m = COPPICE__LANE_NEW__INIT;
	const Coppice__Reply *reply;

	m.has_notify = m.notify = true;
	reply = client_verb(c, lane_new, &m);
	assert_int_equal(reply->code, 0);
	client_fill(c->fds[0], reply->lane->bytes);
	return reply->lane->lane;
}

static void a_lanes_descriptors_count_until_it_is_freed(void **state)
{
	struct harness *h = *state;
	Coppice__LaneFree m = COPPICE__LANE_FREE__INIT;

	start_with(h, NULL, NULL);
	struct client c = client_open(h), ends = client_open(h);

	assert_fds_become(&c, 2 * SESSION_FDS);
	m.lane = pollable_lane(&c);
	assert_fds_become(&c, 2 * SESSION_FDS + 2); /* its memory's, until it is sealed */
	assert_int_equal(client_seal_lane(&c, m.lane)->code, 0);
	assert_fds_become(&c, 2 * SESSION_FDS + 1);
	client_lane(&c); /* has none */
	assert_int_equal(client_seal_lane(&ends, pollable_lane(&ends))->code, 0);
	assert_fds_become(&c, 2 * SESSION_FDS + 2);
	pollable_lane(&ends);
	assert_fds_become(&c, 2 * SESSION_FDS + 4);
	assert_int_equal(client_verb(&c, lane_free, &m)->code, 0);
	assert_fds_become(&c, 2 * SESSION_FDS + 3);
	client_close(&ends);
	assert_fds_become(&c, SESSION_FDS);
	client_close(&c);
}

static void an_arenas_descriptor_counts_until_it_is_sealed(void **state)
{
	struct harness *h = *state;
	int fd;

	start_with(h, NULL, NULL);
	struct client c = client_open(h);

	assert_fds_become(&c, SESSION_FDS);
	uint32_t arena = client_open_arena(&c, 1, &fd);

	assert_fds_become(&c, SESSION_FDS + 1);
	assert_int_equal(client_seal(&c, arena)->code, 0);
	assert_fds_become(&c, SESSION_FDS);
	close(fd);
	client_close(&c);
}

/* Of lanes and arenas, in the daemon. */
static unsigned count_mappings(const struct harness *h)
{
	char path[64], line[512];
	unsigned n = 0;
	FILE *maps;

	snprintf(path, sizeof(path), "/proc/%d/maps", h->pid);
	maps = fopen(path, "re");
	assert_non_null(maps);
	while (fgets(line, sizeof(line), maps))
		n += strstr(line, "coppice-lane") || strstr(line, "coppice-arena");
	fclose(maps);
	return n;
}

static void what_is_given_back_is_mapped_no_more(void **state)
{
	struct harness *h = *state;
	Coppice__LaneFree lane_free = COPPICE__LANE_FREE__INIT;
	Coppice__ArenaFree arena_free = COPPICE__ARENA_FREE__INIT;
	Coppice__LaneNew lane_new = COPPICE__LANE_NEW__INIT;

	start_with(h, NULL, NULL);
	struct client c = client_open(h);

	lane_free.lane = client_lane(&c);
	arena_free.arena = client_arena(&c, 1);
	assert_int_equal(count_mappings(h), 2);
	assert_int_equal(client_verb(&c, lane_free, &lane_free)->code, 0);
	assert_int_equal(client_verb(&c, arena_free, &arena_free)->code, 0);
	assert_int_equal(count_mappings(h), 0);
	assert_int_equal(client_verb(&c, lane_new, &lane_new)->code, 0); /* is not sealed */
	lane_free.lane = c.reply->lane->lane;
	assert_int_equal(count_mappings(h), 1);
	assert_int_equal(client_verb(&c, lane_free, &lane_free)->code, 0);
	assert_int_equal(count_mappings(h), 0);
	client_close(&c);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		HARNESS_BARE(epoll, prompts_of_all_sessions_of_a_user_count),
		HARNESS_BARE(epoll, prompts_of_all_users_count),
		HARNESS_BARE(epoll, a_burst_of_opens_takes_no_more),
		HARNESS_BARE(epoll, a_session_has_so_many_models),
		HARNESS_BARE(epoll, nobody_waits_for_the_pages_of_an_arena),
		HARNESS_BARE(epoll, an_arena_counts_until_its_pages_are_free),
		HARNESS_BARE(epoll, arenas_of_all_sessions_of_a_user_count),
		HARNESS_BARE(epoll, arenas_of_prompts_are_told_as_others_are),
		HARNESS_BARE(epoll, arenas_of_prompts_are_as_large_as_they_have_to_be),
		HARNESS_BARE(epoll, arenas_of_prompts_are_mapped_soon),
		HARNESS_BARE(epoll, arenas_of_prompts_come_and_go),
		HARNESS_BARE(epoll, arenas_of_all_users_count),
		HARNESS_BARE(epoll, a_session_ends_while_its_pages_come_and_go),
		HARNESS_BARE(epoll, few_arenas_are_left_unsealed),
		HARNESS_BARE(epoll, a_lanes_descriptors_count_until_it_is_freed),
		HARNESS_BARE(epoll, an_arenas_descriptor_counts_until_it_is_sealed),
		HARNESS_BARE(epoll, what_is_given_back_is_mapped_no_more),
	};

	if (harness_init(argc, argv) < 0)
		return 1;
	return cmocka_run_group_tests_name("memory", tests, NULL, NULL);
}
