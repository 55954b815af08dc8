/*
 * crew.c - fork, a pipe up and a pipe down for each client, and a byte to all of them at each turn
 * of the measurement.
 */
#include "crew.h"

#include <err.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

static void read_all(int fd, void *to, size_t bytes)
{
	for (size_t done = 0; done < bytes;) {
		ssize_t n = read(fd, (char *)to + done, bytes - done);

		if (n <= 0)
			errx(1, "a client failed");
		done += (size_t)n;
	}
}

static void tell_all(struct crew *crew)
{
	for (uint32_t i = 0; i < crew->n; i++)
		if (write(crew->down[i][1], "g", 1) != 1)
			err(1, "pipe");
}

/* The pipe holds all its times: who waits for room would decode no more. */
static void start(struct crew *crew, const char *socket, uint32_t i)
{
	int *up = crew->up[i], *down = crew->down[i];
	char ready;

	if (pipe(up) < 0 || pipe(down) < 0)
		err(1, "pipe");
	fcntl(up[1], F_SETPIPE_SZ, 1 << 20);
	crew->pids[i] = fork();
	if (crew->pids[i] == 0) {
		close(up[0]);
		client_main(&crew->each, socket, i, up[1], down[0]);
	}
	close(up[1]);
	read_all(up[0], &ready, 1);
}

void crew_start(struct crew *crew, const struct client_options *each, uint32_t n,
		const char *socket)
{
	char warm;

	*crew = (struct crew){.n = n, .each = *each};
	for (uint32_t i = 0; i < n; i++)
		start(crew, socket, i);
	tell_all(crew);
	for (uint32_t i = 0; i < n; i++)
		read_all(crew->up[i][0], &warm, 1);
}

double crew_measure(struct crew *crew, double *us)
{
	const uint32_t each = client_times(&crew->each);
	double tail, tails = 0;

	tell_all(crew);
	for (uint32_t i = 0; i < crew->n; i++) {
		read_all(crew->up[i][0], &tail, sizeof(tail));
		tails += tail;
		read_all(crew->up[i][0], us + i * each, each * sizeof(*us));
	}
	return tails / crew->n;
}

void crew_end(struct crew *crew)
{
	tell_all(crew);
	for (uint32_t i = 0; i < crew->n; i++) {
		waitpid(crew->pids[i], NULL, 0);
		close(crew->up[i][0]);
		close(crew->down[i][0]);
		close(crew->down[i][1]);
	}
}
