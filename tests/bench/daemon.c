/*
 * daemon.c - how the bench's daemon is started on a core of its own, waited for until it listens,
 * asked by coppicectl, and ended with the bench.
 */
#include "daemon.h"

#include "bench.h"

#include <err.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_FLAGS 16
#define START_MS 10000

void bench_pin(int core)
{
	static cpu_set_t given; /* before the first is pinned */
	cpu_set_t cores;

	if (CPU_COUNT(&given) == 0 && sched_getaffinity(0, sizeof(given), &given) < 0)
		err(1, "sched_getaffinity");
	CPU_ZERO(&cores);
	for (int i = 0, nth = 0; i < CPU_SETSIZE; i++) {
		if (CPU_ISSET(i, &given) && (core < 0 || nth++ == core))
			CPU_SET(i, &cores);
	}
	if (sched_setaffinity(0, sizeof(cores), &cores) < 0)
		err(1, "cannot run on core %d", core);
}

void bench_program(const char *folder, const char *name, char *ret_path, size_t bytes)
{
	const char *dir = getenv("COPPICE_BIN_DIR");

	if (dir)
		snprintf(ret_path, bytes, "%s/%s", dir, name);
	else
		snprintf(ret_path, bytes, "%s/%s/%s", BENCH_BUILD_DIR, folder, name);
}

static void become_daemon(const struct bench_daemon *d, int core, const char *const *flags)
{
	char path[512];
	const char *argv[MAX_FLAGS + 6] = {path, "--socket", d->socket, "--log-level", "warning"};
	int n = 5;

	prctl(PR_SET_PDEATHSIG, SIGTERM);
	bench_program("daemon", "coppiced", path, sizeof(path));
	for (int i = 0; flags && flags[i] && i < MAX_FLAGS; i++)
		argv[n++] = flags[i];
	bench_pin(core);
	execv(path, (char *const *)argv);
	err(127, "%s", path);
}

static int listens(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	memcpy(address.sun_path, path, strlen(path) + 1);
	int r = connect(fd, (const struct sockaddr *)&address, sizeof(address));

	close(fd);
	return r == 0;
}

void bench_daemon_start(struct bench_daemon *d, int core, const char *const *flags)
{
	strcpy(d->dir, "/tmp/coppice-bench-XXXXXX");
	if (!mkdtemp(d->dir))
		err(1, "no temporary folder");
	snprintf(d->socket, sizeof(d->socket), "%s/socket", d->dir);
	d->pid = fork();
	if (d->pid < 0)
		err(1, "fork");
	if (d->pid == 0)
		become_daemon(d, core, flags);
	for (int ms = 0; !listens(d->socket); ms += 10) {
		int status;

		if (waitpid(d->pid, &status, WNOHANG) == d->pid || ms > START_MS)
			errx(1, "coppiced did not start");
		usleep(10000);
	}
}

void bench_daemon_stop(struct bench_daemon *d)
{
	kill(d->pid, SIGTERM);
	waitpid(d->pid, NULL, 0);
	unlink(d->socket);
	rmdir(d->dir);
}

json_t *bench_daemon_ask(const struct bench_daemon *d, const char *verb)
{
	char path[512], command[1024];

	bench_program("client/ctl", "coppicectl", path, sizeof(path));
	snprintf(command, sizeof(command), "%s --socket %s --json %s", path, d->socket, verb);
	FILE *out = popen(command, "r");
	json_t *answer = out ? json_loadf(out, 0, NULL) : NULL;

	if (!answer || pclose(out) != 0)
		errx(1, "%s failed", command);
	return answer;
}
