/*
 * control_test.c - control messages, good and bad, to a real daemon on both loops.
 */
#include "control_harness.h"
#include "element.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- hello and the form of messages ---- */

static void hello_gives_board_and_doorbell(void **state)
{
	struct client c = client_connect(*state);
	Coppice__Hello hello = COPPICE__HELLO__INIT;
	const Coppice__Reply *reply;
	struct abi_board *board;
	void *map;

	hello.abi_version = ABI_VERSION;
	reply = client_verb(&c, hello, &hello);
	assert_int_equal(reply->code, 0);
	assert_int_equal(reply->hello->abi_version, ABI_VERSION);
	assert_int_equal(reply->hello->daemon_pid, ((struct harness *)*state)->pid);
	assert_int_equal(c.n_fds, 2);
	assert_int_not_equal(channel_segment_map(c.fds[0], ABI_BOARD_BYTES, 1, &map), 0);
	assert_int_equal(channel_segment_map(c.fds[0], ABI_BOARD_BYTES, 0, &map), 0);
	board = map;
	assert_int_equal(atomic_load(&board->version), ABI_VERSION);
	assert_int_equal(board->magic, ABI_BOARD_MAGIC);
	client_close(&c);
}

static void another_version_is_refused_and_both_are_named(void **state)
{
	struct client c = client_connect(*state);
	Coppice__Hello hello = COPPICE__HELLO__INIT;
	const Coppice__Reply *reply;

	hello.abi_version = 77;
	reply = client_verb(&c, hello, &hello);
	assert_refused(reply, -EPROTO, "abi_version", "ABI version 7");
	assert_refused(reply, -EPROTO, "abi_version", "version 77");
	assert_true(client_is_cut_off(&c));
	client_close(&c);
}

static void garbage_ends_the_connection(void **state)
{
	struct client c = client_open(*state);

	assert_int_equal(channel_send(c.fd, "\xff\xff\xff\xff garbage", 12, NULL, 0), 0);
	assert_refused(client_receive(&c), -EBADMSG, NULL, "no request");
	assert_true(client_is_cut_off(&c));
	client_close(&c);
}

static void a_message_too_long_ends_the_connection(void **state)
{
	struct client c = client_open(*state);
	static char big[CHANNEL_MAX_BYTES + 1];

	assert_int_equal(send(c.fd, big, sizeof(big), MSG_NOSIGNAL), sizeof(big));
	assert_refused(client_receive(&c), -EMSGSIZE, NULL, "65536 bytes");
	assert_true(client_is_cut_off(&c));
	client_close(&c);
}

/* 32 Ki unknown fields of two bytes each: what unpacking may cost is bounded. */
static void a_message_of_many_unknown_fields_is_refused(void **state)
{
	struct client c = client_open(*state);
	static uint8_t packet[CHANNEL_MAX_BYTES];

	for (size_t i = 0; i < sizeof(packet); i += 2)
		packet[i] = 15 << 3 | 0, packet[i + 1] = 1;
	packet[0] = 1 << 3;
	for (size_t i = 2; i < sizeof(packet); i += 2)
		packet[i] = 0x78;
	assert_int_equal(send(c.fd, packet, sizeof(packet), MSG_NOSIGNAL), sizeof(packet));
	assert_refused(client_receive(&c), -EBADMSG, NULL, NULL);
	client_close(&c);
}

static void two_verbs_are_refused_and_the_session_goes_on(void **state)
{
	struct client c = client_open(*state);
	Coppice__Request request = COPPICE__REQUEST__INIT;
	Coppice__Status status = COPPICE__STATUS__INIT;
	Coppice__Drain drain = COPPICE__DRAIN__INIT;

	request.status = &status;
	request.drain = &drain;
	assert_refused(client_call(&c, &request), -EINVAL, NULL, "2 verbs");
	assert_int_equal(client_verb(&c, status, &status)->code, 0);
	assert_false(c.reply->status->draining);
	client_close(&c);
}

static void no_verb_is_refused_and_the_session_goes_on(void **state)
{
	struct client c = client_open(*state);
	Coppice__Request request = COPPICE__REQUEST__INIT;

	assert_refused(client_call(&c, &request), -EINVAL, NULL, "no verb");
	assert_int_equal(client_count_sessions(&c), 1);
	client_close(&c);
}

