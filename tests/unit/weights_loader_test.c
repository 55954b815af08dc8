/*
 * weights_loader_test.c - a loader's side and the daemon's, each against one that is not as it
 * should be: this program plays a loader that hangs, dies or lies, and a daemon.
 */
#include "weights_fixture.h"
#include "folder_count.h"

#include "daemon/weights/load_slots.h"
#include "daemon/weights/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* The test is the daemon here: it looks at what is said of a good file, and has some of it. */
static void begin(struct loader_process *process, int ends[2], int *ret_fd)
{
	const char *path = fixture_file("good", FIXTURE_HEADER, fixture_data, 28);
	struct {
		struct loader_message head;
		struct loader_file file;
	} packet;

	*ret_fd = fixture_open(path);
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
	assert_int_equal(loader_spawn(fixture_coppiced, ends[1], process), 0);
	fixture_send(ends[0], ret_fd, 1);
	assert_int_equal(recv(process->fd, &packet, sizeof(packet), 0), sizeof(packet));
	assert_int_equal(packet.head.kind, LOADER_FILES);
}

static struct loader_message hear_next(const struct loader_process *process)
{
	struct loader_message m = {0};

	assert_true(recv(process->fd, &m, sizeof(m), 0) > 0);
	return m;
}

static void end(struct loader_process *process, const int ends[2], int fd)
{
	assert_true(loader_kill(process));
	close(ends[0]);
	close(ends[1]);
	close(fd);
}

/* Of memory that a loader has too. */
static unsigned count_mappings(void)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[512];
	unsigned n = 0;

	assert_non_null(maps);
	while (fgets(line, sizeof(line), maps))
		n += strstr(line, "coppice-loader") != NULL;
	fclose(maps);
	return n;
}

static void a_loader_that_is_gone_leaves_nothing_behind(void **state)
{
	unsigned before = folder_count("/proc/self/fd");
	struct loader_process process;
	int ends[2], fd;

	(void)state;
	begin(&process, ends, &fd);
	assert_int_equal(count_mappings(), 1);
	end(&process, ends, fd);
	assert_int_equal(folder_count("/proc/self/fd"), before);
	assert_int_equal(count_mappings(), 0);
}

/* It is asked for by a name that nobody has. */
static void a_loader_that_cannot_start_leaves_nothing_behind(void **state)
{
	unsigned before = folder_count("/proc/self/fd");
	struct loader_process process;

	(void)state;
	assert_int_equal(loader_spawn("/nonexistent", 0, &process), -ENOENT);
	assert_int_equal(folder_count("/proc/self/fd"), before);
	assert_int_equal(count_mappings(), 0);
}

/* Behind the first look. */
static void a_file_that_changes_while_it_is_read_is_told(void **state)
{
	const struct loader_message go = {.kind = LOADER_GO};
	struct loader_process process;
	struct loader_message m;
	int ends[2], fd;

	(void)state;
	begin(&process, ends, &fd);
	fixture_file("good", FIXTURE_HEADER, fixture_data, 28);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(send(process.fd, &go, sizeof(go), 0), sizeof(go));
		assert_int_equal(hear_next(&process).kind, LOADER_PIECE);
	}
	m = hear_next(&process);
	assert_int_equal(m.kind, LOADER_FAILED);
	assert_int_equal(m.failure, LOADER_CHANGED);
	end(&process, ends, fd);
}

static void a_file_that_is_cut_off_while_it_is_read_is_told(void **state)
{
	const struct loader_message go = {.kind = LOADER_GO};
	struct loader_process process;
	struct loader_message m;
	int ends[2], fd;

	(void)state;
	begin(&process, ends, &fd);
	assert_int_equal(truncate(fixture_path("good"), 4), 0);
	assert_int_equal(send(process.fd, &go, sizeof(go), 0), sizeof(go));
	m = hear_next(&process);
	assert_int_equal(m.kind, LOADER_FAILED);
	assert_int_equal(m.failure, LOADER_CUT_OFF);
	end(&process, ends, fd);
}

/* ---- loaders that are not ours -------------------------------------------------------------- */

static const char *const lies[] = {"hangs",	 "dies",    "nonsense", "no files",
				   "many files", "file",    "slot",	"offset",
				   "too long",	 "nothing", "header",	"more data"};
