/*
 * control_fuzz.c - clients that say anything, at a real daemon, while an honest one steps.
 *
 * A client of nonsense has a session made the right way, then sends requests that are valid but for
 * a field, requests with flipped bytes, and plain noise, with descriptors attached or not; it reads
 * its replies or not, and hangs up or is killed at any moment. In the end the daemon has the honest
 * session alone, as many descriptors as before, and about as much memory.
 */
#include "draw.h"
#include "honest.h"

#include "control_harness.h"
#include "element.h"
#include "tests/sanitized.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define SECONDS 2.5
#define MAX_LIVES 3000
#define MAX_PACKETS 60
#define MAX_KILLS 24
/* A sanitizer's quarantine and the KV pool's first pages among them. */
#define MAX_BYTES_MORE (48u << 20)

/* Everything that a request can hold, so that mutation is by number and not by name. */
struct words {
	Coppice__Request request;
	union {
		Coppice__Hello hello;
		Coppice__ModelOpen model_open;
		Coppice__ArenaNew arena_new;
		Coppice__ArenaSeal arena_seal;
		Coppice__ArenaFree arena_free;
		Coppice__LaneNew lane_new;
		Coppice__LaneSeal lane_seal;
		Coppice__LaneFree lane_free;
		Coppice__SeqOpen seq_open;
		Coppice__SeqWait seq_wait;
		Coppice__SeqLength seq_length;
		Coppice__SeqClose seq_close;
		Coppice__SeqPin seq_pin;
		Coppice__Unpin unpin;
		Coppice__Status status;
		Coppice__Tree tree;
		Coppice__Sessions sessions;
		Coppice__Models models;
		Coppice__WeightsOpen weights_open;
		Coppice__WeightsState weights_state;
		Coppice__WeightsTensors weights_tensors;
		Coppice__WeightsMap weights_map;
		Coppice__WeightsClose weights_close;
		Coppice__WeightsList weights_list;
		Coppice__ProgramNew program_new;
		Coppice__NodePin node_pin;
		Coppice__Evict evict;
		ProtobufCMessage base;
	} verb;
};

/* Of a mutated message no field may stay a pointer that was never one. */
static void field_set(struct draw *d, const ProtobufCFieldDescriptor *field, void *at)
{
	static char names[3][200] = {"fuzz", "", "\x01\xff%s%n\n"};

	memset(names[2] + 8, 'x', 150);
	switch (field->type) {
	case PROTOBUF_C_TYPE_STRING:
		*(char **)at = names[draw_below(d, 3)];
		break;
	case PROTOBUF_C_TYPE_UINT64:
		*(uint64_t *)at = draw_one_in(d, 2) ? draw_below(d, 4) : draw_border(d);
		break;
	case PROTOBUF_C_TYPE_BYTES:
		*(ProtobufCBinaryData *)at =
			(ProtobufCBinaryData){draw_below(d, 3) * 8, (uint8_t *)names[2]};
		break;
	case PROTOBUF_C_TYPE_BOOL:
		*(protobuf_c_boolean *)at = draw_one_in(d, 2);
		break;
	default: /* uint32, float */
		*(uint32_t *)at = (uint32_t)(draw_one_in(d, 2) ? draw_below(d, 4) : draw_border(d));
	}
}

#define REPEATED 6u

/* Some of a repeated field: noise, or messages that are nothing but what init makes them. */
static void repeated_set(struct draw *d, const ProtobufCFieldDescriptor *field, void *message)
{
	static uint64_t noise[REPEATED];
	static union {
		ProtobufCMessage base;
		uint64_t room[32];
	} messages[REPEATED];
	static ProtobufCMessage *pointers[REPEATED];
	bool nested = field->type == PROTOBUF_C_TYPE_MESSAGE;

	draw_fill(d, noise, sizeof(noise));
	for (uint32_t i = 0; nested && i < REPEATED; i++) {
		assert_true(
			((const ProtobufCMessageDescriptor *)field->descriptor)->sizeof_message <=
			sizeof(messages[i]));
		protobuf_c_message_init(field->descriptor, &messages[i].base);
		pointers[i] = &messages[i].base;
	}
	*(size_t *)((char *)message + field->quantifier_offset) = draw_below(d, REPEATED + 1);
	*(void **)((char *)message + field->offset) = nested ? (void *)pointers : (void *)noise;
}

static void set_flag(const ProtobufCFieldDescriptor *field, void *message)
{
	if (field->label == PROTOBUF_C_LABEL_OPTIONAL && field->quantifier_offset)
		*(protobuf_c_boolean *)((char *)message + field->quantifier_offset) = 1;
}