static void a_verb_before_hello_ends_the_connection(void **state)
{
	struct client c = client_connect(*state);
	Coppice__Status status = COPPICE__STATUS__INIT;

	assert_refused(client_verb(&c, status, &status), -EPROTO, "hello", "must be hello");
	assert_true(client_is_cut_off(&c));
	client_close(&c);
}

static void a_second_hello_is_refused(void **state)
{
	struct client c = client_open(*state);
	Coppice__Hello hello = COPPICE__HELLO__INIT;

	hello.abi_version = ABI_VERSION;
	assert_refused(client_verb(&c, hello, &hello), -EPROTO, "hello", "already");
	assert_int_equal(client_count_sessions(&c), 1);
	client_close(&c);
}

static void status_names_the_loop(void **state)
{
	struct harness *h = *state;
	struct client c = client_open(h);
	Coppice__Status status = COPPICE__STATUS__INIT;

	assert_int_equal(client_verb(&c, status, &status)->code, 0);
	assert_string_equal(c.reply->status->loop, h->loop);
	assert_string_equal(c.reply->status->backend, test_backend());
	assert_string_equal(c.reply->status->policy, "auto");
	assert_int_equal(c.reply->status->pool_bytes, 64u << 20);
	assert_int_equal(c.reply->status->n_sessions, 1);
	client_close(&c);
}

static void sessions_tell_name_pid_and_uid(void **state)
{
	struct client c = client_open(*state);
	Coppice__Sessions sessions = COPPICE__SESSIONS__INIT;

	assert_int_equal(client_verb(&c, sessions, &sessions)->code, 0);
	assert_int_equal(c.reply->sessions->n_session, 1);
	assert_string_equal(c.reply->sessions->session[0]->name, "control_test");
	assert_int_equal(c.reply->sessions->session[0]->pid, getpid());
	assert_int_equal(c.reply->sessions->session[0]->uid, getuid());
	client_close(&c);
}

/* Numbered as they connected, they say hello the other way round. */
static void sessions_are_told_newest_first(void **state)
{
	struct client first = client_connect(*state), second = client_open(*state);
	Coppice__Hello hello = COPPICE__HELLO__INIT;
	Coppice__Sessions sessions = COPPICE__SESSIONS__INIT;

	hello.abi_version = ABI_VERSION;
	assert_int_equal(client_verb(&first, hello, &hello)->code, 0);
	assert_int_equal(client_verb(&first, sessions, &sessions)->code, 0);
	assert_int_equal(first.reply->sessions->n_session, 2);
	assert_true(first.reply->sessions->session[0]->id > first.reply->sessions->session[1]->id);
	client_close(&first);
	client_close(&second);
}

/* ---- models ---- */

static void bad_models_are_refused_by_field(void **state)
{
	static const struct {
		uint32_t layers, q, kv, dim, dtype, page, window, sinks;
		float soft_cap;
		const char *name, *field;
	} cases[] = {
		{2, 3, 2, 64, 0, 0, 0, 0, 0, "m", "n_q_heads"},
		{2, 258, 2, 64, 0, 0, 0, 0, 0, "m", "n_q_heads"},
		{2, 0, 2, 64, 0, 0, 0, 0, 0, "m", "n_q_heads"},
		{2, 4, 0, 64, 0, 0, 0, 0, 0, "m", "n_kv_heads"},
		{0, 4, 2, 64, 0, 0, 0, 0, 0, "m", "n_layers"},
		{2, 4, 2, 65, 0, 0, 0, 0, 0, "m", "head_dim"},
		{2, 4, 2, 0, 0, 0, 0, 0, 0, "m", "head_dim"},
		{2, 4, 2, 272, 0, 0, 0, 0, 0, "m", "head_dim"},
		{2, 4, 2, 64, 5, 0, 0, 0, 0, "m", "dtype"},
		{2, 4, 2, 64, 0, 48, 0, 0, 0, "m", "page_tokens"},
		{2, 4, 2, 64, 0, 0, 9, 0, 0, "m", "window"},
		{2, 4, 2, 64, 0, 0, 0, 9, 0, "m", "n_sinks"},
		{2, 4, 2, 64, 0, 0, 0, 0, 30, "m", "soft_cap"},
		{2, 4, 2, 64, 0, 0, 0, 0, 0, "", "name"},
	};
	struct client c = client_open(*state);

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		Coppice__ModelOpen m = COPPICE__MODEL_OPEN__INIT;

		m.name = (char *)cases[i].name;
		m.n_layers = cases[i].layers;
		m.n_q_heads = cases[i].q;
		m.n_kv_heads = cases[i].kv;
		m.head_dim = cases[i].dim;
		m.dtype = cases[i].dtype ? cases[i].dtype : element_dtype();
		m.has_page_tokens = m.has_window = m.has_soft_cap = m.has_n_sinks = true;
		m.page_tokens = cases[i].page;
		m.window = cases[i].window;
		m.n_sinks = cases[i].sinks;
		m.soft_cap = cases[i].soft_cap;
		client_verb(&c, model_open, &m);
		assert_true(c.reply->code < 0);
		assert_refused(c.reply, c.reply->code, cases[i].field, NULL);
	}
	assert_int_equal(client_model(&c), 1);
	client_close(&c);
}

