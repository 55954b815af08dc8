/*
 * service_test.c - the daemon as a process, on both loops: clients that die, hang or lie; start,
 * stop, and life under a service manager.
 */
#include "control_harness.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <gnu/libc-version.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define WAIT_TRIES 1000 /* of 5 ms: until something that must happen has happened */

/* ---- clients that die, hang or lie ---- */

static void a_killed_clients_session_is_gone(void **state)
{
	struct client watcher = client_open(*state);
	pid_t pid = fork();

	if (pid == 0) {
		struct client c = client_open(*state);

		client_model(&c);
		client_arena(&c, 1);
		client_lane(&c);
		client_seq(&c, 1, 1, 1, 100);
		pause();
	}
	count_becomes(&watcher, 2);
	kill(pid, SIGKILL);
	assert_int_equal(harness_wait(pid), -SIGKILL);
	count_becomes(&watcher, 1);
	client_close(&watcher);
}

/* The grandchild keeps the socket open: only the process descriptor tells. It ends with the
 * test. */
static void a_session_ends_with_its_process_though_the_socket_is_open(void **state)
{
	struct client watcher = client_open(*state);
	int until[2];
	char byte;
	pid_t pid;

	assert_int_equal(pipe2(until, O_CLOEXEC), 0);
	pid = fork();
	if (pid == 0) {
		close(until[1]);
		client_open(*state);
		if (fork() == 0)
			_exit((int)read(until[0], &byte, 1));
		pause();
	}
	close(until[0]);
	count_becomes(&watcher, 2);
	kill(pid, SIGKILL);
	assert_int_equal(harness_wait(pid), -SIGKILL);
	count_becomes(&watcher, 1);
	close(until[1]);
	client_close(&watcher);
}

static void a_client_that_never_reads_is_cut_off(void **state)
{
	struct client c = client_open(*state), other = client_open(*state);
	Coppice__Request request = COPPICE__REQUEST__INIT;
	Coppice__Status status = COPPICE__STATUS__INIT;
	uint8_t packet[64];
	size_t bytes;
	int r = 0;

	request.id = 1;
	request.status = &status;
	bytes = coppice__request__pack(&request, packet);
	for (int i = 0; i < 100000 && r == 0; i++) {
		r = channel_send(c.fd, packet, bytes, NULL, MSG_DONTWAIT);
		if (r == -EAGAIN) {
			sleep_ms(1);
			r = 0;
		}
	}
	assert_int_equal(r, -EPIPE);
	count_becomes(&other, 1);
	client_close(&c);
	client_close(&other);
}

static void descriptors_from_clients_are_dropped(void **state)
{
	struct client c = client_open(*state);
	Coppice__Request request = COPPICE__REQUEST__INIT;
	Coppice__Status status = COPPICE__STATUS__INIT;
	uint8_t packet[64];
	struct pollfd hang_up;
	int ends[2];

	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	request.id = 1;
	request.status = &status;
	assert_int_equal(channel_send(c.fd, packet, coppice__request__pack(&request, packet),
				      &(struct channel_fds){&ends[1], 1}, 0),
			 0);
	close(ends[1]);
	assert_int_equal(client_receive(&c)->code, 0);
	hang_up = (struct pollfd){.fd = ends[0], .events = POLLIN};
	assert_int_equal(poll(&hang_up, 1, 5000), 1);
	assert_true(hang_up.revents & POLLHUP);
	close(ends[0]);
	client_close(&c);
}

static unsigned seed(void)
{
	const char *text = getenv("COPPICE_SEED");
	unsigned value = text ? (unsigned)strtoul(text, NULL, 0) : (unsigned)time(NULL);

	print_message("seed %u\n", value);
	return value;
}

/* Connections that stop at a random point of their lives; in the end nothing of them is left. */
static void sessions_come_and_go_at_random(void **state)
{
	struct client watcher = client_open(*state);
	unsigned random = seed();

	for (int i = 0; i < 200; i++) {
		struct client c = client_connect(*state);
		Coppice__Hello hello = COPPICE__HELLO__INIT;
		Coppice__Request request = COPPICE__REQUEST__INIT;
		int stage = rand_r(&random) % 5;

		hello.abi_version = ABI_VERSION;
		request.hello = &hello;
		if (stage > 0)
			client_send(&c, &request);
		/* Those that have ended count until all of theirs is back: some are refused. */
		bool joined = stage > 1 && client_receive(&c) && c.reply->code == 0;

		if (joined) {
			client_model(&c);
			client_arena(&c, 1);
			client_lane(&c);
			client_seq(&c, 1, 1, 1, 1 + (uint32_t)rand_r(&random) % 300);
		}
		if (stage == 4 && joined)
			assert_int_equal(channel_send(c.fd, "\xff\xff", 2, NULL, 0), 0);
		client_close(&c);
	}
	count_becomes(&watcher, 1);
	client_close(&watcher);
}

