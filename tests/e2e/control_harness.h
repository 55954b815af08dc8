/*
 * control_harness.h - a real coppiced in a folder of its own, and clients that speak raw packets to
 * it.
 *
 * With COPPICE_TEST_DEVICES set (0,1 or cpu,cpu,cpu) the daemon computes on these. Everything
 * asserts: a failure ends the test. The daemon is stopped in teardown and must end with status 0.
 */
#ifndef CONTROL_HARNESS_H
#define CONTROL_HARNESS_H

#include "control.pb-c.h"
#include "proto/abi.h"
#include "proto/channel.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <cmocka.h>

#define HARNESS_FLAGS 9

struct harness {
	char folder[64];
	char socket[96];
	char log[96]; /* what the daemon says, on stdout and stderr */
	pid_t pid; /* 0: none runs */
	const char *loop;
	/* For the next start. */
	const char *flags[HARNESS_FLAGS]; /* more of them, up to NULL */
	const char *notify_path; /* NOTIFY_SOCKET */
	const char *watchdog_us;
	int listen_fd; /* socket activation; -1: none */
	bool refuse_uring; /* as containers do */
	uid_t uid; /* the daemon's; 0: the test's own */
	unsigned max_fds; /* its RLIMIT_NOFILE; 0: the test's own */
};

int harness_init(int argc, char **argv); /* of main; argv[1] is the path of coppiced */
bool harness_has_uring(void);

/* A test with a daemon on a loop (setup_uring, setup_epoll), and one that starts it itself. */
int harness_setup_uring(void **state);
int harness_setup_epoll(void **state);
int harness_setup_bare_uring(void **state);
int harness_setup_bare_epoll(void **state);
int harness_teardown(void **state);
#define HARNESS_CASE(loop, name) \
	cmocka_unit_test_setup_teardown(name, harness_setup_##loop, harness_teardown)
#define HARNESS_BARE(loop, name) \
	cmocka_unit_test_setup_teardown(name, harness_setup_bare_##loop, harness_teardown)

#define HARNESS_PATIENCE_MS 100000 /* far beyond what anything takes on a crowded machine */

struct harness *harness_new(const char *loop);
void harness_free(struct harness *h); /* ends the daemon if it runs */
pid_t harness_spawn(struct harness *h); /* does not wait */
void harness_start(struct harness *h); /* waits until it answers */
int harness_stop(struct harness *h, int signal); /* its exit status, -signal where that ended it */
int harness_wait(pid_t pid); /* the same */
/* The same of what ends soon. After HARNESS_PATIENCE_MS it is killed, and the test fails: what
 * names it. */
int harness_wait_for(pid_t pid, const char *what);
bool harness_log_has(const struct harness *h, const char *text);

struct client {
	int fd;
	uint64_t last_id;
	Coppice__Reply *reply; /* owned: the last one */
	int fds[CHANNEL_MAX_FDS]; /* owned: those of the last one */
	unsigned n_fds;
	void *arena; /* mapped */
	size_t arena_bytes;
};

struct client client_connect(const struct harness *h); /* no hello yet */
struct client client_open(const struct harness *h); /* with hello */
void client_close(struct client *c);
/* Packs, sends, gives the request an id if it has none. */
void client_send(struct client *c, Coppice__Request *request);
/* The next reply, or NULL at hang-up. */
const Coppice__Reply *client_receive(struct client *c);
/* Both; the reply has the request's id. */
const Coppice__Reply *client_call(struct client *c, Coppice__Request *request);
bool client_is_cut_off(struct client *c); /* nothing but a hang-up comes */

/* Becomes that user, without its groups; false: this process may not. For children of tests that
 * root runs. */
bool become_user(uid_t uid);

/* A verb alone in a request: client_verb(c, hello, &hello). */
#define client_verb(c, verb, message) \
	client_call(c, &(Coppice__Request){PROTOBUF_C_MESSAGE_INIT(&coppice__request__descriptor), \
					   .verb = (message)})

/* Common steps. */
const Coppice__StatusReply *client_status(struct client *c);
uint32_t client_model(struct client *c);
/* Mapped at c->arena; the descriptor is the caller's. */
uint32_t client_open_arena(struct client *c, uint64_t bytes, int *ret_fd);
const Coppice__Reply *client_seal(struct client *c, uint32_t arena);
uint32_t client_arena(struct client *c, uint64_t bytes); /* all of it, mapped at c->arena */
uint32_t client_lane(struct client *c);
/* All pages of a segment, which the daemon wants to be there when it is sealed. */
void client_fill(int fd, uint64_t bytes);
/* That the client has mapped it. */
const Coppice__Reply *client_seal_lane(struct client *c, uint32_t lane);
/* A sequence on n tokens 1, 2, 3, ... at the arena's start. */
const Coppice__Reply *client_seq(struct client *c, uint32_t model, uint32_t lane, uint32_t arena,
				 uint32_t n);
uint64_t client_count_sessions(struct client *c);
void count_becomes(struct client *c, uint64_t n); /* soon; asserts */

void assert_refused(const Coppice__Reply *reply, int code, const char *field, const char *text);
void sleep_ms(unsigned ms);

#endif