#define N_LIES (sizeof(lies) / sizeof(lies[0]))

static void lie_send(const struct loader_message *m, size_t bytes)
{
	if (send(LOADER_DAEMON_FD, m, bytes, MSG_NOSIGNAL) < 0)
		_exit(1);
}

/* Each loader has a file of its own. */
static void lie_files(uint32_t n, uint64_t bytes)
{
	struct {
		struct loader_message head;
		struct loader_file file;
	} packet = {{.kind = LOADER_FILES, .file = n}, {.ino = (uint64_t)getpid(), .bytes = bytes}};

	lie_send(&packet.head, sizeof(packet));
}

/* All of a good file, but for what the lie is. */
static void lie_pieces(const char *lie)
{
	uint8_t *slots = mmap(NULL, LOADER_SLOTS_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED,
			      LOADER_SLOTS_FD, 0);
	uint64_t n = strlen(FIXTURE_HEADER);
	struct loader_message m = {.kind = LOADER_PIECE, .bytes = 8 + n}, heard;

	memcpy(slots, &n, sizeof(n));
	memcpy(slots + 8, FIXTURE_HEADER, n);
	m.file = !strcmp(lie, "file");
	m.slot = !strcmp(lie, "slot") ? LOADER_SLOTS : 0;
	m.offset = !strcmp(lie, "offset");
	if (!strcmp(lie, "too long"))
		m.bytes = LOADER_SLOT_BYTES + 1u;
	if (!strcmp(lie, "nothing"))
		m.bytes = 0;
	if (!strcmp(lie, "header"))
		m.bytes += 1;
	lie_send(&m, sizeof(m));
	(void)recv(LOADER_DAEMON_FD, &heard, sizeof(heard), 0);
	(void)recv(LOADER_DAEMON_FD, &heard, sizeof(heard), 0);
	m = (struct loader_message){.kind = LOADER_PIECE, .offset = 8 + n, .bytes = 29};
	lie_send(&m, sizeof(m));
}

/* Piece by piece of eight bytes each, for ever: none takes as long as a stall. */
static _Noreturn void trickle(void)
{
	uint8_t *slots = mmap(NULL, LOADER_SLOTS_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED,
			      LOADER_SLOTS_FD, 0);
	struct loader_message m = {.kind = LOADER_PIECE, .bytes = 8}, heard;
	uint64_t n = 1 << 20;

	lie_files(1, 8 + n + 28);
	memcpy(slots, &n, sizeof(n));
	for (;; m.offset += m.bytes) {
		lie_send(&m, sizeof(m));
		(void)recv(LOADER_DAEMON_FD, &heard, sizeof(heard), 0);
		usleep(20000);
	}
}

static void await_go(void)
{
	while (access(getenv("COPPICE_TEST_GO"), F_OK) != 0)
		fixture_moment();
}

/* What is true, of a file that has this number; behind the header all but the first go on when they
 * are told to. */
static int tell_truth(uint64_t number)
{
	struct {
		struct loader_message head;
		struct loader_file file;
	} packet = {{.kind = LOADER_FILES, .file = 1}, {.ino = number}};
	uint8_t *slots = mmap(NULL, LOADER_SLOTS_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED,
			      LOADER_SLOTS_FD, 0);
	uint64_t n = strlen(FIXTURE_HEADER);
	struct loader_message m = {.kind = LOADER_PIECE, .bytes = 8 + n}, heard;

	packet.file.bytes = m.bytes + 28;
	lie_send(&packet.head, sizeof(packet));
	(void)recv(LOADER_DAEMON_FD, &heard, sizeof(heard), 0);
	memcpy(slots, &n, sizeof(n));
	memcpy(slots + 8, FIXTURE_HEADER, n);
	memcpy(slots + LOADER_SLOT_BYTES, fixture_data, 28);
	lie_send(&m, sizeof(m));
	for (int i = 0; i < 2; i++)
		(void)recv(LOADER_DAEMON_FD, &heard, sizeof(heard), 0);
	if (number > 1)
		await_go();
	m = (struct loader_message){.kind = LOADER_PIECE,
				    .slot = 1,
				    .offset = m.bytes,
				    .bytes = 28};
	lie_send(&m, sizeof(m));
	(void)recv(LOADER_DAEMON_FD, &heard, sizeof(heard), 0);
	lie_send(&(struct loader_message){.kind = LOADER_END}, sizeof(m));
	pause();
	return 0;
}