static void mutate(struct draw *d, ProtobufCMessage *message, bool all)
{
	for (unsigned i = 0; i < message->descriptor->n_fields; i++) {
		const ProtobufCFieldDescriptor *field = &message->descriptor->fields[i];

		if (!all && !draw_one_in(d, 4) && field->label != PROTOBUF_C_LABEL_REQUIRED)
			continue;
		if (field->label == PROTOBUF_C_LABEL_REPEATED) {
			repeated_set(d, field, message);
		} else if (all || draw_one_in(d, 4) || field->type == PROTOBUF_C_TYPE_STRING) {
			field_set(d, field, (char *)message + field->offset);
			set_flag(field, message);
		}
	}
}

static void valid_verb(struct words *w, const ProtobufCMessageDescriptor *verb)
{
	if (verb == &coppice__model_open__descriptor) {
		w->verb.model_open.name = (char *)"fuzz";
		w->verb.model_open.n_layers = w->verb.model_open.n_q_heads = 2;
		w->verb.model_open.n_kv_heads = 1;
		w->verb.model_open.head_dim = 32;
	} else if (verb == &coppice__arena_new__descriptor) {
		w->verb.arena_new.bytes = 1 << 20;
	} else if (verb == &coppice__seq_open__descriptor) {
		w->verb.seq_open.model = w->verb.seq_open.lane = w->verb.seq_open.arena = 1;
		w->verb.seq_open.n_tokens = 100;
	} else if (verb == &coppice__seq_pin__descriptor) {
		w->verb.seq_pin.for_ns = 1000000;
	} else if (verb == &coppice__seq_wait__descriptor) {
		w->verb.seq_wait.timeout_ns = 10000000;
	}
}

/* Any verb but hello, and drain and leave, which would be the honest client's end as well. */
static const ProtobufCFieldDescriptor *verb_draw(struct draw *d)
{
	const ProtobufCMessageDescriptor *request = &coppice__request__descriptor;
	const ProtobufCFieldDescriptor *field;

	do
		field = &request->fields[2 + draw_below(d, request->n_fields - 2)];
	while (field->descriptor == &coppice__drain__descriptor ||
	       field->descriptor == &coppice__leave__descriptor);
	return field;
}

static void words_make(struct draw *d, struct words *w, uint64_t id)
{
	const ProtobufCMessageDescriptor *request = &coppice__request__descriptor;
	const ProtobufCFieldDescriptor *field =
		draw_one_in(d, 50) ? &request->fields[1] : verb_draw(d);

	*w = (struct words){.request = COPPICE__REQUEST__INIT};
	w->request.id = id;
	assert_true(((const ProtobufCMessageDescriptor *)field->descriptor)->sizeof_message <=
		    sizeof(w->verb));
	protobuf_c_message_init(field->descriptor, &w->verb.base);
	valid_verb(w, field->descriptor);
	if (draw_one_in(d, 2))
		mutate(d, &w->verb.base, draw_one_in(d, 4));
	*(void **)((char *)&w->request + field->offset) = &w->verb;
}

static size_t packet_make(struct draw *d, uint8_t *packet, uint64_t id)
{
	struct words w;
	size_t n;

	words_make(d, &w, id);
	n = coppice__request__pack(&w.request, packet);
	if (draw_one_in(d, 300)) { /* noise ends a session: seldom */
		n = 1 + draw_below(d, CHANNEL_MAX_BYTES - 1);
		draw_fill(d, packet, n);
	} else if (draw_one_in(d, 20)) {
		packet[draw_below(d, (uint32_t)n)] ^= (uint8_t)(1 << draw_below(d, 8));
	} else if (draw_one_in(d, 60)) {
		n = 1 + draw_below(d, (uint32_t)n);
	} else if (draw_one_in(d, 60)) { /* unknown fields, by the thousand */
		for (; n + 3 < CHANNEL_MAX_BYTES / 4; n += 3)
			memcpy(packet + n, "\xf8\x7f\x01", 3);
	}
	return n;
}

/* A byte that may not be drain: bits may have been flipped into it. */
static bool is_drain(const uint8_t *packet, size_t n)
{
	Coppice__Request *request = coppice__request__unpack(NULL, n, packet);
	bool drain = request && request->drain;

	if (request)
		coppice__request__free_unpacked(request, NULL);
	return drain;
}

static int send_any(struct draw *d, int fd, uint64_t id)
{
	static uint8_t packet[CHANNEL_MAX_BYTES];
	const int all[CHANNEL_MAX_FDS] = {fd, fd, fd, fd};
	struct channel_fds fds = {.at = all};
	size_t n = packet_make(d, packet, id);

	if (is_drain(packet, n))
		return 0;
	fds.n = draw_one_in(d, 10) ? 1 + draw_below(d, 4) : 0;
	return channel_send(fd, packet, n, &fds, MSG_DONTWAIT);
}