static void fp8_is_refused_by_name(void **state)
{
	struct client c = client_open(*state);
	Coppice__ModelOpen m = COPPICE__MODEL_OPEN__INIT;

	m.name = (char *)"m";
	m.n_layers = m.n_q_heads = m.n_kv_heads = 1;
	m.head_dim = 64;
	m.dtype = 3;
	assert_refused(client_verb(&c, model_open, &m), -EOPNOTSUPP, "dtype",
		       "no kernels for fp8 (e4m3): use 1 (fp16) or 2 (bf16)");
	m.dtype = 4;
	assert_refused(client_verb(&c, model_open, &m), -EOPNOTSUPP, "dtype", "fp8 (e5m2)");
	m.dtype = 5;
	assert_refused(client_verb(&c, model_open, &m), -EINVAL, "dtype", "not 5");
	assert_int_equal(client_model(&c), 1);
	client_close(&c);
}

static void a_model_name_too_long_is_refused(void **state)
{
	struct client c = client_open(*state);
	Coppice__ModelOpen m = COPPICE__MODEL_OPEN__INIT;
	char name[129];

	memset(name, 'x', 128);
	name[128] = 0;
	m.name = name;
	m.n_layers = m.n_q_heads = m.n_kv_heads = 1;
	m.head_dim = 64;
	m.dtype = element_dtype();
	assert_refused(client_verb(&c, model_open, &m), -EINVAL, "name", "127");
	name[127] = 0;
	assert_int_equal(client_verb(&c, model_open, &m)->code, 0);
	client_close(&c);
}

/* ---- arenas and lanes ---- */

static void bad_arenas_are_refused(void **state)
{
	struct client c = client_open(*state);
	Coppice__ArenaNew m = COPPICE__ARENA_NEW__INIT;
	Coppice__ArenaFree f = COPPICE__ARENA_FREE__INIT;

	assert_refused(client_verb(&c, arena_new, &m), -EINVAL, "bytes", NULL);
	m.bytes = (8u << 20) + 1;
	assert_refused(client_verb(&c, arena_new, &m), -EDQUOT, "bytes", "max_arena_bytes");
	m.bytes = UINT64_MAX;
	assert_refused(client_verb(&c, arena_new, &m), -EDQUOT, "bytes", NULL);
	m.bytes = 1;
	m.kind = 2;
	assert_refused(client_verb(&c, arena_new, &m), -EINVAL, "kind", NULL);
	f.arena = 1;
	assert_refused(client_verb(&c, arena_free, &f), -ENOENT, "arena", NULL);
	client_close(&c);
}

static void arenas_are_counted_and_come_back(void **state)
{
	struct client c = client_open(*state);
	Coppice__ArenaNew m = COPPICE__ARENA_NEW__INIT;
	Coppice__ArenaFree f = COPPICE__ARENA_FREE__INIT;
	int fd;

	/* rounded to 6 of 8 MiB */
	assert_int_equal(client_open_arena(&c, 5u << 20, &fd), 1);
	assert_int_equal(c.reply->arena->bytes, 6u << 20);
	close(fd);
	m.bytes = 3u << 20;
	assert_refused(client_verb(&c, arena_new, &m), -EDQUOT, "bytes", NULL);
	m.bytes = 1;
	assert_int_equal(client_verb(&c, arena_new, &m)->arena->arena, 2);
	assert_refused(client_verb(&c, arena_new, &m), -EDQUOT, NULL, "max_arenas");
	f.arena = 1;
	assert_int_equal(client_seal(&c, 1)->code, 0);
	assert_int_equal(client_verb(&c, arena_free, &f)->code, 0);
	assert_refused(client_verb(&c, arena_free, &f), -ENOENT, "arena", NULL);
	m.bytes = 6u << 20;
	/* the first one's place, by a number of its own */
	uint32_t next = client_verb(&c, arena_new, &m)->arena->arena;

	assert_true(next > 2);
	assert_refused(client_verb(&c, arena_free, &f), -ENOENT, "arena", NULL);
	f.arena = next;
	assert_int_equal(client_verb(&c, arena_free, &f)->code, 0);
	client_close(&c);
}