/* Neither blocked nor ignored, whatever the daemon does with its own. */
static bool has_signals_as_usual(void)
{
	struct sigaction pipe;
	sigset_t blocked;

	return sigprocmask(SIG_SETMASK, NULL, &blocked) == 0 && sigisemptyset(&blocked) &&
	       sigaction(SIGPIPE, NULL, &pipe) == 0 && pipe.sa_handler == SIG_DFL;
}

static int lie_run(const char *lie)
{
	struct loader_message heard;

	if (!strcmp(lie, "signals"))
		lie = has_signals_as_usual() ? "nonsense" : "dies";
	if (!strncmp(lie, "truth", 5))
		return tell_truth(strtoull(lie + 5, NULL, 10));
	if (!strcmp(lie, "dies"))
		return 1;
	if (!strcmp(lie, "hangs"))
		pause();
	if (!strcmp(lie, "nonsense"))
		lie_send(&(struct loader_message){.kind = 77}, sizeof(struct loader_message));
	if (!strcmp(lie, "trickle"))
		trickle();
	lie_files(!strcmp(lie, "no files") ? 0 : 1 + !strcmp(lie, "many files"),
		  8 + strlen(FIXTURE_HEADER) + 28);
	(void)recv(LOADER_DAEMON_FD, &heard, sizeof(heard), 0);
	lie_pieces(lie);
	pause();
	return 0;
}

/* One that has ended may count for a moment more. */
static struct weights *open_of(struct weights_table *table, uid_t domain, const char *lie)
{
	struct weights *weights;
	int socket, r;

	setenv("COPPICE_TEST_LIE", lie, 1);
	while ((r = weights_open(table, domain, &weights, &socket)) == -EAGAIN)
		fixture_moment();
	assert_int_equal(r, 0);
	close(socket);
	return weights;
}

static struct weights *open_as(struct weights_table *table, const char *lie)
{
	return open_of(table, ALICE, lie);
}

static void a_loader_that_lies_fails_nobody_but_its_client(void **state)
{
	struct weights_table *table = fixture_table_of("/proc/self/exe", 64 * MIB, 2000);
	struct weights *weights;

	(void)state;
	for (size_t i = 0; i < N_LIES; i++) {
		weights = open_as(table, lies[i]);
		if (!strcmp(lies[i], "hangs"))
			fixture_expect_failure(weights, -ETIMEDOUT, "Nothing came");
		else if (!strcmp(lies[i], "dies"))
			fixture_expect_failure(weights, -EIO, "ended");
		else
			fixture_expect_failure(weights, -EIO, "does not come next");
	}
	weights_table_free(table);
	assert_int_equal(fixture_n_memories, 0);
}

#define N_PLACES 8

static uint32_t count_failed(struct weights **loads, const char *words, struct weights **ret_failed)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < N_PLACES; i++) {
		if (weights_state(loads[i]) == WEIGHTS_LOADING)
			continue;
		assert_int_equal(loads[i]->error, -ETIMEDOUT);
		if (!strstr(loads[i]->why, words))
			fail_msg("%s", loads[i]->why);
		*ret_failed = loads[i];
		n++;
	}
	return n;
}

/* Three users have two loads each, and two have one. */
static void take_all_places(struct weights_table *table, struct weights **ret)
{
	static const uid_t domains[N_PLACES] = {ALICE,	   ALICE,     ALICE + 1, ALICE + 1,
						ALICE + 2, ALICE + 2, ALICE + 3, ALICE + 4};

	for (uint32_t i = 0; i < N_PLACES; i++)
		ret[i] = open_of(table, domains[i], "trickle");
}

/* All are overdue, and none ends before one who loads nothing finds no place: then one does, of a
 * user who has two, and he does not get the place. */
