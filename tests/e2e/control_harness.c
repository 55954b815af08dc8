/*
 * control_harness.c - processes and packets for control_test.c.
 */
#include "control_harness.h"
#include "element.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define WAIT_TRIES 1000 /* of 5 ms: until something that must happen has happened */
#define START_TRIES 2000 /* of 5 ms */

static const char *harness_daemon; /* path of coppiced */

void sleep_ms(unsigned ms)
{
	struct timespec t = {ms / 1000, (long)(ms % 1000) * 1000000};

	nanosleep(&t, NULL);
}

/* ---- the daemon ---- */

struct harness *harness_new(const char *loop)
{
	struct harness *h = calloc(1, sizeof(*h));

	assert_non_null(h);
	strcpy(h->folder, "/tmp/coppice-e2e-XXXXXX");
	assert_non_null(mkdtemp(h->folder));
	assert_int_equal(chmod(h->folder, 0755), 0); /* other users are clients, too */
	snprintf(h->socket, sizeof(h->socket), "%s/sock", h->folder);
	snprintf(h->log, sizeof(h->log), "%s/log", h->folder);
	h->loop = loop;
	h->listen_fd = -1;
	return h;
}

void harness_free(struct harness *h)
{
	char tier[96];

	if (h->pid)
		harness_stop(h, SIGKILL);
	unlink(h->socket);
	unlink(h->log);
	snprintf(tier, sizeof(tier), "%s/tier", h->folder);
	unlink(tier);
	rmdir(h->folder);
	free(h);
}

/* io_uring_setup answers with EPERM, everything else goes on. */
static void uring_refuse(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {sizeof(code) / sizeof(*code), code};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0)
		_exit(99);
}

static void child_environment(const struct harness *h)
{
	char pid[16];

	if (h->notify_path)
		setenv("NOTIFY_SOCKET", h->notify_path, 1);
	if (h->watchdog_us)
		setenv("WATCHDOG_USEC", h->watchdog_us, 1);
	if (h->listen_fd >= 0) {
		snprintf(pid, sizeof(pid), "%d", getpid());
		setenv("LISTEN_PID", pid, 1);
		setenv("LISTEN_FDS", "1", 1);
		if (h->listen_fd == 3)
			fcntl(3, F_SETFD, 0);
		else
			dup2(h->listen_fd, 3);
	}
}

/* Devices for the daemon; NULL: what the test says it is to compute with is not of their kind, or
 * there are none. */
static const char *group_of(const struct harness *h)
{
	const char *group = getenv("COPPICE_TEST_DEVICES");

	for (int i = 0; group && i < HARNESS_FLAGS && h->flags[i]; i++) {
		if (!strncmp(h->flags[i], "--backend=", 10) &&
		    strcmp(h->flags[i] + 10, strncmp(group, "cpu", 3) ? "cuda" : "cpu") != 0)
			return NULL;
	}
	return group;
}

/* A pool so small that everything moves all the time, for tests that know nothing of it
 * (COPPICE_TEST_TIERS). */
#define TINY_TIERS \
	"--pool=12M", "--extent=2M", "--stage=4M", "--host-tier=32M", "--file-tier-bytes=128M"
#define N_TINY_TIERS 5

bool become_user(uid_t uid)
{
	return setgroups(0, NULL) == 0 && setresgid(uid, uid, uid) == 0 &&
	       setresuid(uid, uid, uid) == 0;
}

/* By its descriptor: another user may not be let into the folders above the program. */
static void child_exec(const struct harness *h, const char *const *argv)
{
	const struct rlimit limit = {h->max_fds, h->max_fds};
	int program = open(harness_daemon, O_PATH | O_CLOEXEC);

	if (h->max_fds && setrlimit(RLIMIT_NOFILE, &limit) < 0)
		_exit(97);
	if (h->uid && (chown(h->folder, h->uid, h->uid) < 0 || !become_user(h->uid)))
		_exit(97);
	prctl(PR_SET_PDEATHSIG, SIGKILL); /* another user's has none */
	if (h->refuse_uring)
		uring_refuse();
	if (h->uid)
		fexecve(program, (char **)argv, environ);
	else
		execv(harness_daemon, (char **)argv);
	_exit(98);
}