static void read_all(int fd)
{
	static uint8_t packet[CHANNEL_MAX_BYTES];
	int fds[CHANNEL_MAX_FDS];

	do {
		struct channel_fds_room room = {fds, CHANNEL_MAX_FDS};

		if (channel_recv(fd, packet, sizeof(packet), &room, MSG_DONTWAIT) <= 0)
			return;
		while (room.n--)
			close(fds[room.n]);
	} while (true);
}

/* A connection, most of the time with what a session needs, and nonsense until it ends or hangs
 * up. */
static void live(struct draw *d, const struct harness *h)
{
	struct client c = client_connect(h);
	uint32_t n = draw_below(d, MAX_PACKETS);
	bool reads = !draw_one_in(d, 4);

	if (!draw_one_in(d, 10)) {
		Coppice__Hello hello = COPPICE__HELLO__INIT;

		hello.abi_version = ABI_VERSION;
		client_verb(&c, hello, &hello);
	}
	if (c.reply && c.reply->code == 0 && !draw_one_in(d, 4)) {
		client_arena(&c, 1 << 20);
		client_lane(&c);
		client_model(&c);
	}
	for (uint32_t i = 0; i < n; i++) {
		int r = send_any(d, c.fd, i);

		if (r < 0 && r != -EAGAIN)
			break;
		if (reads)
			read_all(c.fd);
	}
	client_close(&c);
}

static void live_and_die(struct draw *d, const struct harness *h)
{
	unsigned ms = 1 + draw_below(d, 10);
	pid_t pid = fork();

	if (pid == 0) {
		alarm(20);
		draw_bits(d);
		for (;;)
			live(d, h);
	}
	sleep_ms(ms);
	kill(pid, SIGKILL);
	harness_wait(pid);
}

/* Device arenas that it may have open return when its process ends: where there are some, it has
 * one of its own. */
static void live_apart(struct draw *d, const struct harness *h)
{
	pid_t pid = fork();

	if (pid == 0) {
		live(d, h);
		_exit(0);
	}
	draw_bits(d);
	assert_int_equal(harness_wait(pid), 0);
}

static void goes_back_to(const struct harness *h, unsigned n_fds, uint64_t bytes)
{
	for (int i = 0; i < 1000 && process_descriptors(h->pid) != n_fds; i++)
		sleep_ms(5);
	assert_int_equal(process_descriptors(h->pid), n_fds);
	uint64_t now = process_bytes(h->pid);

	print_message("%llu KiB before, %llu after\n", (unsigned long long)bytes >> 10,
		      (unsigned long long)now >> 10);
	assert_true(SANITIZED || now < bytes + MAX_BYTES_MORE);
}

static void nonsense_on_the_socket_hurts_nobody_else(void **state)
{
	struct harness *h = *state;
	struct honest honest;
	struct draw d;
	uint32_t n = 0, n_kills = 0;

	draw_init(&d, SECONDS);
	honest_start(&honest, h->socket, 7);
	honest_run(&honest, 20);
	unsigned n_fds = process_descriptors(h->pid);
	uint64_t bytes = process_bytes(h->pid);

	for (; n < MAX_LIVES && draw_goes_on(&d); n++) {
		if (n_kills < MAX_KILLS && draw_one_in(&d, 8)) {
			live_and_die(&d, h);
			n_kills++;
		} else if (test_on_gpu()) {
			live_apart(&d, h);
		} else {
			live(&d, h);
		}
		honest_step(&honest);
	}
	print_message("%u lives, %u killed, %llu honest steps\n", n, n_kills,
		      (unsigned long long)honest.n_steps);
	goes_back_to(h, n_fds, bytes);
	struct client c = client_open(h);

	count_becomes(&c, 2);
	client_close(&c);
	honest_run(&honest, 20);
	honest_end(&honest);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest on_uring[] = {
		HARNESS_CASE(uring, nonsense_on_the_socket_hurts_nobody_else)};
	const struct CMUnitTest on_epoll[] = {
		HARNESS_CASE(epoll, nonsense_on_the_socket_hurts_nobody_else)};
	int failed = harness_init(argc, argv);

	if (failed < 0)
		return 2;
	if (harness_has_uring())
		failed += cmocka_run_group_tests_name("io_uring", on_uring, NULL, NULL);
	return failed + cmocka_run_group_tests_name("epoll", on_epoll, NULL, NULL);
}
