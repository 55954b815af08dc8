/* channel_test.c - packets, descriptors, credentials, socket files and sealed segments, on real
 * sockets and memfds. */
#include "proto/channel.h"
#include "proto/channel_why.h"
#include "proto/ring.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <cmocka.h>

struct fixture {
	int ends[2];
	char dir[32];
	char path[64];
};

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, f->ends), 0);
	strcpy(f->dir, "/tmp/channel-test-XXXXXX");
	assert_non_null(mkdtemp(f->dir));
	snprintf(f->path, sizeof(f->path), "%s/socket", f->dir);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	close(f->ends[0]);
	close(f->ends[1]);
	unlink(f->path);
	assert_int_equal(rmdir(f->dir), 0);
	free(f);
	return 0;
}

static bool is_open(int fd)
{
	return fcntl(fd, F_GETFD) >= 0;
}

static unsigned count_open_fds(void)
{
	unsigned n = 0;

	for (int fd = 0; fd < 256; fd++)
		n += is_open(fd);
	return n;
}

static bool same_file(int a, int b)
{
	struct stat sa;
	struct stat sb;

	assert_int_equal(fstat(a, &sa), 0);
	assert_int_equal(fstat(b, &sb), 0);
	return sa.st_dev == sb.st_dev && sa.st_ino == sb.st_ino;
}

static void packets_keep_their_borders(void **state)
{
	struct fixture *f = *state;
	char text[16];

	assert_int_equal(channel_send(f->ends[0], "one", 3, NULL, 0), 0);
	assert_int_equal(channel_send(f->ends[0], "three", 5, NULL, 0), 0);
	assert_int_equal(channel_recv(f->ends[1], text, sizeof(text), NULL, 0), 3);
	assert_memory_equal(text, "one", 3);
	assert_int_equal(channel_recv(f->ends[1], text, sizeof(text), NULL, 0), 5);
	assert_memory_equal(text, "three", 5);
}

static void descriptors_arrive_close_on_exec(void **state)
{
	struct fixture *f = *state;
	int sent[2] = {f->ends[0], open("/dev/null", O_RDONLY)};
	int got[CHANNEL_MAX_FDS];
	struct channel_fds_room room = {got, CHANNEL_MAX_FDS};
	char byte;

	assert_int_equal(channel_send(f->ends[0], "x", 1, &(struct channel_fds){sent, 2}, 0), 0);
	assert_int_equal(channel_recv(f->ends[1], &byte, 1, &room, 0), 1);
	assert_int_equal(room.n, 2);
	for (unsigned i = 0; i < room.n; i++) {
		assert_true(same_file(sent[i], got[i]));
		assert_true(fcntl(got[i], F_GETFD) & FD_CLOEXEC);
		close(got[i]);
	}
	close(sent[1]);
}

static void surplus_descriptors_are_closed(void **state)
{
	struct fixture *f = *state;
	int sent[3] = {0, 1, 2};
	unsigned before = count_open_fds();
	int got;
	struct channel_fds_room room = {&got, 1};
	char byte;

	assert_int_equal(channel_send(f->ends[0], "x", 1, &(struct channel_fds){sent, 3}, 0), 0);
	assert_int_equal(channel_recv(f->ends[1], &byte, 1, &room, 0), 1);
	assert_int_equal(room.n, 1);
	close(got);
	assert_int_equal(count_open_fds(), before);
}

static void uninvited_descriptors_are_dropped(void **state)
{
	struct fixture *f = *state;
	int sent = 0;
	unsigned before = count_open_fds();
	char byte;

	assert_int_equal(channel_send(f->ends[0], "x", 1, &(struct channel_fds){&sent, 1}, 0), 0);
	assert_int_equal(channel_recv(f->ends[1], &byte, 1, NULL, 0), 1);
	assert_int_equal(count_open_fds(), before);
}