static void lanes_have_a_header_and_a_descriptor_if_asked(void **state)
{
	struct client c = client_open(*state);
	Coppice__LaneNew m = COPPICE__LANE_NEW__INIT;
	struct abi_lane *lane;
	void *map;

	m.has_notify = m.notify = true;
	assert_int_equal(client_verb(&c, lane_new, &m)->code, 0);
	assert_int_equal(c.n_fds, 2);
	assert_int_equal(channel_segment_map(c.fds[0], c.reply->lane->bytes, 1, &map), 0);
	lane = map;
	assert_int_equal(atomic_load(&lane->version), ABI_VERSION);
	assert_int_equal(lane->magic, ABI_LANE_MAGIC);
	assert_int_equal(lane->lane, c.reply->lane->lane);
	assert_int_equal(lane->generation, c.reply->lane->generation);
	assert_int_equal(lane->bytes, sizeof(*lane));
	client_lane(&c);
	assert_refused(client_verb(&c, lane_new, &m), -EDQUOT, NULL, "max_lanes");
	client_close(&c);
}

static void a_lane_is_freed_once(void **state)
{
	struct client c = client_open(*state);
	Coppice__LaneFree f = COPPICE__LANE_FREE__INIT;

	f.lane = client_lane(&c);
	assert_int_equal(client_verb(&c, lane_free, &f)->code, 0);
	assert_refused(client_verb(&c, lane_free, &f), -ENOENT, "lane", NULL);
	f.lane = 0;
	assert_refused(client_verb(&c, lane_free, &f), -ENOENT, "lane", NULL);
	client_close(&c);
}

/* ---- sequences ---- */

static void bad_prompts_are_refused_by_field(void **state)
{
	static const struct {
		uint32_t model, lane, arena;
		uint64_t offset;
		uint32_t n;
		int code;
		const char *field;
	} cases[] = {
		{9, 1, 1, 0, 4, -ENOENT, "model"},
		{0, 1, 1, 0, 4, -ENOENT, "model"},
		{1, 9, 1, 0, 4, -ENOENT, "lane"},
		{1, 1, 9, 0, 4, -ENOENT, "arena"},
		{1, 1, 0, 0, 4, -ENOENT, "arena"},
		{1, 1, 1, 2, 4, -EINVAL, "offset"},
		{1, 1, 1, (2u << 20) - 12, 4, -ERANGE, "offset"},
		{1, 1, 1, UINT64_MAX - 3, 4, -ERANGE, "offset"},
		{1, 1, 1, 0, (2u << 20) / 4 + 1, -ERANGE, "offset"},
		{1, 1, 1, 0, 0, -EINVAL, "n_tokens"},
		{1, 1, 1, 0, UINT32_MAX, -E2BIG, "n_tokens"},
	};
	struct client c = client_open(*state);

	client_model(&c);
	client_arena(&c, 1);
	client_lane(&c);
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		Coppice__SeqOpen m = COPPICE__SEQ_OPEN__INIT;

		m.model = cases[i].model;
		m.lane = cases[i].lane;
		m.arena = cases[i].arena;
		m.offset = cases[i].offset;
		m.n_tokens = cases[i].n;
		assert_refused(client_verb(&c, seq_open, &m), cases[i].code, cases[i].field, NULL);
	}
	assert_int_equal(client_seq(&c, 1, 1, 1, 40)->code, 0);
	client_close(&c);
}

