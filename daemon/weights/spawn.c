/*
 * spawn.c - a loader gets three descriptors, no signal mask, and nothing else of the daemon's: all
 * that the daemon has is close-on-exec.
 */
#include "spawn.h"

#include "wire.h"

#include "proto/channel.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define GONE_LOOKS 100 /* a millisecond apart */

extern char **environ;

struct spawning {
	posix_spawn_file_actions_t files;
	posix_spawnattr_t attr;
};

/* Above the numbers that the loader is to have them under: what is moved there first is not
 * overwritten by what comes second. */
static int lift(int fd)
{
	int lifted = fcntl(fd, F_DUPFD_CLOEXEC, LOADER_SLOTS_FD + 1);

	return lifted < 0 ? -errno : lifted;
}

static int describe(struct spawning *s, const int from[3])
{
	static const int to[] = {LOADER_DAEMON_FD, LOADER_CLIENT_FD, LOADER_SLOTS_FD};
	sigset_t none, all;
	int r = 0;

	sigemptyset(&none);
	sigfillset(&all);
	for (int i = 0; i < 3 && r == 0; i++)
		r = posix_spawn_file_actions_adddup2(&s->files, from[i], to[i]);
	if (r == 0)
		r = posix_spawnattr_setsigmask(&s->attr, &none);
	if (r == 0)
		r = posix_spawnattr_setsigdefault(&s->attr, &all);
	if (r == 0)
		r = posix_spawnattr_setflags(&s->attr,
					     POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
	return -r;
}

static int start(const char *program, const int fds[3], pid_t *ret)
{
	static char arg[] = "--loader";
	char *argv[] = {(char *)program, arg, NULL};
	struct spawning s;
	int r;

	if (posix_spawn_file_actions_init(&s.files) != 0)
		return -ENOMEM;
	if (posix_spawnattr_init(&s.attr) != 0) {
		posix_spawn_file_actions_destroy(&s.files);
		return -ENOMEM;
	}
	r = describe(&s, fds);
	if (r == 0)
		r = -posix_spawn(ret, program, &s.files, &s.attr, argv, environ);
	posix_spawnattr_destroy(&s.attr);
	posix_spawn_file_actions_destroy(&s.files);
	return r;
}

/* With descriptors that are its own, lifted. */
static int start_lifted(const char *program, int client_fd, int loader_end, int slots_fd,
			pid_t *ret)
{
	const int from[] = {loader_end, client_fd, slots_fd};
	int fds[3], n = 0, r = 0;

	for (; n < 3 && r >= 0; n++)
		r = fds[n] = lift(from[n]);
	if (r >= 0)
		r = start(program, fds, ret);
	while (n-- > 0)
		if (fds[n] >= 0)
			close(fds[n]);
	return r;
}

int loader_spawn(const char *program, int client_fd, struct loader_process *ret)
{
	struct loader_process process = {.fd = -1};
	int ends[2], slots_fd, r;
	void *slots;

	r = channel_segment_new("coppice-loader", LOADER_SLOTS_BYTES, 0, &slots_fd, &slots);
	if (r < 0)
		return r;
	process.slots = slots;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0) {
		r = -errno;
	} else {
		process.fd = ends[0];
		r = start_lifted(program, client_fd, ends[1], slots_fd, &process.pid);
		close(ends[1]);
	}
	close(slots_fd);
	if (r < 0) {
		process.pid = 0;
		(void)loader_kill(&process);
		return r;
	}
	*ret = process;
	return 0;
}

bool loader_is_gone(pid_t pid)
{
	return waitpid(pid, NULL, WNOHANG) != 0;
}

bool loader_kill(struct loader_process *process)
{
	const struct timespec moment = {.tv_nsec = 1000000};
	bool gone = process->pid == 0;

	if (process->fd >= 0)
		close(process->fd);
	process->fd = -1;
	if (process->slots)
		munmap(process->slots, LOADER_SLOTS_BYTES);
	process->slots = NULL;
	if (!gone)
		kill(process->pid, SIGKILL);
	for (int i = 0; !gone && i < GONE_LOOKS; i++) {
		gone = loader_is_gone(process->pid);
		if (!gone)
			nanosleep(&moment, NULL);
	}
	if (gone)
		process->pid = 0;
	return gone;
}
