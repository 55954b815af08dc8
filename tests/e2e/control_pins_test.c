/*
 * control_pins_test.c - the verb pins, and what the log has of sessions: models, evictions, drains.
 */
#include "stepper.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define NS_A_MINUTE UINT64_C(60000000000)

static const Coppice__PinsReply *list(struct client *c, uint64_t cursor)
{
	Coppice__Pins pins = COPPICE__PINS__INIT;
	const Coppice__Reply *reply;

	pins.has_cursor = 1;
	pins.cursor = cursor;
	reply = client_verb(c, pins, &pins);
	assert_int_equal(reply->code, 0);
	assert_non_null(reply->pins);
	return reply->pins;
}

static uint64_t pin(struct client *c, uint64_t seq, uint64_t for_ns)
{
	Coppice__SeqPin m = COPPICE__SEQ_PIN__INIT;
	const Coppice__Reply *reply;

	m.seq = seq;
	m.for_ns = for_ns;
	reply = client_verb(c, seq_pin, &m);
	assert_int_equal(reply->code, 0);
	return reply->pin->pin;
}

static uint64_t open_seq(struct client *c)
{
	client_model(c);
	client_arena(c, 1);
	client_lane(c);
	return client_seq(c, 1, 1, 1, 8)->seq->seq;
}

static void a_pin_is_listed_until_it_is_unpinned(void **state)
{
	struct client c = client_open(*state);
	uint64_t seq = open_seq(&c), id;
	Coppice__Unpin unpin = COPPICE__UNPIN__INIT;
	const Coppice__PinsReply *pins;

	assert_int_equal(list(&c, 0)->n_pin, 0);
	id = pin(&c, seq, NS_A_MINUTE);
	pins = list(&c, 0);
	assert_int_equal(pins->n_pin, 1);
	assert_int_equal(pins->cursor, 0);
	assert_int_equal(pins->pin[0]->pin, id);
	assert_int_equal(pins->pin[0]->domain, getuid());
	assert_in_range(pins->pin[0]->left_ns, 1, NS_A_MINUTE);
	assert_true(strlen(pins->pin[0]->model) > 0);
	unpin.pin = id;
	assert_int_equal(client_verb(&c, unpin, &unpin)->code, 0);
	assert_int_equal(list(&c, 0)->n_pin, 0);
	client_close(&c);
}

static void a_long_list_comes_in_pages(void **state)
{
	struct client c = client_open(*state);
	uint64_t seq = open_seq(&c), cursor = 0, last = 0;
	uint32_t n = 0, n_pages = 0;

	for (int i = 0; i < 300; i++)
		pin(&c, seq, NS_A_MINUTE);
	do {
		const Coppice__PinsReply *pins = list(&c, cursor);

		for (size_t i = 0; i < pins->n_pin; i++) {
			assert_true(pins->pin[i]->pin > last);
			last = pins->pin[i]->pin;
		}
		n += (uint32_t)pins->n_pin;
		cursor = pins->cursor;
		n_pages++;
	} while (cursor);
	assert_int_equal(n, 300);
	assert_true(n_pages >= 3);
	client_close(&c);
}

static void a_time_too_long_is_said_as_people_write_it(void **state)
{
	struct client c = client_open(*state);
	Coppice__SeqPin m = COPPICE__SEQ_PIN__INIT;
	const Coppice__Reply *reply;

	m.seq = open_seq(&c);
	m.for_ns = 30 * 24 * 60 * NS_A_MINUTE;
	reply = client_verb(&c, seq_pin, &m);
	assert_int_equal(reply->code, -EINVAL);
	assert_string_equal(reply->message,
			    "A pin holds for at most 1 d (max_pin_ms), not for 30 d.");
	m.for_ns = UINT64_MAX;
	reply = client_verb(&c, seq_pin, &m);
	assert_int_equal(reply->code, -EINVAL);
	assert_string_equal(reply->message,
			    "A pin holds for at most 1 d (max_pin_ms), not for ever.");
	client_close(&c);
}

/* In a child that has become nobody; 0 if all was as it should be. */
static int look_as_a_foreign_user(const struct harness *h)
{
	struct client c;

	if (setgid(65534) < 0 || setuid(65534) < 0)
		return 1;
	c = client_open(h);
	return list(&c, 0)->n_pin == 0 ? 0 : 2;
}

static void another_user_does_not_see_them(void **state)
{
	struct client c = client_open(*state);
	pid_t pid;

	pin(&c, open_seq(&c), NS_A_MINUTE);
	if (getuid() != 0) {
		client_close(&c);
		skip();
	}
	pid = fork();
	if (pid == 0)
		_exit(look_as_a_foreign_user(*state));
	assert_int_equal(harness_wait(pid), 0);
	client_close(&c);
}

/* In a child that has become nobody: it pins what it has and leaves. */
static int pin_as_a_foreign_user(const struct harness *h)
{
	struct client c;

	if (setgid(65534) < 0 || setuid(65534) < 0)
		return 1;
	c = client_open(h);
	pin(&c, open_seq(&c), 60 * NS_A_MINUTE);
	client_close(&c);
	return 0;
}