static void stale_and_foreign_handles_are_refused(void **state)
{
	struct client a = client_open(*state), b = client_open(*state);
	Coppice__SeqClose close_seq = COPPICE__SEQ_CLOSE__INIT;
	Coppice__SeqPin pin = COPPICE__SEQ_PIN__INIT;

	client_model(&a);
	client_arena(&a, 1);
	client_lane(&a);
	close_seq.seq = client_seq(&a, 1, 1, 1, 8)->seq->seq;
	assert_refused(client_verb(&b, seq_close, &close_seq), -ESTALE, "seq", NULL);
	pin.seq = close_seq.seq;
	assert_refused(client_verb(&a, seq_pin, &pin), -EINVAL, "for_ns", NULL);
	pin.for_ns = UINT64_MAX;
	assert_refused(client_verb(&a, seq_pin, &pin), -EINVAL, "for_ns", "max_pin_ms");
	assert_int_equal(client_verb(&a, seq_close, &close_seq)->code, 0);
	assert_refused(client_verb(&a, seq_close, &close_seq), -ESTALE, "seq", NULL);
	client_close(&a);
	client_close(&b);
}

static void a_wait_ends_at_its_time_with_the_match(void **state)
{
	struct client c = client_open(*state);
	Coppice__SeqWait wait = COPPICE__SEQ_WAIT__INIT;

	client_model(&c);
	client_arena(&c, 1);
	client_lane(&c);
	assert_true(client_seq(&c, 1, 1, 1, 40)->seq->claimed);
	wait.seq = client_seq(&c, 1, 1, 1, 40)->seq->seq;
	assert_int_equal(c.reply->seq->pending, 39);
	assert_null(c.reply->message); /* nothing is wrong */
	wait.timeout_ns = 20000000;
	assert_refused(client_verb(&c, seq_wait, &wait), -ETIMEDOUT, NULL, "being computed");
	assert_int_equal(c.reply->seq->pending, 39);
	client_close(&c);
}

/* Waits fill the session's room; one request more is refused, and hanging up ends them all. */
static void too_many_requests_at_once_are_refused(void **state)
{
	struct client c = client_open(*state), other = client_open(*state);
	Coppice__Status status = COPPICE__STATUS__INIT;
	uint64_t seqs[65];

	client_model(&c);
	client_arena(&c, 1);
	client_lane(&c);
	for (int i = 0; i < 65; i++)
		seqs[i] = client_seq(&c, 1, 1, 1, 40)->seq->seq;
	for (int i = 1; i < 65; i++) {
		Coppice__Request request = COPPICE__REQUEST__INIT;
		Coppice__SeqWait wait = COPPICE__SEQ_WAIT__INIT;

		wait.seq = seqs[i];
		wait.timeout_ns = UINT64_MAX;
		request.seq_wait = &wait;
		client_send(&c, &request);
	}
	assert_refused(client_verb(&c, status, &status), -EBUSY, NULL, "64 requests");
	client_close(&c);
	count_becomes(&other, 1);
	client_close(&other);
}

static void the_tree_shows_what_is_there(void **state)
{
	struct client c = client_open(*state);
	Coppice__Tree tree = COPPICE__TREE__INIT;

	client_model(&c);
	client_arena(&c, 1);
	client_lane(&c);
	assert_int_equal(client_seq(&c, 1, 1, 1, 40)->code, 0);
	assert_int_equal(client_verb(&c, tree, &tree)->code, 0);
	assert_int_equal(c.reply->tree->cursor, 0);
	assert_true(c.reply->tree->n_node >= 1);
	assert_string_equal(c.reply->tree->node[0]->model, "m");
	client_close(&c);
}

/* ---- who may do what ---- */

static void drain_and_evict_are_for_the_daemons_user(void **state)
{
	struct client c = client_open(*state);
	Coppice__Drain drain = COPPICE__DRAIN__INIT;
	Coppice__Evict evict = COPPICE__EVICT__INIT;
	Coppice__Status status = COPPICE__STATUS__INIT;

	assert_int_equal(client_verb(&c, drain, &drain)->code, 0);
	assert_true(client_verb(&c, status, &status)->status->draining);
	drain.has_off = drain.off = true;
	assert_int_equal(client_verb(&c, drain, &drain)->code, 0);
	assert_false(client_verb(&c, status, &status)->status->draining);
	assert_int_equal(client_verb(&c, evict, &evict)->code, 0);
	assert_int_equal(c.reply->evict->n_pages, 0);
	evict.model = (char *)"no such model";
	assert_refused(client_verb(&c, evict, &evict), -ENOENT, "model", NULL);
	client_close(&c);
}