/* ---- start, stop, and the service manager ---- */

static void a_second_daemon_on_the_socket_is_refused(void **state)
{
	struct harness *h = *state;
	struct client c = client_open(h);

	assert_int_equal(harness_wait(harness_spawn(h)), 1);
	assert_true(harness_log_has(h, "another daemon answers on "));
	assert_int_equal(client_count_sessions(&c), 1);
	client_close(&c);
}

static void a_stale_socket_is_replaced(void **state)
{
	struct harness *h = *state;
	struct client c;

	assert_int_equal(harness_stop(h, SIGKILL), -SIGKILL);
	assert_int_equal(access(h->socket, F_OK), 0);
	harness_start(h);
	c = client_open(h);
	client_close(&c);
}

static void sigterm_ends_sessions_and_removes_the_socket(void **state)
{
	struct harness *h = *state;
	struct client c = client_open(h);

	client_arena(&c, 1);
	client_lane(&c);
	assert_int_equal(harness_stop(h, SIGTERM), 0);
	assert_true(client_is_cut_off(&c));
	assert_int_not_equal(access(h->socket, F_OK), 0);
	client_close(&c);
}

static void sighup_is_answered_in_the_log(void **state)
{
	struct harness *h = *state;
	struct client c = client_open(h);

	kill(h->pid, SIGHUP);
	for (int i = 0; i < WAIT_TRIES && !harness_log_has(h, "SIGHUP"); i++)
		sleep_ms(5);
	assert_true(harness_log_has(h, "read at start only"));
	assert_int_equal(client_count_sessions(&c), 1);
	client_close(&c);
}

static int notify_socket(struct harness *h, struct sockaddr_un *name)
{
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	*name = (struct sockaddr_un){.sun_family = AF_UNIX};
	snprintf(name->sun_path, sizeof(name->sun_path), "%s/notify", h->folder);
	assert_int_equal(bind(fd, (struct sockaddr *)name, sizeof(*name)), 0);
	h->notify_path = name->sun_path;
	return fd;
}

/* Reads notifications until one has text; false after 5 s without any. */
static bool notified(int fd, const char *text)
{
	struct pollfd readable = {.fd = fd, .events = POLLIN};
	char said[512];

	while (poll(&readable, 1, 5000) == 1) {
		ssize_t n = recv(fd, said, sizeof(said) - 1, 0);

		assert_true(n >= 0);
		said[n] = 0;
		if (strstr(said, text))
			return true;
	}
	return false;
}

static void the_service_manager_hears_ready_status_and_stopping(void **state)
{
	struct harness *h = *state;
	struct sockaddr_un name;
	struct client c;
	int fd = notify_socket(h, &name);

	harness_start(h);
	assert_true(notified(fd, "READY=1"));
	c = client_open(h);
	assert_true(notified(fd, "STATUS=1 sessions"));
	client_close(&c);
	assert_true(notified(fd, "STATUS=0 sessions"));
	assert_int_equal(harness_stop(h, SIGTERM), 0);
	assert_true(notified(fd, "STOPPING=1"));
	close(fd);
	unlink(name.sun_path);
}

static void the_watchdog_is_fed_while_idle(void **state)
{
	struct harness *h = *state;
	struct sockaddr_un name;
	int fd = notify_socket(h, &name);

	h->watchdog_us = "300000";
	harness_start(h);
	for (int i = 0; i < 5; i++)
		assert_true(notified(fd, "WATCHDOG=1"));
	close(fd);
	unlink(name.sun_path);
}

/* The daemon's thread of that name; 0: none. */
static pid_t thread_of(pid_t pid, const char *name)
{
	char path[64], comm[32];
	struct dirent *entry;
	pid_t found = 0;

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	DIR *tasks = opendir(path);

	assert_non_null(tasks);
	while (!found && (entry = readdir(tasks))) {
		snprintf(path, sizeof(path), "/proc/%d/task/%.16s/comm", pid, entry->d_name);
		FILE *file = fopen(path, "re");

		if (file && fgets(comm, sizeof(comm), file) && !strncmp(comm, name, strlen(name)))
			found = atoi(entry->d_name);
		if (file)
			fclose(file);
	}
	closedir(tasks);
	return found;
}