static void child_run(const struct harness *h)
{
	const char *group = group_of(h);
	char loop[32], socket[128], backend[64], devices[128], tier[128];
	const char *argv[HARNESS_FLAGS + 24] = {harness_daemon,
						"--config=/dev/null",
						socket,
						loop,
						"--pool=64M",
						"--threads=1",
						"--max-sessions=8",
						"--max-domain-sessions=6",
						"--max-arenas=2",
						"--max-arena-bytes=8M",
						"--max-lanes=2",
						"--spin-us=0",
						backend};
	int n = 13, log = open(h->log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);

	snprintf(socket, sizeof(socket), "--socket=%s", h->socket);
	snprintf(loop, sizeof(loop), "--loop=%s", h->loop);
	snprintf(backend, sizeof(backend), "--backend=%s", test_backend());
	if (group) {
		snprintf(devices, sizeof(devices), "--devices=%s", group);
		argv[n++] = devices;
		argv[n++] = "--extent=2M"; /* on each, of a small pool */
	}
	for (int i = 0; i < HARNESS_FLAGS && h->flags[i]; i++)
		argv[n++] = h->flags[i];
	if (getenv("COPPICE_TEST_TIERS")) {
		snprintf(tier, sizeof(tier), "--file-tier=%s/tier", h->folder);
		memcpy(argv + n, (const char *const[]){TINY_TIERS, tier},
		       (N_TINY_TIERS + 1) * sizeof(*argv));
	}
	dup2(log, STDOUT_FILENO);
	dup2(log, STDERR_FILENO);
	child_environment(h);
	child_exec(h, argv);
}

pid_t harness_spawn(struct harness *h)
{
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0)
		child_run(h);
	return pid;
}

/* Does whoever listens answer? (A daemon just killed may still listen for a moment.) Makes no
 * session. */
static bool answers(const struct harness *h)
{
	struct client c = {.fd = -1};
	bool yes;

	if (channel_connect(h->socket, CHANNEL_FOREVER, &c.fd) < 0)
		return false;
	yes = channel_send(c.fd, "\xff", 1, NULL, 0) == 0 && client_receive(&c);
	client_close(&c);
	return yes;
}

void harness_start(struct harness *h)
{
	int status;

	h->pid = harness_spawn(h);
	for (int i = 0; i < START_TRIES && !answers(h); i++) {
		if (waitpid(h->pid, &status, WNOHANG) == h->pid) {
			h->pid = 0;
			fail_msg("the daemon ended with %d", status);
		}
		sleep_ms(5);
	}
	assert_true(answers(h));
}