/* In a child that has become nobody; 0 if all was as it should be. */
static int be_a_foreign_user(const struct harness *h)
{
	struct client c;
	Coppice__Drain drain = COPPICE__DRAIN__INIT;
	Coppice__Evict evict = COPPICE__EVICT__INIT;
	Coppice__NodePin pin = COPPICE__NODE_PIN__INIT;

	if (setgid(65534) < 0 || setuid(65534) < 0)
		return 1;
	c = client_open(h);
	pin.for_ns = 1;
	if (client_verb(&c, drain, &drain)->code != -EPERM)
		return 2;
	if (client_verb(&c, evict, &evict)->code != -EPERM)
		return 3;
	if (client_verb(&c, node_pin, &pin)->code != -EPERM)
		return 4;
	return client_count_sessions(&c) == 1 ? 0 : 5;
}

static void other_users_see_their_own_domain_only(void **state)
{
	struct client c = client_open(*state);
	pid_t pid;

	if (getuid() != 0) {
		client_close(&c);
		skip();
	}
	pid = fork();
	if (pid == 0)
		_exit(be_a_foreign_user(*state));
	assert_int_equal(harness_wait(pid), 0);
	client_close(&c);
}

static void a_session_too_many_is_refused_with_a_sentence(void **state)
{
	struct client clients[6], one_more = client_connect(*state);
	Coppice__Hello hello = COPPICE__HELLO__INIT;

	for (int i = 0; i < 6; i++)
		clients[i] = client_open(*state);
	hello.abi_version = ABI_VERSION;
	assert_refused(client_verb(&one_more, hello, &hello), -EUSERS, NULL, "max_domain_sessions");
	assert_true(client_is_cut_off(&one_more));
	client_close(&one_more);
	for (int i = 0; i < 6; i++)
		client_close(&clients[i]);
}

#define CASES(loop) \
	{ \
		HARNESS_CASE(loop, hello_gives_board_and_doorbell), \
			HARNESS_CASE(loop, another_version_is_refused_and_both_are_named), \
			HARNESS_CASE(loop, garbage_ends_the_connection), \
			HARNESS_CASE(loop, a_message_too_long_ends_the_connection), \
			HARNESS_CASE(loop, a_message_of_many_unknown_fields_is_refused), \
			HARNESS_CASE(loop, two_verbs_are_refused_and_the_session_goes_on), \
			HARNESS_CASE(loop, no_verb_is_refused_and_the_session_goes_on), \
			HARNESS_CASE(loop, a_verb_before_hello_ends_the_connection), \
			HARNESS_CASE(loop, a_second_hello_is_refused), \
			HARNESS_CASE(loop, status_names_the_loop), \
			HARNESS_CASE(loop, sessions_tell_name_pid_and_uid), \
			HARNESS_CASE(loop, sessions_are_told_newest_first), \
			HARNESS_CASE(loop, bad_models_are_refused_by_field), \
			HARNESS_CASE(loop, fp8_is_refused_by_name), \
			HARNESS_CASE(loop, a_model_name_too_long_is_refused), \
			HARNESS_CASE(loop, bad_arenas_are_refused), \
			HARNESS_CASE(loop, arenas_are_counted_and_come_back), \
			HARNESS_CASE(loop, lanes_have_a_header_and_a_descriptor_if_asked), \
			HARNESS_CASE(loop, a_lane_is_freed_once), \
			HARNESS_CASE(loop, bad_prompts_are_refused_by_field), \
			HARNESS_CASE(loop, stale_and_foreign_handles_are_refused), \
			HARNESS_CASE(loop, a_wait_ends_at_its_time_with_the_match), \
			HARNESS_CASE(loop, too_many_requests_at_once_are_refused), \
			HARNESS_CASE(loop, the_tree_shows_what_is_there), \
			HARNESS_CASE(loop, drain_and_evict_are_for_the_daemons_user), \
			HARNESS_CASE(loop, other_users_see_their_own_domain_only), \
			HARNESS_CASE(loop, a_session_too_many_is_refused_with_a_sentence), \
	}

int main(int argc, char **argv)
{
	const struct CMUnitTest epoll[] = CASES(epoll);
	const struct CMUnitTest uring[] = CASES(uring);
	int failures;

	if (harness_init(argc, argv) < 0)
		return 1;
	failures = cmocka_run_group_tests_name("control, epoll", epoll, NULL, NULL);
	if (harness_has_uring())
		failures += cmocka_run_group_tests_name("control, io_uring", uring, NULL, NULL);
	return failures;
}