/* A tracer holds the scheduler's thread alone: the loop goes on, and must not feed the watchdog. */
static void the_watchdog_starves_while_the_scheduler_is_stuck(void **state)
{
	struct harness *h = *state;
	struct sockaddr_un name;
	int fd = notify_socket(h, &name), status;

	h->watchdog_us = "300000";
	harness_start(h);
	assert_true(notified(fd, "WATCHDOG=1")); /* it has answered: it runs, and has its name */
	pid_t thread = thread_of(h->pid, "coppice-sched");

	assert_true(thread > 0);
	if (ptrace(PTRACE_SEIZE, thread, NULL, NULL) < 0) {
		print_message("nobody may be traced here: %s\n", strerror(errno));
		skip();
	}
	assert_int_equal(ptrace(PTRACE_INTERRUPT, thread, NULL, NULL), 0);
	assert_int_equal(waitpid(thread, &status, __WALL), thread);
	for (int looks = 0; !harness_log_has(h, "the watchdog is not fed"); looks++) {
		assert_true(looks < 500);
		usleep(10000);
	}
	assert_int_equal(ptrace(PTRACE_DETACH, thread, NULL, NULL), 0);
	while (recv(fd, (char[256]){0}, 256, MSG_DONTWAIT) > 0)
		continue;
	assert_true(notified(fd, "WATCHDOG=1"));
	close(fd);
	unlink(name.sun_path);
}

static void a_socket_from_the_service_manager_is_used_and_stays(void **state)
{
	struct harness *h = *state;
	struct client c;

	assert_int_equal(channel_listen(h->socket, 0666, &h->listen_fd), 0);
	h->flags[0] = "--socket=/nonexistent/never.sock";
	h->pid = harness_spawn(h);
	c = client_open(h); /* waits in the backlog until the daemon is there */
	client_close(&c);
	assert_int_equal(harness_stop(h, SIGTERM), 0);
	assert_int_equal(access(h->socket, F_OK), 0);
	assert_true(harness_log_has(h, "service manager's socket"));
	close(h->listen_fd);
}

static void a_wrong_socket_from_the_service_manager_is_refused(void **state)
{
	struct harness *h = *state;

	h->listen_fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	assert_int_equal(harness_wait(harness_spawn(h)), 1);
	assert_true(harness_log_has(h, "ListenSequentialPacket"));
	close(h->listen_fd);
}

static void without_io_uring_it_falls_back_and_says_so(void **state)
{
	struct harness *h = *state;
	Coppice__Status status = COPPICE__STATUS__INIT;
	struct client c;

	h->loop = "auto";
	h->refuse_uring = true;
	harness_start(h);
	assert_true(harness_log_has(h, "using epoll"));
	c = client_open(h);
	assert_string_equal(client_verb(&c, status, &status)->status->loop, "epoll");
	client_close(&c);
}

static void io_uring_alone_does_not_fall_back(void **state)
{
	struct harness *h = *state;

	h->loop = "io_uring";
	h->refuse_uring = true;
	assert_int_equal(harness_wait(harness_spawn(h)), 1);
	assert_true(harness_log_has(h, "no event loop (io_uring): Operation not permitted"));
}

static void a_backend_that_cannot_be_opened_is_said(void **state)
{
	struct harness *h = *state;

	h->flags[0] = "--backend=cuda";
	h->flags[1] = "--device=4096";
	assert_int_equal(harness_wait(harness_spawn(h)), 1);
	assert_true(harness_log_has(h, "the cuda backend cannot be opened: "));
}

/* Something else has the module's name: the daemon finds the same wrong with it on every machine,
 * with a GPU or without. */
static void put_wrong_module(struct harness *h, char *path, size_t bytes)
{
	const char *(*of_libc)(void) = gnu_get_libc_version;
	void *symbol;
	Dl_info libc;

	memcpy(&symbol, &of_libc, sizeof(symbol));
	assert_int_not_equal(dladdr(symbol, &libc), 0);
	assert_true(snprintf(path, bytes, "%s/coppice-cuda.so", h->folder) < (int)bytes);
	assert_int_equal(symlink(libc.dli_fname, path), 0);
	assert_int_equal(setenv("COPPICE_MODULE_DIR", h->folder, 1), 0);
}