int harness_wait(pid_t pid)
{
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/* By a descriptor of the process: what sleeps in waitpid, no signal wakes under TSan. */
int harness_wait_for(pid_t pid, const char *what)
{
	struct pollfd end = {.fd = (int)syscall(SYS_pidfd_open, pid, 0), .events = POLLIN};
	bool ended;

	assert_true(end.fd >= 0);
	ended = poll(&end, 1, HARNESS_PATIENCE_MS) == 1;
	close(end.fd);
	if (!ended) {
		kill(pid, SIGKILL);
		harness_wait(pid);
		fail_msg("waited %d s for %s to end", HARNESS_PATIENCE_MS / 1000, what);
	}
	return harness_wait(pid);
}

int harness_stop(struct harness *h, int signal)
{
	pid_t pid = h->pid;

	assert_true(pid > 0); /* 0 were this process and all that started it */
	h->pid = 0;
	kill(pid, signal);
	return harness_wait_for(pid, "the daemon");
}

static bool read_log(const struct harness *h, char *ret, size_t bytes)
{
	int fd = open(h->log, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return false;
	n = read(fd, ret, bytes - 1);
	close(fd);
	ret[n > 0 ? n : 0] = 0;
	return n >= 0;
}

bool harness_log_has(const struct harness *h, const char *text)
{
	char said[16384];

	assert_true(read_log(h, said, sizeof(said)));
	return strstr(said, text);
}

/* ---- clients ---- */

struct client client_connect(const struct harness *h)
{
	struct client c = {.fd = -1};

	assert_int_equal(channel_connect(h->socket, CHANNEL_FOREVER, &c.fd), 0);
	return c;
}

struct client client_open(const struct harness *h)
{
	struct client c = client_connect(h);
	Coppice__Hello hello = COPPICE__HELLO__INIT;

	hello.abi_version = ABI_VERSION;
	hello.client_name = (char *)"control_test";
	assert_int_equal(client_verb(&c, hello, &hello)->code, 0);
	return c;
}

static void forget(struct client *c)
{
	if (c->reply)
		coppice__reply__free_unpacked(c->reply, NULL);
	c->reply = NULL;
	for (unsigned i = 0; i < c->n_fds; i++)
		close(c->fds[i]);
	c->n_fds = 0;
}

void client_close(struct client *c)
{
	forget(c);
	if (c->arena)
		munmap(c->arena, c->arena_bytes);
	close(c->fd);
}

void client_send(struct client *c, Coppice__Request *request)
{
	uint8_t packet[CHANNEL_MAX_BYTES];

	if (request->id == 0)
		request->id = ++c->last_id;
	assert_true(coppice__request__get_packed_size(request) <= sizeof(packet));
	assert_int_equal(channel_send(c->fd, packet, coppice__request__pack(request, packet), NULL,
				      0),
			 0);
}

const Coppice__Reply *client_receive(struct client *c)
{
	static uint8_t packet[CHANNEL_MAX_BYTES];
	struct pollfd answer = {.fd = c->fd, .events = POLLIN};
	struct channel_fds_room room = {c->fds, CHANNEL_MAX_FDS};
	ssize_t n;

	if (poll(&answer, 1, HARNESS_PATIENCE_MS) != 1)
		fail_msg("waited %d s for an answer of the daemon", HARNESS_PATIENCE_MS / 1000);
	forget(c);
	n = channel_recv(c->fd, packet, sizeof(packet), &room, 0);
	c->n_fds = n > 0 ? room.n : 0;
	if (n <= 0)
		return NULL;
	c->reply = coppice__reply__unpack(NULL, (size_t)n, packet);
	assert_non_null(c->reply);
	return c->reply;
}

const Coppice__Reply *client_call(struct client *c, Coppice__Request *request)
{
	const Coppice__Reply *reply;

	client_send(c, request);
	reply = client_receive(c);
	assert_non_null(reply);
	assert_int_equal(reply->id, request->id);
	return reply;
}

bool client_is_cut_off(struct client *c)
{
	return client_receive(c) == NULL;
}

const Coppice__StatusReply *client_status(struct client *c)
{
	Coppice__Status m = COPPICE__STATUS__INIT;
	const Coppice__Reply *reply = client_verb(c, status, &m);

	assert_int_equal(reply->code, 0);
	return reply->status;
}

uint32_t client_model(struct client *c)
{
	Coppice__ModelOpen m = COPPICE__MODEL_OPEN__INIT;
	const Coppice__Reply *reply;

	m.name = (char *)"m";
	m.n_layers = 2;
	m.n_q_heads = 4;
	m.n_kv_heads = 2;
	m.head_dim = 64;
	m.dtype = element_dtype();
	reply = client_verb(c, model_open, &m);
	assert_int_equal(reply->code, 0);
	return reply->model->model;
}

uint32_t client_open_arena(struct client *c, uint64_t bytes, int *ret_fd)
{
	Coppice__ArenaNew m = COPPICE__ARENA_NEW__INIT;
	const Coppice__Reply *reply;

	m.bytes = bytes;
	reply = client_verb(c, arena_new, &m);
	assert_int_equal(reply->code, 0);
	assert_int_equal(c->n_fds, 1);
	c->n_fds = 0;
	*ret_fd = c->fds[0];
	c->arena_bytes = reply->arena->bytes;
	assert_int_equal(channel_segment_map(*ret_fd, c->arena_bytes, 1, &c->arena), 0);
	assert_int_equal(channel_segment_fill(c->arena, c->arena_bytes), 0);
	return reply->arena->arena;
}

const Coppice__Reply *client_seal(struct client *c, uint32_t arena)
{
	Coppice__ArenaSeal m = COPPICE__ARENA_SEAL__INIT;

	m.arena = arena;
	return client_verb(c, arena_seal, &m);
}

uint32_t client_arena(struct client *c, uint64_t bytes)
{
	int fd;
	uint32_t arena = client_open_arena(c, bytes, &fd);

	close(fd);
	assert_int_equal(client_seal(c, arena)->code, 0);
	return arena;
}

void client_fill(int fd, uint64_t bytes)
{
	void *map;

	assert_int_equal(channel_segment_map(fd, bytes, 1, &map), 0);
	assert_int_equal(channel_segment_fill(map, bytes), 0);
	munmap(map, bytes);
}

const Coppice__Reply *client_seal_lane(struct client *c, uint32_t lane)
{
	Coppice__LaneSeal m = COPPICE__LANE_SEAL__INIT;

	m.lane = lane;
	return client_verb(c, lane_seal, &m);
}

uint32_t client_lane(struct client *c)
{
	Coppice__LaneNew m = COPPICE__LANE_NEW__INIT;
	const Coppice__Reply *reply = client_verb(c, lane_new, &m);
	uint32_t lane;

	assert_int_equal(reply->code, 0);
	lane = reply->lane->lane;
	client_fill(c->fds[0], reply->lane->bytes);
	assert_int_equal(client_seal_lane(c, lane)->code, 0);
	return lane;
}

const Coppice__Reply *client_seq(struct client *c, uint32_t model, uint32_t lane, uint32_t arena,
				 uint32_t n)
{
	Coppice__SeqOpen m = COPPICE__SEQ_OPEN__INIT;
	uint32_t *tokens = c->arena;

	for (uint32_t i = 0; i < n; i++)
		tokens[i] = i + 1;
	m.model = model;
	m.lane = lane;
	m.arena = arena;
	m.n_tokens = n;
	return client_verb(c, seq_open, &m);
}

uint64_t client_count_sessions(struct client *c)
{
	Coppice__Sessions m = COPPICE__SESSIONS__INIT;
	const Coppice__Reply *reply = client_verb(c, sessions, &m);

	assert_int_equal(reply->code, 0);
	return reply->sessions->n_session;
}

void assert_refused(const Coppice__Reply *reply, int code, const char *field, const char *text)
{
	assert_non_null(reply);
	assert_int_equal(reply->code, code);
	assert_non_null(reply->message);
	if (field)
		assert_string_equal(reply->field ? reply->field : "(none)", field);
	if (text && !strstr(reply->message, text))
		fail_msg("\"%s\" is not in: %s", text, reply->message);
}

void count_becomes(struct client *c, uint64_t n)
{
	for (int i = 0; i < WAIT_TRIES && client_count_sessions(c) != n; i++)
		sleep_ms(5);
	assert_int_equal(client_count_sessions(c), n);
}

/* ---- groups of tests ---- */

int harness_init(int argc, char **argv)
{
	if (argc != 2) {
		fprintf(stderr, "usage: %s COPPICED\n", argv[0]);
		return -EINVAL;
	}
	harness_daemon = argv[1];
	signal(SIGPIPE, SIG_IGN);
	return 0;
}

bool harness_has_uring(void)
{
	struct harness *h = harness_new("io_uring");
	bool has;

	h->flags[0] = "--socket=/nonexistent/never.sock";
	harness_wait(harness_spawn(h));
	has = !harness_log_has(h, "no event loop");
	harness_free(h);
	if (!has)
		print_message("io_uring is refused here: its cases are left out\n");
	return has;
}

int harness_setup_uring(void **state)
{
	*state = harness_new("io_uring");
	harness_start(*state);
	return 0;
}

int harness_setup_epoll(void **state)
{
	*state = harness_new("epoll");
	harness_start(*state);
	return 0;
}

/* Not started: the test says how. */
int harness_setup_bare_uring(void **state)
{
	*state = harness_new("io_uring");
	return 0;
}

int harness_setup_bare_epoll(void **state)
{
	*state = harness_new("epoll");
	return 0;
}

/* A daemon that leaks or trips a sanitizer ends with another status. */
int harness_teardown(void **state)
{
	struct harness *h = *state;
	int status = h->pid ? harness_stop(h, SIGTERM) : 0;
	char said[16384];

	if (status != 0)
		fprintf(stderr, "the daemon ended with %d and said:\n%s", status,
			read_log(h, said, sizeof(said)) ? said : "");
	harness_free(h);
	return status;
}