static void expect_one_gives_way(const char *words)
{
	struct weights_table *table = fixture_table_of("/proc/self/exe", 64 * MIB, 400);
	struct weights *loads[N_PLACES], *failed = NULL, *late, *again;
	int socket;

	take_all_places(table, loads);
	for (int i = 0; i < 2000; i++)
		fixture_moment();
	assert_int_equal(count_failed(loads, words, &failed), 0);
	assert_int_equal(weights_open(table, ALICE + 3, &again, &socket), -EAGAIN);
	assert_int_equal(count_failed(loads, words, &failed), 0);
	assert_int_equal(weights_open(table, BOB + 9, &late, &socket), -EAGAIN);
	while (count_failed(loads, words, &failed) == 0)
		fixture_moment();
	assert_in_range(failed->domain, ALICE, ALICE + 2);
	assert_int_equal(weights_open(table, failed->domain, &again, &socket), -EAGAIN);
	late = open_of(table, BOB + 9, "trickle");
	assert_int_equal(count_failed(loads, words, &failed), 1);
	weights_unref(late);
	for (uint32_t i = 0; i < N_PLACES; i++)
		weights_unref(loads[i]);
	weights_table_free(table);
}

static void a_load_that_trickles_gives_way_to_who_finds_no_place(void **state)
{
	(void)state;
	fixture_least_rate = 1000;
	expect_one_gives_way("(load_least_rate)");
	fixture_least_rate = 0;
}

static void a_load_that_takes_long_gives_way_to_who_finds_no_place(void **state)
{
	(void)state;
	fixture_max_load_s = 1;
	expect_one_gives_way("(max_load_s)");
	fixture_max_load_s = 0;
}

static void who_is_in_time_gives_way_to_nobody(void **state)
{
	struct weights_table *table = fixture_table_of("/proc/self/exe", 64 * MIB, 2000);
	struct weights *loads[N_PLACES], *failed, *late;
	int socket;

	(void)state;
	take_all_places(table, loads);
	for (int i = 0; i < 500; i++) {
		assert_int_equal(weights_open(table, BOB + 9, &late, &socket), -EAGAIN);
		fixture_moment();
	}
	assert_int_equal(count_failed(loads, "", &failed), 0);
	for (uint32_t i = 0; i < N_PLACES; i++)
		weights_unref(loads[i]);
	weights_table_free(table);
}

/* A process that ends when nobody has the pipe's other end open; its pid is the table's. */
static pid_t add_hanging(struct weights_table *table, int *ret_pipe)
{
	struct hanging *hanging = malloc(sizeof(*hanging));
	int ends[2];
	pid_t pid;
	char c;

	assert_non_null(hanging);
	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	pid = fork();
	if (pid == 0) {
		close(ends[1]);
		_exit((int)read(ends[0], &c, 1));
	}
	assert_true(pid > 0);
	close(ends[0]);
	*ret_pipe = ends[1];
	*hanging = (struct hanging){.pid = pid, .domain = ALICE};
	SLIST_INSERT_HEAD(&table->hanging, hanging, link);
	return pid;
}

/* Though nobody asks for a load. */
static void a_killed_loader_has_its_slot_until_it_is_gone(void **state)
{
	struct weights_table *table = fixture_table();
	siginfo_t ended;
	int end;
	pid_t pid = add_hanging(table, &end);

	(void)state;
	assert_int_equal(load_slots_count(table), 1);
	close(end);
	assert_int_equal(waitid(P_PID, (id_t)pid, &ended, WEXITED | WNOWAIT), 0);
	assert_int_equal(load_slots_count(table), 0);
	weights_table_free(table);
}

static void a_loader_has_no_signals_of_the_daemons(void **state)
{
	struct weights_table *table = fixture_table_of("/proc/self/exe", 64 * MIB, 2000);
	void (*was)(int) = signal(SIGPIPE, SIG_IGN);
	sigset_t blocked, before;

	(void)state;
	sigemptyset(&blocked);
	sigaddset(&blocked, SIGUSR1);
	sigaddset(&blocked, SIGTERM);
	assert_int_equal(pthread_sigmask(SIG_BLOCK, &blocked, &before), 0);
	fixture_expect_failure(open_as(table, "signals"), -EIO, "does not come next");
	assert_int_equal(pthread_sigmask(SIG_SETMASK, &before, NULL), 0);
	signal(SIGPIPE, was);
	weights_table_free(table);
}