static void drop_wrong_module(const char *path)
{
	unsetenv("COPPICE_MODULE_DIR");
	unlink(path);
}

#define WRONG_MODULE "coppice-cuda.so has no coppice_backend_cuda"

static void the_cuda_backend_alone_says_why_it_cannot_be_opened(void **state)
{
	struct harness *h = *state;
	char module[128];

	put_wrong_module(h, module, sizeof(module));
	h->flags[0] = "--backend=cuda";
	assert_int_equal(harness_wait(harness_spawn(h)), 1);
	drop_wrong_module(module);
	assert_true(harness_log_has(h, "the cuda backend cannot be opened: " WRONG_MODULE "\n"));
}

static void without_a_gpu_backend_the_cpu_computes_and_the_log_says_why(void **state)
{
	struct harness *h = *state;
	Coppice__Status status = COPPICE__STATUS__INIT;
	struct client c;
	char module[128];

	put_wrong_module(h, module, sizeof(module));
	h->flags[0] = "--backend=auto";
	harness_start(h);
	drop_wrong_module(module);
	assert_true(harness_log_has(h, "no GPU backend (" WRONG_MODULE "): the CPU computes"));
	c = client_open(h);
	assert_string_equal(client_verb(&c, status, &status)->status->backend, "cpu");
	client_close(&c);
}

/* Extents are of 32 MiB there, or of 2 on each device. */
static void assert_pool_is(struct harness *h, uint64_t share_bytes)
{
	Coppice__Status status = COPPICE__STATUS__INIT;
	struct client c;

	harness_start(h);
	c = client_open(h);

	uint64_t bytes = client_verb(&c, status, &status)->status->pool_bytes;

	assert_in_range(bytes, share_bytes - (64u << 20), share_bytes);
	assert_int_equal(bytes % (2u << 20), 0);
	client_close(&c);
	assert_int_equal(harness_stop(h, SIGTERM), 0);
}

/* Also of several of them, which have the machine's memory together. */
static void a_pool_of_a_cpu_is_a_share_of_the_machines_memory(void **state)
{
	uint64_t memory = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
	struct harness *h = *state;

	h->flags[0] = "--backend=cpu";
	h->flags[1] = "--pool=0";
	assert_pool_is(h, memory / 4);
	h->flags[1] = "--pool=10%";
	assert_pool_is(h, memory / 10);
	h->flags[2] = "--devices=cpu,cpu";
	h->flags[3] = "--extent=2M";
	assert_pool_is(h, memory / 10);
}

static void who_cannot_bind_the_default_socket_is_told_what_to_try(void **state)
{
	struct harness *h = *state;

	if (access("/run/coppice", F_OK) == 0)
		skip();
	h->flags[0] = "--socket=/run/coppice/coppiced.sock";
	assert_int_equal(harness_wait(harness_spawn(h)), 1);
	assert_true(harness_log_has(h, "there is no directory for the socket /run/coppice"));
	assert_true(harness_log_has(h, "try: coppiced --socket=./coppiced.sock"));
}

static void a_directory_in_the_sockets_place_is_called_one(void **state)
{
	struct harness *h = *state;
	char flag[160];

	snprintf(flag, sizeof(flag), "--socket=%s", h->folder);
	h->flags[0] = flag;
	assert_int_equal(harness_wait(harness_spawn(h)), 1);
	assert_true(harness_log_has(h, " is a directory, no socket"));
	assert_false(harness_log_has(h, "try: coppiced"));
}

static void check_config_ends_with_its_verdict(void **state)
{
	struct harness *h = *state;

	h->flags[0] = "--check-config";
	assert_int_equal(harness_wait(harness_spawn(h)), 0);
	h->flags[1] = "--pool=much";
	assert_int_equal(harness_wait(harness_spawn(h)), 2);
	assert_true(harness_log_has(h, "--pool: \"much\" is not accepted"));
}

static void a_pool_larger_than_the_machine_is_refused(void **state)
{
	struct harness *h = *state;

	h->flags[0] = "--backend=cpu";
	h->flags[1] = "--pool=512T";
	assert_int_equal(harness_wait(harness_spawn(h)), 1);
	assert_true(harness_log_has(h, "a pool of 512T is more than there is: this machine has"));
	h->flags[1] = "--pool=8388625M";
	h->flags[2] = "--check-config";
	assert_int_equal(harness_wait(harness_spawn(h)), 1);
	assert_true(harness_log_has(h, "a pool of 8388625M is more than there is"));
}