static void a_packet_longer_than_the_buffer_is_an_error(void **state)
{
	struct fixture *f = *state;
	unsigned before = count_open_fds();
	int sent = 0;
	int got[2];
	struct channel_fds_room room = {got, 2};
	char text[4];

	assert_int_equal(channel_send(f->ends[0], "12345", 5, &(struct channel_fds){&sent, 1}, 0),
			 0);
	assert_int_equal(channel_recv(f->ends[1], text, sizeof(text), &room, 0), -EMSGSIZE);
	assert_int_equal(count_open_fds(), before);
	assert_int_equal(channel_send(f->ends[0], "1234", 4, NULL, 0), 0);
	assert_int_equal(channel_recv(f->ends[1], text, sizeof(text), NULL, 0), 4);
}

static void the_largest_packet_passes_and_a_larger_one_is_refused(void **state)
{
	struct fixture *f = *state;
	char *data = calloc(1, CHANNEL_MAX_BYTES + 1);

	assert_int_equal(channel_send(f->ends[0], data, CHANNEL_MAX_BYTES, NULL, 0), 0);
	assert_int_equal(channel_recv(f->ends[1], data, CHANNEL_MAX_BYTES, NULL, 0),
			 CHANNEL_MAX_BYTES);
	assert_int_equal(channel_send(f->ends[0], data, CHANNEL_MAX_BYTES + 1, NULL, 0), -EMSGSIZE);
	free(data);
}

static void an_empty_packet_is_refused(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(channel_send(f->ends[0], "", 0, NULL, 0), -EINVAL);
}

static void a_hang_up_is_seen_behind_the_last_packet(void **state)
{
	struct fixture *f = *state;
	char byte;

	assert_int_equal(channel_send(f->ends[0], "x", 1, NULL, 0), 0);
	assert_int_equal(shutdown(f->ends[0], SHUT_RDWR), 0);
	assert_int_equal(channel_recv(f->ends[1], &byte, 1, NULL, 0), 1);
	assert_int_equal(channel_recv(f->ends[1], &byte, 1, NULL, 0), 0);
	assert_int_equal(channel_send(f->ends[1], "x", 1, NULL, 0), -EPIPE);
}

static void nothing_there_does_not_block_when_so_asked(void **state)
{
	struct fixture *f = *state;
	char byte;

	assert_int_equal(channel_recv(f->ends[1], &byte, 1, NULL, MSG_DONTWAIT), -EAGAIN);
}

static void the_peer_is_known_from_the_socket(void **state)
{
	struct fixture *f = *state;
	struct channel_peer peer;

	assert_int_equal(channel_peer(f->ends[0], &peer), 0);
	assert_int_equal(peer.pid, getpid());
	assert_int_equal(peer.uid, getuid());
	assert_int_equal(peer.gid, getgid());
	if (peer.pidfd >= 0) {
		assert_true(fcntl(peer.pidfd, F_GETFD) & FD_CLOEXEC);
		close(peer.pidfd);
	}
}

static pid_t connect_and_pause(const char *path)
{
	pid_t pid = fork();
	int fd;

	if (pid == 0) {
		if (channel_connect(path, CHANNEL_FOREVER, &fd) < 0)
			_exit(1);
		pause();
		_exit(0);
	}
	return pid;
}

static void a_peers_pidfd_tells_of_its_death(void **state)
{
	struct fixture *f = *state;
	struct channel_peer peer;
	struct pollfd p = {.events = POLLIN};
	int listener;
	int fd;
	pid_t pid;

	assert_int_equal(channel_listen(f->path, 0600, &listener), 0);
	pid = connect_and_pause(f->path);
	assert_int_equal(poll(&(struct pollfd){.fd = listener, .events = POLLIN}, 1, 10000), 1);
	fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	assert_int_equal(channel_peer(fd, &peer), 0);
	assert_int_equal(peer.pid, pid);
	if (peer.pidfd >= 0) {
		p.fd = peer.pidfd;
		assert_int_equal(poll(&p, 1, 0), 0);
	}
	kill(pid, SIGKILL);
	if (peer.pidfd >= 0) {
		assert_int_equal(poll(&p, 1, 10000), 1);
		close(peer.pidfd);
	}
	waitpid(pid, NULL, 0);
	close(fd);
	close(listener);
}