/* c is b, as the files are the same, and b turns out to be a, as the bytes are. */
static void who_stands_for_weights_may_have_others_stand_for_it(void **state)
{
	struct weights_table *table = fixture_table_of("/proc/self/exe", 64 * MIB, 20000);
	struct weights *a = open_as(table, "truth1"), *b, *c;

	(void)state;
	assert_ptr_equal(fixture_end(a), a);
	fixture_expect_ready(a);
	assert_int_equal(setenv("COPPICE_TEST_GO", fixture_path("go"), 1), 0);
	b = open_as(table, "truth2");
	while (atomic_load(&b->bytes_done) == 0)
		fixture_moment();
	c = open_as(table, "truth2");
	while (weights_real(c) == c)
		fixture_moment();
	assert_ptr_equal(weights_real(c), b);
	assert_null(weights_ready(c));
	fixture_file("go", "", fixture_data, 0);
	assert_int_equal(weights_state(fixture_end(b)), WEIGHTS_READY);
	fixture_settle(table, weights_real(a)->content.bytes);
	assert_ptr_equal(weights_real(c), a);
	assert_ptr_equal(weights_ready(c), a);
	assert_ptr_equal(weights_ready(b), a);
	assert_int_equal(fixture_n_memories, 1);
	weights_unref(a);
	weights_unref(b);
	weights_unref(c);
	weights_table_free(table);
	assert_int_equal(fixture_n_memories, 0);
}

/* ---- pieces --------------------------------------------------------------------------------- */

/* The same tensor, whose pieces begin elsewhere: behind four bytes more. */
static const char *file_cut(const char *name, const uint8_t *data, size_t bytes, bool behind)
{
	char header[256];

	snprintf(header, sizeof(header),
		 "{%s\"x\":{\"dtype\":\"F16\",\"shape\":[%zu],\"data_offsets\":[%u,%zu]}}",
		 behind ? "\"i\":{\"dtype\":\"I32\",\"shape\":[1],\"data_offsets\":[0,4]}," : "",
		 bytes / 2, behind ? 4 : 0, bytes + (behind ? 4 : 0));
	return fixture_file(name, header, behind ? data : data + 4, bytes + (behind ? 4 : 0));
}

static void however_a_large_tensor_is_cut_it_is_the_same(void **state)
{
	const size_t bytes = LOADER_SLOT_BYTES + LOADER_SLOT_BYTES / 2;
	uint8_t *data = malloc(bytes + 4);
	struct weights_table *table = fixture_table();
	struct weights *a, *b, *c;

	(void)state;
	assert_non_null(data);
	for (size_t i = 0; i < bytes + 4; i++)
		data[i] = (uint8_t)(i * 2654435761u >> 13);
	a = fixture_load(table, ALICE, file_cut("one", data, bytes, false));
	b = fixture_load(table, ALICE, file_cut("two", data, bytes, true));
	data[bytes + 3]++;
	c = fixture_load(table, ALICE, file_cut("other", data, bytes, true));
	assert_ptr_equal(weights_real(b), weights_real(a));
	assert_ptr_not_equal(weights_real(c), weights_real(a));
	weights_unref(a);
	weights_unref(b);
	weights_unref(c);
	weights_table_free(table);
	free(data);
}

static int run(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(however_a_large_tensor_is_cut_it_is_the_same),
		cmocka_unit_test(a_loader_that_is_gone_leaves_nothing_behind),
		cmocka_unit_test(a_loader_that_cannot_start_leaves_nothing_behind),
		cmocka_unit_test(a_file_that_changes_while_it_is_read_is_told),
		cmocka_unit_test(a_file_that_is_cut_off_while_it_is_read_is_told),
		cmocka_unit_test(a_loader_that_lies_fails_nobody_but_its_client),
		cmocka_unit_test(a_load_that_trickles_gives_way_to_who_finds_no_place),
		cmocka_unit_test(a_load_that_takes_long_gives_way_to_who_finds_no_place),
		cmocka_unit_test(who_is_in_time_gives_way_to_nobody),
		cmocka_unit_test(a_killed_loader_has_its_slot_until_it_is_gone),
		cmocka_unit_test(a_loader_has_no_signals_of_the_daemons),
		cmocka_unit_test(who_stands_for_weights_may_have_others_stand_for_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[1], "--loader"))
		return lie_run(getenv("COPPICE_TEST_LIE"));
	assert_int_equal(argc, 2);
	return fixture_run(argv[1], run);
}
