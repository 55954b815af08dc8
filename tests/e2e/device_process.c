/* device_process.c - see device_process.h. */
#include "device_process.h"

#include "control_harness.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#define PATIENCE_MS 60000

struct stem stem_exec(const char *const *argv, const char *variable)
{
	int in[2], out[2];
	struct stem stem;

	assert_int_equal(pipe2(in, O_CLOEXEC), 0);
	assert_int_equal(pipe2(out, O_CLOEXEC), 0);
	stem = (struct stem){fork(), in[1], out[0]};
	assert_true(stem.pid >= 0);
	if (stem.pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(in[0], STDIN_FILENO);
		dup2(out[1], STDOUT_FILENO);
		if (variable)
			putenv((char *)variable);
		execv(argv[0], (char *const *)argv);
		_exit(98);
	}
	close(in[0]);
	close(out[1]);
	return stem;
}

void stem_await_go(const struct stem *stem)
{
	struct pollfd p = {.fd = stem->out, .events = POLLIN};
	char text[4] = "";

	assert_int_equal(poll(&p, 1, PATIENCE_MS), 1);
	assert_int_equal(read(stem->out, text, 3), 3);
	assert_string_equal(text, "go\n");
}

void stem_go(const struct stem *stem)
{
	assert_int_equal(write(stem->in, "\n", 1), 1);
}

int stem_end(struct stem *stem)
{
	int status = harness_wait(stem->pid);

	close(stem->in);
	close(stem->out);
	return status;
}

void stem_kill(struct stem *stem)
{
	kill(stem->pid, SIGKILL);
	assert_int_equal(stem_end(stem), -SIGKILL);
}