static void a_listening_socket_has_the_mode_asked_for(void **state)
{
	struct fixture *f = *state;
	struct stat st;
	int listener;
	int fd;

	assert_int_equal(channel_listen(f->path, 0660, &listener), 0);
	assert_int_equal(stat(f->path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0660);
	assert_true(fcntl(listener, F_GETFL) & O_NONBLOCK);
	assert_true(fcntl(listener, F_GETFD) & FD_CLOEXEC);
	assert_int_equal(channel_connect(f->path, CHANNEL_FOREVER, &fd), 0);
	close(fd);
	close(listener);
}

static void a_stale_socket_is_replaced(void **state)
{
	struct fixture *f = *state;
	int listener;
	int fd;

	assert_int_equal(channel_listen(f->path, 0600, &listener), 0);
	close(listener);
	assert_int_equal(channel_connect(f->path, CHANNEL_FOREVER, &fd), -ECONNREFUSED);
	assert_int_equal(channel_listen(f->path, 0600, &listener), 0);
	assert_int_equal(channel_connect(f->path, CHANNEL_FOREVER, &fd), 0);
	close(fd);
	close(listener);
}

static void a_live_socket_is_not_taken(void **state)
{
	struct fixture *f = *state;
	int listener;
	int second;
	int fd;

	assert_int_equal(channel_listen(f->path, 0600, &listener), 0);
	assert_int_equal(channel_listen(f->path, 0600, &second), -EADDRINUSE);
	assert_int_equal(channel_connect(f->path, CHANNEL_FOREVER, &fd), 0);
	close(fd);
	close(listener);
}

static void a_file_that_is_no_socket_is_left_alone(void **state)
{
	struct fixture *f = *state;
	int fd = open(f->path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	close(fd);
	assert_int_equal(channel_listen(f->path, 0600, &fd), -ENOTSOCK);
	assert_int_equal(access(f->path, F_OK), 0);
}

/* Listens until the pipe is closed; exits with 0, or 1 where another listens. */
static pid_t start_listener(const char *path, const int pipe_ends[2])
{
	pid_t pid = fork();
	int fd;
	int r;
	char byte;

	if (pid != 0)
		return pid;
	close(pipe_ends[1]);
	r = channel_listen(path, 0600, &fd);
	if (r == 0)
		_exit(read(pipe_ends[0], &byte, 1) == 0 ? 0 : 2);
	_exit(r == -EADDRINUSE ? 1 : 2);
}

static void of_daemons_that_start_at_once_one_gets_the_stale_socket(void **state)
{
	struct fixture *f = *state;
	int n_listening = 0;
	int pipe_ends[2];
	int status;
	int fd;

	assert_int_equal(channel_listen(f->path, 0600, &fd), 0);
	close(fd);
	assert_int_equal(pipe(pipe_ends), 0);
	for (int i = 0; i < 6; i++)
		assert_true(start_listener(f->path, pipe_ends) > 0);
	for (int i = 0; i < 6; i++) {
		if (i == 5)
			close(pipe_ends[1]);
		assert_true(wait(&status) > 0);
		assert_true(WIFEXITED(status) && WEXITSTATUS(status) < 2);
		n_listening += WEXITSTATUS(status) == 0;
	}
	assert_int_equal(n_listening, 1);
	close(pipe_ends[0]);
}

static void connecting_says_what_is_missing(void **state)
{
	struct fixture *f = *state;
	char path[256];
	int fd = -7;

	assert_int_equal(channel_connect(f->path, CHANNEL_FOREVER, &fd), -ENOENT);
	memset(path, 'x', sizeof(path) - 1);
	path[sizeof(path) - 1] = '\0';
	assert_int_equal(channel_connect(path, CHANNEL_FOREVER, &fd), -ENAMETOOLONG);
	assert_int_equal(channel_connect("", CHANNEL_FOREVER, &fd), -ENOENT);
	assert_int_equal(fd, -7);
}

static const char *why_connect(const char *path, char *text)
{
	int fd, r = channel_connect(path, CHANNEL_FOREVER, &fd);

	assert_true(r < 0);
	channel_why_connect(path, r, text, CHANNEL_WHY_BYTES);
	return strstr(text, path) == text ? text + strlen(path) : text;
}

static void make_file(const char *path)
{
	int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	close(fd);
}

static void a_missing_socket_a_file_and_a_directory_are_three_sentences(void **state)
{
	struct fixture *f = *state;
	char text[CHANNEL_WHY_BYTES];
	int fd;

	assert_non_null(strstr(why_connect(f->path, text), "there is no socket"));
	make_file(f->path);
	assert_non_null(strstr(why_connect(f->path, text), " is a file, no socket"));
	assert_non_null(strstr(why_connect(f->dir, text), " is a directory, no socket"));
	unlink(f->path);
	assert_int_equal(channel_listen(f->path, 0600, &fd), 0);
	close(fd);
	assert_non_null(strstr(why_connect(f->path, text), "nobody listens on"));
}

static void who_cannot_listen_is_told_why(void **state)
{
	struct fixture *f = *state;
	char text[CHANNEL_WHY_BYTES];
	int fd;

	channel_why_listen(f->dir, channel_listen(f->dir, 0600, &fd), text, sizeof(text));
	assert_non_null(strstr(text, " is a directory, no socket"));
	make_file(f->path);
	channel_why_listen(f->path, channel_listen(f->path, 0600, &fd), text, sizeof(text));
	assert_non_null(strstr(text, " is a file, no socket"));
	unlink(f->path);
	channel_why_listen("/nowhere/s", channel_listen("/nowhere/s", 0600, &fd), text,
			   sizeof(text));
	assert_string_equal(text, "there is no directory for the socket /nowhere/s: make it first");
}

static void a_segment_can_neither_grow_nor_shrink(void **state)
{
	void *map;
	int fd;

	(void)state;
	assert_int_equal(channel_segment_new("test", 8192, 0, &fd, &map), 0);
	assert_int_equal(ftruncate(fd, 4096), -1);
	assert_int_equal(errno, EPERM);
	assert_int_equal(ftruncate(fd, 16384), -1);
	assert_int_equal(errno, EPERM);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
	assert_int_equal(errno, EPERM);
	assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	munmap(map, 8192);
	close(fd);
}

static void both_mappings_of_a_segment_are_the_same_memory(void **state)
{
	char *mine;
	char *theirs;
	int fd;

	(void)state;
	assert_int_equal(channel_segment_new("test", 4096, 0, &fd, (void **)&mine), 0);
	assert_int_equal(channel_segment_map(fd, 4096, 1, (void **)&theirs), 0);
	assert_int_equal(mine[17], 0);
	theirs[17] = 42;
	assert_int_equal(mine[17], 42);
	munmap(mine, 4096);
	munmap(theirs, 4096);
	close(fd);
}

static void a_read_only_segment_is_written_by_its_maker_alone(void **state)
{
	char *mine;
	char *theirs;
	int fd;

	(void)state;
	assert_int_equal(channel_segment_new("test", 4096, 1, &fd, (void **)&mine), 0);
	assert_int_equal(channel_segment_map(fd, 4096, 1, (void **)&theirs), -EPERM);
	assert_int_equal(channel_segment_map(fd, 4096, 0, (void **)&theirs), 0);
	assert_int_equal(mprotect(theirs, 4096, PROT_READ | PROT_WRITE), -1);
	assert_int_equal(pwrite(fd, "x", 1, 0), -1);
	assert_int_equal(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), -1);
	mine[3] = 7;
	assert_int_equal(theirs[3], 7);
	munmap(mine, 4096);
	munmap(theirs, 4096);
	close(fd);
}

static void segments_that_are_not_as_agreed_are_refused(void **state)
{
	int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	void *map;

	(void)state;
	assert_int_equal(ftruncate(fd, 4096), 0);
	assert_int_equal(channel_segment_map(fd, 4096, 1, &map), -EBADMSG);
	close(fd);
	assert_int_equal(channel_segment_map(0, 4096, 1, &map), -EBADMSG);
	assert_int_equal(channel_segment_new("test", 4096, 0, &fd, &map), 0);
	munmap(map, 4096);
	assert_int_equal(channel_segment_map(fd, 8192, 1, &map), -EBADMSG);
	close(fd);
}

static void a_punched_lane_reads_zero_and_can_be_written_on(void **state)
{
	struct abi_lane *lane;
	int fd;

	(void)state;
	assert_int_equal(channel_segment_new("lane", sizeof(*lane), 0, &fd, (void **)&lane), 0);
	lane->magic = ABI_LANE_MAGIC;
	ring_publish(lane, 5);
	ring_complete(lane, 4, (struct ring_completion_words){0});
	assert_int_equal(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
				   sizeof(*lane)),
			 0);
	assert_int_equal(lane->magic, 0);
	assert_int_equal(ring_submitted(lane), 0);
	assert_int_equal(ring_done(lane), 0);
	ring_complete(lane, 5, (struct ring_completion_words){0});
	assert_int_equal(ring_done(lane), 5);
	assert_int_equal(ring_completion(lane, 5).ticket, 5);
	munmap(lane, sizeof(*lane));
	close(fd);
}