static void root_sees_pins_of_users_who_have_left_and_ends_them(void **state)
{
	struct client c = client_open(*state);
	Coppice__Evict evict = COPPICE__EVICT__INIT;
	const Coppice__PinsReply *pins;
	const Coppice__Reply *reply;
	pid_t pid;

	if (getuid() != 0) {
		client_close(&c);
		skip();
	}
	pid = fork();
	if (pid == 0)
		_exit(pin_as_a_foreign_user(*state));
	assert_int_equal(harness_wait(pid), 0);
	pins = list(&c, 0);
	assert_int_equal(pins->n_pin, 1);
	assert_int_equal(pins->pin[0]->domain, 65534);
	assert_in_range(pins->pin[0]->left_ns, 59 * NS_A_MINUTE, 60 * NS_A_MINUTE);
	assert_int_equal(client_verb(&c, evict, &evict)->code, 0);
	assert_int_equal(list(&c, 0)->n_pin, 1);
	evict.has_pinned = evict.pinned = 1;
	reply = client_verb(&c, evict, &evict);
	assert_int_equal(reply->code, 0);
	assert_int_equal(reply->evict->n_pins, 1);
	assert_int_equal(list(&c, 0)->n_pin, 0);
	client_close(&c);
}

static bool log_has_of(const struct harness *h, uint32_t session, const char *what)
{
	char text[128];

	snprintf(text, sizeof(text), "session %" PRIu32 "%s", session, what);
	return harness_log_has(h, text);
}

/* Of the one session that has joined. */
static uint32_t session_of_the_log(const struct harness *h)
{
	uint32_t id = 1;

	assert_true(harness_log_has(h, ") joins"));
	while (id < 100 && !log_has_of(h, id, " ("))
		id++;
	return id;
}

static void assert_log_comes_to_have(const struct harness *h, const char *text, int patience_ms)
{
	for (int ms = 0; ms < patience_ms && !harness_log_has(h, text); ms += 10)
		sleep_ms(10);
	assert_true(harness_log_has(h, text));
}

static void the_log_has_what_sessions_do_with_their_ids(void **state)
{
	struct harness *h = *state;
	uint32_t id;
	struct client c = client_open(h);
	Coppice__Evict evict = COPPICE__EVICT__INIT;
	Coppice__Drain drain = COPPICE__DRAIN__INIT;

	client_model(&c);
	id = session_of_the_log(h);
	assert_true(log_has_of(h, id, " opens model"));
	assert_int_equal(client_verb(&c, evict, &evict)->code, 0);
	assert_true(log_has_of(h, id, " evicts: 0 pages"));
	assert_int_equal(client_verb(&c, drain, &drain)->code, 0);
	assert_true(log_has_of(h, id, ": the daemon drains: it takes no new sequences"));
	drain.has_off = drain.off = 1;
	assert_int_equal(client_verb(&c, drain, &drain)->code, 0);
	assert_true(log_has_of(h, id, ": the daemon takes new sequences again"));
	client_close(&c);
	/* A stop would end it first, if it came first. */
	assert_log_comes_to_have(h, "ends: hang-up", 5000);
}

static void await_no_sequences(struct client *c)
{
	for (int ms = 0; client_status(c)->n_seqs > 0; ms += 10) {
		assert_true(ms < HARNESS_PATIENCE_MS);
		sleep_ms(10);
	}
}

static void expect_evicted(const struct harness *h, uint64_t n)
{
	char text[128];

	snprintf(text, sizeof(text), ": %" PRIu64 " idle pages were evicted for its KV\n", n);
	assert_log_comes_to_have(h, text, HARNESS_PATIENCE_MS);
}

/* The first at once, the others together; of a session that leaves too early, when it leaves. */
static void the_log_has_for_whom_pages_are_evicted(void **state)
{
	struct harness *h = *state;
	struct client c = client_open(h);
	struct stepper first, next;
	uint64_t n, n_in_all;

	stepper_start(&first, h);
	while (stepper_append(&first, STEPPER_CHUNK) == 0)
		continue;
	stepper_end(&first);
	await_no_sequences(&c);
	assert_int_equal(client_status(&c)->pages_evicted, 0);
	assert_false(harness_log_has(h, "evicted"));

	stepper_start(&next, h);
	stepper_number_from(&next, 1u << 20);
	while ((n = client_status(&c)->pages_evicted) == 0)
		assert_int_equal(stepper_append(&next, STEPPER_CHUNK), 0);
	expect_evicted(h, n);
	for (int i = 0; i < 3; i++)
		assert_int_equal(stepper_append(&next, STEPPER_CHUNK), 0);
	n_in_all = client_status(&c)->pages_evicted;
	assert_true(n_in_all > n);
	stepper_end(&next);
	expect_evicted(h, n_in_all - n);
	client_close(&c);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		HARNESS_CASE(epoll, a_pin_is_listed_until_it_is_unpinned),
		HARNESS_CASE(epoll, a_long_list_comes_in_pages),
		HARNESS_CASE(epoll, a_time_too_long_is_said_as_people_write_it),
		HARNESS_CASE(epoll, another_user_does_not_see_them),
		HARNESS_CASE(epoll, root_sees_pins_of_users_who_have_left_and_ends_them),
		HARNESS_CASE(epoll, the_log_has_what_sessions_do_with_their_ids),
		HARNESS_CASE(epoll, the_log_has_for_whom_pages_are_evicted),
	};

	if (harness_init(argc, argv) < 0)
		return 1;
	return cmocka_run_group_tests_name("pins", tests, NULL, NULL);
}