static void check_config_says_how_much_the_usual_share_is(void **state)
{
	uint64_t memory = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
	struct harness *h = *state;
	uint64_t n_extents = memory / 4 >> 21;
	char says[160];

	h->flags[0] = "--check-config";
	h->flags[1] = "--backend=cpu";
	h->flags[2] = "--pool=0";
	h->flags[3] = "--extent=2M";
	assert_int_equal(harness_wait(harness_spawn(h)), 0);
	snprintf(says, sizeof(says),
		 "backend cpu, pool %llu MiB (the usual share), of which a user may hold %llu MiB",
		 (unsigned long long)n_extents * 2, (unsigned long long)n_extents * 9 / 10 * 2);
	assert_true(harness_log_has(h, says));
	h->flags[4] = "--domain-bytes=64K"; /* everybody may have an extent */
	assert_int_equal(harness_wait(harness_spawn(h)), 0);
	assert_true(harness_log_has(h, "of which a user may hold 2 MiB"));
	h->flags[5] = "--host-tier=64M";
	h->flags[6] = "--file-tier=/tmp/t";
	assert_int_equal(harness_wait(harness_spawn(h)), 0);
	assert_true(harness_log_has(h, "host memory of 64 MiB, of which a user may hold 36 MiB; "
				       "file /tmp/t, of which a user may hold three quarters"));
}

#define CASES(loop) \
	{ \
		HARNESS_CASE(loop, a_killed_clients_session_is_gone), \
			HARNESS_CASE(loop, \
				     a_session_ends_with_its_process_though_the_socket_is_open), \
			HARNESS_CASE(loop, a_client_that_never_reads_is_cut_off), \
			HARNESS_CASE(loop, descriptors_from_clients_are_dropped), \
			HARNESS_CASE(loop, sessions_come_and_go_at_random), \
			HARNESS_CASE(loop, a_second_daemon_on_the_socket_is_refused), \
			HARNESS_CASE(loop, a_stale_socket_is_replaced), \
			HARNESS_CASE(loop, sigterm_ends_sessions_and_removes_the_socket), \
			HARNESS_CASE(loop, sighup_is_answered_in_the_log), \
			HARNESS_BARE(loop, the_service_manager_hears_ready_status_and_stopping), \
			HARNESS_BARE(loop, the_watchdog_is_fed_while_idle), \
			HARNESS_BARE(loop, the_watchdog_starves_while_the_scheduler_is_stuck), \
			HARNESS_BARE(loop, a_socket_from_the_service_manager_is_used_and_stays), \
			HARNESS_BARE(loop, a_wrong_socket_from_the_service_manager_is_refused), \
	}

int main(int argc, char **argv)
{
	const struct CMUnitTest epoll[] = CASES(epoll);
	const struct CMUnitTest uring[] = CASES(uring);
	const struct CMUnitTest either[] = {
		HARNESS_BARE(epoll, without_io_uring_it_falls_back_and_says_so),
		HARNESS_BARE(epoll, io_uring_alone_does_not_fall_back),
		HARNESS_BARE(epoll, a_backend_that_cannot_be_opened_is_said),
		HARNESS_BARE(epoll, the_cuda_backend_alone_says_why_it_cannot_be_opened),
		HARNESS_BARE(epoll, without_a_gpu_backend_the_cpu_computes_and_the_log_says_why),
		HARNESS_BARE(epoll, a_pool_of_a_cpu_is_a_share_of_the_machines_memory),
		HARNESS_BARE(epoll, who_cannot_bind_the_default_socket_is_told_what_to_try),
		HARNESS_BARE(epoll, a_directory_in_the_sockets_place_is_called_one),
		HARNESS_BARE(epoll, check_config_ends_with_its_verdict),
		HARNESS_BARE(epoll, check_config_says_how_much_the_usual_share_is),
		HARNESS_BARE(epoll, a_pool_larger_than_the_machine_is_refused),
	};
	int failures;

	if (harness_init(argc, argv) < 0)
		return 1;
	failures = cmocka_run_group_tests_name("service, epoll", epoll, NULL, NULL);
	failures += cmocka_run_group_tests_name("service, either loop", either, NULL, NULL);
	if (harness_has_uring())
		failures += cmocka_run_group_tests_name("service, io_uring", uring, NULL, NULL);
	return failures;
}