static void a_forked_child_has_no_mapping_of_a_segment(void **state)
{
	void *map;
	int fd;
	int status;
	pid_t pid;

	(void)state;
	assert_int_equal(channel_segment_new("test", 4096, 0, &fd, &map), 0);
	pid = fork();
	if (pid == 0)
		_exit(msync(map, 4096, MS_ASYNC) < 0 && errno == ENOMEM ? 0 : 1);
	waitpid(pid, &status, 0);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	munmap(map, 4096);
	close(fd);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(packets_keep_their_borders),
		TEST(descriptors_arrive_close_on_exec),
		TEST(surplus_descriptors_are_closed),
		TEST(uninvited_descriptors_are_dropped),
		TEST(a_packet_longer_than_the_buffer_is_an_error),
		TEST(the_largest_packet_passes_and_a_larger_one_is_refused),
		TEST(an_empty_packet_is_refused),
		TEST(a_hang_up_is_seen_behind_the_last_packet),
		TEST(nothing_there_does_not_block_when_so_asked),
		TEST(the_peer_is_known_from_the_socket),
		TEST(a_peers_pidfd_tells_of_its_death),
		TEST(a_listening_socket_has_the_mode_asked_for),
		TEST(a_stale_socket_is_replaced),
		TEST(a_live_socket_is_not_taken),
		TEST(a_file_that_is_no_socket_is_left_alone),
		TEST(of_daemons_that_start_at_once_one_gets_the_stale_socket),
		TEST(connecting_says_what_is_missing),
		TEST(a_missing_socket_a_file_and_a_directory_are_three_sentences),
		TEST(who_cannot_listen_is_told_why),
		cmocka_unit_test(a_segment_can_neither_grow_nor_shrink),
		cmocka_unit_test(both_mappings_of_a_segment_are_the_same_memory),
		cmocka_unit_test(a_read_only_segment_is_written_by_its_maker_alone),
		cmocka_unit_test(segments_that_are_not_as_agreed_are_refused),
		cmocka_unit_test(a_punched_lane_reads_zero_and_can_be_written_on),
		cmocka_unit_test(a_forked_child_has_no_mapping_of_a_segment),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
